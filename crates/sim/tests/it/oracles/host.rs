//! A small machine for comparing the engine with its models: one CPU, registers that advance by a known rate. It
//! switches tasks, or leaves that to a kernel below, as Linux does.
//!
//! **Invariant:** a lease that does not hold its slot never reaches a register, and nothing happens between two steps.

use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::pmu::{
    BankError, CgroupPath, CounterBank, Delegated, EventSpec, Lease, OverflowBy, ParseError, PmuCaps, PmuModel,
    PmuTable, Program, Slot, SlotMask, SlotReading, SlotTime, Slots, place_on_allowed,
};
use pmux_engine::ring_buffer::{HeapPages, OutOfMemory};
use pmux_engine::target::{ContextKey, Presence};
use pmux_engine::{CgroupId, CpuId, Cred, Engine, GroupSpec, Host, LockCell, Nanos, PmuId, TaskId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counters that a CPU's events and those of the task on it share.
pub const SCARCE: PmuId = PmuId(0);
/// Counters that follow their task, as many as wanted.
pub const PLENTY: PmuId = PmuId(1);
/// The only CPU whose tasks are switched.
pub const CPU: CpuId = CpuId(0);
/// Another one, where a kernel below switches.
pub const OTHER_CPU: CpuId = CpuId(1);

pub struct Cell<T>(Mutex<T>);

impl<T: Send> LockCell<T> for Cell<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Register {
    lease: Lease,
    rate: u64,
    raw: u64,
    started: bool,
}

#[derive(Default)]
struct World {
    now: u64,
    on_cpu: Option<TaskId>,
    refuses: bool,
    registers: BTreeMap<(ContextKey, PmuId, Slot), Register>,
}

struct Model {
    caps: PmuCaps,
    asked: AtomicUsize,
}

impl PmuModel for Model {
    fn caps(&self) -> &PmuCaps {
        &self.caps
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        Ok(EventSpec { pmu, attr: *attr, allowed: SlotMask(attr.config2), claim: None, cred: Cred::HOST })
    }

    fn place(&self, wanted: &[SlotMask], used: SlotMask, out: &mut [Slot]) -> bool {
        self.asked.fetch_add(1, Relaxed);
        let Slots::Scarce(count) = self.caps.slots else { return true };
        place_on_allowed(wanted, used, count, out)
    }
}

/// Who lets tasks onto the CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Switching {
    /// The host: the CPU's events and those of the task on it share counters.
    Here,
    /// A kernel below: each context has counters of its own.
    Below,
}

pub struct Machine {
    switching: Switching,
    /// The cgroup that holds each; where there are any, the kernel below hands out the counters.
    cgroups: Vec<Option<usize>>,
    world: Arc<Mutex<World>>,
    pmus: [Model; 2],
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    pub fn engine(counters: u8, switching: Switching) -> Engine<Self> {
        Self::with(counters, switching, Vec::new())
    }

    /// A kernel below switches tasks, and what is limited to a cgroup with them; each cgroup with the one that holds it.
    pub fn with_cgroups(counters: u8, cgroups: &[Option<usize>]) -> Engine<Self> {
        Self::with(counters, Switching::Below, cgroups.to_vec())
    }

    fn with(counters: u8, switching: Switching, cgroups: Vec<Option<usize>>) -> Engine<Self> {
        let overflow = OverflowBy::Interrupt;
        let plenty = PmuCaps { slots: Slots::Plenty, width_bits: 64, delegated: Delegated::empty(), overflow };
        let (width_bits, delegated) = match cgroups[..] {
            [] => (48, Delegated::empty()),
            _ => (64, Delegated::PLACEMENT),
        };
        let scarce = PmuCaps { slots: Slots::Scarce(counters), width_bits, delegated, overflow };
        let machine = Self {
            switching,
            cgroups,
            world: Arc::default(),
            pmus: [scarce, plenty].map(|caps| Model { caps, asked: AtomicUsize::new(0) }),
        };
        Engine::new(machine, [CPU, OTHER_CPU].into_iter().collect::<CpuMask>())
    }

    /// From now on programming a slot is refused, or not any more.
    pub fn refuse(&self, refuses: bool) {
        lock(&self.world).refuses = refuses;
    }

    pub fn on_cpu(&self) -> Option<TaskId> {
        lock(&self.world).on_cpu
    }

    /// Lets time pass for the task on the CPU, if there is one.
    pub fn run(&self, ns: u64) {
        let mut world = lock(&self.world);
        world.now += ns;
        let task = world.on_cpu.map(ContextKey::Task);
        let there = |key: ContextKey| matches!(key, ContextKey::Cpu(_)) || Some(key) == task;
        for (_, register) in world.registers.iter_mut().filter(|((key, ..), it)| it.started && there(*key)) {
            register.raw = register.raw.wrapping_add(register.rate * ns) & mask(register.lease.pmu);
        }
    }

    /// How often it was asked what fits on the scarce counters.
    pub fn asked(&self) -> usize {
        self.pmus[usize::from(SCARCE.0)].asked.load(Relaxed)
    }

