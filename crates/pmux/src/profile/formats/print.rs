//! The format string of a tracepoint, filled in.
//!
//! **Invariant:** the width of a number is what its conversion says, as in the kernel; nothing is wider than [`WIDEST`].

use super::expression::{Eval, Expression, ExpressionValue};
use std::fmt::Write;

const WIDEST: usize = 512;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FormatPiece {
    Text(String),
    Conversion(Conversion),
}

/// `%-5d`, `%08lx`, `%pS`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Conversion {
    left: bool,
    zeros: bool,
    plus: bool,
    alternate: bool,
    width: Width,
    precision: Option<Width>,
    /// Bytes of the number.
    bytes: u8,
    kind: char,
    /// What follows `%p`.
    pointer: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Width {
    Is(usize),
    /// An argument of its own.
    Argument,
}

impl Default for Width {
    fn default() -> Self {
        Self::Is(0)
    }
}

/// Takes a format string apart. `None` where it is not understood.
pub(super) fn pieces(template: &str) -> Option<Vec<FormatPiece>> {
    let (mut pieces, mut text) = (Vec::new(), String::new());
    let mut rest = template.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        if rest.peek() == Some(&'%') {
            rest.next();
            text.push('%');
            continue;
        }
        if !text.is_empty() {
            pieces.push(FormatPiece::Text(std::mem::take(&mut text)));
        }
        let mut found = Conversion { bytes: 4, ..Conversion::default() };
        while let Some(flag) = rest.next_if(|c| matches!(c, '-' | '0' | '+' | '#' | ' ')) {
            match flag {
                '-' => found.left = true,
                '0' => found.zeros = true,
                '+' => found.plus = true,
                '#' => found.alternate = true,
                _ => {}
            }
        }
        found.width = width(&mut rest);
        if rest.next_if_eq(&'.').is_some() {
            found.precision = Some(width(&mut rest));
        }
        while let Some(length) = rest.next_if(|c| matches!(c, 'l' | 'L' | 'z' | 'h' | 'j' | 't')) {
            found.bytes = match (length, found.bytes) {
                ('h', 2) => 1,
                ('h', _) => 2,
                _ => 8,
            };
        }
        found.kind = rest.next()?;
        if found.kind == 'p' {
            while let Some(more) = rest.next_if(char::is_ascii_alphanumeric) {
                found.pointer.push(more);
            }
        }
        if !matches!(found.kind, 'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'c' | 's' | 'p') {
            return None;
        }
        pieces.push(FormatPiece::Conversion(found));
    }
    if !text.is_empty() {
        pieces.push(FormatPiece::Text(text));
    }
    Some(pieces)
}

/// A number of places, or the star that stands for an argument.
fn width(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Width {
    if rest.next_if_eq(&'*').is_some() {
        return Width::Argument;
    }
    let mut number = 0_usize;
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        number = (number * 10 + digit as usize - '0' as usize).min(WIDEST);
    }
    Width::Is(number)
}

/// Adds the text. `None` where something has no value.
pub(super) fn print(
    pieces: &[FormatPiece],
    arguments: &[Expression],
    eval: &Eval<'_>,
    symbol: &mut dyn FnMut(u64) -> Option<(String, u64)>,
    out: &mut String,
) -> Option<()> {
    let mut arguments = arguments.iter();
    for piece in pieces {
        match piece {
            FormatPiece::Text(text) => out.push_str(text),
            FormatPiece::Conversion(conversion) => {
                let mut number = |width: Width| match width {
                    Width::Is(width) => Some(width),
                    Width::Argument => {
                        Some(usize::try_from(eval.value(arguments.next()?)?.number()?).unwrap_or(0).min(WIDEST))
                    }
                };
                let width = number(conversion.width)?;
                let precision = match conversion.precision {
                    Some(precision) => Some(number(precision)?),
                    None => None,
                };
                let value = eval.value(arguments.next()?)?;
                convert(conversion, width, precision, &value, symbol, out)?;
            }
        }
    }
    Some(())
}

