//! The samples of waits in what was recorded: to find them by their bytes, and to shorten them.
//!
//! **Invariant:** only for records of the recorder that has answered it: the events of waits have one layout, and ids of their own.

use super::attrs::TIME_AT;
use super::drain::sample_time_ns;
use crate::perf_data::EventDesc;
use crate::profile::TimeKind;
use pmux_abi::attr::SampleFormat;
use std::collections::HashMap;

/// A sample of a wait, or of who ended it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitSample {
    /// Which: [`TimeKind::Waited`], [`TimeKind::WaitedForCpu`] or [`TimeKind::Woke`].
    pub kind: TimeKind,
    /// The thread that waited, or that ran.
    pub tid: u32,
    /// When it was over, ns of the recording's clock: until the thread had a CPU again.
    pub time_ns: u64,
    /// How long it was, ns.
    pub period_ns: u64,
    /// Whether it stands for many short ones, of which no stacks are known.
    pub is_sum: bool,
}

/// Where the samples of waits are, and what is where in them.
#[derive(Clone, Debug, Default)]
pub struct WaitSamples {
    kinds: HashMap<u64, TimeKind>,
    period_at: usize,
}

fn word(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*record.get(at..)?.first_chunk()?))
}

impl WaitSamples {
    /// Those of the events of a recorder ([`super::Recorder::events`]), as they are when a file has been begun; `None` where no waits are
    /// recorded.
    #[must_use]
    pub fn of(events: &[EventDesc]) -> Option<Self> {
        // What stands in front of the period, a word each.
        const BEFORE: [SampleFormat; 8] = [
            SampleFormat::IDENTIFIER,
            SampleFormat::IP,
            SampleFormat::TID,
            SampleFormat::TIME,
            SampleFormat::ADDR,
            SampleFormat::ID,
            SampleFormat::STREAM_ID,
            SampleFormat::CPU,
        ];
        let mut samples = Self::default();
        for desc in events {
            if let Some(kind) = TimeKind::of_name(&desc.name) {
                samples.kinds.extend(desc.ids.iter().map(|&id| (id, kind)));
                samples.period_at = 8 + 8 * BEFORE.iter().filter(|&&word| desc.attr.sample.contains(word)).count();
            }
        }
        (!samples.kinds.is_empty()).then_some(samples)
    }

    /// What a sample's record tells of a wait; `None` of other samples.
    #[must_use]
    pub fn read(&self, record: &[u8]) -> Option<WaitSample> {
        let kind = *self.kinds.get(&word(record, 8)?)?;
        Some(WaitSample {
            kind,
            tid: (word(record, 24)? >> 32) as u32,
            time_ns: sample_time_ns(record)?,
            period_ns: word(record, self.period_at)?,
            is_sum: word(record, self.period_at + 8)? == 0,
        })
    }

    /// When a sample was taken, of a wait or not, ns of the recording's clock; `None` of what is too short.
    #[must_use]
    pub fn time_ns(&self, record: &[u8]) -> Option<u64> {
        sample_time_ns(record)
    }

    /// The same wait at another time, and of another length.
    #[must_use]
    pub fn with(&self, record: &[u8], time_ns: u64, period_ns: u64) -> Vec<u8> {
        let mut changed = record.to_vec();
        for (at, word) in [(usize::from(TIME_AT), time_ns), (self.period_at, period_ns)] {
            changed.get_mut(at..at + 8).into_iter().for_each(|bytes| bytes.copy_from_slice(&word.to_ne_bytes()));
        }
        changed
    }
}
