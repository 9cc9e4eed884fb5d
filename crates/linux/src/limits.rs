//! How many files the process may open.
//!
//! An event is an open file, one for each CPU and target: a plain measurement on a large machine passes the usual
//! soft limit of 1024. What it is: [`ensure_files`]. Commands that pmux starts get the limit back as it was: a raised
//! one makes some programs slow, and others fail.
//!
//! **Invariant:** the hard limit is never touched, and the soft one never lowered.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::OnceLock;

use crate::sys::{self, Errno, FileLimits};

/// The limits before the first change.
static AT_START: OnceLock<FileLimits> = OnceLock::new();
/// How many numbers are tried one by one where `/proc` can't be read.
const MOST_PROBED: i32 = 65_536;
/// How many files more than those that are counted are asked for: later `/proc` is read, ends are waited for, outputs are written.
const LATER_FILES: u64 = 16;
/// With fewer files left than that, what comes later may fail.
const LEAST_LATER_FILES: u64 = 8;

/// More files are needed than the process may open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileLimit {
    /// How many more files were to be opened.
    pub needed: u64,
    /// The soft limit, after raising it where that is allowed.
    pub soft: u64,
    /// The hard limit.
    pub hard: u64,
    /// How many the process has open.
    pub open_now: u64,
}

impl fmt::Display for FileLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, soft, hard, open_now } = self;
        let total = needed.saturating_add(*open_now).saturating_add(LATER_FILES);
        write!(f, "{needed} more open files are needed, but this process may have {soft} and has {open_now}")?;
        if hard > soft {
            write!(f, " (it may not raise that to its hard limit of {hard})")?;
        }
        write!(f, "; allow at least {total}: `ulimit -n {total}` as root, or LimitNOFILE={total} for a service")
    }
}

impl std::error::Error for FileLimit {}

/// Makes sure that `needed` more files can be opened, and some that are needed later; raises the soft limit to the hard one if that helps.
///
/// Other threads may take what was found free; opening can still fail with `EMFILE`.
///
/// Errors: [`FileLimit`], with the numbers.
pub fn ensure_files(needed: u64) -> Result<(), FileLimit> {
    let open_now = open_files();
    let total = needed.saturating_add(open_now).saturating_add(LATER_FILES);
    // A limit that can't be read can't be judged: opening will tell.
    let Ok(limits) = sys::file_limits() else { return Ok(()) };
    if total <= limits.soft {
        return Ok(());
    }
    let soft = raise_soft_limit().unwrap_or(limits.soft);
    if total <= soft { Ok(()) } else { Err(FileLimit { needed, soft, hard: limits.hard, open_now }) }
}

/// Raises the soft limit of open files to the hard one; answers the limit that holds now.
///
/// Errors: those of `setrlimit(2)`; `EPERM` in some sandboxes.
pub fn raise_soft_limit() -> Result<u64, Errno> {
    let limits = sys::file_limits()?;
    AT_START.get_or_init(|| limits);
    if limits.soft < limits.hard {
        sys::set_soft_file_limit(FileLimits { soft: limits.hard, ..limits })?;
    }
    Ok(limits.hard)
}

/// Whether files are left for what comes later, now that everything is open. Raises the soft limit if that helps.
#[must_use]
pub fn has_files_for_later() -> bool {
    let is_left = |most: u64| {
        // Numbers are given from the lowest free one on.
        let free = io::pipe()
            .map_or(u64::MAX, |(one, other)| u64::from(one.as_raw_fd().min(other.as_raw_fd()).unsigned_abs()));
        most.saturating_sub(free) >= LEAST_LATER_FILES
    };
    is_left(most_files()) || raise_soft_limit().is_ok_and(is_left)
}

/// How many files the process may still open. Numbers are given from the lowest free one on, so that tells it.
#[must_use]
pub fn files_left(any: BorrowedFd<'_>) -> u64 {
    let free = any.try_clone_to_owned().map_or(u64::MAX, |copy| u64::from(copy.as_raw_fd().unsigned_abs()));
    most_files().saturating_sub(free)
}

