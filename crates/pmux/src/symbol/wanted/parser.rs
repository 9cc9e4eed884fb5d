//! Taking the text of a target apart.
//!
//! What it is: the text is cut at its single colons (two in a row belong to a name), an access is taken off the end, and
//! what is left says by its number and shape what is meant. Read first: [`parse`].
//!
//! **Invariant:** any text gives a value or an error with its place; no text makes it panic.

use super::{AddressForm, AddressSpec, KERNEL};
use crate::event::Access;
use crate::text::{TextPiece, printable};

/// What is wrong, and at which byte.
pub(super) struct SpecFault(pub(super) usize, pub(super) String);

fn missing<T>(at: usize, what: &str) -> Result<T, SpecFault> {
    Err(SpecFault(at, format!("expected {what} here")))
}

fn out_of_range(at: usize, what: &str) -> SpecFault {
    SpecFault(at, format!("{what} is out of range"))
}

pub(super) fn parse(text: &str) -> Result<AddressSpec, SpecFault> {
    let empty = |at| SpecFault(at, "no target given: expected an address, a symbol or FILE:LINE".to_owned());
    let inner = TextPiece { text, at: 0 }.trim();
    if inner.text.is_empty() {
        return Err(empty(inner.at));
    }
    if let Some((at, c)) = inner.text.char_indices().find(|(_, c)| c.is_control()) {
        return Err(SpecFault(inner.at + at, format!("no target has the character {c:?}")));
    }
    let mut parts = cut(inner);
    let access = take_access(&mut parts)?;
    let (last, modules) = parts.split_last().ok_or_else(|| empty(inner.at))?;
    let (what, len) = match modules {
        [] => single(*last)?,
        [module] => pair(*module, *last)?,
        [module, file] if is_number(last.text) => {
            let (module, file) = (Some(module_name(*module)?), file_name(*file)?);
            (AddressForm::Line { module, file, line: line_number(*last)? }, None)
        }
        [_, _, rest @ ..] => {
            const MOST: &str = "[MODULE:]SYMBOL[+OFF][/LEN][:rwx], 0xADDR[/LEN][:rwx] or [MODULE:]FILE:LINE";
            return Err(SpecFault(rest.first().unwrap_or(last).at, format!("too many parts: expected {MOST}")));
        }
    };
    if access == Some(Access::EXECUTE) && len.is_some() {
        return Err(SpecFault(last.at, "code has no length: leave out /LEN, or the x".to_owned()));
    }
    if let AddressForm::Line { .. } = what
        && access.is_some_and(|access| access != Access::EXECUTE)
    {
        let problem = "a line is code, which is executed: leave out the access, or write x";
        return Err(SpecFault(last.at, problem.to_owned()));
    }
    Ok(AddressSpec { what, len, access })
}

