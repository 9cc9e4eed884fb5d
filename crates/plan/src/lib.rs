//! How events would fit on a machine: before anything is counted.
//!
//! What it is: [`plan`] takes a machine as data and groups of events, lets the engine put them on that machine's counters,
//! and reads off who was on in which turn, after how many turns it all begins again, and who can never be on, and why.
//! Read first: [`Request`] and [`Plan`]; then `needs` (which counters an event may use), `host` (the machine that the engine
//! runs on here), `turns` (watching it) and `reason` (why something never fits).
//!
//! What differs from the simulated machine of `pmux_sim` is what Linux does differently: debug registers are handed
//! out when an event is opened, and never take turns.
//!
//! **Invariant:** the engine decides. Nothing here places an event or chooses whose turn it is; a plan is what was seen.
#![forbid(unsafe_code)]

mod capacity;
mod host;
pub mod machine;
mod needs;
mod reason;
mod turns;

pub use capacity::{TriedEvent, describe, tried_pmu, with_general_counters};
pub use pmux_engine::target::Demand;
pub use reason::NeverReason;

use crate::machine::{Description, DescriptionError, Kind};
use pmux_abi::attr::Attr;
pub use pmux_engine::pmu::SlotMask;
use std::fmt;
use std::ops::Range;

/// What is to be planned.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// The groups, in the order in which they would be opened.
    pub groups: Vec<GroupRequest>,
    /// Which tasks or CPUs they would count.
    pub scope: Scope,
}

/// Which tasks or CPUs events would count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// A task, wherever it runs: one kernel event for each event.
    Task,
    /// Every CPU of the machine: one kernel event for each event and CPU.
    EveryCpu,
}

/// A group of events: the leader first. An event that stands alone is a group of one.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupRequest {
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Its events. Whether it is pinned or exclusive, the flags of the first one say.
    pub events: Vec<EventRequest>,
    /// Whether it may be broken up.
    pub strength: Strength,
}

/// Whether a group may be broken up where it does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strength {
    /// It stays whole.
    Whole,
    /// Its events are then opened one by one.
    MayBreak,
}

/// An event.
#[derive(Clone, PartialEq, Debug)]
pub struct EventRequest {
    /// What it is called.
    pub name: String,
    /// The question.
    pub attr: Attr,
    /// Who counts it.
    pub source: Source,
}

/// Who counts an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The PMU of the machine that the attribute asks for; as this kind, where it is known to be one.
    Machine(Option<Kind>),
    /// The PMU of this name, on these of its counters: see [`tried_pmu`].
    Counters(String, SlotMask),
    /// The kernel itself, as many as wanted.
    Kernel,
    /// A PMU of this name, of whose counters nothing is known.
    Unknown(String),
}

/// How events fit.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Which tasks or CPUs they count.
    pub scope: Scope,
    /// How many CPUs the machine has.
    pub cpus: u32,
    /// The PMUs that are asked for.
    pub pmus: Vec<PmuPlan>,
    /// The groups, in the order of the request.
    pub groups: Vec<GroupPlan>,
    /// The events of all groups, in order.
    pub events: Vec<EventPlan>,
}

/// A PMU, and what is asked of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PmuPlan {
    /// Its name.
    pub name: String,
    /// How many events it has room for.
    pub capacity: Capacity,
    /// How many events ask for it.
    pub events: usize,
    /// How many of them ask different questions: so many counters would do, if events that count the same shared one.
    pub questions: usize,
    /// Whether all of them would be on at once, if events that count the same shared a counter.
    pub fits_if_shared: bool,
    /// After how many turns the repetition begins; nearly always 0.
    pub lead_in: usize,
    /// After how many turns it all begins again; 1 where no event waits.
    pub period: usize,
}

/// How many events a PMU has room for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Capacity {
    /// So many counters.
    Counters {
        /// Those that take more than one kind of event.
        general: u32,
        /// Those that take one kind of event only: which.
        fixed: Vec<Kind>,
    },
    /// So many debug registers: handed out when an event is opened.
    Registers {
        /// All of them.
        total: u32,
        /// Those that can watch code.
        execute: u32,
        /// Those that can watch data.
        data: u32,
    },
    /// As many as wanted.
    Plenty,
    /// It is not known.
    Unknown,
}

impl Capacity {
    /// How many events there is room for, where that is known and limited.
    #[must_use]
    pub fn total(&self) -> Option<u32> {
        match self {
            Self::Counters { general, fixed } => Some(general + fixed.len() as u32),
            Self::Registers { total, .. } => Some(*total),
            Self::Plenty | Self::Unknown => None,
        }
    }
}

