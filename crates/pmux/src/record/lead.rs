//! Leading events into rings, switching them, and following CPUs.
//!
//! **Invariant:** an event that is led has its id in the file before anything that it wrote is read out of a ring.

use super::absence::Absence;
use super::open::{EventRole, RecordedEvents, Switch};
use super::plan::{PlanPart, by_part};
use super::{RecordOptions, Recorder, most_samples_per_second};
use crate::error::Error;
use crate::owned_group::Owned;
use crate::target::Inherit;
use pmux_abi::attr::{Attr, Sampling};
use pmux_engine::engine::SwitchError;
use pmux_engine::event_set::Member;
use pmux_engine::host::Host as _;
use pmux_engine::{Count, CpuId, EventSetId, GroupId, GroupSpec, SetId};
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
            let role = if which.is_some() { EventRole::Samples } else { EventRole::Tracking };
            let id = self.rings.lead(event, cpu, role)?;
            // The tracking event is the last one.
            let which = which.unwrap_or(self.tracking_index);
            self.known.insert(event, (which, id));
            self.fresh.push((which, id));
        }
        let engine = self.session.engine();
        match &self.held[index] {
            RecordedEvents::Cpus { tracking, .. } => engine.enable_set(**tracking)?,
            RecordedEvents::Task { tracking, .. } => engine.enable_group(tracking.group)?,
        }
        Ok(())
    }

    pub(super) fn switch_sampling(&mut self, switch: Switch) -> Result<(), Error> {
        self.sampling = switch;
        self.regions.iter_mut().for_each(|regions| regions.switch(switch == Switch::On));
        self.off_cpu.iter_mut().try_for_each(|off_cpu| match switch {
            Switch::On => off_cpu.enable(),
            Switch::Off => off_cpu.disable(),
        })?;
        let engine = self.session.engine();
        let mut groups = Vec::new();
        for member in self.members(0) {
            match (member, switch) {
                (Member::Set(set), Switch::On) => engine.enable_set(set)?,
                (Member::Set(set), Switch::Off) => engine.disable_set(set)?,
                (Member::Group(group), _) => groups.push(group),
            }
        }
        let switched = match switch {
            Switch::On => engine.enable_each(&groups),
            Switch::Off => engine.disable_each(&groups),
        };
        switched.map_err(|(_, error)| error)?;
        self.off_cpu.iter_mut().for_each(|off_cpu| match switch {
            Switch::On => off_cpu.mark_running(),
            Switch::Off => off_cpu.end_waits(),
        });
        Ok(())
    }

    /// Gives a set of events that is not the recorded one, by number from 0, to the code that switches it, which gives it an id. What is
    /// opened later comes to it. In the order of their numbers.
    pub(crate) fn give_set(&mut self, index: usize, gather: impl FnOnce(Vec<Member>) -> EventSetId) {
        self.event_sets.truncate(index);
        let set = gather(self.members(index + 1));
        self.event_sets.push(set);
    }

    /// What is switched together: what is recorded is part 0.
    fn members(&self, part: usize) -> Vec<Member> {
        let of = |held: &RecordedEvents| match held {
            RecordedEvents::Cpus { sampling, .. } => {
                let sets = by_part(sampling, &self.parts).nth(part).unwrap_or_default();
                sets.iter().map(|set| Member::Set(**set)).collect()
            }
            RecordedEvents::Task { .. } => Vec::new(),
        };
        self.held.iter().flat_map(of).chain(self.groups_of(0, part).map(Member::Group)).collect()
    }

    /// Takes CPUs into account that came or went. Call it when the session's fd for hotplug is readable, and from time to time. Where a CPU
    /// came, the next [`Recorder::drain`] reads `/proc` and writes how tasks stand: call it soon.
    ///
    /// # Errors
    /// [`Error::Ring`] for a CPU that came.
    pub fn follow_cpus(&mut self) -> Result<(), Error> {
        if self.shared.is_some() {
            // The service does.
            return self.lead_waits();
        }
        let now_ns = pmux_linux::now_ns();
        self.session.follow_hotplug();
        if self.note_absences()? > 0 {
            self.cpu_came_ns.get_or_insert(now_ns);
            self.retry_refused()?;
        }
        let new: Vec<CpuId> = match self.held.first() {
            Some(RecordedEvents::Task { .. }) => {
                let cpu = |held: &RecordedEvents| match held {
                    RecordedEvents::Task { cpu, .. } => Some(*cpu),
                    RecordedEvents::Cpus { .. } => None,
                };
                let led: HashSet<CpuId> = self.held.iter().filter_map(cpu).collect();
                self.session.engine().online().iter().filter(|cpu| !led.contains(cpu)).collect()
            }
            _ => Vec::new(),
        };
        if !new.is_empty() {
            let held = self.held.len();
            self.hold_threads_on(&new)?;
            if self.held.len() > held {
                self.cpu_came_ns.get_or_insert(now_ns);
            }
        }
        self.lead_all()?;
        self.lead_waits()
    }

    fn lead_waits(&mut self) -> Result<(), Error> {
        let fresh = &mut self.fresh;
        self.off_cpu.iter_mut().try_for_each(|off_cpu| off_cpu.lead(fresh))
    }

    /// A CPU that came back may be refused because the kernel allows less samples a second by now: then less it is.
    fn retry_refused(&mut self) -> Result<(), Error> {
        let Some(RecordedEvents::Cpus { sampling, tracking }) = self.held.first() else { return Ok(()) };
        let engine = self.session.engine();
        let mut why = Vec::new();
        let (specs, tracked) = self.specs_again();
        let of_part = |(sets, part): (&[Owned<SetId>], &PlanPart)| {
            sets.iter().map(|set| (**set, specs[part.groups.clone()].to_vec())).collect::<Vec<_>>()
        };
        let sets = by_part(sampling, &self.parts).zip(&self.parts).flat_map(of_part);
        for (set, groups) in sets.chain([(**tracking, vec![GroupSpec::single(KERNEL, tracked)])]) {
            let refused = || -> Result<Vec<_>, Error> {
                let reading = engine.recall_set(set, |_| Ok(Count::default()))?;
                Ok(reading.cpus.iter().filter_map(|cpu| Some((cpu.cpu.0, cpu.refused?))).collect())
            };
            let before = refused()?;
            if before.is_empty() {
                continue;
            }
            // What is wrong with the groups was wrong with them when they were opened.
            let _ = engine.retry_set(set, &groups);
            let after = refused()?;
            let is_open = |cpu: u32| !after.iter().any(|(refused, _)| *refused == cpu);
            why.extend(before.iter().filter(|(cpu, _)| is_open(*cpu)).filter_map(|(cpu, _)| self.slower(*cpu)));
            why.extend(after.iter().map(|(cpu, error)| format!("CPU {cpu} is not recorded: {error}")));
        }
        for note in why {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        Ok(())
    }

    /// What is said of a CPU that is sampled less often than the others.
    fn slower(&self, cpu: u32) -> Option<String> {
        let most = most_samples_per_second()?;
        let asked = self.descs.iter().filter_map(|desc| match desc.attr.sampling {
            Sampling::Frequency(hz) if hz > most => Some(hz),
            _ => None,
        });
        let asked = asked.max()?;
        Some(format!(
            "CPU {cpu} came back and takes {most} samples a second, not {asked}: more the kernel does not allow any more"
        ))
    }

    /// Looks which CPUs were away, and answers how many have come back. Of threads nothing is missed: their events stay where they are.
    fn note_absences(&mut self) -> Result<usize, Error> {
        let Some(RecordedEvents::Cpus { tracking, .. }) = self.held.first() else { return Ok(0) };
        let engine = self.session.engine();
        let now = engine.host().now();
        // No counter is asked: the tracking event counts nothing.
        let reading = engine.recall_set(**tracking, |_| Ok(Count::default()))?;
        Ok(self.absences.note(&reading.coverage, now))
    }

    /// When CPUs were away, as far as it was noticed by [`Recorder::follow_cpus`] and is remembered.
    #[must_use]
    pub fn absences(&self) -> &[Absence] {
        &self.absences.all
    }

    /// The threads that are recorded, with what they have started; none where CPUs are.
    pub(super) fn threads_now(&self) -> HashSet<i32> {
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
        threads
    }

    /// Opens events on CPUs that came for the first time, on all threads that are there: what was opened before knows nothing of
    /// them.
    fn hold_threads_on(&mut self, cpus: &[CpuId]) -> Result<(), Error> {
        let threads = self.threads_now();
        let (specs, tracking) = self.specs_again();
        let first = self.held.len();
        for &cpu in cpus {
            for &tid in &threads {
                // One that has gone meanwhile is no loss; what else may be refused was granted before.
                let _ = self.hold_thread_on(&specs, tracking, tid, cpu);
            }
        }
        // What is recorded goes on with them where it is on; each set knows how it stands.
        if self.sampling == Switch::On {
            let groups: Vec<_> = self.groups_of(first, 0).collect();
            self.session.engine().enable_each(&groups).map_err(|(_, error)| error)?;
        }
        for (index, &set) in self.event_sets.iter().enumerate() {
            let members = self.groups_of(first, index + 1).map(Member::Group).collect();
            match self.session.engine().join_event_set(set, members) {
                // Nothing switches it any more.
                Ok(_) | Err(SwitchError::Closed) => {}
                Err(SwitchError::Member { error, .. }) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The groups of a part on threads, of what is held from an index on.
    fn groups_of(&self, first: usize, part: usize) -> impl Iterator<Item = GroupId> {
        let groups = self.parts.get(part).map(|part| part.groups.clone()).unwrap_or_default();
        let of = move |held: &RecordedEvents| match held {
            RecordedEvents::Task { sampling, .. } => {
                let groups = sampling.get(groups.clone()).unwrap_or_default();
                groups.iter().map(|opened| opened.group).collect()
            }
            RecordedEvents::Cpus { .. } => Vec::new(),
        };
        self.held.iter().skip(first).flat_map(of)
    }

    /// The groups as they were opened, but no more samples a second than the kernel allows now.
    fn specs_again(&self) -> (Vec<GroupSpec>, Attr) {
        let (tracking, sampling) = match self.descs.split_last() {
            Some((tracking, sampling)) => (tracking.attr, sampling),
            None => (Attr::default(), &[][..]),
        };
        let most = most_samples_per_second().unwrap_or(u64::MAX);
        let allowed = |mut attr: Attr| {
            if let Sampling::Frequency(hz) = &mut attr.sampling {
                *hz = (*hz).min(most);
            }
            (KERNEL, attr)
        };
        let spec = |&count: &usize, first: &mut usize| {
            let members = &sampling[*first..*first + count];
            *first += count;
            GroupSpec { events: members.iter().map(|desc| allowed(desc.attr)).collect() }
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
