//! Counting for each of many cgroups.
//!
//! What it is: [`ByCgroup`], which counts events for the cgroups that patterns name, as they come and go. There are two ways:
//! a program in the kernel that reads events of whole CPUs at each switch ([`CgroupMethod::Program`]: one event for each question and CPU),
//! and where that can't be had, events that are limited to a cgroup ([`CgroupMethod::Events`]: as many for each cgroup).
//! Read first: [`ByCgroup`]; the first way is `program`, the second `events`.
//!
//! **Invariant:** both ways tell the same: a cgroup with all below it, from when it was first seen on. Which of the two is used,
//! and why, can be asked.

mod events;
mod program;

use crate::counters::Reading;
use crate::error::Error;
use crate::event::{EventList, EventSource};
use crate::mux::Multiplexing;
use crate::session::Session;
use events::LimitedEvents;
use pmux_engine::{Count, Nanos};
use pmux_linux::cgroup::Mounts;
use pmux_linux::cgroup_counts::{FoundCgroups, Pattern, Sum, find};
use program::ProgramCounts;
use std::fmt;
use std::path::PathBuf;

/// How cgroups are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CgroupMethod {
    /// A program reads events of whole CPUs at each switch of tasks.
    Program,
    /// Each cgroup has events of its own.
    Events {
        /// Why there is no program.
        why: String,
    },
}

impl fmt::Display for CgroupMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => {
                f.write_str("by a BPF program at each switch of tasks, from one event for each question and CPU")
            }
            Self::Events { why } => {
                write!(f, "by events of each cgroup's own, because there can be no BPF program: {why}")
            }
        }
    }
}

/// Events that are counted for cgroups.
pub struct ByCgroup {
    root: PathBuf,
    patterns: Vec<Pattern>,
    most: usize,
    names: Vec<String>,
    /// Why an event is not counted at all; as many as there are events.
    refusals: Vec<Option<String>>,
    found: FoundCgroups,
    counting: CgroupCounter,
}

enum CgroupCounter {
    Program(Box<ProgramCounts>),
    Events(LimitedEvents, String),
}

/// What one cgroup has counted, with all below it.
#[derive(Clone, PartialEq, Debug)]
pub struct CgroupReading {
    /// Its path from the root, which is `/`.
    pub name: String,
    /// Which cgroup of that name: another one that is made later has another number.
    pub inode: u64,
    /// CPU by CPU: a reading of each event. CPUs on which it has not run may be missing.
    pub cpus: Vec<(u32, Vec<Reading>)>,
}

/// What was read at one time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CgroupReadings {
    /// The cgroups, by name.
    pub cgroups: Vec<CgroupReading>,
    /// How many more the patterns stand for than may be counted.
    pub left_out: usize,
    /// What was counted of each event and could be given to no cgroup but the root: a switch passed by unseen, or for want of room.
    pub unattributed: Vec<u64>,
    /// What could not be read or opened, a sentence each.
    pub troubles: Vec<String>,
}

impl ByCgroup {
    /// Counts these events for all cgroups that are named by these patterns, at most so many at once.
    ///
    /// Events of each cgroup's own take turns as `multiplexing` says. Those that a program reads have counters of their own at all
    /// times, or the kernel takes their turns: the program must find them where they were.
    ///
    /// Where the environment says `PMUX_CGROUP_COUNTS=events`, there is no program: for tests.
    ///
    /// # Errors
    /// [`Error::Cgroup`] where no cgroup file system is mounted that carries events; what [`Session::open`] says about rights. An
    /// event that this machine can't count is refused by itself: see [`ByCgroup::refusal`].
    pub fn open(
        session: &Session,
        events: &EventList,
        patterns: Vec<Pattern>,
        most: usize,
        multiplexing: Multiplexing,
    ) -> Result<Self, Error> {
        let mounts = Mounts::system().map_err(Error::Cgroup)?;
        let root = mounts.for_events().ok_or(Error::Cgroup(pmux_linux::cgroup::CgroupError::NoFileSystem))?.to_owned();
        let names = events.events().map(|event| event.name.clone()).collect();
        let mut refusals: Vec<Option<String>> = events.events().map(refusal).collect();
        let (counting, more) = match program(session, &mounts, events, most)? {
            Ok((counts, refusals)) => (CgroupCounter::Program(Box::new(counts)), refusals),
            Err(why) => (CgroupCounter::Events(LimitedEvents::new(session, events, multiplexing), why), Vec::new()),
        };
        for (refusal, more) in refusals.iter_mut().zip(more) {
            *refusal = refusal.take().or(more);
        }
        let found = FoundCgroups::default();
        let mut by_cgroup = Self { root, patterns, most, names, refusals, found, counting };
        by_cgroup.follow();
        Ok(by_cgroup)
    }

