//! Opening: rings, then events times CPUs, or times threads and CPUs; everywhere or nowhere.
//!
//! What it is: [`Recorder::open`]. On CPUs an event is a set, which follows CPUs that go and come back. Of a thread there is an
//! event for each CPU, because one that is inherited and follows its task has no ring; such an event stays when its CPU goes.
//! Where the kernel refuses something that we can do without, it is left out, and said.
//!
//! **Invariant:** after an error nothing is open. What the file says of an event is what the kernel was asked.

use super::attrs::{self, Able, CallChain, PRIVILEGED, Scope};
use super::build_ids::BuildIds;
use super::drain::Progress;
use super::rings::Rings;
use super::{RecordOptions, Recorder};
use crate::error::Error;
use crate::event::{Event, EventList, Hardware, Modifier, Software, Source};
use crate::perf_data::EventDesc;
use crate::session::{Backend, Session};
use crate::target::{CpuChoice, Inherit, Start, Target};
use pmux_abi::attr::{Attr, AttrFlags, Precise, ReadFormat, SampleFormat, Sampling};
use pmux_engine::context::{ContextKey, Filter};
use pmux_engine::shell::{Opened, SetRequest};
use pmux_engine::system_wide::{Absent, CpuMask, SetScope};
use pmux_engine::{CpuId, EventId, GroupSpec, OpenError, SetId};
use pmux_linux::cgroup::{Cgroup, Mounts};
use pmux_linux::diagnose::{ReasonKind, TargetKind, Whose};
use pmux_linux::host::{KERNEL, LinuxHost};
use pmux_linux::machine::Machine;
use pmux_linux::procfs::Proc;
use std::collections::{HashMap, HashSet};

const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
/// How often threads are listed before it is given up to meet them all.
const MOST_ROUNDS: usize = 64;

/// What is open.
pub(super) enum Held {
    /// On CPUs: the tracking event, and the others, for each cgroup where cgroups are recorded.
    Cpus { tracking: SetId, sampling: Vec<SetId> },
    /// On a thread and a CPU.
    Task { cpu: CpuId, tracking: Opened, sampling: Vec<Opened> },
}

/// Whether events sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Switch {
    On,
    Off,
}

/// The events, and what became of them.
struct Plan {
    events: Vec<Event>,
    /// Which events belong together: the first one, and how many.
    groups: Vec<(String, usize, usize)>,
    attrs: Vec<Attr>,
    tracking: Attr,
    /// Whether the event is our own choice.
    chosen_by_us: bool,
    notes: Vec<String>,
}

impl Plan {
    fn new(events: EventList, options: &RecordOptions, scope: Scope, able: Able) -> Result<Self, Error> {
        let chosen_by_us = events.groups.is_empty();
        let events = if chosen_by_us { usual_event() } else { events };
        let (mut all, mut groups) = (Vec::new(), Vec::new());
        for group in events.groups {
            groups.push((group.name.unwrap_or_default(), all.len(), group.events.len()));
            all.extend(group.events);
        }
        if all.iter().any(|event| matches!(event.source, Source::Tool(_))) {
            return Err(Error::Options(
                "what pmux measures itself (duration_time, user_time, …) is counted, and has no samples: pmux stat",
            ));
        }
        let tracking = attrs::tracking(options, scope, able);
        let mut plan = Self { events: all, groups, attrs: Vec::new(), tracking, chosen_by_us, notes: Vec::new() };
        plan.ask(options, scope, able);
        Ok(plan)
    }

    /// Makes the attributes of the events.
    fn ask(&mut self, options: &RecordOptions, scope: Scope, able: Able) {
        self.attrs = self.events.iter().map(|event| attrs::sampling(event, options, scope, able)).collect();
        for &(_, first, count) in self.groups.iter().filter(|(_, _, count)| *count > 1) {
            let members = first..first + count;
            let reads = self.events[members.clone()].iter().any(|event| event.modifiers.has(Modifier::SampleRead));
            for (index, attr) in self.attrs[members].iter_mut().enumerate() {
                if reads {
                    // Counts of a group can't be read in one piece where children have their own.
                    attr.flags.remove(AttrFlags::INHERIT | AttrFlags::INHERIT_STAT);
                    attr.sample |= SampleFormat::READ;
                    if index > 0 {
                        attr.sampling = Sampling::None;
                    }
                }
                // As the host asks for it.
                attr.read_format.set(ReadFormat::GROUP, index == 0 && !attr.flags.contains(AttrFlags::INHERIT));
            }
        }
        if options.start == Start::OnExec {
            for attr in &mut self.attrs {
                attr.flags |= AttrFlags::ENABLE_ON_EXEC;
            }
        }
    }

