//! Limits of processes.
//!
//! **Invariant:** a hard limit is never touched, and a soft one only raised or put back.

use super::{Errno, check};

/// How many descriptors the process may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileLimits {
    /// The limit that holds now.
    pub(crate) soft: u64,
    /// Up to where the process may raise it.
    pub(crate) hard: u64,
}

pub(crate) fn file_limits() -> Result<FileLimits, Errno> {
    // 0 is the calling process.
    file_limits_of(0, None)
}

/// Sets the soft limit of open files, up to the hard one.
///
/// Async-signal-safe: called between fork and exec too.
pub(crate) fn set_soft_file_limit(limits: FileLimits) -> Result<(), Errno> {
    let limit = libc::rlimit { rlim_cur: limits.soft, rlim_max: limits.hard };
    // SAFETY: (1) `limit` is a valid, readable `rlimit`.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(drop)
}

/// The limits of open files of another process, after its soft one was set to `soft`, where one is given.
///
/// Errors: `EPERM` where it may not be looked into; `EINVAL` above its hard limit; `ESRCH`.
pub(crate) fn file_limits_of(process: i32, soft: Option<FileLimits>) -> Result<FileLimits, Errno> {
    let new = soft.map(|limits| libc::rlimit { rlim_cur: limits.soft, rlim_max: limits.hard });
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let new_ptr = new.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: (1) `new_ptr` is null or points to `new`, which lives until the end of this function. (2) `old` is writable.
    check(unsafe { libc::prlimit(process, libc::RLIMIT_NOFILE, new_ptr, &raw mut old) })?;
    Ok(FileLimits { soft: old.rlim_cur, hard: old.rlim_max })
}

/// Gives free memory of the heap back to the system; where the C library does that by itself, nothing.
pub(crate) fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: (1) The call takes a number and looks at the heap's own lists, under their locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
