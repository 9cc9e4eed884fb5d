//! The engine's host: what a kernel supplies, and where it calls the engine.
//!
//! What it is: [`Machine`] is the traits; the functions below are what the scheduler, the timer and system calls call. Read first:
//! [`switch`], then [`with`].
//!
//! **Two rules** with which the engine must be called:
//!
//! 1. The heap may be used with interrupts off: opening and closing grow and shrink tables under locks that turn them off. A switch, a
//!    tick, an interrupt and a call of another CPU use no heap.
//! 2. A CPU tells the engine itself that it comes, before it takes tasks, and that it goes offline, with no task on it
//!    ([`cpu_offline`]): what reads its counters for the last time has to be there. Others may call meanwhile.

use crate::arch::lock::IrqLock;
use crate::arch::{self, CPUS, gic};
use crate::hw_breakpoint::{self, Watchpoints};
use crate::pmu::{Counters, Pmuv3};
use crate::sched;
use crate::software::{Software, Words};
use alloc::vec::Vec;
use pmux_engine::engine::Exec;
use pmux_engine::hw_breakpoint::DebugRegisters;
use pmux_engine::pmu::{PmuModel, PmuTable, Slot};
use pmux_engine::ring_buffer::{HeapPages, OutOfMemory};
use pmux_engine::target::{ContextKey, Presence};
use pmux_engine::{CpuId, Engine, EventId, Host, LockCell, Nanos, PmuId, Sharing, TaskContext, TaskId};
use spin::Once;
use spin::mutex::SpinMutex;

/// The counters of the CPUs.
pub const PMU: PmuId = PmuId(0);
/// What the kernel itself knows of tasks and CPUs.
pub const SOFTWARE: PmuId = PmuId(1);
/// The watchpoints of the CPUs.
pub const BREAKPOINTS: PmuId = PmuId(5);

static ENGINE: Once<Engine<Machine>> = Once::new();

/// The machine, for the engine.
pub struct Machine {
    pmu: Pmuv3,
}

/// The events of a task, as the task keeps them.
pub type TaskEvents = TaskContext<Machine>;

impl<T: Send> LockCell<T> for IrqLock<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock())
    }
}

/// A lock of tasks: one that waits lets others run.
pub struct TaskLock<T>(SpinMutex<T>);

impl<T: Send> LockCell<T> for TaskLock<T> {
    fn new(value: T) -> Self {
        Self(SpinMutex::new(value))
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        loop {
            match self.0.try_lock() {
                Some(mut value) => return f(&mut value),
                None => sched::give_way(),
            }
        }
    }
}

impl PmuTable for Machine {
    fn pmu(&self, pmu: PmuId) -> Option<&dyn PmuModel> {
        match pmu {
            PMU => Some(&self.pmu),
            SOFTWARE => Some(&Software),
            BREAKPOINTS => Some(&Watchpoints),
            _ => None,
        }
    }
}

impl Host for Machine {
    type IrqLock<T: Send> = IrqLock<T>;
    type TaskLock<T: Send> = TaskLock<T>;
    type BankLock<T: Send> = IrqLock<T>;
    type Bank = Counters;
    type Pages = HeapPages;

    fn alloc_ring(&self, data_bytes: usize) -> Result<HeapPages, OutOfMemory> {
        Ok(HeapPages::new(data_bytes / 8))
    }

    fn cpus(&self) -> u32 {
        CPUS as u32
    }

    fn debug_registers(&self) -> Option<DebugRegisters> {
        Some(hw_breakpoint::REGISTERS)
    }

    fn now(&self) -> Nanos {
        Nanos(arch::now_ns())
    }

    fn bank(&self, key: ContextKey) -> Counters {
        match key {
            ContextKey::Cpu(cpu) => Counters::new(Some(cpu), Words::new(sched::totals_of_cpu(cpu.0 as usize))),
            ContextKey::Task(task) => Counters::new(None, Words::new(sched::totals_of(task.0))),
        }
    }

    fn presence(&self, key: ContextKey) -> Presence {
        match key {
            ContextKey::Cpu(cpu) if sched::is_there(cpu.0 as usize) => Presence::On(cpu),
            ContextKey::Cpu(_) => Presence::Out,
            ContextKey::Task(task) => match sched::cpu_of(task.0) {
                Some(cpu) => Presence::On(CpuId(cpu as u32)),
                None => Presence::Out,
            },
        }
    }

    fn reaches(&self, cpu: CpuId) -> bool {
        arch::cpu() == cpu.0 as usize
    }

    fn send_ipi(&self, cpu: CpuId) {
        gic::call(cpu.0 as usize);
    }

    fn wait(&self, done: &mut dyn FnMut() -> bool) {
        while !done() {
            sched::give_way();
        }
    }
}

