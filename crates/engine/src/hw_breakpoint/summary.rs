//! What must be known before anything is granted: how much CPUs hold themselves, and how much tasks need, at most.
//!
//! What it is: two figures for each sort of registers, in one word that every claim reads and hardly any writes. So claims of
//! many tasks at once write to lines of the cache of their own only.
//!
//! The tasks' books stand on *shelves*, and each shelf has a word of its own: at least what that task on it needs that needs most. So a
//! count passes by the shelves where no task can need more than is known by then.
//!
//! The *ceiling* is what the CPU holds itself that holds most. It changes under the lock of the CPUs' book only. *Most* is at least
//! what the task needs wherever it is that needs most. It rises with a task that needs more than all before it, and goes down
//! only where a claim of CPUs finds no room under it and tasks are counted. Both are changed as one: a thread that raises the one
//! has seen the other. A task looks at its shelf's word first, and then at the one for all. A count changes the one for all first, and
//! then each shelf's, be it to what it is: what a task has read there before, the count has seen; and what it reads there later comes
//! with the other word as the count has made it.
//!
//! In Linux: `struct bp_slots_histogram` and `max_task_bp_pinned` of `kernel/events/hw_breakpoint.c`.
//!
//! **Invariant:** a task's claim that is granted by the word alone leaves room for the ceiling, and is within most.

use super::SORTS;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

/// A word that many threads read without a lock.
pub trait LedgerWord: Send + Sync {
    /// With a value.
    fn new(value: u32) -> Self;
    /// Its value; what was done before it was written is seen.
    fn load(&self) -> u32;
    /// Writes `new` where it still is `seen`.
    ///
    /// # Errors
    /// What it is instead. It may also fail for nothing.
    fn exchange(&self, seen: u32, new: u32) -> Result<(), u32>;
}

impl LedgerWord for AtomicU32 {
    fn new(value: u32) -> Self {
        Self::new(value)
    }

    fn load(&self) -> u32 {
        // Partner: `exchange`. That a book's tasks are within a lower *most* is seen by that book's lock.
        self.load(Ordering::Acquire)
    }

    fn exchange(&self, seen: u32, new: u32) -> Result<(), u32> {
        // Partner: `load`.
        self.compare_exchange_weak(seen, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

/// The word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Levels {
    ceiling: [u8; SORTS],
    most: [u8; SORTS],
}

impl Levels {
    const fn decode(word: u32) -> Self {
        let [a, b, c, d] = word.to_le_bytes();
        Self { ceiling: [a, b], most: [c, d] }
    }

    const fn encode(self) -> u32 {
        let ([a, b], [c, d]) = (self.ceiling, self.most);
        u32::from_le_bytes([a, b, c, d])
    }
}

pub(super) struct Summary<W> {
    all: W,
    /// Only *most* is used.
    shelves: Vec<W>,
}

/// Changes a word, though it be to what it is, and answers what it was; or leaves it alone where `change` says `None`.
fn update<W: LedgerWord>(word: &W, change: impl Fn(Levels) -> Option<Levels>) -> Option<Levels> {
    let mut seen = word.load();
    while let Some(changed) = change(Levels::decode(seen)) {
        match word.exchange(seen, changed.encode()) {
            Ok(()) => return Some(Levels::decode(seen)),
            Err(now) => seen = now,
        }
    }
    None
}

/// Raises *most* to what a task needs, where it is lower.
fn raise<W: LedgerWord>(word: &W, sort: usize, need: u8) {
    let higher = |mut levels: Levels| {
        let lower = levels.most[sort] < need;
        levels.most[sort] = need;
        lower.then_some(levels)
    };
    update(word, higher);
}

impl<W: LedgerWord> Summary<W> {
    /// Nothing is held, on so many shelves.
    pub(super) fn new(shelves: usize) -> Self {
        Self { all: W::new(0), shelves: (0..shelves).map(|_| W::new(0)).collect() }
    }

    /// Whether a task may need so many of `total` wherever it is, as far as CPUs are concerned. Under the lock of the task's book,
    /// which is kept until it does.
    pub(super) fn admits(&self, shelf: usize, sort: usize, need: u8, total: u8) -> bool {
        let fits = |levels: Levels| levels.ceiling[sort].checked_add(need).is_some_and(|sum| sum <= total);
        raise(&self.shelves[shelf], sort, need);
        let levels = Levels::decode(self.all.load());
        if need <= levels.most[sort] && fits(levels) {
            return true;
        }
        let raised = update(&self.all, |mut levels| {
            levels.most[sort] = levels.most[sort].max(need);
            fits(levels).then_some(levels)
        });
        raised.is_some()
    }

    /// A task on a shelf needs so many. Under the lock of its book, and of that of the CPUs.
    pub(super) fn raise_most(&self, shelf: usize, sort: usize, need: u8) {
        raise(&self.shelves[shelf], sort, need);
        raise(&self.all, sort, need);
    }

    /// Raises the ceiling, where that `fits` with what tasks need at most.
    pub(super) fn raise_ceiling(&self, sort: usize, ceiling: u8, fits: impl Fn(u8) -> bool) -> bool {
        let raised = update(&self.all, |mut levels| {
            levels.ceiling[sort] = levels.ceiling[sort].max(ceiling);
            fits(levels.most[sort]).then_some(levels)
        });
        raised.is_some()
    }

    /// Raises the ceiling, and forgets what tasks need: they will be looked at, shelf by shelf.
    pub(super) fn begin_count(&self, sort: usize, ceiling: u8) {
        update(&self.all, |mut levels| {
            levels.ceiling[sort] = levels.ceiling[sort].max(ceiling);
            levels.most[sort] = 0;
            Some(levels)
        });
    }

    /// Whether a task on a shelf may need more than that. Then it is forgotten: the shelf must be looked at.
    pub(super) fn begin_shelf(&self, shelf: usize, sort: usize, known: u8) -> bool {
        let more = |levels: Levels| levels.most[sort] > known;
        let forget = |mut levels: Levels| {
            if more(levels) {
                levels.most[sort] = 0;
            }
            Some(levels)
        };
        update(&self.shelves[shelf], forget).is_some_and(more)
    }

    pub(super) fn most(&self, sort: usize) -> u8 {
        Levels::decode(self.all.load()).most[sort]
    }

    /// The ceiling is so high.
    pub(super) fn set_ceilings(&self, ceiling: [u8; SORTS]) {
        update(&self.all, |levels| (levels.ceiling != ceiling).then_some(Levels { ceiling, ..levels }));
    }
}
