//! The registers: program, start, stop, read.
//!
//! What it is: the trait through which the engine touches counters, and the right to do so.
//!
//! **Invariant:** only the engine calls a bank, and only with its lock held; the pure core never sees one.
//!
//! Linux: `struct pmu`: `add`, `del`, `start`, `stop`, `read` (include/linux/perf_event.h).

use super::EventSpec;
use crate::id::Nanos;
use crate::target::{EventKey, Filter};
use core::fmt;

/// A counter of a bank, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Slot(pub u32);

impl Slot {
    /// No slot.
    pub const NONE: Self = Self(u32::MAX);
}

/// The right to touch a slot: stale as soon as the slot has been given to another event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    /// The PMU that the slot belongs to.
    pub pmu: crate::id::PmuId,
    /// The slot.
    pub slot: Slot,
    /// Which tenant of the slot. 64 bits: a slot that changes hands at every task switch never comes round.
    pub generation: u64,
}

/// What to program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Which event of its context it is.
    pub event: EventKey,
    /// What it counts.
    pub spec: EventSpec,
    /// Whether only part of the context's time is meant. Where the host tells on which CPU a task is, the engine follows
    /// [`Filter::OnCpu`] itself; a bank that can't follow a cgroup refuses [`Filter::Cgroup`].
    pub filter: Filter,
    /// The slot of the group's leader, where the event has one beside itself. A bank that multiplexes by itself
    /// keeps the two together.
    pub leader: Option<Lease>,
    /// How many events the group has, this one included.
    pub group_size: usize,
    /// The value that the register starts from.
    pub start: u64,
}

/// How long a slot ran, as far as the bank knows better than the engine.
///
/// A PMU that delegates [`super::Delegated::MULTIPLEXING`] answers `Measured`. Any other answers `Whole`, or `Measured` where
/// it can tell that a slot was started and yet did not run: then another user had the counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotTime {
    /// It ran from every start to the next stop.
    Whole,
    /// The bank multiplexes; these are its totals since the slot was programmed.
    Measured {
        /// How long it was enabled.
        enabled: Nanos,
        /// How long it ran.
        running: Nanos,
    },
}

/// One reading of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotReading {
    /// The register, as wide as the PMU's counters are.
    pub raw: u64,
    /// How long it ran.
    pub time: SlotTime,
}

/// Why a bank refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BankError {
    /// No PMU counts this event.
    NoSuchEvent,
    /// The PMU counts it, but not like this.
    NotSupported,
    /// The caller may not.
    NotPermitted,
    /// The attribute contradicts itself or asks for what can't be.
    Invalid,
    /// Every slot of the kind is taken.
    SlotsExhausted,
    /// Another user holds the counter for itself.
    Busy,
    /// The task is gone.
    NoSuchTask,
    /// The CPU is offline or doesn't exist.
    NoSuchCpu,
    /// The process holds as many open events as it may.
    TooManyOpen,
    /// No memory.
    OutOfMemory,
    /// A pinned event could not be kept on its counter.
    Unscheduled,
    /// Another refusal, by the host's number.
    Other(i32),
}

impl BankError {
    /// The `errno` of Linux for it; the mapping is total, and [`BankError::from_errno`] is its inverse.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::NoSuchEvent => 2,
            Self::NoSuchTask => 3,
            Self::OutOfMemory => 12,
            Self::NotPermitted => 13,
            Self::Busy => 16,
            Self::NoSuchCpu => 19,
            Self::Invalid => 22,
            Self::TooManyOpen => 24,
            Self::SlotsExhausted => 28,
            Self::Unscheduled => 61,
            Self::NotSupported => 95,
            Self::Other(errno) => errno,
        }
    }

    /// The error for an `errno` of Linux. `EPERM` stays [`BankError::Other`], so that the number is kept.
    #[must_use]
    pub const fn from_errno(errno: i32) -> Self {
        match errno {
            2 => Self::NoSuchEvent,
            3 => Self::NoSuchTask,
            12 => Self::OutOfMemory,
            13 => Self::NotPermitted,
            16 => Self::Busy,
            19 => Self::NoSuchCpu,
            22 => Self::Invalid,
            24 => Self::TooManyOpen,
            28 => Self::SlotsExhausted,
            61 => Self::Unscheduled,
            95 => Self::NotSupported,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for BankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchEvent => "no PMU counts this event",
            Self::NotSupported => "the PMU can't count this event like this",
            Self::NotPermitted => "not permitted",
            Self::Invalid => "the PMU finds the request invalid",
            Self::SlotsExhausted => "every slot is taken",
            Self::Busy => "another event holds the counter alone",
            Self::NoSuchTask => "the task is gone",
            Self::NoSuchCpu => "the CPU is offline or doesn't exist",
            Self::TooManyOpen => "too many open events",
            Self::OutOfMemory => "out of memory",
            Self::Unscheduled => "a pinned event could not be kept on its counter",
            Self::Other(errno) => return write!(f, "refused with errno {errno}"),
        })
    }
}

