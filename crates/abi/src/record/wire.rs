//! Small steps that several records share.
//!
//! **Invariant:** knows no record.

use super::RecordError;
use crate::array::{Array, Element};
use crate::bytes::{Reader, Writer};

/// Names the field that a reader had no bytes for.
pub(super) fn need<T>(found: Option<T>, field: &'static str) -> Result<T, RecordError> {
    found.ok_or(RecordError::Short { field })
}

/// Reads `count` elements.
pub(super) fn read_array<'a, T: Element>(
    r: &mut Reader<'a>,
    count: u64,
    field: &'static str,
) -> Result<Array<'a, T>, RecordError> {
    count
        .checked_mul(T::SIZE as u64)
        .and_then(|len| r.take_u64(len))
        .map(Array::from_bytes)
        .ok_or(RecordError::TooMany { field, claimed: count })
}

/// Writes elements without their number.
pub(super) fn write_array<T: Element>(w: &mut Writer<'_>, array: Array<'_, T>) {
    for item in array.iter() {
        if let Some(room) = w.room(T::SIZE) {
            item.to_wire(room);
        }
    }
}

/// Reads a string that a zero byte ends; what follows up to the end of the record is padding.
pub(super) fn read_string<'a>(r: &mut Reader<'a>, field: &'static str) -> Result<&'a [u8], RecordError> {
    let end = r.rest().iter().position(|&byte| byte == 0);
    end.and_then(|end| r.take(end)).ok_or(RecordError::Unterminated { field })
}

/// Writes a string, its zero byte, and zeros up to a multiple of 8.
pub(super) fn write_string(w: &mut Writer<'_>, string: &[u8], field: &'static str) -> Result<(), RecordError> {
    if string.contains(&0) {
        return Err(RecordError::EmbeddedNul { field });
    }
    w.put(string);
    w.put(&[0]);
    w.pad8();
    Ok(())
}

/// Checks that a value is there exactly if the layout has it.
pub(super) fn matching<T>(asked: bool, value: Option<T>, field: &'static str) -> Result<Option<T>, RecordError> {
    match (asked, &value) {
        (true, None) => Err(RecordError::Missing { field }),
        (false, Some(_)) => Err(RecordError::Unexpected { field }),
        (true, Some(_)) | (false, None) => Ok(value),
    }
}
