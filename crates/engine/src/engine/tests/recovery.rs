//! Refusals, errors and their end; groups that change while they count.

use super::count;
use super::model::states;
use crate::engine::Census;
use crate::error::{ControlError, ReadError};
use crate::pmu::BankError;
use crate::target::{ContextKey, Filter, Presence};
use crate::testing::{KERNEL, Machine, PLENTY, REFUSED, SCARCE, event, flagged, group};
use crate::{Count, CpuId, Engine, EventState, GroupSpec, Target, TaskId};
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags};

const A: Target = Target::task(TaskId(1));

fn on_slots(rate: u64, slots: u64) -> Attr {
    Attr { config2: slots, ..event(rate) }
}

/// Opens a group, leaves it off, and closes everything at the end.
fn with(spec: &GroupSpec, f: impl FnOnce(&Engine<Machine>, &crate::Opened)) {
    let engine = Machine::engine(2);
    let opened = engine.open(spec, A).unwrap();
    f(&engine, &opened);
    engine.close(opened.group);
    assert_eq!((engine.census().events, engine.host().leased()), (0, 0));
}

#[test]
fn a_sibling_that_does_not_fit_takes_the_whole_group_off() {
    with(&group(SCARCE, &[event(1)]), |engine, other| {
        let pair = engine.open(&group(SCARCE, &[event(1), event(1)]), A).unwrap();
        engine.enable_group(other.group).unwrap();
        engine.enable(pair.events[0]).unwrap();
        assert_eq!(engine.state(pair.events[0]), Ok(EventState::Active));
        engine.enable(pair.events[1]).unwrap();
        assert_eq!(states(engine, &pair.events), [EventState::Inactive; 2], "whole or not at all");
        engine.disable(pair.events[1]).unwrap();
        engine.disable_group(other.group).unwrap();
        assert_eq!(states(engine, &pair.events), [EventState::Active, EventState::Off]);
        engine.close(pair.group);
    });
}

#[test]
fn a_sibling_may_push_its_leader_to_another_counter() {
    with(&group(SCARCE, &[on_slots(1, 0b11), on_slots(2, 0b01)]), |engine, pair| {
        engine.enable(pair.events[0]).unwrap();
        engine.host().run_task(1, 5);
        engine.enable(pair.events[1]).unwrap();
        engine.host().run_task(1, 5);
        assert_eq!(engine.read_group(pair.group).unwrap(), [Ok(count(10, 10, 10)), Ok(count(10, 5, 5))]);
    });
}

#[test]
fn an_exclusive_group_takes_in_its_own_sibling() {
    with(&group(SCARCE, &[flagged(1, AttrFlags::EXCLUSIVE), event(1)]), |engine, pair| {
        engine.enable(pair.events[0]).unwrap();
        engine.enable(pair.events[1]).unwrap();
        assert_eq!(states(engine, &pair.events), [EventState::Active; 2]);
    });
}

#[test]
fn a_pinned_group_is_in_error_as_a_whole_and_comes_back() {
    let pinned = flagged(1, AttrFlags::PINNED);
    for pmu in [SCARCE, PLENTY] {
        with(&group(pmu, &[pinned, event(1)]), |engine, pair| {
            if pmu == SCARCE {
                engine.host().refuse_programs(1);
            } else {
                engine.host().refuse_starts(1);
            }
            assert_eq!(engine.enable_group(pair.group), Err(ControlError::Bank(BankError::Busy)));
            assert_eq!(states(engine, &pair.events), [EventState::Error; 2]);
            engine.host().run_task(1, 10);
            engine.reset(pair.events[0]).unwrap();
            engine.enable_group(pair.group).unwrap();
            engine.host().run_task(1, 10);
            assert_eq!(engine.read_group(pair.group).unwrap(), [Ok(count(10, 10, 10)); 2]);
        });
    }
}

#[test]
fn a_pinned_event_that_lost_its_counter_gives_the_slot_back() {
    for pmu in [SCARCE, PLENTY, KERNEL] {
        with(&group(pmu, &[flagged(1, AttrFlags::PINNED)]), |engine, only| {
            engine.enable_group(only.group).unwrap();
            for _ in 0..5 {
                engine.host().refuse_reads(1, BankError::Unscheduled);
                assert_eq!(engine.read(only.events[0]), Err(ReadError::Error(BankError::Unscheduled)));
                assert_eq!(engine.state(only.events[0]), Ok(EventState::Error));
                assert_eq!(engine.disable(only.events[0]), Ok(()));
                engine.enable_group(only.group).unwrap();
            }
            assert_eq!(engine.host().leased(), 1);
            engine.host().run_task(1, 3);
            assert_eq!(engine.read(only.events[0]).unwrap().value, 3);
        });
    }
}

