//! What can go wrong, one small enum per operation.
//!
//! What it is: errors that name the field or the fact at fault, each with its `errno` of Linux.
//!
//! **Invariant:** every error has an errno; none needs an allocation.

use crate::hw_breakpoint::{Full, Taken};
use crate::id::{CpuId, PmuId};
use crate::pmu::{BankError, ParseError};
use core::fmt;

/// Why an event or a group was not opened. `index` counts the events of the group from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The group has no event.
    EmptyGroup,
    /// The group has more events than any machine can place.
    GroupTooLong {
        /// How many it has.
        events: usize,
        /// How many it may have.
        most: usize,
    },
    /// Only the leader of a group can be pinned or exclusive.
    DemandOfSibling {
        /// Which event.
        index: usize,
    },
    /// The host has no such PMU.
    NoSuchPmu {
        /// Which event.
        index: usize,
    },
    /// The PMU doesn't take the event.
    Parse {
        /// Which event.
        index: usize,
        /// Why.
        error: ParseError,
    },
    /// A group can't span two PMUs whose slots are scarce.
    MixedPmus {
        /// The first event of the second PMU.
        index: usize,
    },
    /// The group would not fit even if it were alone.
    NeverFits {
        /// The PMU that is too small.
        pmu: PmuId,
        /// How many events of the group it would have to hold.
        events: usize,
    },
    /// A group that is inherited can't have both events that follow forks by themselves and others.
    MixedInheritance {
        /// The first event that is inherited in another way than the leader.
        index: usize,
    },
    /// The CPU is not online.
    CpuOffline {
        /// The CPU.
        cpu: CpuId,
    },
    /// There is no debug register for an event.
    DebugRegisters {
        /// Which event.
        index: usize,
        /// Where, and how many are in use there. Where others have taken them too, it is the CPU where most are in use that the
        /// ledger knows of.
        full: Full,
        /// Who has them.
        taken: Taken,
    },
    /// The counters refused.
    Bank {
        /// Which event.
        index: usize,
        /// What they said.
        error: BankError,
    },
}

impl OpenError {
    /// The errno that Linux gives in this case.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::EmptyGroup
            | Self::GroupTooLong { .. }
            | Self::DemandOfSibling { .. }
            | Self::MixedPmus { .. }
            | Self::MixedInheritance { .. }
            | Self::NeverFits { .. } => 22,
            Self::NoSuchPmu { .. } | Self::Parse { error: ParseError::NoSuchEvent, .. } => 2,
            Self::Parse { error: ParseError::NotSupported, .. } => 95,
            Self::CpuOffline { .. } => 19,
            Self::DebugRegisters { .. } => 28,
            Self::Bank { error, .. } => error.errno(),
        }
    }

    /// Which event of the group is at fault, where it is one.
    #[must_use]
    pub const fn index(self) -> Option<usize> {
        match self {
            Self::DemandOfSibling { index }
            | Self::NoSuchPmu { index }
            | Self::Parse { index, .. }
            | Self::MixedPmus { index }
            | Self::MixedInheritance { index }
            | Self::DebugRegisters { index, .. }
            | Self::Bank { index, .. } => Some(index),
            _ => None,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyGroup => f.write_str("the group has no event"),
            Self::GroupTooLong { events, most } => write!(f, "a group of {events} events; {most} is the most"),
            Self::DemandOfSibling { index } => {
                write!(f, "event {index} of the group is pinned or exclusive; only the leader can be")
            }
            Self::NoSuchPmu { index } => write!(f, "event {index} asks for a PMU that this machine doesn't have"),
            Self::Parse { index, error: ParseError::NoSuchEvent } => {
                write!(f, "event {index} is unknown to its PMU")
            }
            Self::Parse { index, error: ParseError::NotSupported } => {
                write!(f, "event {index} asks for what its PMU can't do")
            }
            Self::MixedPmus { index } => {
                write!(f, "event {index} belongs to another hardware PMU than the events before it")
            }
            Self::NeverFits { pmu, events } => {
                write!(f, "{events} events of the group need counters of PMU {} at once, more than it has", pmu.0)
            }
            Self::MixedInheritance { index } => {
                write!(f, "event {index} is inherited in another way than the leader of its group")
            }
            Self::CpuOffline { cpu } => write!(f, "CPU {cpu} is offline"),
            Self::DebugRegisters { index, full, taken: Taken::Known } => write!(f, "event {index}: {full}"),
            Self::DebugRegisters { index, full, taken: taken @ (Taken::Outside | Taken::Inherited) } => {
                write!(f, "event {index}: ")?;
                others(*full, *taken, f)
            }
            Self::Bank { index, error } => write!(f, "event {index}: {error}"),
        }
    }
}

