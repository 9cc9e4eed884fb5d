//! What the kernel writes wrong where several recorders run at once, put right on the way to the file.
//!
//! What it is: two defects, both seen in Linux 6.18, with `perf record` as well, which can't read its own files then.
//! - A KSYMBOL or BPF_EVENT record that goes to several events is longer than what is written of it: [`SampleLayout::own_size`].
//! - A page fault, a context switch or another software event that several events count is a sample of each, but all carry the id
//!   of the first one (`do_perf_sw_event` prepares a sample once, `perf_tp_event` once for each event). Where that is an event of
//!   another recorder, the id is in no file of ours. If only one event of a recording can be meant, its id is put there.
//!
//! **Invariant:** a record that is right stays as it is.

use super::drain::SAMPLE;
use crate::perf_data::EventDesc;
use pmux_abi::attr::{Attr, EventType, SampleFormat, Sampling, sw};
use pmux_abi::record::{RecordKind, Records, SampleLayout};
use pmux_linux::ring::Peek;
use std::collections::HashSet;

/// Where a sample's id is: all our events have `IDENTIFIER`.
const ID_AT: usize = 8;

pub(crate) struct Mend {
    tracking: Option<SampleLayout>,
    /// An id of the only event whose samples may have another's.
    only: Option<u64>,
    ids: HashSet<u64>,
}

impl Mend {
    /// Of the events of a recording, the tracking one last.
    pub(crate) fn new(descs: &[EventDesc]) -> Self {
        let mut candidates = descs.iter().filter(|desc| may_have_another_id(&desc.attr));
        let only = candidates.next().filter(|_| candidates.next().is_none()).and_then(|desc| desc.ids.first().copied());
        let ids = descs.iter().flat_map(|desc| &desc.ids).copied().collect();
        Self { tracking: descs.last().map(|desc| SampleLayout::new(&desc.attr)), only, ids }
    }

    /// Whether a record in a ring is to be mended. `room` is overwritten.
    pub(super) fn is_wanted(&self, peek: &Peek<'_>, room: &mut Vec<u8>) -> bool {
        match peek.kind() {
            SAMPLE => self.only.is_some() && !self.ids.contains(&peek.word(ID_AT as u16)),
            kind if may_have_excess(kind) => {
                peek.copy_to(room);
                self.tracking.is_some_and(|layout| layout.own_size(room) < room.len())
            }
            _ => false,
        }
    }

    /// A sample whose event is known, mended in `room` where that is needed, or another record as it is; `None` where any of several
    /// events may be meant.
    pub(crate) fn known<'a>(&self, record: &'a [u8], room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let is_sample = record.first_chunk().is_some_and(|kind| u32::from_ne_bytes(*kind) == SAMPLE);
        let id = record.get(ID_AT..).and_then(|rest| rest.first_chunk());
        if !is_sample || id.is_some_and(|id| self.ids.contains(&u64::from_ne_bytes(*id))) {
            return Some(record);
        }
        self.only?;
        room.clear();
        self.put(record, room);
        Some(room)
    }

    /// Adds records, all of them right.
    pub(super) fn put(&self, records: &[u8], into: &mut Vec<u8>) {
        for record in Records::new(records).flatten() {
            let start = into.len();
            let kind = record.first_chunk().map_or(0, |kind| u32::from_ne_bytes(*kind));
            match &self.tracking {
                Some(layout) if may_have_excess(kind) => put_own(record, layout, into),
                _ => into.extend(record),
            }
            if let (SAMPLE, Some(id), Some(at)) = (kind, self.only, into[start..].get_mut(ID_AT..ID_AT + 8))
                && at.try_into().is_ok_and(|at| !self.ids.contains(&u64::from_ne_bytes(at)))
            {
                at.copy_from_slice(&id.to_ne_bytes());
            }
        }
    }
}

pub(super) fn may_have_excess(kind: u32) -> bool {
    SampleLayout::may_have_excess(RecordKind(kind))
}

/// Adds what is written of a record, as long as it says then: readers look for the id at its end.
pub(super) fn put_own(record: &[u8], layout: &SampleLayout, into: &mut Vec<u8>) {
    let start = into.len();
    let own = layout.own_size(record);
    into.extend(&record[..own]);
    if let (true, Ok(size), Some(at)) = (own < record.len(), u16::try_from(own), into.get_mut(start + 6..start + 8)) {
        at.copy_from_slice(&size.to_ne_bytes());
    }
}