#[test]
fn others_of_a_group_go_on_without_one_that_is_in_error() {
    with(&group(PLENTY, &[event(1), event(1), event(1)]), |engine, three| {
        engine.host().refuse_starts(1); // the last one's, which starts first
        assert_eq!(engine.enable_group(three.group), Err(ControlError::Bank(BankError::Busy)));
        assert_eq!(states(engine, &three.events), [EventState::Active, EventState::Active, EventState::Error]);
        assert_eq!(engine.fault(three.events[2]), Ok(Some(BankError::Busy)));
        engine.enable(three.events[2]).unwrap();
        assert_eq!(
            (states(engine, &three.events), engine.fault(three.events[2])),
            (vec![EventState::Active; 3], Ok(None))
        );
    });
}

#[test]
fn what_a_refused_group_leaves_goes_to_those_who_wait() {
    let engine = Machine::engine(1);
    let refused = engine.open(&group(SCARCE, &[event(1), Attr { config1: REFUSED, ..event(1) }]), A).unwrap();
    let waiting = engine.open(&group(SCARCE, &[event(1)]), A).unwrap();
    let blocker = engine.open_enabled(&group(SCARCE, &[event(1), event(1)]), A);
    engine.enable_groups([&refused, &waiting]);
    // The refused group stands first in the queue.
    engine.close(blocker.group);
    assert_eq!(states(&engine, &waiting.events), [EventState::Active]);
    assert_eq!(states(&engine, &refused.events), [EventState::Inactive; 2]);
    assert_eq!(engine.fault(refused.events[1]), Ok(Some(BankError::Busy)));
    assert_eq!(engine.read(refused.events[0]), Ok(Count::default()), "the reading says that it never ran");
}

#[test]
fn a_refusal_is_forgotten_once_the_event_counts_or_is_off() {
    with(&group(SCARCE, &[event(1)]), |engine, only| {
        let fault = || engine.fault(only.events[0]).unwrap();
        for again in [true, false] {
            engine.host().refuse_programs(1);
            engine.enable_group(only.group).unwrap();
            assert_eq!((engine.state(only.events[0]), fault()), (Ok(EventState::Inactive), Some(BankError::Busy)));
            if again {
                engine.switch_out(TaskId(1));
                engine.switch_in(TaskId(1), CpuId(0));
                assert_eq!(engine.state(only.events[0]), Ok(EventState::Active));
                assert_eq!(fault(), None);
            }
            engine.disable_group(only.group).unwrap();
            assert_eq!(fault(), None);
        }
    });
}

#[test]
fn a_group_that_waits_ages_until_its_leader_is_disabled() {
    with(&group(SCARCE, &[event(1)]), |engine, other| {
        let pair = engine.open(&group(SCARCE, &[event(1), event(1)]), A).unwrap();
        engine.enable_groups([other, &pair]);
        // No call reads them in between.
        engine.host().run_task(1, 10);
        engine.disable(pair.events[0]).unwrap();
        engine.host().run_task(1, 10);
        engine.enable(pair.events[0]).unwrap();
        engine.host().run_task(1, 10);
        assert_eq!(engine.read_group(pair.group).unwrap(), [Ok(count(0, 20, 0)); 2]);
        engine.close(pair.group);
    });
}

#[test]
fn a_count_whose_slot_is_gone_can_be_reset() {
    with(&group(SCARCE, &[event(1)]), |engine, only| {
        engine.enable_group(only.group).unwrap();
        engine.host().run_task(1, 5);
        engine.host().refuse_reads(1, BankError::Busy);
        engine.switch_out(TaskId(1));
        assert!(engine.read(only.events[0]).is_err(), "its last reading was refused");
        engine.reset(only.events[0]).unwrap();
        assert_eq!(engine.read(only.events[0]), Ok(count(0, 5, 5)));
    });
}

#[test]
fn a_count_that_cannot_be_read_is_not_reset() {
    for pmu in [SCARCE, PLENTY] {
        with(&group(pmu, &[event(1)]), |engine, only| {
            engine.enable_group(only.group).unwrap();
            engine.host().run_task(1, 4);
            assert_eq!(engine.read(only.events[0]).unwrap().value, 4);
            engine.host().run_task(1, 3);
            engine.host().refuse_reads(1, BankError::Other(5));
            assert_eq!(engine.reset(only.events[0]), Err(ControlError::Bank(BankError::Other(5))));
            assert_eq!(engine.fault(only.events[0]), Ok(Some(BankError::Other(5))));
            assert_eq!(engine.read(only.events[0]).unwrap().value, 7);
            assert_eq!(engine.fault(only.events[0]), Ok(None));
            engine.disable_group(only.group).unwrap();
            engine.reset(only.events[0]).unwrap();
            assert_eq!(engine.read(only.events[0]), Ok(count(0, 7, 7)), "a reset while it is off");
        });
    }
}

