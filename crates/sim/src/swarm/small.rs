//! A small scenario out of what a run has found.
//!
//! **Invariant:** what comes out shows the same trouble, or is what went in.

use super::story::{Found, as_it_happens, replay};
use super::{Conduct, Machines, Manner, Trouble, Zeal};
use crate::machine::Planted;
use crate::scenario::ast::Scenario;
use crate::scenario::{self, Outcome, print};

/// What is left of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Small {
    /// The smallest scenario that was found to show the trouble.
    pub scenario: Scenario,
    /// How it has to be carried out.
    pub manner: Manner,
    /// What it shows now, with its own numbers.
    pub trouble: Trouble,
    /// How many times it was tried.
    pub calls: usize,
    /// How it ended; [`Outcome::DoesNotFail`] where the recorded scenario does not show the trouble again.
    pub outcome: Outcome,
}

/// Makes what a run has found small: tries it at most `most_calls` times, and as long as `go_on` says so.
#[must_use]
pub fn minimise(found: &Found, planted: Option<Planted>, most_calls: usize, go_on: &mut dyn FnMut() -> bool) -> Small {
    let shows = |scenario: &Scenario, manner| replay(scenario, manner).is_err_and(|it| it.is_like(&found.trouble));
    let conducts = [Conduct::Plain, found.conduct];
    let zeals = [Zeal::Everything, Zeal::Steps];
    let machines = [Machines::One, found.machines];
    let manners = machines.into_iter().flat_map(|machines| {
        let manner = move |conduct| zeals.map(|zeal| Manner { conduct, zeal, machines, planted });
        conducts.into_iter().flat_map(manner)
    });
    // If it can be, it is a scenario that any runner shows.
    let Some(manner) = manners.into_iter().find(|&manner| shows(&found.scenario, manner)) else {
        let manner = Manner { conduct: found.conduct, zeal: Zeal::Steps, machines: found.machines, planted };
        let (scenario, trouble) = (found.scenario.clone(), found.trouble.clone());
        return Small { scenario, manner, trouble, calls: 0, outcome: Outcome::DoesNotFail };
    };
    let mut enough = false;
    let minimised = scenario::minimise(&found.scenario, most_calls, &mut |candidate| {
        enough = enough || !go_on();
        !enough && shows(candidate, manner)
    });
    let outcome = if enough { Outcome::OutOfCalls } else { minimised.outcome };
    let happened = as_it_happens(&minimised.scenario, manner);
    let scenario = if shows(&happened, manner) { happened } else { minimised.scenario };
    let trouble = replay(&scenario, manner).err().unwrap_or_else(|| found.trouble.clone());
    Small { scenario, manner, trouble, calls: minimised.calls, outcome }
}

impl Small {
    /// The scenario as text, with a head that says what it shows.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut scenario = self.scenario.clone();
        scenario.header.about = vec![format!("Shows: {}", self.trouble)];
        let mut only = Vec::new();
        if self.manner.conduct == Conduct::Rough {
            only.push("while tasks stay on their CPUs (--rough)");
        }
        if self.manner.zeal == Zeal::Steps {
            only.push("if not everything is checked after each statement (--steps-only)");
        }
        if self.manner.machines == Machines::Two {
            only.push("beside a machine that shares nothing (--sharing both)");
        }
        if !only.is_empty() {
            scenario.header.about.push(format!("Only {}.", only.join(" and ")));
        }
        print(&scenario)
    }
}
