//! Leading events into rings, switching them, and following CPUs.
//!
//! **Invariant:** an event that is led has its id in the file before anything that it wrote is read out of a ring.

use super::open::{Held, Role, Switch};
use super::plan::by_part;
use super::{RecordOptions, Recorder};
use crate::error::Error;
use crate::target::Inherit;
use pmux_abi::attr::Attr;
use pmux_engine::event_set::Member;
use pmux_engine::{CpuId, GroupSpec};
use pmux_linux::host::KERNEL;
use pmux_linux::procfs::Proc;
use std::collections::HashSet;

impl Recorder {
    /// Leads all that is held, and switches tracking on.
    pub(super) fn lead_all(&mut self) -> Result<(), Error> {
        (0..self.held.len()).try_for_each(|index| self.lead(index))
    }

    /// Leads what is not led yet of one held part, and switches its tracking on.
    pub(super) fn lead(&mut self, index: usize) -> Result<(), Error> {
        let Some(held) = self.held.get(index) else { return Ok(()) };
        let events = self.events_of(held)?;
        let fresh: Vec<_> = events.into_iter().filter(|(_, event, _)| !self.known.contains_key(event)).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        for (which, event, cpu) in fresh {
            let role = if which.is_some() { Role::Samples } else { Role::Tells };
            let id = self.rings.lead(event, cpu, role)?;
            // The tracking event is the last one.
            let which = which.unwrap_or(self.tracking_index);
            self.known.insert(event, (which, id));
            self.fresh.push((which, id));
        }
        let engine = self.session.engine();
        match &self.held[index] {
            Held::Cpus { tracking, .. } => engine.arm(*tracking)?,
            Held::Task { tracking, .. } => engine.enable_group(tracking.group)?,
        }
        Ok(())
    }

    pub(super) fn switch_sampling(&self, switch: Switch) -> Result<(), Error> {
        let engine = self.session.engine();
        let mut groups = Vec::new();
        for member in self.members(0) {
            match (member, switch) {
                (Member::Set(set), Switch::On) => engine.arm(set)?,
                (Member::Set(set), Switch::Off) => engine.disarm(set)?,
                (Member::Group(group), _) => groups.push(group),
            }
        }
        let switched = match switch {
            Switch::On => engine.enable_each(&groups),
            Switch::Off => engine.disable_each(&groups),
        };
        Ok(switched.map_err(|(_, error)| error)?)
    }

    /// What is switched together: what is recorded is part 0.
    pub(crate) fn members(&self, part: usize) -> Vec<Member> {
        let groups = self.parts.get(part).map(|part| part.groups.clone()).unwrap_or_default();
        let of = |held: &Held| match held {
            Held::Cpus { sampling, .. } => {
                let sets = by_part(sampling, &self.parts).nth(part).unwrap_or_default();
                sets.iter().map(|&set| Member::Set(set)).collect()
            }
            Held::Task { sampling, .. } => {
                let groups = sampling.get(groups.clone()).unwrap_or_default();
                groups.iter().map(|opened| Member::Group(opened.group)).collect::<Vec<_>>()
            }
        };
        self.held.iter().flat_map(of).collect()
    }

    /// Takes CPUs into account that came or went. Call it when the session's fd for hotplug is readable, and from time to time.
    ///
    /// # Errors
    /// [`Error::Ring`] for a CPU that came.
    pub fn follow_cpus(&mut self) -> Result<(), Error> {
        if self.shared.is_some() {
            // The service does.
            return Ok(());
        }
        self.session.follow_hotplug();
        let new: Vec<CpuId> = match self.held.first() {
            Some(Held::Task { .. }) => {
                let led: HashSet<CpuId> = self.held.iter().filter_map(Held::cpu).collect();
                self.session.engine().online().iter().filter(|cpu| !led.contains(cpu)).collect()
            }
            _ => Vec::new(),
        };
        if !new.is_empty() {
            self.hold_threads_on(&new)?;
        }
        self.lead_all()
    }

    /// Opens events on CPUs that came for the first time, on all threads that are there: what was opened before knows nothing of
    /// them.
    fn hold_threads_on(&mut self, cpus: &[CpuId]) -> Result<(), Error> {
        let proc = Proc::system();
        let mut threads = self.tids.clone();
        if self.options.inherit == Inherit::Children {
            let mut pids: Vec<i32> = self.tids.iter().filter_map(|&tid| proc.process_of(tid).ok()).collect();
            let mut seen = HashSet::new();
            while let Some(pid) = pids.pop() {
                if seen.insert(pid) {
                    threads.extend(proc.threads_of(pid).unwrap_or_default());
                    pids.extend(proc.children(pid).unwrap_or_default());
                }
            }
        }
        let (specs, tracking) = self.specs_again();
        let first = self.held.len();
        for &cpu in cpus {
            for &tid in &threads {
                // One that has gone meanwhile is no loss; what else may be refused was granted before.
                let _ = self.hold_thread_on(&specs, tracking, tid, cpu);
            }
        }
        // Sets are on or off by the hand of somebody else, who knows nothing of these: they stay off.
        let recorded = self.parts.first().map_or(0, |part| part.groups.end);
        let groups = self.held.iter().skip(first).flat_map(|held| match held {
            Held::Task { sampling, .. } => sampling.iter().take(recorded).map(|opened| opened.group).collect(),
            Held::Cpus { .. } => Vec::new(),
        });
        let groups: Vec<_> = groups.collect();
        let engine = self.session.engine();
        Ok(engine.enable_each(&groups).map_err(|(_, error)| error)?)
    }

    /// The groups as they were opened.
    fn specs_again(&self) -> (Vec<GroupSpec>, Attr) {
        let (tracking, sampling) = match self.descs.split_last() {
            Some((tracking, sampling)) => (tracking.attr, sampling),
            None => (Attr::default(), &[][..]),
        };
        let spec = |&count: &usize, first: &mut usize| {
            let members = &sampling[*first..*first + count];
            *first += count;
            GroupSpec { events: members.iter().map(|desc| (KERNEL, desc.attr)).collect() }
        };
        let mut first = 0;
        (self.group_sizes.iter().map(|count| spec(count, &mut first)).collect(), tracking)
    }

    /// How it records.
    #[must_use]
    pub fn options(&self) -> &RecordOptions {
        &self.options
    }
}

impl Held {
    fn cpu(&self) -> Option<CpuId> {
        match self {
            Self::Task { cpu, .. } => Some(*cpu),
            Self::Cpus { .. } => None,
        }
    }
}
