//! Who runs where, and time.

use super::super::faults::InjectedFault;
use super::super::state::{QueueEnd, SimTask};
use super::super::time::{Attention, Stopped};
use super::{CpuError, TaskError, World};
use crate::machine::{Access, Kind};
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, Nanos, TaskId};

impl World {
    /// Lets a task come onto a CPU, or none; the task that is there leaves. A task that is on another CPU leaves that first.
    ///
    /// # Errors
    /// In this order: there is no such CPU, it is offline, no such task lives.
    pub fn place(&mut self, cpu: CpuId, next: Option<TaskId>) -> Result<(), TaskError> {
        self.known_cpu(cpu)?;
        let (before, elsewhere) = self.with(|state| {
            if !state.cpu(cpu).online {
                return Err(TaskError::from(CpuError::Offline(cpu)));
            }
            let mut on = None;
            if let Some(id) = next {
                let task = state.task_mut(id).ok_or(TaskError::NoSuchTask(id))?;
                task.home = cpu;
                on = task.on.filter(|&other| other != cpu);
            }
            Ok((state.cpu(cpu).current, on))
        })?;
        if let Some(other) = elsewhere {
            self.machine.switch(&self.engine, other, None);
        }
        self.machine.switch(&self.engine, cpu, next);
        [before, next].into_iter().flatten().map(ContextKey::Task).for_each(|place| self.touch_place(place));
        self.touch_place(ContextKey::Cpu(cpu));
        Ok(())
    }

    /// Lets time pass with every task where it is.
    pub fn pass(&mut self, span: Nanos) {
        let until = self.now().0.saturating_add(span.0);
        while self.machine.pass(&self.engine, until) == Stopped::Attention {
            self.attend();
        }
    }

    /// Lets time pass while no task runs.
    pub fn idle(&mut self, span: Nanos) {
        for cpu in self.busy() {
            // It is online, as a task runs there.
            let _ = self.place(cpu, None);
        }
        self.pass(span);
    }

    fn busy(&self) -> Vec<CpuId> {
        self.state(|state| {
            let busy = state.cpus.iter().enumerate().filter(|(_, cpu)| cpu.current.is_some());
            busy.map(|(cpu, _)| CpuId(cpu as u32)).collect()
        })
    }

    /// Lets tasks run, each for `span` of its own time, each on its own CPU of these; those that share a CPU take turns
    /// from tick to tick. It ends when the last one is done; then none of them is on a CPU.
    ///
    /// # Errors
    /// As [`World::place`]; then nothing has happened.
    pub fn run(&mut self, tasks: &[(TaskId, CpuId)], span: Nanos) -> Result<(), TaskError> {
        for &(task, cpu) in tasks {
            if !self.is_online(self.known_cpu(cpu)?) {
                return Err(CpuError::Offline(cpu).into());
            }
            if !self.lives(task) {
                return Err(TaskError::NoSuchTask(task));
            }
        }
        // Those who are on these CPUs have had their turns, and get none here.
        for &(task, cpu) in tasks {
            let elsewhere = self.state(|state| state.task(task).and_then(|task| task.on));
            for cpu in [Some(cpu), elsewhere].into_iter().flatten() {
                self.with(|state| state.clear_queue(cpu));
                self.place(cpu, None)?;
            }
        }
        for (index, &(task, cpu)) in tasks.iter().enumerate() {
            if tasks[..index].iter().any(|&(other, _)| other == task) {
                continue;
            }
            self.with(|state| {
                let end = state.run_time(task).saturating_add(span.0);
                if let Some(task) = state.task_mut(task) {
                    (task.turn_end, task.turn_over) = (Some(end), false);
                    task.home = cpu;
                }
            });
            match self.running_on(cpu) {
                None => self.place(cpu, Some(task))?,
                Some(_) => self.with(|state| state.queue_up(cpu, task, QueueEnd::Tail)),
            }
        }
        self.finish_turns(tasks);
        Ok(())
    }

    fn finish_turns(&mut self, tasks: &[(TaskId, CpuId)]) {
        let forever = u64::MAX;
        while tasks.iter().any(|&(task, _)| self.has_turn(task)) {
            if self.machine.pass(&self.engine, forever) == Stopped::There {
                break;
            }
            self.attend();
        }
        for cpu in self.busy() {
            self.with(|state| state.clear_queue(cpu));
            // It is online, as a task runs there.
            let _ = self.place(cpu, None);
        }
    }

    fn has_turn(&self, task: TaskId) -> bool {
        self.state(|state| state.task(task).is_some_and(|task| task.turn_end.is_some() || task.turn_over))
    }

