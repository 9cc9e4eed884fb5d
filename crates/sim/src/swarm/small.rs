//! A small scenario out of what a run has found.
//!
//! **Invariant:** what comes out shows the same trouble, or is what went in.

use super::case::{FailedRun, as_it_happens, replay};
use super::{CheckLevel, Conduct, Finding, Machines, RunMode};
use crate::machine::InjectedFault;
use crate::scenario::ast::Scenario;
use crate::scenario::{self, Outcome, print};

/// What is left of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Small {
    /// The smallest scenario that was found to show the trouble.
    pub scenario: Scenario,
    /// How it has to be carried out.
    pub mode: RunMode,
    /// What it shows now, with its own numbers.
    pub finding: Finding,
    /// How many times it was tried.
    pub calls: usize,
    /// How it ended; [`Outcome::DoesNotFail`] where the recorded scenario does not show the trouble again.
    pub outcome: Outcome,
}

/// Makes what a run has found small: tries it at most `most_calls` times, and as long as `go_on` says so.
#[must_use]
pub fn minimise(
    found: &FailedRun,
    injected: Option<InjectedFault>,
    most_calls: usize,
    go_on: &mut dyn FnMut() -> bool,
) -> Small {
    let shows = |scenario: &Scenario, mode| replay(scenario, mode).is_err_and(|it| it.is_like(&found.finding));
    let conducts = [Conduct::Plain, found.conduct];
    let check_levels = [CheckLevel::Everything, CheckLevel::Steps];
    let machines = [Machines::One, found.machines];
    let modes = machines.into_iter().flat_map(|machines| {
        let mode = move |conduct| check_levels.map(|check_level| RunMode { conduct, check_level, machines, injected });
        conducts.into_iter().flat_map(mode)
    });
    // If it can be, it is a scenario that any runner shows.
    let Some(mode) = modes.into_iter().find(|&mode| shows(&found.scenario, mode)) else {
        let mode =
            RunMode { conduct: found.conduct, check_level: CheckLevel::Steps, machines: found.machines, injected };
        let (scenario, finding) = (found.scenario.clone(), found.finding.clone());
        return Small { scenario, mode, finding, calls: 0, outcome: Outcome::DoesNotFail };
    };
    let mut enough = false;
    let minimised = scenario::minimise(&found.scenario, most_calls, &mut |candidate| {
        enough = enough || !go_on();
        !enough && shows(candidate, mode)
    });
    let outcome = if enough { Outcome::OutOfCalls } else { minimised.outcome };
    let happened = as_it_happens(&minimised.scenario, mode);
    let scenario = if shows(&happened, mode) { happened } else { minimised.scenario };
    let finding = replay(&scenario, mode).err().unwrap_or_else(|| found.finding.clone());
    Small { scenario, mode, finding, calls: minimised.calls, outcome }
}

impl Small {
    /// The scenario as text, with a head that says what it shows.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut scenario = self.scenario.clone();
        scenario.header.about = vec![format!("Shows: {}", self.finding)];
        let mut only = Vec::new();
        if self.mode.conduct == Conduct::Rough {
            only.push("while tasks stay on their CPUs (--rough)");
        }
        if self.mode.check_level == CheckLevel::Steps {
            only.push("if not everything is checked after each statement (--steps-only)");
        }
        if self.mode.machines == Machines::Two {
            only.push("beside a machine that shares nothing (--sharing both)");
        }
        if !only.is_empty() {
            scenario.header.about.push(format!("Only {}.", only.join(" and ")));
        }
        print(&scenario)
    }
}
