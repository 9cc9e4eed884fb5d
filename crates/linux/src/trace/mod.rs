//! Following a command and all that it starts, up to the moment when what is looked for has been mapped.
//!
//! What it is: [`Followed`], which stops the command after its exec, before its first instruction, and again each time
//! a file with code is mapped into one of its processes, and lets it go for good when that is asked for. Read first:
//! [`Followed::next_step`]; the thread that does it is in `tracer.rs`.
//!
//! While it is followed the command is slow: it stops at each system call. Signals reach it, stops by job control hold,
//! and it ends as it would alone. What differs: a set-uid program runs without its rights, as under any tracer; and
//! no other tracer can follow it. A thread that is in a system call when everything is stopped meets what it meets under a
//! debugger: a few calls (`epoll_wait`, `nanosleep` of old kernels) end early, as after a signal.
//!
//! **Invariant:** it knows no file format and no address: it says when something was mapped, not what.
//!
//! Source: `ptrace(2)`; Linux 5.3 or later.

mod calls;
mod tracees;
mod tracer;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;

use crate::procfs::Proc;
use crate::spawn::{Child, HeldChild, SpawnError};
use crate::sys::{self, Errno};
use tracer::{Report, TracerCommand};

/// Why everything stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A process has executed a program: it and its loader are mapped, and nothing of it has run.
    Exec,
    /// A file with code was mapped: a library.
    Library,
}

/// A moment at which everything that is followed stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stop {
    pid: i32,
    parent: Option<i32>,
    cause: Cause,
    tasks: Vec<i32>,
    moving: Vec<i32>,
}

impl Stop {
    /// The process into which something was mapped.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The process that it is a copy of, where it has executed no program since it was forked.
    #[must_use]
    pub fn parent(&self) -> Option<i32> {
        self.parent
    }

    /// What happened.
    #[must_use]
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// The program that the process has just executed, where being traced has cost it rights: see
    /// [`Proc::program_without_its_rights`].
    #[must_use]
    pub fn program_without_its_rights(&self) -> Option<PathBuf> {
        (self.cause == Cause::Exec).then(|| Proc::system().program_without_its_rights(self.pid))?
    }

    /// The threads of that process, sorted.
    #[must_use]
    pub fn tasks(&self) -> &[i32] {
        &self.tasks
    }

    /// Threads, of any process, that could not be brought to a stop within a time: they are deep inside the kernel.
    #[must_use]
    pub fn moving(&self) -> &[i32] {
        &self.moving
    }
}

/// What comes next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something was mapped, and everything stands until the next call of [`Followed::next_step`] or its end.
    Mapped(Stop),
    /// Everything that was followed has ended.
    Ended,
}

/// Why a command isn't followed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FollowError {
    /// The command could not be started.
    Spawn(SpawnError),
    /// The kernel refuses to let it be traced.
    Refused {
        /// Its answer.
        errno: Errno,
    },
    /// The kernel can't do what is needed: Linux 5.3 or later is.
    Unsupported,
    /// No thread, pipe or signal handler could be had.
    Setup {
        /// The reason.
        errno: Errno,
    },
}

impl fmt::Display for FollowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn(error) => error.fmt(f),
            Self::Refused { errno: Errno::EPERM } => f.write_str(
                "the command can't be held while its libraries are mapped: tracing is forbidden here (EPERM). A sandbox, a \
                 container without SYS_PTRACE or kernel.yama.ptrace_scope=3 does that",
            ),
            Self::Refused { errno } => write!(f, "the command can't be held while its libraries are mapped: {errno}"),
            Self::Unsupported => {
                f.write_str("the command can't be held while its libraries are mapped: that needs Linux 5.3 or later")
            }
            Self::Setup { errno } => write!(f, "the command can't be followed: {errno}"),
        }
    }
}

impl std::error::Error for FollowError {}

