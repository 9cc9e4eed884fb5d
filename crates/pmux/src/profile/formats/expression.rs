//! What an argument of a tracepoint's `print fmt` is, and its value.
//!
//! **Invariant:** arithmetic wraps, as it does in the kernel; a division by zero is no value.

use super::{Format, Storage, cut, extended, number};

/// An argument, or a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Expression {
    /// `7`
    Number(i64),
    /// `"text"`
    Text(String),
    /// A field by its place among the fields.
    Field(usize),
    /// The text of a field.
    FieldText(usize),
    /// The bytes of a field, and how long each number in them is.
    FieldBytes(usize),
    /// How many bytes a field has.
    FieldLength(usize),
    /// `of[index]`
    Element(Box<Expression>, Box<Expression>),
    /// `-of`
    Unary(char, Box<Expression>),
    /// `left + right`
    Binary(&'static str, Box<(Expression, Expression)>),
    /// `condition ? yes : no`
    Choice(Box<(Expression, Expression, Expression)>),
    /// Cut to so many bytes, with a sign or not.
    Cast { bytes: u8, is_signed: bool, of: Box<Expression> },
    /// The names of all bits.
    Flags { of: Box<Expression>, between: String, names: Vec<(i64, String)> },
    /// The name of a value.
    Symbolic { of: Box<Expression>, names: Vec<(i64, String)> },
    /// Bytes, one by one.
    Hex { of: Box<Expression>, length: Box<Expression> },
    /// Numbers of so many bytes.
    Array { of: Box<Expression>, count: Box<Expression>, bytes: Box<Expression> },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ExpressionValue<'r> {
    Number(i64),
    Text(String),
    Bytes(&'r [u8], u8),
}

impl ExpressionValue<'_> {
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
            Self::Bytes(bytes, _) => number(bytes).map(u64::cast_signed),
        }
    }
}

/// The bytes of a sample, with what they mean.
pub(super) struct Eval<'a> {
    pub(super) format: &'a Format,
    pub(super) raw: &'a [u8],
}