    /// The events, as they were written.
    #[must_use]
    pub fn events(&self) -> &[String] {
        &self.names
    }

    /// Why an event is not counted for any cgroup; `None` where it is, as far as that is known.
    #[must_use]
    pub fn refusal(&self, event: usize) -> Option<&str> {
        self.refusals.get(event)?.as_deref()
    }

    /// How it is done.
    #[must_use]
    pub fn way(&self) -> CgroupMethod {
        match &self.counting {
            CgroupCounter::Program(_) => CgroupMethod::Program,
            CgroupCounter::Events(_, why) => CgroupMethod::Events { why: why.clone() },
        }
    }

    /// Looks which cgroups there are. Where each has events of its own, new ones are counted from here on; where a program counts,
    /// they have been since they were made.
    pub fn follow(&mut self) {
        self.found = find(&self.root, &self.patterns, self.most);
        if let CgroupCounter::Events(events, _) = &mut self.counting {
            events.follow(&self.root, &self.found.cgroups);
        }
    }

    /// To be called every few seconds while no client reads: new cgroups are counted from here on where each has events of its own, and
    /// where a program counts, those that are gone make room. Answers what went wrong.
    pub fn keep_up(&mut self) -> Option<String> {
        match &mut self.counting {
            CgroupCounter::Program(program) => program.make_room(&self.root).err(),
            CgroupCounter::Events(..) => {
                self.follow();
                None
            }
        }
    }

    /// CPUs may have come or gone: events of those that came are counted too, and those of others are let go. Call it soon after
    /// [`Session::follow_hotplug`].
    pub fn follow_cpus(&mut self) {
        if let CgroupCounter::Program(program) = &mut self.counting {
            program.follow_cpus();
        }
    }

    /// Reads all cgroups that there are now.
    pub fn read(&mut self) -> CgroupReadings {
        self.follow();
        self.follow_cpus();
        let mut readings = match &mut self.counting {
            CgroupCounter::Program(program) => program.read(&self.root, &self.found.cgroups),
            CgroupCounter::Events(events, _) => events.read(&self.found.cgroups),
        };
        readings.left_out = self.found.left_out;
        for (_, row) in readings.cgroups.iter_mut().flat_map(|cgroup| &mut cgroup.cpus) {
            for (reading, refusal) in row.iter_mut().zip(&self.refusals) {
                if refusal.is_some() {
                    *reading = Reading::Refused;
                }
            }
        }
        readings
    }
}

/// A program that counts, with what it can't count; or why there is none.
type ProgramResult = Result<(ProgramCounts, Vec<Option<String>>), String>;

fn program(session: &Session, mounts: &Mounts, events: &EventList, most: usize) -> Result<ProgramResult, Error> {
    if std::env::var_os("PMUX_CGROUP_COUNTS").is_some_and(|way| way == "events") {
        return Ok(Err("PMUX_CGROUP_COUNTS says so".to_owned()));
    }
    if mounts.events_are_in_v1() {
        return Ok(Err(
            "events belong to cgroups of version 1 on this machine, and programs know those of version 2".to_owned()
        ));
    }
    ProgramCounts::open(session, events, most)
}

/// Why an event means nothing for a cgroup.
fn refusal(event: &crate::Event) -> Option<String> {
    if !matches!(event.source, EventSource::Kernel { .. }) {
        return Some(format!("{} is no event of the kernel, and can't be counted for a cgroup", event.name));
    }
    event.package_cpus().map(|_| format!("{} counts a whole package, and not what a cgroup does there", event.name))
}

fn counted(sum: Sum) -> Reading {
    let Sum { count, enabled_ns, running_ns } = sum;
    Reading::Counted(Count { value: count, enabled: Nanos(enabled_ns), running: Nanos(running_ns) })
}
