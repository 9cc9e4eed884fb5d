//! All groups of a core are looked at, in their order.
//!
//! What it is: who would have which slot if all were placed anew, and the difference to what is: only that is changed.
//! Pinned groups come first (those that are on, then the core's own, then the guest's), then flexible ones, from the one
//! whose turn it is; groups behind one that finds no room are still tried. Taking turns moves the beginning on.
//!
//! The turn passes on from a group that is on, or that was tried before all others and cannot be on. Only groups that take part
//! have a turn. Where the CPU's groups and the task's groups both wait, the two are tried first in turn. A task that is off the CPU
//! at every tick takes its turns when it comes onto a CPU. So each group that can be on at all is on at some time.
//!
//! **Invariant:** a group is on whole, or not at all; a group that keeps its slot is not touched. An event moves to another counter
//! only where a constraint needs it.
//!
//! **Invariant:** which groups are on is a pure function of which are enabled and whose turn it is; pinned groups that are on stay on.
//!
//! Linux: `ctx_resched`, `perf_event_sched_in`, `group_can_go_on` (kernel/events/core.c).

use super::sched_in::are_free;
use super::slots::SlotTable;
use super::{Context, CpuContext, Ctx, EventKey, FlexibleGroups, GroupKey, Placement, Step, Turns};
use crate::event::EventState;
use crate::id::{Nanos, PmuId};
use crate::pmu::{BankError, PmuTable, Slot, SlotMask, Slots};
use core::mem;

/// Who is left out when slots are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Skip {
    /// Every group is tried.
    None,
    /// Not the groups that the bank has just refused: it would refuse them again, without end.
    Refused,
}

const BOTH: [Ctx; 2] = [Ctx::Cpu, Ctx::Task];

impl CpuContext {
    /// Groups that wait get what has become free.
    pub(super) fn balance(&mut self, skip: Skip, step: Step<'_>) {
        let Some(own) = &mut self.own else { return };
        let contended = mem::take(&mut own.cpu_pmu.contended);
        let freed = mem::take(&mut own.cpu_pmu.freed);
        if contended || (freed && self.waits()) {
            self.look_at_all(skip, step);
        }
    }

    fn waits(&self) -> bool {
        BOTH.iter().filter_map(|&side| self.context(side)).any(|context| context.waiting > 0)
    }

    fn look_at_all(&mut self, skip: Skip, step: Step<'_>) {
        self.plan(skip, step);
        for side in BOTH {
            self.lend(side, |context| context.clear_out(step));
        }
        for side in BOTH {
            self.lend(side, |context| context.move_in(side, step));
        }
        // What was freed on the way has been handed out on the way.
        if let Some(own) = &mut self.own {
            own.cpu_pmu.freed = false;
        }
    }

    /// Fills the transactions.
    fn plan(&mut self, skip: Skip, step: Step<'_>) {
        let Some(own) = &mut self.own else { return };
        let mut slots = mem::take(&mut own.cpu_pmu.slots);
        slots.clear_txns();
        // A pinned group that is on stays on.
        for on in [true, false] {
            for side in BOTH {
                if let Some(context) = self.ctx(side) {
                    context.plan_pinned(side, on, skip, &mut slots, step.pmus);
                }
            }
        }
        // Groups of two PMUs have nothing to do with one another; of one PMU, it matters who is tried first.
        for side in BOTH {
            for index in 0..self.context(side).map_or(0, |context| context.flexible.len()) {
                self.plan_flexible(side, index, skip, &mut slots, step);
            }
        }
        for (pmu, side, group, member, slot) in slots.txn_slots() {
            let Some(context) = self.ctx(side) else { continue };
            let moves = context.members.get(member).is_some_and(|member| {
                member.state() == EventState::Active
                    && member.lease.is_some_and(|lease| lease.pmu == pmu && lease.slot != slot)
            });
            if let Some(group) = context.groups.get_mut(group).filter(|_| moves) {
                group.placement = Placement::Moved;
            }
        }
        if let Some(own) = &mut self.own {
            own.cpu_pmu.slots = slots;
        }
    }

