//! What asking for a debug register costs.
//!
//! What it is: reserve and release through the ledger, for one task again and again and for all tasks in turn, with few and
//! many tasks about; for all CPUs at once; by two threads; and beside the list that walks over everything, in the same run.
//! Where many tasks are gone through, most of the figure may be memory that the processor's caches don't hold: the same
//! walk over as much memory that does nothing but look is printed below it.
//!
//! **Invariant:** reserve and release for a task that is known allocate nothing; that is asserted here.
//!
//! `cargo bench -p pmux-engine --bench ledger` prints tables, `… -- two` one of them (one, mask, two, load). With `--test` (as `cargo test --benches` passes) or
//! `PMUX_BENCH_SMALL=1` everything runs once, small.

use pmux_engine::hw_breakpoint::baseline::List;
use pmux_engine::hw_breakpoint::{BpTarget, Claim, Holder, Kind, Ledger, Locks, Registers, Reservation};
use pmux_engine::{CpuId, LockCell, TaskId};
use std::hint::black_box;
use std::num::NonZeroU8;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

struct Std;

struct SleepLock<T>(Mutex<T>);

impl<T: Send> LockCell<T> for SleepLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Locks for Std {
    type Cell<T: Send> = SleepLock<T>;
    type Word = std::sync::atomic::AtomicU32;
}

const REGISTERS: Registers = Registers::Shared(4);
const CPUS: u32 = 256;
const DATA: Claim = Claim::one(Kind::Data);

struct Size {
    rounds: usize,
    batch: u64,
    tasks: &'static [u64],
    /// Of the load: breakpoints, starters, and threads that each of them starts.
    load: (u64, u64, u64),
    /// How many threads of the load the list has, and how many more it is given; with all of them it would be at it for
    /// minutes.
    for_list: (u64, u64),
}

const FULL: Size =
    Size { rounds: 15, batch: 100_000, tasks: &[10, 1_000, 100_000], load: (4, 64, 64), for_list: (256, 4) };
const SMALL: Size = Size { rounds: 1, batch: 100, tasks: &[10, 100], load: (4, 2, 4), for_list: (4, 2) };

fn everywhere(task: u64) -> BpTarget {
    BpTarget::TaskEverywhere(TaskId(task))
}

fn reserve(ledger: &Ledger<Std>, place: BpTarget) -> Reservation {
    match ledger.reserve(DATA, place, Holder::Opening) {
        Ok(token) => token.commit(),
        Err(refused) => panic!("{refused}"),
    }
}

/// Each of so many tasks holds one register.
fn inhabited(tasks: u64) -> Ledger<Std> {
    let ledger = Ledger::new(REGISTERS, CPUS);
    (0..tasks).for_each(|task| drop(reserve(&ledger, everywhere(task))));
    ledger
}

fn per_operation(took: Duration, operations: u64) -> f64 {
    took.as_secs_f64() * 1e9 / operations as f64
}

fn median(size: &Size, mut round: impl FnMut() -> f64) -> f64 {
    round();
    let mut rounds: Vec<f64> = (0..size.rounds).map(|_| round()).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// A walk over all tasks in no order that a processor could foresee.
fn stray(step: u64, tasks: u64) -> u64 {
    let mixed = step.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27) % tasks
}

fn pair(ledger: &Ledger<Std>, task: u64) {
    assert!(ledger.release(reserve(ledger, everywhere(task))));
}

fn pairs(size: &Size, mut one: impl FnMut(u64)) -> f64 {
    median(size, || {
        let start = Instant::now();
        (0..size.batch).for_each(&mut one);
        per_operation(start.elapsed(), size.batch)
    })
}

/// A line of the processor's cache.
#[repr(align(64))]
struct Line(AtomicU64);

