//! Tries what the kernel does, and prints a line for each, with what should be beside what is.
//!
//! **Invariant:** a line says `ok` where both are equal, and the machine ends with status 0 only where all do.

use crate::arch::{self, CPUS, heap};
use crate::sched::{self, ALL, Task};
use crate::{abi, counting, host, println, program, scenario, stress};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::sync::atomic::Ordering;

/// How long something that comes by itself may take, in ns.
const PATIENCE_NS: u64 = 10_000_000_000;

/// What was found so far.
#[derive(Default)]
pub struct Report {
    lines: u32,
    failed: u32,
}

impl Report {
    /// A line: what was found, and what is right.
    pub fn line<T: PartialEq + Debug>(&mut self, what: &str, found: T, right: T) {
        self.lines += 1;
        let ok = found == right;
        self.failed += u32::from(!ok);
        if ok {
            println!("ok   {:>2} {what}: {found:?}", self.lines);
        } else {
            println!("FAIL {:>2} {what}: {found:?}, not {right:?}", self.lines);
        }
    }
}

/// Runs a program to its end; answers its status.
pub fn run(name: &str, argument: u64, affinity: u32) -> Option<u32> {
    start(name, argument, affinity).and_then(|task| end_of(&task))
}

/// Starts a program.
pub fn start(name: &str, argument: u64, affinity: u32) -> Option<Arc<Task>> {
    Some(sched::spawn(program::load(name)?, argument, affinity))
}

/// The status of a task that ends.
pub fn end_of(task: &Task) -> Option<u32> {
    soon(|| task.status().is_some()).then(|| task.status())?
}

/// Whether something becomes true.
pub fn soon(mut is: impl FnMut() -> bool) -> bool {
    let end = arch::now_ns() + PATIENCE_NS;
    while !is() {
        if arch::now_ns() > end {
            return false;
        }
        // The timer ends this wait at the latest: with -icount, a CPU that looks again and again takes the time of the others.
        sched::schedule();
        let off = arch::InterruptsOff::new();
        arch::wait_for_interrupt();
        drop(off);
    }
    true
}

/// Has a CPU come back, and waits until the engine knows; answers whether it does.
pub fn bring_back(cpu: usize) -> bool {
    arch::cpu_on(cpu) && soon(|| sched::is_online(cpu)) && (!host::is_made() || soon(|| host::online(cpu)))
}

fn online() -> usize {
    (0..CPUS).filter(|&cpu| sched::is_online(cpu)).count()
}

/// All lines. A task of the kernel.
pub extern "C" fn run_all() -> ! {
    let mut report = Report::default();
    soon(|| online() == CPUS);
    report.line("CPUs that are online", online(), CPUS);
    let ticks = || (0..CPUS).filter(|&cpu| sched::seen(cpu).0 > 2).count();
    soon(|| ticks() == CPUS);
    report.line("CPUs whose timer ticks", ticks(), CPUS);
    let line = arch::command_line();
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        [.., "scenarios"] => {
            scenario::lines();
            arch::exit(0)
        }
        [.., "stress", seconds] => stress::lines(&mut report, seconds.parse().unwrap_or(10)),
        _ => {
            interrupts(&mut report);
            programs(&mut report);
            scheduling(&mut report);
            hotplug(&mut report);
            memory(&mut report);
            counting::lines(&mut report);
            memory(&mut report);
        }
    }
    println!("{} lines, {} failed, {} ms", report.lines, report.failed, arch::now_ns() / 1_000_000);
    arch::exit(u32::from(report.failed > 0))
}

/// Each CPU is interrupted by another one.
fn interrupts(report: &mut Report) {
    let here = { arch::cpu() };
    let others: Vec<usize> = (0..CPUS).filter(|&cpu| cpu != here).collect();
    let before: Vec<u64> = others.iter().map(|&cpu| sched::seen(cpu).1).collect();
    others.iter().for_each(|&cpu| arch::gic::call(cpu));
    let called = || others.iter().zip(&before).filter(|(cpu, before)| sched::seen(**cpu).1 > **before).count();
    soon(|| called() == others.len());
    report.line("CPUs that another one has called", called(), others.len());
}

fn programs(report: &mut Report) {
    report.line("status of a program", run("hello", 7, ALL), Some(7));
    report.line("programs of a tree of forks, 5 levels", run("forks", 5, ALL), Some(63));
    report.line("status after exec", run("execs", 20, ALL), Some(20));
    report.line("status of a program that reads the kernel", run("faults", 0, ALL), Some(abi::FAULTED));
}

fn scheduling(report: &mut Report) {
    let both: Vec<_> = (0..2).filter_map(|_| start("spins", 100, 0b10)).collect();
    let ends: Vec<_> = both.iter().map(|task| end_of(task)).collect();
    report.line("two programs on one CPU, both right", ends, alloc::vec![Some(0); 2]);
    let preempted = both.iter().filter(|task| task.preempted.load(Ordering::Relaxed) > 2).count();
    report.line("of them, preempted", preempted, 2);
    let Some(moving) = start("moves", 1000, ALL) else {
        return;
    };
    report.line("wrong CPUs after 1000 moves", end_of(&moving), Some(0));
    report.line("moves that were migrations", moving.migrations.load(Ordering::Relaxed) >= 990, true);
    let many: Vec<_> = (0..12).filter_map(|_| start("spins", 50, ALL)).collect();
    let right = many.iter().filter(|task| end_of(task) == Some(0)).count();
    report.line("of 12 programs on all CPUs, right", right, 12);
}

/// A CPU goes and comes while programs run.
fn hotplug(report: &mut Report) {
    sched::current().set_affinity(1);
    sched::schedule();
    let tasks: Vec<_> = (0..8).filter_map(|_| start("spins", 200, ALL)).chain(start("spins", 200, 0b100)).collect();
    for round in 0..12 {
        let cpu = 1 + round % 3;
        sched::offline(cpu);
        let came = bring_back(cpu);
        if !came {
            report.line("a CPU that came back", came, true);
        }
    }
    report.line("CPUs after 12 times CPU_OFF and CPU_ON", online(), CPUS);
    let right = tasks.iter().filter(|task| end_of(task) == Some(0)).count();
    report.line("programs that went on meanwhile", right, tasks.len());
    sched::current().set_affinity(ALL);
}

/// Nothing is left of programs that have ended.
fn memory(report: &mut Report) {
    while sched::wait().is_some() {}
    // This task, and the idle ones.
    soon(|| sched::tasks() == 1 + CPUS as u64);
    report.line("tasks", sched::tasks(), 1 + CPUS as u64);
    let before = heap::used_bytes();
    for _ in 0..3 {
        run("forks", 4, ALL);
        while sched::wait().is_some() {}
        soon(|| sched::tasks() == 1 + CPUS as u64);
    }
    // A task leaves the list before its memory is free again, on whatever CPU has it last.
    soon(|| heap::used_bytes() <= before);
    report.line("bytes that 93 programs have left", heap::used_bytes().saturating_sub(before), 0);
}
