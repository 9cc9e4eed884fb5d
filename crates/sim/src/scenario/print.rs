//! A scenario as text.
//!
//! What it is: the canonical text, one statement on a line. Comments, blank lines and `;` of a file that was read are gone,
//! but for the comment at its top.
//!
//! **Invariant:** parsing what was printed gives the same scenario again.

use std::fmt::{self, Display, Write as _};

use pmux_engine::Nanos;
use pmux_engine::event_set::Rounds;

use super::ast::{
    Attribute, Breakpoint, Constraint, ControlTarget, CpuList, DebugRegisters, Event, Exec, Expectation, Expr, Fault,
    ForkKind, Header, MachineSpec, Open, OpenForm, Operator, Part, Rate, Relation, Requirement, RingMode,
    RingOwnership, Run, Samples, Scenario, Statement, Step, Subject, Switching, Target, Tolerance, Trigger, Window,
    duration_text,
};
use super::vocabulary::Word;

/// Prints a scenario; each line ends with a newline.
#[must_use]
pub fn print(scenario: &Scenario) -> String {
    let mut out = header(&scenario.header);
    for step in &scenario.steps {
        out.push_str(&step.to_string());
        out.push('\n');
    }
    out
}

fn header(header: &Header) -> String {
    let mut out = String::new();
    for line in &header.about {
        let gap = if line.is_empty() { "" } else { " " };
        out.push_str(&format!("#{gap}{line}\n"));
    }
    if header.machine != MachineSpec::default() {
        out.push_str(&format!("machine{}\n", header.machine));
    }
    if !header.requires.is_empty() {
        out.push_str(&format!("requires: {}\n", list(header.requires.iter().map(|required| required.requirement))));
    }
    if let Some(sim_only) = &header.sim_only {
        out.push_str(&format!("sim only: {}\n", sim_only.reason));
    }
    out
}

pub(super) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    separated(items, ", ")
}

fn separated<T: Display>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    let mut out = String::new();
    for (index, item) in items.into_iter().enumerate() {
        // Writing to a text does not fail.
        let _ = write!(out, "{}{item}", if index > 0 { separator } else { "" });
    }
    out
}

/// Prints each key with a blank before it: what stands behind `machine`.
impl Display for MachineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let constraint = |it: &Constraint| format!("{}:{}", it.event, slots(&it.slots));
        let keys = [
            ("profile", self.profile.clone()),
            ("cpus", self.cpus.map(|cpus| cpus.to_string())),
            ("counters", self.counters.map(|counters| counters.to_string())),
            ("width", self.width_bits.map(|bits| bits.to_string())),
            ("fixed", (!self.fixed.is_empty()).then(|| separated(&self.fixed, ","))),
            (
                "constrained",
                (!self.constrained.is_empty()).then(|| separated(self.constrained.iter().map(constraint), ",")),
            ),
            ("overflow", self.overflow.map(|overflow| overflow.word().to_owned())),
            ("callers", self.callers.map(|callers| callers.word().to_owned())),
            ("sharing", self.sharing.map(|sharing| sharing.word().to_owned())),
            ("breakpoints", self.breakpoints.map(|breakpoints| breakpoints.to_string())),
            ("tick", self.tick.map(duration_text)),
            ("seed", self.seed.map(|seed| seed.to_string())),
        ];
        keys.iter().try_for_each(|(key, value)| value.iter().try_for_each(|value| write!(f, " {key}={value}")))
    }
}

/// As a list of CPUs is printed, but with `+` between the ranges: a comma separates the events.
fn slots(slots: &[u8]) -> String {
    let cpus = CpuList::new(slots.iter().map(|slot| pmux_engine::CpuId(u32::from(*slot))));
    cpus.map_or_else(String::new, |cpus| cpus.to_string().replace(',', "+"))
}

impl Display for DebugRegisters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(slots) => write!(f, "{slots}"),
            Self::Separate { execute, data } => write!(f, "{execute}x+{data}rw"),
        }
    }
}

