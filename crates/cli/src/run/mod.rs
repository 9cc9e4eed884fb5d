//! `pmux run`: a command, or a container, whose calls of `perf_event_open(2)` are supervised.
//!
//! Read first: [`run`], then [`Receivers`].
//!
//! **Invariant:** no call waits for another one: a thread answers one call at a time, and another thread takes the next one.

mod container;
mod explained;

use crate::failure::{Failure, ended, failed, failure};
use crate::foreground::{pass_on, waiter};
use crate::options::exit_status;
use crate::options::run::RunOptions;
use crate::stderr::{report_error, write_stderr};
use container::answer_for_container;
use explained::Explained;
use pmux::supervisor::{Answers, Call, OpenCall, Supervisor};
use pmux::wait::{Token, Waiter, Wake};
use pmux::{Command, Running};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const CALLS: Token = Token(0);
const CLOSED: Token = Token(1);
/// So many calls are answered at a time. More than that are waiting only where memory of callers can't be read.
const AT_ONCE: usize = 64;
/// When all callers have ended, what they asked is waited for so long: memory that is never read may have been among it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long nothing is answered when the kernel has no memory for it.
const NO_MEMORY: Duration = Duration::from_millis(10);

pub(crate) fn run(options: &RunOptions) -> u8 {
    ended(if options.container { answer_for_container(options) } else { run_command(options) })
}

fn run_command(options: &RunOptions) -> Result<u8, Failure> {
    let mut waiter = waiter()?;
    let program = options.command.first().map(|program| Path::new(program).file_name().unwrap_or(program));
    name_oneself_after(&program.unwrap_or_default().to_string_lossy());
    let session = crate::session::open(&options.shared, None).map_err(|error| failure(&error))?;
    let explained = options.explains().then(|| Explained::open(options, None)).transpose().map_err(failed)?;
    let held = Command::hold_supervised(&options.command).map_err(|error| failure(&error))?;
    let mut command = held.release(&[]).map_err(|error| failure(&error))?;
    let watched = waiter.watch_child(command.child());
    watched.map_err(|errno| failed(format!("can't wait for the command: {errno}")))?;
    let answers = if options.own { Answers::Own } else { Answers::Virtual };
    let supervisor = command.take_supervisor(&session, answers).map_err(|error| failure(&error))?;
    // A command that was killed before it began has no supervisor.
    let receivers = supervisor.map(|supervisor| Receivers::start(supervisor, explained, &mut waiter)).transpose()?;
    let status = await_end(&mut waiter, Some(&mut command), receivers.as_deref())?;
    Ok(receivers.map_or(status, |receivers| receivers.finish(status)))
}

/// Says in the list of processes, and so to `pmux status`, which program it supervises.
fn name_oneself_after(program: &str) {
    // The kernel cuts it off at 15 bytes. It is no more than a name.
    let _ = std::fs::write("/proc/self/comm", format!("run:{program}"));
}

/// Waits until the command and all that it has left running have ended, or all of a container; answers the status of the command.
fn await_end(
    waiter: &mut Waiter,
    mut command: Option<&mut Running>,
    receivers: Option<&Receivers>,
) -> Result<u8, Failure> {
    let mut are_supervised = receivers.is_some();
    let mut status = command.is_none().then_some(exit_status::SUCCESS);
    loop {
        if let (Some(status), false) = (status, are_supervised) {
            return Ok(status);
        }
        for wake in waiter.wait(None).map_err(|errno| failed(format!("waiting failed: {errno}")))? {
            match wake {
                Wake::Child => {
                    let exited = command.as_mut().map(|command| command.try_end()).transpose();
                    let exited = exited.map_err(|error| failure(&error))?.flatten();
                    status = exited.map(|exited| exit_status::of_command(exited.status));
                }
                Wake::Signal(signal) => match status {
                    None => pass_on(signal, command.as_deref_mut()),
                    Some(status) => {
                        write_stderr("pmux: what still runs can't open events any more (ENOSYS)");
                        return Ok(status);
                    }
                },
                Wake::Fd(CLOSED) => {
                    receivers.into_iter().for_each(|receivers| receivers.supervisor.close_unused());
                }
                Wake::Hangup(CALLS) => are_supervised = false,
                Wake::Fd(_) | Wake::Hangup(_) | Wake::Deadline => {}
            }
        }
    }
}

