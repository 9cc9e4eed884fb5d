//! How fast the simulated machine is, engine and all.
//!
//! What it is: engine operations per second at 256 CPUs, one operation at a time and mixed as in life; and what a step of a
//! random run costs, checks included, with few and with many tasks about.
//!
//! `cargo bench -p pmux-sim` prints tables. With `--test` (as `cargo test --benches` passes) or `PMUX_BENCH_SMALL=1`
//! everything runs once, small.

use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::family::Attribution;
use pmux_engine::{CpuId, Nanos, Target, TaskId};
use pmux_sim::machine::{Event, Start, World, profiles};
use std::hint::black_box;
use std::time::Instant;

/// How much is done.
struct Size {
    rounds: usize,
    cpus: u32,
    operations: usize,
    steps: usize,
    tasks: &'static [usize],
}

const FULL: Size = Size { rounds: 25, cpus: 256, operations: 50_000, steps: 5_000, tasks: &[10, 100, 1_000, 10_000] };
const SMALL: Size = Size { rounds: 1, cpus: 8, operations: 200, steps: 50, tasks: &[10, 50] };

/// A machine on whose CPUs tasks with counters run.
struct Bench {
    world: World,
    random: fastrand::Rng,
    tasks: Vec<TaskId>,
    /// Two events of each task.
    events: Vec<Event>,
}

impl Bench {
    fn new(cpus: u32, tasks: usize) -> Self {
        let mut world = World::new(profiles::intel_skylake(cpus), 1).unwrap_or_else(|error| panic!("{error}"));
        world.attribute(Attribution::Totals);
        let mut bench = Self { world, random: fastrand::Rng::with_seed(1), tasks: Vec::new(), events: Vec::new() };
        for index in 0..tasks {
            let task = bench.world.task_on(CpuId(index as u32 % cpus));
            bench.tasks.push(task);
            for name in ["cycles", "page-faults"] {
                let event = bench.open(name, AttrFlags::INHERIT, Target::task(task));
                bench.events.push(event);
            }
        }
        for (cpu, &task) in (0..cpus).zip(&bench.tasks) {
            let placed = bench.world.place(CpuId(cpu), Some(task));
            assert!(placed.is_ok());
        }
        bench
    }

    fn open(&mut self, name: &str, flags: AttrFlags, target: Target) -> Event {
        let (pmu, attr) = self.world.event(name).unwrap_or_else(|| panic!("no event {name}"));
        let opened = self.world.open(&[(pmu, Attr { flags, ..attr })], target, Start::Enabled);
        opened.map_or_else(|error| panic!("{error}"), |events| events[0])
    }

    fn cpu(&mut self) -> CpuId {
        CpuId(self.random.u32(0..self.world.description().cpus))
    }

    fn event(&mut self) -> Event {
        self.events[self.random.usize(0..self.events.len())]
    }

    fn task(&mut self) -> TaskId {
        self.tasks[self.random.usize(0..self.tasks.len())]
    }

    fn read(&mut self) {
        let event = self.event();
        assert!(black_box(self.world.read(event)).is_ok());
    }

    /// Off and on again: two operations.
    fn toggle(&mut self) {
        let event = self.event();
        assert!(self.world.disable(event).is_ok() && self.world.enable(event).is_ok());
    }

    /// One CPU takes the task of another's turn: a switch there.
    fn switch(&mut self) {
        let (cpu, task) = (self.cpu(), self.task());
        let next = if self.world.running_on(cpu).is_some() { None } else { Some(task) };
        assert!(self.world.place(cpu, next).is_ok());
    }

    /// Two operations.
    fn open_and_close(&mut self) {
        let task = self.task();
        let event = self.open("instructions", AttrFlags::empty(), Target::task(task));
        self.world.close(event);
    }

    /// Two operations.
    fn fork_and_exit(&mut self) {
        let task = self.task();
        let child = self.world.fork(task).map(|(child, _)| child);
        assert!(child.and_then(|child| self.world.exit(child)).is_ok());
    }

    /// A step as random runs take them: something is done, a little time passes for one CPU's worth of work, and what that can
    /// have broken is checked.
    fn step(&mut self) {
        match self.random.u8(0..16) {
            0..=3 => self.read(),
            4..=6 => self.toggle(),
            7..=10 => self.switch(),
            11..=12 => self.open_and_close(),
            13 => self.fork_and_exit(),
            _ => {
                let span = Nanos(self.random.u64(1..20_000));
                self.world.pass(span);
            }
        }
        self.world.check_step().unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// The best of some rounds of `operations` operations, ns for each: whatever else the computer does only makes it slower.
fn measure(rounds: usize, operations: usize, mut round: impl FnMut()) -> f64 {
    round();
    let times = (0..rounds).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_nanos() as f64 / operations.max(1) as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

type Operation = fn(&mut Bench);

fn operations(size: &Size) {
    println!("\nengine operations on a machine of {} CPUs, a task with two events on each", size.cpus);
    println!("{:28}{:>12}{:>16}", "", "ns", "a second");
    let single: [(&str, usize, Operation); 5] = [
        ("read", 1, Bench::read),
        ("disable, enable", 2, Bench::toggle),
        ("switch", 1, Bench::switch),
        ("open, close", 2, Bench::open_and_close),
        ("fork, exit", 2, Bench::fork_and_exit),
    ];
    for (name, count, operation) in single {
        let mut bench = Bench::new(size.cpus, size.cpus as usize);
        let times = size.operations / 10 / count;
        let ns = measure(size.rounds, times * count, || (0..times).for_each(|_| operation(&mut bench)));
        println!("{name:28}{ns:>12.0}{:>16.0}", 1e9 / ns);
    }
    let mut bench = Bench::new(size.cpus, size.cpus as usize);
    let tick = bench.world.description().tick;
    let times = size.operations / 10 / size.cpus as usize + 1;
    let ns = measure(size.rounds, times * size.cpus as usize, || (0..times).for_each(|_| bench.world.pass(tick)));
    println!("{:28}{ns:>12.0}{:>16.0}", "tick (nobody waits)", 1e9 / ns);
    // As a machine does them: mostly ticks and switches, some readings, now and then a command.
    let mut bench = Bench::new(size.cpus, size.cpus as usize);
    let mut done = 0;
    let ns = measure(size.rounds, 1, || {
        done = 0;
        while done < size.operations {
            bench.world.pass(tick);
            done += size.cpus as usize;
            for _ in 0..size.cpus {
                bench.switch();
                bench.read();
            }
            done += 2 * size.cpus as usize;
            for _ in 0..size.cpus / 16 + 1 {
                bench.toggle();
                done += 2;
            }
        }
    }) / done.max(1) as f64;
    println!("{:28}{ns:>12.0}{:>16.0}", "mixed", 1e9 / ns);
}

fn steps(size: &Size) {
    println!("\na step of a random run on a machine of {} CPUs, checked, with so many tasks", size.cpus);
    println!("{:28}{:>12}{:>16}", "tasks", "ns", "a second");
    for &tasks in size.tasks {
        let mut bench = Bench::new(size.cpus, tasks);
        let ns = measure(size.rounds, size.steps, || (0..size.steps).for_each(|_| bench.step()));
        println!("{tasks:<28}{ns:>12.0}{:>16.0}", 1e9 / ns);
    }
}

fn main() {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    let small = has("--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some_and(|value| value != "0");
    let size = if small { SMALL } else { FULL };
    operations(&size);
    steps(&size);
}