impl Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pmu => f.write_str("pmu"),
            Self::Counters(counters) => write!(f, "counters={counters}"),
            Self::Breakpoints => f.write_str("breakpoints"),
            Self::BreakpointSlots(slots) => write!(f, "breakpoints={slots}"),
            Self::Cpus(cpus) => write!(f, "cpus={cpus}"),
            Self::Root => f.write_str("root"),
            Self::Hotplug => f.write_str("hotplug"),
            Self::Kernel => f.write_str("kernel"),
            Self::Lab => f.write_str("lab"),
        }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.statement.fmt(f)?;
        match self.fails {
            Some(errno) => write!(f, " fails {errno}"),
            None => Ok(()),
        }
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task { name, on } => {
                write!(f, "task {name}")?;
                on.map_or(Ok(()), |cpu| write!(f, " on cpu{cpu}"))
            }
            Self::Open(open) => open.fmt(f),
            Self::Run(run) => run.fmt(f),
            Self::Migrate { task, to } => write!(f, "migrate {task} to cpu{to}"),
            Self::Touch { task, pages } => write!(f, "touch {task} {pages} pages"),
            Self::Access { task, address, kind, times } => {
                write!(f, "access {task} {address:#x} {}", kind.word())?;
                if *times == 1 { Ok(()) } else { write!(f, " {times} times") }
            }
            Self::Fork { parent, child, kind: ForkKind::Process } => write!(f, "fork {parent} as {child}"),
            Self::Fork { parent, child, kind: ForkKind::Thread } => write!(f, "thread {parent} as {child}"),
            Self::Exec { task, kind: Exec::Plain } => write!(f, "exec {task}"),
            Self::Exec { task, kind: Exec::ChangesRights } => write!(f, "exec {task} setuid"),
            Self::Exit { task } => write!(f, "exit {task}"),
            Self::Control { verb, targets } => write!(f, "{verb} {}", list(targets)),
            Self::Modify { event, to } => write!(f, "modify {event} to {to}"),
            Self::Take { event, samples } => {
                write!(f, "take {event}")?;
                samples.map_or(Ok(()), |samples| write!(f, " {samples}"))
            }
            Self::Set(set) => write!(f, "set {} = {}", set.name, list(&set.members)),
            Self::Switch(switching) => write!(f, "switch {switching}"),
            Self::Trigger(trigger) => write!(f, "trigger {trigger}"),
            Self::Offline { cpu } => write!(f, "offline cpu{cpu}"),
            Self::Online { cpu } => write!(f, "online cpu{cpu}"),
            Self::Wait { span } => write!(f, "wait {}", duration_text(*span)),
            Self::Fault(fault) => write!(f, "fault {fault}"),
            Self::Expect(expectation) => write!(f, "expect {expectation}"),
        }
    }
}

impl Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = list(self.events.iter().map(|event| &event.name));
        let events = list(self.events.iter().map(|event| &event.event));
        match self.form {
            OpenForm::Singles => write!(f, "open {names} = {events} {}", self.target)?,
            OpenForm::Group => write!(f, "open {{{names}}} = {{{events}}} {}", self.target)?,
        }
        self.flags.iter().try_for_each(|flag| write!(f, " {flag}"))?;
        self.samples.map_or(Ok(()), |samples| write!(f, " {samples}"))
    }
}

impl Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "each {} into {}", self.period, self.ring_bytes)?;
        if self.mode == RingMode::Overwrite {
            f.write_str(" overwriting")?;
        }
        match self.ownership {
            RingOwnership::Own => Ok(()),
            RingOwnership::Shared => f.write_str(" shared"),
        }
    }
}

impl Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Breakpoint(breakpoint) => breakpoint.fmt(f),
        }
    }
}

impl Display for Breakpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, len_bytes, watch } = self;
        write!(f, "mem:{address:#x}/{len_bytes}:{watch}")
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(task) => write!(f, "on {task}"),
            Self::TaskOnCpu(task, cpu) => write!(f, "on {task} cpu{cpu}"),
            Self::Cpus(cpus) if cpus.as_slice().len() == 1 => write!(f, "on cpu{cpus}"),
            Self::Cpus(cpus) => write!(f, "on cpus {cpus}"),
            Self::SystemWide(None) => f.write_str("system-wide"),
            Self::SystemWide(Some(cpus)) => write!(f, "system-wide cpus {cpus}"),
        }
    }
}

impl Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} {}", list(&self.tasks), duration_text(self.span))?;
        if let Some(cpu) = self.on {
            write!(f, " on cpu{cpu}")?;
        }
        if !self.rates.is_empty() {
            write!(f, " rate {}", separated(&self.rates, " "))?;
        }
        Ok(())
    }
}

