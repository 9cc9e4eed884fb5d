//! The machine as the engine's host.
//!
//! **Invariant:** the machine's own lock is never held while the engine is called.

use super::Machine;
use super::bank::Bank;
use super::faults::InjectedFault;
use super::locks::{Allowed, SimLock, called, lock};
use super::model;
use super::state::PendingIrq;
use crate::machine::Reach;
use pmux_engine::hw_breakpoint::DebugRegisters;
use pmux_engine::pmu::{PmuModel, PmuTable};
use pmux_engine::ring_buffer::{HeapPages, OutOfMemory};
use pmux_engine::target::{ContextKey, Presence};
use pmux_engine::{CpuId, Host, Nanos, PmuId};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Where the code that checks is: it reaches everything, and no time passes.
pub(super) const OBSERVER: u32 = u32::MAX;

impl PmuTable for Machine {
    fn pmu(&self, pmu: PmuId) -> Option<&dyn PmuModel> {
        self.shared.pmus.get(usize::from(pmu.0)).map(|pmu| pmu as &dyn PmuModel)
    }
}

impl Host for Machine {
    type IrqLock<T: Send> = SimLock<T, true>;
    type TaskLock<T: Send> = SimLock<T, false>;
    type BankLock<T: Send> = SimLock<T, true>;
    type Bank = Bank;
    type Pages = HeapPages;

    fn alloc_ring(&self, data_bytes: usize) -> Result<HeapPages, OutOfMemory> {
        Ok(HeapPages::new(data_bytes / 8))
    }

    fn cpus(&self) -> u32 {
        self.shared.description.cpus
    }

    fn debug_registers(&self) -> Option<DebugRegisters> {
        called("debug_registers", Allowed::Turns);
        model::debug_registers(&self.shared.description)
    }

    fn now(&self) -> Nanos {
        called("the clock", Allowed::Bank);
        let now = self.shared.clock.load(Relaxed);
        if self.shared.jumps.load(Relaxed) {
            // Ahead at every look, and further each time.
            return Nanos(now + self.shared.jumped.fetch_add(1_000_000, Relaxed));
        }
        Nanos(now)
    }

    fn bank(&self, key: ContextKey) -> Bank {
        called("bank", Allowed::Turns);
        let index = lock(&self.shared.state).new_bank(key);
        Bank { shared: Arc::clone(&self.shared), index }
    }

    fn presence(&self, key: ContextKey) -> Presence {
        called("presence", Allowed::Turns);
        let state = lock(&self.shared.state);
        match key {
            ContextKey::Cpu(cpu) => {
                let online = state.cpus.get(cpu.0 as usize).is_some_and(|cpu| cpu.online && !cpu.going);
                if online { Presence::On(cpu) } else { Presence::Out }
            }
            ContextKey::Task(task) => state.task(task).and_then(|task| task.on).map_or(Presence::Out, Presence::On),
        }
    }

    fn near(&self, cpu: CpuId, f: &mut dyn FnMut()) {
        called("near", Allowed::Turns);
        let may_go = {
            let state = lock(&self.shared.state);
            !state.faults.stay_put && state.cpus.get(cpu.0 as usize).is_some_and(|cpu| cpu.online)
        };
        let everywhere = self.shared.description.reach == Reach::Everywhere;
        if may_go && !everywhere && self.shared.here.load(Relaxed) != OBSERVER {
            self.on_cpu(cpu, f);
        } else {
            f();
        }
    }

    fn reaches(&self, cpu: CpuId) -> bool {
        let here = self.shared.here.load(Relaxed);
        self.shared.description.reach == Reach::Everywhere || here == cpu.0 || here == OBSERVER
    }

    fn send_ipi(&self, cpu: CpuId) {
        called("kick", Allowed::Turns);
        let mut state = lock(&self.shared.state);
        if state.injected == Some(InjectedFault::DeafDoorbell) {
            return;
        }
        let least = self.shared.description.doorbell.0;
        let delay = least + state.random.u64(0..=least) + state.faults.doorbell_late;
        state.ring_later(PendingIrq::Doorbell(cpu), delay);
        if state.faults.doorbell_twice {
            let again = state.random.u64(0..=2 * least);
            state.ring_later(PendingIrq::Doorbell(cpu), delay + again);
        }
    }

    fn wait(&self, done: &mut dyn FnMut() -> bool) {
        called("wait", Allowed::Turns);
        self.pass_until_done(done);
    }
}

impl Machine {
    /// Runs `f` as if the caller were on a CPU.
    pub(super) fn on_cpu<R>(&self, cpu: CpuId, f: impl FnOnce() -> R) -> R {
        let before = self.shared.here.swap(cpu.0, Relaxed);
        let result = f();
        self.shared.here.store(before, Relaxed);
        result
    }
}
