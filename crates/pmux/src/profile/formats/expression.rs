//! What an argument of a tracepoint's `print fmt` is, and its value.
//!
//! **Invariant:** arithmetic wraps, as it does in the kernel; a division by zero is no value.

use super::{Format, Storage, extended, number};

/// An argument, or a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Expression {
    Number(i64),
    Text(String),
    /// A field by its place among the fields.
    Field(usize),
    /// The text of a field.
    FieldText(usize),
    /// The bytes of a field, and how long each number in them is.
    FieldBytes(usize),
    /// How many bytes a field has.
    FieldLength(usize),
    Element(Box<Expression>, Box<Expression>),
    Unary(char, Box<Expression>),
    Binary(&'static str, Box<(Expression, Expression)>),
    Choice(Box<(Expression, Expression, Expression)>),
    /// Cut to so many bytes, with a sign or not.
    Cast {
        bytes: u8,
        is_signed: bool,
        of: Box<Expression>,
    },
    Flags {
        of: Box<Expression>,
        between: String,
        names: Vec<(i64, String)>,
    },
    Symbolic {
        of: Box<Expression>,
        names: Vec<(i64, String)>,
    },
    Hex {
        of: Box<Expression>,
        length: Box<Expression>,
    },
    Array {
        of: Box<Expression>,
        count: Box<Expression>,
        bytes: Box<Expression>,
    },
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
        Some(match expression {
            E::Number(number) => ExpressionValue::Number(*number),
            E::Text(text) => ExpressionValue::Text(text.clone()),
            E::Field(index) => self.field(*index)?,
            E::FieldText(index) => {
                let (bytes, ..) = self.format.fields.get(*index)?.contents(self.raw)?;
                ExpressionValue::Text(crate::bytes::until_zero(bytes))
            }
            E::FieldBytes(index) => {
                let (bytes, _, width) = self.format.fields.get(*index)?.contents(self.raw)?;
                ExpressionValue::Bytes(bytes, width)
            }
            E::FieldLength(index) => {
                let (bytes, ..) = self.format.fields.get(*index)?.contents(self.raw)?;
                ExpressionValue::Number(bytes.len() as i64)
            }
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
        Some(match self.value(expression)? {
            ExpressionValue::Number(number) => number != 0,
            ExpressionValue::Text(_) | ExpressionValue::Bytes(..) => true,
        })
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
    let kept = match bytes {
        1 => number.cast_unsigned() & 0xff,
        2 => number.cast_unsigned() & 0xffff,
        4 => number.cast_unsigned() & 0xffff_ffff,
        _ => return number,
    };
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
