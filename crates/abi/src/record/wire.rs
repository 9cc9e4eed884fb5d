//! Small steps that several records share.
//!
//! **Invariant:** knows no record.

use crate::array::{Array, Element};
use crate::bytes::{Reader, Writer};

pub(super) fn read_array<'a, T: Element>(r: &mut Reader<'a>, count: u64) -> Option<Array<'a, T>> {
    r.take_u64(count.checked_mul(T::SIZE as u64)?).map(Array::from_bytes)
}

/// Reads a number and so many elements.
pub(super) fn read_counted<'a, T: Element>(r: &mut Reader<'a>) -> Option<Array<'a, T>> {
    let count = r.u64()?;
    read_array(r, count)
}

/// Writes elements behind their number.
pub(super) fn write_counted<T: Element>(w: &mut Writer<'_>, array: Array<'_, T>) {
    w.u64(array.len() as u64);
    write_array(w, array);
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
pub(super) fn read_string<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    r.take(r.rest().iter().position(|&byte| byte == 0)?)
}

/// Writes a string, its zero byte, and zeros up to a multiple of 8; `None` where it has a zero byte inside.
pub(super) fn write_string(w: &mut Writer<'_>, string: &[u8]) -> Option<()> {
    w.put(string);
    w.put(&[0]);
    w.pad8();
    (!string.contains(&0)).then_some(())
}
