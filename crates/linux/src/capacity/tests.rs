//! The capacity of PMUs whose counters are known.

use super::*;
use pmux_engine::pmu::{Slot, SlotMask, place_on_allowed};
use proptest::prelude::*;
use std::convert::Infallible;

/// A PMU that places its events as well as can be.
struct FakePmu {
    events: Vec<u64>,
    running: Vec<usize>,
    tries: usize,
}

impl FakePmu {
    fn new(events: &[u64]) -> Self {
        Self { events: events.to_vec(), running: Vec::new(), tries: 0 }
    }

    fn fits(&self, events: &[usize]) -> bool {
        fits(&events.iter().map(|&event| self.events[event]).collect::<Vec<_>>())
    }
}

/// Tries every assignment.
fn fits(masks: &[u64]) -> bool {
    fn place(masks: &[u64], used: u64) -> bool {
        let Some((&mask, rest)) = masks.split_first() else { return true };
        (0..64).any(|slot| mask & !used & (1 << slot) != 0 && place(rest, used | 1 << slot))
    }
    place(masks, 0)
}

impl Trial for FakePmu {
    type Error = Infallible;

    fn add(&mut self, event: usize) -> Result<bool, Infallible> {
        self.tries += 1;
        let with: Vec<_> = self.running.iter().copied().chain([event]).collect();
        let fits = self.fits(&with);
        if fits {
            self.running = with;
        }
        Ok(fits)
    }

    fn clear(&mut self) {
        self.running.clear();
    }
}

fn capacity(pmu: &mut FakePmu) -> ProbedCapacity {
    let events = pmu.events.len();
    ProbedCapacity::find(pmu, events).unwrap()
}

/// The slots of the engine's model: pool first, then what is each event's own.
fn slots(capacity: &ProbedCapacity) -> Vec<u64> {
    let mut next = u32::from(capacity.pool());
    let mask = |event: &EventCapacity| {
        let own = SlotMask::first(event.own).0 << next;
        next += u32::from(event.own);
        own | SlotMask::first((event.alone - event.own).min(capacity.pool())).0
    };
    capacity.events.iter().map(mask).collect()
}

#[test]
fn a_cycle_counter_beside_six_others() {
    let cycles = 0b111_1111;
    let other = 0b11_1111;
    let found = capacity(&mut FakePmu::new(&[other, cycles, other, other]));
    assert_eq!(found.counters, 7);
    assert_eq!(found.pool(), 6);
    let event = |alone, own| EventCapacity { alone, own };
    assert_eq!(found.events, [event(6, 0), event(7, 1), event(6, 0), event(6, 0)]);
}

#[test]
fn fixed_counters_of_three_events_beside_four_for_all() {
    let (instructions, cycles, reference, other) = (0b001_1111, 0b010_1111, 0b100_0000, 0b000_1111);
    let found = capacity(&mut FakePmu::new(&[instructions, cycles, reference, other, other]));
    assert_eq!((found.counters, found.pool()), (7, 4));
    let own: Vec<_> = found.events.iter().map(|event| event.own).collect();
    assert_eq!(own, [1, 1, 1, 0, 0]);
    assert_eq!(found.events[2].alone, 1, "it has no other counter");
}

#[test]
fn counters_that_are_many_are_plenty() {
    let found = capacity(&mut FakePmu::new(&[u64::MAX, u64::MAX]));
    assert!(found.is_plenty());
}

#[test]
fn nothing_that_runs_is_no_counter() {
    let found = capacity(&mut FakePmu::new(&[0]));
    assert_eq!((found.counters, found.pool()), (0, 0));
    assert_eq!(capacity(&mut FakePmu::new(&[])).counters, 0);
}

#[test]
fn a_long_list_of_equal_events_is_not_tried_pair_by_pair() {
    let mut pmu = FakePmu::new(&[0b11_1111; 12]);
    assert_eq!(capacity(&mut pmu).counters, 6);
    assert!(pmu.tries <= 6 + 12 + 12 * 7, "{} tries", pmu.tries);
}

proptest! {
    #[test]
    fn what_fits_the_model_fits_the_counters(
        events in prop::collection::vec(1_u64..64, 1..5),
        chosen in prop::collection::vec(any::<prop::sample::Index>(), 1..7),
    ) {
        let mut pmu = FakePmu::new(&events);
        let found = capacity(&mut pmu);
        let masks = slots(&found);
        let chosen: Vec<_> = chosen.iter().map(|index| index.index(events.len())).collect();
        let wanted: Vec<_> = chosen.iter().map(|&event| SlotMask(masks[event])).collect();
        let mut out = vec![Slot::NONE; wanted.len()];
        if place_on_allowed(&wanted, SlotMask::default(), 64, &mut out) {
            prop_assert!(pmu.fits(&chosen), "{found:?} {chosen:?}");
        }
    }

    #[test]
    fn where_each_event_has_its_own_and_a_share_of_one_pool_the_model_is_exact(
        pool in 1_u32..5,
        shares in prop::collection::vec((0_u32..3, 0_u32..5), 1..5),
        chosen in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
    ) {
        let mut next = pool;
        let events: Vec<u64> = shares.iter().map(|&(own, share)| {
            let own_bits = SlotMask::first(own as u8).0 << next;
            next += own;
            own_bits | SlotMask::first(share.min(pool) as u8).0
        }).collect();
        prop_assume!(events.iter().all(|&mask| mask != 0));
        let mut pmu = FakePmu::new(&events);
        let masks = slots(&capacity(&mut pmu));
        let chosen: Vec<_> = chosen.iter().map(|index| index.index(events.len())).collect();
        let modelled: Vec<_> = chosen.iter().map(|&event| masks[event]).collect();
        prop_assert_eq!(fits(&modelled), pmu.fits(&chosen));
    }
}