/// Clocks have a timer each, and what does not sample gives no sample.
fn may_have_another_id(attr: &Attr) -> bool {
    attr.kind == EventType::SOFTWARE
        && !matches!(attr.config, sw::CPU_CLOCK | sw::TASK_CLOCK | sw::DUMMY | sw::BPF_OUTPUT)
        && attr.sampling != Sampling::None
        && attr.sample.contains(SampleFormat::IDENTIFIER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_abi::attr::AttrFlags;
    use pmux_abi::record::{Ksymbol, Misc, Record, Sample, SampleId, TaskId, decode_record, encode_record};

    const TASK: Option<TaskId> = Some(TaskId { pid: 1, tid: 2 });

    fn desc(config: u64, sampling: Sampling, ids: &[u64]) -> EventDesc {
        let attr = Attr {
            kind: EventType::SOFTWARE,
            config,
            sampling,
            sample: SampleFormat::IDENTIFIER | SampleFormat::TID | SampleFormat::TIME,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        EventDesc { attr, name: String::new(), ids: ids.to_vec() }
    }

    fn encoded(record: &Record<'_>, id: u64, layout: &SampleLayout) -> Vec<u8> {
        let mut out = [0; 256];
        let id = SampleId { task: TASK, time: Some(7), identifier: Some(id), ..SampleId::default() };
        let id = (record.kind().0 != SAMPLE).then_some(&id);
        let size = encode_record(record, id, Misc::default(), layout, &mut out).unwrap();
        out[..size].to_vec()
    }

    fn sample(id: u64) -> Record<'static> {
        Record::Sample(Sample { identifier: Some(id), task: TASK, time: Some(5), ..Sample::default() })
    }

    fn mended(mend: &Mend, records: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        mend.put(records, &mut all);
        all
    }

    #[test]
    fn a_record_is_as_long_as_what_is_written_of_it() {
        let descs = [desc(sw::DUMMY, Sampling::None, &[3])];
        let layout = SampleLayout::new(&descs[0].attr);
        let symbol = Record::Ksymbol(Ksymbol { addr: 0x1000, len: 8, name: b"bpf_prog_1", ..Ksymbol::default() });
        let right = encoded(&symbol, 3, &layout);
        for others in 0..3 {
            // What the ring held before is all but an id.
            let mut long = right.clone();
            long.resize(right.len() + others * layout.sample_id_size(), 0xee);
            let size = long.len() as u16;
            long[6..8].copy_from_slice(&size.to_ne_bytes());
            assert_eq!(layout.event_id(&long), Some(3));
            assert_eq!(decode_record(&long, &layout).unwrap(), decode_record(&right, &layout).unwrap());
            let both = [&long[..], &right[..]].concat();
            assert_eq!(mended(&Mend::new(&descs), &both), [&right[..], &right[..]].concat(), "{others}");
        }
    }

    #[test]
    fn an_id_of_another_recorder_is_of_the_only_event_that_can_be_meant() {
        let (clock, faults) =
            (desc(sw::CPU_CLOCK, Sampling::Period(1), &[1]), desc(sw::PAGE_FAULTS, Sampling::Period(1), &[2, 4]));
        let layout = SampleLayout::new(&faults.attr);
        let bytes = |ids: [u64; 4]| ids.map(|id| encoded(&sample(id), id, &layout)).concat();
        let (recorded, right) = (bytes([1, 4, 99, 2]), bytes([1, 4, 2, 2]));
        let one = [clock.clone(), faults.clone(), desc(sw::DUMMY, Sampling::None, &[3])];
        assert_eq!(mended(&Mend::new(&one), &recorded), right);
        let two = [faults, desc(sw::CONTEXT_SWITCHES, Sampling::Period(1), &[1])];
        assert_eq!(mended(&Mend::new(&two), &recorded), recorded, "it may be either");
        let known = |descs: &[EventDesc]| {
            let (mend, mut room) = (Mend::new(descs), Vec::new());
            let records = Records::new(&recorded).flatten();
            records.filter_map(|record| mend.known(record, &mut room).map(<[u8]>::to_vec)).collect::<Vec<_>>().concat()
        };
        assert_eq!(known(&one), right);
        assert_eq!(known(&two), [1, 4, 2].map(|id| encoded(&sample(id), id, &layout)).concat(), "it may be either");
        assert_eq!(mended(&Mend::new(&[clock]), &recorded), recorded, "a clock has samples of its own");
    }
}
