//! Several threads at one engine, and the rules of its locks.
//!
//! Every lock of the machine checks its rank, and every call of the host checks what is held: see [`crate::testing::locks`].

use super::everywhere;
use crate::engine::{Census, Exec, SetRequest};
use crate::inherit::Attribution;
use crate::lock::Rank;
use crate::system_wide::SetScope;
use crate::target::{ContextKey, Filter, Presence};
use crate::testing::locks::{self, CheckedLock};
use crate::testing::{KERNEL, Machine, PLENTY, SCARCE, event, flagged, group};
use crate::{CpuId, Engine, GroupId, Host as _, LockCell as _, Nanos, SetId, Target, TaskId};
use alloc::vec::Vec;
use pmux_abi::attr::AttrFlags;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

const THREADS: u64 = 4;
const STEPS: u64 = 6000;
const CPUS: u64 = 3;

/// A small generator, so that a run can be told by its seed.
struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

#[derive(Default)]
struct Shared {
    groups: Mutex<Vec<(GroupId, Vec<crate::EventId>)>>,
    sets: Mutex<Vec<SetId>>,
    tasks: Mutex<Vec<u64>>,
    next_task: AtomicU64,
}

fn any<T: Clone>(list: &Mutex<Vec<T>>, rng: &mut Rng) -> Option<T> {
    let list = list.lock().unwrap();
    let index = rng.roll(list.len().max(1) as u64) as usize;
    list.get(index).cloned()
}

fn take<T>(list: &Mutex<Vec<T>>, rng: &mut Rng) -> Option<T> {
    let mut list = list.lock().unwrap();
    let index = rng.roll(list.len().max(1) as u64) as usize;
    (index < list.len()).then(|| list.swap_remove(index))
}

fn step(engine: &Engine<Machine>, shared: &Shared, rng: &mut Rng) {
    let cpu = CpuId(rng.roll(CPUS) as u32);
    // With so much open, closing comes first: a step costs as much at the end as at the beginning.
    let full = |most: usize, len: usize, closing| (len > most).then_some(closing);
    let first = full(60, shared.groups.lock().unwrap().len(), 3)
        .or_else(|| full(20, shared.tasks.lock().unwrap().len(), 15))
        .or_else(|| full(6, shared.sets.lock().unwrap().len(), 21));
    match first.unwrap_or_else(|| rng.roll(22)) {
        0..=2 => {
            let pmu = [SCARCE, PLENTY, KERNEL][rng.roll(3) as usize];
            let target = match (rng.roll(4), any(&shared.tasks, rng)) {
                (0, _) | (_, None) => Target::cpu(cpu),
                (1, Some(task)) => Target { context: ContextKey::Task(TaskId(task)), filter: Filter::OnCpu(cpu) },
                (_, Some(task)) => Target::task(TaskId(task)),
            };
            let pinned = if rng.roll(4) == 0 { AttrFlags::PINNED } else { AttrFlags::empty() };
            let attrs = [flagged(1, AttrFlags::INHERIT | pinned), flagged(2, AttrFlags::INHERIT)];
            if let Ok(opened) = engine.open(&group(pmu, &attrs[..1 + rng.roll(2) as usize]), target) {
                shared.groups.lock().unwrap().push((opened.group, opened.events));
            }
        }
        3 | 4 => {
            if let Some((group, _)) = take(&shared.groups, rng) {
                engine.close(group);
            }
        }
        what @ 5..=12 => {
            let Some((group, events)) = any(&shared.groups, rng) else { return };
            let event = events[rng.roll(events.len() as u64) as usize];
            match what {
                // Whether it is still there is another thread's business.
                5 | 6 => _ = engine.enable_group(group),
                7 => _ = engine.disable_group(group),
                8 => _ = engine.enable(event),
                9 => _ = engine.disable(event),
                10 => _ = engine.reset(event),
                11 => _ = engine.read_group(group),
                _ => {
                    if let Ok(count) = engine.read(event) {
                        assert!(count.running <= count.enabled, "{count:?}");
                    }
                    engine.overflow(event);
                    // What it counts comes and goes, too; children may hinder it.
                    let _ = engine.attr(event).map(|attr| engine.modify(event, &flagged(1 + rng.roll(2), attr.flags)));
                    let roots = events.iter().map(|&event| vec![event]).collect();
                    let attribution = Attribution::EachTask;
                    if let Some(family) = engine.create_tree(TaskId(1), roots, attribution) {
                        let _ = engine.read_family(family);
                    }
                }
            }
        }
        13 | 14 => {
            let Some(parent) = any(&shared.tasks, rng) else { return };
            let child = shared.next_task.fetch_add(1, SeqCst);
            engine.host().place(ContextKey::Task(TaskId(child)), Presence::Out);
            // A refusal is as good as a success here.
            let _ = engine.task_fork(TaskId(parent), TaskId(child));
            shared.tasks.lock().unwrap().push(child);
        }
        15 => {
            if let Some(task) = take(&shared.tasks, rng) {
                engine.task_exit(TaskId(task));
            }
        }
        16 => {
            let Some(task) = any(&shared.tasks, rng).map(TaskId) else { return };
            engine.switch_in(task, cpu);
            engine.host().run(&[ContextKey::Task(task), ContextKey::Cpu(cpu)], 7);
            engine.switch_out(task);
            engine.task_exec(task, if rng.roll(8) == 0 { Exec::ChangesRights } else { Exec::Plain });
        }
        17 => engine.cpu_offline(cpu),
        18 => engine.cpu_online(cpu),
        19 => {
            let scope = match (rng.roll(3), any(&shared.tasks, rng)) {
                (0, Some(task)) => SetScope::Task(TaskId(task)),
                _ => SetScope::Everything,
            };
            let groups = vec![group(SCARCE, &[event(1)]), group(PLENTY, &[event(1), event(2)])];
            let request = SetRequest { scope, ..everywhere(groups, 0..CPUS as u32 + 1) };
            if let Ok(set) = engine.open_set(request) {
                shared.sets.lock().unwrap().push(set);
            }
        }
        20 => {
            let Some(set) = any(&shared.sets, rng) else { return };
            let _ = if rng.roll(3) == 0 { engine.disable_set(set) } else { engine.enable_set(set) };
            if let Ok(reading) = engine.read_set(set) {
                assert!(reading.coverage.iter().all(|cpu| cpu.covered + cpu.missed == reading.span), "{reading:?}");
            }
        }
        _ => {
            if rng.roll(2) == 0
                && let Some(set) = take(&shared.sets, rng)
            {
                engine.close_set(set);
            }
            engine.host().refuse_programs(rng.roll(2) as u32);
            engine.host().refuse_starts(rng.roll(2) as u32);
        }
    }
}

