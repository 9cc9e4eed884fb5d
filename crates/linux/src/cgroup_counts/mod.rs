//! Counts for each cgroup, from events that count whole CPUs.
//!
//! What it is: a program in the kernel that runs whenever a CPU switches tasks. It reads the events of that CPU and gives what they
//! have counted since the last switch to the cgroup of the task that leaves (`program`); [`CgroupCounts`] lends it the events
//! and adds up what it has written, parents with their children (`sums`). However many cgroups there are, it takes one event for
//! each question and CPU.
//! Read first: [`CgroupCounts`], then `program`.
//!
//! How exact it is: [`CgroupCounts::catch_up`] has the program run on each CPU in the place of the task that runs there, so that
//! nothing is left over; what is read afterwards holds all that was counted before, and what was switched away meanwhile. A switch
//! itself belongs to the task that comes, from the moment at which the scheduler has chosen it. What a task counts between its last
//! switch and the moment at which it is moved to another cgroup goes along with it.
//!
//! **Invariant:** it opens no event and switches none: it reads what the engine has opened. Counts never become less, and what
//! can't be given to a cgroup is given to the number of no cgroup, under which it is counted as well.

mod find;
mod program;
mod sums;
#[cfg(test)]
mod tests;

use crate::bpf::{Attached, Map, MapKind, Program, ProgramKind, Update, why_not};
use crate::cpus::Cpus;
use crate::host::LinuxHost;
use crate::sys::Errno;
use pmux_engine::pmu::Lease;
use pmux_engine::target::ContextKey;
use program::{Shape, assemble};
use std::collections::{HashMap, HashSet};
use sums::Sums;

pub use find::{FoundCgroup, FoundCgroups, Pattern, PatternError, all, find};
pub use sums::Sum;

/// More events at once than any machine has counters for; the verifier has a limit.
pub const MOST_EVENTS: usize = 32;
/// Where counts go for which there is no room: no cgroup has this number.
const NO_CGROUP: u64 = 0;
/// The tracepoint that runs the program.
const SWITCH: &str = "sched_switch";

/// The counts of all cgroups of v2, for some events. They begin when it is made.
#[derive(Debug)]
pub struct CgroupCounts {
    // Dropped first: then no CPU runs the program any more.
    _attached: Attached,
    program: Program,
    maps: Maps,
    shape: Shape,
    /// The CPUs in whose order values of a CPU each stand.
    possible: Vec<u32>,
    sums: Sums,
    /// Room for one reading of all CPUs.
    most_cgroups: usize,
}

#[derive(Debug)]
struct Maps {
    /// All events of CPU 0, then those of CPU 1, and so on.
    events: Map,
    /// What the events of each CPU said last.
    places: Map,
    /// What each cgroup has counted, for each CPU.
    sums: Map,
    /// The cgroups above each cgroup, from the root on.
    lineages: Map,
    /// A value for a cgroup that has counted nothing.
    zeros: Map,
}

impl Maps {
    fn make(shape: Shape, cgroups: u32) -> Result<Self, Errno> {
        let word = |bytes: usize| u32::try_from(bytes).map_err(|_| Errno::E2BIG);
        let sum_bytes = word(shape.sum_bytes())?;
        let maps = Self {
            events: Map::new(MapKind::PerfEventArray, 4, 4, word(shape.read() * shape.cpus)?, "pmux_cg_events")?,
            places: Map::new(MapKind::Array, 4, word(shape.place_bytes())?, word(shape.cpus)?, "pmux_cg_places")?,
            sums: Map::new(MapKind::PerCpuHash, 8, sum_bytes, cgroups, "pmux_cg_sums")?,
            lineages: Map::new(MapKind::Hash, 8, word(8 * program::LEVELS)?, cgroups, "pmux_cg_lineage")?,
            zeros: Map::new(MapKind::Array, 4, sum_bytes, 1, "pmux_cg_zeros")?,
        };
        let nothing = vec![0; maps.sums.entry_bytes()];
        maps.sums.set(&NO_CGROUP.to_ne_bytes(), &nothing, Update::Set)?;
        Ok(maps)
    }
}

