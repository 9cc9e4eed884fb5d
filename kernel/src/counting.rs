//! Lines of the report about counting: what the engine counts, beside what the programs did.
//!
//! What it is: most lines count software increments, which a program makes itself and which are exact on any machine. Instructions are
//! those of the machine; QEMU counts them with `-icount` only.

use crate::arch::pmu::{INST_RETIRED, SW_INCR, has_event};
use crate::arch::{self, CPUS};
use crate::report::{Report, bring_back, end_of, run, start};
use crate::sched::{self, ALL, SLICE_NS, Task};
use crate::{abi, host, println, program};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use pmux_abi::attr::{Attr, AttrFlags, EventType, breakpoint, sw};
use pmux_engine::engine::SetRequest;
use pmux_engine::ring_buffer::{Forward, Reader, RingSetup, Taking};
use pmux_engine::system_wide::{Absent, SetScope};
use pmux_engine::{Count, CpuId, GroupSpec, OpenError, Opened, Sharing, Target};

fn raw(event: u64, flags: AttrFlags) -> GroupSpec {
    GroupSpec::single(host::PMU, Attr { kind: EventType::RAW, config: event, flags, ..Attr::default() })
}

/// Software increments. The number above the event tells events apart that would share a counter.
pub fn increments(number: u64, flags: AttrFlags) -> GroupSpec {
    raw(number << 16 | SW_INCR, flags)
}

/// A program that does not run yet, and this event on it, enabled.
fn prepared(name: &str, argument: u64, affinity: u32, event: &GroupSpec) -> Option<(Arc<Task>, Opened)> {
    let task = sched::prepare(program::load(name)?, argument, affinity);
    let opened = open(&task, event)?;
    Some((task, opened))
}

/// Opens an event on a task, enabled, unless the task has ended.
pub fn open(task: &Task, event: &GroupSpec) -> Option<Opened> {
    host::with(|engine| {
        let opened = engine.open(event, Target::task(host::task(task.pid))).ok()?;
        let _ended = engine.enable_group(opened.group);
        Some(opened)
    })
}

/// What the first event of a group has counted.
pub fn read(opened: &Opened) -> Option<Count> {
    host::with(|engine| engine.read(opened.events[0]).ok())
}

fn value(opened: &Opened) -> Option<u64> {
    read(opened).map(|count| count.value)
}

/// Closes what was opened.
pub fn close(opened: &Opened) {
    host::with(|engine| engine.close(opened.group));
}

/// Runs a program with an event on it; what it counted, of a program that did not fail.
fn counted(name: &str, argument: u64, affinity: u32, event: &GroupSpec) -> Option<u64> {
    let (task, opened) = prepared(name, argument, affinity, event)?;
    sched::release(&task);
    let end = end_of(&task);
    let count = value(&opened);
    close(&opened);
    (end == Some(0)).then_some(count)?
}

/// All lines.
pub fn lines(report: &mut Report) {
    host::init(Sharing::On);
    let before = host::with(|engine| engine.census());
    tasks(report);
    instructions(report);
    software(report);
    turns(report);
    sharing(report);
    sets(report);
    breakpoints(report);
    let after = host::with(|engine| engine.census());
    report.line("open events, groups, contexts, sets and families at the end", after, before);
}

fn tasks(report: &mut Report) {
    let plain = increments(0, AttrFlags::empty());
    let inherit = increments(0, AttrFlags::INHERIT);
    report.line("increments of a program that makes 10,000", counted("counts", 10_000, ALL, &plain), Some(10_000));
    let both: Vec<_> = [3_000_000, 2_000_000].iter().filter_map(|&n| prepared("counts", n, 0b10, &plain)).collect();
    both.iter().for_each(|(task, _)| sched::release(task));
    both.iter().for_each(|(task, _)| {
        end_of(task);
    });
    let counts: Vec<_> = both.iter().map(|(_, opened)| value(opened)).collect();
    let preempted = both.iter().all(|(task, _)| task.preempted.load(Ordering::Relaxed) > 0);
    report.line(
        "of two that preempt one another",
        (counts, preempted),
        (alloc::vec![Some(3_000_000), Some(2_000_000)], true),
    );
    both.iter().for_each(|(_, opened)| close(opened));
    report.line("over 400 migrations", counted("moves_counts", 400, ALL, &plain), Some(400));
    report.line("over an exec", counted("execs_counts", 300, ALL, &plain), Some(600));
    report.line("of a tree of 31 programs, inherited", counted("forks_counts", 4, ALL, &inherit), Some(3100));
    report.line("of the first of them alone", counted("forks_counts", 4, ALL, &plain), Some(100));
}

