//! A machine as data.
//!
//! What it is: how many CPUs, which PMUs with which counters, how they tell that they wrapped, how far a caller reaches.
//! Read first: [`Description`], then [`PmuDescription`]; machines that exist are in [`super::profiles`].
//!
//! **Invariant:** plain data. What can't be is refused by [`Description::check`], before there is a machine.

use super::kind::Kind;
use pmux_abi::attr::{Attr, EventType, breakpoint};
use pmux_engine::pmu::{OverflowBy, SlotMask, Slots};
use pmux_engine::{Nanos, PmuId};
use std::fmt;

/// The most CPUs that a machine can have.
pub const MAX_CPUS: u32 = 1024;

/// A machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// How many CPUs, 1 to [`MAX_CPUS`]; all are online at first.
    pub cpus: u32,
    /// The PMUs, by number. The first that knows an event gets it.
    pub pmus: Vec<PmuDescription>,
    /// From one tick of a CPU's timer to the next.
    pub tick: Nanos,
    /// Which registers a caller reaches from where it is.
    pub reach: Reach,
    /// How long a doorbell takes to ring, at least; it takes up to twice as long, by chance.
    pub doorbell: Nanos,
    /// How long it takes from an interrupt that can't be held off until a lock may be taken.
    pub nmi: Nanos,
    /// Whether it is written down which event held which counter when.
    pub trace: Trace,
}

/// Which registers a caller reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Those of every CPU.
    Everywhere,
    /// Those of the CPU that it is on. For the others it rings doorbells, and waits.
    OwnCpu,
}

/// Whether a timeline is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trace {
    /// None.
    Off,
    /// From the first event to the last; it grows as long as the machine runs.
    On,
}

/// A PMU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PmuDescription {
    /// Its name.
    pub name: String,
    /// Its counters.
    pub slots: Slots,
    /// Bits of a counter, 1 to 64; 64 where counters are plenty.
    pub width_bits: u8,
    /// How its overflows are learnt.
    pub overflow: OverflowBy,
    /// What it counts.
    pub counts: Counts,
}

/// What a PMU counts, and on which of its counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Counts {
    /// These kinds, each on these counters.
    Kinds(Vec<(Kind, SlotMask)>),
    /// Accesses to addresses: debug registers.
    Accesses {
        /// The registers that watch code.
        execute: SlotMask,
        /// The registers that watch data.
        data: SlotMask,
    },
}

impl PmuDescription {
    /// A hardware PMU with so many general counters, each of which takes any hardware event.
    #[must_use]
    pub fn hardware(name: &str, general: u8, width_bits: u8, overflow: OverflowBy) -> Self {
        let all = SlotMask::first(general);
        let counts = Counts::Kinds(Kind::hardware().map(|kind| (kind, all)).collect());
        Self { name: name.to_owned(), slots: Slots::Scarce(general), width_bits, overflow, counts }
    }

    /// The events that the kernel counts itself: as many as wanted.
    #[must_use]
    pub fn software() -> Self {
        let counts = Counts::Kinds(Kind::software().map(|kind| (kind, SlotMask::ALL)).collect());
        let (slots, overflow) = (Slots::Plenty, OverflowBy::Interrupt);
        Self { name: "software".to_owned(), slots, width_bits: 64, overflow, counts }
    }

    /// Debug registers, each for code or for data.
    #[must_use]
    pub fn breakpoints(registers: u8) -> Self {
        let all = SlotMask::first(registers);
        Self::debug_registers(registers, all, all)
    }

    /// Debug registers, some for code and some for data.
    #[must_use]
    pub fn separate_breakpoints(execute: u8, data: u8) -> Self {
        let all = execute.saturating_add(data);
        let code = SlotMask::first(execute);
        Self::debug_registers(all, code, SlotMask(SlotMask::first(all).0 & !code.0))
    }

    fn debug_registers(registers: u8, execute: SlotMask, data: SlotMask) -> Self {
        let counts = Counts::Accesses { execute, data };
        let (slots, overflow) = (Slots::Scarce(registers), OverflowBy::Interrupt);
        Self { name: "breakpoint".to_owned(), slots, width_bits: 64, overflow, counts }
    }

