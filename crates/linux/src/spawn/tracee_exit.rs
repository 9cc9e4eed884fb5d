//! What came of a command that is followed, told by its tracer to the thread that waits for it.
//!
//! Two threads of a process may not wait for the same child: one would take the stops of the other.
//!
//! **Invariant:** the end, once told, stays told.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::sys::Reaped;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum WaitState {
    /// No tracer follows it: its parent waits for it as usual.
    #[default]
    Free,
    /// A tracer follows it, and is the one that waits.
    Followed,
    /// It has ended; the tracer has reaped it.
    Ended(Reaped),
}

/// Shared by the child and its tracer.
#[derive(Debug, Default)]
pub(crate) struct TraceeExit {
    state: Mutex<WaitState>,
    changed: Condvar,
}

impl TraceeExit {
    fn lock(&self) -> MutexGuard<'_, WaitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> WaitState {
        *self.lock()
    }

    fn update(&self, change: impl FnOnce(WaitState) -> WaitState) {
        let mut state = self.lock();
        *state = change(*state);
        drop(state);
        self.changed.notify_all();
    }

    /// A tracer has taken hold of it.
    pub(crate) fn follow(&self) {
        self.update(|state| if matches!(state, WaitState::Ended(_)) { state } else { WaitState::Followed });
    }

    pub(crate) fn release(&self) {
        self.update(|state| if matches!(state, WaitState::Ended(_)) { state } else { WaitState::Free });
    }

    /// The tracer has reaped it.
    pub(crate) fn ended(&self, reaped: Reaped) {
        self.update(|_| WaitState::Ended(reaped));
    }

    /// Waits until the tracer has said how it ended; `None` where it let go without.
    pub(crate) fn wait_for_end(&self) -> Option<Reaped> {
        let mut state = self.lock();
        loop {
            match *state {
                WaitState::Ended(reaped) => return Some(reaped),
                WaitState::Free => return None,
                WaitState::Followed => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
