//! What is told by a file: pressure, the end of a process, lines, signals.
//!
//! **Invariant:** a source that ends says so, unless it has told all that it could.

use super::super::engine::{TermId, TriggerEngine};
use super::super::events::Reason;
use super::super::language::{LineFilter, Pressure};
use super::{After, Live, rules};
use pmux_engine::Nanos;
use pmux_engine::event_set::TriggerTarget;
use pmux_linux::pressure;
use pmux_linux::wait::{ProcessEnd, Signals, Token, Waiter};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::OwnedFd;

/// A line is looked at as far as this; what is behind is passed over.
const LONGEST_LINE: usize = 64 * 1024;
/// So much is read at once, so that a flood of lines leaves time for the rest.
const READ_BYTES: usize = 64 * 1024;

/// Tasks that wait for something.
pub(in crate::trigger) struct Stalls {
    pub(in crate::trigger) file: pressure::Pressure,
    pub(in crate::trigger) limit: Pressure,
    pub(in crate::trigger) term_ids: Vec<TermId>,
}

impl Live for Stalls {
    fn watch(&self, waiter: &mut Waiter, token: Token) {
        waiter.watch_urgent(&self.file, token);
    }

    fn take(&mut self, engine: &mut TriggerEngine, hangup: bool, now: Nanos) -> After {
        if hangup {
            let what = format!("{}: the cgroup is not there any more, so nothing is told of it", self.limit);
            engine.lose(rules(self.term_ids.iter().copied()), what);
            return After::Ended;
        }
        for &term_id in &self.term_ids {
            engine.happen(term_id, TriggerTarget::All, Reason::Pressure(self.limit.clone()), now);
        }
        After::Stays
    }
}

pub(in crate::trigger) struct Ending {
    pub(in crate::trigger) end: ProcessEnd,
    pub(in crate::trigger) pid: i32,
    pub(in crate::trigger) term_ids: Vec<TermId>,
}

impl Live for Ending {
    fn watch(&self, waiter: &mut Waiter, token: Token) {
        waiter.watch(&self.end, token);
    }

    fn take(&mut self, engine: &mut TriggerEngine, _: bool, now: Nanos) -> After {
        for &term_id in &self.term_ids {
            engine.happen(term_id, TriggerTarget::All, Reason::Ended { pid: self.pid }, now);
        }
        After::Ended
    }
}

pub(in crate::trigger) struct Signalled {
    pub(in crate::trigger) signals: Signals,
    pub(in crate::trigger) number: i32,
    pub(in crate::trigger) name: &'static str,
    pub(in crate::trigger) term_ids: Vec<TermId>,
}

impl Live for Signalled {
    fn watch(&self, waiter: &mut Waiter, token: Token) {
        waiter.watch(&self.signals, token);
    }

    fn take(&mut self, engine: &mut TriggerEngine, _: bool, now: Nanos) -> After {
        if self.signals.take().contains(&self.number) {
            for &term_id in &self.term_ids {
                engine.happen(term_id, TriggerTarget::All, Reason::Signal(self.name), now);
            }
        }
        After::Stays
    }
}

enum LineMatcher {
    Text(String),
    Pattern(regex_lite::Regex),
}

pub(in crate::trigger) struct LineInput {
    file: File,
    term_ids: Vec<(TermId, LineMatcher)>,
    /// Of the line that has no end yet.
    begun: Vec<u8>,
}

impl LineInput {
    pub(in crate::trigger) fn new(file: OwnedFd) -> Self {
        Self { file: file.into(), term_ids: Vec::new(), begun: Vec::new() }
    }

    /// # Errors
    /// Why the pattern is none.
    pub(in crate::trigger) fn add(&mut self, term_id: TermId, line: &LineFilter) -> Result<(), String> {
        let matcher = match line {
            LineFilter::Text(text) => LineMatcher::Text(text.clone()),
            LineFilter::Pattern(pattern) => {
                LineMatcher::Pattern(regex_lite::Regex::new(pattern).map_err(|error| error.to_string())?)
            }
        };
        self.term_ids.push((term_id, matcher));
        Ok(())
    }

    fn end_line(&mut self, engine: &mut TriggerEngine, now: Nanos) {
        let line = String::from_utf8_lossy(&self.begun).trim_end_matches('\r').to_owned();
        self.begun.clear();
        for (term_id, matcher) in &self.term_ids {
            let matches = match matcher {
                LineMatcher::Text(text) => line.contains(text.as_str()),
                LineMatcher::Pattern(pattern) => pattern.is_match(&line),
            };
            if matches {
                engine.happen(*term_id, TriggerTarget::All, Reason::Line(line.clone()), now);
            }
        }
    }
}

impl Live for LineInput {
    fn watch(&self, waiter: &mut Waiter, token: Token) {
        waiter.watch(&self.file, token);
    }

    fn take(&mut self, engine: &mut TriggerEngine, _: bool, now: Nanos) -> After {
        let mut bytes = vec![0; READ_BYTES];
        let why = match self.file.read(&mut bytes) {
            Ok(0) => "the input has ended".to_owned(),
            Ok(count) => {
                for &byte in bytes.iter().take(count) {
                    match byte {
                        b'\n' => self.end_line(engine, now),
                        _ if self.begun.len() < LONGEST_LINE => self.begun.push(byte),
                        _ => {}
                    }
                }
                return After::Stays;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return After::Stays;
            }
            Err(error) => format!("the input can't be read: {error}"),
        };
        if !self.begun.is_empty() {
            self.end_line(engine, now);
        }
        let rules = rules(self.term_ids.iter().map(|(term_id, _)| *term_id));
        engine.lose(rules, format!("{why}: no line will come any more"));
        After::Ended
    }
}
