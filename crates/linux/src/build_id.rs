//! The build id of a file: the note that its linker left.
//!
//! What it is: [`of_file`] reads no more of an ELF file than its headers and notes; [`of_notes`] looks through notes.
//!
//! **Invariant:** no number in the file is believed before it has been held against what was read.
//!
//! Source: `elf(5)`.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The kind of a note with a build id, whose name is `GNU`.
const BUILD_ID: u32 = 3;
/// The kind of a segment that holds notes.
const PT_NOTE: u32 = 4;
/// The most headers and bytes of notes that are looked at.
const MOST_HEADERS: usize = 128;
const MOST_NOTES: usize = 64 << 10;

/// The build id of an ELF file of this machine's byte order; `None` where it is none, has none, or can't be read.
#[must_use]
pub fn of_file(file: &File) -> Option<Vec<u8>> {
    let mut header = [0; 64];
    let read = file.read_at(&mut header, 0).ok()?;
    let header = header.get(..read)?;
    let order = if cfg!(target_endian = "big") { 2 } else { 1 };
    if header.get(..4)? != b"\x7fELF" || *header.get(5)? != order {
        return None;
    }
    let wide = *header.get(4)? == 2;
    // Where the program headers are, how long each is and how many there are.
    let (at, long, count) = if wide {
        (u64_at(header, 32)?, u16_at(header, 54)?, u16_at(header, 56)?)
    } else {
        (u32_at(header, 28)?.into(), u16_at(header, 42)?, u16_at(header, 44)?)
    };
    let (long, count) = (usize::from(long), usize::from(count).min(MOST_HEADERS));
    let mut table = vec![0; long.checked_mul(count)?];
    let read = file.read_at(&mut table, at).ok()?;
    table.truncate(read);
    table.chunks_exact(long.max(1)).filter(|entry| u32_at(entry, 0) == Some(PT_NOTE)).find_map(|entry| {
        let (at, bytes) = if wide {
            (u64_at(entry, 8)?, u64_at(entry, 32)?)
        } else {
            (u32_at(entry, 4)?.into(), u32_at(entry, 16)?.into())
        };
        let mut notes = vec![0; usize::try_from(bytes).ok()?.min(MOST_NOTES)];
        let read = file.read_at(&mut notes, at).ok()?;
        of_notes(notes.get(..read)?)
    })
}

/// The build id among ELF notes; `None` where there is none.
#[must_use]
pub fn of_notes(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let (header, rest) = notes.split_at_checked(12)?;
        let (name_bytes, bytes) = (u32_at(header, 0)? as usize, u32_at(header, 4)? as usize);
        let (name, rest) = rest.split_at_checked(name_bytes.checked_next_multiple_of(4)?)?;
        // The last one need not be padded.
        let found = rest.get(..bytes)?;
        if u32_at(header, 8)? == BUILD_ID && name.starts_with(b"GNU\0") {
            return Some(found.to_vec());
        }
        notes = rest.get(bytes.checked_next_multiple_of(4)?..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_end_early_hold_none() {
        let notes = b"\x04\0\0\0\x01\0\0\0\x06\0\0\0GNU\0x\0\0\0\x04\0\0\0\x03\0\0\0\x03\0\0\0GNU\0\xaa\xbb\xcc";
        assert_eq!(of_notes(notes).unwrap(), [0xaa, 0xbb, 0xcc]);
        for length in 0..notes.len() {
            assert_eq!(of_notes(&notes[..length]), None, "{length}");
        }
        assert_eq!(of_notes(b"\xff\xff\xff\xff\x03\0\0\0\x03\0\0\0GNU\0"), None);
    }

    #[test]
    fn what_is_no_elf_file_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for text in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &[0xff; 200]] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(of_file(&File::open(&path).unwrap()), None);
        }
        // Headers that lie beyond the end, and as many as there can be.
        let mut hostile = vec![0xff; 64];
        hostile[..6].copy_from_slice(b"\x7fELF\x02\x01");
        std::fs::write(&path, &hostile).unwrap();
        assert_eq!(of_file(&File::open(&path).unwrap()), None);
    }
}
