//! Text to a scenario.
//!
//! What it is: a hand-written parser. The loop over statements is here, words and numbers are in `words`, the head of a file
//! in `header`, statements in `statement` and `open`, expectations in `expect`.
//! Read first: [`parse`], then `Parser::statement`.
//!
//! **Invariant:** no text is a panic, and what is wrong with one statement does not hide what is wrong with the next one.

mod event_set;
mod expect;
mod header;
mod open;
mod statement;
mod words;

use super::ast::{Scenario, SourceSpan, Step};
use super::error::{MOST_PROBLEMS, Problem};
use super::lex::{Lexer, Token};
use super::nearest::did_you_mean;

type Parsed<T> = Result<T, Problem>;

/// Reads a scenario. Whether it makes sense, [`super::check()`] says.
///
/// # Errors
/// Every statement that can't be read, in the order of the text (at most 50).
pub fn parse(text: &str) -> Result<Scenario, Vec<Problem>> {
    let mut parser = Parser { lexer: Lexer::new(text), last: SourceSpan::NOWHERE, problems: Vec::new() };
    let mut scenario = Scenario::default();
    scenario.header.about = header::about(text);
    parser.file(&mut scenario);
    if parser.problems.is_empty() { Ok(scenario) } else { Err(parser.problems) }
}

const HEADER_WORDS: [&str; 3] = ["machine", "requires", "sim"];
const STATEMENT_WORDS: [&str; 25] = [
    "task", "open", "run", "migrate", "touch", "access", "fork", "thread", "exec", "exit", "enable", "disable",
    "reset", "close", "modify", "set", "switch", "trigger", "offline", "online", "wait", "fault", "expect", "take",
    "sim",
];

struct Parser<'a> {
    lexer: Lexer<'a>,
    last: SourceSpan,
    problems: Vec<Problem>,
}

impl<'a> Parser<'a> {
    fn file(&mut self, scenario: &mut Scenario) {
        let mut said = header::Said::default();
        while self.problems.len() < MOST_PROBLEMS {
            let (token, start) = self.lexer.peek();
            match token {
                Token::End => return,
                Token::Newline | Token::Semicolon => {
                    self.take();
                    continue;
                }
                _ => {}
            }
            let read = match token {
                Token::Word(word) if HEADER_WORDS.contains(&word) => {
                    if !scenario.steps.is_empty() {
                        let message = format!("`{word}` must come before the first statement");
                        self.problems.push(Problem::new(start, message).with_help("move it to the top of the file"));
                    }
                    self.header_line(&mut scenario.header, &mut said)
                }
                _ => self.step(start).map(|step| scenario.steps.push(step)),
            };
            if let Err(problem) = read.and_then(|()| self.end_of_statement()) {
                self.problems.push(problem);
                self.skip_statement();
            }
        }
    }

    fn step(&mut self, start: SourceSpan) -> Parsed<Step> {
        let statement = self.statement()?;
        let fails = self.fails(&statement)?;
        Ok(Step { statement, fails, place: start.to(self.last) })
    }

    fn end_of_statement(&mut self) -> Parsed<()> {
        match self.lexer.peek().0 {
            Token::Newline | Token::Semicolon | Token::End => Ok(()),
            _ => Err(self.unexpected("the end of the statement")),
        }
    }

    /// Goes to the end of the statement: what follows may be right.
    fn skip_statement(&mut self) {
        while !matches!(self.lexer.peek().0, Token::Newline | Token::Semicolon | Token::End) {
            self.take();
        }
    }

    fn take(&mut self) -> (Token<'a>, SourceSpan) {
        let (token, place) = self.lexer.next();
        self.last = place;
        (token, place)
    }

    fn unexpected(&self, expected: &str) -> Problem {
        let (token, place) = self.lexer.peek();
        Problem::new(place, format!("expected {expected}, found {token}"))
    }

    /// As [`Parser::unexpected`], with the nearest of the words that were possible.
    fn unexpected_word<'w>(&self, expected: &str, possible: impl IntoIterator<Item = &'w str>) -> Problem {
        let help = if let Token::Word(typed) = self.lexer.peek().0 { did_you_mean(typed, possible) } else { None };
        self.unexpected(expected).with_help_if(help)
    }
}
