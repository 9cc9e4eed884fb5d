//! Waits, seen by events: where programs in the kernel can't be had.
//!
//! What it is: a recorder of its own ([`Recorder`]) takes a sample each time a thread leaves its CPU, records of switches, and where that is
//! allowed a sample each time a thread is woken; `switch_match` puts waits together. Each switch costs a few times as much as programs do.
//! Read first: [`SwitchWaits::drain`].
//!
//! **Invariant:** what is told is in the order of the kernel's times: what another CPU may still tell of is waited for.

use super::off_cpu::{EVENTS, Encoder, MISSED, SeesWaits};
use super::open::Switch;
use super::ours::Taken;
use super::shared::ServiceNews;
use super::switch_match::{SwitchItem, SwitchMatch, SwitchTarget, SwitchTold, SwitchWhat};
use super::{CallChain, Keep, Rate, RecordMode, RecordOptions, Recorder};
use crate::error::Error;
use crate::event::{Event, EventList, Software};
use crate::perf_data::EventDesc;
use crate::perf_data::tracing::tracing_data;
use crate::profile::formats::{Field, FieldValue, Formats};
use crate::target::{Inherit, Target};
use pmux_abi::attr::EventType;
use pmux_abi::record::{
    CommCause, Record, RecordHeader, RecordKind, Records, SampleLayout, SwitchDirection, TaskId, callchain,
    decode_record,
};
use pmux_linux::off_cpu::wait_for_programs;
use pmux_linux::procfs::Proc;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

/// The ids of the events in the file: no event of the kernel has such numbers, nor have regions.
const IDS: [u64; EVENTS.len()] = [(1 << 62) + 1, (1 << 62) + 2, (1 << 62) + 3];
/// Where a thread was that was not seen to leave: a wait without any place is a sum of many.
const NOWHERE: [u64; 2] = [callchain::USER, 1];
/// The events of the recorder.
const LEAVES: usize = 0;
const WAKES: usize = 1;

pub(super) struct SwitchWaits {
    recorder: Recorder,
    /// By the id of an event: which one, and its layout.
    by_id: HashMap<u64, (usize, SampleLayout)>,
    leaves: SampleLayout,
    tracking: SampleLayout,
    /// Where in a sample of a wake-up the thread's number stands; `None` where it is not known who ends waits.
    pub(super) wakes: Option<(Formats, u64)>,
    found: SwitchMatch,
    /// What is not told yet: another CPU may tell of something that was before.
    waiting: Vec<SwitchItem>,
    /// When it was looked last: what was before has come.
    looked_ns: u64,
    /// Whether the service is away that tells, and when it was seen last that it had gone or come back.
    is_away: bool,
    gap_ns: u64,
    since_ns: Option<u64>,
    until_ns: Option<u64>,
    /// The process with whose exec recording begins.
    awaited: Option<u32>,
    /// What was found, until it is taken.
    told: Taken,
    layout: SampleLayout,
    first_index: usize,
    is_led: bool,
    scratch: Box<[u8]>,
}

impl SwitchWaits {
    /// Opens the events on the target of a recorder, through the service where that does; they tell nothing before [`SeesWaits::enable`].
    pub(super) fn open(
        of: &Recorder,
        target: &Target<'_>,
        (first_index, file): (usize, &EventDesc),
    ) -> Result<Self, Error> {
        let Recorder { session, options, .. } = of;
        let least_ns = options.off_cpu.unwrap_or(0);
        let leaves = || Event::software(Software::ContextSwitches);
        let options = RecordOptions {
            rate: Rate::Period(1),
            call_chain: CallChain::FramePointers,
            inherit: options.inherit,
            start: options.start,
            switches: Keep::Record,
            cpus: Keep::Record,
            ring_bytes: options.ring_bytes,
            ..RecordOptions::default()
        };
        let open = |events| match of.shared {
            Some(_) => Recorder::subscribe(session, events, target, options.clone()),
            None => Recorder::open_as(session, events, target, options.clone(), RecordMode::default()),
        };
        // In another PID namespace, tracepoints tell other numbers than switches do.
        let wakes = Proc::system()
            .is_in_first_pid_namespace()
            .then(|| Event::tracepoint(session.catalog(), "sched", "sched_waking"));
        let both = wakes.and_then(Result::ok).map(|wakes| open(EventList::from_iter([leaves(), wakes])));
        let mut recorder = match both {
            Some(Ok(recorder)) => recorder,
            _ => open(EventList::from(leaves()))?,
        };
        recorder.take_what_came_early(|_| {});
        let wakes = match recorder.descs.get(WAKES) {
            Some(desc) if desc.attr.kind == EventType::TRACEPOINT => {
                let files = session.catalog().formats_of(&[("sched", "sched_waking")]).map_err(Error::Catalog)?;
                Some((Formats::parse(&tracing_data(&files, pmux_linux::page_bytes()).1), desc.attr.config))
            }
            _ => None,
        };
        let pid_of = |tid: i32| Proc::system().process_of(tid).unwrap_or(tid).cast_unsigned();
        let named = recorder.tids.iter().map(|&tid| TaskId { pid: pid_of(tid), tid: tid.cast_unsigned() });
        let threads = match (target, options.inherit) {
            (Target::Cpus(_), _) => SwitchTarget::All,
            (_, Inherit::Children) => SwitchTarget::WithChildren,
            (_, Inherit::None) => SwitchTarget::WithoutChildren,
        };
        let mut found = SwitchMatch::new(threads, least_ns, is_of_program);
        named.for_each(|task| found.know(task));
        let mut waits = Self {
            by_id: HashMap::new(),
            leaves: recorder.descs.first().map(|desc| SampleLayout::new(&desc.attr)).unwrap_or_default(),
            tracking: recorder.descs.last().map(|desc| SampleLayout::new(&desc.attr)).unwrap_or_default(),
            wakes,
            found,
            waiting: Vec::new(),
            looked_ns: 0,
            is_away: false,
            gap_ns: 0,
            since_ns: None,
            until_ns: None,
            awaited: None,
            told: Taken::default(),
            layout: SampleLayout::new(&file.attr),
            first_index,
            is_led: false,
            scratch: vec![0; RecordHeader::MAX_RECORD].into_boxed_slice(),
            recorder,
        };
        waits.learn_ids();
        Ok(waits)
    }

