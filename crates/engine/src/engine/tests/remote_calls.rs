//! Calls of other CPUs beside switches, hotplug, and one another.
//!
//! What it is: threads that play tasks on CPUs, beside one that plays a CPU itself: its switches, its IPIs, its going offline. A
//! scheduler decides at each lock who comes next; the machine checks that registers of a CPU are touched on that CPU only.
//!
//! **Invariant:** a failure prints the scheduler's seed; `shuttle::replay` follows it.

use crate::target::{ContextKey, Presence};
use crate::testing::scheduled::{Scheduled, play, play_among, schedules, stay_on, unfairly};
use crate::testing::{Machine, SCARCE, event, group};
use crate::{CpuId, Engine, Opened, Target, TaskId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::AtomicBool;
use shuttle::thread;

type Racer = Engine<Machine<Scheduled>>;

const THERE: CpuId = CpuId(1);
const TASK: TaskId = TaskId(1);

fn open(engine: &Racer, target: Target) -> Opened {
    engine.open_enabled(&group(SCARCE, &[event(1)]), target)
}

fn machine() -> Arc<Racer> {
    let engine = Machine::<Scheduled>::shared_on(2);
    engine.host().place(ContextKey::Task(TASK), Presence::Out);
    Arc::new(engine)
}

/// What a task does with an event.
type Ask = fn(&Racer, &Opened);

/// Tasks that may be on any CPU do these things with an event, while the other CPU does `work` and serves its IPIs.
fn beside(engine: &Arc<Racer>, opened: &Opened, work: fn(&Racer), asks: &[Ask]) {
    let over = Arc::new(AtomicBool::new(false));
    let there = {
        let (engine, over) = (Arc::clone(engine), Arc::clone(&over));
        thread::spawn(move || {
            play(THERE);
            work(&engine);
            while !over.load(SeqCst) {
                // Calls come together, too.
                (0..thread_rng().gen_range(1..40)).for_each(|_| thread::yield_now());
                if engine.online().contains(THERE) {
                    engine.handle_ipi(THERE);
                }
            }
        })
    };
    let tasks = asks.iter().map(|&ask| {
        let (engine, opened) = (Arc::clone(engine), opened.clone());
        thread::spawn(move || {
            play_among(2);
            ask(&engine, &opened);
        })
    });
    tasks.collect::<Vec<_>>().into_iter().for_each(|task| task.join().unwrap());
    over.store(true, SeqCst);
    there.join().unwrap();
}

fn closes(engine: &Racer, opened: &Opened) {
    engine.close(opened.group);
}

fn uses_and_closes(engine: &Racer, opened: &Opened) {
    engine.read(opened.events[0]).unwrap();
    engine.disable_group(opened.group).unwrap();
    engine.enable_group(opened.group).unwrap();
    closes(engine, opened);
}

/// The task comes onto the other CPU and leaves it.
fn comes_and_goes(engine: &Racer, times: usize) {
    for _ in 0..times {
        let context = engine.task(TASK);
        engine.host().place(ContextKey::Task(TASK), Presence::On(THERE));
        engine.switch(THERE, None, Some(&context));
        engine.handle_ipi(THERE);
        engine.host().place(ContextKey::Task(TASK), Presence::Out);
        engine.switch(THERE, Some(&context), None);
        engine.handle_ipi(THERE);
    }
}

fn goes_offline(engine: &Racer) {
    engine.cpu_offline(THERE);
    engine.host().place(ContextKey::Cpu(THERE), Presence::Out);
}

fn goes_offline_and_comes(engine: &Racer) {
    goes_offline(engine);
    engine.host().place(ContextKey::Cpu(THERE), Presence::On(THERE));
    engine.cpu_online(THERE);
}

/// Two events of a task are there; one of them is used while the other CPU does `work`.
fn task_beside(work: fn(&Racer), ask: Ask) {
    schedules(300, move || {
        let engine = machine();
        let [first, second] = [(); 2].map(|()| open(&engine, Target::task(TASK)));
        beside(&engine, &first, work, &[ask]);
        play(THERE);
        engine.close(second.group);
        assert_eq!(engine.census().events, 0);
    });
}

#[test]
fn a_call_beside_switches() {
    task_beside(|engine| comes_and_goes(engine, 2), uses_and_closes);
}

#[test]
fn an_open_beside_switches() {
    task_beside(
        |engine| comes_and_goes(engine, 3),
        |engine, opened| {
            closes(engine, &open(engine, Target::task(TASK)));
            closes(engine, opened);
        },
    );
}

/// The task is on the CPU that goes: it is sent home, and may be back where the CPU is.
#[test]
fn a_call_beside_switches_and_hotplug() {
    task_beside(
        |engine| {
            comes_and_goes(engine, 1);
            goes_offline_and_comes(engine);
            comes_and_goes(engine, 1);
        },
        uses_and_closes,
    );
}

/// An event of the other CPU is used by tasks, while that one does `work`.
fn cpu_beside(work: fn(&Racer), asks: &'static [Ask]) {
    schedules(500, move || {
        let engine = machine();
        let of_cpu = open(&engine, Target::cpu(THERE));
        beside(&engine, &of_cpu, work, asks);
        assert_eq!((engine.census().events, engine.host().leased()), (0, 0), "no register stays taken");
    });
}

fn tries_and_closes(engine: &Racer, opened: &Opened) {
    let _ = engine.read(opened.events[0]);
    let _ = engine.disable_group(opened.group);
    let _ = engine.enable_group(opened.group);
    closes(engine, opened);
}

#[test]
fn a_call_to_a_cpu_that_goes_offline() {
    cpu_beside(goes_offline, &[tries_and_closes]);
}

#[test]
fn a_call_to_a_cpu_that_goes_offline_and_comes() {
    cpu_beside(goes_offline_and_comes, &[tries_and_closes]);
}

#[test]
fn a_close_beside_an_enable() {
    cpu_beside(|_| (), &[|engine, opened| (0..4).for_each(|_| _ = engine.enable_group(opened.group)), closes]);
}

/// A context is never between two places: to look at it needs no other thread but one that has a lock.
#[test]
fn a_look_beside_switches() {
    unfairly(300, || {
        let engine = machine();
        let opened = open(&engine, Target::task(TASK));
        let switches = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                stay_on(THERE);
                comes_and_goes(&engine, 2);
            })
        };
        let looks = {
            let (engine, event) = (Arc::clone(&engine), opened.events[0]);
            thread::spawn(move || {
                stay_on(CpuId(0));
                (0..10).for_each(|_| assert!(engine.state(event).is_ok()));
            })
        };
        switches.join().unwrap();
        looks.join().unwrap();
        stay_on(THERE);
        engine.close(opened.group);
        assert_eq!(engine.census().events, 0);
    });
}