/// The counters of one context, or the registers of a CPU: see [`crate::Host::bank`].
///
/// A slot goes through `program`, any number of `start` and `stop`, and `release`. It may be read at any time between.
pub trait CounterBank: Send {
    /// An event was attached that is given slots only now and then, of a PMU with
    /// [`super::Delegated::PREPARATION`]: the bank gets for it what has to be there from the beginning, such as what
    /// tasks that are forked from now on inherit. `program` has no slot and no leader's slot yet; `leader` is the first
    /// event of its group, possibly itself, and is prepared before the others.
    ///
    /// # Errors
    /// Whatever the hardware or the host says; the event is then refused.
    fn prepare(&mut self, leader: EventKey, program: &Program) -> Result<(), BankError> {
        let _ = (leader, program);
        Ok(())
    }

    /// An event that was prepared was detached, or its task or CPU is gone: it will not be given a slot any more.
    fn dismiss(&mut self, event: EventKey) {
        let _ = event;
    }

    /// All that is about to be programmed of one group, its leader first: for a bank that has to ask for a group as a whole. What
    /// becomes of it is the answer to `program`, which follows for each of them.
    fn announce(&mut self, programs: &[Program]) {
        let _ = programs;
    }

    /// Makes a slot ready to count; it does not run yet, unless the attribute says so and the PMU delegates that.
    ///
    /// # Errors
    /// Whatever the hardware or the host says; the slot is then free.
    fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError>;

    /// Lets it count.
    ///
    /// # Errors
    /// Where the host refuses; the slot stays stopped.
    fn start(&mut self, lease: Lease) -> Result<(), BankError>;

    /// Stops it; the register keeps its value.
    fn stop(&mut self, lease: Lease);

    /// Reads it.
    ///
    /// # Errors
    /// [`BankError::Unscheduled`] where a pinned slot fell off its counter; otherwise what the host says.
    fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError>;

    /// Reads several slots of one group as near to one moment as the hardware allows; `out` is as long as `leases`.
    ///
    /// # Errors
    /// As [`CounterBank::read`]; `out` is then meaningless.
    fn read_group(&mut self, leases: &[Lease], out: &mut [SlotReading]) -> Result<(), BankError> {
        for (lease, out) in leases.iter().zip(out) {
            *out = self.read(*lease)?;
        }
        Ok(())
    }

    /// Lets a running slot go on for another event that counts the same: reads it, and from now on it belongs to `to`,
    /// which is the same slot under the lease of its next tenant.
    ///
    /// # Errors
    /// [`BankError::NotSupported`] by default: the slot stays with `from`, and the engine programs it anew.
    fn hand_over(&mut self, from: Lease, to: Lease) -> Result<SlotReading, BankError> {
        let _ = (from, to);
        Err(BankError::NotSupported)
    }

    /// Lets a slot count what `program` says from now on: its value goes on, and it runs if it ran. Only for slots that an event
    /// keeps from its opening to its closing; another kind of breakpoint has its debug register reserved.
    ///
    /// # Errors
    /// [`BankError::NotSupported`] by default; whatever the hardware or the host says. It counts what it counted then.
    fn modify(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        let _ = (lease, program);
        Err(BankError::NotSupported)
    }

    /// Whether a task may have inherited a slot that follows forks by itself. Only where no task can have done so does a new event
    /// share it: that one would not follow the tasks that were forked before.
    fn may_have_heirs(&mut self, lease: Lease) -> bool {
        let _ = lease;
        true
    }

    /// Whether the host has ended what a slot counts, although its task lives: a slot of a kernel below ends when the task
    /// executes a set-user-id program. It keeps its value and never counts again, so no new event shares it. `lease` is a
    /// group leader's.
    fn has_ended(&mut self, lease: Lease) -> bool {
        let _ = lease;
        false
    }

    /// Which slots of a PMU have wrapped since the last question.
    fn take_overflows(&mut self, pmu: crate::id::PmuId) -> super::SlotMask {
        let _ = pmu;
        super::SlotMask::default()
    }

    /// Gives it back; if it runs, it stops.
    fn release(&mut self, lease: Lease);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_and_back() {
        for errno in 1..=133 {
            assert_eq!(BankError::from_errno(errno).errno(), errno);
        }
    }
}
