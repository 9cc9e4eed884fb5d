//! Locks, and the order in which they are taken.
//!
//! **Invariant:** no lock guard ever leaves a closure.
//!
//! # Lock ranks
//!
//! A thread takes locks in the order of [`Rank`] only, and holds at most one of each rank. While it holds one of rank
//! [`Rank::Registry`] or higher, but the two of banks, it calls nothing of the host but [`crate::pmu::PmuTable`], which is pure.
//! Under those it calls the bank and the clock; under those before [`Rank::Registry`], anything.

/// What a lock guards. Locks are taken in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rank {
    /// Whose turn it is to say that a CPU comes or goes ([`crate::Host::TaskLock`]).
    Hotplug,
    /// One event set, and whose turn it is to switch it ([`crate::Host::TaskLock`]).
    EventSet,
    /// One system-wide set, and whose turn it is to open, switch, read or close it ([`crate::Host::TaskLock`]).
    Set,
    /// Whose turn it is to open, switch or close something of one share ([`crate::Host::TaskLock`]).
    Share,
    /// Whose turn it is to enable, disable or reset all of one family, or to change what an event counts
    /// ([`crate::Host::TaskLock`]).
    Family,
    /// Which ids exist ([`crate::Host::TaskLock`]).
    Registry,
    /// The counters of one CPU, and whose turn it is to touch them ([`crate::Host::BankLock`]).
    Bank,
    /// Those that follow one task ([`crate::Host::BankLock`]); where it comes onto a CPU or leaves it, those of the CPU are held, too.
    TaskBank,
    /// The state machine of one CPU, or its queue of calls ([`crate::Host::IrqLock`]).
    Context,
    /// The state machine of one task ([`crate::Host::IrqLock`]).
    TaskContext,
    /// Which debug registers CPUs hold, and whose turn it is to decide about them ([`crate::Host::TaskLock`]).
    CpuLedger,
    /// Which debug registers some of the tasks hold ([`crate::Host::TaskLock`]).
    TaskLedger,
    /// Who has which view of one master, and since when ([`crate::Host::IrqLock`]): a reading looks there while it has a bank. Nothing
    /// else is called under it.
    Views,
}

/// A lock as a closure: a kernel that denies `unsafe` can supply it, and no guard outlives its scope.
pub trait LockCell<T>: Send + Sync {
    /// Wraps a value.
    fn new(value: T) -> Self;
    /// Wraps a value, for hosts that check the order of locks.
    fn ranked(rank: Rank, value: T) -> Self
    where
        Self: Sized,
    {
        let _ = rank;
        Self::new(value)
    }
    /// Runs `f` on the value, alone.
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R;
}