    /// Lowers frequencies to what the kernel allows now, which it changes by itself; whether there was something to lower.
    fn sample_less_often(&mut self) -> bool {
        let Some(most) = super::most_samples_per_second() else { return false };
        let mut wanted = 0;
        for attr in &mut self.attrs {
            if let Sampling::Frequency(hz) = &mut attr.sampling
                && *hz > most
            {
                wanted = wanted.max(*hz);
                *hz = most;
            }
        }
        if wanted > 0 {
            self.notes.push(format!(
                "takes {most} samples a second, not {wanted}: more the kernel does not allow (kernel.perf_event_max_sample_rate, \
                 which it lowers by itself when samples take too long)"
            ));
        }
        wanted > 0
    }

    fn specs(&self) -> Vec<GroupSpec> {
        let spec = |&(_, first, count): &(String, usize, usize)| GroupSpec {
            events: self.attrs[first..first + count].iter().map(|attr| (KERNEL, *attr)).collect(),
        };
        self.groups.iter().map(spec).collect()
    }

    fn descs(&self) -> Vec<EventDesc> {
        let asked = |attr: &Attr| Attr { flags: attr.flags | AttrFlags::DISABLED, ..*attr };
        let desc =
            |(event, attr): (&Event, &Attr)| EventDesc { attr: asked(attr), name: event.name.clone(), ids: Vec::new() };
        let mut descs: Vec<_> = self.events.iter().zip(&self.attrs).map(desc).collect();
        descs.push(EventDesc { attr: asked(&self.tracking), name: "dummy:u".to_owned(), ids: Vec::new() });
        descs
    }
}

/// What was refused.
struct Refused {
    /// The event; `None` for the tracking one.
    event: Option<usize>,
    error: OpenError,
    kind: TargetKind,
}

fn usual_event() -> EventList {
    let cycles = Event::hardware(Hardware::Cycles).with_modifiers("P");
    let mut event = cycles.unwrap_or_else(|_| Event::hardware(Hardware::Cycles));
    "cycles".clone_into(&mut event.name);
    EventList::from(event)
}

impl Recorder {
    /// Opens events on a target, for which rings are mapped. Without events, `cycles` are recorded, or where the machine has no
    /// counters, the time of the CPU's clock.
    ///
    /// Records that come at once are those that tell what happens; events sample as [`RecordOptions::start`] says. The calling
    /// thread holds the rings: it is to live as long as the recording.
    ///
    /// # Errors
    /// [`Error::Refused`] for the first event that can't be opened, or where there are no performance events;
    /// [`Error::Options`]; [`Error::Process`], [`Error::Cgroup`], [`Error::NoSuchCpu`] for a target that is not there;
    /// [`Error::Ring`].
    pub fn open(
        session: &Session,
        events: EventList,
        target: &Target<'_>,
        options: RecordOptions,
    ) -> Result<Self, Error> {
        if let Backend::Usage { why } = session.backend() {
            return Err(Error::Refused(vec![(**why).clone()]));
        }
        let scope = match target {
            Target::Cgroups { names, .. } if names.len() > 1 => Scope::Cgroups,
            Target::Cpus(_) | Target::Cgroups { .. } => Scope::Cpus,
            _ => Scope::Tasks,
        };
        let facts = session.facts();
        let able = Able {
            build_ids: !facts.is_older_than((5, 12)),
            lost: !facts.is_older_than((6, 0)),
            symbols: !facts.is_older_than((5, 1)),
            precise: Machine::this().most_precise(),
        };
        let mut plan = Plan::new(events, &options, scope, able)?;
        session.watch_hotplug();
        let cpus: Vec<CpuId> = match target {
            Target::Cpus(cpus) | Target::Cgroups { cpus, .. } => {
                let online = session.online();
                cpus.mask(session)?.0.iter().filter(|cpu| online.contains(cpu.0)).collect()
            }
            _ => session.engine().online().iter().collect(),
        };
        let rings = Rings::open(session, &cpus, options.ring_bytes)?;
        let mut recorder = Self {
            session: session.clone(),
            options,
            descs: Vec::new(),
            held: Vec::new(),
            rings,
            known: HashMap::new(),
            fresh: Vec::new(),
            groups: Vec::new(),
            group_sizes: Vec::new(),
            tracking_index: plan.attrs.len(),
            notes: Vec::new(),
            build_ids: BuildIds::default(),
            progress: Progress::default(),
            early: Vec::new(),
            tids: HashSet::new(),
            packing: None,
            cgroups: Vec::new(),
        };
        let files = recorder.hold(&mut plan, target, scope, able)?;
        recorder.descs = plan.descs();
        recorder.notes = plan.notes;
        recorder.group_sizes = plan.groups.iter().map(|(_, _, count)| *count).collect();
        let named = plan.groups.into_iter().filter(|(_, _, count)| *count > 1);
        recorder.groups = named.map(|(name, first, count)| (name, first as u32, count as u32)).collect();
        let led = recorder.lead_all();
        led.map_err(|error| recorder.session.with_file_numbers(error, files))?;
        for (event, id) in std::mem::take(&mut recorder.fresh) {
            recorder.descs[event].ids.push(id);
        }
        Ok(recorder)
    }

