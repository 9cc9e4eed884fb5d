//! A process that holds the last reference to a socket, and gives it up by exiting.
//!
//! What it is: files that wait in the receive queue of a socket are released by the task that closes the socket last. Releasing a file can
//! take as long as its owner likes: a TCP socket with `SO_LINGER` and unsent data waits for its peer. A task that exits
//! does not wait for a lingering socket (`PF_EXITING` in `inet_release`, net/ipv4/af_inet.c), and where a file system makes
//! it wait all the same, it is not our process that waits.
//!
//! **Invariant:** the child touches nothing but its own descriptors, and calls async-signal-safe functions only.

use super::{Errno, check, file::pipe};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Forks a child that holds a copy of `held` and of no other descriptor of ours, and exits when every copy of the returned
/// end is closed. The caller closes its own `held` before that end; then the child's is the last one.
///
/// Answers the child's number, which is to be reaped, and that end.
///
/// Errors: `EMFILE`; `EAGAIN` at the limit of processes; `ENOMEM`.
pub(crate) fn fork_holder(held: BorrowedFd<'_>) -> Result<(i32, OwnedFd), Errno> {
    let (waits, released) = pipe()?;
    let (held, waits_fd) = (held.as_raw_fd(), waits.as_raw_fd());
    // SAFETY: (1) The child runs `hold` only, which keeps the rules of a child of a threaded process and never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: (1) This is the child of a fork. (2) Both are open: the caller borrows one, and `waits` lives.
        unsafe { hold(held, waits_fd) }
    }
    check(pid).map(|pid| (pid, released))
}

/// The life of the child.
///
/// # Safety
///
/// (1) Only in the child of a fork. (2) Both numbers are open descriptors.
unsafe fn hold(held: RawFd, waits: RawFd) -> ! {
    let (low, high) = (held.min(waits), held.max(waits));
    for (first, last) in [(0, low - 1), (low + 1, high - 1), (high + 1, RawFd::MAX)] {
        if first <= last {
            // SAFETY: (1) The call touches no memory. (2) Nothing in this process uses these descriptors.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
    let mut entry = libc::pollfd { fd: waits, events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: (1) `entry` is writable. (2) Exiting is always allowed.
        unsafe {
            if libc::poll(&raw mut entry, 1, -1) > 0 {
                libc::_exit(0);
            }
        }
    }
}
