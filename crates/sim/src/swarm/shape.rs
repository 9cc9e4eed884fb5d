//! The machine of a run.
//!
//! What it is: a machine line at random, and what follows from it for the code that makes up statements: which events there are,
//! and for how long tasks may run before a run takes too long.
//!
//! **Invariant:** everything that the machine is stands in the head of the scenario, so that the scenario alone brings it
//! back. Whether callers reach other CPUs stands in its first statement.

use super::rng::Rng;
use super::{Options, Shared};
use crate::machine::{Counts, Description, Kind, Reach, profiles};
use crate::scenario::ast::{
    Constraint, DebugRegisters, Fault, Header, MachineSpec, Scenario, SimOnly, Statement, Step,
};
use crate::scenario::canonical_event;
use crate::scenario::run::{RunOptions, description};
use pmux_engine::pmu::{OverflowBy, SlotMask, Slots};
use pmux_engine::share::Sharing;
use pmux_engine::{CpuId, Nanos, PmuId};

/// The most that tasks do of anything in a nanosecond, as long as no statement says otherwise.
pub(super) const MOST_PER_NS: u64 = 10;
/// So many interrupts of one counter are enough for one statement.
const WRAPS: u64 = 300;

/// A machine, and what can be done with it.
pub(super) struct Shape {
    /// The scenario without statements but those that a machine needs.
    pub(super) start: Scenario,
    pub(super) description: Description,
    /// Every event that the machine counts, by its name in scenarios.
    pub(super) events: Vec<Known>,
    /// How many hardware counters a CPU has, and on which PMU.
    pub(super) counters: u8,
    /// No statement lets more time pass.
    pub(super) longest: Nanos,
    shared: Shared,
}

#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) pmu: PmuId,
    /// The counters that take it; all where they are plenty.
    pub(super) allowed: SlotMask,
    pub(super) is_scarce: bool,
}

impl Shape {
    /// A machine at random; as far as nothing is said.
    pub(super) fn draw(rng: &mut Rng, options: &Options) -> Self {
        // A line that makes no machine (there can be fixed and general counters beyond 64) is drawn again.
        for _ in 0..100 {
            let mut header = header(rng, options.cpus);
            let doorbells = rng.one_in(2);
            let by_chance = if rng.one_in(3) { Shared::On } else { Shared::Off };
            let shared = options.sharing.unwrap_or(by_chance);
            header.machine.sharing = (shared != Shared::Off).then_some(Sharing::On);
            // Callers who wait wait for other things where counters are shared: the two machines of a pair would not do the same.
            let doorbells = doorbells && shared != Shared::Both;
            if let Some(shape) = Self::of(header, doorbells, shared) {
                return shape;
            }
        }
        // The machine that a scenario gets that says nothing.
        Self::new(Scenario::default(), profiles::minimal(2), Shared::Off)
    }

    fn of(header: Header, doorbells: bool, shared: Shared) -> Option<Self> {
        let steps = if doorbells { reach_own_cpu() } else { Vec::new() };
        let start = Scenario { header, steps };
        let description = description(&start, &RunOptions::default()).ok()?;
        Some(Self::new(start, description, shared))
    }

    fn new(start: Scenario, description: Description, shared: Shared) -> Self {
        let (events, counters) = (events(&description), counters(&description));
        let longest = longest(&description);
        Self { start, description, events, counters, longest, shared }
    }

    /// Whether equal events use one counter.
    pub(super) fn shares(&self) -> bool {
        self.shared != Shared::Off
    }

    /// Whether it is told to a machine that shares and to one that doesn't.
    pub(super) fn is_differential(&self) -> bool {
        self.shared == Shared::Both
    }

    /// Whether callers need doorbells to reach other CPUs.
    pub(super) fn has_doorbells(&self) -> bool {
        self.description.reach == Reach::OwnCpu
    }
}

/// A machine gets doorbells where a statement makes faults of them: here one that comes to nothing.
fn reach_own_cpu() -> Vec<Step> {
    [Fault::DoorbellSpurious(CpuId(0)), Fault::None].map(|fault| Step::new(Statement::Fault(fault))).to_vec()
}

