//! What the rings hold, in the order in which it happened.
//!
//! What it is: records are drained, watched data is read at once, and after a moment, when no older record can come any more,
//! they are told.
//!
//! **Invariant:** a hit is told once, and only if it came after its spot was armed everywhere.

use super::hit::{Hit, Value};
use super::rings::{Entry, What};
use super::{Detail, Held, Watch};
use crate::error::Error;
use crate::symbol::Mapping;
use pmux_abi::record::CommCause;
use pmux_engine::context::{ContextKey, Filter};
use pmux_engine::{CpuId, GroupSpec, Host as _, Nanos, Target};
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

impl Watch {
    /// What has happened since the last call, but for the last 2 ms: records of several CPUs come together late.
    ///
    /// Call it when one of [`Watch::fds`] is readable, and from time to time.
    ///
    /// # Errors
    /// None today; a ring that can't be read is in [`Watch::lost`].
    pub fn take(&mut self) -> Result<Vec<News>, Error> {
        let now = self.session.engine().host().now();
        self.drain();
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
        let engine = self.session.engine();
        self.ended_at.get_or_insert_with(|| engine.host().now());
        for held in &self.held {
            match held {
                Held::Tasks { group, .. } => engine.disable_group(*group)?,
                Held::Cpus { set, .. } => engine.disarm(*set)?,
            }
        }
        Ok(())
    }

    fn drain(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        let fresh = self.pending.len();
        rings.drain(&mut self.pending);
        if matches!(self.options.detail, Detail::Values { .. }) {
            self.read_values(fresh);
        }
    }

    /// Reads the data behind the newest hit of each process on each spot, and says of the others that they were overtaken.
    fn read_values(&mut self, fresh: usize) {
        let mut newest: HashMap<(i32, usize), (usize, Nanos)> = HashMap::new();
        for index in fresh..self.pending.len() {
            let Some(Entry { at, what: What::Hit(hit, _) }) = self.pending.get(index) else { continue };
            let (pid, at, spot) = (hit.pid, *at, self.spot_at(hit.address));
            let Some(spot) = spot else { continue };
            let last = newest.entry((pid, spot)).or_insert((index, at));
            let overtaken = if at >= last.1 { std::mem::replace(last, (index, at)).0 } else { index };
            if overtaken != last.0
                && let Some(Entry { what: What::Hit(hit, _), .. }) = self.pending.get_mut(overtaken)
            {
                hit.value = Value::Overtaken;
            }
        }
        for ((pid, spot), (index, at)) in newest {
            let value = match self.look_at(pid, spot) {
                Some((now, before)) => Value::Read { now, before, late: self.session.engine().host().now().since(at) },
                None => Value::Unreadable,
            };
            if let Some(Entry { what: What::Hit(hit, _), .. }) = self.pending.get_mut(index) {
                hit.value = value;
            }
        }
    }

    /// Reads the data of a spot, or of its first piece where that is no number; now, and at the look before.
    pub(super) fn look_at(&mut self, pid: i32, spot: usize) -> Option<(u64, Option<u64>)> {
        let watched = self.watched.get(spot)?;
        if watched.spot.is_code() || watched.spot.is_in_kernel() {
            return None;
        }
        let len =
            if matches!(watched.spot.len, 1 | 2 | 4 | 8) { watched.spot.len } else { watched.pieces.first()?.len };
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
        ready.into_iter().filter_map(|Entry { at, what }| self.tell(at, what)).collect()
    }

    fn tell(&mut self, at: Nanos, what: What) -> Option<News> {
        match what {
            What::Hit(mut hit, event) => {
                let spot = self.spot_at(hit.address)?;
                hit.spot = spot;
                let told = self.is_ours(&hit, event);
                let watched = self.watched.get_mut(spot)?;
                if !told || watched.armed_at.is_none_or(|armed| at < armed) {
                    watched.not_ours += 1;
                    return None;
                }
                watched.told += 1;
                Some(News::Hit(*hit))
            }
            What::Name { pid, tid, name, cause } => {
                let cause = match cause {
                    CommCause::Exec => Cause::Exec,
                    CommCause::Rename => Cause::Rename,
                };
                if cause == Cause::Exec {
                    self.memory.forget(pid);
                }
                Some(News::Name { pid, tid, name, cause })
            }
            What::Fork { pid, tid, parent } => {
                if pid == tid {
                    self.memory.forget(pid);
                }
                Some(News::Started { pid, tid, parent })
            }
            What::Mapped { pid, mapping } => Some(News::Mapped { pid, mapping }),
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

    /// Of a thread that may be armed twice, one event is believed.
    fn is_ours(&mut self, hit: &Hit, event: u64) -> bool {
        if !self.late.contains(&hit.tid) {
            return true;
        }
        *self.told_by.entry((hit.tid, hit.cpu, hit.address)).or_insert(event) == event
    }

    /// Arms the threads that are there on CPUs that have come. What was opened before knows nothing of them.
    pub(super) fn arm_threads_on(&mut self, cpus: &[CpuId]) {
        let proc = Proc::system();
        let known: HashSet<i32> = self.held.iter().flat_map(Held::tids).collect();
        let pids: HashSet<i32> = known.iter().filter_map(|&tid| proc.process_of(tid).ok()).collect();
        let threads: HashSet<i32> = pids.iter().filter_map(|&pid| proc.threads_of(pid).ok()).flatten().collect();
        let events = self.events(0, true);
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
                        self.held.push(Held::Tasks { tids: vec![tid], spot: piece.spot, group, event });
                    }
                }
            }
        }
        self.late.extend(threads);
    }
}
