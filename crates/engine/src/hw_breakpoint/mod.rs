//! Who may take a debug register: the ledger.
//!
//! What it is: a debug register is reserved when a breakpoint is opened, even if that is disabled, and kept until it is
//! closed. The ledger answers whether there is one left, for any number of CPUs and tasks, and knows who holds the others.
//! Read first: [`Claim`] and [`BpTarget`], then [`Ledger`]. `tasks` and `cpus` are the books behind it: plain state machines; `summary`,
//! what both must know of each other.
//!
//! The rule is the Linux kernel's. A claim of weight w fits if on each CPU that it is for, the registers that the CPU itself
//! holds, plus those that a task may need there, plus w, are at most as many as there are. For a claim of a task that is
//! this task only, because others are not on the CPU at the same moment. For a claim of a CPU it is the task that may need
//! most there. A task may need on a CPU what it holds for that CPU and what it holds wherever it is.
//!
//! **Invariant:** nothing here knows what is watched. Where registers serve one kind only, each kind has books of its own.

pub mod baseline;
mod books;
mod claims;
mod cpus;
mod entries;
mod histogram;
mod ledger;
mod summary;
mod tasks;
mod token;

#[cfg(test)]
mod tests;

pub use ledger::{Ledger, Locks};
pub use summary::LedgerWord;
pub use token::{Reservation, Token};

use crate::cpu_mask::CpuMask;
use crate::id::{CpuId, EventId, TaskId};
use core::fmt;
use core::num::NonZeroU8;

/// What a breakpoint waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Execution of an instruction.
    Execute,
    /// Reads or writes of memory.
    Data,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Execute => "execute",
            Self::Data => "data",
        })
    }
}

/// The debug registers of each CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Registers {
    /// Each may serve both kinds.
    Shared(u8),
    /// Each kind has its own.
    Separate {
        /// Those for execution.
        execute: u8,
        /// Those for data.
        data: u8,
    },
}

/// Whose word counts where the ledger and the host differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Authority {
    /// The ledger's: nothing else hands out registers.
    Ledger,
    /// The host's, below which others take registers too: it is asked also where the ledger has none left, and what it
    /// says is compared.
    Host,
}

/// The debug registers of a machine: see [`crate::Host::debug_registers`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DebugRegisters {
    /// Those of each CPU.
    pub registers: Registers,
    /// How many CPUs the machine may ever have, by number from 0.
    pub cpus: u32,
    /// Who decides.
    pub authority: Authority,
}

/// Who has the registers that a claim wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Taken {
    /// Holders that the ledger knows.
    Known,
    /// Others too: by the ledger there is one left.
    Outside,
    /// Perhaps children of tasks that hold some, which the host lets inherit them without a word: by the ledger there is one left,
    /// and as many may have been inherited.
    Inherited,
}

/// Most sorts of registers: one for each kind.
const SORTS: usize = 2;

impl Registers {
    /// How many may serve a kind.
    #[must_use]
    pub const fn for_kind(self, kind: Kind) -> u8 {
        match (self, kind) {
            (Self::Shared(count), _) => count,
            (Self::Separate { execute, .. }, Kind::Execute) => execute,
            (Self::Separate { data, .. }, Kind::Data) => data,
        }
    }

    /// Whether two kinds want the same registers.
    #[must_use]
    pub const fn compete(self, one: Kind, other: Kind) -> bool {
        self.sort(one) == self.sort(other)
    }

    /// Which sort of registers serves a kind.
    const fn sort(self, kind: Kind) -> usize {
        match (self, kind) {
            (Self::Shared(_), _) | (_, Kind::Execute) => 0,
            (_, Kind::Data) => 1,
        }
    }
}

/// A wish for registers: so many on each CPU of its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Claim {
    /// What the breakpoint waits for.
    pub kind: Kind,
    /// How many registers it takes on each CPU.
    pub weight: NonZeroU8,
}

impl Claim {
    /// One register.
    #[must_use]
    pub const fn one(kind: Kind) -> Self {
        Self { kind, weight: NonZeroU8::MIN }
    }

    /// So many; `None` for none.
    #[must_use]
    pub const fn of(kind: Kind, weight: u8) -> Option<Self> {
        match NonZeroU8::new(weight) {
            Some(weight) => Some(Self { kind, weight }),
            None => None,
        }
    }
}

/// Whose registers, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BpTarget {
    /// A task's, wherever it is: on all CPUs that the machine may ever have.
    TaskEverywhere(TaskId),
    /// A task's, while it is on these CPUs.
    TaskOn(TaskId, CpuMask),
    /// The CPUs' own, whatever runs there.
    Cpus(CpuMask),
}

impl BpTarget {
    /// The task, if it is a task's.
    #[must_use]
    pub const fn task(&self) -> Option<TaskId> {
        match self {
            Self::TaskEverywhere(task) | Self::TaskOn(task, _) => Some(*task),
            Self::Cpus(_) => None,
        }
    }

    /// The CPUs that it is limited to.
    #[must_use]
    pub const fn cpus(&self) -> Option<&CpuMask> {
        match self {
            Self::TaskEverywhere(_) => None,
            Self::TaskOn(_, cpus) | Self::Cpus(cpus) => Some(cpus),
        }
    }
}

/// A user of registers that opened no event of the engine, such as a debugger; by the host's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OutsideId(pub u64);

/// One of the engines that share a ledger, by a number that it gives them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EngineNumber(pub(crate) u32);

/// Who holds registers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Holder {
    /// An event that is being opened.
    Opening,
    /// An event of the engine that is asked.
    Event(EventId),
    /// An event of an engine. Of another one than is asked, the id says nothing here.
    Elsewhere(EngineNumber, EventId),
    /// A holder for which the host has reserved.
    Outside(OutsideId),
}

/// Registers that are held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    /// Who.
    pub holder: Holder,
    /// What.
    pub claim: Claim,
    /// Where.
    pub place: BpTarget,
}

/// Somewhere registers are not enough.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Full {
    /// The kind that was asked for.
    pub kind: Kind,
    /// The task that asked; `None`: it was for CPUs.
    pub task: Option<TaskId>,
    /// The first CPU that hasn't got enough.
    pub cpu: CpuId,
    /// Registers there that count as taken for the claim that asked.
    pub in_use: u32,
    /// Registers there that may serve the kind.
    pub total: u8,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, cpu, in_use, total, .. } = self;
        write!(f, "{in_use} of {total} debug registers for {kind} breakpoints are in use on CPU {cpu}")
    }
}

impl core::error::Error for Full {}

/// Why nothing was reserved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ReserveError {
    /// Registers are not enough.
    Full(Full),
    /// The machine never has this CPU.
    NoSuchCpu(CpuId),
    /// The reservation was released, or belongs to another ledger.
    Stale,
    /// A reservation can't pass from a task to CPUs, back, or to another task.
    OtherOwner,
}

impl ReserveError {
    /// The errno that Linux gives in this case.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Full(_) => 28,
            Self::NoSuchCpu(_) => 19,
            Self::Stale => 9,
            Self::OtherOwner => 22,
        }
    }
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(full) => full.fmt(f),
            Self::NoSuchCpu(cpu) => write!(f, "this machine has no CPU {cpu}"),
            Self::Stale => f.write_str("the reservation was released"),
            Self::OtherOwner => f.write_str("a reservation can't pass to another task, nor between a task and CPUs"),
        }
    }
}

impl core::error::Error for ReserveError {}
