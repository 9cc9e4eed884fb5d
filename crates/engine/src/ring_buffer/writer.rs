//! The writing end.
//!
//! What it is: taking room, writing a record, and showing it. Read first: [`Writer::write`]; how room is made is in [`super::mode`].
//! Letters name the orderings of the head of [`super`].
//!
//! **Invariant:** a writer waits for no other thread, allocates nothing and can't fail between taking room and giving up its place:
//! it may be called where an interrupt has stopped another call of itself.
//!
//! Linux: `perf_output_begin`, `perf_output_copy`, `perf_output_end` (kernel/events/ring_buffer.c).

use super::loss::{Accounts, Labels, LossReason, Losses, WriteError, is_record};
use super::mode::{Marks, Mode, Room};
use super::pages::{RingPages, Word, put, shown};
use crate::id::Nanos;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;

/// Bits of the word of the head that say how many writers are at work. Above them is the head, in words.
const AT_WORK_BITS: u32 = 6;
const AT_WORK: u64 = (1 << AT_WORK_BITS) - 1;
/// The last position that fits beside them.
const LAST_POSITION: u64 = (u64::MAX >> AT_WORK_BITS) << 3;

/// The head, in bytes.
#[inline]
pub(super) const fn head_of(state: u64) -> u64 {
    (state >> AT_WORK_BITS) << 3
}

const fn state_of(head: u64, at_work: u64) -> u64 {
    (head >> 3) << AT_WORK_BITS | at_work
}

/// When a reader is to be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wakeup {
    /// Never: it looks by itself.
    #[default]
    Never,
    /// With each so many bytes, at most half of the ring.
    Bytes(u64),
    /// With each so many records, and when half of the ring is new.
    Records(u64),
}

/// Whether the caller is to wake the reader now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Wake {
    /// There is no need.
    No,
    /// It is to be woken.
    Now,
}

/// How a ring is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingSetup {
    /// When its reader is woken.
    pub wakeup: Wakeup,
    /// How losses are told in the ring itself, where they are.
    pub labels: Option<Labels>,
}

/// The memory of a ring is not a power of two of words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadSize {
    /// How many words there are.
    pub words: usize,
}

impl fmt::Display for BadSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a ring of {} words; it must be a power of two", self.words)
    }
}

impl core::error::Error for BadSize {}

/// What a ring has taken, and what it has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingTally {
    /// How many records were written, labels among them.
    pub records: u64,
    /// How many of those are labels: they tell of losses.
    pub labels: u64,
    /// How many bytes all of them have: the head.
    pub bytes: u64,
    /// How many of the bytes have given way, or may: the tail.
    pub tail: u64,
    /// What was lost.
    pub lost: Losses,
    /// How often the reader claimed to have taken what it can't have.
    pub bad_tail: u64,
}

/// Whatever records can be written to. Which it is, is known from the moment at which an event is attached to it.
pub trait Output: Send + Sync {
    /// As [`Writer::write`].
    ///
    /// # Errors
    /// Those of [`Writer::write`].
    fn write(&self, record: &[u8], now: Nanos) -> Result<Wake, WriteError>;

    /// As [`Writer::tally`].
    fn tally(&self) -> RingTally;
}

/// The writing end of a ring, for all events that write into it.
///
/// Calls may interrupt one another, and may come from several threads at once.
#[derive(Debug)]
pub struct Writer<P: RingPages, M> {
    pages: P,
    size: u64,
    labels: Option<Labels>,
    wake_bytes: u64,
    wake_records: u64,
    places: Places<P::Word>,
    marks: Marks<P::Word>,
    accounts: Accounts<P::Word>,
    mode: PhantomData<M>,
}

/// What every record touches, in one cache line of the writer's own; and two that hardly any does.
#[repr(C, align(64))]
#[derive(Debug)]
struct Places<W> {
    /// The head, and how many writers are at work.
    state: W,
    /// Up to where records are whole.
    done: W,
    /// Where the oldest record begins. Never beyond `done`.
    tail: W,
    /// Records of writers that found no other at work: only they store it, and there is one at a time.
    first_in: W,
    /// Records of those that found another at work.
    later_in: W,
    /// At which head a reader was woken last, and after how many records. Only the last one at work has these.
    woken_at: W,
    woken_after: W,
    /// How many of all records are labels.
    labels: W,
    /// How often the reader claimed what can't be.
    bad_tail: W,
}

impl<P: RingPages, M: Mode> Writer<P, M> {
    /// Makes a ring of memory that is all 0, and has no other writer.
    ///
    /// # Errors
    /// [`BadSize`].
    pub fn new(pages: P, setup: RingSetup) -> Result<Self, BadSize> {
        Self::at(pages, setup, 0)
    }

