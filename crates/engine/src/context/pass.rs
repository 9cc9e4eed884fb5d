//! All groups of a core are looked at, in their order.
//!
//! What it is: who would have which slot if all were placed anew, and the difference to what is: only that is changed.
//! Pinned groups come first (those that are on, then the core's own, then the guest's), then flexible ones, from the one
//! whose turn it is; groups behind one that finds no room are still tried. Taking turns moves the beginning on.
//!
//! **Invariant:** a group is on whole, or not at all; whoever keeps its slot is not touched.

use super::schedule::are_free;
use super::slots::SlotTable;
use super::{Context, Core, GroupKey, MemberKey, Seat, Side, Step};
use crate::event::EventState;
use crate::pmu::{BankError, PmuTable, Slot, SlotMask, Slots};
use core::mem;

/// Who is left out when slots are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spare {
    /// Everybody is tried.
    Nobody,
    /// Not those whom the bank has just refused: it would refuse them again, without end.
    Refused,
}

const BOTH: [Side; 2] = [Side::Own, Side::Guest];

impl Core {
    /// Whoever waits gets what has become free.
    pub(super) fn balance(&mut self, spare: Spare, step: Step<'_>) {
        let Some(own) = &mut self.own else { return };
        let contended = mem::take(&mut own.desk.contended);
        let freed = mem::take(&mut own.desk.freed);
        if contended || (freed && self.waits()) {
            self.look_at_all(spare, step);
        }
    }

    fn waits(&self) -> bool {
        BOTH.iter().filter_map(|&side| self.context(side)).any(|context| context.waiting > 0)
    }

    fn look_at_all(&mut self, spare: Spare, step: Step<'_>) {
        self.plan(spare, step);
        for side in BOTH {
            self.lend(side, |context| context.clear_out(step));
        }
        for side in BOTH {
            self.lend(side, |context| context.move_in(side, step));
        }
        // What was freed on the way has been handed out on the way.
        if let Some(own) = &mut self.own {
            own.desk.freed = false;
        }
    }

    /// Fills the work sheets.
    fn plan(&mut self, spare: Spare, step: Step<'_>) {
        let Some(own) = &mut self.own else { return };
        let mut slots = mem::take(&mut own.desk.slots);
        slots.clear_sheets();
        let (first, second) =
            if self.first == Side::Guest { (Side::Guest, Side::Own) } else { (Side::Own, Side::Guest) };
        // A pinned group that is on stays on.
        for on in [true, false] {
            for side in BOTH {
                if let Some(context) = self.seat(side) {
                    context.plan_pinned(side, on, spare, &mut slots, step.pmus);
                }
            }
        }
        for side in [first, second] {
            if let Some(context) = self.seat(side) {
                context.plan_flexible(side, spare, &mut slots, step.pmus);
            }
        }
        for (pmu, side, group, member, slot) in slots.lines() {
            let Some(context) = self.seat(side) else { continue };
            let moves = context.members.get(member).is_some_and(|member| {
                member.state() == EventState::Active
                    && member.lease.is_some_and(|lease| lease.pmu == pmu && lease.slot != slot)
            });
            if let Some(group) = context.groups.get_mut(group).filter(|_| moves) {
                group.seat = Seat::Moved;
            }
        }
        if let Some(own) = &mut self.own {
            own.desk.slots = slots;
        }
    }

    /// It is the next ones' turn: what a CPU's timer calls for. Returns whether anybody waits for a counter.
    pub fn rotate(&mut self, step: Step<'_>) -> bool {
        let waits = |side| self.context(side).is_some_and(|context| context.left_out);
        let waiting = BOTH.map(waits);
        if waiting == [false; 2] {
            return false;
        }
        for (side, waits) in BOTH.into_iter().zip(waiting) {
            let was_first = self.first == side;
            if let Some(context) = self.seat(side).as_mut().filter(|_| waits) {
                context.pass_turn_on(was_first);
            }
        }
        // One that was first has had its way; where only one waits, it stays second to nobody.
        self.first = match waiting {
            [true, true] if self.first == Side::Own => Side::Guest,
            [_, false] => Side::Own,
            [false, true] => Side::Guest,
            [true, true] => Side::Own,
        };
        self.look_at_all(Spare::Nobody, step);
        true
    }

    /// The turn of that number, for cores that go in step. Returns whether anybody waits for a counter.
    pub fn take_turn(&mut self, number: u64, step: Step<'_>) -> bool {
        let Some(own) = self.own.as_mut().filter(|own| own.left_out) else { return false };
        let Context { flexible, groups, .. } = &mut **own;
        flexible.turn(groups, number);
        self.look_at_all(Spare::Nobody, step);
        true
    }
}

impl Context {
    fn plan_pinned(&mut self, side: Side, on: bool, spare: Spare, slots: &mut SlotTable, pmus: &dyn PmuTable) {
        let mut next = self.pinned.first;
        while let Some(key) = next {
            next = self.groups.get(key).and_then(|group| group.links.after);
            if self.is_partly_on(key) == on {
                self.plan_group(side, key, spare, slots, pmus);
            }
        }
    }

