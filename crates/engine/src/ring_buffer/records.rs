//! Cutting bytes that were copied out of a ring into records.
//!
//! What it is: [`measure`], and what can be wrong. Read first: [`RingError`].
//!
//! **Invariant:** only private copies are looked at, so that no writer can change a record while it is read.

use core::fmt;

/// Bytes of a record's header; its last two are the size of the record.
const HEADER_BYTES: usize = 8;
/// Most bytes copied at once. A size is 16 bits, so every record fits.
pub(super) const STEP_BYTES: u64 = 1 << 16;

/// Why a ring couldn't be read on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingError {
    /// The memory contradicts itself; the reader has skipped to the writer's position.
    Corrupt {
        /// What contradicts.
        what: Corruption,
        /// Where, in bytes since the ring was made.
        position: u64,
        /// How many bytes were skipped, at most one ring full.
        skipped_bytes: u64,
    },
}

/// What is wrong in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Corruption {
    /// The writer's position went back, jumped by more than the ring holds, or isn't on a word.
    Head {
        /// The position that stands there.
        head: u64,
    },
    /// The oldest record is said to be behind the newest, more than a ring before it, or not on a word.
    Tail {
        /// The position that stands there.
        tail: u64,
    },
    /// A record states a size that none can have, or that is more than was written.
    RecordSize {
        /// The size that stands there, in bytes.
        size: u16,
    },
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Corrupt { what, position, skipped_bytes } = self;
        match what {
            Corruption::Head { head } => {
                write!(f, "the ring is corrupt: its head is {head} when {position} was read")?;
            }
            Corruption::Tail { tail } => {
                write!(f, "the ring is corrupt: its tail is {tail} when {position} was read")?;
            }
            Corruption::RecordSize { size } => {
                write!(f, "the ring is corrupt: a record at {position} states a size of {size} bytes")?;
            }
        }
        write!(f, "; {skipped_bytes} bytes skipped")
    }
}

impl core::error::Error for RingError {}

pub(super) enum Stop {
    /// With the last byte.
    End,
    /// A record of this size goes beyond the bytes.
    Partial { size: u16 },
    /// No record has this size.
    Impossible { size: u16 },
}

/// How many of the bytes, whole words, are whole records; and how many records.
pub(super) fn measure(bytes: &[u8]) -> (usize, u64, Stop) {
    let (mut whole, mut records) = (0, 0);
    loop {
        let Some(size) = bytes.get(whole..).and_then(size_at) else { return (whole, records, Stop::End) };
        let long = usize::from(size);
        if long < HEADER_BYTES || !long.is_multiple_of(8) {
            return (whole, records, Stop::Impossible { size });
        }
        if long > bytes.len() - whole {
            return (whole, records, Stop::Partial { size });
        }
        whole += long;
        records += 1;
    }
}

/// Hands over records that were measured.
pub(super) fn deliver(mut bytes: &[u8], sink: &mut dyn FnMut(&[u8])) {
    while let Some(size) = size_at(bytes) {
        let Some((record, rest)) = bytes.split_at_checked(usize::from(size)) else { break };
        sink(record);
        bytes = rest;
    }
}

/// The size in the header at the start of these bytes; `None` where there is no header.
fn size_at(bytes: &[u8]) -> Option<u16> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    Some(u16::from_ne_bytes([header[6], header[7]]))
}
