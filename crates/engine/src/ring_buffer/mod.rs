//! Rings of records: one side writes, others read, and no side waits for another.
//!
//! What it is: the format of a perf ring (records of `pmux_abi`, a power of two of bytes) with a writer and two kinds of
//! readers. A [`Writer`] is made for one [`Mode`]: in a [`Forward`] ring a record that finds no room is lost; in an
//! [`Overwrite`] ring the oldest ones give way. A [`Reader`] takes records out of a forward ring; [`SnapshotReader`]s, any
//! number of them, look at either and stop no writer and no other reader.
//! Read first: [`Writer::write`], then `mode` (how room is made) and `snapshot`.
//!
//! Positions are bytes since the ring was made and only grow, so that a full ring and an empty one differ.
//!
//! ```text
//!        tail                      done          head
//!  ───────┬─────────────────────────┬─────────────┬─────────  positions
//!  gone   │ whole records           │ being       │ free, up
//!         │                         │ written     │ to tail + size
//! ```
//!
//! A writer may be interrupted by another one at any moment, which writes and returns; they may as well run side by side. So
//! `head`, with how many writers are at work, is one word; a writer takes room by moving it. The last one at work shows
//! the head: then everything before it is whole. That is `done`.
//!
//! # Pairs of orderings, by letter
//!
//! * **A**: the tail is shown before it is stored (release) for the other writers, which load it (acquire) before they use
//!   the room before it.
//! * **B**: a writer's release fence between loading the tail and writing bytes, and a reader's acquire fence between
//!   copying bytes and loading the tail again: a reader that saw one new byte sees a tail behind the old ones.
//! * **C**: a writer that leaves stores the word of the head (release) after its bytes; the last one loads it (acquire)
//!   before it shows the head: it shows the bytes of all.
//! * **D**: the head is shown (release) after the bytes, and loaded (acquire) before they are copied.
//! * **E**: the number of records is shown before the head and again behind it; a reader loads the second, the head, and
//!   the first. Where both are the same, so is the head that they were shown with.
//! * **F**: `done` is stored (release) after the head was shown, and loaded (acquire) before the tail is moved up to it:
//!   a thread that sees the tail sees a head that is not before it.
//! * **G**: a writer that arrives counts itself (release) after it has taken room; the last one loads the count (acquire)
//!   before the word of the head, and again after it: where both are the same, it is that of the head.
//! * **H**: the exclusive reader stores what it took (release) after it copied; a writer loads it (acquire) before it writes there.
//!
//! **Invariant:** the writer's own positions are private words. Of what the other side can write it reads one word, what the
//! exclusive reader has taken, and believes it only where it could be true. No reader believes anything that stands in the
//! memory: the worst that it does is a [`RingError`].
//!
//! Linux: `struct perf_buffer`, `data_head` and `data_tail` of `struct perf_event_mmap_page` (kernel/events/internal.h).

mod loss;
mod mode;
mod pages;
mod reader;
mod records;
mod snapshot;
#[cfg(test)]
mod tests;
mod writer;

pub use loss::{Labels, Loss, LossReason, Losses, WriteError};
pub use mode::{Forward, Mode, Overwrite};
pub use pages::{HeapPages, OutOfMemory, RingEnd, RingPages, RingView, SHOWN_WORDS, Word, get_words, put_words};
pub use reader::{Drained, Reader, RingSource, Taking};
pub use records::{Corruption, RingError};
pub use snapshot::{Piece, Progress, SnapshotReader};
pub use writer::{BadSize, Output, RingSetup, RingTally, Wake, Wakeup, Writer};
