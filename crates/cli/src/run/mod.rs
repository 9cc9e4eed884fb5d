//! `pmux run`: a command whose calls of `perf_event_open(2)` are supervised.
//!
//! Read first: [`run`], then [`Explainer`].
//!
//! **Invariant:** no call waits for another one: each is explained on a thread of its own, and what can't be explained in time goes
//! on without.

mod explained;

use crate::failure::{Failure, failed, failure};
use crate::foreground::pass_on;
use crate::options::exit_status;
use crate::options::run::RunOptions;
use crate::stderr::{report_error, write_stderr};
use explained::Explained;
use pmux::supervisor::Supervisor;
use pmux::wait::{Token, Waiter, Wake};
use pmux::{Command, Running, Session, SharedChoice};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const CALLS: Token = Token(0);
/// So many calls are explained at a time.
const AT_ONCE: usize = 64;
/// When all callers have ended, what they asked is waited for so long: memory that is never read may have been among it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs `pmux run` and returns the exit status.
pub(crate) fn run(options: &RunOptions) -> u8 {
    try_run(options).unwrap_or_else(|(text, status)| report_error(&text, status))
}

fn try_run(options: &RunOptions) -> Result<u8, Failure> {
    let mut waiter = Waiter::with_signals().map_err(|errno| failed(format!("can't receive signals: {errno}")))?;
    let explainer = options.explains().then(|| Explainer::new(options)).transpose()?.map(Arc::new);
    let held = Command::hold_supervised(&options.command).map_err(|error| failure(&error))?;
    let mut command = held.release(&[]).map_err(|error| failure(&error))?;
    let watched = waiter.watch_child(command.child());
    watched.map_err(|errno| failed(format!("can't wait for the command: {errno}")))?;
    let supervisor = command.take_supervisor().map(Arc::new);
    supervisor.iter().for_each(|supervisor| waiter.watch(supervisor.as_ref(), CALLS));
    let status = await_end(&mut waiter, &mut command, supervisor.as_ref(), explainer.as_ref())?;
    match explainer.map(|explainer| explainer.finish(status)) {
        Some(Err(error)) => Ok(report_error(&format!("can't write the explanations: {error}"), exit_status::FAILED)),
        _ => Ok(status),
    }
}

/// Lets calls go on until the command and all that it has left running have ended; answers the status of the command.
fn await_end(
    waiter: &mut Waiter,
    command: &mut Running,
    supervisor: Option<&Arc<Supervisor>>,
    explainer: Option<&Arc<Explainer>>,
) -> Result<u8, Failure> {
    // A command that was killed before it began has no supervisor.
    let mut are_supervised = supervisor.is_some();
    let mut status = None;
    loop {
        if let (Some(status), false) = (status, are_supervised) {
            return Ok(status);
        }
        for wake in waiter.wait(None).map_err(|errno| failed(format!("waiting failed: {errno}")))? {
            match wake {
                Wake::Child => {
                    let exited = command.try_end().map_err(|error| failure(&error))?;
                    status = exited.map(|exited| exit_status::of_command(exited.status));
                }
                Wake::Signal(signal) => match status {
                    None => pass_on(signal, Some(command)),
                    Some(status) => {
                        write_stderr("pmux: what the command left running can't open events any more (ENOSYS)");
                        return Ok(status);
                    }
                },
                Wake::Fd(CALLS) => {
                    if let Some(supervisor) = supervisor {
                        answer(supervisor, explainer)?;
                    }
                }
                Wake::Hangup(CALLS) => are_supervised = false,
                Wake::Fd(_) | Wake::Hangup(_) | Wake::Deadline => {}
            }
        }
    }
}

/// Answers all calls that wait.
fn answer(supervisor: &Arc<Supervisor>, explainer: Option<&Arc<Explainer>>) -> Result<(), Failure> {
    while let Some(call) = supervisor.receive().map_err(|error| failure(&error))? {
        let explained = explainer.is_some_and(|explainer| {
            let (explainer, supervisor) = (Arc::clone(explainer), Arc::clone(supervisor));
            explainer.begin()
                && std::thread::Builder::new()
                    .spawn(move || {
                        let attempt = supervisor.explain(&explainer.session, &call);
                        explainer.end(attempt.as_ref());
                        // Nothing is left to be done where it fails: the caller has gone, or the kernel is too old, which the first
                        // call of all has shown.
                        let _ = supervisor.go_on(&call);
                    })
                    .is_ok()
        });
        if !explained {
            supervisor.go_on(&call).map_err(|error| failure(&error))?;
        }
    }
    Ok(())
}

/// What explains calls, from any thread.
struct Explainer {
    session: Session,
    explained: Mutex<Explained>,
    ended: Condvar,
}

impl Explainer {
    fn new(options: &RunOptions) -> Result<Self, Failure> {
        let session = Session::with_shared(SharedChoice::Never).map_err(|error| failure(&error))?;
        let explained = Explained::open(options).map_err(failed)?;
        Ok(Self { session, explained: Mutex::new(explained), ended: Condvar::new() })
    }

    fn explained(&self) -> MutexGuard<'_, Explained> {
        self.explained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more call can be explained now.
    fn begin(&self) -> bool {
        let mut explained = self.explained();
        let begins = explained.under_way < AT_ONCE;
        if begins {
            explained.under_way += 1;
        } else {
            explained.left_out += 1;
        }
        begins
    }

    fn end(&self, attempt: Option<&pmux::supervisor::OpenAttempt>) {
        let mut explained = self.explained();
        explained.under_way -= 1;
        attempt.into_iter().for_each(|attempt| explained.write(attempt));
        self.ended.notify_all();
    }

    fn finish(&self, status: u8) -> std::io::Result<()> {
        let explained = self.explained();
        let late = self.ended.wait_timeout_while(explained, LAST_WORDS, |explained| explained.under_way > 0);
        let (mut explained, _) = late.unwrap_or_else(PoisonError::into_inner);
        explained.finish(status)
    }
}