    /// Opens everything, in a milder way where it has to be; answers about how many files it takes.
    fn hold(&mut self, plan: &mut Plan, target: &Target<'_>, scope: Scope, able: Able) -> Result<u64, Error> {
        loop {
            let refused = match target {
                Target::Cpus(cpus) => self.hold_cpus(plan, cpus, &[SetScope::Everything])?,
                Target::Cgroups { names, cpus } => {
                    self.know_cgroups(names)?;
                    let scopes: Vec<_> = self.cgroups.iter().map(|&id| SetScope::Cgroup(id)).collect();
                    self.hold_cpus(plan, cpus, &scopes)?
                }
                Target::CurrentThread => self.hold_threads(plan, &[pmux_linux::current_tid()], &[], Whose::Own)?,
                Target::Command(command) => self.hold_threads(plan, &[command.pid()], &[], Whose::Own)?,
                Target::Threads(tids) => self.hold_threads(plan, tids, &[], Whose::Other)?,
                Target::Processes(pids) => self.hold_threads(plan, &[], pids, Whose::Other)?,
            };
            let threads = self.tids.len().max(1);
            let files = (self.rings.bytes().1 * (1 + threads * (plan.attrs.len() + 1))) as u64;
            let Some(refused) = refused else { return Ok(files) };
            self.close(0);
            self.tids.clear();
            self.known.clear();
            self.fresh.clear();
            self.give_in(plan, &refused, scope, able, files)?;
        }
    }

    /// Changes the plan to what may be granted, or says why nothing helps.
    fn give_in(&self, plan: &mut Plan, refused: &Refused, scope: Scope, able: Able, files: u64) -> Result<(), Error> {
        let Refused { event, error, kind } = *refused;
        let attr = event.map_or(plan.tracking, |event| plan.attrs[event]);
        let mut refusal = self.session.refusal(error, &attr, kind);
        let denied = refusal.kind == ReasonKind::NotPermitted;
        let Some(event) = event else {
            if denied && plan.tracking.flags.intersects(PRIVILEGED) {
                plan.tracking.flags.remove(PRIVILEGED);
                return Ok(());
            }
            let error = Error::Refused(vec![refusal]);
            return Err(self.session.with_file_numbers(error, files));
        };
        if plan.sample_less_often() {
            return Ok(());
        }
        let precise = &mut plan.attrs[event].precise;
        if *precise != Precise::ArbitrarySkid && plan.events[event].modifiers.has(Modifier::MaxPrecise) && !denied {
            *precise = Precise::from_bits_truncate(precise.bits() - 1);
            return Ok(());
        }
        let levels = AttrFlags::EXCLUDE_USER | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        let cpus = scope != Scope::Tasks;
        if denied && !cpus && !plan.attrs.iter().any(|attr| attr.flags.intersects(levels)) && samples_user(&attr) {
            for (event, attr) in plan.events.iter_mut().zip(&mut plan.attrs) {
                attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
                event.attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
                event.name.push_str(if event.name.contains(':') { "u" } else { ":u" });
            }
            plan.notes.push(format!("records user mode only: {}", refusal.summary));
            return Ok(());
        }
        let is_clock = plan.events[event].attr.kind == pmux_abi::attr::EventType::SOFTWARE;
        if plan.chosen_by_us && !denied && !is_clock && !refusal.is_fatal() {
            let excluded = plan.events[event].attr.flags & levels;
            let mut clock = Event::software(Software::CpuClock);
            clock.attr.flags |= excluded;
            plan.events = vec![clock];
            plan.ask(&self.options, scope, able);
            let why =
                if refusal.errno == Some(ENOENT) { "this machine has no counters".to_owned() } else { refusal.summary };
            plan.notes.push(format!("records cpu-clock instead of cycles: {why}"));
            return Ok(());
        }
        if self.options.call_chain == CallChain::LastBranches && refusal.kind == ReasonKind::NotSupported {
            "the hardware's record of calls (LBR) can't be had: this processor has none, or its virtual machine hides it"
                .clone_into(&mut refusal.summary);
            refusal.help = vec!["find call chains in another way: -g, or --call-graph dwarf".to_owned()];
        }
        if plan.events.len() > 1 {
            refusal.summary = format!("{}: {}", plan.events[event].name, refusal.summary);
        }
        Err(self.session.with_file_numbers(Error::Refused(vec![refusal]), files))
    }

