//! Conditions: which hits are meant.
//!
//! What it is: a small language, `value == 42 && old != 42 || tid == 7`, parsed once and asked for each hit.
//!
//! ```text
//! either     = both { "||" both }
//! both       = comparison { "&&" comparison }
//! comparison = sum [ ("==" | "!=" | "<" | "<=" | ">" | ">=") sum ]
//! sum        = masked { ("+" | "-") masked }
//! masked     = unary { "&" unary }
//! unary      = "!" unary | "-" unary | "(" either ")" | NUMBER | NAME
//! ```
//!
//! Numbers are decimal, `0x…`, `0b…` or a character `'a'`. All are compared as the machine stores them: with as many bits
//! as the watched data has, without a sign, so that `value == -1` is what one expects.
//!
//! **Invariant:** pure. Where something that the condition asks for is not known of a hit, the answer is *not known*, never
//! yes or no.

mod compile;
mod parser;

use super::hit::Hit;
use crate::text::TextError;
pub(in crate::watch) use compile::StackPlaces;
use parser::Parser;
use std::fmt;
use std::str::FromStr;

/// What a condition can ask of a hit, with what it means.
pub const NAMES: [(&str, &str); 8] = [
    ("value", "what stands there after the hit"),
    ("old", "what stood there before, as far as is known"),
    ("changed", "1 where value and old differ, otherwise 0"),
    ("tid", "the thread"),
    ("pid", "the process"),
    ("cpu", "the CPU"),
    ("ip", "the instruction pointer"),
    ("kernel", "1 for a hit in the kernel, otherwise 0"),
];

/// A condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    text: String,
    root: ConditionNode,
}

/// What a condition says of a hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConditionAnswer {
    /// It holds.
    Yes,
    /// It doesn't.
    No,
    /// It asks for a value that is not known: see [`HitValue`](super::HitValue).
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HitField {
    Value,
    Old,
    Changed,
    Tid,
    Pid,
    Cpu,
    Ip,
    Kernel,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Mask,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum ConditionNode {
    Number(u64),
    Name(HitField),
    Not(Box<ConditionNode>),
    Negative(Box<ConditionNode>),
    Pair(Operator, Box<ConditionNode>, Box<ConditionNode>),
}

impl FromStr for Condition {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let root = Parser::parse(text)?;
        Ok(Self { text: text.to_owned(), root })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    /// What it says of a hit on data of so many bytes.
    #[must_use]
    pub fn ask(&self, hit: &Hit, len: u64) -> ConditionAnswer {
        match self.root.number(hit, mask(len)) {
            None => ConditionAnswer::Unknown,
            Some(0) => ConditionAnswer::No,
            Some(_) => ConditionAnswer::Yes,
        }
    }

    /// Whether it asks for what stands in memory.
    #[must_use]
    pub fn asks_for_values(&self) -> bool {
        self.root.any(&|node| matches!(node, ConditionNode::Name(HitField::Value | HitField::Old | HitField::Changed)))
    }
}

/// The bits that data of so many bytes has.
pub(super) const fn mask(len: u64) -> u64 {
    if len < 8 { (1 << (len * 8)) - 1 } else { u64::MAX }
}

impl ConditionNode {
    fn any(&self, is: &dyn Fn(&Self) -> bool) -> bool {
        let below = match self {
            Self::Number(_) | Self::Name(_) => false,
            Self::Not(node) | Self::Negative(node) => node.any(is),
            Self::Pair(_, left, right) => left.any(is) || right.any(is),
        };
        below || is(self)
    }

    fn number(&self, hit: &Hit, mask: u64) -> Option<u64> {
        let value = || hit.value.now();
        Some(match self {
            Self::Number(number) => *number,
            Self::Name(name) => match name {
                HitField::Value => value()?,
                HitField::Old => hit.value.before()?,
                HitField::Changed => u64::from(value()? != hit.value.before()?),
                HitField::Tid => u64::from(hit.tid.unsigned_abs()),
                HitField::Pid => u64::from(hit.pid.unsigned_abs()),
                HitField::Cpu => u64::from(hit.cpu),
                HitField::Ip => hit.ip,
                HitField::Kernel => u64::from(hit.side == super::hit::HitSide::Kernel),
            },
            Self::Not(node) => u64::from(node.number(hit, mask)? == 0),
            Self::Negative(node) => node.number(hit, mask)?.wrapping_neg() & mask,
            Self::Pair(operator, left, right) => pair(*operator, left, right, hit, mask)?,
        })
    }
}

fn pair(operator: Operator, left: &ConditionNode, right: &ConditionNode, hit: &Hit, mask: u64) -> Option<u64> {
    let (left, right) = (left.number(hit, mask), right.number(hit, mask));
    // One side may decide alone.
    match operator {
        Operator::Or if left.or(Some(0)) != Some(0) || right.or(Some(0)) != Some(0) => return Some(1),
        Operator::And if left == Some(0) || right == Some(0) => return Some(0),
        _ => {}
    }
    let (left, right) = (left?, right?);
    Some(match operator {
        Operator::Or => 0,
        Operator::And => 1,
        Operator::Equal => u64::from(left == right),
        Operator::Unequal => u64::from(left != right),
        Operator::Less => u64::from(left < right),
        Operator::LessOrEqual => u64::from(left <= right),
        Operator::Greater => u64::from(left > right),
        Operator::GreaterOrEqual => u64::from(left >= right),
        Operator::Plus => left.wrapping_add(right) & mask,
        Operator::Minus => left.wrapping_sub(right) & mask,
        Operator::Mask => left & right,
    })
}

#[cfg(test)]
mod tests;
