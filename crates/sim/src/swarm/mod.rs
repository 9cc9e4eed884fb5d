//! Random runs from a seed.
//!
//! What it is: [`run`] draws a machine, a random part of what can be done and of what can go wrong, and makes up a scenario
//! statement by statement while it is carried out on the simulated machine, with all checks. In the end the faults stop,
//! everything must count again, everything is closed, and nothing may be left. What was found comes with the scenario up to
//! there; [`minimise`] makes that small enough to be read.
//! Read first: [`run`], then `generate` (how statements are made) and `course` (how they are carried out).
//!
//! **Invariant:** a seed and the options reproduce a run; the recorded scenario and its conduct reproduce what was found.

mod case;
mod checked_run;
mod differential;
mod expected_result;
mod finding;
mod generate;
mod generator_state;
mod opening;
mod rng;
mod shape;
mod small;
#[cfg(test)]
mod tests;
mod weights;

pub use case::{FailedRun, Observer, RunStats, replay, run};
pub use finding::{Divergence, Finding};
pub use small::{Small, minimise};

use crate::machine::InjectedFault;

/// What a run is like, beside its seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// So many statements.
    pub steps: u64,
    /// On so many CPUs; `None`: as chance has it.
    pub cpus: Option<u32>,
    /// About so many tasks live at a time, all of them from the beginning; `None`: as chance has it.
    pub tasks: Option<u64>,
    /// Whether equal events use one counter; `None`: as chance has it.
    pub sharing: Option<Shared>,
    /// What the machine does that no machine may do: whether the checks find it.
    pub injected: Option<InjectedFault>,
}

impl Default for Options {
    /// Some hundred statements on any machine; nothing planted.
    fn default() -> Self {
        Self { steps: 300, cpus: None, tasks: None, sharing: None, injected: None }
    }
}

/// Whether equal events use one counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shared {
    /// Each has its own.
    Off,
    /// They do.
    On,
    /// The run is told to two machines, of which one shares and the other doesn't: what is multiplexed on neither counts the
    /// same on both.
    Both,
}

/// On what a recorded scenario is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machines {
    /// The one that it describes.
    One,
    /// That one, and one that shares nothing.
    Two,
}

/// How a recorded scenario is carried out once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunMode {
    /// What happens beside the statements.
    pub conduct: Conduct,
    /// What is checked after each statement.
    pub check_level: CheckLevel,
    /// How many machines it is told to.
    pub machines: Machines,
    /// What the machine does that no machine may do.
    pub injected: Option<InjectedFault>,
}

impl Default for RunMode {
    /// One machine, nothing beside the statements, everything checked, nothing planted.
    fn default() -> Self {
        Self { conduct: Conduct::Plain, check_level: CheckLevel::Everything, machines: Machines::One, injected: None }
    }
}

/// What is checked after each statement. At the end, everything is.
///
/// Checks read events, and a reading is an event in the life of the engine: some things go wrong only with them, some only
/// without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckLevel {
    /// What it can have broken.
    Steps,
    /// Everything.
    Everything,
}

/// What happens beside the statements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conduct {
    /// Nothing: a runner of scenarios does the same.
    Plain,
    /// Tasks that ran stay on their CPUs and go on there while time passes, and events are read from where callers are: so
    /// what statements do, they do to tasks that run, and commands wait for doorbells.
    Rough,
}
