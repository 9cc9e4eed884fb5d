//! Scenarios on the simulated machine.
//!
//! What it is: [`run`] runs a whole scenario and says whether all was as expected ([`Outcome`]). [`Execution`] does it
//! statement by statement, for code that makes up scenarios while they run.
//! Read first: [`Execution`], then `opening` and `observe`; `machine` makes a machine of a scenario's head.
//!
//! **Invariant:** one scenario and one seed give one run, to the nanosecond; a timeline and checks change nothing of it.

mod control;
mod event_sets;
mod execution;
mod machine;
mod naming;
mod observe;
mod opening;
mod outcome;
mod tasks;
#[cfg(test)]
mod tests;

pub use execution::{Execution, Refused};
pub use machine::{Unusable, description};
pub use outcome::{Cause, Failure, Figures, Outcome, RunResult};

use super::ast::Scenario;
use crate::machine::{Reach, Trace};

/// How a scenario is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunOptions {
    /// Where whatever is random begins; `None`: what the file says, else 0.
    pub seed: Option<u64>,
    /// What is checked after each statement.
    pub checks: Checks,
    /// Whether a timeline comes out.
    pub timeline: Trace,
    /// Which registers callers reach; `None`: what the file says, else every one, unless it makes faults of doorbells.
    pub reach: Option<Reach>,
}

impl Default for RunOptions {
    /// The file's seed, all checks, no timeline.
    fn default() -> Self {
        Self { seed: None, checks: Checks::Everything, timeline: Trace::Off, reach: None }
    }
}

/// What is checked beside the expectations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Checks {
    /// Nothing.
    Nothing,
    /// After each statement what it can have broken, at a cost that does not grow with tasks and CPUs; everything at the
    /// end.
    Steps,
    /// Everything after each statement.
    Everything,
}

/// Runs a scenario.
///
/// An expectation that is not met does not end it; a statement that could not be carried out, and a check that found
/// something, do. What [`super::check`] finds wrong with a scenario is not looked for here: such a scenario is unusable where
/// it makes no sense.
#[must_use]
pub fn run(scenario: &Scenario, options: &RunOptions) -> Outcome {
    let mut execution = match Execution::new(scenario, options) {
        Ok(execution) => execution,
        Err(unusable) => return Outcome::unusable(unusable),
    };
    for step in &scenario.steps {
        if let Err(failure) = execution.statement(step)
            && failure.ends_the_run()
        {
            break;
        }
    }
    execution.finish()
}