/// A command that is followed, with all that it starts.
///
/// Dropped, it lets everything go: the command runs on.
#[derive(Debug)]
pub struct Followed {
    reports: Receiver<Report>,
    orders: Sender<TracerCommand>,
    /// Readable when there is a report.
    ready: OwnedFd,
    /// Written to when there is an order for a tracer that waits for its tasks.
    bell: OwnedFd,
    thread: Option<JoinHandle<()>>,
    at_stop: bool,
}

impl HeldChild {
    /// Lets the command execute its program and follows it: [`Followed::next_step`] first answers the stop after the exec.
    ///
    /// # Errors
    /// [`FollowError::Unsupported`], [`FollowError::Setup`], [`FollowError::Refused`] before anything was executed;
    /// [`FollowError::Spawn`] as [`HeldChild::release`].
    pub fn follow(mut self) -> Result<(Child, Followed), FollowError> {
        let tracee_exit = self.share_exit().ok_or(FollowError::Unsupported)?;
        let (ready, ready_writer) = sys::pipe().map_err(|errno| FollowError::Setup { errno })?;
        let (bell_reader, bell) = sys::pipe().map_err(|errno| FollowError::Setup { errno })?;
        let (thread, reports, orders) =
            tracer::start(self.pid().cast_signed(), tracee_exit, ready_writer, bell_reader)?;
        let followed = Followed { reports, orders, ready, bell, thread: Some(thread), at_stop: false };
        let child = self.release().map_err(FollowError::Spawn)?;
        Ok((child, followed))
    }
}

impl Followed {
    /// Lets everything go on that stands, and waits for the next stop.
    ///
    /// A stop may be the last sign of a process: any of them can be killed while it stands.
    pub fn next_step(&mut self) -> Step {
        self.go_on();
        match self.reports.recv() {
            Ok(report) => self.take(report),
            // The thread has ended, with all that it followed.
            Err(_) => Step::Ended,
        }
    }

    /// As [`Followed::next_step`], without waiting: `None` while nothing new has happened.
    pub fn try_step(&mut self) -> Option<Step> {
        self.go_on();
        match self.reports.try_recv() {
            Ok(report) => Some(self.take(report)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Step::Ended),
        }
    }

    /// A descriptor that polls as readable while [`Followed::try_step`] has an answer, and at the end of everything.
    #[must_use]
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Lets everything go for good: it runs at full speed from here on. Returns when nothing is followed any more.
    pub fn finish(mut self) {
        self.end(TracerCommand::Finish);
    }

    /// Kills every process that is followed, and returns when they are no longer followed.
    pub fn kill(mut self) {
        self.end(TracerCommand::Kill);
    }

    /// Lets everything go on that stands; the next stop comes with [`Followed::try_step`]. Without a stop it does
    /// nothing.
    pub fn go_on(&mut self) {
        if std::mem::take(&mut self.at_stop) {
            self.give(TracerCommand::Go);
        }
    }

    /// As [`Followed::go_on`], and nothing more is looked for in the process that the stop was about, nor in what it forks: they
    /// run at full speed until they execute a program.
    pub fn go_on_at_full_speed(&mut self) {
        if std::mem::take(&mut self.at_stop) {
            self.give(TracerCommand::GoAtFullSpeed);
        }
    }

    fn take(&mut self, report: Report) -> Step {
        let mut byte = [0];
        // One byte for each report; without it the descriptor would stay readable for nothing.
        let _ = sys::read(self.ready.as_fd(), &mut byte);
        match report {
            Report::Stop(stop) => {
                self.at_stop = true;
                Step::Mapped(stop)
            }
            Report::Ended => Step::Ended,
        }
    }

    /// An order to a thread that has ended has been carried out: there is no task left.
    fn give(&self, order: TracerCommand) {
        if self.orders.send(order).is_ok() {
            let _ = sys::write(self.bell.as_fd(), &[1]);
        }
    }

    fn end(&mut self, order: TracerCommand) {
        if let Some(thread) = self.thread.take() {
            self.give(order);
            // A panic there has let everything go: the tracer's end does that.
            let _ = thread.join();
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.end(TracerCommand::Finish);
    }
}

#[cfg(test)]
mod tests;
