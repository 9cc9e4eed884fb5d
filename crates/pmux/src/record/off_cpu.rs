//! Waits, as samples of two events: until a thread was woken (`offcpu-time`), and until it had a CPU then (`runqueue-time`); and a third
//! one (`waker-time`) of the threads that woke others, whose period is for how long those had waited.
//!
//! What it is: programs in the kernel write a record for each wait ([`pmux_linux::off_cpu`]), into rings of its own; here it becomes
//! samples as perf's `offcpu-time` has them: the period is the wait's length, the call chain is where the thread waited, the time is
//! when it had a CPU again, or when recording ended. Both samples of one wait stand one behind the other. What the kernel has only added up (short waits, and
//! what found no room) are samples without a call chain at the end.
//!
//! **Invariant:** no time is in two samples, and none that a program has seen is in none.

use super::attrs;
use super::existing::is_alive;
use super::open::EventRole;
use super::ours::{OTHERS, OurSample, Taken};
use super::rings::Rings;
use super::switches::SwitchWaits;
use super::{CallChain, Recorder};
use crate::error::Error;
use crate::owned_group::Owned;
use crate::perf_data::EventDesc;
use crate::profile::weight_of;
use crate::refusal::Refusal;
use crate::session::{Session, SharedChoice};
use crate::target::{CpuChoice, Inherit, Target};
use pmux_abi::attr::{Attr, AttrFlags, EventType, SampleFormat, Sampling, Wakeup, sw};
use pmux_abi::record::{Record, RecordHeader, Sample, SampleLayout, TaskId, callchain, decode_record};
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::engine::SetRequest;
use pmux_engine::host::Host as _;
use pmux_engine::system_wide::{Absent, SetScope};
use pmux_engine::{CgroupId, CpuId, EventId, GroupSpec, SetId};
use pmux_linux::cgroup::Mounts;
use pmux_linux::cpus::Cpus;
use pmux_linux::diagnose::ReasonKind;
use pmux_linux::host::KERNEL;
use pmux_linux::off_cpu::{
    CopiedStack, OffCpuChildren, OffCpuProbe, OffCpuRecord, OffCpuTarget, RegisterPlaces, ShortWaits, Stack,
    UserStacks, Wait, Wake,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::BorrowedFd;

/// The events, in their order in the file.
pub(super) const EVENTS: [&str; 3] = ["offcpu-time", "runqueue-time", "waker-time"];
const BLOCKED: usize = 0;
const RUNNABLE: usize = 1;
const WAKES: usize = 2;

/// What samples of these have, which the kernel does not write.
const OURS: SampleFormat =
    SampleFormat::PERIOD.union(SampleFormat::CALLCHAIN).union(SampleFormat::ADDR).union(SampleFormat::WEIGHT);

/// What each of them is in the file, before all events get the same words behind their records.
pub(super) fn attr(like: &Attr, call_chain: CallChain) -> Attr {
    let identity = AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID;
    let mut attr = Attr {
        kind: EventType::SOFTWARE,
        config: sw::BPF_OUTPUT,
        sampling: Sampling::Period(1),
        sample: like.sample | OURS,
        read_format: like.read_format,
        flags: like.flags.intersection(identity),
        clock_id: like.clock_id,
        wakeup: Wakeup::Bytes(0),
        ..Attr::default()
    };
    if matches!(call_chain, CallChain::Dwarf { .. }) {
        attrs::with_call_chain(&mut attr, call_chain);
    }
    attr
}

/// What the kernel is asked for in its place: the records of programs.
fn output(file: &Attr) -> Attr {
    let ours = OURS | SampleFormat::REGS_USER | SampleFormat::STACK_USER;
    Attr {
        sample: file.sample.difference(ours) | SampleFormat::RAW,
        flags: file.flags.difference(AttrFlags::EXCLUDE_CALLCHAIN_USER),
        sample_regs_user: 0,
        sample_stack_user: 0,
        ..*file
    }
}

pub(crate) trait SeesWaits: Send {
    /// What becomes readable when a ring fills up.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;
    /// Leads what tells of waits into rings, also on CPUs that have come; ids that are new go behind `fresh`, each with its event.
    fn lead(&mut self, fresh: &mut Vec<(usize, u64)>) -> Result<(), Error>;
    fn enable(&mut self) -> Result<(), Error>;
    /// Records from the next exec of a process on.
    fn enable_on_exec(&mut self, pid: i32) -> Result<(), Error>;
    fn disable(&mut self) -> Result<(), Error>;
    /// Looks at what has a CPU already, and what sleeps, once the events are switched on.
    fn mark_running(&self) {}
    /// Looks at what still waits, once the events are switched off: it is taken behind what is in the rings.
    fn end_waits(&mut self);
    /// What waits now, as if it ended now, and when that is. `None` where nothing is recorded.
    fn waits_under_way(&mut self) -> Result<Option<(u64, Taken)>, Error>;
    /// Takes out what waits in the rings, until it is so many bytes: the rest stays there.
    fn take(&mut self, enough_bytes: u64) -> Taken;
    /// What was added up only since the last call, as samples of that time.
    fn sums_at(&mut self, at_ns: u64) -> Taken;
    /// All that has happened is told by the next [`SeesWaits::take`], where something is held back.
    fn settle(&mut self) {}
    /// Since when is recorded; `None` where it is not.
    fn since_ns(&self) -> Option<u64>;
    fn ended_ns(&self) -> Option<u64>;
    /// How many waits were not seen as a whole so far.
    fn unseen(&self) -> u64;
    fn losses(&self) -> Vec<String>;
    /// That threads were not seen to leave or to come back, in a sentence.
    fn misses(&self) -> Option<String>;

    /// As [`SeesWaits::waits_under_way`], and what short waits came to since the last call.
    fn waits_now(&mut self) -> Result<Option<(u64, Taken)>, Error> {
        let Some((at_ns, mut taken)) = self.waits_under_way()? else { return Ok(None) };
        taken.append(self.sums_at(at_ns.saturating_sub(1)));
        Ok(Some((at_ns, taken)))
    }

    /// What was added up only since the last call, as samples of now, or of the end of recording.
    fn take_sums(&mut self) -> Taken {
        let at_ns = self.ended_ns().unwrap_or_else(pmux_linux::now_ns);
        self.sums_at(at_ns)
    }
}

/// Has waits seen by programs in the kernel, or where these can't be had by events; then it is said why.
///
/// # Errors
/// [`Error::Refused`] where neither can be had; [`Error::Options`]; [`Error::Ring`].
pub(super) fn open(recorder: &Recorder, target: &Target<'_>) -> Result<(Box<dyn SeesWaits>, Option<String>), Error> {
    let Recorder { options, descs, tracking_index, .. } = recorder;
    let first = tracking_index - EVENTS.len();
    let desc = (first, &descs[first]);
    let is_copied = matches!(options.call_chain, CallChain::Dwarf { .. });
    let mut refused = match OffCpu::open(recorder, target, desc) {
        Ok(programs) => {
            let note = (is_copied && programs.probe.copies().is_none()).then(|| FRAMES_ONLY.to_owned());
            return Ok((Box::new(programs), note));
        }
        Err(Error::Refused(refused)) => refused,
        Err(other) => return Err(other),
    };
    if matches!(target, Target::Cgroups { .. }) {
        refused.iter_mut().for_each(|refusal| refusal.help.push("or name processes with -p".to_owned()));
        // Events of a control group don't tell who came into it while it waited.
        return Err(Error::Refused(refused));
    }
    let why = refused.first().map(|refusal| refusal.summary.clone()).unwrap_or_default();
    match SwitchWaits::open(recorder, target, desc) {
        Ok(events) => {
            let wakers = if events.wakes.is_some() { "" } else { ", and who ends them is not known" };
            let frames = if is_copied { ", and their stacks are found by frame pointers" } else { "" };
            let whose = if recorder.shared.is_some() { " of the service" } else { "" };
            let why = why.strip_prefix(REFUSED).unwrap_or(&why);
            let note = format!(
                "waits are recorded by context-switches events{whose}, which cost more than BPF programs{wakers}{frames}: {why}"
            );
            Ok((Box::new(events), Some(note)))
        }
        // A smaller ring may do.
        Err(error @ Error::Ring { .. }) => Err(error),
        Err(error) => {
            if let Some(refusal) = refused.first_mut() {
                refusal.summary = format!("{why}; nor by context-switches: {error}");
            }
            Err(Error::Refused(refused))
        }
    }
}

/// Waits that programs in the kernel see.
struct OffCpu {
    /// Where the recorder's session is one that asks a service.
    own: Option<Session>,
    set: Owned<SetId>,
    probe: OffCpuProbe,
    rings: Rings,
    led: HashSet<EventId>,
    /// The ids of the events on each CPU.
    ids: BTreeMap<CpuId, [u64; EVENTS.len()]>,
    /// Of what programs write, and of what is in the file.
    raw: SampleLayout,
    layout: SampleLayout,
    /// Where the events stand among all.
    first_index: usize,
    /// Of the sums: what was told already.
    reported: HashMap<(u32, u32), ShortWaits>,
    /// Of threads that have none any more: waits that had no room in a ring.
    lost_of_ended: u64,
    /// From when to when was recorded, until what goes on then is looked for.
    recorded: Option<(u64, u64)>,
    ended_ns: Option<u64>,
    /// Waits that had not ended when recording was switched off, until they are taken.
    under_way: Taken,
    missing: Option<pmux_linux::Errno>,
    scratch: Box<[u8]>,
}

impl OffCpu {
    /// Loads programs for the target of a recorder, which record nothing before [`SeesWaits::enable`].
    ///
    /// # Errors
    /// [`Error::Refused`] where programs can't be had; [`Error::Options`]; [`Error::Ring`].
    fn open(recorder: &Recorder, target: &Target<'_>, (first_index, file): (usize, &EventDesc)) -> Result<Self, Error> {
        let Recorder { options, tids, cgroups, .. } = recorder;
        // Nothing of this goes through a service.
        let refused = |why: String| Error::Refused(vec![refusal(&why)]);
        let own = recorder.shared.as_ref().map(|_| Session::with_shared(SharedChoice::Never)).transpose();
        let own = own.map_err(|error| refused(error.to_string()))?;
        own.iter().for_each(Session::watch_hotplug);
        let session = own.as_ref().unwrap_or(&recorder.session);
        let (kind, children) = match (target, options.inherit) {
            (Target::Cpus(CpuChoice::All), _) => (OffCpuTarget::All, OffCpuChildren::Follow),
            (Target::Cgroups { cpus: CpuChoice::All, .. }, _) if cgroups.len() == 1 => {
                (OffCpuTarget::Cgroup(cgroup_number(session, *cgroups[0])?), OffCpuChildren::Follow)
            }
            (Target::Cpus(_) | Target::Cgroups { .. }, _) => {
                return Err(Error::Options(
                    "waits are of threads: --off-cpu goes with a command, with -p, -t, -a or one -G, not with some CPUs or several control groups",
                ));
            }
            (Target::Command(_) | Target::Processes(_), Inherit::Children) => {
                (OffCpuTarget::Processes, OffCpuChildren::Follow)
            }
            (_, Inherit::Children) => (OffCpuTarget::Threads, OffCpuChildren::Follow),
            (_, Inherit::None) => (OffCpuTarget::Threads, OffCpuChildren::Leave),
        };
        let possible = Cpus::system().possible().unwrap_or_else(|_| session.online());
        let (least_ns, cpus) = (options.off_cpu.unwrap_or(0), possible.last().unwrap_or(0) + 1);
        let stacks = match options.call_chain {
            CallChain::Dwarf { stack_bytes } => UserStacks::Copies(stack_bytes),
            _ => UserStacks::Frames,
        };
        let probe = OffCpuProbe::open(kind, children, stacks, least_ns, cpus).map_err(refused)?;
        let ids: Vec<i32> = match (target, kind) {
            (Target::Processes(pids), OffCpuTarget::Processes) => pids.clone(),
            (Target::Command(command), _) => vec![command.pid()],
            _ => tids.iter().copied().collect(),
        };
        for id in ids {
            probe.add(id.cast_unsigned()).map_err(|errno| refused(format!("too many threads are named: {errno}")))?;
        }
        let output = output(&file.attr);
        let online: Vec<CpuId> = session.engine().online().iter().collect();
        // A wait takes some ten times as much.
        let of_copies = COPIES_BYTES / online.len().max(1) as u64;
        let of_copies = probe.copies().map(|_| of_copies.clamp(MOST_COPIES_BYTES / 8, MOST_COPIES_BYTES));
        // With a service, the size that was asked for is that of its one ring: these have as much again together.
        let share = if own.is_some() { online.len().max(1) as u64 } else { 1 };
        let asked = options.ring_bytes.map(|bytes| bytes / share);
        let rings = Rings::open(session, &online, asked.or(of_copies), None)?;
        let groups = vec![GroupSpec::single(KERNEL, output); EVENTS.len()];
        let mask = possible.iter().map(CpuId).collect::<CpuMask>();
        let request = SetRequest { groups, scope: SetScope::Everything, mask, absent: Absent::Await };
        let set = session.hold_set(request).map_err(|error| refused(format!("their records can't be had: {error}")))?;
        session.engine().enable_set(*set)?;
        Ok(Self {
            own,
            set,
            probe,
            rings,
            led: HashSet::new(),
            ids: BTreeMap::new(),
            raw: SampleLayout::new(&output),
            layout: SampleLayout::new(&file.attr),
            first_index,
            reported: HashMap::new(),
            lost_of_ended: 0,
            recorded: None,
            ended_ns: None,
            under_way: Taken::default(),
            missing: None,
            scratch: vec![0; RecordHeader::MAX_RECORD].into_boxed_slice(),
        })
    }

    fn waits_of(&mut self, recorded: (u64, u64)) -> Taken {
        let mut taken = Taken::default();
        match (self.probe.under_way(recorded), self.ids.first_key_value()) {
            (Ok(under_way), Some((&cpu, &ids))) => {
                let (layout, copies) = (&self.layout, self.probe.copies());
                let mut encoder = Encoder { layout, copies, ids, cpu: cpu.0, scratch: &mut self.scratch };
                under_way.waits().for_each(|wait| encoder.wait_of_program(&wait, &mut taken));
            }
            (Ok(_), None) => {}
            (Err(errno), _) => self.missing = Some(errno),
        }
        taken
    }
}

impl SeesWaits for OffCpu {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.fds().collect()
    }

    fn lead(&mut self, fresh: &mut Vec<(usize, u64)>) -> Result<(), Error> {
        self.own.iter().for_each(Session::follow_hotplug);
        let engine = self.set.session.engine();
        for (cpu, events) in engine.set_events(*self.set)? {
            if events.iter().all(|event| self.led.contains(event)) {
                continue;
            }
            let mut ids = [0; EVENTS.len()];
            for (id, &event) in ids.iter_mut().zip(&events) {
                *id = self.rings.lead(event, cpu, EventRole::Samples)?;
                self.led.insert(event);
            }
            if let Some(&writes) = events.first() {
                let failed = |errno| Error::Ring { what: "leading waits into a ring", errno };
                engine.host().lend(engine.lease(writes)?, self.probe.outputs(), cpu.0).map_err(failed)?;
            }
            fresh.extend(ids.iter().enumerate().map(|(which, &id)| (self.first_index + which, id)));
            self.ids.insert(cpu, ids);
        }
        Ok(())
    }

    fn enable(&mut self) -> Result<(), Error> {
        self.ended_ns = None;
        self.probe.enable().map_err(switching)
    }

    fn enable_on_exec(&mut self, pid: i32) -> Result<(), Error> {
        let enabled = self.probe.enable_on_exec(pid.cast_unsigned());
        enabled.map_err(|why| Error::Refused(vec![refusal(&why)]))
    }

    fn disable(&mut self) -> Result<(), Error> {
        if let Some(recorded) = self.probe.disable().map_err(switching)? {
            (self.recorded, self.ended_ns) = (Some(recorded), Some(recorded.1));
        }
        Ok(())
    }

    fn mark_running(&self) {
        self.probe.mark_running();
    }

    fn end_waits(&mut self) {
        if let Some(recorded) = self.recorded.take() {
            let taken = self.waits_of(recorded);
            self.under_way.append(taken);
        }
    }

    fn waits_under_way(&mut self) -> Result<Option<(u64, Taken)>, Error> {
        let recorded = self.probe.recorded().map_err(switching)?;
        Ok(recorded.map(|recorded| (recorded.1, self.waits_of(recorded))))
    }

    fn unseen(&self) -> u64 {
        let (missed, no_room) = self.probe.missed().unwrap_or_default();
        missed + no_room
    }

    fn take(&mut self, enough_bytes: u64) -> Taken {
        let mut taken = Taken::default();
        let (mut record, mut waits) = (Vec::new(), Vec::new());
        for (cpu, ring) in self.rings.each_with_cpu() {
            let Some(&ids) = self.ids.get(&cpu) else { continue };
            // A ring that contradicts itself has nothing that could be told. What found no room is in the sums.
            // A wait becomes two samples.
            let left_bytes = enough_bytes.saturating_sub(taken.records.len() as u64).div_ceil(2);
            let _ = ring.batch_of(left_bytes, |peek| {
                peek.copy_to(&mut record);
                waits.extend_from_slice(&record);
            });
            for record in pmux_abi::record::Records::new(&waits).flatten() {
                let Ok((Record::Sample(Sample { raw: Some(raw), .. }), _)) = decode_record(record, &self.raw) else {
                    continue;
                };
                let (layout, copies) = (&self.layout, self.probe.copies());
                let mut encoder = Encoder { layout, copies, ids, cpu: cpu.0, scratch: &mut self.scratch };
                match OffCpuRecord::decode(raw) {
                    Some(OffCpuRecord::Wait(wait)) => encoder.wait_of_program(&wait, &mut taken),
                    Some(OffCpuRecord::Wake(wake)) => encoder.wake_of_program(&wake, &mut taken),
                    None => {}
                }
            }
            waits.clear();
        }
        // Where there is no room for them, they come with the next file, if there is one.
        if taken.records.len() as u64 + self.under_way.records.len() as u64 <= enough_bytes {
            taken.append(std::mem::take(&mut self.under_way));
        }
        taken
    }

    fn since_ns(&self) -> Option<u64> {
        self.probe.recorded().ok()?.map(|(since_ns, _)| since_ns)
    }

    fn ended_ns(&self) -> Option<u64> {
        self.ended_ns
    }

    fn sums_at(&mut self, at_ns: u64) -> Taken {
        let mut taken = Taken::default();
        let (Ok(sums), Some((&cpu, &ids))) = (self.probe.short_waits(), self.ids.first_key_value()) else {
            return taken;
        };
        let mut encoder = Encoder { layout: &self.layout, copies: None, ids, cpu: cpu.0, scratch: &mut self.scratch };
        for sum in &sums {
            let task = if sum.pid == 0 { OTHERS } else { TaskId { pid: sum.pid, tid: sum.tid } };
            let reported = self.reported.insert((sum.pid, sum.tid), *sum);
            let since = |of: fn(&ShortWaits) -> u64| of(sum).saturating_sub(reported.as_ref().map_or(0, of));
            encoder.sums(task, at_ns, (since(|sum| sum.blocked_ns), since(|sum| sum.runnable_ns)), &mut taken);
        }
        // Those of threads that have ended give way before there is no room.
        if sums.len() > ShortWaits::MOST as usize / 2 {
            for sum in sums.iter().filter(|sum| sum.pid != 0 && !is_alive(sum.tid)) {
                self.probe.forget_short_waits(sum);
                self.reported.remove(&(sum.pid, sum.tid));
                self.lost_of_ended += sum.lost;
            }
        }
        taken
    }

    fn losses(&self) -> Vec<String> {
        let sums = self.probe.short_waits().unwrap_or_default();
        let lost = self.lost_of_ended + sums.iter().map(|sum: &ShortWaits| sum.lost).sum::<u64>();
        let (_, no_room) = self.probe.missed().unwrap_or_default();
        let notes = [
            (
                lost,
                "waits found no room in their ring, or none on a CPU that had just come: their time is told by thread only, without stacks (a larger ring: -m)",
            ),
            (no_room, "times there was no room for what is known of a thread: waits of it are missing"),
        ];
        let notes = notes.into_iter().filter(|(count, _)| *count > 0);
        let missing = self.missing.map(|errno| format!("waits that went on are missing: {errno}"));
        notes.map(|(count, what)| format!("{count} {what}")).chain(missing).collect()
    }

    fn misses(&self) -> Option<String> {
        let (missed, _) = self.probe.missed().unwrap_or_default();
        (missed > 0).then(|| format!("{missed} {MISSED}, or has no stack"))
    }
}