impl<'a> Eval<'a> {
    pub(super) fn value(&self, expression: &Expression) -> Option<ExpressionValue<'a>> {
        use Expression as E;
        let contents = |index: &usize| self.format.fields.get(*index)?.contents(self.raw);
        Some(match expression {
            E::Number(number) => ExpressionValue::Number(*number),
            E::Text(text) => ExpressionValue::Text(text.clone()),
            E::Field(index) => self.field(*index)?,
            E::FieldText(index) => ExpressionValue::Text(crate::bytes::until_zero(contents(index)?.0)),
            E::FieldBytes(index) => {
                let (bytes, _, width) = contents(index)?;
                ExpressionValue::Bytes(bytes, width)
            }
            E::FieldLength(index) => ExpressionValue::Number(contents(index)?.0.len() as i64),
            E::Element(of, index) => {
                let (of, index) = (self.value(of)?, self.number(index)?);
                let ExpressionValue::Bytes(bytes, width) = of else { return None };
                let at = usize::try_from(index).ok()?.checked_mul(width.into())?;
                ExpressionValue::Number(number(bytes.get(at..at + usize::from(width))?)?.cast_signed())
            }
            E::Unary(operator, of) => {
                let of = self.number(of)?;
                ExpressionValue::Number(match operator {
                    '-' => of.wrapping_neg(),
                    '~' => !of,
                    '!' => i64::from(of == 0),
                    _ => of,
                })
            }
            E::Binary(operator, sides) => self.binary(operator, &sides.0, &sides.1)?,
            E::Choice(parts) => {
                let (condition, yes, no) = &**parts;
                if self.truth(condition)? { self.value(yes)? } else { self.value(no)? }
            }
            E::Cast { bytes, is_signed, of } => match self.value(of)? {
                ExpressionValue::Number(number) => ExpressionValue::Number(cast(number, *bytes, *is_signed)),
                other => other,
            },
            E::Flags { of, between, names } => ExpressionValue::Text(flags(self.number(of)?, between, names)),
            E::Symbolic { of, names } => {
                let of = self.number(of)?;
                let name = names.iter().find(|(value, _)| *value == of);
                ExpressionValue::Text(name.map_or_else(|| format!("{of:#x}"), |(_, name)| name.clone()))
            }
            E::Hex { of, length } => {
                let ExpressionValue::Bytes(bytes, _) = self.value(of)? else { return None };
                let length = usize::try_from(self.number(length)?).ok()?;
                let text: Vec<String> = bytes.get(..length)?.iter().map(|byte| format!("{byte:02x}")).collect();
                ExpressionValue::Text(text.join(" "))
            }
            E::Array { of, count, bytes } => {
                let ExpressionValue::Bytes(all, _) = self.value(of)? else { return None };
                let width = usize::try_from(self.number(bytes)?).ok()?.max(1);
                let count = usize::try_from(self.number(count)?).ok()?;
                let numbers: Option<Vec<String>> =
                    all.chunks_exact(width).take(count).map(|one| Some(format!("{:#x}", number(one)?))).collect();
                ExpressionValue::Text(format!("{{{}}}", numbers?.join(",")))
            }
        })
    }

    fn field(&self, index: usize) -> Option<ExpressionValue<'a>> {
        let field = self.format.fields.get(index)?;
        let (bytes, is_text, width) = field.contents(self.raw)?;
        if is_text {
            return Some(ExpressionValue::Text(crate::bytes::until_zero(bytes)));
        }
        if bytes.len() != usize::from(width) || !matches!(field.storage, Storage::Numbers { .. }) {
            return Some(ExpressionValue::Bytes(bytes, width));
        }
        let value = number(bytes)?;
        Some(ExpressionValue::Number(if field.is_signed { extended(value, bytes.len()) } else { value.cast_signed() }))
    }

    fn number(&self, expression: &Expression) -> Option<i64> {
        self.value(expression)?.number()
    }

    fn truth(&self, expression: &Expression) -> Option<bool> {
        Some(self.value(expression)? != ExpressionValue::Number(0))
    }

    fn binary(&self, operator: &str, left: &Expression, right: &Expression) -> Option<ExpressionValue<'a>> {
        let lazy = match operator {
            "&&" => Some(self.truth(left)? && self.truth(right)?),
            "||" => Some(self.truth(left)? || self.truth(right)?),
            _ => None,
        };
        if let Some(truth) = lazy {
            return Some(ExpressionValue::Number(truth.into()));
        }
        let (a, b) = (self.number(left)?, self.number(right)?);
        let shift = u32::try_from(b).unwrap_or(64);
        Some(ExpressionValue::Number(match operator {
            "+" => a.wrapping_add(b),
            "-" => a.wrapping_sub(b),
            "*" => a.wrapping_mul(b),
            "/" => a.checked_div(b)?,
            "%" => a.checked_rem(b)?,
            "<<" => a.checked_shl(shift).unwrap_or(0),
            // What stands in a field without a sign has none here either.
            ">>" => a.cast_unsigned().checked_shr(shift).unwrap_or(0).cast_signed(),
            "&" => a & b,
            "|" => a | b,
            "^" => a ^ b,
            "==" => (a == b).into(),
            "!=" => (a != b).into(),
            "<" => (a < b).into(),
            "<=" => (a <= b).into(),
            ">" => (a > b).into(),
            ">=" => (a >= b).into(),
            _ => return None,
        }))
    }
}

fn cast(number: i64, bytes: u8, is_signed: bool) -> i64 {
    let kept = cut(number, bytes);
    if is_signed { extended(kept, bytes.into()) } else { kept.cast_signed() }
}

fn flags(mut of: i64, between: &str, names: &[(i64, String)]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (mask, name) in names {
        if *mask == 0 && of == 0 && parts.is_empty() {
            return name.clone();
        }
        if *mask != 0 && of & mask == *mask {
            parts.push(name.clone());
            of &= !mask;
        }
    }
    if of != 0 {
        parts.push(format!("{of:#x}"));
    }
    parts.join(between)
}