    /// Plans a queue, and the other context's queue for the same PMU with it, where the two compete.
    fn plan_flexible(&mut self, side: Ctx, index: usize, skip: Skip, slots: &mut SlotTable, step: Step<'_>) {
        let scarce = self.context(side).and_then(|context| context.flexible.get(index)?.scarce);
        let other = self.context(Ctx::Cpu).filter(|_| side == Ctx::Task && scarce.is_some());
        if other.is_some_and(|own| own.queue(scarce) < own.flexible.len()) {
            // It had its part together with the own one.
            return;
        }
        let guest_first = scarce.is_some_and(|pmu| self.first(pmu) == Ctx::Task);
        let order = match (side, scarce) {
            (_, None) | (Ctx::Task | Ctx::Prev, _) => [Some(side), None],
            (Ctx::Cpu, Some(_)) if guest_first => [Some(Ctx::Task), Some(Ctx::Cpu)],
            (Ctx::Cpu, Some(_)) => [Some(Ctx::Cpu), Some(Ctx::Task)],
        };
        for side in order.into_iter().flatten() {
            if let Some(context) = self.ctx(side) {
                context.plan_queue(side, context.queue(scarce), skip, slots, step.pmus);
            }
        }
    }

    /// It is the next ones' turn: what a CPU's timer calls for. Returns whether a group waits for a counter.
    pub fn rotate(&mut self, step: Step<'_>) -> bool {
        let mut waits = false;
        let mut next = self.scarce_after(None);
        while let Some((pmu, _)) = next {
            waits |= self.rotate_pmu(pmu, step.now);
            next = self.scarce_after(Some(pmu));
        }
        if waits {
            self.look_at_all(Skip::None, step);
        }
        waits
    }

    fn rotate_pmu(&mut self, pmu: PmuId, now: Nanos) -> bool {
        self.note_chances(pmu);
        let waiting = BOTH.map(|side| self.context(side).is_some_and(|context| context.is_left_out(pmu)));
        if waiting == [false; 2] {
            // Time in which all groups were on is no side's lead.
            self.turns(pmu).into_iter().for_each(|turns| turns.begin(now));
            return false;
        }
        for (side, _) in BOTH.into_iter().zip(waiting).filter(|(_, waits)| *waits) {
            if let Some(context) = self.ctx(side) {
                context.pass_turn_on(context.queue(Some(pmu)));
            }
        }
        self.decide_who_is_first(pmu, now);
        true
    }

    /// Where a task is on the CPU, its groups and the CPU's own are first in turn, each for as long as the other.
    fn decide_who_is_first(&mut self, pmu: PmuId, now: Nanos) {
        self.turns(pmu).into_iter().for_each(|turns| turns.decide(now));
    }

    fn turns(&mut self, pmu: PmuId) -> Option<&mut Turns> {
        let guest = self.guest.as_mut()?;
        let index = guest.queue(Some(pmu));
        Some(&mut guest.flexible.get_mut(index)?.turns)
    }

    /// Whose flexible groups are tried first on a PMU. No side is second where only one is there.
    fn first(&self, pmu: PmuId) -> Ctx {
        let queue = self.guest.as_ref().and_then(|guest| guest.flexible.get(guest.queue(Some(pmu))));
        queue.map_or(Ctx::Cpu, |queue| queue.turns.first)
    }

    /// The guest is about to leave, perhaps without ever having seen a tick here: for its groups this is one.
    pub(super) fn pass_turns_of_guest_on(&mut self, now: Nanos) {
        let mut next = self.scarce_after(None);
        while let Some((pmu, _)) = next {
            next = self.scarce_after(Some(pmu));
            self.note_chances(pmu);
            if self.guest.is_none() {
                continue;
            }
            let [own, guest] = BOTH.map(|side| self.context(side).is_some_and(|context| context.is_left_out(pmu)));
            if let Some(context) = self.guest.as_mut().filter(|_| guest) {
                context.pass_turn_on(context.queue(Some(pmu)));
            }
            if own || guest {
                self.decide_who_is_first(pmu, now);
                // A clone that comes would go on with the slots of the one that leaves, whichever side is first now.
                self.own.iter_mut().for_each(|own| own.cpu_pmu.contended = true);
            }
        }
    }

