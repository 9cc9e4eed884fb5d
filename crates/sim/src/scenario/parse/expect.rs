//! `expect`: comparisons and states.
//!
//! **Invariant:** an expression is bounded in length and depth, so that no code that walks over it needs to be.

use super::super::ast::{
    Attribute, Comparison, Expectation, Expr, Operator, Part, Relation, StateExpectation, Statement, Subject,
    Tolerance, Window,
};
use super::super::error::Problem;
use super::super::lex::Token;
use super::super::nearest::did_you_mean;
use super::super::vocabulary::Word;
use super::words::{Quantity, word_as_cpu};
use super::{Parsed, Parser};

const MOST_VALUES: usize = 64;
const MOST_DEPTH: usize = 16;

#[derive(Default)]
struct Size {
    values: usize,
    depth: usize,
}

/// What stands behind the last point of a subject.
enum OperandKind {
    State,
    Attribute(Attribute),
}

impl Parser<'_> {
    pub(super) fn expect(&mut self) -> Parsed<Statement> {
        if let (Token::Word("open"), _) = self.lexer.peek() {
            // `expect open … fails E` says the same as `open … fails E`.
            self.take();
            let open = self.open()?;
            return match self.lexer.peek().0 {
                Token::Word("fails") => Ok(Statement::Open(open)),
                _ => Err(self.unexpected("`fails` and an error")),
            };
        }
        if let Some(state) = self.state_expectation() {
            return state.map(Expectation::State).map(Statement::Expect);
        }
        let mut size = Size::default();
        let left = self.sum(&mut size)?;
        let near = self.eat_sign("~");
        let relation = if near { None } else { Some(self.relation()?) };
        let right = self.sum(&mut size)?;
        let relation = match relation {
            Some(relation) => relation,
            None => {
                self.word("within")?;
                Relation::Near(self.tolerance()?)
            }
        };
        Ok(Statement::Expect(Expectation::Compare(Comparison { left, relation, right })))
    }

    /// Takes `e.state == active|inactive`; `None`, and nothing is taken, if it is not about a state.
    fn state_expectation(&mut self) -> Option<Parsed<StateExpectation>> {
        let mut attempt = Parser { lexer: self.lexer, last: self.last, problems: Vec::new() };
        let Ok((subject, OperandKind::State)) = attempt.subject() else { return None };
        (self.lexer, self.last) = (attempt.lexer, attempt.last);
        Some(self.states(subject))
    }

    fn states(&mut self, subject: Subject) -> Parsed<StateExpectation> {
        let relation = self.sign_choice().ok_or_else(|| self.unexpected("`==` or `!=` and a state"))?;
        let mut states = Vec::new();
        loop {
            let (_, place) = self.lexer.peek();
            let state = self.choice("a state: off, inactive, active, error or dead")?;
            if states.contains(&state) {
                return Err(Problem::new(place, "this state is said twice"));
            }
            states.push(state);
            if !self.eat_sign("|") {
                return Ok(StateExpectation { subject, relation, states });
            }
        }
    }

    fn relation(&mut self) -> Parsed<Relation> {
        if let Some(relation) = self.sign_choice() {
            return Ok(relation);
        }
        let help = matches!(self.lexer.peek().0, Token::Sign("=")).then(|| "did you mean `==`?".into());
        Err(self.unexpected("one of == != <= >= < > ~").with_help_if(help))
    }

    fn tolerance(&mut self) -> Parsed<Tolerance> {
        match self.quantity("a tolerance, such as 2%, 5ms or 10")? {
            Quantity::Time(span) => Ok(Tolerance::Time(span)),
            Quantity::Number(number) if self.eat_sign("%") => Ok(Tolerance::Percent(number)),
            Quantity::Number(number) => Ok(Tolerance::Number(number)),
        }
    }

    fn sum(&mut self, size: &mut Size) -> Parsed<Expr> {
        let mut left = self.product(size)?;
        while let Some(operator) = self.operator(1) {
            left = Expr::Arithmetic(Box::new(left), operator, Box::new(self.product(size)?));
        }
        Ok(left)
    }

    fn product(&mut self, size: &mut Size) -> Parsed<Expr> {
        let mut left = self.value(size)?;
        while let Some(operator) = self.operator(2) {
            left = Expr::Arithmetic(Box::new(left), operator, Box::new(self.value(size)?));
        }
        Ok(left)
    }

    /// Takes an operator of that rank, if one comes next.
    fn operator(&mut self, rank: u8) -> Option<Operator> {
        let (Token::Sign(sign), _) = self.lexer.peek() else { return None };
        let operator = Operator::of_word(sign).filter(|operator| operator.rank() == rank)?;
        self.take();
        Some(operator)
    }

    fn value(&mut self, size: &mut Size) -> Parsed<Expr> {
        let (token, place) = self.lexer.peek();
        size.values += 1;
        if size.values > MOST_VALUES {
            return Err(Problem::new(place, format!("this expectation has more than {MOST_VALUES} values")));
        }
        match token {
            Token::Sign("(") => {
                if size.depth == MOST_DEPTH {
                    return Err(Problem::new(place, format!("more than {MOST_DEPTH} parentheses are open here")));
                }
                self.take();
                size.depth += 1;
                let inner = self.sum(size)?;
                size.depth -= 1;
                self.sign(")")?;
                Ok(inner)
            }
            Token::Number(_) => Ok(match self.quantity("a value")? {
                Quantity::Number(number) => Expr::Number(number),
                Quantity::Time(span) => Expr::Time(span),
            }),
            Token::Word("truth") => {
                self.take();
                self.window().map(Expr::Truth)
            }
            Token::Word("lost") => {
                self.take();
                Ok(Expr::Lost)
            }
            Token::Word("fired") => {
                self.take();
                self.sign("(")?;
                let trigger = self.name("the name of a trigger")?;
                self.sign(")")?;
                Ok(Expr::Fired(trigger))
            }
            Token::Word(_) => match self.subject()? {
                (subject, OperandKind::Attribute(attribute)) => Ok(Expr::Of(subject, attribute)),
                (subject, OperandKind::State) => {
                    let help = format!("write `expect {subject}.state == active`");
                    Err(Problem::new(place, "a state stands alone on the left side").with_help(help))
                }
            },
            _ => Err(self.unexpected("a value, such as e1.count, truth, 12 or 5ms")),
        }
    }

    /// Takes `(enabled)`, if it is there.
    fn window(&mut self) -> Parsed<Window> {
        if !self.eat_sign("(") {
            return Ok(Window::Running);
        }
        let window = self.choice("enabled or running")?;
        self.sign(")")?;
        Ok(window)
    }

    /// Takes `e1.count`, `e1.children[C].count`, `s.cpu1.gap`, `s.gap cpu1`.
    fn subject(&mut self) -> Parsed<(Subject, OperandKind)> {
        let Some((word, place)) = self.lexer.plain_word() else { return Err(self.unexpected("the name of an event")) };
        self.last = place;
        let event = Self::as_name(word, place)?;
        if !self.eat_sign(".") {
            let help = format!("say what of it: {event}.count, for example");
            return Err(self.unexpected("`.`").with_help(help));
        }
        let part = self.part()?;
        let operand_kind = self.operand_kind(&part)?;
        let mut subject = Subject { event, part };
        if matches!(operand_kind, OperandKind::Attribute(Attribute::Gap | Attribute::Gaps))
            && subject.part == Part::Whole
            && self.at_cpu()
        {
            subject.part = Part::Cpu(self.cpu()?);
        }
        Ok((subject, operand_kind))
    }

    /// Takes a part and the point behind it; if none comes next, it is the whole.
    fn part(&mut self) -> Parsed<Part> {
        let mut lexer = self.lexer;
        let Some((word, place)) = lexer.plain_word() else { return Ok(Part::Whole) };
        let part = match word {
            "own" => Part::Own,
            "retired" => Part::Retired,
            "children" => Part::Whole,
            _ => match word_as_cpu(word, place) {
                Some(cpu) => Part::Cpu(cpu?),
                None => return Ok(Part::Whole),
            },
        };
        (self.lexer, self.last) = (lexer, place);
        let part = if word == "children" {
            self.sign("[")?;
            let child = self.name("the name of a child")?;
            self.sign("]")?;
            Part::Child(child)
        } else {
            part
        };
        self.sign(".")?;
        Ok(part)
    }

    fn operand_kind(&mut self, part: &Part) -> Parsed<OperandKind> {
        const EXPECTED: &str = "count, enabled, running, share, state, estimate, gap, gaps, lost or truth";
        let mut lexer = self.lexer;
        let Some((word, place)) = lexer.plain_word() else { return Err(self.unexpected(EXPECTED)) };
        let operand_kind = match Attribute::of_word(word) {
            Some(attribute) => OperandKind::Attribute(attribute),
            None if word == "state" => OperandKind::State,
            None => {
                let parts = ["own", "retired", "children"];
                let parts = if *part == Part::Whole { parts.as_slice() } else { &[] };
                let known =
                    Attribute::WORDS.iter().map(|(word, _)| *word).chain(["state"]).chain(parts.iter().copied());
                let message = format!("expected {EXPECTED}, found `{word}`");
                return Err(Problem::new(place, message).with_help_if(did_you_mean(word, known)));
            }
        };
        (self.lexer, self.last) = (lexer, place);
        match operand_kind {
            OperandKind::Attribute(Attribute::Truth(_)) => Ok(OperandKind::Attribute(Attribute::Truth(self.window()?))),
            operand_kind => Ok(operand_kind),
        }
    }
}
