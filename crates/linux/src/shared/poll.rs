//! Waiting for any of a thousand clients.
//!
//! What it is: [`Poll`], for a server's loop; whoever waits for a few things has [`crate::wait::Waiter`].
//!
//! **Invariant:** it says who is ready, and reads nothing.

use crate::sys::{self, Epoll, Errno};
use std::os::fd::AsFd;
use std::time::Duration;

pub use crate::wait::Token;

/// What one waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Interest {
    /// That there is something to read, or that the other end has gone.
    Read,
    /// The same, or that there is room to write.
    ReadAndWrite,
    /// That there is room to write, or that nobody is at the other end at all.
    Write,
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

/// A set of descriptors. One that is closed leaves it by itself.
#[derive(Debug)]
pub struct Poll(Epoll);

impl Poll {
    /// An empty set.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        Epoll::new().map(Self)
    }

    /// Adds a descriptor under a name.
    ///
    /// # Errors
    /// `EEXIST` where it is in already; `EPERM` for a file that can't be waited for; `ENOSPC`, `ENOMEM`.
    pub fn add(&self, fd: impl AsFd, token: Token, interest: Interest) -> Result<(), Errno> {
        self.0.add(fd.as_fd(), token.0, interest.into())
    }

    /// Changes what a descriptor is waited for.
    ///
    /// # Errors
    /// `ENOENT` where it is not in.
    pub fn change(&self, fd: impl AsFd, token: Token, interest: Interest) -> Result<(), Errno> {
        self.0.modify(fd.as_fd(), token.0, interest.into())
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// `ENOENT` where it is not in.
    pub fn remove(&self, fd: impl AsFd) -> Result<(), Errno> {
        self.0.remove(fd.as_fd())
    }

    /// Waits until something happens or the time is over (`None`: for ever), and passes on at most 64 reports; what is not
    /// passed on comes with the next wait. A signal ends the wait as if the time were over.
    ///
    /// # Errors
    /// None that a program could do anything about.
    pub fn wait(&self, timeout: Option<Duration>, mut sink: impl FnMut(Ready)) -> Result<(), Errno> {
        let waited = self.0.wait(timeout, |report| {
            let sys::EpollReport { token, readable, writable, hangup } = report;
            sink(Ready { token: Token(token), readable, writable, hangup });
        });
        match waited {
            Err(Errno::EINTR) => Ok(()),
            other => other,
        }
    }
}

/// Readable when any of them is ready: a set may be waited for as one of another set's.
impl AsFd for Poll {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Interest> for sys::Interest {
    fn from(interest: Interest) -> Self {
        match interest {
            Interest::Read => Self::Read,
            Interest::ReadAndWrite => Self::ReadAndWrite,
            Interest::Write => Self::Write,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::shared::channel::Channel;

    fn reports(poll: &Poll) -> Vec<Ready> {
        let mut reports = Vec::new();
        poll.wait(Some(Duration::ZERO), |ready| reports.push(ready)).unwrap();
        reports
    }

    #[test]
    fn whoever_is_ready_is_named() {
        let poll = Poll::new().unwrap();
        let (one, other) = Channel::pair().unwrap();
        poll.add(&one, Token(7), Interest::Read).unwrap();
        assert_eq!(poll.add(&one, Token(8), Interest::Read), Err(Errno::EEXIST));
        assert_eq!(reports(&poll), []);
        other.send(b"x", &[]).unwrap();
        let readable = Ready { token: Token(7), readable: true, writable: false, hangup: false };
        assert_eq!(reports(&poll), [readable]);
        poll.change(&one, Token(9), Interest::ReadAndWrite).unwrap();
        assert_eq!(reports(&poll), [Ready { token: Token(9), writable: true, ..readable }]);
        poll.change(&one, Token(9), Interest::Read).unwrap();
        drop(other);
        assert!(reports(&poll)[0].hangup);
        poll.remove(&one).unwrap();
        assert_eq!(reports(&poll), []);
        assert_eq!(poll.remove(&one), Err(Errno::ENOENT));
    }
}
