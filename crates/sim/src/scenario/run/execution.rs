//! One run, statement by statement.
//!
//! What it is: a machine, the names of the scenario, and what was not as expected so far.
//! Read first: [`Execution::statement`].
//!
//! **Invariant:** after an error nothing of the statement is left that has a name; what the machine did in it is done.

use super::super::ast::{Name, Scenario, SourceSpan, Statement, Step};
use super::super::eval::evaluate;
use super::super::trigger_watch::TriggerWatch;
use super::machine::{Unusable, description};
use super::naming::Names;
use super::observe::Facts;
use super::outcome::{Cause, Failure, Figures, MOST_FAILURES, Outcome, RunResult};
use super::{Checks, RunOptions};
use crate::check::Violation;
use crate::machine::{Event, Reach, Trace, World};
use crate::timeline::{StatementSpan, Timeline};
use pmux_engine::target::ContextKey;
use pmux_engine::{ControlError, OpenError, TaskId};
use std::collections::BTreeMap;

/// A run that is under way.
pub struct Execution {
    pub(super) world: World,
    pub(super) names: Names,
    pub(super) options: RunOptions,
    pub(super) figures: Figures,
    failures: Vec<Failure>,
    /// What was done when, for the timeline.
    log: Vec<StatementSpan>,
    /// What is worth saying of the statement that is being carried out.
    pub(super) note: Option<String>,
    /// The event sets by name, as the machine numbers them.
    pub(super) event_sets: BTreeMap<String, usize>,
    pub(super) trigger_watches: Vec<TriggerWatch>,
}

/// Why a statement was not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It failed, as it can on any machine.
    Errno {
        /// The error's number.
        errno: i32,
        /// Why.
        why: String,
    },
    /// It is an expectation that is not met. The sentence says what was expected and found.
    Unmet(String),
    /// It makes no sense here, or the simulator can't do it.
    Unusable(String),
}

impl Refused {
    pub(super) fn errno(errno: i32, why: impl Into<String>) -> Self {
        Self::Errno { errno, why: why.into() }
    }

    pub(super) fn of_open(error: OpenError) -> Self {
        Self::errno(error.errno(), error.to_string())
    }

    pub(super) fn of_control(error: ControlError) -> Self {
        Self::errno(error.errno(), error.to_string())
    }
}

impl Execution {
    /// A machine for a scenario, on which nothing has happened yet. Of the statements it is only looked at whether they make
    /// faults of doorbells.
    ///
    /// # Errors
    /// Why there can't be such a machine.
    pub fn new(scenario: &Scenario, options: &RunOptions) -> Result<Self, Unusable> {
        let description = description(scenario, options)?;
        let seed = options.seed.or(scenario.header.machine.seed).unwrap_or(0);
        let reach = description.reach;
        let sharing = scenario.header.machine.sharing.unwrap_or_default();
        let world = World::with_sharing(description, seed, sharing)
            .map_err(|error| Unusable::new(scenario.header.machine.place, error.to_string()))?;
        let figures = Figures { seed, ..Figures::default() };
        let mut execution = Self {
            world,
            names: Names::default(),
            options: RunOptions { reach: Some(reach), ..*options },
            figures,
            failures: Vec::new(),
            log: Vec::new(),
            note: None,
            event_sets: BTreeMap::new(),
            trigger_watches: Vec::new(),
        };
        execution.stay_put();
        Ok(execution)
    }

    /// Where callers reach their own CPU only, they also stay there: otherwise no doorbell would ring.
    pub(super) fn stay_put(&mut self) {
        if self.options.reach == Some(Reach::OwnCpu) {
            self.world.stay_put();
        }
    }

    /// The machine, to look at.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// The machine, to do what no statement says: to let time pass, to leave tasks on their CPUs, to plant a fault. Events are
    /// closed and tasks ended by statements only: their names would go on standing for them.
    pub const fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// The task that a name stands for, alive or not.
    #[must_use]
    pub fn task_id(&self, name: &Name) -> Option<TaskId> {
        self.names.task(name).ok()
    }