/// Cuts at single colons. Of three in a row the first is one, and the others begin a name: `lib.so:::f`.
fn cut(whole: TextPiece<'_>) -> Vec<TextPiece<'_>> {
    let bytes = whole.text.as_bytes();
    let mut parts = Vec::new();
    let (mut begin, mut at) = (0, 0);
    while at < bytes.len() {
        let colons = bytes[at..].iter().take_while(|&&byte| byte == b':').count();
        if colons % 2 == 1 {
            parts.push(TextPiece { text: &whole.text[begin..at], at: whole.at + begin });
            begin = at + 1;
        }
        at += colons.max(1);
    }
    parts.push(TextPiece { text: &whole.text[begin..], at: whole.at + begin });
    parts
}

/// Takes the access off the end, if the last part is one.
fn take_access(parts: &mut Vec<TextPiece<'_>>) -> Result<Option<Access>, SpecFault> {
    let &[.., _, last] = &parts[..] else { return Ok(None) };
    if last.text.is_empty() {
        return missing(last.at, "an access (r, w, rw or x), a line or a symbol");
    }
    if !last.text.chars().all(|c| matches!(c, 'r' | 'w' | 'x')) {
        return Ok(None);
    }
    let Some(access) = Access::parse(last.text) else {
        return Err(SpecFault(last.at, "a letter stands twice: expected r, w, rw or x".to_owned()));
    };
    if access != Access::EXECUTE && access.bits() & Access::EXECUTE.bits() != 0 {
        return Err(SpecFault(last.at, "x goes with no other letter: name the target twice".to_owned()));
    }
    parts.pop();
    Ok(Some(access))
}

fn single(part: TextPiece<'_>) -> Result<(AddressForm, Option<u64>), SpecFault> {
    if is_hex(part.text) {
        let (digits, len) = take_len(part)?;
        return Ok((AddressForm::Address(number(digits, "an address")?), len));
    }
    if is_number(part.text) {
        let number = part.text;
        let problem = format!("a plain number: write 0x{number} for an address, or FILE:{number} for a line");
        return Err(SpecFault(part.at, problem));
    }
    symbol(None, part)
}

/// A target of two parts.
fn pair(module: TextPiece<'_>, part: TextPiece<'_>) -> Result<(AddressForm, Option<u64>), SpecFault> {
    if is_number(part.text) {
        return Ok((AddressForm::Line { module: None, file: file_name(module)?, line: line_number(part)? }, None));
    }
    let of = module_name(module)?;
    if is_hex(part.text) {
        let (digits, len) = take_len(part)?;
        return Ok((AddressForm::InModule { module: of, address: number(digits, "an address")? }, len));
    }
    symbol(Some(of), part)
}

/// `NAME[+OFF][/LEN]`.
fn symbol(module: Option<String>, part: TextPiece<'_>) -> Result<(AddressForm, Option<u64>), SpecFault> {
    let (part, len) = take_len(part)?;
    let (name, offset) = take_offset(part)?;
    // What is in no namespace is written with or without the colons.
    let name = name.trim_matches([':', ' ']);
    if !name.contains(|c: char| c.is_alphanumeric() || c == '_') || name.starts_with(|c: char| c.is_ascii_digit()) {
        return missing(part.at, "the name of a symbol");
    }
    Ok((AddressForm::Symbol { module, name: name.to_owned(), offset }, len))
}

/// Takes `/LEN` off the end. What isn't a number behind a slash is a mistake, unless it is an operator's name.
fn take_len(part: TextPiece<'_>) -> Result<(TextPiece<'_>, Option<u64>), SpecFault> {
    let Some((before, digits)) = part.text.rsplit_once('/') else { return Ok((part, None)) };
    if before.ends_with("operator") {
        return Ok((part, None));
    }
    let at = part.at + before.len() + 1;
    let len = number(TextPiece { text: digits, at }, "a length in bytes")?;
    if len == 0 {
        return Err(out_of_range(at, "the length"));
    }
    Ok((TextPiece { text: before, at: part.at }, Some(len)))
}

/// Takes `+OFF` off the end.
fn take_offset(part: TextPiece<'_>) -> Result<(&str, u64), SpecFault> {
    let Some((before, digits)) = part.text.rsplit_once('+') else { return Ok((part.text, 0)) };
    // `operator+`, `operator++`, and the bounds of a Rust type: ` + Send`.
    let name = before.ends_with("operator") || before.ends_with("operator+") || digits.starts_with(' ');
    if name && !digits.starts_with(|c: char| c.is_ascii_digit()) || before.ends_with("operator") {
        return Ok((part.text, 0));
    }
    if digits.contains([')', '>']) {
        return Ok((part.text, 0));
    }
    let offset = number(TextPiece { text: digits, at: part.at + before.len() + 1 }, "an offset in bytes")?;
    Ok((before, offset))
}

fn module_name(part: TextPiece<'_>) -> Result<String, SpecFault> {
    match part.text.trim() {
        name if name.is_empty() || name.contains(':') => missing(part.at, "the name of a program or library"),
        "kernel" | "[kernel]" | "vmlinux" | "[kernel.kallsyms]" => Ok(KERNEL.to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn file_name(part: TextPiece<'_>) -> Result<String, SpecFault> {
    match part.text.trim() {
        name if name.is_empty() || name.contains(':') => missing(part.at, "the name of a source file"),
        name => Ok(name.to_owned()),
    }
}

fn line_number(part: TextPiece<'_>) -> Result<u32, SpecFault> {
    let line = part.text.parse().ok().filter(|&line: &u32| line > 0);
    line.ok_or_else(|| out_of_range(part.at, "the line"))
}

fn number(part: TextPiece<'_>, what: &'static str) -> Result<u64, SpecFault> {
    let found = match part.text.strip_prefix("0x").or_else(|| part.text.strip_prefix("0X")) {
        Some(digits) => digits.chars().all(|c| c.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16)),
        None => is_number(part.text).then(|| part.text.parse()),
    };
    match found {
        Some(Ok(number)) => Ok(number),
        Some(Err(_)) if part.text.len() > 2 => Err(out_of_range(part.at, what)),
        _ if part.text.is_empty() => missing(part.at, what),
        _ => {
            let found = printable(part.text);
            Err(SpecFault(part.at, format!("expected {what} as a number (12 or 0xc), found '{found}'")))
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_hex(text: &str) -> bool {
    text.starts_with("0x") || text.starts_with("0X")
}
