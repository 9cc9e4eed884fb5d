//! What fits together.
//!
//! What it is: sets of slots, and the plain placement for PMUs whose events may sit on any allowed counter.
//!
//! **Invariant:** pure; it never touches a counter.

use super::{EventSpec, Slot};

/// A set of slots of one scarce PMU, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotMask(pub u64);

impl SlotMask {
    /// Every slot.
    pub const ALL: Self = Self(u64::MAX);

    /// The first `count` slots.
    #[must_use]
    pub const fn first(count: u8) -> Self {
        if count >= 64 { Self::ALL } else { Self((1 << count) - 1) }
    }

    /// With `slot` added.
    #[must_use]
    pub const fn with(self, slot: Slot) -> Self {
        Self(self.0 | 1 << (slot.0 & 63))
    }

    /// With `slot` taken away.
    #[must_use]
    pub const fn without(self, slot: Slot) -> Self {
        Self(self.0 & !(1 << (slot.0 & 63)))
    }

    /// How many slots it holds.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether it holds none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Places `wanted` on a PMU of `count` slots, each event on one of its allowed slots; all or none.
///
/// Augmenting paths: an event may push another one aside, so a placement is found whenever there is one, and events
/// that are at home on few slots do not lose them to events that fit anywhere.
pub fn place_on_allowed(wanted: &[EventSpec], used: SlotMask, count: u8, out: &mut [Slot]) -> bool {
    let free = SlotMask(SlotMask::first(count).0 & !used.0);
    if wanted.len() > free.len() as usize {
        return false;
    }
    let mut holder = [usize::MAX; 64];
    for event in 0..wanted.len() {
        let mut tried = SlotMask::default();
        if !augment(wanted, free, event, &mut tried, &mut holder) {
            return false;
        }
    }
    for (slot, &event) in holder.iter().enumerate() {
        if let Some(out) = out.get_mut(event) {
            *out = Slot(slot as u32);
        }
    }
    true
}

/// Finds a slot for `event`, moving others along; the depth is bounded by the number of slots, at most 64.
fn augment(wanted: &[EventSpec], free: SlotMask, event: usize, tried: &mut SlotMask, holder: &mut [usize; 64]) -> bool {
    loop {
        let candidates = wanted[event].allowed.0 & free.0 & !tried.0;
        if candidates == 0 {
            return false;
        }
        let slot = candidates.trailing_zeros();
        *tried = tried.with(Slot(slot));
        let other = holder[slot as usize];
        if other == usize::MAX || augment(wanted, free, other, tried, holder) {
            holder[slot as usize] = event;
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PmuId;
    use alloc::vec;
    use alloc::vec::Vec;
    use pmux_abi::attr::Attr;
    use proptest::prelude::*;

    fn specs(masks: &[u64]) -> Vec<EventSpec> {
        masks.iter().map(|&m| EventSpec { pmu: PmuId(0), attr: Attr::default(), allowed: SlotMask(m) }).collect()
    }

    /// The slow way: tries every assignment.
    fn fits(masks: &[u64], free: u64) -> bool {
        let Some((&mask, rest)) = masks.split_first() else { return true };
        (0..64).any(|slot| mask & free & (1 << slot) != 0 && fits(rest, free & !(1 << slot)))
    }

    proptest! {
        #[test]
        fn finds_a_placement_whenever_there_is_one(masks in prop::collection::vec(0_u64..64, 0..6), used in 0_u64..64) {
            let wanted = specs(&masks);
            let mut out = vec![Slot(99); wanted.len()];
            let placed = place_on_allowed(&wanted, SlotMask(used), 6, &mut out);
            prop_assert_eq!(placed, fits(&masks, 63 & !used));
            if placed {
                let mut seen = used;
                for (spec, slot) in wanted.iter().zip(out) {
                    let bit = 1_u64 << slot.0;
                    prop_assert!(spec.allowed.0 & bit != 0 && seen & bit == 0);
                    seen |= bit;
                }
            }
        }
    }
}
