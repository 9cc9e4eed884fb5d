//! Following a command's tasks through rings.
//!
//! What it is: per CPU one tracking event with a ring, for forks, exits and names; and per counting event a ring of its own,
//! into which each task that exits reports what it has counted.
//!
//! Why a ring for each counting event: a task reports from whichever CPU it exits on, and the kernel's rings take one CPU at
//! a time only. Two tasks that exit at once would write over each other's records, or stop the ring for good
//! (seen with Linux 6.18: of 1,500 children that exited together some ten lacked a number). But the kernel holds a lock of
//! the counting event while it reports for it, so a ring into which nothing else is written is safe. The tracking events write on
//! the CPU that they are bound to.
//!
//! **Invariant:** records are taken in the order of their times, whichever CPU wrote them.

use super::entry::{TreeRecord, TreeRecordKind, entry};
use super::view::{Layout, Loss, ProcessTree, TaskNames};
use crate::error::Error;
use crate::owned_group::Owned;
use crate::ring_owner::CLOCK_MONOTONIC;
use crate::session::Session;
use pmux_abi::attr::{Attr, AttrFlags, EventType, ReadFormat, SampleFormat, Wakeup};
use pmux_abi::record::SampleLayout;
use pmux_engine::engine::SetRequest;
use pmux_engine::inherit::Attribution;
use pmux_engine::system_wide::{Absent, SetScope};
use pmux_engine::target::Opened;
use pmux_engine::{EventId, FamilyId, GroupSpec, Host as _, Nanos, ReadError, SetId, Target, TaskId};
use pmux_linux::Errno;
use pmux_linux::diagnose::{TargetKind, Whose};
use pmux_linux::host::{KERNEL, LinuxEngine, LinuxHost, MappedRing};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

/// Pages of a tracking ring and of a reporting ring, tried in this order: root may have what it wants, others what
/// `perf_event_mlock_kb` leaves.
const RING_PAGES: [(u32, u32); 5] = [(512, 128), (128, 64), (32, 16), (8, 8), (2, 2)];
/// A record may be seen so much later than its time says, because another CPU was still writing it.
pub(super) const LAG: Nanos = Nanos(2_000_000);
/// Bytes that the longest record of a ring may have, other than that of a mapping: a name with its identity.
const LONGEST_RECORD: u64 = 128;
/// Bytes of the longest record of a mapping: a path, and what all records have.
const LONGEST_MAPPING: u64 = 4096 + 128;

pub(crate) struct TreeFollower {
    events: Events,
    pub(crate) family: FamilyId,
    rings: Vec<MappedRing>,
    layout: SampleLayout,
    /// The count that a kernel event id belongs to.
    ids: HashMap<u64, usize>,
    columns: Vec<usize>,
    pending: Vec<TreeRecord>,
    names: TaskNames,
    lost: u64,
    /// How many rings were full when they were last drained: what is lost then is told only in front of the next record.
    full: u64,
    /// Whether a ring has been so full that the record of a mapping may be missing.
    may_lack_mappings: bool,
}

/// What a follower has opened, closed when it is dropped.
struct Events {
    holders: Vec<Owned<Opened>>,
    tracking: Owned<SetId>,
}

/// What an event needs so that exiting children report it.
pub(crate) fn make_reporting(attr: &mut Attr) {
    attr.flags |= AttrFlags::INHERIT_STAT;
    attr.read_format |= ReadFormat::ID;
    with_identity(attr);
}

/// Gives all records of an event who, when and which.
pub(crate) fn with_identity(attr: &mut Attr) {
    attr.flags |= AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID;
    attr.clock_id = CLOCK_MONOTONIC;
    attr.sample |= SampleFormat::TID | SampleFormat::TIME | SampleFormat::IDENTIFIER;
}

/// An event that counts nothing and needs no rights, with the record layout that all events of a follower have: so a record
/// can be read before it is known whose it is.
fn dummy(flags: AttrFlags) -> Attr {
    let mut attr = Attr {
        kind: EventType::SOFTWARE,
        config: pmux_abi::attr::sw::DUMMY,
        flags: flags | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV,
        read_format: ReadFormat::ID | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING,
        ..Attr::default()
    };
    with_identity(&mut attr);
    attr
}

/// A ring wants to be read when a quarter of it is full.
fn with_ring(attr: Attr, pages: u32) -> Attr {
    Attr { wakeup: Wakeup::Bytes(pages * 1024), ..attr }
}

