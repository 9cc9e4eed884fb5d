//! The machine that the engine runs on while it is watched.
//!
//! What it is: a host with the planned PMUs, a clock that stands still, and counters that always start. Each context is on a
//! core of its own, as on Linux, where the kernel switches tasks. Debug registers are taken when an event is programmed,
//! and refused when none is left, as Linux does it.
//!
//! **Invariant:** what an event may use was settled before: see `needs`. The engine gets events by number.

use crate::Capacity;
use crate::needs::{Need, PlannedPmu};
use pmux_abi::attr::{Attr, AttrFlags, EventType};
use pmux_engine::pmu::{
    BankError, CounterBank, Delegated, EventSpec, Lease, OverflowBy, ParseError, PmuCaps, PmuModel, PmuTable, Program,
    Slot, SlotMask, SlotReading, SlotTime, place_on_allowed,
};
use pmux_engine::ring_buffer::{HeapPages, OutOfMemory};
use pmux_engine::target::{ContextKey, Presence};
use pmux_engine::{Cred, Host, LockCell, Nanos, PmuId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The PMU of an event for which there is none.
pub(super) const NO_PMU: PmuId = PmuId(u16::MAX);

/// An event by its number: all that the engine's models need to know here.
pub(super) fn numbered(event: usize, flags: AttrFlags) -> Attr {
    let flags = flags & (AttrFlags::PINNED | AttrFlags::EXCLUSIVE);
    Attr { kind: EventType::RAW, config: event as u64, flags, ..Attr::default() }
}

struct Model {
    caps: PmuCaps,
    /// What each event may use, by its number.
    allowed: Arc<[SlotMask]>,
}

impl PmuModel for Model {
    fn caps(&self) -> &PmuCaps {
        &self.caps
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        let allowed = usize::try_from(attr.config).ok().and_then(|event| self.allowed.get(event)).copied();
        match allowed.filter(|allowed| !allowed.is_empty()) {
            Some(allowed) => Ok(EventSpec { pmu, attr: *attr, allowed, claim: None, cred: Cred::HOST }),
            None => Err(ParseError::NoSuchEvent),
        }
    }
}

/// Debug registers, and who has one.
struct Registers {
    total: u8,
    held: Vec<(Lease, SlotMask)>,
}

impl Registers {
    fn take(&mut self, lease: Lease, allowed: SlotMask) -> Result<(), BankError> {
        let wanted: Vec<_> = self.held.iter().map(|&(_, mask)| mask).chain([allowed]).collect();
        let mut slots = vec![Slot::NONE; wanted.len()];
        if !place_on_allowed(&wanted, SlotMask::default(), self.total, &mut slots) {
            return Err(BankError::SlotsExhausted);
        }
        self.held.push((lease, allowed));
        Ok(())
    }
}

/// By PMU; `None` for those that have no debug registers.
type Banks = Arc<Mutex<Vec<Option<Registers>>>>;

pub(super) struct PlanHost {
    models: Vec<Model>,
    registers: Banks,
}

impl PlanHost {
    pub(super) fn new(pmus: &[PlannedPmu], needs: &[Option<Need>]) -> Self {
        let allowed: Arc<[SlotMask]> =
            needs.iter().map(|need| need.map_or_else(SlotMask::default, |need| need.allowed)).collect();
        let model = |pmu: &PlannedPmu| {
            let caps = PmuCaps {
                slots: pmu.slots(),
                width_bits: 64,
                delegated: Delegated::empty(),
                overflow: OverflowBy::Interrupt,
            };
            Model { caps, allowed: Arc::clone(&allowed) }
        };
        let registers = |pmu: &PlannedPmu| match pmu.capacity {
            Capacity::Registers { total, .. } => Some(Registers { total: total.min(64) as u8, held: Vec::new() }),
            _ => None,
        };
        Self {
            models: pmus.iter().map(model).collect(),
            registers: Arc::new(Mutex::new(pmus.iter().map(registers).collect())),
        }
    }
}

impl PmuTable for PlanHost {
    fn pmu(&self, pmu: PmuId) -> Option<&dyn PmuModel> {
        self.models.get(usize::from(pmu.0)).map(|model| model as &dyn PmuModel)
    }
}

impl Host for PlanHost {
    type IrqLock<T: Send> = PlanLock<T>;
    type TaskLock<T: Send> = PlanLock<T>;
    type BankLock<T: Send> = PlanLock<T>;
    type Bank = PlanBank;
    type Pages = HeapPages;

    fn alloc_ring(&self, data_bytes: usize) -> Result<HeapPages, OutOfMemory> {
        Ok(HeapPages::new(data_bytes / 8))
    }

    fn now(&self) -> Nanos {
        Nanos::ZERO
    }

    fn bank(&self, _: ContextKey) -> PlanBank {
        PlanBank { registers: Arc::clone(&self.registers) }
    }

    fn presence(&self, _: ContextKey) -> Presence {
        Presence::In
    }
}

/// One thread plans: no lock is ever waited for.
pub(super) struct PlanLock<T>(Mutex<T>);

impl<T: Send> LockCell<T> for PlanLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Counters that count nothing.
pub(super) struct PlanBank {
    registers: Banks,
}

impl PlanBank {
    fn registers(&self) -> MutexGuard<'_, Vec<Option<Registers>>> {
        self.registers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CounterBank for PlanBank {
    fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        match self.registers().get_mut(usize::from(lease.pmu.0)) {
            Some(Some(registers)) => registers.take(lease, program.spec.allowed),
            _ => Ok(()),
        }
    }

    fn start(&mut self, _: Lease) -> Result<(), BankError> {
        Ok(())
    }

    fn stop(&mut self, _: Lease) {}

    fn read(&mut self, _: Lease) -> Result<SlotReading, BankError> {
        Ok(SlotReading { raw: 0, time: SlotTime::Whole })
    }

    fn release(&mut self, lease: Lease) {
        if let Some(Some(registers)) = self.registers().get_mut(usize::from(lease.pmu.0)) {
            registers.held.retain(|(held, _)| *held != lease);
        }
    }
}
