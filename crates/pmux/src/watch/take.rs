//! What the rings hold, in the order in which it happened.
//!
//! What it is: records are drained, watched data is read at once, and after a moment, when no older record can come any more,
//! they are told.
//!
//! **Invariant:** a hit is told once, and only if it came after its spot was armed everywhere.

use super::arm::Teller;
use super::condition::Answer;
use super::hit::{Hit, Side, Value};
use super::probe::{Counted, Moment, Probe, Sighting, moment};
use super::rings::{By, Entry, Seen, What};
use super::{AcrossExec, Detail, Followed, Held, Watch};
use crate::error::Error;
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
pub enum Cause {
    /// It gave itself one.
    Rename,
    /// It executes another program: addresses mean something else now.
    Exec,
}

/// What [`Watch::take`] tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// A hit.
    Hit(Hit),
    /// More hits, which were only counted: with [`super::Detail::Rows`].
    Further(Further),
    /// A watched task has a new name.
    Name {
        /// The process.
        pid: i32,
        /// The thread.
        tid: i32,
        /// The name.
        name: String,
        /// Why.
        cause: Cause,
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
pub struct Further {
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
    pub spot: usize,
    /// The instruction pointer, as in [`Hit::ip`].
    pub ip: u64,
    /// In which mode.
    pub side: Side,
}

impl Watch {
    /// What has happened since the last call, but for the last 2 ms: records of several CPUs come together late.
    ///
    /// Call it when one of [`Watch::fds`] is readable, and from time to time.
    ///
    /// # Errors
    /// None today; a ring that can't be read is in [`Watch::lost`].
    pub fn take(&mut self) -> Result<Vec<News>, Error> {
        let now = self.drain();
        Ok(self.digest(Nanos(now.0.saturating_sub(LAG.0))))
    }

    /// What has happened and was not told yet. Right where nothing happens any more: after the end of the target, or
    /// [`Watch::disarm`].
    ///
    /// # Errors
    /// As [`Watch::take`].
    pub fn finish(&mut self) -> Result<Vec<News>, Error> {
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
        let groups: Vec<GroupId> = self.held.iter().filter_map(Held::group).collect();
        engine.disable_each(&groups).map_err(|(_, error)| error)?;
        for held in &self.held {
            if let Held::Cpus { set, .. } = held {
                engine.disable_set(*set)?;
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
            (Some(probe), _) if probe.looks() => self.take_sightings(fresh),
            (None, Detail::Values { .. }) => self.read_values(fresh),
            _ => {}
        }
        now
    }

    /// The fresh hits of each process (those in the kernel: of all) on each spot, by their index, in the order in which they happened.
    fn by_place(&self, fresh: usize) -> HashMap<(i32, usize), Vec<usize>> {
        let mut places: HashMap<(i32, usize), Vec<usize>> = HashMap::new();
        for (index, entry) in self.pending.iter().enumerate().skip(fresh) {
            let What::Hit(seen) = &entry.what else { continue };
            let Some(spot) = self.spot_at(seen.hit.address) else { continue };
            let pid = if self.watched.get(spot).is_some_and(|watched| watched.spot.is_in_kernel()) {
                0
            } else {
                seen.hit.pid
            };
            places.entry((pid, spot)).or_default().push(index);
        }
        for indices in places.values_mut() {
            indices.sort_by_key(|&index| self.pending.get(index).map(|entry| entry.at));
        }
        places
    }

    fn pending_hit(&mut self, index: usize) -> Option<&mut Seen> {
        match &mut self.pending.get_mut(index)?.what {
            What::Hit(seen) => Some(seen),
            _ => None,
        }
    }

    /// Reads the data behind the newest hit of each process on each spot, and says of the others that they were overtaken.
    fn read_values(&mut self, fresh: usize) {
        for ((pid, spot), indices) in self.by_place(fresh) {
            let looked = self.look_at(pid, spot);
            let now = self.session.engine().host().now();
            let newest = indices.last().copied();
            for index in indices {
                let Some(seen) = self.pending_hit(index) else { continue };
                seen.hit.value = match looked {
                    None => Value::Unreadable,
                    Some(_) if Some(index) != newest => Value::Overtaken,
                    Some((value, before)) => Value::Read { now: value, before, late: now.since(seen.hit.at) },
                };
            }
        }
    }

    /// What programs have seen. Where they look in front of the access, what a hit left is what the next one found; the newest is
    /// read.
    fn take_sightings(&mut self, fresh: usize) {
        for index in fresh..self.pending.len() {
            let Some(Seen { hit, by: By::Program(Sighting { value: Some(value), old, .. }) }) = self.pending_hit(index)
            else {
                continue;
            };
            hit.value = match moment() {
                Moment::Behind => Value::AtHit { now: *value, before: old.map(|(old, _)| old) },
                Moment::InFront => Value::Found { before: *value, after: None },
            };
        }
        if moment() == Moment::Behind {
            return;
        }
        // Also those that wait: what comes next may tell more of them than a look did.
        for ((pid, spot), indices) in self.by_place(0) {
            let newest = indices.last().copied();
            let mut next: Option<(u64, Nanos)> = None;
            for index in indices.into_iter().rev() {
                let Some(Seen { hit, .. }) = self.pending_hit(index) else { continue };
                let (at, Value::Found { before, after }) = (hit.at, &mut hit.value) else {
                    // What that one found is not known.
                    next = None;
                    continue;
                };
                let found = *before;
                if let Some((now, seen_at)) = next {
                    *after = Some((now, seen_at.since(at)));
                } else if Some(index) == newest && after.is_none() {
                    let looked = self.look_at(pid, spot);
                    let late = self.session.engine().host().now().since(at);
                    if let (Some((now, _)), Some(Seen { hit: Hit { value: Value::Found { after, .. }, .. }, .. })) =
                        (looked, self.pending_hit(index))
                    {
                        *after = Some((now, late));
                    }
                }
                next = Some((found, at));
            }
        }
    }

    /// Reads the data of a spot, or of its first piece where that is no number; now, and at the look before.
    pub(super) fn look_at(&mut self, pid: i32, spot: usize) -> Option<(u64, Option<u64>)> {
        let watched = self.watched.get(spot)?;
        if watched.spot.is_code() || watched.spot.is_in_kernel() {
            return None;
        }
        let len = watched.readable_bytes();
        self.memory.look(pid, watched.spot.address, len)
    }

    /// The spot that a register belongs to. Where two share an address, the first.
    fn spot_at(&self, address: u64) -> Option<usize> {
        self.watched.iter().position(|watched| watched.pieces.iter().any(|piece| piece.address == address))
    }

    fn digest(&mut self, until: Nanos) -> Vec<News> {
        // Stable: the records of one CPU are in their order already.
        self.pending.sort_by_key(|entry| entry.at);
        let ready = self.pending.partition_point(|entry| entry.at <= until);
        let ready: Vec<_> = self.pending.drain(..ready).collect();
        let mut news: Vec<_> = ready.into_iter().filter_map(|Entry { at, what }| self.tell(at, what)).collect();
        // Behind what tells of a task, where both are told at once.
        let mut counted = std::mem::take(&mut self.counted);
        counted.extend(self.probe.iter_mut().flat_map(Probe::counted));
        news.extend(counted.into_iter().filter_map(|counted| self.tell_counted(&counted)));
        if self.only_counts {
            news.retain(|news| !matches!(news, News::Hit(_) | News::Further(_)));
        }
        news
    }

    fn tell_counted(&mut self, counted: &Counted) -> Option<News> {
        let Counted { tag, pid, tid, cpu, address, ip, hits, first, last } = *counted;
        let spot = self.spot_at(address)?;
        let told = !counted.are_early() && self.is_ours((tid, cpu, address), By::program(tag));
        let watched = self.watched.get_mut(spot)?;
        if !told {
            watched.not_ours += hits;
            return None;
        }
        watched.told += hits;
        let side = if ip >> 63 == 0 { Side::User } else { Side::Kernel };
        let (first, last) = (Nanos(first), Nanos(last));
        Some(News::Further(Further { hits, first, last, pid, tid, cpu, spot, ip, side }))
    }

    fn tell(&mut self, at: Nanos, what: What) -> Option<News> {
        match what {
            What::Hit(seen) => {
                let Seen { mut hit, by } = *seen;
                let spot = self.spot_at(hit.address)?;
                hit.spot = spot;
                let told = self.is_ours((hit.tid, hit.cpu, hit.address), by.id());
                self.check_before(&mut hit, by);
                let watched = self.watched.get_mut(spot)?;
                if !told || watched.armed_at.is_none_or(|armed| at < armed) {
                    watched.not_ours += 1;
                    return None;
                }
                watched.told += 1;
                let len = if watched.spot.is_code() { 0 } else { watched.spot.len };
                match self.condition.as_ref().map(|condition| condition.ask(&hit, len)) {
                    Some(Answer::No) => return None,
                    Some(Answer::Unknown) => {
                        self.undecided += 1;
                        return None;
                    }
                    Some(Answer::Yes) | None => {}
                }
                Some(News::Hit(hit))
            }
            What::Name { pid, tid, name, cause: CommCause::Rename } => {
                self.concerns(pid, at).then_some(News::Name { pid, tid, name, cause: Cause::Rename })
            }
            What::Name { pid, tid, name, cause: CommCause::Exec } => {
                if !self.concerns(pid, at) {
                    return None;
                }
                self.begins(pid, at);
                self.goes_on(pid, at).then_some(News::Name { pid, tid, name, cause: Cause::Exec })
            }
            What::Fork { pid, tid, parent } => {
                let concerns = self.concerns(parent, at);
                if pid == tid {
                    self.is_born(pid, at, concerns && self.options.inherit == Inherit::Children);
                }
                if concerns && pid == tid {
                    self.begins(pid, at);
                }
                concerns.then_some(News::Started { pid, tid, parent })
            }
            What::Mapped { pid, mapping } => self.concerns(pid, at).then_some(News::Mapped { pid, mapping }),
            What::Lost { records } => {
                self.lost += records;
                None
            }
            What::Throttled => {
                self.throttled += 1;
                None
            }
        }
    }

    pub(super) fn follow(&mut self, pids: &[i32], now: Nanos) {
        if self.probe.is_some() {
            for &pid in pids {
                self.followed.entry(pid).or_insert(Followed { since: now, armed: now }).armed = now;
            }
        }
    }

    /// Whether anybody wants to know what a process does. Events of tasks tell of those that they are on only; those of programs tell of
    /// everybody.
    fn concerns(&self, pid: i32, at: Nanos) -> bool {
        let since = || self.followed.get(&pid).map(|followed| followed.since);
        self.probe.is_none() || since().is_some_and(|since| since <= at) || self.watches_cpus()
    }

    /// Whether all processes are watched, whatever they execute.
    fn watches_cpus(&self) -> bool {
        self.held.iter().any(|held| matches!(held, Held::Cpus { .. }))
    }

    /// Whether a process is watched on although it executes another program.
    fn goes_on(&mut self, pid: i32, at: Nanos) -> bool {
        let keeps = self.options.across_exec == AcrossExec::Keep || self.watches_cpus();
        if keeps || self.probe.is_none() || self.watched.iter().any(|watched| watched.spot.is_in_kernel()) {
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
            let followed = self.followed.entry(pid).or_insert(Followed { since: at, armed: at });
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
        let stays = |watch: &Self, address: u64| watch.spot_at(address).is_some_and(|spot| spot < first);
        pending.retain(|entry| !matches!(&entry.what, What::Hit(seen) if !stays(self, seen.hit.address)));
        self.pending = pending;
        let mut counted: Vec<_> = self.probe.iter_mut().flat_map(Probe::counted).collect();
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
    fn check_before(&self, hit: &mut Hit, by: By) {
        if let (Value::AtHit { before, .. }, By::Program(Sighting { old: Some((_, old_at)), address, .. })) =
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
        *self.told_by.entry(hit).or_insert(by) == by
    }

    /// Arms the threads that are there on CPUs that have come. What was opened before knows nothing of them, but for what follows its
    /// thread.
    pub(super) fn arm_threads_on(&mut self, cpus: &[CpuId]) {
        let proc = Proc::system();
        let bound = self.held.iter().filter(|held| matches!(held, Held::Tasks { teller: Teller::Event, .. }));
        let known: HashSet<i32> = bound.flat_map(Held::tids).collect();
        if known.is_empty() {
            return;
        }
        if let Some(probe) = &mut self.probe {
            probe.next_tag(self.pmu);
        }
        let pids: HashSet<i32> = known.iter().filter_map(|&tid| proc.process_of(tid).ok()).collect();
        let threads: HashSet<i32> = pids.iter().filter_map(|&pid| proc.threads_of(pid).ok()).flatten().collect();
        let events = self.events(0, true, Teller::Event);
        for &tid in &threads {
            for (piece, attr) in &events {
                for &cpu in cpus {
                    let context = ContextKey::Task(LinuxHost::task(tid));
                    let target = Target { context, filter: Filter::OnCpu(cpu) };
                    let engine = self.session.engine();
                    // One that has gone meanwhile is no loss; what else may be refused was granted before.
                    let Ok(opened) = engine.open(&GroupSpec::single(self.pmu, *attr), target) else { continue };
                    if engine.enable_group(opened.group).is_ok() {
                        let (group, event) = (opened.group, opened.events[0]);
                        let (tids, spot, teller) = (vec![tid], piece.spot, Teller::Event);
                        self.held.push(Held::Tasks { tids, spot, group, event, teller });
                    }
                }
            }
        }
        self.late.extend(threads);
    }
}
