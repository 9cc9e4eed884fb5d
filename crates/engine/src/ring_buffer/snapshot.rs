//! Readers that stop no writer and no other reader: they look at a ring while it is written.
//!
//! What it is: [`SnapshotReader`], with a position of its own. It copies a step, loads the tail again, and drops what may have
//! been overwritten meanwhile. Read first: [`SnapshotReader::read`]. Letters name the orderings of the head of [`super`].
//!
//! **Invariant:** it writes nothing into the memory, so there may be any number of them, and the writer knows none of them.

use super::pages::{RingView, Word, get, shown};
use super::records::{Corruption, RingError, STEP_BYTES, Stop, measure};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

/// What a reader is given, in the order of positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// Whole records.
    Records {
        /// Where the first one begins, in bytes since the ring was made.
        position: u64,
        /// The records, one behind the other; [`pmux_abi::record::Records`] walks over them.
        bytes: &'a [u8],
    },
    /// Records that were overwritten before they could be copied.
    Missed {
        /// Where the first one began.
        position: u64,
        /// How many bytes they had.
        bytes: u64,
    },
}

/// What one reading brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// How many records were handed over.
    pub records: u64,
    /// How many bytes they had.
    pub bytes: u64,
    /// How many bytes had been overwritten before.
    pub missed_bytes: u64,
}

/// A reader with a position of its own.
#[derive(Debug)]
pub struct SnapshotReader<P> {
    pages: P,
    position: u64,
    /// How many records there were before it, without those that it missed; where that is known.
    seen: Option<u64>,
    missed: u64,
    step: Vec<u8>,
}

impl<P: RingView> SnapshotReader<P> {
    /// A reader that begins with the oldest record of the ring.
    pub fn from_oldest(pages: P) -> Self {
        let mut reader = Self { pages, position: 0, seen: None, missed: 0, step: Vec::new() };
        reader.rewind();
        reader
    }

    /// A reader that begins with the next record that is written.
    pub fn from_now(pages: P) -> Self {
        let mut reader = Self { pages, position: 0, seen: None, missed: 0, step: Vec::new() };
        let (head, records) = reader.head_and_records();
        (reader.position, reader.seen) = (head & !7, records);
        reader
    }

    /// Goes back to the oldest record of the ring: what is read next is a whole snapshot.
    pub fn rewind(&mut self) {
        let tail = self.pages.look(shown::TAIL) & !7;
        if tail != self.position || self.seen.is_none() {
            // Before the first record was overwritten, there are none before it.
            (self.position, self.seen, self.missed) = (tail, (tail == 0).then_some(0), 0);
        }
    }

    /// Where it is, in bytes since the ring was made.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// How many records were overwritten before it could read them: since it was made, rewound, or met an error. `None` where it
    /// doesn't know at which record it began. The number holds all of them when it has read everything while no record was being
    /// written; before, it may be too small.
    pub fn missed_records(&self) -> Option<u64> {
        self.seen.map(|_| self.missed)
    }

    /// How many records its writer has lost, as it says, and how many bytes they had.
    pub fn lost(&self) -> (u64, u64) {
        (self.pages.look(shown::LOST_RECORDS), self.pages.look(shown::LOST_BYTES))
    }

