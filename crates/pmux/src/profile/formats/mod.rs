//! Tracepoints taken apart: what the bytes of their samples mean, in the words of the kernel that wrote them.
//!
//! What it is: [`Formats`] are read from the recording; a [`Format`] prints the raw bytes of a sample as the kernel would, by the
//! `print fmt` of its description. Read first: [`Format::print`].
//!
//! **Invariant:** descriptions and bytes may be anything. What can't be printed as described is printed field by field.
//!
//! Source: `Documentation/trace/events.rst`; `include/trace/stages/` of the kernel.

mod expression;
mod parser;
mod print;

use crate::bytes::Fields;
use expression::{Eval, Expression};
use std::collections::HashMap;

/// Descriptions are no longer, and there are no more of them.
const MOST_FORMATS: u32 = 1 << 20;

/// The descriptions of a recording, by the tracepoint's number.
#[derive(Debug, Default)]
pub struct Formats {
    by_id: HashMap<u64, Format>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Storage {
    /// Numbers, this many bytes each.
    Numbers { bytes: u8 },
    /// Text.
    Text,
    /// A word with place and length of the field's contents. The place counts from a byte of the sample: its first one, or the one behind the
    /// word.
    Elsewhere { from: usize, is_text: bool, bytes: u8 },
}

/// A field of a tracepoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) is_signed: bool,
    pub(super) storage: Storage,
}

/// The description of a tracepoint.
#[derive(Debug)]
pub struct Format {
    /// Its group.
    pub system: String,
    /// Its name.
    pub name: String,
    /// Its fields, in order, those that all have in common first.
    pub fields: Vec<Field>,
    /// Format string and arguments; `None` where the description is not understood.
    printing: Option<(Vec<print::FormatPiece>, Vec<Expression>)>,
}

/// A value of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldValue {
    /// A number without a sign.
    Unsigned(u64),
    /// A number with a sign.
    Signed(i64),
    /// Text.
    Text(String),
    /// Several numbers.
    Numbers(Vec<u64>),
}

impl Formats {
    /// Reads what stands in a recording: [`super::Profile::tracing`]. What is broken is left out.
    #[must_use]
    pub fn parse(tracing: &[u8]) -> Self {
        let mut formats = Self::default();
        let _ = formats.read(tracing);
        formats
    }

    fn read(&mut self, tracing: &[u8]) -> Option<()> {
        let mut fields = Fields(tracing);
        fields.take(10)?;
        fields.zero_ended()?;
        // Order of bytes, size of a word, size of a page.
        let (_order, _word, _page) = (fields.u8()?, fields.u8()?, fields.u32()?);
        for _ in ["header_page", "header_event"] {
            fields.zero_ended()?;
            fields.sized()?;
        }
        for _ in 0..fields.u32()?.min(MOST_FORMATS) {
            fields.sized()?;
        }
        for _ in 0..fields.u32()?.min(MOST_FORMATS) {
            let system = String::from_utf8_lossy(fields.zero_ended()?).into_owned();
            for _ in 0..fields.u32()?.min(MOST_FORMATS) {
                let text = String::from_utf8_lossy(fields.sized()?);
                if let Some((id, format)) = parser::format(&system, &text) {
                    self.by_id.insert(id, format);
                }
            }
        }
        Some(())
    }

    /// The description of a tracepoint, by its number, which is the `config` of its event.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Format> {
        self.by_id.get(&id)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

impl Format {
    /// Adds the bytes of a sample as text. `symbol` names a function of the kernel by its address: name, and bytes behind its beginning.
    pub fn print(&self, raw: &[u8], symbol: &mut dyn FnMut(u64) -> Option<(String, u64)>, out: &mut String) {
        let before = out.len();
        if let Some((pieces, arguments)) = &self.printing {
            let eval = Eval { format: self, raw };
            if print::print(pieces, arguments, &eval, symbol, out).is_some() {
                return;
            }
            out.truncate(before);
        }
        self.print_plainly(raw, out);
    }

    /// The fields of its own.
    pub fn own_fields(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| !field.name.starts_with("common_"))
    }

    fn print_plainly(&self, raw: &[u8], out: &mut String) {
        use std::fmt::Write;
        for (index, field) in self.own_fields().enumerate() {
            let space = if index > 0 { " " } else { "" };
            let _ = match field.value(raw) {
                Some(FieldValue::Unsigned(value)) => write!(out, "{space}{}={value}", field.name),
                Some(FieldValue::Signed(value)) => write!(out, "{space}{}={value}", field.name),
                Some(FieldValue::Text(text)) => write!(out, "{space}{}={text}", field.name),
                Some(FieldValue::Numbers(values)) => write!(out, "{space}{}={values:x?}", field.name),
                None => write!(out, "{space}{}=?", field.name),
            };
        }
    }

    /// A field by its name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Field {
    /// Its value in the bytes of a sample; `None` where they end too early.
    #[must_use]
    pub fn value(&self, raw: &[u8]) -> Option<FieldValue> {
        let (contents, is_text, bytes) = self.contents(raw)?;
        if is_text {
            return Some(FieldValue::Text(crate::bytes::until_zero(contents)));
        }
        let width = usize::from(bytes).max(1);
        if self.bytes > width || !matches!(self.storage, Storage::Numbers { .. }) {
            return Some(FieldValue::Numbers(contents.chunks_exact(width).filter_map(number).collect()));
        }
        let value = number(contents)?;
        Some(if self.is_signed {
            FieldValue::Signed(extended(value, contents.len()))
        } else {
            FieldValue::Unsigned(value)
        })
    }

    /// The bytes of its contents, whether they are text, and how long each number in them is.
    pub(super) fn contents<'r>(&self, raw: &'r [u8]) -> Option<(&'r [u8], bool, u8)> {
        let own = raw.get(self.offset..self.offset.checked_add(self.bytes)?)?;
        let (from, is_text, bytes) = match self.storage {
            Storage::Numbers { bytes } => return Some((own, false, bytes)),
            Storage::Text => return Some((own, true, 1)),
            Storage::Elsewhere { from, is_text, bytes } => (from, is_text, bytes),
        };
        let word = u32::from_ne_bytes(own.get(..4)?.try_into().ok()?);
        let (at, length) = (from + (word & 0xffff) as usize, (word >> 16) as usize);
        Some((raw.get(at..at + length)?, is_text, bytes))
    }
}

/// A number of 1, 2, 4 or 8 bytes.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    Some(match bytes.len() {
        1 => bytes[0].into(),
        2 => u16::from_ne_bytes(bytes.try_into().ok()?).into(),
        4 => u32::from_ne_bytes(bytes.try_into().ok()?).into(),
        8 => u64::from_ne_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

/// How many bits of 64 a number of so many bytes does not have.
fn spare_bits(bytes: usize) -> usize {
    if matches!(bytes, 1 | 2 | 4) { 64 - 8 * bytes } else { 0 }
}

/// The lowest bytes of a number.
pub(super) fn cut(number: i64, bytes: u8) -> u64 {
    number.cast_unsigned() & (u64::MAX >> spare_bits(bytes.into()))
}

/// A number with a sign of so many bytes.
pub(super) fn extended(value: u64, bytes: usize) -> i64 {
    (value << spare_bits(bytes)).cast_signed() >> spare_bits(bytes)
}

#[cfg(test)]
mod tests;
