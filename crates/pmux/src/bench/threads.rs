//! Threads start and end, and inherit breakpoints.
//!
//! **Invariant:** a thread is as bare as the C library makes it, and does nothing but wait until all of its batch are there.

use super::{BenchError, Breakpoints, Cost, ThreadLoad};
use crate::session::Session;
use pmux_linux::Errno;
use pmux_linux::bench_threads::{BenchThread, StartGate};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Measures what it costs that threads inherit breakpoints.
///
/// # Errors
/// [`BenchError::NoEvents`], [`BenchError::Refused`] and [`BenchError::Session`] where the breakpoints can't be opened;
/// [`BenchError::Thread`] where threads can't be started.
pub fn threads(session: &Session, load: ThreadLoad) -> Result<Cost, BenchError> {
    let breakpoints = Breakpoints::open(session, load.breakpoints)?;
    let starter = Arc::new(Starter::new(load));
    let work = Arc::new({
        let starter = Arc::clone(&starter);
        move || starter.run()
    });
    let began = Instant::now();
    let starters = (0..load.parallelism).map(|_| BenchThread::start(&work)).collect::<Result<Vec<_>, _>>();
    let refused = starters.map(drop).err();
    let total = began.elapsed();
    drop(breakpoints);
    match refused.or(starter.refused.get().copied()) {
        Some(errno) => Err(BenchError::Thread { breakpoints: load.breakpoints, errno }),
        None => {
            let operations = u64::from(load.repeat) * u64::from(load.threads);
            Ok(Cost { total, operations, parallelism: load.parallelism })
        }
    }
}

struct Starter {
    threads: u32,
    /// Batches that no thread has begun. Relaxed: it hands out numbers.
    left: AtomicU32,
    refused: OnceLock<Errno>,
}

impl Starter {
    fn new(load: ThreadLoad) -> Self {
        Self { threads: load.threads, left: AtomicU32::new(load.repeat), refused: OnceLock::new() }
    }

    /// Starts batches of threads, one after the other, until none is left.
    fn run(&self) {
        let gate = Arc::new(StartGate::default());
        let work = Arc::new({
            let gate = Arc::clone(&gate);
            move || gate.wait()
        });
        let mut batch = Vec::with_capacity(self.threads as usize);
        let next = |left: u32| left.checked_sub(1);
        while self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
            gate.close();
            for _ in 0..self.threads {
                match BenchThread::start(&work) {
                    Ok(thread) => batch.push(thread),
                    Err(errno) => {
                        // Only the first one is told of.
                        let _ = self.refused.set(errno);
                        self.left.store(0, Ordering::Relaxed);
                        break;
                    }
                }
            }
            gate.open(self.threads);
            batch.clear();
        }
    }
}