    fn learn_ids(&mut self) {
        // Its own file is none.
        for (which, id) in self.recorder.fresh.drain(..) {
            self.recorder.descs[which].ids.push(id);
        }
        for (which, desc) in self.recorder.descs.iter().enumerate() {
            let layout = SampleLayout::new(&desc.attr);
            self.by_id.extend(desc.ids.iter().map(|&id| (id, (which, layout))));
        }
    }

    /// Takes out what the kernel has told, and finds waits in what was before `until_ns`.
    fn drain(&mut self, until_ns: u64) {
        let (mut records, mut is_broken, before_ns) = (Vec::new(), false, pmux_linux::now_ns());
        let news = self.recorder.read_shared(&mut records);
        match news {
            Some(Ok(ServiceNews::Events)) => self.meet_new_events(pmux_linux::now_ns()),
            Some(Ok(ServiceNews::AnotherLife)) => self.gap(before_ns),
            Some(Ok(ServiceNews::Away)) if !self.is_away => self.gap(before_ns),
            Some(Err(_)) => is_broken = true,
            _ => {}
        }
        self.is_away = matches!(news, Some(Ok(ServiceNews::Away)));
        for ring in self.recorder.rings.each() {
            is_broken |= ring.drain(&mut |record| records.extend_from_slice(record)).is_err();
        }
        if is_broken {
            self.waiting.push(SwitchItem { at_ns: pmux_linux::now_ns(), cpu: 0, what: SwitchWhat::Lost });
        }
        let told: Vec<_> = Records::new(&records).flatten().filter_map(|record| self.item(record)).collect();
        self.waiting.extend(told);
        crate::order::sort_by_key(&mut self.waiting, |item| item.at_ns);
        let ready = self.waiting.partition_point(|item| item.at_ns < until_ns);
        let ready: Vec<_> = self.waiting.drain(..ready).collect();
        ready.into_iter().for_each(|item| self.find(item));
    }

    /// Where threads are is not known at that time: something may have happened of which nothing was told.
    fn meet_new_events(&mut self, at_ns: u64) {
        self.learn_ids();
        self.waiting.push(SwitchItem { at_ns, cpu: 0, what: SwitchWhat::CpuCame });
    }

    /// A service has gone, or come back: what it sent last was before.
    fn gap(&mut self, at_ns: u64) {
        self.gap_ns = at_ns;
        self.meet_new_events(at_ns);
    }

    /// Whether it is known then where threads are.
    fn knows(&self, at_ns: u64) -> bool {
        !self.is_away && self.gap_ns <= at_ns
    }