#[test]
fn a_task_that_leaves_twice_ages_once() {
    let engine = Machine::engine(1);
    engine.host().place(ContextKey::Task(TaskId(1)), Presence::Out);
    let open = || engine.open(&group(SCARCE, &[event(1), event(1)]), A).unwrap();
    let (first, second) = (open(), open());
    engine.enable_groups([&first, &second]);
    engine.switch_in(TaskId(1), CpuId(0));
    engine.switch_in(TaskId(1), CpuId(0));
    engine.host().run_task(1, 10);
    engine.switch_out(TaskId(1));
    engine.host().run_task(2, 50);
    engine.switch_out(TaskId(1));
    engine.host().run_task(2, 50);
    assert_eq!(engine.read(second.events[0]), Ok(count(0, 10, 0)));
}

#[test]
fn an_event_of_one_cpu_counts_there_only() {
    let engine = Machine::engine(2);
    engine.host().place(ContextKey::Task(TaskId(1)), Presence::Out);
    let on = |cpu| {
        let target = Target { context: ContextKey::Task(TaskId(1)), filter: Filter::OnCpu(CpuId(cpu)) };
        let opened = engine.open_enabled(&group(SCARCE, &[event(2), event(2)]), target);
        opened.events[0]
    };
    let events = [on(0), on(1)];
    for (cpu, ns) in [(0, 5), (1, 10), (1, 10), (0, 1)] {
        // From one CPU to the other without a switch between.
        engine.switch_in(TaskId(1), CpuId(cpu));
        engine.host().run_task(1, ns);
    }
    engine.switch_out(TaskId(1));
    let mut counts = events.map(|event| engine.read(event).unwrap());
    assert_eq!(counts, [count(12, 26, 6), count(40, 26, 20)], "enabled everywhere, as on Linux");
    let other = counts[1];
    counts[0].add_other_cpu(&other);
    assert_eq!(counts[0], count(52, 26, 26));
}

#[test]
fn a_cpu_that_goes_takes_every_slot_along() {
    let engine = Machine::engine(2);
    for pmu in [SCARCE, PLENTY, KERNEL] {
        let opened = engine.open_enabled(&group(pmu, &[event(1), event(1)]), Target::cpu(CpuId(1)));
        engine.host().run(&[ContextKey::Cpu(CpuId(1))], 4);
        engine.cpu_offline(CpuId(1));
        assert_eq!(engine.host().leased(), 0, "a dead breakpoint would keep its slot");
        assert_eq!(engine.read(opened.events[1]), Ok(count(4, 4, 4)));
        assert_eq!(states(&engine, &opened.events), [EventState::Dead; 2]);
        engine.enable_group(opened.group).unwrap();
        engine.cpu_online(CpuId(1));
        assert_eq!(states(&engine, &opened.events), [EventState::Dead; 2], "what is dead stays dead");
        engine.close(opened.group);
    }
    assert_eq!(engine.census(), Census::default());
}

#[test]
fn counters_that_follow_forks_outlive_their_task() {
    let engine = Machine::engine(1);
    let root = engine.open_enabled(&group(KERNEL, &[flagged(1, AttrFlags::INHERIT)]), A);
    engine.task_exit(TaskId(1));
    // Children go on.
    engine.host().run_task(1, 9);
    assert_eq!(engine.read(root.events[0]).unwrap().value, 9);
    engine.disable(root.events[0]).unwrap();
    engine.host().run_task(1, 9);
    assert_eq!(engine.read(root.events[0]).unwrap().value, 9);
}

#[test]
fn a_group_is_read_into_the_room_that_there_is() {
    with(&group(PLENTY, &[event(1), event(2)]), |engine, pair| {
        engine.enable_group(pair.group).unwrap();
        engine.host().run_task(1, 3);
        let mut counts = Vec::with_capacity(4);
        counts.push(Err(ReadError::Closed));
        let before = counts.as_ptr();
        engine.read_group_into(pair.group, &mut counts).unwrap();
        assert_eq!(counts, [Err(ReadError::Closed), Ok(count(3, 3, 3)), Ok(count(6, 3, 3))]);
        assert_eq!(counts.as_ptr(), before);
    });
}

#[test]
fn a_filter_that_the_counters_do_not_know_is_refused() {
    let engine = Machine::engine(1);
    let filter = Filter::Cgroup(crate::CgroupId(1));
    let target = Target { context: ContextKey::Cpu(CpuId(0)), filter };
    let error = crate::OpenError::Bank { index: 0, error: BankError::NotSupported };
    assert_eq!(engine.open(&group(PLENTY, &[event(1)]), target), Err(error));
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}
