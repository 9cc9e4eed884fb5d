//! How fast the simulated machine is, engine and all.
//!
//! What it is: engine operations per second at 256 CPUs, one operation at a time and mixed as in life; and what a step of a
//! random run costs, checks included, with few and with many tasks about.
//!
//! `cargo bench -p pmux-sim` prints tables. With `--test` (as `cargo test --benches` passes) or `PMUX_BENCH_SMALL=1`
//! everything runs once, small.

use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::inherit::Attribution;
use pmux_engine::{CpuId, Nanos, Target, TaskId};
use pmux_sim::machine::{Event, Start, World, profiles};
use std::hint::black_box;
use std::time::Instant;

struct Size {
    rounds: usize,
    cpus: u32,
    operations: usize,
    steps: usize,
    tasks: &'static [usize],
}

const FULL: Size = Size { rounds: 25, cpus: 256, operations: 5_000, steps: 5_000, tasks: &[10, 100, 1_000, 10_000] };
const SMALL: Size = Size { rounds: 1, cpus: 8, operations: 200, steps: 50, tasks: &[10, 50] };

/// A machine on whose CPUs tasks with counters run.
struct Bench {
    world: World,
    random: fastrand::Rng,
    tasks: Vec<TaskId>,
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

    fn read(&mut self) -> usize {
        let event = self.event();
        assert!(black_box(self.world.read(event)).is_ok());
        1
    }

    /// Off and on again.
    fn toggle(&mut self) -> usize {
        let event = self.event();
        assert!(self.world.disable(event).is_ok() && self.world.enable(event).is_ok());
        2
    }

    /// One CPU takes the task of another's turn: a switch there.
    fn switch(&mut self) -> usize {
        let (cpu, task) = (self.cpu(), self.task());
        let next = if self.world.running_on(cpu).is_some() { None } else { Some(task) };
        assert!(self.world.place(cpu, next).is_ok());
        1
    }

    fn open_and_close(&mut self) -> usize {
        let task = self.task();
        let event = self.open("instructions", AttrFlags::empty(), Target::task(task));
        self.world.close(event);
        2
    }

    fn fork_and_exit(&mut self) -> usize {
        let task = self.task();
        let child = self.world.fork(task).map(|(child, _)| child);
        assert!(child.and_then(|child| self.world.exit(child)).is_ok());
        2
    }

    /// A tick on every CPU.
    fn tick(&mut self) -> usize {
        self.world.pass(self.world.description().tick);
        self.world.description().cpus as usize
    }

    /// As a machine does them: mostly ticks and switches, some readings, now and then a command.
    fn mixed(&mut self) -> usize {
        let cpus = self.world.description().cpus as usize;
        let mut done = self.tick();
        done += (0..cpus).map(|_| self.switch() + self.read()).sum::<usize>();
        done + (0..cpus / 16 + 1).map(|_| self.toggle()).sum::<usize>()
    }

    fn a_while(&mut self) -> usize {
        let span = Nanos(self.random.u64(1..20_000));
        self.world.pass(span);
        0
    }

    /// A step as random runs take them; what it can have broken is checked.
    fn step(&mut self) {
        let operation: Operation = match self.random.u8(0..16) {
            0..=3 => Self::read,
            4..=6 => Self::toggle,
            7..=10 => Self::switch,
            11..=12 => Self::open_and_close,
            13 => Self::fork_and_exit,
            _ => Self::a_while,
        };
        operation(self);
        self.world.check_step().unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// The best of some rounds of about `operations` operations, ns for each: whatever else the computer does only makes it
/// slower. `operate` says how many it has done.
fn measure(size: &Size, operations: usize, mut operate: impl FnMut() -> usize) -> f64 {
    let mut round = || {
        let start = Instant::now();
        let mut done = 0;
        while done < operations {
            done += operate();
        }
        start.elapsed().as_nanos() as f64 / done.max(1) as f64
    };
    // Once, to warm up.
    round();
    (0..size.rounds).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// What is done, and how many operations that were.
type Operation = fn(&mut Bench) -> usize;

const SINGLE: [(&str, Operation); 7] = [
    ("read", Bench::read),
    ("disable, enable", Bench::toggle),
    ("switch", Bench::switch),
    ("open, close", Bench::open_and_close),
    ("fork, exit", Bench::fork_and_exit),
    ("tick (no event waits)", Bench::tick),
    ("mixed", Bench::mixed),
];

fn operations(size: &Size) {
    println!("\nengine operations on a machine of {} CPUs, a task with two events on each", size.cpus);
    println!("{:28}{:>12}{:>16}", "", "ns", "a second");
    for (name, operation) in SINGLE {
        let mut bench = Bench::new(size.cpus, size.cpus as usize);
        let ns = measure(size, size.operations, || operation(&mut bench));
        println!("{name:28}{ns:>12.0}{:>16.0}", 1e9 / ns);
    }
}

fn steps(size: &Size) {
    println!("\na step of a random run on a machine of {} CPUs, checked, with so many tasks, ns", size.cpus);
    let line = |name: &str, cell: &dyn Fn(usize) -> String| {
        println!("{name:28}{}", size.tasks.iter().map(|&tasks| format!("{:>10}", cell(tasks))).collect::<String>());
    };
    line("", &|tasks| tasks.to_string());
    line("step", &|tasks| {
        let mut bench = Bench::new(size.cpus, tasks);
        let ns = measure(size, size.steps, || {
            bench.step();
            1
        });
        format!("{ns:.0}")
    });
    line("memory alone", &|tasks| format!("{:.0}", memory_alone(tasks, size)));
}

/// What a step takes because memory is far: a step meets about 64 lines of memory that belong to the tasks it is about, of
/// some 8 KiB that each task has. Here they are met and nothing else is done, each line saying where the next one is.
fn memory_alone(tasks: usize, size: &Size) -> f64 {
    const LINES: usize = 128;
    const MET: usize = 64;
    let mut random = fastrand::Rng::with_seed(1);
    let mut memory = vec![[0_usize; 8]; tasks * LINES];
    for block in memory.chunks_mut(LINES) {
        let mut order: Vec<usize> = (0..LINES).collect();
        random.shuffle(&mut order);
        (0..LINES).for_each(|at| block[order[at]][0] = order[(at + 1) % LINES]);
    }
    measure(size, size.steps, || {
        let block = random.usize(0..tasks) * LINES;
        let mut line = 0;
        for _ in 0..MET {
            line = memory[block + line][0];
            memory[block + line][1] += 1;
        }
        black_box(line);
        1
    })
}

fn main() {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    let small = has("--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some_and(|value| value != "0");
    let size = if small { SMALL } else { FULL };
    operations(&size);
    steps(&size);
}
