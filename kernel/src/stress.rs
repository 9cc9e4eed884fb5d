//! `kernel/run stress SECONDS`: programs, events and CPUs come and go at random, and every count is right in the end.
//!
//! What it is: three tasks of the kernel start programs, open events on them, switch, read and close them; one more has CPUs go and come
//! back.

use crate::arch::{self, CPUS};
use crate::counting::{close, increments, open, read};
use crate::report::{Report, bring_back, soon};
use crate::sched::{self, ALL, Task};
use crate::{host, println, program};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pmux_abi::attr::AttrFlags;
use pmux_engine::{Opened, Sharing};

/// Most programs of a task at a time.
const MOST: usize = 4;
const WORKERS: u32 = 3;

static END_NS: AtomicU64 = AtomicU64::new(0);
static LEFT: AtomicU32 = AtomicU32::new(0);
static PROGRAMS: AtomicU64 = AtomicU64::new(0);
static EXACT: AtomicU64 = AtomicU64::new(0);
static IN_TURNS: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
static SEED: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A program, with the event that says how many increments it made, and others.
struct Run {
    task: Arc<Task>,
    event: Opened,
    increments: u64,
    others: Vec<Opened>,
}

/// A call of the engine.
fn call<R>(work: impl FnOnce() -> R) -> R {
    CALLS.fetch_add(1, Ordering::Relaxed);
    work()
}

fn begin(random: &mut Random) -> Option<Run> {
    let size = 1 + random.below(2000);
    let (name, argument, made, flags) = match random.below(4) {
        0 => ("counts", size, size, AttrFlags::empty()),
        1 => ("execs_counts", size, 2 * size, AttrFlags::empty()),
        2 => ("moves_counts", size % 100, size % 100, AttrFlags::empty()),
        _ => ("forks_counts", size % 4, 100 * ((2 << (size % 4)) - 1), AttrFlags::INHERIT),
    };
    let task = sched::prepare(program::load(name)?, argument, ALL);
    let event = call(|| open(&task, &increments(0, flags)))?;
    sched::release(&task);
    PROGRAMS.fetch_add(1, Ordering::Relaxed);
    Some(Run { task, event, increments: made, others: Vec::new() })
}

fn end(run: &Run) {
    let count = call(|| read(&run.event));
    let result = match count {
        Some(count) if count.value == run.increments => &EXACT,
        // It waited for a counter while the program made some.
        Some(count) if count.running < count.enabled && count.value < run.increments => &IN_TURNS,
        other => {
            println!("wrong: {other:?}, not {}", run.increments);
            &WRONG
        }
    };
    result.fetch_add(1, Ordering::Relaxed);
    run.others.iter().chain([&run.event]).for_each(|opened| call(|| close(opened)));
}

extern "C" fn worker() -> ! {
    let mut random = Random(SEED.fetch_add(0x1234_5678_9abc_def1, Ordering::Relaxed));
    let mut runs: Vec<Run> = Vec::new();
    while arch::now_ns() < END_NS.load(Ordering::Relaxed) || !runs.is_empty() {
        let ends = arch::now_ns() >= END_NS.load(Ordering::Relaxed);
        if let Some(at) = runs.iter().position(|run| run.task.status().is_some()) {
            end(&runs.swap_remove(at));
            while let Some((_, status)) = sched::try_wait() {
                WRONG.fetch_add(u64::from(status != 0), Ordering::Relaxed);
            }
        } else if runs.len() < MOST && !ends {
            runs.extend(begin(&mut random));
        } else if !runs.is_empty() {
            let at = random.below(runs.len() as u64) as usize;
            let run = &mut runs[at];
            match random.below(5) {
                0 if run.others.len() < 3 => {
                    let number = 1 + random.below(9);
                    run.others.extend(call(|| open(&run.task, &increments(number, AttrFlags::empty()))));
                }
                1 => {
                    if let Some(opened) = run.others.pop() {
                        call(|| close(&opened));
                    }
                }
                2 => {
                    let _count = call(|| read(&run.event));
                }
                3 => {
                    for opened in &run.others {
                        let _ended = call(|| host::with(|engine| engine.disable_group(opened.group)));
                        let _ended = call(|| host::with(|engine| engine.enable_group(opened.group)));
                    }
                }
                _ => sched::schedule(),
            }
        }
    }
    LEFT.fetch_sub(1, Ordering::AcqRel);
    sched::exit(0)
}

/// For so many seconds.
pub fn lines(report: &mut Report, seconds: u64) {
    sched::current().set_affinity(1);
    sched::schedule();
    host::init(Sharing::On);
    let before = host::with(|engine| engine.census());
    END_NS.store(arch::now_ns() + seconds * 1_000_000_000, Ordering::Relaxed);
    LEFT.store(WORKERS, Ordering::Relaxed);
    (0..WORKERS).for_each(|_| sched::spawn_kernel(worker));
    let (mut random, mut switches) = (Random(7), 0_u64);
    while LEFT.load(Ordering::Acquire) > 0 {
        let cpu = 1 + random.below(CPUS as u64 - 1) as usize;
        let until = arch::now_ns() + random.below(50_000_000);
        while arch::now_ns() < until && LEFT.load(Ordering::Acquire) > 0 {
            sched::schedule();
        }
        if arch::now_ns() < END_NS.load(Ordering::Relaxed) {
            sched::offline(cpu);
            let back = bring_back(cpu);
            if !back {
                report.line("a CPU that came back", cpu, 0);
            }
            switches += 1;
        }
    }
    let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
    println!(
        "{} programs, {} calls, {switches} times CPU_OFF and CPU_ON: {} counts exact, {} of events that waited for a counter",
        of(&PROGRAMS),
        of(&CALLS),
        of(&EXACT),
        of(&IN_TURNS)
    );
    report.line("counts that are wrong", of(&WRONG), 0);
    report.line("programs whose count was looked at", of(&EXACT) + of(&IN_TURNS), of(&PROGRAMS));
    report.line("open events at the end", host::with(|engine| engine.census()), before);
    soon(|| sched::tasks() == 1 + CPUS as u64);
    report.line("tasks at the end", sched::tasks(), 1 + CPUS as u64);
}
