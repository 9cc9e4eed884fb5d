//! Machines that exist, as far as their counters go.
//!
//! **Invariant:** plain functions of the number of CPUs; code that wants another machine changes the data.

use super::describe::{Description, PmuDescription, Reach, Trace};
use super::kind::Kind;
use pmux_engine::Nanos;
use pmux_engine::pmu::OverflowBy;

/// A machine around one hardware PMU: software events and four debug registers beside it, a tick each millisecond.
#[must_use]
pub fn around(cpus: u32, hardware: PmuDescription) -> Description {
    Description {
        cpus,
        pmus: vec![hardware, PmuDescription::software(), PmuDescription::breakpoints(4)],
        tick: Nanos(1_000_000),
        reach: Reach::Everywhere,
        doorbell: Nanos(2_000),
        nmi: Nanos(500),
        trace: Trace::Off,
    }
}

/// Two counters of 32 bits.
#[must_use]
pub fn minimal(cpus: u32) -> Description {
    around(cpus, PmuDescription::hardware("cpu", 2, 32, OverflowBy::Interrupt))
}

/// Four general counters of 48 bits and three fixed ones; NMIs.
#[must_use]
pub fn intel_skylake(cpus: u32) -> Description {
    let pmu = PmuDescription::hardware("cpu", 4, 48, OverflowBy::Nmi);
    around(cpus, pmu.with_fixed(Kind::INSTRUCTIONS).with_fixed(Kind::CYCLES).with_fixed(Kind::REF_CYCLES))
}

/// Six general counters of 48 bits; NMIs.
#[must_use]
pub fn amd_zen(cpus: u32) -> Description {
    around(cpus, PmuDescription::hardware("cpu", 6, 48, OverflowBy::Nmi))
}

/// Six general counters and one for cycles, separate debug registers for code and for data; interrupts.
///
/// All counters have 32 bits here: a PMU has one width, and the cycle counter's upper half is not needed.
#[must_use]
pub fn arm_neoverse(cpus: u32) -> Description {
    let pmu = PmuDescription::hardware("armv8_pmuv3", 6, 32, OverflowBy::Interrupt).with_fixed(Kind::CYCLES);
    let mut machine = around(cpus, pmu);
    machine.pmus[2] = PmuDescription::separate_breakpoints(6, 4);
    machine
}

/// The virtual machine of `lab/`: four CPUs, the counters of [`arm_neoverse`].
#[must_use]
pub fn lab() -> Description {
    arm_neoverse(4)
}

/// The names that [`by_name`] knows.
pub const NAMES: [&str; 5] = ["minimal", "intel-skylake", "amd-zen", "arm-neoverse", "lab"];

/// A machine by name. The lab has four CPUs unless it is told otherwise, like any other.
#[must_use]
pub fn by_name(name: &str, cpus: u32) -> Option<Description> {
    Some(match name {
        "minimal" => minimal(cpus),
        "intel-skylake" => intel_skylake(cpus),
        "amd-zen" => amd_zen(cpus),
        "arm-neoverse" | "lab" => arm_neoverse(cpus),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_can_be_and_knows_cycles() {
        for name in NAMES {
            let machine = by_name(name, 256);
            assert!(machine.is_some_and(|it| it.check().is_ok() && it.event("cycles").is_some()), "{name}");
        }
        assert!(by_name("vax", 1).is_none());
    }
}