    /// With one more counter, which takes this event and no other; the event may still go on the counters that it had.
    #[must_use]
    pub fn with_fixed(mut self, kind: Kind) -> Self {
        if let Slots::Scarce(count) = self.slots {
            let more = count.saturating_add(1);
            self.slots = Slots::Scarce(more);
            self.allow(kind, |mask| SlotMask(mask.0 | SlotMask::first(more).0 & !SlotMask::first(count).0));
        }
        self
    }

    /// With one event on fewer of its counters than others.
    #[must_use]
    pub fn with_constraint(mut self, kind: Kind, on: SlotMask) -> Self {
        self.allow(kind, |mask| SlotMask(mask.0 & on.0));
        self
    }

    fn allow(&mut self, kind: Kind, change: impl FnOnce(SlotMask) -> SlotMask) {
        let Counts::Kinds(kinds) = &mut self.counts else { return };
        if let Some((_, mask)) = kinds.iter_mut().find(|(other, _)| *other == kind) {
            *mask = change(*mask);
        } else {
            kinds.push((kind, change(SlotMask::default())));
        }
    }

    /// How many occurrences a counter holds; `None` where it never wraps.
    #[must_use]
    pub const fn capacity(&self) -> Option<u64> {
        if self.width_bits >= 64 { None } else { Some(1 << self.width_bits) }
    }
}

/// What is done at an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// It is executed.
    Execute,
}

impl Access {
    /// The bit of `bp_type` that asks for it.
    #[must_use]
    pub const fn bp_type(self) -> u32 {
        match self {
            Self::Read => breakpoint::R,
            Self::Write => breakpoint::W,
            Self::Execute => breakpoint::X,
        }
    }
}

impl Description {
    /// An event by one of its names, and the PMU that takes it.
    #[must_use]
    pub fn event(&self, name: &str) -> Option<(PmuId, Attr)> {
        self.kind(Kind::by_name(name)?)
    }

    /// An event by its kind, and the PMU that takes it.
    #[must_use]
    pub fn kind(&self, kind: Kind) -> Option<(PmuId, Attr)> {
        let takes = |pmu: &PmuDescription| match &pmu.counts {
            Counts::Kinds(kinds) => kinds.iter().any(|&(other, mask)| other == kind && !mask.is_empty()),
            Counts::Accesses { .. } => false,
        };
        let pmu = self.pmus.iter().position(takes)?;
        let (event_type, config) = kind.as_config();
        Some((PmuId(pmu as u16), Attr { kind: event_type, config, ..Attr::default() }))
    }

    /// A breakpoint on `len_bytes` from `address`, for the accesses of `bp_type` (bits of [`breakpoint`]), and the PMU that
    /// takes it; that says itself what it thinks of such a length.
    #[must_use]
    pub fn breakpoint(&self, address: u64, len_bytes: u64, bp_type: u32) -> Option<(PmuId, Attr)> {
        let pmu = self.pmus.iter().position(|pmu| matches!(pmu.counts, Counts::Accesses { .. }))?;
        let attr =
            Attr { kind: EventType::BREAKPOINT, bp_type, config1: address, config2: len_bytes, ..Attr::default() };
        Some((PmuId(pmu as u16), attr))
    }

    /// Says what can't be.
    ///
    /// # Errors
    /// In this order: the CPUs, the times, then PMU by PMU the number of counters, their width, and the counters that its
    /// events may have.
    pub fn check(&self) -> Result<(), DescriptionError> {
        if !(1..=MAX_CPUS).contains(&self.cpus) {
            return Err(DescriptionError::Cpus(self.cpus));
        }
        if self.tick == Nanos::ZERO {
            return Err(DescriptionError::NoTick);
        }
        for pmu in &self.pmus {
            let named = || pmu.name.clone();
            let narrowest = match pmu.slots {
                Slots::Scarce(count) if count > 64 => return Err(DescriptionError::Counters(named(), count)),
                Slots::Scarce(_) => 1,
                Slots::Plenty => 64,
            };
            if !(narrowest..=64).contains(&pmu.width_bits) {
                return Err(DescriptionError::Width(named(), pmu.width_bits));
            }
            let Slots::Scarce(count) = pmu.slots else { continue };
            let beyond = |mask: SlotMask| mask.0 & !SlotMask::first(count).0 != 0;
            let bad = match &pmu.counts {
                Counts::Kinds(kinds) => kinds.iter().any(|&(_, mask)| beyond(mask)),
                Counts::Accesses { execute, data } => beyond(*execute) || beyond(*data),
            };
            if bad {
                return Err(DescriptionError::Mask(named(), count));
            }
        }
        Ok(())
    }

