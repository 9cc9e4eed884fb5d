//! Starting a command that waits before its first instruction.
//!
//! What it is: [`HeldChild`], a forked child that stands at a gate. Its events are opened on [`HeldChild::pid`], enabled on
//! exec, and [`HeldChild::release`] lets it become the command. Read first: [`HeldChild::spawn`].
//!
//! **Invariant:** no event is known here. Nothing of the parent's leaks into the command: handlers, the ignored
//! `SIGPIPE` of Rust programs, a raised limit of files, descriptors.

mod child;
mod error;
mod resolve;
mod tracee_exit;

pub use crate::sys::Usage;
pub use child::{Child, ExitedChild};
pub use error::SpawnError;
pub(crate) use tracee_exit::TraceeExit;

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use crate::limits;
use crate::sys::{self, AccessMode, Errno, ExecPlan, ExecResult, FailedStep, Gate, Reaping};

/// How a command is started.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SpawnOptions {
    /// Whether the command itself may open performance events.
    pub perf_events: PerfEvents,
    /// Where its standard output goes.
    pub output: Output,
    /// What it inherits beside the standard streams.
    pub inherited: Option<Inherited>,
}

/// A descriptor that a command inherits, with all that it starts, and the environment variable that tells them of it.
#[derive(Clone, Debug)]
pub struct Inherited {
    /// It has the same number there.
    pub file: Arc<OwnedFd>,
    /// The variable's name.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
}

/// Where a command's standard output goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Output {
    /// Where ours goes.
    #[default]
    Ours,
    /// Where our standard error goes: what we write ourselves to standard output is no text.
    StandardError,
}

/// Whether a command may open performance events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PerfEvents {
    /// As far as the system lets it.
    #[default]
    AsUsual,
    /// `perf_event_open` fails with this error, in the command and all its descendants: what programs meet in a
    /// container. For tests; a program that means to get round it can.
    Refused(Errno),
    /// Each call of `perf_event_open`, of the command and all its descendants, waits for what the listener answers
    /// ([`Child::take_listener`]). Without `CAP_SYS_ADMIN` none of them gains rights by an exec.
    Supervised,
}

/// A child that waits at the gate.
///
/// Dropped without a release, it is killed and reaped. If the parent dies, it exits by itself. While it waits it holds
/// a copy of each descriptor that was open when it was forked: what the parent closes meanwhile stays open in it.
#[derive(Debug)]
pub struct HeldChild {
    command: OsString,
    // `None` once released.
    waiting: Option<(Child, Gate)>,
    pid: i32,
    readable: bool,
}

/// The file of a command, by its first word, as [`HeldChild::spawn`] finds it.
///
/// # Errors
/// What is wrong with the file, as there.
pub fn program_file(name: &OsStr) -> Result<PathBuf, SpawnError> {
    let path = resolve::resolve(name, std::env::var_os("PATH").as_deref())?;
    Ok(OsString::from_vec(path.into_bytes()).into())
}

