//! What a machine has, and machines with other numbers of counters.
//!
//! **Invariant:** plain functions of a description.

use crate::machine::{Counts, Description, Kind, PmuDescription};
use crate::{Capacity, Source};
use pmux_engine::pmu::{OverflowBy, Slot, SlotMask, Slots};

/// The counters of a PMU that take more than one kind of event.
pub(super) fn general_counters(pmu: &PmuDescription) -> SlotMask {
    let Counts::Kinds(kinds) = &pmu.counts else { return SlotMask::default() };
    let (_, twice) = kinds.iter().fold((0, 0), |(once, twice), (_, mask)| (once | mask.0, twice | once & mask.0));
    SlotMask(twice)
}

/// Whether it is the PMU that hardware events ask for.
pub(super) fn is_hardware(pmu: &PmuDescription) -> bool {
    matches!((&pmu.counts, pmu.slots), (Counts::Kinds(_), Slots::Scarce(_)))
}

/// How many events a PMU has room for.
#[must_use]
pub fn describe(pmu: &PmuDescription) -> Capacity {
    match (&pmu.counts, pmu.slots) {
        (_, Slots::Plenty) => Capacity::Plenty,
        (Counts::Accesses { execute, data }, Slots::Scarce(total)) => {
            Capacity::Registers { total: total.into(), execute: execute.len(), data: data.len() }
        }
        (Counts::Kinds(kinds), Slots::Scarce(total)) => {
            let general = general_counters(pmu);
            let owner = |slot: u8| {
                let bit = SlotMask::default().with(Slot(slot.into()));
                let kind = kinds.iter().find(|(_, mask)| mask.0 & bit.0 != 0)?.0;
                (general.0 & bit.0 == 0).then_some(kind)
            };
            let fixed: Vec<Kind> = (0..total.min(64)).filter_map(owner).collect();
            Capacity::Counters { general: u32::from(total) - fixed.len() as u32, fixed }
        }
    }
}

/// The machine with another number of general counters in its hardware PMU. Fixed counters stay; an event that may use some
/// of the general counters only keeps those that are left.
///
/// # Errors
/// A sentence: the machine has no hardware PMU, or that would have more than 64 counters, fixed ones included.
pub fn with_general_counters(machine: &Description, counters: u8) -> Result<Description, String> {
    let no_pmu = || "this machine has no hardware PMU".to_owned();
    let mut machine = machine.clone();
    let pmu = machine.pmus.iter_mut().find(|pmu| is_hardware(pmu)).ok_or_else(no_pmu)?;
    let general = general_counters(pmu);
    let (Counts::Kinds(kinds), Slots::Scarce(total)) = (&mut pmu.counts, pmu.slots) else {
        return Err(no_pmu());
    };
    let slots = |mask: u64| (0..64_u32).filter(move |slot| mask & (1 << slot) != 0);
    let fixed: Vec<u32> = slots(SlotMask::first(total).0 & !general.0).collect();
    let most = 64 - fixed.len() as u8;
    if counters > most {
        return Err(format!("this PMU can have at most {most} general counters"));
    }
    // General counters first, fixed ones behind them, each in their order.
    let bit = |slot: u32| 1_u64 << slot;
    for (_, mask) in kinds.iter_mut() {
        let before = mask.0;
        let all_general = before & general.0 == general.0 && general.0 != 0;
        let kept = slots(general.0).take(usize::from(counters)).enumerate();
        let kept = kept.filter(|&(_, slot)| before & bit(slot) != 0).fold(0, |mask, (at, _)| mask | bit(at as u32));
        let own = fixed.iter().enumerate().filter(|&(_, &slot)| before & bit(slot) != 0);
        let own = own.fold(0, |mask, (at, _)| mask | bit(u32::from(counters) + at as u32));
        *mask = SlotMask(own | if all_general { SlotMask::first(counters).0 } else { kept });
    }
    pmu.slots = Slots::Scarce(counters + fixed.len() as u8);
    Ok(machine)
}

/// An event of a PMU whose counters were tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TriedEvent {
    /// What it is, if it is one of the generic events.
    pub kind: Option<Kind>,
    /// How many copies of it run at once.
    pub alone: u8,
    /// How many counters only it can use.
    pub own: u8,
}

