//! One group goes on the counters, or leaves them.
//!
//! What it is: the short way, for a group that fits beside what is on. Where it does not fit, all groups are looked at
//! in their order: see `resched`.
//!
//! **Invariant:** placement asks the PMU model what fits (pure); programming is ordered from the bank and may fail later.
//!
//! Linux: `ctx_sched_in`, `group_sched_in`, `merge_sched_in` (kernel/events/core.c).

use super::cpu_pmu::Scratch;
use super::{Context, EventKey, GroupKey, GroupState, Order, Presence, Step};
use crate::event::{EventState, Fault};
use crate::pmu::{BankError, Lease, Slot, SlotMask, Slots};
use core::mem;

impl Context {
    /// Puts every enabled group on the counters, pinned ones first, flexible ones from the one whose turn it is; until one
    /// does not fit beside what is on. Then all groups are looked at, and a group that came behind it must not be on already.
    pub(super) fn fill(&mut self, step: Step<'_>) {
        let goes_on = |context: &Self| context.waiting > 0 && !context.cpu_pmu.contended;
        let mut next = self.pinned.first;
        while let Some(key) = next.filter(|_| goes_on(self)) {
            next = self.groups.get(key).and_then(|group| group.links.after);
            self.fill_group(key, step);
        }
        for index in 0..self.flexible.len() {
            let mut next = self.flexible[index].list.head();
            while let Some(key) = next.filter(|_| goes_on(self)) {
                next = self.flexible[index].list.next_in_turn(&self.groups, key);
                self.fill_group(key, step);
            }
        }
    }

    /// Whether the bank has refused it since it went on last.
    pub(super) fn was_refused(&self, key: GroupKey) -> bool {
        self.members_of(key)
            .filter_map(|key| self.members.get(key))
            .any(|member| member.state() == EventState::Inactive && matches!(member.fault, Some(Fault::Refused(_))))
    }

    /// Whether it would count now if there were room.
    pub(super) fn is_eligible(&self, key: GroupKey) -> bool {
        let Some(group) = self.groups.get(key) else { return false };
        let leader = group.members.first().and_then(|&leader| self.members.get(leader));
        leader.is_some_and(|leader| leader.state().ages())
            && group.filter.passes(self.presence.unwrap_or(Presence::Out))
    }

    /// Puts one group on the counters, if it is enabled. Where it does not fit beside what is on, all groups must be
    /// looked at, now or with the next turn.
    pub(super) fn fill_group(&mut self, key: GroupKey, step: Step<'_>) {
        let waits = self.groups.get(key).is_some_and(|group| group.waiting > 0);
        if waits && self.is_eligible(key) && !self.try_on(key, step) && !self.waits_for_its_turn(key) {
            self.cpu_pmu.contended = true;
        }
    }

    /// Whether a group that does not fit may wait for the next turn: where turns are taken in step for thousands of groups that are
    /// enabled one by one, a look at all for each of them would cost the square.
    fn waits_for_its_turn(&mut self, key: GroupKey) -> bool {
        let Some(&GroupState { demand, scarce, .. }) = self.groups.get(key) else { return false };
        let urgent = demand.pinned || demand.exclusive || self.is_partly_on(key);
        if urgent || scarce.is_none_or(|pmu| self.cpu_pmu.slots.lines(pmu).is_none()) {
            return false;
        }
        let queue = self.queue(scarce);
        self.flexible[queue].left_out = true;
        true
    }

    pub(super) fn is_partly_on(&self, key: GroupKey) -> bool {
        self.members_of(key).any(|key| self.is(key, EventState::Active))
    }

    /// Puts the members that wait on counters, all or none.
    fn try_on(&mut self, key: GroupKey, step: Step<'_>) -> bool {
        if !self.exclusive_rule_allows(key) {
            return false;
        }
        let mut scratch = mem::take(&mut self.cpu_pmu.scratch);
        scratch.wanted.clear();
        scratch.wanted.extend(self.members_of(key).filter(|&key| self.is(key, EventState::Inactive)));
        let placed = self.place(key, &mut scratch, step);
        if placed {
            self.start(&scratch.wanted, step);
        }
        self.cpu_pmu.scratch = scratch;
        placed
    }

    /// Starts events that have their slots; the leader last, so that a group begins as one.
    pub(super) fn start(&mut self, members: &[EventKey], step: Step<'_>) {
        for &key in members.iter().rev() {
            let Some((slots, lease)) = self.slot_of(key) else { continue };
            self.transition(key, EventState::Active, step);
            self.order(slots, Order::Start { member: key, lease });
        }
    }

    /// Whether it is counted by a shared slot.
    pub(super) fn needs_scarce(&self, key: EventKey) -> bool {
        self.members.get(key).is_some_and(|member| matches!(member.caps().slots, Slots::Scarce(_)))
    }

    pub(super) fn slot_of(&self, key: EventKey) -> Option<(Slots, Lease)> {
        self.members.get(key).and_then(|member| Some((member.caps().slots, member.lease?)))
    }

