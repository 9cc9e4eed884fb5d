//! Other processes: their end, and signals to them.
//!
//! **Invariant:** a process number is only used while the caller still has to reap it, so it can't name another.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use super::signal::action;
use super::{Errno, check, check_size, descriptor, uninterrupted};

/// What a command used, as the kernel's own books say. Source: `getrusage(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// The largest resident memory of any one of the processes, in KiB.
    pub max_rss_kib: u64,
    /// Page faults without input.
    pub minor_faults: u64,
    /// Page faults that needed input.
    pub major_faults: u64,
    /// Context switches because it waited.
    pub voluntary_switches: u64,
    /// Context switches because something else was to run.
    pub involuntary_switches: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    /// The status word of `wait(2)`.
    pub(crate) status: i32,
    /// With all descendants that were waited for.
    pub(crate) usage: Usage,
}

/// Whether to wait for the end of a child, or only to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reaping {
    /// Returns `None` while it runs.
    Look,
    Block,
}

/// Reaps a child of this process.
///
/// Errors: `ECHILD` where it isn't one, was reaped already, or `SIGCHLD` is ignored.
pub(crate) fn wait_child(pid: i32, how: Reaping) -> Result<Option<Reaped>, Errno> {
    // 0 and negative numbers would mean any child of a group.
    if pid <= 0 {
        return Err(Errno::ECHILD);
    }
    let options = if how == Reaping::Look { libc::WNOHANG } else { 0 };
    let (found, reaped) = wait4(pid, options)?;
    Ok((found != 0).then_some(reaped))
}

/// The number of a child with news, and what `wait4(2)` has written about it; 0 where there is none.
pub(super) fn wait4(pid: i32, options: libc::c_int) -> Result<(i32, Reaped), Errno> {
    let mut status = 0;
    // SAFETY: (1) `rusage` is a struct of plain numbers: all zeroes is a value of it.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    let found = uninterrupted(|| {
        // SAFETY: (1) `status` and `usage` are writable and of the types that the call writes.
        check(unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) })
    })?;
    Ok((found, Reaped { status, usage: usage_of(&usage) }))
}

pub(super) fn usage_of(usage: &libc::rusage) -> Usage {
    Usage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        max_rss_kib: number(usage.ru_maxrss),
        minor_faults: number(usage.ru_minflt),
        major_faults: number(usage.ru_majflt),
        voluntary_switches: number(usage.ru_nvcsw),
        involuntary_switches: number(usage.ru_nivcsw),
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds).saturating_add(Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0)))
}

fn number(value: libc::c_long) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Whether a child has ended and waits to be reaped; leaves it so.
///
/// A child that other code has reaped has ended too.
pub(crate) fn has_exited(pid: i32) -> Result<bool, Errno> {
    let Ok(id) = libc::id_t::try_from(pid) else { return Err(Errno::ECHILD) };
    // SAFETY: (1) `siginfo_t` is plain data: all zeroes is a value of it.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let answer = uninterrupted(|| {
        // SAFETY: (1) `info` is writable and of the type that the call writes.
        check(unsafe { libc::waitid(libc::P_PID, id, &raw mut info, options) })
    });
    match answer {
        // With WNOHANG the call succeeds on a running child too, and then leaves the number 0.
        // SAFETY: (1) `waitid` fills the variant with `si_pid`, and zeroes are a valid number as well.
        Ok(_) => Ok(unsafe { info.si_pid() } != 0),
        Err(Errno::ECHILD) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Reads memory of a process as the process itself might: at most so many bytes, fewer where less is there. It waits for as long as a page
/// takes to be filled.
///
/// Errors: `EFAULT` where nothing can be read; `ESRCH`; `EPERM` for a process that may not be traced.
pub(crate) fn read_memory(pid: i32, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: (1) `local` is writable for its length. (2) The other address is looked up in the other process only.
    check_size(unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) })
}

/// Whether a process has this thread, also one that may not be signalled. Sends nothing.
pub(crate) fn has_thread(pid: i32, tid: i32) -> bool {
    // 0 and negative numbers are refused by the kernel. Signal 0 only asks.
    // SAFETY: (1) The call takes numbers and no memory.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    answer == 0 || Errno::last() == Errno::EPERM
}

