//! Calls of other CPUs beside switches, hotplug, and one another.
//!
//! What it is: threads that play tasks on CPUs, beside one that plays a CPU itself: its switches, its doorbell, its going offline. A
//! scheduler decides at each lock who comes next; the machine checks that registers of a CPU are touched on that CPU only.
//!
//! **Invariant:** a failure prints the scheduler's seed; `shuttle::replay` follows it.

use crate::target::{ContextKey, Presence};
use crate::testing::scheduled::{Scheduled, play, play_among, schedules, stay_on, unfairly};
use crate::testing::{Machine, SCARCE, event, group};
use crate::{CpuId, Engine, Opened, Target, TaskId};
use alloc::sync::Arc;
use core::sync::atomic::Ordering::SeqCst;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::AtomicBool;
use shuttle::thread;

type Racer = Engine<Machine<Scheduled>>;

const THERE: CpuId = CpuId(1);
const TASK: TaskId = TaskId(1);

fn open(engine: &Racer, target: Target) -> Opened {
    let opened = engine.open(&group(SCARCE, &[event(1)]), target).unwrap();
    engine.enable_group(opened.group).unwrap();
    opened
}

fn machine() -> Arc<Racer> {
    let engine = Machine::<Scheduled>::shared_on(2);
    engine.host().place(ContextKey::Task(TASK), Presence::Out);
    Arc::new(engine)
}

/// A thread that plays a CPU: it does this, and serves its doorbell until the others have ended.
fn cpu(
    engine: &Arc<Racer>,
    cpu: CpuId,
    over: &Arc<AtomicBool>,
    work: impl FnOnce(&Racer) + Send + 'static,
) -> thread::JoinHandle<()> {
    let (engine, over) = (Arc::clone(engine), Arc::clone(over));
    thread::spawn(move || {
        play(cpu);
        work(&engine);
        while !over.load(SeqCst) {
            // Calls come together, too.
            (0..thread_rng().gen_range(1..40)).for_each(|_| thread::yield_now());
            if engine.online().contains(cpu) {
                engine.handle_ipi(cpu);
            }
        }
    })
}

/// The task comes onto the other CPU and leaves it.
fn comes_and_goes(engine: &Racer, times: usize) {
    for _ in 0..times {
        let context = Some(engine.task(TASK));
        engine.host().place(ContextKey::Task(TASK), Presence::On(THERE));
        engine.switch(THERE, None, context.as_ref());
        engine.handle_ipi(THERE);
        engine.host().place(ContextKey::Task(TASK), Presence::Out);
        engine.switch(THERE, context.as_ref(), None);
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

/// Two events of a task are there; `asks` runs on this CPU while the other does `work`.
fn beside(times: usize, work: fn(&Racer), asks: fn(&Racer, &Opened)) {
    schedules(times, move || {
        let engine = machine();
        let [first, second] = [(); 2].map(|()| open(&engine, Target::task(TASK)));
        let over = Arc::new(AtomicBool::new(false));
        let there = cpu(&engine, THERE, &over, work);
        let here = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                play_among(2);
                asks(&engine, &first);
                engine.close(first.group);
            })
        };
        here.join().unwrap();
        over.store(true, SeqCst);
        there.join().unwrap();
        play(THERE);
        engine.close(second.group);
        assert_eq!(engine.census().events, 0);
    });
}

#[test]
fn a_call_beside_switches() {
    beside(
        300,
        |engine| comes_and_goes(engine, 2),
        |engine, opened| {
            engine.read(opened.events[0]).unwrap();
            engine.disable_group(opened.group).unwrap();
            engine.enable_group(opened.group).unwrap();
        },
    );
}

#[test]
fn an_open_beside_switches() {
    beside(300, |engine| comes_and_goes(engine, 3), |engine, _| engine.close(open(engine, Target::task(TASK)).group));
}

/// The task is on the CPU that goes: it is sent home, and may be back where the CPU is.
#[test]
fn a_call_beside_switches_and_hotplug() {
    beside(
        300,
        |engine| {
            comes_and_goes(engine, 1);
            goes_offline_and_comes(engine);
            comes_and_goes(engine, 1);
        },
        |engine, opened| {
            engine.read(opened.events[0]).unwrap();
            engine.disable_group(opened.group).unwrap();
            engine.enable_group(opened.group).unwrap();
        },
    );
}

#[test]
fn a_call_to_a_cpu_that_goes_offline() {
    called_beside(goes_offline);
}

#[test]
fn a_call_to_a_cpu_that_goes_offline_and_comes() {
    called_beside(goes_offline_and_comes);
}

/// An event of the other CPU is used by this one, while that one does `work`.
fn called_beside(work: fn(&Racer)) {
    schedules(300, move || {
        let engine = machine();
        let of_cpu = open(&engine, Target::cpu(THERE));
        let over = Arc::new(AtomicBool::new(false));
        let there = cpu(&engine, THERE, &over, work);
        let here = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                play_among(2);
                let _ = engine.read(of_cpu.events[0]);
                let _ = engine.disable_group(of_cpu.group);
                let _ = engine.enable_group(of_cpu.group);
                engine.close(of_cpu.group);
            })
        };
        here.join().unwrap();
        over.store(true, SeqCst);
        there.join().unwrap();
        assert_eq!(engine.census().events, 0);
    });
}

#[test]
fn a_close_beside_an_enable() {
    schedules(300, || {
        let engine = machine();
        let of_cpu = open(&engine, Target::cpu(THERE));
        let over = Arc::new(AtomicBool::new(false));
        let there = cpu(&engine, THERE, &over, |_| ());
        let asks = |f: fn(&Racer, &Opened)| {
            let (engine, of_cpu) = (Arc::clone(&engine), of_cpu.clone());
            thread::spawn(move || {
                play_among(2);
                f(&engine, &of_cpu);
            })
        };
        let enables = asks(|engine, opened| {
            (0..4).for_each(|_| _ = engine.enable_group(opened.group));
        });
        let closes = asks(|engine, opened| engine.close(opened.group));
        enables.join().unwrap();
        closes.join().unwrap();
        over.store(true, SeqCst);
        there.join().unwrap();
        assert_eq!(engine.host().leased(), 0, "no register stays taken");
    });
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
