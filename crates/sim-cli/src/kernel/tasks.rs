//! The tasks of a scenario.
//!
//! What it is: each task is a worker that does one thing after the other; the statement ends when all who take part have
//! answered.
//!
//! **Invariant:** a task that has exited stays here, so that its number is not another's while the scenario runs.

use super::plan::Plan;
use super::truth::{Act, ActKind};
use super::{StatementError, Stop, wakes};
use pmux::wait::{Token, Waiter, Wake};
use pmux::workers::{ChildKind, Order, Stage, WorkDone, Worker, WorkerError};
use pmux_sim::scenario::ast::ForkKind;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

pub(super) struct ScenarioTask {
    worker: Worker,
    /// The CPU that it runs on.
    pub(super) cpu: u32,
    pub(super) exited: bool,
    user: u32,
}

impl ScenarioTask {
    pub(super) fn tid(&self) -> i32 {
        self.worker.tid()
    }
}

pub(super) struct Tasks {
    stage: Stage,
    tasks: BTreeMap<String, ScenarioTask>,
    children: u32,
}

fn statement_error(task: &str, error: &WorkerError) -> StatementError {
    match error {
        WorkerError::Refused(errno) => StatementError::new(format!("task {task} can't do that: {errno}")),
        other => StatementError::new(format!("task {task}: {other}")),
    }
}

impl Tasks {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { stage: plan.stage, tasks: BTreeMap::new(), children: 0 }
    }

    pub(super) fn task(&self, name: &str) -> Result<&ScenarioTask, StatementError> {
        self.tasks.get(name).ok_or_else(|| StatementError::new(format!("there is no task {name}")))
    }

    fn task_mut(&mut self, name: &str) -> Result<&mut ScenarioTask, StatementError> {
        self.tasks.get_mut(name).ok_or_else(|| StatementError::new(format!("there is no task {name}")))
    }

    /// The tasks that live and run on a CPU.
    pub(super) fn on_cpu(&self, cpu: u32) -> Vec<String> {
        let there = |task: &ScenarioTask| !task.exited && task.cpu == cpu;
        self.tasks.iter().filter(|(_, task)| there(task)).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn has_exited(&self, name: &str) -> bool {
        self.tasks.get(name).is_some_and(|task| task.exited)
    }

    /// A process begins to exist, on a CPU.
    pub(super) fn begin(&mut self, name: &str, cpu: u32, waiter: &mut Waiter) -> Result<(), Stop> {
        let worker = Worker::start(&self.stage).map_err(|error| statement_error(name, &error))?;
        self.tasks.insert(name.to_owned(), ScenarioTask { worker, cpu, exited: false, user: 0 });
        let act = self.tell(&[name.to_owned()], Order::Go { cpu }, ActKind::Other, waiter)?;
        if let (Some(act), Ok(task)) = (act.first(), self.task_mut(name)) {
            task.user = act.work_done.user;
        }
        Ok(())
    }

    /// Tells tasks to do something, all at once, and waits until they have done it.
    pub(super) fn tell(
        &mut self,
        names: &[String],
        order: Order,
        kind: ActKind,
        waiter: &mut Waiter,
    ) -> Result<Vec<Act>, Stop> {
        for name in names {
            self.task_mut(name)?.worker.tell(order).map_err(|error| statement_error(name, &error))?;
        }
        self.gather(names, kind, waiter)
    }

    /// Tells a task to go on as another program.
    pub(super) fn exec(
        &mut self,
        name: &str,
        copy: Option<BorrowedFd<'_>>,
        waiter: &mut Waiter,
    ) -> Result<Vec<Act>, Stop> {
        let task = self.task_mut(name)?;
        let before = task.user;
        task.worker.tell_exec(copy).map_err(|error| statement_error(name, &error))?;
        let acts = self.gather(&[name.to_owned()], ActKind::Exec, waiter)?;
        let after = acts.first().map_or(before, |act| act.work_done.user);
        if copy.is_some() && after == before {
            let folder = std::env::temp_dir();
            let message = format!("a set-uid program gains nothing: {} does not allow it", folder.display());
            return Err(StatementError::new(message).into());
        }
        self.task_mut(name)?.user = after;
        Ok(acts)
    }

    /// Waits for the answers of tasks that were told something.
    fn gather(&mut self, names: &[String], kind: ActKind, waiter: &mut Waiter) -> Result<Vec<Act>, Stop> {
        let mut pending: Vec<Option<&String>> = names.iter().map(Some).collect();
        let mut acts = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            waiter.watch(self.task(name)?.worker.fd(), Token(index as u64));
        }
        let gathered = self.gather_all(&mut pending, kind, waiter, &mut acts);
        (0..names.len()).for_each(|index| waiter.forget(Token(index as u64)));
        gathered.map(|()| acts)
    }

    fn gather_all(
        &mut self,
        pending: &mut [Option<&String>],
        kind: ActKind,
        waiter: &mut Waiter,
        acts: &mut Vec<Act>,
    ) -> Result<(), Stop> {
        while pending.iter().any(Option::is_some) {
            for wake in wakes(waiter, None)? {
                let (Wake::Fd(Token(index)) | Wake::Hangup(Token(index))) = wake else { continue };
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                let Some(name) = pending.get_mut(index).and_then(Option::take) else { continue };
                waiter.forget(Token(index as u64));
                let task = self.task_mut(name)?;
                let work_done = task.worker.answer().map_err(|error| statement_error(name, &error))?;
                acts.push(Act { task: name.clone(), cpu: task.cpu, kind, work_done });
            }
        }
        Ok(())
    }

    /// Lets tasks go to a CPU, and stay there.
    pub(super) fn go(&mut self, names: &[String], cpu: u32, waiter: &mut Waiter) -> Result<Vec<Act>, Stop> {
        let acts = self.tell(names, Order::Go { cpu }, ActKind::Other, waiter)?;
        for name in names {
            self.task_mut(name)?.cpu = cpu;
        }
        Ok(acts)
    }

    pub(super) fn fork(&mut self, parent: &str, child: &str, kind: ForkKind) -> Result<Vec<Act>, StatementError> {
        let child_kind = match kind {
            ForkKind::Process => ChildKind::Process,
            ForkKind::Thread => ChildKind::Thread,
        };
        let stack = self.children;
        self.children += 1;
        let task = self.task_mut(parent)?;
        let (cpu, user) = (task.cpu, task.user);
        let (worker, born, work_done) =
            task.worker.fork(child_kind, stack).map_err(|error| statement_error(parent, &error))?;
        self.tasks.insert(child.to_owned(), ScenarioTask { worker, cpu, exited: false, user });
        let act = |task: &str, work_done: WorkDone| Act { task: task.to_owned(), cpu, kind: ActKind::Other, work_done };
        Ok(vec![act(parent, work_done), act(child, born)])
    }

    pub(super) fn exit(&mut self, name: &str) -> Result<Vec<Act>, StatementError> {
        let task = self.task_mut(name)?;
        let work_done = task.worker.exit().map_err(|error| statement_error(name, &error))?;
        task.exited = true;
        Ok(vec![Act { task: name.to_owned(), cpu: task.cpu, kind: ActKind::Other, work_done }])
    }
}