/// The inode number of a control group that is held, which programs know it by.
///
/// # Errors
/// [`Error::Options`]; [`Error::Cgroup`] where no control groups are mounted.
fn cgroup_number(session: &Session, cgroup: CgroupId) -> Result<u64, Error> {
    if Mounts::system().map_err(Error::Cgroup)?.events_are_in_v1() {
        return Err(Error::Options(
            "waits of a control group need version 2, and here perf_event is in version 1: name processes (-p)",
        ));
    }
    let path = session.engine().host().cgroup_path(cgroup).unwrap_or_default();
    let [_, below @ ..] = &*path else {
        return Err(Error::Options("the kernel does not tell the number of the control group: name processes (-p)"));
    };
    if below.len() > OffCpuTarget::DEEPEST_CGROUP {
        return Err(Error::Options(
            "the control group is too deep for --off-cpu: name one above it, or processes (-p)",
        ));
    }
    Ok(path[below.len()])
}

fn switching(errno: pmux_linux::Errno) -> Error {
    Error::Ring { what: "switching the recording of waits", errno }
}

/// What is told of a number of them.
pub(super) const MISSED: &str = "times a thread was not seen to leave its CPU or to come back: such a wait is missing";
/// Rings where stacks are copied: of all CPUs together, and of one.
const COPIES_BYTES: u64 = 128 << 20;
const MOST_COPIES_BYTES: u64 = 8 << 20;
const FRAMES_ONLY: &str = "the stacks of waits are found by frame pointers: to copy them, BPF programs need Linux 5.15";
const REFUSED: &str = "waits can't be recorded: ";

