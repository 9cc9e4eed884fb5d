//! Looking at a ring that the kernel overwrites.
//!
//! What it is: the kernel writes such a ring from its end to its start, over and over: the newest record is at the head, older ones follow
//! upward, and the oldest one is where the next one will be. [`BackwardRing::excerpt`] copies what is there while the kernel goes on,
//! looks at the head again, and drops what was overwritten meanwhile. Read first: [`BackwardRing::excerpt`].
//!
//! What is being written while we look is below the head that is shown, so it stands over the *oldest* bytes. How far below, nothing says:
//! a record is shown when it is done, and those of interrupts that came over it are shown with it. Who runs on the CPU to which the
//! ring belongs knows that all are done ([`Writers::Done`]): no task is taken off its CPU in the middle of a record. Going there takes as
//! long as that CPU has other things to do, so that is done for small rings only. Of a larger one a good part more than any interrupts
//! are known to write is given up instead ([`Writers::Unknown`]), if it has been around at all.
//!
//! **Invariant:** only private copies are looked at, and nothing that stands in them is believed. What is dropped is the oldest.
//!
//! Source: `perf_event_open(2)`, `write_backward`; kernel `kernel/events/ring_buffer.c`, 6.18.

use super::{Corruption, RingError};
use crate::sys::{Errno, PerfView};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{Ordering, fence};

const HEADER_BYTES: usize = 8;
/// So many bytes may be written and not shown, by a task and by those who interrupt it in the middle of a record.
const IN_THE_MIDDLE_BYTES: u64 = 1 << 20;
/// A ring up to this size is copied on its CPU.
const SMALL_BYTES: u64 = 1 << 20;

/// The memory of a ring that is written from its end to its start.
pub(super) trait BackwardSource {
    /// Bytes of the data area: a power of two.
    fn bytes(&self) -> u64;
    /// The position of the newest byte. It starts at 0 and goes down, from 0 to the largest number first.
    fn head(&self) -> u64;
    /// The same, after all copies that were made before.
    fn settled_head(&self) -> u64;
    /// Copies whole words from a position upward, wrapping.
    fn copy(&self, position: u64, into: &mut [u8]);
}

impl BackwardSource for PerfView {
    fn bytes(&self) -> u64 {
        self.0.data_bytes()
    }
    fn head(&self) -> u64 {
        self.0.head()
    }
    fn settled_head(&self) -> u64 {
        // The loads of the copy are done before the head is read again: what the copy saw of a younger record is then below that head,
        // or the record is still being written.
        fence(Ordering::SeqCst);
        self.0.head()
    }
    fn copy(&self, position: u64, into: &mut [u8]) {
        self.0.copy(position, into);
    }
}

/// Whether each writer that had begun a record before is done with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writers {
    /// Yes: the caller is on the ring's CPU, or that CPU is off.
    Done,
    /// Perhaps not.
    Unknown,
}

/// The mapped ring of one event that overwrites, or of all events that are led into it.
#[derive(Debug)]
pub struct BackwardRing(PerfView);

impl BackwardRing {
    /// Maps the ring of an event, with `data_pages` pages of data: a power of two.
    ///
    /// Unmapped on drop; the event may be closed before that.
    ///
    /// Errors: those of [`super::Ring::map`].
    pub fn map(fd: BorrowedFd<'_>, data_pages: u32) -> Result<Self, Errno> {
        PerfView::new(fd, data_pages).map(Self)
    }

    /// Bytes of the data area.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// How many bytes were ever written.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.0.head().wrapping_neg()
    }

    /// The records that are there, but for the first `known` bytes that were ever written. The kernel goes on meanwhile.
    ///
    /// For a small ring `visit` is called first: it goes to the ring's CPU if it can, and answers what is known of writers there.
    ///
    /// # Errors
    /// [`RingError`] where the head can't be. A record that can't be ends the excerpt: [`Excerpt::corrupt`].
    pub fn excerpt(&self, known: u64, visit: impl FnOnce() -> Writers) -> Result<Excerpt, RingError> {
        let writers = if self.capacity_bytes() <= SMALL_BYTES { visit() } else { Writers::Unknown };
        Copied::begin(&self.0, known)?.settle(writers)
    }
}

