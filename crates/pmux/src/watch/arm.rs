//! Arming: spots times threads, or times CPUs; everywhere or nowhere.
//!
//! What it is: everything is opened first, through the engine, and lets go of again where one is refused; then all is switched
//! on. Threads of a process are listed until nothing is new: a thread that starts after that inherits.
//!
//! Which of those that are found late have inherited is not known. They are armed once more, and `take` tells each hit once.
//!
//! Where programs tell of hits, an event follows its thread to every CPU. A child that is forked at the moment between the opening of an
//! event and its program has the one and not the other, so no program would tell of its hits. Where a task was born while others
//! were armed, all is armed anew by events on each CPU, each of which writes into a ring what no program does ([`HitReporter`]).
//!
//! **Invariant:** after an error nothing of the request is open.

use super::probe::WatchProbe;
use super::rings::{Load, WatchRecordKind, WatchRings, with_records};
use super::shortage::RegisterTarget;
use super::threads::{PiecesToOpen, Roll, TasksToWatch, ThreadRefusal, open_apart, open_together};
use super::{
    AcrossExec, Births, OpenBreakpoints, RegisterSharing, Shortage, Sides, TargetState, Wakes, Watch, WatchDetail,
    WatchOptions, WatchPiece, WatchTarget,
};
use crate::clones::Cloning;
use crate::error::Error;
use crate::event::Event;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::target::{CpuChoice, Inherit, Target};
use pmux_abi::attr::{Attr, AttrFlags, Sampling, Wakeup};
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::engine::SetRequest;
use pmux_engine::pmu::BankError;
use pmux_engine::system_wide::SetScope;
use pmux_engine::{CpuId, GroupSpec, Host as _, Nanos, OpenError, PmuId};
use pmux_linux::diagnose::{TargetKind, Whose};
use pmux_linux::host::{EnableTime, KERNEL, Registers};
use pmux_linux::procfs::Proc;
use pmux_linux::threads;
use std::collections::HashSet;

/// How often threads are listed before it is given up to meet them all.
const MOST_ROUNDS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HitReporter {
    /// A program: one event for each thread, without a ring.
    Program(EnableTime),
    /// The event, where no program does: one for each thread and CPU.
    Event,
}

/// Whose counters hits are counted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CountedBy {
    /// The watch's own, which know of rings, programs and turns.
    Watch,
    /// As any other event: by a service, where who asks the same shares a register.
    AnyHolder,
}

impl CountedBy {
    /// Where hits are only counted, and each has its register for itself, nothing is asked of a counter that others don't have.
    pub(super) fn of(session: &Session, options: &WatchOptions) -> Self {
        let only_counts = options.detail == WatchDetail::Counts && options.sharing == RegisterSharing::Refuse;
        if only_counts && session.engine().host().find_service().is_some() { Self::AnyHolder } else { Self::Watch }
    }
}

impl Watch {
    /// Watches more spots, on the same target or another one: a library was loaded, a process has started.
    ///
    /// # Errors
    /// As [`Watch::open`]; what was watched before stays so.
    pub fn add(&mut self, watch_targets: Vec<WatchTarget>, target: &Target<'_>) -> Result<(), Error> {
        let (first, held) = (self.watched.len(), self.held.len());
        let result = self.prepare(watch_targets).and_then(|()| match target {
            Target::Cpus(cpus) => self.arm_cpus(first, cpus),
            Target::CurrentThread => {
                self.arm_tasks(first, &TasksToWatch::Threads(vec![pmux_linux::current_tid()]), Whose::Own)
            }
            Target::Command(command) => self.arm_tasks(first, &TasksToWatch::Threads(vec![command.pid()]), Whose::Own),
            Target::Threads(tids) => self.arm_tasks(first, &TasksToWatch::Threads(tids.clone()), Whose::Other),
            Target::Processes(pids) => self.arm_tasks(first, &TasksToWatch::Processes(pids), Whose::Other),
            Target::Cgroups { .. } => {
                Err(Error::Options("a cgroup has no debug registers: watch its processes, or CPUs"))
            }
        });
        if let Err(error) = result.and_then(|()| Refusal::files_for_later()) {
            self.held.truncate(held);
            for watched in self.watched.drain(first..) {
                if let Some(probe) = &self.probe {
                    probe.remove(&watched);
                }
            }
            // Everything is closed again, so there are files for the explanation.
            return Err(self.session.with_file_numbers(error, self.files_of(target)));
        }
        let now = self.session.engine().host().now();
        let are_armed_once = self.late.is_empty();
        for watched in self.watched.iter_mut().skip(first) {
            watched.armed_at = Some(now);
            // Before that all hits are to be seen, so that it is known which were too early.
            if let Some(probe) = &self.probe {
                probe.judge(watched, are_armed_once);
            }
        }
        let kept = self.registers == Registers::Kept && self.counters() == self.pmu;
        let begun_together = kept && !matches!(target, Target::Cpus(_));
        if self.options.detail == WatchDetail::Counts && !begun_together {
            // Nothing tells hits that came while one after the other began from later ones.
            for watch_target in first..self.watched.len() {
                let before = self.count(watch_target).map_or(0, |count| count.value);
                self.watched[watch_target].not_ours = before;
            }
        }
        self.look_at_values(first);
        self.begin_turns()
    }