impl core::error::Error for OpenError {}

/// Why an event counts what it counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ModifyError {
    /// The id names nothing (any more).
    Closed,
    /// Children count it too, with events of their own.
    Inherited,
    /// Others use its counter, too.
    Shared,
    /// Its PMU doesn't take what it is to count.
    Parse(ParseError),
    /// There is no debug register for it.
    DebugRegisters {
        /// Where, and how many are in use there.
        full: Full,
        /// Who has them.
        taken: Taken,
    },
    /// The counters refused.
    Bank(BankError),
}

impl ModifyError {
    /// The errno that Linux gives in this case.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Closed => 9,
            Self::Inherited | Self::Shared => 16,
            Self::Parse(ParseError::NoSuchEvent) => 2,
            Self::Parse(ParseError::NotSupported) => 95,
            Self::DebugRegisters { .. } => 28,
            Self::Bank(error) => error.errno(),
        }
    }
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the event is closed"),
            Self::Inherited => f.write_str("children of the task count the event too; it stays what it is"),
            Self::Shared => f.write_str("others use its counter, too: open another event, then close this one"),
            Self::Parse(ParseError::NoSuchEvent) => f.write_str("its PMU doesn't know what it is to count"),
            Self::Parse(ParseError::NotSupported) => f.write_str("its PMU can't do what it is asked for"),
            Self::DebugRegisters { full, taken: Taken::Known } => full.fmt(f),
            Self::DebugRegisters { full, taken: taken @ (Taken::Outside | Taken::Inherited) } => {
                others(*full, *taken, f)
            }
            Self::Bank(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ModifyError {}

/// Holders that the ledger doesn't know have registers.
fn others(Full { kind, cpu, in_use, total, .. }: Full, taken: Taken, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let who = match taken {
        Taken::Inherited => "children that have inherited breakpoints, or another program",
        Taken::Known | Taken::Outside => "another program",
    };
    write!(
        f,
        "the {total} debug registers for {kind} breakpoints are in use, {in_use} of them known here (CPU {cpu}), the others \
         by {who}"
    )
}

/// Why an event could not be controlled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// The id names nothing (any more).
    Closed,
    /// The counters refused.
    Bank(BankError),
}

impl ControlError {
    /// The errno that Linux gives in this case.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Closed => 9,
            Self::Bank(error) => error.errno(),
        }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the event is closed"),
            Self::Bank(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ControlError {}

/// Why an event has no ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OutputError {
    /// The id names nothing (any more).
    Closed,
    /// A ring has a power of two of bytes, 8 at least.
    BadSize {
        /// How many were asked for.
        data_bytes: usize,
    },
    /// There is no memory for it.
    OutOfMemory,
    /// The event that it was to be led to has none.
    NoRing,
}

impl OutputError {
    /// The errno that Linux gives in this case.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Closed => 9,
            Self::OutOfMemory => 12,
            Self::BadSize { .. } | Self::NoRing => 22,
        }
    }
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the event is closed"),
            Self::BadSize { data_bytes } => {
                write!(f, "a ring of {data_bytes} bytes; it must be a power of two, and 8 at least")
            }
            Self::OutOfMemory => f.write_str("there is no memory for the ring"),
            Self::NoRing => f.write_str("the event whose ring it was to use has none"),
        }
    }
}

impl core::error::Error for OutputError {}

/// Why an event could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The id names nothing (any more).
    Closed,
    /// The event is in error: a pinned event lost its counter, or its counter refused.
    Error(BankError),
}

impl ReadError {
    /// The errno that Linux gives in this case (a read of an event in error returns end of file there).
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Closed => 9,
            Self::Error(error) => error.errno(),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the event is closed"),
            Self::Error(error) => write!(f, "the event is in error: {error}"),
        }
    }
}

impl core::error::Error for ReadError {}
