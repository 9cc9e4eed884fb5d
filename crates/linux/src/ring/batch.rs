//! Taking records out of a ring as they lie there.
//!
//! What it is: who only passes records on needs no copy of them. [`Ring::batch`] walks over the headers of what waits, and
//! [`Batch`] goes to a file from the ring itself. Read first: [`Ring::batch`].
//!
//! **Invariant:** a batch is whole records, as far as their sizes say; the memory is read word by word, and what a record says
//! beside its size is for the reader of the file. The space is given back to the kernel when the batch is done with, not before.

use super::{Corruption, Ring, RingError};
use crate::sys::{Errno, PerfMap};
use std::os::fd::BorrowedFd;

const HEADER_BYTES: u64 = 8;

/// A record in a ring.
pub struct Peek<'r> {
    map: &'r PerfMap,
    position: u64,
    header: [u8; 8],
}

impl Peek<'_> {
    /// The kind that stands in its header.
    #[must_use]
    pub fn kind(&self) -> u32 {
        let [a, b, c, d, ..] = self.header;
        u32::from_ne_bytes([a, b, c, d])
    }

    /// The bytes of the record, its header included.
    #[must_use]
    pub fn size(&self) -> u16 {
        let [.., a, b] = self.header;
        u16::from_ne_bytes([a, b])
    }

    /// The word at this offset of the record; what lies behind its end means nothing.
    #[must_use]
    pub fn word(&self, offset: u16) -> u64 {
        self.map.data_word(self.position.wrapping_add(u64::from(offset)))
    }

    /// Copies the record.
    pub fn copy_to(&self, into: &mut Vec<u8>) {
        into.clear();
        into.resize(usize::from(self.size()), 0);
        self.map.copy(self.position, into);
    }
}

/// Whole records that wait in a ring. Dropped, it gives their space back to the kernel.
pub struct Batch<'r> {
    ring: &'r mut Ring,
    bytes: u64,
    written: u64,
}

impl Ring {
    /// The whole records that are there now, `note` called for each, oldest first.
    ///
    /// Errors: [`RingError`] where the memory contradicts itself: the records before that place have been noted, but all of them
    /// are dropped, and the ring goes on with what is written next.
    pub fn batch(&mut self, note: impl FnMut(&Peek<'_>)) -> Result<Batch<'_>, RingError> {
        self.batch_of(u64::MAX, note)
    }

    /// As [`Ring::batch`], but no further record once there are so many bytes; the others stay in the ring.
    ///
    /// Errors: those of [`Ring::batch`].
    pub fn batch_of(&mut self, enough_bytes: u64, mut note: impl FnMut(&Peek<'_>)) -> Result<Batch<'_>, RingError> {
        let (from, head) = self.reader.waiting()?;
        let map = self.reader.source();
        let waiting = head.wrapping_sub(from);
        let mut bytes = 0;
        while bytes < waiting && bytes < enough_bytes {
            let position = from.wrapping_add(bytes);
            let peek = Peek { map, position, header: map.data_word(position).to_ne_bytes() };
            let size = peek.size();
            let long = u64::from(size);
            if long < HEADER_BYTES || !long.is_multiple_of(8) || long > waiting - bytes {
                return Err(self.reader.skip_to(head, Corruption::RecordSize { size }));
            }
            note(&peek);
            bytes += long;
        }
        Ok(Batch { ring: self, bytes, written: 0 })
    }
}

impl Batch<'_> {
    /// How many bytes of it are not written yet.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        self.bytes - self.written
    }

    /// How many bytes of the whole records there are among those that are written, and this many less.
    #[must_use]
    pub fn written_whole_bytes(&self, less: u64) -> u64 {
        let (reader, limit) = (&self.ring.reader, self.written.saturating_sub(less));
        let mut whole = 0;
        while whole < limit {
            let position = reader.position().wrapping_add(whole);
            let [.., a, b] = reader.source().data_word(position).to_ne_bytes();
            let next = whole + u64::from(u16::from_ne_bytes([a, b]));
            if next > limit || next == whole {
                break;
            }
            whole = next;
        }
        whole
    }

    /// Writes what is left to a file, from the ring itself, in as many calls as it takes.
    ///
    /// Errors: those of `writev(2)`; [`Batch::left_bytes`] says how far it came. A file that takes nothing is `EIO`.
    pub fn write_to(&mut self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        while self.left_bytes() > 0 {
            let position = self.ring.reader.position().wrapping_add(self.written);
            // No longer than the data area: that fits.
            let bytes = self.left_bytes() as usize;
            match self.ring.reader.source().write_out(position, bytes, file)? {
                0 => return Err(Errno::EIO),
                written => self.written += written as u64,
            }
        }
        Ok(())
    }

    /// Appends what is left to a buffer, but no more than so many bytes.
    pub fn copy_to(&mut self, into: &mut Vec<u8>, most_bytes: usize) {
        // No longer than the data area: that fits.
        let bytes = (self.left_bytes() as usize).min(most_bytes) & !7;
        let start = into.len();
        into.resize(start + bytes, 0);
        let position = self.ring.reader.position().wrapping_add(self.written);
        self.ring.reader.source().copy(position, &mut into[start..]);
        self.written += bytes as u64;
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.ring.reader.give_back(self.bytes);
    }
}
