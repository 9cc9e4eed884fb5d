//! PMUv3 for the engine: which events there are, and the registers of a CPU.
//!
//! Linux: drivers/perf/arm_pmuv3.c.
//!
//! **Invariant:** the registers of a CPU are touched on that CPU only.

use crate::arch;
use crate::arch::pmu::{self, CPU_CYCLES, INST_RETIRED, Without};
use crate::host::{BREAKPOINTS, PMU, SOFTWARE};
use crate::hw_breakpoint;
use crate::software::Words;
use pmux_abi::attr::{Attr, AttrFlags, EventType, Sampling, hw};
use pmux_engine::pmu::{
    BankError, CounterBank, Delegated, EventSpec, Lease, OverflowBy, ParseError, PmuCaps, PmuModel, Program, SlotMask,
    SlotReading, SlotTime, Slots,
};
use pmux_engine::{CpuId, Cred, PmuId};

/// What can be counted.
pub struct Pmuv3 {
    caps: PmuCaps,
    counters: u32,
}

impl Pmuv3 {
    /// As this CPU has it: all are alike.
    pub fn new() -> Self {
        let counters = pmu::counters();
        let caps = PmuCaps {
            slots: Slots::Scarce(counters as u8 + 1),
            width_bits: pmu::width_bits(),
            delegated: Delegated::empty(),
            overflow: OverflowBy::Interrupt,
        };
        Self { caps, counters }
    }
}

/// The number of an event: of the generic ones, or its own.
fn event(attr: &Attr) -> Option<u64> {
    match (attr.kind, attr.config) {
        (EventType::HARDWARE, hw::CPU_CYCLES) => Some(CPU_CYCLES),
        (EventType::HARDWARE, hw::INSTRUCTIONS) => Some(INST_RETIRED),
        (EventType::RAW, event) => Some(event & 0xffff),
        _ => None,
    }
}

impl PmuModel for Pmuv3 {
    fn caps(&self) -> &PmuCaps {
        &self.caps
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        let event = event(attr).filter(|&event| pmu::has_event(event)).ok_or(ParseError::NoSuchEvent)?;
        if attr.sampling != Sampling::default() {
            return Err(ParseError::NotSupported);
        }
        // Cycles have a counter of their own, and may be on each other one.
        let last = self.counters + u32::from(event == CPU_CYCLES);
        let allowed = SlotMask((1 << last) - 1);
        Ok(EventSpec { pmu, attr: *attr, allowed, claim: None, cred: Cred::HOST })
    }
}

/// The counters and watchpoints of a CPU, and its software events. A task has software events of its own, and no others: it uses those
/// of the CPU that it is on.
pub struct Counters {
    cpu: Option<CpuId>,
    software: Words,
}

impl Counters {
    /// Those of a CPU, or of a task.
    pub fn new(cpu: Option<CpuId>, software: Words) -> Self {
        Self { cpu, software }
    }

    /// Touches registers, which are those of this CPU.
    fn on_cpu<R>(&self, work: impl FnOnce() -> R) -> R {
        assert_eq!(self.cpu.map(|cpu| cpu.0 as usize), Some(arch::cpu()), "counters of another CPU are touched");
        work()
    }
}

impl CounterBank for Counters {
    fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        if lease.pmu == SOFTWARE {
            self.software.program(lease.slot, program);
            return Ok(());
        }
        if lease.pmu == BREAKPOINTS {
            return self.on_cpu(|| hw_breakpoint::program(lease.slot, program));
        }
        let flags = program.spec.attr.flags;
        let without = Without {
            kernel: flags.contains(AttrFlags::EXCLUDE_KERNEL),
            user: flags.contains(AttrFlags::EXCLUDE_USER),
        };
        let event = event(&program.spec.attr).ok_or(BankError::NoSuchEvent)?;
        self.on_cpu(|| pmu::program(lease.slot.0, event, without, program.start));
        Ok(())
    }

    fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        match lease.pmu {
            SOFTWARE => self.software.start(lease.slot),
            BREAKPOINTS => self.on_cpu(|| hw_breakpoint::run(lease.slot, true)),
            _ => self.on_cpu(|| pmu::start(lease.slot.0)),
        }
        Ok(())
    }

    fn stop(&mut self, lease: Lease) {
        match lease.pmu {
            SOFTWARE => self.software.stop(lease.slot),
            BREAKPOINTS => self.on_cpu(|| hw_breakpoint::run(lease.slot, false)),
            _ => self.on_cpu(|| pmu::stop(lease.slot.0)),
        }
    }

    fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        let raw = match lease.pmu {
            SOFTWARE => self.software.value(lease.slot),
            BREAKPOINTS => self.on_cpu(|| hw_breakpoint::hits(lease.slot)),
            _ => self.on_cpu(|| pmu::value(lease.slot.0)),
        };
        Ok(SlotReading { raw, time: SlotTime::Whole })
    }

    fn take_overflows(&mut self, of: PmuId) -> SlotMask {
        SlotMask(if of == PMU { self.on_cpu(pmu::take_overflows) } else { 0 })
    }

    fn release(&mut self, lease: Lease) {
        match lease.pmu {
            SOFTWARE => self.software.release(lease.slot),
            BREAKPOINTS => self.on_cpu(|| hw_breakpoint::release(lease.slot)),
            _ => self.on_cpu(|| pmu::release(lease.slot.0)),
        }
    }
}
