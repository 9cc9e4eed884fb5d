//! What came of a command that is followed, told by its tracer to the thread that waits for it.
//!
//! Two threads of a process may not wait for the same child: one would take the stops of the other.
//!
//! **Invariant:** the end, once told, stays told.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::sys::Reaped;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    /// No tracer follows it: its parent waits for it as usual.
    Free,
    /// A tracer follows it, and is the one that waits.
    Followed,
    /// It has ended; the tracer has reaped it.
    Ended(Reaped),
}

/// Shared by the child and its tracer.
#[derive(Debug)]
pub(crate) struct Verdict {
    word: Mutex<Word>,
    changed: Condvar,
}

impl Default for Verdict {
    fn default() -> Self {
        Self { word: Mutex::new(Word::Free), changed: Condvar::new() }
    }
}

impl Verdict {
    fn lock(&self) -> MutexGuard<'_, Word> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn word(&self) -> Word {
        *self.lock()
    }

    fn say(&self, change: impl FnOnce(Word) -> Word) {
        let mut word = self.lock();
        *word = change(*word);
        drop(word);
        self.changed.notify_all();
    }

    /// A tracer has taken hold of it.
    pub(crate) fn follow(&self) {
        self.say(|word| if matches!(word, Word::Ended(_)) { word } else { Word::Followed });
    }

    pub(crate) fn release(&self) {
        self.say(|word| if matches!(word, Word::Ended(_)) { word } else { Word::Free });
    }

    /// The tracer has reaped it.
    pub(crate) fn ended(&self, reaped: Reaped) {
        self.say(|_| Word::Ended(reaped));
    }

    /// Waits until the tracer has said how it ended; `None` where it let go without.
    pub(crate) fn wait_for_end(&self) -> Option<Reaped> {
        let mut word = self.lock();
        loop {
            match *word {
                Word::Ended(reaped) => return Some(reaped),
                Word::Free => return None,
                Word::Followed => word = self.changed.wait(word).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
