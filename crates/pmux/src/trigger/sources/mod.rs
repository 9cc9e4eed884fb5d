//! What triggers listen to, on this machine.
//!
//! What it is: one [`Live`] for each thing that something waits for, with the terms that listen to it: hits (`hits`), and what is told by
//! files (`files`). Numbers that are read now and then are in `levels`.
//!
//! **Invariant:** what two rules wait for alike is opened once.

pub(super) mod files;
pub(super) mod hits;
pub(super) mod levels;

use super::engine::{TermId, TriggerEngine};
use crate::session::Session;
use crate::symbol::ProcessImage;
use crate::target::Target;
use pmux_engine::Nanos;
use pmux_linux::wait::{Token, Waiter};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum After {
    /// It does.
    Stays,
    /// It has nothing more to tell.
    Ended,
}

pub(super) trait Live: Send {
    fn watch(&self, waiter: &mut Waiter, token: Token);

    /// Tells the engine what has happened. `hangup`: the other end has gone.
    fn take(&mut self, engine: &mut TriggerEngine, hangup: bool, now: Nanos) -> After;

    /// CPUs have come or gone: listens on those that are there. Tells what has happened meanwhile.
    fn follow_cpus(&mut self, _: &mut TriggerEngine, _: Nanos) -> After {
        After::Stays
    }

    /// Whether it has to be looked for in programs as they are mapped: [`Live::look_into`].
    fn awaits_program(&self) -> bool {
        false
    }

    /// Looks for it in a program that stands, with these threads.
    ///
    /// Errors: why it can't be had there, and won't come.
    fn look_into(&mut self, _: &Session, _: &ProcessImage, _: &Target<'_>) -> Result<(), String> {
        Ok(())
    }

    /// No program will be mapped any more: tells the engine if it was found in none.
    fn miss(&mut self, _: &mut TriggerEngine) -> After {
        After::Stays
    }

    /// Nothing more will happen: tells the engine what has happened and is not told yet.
    fn finish(&mut self, _: &mut TriggerEngine, _: Nanos) {}

    /// When it wants to be asked again although nothing wakes.
    fn next(&self) -> Option<Nanos> {
        None
    }
}

/// The rules of those who listen, each once.
pub(super) fn rules(term_ids: impl IntoIterator<Item = TermId>) -> Vec<usize> {
    let mut rules: Vec<usize> = term_ids.into_iter().map(|term_id| term_id.rule).collect();
    crate::order::sort(&mut rules);
    rules.dedup();
    rules
}
