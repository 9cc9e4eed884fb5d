//! Tokens to a tree, by recursive descent.
//!
//! What it is: one function for each rule:
//!
//! ```text
//! list    = item { "," item }
//! item    = event | [ word ] "{" event { "," event } "}" [ ":" letters ]
//! event   = number [ ":" letters ]
//!         | number ":" number [ ":" letters ]
//!         | "mem" ":" number [ "/" number ] [ ":" access ] [ ":" letters ]
//!         | ( "uprobe" | "uretprobe" ) ":" path ":" place [ ":" letters ]
//!         | word [ ":" word ] [ "/" [ term { "," term } ] "/" [ letters ] | ":" letters ]
//! path    = quoted | ( word | "/" ) { word | "/" }
//! place   = quoted | word
//! term    = word [ "=" ( word | quoted ) ]
//! ```
//!
//! There is one thing to decide that the signs don't tell: `a:b` is a tracepoint, unless `a` is a name that every
//! machine knows or `b` has only letters that are modifiers.
//!
//! **Invariant:** no recursion follows the input's depth, so no text can exhaust the stack.

use super::lexer::{Token, TokenKind, tokens};
use super::{EventForm, EventNode, GroupNode, Item, SyntaxValue, Term, TextSpan};
use crate::event::breakpoint::Access;
use crate::event::error::{ParseFault, UNCLOSED_GROUP, expected, too_large};
use crate::event::modifiers::Modifiers;
use crate::event::names::{Generic, raw_digits};
use crate::event::probe::ProbeAt;

pub(crate) fn parse(text: &str) -> Result<Vec<Item>, ParseFault> {
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Err(ParseFault::new(0, "no event given"));
    }
    let mut parser = Parser { tokens: &tokens, next: 0, end: text.trim_end().len() };
    let mut items = vec![parser.item()?];
    while parser.peek().is_some() {
        parser.sign(',', "',' or the end")?;
        items.push(parser.item()?);
    }
    Ok(items)
}

