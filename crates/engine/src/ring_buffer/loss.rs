//! What a ring has lost, and why.
//!
//! What it is: one account for each reason, and the label that says it in the ring itself, where the next record follows.
//! Read first: [`LossReason`]. In Linux: `rb->lost` in `__perf_output_begin` of `kernel/events/ring_buffer.c`.
//!
//! **Invariant:** a record that was to be written is in the ring or in one of these accounts.

use super::pages::Word;
use super::writer::Wake;
use crate::id::{CpuId, Nanos};
use core::fmt;
use core::sync::atomic::Ordering;
use pmux_abi::attr::SampleFormat;
use pmux_abi::record::{Lost, Misc, Record, RecordHeader, SampleId, SampleLayout, TaskId, encode_record};

/// Why a record was not written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LossReason {
    /// The reader has not yet taken what stands there.
    Full,
    /// It is larger than the ring.
    TooLarge,
    /// What stands there is still being written, by writers that were interrupted; or there are too many of those.
    Crowded,
    /// It is no record: its length is none that a record can have, or its header says another one.
    Malformed,
    /// The ring has taken 2^61 bytes, which is all it can.
    WornOut,
    /// The code that would have written it had no time for it: [`super::Writer::leave_out`].
    NoTime,
}

impl LossReason {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Full, Self::TooLarge, Self::Crowded, Self::Malformed, Self::WornOut, Self::NoTime];
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the ring is full: its reader is too slow",
            Self::TooLarge => "the record is larger than the ring",
            Self::Crowded => "records that are not finished yet fill the ring",
            Self::Malformed => "it is no record",
            Self::WornOut => "the ring has taken as many bytes as it can",
            Self::NoTime => "the writer had no time for it",
        })
    }
}

/// A record that was not written. It has been counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteError {
    /// Why.
    pub why: LossReason,
    /// Whether to wake the reader: room is wanted.
    pub wake: Wake,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl core::error::Error for WriteError {}

/// What was lost for one reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    /// How many records.
    pub records: u64,
    /// How many bytes they had.
    pub bytes: u64,
    /// When the first one was lost.
    pub first_at: Nanos,
    /// When the last one was.
    pub last_at: Nanos,
}

/// What was lost, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses([Loss; LossReason::ALL.len()]);

impl Losses {
    /// For one reason.
    #[must_use]
    pub const fn of(&self, why: LossReason) -> Loss {
        self.0[why as usize]
    }

    /// How many records, for all reasons.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.0.iter().map(|loss| loss.records).sum()
    }

    /// How many bytes they had.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|loss| loss.bytes).sum()
    }
}

/// How losses are told in the ring itself: by a `PERF_RECORD_LOST` before the next record that finds room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Labels {
    /// Whose records they are said to be: the id of the event that owns the ring.
    pub id: u64,
    /// Of that event: whether there is an id at the end of its records, and of which fields.
    pub layout: SampleLayout,
    /// Of that event.
    pub cpu: Option<CpuId>,
}

impl Labels {
    pub(super) const MOST_BYTES: usize = 24 + 48;

    pub(super) const fn bytes(&self) -> u64 {
        24 + self.layout.sample_id_size() as u64
    }

    /// Writes a label; the bytes that it has.
    pub(super) fn encode(&self, lost: u64, at: Nanos, out: &mut [u8; Self::MOST_BYTES]) -> usize {
        let layout = &self.layout;
        let format = layout.format();
        let when = |bit, value| format.contains(bit).then_some(value);
        let sample_id = SampleId {
            task: format.contains(SampleFormat::TID).then(TaskId::default),
            time: when(SampleFormat::TIME, at.0),
            id: when(SampleFormat::ID, self.id),
            stream_id: when(SampleFormat::STREAM_ID, self.id),
            cpu: format.contains(SampleFormat::CPU).then(|| self.cpu.map_or(u32::MAX, |cpu| cpu.0)),
            identifier: when(SampleFormat::IDENTIFIER, self.id),
        };
        let record = Record::Lost(Lost { id: self.id, lost });
        let sample_id = layout.has_sample_id().then_some(&sample_id);
        // It can't fail: the fields are those that the layout has, and there is room for all that a layout can have.
        encode_record(&record, sample_id, Misc::default(), layout, out).unwrap_or(0)
    }
}

/// Whether bytes are one record, whole.
#[inline]
pub(super) fn is_record(bytes: &[u8]) -> bool {
    let length = bytes.len();
    let header = bytes.first_chunk::<{ RecordHeader::SIZE }>();
    header.is_some_and(|header| {
        usize::from(u16::from_ne_bytes([header[6], header[7]])) == length && length.is_multiple_of(8)
    })
}

#[derive(Debug)]
pub(super) struct Accounts<W> {
    /// Of each reason: records, bytes, when the first and when the last one was lost.
    of: [[W; 4]; LossReason::ALL.len()],
    /// Of all together.
    records: W,
    bytes: W,
    last_at: W,
    /// Records that no label in the ring tells of yet.
    waiting: W,
}

impl<W: Word> Accounts<W> {
    pub(super) fn new() -> Self {
        let zero = || W::new(0);
        let of = core::array::from_fn(|_| core::array::from_fn(|_| zero()));
        Self { of, records: zero(), bytes: zero(), last_at: zero(), waiting: zero() }
    }

    /// Adds a record; the totals, and how many had been waiting for a label.
    pub(super) fn add(&self, why: LossReason, bytes: u64, at: Nanos) -> (u64, u64, u64) {
        // Relaxed, all of them: they are numbers for themselves.
        let [records_of, bytes_of, first_at, last_at] = &self.of[why as usize];
        if records_of.fetch_add(1, Ordering::Relaxed) == 0 {
            first_at.store(at.0, Ordering::Relaxed);
        }
        bytes_of.fetch_add(bytes, Ordering::Relaxed);
        last_at.fetch_max(at.0, Ordering::Relaxed);
        self.last_at.fetch_max(at.0, Ordering::Relaxed);
        let records = self.records.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (records, bytes, self.waiting.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether records wait for a label.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Takes those that wait, to be told of; and when the last record was lost.
    pub(super) fn take_waiting(&self) -> (u64, Nanos) {
        (self.waiting.swap(0, Ordering::Relaxed), Nanos(self.last_at.load(Ordering::Relaxed)))
    }

    /// Puts them back: there was no room for the label.
    pub(super) fn still_wait(&self, records: u64) {
        self.waiting.fetch_add(records, Ordering::Relaxed);
    }

    pub(super) fn all(&self) -> Losses {
        Losses(core::array::from_fn(|why| {
            let [records, bytes, first_at, last_at] =
                core::array::from_fn(|field: usize| self.of[why][field].load(Ordering::Relaxed));
            Loss { records, bytes, first_at: Nanos(first_at), last_at: Nanos(last_at) }
        }))
    }
}
