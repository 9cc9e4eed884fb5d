//! Tasks, CPUs, time and faults.
//!
//! **Invariant:** between two statements no task is on a CPU, and all tasks do what is typical.

use super::super::ast::{AccessKind, Exec, Fault, Name, Rate, Run};
use super::super::names::canonical_event;
use super::execution::{Execution, Refused};
use crate::machine::{self, CpuError, Kind, Rates, TaskError};
use pmux_engine::pmu::BankError;
use pmux_engine::{CpuId, Nanos, TaskId};

/// The most ticks of a CPU's timer in one statement: more of them take minutes.
const MOST_TICKS: u64 = 50_000_000;
const END_OF_TIME: u64 = 1 << 62;

impl Execution {
    pub(super) fn task(&mut self, name: &Name, on: Option<CpuId>) -> Result<(), Refused> {
        let cpu = on.unwrap_or(CpuId(0));
        self.known_cpu(cpu)?;
        let task = self.world.task_on(cpu);
        self.names.new_task(name, task);
        Ok(())
    }

    pub(super) fn run(&mut self, run: &Run) -> Result<(), Refused> {
        let tasks = run.tasks.iter().map(|task| self.names.task(task)).collect::<Result<Vec<_>, _>>()?;
        self.check_span(run.span, tasks.len() as u64)?;
        let mut where_to = Vec::with_capacity(tasks.len());
        for &task in &tasks {
            let home = self.world.home(task).ok_or_else(|| self.gone(task))?;
            where_to.push((task, run.on.unwrap_or(home)));
        }
        if !run.rates.is_empty() {
            let rates = self.rates(run)?;
            tasks.iter().try_for_each(|&task| self.set_rates(task, &rates))?;
        }
        let result = self.world.run(&where_to, run.span).map_err(|error| self.of_task(&error));
        if !run.rates.is_empty() {
            tasks.iter().try_for_each(|&task| self.set_rates(task, &Rates::typical()))?;
        }
        result
    }

    /// What tasks do in a run.
    fn rates(&self, run: &Run) -> Result<Rates, Refused> {
        let said = |kind: Kind| run.rates.iter().any(|rate| kind_of(rate) == Some(kind));
        let mut rates = Rates::typical();
        for rate in &run.rates {
            let kind =
                kind_of(rate).ok_or_else(|| Refused::Unusable(format!("simulated tasks can't do `{}`", rate.event)))?;
            let per = rate.per.unwrap_or(run.span);
            let value = machine::Rate::new(rate.amount, per.0)
                .ok_or_else(|| Refused::Unusable(format!("`{}` in no time", rate.event)))?;
            rates = rates.with(kind, value);
            // A page fault without a disk is a minor fault, too.
            if kind == Kind::PAGE_FAULTS && !said(Kind::MINOR_FAULTS) {
                rates = rates.with(Kind::MINOR_FAULTS, value);
            }
        }
        Ok(rates)
    }

    fn set_rates(&mut self, task: TaskId, rates: &Rates) -> Result<(), Refused> {
        self.world.set_rates(task, rates).map_err(|error| self.of_task(&error))
    }

    pub(super) fn migrate(&mut self, task: &Name, to: CpuId) -> Result<(), Refused> {
        let task = self.names.task(task)?;
        self.world.migrate(task, to).map_err(|error| self.of_task(&error))
    }

    pub(super) fn touch(&mut self, task: &Name, pages: u32) -> Result<(), Refused> {
        let task = self.names.task(task)?;
        self.world.touch(task, pages.into()).map_err(|error| self.of_task(&error))
    }

    pub(super) fn access(&mut self, task: &Name, address: u64, kind: AccessKind, times: u32) -> Result<(), Refused> {
        let task = self.names.task(task)?;
        self.world.access(task, address, kind, times.into()).map_err(|error| self.of_task(&error))
    }

    /// A fork that an event was refused in is a fork all the same: the child is there, and is not counted.
    pub(super) fn fork(&mut self, parent: &Name, child: &Name) -> Result<(), Refused> {
        let parent = self.names.task(parent)?;
        let (task, inherited) = self.world.fork(parent).map_err(|error| self.of_task(&error))?;
        self.names.new_task(child, task);
        if let Err(error) = inherited {
            self.note = Some(format!("{child} did not inherit everything: {error}"));
        }
        Ok(())
    }

