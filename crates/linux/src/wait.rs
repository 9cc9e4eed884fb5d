//! The one place where pmux waits.
//!
//! What it is: [`Waiter`], which sleeps until a child ends, a signal comes, a descriptor is ready or a time is
//! reached. Read first: [`Waiter::wait`].
//!
//! **Invariant:** nothing is read or reaped here, except the waiter's own signals: it only says who is ready.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::spawn::Child;
use crate::sys::{self, Errno, PollEntry, PollEvent, SignalPipe};

pub use crate::sys::Token;

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// The watched child has ended and can be reaped. Said once.
    Child,
    /// A signal came; several of the same kind since the last wait count as one.
    Signal(i32),
    /// The descriptor has something to read, and says so until it was read.
    Fd(Token),
    /// The other end of the descriptor has gone (for an event: its task has ended). Said once; from then on the
    /// descriptor isn't watched. What is still in it can be read.
    Hangup(Token),
    /// The time is reached.
    Deadline,
}

/// Waits for several things at once.
///
/// Descriptors are watched by number: the caller takes one out ([`Waiter::forget`]) before it closes it. Several
/// waiters in a process don't disturb each other; each is for one thread at a time.
#[derive(Debug, Default)]
pub struct Waiter {
    fds: Vec<(Token, RawFd, PollEvent)>,
    child: Option<Watched>,
    signals: Option<SignalPipe>,
    // Kept for its memory.
    entries: Vec<PollEntry>,
}

#[derive(Debug)]
enum Watched {
    Pidfd(RawFd),
    /// By the signal that the end of any child sends.
    Pid(i32, SignalPipe),
}

/// The signals that ask a program to end: what [`Waiter::with_signals`] receives.
pub const INTERRUPTS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Those of them that a program which was started to ignore them goes on ignoring.
const STAY_IGNORED: [i32; 2] = [libc::SIGHUP, libc::SIGQUIT];

impl Waiter {
    /// A waiter that leaves signals alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A waiter that receives [`INTERRUPTS`] as events, instead of what they did before.
    ///
    /// Of those that the process was started to ignore, `SIGHUP` (`nohup`) and `SIGQUIT` stay ignored; `SIGINT` and
    /// `SIGTERM` are received, because a shell's job in the background ignores `SIGINT` and is to end by it all the same. On
    /// drop of the last such waiter all is as before. A command that is started meanwhile ignores what the process was
    /// started to ignore.
    ///
    /// Errors: `EMFILE` where descriptors are used up, or more than 64 such waiters live.
    pub fn with_signals() -> Result<Self, Errno> {
        Self::with_these_signals(&INTERRUPTS)
    }

    /// As [`Waiter::with_signals`], for other signals.
    ///
    /// Errors: also `EINVAL` for a number that isn't a signal or can't be received.
    pub fn with_these_signals(signals: &[i32]) -> Result<Self, Errno> {
        Ok(Self { signals: Some(SignalPipe::open(signals, &STAY_IGNORED)?), ..Self::default() })
    }

    /// Watches for the end of a child, instead of the one watched before.
    ///
    /// Errors: those of [`Waiter::with_signals`], on kernels without pidfds, where `SIGCHLD` must be received (a
    /// handler that the program has for it is still called).
    pub fn watch_child(&mut self, child: &Child) -> Result<(), Errno> {
        self.child = Some(match child.pidfd() {
            Some(fd) => Watched::Pidfd(fd.as_raw_fd()),
            None => Watched::Pid(child.pid().cast_signed(), SignalPipe::open(&[libc::SIGCHLD], &[])?),
        });
        Ok(())
    }

    /// Watches a descriptor; one token may stand for several.
    pub fn watch(&mut self, fd: impl AsFd, token: Token) {
        self.fds.push((token, fd.as_fd().as_raw_fd(), PollEvent::Data));
    }

    /// As [`Waiter::watch`], for a file that has urgent news now and then and can be read at any time: see [`crate::pressure`].
    pub fn watch_urgent(&mut self, fd: impl AsFd, token: Token) {
        self.fds.push((token, fd.as_fd().as_raw_fd(), PollEvent::Urgent));
    }

    /// Stops watching all descriptors of a token.
    pub fn forget(&mut self, token: Token) {
        self.fds.retain(|&(of, ..)| of != token);
    }