    /// Makes a ring whose first record is at a later position.
    pub(super) fn at(pages: P, setup: RingSetup, position: u64) -> Result<Self, BadSize> {
        let words = pages.data_words();
        if !words.is_power_of_two() {
            return Err(BadSize { words });
        }
        let size = words as u64 * 8;
        let most = (size / 2).max(8);
        let (wake_bytes, wake_records) = match setup.wakeup {
            Wakeup::Never => (u64::MAX, u64::MAX),
            Wakeup::Bytes(bytes) => (bytes.clamp(8, most), u64::MAX),
            Wakeup::Records(records) => (most, records.max(1)),
        };
        let word = P::Word::new;
        let places = Places {
            state: word(state_of(position, 0)),
            done: word(position),
            tail: word(position),
            first_in: word(0),
            later_in: word(0),
            woken_at: word(position),
            woken_after: word(0),
            labels: word(0),
            bad_tail: word(0),
        };
        pages.shown()[shown::HEAD].store(position, Ordering::Relaxed);
        pages.shown()[shown::TAIL].store(position, Ordering::Relaxed);
        let marks = Marks::new(size, M::marks(size));
        let (labels, accounts) = (setup.labels, Accounts::new());
        Ok(Self { pages, size, labels, wake_bytes, wake_records, places, marks, accounts, mode: PhantomData })
    }

    /// Writes one whole record, as `pmux_abi` encodes it; whether its reader is to be woken.
    ///
    /// It may be called anywhere, also where an interrupt has stopped another call. `now` is when it is lost, if it is.
    ///
    /// # Errors
    /// In this order, and counted ([`Writer::tally`]): [`LossReason::Malformed`]; [`LossReason::TooLarge`]; [`LossReason::Crowded`] where 63 writers
    /// are at work; [`LossReason::WornOut`]; where there is no room, [`LossReason::Full`] or, in an overwrite ring, [`LossReason::Crowded`].
    #[inline]
    pub fn write(&self, record: &[u8], now: Nanos) -> Result<Wake, WriteError> {
        if self.labels.is_some() && self.accounts.waits() {
            return self.write_behind_label(record, now);
        }
        match self.reserve_for(record) {
            Ok(begin) => {
                put(&self.pages, begin, record);
                Ok(self.leave())
            }
            Err(why) => Err(self.lose(why, record, now)),
        }
    }

    /// The memory.
    pub const fn pages(&self) -> &P {
        &self.pages
    }

    /// What was written and what was lost. Exact where no thread is writing; otherwise it is about to be.
    pub fn tally(&self) -> RingTally {
        let places = &self.places;
        let load = |word: &P::Word| word.load(Ordering::Acquire);
        RingTally {
            records: load(&places.first_in) + load(&places.later_in),
            labels: load(&places.labels),
            bytes: load(&places.done),
            tail: load(&places.tail),
            lost: self.accounts.all(),
            bad_tail: load(&places.bad_tail),
        }
    }

    /// Tells of losses that no record has followed yet: at the end of a recording, or from time to time.
    pub fn tell_losses(&self) -> Wake {
        let Some(labels) = self.labels.filter(|_| self.accounts.waits()) else { return Wake::No };
        let mut room = [0; Labels::MOST_BYTES];
        let (lost, label) = self.make_label(&labels, &mut room);
        if lost == 0 {
            return Wake::No;
        }
        let Ok(begin) = self.reserve(label.len() as u64, 1) else {
            self.accounts.still_wait(lost);
            return Wake::No;
        };
        self.places.labels.fetch_add(1, Ordering::Relaxed);
        put(&self.pages, begin, label);
        self.leave()
    }

    /// Counts a record as lost ([`LossReason::NoTime`]) that is not written although there may be room.
    pub fn leave_out(&self, record: &[u8], now: Nanos) {
        let _: WriteError = self.lose(LossReason::NoTime, record, now);
    }

    #[inline]
    fn reserve_for(&self, record: &[u8]) -> Result<u64, LossReason> {
        if !is_record(record) {
            return Err(LossReason::Malformed);
        }
        self.reserve(record.len() as u64, 1)
    }

    /// Takes room: where it begins. From now on the caller is at work.
    #[inline]
    fn reserve(&self, bytes: u64, records: u64) -> Result<u64, LossReason> {
        let places = &self.places;
        if bytes > self.size {
            return Err(LossReason::TooLarge);
        }
        // Relaxed: what stands there is tried only.
        let mut state = places.state.load(Ordering::Relaxed);
        let (begin, end) = loop {
            let begin = head_of(state);
            let end = begin + bytes;
            if state & AT_WORK == AT_WORK {
                return Err(LossReason::Crowded);
            }
            if end > LAST_POSITION {
                return Err(LossReason::WornOut);
            }
            // A. The tail may be newer than the head.
            if end.saturating_sub(places.tail.load(Ordering::Acquire)) > self.size {
                M::make_room(&self.room(), end - self.size)?;
                state = places.state.load(Ordering::Relaxed);
                continue;
            }
            let taken = state_of(end, (state & AT_WORK) + 1);
            match places.state.compare_exchange(state, taken, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break (begin, end),
                Err(now) => state = now,
            }
        };
        if state & AT_WORK == 0 {
            // No other writer comes here before this writer has left, or the last of those that came after it.
            places.first_in.store(places.first_in.load(Ordering::Relaxed) + records, Ordering::Relaxed);
        } else {
            places.later_in.fetch_add(records, Ordering::Release); // G
        }
        P::Word::fence(Ordering::Release); // B
        M::mark(&self.marks, begin, end);
        Ok(begin)
    }