/// A copy of which the oldest bytes may have been overwritten while it was made.
#[derive(Debug)]
pub(super) struct Copied<'r, S> {
    source: &'r S,
    written: u64,
    known: u64,
    copy: Vec<u8>,
}

fn wrong_head(head: u64, known: u64) -> RingError {
    RingError::Corrupt { what: Corruption::Head { head }, position: known.wrapping_neg(), skipped_bytes: 0 }
}

impl<'r, S: BackwardSource> Copied<'r, S> {
    /// Copies what is there, but for what is known.
    pub(super) fn begin(source: &'r S, known: u64) -> Result<Self, RingError> {
        let head = source.head();
        let written = head.wrapping_neg();
        if !head.is_multiple_of(8) || written < known {
            return Err(wrong_head(head, known));
        }
        let bytes = (written - known).min(source.bytes());
        // No longer than the data area: that fits.
        let mut copy = vec![0; bytes as usize];
        source.copy(head, &mut copy);
        Ok(Self { source, written, known, copy })
    }

    /// What of it are whole records.
    pub(super) fn settle(self, writers: Writers) -> Result<Excerpt, RingError> {
        let Self { source, written, known, copy } = self;
        let head = source.settled_head();
        if !head.is_multiple_of(8) || head.wrapping_neg() < written {
            return Err(wrong_head(head, written));
        }
        let capacity = source.bytes();
        let in_the_middle = match writers {
            Writers::Done => 0,
            // Of a small ring this is all that can be done.
            Writers::Unknown => IN_THE_MIDDLE_BYTES.min(capacity / 2),
        };
        // What was written since then, or is being written, stands over the oldest bytes.
        let since = head.wrapping_neg() - written;
        let safe = capacity.saturating_sub(since).saturating_sub(in_the_middle);
        let whole = usize::try_from(safe).map_or(copy.len(), |safe| safe.min(copy.len()));
        // The copy ends where a record begins, unless the ring has been around.
        let ends_whole = whole == copy.len() && written - known == copy.len() as u64;
        Ok(Excerpt::cut(copy, whole, ends_whole, Range { known, written }))
    }
}

/// Between which numbers of bytes, of those ever written, an excerpt is looked for.
#[derive(Clone, Copy, Debug)]
struct Range {
    known: u64,
    written: u64,
}

/// Whole records out of a ring, in one piece, up to the newest one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Excerpt {
    bytes: Vec<u8>,
    /// Where each record begins, the newest one first.
    starts: Vec<usize>,
    written: u64,
    missing: u64,
    corrupt: Option<Corruption>,
}

impl Excerpt {
    fn cut(mut bytes: Vec<u8>, whole: usize, ends_whole: bool, range: Range) -> Self {
        let (mut starts, mut at, mut corrupt) = (Vec::new(), 0, None);
        while let Some(&[.., low, high]) = bytes[at..whole].first_chunk::<HEADER_BYTES>() {
            let size = u16::from_ne_bytes([low, high]);
            let long = usize::from(size);
            let fits = long <= whole - at;
            if long < HEADER_BYTES || !long.is_multiple_of(8) || (!fits && ends_whole) {
                corrupt = Some(Corruption::RecordSize { size });
                break;
            }
            if !fits {
                break;
            }
            starts.push(at);
            at += long;
        }
        bytes.truncate(at);
        Self { missing: range.written - range.known - at as u64, written: range.written, bytes, starts, corrupt }
    }

    /// The records, the oldest first.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        let ends = self.starts.iter().skip(1).copied().chain(std::iter::once(self.bytes.len()));
        let ends: Vec<usize> = ends.collect();
        self.starts.iter().copied().zip(ends).rev().map(|(start, end)| self.bytes.get(start..end).unwrap_or_default())
    }

    /// The records, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &[u8]> {
        let end = |index: usize| self.starts.get(index + 1).copied().unwrap_or(self.bytes.len());
        self.starts.iter().enumerate().map(move |(index, &start)| self.bytes.get(start..end(index)).unwrap_or_default())
    }

    /// Bytes of the records.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// How many bytes had ever been written when the excerpt was made: the next one begins there.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.written
    }

    /// How many bytes, after those that were known, are not there any more.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        self.missing
    }

    /// What was wrong with the record before the oldest one.
    #[must_use]
    pub fn corrupt(&self) -> Option<Corruption> {
        self.corrupt
    }
}
