//! `open`: names, events, target and flags.
//!
//! **Invariant:** as many events as names.

use super::super::ast::{
    Breakpoint, CpuList, Event, Flags, Name, NewEvent, Open, OpenForm, RingMode, RingOwnership, Samples, SourceSpan,
    Target, Watch,
};
use super::super::error::Problem;
use super::super::lex::Token;
use super::super::vocabulary::Word;
use super::words::parse_address;
use super::{Parsed, Parser};

impl Parser<'_> {
    pub(super) fn open(&mut self) -> Parsed<Open> {
        let start = self.lexer.peek().1;
        let form = if self.eat_sign("{") { OpenForm::Group } else { OpenForm::Singles };
        let names = self.list(|parser| parser.name("a name for the event"))?;
        self.close_brace(form)?;
        let names_place = start.to(self.last);
        if let (Token::Word("fails"), place) = self.lexer.peek() {
            let name = names.first().map_or("e1", Name::as_str);
            let help = format!("say the event in the same statement: open {name} = cycles on A fails ENOSPC");
            return Err(Problem::new(place, "expected `=` and an event, found `fails`").with_help(help));
        }
        self.sign("=")?;
        let start = self.lexer.peek().1;
        if form == OpenForm::Group {
            self.sign("{")?;
        }
        let events = self.list(Self::event)?;
        self.close_brace(form)?;
        if names.len() != events.len() {
            let message = format!("expected as many events as names, found {} for {}", events.len(), names.len());
            return Err(Problem::new(names_place.to(start.to(self.last)), message));
        }
        let events = names.into_iter().zip(events).map(|(name, (event, place))| NewEvent { name, event, place });
        let (events, target, flags) = (events.collect(), self.target()?, self.flags()?);
        Ok(Open { events, form, target, flags, samples: self.samples()? })
    }

    /// Takes `each 30000 into 4096 overwriting shared`, if that is there.
    fn samples(&mut self) -> Parsed<Option<Samples>> {
        if !self.eat_word("each") {
            return Ok(None);
        }
        let period = self.number("after how many occurrences a sample is taken", 1..=u64::MAX)?;
        self.word("into")?;
        let ring_bytes = self.number("the bytes of a ring", 1..=u32::MAX)?;
        let mode = if self.eat_word("overwriting") { RingMode::Overwrite } else { RingMode::Forward };
        let ownership = if self.eat_word("shared") { RingOwnership::Shared } else { RingOwnership::Own };
        Ok(Some(Samples { period, ring_bytes, mode, ownership }))
    }

    fn close_brace(&mut self, form: OpenForm) -> Parsed<()> {
        if form == OpenForm::Group { self.sign("}") } else { Ok(()) }
    }

    pub(super) fn event(&mut self) -> Parsed<(Event, SourceSpan)> {
        let (text, place) = self.lexer.event();
        if text.is_empty() || !text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return Err(if text.is_empty() {
                self.unexpected("an event")
            } else {
                Problem::new(place, format!("expected an event, found `{text}`"))
            });
        }
        self.last = place;
        match text.strip_prefix("mem:") {
            None => Ok((Event::Named(text.into()), place)),
            Some(rest) => breakpoint(rest).map(|breakpoint| (Event::Breakpoint(breakpoint), place)).map_err(|what| {
                let help = "a breakpoint is mem:ADDRESS[/LENGTH][:ACCESS] with ACCESS r, w, rw or x: mem:0x1000/8:w";
                Problem::new(place, format!("expected {what} in `{text}`")).with_help(help)
            }),
        }
    }

    fn target(&mut self) -> Parsed<Target> {
        if self.eat_word("system-wide") {
            let cpus = if self.eat_word("cpus") { Some(self.cpu_list()?) } else { None };
            return Ok(Target::SystemWide(cpus));
        }
        if !self.eat_word("on") {
            return Err(self.unexpected_word("`on` or `system-wide`", ["on", "system-wide"]));
        }
        if self.eat_word("cpus") {
            return self.cpu_list().map(Target::Cpus);
        }
        if self.at_cpu() {
            let cpu = self.cpu()?;
            let place = self.last;
            return CpuList::new([cpu]).map(Target::Cpus).ok_or_else(|| Problem::new(place, "expected a CPU"));
        }
        let task = self.name("the name of a task, cpu N or cpus LIST")?;
        if self.at_cpu() { Ok(Target::TaskOnCpu(task, self.cpu()?)) } else { Ok(Target::Task(task)) }
    }

    fn flags(&mut self) -> Parsed<Flags> {
        let mut flags = Flags::default();
        loop {
            let (token, place) = self.lexer.peek();
            match token {
                Token::Word("fails" | "each") => return Ok(flags),
                Token::Word(word) => {
                    let flag = self.choice("inherit, pinned, exclusive, disabled, enable-on-exec, each or fails")?;
                    if !flags.insert(flag) {
                        return Err(Problem::new(place, format!("`{word}` is said twice")));
                    }
                }
                _ => return Ok(flags),
            }
        }
    }
}

/// Reads `ADDRESS[/LENGTH][:ACCESS]`; `Err` with what was expected.
fn breakpoint(text: &str) -> Result<Breakpoint, &'static str> {
    let (range, access) = text.split_once(':').map_or((text, None), |(range, access)| (range, Some(access)));
    let (address, len) = range.split_once('/').map_or((range, None), |(address, len)| (address, Some(len)));
    let address = parse_address(address).ok_or("an address")?;
    let watch = match access {
        None | Some("wr") => Watch::ReadWrite,
        Some(access) => Watch::of_word(access).ok_or("one of the accesses r, w, rw and x")?,
    };
    let len_bytes = match len {
        None if watch == Watch::Execute => 8,
        None => 4,
        Some(len) if len.bytes().all(|b| b.is_ascii_digit()) => len.parse().map_err(|_| "a length in bytes")?,
        Some(_) => return Err("a length in bytes"),
    };
    Ok(Breakpoint { address, len_bytes, watch })
}