#[test]
fn threads_leave_nothing_behind() {
    leave_nothing_behind(&Machine::engine(CPUS as u32));
}

#[test]
fn threads_that_share_leave_nothing_behind() {
    leave_nothing_behind(&Machine::sharing(CPUS as u32));
}

fn leave_nothing_behind(engine: &Engine<Machine>) {
    engine.host().tick(1);
    let shared = Shared { next_task: AtomicU64::new(3), tasks: Mutex::new(vec![1, 2]), ..Shared::default() };
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let shared = &shared;
            scope.spawn(move || {
                let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                (0..STEPS).for_each(|_| step(engine, shared, &mut rng));
            });
        }
    });
    shared.tasks.into_inner().unwrap().into_iter().for_each(|task| engine.task_exit(TaskId(task)));
    shared.groups.into_inner().unwrap().into_iter().for_each(|(group, _)| engine.close(group));
    shared.sets.into_inner().unwrap().into_iter().for_each(|set| engine.close_set(set));
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}

#[test]
fn a_root_never_counts_backwards_while_children_come_and_go() {
    let engine = Machine::engine(1);
    let attrs = [flagged(1, AttrFlags::INHERIT), flagged(2, AttrFlags::INHERIT)];
    let root = engine.open_enabled(&group(PLENTY, &attrs), Target::task(TaskId(1)));
    let done = AtomicBool::new(false);
    let forks = 2000_u64;
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|which| {
                let (engine, root, done) = (&engine, &root, &done);
                scope.spawn(move || {
                    let mut last = 0;
                    while !done.load(SeqCst) {
                        let value = match which {
                            0 => engine.read(root.events[0]).unwrap().value,
                            _ => engine.read_group(root.group).unwrap()[1].unwrap().value / 2,
                        };
                        assert!(value >= last, "{value} after {last}");
                        last = value;
                    }
                })
            })
            .collect();
        for child in 0..forks {
            let task = TaskId(child + 2);
            engine.task_fork(TaskId(1), task).unwrap();
            engine.host().run(&[ContextKey::Task(task)], 10);
            // A few live at any moment, and they leave in another order than they came.
            if child % 3 != 0 {
                engine.task_exit(task);
            } else if child >= 3 {
                engine.task_exit(TaskId(child + 2 - 3));
            }
        }
        done.store(true, SeqCst);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert_eq!(engine.read(root.events[0]).unwrap().value, forks * 10);
}