    pub fn programmed(&self) -> usize {
        lock(&self.world).registers.len()
    }
}

/// Lets the engine know that another task, or none, is on the CPU.
pub fn switch(engine: &Engine<Machine>, next: Option<TaskId>) {
    let out = engine.host().on_cpu();
    if out == next {
        return;
    }
    lock(&engine.host().world).on_cpu = next;
    if engine.host().switching == Switching::Below {
        return;
    }
    let context = |task: Option<TaskId>| task.map(|task| engine.task(task));
    engine.switch(CPU, context(out).as_ref(), context(next).as_ref());
}

fn mask(pmu: PmuId) -> u64 {
    if pmu == SCARCE { (1 << 48) - 1 } else { u64::MAX }
}

pub struct Bank {
    key: ContextKey,
    slots_are_names: bool,
    world: Arc<Mutex<World>>,
}

impl Bank {
    fn with<R>(&self, lease: Lease, f: impl FnOnce(&mut Register) -> R) -> R {
        let mut world = lock(&self.world);
        match world.registers.get_mut(&(self.key, lease.pmu, lease.slot)) {
            Some(register) if register.lease == lease => f(register),
            _ => panic!("{lease:?} reached the bank of {:?}, which does not hold it", self.key),
        }
    }
}

impl CounterBank for Bank {
    fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        let mut world = lock(&self.world);
        if world.refuses {
            return Err(BankError::Busy);
        }
        let allowed = program.spec.allowed;
        let is_name = lease.pmu == PLENTY || self.slots_are_names;
        let lawful = is_name || allowed.0 & (1 << lease.slot.0) != 0;
        assert!(lawful, "{lease:?} is not on one of {allowed:?}");
        let register = Register { lease, rate: program.spec.attr.config, raw: program.start, started: false };
        let before = world.registers.insert((self.key, lease.pmu, lease.slot), register);
        assert!(before.is_none(), "{lease:?}: the slot was taken");
        Ok(())
    }

    fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        self.with(lease, |register| register.started = true);
        Ok(())
    }

    fn stop(&mut self, lease: Lease) {
        self.with(lease, |register| register.started = false);
    }

    fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        Ok(SlotReading { raw: self.with(lease, |register| register.raw), time: SlotTime::Whole })
    }

    fn hand_over(&mut self, from: Lease, to: Lease) -> Result<SlotReading, BankError> {
        assert_eq!((from.pmu, from.slot), (to.pmu, to.slot));
        self.with(from, |register| register.lease = to);
        self.read(to)
    }

    fn release(&mut self, lease: Lease) {
        self.with(lease, |_| ());
        lock(&self.world).registers.remove(&(self.key, lease.pmu, lease.slot));
    }
}

impl PmuTable for Machine {
    fn pmu(&self, pmu: PmuId) -> Option<&dyn PmuModel> {
        self.pmus.get(usize::from(pmu.0)).map(|model| model as &dyn PmuModel)
    }
}

impl Host for Machine {
    type IrqLock<T: Send> = Cell<T>;
    type TaskLock<T: Send> = Cell<T>;
    type BankLock<T: Send> = Cell<T>;
    type Bank = Bank;
    type Pages = HeapPages;

    fn alloc_ring(&self, data_bytes: usize) -> Result<HeapPages, OutOfMemory> {
        Ok(HeapPages::new(data_bytes / 8))
    }

    fn cpus(&self) -> u32 {
        u32::from(self.switching == Switching::Here)
    }

    fn cgroup_path(&self, cgroup: CgroupId) -> Option<CgroupPath> {
        let up = std::iter::successors(Some(cgroup.0 as usize), |&cgroup| *self.cgroups.get(cgroup)?);
        let mut path: Vec<u64> = up.map(|cgroup| cgroup as u64).chain([u64::MAX]).collect();
        path.reverse();
        Some(path.into())
    }

    fn now(&self) -> Nanos {
        Nanos(lock(&self.world).now)
    }

    fn bank(&self, key: ContextKey) -> Bank {
        Bank { key, slots_are_names: !self.cgroups.is_empty(), world: Arc::clone(&self.world) }
    }

    fn presence(&self, key: ContextKey) -> Presence {
        let there = match key {
            ContextKey::Cpu(cpu) => cpu == CPU,
            ContextKey::Task(task) => self.on_cpu() == Some(task),
        };
        match self.switching {
            Switching::Below => Presence::In,
            Switching::Here if there => Presence::On(CPU),
            Switching::Here => Presence::Out,
        }
    }
}

/// An event that counts `rate` per nanosecond, on one of the slots `allowed` where they are scarce.
pub fn event(rate: u64, allowed: u64, flags: AttrFlags) -> Attr {
    Attr { config: rate, config2: allowed, flags, ..Attr::default() }
}

/// A group; each event with the PMU that counts it.
pub fn group(events: impl IntoIterator<Item = (PmuId, Attr)>) -> GroupSpec {
    GroupSpec { events: events.into_iter().collect() }
}
