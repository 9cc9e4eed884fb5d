//! The text of a scenario, word by word.
//!
//! What it is: a cursor over the text that gives one token at a time, and, where the language takes a text as it stands (an
//! event, a reason), that text.
//!
//! **Invariant:** every text is a sequence of tokens; what has no place in the language is [`Token::Unknown`]. Cheap to copy:
//! code that wants to try something keeps a copy.

use std::fmt;

use super::ast::SourceSpan;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    /// A letter or `_`, then letters, digits, `_`, and `-` before a letter or digit: `run`, `enable-on-exec`.
    Word(&'a str),
    /// A digit, then letters, digits, `_` and points before digits: `10ms`, `0.4`, `0x1000`.
    Number(&'a str),
    /// A sign, or two that belong together.
    Sign(&'a str),
    /// What can't begin anything.
    Unknown(char),
    Semicolon,
    Newline,
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) | Self::Number(text) | Self::Sign(text) => write!(f, "`{text}`"),
            Self::Unknown(c) => write!(f, "`{}`", c.escape_debug()),
            Self::Semicolon => f.write_str("`;`"),
            Self::Newline => f.write_str("the end of the line"),
            Self::End => f.write_str("the end of the file"),
        }
    }
}

/// The signs, those of two characters first.
const SIGNS: [&str; 21] =
    ["==", "!=", "<=", ">=", "<", ">", "=", ",", "{", "}", "(", ")", "[", "]", ".", "+", "-", "*", "/", "%", "~"];
const MORE_SIGNS: [&str; 2] = ["|", ":"];

#[derive(Clone, Copy)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    column: u32,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, line: 1, column: 1 }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let passed = self.rest().get(..bytes).unwrap_or_else(|| self.rest());
        for c in passed.chars() {
            if c == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        self.at += passed.len();
        passed
    }

    pub(super) fn here(&self) -> SourceSpan {
        SourceSpan { line: self.line, column: self.column, start: self.at, end: self.at }
    }

    /// Goes over blanks and a comment; not over the end of the line.
    fn skip_blanks(&mut self) {
        let rest = self.rest();
        let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
        self.advance(blanks);
        let rest = self.rest();
        if rest.starts_with('#') {
            self.advance(rest.find('\n').unwrap_or(rest.len()));
        }
    }

    pub(super) fn next(&mut self) -> (Token<'a>, SourceSpan) {
        self.skip_blanks();
        let start = self.here();
        let token = self.token();
        (token, SourceSpan { end: self.at, ..start })
    }

    /// The next token, which stays the next one.
    pub(super) fn peek(&self) -> (Token<'a>, SourceSpan) {
        let mut copy = *self;
        copy.next()
    }

    fn token(&mut self) -> Token<'a> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Token::End };
        match first {
            '\n' => {
                self.advance(1);
                Token::Newline
            }
            ';' => {
                self.advance(1);
                Token::Semicolon
            }
            _ if starts_word(first) => Token::Word(self.advance(run(rest, '-'))),
            _ if first.is_ascii_digit() => Token::Number(self.advance(run(rest, '.'))),
            _ => {
                if let Some(sign) = SIGNS.iter().chain(&MORE_SIGNS).find(|sign| rest.starts_with(**sign)) {
                    return Token::Sign(self.advance(sign.len()));
                }
                self.advance(first.len_utf8());
                Token::Unknown(first)
            }
        }
    }

    /// The next word without any `-` in it: in a calculation that is a minus. `None` if no word comes next.
    pub(super) fn plain_word(&mut self) -> Option<(&'a str, SourceSpan)> {
        self.skip_blanks();
        let start = self.here();
        let rest = self.rest();
        rest.chars().next().filter(|first| starts_word(*first))?;
        let len = rest.find(|c: char| !in_word(c)).unwrap_or(rest.len());
        let word = self.advance(len);
        Some((word, SourceSpan { end: self.at, ..start }))
    }

    /// An event as it stands: up to a blank, `,`, `;`, `{`, `}` or `#`; commas between two slashes belong to it. Empty if
    /// something else comes next.
    pub(super) fn event(&mut self) -> (&'a str, SourceSpan) {
        self.skip_blanks();
        let start = self.here();
        let rest = self.rest();
        // A breakpoint has one slash, before its length.
        let terms = !rest.starts_with("mem:");
        let mut slashes = 0;
        let end = rest.find(|c: char| {
            slashes += u32::from(c == '/');
            let between = terms && slashes == 1;
            c.is_whitespace() || matches!(c, ';' | '{' | '}' | '#') || (c == ',' && !between)
        });
        let event = self.advance(end.unwrap_or(rest.len()));
        (event, SourceSpan { end: self.at, ..start })
    }

    /// What is left of the line, without blanks around it and without a comment.
    pub(super) fn rest_of_line(&mut self) -> (&'a str, SourceSpan) {
        self.skip_blanks();
        let start = self.here();
        let rest = self.rest();
        let line = &rest[..rest.find(['\n', '#']).unwrap_or(rest.len())];
        let said = line.trim_end();
        self.advance(line.len());
        (said, SourceSpan { end: start.start + said.len(), ..start })
    }
}

fn starts_word(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// How many bytes belong to a word or number, with `joint` where it stands between two characters of one.
fn run(text: &str, joint: char) -> usize {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let joined = c == joint && at > 0 && chars.peek().is_some_and(|(_, next)| in_word(*next));
        if !in_word(c) && !joined {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text);
        std::iter::from_fn(|| Some(lexer.next().0).filter(|token| *token != Token::End)).collect()
    }

    #[test]
    fn words_numbers_and_signs() {
        use Token::{Number, Semicolon, Sign, Word};
        assert_eq!(
            tokens("run A 10ms; e1.count<=0.4 0-1 enable-on-exec # not this\u{e4}"),
            [
                Word("run"),
                Word("A"),
                Number("10ms"),
                Semicolon,
                Word("e1"),
                Sign("."),
                Word("count"),
                Sign("<="),
                Number("0.4"),
                Number("0"),
                Sign("-"),
                Number("1"),
                Word("enable-on-exec"),
            ]
        );
        assert_eq!(tokens("é\r\n"), [Token::Unknown('é'), Token::Newline]);
    }

    #[test]
    fn columns_count_characters() {
        let mut lexer = Lexer::new("é é\n x");
        let places: Vec<_> = (0..4).map(|_| lexer.next().1).map(|place| (place.line, place.column)).collect();
        assert_eq!(places, [(1, 1), (1, 3), (1, 4), (2, 2)]);
    }

    #[test]
    fn events_stand_as_they_are() {
        for (text, event) in [
            ("cycles:u, x", "cycles:u"),
            ("cpu/event=0x1,umask=2/k, x", "cpu/event=0x1,umask=2/k"),
            ("mem:0x1000/8:w, x", "mem:0x1000/8:w"),
            ("sched:sched_switch} on", "sched:sched_switch"),
            (", x", ""),
        ] {
            assert_eq!(Lexer::new(text).event().0, event);
        }
    }
}
