//! The rings of a watch: one for each CPU.
//!
//! What it is: on each CPU an [`RingOwner`]. All breakpoints on that CPU write into it, of whatever thread they are. What comes out are
//! owned records with their times.
//!
//! **Invariant:** what the rings had no room for is a number, with the time until which it is known.

use super::hit::{Hit, HitSide, HitValue};
use super::probe::{HitSample, WatchProbe};
use crate::error::Error;
use crate::ring_owner::RingOwner;
use crate::session::Session;
use crate::symbol::{Mapping, mapping_of};
use pmux_abi::attr::{Attr, SampleFormat};
use pmux_abi::record::{CommCause, CpuMode, Record, RecordHeader, SampleLayout, callchain, decode_record};
use pmux_engine::{CpuId, Nanos, PmuId};
use pmux_linux::Errno;
use pmux_linux::host::MappedRing;
use pmux_linux::worker::page_bytes;
use std::os::fd::BorrowedFd;

/// Pages of a ring, tried in this order: root may have what it wants, others what `perf_event_mlock_kb` leaves.
const RING_PAGES: [u32; 9] = [1024, 512, 256, 128, 64, 32, 8, 4, 2];
/// All rings of a watch together are no larger, where a machine has so many CPUs that they could be; those of CPUs that come later are
/// as large as the others.
const MOST_BYTES: u64 = 64 << 20;
/// A ring has no more pages where programs count and hardly anything is written.
const MOST_PAGES_COUNTED: u32 = 256;

#[derive(Debug)]
pub(super) struct WatchRecord {
    pub(super) at: Nanos,
    pub(super) what: WatchRecordKind,
}

impl WatchRecord {
    /// Which process executes another program, and when.
    pub(super) fn exec(&self) -> Option<(i32, Nanos)> {
        let WatchRecordKind::Name { pid, cause: CommCause::Exec, .. } = self.what else { return None };
        Some((pid, self.at))
    }
}

#[derive(Debug)]
pub(super) enum WatchRecordKind {
    /// A hit.
    Hit(Box<SeenHit>),
    /// A task has a new name.
    Name { pid: i32, tid: i32, name: String, cause: CommCause },
    /// A thread was started, or a process.
    Fork { pid: i32, tid: i32, parent: i32 },
    /// Something that can be executed was mapped.
    Mapped { pid: i32, mapping: Option<Mapping> },
    /// Records that the ring had no room for.
    Lost { records: u64 },
    /// The kernel held an event back.
    Throttled,
}

#[derive(Debug)]
pub(super) struct SeenHit {
    pub(super) hit: Hit,
    pub(super) by: SeenBy,
}

/// Who saw a hit. Of a thread that is armed twice, one is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SeenBy {
    /// The event with this id of the kernel.
    Event(u64),
    /// A program of this generation.
    Program(HitSample),
}

impl SeenBy {
    /// What tells two of them apart that see the same hit.
    pub(super) fn id(self) -> u64 {
        match self {
            Self::Event(id) => id,
            Self::Program(hit_sample) => Self::program(hit_sample.tag),
        }
    }

    /// The same of a program.
    pub(super) fn program(tag: u32) -> u64 {
        // The kernel counts its ids from 1 on.
        u64::MAX - u64::from(tag)
    }
}

pub(super) struct WatchRings {
    session: Session,
    ring_owners: Vec<RingOwner<MappedRing>>,
    pages: u32,
    layout: SampleLayout,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    EachHit,
    /// Programs count, and write some hits only.
    SomeHits,
}

/// The sizes of a ring to be tried, in pages of so many bytes.
fn sizes(cpus: usize, page_bytes: u64, load: Load) -> impl Iterator<Item = u32> {
    let least = RING_PAGES.iter().copied().min().unwrap_or(1);
    let fits = move |pages: u32| u64::from(pages) * page_bytes * cpus as u64 <= MOST_BYTES;
    let enough = if load == Load::SomeHits { MOST_PAGES_COUNTED } else { u32::MAX };
    RING_PAGES.into_iter().filter(move |&pages| pages == least || (pages <= enough && fits(pages)))
}

