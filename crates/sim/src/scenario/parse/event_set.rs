//! Event sets and triggers.
//!
//! **Invariant:** what is built here is complete.

use super::super::ast::{EventSet, Statement, Switching, Trigger};
use super::super::lex::Token;
use super::{Parsed, Parser};
use pmux_engine::Nanos;
use pmux_engine::event_set::Rounds;

impl Parser<'_> {
    pub(super) fn event_set(&mut self) -> Parsed<Statement> {
        let name = self.name("the name of the set")?;
        self.sign("=")?;
        let members = self.list(Self::control_target)?;
        Ok(Statement::Set(EventSet { name, members }))
    }

    /// Takes `fine on for 5ms`.
    pub(super) fn switching(&mut self) -> Parsed<Switching> {
        let set = self.name("the name of an event set")?;
        let to = self.choice("on or off")?;
        let span = if self.eat_word("for") { Some(self.span("a time")?) } else { None };
        Ok(Switching { set, to, span })
    }

    pub(super) fn trigger(&mut self) -> Parsed<Statement> {
        let name = self.name("the name of the trigger")?;
        self.sign("=")?;
        let event = self.name("the name of an event")?;
        self.word("over")?;
        let amount = self.number("a number of events", 0..=u64::MAX)?;
        self.sign("/")?;
        let per = self.per()?;
        let held = if self.eat_word("for") { self.span("a time")? } else { Nanos::ZERO };
        let every = if self.eat_word("every") { self.number("a number, from 1,", 1..=u32::MAX)? } else { 1 };
        let rounds = if self.eat_word("once") { Rounds::Once } else { Rounds::Always };
        if !matches!(self.lexer.peek().0, Token::Word("switches")) {
            return Err(self.unexpected_word("for, every, once or switches", ["for", "every", "once", "switches"]));
        }
        self.word("switches")?;
        let switches = self.switching()?;
        Ok(Statement::Trigger(Box::new(Trigger { name, event, amount, per, held, every, rounds, switches })))
    }
}
