//! A small machine for tests and benchmarks: counters that advance by a known rate while their task runs.
//!
//! **Invariant:** the truth is arithmetic (rate times time), so that every count can be checked to the digit.

#[allow(dead_code)] // the checked locks serve the tests, the plain ones the benchmarks
pub(crate) mod locks;
pub(crate) mod scheduled;

use crate::cpu_mask::CpuMask;
use crate::host::Host;
use crate::hw_breakpoint::{Authority, Claim, DebugRegisters, Kind, Registers as PerCpu};
use crate::id::{CpuId, Cred, Nanos, PmuId, TaskId};
use crate::pmu::{
    BankError, CounterBank, Delegated, EventSpec, Lease, OverflowBy, ParseError, PmuCaps, PmuModel, PmuTable, Program,
    Slot, SlotMask, SlotReading, SlotTime, Slots,
};
use crate::ring_buffer::{HeapPages, OutOfMemory};
use crate::target::{ContextKey, Filter, Presence};
use crate::{Engine, GroupSpec};
use locks::{Checked, LockKind, lock};
use pmux_abi::attr::{Attr, AttrFlags, EventType, breakpoint};
use std::boxed::Box;
use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::vec::Vec;

/// Two registers of 32 bits.
pub(crate) const SCARCE: PmuId = PmuId(0);
/// As many 64-bit counters as wanted.
pub(crate) const PLENTY: PmuId = PmuId(1);
/// Counters that follow forks, multiplex and start at exec by themselves, as the Linux kernel's do.
pub(crate) const KERNEL: PmuId = PmuId(2);
/// Sixty-four registers of 48 bits.
#[allow(dead_code)] // for the benchmarks
pub(crate) const WIDE: PmuId = PmuId(3);
/// `EAGAIN`.
const LATE: i32 = 11;
/// `config1` of an event that the bank refuses to program.
pub(crate) const REFUSED: u64 = 1;
/// `config1` of an event for which the bank has no register, whichever caller asks.
pub(crate) const TAKEN: u64 = 2;

const PMUS: usize = 4;

#[derive(Default)]
struct Register {
    generation: u64,
    rate: u64,
    mask: u64,
    raw: u64,
    started: bool,
    wrapped: bool,
    measured: bool,
    enabled: u64,
    ended: bool,
}

#[derive(Default)]
struct Registers {
    slots: [Vec<Option<Register>>; PMUS],
    programmed: usize,
}

impl Registers {
    fn of(&mut self, lease: Lease) -> Option<&mut Option<Register>> {
        self.slots.get_mut(usize::from(lease.pmu.0))?.get_mut(lease.slot.0 as usize)
    }
}

#[derive(Default)]
struct Faults {
    programs: AtomicU32,
    late: AtomicU32,
    starts: AtomicU32,
    /// Readings, and the errno that they give.
    reads: AtomicU32,
    read_error: AtomicU32,
}

fn strikes(faults: &AtomicU32) -> bool {
    faults.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// Where something else can be let happen in the midst of a step of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// The host is asked whether a new context is there: a group is about to be attached.
    Presence,
    /// The engine goes near a CPU, with a set's turn.
    Near,
}

type Interruption = (Moment, u32, Box<dyn FnOnce() + Send>);

#[derive(Default)]
struct World {
    interruption: Mutex<Option<Interruption>>,
    now: AtomicU64,
    programs: AtomicUsize,
    /// How often registers were programmed or changed with each credentials.
    creds: Mutex<BTreeMap<Cred, usize>>,
    /// CPUs that were sent an IPI.
    rung: Mutex<Vec<CpuId>>,
    /// How far the clock goes at each look.
    tick: AtomicU64,
    leased: AtomicUsize,
    faults: Faults,
    present: Mutex<HashMap<ContextKey, Presence>>,
    /// Tasks whose numbers have become others', and when.
    replaced: Mutex<HashMap<TaskId, Nanos>>,
    registers: Mutex<HashMap<ContextKey, Arc<Mutex<Registers>>>>,
}

struct Model(PmuCaps);

