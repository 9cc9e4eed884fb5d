//! Opening: rings, then events times CPUs, or times threads and CPUs; everywhere or nowhere.
//!
//! What it is: [`Recorder::open`]. On CPUs an event is a set, which follows CPUs that go and come back. Of a thread there is an
//! event for each CPU, because one that is inherited and follows its task has no ring; such an event stays when its CPU goes.
//! Where the kernel refuses something that we can do without, it is left out, and said.
//!
//! **Invariant:** after an error nothing is open. What the file says of an event is what the kernel was asked.

use super::attrs::{Able, CallChain, PRIVILEGED, RecordScope};
use super::build_ids::MappedBuildIds;
use super::drain::Progress;
use super::off_cpu::{self, EVENTS};
use super::plan::{Plan, able, by_part};
use super::rings::Rings;
use super::{RecordOptions, Recorder};
use crate::clones::Cloning;
use crate::error::Error;
use crate::event::{EventList, Modifier};
use crate::flight::CpuRings;
use crate::owned_group::Owned;
use crate::refusal::Refusal;
use crate::ring_owner::is_too_large;
use crate::session::{Backend, Session};
use crate::target::{CpuChoice, Inherit, Target};
use pmux_abi::attr::{Attr, Precise};
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::engine::SetRequest;
use pmux_engine::system_wide::{Absent, SetScope};
use pmux_engine::target::{ContextKey, Filter, Opened};
use pmux_engine::{CpuId, EventId, GroupSpec, OpenError, SetId};
use pmux_linux::cgroup::{Cgroup, Mounts};
use pmux_linux::diagnose::{ReasonKind, TargetKind, Whose};
use pmux_linux::host::{KERNEL, LinuxHost};
use pmux_linux::procfs::Proc;
use std::collections::{HashMap, HashSet};

/// Bytes of each ring where larger ones, twice, are not allowed.
const SMALL_RING_BYTES: u64 = 128 << 10;
const ESRCH: i32 = 3;
/// How often threads are listed before it is given up to meet them all.
const MOST_ROUNDS: usize = 64;
pub(super) const UNSETTLED: &str = "threads came and went faster than they could be listed: some may not be recorded";

/// What is open beside the events: what is written, what is read of `/proc`, what is waited for.
const OTHER_FILES: u64 = 16;

pub(super) enum RecordedEvents {
    /// On CPUs: the events, part by part, and of each part for each cgroup where cgroups are recorded, and the tracking one.
    Cpus { sampling: Vec<Owned<SetId>>, tracking: Owned<SetId> },
    /// On a thread and a CPU.
    Task { cpu: CpuId, sampling: Vec<Owned<Opened>>, tracking: Owned<Opened> },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventRole {
    /// They are what is wanted.
    Samples,
    /// They explain the others.
    Tracking,
}

/// What is recorded otherwise than usual.
#[derive(Default)]
pub(crate) struct RecordMode {
    /// Where samples go, if they don't wait for a reader.
    pub(crate) cpu_rings: Option<CpuRings>,
    /// Events that stay off until other code switches them on.
    pub(crate) sets: Vec<EventList>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Switch {
    On,
    Off,
}

/// How many files a recording takes: an event for each CPU and cgroup, or thread; one more of each that tells what happens; and the
/// rings.
fn files_of(target: &Target<'_>, plan: &Plan, cpus: usize, rings_of_cpu: usize) -> u64 {
    let threads = |&pid: &i32| Proc::system().threads_of(pid).map_or(1, |threads| threads.len());
    let sampling = plan.attrs.len();
    let of_cpu = match target {
        Target::Cgroups { names, .. } => sampling * names.len() + 1,
        Target::Cpus(_) | Target::CurrentThread | Target::Command(_) => sampling + 1,
        Target::Threads(tids) => tids.len() * (sampling + 1),
        Target::Processes(pids) => pids.iter().map(threads).sum::<usize>() * (sampling + 1),
    };
    let of_waits = if plan.records_waits() { 1 + EVENTS.len() } else { 0 };
    (cpus * (rings_of_cpu + of_cpu + of_waits)) as u64 + OTHER_FILES
}

/// What was refused of what was to be held, if anything.
type Held = Result<Option<RecordRefusal>, Error>;

struct RecordRefusal {
    /// The event; `None` for the tracking one.
    event: Option<usize>,
    error: OpenError,
    kind: TargetKind,
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
        if options.off_cpu.is_none() || options.ring_bytes.is_some() {
            return Self::open_as(session, events, target, options, RecordMode::default());
        }
        match Self::open_as(session, events.clone(), target, options.clone(), RecordMode::default()) {
            // What is for waits needs as much again, and all was taken that is allowed.
            Err(error) if is_too_large(&error) => {
                let options = RecordOptions { ring_bytes: Some(SMALL_RING_BYTES), ..options };
                Self::open_as(session, events, target, options, RecordMode::default())
            }
            opened => opened,
        }
    }

