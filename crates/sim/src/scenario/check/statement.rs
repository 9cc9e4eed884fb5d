//! What is wrong with a statement where it stands.
//!
//! **Invariant:** a statement that is meant to fail may be wrong in what makes it fail, and in nothing else.

use std::collections::BTreeSet;

use pmux_engine::CpuId;

use super::super::ast::{
    ControlOp, ControlTarget, CpuList, Event as SomeEvent, Expectation, Fault, Flag, ForkKind, Name, Open, OpenForm,
    RingOwnership, Run, SourceSpan, Statement, Step, Target,
};
use super::super::error::Problem;
use super::super::names::{canonical_event, event_class, known};
use super::super::nearest::did_you_mean;
use super::world::{CheckState, Liveness, on_line, undefined};
use crate::machine::Reach;

impl CheckState {
    /// What is wrong with a statement here. Changes nothing.
    pub(in super::super) fn problems(&self, step: &Step) -> Vec<Problem> {
        let mut found =
            NamedEvent { world: self, place: step.place, meant: step.fails.is_some(), problems: Vec::new() };
        if found.meant && !step.statement.can_fail() {
            found.say("this statement can't be meant to fail");
        }
        found.statement(&step.statement);
        found.problems
    }
}

pub(super) struct NamedEvent<'w> {
    pub(super) world: &'w CheckState,
    pub(super) place: SourceSpan,
    /// Whether the statement is meant to fail.
    meant: bool,
    pub(super) problems: Vec<Problem>,
}