    /// Within how many nanoseconds the engine learns that a counter of a PMU wrapped.
    pub fn notice(&self, pmu: &PmuDescription) -> u64 {
        match pmu.overflow {
            OverflowBy::Interrupt => 1,
            OverflowBy::Nmi => self.nmi.0 + 1,
            OverflowBy::Poll => self.tick.0 + 1,
        }
    }
}

/// Why there can't be such a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DescriptionError {
    /// Too few or too many CPUs.
    Cpus(u32),
    /// Time between ticks is needed.
    NoTick,
    /// A PMU has too many counters.
    Counters(String, u8),
    /// A PMU has counters of an impossible width.
    Width(String, u8),
    /// An event of a PMU is to go on a counter that this does not have; it has so many.
    Mask(String, u8),
    /// So much of a kind happens that a PMU's counters wrap twice before they can be read.
    TooFast(String, Kind),
}

impl fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus(cpus) => write!(f, "a machine of {cpus} CPUs; it can have 1 to {MAX_CPUS}"),
            Self::NoTick => f.write_str("ticks that follow one another at once; give them a distance in time"),
            Self::Counters(pmu, count) => write!(f, "PMU {pmu} has {count} counters; 64 is the most"),
            Self::Width(pmu, bits) => {
                write!(f, "counters of {bits} bits on PMU {pmu}; 1 to 64 can be, and 64 where they are plenty")
            }
            Self::Mask(pmu, count) => {
                write!(f, "an event of PMU {pmu} is to go on a counter beyond the {count} that there are")
            }
            Self::TooFast(pmu, kind) => write!(
                f,
                "{kind} happens so often that a counter of PMU {pmu} would wrap twice before it is read: make the counters \
                 wider, the ticks closer, or the rate lower"
            ),
        }
    }
}

impl std::error::Error for DescriptionError {}

#[cfg(test)]
mod tests {
    use super::super::profiles;
    use super::*;

    #[test]
    fn a_fixed_counter_takes_its_own_event_and_no_other() {
        let pmu = PmuDescription::hardware("cpu", 4, 48, OverflowBy::Interrupt)
            .with_fixed(Kind::INSTRUCTIONS)
            .with_fixed(Kind::CYCLES)
            .with_constraint(Kind::REF_CYCLES, SlotMask(0b11));
        let Counts::Kinds(kinds) = &pmu.counts else { panic!("a hardware PMU counts kinds") };
        let mask = |kind| kinds.iter().find(|(other, _)| *other == kind).map(|(_, mask)| mask.0);
        assert_eq!(mask(Kind::INSTRUCTIONS), Some(0b01_1111));
        assert_eq!(mask(Kind::CYCLES), Some(0b10_1111));
        assert_eq!(mask(Kind::REF_CYCLES), Some(0b11));
        assert_eq!(pmu.slots, Slots::Scarce(6));
    }

    #[test]
    fn separate_debug_registers_do_not_overlap() {
        let pmu = PmuDescription::separate_breakpoints(6, 4);
        assert_eq!(pmu.counts, Counts::Accesses { execute: SlotMask(0x3f), data: SlotMask(0x3c0) });
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = profiles::minimal(2);
        assert_eq!(good.check(), Ok(()));
        assert_eq!(Description { cpus: 0, ..good.clone() }.check(), Err(DescriptionError::Cpus(0)));
        assert_eq!(Description { tick: Nanos::ZERO, ..good.clone() }.check(), Err(DescriptionError::NoTick));
        let mut narrow = good.clone();
        narrow.pmus[1].width_bits = 32;
        assert_eq!(narrow.check(), Err(DescriptionError::Width("software".to_owned(), 32)));
        let mut wide = good;
        wide.pmus[0] = wide.pmus[0].clone().with_constraint(Kind::CYCLES, SlotMask::ALL);
        assert_eq!(wide.check(), Ok(()), "a constraint only takes counters away");
        wide.pmus[0].slots = Slots::Scarce(1);
        assert_eq!(wide.check(), Err(DescriptionError::Mask("cpu".to_owned(), 1)));
    }
}
