//! Waiting for any of a thousand descriptors.
//!
//! What it is: [`Poll`], for a server's loop; what waits for a few things has [`crate::wait::Waiter`].
//!
//! **Invariant:** it says who is ready, by a number that the caller chose, and reads nothing.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::{Errno, check, descriptor};

const REPORTS: usize = 64;

/// The caller's name for a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// What one waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Interest {
    /// That there is something to read, or that the other end has gone.
    Read,
    /// That there is room to write, or that the other end has gone.
    Write,
    /// That the other end has gone, and nothing else.
    Hangup,
}

/// What happened to a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The caller's name for it.
    pub token: Token,
    /// There is something to read, if only the news that the other end has gone.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The other end has gone.
    pub hangup: bool,
}

/// A set of descriptors. One leaves it by itself when the last copy of its file is closed.
#[derive(Debug)]
pub struct Poll(OwnedFd);

/// Readable when any of them is ready: a set may be waited for as one of another set's.
impl AsFd for Poll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Poll {
    /// An empty set.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        // SAFETY: (1) The call touches no memory. (2) It makes the descriptor.
        unsafe { descriptor(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }.map(Self)
    }

    fn control(&self, op: libc::c_int, fd: BorrowedFd<'_>, token: u64, events: libc::c_int) -> Result<(), Errno> {
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: token };
        // SAFETY: (1) `event` is readable. (2) Both borrows keep their descriptors open.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd.as_raw_fd(), &raw mut event) }).map(drop)
    }

    /// Adds a descriptor under a name.
    ///
    /// # Errors
    /// `EEXIST` where it is in already; `EPERM` for a file that can't be waited for; `ENOSPC`, `ENOMEM`.
    pub fn add(&self, fd: impl AsFd, token: Token, interest: Interest) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_fd(), token.0, events(interest))
    }

    /// Changes what a descriptor is waited for.
    ///
    /// # Errors
    /// `ENOENT` where it is not in.
    pub fn change(&self, fd: impl AsFd, token: Token, interest: Interest) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_MOD, fd.as_fd(), token.0, events(interest))
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// `ENOENT` where it is not in.
    pub fn remove(&self, fd: impl AsFd) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_DEL, fd.as_fd(), 0, 0)
    }

    /// Waits until something happens or the time is over (`None`: for ever), and passes on at most 64 reports; what is not
    /// passed on comes with the next wait. A signal ends the wait as if the time were over.
    ///
    /// # Errors
    /// None that a program could do anything about.
    pub fn wait(&self, timeout: Option<Duration>, mut sink: impl FnMut(Ready)) -> Result<(), Errno> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; REPORTS];
        // Up, so that no caller comes back a little too early again and again.
        let limit = timeout
            .map_or(-1, |time| libc::c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX));
        // SAFETY: (1) `events` is writable for as many as are stated.
        let ready = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), REPORTS as libc::c_int, limit) };
        let ready = match check(ready) {
            Err(Errno::EINTR) => 0,
            other => other?,
        };
        for event in events.iter().take(usize::try_from(ready).unwrap_or(0)) {
            let (bits, token) = (event.events.cast_signed(), event.u64);
            let hangup = bits & (libc::EPOLLHUP | libc::EPOLLERR) != 0;
            let readable = hangup || bits & (libc::EPOLLIN | libc::EPOLLRDHUP) != 0;
            sink(Ready { token: Token(token), readable, writable: bits & libc::EPOLLOUT != 0, hangup });
        }
        Ok(())
    }
}

fn events(interest: Interest) -> libc::c_int {
    match interest {
        Interest::Read => libc::EPOLLIN | libc::EPOLLRDHUP,
        // That no process is at the other end is said in any case.
        Interest::Write => libc::EPOLLOUT,
        Interest::Hangup => 0,
    }
}
