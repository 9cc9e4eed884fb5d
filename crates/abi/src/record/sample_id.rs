//! The id that every record but a sample ends with.
//!
//! Read first: [`SampleId`].
//!
//! **Invariant:** its size depends on the layout alone, so it is found from the end of the record without a search.

use super::SampleLayout;
use crate::attr::SampleFormat;
use crate::bytes::{Reader, Writer};

/// A process and one of its threads, as numbered where the event was opened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TaskId {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
}

/// Who, when and where: the end of each record but samples, with `sample_id_all`.
///
/// Each field is there exactly if `sample_type` has its bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SampleId {
    /// The task.
    pub task: Option<TaskId>,
    /// The time, ns.
    pub time: Option<u64>,
    /// The id of the event.
    pub id: Option<u64>,
    /// The id of the stream: of the event itself, also where it is inherited.
    pub stream_id: Option<u64>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// The id of the event again, as the last field.
    pub identifier: Option<u64>,
}

impl SampleId {
    /// Returns the id of the event, from either of its two fields.
    #[must_use]
    pub fn event_id(&self) -> Option<u64> {
        self.identifier.or(self.id)
    }

    /// Reads the id from the bytes that [`SampleLayout::sample_id_size`] counted.
    pub(super) fn read(bytes: &[u8], layout: &SampleLayout) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let mut word = |bit| if layout.has(bit) { r.u64().map(Some) } else { Some(None) };
        Some(Self {
            task: word(SampleFormat::TID)?.map(task_from_word),
            time: word(SampleFormat::TIME)?,
            id: word(SampleFormat::ID)?,
            stream_id: word(SampleFormat::STREAM_ID)?,
            cpu: word(SampleFormat::CPU)?.map(|word| halves(word).0),
            identifier: word(SampleFormat::IDENTIFIER)?,
        })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>, layout: &SampleLayout) -> Option<()> {
        let words = [
            (SampleFormat::TID, self.task.map(task_to_word)),
            (SampleFormat::TIME, self.time),
            (SampleFormat::ID, self.id),
            (SampleFormat::STREAM_ID, self.stream_id),
            (SampleFormat::CPU, self.cpu.map(|cpu| word(cpu, 0))),
            (SampleFormat::IDENTIFIER, self.identifier),
        ];
        for (bit, value) in words {
            w.optional(layout.has(bit), value)?;
        }
        Some(())
    }
}

/// The two halves of a word, as they lie in memory one after the other.
pub(super) fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

/// The inverse of [`halves`].
pub(super) fn word(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

pub(super) fn task_from_word(word: u64) -> TaskId {
    let (pid, tid) = halves(word);
    TaskId { pid, tid }
}

pub(super) fn task_to_word(task: TaskId) -> u64 {
    word(task.pid, task.tid)
}
