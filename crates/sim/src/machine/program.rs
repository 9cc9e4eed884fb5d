//! What a task does by itself.
//!
//! What it is: a list of steps that a task goes through as it runs: so long at these rates, then a fork, then an access.
//!
//! **Invariant:** time in a program is the task's own: it stands still while the task is on no CPU.

use crate::machine::Access;
use crate::machine::Rates;
use pmux_engine::shell::Exec;
use pmux_engine::{CpuId, Nanos};
use std::sync::Arc;

/// One step of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Runs for so long.
    Run(Nanos, Box<Rates>),
    /// Touches so many pages for the first time.
    Touch(u64),
    /// Accesses an address so many times.
    Access(u64, Access, u64),
    /// Forks; the child runs this program, on the parent's CPU if that has turns to give.
    Fork(Arc<Program>),
    /// Executes another file; the program goes on.
    Exec(Exec),
    /// Asks to go on elsewhere.
    Migrate(CpuId),
    /// Ends.
    Exit,
}

/// What comes after the last step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum After {
    /// It runs on at its last rates.
    #[default]
    GoOn,
    /// It begins again.
    Again,
}

/// What a task does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// Its steps.
    pub steps: Vec<Step>,
    /// What comes after them.
    pub after: After,
}

impl Program {
    /// Runs at these rates for ever.
    #[must_use]
    pub fn steady(rates: Rates) -> Self {
        Self { steps: vec![Step::Run(Nanos(u64::MAX), Box::new(rates))], after: After::GoOn }
    }

    /// Whether it comes back to its beginning without letting any time pass.
    pub(super) fn spins(&self) -> bool {
        let takes_time = |step: &Step| matches!(step, Step::Run(span, _) if *span > Nanos::ZERO);
        self.after == After::Again && !self.steps.iter().any(takes_time)
    }
}
