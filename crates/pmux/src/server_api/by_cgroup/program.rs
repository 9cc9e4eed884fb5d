//! One event for each question and CPU, whatever the number of cgroups.
//!
//! **Invariant:** the events are an ordinary system-wide set of the session: equal questions of others share them, and CPUs that
//! come and go are the engine's affair. Here they are only lent.

use super::{CgroupReading, CgroupReadings, ProgramResult, counted};
use crate::counters::{Counters, Reading};
use crate::error::Error;
use crate::event::EventList;
use crate::session::Session;
use crate::target::{CpuChoice, Options, Target};
use pmux_engine::pmu::Lease;
use pmux_engine::target::ContextKey;
use pmux_linux::cgroup_counts::{CgroupCounts, FoundCgroup, all};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// Cgroups that run without being asked for take room as well.
const ROOM: usize = 4;
const LEAST_ROOM: usize = 2048;
const MOST_ROOM: usize = 65_536;

/// The slot of each event on one CPU, and of the one that counts switches; `None` where it has none there.
type Slots = Vec<Option<(ContextKey, Lease)>>;
/// What counts switches of tasks, so that none passes by unseen.
const SWITCHES: &str = "context-switches";

pub(super) struct ProgramCounts {
    // Dropped before the events whose files it holds.
    counts: CgroupCounts,
    counters: Counters,
    switches: Counters,
    session: Session,
    events: usize,
    lent: BTreeMap<u32, Slots>,
    troubles: Vec<String>,
}

impl ProgramCounts {
    /// Opens the events on all CPUs and lends them. The errors are those that the other way would meet as well.
    pub(super) fn open(session: &Session, events: &EventList, most: usize) -> Result<ProgramResult, Error> {
        let width = events.events().count();
        let room = most.saturating_mul(ROOM).clamp(LEAST_ROOM, MOST_ROOM) as u32;
        let counts = match CgroupCounts::new(width, room) {
            Ok(counts) => counts,
            Err(why) => return Ok(Err(why)),
        };
        let open = |events: &EventList| session.open(events, &Target::Cpus(CpuChoice::All), Options::default());
        let switches = EventList::parse(&[SWITCHES], session.catalog()).map_err(Error::Parse)?;
        let (counters, switches) = match open(events).and_then(|counters| Ok((counters, open(&switches)?))) {
            Ok(counters) => counters,
            // Who may not count CPUs may not count cgroups either: let the other way say so.
            Err(error) => return Ok(Err(error.to_string())),
        };
        let refusals = (0..width).map(|event| counters.refusal(event).map(|refusal| refusal.summary.clone())).collect();
        let (lent, troubles) = (BTreeMap::new(), Vec::new());
        let mut program = Self { counts, counters, switches, session: session.clone(), events: width, lent, troubles };
        program.follow_cpus();
        Ok(Ok((program, refusals)))
    }

    pub(super) fn follow_cpus(&mut self) {
        let mut now: BTreeMap<u32, Slots> = BTreeMap::new();
        let switches = self.switches.events_of_cpus().map(|(cpu, _, event)| (cpu, self.events, event));
        for (cpu, column, event) in self.counters.events_of_cpus().chain(switches) {
            let slots = now.entry(cpu).or_insert_with(|| vec![None; self.events + 1]);
            if let Some(slot) = slots.get_mut(column) {
                *slot = self.session.engine().lease(event).ok();
            }
        }
        now.retain(|_, slots| slots.iter().any(Option::is_some));
        for cpu in self.lent.keys().filter(|cpu| !now.contains_key(cpu)) {
            self.counts.take_back(*cpu);
        }
        self.troubles.clear();
        let host = self.session.engine().host();
        now.retain(|&cpu, slots| {
            if self.lent.get(&cpu) == Some(slots) {
                return true;
            }
            let (events, switches) = slots.split_at(self.events);
            let lent = self.counts.lend(host, cpu, events, switches.first().copied().flatten());
            if let Err(errno) = lent {
                self.troubles.push(format!("nothing is counted for cgroups on CPU {cpu}: {errno}"));
            }
            lent.is_ok()
        });
        self.lent = now;
    }

    pub(super) fn read(&mut self, root: &Path, found: &[FoundCgroup]) -> CgroupReadings {
        self.counts.catch_up(self.session.online().iter());
        let wanted: HashSet<u64> = found.iter().map(|cgroup| cgroup.inode).collect();
        let mut readings = CgroupReadings { troubles: self.troubles.clone(), ..CgroupReadings::default() };
        let mut sums = match self.counts.read(&wanted) {
            Ok(sums) => sums,
            Err(errno) => {
                readings.troubles.push(format!("what cgroups have counted can't be read: {errno}"));
                return readings;
            }
        };
        for FoundCgroup { name, inode, .. } in found {
            let sums = sums.remove(inode).unwrap_or_default();
            let rows = self.counts.cpus().iter().zip(sums.by_cpu(self.events));
            // Where it has not run there is nothing to tell.
            let rows = rows.filter(|(_, row)| row.iter().any(|sum| sum.enabled_ns > 0));
            let cpus =
                rows.map(|(&cpu, row)| (cpu, row.iter().copied().map(counted).collect::<Vec<Reading>>())).collect();
            readings.cgroups.push(CgroupReading { name: name.clone(), inode: *inode, cpus });
        }
        let unattributed = self.counts.unattributed().unwrap_or_default();
        readings.unattributed = (0..self.events).map(|event| unattributed.total(event, self.events).count).collect();
        readings.troubles.extend(self.make_room(root).err());
        readings
    }

    /// Forgets cgroups that are gone, where so many have run that those to come may find no room.
    pub(super) fn make_room(&mut self, root: &Path) -> Result<(), String> {
        let failed = |errno| format!("cgroups that are gone can't be forgotten: {errno}");
        if !self.counts.is_crowded().map_err(failed)? {
            return Ok(());
        }
        self.counts.tidy(&all(root)).map_err(failed)
    }
}
