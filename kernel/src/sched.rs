//! Tasks, and which of them runs on which CPU.
//!
//! Linux: `__schedule`, `context_switch`, `finish_task_switch` (kernel/sched/core.c).
//!
//! What it is: a queue for each CPU, round robin; a CPU without tasks takes one of another queue. A task that leaves a CPU is put into a
//! queue by the task that comes after it, when its stack has been left. Read first: [`schedule`].
//!
//! **Invariant:** a task is in one place: in one queue, or current on one CPU, or dead.

use crate::arch::context::{self, Context};
use crate::arch::lock::IrqLock;
use crate::arch::table::{self, AddressSpace};
use crate::arch::{self, CPUS, Frame, InterruptsOff, STATE_EL0, gic};
use crate::host::{self, TaskEvents};
use crate::program::Loaded;
use crate::software::Totals;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use pmux_engine::engine::Exec;
use spin::Once;

/// How long a task runs while others wait.
pub const SLICE_NS: u64 = 4_000_000;
/// All CPUs.
pub const ALL: u32 = (1 << CPUS) - 1;
/// No CPU.
const NOWHERE: u32 = u32::MAX;
/// The status of a task that has not ended.
const RUNS: u64 = u64::MAX;

/// A task does not wait.
const RUNS_ON: u32 = 0;
/// It will wait once it has left its CPU.
const PARKS: u32 = 1;
/// It waits, and is in no queue.
const PARKED: u32 = 2;

/// A task.
pub struct Task {
    /// Its number.
    pub pid: u64,
    context: Arc<Context>,
    /// Its memory; `None` for the kernel's own tasks.
    space: IrqLock<Option<Arc<AddressSpace>>>,
    /// The CPUs that it may run on.
    affinity: AtomicU32,
    /// The CPU that it runs on, or [`NOWHERE`].
    on_cpu: AtomicU32,
    /// For the engine; the kernel's own tasks have none.
    events: Once<TaskEvents>,
    /// What has happened in it.
    pub totals: Arc<Totals>,
    status: AtomicU64,
    /// Whether it waits for [`wake`]: [`RUNS_ON`], [`PARKS`] or [`PARKED`].
    parked: AtomicU32,
    children: IrqLock<Vec<Arc<Task>>>,
    /// How often it was taken from a CPU by the tick.
    pub preempted: AtomicU64,
    /// How often it came to another CPU.
    pub migrations: AtomicU64,
    last_cpu: AtomicU64,
}

struct Cpu {
    queue: IrqLock<VecDeque<Arc<Task>>>,
    current: IrqLock<Option<Arc<Task>>>,
    /// The task that has just left this CPU, until its stack has been left.
    left: IrqLock<Option<Arc<Task>>>,
    idle: IrqLock<Option<Arc<Task>>>,
    /// Whether it runs, and its counters are there.
    there: AtomicBool,
    /// Whether it takes tasks: it is there, and the engine knows.
    online: AtomicBool,
    resched: AtomicBool,
    ticks: AtomicU64,
    calls: AtomicU64,
    totals: Once<Arc<Totals>>,
}

static CPU: [Cpu; CPUS] = [const {
    Cpu {
        queue: IrqLock::new(VecDeque::new()),
        current: IrqLock::new(None),
        left: IrqLock::new(None),
        idle: IrqLock::new(None),
        there: AtomicBool::new(false),
        online: AtomicBool::new(false),
        resched: AtomicBool::new(false),
        ticks: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        totals: Once::new(),
    }
}; CPUS];

/// Whether CPUs without tasks have no ticks.
static STILL: AtomicBool = AtomicBool::new(false);
static BY_PID: IrqLock<BTreeMap<u64, Weak<Task>>> = IrqLock::new(BTreeMap::new());
static NEXT_PID: AtomicU64 = AtomicU64::new(1);

impl Task {
    fn new(context: Arc<Context>, space: Option<Arc<AddressSpace>>, affinity: u32) -> Arc<Self> {
        let task = Arc::new(Self {
            pid: NEXT_PID.fetch_add(1, Ordering::Relaxed),
            context,
            space: IrqLock::new(space),
            affinity: AtomicU32::new(affinity),
            on_cpu: AtomicU32::new(NOWHERE),
            events: Once::new(),
            totals: Arc::default(),
            status: AtomicU64::new(RUNS),
            parked: AtomicU32::new(RUNS_ON),
            children: IrqLock::new(Vec::new()),
            preempted: AtomicU64::new(0),
            migrations: AtomicU64::new(0),
            last_cpu: AtomicU64::new(u64::MAX),
        });
        BY_PID.lock().insert(task.pid, Arc::downgrade(&task));
        task
    }

    /// The status that it ended with.
    pub fn status(&self) -> Option<u32> {
        let status = self.status.load(Ordering::Acquire);
        (status != RUNS).then_some(status as u32)
    }

