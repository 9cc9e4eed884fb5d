//! Carrying out the statements of a scenario.
//!
//! **Invariant:** when a statement is over, every task waits for the next one, and what it did is written down.

use super::opened::{Entry, Holding};
use super::truth::ActKind;
use super::{Run, StatementError, Stop, setuid, wakes};
use pmux::event::Access;
use pmux::exact::{AtExec, ExactGroup, ExactTarget, Exclusivity, Exec, GroupMode, Priority};
use pmux::workers::{Order, Touching};
use pmux::{Attribution, Event, Inherit};
use pmux_sim::scenario::ast::{
    AccessKind, Breakpoint, ControlOp, ControlTarget, Event as AstEvent, Flag, Name, Open, OpenForm, Rate,
    Run as Running, Statement, Target, Watch,
};
use pmux_sim::scenario::canonical_event;
use std::os::fd::AsFd as _;
use std::time::Duration;

impl Run<'_> {
    /// Carries out a statement that is no expectation.
    pub(super) fn carry_out(&mut self, statement: &Statement) -> Result<(), Stop> {
        match statement {
            Statement::Task { name, on } => self.tasks.begin(name.as_str(), on.map_or(0, |cpu| cpu.0), self.waiter)?,
            Statement::Open(open) => self.open(open)?,
            Statement::Run(run) => self.run(run)?,
            Statement::Migrate { task, to } => {
                let acts = self.tasks.go(std::slice::from_ref(&task.text), to.0, self.waiter)?;
                self.opened.happened(&acts)?;
            }
            Statement::Touch { task, pages } => {
                self.tell(task, Order::Touch { pages: u64::from(*pages) }, ActKind::Other)?;
            }
            Statement::Access { task, address, kind, times } => self.access(task, *address, *kind, *times)?,
            Statement::Fork { parent, child, kind } => {
                // A child counts from its first moment.
                self.opened.inherit(parent.as_str(), child.as_str());
                let acts = self.tasks.fork(parent.as_str(), child.as_str(), *kind)?;
                self.opened.happened(&acts)?;
            }
            Statement::Exec { task, kind } => self.exec(task, *kind)?,
            Statement::Exit { task } => {
                let acts = self.tasks.exit(task.as_str())?;
                self.opened.happened(&acts)?;
                self.session.task_exited(self.tasks.task(task.as_str())?.tid());
            }
            Statement::Control { verb, targets } => {
                targets.iter().try_for_each(|target| self.control(*verb, target))?;
            }
            Statement::Modify { event, to } => self.modify(event.as_str(), *to)?,
            Statement::Set(set) => self.gather(set)?,
            Statement::Switch(switching) => self.switch_set(switching)?,
            Statement::Trigger(trigger) => self.await_trigger(trigger),
            Statement::Offline { cpu } => self.offline(cpu.0)?,
            Statement::Online { cpu } => self.online(cpu.0)?,
            Statement::Wait { span } => self.wait(Duration::from_nanos(span.0))?,
            Statement::Take { .. } => {
                return Err(StatementError::new("rings are read on the simulator only".to_owned()).into());
            }
            Statement::Fault(fault) => {
                return Err(StatementError::new(format!("`fault {fault}` can be made on the simulator only")).into());
            }
            Statement::Expect(_) => {}
        }
        self.look_around()?;
        self.opened.set_clocks(pmux::workers::monotonic_ns())?;
        Ok(())
    }

    fn tell(&mut self, task: &Name, order: Order, kind: ActKind) -> Result<(), Stop> {
        let acts = self.tasks.tell(std::slice::from_ref(&task.text), order, kind, self.waiter)?;
        Ok(self.opened.happened(&acts)?)
    }

    fn run(&mut self, run: &Running) -> Result<(), Stop> {
        let names: Vec<String> = run.tasks.iter().map(|task| task.text.clone()).collect();
        if let Some(cpu) = run.on {
            let acts = self.tasks.go(&names, cpu.0, self.waiter)?;
            self.opened.happened(&acts)?;
        }
        let pages = run.rates.iter().map(|rate| faults(rate, run.span.0)).sum();
        let order = Order::Run { cpu_ns: run.span.0, pages };
        let acts = self.tasks.tell(&names, order, ActKind::Other, self.waiter)?;
        Ok(self.opened.happened(&acts)?)
    }

    fn access(&mut self, task: &Name, address: u64, kind: AccessKind, times: u32) -> Result<(), Stop> {
        let offset = self.plan.addresses.offset(address);
        let offset = offset.ok_or_else(|| StatementError::new(format!("address {address:#x} has no place")))?;
        let how = match kind {
            AccessKind::Read => Touching::Read,
            AccessKind::Write => Touching::Write,
            AccessKind::Execute => Touching::Execute,
        };
        self.tell(task, Order::Access { offset, how, times }, ActKind::Access { address, kind })
    }

    fn exec(&mut self, task: &Name, kind: Exec) -> Result<(), Stop> {
        let tid = self.tasks.task(task.as_str())?.tid();
        match kind {
            Exec::Plain => {
                let acts = self.tasks.exec(task.as_str(), None, self.waiter)?;
                self.session.task_executed(tid, Exec::Plain);
                // Those that the exec has started counted the beginning of the new program.
                self.opened.happened(&acts)?;
            }
            Exec::ChangesRights => {
                let copy = setuid::copy()?;
                self.tasks.exec(task.as_str(), Some(copy.as_fd()), self.waiter)?;
                self.session.task_executed(tid, Exec::ChangesRights);
                self.opened.disown(task.as_str());
            }
        }
        Ok(())
    }

    fn online(&mut self, cpu: u32) -> Result<(), Stop> {
        self.session.update_cpus();
        if self.session.online().contains(cpu) {
            return Err(nothing_to_switch(EINVAL, format!("CPU {cpu} is online already")).into());
        }
        self.switches.on(cpu)?;
        self.session.update_cpus();
        Ok(())
    }

    fn offline(&mut self, cpu: u32) -> Result<(), Stop> {
        self.session.update_cpus();
        if !self.session.online().contains(cpu) {
            return Err(nothing_to_switch(ENODEV, format!("CPU {cpu} is offline already")).into());
        }
        let stays = self.session.online().iter().find(|&other| other != cpu).unwrap_or_default();
        let tasks = self.tasks.on_cpu(cpu);
        if !tasks.is_empty() {
            let acts = self.tasks.go(&tasks, stays, self.waiter)?;
            self.opened.happened(&acts)?;
        }
        let switched = self.switches.off(cpu);
        self.session.update_cpus();
        Ok(switched?)
    }

    fn open(&mut self, open: &Open) -> Result<(), Stop> {
        // A signal that has come meanwhile is seen before more is opened.
        wakes(self.waiter, Some(std::time::Instant::now()))?;
        match open.form {
            OpenForm::Group => self.open_group(open, 0..open.events.len()),
            OpenForm::Singles => (0..open.events.len()).try_for_each(|at| self.open_group(open, at..at + 1)),
        }
        .map_err(Stop::from)
    }

    /// Opens some of the events of a statement as one group.
    fn open_group(&mut self, open: &Open, which: std::ops::Range<usize>) -> Result<(), StatementError> {
        let new = open.events.get(which).unwrap_or_default();
        let events: Vec<Event> = new.iter().map(|new| self.event(&new.event)).collect::<Result<_, _>>()?;
        let mode = self.mode(open, new.iter().map(|new| new.name.as_str()));
        let holding = self.hold(open, &events, mode)?;
        start(&holding, open.flags.contains(&Flag::Disabled))?;
        let holding = self.opened.hold(holding);
        for (index, new) in new.iter().enumerate() {
            let entry = Entry::new(holding, index, &new.event, &open.target, &open.flags);
            self.opened.name(new.name.as_str(), entry);
        }
        Ok(())
    }

    fn hold(&self, open: &Open, events: &[Event], mode: GroupMode) -> Result<Holding, StatementError> {
        let tid = |task: &Name| self.tasks.task(task.as_str()).map(super::tasks::ScenarioTask::tid);
        let group = |place| self.session.open_exactly(events, place, mode);
        Ok(match &open.target {
            Target::Task(task) => Holding::Task(Box::new(group(ExactTarget::Task(tid(task)?))?)),
            Target::TaskOnCpu(task, cpu) => Holding::Task(Box::new(group(ExactTarget::TaskOnCpu(tid(task)?, cpu.0))?)),
            Target::Cpus(cpus) => {
                let on = |cpu: pmux::CpuId| Ok((cpu.0, group(ExactTarget::Cpu(cpu.0))?));
                Holding::Cpus(cpus.iter().map(on).collect::<Result<_, StatementError>>()?)
            }
            Target::SystemWide(cpus) => {
                let cpus: Option<Vec<u32>> = cpus.as_ref().map(|cpus| cpus.iter().map(|cpu| cpu.0).collect());
                Holding::Set(self.session.open_set_exactly(events, cpus.as_deref(), mode)?)
            }
        })
    }

    fn mode<'n>(&self, open: &Open, mut names: impl Iterator<Item = &'n str>) -> GroupMode {
        let on_task = matches!(open.target, Target::Task(_) | Target::TaskOnCpu(..));
        let inherits = open.flags.contains(&Flag::Inherit);
        let attributed = inherits && on_task && names.any(|name| self.plan.is_attributed(name));
        GroupMode {
            inherit: if inherits { Inherit::Children } else { Inherit::None },
            attribution: if attributed { Attribution::EachProcess } else { Attribution::Totals },
            priority: if open.flags.contains(&Flag::Pinned) { Priority::Pinned } else { Priority::Flexible },
            exclusivity: if open.flags.contains(&Flag::Exclusive) { Exclusivity::Exclusive } else { Exclusivity::Any },
            at_exec: if open.flags.contains(&Flag::EnableOnExec) { AtExec::Enable } else { AtExec::Keep },
        }
    }

    fn event(&self, wanted: &AstEvent) -> Result<Event, StatementError> {
        const ENOENT: i32 = 2;
        match wanted {
            AstEvent::Named(text) => Event::parse_with(text, self.session.catalog())
                .map_err(|error| StatementError { errno: Some(ENOENT), message: error.to_string() }),
            AstEvent::Breakpoint(breakpoint) => self.breakpoint(*breakpoint),
        }
    }

    fn breakpoint(&self, Breakpoint { address, len_bytes, watch }: Breakpoint) -> Result<Event, StatementError> {
        let place = self.plan.addresses.place(address);
        let place = place.ok_or_else(|| StatementError::new(format!("address {address:#x} has no place")))?;
        let access = match watch {
            Watch::Read => Access::READ,
            Watch::Write => Access::WRITE,
            Watch::ReadWrite => Access::READ_WRITE,
            Watch::Execute => Access::EXECUTE,
        };
        Ok(Event::breakpoint(place, u64::from(len_bytes), access))
    }

    /// Lets a breakpoint become another one.
    fn modify(&mut self, name: &str, to: Breakpoint) -> Result<(), StatementError> {
        let event = self.breakpoint(to)?;
        let before = self.opened.both(name)?.0.breakpoint.map(|before| self.breakpoint(before)).transpose()?;
        let (entry, holding) = self.opened.both(name)?;
        match holding {
            Holding::Task(group) => group.modify(entry.index, &event)?,
            Holding::Set(_) => return Err(StatementError::new(format!("`{name}` is of a system-wide set"))),
            Holding::Cpus(groups) => {
                for (at, (_, group)) in groups.iter().enumerate() {
                    if let Err(error) = group.modify(entry.index, &event) {
                        // Each keeps its register, so all can become what they were.
                        for ((_, group), before) in groups.iter().take(at).zip(before.iter().cycle()) {
                            group.modify(entry.index, before)?;
                        }
                        return Err(error.into());
                    }
                }
            }
        }
        entry.becomes(to);
        Ok(())
    }

    fn control(&mut self, verb: ControlOp, target: &ControlTarget) -> Result<(), StatementError> {
        let name = target.name().as_str();
        let whole = matches!(target, ControlTarget::Group(_));
        let is_set = matches!(self.opened.both(name)?.1, Holding::Set(_));
        let together = if whole || is_set { self.opened.together(name)? } else { vec![name.to_owned()] };
        match verb {
            ControlOp::Close => return together.iter().try_for_each(|name| self.opened.close(name)),
            ControlOp::Reset => return self.reset(&together),
            ControlOp::Enable | ControlOp::Disable => {}
        }
        let (entry, holding) = self.opened.both(name)?;
        let (index, on) = (entry.index, verb == ControlOp::Enable);
        let switch = |group: &ExactGroup| match (on, whole) {
            (true, true) => group.enable_all(),
            (true, false) => group.enable(index),
            (false, true) => group.disable_all(),
            (false, false) => group.disable(index),
        };
        match holding {
            Holding::Task(group) => switch(group)?,
            Holding::Cpus(groups) => groups.iter().try_for_each(|(_, group)| switch(group))?,
            Holding::Set(set) => (if on { set.arm() } else { set.disarm() })?,
        }
        Ok(())
    }

    fn reset(&mut self, names: &[String]) -> Result<(), StatementError> {
        for name in names {
            let (entry, holding) = self.opened.both(name)?;
            match holding {
                Holding::Task(group) => group.reset(entry.index)?,
                Holding::Cpus(groups) => groups.iter_mut().try_for_each(|(_, group)| group.reset(entry.index))?,
                Holding::Set(set) => set.reset()?,
            }
            let now_ns = pmux::workers::monotonic_ns();
            entry.clocks.values_mut().for_each(|clock| clock.reset(now_ns));
            entry.truth.reset(|task| self.tasks.has_exited(task));
            let root = entry.root().map(str::to_owned);
            let alive = |task: &&String| Some(*task) != root.as_ref() && !self.tasks.has_exited(task);
            entry.mixed.extend(entry.tasks.iter().filter(alive).cloned().collect::<Vec<_>>());
        }
        Ok(())
    }
}

