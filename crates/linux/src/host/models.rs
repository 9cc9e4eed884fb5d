//! The two PMUs of this host, as data.
//!
//! **Invariant:** what the kernel does by itself is said here, once, as [`Delegated`].

use super::debug_registers::claim;
use super::{KERNEL, USAGE};
use crate::probe::ProbePmu;
use crate::usage::UsageKind;
use pmux_abi::attr::{Attr, AttrFlags, EventType, Sampling, sw};
use pmux_engine::pmu::share_key::canonical;
use pmux_engine::pmu::{Delegated, EventSpec, OverflowBy, ParseError, PmuCaps, PmuModel, SlotMask, Slots};
use pmux_engine::{Cred, PmuId};

/// Capabilities by the number of slots, because a model lends its own: scarce ones, but for the first, which is given.
pub(super) const fn caps_by_slots<const N: usize>(first: PmuCaps) -> [PmuCaps; N] {
    let mut caps = [first; N];
    let mut count = 1;
    while (count as usize) < N {
        caps[count as usize].slots = Slots::Scarce(count);
        count += 1;
    }
    caps
}

/// The type under which a [`UsageKind`] travels that no software event asks for. Out of the kernel's reach: it hands
/// small numbers to PMUs.
const USAGE_TYPE: EventType = EventType(u32::MAX);

/// The type under which a clock travels: see [`clock_attr`].
const CLOCK_TYPE: EventType = EventType(u32::MAX - 1);

/// The attribute for an event that counts nothing, needs no counter and no rights, and is always on. The kernel says of
/// it for how long its target was there, as events of a scarce PMU see it.
///
/// Up to Linux 6.1 software and hardware events belong to two contexts of a task. Their times differ by some
/// microseconds for each switch of tasks.
#[must_use]
pub fn clock_attr(pmu: PmuId) -> Attr {
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    Attr { kind: CLOCK_TYPE, config: u64::from(pmu.0), flags, ..Attr::default() }
}

/// Whether an attribute is that of a clock.
#[must_use]
pub fn is_clock(attr: &Attr) -> bool {
    clock_of(attr).is_some()
}

/// Of which scarce PMU an attribute is the clock, and what the kernel is asked instead.
pub(super) fn clock_of(attr: &Attr) -> Option<(PmuId, Attr)> {
    let pmu = u16::try_from(attr.config).ok().filter(|_| attr.kind == CLOCK_TYPE)?;
    Some((PmuId(pmu), Attr { kind: EventType::SOFTWARE, config: sw::DUMMY, ..*attr }))
}

/// The attribute for a quantity of [`UsageKind`] itself.
#[must_use]
pub fn usage_attr(kind: UsageKind) -> Attr {
    let config = UsageKind::ALL.iter().position(|&other| other == kind).unwrap_or_default() as u64;
    Attr { kind: USAGE_TYPE, config, ..Attr::default() }
}

/// The bit of the attribute for a quantity of the machine as a whole.
const OF_MACHINE: u64 = 1 << 32;

/// The attribute for a quantity of the machine as a whole, on whichever CPU it is opened; `None` where each CPU has its own, or the
/// machine has none.
#[must_use]
pub fn machine_usage_attr(kind: UsageKind) -> Option<Attr> {
    use UsageKind as K;
    let by_machine = matches!(kind, K::PageFaults | K::MinorFaults | K::MajorFaults | K::ContextSwitches);
    let attr = usage_attr(kind);
    by_machine.then_some(Attr { config: attr.config | OF_MACHINE, ..attr })
}

/// Whether an attribute asks for a quantity of the machine as a whole.
pub(super) fn is_of_machine(attr: &Attr) -> bool {
    attr.kind == USAGE_TYPE && attr.config & OF_MACHINE != 0
}

pub(super) fn usage_kind(attr: &Attr) -> Option<UsageKind> {
    if attr.kind == USAGE_TYPE {
        return UsageKind::ALL.get(usize::try_from(attr.config & !OF_MACHINE).ok()?).copied();
    }
    UsageKind::for_attr(attr)
}

pub(super) struct Models {
    kernel: KernelModel,
    usage: UsageModel,
}

impl Models {
    pub(super) const fn new() -> Self {
        let usage = Delegated::INHERITANCE.union(Delegated::ENABLE_ON_EXEC);
        let caps = PmuCaps {
            slots: Slots::Plenty,
            width_bits: 64,
            delegated: Delegated::MULTIPLEXING.union(usage),
            overflow: OverflowBy::Interrupt,
        };
        Self { kernel: KernelModel(caps), usage: UsageModel(PmuCaps { delegated: usage, ..caps }) }
    }

    pub(super) fn get(&self, pmu: PmuId) -> Option<&dyn PmuModel> {
        match pmu {
            KERNEL => Some(&self.kernel),
            USAGE => Some(&self.usage),
            _ => None,
        }
    }
}

/// `perf_event_open(2)`: the kernel is the authority on what it counts, so hardly anything is refused here.
struct KernelModel(PmuCaps);

impl PmuModel for KernelModel {
    fn caps(&self) -> &PmuCaps {
        &self.0
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        if attr.kind == USAGE_TYPE {
            return Err(ParseError::NoSuchEvent);
        }
        Ok(EventSpec { pmu, attr: *attr, allowed: SlotMask::ALL, claim: claim(attr), cred: Cred::HOST })
    }

    /// The attribute of a probe points to its name.
    fn share_key(&self, attr: &Attr) -> Option<Attr> {
        canonical(attr).filter(|attr| ProbePmu::of(attr.kind).is_none())
    }
}

/// The kernel's accounting of usage.
struct UsageModel(PmuCaps);

impl PmuModel for UsageModel {
    fn caps(&self) -> &PmuCaps {
        &self.0
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        if attr.sampling != Sampling::None || attr.flags.intersects(AttrFlags::PINNED | AttrFlags::EXCLUSIVE) {
            return Err(ParseError::NotSupported);
        }
        usage_kind(attr).ok_or(ParseError::NoSuchEvent)?;
        Ok(EventSpec { pmu, attr: *attr, allowed: SlotMask::ALL, claim: None, cred: Cred::HOST })
    }

    /// Whether a thread stands for its process is said from outside; and there is nothing to be saved.
    fn share_key(&self, _: &Attr) -> Option<Attr> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quantity_has_an_attribute() {
        for kind in UsageKind::ALL {
            assert_eq!(usage_kind(&usage_attr(kind)), Some(kind));
        }
        assert_eq!(usage_kind(&Attr::default()), None, "cycles are no usage");
    }
}
