//! The head of a file: the comment at its top, `machine`, `requires:` and `sim only:`.
//!
//! **Invariant:** each part is said once.

use std::collections::BTreeSet;

use super::super::ast::{Constraint, DebugRegisters, Header, MAX_CPUS, Required, Requirement, SimOnly, SourceSpan};
use super::super::error::Problem;
use super::super::lex::Token;
use super::{Parsed, Parser};

#[derive(Default)]
pub(super) struct Said(BTreeSet<&'static str>);

/// The lines of the comment at the top of the file, without `#` and one blank.
pub(super) fn about(text: &str) -> Vec<String> {
    let lines = text.split('\n').map(str::trim).skip_while(|line| line.is_empty());
    let comments = lines.map_while(|line| line.strip_prefix('#'));
    comments.map(|line| line.strip_prefix(' ').unwrap_or(line).to_string()).collect()
}

impl Parser<'_> {
    pub(super) fn header_line(&mut self, header: &mut Header, said: &mut Said) -> Parsed<()> {
        let (word, start) = self.any_word("`machine`, `requires:` or `sim only:`")?;
        match word {
            "machine" => {
                self.machine_key(header, said)?;
                while matches!(self.lexer.peek().0, Token::Word(_)) {
                    self.machine_key(header, said)?;
                }
                header.machine.place = start.to(self.last);
                Ok(())
            }
            "requires" => {
                self.sign(":")?;
                let required = self.list(|parser| parser.required(said))?;
                header.requires.extend(required);
                Ok(())
            }
            _ => {
                self.word("only")?;
                said.once("sim only", start)?;
                self.sign(":")?;
                let (reason, place) = self.lexer.rest_of_line();
                if reason.is_empty() {
                    return Err(Problem::new(place, "expected a reason why this runs on the simulator only"));
                }
                header.sim_only = Some(SimOnly { reason: reason.into(), place: start.to(place) });
                Ok(())
            }
        }
    }

    fn machine_key(&mut self, header: &mut Header, said: &mut Said) -> Parsed<()> {
        const KEY: &str = "a key of the machine: profile, cpus, counters, width, fixed, constrained, overflow, callers, \
                           sharing, breakpoints, tick or seed";
        const WORDS: &str =
            "profile cpus counters width fixed constrained overflow callers sharing breakpoints tick seed";
        let (_, place) = self.lexer.peek();
        let key = self.one_of(KEY, WORDS)?;
        said.once(key, place)?;
        self.sign("=")?;
        let machine = &mut header.machine;
        match key {
            "profile" => machine.profile = Some(self.any_word("the name of a machine")?.0.into()),
            "cpus" => machine.cpus = Some(self.number("the number of CPUs", 1..=MAX_CPUS)?),
            "counters" => machine.counters = Some(self.number("the number of counters", 0..=64)?),
            "width" => machine.width_bits = Some(self.number("the number of bits of a counter", 1..=64)?),
            "fixed" => {
                machine.fixed = self.list(|parser| Ok(parser.any_word("the name of an event")?.0.to_string()))?;
            }
            "constrained" => machine.constrained = self.list(Self::constraint)?,
            "overflow" => machine.overflow = Some(self.choice("interrupt, nmi or poll")?),
            "callers" => machine.callers = Some(self.choice("everywhere or own-cpu")?),
            "sharing" => machine.sharing = Some(self.choice("on or off")?),
            "breakpoints" => machine.breakpoints = Some(self.debug_registers()?),
            "tick" => {
                let (_, place) = self.lexer.peek();
                let tick = self.span("the time between two ticks")?;
                if tick.0 == 0 {
                    return Err(Problem::new(place, "the time between two ticks can't be zero"));
                }
                machine.tick = Some(tick);
            }
            _ => machine.seed = Some(self.number("a seed", 0..=u64::MAX)?),
        }
        Ok(())
    }

    /// Takes `cache-misses:0-1+3`.
    fn constraint(&mut self) -> Parsed<Constraint> {
        let (event, _) = self.any_word("the name of an event")?;
        self.sign(":")?;
        let mut slots: BTreeSet<u8> = BTreeSet::new();
        loop {
            let first: u8 = self.number("the number of a counter", 0..=63)?;
            let last = if self.eat_sign("-") { self.number("the number of a counter", first..=63)? } else { first };
            slots.extend(first..=last);
            if !self.eat_sign("+") {
                return Ok(Constraint { event: event.into(), slots: slots.into_iter().collect() });
            }
        }
    }

    /// Takes `4` or `6x+4rw`.
    fn debug_registers(&mut self) -> Parsed<DebugRegisters> {
        const EXPECTED: &str = "a number of debug registers, such as 4 or 6x+4rw,";
        let split = match self.lexer.peek() {
            (Token::Number(text), place) => text.strip_suffix('x').map(|digits| (digits, place)),
            _ => None,
        };
        let Some((digits, place)) = split else {
            return self.number(EXPECTED, 0..=64).map(DebugRegisters::Shared);
        };
        self.take();
        let execute = Self::as_number(digits, place, EXPECTED, 0..=64)?;
        self.sign("+")?;
        let (token, place) = self.lexer.peek();
        let digits = if let Token::Number(text) = token { text.strip_suffix("rw") } else { None };
        let digits = digits.ok_or_else(|| self.unexpected("a number of debug registers for data, such as 4rw"))?;
        self.take();
        let data = Self::as_number(digits, place, EXPECTED, 0..=64)?;
        Ok(DebugRegisters::Separate { execute, data })
    }

    fn required(&mut self, said: &mut Said) -> Parsed<Required> {
        const NEED: &str = "pmu, counters=N, breakpoints[=N], cpus=N, root, hotplug, kernel or lab";
        let (_, place) = self.lexer.peek();
        let word = self.one_of(NEED, "pmu counters breakpoints cpus root hotplug kernel lab")?;
        let requirement = match word {
            "pmu" => Requirement::Pmu,
            "counters" => {
                self.sign("=")?;
                Requirement::Counters(self.number("the number of counters", 1..=u32::MAX)?)
            }
            "breakpoints" if self.eat_sign("=") => {
                Requirement::BreakpointSlots(self.number("the number of debug registers", 1..=u32::MAX)?)
            }
            "breakpoints" => Requirement::Breakpoints,
            "cpus" => {
                self.sign("=")?;
                Requirement::Cpus(self.number("the number of CPUs", 1..=MAX_CPUS)?)
            }
            "root" => Requirement::Root,
            "hotplug" => Requirement::Hotplug,
            "kernel" => Requirement::Kernel,
            _ => Requirement::Lab,
        };
        let place = place.to(self.last);
        // The machine and the requirements have words in common.
        let key = match word {
            "counters" => "requires counters",
            "breakpoints" => "requires breakpoints",
            "cpus" => "requires cpus",
            other => other,
        };
        said.once(key, place)?;
        Ok(Required { requirement, place })
    }
}

impl Said {
    fn once(&mut self, key: &'static str, place: SourceSpan) -> Parsed<()> {
        if self.0.insert(key) { Ok(()) } else { Err(Problem::new(place, format!("`{key}` is said twice"))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comment_at_the_top_ends_at_the_first_other_line() {
        let text = "\n# one\r\n#\n#   three\n\n# not this\ntask A";
        assert_eq!(about(text), ["one", "", "  three"]);
    }
}
