//! A random run from its beginning to its end, and a recorded one once more.
//!
//! Read first: [`run`].
//!
//! **Invariant:** a statement is recorded before it is carried out, so that a panic leaves the scenario that led to it.

use super::course::Done;
use super::generate::{Generator, Planned};
use super::outlook::Outlook;
use super::trouble::Trouble;
use super::twins::Courses;
use super::{Conduct, Machines, Manner, Options, Shared, Zeal};
use crate::scenario::ast::{Errno, Scenario, Step};
use pmux_engine::Nanos;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What there was to do in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
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
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// What is wrong.
    pub trouble: Trouble,
    /// What was done up to there.
    pub scenario: Scenario,
    /// What was done beside the statements.
    pub conduct: Conduct,
    /// How many machines it was told to.
    pub machines: Machines,
    /// How far it had come.
    pub tally: Tally,
}

/// Sees what was done so far, and the statement that is about to be carried out.
pub type Watch<'a> = dyn FnMut(&Tally, &Step) + 'a;

/// Runs a random scenario. `watch` is called before each statement.
///
/// # Errors
/// The first thing that is not as it must be.
pub fn run(seed: u64, options: &Options, watch: &mut Watch<'_>) -> Result<Tally, Box<Found>> {
    let mut story = Story {
        scenario: Scenario::default(),
        conduct: if seed.is_multiple_of(2) { Conduct::Plain } else { Conduct::Rough },
        machines: if options.sharing == Some(Shared::Both) { Machines::Two } else { Machines::One },
        tally: Tally::default(),
        options,
        watch,
    };
    let result = caught(|| story.tell(seed));
    let Story { scenario, conduct, machines, tally, .. } = story;
    result.map(|()| tally).map_err(|trouble| Box::new(Found { seed, trouble, scenario, conduct, machines, tally }))
}

/// Runs a recorded scenario once more. Whether a statement fails is looked at only where nothing had gone wrong.
///
/// # Errors
/// The first thing that is not as it must be.
pub fn replay(scenario: &Scenario, manner: Manner) -> Result<(), Trouble> {
    caught(|| {
        let mut course = Courses::new(scenario, manner)?;
        for step in &scenario.steps {
            judge(step, &as_recorded(step), course.step(&step.statement)?)?;
        }
        course.finish().map(|_| ())
    })
}

/// The same scenario with what really comes of its statements written to them; up to the first trouble.
pub(super) fn as_it_happens(scenario: &Scenario, manner: Manner) -> Scenario {
    let mut happened = Scenario { header: scenario.header.clone(), steps: Vec::new() };
    // What is wrong with it is known, and must be in what comes out.
    let _ = caught(|| {
        let mut course = Courses::new(scenario, manner)?;
        for step in &scenario.steps {
            happened.steps.push(step.clone());
            match course.step(&step.statement)? {
                Done::Carried => set_fails(&mut happened, None),
                Done::Refused { errno, .. } => set_fails(&mut happened, errno_of(errno)),
                Done::Senseless(_) | Done::LeftOut => drop(happened.steps.pop()),
            }
        }
        Ok(())
    });
    happened
}

struct Story<'a, 'w> {
    scenario: Scenario,
    conduct: Conduct,
    machines: Machines,
    tally: Tally,
    options: &'a Options,
    watch: &'a mut Watch<'w>,
}

impl Story<'_, '_> {
    fn tell(&mut self, seed: u64) -> Result<(), Trouble> {
        let mut generator = Generator::new(seed, self.options);
        self.scenario = generator.start().clone();
        let (conduct, machines, planted) = (self.conduct, self.machines, self.options.planted);
        let manner = Manner { conduct, zeal: Zeal::Steps, machines, planted };
        let mut course = Courses::new(&self.scenario, manner)?;
        for step in self.scenario.steps.clone() {
            course.step(&step.statement)?;
        }
        for _ in 0..self.options.tasks.unwrap_or(0) {
            let planned = generator.populate();
            self.one(&mut course, &mut generator, planned)?;
        }
        for _ in 0..self.options.steps {
            let planned = generator.plan();
            self.one(&mut course, &mut generator, planned)?;
        }
        self.tally.compared = course.finish()?;
        Ok(())
    }

    fn one(&mut self, course: &mut Courses, generator: &mut Generator, planned: Planned) -> Result<(), Trouble> {
        self.scenario.steps.push(planned.step.clone());
        (self.watch)(&self.tally, &planned.step);
        let done = course.step(&planned.step.statement)?;
        let refused = match &done {
            Done::Refused { errno, .. } => Some(*errno),
            Done::LeftOut => {
                self.scenario.steps.pop();
                return Ok(());
            }
            _ => None,
        };
        judge(&planned.step, &planned.outlook, done)?;
        match refused {
            Some(errno) => {
                set_fails(&mut self.scenario, errno_of(errno));
                self.tally.refused += 1;
            }
            None => generator.settle(planned),
        }
        self.tally.steps += 1;
        self.tally.virtual_time = course.world().now();
        self.tally.compared = course.compared();
        course.check_now_and_then(generator.size())
    }
}

/// Whether what came of a statement is as it must be.
fn judge(step: &Step, outlook: &Outlook, done: Done) -> Result<(), Trouble> {
    let statement = || step.to_string();
    match done {
        Done::Senseless(why) => Err(Trouble::Senseless(format!("{}: {why}", statement()))),
        Done::LeftOut => Ok(()),
        Done::Carried if outlook.allows(None) => Ok(()),
        Done::Carried => match outlook.foretold() {
            Some(expected) => Err(Trouble::NotRefused { expected, statement: statement() }),
            None => Ok(()),
        },
        Done::Refused { errno, .. } if outlook.allows(Some(errno)) => Ok(()),
        // The machine had been told to refuse something: then opening and switching may fail.
        Done::Refused { errno, excused: true, .. } if EXCUSED.iter().any(|name| is(errno, name)) => Ok(()),
        Done::Refused { errno, why, .. } => Err(Trouble::Refused { errno, why, statement: statement() }),
    }
}

/// The errors with which machines refuse.
const EXCUSED: [&str; 3] = ["ENOMEM", "EBUSY", "EOPNOTSUPP"];

pub(super) fn is(errno: i32, name: &str) -> bool {
    Errno::from_name(name).is_some_and(|known| known.number() == errno)
}

fn as_recorded(step: &Step) -> Outlook {
    step.fails.map_or(Outlook::Succeeds, |errno| Outlook::Fails(vec![errno]))
}

fn set_fails(scenario: &mut Scenario, fails: Option<Errno>) {
    if let Some(step) = scenario.steps.last_mut().filter(|step| step.statement.can_fail()) {
        step.fails = fails;
    }
}

fn errno_of(errno: i32) -> Option<Errno> {
    Errno::all().find(|known| known.number() == errno)
}

fn caught(f: impl FnOnce() -> Result<(), Trouble>) -> Result<(), Trouble> {
    // What was under way is dropped with the panic; only the record is looked at afterwards.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| Err(Trouble::of_panic(&*payload)))
}
