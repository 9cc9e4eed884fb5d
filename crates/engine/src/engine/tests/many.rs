//! The same groups on many targets: all or nothing, and no difference from opening one after the other.

use super::{everywhere, held};
use crate::engine::{Begin, Census, RefusedOn, SetRequest};
use crate::error::{ControlError, OpenError};
use crate::hw_breakpoint::{Authority, Holder, Registers};
use crate::pmu::BankError;
use crate::system_wide::Absent;
use crate::target::{ContextKey, Target};
use crate::testing::{KERNEL, Machine, Moment, PLENTY, REFUSED, SCARCE, event, flagged, group, watch};
use crate::{Count, CpuId, Engine, EventId, EventState, GroupId, Nanos, TaskId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags, breakpoint};

const MANY: u64 = 2000;

fn tasks(count: u64) -> Vec<Target> {
    (1..=count).map(|task| Target::task(TaskId(task))).collect()
}

fn never(_: &OpenError) -> bool {
    false
}

fn is_busy(error: &OpenError) -> bool {
    matches!(error, OpenError::Bank { error: BankError::Busy, .. })
}

#[test]
fn where_one_of_many_is_refused_nothing_stays() {
    let engine = Machine::with_registers(Registers::Shared(4), Authority::Ledger);
    let data = watch(1, breakpoint::RW);
    let full = Target::task(TaskId(1500));
    let three: Vec<_> = (0..3).map(|_| engine.open(&group(PLENTY, &[data]), full).unwrap()).collect();
    let before = (engine.census(), held(&engine), engine.host().leased());
    let two = [group(PLENTY, &[data, event(1)]), group(PLENTY, &[data])];
    for begin in [Begin::Off, Begin::On] {
        let RefusedOn { target, index, error } = engine.open_each(&two, &tasks(MANY), begin, never).unwrap_err();
        assert_eq!((target, index), (1499, 1), "its first group found the last register");
        assert!(matches!(error, OpenError::DebugRegisters { index: 0, .. }), "{error:?}");
        assert_eq!((engine.census(), held(&engine), engine.host().leased()), before);
    }
    // A caller that can do without that one has all others.
    let out = |error: &OpenError| matches!(error, OpenError::DebugRegisters { .. });
    let many = engine.open_each(&two, &tasks(MANY), Begin::On, out).unwrap();
    assert_eq!((many.opened.len(), many.left_out.len(), many.left_out[0].target), (3998, 1, 1499));
    assert_eq!(held(&engine), 3998 + 3);
    let order: Vec<_> = many.opened.iter().map(|one| (one.target, one.index)).collect();
    assert!(order.is_sorted() && order.iter().all(|&(target, _)| target != 1499));
    let ledger = engine.ledger().unwrap();
    let full = ledger.fullest(crate::hw_breakpoint::Kind::Data, Some(CpuId(0)), Some(TaskId(7)));
    let names: Vec<_> = engine.holders(&full).iter().map(|holding| holding.holder).collect();
    let own = many.opened.iter().filter(|one| one.target == 6).map(|one| Holder::Event(one.leader));
    assert_eq!(names, own.collect::<Vec<_>>(), "each is known by its own event");
    many.opened.iter().for_each(|one| engine.close(one.group));
    assert_eq!((engine.census(), held(&engine), engine.host().leased()), before);
    three.iter().for_each(|one| engine.close(one.group));
    assert_eq!((engine.census(), held(&engine)), (Census::default(), 0));
}

#[test]
fn a_task_that_exits_meanwhile_is_left_out_or_takes_all_along() {
    for pmu in [SCARCE, PLENTY, KERNEL] {
        for begin in [Begin::Off, Begin::On] {
            let engine = Arc::new(Machine::engine(1));
            let groups = [group(pmu, &[event(1)]), group(pmu, &[event(2), event(3)])];
            let refuse = |engine: &Arc<Engine<Machine>>, skip| {
                let other = Arc::clone(engine);
                engine.host().interrupt(Moment::Presence, skip, move || match (pmu, begin) {
                    // A scarce slot is programmed when it is needed.
                    (SCARCE, _) => other.host().refuse_starts(1),
                    _ => other.host().refuse_programs(1),
                });
            };
            refuse(&engine, 1499);
            let many = engine.open_each(&groups, &tasks(MANY), begin, is_busy).unwrap();
            let refused = many.left_out.len();
            assert_eq!(many.opened.len(), 2 * (2000 - refused));
            if refused > 0 {
                assert_eq!((many.left_out[0].target, many.left_out[0].index), (1499, 0), "{pmu:?} {begin:?}");
            } else {
                assert_eq!((pmu, begin), (SCARCE, Begin::Off), "only what is not programmed yet is not refused");
                engine.host().refuse_starts(0);
            }
            many.opened.iter().for_each(|one| engine.close(one.group));
            assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
            if (pmu, begin) != (SCARCE, Begin::Off) {
                refuse(&engine, 1499);
                let refused = engine.open_each(&groups, &tasks(MANY), begin, never).unwrap_err();
                assert_eq!((refused.target, is_busy(&refused.error)), (1499, true));
                assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
            }
        }
    }
}