    /// As [`Recorder::open`], in another manner.
    pub(crate) fn open_as(
        session: &Session,
        events: EventList,
        target: &Target<'_>,
        options: RecordOptions,
        mut mode: RecordMode,
    ) -> Result<Self, Error> {
        if let Backend::Usage { why } = session.backend() {
            return Err(Error::Refused(vec![(**why).clone()]));
        }
        let scope = match target {
            Target::Cgroups { names, .. } if names.len() > 1 => RecordScope::Cgroups,
            Target::Cpus(_) | Target::Cgroups { .. } => RecordScope::Cpus,
            _ => RecordScope::Tasks,
        };
        let able = able(session);
        let mut plan = Plan::new(events, &mut mode, &options, scope, able)?;
        session.watch_hotplug();
        let cpus: Vec<CpuId> = match target {
            Target::Cpus(cpus) | Target::Cgroups { cpus, .. } => {
                let online = session.online();
                cpus.mask(session)?.0.iter().filter(|cpu| online.contains(cpu.0)).collect()
            }
            _ => session.engine().online().iter().collect(),
        };
        let rings_of_cpu = if mode.cpu_rings.is_some() { 2 } else { 1 };
        let files = |plan: &Plan| files_of(target, plan, cpus.len(), rings_of_cpu);
        let rings = Rings::open(session, &cpus, options.ring_bytes, mode.cpu_rings)
            .map_err(|error| session.with_file_numbers(error, files(&plan)))?;
        let mut recorder = Self::new(session, options, &plan, rings);
        if let Err(error) = recorder.hold(&mut plan, target, scope, able) {
            // Only what is closed is counted once.
            drop(recorder);
            return Err(session.with_file_numbers(error, files(&plan)));
        }
        let needed = files(&plan);
        recorder.descs = plan.descs();
        recorder.notes = plan.notes;
        recorder.group_sizes = plan.groups.iter().map(|(_, _, count)| *count).collect();
        let named = plan.groups.into_iter().filter(|(_, _, count)| *count > 1);
        recorder.groups = named.map(|(name, first, count)| (name, first as u32, count as u32)).collect();
        let led =
            recorder.lead_all().and_then(|()| recorder.hold_waits(target)).and_then(|()| Refusal::files_for_later());
        if let Err(error) = led {
            drop(recorder);
            return Err(session.with_file_numbers(error, needed));
        }
        for (event, id) in std::mem::take(&mut recorder.fresh) {
            recorder.descs[event].ids.push(id);
        }
        Ok(recorder)
    }

    /// One that holds nothing yet.
    pub(super) fn new(session: &Session, options: RecordOptions, plan: &Plan, rings: Rings) -> Self {
        Self {
            session: session.clone(),
            options,
            descs: Vec::new(),
            held: Vec::new(),
            cgroups: Vec::new(),
            rings,
            known: HashMap::new(),
            fresh: Vec::new(),
            groups: Vec::new(),
            group_sizes: Vec::new(),
            parts: plan.parts.clone(),
            absences: super::absence::Absences::default(),
            sampling: Switch::Off,
            event_sets: Vec::new(),
            tracking_index: plan.tracking_index(),
            notes: Vec::new(),
            build_ids: MappedBuildIds::default(),
            progress: Progress::default(),
            early: Vec::new(),
            tids: HashSet::new(),
            packing: None,
            past: None,
            cpu_came_ns: None,
            of_machine: None,
            off_cpu: None,
            regions: None,
            shared: None,
        }
    }

    pub(super) fn hold_waits(&mut self, target: &Target<'_>) -> Result<(), Error> {
        if self.options.off_cpu.is_none() {
            return Ok(());
        }
        let (mut off_cpu, note) = off_cpu::open(self, target)?;
        self.notes.extend(note);
        off_cpu.lead(&mut self.fresh)?;
        self.off_cpu = Some(off_cpu);
        Ok(())
    }