/// A loop of two instructions a round: what two numbers of rounds differ in is known.
fn instructions(report: &mut Report) {
    if !has_event(INST_RETIRED) {
        println!("skip    instructions of a loop: QEMU counts them with -icount only");
        return;
    }
    // QEMU takes what one CPU executes for instructions of each that runs: this one has to be the only one.
    sched::current().set_affinity(0b10);
    sched::set_still(true);
    let user = raw(INST_RETIRED, AttrFlags::EXCLUDE_KERNEL);
    let of = |rounds| counted("loops", rounds, 0b10, &user);
    let (few, many) = (of(1_000), of(1_001_000));
    report.line(
        "instructions of a million rounds of two",
        few.zip(many).map(|(few, many)| many - few),
        Some(2_000_000),
    );
    report.line("instructions of the same program again", of(1_001_000), many);
    let inherited = raw(INST_RETIRED, AttrFlags::EXCLUDE_KERNEL | AttrFlags::INHERIT);
    let forked = |rounds| counted("forks_loops", rounds, 0b10, &inherited);
    let (few, many) = (forked(1_000), forked(101_000));
    report.line(
        "of four children with 100,000 rounds each",
        few.zip(many).map(|(few, many)| many - few),
        Some(800_000),
    );
    sched::set_still(false);
    sched::current().set_affinity(ALL);
}

fn of_kernel(event: u64, flags: AttrFlags) -> GroupSpec {
    GroupSpec::single(host::SOFTWARE, Attr { kind: EventType::SOFTWARE, config: event, flags, ..Attr::default() })
}

/// What the kernel counts itself: pages that a program comes to first, and the time that it runs.
fn software(report: &mut Report) {
    let of = |flags| counted("pages", 300, ALL, &of_kernel(sw::PAGE_FAULTS, flags));
    report.line("page faults of a program that touches 300 pages", of(AttrFlags::empty()), Some(300));
    report.line("of it and its copy, inherited", of(AttrFlags::INHERIT), Some(600));
    let mut group = increments(0, AttrFlags::INHERIT);
    group.events.extend(of_kernel(sw::PAGE_FAULTS, AttrFlags::empty()).events);
    let Some((task, opened)) = prepared("pages", 300, ALL, &group) else { return };
    sched::release(&task);
    end_of(&task);
    let reading = host::with(|engine| engine.read_group(opened.group));
    let counts: Vec<_> = reading.iter().flatten().flatten().map(|count| count.value).collect();
    report.line("increments and page faults of both, in one group", counts, alloc::vec![600, 600]);
    close(&opened);
    let Some((task, clock)) = prepared("spins", 40, ALL, &of_kernel(sw::TASK_CLOCK, AttrFlags::empty())) else {
        return;
    };
    sched::release(&task);
    end_of(&task);
    let near = read(&clock).map(|count| (count.value.abs_diff(count.running.0) < SLICE_NS, count.value > 20_000_000));
    if has_event(INST_RETIRED) {
        report.line("its task-clock is the time that it ran, more than 20 ms", near, Some((true, true)));
    } else {
        println!("skip    the task-clock: without -icount the machine below may stop between two looks at the time");
    }
    close(&clock);
}

/// Twice as many events as counters: each has half of the time.
fn turns(report: &mut Report) {
    // The program has a CPU for itself: where tasks take turns too, these are turns of the events as well.
    sched::current().set_affinity(1);
    sched::schedule();
    let counters = u64::from(arch::pmu::counters());
    let Some(task) = program::load("spins").map(|program| sched::prepare(program, 400, 0b10)) else {
        return;
    };
    let opened: Vec<_> = (1..=2 * counters).filter_map(|n| open(&task, &increments(n, AttrFlags::empty()))).collect();
    report.line("events on half as many counters", opened.len() as u64, 2 * counters);
    sched::release(&task);
    report.line("status of the program", end_of(&task), Some(0));
    let counts: Vec<Count> = opened.iter().filter_map(read).collect();
    let running: Vec<u64> = counts.iter().map(|count| count.running.0).collect();
    let (least, most) = (running.iter().min().copied().unwrap_or(0), running.iter().max().copied().unwrap_or(0));
    let enabled = counts.iter().map(|count| count.enabled.0).max().unwrap_or(1);
    if !has_event(INST_RETIRED) {
        println!(
            "skip    how the turns were shared: without -icount a turn is as long as the machine below lets it be"
        );
        opened.iter().for_each(close);
        return;
    }
    // Groups take turns one after the other: within a round the first is as many turns ahead as there are counters.
    report.line("they ran alike but for a round", most - least <= (counters + 1) * SLICE_NS, true);
    let percent = running.iter().sum::<u64>() * 100 / (enabled * counters);
    report.line("per cent of the counters' time that was used", (99..=100).contains(&percent), true);
    opened.iter().for_each(close);
}

/// Sixteen clients that ask the same.
fn sharing(report: &mut Report) {
    let event = increments(0, AttrFlags::empty());
    let Some(task) = program::load("counts").map(|program| sched::prepare(program, 5_000, ALL)) else {
        return;
    };
    let opened: Vec<_> = (0..16).filter_map(|_| open(&task, &event)).collect();
    let census = host::with(|engine| engine.census());
    report.line("counters that 16 equal events need", (census.masters, opened.len()), (1, 16));
    sched::release(&task);
    end_of(&task);
    let right = opened.iter().filter(|opened| value(opened) == Some(5_000)).count();
    report.line("of them, exact", right, 16);
    opened.iter().for_each(close);
}