/// Reads a number: decimal, or hexadecimal after `0x`. `None` if it isn't one, or has more than 64 bits.
pub(crate) fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    // `from_str_radix` would take a sign.
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    next: usize,
    end: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.next).copied()
    }

    fn last_end(&self) -> usize {
        self.next.checked_sub(1).and_then(|i| self.tokens.get(i)).map_or(0, |token| token.at.end)
    }

    /// Whether a sign comes next. Inside an event there is no space: there it must follow at once.
    fn at_sign(&self, sign: char) -> bool {
        self.peek().is_some_and(|token| token.kind == TokenKind::Sign(sign))
    }

    fn touching(&self) -> bool {
        self.peek().is_some_and(|token| token.at.start == self.last_end())
    }

    fn take_sign(&mut self, sign: char) -> bool {
        let there = self.at_sign(sign);
        self.next += usize::from(there);
        there
    }

    fn take_touching_sign(&mut self, sign: char) -> bool {
        self.touching() && self.take_sign(sign)
    }

    /// The fault that something else had to come here.
    fn expected(&self, what: &'static str) -> ParseFault {
        let Some(token) = self.peek() else {
            return ParseFault::new(self.end, format!("expected {what}, but the text ends here"));
        };
        let found = match token.kind {
            TokenKind::Word(word) => word.to_owned(),
            TokenKind::Quoted(text) => format!("'{text}'"),
            TokenKind::Sign(sign) => sign.to_string(),
        };
        ParseFault::new(token.at.start, expected(what, &found))
    }

    fn sign(&mut self, sign: char, what: &'static str) -> Result<(), ParseFault> {
        if self.take_sign(sign) { Ok(()) } else { Err(self.expected(what)) }
    }

    fn word(&mut self, what: &'static str) -> Result<(&'a str, TextSpan), ParseFault> {
        match self.peek() {
            Some(Token { kind: TokenKind::Word(word), at }) => {
                self.next += 1;
                Ok((word, at))
            }
            _ => Err(self.expected(what)),
        }
    }

    fn item(&mut self) -> Result<Item, ParseFault> {
        let named = self.tokens.get(self.next + 1).is_some_and(|token| token.kind == TokenKind::Sign('{'));
        match self.peek().map(|token| token.kind) {
            Some(TokenKind::Word(name)) if named => {
                self.next += 1;
                self.group(Some(name.to_owned())).map(Item::Group)
            }
            Some(TokenKind::Sign('{')) => self.group(None).map(Item::Group),
            _ => self.event().map(Item::Event),
        }
    }

    fn group(&mut self, name: Option<String>) -> Result<GroupNode, ParseFault> {
        let open = self.peek().map_or(self.end, |token| token.at.start);
        self.sign('{', "'{'")?;
        let mut events = Vec::new();
        loop {
            if let Some(brace) = self.peek().filter(|_| self.at_sign('{')) {
                return Err(ParseFault::new(brace.at.start, "a group cannot hold another group"));
            }
            if self.peek().is_none() {
                return Err(ParseFault::new(open, UNCLOSED_GROUP));
            }
            events.push(self.event()?);
            if self.take_sign('}') {
                break;
            }
            if self.peek().is_none() {
                return Err(ParseFault::new(open, UNCLOSED_GROUP));
            }
            self.sign(',', "',' or '}'")?;
        }
        let modifiers_at = TextSpan { start: self.last_end(), end: self.last_end() };
        let (modifiers, modifiers_at) =
            if self.take_touching_sign(':') { self.letters()? } else { (Modifiers::NONE, modifiers_at) };
        Ok(GroupNode { name, events, modifiers, modifiers_at })
    }

    fn event(&mut self) -> Result<EventNode, ParseFault> {
        let (word, at) = self.word("an event")?;
        let mut node =
            EventNode { at, what: EventForm::Name(word.to_owned()), terms: None, modifiers: Modifiers::NONE };
        let then = self.peek().filter(|_| self.touching()).map(|token| token.kind);
        let (colon, slash) = (then == Some(TokenKind::Sign(':')), then == Some(TokenKind::Sign('/')));
        if word == "mem" && colon {
            self.next += 1;
            self.memory(&mut node)?;
        } else if colon && let Some(at) = ProbeAt::from_word(word) {
            self.next += 1;
            let path = self.path()?;
            self.sign(':', "':' and a function, as in 'uprobe:/bin/sh:main'")?;
            node.what = EventForm::Probe { path, place: self.place()?, at };
        } else if colon
            && let Some(kind) = number(word)
            && let Some(config) = self.config_after_colon()?
        {
            let large = |_| ParseFault::new(at.start, too_large("type", kind, u32::MAX.into()));
            let kind = u32::try_from(kind).map_err(large)?;
            node.what = EventForm::Typed { kind, config };
        } else if !slash && let Some(number) = plain_number(word) {
            node.what = EventForm::Number(number);
        } else if colon && let Some(name) = self.tracepoint_after_colon(word) {
            node.what = EventForm::Tracepoint { system: word.to_owned(), name: name.to_owned() };
        }
        if !matches!(node.what, EventForm::Memory { .. } | EventForm::Probe { .. }) {
            self.terms_and_letters(&mut node)?;
        } else if self.take_touching_sign(':') {
            node.modifiers = self.letters()?.0;
        }
        node.at.end = self.last_end();
        Ok(node)
    }

    /// `1:2`: takes the colon and the second number, if it is one.
    fn config_after_colon(&mut self) -> Result<Option<u64>, ParseFault> {
        let Some(Token { kind: TokenKind::Word(word), at }) = self.tokens.get(self.next + 1).copied() else {
            return Ok(None);
        };
        if !word.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(None);
        }
        let what = "a configuration number of at most 64 bits";
        let config = number(word).ok_or_else(|| ParseFault::new(at.start, expected(what, word)))?;
        self.next += 2;
        Ok(Some(config))
    }

    /// `sched:sched_switch`: takes the colon and the name, if it can't be modifiers.
    fn tracepoint_after_colon(&mut self, system: &str) -> Option<&'a str> {
        let Token { kind: TokenKind::Word(name), .. } = self.tokens.get(self.next + 1).copied()? else { return None };
        let generic = Generic::from_name(system).is_some() || raw_digits(system).is_some();
        if generic || Modifiers::looks_like(name) {
            return None;
        }
        self.next += 2;
        Some(name)
    }

    /// After `mem:`.
    fn memory(&mut self, node: &mut EventNode) -> Result<(), ParseFault> {
        let address = self.number("an address, as in 'mem:0x1000'")?;
        let len = if self.take_touching_sign('/') { Some(self.number("a length in bytes")?) } else { None };
        let mut access = None;
        if self.touching()
            && self.at_sign(':')
            && let Some(Token { kind: TokenKind::Word(word), at }) = self.tokens.get(self.next + 1).copied()
            && !Modifiers::looks_like(word)
        {
            let what = "an access of 'r', 'w' and 'x', or modifiers";
            let fault = || ParseFault::new(at.start, expected(what, word));
            access = Some(Access::parse(word).ok_or_else(fault)?);
            self.next += 2;
        }
        node.what = EventForm::Memory { address, len, access };
        Ok(())
    }

    /// The path of a file, whose parts touch.
    fn path(&mut self) -> Result<String, ParseFault> {
        let mut path = String::new();
        while let Some(token) = self.peek().filter(|_| self.touching()) {
            match token.kind {
                TokenKind::Word(word) => path.push_str(word),
                TokenKind::Sign('/') => path.push('/'),
                TokenKind::Quoted(text) if path.is_empty() => path.push_str(text),
                _ => break,
            }
            self.next += 1;
        }
        if path.is_empty() { Err(self.expected("the path of a program or library")) } else { Ok(path) }
    }

    /// A place in a file's code.
    fn place(&mut self) -> Result<String, ParseFault> {
        let place = match self.peek().filter(|_| self.touching()).map(|token| token.kind) {
            Some(TokenKind::Word(place) | TokenKind::Quoted(place)) if !place.is_empty() => place.to_owned(),
            _ => return Err(self.expected("a function, 'function+0x10', or an address, as in 'uprobe:/bin/sh:main'")),
        };
        self.next += 1;
        Ok(place)
    }

    fn number(&mut self, what: &'static str) -> Result<u64, ParseFault> {
        let Some(Token { kind: TokenKind::Word(word), .. }) = self.peek() else { return Err(self.expected(what)) };
        let value = number(word).ok_or_else(|| self.expected(what))?;
        self.next += 1;
        Ok(value)
    }

    fn terms_and_letters(&mut self, node: &mut EventNode) -> Result<(), ParseFault> {
        let numeric = matches!(node.what, EventForm::Number(_) | EventForm::Typed { .. });
        if !numeric && self.take_touching_sign('/') {
            node.terms = Some(self.terms()?);
            // Behind a slash the letters may stand without a colon.
            let word = self.peek().filter(|_| self.touching()).map(|token| token.kind);
            if matches!(word, Some(TokenKind::Word(_))) {
                node.modifiers = self.letters()?.0;
                return Ok(());
            }
        }
        if self.take_touching_sign(':') {
            node.modifiers = self.letters()?.0;
        }
        Ok(())
    }

    /// Behind the first slash, up to and with the second.
    fn terms(&mut self) -> Result<Vec<Term>, ParseFault> {
        let mut terms = Vec::new();
        if self.take_sign('/') {
            return Ok(terms);
        }
        loop {
            terms.push(self.term()?);
            if self.take_sign('/') {
                return Ok(terms);
            }
            self.sign(',', "',' or '/'")?;
        }
    }

    fn term(&mut self) -> Result<Term, ParseFault> {
        let (name, at) = self.word("a term")?;
        let mut term = Term { at, name: name.to_owned(), value: None, value_at: at };
        if self.take_sign('=') {
            term.value_at = self.peek().map_or(TextSpan { start: self.end, end: self.end }, |token| token.at);
            term.value = Some(match self.peek().map(|token| token.kind) {
                Some(TokenKind::Word(word)) => {
                    number(word).map_or_else(|| SyntaxValue::Text(word.to_owned()), SyntaxValue::Number)
                }
                Some(TokenKind::Quoted(text)) => SyntaxValue::Text(text.to_owned()),
                _ => return Err(self.expected("a value")),
            });
            self.next += 1;
        }
        Ok(term)
    }

    fn letters(&mut self) -> Result<(Modifiers, TextSpan), ParseFault> {
        let (word, at) = self.word("modifiers")?;
        let modifiers =
            Modifiers::parse(word).map_err(|(offset, problem)| ParseFault::new(at.start + offset, problem))?;
        Ok((modifiers, at))
    }
}

/// `3` or `-5`: only decimal digits and a minus.
fn plain_number(word: &str) -> Option<i64> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| word.parse().ok()).flatten()
}