impl Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.event, self.amount)?;
        let Some(per) = self.per else { return Ok(()) };
        let per = duration_text(per);
        // One of a unit is the unit.
        let unit = per.strip_prefix('1').filter(|unit| !unit.starts_with(|c: char| c.is_ascii_digit()));
        write!(f, "/{}", unit.unwrap_or(&per))
    }
}

impl Display for Switching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.set, self.to.word())?;
        self.span.map_or(Ok(()), |span| write!(f, " for {}", duration_text(span)))
    }
}

impl Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, event, amount, per, held, every, rounds, switches } = self;
        write!(f, "{name} = {event} over {amount}/{}", duration_text(*per))?;
        if *held > Nanos::ZERO {
            write!(f, " for {}", duration_text(*held))?;
        }
        if *every > 1 {
            write!(f, " every {every}")?;
        }
        if *rounds == Rounds::Once {
            f.write_str(" once")?;
        }
        write!(f, " switches {switches}")
    }
}

impl Display for ControlTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(name) => write!(f, "{name}"),
            Self::Group(name) => write!(f, "{{{name}}}"),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc(nth) => write!(f, "alloc {nth}"),
            Self::Program(nth) => write!(f, "program {nth}"),
            Self::Start(nth) => write!(f, "start {nth}"),
            Self::Read(nth) => write!(f, "read {nth}"),
            Self::HandOver(nth) => write!(f, "hand-over {nth}"),
            Self::Held(cpu, counter) => write!(f, "held cpu{cpu} counter {counter}"),
            Self::InterruptLate(by) => write!(f, "interrupt late {}", duration_text(*by)),
            Self::DoorbellLate(by) => write!(f, "doorbell late {}", duration_text(*by)),
            Self::DoorbellTwice => f.write_str("doorbell twice"),
            Self::DoorbellSpurious(cpu) => write!(f, "doorbell spurious cpu{cpu}"),
            Self::Storm(cpu, interrupts) => write!(f, "storm cpu{cpu} {interrupts}"),
            Self::None => f.write_str("none"),
        }
    }
}

impl Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compare(comparison) => {
                let (left, right) = (&comparison.left, &comparison.right);
                match comparison.relation {
                    Relation::Near(tolerance) => write!(f, "{left} ~ {right} within {tolerance}"),
                    relation => write!(f, "{left} {} {right}", relation.word()),
                }
            }
            Self::State(expected) => {
                let states = separated(expected.states.iter().map(|state| state.word()), "|");
                write!(f, "{}.state {} {states}", expected.subject, expected.relation.word())
            }
        }
    }
}

impl Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Time(span) => f.write_str(&duration_text(*span)),
        }
    }
}

impl Operator {
    /// Those that bind more tightly have the higher number.
    pub(super) fn rank(self) -> u8 {
        match self {
            Self::Add | Self::Subtract => 1,
            Self::Multiply | Self::Divide => 2,
        }
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Time(span) => f.write_str(&duration_text(*span)),
            Self::Truth(window) => write!(f, "{}", Attribute::Truth(*window)),
            Self::Of(subject, attribute) => write!(f, "{subject}.{attribute}"),
            Self::Lost => f.write_str("lost"),
            Self::Fired(trigger) => write!(f, "fired({trigger})"),
            Self::Arithmetic(left, operator, right) => {
                operand(f, left, operator.rank())?;
                write!(f, " {operator} ")?;
                operand(f, right, operator.rank() + 1)
            }
        }
    }
}

/// Prints one side of an operator, in parentheses if it binds more loosely than `least`.
fn operand(f: &mut fmt::Formatter<'_>, expr: &Expr, least: u8) -> fmt::Result {
    match expr {
        Expr::Arithmetic(_, operator, _) if operator.rank() < least => write!(f, "({expr})"),
        _ => write!(f, "{expr}"),
    }
}

impl Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = &self.event;
        match &self.part {
            Part::Whole => write!(f, "{event}"),
            Part::Cpu(cpu) => write!(f, "{event}.cpu{cpu}"),
            Part::Own => write!(f, "{event}.own"),
            Part::Retired => write!(f, "{event}.retired"),
            Part::Child(child) => write!(f, "{event}.children[{child}]"),
        }
    }
}

impl Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truth(Window::Enabled) => "truth(enabled)",
            _ => self.word(),
        })
    }
}
