//! What fits together on the slots of a scarce PMU: every assignment is tried.
//!
//! What it is: the model of `place` in `pmux_engine::pmu`. A fixed event is one that may be on a single slot, a
//! constrained one may be on some of them.
//! Read first: [`placements`]; all other answers are looked up in what it returns.
//!
//! **Invariant:** no order of trying, no preference and no augmenting: an assignment is in the list or it is not.

use pmux_engine::pmu::{Slot, SlotMask};

/// Every way to give each of the `wanted` events a slot of its own: one of those that it allows, below `count`, and not
/// in `used`.
///
/// An assignment is as long as `wanted`. Where nothing fits the list is empty; where nothing is wanted it holds the
/// empty assignment.
#[must_use]
pub fn placements(wanted: &[SlotMask], used: SlotMask, count: u8) -> Vec<Vec<Slot>> {
    let Some((&allowed, rest)) = wanted.split_first() else { return vec![Vec::new()] };
    let mut found = Vec::new();
    for slot in (0..u32::from(count.min(64))).map(Slot) {
        if contains(allowed, slot) && !contains(used, slot) {
            for others in placements(rest, used.with(slot), count) {
                let mut assignment = vec![slot];
                assignment.extend(others);
                found.push(assignment);
            }
        }
    }
    found
}

/// Whether all of `wanted` fit beside `used` on `count` slots.
#[must_use]
pub fn fits(wanted: &[SlotMask], used: SlotMask, count: u8) -> bool {
    let Some((&allowed, rest)) = wanted.split_first() else { return true };
    if wanted.len() > (SlotMask::first(count).0 & !used.0).count_ones() as usize {
        // More events than slots: every assignment fails, and there may be very many.
        return false;
    }
    (0..u32::from(count.min(64)))
        .map(Slot)
        .any(|slot| contains(allowed, slot) && !contains(used, slot) && fits(rest, used.with(slot), count))
}

/// Whether `assignment` is a way to place `wanted`: the definition, without a search.
#[must_use]
pub fn is_placement(wanted: &[SlotMask], used: SlotMask, count: u8, assignment: &[Slot]) -> bool {
    let alone =
        |index: usize| assignment.iter().enumerate().all(|(other, slot)| other == index || *slot != assignment[index]);
    assignment.len() == wanted.len()
        && assignment.iter().enumerate().all(|(index, &slot)| {
            let there = slot.0 < u32::from(count.min(64));
            there && contains(wanted[index], slot) && !contains(used, slot) && alone(index)
        })
}

/// Which events of an assignment have the slot that they would like; [`Slot::NONE`] is no wish.
#[must_use]
pub fn granted(preferences: &[Slot], assignment: &[Slot]) -> Vec<bool> {
    preferences.iter().zip(assignment).map(|(preferred, slot)| preferred == slot).collect()
}

/// Whether another placement grants all the wishes that `assignment` grants, and one more.
#[must_use]
pub fn is_moved_for_nothing(
    wanted: &[SlotMask],
    used: SlotMask,
    count: u8,
    preferences: &[Slot],
    assignment: &[Slot],
) -> bool {
    let now = granted(preferences, assignment);
    placements(wanted, used, count).iter().any(|other| {
        let then = granted(preferences, other);
        then != now && now.iter().zip(&then).all(|(now, then)| !now || *then)
    })
}

fn contains(mask: SlotMask, slot: Slot) -> bool {
    slot.0 < 64 && mask.0 & (1 << slot.0) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: SlotMask = SlotMask(0);

    fn masks(masks: &[u64]) -> Vec<SlotMask> {
        masks.iter().map(|&mask| SlotMask(mask)).collect()
    }

    #[test]
    fn three_that_fit_in_one_way_only() {
        // The first one must leave slot 0 to the second, which must leave slot 1 to the third.
        let wanted = masks(&[0b111, 0b011, 0b010]);
        assert_eq!(placements(&wanted, NOTHING, 3), [[Slot(2), Slot(0), Slot(1)]]);
        assert!(fits(&wanted, NOTHING, 3) && !fits(&wanted, SlotMask(0b100), 3) && !fits(&wanted, NOTHING, 2));
    }

    #[test]
    fn every_order_of_equal_events_is_a_placement() {
        assert_eq!(placements(&masks(&[7, 7, 7]), NOTHING, 3).len(), 6);
        assert_eq!(placements(&masks(&[7, 7, 7, 7]), NOTHING, 3).len(), 0);
        assert_eq!(placements(&[], NOTHING, 0), [[]]);
    }

    #[test]
    fn slots_that_do_not_exist_are_no_slots() {
        let far = masks(&[1 << 63, 1 << 5]);
        assert!(fits(&far, NOTHING, 64) && !fits(&far, NOTHING, 63));
        assert!(!is_placement(&far, NOTHING, 63, &[Slot(63), Slot(5)]));
        assert!(!is_placement(&masks(&[3]), NOTHING, 2, &[Slot::NONE]));
    }

    #[test]
    fn what_is_no_placement() {
        let wanted = masks(&[3, 3]);
        assert!(is_placement(&wanted, NOTHING, 2, &[Slot(1), Slot(0)]));
        assert!(!is_placement(&wanted, NOTHING, 2, &[Slot(1), Slot(1)]), "two on one slot");
        assert!(!is_placement(&wanted, NOTHING, 3, &[Slot(1), Slot(2)]), "not allowed there");
        assert!(!is_placement(&wanted, SlotMask(1), 2, &[Slot(1), Slot(0)]), "taken");
        assert!(!is_placement(&wanted, NOTHING, 2, &[Slot(1)]), "not all");
    }

    #[test]
    fn who_was_moved_for_nothing() {
        let wanted = masks(&[3, 3]);
        let preferences = [Slot(0), Slot::NONE];
        assert!(is_moved_for_nothing(&wanted, NOTHING, 2, &preferences, &[Slot(1), Slot(0)]));
        assert!(!is_moved_for_nothing(&wanted, NOTHING, 2, &preferences, &[Slot(0), Slot(1)]));
        // The other one can be nowhere else.
        assert!(!is_moved_for_nothing(&masks(&[3, 1]), NOTHING, 2, &preferences, &[Slot(1), Slot(0)]));
    }
}
