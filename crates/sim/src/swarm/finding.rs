//! What a run finds.
//!
//! **Invariant:** plain data; two troubles are alike if the same thing is wrong, whatever the numbers.

use crate::check::Violation;
use crate::scenario::ast::Errno;
use pmux_engine::Count;
use std::any::Any;
use std::fmt;

/// Something that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// A check has found something.
    Violation(Violation),
    /// A statement was refused though nothing had gone wrong.
    Refused {
        /// The error's number.
        errno: i32,
        /// Why.
        why: String,
        /// The statement.
        statement: String,
    },
    /// A statement succeeded that must fail.
    NotRefused {
        /// How it must fail.
        expected: Errno,
        /// The statement.
        statement: String,
    },
    /// Where counters are shared, something is otherwise than where they are not.
    Divergence(Divergence),
    /// There was a panic, with this message.
    Panic(String),
    /// A statement or machine was made up that makes no sense: the fault is in the making.
    Senseless(String),
}

impl Finding {
    /// Whether the same thing is wrong.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Violation(one), Self::Violation(other)) => {
                // The sentence of an expectation has numbers in it.
                one.checker == other.checker && without_numbers(&one.what) == without_numbers(&other.what)
            }
            (Self::Refused { errno: one, .. }, Self::Refused { errno: other, .. }) => one == other,
            (Self::NotRefused { expected: one, .. }, Self::NotRefused { expected: other, .. }) => one == other,
            (Self::Divergence(one), Self::Divergence(other)) => {
                std::mem::discriminant(one) == std::mem::discriminant(other)
            }
            (Self::Panic(one), Self::Panic(other)) | (Self::Senseless(one), Self::Senseless(other)) => {
                without_numbers(one) == without_numbers(other)
            }
            _ => false,
        }
    }

    pub(super) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        Self::Panic(text.unwrap_or("a panic without a message").to_owned())
    }
}

/// What is otherwise where counters are shared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Divergence {
    /// What an event has counted, or its times, though it was multiplexed on neither machine.
    Count {
        /// The event, and where.
        event: String,
        /// What it says where counters are shared.
        shared: Count,
        /// What it says where they are not.
        alone: Count,
    },
    /// What comes of a statement.
    Outcome {
        /// The statement.
        statement: String,
        /// What comes of it where counters are shared.
        shared: String,
        /// What comes of it where they are not.
        alone: String,
    },
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { event, shared, alone } => {
                let say = |it: &Count| format!("{} in {} of {} ns", it.value, it.running.0, it.enabled.0);
                let (shared, alone) = (say(shared), say(alone));
                write!(f, "`{event}` counts {shared} where counters are shared, and {alone} where they are not")
            }
            Self::Outcome { statement, shared, alone } => {
                write!(f, "`{statement}`: {shared} where counters are shared, and {alone} where they are not")
            }
        }
    }
}

fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

impl From<Violation> for Finding {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(violation) => violation.fmt(f),
            Self::Refused { errno, why, statement } => {
                write!(f, "`{statement}` failed with errno {errno}, and nothing had gone wrong: {why}")
            }
            Self::NotRefused { expected, statement } => {
                write!(f, "`{statement}` must fail with {expected}, and did not fail")
            }
            Self::Divergence(divergence) => divergence.fmt(f),
            Self::Panic(message) => write!(f, "panic: {message}"),
            Self::Senseless(why) => write!(f, "a statement was made up that makes no sense: {why}"),
        }
    }
}

impl std::error::Error for Finding {}
