//! What the rings hold, in the order in which it happened.
//!
//! What it is: records are drained, watched data is read at once, and after a moment, when no older record can come any more,
//! they are told.
//!
//! **Invariant:** a hit is told once, and only if it came after its spot was armed everywhere.

use super::arm::HitReporter;
use super::condition::ConditionAnswer;
use super::hit::{Hit, HitSide, HitValue};
use super::probe::{CountedRow, HitMoment, HitSample, WatchProbe, moment};
use super::rings::{SeenBy, SeenHit, WatchRecord, WatchRecordKind};
use super::{AcrossExec, FollowedProcess, OpenBreakpoints, Watch, WatchDetail};
use crate::error::Error;
use crate::owned_group::Owned;
use crate::symbol::Mapping;
use crate::target::Inherit;
use pmux_abi::record::CommCause;
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{CpuId, GroupId, GroupSpec, Host as _, Nanos, Target};
use pmux_linux::host::LinuxHost;
use pmux_linux::procfs::Proc;
use std::collections::{HashMap, HashSet};

/// A record may be seen so much later than its time says, because another CPU was still writing it.
const LAG: Nanos = Nanos(2_000_000);

/// Why a task has a new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameCause {
    /// It gave itself one.
    Rename,
    /// It executes another program: addresses mean something else now.
    Exec,
}

/// What [`Watch::take`] tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchEvent {
    /// A hit.
    Hit(Hit),
    /// More hits, which were only counted: with [`super::WatchDetail::Rows`].
    Counted(CountedHits),
    /// A watched task has a new name.
    Name {
        /// The process.
        pid: i32,
        /// The thread.
        tid: i32,
        /// The name.
        name: String,
        /// Why.
        cause: NameCause,
    },
    /// A watched task has started a thread or a process, which is watched too.
    Started {
        /// The process of the new one.
        pid: i32,
        /// The new one.
        tid: i32,
        /// The process that started it.
        parent: i32,
    },
    /// A watched process has mapped something that can be executed: a library.
    Mapped {
        /// The process.
        pid: i32,
        /// What, and where: for [`crate::symbol::Symbolizer::note`].
        mapping: Option<Mapping>,
    },
}

/// Further hits of one thread at one place, on one CPU: since the last call, and but for those that were told one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountedHits {
    /// How many.
    pub hits: u64,
    /// When the first hit of this thread at this place was on this CPU, told or not.
    pub first: Nanos,
    /// When the last of these was.
    pub last: Nanos,
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// The CPU.
    pub cpu: u32,
    /// Which spot.
    pub watch_target: usize,
    /// The instruction pointer, as in [`Hit::ip`].
    pub ip: u64,
    /// In which mode.
    pub side: HitSide,
}

impl Watch {
    /// What has happened since the last call, but for the last 2 ms: records of several CPUs come together late.
    ///
    /// Call it when one of [`Watch::fds`] is readable, and from time to time.
    ///
    /// # Errors
    /// None today; a ring that can't be read is in [`Watch::lost`].
    pub fn take(&mut self) -> Result<Vec<WatchEvent>, Error> {
        let now = self.drain();
        Ok(self.digest(Nanos(now.0.saturating_sub(LAG.0))))
    }

    /// What has happened and was not told yet. Right where nothing happens any more: after the end of the target, or
    /// [`Watch::disarm`].
    ///
    /// # Errors
    /// As [`Watch::take`].
    pub fn finish(&mut self) -> Result<Vec<WatchEvent>, Error> {
        self.drain();
        Ok(self.digest(Nanos(u64::MAX)))
    }

