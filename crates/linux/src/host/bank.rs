//! The slots of one context.
//!
//! **Invariant:** a lease whose slot was given to another event reaches nothing.

use super::kernel_slots::KernelSlots;
use super::opener::Opener;
use super::scarce::ScarceSlots;
use super::served::ServedSlots;
use super::usage_slots::UsageSlots;
use super::watching::WatchSlots;
use super::{KERNEL, Shared, USAGE};
use crate::procfs::Proc;
use pmux_abi::attr::Attr;
use pmux_engine::context::{ContextKey, MemberKey};
use pmux_engine::pmu::{BankError, CounterBank, Lease, Program, SlotReading};
use std::sync::Arc;

/// The kernel fds and the usage files of one task or one CPU: a PMU of each kind for the engine.
pub struct LinuxBank {
    kernel: KernelSlots,
    served: ServedSlots,
    usage: UsageSlots,
    scarce: ScarceSlots,
    watched: WatchSlots,
}

impl LinuxBank {
    pub(super) fn new(key: ContextKey, shared: Arc<Shared>, proc: Proc) -> Self {
        let opener = || Opener { key, shared: Arc::clone(&shared) };
        let (kernel, scarce) = (KernelSlots::new(opener()), ScarceSlots::new(opener()));
        let (watched, served) = (WatchSlots::new(opener()), ServedSlots::new(opener()));
        Self { kernel, served, scarce, watched, usage: UsageSlots::new(key, shared, proc) }
    }

    /// Changes what an open breakpoint of [`KERNEL`] waits for: `watched` says the kind of access, the address and the
    /// length. Where that is refused it stays as it was. Whether it counts stays; what happens in between is missed.
    ///
    /// # Errors
    /// [`BankError::SlotsExhausted`] where no register is left for another kind; [`BankError::Invalid`] for what the
    /// machine can't watch; [`BankError::NotSupported`] for what is no breakpoint.
    pub fn modify(&mut self, lease: Lease, watched: &Attr) -> Result<(), BankError> {
        match lease.pmu {
            KERNEL if self.served.has(lease) => self.served.modify(lease, watched),
            KERNEL => self.kernel.modify(lease, watched),
            _ => Err(BankError::NotSupported),
        }
    }
}

impl CounterBank for LinuxBank {
    fn prepare(&mut self, leader: MemberKey, program: &Program) -> Result<(), BankError> {
        self.scarce.prepare(leader, program)
    }

    fn dismiss(&mut self, event: MemberKey) {
        self.scarce.dismiss(event);
    }

    fn announce(&mut self, programs: &[Program]) {
        self.served.announce(programs);
    }

    fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        match lease.pmu {
            KERNEL => match self.served.program(lease, program) {
                Some(served) => served,
                None => self.kernel.program(lease, program),
            },
            USAGE => self.usage.program(lease, program),
            pmu if WatchSlots::has(pmu) => self.watched.program(lease, program),
            _ => self.scarce.program(lease, program),
        }
    }

    fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        match lease.pmu {
            KERNEL if self.served.has(lease) => self.served.start(lease),
            KERNEL => self.kernel.start(lease),
            USAGE => self.usage.start(lease),
            pmu if WatchSlots::has(pmu) => self.watched.start(lease),
            _ => self.scarce.start(lease),
        }
    }

    fn stop(&mut self, lease: Lease) {
        match lease.pmu {
            KERNEL if self.served.has(lease) => self.served.stop(lease),
            KERNEL => self.kernel.stop(lease),
            USAGE => self.usage.stop(lease),
            pmu if WatchSlots::has(pmu) => self.watched.stop(lease),
            _ => self.scarce.stop(lease),
        }
    }

    fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        match lease.pmu {
            KERNEL if self.served.has(lease) => self.served.read(lease),
            KERNEL => self.kernel.read(lease),
            USAGE => self.usage.read(lease),
            pmu if WatchSlots::has(pmu) => self.watched.read(lease),
            _ => self.scarce.read(lease),
        }
    }

    fn read_group(&mut self, leases: &[Lease], out: &mut [SlotReading]) -> Result<(), BankError> {
        if leases.iter().all(|lease| lease.pmu == KERNEL) {
            if let Some(served) = self.served.read_group(leases, out) {
                return served;
            }
            return self.kernel.read_group(leases, out);
        }
        if leases.iter().all(|lease| !matches!(lease.pmu, KERNEL | USAGE) && !WatchSlots::has(lease.pmu)) {
            return self.scarce.read_group(leases, out);
        }
        for (lease, out) in leases.iter().zip(out) {
            *out = self.read(*lease)?;
        }
        Ok(())
    }

    fn may_have_heirs(&mut self, lease: Lease) -> bool {
        lease.pmu != KERNEL || self.kernel.may_have_heirs(lease)
    }

    fn modify(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        Self::modify(self, lease, &program.spec.attr)
    }

    fn release(&mut self, lease: Lease) {
        match lease.pmu {
            KERNEL if self.served.has(lease) => self.served.release(lease),
            KERNEL => self.kernel.release(lease),
            USAGE => self.usage.release(lease),
            pmu if WatchSlots::has(pmu) => self.watched.release(lease),
            _ => self.scarce.release(lease),
        }
    }
}
