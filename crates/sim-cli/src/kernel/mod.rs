//! Scenarios on this kernel.
//!
//! What it is: the tasks of a scenario are real processes and threads (`tasks`), its events are opened through the library
//! (`opened`), its statements are carried out one after the other (`steps`), and what the tasks did is written down beside
//! (`truth`), so that it can be compared with what was counted (`facts`).
//! Read first: [`Kernel::run`], then `steps`.
//!
//! **Invariant:** whatever a scenario has started, opened or switched off is ended, closed and switched on again when
//! [`Kernel::run`] returns, also after a failure or a signal.

mod addresses;
mod event_sets;
mod facts;
mod hotplug;
mod needs;
mod opened;
mod plan;
mod setuid;
mod steps;
mod tasks;
mod truth;

use super::outcome::{Failure, Outcome, Ran};
use hotplug::Switches;
use opened::Opened;
use plan::Plan;
use pmux::trigger::EventSets;
use pmux::wait::{Waiter, Wake};
use pmux::{BackendChoice, Session};
use pmux_sim::scenario::ast::{Scenario, Step, duration_text};
use pmux_sim::scenario::eval::evaluate;
use pmux_sim::scenario::trigger_watch::TriggerWatch;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use tasks::Tasks;

pub(super) struct Kernel {
    waiter: Waiter,
}

/// Why a scenario does not go on.
enum Stop {
    Error(StatementError),
    Signal(i32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct StatementError {
    /// The error's number, where it has one that a scenario can expect.
    errno: Option<i32>,
    /// What was wrong, in a sentence.
    message: String,
}

impl StatementError {
    fn new(message: impl Into<String>) -> Self {
        Self { errno: None, message: message.into() }
    }
}

impl From<StatementError> for Stop {
    fn from(statement_error: StatementError) -> Self {
        Self::Error(statement_error)
    }
}

impl From<pmux::Error> for StatementError {
    fn from(error: pmux::Error) -> Self {
        let errno = match &error {
            pmux::Error::Refused(refusals) => refusals.first().and_then(|refusal| refusal.errno),
            pmux::Error::Control(error) => Some(error.errno()),
            pmux::Error::Read(error) => Some(error.errno()),
            pmux::Error::Modify(error) => Some(error.errno()),
            _ => None,
        };
        Self { errno, message: error.to_string() }
    }
}

impl From<pmux::Error> for Stop {
    fn from(error: pmux::Error) -> Self {
        Self::Error(error.into())
    }
}

impl Kernel {
    /// Makes ready to be stopped.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn new() -> Result<Self, String> {
        let waiter = Waiter::with_signals().map_err(|errno| format!("signals can't be received: {errno}"))?;
        Ok(Self { waiter })
    }

    /// Runs a scenario that is not for the simulator only, and is without problems.
    pub(super) fn run(&mut self, file: &str, scenario: &Scenario) -> Ran {
        let sharing = scenario.header.machine.sharing.unwrap_or_default();
        let session = match Session::with_backend_and_sharing(BackendChoice::Kernel, sharing) {
            Ok(session) => session,
            Err(pmux::Error::Refused(_)) => return Ran::new(file.to_owned(), needs::no_events()),
            Err(error) => return Ran::new(file.to_owned(), Outcome::Broken(format!("{file}: {error}\n"))),
        };
        let plan = Plan::new(scenario);
        if let Some(lack) = needs::lack(scenario, &session, &plan) {
            return Ran::new(file.to_owned(), Outcome::Skipped(lack));
        }
        let switches = match Switches::take(scenario, &mut self.waiter) {
            Ok(switches) => switches,
            Err(Stop::Signal(signal)) => return Ran::new(file.to_owned(), Outcome::Interrupted(signal)),
            Err(Stop::Error(statement_error)) => {
                return Ran::new(file.to_owned(), Outcome::Broken(format!("{file}: {}\n", statement_error.message)));
            }
        };
        let mut run = Run {
            tasks: Tasks::new(&plan),
            opened: Opened::default(),
            event_sets: EventSets::new(&session),
            trigger_watches: Vec::new(),
            session,
            plan,
            switches,
            waiter: &mut self.waiter,
            started: Instant::now(),
            timeline: String::new(),
        };
        let outcome = run.all(scenario);
        let timeline = std::mem::take(&mut run.timeline);
        Ran { timeline: Some(timeline), ..Ran::new(file.to_owned(), outcome) }
    }
}

/// One scenario as it runs. What is dropped first stands first: events, then tasks, then CPUs that are switched on again.
struct Run<'a> {
    event_sets: EventSets,
    trigger_watches: Vec<TriggerWatch>,
    opened: Opened,
    tasks: Tasks,
    switches: Switches,
    session: Session,
    plan: Plan,
    waiter: &'a mut Waiter,
    started: Instant,
    timeline: String,
}