    /// Opens everything, in a milder way where it has to be.
    fn hold(&mut self, plan: &mut Plan, target: &Target<'_>, scope: RecordScope, able: Able) -> Result<(), Error> {
        loop {
            let refused = match target {
                Target::Cpus(cpus) => self.hold_cpus(plan, cpus, &[SetScope::Everything])?,
                Target::Cgroups { names, cpus } => {
                    self.know_cgroups(names)?;
                    let scopes: Vec<_> = self.cgroups.iter().map(|id| SetScope::Cgroup(**id)).collect();
                    self.hold_cpus(plan, cpus, &scopes)?
                }
                Target::CurrentThread => self.hold_threads(plan, &[pmux_linux::current_tid()], &[], Whose::Own)?,
                Target::Command(command) => self.hold_threads(plan, &[command.pid()], &[], Whose::Own)?,
                Target::Threads(tids) => self.hold_threads(plan, tids, &[], Whose::Other)?,
                Target::Processes(pids) => self.hold_threads(plan, &[], pids, Whose::Other)?,
            };
            let Some(refused) = refused else { return Ok(()) };
            self.held.clear();
            self.tids.clear();
            self.known.clear();
            self.fresh.clear();
            self.give_in(plan, &refused, scope, able)?;
        }
    }

    /// Changes the plan to what may be granted, or says why nothing helps.
    fn give_in(&self, plan: &mut Plan, refused: &RecordRefusal, scope: RecordScope, able: Able) -> Result<(), Error> {
        let RecordRefusal { event, error, kind } = *refused;
        let attr = event.map_or(plan.tracking, |event| plan.attrs[event]);
        let mut refusal = self.session.refusal(error, &attr, kind);
        let denied = refusal.kind == ReasonKind::NotPermitted;
        let Some(event) = event else {
            if denied && plan.tracking.flags.intersects(PRIVILEGED) {
                plan.tracking.flags.remove(PRIVILEGED);
                return Ok(());
            }
            return Err(Error::Refused(vec![refusal]));
        };
        if plan.sample_less_often() {
            return Ok(());
        }
        let precise = &mut plan.attrs[event].precise;
        if *precise != Precise::ArbitrarySkid && plan.events[event].modifiers.has(Modifier::MaxPrecise) && !denied {
            *precise = Precise::from_bits_truncate(precise.bits() - 1);
            return Ok(());
        }
        if denied && plan.leave_kernel_out(event, scope, &refusal.summary) {
            return Ok(());
        }
        let is_clock = plan.events[event].attr.kind == pmux_abi::attr::EventType::SOFTWARE;
        if plan.chosen_by_us && !denied && !is_clock && !refusal.is_fatal() {
            let has_none = refusal.errno == Some(pmux_linux::Errno::ENOENT.raw());
            let why = if has_none { "this machine has no counters" } else { &refusal.summary };
            plan.take_clock(&self.options, scope, able, why);
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
        Err(Error::Refused(vec![refusal]))
    }

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
        self.cgroups = cgroups.into_iter().map(|cgroup| self.session.hold_cgroup(cgroup)).collect();
        Ok(())
    }

    fn hold_cpus(&mut self, plan: &Plan, cpus: &CpuChoice, scopes: &[SetScope]) -> Held {
        let (mask, absent) = cpus.mask(&self.session)?;
        let (specs, mut sampling) = (plan.specs(), Vec::new());
        let each = plan.parts.iter().flat_map(|part| scopes.iter().map(move |&scope| (part, scope)));
        for (part, scope) in each {
            match self.open_set(specs[part.groups.clone()].to_vec(), scope, &mask, absent) {
                Ok(set) => sampling.push(set),
                Err((group, refused)) => {
                    let group = part.groups.start + group;
                    let event = plan.groups[group].1 + refused.error.index().unwrap_or_default();
                    return Ok(Some(RecordRefusal { event: Some(event), ..refused }));
                }
            }
        }
        // Names are told wherever they are given, also before a task comes into the cgroup.
        let groups = vec![GroupSpec::single(KERNEL, plan.tracking)];
        match self.open_set(groups, SetScope::Everything, &mask, absent) {
            Ok(tracking) => {
                self.held.push(RecordedEvents::Cpus { sampling, tracking });
                Ok(None)
            }
            Err((_, refused)) => Ok(Some(refused)),
        }
    }

