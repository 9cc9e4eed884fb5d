//! What is opened: the events, as the kernel is asked for them, and what they are asked less where it refuses.
//!
//! **Invariant:** nothing is opened here.

use super::attrs::{self, Able, RecordScope};
use super::off_cpu;
use super::open::RecordMode;
use super::regions;
use super::{Keep, RecordOptions};
use crate::error::Error;
use crate::event::{Event, EventList, EventSource, Hardware, LEVELS, Modifier, Software};
use crate::perf_data::EventDesc;
use crate::session::Session;
use crate::target::Start;
use pmux_abi::attr::{Attr, AttrFlags, ReadFormat, SampleFormat, Sampling};
use pmux_engine::GroupSpec;
use pmux_linux::host::KERNEL;
use pmux_linux::machine::Machine;
use pmux_linux::probe::cannot_be_inherited;
use std::ops::Range;

/// Events that are switched together: the first part is what is recorded, the others are sets that other code switches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PlanPart {
    pub(super) groups: Range<usize>,
    pub(super) events: Range<usize>,
}

/// The sets of each part, one for each cgroup.
pub(super) fn by_part<'s, T>(sampling: &'s [T], parts: &[PlanPart]) -> impl Iterator<Item = &'s [T]> {
    sampling.chunks((sampling.len() / parts.len().max(1)).max(1))
}

pub(super) struct Plan {
    pub(super) events: Vec<Event>,
    /// Which events belong together: the first one, and how many.
    pub(super) groups: Vec<(String, usize, usize)>,
    pub(super) parts: Vec<PlanPart>,
    pub(super) attrs: Vec<Attr>,
    pub(super) tracking: Attr,
    off_cpu: Option<Attr>,
    regions: Option<Attr>,
    /// Flags of all events that sample.
    flags: AttrFlags,
    pub(super) chosen_by_us: bool,
    pub(super) notes: Vec<String>,
}

