//! The head of a file: the comment at its top, `machine`, `requires:` and `sim only:`.
//!
//! **Invariant:** each part is said once.

use std::collections::BTreeSet;

use super::super::ast::{
    Callers, Constraint, DebugRegisters, Header, MAX_CPUS, OverflowSignal, Required, Requirement, SimOnly, SourceSpan,
};
use super::super::error::Problem;
use super::super::lex::Token;
use super::{Parsed, Parser};
use pmux_engine::share::Sharing;

#[derive(Default)]
pub(super) struct Said(BTreeSet<&'static str>);

/// The lines of the comment at the top of the file, without `#` and one blank.
pub(super) fn about(text: &str) -> Vec<String> {
    let lines = text.split('\n').map(str::trim).skip_while(|line| line.is_empty());
    let comments = lines.map_while(|line| line.strip_prefix('#'));
    comments.map(|line| line.strip_prefix(' ').unwrap_or(line).to_string()).collect()
}

#[derive(Clone, Copy)]
enum Key {
    Profile,
    Cpus,
    Counters,
    Width,
    Fixed,
    Constrained,
    Overflow,
    Callers,
    Sharing,
    Breakpoints,
    Tick,
    Seed,
}

const KEYS: [(&str, Key); 12] = [
    ("profile", Key::Profile),
    ("cpus", Key::Cpus),
    ("counters", Key::Counters),
    ("width", Key::Width),
    ("fixed", Key::Fixed),
    ("constrained", Key::Constrained),
    ("overflow", Key::Overflow),
    ("callers", Key::Callers),
    ("sharing", Key::Sharing),
    ("breakpoints", Key::Breakpoints),
    ("tick", Key::Tick),
    ("seed", Key::Seed),
];

const SIGNALS: [(&str, OverflowSignal); 3] =
    [("interrupt", OverflowSignal::Interrupt), ("nmi", OverflowSignal::Nmi), ("poll", OverflowSignal::Poll)];

const SHARING: [(&str, Sharing); 2] = [("on", Sharing::On), ("off", Sharing::Off)];
const CALLERS: [(&str, Callers); 2] = [("everywhere", Callers::Everywhere), ("own-cpu", Callers::OwnCpu)];

#[derive(Clone, Copy)]
enum NeedWord {
    Pmu,
    Counters,
    Breakpoints,
    Cpus,
    Root,
    Hotplug,
    Kernel,
    Lab,
}

const NEEDS: [(&str, NeedWord); 8] = [
    ("pmu", NeedWord::Pmu),
    ("counters", NeedWord::Counters),
    ("breakpoints", NeedWord::Breakpoints),
    ("cpus", NeedWord::Cpus),
    ("root", NeedWord::Root),
    ("hotplug", NeedWord::Hotplug),
    ("kernel", NeedWord::Kernel),
    ("lab", NeedWord::Lab),
];

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
        let (_, place) = self.lexer.peek();
        let key = self.choice(KEY, &KEYS)?;
        said.once(KEYS[key as usize].0, place)?;
        self.sign("=")?;
        let machine = &mut header.machine;
        match key {
            Key::Profile => machine.profile = Some(self.any_word("the name of a machine")?.0.into()),
            Key::Cpus => machine.cpus = Some(self.cpus("the number of CPUs")?),
            Key::Counters => machine.counters = Some(self.number_u8("the number of counters", 0..=64)?),
            Key::Width => machine.width_bits = Some(self.number_u8("the number of bits of a counter", 1..=64)?),
            Key::Fixed => {
                machine.fixed = self.list(|parser| Ok(parser.any_word("the name of an event")?.0.to_string()))?;
            }
            Key::Constrained => machine.constrained = self.list(Self::constraint)?,
            Key::Overflow => machine.overflow = Some(self.choice("interrupt, nmi or poll", &SIGNALS)?),
            Key::Callers => machine.callers = Some(self.choice("everywhere or own-cpu", &CALLERS)?),
            Key::Sharing => machine.sharing = Some(self.choice("on or off", &SHARING)?),
            Key::Breakpoints => machine.breakpoints = Some(self.debug_registers()?),
            Key::Tick => {
                let (_, place) = self.lexer.peek();
                let tick = self.span("the time between two ticks")?;
                if tick.0 == 0 {
                    return Err(Problem::new(place, "the time between two ticks can't be zero"));
                }
                machine.tick = Some(tick);
            }
            Key::Seed => machine.seed = Some(self.number("a seed", 0..=u64::MAX)?),
        }
        Ok(())
    }

    fn cpus(&mut self, expected: &str) -> Parsed<u32> {
        let cpus = self.number(expected, 1..=u64::from(MAX_CPUS))?;
        // The range above fits.
        Ok(u32::try_from(cpus).unwrap_or(MAX_CPUS))
    }

    /// Takes `cache-misses:0-1+3`.
    fn constraint(&mut self) -> Parsed<Constraint> {
        let (event, _) = self.any_word("the name of an event")?;
        self.sign(":")?;
        let mut slots = BTreeSet::new();
        loop {
            let first = self.number_u8("the number of a counter", 0..=63)?;
            let last = if self.eat_sign("-") { self.number_u8("the number of a counter", first..=63)? } else { first };
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
        let as_u32 = |number: u64| u32::try_from(number).unwrap_or(0);
        let Some((digits, place)) = split else {
            return Ok(DebugRegisters::Shared(as_u32(self.number(EXPECTED, 0..=64)?)));
        };
        self.take();
        let execute = as_u32(Self::as_number(digits, place, EXPECTED, 0..=64)?);
        self.sign("+")?;
        let (token, place) = self.lexer.peek();
        let digits = if let Token::Number(text) = token { text.strip_suffix("rw") } else { None };
        let digits = digits.ok_or_else(|| self.unexpected("a number of debug registers for data, such as 4rw"))?;
        self.take();
        let data = as_u32(Self::as_number(digits, place, EXPECTED, 0..=64)?);
        Ok(DebugRegisters::Separate { execute, data })
    }

    fn required(&mut self, said: &mut Said) -> Parsed<Required> {
        const WORDS: &str = "pmu, counters=N, breakpoints[=N], cpus=N, root, hotplug, kernel or lab";
        let (_, place) = self.lexer.peek();
        let need = self.choice(WORDS, &NEEDS)?;
        let requirement = match need {
            NeedWord::Pmu => Requirement::Pmu,
            NeedWord::Counters => {
                self.sign("=")?;
                Requirement::Counters(self.number_u32("the number of counters", 1)?)
            }
            NeedWord::Breakpoints if self.eat_sign("=") => {
                Requirement::BreakpointSlots(self.number_u32("the number of debug registers", 1)?)
            }
            NeedWord::Breakpoints => Requirement::Breakpoints,
            NeedWord::Cpus => {
                self.sign("=")?;
                Requirement::Cpus(self.cpus("the number of CPUs")?)
            }
            NeedWord::Root => Requirement::Root,
            NeedWord::Hotplug => Requirement::Hotplug,
            NeedWord::Kernel => Requirement::Kernel,
            NeedWord::Lab => Requirement::Lab,
        };
        let place = place.to(self.last);
        said.required_once(NEEDS[need as usize].0, place)?;
        Ok(Required { requirement, place })
    }
}

impl Said {
    fn once(&mut self, key: &'static str, place: SourceSpan) -> Parsed<()> {
        if self.0.insert(key) { Ok(()) } else { Err(Problem::new(place, format!("`{key}` is said twice"))) }
    }

    /// The machine and the requirements have words in common.
    fn required_once(&mut self, word: &'static str, place: SourceSpan) -> Parsed<()> {
        let key = match word {
            "counters" => "requires counters",
            "breakpoints" => "requires breakpoints",
            "cpus" => "requires cpus",
            other => other,
        };
        self.once(key, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_stand_in_the_order_of_their_enums() {
        for (index, (_, key)) in KEYS.iter().enumerate() {
            assert_eq!(*key as usize, index);
        }
        for (index, (_, need)) in NEEDS.iter().enumerate() {
            assert_eq!(*need as usize, index);
        }
    }

    #[test]
    fn the_comment_at_the_top_ends_at_the_first_other_line() {
        let text = "\n# one\r\n#\n#   three\n\n# not this\ntask A";
        assert_eq!(about(text), ["one", "", "  three"]);
    }
}