impl PmuModel for Model {
    fn caps(&self) -> &PmuCaps {
        &self.0
    }
    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        let allowed = if attr.config2 == 0 { SlotMask::ALL } else { SlotMask(attr.config2) };
        let kind = if attr.bp_type & breakpoint::X != 0 { Kind::Execute } else { Kind::Data };
        let claim = (attr.kind == EventType::BREAKPOINT).then_some(Claim::one(kind));
        if attr.config == 0 {
            Err(ParseError::NoSuchEvent)
        } else {
            Ok(EventSpec { pmu, attr: *attr, allowed, claim, cred: Cred::HOST })
        }
    }
}

/// What the machine makes of the hint to run something near a CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Near {
    Once,
    Twice,
    Never,
}

std::thread_local! {
    /// See [`LockKind::here`].
    static HERE: std::cell::Cell<Option<CpuId>> = const { std::cell::Cell::new(None) };
}

/// Lets this thread play a CPU.
pub(crate) fn play(cpu: Option<CpuId>) {
    HERE.set(cpu);
}

pub(crate) struct Machine<K = Checked> {
    world: Arc<World>,
    pmus: [Model; PMUS],
    near: Near,
    /// How many CPUs share their counters among contexts.
    shared: u32,
    debug: DebugRegisters,
    kind: PhantomData<K>,
}

impl Machine {
    pub(crate) fn engine(cpus: u32) -> Engine<Self> {
        Self::engine_on(cpus, Near::Once)
    }

    /// One on which equal questions share.
    pub(crate) fn sharing(cpus: u32) -> Engine<Self> {
        Self::engine(cpus).with_sharing(crate::Sharing::On)
    }

    /// A machine with these debug registers on each of four CPUs.
    pub(crate) fn with_registers(registers: PerCpu, authority: Authority) -> Engine<Self> {
        let debug = DebugRegisters { registers, cpus: 4, authority };
        let machine = Self { debug, ..Self::assemble(Near::Once, 0) };
        Engine::new(machine, (0..4).map(CpuId).collect::<CpuMask>())
    }
}

impl<K: LockKind> Machine<K> {
    pub(crate) fn engine_on(cpus: u32, near: Near) -> Engine<Self> {
        Engine::new(Self::assemble(near, 0), (0..cpus).map(CpuId).collect::<CpuMask>())
    }

    /// A machine whose tasks share the counters of the CPU that they are on.
    pub(crate) fn shared_on(cpus: u32) -> Engine<Self> {
        let engine = Engine::new(Self::assemble(Near::Once, cpus), (0..cpus).map(CpuId).collect::<CpuMask>());
        (0..cpus).map(CpuId).for_each(|cpu| engine.host().place(ContextKey::Cpu(cpu), Presence::On(cpu)));
        engine
    }

    fn assemble(near: Near, shared: u32) -> Self {
        let own = PmuCaps {
            slots: Slots::Scarce(2),
            width_bits: 32,
            delegated: Delegated::empty(),
            overflow: OverflowBy::Interrupt,
        };
        let plenty = PmuCaps { slots: Slots::Plenty, width_bits: 64, ..own };
        let kernel = PmuCaps { delegated: Delegated::all(), ..plenty };
        let wide = PmuCaps { slots: Slots::Scarce(64), width_bits: 48, ..own };
        let pmus = [own, plenty, kernel, wide].map(Model);
        let debug = DebugRegisters { registers: PerCpu::Shared(4), cpus: 1024, authority: Authority::Ledger };
        Self { world: Arc::default(), pmus, near, shared, debug, kind: PhantomData }
    }

    /// Says whether contexts made from now on are on a CPU.
    pub(crate) fn place(&self, key: ContextKey, presence: Presence) {
        lock(&self.world.present).insert(key, presence);
    }

    /// Lets time pass while only `running` counts.
    pub(crate) fn run(&self, running: &[ContextKey], ns: u64) {
        self.world.now.fetch_add(ns, SeqCst);
        for key in running {
            let registers = lock(&self.world.registers).get(key).cloned();
            let Some(registers) = registers else { continue };
            for register in lock(&registers).slots.iter_mut().flatten().flatten().filter(|it| it.started && !it.ended) {
                let raw = register.raw.wrapping_add(register.rate.wrapping_mul(ns));
                register.wrapped |= raw > register.mask;
                register.raw = raw & register.mask;
                register.enabled += ns;
            }
        }
    }

