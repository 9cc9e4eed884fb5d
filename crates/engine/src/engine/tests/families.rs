//! Fork, exit, and whose counts they are.

use super::close_all;
use crate::engine::{Census, Exec};
use crate::inherit::{Attribution, FamilyError};
use crate::pmu::BankError;
use crate::target::{ContextKey, Presence};
use crate::testing::{KERNEL, Machine, PLENTY, REFUSED, SCARCE, event, flagged, group};
use crate::{Count, Engine, EventId, EventState, Nanos, OpenError, Opened, ReadError, Target, TaskId};
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags};

fn inherited(rate: u64) -> Attr {
    flagged(rate, AttrFlags::INHERIT)
}

fn values(engine: &Engine<Machine>, events: &[EventId]) -> Vec<u64> {
    events.iter().map(|&event| engine.read(event).unwrap().value).collect()
}

#[test]
fn children_fold_into_their_root() {
    for pmu in [SCARCE, PLENTY] {
        let engine = Machine::engine(1);
        let root = engine.open_enabled(&group(pmu, &[inherited(1), inherited(10)]), Target::task(TaskId(1)));
        engine.host().run_task(1, 1);
        engine.task_fork(TaskId(1), TaskId(2)).unwrap();
        engine.host().run_task(2, 2);
        engine.task_fork(TaskId(2), TaskId(3)).unwrap();
        engine.host().run_task(3, 4);
        assert_eq!(values(&engine, &root.events), [7, 70], "live children count");
        engine.task_exit(TaskId(2));
        engine.host().run_task(3, 8);
        assert_eq!(values(&engine, &root.events), [15, 150]);
        engine.task_exit(TaskId(1));
        engine.host().run_task(3, 16);
        assert_eq!(values(&engine, &root.events), [31, 310], "the grandchild outlives its root");
        engine.task_exit(TaskId(3));
        assert_eq!(values(&engine, &root.events), [31, 310]);
        assert_eq!(engine.state(root.events[0]), Ok(EventState::Dead));
        close_all(&engine, [&root]);
    }
}

#[test]
fn only_events_that_inherit_are_inherited() {
    let engine = Machine::engine(1);
    let own = engine.open_enabled(&group(PLENTY, &[event(1)]), Target::task(TaskId(1)));
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    engine.host().run_task(2, 5);
    assert_eq!((values(&engine, &own.events), engine.census().events), (vec![0], 1));
}

#[test]
fn a_child_gets_events_as_they_are_in_its_parent() {
    let engine = Machine::engine(1);
    let root = engine.open(&group(PLENTY, &[inherited(1), inherited(1)]), Target::task(TaskId(1))).unwrap();
    engine.enable(root.events[0]).unwrap();
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    engine.host().run_task(2, 5);
    assert_eq!(values(&engine, &root.events), [5, 0]);
}

#[test]
fn a_root_that_is_closed_takes_its_live_children_along() {
    let engine = Machine::engine(1);
    let root = engine.open_enabled(&group(SCARCE, &[inherited(1)]), Target::task(TaskId(1)));
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    engine.task_fork(TaskId(2), TaskId(3)).unwrap();
    assert_eq!(engine.census().events, 3);
    close_all(&engine, [&root]);
    engine.task_fork(TaskId(2), TaskId(4)).unwrap();
    engine.task_exit(TaskId(2));
    assert_eq!(engine.census(), Census::default());
}

#[test]
fn a_second_exit_counts_nothing_twice() {
    let engine = Machine::engine(1);
    let root = engine.open_enabled(&group(PLENTY, &[inherited(1)]), Target::task(TaskId(1)));
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    // An event of the child itself keeps its context there.
    let own = engine.open(&group(PLENTY, &[event(1)]), Target::task(TaskId(2))).unwrap();
    engine.host().run_task(2, 3);
    engine.task_exit(TaskId(2));
    engine.task_exit(TaskId(2));
    assert_eq!(values(&engine, &root.events), [3]);
    engine.close(own.group);
}

