//! The slots of one context.
//!
//! **Invariant:** a lease whose slot was given to another event reaches nothing.

use super::kernel_slots::KernelSlots;
use super::opener::Opener;
use super::scarce::ScarceSlots;
use super::usage_slots::UsageSlots;
use super::{KERNEL, Shared, USAGE};
use crate::procfs::Proc;
use pmux_engine::context::{ContextKey, MemberKey};
use pmux_engine::pmu::{BankError, CounterBank, Lease, Program, SlotReading};
use std::sync::Arc;

/// The kernel fds and the usage files of one task or one CPU: a PMU of each kind for the engine.
pub struct LinuxBank {
    kernel: KernelSlots,
    usage: UsageSlots,
    scarce: ScarceSlots,
}

impl LinuxBank {
    pub(super) fn new(key: ContextKey, shared: Arc<Shared>, proc: Proc) -> Self {
        let opener = || Opener { key, shared: Arc::clone(&shared) };
        let (kernel, scarce) = (KernelSlots::new(opener()), ScarceSlots::new(opener()));
        Self { kernel, scarce, usage: UsageSlots::new(key, shared, proc) }
    }
}

impl CounterBank for LinuxBank {
    fn prepare(&mut self, leader: MemberKey, program: &Program) -> Result<(), BankError> {
        self.scarce.prepare(leader, program)
    }

    fn dismiss(&mut self, event: MemberKey) {
        self.scarce.dismiss(event);
    }

    fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        match lease.pmu {
            KERNEL => self.kernel.program(lease, program),
            USAGE => self.usage.program(lease, program),
            _ => self.scarce.program(lease, program),
        }
    }

    fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        match lease.pmu {
            KERNEL => self.kernel.start(lease),
            USAGE => self.usage.start(lease),
            _ => self.scarce.start(lease),
        }
    }

    fn stop(&mut self, lease: Lease) {
        match lease.pmu {
            KERNEL => self.kernel.stop(lease),
            USAGE => self.usage.stop(lease),
            _ => self.scarce.stop(lease),
        }
    }

    fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        match lease.pmu {
            KERNEL => self.kernel.read(lease),
            USAGE => self.usage.read(lease),
            _ => self.scarce.read(lease),
        }
    }

    fn read_group(&mut self, leases: &[Lease], out: &mut [SlotReading]) -> Result<(), BankError> {
        if leases.iter().all(|lease| lease.pmu == KERNEL) {
            return self.kernel.read_group(leases, out);
        }
        if leases.iter().all(|lease| !matches!(lease.pmu, KERNEL | USAGE)) {
            return self.scarce.read_group(leases, out);
        }
        for (lease, out) in leases.iter().zip(out) {
            *out = self.read(*lease)?;
        }
        Ok(())
    }

    fn release(&mut self, lease: Lease) {
        match lease.pmu {
            KERNEL => self.kernel.release(lease),
            USAGE => self.usage.release(lease),
            _ => self.scarce.release(lease),
        }
    }
}