    /// Lets time pass on a CPU, with a task on it or none; says where a task is.
    pub(crate) fn run_on(&self, cpu: u32, task: Option<u64>, ns: u64) {
        let task = task.map(|task| ContextKey::Task(TaskId(task)));
        let both: Vec<_> = [ContextKey::Cpu(CpuId(cpu))].into_iter().chain(task).collect();
        self.run(&both, ns);
    }

    pub(crate) fn programs(&self) -> usize {
        self.world.programs.load(SeqCst)
    }

    /// With which credentials registers were programmed or changed since the last question, and how often.
    pub(crate) fn creds(&self) -> BTreeMap<Cred, usize> {
        core::mem::take(&mut lock(&self.world.creds))
    }

    /// The CPUs that were sent an IPI since the last call.
    pub(crate) fn rung(&self) -> Vec<CpuId> {
        core::mem::take(&mut lock(&self.world.rung))
    }

    /// Lets time pass while one task runs.
    pub(crate) fn run_task(&self, task: u64, ns: u64) {
        self.run(&[ContextKey::Task(TaskId(task))], ns);
    }

    /// Lets time pass at each look at the clock, too.
    pub(crate) fn tick(&self, ns: u64) {
        self.world.tick.store(ns, SeqCst);
    }

    /// From now on a task's number is another task's.
    pub(crate) fn replace_task(&self, task: TaskId) {
        lock(&self.world.replaced).insert(task, Host::now(self));
    }

    /// Ends what is programmed in a context, as a kernel does when the task executes a set-user-id program.
    pub(crate) fn end_counters(&self, key: ContextKey) {
        let registers = lock(&self.world.registers).get(&key).cloned().unwrap_or_default();
        lock(&registers).slots.iter_mut().flatten().flatten().for_each(|register| register.ended = true);
    }

    pub(crate) fn refuse_programs(&self, count: u32) {
        self.world.faults.programs.store(count, SeqCst);
    }

    /// Has the next so many that are programmed wait.
    pub(crate) fn late_programs(&self, count: u32) {
        self.world.faults.late.store(count, SeqCst);
    }

    /// Refuses the next so many starts.
    pub(crate) fn refuse_starts(&self, count: u32) {
        self.world.faults.starts.store(count, SeqCst);
    }

    /// Refuses the next so many readings.
    pub(crate) fn refuse_reads(&self, count: u32, error: BankError) {
        self.world.faults.read_error.store(error.errno().unsigned_abs(), SeqCst);
        self.world.faults.reads.store(count, SeqCst);
    }

    /// Lets `f` happen once, after `skip` other such moments.
    pub(crate) fn interrupt(&self, moment: Moment, skip: u32, f: impl FnOnce() + Send + 'static) {
        *lock(&self.world.interruption) = Some((moment, skip, Box::new(f)));
    }

    fn come(&self, now: Moment) {
        let due = {
            let mut waiting = lock(&self.world.interruption);
            match &mut *waiting {
                Some((moment, 0, _)) if *moment == now => waiting.take(),
                Some((moment, skip, _)) if *moment == now => {
                    *skip -= 1;
                    None
                }
                _ => None,
            }
        };
        if let Some((_, _, f)) = due {
            f();
        }
    }

    /// How many registers are programmed: 0 when everything is closed.
    pub(crate) fn leased(&self) -> usize {
        self.world.leased.load(SeqCst)
    }
}

pub(crate) struct Bank {
    key: ContextKey,
    here: fn() -> Option<CpuId>,
    width: [u8; PMUS],
    world: Arc<World>,
    registers: Arc<Mutex<Registers>>,
}

impl Bank {
    /// The registers of a CPU are touched there only.
    fn touched(&self) {
        locks::touched_counters();
        if let (ContextKey::Cpu(cpu), Some(here)) = (self.key, (self.here)()) {
            assert_eq!(cpu, here, "registers of the one are touched on the other");
        }
    }

