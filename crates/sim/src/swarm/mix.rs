//! What a run is made of.
//!
//! What it is: for each kind of deed how often it is done, for each flag how often it is set, and which faults and events
//! there are at all. Each run leaves some of them out: what never happens can't hide what happens only without it, and what
//! is left happens more often than if everything did.
//!
//! **Invariant:** drawn once, at the beginning of a run.

use super::dice::Dice;
use super::shape::{Known, Shape};
use crate::scenario::ast::Flag;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    Task,
    Fork,
    Exit,
    Exec,
    SetUid,
    OpenOnTask,
    OpenOnTaskAndCpu,
    OpenOnCpus,
    OpenSet,
    Run,
    RunTogether,
    Migrate,
    Touch,
    Access,
    Enable,
    Disable,
    Reset,
    Close,
    Modify,
    Take,
    Offline,
    Online,
    Wait,
    Fault,
    Heal,
    Expect,
    /// Something that must fail.
    Wrong,
}

/// How often, if nothing is left out.
const DEEDS: [(Deed, u64); 27] = [
    (Deed::Task, 6),
    (Deed::Fork, 12),
    (Deed::Exit, 8),
    (Deed::Exec, 3),
    (Deed::SetUid, 1),
    (Deed::OpenOnTask, 30),
    (Deed::OpenOnTaskAndCpu, 5),
    (Deed::OpenOnCpus, 10),
    (Deed::OpenSet, 8),
    (Deed::Run, 40),
    (Deed::RunTogether, 40),
    (Deed::Migrate, 8),
    (Deed::Touch, 8),
    (Deed::Access, 6),
    (Deed::Enable, 14),
    (Deed::Disable, 12),
    (Deed::Reset, 6),
    (Deed::Close, 16),
    (Deed::Modify, 6),
    (Deed::Take, 6),
    (Deed::Offline, 4),
    (Deed::Online, 4),
    (Deed::Wait, 5),
    (Deed::Fault, 12),
    (Deed::Heal, 4),
    (Deed::Expect, 4),
    (Deed::Wrong, 4),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mishap {
    Alloc,
    Program,
    Start,
    Read,
    HandOver,
    Held,
    InterruptLate,
    DoorbellLate,
    DoorbellTwice,
    DoorbellSpurious,
    Storm,
}

const MISHAPS: [Mishap; 11] = [
    Mishap::Alloc,
    Mishap::Program,
    Mishap::Start,
    Mishap::Read,
    Mishap::HandOver,
    Mishap::Held,
    Mishap::InterruptLate,
    Mishap::DoorbellLate,
    Mishap::DoorbellTwice,
    Mishap::DoorbellSpurious,
    Mishap::Storm,
];

const FLAGS: [Flag; 5] = [Flag::Inherit, Flag::Pinned, Flag::Exclusive, Flag::Disabled, Flag::EnableOnExec];

/// From here on a tick of all CPUs takes long.
const MANY_CPUS: u32 = 128;

pub(super) struct Mix {
    deeds: Vec<(Deed, u64)>,
    all: u64,
    pub(super) mishaps: Vec<Mishap>,
    /// The flags that are set at all, and how often: once in so many events.
    flags: Vec<(Flag, u64)>,
    pub(super) events: Vec<Known>,
    /// Whether debug registers are opened as well.
    pub(super) breakpoints: bool,
    /// Whether samples are taken.
    pub(super) rings: bool,
    /// How many tasks there are about.
    pub(super) tasks: u64,
    /// How many statements' events are open at the same time, about.
    pub(super) opened: u64,
    /// How many of these are on CPUs, about: each waits for its turn there with all others, so that their number must not grow
    /// with the number of tasks.
    pub(super) on_cpus: u64,
}

impl Mix {
    pub(super) fn draw(dice: &mut Dice, shape: &Shape, tasks: Option<u64>) -> Self {
        let mut deeds: Vec<_> = DEEDS.to_vec();
        // One in four kinds is left out, one in four is done much more often; without time nothing would come out at all.
        for (deed, weight) in &mut deeds {
            match dice.below(8) {
                0..2 if !matches!(deed, Deed::Task | Deed::RunTogether | Deed::OpenOnTask) => *weight = 0,
                2..4 => *weight *= 4,
                _ => {}
            }
        }
        let mut mishaps: Vec<_> =
            MISHAPS.into_iter().filter(|&mishap| shape.has_doorbells() || !is_of_doorbells(mishap)).collect();
        // What one of two machines is refused, the other one may not even ask for.
        mishaps.retain(|&mishap| !shape.has_twin() || matches!(mishap, Mishap::InterruptLate | Mishap::Storm));
        dice.shuffle(&mut mishaps);
        // Without faults, the checks are the sharpest.
        let faults = if dice.one_in(2) { 0 } else { dice.between(1, mishaps.len() as u64) };
        mishaps.truncate(faults as usize);
        if mishaps.is_empty() {
            deeds.retain(|(deed, _)| !matches!(deed, Deed::Fault | Deed::Heal));
        }
        deeds.retain(|&(_, weight)| weight > 0);
        let mut flags: Vec<_> = FLAGS.map(|flag| (flag, *dice.pick(&[2, 3, 6]))).to_vec();
        flags.retain(|_| dice.one_in(2));
        let mut events = shape.events.clone();
        dice.shuffle(&mut events);
        // Those of scarce counters are what it is about; with few kinds there are equal ones.
        events.sort_by_key(|event| !event.is_scarce);
        let scarce = events.iter().filter(|event| event.is_scarce).count();
        let kept = dice.between(1, 6).min(scarce as u64) as usize;
        let others = dice.below(5) as usize;
        let events: Vec<_> = events.iter().take(kept).chain(events.iter().skip(scarce).take(others)).copied().collect();
        let events = if events.is_empty() { shape.events.clone() } else { events };
        Self {
            all: deeds.iter().map(|&(_, weight)| weight).sum(),
            deeds,
            mishaps,
            flags,
            events,
            breakpoints: dice.one_in(3),
            rings: dice.one_in(2),
            tasks: tasks.unwrap_or_else(|| dice.any_size(1, 40)),
            opened: dice.any_size(2, 40).max(tasks.unwrap_or(0)),
            on_cpus: dice.any_size(2, if shape.description.cpus > MANY_CPUS { 8 } else { 40 }),
        }
    }

    /// A deed, those with a large weight more often.
    pub(super) fn deed(&self, dice: &mut Dice) -> Deed {
        let mut left = dice.below(self.all);
        for &(deed, weight) in &self.deeds {
            if left < weight {
                return deed;
            }
            left -= weight;
        }
        Deed::RunTogether
    }

    pub(super) fn sets(&self, dice: &mut Dice, flag: Flag) -> bool {
        self.flags.iter().find(|(other, _)| *other == flag).is_some_and(|&(_, in_how_many)| dice.one_in(in_how_many))
    }
}

const fn is_of_doorbells(mishap: Mishap) -> bool {
    matches!(mishap, Mishap::DoorbellLate | Mishap::DoorbellTwice | Mishap::DoorbellSpurious)
}
