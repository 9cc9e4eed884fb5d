//! What stands in a file of the cache.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `pmuxsyms` |
//! | 4 | the version |
//! | 8 | a checksum of what follows |
//! | … | witnesses: count; each a path, whether it was there, size, time |
//! | … | texts: count; each once |
//! | … | functions: count; each address, beginning, text |
//! | … | lines: count; each address, how many frames, of each function, file and line |
//!
//! Numbers are little-endian, of 4 or 8 bytes; a text is its length and its bytes; 0 in the place of a text's number is none, and the
//! others count from 1.
//!
//! **Invariant:** [`decode`] takes nothing that [`encode`] has not written, and no more memory than a few times what it is given.

use super::{FileAnswers, NamedFunction, Witness};
use crate::bytes::Fields;
use crate::symbol::place::ResolvedFrame;
use hashbrown::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"pmuxsyms";
/// Changes with the format, and with what names look like.
const VERSION: u32 = 2;

/// A checksum against accidents: FNV-1a over words of 8 bytes.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| step(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(step(sum, bytes.len() as u64), |sum, &byte| step(sum, byte.into()))
}

#[derive(Default)]
struct Texts<'a> {
    list: Vec<&'a str>,
    known: HashMap<&'a str, u32>,
}

impl<'a> Texts<'a> {
    fn number(&mut self, text: Option<&'a str>) -> u32 {
        let Some(text) = text else { return 0 };
        let list = &mut self.list;
        *self.known.entry(text).or_insert_with(|| {
            list.push(text);
            list.len() as u32
        })
    }
}

fn put32(out: &mut Vec<u8>, number: u32) {
    out.extend(number.to_ne_bytes());
}

fn put64(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_ne_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put32(out, text.len() as u32);
    out.extend(text);
}

pub(super) fn encode(kept: &FileAnswers) -> Vec<u8> {
    let mut texts = Texts::default();
    let (mut functions, mut lines) = (Vec::new(), Vec::new());
    for (&address, function) in &kept.functions {
        put64(&mut functions, address);
        put64(&mut functions, function.as_ref().map_or(0, |function| function.start));
        put32(&mut functions, texts.number(function.as_ref().map(|function| &*function.name)));
    }
    for (&address, frames) in &kept.lines {
        put64(&mut lines, address);
        put32(&mut lines, frames.len() as u32);
        for frame in frames.iter() {
            put32(&mut lines, texts.number(frame.function.as_deref()));
            put32(&mut lines, texts.number(frame.file.as_deref()));
            put32(&mut lines, frame.line.unwrap_or(0));
        }
    }
    let mut body = Vec::new();
    put32(&mut body, kept.witnesses.len() as u32);
    for Witness { path, state } in &kept.witnesses {
        put_text(&mut body, path.as_os_str().as_bytes());
        put32(&mut body, state.is_some().into());
        let (size, time) = state.unwrap_or_default();
        put64(&mut body, size);
        put64(&mut body, time.cast_unsigned());
    }
    put32(&mut body, texts.list.len() as u32);
    texts.list.iter().for_each(|text| put_text(&mut body, text.as_bytes()));
    put32(&mut body, kept.functions.len() as u32);
    body.append(&mut functions);
    put32(&mut body, kept.lines.len() as u32);
    body.append(&mut lines);
    let mut out = Vec::with_capacity(body.len() + 20);
    out.extend(MAGIC);
    put32(&mut out, VERSION);
    put64(&mut out, checksum(&body));
    out.append(&mut body);
    out
}

/// A text, as [`put_text`] has written it.
fn text_of<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let length = fields.u32()? as usize;
    fields.take(length)
}

/// How many of at least so many bytes each follow.
fn count_of(fields: &mut Fields<'_>, least: usize) -> Option<usize> {
    let count = fields.u32()? as usize;
    (count <= fields.0.len() / least).then_some(count)
}

/// What is kept, from its bytes. `None` where they are not what [`encode`] has written.
pub(super) fn decode(bytes: &[u8]) -> Option<FileAnswers> {
    let mut reader = Fields(bytes);
    if reader.take(8)? != MAGIC || reader.u32()? != VERSION || reader.u64()? != checksum(reader.0) {
        return None;
    }
    let mut kept = FileAnswers::default();
    for _ in 0..count_of(&mut reader, 24)? {
        let path = OsStr::from_bytes(text_of(&mut reader)?).into();
        let (is_there, size, time) = (reader.u32()? != 0, reader.u64()?, reader.u64()?);
        kept.witnesses.push(Witness { path, state: is_there.then_some((size, time.cast_signed())) });
    }
    let count = count_of(&mut reader, 4)?;
    let mut texts: Vec<Arc<str>> = Vec::with_capacity(count);
    for _ in 0..count {
        texts.push(std::str::from_utf8(text_of(&mut reader)?).ok()?.into());
    }
    let text = |number: u32| match number.checked_sub(1) {
        Some(at) => texts.get(at as usize).map(|text| Some(Arc::clone(text))),
        None => Some(None),
    };
    let count = count_of(&mut reader, 20)?;
    kept.functions.reserve(count);
    for _ in 0..count {
        let (address, start, name) = (reader.u64()?, reader.u64()?, text(reader.u32()?)?);
        kept.functions.insert(address, name.map(|name| NamedFunction { start, name }));
    }
    let count = count_of(&mut reader, 12)?;
    kept.lines.reserve(count);
    let mut frames = Vec::new();
    for _ in 0..count {
        let address = reader.u64()?;
        for _ in 0..count_of(&mut reader, 12)? {
            let (function, file, line) = (text(reader.u32()?)?, text(reader.u32()?)?, reader.u32()?);
            frames.push(ResolvedFrame { function, offset: None, file, line: (line > 0).then_some(line) });
        }
        kept.lines.insert(address, frames.drain(..).collect());
    }
    reader.0.is_empty().then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_bearable(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = MAGIC.to_vec();
            put32(&mut bytes, VERSION);
            put64(&mut bytes, checksum(&body));
            bytes.extend(&body);
            let _ = decode(&bytes);
        }
    }
}
