//! What expectations mean, for every runner alike.
//!
//! What it is: a runner says what it sees ([`Observe`]), [`evaluate`] says whether that was expected, and if not, what was
//! seen instead.
//!
//! **Invariant:** exact. Counts, times and shares are compared as whole numbers and fractions, never as floating-point
//! numbers.

mod ratio;

use std::fmt;

use pmux_engine::count::Estimate;
use pmux_engine::{Count, EventState, Nanos};

use super::ast::{
    Attribute, Comparison, Expectation, Expr, Name, Operator, Relation, StateExpectation, StateRelation, Subject,
    Tolerance, Window,
};
use super::vocabulary::Word;
use ratio::Ratio;

/// What a runner sees. An error is a sentence that says why there is nothing to see.
pub trait Observe {
    /// What a subject has counted by now.
    ///
    /// # Errors
    /// Why it can't be read.
    fn count(&mut self, subject: &Subject) -> Result<Count, String>;

    /// The state of each event that the subject stands for: one, or one for each CPU.
    ///
    /// # Errors
    /// Why it can't be known.
    fn states(&mut self, subject: &Subject) -> Result<Vec<EventState>, String>;

    /// What really happened.
    ///
    /// # Errors
    /// Why it can't be known.
    fn truth(&mut self, subject: &Subject, window: Window) -> Result<u64, String>;

    /// For how long the CPUs of a system-wide set were not counted.
    ///
    /// # Errors
    /// Why it can't be known.
    fn gap(&mut self, subject: &Subject) -> Result<Gap, String>;

    /// How many records of a subject were lost; of `None`: in the whole run.
    ///
    /// # Errors
    /// Why it can't be known.
    fn lost(&mut self, subject: Option<&Subject>) -> Result<u64, String>;

    /// How often a trigger has fired.
    ///
    /// # Errors
    /// Why it can't be known.
    fn fired(&mut self, trigger: &Name) -> Result<u64, String>;
}

/// For how long CPUs were not counted while their set was armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gap {
    /// How long, added up over the CPUs.
    pub missed: Nanos,
    /// How many times one of them went away.
    pub times: u64,
}

/// Whether what is expected is so.
///
/// # Errors
/// What was seen instead, or why nothing was seen: one sentence, without the place.
pub fn evaluate(expectation: &Expectation, facts: &mut dyn Observe) -> Result<(), String> {
    let met = match expectation {
        Expectation::Compare(comparison) => compare(comparison, facts),
        Expectation::State(expected) => states(expected, facts),
    };
    met.map_err(|why| format!("expected {expectation}, but {why}"))
}

fn states(expected: &StateExpectation, facts: &mut dyn Observe) -> Result<(), String> {
    let seen = facts.states(&expected.subject)?;
    let met = |state: &EventState| match expected.relation {
        StateRelation::OneOf => expected.states.contains(state),
        StateRelation::NoneOf => !expected.states.contains(state),
    };
    match seen.iter().find(|state| !met(state)) {
        None if seen.is_empty() => Err(format!("{} stands for no event now", expected.subject)),
        None => Ok(()),
        Some(state) if seen.len() == 1 => Err(format!("it is {}", state.word())),
        Some(state) => Err(format!("one of {} events is {}", seen.len(), state.word())),
    }
}

fn compare(comparison: &Comparison, facts: &mut dyn Observe) -> Result<(), String> {
    let mut reader = Reader { facts, subject: comparison.subject(), counts: Vec::new() };
    let left = reader.value(&comparison.left)?;
    let right = reader.value(&comparison.right)?;
    let met = match comparison.relation {
        Relation::Equal => left.ratio == right.ratio,
        Relation::NotEqual => left.ratio != right.ratio,
        Relation::AtMost => left.ratio <= right.ratio,
        Relation::AtLeast => left.ratio >= right.ratio,
        Relation::Below => left.ratio < right.ratio,
        Relation::Above => left.ratio > right.ratio,
        Relation::Near(tolerance) => {
            let off = left.ratio.subtract(right.ratio).ok_or(TOO_LARGE)?.magnitude();
            off <= allowed(tolerance, right.ratio).ok_or(TOO_LARGE)?
        }
    };
    if met {
        return Ok(());
    }
    let mut said = Vec::new();
    for (expr, value) in [(&comparison.left, left), (&comparison.right, right)] {
        // A literal says itself what it is.
        if !matches!(expr, Expr::Number(_) | Expr::Time(_)) {
            said.push(format!("{expr} is {value}"));
        }
    }
    Err(if said.is_empty() { "it is not so".into() } else { said.join(" and ") })
}

const TOO_LARGE: &str = "the numbers are too large to be calculated with";

