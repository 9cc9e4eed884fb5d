//! The PMUs as the engine sees them.
//!
//! **Invariant:** pure; what is counted where comes from the description and never changes.

use super::faults::InjectedFault;
use super::samples::period_of;
use crate::machine::{Counts, Description, Kind, PmuDescription};
use pmux_abi::attr::{Attr, EventType, breakpoint};
use pmux_engine::hw_breakpoint::{Authority, Claim, DebugRegisters, Kind as BreakpointKind, Registers as PerCpu};
use pmux_engine::pmu::share_key::{canonical, canonical_of_records, counting_part};
use pmux_engine::pmu::{Delegated, EventSpec, ParseError, PmuCaps, PmuModel, Slot, SlotMask, Slots, place_on_allowed};
use pmux_engine::{Cred, PmuId};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CountedEvent {
    /// Occurrences of a kind.
    Kind(Kind),
    Access(Watchpoint),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watchpoint {
    address: u64,
    len_bytes: u64,
    bp_type: u32,
}

impl Watchpoint {
    pub(super) const fn sees(self, address: u64, bp_type: u32) -> bool {
        self.bp_type & bp_type != 0 && address.wrapping_sub(self.address) < self.len_bytes
    }
}

impl CountedEvent {
    pub(super) fn of(attr: &Attr) -> Option<Self> {
        if attr.kind == EventType::BREAKPOINT {
            let watch = Watchpoint { address: attr.config1, len_bytes: attr.config2, bp_type: attr.bp_type };
            return Some(Self::Access(watch));
        }
        Kind::from_config(attr.kind, attr.config).map(Self::Kind)
    }
}

pub(super) struct SimPmu {
    caps: PmuCaps,
    counts: Counts,
    /// What it says that is not so, as a number. Who plants it is the one who asks, so the two need no order.
    lie: AtomicU8,
}

const NO_LIE: u8 = u8::MAX;

impl SimPmu {
    pub(super) fn new(description: &PmuDescription) -> Self {
        let PmuDescription { slots, width_bits, overflow, .. } = *description;
        let caps = PmuCaps { slots, width_bits, delegated: Delegated::empty(), overflow };
        Self { caps, counts: description.counts.clone(), lie: AtomicU8::new(NO_LIE) }
    }

    /// From now on it says what is not so, or not any more.
    pub(super) fn inject(&self, injected: Option<InjectedFault>) {
        self.lie.store(injected.map_or(NO_LIE, |lie| lie as u8), Relaxed);
    }

    fn says(&self, lie: InjectedFault) -> bool {
        self.lie.load(Relaxed) == lie as u8
    }
}

impl PmuModel for SimPmu {
    fn caps(&self) -> &PmuCaps {
        &self.caps
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        let allowed = match (&self.counts, CountedEvent::of(attr)) {
            (Counts::Kinds(kinds), Some(CountedEvent::Kind(kind))) => {
                kinds.iter().find(|(other, _)| *other == kind).map(|&(_, mask)| mask).filter(|mask| !mask.is_empty())
            }
            (Counts::Accesses { execute, data }, Some(CountedEvent::Access(watch))) => {
                let any_length = self.says(InjectedFault::TakeAnyLength);
                let watch = if any_length { Watchpoint { len_bytes: 1, ..watch } } else { watch };
                registers(watch, *execute, *data)?
            }
            _ => None,
        };
        // Where there are no debug registers, that is for their ledger to say.
        let allowed = allowed.ok_or(ParseError::NoSuchEvent)?;
        // Counters that are scarce take samples; the others count only.
        let samples = period_of(attr).ok_or(ParseError::NotSupported)? > 0;
        if samples && !(matches!(self.counts, Counts::Kinds(_)) && self.caps.slots != Slots::Plenty) {
            return Err(ParseError::NotSupported);
        }
        let allowed = if self.caps.slots == Slots::Plenty { SlotMask::ALL } else { allowed };
        let claim = matches!(self.counts, Counts::Accesses { .. }).then(|| Claim::one(watched(attr)));
        Ok(EventSpec { pmu, attr: *attr, allowed, claim, cred: Cred::HOST })
    }

    fn share_key(&self, attr: &Attr) -> Option<Attr> {
        let counted = canonical(attr).filter(|_| !self.says(InjectedFault::ShareNothing))?;
        if self.says(InjectedFault::ConfuseQuestions) {
            return Some(Attr { config: 0, ..counted });
        }
        Some(counted)
    }

    fn share_key_of_records(&self, attr: &Attr) -> Option<Attr> {
        self.share_key(&counting_part(attr))?;
        // The name of an event is none of its records' affair.
        canonical_of_records(&Attr { sig_data: 0, ..*attr })
    }

    fn place(&self, wanted: &[SlotMask], used: SlotMask, out: &mut [Slot]) -> bool {
        let Slots::Scarce(count) = self.caps.slots else { return true };
        let hidden = usize::from(self.says(InjectedFault::HideACounter));
        if wanted.len() + used.len() as usize + hidden > usize::from(count) {
            return false;
        }
        place_on_allowed(wanted, used, count, out)
    }
}

fn watched(attr: &Attr) -> BreakpointKind {
    if attr.bp_type & breakpoint::X != 0 { BreakpointKind::Execute } else { BreakpointKind::Data }
}

/// The debug registers of a machine, as the engine keeps account of them: no other code hands any out.
pub(super) fn debug_registers(machine: &Description) -> Option<DebugRegisters> {
    let count = |mask: SlotMask| u8::try_from(mask.len()).unwrap_or(u8::MAX);
    let registers = machine.pmus.iter().find_map(|pmu| match pmu.counts {
        Counts::Accesses { execute, data } if execute == data => Some(PerCpu::Shared(count(data))),
        Counts::Accesses { execute, data } => Some(PerCpu::Separate { execute: count(execute), data: count(data) }),
        Counts::Kinds(_) => None,
    })?;
    Some(DebugRegisters { registers, cpus: machine.cpus, authority: Authority::Ledger })
}

fn registers(watch: Watchpoint, execute: SlotMask, data: SlotMask) -> Result<Option<SlotMask>, ParseError> {
    let (for_code, for_data) = (watch.bp_type & breakpoint::X != 0, watch.bp_type & breakpoint::RW != 0);
    let length_can_be = watch.len_bytes.is_power_of_two() && watch.len_bytes <= breakpoint::MAX_LEN;
    match (for_code, for_data) {
        _ if !length_can_be => Err(ParseError::NotSupported),
        (true, true) => Err(ParseError::NotSupported),
        (true, false) => Ok(Some(execute)),
        (false, true) => Ok(Some(data)),
        (false, false) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::profiles;
    use super::*;
    use pmux_abi::attr::{SampleFormat, Sampling};

    #[test]
    fn breakpoints_ask_for_registers_of_their_sort() {
        let machine = profiles::arm_neoverse(1);
        let ask = |len, bp_type| {
            let (pmu, attr) = machine.breakpoint(0x1000, len, bp_type)?;
            Some(SimPmu::new(&machine.pmus[usize::from(pmu.0)]).parse(pmu, &attr).map(|spec| spec.allowed))
        };
        assert_eq!(ask(8, breakpoint::X), Some(Ok(SlotMask(0x3f))));
        assert_eq!(ask(4, breakpoint::RW), Some(Ok(SlotMask(0x3c0))));
        assert_eq!(ask(3, breakpoint::W), Some(Err(ParseError::NotSupported)));
        assert_eq!(ask(4, breakpoint::EMPTY), Some(Err(ParseError::NoSuchEvent)));
        assert_eq!(ask(4, breakpoint::W | breakpoint::X), Some(Err(ParseError::NotSupported)));
    }

    #[test]
    fn a_watchpoint_sees_its_bytes_only() {
        let watch = Watchpoint { address: 0x1000, len_bytes: 4, bp_type: breakpoint::W };
        assert!(watch.sees(0x1003, breakpoint::W) && !watch.sees(0x1004, breakpoint::W));
        assert!(!watch.sees(0xfff, breakpoint::W) && !watch.sees(0x1000, breakpoint::R));
    }

    #[test]
    fn counters_that_are_scarce_take_samples_by_period() {
        let machine = profiles::minimal(1);
        let refused = |name: &str, sampling, sample| {
            let Some((pmu, attr)) = machine.event(name) else { panic!("{name} is known") };
            let attr = Attr { sampling, sample, ..attr };
            SimPmu::new(&machine.pmus[usize::from(pmu.0)]).parse(pmu, &attr).err()
        };
        let no = Some(ParseError::NotSupported);
        assert_eq!(refused("cycles", Sampling::Period(1000), SampleFormat::TIME), None);
        assert_eq!(refused("cycles", Sampling::Frequency(1000), SampleFormat::TIME), no);
        assert_eq!(refused("cycles", Sampling::Period(1000), SampleFormat::CALLCHAIN), no);
        assert_eq!(refused("page-faults", Sampling::Period(1), SampleFormat::TIME), no);
    }
}
