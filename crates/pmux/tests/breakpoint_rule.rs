//! Which breakpoints this kernel grants, beside the rule as it is written down.
//!
//! What it is: random breakpoints are opened and closed, for threads, for CPUs and for threads on a CPU. Each must be
//! granted, or refused for want of a register, as the model in `pmux_sim::oracle::breakpoint` says.
//!
//! The machine's few registers are shared with every other program. Tests that take some wait for each other, by a lock
//! file. Somebody else's breakpoints do not come at the same step again: a sequence counts as different from the model only if
//! it is so each time.
#![allow(clippy::unwrap_used)]

mod common;

use common::{may_count_cpus, needs};
use pmux::event::Access;
use pmux::{Counters, CpuChoice, Error, Event, Inherit, Options, ReasonKind, Session, Start, Target};
use pmux_engine::context::{ContextKey, Filter};
use pmux_engine::pmu::BankError;
use pmux_engine::{CpuId, GroupSpec, OpenError, Opened, Target as EngineTarget, TaskId};
use pmux_linux::cpus::Cpus;
use pmux_linux::host::{KERNEL, LinuxEngine, LinuxHost};
use pmux_sim::oracle::breakpoint::{Kind, Ledger, Refused, Registers, Request, Token, Where};
use std::fs::File;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// How many breakpoints are asked for or closed in each sequence.
const STEPS: usize = 1500;
const THREADS: usize = 3;
/// How often a sequence may be disturbed by somebody else.
const ATTEMPTS: usize = 3;

fn role(name: &str, _: &str) {
    panic!("there is no role {name}");
}

/// What is waited for; nobody writes to it.
static DATA: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Nobody calls it.
fn never() {
    std::hint::black_box(());
}

fn event(kind: Kind, which: usize) -> Event {
    match kind {
        Kind::Data => Event::breakpoint((&raw const DATA[which % DATA.len()]) as u64, 8, Access::WRITE),
        Kind::Execute => {
            Event::breakpoint(never as fn() as usize as u64, Access::EXECUTE.default_len(), Access::EXECUTE)
        }
    }
}

/// The registers of the machine, and its CPUs, which stay as they are.
struct Alone {
    _hotplug: File,
    _breakpoints: File,
}

impl Alone {
    fn wait() -> Self {
        let take = |name: &str| {
            let path = std::env::temp_dir().join(name);
            // Another user may have made it.
            let file = File::open(&path).or_else(|_| File::create(&path)).unwrap();
            file.lock().unwrap();
            file
        };
        // Always in this order.
        Self { _hotplug: take("pmux-test-hotplug.lock"), _breakpoints: take("pmux-test-breakpoints.lock") }
    }
}

/// A thread that does nothing until it is dropped.
struct Idle {
    tid: i32,
    /// The model's name for it: thread ids come back.
    task: TaskId,
    ends: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Idle {
    fn start(task: TaskId) -> Self {
        let (end, ended) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(pmux_linux::current_tid()).unwrap();
            // The sender is dropped, never used.
            let _ = ended.recv();
        });
        Self { tid: told.recv().unwrap(), task, ends: Some((end, thread)) }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.ends.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

/// A breakpoint of the kernel.
enum Held {
    Library(Box<Counters>),
    /// The library has no target for a thread on one CPU; the engine has.
    Engine(Opened),
}

/// This kernel.
struct Kernel {
    session: Session,
    engine: LinuxEngine,
}

impl Kernel {
    /// Asks for a breakpoint; `None` where no register is left for it.
    fn open(&self, event: Event, thread: Option<&Idle>, cpus: &Where, start: Start) -> Option<Held> {
        let tid = thread.map(|thread| thread.tid);
        let target = match (tid, cpus) {
            (Some(tid), Where::Everywhere) => Target::Threads(vec![tid]),
            (None, Where::Only(cpus)) => Target::Cpus(CpuChoice::Only(cpus.iter().map(|cpu| cpu.0).collect())),
            (Some(tid), Where::Only(cpus)) => return self.open_bound(&event, tid, *cpus.first().unwrap()),
            (None, Where::Everywhere) => panic!("a breakpoint for nobody"),
        };
        let options = Options { inherit: Inherit::Nobody, start, ..Options::default() };
        let counters = match self.session.open(&event.into(), &target, options) {
            Ok(counters) => counters,
            Err(Error::Refused(refusals)) => panic!("{refusals:?}"),
            Err(error) => panic!("{error}"),
        };
        match counters.refusal(0) {
            None => Some(Held::Library(Box::new(counters))),
            Some(refusal) => {
                assert_eq!((refusal.errno, refusal.kind), (Some(28), ReasonKind::NoResource), "{refusal}");
                assert!(refusal.summary.contains("debug registers"), "{refusal}");
                None
            }
        }
    }