    /// Takes slots for all that are wanted, or none; members whose slots are plenty hold theirs already.
    fn place(&mut self, key: GroupKey, scratch: &mut Scratch, step: Step<'_>) -> bool {
        scratch.scarce.clear();
        scratch.allowed.clear();
        let mut pmu = None;
        for &key in &scratch.wanted {
            let Some(member) = self.members.get(key) else { return false };
            match member.caps().slots {
                Slots::Plenty if member.lease.is_none() => return false,
                Slots::Plenty => {}
                Slots::Scarce(_) => {
                    scratch.scarce.push(key);
                    scratch.allowed.push(member.spec.allowed);
                    pmu = Some(member.spec.pmu);
                }
            }
        }
        let Some(pmu) = pmu else { return true };
        let Some(model) = step.pmus.pmu(pmu) else { return false };
        let used = self.cpu_pmu.slots.used(pmu);
        scratch.slots.clear();
        scratch.slots.resize(scratch.allowed.len(), Slot::NONE);
        let placed = match (self.cpu_pmu.slots.lines(pmu), self.groups.get(key)) {
            (Some(lines), Some(group)) => lines.has_room((group.node, group.demand), &scratch.allowed, model),
            _ => model.place(&scratch.allowed, used, &mut scratch.slots) && are_free(&scratch.slots, used),
        };
        if !placed {
            return false;
        }
        for (&key, &slot) in scratch.scarce.iter().zip(&scratch.slots) {
            self.settle_in(key, slot);
        }
        true
    }

    /// Gives a scarce slot to an event and has it programmed: this one, or any where slots are names only.
    pub(super) fn settle_in(&mut self, key: EventKey, slot: Slot) {
        let Some(member) = self.members.get_mut(key) else { return };
        if self.cpu_pmu.slots.ensure(member.spec.pmu, member.caps()) {
            self.cpu_pmu.reserve(1);
        }
        let (group, pmu, tenant) = (member.group, member.spec.pmu, (self.cpu_pmu.side, key));
        let lease = match (self.cpu_pmu.slots.lines(pmu), self.groups.get(group)) {
            (Some(_), Some(group)) => {
                self.cpu_pmu.slots.take_name(pmu, tenant, (group.node, group.demand), member.spec.allowed)
            }
            _ => self.cpu_pmu.slots.take(pmu, slot, tenant),
        };
        member.lease = Some(lease);
        // A leader on another PMU has its slot in another bank, perhaps.
        let leader = self.member_at(group, 0).filter(|&leader| leader != key);
        let leader = leader.filter(|&leader| self.members.get(leader).is_some_and(|leader| leader.spec.pmu == pmu));
        self.cpu_pmu.order(Order::Program { member: key, lease, leader });
    }

    /// Begins anew with the slot that an event is on: its register has wrapped.
    pub(super) fn renew(&mut self, key: EventKey) {
        let Some((slots @ Slots::Scarce(_), lease)) = self.slot_of(key).filter(|_| self.is(key, EventState::Active))
        else {
            return;
        };
        self.cpu_pmu.order(Order::Stop { lease });
        self.cpu_pmu.order(Order::Read { member: key, lease });
        self.cpu_pmu.order(Order::Release { member: key, lease });
        self.cpu_pmu.slots.give_back(lease, slots);
        self.settle_in(key, lease.slot);
        if let Some((_, lease)) = self.slot_of(key) {
            self.cpu_pmu.order(Order::Start { member: key, lease });
        }
    }

    /// An exclusive group is alone on its scarce PMU, and no group joins it: that is for the look at all groups to settle.
    fn exclusive_rule_allows(&self, key: GroupKey) -> bool {
        self.groups.get(key).is_some_and(|group| match group.scarce {
            Some(pmu) => !group.demand.exclusive && !self.cpu_pmu.slots.is_exclusive(pmu),
            None => true,
        })
    }

    pub(super) fn is(&self, key: EventKey, state: EventState) -> bool {
        self.members.get(key).is_some_and(|member| member.state() == state)
    }

    /// Takes a whole group off the counters; its members stay enabled.
    pub(super) fn displace(&mut self, key: GroupKey, step: Step<'_>) {
        for index in 0..self.group_len(key) {
            if let Some(member) = self.member_at(key, index).filter(|&key| self.is(key, EventState::Active)) {
                self.deactivate(member, EventState::Inactive, step);
            }
        }
    }

    /// An event is in error from now on.
    pub(super) fn fail(&mut self, key: EventKey, error: BankError, step: Step<'_>) {
        self.deactivate(key, EventState::Error, step);
        if let Some(member) = self.members.get_mut(key).filter(|member| member.state() == EventState::Error) {
            member.fault = Some(Fault::Refused(error));
        }
    }

    /// A pinned group can't have what it demands: all that is enabled of it is in error.
    pub(super) fn fail_group(&mut self, key: GroupKey, error: BankError, step: Step<'_>) {
        // The leader last: its siblings age as long as it does.
        for index in (0..self.group_len(key)).rev() {
            let ages = |&key: &EventKey| self.members.get(key).is_some_and(|member| member.state().ages());
            if let Some(member) = self.member_at(key, index).filter(ages) {
                self.fail(member, error, step);
            }
        }
    }

    /// Stops one event and folds what its slot counted; a scarce slot is given back.
    pub(super) fn deactivate(&mut self, key: EventKey, next: EventState, step: Step<'_>) {
        let Some(member) = self.members.get_mut(key) else { return };
        if member.state() == EventState::Dead {
            return;
        }
        if member.state() == EventState::Active
            && let Some((slots, lease)) = self.slot_of(key)
        {
            self.order(slots, Order::Stop { lease });
            self.order(slots, Order::Read { member: key, lease });
            if matches!(slots, Slots::Scarce(_)) {
                self.surrender(key);
                self.cpu_pmu.freed = true;
            }
        }
        self.transition(key, next, step);
    }
}

/// What a model says is checked: a slot that two events share would count both wrongly.
pub(super) fn are_free(slots: &[Slot], used: SlotMask) -> bool {
    let mut used = used;
    slots.iter().all(|&slot| {
        let free = slot.0 < 64 && used.without(slot) == used;
        used = used.with(slot);
        free
    })
}
