//! Which breakpoints this kernel grants, beside the rule as it is written down.
//!
//! What it is: random breakpoints are opened and closed, for threads, for CPUs and for threads on a CPU. Each must be
//! granted, or refused for want of a register, as the model in `pmux_sim::oracle::breakpoint` says.
//!
//! It goes through the library and the engine; `breakpoint_fuzz` asks the kernel without them, for more, and longer.
//!
//! The machine's few registers are shared with every other program. Tests that take some wait for each other, by a lock
//! file. Somebody else's breakpoints do not come at the same step again: a sequence counts as different from the model only if
//! it is so each time.

use crate::common;
use crate::common::breakpoints;
use crate::common::breakpoints::{Alone, Idle, address};
use crate::common::{may_count_cpus, needs, own_process};
use pmux::event::Access;
use pmux::{Counters, CpuChoice, Error, Event, Inherit, Options, ReasonKind, Session, Start, Target};
use pmux_engine::context::{ContextKey, Filter};
use pmux_engine::{CpuId, GroupSpec, OpenError, Opened, Target as EngineTarget, TaskId};
use pmux_linux::cpus::Cpus;
use pmux_linux::host::{KERNEL, LinuxEngine, LinuxHost};
use pmux_sim::oracle::breakpoint::{Kind, Ledger, Refused, Registers, Request, Token, Where};

/// How many breakpoints are asked for or closed in each sequence.
const STEPS: usize = 1500;
const THREADS: usize = 3;
/// How often a sequence may be disturbed by somebody else.
const ATTEMPTS: usize = 3;

fn event(kind: Kind, which: usize) -> Event {
    match kind {
        Kind::Data => Event::breakpoint(address(kind, which), 8, Access::WRITE),
        Kind::Execute => Event::breakpoint(address(kind, 0), Access::EXECUTE.default_len(), Access::EXECUTE),
    }
}

/// A thread, with the model's name for it: thread ids come back.
struct Named {
    thread: Idle,
    task: TaskId,
}

impl Named {
    fn start(task: TaskId) -> Self {
        Self { thread: Idle::start(), task }
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
    fn open(&self, event: Event, thread: Option<&Named>, cpus: &Where, start: Start) -> Option<Held> {
        let tid = thread.map(|named| named.thread.tid);
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
            Err(OpenError::DebugRegisters { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn close(&self, held: Held) {
        match held {
            Held::Library(counters) => drop(counters),
            Held::Engine(opened) => self.engine.close(opened.group),
        }
    }
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
    let mut threads: Vec<_> = (0..THREADS).map(|index| Named::start(TaskId(index as u64))).collect();
    let mut next_task = threads.len() as u64;
    let mut held: Vec<(Token, Held)> = Vec::new();
    let mut story = Story::default();
    for step in 0..STEPS {
        match random.u32(0..100) {
            // Its breakpoints stay until they are closed.
            0 => {
                let index = random.usize(0..threads.len());
                threads[index] = Named::start(TaskId(next_task));
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
    if !own_process() {
        return;
    }
    let Some(session) = common::session() else { return };
    if !needs("root", "the right to count whole CPUs", may_count_cpus(&session)) {
        return;
    }
    let _alone = Alone::wait();
    let online = Cpus::system().online().unwrap();
    let cpus: Vec<_> = online.iter().take(4).map(CpuId).collect();
    let kernel = Kernel {
        session: Session::with_sharing(pmux::Sharing::Off).unwrap(),
        engine: LinuxHost::engine(online.iter()),
    };
    let found = breakpoints::kernel::Kernel::registers(&cpus);
    let why = found.as_ref().err().cloned().unwrap_or_default();
    if !needs("breakpoints", &format!("debug registers, none of them taken by somebody else: {why}"), found.is_ok()) {
        return;
    }
    let registers = found.unwrap();
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
