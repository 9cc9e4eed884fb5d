//! The exclusive reader: it takes records out, the oldest first.
//!
//! What it is: [`Reader`], over whatever memory has a head, a tail and records ([`RingSource`]): a ring of this engine
//! ([`Taking`]), or one that a kernel writes. Read first: [`Reader::drain`].
//!
//! **Invariant:** only private copies are looked at. The reader's own position is never read back from shared memory.

use super::pages::{RingEnd, Word, get, shown};
use super::records::{Corruption, RingError, STEP_BYTES, Stop, deliver, measure};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

/// The memory of a ring, whoever writes it.
pub trait RingSource {
    /// Bytes of the data area: a power of two, at least 8.
    fn bytes(&self) -> u64;
    /// The writer's position; what it wrote before is visible afterwards.
    fn head(&self) -> u64;
    /// The reader's position as it stands in the memory.
    fn tail(&self) -> u64;
    /// Gives the space before `tail` back, after all reads before this call.
    fn publish_tail(&self, tail: u64);
    /// Copies whole words from `position`, wrapping.
    fn copy(&self, position: u64, into: &mut [u8]);
}

/// The reader's end of a [`super::Writer`]'s memory.
#[derive(Debug)]
pub struct Taking<P>(pub P);

impl<P: RingEnd> RingSource for Taking<P> {
    fn bytes(&self) -> u64 {
        self.0.data_words() as u64 * 8
    }

    fn head(&self) -> u64 {
        self.0.look(shown::HEAD) // D
    }

    fn tail(&self) -> u64 {
        self.0.taken().load(Ordering::Relaxed)
    }

    fn publish_tail(&self, tail: u64) {
        self.0.taken().store(tail, Ordering::Release); // H
    }

    fn copy(&self, position: u64, into: &mut [u8]) {
        get(&self.0, position, into);
    }
}

/// A reader and its position.
///
/// Bytes are copied out and given back to the writer before the records are looked at, so a slow consumer holds no space, and
/// nobody can change a record while it is read.
#[derive(Debug)]
pub struct Reader<S> {
    source: S,
    tail: u64,
    // Grows to what is met, so that many quiet rings cost nothing.
    step: Vec<u8>,
}

impl<S: RingSource> Reader<S> {
    /// A reader that goes on where the memory says that one has been.
    pub fn new(source: S) -> Self {
        let tail = source.tail() & !7;
        Self { source, tail, step: Vec::new() }
    }

    /// Bytes of the data area.
    pub fn capacity_bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// Bytes that wait to be read. 0 where the memory contradicts itself: [`Reader::drain`] tells.
    pub fn waiting_bytes(&self) -> u64 {
        let waiting = self.source.head().wrapping_sub(self.tail);
        if waiting > self.source.bytes() { 0 } else { waiting }
    }

    /// Hands every record that is complete now to `sink`, oldest first; answers how many there were.
    ///
    /// A record is passed whole, with its header, once. What is written meanwhile comes with the next call, so the call ends.
    ///
    /// # Errors
    /// [`RingError`] where the memory contradicts itself. The records before that place have been handed over, everything after
    /// it is dropped, and the ring goes on with what is written next.
    pub fn drain(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<u64, RingError> {
        let (tail, head) = self.waiting()?;
        let mut left = head.wrapping_sub(tail);
        let mut total = 0;
        while left > 0 {
            let step_bytes = left.min(STEP_BYTES);
            // At most 64 KiB: no cut on any machine.
            self.step.resize(step_bytes as usize, 0);
            self.source.copy(self.tail, &mut self.step);
            let (whole, records, stop) = measure(&self.step);
            // Given back before the sink runs: it may be slow, and it looks at the copy only.
            self.give_back(whole as u64);
            left -= whole as u64;
            total += records;
            deliver(&self.step[..whole], sink);
            match stop {
                // Cut off by the step, not by the head: it comes whole with the next one.
                Stop::Partial { size } if whole > 0 && u64::from(size) <= left => {}
                Stop::End => {}
                Stop::Partial { size } | Stop::Impossible { size } => {
                    return Err(self.skip_to(head, Corruption::RecordSize { size }));
                }
            }
        }
        Ok(total)
    }

    /// The memory, for whoever takes records out in a way of his own.
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// The reader's own position: where the next record begins.
    pub const fn position(&self) -> u64 {
        self.tail
    }

    /// The positions between which records wait: on whole words, and no further from each other than the data area is long.
    ///
    /// # Errors
    /// [`RingError`] where the memory contradicts itself; the ring goes on with what is written next.
    pub fn waiting(&mut self) -> Result<(u64, u64), RingError> {
        let head = self.source.head();
        if head.wrapping_sub(self.tail) > self.source.bytes() || !head.is_multiple_of(8) {
            return Err(self.skip_to(head, Corruption::Head { head }));
        }
        Ok((self.tail, head))
    }

    /// Gives the space of the next `bytes` back to the writer: whole records, of those that wait.
    pub fn give_back(&mut self, bytes: u64) {
        self.tail = self.tail.wrapping_add(bytes);
        self.source.publish_tail(self.tail);
    }

    /// Goes on at `head`, and says what was wrong with that which lies before it.
    pub fn skip_to(&mut self, head: u64, what: Corruption) -> RingError {
        let position = self.tail;
        let skipped_bytes = head.wrapping_sub(position).min(self.source.bytes());
        self.tail = head & !7;
        self.source.publish_tail(self.tail);
        RingError::Corrupt { what, position, skipped_bytes }
    }
}
