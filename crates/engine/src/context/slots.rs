//! Which slots of which PMU are taken, and which of them the bank has programmed.
//!
//! What it is: what is *planned* (a lease is taken and given back in the step that decides so) beside what is *done* (the
//! bank follows, order by order).
//!
//! **Invariant:** a slot has one lease at most; a lease that was given back is stale for ever, and one that the bank does
//! not hold never reaches it.

use crate::id::PmuId;
use crate::pmu::{Lease, Slot, SlotMask, Slots};
use alloc::vec::Vec;

#[derive(Default)]
struct Place {
    /// Which tenant has it, or will have it next.
    generation: u64,
    /// The tenant that the bank has programmed.
    programmed: Option<u64>,
}

#[derive(Default)]
struct PmuSlots {
    used: SlotMask,
    places: Vec<Place>,
    free: Vec<u32>,
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
            self.pmus.resize_with(index + 1, PmuSlots::default);
        }
        &mut self.pmus[index]
    }

    fn place(&mut self, lease: Lease) -> Option<&mut Place> {
        self.pmus.get_mut(usize::from(lease.pmu.0))?.places.get_mut(lease.slot.0 as usize)
    }

    /// Takes any slot of a PMU that has plenty.
    pub(super) fn take_any(&mut self, pmu: PmuId) -> Lease {
        let slots = self.pmu(pmu);
        let slot = slots.free.pop().unwrap_or_else(|| {
            slots.places.push(Place::default());
            // Giving back must never allocate: it happens when tasks exit.
            slots.free.reserve(slots.places.len());
            slots.places.len() as u32 - 1
        });
        Lease { pmu, slot: Slot(slot), generation: slots.places[slot as usize].generation }
    }

    /// Takes this slot of a PMU whose slots are scarce, at most 64; it is in [`SlotTable::used`] until it is given back.
    pub(super) fn take(&mut self, pmu: PmuId, slot: Slot) -> Lease {
        let slots = self.pmu(pmu);
        let index = slot.0 as usize;
        if slots.places.len() <= index {
            slots.places.resize_with(index + 1, Place::default);
        }
        slots.used = slots.used.with(slot);
        Lease { pmu, slot, generation: slots.places[index].generation }
    }

    /// The slots of a scarce PMU that are taken.
    pub(super) fn used(&self, pmu: PmuId) -> SlotMask {
        self.pmus.get(usize::from(pmu.0)).map_or_else(SlotMask::default, |slots| slots.used)
    }

    /// Gives a slot back; a stale lease does nothing.
    pub(super) fn give_back(&mut self, lease: Lease, slots: Slots) {
        let Some(place) = self.place(lease).filter(|place| place.generation == lease.generation) else { return };
        place.generation += 1;
        let pmu = self.pmu(lease.pmu);
        match slots {
            Slots::Scarce(_) => pmu.used = pmu.used.without(lease.slot),
            Slots::Plenty => pmu.free.push(lease.slot.0),
        }
    }

    /// The bank has been told to program it.
    pub(super) fn programmed(&mut self, lease: Lease) {
        if let Some(place) = self.place(lease) {
            place.programmed = Some(lease.generation);
        }
    }

    /// Whether the bank holds it.
    pub(super) fn is_programmed(&mut self, lease: Lease) -> bool {
        self.place(lease).is_some_and(|place| place.programmed == Some(lease.generation))
    }

    /// The bank does not hold it any more. Returns whether it did.
    pub(super) fn unprogrammed(&mut self, lease: Lease) -> bool {
        let held = self.is_programmed(lease);
        if let Some(place) = self.place(lease).filter(|_| held) {
            place.programmed = None;
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PMU: PmuId = PmuId(3);

    #[test]
    fn a_lease_that_was_given_back_is_stale() {
        let mut table = SlotTable::default();
        let first = table.take(PMU, Slot(5));
        table.programmed(first);
        table.give_back(first, Slots::Scarce(8));
        let second = table.take(PMU, Slot(5));
        table.give_back(first, Slots::Scarce(8));
        assert_eq!(table.used(PMU), SlotMask::default().with(Slot(5)), "the old tenant can't give the slot away");
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
