//! Lines of a page, made of pieces that play a part.
//!
//! **Invariant:** a column is a character; texts have no line ends in them.

use std::fmt;

/// The part that a text plays.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Ordinary text.
    Plain,
    /// What the eye looks for: names of CPUs and counters, statements.
    Strong,
    /// Rules, signs and other helpers.
    Faint,
    /// A task; tasks are numbered from 0, so that each can have its colour.
    Task(usize),
    /// An event; events are numbered from 0, so that each can have its colour.
    Event(usize),
    /// All is well.
    Good,
    /// Worth a look.
    Notice,
    /// Not as it should be.
    Bad,
}

/// A piece of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The part that it plays.
    pub role: Role,
    /// The text; blanks for padding are pieces of their own.
    pub text: String,
}

/// A line, without its end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// Its pieces, from left to right.
    pub pieces: Vec<Piece>,
}

/// Prints the text of the line.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| f.write_str(&piece.text))
    }
}

impl Line {
    pub(super) fn of(role: Role, text: impl Into<String>) -> Self {
        Self::default().with(role, text)
    }

    pub(super) fn with(mut self, role: Role, text: impl Into<String>) -> Self {
        self.put(role, text);
        self
    }

    pub(super) fn put(&mut self, role: Role, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() {
            self.pieces.push(Piece { role, text });
        }
    }

    pub(super) fn width(&self) -> usize {
        self.pieces.iter().map(|piece| width(&piece.text)).sum()
    }

    /// Goes on at this column, or where the line is, if that is further.
    pub(super) fn pad_to(&mut self, column: usize) {
        self.put(Role::Plain, " ".repeat(column.saturating_sub(self.width())));
    }
}

pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Adds text behind the start of a line, and goes on below it where the line ends.
pub(super) fn wrap(lines: &mut Vec<Line>, room: usize, start: Line, role: Role, text: &str) {
    let indent = start.width();
    let (mut line, mut empty) = (start, true);
    let mut part = String::new();
    for word in text.split(' ') {
        if !empty && line.width() + width(&part) + 1 + width(word) > room {
            line.put(role, std::mem::take(&mut part));
            lines.push(std::mem::take(&mut line));
            line.pad_to(indent);
            empty = true;
        }
        if !empty {
            part.push(' ');
        }
        part.push_str(word);
        empty = false;
    }
    line.put(role, part);
    lines.push(line);
}
