//! Text to tokens, each with its place.
//!
//! **Invariant:** it knows no grammar; it only tells words from signs.

use super::TextSpan;
use crate::event::error::ParseFault;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TokenKind<'a> {
    /// A run of characters that names and numbers are made of, patterns too.
    Word(&'a str),
    /// The text between two `'`.
    Quoted(&'a str),
    /// One of `, { } : / =`.
    Sign(char),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind<'a>,
    pub(super) at: TextSpan,
}

/// Cuts a text into tokens; space between them is dropped, and their places show where it was.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseFault> {
    let mut tokens = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some((start, c)) = rest.next() {
        let (kind, end) = match c {
            _ if c.is_ascii_whitespace() => continue,
            ',' | '{' | '}' | ':' | '/' | '=' => (TokenKind::Sign(c), start + 1),
            '\'' => {
                let inside = &text[start + 1..];
                let len = inside.find('\'').ok_or_else(|| ParseFault::new(start, "this quote is never closed"))?;
                let end = start + 1 + len + 1;
                while rest.next_if(|(at, _)| *at < end).is_some() {}
                (TokenKind::Quoted(&inside[..len]), end)
            }
            _ if is_word(c) => {
                let mut end = start + 1;
                while rest.next_if(|(_, c)| is_word(*c)).is_some() {
                    end += 1;
                }
                (TokenKind::Word(&text[start..end]), end)
            }
            _ => return Err(ParseFault::new(start, format!("no event has the character {c:?}"))),
        };
        tokens.push(Token { kind, at: TextSpan { start, end } });
    }
    Ok(tokens)
}

/// Only ASCII: the places of a word's letters are then its bytes.
pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_*?.-[]!^@+~%$".contains(c)
}