    fn room(&self) -> Room<'_, P> {
        let Places { state, done, tail, bad_tail, .. } = &self.places;
        Room { pages: &self.pages, size: self.size, state, done, tail, bad_tail, marks: &self.marks }
    }

    /// The caller is done. If it is the last one at work, it shows what all have written.
    #[inline]
    fn leave(&self) -> Wake {
        let places = &self.places;
        let mut wake = Wake::No;
        loop {
            let later_in = places.later_in.load(Ordering::Acquire); // G
            let state = places.state.load(Ordering::Acquire); // C
            if state & AT_WORK == 1 {
                if places.later_in.load(Ordering::Relaxed) != later_in {
                    continue;
                }
                // Relaxed: the writer that stored it has shown its head since, or it was this writer.
                let records = places.first_in.load(Ordering::Relaxed) + later_in;
                if self.show(head_of(state), records) == Wake::Now {
                    wake = Wake::Now;
                }
            }
            // C. It fails if another writer came in the meantime, which found this writer at work and showed nothing.
            if places.state.compare_exchange(state, state - 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return wake;
            }
        }
    }

    /// Shows records up to `head`. Only the last writer at work calls it.
    #[inline]
    fn show(&self, head: u64, records: u64) -> Wake {
        let (places, words) = (&self.places, self.pages.shown());
        words[shown::RECORDS_BEFORE].store(records, Ordering::Relaxed); // E, by the next line
        words[shown::HEAD].store(head, Ordering::Release); // D
        words[shown::RECORDS_BEHIND].store(records, Ordering::Release); // E
        places.done.store(head, Ordering::Release); // F
        // Relaxed: handed on from one last writer to the next by the word of the head.
        let (woken_at, woken_after) =
            (places.woken_at.load(Ordering::Relaxed), places.woken_after.load(Ordering::Relaxed));
        if head - woken_at < self.wake_bytes && records - woken_after < self.wake_records {
            return Wake::No;
        }
        places.woken_at.store(head, Ordering::Relaxed);
        places.woken_after.store(records, Ordering::Relaxed);
        Wake::Now
    }

    #[cold]
    fn lose(&self, why: LossReason, record: &[u8], now: Nanos) -> WriteError {
        let (records, bytes, waited) = self.accounts.add(why, record.len() as u64, now);
        // By maximum, as another writer may have come meanwhile. What stood there is not used.
        self.pages.shown()[shown::LOST_RECORDS].fetch_max(records, Ordering::Relaxed);
        self.pages.shown()[shown::LOST_BYTES].fetch_max(bytes, Ordering::Relaxed);
        // Once, and not again for each record that is lost after it.
        let wanted = why == LossReason::Full && waited == 0 && self.wake_bytes != u64::MAX;
        WriteError { why, wake: if wanted { Wake::Now } else { Wake::No } }
    }

    fn make_label<'a>(&self, labels: &Labels, room: &'a mut [u8; Labels::MOST_BYTES]) -> (u64, &'a [u8]) {
        let (lost, last_at) = self.accounts.take_waiting();
        let length = labels.encode(lost, last_at, room);
        (lost, room.get(..length).unwrap_or_default())
    }

    /// Something was lost: the label that tells of it comes before the record, and both find room or neither.
    #[cold]
    fn write_behind_label(&self, record: &[u8], now: Nanos) -> Result<Wake, WriteError> {
        let mut room = [0; Labels::MOST_BYTES];
        let fits = |labels: &Labels| is_record(record) && labels.bytes() + record.len() as u64 <= self.size;
        let (lost, label) = match self.labels.filter(fits) {
            Some(labels) => self.make_label(&labels, &mut room),
            None => (0, &[][..]),
        };
        // Another writer may just have told of it.
        let (label, records) = if lost == 0 { (&[][..], 1) } else { (label, 2) };
        let bytes = (label.len() + record.len()) as u64;
        let begin = if is_record(record) { self.reserve(bytes, records) } else { Err(LossReason::Malformed) };
        match begin {
            Ok(begin) => {
                self.places.labels.fetch_add(records - 1, Ordering::Relaxed);
                put(&self.pages, begin, label);
                put(&self.pages, begin + label.len() as u64, record);
                Ok(self.leave())
            }
            Err(why) => {
                self.accounts.still_wait(lost);
                Err(self.lose(why, record, now))
            }
        }
    }
}

impl<P: RingPages, M: Mode> Output for Writer<P, M> {
    fn write(&self, record: &[u8], now: Nanos) -> Result<Wake, WriteError> {
        self.write(record, now)
    }

    fn tally(&self) -> RingTally {
        self.tally()
    }
}
