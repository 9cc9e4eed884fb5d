//! What came of a run.
//!
//! **Invariant:** plain data; each failure says by itself where it was, what was expected, and what was found.

use super::super::ast::{Errno, SourceSpan};
use super::machine::Unusable;
use crate::check::Checker;
use crate::timeline::Timeline;
use pmux_engine::Nanos;
use std::fmt;

/// What came of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Whether all was as expected.
    pub result: RunResult,
    /// What there was to do.
    pub figures: Figures,
    /// What happened when, if that was asked for, up to the last statement.
    pub timeline: Option<Timeline>,
}

/// Whether all was as expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunResult {
    /// It was.
    Passed,
    /// It was not, in at least one way.
    Failed(Vec<Failure>),
    /// The simulator can't do what the scenario asks for.
    Unusable(Unusable),
}

pub(super) const MOST_FAILURES: usize = 50;

/// What there was to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// The seed.
    pub seed: u64,
    /// How much time passed on the machine, up to the last statement.
    pub virtual_time: Nanos,
    /// Statements that were carried out, expectations among them.
    pub statements: usize,
    /// How many times the machine refused something because it was told to.
    pub refusals: u64,
    /// What the machine withheld: so many occurrences are in no count.
    pub lost: u64,
}

/// Something that was not as expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Where the statement stands.
    pub place: SourceSpan,
    /// Which statement it is, from 0; `None` after the last one.
    pub step: Option<usize>,
    /// The statement, as it is printed; after the last one, what was done there.
    pub statement: String,
    /// When, on the machine.
    pub at: Nanos,
    /// What was not as expected.
    pub cause: Cause,
}

/// What was not as expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cause {
    /// An expectation is not met. The sentence says what was expected and found.
    Unmet(String),
    /// A statement failed that should not.
    Refused {
        /// The error's number.
        errno: i32,
        /// Why.
        why: String,
    },
    /// A statement was to fail, and did not.
    NotRefused {
        /// How it was to fail.
        expected: Errno,
    },
    /// A statement failed in another way than it should.
    RefusedOtherwise {
        /// How it was to fail.
        expected: Errno,
        /// How it did.
        errno: i32,
        /// Why.
        why: String,
    },
    /// A check found something.
    Violation {
        /// Which one.
        checker: Checker,
        /// What, with the names of the scenario.
        what: String,
    },
    /// The simulator can't do this.
    Unusable(String),
}

impl Outcome {
    pub(super) fn unusable(unusable: Unusable) -> Self {
        Self { result: RunResult::Unusable(unusable), figures: Figures::default(), timeline: None }
    }

    /// Whether all was as expected.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.result == RunResult::Passed
    }

    /// What was not as expected.
    #[must_use]
    pub fn failures(&self) -> &[Failure] {
        match &self.result {
            RunResult::Failed(failures) => failures,
            RunResult::Passed | RunResult::Unusable(_) => &[],
        }
    }
}

impl Failure {
    /// Whether nothing can come after it: what follows would fail because of it.
    #[must_use]
    pub const fn ends_the_run(&self) -> bool {
        !matches!(self.cause, Cause::Unmet(_))
    }
}

/// Prints the line, the statement, and below it what was expected and found.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.line > 0 {
            write!(f, "line {}: ", self.place.line)?;
        }
        write!(f, "{}\n  {}", self.statement, self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmet(sentence) | Self::Unusable(sentence) => f.write_str(sentence),
            Self::Refused { errno, why } => write!(f, "it failed with {}: {why}", errno_text(*errno)),
            Self::NotRefused { expected } => write!(f, "it was to fail with {expected}, and did not fail"),
            Self::RefusedOtherwise { expected, errno, why } => {
                write!(f, "it was to fail with {expected}, and failed with {}: {why}", errno_text(*errno))
            }
            Self::Violation { checker, what } => write!(f, "the check {checker:?} found: {what}"),
        }
    }
}

/// The name of an error, or its number.
fn errno_text(errno: i32) -> String {
    Errno::all()
        .find(|known| known.number() == errno)
        .map_or_else(|| format!("errno {errno}"), |known| known.to_string())
}