impl Plan {
    pub(super) fn new(
        events: EventList,
        mode: &mut RecordMode,
        options: &RecordOptions,
        scope: RecordScope,
        able: Able,
    ) -> Result<Self, Error> {
        let chosen_by_us = events.groups.is_empty();
        let events = if chosen_by_us { usual_event(options) } else { events };
        let (mut all, mut groups, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for part in std::iter::once(events).chain(std::mem::take(&mut mode.sets)) {
            let (first_group, first_event) = (groups.len(), all.len());
            for group in part.groups {
                groups.push((group.name.unwrap_or_default(), all.len(), group.events.len()));
                all.extend(group.events);
            }
            parts.push(PlanPart { groups: first_group..groups.len(), events: first_event..all.len() });
        }
        if all.iter().any(|event| matches!(event.source, EventSource::Tool(_))) {
            return Err(Error::Options(
                "what pmux measures itself (duration_time, user_time, …) is counted, and has no samples: pmux stat",
            ));
        }
        let tracking = attrs::tracking(options, scope, able);
        let flags = if mode.cpu_rings.is_some() { AttrFlags::WRITE_BACKWARD } else { AttrFlags::empty() };
        let (attrs, notes, off_cpu, regions) = (Vec::new(), Vec::new(), None, None);
        let mut plan =
            Self { events: all, groups, parts, attrs, tracking, off_cpu, regions, flags, chosen_by_us, notes };
        plan.ask(options, scope, able);
        Ok(plan)
    }

    fn ask(&mut self, options: &RecordOptions, scope: RecordScope, able: Able) {
        self.attrs = self.events.iter().map(|event| attrs::sampling(event, options, scope, able)).collect();
        for &(_, first, count) in self.groups.iter().filter(|(_, _, count)| *count > 1) {
            let members = first..first + count;
            let reads = self.events[members.clone()].iter().any(|event| event.modifiers.has(Modifier::SampleRead));
            for (index, attr) in self.attrs[members].iter_mut().enumerate() {
                if reads {
                    // Counts of a group can't be read in one piece where children have their own.
                    attr.flags.remove(AttrFlags::INHERIT | AttrFlags::INHERIT_STAT);
                    attr.sample |= SampleFormat::READ;
                    if index > 0 {
                        attr.sampling = Sampling::None;
                    }
                }
                // As the host asks for it.
                attr.read_format.set(ReadFormat::GROUP, index == 0 && !attr.flags.contains(AttrFlags::INHERIT));
            }
        }
        for &(_, first, count) in &self.groups {
            let members = &mut self.attrs[first..first + count];
            let follows = |attr: &Attr| attr.flags.contains(AttrFlags::INHERIT);
            // A group is inherited as a whole.
            if let Some(why) = members.iter().filter(|attr| follows(attr)).find_map(cannot_be_inherited) {
                let name = &self.events[first].name;
                let note = format!("{name} has no samples of threads and children that come later: {why}");
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
                members.iter_mut().for_each(|attr| attr.flags.remove(AttrFlags::INHERIT | AttrFlags::INHERIT_STAT));
            }
        }
        self.off_cpu = options.off_cpu.map(|_| off_cpu::attr(&self.tracking, options.call_chain));
        self.regions = (options.regions == Keep::Record).then(|| regions::attr(&self.tracking));
        let ours = self.off_cpu.iter_mut().chain(&mut self.regions);
        attrs::with_one_sample_id(self.attrs.iter_mut().chain([&mut self.tracking]).chain(ours));
        self.attrs.iter_mut().for_each(|attr| attr.flags |= self.flags);
        if options.start == Start::OnExec {
            let recorded = self.parts.first().map_or(0, |part| part.events.end);
            for attr in self.attrs.iter_mut().take(recorded) {
                attr.flags |= AttrFlags::ENABLE_ON_EXEC;
            }
        }
    }

    /// Lowers frequencies to what the kernel allows now, which it changes by itself; whether there was something to lower.
    pub(super) fn sample_less_often(&mut self) -> bool {
        let Some(most) = super::most_samples_per_second() else { return false };
        let mut wanted = 0;
        for attr in &mut self.attrs {
            if let Sampling::Frequency(hz) = &mut attr.sampling
                && *hz > most
            {
                wanted = wanted.max(*hz);
                *hz = most;
            }
        }
        if wanted > 0 {
            let note = format!(
                "takes {most} samples a second, not {wanted}: more the kernel does not allow (kernel.perf_event_max_sample_rate, \
                 which it lowers by itself when samples take too long)"
            );
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        wanted > 0
    }

    /// Leaves the kernel's part out, because an event is refused with it; whether that is worth a try.
    pub(super) fn leave_kernel_out(&mut self, refused: usize, scope: RecordScope, why: &str) -> bool {
        let may = scope == RecordScope::Tasks && self.attrs.get(refused).is_some_and(samples_user);
        if !may || self.attrs.iter().any(|attr| attr.flags.intersects(LEVELS)) {
            return false;
        }
        for (event, attr) in self.events.iter_mut().zip(&mut self.attrs) {
            attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
            event.attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
            event.name.push_str(if event.name.contains(':') { "u" } else { ":u" });
        }
        self.notes.push(format!("records user mode only: {why}"));
        true
    }

    /// Records the time of the CPU's clock in the place of our own choice.
    pub(super) fn take_clock(&mut self, options: &RecordOptions, scope: RecordScope, able: Able, why: &str) {
        let mut clock = Event::software(Software::CpuClock);
        // Our choice is one event, the first.
        clock.attr.flags |= self.events[0].attr.flags & LEVELS;
        self.events[0] = clock;
        self.ask(options, scope, able);
        self.notes.push(format!("records cpu-clock instead of cycles: {why}"));
    }

    pub(super) fn specs(&self) -> Vec<GroupSpec> {
        let spec = |&(_, first, count): &(String, usize, usize)| GroupSpec {
            events: self.attrs[first..first + count].iter().map(|attr| (KERNEL, *attr)).collect(),
        };
        self.groups.iter().map(spec).collect()
    }

    pub(super) const fn records_waits(&self) -> bool {
        self.off_cpu.is_some()
    }

    pub(super) fn tracking_index(&self) -> usize {
        self.attrs.len()
            + usize::from(self.regions.is_some())
            + if self.records_waits() { off_cpu::EVENTS.len() } else { 0 }
    }

    pub(super) fn descs(&self) -> Vec<EventDesc> {
        let asked = |attr: &Attr| Attr { flags: attr.flags | AttrFlags::DISABLED, ..*attr };
        let desc =
            |(event, attr): (&Event, &Attr)| EventDesc { attr: asked(attr), name: event.name.clone(), ids: Vec::new() };
        let mut descs: Vec<_> = self.events.iter().zip(&self.attrs).map(desc).collect();
        if let Some(attr) = &self.regions {
            descs.push(EventDesc { attr: asked(attr), name: regions::EVENT.to_owned(), ids: vec![regions::ID] });
        }
        for (attr, name) in self.off_cpu.iter().flat_map(|attr| off_cpu::EVENTS.map(|name| (attr, name))) {
            descs.push(EventDesc { attr: asked(attr), name: name.to_owned(), ids: Vec::new() });
        }
        descs.push(EventDesc { attr: asked(&self.tracking), name: "dummy:u".to_owned(), ids: Vec::new() });
        descs
    }
}

pub(super) fn able(session: &Session) -> Able {
    let since = |version| !session.facts().is_older_than(version);
    Able { lost: since((6, 0)), symbols: since((5, 1)), precise: Machine::this().most_precise() }
}

fn usual_event(options: &RecordOptions) -> EventList {
    if options.off_cpu.is_some() || options.regions == Keep::Record {
        // Waits and regions are times, and go with times only.
        return EventList::from(Event::software(Software::CpuClock));
    }
    let cycles = Event::hardware(Hardware::Cycles).with_modifiers("P");
    let mut event = cycles.unwrap_or_else(|_| Event::hardware(Hardware::Cycles));
    "cycles".clone_into(&mut event.name);
    EventList::from(event)
}

/// Whether something is left to be sampled without the kernel.
fn samples_user(attr: &Attr) -> bool {
    use pmux_abi::attr::{EventType, sw};
    let in_kernel = [sw::CONTEXT_SWITCHES, sw::CPU_MIGRATIONS, sw::CGROUP_SWITCHES];
    attr.kind != EventType::TRACEPOINT && (attr.kind != EventType::SOFTWARE || !in_kernel.contains(&attr.config))
}