fn convert(
    conversion: &Conversion,
    width: usize,
    precision: Option<usize>,
    value: &ExpressionValue<'_>,
    symbol: &mut dyn FnMut(u64) -> Option<(String, u64)>,
    out: &mut String,
) -> Option<()> {
    if let (Some(base), ExpressionValue::Number(number), 0, None) = (conversion.plain_base(), value, width, precision) {
        let unsigned = super::cut(*number, conversion.bytes);
        let is_signed = conversion.kind == 'd' || conversion.kind == 'i';
        let signed = super::extended(unsigned, conversion.bytes.into());
        if is_signed && signed < 0 {
            out.push('-');
        }
        push_digits(if is_signed { signed.unsigned_abs() } else { unsigned }, base, out);
        return Some(());
    }
    let text = match (conversion.kind, value) {
        ('s', ExpressionValue::Text(text)) => match precision {
            Some(most) => text.chars().take(most).collect(),
            None => text.clone(),
        },
        // Text that is somewhere in the kernel's memory, which was not kept.
        ('s', ExpressionValue::Number(address)) => format!("{address:#x}"),
        ('s', ExpressionValue::Bytes(bytes, 1)) => crate::bytes::until_zero(bytes),
        ('p', _) => pointer(&conversion.pointer, value, symbol)?,
        ('c', _) => char::from_u32(value.number()? as u32 & 0xff)?.to_string(),
        (kind, _) => digits(kind, conversion, precision, value.number()?),
    };
    let missing = width.saturating_sub(text.chars().count());
    let is_number = !matches!(conversion.kind, 's' | 'c' | 'p');
    match (conversion.left, conversion.zeros && is_number && precision.is_none()) {
        (true, _) => {
            out.push_str(&text);
            out.extend(std::iter::repeat_n(' ', missing));
        }
        (false, true) => {
            let sign = text.len() - text.trim_start_matches(['-', '+']).len();
            let (sign, rest) = text.split_at(sign);
            out.push_str(sign);
            out.extend(std::iter::repeat_n('0', missing));
            out.push_str(rest);
        }
        (false, false) => {
            out.extend(std::iter::repeat_n(' ', missing));
            out.push_str(&text);
        }
    }
    Some(())
}

impl Conversion {
    /// The base of a number that is printed as it is; most are.
    fn plain_base(&self) -> Option<u64> {
        match self.kind {
            _ if self.plus || self.alternate => None,
            'd' | 'i' | 'u' => Some(10),
            'x' => Some(16),
            _ => None,
        }
    }
}

/// Appends a number: lines of tracepoints consist of them, and this is what they cost most.
fn push_digits(number: u64, base: u64, out: &mut String) {
    // As many digits as the largest number has.
    let (mut digits, mut at, mut rest) = ([0; 20], 20, number);
    while at == 20 || rest > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(rest % base) as usize];
        rest /= base;
    }
    out.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
}

fn digits(kind: char, conversion: &Conversion, precision: Option<usize>, number: i64) -> String {
    let unsigned = super::cut(number, conversion.bytes);
    let mut text = String::new();
    let _ = match kind {
        'd' | 'i' => {
            let signed = super::extended(unsigned, conversion.bytes.into());
            if signed < 0 {
                text.push('-');
            } else if conversion.plus {
                text.push('+');
            }
            write!(text, "{:0least$}", signed.unsigned_abs(), least = precision.unwrap_or(0))
        }
        'u' => write!(text, "{unsigned:0least$}", least = precision.unwrap_or(0)),
        'o' => write!(text, "{unsigned:o}"),
        'X' if conversion.alternate => write!(text, "0X{unsigned:X}"),
        'X' => write!(text, "{unsigned:0least$X}", least = precision.unwrap_or(0)),
        _ if conversion.alternate && unsigned != 0 => write!(text, "{unsigned:#x}"),
        _ => write!(text, "{unsigned:0least$x}", least = precision.unwrap_or(0)),
    };
    text
}

fn pointer(
    kind: &str,
    value: &ExpressionValue<'_>,
    symbol: &mut dyn FnMut(u64) -> Option<(String, u64)>,
) -> Option<String> {
    let first = kind.chars().next().unwrap_or(' ');
    if first == 'I' {
        let ExpressionValue::Bytes(bytes, _) = value else { return None };
        return match kind.get(..2)? {
            "I4" => Some(std::net::Ipv4Addr::from(*bytes.first_chunk::<4>()?).to_string()),
            "I6" => Some(std::net::Ipv6Addr::from(*bytes.first_chunk::<16>()?).to_string()),
            _ => None,
        };
    }
    let address = value.number()?.cast_unsigned();
    let named = "SsFfB".contains(first).then(|| symbol(address)).flatten();
    Some(match named {
        Some((name, offset)) if "SFB".contains(first) => format!("{name}+{offset:#x}"),
        Some((name, _)) => name,
        None => format!("{address:#x}"),
    })
}
