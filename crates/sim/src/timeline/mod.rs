//! What happened when: for people and for programs.
//!
//! What it is: [`Timeline`] is a run as data, with the names of its scenario; [`render`] lays it out as text, time running
//! downward, CPUs and their counters side by side.
//! Read first: [`Timeline`], then `lanes` (what stands side by side) and `page` (how it looks).
//!
//! **Invariant:** what is left out of a page is counted.

mod build;
mod figures;
mod lanes;
mod page;
#[cfg(test)]
mod tests;
mod units;

pub use crate::machine::Refusal;
pub use page::render;

use pmux_engine::{Count, CpuId, EventState, Nanos};

/// What happened in a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Timeline {
    /// The CPUs of the machine.
    pub cpus: u32,
    /// What the machine is like, in a line.
    pub machine: String,
    /// Which PMU has debug registers; [`Hold::pmu`] counts them from 0.
    pub debug_registers: Option<usize>,
    /// When it ended.
    pub end: Nanos,
    /// What was done, in its order.
    pub statements: Vec<StatementSpan>,
    /// The tasks by name; [`Turn::task`] and [`Hold::task`] count them from 0.
    pub tasks: Vec<String>,
    /// The events, in the order in which they were opened; [`Hold::event`] counts them from 0.
    pub events: Vec<EventFigures>,
    /// Which task was on which CPU, by time.
    pub turns: Vec<Turn>,
    /// Which event held which counter, by time.
    pub holds: Vec<Hold>,
    /// When CPUs were away, by time.
    pub absences: Vec<Absence>,
    /// What happened at one moment, by time.
    pub marks: Vec<Mark>,
}

/// A statement, and the time that it took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatementSpan {
    /// When it began.
    pub from: Nanos,
    /// When it was done.
    pub to: Nanos,
    /// The statement, as it is printed.
    pub text: String,
    /// Whether it expects something; then it does nothing.
    pub expectation: bool,
    /// What was not as expected.
    pub failure: Option<String>,
    /// What else is worth saying.
    pub note: Option<String>,
    /// How many marks the machine had written down when it was done.
    pub marks_by_then: usize,
}

/// A task was on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Which task.
    pub task: usize,
    /// On which CPU.
    pub cpu: CpuId,
    /// Since when.
    pub from: Nanos,
    /// Until when.
    pub to: Nanos,
}

/// An event held a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Which event.
    pub event: usize,
    /// For which task; `None`: for whatever ran there.
    pub task: Option<usize>,
    /// On which CPU.
    pub cpu: CpuId,
    /// Which PMU's counter.
    pub pmu: usize,
    /// Which one; `None` where they are plenty.
    pub counter: Option<u32>,
    /// Since when.
    pub from: Nanos,
    /// Until when.
    pub to: Nanos,
    /// How it came to it.
    pub began: Began,
}

/// How an event came to a counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Began {
    /// It was programmed and started.
    Programmed,
    /// The same event of the task that left had it, and it went on without a stop.
    HandedOver,
}

/// A CPU was away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absence {
    /// Which one.
    pub cpu: CpuId,
    /// Since when.
    pub from: Nanos,
    /// Until when.
    pub to: Nanos,
}

/// Something happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// When.
    pub at: Nanos,
    /// On which CPU, if it was on one.
    pub cpu: Option<CpuId>,
    /// During which statement; `None` behind the last one.
    pub statement: Option<usize>,
    /// What.
    pub what: Marked,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marked {
    /// Counters interrupted the CPU.
    Interrupt,
    /// A doorbell rang on the CPU: another CPU wants something done there.
    Doorbell,
    /// The machine refused something of an event, because it was told to.
    Refused(usize, Refusal),
    /// So many occurrences of an event are in no count, because the machine refused to say.
    Lost(usize, u64),
}

/// What an event had counted in the end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventFigures {
    /// Its name in the scenario.
    pub name: String,
    /// What it counts, as it is printed.
    pub event: String,
    /// What is counted, as it is printed.
    pub target: String,
    /// How it was opened.
    pub flags: Vec<String>,
    /// What it counted, with children and on all CPUs; `None` if it can't be read.
    pub count: Option<Count>,
    /// What really happened while it ran.
    pub truth: u64,
    /// What the machine withheld.
    pub lost: u64,
    /// Its state; of several events, that of the first one.
    pub state: Option<EventState>,
    /// Of a system-wide set, the CPUs that were not always counted.
    pub gaps: Vec<CpuGap>,
    /// When it was closed, if it was.
    pub closed: Option<Nanos>,
}

/// For how long a CPU of a set was not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuGap {
    /// The CPU.
    pub cpu: CpuId,
    /// How long.
    pub missed: Nanos,
    /// How many times it went away.
    pub times: u64,
}