    fn prepare(&mut self, watch_targets: Vec<WatchTarget>) -> Result<(), Error> {
        for watch_target in watch_targets {
            let pieces = watch_target.pieces(self.watched.len()).map_err(Error::WatchTarget)?;
            let watched = TargetState { watch_target, pieces, armed_at: None, not_ours: 0, reported: 0 };
            self.update_probe(&watched)?;
            self.watched.push(watched);
        }
        Ok(())
    }

    fn files_of(&self, target: &Target<'_>) -> u64 {
        let cpus = self.session.online().len();
        let threads = match target {
            Target::Processes(pids) => {
                pids.iter().filter_map(|&pid| Proc::system().threads_of(pid).ok()).flatten().count()
            }
            Target::Threads(tids) => tids.len(),
            _ => 1,
        };
        let pieces: usize = self.watched.iter().map(|watched| watched.pieces.len()).sum();
        ((pieces + 1) * threads.max(1) * cpus) as u64
    }

    /// The pieces of the spots from `first` on, as events; where there are no programs, the first one also tells of forks, names and
    /// mappings.
    pub(super) fn events(&self, first: usize, tasks: bool, reporter: HitReporter) -> Vec<(WatchPiece, Attr)> {
        let pieces = self.watched.iter().skip(first).flat_map(|watched| {
            let access = watched.watch_target.access;
            let event = move |&piece: &WatchPiece| (piece, Event::breakpoint(piece.address, piece.len, access).attr);
            watched.pieces.iter().map(event)
        });
        let mut events: Vec<_> = pieces
            .map(|(piece, mut attr)| {
                let inherits = tasks && self.options.inherit == Inherit::Children;
                let drops = tasks && self.options.across_exec == AcrossExec::Drop && attr.config1 >> 63 == 0;
                attr.flags.set(AttrFlags::INHERIT, inherits);
                attr.flags.set(AttrFlags::REMOVE_ON_EXEC, drops);
                if self.sides == Sides::UserOnly {
                    attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
                }
                if self.options.detail != WatchDetail::Counts {
                    attr.sampling = Sampling::Period(1);
                }
                if self.options.detail != WatchDetail::Counts && reporter == HitReporter::Event {
                    attr.wakeup = Wakeup::Events(u32::from(self.wakes() == Wakes::EachHit));
                    with_records(&mut attr, self.max_stack());
                }
                (piece, attr)
            })
            .collect();
        // Where registers take turns, all events must be alike.
        if self.options.detail != WatchDetail::Counts
            && self.probe.is_none()
            && self.registers == Registers::Kept
            && let Some((_, attr)) = events.first_mut()
        {
            attr.flags |= AttrFlags::TASK | AttrFlags::COMM | AttrFlags::COMM_EXEC;
            if tasks {
                attr.flags |= AttrFlags::MMAP | AttrFlags::MMAP2;
            }
        }
        events
    }

    /// Whose counters the next events are: others than the watch's own know of nothing but counting.
    fn counters(&self) -> PmuId {
        let only_counts = self.options.detail == WatchDetail::Counts;
        if only_counts && self.counted_by == CountedBy::AnyHolder { KERNEL } else { self.pmu }
    }

