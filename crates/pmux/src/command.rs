//! A command to be counted.
//!
//! What it is: a child that is held before its exec, so that its events are open before its first instruction.
//!
//! **Invariant:** the child runs nothing of its own until it is released.

use crate::counters::Counters;
use crate::error::Error;
use crate::session::Session;
use pmux_engine::LockCell as _;
use pmux_engine::engine::Exec;
use pmux_linux::host::LinuxHost;
use pmux_linux::regions::RegionTable;
use pmux_linux::spawn::{Child, ExitedChild, HeldChild, Output, SpawnOptions};
use std::ffi::OsString;

/// A command that is held before its exec. Dropped without a release, it is killed.
#[derive(Debug)]
pub struct Command {
    pub(crate) held: HeldChild,
    pub(crate) words: Vec<OsString>,
}

impl Command {
    /// Forks a child that will become the command; a name without a slash is looked up in `PATH`.
    ///
    /// # Errors
    /// [`Error::Spawn`] where there is no such command, or no child can be made.
    pub fn hold<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Result<Self, Error> {
        Self::hold_with(words, Output::Ours)
    }

    /// As [`Command::hold`]; `output` is where the command's standard output goes.
    ///
    /// # Errors
    /// As [`Command::hold`].
    pub fn hold_with<W: Into<OsString>>(words: impl IntoIterator<Item = W>, output: Output) -> Result<Self, Error> {
        Self::hold_as(words, |options| options.output = output)
    }

    /// As [`Command::hold_with`], for a command whose regions ([`crate::region()`]) are counted in this table, or marked in it.
    ///
    /// # Errors
    /// As [`Command::hold`].
    pub fn hold_with_regions<W: Into<OsString>>(
        words: impl IntoIterator<Item = W>,
        output: Output,
        regions: &RegionTable,
    ) -> Result<Self, Error> {
        Self::hold_as(words, |options| (options.output, options.inherited) = (output, regions.inherited()))
    }

    pub(crate) fn hold_as<W: Into<OsString>>(
        words: impl IntoIterator<Item = W>,
        set: impl FnOnce(&mut SpawnOptions),
    ) -> Result<Self, Error> {
        let words: Vec<_> = words.into_iter().map(Into::into).collect();
        let mut options = SpawnOptions::default();
        set(&mut options);
        let held = HeldChild::spawn(&words, options).map_err(Error::Spawn)?;
        Ok(Self { held, words })
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.held.pid().cast_signed()
    }

    /// Lets it execute its program; counters that were opened with [`crate::Start::OnExec`] count from then on.
    ///
    /// # Errors
    /// [`Error::Spawn`] where the program can't be executed; [`Error::Thread`] where events can't take turns.
    pub fn release(self, counters: &[&Counters]) -> Result<Running, Error> {
        let task = LinuxHost::task(self.pid());
        let child = hold_turns(counters, || {
            let child = self.held.release().map_err(Error::Spawn);
            for counters in counters {
                counters.let_go();
                if let Ok(child) = &child {
                    let engine = counters.session().engine();
                    child.before_exec().into_iter().for_each(|used| engine.host().began(task, used));
                    engine.task_exec(task, Exec::Plain);
                }
            }
            child
        })?;
        for counters in counters {
            counters.started_by_exec()?;
        }
        Ok(Running { child, words: self.words })
    }
}

/// Calls `f` while no turn is taken: who is on when the command executes its program is decided before.
fn hold_turns<R>(counters: &[&Counters], f: impl FnOnce() -> R) -> R {
    match counters.split_first() {
        Some((first, rest)) => {
            let rest: Vec<_> = rest.iter().copied().filter(|other| !other.session().is(first.session())).collect();
            first.session().inner.mux.turn.with(|()| hold_turns(&rest, f))
        }
        None => f(),
    }
}

/// A command that runs. Dropping it neither stops nor reaps it.
#[derive(Debug)]
pub struct Running {
    pub(crate) child: Child,
    pub(crate) words: Vec<OsString>,
}

impl Running {
    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.pid().cast_signed()
    }

    /// The command with its arguments.
    #[must_use]
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// The child, for [`crate::wait::Waiter::watch_child`].
    #[must_use]
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// [`Error::Wait`] once it has ended.
    pub fn kill(&mut self, signal: i32) -> Result<(), Error> {
        self.child.kill(signal).map_err(Error::Wait)
    }

    /// Waits until it has ended. What `wait4` said is brought to the session, for events that are counted from it.
    ///
    /// # Errors
    /// [`Error::Wait`] where other code has reaped it.
    pub fn wait(&mut self, session: &Session) -> Result<ExitedChild, Error> {
        let exited = self.child.wait().map_err(Error::Wait)?;
        self.settle(session, &exited);
        Ok(exited)
    }

    /// As [`Running::wait`], without waiting: `None` while it runs.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn try_wait(&mut self, session: &Session) -> Result<Option<ExitedChild>, Error> {
        let exited = self.child.try_wait().map_err(Error::Wait)?;
        if let Some(exited) = &exited {
            self.settle(session, exited);
        }
        Ok(exited)
    }

    fn settle(&self, session: &Session, exited: &ExitedChild) {
        session.engine().host().reaped(LinuxHost::task(self.pid()), exited.usage);
    }
}
