//! What is there at one point of a scenario.
//!
//! **Invariant:** it holds what statements said, whether or not they were right: a wrong statement is reported once, and not
//! again by everything that builds on it.

use std::collections::{BTreeMap, BTreeSet};

use pmux_engine::CpuId;
use pmux_engine::share::Sharing;

use super::super::ast::{
    Breakpoint, ControlOp, ControlTarget, Event, Exec, Flag, Flags, ForkKind, Name, Open, OpenForm, Samples, Scenario,
    SourceSpan, Statement, Step, Target,
};
use super::super::error::Problem;
use super::super::nearest::nearest;
use crate::machine::Reach;

/// What is there at one point of a scenario.
#[derive(Clone, Default)]
pub(in super::super) struct CheckState {
    pub(super) cpus: u32,
    pub(super) sim_only: bool,
    /// Whether events that ask the same are counted once.
    pub(super) shares: bool,
    pub(super) callers: Option<Reach>,
    pub(super) tasks: BTreeMap<String, CheckedTask>,
    pub(super) events: BTreeMap<String, OpenEvent>,
    /// Event sets and triggers, with what they are.
    pub(super) sets: BTreeMap<String, (&'static str, SourceSpan)>,
    pub(super) offline: BTreeSet<CpuId>,
    /// Which tasks began another program in which statement, without gaining rights.
    execs: Vec<(String, usize)>,
    step: usize,
}

#[derive(Clone)]
pub(super) struct CheckedTask {
    pub(super) place: SourceSpan,
    pub(super) liveness: Liveness,
    pub(super) parent: Option<String>,
    pub(super) kind: Option<ForkKind>,
    pub(super) born: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Liveness {
    Alive,
    /// Since the statement at that place.
    Over(SourceSpan),
}

#[derive(Clone)]
pub(super) struct OpenEvent {
    pub(super) place: SourceSpan,
    pub(super) liveness: Liveness,
    pub(super) event: Event,
    pub(super) target: Target,
    pub(super) flags: Flags,
    pub(super) form: OpenForm,
    pub(super) samples: Option<Samples>,
    pub(super) opened: usize,
    /// That one, or the one that reset it last.
    counted_since: usize,
    /// Whether it was off at some time, so that it is not clear what it has counted.
    was_off: bool,
}

impl CheckState {
    pub(in super::super) fn new(scenario: &Scenario) -> Self {
        Self {
            cpus: scenario.cpus(),
            sim_only: scenario.header.sim_only.is_some(),
            shares: scenario.header.machine.sharing == Some(Sharing::On),
            callers: scenario.header.machine.callers,
            ..Self::default()
        }
    }

    /// Takes a statement as it is.
    pub(in super::super) fn take(&mut self, step: &Step) {
        self.step += 1;
        if step.fails.is_some() {
            return;
        }
        match &step.statement {
            Statement::Task { name, .. } => self.begin(name, None, None),
            Statement::Fork { parent, child, kind } => self.begin(child, Some(parent), Some(*kind)),
            Statement::Exit { task } => {
                if let Some(known) = self.tasks.get_mut(task.as_str()) {
                    known.liveness = Liveness::Over(step.place);
                }
            }
            Statement::Open(open) => self.open(open),
            Statement::Control { verb: ControlOp::Close, targets } => {
                targets.iter().for_each(|target| self.close(target, step.place));
            }
            Statement::Control { verb: verb @ (ControlOp::Disable | ControlOp::Reset), targets } => {
                targets.iter().for_each(|target| self.switch(*verb, target));
            }
            Statement::Modify { event, to } => self.modify(event, *to),
            Statement::Set(set) => drop(self.sets.insert(set.name.text.clone(), ("event set", set.name.place))),
            Statement::Trigger(trigger) => {
                self.sets.insert(trigger.name.text.clone(), ("trigger", trigger.name.place));
            }
            Statement::Exec { task, kind: Exec::Plain } => self.execs.push((task.text.clone(), self.step)),
            Statement::Offline { cpu } => {
                self.offline.insert(*cpu);
            }
            Statement::Online { cpu } => {
                self.offline.remove(cpu);
            }
            _ => {}
        }
    }

    fn begin(&mut self, name: &Name, parent: Option<&Name>, kind: Option<ForkKind>) {
        let parent = parent.map(|parent| parent.text.clone());
        let task = CheckedTask { place: name.place, liveness: Liveness::Alive, parent, kind, born: self.step };
        self.tasks.insert(name.text.clone(), task);
    }

    fn open(&mut self, open: &Open) {
        for new in &open.events {
            let event = OpenEvent {
                place: new.name.place,
                liveness: Liveness::Alive,
                event: new.event.clone(),
                target: open.target.clone(),
                flags: open.flags.clone(),
                form: open.form,
                samples: open.samples,
                opened: self.step,
                counted_since: self.step,
                was_off: open.flags.contains(&Flag::Disabled) && !open.flags.contains(&Flag::EnableOnExec),
            };
            self.events.insert(new.name.text.clone(), event);
        }
    }

    fn modify(&mut self, name: &Name, to: Breakpoint) {
        if let Some(event) = self.events.get_mut(name.as_str()) {
            event.event = Event::Breakpoint(to);
        }
    }

