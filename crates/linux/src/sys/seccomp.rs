//! A filter that refuses `perf_event_open`, as containers do: the way to test what happens then.
//!
//! **Invariant:** the filter is built before fork; installing it allocates nothing.

use std::mem::offset_of;

use super::{Errno, check};

/// The program of the filter, and the error that it answers.
#[derive(Clone, Debug)]
pub(crate) struct PerfFilter([libc::sock_filter; 4]);

impl PerfFilter {
    /// A filter that answers `perf_event_open` with this error and lets all else pass.
    ///
    /// It looks at the number of the call only. A program of another architecture on the same machine (32 bits on
    /// 64) uses other numbers and passes: good enough for tests, and no protection.
    pub(crate) fn new(answer: Errno) -> Self {
        let number = offset_of!(libc::seccomp_data, nr) as u32;
        let refuse = libc::SECCOMP_RET_ERRNO | (answer.raw().unsigned_abs() & libc::SECCOMP_RET_DATA);
        Self([
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, number),
            // Over the next step, unless the number is the one.
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_perf_event_open as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, refuse),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        ])
    }

    /// Puts the calling thread and its descendants under the filter, for ever.
    ///
    /// Async-signal-safe. Errors: `EINVAL` where the kernel has no filters.
    pub(crate) fn install(&mut self) -> Result<(), Errno> {
        // SAFETY: (1) This request takes numbers only.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
        let program = libc::sock_fprog { len: 4, filter: self.0.as_mut_ptr() };
        // SAFETY: (1) `program` points to four instructions, which live for the whole call; the kernel copies them.
        check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) }).map(drop)
    }
}

fn step(code: u32, skip_unless: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: skip_unless, k }
}