    /// Sleeps until something is there, and answers all of it: never an empty list.
    ///
    /// The order is: child, signals by number, descriptors in the order in which they were added, deadline. A deadline
    /// in the past makes the call a look that doesn't sleep.
    ///
    /// Errors: `EDEADLK` where nothing is watched and there is no deadline, so it would never return; `ENOMEM`;
    /// `EINVAL` with more descriptors than the process may have.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Vec<Wake>, Errno> {
        if deadline.is_none() && self.fds.is_empty() && self.child.is_none() && self.signals.is_none() {
            return Err(Errno::EDEADLK);
        }
        loop {
            self.list_entries();
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            // The signal of a child that had ended before it was watched reached no pipe.
            let has_ended = matches!(&self.child, Some(Watched::Pid(pid, _)) if sys::has_exited(*pid)?);
            let sleep = if has_ended { Some(Duration::ZERO) } else { left };
            match sys::ppoll(&mut self.entries, sleep) {
                Ok(_) => {}
                // Ours are in their pipe by now, others are of no concern here: look again, with the time that is left.
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error),
            }
            let wakes = self.collect(deadline)?;
            if !wakes.is_empty() {
                return Ok(wakes);
            }
        }
    }

    /// The child's entry, the signals' entry, then the descriptors; what isn't there has a negative number.
    fn list_entries(&mut self) {
        let child = match &self.child {
            Some(Watched::Pidfd(fd)) => *fd,
            Some(Watched::Pid(_, signal_pipe)) => signal_pipe.fd().as_raw_fd(),
            None => -1,
        };
        let signals = self.signals.as_ref().map_or(-1, |signal_pipe| signal_pipe.fd().as_raw_fd());
        self.entries.clear();
        self.entries.extend([child, signals].map(PollEntry::new));
        self.entries.extend(self.fds.iter().map(|&(_, fd, event)| PollEntry { event, ..PollEntry::new(fd) }));
    }

    fn collect(&mut self, deadline: Option<Instant>) -> Result<Vec<Wake>, Errno> {
        let mut wakes = Vec::new();
        let ready = |entry: &PollEntry| entry.readable || entry.hangup;
        let ended = match &self.child {
            Some(Watched::Pidfd(_)) => self.entries.first().is_some_and(ready),
            Some(Watched::Pid(pid, signal_pipe)) => {
                // Emptied before asking: a child that ends in between leaves its byte for the next look.
                signal_pipe.take();
                sys::has_exited(*pid)?
            }
            None => false,
        };
        if ended {
            self.child = None;
            wakes.push(Wake::Child);
        }
        if let Some(signal_pipe) = &self.signals {
            wakes.extend(numbers_of(signal_pipe.take()).map(Wake::Signal));
        }
        let mut entries = self.entries.iter().skip(2);
        self.fds.retain(|&(token, ..)| {
            let Some(entry) = entries.next() else { return true };
            if entry.readable {
                wakes.push(Wake::Fd(token));
            }
            if entry.hangup {
                wakes.push(Wake::Hangup(token));
            }
            !entry.hangup
        });
        if deadline.is_some_and(|at| Instant::now() >= at) {
            wakes.push(Wake::Deadline);
        }
        Ok(wakes)
    }
}

/// The end of a process, as something to wait for: readable when it has ended.
#[derive(Debug)]
pub struct ProcessEnd(OwnedFd);

impl ProcessEnd {
    /// That of the process which has this number now.
    ///
    /// # Errors
    /// `ESRCH` where there is none; `ENOSYS` before Linux 5.3; `EINVAL` for a thread that is not the first of its process; `EMFILE`.
    pub fn of(pid: i32) -> Result<Self, Errno> {
        sys::pidfd_open(pid).map(Self)
    }

    /// Whether a process is there and has not ended, without a look at `/proc`. A thread that is not the first of its process, and
    /// any task before Linux 5.3, is taken to live unless there is none of that number.
    #[must_use]
    pub fn lives(pid: i32) -> bool {
        match Self::of(pid) {
            Ok(end) => {
                let mut entries = [PollEntry::new(end.0.as_raw_fd())];
                sys::ppoll(&mut entries, Some(Duration::ZERO)).is_ok_and(|_| !entries[0].readable)
            }
            Err(errno) => errno != Errno::ESRCH,
        }
    }
}

impl AsFd for ProcessEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The number of a signal with this name, without `SIG`, of those that are of use to tell a process something.
#[must_use]
pub fn signal_number(name: &str) -> Option<i32> {
    Some(match name {
        "USR1" => libc::SIGUSR1,
        "USR2" => libc::SIGUSR2,
        "HUP" => libc::SIGHUP,
        "INT" => libc::SIGINT,
        "QUIT" => libc::SIGQUIT,
        "TERM" => libc::SIGTERM,
        "ALRM" => libc::SIGALRM,
        "VTALRM" => libc::SIGVTALRM,
        "PROF" => libc::SIGPROF,
        "WINCH" => libc::SIGWINCH,
        "CONT" => libc::SIGCONT,
        "URG" => libc::SIGURG,
        "PWR" => libc::SIGPWR,
        "TSTP" => libc::SIGTSTP,
        "CHLD" => libc::SIGCHLD,
        _ => return None,
    })
}

/// Signals by which a process ends because something is wrong with it. Source: `signal(7)`, those with the action *core*, but for
/// `SIGQUIT` (a person's wish) and the two of resource limits.
pub const CRASHES: [i32; 7] =
    [libc::SIGSEGV, libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Signals as something to wait for among other things, for a loop that has a [`crate::shared::poll::Poll`].
#[derive(Debug)]
pub struct Signals(SignalPipe);

impl Signals {
    /// From now on these signals come here, instead of doing what they did before; also those that the process was started
    /// to ignore.
    ///
    /// # Errors
    /// As [`Waiter::with_these_signals`].
    pub fn receive(signals: &[i32]) -> Result<Self, Errno> {
        SignalPipe::open(signals, &[]).map(Self)
    }

    /// Takes those that have come since the last call, by number, each kind once.
    pub fn take(&self) -> Vec<i32> {
        numbers_of(self.0.take()).collect()
    }
}

fn numbers_of(seen: u64) -> impl Iterator<Item = i32> {
    (1..64).filter(move |signal| seen >> signal & 1 == 1)
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

/// The signal that asks a service to read its configuration anew.
pub const RELOAD: i32 = libc::SIGHUP;
/// What the kernel sends to a process that writes more into a file than a limit allows (`ulimit -f`). A process that receives it is
/// not ended by it, and sees an error.
pub const FILE_TOO_LARGE: i32 = libc::SIGXFSZ;
/// The signals that ask a service to stop.
pub const STOP: [i32; 2] = [libc::SIGINT, libc::SIGTERM];

#[cfg(test)]
mod tests;
