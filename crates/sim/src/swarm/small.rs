//! A small scenario out of what a run has found.
//!
//! **Invariant:** what comes out shows the same trouble, or is what went in.

use super::story::{Found, as_it_happens, replay};
use super::{Conduct, Trouble};
use crate::machine::Planted;
use crate::scenario::ast::Scenario;
use crate::scenario::{self, Outcome, Progress, print};

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoOn {
    /// Go on.
    Yes,
    /// It takes too long: what is smallest by now is small enough.
    Enough,
}

/// What is left of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Small {
    /// The smallest scenario that was found to show the trouble.
    pub scenario: Scenario,
    /// What has to be done beside its statements.
    pub conduct: Conduct,
    /// What it shows now, with its own numbers.
    pub trouble: Trouble,
    /// How many times it was tried.
    pub calls: usize,
    /// How it ended.
    pub outcome: Outcome,
}

/// Makes what a run has found small: tries it at most `most_calls` times, and calls `progress` after each of them.
#[must_use]
pub fn minimise(
    found: &Found,
    planted: Option<Planted>,
    most_calls: usize,
    progress: &mut dyn FnMut(Progress) -> GoOn,
) -> Small {
    let shows = |scenario: &Scenario, conduct| {
        replay(scenario, conduct, planted).is_err_and(|trouble| trouble.is_like(&found.trouble))
    };
    // If it can be, it is a scenario that any runner shows.
    let conduct = if shows(&found.scenario, Conduct::Plain) { Conduct::Plain } else { found.conduct };
    let mut go_on = GoOn::Yes;
    let go_on = std::cell::Cell::from_mut(&mut go_on);
    let minimised = scenario::minimise(
        &found.scenario,
        most_calls,
        &mut |candidate| go_on.get() == GoOn::Yes && shows(candidate, conduct),
        &mut |so_far| {
            if go_on.get() == GoOn::Yes {
                go_on.set(progress(so_far));
            }
        },
    );
    let enough = go_on.get() == GoOn::Enough && minimised.outcome == Outcome::Smallest;
    let outcome = if enough { Outcome::OutOfCalls } else { minimised.outcome };
    let mut smallest = minimised.scenario;
    let happened = as_it_happens(&smallest, conduct, planted);
    if shows(&happened, conduct) {
        smallest = happened;
    }
    let trouble = replay(&smallest, conduct, planted).err().unwrap_or_else(|| found.trouble.clone());
    Small { scenario: smallest, conduct, trouble, calls: minimised.calls, outcome }
}

impl Small {
    /// The scenario as text, with a head that says what it shows.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut scenario = self.scenario.clone();
        scenario.header.about = vec![format!("Shows: {}", self.trouble)];
        if self.conduct == Conduct::Rough {
            scenario.header.about.push("Only while tasks stay on their CPUs: replay it with --rough.".to_owned());
        }
        print(&scenario)
    }
}
