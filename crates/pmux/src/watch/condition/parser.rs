//! From the text of a condition to its tree.
//!
//! **Invariant:** no text makes it panic, and none makes it nest deeper than it can bear.

use super::{ConditionError, NAMES, Name, Node, Operator};

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
/// How deep parentheses and signs may nest.
const MOST_DEPTH: u32 = 64;

pub(super) struct Parser<'t> {
    text: &'t str,
    chars: Vec<char>,
    at: usize,
    depth: u32,
}

impl<'t> Parser<'t> {
    /// Takes the whole text apart.
    pub(super) fn parse(text: &'t str) -> Result<Node, ConditionError> {
        let mut parser = Self { text, chars: text.chars().collect(), at: 0, depth: 0 };
        let root = parser.level(0)?;
        parser.skip_blanks();
        if parser.at < parser.chars.len() {
            return Err(parser.error("expected an operator (== != < <= > >= & + - && ||) or the end".to_owned()));
        }
        Ok(root)
    }

    fn error(&self, problem: String) -> ConditionError {
        ConditionError { text: self.text.to_owned(), column: self.at, problem }
    }

    fn skip_blanks(&mut self) {
        while self.chars.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
    }

    fn rest_begins_with(&self, word: &str) -> bool {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        rest.len() >= word.len() && word.chars().zip(rest).all(|(a, &b)| a == b)
    }

    fn take_operator(&mut self, level: usize) -> Option<Operator> {
        self.skip_blanks();
        let (word, operator) = *LEVELS.get(level)?.iter().find(|(word, _)| self.rest_begins_with(word))?;
        if operator == Operator::Mask && self.rest_begins_with("&&") {
            return None;
        }
        self.at += word.len();
        Some(operator)
    }

    fn level(&mut self, level: usize) -> Result<Node, ConditionError> {
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.level(level + 1)?;
        while let Some(operator) = self.take_operator(level) {
            let right = self.level(level + 1)?;
            left = Node::Pair(operator, Box::new(left), Box::new(right));
            if level == COMPARISONS {
                break;
            }
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, ConditionError> {
        self.skip_blanks();
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(self.error(format!("this nests deeper than {MOST_DEPTH} levels")));
        }
        let node = match self.chars.get(self.at) {
            Some('!') if !self.rest_begins_with("!=") => {
                self.at += 1;
                Node::Not(Box::new(self.unary()?))
            }
            Some('-') => {
                self.at += 1;
                Node::Negative(Box::new(self.unary()?))
            }
            Some('(') => {
                self.at += 1;
                let inner = self.level(0)?;
                self.skip_blanks();
                if self.chars.get(self.at) != Some(&')') {
                    return Err(self.error("expected `)`".to_owned()));
                }
                self.at += 1;
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
        let begin = self.at;
        while self.chars.get(self.at).is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_') {
            self.at += 1;
        }
        self.chars.get(begin..self.at).unwrap_or_default().iter().filter(|&&c| c != '_').collect()
    }

    fn number(&mut self) -> Result<Node, ConditionError> {
        let begin = self.at;
        let word = self.word().to_ascii_lowercase();
        let parsed = match (word.strip_prefix("0x"), word.strip_prefix("0b")) {
            (Some(digits), _) => u64::from_str_radix(digits, 16),
            (_, Some(digits)) => u64::from_str_radix(digits, 2),
            _ => word.parse(),
        };
        parsed.map(Node::Number).map_err(|_| {
            self.at = begin;
            self.error(format!("`{word}` is no number of 64 bits; write 42, 0x2a or 0b101010"))
        })
    }

    fn character(&mut self) -> Result<Node, ConditionError> {
        match self.chars.get(self.at..self.at + 3) {
            Some(&['\'', c, '\'']) => {
                self.at += 3;
                Ok(Node::Number(u64::from(u32::from(c))))
            }
            _ => Err(self.error("expected one character in quotes, such as 'a'".to_owned())),
        }
    }

    fn name(&mut self) -> Result<Node, ConditionError> {
        let begin = self.at;
        let word = self.word();
        let name = match word.as_str() {
            "value" | "new" => Name::Value,
            "old" => Name::Old,
            "changed" => Name::Changed,
            "tid" => Name::Tid,
            "pid" => Name::Pid,
            "cpu" => Name::Cpu,
            "ip" => Name::Ip,
            "kernel" => Name::Kernel,
            _ => {
                self.at = begin;
                let names = NAMES.map(|(name, _)| name).join(", ");
                return Err(self.error(format!("`{word}` is not known of a hit; known are {names}")));
            }
        };
        Ok(Node::Name(name))
    }
}
