//! What must be known before anything is granted: how much CPUs hold themselves, and how much tasks need, at most.
//!
//! What it is: two figures for each sort of registers, in one word that everybody reads and hardly anybody writes. So claims of
//! many tasks at once write to lines of the cache of their own only.
//!
//! The *ceiling* is what the CPU holds itself that holds most. It changes under the lock of the CPUs' book only. *Most* is at least
//! what the task needs wherever it is that needs most. It rises with a task that needs more than all before it, and goes down
//! only where a claim of CPUs finds no room under it and all tasks are looked at. Both are changed as one: whoever raises the one
//! has seen the other.
//!
//! **Invariant:** a task's claim that is granted by the word alone leaves room for the ceiling, and is within most.

use super::SORTS;
use core::sync::atomic::{AtomicU32, Ordering};

/// A word that many threads read without a lock.
pub trait Word: Send + Sync {
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

impl Word for AtomicU32 {
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

/// See the module.
pub(super) struct Summary<W>(W);

impl<W: Word> Summary<W> {
    /// Nothing is held.
    pub(super) fn new() -> Self {
        Self(W::new(0))
    }

    /// Changes it, or leaves it as it is where `change` says `None`.
    fn update(&self, change: impl Fn(Levels) -> Option<Levels>) -> bool {
        let mut seen = self.0.load();
        while let Some(changed) = change(Levels::decode(seen)) {
            let changed = changed.encode();
            if changed == seen {
                return true;
            }
            match self.0.exchange(seen, changed) {
                Ok(()) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Whether a task may need so many of `total` wherever it is, as far as CPUs are concerned. Under the lock of the task's book,
    /// which is kept until it does.
    pub(super) fn admits(&self, sort: usize, need: u8, total: u8) -> bool {
        let levels = Levels::decode(self.0.load());
        if need <= levels.most[sort] && u32::from(levels.ceiling[sort]) + u32::from(need) <= u32::from(total) {
            return true;
        }
        self.update(|mut levels| {
            let fits = levels.ceiling[sort].checked_add(need).is_some_and(|sum| sum <= total);
            levels.most[sort] = levels.most[sort].max(need);
            fits.then_some(levels)
        })
    }

    /// A task needs so many.
    pub(super) fn raise_most(&self, sort: usize, need: u8) {
        self.update(|mut levels| {
            levels.most[sort] = levels.most[sort].max(need);
            Some(levels)
        });
    }

    /// Raises the ceiling, where that `fits` with what tasks need at most.
    pub(super) fn raise_ceiling(&self, sort: usize, ceiling: u8, fits: impl Fn(u8) -> bool) -> bool {
        self.update(|mut levels| {
            levels.ceiling[sort] = levels.ceiling[sort].max(ceiling);
            fits(levels.most[sort]).then_some(levels)
        })
    }

    /// Raises the ceiling, and forgets what tasks need: they will be looked at.
    pub(super) fn begin_count(&self, sort: usize, ceiling: u8) {
        self.update(|mut levels| {
            levels.ceiling[sort] = levels.ceiling[sort].max(ceiling);
            levels.most[sort] = 0;
            Some(levels)
        });
    }

    /// What tasks need at most.
    pub(super) fn most(&self, sort: usize) -> u8 {
        Levels::decode(self.0.load()).most[sort]
    }

    /// The ceiling is so high.
    pub(super) fn set_ceilings(&self, ceiling: [u8; SORTS]) {
        self.update(|levels| Some(Levels { ceiling, ..levels }));
    }
}
