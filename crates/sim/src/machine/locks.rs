//! Locks that know their rank.
//!
//! What it is: the locks that the machine gives to the engine. Each notes the ranks that its thread holds, and what the
//! engine does against the rules of [`pmux_engine::host`] is kept for [`take_faults`].
//!
//! **Invariant:** a breach of the rules is reported, and the run goes on; only a deadlock, which could not go on, panics.
//! The notes are per thread: the code that drives a machine asks on the thread that it drives the machine from.

use pmux_engine::lock::{LockCell, Rank};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// What the engine did against the rules for locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockFault {
    /// A lock was taken while one of the same or a higher rank was held.
    Order {
        /// What was taken.
        taken: Rank,
        /// The highest that was held.
        held: Rank,
    },
    /// A lock that may sleep was taken while one that spins was held.
    Sleeps {
        /// What was taken.
        taken: Rank,
        /// The highest that spins.
        held: Rank,
    },
    /// The host was called while a lock was held under which it must not be.
    Call {
        /// What was called.
        call: &'static str,
        /// The highest that was held.
        held: Rank,
    },
    /// A lock was made without a rank.
    NoRank,
}

impl fmt::Display for LockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { taken, held } => write!(f, "a lock of rank {taken:?} was taken under one of rank {held:?}"),
            Self::Sleeps { taken, held } => {
                write!(
                    f,
                    "a lock of rank {taken:?}, which may sleep, was taken under one of rank {held:?}, which spins"
                )
            }
            Self::Call { call, held } => write!(f, "{call} was called under a lock of rank {held:?}"),
            Self::NoRank => f.write_str("a lock was made without a rank"),
        }
    }
}

/// How many breaches are kept: the first ones tell the most.
const KEPT: usize = 64;

thread_local! {
    /// A bit for each rank that this thread holds.
    static HELD: Cell<u16> = const { Cell::new(0) };
    /// Those of them that spin.
    static SPINNING: Cell<u16> = const { Cell::new(0) };
    static FAULTS: RefCell<Vec<LockFault>> = const { RefCell::new(Vec::new()) };
}

const RANKS: [Rank; 13] = [
    Rank::Hotplug,
    Rank::EventSet,
    Rank::Set,
    Rank::Share,
    Rank::Family,
    Rank::Registry,
    Rank::Bank,
    Rank::TaskBank,
    Rank::Context,
    Rank::TaskContext,
    Rank::CpuLedger,
    Rank::TaskLedger,
    Rank::Views,
];
const CONTEXTS: u16 = bit(Rank::Context) | bit(Rank::TaskContext);
/// Those of the ledger of debug registers, and of the books of shares, under which nothing is called.
const BOOKS: u16 = bit(Rank::CpuLedger) | bit(Rank::TaskLedger) | bit(Rank::Views);

const fn bit(rank: Rank) -> u16 {
    1 << rank as u8
}

/// The highest rank in a set of them.
fn highest(held: u16) -> Option<Rank> {
    RANKS.into_iter().rev().find(|&rank| held & bit(rank) != 0)
}

fn report(fault: LockFault) {
    FAULTS.with_borrow_mut(|faults| {
        if faults.len() < KEPT {
            faults.push(fault);
        }
    });
}

/// What was done against the rules on this thread since the last question.
#[must_use]
pub fn take_faults() -> Vec<LockFault> {
    FAULTS.take()
}

/// Whether something was done against the rules on this thread since the last question.
pub(crate) fn any_faults() -> bool {
    FAULTS.with_borrow(|faults| !faults.is_empty())
}

/// When a part of the host may be called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    /// With the turn of a set, a share, a family or hotplug at most.
    Turns,
    /// Under a bank's lock, too.
    Bank,
}

#[inline]
pub(super) fn called(call: &'static str, allowed: Allowed) {
    let forbidden = match allowed {
        Allowed::Turns => bit(Rank::Registry) | bit(Rank::Bank) | bit(Rank::TaskBank) | CONTEXTS | BOOKS,
        Allowed::Bank => bit(Rank::Registry) | CONTEXTS | BOOKS,
    };
    let held = HELD.get();
    if held & forbidden != 0
        && let Some(held) = highest(held & forbidden)
    {
        report(LockFault::Call { call, held });
    }
}

