//! Samples that no event of the kernel has taken: waits and regions, as they go into a file.

use pmux_abi::Array;
use pmux_abi::attr::SampleFormat;
use pmux_abi::record::{
    Misc, Record, Regs, RegsAbi, Sample, SampleId, SampleLayout, TaskId, UserStack, Weight, callchain, encode_record,
};
use pmux_linux::off_cpu::CopiedStack;

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

pub(super) struct OurSample<'a> {
    pub(super) id: u64,
    pub(super) task: TaskId,
    pub(super) cpu: u32,
    /// When it ended.
    pub(super) at_ns: u64,
    pub(super) ns: u64,
    pub(super) address: u64,
    pub(super) weight: u64,
    /// Innermost first, with the marks of the parts.
    pub(super) chain: &'a [u64],
    /// What the reader finds the program's part of the chain in.
    pub(super) user: Option<&'a CopiedStack<'a>>,
}

impl Taken {
    /// Adds what came later.
    pub(super) fn append(&mut self, mut later: Self) {
        self.records.append(&mut later.records);
        self.samples += later.samples;
        self.last_ns = self.last_ns.max(later.last_ns);
    }

    pub(super) fn add(&mut self, sample: &OurSample<'_>, layout: &SampleLayout, scratch: &mut [u8]) {
        let &OurSample { id, task, cpu, at_ns, ns, address, weight, chain, user } = sample;
        let format = layout.format();
        let word = |bit, value: u64| format.contains(bit).then_some(value);
        let (mark, innermost) = (chain.first().copied(), chain.get(1).copied().or(user.map(|user| user.ip)));
        let regs = user.map(|user| Regs {
            abi: if user.is_narrow { RegsAbi::BITS_32 } else { RegsAbi::BITS_64 },
            values: Array::from(&user.registers[..]),
        });
        let stack = user.map(|user| UserStack { data: user.memory, dyn_size: user.memory.len() as u64 });
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
            regs_user: format.contains(SampleFormat::REGS_USER).then(|| regs.unwrap_or_default()),
            stack_user: format.contains(SampleFormat::STACK_USER).then(|| stack.unwrap_or_default()),
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
