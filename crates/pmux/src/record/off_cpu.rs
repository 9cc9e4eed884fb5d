//! Waits, as samples of two events: until a thread was woken (`offcpu-time`), and until it had a CPU then (`runqueue-time`); and a third
//! one (`waker-time`) of the threads that woke others, whose period is for how long those had waited.
//!
//! What it is: programs in the kernel write a record for each wait ([`pmux_linux::off_cpu`]), into rings of its own; here it becomes
//! samples as perf's `offcpu-time` has them: the period is the wait's length, the call chain is where the thread waited, the time is
//! when it had a CPU again, or when recording ended. Both samples of one wait stand one behind the other. What the kernel has only added up (short waits, and
//! what found no room) are samples without a call chain at the end.
//!
//! **Invariant:** no time is in two samples, and none that a program has seen is in none.

use super::existing::is_alive;
use super::open::EventRole;
use super::ours::{OurSample, Taken};
use super::rings::Rings;
use crate::error::Error;
use crate::perf_data::EventDesc;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::target::{Inherit, Target};
use pmux_abi::attr::{Attr, AttrFlags, EventType, SampleFormat, Sampling, Wakeup, sw};
use pmux_abi::record::{Record, RecordHeader, Sample, SampleLayout, TaskId, callchain, decode_record};
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::engine::SetRequest;
use pmux_engine::system_wide::{Absent, SetScope};
use pmux_engine::{CpuId, EventId, GroupSpec, SetId};
use pmux_linux::cpus::Cpus;
use pmux_linux::diagnose::ReasonKind;
use pmux_linux::host::KERNEL;
use pmux_linux::off_cpu::{OffCpuChildren, OffCpuProbe, OffCpuRecord, OffCpuTarget, ShortWaits, Stack, Wait, Wake};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The events, in their order in the file.
pub(super) const EVENTS: [&str; 3] = ["offcpu-time", "runqueue-time", "waker-time"];
const BLOCKED: usize = 0;
const RUNNABLE: usize = 1;
const WAKES: usize = 2;

/// What each of them is in the file, before all events get the same words behind their records.
pub(super) fn attr(like: &Attr) -> Attr {
    let identity = AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID;
    Attr {
        kind: EventType::SOFTWARE,
        config: sw::BPF_OUTPUT,
        sampling: Sampling::Period(1),
        sample: like.sample | SampleFormat::PERIOD | SampleFormat::CALLCHAIN | SampleFormat::ADDR,
        read_format: like.read_format,
        flags: like.flags.intersection(identity),
        clock_id: like.clock_id,
        wakeup: Wakeup::Bytes(0),
        ..Attr::default()
    }
}

/// What the kernel is asked for in its place: the records of programs.
fn output(file: &Attr) -> Attr {
    let ours = SampleFormat::PERIOD | SampleFormat::CALLCHAIN | SampleFormat::ADDR;
    Attr { sample: file.sample.difference(ours) | SampleFormat::RAW, ..*file }
}

/// Waits that are recorded.
pub(super) struct OffCpu {
    session: Session,
    probe: OffCpuProbe,
    set: SetId,
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
    /// When recording was switched off.
    ended_ns: Option<u64>,
    /// Waits that had not ended when recording was switched off, until they are taken.
    under_way: Taken,
    /// Why they are missing.
    missing: Option<pmux_linux::Errno>,
    scratch: Box<[u8]>,
}

impl OffCpu {
    /// Loads programs for a target, which record nothing before [`OffCpu::enable`]. `tids` are its threads, where it is made of some.
    ///
    /// # Errors
    /// [`Error::Refused`] where programs can't be had; [`Error::Options`]; [`Error::Ring`].
    pub(super) fn open(
        session: &Session,
        target: &Target<'_>,
        (inherit, tids): (Inherit, &HashSet<i32>),
        least_ns: u64,
        desc: (usize, &EventDesc),
        ring_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        let refused = |why: String| Error::Refused(vec![refusal(&why)]);
        let (kind, children) = match (target, inherit) {
            (Target::Cpus(crate::target::CpuChoice::All), _) => (OffCpuTarget::All, OffCpuChildren::Follow),
            (Target::Cpus(_) | Target::Cgroups { .. }, _) => {
                return Err(Error::Options(
                    "waits are of threads: --off-cpu goes with a command, with -p, -t or -a, not with some CPUs or a control group",
                ));
            }
            (Target::Command(_) | Target::Processes(_), Inherit::Children) => {
                (OffCpuTarget::Processes, OffCpuChildren::Follow)
            }
            (_, Inherit::Children) => (OffCpuTarget::Threads, OffCpuChildren::Follow),
            (_, Inherit::None) => (OffCpuTarget::Threads, OffCpuChildren::Leave),
        };
        let possible = Cpus::system().possible().unwrap_or_else(|_| session.online());
        let probe = OffCpuProbe::open(kind, children, least_ns, possible.last().unwrap_or(0) + 1).map_err(refused)?;
        let ids: Vec<i32> = match (target, kind) {
            (Target::Processes(pids), OffCpuTarget::Processes) => pids.clone(),
            (Target::Command(command), _) => vec![command.pid()],
            _ => tids.iter().copied().collect(),
        };
        for id in ids {
            probe.add(id.cast_unsigned()).map_err(|errno| refused(format!("too many threads are named: {errno}")))?;
        }
        let (first_index, file) = desc;
        let asked = output(&file.attr);
        let online: Vec<CpuId> = session.engine().online().iter().collect();
        let rings = Rings::open(session, &online, ring_bytes, None)?;
        let groups = vec![GroupSpec::single(KERNEL, asked); EVENTS.len()];
        let mask = possible.iter().map(CpuId).collect::<CpuMask>();
        let request = SetRequest { groups, scope: SetScope::Everything, mask, absent: Absent::Await };
        let engine = session.engine();
        let set = engine.open_set(request).map_err(|error| refused(format!("their records can't be had: {error}")))?;
        let off_cpu = Self {
            session: session.clone(),
            probe,
            set,
            rings,
            led: HashSet::new(),
            ids: BTreeMap::new(),
            raw: SampleLayout::new(&asked),
            layout: SampleLayout::new(&file.attr),
            first_index,
            reported: HashMap::new(),
            lost_of_ended: 0,
            recorded: None,
            ended_ns: None,
            under_way: Taken::default(),
            missing: None,
            scratch: vec![0; RecordHeader::MAX_RECORD].into_boxed_slice(),
        };
        engine.enable_set(off_cpu.set)?;
        Ok(off_cpu)
    }

