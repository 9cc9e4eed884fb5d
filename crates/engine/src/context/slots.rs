//! Which slots of which PMU are taken, and which of them the bank has programmed.
//!
//! What it is: what is *planned* (a lease is taken and given back in the step that decides so) beside what is *done* (the
//! bank follows, order by order).
//!
//! **Invariant:** a slot has one lease at most; a lease that was given back is stale for ever, and one that the bank does
//! not hold never reaches it.
//!
//! Linux: `start_txn`, `add`, `commit_txn` and `cancel_txn` of `struct pmu` (include/linux/perf_event.h).

use super::lines::LinesByPath;
use super::{Ctx, EventKey, GroupKey};
use crate::id::PmuId;
use crate::pmu::{CgroupNode, Delegated, Lease, OverflowBy, PmuCaps, Slot, SlotMask, Slots};
use crate::target::Demand;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(super) type Tenant = (Ctx, EventKey);

#[derive(Default)]
struct SlotState {
    /// Which tenant has it, or will have it next.
    generation: u64,
    /// The tenant that the bank has programmed.
    programmed: Option<u64>,
    tenant: Option<Tenant>,
    /// Of a slot that is a name only: where its tenant stands among the cgroups, and on which counters it may be.
    stand: Option<(CgroupNode, SlotMask)>,
}

/// Who would get which slot of a scarce PMU: the transaction of one look at all groups.
#[derive(Default)]
pub(super) struct Txn {
    pub(super) who: Vec<(Ctx, GroupKey, EventKey)>,
    pub(super) allowed: Vec<SlotMask>,
    pub(super) slots: Vec<Slot>,
    /// A copy of `slots` to go back to.
    pub(super) before: Vec<Slot>,
    /// Whether the first group is one that wants to be alone.
    pub(super) exclusive: bool,
}

impl Txn {
    fn clear(&mut self) {
        self.who.clear();
        self.allowed.clear();
        self.slots.clear();
        self.exclusive = false;
    }
}

#[derive(Default)]
struct PmuSlots {
    used: SlotMask,
    places: Vec<SlotState>,
    free: Vec<u32>,
    /// Whether the counters must be looked at, tick by tick.
    polled: bool,
    /// How many there are, of a PMU where they are scarce.
    scarce: u8,
    /// Of a PMU where they are scarce.
    txn: Option<Box<Txn>>,
    /// The same of a PMU where they are scarce, and names only.
    lines: Option<Box<LinesByPath>>,
}

impl PmuSlots {
    /// A slot that no event has, of as many as are wanted.
    fn free_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            if self.places.is_empty() {
                self.places.reserve_exact(1);
            }
            self.places.push(SlotState::default());
            // Giving back must never allocate: it happens when tasks exit.
            self.free.reserve(self.places.len());
            self.places.len() as u32 - 1
        })
    }
}

/// The slots of one bank, by PMU.
#[derive(Default)]
pub(super) struct SlotTable {
    pmus: Vec<PmuSlots>,
}

impl SlotTable {
    fn pmu(&mut self, pmu: PmuId) -> &mut PmuSlots {
        let index = usize::from(pmu.0);
        if self.pmus.len() <= index {
            self.pmus.reserve_exact(index + 1 - self.pmus.len());
            self.pmus.resize_with(index + 1, PmuSlots::default);
        }
        &mut self.pmus[index]
    }

    fn place(&mut self, lease: Lease) -> Option<&mut SlotState> {
        self.pmus.get_mut(usize::from(lease.pmu.0))?.places.get_mut(lease.slot.0 as usize)
    }

    /// Makes room for a scarce PMU; returns whether that was new.
    pub(super) fn ensure(&mut self, pmu: PmuId, caps: &PmuCaps) -> bool {
        let Slots::Scarce(count) = caps.slots else { return false };
        let slots = self.pmu(pmu);
        if slots.scarce > 0 || count == 0 {
            return false;
        }
        let room = usize::from(count);
        slots.scarce = count;
        if caps.delegated.contains(Delegated::PLACEMENT) {
            slots.lines = Some(Box::default());
            return true;
        }
        slots.polled = caps.overflow == OverflowBy::Poll && caps.width_bits < 64;
        slots.places.resize_with(room, SlotState::default);
        let txn = slots.txn.get_or_insert_default();
        txn.who.reserve(room);
        txn.allowed.reserve(room);
        txn.slots.reserve(room);
        txn.before.reserve(room);
        true
    }