    /// Makes the cgroups known to the engine's host, each once.
    fn know_cgroups(&mut self, names: &[String]) -> Result<(), Error> {
        if !self.cgroups.is_empty() {
            return Ok(());
        }
        if names.is_empty() {
            return Err(Error::Options("no control group is named"));
        }
        let mounts = Mounts::system().map_err(Error::Cgroup)?;
        let mut cgroups: Vec<Cgroup> = Vec::new();
        for name in names {
            let cgroup = mounts.open(name).map_err(Error::Cgroup)?;
            // Twice the same would be every sample twice.
            if !cgroups.iter().any(|known| known.is(&cgroup)) {
                cgroups.push(cgroup);
            }
        }
        let host = self.session.engine().host();
        self.cgroups = cgroups.into_iter().map(|cgroup| host.add_cgroup(cgroup)).collect();
        Ok(())
    }

    fn hold_cpus(&mut self, plan: &Plan, cpus: &CpuChoice, scopes: &[SetScope]) -> Result<Option<Refused>, Error> {
        let (mask, absent) = cpus.mask(&self.session)?;
        let mut sampling = Vec::new();
        let close = |sets: Vec<SetId>| sets.into_iter().for_each(|set| self.session.engine().close_set(set));
        for &scope in scopes {
            match self.open_set(plan.specs(), scope, &mask, absent) {
                Ok(set) => sampling.push(set),
                Err((group, refused)) => {
                    close(sampling);
                    let event = plan.groups[group].1 + refused.error.index().unwrap_or_default();
                    return Ok(Some(Refused { event: Some(event), ..refused }));
                }
            }
        }
        // Names are told wherever they are given, also before a task comes into the cgroup.
        let groups = vec![GroupSpec::single(KERNEL, plan.tracking)];
        match self.open_set(groups, SetScope::Everything, &mask, absent) {
            Ok(tracking) => {
                self.held.push(Held::Cpus { tracking, sampling });
                Ok(None)
            }
            Err((_, refused)) => {
                close(sampling);
                Ok(Some(refused))
            }
        }
    }

    fn open_set(
        &self,
        groups: Vec<GroupSpec>,
        scope: SetScope,
        mask: &CpuMask,
        absent: Absent,
    ) -> Result<SetId, (usize, Refused)> {
        let request = SetRequest { groups, scope, mask: mask.clone(), absent };
        self.session.engine().open_set(request).map_err(|error| {
            let kind = match scope {
                SetScope::Cgroup(_) => TargetKind::Cgroup,
                _ => TargetKind::Cpu(error.cpu.0),
            };
            (error.group, Refused { event: None, error: error.error, kind })
        })
    }

    /// All threads of processes, or these threads. Threads are listed until nothing is new; whoever is born of one that records
    /// has inherited.
    fn hold_threads(
        &mut self,
        plan: &Plan,
        tids: &[i32],
        pids: &[i32],
        whose: Whose,
    ) -> Result<Option<Refused>, Error> {
        let (mut gone, mut born) = (None, HashSet::new());
        for _ in 0..MOST_ROUNDS {
            let mut fresh: Vec<i32> = tids.to_vec();
            for &pid in pids {
                match Proc::system().threads_of(pid) {
                    Ok(threads) => fresh.extend(threads),
                    // It was there before.
                    Err(_) if !self.tids.is_empty() => {}
                    Err(error) => return Err(Error::Process(error)),
                }
            }
            fresh.retain(|tid| !self.tids.contains(tid));
            if !fresh.is_empty() && self.options.inherit == Inherit::Children {
                self.take_early(&mut born);
            }
            fresh.retain(|tid| !born.contains(tid));
            if fresh.is_empty() {
                break;
            }
            for tid in fresh {
                self.tids.insert(tid);
                match self.hold_thread(plan, tid, whose) {
                    None => {}
                    Some(refused) if refused.error.errno() == ESRCH && (tids.len() > 1 || !pids.is_empty()) => {
                        gone = Some(refused);
                    }
                    Some(refused) => return Ok(Some(refused)),
                }
            }
            if pids.is_empty() {
                break;
            }
        }
        Ok(gone.filter(|_| self.held.is_empty()))
    }

