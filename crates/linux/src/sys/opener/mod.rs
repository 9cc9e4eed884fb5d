//! Processes that open events with the credentials of another process.
//!
//! What it is: the kernel checks `perf_event_open(2)` against the credentials of the calling task. A service that opens events for
//! its clients therefore lets a process make the call that has taken the client's credentials: check and open are one system call.
//! It is a process and not a thread, because a client may signal what runs as its user, and a signal ends all threads of a process;
//! and because only a process with one thread may enter a user namespace.
//!
//! Openers are forked by a *nursery*: a small process with one thread, without the descriptors of the service, so that a fork costs
//! little however large the service is.
//! Read first: [`fork_nursery`] and [`OpenerOrder`]; the life of both kinds of process is in `serve`.
//!
//! **Invariant:** after the fork a child makes async-signal-safe calls only: no allocation, no lock, no panic.

mod serve;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::socket::pair;
use super::{Errno, check, set_nonblocking};

/// Room for an attribute in an order: more than any kernel knows.
pub(crate) const ATTR_ROOM: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum OpenerOp {
    /// To take the credentials in [`OpenerOrder::words`]: user, group, permitted and effective capabilities, and the inode of the user
    /// namespace (0: it stays in its own) of the process [`OpenerOrder::pid`].
    Become = 1,
    /// To open an event; the files beside the order are as [`OpenerOrder::words`]`[0]` says: [`GROUP_FILE`], [`CGROUP_FILE`].
    Open = 2,
    /// To open an event and close it again.
    Check = 3,
    /// To change the breakpoint whose file is beside the order.
    Modify = 4,
}

/// The leader of the event's group is the first file beside the order.
pub(crate) const GROUP_FILE: u64 = 1;
/// A cgroup is the next file beside the order.
pub(crate) const CGROUP_FILE: u64 = 2;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct OpenerOrder {
    op: u32,
    /// The CPU, or -1.
    cpu: i32,
    /// The task, or -1.
    pid: i32,
    attr_bytes: u32,
    words: [u64; 5],
    attr: [u8; ATTR_ROOM],
}

impl OpenerOrder {
    pub(crate) const fn new(op: OpenerOp) -> Self {
        Self { op: op as u32, cpu: -1, pid: -1, attr_bytes: 0, words: [0; 5], attr: [0; ATTR_ROOM] }
    }

    /// The same about a task, or -1, and a CPU, or -1.
    pub(crate) const fn about(mut self, pid: i32, cpu: i32) -> Self {
        (self.pid, self.cpu) = (pid, cpu);
        self
    }

    pub(crate) const fn with_words(mut self, words: [u64; 5]) -> Self {
        self.words = words;
        self
    }

    /// The same with an attribute; `None` where it is too long.
    pub(crate) fn with_attr(mut self, attr: &[u8]) -> Option<Self> {
        self.attr.get_mut(..attr.len())?.copy_from_slice(attr);
        self.attr_bytes = u32::try_from(attr.len()).ok()?;
        Some(self)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        // SAFETY: (1) The struct is `repr(C)`, of integers without padding between or behind them: 16 + 40 + 256 bytes, aligned to
        // 8. (2) The slice borrows it.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

/// The answer to an order; the file of an event that was opened is beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(crate) struct OpenerReply {
    /// 0 where it was done.
    pub(crate) errno: i32,
    /// From the nursery: the opener's number.
    pub(crate) pid: i32,
}

impl OpenerReply {
    /// What a packet says; `None` where its length is wrong.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (errno, pid) = bytes.split_at_checked(4)?;
        let number = |bytes: &[u8]| Some(i32::from_ne_bytes(bytes.try_into().ok()?));
        Some(Self { errno: number(errno)?, pid: number(pid)? })
    }
}

/// Forks a nursery; answers its number and the socket to ask it by. It ends when the socket is closed.
///
/// A packet of any bytes asks for an opener. The reply is an [`OpenerReply`] with the socket and the pidfd of the opener beside it. An
/// opener has the nursery's credentials until it is told whose credentials to take ([`OpenerOp::Become`]); it ends when its socket is closed.
///
/// Errors: `EMFILE`; `EAGAIN` at the limit of processes; `ENOMEM`.
pub(crate) fn fork_nursery() -> Result<(i32, OwnedFd), Errno> {
    // They keep packets apart, and block.
    let (ours, theirs) = pair(libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC)?;
    // No handler of the parent may run in the child, which leaves all signals blocked for ever: it ends with its socket.
    // SAFETY: (1) `sigset_t` is plain data: all zeroes is a value of it.
    let (mut every, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: (1) Both sets are valid and writable.
    unsafe {
        libc::sigfillset(&raw mut every);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every, &raw mut before);
    }
    // SAFETY: (1) The child runs `nursery` only, which keeps the rules of a child of a threaded process and never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        serve::nursery(theirs.as_raw_fd());
    }
    let forked = check(pid);
    // SAFETY: (1) `before` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    set_nonblocking(ours.as_fd())?;
    Ok((forked?, ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_replies_have_no_padding() {
        assert_eq!(size_of::<OpenerOrder>(), 16 + 40 + ATTR_ROOM);
        assert_eq!(size_of::<OpenerReply>(), 8);
        assert!(OpenerOrder::new(OpenerOp::Open).with_attr(&[7; ATTR_ROOM + 1]).is_none());
        assert_eq!(OpenerReply::decode(&[0; 7]), None);
        assert_eq!(OpenerReply::decode(&[0; 9]), None);
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&5_i32.to_ne_bytes());
        assert_eq!(OpenerReply::decode(&bytes), Some(OpenerReply { errno: 5, pid: 0 }));
    }
}