    /// Before anything changes: the group whose turn it is has its chance while it is on, and while it is tried before all
    /// others.
    fn note_chances(&mut self, pmu: PmuId) {
        let first = self.first(pmu);
        for side in BOTH {
            if let Some(context) = self.ctx(side) {
                let index = context.queue(Some(pmu));
                let head = context.flexible.get(index).and_then(|queue| queue.list.head());
                let on = head.is_none_or(|head| context.is_partly_on(head));
                if let Some(queue) = context.flexible.get_mut(index) {
                    queue.had_chance |= on || first == side;
                }
            }
        }
    }

    /// The turn of that number, for cores that go in step. Returns whether a group waits for a counter.
    pub fn take_turn(&mut self, number: u64, step: Step<'_>) -> bool {
        let Some(own) = self.own.as_mut().filter(|own| own.flexible.iter().any(|queue| queue.left_out)) else {
            return false;
        };
        for index in 0..own.flexible.len() {
            own.take_turn(index, number);
        }
        self.look_at_all(Skip::None, step);
        true
    }
}

impl Context {
    fn plan_pinned(&mut self, side: Ctx, on: bool, skip: Skip, slots: &mut SlotTable, pmus: &dyn PmuTable) {
        let mut next = self.pinned.first;
        while let Some(key) = next {
            next = self.groups.get(key).and_then(|group| group.links.after);
            if self.is_partly_on(key) == on {
                self.plan_group(side, key, skip, slots, pmus);
            }
        }
    }

    fn plan_queue(&mut self, side: Ctx, index: usize, skip: Skip, slots: &mut SlotTable, pmus: &dyn PmuTable) {
        let Some(queue) = self.flexible.get_mut(index) else { return };
        let (list, order) = (queue.list, mem::take(&mut queue.order));
        let mut left_out = false;
        for &key in &order {
            left_out |= self.plan_group(side, key, skip, slots, pmus) == Placement::Lacking;
        }
        let mut next = list.head();
        while let Some(key) = next {
            next = list.next_in_turn(&self.groups, key);
            let had_its_part = self.groups.get(key).is_some_and(|group| group.ordered);
            left_out |= !had_its_part && self.plan_group(side, key, skip, slots, pmus) == Placement::Lacking;
        }
        let queue = &mut self.flexible[index];
        (queue.left_out, queue.order) = (left_out, order);
    }

    fn plan_group(
        &mut self,
        side: Ctx,
        key: GroupKey,
        skip: Skip,
        slots: &mut SlotTable,
        pmus: &dyn PmuTable,
    ) -> Placement {
        let tried = self.is_eligible(key) && !(skip == Skip::Refused && self.was_refused(key));
        let placement = match tried {
            false => Placement::None,
            true if self.find_slots(side, key, slots, pmus) => Placement::Kept,
            true => Placement::Lacking,
        };
        if let Some(group) = self.groups.get_mut(key) {
            group.placement = placement;
        }
        placement
    }