impl CgroupCounts {
    /// Begins to count so many events for at most so many cgroups that run at all. No event is lent yet.
    ///
    /// # Errors
    /// The reason, as a clause, with what would help: without the right to load programs, on a kernel that is too old (5.10 is new
    /// enough), or for too many events.
    pub fn new(events: usize, most_cgroups: u32) -> Result<Self, String> {
        if events == 0 || events > MOST_EVENTS {
            return Err(format!("1 to {MOST_EVENTS} events can be counted so, not {events}"));
        }
        if let Some(why) = why_not(ProgramKind::RawTracepoint) {
            return Err(why);
        }
        let possible = Cpus::system().possible().map_err(|error| error.to_string())?;
        let cpus = possible.last().map_or(1, |last| last as usize + 1);
        let shape = Shape { events, cpus };
        let most_cgroups = most_cgroups.max(16);
        let maps = Maps::make(shape, most_cgroups)
            .map_err(|errno| format!("the kernel has no room for the counts of {most_cgroups} cgroups: {errno}"))?;
        let code = assemble(shape, &maps).ok_or("the program can't be assembled")?;
        let program =
            Program::load(ProgramKind::RawTracepoint, &code, "pmux_cgroups").map_err(|error| error.to_string())?;
        drop(code);
        let online = Cpus::system().online().ok().and_then(|online| online.first()).unwrap_or_default();
        program.run_on(online).map_err(|errno| {
            format!("this kernel can't run a program on a CPU that is named (since Linux 5.10): {errno}")
        })?;
        let attached = program.attach_raw_tracepoint(SWITCH);
        let _attached =
            attached.map_err(|errno| format!("the kernel has no tracepoint {SWITCH} for programs: {errno}"))?;
        let (possible, most_cgroups) = (possible.iter().collect(), most_cgroups as usize);
        Ok(Self { _attached, program, maps, shape, possible, sums: Sums::default(), most_cgroups })
    }

    /// Lets the program read the events of a CPU, which count already; they take the place of those that it read before. An event
    /// that this CPU doesn't have is `None`. `switches` counts its switches of tasks, so that none passes by unseen. They stay open
    /// until [`CgroupCounts::take_back`].
    ///
    /// # Errors
    /// `EINVAL` for another number of events, or a CPU that is not possible; as [`LinuxHost::lend`]. Then it reads none there.
    pub fn lend(
        &self,
        host: &LinuxHost,
        cpu: u32,
        events: &[Option<(ContextKey, Lease)>],
        switches: Option<(ContextKey, Lease)>,
    ) -> Result<(), Errno> {
        if events.len() != self.shape.events || cpu as usize >= self.shape.cpus {
            return Err(Errno::EINVAL);
        }
        self.take_back(cpu);
        for (index, event) in events.iter().copied().chain([switches]).enumerate() {
            let Some(event) = event else { continue };
            if let Err(errno) = host.lend(event, &self.maps.events, self.shape.index(cpu, index)) {
                self.take_back(cpu);
                return Err(errno);
            }
        }
        // From here on: what they have counted before belongs to no cgroup.
        let _ = self.program.run_on(cpu);
        Ok(())
    }

    /// Lets go of the events of a CPU, after what they have counted was given to the cgroup that it belongs to.
    pub fn take_back(&self, cpu: u32) {
        // On a CPU that is gone no task has counted anything.
        let _ = self.program.run_on(cpu);
        for event in 0..self.shape.read() {
            // One that was never lent.
            let _ = self.maps.events.remove(&self.shape.index(cpu, event).to_ne_bytes());
        }
        // It finds nothing to read, and forgets what it has read.
        let _ = self.program.run_on(cpu);
    }

    /// Gives what was counted since the last switch of each CPU to the cgroup of the task that runs there, by interrupting it.
    pub fn catch_up(&self, cpus: impl IntoIterator<Item = u32>) {
        for cpu in cpus {
            // One that went away just now has switched to no task.
            let _ = self.program.run_on(cpu);
        }
    }

