//! A scenario as lines for the kernel, which `kernel/src/scenario.rs` understands: tasks, events and event sets are numbers there.
//!
//! **Invariant:** what can't be said to the kernel is an error, and never left out.

use pmux_abi::attr::{AttrFlags, EventType, breakpoint};
use pmux_engine::event_set::{Position, Rounds};
use pmux_engine::{Count, CpuId, Nanos};
use pmux_sim::machine::Kind;
use pmux_sim::scenario::ast::{
    AccessKind, Attribute, Breakpoint, ControlOp, ControlTarget, Event, Exec, Expectation, Expr, Flag, Name, Open,
    OpenForm, Part, Rate, Statement, Step, Subject, Switching, Target, Watch, Window,
};
use pmux_sim::scenario::canonical_event;
use pmux_sim::scenario::eval::Observe as _;
use pmux_sim::scenario::run::Execution;
use std::collections::{HashMap, HashSet};

/// An expectation, with what the simulator says and the lines that ask the kernel.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) seen: HashMap<Subject, Looks>,
    /// Events whose truth is how long they ran.
    pub(super) by_time: HashSet<Subject>,
    /// The line that asks how often a trigger has fired.
    pub(super) fired: HashMap<String, usize>,
    pub(super) truths: HashMap<(Subject, Window), Result<u64, String>>,
    /// Counts that do not depend on the time that things take.
    pub(super) simulated: HashMap<Subject, Result<Count, String>>,
}

/// Which lines ask for what.
#[derive(Clone, Default)]
pub(super) struct Looks {
    pub(super) count: Vec<usize>,
    pub(super) states: Vec<usize>,
    pub(super) gap: Vec<usize>,
}

/// What a name stands for in the kernel.
#[derive(Clone)]
struct Opened {
    /// A number for each CPU, or one.
    held: Vec<(Option<CpuId>, u64)>,
    index: usize,
    is_set: bool,
    /// Which names were opened with it.
    together: Vec<String>,
    event: Event,
}

/// A scenario as lines for the kernel.
#[derive(Default)]
pub(super) struct Translation {
    pub(super) lines: Vec<String>,
    tasks: HashMap<String, usize>,
    opened: HashMap<String, Opened>,
    event_sets: HashMap<String, usize>,
    triggers: HashMap<String, usize>,
    numbers: u64,
}

impl Translation {
    fn line(&mut self, line: String) -> usize {
        self.lines.push(line);
        self.lines.len() - 1
    }

    /// The number of a task; a new one, for a name that is.
    fn task(&mut self, name: &Name) -> usize {
        let next = self.tasks.len();
        *self.tasks.entry(name.text.clone()).or_insert(next)
    }

    /// The number of an event set; a new one, for a name that is.
    fn event_set(&mut self, name: &Name) -> usize {
        let next = self.event_sets.len();
        *self.event_sets.entry(name.text.clone()).or_insert(next)
    }

    fn request(&mut self, switching: &Switching) -> String {
        let to = if switching.to == Position::On { "on" } else { "off" };
        let span = switching.span.map_or(0, |span| span.0);
        format!("{} {to} {span}", self.event_set(&switching.set))
    }

    fn opened(&self, name: &Name) -> Result<Opened, String> {
        self.opened.get(&name.text).cloned().ok_or_else(|| format!("there is no event `{name}`"))
    }

    /// Whether the count of an event does not depend on the time that things take.
    fn is_known(&self, name: &Name) -> bool {
        self.opened.get(&name.text).is_some_and(|opened| match &opened.event {
            Event::Breakpoint(_) => true,
            Event::Named(text) => matches!(canonical_event(text), Some("page-faults" | "minor-faults")),
        })
    }

    /// Whether an event counts as many as the time has ns in which it runs.
    fn counts_time(&self, name: &Name) -> bool {
        let is = |text: &str| matches!(canonical_event(text), Some("instructions" | "task-clock" | "cpu-clock"));
        self.opened.get(&name.text).is_some_and(|opened| matches!(&opened.event, Event::Named(text) if is(text)))
    }

