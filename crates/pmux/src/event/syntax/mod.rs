//! The text of an event list, as a tree.
//!
//! What it is: what was written, before anything is looked up. Text to tokens in `lexer`, tokens to a tree in `parser`.
//! Read first: [`Item`] and [`EventNode`].
//!
//! **Invariant:** pure. The same text gives the same tree on every machine.

mod lexer;
mod parser;
#[cfg(test)]
mod tests;

pub(super) use parser::parse;

use super::breakpoint::Access;
use super::modifiers::Modifiers;
use super::probe::ProbeAt;

/// Where a part stands in the text, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextSpan {
    pub(super) start: usize,
    pub(super) end: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Item {
    Event(EventNode),
    Group(GroupNode),
}

/// `name{a,b}:mods`.
#[derive(Clone, Debug)]
pub(super) struct GroupNode {
    pub(super) name: Option<String>,
    pub(super) events: Vec<EventNode>,
    pub(super) modifiers: Modifiers,
    pub(super) modifiers_at: TextSpan,
}

#[derive(Clone, Debug)]
pub(super) struct EventNode {
    /// All of it, modifiers included: this is the name that a table shows.
    pub(super) at: TextSpan,
    pub(super) what: EventForm,
    /// The terms between slashes. `Some` of an empty list is `msr//`.
    pub(super) terms: Option<Vec<Term>>,
    pub(super) modifiers: Modifiers,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum EventForm {
    /// A generic name, a raw event, a PMU (with terms) or an event of a PMU (without).
    Name(String),
    /// One of the plain numbers.
    Number(i64),
    /// `TYPE:CONFIG`.
    Typed { kind: u32, config: u64 },
    /// `SYSTEM:NAME`, both may be patterns.
    Tracepoint { system: String, name: String },
    /// `mem:ADDRESS[/LENGTH][:ACCESS]`.
    Memory { address: u64, len: Option<u64>, access: Option<Access> },
    /// `uprobe:PATH:PLACE` or `uretprobe:PATH:PLACE`.
    Probe { path: String, place: String, at: ProbeAt },
}

/// `name` or `name=value` between the slashes.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) at: TextSpan,
    pub(super) name: String,
    pub(super) value: Option<SyntaxValue>,
    pub(super) value_at: TextSpan,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum SyntaxValue {
    Number(u64),
    Text(String),
}
