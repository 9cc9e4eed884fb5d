//! Words, names, numbers, times and CPUs.
//!
//! **Invariant:** every number is checked against what it may be, here, once.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use pmux_engine::{CpuId, Nanos};

use super::super::ast::{CpuList, Decimal, Errno, MAX_CPUS, Name, SourceSpan, Statement};
use super::super::error::Problem;
use super::super::lex::Token;
use super::super::nearest::did_you_mean;
use super::super::vocabulary::Word;
use super::{Parsed, Parser};

/// Words that can't be names, because they mean something where a name could stand.
const RESERVED: &str = "set switch trigger fired machine requires sim only task thread open run migrate touch access \
                        fork exec exit enable disable reset close offline online wait fault expect on to as cpu cpus \
                        rate pages times setuid truth lost within fails inherit pinned exclusive disabled";

/// The units of time, in nanoseconds.
const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// The number behind `cpu` in `cpu1`.
fn cpu_digits(word: &str) -> Option<&str> {
    let digits = word.strip_prefix("cpu")?;
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(digits)
}

pub(super) fn unit_ns(unit: &str) -> Option<u64> {
    UNITS.iter().find(|(known, _)| *known == unit).map(|(_, ns)| *ns)
}

/// Divides a number into its digits and what stands behind them.
fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    text.split_at(end)
}

/// Reads `1_000.5`.
fn decimal(digits: &str) -> Option<Decimal> {
    let digits = digits.replace('_', "");
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let places = u8::try_from(fraction.len()).ok()?;
    Decimal::new(format!("{whole}{fraction}").parse().ok()?, places)
}

fn span(text: &str) -> Option<Nanos> {
    let (digits, unit) = split_number(text);
    let (numerator, denominator) = decimal(digits)?.as_fraction();
    let scaled = numerator.checked_mul(unit_ns(unit)?)?;
    scaled.is_multiple_of(denominator).then(|| Nanos(scaled / denominator))
}

impl<'a> Parser<'a> {
    /// Takes a sign if it comes next.
    pub(super) fn eat_sign(&mut self, sign: &str) -> bool {
        let comes = matches!(self.lexer.peek().0, Token::Sign(next) if next == sign);
        if comes {
            self.take();
        }
        comes
    }

