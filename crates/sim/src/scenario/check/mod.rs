//! What can be known of a scenario without running it.
//!
//! What it is: a walk over the statements that keeps which tasks live, which events are open and which CPUs are offline.
//! Read first: [`check`], then [`CheckState`]; what is wrong with a statement is in `statement` and `expect`, what a file must say
//! of its needs in `needs`.
//!
//! **Invariant:** looking at a statement and taking it are two steps: [`CheckState::problems`] changes nothing.

mod expect;
mod header;
mod needs;
mod statement;
mod world;

pub use needs::{Requirements, needs};
pub(super) use world::CheckState;

use super::ast::Scenario;
use super::error::{MOST_PROBLEMS, Problem};

/// Finds what is wrong with a scenario, in the order of its text (at most 50 problems; those that matter everywhere come
/// first where there are more).
///
/// Without a problem of [`super::Bearing::Everywhere`], it has a meaning and runs on the simulator; without any, it is a file
/// for every machine that has what it requires.
#[must_use]
pub fn check(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = header::problems(scenario);
    let mut world = CheckState::new(scenario);
    for step in &scenario.steps {
        problems.extend(world.problems(step));
        world.take(step);
    }
    problems.extend(needs::problems(scenario));
    if problems.len() > MOST_PROBLEMS {
        problems.sort_by_key(|problem| problem.bearing);
        problems.truncate(MOST_PROBLEMS);
    }
    // Stable: what is said of one place stays in its order.
    problems.sort_by_key(|problem| (problem.place.line, problem.place.column));
    problems
}