impl Run<'_> {
    fn all(&mut self, scenario: &Scenario) -> Outcome {
        let mut failures = Vec::new();
        for step in &scenario.steps {
            let message = match self.step(step) {
                Ok(None) => continue,
                // What is not as expected may be so at several places.
                Ok(Some(unmet)) => {
                    failures.push(failure(step, unmet));
                    continue;
                }
                Err(Stop::Signal(signal)) => return Outcome::Interrupted(signal),
                Err(Stop::Error(statement_error)) => statement_error.message,
            };
            failures.push(failure(step, message));
            break;
        }
        self.counts();
        if failures.is_empty() { Outcome::Passed } else { Outcome::Failed(failures) }
    }

    /// Takes a step. Answers what is not as expected.
    fn step(&mut self, step: &Step) -> Result<Option<String>, Stop> {
        use pmux_sim::scenario::ast::Statement;
        let began = self.started.elapsed();
        let unmet = match &step.statement {
            Statement::Expect(expectation) => evaluate(expectation, &mut self.facts()).err(),
            statement => match (self.carry_out(statement), step.fails) {
                (Ok(()), None) => None,
                (Ok(()), Some(errno)) => {
                    return Err(StatementError::new(format!("expected {errno}, but it succeeded")).into());
                }
                (Err(Stop::Error(statement_error)), Some(errno)) if statement_error.errno == Some(errno.number()) => {
                    None
                }
                (Err(Stop::Error(statement_error)), Some(errno)) => {
                    let message = format!("expected {errno}, but it failed otherwise: {}", statement_error.message);
                    return Err(StatementError::new(message).into());
                }
                (Err(stop), _) => return Err(stop),
            },
        };
        let sign = if unmet.is_some() { "  <- not so" } else { "" };
        // Writing to a text does not fail.
        let _ = writeln!(self.timeline, "{:>12.3} ms  {}{sign}", began.as_secs_f64() * 1e3, step);
        Ok(unmet)
    }

    /// Adds what is counted in the end to the timeline.
    fn counts(&mut self) {
        let names = self.opened.names();
        let mut facts = self.facts();
        let mut lines = String::new();
        for name in names {
            use pmux_sim::scenario::ast::{Name, Part, Subject};
            use pmux_sim::scenario::eval::Observe;
            let subject = Subject { event: Name::new(name.as_str()), part: Part::Whole };
            let line = match facts.count(&subject) {
                Ok(count) => format!(
                    "{:>15}  enabled {}, running {}",
                    count.value,
                    duration_text(count.enabled),
                    duration_text(count.running)
                ),
                Err(why) => why,
            };
            let _ = writeln!(lines, "{name:>15}  {line}");
        }
        self.timeline.push_str(&lines);
    }

    fn wait(&mut self, span: Duration) -> Result<(), Stop> {
        let until = Instant::now() + span;
        loop {
            for wake in wakes(self.waiter, Some(until))? {
                if wake == Wake::Deadline {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits, and gives up on a signal.
fn wakes(waiter: &mut Waiter, until: Option<Instant>) -> Result<Vec<Wake>, Stop> {
    let wakes = waiter.wait(until).map_err(|errno| StatementError::new(format!("waiting failed: {errno}")))?;
    match wakes.iter().find_map(|wake| if let Wake::Signal(signal) = wake { Some(*signal) } else { None }) {
        Some(signal) => Err(Stop::Signal(signal)),
        None => Ok(wakes),
    }
}

fn failure(step: &Step, message: String) -> Failure {
    Failure { place: step.place, statement: step.to_string(), message }
}
