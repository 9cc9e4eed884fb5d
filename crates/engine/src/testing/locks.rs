//! Locks of the standard library, and locks that check their order as well, and that no lock which may sleep is taken under one that spins.
//!
//! **Invariant:** a violation of what [`crate::host`] says about ranks is a panic in the thread that violates it.

use crate::id::CpuId;
use crate::lock::{LockCell, Rank};
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

pub(crate) trait LockKind: Send + Sync + 'static {
    /// Those that interrupts may take, and those of banks.
    type Spin<T: Send>: LockCell<T>;
    /// Those of tasks.
    type Sleep<T: Send>: LockCell<T>;

    /// The CPU that the thread plays; `None`: one that reaches everything.
    fn here() -> Option<CpuId> {
        super::HERE.get()
    }

    /// Lets other threads run.
    fn yield_now() {
        std::thread::yield_now();
    }
}

pub(crate) enum Checked {}
/// Locks that don't, for measuring.
pub(crate) enum Plain {}

impl LockKind for Checked {
    type Spin<T: Send> = CheckedLock<T, true>;
    type Sleep<T: Send> = CheckedLock<T, false>;
}

impl LockKind for Plain {
    type Spin<T: Send> = PlainLock<T>;
    type Sleep<T: Send> = PlainLock<T>;
}

/// A test that panics elsewhere has told what is wrong; the lock need not say it again.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct PlainLock<T>(Mutex<T>);

impl<T: Send> LockCell<T> for PlainLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut lock(&self.0))
    }
}

thread_local! {
    /// What this thread holds, in the order in which it was taken, and whether it spins.
    static HELD: RefCell<Vec<(Rank, bool)>> = const { RefCell::new(Vec::new()) };
}

/// The last one of them, which is the highest.
pub(crate) fn held() -> Option<Rank> {
    HELD.with_borrow(|held| held.last().map(|&(rank, _)| rank))
}

/// Held until the end of a closure, also if that panics.
struct Hold;

impl Hold {
    fn take(rank: Rank, spins: bool) -> Self {
        // Ranks are taken in ascending order, so the last one is the highest.
        if let Some(last) = held() {
            assert!(last < rank, "a lock of rank {rank:?} is taken while one of rank {last:?} is held");
        }
        let spinning = HELD.with_borrow(|held| held.iter().rev().find(|(_, spins)| *spins).map(|&(rank, _)| rank));
        if let Some(held) = spinning {
            assert!(spins, "a lock of rank {rank:?}, which may sleep, is taken while one of rank {held:?} spins");
        }
        HELD.with_borrow_mut(|held| held.push((rank, spins)));
        Self
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        HELD.with_borrow_mut(Vec::pop);
    }
}

/// A lock that spins on some host, or one that may sleep.
pub(crate) struct CheckedLock<T, const SPINS: bool> {
    rank: Rank,
    value: Mutex<T>,
}

impl<T: Send, const SPINS: bool> LockCell<T> for CheckedLock<T, SPINS> {
    fn new(_: T) -> Self {
        panic!("the engine made a lock without a rank");
    }
    fn ranked(rank: Rank, value: T) -> Self {
        Self { rank, value: Mutex::new(value) }
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _hold = Hold::take(self.rank, SPINS);
        f(&mut lock(&self.value))
    }
}

/// The host was called for something that may take long, or call back: only a set's or a family's turn may be held.
pub(crate) fn called(what: &str) {
    if let Some(rank) = held() {
        assert!(rank < Rank::Registry, "{what} was called while a lock of rank {rank:?} was held");
    }
}

/// The host was asked for the time: not under the registry's or a context's lock.
pub(crate) fn asked_for_time() {
    let rank = held();
    let bad = matches!(rank, Some(Rank::Registry | Rank::Context | Rank::TaskContext));
    assert!(!bad, "the clock was asked while a lock of rank {rank:?} was held");
}

/// Counters were touched: under their bank's lock and no other that is taken later.
pub(crate) fn touched_counters() {
    let rank = held();
    assert!(
        matches!(rank, None | Some(Rank::Bank | Rank::TaskBank)),
        "counters were touched while a lock of rank {rank:?} was held"
    );
}