    /// A statement that failed as it should has opened nothing.
    pub(super) fn forget(&mut self, statement: &Statement) {
        if let Statement::Open(open) = statement {
            open.events.iter().for_each(|new| drop(self.opened.remove(&new.name.text)));
        }
    }

    pub(super) fn statement(&mut self, statement: &Statement, simulated: &Execution) -> Result<(), String> {
        let line = match statement {
            Statement::Task { name, on } => format!("task {} {}", self.task(name), on.map_or(0, |cpu| cpu.0)),
            Statement::Open(open) => return self.open(open, simulated),
            Statement::Run(run) => {
                let tasks: Vec<String> = run.tasks.iter().map(|task| self.task(task).to_string()).collect();
                if let Some(cpu) = run.on {
                    for task in &tasks {
                        self.line(format!("go {task} {}", cpu.0));
                    }
                }
                let pages: u64 = run.rates.iter().map(|rate| pages(rate, run.span)).sum::<Result<_, _>>()?;
                format!("run {} {pages} {}", run.span.0, tasks.join(" "))
            }
            Statement::Migrate { task, to } => format!("go {} {}", self.task(task), to.0),
            Statement::Touch { task, pages } => format!("touch {} {pages}", self.task(task)),
            Statement::Access { task, address, kind, times } => {
                let writes = u32::from(*kind == AccessKind::Write);
                format!("access {} {address} {writes} {times}", self.task(task))
            }
            Statement::Fork { parent, child, .. } => format!("fork {} {}", self.task(parent), self.task(child)),
            Statement::Exec { task, kind } => {
                format!("exec {} {}", self.task(task), u32::from(*kind == Exec::ChangesRights))
            }
            Statement::Exit { task } => format!("exit {}", self.task(task)),
            Statement::Control { verb, targets } => {
                return targets.iter().try_for_each(|target| self.control(*verb, target));
            }
            Statement::Modify { event, to } => {
                let opened = self.opened(event)?;
                for (_, held) in &opened.held {
                    self.line(format!("modify {held} {} {}", opened.index, of_breakpoint(*to, AttrFlags::empty())?));
                }
                return Ok(());
            }
            Statement::Set(set) => {
                let mut line = format!("gather {}", self.event_set(&set.name));
                for target in &set.members {
                    self.opened(target.name())?.held.iter().for_each(|(_, held)| line.push_str(&format!(" {held}")));
                }
                line
            }
            Statement::Switch(switching) => format!("switch {}", self.request(switching)),
            Statement::Trigger(trigger) => {
                let opened = self.opened(&trigger.event)?;
                let [(_, held)] = opened.held[..] else {
                    return Err("a trigger on events of several CPUs is not translated".to_owned());
                };
                // A name that is given again is another trigger.
                let number = self.lines.len();
                self.triggers.insert(trigger.name.text.clone(), number);
                let rounds = if trigger.rounds == Rounds::Once { "once" } else { "always" };
                let (amount, per, holds, every) = (trigger.amount, trigger.per.0, trigger.held.0, trigger.every);
                let (index, switches) = (opened.index, self.request(&trigger.switches));
                format!("trigger {number} {held} {index} {amount} {per} {holds} {every} {rounds} {switches}")
            }
            Statement::Offline { cpu } => format!("offline {}", cpu.0),
            Statement::Online { cpu } => format!("online {}", cpu.0),
            Statement::Wait { span } => format!("wait {}", span.0),
            other => return Err(format!("the kernel does not know `{}`", Step::new(other.clone()))),
        };
        self.line(line);
        Ok(())
    }

    fn open(&mut self, open: &Open, simulated: &Execution) -> Result<(), String> {
        match open.form {
            OpenForm::Group => self.open_group(open, 0..open.events.len(), simulated),
            OpenForm::Singles => (0..open.events.len()).try_for_each(|at| self.open_group(open, at..at + 1, simulated)),
        }
    }