/// An event of the root task that only holds a ring: a counting event that is inherited and follows its tasks to every
/// CPU can't be mapped itself.
///
/// Children do not inherit it, which serves another end too. On a switch between two tasks with equal sets of events the
/// kernel swaps the sets instead of re-programming them, and then the counts pair by pair. Between the root and a child
/// that goes wrong twice: the pairs need not be the same events (the root's are in the order of opening, a child's are
/// sorted), and the task that exits with the root's own events reports nothing. One event that is not inherited makes the
/// root's set unlike any child's. Children among themselves are swapped correctly: their sets are all sorted.
///
/// Seen with Linux 6.18: `perf record -s` lacks the numbers of one process in a pipeline for this reason.
fn holder_attr(pages: u32) -> Attr {
    // Without inheritance this flag does nothing, but that it marks an event with records.
    with_ring(dummy(AttrFlags::INHERIT_STAT), pages)
}

impl Events {
    /// Opens a tracking event for each CPU, and a holder for each of `counting` events, with their rings: those of the
    /// tracking events first.
    fn open(session: &Session, root: TaskId, counting: usize) -> Result<(Self, Vec<MappedRing>), Error> {
        let mut refused = Errno::ENOMEM;
        for pages in RING_PAGES {
            let events = Self::open_with(session, root, counting, pages)?;
            // All in one size, or the first would take what the last ones need.
            match events.map(pages)? {
                Ok(rings) => return Ok((events, rings)),
                Err(errno) => refused = errno,
            }
        }
        Err(Error::Ring { what: "mapping a ring for the process tree", errno: refused })
    }

    fn open_with(
        session: &Session,
        root: TaskId,
        counting: usize,
        (tracking, reporting): (u32, u32),
    ) -> Result<Self, Error> {
        let records = AttrFlags::TASK | AttrFlags::COMM | AttrFlags::COMM_EXEC | AttrFlags::MMAP;
        let tracking = with_ring(dummy(AttrFlags::INHERIT | records), tracking);
        let holder = holder_attr(reporting);
        let refused = |error, attr| Error::Refused(vec![session.refusal(error, attr, TargetKind::Task(Whose::Own))]);
        let (groups, mask) = (vec![GroupSpec::single(KERNEL, tracking)], session.engine().online());
        let request = SetRequest { groups, scope: SetScope::Task(root), mask, absent: Absent::Refuse };
        let tracking = session.hold_set(request).map_err(|error| refused(error.error, &tracking))?;
        let hold = || session.hold(&GroupSpec::single(KERNEL, holder), Target::task(root));
        let holders =
            (0..counting).map(|_| hold().map_err(|error| refused(error, &holder))).collect::<Result<_, _>>()?;
        Ok(Self { holders, tracking })
    }

    fn map(&self, (tracking, reporting): (u32, u32)) -> Result<Result<Vec<MappedRing>, Errno>, ReadError> {
        let engine = self.tracking.session.engine();
        let trackers = engine.set_events(*self.tracking)?.into_iter().flat_map(|(_, events)| events);
        let holders = self.holders.iter().flat_map(|opened| opened.events.iter().copied());
        let events = trackers.map(|event| (event, tracking)).chain(holders.map(|event| (event, reporting)));
        let mut rings = Vec::new();
        for (event, pages) in events {
            match engine.host().map_ring(engine.lease(event)?, pages) {
                Ok(ring) => rings.push(ring),
                Err(errno) => return Ok(Err(errno)),
            }
        }
        Ok(Ok(rings))
    }

    /// Leads the reports of each counting event into the ring of its holder; answers their kernel ids.
    fn lead(&self, counting: &[EventId]) -> Result<HashMap<u64, usize>, Error> {
        let engine = self.tracking.session.engine();
        let host = engine.host();
        let failed = |what| move |errno| Error::Ring { what, errno };
        let mut ids = HashMap::new();
        let holders = self.holders.iter().flat_map(|opened| opened.events.iter().copied());
        for (index, (&event, holder)) in counting.iter().zip(holders).enumerate() {
            let (from, to) = (engine.lease(event)?, engine.lease(holder)?);
            host.redirect(from, to).map_err(failed("leading an event's reports into the ring"))?;
            ids.insert(host.kernel_id(from).map_err(failed("asking for an event's id"))?, index);
        }
        Ok(ids)
    }
}