/// A line of the table, and how to find its figure for so many tasks.
type Row = (&'static str, fn(&Size, u64) -> f64);

fn one_thread(size: &Size) {
    println!("\nreserve and release for a task, {CPUS} CPUs, ns for both, with so many tasks holding a register");
    println!("{:44}{}", "", size.tasks.iter().map(|tasks| format!("{tasks:>10}")).collect::<String>());
    let rows: [Row; 4] = [
        ("one of these tasks", |size, tasks| {
            let ledger = inhabited(tasks);
            pairs(size, |_| pair(&ledger, tasks / 2))
        }),
        ("a task that holds nothing", |size, tasks| {
            let ledger = inhabited(tasks);
            pairs(size, |_| pair(&ledger, tasks))
        }),
        ("all of them in no order", |size, tasks| {
            let ledger = inhabited(tasks);
            pairs(size, |step| pair(&ledger, stray(step, tasks)))
        }),
        ("two atomic steps on memory of each, in no order", |size, tasks| {
            let memory: [Vec<Line>; 2] = [0, 1].map(|_| (0..tasks).map(|_| Line(AtomicU64::new(0))).collect());
            pairs(size, |step| {
                let task = stray(step, tasks) as usize;
                let seen = memory[0][task].0.fetch_add(1, Ordering::AcqRel);
                // The second place is not known before the first was seen.
                let other = (tasks as usize - 1 - task) / (1 + usize::from(black_box(seen) == u64::MAX));
                memory[1][other].0.fetch_add(1, Ordering::AcqRel);
            })
        }),
    ];
    for (name, row) in rows {
        println!(
            "{name:44}{}",
            size.tasks.iter().map(|&tasks| format!("{:>10.0}", row(size, tasks))).collect::<String>()
        );
    }
    let ledger = inhabited(10);
    let allocated = allocation_counter::measure(|| pair(&ledger, 5));
    assert_eq!(allocated.count_total, 0, "reserve and release allocate");
}

/// What is asked for all CPUs at once; each task of the ledger holds one register.
type Asking = fn(&Ledger<Std>, &BpTarget);

fn cpu_mask(size: &Size) {
    println!("\non all {CPUS} CPUs at once, us, with so many tasks holding a register");
    println!("{:44}{}", "", size.tasks.iter().map(|tasks| format!("{tasks:>10}")).collect::<String>());
    let all: BpTarget = BpTarget::Cpus((0..CPUS).map(CpuId).collect());
    let rows: [(&str, Asking); 4] = [
        ("reserve and release", |ledger, all| assert!(ledger.release(reserve(ledger, all.clone())))),
        ("refused", refused),
        ("refused, a task with one more gone since", |ledger, all| {
            let more = [(); 2].map(|()| reserve(ledger, everywhere(u64::MAX)));
            refused(ledger, all);
            more.into_iter().for_each(|reservation| assert!(ledger.release(reservation)));
            refused(ledger, all);
        }),
        ("granted, a task with one more gone since", |ledger, all| {
            let more = [(); 3].map(|()| reserve(ledger, everywhere(u64::MAX)));
            more.into_iter().for_each(|reservation| assert!(ledger.release(reservation)));
            let own = [(); 3].map(|()| reserve(ledger, all.clone()));
            own.into_iter().for_each(|reservation| assert!(ledger.release(reservation)));
        }),
    ];
    for (name, row) in rows {
        let figures = size.tasks.iter().map(|&tasks| {
            let ledger = inhabited(tasks);
            // So short that some are over before anybody else wants the CPU.
            let rounds = (size.batch / 5000).max(1);
            let once = |_| {
                let start = Instant::now();
                (0..rounds).for_each(|_| row(&ledger, &all));
                per_operation(start.elapsed(), rounds)
            };
            let ns = (0..10 * size.rounds).map(once).fold(f64::INFINITY, f64::min);
            format!("{:>10.2}", ns / 1000.0)
        });
        println!("{name:44}{}", figures.collect::<String>());
    }
}

/// As many as each CPU has, where a task has one of them.
fn refused(ledger: &Ledger<Std>, all: &BpTarget) {
    let claim = Claim { weight: NonZeroU8::new(4).unwrap_or(NonZeroU8::MAX), ..DATA };
    assert!(ledger.reserve(claim, all.clone(), Holder::Opening).is_err());
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Common {
    Ledger,
    Nothing,
}

/// A task's life in the load: as many breakpoints as it may have, all at once, and all given back.
fn life(ledger: &Ledger<Std>, task: u64) {
    let held = [(); 4].map(|()| reserve(ledger, everywhere(task)));
    held.into_iter().for_each(|reservation| assert!(ledger.release(reservation)));
}

/// What a thread does with a task, and how many pairs of reserve and release that is.
#[derive(Clone, Copy)]
enum Work {
    Pair,
    Life,
}

/// For how long this thread was on a CPU so far, where the system says it: the first number of its scheduler statistics.
fn on_cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

/// So many pairs by each of the threads; how many a second they did together, by the clock and by the time that each was on
/// a CPU.
fn rate(size: &Size, work: Work, threads: u64, common: Common) -> [f64; 2] {
    let ledger = inhabited(0);
    let barrier = Barrier::new(threads as usize);
    let pairs = 10 * size.batch;
    let took: Vec<[Duration; 2]> = std::thread::scope(|scope| {
        let start = |thread: u64| {
            let (ledger, barrier) = (&ledger, &barrier);
            scope.spawn(move || {
                let own = inhabited(0);
                let ledger = if common == Common::Nothing { &own } else { ledger };
                // Each has tasks of its own, in all the books, and has brought them itself.
                let own_task = |number: u64| 2 * number + thread;
                (0..500).for_each(|number| drop(reserve(ledger, everywhere(own_task(number)))));
                barrier.wait();
                let (start, before) = (Instant::now(), on_cpu());
                match work {
                    Work::Pair => {
                        (0..pairs).for_each(|step| pair(ledger, own_task(stray(step + (thread << 32), 500))));
                    }
                    // The ledger has not seen these tasks before.
                    Work::Life => (0..pairs / 4).for_each(|step| life(ledger, own_task(500 + step))),
                }
                let took = start.elapsed();
                [took, on_cpu().zip(before).map_or(took, |(after, before)| after - before)]
            })
        };
        let workers: Vec<_> = (0..threads).map(start).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_default()).collect()
    });
    let longest = took.iter().map(|&[clock, _]| clock).max().unwrap_or_default();
    // A thread that waits for a lock is not on a CPU: that is in the figure by the clock only.
    let by_cpu = took.iter().map(|&[_, cpu]| pairs as f64 / cpu.as_secs_f64().max(1e-9)).sum();
    [(threads * pairs) as f64 / longest.as_secs_f64(), by_cpu]
}

/// How long a line of the cache takes from one thread to the other and back, halved; `None` where they don't run at the same time.
fn passing_ns(passes: u64) -> Option<f64> {
    const PATIENCE: Duration = Duration::from_millis(200);
    let line = Line(AtomicU64::new(0));
    let (line, barrier) = (&line, &Barrier::new(2));
    let play = |me: u64| {
        move || {
            barrier.wait();
            let start = Instant::now();
            for pass in 0..passes {
                while line.0.load(Ordering::Acquire) != 2 * pass + me {
                    if start.elapsed() > PATIENCE {
                        return None;
                    }
                }
                line.0.store(2 * pass + me + 1, Ordering::Release);
            }
            Some(start.elapsed())
        }
    };
    let took = std::thread::scope(|scope| {
        let players = [0, 1].map(|me| scope.spawn(play(me)));
        players.into_iter().map(|player| player.join().ok().flatten()).max().flatten()
    });
    Some(per_operation(took?, 2 * passes))
}

fn two_threads(size: &Size) {
    println!("\nby one thread and by two, millions of pairs of reserve and release a second");
    println!("{:44}{:>10}{:>10}{:>10}{:>10}", "", "by clock", "times", "on a CPU", "times");
    let ways = [
        ("one", 1, Common::Ledger),
        ("two", 2, Common::Ledger),
        // What the machine lets two threads do.
        ("two that have a ledger each", 2, Common::Nothing),
    ];
    let works = [("four of a new task, then all of them back", Work::Life), ("one of a task at a time", Work::Pair)];
    for (what, work) in works {
        println!("{what}:");
        let mut best = [[0.0_f64; 2]; 3];
        // In turn, so that what else the machine does meets all.
        for _ in 0..size.rounds {
            for (best, (_, threads, common)) in best.iter_mut().zip(ways) {
                let rate = rate(size, work, threads, common);
                *best = [best[0].max(rate[0]), best[1].max(rate[1])];
            }
        }
        for (best_of, (name, ..)) in best.iter().zip(ways) {
            let cell = |at: usize| format!("{:>10.1}{:>10.2}", best_of[at] / 1e6, best_of[at] / best[0][at]);
            println!("    {name:40}{}{}", cell(0), cell(1));
        }
    }
    // Whatever two threads touch in turn costs them as much: it is what the figures are limited by.
    let passing = (0..size.rounds).filter_map(|_| passing_ns(size.batch / 10)).reduce(f64::min);
    let passing = passing.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}"));
    println!("{:44}{passing:>10}", "a line of the cache, from one to the other, ns");
}

