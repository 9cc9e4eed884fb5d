//! A command that is held when something is mapped.
//!
//! What it is: [`Followed`], a command that executes its program and stops before the first instruction, and each time a
//! library is mapped. Read first: `crates/linux/src/trace/mod.rs`.
//!
//! **Invariant:** what is done while everything stands is the caller's: nothing is looked up here.

use crate::command::{Command, Running};
use crate::error::Error;
use pmux_linux::trace::{self, FollowError, Step};
use std::os::fd::BorrowedFd;

impl Command {
    /// Lets it execute its program and follows it: the first [`Followed::next_step`] answers the stop before the program's
    /// first instruction.
    ///
    /// Events can be opened at a stop, on the threads that it names: nothing of them runs until it is over.
    ///
    /// # Errors
    /// [`Error::Follow`] where tracing is refused; [`Error::Spawn`] where the program can't be executed.
    pub fn follow(self) -> Result<Followed, Error> {
        let Self { held, words } = self;
        let (child, trace) = held.follow().map_err(|error| match error {
            FollowError::Spawn(error) => Error::Spawn(error),
            error => Error::Follow(error),
        })?;
        Ok(Followed { trace, running: Running { child, words } })
    }
}

/// A command that is followed, with all that it starts. Dropped, it runs on and is not reaped.
#[derive(Debug)]
pub struct Followed {
    trace: trace::Followed,
    running: Running,
}

impl Followed {
    /// Lets everything go on that stands, and waits for the next stop.
    pub fn next_step(&mut self) -> Step {
        self.trace.next_step()
    }

    /// As [`Followed::next_step`], without waiting: `None` while nothing new has happened.
    pub fn try_step(&mut self) -> Option<Step> {
        self.trace.try_step()
    }

    /// Lets everything go on that stands: to be called before waiting for [`Followed::ready`].
    pub fn go_on(&mut self) {
        self.trace.go_on();
    }

    /// As [`Followed::go_on`], and nothing more is looked for in the process that the stop was about, nor in what it forks: they
    /// run at full speed until they execute a program.
    pub fn go_on_at_full_speed(&mut self) {
        self.trace.go_on_at_full_speed();
    }

    /// A descriptor that polls as readable while [`Followed::try_step`] has an answer, for
    /// [`crate::wait::Waiter::watch`].
    #[must_use]
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.trace.ready()
    }

    /// The command. It can be waited for and killed while it is followed; to wait at a stop waits for ever.
    pub fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    /// Lets everything go for good: it runs at full speed from here on.
    #[must_use]
    pub fn finish(self) -> Running {
        self.trace.finish();
        self.running
    }

    /// Kills every process that is followed; the command has to be waited for.
    #[must_use]
    pub fn kill(self) -> Running {
        self.trace.kill();
        self.running
    }
}