    fn with<R>(&self, lease: Lease, f: impl FnOnce(&mut Register) -> R) -> R {
        self.touched();
        let mut registers = lock(&self.registers);
        let register = registers.of(lease).and_then(Option::as_mut).filter(|it| it.generation == lease.generation);
        let Some(register) = register else { panic!("{lease:?} reached the bank, which does not hold it") };
        f(register)
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        locks::called("the drop of a bank");
        let mut all = lock(&self.world.registers);
        // One for the world and one for this bank; another bank of the context would hold one more.
        if Arc::strong_count(&self.registers) == 2 && lock(&self.registers).programmed == 0 {
            all.remove(&self.key);
        }
    }
}

impl CounterBank for Bank {
    fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        self.touched();
        if program.spec.attr.config1 == TAKEN {
            return Err(BankError::SlotsExhausted);
        }
        if program.spec.attr.config1 == REFUSED || strikes(&self.world.faults.programs) {
            return Err(BankError::Busy);
        }
        if strikes(&self.world.faults.late) {
            return Err(BankError::Other(LATE));
        }
        if matches!(program.filter, Filter::Cgroup(_)) && lease.pmu != KERNEL {
            return Err(BankError::NotSupported);
        }
        let pmu = usize::from(lease.pmu.0);
        let width = self.width[pmu];
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        let register = Register {
            generation: lease.generation,
            rate: program.spec.attr.config,
            mask,
            raw: program.start,
            measured: lease.pmu == KERNEL,
            ..Register::default()
        };
        let mut registers = lock(&self.registers);
        let slots = &mut registers.slots[pmu];
        if slots.len() <= lease.slot.0 as usize {
            allocation_counter::opt_out(|| slots.resize_with(lease.slot.0 as usize + 1, || None));
        }
        let before = slots[lease.slot.0 as usize].replace(register);
        assert!(before.is_none(), "a slot was programmed for two");
        registers.programmed += 1;
        self.world.programs.fetch_add(1, SeqCst);
        allocation_counter::opt_out(|| *lock(&self.world.creds).entry(program.spec.cred).or_default() += 1);
        self.world.leased.fetch_add(1, SeqCst);
        Ok(())
    }

    fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        self.with(lease, |register| {
            if strikes(&self.world.faults.starts) {
                return Err(BankError::Busy);
            }
            register.started = true;
            Ok(())
        })
    }

    fn stop(&mut self, lease: Lease) {
        self.with(lease, |register| register.started = false);
    }

    fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        self.with(lease, |register| {
            if strikes(&self.world.faults.reads) {
                let errno = self.world.faults.read_error.load(SeqCst);
                return Err(BankError::from_errno(errno.cast_signed()));
            }
            let time = Nanos(register.enabled);
            let measured = SlotTime::Measured { enabled: time, running: time };
            Ok(SlotReading { raw: register.raw, time: if register.measured { measured } else { SlotTime::Whole } })
        })
    }

    fn hand_over(&mut self, from: Lease, to: Lease) -> Result<SlotReading, BankError> {
        assert_eq!((from.pmu, from.slot, from.generation + 1), (to.pmu, to.slot, to.generation));
        self.with(from, |register| {
            assert!(register.started, "only what runs is handed over");
            if strikes(&self.world.faults.starts) {
                return Err(BankError::Busy);
            }
            register.generation = to.generation;
            Ok(SlotReading { raw: register.raw, time: SlotTime::Whole })
        })
    }

    fn modify(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        if program.spec.attr.config1 == REFUSED {
            return Err(BankError::Busy);
        }
        *lock(&self.world.creds).entry(program.spec.cred).or_default() += 1;
        self.with(lease, |register| register.rate = program.spec.attr.config);
        Ok(())
    }

    fn has_ended(&mut self, lease: Lease) -> bool {
        self.with(lease, |register| register.ended)
    }

    fn take_overflows(&mut self, pmu: PmuId) -> SlotMask {
        locks::touched_counters();
        let mut registers = lock(&self.registers);
        let mut wrapped = SlotMask::default();
        for (slot, register) in registers.slots[usize::from(pmu.0)].iter_mut().enumerate() {
            if let Some(register) = register
                && core::mem::take(&mut register.wrapped)
            {
                wrapped = wrapped.with(Slot(slot as u32));
            }
        }
        wrapped
    }

    fn release(&mut self, lease: Lease) {
        self.with(lease, |_| ());
        let mut registers = lock(&self.registers);
        if let Some(slot) = registers.of(lease) {
            *slot = None;
        }
        registers.programmed -= 1;
        self.world.leased.fetch_sub(1, SeqCst);
    }
}