pub(super) fn with_records(attr: &mut Attr, max_stack: u16) {
    crate::tree::with_identity(attr);
    attr.sample |= SampleFormat::IP | SampleFormat::ADDR | SampleFormat::CPU;
    if max_stack > 0 {
        attr.sample |= SampleFormat::CALLCHAIN;
        attr.sample_max_stack = max_stack;
    }
}

impl WatchRings {
    /// Maps a ring for each of these CPUs and makes it the ring owner of `watch` there. `attr` is that of the breakpoints.
    pub(super) fn open(session: &Session, watch: PmuId, cpus: &[CpuId], attr: Attr, load: Load) -> Result<Self, Error> {
        let mut refused = Errno::ENOMEM;
        for pages in sizes(cpus.len(), page_bytes(), load) {
            let mut rings =
                Self { session: session.clone(), ring_owners: Vec::new(), pages, layout: SampleLayout::new(&attr) };
            // All in one size, or the first would take what the last ones need.
            match cpus.iter().try_for_each(|&cpu| rings.add(watch, cpu)) {
                Ok(()) => return Ok(rings),
                Err(Error::Ring { errno, .. }) => refused = errno,
                Err(error) => return Err(error),
            }
        }
        Err(Error::Ring { what: "mapping a ring for hits", errno: refused })
    }

    pub(super) fn add(&mut self, watch: PmuId, cpu: CpuId) -> Result<(), Error> {
        let what = "mapping a ring for hits";
        let ring_owner = RingOwner::open(&self.session, cpu, self.pages, what)?;
        let failed = |errno| Error::Ring { what, errno };
        self.session.engine().host().set_ring_owner(watch, cpu, ring_owner.lease()?).map_err(failed)?;
        self.ring_owners.push(ring_owner);
        Ok(())
    }

    pub(super) fn has(&self, cpu: CpuId) -> bool {
        self.ring_owners.iter().any(|ring_owner| ring_owner.cpu == cpu)
    }

    /// Leads an event that was opened without a ring owner into the ring of its CPU.
    pub(super) fn lead(&self, event: pmux_engine::EventId, cpu: CpuId) -> Result<(), Error> {
        let ring_owner = self.ring_owners.iter().find(|ring_owner| ring_owner.cpu == cpu);
        ring_owner.map_or(Ok(()), |ring_owner| ring_owner.lead(event))
    }

    /// What becomes readable when a ring fills up.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ring_owners.iter().map(|ring_owner| ring_owner.ring.fd())
    }

    pub(super) fn drain(&mut self, probe: Option<&WatchProbe>, into: &mut Vec<WatchRecord>) {
        let layout = &self.layout;
        for RingOwner { ring, .. } in &mut self.ring_owners {
            let mut garbled = 0;
            let mut latest = Nanos::ZERO;
            let drained = ring.ring.drain(&mut |bytes| {
                let layout = probe.and_then(|probe| probe.layout_of(bytes)).unwrap_or(layout);
                match entry(bytes, layout) {
                    Ok(Some((at, what))) => {
                        // All that events of a watch write has a time.
                        let at = at.unwrap_or(latest);
                        latest = latest.max(at);
                        into.push(WatchRecord { at, what });
                    }
                    Ok(None) => {}
                    Err(()) => garbled += 1,
                }
            });
            // The reader has found its way again; what it skipped is at least one record.
            garbled += u64::from(drained.is_err());
            if garbled > 0 {
                into.push(WatchRecord { at: latest, what: WatchRecordKind::Lost { records: garbled } });
            }
        }
    }
}

