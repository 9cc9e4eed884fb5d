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

/// The memory of a ring, whatever writes it.
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

/// What a reader has taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drained {
    /// So many records.
    pub records: u64,
    /// So many bytes of what was wanted wait still.
    pub left_bytes: u64,
}

/// What becomes of the records that are passed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// Their space is given back.
    Take,
    /// They stay; those before this head, if it waits still, are left out.
    Look { from: u64 },
}

/// A reader and its position.
///
/// Bytes are copied out and given back to the writer before the records are looked at, so a slow consumer holds no space, and
/// no writer can change a record while it is read.
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

    /// The writer's position.
    pub fn head(&self) -> u64 {
        self.source.head()
    }

    /// Hands every record that is complete now to `sink`, oldest first; answers how many there were.
    ///
    /// A record is passed whole, with its header, once. What is written meanwhile comes with the next call, so the call ends.
    ///
    /// # Errors
    /// [`RingError`] where the memory contradicts itself. The records before that place have been handed over, everything after
    /// it is dropped, and the ring goes on with what is written next.
    pub fn drain(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<u64, RingError> {
        let (_, head) = self.waiting()?;
        self.drain_to(head, STEP_BYTES, sink, || true).map(|drained| drained.records)
    }

    /// As [`Reader::drain`], up to a head that was seen before ([`Reader::head`]), and in pieces: of at most `piece_bytes`, or one
    /// record where that is longer. After each piece `go_on` is asked; where it says no, what is left comes with the next call.
    ///
    /// # Errors
    /// As [`Reader::drain`].
    pub fn drain_to(
        &mut self,
        until: u64,
        piece_bytes: u64,
        sink: &mut dyn FnMut(&[u8]),
        go_on: impl FnMut() -> bool,
    ) -> Result<Drained, RingError> {
        self.walk(until, piece_bytes, Walk::Take, sink, go_on)
    }

    /// Hands every record between two heads that were seen before, as far as they wait, to `sink`, and leaves them where they are.
    ///
    /// # Errors
    /// As [`Reader::drain`].
    pub fn look_between(&mut self, from: u64, until: u64, sink: &mut dyn FnMut(&[u8])) -> Result<(), RingError> {
        self.walk(until, STEP_BYTES, Walk::Look { from }, sink, || true).map(|_| ())
    }

    fn walk(
        &mut self,
        until: u64,
        piece_bytes: u64,
        walk: Walk,
        sink: &mut dyn FnMut(&[u8]),
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Drained, RingError> {
        let (mut at, head) = self.waiting()?;
        if let Walk::Look { from } = walk
            && from.wrapping_sub(at) <= head.wrapping_sub(at)
        {
            at = from;
        }
        let wanted = until.wrapping_sub(at);
        // Another call may have passed it already.
        let mut left = if wanted > head.wrapping_sub(at) { 0 } else { wanted };
        let mut records = 0;
        // What the next record needs.
        let mut need_bytes = 0;
        while left > 0 {
            let step_bytes = left.min(piece_bytes.clamp(8, STEP_BYTES).next_multiple_of(8).max(need_bytes));
            // At most 64 KiB: no cut on any machine.
            self.step.resize(step_bytes as usize, 0);
            self.source.copy(at, &mut self.step);
            let (whole, measured, stop) = measure(&self.step);
            at = at.wrapping_add(whole as u64);
            if walk == Walk::Take {
                // Given back before the sink runs: it may be slow, and it looks at the copy only.
                self.give_back(whole as u64);
            }
            left -= whole as u64;
            records += measured;
            deliver(&self.step[..whole], sink);
            need_bytes = match stop {
                // Cut off by the step, not by the head: it comes whole with the next one.
                Stop::Partial { size } if u64::from(size) <= left => u64::from(size),
                Stop::End => 0,
                Stop::Partial { size } | Stop::Impossible { size } => {
                    return Err(self.skip_to(head, Corruption::RecordSize { size }));
                }
            };
            if whole > 0 && !go_on() {
                break;
            }
        }
        Ok(Drained { records, left_bytes: left })
    }

    /// The memory, for a caller that takes records out in a way of its own.
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
