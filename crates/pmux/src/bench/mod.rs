//! What breakpoints cost: on this kernel, and in the engine's ledger alone.
//!
//! What it is: two loads, those of `perf bench breakpoint`. [`threads`]: threads start and end, and inherit breakpoints.
//! [`enable`]: one breakpoint that many threads have inherited is switched off and on. And [`books`]: what the first of them
//! asks of the accounts of debug registers, asked of the engine's ledger, or of an algorithm that it is compared with.
//! Read first: [`ThreadLoad`], then [`Cost`].
//!
//! **Invariant:** while the time is taken nothing happens but the load.
//!
//! Source: `perf-bench(1)`; the thread in which these loads were first reported is "perf/hw_breakpoint: Optimize for
//! thousands of tasks" (2022).

mod books;
mod enable;
mod error;
mod threads;

pub use books::{Accounts, Allowance, BooksCost, books};
pub use enable::{EnableLoad, enable};
pub use error::BenchError;
pub use threads::threads;

use crate::counters::Counters;
use crate::event::{Access, Event, EventList};
use crate::session::{Backend, Session};
use crate::target::{Options, Target};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Threads that start and end. An operation is the life of one thread, with the breakpoints that it inherits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadLoad {
    /// How many breakpoints each thread inherits.
    pub breakpoints: u32,
    /// How many threads start others at the same time.
    pub parallelism: u32,
    /// How many threads each of these starts before it waits for them.
    pub threads: u32,
    /// How often that is done, by all of them together.
    pub repeat: u32,
}

impl Default for ThreadLoad {
    fn default() -> Self {
        Self { breakpoints: 1, parallelism: 1, threads: 1, repeat: 10 }
    }
}

/// What a load has cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// From the first operation to the end of the last one.
    pub total: Duration,
    /// How many operations that were.
    pub operations: u64,
    /// How many were under way at the same time.
    pub parallelism: u32,
}

impl Cost {
    /// Microseconds for an operation: the time in all, by the number of operations.
    #[must_use]
    pub fn usecs_per_op(&self) -> f64 {
        self.total.as_secs_f64() * 1e6 / self.operations as f64
    }

    /// Microseconds for which each operation kept one of those busy who were at it.
    #[must_use]
    pub fn usecs_per_op_per_cpu(&self) -> f64 {
        self.usecs_per_op() * f64::from(self.parallelism)
    }
}

/// Breakpoints of the calling thread, and of all threads that it starts from now on.
struct Breakpoints {
    _counters: Counters,
    /// What they watch; no code touches it.
    _watched: Vec<AtomicU64>,
}

impl Breakpoints {
    fn open(session: &Session, count: u32) -> Result<Self, BenchError> {
        kernel_events(session)?;
        let watched: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let events = watched.iter().map(breakpoint).collect::<Result<EventList, _>>()?;
        let counters = session.open(&events, &Target::CurrentThread, Options::default())?;
        let mut refusals = (0..watched.len()).filter_map(|index| counters.refusal(index));
        match refusals.next().cloned() {
            None => Ok(Self { _counters: counters, _watched: watched }),
            Some(refusal) => {
                let granted = count - 1 - refusals.count() as u32;
                Err(BenchError::refused(count, granted, refusal))
            }
        }
    }
}

fn kernel_events(session: &Session) -> Result<(), BenchError> {
    match session.backend() {
        Backend::Kernel => Ok(()),
        Backend::Usage { why } => Err(BenchError::NoEvents(why.clone())),
    }
}

/// Accesses to the first byte of a word, by programs only.
fn breakpoint(word: &AtomicU64) -> Result<Event, crate::Error> {
    let event = Event::breakpoint(word.as_ptr() as u64, 1, Access::READ_WRITE);
    event.with_modifiers("u").map_err(crate::Error::from)
}
