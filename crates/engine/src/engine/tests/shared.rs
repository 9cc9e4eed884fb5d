//! CPUs whose counters are shared by their own events and those of the task on them.

use super::{close_all, count};
use crate::error::ReadError;
use crate::pmu::BankError;
use crate::target::{ContextKey, Presence};
use crate::testing::{Machine, PLENTY, SCARCE, event, flagged, group, play};
use crate::{Count, CpuId, Engine, EventId, EventState, LockCell as _, Opened, Target, TaskContext, TaskId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use pmux_abi::attr::{Attr, AttrFlags};

const CPU: CpuId = CpuId(0);

/// A machine, and tasks that are on no CPU yet.
fn machine(cpus: u32) -> Engine<Machine> {
    let engine: Engine<Machine> = Machine::shared_on(cpus);
    (0..100).for_each(|task| engine.host().place(ContextKey::Task(TaskId(task)), Presence::Out));
    engine
}

fn open(engine: &Engine<Machine>, target: Target, rates: &[u64]) -> Opened {
    let attrs: Vec<_> = rates.iter().map(|&rate| event(rate)).collect();
    engine.open_enabled(&group(SCARCE, &attrs), target)
}

fn task(task: u64) -> Target {
    Target::task(TaskId(task))
}

fn come(engine: &Engine<Machine>, task: u64, cpu: CpuId) {
    engine.host().place(ContextKey::Task(TaskId(task)), Presence::On(cpu));
    engine.switch_in(TaskId(task), cpu);
}

fn leave(engine: &Engine<Machine>, task: u64) {
    engine.host().place(ContextKey::Task(TaskId(task)), Presence::Out);
    engine.switch_out(TaskId(task));
}

fn read(engine: &Engine<Machine>, event: EventId) -> Count {
    engine.read(event).unwrap()
}

#[test]
fn a_task_counts_while_it_is_on_a_cpu() {
    for pmu in [SCARCE, PLENTY] {
        let engine = machine(2);
        let opened = engine.open_enabled(&group(pmu, &[event(3)]), task(1));
        engine.host().run_on(0, None, 5);
        for (cpu, ns) in [(0, 10), (1, 20), (0, 40)] {
            come(&engine, 1, CpuId(cpu));
            engine.host().run_on(cpu, Some(1), ns);
            leave(&engine, 1);
            engine.host().run_on(cpu, None, 100);
        }
        assert_eq!(read(&engine, opened.events[0]), count(3 * 70, 70, 70));
        close_all(&engine, [&opened]);
    }
}

/// While no task has a context, a switch looks at none; what a task that is dying leaves on a CPU is not in the way of the next one.
#[test]
fn switches_before_the_first_and_after_the_last_context() {
    let engine = machine(1);
    let [dying, other, last] = [1, 2, 3].map(|id| engine.task(TaskId(id)));
    let switch = |out: Option<(u64, &TaskContext<Machine>)>, next: Option<(u64, &TaskContext<Machine>)>| {
        let place = |id, presence| engine.host().place(ContextKey::Task(TaskId(id)), presence);
        out.into_iter().for_each(|(id, _)| place(id, Presence::Out));
        next.into_iter().for_each(|(id, _)| place(id, Presence::On(CPU)));
        engine.switch(CPU, out.map(|(_, context)| context), next.map(|(_, context)| context));
    };
    assert!(engine.task_contexts.are_none(), "to ask for its slot makes no context");
    switch(None, Some((1, &dying)));
    let first = open(&engine, task(1), &[3]);
    engine.host().run_on(0, Some(1), 10);
    assert_eq!(read(&engine, first.events[0]), count(30, 10, 10), "opened on the CPU");
    let second = open(&engine, task(2), &[5]);
    engine.task_exit(TaskId(1));
    engine.close(first.group);
    switch(Some((1, &dying)), Some((2, &other)));
    engine.host().run_on(0, Some(2), 10);
    assert_eq!(read(&engine, second.events[0]), count(50, 10, 10));
    // The one that has exited comes once more, and the other one's context goes meanwhile.
    switch(Some((2, &other)), Some((1, &dying)));
    engine.close(second.group);
    engine.task_exit(TaskId(2));
    drop(other);
    assert!(!engine.task_contexts.are_none(), "it may be on the CPU");
    switch(Some((1, &dying)), Some((3, &last)));
    drop(dying);
    assert!(engine.task_contexts.are_none());
    let third = open(&engine, task(3), &[7]);
    engine.host().run_on(0, Some(3), 10);
    assert_eq!(read(&engine, third.events[0]), count(70, 10, 10));
    switch(Some((3, &last)), None);
    engine.host().run_on(0, None, 10);
    assert_eq!(read(&engine, third.events[0]), count(70, 10, 10));
    engine.task_exit(TaskId(3));
    close_all(&engine, [&third]);
    drop(last);
    assert!(engine.task_contexts.are_none());
}

#[test]
fn a_cpu_and_the_task_on_it_share_its_counters() {
    let engine = machine(1);
    let pinned = engine.open_enabled(&group(SCARCE, &[flagged(1, AttrFlags::PINNED)]), Target::cpu(CPU));
    let (one, two) = (open(&engine, task(1), &[10]), open(&engine, task(1), &[100]));
    come(&engine, 1, CPU);
    for _ in 0..10 {
        engine.host().run_on(0, Some(1), 5);
        engine.tick(CPU);
    }
    assert_eq!(read(&engine, pinned.events[0]), count(50, 50, 50));
    // Turn by turn: each has the second counter half of the time.
    assert_eq!(read(&engine, one.events[0]), count(250, 50, 25));
    assert_eq!(read(&engine, two.events[0]), count(2500, 50, 25));
    leave(&engine, 1);
    engine.host().run_on(0, None, 50);
    assert_eq!(read(&engine, one.events[0]), count(250, 50, 25));
    assert_eq!(read(&engine, pinned.events[0]), count(100, 100, 100));
    close_all(&engine, [&pinned, &one, &two]);
}

#[test]
fn neither_the_cpu_nor_the_task_starves() {
    let engine = machine(1);
    let wide = [1, 1];
    let groups = [
        open(&engine, Target::cpu(CPU), &wide),
        open(&engine, Target::cpu(CPU), &wide),
        open(&engine, task(1), &wide),
        open(&engine, task(1), &wide),
        open(&engine, task(1), &wide),
    ];
    come(&engine, 1, CPU);
    for _ in 0..60 {
        engine.host().run_on(0, Some(1), 1);
        engine.tick(CPU);
    }
    let ran: Vec<_> = groups.iter().map(|opened| read(&engine, opened.events[0]).running.0).collect();
    assert_eq!(ran.iter().sum::<u64>(), 60, "exactly one at a time: {ran:?}");
    // Half the time is the CPU's, half the task's.
    assert_eq!(ran, [15, 15, 10, 10, 10]);
    close_all(&engine, &groups);
}

/// How long each group has run after so many ticks, in none of which the task was there.
fn ran_without_ticks(engine: &Engine<Machine>, groups: &[Opened; 3], ticks: usize) -> [u64; 3] {
    for _ in 0..ticks {
        come(engine, 1, CPU);
        engine.host().run_on(0, Some(1), 1);
        leave(engine, 1);
        engine.tick(CPU);
    }
    groups.each_ref().map(|opened| read(engine, opened.events[0]).running.0)
}

#[test]
fn a_task_that_never_sees_a_tick_takes_turns_too() {
    let engine = machine(1);
    let groups = [open(&engine, task(1), &[1, 1]), open(&engine, task(1), &[1, 1]), open(&engine, task(1), &[1, 1])];
    let ran = ran_without_ticks(&engine, &groups, 30);
    assert_eq!(ran, [10; 3]);
    close_all(&engine, &groups);
}

#[test]
fn a_cpu_does_not_starve_tasks_that_never_see_a_tick() {
    let engine = machine(1);
    let wide = [1, 1];
    let groups = [open(&engine, Target::cpu(CPU), &wide), open(&engine, task(1), &wide), open(&engine, task(1), &wide)];
    let ran = ran_without_ticks(&engine, &groups, 20);
    assert!(ran.iter().all(|&ran| ran >= 5), "{ran:?}");
    close_all(&engine, &groups);
}

#[test]
fn those_who_take_no_part_have_no_turn() {
    let engine = machine(1);
    let wide = |target| open(&engine, target, &[1, 1]);
    let groups = [wide(Target::cpu(CPU)), wide(Target::cpu(CPU)), wide(Target::cpu(CPU)), wide(Target::cpu(CPU))];
    engine.disable_group(groups[1].group).unwrap();
    engine.disable_group(groups[2].group).unwrap();
    // Nor do those who need another PMU.
    let elsewhere: Vec<_> =
        (0..3).map(|_| engine.open_enabled(&group(PLENTY, &[event(1)]), Target::cpu(CPU))).collect();
    for _ in 0..20 {
        engine.host().run_on(0, None, 1);
        engine.tick(CPU);
    }
    let ran = groups.each_ref().map(|opened| read(&engine, opened.events[0]).running.0);
    assert_eq!(ran, [10, 0, 0, 10]);
    assert!(elsewhere.iter().all(|opened| read(&engine, opened.events[0]) == count(20, 20, 20)));
    elsewhere.iter().for_each(|opened| engine.close(opened.group));
    close_all(&engine, &groups);
}

#[test]
fn contexts_on_cores_of_their_own_take_turns_in_step() {
    let engine = Machine::engine(3);
    let wide = |cpu| open(&engine, Target::cpu(CpuId(cpu)), &[1, 1]);
    let on_two: Vec<_> = (0..3).flat_map(|_| [wide(0), wide(1)]).collect();
    let on = |engine: &Engine<Machine>, opened: &Opened| engine.state(opened.events[0]) == Ok(EventState::Active);
    engine.rotate();
    // A CPU that comes later has the same groups on at the same time.
    let later: Vec<_> = (0..3).map(|_| wide(2)).collect();
    for turn in 0..7 {
        let rotation = engine.rotate();
        assert_eq!((rotation.turn, rotation.contexts), (turn + 2, 3));
        let who =
            |cpu: usize| -> Vec<_> { on_two.iter().skip(cpu).step_by(2).map(|opened| on(&engine, opened)).collect() };
        assert_eq!(who(0), who(1));
        assert_eq!(who(0), later.iter().map(|opened| on(&engine, opened)).collect::<Vec<_>>());
        assert_eq!(who(0).iter().filter(|&&on| on).count(), 1);
    }
    close_all(&engine, on_two.iter().chain(&later));
    assert_eq!(engine.rotate().contexts, 0);
}

#[test]
fn a_turn_changes_only_what_differs() {
    let engine = machine(1);
    let groups: Vec<_> = (0..3).map(|_| open(&engine, Target::cpu(CPU), &[1])).collect();
    let before = engine.host().programs();
    for _ in 0..10 {
        engine.host().run_on(0, None, 1);
        engine.tick(CPU);
    }
    assert_eq!(engine.host().programs(), before + 10, "one leaves and one comes, the other stays");
    let ran: u64 = groups.iter().map(|opened| read(&engine, opened.events[0]).running.0).sum();
    assert_eq!(ran, 20);
    close_all(&engine, &groups);
}

#[test]
fn a_context_that_a_host_keeps_serves_until_the_task_ends() {
    let engine = machine(1);
    engine.host().place(ContextKey::Task(TaskId(1)), Presence::Out);
    let kept = engine.task(TaskId(1));
    let runs = |ns| {
        engine.switch(CPU, None, Some(&kept));
        engine.host().run_on(0, Some(1), ns);
        engine.switch(CPU, Some(&kept), None);
    };
    runs(5);
    // Before the first event, while there is one, between the last close and the next open, and at an event on a task that runs.
    for _ in 0..3 {
        let opened = engine.open_enabled(&group(SCARCE, &[event(1)]), task(1));
        runs(10);
        assert_eq!(read(&engine, opened.events[0]).value, 10);
        engine.close(opened.group);
        runs(20);
        engine.host().place(ContextKey::Task(TaskId(1)), Presence::On(CPU));
        engine.switch(CPU, None, Some(&kept));
        let opened = engine.open_enabled(&group(SCARCE, &[event(1)]), task(1));
        engine.host().run_on(0, Some(1), 7);
        engine.host().place(ContextKey::Task(TaskId(1)), Presence::Out);
        engine.switch(CPU, Some(&kept), None);
        assert_eq!(read(&engine, opened.events[0]).value, 7);
        close_all(&engine, [&opened]);
    }
    // A child has its own from its birth.
    let child = engine.task(TaskId(2));
    engine.host().place(ContextKey::Task(TaskId(2)), Presence::Out);
    let root = engine.open_enabled(&group(SCARCE, &[flagged(1, AttrFlags::INHERIT)]), task(1));
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    engine.switch(CPU, None, Some(&child));
    engine.host().run_on(0, Some(2), 3);
    engine.task_exit(TaskId(2));
    engine.switch(CPU, Some(&child), Some(&kept));
    engine.host().run_on(0, Some(1), 4);
    assert_eq!(read(&engine, root.events[0]).value, 7);
    engine.task_exit(TaskId(1));
    engine.switch(CPU, Some(&kept), None);
    close_all(&engine, [&root]);
    let left = engine.registry.with(|registry| (registry.tasks.len(), registry.contexts.len()));
    assert_eq!(left, (0, 0), "the engine keeps nothing of tasks that have ended");
}

#[test]
fn clones_go_on_with_a_running_counter() {
    let engine = machine(2);
    let inherit = |rate| flagged(rate, AttrFlags::INHERIT);
    let root = engine.open_enabled(&group(SCARCE, &[inherit(1), inherit(10)]), task(1));
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    come(&engine, 1, CPU);
    let before = engine.host().programs();
    let [parent, child] = [1, 2].map(|task| engine.task(TaskId(task)));
    for _ in 0..10 {
        engine.host().run_on(0, Some(1), 3);
        engine.switch(CPU, Some(&parent), Some(&child));
        engine.host().run_on(0, Some(2), 4);
        engine.switch(CPU, Some(&child), Some(&parent));
    }
    assert_eq!(engine.host().programs(), before, "nothing was programmed again");
    let tallies = engine.read_family(engine.registry_family(root.events[0])).unwrap();
    assert_eq!(tallies.iter().map(|tally| tally.own).collect::<Vec<_>>(), [count(30, 30, 30), count(300, 30, 30)]);
    assert_eq!(tallies[1].total, count(700, 70, 70));
    engine.task_exit(TaskId(2));
    let tallies = engine.read_family(engine.registry_family(root.events[0])).unwrap();
    assert_eq!((tallies[1].retired, tallies[1].total), (count(400, 40, 40), count(700, 70, 70)));
    close_all(&engine, [&root]);
}

#[test]
fn a_refused_hand_over_loses_nothing() {
    let engine = machine(1);
    let root = engine.open_enabled(&group(SCARCE, &[flagged(1, AttrFlags::INHERIT)]), task(1));
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    come(&engine, 1, CPU);
    let [parent, child] = [1, 2].map(|task| engine.task(TaskId(task)));
    engine.host().run_on(0, Some(1), 3);
    engine.host().refuse_starts(1);
    engine.switch(CPU, Some(&parent), Some(&child));
    engine.host().run_on(0, Some(2), 4);
    engine.switch(CPU, Some(&child), None);
    assert_eq!(read(&engine, root.events[0]), count(7, 7, 7));
    close_all(&engine, [&root]);
}

#[test]
fn a_clone_that_loses_its_turn_as_it_comes_loses_no_count() {
    for refused in 0..3 {
        let engine = machine(1);
        let inherited = |rate| engine.open_enabled(&group(SCARCE, &[flagged(rate, AttrFlags::INHERIT)]), task(1));
        let roots = [inherited(1), inherited(10), inherited(100)];
        let of_cpu = open(&engine, Target::cpu(CPU), &[7]);
        engine.task_fork(TaskId(1), TaskId(2)).unwrap();
        for round in 0..40 {
            let who = 1 + round % 2;
            if round % 5 == 0 {
                engine.host().refuse_starts(refused);
            }
            let next = engine.task(TaskId(who));
            engine.switch(CPU, None, Some(&next));
            engine.host().run_on(0, Some(who), 3);
            if round % 3 == 0 {
                engine.tick(CPU);
                engine.host().run_on(0, Some(who), 2);
            }
        }
        engine.switch(CPU, None, None);
        for (root, rate) in roots.iter().zip([1, 10, 100]) {
            let count = read(&engine, root.events[0]);
            assert_eq!(count.value, rate * count.running.0, "{refused}: {count:?}");
            assert!(count.running.0 > 20 || refused > 0);
        }
        close_all(&engine, [&roots[0], &roots[1], &roots[2], &of_cpu]);
    }
}

#[test]
fn a_running_task_may_be_given_events_and_lose_them() {
    let engine = machine(1);
    come(&engine, 1, CPU);
    let first = open(&engine, task(1), &[1]);
    assert_eq!(engine.state(first.events[0]), Ok(EventState::Active));
    engine.host().run_on(0, Some(1), 3);
    let second = open(&engine, task(1), &[2]);
    engine.host().run_on(0, Some(1), 3);
    assert_eq!([&first, &second].map(|opened| read(&engine, opened.events[0])), [count(6, 6, 6), count(6, 3, 3)]);
    close_all(&engine, [&first, &second]);
    // The same task, anew, without having been switched.
    let third = open(&engine, task(1), &[5]);
    engine.host().run_on(0, Some(1), 2);
    assert_eq!(read(&engine, third.events[0]), count(10, 2, 2));
    close_all(&engine, [&third]);
}

#[test]
fn a_task_moves_from_cpu_to_cpu_with_all_its_events() {
    let engine = machine(4);
    let software = engine.open_enabled(&group(PLENTY, &[event(7)]), task(1));
    let mut mixed = group(SCARCE, &[event(1)]);
    mixed.events.push((PLENTY, event(2)));
    let mixed = engine.open_enabled(&mixed, task(1));
    for cpu in [0, 3, 1, 2, 3] {
        come(&engine, 1, CpuId(cpu));
        engine.host().run_on(cpu, Some(1), 10);
        assert_eq!(engine.state(mixed.events[1]), Ok(EventState::Active));
        leave(&engine, 1);
    }
    assert_eq!(read(&engine, software.events[0]), count(350, 50, 50));
    assert_eq!(engine.read_group(mixed.group).unwrap(), [Ok(count(50, 50, 50)), Ok(count(100, 50, 50))]);
    close_all(&engine, [&software, &mixed]);
}

#[test]
fn a_constrained_event_moves_others_aside() {
    let engine = machine(1);
    let on_slot_0 = Attr { config2: 1, ..event(5) };
    let anywhere = open(&engine, Target::cpu(CPU), &[3]);
    assert_eq!(engine.lease(anywhere.events[0]).unwrap().1.slot.0, 0);
    let only = engine.open_enabled(&group(SCARCE, &[on_slot_0]), task(1));
    engine.host().run_on(0, None, 4);
    come(&engine, 1, CPU);
    engine.host().run_on(0, Some(1), 4);
    assert_eq!(engine.lease(anywhere.events[0]).unwrap().1.slot.0, 1);
    assert_eq!(read(&engine, only.events[0]), count(20, 4, 4));
    assert_eq!(read(&engine, anywhere.events[0]), count(24, 8, 8), "no count is lost on the way");
    close_all(&engine, [&anywhere, &only]);
}

#[test]
fn a_pinned_event_of_a_task_takes_a_flexible_one_of_the_cpu_off() {
    let engine = machine(1);
    let wide = open(&engine, Target::cpu(CPU), &[1, 1]);
    let pinned = engine.open_enabled(&group(SCARCE, &[flagged(4, AttrFlags::PINNED)]), task(1));
    engine.host().run_on(0, None, 5);
    come(&engine, 1, CPU);
    engine.host().run_on(0, Some(1), 5);
    leave(&engine, 1);
    engine.host().run_on(0, None, 5);
    assert_eq!(read(&engine, pinned.events[0]), count(20, 5, 5));
    assert_eq!(read(&engine, wide.events[0]), count(10, 15, 10));
    // One that can't be had is in error, though its task is away most of the time.
    let both = engine.open(&group(SCARCE, &[flagged(1, AttrFlags::PINNED); 1]), Target::cpu(CPU)).unwrap();
    let other = engine.open(&group(SCARCE, &[flagged(1, AttrFlags::PINNED); 1]), Target::cpu(CPU)).unwrap();
    engine.enable_groups([&both, &other]);
    come(&engine, 1, CPU);
    assert_eq!(engine.read(pinned.events[0]), Err(ReadError::Error(BankError::Unscheduled)));
    close_all(&engine, [&wide, &pinned, &both, &other]);
}

#[test]
fn a_pinned_group_fails_as_one_and_comes_back_as_one() {
    let engine = machine(1);
    let pinned = flagged(1, AttrFlags::PINNED);
    let one = engine.open(&group(SCARCE, &[pinned]), Target::cpu(CPU)).unwrap();
    let two = engine.open(&group(SCARCE, &[pinned, event(1)]), Target::cpu(CPU)).unwrap();
    engine.enable_group(one.group).unwrap();
    assert!(engine.enable_group(two.group).is_err());
    let states = || two.events.iter().map(|&event| engine.state(event).unwrap()).collect::<Vec<_>>();
    assert_eq!(states(), [EventState::Error; 2]);
    // There is room for the leader, and yet not for the group.
    assert!(engine.enable(two.events[0]).is_err());
    assert_eq!(states(), [EventState::Error; 2]);
    engine.close(one.group);
    engine.enable(two.events[0]).unwrap();
    assert_eq!(states(), [EventState::Active; 2]);
    close_all(&engine, [&two]);
}

#[test]
fn a_narrow_counter_that_interrupts_loses_no_wrap() {
    let engine = machine(1);
    let opened = open(&engine, task(1), &[1 << 31]);
    come(&engine, 1, CPU);
    for _ in 0..9 {
        engine.host().run_on(0, Some(1), 1);
        engine.counters_interrupted(CPU);
    }
    assert_eq!(read(&engine, opened.events[0]).value, 9 << 31);
    engine.counters_interrupted(CPU);
    assert_eq!(read(&engine, opened.events[0]).value, 9 << 31, "an interrupt for nothing counts nothing");
    close_all(&engine, [&opened]);
}

#[test]
fn a_cpu_that_goes_leaves_its_task_whole() {
    let engine = machine(2);
    let (own, of_task) = (open(&engine, Target::cpu(CPU), &[1]), open(&engine, task(1), &[1]));
    come(&engine, 1, CPU);
    engine.host().run_on(0, Some(1), 5);
    // The host forgot to take the task off first.
    engine.cpu_offline(CPU);
    assert_eq!(engine.state(own.events[0]), Ok(EventState::Dead));
    assert_eq!(engine.state(of_task.events[0]), Ok(EventState::Inactive));
    come(&engine, 1, CpuId(1));
    engine.host().run_on(1, Some(1), 5);
    assert_eq!(read(&engine, of_task.events[0]), count(10, 10, 10));
    engine.cpu_online(CPU);
    let again = open(&engine, Target::cpu(CPU), &[1]);
    engine.host().run_on(0, None, 5);
    assert_eq!(read(&engine, again.events[0]), count(5, 5, 5));
    close_all(&engine, [&own, &of_task, &again]);
}

/// Plays the other CPUs, which answer their IPIs late, twice, and for nothing.
fn with_ipis(engine: &Arc<Engine<Machine>>, f: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for cpu in [CpuId(1), CpuId(2)] {
            let stop = &stop;
            scope.spawn(move || {
                play(Some(cpu));
                while !stop.load(SeqCst) {
                    engine.handle_ipi(cpu);
                    std::thread::sleep(core::time::Duration::from_micros(50));
                    engine.handle_ipi(cpu);
                }
            });
        }
        play(Some(CpuId(0)));
        f();
        play(None);
        stop.store(true, SeqCst);
    });
}

