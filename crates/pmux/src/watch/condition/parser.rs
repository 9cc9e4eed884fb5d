//! From the text of a condition to its tree.
//!
//! **Invariant:** no text makes it panic, and none makes it nest deeper than it can bear.

use super::{ConditionNode, HitField, NAMES, Operator};
use crate::text::{Cursor, TextError};

/// Operators by how weakly they bind; longer ones before those that they begin with.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[("&", Operator::Mask)],
];
/// The level of comparisons: they don't chain.
const COMPARISONS: usize = 2;
const MOST_DEPTH: u32 = 64;

pub(super) struct Parser<'t> {
    cursor: Cursor<'t>,
    depth: u32,
}

impl<'t> Parser<'t> {
    pub(super) fn parse(text: &'t str) -> Result<ConditionNode, TextError> {
        let mut parser = Self { cursor: Cursor::new(text), depth: 0 };
        let root = parser.level(0)?;
        if !parser.cursor.is_at_end() {
            return Err(parser.error("expected an operator (== != < <= > >= & + - && ||) or the end"));
        }
        Ok(root)
    }

    fn error(&self, problem: impl Into<String>) -> TextError {
        self.cursor.error(self.cursor.at, problem)
    }

    fn take_operator(&mut self, level: usize) -> Option<Operator> {
        self.cursor.skip_blanks();
        let rest = self.cursor.rest();
        let (word, operator) = *LEVELS.get(level)?.iter().find(|(word, _)| rest.starts_with(word))?;
        if operator == Operator::Mask && rest.starts_with("&&") {
            return None;
        }
        self.cursor.at += word.len();
        Some(operator)
    }

    fn level(&mut self, level: usize) -> Result<ConditionNode, TextError> {
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.level(level + 1)?;
        while let Some(operator) = self.take_operator(level) {
            let right = self.level(level + 1)?;
            left = ConditionNode::Pair(operator, Box::new(left), Box::new(right));
            if level == COMPARISONS {
                break;
            }
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<ConditionNode, TextError> {
        self.cursor.skip_blanks();
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(self.error(format!("this nests deeper than {MOST_DEPTH} levels")));
        }
        let rest = self.cursor.rest();
        let node = match rest.chars().next() {
            Some('!') if !rest.starts_with("!=") => {
                self.cursor.at += 1;
                ConditionNode::Not(Box::new(self.unary()?))
            }
            Some('-') => {
                self.cursor.at += 1;
                ConditionNode::Negative(Box::new(self.unary()?))
            }
            Some('(') => {
                self.cursor.at += 1;
                let inner = self.level(0)?;
                if !self.cursor.take(")") {
                    return Err(self.error("expected `)`"));
                }
                inner
            }
            Some('\'') => self.character()?,
            Some(c) if c.is_ascii_digit() => self.number()?,
            Some(c) if c.is_ascii_alphabetic() => self.name()?,
            _ => {
                let names = NAMES.map(|(name, _)| name).join(", ");
                return Err(self.error(format!("expected a number, `(`, or one of {names}")));
            }
        };
        self.depth -= 1;
        Ok(node)
    }

    fn word(&mut self) -> String {
        let rest = self.cursor.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.cursor.at += end;
        rest.get(..end).unwrap_or_default().replace('_', "")
    }

    fn number(&mut self) -> Result<ConditionNode, TextError> {
        let begin = self.cursor.at;
        let word = self.word().to_ascii_lowercase();
        let parsed = match (word.strip_prefix("0x"), word.strip_prefix("0b")) {
            (Some(digits), _) => u64::from_str_radix(digits, 16),
            (_, Some(digits)) => u64::from_str_radix(digits, 2),
            _ => word.parse(),
        };
        let problem = || format!("`{word}` is no number of 64 bits; write 42, 0x2a or 0b101010");
        parsed.map(ConditionNode::Number).map_err(|_| self.cursor.error(begin, problem()))
    }

    fn character(&mut self) -> Result<ConditionNode, TextError> {
        let mut chars = self.cursor.rest().chars().skip(1);
        let (Some(c), Some('\'')) = (chars.next(), chars.next()) else {
            return Err(self.error("expected one character in quotes, such as 'a'"));
        };
        self.cursor.at += 2 + c.len_utf8();
        Ok(ConditionNode::Number(u64::from(u32::from(c))))
    }

    fn name(&mut self) -> Result<ConditionNode, TextError> {
        let begin = self.cursor.at;
        let name = match self.word().as_str() {
            "value" | "new" => HitField::Value,
            "old" => HitField::Old,
            "changed" => HitField::Changed,
            "tid" => HitField::Tid,
            "pid" => HitField::Pid,
            "cpu" => HitField::Cpu,
            "ip" => HitField::Ip,
            "kernel" => HitField::Kernel,
            word => {
                let names = NAMES.map(|(name, _)| name).join(", ");
                return Err(self.cursor.error(begin, format!("`{word}` is not known of a hit; known are {names}")));
            }
        };
        Ok(ConditionNode::Name(name))
    }
}
