//! A running command and its end.
//!
//! **Invariant:** its number is used only until it is reaped; afterwards it may be another process's.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use super::tracee_exit::{TraceeExit, WaitState};
use crate::seccomp::Listener;
use crate::sys::{self, Errno, PollEntry, Reaped, Reaping, Usage};

/// A command that was released.
///
/// Dropping it neither stops nor reaps the command.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    pidfd: Option<OwnedFd>,
    exited: Option<ExitedChild>,
    /// Where it is followed: only its tracer may wait for it then, and says here what came of it.
    tracee_exit: Option<Arc<TraceeExit>>,
    pub(super) before_exec: Option<Usage>,
    pub(super) listener: Option<OwnedFd>,
}

/// How a command ended, and what it used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExitedChild {
    /// Its exit code, or the signal that killed it and whether it left a core.
    pub status: ExitStatus,
    /// What it used, with all descendants that were waited for.
    pub usage: Usage,
}

impl Child {
    /// Takes over a child that was just forked; no other code may reap it.
    pub(crate) fn new(pid: i32) -> Self {
        // Without one (old kernels, sandboxes) the number serves, as long as the child isn't reaped.
        let pidfd = sys::pidfd_open(pid).ok();
        Self { pid, pidfd, exited: None, tracee_exit: None, before_exec: None, listener: None }
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// What the held child had used when it executed the command; `None` where it was killed before.
    #[must_use]
    pub fn before_exec(&self) -> Option<Usage> {
        self.before_exec
    }

    /// Where its calls of `perf_event_open` wait, if it was started so ([`super::PerfEvents::Supervised`]). Answered once. Without it,
    /// once dropped, they fail with `ENOSYS`.
    pub fn take_listener(&mut self) -> Option<Listener> {
        self.listener.take().map(Listener::new)
    }

    /// A descriptor that polls as readable when the command has ended, where the kernel has such.
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Reaps the command if it has ended; `None` while it runs. Answers the same again afterwards.
    ///
    /// Errors: `ECHILD` where other code has reaped it.
    pub fn try_wait(&mut self) -> Result<Option<ExitedChild>, Errno> {
        self.reap(Reaping::Look)
    }

    /// Waits for the end of the command.
    ///
    /// Errors: `ECHILD` where other code has reaped it.
    pub fn wait(&mut self) -> Result<ExitedChild, Errno> {
        // Blocking never answers that it still runs.
        self.reap(Reaping::Block)?.ok_or(Errno::ECHILD)
    }

    fn reap(&mut self, how: Reaping) -> Result<Option<ExitedChild>, Errno> {
        if self.exited.is_none() {
            let reaped = match self.tracee_exit.clone() {
                Some(tracee_exit) => self.reap_followed(&tracee_exit, how)?,
                None => sys::wait_child(self.pid, how)?,
            };
            let ended = |Reaped { status, usage }| ExitedChild { status: ExitStatus::from_raw(status), usage };
            self.exited = reaped.map(ended);
        }
        Ok(self.exited)
    }

    /// As [`Child::reap`], for a command that may be followed: to wait for it would take its stops from the tracer.
    fn reap_followed(&self, tracee_exit: &TraceeExit, how: Reaping) -> Result<Option<Reaped>, Errno> {
        loop {
            match tracee_exit.state() {
                WaitState::Ended(reaped) => return Ok(Some(reaped)),
                WaitState::Free => return sys::wait_child(self.pid, how),
                WaitState::Followed if self.has_ended(how)? => {
                    // Nothing of it stops any more. If the tracer was faster, it is about to say so.
                    match sys::wait_child(self.pid, Reaping::Look) {
                        Err(Errno::ECHILD) => return tracee_exit.wait_for_end().map(Some).ok_or(Errno::ECHILD),
                        Ok(None) => {}
                        answer => return answer,
                    }
                }
                WaitState::Followed if how == Reaping::Look => return Ok(None),
                WaitState::Followed => {}
            }
        }
    }

    /// Whether its pidfd says that it has ended; waits for that, or for the end of being followed.
    fn has_ended(&self, how: Reaping) -> Result<bool, Errno> {
        let fd = self.pidfd.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut entries = [PollEntry::new(fd)];
        let time = if how == Reaping::Look { Some(Duration::ZERO) } else { None };
        match sys::ppoll(&mut entries, time) {
            Ok(_) => Ok(entries[0].readable || entries[0].hangup),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets a tracer tell what comes of it; `None` without a pidfd, which following needs.
    pub(crate) fn share_exit(&mut self) -> Option<Arc<TraceeExit>> {
        self.pidfd.as_ref()?;
        Some(Arc::clone(self.tracee_exit.get_or_insert_with(Arc::default)))
    }

    /// Sends a signal to the command.
    ///
    /// Errors: `ESRCH` once it was reaped; `EPERM` where it has become another user's; `EINVAL` for no signal.
    pub fn kill(&mut self, signal: i32) -> Result<(), Errno> {
        if self.exited.is_some() {
            return Err(Errno::ESRCH);
        }
        match self.pidfd.as_ref().map(|fd| sys::pidfd_send_signal(fd.as_fd(), signal)) {
            // Some sandboxes know one of the two calls only.
            None | Some(Err(Errno::ENOSYS)) => sys::kill(self.pid, signal),
            Some(answer) => answer,
        }
    }

    /// Goes on as on a kernel without pidfds.
    #[cfg(test)]
    pub(crate) fn forget_pidfd(&mut self) {
        self.pidfd = None;
    }
}
