//! The tasks of a scenario.
//!
//! What it is: each task is a worker that does one thing after the other; the statement ends when all who take part have
//! answered.
//!
//! **Invariant:** a task that has exited stays here, so that its number is not another's while the scenario runs.

use super::plan::Plan;
use super::truth::{Act, ActKind};
use super::{Stop, Trouble, wakes};
use pmux::wait::{Token, Waiter, Wake};
use pmux::workers::{Deed, Kin, Order, Stage, Worker, WorkerError};
use pmux_sim::scenario::ast::ForkKind;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

/// One task.
pub(super) struct Actor {
    worker: Worker,
    /// The CPU that it runs on.
    pub(super) cpu: u32,
    /// Whether it has ended.
    pub(super) exited: bool,
    user: u32,
}

impl Actor {
    /// Its thread.
    pub(super) fn tid(&self) -> i32 {
        self.worker.tid()
    }
}

/// All tasks.
pub(super) struct Cast {
    stage: Stage,
    actors: BTreeMap<String, Actor>,
    children: u32,
}

fn trouble(task: &str, error: &WorkerError) -> Trouble {
    match error {
        WorkerError::Refused(errno) => Trouble::new(format!("task {task} can't do that: {errno}")),
        other => Trouble::new(format!("task {task}: {other}")),
    }
}

impl Cast {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { stage: plan.stage, actors: BTreeMap::new(), children: 0 }
    }

    /// A task by its name.
    pub(super) fn actor(&self, name: &str) -> Result<&Actor, Trouble> {
        self.actors.get(name).ok_or_else(|| Trouble::new(format!("there is no task {name}")))
    }

    fn actor_mut(&mut self, name: &str) -> Result<&mut Actor, Trouble> {
        self.actors.get_mut(name).ok_or_else(|| Trouble::new(format!("there is no task {name}")))
    }

    /// The tasks that live and run on a CPU.
    pub(super) fn on_cpu(&self, cpu: u32) -> Vec<String> {
        let there = |actor: &Actor| !actor.exited && actor.cpu == cpu;
        self.actors.iter().filter(|(_, actor)| there(actor)).map(|(name, _)| name.clone()).collect()
    }

    /// Whether a task has ended.
    pub(super) fn has_exited(&self, name: &str) -> bool {
        self.actors.get(name).is_some_and(|actor| actor.exited)
    }

    /// A process begins to exist, on a CPU.
    pub(super) fn begin(&mut self, name: &str, cpu: u32, waiter: &mut Waiter) -> Result<(), Stop> {
        let worker = Worker::start(&self.stage).map_err(|error| trouble(name, &error))?;
        self.actors.insert(name.to_owned(), Actor { worker, cpu, exited: false, user: 0 });
        let act = self.tell(&[name.to_owned()], Order::Go { cpu }, ActKind::Other, waiter)?;
        if let (Some(act), Ok(actor)) = (act.first(), self.actor_mut(name)) {
            actor.user = act.deed.user;
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
            self.actor_mut(name)?.worker.tell(order).map_err(|error| trouble(name, &error))?;
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
        let actor = self.actor_mut(name)?;
        let before = actor.user;
        actor.worker.tell_exec(copy).map_err(|error| trouble(name, &error))?;
        let acts = self.gather(&[name.to_owned()], ActKind::Exec, waiter)?;
        let after = acts.first().map_or(before, |act| act.deed.user);
        if copy.is_some() && after == before {
            let folder = std::env::temp_dir();
            let message = format!("a set-uid program gains nothing: {} does not allow it", folder.display());
            return Err(Trouble::new(message).into());
        }
        self.actor_mut(name)?.user = after;
        Ok(acts)
    }

    /// Waits for the answers of tasks that were told something.
    fn gather(&mut self, names: &[String], kind: ActKind, waiter: &mut Waiter) -> Result<Vec<Act>, Stop> {
        let mut pending: Vec<Option<&String>> = names.iter().map(Some).collect();
        let mut acts = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            waiter.watch(self.actor(name)?.worker.fd(), Token(index as u64));
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
                let actor = self.actor_mut(name)?;
                let deed = actor.worker.answer().map_err(|error| trouble(name, &error))?;
                acts.push(Act { task: name.clone(), cpu: actor.cpu, kind, deed });
            }
        }
        Ok(())
    }

    /// Lets tasks go to a CPU, and stay there.
    pub(super) fn go(&mut self, names: &[String], cpu: u32, waiter: &mut Waiter) -> Result<Vec<Act>, Stop> {
        let acts = self.tell(names, Order::Go { cpu }, ActKind::Other, waiter)?;
        for name in names {
            self.actor_mut(name)?.cpu = cpu;
        }
        Ok(acts)
    }

    /// A child begins to exist.
    pub(super) fn fork(&mut self, parent: &str, child: &str, kind: ForkKind) -> Result<Vec<Act>, Trouble> {
        let kin = match kind {
            ForkKind::Process => Kin::Process,
            ForkKind::Thread => Kin::Thread,
        };
        let stack = self.children;
        self.children += 1;
        let actor = self.actor_mut(parent)?;
        let (cpu, user) = (actor.cpu, actor.user);
        let (worker, born, deed) = actor.worker.fork(kin, stack).map_err(|error| trouble(parent, &error))?;
        self.actors.insert(child.to_owned(), Actor { worker, cpu, exited: false, user });
        let act = |task: &str, deed: Deed| Act { task: task.to_owned(), cpu, kind: ActKind::Other, deed };
        Ok(vec![act(parent, deed), act(child, born)])
    }

    /// A task ends.
    pub(super) fn exit(&mut self, name: &str) -> Result<Vec<Act>, Trouble> {
        let actor = self.actor_mut(name)?;
        let deed = actor.worker.exit().map_err(|error| trouble(name, &error))?;
        actor.exited = true;
        Ok(vec![Act { task: name.to_owned(), cpu: actor.cpu, kind: ActKind::Other, deed }])
    }
}
