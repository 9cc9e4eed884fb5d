//! What is wrong with a text that was written for us: a list of events, a target, a condition, a trigger.
//!
//! What it is: [`TextError`], which shows the text with a mark under the place at fault; and the `cursor` that small languages are read
//! with.
//!
//! **Invariant:** it only tells; it looks nothing up.

#[cfg(feature = "record")]
mod cursor;

#[cfg(feature = "record")]
pub(crate) use cursor::{Cursor, TextPiece};
use std::fmt;

/// How many characters of a long text are shown.
const SHOWN: usize = 72;

/// Why a text is not what it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextError {
    text: String,
    /// Where, in characters from 0.
    column: usize,
    pub(crate) problem: String,
    pub(crate) suggestions: Vec<String>,
}

impl TextError {
    pub(crate) fn new(text: &str, byte: usize, problem: impl Into<String>) -> Self {
        let column = text.char_indices().take_while(|(at, _)| *at < byte).count();
        Self { text: text.to_owned(), column, problem: problem.into(), suggestions: Vec::new() }
    }

    pub(crate) fn suggesting(mut self, suggestions: Vec<String>) -> Self {
        self.suggestions = suggestions;
        self
    }

    /// Where, in characters from 0.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.problem)?;
        write_marked(f, &self.text, self.column)?;
        write_suggestions(f, &self.suggestions)
    }
}

impl std::error::Error for TextError {}

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

/// What may be written to a terminal: control characters could move its cursor or worse. The length stays the same.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stands_under_the_fault() {
        let error = TextError::new("cs,page-fautls", 3, "unknown event 'page-fautls'");
        let text = "unknown event 'page-fautls'\n  cs,page-fautls\n     ^\n  did you mean page-faults?";
        assert_eq!(error.suggesting(vec!["page-faults".into()]).to_string(), text);
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(TextError::new("éé,x", 4, "no event given").column(), 2);
    }

    #[test]
    fn a_long_input_is_cut_around_the_fault() {
        let input = format!("{}!{}", "a".repeat(200), "b".repeat(200));
        let text = TextError::new(&input, 200, "no event has the character '!'").to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1].find('!'), lines[2].find('^'));
        assert!(lines[1].len() < 90);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let text = TextError::new("\u{1b}[2J", 0, format!("unknown event '{}'", printable("\u{1b}[2J"))).to_string();
        assert!(!text.contains('\u{1b}'));
    }
}
