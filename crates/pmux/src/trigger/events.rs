//! What triggers tell.
//!
//! **Invariant:** a trigger that fires says from which numbers.

use super::language::{Comparison, LevelQuantity, Pressure};
use pmux_engine::Nanos;
pub use pmux_engine::event_set::TriggerTarget;
use std::fmt;

/// What [`super::Triggers::take`] tells. Rules are named by number, in the order in which they were given.
#[derive(Clone, PartialEq, Debug)]
pub enum TriggerEvent {
    /// A trigger fires.
    Fired(Fired),
    /// A trigger would fire, but is cooling down, or [`super::Triggers::hold_back`] was called.
    HeldBack {
        /// Whose.
        rule: usize,
        /// When, on the monotonic clock; up to when, where it is several times.
        at: Nanos,
        /// How often.
        times: u64,
    },
    /// A condition holds somewhere, from now on.
    Begins {
        /// Whose.
        rule: usize,
        /// When, on the monotonic clock.
        at: Nanos,
    },
    /// A condition holds nowhere any more.
    Ends {
        /// Whose.
        rule: usize,
        /// When, on the monotonic clock.
        at: Nanos,
    },
    /// Something that triggers listened to is not there any more.
    Lost {
        /// Whose.
        rules: Vec<usize>,
        /// What, and what that means, in a sentence without a full stop.
        what: String,
    },
}

/// A trigger that fires.
#[derive(Clone, PartialEq, Debug)]
pub struct Fired {
    /// Whose.
    pub rule: usize,
    /// When, on the monotonic clock.
    pub at: Nanos,
    /// Where its condition holds. A cgroup is a number of the target's list.
    pub place: TriggerTarget,
    /// The cgroup's name, where that is the place.
    pub cgroup: Option<String>,
    /// Why: for each of its terms.
    pub reasons: Vec<Reason>,
}

impl fmt::Display for Fired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, reason) in self.reasons.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            reason.fmt(f)?;
        }
        match self.place {
            TriggerTarget::All => Ok(()),
            TriggerTarget::Cpu(cpu) => write!(f, " (CPU {cpu})"),
            TriggerTarget::Cgroup(number) => match &self.cgroup {
                Some(name) => write!(f, " (cgroup {})", crate::event::printable(name)),
                None => write!(f, " (cgroup {})", number.0),
            },
        }
    }
}

/// Why a term holds.
#[derive(Clone, PartialEq, Debug)]
pub enum Reason {
    /// A number is beyond its limit.
    Number {
        /// Which number.
        quantity: LevelQuantity,
        /// What it is: in a second, or a ratio.
        value: f64,
        /// How it was compared.
        comparison: Comparison,
        /// With what.
        limit: f64,
    },
    /// Tasks have waited.
    Pressure(Pressure),
    /// Something was hit.
    Hit(TriggerHit),
    /// A process has ended.
    Ended {
        /// Which.
        pid: i32,
    },
    /// There was a line.
    Line(String),
    /// There was a signal.
    Signal(&'static str),
}

/// A hit of a tracepoint or of a watched address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TriggerHit {
    /// What was hit, as the trigger calls it.
    pub what: String,
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// The CPU.
    pub cpu: u32,
    /// When, on the monotonic clock.
    pub at: Nanos,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { quantity: LevelQuantity::Rate(event), value, comparison, limit } => {
                write!(f, "rate({event}) is {}/s ({comparison} {limit}/s)", rounded(*value))
            }
            Self::Number { quantity: LevelQuantity::Ratio(event, of), value, comparison, limit } => {
                write!(f, "{event} / {of} is {} ({comparison} {limit})", rounded(*value))
            }
            Self::Pressure(pressure) => write!(f, "{pressure}"),
            Self::Hit(TriggerHit { what, pid, tid, cpu, .. }) => {
                write!(f, "{what} in thread {tid} of process {pid} on CPU {cpu}")
            }
            Self::Ended { pid } => write!(f, "process {pid} has ended"),
            Self::Line(line) => write!(f, "line: {}", crate::event::printable(line)),
            Self::Signal(name) => write!(f, "signal {name}"),
        }
    }
}

/// A number with as many digits as a reader needs.
fn rounded(number: f64) -> String {
    let digits = if number.abs() >= 100.0 { 0 } else { 3 };
    format!("{number:.digits$}")
}
