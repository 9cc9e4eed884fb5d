//! A random run from its beginning to its end, and a recorded one once more.
//!
//! Read first: [`run`].
//!
//! **Invariant:** a statement is recorded before it is carried out, so that a panic leaves the scenario that led to it.

use super::checked_run::Done;
use super::differential::DifferentialRun;
use super::expected_result::ExpectedResult;
use super::finding::Finding;
use super::generate::{Generator, Planned};
use super::{CheckLevel, Conduct, Machines, Options, RunMode, Shared};
use crate::scenario::ast::{Errno, Scenario, Step};
use pmux_engine::Nanos;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What there was to do in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunStats {
    /// Statements that were carried out.
    pub steps: u64,
    /// Those of them that failed, as they had to or because something went wrong.
    pub refused: u64,
    /// How many counts were compared with those of a machine that shares nothing.
    pub compared: u64,
    /// How much time has passed on the machine.
    pub virtual_time: Nanos,
}

/// Something that a run has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedRun {
    /// The seed.
    pub seed: u64,
    /// What is wrong.
    pub finding: Finding,
    /// What was done up to there.
    pub scenario: Scenario,
    /// What was done beside the statements.
    pub conduct: Conduct,
    /// How many machines it was told to.
    pub machines: Machines,
    /// How far it had come.
    pub stats: RunStats,
}

/// Sees what was done so far, and the statement that is about to be carried out.
pub type Observer<'a> = dyn FnMut(&RunStats, &Step) + 'a;

/// Runs a random scenario. `observer` is called before each statement.
///
/// # Errors
/// The first thing that is not as it must be.
pub fn run(seed: u64, options: &Options, observer: &mut Observer<'_>) -> Result<RunStats, Box<FailedRun>> {
    let mut case = Case {
        scenario: Scenario::default(),
        conduct: if seed.is_multiple_of(2) { Conduct::Plain } else { Conduct::Rough },
        machines: if options.sharing == Some(Shared::Both) { Machines::Two } else { Machines::One },
        stats: RunStats::default(),
        options,
        observer,
    };
    let result = caught(|| case.run(seed));
    let Case { scenario, conduct, machines, stats, .. } = case;
    result.map(|()| stats).map_err(|finding| Box::new(FailedRun { seed, finding, scenario, conduct, machines, stats }))
}

/// Runs a recorded scenario once more. Whether a statement fails is looked at only where nothing had gone wrong.
///
/// # Errors
/// The first thing that is not as it must be.
pub fn replay(scenario: &Scenario, mode: RunMode) -> Result<(), Finding> {
    caught(|| {
        let mut checked_run = DifferentialRun::new(scenario, mode)?;
        for step in &scenario.steps {
            let expected = step.fails.map_or(ExpectedResult::Succeeds, |errno| ExpectedResult::Fails(vec![errno]));
            judge(step, &expected, checked_run.step(&step.statement)?)?;
        }
        checked_run.finish().map(|_| ())
    })
}

/// The same scenario with what really comes of its statements written to them; up to the first trouble.
pub(super) fn as_it_happens(scenario: &Scenario, mode: RunMode) -> Scenario {
    let mut happened = Scenario { header: scenario.header.clone(), steps: Vec::new() };
    // What is wrong with it is known, and must be in what comes out.
    let _ = caught(|| {
        let mut checked_run = DifferentialRun::new(scenario, mode)?;
        for step in &scenario.steps {
            happened.steps.push(step.clone());
            match checked_run.step(&step.statement)? {
                Done::Carried => set_fails(&mut happened, None),
                Done::Refused { errno, .. } => set_fails(&mut happened, errno_of(errno)),
                Done::Senseless(_) | Done::LeftOut => drop(happened.steps.pop()),
            }
        }
        Ok(())
    });
    happened
}

struct Case<'a, 'w> {
    scenario: Scenario,
    conduct: Conduct,
    machines: Machines,
    stats: RunStats,
    options: &'a Options,
    observer: &'a mut Observer<'w>,
}

impl Case<'_, '_> {
    fn run(&mut self, seed: u64) -> Result<(), Finding> {
        let mut generator = Generator::new(seed, self.options);
        self.scenario = generator.start().clone();
        let (conduct, machines, injected) = (self.conduct, self.machines, self.options.injected);
        let mode = RunMode { conduct, check_level: CheckLevel::Steps, machines, injected };
        let mut checked_run = DifferentialRun::new(&self.scenario, mode)?;
        for step in self.scenario.steps.clone() {
            checked_run.step(&step.statement)?;
        }
        for _ in 0..self.options.tasks.unwrap_or(0) {
            let planned = generator.new_task();
            self.one(&mut checked_run, &mut generator, planned)?;
        }
        for _ in 0..self.options.steps {
            let planned = generator.plan();
            self.one(&mut checked_run, &mut generator, planned)?;
        }
        self.stats.compared = checked_run.finish()?;
        Ok(())
    }

    fn one(
        &mut self,
        checked_run: &mut DifferentialRun,
        generator: &mut Generator,
        planned: Planned,
    ) -> Result<(), Finding> {
        self.scenario.steps.push(planned.step.clone());
        (self.observer)(&self.stats, &planned.step);
        let done = checked_run.step(&planned.step.statement)?;
        let refused = match &done {
            Done::Refused { errno, .. } => Some(*errno),
            Done::LeftOut => {
                self.scenario.steps.pop();
                return Ok(());
            }
            _ => None,
        };
        judge(&planned.step, &planned.expected, done)?;
        match refused {
            Some(errno) => {
                set_fails(&mut self.scenario, errno_of(errno));
                self.stats.refused += 1;
            }
            None => generator.settle(planned),
        }
        self.stats.steps += 1;
        self.stats.virtual_time = checked_run.world().now();
        self.stats.compared = checked_run.compared();
        checked_run.check_now_and_then(generator.size())
    }
}

/// Whether what came of a statement is as it must be.
fn judge(step: &Step, expected: &ExpectedResult, done: Done) -> Result<(), Finding> {
    let statement = || step.to_string();
    match done {
        Done::Senseless(why) => Err(Finding::Senseless(format!("{}: {why}", statement()))),
        Done::LeftOut => Ok(()),
        Done::Carried if expected.allows(None) => Ok(()),
        Done::Carried => match expected.foretold() {
            Some(expected) => Err(Finding::NotRefused { expected, statement: statement() }),
            None => Ok(()),
        },
        Done::Refused { errno, .. } if expected.allows(Some(errno)) => Ok(()),
        // The machine had been told to refuse something: then opening and switching may fail.
        Done::Refused { errno, excused: true, .. } if EXCUSED.iter().any(|name| is(errno, name)) => Ok(()),
        Done::Refused { errno, why, .. } => Err(Finding::Refused { errno, why, statement: statement() }),
    }
}

/// The errors with which machines refuse.
const EXCUSED: [&str; 3] = ["ENOMEM", "EBUSY", "EOPNOTSUPP"];

pub(super) fn is(errno: i32, name: &str) -> bool {
    Errno::from_name(name).is_some_and(|known| known.number() == errno)
}

fn set_fails(scenario: &mut Scenario, fails: Option<Errno>) {
    if let Some(step) = scenario.steps.last_mut().filter(|step| step.statement.can_fail()) {
        step.fails = fails;
    }
}

fn errno_of(errno: i32) -> Option<Errno> {
    Errno::all().find(|known| known.number() == errno)
}

fn caught(f: impl FnOnce() -> Result<(), Finding>) -> Result<(), Finding> {
    // What was under way is dropped with the panic; only the record is looked at afterwards.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| Err(Finding::of_panic(&*payload)))
}
