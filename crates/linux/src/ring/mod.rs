//! Reading a kernel ring, oldest record first; and memory for rings of the engine.
//!
//! What it is: [`Ring`], the mapped ring of one event, drained record by record; [`BackwardRing`], one that the kernel overwrites,
//! looked at; [`RingMemory`], of which the engine makes rings that
//! other processes read. Read first: [`Ring::drain`]; how the
//! bytes are cut into records is in [`Reader`], which reads the engine's rings as well.
//!
//! **Invariant:** a record is bytes here; what it says is the business of `pmux_abi`. Nothing that stands in the
//! shared memory is believed: the worst that a broken or hostile header does is a [`RingError`].

mod backward;
mod batch;
mod memory;

pub use backward::{BackwardRing, Excerpt, Writers};
pub use batch::{Batch, Peek};
pub use memory::{MOST_RING_BYTES, RingFile, RingMemory, TakingFile};
pub use pmux_engine::ring_buffer::{Corruption, Drained, RingError};

use std::os::fd::BorrowedFd;

use crate::sys::{Errno, PerfMap};
use pmux_engine::ring_buffer::{Reader, RingSource};

/// The mapped ring of one event, or of all events that send their records to it.
///
/// Bytes are copied out and given back to the kernel before the records are looked at, so a slow consumer holds no
/// space, and no writer can change a record while it is read. Several rings of one event are safe, but take each
/// other's records.
#[derive(Debug)]
pub struct Ring {
    reader: Reader<PerfMap>,
}

impl Ring {
    /// Maps the ring of an event, with `data_pages` pages of data: a power of two.
    ///
    /// Unmapped on drop; the event may be closed before that.
    ///
    /// Errors: `EINVAL` where the number isn't a power of two, the event is inherited and bound to no CPU, or it has
    /// a ring of another size; `EPERM` over `perf_event_mlock_kb` without the right to lock more; `ENOMEM`; `ENODEV`
    /// or `EACCES` where the descriptor isn't an event's. Source: `perf_event_open(2)`, "MMAP layout".
    pub fn map(fd: BorrowedFd<'_>, data_pages: u32) -> Result<Self, Errno> {
        Ok(Self { reader: Reader::new(PerfMap::new(fd, data_pages)?) })
    }

    /// Hands every record that is complete now to `sink`, oldest first; answers how many there were.
    ///
    /// A record is passed whole, with its header, once. What the kernel writes meanwhile comes with the next call, so
    /// the call ends. Lost records are records too (`PERF_RECORD_LOST`).
    ///
    /// Errors: [`RingError`] where the memory contradicts itself. The records before that place have been handed
    /// over, everything after it is dropped, and the ring goes on with what is written next.
    pub fn drain(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<u64, RingError> {
        self.reader.drain(sink)
    }

    /// As [`Ring::drain`], up to a head that was seen before ([`Ring::head`]), and in pieces: see [`Reader::drain_to`].
    ///
    /// Errors: as [`Ring::drain`].
    pub fn drain_to(
        &mut self,
        until: u64,
        piece_bytes: u64,
        sink: &mut dyn FnMut(&[u8]),
        go_on: impl FnMut() -> bool,
    ) -> Result<Drained, RingError> {
        self.reader.drain_to(until, piece_bytes, sink, go_on)
    }

    /// As [`Ring::drain_to`] between two heads, and leaves it there: see [`Reader::look_between`].
    ///
    /// Errors: as [`Ring::drain`].
    pub fn look_between(&mut self, from: u64, until: u64, sink: &mut dyn FnMut(&[u8])) -> Result<(), RingError> {
        self.reader.look_between(from, until, sink)
    }

    /// Where the next record begins that is read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// The position up to which the kernel has written.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.reader.head()
    }

    /// Bytes that wait to be read. 0 where the memory contradicts itself: [`Ring::drain`] tells.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        self.reader.waiting_bytes()
    }

    /// Bytes of the data area.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.reader.capacity_bytes()
    }
}

impl RingSource for PerfMap {
    fn bytes(&self) -> u64 {
        self.data_bytes()
    }
    fn head(&self) -> u64 {
        self.head()
    }
    fn tail(&self) -> u64 {
        self.tail()
    }
    fn publish_tail(&self, tail: u64) {
        self.publish_tail(tail);
    }
    fn copy(&self, position: u64, into: &mut [u8]) {
        self.copy(position, into);
    }
}

#[cfg(test)]
mod backward_tests;
#[cfg(test)]
mod tests;