impl HeldChild {
    /// Finds the command and forks a child that waits to become it.
    ///
    /// `argv` is the command and its arguments. A name without a slash is looked up in `PATH`, an empty part of which
    /// means the working directory. The child has the standard streams (but for [`Output`]), the environment (but for
    /// [`Inherited`]) and the working directory of the caller. Where the process ignores `SIGCHLD`, it no longer does: it could learn nothing of its children.
    ///
    /// Errors, in this order: [`SpawnError::NoCommand`], [`SpawnError::ZeroByte`], what is wrong with the file
    /// ([`SpawnError::NotFound`], [`SpawnError::NoSuchFile`], [`SpawnError::IsDirectory`],
    /// [`SpawnError::PermissionDenied`]), [`SpawnError::Fork`].
    pub fn spawn(argv: &[OsString], options: SpawnOptions) -> Result<Self, SpawnError> {
        let name = argv.first().ok_or(SpawnError::NoCommand)?;
        let mut words = Vec::with_capacity(argv.len());
        for (index, word) in argv.iter().enumerate() {
            words.push(CString::new(word.as_bytes()).map_err(|_| SpawnError::ZeroByte { argument: index })?);
        }
        let path = resolve::resolve(name, std::env::var_os("PATH").as_deref())?;
        let readable = sys::accessible(&path, AccessMode::Read).is_ok();
        let mut plan = ExecPlan::new(path, words, environment(options.inherited.as_ref()));
        plan.files = limits::at_start();
        plan.output_to_error = options.output == Output::StandardError;
        plan.inherited = options.inherited.map(|inherited| inherited.file);
        match options.perf_events {
            PerfEvents::AsUsual => {}
            PerfEvents::Refused(answer) => plan.refuse_perf_events(answer),
            PerfEvents::Supervised => plan.notify_perf_events(),
        }
        sys::stop_ignoring_children();
        let (pid, gate) =
            sys::fork_held(&mut plan).map_err(|errno| SpawnError::Fork { command: name.clone(), errno })?;
        Ok(Self { command: name.clone(), waiting: Some((Child::new(pid), gate)), pid, readable })
    }

    /// The number of the child, to open events on.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Whether this user may read the program's file.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Lets a tracer tell what comes of the child; `None` where it can't be followed.
    pub(crate) fn share_exit(&mut self) -> Option<Arc<TraceeExit>> {
        self.waiting.as_mut()?.0.share_exit()
    }

    /// Opens the gate; returns when the child has become the command.
    ///
    /// A child that a signal killed at the gate is a success: its status tells.
    ///
    /// Errors: [`SpawnError::NoSuchFile`] and the others about the file, where the kernel finds what the lookup could
    /// not see; [`SpawnError::MissingInterpreter`]; [`SpawnError::BadFormat`]; [`SpawnError::TooLong`];
    /// [`SpawnError::Exec`] for the rest; [`SpawnError::Filter`]; [`SpawnError::Gate`].
    pub fn release(mut self) -> Result<Child, SpawnError> {
        // Always there: only this call, which takes `self`, and the drop take it.
        let Some((mut child, gate)) = self.waiting.take() else { return Err(SpawnError::NoCommand) };
        let report = sys::open_gate(&gate).and_then(|()| sys::read_report(&gate));
        match report {
            Ok(ExecResult::Gone(used, listener)) => {
                child.before_exec = used;
                child.listener = listener;
                Ok(child)
            }
            Ok(ExecResult::Failed(step, errno)) => {
                // It is exiting; what it answers adds nothing.
                let _ = child.wait();
                Err(match step {
                    FailedStep::Exec => error::exec_failed(&self.command, errno),
                    FailedStep::Filter => SpawnError::Filter { command: self.command.clone(), errno },
                })
            }
            Err(errno) => {
                self.waiting = Some((child, gate));
                Err(SpawnError::Gate { command: self.command.clone(), errno })
            }
        }
    }
}

impl Drop for HeldChild {
    fn drop(&mut self) {
        if let Some((mut child, gate)) = self.waiting.take() {
            drop(gate);
            // A stopped child would not see the end of the gate.
            let _ = child.kill(libc::SIGKILL);
            let _ = sys::wait_child(self.pid, Reaping::Block);
        }
    }
}

/// The environment as `NAME=value` strings.
fn environment(inherited: Option<&Inherited>) -> Vec<CString> {
    let ours = std::env::vars_os().filter(|(name, _)| inherited.is_none_or(|inherited| name != inherited.variable));
    let more = inherited.map(|inherited| (inherited.variable.into(), OsString::from(&inherited.value)));
    ours.chain(more).filter_map(|(name, value)| join(name, &value)).collect()
}

fn join(name: OsString, value: &OsStr) -> Option<CString> {
    let mut line = name.into_vec();
    line.push(b'=');
    line.extend_from_slice(value.as_bytes());
    // The kernel gave them as strings, so a zero byte in them is impossible.
    CString::new(line).ok()
}

#[cfg(test)]
mod tests;