    /// Leads what programs write into rings, also on CPUs that have come; ids that are new go behind `fresh`, each with its event.
    pub(super) fn lead(&mut self, fresh: &mut Vec<(usize, u64)>) -> Result<(), Error> {
        let engine = self.session.engine();
        for (cpu, events) in engine.set_events(self.set)? {
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

    pub(super) fn rings(&self) -> &Rings {
        &self.rings
    }

    pub(super) fn enable(&mut self) -> Result<(), Error> {
        self.ended_ns = None;
        self.probe.enable().map_err(switching)
    }

    /// Records from the next exec of a process on.
    pub(super) fn enable_on_exec(&mut self, pid: i32) -> Result<(), Error> {
        let enabled = self.probe.enable_on_exec(pid.cast_unsigned());
        enabled.map_err(|why| Error::Refused(vec![refusal(&why)]))
    }

    /// Records no more.
    pub(super) fn disable(&mut self) -> Result<(), Error> {
        if let Some(recorded) = self.probe.disable().map_err(switching)? {
            (self.recorded, self.ended_ns) = (Some(recorded), Some(recorded.1));
        }
        Ok(())
    }

    /// Looks at what has a CPU already, once the events are switched on.
    pub(super) fn mark_running(&self) {
        self.probe.mark_running();
    }

    /// Looks at what still waits, once the events are switched off: it is taken behind what is in the rings.
    pub(super) fn end_waits(&mut self) {
        if let Some(recorded) = self.recorded.take() {
            let taken = self.waits_of(recorded);
            self.under_way.append(taken);
        }
    }

    /// What waits now, as if it ended now, and what short waits came to since the last call; and when that is. `None` where nothing is
    /// recorded.
    pub(super) fn waits_now(&mut self) -> Result<Option<(u64, Taken)>, Error> {
        let Some((at_ns, mut taken)) = self.waits_under_way()? else { return Ok(None) };
        taken.append(self.sums_at(at_ns.saturating_sub(1)));
        Ok(Some((at_ns, taken)))
    }

    /// What waits now, as if it ended now, and when that is.
    pub(super) fn waits_under_way(&mut self) -> Result<Option<(u64, Taken)>, Error> {
        let recorded = self.probe.recorded().map_err(switching)?;
        Ok(recorded.map(|recorded| (recorded.1, self.waits_of(recorded))))
    }

    /// How many waits were not seen as a whole so far.
    pub(super) fn unseen(&self) -> u64 {
        let (missed, no_room) = self.probe.missed().unwrap_or_default();
        missed + no_room
    }

    fn waits_of(&mut self, recorded: (u64, u64)) -> Taken {
        let mut taken = Taken::default();
        match (self.probe.under_way(recorded), self.ids.first_key_value()) {
            (Ok(under_way), Some((&cpu, &ids))) => {
                let mut encoder = Encoder { layout: &self.layout, ids, cpu, scratch: &mut self.scratch };
                under_way.waits().for_each(|wait| encoder.wait(&wait, &mut taken));
            }
            (Ok(_), None) => {}
            (Err(errno), _) => self.missing = Some(errno),
        }
        taken
    }

    /// Takes out what waits in the rings, until it is so many bytes: the rest stays there.
    pub(super) fn take(&mut self, enough_bytes: u64) -> Taken {
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
                let mut encoder = Encoder { layout: &self.layout, ids, cpu, scratch: &mut self.scratch };
                match OffCpuRecord::decode(raw) {
                    Some(OffCpuRecord::Wait(wait)) => encoder.wait(&wait, &mut taken),
                    Some(OffCpuRecord::Wake(wake)) => encoder.wake(&wake, &mut taken),
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

    /// What was added up only since the last call, as samples of now, or of the end of recording.
    pub(super) fn take_sums(&mut self) -> Taken {
        self.sums_at(self.ended_ns.unwrap_or_else(pmux_linux::now_ns))
    }

    /// What was added up only since the last call, as samples of that time.
    pub(super) fn sums_at(&mut self, at_ns: u64) -> Taken {
        let mut taken = Taken::default();
        let (Ok(sums), Some((&cpu, &ids))) = (self.probe.short_waits(), self.ids.first_key_value()) else {
            return taken;
        };
        let mut encoder = Encoder { layout: &self.layout, ids, cpu, scratch: &mut self.scratch };
        for sum in &sums {
            let task = match sum.pid {
                0 => TaskId { pid: u32::MAX, tid: u32::MAX },
                pid => TaskId { pid, tid: sum.tid },
            };
            let reported = self.reported.insert((sum.pid, sum.tid), *sum);
            let since = |of: fn(&ShortWaits) -> u64| of(sum).saturating_sub(reported.as_ref().map_or(0, of));
            let mut sample = |which, ns| encoder.sample(which, task, (at_ns, ns), 0, &[], &mut taken);
            sample(BLOCKED, since(|sum| sum.blocked_ns));
            sample(RUNNABLE, since(|sum| sum.runnable_ns));
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

    /// What is missing, in sentences.
    pub(super) fn notes(&self) -> Vec<String> {
        let sums = self.probe.short_waits().unwrap_or_default();
        let lost = self.lost_of_ended + sums.iter().map(|sum: &ShortWaits| sum.lost).sum::<u64>();
        let (missed, no_room) = self.probe.missed().unwrap_or_default();
        let notes = [
            (
                lost,
                "waits found no room in their ring: their time is told by thread only, without stacks (a larger ring: -m)",
            ),
            (
                missed,
                "times a thread was not seen to leave its CPU or to come back: such a wait is missing, or has no stack",
            ),
            (no_room, "times there was no room for what is known of a thread: waits of it are missing"),
        ];
        let notes = notes.into_iter().filter(|(count, _)| *count > 0);
        let missing = self.missing.map(|errno| format!("waits that went on are missing: {errno}"));
        notes.map(|(count, what)| format!("{count} {what}")).chain(missing).collect()
    }
}

fn switching(errno: pmux_linux::Errno) -> Error {
    Error::Ring { what: "switching the recording of waits", errno }
}

/// Why waits are not recorded.
fn refusal(why: &str) -> Refusal {
    let mut refusal = Refusal::new(format!("waits can't be recorded: {why}"), ReasonKind::NotSupported);
    refusal.help.push("leave --off-cpu out".to_owned());
    refusal
}

impl Drop for OffCpu {
    fn drop(&mut self) {
        self.session.engine().close_set(self.set);
    }
}

/// The functions of the kernel, then those of the program.
fn call_chain(stack: &Stack<'_>) -> Vec<u64> {
    let mut chain = Vec::with_capacity(2 + stack.kernel().len() + stack.user().len());
    if stack.kernel().len() > 0 {
        chain.push(callchain::KERNEL);
        chain.extend(stack.kernel());
    }
    if stack.user().len() > 0 {
        chain.push(callchain::USER);
        chain.extend(stack.user());
    }
    chain
}

struct Encoder<'o> {
    layout: &'o SampleLayout,
    ids: [u64; EVENTS.len()],
    cpu: CpuId,
    scratch: &'o mut [u8],
}

impl Encoder<'_> {
    fn wait(&mut self, wait: &Wait<'_>, taken: &mut Taken) {
        let chain = call_chain(&wait.stack);
        let task = TaskId { pid: wait.pid, tid: wait.tid };
        let blocked = wait.runnable_ns.saturating_sub(wait.left_ns);
        let runnable = wait.came_ns.saturating_sub(wait.runnable_ns);
        self.sample(BLOCKED, task, (wait.came_ns, blocked), wait.lock, &chain, taken);
        self.sample(RUNNABLE, task, (wait.came_ns, runnable), 0, &chain, taken);
    }

    /// The address is the number of the thread that was woken.
    fn wake(&mut self, wake: &Wake<'_>, taken: &mut Taken) {
        let task = TaskId { pid: wake.pid, tid: wake.tid };
        let waited = wake.woken_ns.saturating_sub(wake.left_ns);
        self.sample(WAKES, task, (wake.woken_ns, waited), wake.woken_tid.into(), &call_chain(&wake.stack), taken);
    }

    /// A sample of a time, and so long; none of no time.
    fn sample(
        &mut self,
        which: usize,
        task: TaskId,
        (at_ns, ns): (u64, u64),
        address: u64,
        chain: &[u64],
        taken: &mut Taken,
    ) {
        if ns == 0 {
            return;
        }
        let Some(&id) = self.ids.get(which) else { return };
        let sample = OurSample { id, task, cpu: self.cpu.0, at_ns, ns, address, chain };
        taken.add(&sample, self.layout, self.scratch);
    }
}
