//! A process that holds descriptors, and gives them up by exiting.
//!
//! What it is: files that wait in the receive queue of a socket are released by the task that closes the socket last. Releasing a file can
//! take as long as its owner likes: a TCP socket with `SO_LINGER` and unsent data waits for its peer. A task that exits
//! does not wait for a lingering socket (`PF_EXITING` in `inet_release`, net/ipv4/af_inet.c), and where a file system makes
//! it wait all the same, it is not our process that waits.
//!
//! **Invariant:** the child touches nothing but its own descriptors, and calls async-signal-safe functions only.

use super::{Errno, check, message_of, socket::socket_pair};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Room for the control message of one descriptor, in words that are aligned for its header.
const CONTROL_WORDS: usize = 4;

/// Forks a child that keeps every descriptor that is sent to the returned end (one beside each packet) and no other one of ours, and
/// exits when every copy of that end is closed.
///
/// Answers the child's number, which is to be reaped, and that end.
///
/// Errors: `EMFILE`; `EAGAIN` at the limit of processes; `ENOMEM`.
pub(crate) fn fork_holder() -> Result<(i32, OwnedFd), Errno> {
    let (ours, theirs) = socket_pair()?;
    // SAFETY: (1) The child runs `hold` only, which keeps the rules of a child of a threaded process and never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: (1) This is the child of a fork. (2) The socket is open: `theirs` lives.
        unsafe { hold(theirs.as_raw_fd()) }
    }
    check(pid).map(|pid| (pid, ours))
}

/// The life of the child.
///
/// # Safety
///
/// (1) Only in the child of a fork. (2) The number is an open socket.
unsafe fn hold(socket: RawFd) -> ! {
    for (first, last) in [(0, socket - 1), (socket + 1, RawFd::MAX)] {
        if first <= last {
            // SAFETY: (1) The call touches no memory. (2) Nothing in this process uses these descriptors.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
    let mut entry = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
    loop {
        let (mut byte, mut control) = (0_u8, [0_u64; CONTROL_WORDS]);
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let mut message = message_of(&mut part);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: (1) `entry` is writable. (2) `message` points to memory that is writable for the lengths that it states. The number
        // of the received descriptor is not needed: exiting closes it. (3) Exiting is always allowed.
        unsafe {
            libc::poll(&raw mut entry, 1, -1);
            let received = libc::recvmsg(socket, &raw mut message, 0);
            let waits = received < 0 && matches!(*libc::__errno_location(), libc::EAGAIN | libc::EINTR);
            if received <= 0 && !waits {
                libc::_exit(0);
            }
        }
    }
}