/// A PMU of which is known how many events run at once: on `shared` counters several of them, on the others one only. What
/// was tried comes back as sources, in its order.
///
/// It is not asked how wide its counters are, or how they overflow: a plan does not depend on it.
#[must_use]
pub fn tried_pmu(name: &str, shared: u8, events: &[TriedEvent]) -> (PmuDescription, Vec<Source>) {
    let mut pmu = PmuDescription::hardware(name, shared, 64, OverflowBy::Interrupt);
    let sources = events.iter().map(|event| {
        let mut slots = SlotMask::first(event.alone.saturating_sub(event.own).min(shared));
        for _ in 0..event.own {
            let Slots::Scarce(count) = pmu.slots else { break };
            if count == MOST_COUNTERS {
                break;
            }
            slots = slots.with(Slot(count.into()));
            let more = PmuDescription { slots: Slots::Scarce(count + 1), ..pmu.clone() };
            pmu = event.kind.map_or(more, |kind| pmu.clone().with_fixed(kind));
        }
        Source::Counters(name.to_owned(), slots)
    });
    let sources = sources.collect();
    (pmu, sources)
}

/// More counters than a PMU can have.
const MOST_COUNTERS: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::profiles;

    fn capacity(machine: &Description) -> (u32, Vec<&'static str>) {
        match describe(&machine.pmus[0]) {
            Capacity::Counters { general, fixed } => (general, fixed.iter().map(|kind| kind.name()).collect()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn profiles_are_described() {
        assert_eq!(capacity(&profiles::minimal(1)), (2, vec![]));
        assert_eq!(capacity(&profiles::intel_skylake(1)), (4, vec!["instructions", "cpu-cycles", "ref-cycles"]));
        assert_eq!(capacity(&profiles::arm_neoverse(1)), (6, vec!["cpu-cycles"]));
        let registers = describe(&profiles::arm_neoverse(1).pmus[2]);
        assert_eq!(registers, Capacity::Registers { total: 10, execute: 6, data: 4 });
        assert_eq!(describe(&profiles::minimal(1).pmus[1]), Capacity::Plenty);
    }

    #[test]
    fn other_numbers_of_counters_keep_the_fixed_ones() {
        let skylake = profiles::intel_skylake(1);
        for counters in [0, 1, 8, 61] {
            let other = with_general_counters(&skylake, counters).unwrap();
            assert_eq!(other.check(), Ok(()));
            assert_eq!(capacity(&other), (u32::from(counters), vec!["instructions", "cpu-cycles", "ref-cycles"]));
        }
        assert_eq!(with_general_counters(&skylake, 4), Ok(skylake.clone()));
        assert_eq!(with_general_counters(&skylake, 62).unwrap_err(), "this PMU can have at most 61 general counters");
        let mut none = skylake;
        none.pmus.remove(0);
        assert_eq!(with_general_counters(&none, 4).unwrap_err(), "this machine has no hardware PMU");
    }

    #[test]
    fn what_was_tried_is_planned_with() {
        let cycles = TriedEvent { kind: Some(Kind::CYCLES), alone: 7, own: 1 };
        let other = TriedEvent { kind: None, alone: 6, own: 0 };
        let narrow = TriedEvent { kind: None, alone: 2, own: 1 };
        let (pmu, sources) = tried_pmu("core", 6, &[cycles, other, narrow]);
        let mask = |source: &Source| if let Source::Counters(_, slots) = source { slots.0 } else { 0 };
        assert_eq!(sources.iter().map(mask).collect::<Vec<_>>(), [0x7f, 0x3f, 0x81]);
        let machine = Description { pmus: vec![pmu], ..profiles::minimal(1) };
        assert_eq!(machine.check(), Ok(()));
        assert_eq!(capacity(&machine), (7, vec!["cpu-cycles"]));
    }

    #[test]
    fn a_constraint_keeps_what_is_left_of_it() {
        let mut machine = profiles::minimal(1);
        let pmu = machine.pmus[0].clone().with_constraint(Kind::CYCLES, SlotMask(0b10));
        machine.pmus[0] = pmu;
        let mask = |machine: &Description| match &machine.pmus[0].counts {
            Counts::Kinds(kinds) => kinds.iter().find(|(kind, _)| *kind == Kind::CYCLES).unwrap().1,
            Counts::Accesses { .. } => panic!("no such PMU"),
        };
        assert_eq!(mask(&with_general_counters(&machine, 5).unwrap()), SlotMask(0b10));
        assert_eq!(mask(&with_general_counters(&machine, 1).unwrap()), SlotMask(0));
    }
}