    fn plan_flexible(&mut self, side: Side, spare: Spare, slots: &mut SlotTable, pmus: &dyn PmuTable) {
        self.left_out = false;
        let mut next = self.flexible.head();
        while let Some(key) = next {
            next = self.flexible.next_in_turn(&self.groups, key);
            self.left_out |= self.plan_group(side, key, spare, slots, pmus) == Seat::Lacking;
        }
    }

    fn plan_group(
        &mut self,
        side: Side,
        key: GroupKey,
        spare: Spare,
        slots: &mut SlotTable,
        pmus: &dyn PmuTable,
    ) -> Seat {
        let tried = self.is_eligible(key) && !(spare == Spare::Refused && self.was_refused(key));
        let seat = match tried {
            false => Seat::None,
            true if self.find_slots(side, key, slots, pmus) => Seat::Kept,
            true => Seat::Lacking,
        };
        if let Some(group) = self.groups.get_mut(key) {
            group.seat = seat;
        }
        seat
    }

    /// Enters a group in the work sheet of its scarce PMU, if all of it finds room there.
    fn find_slots(&self, side: Side, key: GroupKey, slots: &mut SlotTable, pmus: &dyn PmuTable) -> bool {
        let Some(group) = self.groups.get(key) else { return false };
        let enabled = || group.members.iter().filter_map(|&key| Some((key, self.members.get(key)?)));
        let enabled = || enabled().filter(|(_, member)| member.state().ages());
        if enabled().any(|(_, member)| member.caps().slots == Slots::Plenty && member.lease.is_none()) {
            return false;
        }
        let Some(pmu) = group.scarce else { return true };
        let Some(model) = pmus.pmu(pmu) else { return false };
        slots.ensure(pmu, model.caps());
        let sheet = slots.sheet(pmu);
        let before = sheet.who.len();
        if sheet.exclusive || (group.demand.exclusive && before > 0) {
            return false;
        }
        sheet.before.clone_from(&sheet.slots);
        for (member, state) in enabled().filter(|(_, member)| member.spec.pmu == pmu) {
            sheet.who.push((side, key, member));
            sheet.allowed.push(state.spec.allowed);
            sheet.slots.push(state.lease.map_or(Slot::NONE, |lease| lease.slot));
        }
        let nothing = SlotMask::default();
        if model.place(&sheet.allowed, nothing, &mut sheet.slots) && are_free(&sheet.slots, nothing) {
            sheet.exclusive |= group.demand.exclusive && sheet.who.len() > before;
            return true;
        }
        sheet.who.truncate(before);
        sheet.allowed.truncate(before);
        sheet.slots.clone_from(&sheet.before);
        false
    }

    /// Takes off whoever has to go, or to move.
    fn clear_out(&mut self, step: Step<'_>) {
        let mut next = self.first();
        while let Some(key) = next {
            next = self.after(key);
            let Some((seat, pinned)) = self.groups.get(key).map(|group| (group.seat, group.demand.pinned)) else {
                continue;
            };
            match seat {
                Seat::Lacking if pinned => self.fail_group(key, BankError::Unscheduled, step),
                Seat::Lacking | Seat::Moved => self.displace(key, step),
                Seat::Kept | Seat::None => {}
            }
        }
    }

    /// Puts on whoever has found room.
    fn move_in(&mut self, side: Side, step: Step<'_>) {
        let mut next = self.first().filter(|_| self.waiting > 0);
        while let Some(key) = next {
            next = self.after(key).filter(|_| self.waiting > 0);
            let Some(group) = self.groups.get(key) else { continue };
            if group.waiting == 0 || !matches!(group.seat, Seat::Kept | Seat::Moved) {
                continue;
            }
            let mut room = mem::take(&mut self.desk.room);
            room.wanted.clear();
            room.wanted.extend(self.members_of(key).filter(|&key| self.is(key, EventState::Inactive)));
            for &member in &room.wanted {
                if let Some(slot) = self.slot_on_sheet(side, member) {
                    self.settle_in(member, slot);
                }
            }
            self.start(&room.wanted, step);
            self.desk.room = room;
        }
    }

    /// The slot that the work sheet has for an event.
    fn slot_on_sheet(&mut self, side: Side, key: MemberKey) -> Option<Slot> {
        let member = self.members.get(key).filter(|member| matches!(member.caps().slots, Slots::Scarce(_)))?;
        let sheet = self.desk.slots.sheet(member.spec.pmu);
        let line = sheet.who.iter().position(|&(whose, _, member)| (whose, member) == (side, key))?;
        sheet.slots.get(line).copied()
    }

    /// The next group's turn has come, if the one whose turn it was has had its chance: it is on, or it was tried before
    /// all others and can't be on.
    pub(super) fn pass_turn_on(&mut self, was_first: bool) {
        let had_chance = was_first || self.flexible.head().is_none_or(|head| self.is_partly_on(head));
        if had_chance {
            self.flexible.advance(&self.groups);
        }
    }
}