    fn switch(&mut self, verb: ControlOp, target: &ControlTarget) {
        let Some(opened) = self.events.get(target.name().as_str()).map(|event| event.opened) else { return };
        let whole = matches!(target, ControlTarget::Group(_));
        let step = self.step;
        for (name, event) in &mut self.events {
            if event.opened == opened && (whole || name == target.name().as_str()) {
                match verb {
                    ControlOp::Reset => event.counted_since = step,
                    _ => event.was_off = true,
                }
            }
        }
    }

    /// The task of an event's family that began another program while the event counted it, as far as that is clear.
    pub(super) fn exec_within(&self, event: &OpenEvent) -> Option<&str> {
        let (Target::Task(root) | Target::TaskOnCpu(root, _)) = &event.target else { return None };
        let inherits = event.flags.contains(&Flag::Inherit);
        let counted =
            |task: &str| task == root.as_str() || inherits && self.inherits(task, root.as_str(), event.opened);
        let within = |(task, at): &&(String, usize)| *at > event.counted_since && counted(task);
        self.execs.iter().find(within).filter(|_| !event.was_off).map(|(task, _)| task.as_str())
    }

    fn close(&mut self, target: &ControlTarget, place: SourceSpan) {
        let Some(event) = self.events.get(target.name().as_str()) else { return };
        let whole = matches!(target, ControlTarget::Group(_)) || matches!(event.target, Target::SystemWide(_));
        let opened = event.opened;
        for (name, event) in &mut self.events {
            if event.opened == opened && event.liveness == Liveness::Alive && (whole || name == target.name().as_str())
            {
                event.liveness = Liveness::Over(place);
            }
        }
    }

    /// A task by its name, alive or not; else a problem that says which name is near.
    pub(super) fn task(&self, name: &Name) -> Result<&CheckedTask, Problem> {
        self.tasks.get(name.as_str()).ok_or_else(|| {
            if self.events.contains_key(name.as_str()) {
                return Problem::new(name.place, format!("`{name}` is an event, and not a task"));
            }
            let names =
                self.tasks.iter().filter(|(_, task)| task.liveness == Liveness::Alive).map(|(name, _)| name.as_str());
            undefined(name, &format!("there is no task `{name}`"), names)
        })
    }

    /// A task that lives; else a problem.
    pub(super) fn live_task(&self, name: &Name) -> Result<&CheckedTask, Problem> {
        let task = self.task(name)?;
        match task.liveness {
            Liveness::Alive => Ok(task),
            Liveness::Over(at) => Err(Problem::new(name.place, format!("`{name}` exited{}", on_line(at)))),
        }
    }

    /// An event by its name, open or closed; else a problem that says which name is near.
    pub(super) fn event(&self, name: &Name) -> Result<&OpenEvent, Problem> {
        self.events.get(name.as_str()).ok_or_else(|| {
            if self.tasks.contains_key(name.as_str()) {
                return Problem::new(name.place, format!("`{name}` is a task, and not an event"));
            }
            let open = self.events.iter().filter(|(_, event)| event.liveness == Liveness::Alive);
            undefined(name, &format!("event `{name}` is not open"), open.map(|(name, _)| name.as_str()))
        })
    }

    /// An event that is open; else a problem.
    pub(super) fn open_event(&self, name: &Name) -> Result<&OpenEvent, Problem> {
        let event = self.event(name)?;
        match event.liveness {
            Liveness::Alive => Ok(event),
            Liveness::Over(at) => Err(Problem::new(name.place, format!("event `{name}` was closed{}", on_line(at)))),
        }
    }

    /// Whether `child` comes from `ancestor`, by forks after statement `since`: an event that was opened there is inherited
    /// by it.
    pub(super) fn inherits(&self, child: &str, ancestor: &str, since: usize) -> bool {
        let mut name = child;
        // Each step goes to an older task, so this ends; names that were used twice can't make a circle.
        for _ in 0..=self.tasks.len() {
            let Some(task) = self.tasks.get(name) else { return false };
            let Some(parent) = task.parent.as_deref() else { return false };
            if task.born <= since {
                return false;
            }
            if parent == ancestor {
                return true;
            }
            name = parent;
        }
        false
    }

    pub(in super::super) fn has_task(&self, name: &Name) -> bool {
        self.live_task(name).is_ok()
    }

    pub(in super::super) fn has_event(&self, name: &Name) -> bool {
        self.open_event(name).is_ok()
    }

    pub(in super::super) fn has_set(&self, name: &Name) -> bool {
        self.sets.get(name.as_str()).is_some_and(|(what, _)| *what == "event set")
    }

    pub(super) fn is_online(&self, cpu: CpuId) -> bool {
        cpu.0 < self.cpus && !self.offline.contains(&cpu)
    }
}

pub(super) fn undefined<'a>(name: &Name, message: &str, names: impl Iterator<Item = &'a str>) -> Problem {
    let message = match nearest(name.as_str(), names) {
        Some(near) => format!("{message}: did you mean `{near}`?"),
        None => message.into(),
    };
    Problem::new(name.place, message)
}

/// Where something was said, if it was read from a text.
pub(super) fn on_line(place: SourceSpan) -> String {
    if place.line == 0 { String::new() } else { format!(" on line {}", place.line) }
}
