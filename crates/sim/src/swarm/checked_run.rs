//! A run under way.
//!
//! What it is: an [`Execution`], with the checks after each statement and at the end. Both those who make statements up and
//! those who try a recorded scenario again go this way, so that what is tried again is what was found.
//! Read first: [`CheckedRun::step`].
//!
//! **Invariant:** what is done beside the statements follows from the statements alone.

use super::shape::MOST_PER_NS;
use super::{CheckLevel, Conduct, Finding, RunMode};
use crate::check::{Checker, Violation};
use crate::machine::{Description, Event, Rates, World};
use crate::scenario::ast::{Name, Scenario, Statement};
use crate::scenario::run::{Checks, Execution, Refused, RunOptions};
use pmux_engine::Nanos;
use pmux_engine::pmu::OverflowBy;

pub(super) struct CheckedRun {
    execution: Execution,
    mode: RunMode,
    since_full_check: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Done {
    Carried,
    Refused {
        errno: i32,
        why: String,
        /// Whether the machine had been told to refuse something.
        excused: bool,
    },
    /// It makes no sense where it stands.
    Senseless(String),
    /// It was left out: the machine's books would not follow it.
    LeftOut,
}

/// What was checked just now, beside what a step can have broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Checked {
    Nothing,
    Everything,
}

/// Everything is checked after so many statements, and one for each task, CPU and group: what it costs a statement is the
/// same however many there are.
const BETWEEN_FULL_CHECKS: u64 = 32;

/// Between interrupts of a busy counter at least, so that letting each group have its turn at last is not all interrupts.
const BETWEEN_INTERRUPTS: Nanos = Nanos(10_000);

/// Whether counters are so narrow that they interrupt again and again within one tick.
fn interrupts_often(machine: &Description) -> bool {
    machine.pmus.iter().filter(|pmu| pmu.overflow != OverflowBy::Poll).any(|pmu| {
        pmu.capacity().is_some_and(|capacity| capacity / 2 < MOST_PER_NS.saturating_mul(BETWEEN_INTERRUPTS.0))
    })
}

impl CheckedRun {
    /// A machine for a scenario, on which nothing has happened yet but the first statements that it needs.
    pub(super) fn new(start: &Scenario, mode: RunMode) -> Result<Self, Finding> {
        let options = RunOptions { checks: Checks::Nothing, ..RunOptions::default() };
        let mut execution =
            Execution::new(start, &options).map_err(|unusable| Finding::Senseless(unusable.to_string()))?;
        execution.world_mut().inject(mode.injected);
        Ok(Self { execution, mode, since_full_check: 0 })
    }

    pub(super) fn world(&self) -> &World {
        self.execution.world()
    }

    /// The events that a name stands for, as far as it is open.
    pub(super) fn events_of(&self, name: &Name) -> Vec<Event> {
        self.execution.events_of(name)
    }

    /// Carries out a statement and checks what it can have broken, or everything.
    ///
    /// # Errors
    /// What is not as it must be.
    pub(super) fn step(&mut self, statement: &Statement) -> Result<Done, Finding> {
        let done = self.carry_out(statement)?;
        if self.mode.conduct == Conduct::Rough {
            self.be_rough(statement);
        }
        self.execution.world_mut().check_step()?;
        if self.mode.check_level == CheckLevel::Everything {
            self.check()?;
        }
        Ok(done)
    }

    /// Checks everything, if that has not been done for long.
    ///
    /// # Errors
    /// What is not as it must be.
    pub(super) fn check_now_and_then(&mut self, size: u64) -> Result<Checked, Finding> {
        self.since_full_check += 1;
        if self.since_full_check <= BETWEEN_FULL_CHECKS + size {
            return Ok(Checked::Nothing);
        }
        self.since_full_check = 0;
        self.check().map(|()| Checked::Everything)
    }

    fn check(&mut self) -> Result<(), Finding> {
        Ok(self.execution.world_mut().check()?)
    }

    fn carry_out(&mut self, statement: &Statement) -> Result<Done, Finding> {
        if let (Statement::Wait { span }, Conduct::Rough) = (statement, self.mode.conduct) {
            // A task that has stayed on its CPU goes on there.
            self.execution.world_mut().pass(*span);
            return Ok(Done::Carried);
        }
        if let (Statement::Migrate { to, .. }, Conduct::Rough) = (statement, self.mode.conduct) {
            // A task that has stayed there makes room, and waits for no turn: none are taken here. A CPU that is offline is
            // the statement's affair.
            let _ = self.execution.world_mut().place(*to, None);
        }
        if !self.execution.can_follow(statement) {
            return Ok(Done::LeftOut);
        }
        match self.execution.attempt(statement) {
            Ok(()) => Ok(Done::Carried),
            Err(Refused::Errno { errno, why }) => {
                Ok(Done::Refused { errno, why, excused: !self.execution.world().is_quiet() })
            }
            Err(Refused::Unmet(sentence)) => {
                let now = self.world().now();
                Err(Finding::Violation(Violation::new(Checker::Counts, now, sentence)))
            }
            Err(Refused::Unusable(why)) => Ok(Done::Senseless(why)),
        }
    }

    /// What happens beside the statements: tasks that ran stay on their CPUs, so that what follows is done to tasks that run;
    /// and the client that has opened or switched events reads them, from where callers are.
    fn be_rough(&mut self, statement: &Statement) {
        match statement {
            Statement::Run(run) => {
                for task in run.tasks.iter().filter_map(|task| self.execution.task_id(task)).collect::<Vec<_>>() {
                    let world = self.execution.world_mut();
                    if let Some(home) = world.home(task) {
                        // Its CPU is there: it has just run on it.
                        let _ = world.place(home, Some(task));
                    }
                }
            }
            Statement::Open(open) => open.events.iter().for_each(|new| self.read(&new.name)),
            Statement::Modify { event, .. } => self.read(event),
            Statement::Control { targets, .. } => targets.iter().for_each(|target| self.read(target.name())),
            _ => {}
        }
    }

    /// Reads what a name stands for, as far as it is open.
    fn read(&mut self, name: &Name) {
        for event in self.execution.events_of(name) {
            // One in error can't be read; what is wrong with a count, the checks find.
            let _ = self.execution.world().read(event);
        }
    }

    /// Lets the faults stop, sees that everything counts again, closes everything, and sees that nothing is left.
    ///
    /// # Errors
    /// What is not as it must be.
    pub(super) fn finish(mut self) -> Result<(), Finding> {
        let world = self.execution.world_mut();
        world.check()?;
        if interrupts_often(world.description()) {
            for task in world.living() {
                // It lives, and nothing wraps at these rates.
                let _ = world.set_rates(task, &Rates::idle());
            }
        }
        world.check_convergence()?;
        let open: Vec<_> = world.open_events().collect();
        for event in open {
            match world.set_of(event) {
                Some((set, _)) => world.close_set(set),
                None => world.close(event),
            }
        }
        world.check()?;
        for task in world.living() {
            // It lives, so it can't be refused.
            let _ = world.exit(task);
        }
        Ok(world.check()?)
    }
}
