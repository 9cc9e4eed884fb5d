//! The slots of one context.
//!
//! **Invariant:** a lease whose slot was given to another event reaches nothing.

use super::kernel_slots::KernelSlots;
use super::usage_slots::UsageSlots;
use super::{KERNEL, Shared};
use crate::procfs::Proc;
use pmux_engine::context::ContextKey;
use pmux_engine::pmu::{BankError, CounterBank, Lease, Program, SlotReading};
use std::sync::Arc;

/// The kernel fds and the usage files of one task or one CPU.
pub struct LinuxBank {
    kernel: KernelSlots,
    usage: UsageSlots,
}

impl LinuxBank {
    pub(super) fn new(key: ContextKey, shared: Arc<Shared>, proc: Proc) -> Self {
        Self { kernel: KernelSlots::new(key, Arc::clone(&shared)), usage: UsageSlots::new(key, shared, proc) }
    }
}

impl CounterBank for LinuxBank {
    fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        match lease.pmu {
            KERNEL => self.kernel.program(lease, program),
            _ => self.usage.program(lease, program),
        }
    }

    fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        match lease.pmu {
            KERNEL => self.kernel.start(lease),
            _ => self.usage.start(lease),
        }
    }

    fn stop(&mut self, lease: Lease) {
        match lease.pmu {
            KERNEL => self.kernel.stop(lease),
            _ => self.usage.stop(lease),
        }
    }

    fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        match lease.pmu {
            KERNEL => self.kernel.read(lease),
            _ => self.usage.read(lease),
        }
    }

    fn read_group(&mut self, leases: &[Lease], out: &mut [SlotReading]) -> Result<(), BankError> {
        if leases.iter().all(|lease| lease.pmu == KERNEL) {
            return self.kernel.read_group(leases, out);
        }
        for (lease, out) in leases.iter().zip(out) {
            *out = self.read(*lease)?;
        }
        Ok(())
    }

    fn release(&mut self, lease: Lease) {
        match lease.pmu {
            KERNEL => self.kernel.release(lease),
            _ => self.usage.release(lease),
        }
    }
}