    fn open_group(&mut self, open: &Open, which: std::ops::Range<usize>, simulated: &Execution) -> Result<(), String> {
        let new = &open.events[which];
        let mut events = Vec::new();
        for (index, new) in new.iter().enumerate() {
            let flag = |flag: Flag, bit| if open.flags.contains(&flag) { bit } else { AttrFlags::empty() };
            let leader = flag(Flag::Pinned, AttrFlags::PINNED)
                | flag(Flag::Exclusive, AttrFlags::EXCLUSIVE)
                | flag(Flag::EnableOnExec, AttrFlags::ENABLE_ON_EXEC);
            let flags = flag(Flag::Inherit, AttrFlags::INHERIT) | if index == 0 { leader } else { AttrFlags::empty() };
            events.push(match &new.event {
                Event::Breakpoint(breakpoint) => of_breakpoint(*breakpoint, flags)?,
                Event::Named(text) => of_name(text, flags, simulated)?,
            });
        }
        let (events, off) = (events.join(" "), u32::from(open.flags.contains(&Flag::Disabled)));
        let (held, is_set) = match &open.target {
            Target::Task(task) => (vec![(None, format!("task {} 0", self.task(task)))], false),
            Target::TaskOnCpu(task, cpu) => (vec![(None, format!("both {} {}", self.task(task), cpu.0))], false),
            Target::Cpus(cpus) => (cpus.iter().map(|cpu| (Some(cpu), format!("cpu 0 {}", cpu.0))).collect(), false),
            Target::SystemWide(_) if open.form == OpenForm::Singles && open.events.len() > 1 => {
                return Err("a set of several groups is not translated".to_owned());
            }
            Target::SystemWide(cpus) => {
                let all = (1 << simulated.world().description().cpus) - 1;
                let mask = cpus.as_ref().map_or(all, |cpus| cpus.iter().map(|cpu| 1_u64 << cpu.0).sum());
                (vec![(None, format!("set 0 {mask}"))], true)
            }
        };
        let mut numbers = Vec::new();
        for (cpu, place) in held {
            self.numbers += 1;
            numbers.push((cpu, self.numbers));
            self.line(format!("open {} {place} {off} {events}", self.numbers));
        }
        let together: Vec<String> = new.iter().map(|new| new.name.text.clone()).collect();
        for (index, new) in new.iter().enumerate() {
            let (held, together, event) = (numbers.clone(), together.clone(), new.event.clone());
            self.opened.insert(new.name.text.clone(), Opened { held, index, is_set, together, event });
        }
        Ok(())
    }

    fn control(&mut self, verb: ControlOp, target: &ControlTarget) -> Result<(), String> {
        let opened = self.opened(target.name())?;
        let whole = matches!(target, ControlTarget::Group(_)) || opened.is_set || verb == ControlOp::Close;
        for (_, held) in &opened.held {
            self.line(if whole { format!("{verb} {held}") } else { format!("{verb} {held} {}", opened.index) });
        }
        if verb == ControlOp::Close {
            opened.together.iter().for_each(|name| drop(self.opened.remove(name)));
        }
        Ok(())
    }

    /// The lines that ask for what an expectation needs, and what the simulator says of it now.
    pub(super) fn ask(&mut self, expectation: &Expectation, simulated: &Execution) -> Result<Asked, String> {
        let mut asked = Asked::default();
        self.line("expect".to_owned());
        let comparison = match expectation {
            Expectation::Compare(comparison) => comparison,
            Expectation::State(expected) => {
                let lines = self.look(&expected.subject, "states")?;
                asked.seen.entry(expected.subject.clone()).or_default().states = lines;
                return Ok(asked);
            }
        };
        for leaf in comparison.leaves() {
            match leaf {
                Expr::Of(subject, Attribute::Gap | Attribute::Gaps) => {
                    let lines = self.look(subject, "gap")?;
                    asked.seen.entry(subject.clone()).or_default().gap = lines;
                }
                Expr::Of(subject, Attribute::Truth(window)) => {
                    self.ask_truth(subject, *window, simulated, &mut asked)?;
                }
                Expr::Truth(window) => {
                    if let Some(subject) = comparison.subject() {
                        self.ask_truth(subject, *window, simulated, &mut asked)?;
                    }
                }
                Expr::Of(subject, _) => {
                    self.ask_count(subject, &mut asked)?;
                    if self.is_known(&subject.event) {
                        asked.simulated.insert(subject.clone(), simulated.observe().count(subject));
                    }
                }
                Expr::Fired(name) => {
                    let number =
                        self.triggers.get(&name.text).ok_or_else(|| format!("there is no trigger `{name}`"))?;
                    let line = self.line(format!("fired {number}"));
                    asked.fired.insert(name.text.clone(), line);
                }
                _ => {}
            }
        }
        Ok(asked)
    }