/// Threads that each hold some breakpoints from their start to their end, as many of them at once as there can be; what one
/// breakpoint costs of it.
fn load(size: &Size) {
    let (breakpoints, starters, threads) = size.load;
    println!(
        "\n{breakpoints} breakpoints in each of {starters} x {threads} threads, {CPUS} CPUs, ns to reserve and release one"
    );
    let ledger = Ledger::<Std>::new(REGISTERS, CPUS);
    let tasks = starters * threads;
    let with_ledger = median(size, || {
        let mut held = Vec::with_capacity((tasks * breakpoints) as usize);
        let start = Instant::now();
        for task in 0..tasks {
            (0..breakpoints).for_each(|_| held.push(reserve(&ledger, everywhere(task))));
        }
        held.drain(..).for_each(|reservation| assert!(ledger.release(reservation)));
        per_operation(start.elapsed(), tasks * breakpoints)
    });
    println!("{:44}{with_ledger:>10.0}", "ledger");
    let list = List::<Std>::new(REGISTERS, CPUS);
    let ask = |task: u64| match list.reserve(DATA, everywhere(task)) {
        Ok(number) => number,
        Err(refused) => panic!("{refused}"),
    };
    let (there, more) = size.for_list;
    for one in 0..there * breakpoints {
        ask(one / breakpoints);
    }
    let start = Instant::now();
    let mut held = Vec::new();
    for task in there..there + more {
        (0..breakpoints).for_each(|_| held.push(ask(task)));
    }
    held.into_iter().for_each(|number| assert!(list.release(number)));
    let with_list = per_operation(start.elapsed(), more * breakpoints);
    println!("{:44}{with_list:>10.0}", format!("list, with {there} of these threads only"));
    println!("{:44}{:>10.0}", "times as fast", with_list / with_ledger);
}

/// A table and the word by which it is asked for.
type Table = (&'static str, fn(&Size));

fn main() {
    let small = std::env::args().any(|arg| arg == "--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some();
    let size = if small { SMALL } else { FULL };
    let tables: [Table; 4] = [("one", one_thread), ("mask", cpu_mask), ("two", two_threads), ("load", load)];
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|it| it == name);
    tables.iter().filter(|(name, _)| wanted(name)).for_each(|(_, table)| table(&size));
}