    /// Sees to the tasks whose turns have ended, and to those who wait for one.
    fn attend(&mut self) {
        for attention in self.with(|state| std::mem::take(&mut state.attention)) {
            let (Attention::End(cpu) | Attention::Turn(cpu)) = attention;
            let Some(task) = self.running_on(cpu) else { continue };
            let was_over = |task: &mut SimTask| std::mem::take(&mut task.turn_over);
            if self.with(|state| state.task_mut(task).is_some_and(was_over)) {
                let _ = self.next_turn(cpu);
            } else if matches!(attention, Attention::Turn(_)) {
                self.with(|state| state.queue_up(cpu, task, QueueEnd::Tail));
                let _ = self.next_turn(cpu);
            }
        }
    }

    /// Lets the next one in the queue of a CPU come on, if there is one.
    fn next_turn(&mut self, cpu: CpuId) -> Result<(), TaskError> {
        let next = self.with(|state| state.next_in_queue(cpu));
        self.place(cpu, next.filter(|&next| self.lives(next)))
    }

    /// From now on, a task runs on this CPU; if it is on another one now, it moves at once, and the task that is there waits
    /// for its turn.
    ///
    /// # Errors
    /// As [`World::place`].
    pub fn migrate(&mut self, task: TaskId, to: CpuId) -> Result<(), TaskError> {
        if !self.is_online(self.known_cpu(to)?) {
            return Err(CpuError::Offline(to).into());
        }
        let on = self.state(|state| state.task(task).map(|task| task.on)).ok_or(TaskError::NoSuchTask(task))?;
        self.with(|state| {
            if let Some(task) = state.task_mut(task) {
                task.home = to;
            }
        });
        if on.is_none_or(|on| on == to) {
            return Ok(());
        }
        if let Some(other) = self.running_on(to) {
            self.with(|state| state.queue_up(to, other, QueueEnd::Head));
        }
        self.place(to, Some(task))
    }

    /// A task touches so many pages for the first time: a page fault each. No time passes; a task that is on no CPU comes
    /// onto its own for that moment.
    ///
    /// # Errors
    /// As [`World::place`].
    pub fn touch(&mut self, task: TaskId, pages: u64) -> Result<(), TaskError> {
        let pages = pages + u64::from(self.shares() && self.is_injected(InjectedFault::TouchMoreWhereShared));
        self.occur(task, Kind::PAGE_FAULTS, pages)?;
        self.occur(task, Kind::MINOR_FAULTS, pages)
    }

    /// Something happens to a task, so many times at once. No time passes; a task that is on no CPU comes onto its own for
    /// that moment.
    ///
    /// # Errors
    /// As [`World::place`].
    pub fn occur(&mut self, task: TaskId, kind: Kind, times: u64) -> Result<(), TaskError> {
        self.on_its_cpu(task, |world, cpu| {
            let mut left = times;
            while left > 0 {
                // Counters that wrap are read before they can wrap again.
                let now = left.min(world.state(|state| state.room_for(cpu, kind)));
                let full = world.with(|state| {
                    let full = state.room_for(cpu, kind) == now;
                    state.note_missed(cpu, Some(task));
                    state.happen(cpu, Some(task), kind, now);
                    state.plan(cpu);
                    if full {
                        state.cpu_mut(cpu).due = state.now;
                        state.due = state.now;
                    }
                    full
                });
                let at = world.now().0;
                if full && world.machine.pass(&world.engine, at) == Stopped::Attention {
                    world.attend();
                }
                left -= now;
            }
        })
    }

    /// A task accesses an address, so many times. No time passes; a task that is on no CPU comes onto its own for that moment.
    ///
    /// # Errors
    /// As [`World::place`].
    pub fn access(&mut self, task: TaskId, address: u64, access: Access, times: u64) -> Result<(), TaskError> {
        self.on_its_cpu(task, |world, cpu| {
            world.with(|state| state.see_access(cpu, address, access.bp_type(), times));
        })
    }

    fn on_its_cpu(&mut self, task: TaskId, f: impl FnOnce(&mut Self, CpuId)) -> Result<(), TaskError> {
        let (on, home) =
            self.state(|state| state.task(task).map(|task| (task.on, task.home))).ok_or(TaskError::NoSuchTask(task))?;
        self.touch_place(ContextKey::Task(task));
        if let Some(cpu) = on {
            f(self, cpu);
            return Ok(());
        }
        let before = self.running_on(home);
        self.place(home, Some(task))?;
        f(self, home);
        self.place(home, before.filter(|&before| self.lives(before)))
    }
}