    /// Stops watching; counts stay.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn disarm(&mut self) -> Result<(), Error> {
        self.turning = None;
        if self.covered.is_none() {
            // A CPU that is not watched any more can't be told from one that has gone.
            self.session.keep_up_with_cpus();
            self.covered = Some(self.coverage()?);
        }
        let engine = self.session.engine();
        self.ended_at.get_or_insert_with(|| engine.host().now());
        // What takes turns ends as one: no other takes over a register that one has left.
        let groups: Vec<GroupId> = self.held.iter().filter_map(OpenBreakpoints::group).collect();
        engine.disable_each(&groups).map_err(|(_, error)| error)?;
        for held in &self.held {
            if let OpenBreakpoints::Cpus { set, .. } = held {
                engine.disable_set(**set)?;
            }
        }
        Ok(())
    }

    /// Takes out of the rings what is there; answers when.
    pub(super) fn drain(&mut self) -> Nanos {
        let now = self.session.engine().host().now();
        let Some(rings) = &mut self.rings else { return now };
        let fresh = self.pending.len();
        rings.drain(self.probe.as_ref(), &mut self.pending);
        match (&self.probe, self.options.detail) {
            (Some(probe), _) if probe.looks() => self.take_hit_samples(fresh),
            (None, WatchDetail::Values { .. }) => self.read_values(fresh),
            _ => {}
        }
        now
    }

    /// The fresh hits of each process (those in the kernel: of all) on each spot, by their index, in the order in which they happened.
    fn by_place(&self, fresh: usize) -> HashMap<(i32, usize), Vec<usize>> {
        let mut places: HashMap<(i32, usize), Vec<usize>> = HashMap::new();
        for (index, entry) in self.pending.iter().enumerate().skip(fresh) {
            let WatchRecordKind::Hit(seen) = &entry.what else { continue };
            let Some(watch_target) = self.target_at(seen.hit.address) else { continue };
            let pid = if self.watched[watch_target].watch_target.is_in_kernel() { 0 } else { seen.hit.pid };
            places.entry((pid, watch_target)).or_default().push(index);
        }
        for indices in places.values_mut() {
            crate::order::sort_by_key(indices, |&index| self.pending.get(index).map(|entry| entry.at));
        }
        places
    }

    fn pending_hit(&mut self, index: usize) -> Option<&mut SeenHit> {
        let WatchRecordKind::Hit(seen) = &mut self.pending.get_mut(index)?.what else { return None };
        Some(seen)
    }

    /// Reads the data behind the newest hit of each process on each spot, and says of the others that they were overtaken.
    fn read_values(&mut self, fresh: usize) {
        for ((pid, watch_target), indices) in self.by_place(fresh) {
            let looked = self.look_at(pid, watch_target);
            let now = self.session.engine().host().now();
            let newest = indices.last().copied();
            for index in indices {
                let Some(seen) = self.pending_hit(index) else { continue };
                seen.hit.value = match looked {
                    None => HitValue::Unreadable,
                    Some(_) if Some(index) != newest => HitValue::Overtaken,
                    Some((value, before)) => HitValue::Read { now: value, before, late: now.since(seen.hit.at) },
                };
            }
        }
    }

    /// What programs have seen. Where they look in front of the access, what a hit left is what the next one found; the newest is
    /// read.
    fn take_hit_samples(&mut self, fresh: usize) {
        for index in fresh..self.pending.len() {
            let Some(SeenHit { hit, by: SeenBy::Program(HitSample { value: Some(value), old, .. }) }) =
                self.pending_hit(index)
            else {
                continue;
            };
            hit.value = match moment() {
                HitMoment::Behind => HitValue::AtHit { now: *value, before: old.map(|(old, _)| old) },
                HitMoment::InFront => HitValue::Found { before: *value, after: None },
            };
        }
        if moment() == HitMoment::Behind {
            return;
        }
        // Also those that wait: what comes next may tell more of them than a look did.
        for ((pid, watch_target), indices) in self.by_place(0) {
            let newest = indices.last().copied();
            let mut next: Option<(u64, Nanos)> = None;
            for index in indices.into_iter().rev() {
                let Some(SeenHit { hit, .. }) = self.pending_hit(index) else { continue };
                let (at, HitValue::Found { before, after }) = (hit.at, &mut hit.value) else {
                    // What that one found is not known.
                    next = None;
                    continue;
                };
                let found = *before;
                if let Some((now, seen_at)) = next {
                    *after = Some((now, seen_at.since(at)));
                } else if Some(index) == newest && after.is_none() {
                    let looked = self.look_at(pid, watch_target);
                    let late = self.session.engine().host().now().since(at);
                    if let (Some((now, _)), Some(seen)) = (looked, self.pending_hit(index))
                        && let HitValue::Found { after, .. } = &mut seen.hit.value
                    {
                        *after = Some((now, late));
                    }
                }
                next = Some((found, at));
            }
        }
    }

    /// Reads the data of a spot, or of its first piece where that is no number; now, and at the look before.
    pub(super) fn look_at(&mut self, pid: i32, watch_target: usize) -> Option<(u64, Option<u64>)> {
        let watched = self.watched.get(watch_target)?;
        if watched.watch_target.is_code() || watched.watch_target.is_in_kernel() {
            return None;
        }
        let len = watched.readable_bytes();
        self.memory.look(pid, watched.watch_target.address, len)
    }

    /// The spot that a register belongs to. Where two share an address, the first.
    fn target_at(&self, address: u64) -> Option<usize> {
        self.watched.iter().position(|watched| watched.pieces.iter().any(|piece| piece.address == address))
    }

    fn digest(&mut self, until: Nanos) -> Vec<WatchEvent> {
        // Stable: the records of one CPU are in their order already.
        self.pending.sort_by_key(|entry| entry.at);
        let ready = self.pending.partition_point(|entry| entry.at <= until);
        let ready: Vec<_> = self.pending.drain(..ready).collect();
        let ready = ready.into_iter().filter_map(|WatchRecord { at, what }| Some((at, self.event_of(at, what)?)));
        let ready: Vec<_> = ready.collect();
        let mut counted = std::mem::take(&mut self.counted);
        counted.extend(self.probe.iter_mut().flat_map(WatchProbe::counted));
        let mut events = Vec::with_capacity(ready.len() + counted.len());
        for (at, event) in ready {
            if let WatchEvent::Name { pid, cause: NameCause::Exec, .. } = event {
                let before = counted.extract_if(.., |row| row.pid == pid && Nanos(row.last) <= at);
                let before: Vec<_> = before.collect();
                events.extend(before.into_iter().filter_map(|row| self.counted_event(&row)));
            }
            events.push(event);
        }
        // Those of behind an exec that is told later are told behind it.
        let execs: Vec<_> = self.pending.iter().filter_map(WatchRecord::exec).collect();
        let is_later = |row: &mut CountedRow| execs.iter().any(|&(pid, at)| pid == row.pid && at < Nanos(row.last));
        self.counted = counted.extract_if(.., is_later).collect();
        // Behind what tells of a task, where both are told at once.
        events.extend(counted.into_iter().filter_map(|row| self.counted_event(&row)));
        if self.only_counts {
            events.retain(|event| !matches!(event, WatchEvent::Hit(_) | WatchEvent::Counted(_)));
        }
        events
    }

    fn counted_event(&mut self, counted: &CountedRow) -> Option<WatchEvent> {
        let CountedRow { tag, pid, tid, cpu, address, ip, hits, first, last } = *counted;
        let watch_target = self.target_at(address)?;
        let is_ours = !counted.are_early() && self.is_ours((tid, cpu, address), SeenBy::program(tag));
        let watched = self.watched.get_mut(watch_target)?;
        if !is_ours {
            watched.not_ours += hits;
            return None;
        }
        watched.reported += hits;
        let side = if ip >> 63 == 0 { HitSide::User } else { HitSide::Kernel };
        let (first, last) = (Nanos(first), Nanos(last));
        Some(WatchEvent::Counted(CountedHits { hits, first, last, pid, tid, cpu, watch_target, ip, side }))
    }

    fn event_of(&mut self, at: Nanos, what: WatchRecordKind) -> Option<WatchEvent> {
        match what {
            WatchRecordKind::Hit(seen) => {
                let SeenHit { mut hit, by } = *seen;
                let watch_target = self.target_at(hit.address)?;
                hit.watch_target = watch_target;
                let is_ours = self.is_ours((hit.tid, hit.cpu, hit.address), by.id());
                self.check_before(&mut hit, by);
                let watched = self.watched.get_mut(watch_target)?;
                if !is_ours || watched.armed_at.is_none_or(|armed| at < armed) {
                    watched.not_ours += 1;
                    return None;
                }
                watched.reported += 1;
                let len = if watched.watch_target.is_code() { 0 } else { watched.watch_target.len };
                match self.condition.as_ref().map(|condition| condition.ask(&hit, len)) {
                    Some(ConditionAnswer::No) => return None,
                    Some(ConditionAnswer::Unknown) => {
                        self.undecided += 1;
                        return None;
                    }
                    Some(ConditionAnswer::Yes) | None => {}
                }
                Some(WatchEvent::Hit(hit))
            }
            WatchRecordKind::Name { pid, tid, name, cause: CommCause::Rename } => {
                self.concerns(pid, at).then_some(WatchEvent::Name { pid, tid, name, cause: NameCause::Rename })
            }
            WatchRecordKind::Name { pid, tid, name, cause: CommCause::Exec } => {
                if !self.concerns(pid, at) {
                    return None;
                }
                self.begins(pid, at);
                self.goes_on(pid, at).then_some(WatchEvent::Name { pid, tid, name, cause: NameCause::Exec })
            }
            WatchRecordKind::Fork { pid, tid, parent } => {
                let concerns = self.concerns(parent, at);
                if pid == tid {
                    self.is_born(pid, at, concerns && self.options.inherit == Inherit::Children);
                }
                if concerns && pid == tid {
                    self.begins(pid, at);
                }
                concerns.then_some(WatchEvent::Started { pid, tid, parent })
            }
            WatchRecordKind::Mapped { pid, mapping } => {
                self.concerns(pid, at).then_some(WatchEvent::Mapped { pid, mapping })
            }
            WatchRecordKind::Lost { records } => {
                self.lost += records;
                None
            }
            WatchRecordKind::Throttled => {
                self.throttled += 1;
                None
            }
        }
    }

    pub(super) fn follow(&mut self, pids: &[i32], now: Nanos) {
        if self.probe.is_some() {
            for &pid in pids {
                self.followed.entry(pid).or_insert(FollowedProcess { since: now, armed: now }).armed = now;
            }
        }
    }

    /// Whether what a process does is of interest. Events of tasks tell of those that they are on only; those of programs tell of
    /// all processes.
    fn concerns(&self, pid: i32, at: Nanos) -> bool {
        let since = || self.followed.get(&pid).map(|followed| followed.since);
        self.probe.is_none() || since().is_some_and(|since| since <= at) || self.watches_cpus()
    }

    /// Whether all processes are watched, whatever they execute.
    fn watches_cpus(&self) -> bool {
        self.held.iter().any(|held| matches!(held, OpenBreakpoints::Cpus { .. }))
    }

    /// Whether a process is watched on although it executes another program.
    fn goes_on(&mut self, pid: i32, at: Nanos) -> bool {
        let keeps = self.options.across_exec == AcrossExec::Keep || self.watches_cpus();
        if keeps || self.probe.is_none() || self.watched.iter().any(|watched| watched.watch_target.is_in_kernel()) {
            return true;
        }
        // Unless it was armed since.
        self.followed.retain(|&of, followed| of != pid || followed.armed > at);
        false
    }

    /// A number is that of a new process, which is watched, or not.
    fn is_born(&mut self, pid: i32, at: Nanos, watched: bool) {
        if self.probe.is_none() {
            return;
        }
        if watched {
            let followed = self.followed.entry(pid).or_insert(FollowedProcess { since: at, armed: at });
            followed.since = followed.since.min(at);
        } else if self.followed.get(&pid).is_some_and(|followed| followed.since < at) {
            // Another process had it.
            self.followed.remove(&pid);
        }
    }

    /// Hits on the spots from `first` on were seen by what is closed again.
    pub(super) fn forget_hits(&mut self, first: usize) {
        self.drain();
        let mut pending = std::mem::take(&mut self.pending);
        let stays =
            |watch: &Self, address: u64| watch.target_at(address).is_some_and(|watch_target| watch_target < first);
        pending.retain(|entry| !matches!(&entry.what, WatchRecordKind::Hit(seen) if !stays(self, seen.hit.address)));
        self.pending = pending;
        let mut counted: Vec<_> = self.probe.iter_mut().flat_map(WatchProbe::counted).collect();
        counted.retain(|counted| stays(self, counted.address));
        self.counted.extend(counted);
    }

    /// A process has a memory of its own from now on.
    fn begins(&mut self, pid: i32, at: Nanos) {
        self.memory.forget(pid);
        if self.probe.is_some() {
            self.born.insert(pid, at);
        }
    }

    /// What a program saw before the process was what it is now, was in another memory.
    fn check_before(&self, hit: &mut Hit, by: SeenBy) {
        if let (HitValue::AtHit { before, .. }, SeenBy::Program(HitSample { old: Some((_, old_at)), address, .. })) =
            (&mut hit.value, by)
            && address >> 63 == 0
            && self.born.get(&hit.pid).is_some_and(|born| old_at < born.0)
        {
            *before = None;
        }
    }

    /// Of a thread that may be armed twice, one event or program is believed. What is asked: thread, CPU, address.
    fn is_ours(&mut self, hit: (i32, u32, u64), by: u64) -> bool {
        if !self.late.contains(&hit.0) {
            return true;
        }
        *self.reported_by.entry(hit).or_insert(by) == by
    }

    /// Arms the threads that are there on CPUs that have come. What was opened before knows nothing of them, but for what follows its
    /// thread.
    pub(super) fn arm_threads_on(&mut self, cpus: &[CpuId]) {
        let proc = Proc::system();
        let bound =
            self.held.iter().filter(|held| matches!(held, OpenBreakpoints::Tasks { reporter: HitReporter::Event, .. }));
        let known: HashSet<i32> = bound.flat_map(OpenBreakpoints::tids).collect();
        if known.is_empty() {
            return;
        }
        if let Some(probe) = &mut self.probe {
            probe.next_tag(self.pmu);
        }
        let pids: HashSet<i32> = known.iter().filter_map(|&tid| proc.process_of(tid).ok()).collect();
        let threads: HashSet<i32> = pids.iter().filter_map(|&pid| proc.threads_of(pid).ok()).flatten().collect();
        let events = self.events(0, true, HitReporter::Event);
        for &tid in &threads {
            for (piece, attr) in &events {
                for &cpu in cpus {
                    let context = ContextKey::Task(LinuxHost::task(tid));
                    let target = Target { context, filter: Filter::OnCpu(cpu) };
                    let engine = self.session.engine();
                    // One that has gone meanwhile is no loss; what else may be refused was granted before.
                    let Ok(opened) = engine.open(&GroupSpec::single(self.pmu, *attr), target) else { continue };
                    let (group, event) = (Owned::new(&self.session, opened.group), opened.events[0]);
                    if engine.enable_group(*group).is_ok() {
                        let (tids, watch_target, reporter) = (vec![tid], piece.watch_target, HitReporter::Event);
                        self.held.push(OpenBreakpoints::Tasks { tids, watch_target, group, event, reporter });
                    }
                }
            }
        }
        self.late.extend(threads);
    }
}