impl<K: LockKind> PmuTable for Machine<K> {
    fn pmu(&self, pmu: PmuId) -> Option<&dyn PmuModel> {
        self.pmus.get(usize::from(pmu.0)).map(|model| model as &dyn PmuModel)
    }
}

impl<K: LockKind> Host for Machine<K> {
    type IrqLock<T: Send> = K::Spin<T>;
    type TaskLock<T: Send> = K::Sleep<T>;
    type BankLock<T: Send> = K::Spin<T>;
    type Bank = Bank;
    type Pages = HeapPages;

    fn alloc_ring(&self, data_bytes: usize) -> Result<HeapPages, OutOfMemory> {
        Ok(HeapPages::new(data_bytes / 8))
    }

    fn cpus(&self) -> u32 {
        self.shared
    }

    fn debug_registers(&self) -> Option<DebugRegisters> {
        locks::called("debug_registers");
        Some(self.debug)
    }

    fn reaches(&self, cpu: CpuId) -> bool {
        K::here().is_none_or(|here| here == cpu)
    }

    fn send_ipi(&self, cpu: CpuId) {
        locks::called("send_ipi");
        lock(&self.world.rung).push(cpu);
    }

    fn wait(&self, done: &mut dyn FnMut() -> bool) {
        locks::called("wait");
        while !done() {
            K::yield_now();
        }
    }

    fn now(&self) -> Nanos {
        locks::asked_for_time();
        let tick = self.world.tick.load(SeqCst);
        if tick == 0 {
            return Nanos(self.world.now.load(SeqCst));
        }
        // Where time passes by itself, threads get in one another's way as often as they can.
        std::thread::yield_now();
        Nanos(self.world.now.fetch_add(tick, SeqCst))
    }

    fn bank(&self, key: ContextKey) -> Bank {
        locks::called("bank");
        let registers = Arc::clone(lock(&self.world.registers).entry(key).or_default());
        let width = self.pmus.each_ref().map(|pmu| pmu.0.width_bits);
        Bank { key, here: K::here, width, world: Arc::clone(&self.world), registers }
    }

    fn presence(&self, key: ContextKey) -> Presence {
        locks::called("presence");
        self.come(Moment::Presence);
        lock(&self.world.present).get(&key).copied().unwrap_or(Presence::In)
    }

    fn is_still(&self, task: TaskId, since: Nanos) -> bool {
        lock(&self.world.replaced).get(&task).is_none_or(|&at| at <= since)
    }

    fn near(&self, _: CpuId, f: &mut dyn FnMut()) {
        locks::called("near");
        self.come(Moment::Near);
        let times = match self.near {
            Near::Never => 0,
            Near::Once => 1,
            Near::Twice => 2,
        };
        (0..times).for_each(|_| f());
    }
}

/// An event that counts `rate` per nanosecond.
pub(crate) fn event(rate: u64) -> Attr {
    Attr { config: rate, ..Attr::default() }
}

pub(crate) fn flagged(rate: u64, flags: AttrFlags) -> Attr {
    Attr { flags, ..event(rate) }
}

/// A breakpoint that counts `rate` per nanosecond.
pub(crate) fn watch(rate: u64, bp_type: u32) -> Attr {
    Attr { kind: EventType::BREAKPOINT, bp_type, ..event(rate) }
}

pub(crate) fn group(pmu: PmuId, attrs: &[Attr]) -> GroupSpec {
    GroupSpec { events: attrs.iter().map(|&attr| (pmu, attr)).collect::<Vec<_>>() }
}