/// A group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupPlan {
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Its events, as indices into [`Plan::events`].
    pub events: Range<usize>,
    /// What it demands; where it was broken up, its first event.
    pub demand: Demand,
    /// Why it was broken up, if it was.
    pub broken: Option<NeverReason>,
}

/// An event.
#[derive(Clone, PartialEq, Debug)]
pub struct EventPlan {
    /// What it is called.
    pub name: String,
    /// Its group, as an index into [`Plan::groups`].
    pub group: usize,
    /// Its PMU, as an index into [`Plan::pmus`]; `None` where the machine has none for it.
    pub pmu: Option<usize>,
    /// Events with the same number count the same.
    pub question: usize,
    /// What becomes of it.
    pub fit: EventFit,
    /// The PMU whose turns it takes.
    pace: Option<usize>,
    /// Whether it is on, turn by turn, for the lead-in and one period of that PMU.
    on: Vec<bool>,
}

/// What becomes of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventFit {
    /// It is on all the time.
    Always,
    /// It takes turns.
    InTurns(Share),
    /// It is never on.
    Never(NeverReason),
    /// It is not known how many counters its PMU has.
    Unknown,
}

impl EventFit {
    /// The share of the time that it is seen; `None` where that is not known.
    #[must_use]
    pub fn share(&self) -> Option<Share> {
        match self {
            Self::Always => Some(Share { on: 1, of: 1 }),
            Self::InTurns(share) => Some(*share),
            Self::Never(_) => Some(Share { on: 0, of: 1 }),
            Self::Unknown => None,
        }
    }
}

/// So many turns out of so many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The turns in which it is on.
    pub on: usize,
    /// All turns of a period.
    pub of: usize,
}

impl Share {
    /// As a number from 0 to 100.
    #[must_use]
    pub fn percent(self) -> f64 {
        if self.of == 0 { 0.0 } else { self.on as f64 * 100.0 / self.of as f64 }
    }
}

impl Plan {
    /// Whether an event is on in a turn; the first turn is 0. `None` where that is not known, or there is no such event.
    #[must_use]
    pub fn is_on(&self, event: usize, turn: usize) -> Option<bool> {
        let event = self.events.get(event)?;
        let pmu = event.pace.and_then(|pmu| self.pmus.get(pmu));
        match (&event.fit, pmu) {
            (EventFit::Unknown, _) => None,
            (EventFit::Always, _) => Some(true),
            (EventFit::Never(_), _) | (_, None) => Some(false),
            (EventFit::InTurns(_), Some(pmu)) => {
                let at = if turn < pmu.lead_in { turn } else { pmu.lead_in + (turn - pmu.lead_in) % pmu.period.max(1) };
                event.on.get(at).copied()
            }
        }
    }

    /// After how many turns all PMUs together begin again: the least common multiple of their periods.
    #[must_use]
    pub fn period(&self) -> usize {
        self.pmus.iter().fold(1, |all, pmu| least_common_multiple(all, pmu.period.max(1)))
    }

    /// How many kernel events are opened for what is counted at all.
    #[must_use]
    pub fn kernel_events(&self) -> u64 {
        let opened = self.events.iter().filter(|event| !matches!(&event.fit, EventFit::Never(why) if why.is_refusal()));
        let copies = if self.scope == Scope::EveryCpu { u64::from(self.cpus) } else { 1 };
        opened.count() as u64 * copies
    }

    /// Whether an event can never be counted.
    #[must_use]
    pub fn has_never(&self) -> bool {
        self.events.iter().any(|event| matches!(event.fit, EventFit::Never(_)))
    }
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    (a / greatest_common_divisor(a, b)).saturating_mul(b)
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Why there is no plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlanError {
    /// There can't be such a machine.
    Machine(DescriptionError),
    /// A group without events, by its number.
    EmptyGroup(usize),
    /// The turns on this PMU did not begin again within as many turns as must be enough.
    Endless(String),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(error) => error.fmt(f),
            Self::EmptyGroup(group) => write!(f, "group {group} has no event"),
            Self::Endless(pmu) => write!(f, "the turns on PMU {pmu} don't repeat"),
        }
    }
}

impl std::error::Error for PlanError {}

/// Finds out how events fit on a machine.
///
/// # Errors
/// In this order: [`PlanError::Machine`], [`PlanError::EmptyGroup`], [`PlanError::Endless`].
pub fn plan(machine: &Description, request: &Request) -> Result<Plan, PlanError> {
    machine.check().map_err(PlanError::Machine)?;
    if let Some(empty) = request.groups.iter().position(|group| group.events.is_empty()) {
        return Err(PlanError::EmptyGroup(empty));
    }
    turns::watch(machine, request)
}