    /// The events that a name stands for: one, or one for each CPU; none where it is not open.
    #[must_use]
    pub fn events_of(&self, name: &Name) -> Vec<Event> {
        let record = self.names.open_number(name).ok().and_then(|number| self.names.records.get(number));
        record.map(|record| record.bound.events()).unwrap_or_default()
    }

    /// Carries out a statement as it stands in a scenario: it must succeed, or fail as it says; then it is checked what
    /// the options ask for.
    ///
    /// # Errors
    /// What was not as expected; it is kept for [`Execution::finish`], too.
    pub fn statement(&mut self, step: &Step) -> Result<(), Failure> {
        let from = self.world.now();
        let index = self.figures.statements;
        let cause = match (self.attempt(&step.statement), step.fails) {
            (Ok(()), None) => None,
            (Ok(()), Some(expected)) => Some(Cause::NotRefused { expected }),
            (Err(Refused::Errno { errno, .. }), Some(expected)) if errno == expected.number() => None,
            (Err(Refused::Errno { errno, why }), Some(expected)) => {
                Some(Cause::RefusedOtherwise { expected, errno, why })
            }
            (Err(Refused::Errno { errno, why }), None) => Some(Cause::Refused { errno, why }),
            (Err(Refused::Unmet(sentence)), _) => Some(Cause::Unmet(sentence)),
            (Err(Refused::Unusable(why)), _) => Some(Cause::Unusable(why)),
        };
        let is_expectation = matches!(step.statement, Statement::Expect(_));
        let cause = match cause {
            // An expectation has done nothing that could be checked.
            None if !is_expectation => self.check(self.options.checks).err(),
            cause => cause,
        };
        if self.options.timeline == Trace::On {
            self.log.push(StatementSpan {
                from,
                to: self.world.now(),
                text: step.to_string(),
                expectation: is_expectation,
                failure: cause.as_ref().map(ToString::to_string),
                note: self.note.take(),
                marks_by_then: self.world.marks_so_far(),
            });
        }
        let Some(cause) = cause else { return Ok(()) };
        let (place, at) = (step.place, self.world.now());
        let failure = Failure { place, step: Some(index), statement: step.to_string(), at, cause };
        self.keep(&failure);
        Err(failure)
    }