#[test]
fn families_by_reports_say_who_counted_what() {
    let engine = Machine::engine(1);
    let root = engine.open(&group(KERNEL, &[inherited(1)]), Target::task(TaskId(1))).unwrap();
    let family = engine.create_tree(TaskId(1), vec![root.events.clone()], Attribution::EachTask).unwrap();
    engine.enable_group(root.group).unwrap();
    engine.host().run_task(1, 10);
    let (one, two, three) = (TaskId(1), TaskId(2), TaskId(3));
    engine.child_forked(family, one, two, Nanos(1)).unwrap();
    engine.child_forked(family, two, three, Nanos(2)).unwrap();
    let stranger = engine.child_forked(family, TaskId(9), TaskId(8), Nanos(2));
    assert_eq!(stranger, Err(FamilyError::UnknownParent(TaskId(9))));
    let report = Count { value: 4, enabled: Nanos(4), running: Nanos(4) };
    engine.child_exited(family, three, Nanos(5)).unwrap();
    engine.child_reported(family, three, 0, report).unwrap();
    assert_eq!(engine.child_reported(family, three, 1, report), Err(FamilyError::NoSuchEvent(1)));
    let tally = engine.read_family(family).unwrap()[0];
    assert_eq!((tally.total.value, tally.own.value, tally.retired.value), (10, 6, 4));
    // The number of a task that exited is taken by another.
    engine.child_forked(family, one, three, Nanos(6)).unwrap();
    engine.child_reported(family, three, 0, report).unwrap();
    let counted: Vec<_> = engine
        .with_family(family, |family| family.tasks().map(|(_, r)| (r.task.0, r.counts()[0].value, r.reports)).collect())
        .unwrap();
    assert_eq!(counted, [(1, 0, 0), (2, 0, 0), (3, 4, 1), (3, 4, 1)]);
    engine.close(root.group);
    assert_eq!(engine.read_family(family), Err(ReadError::Closed));
}

#[test]
fn refused_children_do_not_stop_a_fork() {
    let engine = Machine::engine(1);
    let root = engine
        .open(&group(SCARCE, &[inherited(1), Attr { config1: REFUSED, ..inherited(1) }]), Target::task(TaskId(1)));
    let root = root.unwrap();
    engine.enable_group(root.group).unwrap();
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    engine.host().run_task(2, 5);
    engine.task_exit(TaskId(2));
    assert_eq!(engine.read(root.events[0]).unwrap().running, Nanos::ZERO);
    close_all(&engine, [&root]);
}

/// A root that counts, with a child and a grandchild.
fn three_generations(spec: &crate::GroupSpec) -> (Engine<Machine>, Opened) {
    let engine = Machine::engine(1);
    let root = engine.open_enabled(spec, Target::task(TaskId(1)));
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    engine.task_fork(TaskId(2), TaskId(3)).unwrap();
    (engine, root)
}

fn run_all(engine: &Engine<Machine>, ns: u64) {
    engine.host().run(&[1, 2, 3, 4].map(|task| ContextKey::Task(TaskId(task))), ns);
}

#[test]
fn a_root_is_switched_and_reset_with_its_children() {
    for pmu in [SCARCE, PLENTY] {
        let (engine, root) = three_generations(&group(pmu, &[inherited(1), inherited(1)]));
        run_all(&engine, 10);
        engine.disable(root.events[1]).unwrap();
        run_all(&engine, 10);
        assert_eq!(values(&engine, &root.events), [60, 30]);
        engine.task_fork(TaskId(3), TaskId(4)).unwrap();
        run_all(&engine, 1);
        assert_eq!(values(&engine, &root.events), [64, 30], "a child that comes later is like the others");
        engine.enable_group(root.group).unwrap();
        engine.task_exit(TaskId(2));
        engine.reset(root.events[0]).unwrap();
        run_all(&engine, 1);
        assert_eq!(values(&engine, &root.events), [3, 33], "what was reported is forgotten, too");
        engine.disable_group(root.group).unwrap();
        run_all(&engine, 100);
        let counts = engine.read_group(root.group).unwrap();
        assert_eq!(counts.iter().map(|count| count.unwrap().value).collect::<Vec<_>>(), [3, 33]);
        close_all(&engine, [&root]);
    }
}