    fn open_bound(&self, event: &Event, tid: i32, cpu: CpuId) -> Option<Held> {
        let target = EngineTarget { context: ContextKey::Task(LinuxHost::task(tid)), filter: Filter::OnCpu(cpu) };
        match self.engine.open(&GroupSpec::single(KERNEL, event.attr), target) {
            Ok(opened) => Some(Held::Engine(opened)),
            Err(OpenError::Bank { error: BankError::SlotsExhausted, .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn close(&self, held: Held) {
        match held {
            Held::Library(counters) => drop(counters),
            Held::Engine(opened) => self.engine.close(opened.group),
        }
    }

    /// How many of a kind are granted beside what is held.
    fn free(&self, kind: Kind, thread: Option<&Idle>, cpus: &Where, held: &mut Vec<Held>) -> u32 {
        let before = held.len();
        held.extend((0..64).map_while(|which| self.open(event(kind, which), thread, cpus, Start::Later)));
        (held.len() - before) as u32
    }
}

/// Learns how many registers there are by taking them all. `None` where there are none or somebody else holds some.
fn registers(kernel: &Kernel, cpus: &[CpuId]) -> Option<Registers> {
    let idle = Idle::start(TaskId(0));
    let count = |first: Kind, then: Kind| {
        let mut held = Vec::new();
        let first = kernel.free(first, Some(&idle), &Where::Everywhere, &mut held);
        let beside = kernel.free(then, Some(&idle), &Where::Everywhere, &mut held);
        held.into_iter().for_each(|held| kernel.close(held));
        (first, beside)
    };
    let (data, execute_beside) = count(Kind::Data, Kind::Execute);
    let (execute, _) = count(Kind::Execute, Kind::Data);
    let registers = match execute_beside {
        0 if execute == data => Registers::Shared(data),
        _ => Registers::Separate { execute, data },
    };
    // Whatever somebody else holds for a task or for a CPU is missing on a CPU.
    let whole = |&cpu: &CpuId, kind: Kind, count: u32| {
        let mut held = Vec::new();
        let free = kernel.free(kind, None, &Where::on(cpu), &mut held);
        held.into_iter().for_each(|held| kernel.close(held));
        free == count
    };
    let undisturbed = cpus.iter().all(|cpu| whole(cpu, Kind::Data, data) && whole(cpu, Kind::Execute, execute));
    let alone = data > 0 && (execute_beside == 0 || execute_beside == execute) && undisturbed;
    needs("breakpoints", "debug registers, none of them taken by somebody else", alone).then_some(registers)
}

/// What a sequence came to.
#[derive(Default, Debug)]
struct Story {
    granted: u32,
    refused: u32,
    /// The first step at which the two differed.
    differs: Option<String>,
}

/// One random sequence on both.
fn follow(kernel: &Kernel, cpus: &[CpuId], registers: Registers, seed: u64) -> Story {
    let mut random = fastrand::Rng::with_seed(seed);
    let possible = Cpus::system().possible().unwrap();
    let mut ledger = Ledger::new(possible.iter().map(CpuId), registers);
    let mut threads: Vec<_> = (0..THREADS).map(|index| Idle::start(TaskId(index as u64))).collect();
    let mut next_task = threads.len() as u64;
    let mut held: Vec<(Token, Held)> = Vec::new();
    let mut story = Story::default();
    for step in 0..STEPS {
        match random.u32(0..100) {
            // Its breakpoints stay until they are closed.
            0 => {
                let index = random.usize(0..threads.len());
                threads[index] = Idle::start(TaskId(next_task));
                next_task += 1;
            }
            1..=39 if !held.is_empty() => {
                let (token, it) = held.swap_remove(random.usize(0..held.len()));
                kernel.close(it);
                ledger.release(token).unwrap();
            }
            _ => {
                let kind = if random.u8(0..3) == 0 { Kind::Execute } else { Kind::Data };
                let thread = &threads[random.usize(0..threads.len())];
                let cpu = cpus[random.usize(0..cpus.len())];
                // Tasks more often than CPUs: one breakpoint of a CPU stands in the way of all tasks.
                let (thread, cpus) = match random.u32(0..16) {
                    0..=7 => (Some(thread), Where::Everywhere),
                    8..=12 => (Some(thread), Where::on(cpu)),
                    13 | 14 => (None, Where::on(cpu)),
                    _ => (None, Where::Only(cpus.iter().copied().collect())),
                };
                let task = thread.map(|thread| thread.task);
                let request = Request { kind, task, cpus: cpus.clone(), weight: 1 };
                let start = if random.bool() { Start::Later } else { Start::AtOnce };
                let said = ledger.reserve(request.clone());
                let done = kernel.open(event(kind, step), thread, &cpus, start);
                match (said, done) {
                    (Ok(token), Some(it)) => {
                        story.granted += 1;
                        held.push((token, it));
                    }
                    (Err(Refused::Full { .. }), None) => story.refused += 1,
                    (said, done) => {
                        done.into_iter().for_each(|it| kernel.close(it));
                        let kernel = if said.is_ok() { "refused" } else { "granted" };
                        story.differs =
                            Some(format!("step {step}: the kernel {kernel} {request:?}; the model says {said:?}"));
                        break;
                    }
                }
            }
        }
    }
    held.into_iter().for_each(|(_, it)| kernel.close(it));
    story
}

#[test]
fn this_kernel_keeps_the_rule() {
    let Some(session) = common::session() else { return };
    if !needs("root", "the right to count whole CPUs", may_count_cpus(&session)) {
        return;
    }
    let _alone = Alone::wait();
    let online = Cpus::system().online().unwrap();
    let cpus: Vec<_> = online.iter().take(4).map(CpuId).collect();
    let kernel = Kernel { session: Session::new().unwrap(), engine: LinuxHost::engine(online.iter()) };
    let Some(registers) = registers(&kernel, &cpus) else { return };
    println!("{registers:?} on {} CPUs", cpus.len());
    for seed in 1..=4 {
        let mut differences = Vec::new();
        let story = loop {
            let story = follow(&kernel, &cpus, registers, seed);
            match &story.differs {
                None => break story,
                Some(what) => differences.push(what.clone()),
            }
            assert!(differences.len() < ATTEMPTS, "seed {seed}: {differences:#?}");
        };
        println!(
            "seed {seed}: {STEPS} steps, {} granted, {} refused, disturbed {} times",
            story.granted,
            story.refused,
            differences.len()
        );
        assert!(story.granted > 300 && story.refused > 100, "{story:?}");
    }
    assert_eq!((kernel.session.census(), kernel.engine.census()), Default::default());
}
