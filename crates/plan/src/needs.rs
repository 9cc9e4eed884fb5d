//! Which counters an event may use on a machine.
//!
//! **Invariant:** pure, and settled before the engine sees the event.

use crate::capacity::{describe, general_counters, is_hardware};
use crate::machine::{Counts, Description, Kind, PmuDescription};
use crate::{Capacity, EventRequest, Request, Source};
use pmux_abi::attr::{EventType, breakpoint};
use pmux_engine::pmu::{SlotMask, Slots};

/// A PMU as it is planned with.
pub(super) struct PlannedPmu {
    pub(super) name: String,
    pub(super) capacity: Capacity,
}

impl PlannedPmu {
    /// How many counters it has, as the engine sees it. Of a PMU about which nothing is known, no less than there can be.
    pub(super) fn slots(&self) -> Slots {
        match self.capacity {
            Capacity::Counters { .. } => Slots::Scarce(self.capacity.total().map_or(64, |total| total.min(64) as u8)),
            Capacity::Unknown => Slots::Scarce(64),
            // Debug registers are held from open to close.
            Capacity::Registers { .. } | Capacity::Plenty => Slots::Plenty,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Need {
    /// Its PMU, by number.
    pub(super) pmu: usize,
    /// The counters that it may use: none where the PMU does not count it.
    pub(super) allowed: SlotMask,
}

/// The PMUs of a machine, and those that are made up for events of others.
pub(super) struct Pmus<'a> {
    machine: &'a [PmuDescription],
    pub(super) all: Vec<PlannedPmu>,
}

impl<'a> Pmus<'a> {
    pub(super) fn new(machine: &'a Description) -> Self {
        let all =
            machine.pmus.iter().map(|pmu| PlannedPmu { name: pmu.name.clone(), capacity: describe(pmu) }).collect();
        Self { machine: &machine.pmus, all }
    }

    /// What each event of a request needs; `None` where the machine has no PMU for it.
    pub(super) fn needs(&mut self, request: &Request) -> Vec<Option<Need>> {
        request.groups.iter().flat_map(|group| &group.events).map(|event| self.need(event)).collect()
    }

    fn need(&mut self, event: &EventRequest) -> Option<Need> {
        match &event.source {
            Source::Kernel => Some(self.kernel()),
            Source::Counters(name, allowed) => {
                let pmu = self.machine.iter().position(|pmu| pmu.name == *name)?;
                Some(Need { pmu, allowed: *allowed })
            }
            Source::Unknown(name) => Some(Need { pmu: self.made_up(name, Capacity::Unknown), allowed: SlotMask::ALL }),
            Source::Machine(kind) => match event.attr.kind {
                EventType::BREAKPOINT => self.register(event.attr.bp_type),
                EventType::SOFTWARE | EventType::TRACEPOINT => Some(self.kernel()),
                _ => self.counter(kind.or_else(|| Kind::from_config(event.attr.kind, event.attr.config))),
            },
        }
    }

    /// What the kernel counts itself.
    fn kernel(&mut self) -> Need {
        let there = self.all.iter().position(|pmu| pmu.capacity == Capacity::Plenty);
        let pmu = there.unwrap_or_else(|| self.made_up("software", Capacity::Plenty));
        Need { pmu, allowed: SlotMask::ALL }
    }

    fn made_up(&mut self, name: &str, capacity: Capacity) -> usize {
        let known = self.all.iter().skip(self.machine.len()).position(|pmu| pmu.name == name);
        if let Some(index) = known {
            return self.machine.len() + index;
        }
        self.all.push(PlannedPmu { name: name.to_owned(), capacity });
        self.all.len() - 1
    }

    fn register(&self, bp_type: u32) -> Option<Need> {
        self.machine.iter().enumerate().find_map(|(pmu, description)| match description.counts {
            Counts::Accesses { execute, data } => {
                Some(Need { pmu, allowed: if bp_type & breakpoint::X != 0 { execute } else { data } })
            }
            Counts::Kinds(_) => None,
        })
    }

    /// A kind goes where the machine says; any other hardware event on the counters that are not for one kind only.
    fn counter(&self, kind: Option<Kind>) -> Option<Need> {
        let hardware = || self.machine.iter().enumerate().filter(|(_, pmu)| is_hardware(pmu));
        let of_kind = |pmu: &PmuDescription| match (&pmu.counts, kind) {
            (Counts::Kinds(kinds), Some(kind)) => kinds.iter().find(|(other, _)| *other == kind).map(|&(_, mask)| mask),
            _ => None,
        };
        let takes = hardware().find_map(|(pmu, description)| {
            let allowed = match kind {
                Some(_) => of_kind(description)?,
                None => general_counters(description),
            };
            (!allowed.is_empty()).then_some(Need { pmu, allowed })
        });
        takes.or_else(|| hardware().next().map(|(pmu, _)| Need { pmu, allowed: SlotMask::default() }))
    }
}