    /// Frames of the call chain that events write themselves.
    fn max_stack(&self) -> u16 {
        if self.probe.is_none() { self.options.detail.max_stack() } else { 0 }
    }

    fn open_rings(&mut self) -> Result<(), Error> {
        if self.rings.is_none() && self.options.detail != WatchDetail::Counts {
            let cpus: Vec<_> = self.session.engine().online().iter().collect();
            let counts = self.probe.as_ref().is_some_and(|probe| !probe.looks());
            let load = if counts { Load::SomeHits } else { Load::EachHit };
            let mut attr = Attr::default();
            with_records(&mut attr, self.max_stack());
            let rings = WatchRings::open(&self.session, self.pmu, &cpus, attr, load)?;
            if let Some(probe) = &mut self.probe {
                probe.connect(&rings);
            }
            self.rings = Some(rings);
        }
        Ok(())
    }

    /// Whether it is worth trying without what the kernel refuses.
    fn give_in(&mut self, error: OpenError, first: usize) -> bool {
        let denied = matches!(error, OpenError::Bank { error: BankError::NotPermitted | BankError::Other(1), .. });
        let in_kernel = self.watched.iter().skip(first).any(|watched| watched.watch_target.is_in_kernel());
        if denied && !in_kernel && self.sides == Sides::Both && self.held.is_empty() {
            self.sides = Sides::UserOnly;
            return true;
        }
        // Kernels before 5.13 keep breakpoints across an exec.
        let unknown = matches!(error, OpenError::Bank { error: BankError::Invalid | BankError::Other(7), .. });
        let facts = || self.session.facts().is_older_than((5, 13));
        if unknown && self.options.across_exec == AcrossExec::Drop && facts() {
            self.options.across_exec = AcrossExec::Keep;
            return true;
        }
        false
    }

    /// Threads have come while others were armed: those that have inherited, and are armed once more, would be counted twice. So hits
    /// are looked at, and the caller is not told of them.
    fn see_hits_to_count(&mut self) -> Result<(), Error> {
        self.options.detail = WatchDetail::Rows { max_stack: 0 };
        self.only_counts = true;
        self.session.watch_hotplug();
        self.open_probe(Births::Forks);
        self.watched.iter().try_for_each(|watched| self.update_probe(watched))
    }

    /// Programs know the pieces of a spot.
    fn update_probe(&self, watched: &TargetState) -> Result<(), Error> {
        let failed = |errno| Error::Ring { what: "telling a program of an address", errno };
        self.probe.as_ref().map_or(Ok(()), |probe| probe.add(watched).map_err(failed))
    }

