//! Expectations: what must be so at this point of a scenario.
//!
//! Read first: [`Expectation`], then [`Expr`] and [`Subject`]. What they mean is in [`crate::scenario::eval`], for every
//! runner alike.
//!
//! **Invariant:** plain data.

use pmux_engine::{CpuId, EventState, Nanos};

use super::{Decimal, Name};

/// What must be so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expectation {
    /// `expect LEFT == RIGHT` and the like.
    Compare(Comparison),
    /// `expect e.state == active|inactive`: the state is one (or none) of these.
    State(StateExpectation),
}

/// Two values and how they must be to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comparison {
    /// The left side.
    pub left: Expr,
    /// How they must be to each other.
    pub relation: Relation,
    /// The right side.
    pub right: Expr,
}

impl Comparison {
    /// The values that both sides are made of, from left to right.
    #[must_use]
    pub fn leaves(&self) -> Vec<&Expr> {
        let (mut leaves, mut rest) = (Vec::new(), vec![&self.right, &self.left]);
        while let Some(expr) = rest.pop() {
            match expr {
                Expr::Arithmetic(left, _, right) => rest.extend([&**right, &**left]),
                leaf => leaves.push(leaf),
            }
        }
        leaves
    }

    /// Whose truth a bare `truth` is: the one subject that the comparison names. `None` where it names none or several.
    #[must_use]
    pub fn subject(&self) -> Option<&Subject> {
        let mut subjects = self.leaves().into_iter().filter_map(|leaf| match leaf {
            Expr::Of(subject, _) => Some(subject),
            _ => None,
        });
        let first = subjects.next()?;
        subjects.all(|subject| subject == first).then_some(first)
    }
}

/// How two values must be to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `>`
    Above,
    /// `LEFT ~ RIGHT within TOLERANCE`.
    Near(Tolerance),
}

/// How far the left side may be from the right one, up or down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tolerance {
    /// `within 2%`: of the right side.
    Percent(Decimal),
    /// `within 12`, `within 0.05`.
    Number(Decimal),
    /// `within 5ms`.
    Time(Nanos),
}

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expr {
    /// `12`, `0.4`.
    Number(Decimal),
    /// `5ms`; as a number it is its nanoseconds.
    Time(Nanos),
    /// `truth` or `truth(enabled)`: of [`Comparison::subject`].
    Truth(Window),
    /// `e1.count`, `s.cpu1.gap`, `e1.children[C].count`, `e1.truth(enabled)`.
    Of(Subject, Attribute),
    /// `lost`: all records of the whole run that were lost, in all rings.
    Lost,
    /// `fired(hot)`: how often a trigger has fired.
    Fired(Name),
    /// `2 * e2.count`: two values and what is done with them.
    Arithmetic(Box<Expr>, Operator, Box<Expr>),
}

/// `+`, `-`, `*`, `/`; the usual order, equals from left to right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

/// Whose attribute.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Subject {
    /// The event, by the name that its `open` gave it. It may stand for events on several CPUs.
    pub event: Name,
    /// All of it, or which part.
    pub part: Part,
}

/// A part of what an event has counted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// `e.count`: everything: all CPUs, its own task and all children, those that exited too.
    Whole,
    /// `e.cpu1.count`: what was counted on that CPU.
    Cpu(CpuId),
    /// `e.own.count`: the task that it was opened on, without children.
    Own,
    /// `e.retired.count`: all children that have exited.
    Retired,
    /// `e.children[C].count`: one child, alive or not. Its own count, without that of its own children.
    Child(Name),
}

/// What is asked of a subject.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Attribute {
    /// `count`: occurrences while it ran (nanoseconds for clocks).
    Count,
    /// `enabled`: for how long it was enabled, with its context there.
    Enabled,
    /// `running`: for how long it ran on a counter.
    Running,
    /// `share`: running over enabled, 0 to 1. No value where it was never enabled.
    Share,
    /// `estimate`: the count, scaled up to the time enabled. No value where it never ran.
    Estimate,
    /// `gap`: for how long a CPU of a system-wide set was not counted while the set was armed; of the whole: the sum over its CPUs.
    Gap,
    /// `gaps`: how many times a CPU of a system-wide set went away; of the whole: the sum over its CPUs.
    Gaps,
    /// `lost`: records of this event that were lost.
    Lost,
    /// `truth`, `truth(enabled)`: what really happened.
    Truth(Window),
}

/// In which time something really happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Window {
    /// `truth`: while the event ran on a counter.
    Running,
    /// `truth(enabled)`: while it was enabled.
    Enabled,
}

/// `SUBJECT.state == STATE|STATE…`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateExpectation {
    /// Whose state. Of the whole where an event is open on several CPUs: the state of each of them.
    pub subject: Subject,
    /// Whether it must be one of them, or none.
    pub relation: StateRelation,
    /// The states, at least one, each once.
    pub states: Vec<EventState>,
}

/// Whether a state is in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateRelation {
    /// `==`: it is one of them.
    OneOf,
    /// `!=`: it is none of them.
    NoneOf,
}
