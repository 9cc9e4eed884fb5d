//! The slots of one context.
//!
//! **Invariant:** a lease whose slot was given to another event reaches nothing.

use super::kernel_slots::KernelSlots;
use super::opener::EventOpener;
use super::scarce::ScarceSlots;
use super::served::ServedSlots;
use super::usage_slots::UsageSlots;
use super::watching::{WatchPmus, WatchSlots};
use super::{KERNEL, Shared, USAGE, lock};
use crate::procfs::Proc;
use pmux_abi::attr::Attr;
use pmux_engine::Cred;
use pmux_engine::pmu::{BankError, CounterBank, Lease, Program, SlotReading};
use pmux_engine::target::{ContextKey, EventKey};
use std::sync::Arc;

/// Calls a function of the slots that a lease is of.
macro_rules! of_slots {
    ($bank:ident, $function:ident, $lease:ident) => {
        match $lease.pmu {
            KERNEL => match $bank.served($lease) {
                Some(served) => served.$function($lease),
                None => $bank.kernel().$function($lease),
            },
            USAGE => $bank.usage().$function($lease),
            pmu if WatchPmus::has(pmu) => $bank.watched().$function($lease),
            _ => $bank.scarce().$function($lease),
        }
    };
}

/// The kernel fds and the usage files of one task or one CPU: a PMU of each kind for the engine.
///
/// There may be thousands, and most need one kind only: each is made when it is used.
pub struct LinuxBank {
    opener: EventOpener,
    kernel: Option<Box<KernelSlots>>,
    served: Option<Box<ServedSlots>>,
    watched: Option<WatchSlots>,
    scarce: Option<Box<ScarceSlots>>,
    usage: Option<Box<UsageSlots>>,
}

impl LinuxBank {
    pub(super) fn new(key: ContextKey, shared: Arc<Shared>) -> Self {
        let opener = EventOpener { key, shared };
        Self { opener, kernel: None, served: None, watched: None, scarce: None, usage: None }
    }

    fn kernel(&mut self) -> &mut KernelSlots {
        self.kernel.get_or_insert_with(|| Box::new(KernelSlots::new(self.opener.clone())))
    }

    /// The slots that a service keeps, if this is one of them.
    fn served(&mut self, lease: Lease) -> Option<&mut ServedSlots> {
        self.served.as_deref_mut().filter(|served| served.has(lease))
    }

    fn watched(&mut self) -> &mut WatchSlots {
        self.watched.get_or_insert_with(|| WatchSlots::new(self.opener.clone()))
    }

    fn scarce(&mut self) -> &mut ScarceSlots {
        self.scarce.get_or_insert_with(|| Box::new(ScarceSlots::new(self.opener.clone())))
    }

    fn usage(&mut self) -> &mut UsageSlots {
        let EventOpener { key, shared } = &self.opener;
        self.usage.get_or_insert_with(|| Box::new(UsageSlots::new(*key, Arc::clone(shared), Proc::system())))
    }

    /// Changes what an open breakpoint of [`KERNEL`] waits for: `watched` says the kind of access, the address and the
    /// length. Where that is refused it stays as it was. Whether it counts stays; what happens in between is missed.
    ///
    /// # Errors
    /// [`BankError::SlotsExhausted`] where no register is left for another kind; [`BankError::Invalid`] for what the
    /// machine can't watch; [`BankError::NotSupported`] for what is no breakpoint.
    pub fn modify(&mut self, lease: Lease, watched: &Attr) -> Result<(), BankError> {
        match lease.pmu {
            KERNEL => match self.served(lease) {
                Some(served) => served.modify(lease, watched),
                None => self.kernel().modify(lease, watched),
            },
            _ => Err(BankError::NotSupported),
        }
    }
}

impl CounterBank for LinuxBank {
    fn prepare(&mut self, leader: EventKey, program: &Program) -> Result<(), BankError> {
        self.scarce().prepare(leader, program)
    }

    fn dismiss(&mut self, event: EventKey) {
        self.scarce().dismiss(event);
    }

    fn announce(&mut self, programs: &[Program]) {
        if self.served.is_some() || !self.opener.shared.sharing.is_off() {
            let opener = &self.opener;
            self.served.get_or_insert_with(|| Box::new(ServedSlots::new(opener.clone()))).announce(programs);
        }
    }

    fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        match lease.pmu {
            KERNEL => match self.served.as_deref_mut().and_then(|served| served.program(lease, program)) {
                Some(served) => served,
                None => self.kernel().program(lease, program),
            },
            // These have no way to ask the kernel with other credentials than ours.
            pmu if (pmu == USAGE || WatchPmus::has(pmu)) && program.spec.cred != Cred::HOST => {
                Err(BankError::NotSupported)
            }
            USAGE => self.usage().program(lease, program),
            pmu if WatchPmus::has(pmu) => self.watched().program(lease, program),
            _ => self.scarce().program(lease, program),
        }
    }

    fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        of_slots!(self, start, lease)
    }

    fn stop(&mut self, lease: Lease) {
        of_slots!(self, stop, lease);
    }

    fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        match lease.pmu {
            KERNEL => match self.served.as_deref_mut().and_then(|served| served.read(lease)) {
                Some(served) => served,
                None => self.kernel().read(lease),
            },
            USAGE => self.usage().read(lease),
            pmu if WatchPmus::has(pmu) => self.watched().read(lease),
            _ => self.scarce().read(lease),
        }
    }

    fn read_group(&mut self, leases: &[Lease], out: &mut [SlotReading]) -> Result<(), BankError> {
        if let Some(served) = self.served.as_deref_mut().and_then(|served| served.read_group(leases, out)) {
            return served;
        }
        if leases.iter().all(|lease| lease.pmu == KERNEL) {
            return self.kernel().read_group(leases, out);
        }
        if leases.iter().all(|lease| !matches!(lease.pmu, KERNEL | USAGE) && !WatchPmus::has(lease.pmu)) {
            return self.scarce().read_group(leases, out);
        }
        for (lease, out) in leases.iter().zip(out) {
            *out = self.read(*lease)?;
        }
        Ok(())
    }

    fn may_have_heirs(&mut self, lease: Lease) -> bool {
        lease.pmu != KERNEL || self.kernel.as_ref().is_none_or(|kernel| kernel.may_have_heirs(lease))
    }

    fn has_ended(&mut self, lease: Lease) -> bool {
        match lease.pmu {
            KERNEL => self.kernel.as_ref().is_some_and(|kernel| kernel.has_ended(lease)),
            pmu if pmu == USAGE || WatchPmus::has(pmu) => false,
            _ => self.scarce.as_mut().is_some_and(|scarce| scarce.has_ended(lease)),
        }
    }

    fn modify(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        Self::modify(self, lease, &program.spec.attr)
    }

    fn release(&mut self, lease: Lease) {
        of_slots!(self, release, lease);
    }
}

impl Drop for LinuxBank {
    /// No caller asks for this task any more; its number may be another one's later.
    fn drop(&mut self) {
        if let ContextKey::Task(task) = self.opener.key {
            lock(&self.opener.shared.finals).remove(&task);
            lock(&self.opener.shared.begun).remove(&task);
        }
    }
}
