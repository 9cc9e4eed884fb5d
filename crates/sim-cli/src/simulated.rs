//! Scenarios on the simulated machine.
//!
//! **Invariant:** glue: what a scenario means there, `pmux_sim` knows.

use crate::outcome::{Failure, Lack, Outcome, Ran};
use pmux_sim::machine::Trace;
use pmux_sim::scenario::ast::{Requirement, Scenario};
use pmux_sim::scenario::run::{RunOptions, RunResult, run};
use pmux_sim::timeline::render;
use pmux_ui::sim_options::SimOptions;

/// Runs a scenario that has a meaning.
pub(super) fn simulate(file: &str, scenario: &Scenario, options: &SimOptions) -> Ran {
    let shows_nothing = scenario.header.requires.iter().any(|required| required.requirement == Requirement::Kernel);
    if shows_nothing {
        return Ran::new(file.to_owned(), Outcome::Skipped(Lack::new("kernel", "a kernel: run it with --on kernel")));
    }
    let wanted = options.wants_timeline() || options.json;
    let timeline = if wanted { Trace::On } else { Trace::Off };
    let came = run(scenario, &RunOptions { seed: options.seed, timeline, ..RunOptions::default() });
    let outcome = match came.result {
        RunResult::Passed => Outcome::Passed,
        RunResult::Failed(failures) => Outcome::Failed(
            failures
                .into_iter()
                .map(|failure| Failure {
                    place: failure.place,
                    statement: failure.statement,
                    message: failure.cause.to_string(),
                })
                .collect(),
        ),
        RunResult::Unusable(unusable) => {
            let (place, message) = (unusable.place, unusable.message);
            Outcome::Failed(vec![Failure { place, statement: "the simulator can't do this".into(), message }])
        }
    };
    Ran { timeline: came.timeline.as_ref().map(render), ..Ran::new(file.to_owned(), outcome) }
}