    fn keep(&mut self, failure: &Failure) {
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure.clone());
        }
    }

    /// Carries out a statement, whatever comes of it, and checks nothing.
    ///
    /// # Errors
    /// Why it was not carried out.
    pub fn attempt(&mut self, statement: &Statement) -> Result<(), Refused> {
        self.figures.statements += 1;
        self.note = None;
        self.carry_out(statement)?;
        if matches!(statement, Statement::Expect(_)) {
            return Ok(());
        }
        self.look_around()
    }

    fn carry_out(&mut self, statement: &Statement) -> Result<(), Refused> {
        match statement {
            Statement::Open(open) => self.open(open),
            Statement::Control { verb, targets } => targets.iter().try_for_each(|target| self.control(*verb, target)),
            Statement::Modify { event, to } => self.modify(event, *to),
            Statement::Take { event, samples } => self.take_samples(event, *samples),
            Statement::Set(set) => self.gather(set),
            Statement::Switch(switching) => self.switch_set(switching),
            Statement::Trigger(trigger) => {
                self.await_trigger(trigger);
                Ok(())
            }
            Statement::Expect(expectation) => evaluate(expectation, &mut Facts(self)).map_err(Refused::Unmet),
            Statement::Task { name, on } => self.task(name, *on),
            Statement::Run(run) => self.run(run),
            Statement::Migrate { task, to } => self.migrate(task, *to),
            Statement::Touch { task, pages } => self.touch(task, *pages),
            Statement::Access { task, address, kind, times } => self.access(task, *address, *kind, *times),
            Statement::Fork { parent, child, .. } => self.fork(parent, child),
            Statement::Exec { task, kind } => self.exec(task, *kind),
            Statement::Exit { task } => self.exit(task),
            Statement::Offline { cpu } => self.offline(*cpu),
            Statement::Online { cpu } => self.online(*cpu),
            Statement::Wait { span } => self.wait(*span),
            Statement::Fault(fault) => self.fault(*fault),
        }
    }

    /// Checks the machine now.
    ///
    /// # Errors
    /// The first thing that is not as it must be.
    pub fn check(&mut self, checks: Checks) -> Result<(), Cause> {
        let result = match checks {
            Checks::Nothing => return Ok(()),
            Checks::Steps => self.world.check_step(),
            Checks::Everything => self.world.check(),
        };
        result.map_err(|violation| self.cause_of(&violation))
    }

    /// A violation with the names of the scenario.
    fn cause_of(&self, violation: &Violation) -> Cause {
        let mut what = violation.what.clone();
        if let Some(event) = violation.event {
            what.push_str(&format!(", event {}", self.names.name_of_event(event)));
        }
        match violation.place {
            Some(ContextKey::Task(task)) => what.push_str(&format!(", task {}", self.names.name_of_task(task))),
            Some(ContextKey::Cpu(cpu)) => what.push_str(&format!(", events of cpu{cpu}")),
            None => {}
        }
        if let Some(cpu) = violation.cpu {
            what.push_str(&format!(", on cpu{cpu}"));
        }
        if let Some((pmu, slot)) = violation.slot {
            let name = self.world.description().pmus.get(usize::from(pmu.0)).map_or("?", |pmu| pmu.name.as_str());
            what.push_str(&format!(", counter {} of PMU {name}", slot.0));
        }
        if let Some((expected, found)) = violation.numbers {
            what.push_str(&format!("; expected {expected}, found {found}"));
        }
        Cause::Violation { checker: violation.checker, what }
    }

    /// Ends the run. Unless it has come to an end by a failure, or nothing is to be checked: lets the faults stop, sees
    /// that everything counts again, closes everything, and sees that nothing is left.
    #[must_use]
    pub fn finish(mut self) -> Outcome {
        let figures = Figures {
            lost: self.lost_so_far(),
            virtual_time: self.world.now(),
            refusals: self.world.refusals(),
            ..self.figures
        };
        let timeline = (self.options.timeline == Trace::On).then(|| self.timeline());
        let ended = self.failures.iter().any(Failure::ends_the_run);
        if !ended && self.options.checks != Checks::Nothing {
            let checked = match self.world.check_convergence() {
                Ok(()) => self.close_everything().map_err(|why| ("at the end, when everything is closed", why)),
                Err(why) => Err(("at the end, when the faults have stopped", why)),
            };
            if let Err((what, violation)) = checked {
                let (place, at, cause) = (SourceSpan::NOWHERE, self.world.now(), self.cause_of(&violation));
                self.keep(&Failure { place, step: None, statement: what.to_owned(), at, cause });
            }
        }
        Outcome { result: result(self.failures), figures, timeline }
    }

    fn close_everything(&mut self) -> Result<(), Violation> {
        self.world.dissolve_event_sets();
        (0..self.names.records.len()).for_each(|number| self.close(number));
        for task in self.world.living() {
            // It lives, so it can't be refused.
            let _ = self.world.exit(task);
        }
        self.world.check()
    }

    fn timeline(&self) -> Timeline {
        let events = (0..self.names.records.len()).map(|number| self.figures_of(number)).collect();
        let tasks = self.names.tasks().map(|task| (task, self.names.name_of_task(task))).collect();
        let event = |event| self.names.number_of(event);
        Timeline::new(&self.world, self.figures.seed, self.log.clone(), tasks, events, &event)
    }
}

fn result(failures: Vec<Failure>) -> RunResult {
    let unusable = failures.iter().find_map(|failure| match &failure.cause {
        Cause::Unusable(why) => Some(Unusable::new(failure.place, format!("{}: {why}", failure.statement))),
        _ => None,
    });
    match unusable {
        Some(unusable) => RunResult::Unusable(unusable),
        None if failures.is_empty() => RunResult::Passed,
        None => RunResult::Failed(failures),
    }
}
