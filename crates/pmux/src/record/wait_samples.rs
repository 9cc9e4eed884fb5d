//! The samples of waits in what was recorded: to find them, and to shorten them.
//!
//! **Invariant:** only for records of the recorder whose events they are: those of waits have one layout.

use crate::perf_data::EventDesc;
use crate::profile::TimeKind;
use pmux_abi::record::{Record, RecordHeader, SampleLayout, decode_record, encode_record};
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

/// Which samples are of waits, and what is where in them.
#[derive(Clone, Debug, Default)]
pub struct WaitSamples {
    kinds: HashMap<u64, TimeKind>,
    layout: SampleLayout,
}

impl WaitSamples {
    /// Those of the events of a recorder ([`super::Recorder::events`]), with the ids that they have by now; none where no waits are recorded.
    #[must_use]
    pub fn of(events: &[EventDesc]) -> Self {
        let mut samples = Self::default();
        for desc in events {
            if let Some(kind) = TimeKind::of_name(&desc.name) {
                samples.kinds.extend(desc.ids.iter().map(|&id| (id, kind)));
                samples.layout = SampleLayout::new(&desc.attr);
            }
        }
        samples
    }

    /// What a sample's record tells of a wait; `None` of other samples.
    #[must_use]
    pub fn read(&self, record: &[u8]) -> Option<WaitSample> {
        let kind = *self.kinds.get(&self.layout.event_id(record)?)?;
        let Ok((Record::Sample(sample), _)) = decode_record(record, &self.layout) else { return None };
        let (tid, time_ns, period_ns) = (sample.task?.tid, sample.time?, sample.period?);
        let is_sum = sample.callchain.is_none_or(|chain| chain.is_empty());
        Some(WaitSample { kind, tid, time_ns, period_ns, is_sum })
    }

    /// When a sample was taken, of a wait or not, ns of the recording's clock; `None` of what is too short.
    #[must_use]
    pub fn time_ns(&self, record: &[u8]) -> Option<u64> {
        self.layout.time(record)
    }

    /// The record of the same wait at another time, and of another length; `None` of what is none.
    #[must_use]
    pub fn with(&self, record: &[u8], time_ns: u64, period_ns: u64) -> Option<Vec<u8>> {
        let (header, ..) = RecordHeader::split(record).ok()?;
        let Ok((Record::Sample(mut sample), _)) = decode_record(record, &self.layout) else { return None };
        (sample.time, sample.period) = (Some(time_ns), Some(period_ns));
        let mut changed = vec![0; record.len()];
        encode_record(&Record::Sample(sample), None, header.misc, &self.layout, &mut changed).ok()?;
        Some(changed)
    }
}
