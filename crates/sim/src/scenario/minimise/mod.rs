//! A small scenario that still fails, out of a large one.
//!
//! What it is: delta debugging over the statements (`settle` takes away with a task or an event what depends on it), again from the
//! beginning until nothing changes.
//! Read first: [`minimise`].
//!
//! **Invariant:** deterministic; every candidate that is tried is a valid scenario and is tried once; never more calls than
//! allowed.

mod settle;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher as _};

use super::ast::Scenario;
use super::check::check;
use super::error::Bearing;
use super::print::print;
use settle::settle;

/// What came out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Minimised {
    /// The smallest scenario that was found to fail; where the first one did not fail, that one.
    pub scenario: Scenario,
    /// How many times the caller was asked.
    pub calls: usize,
    /// How it ended.
    pub outcome: Outcome,
}

/// How minimising ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// No statement can be left out.
    Smallest,
    /// The calls were used up; more of them could make it smaller.
    OutOfCalls,
    /// The scenario did not fail to begin with (where it was not valid: not without what is wrong with it).
    DoesNotFail,
}

/// Finds a small scenario that still fails.
///
/// `still_fails` runs a scenario and says whether it fails in the way that is looked for; it is called at most `most_calls`
/// times, first with the scenario itself, and should always say the same of the same scenario.
pub fn minimise(scenario: &Scenario, most_calls: usize, still_fails: &mut dyn FnMut(&Scenario) -> bool) -> Minimised {
    let start = settle(&scenario.header, &scenario.steps);
    let notes = check(&start).len();
    let mut search = Search {
        best: start.clone(),
        notes,
        calls: 0,
        most_calls,
        out_of_calls: false,
        tried: BTreeSet::from([fingerprint(&start)]),
        still_fails,
    };
    if !search.ask(&start) {
        let outcome = if search.out_of_calls { Outcome::OutOfCalls } else { Outcome::DoesNotFail };
        return Minimised { scenario: scenario.clone(), calls: search.calls, outcome };
    }
    loop {
        let before = search.best.clone();
        search.fewer_statements();
        if search.out_of_calls || search.best == before {
            break;
        }
    }
    let outcome = if search.out_of_calls { Outcome::OutOfCalls } else { Outcome::Smallest };
    Minimised { scenario: search.best, calls: search.calls, outcome }
}

struct Search<'a> {
    /// The smallest that fails, by now.
    best: Scenario,
    /// How many things keep it from being a file for other machines too.
    notes: usize,
    calls: usize,
    most_calls: usize,
    out_of_calls: bool,
    tried: BTreeSet<u64>,
    still_fails: &'a mut dyn FnMut(&Scenario) -> bool,
}

/// The same on every machine and in every run.
fn fingerprint(scenario: &Scenario) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(print(scenario).as_bytes());
    hasher.finish()
}

impl Search<'_> {
    /// Asks the caller, unless it may not be asked any more.
    fn ask(&mut self, candidate: &Scenario) -> bool {
        if self.calls == self.most_calls {
            self.out_of_calls = true;
            return false;
        }
        self.calls += 1;
        (self.still_fails)(candidate)
    }

    /// Takes a candidate if it was not tried before, is valid and fails.
    fn accept(&mut self, candidate: Scenario) -> bool {
        if self.out_of_calls || !self.tried.insert(fingerprint(&candidate)) {
            return false;
        }
        let problems = check(&candidate);
        let is_valid = problems.iter().all(|problem| problem.bearing != Bearing::Everywhere);
        // What is a file for other machines too must not become less of one.
        let accepted = is_valid && problems.len() <= self.notes && self.ask(&candidate);
        if accepted {
            self.best = candidate;
        }
        accepted
    }

    /// Takes statements away: large pieces first, from the end, because what comes late depends on what comes early.
    fn fewer_statements(&mut self) {
        let mut piece = self.best.steps.len().div_ceil(2).max(1);
        loop {
            let mut end = self.best.steps.len();
            while end > 0 && !self.out_of_calls {
                let start = end.saturating_sub(piece);
                let steps = &self.best.steps;
                let rest: Vec<_> = steps.iter().take(start).chain(steps.iter().skip(end)).cloned().collect();
                let candidate = settle(&self.best.header, &rest);
                self.accept(candidate);
                // Where more went than the piece, those behind it went with it.
                end = start.min(self.best.steps.len());
            }
            if piece == 1 {
                return;
            }
            piece = piece.div_ceil(2);
        }
    }
}