fn allowed(tolerance: Tolerance, of: Ratio) -> Option<Ratio> {
    match tolerance {
        Tolerance::Percent(percent) => of.magnitude().multiply(Ratio::decimal(percent))?.divide(Ratio::whole(100)),
        Tolerance::Number(number) => Some(Ratio::decimal(number)),
        Tolerance::Time(span) => Some(Ratio::whole(span.0)),
    }
}

#[derive(Clone, Copy)]
struct Value {
    ratio: Ratio,
    unit: Unit,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    None,
    Time,
}

impl Value {
    fn number(number: u64) -> Self {
        Self { ratio: Ratio::whole(number), unit: Unit::None }
    }

    fn time(span: Nanos) -> Self {
        Self { ratio: Ratio::whole(span.0), unit: Unit::Time }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.ratio.as_f64();
        match (self.unit, self.ratio.as_whole()) {
            (Unit::Time, _) => {
                let units = [("s", 1e9), ("ms", 1e6), ("us", 1e3)];
                let (unit, size) = units.into_iter().find(|(_, size)| seen.abs() >= *size).unwrap_or(("ns", 1.0));
                write!(f, "{}{unit}", seen / size)
            }
            (Unit::None, Some(whole)) => write!(f, "{whole}"),
            (Unit::None, None) => write!(f, "{seen:.6}"),
        }
    }
}

/// Reads each subject once, so that the attributes of one comparison are of one moment.
struct Reader<'a> {
    facts: &'a mut dyn Observe,
    subject: Option<&'a Subject>,
    counts: Vec<(&'a Subject, Count)>,
}

impl<'a> Reader<'a> {
    fn value(&mut self, expr: &'a Expr) -> Result<Value, String> {
        match expr {
            Expr::Number(number) => Ok(Value { ratio: Ratio::decimal(*number), unit: Unit::None }),
            Expr::Time(span) => Ok(Value::time(*span)),
            Expr::Lost => self.facts.lost(None).map(Value::number),
            Expr::Fired(trigger) => self.facts.fired(trigger).map(Value::number),
            Expr::Truth(window) => match self.subject {
                Some(subject) => self.facts.truth(subject, *window).map(Value::number),
                None => Err("it does not say whose truth".into()),
            },
            Expr::Of(subject, attribute) => self.attribute(subject, *attribute),
            Expr::Arithmetic(left, operator, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                let unit = match operator {
                    Operator::Divide if left.unit == right.unit => Unit::None,
                    _ if left.unit == Unit::Time || right.unit == Unit::Time => Unit::Time,
                    _ => Unit::None,
                };
                let ratio = match operator {
                    Operator::Add => left.ratio.add(right.ratio),
                    Operator::Subtract => left.ratio.subtract(right.ratio),
                    Operator::Multiply => left.ratio.multiply(right.ratio),
                    Operator::Divide if right.ratio.is_zero() => return Err(format!("{expr} divides by zero")),
                    Operator::Divide => left.ratio.divide(right.ratio),
                };
                Ok(Value { ratio: ratio.ok_or(TOO_LARGE)?, unit })
            }
        }
    }

    fn attribute(&mut self, subject: &'a Subject, attribute: Attribute) -> Result<Value, String> {
        match attribute {
            Attribute::Count => self.count(subject).map(|count| Value::number(count.value)),
            Attribute::Enabled => self.count(subject).map(|count| Value::time(count.enabled)),
            Attribute::Running => self.count(subject).map(|count| Value::time(count.running)),
            Attribute::Share => {
                let count = self.count(subject)?;
                let (running, enabled) = (Ratio::whole(count.running.0), Ratio::whole(count.enabled.0));
                let ratio = running.divide(enabled).ok_or_else(|| format!("{subject} was never enabled"))?;
                Ok(Value { ratio, unit: Unit::None })
            }
            Attribute::Estimate => match self.count(subject)?.estimate() {
                Estimate::Exact(value) | Estimate::Scaled { value, .. } => Ok(Value::number(value)),
                Estimate::NotCounted => Err(format!("{subject} was not counted: it never ran")),
            },
            Attribute::Gap => self.facts.gap(subject).map(|gap| Value::time(gap.missed)),
            Attribute::Gaps => self.facts.gap(subject).map(|gap| Value::number(gap.times)),
            Attribute::Lost => self.facts.lost(Some(subject)).map(Value::number),
            Attribute::Truth(window) => self.facts.truth(subject, window).map(Value::number),
        }
    }

    fn count(&mut self, subject: &'a Subject) -> Result<Count, String> {
        if let Some((_, count)) = self.counts.iter().find(|(known, _)| *known == subject) {
            return Ok(*count);
        }
        let count = self.facts.count(subject)?;
        self.counts.push((subject, count));
        Ok(count)
    }
}
