//! What a host calls where it may not allocate allocates nothing, the first time neither.
//!
//! **Invariant:** each test measures the first call of its kind on a new engine; what the machine of the tests allocates itself is not counted.

use crate::target::{ContextKey, Presence};
use crate::testing::locks::Plain;
use crate::testing::{Machine, PLENTY, SCARCE, WIDE, event, group, play};
use crate::{CpuId, Engine, Opened, PmuId, Target, TaskContext, TaskId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

type Host = Machine<Plain>;

const CPU: CpuId = CpuId(0);
const TASK: TaskId = TaskId(1);

fn machine() -> Engine<Host> {
    let engine = Machine::<Plain>::shared_on(2);
    (0..4).for_each(|task| engine.host().place(ContextKey::Task(TaskId(task)), Presence::Out));
    engine
}

/// So many groups of so many events each, that count.
fn open(engine: &Engine<Host>, task: TaskId, pmu: PmuId, groups: u64, events: u64) -> Vec<Opened> {
    let of = |first: u64| (0..events).map(|number| event(1 + first + number)).collect::<Vec<_>>();
    (0..groups).map(|first| engine.open_enabled(&group(pmu, &of(first)), Target::task(task))).collect()
}

fn context(engine: &Engine<Host>, task: TaskId) -> TaskContext<Host> {
    engine.task(task)
}

fn nothing(what: &str, f: impl FnOnce()) {
    let allocated = allocation_counter::measure(f);
    assert_eq!(allocated.count_total, 0, "{what} allocates: {allocated:?}");
    assert_eq!(allocated.count_current, 0, "{what} frees: {allocated:?}");
}

fn come(engine: &Engine<Host>, task: &TaskContext<Host>) {
    engine.host().place(ContextKey::Task(TASK), Presence::On(CPU));
    nothing("a switch", || engine.switch(CPU, None, Some(task)));
}

#[test]
fn the_first_switch_of_five_software_events() {
    for (groups, events) in [(5, 1), (1, 5), (3, 20)] {
        let engine = machine();
        open(&engine, TASK, PLENTY, groups, events);
        let context = context(&engine, TASK);
        come(&engine, &context);
        nothing("a tick", || engine.tick(CPU));
        nothing("a switch away", || engine.switch(CPU, Some(&context), None));
    }
}

#[test]
fn the_first_contended_tick() {
    for (pmu, groups, events) in [(SCARCE, 7, 1), (SCARCE, 5, 2), (WIDE, 70, 1), (WIDE, 3, 40)] {
        let engine = machine();
        open(&engine, TASK, pmu, groups, events);
        let context = context(&engine, TASK);
        come(&engine, &context);
        (0..3).for_each(|_| nothing("a tick", || engine.tick(CPU)));
        nothing("a switch away", || engine.switch(CPU, Some(&context), None));
    }
}

#[test]
fn the_first_switch_between_tasks_that_wait() {
    let engine = machine();
    let (one, other) = (TASK, TaskId(2));
    open(&engine, one, SCARCE, 3, 2);
    open(&engine, other, SCARCE, 3, 2);
    let [one, other] = [one, other].map(|task| context(&engine, task));
    come(&engine, &one);
    nothing("a switch", || engine.switch(CPU, Some(&one), Some(&other)));
    nothing("a tick", || engine.tick(CPU));
    nothing("a switch back", || engine.switch(CPU, Some(&other), Some(&one)));
}

#[test]
fn the_first_interrupt() {
    let engine = machine();
    open(&engine, TASK, SCARCE, 2, 1);
    let context = context(&engine, TASK);
    come(&engine, &context);
    engine.host().run_on(0, Some(TASK.0), 1 << 33);
    nothing("an interrupt", || engine.counters_interrupted(CPU));
}

/// A task asks from another CPU, and this one answers.
fn served(what: &'static str, groups: u64, ask: fn(&Engine<Host>, &[Opened])) {
    let engine = Arc::new(machine());
    let opened = open(&engine, TASK, SCARCE, groups, 2);
    let context = context(&engine, TASK);
    come(&engine, &context);
    let asks = Arc::new(AtomicBool::new(true));
    let other = {
        let (engine, asks) = (Arc::clone(&engine), Arc::clone(&asks));
        std::thread::spawn(move || {
            play(Some(CpuId(1)));
            ask(&engine, &opened);
            asks.store(false, SeqCst);
        })
    };
    play(Some(CPU));
    while asks.load(SeqCst) {
        nothing(what, || engine.handle_ipi(CPU));
    }
    play(None);
    other.join().unwrap();
}

#[test]
fn the_first_call_of_another_cpu() {
    served("a read", 1, |engine, opened| assert_eq!(engine.read(opened[0].events[0]).unwrap().value, 0));
    served("enabling", 3, |engine, opened| {
        for opened in opened {
            engine.disable_group(opened.group).unwrap();
            engine.enable_group(opened.group).unwrap();
        }
    });
    served("closing", 3, |engine, opened| opened.iter().for_each(|opened| engine.close(opened.group)));
}