fn refusal(why: &str) -> Refusal {
    let mut refusal = Refusal::new(format!("{REFUSED}{why}"), ReasonKind::NotSupported);
    refusal.help.push("leave --off-cpu out".to_owned());
    refusal
}

/// The functions of the kernel, then those of the program, unless its stack was copied.
fn call_chain(stack: &Stack<'_>, copies: Option<&RegisterPlaces>) -> Vec<u64> {
    let mut chain = Vec::with_capacity(2 + stack.kernel().len());
    if stack.kernel().len() > 0 {
        chain.push(callchain::KERNEL);
        chain.extend(stack.kernel());
    }
    if copies.is_none() && stack.user().len() > 0 {
        chain.push(callchain::USER);
        chain.extend(stack.user());
    }
    chain
}

/// The call chain, and what of the program was copied.
type SampleStack<'s> = (&'s [u64], Option<&'s CopiedStack<'s>>);

pub(super) struct Encoder<'o> {
    pub(super) layout: &'o SampleLayout,
    /// Where stacks are copied.
    pub(super) copies: Option<&'o RegisterPlaces>,
    pub(super) ids: [u64; EVENTS.len()],
    pub(super) cpu: u32,
    pub(super) scratch: &'o mut [u8],
}

impl Encoder<'_> {
    fn wait_of_program(&mut self, wait: &Wait<'_>, taken: &mut Taken) {
        let task = TaskId { pid: wait.pid, tid: wait.tid };
        let times = (wait.left_ns, wait.runnable_ns, wait.came_ns);
        let (chain, user) = self.stack(&wait.stack);
        self.wait(task, times, (wait.lock, Some(wait.priority)), (&chain, user.as_ref()), taken);
    }

    fn wake_of_program(&mut self, wake: &Wake<'_>, taken: &mut Taken) {
        let task = TaskId { pid: wake.pid, tid: wake.tid };
        let (chain, user) = self.stack(&wake.stack);
        self.wake(task, (wake.left_ns, wake.woken_ns), wake.woken_tid, (&chain, user.as_ref()), taken);
    }

    fn stack<'r>(&self, stack: &Stack<'r>) -> (Vec<u64>, Option<CopiedStack<'r>>) {
        (call_chain(stack, self.copies), self.copies.and_then(|places| stack.copied(places)))
    }

    /// A wait of a thread: when it left its CPU, when what it waited for had come, and when it had a CPU again; for which lock, and with
    /// which priority, if that is known.
    pub(super) fn wait(
        &mut self,
        task: TaskId,
        (left_ns, runnable_ns, came_ns): (u64, u64, u64),
        (lock, priority): (u64, Option<i32>),
        stack: SampleStack<'_>,
        taken: &mut Taken,
    ) {
        let weight = weight_of(priority);
        self.sample(BLOCKED, task, (came_ns, runnable_ns.saturating_sub(left_ns)), (lock, weight), stack, taken);
        self.sample(RUNNABLE, task, (came_ns, came_ns.saturating_sub(runnable_ns)), (0, weight), stack, taken);
    }

    /// Who woke a thread, which had left its CPU then. The address is the number of the thread that was woken.
    pub(super) fn wake(
        &mut self,
        task: TaskId,
        (left_ns, woken_ns): (u64, u64),
        woken_tid: u32,
        stack: SampleStack<'_>,
        taken: &mut Taken,
    ) {
        self.sample(WAKES, task, (woken_ns, woken_ns.saturating_sub(left_ns)), (woken_tid.into(), 0), stack, taken);
    }

    /// What short waits of a thread came to.
    pub(super) fn sums(&mut self, task: TaskId, at_ns: u64, (blocked_ns, runnable_ns): (u64, u64), taken: &mut Taken) {
        self.sample(BLOCKED, task, (at_ns, blocked_ns), (0, 0), (&[], None), taken);
        self.sample(RUNNABLE, task, (at_ns, runnable_ns), (0, 0), (&[], None), taken);
    }

    /// A sample of a time, and so long; none of no time.
    fn sample(
        &mut self,
        which: usize,
        task: TaskId,
        (at_ns, ns): (u64, u64),
        (address, weight): (u64, u64),
        stack: SampleStack<'_>,
        taken: &mut Taken,
    ) {
        if ns == 0 {
            return;
        }
        let Some(&id) = self.ids.get(which) else { return };
        let (chain, user) = stack;
        let sample = OurSample { id, task, cpu: self.cpu, at_ns, ns, address, weight, chain, user };
        taken.add(&sample, self.layout, self.scratch);
    }
}