    pub(super) fn exec(&mut self, task: &Name, exec: Exec) -> Result<(), Refused> {
        let task = self.names.task(task)?;
        self.world.exec(task, exec).map_err(|error| self.of_task(&error))
    }

    pub(super) fn exit(&mut self, task: &Name) -> Result<(), Refused> {
        let task = self.names.task(task)?;
        self.world.exit(task).map_err(|error| self.of_task(&error))
    }

    pub(super) fn offline(&mut self, cpu: CpuId) -> Result<(), Refused> {
        self.known_cpu(cpu)?;
        self.world.offline(cpu).map_err(of_cpu)
    }

    pub(super) fn online(&mut self, cpu: CpuId) -> Result<(), Refused> {
        self.known_cpu(cpu)?;
        self.world.online(cpu).map_err(of_cpu)
    }

    pub(super) fn wait(&mut self, span: Nanos) -> Result<(), Refused> {
        self.check_span(span, 1)?;
        self.world.idle(span);
        Ok(())
    }

    pub(super) fn fault(&mut self, fault: Fault) -> Result<(), Refused> {
        if let Fault::Held(cpu, _) | Fault::DoorbellSpurious(cpu) | Fault::Storm(cpu, _) = fault {
            self.known_cpu(cpu)?;
        }
        if let Fault::Held(cpu, counter) = fault
            && self.world.pmu_with(counter).is_none()
        {
            return Err(Refused::Unusable(format!("cpu{cpu} has no counter {counter}")));
        }
        self.world.fault(fault);
        if fault == Fault::None {
            self.stay_put();
        }
        Ok(())
    }

    fn known_cpu(&self, cpu: CpuId) -> Result<(), Refused> {
        let cpus = self.world.description().cpus;
        if cpu.0 < cpus {
            return Ok(());
        }
        Err(Refused::Unusable(format!("there is no cpu{cpu}: the machine has {cpus} CPUs")))
    }

    /// Whether so much time can pass, `times` times.
    fn check_span(&self, span: Nanos, times: u64) -> Result<(), Refused> {
        let tick = self.world.description().tick.0;
        let all = span.0.checked_mul(times.max(1));
        let ticks = all.map_or(u64::MAX, |all| all / tick);
        if ticks > MOST_TICKS {
            let why =
                format!("this takes {ticks} ticks of the machine's timer, and {MOST_TICKS} is the most: say `tick=`");
            return Err(Refused::Unusable(why));
        }
        match all.and_then(|all| self.world.now().0.checked_add(all)) {
            Some(end) if end < END_OF_TIME => Ok(()),
            _ => Err(Refused::Unusable("the run would go on for more than a hundred years".into())),
        }
    }

    fn gone(&self, task: TaskId) -> Refused {
        let name = self.names.name_of_task(task);
        Refused::errno(BankError::NoSuchTask.errno(), format!("task {name} has exited"))
    }

    fn of_task(&self, error: &TaskError) -> Refused {
        match error {
            TaskError::Cpu(error) => of_cpu(*error),
            TaskError::NoSuchTask(task) => self.gone(*task),
            TaskError::TooFast(_) => Refused::Unusable(error.to_string()),
        }
    }
}

/// What a kernel says of a CPU: busy where it is the last one, invalid where there is nothing to do.
fn of_cpu(error: CpuError) -> Refused {
    let errno = match error {
        CpuError::Last(_) => BankError::Busy,
        CpuError::Online(_) => BankError::Invalid,
        CpuError::NoSuchCpu(_) | CpuError::Offline(_) => BankError::NoSuchCpu,
    };
    Refused::errno(errno.errno(), error.to_string())
}

fn kind_of(rate: &Rate) -> Option<Kind> {
    let kind = canonical_event(&rate.event).and_then(Kind::by_name).or_else(|| Kind::by_name(&rate.event))?;
    (!kind.is_clock()).then_some(kind)
}