/// One record, as far as it matters here, and when that was.
fn entry(bytes: &[u8], layout: &SampleLayout) -> Result<Option<(Option<Nanos>, WatchRecordKind)>, ()> {
    let (record, id) = decode_record(bytes, layout).map_err(drop)?;
    let mut at = id.and_then(|id| id.time);
    let number = |id: u32| id.cast_signed();
    let what = match record {
        Record::Sample(sample) => {
            let mode = RecordHeader::decode(bytes).map(|header| header.misc.cpu_mode());
            let task = sample.task.unwrap_or_default();
            let ip = sample.ip.unwrap_or_default();
            let (by, address, stands_for) = match sample.raw {
                Some(raw) => {
                    let seen = HitSample::decode(raw).ok_or(())?;
                    (SeenBy::Program(seen), seen.address, seen.stands_for)
                }
                None => (SeenBy::Event(sample.identifier.unwrap_or_default()), sample.addr.unwrap_or_default(), 1),
            };
            let hit = Hit {
                at: Nanos(sample.time.unwrap_or_default()),
                pid: number(task.pid),
                tid: number(task.tid),
                cpu: sample.cpu.unwrap_or_default(),
                watch_target: 0,
                address,
                ip,
                side: side(mode.unwrap_or(CpuMode::Unknown)),
                callers: callers(ip, sample.callchain.into_iter().flat_map(|chain| chain.iter())),
                value: HitValue::Unreadable,
                stands_for,
            };
            return Ok(Some((sample.time.map(Nanos), WatchRecordKind::Hit(Box::new(SeenHit { hit, by })))));
        }
        Record::Comm(comm) => WatchRecordKind::Name {
            pid: number(comm.pid),
            tid: number(comm.tid),
            name: String::from_utf8_lossy(comm.comm).into_owned(),
            cause: comm.cause,
        },
        Record::Fork(task) => {
            at = at.or(Some(task.time));
            WatchRecordKind::Fork { pid: number(task.pid), tid: number(task.tid), parent: number(task.ppid) }
        }
        Record::Mmap2(mapping) => WatchRecordKind::Mapped { pid: number(mapping.pid), mapping: mapping_of(&mapping) },
        Record::Lost(lost) => WatchRecordKind::Lost { records: lost.lost },
        Record::Throttle(_) => WatchRecordKind::Throttled,
        _ => return Ok(None),
    };
    Ok(Some((at.map(Nanos), what)))
}

const fn side(mode: CpuMode) -> HitSide {
    let in_kernel = matches!(mode, CpuMode::Kernel | CpuMode::GuestKernel | CpuMode::Hypervisor);
    if in_kernel { HitSide::Kernel } else { HitSide::User }
}

/// A call chain without its marks and without the instruction itself.
fn callers(ip: u64, chain: impl Iterator<Item = u64>) -> Box<[u64]> {
    let mut addresses = chain.filter(|&entry| !callchain::is_mark(entry)).peekable();
    addresses.next_if_eq(&ip);
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rings_together_have_a_limit() {
        let first = |cpus, page, load| sizes(cpus, page, load).next();
        assert_eq!(first(2, 4096, Load::EachHit), Some(1024));
        assert_eq!(first(2, 4096, Load::SomeHits), Some(256));
        assert_eq!(first(24, 4096, Load::EachHit), Some(512));
        assert_eq!(first(256, 4096, Load::EachHit), Some(64));
        assert_eq!(first(256, 65536, Load::EachHit), Some(4));
        assert_eq!(first(100_000, 65536, Load::EachHit), Some(2), "a ring is needed in any case");
        assert!(sizes(16, 4096, Load::EachHit).eq(RING_PAGES));
    }

    #[test]
    fn a_chain_is_left_with_its_callers() {
        let chain = [callchain::KERNEL, 0xffff_8000, callchain::USER, 0x40_1000, 0x40_2000];
        assert_eq!(*callers(0xffff_8000, chain.into_iter()), [0x40_1000, 0x40_2000]);
        assert!(callers(0x40_1000, [callchain::USER, 0x40_1000].into_iter()).is_empty());
        assert_eq!(*callers(0x40_1000, [callchain::USER, 0x40_0fff].into_iter()), [0x40_0fff]);
        assert!(callers(1, std::iter::empty()).is_empty());
    }
}
