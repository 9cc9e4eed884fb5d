//! Going through a text from left to right.
//!
//! **Invariant:** a cursor never stands within a character, and never goes beyond its end.

use super::TextError;

#[derive(Clone, Copy)]
pub(crate) struct Cursor<'t> {
    pub(crate) text: &'t str,
    pub(crate) at: usize,
    end: usize,
}

/// A part of the text, and where it begins.
#[derive(Clone, Copy)]
pub(crate) struct TextPiece<'t> {
    pub(crate) text: &'t str,
    pub(crate) at: usize,
}

impl<'t> TextPiece<'t> {
    pub(crate) fn trim(self) -> Self {
        let text = self.text.trim_start();
        Self { text: text.trim_end(), at: self.at + self.text.len() - text.len() }
    }

    /// What stands behind so many bytes of it.
    pub(crate) fn from(self, byte: usize) -> Self {
        Self { text: self.text.get(byte..).unwrap_or_default(), at: self.at + byte }
    }

    pub(crate) fn to(self, byte: usize) -> Self {
        Self { text: self.text.get(..byte).unwrap_or_default(), at: self.at }
    }
}

impl<'t> Cursor<'t> {
    pub(crate) const fn new(text: &'t str) -> Self {
        Self { text, at: 0, end: text.len() }
    }

    /// At the beginning of a piece, which it does not leave.
    pub(crate) const fn within(self, piece: TextPiece<'_>) -> Self {
        Self { at: piece.at, end: piece.at + piece.text.len(), ..self }
    }

    pub(crate) fn rest(&self) -> &'t str {
        self.text.get(self.at..self.end).unwrap_or_default()
    }

    pub(crate) fn skip_blanks(&mut self) {
        self.at = self.end - self.rest().trim_start().len();
    }

    pub(crate) fn is_at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest().is_empty()
    }

    /// Takes a sign that comes next, behind blanks or not.
    pub(crate) fn take(&mut self, sign: &str) -> bool {
        self.skip_blanks();
        let taken = self.rest().starts_with(sign);
        self.at += if taken { sign.len() } else { 0 };
        taken
    }

    pub(crate) fn error(&self, at: usize, problem: impl Into<String>) -> TextError {
        TextError::new(self.text, at, problem)
    }
}