impl TreeFollower {
    /// Follows the held command `pid`, for which events are open, each with its column.
    pub(crate) fn open(session: &Session, pid: i32, counted: &[(usize, EventId)]) -> Result<Self, Error> {
        let engine = session.engine();
        let root = LinuxHost::task(pid);
        let (columns, counting): (Vec<_>, Vec<_>) = counted.iter().copied().unzip();
        let (events, rings) = Events::open(session, root, counting.len())?;
        let ids = events.lead(&counting)?;
        let mut roots: Vec<_> = counting.into_iter().map(|event| vec![event]).collect();
        if roots.is_empty() {
            // A family has at least one count: here that of the tracking events, which is always 0 and in no column.
            roots.push(engine.set_events(*events.tracking)?.into_iter().flat_map(|(_, events)| events).collect());
        }
        engine.enable_set(*events.tracking)?;
        let family = engine.create_tree(root, roots, Attribution::EachTask).ok_or(ReadError::Closed)?;
        Ok(Self {
            events,
            family,
            rings,
            layout: SampleLayout::new(&dummy(AttrFlags::empty())),
            ids,
            columns,
            pending: Vec::new(),
            names: TaskNames::new(pid),
            lost: 0,
            full: 0,
            may_lack_mappings: false,
        })
    }

    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.iter().map(MappedRing::fd).collect()
    }

    /// Takes in what the rings hold, but for the newest records, which may still have company coming.
    pub(crate) fn follow(&mut self, engine: &LinuxEngine) -> Result<(), Error> {
        let now = engine.host().now();
        self.drain();
        self.digest(engine, Nanos(now.0.saturating_sub(LAG.0)));
        Ok(())
    }

    fn drain(&mut self) {
        let (pending, layout) = (&mut self.pending, &self.layout);
        let mut garbled = 0;
        self.full = 0;
        for ring in &mut self.rings {
            let free = ring.ring.capacity_bytes().saturating_sub(ring.ring.waiting_bytes());
            self.full += u64::from(free < LONGEST_RECORD);
            self.may_lack_mappings |= free < LONGEST_MAPPING;
            let result = ring.ring.drain(&mut |bytes| match entry(bytes, layout) {
                Ok(Some(entry)) => pending.push(entry),
                Ok(None) => {}
                Err(()) => garbled += 1,
            });
            // The reader has found its way again; what it skipped is at least one record.
            garbled += u64::from(result.is_err());
        }
        self.lost += garbled;
    }

    fn digest(&mut self, engine: &LinuxEngine, until: Nanos) {
        // Stable: the records of one CPU are in their order already.
        self.pending.sort_by_key(|entry| entry.at);
        let ready = self.pending.partition_point(|entry| entry.at <= until);
        for TreeRecord { at, what } in self.pending.drain(..ready) {
            match what {
                TreeRecordKind::Fork { pid, tid, parent } => {
                    let (parent, child) = (LinuxHost::task(parent), LinuxHost::task(tid));
                    let joined = engine.with_family(self.family, |family| family.fork(parent, child, at));
                    match joined {
                        Some(Ok(task_id)) => self.names.born(engine, self.family, task_id, pid, tid),
                        // Its parent's own fork was lost.
                        _ => self.lost += 1,
                    }
                }
                TreeRecordKind::Name { tid, name, exec } => self.names.named(engine, self.family, tid, name, exec, at),
                TreeRecordKind::Mapped { tid } => {
                    engine.with_family(self.family, |family| self.names.mapped(family, tid));
                }
                TreeRecordKind::Read { tid, id, count } => {
                    // An id that isn't ours can't come out of our rings, but for a garbled record.
                    match self.ids.get(&id) {
                        Some(&index) => {
                            // The index is ours, so the family has it.
                            let _ = engine.child_reported(self.family, LinuxHost::task(tid), index, count);
                        }
                        None => self.lost += 1,
                    }
                }
                TreeRecordKind::Exit { tid } => {
                    engine.with_family(self.family, |family| self.names.exiting(family, tid, at));
                    // The exit of a task whose fork was lost tells nothing.
                    let _ = engine.child_exited(self.family, LinuxHost::task(tid), at);
                }
                TreeRecordKind::Lost { records } => self.lost += records,
            }
        }
    }

    /// Takes in all that was written until now, which is everything where the tasks stand still. Where they run, a ring that
    /// was read first may lack what came before records of the others: those wait.
    pub(crate) fn settle(&mut self, engine: &LinuxEngine) {
        let now = engine.host().now();
        self.drain();
        self.digest(engine, now);
    }

    /// How many records were lost, as far as is known.
    pub(crate) fn lost(&self) -> u64 {
        self.lost + self.full
    }

    /// Takes in everything and draws the tree. Numbers are in `width` columns.
    pub(crate) fn finish(&mut self, engine: &LinuxEngine, width: usize) -> Result<ProcessTree, Error> {
        self.settle(engine);
        let tallies = engine.read_family(self.family)?;
        let reports = u32::try_from(self.columns.len()).unwrap_or(u32::MAX);
        let loss = if self.lost() == 0 { Loss::None } else { Loss::Some };
        // Asked before: the family is looked at under a lock that allows no call of the host.
        let now = engine.host().now();
        let tree = engine.with_family(self.family, |family| {
            let mappings = if self.may_lack_mappings { Loss::Some } else { loss };
            let layout = Layout { columns: &self.columns, width, reports, loss, mappings };
            self.names.tree(family, &tallies, &layout, now)
        });
        let mut tree = tree.ok_or(ReadError::Closed)?;
        tree.lost_records = tree.lost_records.max(self.lost());
        Ok(tree)
    }
}

impl Drop for TreeFollower {
    fn drop(&mut self) {
        self.events.tracking.session.engine().destroy_tree(self.family);
    }
}
