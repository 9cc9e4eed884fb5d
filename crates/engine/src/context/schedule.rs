//! Who is on the counters.
//!
//! What it is: pinned groups first, then flexible ones in their order; a group goes on whole or not at all.
//!
//! **Invariant:** placement asks the PMU model what fits (pure); programming is ordered from the bank and may fail later.

use super::{Context, GroupKey, MemberKey, Order, Presence, Step};
use crate::event::{EventState, Fault};
use crate::id::PmuId;
use crate::pmu::{BankError, SlotMask, Slots};
use core::mem;

/// Who is left out when free slots are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spare {
    /// Everybody is tried.
    Nobody,
    /// Not those whom the bank has just refused: it would refuse them again, without end.
    Refused,
}

impl Context {
    /// Whoever waits gets what has become free. Each round takes slots or is the last.
    pub(super) fn refill(&mut self, spare: Spare, step: Step<'_>) {
        while mem::take(&mut self.freed) {
            self.fill(spare, step);
        }
    }

    /// Puts every enabled group that fits on the counters, pinned ones first.
    pub(super) fn fill(&mut self, spare: Spare, step: Step<'_>) {
        let mut next = self.first().filter(|_| self.waiting > 0);
        while let Some(key) = next {
            next = self.after(key).filter(|_| self.waiting > 0);
            if spare == Spare::Nobody || !self.was_refused(key) {
                self.fill_group(key, step);
            }
        }
    }

    fn was_refused(&self, key: GroupKey) -> bool {
        self.groups.get(key).is_some_and(|group| {
            group
                .members
                .iter()
                .filter_map(|&key| self.members.get(key))
                .any(|member| member.state() == EventState::Inactive && matches!(member.fault, Some(Fault::Refused(_))))
        })
    }

    /// Puts one group on the counters, if it is enabled and fits.
    pub(super) fn fill_group(&mut self, key: GroupKey, step: Step<'_>) {
        let Some(group) = self.groups.get(key) else { return };
        let leader = group.members.first().and_then(|&leader| self.members.get(leader));
        if group.waiting == 0
            || !group.filter.passes(self.presence.unwrap_or(Presence::Out))
            || !leader.is_some_and(|leader| leader.state().ages())
            || self.try_on(key, step)
        {
            return;
        }
        // Those of its members that are on already may stand in the way of the others: whole, or not at all.
        if self.is_partly_on(key) {
            self.displace(key, step);
            if self.try_on(key, step) {
                return;
            }
        }
        if self.groups.get(key).is_some_and(|group| group.demand.pinned) {
            self.fail_group(key, BankError::Unscheduled, step);
        }
    }

    fn is_partly_on(&self, key: GroupKey) -> bool {
        self.groups.get(key).is_some_and(|group| group.members.iter().any(|&key| self.is(key, EventState::Active)))
    }

    /// Puts the members that wait on counters, all or none; the leader starts last, so that a group begins as one.
    fn try_on(&mut self, key: GroupKey, step: Step<'_>) -> bool {
        if !self.exclusive_rule_allows(key) {
            return false;
        }
        let mut room = mem::take(&mut self.room);
        room.wanted.clear();
        let members = self.groups.get(key).map(|group| &group.members[..]).unwrap_or_default();
        room.wanted.extend(members.iter().copied().filter(|&key| self.is(key, EventState::Inactive)));
        let placed = self.place(&mut room, step);
        for &key in room.wanted.iter().rev().filter(|_| placed) {
            if let Some(lease) = self.members.get(key).and_then(|member| member.lease) {
                self.transition(key, EventState::Active, step);
                self.orders.push_back(Order::Start { member: key, lease });
            }
        }
        self.room = room;
        placed
    }

