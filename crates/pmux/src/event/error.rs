//! What is wrong with a list of events.
//!
//! What it is: [`ParseFault`], which becomes a [`TextError`] once the text is known, and the sentences that are said in several places.

use crate::text::{TextError, printable};

pub(super) const UNCLOSED_GROUP: &str = "this group is never closed: expected '}'";
pub(super) const TOO_PRECISE: &str = "more than three 'p': 'ppp' is the most precise";
pub(super) const RAW_TOO_LARGE: &str = "a raw event has at most 64 bits: expected 'r' and up to 16 hexadecimal digits";

/// Something else stands there than what had to come.
pub(super) fn expected(what: &str, found: &str) -> String {
    format!("expected {what}, found '{}'", printable(found))
}

/// A term that exists, but not for pmux.
pub(super) fn unsupported_term(term: &str, reason: &str) -> String {
    format!("the term '{}' is not supported: {reason}", printable(term))
}

/// A term that needs a value and has none, or no number where it needs one.
pub(super) fn needs_number(term: &str) -> String {
    let term = printable(term);
    format!("'{term}' needs a number: '{term}=0x1'")
}

/// A value that doesn't fit into its field.
pub(super) fn too_large(term: &str, value: u64, max: u64) -> String {
    format!("{value:#x} does not fit into '{}': at most {max:#x}", printable(term))
}

/// A term that the PMU doesn't have. Without a name it is that of generic events, which take only the terms that all events have.
pub(super) fn unknown_term(pmu: &str, term: &str) -> String {
    let (pmu, term) = (printable(pmu), printable(term));
    if pmu.is_empty() {
        return format!("a generic event has no term '{term}'");
    }
    format!("the PMU '{pmu}' has neither a field nor an event named '{term}'")
}

/// A fault before the input is known: its byte offset instead of a column.
#[derive(Debug)]
pub(super) struct ParseFault {
    pub(super) at: usize,
    pub(super) problem: String,
    pub(super) suggestions: Vec<String>,
}

impl ParseFault {
    pub(super) fn new(at: usize, problem: impl Into<String>) -> Self {
        Self { at, problem: problem.into(), suggestions: Vec::new() }
    }

    pub(super) fn suggesting(mut self, suggestions: Vec<String>) -> Self {
        self.suggestions = suggestions;
        self
    }

    pub(super) fn into_error(self, input: &str) -> TextError {
        TextError::new(input, self.at, self.problem).suggesting(self.suggestions)
    }
}
