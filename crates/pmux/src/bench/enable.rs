//! One breakpoint is switched off and on, while many threads have inherited it.
//!
//! It is the kernel's price: an engine reads an event that it stops, which would come on top.
//!
//! **Invariant:** the threads are there before the time is taken, and end after it.

use super::{BenchError, Cost, breakpoint, kernel_events};
use crate::session::Session;
use pmux_engine::OpenError;
use pmux_engine::pmu::BankError;
use pmux_linux::Errno;
use pmux_linux::bench_threads::{BenchThread, StartGate};
use pmux_linux::diagnose::{TargetKind, Whose};
use pmux_linux::raw_perf_event::InheritedEvent;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// A breakpoint and those who have it. An operation is to switch it off and on again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EnableLoad {
    /// How many threads have it that sleep.
    pub passive: u32,
    /// How many threads have it that never stop running.
    pub active: u32,
    /// How often it is switched off and on.
    pub repeat: u32,
}

impl Default for EnableLoad {
    fn default() -> Self {
        Self { passive: 0, active: 0, repeat: 10 }
    }
}

/// Measures what it costs to switch a breakpoint off and on again.
///
/// # Errors
/// As [`super::threads`].
pub fn enable(session: &Session, load: EnableLoad) -> Result<Cost, BenchError> {
    kernel_events(session)?;
    // No code touches it.
    let watched = AtomicU64::new(0);
    let attr = breakpoint(&watched)?.attr;
    let refused = |errno: Errno| {
        let error = OpenError::Bank { index: 0, error: BankError::from_errno(errno.raw()) };
        BenchError::refused(1, 0, session.refusal(error, &attr, TargetKind::Task(Whose::Own)))
    };
    let switched = InheritedEvent::open(&attr).map_err(refused)?;
    let gate = Arc::new(StartGate::default());
    let sleep = Arc::new({
        let gate = Arc::clone(&gate);
        move || gate.wait()
    });
    let spin = Arc::new({
        let gate = Arc::clone(&gate);
        move || {
            while !gate.is_open() {
                std::hint::spin_loop();
            }
        }
    });
    let mut passive = Vec::new();
    let mut active = Vec::new();
    let measured = start(&mut passive, &sleep, load.passive)
        .and_then(|()| start(&mut active, &spin, load.active))
        .and_then(|()| measure(&switched, load.repeat).map_err(refused));
    // They would be waited for in vain otherwise.
    gate.open(load.passive);
    measured
}

fn start<F: Fn() + Send + Sync + 'static>(
    threads: &mut Vec<BenchThread<F>>,
    work: &Arc<F>,
    count: u32,
) -> Result<(), BenchError> {
    for _ in 0..count {
        threads.push(BenchThread::start(work).map_err(|errno| BenchError::Thread { breakpoints: 1, errno })?);
    }
    Ok(())
}

fn measure(switched: &InheritedEvent, repeat: u32) -> Result<Cost, Errno> {
    let began = Instant::now();
    for _ in 0..repeat {
        switched.off_and_on()?;
    }
    Ok(Cost { total: began.elapsed(), operations: u64::from(repeat), parallelism: 1 })
}