    fn hold_thread(&mut self, plan: &Plan, tid: i32, whose: Whose) -> Option<Refused> {
        let cpus: Vec<CpuId> = self.session.engine().online().iter().collect();
        let before = self.held.len();
        let refused = cpus.iter().find_map(|&cpu| self.hold_thread_on(&plan.specs(), plan.tracking, tid, cpu).err());
        let (group, error) = refused?;
        self.close(before);
        let event = group.map(|group| plan.groups[group].1 + error.index().unwrap_or_default());
        Some(Refused { event, error, kind: TargetKind::Task(whose) })
    }

    /// Opens everything on a thread and a CPU. Who is told to have been born has inherited what samples, so tracking comes last.
    pub(super) fn hold_thread_on(
        &mut self,
        specs: &[GroupSpec],
        tracking: Attr,
        tid: i32,
        cpu: CpuId,
    ) -> Result<(), (Option<usize>, OpenError)> {
        let engine = self.session.engine();
        let target =
            pmux_engine::Target { context: ContextKey::Task(LinuxHost::task(tid)), filter: Filter::OnCpu(cpu) };
        let mut sampling: Vec<Opened> = Vec::new();
        let open = |group: Option<usize>, spec: &GroupSpec| match engine.open(spec, target) {
            Ok(opened) => Ok(opened),
            Err(error) => Err((group, error)),
        };
        for (index, spec) in specs.iter().enumerate() {
            match open(Some(index), spec) {
                Ok(opened) => sampling.push(opened),
                Err(refused) => {
                    sampling.iter().for_each(|opened| engine.close(opened.group));
                    return Err(refused);
                }
            }
        }
        let tracking = open(None, &GroupSpec::single(KERNEL, tracking)).inspect_err(|_| {
            sampling.iter().for_each(|opened| engine.close(opened.group));
        })?;
        let index = self.held.len();
        self.held.push(Held::Task { cpu, tracking, sampling });
        // What can't be led anywhere tells nothing; the error comes again when all are led.
        let _ = self.lead(index);
        Ok(())
    }

    /// Closes what is held from an index on.
    pub(super) fn close(&mut self, from: usize) {
        let engine = self.session.engine();
        for held in self.held.drain(from.min(self.held.len())..) {
            match held {
                Held::Cpus { tracking, sampling } => {
                    sampling.into_iter().for_each(|set| engine.close_set(set));
                    engine.close_set(tracking);
                }
                Held::Task { tracking, sampling, .. } => {
                    sampling.iter().for_each(|opened| engine.close(opened.group));
                    engine.close(tracking.group);
                }
            }
        }
    }

    /// The events of a held part: which one of `descs` each is, and its CPU; the tracking one is told as `None`.
    pub(super) fn events_of(&self, held: &Held) -> Result<Vec<(Option<usize>, EventId, CpuId)>, Error> {
        let engine = self.session.engine();
        let mut events = Vec::new();
        match held {
            Held::Cpus { tracking, sampling } => {
                for (cpu, members) in
                    sampling.iter().map(|&set| engine.set_events(set)).collect::<Result<Vec<_>, _>>()?.concat()
                {
                    events.extend(members.into_iter().enumerate().map(|(index, event)| (Some(index), event, cpu)));
                }
                for (cpu, members) in engine.set_events(*tracking)? {
                    events.extend(members.into_iter().map(|event| (None, event, cpu)));
                }
            }
            Held::Task { cpu, tracking, sampling } => {
                let all = sampling.iter().flat_map(|opened| opened.events.iter().copied());
                events.extend(all.enumerate().map(|(index, event)| (Some(index), event, *cpu)));
                events.push((None, tracking.events[0], *cpu));
            }
        }
        Ok(events)
    }
}

/// Whether something is left to be sampled without the kernel.
fn samples_user(attr: &Attr) -> bool {
    use pmux_abi::attr::{EventType, sw};
    let in_kernel = [sw::CONTEXT_SWITCHES, sw::CPU_MIGRATIONS, sw::CGROUP_SWITCHES];
    attr.kind != EventType::TRACEPOINT && (attr.kind != EventType::SOFTWARE || !in_kernel.contains(&attr.config))
}