    /// How many slots a PMU has where they are scarce, as far as is known; otherwise 0.
    pub(super) fn scarce(&self, pmu: PmuId) -> usize {
        self.pmus.get(usize::from(pmu.0)).map_or(0, |slots| usize::from(slots.scarce))
    }

    /// Whether the slots of a PMU are scarce, as far as is known.
    pub(super) fn is_scarce(&self, pmu: PmuId) -> bool {
        self.scarce(pmu) > 0
    }

    /// How many scarce slots there are, as far as is known.
    pub(super) fn scarce_slots(&self) -> usize {
        self.pmus.iter().map(|slots| usize::from(slots.scarce)).sum()
    }

    /// Takes any slot of a PMU that has plenty.
    pub(super) fn take_any(&mut self, pmu: PmuId) -> Lease {
        let slots = self.pmu(pmu);
        let slot = slots.free_slot();
        Lease { pmu, slot: Slot(slot), generation: slots.places[slot as usize].generation }
    }

    /// Takes a slot that is a name only, for an event of a group that stands there.
    pub(super) fn take_name(
        &mut self,
        pmu: PmuId,
        tenant: Tenant,
        group: (CgroupNode, Demand),
        allowed: SlotMask,
    ) -> Lease {
        let slots = self.pmu(pmu);
        let slot = slots.free_slot();
        let place = &mut slots.places[slot as usize];
        (place.tenant, place.stand) = (Some(tenant), Some((group.0, allowed)));
        let lease = Lease { pmu, slot: Slot(slot), generation: place.generation };
        if let Some(lines) = &mut slots.lines {
            lines.goes_on(group, allowed);
        }
        lease
    }

    /// Who is on along the paths of cgroups; `None` for a PMU whose slots are its counters.
    pub(super) fn lines(&mut self, pmu: PmuId) -> Option<&mut LinesByPath> {
        self.pmus.get_mut(usize::from(pmu.0))?.lines.as_deref_mut()
    }

    /// Takes this slot of a PMU whose slots are scarce, at most 64; it is in [`SlotTable::used`] until it is given back.
    pub(super) fn take(&mut self, pmu: PmuId, slot: Slot, tenant: Tenant) -> Lease {
        let slots = self.pmu(pmu);
        let index = slot.0 as usize;
        if slots.places.len() <= index {
            slots.places.resize_with(index + 1, SlotState::default);
        }
        slots.used = slots.used.with(slot);
        let place = &mut slots.places[index];
        place.tenant = Some(tenant);
        Lease { pmu, slot, generation: place.generation }
    }

    /// The slots of a scarce PMU that are taken; none of one whose slots are names only.
    pub(super) fn used(&self, pmu: PmuId) -> SlotMask {
        self.pmus.get(usize::from(pmu.0)).map_or_else(SlotMask::default, |slots| slots.used)
    }

    /// The scarce PMU after `pmu`, or the first one; with whether it is polled.
    pub(super) fn scarce_after(&self, pmu: Option<PmuId>) -> Option<(PmuId, bool)> {
        let first = pmu.map_or(0, |pmu| usize::from(pmu.0) + 1);
        let (index, slots) = self.pmus.iter().enumerate().skip(first).find(|(_, slots)| slots.scarce > 0)?;
        Some((PmuId(index as u16), slots.polled))
    }

    pub(super) fn tenant(&self, pmu: PmuId, slot: Slot) -> Option<Tenant> {
        self.pmus.get(usize::from(pmu.0))?.places.get(slot.0 as usize)?.tenant
    }

