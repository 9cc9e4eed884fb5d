//! `place_on_allowed` beside every assignment there is.

use pmux_engine::pmu::{Slot, SlotMask, place_on_allowed};
use pmux_sim::oracle::placement::{fits, granted, is_moved_for_nothing, is_placement, placements};
use proptest::prelude::*;

/// One question to both; an error says what is wrong with the engine's answer.
fn compare(wanted: &[SlotMask], used: SlotMask, count: u8, preferences: &[Slot]) -> Result<(), String> {
    let mut out = preferences.to_vec();
    let placed = place_on_allowed(wanted, used, count, &mut out);
    let question = || format!("{wanted:?} beside {used:?} on {count} slots, wishes {preferences:?}: {placed}, {out:?}");
    if placed != fits(wanted, used, count) {
        return Err(format!("{} is not what can be", question()));
    }
    if !placed {
        return if out == preferences { Ok(()) } else { Err(format!("{}: changed all the same", question())) };
    }
    if !is_placement(wanted, used, count, &out) {
        return Err(format!("{} is no placement", question()));
    }
    if are_homes(wanted, preferences) && is_moved_for_nothing(wanted, used, count, preferences, &out) {
        return Err(format!("{}: one more event could have had the slot that it prefers", question()));
    }
    Ok(())
}

/// Whether the wishes are slots that the events may have been on: each allowed, no two the same.
fn are_homes(wanted: &[SlotMask], preferences: &[Slot]) -> bool {
    let homes = preferences.iter().zip(wanted).enumerate().filter(|(_, (preferred, _))| **preferred != Slot::NONE);
    homes.clone().all(|(index, (preferred, allowed))| {
        allowed.with(*preferred) == *allowed && homes.clone().all(|(other, (it, _))| index == other || it != preferred)
    })
}

/// All lists of `length` numbers below `base`.
fn lists(base: u64, length: usize) -> impl Iterator<Item = Vec<u64>> {
    let count = base.pow(length as u32);
    (0..count).map(move |code| (0..length).map(|place| code / base.pow(place as u32) % base).collect())
}

#[test]
fn every_question_on_up_to_three_slots() {
    let mut cases = 0_u64;
    for count in 0..=3_u8 {
        for events in 0..=4 {
            // A slot that does not exist is in no mask of any use; one of them is tried in the random test.
            for masks in lists(1 << count, events) {
                let wanted: Vec<_> = masks.into_iter().map(SlotMask).collect();
                for used in 0..1 << count {
                    // With four events there are too many wishes: none, or each the first slot that it allows.
                    let preferences: Vec<Vec<Slot>> = if events < 4 {
                        lists(u64::from(count) + 1, events)
                            .map(|slots| slots.into_iter().map(preferred(count)).collect())
                            .collect()
                    } else {
                        let first = |allowed: &SlotMask| Slot(allowed.0.trailing_zeros());
                        vec![vec![Slot::NONE; events], wanted.iter().map(first).collect()]
                    };
                    for preferences in preferences {
                        compare(&wanted, SlotMask(used), count, &preferences).unwrap();
                        cases += 1;
                    }
                }
            }
        }
    }
    println!("placement: {cases} questions");
    assert!(cases > 300_000);
}

fn preferred(count: u8) -> impl Fn(u64) -> Slot {
    move |number| if number < u64::from(count) { Slot(number as u32) } else { Slot::NONE }
}

/// Fewer events and no wishes, but more slots.
#[test]
fn every_question_on_four_and_five_slots() {
    let mut cases = 0_u64;
    for (count, events) in [(4, 1), (4, 2), (4, 3), (4, 4), (5, 1), (5, 2), (5, 3)] {
        for masks in lists(1 << count, events) {
            // The order of events must not matter to whether they fit: one order is enough here.
            if masks.is_sorted() {
                let wanted: Vec<_> = masks.into_iter().map(SlotMask).collect();
                compare(&wanted, SlotMask(0), count, &vec![Slot::NONE; events]).unwrap();
                cases += 1;
            }
        }
    }
    println!("placement: {cases} more on four and five slots");
    assert!(cases > 9_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]
    #[test]
    fn random_questions_on_up_to_seven_slots(
        count in 1_u8..=7,
        events in prop::collection::vec((any::<u64>(), any::<u64>(), 0_u32..9), 0..=7),
        used: u64,
        crowded: bool,
    ) {
        // Few bits in each mask, and slots that do not exist among them.
        let wanted: Vec<_> = events.iter().map(|&(one, other, _)| SlotMask(one & other & 0x1ff)).collect();
        let preferences: Vec<_> = events.iter().map(|&(_, _, slot)| if slot < 8 { Slot(slot) } else { Slot::NONE }).collect();
        let used = if crowded { SlotMask(used & (used >> 8) & (used >> 16) & 0xff) } else { SlotMask(0) };
        let result = compare(&wanted, used, count, &preferences);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }

    /// An event that has a slot, in a placement that there is, keeps it.
    #[test]
    fn a_placement_that_is_asked_for_is_what_comes_out(
        events in prop::collection::vec(1_u64..64, 1..=6),
        which: prop::sample::Index,
    ) {
        let wanted: Vec<_> = events.into_iter().map(SlotMask).collect();
        let all = placements(&wanted, SlotMask(0), 6);
        prop_assume!(!all.is_empty());
        let asked = &all[which.index(all.len())];
        let mut out = asked.clone();
        prop_assert!(place_on_allowed(&wanted, SlotMask(0), 6, &mut out));
        prop_assert!(granted(asked, &out).into_iter().all(|granted| granted), "{asked:?}, then {out:?}");
    }
}
