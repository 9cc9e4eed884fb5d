//! Dummy events: they count nothing, and write records about tasks into a ring for each CPU.
//!
//! **Invariant:** what can't be read of a ring counts as lost.
//!
//! Source: `perf_event_open(2)`, `PERF_COUNT_SW_DUMMY`.

use crate::host::bytes_of;
use crate::ring::Ring;
use crate::sys::Errno;
use crate::sys::perf::{self, TargetTask};
use pmux_abi::attr::{Attr, AttrFlags, EventType, SampleFormat, sw};
use pmux_abi::record::{Record, SampleId, SampleLayout, decode_record};
use std::os::fd::{AsFd as _, OwnedFd};

pub(crate) fn dummy(flags: AttrFlags) -> Attr {
    Attr {
        kind: EventType::SOFTWARE,
        config: sw::DUMMY,
        flags: flags | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | AttrFlags::SAMPLE_ID_ALL,
        sample: SampleFormat::TID | SampleFormat::IDENTIFIER,
        ..Attr::default()
    }
}

/// Opens one on a task and a CPU; it writes where `output` does, if that is given.
pub(crate) fn open(attr: &Attr, tid: i32, cpu: u32, output: Option<&OwnedFd>) -> Result<OwnedFd, Errno> {
    let (bytes, target_task) = (bytes_of(attr), TargetTask::Task(tid.unsigned_abs()));
    match output {
        Some(output) => perf::open_into(&bytes, target_task, cpu, output.as_fd()),
        None => perf::open(&bytes, target_task, Some(cpu), None),
    }
}

/// Dummy events of a task, one for each CPU, with their rings.
#[derive(Debug)]
pub(crate) struct DummyRings {
    rings: Vec<(u32, OwnedFd, Ring)>,
    layout: SampleLayout,
    lost: u64,
}

impl DummyRings {
    /// Opens the events, and maps a ring of so many pages for each.
    ///
    /// Errors: those of `perf_event_open(2)` and `mmap(2)`.
    pub(crate) fn open(attr: &Attr, tid: i32, cpus: impl IntoIterator<Item = u32>, pages: u32) -> Result<Self, Errno> {
        let ring = |cpu| {
            let fd = open(attr, tid, cpu, None)?;
            let ring = Ring::map(fd.as_fd(), pages)?;
            Ok((cpu, fd, ring))
        };
        let rings = cpus.into_iter().map(ring).collect::<Result<_, Errno>>()?;
        Ok(Self { rings, layout: SampleLayout::new(attr), lost: 0 })
    }

    /// The CPUs, and the events whose rings others may write into.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (u32, &OwnedFd)> {
        self.rings.iter().map(|(cpu, fd, _)| (*cpu, fd))
    }

    /// Takes what was written since the last call, but for the records of losses; what one CPU has written in its order.
    pub(crate) fn drain(&mut self, take: &mut dyn FnMut(Record<'_>, Option<SampleId>)) {
        let Self { rings, layout, lost } = self;
        for (_, _, ring) in rings {
            let drained = ring.drain(&mut |bytes| match decode_record(bytes, layout) {
                Ok((Record::Lost(record), _)) => *lost += record.lost,
                Ok((record, id)) => take(record, id),
                Err(_) => *lost += 1,
            });
            *lost += u64::from(drained.is_err());
        }
    }

    /// How many records there was no room for.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }
}