    /// Enters a group in the transaction of its scarce PMU, if all of it finds room there.
    fn find_slots(&self, side: Ctx, key: GroupKey, slots: &mut SlotTable, pmus: &dyn PmuTable) -> bool {
        let Some(group) = self.groups.get(key) else { return false };
        let enabled = || group.members.iter().filter_map(|&key| Some((key, self.members.get(key)?)));
        let enabled = || enabled().filter(|(_, member)| member.state().ages());
        if enabled().any(|(_, member)| member.caps().slots == Slots::Plenty && member.lease.is_none()) {
            return false;
        }
        let Some(pmu) = group.scarce else { return true };
        let Some(model) = pmus.pmu(pmu) else { return false };
        slots.ensure(pmu, model.caps());
        let of_pmu = || enabled().filter(|(_, member)| member.spec.pmu == pmu);
        if let Some(lines) = slots.lines(pmu) {
            let wanted = of_pmu().map(|(_, member)| member.spec.allowed);
            return lines.plan((group.node, group.demand), wanted, model);
        }
        let scarce = slots.scarce(pmu);
        let txn = slots.txn(pmu);
        let before = txn.who.len();
        // More than there are slots don't fit, and there is no room for them in the transaction.
        if before + of_pmu().count() > scarce {
            return false;
        }
        if txn.exclusive || (group.demand.exclusive && before > 0) {
            return false;
        }
        txn.before.clone_from(&txn.slots);
        for (member, state) in of_pmu() {
            txn.who.push((side, key, member));
            txn.allowed.push(state.spec.allowed);
            txn.slots.push(state.lease.map_or(Slot::NONE, |lease| lease.slot));
        }
        let nothing = SlotMask::default();
        if model.place(&txn.allowed, nothing, &mut txn.slots) && are_free(&txn.slots, nothing) {
            txn.exclusive |= group.demand.exclusive && txn.who.len() > before;
            return true;
        }
        txn.who.truncate(before);
        txn.allowed.truncate(before);
        txn.slots.clone_from(&txn.before);
        false
    }

    /// Takes off each group that has to go, or to move.
    fn clear_out(&mut self, step: Step<'_>) {
        let mut next = self.first();
        while let Some(key) = next {
            next = self.after(key);
            let Some((placement, pinned)) = self.groups.get(key).map(|group| (group.placement, group.demand.pinned))
            else {
                continue;
            };
            match placement {
                Placement::Lacking if pinned => self.fail_group(key, BankError::Unscheduled, step),
                Placement::Lacking | Placement::Moved => self.displace(key, step),
                Placement::Kept | Placement::None => {}
            }
        }
    }

    fn move_in(&mut self, side: Ctx, step: Step<'_>) {
        let mut next = self.first().filter(|_| self.waiting > 0);
        while let Some(key) = next {
            next = self.after(key).filter(|_| self.waiting > 0);
            let Some(group) = self.groups.get(key) else { continue };
            if group.waiting == 0 || !matches!(group.placement, Placement::Kept | Placement::Moved) {
                continue;
            }
            let mut scratch = mem::take(&mut self.cpu_pmu.scratch);
            scratch.wanted.clear();
            scratch.wanted.extend(self.members_of(key).filter(|&key| self.is(key, EventState::Inactive)));
            for &member in &scratch.wanted {
                if let Some(slot) = self.slot_in_txn(side, member) {
                    self.settle_in(member, slot);
                }
            }
            self.start(&scratch.wanted, step);
            self.cpu_pmu.scratch = scratch;
        }
    }

    /// The slot that the transaction has for an event; none of a PMU whose slots are names only.
    fn slot_in_txn(&mut self, side: Ctx, key: EventKey) -> Option<Slot> {
        let member = self.members.get(key).filter(|member| matches!(member.caps().slots, Slots::Scarce(_)))?;
        if self.cpu_pmu.slots.lines(member.spec.pmu).is_some() {
            return Some(Slot::NONE);
        }
        let txn = self.cpu_pmu.slots.txn(member.spec.pmu);
        let line = txn.who.iter().position(|&(whose, _, member)| (whose, member) == (side, key))?;
        txn.slots.get(line).copied()
    }

    /// Whether a group that needs this PMU found no room.
    fn is_left_out(&self, pmu: PmuId) -> bool {
        self.flexible.iter().any(|queue| queue.scarce == Some(pmu) && queue.left_out)
    }

    /// The next group's turn has come, if the one whose turn it was has had its chance.
    fn pass_turn_on(&mut self, index: usize) {
        let Some(FlexibleGroups { list, had_chance: true, .. }) = self.flexible.get(index) else { return };
        let mut list = *list;
        list.advance(&self.groups, |key| self.is_eligible(key));
        self.flexible[index].list = list;
        self.flexible[index].had_chance = false;
    }
}
