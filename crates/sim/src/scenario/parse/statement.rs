//! Statements, but for `open` and `expect`.
//!
//! **Invariant:** what is built here is complete; a statement that can't be read leaves nothing behind.

use pmux_engine::Nanos;

use super::super::ast::{ControlOp, ControlTarget, Event, Exec, Fault, ForkKind, Name, Rate, Run, Statement};
use super::super::error::Problem;
use super::super::lex::Token;
use super::words::unit_ns;
use super::{Parsed, Parser, STATEMENT_WORDS};

impl Parser<'_> {
    pub(super) fn statement(&mut self) -> Parsed<Statement> {
        let (Token::Word(word), _) = self.lexer.peek() else { return Err(self.unexpected("a statement")) };
        if !STATEMENT_WORDS.contains(&word) {
            let known = STATEMENT_WORDS.into_iter().chain(["machine", "requires"]);
            return Err(self.unexpected_word("a statement", known));
        }
        self.take();
        match word {
            "task" => self.task(),
            "open" => self.open().map(Statement::Open),
            "run" => self.run().map(Statement::Run),
            "migrate" => {
                let task = self.task_name()?;
                self.word("to")?;
                Ok(Statement::Migrate { task, to: self.cpu()? })
            }
            "touch" => self.touch(),
            "access" => self.access(),
            "fork" => self.fork(ForkKind::Process),
            "thread" => self.fork(ForkKind::Thread),
            "exec" => {
                let task = self.task_name()?;
                let kind = if self.eat_word("setuid") { Exec::ChangesRights } else { Exec::Plain };
                Ok(Statement::Exec { task, kind })
            }
            "exit" => Ok(Statement::Exit { task: self.task_name()? }),
            "enable" => self.control(ControlOp::Enable),
            "disable" => self.control(ControlOp::Disable),
            "reset" => self.control(ControlOp::Reset),
            "close" => self.control(ControlOp::Close),
            "modify" => self.modify(),
            "take" => self.take_samples(),
            "set" => self.event_set(),
            "switch" => self.switching().map(Statement::Switch),
            "trigger" => self.trigger(),
            "offline" => Ok(Statement::Offline { cpu: self.cpu()? }),
            "online" => Ok(Statement::Online { cpu: self.cpu()? }),
            "wait" => Ok(Statement::Wait { span: self.span("a time")? }),
            "fault" => self.fault().map(Statement::Fault),
            _ => self.expect(),
        }
    }

    pub(super) fn task_name(&mut self) -> Parsed<Name> {
        self.name("the name of a task")
    }

    fn task(&mut self) -> Parsed<Statement> {
        let name = self.task_name()?;
        let on = if self.eat_word("on") { Some(self.cpu()?) } else { None };
        Ok(Statement::Task { name, on })
    }

    fn run(&mut self) -> Parsed<Run> {
        let tasks = self.list(Self::task_name)?;
        let span = self.span("a time")?;
        let on = if self.eat_word("on") { Some(self.cpu()?) } else { None };
        let mut rates = Vec::new();
        if self.eat_word("rate") {
            rates.push(self.rate()?);
            while matches!(self.lexer.peek().0, Token::Word(_)) {
                rates.push(self.rate()?);
            }
        }
        Ok(Run { tasks, span, on, rates })
    }

    /// Takes `cycles=2/ns`, `cycles=3/10us` or `page-faults=5`.
    fn rate(&mut self) -> Parsed<Rate> {
        let (event, start) = self.any_word("the name of an event")?;
        self.sign("=")?;
        let amount = self.number("a number of events", 0..=u64::MAX)?;
        let per = if self.eat_sign("/") { Some(self.per()?) } else { None };
        Ok(Rate { event: event.into(), amount, per, place: start.to(self.last) })
    }

    pub(super) fn per(&mut self) -> Parsed<Nanos> {
        if let (Token::Word(word), _) = self.lexer.peek()
            && let Some(ns) = unit_ns(word)
        {
            self.take();
            return Ok(Nanos(ns));
        }
        let (token, place) = self.lexer.peek();
        match token {
            Token::Number(_) => match self.span("a time")? {
                Nanos(0) => Err(Problem::new(place, "a rate can't be per no time at all")),
                per => Ok(per),
            },
            _ => Err(self.unexpected_word("a time, such as ns or 10us", ["ns", "us", "ms", "s"])),
        }
    }

    fn touch(&mut self) -> Parsed<Statement> {
        let task = self.task_name()?;
        let pages = self.number("a number of pages", 1..=u32::MAX)?;
        if !self.eat_word("page") {
            self.word("pages")?;
        }
        Ok(Statement::Touch { task, pages })
    }

    fn access(&mut self) -> Parsed<Statement> {
        let task = self.task_name()?;
        let address = self.address()?;
        let kind = self.choice("read, write or execute")?;
        let mut times = 1;
        if let Token::Number(_) = self.lexer.peek().0 {
            times = self.number("a number of accesses", 1..=u32::MAX)?;
            if !self.eat_word("time") {
                self.word("times")?;
            }
        }
        Ok(Statement::Access { task, address, kind, times })
    }

    fn fork(&mut self, kind: ForkKind) -> Parsed<Statement> {
        let parent = self.task_name()?;
        self.word("as")?;
        let child = self.name("the name of the new task")?;
        Ok(Statement::Fork { parent, child, kind })
    }

    fn control(&mut self, verb: ControlOp) -> Parsed<Statement> {
        let targets = self.list(Self::control_target)?;
        Ok(Statement::Control { verb, targets })
    }

    fn take_samples(&mut self) -> Parsed<Statement> {
        let event = self.name("the name of an event that samples")?;
        let samples = match self.lexer.peek().0 {
            Token::Number(_) => Some(self.number("a number of samples", 0..=u64::MAX)?),
            _ => None,
        };
        Ok(Statement::Take { event, samples })
    }

    pub(super) fn control_target(&mut self) -> Parsed<ControlTarget> {
        const EXPECTED: &str = "the name of an event, or a group such as {e1}";
        if !self.eat_sign("{") {
            return self.name(EXPECTED).map(ControlTarget::Event);
        }
        let name = self.name("the name of an event of the group")?;
        if let (Token::Sign(","), place) = self.lexer.peek() {
            let help = format!("one event stands for its whole group: {{{name}}}");
            return Err(Problem::new(place, "expected `}`, found `,`").with_help(help));
        }
        self.sign("}")?;
        Ok(ControlTarget::Group(name))
    }

    fn modify(&mut self) -> Parsed<Statement> {
        let event = self.name("the name of an event")?;
        self.word("to")?;
        if !matches!(self.lexer.peek().0, Token::Word("mem")) {
            let help = "a breakpoint becomes another one: modify b to mem:0x2000/8:w";
            return Err(self.unexpected("a breakpoint").with_help(help));
        }
        match self.event()? {
            (Event::Breakpoint(breakpoint), _) => Ok(Statement::Modify { event, to: breakpoint }),
            (Event::Named(text), place) => Err(Problem::new(place, format!("expected a breakpoint, found `{text}`"))),
        }
    }

    fn nth(&mut self, what: &str) -> Parsed<u32> {
        self.number(&format!("{what}, from 1,"), 1..=u32::MAX)
    }

    fn fault(&mut self) -> Parsed<Fault> {
        const FAULT: &str = "alloc, program, start, read, hand-over, held, interrupt, doorbell, storm or none";
        const WORDS: &str = "alloc program start read hand-over held interrupt doorbell storm none";
        Ok(match self.one_of(FAULT, WORDS)? {
            "alloc" => Fault::Alloc(self.nth("which allocation fails")?),
            "program" => Fault::Program(self.nth("which programming is refused")?),
            "start" => Fault::Start(self.nth("which start is refused")?),
            "read" => Fault::Read(self.nth("which reading is refused")?),
            "hand-over" => Fault::HandOver(self.nth("which hand-over can't be")?),
            "held" => {
                let cpu = self.cpu()?;
                self.word("counter")?;
                Fault::Held(cpu, self.number("the number of a counter", 0..=63)?)
            }
            "interrupt" => {
                self.word("late")?;
                Fault::InterruptLate(self.span("a time")?)
            }
            "doorbell" => match self.one_of("late, twice or spurious", "late twice spurious")? {
                "late" => Fault::DoorbellLate(self.span("a time")?),
                "twice" => Fault::DoorbellTwice,
                _ => Fault::DoorbellSpurious(self.cpu()?),
            },
            "storm" => Fault::Storm(self.cpu()?, self.number("a number of interrupts", 1..=u32::MAX)?),
            _ => Fault::None,
        })
    }
}