    /// Takes slots for all that are wanted, or none; members whose slots are plenty hold theirs already.
    fn place(&mut self, room: &mut super::Room, step: Step<'_>) -> bool {
        room.scarce.clear();
        room.specs.clear();
        for &key in &room.wanted {
            let Some(member) = self.members.get(key) else { return false };
            match member.caps().slots {
                Slots::Plenty if member.lease.is_none() => return false,
                Slots::Plenty => {}
                Slots::Scarce(_) => {
                    room.scarce.push(key);
                    room.specs.push(member.spec);
                }
            }
        }
        let Some(pmu) = room.specs.first().map(|spec| spec.pmu) else { return true };
        let Some(model) = step.pmus.pmu(pmu) else { return false };
        let used = self.slots.used(pmu);
        room.slots.clear();
        room.slots.resize(room.specs.len(), crate::pmu::Slot::default());
        if !model.place(&room.specs, used, &mut room.slots) || !are_free(&room.slots, used) {
            return false;
        }
        for (&key, &slot) in room.scarce.iter().zip(&room.slots) {
            let lease = self.slots.take(pmu, slot);
            if let Some(member) = self.members.get_mut(key) {
                member.lease = Some(lease);
            }
            self.orders.push_back(Order::Program { member: key, lease, leader: None });
        }
        true
    }

    /// An exclusive group is alone on its scarce PMU; nobody joins it.
    fn exclusive_rule_allows(&self, key: GroupKey) -> bool {
        if self.exclusive == 0 {
            return true;
        }
        let Some(group) = self.groups.get(key) else { return false };
        let Some(pmu) = self.scarce_pmu(key) else { return true };
        if group.demand.exclusive {
            return self.slots.used(pmu) == SlotMask::default();
        }
        !self.groups().any(|(other, state)| {
            other != key && state.demand.exclusive && self.scarce_pmu(other) == Some(pmu) && self.is_partly_on(other)
        })
    }

    fn scarce_pmu(&self, key: GroupKey) -> Option<PmuId> {
        self.groups.get(key)?.members.iter().find_map(|&key| {
            let member = self.members.get(key)?;
            matches!(member.caps().slots, Slots::Scarce(_)).then_some(member.spec.pmu)
        })
    }

    fn is(&self, key: MemberKey, state: EventState) -> bool {
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
    pub(super) fn fail(&mut self, key: MemberKey, error: BankError, step: Step<'_>) {
        self.deactivate(key, EventState::Error, step);
        if let Some(member) = self.members.get_mut(key).filter(|member| member.state() == EventState::Error) {
            member.fault = Some(Fault::Refused(error));
        }
    }

    /// A pinned group can't have what it demands: all that is enabled of it is in error.
    pub(super) fn fail_group(&mut self, key: GroupKey, error: BankError, step: Step<'_>) {
        // The leader last: its siblings age as long as it does.
        for index in (0..self.group_len(key)).rev() {
            let ages = |&key: &MemberKey| self.members.get(key).is_some_and(|member| member.state().ages());
            if let Some(member) = self.member_at(key, index).filter(ages) {
                self.fail(member, error, step);
            }
        }
    }

    /// Stops one event and folds what its slot counted; a scarce slot is given back.
    pub(super) fn deactivate(&mut self, key: MemberKey, next: EventState, step: Step<'_>) {
        let Some(member) = self.members.get_mut(key) else { return };
        if member.state() == EventState::Dead {
            return;
        }
        if member.state() == EventState::Active
            && let Some(lease) = member.lease
        {
            self.orders.push_back(Order::Stop { lease });
            self.orders.push_back(Order::Read { member: key, lease });
            if matches!(member.caps().slots, Slots::Scarce(_)) {
                self.surrender(key);
                self.freed = true;
            }
        }
        self.transition(key, next, step);
    }
}

/// What a model says is checked: a slot that two events share would count both wrongly.
fn are_free(slots: &[crate::pmu::Slot], used: SlotMask) -> bool {
    let mut used = used;
    slots.iter().all(|&slot| {
        let free = slot.0 < 64 && used.without(slot) == used;
        used = used.with(slot);
        free
    })
}