    /// Its memory.
    pub fn space(&self) -> Option<Arc<AddressSpace>> {
        self.space.lock().clone()
    }

    /// Lets it run on these CPUs only. It goes there when it is scheduled next.
    pub fn set_affinity(&self, cpus: u32) {
        self.affinity.store(cpus, Ordering::Relaxed);
    }

    fn may_run_on(&self, cpu: usize) -> bool {
        self.affinity.load(Ordering::Relaxed) >> cpu & 1 == 1
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        BY_PID.lock().remove(&self.pid);
    }
}

/// How many tasks there are, with ended ones whose status may still be asked for.
pub fn tasks() -> u64 {
    BY_PID.lock().len() as u64
}

/// The CPU that a task runs on.
pub fn cpu_of(pid: u64) -> Option<usize> {
    // The lock is free again before the task may go: its end takes it.
    let task = BY_PID.lock().get(&pid)?.upgrade();
    let cpu = task?.on_cpu.load(Ordering::Acquire);
    (cpu != NOWHERE).then_some(cpu as usize)
}

/// A task by its number.
pub fn by_pid(pid: u64) -> Option<Arc<Task>> {
    BY_PID.lock().get(&pid).and_then(Weak::upgrade)
}

/// What has happened in a task so far.
pub fn totals_of(pid: u64) -> Arc<Totals> {
    by_pid(pid).map(|task| Arc::clone(&task.totals)).unwrap_or_default()
}

/// What has happened on a CPU so far.
pub fn totals_of_cpu(cpu: usize) -> Arc<Totals> {
    Arc::clone(CPU[cpu].totals.call_once(Arc::default))
}

/// The program that runs here has come to a page that is not there: maps one, where it may have one. With interrupts off.
pub fn page_fault(address: u64) -> bool {
    let task = current();
    let fresh = table::FRESH.contains(&address);
    if let (true, Some(space)) = (fresh, task.space()) {
        space.map(address);
        task.totals.faults();
        totals_of_cpu(arch::cpu()).faults();
    }
    fresh
}

/// This CPU begins. With interrupts off.
pub fn begin(cpu: usize) {
    let this = &CPU[cpu];
    let idle = this.idle.lock().get_or_insert_with(|| Task::new(Context::of_cpu(), None, 1 << cpu)).clone();
    context::begin(cpu, Arc::clone(&idle.context));
    *this.current.lock() = Some(idle);
    *this.left.lock() = None;
    table::activate(None);
    totals_of_cpu(cpu).runs();
    this.there.store(true, Ordering::Release);
    // Without an engine nothing is to be told first.
    this.online.store(!host::is_made(), Ordering::Release);
    arch::set_timer(SLICE_NS);
}

/// What a CPU does without a task; it ends where the CPU is to go offline.
pub fn idle(cpu: usize) -> ! {
    arch::with_interrupts(host::cpu_online);
    CPU[cpu].online.store(true, Ordering::Release);
    loop {
        schedule();
        let off = InterruptsOff::new();
        if !is_online(cpu) {
            arch::with_interrupts(host::cpu_offline);
            CPU[cpu].there.store(false, Ordering::Release);
            arch::cpu_off();
        }
        if CPU[cpu].queue.lock().is_empty() {
            let still = STILL.load(Ordering::Relaxed);
            if still {
                arch::stop_timer();
            }
            arch::wait_for_interrupt();
            if still {
                arch::set_timer(SLICE_NS);
            }
        }
        drop(off);
    }
}

/// The task that runs here.
pub fn current() -> Arc<Task> {
    let _off = InterruptsOff::new();
    CPU[arch::cpu()].current.lock().clone().expect("a CPU runs a task, or idles")
}

/// Lets a program run. It is a child of the task that calls.
pub fn spawn(program: Loaded, argument: u64, affinity: u32) -> Arc<Task> {
    let task = prepare(program, argument, affinity);
    release(&task);
    task
}

/// A program that does not run before [`release`]. It is a child of the task that calls.
pub fn prepare(program: Loaded, argument: u64, affinity: u32) -> Arc<Task> {
    let mut frame = Frame { sp: program.stack, pc: program.entry, state: STATE_EL0, ..Frame::default() };
    frame.x[0] = argument;
    child(&frame, Some(program.space), affinity)
}

/// Lets a prepared program run.
pub fn release(task: &Arc<Task>) {
    enqueue(Arc::clone(task));
}

/// Makes a copy of the task that calls, which goes on with the result 0.
pub fn fork(frame: &Frame) -> Arc<Task> {
    let task = current();
    let space = task.space().map(|space| Arc::new(space.fork()));
    let mut frame = frame.clone();
    frame.x[0] = 0;
    let child = child(&frame, space, task.affinity.load(Ordering::Relaxed));
    enqueue(Arc::clone(&child));
    child
}