/// How many files the process may have open.
#[must_use]
pub fn most_files() -> u64 {
    sys::file_limits().map_or(u64::MAX, |limits| limits.soft)
}

/// How many bytes a process may lock in memory: the soft `RLIMIT_MEMLOCK`; 0 where that can't be asked.
#[must_use]
pub fn locked_memory_of(process: i32) -> u64 {
    // Every user may read it, while `prlimit(2)` takes CAP_SYS_RESOURCE.
    let text = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap_or_default();
    limits_of(&text, "Max locked memory").map_or(0, |(soft, _)| soft)
}

/// The soft and the hard limit of this name; `None` where there is none. Source: `proc_pid_limits(5)`.
pub(crate) fn limits_of(text: &str, name: &str) -> Option<(u64, u64)> {
    let mut words = text.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace();
    let mut limit = || match words.next()? {
        "unlimited" => Some(u64::MAX),
        word => word.parse().ok(),
    };
    Some((limit()?, limit()?))
}

/// What each user may lock for rings of events for each CPU, in bytes: `kernel.perf_event_mlock_kb`, or the kernel's own default.
#[must_use]
pub fn ring_memory_per_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb").unwrap_or_default();
    text.trim().parse::<u64>().unwrap_or(516).saturating_mul(1024)
}

/// Gives memory that is free back to the system, where the C library keeps it.
pub fn trim_memory() {
    sys::trim_memory();
}

/// The limits to give to commands: those from before the first raise, if there was one.
pub(crate) fn at_start() -> Option<FileLimits> {
    AT_START.get().copied()
}

/// How many files the process has open at this moment.
#[must_use]
pub fn open_files() -> u64 {
    match std::fs::read_dir("/proc/self/fd") {
        // One of them is the directory itself.
        Ok(entries) => (entries.count() as u64).saturating_sub(1),
        Err(_) => (0..MOST_PROBED).filter(|&fd| sys::is_open(fd)).count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn open_files_are_counted() {
        // Other tests open files meanwhile; a hundred of our own stand out.
        let before = open_files();
        let files: Vec<File> = (0..100).map(|_| File::open("/dev/null").unwrap()).collect();
        assert!(open_files() + 60 > before + files.len() as u64);
        let probed = (0..MOST_PROBED).filter(|&fd| sys::is_open(fd)).count();
        assert!(probed >= files.len());
    }

    #[test]
    fn what_fits_is_granted_and_what_cannot_is_explained() {
        assert_eq!(ensure_files(1), Ok(()));
        assert!(has_files_for_later());
        let limit = ensure_files(u64::MAX).unwrap_err();
        assert_eq!(limit.needed, u64::MAX);
        assert_eq!(limit.soft, limit.hard);
        assert_eq!(sys::file_limits().unwrap().soft, limit.hard);
    }

    #[test]
    fn a_limit_is_read_by_its_name() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax cpu time  unlimited  unlimited  seconds\nMax locked memory  8388608  unlimited  bytes\n";
        assert_eq!(limits_of(text, "Max locked memory"), Some((8_388_608, u64::MAX)));
        assert_eq!(limits_of(text, "Max cpu time"), Some((u64::MAX, u64::MAX)));
        assert_eq!(limits_of(text, "Max open files"), None);
        assert!(std::fs::read_to_string("/proc/self/limits").unwrap().contains("\nMax locked memory "));
        assert_eq!(locked_memory_of(-1), 0);
    }

    #[test]
    fn the_sentence_holds_the_numbers_and_the_help() {
        let limit = FileLimit { needed: 3000, soft: 1024, hard: 1024, open_now: 10 };
        assert_eq!(
            limit.to_string(),
            "3000 more open files are needed, but this process may have 1024 and has 10; allow at least 3026: \
             `ulimit -n 3026` as root, or LimitNOFILE=3026 for a service"
        );
        let limit = FileLimit { hard: 4096, ..limit };
        assert!(limit.to_string().contains("hard limit of 4096"));
    }
}