#[test]
fn what_can_not_be_started_is_not_opened() {
    let engine = Machine::engine(1);
    engine.host().refuse_starts(1);
    let refused = engine.open_each(&[group(PLENTY, &[event(1)])], &tasks(3), Begin::On, never).unwrap_err();
    assert_eq!((refused.target, refused.error), (0, OpenError::Bank { index: 0, error: BankError::Busy }));
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}

#[test]
fn many_count_as_one_after_the_other_does() {
    for pmu in [SCARCE, PLENTY, KERNEL] {
        for flags in [AttrFlags::empty(), AttrFlags::INHERIT] {
            let (engine, single) = (Machine::engine(1), Machine::engine(1));
            let groups = [group(pmu, &[flagged(3, flags)]), group(pmu, &[flagged(5, flags)])];
            let at_once = engine.open_each(&groups, &tasks(4), Begin::On, never).unwrap().opened;
            let one = |target: Target| groups.iter().map(move |spec| (spec, target));
            let one_by_one: Vec<_> =
                tasks(4).into_iter().flat_map(one).map(|(spec, target)| single.open(spec, target).unwrap()).collect();
            one_by_one.iter().for_each(|one| single.enable_group(one.group).unwrap());
            for engine in [&engine, &single] {
                engine.host().run_task(2, 10);
                engine.task_fork(TaskId(2), TaskId(9)).unwrap();
                engine.host().run_task(9, 7);
                engine.task_exit(TaskId(9));
            }
            for (a, b) in at_once.iter().zip(&one_by_one) {
                assert_eq!(engine.read(a.leader), single.read(b.events[0]), "{pmu:?} {flags:?}");
                assert_eq!(engine.state(a.leader), single.state(b.events[0]));
            }
            let groups: Vec<GroupId> = at_once.iter().map(|one| one.group).collect();
            engine.disable_each(&groups).unwrap();
            let before = engine.read(at_once[2].leader).unwrap();
            engine.host().run_task(2, 10);
            assert_eq!(engine.read(at_once[2].leader), Ok(before));
            engine.enable_each(&groups).unwrap();
            engine.host().run_task(2, 10);
            assert_eq!(engine.read(at_once[2].leader).unwrap().value, before.value + 30);
            engine.close(groups[3]);
            assert_eq!(engine.disable_each(&groups), Err((3, ControlError::Closed)));
            assert_eq!(engine.state(at_once[2].leader), Ok(EventState::Off), "those before it were done");
            assert_eq!(engine.state(at_once[4].leader), Ok(EventState::Active), "and those behind it were not");
            groups.iter().for_each(|&group| engine.close(group));
            assert_eq!(engine.census(), Census::default());
        }
    }
}

#[test]
fn targets_may_be_cpus_and_may_come_twice() {
    for engine in [Machine::engine(3), Machine::shared_on(3)] {
        engine.cpu_offline(CpuId(1));
        let cpus = [0, 1, 2, 0].map(|cpu| Target::cpu(CpuId(cpu)));
        let groups = [group(PLENTY, &[event(1)]), group(SCARCE, &[event(2)])];
        let offline = OpenError::CpuOffline { cpu: CpuId(1) };
        let refused = engine.open_each(&groups, &cpus, Begin::On, never).unwrap_err();
        assert_eq!(refused, RefusedOn { target: 1, index: 0, error: offline });
        assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
        let many = engine.open_each(&groups, &cpus, Begin::On, |error| *error == offline).unwrap();
        assert_eq!((many.opened.len(), many.left_out.len()), (6, 1));
        assert_eq!(engine.census().contexts, 2);
        engine.host().run(&[ContextKey::Cpu(CpuId(0)), ContextKey::Cpu(CpuId(2))], 10);
        for one in &many.opened {
            let rate = if one.index == 0 { 1 } else { 2 };
            let all = Count { value: 10 * rate, enabled: Nanos(10), running: Nanos(10) };
            assert_eq!(engine.read(one.leader), Ok(all));
        }
        many.opened.iter().for_each(|one| engine.close(one.group));
        assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
    }
}