#[test]
fn no_event_counts_after_a_family_was_switched_off() {
    let engine = Machine::engine(1);
    let root = engine.open(&group(PLENTY, &[flagged(1, AttrFlags::INHERIT)]), Target::task(TaskId(1))).unwrap();
    let next = AtomicU64::new(2);
    for round in 0..100 {
        let forker = |from: TaskId| {
            (0..5).for_each(|_| engine.task_fork(from, TaskId(next.fetch_add(1, SeqCst))).unwrap());
        };
        thread::scope(|scope| {
            scope.spawn(|| forker(TaskId(1)));
            scope.spawn(|| forker(TaskId(1)));
            scope.spawn(|| {
                engine.enable_group(root.group).unwrap();
                engine.disable(root.events[0]).unwrap();
            });
        });
        let all: Vec<_> = (1..next.load(SeqCst)).map(|task| ContextKey::Task(TaskId(task))).collect();
        let before = engine.read(root.events[0]).unwrap().value;
        engine.host().run(&all, 1);
        assert_eq!(engine.read(root.events[0]).unwrap().value, before, "round {round}");
        engine.enable(root.events[0]).unwrap();
        engine.host().run(&all, 1);
        assert_eq!(engine.read(root.events[0]).unwrap().value, before + all.len() as u64, "round {round}");
        engine.disable(root.events[0]).unwrap();
    }
}

fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

#[test]
fn the_checker_sees_every_kind_of_violation() {
    // In a process of its own: each run of shuttle in this one has put a hook more around what a panic prints.
    if !pmux_testkit::own_process() {
        return;
    }
    let lock = |rank| CheckedLock::<(), true>::ranked(rank, ());
    let sleeps = CheckedLock::<(), false>::ranked(Rank::Views, ());
    let (registry, bank, context) = (lock(Rank::Registry), lock(Rank::Bank), lock(Rank::Context));
    assert!(!panics(|| registry.with(|()| bank.with(|()| context.with(|()| ())))));
    assert!(panics(|| context.with(|()| bank.with(|()| ()))), "out of order");
    assert!(panics(|| bank.with(|()| lock(Rank::Bank).with(|()| ()))), "two of one rank");
    assert!(panics(|| context.with(|()| sleeps.with(|()| ()))), "one that may sleep under one that spins");
    assert!(panics(|| registry.with(|()| locks::asked_for_time())));
    assert!(panics(|| context.with(|()| locks::touched_counters())));
    assert!(panics(|| bank.with(|()| locks::called("near"))));
    assert!(!panics(|| bank.with(|()| locks::touched_counters())));
    assert!(!panics(|| lock(Rank::Set).with(|()| locks::called("near"))));
    assert_eq!(locks::held(), None, "a panic leaves nothing held");
}

/// The machine must notice when the rules of [`crate::host`] are broken: here by a caller that uses the one closure
/// that the engine runs under the registry's lock for what its documentation forbids.
#[test]
fn the_machine_notices_a_call_under_the_registry() {
    if !pmux_testkit::own_process() {
        return;
    }
    let planted: [fn(&Engine<Machine>); 4] = [
        |engine| _ = engine.host().now(),
        |engine| _ = engine.host().presence(ContextKey::Cpu(CpuId(0))),
        |engine| _ = engine.host().bank(ContextKey::Cpu(CpuId(0))),
        |engine| _ = engine.census(),
    ];
    for violation in planted {
        let engine = Machine::engine(1);
        let root = engine.open(&group(PLENTY, &[flagged(1, AttrFlags::INHERIT)]), Target::task(TaskId(1))).unwrap();
        let family = engine.registry_family(root.events[0]);
        assert!(panics(|| _ = engine.with_family(family, |_| violation(&engine))));
        assert_eq!(engine.with_family(family, |family| family.live()), Some(1), "and nothing is held afterwards");
        assert_eq!(engine.host().now(), Nanos::ZERO);
    }
}