#[test]
fn a_family_says_who_counted_what_where_the_engine_counts() {
    let engine = Machine::engine(1);
    let root = engine.open(&group(SCARCE, &[inherited(1), inherited(2)]), Target::task(TaskId(1))).unwrap();
    let roots: Vec<_> = root.events.iter().map(|&event| vec![event]).collect();
    let family = engine.create_tree(TaskId(1), roots.clone(), Attribution::EachTask).unwrap();
    assert_eq!(engine.census().families, 1, "it takes the place of the one that the open had founded");
    engine.enable_group(root.group).unwrap();
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    engine.task_fork(TaskId(1), TaskId(3)).unwrap();
    run_all(&engine, 5);
    engine.task_exit(TaskId(2));
    run_all(&engine, 5);
    let tallies = engine.read_family(family).unwrap();
    let parts: Vec<_> = tallies.iter().map(|t| (t.total.value, t.own.value, t.retired.value)).collect();
    assert_eq!(parts, [(25, 10, 5), (50, 20, 10)]);
    engine.task_exit(TaskId(3));
    let who = |engine: &Engine<Machine>| {
        let values = |counts: &[Count]| counts.iter().map(|count| count.value).collect::<Vec<_>>();
        let each = |family: &mut crate::inherit::Family| {
            family.tasks().map(|(_, r)| (r.task.0, values(r.counts()), r.reports)).collect::<Vec<_>>()
        };
        engine.with_family(family, each).unwrap()
    };
    let expected: Vec<(u64, Vec<u64>, u32)> = vec![(1, vec![0, 0], 0), (2, vec![5, 10], 2), (3, vec![10, 20], 2)];
    assert_eq!(who(&engine), expected);
    assert_eq!(engine.create_tree(TaskId(1), roots, Attribution::Totals), None, "it has children");
    close_all(&engine, [&root]);
}

#[test]
fn a_family_is_founded_on_what_is_open_and_whole() {
    let engine = Machine::engine(1);
    let pair = engine.open(&group(PLENTY, &[event(1), event(1)]), Target::task(TaskId(1))).unwrap();
    let other = engine.open(&group(KERNEL, &[event(1)]), Target::task(TaskId(1))).unwrap();
    let found = |roots: &[&[EventId]]| {
        engine.create_tree(TaskId(1), roots.iter().map(|roots| roots.to_vec()).collect(), Attribution::Totals)
    };
    assert_eq!(found(&[]), None);
    assert_eq!(found(&[&pair.events[..1]]), None, "half a group");
    assert_eq!(found(&[&pair.events]), None, "two events of one task would both be given the children");
    engine.close(other.group);
    assert_eq!(found(&[&pair.events[..1], &other.events]), None, "one is closed");
    assert_eq!(engine.census().families, 0);
    assert!(found(&[&pair.events[..1], &pair.events[1..]]).is_some());
    engine.close(pair.group);
    assert_eq!(engine.census(), Census::default());
}

#[test]
fn a_group_is_inherited_in_one_way() {
    let engine = Machine::engine(1);
    let mut spec = group(PLENTY, &[inherited(1)]);
    spec.events.push((KERNEL, inherited(1)));
    let error = OpenError::MixedInheritance { index: 1 };
    assert_eq!(engine.open(&spec, Target::task(TaskId(1))), Err(error));
    assert_eq!(error.errno(), 22);
    let on_cpu = engine.open(&spec, Target::cpu(crate::CpuId(0))).unwrap();
    engine.close(on_cpu.group);
}

#[test]
fn a_child_that_is_refused_is_counted_as_missing_and_forgotten() {
    let (engine, root) = three_generations(&group(PLENTY, &[inherited(1), inherited(1)]));
    let family = engine.registry_family(root.events[0]);
    engine.host().refuse_programs(1);
    let refused = OpenError::Bank { index: 0, error: BankError::Busy };
    assert_eq!(engine.task_fork(TaskId(1), TaskId(4)), Err(refused));
    let seen = |engine: &Engine<Machine>| engine.with_family(family, |f| (f.live(), f.forks(), f.uncounted())).unwrap();
    assert_eq!(seen(&engine), (3, 3, 1));
    engine.task_fork(TaskId(4), TaskId(5)).unwrap();
    engine.task_exit(TaskId(5));
    engine.task_exit(TaskId(4));
    assert_eq!(seen(&engine), (3, 3, 1));
    close_all(&engine, [&root]);
}

#[test]
fn a_fork_that_is_told_twice_is_one() {
    let (engine, root) = three_generations(&group(PLENTY, &[inherited(1)]));
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    engine.task_fork(TaskId(1), TaskId(1)).unwrap();
    run_all(&engine, 5);
    assert_eq!((values(&engine, &root.events), engine.census().events), (vec![15], 3));
}