/// Events on all CPUs, of which one goes and comes back.
fn sets(report: &mut Report) {
    let request = |absent| SetRequest {
        groups: alloc::vec![increments(0, AttrFlags::empty())],
        scope: SetScope::Everything,
        mask: host::all_cpus().into_iter().collect(),
        absent,
    };
    sched::current().set_affinity(1);
    sched::schedule();
    sched::offline(3);
    let refused =
        host::with(|engine| engine.open_set(request(Absent::Refuse)).map_err(|error| (error.cpu, error.error)));
    let right = Err((CpuId(3), OpenError::CpuOffline { cpu: CpuId(3) }));
    report.line("a set while CPU 3 is off, all or nothing", refused.map(drop), right);
    report.line("CPU 3 is back", bring_back(3), true);
    let set = host::with(|engine| engine.open_set(request(Absent::Refuse)));
    let Ok(set) = set else {
        return report.line("a set on all CPUs", set.err().map(|error| error.cpu), None);
    };
    let enabled = host::with(|engine| engine.enable_set(set)).is_ok();
    report.line("a set on all CPUs counts", enabled, true);
    let mut made = 0;
    let mut make = |times, affinity| {
        made += times;
        run("counts", times, affinity)
    };
    make(1_000, 0b100);
    sched::offline(2);
    make(500, ALL);
    let came = bring_back(2);
    make(700, 0b100);
    let _ = host::with(|engine| engine.disable_set(set));
    let reading = host::with(|engine| engine.read_set(set));
    host::with(|engine| engine.close_set(set));
    sched::current().set_affinity(ALL);
    let Ok(reading) = reading else {
        return report.line("the set can be read", false, true);
    };
    let of = |cpu: usize| -> u64 {
        let cpus = reading.cpus.iter().filter(|of| of.cpu.0 as usize == cpu);
        cpus.flat_map(|of| &of.counts).filter_map(|count| count.as_ref().ok()).map(|count| count.value).sum()
    };
    report.line("CPU 2 went and came back", came, true);
    report.line("increments on CPU 2 before and after", of(2), 1_700);
    report.line("increments on all CPUs", (0..CPUS).map(of).sum::<u64>(), made);
    let gaps: Vec<_> = reading.coverage.iter().map(|cpu| (cpu.gaps, cpu.missed.0 > 0)).collect();
    report.line("gaps of each CPU, with time", gaps, alloc::vec![(0, false), (0, false), (1, true), (0, false)]);
}

fn watched(bp_type: u32, length: u64) -> GroupSpec {
    let attr = Attr { kind: EventType::BREAKPOINT, bp_type, config1: abi::WATCHED, config2: length, ..Attr::default() };
    GroupSpec::single(host::BREAKPOINTS, attr)
}

/// Watchpoints: what a program does with a word, and one more than there are registers.
fn breakpoints(report: &mut Report) {
    report.line("hits of 500 writes", counted("touches", 500, ALL, &watched(breakpoint::W, 8)), Some(500));
    report.line(
        "hits of 500 writes and 500 reads",
        counted("touches", 500, ALL, &watched(breakpoint::RW, 8)),
        Some(1000),
    );
    let Some(task) = program::load("touches").map(|program| sched::prepare(program, 40, 0b10)) else { return };
    let other = start("spins", 60, 0b10);
    // They differ in their length, so that none shares.
    let opened: Vec<_> = (1..=4).filter_map(|length| open(&task, &watched(breakpoint::W, length))).collect();
    report.line("watchpoints of a task", opened.len(), arch::watch::WATCHPOINTS);
    let fifth = host::with(|engine| engine.open(&watched(breakpoint::W, 5), Target::task(host::task(task.pid))));
    let refusal = fifth.map(drop).map_err(|error| error.to_string());
    let right = "event 0: 4 of 4 debug registers for data breakpoints are in use on CPU 0".to_string();
    report.line("a fifth one", refusal, Err(right));
    let ring = host::with(|engine| engine.attach_ring::<Forward>(opened[0].events[0], 4096, RingSetup::default()));
    host::watch(opened[0].events[0], true);
    sched::release(&task);
    report.line("status of the program", end_of(&task), Some(0));
    host::watch(opened[0].events[0], false);
    let hits: Vec<_> = opened.iter().map(value).collect();
    report.line("hits of each, beside a program on its CPU", hits, alloc::vec![Some(40); 4]);
    let mut records = Vec::new();
    if let Ok(ring) = ring {
        let mut reader = Reader::new(Taking(Arc::clone(ring.pages())));
        let read = reader.drain(&mut |record| records.push(record.to_vec()));
        report.line("the ring is whole", read.is_ok(), true);
    }
    let addresses = records.iter().filter(|record| record.ends_with(&abi::WATCHED.to_ne_bytes())).count();
    report.line("records of the first, with the address", (records.len(), addresses), (40, 40));
    opened.iter().for_each(close);
    report.line("status of the other program", other.and_then(|task| end_of(&task)), Some(0));
}