    fn arm_tasks(&mut self, first: usize, tasks: &TasksToWatch<'_>, whose: Whose) -> Result<(), Error> {
        let before = self.held.len();
        let mut reporter =
            if self.probe.is_some() { HitReporter::Program(EnableTime::AtOpen) } else { HitReporter::Event };
        let pids = processes(tasks);
        'again: loop {
            let events = self.events(first, true, reporter);
            if events.is_empty() {
                return Ok(());
            }
            self.open_rings()?;
            let began = self.session.engine().host().now();
            self.follow(&pids, began);
            let (pieces, specs): (Vec<_>, Vec<_>) =
                events.iter().map(|(piece, attr)| (*piece, GroupSpec::single(self.counters(), *attr))).unzip();
            let wanted = PiecesToOpen { pieces: &pieces, specs: &specs };
            let mut roll = Roll::default();
            let mut cloning = Cloning::default();
            let mut gone = None;
            for round in 0..MOST_ROUNDS {
                let fresh = roll.fresh(tasks)?;
                if fresh.is_empty() {
                    if pids.is_empty() || !cloning.list_again() {
                        break;
                    }
                    roll.doubt();
                    continue;
                }
                cloning.add(&fresh);
                if round > 0 && (self.options.detail == WatchDetail::Counts || reporter != HitReporter::Event) {
                    self.held.truncate(before);
                    if self.options.detail == WatchDetail::Counts {
                        self.see_hits_to_count()?;
                    }
                    self.forget_hits(first);
                    reporter = HitReporter::Event;
                    continue 'again;
                }
                if let Some(probe) = self.probe.as_mut().filter(|_| round > 0) {
                    probe.next_tag(self.pmu);
                }
                // One that was born meanwhile has inherited, and the registers are taken: by us.
                let tolerated = if round > 0 { &[ESRCH, ENOSPC][..] } else { &[ESRCH] };
                let armed = match self.registers {
                    Registers::Kept if self.counters() == self.pmu => {
                        open_together(&self.session, self.pmu, &fresh, &wanted, tolerated, reporter)
                    }
                    _ => open_apart(&self.session, &fresh, &wanted, tolerated, reporter),
                };
                match armed {
                    Ok((held, ended)) => {
                        if round > 0 {
                            self.late.extend(held.iter().flat_map(OpenBreakpoints::tids));
                        }
                        self.held.extend(held);
                        self.gone += ended.len() as u64;
                        gone = gone.or(ended.first().copied());
                    }
                    Err(ThreadRefusal { tid, index, error }) => {
                        self.held.truncate(before);
                        if reporter == HitReporter::Program(EnableTime::AtOpen) && error.errno() == EAGAIN {
                            self.forget_hits(first);
                            reporter = HitReporter::Program(EnableTime::AfterAttach);
                            continue 'again;
                        }
                        if self.give_in(error, first) {
                            continue 'again;
                        }
                        return Err(self.refused(RegisterTarget::Thread(tid, whose), &events, index, error));
                    }
                }
                if matches!(tasks, TasksToWatch::Threads(_)) {
                    break;
                }
            }
            if reporter != HitReporter::Event && self.have_forked(&pids, began) {
                self.held.truncate(before);
                self.forget_hits(first);
                reporter = HitReporter::Event;
                continue 'again;
            }
            if self.held.len() == before
                && let Some((tid, error)) = gone
            {
                return Err(self.refused(RegisterTarget::Thread(tid, whose), &events, 0, error));
            }
            // Only now, when all is armed: what has no time is counted from here on, and what takes turns begins.
            let groups: Vec<_> = self.held.iter().skip(before).filter_map(OpenBreakpoints::group).collect();
            self.session.engine().enable_each(&groups).map_err(|(_, error)| error)?;
            return Ok(());
        }
    }

    /// Whether one of these processes has started a thread or a process since then.
    fn have_forked(&mut self, pids: &[i32], since: Nanos) -> bool {
        self.drain();
        let theirs =
            |what: &WatchRecordKind| matches!(what, WatchRecordKind::Fork { parent, .. } if pids.contains(parent));
        self.pending.iter().any(|entry| entry.at >= since && theirs(&entry.what))
    }

    fn arm_cpus(&mut self, first: usize, cpus: &CpuChoice) -> Result<(), Error> {
        self.session.watch_hotplug();
        let (mask, absent) = cpus.mask(&self.session)?;
        loop {
            let events = self.events(first, false, HitReporter::Event);
            if events.is_empty() {
                return Ok(());
            }
            self.open_rings()?;
            let groups = events.iter().map(|(_, attr)| GroupSpec::single(self.counters(), *attr)).collect();
            let request = SetRequest { groups, scope: SetScope::Everything, mask: mask.clone(), absent };
            match self.session.hold_set(request) {
                Ok(set) => {
                    let watch_targets = events.iter().map(|(piece, _)| piece.watch_target).collect();
                    self.session.engine().enable_set(*set)?;
                    self.held.push(OpenBreakpoints::Cpus { watch_targets, set });
                    return Ok(());
                }
                Err(error) if self.give_in(error.error, first) => {}
                Err(error) => {
                    return Err(self.refused(RegisterTarget::Cpu(error.cpu), &events, error.group, error.error));
                }
            }
        }
    }

    /// Why it was not armed, in words.
    fn refused(&self, place: RegisterTarget, events: &[(WatchPiece, Attr)], index: usize, error: OpenError) -> Error {
        let Some((piece, attr)) = events.get(index) else { return Error::Options("nothing was to be watched") };
        let target = self.watched.get(piece.watch_target).map(|watched| &watched.watch_target);
        let name = target.map(|target| target.name.clone()).unwrap_or_default();
        if error.errno() == ENOSPC {
            return Error::Shortage(Box::new(Shortage::of(place, name, index, events.len(), Some(error))));
        }
        let kind = match place {
            RegisterTarget::Thread(_, whose) => TargetKind::Task(whose),
            RegisterTarget::Cpu(cpu) => TargetKind::Cpu(cpu.0),
        };
        let mut refusal = self.session.refusal(error, attr, kind);
        let kernel_code = target.is_some_and(|target| target.is_in_kernel() && target.is_code());
        if kernel_code && error.errno() == EINVAL {
            "this kernel does not let a program wait for executions of its own code there: it was built without kprobes \
             (CONFIG_KPROBES), or the function is one that can't be probed"
                .clone_into(&mut refusal.summary);
            refusal.help = vec!["watch data of the kernel, or functions of programs".to_owned()];
        }
        if error.errno() != ESRCH {
            refusal.summary = format!("{name} can't be watched: {}", refusal.summary);
        }
        Error::Refused(vec![refusal])
    }

    /// What the data is before the first hit.
    fn look_at_values(&mut self, first: usize) {
        let looks = self.probe.as_ref().is_some_and(WatchProbe::looks);
        if !matches!(self.options.detail, WatchDetail::Values { .. }) && !looks {
            return;
        }
        let fresh = self
            .held
            .iter()
            .filter(|held| matches!(held, OpenBreakpoints::Tasks { watch_target, .. } if *watch_target >= first));
        let tids: HashSet<i32> = fresh.flat_map(OpenBreakpoints::tids).collect();
        let proc = Proc::system();
        let pids: HashSet<i32> = tids.into_iter().filter_map(|tid| proc.process_of(tid).ok()).collect();
        for pid in pids {
            for watch_target in first..self.watched.len() {
                let Some((value, _)) = self.look_at(pid, watch_target) else { continue };
                if let Some(probe) = &self.probe {
                    let address = self.watched[watch_target].watch_target.address;
                    probe.stood(pid, address, value, self.session.engine().host().now());
                }
            }
        }
    }

    /// Takes turns from now on, if a target has to wait.
    fn begin_turns(&mut self) -> Result<(), Error> {
        if let (RegisterSharing::InTurns(slice), None) = (self.options.sharing, &self.turning)
            && self.registers != Registers::Kept
        {
            let turning = self.session.turning(slice)?;
            turning.begin();
            self.turning = Some(turning);
        }
        Ok(())
    }

    /// CPUs that have come since the last call are watched too. Call it when the session's hotplug fd is readable, and from
    /// time to time.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn follow_cpus(&mut self) -> Result<(), Error> {
        self.session.follow_hotplug();
        let online: CpuMask = self.session.engine().online();
        let Some(rings) = &mut self.rings else { return Ok(()) };
        let fresh: Vec<CpuId> = online.iter().filter(|&cpu| !rings.has(cpu)).collect();
        for &cpu in &fresh {
            rings.add(self.pmu, cpu)?;
            for held in &self.held {
                let OpenBreakpoints::Cpus { set, .. } = held else { continue };
                let there = self.session.engine().set_events(**set)?.into_iter().filter(|(of, _)| *of == cpu);
                there.flat_map(|(_, events)| events).try_for_each(|event| rings.lead(event, cpu))?;
            }
        }
        if let (Some(probe), Some(rings)) = (&mut self.probe, &self.rings) {
            probe.connect(rings);
        }
        if !fresh.is_empty() {
            self.arm_threads_on(&fresh);
        }
        Ok(())
    }
}

fn processes(tasks: &TasksToWatch<'_>) -> Vec<i32> {
    let tids = match tasks {
        TasksToWatch::Processes(pids) => return pids.to_vec(),
        TasksToWatch::Threads(tids) => tids,
    };
    let mut pids: Vec<i32> = Vec::new();
    for &tid in tids {
        // Most are of one that is known.
        if !pids.iter().any(|&pid| threads::has(pid, tid)) {
            pids.extend(Proc::system().process_of(tid));
        }
    }
    pids
}

pub(super) const ESRCH: i32 = 3;
const EAGAIN: i32 = 11;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
