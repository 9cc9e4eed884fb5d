//! Cutting the bytes of a ring into records.
//!
//! **Invariant:** only private copies are looked at. The reader's own position is never read back from shared memory.

use super::{Corruption, RingError};

/// Bytes of a record's header; its last two are the size of the record.
const HEADER_BYTES: usize = 8;
/// Most bytes copied at once. A size is 16 bits, so every record fits.
const STEP_BYTES: u64 = 1 << 16;

/// The memory of a ring, whoever writes it.
pub(super) trait Memory {
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

/// A reader and its position.
#[derive(Debug)]
pub(super) struct Reader<M> {
    memory: M,
    tail: u64,
    // Grows to what is met, so that many quiet rings cost nothing.
    step: Vec<u8>,
}

impl<M: Memory> Reader<M> {
    pub(super) fn new(memory: M) -> Self {
        let tail = memory.tail() & !7;
        Self { memory, tail, step: Vec::new() }
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    pub(super) fn waiting_bytes(&self) -> u64 {
        let waiting = self.memory.head().wrapping_sub(self.tail);
        if waiting > self.memory.bytes() { 0 } else { waiting }
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    /// The reader's own position.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// The positions between which something waits: at most the data area, on whole words.
    pub(super) fn waiting(&mut self) -> Result<(u64, u64), RingError> {
        let head = self.memory.head();
        let left = head.wrapping_sub(self.tail);
        if left > self.memory.bytes() || !head.is_multiple_of(8) {
            return Err(self.skip_to(head, left, Corruption::Head { head }));
        }
        Ok((self.tail, head))
    }

    /// Gives the space of the next bytes back.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.tail = self.tail.wrapping_add(bytes);
        self.memory.publish_tail(self.tail);
    }

    pub(super) fn drain(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<u64, RingError> {
        let (tail, head) = self.waiting()?;
        let mut left = head.wrapping_sub(tail);
        let mut records = 0;
        while left > 0 {
            let step_bytes = left.min(STEP_BYTES);
            // At most 64 KiB: no cut on any machine.
            self.step.resize(step_bytes as usize, 0);
            self.memory.copy(self.tail, &mut self.step);
            let (whole, stop) = measure(&self.step);
            // Given back before the sink runs: it may be slow, and it looks at the copy only.
            self.tail = self.tail.wrapping_add(whole as u64);
            self.memory.publish_tail(self.tail);
            left -= whole as u64;
            records += deliver(&self.step[..whole], sink);
            match stop {
                // Cut off by the step, not by the head: it comes whole with the next one.
                Stop::Partial { size } if whole > 0 && u64::from(size) <= left => {}
                Stop::End => {}
                Stop::Partial { size } | Stop::Impossible { size } => {
                    return Err(self.skip_to(head, left, Corruption::RecordSize { size }));
                }
            }
        }
        Ok(records)
    }

    pub(super) fn skip_to(&mut self, head: u64, left: u64, what: Corruption) -> RingError {
        let position = self.tail;
        self.tail = head & !7;
        self.memory.publish_tail(self.tail);
        RingError::Corrupt { what, position, skipped_bytes: left.min(self.memory.bytes()) }
    }
}

/// Why measuring ended.
enum Stop {
    /// With the last byte.
    End,
    /// A record of this size goes beyond the bytes.
    Partial { size: u16 },
    /// No record has this size.
    Impossible { size: u16 },
}

/// How many of the bytes, whole words, are whole records.
fn measure(bytes: &[u8]) -> (usize, Stop) {
    let mut whole = 0;
    loop {
        let Some(size) = size_at(&bytes[whole..]) else { return (whole, Stop::End) };
        let long = usize::from(size);
        if long < HEADER_BYTES || !long.is_multiple_of(8) {
            return (whole, Stop::Impossible { size });
        }
        if long > bytes.len() - whole {
            return (whole, Stop::Partial { size });
        }
        whole += long;
    }
}

/// Hands over records that were measured.
fn deliver(mut bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> u64 {
    let mut records = 0;
    while let Some(size) = size_at(bytes) {
        let Some((record, rest)) = bytes.split_at_checked(usize::from(size)) else { break };
        sink(record);
        records += 1;
        bytes = rest;
    }
    records
}

/// The size in the header at the start of these bytes; `None` where there is no header.
fn size_at(bytes: &[u8]) -> Option<u16> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    Some(u16::from_ne_bytes([header[6], header[7]]))
}
