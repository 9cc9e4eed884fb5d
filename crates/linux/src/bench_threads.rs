//! Threads that cost as little as the kernel allows, for those who measure what threads cost.
//!
//! What it is: [`BenchThread`], and a [`StartGate`] for many threads to wait at.
//!
//! **Invariant:** a thread here does nothing but what it was started for: no stack for signals, no name, no memory of
//! its own.

pub use crate::sys::Thread as BenchThread;
use crate::sys::futex;
use std::sync::atomic::{AtomicU32, Ordering};

const CLOSED: u32 = 0;
const OPEN: u32 = 1;

/// Where threads wait until it is opened.
#[derive(Debug, Default)]
pub struct StartGate {
    /// The store in [`StartGate::open`] is paired with the loads in [`StartGate::is_open`].
    state: AtomicU32,
}

impl StartGate {
    /// Opens it for up to `waiting` threads that wait now, and for all that come later.
    pub fn open(&self, waiting: u32) {
        self.state.store(OPEN, Ordering::Release);
        futex::wake(&self.state, waiting);
    }

    /// Closes it again. No thread may be waiting.
    pub fn close(&self) {
        self.state.store(CLOSED, Ordering::Relaxed);
    }

    /// Whether it is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Sleeps until it is open.
    pub fn wait(&self) {
        while !self.is_open() {
            futex::wait(&self.state, CLOSED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn threads_wait_at_the_gate() {
        let gate = Arc::new(StartGate::default());
        let through = Arc::new(AtomicU32::new(0));
        let work = Arc::new({
            let (gate, through) = (Arc::clone(&gate), Arc::clone(&through));
            move || {
                gate.wait();
                through.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 1..=3 {
            let threads: Vec<_> = (0..8).map(|_| BenchThread::start(&work).unwrap()).collect();
            assert_eq!(through.load(Ordering::Relaxed), 8 * (round - 1), "the gate is closed");
            gate.open(8);
            drop(threads);
            assert_eq!(through.load(Ordering::Relaxed), 8 * round);
            gate.close();
        }
    }
}
