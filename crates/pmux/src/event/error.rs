//! What is wrong with a list of events, where, and what was perhaps meant.
//!
//! What it is: [`ParseError`], which shows the input with a mark under the place at fault.
//!
//! **Invariant:** it only tells; it looks nothing up.

use std::fmt;

use pmux_linux::catalog::CatalogError;

/// How many characters of a long input are shown.
const SHOWN: usize = 72;

/// A list of events that can't be understood, or names something that isn't there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The whole text that was given.
    pub input: String,
    /// Where the fault is: characters from the beginning, from 0.
    pub column: usize,
    /// What is wrong.
    pub kind: ErrorKind,
    /// Names that were perhaps meant, best first.
    pub suggestions: Vec<String>,
}

/// What is wrong with a list of events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// There is no event at all.
    Empty,
    /// A character that no event can have.
    UnexpectedCharacter(char),
    /// A quote that is never closed.
    UnclosedQuote,
    /// Something else stands here than what had to come.
    Expected {
        /// What had to come.
        what: &'static str,
        /// What stands there; empty at the end.
        found: String,
    },
    /// A group in a group.
    NestedGroup,
    /// A `{` without its `}`.
    UnclosedGroup,
    /// A letter that is no modifier.
    BadModifier {
        /// The letter.
        letter: char,
    },
    /// A modifier that stands twice.
    RepeatedModifier {
        /// The letter.
        letter: char,
    },
    /// A modifier that exists elsewhere.
    UnsupportedModifier {
        /// The letter.
        letter: char,
        /// Why not here.
        reason: &'static str,
    },
    /// More than three `p`.
    TooPrecise,
    /// `D` or `e` at an event that isn't the first of its group.
    MemberModifier {
        /// The letter.
        letter: char,
    },
    /// A name that neither Linux nor this machine knows.
    UnknownEvent {
        /// The name.
        name: String,
    },
    /// A plain number that means no event.
    UnknownNumber {
        /// The number.
        number: i64,
    },
    /// A raw event with more than 64 bits.
    RawTooLarge,
    /// A PMU that isn't there.
    UnknownPmu {
        /// Its name.
        pmu: String,
    },
    /// A term that the PMU doesn't have.
    UnknownTerm {
        /// The PMU; empty for generic events, which take only the terms that all events have.
        pmu: String,
        /// The term.
        term: String,
    },
    /// A term that exists, but not for pmux.
    UnsupportedTerm {
        /// The term.
        term: String,
        /// Why not.
        reason: &'static str,
    },
    /// A term that needs a value and has none, or no number where it needs one.
    TermNeedsNumber {
        /// The term.
        term: String,
    },
    /// A name without a text.
    TermNeedsText {
        /// The term.
        term: String,
    },
    /// A named event that was given a value.
    TermTakesNoValue {
        /// The term.
        term: String,
    },
    /// A value that doesn't fit into its field.
    ValueTooLarge {
        /// The term.
        term: String,
        /// The value given.
        value: u64,
        /// The largest that fits.
        max: u64,
    },
    /// A named event that leaves a term open, which wasn't given.
    AliasNeedsTerm {
        /// The named event.
        alias: String,
        /// The term.
        term: String,
    },
    /// Two named events, each with a scale or unit of its own.
    TwoScales {
        /// The second one.
        alias: String,
    },
    /// A probe whose place is not there.
    NoSuchPlace {
        /// Why, as a sentence.
        why: String,
    },
    /// A cache that has no such operation.
    NoSuchOperation {
        /// The cache.
        cache: &'static str,
        /// The operation.
        op: &'static str,
    },
    /// No tracepoint has that name, or matches that pattern.
    UnknownTracepoint {
        /// The system.
        system: String,
        /// The name or pattern.
        name: String,
    },
    /// A list where one event was asked for.
    NotOne {
        /// How many there are.
        found: usize,
    },
    /// The machine could not be asked.
    Catalog(CatalogError),
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "no event given"),
            Self::UnexpectedCharacter(c) => write!(f, "no event has the character {c:?}"),
            Self::UnclosedQuote => write!(f, "this quote is never closed"),
            Self::Expected { what, found } if found.is_empty() => {
                write!(f, "expected {what}, but the text ends here")
            }
            Self::Expected { what, found } => {
                write!(f, "expected {what}, found '{}'", printable(found))
            }
            Self::NestedGroup => write!(f, "a group cannot hold another group"),
            Self::UnclosedGroup => write!(f, "this group is never closed: expected '}}'"),
            Self::BadModifier { letter } => {
                write!(f, "{letter:?} is no modifier: expected some of u k h I G H p P S D e W")
            }
            Self::RepeatedModifier { letter } => write!(f, "the modifier '{letter}' stands twice"),
            Self::UnsupportedModifier { letter, reason } => {
                write!(f, "the modifier '{letter}' is not supported: {reason}")
            }
            Self::TooPrecise => write!(f, "more than three 'p': 'ppp' is the most precise"),
            Self::MemberModifier { letter } => {
                write!(f, "'{letter}' holds for a whole group: put it behind the group, or at its first event")
            }
            Self::UnknownEvent { name } => write!(f, "unknown event '{}'", printable(name)),
            Self::UnknownNumber { number } => write!(
                f,
                "no event has the number {number}: 0 cycles, 1 instructions, 2 cache-references, 3 cache-misses, \
                 4 branches, 5 branch-misses, -1 cpu-clock, -2 task-clock, -3 page-faults, -4 context-switches, \
                 -5 cpu-migrations"
            ),
            Self::RawTooLarge => {
                write!(f, "a raw event has at most 64 bits: expected 'r' and up to 16 hexadecimal digits")
            }
            Self::UnknownPmu { pmu } => {
                write!(f, "this machine has no PMU named '{}'", printable(pmu))
            }
            Self::UnknownTerm { pmu, term } if pmu.is_empty() => {
                write!(f, "a generic event has no term '{}'", printable(term))
            }
            Self::UnknownTerm { pmu, term } => {
                write!(f, "the PMU '{}' has neither a field nor an event named '{}'", printable(pmu), printable(term))
            }
            Self::UnsupportedTerm { term, reason } => {
                write!(f, "the term '{}' is not supported: {reason}", printable(term))
            }
            Self::TermNeedsNumber { term } => {
                write!(f, "'{}' needs a number: '{}=0x1'", printable(term), printable(term))
            }
            Self::TermNeedsText { term } => write!(f, "'{}' needs a text: '{}=text'", printable(term), printable(term)),
            Self::TermTakesNoValue { term } => write!(f, "'{}' is a named event and takes no value", printable(term)),
            Self::ValueTooLarge { term, value, max } => {
                write!(f, "{value:#x} does not fit into '{}': at most {max:#x}", printable(term))
            }
            Self::AliasNeedsTerm { alias, term } => {
                write!(f, "the event '{}' also needs '{}=NUMBER'", printable(alias), printable(term))
            }
            Self::TwoScales { alias } => {
                write!(f, "'{}' has a unit of its own: it cannot be joined to another event with one", printable(alias))
            }
            Self::NoSuchOperation { cache, op } => write!(f, "{cache} has no {op} events"),
            Self::UnknownTracepoint { system, name } => {
                write!(f, "this kernel has no tracepoint '{}:{}'", printable(system), printable(name))
            }
            Self::NoSuchPlace { why } => write!(f, "{}", printable(why)),
            Self::NotOne { found } => write!(f, "expected one event, found {found}"),
            Self::Catalog(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.kind)?;
        write_marked(f, &self.input, self.column)?;
        write_suggestions(f, &self.suggestions)
    }
}