    fn ask_count(&mut self, subject: &Subject, asked: &mut Asked) -> Result<(), String> {
        let lines = self.look(subject, "count")?;
        asked.seen.entry(subject.clone()).or_default().count = lines;
        Ok(())
    }

    fn ask_truth(
        &mut self,
        subject: &Subject,
        window: Window,
        simulated: &Execution,
        asked: &mut Asked,
    ) -> Result<(), String> {
        if self.counts_time(&subject.event) {
            asked.by_time.insert(subject.clone());
            return self.ask_count(subject, asked);
        }
        asked.truths.insert((subject.clone(), window), simulated.observe().truth(subject, window));
        Ok(())
    }

    fn look(&mut self, subject: &Subject, what: &str) -> Result<Vec<usize>, String> {
        let opened = self.opened(&subject.event)?;
        let part = match &subject.part {
            Part::Whole => "all".to_owned(),
            Part::Cpu(cpu) => format!("cpu {}", cpu.0),
            Part::Own => "own".to_owned(),
            Part::Retired => "retired".to_owned(),
            Part::Child(child) => format!("child {}", self.task(child)),
        };
        let wanted = if let Part::Cpu(cpu) = subject.part { Some(cpu) } else { None };
        let fits = |cpu: Option<CpuId>| cpu.is_none() || wanted.is_none() || cpu == wanted;
        let index = if what == "gap" { String::new() } else { format!(" {}", opened.index) };
        let lines =
            opened.held.iter().filter(|(cpu, _)| fits(*cpu)).map(|(_, held)| format!("{what} {held}{index} {part}"));
        Ok(lines.map(|line| self.line(line)).collect())
    }
}

/// How many fresh pages a rate asks for: what else it asks for, no program does at will.
fn pages(rate: &Rate, span: Nanos) -> Result<u64, String> {
    if !matches!(canonical_event(&rate.event), Some("page-faults" | "minor-faults")) {
        return Err(format!("no program does `{}` at a rate", rate.event));
    }
    Ok(rate.per.map_or(rate.amount, |per| rate.amount * span.0 / per.0))
}

fn of_breakpoint(Breakpoint { address, len_bytes, watch }: Breakpoint, flags: AttrFlags) -> Result<String, String> {
    let access = match watch {
        Watch::Read => breakpoint::R,
        Watch::Write => breakpoint::W,
        Watch::ReadWrite => breakpoint::RW,
        Watch::Execute => return Err("the kernel has watchpoints for data only".to_owned()),
    };
    let (kind, flags) = (EventType::BREAKPOINT.0, flags.bits());
    Ok(format!("{kind},0,{address},{len_bytes},{access},{flags}"))
}

fn of_name(text: &str, flags: AttrFlags, simulated: &Execution) -> Result<String, String> {
    let name = canonical_event(text).ok_or_else(|| format!("there is no event `{text}`"))?;
    let kind = Kind::by_name(name).and_then(|kind| simulated.world().description().kind(kind));
    let (_, attr) = kind.ok_or_else(|| format!("there is no event `{text}`"))?;
    let user = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    let flags = if text.ends_with(":u") { flags | user } else { flags };
    Ok(format!("{},{},0,0,0,{}", attr.kind.0, attr.config, flags.bits()))
}