    /// Takes a sign that must come next.
    pub(super) fn sign(&mut self, sign: &str) -> Parsed<()> {
        if self.eat_sign(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    /// Takes a word if it comes next.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let comes = matches!(self.lexer.peek().0, Token::Word(next) if next == word);
        if comes {
            self.take();
        }
        comes
    }

    /// Takes a word that must come next.
    pub(super) fn word(&mut self, word: &str) -> Parsed<()> {
        if self.eat_word(word) { Ok(()) } else { Err(self.unexpected_word(&format!("`{word}`"), [word])) }
    }

    pub(super) fn any_word(&mut self, expected: &str) -> Parsed<(&'a str, SourceSpan)> {
        match self.lexer.peek() {
            (Token::Word(word), place) => {
                self.take();
                Ok((word, place))
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Takes one of some words, which stand in `words` with a blank between.
    pub(super) fn one_of(&mut self, expected: &str, words: &'static str) -> Parsed<&'static str> {
        if let (Token::Word(word), _) = self.lexer.peek()
            && let Some(known) = words.split(' ').find(|known| *known == word)
        {
            self.take();
            return Ok(known);
        }
        Err(self.unexpected_word(expected, words.split(' ')))
    }

    /// Takes a word and gives what it stands for.
    pub(super) fn choice<T: Word>(&mut self, expected: &str) -> Parsed<T> {
        if let (Token::Word(word), _) = self.lexer.peek()
            && let Some(value) = T::of_word(word)
        {
            self.take();
            return Ok(value);
        }
        Err(self.unexpected_word(expected, T::WORDS.iter().map(|(word, _)| *word)))
    }

    /// Takes a sign and gives what it stands for; `None`, and nothing is taken, if it stands for none of these.
    pub(super) fn sign_choice<T: Word>(&mut self) -> Option<T> {
        let (Token::Sign(sign), _) = self.lexer.peek() else { return None };
        let value = T::of_word(sign)?;
        self.take();
        Some(value)
    }

    pub(super) fn name(&mut self, expected: &str) -> Parsed<Name> {
        let (word, place) = self.any_word(expected)?;
        Self::as_name(word, place)
    }

    pub(super) fn as_name(word: &str, place: SourceSpan) -> Parsed<Name> {
        if RESERVED.split(' ').any(|known| known == word) || cpu_digits(word).is_some() {
            let message = format!("`{word}` is a word of the language and can't be a name");
            return Err(Problem::new(place, message).with_help("choose another name"));
        }
        if word.contains('-') {
            let message = format!("`{word}` can't be a name: a name has letters, digits and `_`");
            return Err(Problem::new(place, message));
        }
        Ok(Name { text: word.into(), place })
    }

    /// Takes one or more of something with commas between.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat_sign(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn digits(&mut self, expected: &str) -> Parsed<(&'a str, SourceSpan)> {
        match self.lexer.peek() {
            (Token::Number(text), place) => {
                self.take();
                Ok((text, place))
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Takes a whole number in a range.
    pub(super) fn number<T: Whole>(&mut self, expected: &str, range: RangeInclusive<T>) -> Parsed<T> {
        let (text, place) = self.digits(expected)?;
        Self::as_number(text, place, expected, range)
    }

    pub(super) fn as_number<T: Whole>(
        text: &str,
        place: SourceSpan,
        expected: &str,
        range: RangeInclusive<T>,
    ) -> Parsed<T> {
        let (least, most) = (range.start(), range.end());
        let (digits, suffix) = split_number(text);
        let number = if digits.contains('.') { None } else { Some(digits.replace('_', "")) };
        let (Some(number), "") = (number, suffix) else {
            return Err(Problem::new(place, format!("expected {expected}, found `{text}`")));
        };
        match number.parse::<T>() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ if Into::<u64>::into(*most) == u64::MAX => {
                Err(Problem::new(place, format!("`{text}` is too small or too large")))
            }
            _ => Err(Problem::new(place, format!("`{text}` is out of range: {expected} is {least} to {most}"))),
        }
    }

    /// Takes an address: `0x1000`, or a decimal number.
    pub(super) fn address(&mut self) -> Parsed<u64> {
        let (text, place) = self.digits("an address, such as 0x1000")?;
        parse_address(text).ok_or_else(|| Problem::new(place, format!("`{text}` is no address of 64 bits")))
    }

    pub(super) fn span(&mut self, expected: &str) -> Parsed<Nanos> {
        let (text, place) = self.digits(&format!("{expected}, such as 10ms"))?;
        as_span(text, place)
    }

    pub(super) fn quantity(&mut self, expected: &str) -> Parsed<Quantity> {
        let (text, place) = self.digits(expected)?;
        let (digits, suffix) = split_number(text);
        if !suffix.is_empty() {
            return as_span(text, place).map(Quantity::Time);
        }
        let message =
            format!("`{text}` is too large, or has more than {} digits behind its point", Decimal::MAX_PLACES);
        decimal(digits).map(Quantity::Number).ok_or_else(|| Problem::new(place, message))
    }

    pub(super) fn at_cpu(&self) -> bool {
        matches!(self.lexer.peek().0, Token::Word(word) if word == "cpu" || cpu_digits(word).is_some())
    }

    /// Takes a CPU: `cpu1` or `cpu 1`.
    pub(super) fn cpu(&mut self) -> Parsed<CpuId> {
        const EXPECTED: &str = "a CPU, such as cpu0";
        let (Token::Word(word), place) = self.lexer.peek() else { return Err(self.unexpected(EXPECTED)) };
        if word == "cpu" {
            self.take();
            return self.cpu_number();
        }
        let cpu = word_as_cpu(word, place).ok_or_else(|| self.unexpected(EXPECTED))?;
        self.take();
        cpu
    }

    fn cpu_number(&mut self) -> Parsed<CpuId> {
        let (text, place) = self.digits("the number of a CPU")?;
        as_cpu(text, place)
    }

    /// Takes a list of CPUs: `0-1,3`.
    pub(super) fn cpu_list(&mut self) -> Parsed<CpuList> {
        let mut cpus = Vec::new();
        let start = self.lexer.peek().1;
        loop {
            let (_, place) = self.lexer.peek();
            let first = self.cpu_number()?;
            let last = if self.eat_sign("-") { self.cpu_number()? } else { first };
            if last < first {
                let message = format!("{first}-{last} is no range: it ends before it begins");
                return Err(Problem::new(place.to(self.last), message));
            }
            cpus.extend((first.0..=last.0).map(CpuId));
            if !self.eat_sign(",") {
                break;
            }
        }
        CpuList::new(cpus).ok_or_else(|| Problem::new(start, "expected at least one CPU"))
    }

    /// Takes `fails ERROR`, where a statement can be meant to fail.
    pub(super) fn fails(&mut self, statement: &Statement) -> Parsed<Option<Errno>> {
        let (_, place) = self.lexer.peek();
        if !self.eat_word("fails") {
            return Ok(None);
        }
        if !statement.can_fail() {
            let message = "this statement can't be meant to fail";
            let help =
                "`fails` stands behind open, enable, disable, reset, close, modify, take, switch, offline and online";
            return Err(Problem::new(place, message).with_help(help));
        }
        if let (Token::Word(word), _) = self.lexer.peek()
            && let Some(errno) = Errno::from_name(word)
        {
            self.take();
            return Ok(Some(errno));
        }
        Err(self.unexpected_word("an error such as ENOSPC", Errno::all().map(Errno::name)))
    }
}

/// What a whole number is read as.
pub(super) trait Whole: Copy + Display + FromStr + Into<u64> + PartialOrd {}

impl<T: Copy + Display + FromStr + Into<u64> + PartialOrd> Whole for T {}

#[derive(Clone, Copy)]
pub(super) enum Quantity {
    Number(Decimal),
    Time(Nanos),
}

/// `cpu1`, if the word looks like it.
pub(super) fn word_as_cpu(word: &str, place: SourceSpan) -> Option<Parsed<CpuId>> {
    cpu_digits(word).map(|digits| as_cpu(digits, place))
}

fn as_cpu(digits: &str, place: SourceSpan) -> Parsed<CpuId> {
    Parser::as_number(digits, place, "the number of a CPU", 0..=MAX_CPUS - 1).map(CpuId)
}

fn as_span(text: &str, place: SourceSpan) -> Parsed<Nanos> {
    if let Some(span) = span(text) {
        return Ok(span);
    }
    let (digits, unit) = split_number(text);
    if unit.is_empty() {
        let help = format!("write the unit: {digits}ns, {digits}us, {digits}ms or {digits}s");
        return Err(Problem::new(place, format!("`{text}` has no unit of time")).with_help(help));
    }
    if unit_ns(unit).is_none() {
        let help = did_you_mean(unit, UNITS.iter().map(|(unit, _)| *unit));
        let message = format!("`{unit}` is no unit of time: these are ns, us, ms and s");
        return Err(Problem::new(place, message).with_help_if(help));
    }
    Err(Problem::new(place, format!("`{text}` is no whole number of nanoseconds below 2^64")))
}

/// Reads an address: hexadecimal behind `0x`, else decimal.
pub(super) fn parse_address(text: &str) -> Option<u64> {
    let text = text.replace('_', "");
    match text.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time() {
        for (text, ns) in [
            ("10ms", Some(10_000_000)),
            ("1.5us", Some(1_500)),
            ("1_000ns", Some(1_000)),
            ("0s", Some(0)),
            ("0.5ns", None),
            ("5", None),
            ("5m", None),
            ("99999999999s", None),
        ] {
            assert_eq!(span(text), ns.map(Nanos), "{text}");
        }
    }

    #[test]
    fn addresses() {
        for (text, address) in
            [("0x1000", Some(4096)), ("64", Some(64)), ("0x", None), ("0x+1", None), ("0x1_0000_0000_0000_0000", None)]
        {
            assert_eq!(parse_address(text), address, "{text}");
        }
    }
}