fn header(rng: &mut Rng, cpus: Option<u32>) -> Header {
    let cpus = cpus.unwrap_or_else(|| match rng.below(100) {
        0..30 => rng.between(1, 2),
        30..82 => rng.between(2, 16),
        82..94 => 64,
        94..98 => 256,
        _ => 1024,
    } as u32);
    let profile = rng.one_in(4).then(|| rng.pick(&profiles::NAMES).to_string());
    let tick_ns = *rng.pick(&[1_000_000, 1_000_000, 1_000_000, 100_000, 4_000_000, 10_000_000]);
    let mut machine =
        MachineSpec { profile, cpus: Some(cpus), seed: Some(rng.below(1 << 32)), ..MachineSpec::default() };
    machine.tick = (tick_ns != 1_000_000).then_some(Nanos(tick_ns));
    if machine.profile.is_none() || rng.one_in(3) {
        hardware(rng, &mut machine, tick_ns);
    }
    machine.breakpoints = match rng.below(6) {
        0..3 => None,
        3 => Some(DebugRegisters::Shared(rng.between(0, 8) as u32)),
        _ => Some(DebugRegisters::Separate { execute: rng.between(0, 6) as u32, data: rng.between(1, 4) as u32 }),
    };
    let reason = "a random run".to_owned();
    Header { machine, sim_only: Some(SimOnly { reason, place: Default::default() }), ..Header::default() }
}

/// Counters of some number, width and temper.
fn hardware(rng: &mut Rng, machine: &mut MachineSpec, tick_ns: u64) {
    let general = *rng.pick(&[0, 1, 1, 2, 2, 2, 3, 4, 4, 6, 8, 16]);
    machine.counters = Some(general);
    let signal = *rng.pick(&[OverflowBy::Interrupt, OverflowBy::Nmi, OverflowBy::Poll]);
    machine.overflow = Some(signal);
    if rng.one_in(2) {
        let least = narrowest(signal, tick_ns);
        machine.width_bits = Some(u64::min(64, least + rng.below(8) * rng.below(5)) as u8);
    } else if signal == OverflowBy::Poll {
        machine.width_bits = Some(u64::max(48, narrowest(signal, tick_ns)) as u8);
    }
    let names: Vec<&'static str> = hardware_names().collect();
    let some = |rng: &mut Rng, most| {
        let mut some = names.clone();
        rng.shuffle(&mut some);
        some.truncate(rng.below(most) as usize);
        some
    };
    if general == 0 || rng.one_in(3) {
        machine.fixed = some(rng, 4).into_iter().map(str::to_owned).collect();
    }
    if general > 0 && rng.one_in(2) {
        let constrained = some(rng, 6);
        machine.constrained = constrained.into_iter().map(|event| constraint(rng, event, general)).collect();
    }
}

fn constraint(rng: &mut Rng, event: &str, general: u8) -> Constraint {
    let mut slots: Vec<u8> = (0..general).collect();
    rng.shuffle(&mut slots);
    slots.truncate(rng.between(1, u64::from(general).min(3)) as usize);
    slots.sort_unstable();
    Constraint { event: event.to_owned(), slots }
}

/// Counters that tasks do not fill twice before the engine can know.
fn narrowest(signal: OverflowBy, tick_ns: u64) -> u64 {
    let within_ns = match signal {
        // So fast that a run is not all interrupts.
        OverflowBy::Interrupt => 200,
        OverflowBy::Nmi => 1_200,
        OverflowBy::Poll => tick_ns,
    };
    u64::from((2 * MOST_PER_NS * within_ns).ilog2()) + 2
}

fn hardware_names() -> impl Iterator<Item = &'static str> {
    Kind::hardware().filter_map(|kind| canonical_event(kind.name()))
}

fn events(description: &Description) -> Vec<Known> {
    let known = |kind: Kind| {
        let (pmu, _) = description.kind(kind)?;
        let it = &description.pmus[usize::from(pmu.0)];
        let Counts::Kinds(kinds) = &it.counts else { return None };
        let allowed = kinds.iter().find(|(other, _)| *other == kind).map(|&(_, allowed)| allowed)?;
        // The scenario language calls raw events as the machine does.
        let name = canonical_event(kind.name()).unwrap_or(kind.name());
        Some(Known { name, pmu, allowed, is_scarce: matches!(it.slots, Slots::Scarce(_)) })
    };
    Kind::all().filter_map(known).collect()
}

fn counters(description: &Description) -> u8 {
    let of = |pmu: &crate::machine::PmuDescription| match (&pmu.counts, pmu.slots) {
        (Counts::Kinds(_), Slots::Scarce(count)) => Some(count),
        _ => None,
    };
    description.pmus.iter().find_map(of).unwrap_or(0)
}

/// For how long time may pass in one statement: some ticks, fewer where many CPUs tick or counters wrap often.
fn longest(description: &Description) -> Nanos {
    let ticks = match description.cpus {
        0..=16 => 10,
        17..=64 => 5,
        _ => 2,
    };
    let wraps = |pmu: &crate::machine::PmuDescription| match (pmu.capacity(), pmu.overflow) {
        (None, _) | (_, OverflowBy::Poll) => u64::MAX,
        (Some(capacity), _) => (capacity / 2 / MOST_PER_NS).saturating_mul(WRAPS),
    };
    let until_wrapped = description.pmus.iter().map(wraps).min().unwrap_or(u64::MAX);
    Nanos(u64::min(description.tick.0 * ticks, until_wrapped))
}
