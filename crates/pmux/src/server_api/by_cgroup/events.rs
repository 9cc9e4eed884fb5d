//! Events that are limited to a cgroup: one for each CPU, cgroup and question.
//!
//! **Invariant:** a cgroup that can't be opened is a sentence, and the others are counted.

use super::{CgroupReading, CgroupReadings};
use crate::counters::{Counters, Reading};
use crate::event::EventList;
use crate::mux::Multiplexing;
use crate::session::Session;
use crate::target::{CpuChoice, Options, Target};
use pmux_linux::cgroup_counts::FoundCgroup;
use std::collections::BTreeMap;
use std::path::Path;

pub(super) struct LimitedEvents {
    session: Session,
    events: EventList,
    options: Options,
    open: BTreeMap<u64, Counters>,
    troubles: Vec<String>,
}

impl LimitedEvents {
    pub(super) fn new(session: &Session, events: &EventList, multiplexing: Multiplexing) -> Self {
        let options = Options { multiplexing, ..Options::default() };
        Self { session: session.clone(), events: events.clone(), options, open: BTreeMap::new(), troubles: Vec::new() }
    }

    pub(super) fn follow(&mut self, root: &Path, found: &[FoundCgroup]) {
        self.troubles.clear();
        self.open.retain(|inode, _| found.iter().any(|cgroup| cgroup.inode == *inode));
        for FoundCgroup { name, folder, inode } in found {
            if self.open.contains_key(inode) {
                continue;
            }
            let path = root.join(folder);
            let Some(text) = path.to_str() else {
                self.troubles.push(format!("the cgroup {name} is not counted: its name is no text"));
                continue;
            };
            let names = vec![text.to_owned()];
            let target = Target::Cgroups { names, cpus: CpuChoice::All };
            match self.session.open(&self.events, &target, self.options) {
                Ok(counters) => {
                    self.open.insert(*inode, counters);
                }
                // It may be gone already.
                Err(_) if !path.is_dir() => {}
                Err(error) => self.troubles.push(format!("the cgroup {name} is not counted: {error}")),
            }
        }
    }

    pub(super) fn read(&mut self, found: &[FoundCgroup]) -> CgroupReadings {
        let mut readings = CgroupReadings { troubles: self.troubles.clone(), ..CgroupReadings::default() };
        for FoundCgroup { name, inode, .. } in found {
            let Some(counters) = self.open.get(inode) else { continue };
            let rows = counters.read().rows.into_iter();
            // What is one number for all CPUs is no event of the kernel, and refused.
            let cpus: Vec<(u32, Vec<Reading>)> = rows.filter_map(|row| Some((row.who.cpu?, row.readings))).collect();
            readings.cgroups.push(CgroupReading { name: name.clone(), inode: *inode, cpus });
        }
        readings
    }
}