#[test]
fn children_of_a_program_that_changed_its_rights_are_not_counted() {
    let (engine, root) = three_generations(&group(PLENTY, &[inherited(1)]));
    run_all(&engine, 2);
    engine.task_exec(TaskId(2), Exec::ChangesRights);
    engine.task_fork(TaskId(2), TaskId(4)).unwrap();
    run_all(&engine, 2);
    assert_eq!(values(&engine, &root.events), [10], "1 and 3 go on, 2 keeps what it had, 4 has nothing");
    engine.task_exit(TaskId(2));
    engine.enable_group(root.group).unwrap();
    engine.host().run_task(4, 5);
    assert_eq!(values(&engine, &root.events), [10], "nor when its root is enabled once more");
}

#[test]
fn a_task_that_is_counted_on_each_cpu_is_enabled_once() {
    let engine = Machine::engine(2);
    let on = |cpu| {
        let filter = crate::target::Filter::OnCpu(crate::CpuId(cpu));
        let target = Target { context: ContextKey::Task(TaskId(1)), filter };
        let opened = engine.open_enabled(&group(KERNEL, &[inherited(1)]), target);
        opened.events[0]
    };
    let roots = vec![vec![on(0), on(1)]];
    let family = engine.create_tree(TaskId(1), roots, Attribution::EachTask).unwrap();
    engine.host().run_task(1, 5);
    let total = engine.read_family(family).unwrap()[0].total;
    assert_eq!((total.value, total.enabled, total.running), (10, Nanos(5), Nanos(10)));
}

#[test]
fn an_exec_starts_in_a_child_what_it_would_start_in_the_parent() {
    let waiting = flagged(1, AttrFlags::INHERIT | AttrFlags::ENABLE_ON_EXEC);
    let engine = Machine::engine(1);
    let root = engine.open(&group(PLENTY, &[waiting]), Target::task(TaskId(1))).unwrap();
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    engine.task_exec(TaskId(2), Exec::Plain);
    run_all(&engine, 1);
    assert_eq!(values(&engine, &root.events), [1], "only the child has executed a program");
    engine.task_exec(TaskId(1), Exec::Plain);
    engine.disable(root.events[0]).unwrap();
    engine.task_fork(TaskId(1), TaskId(3)).unwrap();
    engine.task_exec(TaskId(3), Exec::Plain);
    run_all(&engine, 10);
    assert_eq!(values(&engine, &root.events), [1], "it was disabled since");
}

#[test]
fn a_child_in_error_has_counted_what_it_had() {
    let pinned = flagged(1, AttrFlags::PINNED | AttrFlags::INHERIT);
    let engine = Machine::engine(1);
    for task in [2, 3] {
        engine.host().place(ContextKey::Task(TaskId(task)), Presence::Out);
    }
    let root = engine.open_enabled(&group(SCARCE, &[pinned]), Target::task(TaskId(1)));
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    engine.switch_in(TaskId(2), crate::CpuId(0));
    engine.host().run_task(2, 5);
    engine.switch_out(TaskId(2));
    engine.host().refuse_programs(1);
    engine.switch_in(TaskId(2), crate::CpuId(0));
    assert_eq!(values(&engine, &root.events), [5]);
    engine.task_fork(TaskId(2), TaskId(3)).unwrap();
    engine.switch_in(TaskId(3), crate::CpuId(0));
    engine.host().run_task(3, 5);
    assert_eq!(values(&engine, &root.events), [5], "what is in error is not inherited as enabled");
    engine.task_exit(TaskId(2));
    assert_eq!(values(&engine, &root.events), [5]);
}

#[test]
fn a_record_that_says_exit_closes_what_the_engine_had_opened() {
    let (engine, root) = three_generations(&group(PLENTY, &[inherited(1)]));
    let family = engine.registry_family(root.events[0]);
    engine.child_exited(family, TaskId(3), Nanos(1)).unwrap();
    assert_eq!(engine.child_exited(family, TaskId(9), Nanos(1)), Err(FamilyError::UnknownTask(TaskId(9))));
    assert_eq!((engine.census().events, engine.host().leased()), (2, 2));
}