/// Waits for a lock that only tests poison.
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock that reports when it is taken out of order: one that spins on some host, or one that may sleep.
pub struct SimLock<T, const SPINS: bool> {
    rank: Rank,
    value: Mutex<T>,
}

/// Gives the ranks back at the end of a closure, also if that panics.
struct Hold(u16, u16);

impl Drop for Hold {
    fn drop(&mut self) {
        HELD.set(self.0);
        SPINNING.set(self.1);
    }
}

impl<T, const SPINS: bool> SimLock<T, SPINS> {
    #[cold]
    fn out_of_order(&self, held: u16) -> MutexGuard<'_, T> {
        if let Some(held) = highest(held) {
            report(LockFault::Order { taken: self.rank, held });
        }
        match self.value.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => panic!("a lock of rank {:?} is taken twice: a deadlock", self.rank),
        }
    }
}

impl<T: Send, const SPINS: bool> LockCell<T> for SimLock<T, SPINS> {
    fn new(value: T) -> Self {
        report(LockFault::NoRank);
        Self { rank: Rank::Context, value: Mutex::new(value) }
    }

    fn ranked(rank: Rank, value: T) -> Self {
        Self { rank, value: Mutex::new(value) }
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let held = HELD.get();
        let spinning = SPINNING.get();
        let _hold = Hold(held, spinning);
        if spinning != 0 && !SPINS {
            highest(spinning).into_iter().for_each(|held| report(LockFault::Sleeps { taken: self.rank, held }));
        }
        let mut guard = if held < bit(self.rank) { lock(&self.value) } else { self.out_of_order(held) };
        HELD.set(held | bit(self.rank));
        SPINNING.set(spinning | if SPINS { bit(self.rank) } else { 0 });
        f(&mut guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spins(rank: Rank) -> SimLock<u32, true> {
        SimLock::ranked(rank, 1)
    }

    fn sleeps(rank: Rank) -> SimLock<u32, false> {
        SimLock::ranked(rank, 1)
    }

    #[test]
    fn a_lock_that_may_sleep_is_not_taken_under_one_that_spins() {
        let (context, views) = (spins(Rank::Context), sleeps(Rank::Views));
        views.with(|_| ());
        assert_eq!(take_faults(), []);
        context.with(|_| views.with(|_| ()));
        views.with(|_| ());
        assert_eq!(take_faults(), [LockFault::Sleeps { taken: Rank::Views, held: Rank::Context }]);
    }

    #[test]
    fn ranks_that_go_up_are_in_order() {
        let (registry, context) = (sleeps(Rank::Registry), spins(Rank::Context));
        assert_eq!(registry.with(|one| context.with(|two| *one + *two)), 2);
        assert_eq!(take_faults(), []);
    }

    #[test]
    fn ranks_that_go_down_are_reported() {
        let (registry, context) = (sleeps(Rank::Registry), spins(Rank::Context));
        assert_eq!(context.with(|two| registry.with(|one| *one + *two)), 2);
        let (taken, held) = (Rank::Registry, Rank::Context);
        assert_eq!(take_faults(), [LockFault::Sleeps { taken, held }, LockFault::Order { taken, held }]);
        registry.with(|_| called("kick", Allowed::Turns));
        assert_eq!(take_faults(), [LockFault::Call { call: "kick", held: Rank::Registry }]);
        called("kick", Allowed::Turns);
        assert_eq!(take_faults(), [], "nothing is held any more");
    }

    #[test]
    fn two_locks_of_one_rank_are_reported() {
        let (one, other) = (spins(Rank::Bank), spins(Rank::Bank));
        one.with(|_| other.with(|_| ()));
        assert_eq!(take_faults(), [LockFault::Order { taken: Rank::Bank, held: Rank::Bank }]);
    }
}