const ENODEV: i32 = 19;
const EINVAL: i32 = 22;

/// What a kernel is silent about: it takes a switch that changes nothing for done.
fn nothing_to_switch(errno: i32, message: String) -> StatementError {
    StatementError { errno: Some(errno), message }
}

/// Lets what was opened count, or only what waits for its leader.
fn start(holding: &Holding, disabled: bool) -> Result<(), StatementError> {
    let group = |group: &ExactGroup| {
        if disabled { (1..group.len()).try_for_each(|index| group.enable(index)) } else { group.enable_all() }
    };
    match holding {
        Holding::Task(only) => group(only)?,
        Holding::Cpus(groups) => groups.iter().try_for_each(|(_, one)| group(one))?,
        Holding::Set(_) if disabled => {}
        Holding::Set(set) => set.arm()?,
    }
    Ok(())
}

/// How many page faults a rate asks for in a run: what else it asks for, no task can do at will.
fn faults(rate: &Rate, span_ns: u64) -> u64 {
    match (canonical_event(&rate.event), rate.per) {
        (Some("page-faults" | "minor-faults"), None) => rate.amount,
        (Some("page-faults" | "minor-faults"), Some(per)) => {
            let all = u128::from(rate.amount) * u128::from(span_ns) / u128::from(per.0.max(1));
            u64::try_from(all).unwrap_or(u64::MAX)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux::Nanos;
    use pmux_sim::scenario::ast::SourceSpan as Where;

    #[test]
    fn rates_of_faults() {
        let rate = |event: &str, amount, per| Rate { event: event.into(), amount, per, place: Where::NOWHERE };
        assert_eq!(faults(&rate("faults", 5, None), 10), 5);
        assert_eq!(faults(&rate("page-faults", 2, Some(Nanos(1_000_000))), 10_000_000), 20);
        assert_eq!(faults(&rate("cycles", 2, Some(Nanos(1))), 10), 0);
        assert_eq!(faults(&rate("faults", u64::MAX, Some(Nanos(1))), u64::MAX), u64::MAX);
    }
}