#[test]
fn what_is_out_of_reach_is_done_by_a_remote_call() {
    let engine = Arc::new(machine(3));
    let [here, there, of_cpu] = [task(1), task(2), Target::cpu(CpuId(2))].map(|target| open(&engine, target, &[1]));
    come(&engine, 1, CpuId(0));
    come(&engine, 2, CpuId(1));
    with_ipis(&engine, || {
        engine.host().rung();
        engine.host().run_on(0, Some(1), 5);
        engine.host().run_on(1, Some(2), 5);
        engine.host().run_on(2, None, 5);
        assert_eq!(read(&engine, here.events[0]).value, 5);
        assert_eq!(engine.host().rung(), [], "what is here needs no IPI");
        assert_eq!(read(&engine, there.events[0]).value, 5);
        engine.disable(there.events[0]).unwrap();
        engine.host().run_on(1, Some(2), 5);
        engine.enable(there.events[0]).unwrap();
        engine.host().run_on(1, Some(2), 5);
        engine.reset(of_cpu.events[0]).unwrap();
        assert_eq!(read(&engine, there.events[0]).value, 10);
        assert_eq!(read(&engine, of_cpu.events[0]).value, 0);
        let later = open(&engine, task(2), &[3]);
        engine.host().run_on(1, Some(2), 2);
        assert_eq!(read(&engine, later.events[0]).value, 6);
        assert!(engine.host().rung().contains(&CpuId(1)));
        close_all(&engine, [&here, &there, &of_cpu, &later]);
    });
}

#[test]
fn a_call_to_a_task_that_has_left_follows_it() {
    let engine = Arc::new(machine(3));
    let opened = open(&engine, task(2), &[1]);
    with_ipis(&engine, || {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The scheduler, which reaches everything.
                for cpu in [1, 2].into_iter().cycle().take_while(|_| !stop.load(SeqCst)) {
                    come(&engine, 2, CpuId(cpu));
                    std::thread::yield_now();
                    leave(&engine, 2);
                }
            });
            for _ in 0..200 {
                engine.disable(opened.events[0]).unwrap();
                assert_eq!(engine.state(opened.events[0]), Ok(EventState::Off));
                engine.enable(opened.events[0]).unwrap();
                read(&engine, opened.events[0]);
            }
            stop.store(true, SeqCst);
        });
        close_all(&engine, [&opened]);
    });
}
