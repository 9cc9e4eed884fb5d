//! Waiting for any of many descriptors.
//!
//! **Invariant:** what is reported is a number that the caller chose; nothing is followed through it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::{Errno, check};

/// Most reports of one wait.
const REPORTS: usize = 64;

/// A set of descriptors to wait for. A descriptor leaves it when the last copy of its file is closed.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

/// What one waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Interest {
    /// That there is something to read.
    Read,
    /// That there is something to read, or room to write.
    ReadAndWrite,
    /// That there is room to write.
    Write,
}

/// What happened to one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EpollReport {
    /// The number under which it was added.
    pub(crate) token: u64,
    /// There is something to read, or nobody at the other end.
    pub(crate) readable: bool,
    /// There is room to write.
    pub(crate) writable: bool,
    /// Nobody is at the other end.
    pub(crate) hangup: bool,
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Epoll {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: (1) The call touches no memory.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: (1) The call succeeded, so this is an open descriptor. (2) Nobody else knows it yet.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn control(&self, verb: libc::c_int, fd: BorrowedFd<'_>, token: u64, events: libc::c_int) -> Result<(), Errno> {
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: token };
        // SAFETY: (1) `event` is readable. (2) Both borrows keep their descriptors open.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), verb, fd.as_raw_fd(), &raw mut event) }).map(drop)
    }

    /// Adds one. Errors: `EEXIST`; `EPERM` for what can't be waited for; `ENOSPC`, `ENOMEM`.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, events(interest))
    }

    /// Changes what one is waited for. Errors: `ENOENT`.
    pub(crate) fn modify(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, events(interest))
    }

    /// Takes one out. Errors: `ENOENT`.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Waits until something happens or the time is over; with none, for ever. Errors: `EINTR`.
    pub(crate) fn wait(&self, timeout: Option<Duration>, mut sink: impl FnMut(EpollReport)) -> Result<(), Errno> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; REPORTS];
        // Up, so that nobody comes back a little too early again and again.
        let limit = timeout
            .map_or(-1, |time| libc::c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX));
        // SAFETY: (1) `events` is writable for as many as are stated.
        let ready =
            check(unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), REPORTS as libc::c_int, limit) })?;
        for event in events.iter().take(usize::try_from(ready).unwrap_or(0)) {
            let (bits, token) = (event.events.cast_signed(), event.u64);
            let hangup = bits & (libc::EPOLLHUP | libc::EPOLLERR) != 0;
            let readable = hangup || bits & (libc::EPOLLIN | libc::EPOLLRDHUP) != 0;
            sink(EpollReport { token, readable, writable: bits & libc::EPOLLOUT != 0, hangup });
        }
        Ok(())
    }
}

fn events(interest: Interest) -> libc::c_int {
    match interest {
        Interest::Read => libc::EPOLLIN | libc::EPOLLRDHUP,
        Interest::ReadAndWrite => libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLOUT,
        // That nobody is at the other end is said in any case.
        Interest::Write => libc::EPOLLOUT,
    }
}