fn child(frame: &Frame, space: Option<Arc<AddressSpace>>, affinity: u32) -> Arc<Task> {
    let task = Task::new(Context::new(frame), space, affinity);
    if let Some(events) = host::events_of(task.pid) {
        task.events.call_once(|| events);
    }
    let parent = current();
    parent.children.lock().push(Arc::clone(&task));
    host::fork(parent.pid, task.pid);
    task
}

/// Lets a function of the kernel run as a task, at EL1. It must not return.
pub fn spawn_kernel(work: extern "C" fn() -> !) {
    /// EL1, its own stack pointer, interrupts on.
    const STATE_EL1: u64 = 5;
    let frame = Frame { pc: work as *const () as u64, state: STATE_EL1, ..Frame::default() };
    enqueue(Task::new(Context::new(&frame), None, ALL));
}

/// The task that calls goes on as another program.
pub fn exec(program: Loaded, argument: u64, rights: Exec, frame: &mut Frame) {
    host::exec(current().pid, rights);
    let _off = InterruptsOff::new();
    *frame = Frame { sp: program.stack, pc: program.entry, state: STATE_EL0, ..Frame::default() };
    frame.x[0] = argument;
    let old = current().space.lock().replace(Arc::clone(&program.space));
    table::activate(Some(program.space));
    drop(old);
}

/// The task that calls ends. Its children have no parent then: what they hold is given back when they end.
pub fn exit(status: u32) -> ! {
    {
        let task = current();
        host::exit(task.pid);
        let children = core::mem::take(&mut *task.children.lock());
        drop(children);
        let _off = InterruptsOff::new();
        table::activate(None);
        drop(task.space.lock().take());
        task.status.store(status.into(), Ordering::Release);
    }
    schedule();
    unreachable!("an ended task was scheduled");
}

/// A child of the task that calls which has ended, and its status. Waits for it; `None` where it has no children.
pub fn wait() -> Option<(u64, u32)> {
    loop {
        let ended = try_wait();
        if ended.is_some() || current().children.lock().is_empty() {
            return ended;
        }
        schedule();
    }
}

/// The same, without waiting.
pub fn try_wait() -> Option<(u64, u32)> {
    let task = current();
    let mut children = task.children.lock();
    let at = children.iter().position(|child| child.status().is_some())?;
    let child = children.swap_remove(at);
    // The lock is free again before the child may go.
    drop(children);
    child.status().map(|status| (child.pid, status))
}

/// Puts a task into the queue of a CPU that it may run on, and wakes that one.
fn enqueue(task: Arc<Task>) {
    let _off = InterruptsOff::new();
    let here = arch::cpu();
    let fits = |cpu: usize| is_online(cpu) && task.may_run_on(cpu);
    let shortest = (0..CPUS).filter(|&cpu| fits(cpu)).min_by_key(|&cpu| (waiting(cpu), cpu != here));
    // As in Linux, a task whose CPUs are all offline runs anywhere.
    let cpu = shortest.unwrap_or_else(|| {
        task.set_affinity(ALL);
        (0..CPUS).find(|&cpu| is_online(cpu)).unwrap_or(here)
    });
    CPU[cpu].queue.lock().push_back(task);
    if !is_online(cpu) {
        // It has gone offline meanwhile: its tasks are for others.
        drain(cpu);
    } else if cpu != here {
        gic::call(cpu);
    }
}

/// The task that calls waits for [`wake`] from its next [`schedule`] on. What it waits for is to be looked at after this.
pub fn park() {
    current().parked.store(PARKS, Ordering::Release);
}

/// A task does not wait any more.
pub fn wake(task: &Arc<Task>) {
    if task.parked.swap(RUNS_ON, Ordering::AcqRel) == PARKED {
        enqueue(Arc::clone(task));
    }
}

/// How many tasks want a CPU.
fn waiting(cpu: usize) -> usize {
    let this = &CPU[cpu];
    let busy = this.current.lock().as_ref().is_some_and(|task| task.context.is_task());
    this.queue.lock().len() + usize::from(busy)
}

fn drain(cpu: usize) {
    loop {
        let Some(task) = CPU[cpu].queue.lock().pop_front() else {
            return;
        };
        enqueue(task);
    }
}

