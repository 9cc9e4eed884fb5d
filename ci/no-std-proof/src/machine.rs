//! The engine's host on one CPU without interrupts.
//!
//! What it is: every trait that the engine asks for, in the plainest way. A clock that ticks when it is looked at is also
//! the only counter.
//!
//! **Invariant:** no `unsafe` but in the lock, which a real kernel already has.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pmux_abi::attr::Attr;
use pmux_engine::pmu::{
    BankError, CounterBank, Delegated, EventSpec, Lease, OverflowBy, ParseError, PmuCaps, PmuModel, PmuTable, Program,
    SlotMask, SlotReading, SlotTime, Slots,
};
use pmux_engine::ring_buffer::{HeapPages, OutOfMemory};
use pmux_engine::target::{ContextKey, Presence};
use pmux_engine::{Cred, Host, LockCell, Nanos, PmuId};

/// The machine's only PMU.
pub(crate) const CLOCK_TICKS: PmuId = PmuId(0);

static TICKS: AtomicU64 = AtomicU64::new(0);

fn tick() -> u64 {
    TICKS.fetch_add(1, Ordering::Relaxed)
}

/// A spin lock.
pub(crate) struct SpinLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` lets one caller at a time reach the value, and a reference to it does not leave the closure.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T: Send> LockCell<T> for SpinLock<T> {
    fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // Pairs with the release below: a caller that takes the lock sees what its last holder wrote.
        while self.taken.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        // SAFETY: this caller has set `taken`; all other callers wait above until it is clear.
        let result = f(unsafe { &mut *self.value.get() });
        self.taken.store(false, Ordering::Release);
        result
    }
}

/// One register that counts the clock's ticks.
struct Ticks;

impl PmuModel for Ticks {
    fn caps(&self) -> &PmuCaps {
        const CAPS: PmuCaps = PmuCaps {
            slots: Slots::Scarce(1),
            width_bits: 32,
            delegated: Delegated::empty(),
            overflow: OverflowBy::Poll,
        };
        &CAPS
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        Ok(EventSpec { pmu, attr: *attr, allowed: SlotMask::ALL, claim: None, cred: Cred::HOST })
    }
}

/// The register of one context.
#[derive(Default)]
pub(crate) struct Register {
    value: u64,
    since: Option<u64>,
}

impl CounterBank for Register {
    fn program(&mut self, _: Lease, program: &Program) -> Result<(), BankError> {
        *self = Self { value: program.start, since: None };
        Ok(())
    }

    fn start(&mut self, _: Lease) -> Result<(), BankError> {
        self.since = Some(tick());
        Ok(())
    }

    fn stop(&mut self, _: Lease) {
        if let Some(since) = self.since.take() {
            self.value += tick() - since;
        }
    }

    fn read(&mut self, _: Lease) -> Result<SlotReading, BankError> {
        let running = self.since.map_or(0, |since| tick() - since);
        Ok(SlotReading { raw: (self.value + running) & u64::from(u32::MAX), time: SlotTime::Whole })
    }

    fn release(&mut self, _: Lease) {
        self.since = None;
    }
}

/// The machine.
#[derive(Default)]
pub(crate) struct Machine;

impl PmuTable for Machine {
    fn pmu(&self, pmu: PmuId) -> Option<&dyn PmuModel> {
        (pmu == CLOCK_TICKS).then_some(&Ticks as &dyn PmuModel)
    }
}

impl Host for Machine {
    type IrqLock<T: Send> = SpinLock<T>;
    type TaskLock<T: Send> = SpinLock<T>;
    type BankLock<T: Send> = SpinLock<T>;
    type Bank = Register;
    type Pages = HeapPages;

    fn alloc_ring(&self, data_bytes: usize) -> Result<HeapPages, OutOfMemory> {
        Ok(HeapPages::new(data_bytes / 8))
    }

    fn now(&self) -> Nanos {
        Nanos(tick())
    }

    fn bank(&self, _: ContextKey) -> Register {
        Register::default()
    }

    /// One CPU, whose register its own events and those of the task on it share.
    fn cpus(&self) -> u32 {
        1
    }

    fn presence(&self, key: ContextKey) -> Presence {
        match key {
            ContextKey::Cpu(cpu) => Presence::On(cpu),
            ContextKey::Task(_) => Presence::Out,
        }
    }
}
