//! Hardware PMUs whose counters the engine hands out itself, instead of the kernel: a model for each.
//!
//! What it is: what the engine's placement has to know of a PMU of the kernel: how many events may be on at once, and
//! which of them have counters of their own. That is found by trying ([`crate::capacity`]) and corrected by what is
//! seen while counting: where the kernel had to multiplex a second time, fewer are put on from then on.
//! Read first: [`ScarcePmu`]; the fds are in `slots`.
//!
//! **Invariant:** nothing here decides who is on; it only says what fits.

mod capacity_model;
mod group;
mod slots;

pub(super) use slots::ScarceSlots;

use super::LinuxHost;
use super::models::caps_by_slots;
use crate::capacity::{EventCapacity, ProbedCapacity};
use capacity_model::CapacityModel;
use pmux_abi::attr::{Attr, AttrFlags, EventType, Sampling};
use pmux_engine::pmu::{
    Delegated, EventSpec, OverflowBy, ParseError, PmuCaps, PmuModel, Slot, SlotMask, Slots, place_on_allowed,
};
use pmux_engine::{Cred, PmuId};
use std::sync::OnceLock;

/// The first number of such a PMU; the ones before are [`super::KERNEL`], [`super::USAGE`] and the watches.
const FIRST: usize = super::watching::BEHIND;
/// More PMUs than this are left to the kernel.
const MOST_PMUS: usize = 256;
/// The slots of the model, used or not.
const SLOTS: u8 = 64;

/// On which CPUs a PMU counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// On all.
    EveryCpu,
    /// On some: a task that is elsewhere is not counted, and no other user of the counters is the cause.
    SomeCpus,
}

/// What is known of a PMU at a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapacitySnapshot {
    /// How many events run at once, as far as was tried.
    pub counters: u8,
    /// How many are put on at once now: less where another user was seen to have counters.
    pub limit: u8,
    /// The events that were tried.
    pub events: Vec<(Attr, EventCapacity)>,
}

/// A PMU of the kernel as the engine's placement sees it.
pub(super) struct ScarcePmu {
    kind: EventType,
    reach: Reach,
    capacity: CapacityModel,
}

/// Capabilities by the number of counters.
static CAPS: [PmuCaps; SLOTS as usize + 1] = caps_by_slots(PmuCaps {
    slots: Slots::Scarce(0),
    width_bits: 64,
    // The kernel hands out the counters each time that a task of another cgroup comes.
    delegated: Delegated::INHERITANCE.union(Delegated::TIMES).union(Delegated::PREPARATION).union(Delegated::PLACEMENT),
    overflow: OverflowBy::Interrupt,
});

impl PmuModel for ScarcePmu {
    fn caps(&self) -> &PmuCaps {
        CAPS.get(usize::from(self.capacity.counters())).unwrap_or(&CAPS[usize::from(SLOTS)])
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        if attr.sampling != Sampling::None || attr.flags.intersects(AttrFlags::INHERIT_STAT) {
            // Records need an event that is always there.
            return Err(ParseError::NotSupported);
        }
        Ok(EventSpec {
            pmu,
            attr: *attr,
            allowed: self.capacity.slots_of(&capacity_key(attr)),
            claim: None,
            cred: Cred::HOST,
        })
    }

    fn place(&self, wanted: &[SlotMask], used: SlotMask, out: &mut [Slot]) -> bool {
        let most = usize::from(self.capacity.limit());
        wanted.len() + used.len() as usize <= most && place_on_allowed(wanted, used, SLOTS, out)
    }
}

impl ScarcePmu {
    /// One of its events, as a question.
    pub(super) fn anchor(&self) -> Option<Attr> {
        self.capacity.any_event()
    }
}

/// All of them; made as they are asked for, and kept.
pub(super) struct ScarcePmus(Vec<OnceLock<Box<ScarcePmu>>>);

impl Default for ScarcePmus {
    fn default() -> Self {
        Self((0..MOST_PMUS).map(|_| OnceLock::new()).collect())
    }
}

impl ScarcePmus {
    pub(super) fn get(&self, pmu: PmuId) -> Option<&ScarcePmu> {
        self.0.get(usize::from(pmu.0).checked_sub(FIRST)?)?.get().map(|pmu| &**pmu)
    }
}

impl LinuxHost {
    /// The PMU through which the engine hands out the counters of a PMU of the kernel, by that one's type; `None` where
    /// the machine has more PMUs than can be followed. Its events need a slot to count: see
    /// [`LinuxHost::learn_capacity`] for how many there are, and [`pmux_engine::Engine::rotate`] for turns.
    pub fn scarce_pmu(&self, kind: EventType, reach: Reach) -> Option<PmuId> {
        let make = || Box::new(ScarcePmu { kind, reach, capacity: CapacityModel::default() });
        let index = self.shared.scarce.0.iter().position(|cell| cell.get_or_init(make).kind == kind)?;
        u16::try_from(FIRST + index).ok().map(PmuId)
    }

    /// Brings what was found of a scarce PMU by trying these events, as [`capacity_key`]s: all that were tried before among
    /// them.
    pub fn learn_capacity(&self, pmu: PmuId, events: &[Attr], found: &ProbedCapacity) {
        if let Some(pmu) = self.shared.scarce.get(pmu) {
            pmu.capacity.learn(events, found);
        }
    }

    /// What is known of a scarce PMU now.
    pub fn capacity(&self, pmu: PmuId) -> Option<CapacitySnapshot> {
        Some(self.shared.scarce.get(pmu)?.capacity.now())
    }
}

/// The part of an attribute on which it depends what fits beside it: not on whose behalf it counts, nor in which mode.
#[must_use]
pub fn capacity_key(attr: &Attr) -> Attr {
    let Attr { kind, config, config1, config2, config3, config4, .. } = *attr;
    Attr { kind, config, config1, config2, config3, config4, ..Attr::default() }
}

#[cfg(test)]
mod tests;