/// Runs the next task of this CPU, and returns when the task that calls has its turn again. Not with a lock held.
pub fn schedule() {
    let _off = InterruptsOff::new();
    let cpu = arch::cpu();
    let this = &CPU[cpu];
    this.resched.store(false, Ordering::Relaxed);
    let prev = this.current.lock().clone().expect("a CPU runs a task, or idles");
    let Some(next) = next(cpu, &prev) else { return };
    let migrated = next.last_cpu.swap(cpu as u64, Ordering::Relaxed);
    if next.context.is_task() && migrated != u64::MAX && migrated != cpu as u64 {
        next.migrations.fetch_add(1, Ordering::Relaxed);
    }
    prev.on_cpu.store(NOWHERE, Ordering::Release);
    next.on_cpu.store(cpu as u32, Ordering::Release);
    next.totals.runs();
    host::switch(prev.events.get(), next.events.get());
    prev.totals.rests();
    table::activate(next.space());
    // A task that has ended does not come back to drop what is on its stack: nothing is.
    let to = Arc::clone(&next.context);
    *this.current.lock() = Some(next);
    *this.left.lock() = Some(prev);
    context::switch(to);
    task_begins();
}

/// What each task does first after a switch: the one that it came after is on no stack any more. Linux: `finish_task_switch`.
pub fn task_begins() {
    context::left();
    let left = CPU[arch::cpu()].left.lock().take();
    if let Some(left) = left
        && left.context.is_task()
        && left.status().is_none()
        && left.parked.compare_exchange(PARKS, PARKED, Ordering::AcqRel, Ordering::Acquire) != Ok(PARKS)
    {
        enqueue(left);
    }
}

/// Which task is next. `None` where the one that runs goes on.
fn next(cpu: usize, prev: &Arc<Task>) -> Option<Arc<Task>> {
    let this = &CPU[cpu];
    let parks = prev.parked.load(Ordering::Acquire) == PARKS;
    let goes_on = prev.context.is_task() && prev.status().is_none() && !parks && prev.may_run_on(cpu) && is_online(cpu);
    if !is_online(cpu) {
        drain(cpu);
    } else if let Some(task) = take(cpu, cpu) {
        return Some(task);
    } else if !goes_on {
        // Another CPU has more than it can run.
        let others = (0..CPUS).filter(|&other| other != cpu && is_online(other));
        if let Some(task) = others.filter(|&other| waiting(other) > 1).find_map(|other| take(other, cpu)) {
            return Some(task);
        }
    }
    let idle = this.idle.lock().clone()?;
    (!goes_on && !Arc::ptr_eq(&idle, prev)).then_some(idle)
}

/// Takes the first task of a queue that may run on a CPU.
fn take(of: usize, cpu: usize) -> Option<Arc<Task>> {
    let mut queue = CPU[of].queue.lock();
    let at = queue.iter().position(|task| task.may_run_on(cpu))?;
    queue.remove(at)
}

/// The timer of this CPU. Interrupt.
pub fn tick() {
    let this = &CPU[arch::cpu()];
    this.ticks.fetch_add(1, Ordering::Relaxed);
    arch::set_timer(SLICE_NS);
    this.resched.store(true, Ordering::Relaxed);
}

/// Another CPU wants this one to look at its queue. Interrupt.
pub fn called() {
    let this = &CPU[arch::cpu()];
    this.calls.fetch_add(1, Ordering::Relaxed);
    this.resched.store(true, Ordering::Relaxed);
}

/// The task that runs here may have to make room for another one: on the way back to EL0.
pub fn preempt() {
    let wants = {
        let _off = InterruptsOff::new();
        CPU[arch::cpu()].resched.load(Ordering::Relaxed)
    };
    if wants {
        let task = current();
        task.preempted.fetch_add(1, Ordering::Relaxed);
        drop(task);
        schedule();
    }
}

/// Lets other tasks run, of this CPU or of another: for a task that looks again and again for what they do.
pub fn give_way() {
    schedule();
    arch::pause();
}

/// Whether a CPU runs, tasks or none.
pub fn is_there(cpu: usize) -> bool {
    CPU[cpu].there.load(Ordering::Acquire)
}

/// Whether a CPU takes tasks.
pub fn is_online(cpu: usize) -> bool {
    CPU[cpu].online.load(Ordering::Acquire)
}

/// Has a CPU give its tasks away and switch itself off. Waits for it, and for one that comes to be there first; not for the CPU that
/// calls.
pub fn offline(cpu: usize) {
    // One that comes says at the end that it is online: after this, it would be forgotten that it is to go.
    while CPU[cpu].online.compare_exchange(true, false, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        give_way();
    }
    while !arch::is_off(cpu) {
        gic::call(cpu);
        give_way();
    }
}

/// From now on CPUs without tasks have no ticks, or have them again; events of such a CPU take no turns meanwhile.
pub fn set_still(still: bool) {
    STILL.store(still, Ordering::Relaxed);
    (0..CPUS).filter(|&cpu| is_online(cpu)).for_each(gic::call);
}

/// Ticks and calls that a CPU has seen.
pub fn seen(cpu: usize) -> (u64, u64) {
    (CPU[cpu].ticks.load(Ordering::Relaxed), CPU[cpu].calls.load(Ordering::Relaxed))
}