    /// Hands over everything from its position up to what is complete now, the oldest first. Call after call nothing comes
    /// twice, and what is missing is told.
    ///
    /// # Errors
    /// [`RingError`] where the memory contradicts itself. The records before that place have been handed over, everything after
    /// it is dropped, and it goes on with what is written next.
    pub fn read(&mut self, sink: &mut dyn FnMut(Piece<'_>)) -> Result<Progress, RingError> {
        let mut progress = Progress::default();
        let (head, records) = self.head_and_records();
        if head < self.position || !head.is_multiple_of(8) {
            return Err(self.skip_to(head, Corruption::Head { head }));
        }
        // Loaded behind the head (D), so that it is no more than a ring before it.
        self.leave_out(head, &mut progress, sink)?;
        if head.saturating_sub(self.position) > self.size_bytes() {
            return Err(self.skip_to(head, Corruption::Tail { tail: self.position }));
        }
        while self.position < head {
            let begin = self.position;
            // At most 64 KiB: no cut on any machine.
            let mut step = core::mem::take(&mut self.step);
            step.resize((head - begin).min(STEP_BYTES) as usize, 0);
            get(&self.pages, begin, &mut step);
            P::Word::fence(Ordering::Acquire); // B
            let result = self.take_step(begin, head, &step, &mut progress, sink);
            self.step = step;
            result?;
        }
        self.count(head, records, progress.records);
        Ok(progress)
    }

    /// Hands over what is good of a copy that was made from `begin`.
    fn take_step(
        &mut self,
        begin: u64,
        head: u64,
        step: &[u8],
        progress: &mut Progress,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), RingError> {
        self.leave_out(head, progress, sink)?;
        let gone = usize::try_from(self.position - begin).unwrap_or(usize::MAX);
        // Nothing is left where the writer is far ahead.
        let Some(left) = step.get(gone..).filter(|left| !left.is_empty()) else { return Ok(()) };
        let (whole, records, stop) = measure(left);
        if let Some(bytes) = left.get(..whole).filter(|bytes| !bytes.is_empty()) {
            sink(Piece::Records { position: self.position, bytes });
        }
        self.position += whole as u64;
        progress.bytes += whole as u64;
        progress.records += records;
        match stop {
            // Cut off by the step, not by the head: it comes whole with the next one.
            Stop::Partial { size } if u64::from(size) <= head - self.position => Ok(()),
            Stop::End => Ok(()),
            Stop::Partial { size } | Stop::Impossible { size } => {
                Err(self.skip_to(head, Corruption::RecordSize { size }))
            }
        }
    }

    /// Goes on to the tail, where that is further.
    fn leave_out(
        &mut self,
        head: u64,
        progress: &mut Progress,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), RingError> {
        let tail = self.pages.look(shown::TAIL);
        if tail <= self.position {
            return Ok(());
        }
        // The writer may have gone on, but no tail is before its head (F).
        if !tail.is_multiple_of(8) || tail > head && tail > self.pages.look(shown::HEAD) {
            return Err(self.skip_to(head, Corruption::Tail { tail }));
        }
        let (position, bytes) = (self.position, tail - self.position);
        self.position = tail;
        progress.missed_bytes += bytes;
        sink(Piece::Missed { position, bytes });
        Ok(())
    }

    /// Where it has read everything, it knows what it has missed.
    fn count(&mut self, head: u64, records: Option<u64>, now: u64) {
        self.seen = self.seen.and_then(|seen| seen.checked_add(now));
        let (true, Some(records)) = (self.position == head, records) else { return };
        match self.seen.and_then(|seen| records.checked_sub(seen)) {
            Some(missed) => self.missed = missed,
            None => (self.seen, self.missed) = (Some(records), 0),
        }
    }

    fn skip_to(&mut self, head: u64, what: Corruption) -> RingError {
        let position = self.position;
        (self.position, self.seen, self.missed) = (head & !7, None, 0);
        let skipped_bytes = head.saturating_sub(position).min(self.size_bytes());
        RingError::Corrupt { what, position, skipped_bytes }
    }

    /// The head; and how many records are before it, unless a writer is just showing another one.
    fn head_and_records(&self) -> (u64, Option<u64>) {
        let mut tries = 0;
        loop {
            let behind = self.pages.look(shown::RECORDS_BEHIND); // E
            let head = self.pages.look(shown::HEAD); // D, E
            let before = self.pages.look(shown::RECORDS_BEFORE);
            tries += 1;
            if before == behind || tries >= P::Word::TRIES {
                return (head, (before == behind).then_some(before));
            }
            core::hint::spin_loop();
        }
    }

    fn size_bytes(&self) -> u64 {
        self.pages.data_words() as u64 * 8
    }
}
