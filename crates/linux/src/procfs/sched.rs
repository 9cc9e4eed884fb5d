//! `/proc/TID/schedstat` and `/proc/TID/sched`: what the scheduler itself counts for a thread.
//!
//! **Invariant:** both files are optional in a kernel; a missing one is [`ProcError::Unsupported`], not 0.

use super::{Proc, ProcError};

impl Proc {
    /// Returns the time that a thread has spent on a CPU, in ns.
    ///
    /// The number of a thread that runs at this moment may be up to one scheduler tick old. Source:
    /// `Documentation/scheduler/sched-stats.rst` in the kernel.
    ///
    /// # Errors
    /// [`ProcError::Gone`], [`ProcError::Unsupported`] in a kernel without scheduler information, [`ProcError::Malformed`].
    pub fn schedstat(&self, tid: i32) -> Result<u64, ProcError> {
        let text = self.read_task(tid, "schedstat")?;
        text.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).ok_or_else(|| ProcError::Malformed {
            path: self.task_path(tid, "schedstat"),
            expected: "number of nanoseconds",
        })
    }

    /// Returns how often a thread has moved to another CPU.
    ///
    /// # Errors
    /// [`ProcError::Gone`], [`ProcError::Denied`], [`ProcError::Unsupported`] where the kernel keeps no such number.
    pub fn migrations(&self, tid: i32) -> Result<u64, ProcError> {
        let text = self.read_task(tid, "sched")?;
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == "se.nr_migrations")
            .and_then(|(_, value)| value.trim().parse().ok())
            .ok_or_else(|| ProcError::Unsupported { path: self.task_path(tid, "sched") })
    }
}