    fn open_set(
        &self,
        groups: Vec<GroupSpec>,
        scope: SetScope,
        mask: &CpuMask,
        absent: Absent,
    ) -> Result<Owned<SetId>, (usize, RecordRefusal)> {
        let request = SetRequest { groups, scope, mask: mask.clone(), absent };
        self.session.hold_set(request).map_err(|error| {
            let in_cgroup = matches!(scope, SetScope::Cgroup(_));
            let kind = if in_cgroup { TargetKind::Cgroup } else { TargetKind::Cpu(error.cpu.0) };
            (error.group, RecordRefusal { event: None, error: error.error, kind })
        })
    }

    /// All threads of processes, or these threads. Threads are listed until nothing is new; a thread that is born of one
    /// that records has inherited.
    fn hold_threads(&mut self, plan: &mut Plan, tids: &[i32], pids: &[i32], whose: Whose) -> Held {
        let (mut gone, mut born, mut cloning) = (None, HashSet::new(), Cloning::default());
        let mut settled = pids.is_empty();
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
                if pids.is_empty() || !cloning.list_again() {
                    settled = true;
                    break;
                }
                continue;
            }
            cloning.add(&fresh);
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
        if !settled && !plan.notes.iter().any(|note| note == UNSETTLED) {
            plan.notes.push(UNSETTLED.to_owned());
        }
        Ok(gone.filter(|_| self.held.is_empty()))
    }

    fn hold_thread(&mut self, plan: &Plan, tid: i32, whose: Whose) -> Option<RecordRefusal> {
        let cpus: Vec<CpuId> = self.session.engine().online().iter().collect();
        let before = self.held.len();
        let refused = cpus.iter().find_map(|&cpu| self.hold_thread_on(&plan.specs(), plan.tracking, tid, cpu).err());
        let (group, error) = refused?;
        self.held.truncate(before);
        let event = group.map(|group| plan.groups[group].1 + error.index().unwrap_or_default());
        Some(RecordRefusal { event, error, kind: TargetKind::Task(whose) })
    }

    /// Opens everything on a thread and a CPU. Who is told to have been born has inherited what samples, so tracking comes last.
    pub(super) fn hold_thread_on(
        &mut self,
        specs: &[GroupSpec],
        tracking: Attr,
        tid: i32,
        cpu: CpuId,
    ) -> Result<(), (Option<usize>, OpenError)> {
        let target =
            pmux_engine::Target { context: ContextKey::Task(LinuxHost::task(tid)), filter: Filter::OnCpu(cpu) };
        let open = |group, spec: &GroupSpec| self.session.hold(spec, target).map_err(|error| (group, error));
        let specs = specs.iter().enumerate();
        let sampling = specs.map(|(index, spec)| open(Some(index), spec)).collect::<Result<Vec<_>, _>>()?;
        let tracking = open(None, &GroupSpec::single(KERNEL, tracking))?;
        let index = self.held.len();
        self.held.push(RecordedEvents::Task { cpu, sampling, tracking });
        // What can't be led anywhere tells nothing; the error comes again when all are led.
        let _ = self.lead(index);
        Ok(())
    }

    /// The events of a held part: which one of `descs` each is, and its CPU; the tracking one is told as `None`.
    pub(super) fn events_of(&self, held: &RecordedEvents) -> Result<Vec<(Option<usize>, EventId, CpuId)>, Error> {
        let engine = self.session.engine();
        let mut events = Vec::new();
        match held {
            RecordedEvents::Cpus { tracking, sampling } => {
                for (sets, part) in by_part(sampling, &self.parts).zip(&self.parts) {
                    for set in sets {
                        for (cpu, members) in engine.set_events(**set)? {
                            let members = part.events.clone().zip(members);
                            events.extend(members.map(|(index, event)| (Some(index), event, cpu)));
                        }
                    }
                }
                for (cpu, members) in engine.set_events(**tracking)? {
                    events.extend(members.into_iter().map(|event| (None, event, cpu)));
                }
            }
            RecordedEvents::Task { cpu, tracking, sampling } => {
                let all = sampling.iter().flat_map(|opened| opened.events.iter().copied());
                events.extend(all.enumerate().map(|(index, event)| (Some(index), event, *cpu)));
                events.push((None, tracking.events[0], *cpu));
            }
        }
        Ok(events)
    }
}
