//! What is wrong with an expectation where it stands.
//!
//! **Invariant:** an expectation without a problem has a value on the simulator, unless what it asks for never happened.

use super::super::ast::{
    Attribute, Comparison, Expr, Flag, Name, Operator, Part, Relation, StateExpectation, Subject, Target, Tolerance,
};
use super::super::error::Problem;
use super::super::names::{KernelTruth, counts_time, cpu_truth, hides_in_exec, task_truth};
use super::statement::NamedEvent;
use super::world::OpenEvent;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Time,
    /// Zero, or the count of a clock.
    Either,
}

impl NamedEvent<'_> {
    pub(super) fn state(&mut self, expected: &StateExpectation) {
        if expected.states.is_empty() {
            self.say("this names no state");
        }
        let subject = &expected.subject;
        if self.subject(subject).is_some() && subject.part == Part::Retired {
            self.at(subject, "children that have exited have no state");
        }
    }

    pub(super) fn comparison(&mut self, comparison: &Comparison) {
        let before = self.problems.len();
        let asks = Asks::of(comparison);
        asks.triggers.iter().for_each(|trigger| self.of_sets(trigger, "trigger"));
        asks.of.iter().for_each(|(subject, attribute)| self.attribute(subject, *attribute));
        if asks.bare_truth && comparison.subject().is_none() {
            let (message, help) = match asks.of.as_slice() {
                [] => ("`truth` of what? This names no event", "compare it with the count of one"),
                _ => ("`truth` of what? This names several events", "say whose: e1.truth"),
            };
            self.problems.push(Problem::new(self.place, message).with_help(help));
        }
        if asks.of.is_empty() && !asks.bare_truth && !asks.lost && asks.triggers.is_empty() {
            self.say("this doesn't depend on anything that happens");
        }
        // What is wrong with the parts would be said of the whole again.
        if self.problems.len() == before {
            self.kinds(comparison);
            self.truth(comparison, &asks);
        }
    }

    fn at(&mut self, subject: &Subject, message: impl Into<String>) {
        self.problems.push(Problem::new(subject.event.place, message));
    }

    /// The event behind a subject, if it is open and has that part.
    fn subject(&mut self, subject: &Subject) -> Option<OpenEvent> {
        let event = self.note(self.world.open_event(&subject.event).cloned())?;
        let name = &subject.event;
        let wrong = match &subject.part {
            Part::Whole => None,
            Part::Cpu(cpu) => match &event.target {
                Target::Cpus(cpus) | Target::SystemWide(Some(cpus)) if cpus.contains(*cpu) => None,
                Target::SystemWide(None) if cpu.0 < self.world.cpus => None,
                Target::Task(_) | Target::TaskOnCpu(..) => {
                    Some(format!("`{name}` counts a task: what it counted on one CPU is not kept"))
                }
                _ => Some(format!("`{name}` is not open on cpu{cpu}")),
            },
            Part::Own | Part::Retired => self.family(name, &event).err(),
            Part::Child(child) => match self.family(name, &event) {
                Err(wrong) => Some(wrong),
                Ok(task) => {
                    self.note(self.world.task(child).map(|_| ()))?;
                    let inherits = self.world.inherits(child.as_str(), &task, event.opened);
                    (!inherits)
                        .then(|| format!("`{child}` has not inherited `{name}`: it was not forked after the open"))
                }
            },
        };
        match wrong {
            Some(wrong) => {
                self.at(subject, wrong);
                None
            }
            None => Some(event),
        }
    }

    /// The task at the root of an event's family.
    fn family(&self, name: &Name, event: &OpenEvent) -> Result<String, String> {
        match &event.target {
            Target::Task(task) | Target::TaskOnCpu(task, _) if event.flags.contains(&Flag::Inherit) => {
                Ok(task.text.clone())
            }
            _ => Err(format!("`{name}` has no children: it was not opened on a task with `inherit`")),
        }
    }

    fn attribute(&mut self, subject: &Subject, attribute: Attribute) {
        let Some(event) = self.subject(subject) else { return };
        if matches!(attribute, Attribute::Gap | Attribute::Gaps) && !matches!(event.target, Target::SystemWide(_)) {
            self.at(subject, format!("`{}` has no gaps: only system-wide sets follow CPUs", subject.event));
        }
    }

    fn kinds(&mut self, comparison: &Comparison) {
        let (left, right) = (self.kind(&comparison.left, comparison), self.kind(&comparison.right, comparison));
        let (Ok(left), Ok(right)) = (left, right) else {
            self.say("times can be added to times, and multiplied with or divided by numbers");
            return;
        };
        let Some(kind) = alike(left, right) else {
            self.say("this compares a time with a number");
            return;
        };
        let tolerance = match comparison.relation {
            Relation::Near(Tolerance::Time(_)) => Kind::Time,
            Relation::Near(Tolerance::Number(number)) if number.as_whole() != Some(0) => Kind::Number,
            _ => Kind::Either,
        };
        match (kind, tolerance) {
            (Kind::Time, Kind::Number) => self.say("this compares times: the tolerance needs a unit, such as 5ms"),
            (Kind::Number, Kind::Time) => self.say("this compares numbers: the tolerance can't be a time"),
            _ => {}
        }
    }

    fn kind(&self, expr: &Expr, comparison: &Comparison) -> Result<Kind, ()> {
        let of_count = |subject: Option<&Subject>| {
            let event = subject.and_then(|subject| self.world.events.get(subject.event.as_str()));
            if event.is_some_and(|event| counts_time(&event.event)) { Kind::Either } else { Kind::Number }
        };
        Ok(match expr {
            Expr::Number(number) if number.as_whole() == Some(0) => Kind::Either,
            Expr::Number(_) | Expr::Lost | Expr::Fired(_) => Kind::Number,
            Expr::Time(_) => Kind::Time,
            Expr::Truth(_) => of_count(comparison.subject()),
            Expr::Of(_, Attribute::Enabled | Attribute::Running | Attribute::Gap) => Kind::Time,
            Expr::Of(subject, Attribute::Count | Attribute::Estimate | Attribute::Truth(_)) => of_count(Some(subject)),
            Expr::Of(_, Attribute::Share | Attribute::Gaps | Attribute::Lost) => Kind::Number,
            Expr::Arithmetic(left, operator, right) => {
                let (left, right) = (self.kind(left, comparison)?, self.kind(right, comparison)?);
                match (operator, left, right) {
                    (Operator::Add | Operator::Subtract, left, right) => alike(left, right).ok_or(())?,
                    (Operator::Multiply, Kind::Time, Kind::Time) | (Operator::Divide, Kind::Number, Kind::Time) => {
                        return Err(());
                    }
                    (Operator::Divide, Kind::Time, Kind::Time) => Kind::Number,
                    (Operator::Multiply | Operator::Divide, Kind::Number, Kind::Number) => Kind::Number,
                    (Operator::Multiply | Operator::Divide, Kind::Either, _) => Kind::Either,
                    (Operator::Multiply | Operator::Divide, _, Kind::Either) => Kind::Either,
                    (Operator::Multiply | Operator::Divide, ..) => Kind::Time,
                }
            }
        })
    }

    /// What cannot be known off the simulator.
    fn truth(&mut self, comparison: &Comparison, asks: &Asks<'_>) {
        if self.world.sim_only {
            return;
        }
        let bare = comparison.subject().filter(|_| asks.bare_truth);
        let asked = asks.of.iter().filter(|(_, attribute)| matches!(attribute, Attribute::Truth(_)));
        let subjects: Vec<&Subject> = asked.map(|(subject, _)| *subject).chain(bare).collect();
        for subject in subjects {
            let Some(event) = self.world.events.get(subject.event.as_str()) else { continue };
            let of_task = matches!(event.target, Target::Task(_) | Target::TaskOnCpu(..));
            let known = if of_task { task_truth(&event.event) } else { cpu_truth(&event.event) };
            let exec_within = self.world.exec_within(event).filter(|_| hides_in_exec(&event.event));
            let (message, help) = match (exec_within, known) {
                (Some(task), _) => (
                    format!("`{task}` began another program: it is not known what of `{}` that took", event.event),
                    "reset it after the exec, or expect at least as many",
                ),
                (None, KernelTruth::Unknown) => {
                    let whole = if of_task { "" } else { "whole CPUs of " };
                    let message = format!("the truth is not known of `{}` on {whole}a kernel", event.event);
                    (message, "expect something else, or add a line `sim only: REASON`")
                }
                (None, KernelTruth::Near) if matches!(comparison.relation, Relation::Equal | Relation::NotEqual) => (
                    format!("the truth of `{}` is known only nearly on a kernel", event.event),
                    "write `~ truth within 2%`, or add a line `sim only: REASON`",
                ),
                (None, KernelTruth::Near | KernelTruth::Exact) => continue,
            };
            self.problems.push(Problem::elsewhere(self.place, message).with_help(help));
        }
    }
}

#[derive(Default)]
struct Asks<'a> {
    of: Vec<(&'a Subject, Attribute)>,
    bare_truth: bool,
    lost: bool,
    triggers: Vec<&'a Name>,
}

impl<'a> Asks<'a> {
    fn of(comparison: &'a Comparison) -> Self {
        let mut asks = Self::default();
        for leaf in comparison.leaves() {
            match leaf {
                Expr::Of(subject, attribute) => asks.of.push((subject, *attribute)),
                Expr::Truth(_) => asks.bare_truth = true,
                Expr::Lost => asks.lost = true,
                Expr::Fired(trigger) => asks.triggers.push(trigger),
                Expr::Number(_) | Expr::Time(_) | Expr::Arithmetic(..) => {}
            }
        }
        asks
    }
}

/// What both values count, if that is the same.
fn alike(left: Kind, right: Kind) -> Option<Kind> {
    match (left, right) {
        (Kind::Either, other) | (other, Kind::Either) => Some(other),
        (left, right) => (left == right).then_some(left),
    }
}
