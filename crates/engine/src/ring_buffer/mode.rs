//! What happens to a record for which there is no room.
//!
//! What it is: the two modes of a ring, each a type, so that a writer is compiled for one of them and never asks. Read first:
//! [`Overwrite`]. Letters name the orderings of the head of [`super`].
//!
//! **Invariant:** the tail only moves forward, onto the beginning of a record, not beyond `done`; and it is shown before a
//! writer writes where it was.
//!
//! Linux: `perf_output_begin_forward`, `perf_output_begin_backward` (kernel/events/ring_buffer.c).

use super::loss::LossReason;
use super::pages::{RingPages, Word, shown};
use super::writer::head_of;
use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::Ordering;

/// How a ring makes room: [`Forward`] or [`Overwrite`].
pub trait Mode: Steps + Send + Sync + 'static {}

/// A record that finds no room is lost.
#[derive(Clone, Copy, Debug)]
pub enum Forward {}

/// The oldest records give way.
///
/// Eight marks lie an eighth of the ring apart, each at the first record that begins there. When room is wanted, the tail
/// moves on to the next mark, one step however many records lie between: so it costs the same for all records, and seven
/// eighths of the ring, less a record, are always kept.
#[derive(Clone, Copy, Debug)]
pub enum Overwrite {}

impl Mode for Forward {}
impl Mode for Overwrite {}

/// The part of the writer's state that decides about room.
pub struct Room<'a, P: RingPages> {
    pub(super) pages: &'a P,
    pub(super) size: u64,
    /// The head, and who is at work.
    pub(super) state: &'a P::Word,
    /// Up to where records are whole.
    pub(super) done: &'a P::Word,
    /// Where the oldest record begins.
    pub(super) tail: &'a P::Word,
    /// Claims of the reader that can't be true.
    pub(super) bad_tail: &'a P::Word,
    pub(super) marks: &'a Marks<P::Word>,
}

impl<P: RingPages> Room<'_, P> {
    /// Moves the tail on, if it isn't there yet.
    fn move_tail(&self, to: u64) {
        // A. By maximum, as another writer may have come meanwhile and have moved it further. What stood there is not used.
        self.pages.shown()[shown::TAIL].fetch_max(to, Ordering::Release);
        self.tail.fetch_max(to, Ordering::Release);
    }
}

/// The steps in which modes differ. No type outside this module implements them.
pub trait Steps {
    /// How many marks a ring of this size has.
    fn marks(size: u64) -> usize;

    /// Moves the tail to `need` at least.
    ///
    /// # Errors
    /// Why it stays.
    fn make_room<P: RingPages>(room: &Room<'_, P>, need: u64) -> Result<(), LossReason>;

    /// Remembers that a record ends at `end`, if that is of use.
    fn mark<W: Word>(marks: &Marks<W>, begin: u64, end: u64);
}

impl Steps for Forward {
    fn marks(_: u64) -> usize {
        0
    }

    #[cold]
    fn make_room<P: RingPages>(room: &Room<'_, P>, need: u64) -> Result<(), LossReason> {
        // In this order: what was taken is behind any tail that was seen before it, and before any head that is seen after it.
        let tail = room.tail.load(Ordering::Acquire);
        let taken = room.pages.taken().load(Ordering::Acquire); // H
        if !taken.is_multiple_of(8) || taken < tail || taken > head_of(room.state.load(Ordering::Acquire)) {
            room.bad_tail.fetch_add(1, Ordering::Relaxed);
            return Err(LossReason::Full);
        }
        // What is not done can't have been taken.
        let to = taken.min(room.done.load(Ordering::Acquire));
        if to > tail {
            room.move_tail(to);
        }
        if to < need { Err(LossReason::Full) } else { Ok(()) }
    }

    #[inline]
    fn mark<W: Word>(_: &Marks<W>, _: u64, _: u64) {}
}

impl Steps for Overwrite {
    fn marks(size: u64) -> usize {
        Marks::<u64>::MOST.min(size as usize / 8)
    }

    #[cold]
    fn make_room<P: RingPages>(room: &Room<'_, P>, need: u64) -> Result<(), LossReason> {
        let done = room.done.load(Ordering::Acquire); // F
        let to = room.marks.behind(need, room.size).filter(|&mark| mark <= done).unwrap_or(done);
        if to < need {
            return Err(LossReason::Crowded);
        }
        room.move_tail(to);
        Ok(())
    }

    #[inline]
    fn mark<W: Word>(marks: &Marks<W>, begin: u64, end: u64) {
        if (begin ^ end) >> marks.stride_bits != 0 {
            marks.set(begin, end);
        }
    }
}

/// Where records begin, one for each part of the ring.
pub struct Marks<W> {
    /// Of part k, counted for ever, at k modulo their number: the first beginning of a record that is not before the part.
    places: Box<[W]>,
    /// A part has two to the power of this many bytes.
    stride_bits: u32,
}

impl<W> fmt::Debug for Marks<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks").field("marks", &self.places.len()).field("stride_bits", &self.stride_bits).finish()
    }
}

impl<W> Marks<W> {
    const MOST: usize = 8;
}

impl<W: Word> Marks<W> {
    /// For a ring of `size` bytes, with so many marks: a power of two, or none.
    pub(super) fn new(size: u64, marks: usize) -> Self {
        let places = (0..marks).map(|_| W::new(0)).collect();
        Self { places, stride_bits: size.trailing_zeros() - marks.max(1).trailing_zeros() }
    }

    /// A record has been begun that ends in another part, or at the very beginning of one.
    #[cold]
    fn set(&self, begin: u64, end: u64) {
        let (from, to) = (begin >> self.stride_bits, end >> self.stride_bits);
        for part in from + 1..=to {
            if let Some(place) = self.place(part) {
                // Relaxed: who sees it knows by `done` (C, F) whether the record is whole. It doesn't come round before this
                // record is done: its room is not given away before that.
                place.store(end, Ordering::Relaxed);
            }
        }
    }

    /// The first mark that is not before `need`; `None` where it has not been set.
    fn behind(&self, need: u64, size: u64) -> Option<u64> {
        let part = need.div_ceil(1 << self.stride_bits);
        let mark = self.place(part)?.load(Ordering::Relaxed);
        // Else it is of the last time round, or of the next.
        let offset = mark.checked_sub(part << self.stride_bits)?;
        (offset <= size).then_some(mark)
    }

    fn place(&self, part: u64) -> Option<&W> {
        // The number of parts is a power of two; only the remainder matters.
        self.places.get(part as usize & self.places.len().wrapping_sub(1))
    }
}