    /// Gives a slot back; a stale lease does nothing.
    pub(super) fn give_back(&mut self, lease: Lease, slots: Slots) {
        let Some(place) = self.place(lease).filter(|place| place.generation == lease.generation) else { return };
        place.generation += 1;
        place.tenant = None;
        let stand = place.stand.take();
        let pmu = self.pmu(lease.pmu);
        match (stand, &mut pmu.lines, slots) {
            (Some((node, allowed)), Some(lines), _) => {
                lines.goes_off(node, allowed);
                pmu.free.push(lease.slot.0);
            }
            (_, _, Slots::Scarce(_)) => pmu.used = pmu.used.without(lease.slot),
            (_, _, Slots::Plenty) => pmu.free.push(lease.slot.0),
        }
    }

    /// The bank has been told to program it.
    pub(super) fn programmed(&mut self, lease: Lease) {
        if let Some(place) = self.place(lease) {
            place.programmed = Some(lease.generation);
        }
    }

    /// Whether the bank holds it.
    pub(super) fn is_programmed(&self, lease: Lease) -> bool {
        let slots = self.pmus.get(usize::from(lease.pmu.0));
        let place = slots.and_then(|slots| slots.places.get(lease.slot.0 as usize));
        place.is_some_and(|place| place.programmed == Some(lease.generation))
    }

    /// The bank does not hold it any more. Returns whether it did.
    pub(super) fn unprogrammed(&mut self, lease: Lease) -> bool {
        let held = self.is_programmed(lease);
        if let Some(place) = self.place(lease).filter(|_| held) {
            place.programmed = None;
        }
        held
    }

    /// The transaction of a scarce PMU, for the look at all groups that is under way.
    pub(super) fn txn(&mut self, pmu: PmuId) -> &mut Txn {
        self.pmu(pmu).txn.get_or_insert_default()
    }

    /// Begins a look at all groups.
    pub(super) fn clear_txns(&mut self) {
        for slots in &mut self.pmus {
            slots.txn.iter_mut().for_each(|txn| txn.clear());
            slots.lines.iter_mut().for_each(|lines| lines.begin_look());
        }
    }

    pub(super) fn txn_slots(&self) -> impl Iterator<Item = (PmuId, Ctx, GroupKey, EventKey, Slot)> {
        self.pmus.iter().enumerate().flat_map(|(index, slots)| {
            let line = move |(&(side, group, member), &slot)| (PmuId(index as u16), side, group, member, slot);
            slots.txn.iter().flat_map(move |txn| txn.who.iter().zip(&txn.slots).map(line))
        })
    }

    /// Whether a group that wants to be alone has this PMU, since the last look at all groups.
    pub(super) fn is_exclusive(&self, pmu: PmuId) -> bool {
        self.pmus.get(usize::from(pmu.0)).is_some_and(|slots| slots.txn.as_ref().is_some_and(|txn| txn.exclusive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;

    const PMU: PmuId = PmuId(3);

    fn tenant() -> Tenant {
        let mut arena: Arena<u8, crate::target::EventKeyTag> = Arena::default();
        (Ctx::Cpu, arena.insert(0))
    }

    #[test]
    fn a_lease_that_was_given_back_is_stale() {
        let mut table = SlotTable::default();
        let first = table.take(PMU, Slot(5), tenant());
        table.programmed(first);
        table.give_back(first, Slots::Scarce(8));
        let second = table.take(PMU, Slot(5), tenant());
        table.give_back(first, Slots::Scarce(8));
        assert_eq!(table.used(PMU), SlotMask::default().with(Slot(5)), "the old tenant can't give the slot away");
        assert_eq!(table.tenant(PMU, Slot(5)), Some(tenant()));
        assert!(table.is_programmed(first) && !table.is_programmed(second), "the bank still holds the old tenant");
        assert!(table.unprogrammed(first) && !table.unprogrammed(first));
    }

    #[test]
    fn slots_that_are_plenty_are_used_again() {
        let mut table = SlotTable::default();
        let (first, second) = (table.take_any(PMU), table.take_any(PMU));
        assert_ne!(first.slot, second.slot);
        table.give_back(first, Slots::Plenty);
        table.give_back(first, Slots::Plenty);
        let third = table.take_any(PMU);
        assert_eq!((third.slot, third.generation), (first.slot, 1));
        assert_eq!(table.take_any(PMU).slot, Slot(2), "given back twice, it is still one slot");
    }
}
