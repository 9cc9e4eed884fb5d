//! The smallest host of the engine that runs: two CPUs, which are threads, with two counters each.
//!
//! ```text
//! cargo run -p pmux-engine --example host
//! ```
//!
//! What a kernel supplies stands first: locks ([`Lock`]), counters ([`Counters`], [`Model`]) and the machine ([`Machine`]). Then comes where
//! a kernel calls the engine: [`run_cpu`] is its scheduler, its timer and its interrupts. What programs have executed is known, and stands
//! beside what was counted. `docs/embedding.md` says more; `kernel/` is the same on a real machine.

use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::pmu::{
    BankError, CounterBank, Delegated, EventSpec, Lease, OverflowBy, ParseError, PmuCaps, PmuModel, PmuTable, Program,
    SlotMask, SlotReading, SlotTime, Slots,
};
use pmux_engine::ring_buffer::{HeapPages, OutOfMemory};
use pmux_engine::target::{ContextKey, Presence};
use pmux_engine::{
    CpuId, Cred, Engine, GroupSpec, Host, LockCell, Nanos, Opened, PmuId, Sharing, Target, TaskContext, TaskId,
};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

const CPUS: u32 = 2;
const COUNTERS: usize = 2;
const PMU: PmuId = PmuId(0);
/// What the counters can count: `config` of an event.
const CYCLES: u64 = 0;
const INSTRUCTIONS: u64 = 1;
const BRANCHES: u64 = 2;
/// How much of each a program does in one go, between two interrupts.
const SLICE: [u64; 3] = [2_500, 1_000, 200];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock. In a kernel it turns interrupts off; here a CPU looks for its interrupts only between two slices.
struct Lock<T>(Mutex<T>);

impl<T: Send> LockCell<T> for Lock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut lock(&self.0))
    }
}

/// A counter of a CPU: 32 bits of one event, while it runs.
#[derive(Clone, Copy, Default)]
struct Counter {
    config: u64,
    value: u64,
    runs: bool,
}

type Registers = Arc<Mutex<[Counter; COUNTERS]>>;

/// The counters of one CPU, for the engine. Those of a task are none of their own: it uses those of the CPU that it is on.
struct Counters(Registers);

impl Counters {
    fn counter<R>(&self, lease: Lease, f: impl FnOnce(&mut Counter) -> R) -> Result<R, BankError> {
        lock(&self.0).get_mut(lease.slot.0 as usize).map(f).ok_or(BankError::Invalid)
    }
}

impl CounterBank for Counters {
    fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        let config = program.spec.attr.config;
        self.counter(lease, |counter| *counter = Counter { config, value: program.start, runs: false })
    }

    fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        self.counter(lease, |counter| counter.runs = true)
    }

    fn stop(&mut self, lease: Lease) {
        let _ = self.counter(lease, |counter| counter.runs = false);
    }

    fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        self.counter(lease, |counter| SlotReading { raw: counter.value, time: SlotTime::Whole })
    }

    fn release(&mut self, lease: Lease) {
        let _ = self.counter(lease, |counter| *counter = Counter::default());
    }
}

/// What the counters can do: two of 32 bits, each for any event. Nothing tells when one wraps, so the engine reads them at each tick.
struct Model;

impl PmuModel for Model {
    fn caps(&self) -> &PmuCaps {
        const CAPS: PmuCaps = PmuCaps {
            slots: Slots::Scarce(COUNTERS as u8),
            width_bits: 32,
            delegated: Delegated::empty(),
            overflow: OverflowBy::Poll,
        };
        &CAPS
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        match attr.config {
            CYCLES | INSTRUCTIONS | BRANCHES => {
                Ok(EventSpec { pmu, attr: *attr, allowed: SlotMask::ALL, claim: None, cred: Cred::HOST })
            }
            _ => Err(ParseError::NoSuchEvent),
        }
    }
}

thread_local! {
    /// The CPU that this thread is.
    static HERE: Cell<Option<CpuId>> = const { Cell::new(None) };
}