#[test]
fn a_cpu_that_goes_meanwhile_is_refused() {
    for tolerated in [false, true] {
        let engine = Arc::new(Machine::engine(3));
        let other = Arc::clone(&engine);
        engine.host().interrupt(Moment::Presence, 2, move || other.cpu_offline(CpuId(1)));
        let cpus = [0, 1, 2].map(|cpu| Target::cpu(CpuId(cpu)));
        let groups = [group(PLENTY, &[event(1)]), group(PLENTY, &[event(2)])];
        let offline = OpenError::CpuOffline { cpu: CpuId(1) };
        let answer = engine.open_each(&groups, &cpus, Begin::On, |_| tolerated);
        let opened = match (answer, tolerated) {
            (Ok(many), true) => {
                assert_eq!(many.left_out, [RefusedOn { target: 1, index: 0, error: offline }]);
                many.opened
            }
            (Err(refused), false) => {
                assert_eq!(refused, RefusedOn { target: 1, index: 0, error: offline });
                Vec::new()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(engine.host().leased(), opened.len());
        opened.iter().for_each(|one| engine.close(one.group));
        assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
    }
}

#[test]
fn what_is_wrong_with_a_group_is_said_before_anything_is_touched() {
    let engine = Machine::engine(1);
    let bad = [group(PLENTY, &[event(1)]), group(PLENTY, &[event(1), event(0)])];
    let refused = engine.open_each(&bad, &tasks(3), Begin::On, |_| true).unwrap_err();
    assert_eq!((refused.target, refused.index), (0, 1));
    assert!(matches!(refused.error, OpenError::Parse { index: 1, .. }));
    assert_eq!(engine.host().programs(), 0);
    let nothing = engine.open_each(&[], &tasks(3), Begin::On, never).unwrap();
    assert_eq!((nothing.opened.len(), engine.census()), (0, Census::default()));
    let refused = Attr { config1: REFUSED, ..event(1) };
    let many = engine.open_each(&[group(PLENTY, &[refused])], &tasks(3), Begin::Off, |_| true).unwrap();
    assert_eq!((many.opened.len(), many.left_out.len(), engine.census()), (0, 3, Census::default()));
}

#[test]
fn what_takes_turns_begins_and_ends_as_one() {
    for cpus in [false, true] {
        let engine = Machine::engine(1);
        let groups: Vec<_> = (1..=7).map(|rate| group(SCARCE, &[event(rate)])).collect();
        let set = SetRequest { absent: Absent::Refuse, ..everywhere(groups.clone(), 0..1) };
        // Each step takes longer than all turns together: a group that was switched alone would have another time than the others.
        engine.host().tick(1000);
        let events: Vec<EventId> = if cpus {
            let set = engine.open_set(set).unwrap();
            engine.enable_set(set).unwrap();
            for _ in 0..3 {
                engine.rotate();
            }
            engine.disable_set(set).unwrap();
            engine.set_events(set).unwrap().into_iter().flat_map(|(_, events)| events).collect()
        } else {
            let opened = engine.open_each(&groups, &tasks(1), Begin::Off, never).unwrap().opened;
            let groups: Vec<GroupId> = opened.iter().map(|one| one.group).collect();
            engine.enable_each(&groups).unwrap();
            for _ in 0..3 {
                engine.rotate();
            }
            engine.disable_each(&groups).unwrap();
            opened.iter().map(|one| one.leader).collect()
        };
        let counts: Vec<Count> = events.into_iter().map(|event| engine.read(event).unwrap()).collect();
        let enabled = counts[0].enabled;
        assert!(counts.iter().all(|count| count.enabled == enabled), "{counts:?}");
        let ran: u64 = counts.iter().map(|count| count.running.0).sum();
        let slots = 2;
        assert_eq!(ran, slots * enabled.0, "no counter was idle or had two at once: {counts:?}");
    }
}

#[test]
fn behind_one_that_is_refused_none_begins() {
    let engine = Machine::engine(1);
    let groups: Vec<_> = (1..=3).map(|rate| group(PLENTY, &[event(rate)])).collect();
    let opened = engine.open_each(&groups, &tasks(1), Begin::Off, never).unwrap().opened;
    let groups: Vec<GroupId> = opened.iter().map(|one| one.group).collect();
    engine.enable_group(groups[2]).unwrap();
    let states = || opened.iter().map(|one| engine.state(one.leader).unwrap()).collect::<Vec<_>>();
    engine.host().refuse_starts(1);
    assert_eq!(engine.enable_each(&groups), Err((0, ControlError::Bank(BankError::Busy))));
    assert_eq!(states(), [EventState::Error, EventState::Off, EventState::Active], "what was on stays so");
    engine.enable_each(&groups).unwrap();
    assert_eq!(states(), [EventState::Active; 3]);
}