pub(crate) fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // 0 and negative numbers would mean whole groups.
    if pid <= 0 {
        return Err(Errno::ESRCH);
    }
    // SAFETY: (1) The call touches no memory.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Opens a descriptor of a process that polls as readable when it has ended.
///
/// Errors: `ENOSYS` before Linux 5.3; `EPERM` in some sandboxes; `ESRCH`; `EMFILE`.
pub(crate) fn pidfd_open(pid: i32) -> Result<OwnedFd, Errno> {
    pidfd_of(pid, 0)
}

/// The same for a thread, also one that leads no process.
///
/// Errors: as [`pidfd_open`]; `EINVAL` before Linux 6.9.
pub(crate) fn pidfd_open_thread(tid: i32) -> Result<OwnedFd, Errno> {
    // `PIDFD_THREAD`.
    pidfd_of(tid, libc::O_EXCL)
}

fn pidfd_of(pid: i32, flags: libc::c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: (1) The call touches no memory. (2) It makes the descriptor, which is close-on-exec by itself.
    unsafe { descriptor(libc::syscall(libc::SYS_pidfd_open, pid, flags)) }
}

/// A descriptor of another process, once more; close-on-exec.
///
/// Errors: `EBADF` where it has none of that number; `EPERM` where it may not be looked into; `ESRCH` where it has ended.
pub(crate) fn pidfd_getfd(process: BorrowedFd<'_>, number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: (1) The call touches no memory. (2) The borrow keeps `process` open. (3) The call makes the descriptor.
    unsafe { descriptor(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0)) }
}

/// Sends a signal to the process of a pidfd, which can't be another one.
pub(crate) fn pidfd_send_signal(process: BorrowedFd<'_>, signal: i32) -> Result<(), Errno> {
    let no_info: *const libc::siginfo_t = ptr::null();
    // SAFETY: (1) A null information is allowed. (2) The borrow keeps the descriptor open.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, no_info, 0) };
    check(libc::c_int::try_from(answer).map_err(|_| Errno::EINVAL)?).map(drop)
}

/// Lets the calling process end with the one that made it. Async-signal-safe.
pub(super) fn die_with_parent() {
    let signal: libc::c_ulong = libc::SIGKILL.unsigned_abs().into();
    // SAFETY: (1) Numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
}

/// Makes sure that ended children can be reaped: a process that was started with `SIGCHLD` ignored has none to reap.
pub(crate) fn stop_ignoring_children() {
    if let Ok(mut now) = action(libc::SIGCHLD)
        && now.sa_sigaction == libc::SIG_IGN
    {
        now.sa_sigaction = libc::SIG_DFL;
        // SAFETY: (1) `now` is a valid action; the default one runs no code of ours.
        unsafe { libc::sigaction(libc::SIGCHLD, &raw const now, ptr::null_mut()) };
    }
}

/// Whether this program has rights that those who started it have not: a set-user-id program, or one with capabilities of its file.
pub(crate) fn has_rights_of_its_own() -> bool {
    // SAFETY: (1) The call touches no memory of ours.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The CPU that the calling thread is on, or was on a moment ago.
pub(crate) fn current_cpu() -> u32 {
    // SAFETY: (1) The call touches no memory.
    unsafe { libc::sched_getcpu() }.cast_unsigned()
}

/// The number of the calling thread.
pub(crate) fn current_tid() -> i32 {
    // SAFETY: (1) The call takes nothing and can't fail.
    unsafe { libc::gettid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_mean_groups_are_refused() {
        assert_eq!(wait_child(-1, Reaping::Look).err(), Some(Errno::ECHILD));
        assert_eq!(wait_child(0, Reaping::Look).err(), Some(Errno::ECHILD));
        assert_eq!(kill(0, 0), Err(Errno::ESRCH));
        assert_eq!(kill(-1, 0), Err(Errno::ESRCH));
        assert!(pidfd_open(-1).is_err());
    }

    #[test]
    fn a_process_of_another_parent_counts_as_ended() {
        assert_eq!(has_exited(1), Ok(true));
    }
}