    /// What a record says of switches.
    fn item(&self, record: &[u8]) -> Option<SwitchItem> {
        let (which, layout) = match RecordHeader::decode(record).ok()?.kind {
            RecordKind::SAMPLE => {
                // Where others count switches, too, Linux 6.18 writes their id.
                let known = self.tracking.event_id(record).and_then(|id| self.by_id.get(&id));
                known.copied().unwrap_or((LEAVES, self.leaves))
            }
            _ => (usize::MAX, self.tracking),
        };
        let (decoded, id) = decode_record(record, &layout).ok()?;
        let cpu = match &decoded {
            Record::Sample(sample) => sample.cpu,
            _ => id.and_then(|id| id.cpu),
        };
        let wakes = self.wakes.as_ref().and_then(|(formats, id)| formats.get(*id)?.field("pid"));
        let what = what(decoded, which, id.and_then(|id| id.task), wakes)?;
        Some(SwitchItem { at_ns: layout.time(record)?, cpu: cpu.unwrap_or_default(), what })
    }

    /// As [`SwitchWaits::drain`], of all that has happened by now; answers when that is.
    fn drain_now(&mut self) -> u64 {
        let now_ns = pmux_linux::now_ns();
        // What is being written is to be there.
        wait_for_programs();
        self.drain(now_ns);
        now_ns
    }

    fn find(&mut self, item: SwitchItem) {
        if let (SwitchWhat::Executed(pid), Some(awaited)) = (&item.what, self.awaited)
            && *pid == awaited
            // An exec behind the end begins nothing.
            && self.until_ns.is_none_or(|until_ns| item.at_ns <= until_ns)
        {
            (self.awaited, self.since_ns) = (None, Some(item.at_ns));
            self.found.begin(item.at_ns);
        }
        let is_recorded = self.since_ns.is_some_and(|since_ns| item.at_ns >= since_ns)
            && self.until_ns.is_none_or(|until_ns| item.at_ns <= until_ns);
        let Self { found, told, layout, scratch, .. } = self;
        match item.what {
            _ if is_recorded => found.take(item, &mut |wait| encode(wait, layout, scratch, told)),
            // It may still be there when recording begins, or goes on.
            SwitchWhat::Born(task) if found.follows_children() => found.know(task),
            SwitchWhat::Ended(task) => found.forget(task),
            _ => {}
        }
    }

    /// Waits that go on at that time, as if they ended then.
    fn under_way_at(&mut self, at_ns: u64) -> Taken {
        let sleeps = |tid: u32| {
            let stat = Proc::system().thread_stat(tid.cast_signed());
            stat.is_ok_and(|stat| matches!(stat.state, 'S' | 'D' | 'T' | 't'))
        };
        let mut taken = Taken::default();
        let (layout, scratch) = (&self.layout, &mut self.scratch);
        self.found.under_way(at_ns, sleeps, &mut |wait| encode(wait, layout, scratch, &mut taken));
        taken
    }
}

impl SeesWaits for SwitchWaits {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.recorder.fds()
    }

    fn lead(&mut self, fresh: &mut Vec<(usize, u64)>) -> Result<(), Error> {
        if !std::mem::replace(&mut self.is_led, true) {
            fresh.extend(IDS.iter().enumerate().map(|(which, &id)| (self.first_index + which, id)));
            return Ok(());
        }
        let followed = self.recorder.follow_cpus();
        if !self.recorder.fresh.is_empty() {
            self.meet_new_events(pmux_linux::now_ns());
        }
        followed
    }

    fn enable(&mut self) -> Result<(), Error> {
        if self.since_ns.is_some() && self.until_ns.is_none() {
            return Ok(());
        }
        // Records of before, which nothing has taken out, leave no room for those that come.
        self.drain(0);
        self.recorder.enable()?;
        let now_ns = pmux_linux::now_ns();
        (self.since_ns, self.until_ns, self.awaited) = (Some(now_ns), None, None);
        // What is still waiting was before.
        self.drain(now_ns);
        self.found.begin(now_ns);
        Ok(())
    }

    fn enable_on_exec(&mut self, pid: i32) -> Result<(), Error> {
        self.recorder.sampling = Switch::On;
        self.awaited = Some(pid.cast_unsigned());
        Ok(())
    }

    fn disable(&mut self) -> Result<(), Error> {
        self.until_ns = Some(pmux_linux::now_ns());
        self.recorder.disable()
    }

    fn end_waits(&mut self) {
        let Some(until_ns) = self.until_ns else { return };
        // What is being written is to be there.
        wait_for_programs();
        self.drain(u64::MAX);
        self.awaited = None;
        if self.since_ns.take().is_some() && self.knows(until_ns) {
            let taken = self.under_way_at(until_ns);
            self.told.append(taken);
        }
    }

    fn waits_under_way(&mut self) -> Result<Option<(u64, Taken)>, Error> {
        let now_ns = self.drain_now();
        let taken = if self.knows(now_ns) { self.under_way_at(now_ns) } else { Taken::default() };
        Ok(self.since_ns.is_some().then_some((now_ns, taken)))
    }

    /// What came last is told with the next call.
    fn take(&mut self, enough_bytes: u64) -> Taken {
        let until_ns = std::mem::replace(&mut self.looked_ns, pmux_linux::now_ns());
        self.drain(until_ns);
        // Where there is no room for it, it comes with the next file, if there is one.
        if self.told.records.len() as u64 > enough_bytes { Taken::default() } else { std::mem::take(&mut self.told) }
    }

    fn sums_at(&mut self, at_ns: u64) -> Taken {
        let mut taken = Taken::default();
        let mut encoder = Encoder { layout: &self.layout, copies: None, ids: IDS, cpu: 0, scratch: &mut self.scratch };
        for (task, sum) in self.found.take_sums() {
            encoder.sums(task, at_ns, (sum.blocked_ns, sum.runnable_ns), &mut taken);
        }
        taken
    }

    fn settle(&mut self) {
        self.drain_now();
    }

    fn since_ns(&self) -> Option<u64> {
        self.since_ns
    }

    fn ended_ns(&self) -> Option<u64> {
        self.until_ns
    }

    fn unseen(&self) -> u64 {
        self.found.missed + self.found.lost
    }

    fn losses(&self) -> Vec<String> {
        let what = "times records of switches were lost: waits of that time are missing (a larger ring: -m)";
        let lost = (self.found.lost > 0).then(|| format!("{} {what}", self.found.lost));
        let refused =
            self.recorder.refused_again().map(|why| format!("waits are missing since the service was away: {why}"));
        lost.into_iter().chain(refused).collect()
    }

    fn misses(&self) -> Option<String> {
        (self.found.missed > 0).then(|| format!("{} {MISSED}", self.found.missed))
    }
}

