//! What triggers, actions and sets consist of: words, bodies, numbers and times.

use crate::text::{Cursor, TextError, TextPiece, printable};
use crate::units::TIME_UNITS;
use std::time::Duration;

/// Words that end a part of a trigger, where they stand alone and outside of quotes.
const KEYWORDS: [&str; 5] = ["and", "for", "per", "every", "once"];
/// A rule with a longer time would never fire in practice.
const LONGEST_S: f64 = 366.0 * 86400.0;

impl<'t> Cursor<'t> {
    pub(super) fn expected(&mut self, what: &str) -> TextError {
        self.skip_blanks();
        let found = self.rest().split_whitespace().next().map(printable);
        let found = found.map_or_else(|| "the end".to_owned(), |word| format!("`{word}`"));
        self.error(self.at, format!("expected {what}, found {found}"))
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        self.skip_blanks();
        let behind = self.rest().strip_prefix(word);
        let taken = behind.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || "_-:".contains(c)));
        if taken {
            self.at += word.len();
        }
        taken
    }

    /// Letters, digits, `_` and `-` that stand here.
    pub(super) fn name(&mut self) -> TextPiece<'t> {
        self.skip_blanks();
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').unwrap_or(rest.len());
        let piece = TextPiece { text: rest, at: self.at }.to(len);
        self.at += len;
        piece
    }

    /// All until one of the [`KEYWORDS`], or the end; not empty.
    pub(super) fn body(&mut self) -> Result<TextPiece<'t>, TextError> {
        self.up_to(|rest, after_blank| {
            after_blank && rest.split(char::is_whitespace).next().is_some_and(|word| KEYWORDS.contains(&word))
        })
    }

    /// All until a sign outside of quotes, or the end.
    pub(super) fn until(&mut self, sign: char) -> Result<TextPiece<'t>, TextError> {
        self.up_to(|rest, _| rest.starts_with(sign))
    }

    /// All until a place outside of quotes where `ends` says so, told what follows and whether it comes behind a blank; or the end.
    fn up_to(&mut self, ends: impl Fn(&str, bool) -> bool) -> Result<TextPiece<'t>, TextError> {
        self.skip_blanks();
        let whole = TextPiece { text: self.rest(), at: self.at };
        let is_end = |&(at, after_blank): &(usize, bool)| ends(whole.text.get(at..).unwrap_or_default(), after_blank);
        let end = self.outside_of_quotes()?.into_iter().find(is_end).map_or(whole.text.len(), |(at, _)| at);
        self.at = whole.at + end;
        Ok(whole.to(end).trim())
    }

    /// The characters of the rest that stand in no quotes, and whether each comes behind a blank.
    fn outside_of_quotes(&self) -> Result<Vec<(usize, bool)>, TextError> {
        let (mut found, mut quote, mut blank, mut escaped) = (Vec::new(), None, false, false);
        for (at, c) in self.rest().char_indices() {
            match quote {
                Some((_, '"')) if escaped => escaped = false,
                Some((_, '"')) if c == '\\' => escaped = true,
                Some((_, open)) if c == open => quote = None,
                Some(_) => {}
                None if c == '"' || c == '\'' => quote = Some((at, c)),
                None => found.push((at, blank)),
            }
            blank = c.is_whitespace();
        }
        match quote {
            Some((at, _)) => Err(self.error(self.at + at, "this quote is never closed")),
            None => Ok(found),
        }
    }

    /// A number, `1`, `1.5`, `1e5`, `100k`: as it is, and where it begins.
    pub(super) fn number(&mut self) -> Result<f64, TextError> {
        self.skip_blanks();
        let rest = self.rest();
        let mut len = 0;
        for (at, c) in rest.char_indices() {
            let behind_e = rest.get(..at).is_some_and(|before| before.ends_with(['e', 'E']));
            let exponent = "eE".contains(c)
                && rest
                    .get(at + 1..)
                    .is_some_and(|rest| rest.trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit()));
            if !(c.is_ascii_digit() || c == '.' || exponent || behind_e && "+-".contains(c)) {
                break;
            }
            len = at + 1;
        }
        let number = rest.get(..len).and_then(|digits| digits.parse::<f64>().ok());
        let Some(number) = number.filter(|number| number.is_finite()) else {
            return Err(self.expected("a number, such as 100, 1.5 or 1e5"));
        };
        self.at += len;
        Ok(number)
    }

    /// `ns`, `ms` and so on: how many seconds.
    pub(super) fn unit(&mut self) -> Option<f64> {
        let rest = self.rest();
        let (name, seconds) = TIME_UNITS.into_iter().find(|(name, _)| {
            let behind = rest.strip_prefix(name);
            behind.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
        })?;
        self.at += name.len();
        Some(seconds)
    }

    /// A time that is not zero.
    pub(super) fn duration(&mut self) -> Result<Duration, TextError> {
        const WHAT: &str = "a time with its unit, such as 500ms or 2s";
        self.skip_blanks();
        let begin = self.at;
        if !self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.expected(WHAT));
        }
        let number = self.number()?;
        let Some(unit) = self.unit() else {
            self.at = begin;
            return Err(self.expected(WHAT));
        };
        self.span(number * unit, begin)
    }

    pub(super) fn span(&self, seconds: f64, at: usize) -> Result<Duration, TextError> {
        if seconds > LONGEST_S {
            return Err(self.error(at, "this is longer than a year"));
        }
        let span = Duration::from_nanos((seconds * 1e9).round() as u64);
        if span.is_zero() { Err(self.error(at, "this is no time at all")) } else { Ok(span) }
    }
}