/// Makes the engine. To be called once, when the CPUs that are to be there are online.
pub fn init(sharing: Sharing) {
    let online = (0..CPUS).filter(|&cpu| sched::is_online(cpu)).map(|cpu| CpuId(cpu as u32)).collect();
    ENGINE.call_once(|| Engine::new(Machine { pmu: Pmuv3::new() }, online).with_sharing(sharing));
}

/// Whether there is an engine.
pub fn is_made() -> bool {
    ENGINE.get().is_some()
}

/// Calls the engine from a task, which may come to another CPU meanwhile.
///
/// # Panics
/// Before [`init`].
pub fn with<R>(work: impl FnOnce(&Engine<Machine>) -> R) -> R {
    work(ENGINE.get().expect("the engine has been made"))
}

/// The events of a task, which begins; none before there is an engine.
pub fn events_of(pid: u64) -> Option<TaskEvents> {
    ENGINE.get().map(|engine| engine.task(task(pid)))
}

/// The number of a task, for the engine.
pub fn task(pid: u64) -> TaskId {
    TaskId(pid)
}

/// One task leaves this CPU, another one comes. With interrupts off.
pub fn switch(out: Option<&TaskEvents>, next: Option<&TaskEvents>) {
    if let (Some(engine), true) = (ENGINE.get(), out.is_some() || next.is_some()) {
        engine.switch(here(), out, next);
    }
}

/// The timer of this CPU. Interrupt.
pub fn tick() {
    if let Some(engine) = ENGINE.get() {
        engine.tick(here());
    }
}

/// Another CPU may want something of this one's counters. Interrupt.
pub fn called() {
    if let Some(engine) = ENGINE.get() {
        engine.handle_ipi(here());
    }
}

/// Counters of this CPU have wrapped. Interrupt.
pub fn overflowed() {
    if let Some(engine) = ENGINE.get() {
        engine.counters_interrupted(here());
    }
}

/// Events with watchpoints whose hits go into their rings.
static WATCHING: IrqLock<Vec<EventId>> = IrqLock::new(Vec::new());

/// Hits of this event go into its ring from now on, or no longer.
pub fn watch(event: EventId, on: bool) {
    let mut watching = WATCHING.lock();
    watching.retain(|&other| other != event);
    if on {
        watching.push(event);
    }
}

/// The task that calls has come to an address that is watched: a record of 24 bytes is written into the ring of the event, with the
/// place and the address.
pub fn hit(slot: Slot, place: u64, address: u64) {
    let here = ContextKey::Task(task(sched::current().pid));
    let events = WATCHING.lock().clone();
    let is_it = |engine: &Engine<Machine>, event: EventId| {
        engine.lease(event).is_ok_and(|(key, lease)| key == here && (lease.pmu, lease.slot) == (BREAKPOINTS, slot))
    };
    with(|engine| {
        for event in events.into_iter().filter(|&event| is_it(engine, event)) {
            /// `PERF_RECORD_SAMPLE`, of user mode, 24 bytes.
            const HEAD: u64 = 9 | 2 << 32 | 24 << 48;
            let record = [HEAD, place, address].map(u64::to_ne_bytes).concat();
            // A ring without room counts what it lost.
            let _ = engine.sample(event, &record, Nanos(arch::now_ns()));
        }
    });
}

/// A task has a child, which does not run yet. A refusal shows in the family of the events.
pub fn fork(parent: u64, child: u64) {
    if ENGINE.get().is_some() {
        let _refused = with(|engine| engine.task_fork(task(parent), task(child)));
    }
}

/// A task goes on as another program.
pub fn exec(pid: u64, exec: Exec) {
    if ENGINE.get().is_some() {
        with(|engine| engine.task_exec(task(pid), exec));
    }
}

/// A task ends; it calls this itself.
pub fn exit(pid: u64) {
    if ENGINE.get().is_some() {
        with(|engine| engine.task_exit(task(pid)));
    }
}

/// This CPU is there.
pub fn cpu_online() {
    if let Some(engine) = ENGINE.get() {
        engine.cpu_online(here());
    }
}

/// This CPU goes, with no task on it (rule 2).
pub fn cpu_offline() {
    if let Some(engine) = ENGINE.get() {
        engine.cpu_offline(here());
    }
}

fn here() -> CpuId {
    CpuId(arch::cpu() as u32)
}

/// Whether the engine knows that a CPU is there.
pub fn online(cpu: usize) -> bool {
    ENGINE.get().is_some_and(|engine| engine.online().contains(CpuId(cpu as u32)))
}

/// All CPUs, for a set.
pub fn all_cpus() -> Vec<CpuId> {
    (0..CPUS as u32).map(CpuId).collect()
}