/// What a record says of switches.
fn what(record: Record<'_>, which: usize, task: Option<TaskId>, wakes: Option<&Field>) -> Option<SwitchWhat> {
    Some(match record {
        Record::Sample(sample) => {
            let chain = sample.callchain.map(|chain| chain.iter().collect()).unwrap_or_default();
            match which {
                LEAVES => SwitchWhat::Where(sample.task.filter(is_thread)?, chain),
                WAKES => {
                    let tid = match wakes?.value(sample.raw?)? {
                        FieldValue::Signed(tid) => u32::try_from(tid).ok()?,
                        FieldValue::Unsigned(tid) => u32::try_from(tid).ok()?,
                        _ => return None,
                    };
                    SwitchWhat::Woken { tid, waker: sample.task?, chain }
                }
                _ => return None,
            }
        }
        Record::Switch(direction) => switched(direction, task?)?,
        Record::SwitchCpuWide(switch) => switched(switch.direction, task?)?,
        Record::Fork(born) => SwitchWhat::Born(TaskId { pid: born.pid, tid: born.tid }),
        Record::Exit(ended) => SwitchWhat::Ended(TaskId { pid: ended.pid, tid: ended.tid }),
        Record::Comm(comm) if comm.cause == CommCause::Exec => SwitchWhat::Executed(comm.pid),
        Record::Lost(_) | Record::LostSamples(_) => SwitchWhat::Lost,
        _ => return None,
    })
}

fn switched(direction: SwitchDirection, task: TaskId) -> Option<SwitchWhat> {
    is_thread(&task).then_some(match direction {
        SwitchDirection::In => SwitchWhat::Came(task),
        SwitchDirection::Out => SwitchWhat::Left { task, is_preempted: false },
        SwitchDirection::OutPreempted => SwitchWhat::Left { task, is_preempted: true },
    })
}

/// What idles is none, and what has ended has no number any more.
fn is_thread(task: &TaskId) -> bool {
    task.tid != 0 && task.tid != u32::MAX
}

fn encode(told: SwitchTold, layout: &SampleLayout, scratch: &mut [u8], taken: &mut Taken) {
    let mut encoder = Encoder { layout, copies: None, ids: IDS, cpu: 0, scratch };
    match told {
        SwitchTold::Wait { task, cpu, left_ns, runnable_ns, came_ns, chain } => {
            encoder.cpu = cpu;
            let chain = if chain.is_empty() { &NOWHERE[..] } else { &chain };
            encoder.wait(task, (left_ns, runnable_ns, came_ns), (0, None), (chain, None), taken);
        }
        SwitchTold::Wake { task, cpu, woken_tid, left_ns, woken_ns, chain } => {
            encoder.cpu = cpu;
            encoder.wake(task, (left_ns, woken_ns), woken_tid, (&chain, None), taken);
        }
    }
}

fn is_of_program(tid: u32) -> bool {
    let stat = Proc::system().thread_stat(tid.cast_signed());
    // Who has ended meanwhile was one: those of the kernel seldom do.
    stat.map_or(true, |stat| !stat.is_of_kernel())
}