/// The machine: its CPUs, and where its tasks are.
struct Machine {
    started: Instant,
    registers: [Registers; CPUS as usize],
    /// Whether another CPU has something for this one to do.
    called: [AtomicBool; CPUS as usize],
    on: Mutex<BTreeMap<TaskId, CpuId>>,
}

impl PmuTable for Machine {
    fn pmu(&self, pmu: PmuId) -> Option<&dyn PmuModel> {
        (pmu == PMU).then_some(&Model as &dyn PmuModel)
    }
}

impl Host for Machine {
    type IrqLock<T: Send> = Lock<T>;
    type TaskLock<T: Send> = Lock<T>;
    type BankLock<T: Send> = Lock<T>;
    type Bank = Counters;
    type Pages = HeapPages;

    fn alloc_ring(&self, data_bytes: usize) -> Result<HeapPages, OutOfMemory> {
        Ok(HeapPages::new(data_bytes / 8))
    }

    fn cpus(&self) -> u32 {
        CPUS
    }

    fn now(&self) -> Nanos {
        Nanos(self.started.elapsed().as_nanos() as u64)
    }

    fn bank(&self, key: ContextKey) -> Counters {
        Counters(match key {
            ContextKey::Cpu(CpuId(cpu)) => Arc::clone(&self.registers[cpu as usize]),
            ContextKey::Task(_) => Registers::default(),
        })
    }

    fn presence(&self, key: ContextKey) -> Presence {
        match key {
            ContextKey::Cpu(cpu) => Presence::On(cpu),
            ContextKey::Task(task) => lock(&self.on).get(&task).map_or(Presence::Out, |&cpu| Presence::On(cpu)),
        }
    }

    fn reaches(&self, cpu: CpuId) -> bool {
        HERE.get() == Some(cpu)
    }

    fn send_ipi(&self, cpu: CpuId) {
        self.called[cpu.0 as usize].store(true, Ordering::Release);
    }

    fn wait(&self, done: &mut dyn FnMut() -> bool) {
        while !done() {
            std::thread::yield_now();
        }
    }
}

/// A task: what is left of its program, in slices, and what the engine keeps of it.
struct Task {
    id: TaskId,
    slices: u64,
    events: TaskContext<Machine>,
    /// It forks when so many slices are left.
    forks_at: Option<u64>,
}

type Queue = Mutex<VecDeque<Task>>;

fn new_task(engine: &Engine<Machine>, id: u64, slices: u64, forks_at: Option<u64>) -> Task {
    let id = TaskId(id);
    Task { id, slices, events: engine.task(id), forks_at }
}

