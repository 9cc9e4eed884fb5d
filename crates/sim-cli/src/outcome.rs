//! What came of a scenario.
//!
//! **Invariant:** plain data; how it is printed is in `report`.

use pmux_sim::scenario::ast::SourceSpan;
use std::time::Duration;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Passed,
    /// Something was not; at least one.
    Failed(Vec<Failure>),
    /// This machine lacks something that it needs.
    Skipped(Lack),
    /// It runs on the simulator only, for this reason.
    SimOnly(String),
    /// It could not be read or understood, as this text says.
    Broken(String),
    /// A signal has stopped it.
    Interrupted(i32),
}

/// One statement that did not do what it should.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    pub(super) place: SourceSpan,
    /// The statement, as it would be printed.
    pub(super) statement: String,
    /// What was wrong: sentences without their place.
    pub(super) message: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lack {
    /// Its name in `PMUX_REQUIRE`.
    pub(super) class: &'static str,
    /// What it is, for people.
    pub(super) what: String,
}

impl Lack {
    pub(super) fn new(class: &'static str, what: impl Into<String>) -> Self {
        Self { class, what: what.into() }
    }
}

/// A scenario that was run, or was not.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    /// The file, as it was named.
    pub(super) file: String,
    pub(super) outcome: Outcome,
    /// What happened when, if that is known.
    pub(super) timeline: Option<String>,
    /// What is to be said besides.
    pub(super) remarks: Option<String>,
    pub(super) took: Duration,
}

impl Ran {
    pub(super) fn new(file: String, outcome: Outcome) -> Self {
        Self { file, outcome, timeline: None, remarks: None, took: Duration::ZERO }
    }
}

/// Whether `PMUX_REQUIRE` says that a machine has something.
pub(super) fn is_required(class: &str) -> bool {
    let required = std::env::var("PMUX_REQUIRE").unwrap_or_default();
    required.split(',').any(|name| name.trim() == class)
}
