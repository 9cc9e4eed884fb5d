//! Samples that no event of the kernel has taken: waits and regions, as they go into a file.

use pmux_abi::Array;
use pmux_abi::attr::SampleFormat;
use pmux_abi::record::{Misc, Record, Sample, SampleId, SampleLayout, TaskId, Weight, callchain, encode_record};

/// All threads that have no sums of their own.
pub(super) const OTHERS: TaskId = TaskId { pid: u32::MAX, tid: u32::MAX };

/// What came of one look.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Samples, as they go into a file.
    pub(crate) records: Vec<u8>,
    pub(crate) samples: u64,
    /// When the last one ended.
    pub(crate) last_ns: Option<u64>,
}

/// A sample of a time.
pub(super) struct OurSample<'a> {
    /// The id of its event.
    pub(super) id: u64,
    pub(super) task: TaskId,
    pub(super) cpu: u32,
    /// When it ended.
    pub(super) at_ns: u64,
    /// How long it was.
    pub(super) ns: u64,
    pub(super) address: u64,
    pub(super) weight: u64,
    /// Innermost first, with the marks of the parts.
    pub(super) chain: &'a [u64],
}

impl Taken {
    /// Adds what came later.
    pub(super) fn append(&mut self, mut later: Self) {
        self.records.append(&mut later.records);
        self.samples += later.samples;
        self.last_ns = self.last_ns.max(later.last_ns);
    }

    /// Adds a sample. `scratch` is room for a record.
    pub(super) fn add(&mut self, sample: &OurSample<'_>, layout: &SampleLayout, scratch: &mut [u8]) {
        let &OurSample { id, task, cpu, at_ns, ns, address, weight, chain } = sample;
        let format = layout.format();
        let word = |bit, value: u64| format.contains(bit).then_some(value);
        let (mark, innermost) = (chain.first().copied(), chain.get(1).copied());
        let sample = Sample {
            identifier: word(SampleFormat::IDENTIFIER, id),
            ip: word(SampleFormat::IP, innermost.unwrap_or(0)),
            task: format.contains(SampleFormat::TID).then_some(task),
            time: word(SampleFormat::TIME, at_ns),
            addr: word(SampleFormat::ADDR, address),
            id: word(SampleFormat::ID, id),
            stream_id: word(SampleFormat::STREAM_ID, id),
            cpu: format.contains(SampleFormat::CPU).then_some(cpu),
            period: Some(ns),
            callchain: Some(Array::from(chain)),
            weight: word(SampleFormat::WEIGHT, weight).map(Weight),
            ..Sample::default()
        };
        let misc = if mark == Some(callchain::KERNEL) { Misc::KERNEL } else { Misc::USER };
        if let Ok(bytes) = encode_record(&Record::Sample(sample), None::<&SampleId>, misc, layout, scratch) {
            self.records.extend_from_slice(&scratch[..bytes]);
            self.samples += 1;
            self.last_ns = self.last_ns.max(Some(at_ns));
        }
    }
}
