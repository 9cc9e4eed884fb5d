//! What a run is made of.
//!
//! What it is: for each kind of deed how often it is done, for each flag how often it is set, and which faults and events
//! there are at all. Each run leaves some of them out: what never happens can't hide what happens only without it, and what
//! is left happens more often than if everything did.
//!
//! **Invariant:** drawn once, at the beginning of a run.

use super::rng::Rng;
use super::shape::{Known, Shape};
use crate::scenario::ast::Flag;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
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
const OPS: [(Op, u64); 27] = [
    (Op::Task, 6),
    (Op::Fork, 12),
    (Op::Exit, 8),
    (Op::Exec, 3),
    (Op::SetUid, 1),
    (Op::OpenOnTask, 30),
    (Op::OpenOnTaskAndCpu, 5),
    (Op::OpenOnCpus, 10),
    (Op::OpenSet, 8),
    (Op::Run, 40),
    (Op::RunTogether, 40),
    (Op::Migrate, 8),
    (Op::Touch, 8),
    (Op::Access, 6),
    (Op::Enable, 14),
    (Op::Disable, 12),
    (Op::Reset, 6),
    (Op::Close, 16),
    (Op::Modify, 6),
    (Op::Take, 6),
    (Op::Offline, 4),
    (Op::Online, 4),
    (Op::Wait, 5),
    (Op::Fault, 12),
    (Op::Heal, 4),
    (Op::Expect, 4),
    (Op::Wrong, 4),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FaultKind {
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

const FAULT_KINDS: [FaultKind; 11] = [
    FaultKind::Alloc,
    FaultKind::Program,
    FaultKind::Start,
    FaultKind::Read,
    FaultKind::HandOver,
    FaultKind::Held,
    FaultKind::InterruptLate,
    FaultKind::DoorbellLate,
    FaultKind::DoorbellTwice,
    FaultKind::DoorbellSpurious,
    FaultKind::Storm,
];

const FLAGS: [Flag; 5] = [Flag::Inherit, Flag::Pinned, Flag::Exclusive, Flag::Disabled, Flag::EnableOnExec];

/// From here on a tick of all CPUs takes long.
const MANY_CPUS: u32 = 128;

pub(super) struct Weights {
    ops: Vec<(Op, u64)>,
    all: u64,
    pub(super) fault_kinds: Vec<FaultKind>,
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

impl Weights {
    pub(super) fn draw(rng: &mut Rng, shape: &Shape, tasks: Option<u64>) -> Self {
        let mut ops: Vec<_> = OPS.to_vec();
        // One in four kinds is left out, one in four is done much more often; without time nothing would come out at all.
        for (op, weight) in &mut ops {
            match rng.below(8) {
                0..2 if !matches!(op, Op::Task | Op::RunTogether | Op::OpenOnTask) => *weight = 0,
                2..4 => *weight *= 4,
                _ => {}
            }
        }
        let mut fault_kinds: Vec<_> = FAULT_KINDS
            .into_iter()
            .filter(|&fault_kind| shape.has_doorbells() || !is_of_doorbells(fault_kind))
            .collect();
        // What one of two machines is refused, the other one may not even ask for.
        fault_kinds.retain(|&fault_kind| {
            !shape.is_differential() || matches!(fault_kind, FaultKind::InterruptLate | FaultKind::Storm)
        });
        rng.shuffle(&mut fault_kinds);
        // Without faults, the checks are the sharpest.
        let faults = if rng.one_in(2) { 0 } else { rng.between(1, fault_kinds.len() as u64) };
        fault_kinds.truncate(faults as usize);
        if fault_kinds.is_empty() {
            ops.retain(|(op, _)| !matches!(op, Op::Fault | Op::Heal));
        }
        ops.retain(|&(_, weight)| weight > 0);
        let mut flags: Vec<_> = FLAGS.map(|flag| (flag, *rng.pick(&[2, 3, 6]))).to_vec();
        flags.retain(|_| rng.one_in(2));
        let mut events = shape.events.clone();
        rng.shuffle(&mut events);
        // Those of scarce counters are what it is about; with few kinds there are equal ones.
        events.sort_by_key(|event| !event.is_scarce);
        let scarce = events.iter().filter(|event| event.is_scarce).count();
        let kept = rng.between(1, 6).min(scarce as u64) as usize;
        let others = rng.below(5) as usize;
        let events: Vec<_> = events.iter().take(kept).chain(events.iter().skip(scarce).take(others)).copied().collect();
        let events = if events.is_empty() { shape.events.clone() } else { events };
        Self {
            all: ops.iter().map(|&(_, weight)| weight).sum(),
            ops,
            fault_kinds,
            flags,
            events,
            breakpoints: rng.one_in(3),
            rings: rng.one_in(2),
            tasks: tasks.unwrap_or_else(|| rng.any_size(1, 40)),
            opened: rng.any_size(2, 40).max(tasks.unwrap_or(0)),
            on_cpus: rng.any_size(2, if shape.description.cpus > MANY_CPUS { 8 } else { 40 }),
        }
    }

    /// A deed, those with a large weight more often.
    pub(super) fn op(&self, rng: &mut Rng) -> Op {
        let mut left = rng.below(self.all);
        for &(op, weight) in &self.ops {
            if left < weight {
                return op;
            }
            left -= weight;
        }
        Op::RunTogether
    }

    pub(super) fn sets(&self, rng: &mut Rng, flag: Flag) -> bool {
        self.flags.iter().find(|(other, _)| *other == flag).is_some_and(|&(_, in_how_many)| rng.one_in(in_how_many))
    }
}

const fn is_of_doorbells(fault_kind: FaultKind) -> bool {
    matches!(fault_kind, FaultKind::DoorbellLate | FaultKind::DoorbellTwice | FaultKind::DoorbellSpurious)
}