impl NamedEvent<'_> {
    pub(super) fn say(&mut self, message: impl Into<String>) {
        self.problems.push(Problem::new(self.place, message));
    }

    pub(super) fn note<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.problems.push(problem)).ok()
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Task { name, on } => {
                self.new_name(name);
                on.iter().for_each(|cpu| self.online(*cpu));
            }
            Statement::Open(open) => self.open(open),
            Statement::Run(run) => self.run(run),
            Statement::Migrate { task, to } => {
                self.live(task);
                self.online(*to);
            }
            Statement::Touch { task, .. } | Statement::Access { task, .. } | Statement::Exit { task } => {
                self.live(task);
            }
            Statement::Fork { parent, child, .. } => {
                self.live(parent);
                self.new_name(child);
            }
            Statement::Exec { task, .. } => self.exec(task),
            Statement::Control { verb, targets } => {
                if targets.is_empty() {
                    self.say("this names no event");
                }
                targets.iter().for_each(|target| self.control(target));
                if *verb == ControlOp::Close {
                    targets.iter().for_each(|target| self.close(target));
                }
            }
            Statement::Modify { event, .. } => self.modify(event),
            Statement::Take { event, .. } => self.take(event),
            Statement::Set(set) => {
                self.new_set(&set.name);
                set.members.iter().for_each(|member| self.control(member));
            }
            Statement::Switch(switching) => self.set(&switching.set),
            Statement::Trigger(trigger) => {
                self.new_set(&trigger.name);
                self.control(&ControlTarget::Event(trigger.event.clone()));
                self.set(&trigger.switches.set);
            }
            Statement::Offline { cpu } => self.offline(*cpu),
            Statement::Online { cpu } => {
                if self.in_range(*cpu) && self.world.is_online(*cpu) && !self.meant {
                    self.say(format!("cpu{cpu} is online already"));
                }
            }
            Statement::Wait { .. } => {}
            Statement::Fault(fault) => self.fault(*fault),
            Statement::Expect(Expectation::Compare(comparison)) => self.comparison(comparison),
            Statement::Expect(Expectation::State(expected)) => self.state(expected),
        }
    }

    fn live(&mut self, task: &Name) {
        let found = self.world.live_task(task).map(|_| ());
        self.note(found);
    }

    fn new_name(&mut self, name: &Name) {
        let task = self.world.tasks.get(name.as_str()).map(|task| ("task", task.place, Liveness::Alive));
        let event = self.world.events.get(name.as_str()).map(|event| ("event", event.place, event.liveness));
        for (what, place, liveness) in task.into_iter().chain(event) {
            // The name of an event is free again once that is closed. That of a task is not: its counts are asked for by it.
            if liveness == Liveness::Alive {
                let message = format!("there is {} `{name}` already{}", article(what), on_line(place));
                self.problems.push(Problem::new(name.place, message).with_help("choose another name"));
            }
        }
    }

    fn new_set(&mut self, name: &Name) {
        if let Some(&(what, place)) = self.world.sets.get(name.as_str()) {
            let message = format!("there is {} `{name}` already{}", article(what), on_line(place));
            self.problems.push(Problem::new(name.place, message).with_help("choose another name"));
        }
    }

    fn set(&mut self, name: &Name) {
        self.of_sets(name, "event set");
    }

    pub(super) fn of_sets(&mut self, name: &Name, what: &'static str) {
        if self.world.sets.get(name.as_str()).is_none_or(|(of, _)| *of != what) {
            let known = self.world.sets.iter().filter(|(_, (of, _))| *of == what).map(|(name, _)| name.as_str());
            let problem = undefined(name, &format!("there is no {what} `{name}`"), known);
            self.problems.push(problem);
        }
    }

    fn in_range(&mut self, cpu: CpuId) -> bool {
        let cpus = self.world.cpus;
        if cpu.0 >= cpus {
            let least = cpu.0.saturating_add(1);
            let problem = Problem::new(self.place, format!("there is no cpu{cpu}: the machine has {cpus} CPUs"));
            self.problems.push(problem.with_help(format!("say `machine cpus={least}`")));
        }
        cpu.0 < cpus
    }

    fn online(&mut self, cpu: CpuId) {
        if self.in_range(cpu) && !self.world.is_online(cpu) {
            self.say(format!("cpu{cpu} is offline here"));
        }
    }

    fn offline(&mut self, cpu: CpuId) {
        if !self.in_range(cpu) {
            return;
        }
        let others = self.world.cpus as usize - self.world.offline.len();
        if !self.meant && !self.world.is_online(cpu) {
            self.say(format!("cpu{cpu} is offline already"));
        } else if !self.meant && others == 1 {
            self.say(format!("cpu{cpu} is the last one: one CPU must stay online"));
        }
        if cpu.0 == 0 && !self.world.sim_only {
            let problem = Problem::elsewhere(self.place, "most machines can't take CPU 0 offline");
            self.problems.push(problem.with_help("take another CPU, or add `sim only: REASON`"));
        }
    }

    fn run(&mut self, run: &Run) {
        if run.tasks.is_empty() {
            self.say("this names no task");
        }
        let mut tasks = BTreeSet::new();
        for task in &run.tasks {
            self.live(task);
            if !tasks.insert(task.as_str()) {
                self.problems.push(Problem::new(task.place, format!("`{task}` is said twice")));
            }
        }
        run.on.iter().for_each(|cpu| self.online(*cpu));
        let mut rates = BTreeSet::new();
        for rate in &run.rates {
            match canonical_event(&rate.event) {
                None => {
                    let help = did_you_mean(&rate.event, known());
                    let message = format!("there is no event `{}` whose rate could be set", rate.event);
                    self.problems.push(Problem::new(rate.place, message).with_help_if(help));
                }
                Some(event) if !rates.insert(event) => {
                    self.problems.push(Problem::new(rate.place, format!("the rate of `{event}` is said twice")));
                }
                Some(_) => {}
            }
        }
    }

    fn exec(&mut self, task: &Name) {
        let found = self.world.live_task(task).map(|found| found.kind);
        let Some(kind) = self.note(found) else { return };
        let is_thread = |kind: Option<ForkKind>| kind == Some(ForkKind::Thread);
        let mut children = self.world.tasks.values().filter(|other| other.parent.as_deref() == Some(task.as_str()));
        let has_threads = children.any(|child| is_thread(child.kind) && child.liveness == Liveness::Alive);
        if is_thread(kind) || has_threads {
            self.say("an exec ends all other threads of its process, and scenarios have no word for that");
        }
    }

    fn open(&mut self, open: &Open) {
        if open.events.is_empty() {
            self.say("this opens no event");
        }
        if self.meant && open.form == OpenForm::Singles && open.events.len() > 1 {
            self.say("which of these events is meant to fail? Open it with a statement of its own");
        }
        let mut names = BTreeSet::new();
        for new in &open.events {
            self.new_name(&new.name);
            if !names.insert(new.name.as_str()) {
                self.problems.push(Problem::new(new.name.place, format!("`{}` is said twice", new.name)));
            }
            if event_class(&new.event).is_none() && !self.meant {
                let text = new.event.to_string();
                let problem = Problem::new(new.place, format!("there is no event `{text}`"));
                self.problems.push(problem.with_help_if(did_you_mean(&text, known())));
            }
        }
        if let Some(samples) = open.samples {
            let (shared, is_set) =
                (samples.ownership == RingOwnership::Shared, matches!(open.target, Target::SystemWide(_)));
            if open.form == OpenForm::Group || (is_set && !shared) {
                self.say("events of groups take no samples here, and those of system-wide sets only `shared` ones");
            }
            if is_set && open.events.len() > 1 {
                self.say("a system-wide set has one ring: open one event with it");
            }
            if shared && !self.world.shares {
                self.say("samples are shared where `machine sharing=on` is said only");
            }
            self.on_simulator("rings are read");
        }
        match &open.target {
            Target::Task(task) => self.target_task(task),
            Target::TaskOnCpu(task, cpu) => {
                self.target_task(task);
                self.in_range(*cpu);
            }
            Target::Cpus(cpus) if self.meant => {
                self.in_range(cpus.highest());
            }
            Target::Cpus(cpus) => cpus.iter().for_each(|cpu| self.online(cpu)),
            Target::SystemWide(cpus) => {
                let highest = cpus.as_ref().map(CpuList::highest);
                highest.map(|cpu| self.in_range(cpu));
            }
        }
    }

    fn target_task(&mut self, task: &Name) {
        if self.meant {
            let found = self.world.task(task).map(|_| ());
            self.note(found);
        } else {
            self.live(task);
        }
    }

    fn control(&mut self, target: &ControlTarget) {
        let name = target.name();
        let found = if self.meant { self.world.event(name) } else { self.world.open_event(name) };
        let form = found.map(|event| event.form);
        if self.note(form) == Some(OpenForm::Singles) && matches!(target, ControlTarget::Group(_)) {
            let problem = Problem::new(name.place, format!("`{name}` was opened alone, not in a group"));
            self.problems.push(problem.with_help(format!("write {name} without braces")));
        }
    }

    fn modify(&mut self, name: &Name) {
        let found = if self.meant { self.world.event(name) } else { self.world.open_event(name) };
        let Some(event) = self.note(found.cloned()) else { return };
        if matches!(event.target, Target::SystemWide(_)) {
            let problem = Problem::new(name.place, format!("`{name}` is of a system-wide set, which stays as it is"));
            self.problems.push(problem.with_help("open another set, then close this one"));
        } else if !matches!(event.event, SomeEvent::Breakpoint(_)) {
            let message = format!("`{name}` is no breakpoint, and can't become one");
            self.problems.push(Problem::new(name.place, message));
        }
        let (Target::Task(root) | Target::TaskOnCpu(root, _)) = &event.target else { return };
        let has_child = event.flags.contains(&Flag::Inherit)
            && self.world.tasks.iter().any(|(child, task)| {
                task.liveness == Liveness::Alive && self.world.inherits(child, root.as_str(), event.opened)
            });
        let differs = match (self.world.has_task(root), has_child) {
            (false, _) => format!("`{root}` exited"),
            (true, true) => format!("children of `{root}` count `{name}` too"),
            (true, false) => return,
        };
        if !self.world.sim_only {
            let message = format!("{differs}: a kernel takes the change, the simulator refuses it");
            let problem = Problem::elsewhere(self.place, message);
            self.problems.push(problem.with_help("change it before, or add `sim only: REASON`"));
        }
    }

    /// An event of a group is closed with its group only; that of a set is the set.
    fn close(&mut self, target: &ControlTarget) {
        let ControlTarget::Event(name) = target else { return };
        let Ok(event) = self.world.event(name) else { return };
        let alone = event.form == OpenForm::Singles || matches!(event.target, Target::SystemWide(_));
        let siblings = self.world.events.values().filter(|other| other.opened == event.opened).count();
        if event.liveness == Liveness::Alive && !alone && siblings > 1 {
            let problem = Problem::new(name.place, format!("`{name}` is in a group, and groups are closed whole"));
            self.problems.push(problem.with_help(format!("write close {{{name}}}")));
        }
    }

    fn fault(&mut self, fault: Fault) {
        if self.world.callers == Some(Reach::Everywhere)
            && matches!(fault, Fault::DoorbellLate(_) | Fault::DoorbellTwice)
        {
            let problem = Problem::new(self.place, "no doorbell rings where callers reach every CPU");
            self.problems.push(problem.with_help("say callers=own-cpu, or nothing, on the machine line"));
        }
        if let Fault::DoorbellSpurious(cpu) | Fault::Storm(cpu, _) | Fault::Held(cpu, _) = fault {
            self.in_range(cpu);
        }
        self.on_simulator("faults can be made");
    }

    /// What a kernel can't be told to.
    fn on_simulator(&mut self, what: &str) {
        if !self.world.sim_only {
            let problem = Problem::elsewhere(self.place, format!("{what} on the simulator only"));
            self.problems.push(problem.with_help("add a line `sim only: REASON`"));
        }
    }

    fn take(&mut self, name: &Name) {
        self.control(&ControlTarget::Event(name.clone()));
        if self.world.events.get(name.as_str()).is_some_and(|event| event.samples.is_none()) {
            let problem = Problem::new(name.place, format!("`{name}` takes no samples"));
            self.problems.push(problem.with_help(format!("open it so: open {name} = cycles on A each 1000 into 4096")));
        }
    }
}

fn article(what: &str) -> String {
    if what == "event" { format!("an {what}") } else { format!("a {what}") }
}