/// A CPU with its scheduler, its timer and its interrupts. It ends when all programs have.
fn run_cpu(cpu: CpuId, engine: &Engine<Machine>, queue: &Queue, left: &Mutex<u32>) {
    HERE.set(Some(cpu));
    let machine = engine.host();
    let mut before: Option<Task> = None;
    loop {
        let next = lock(queue).pop_front();
        // The scheduler: first where the tasks are, then the engine, then the task that has left may run elsewhere.
        let mut on = lock(&machine.on);
        before.iter().for_each(|task| _ = on.remove(&task.id));
        next.iter().for_each(|task| _ = on.insert(task.id, cpu));
        drop(on);
        engine.switch(cpu, before.as_ref().map(|task| &task.events), next.as_ref().map(|task| &task.events));
        match before.take() {
            Some(task) if task.slices > 0 => lock(queue).push_back(task),
            Some(_) => *lock(left) -= 1,
            None => {}
        }
        before = next;
        if let Some(task) = &mut before {
            if task.forks_at.take_if(|at| *at == task.slices).is_some() {
                let child = new_task(engine, task.id.0 + 100, task.slices, None);
                *lock(left) += 1;
                engine.task_fork(task.id, child.id).expect("the counters take it");
                lock(queue).push_back(child);
            }
            // The program.
            for counter in lock(&machine.registers[cpu.0 as usize]).iter_mut().filter(|counter| counter.runs) {
                counter.value = (counter.value + SLICE[counter.config as usize]) & u64::from(u32::MAX);
            }
            task.slices -= 1;
            if task.slices == 0 {
                engine.task_exit(task.id);
            }
        }
        // Its interrupts: another CPU, and the timer.
        if machine.called[cpu.0 as usize].swap(false, Ordering::AcqRel) {
            engine.handle_ipi(cpu);
        }
        engine.tick(cpu);
        if before.is_none() {
            if *lock(left) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }
}

const SLICES: u64 = 20_000;

fn open(engine: &Engine<Machine>, task: u64, configs: &[u64], flags: AttrFlags) -> Opened {
    let attr = |&config: &u64| (PMU, Attr { config, flags, ..Attr::default() });
    let opened = engine.open(&GroupSpec { events: configs.iter().map(attr).collect() }, Target::task(TaskId(task)));
    let opened = opened.expect("the counters take it");
    engine.enable_group(opened.group).expect("it is open");
    opened
}

fn main() {
    let (started, registers, called, on) = (Instant::now(), Default::default(), Default::default(), Mutex::default());
    let engine = Engine::new(Machine { started, registers, called, on }, (0..CPUS).map(CpuId).collect());
    let engine = engine.with_sharing(Sharing::On);
    let tasks: Vec<_> = (1..=3).map(|id| new_task(&engine, id, SLICES, (id == 1).then_some(SLICES / 2))).collect();
    let plain = AttrFlags::empty();
    let family = open(&engine, 1, &[INSTRUCTIONS], AttrFlags::INHERIT);
    let equal: Vec<_> = (0..16).map(|_| open(&engine, 1, &[INSTRUCTIONS], plain)).collect();
    let pair = open(&engine, 2, &[CYCLES, INSTRUCTIONS], plain);
    let three = [CYCLES, INSTRUCTIONS, BRANCHES].map(|config| open(&engine, 3, &[config], plain));
    let value = |opened: &Opened, event: usize| engine.read(opened.events[event]).expect("it is open").value;

    let (queue, left) = (Queue::new(tasks.into()), Mutex::new(3));
    let mut readings = 0;
    std::thread::scope(|scope| {
        for cpu in (0..CPUS).map(CpuId) {
            let (engine, queue, left) = (&engine, &queue, &left);
            scope.spawn(move || run_cpu(cpu, engine, queue, left));
        }
        // Meanwhile this thread reads: the CPU that has the counter is called.
        let mut before = 0;
        while *lock(&left) > 0 {
            let now = value(&pair, 0);
            assert!(now >= before, "a count went back from {before} to {now}");
            (before, readings) = (now, readings + 1);
        }
    });

    println!("{:<52} {:>12} {:>12}", "", "counted", "executed");
    let mut wrong = 0;
    let mut line = |what: &str, counted: u64, executed: u64| {
        println!("{what:<52} {counted:>12} {executed:>12}");
        wrong += u64::from(counted != executed);
    };
    line("instructions of task 1 and the child that it forked", value(&family, 0), SLICES * 3 / 2 * SLICE[1]);
    let sum = equal.iter().map(|opened| value(opened, 0)).sum();
    line("instructions of task 1, asked 16 times, added up", sum, 16 * SLICES * SLICE[1]);
    line("cycles of task 2", value(&pair, 0), SLICES * SLICE[0]);
    line("instructions of task 2", value(&pair, 1), SLICES * SLICE[1]);
    println!("counters that the 16 saved: {}", engine.saved_by_sharing());
    println!("readings meanwhile, none of which went back: {readings}");
    for (config, opened) in three.iter().enumerate() {
        let count = engine.read(opened.events[0]).expect("it is open");
        let ran = count.running.0 as f64 / count.enabled.0 as f64;
        println!(
            "event {config} of three on two counters: {:>10}, on a counter for {:.0} % of its time",
            count.value,
            100.0 * ran
        );
    }
    [&family, &pair].into_iter().chain(&equal).chain(&three).for_each(|opened| engine.close(opened.group));
    assert_eq!(engine.census().events, 0, "all is closed");
    assert_eq!(wrong, 0, "counts that are wrong");
}
