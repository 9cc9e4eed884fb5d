//! What switching costs: one task leaves a CPU, another one comes.
//!
//! What it is: nanoseconds for a switch of tasks with k events, with few and many tasks about, where the two are
//! strangers (every counter is stopped, read and programmed anew), where they are clones of one family (counters go on
//! running), and where neither has any; and for one turn of a CPU on which more is wanted than fits. The machine's own
//! part, a few words of memory for each call of a bank, is in the figures.
//!
//! **Invariant:** a switch and a turn that allocate are a failure of this program.
//!
//! `cargo bench -p pmux-engine --bench switch` prints tables. With `--test` (as `cargo test --benches` passes) or
//! `PMUX_BENCH_SMALL=1` everything runs once, small.

use pmux_abi::attr::AttrFlags;
use pmux_engine::target::{ContextKey, Presence};
use pmux_engine::{CpuId, Engine, GroupSpec, Target, TaskContext, TaskId};
use std::time::Instant;

// The tests' machine says `crate::`, and means the engine.
pub(crate) use pmux_engine::{Sharing, cpu_mask, host, hw_breakpoint, id, lock, pmu, ring_buffer, target};

#[allow(dead_code)]
#[path = "../src/testing/mod.rs"]
mod testing;

use testing::locks::Plain;
use testing::{Machine, WIDE, event, flagged, group};

type Bench = Engine<Machine<Plain>>;
type Task = Option<TaskContext<Machine<Plain>>>;

const CPU: CpuId = CpuId(0);
const EVENTS: [usize; 4] = [0, 1, 8, 64];

struct Size {
    rounds: usize,
    switches: usize,
    tasks: &'static [u64],
}

const FULL: Size = Size { rounds: 15, switches: 2_000, tasks: &[2, 100, 10_000, 100_000] };
const SMALL: Size = Size { rounds: 1, switches: 20, tasks: &[2, 100] };

fn open(engine: &Bench, spec: &GroupSpec, target: Target) {
    let opened = engine.open(spec, target).unwrap_or_else(|error| panic!("{error}"));
    engine.enable_group(opened.group).unwrap_or_else(|error| panic!("{error}"));
}

fn out(engine: &Bench, task: u64) {
    engine.host().place(ContextKey::Task(TaskId(task)), Presence::Out);
}

/// Tasks with k events each, that have nothing to do with one another.
fn strangers(engine: &Bench, tasks: u64, events: usize) -> Vec<Task> {
    for task in 0..tasks {
        out(engine, task);
        (0..events).for_each(|_| open(engine, &group(WIDE, &[event(1)]), Target::task(TaskId(task))));
    }
    (0..tasks).map(|task| Some(engine.task(TaskId(task)))).collect()
}

/// Tasks of one family.
fn clones(engine: &Bench, tasks: u64, events: usize) -> Vec<Task> {
    (0..tasks).for_each(|task| out(engine, task));
    for _ in 0..events {
        open(engine, &group(WIDE, &[flagged(1, AttrFlags::INHERIT)]), Target::task(TaskId(0)));
    }
    for task in 1..tasks {
        engine.task_fork(TaskId(0), TaskId(task)).unwrap_or_else(|error| panic!("{error}"));
    }
    (0..tasks).map(|task| Some(engine.task(TaskId(task)))).collect()
}

/// The median over the rounds of what one of `count` operations takes; panics where one allocates.
fn measure(what: &str, size: &Size, mut round: impl FnMut()) -> f64 {
    // Once, to warm up: what a core has never had to do may allocate.
    round();
    let mut rounds: Vec<f64> = Vec::with_capacity(size.rounds);
    for _ in 0..size.rounds {
        let mut ns = 0.0;
        let allocated = allocation_counter::measure(|| {
            let start = Instant::now();
            round();
            ns = start.elapsed().as_nanos() as f64 / size.switches as f64;
        });
        assert_eq!(allocated.count_total, 0, "{what} allocates");
        rounds.push(ns);
    }
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// Tasks come and go, scattered over all of them, so that memory is met as in life.
fn switches(engine: &Bench, tasks: &[Task], size: &Size) -> f64 {
    let mut current: &Task = &None;
    let mut next = 0_usize;
    measure("a switch", size, || {
        for _ in 0..size.switches {
            next = (next + 7919) % tasks.len();
            engine.switch(CPU, current.as_ref(), tasks[next].as_ref());
            current = &tasks[next];
        }
    })
}

fn table(title: &str, size: &Size, make: fn(&Bench, u64, usize) -> Vec<Task>) {
    println!("\n{title}");
    println!("{:12}{}", "", size.tasks.iter().fold(String::new(), |line, tasks| line + &format!("{tasks:>10}")));
    for events in EVENTS {
        let mut line = format!("k={events:<10}");
        for &tasks in size.tasks {
            // Memory, not time, is what limits the last one.
            if tasks * events as u64 > 1_000_000 {
                line += &format!("{:>10}", "-");
                continue;
            }
            let engine = Machine::<Plain>::shared_on(1);
            let tasks = make(&engine, tasks, events);
            line += &format!("{:>10.0}", switches(&engine, &tasks, size));
        }
        println!("{line}");
    }
}

fn turns(size: &Size) {
    println!("\none turn of a CPU with 64 counters and so many groups of one event, ns");
    for events in [64, 65, 128, 256] {
        let engine = Machine::<Plain>::shared_on(1);
        (0..events).for_each(|_| open(&engine, &group(WIDE, &[event(1)]), Target::cpu(CPU)));
        let ns = measure("a turn", size, || (0..size.switches).for_each(|_| engine.tick(CPU)));
        println!("{events:<12}{ns:>10.0}");
    }
}

fn main() {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    let small = has("--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some_and(|value| value != "0");
    let size = if small { SMALL } else { FULL };
    table("a switch between tasks that are strangers, with k events each and so many tasks, ns", &size, strangers);
    table("a switch between clones of one family, with k events each and so many tasks, ns", &size, clones);
    turns(&size);
}