/// Threads that answer calls.
struct Receivers {
    supervisor: Supervisor,
    /// Held by the thread that waits for the next call.
    turn: Mutex<()>,
    /// Threads, and those of them that answer a call.
    threads: AtomicUsize,
    busy: AtomicUsize,
    explained: Option<Mutex<Explained>>,
    answered: Condvar,
}

impl Receivers {
    /// The first thread begins, and `waiter` wakes for what there is besides.
    fn start(supervisor: Supervisor, explained: Option<Explained>, waiter: &mut Waiter) -> Result<Arc<Self>, Failure> {
        let (turn, threads, busy) = (Mutex::new(()), AtomicUsize::new(0), AtomicUsize::new(0));
        let explained = explained.map(Mutex::new);
        let receivers = Arc::new(Self { supervisor, turn, threads, busy, explained, answered: Condvar::new() });
        // What there is to be read of it is the threads' affair.
        waiter.watch_urgent(&receivers.supervisor, CALLS);
        waiter.watch(receivers.supervisor.closed(), CLOSED);
        receivers.add().map_err(|error| failed(format!("can't start a thread: {error}")))?;
        Ok(receivers)
    }

    /// Starts one more thread.
    fn add(self: &Arc<Self>) -> std::io::Result<()> {
        let receivers = Arc::clone(self);
        self.threads.fetch_add(1, Ordering::Relaxed);
        let started = std::thread::Builder::new().spawn(move || receivers.work());
        started.map(drop).inspect_err(|_| _ = self.threads.fetch_sub(1, Ordering::Relaxed))
    }

    /// Answers calls until the last caller has ended.
    fn work(self: &Arc<Self>) {
        loop {
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let call = match self.supervisor.receive() {
                Ok(Some(call)) => call,
                Ok(None) => return,
                Err(_) => {
                    // No memory: callers wait until there is some.
                    drop(turn);
                    std::thread::sleep(NO_MEMORY);
                    continue;
                }
            };
            let busy = self.busy.fetch_add(1, Ordering::Relaxed) + 1;
            drop(turn);
            let threads = self.threads.load(Ordering::Relaxed);
            if busy == threads && threads < AT_ONCE {
                // Without one, the next call waits for this one.
                let _ = self.add();
            }
            match call {
                Call::Open(call) => self.open(&call),
                Call::Fd(call) => {
                    self.supervisor.carry_out(&call);
                    if let Some(mut explained) = self.explained() {
                        explained.note_saved(self.supervisor.session().saved_by_sharing());
                    }
                }
            }
            self.busy.fetch_sub(1, Ordering::Relaxed);
            // Not between a look at the number and the wait for a change.
            drop(self.explained());
            self.answered.notify_all();
        }
    }

    fn open(&self, call: &OpenCall) {
        let attempt = self.supervisor.open(call, self.explained.is_some());
        if let (Some(attempt), Some(mut explained)) = (&attempt, self.explained()) {
            explained.write(attempt);
        }
        if attempt.is_none_or(|attempt| !attempt.answer.is_given()) {
            // Nothing is left to be done where it fails: the caller has gone, or the kernel is too old.
            let _ = self.supervisor.go_on(call);
        }
    }

    fn explained(&self) -> Option<MutexGuard<'_, Explained>> {
        self.explained.as_ref().map(|explained| explained.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The last line, when all has been explained; answers the exit status, which is `status` where that could be written.
    fn finish(&self, status: u8) -> u8 {
        let Some(explained) = self.explained() else { return status };
        let is_at_work = |_: &mut Explained| self.busy.load(Ordering::Relaxed) > 0;
        let late = self.answered.wait_timeout_while(explained, LAST_WORDS, is_at_work);
        let (mut explained, _) = late.unwrap_or_else(PoisonError::into_inner);
        match explained.finish(status) {
            Ok(()) => status,
            Err(error) => report_error(&format!("can't write the explanations: {error}"), exit_status::FAILED),
        }
    }
}