/// Writes a text and, in a second line, a mark under one of its characters.
pub(crate) fn write_marked(f: &mut fmt::Formatter<'_>, input: &str, column: usize) -> fmt::Result {
    let chars: Vec<char> = printable(input).chars().collect();
    let column = column.min(chars.len());
    // The place at fault is shown with as much as fits around it.
    let first = if chars.len() <= SHOWN { 0 } else { column.saturating_sub(SHOWN / 2).min(chars.len() - SHOWN) };
    let last = (first + SHOWN).min(chars.len());
    let (cut, more) = (if first > 0 { "..." } else { "" }, if last < chars.len() { "..." } else { "" });
    let shown: String = chars[first..last].iter().collect();
    writeln!(f, "  {cut}{shown}{more}")?;
    write!(f, "  {:width$}^", "", width = cut.len() + column - first)
}

/// Writes a line with the names that were perhaps meant, if there are any.
pub(crate) fn write_suggestions(f: &mut fmt::Formatter<'_>, suggestions: &[String]) -> fmt::Result {
    let Some((best, others)) = suggestions.split_first() else { return Ok(()) };
    write!(f, "\n  did you mean {}", printable(best))?;
    for (i, other) in others.iter().enumerate() {
        write!(f, "{} {}", if i + 1 == others.len() { " or" } else { "," }, printable(other))?;
    }
    write!(f, "?")
}

impl std::error::Error for ParseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Catalog(error) => Some(error),
            _ => None,
        }
    }
}

/// A fault before the input is known: its byte offset instead of a column.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) kind: ErrorKind,
    pub(super) suggestions: Vec<String>,
}

impl Fault {
    pub(super) fn new(at: usize, kind: ErrorKind) -> Self {
        Self { at, kind, suggestions: Vec::new() }
    }

    pub(super) fn suggesting(mut self, suggestions: Vec<String>) -> Self {
        self.suggestions = suggestions;
        self
    }

    pub(super) fn into_error(self, input: &str) -> ParseError {
        let column = input.char_indices().take_while(|(at, _)| *at < self.at).count();
        ParseError { input: input.to_owned(), column, kind: self.kind, suggestions: self.suggestions }
    }
}

/// What may be written to a terminal: control characters could move its cursor or worse. The length stays the same.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stands_under_the_fault() {
        let kind = ErrorKind::UnknownEvent { name: "page-fautls".into() };
        let error = Fault::new(3, kind).suggesting(vec!["page-faults".into()]).into_error("cs,page-fautls");
        let text = "unknown event 'page-fautls'\n  cs,page-fautls\n     ^\n  did you mean page-faults?";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(Fault::new(4, ErrorKind::Empty).into_error("éé,x").column, 2);
    }

    #[test]
    fn a_long_input_is_cut_around_the_fault() {
        let input = format!("{}!{}", "a".repeat(200), "b".repeat(200));
        let text = Fault::new(200, ErrorKind::UnexpectedCharacter('!')).into_error(&input).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1].find('!'), lines[2].find('^'));
        assert!(lines[1].len() < 90);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let text =
            Fault::new(0, ErrorKind::UnknownEvent { name: "\u{1b}[2J".into() }).into_error("\u{1b}[2J").to_string();
        assert!(!text.contains('\u{1b}'));
    }
}