    /// What cgroups have counted, each with all below it: by their inode, event by event, for each of [`CgroupCounts::cpus`].
    /// Call [`CgroupCounts::catch_up`] first. A cgroup that has never run is not among them.
    ///
    /// # Errors
    /// What the kernel says about reading maps: `ENOMEM`.
    pub fn read(&mut self, cgroups: &HashSet<u64>) -> Result<HashMap<u64, CgroupSums>, Errno> {
        let entries = self.maps.sums.entries()?;
        let lineages = &self.maps.lineages;
        self.sums.learn(entries.iter().map(|(key, _)| number(key)), |id| lineage(lineages, id));
        Ok(self.sums.add_up(entries.iter().map(|(key, value)| (number(key), value)), cgroups))
    }

    /// What could be given to no cgroup: because the kernel did not tell of a switch, or more of them ran than there is room for.
    ///
    /// # Errors
    /// As [`CgroupCounts::read`].
    pub fn unattributed(&self) -> Result<CgroupSums, Errno> {
        let value = self.maps.sums.get(&NO_CGROUP.to_ne_bytes())?.unwrap_or_default();
        Ok(CgroupSums::of(&value))
    }

    /// Whether so many cgroups have run that those that are gone should make room: see [`CgroupCounts::tidy`].
    ///
    /// # Errors
    /// As [`CgroupCounts::read`].
    pub fn is_crowded(&mut self) -> Result<bool, Errno> {
        self.read(&HashSet::new())?;
        Ok(self.sums.known() * 2 > self.most_cgroups)
    }

    /// Makes room: what cgroups counted that are not among these is kept with those above them. One goes when it has counted
    /// nothing since the last call, so call it once a second for as long as it is crowded.
    ///
    /// # Errors
    /// As [`CgroupCounts::read`].
    pub fn tidy(&mut self, alive: &HashSet<u64>) -> Result<(), Errno> {
        let entries = self.maps.sums.entries()?;
        let gone = entries.iter().map(|(key, value)| (number(key), value));
        let gone = gone.filter(|&(id, _)| id != NO_CGROUP && !alive.contains(&id));
        for id in self.sums.retire(gone, alive) {
            self.maps.sums.remove(&id.to_ne_bytes())?;
            self.maps.lineages.remove(&id.to_ne_bytes())?;
        }
        Ok(())
    }

    /// The CPUs in whose order sums stand: all that are possible.
    #[must_use]
    pub fn cpus(&self) -> &[u32] {
        &self.possible
    }
}

/// What one cgroup has counted: CPU by CPU, event by event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CgroupSums(Vec<Sum>);

impl CgroupSums {
    fn of(value: &[u8]) -> Self {
        let mut sums = Self::default();
        sums.add(value);
        sums
    }

    fn add(&mut self, value: &[u8]) {
        let words = || value.chunks_exact(8).map(number);
        self.0.resize(self.0.len().max(value.len() / 24), Sum::default());
        let (counts, enabled, running) = (words().step_by(3), words().skip(1).step_by(3), words().skip(2).step_by(3));
        for (sum, ((count, enabled), running)) in self.0.iter_mut().zip(counts.zip(enabled).zip(running)) {
            *sum += Sum { count, enabled_ns: enabled, running_ns: running };
        }
    }

    fn add_sums(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), Sum::default());
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum += *more;
        }
    }

    /// The sums of each CPU: of all events, with so many events.
    pub fn by_cpu(&self, events: usize) -> impl Iterator<Item = &[Sum]> {
        self.0.chunks(events.max(1))
    }

    /// An event on all CPUs, of so many events.
    #[must_use]
    pub fn total(&self, event: usize, events: usize) -> Sum {
        let mut total = Sum::default();
        self.by_cpu(events).filter_map(|cpu| cpu.get(event)).for_each(|sum| total += *sum);
        total
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

/// The cgroups above one, from the root on; empty where that isn't known.
fn lineage(map: &Map, id: u64) -> Vec<u64> {
    let value = map.get(&id.to_ne_bytes()).ok().flatten().unwrap_or_default();
    value.chunks_exact(8).map(number).take_while(|&above| above != 0 && above != id).collect()
}
