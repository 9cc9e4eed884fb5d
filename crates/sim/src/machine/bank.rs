//! A bank as the engine holds it: the right to touch some of the machine's registers.
//!
//! **Invariant:** each call is one step of the machine, under its lock; what it means is in `registers`.

use super::Shared;
use super::faults::InjectedFault;
use super::host::OBSERVER;
use super::locks::{Allowed, SimLock, called, lock};
use pmux_engine::PmuId;
use pmux_engine::lock::{LockCell, Rank};
use pmux_engine::pmu::{BankError, CounterBank, Lease, Program, SlotMask, SlotReading};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The registers of a CPU, or what follows a task.
pub struct Bank {
    pub(super) shared: Arc<Shared>,
    pub(super) index: u32,
}

impl Bank {
    #[inline]
    fn with<R>(&self, call: &'static str, f: impl FnOnce(&mut super::state::State, u32) -> R) -> R {
        called(call, Allowed::Bank);
        let mut state = lock(&self.shared.state);
        let result = f(&mut state, self.index);
        let injected = state.injected;
        drop(state);
        if injected.is_some() {
            misbehave(injected);
        }
        result
    }
}

/// What a machine must not do with locks.
#[cold]
fn misbehave(injected: Option<InjectedFault>) {
    match injected {
        Some(InjectedFault::LockBackwards) => SimLock::<_, true>::ranked(Rank::Set, ()).with(|()| ()),
        Some(InjectedFault::CallUnderLock) => {
            SimLock::<_, true>::ranked(Rank::Context, ()).with(|()| called("a counter", Allowed::Bank));
        }
        _ => {}
    }
}

impl CounterBank for Bank {
    fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        self.with("program", |state, bank| state.program(bank, lease, program))
    }

    fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        self.with("start", |state, bank| state.start(bank, lease))
    }

    fn stop(&mut self, lease: Lease) {
        self.with("stop", |state, bank| state.stop(bank, lease));
    }

    fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        // Nothing goes wrong because of a check.
        let strikes = self.shared.here.load(Relaxed) != OBSERVER;
        self.with("read", |state, bank| state.read(bank, lease, strikes))
    }

    fn read_group(&mut self, leases: &[Lease], out: &mut [SlotReading]) -> Result<(), BankError> {
        let strikes = self.shared.here.load(Relaxed) != OBSERVER;
        self.with("read_group", |state, bank| state.read_group(bank, leases, out, strikes))
    }

    fn hand_over(&mut self, from: Lease, to: Lease) -> Result<SlotReading, BankError> {
        self.with("hand_over", |state, bank| state.hand_over(bank, from, to))
    }

    fn take_overflows(&mut self, pmu: PmuId) -> SlotMask {
        self.with("take_overflows", |state, bank| state.take_overflows(bank, pmu))
    }

    fn release(&mut self, lease: Lease) {
        self.with("release", |state, bank| state.release(bank, lease));
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        called("the drop of a bank", Allowed::Turns);
        lock(&self.shared.state).drop_bank(self.index);
    }
}
