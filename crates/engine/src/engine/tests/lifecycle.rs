//! One event's life, groups, and who gets a counter.

use super::count;
use crate::engine::{Census, Exec, Overflow};
use crate::error::{ControlError, OpenError, ReadError};
use crate::pmu::{BankError, ParseError};
use crate::target::{ContextKey, Filter, Presence};
use crate::testing::{KERNEL, Machine, PLENTY, REFUSED, SCARCE, event, flagged, group};
use crate::{Count, CpuId, EventState, Nanos, PmuId, Target, TaskId};
use pmux_abi::attr::{Attr, AttrFlags};

const A: Target = Target::task(TaskId(1));

#[test]
fn counts_only_while_it_is_enabled() {
    for pmu in [SCARCE, PLENTY, KERNEL] {
        let engine = Machine::engine(1);
        let opened = engine.open(&group(pmu, &[event(3)]), A).unwrap();
        let only = opened.events[0];
        engine.host().run_task(1, 5);
        assert_eq!(engine.read(only), Ok(Count::default()), "off is not counted, on any PMU");
        engine.enable(only).unwrap();
        assert_eq!(engine.state(only), Ok(EventState::Active));
        engine.host().run_task(1, 10);
        assert_eq!(engine.read(only), Ok(count(30, 10, 10)));
        engine.disable(only).unwrap();
        engine.host().run_task(1, 100);
        assert_eq!(engine.read(only), Ok(count(30, 10, 10)));
        engine.enable(only).unwrap();
        engine.host().run_task(1, 1);
        engine.reset(only).unwrap();
        engine.host().run_task(1, 2);
        assert_eq!(engine.read(only), Ok(count(6, 13, 13)), "a reset leaves the times alone");
        assert_eq!(engine.read_cached(only), Ok((count(6, 13, 13), Nanos(118))));
        engine.close(opened.group);
        assert_eq!(engine.read(only), Err(ReadError::Closed));
        assert_eq!(engine.enable(only), Err(ControlError::Closed));
        assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
    }
}

#[test]
fn a_register_of_32_bits_may_wrap_between_readings() {
    let engine = Machine::engine(1);
    let only = engine.open(&group(SCARCE, &[event(1 << 30)]), A).unwrap().events[0];
    engine.enable(only).unwrap();
    for round in 1..=9 {
        engine.host().run_task(1, 3);
        assert_eq!(engine.read(only).unwrap().value, (round * 3) << 30);
    }
}

#[test]
fn a_group_goes_on_whole_or_not_at_all() {
    let engine = Machine::engine(1);
    let first = engine.open(&group(SCARCE, &[event(1)]), A).unwrap();
    let pair = engine.open(&group(SCARCE, &[event(5), event(7)]), A).unwrap();
    engine.enable_groups([&first, &pair]);
    engine.host().run_task(1, 10);
    let reading = engine.read_group(pair.group).unwrap();
    assert_eq!(reading, [Ok(count(0, 10, 0)), Ok(count(0, 10, 0))], "enabled, never running: not counted");
    engine.disable_group(first.group).unwrap();
    engine.host().run_task(1, 10);
    assert_eq!(engine.read_group(pair.group).unwrap(), [Ok(count(50, 20, 10)), Ok(count(70, 20, 10))]);
}

#[test]
fn a_group_counts_while_its_leader_is_enabled() {
    let engine = Machine::engine(1);
    let pair = engine.open(&group(SCARCE, &[event(5), event(7)]), A).unwrap();
    engine.enable(pair.events[1]).unwrap();
    engine.host().run_task(1, 10);
    assert_eq!(engine.read(pair.events[1]), Ok(count(0, 0, 0)), "nor does it age, as on Linux");
    engine.enable(pair.events[0]).unwrap();
    engine.host().run_task(1, 10);
    engine.disable(pair.events[0]).unwrap();
    engine.host().run_task(1, 10);
    assert_eq!(engine.read_group(pair.group).unwrap(), [Ok(count(50, 10, 10)), Ok(count(70, 10, 10))]);
}

#[test]
fn a_mixed_group_counts_on_both_pmus() {
    let engine = Machine::engine(1);
    let mut spec = group(PLENTY, &[event(2)]);
    spec.events.push((SCARCE, event(3)));
    let mixed = engine.open_enabled(&spec, A);
    engine.host().run_task(1, 4);
    assert_eq!(engine.read_group(mixed.group).unwrap(), [Ok(count(8, 4, 4)), Ok(count(12, 4, 4))]);
    spec.events.push((PmuId(9), event(1)));
    assert_eq!(engine.open(&spec, A), Err(OpenError::NoSuchPmu { index: 2 }));
}

#[test]
fn pinned_gets_a_counter_or_is_in_error() {
    let engine = Machine::engine(1);
    let pinned = flagged(1, AttrFlags::PINNED);
    let all: [_; 3] = core::array::from_fn(|_| engine.open(&group(SCARCE, &[pinned]), A).unwrap());
    engine.enable_groups([&all[0], &all[1]]);
    let error = BankError::Unscheduled;
    assert_eq!(engine.enable_group(all[2].group), Err(ControlError::Bank(error)));
    assert_eq!(engine.read(all[2].events[0]), Err(ReadError::Error(error)));
    engine.close(all[0].group);
    engine.enable_group(all[2].group).unwrap();
    engine.host().run_task(1, 6);
    assert_eq!(engine.read(all[2].events[0]), Ok(count(6, 6, 6)), "time in error is not time enabled");
}

#[test]
fn an_exclusive_group_is_alone() {
    let engine = Machine::engine(1);
    let alone = engine.open(&group(SCARCE, &[flagged(1, AttrFlags::EXCLUSIVE)]), A).unwrap();
    let other = engine.open(&group(SCARCE, &[event(1)]), A).unwrap();
    engine.enable_groups([&alone, &other]);
    assert_eq!(engine.state(other.events[0]), Ok(EventState::Inactive));
    engine.disable_group(alone.group).unwrap();
    assert_eq!(engine.state(other.events[0]), Ok(EventState::Active));
    engine.enable_group(alone.group).unwrap();
    assert_eq!(engine.state(alone.events[0]), Ok(EventState::Active), "it is its turn first");
    assert_eq!(engine.state(other.events[0]), Ok(EventState::Inactive));
    // One that comes later in the order waits until no other group is there.
    let later = engine.open(&group(SCARCE, &[flagged(1, AttrFlags::EXCLUSIVE)]), A).unwrap();
    engine.disable_group(alone.group).unwrap();
    engine.enable_group(later.group).unwrap();
    assert_eq!(engine.state(later.events[0]), Ok(EventState::Inactive));
    engine.close(other.group);
    assert_eq!(engine.state(later.events[0]), Ok(EventState::Active));
}

#[test]
fn a_pinned_group_that_is_on_stays_on() {
    let engine = Machine::engine(1);
    let pinned = flagged(1, AttrFlags::PINNED);
    let all: [_; 3] = core::array::from_fn(|_| engine.open(&group(SCARCE, &[pinned]), A).unwrap());
    engine.enable_groups([&all[1], &all[2]]);
    assert!(engine.enable_group(all[0].group).is_err(), "though it was opened first");
    assert_eq!(engine.state(all[2].events[0]), Ok(EventState::Active));
}

#[test]
fn constrained_events_find_their_counters() {
    let engine = Machine::engine(1);
    let only_slot_0 = Attr { config2: 1, ..event(1) };
    let either = engine.open_enabled(&group(SCARCE, &[event(9), only_slot_0]), A);
    assert_eq!(engine.state(either.events[0]), Ok(EventState::Active));
    let both = group(SCARCE, &[only_slot_0, only_slot_0]);
    assert_eq!(engine.open(&both, A), Err(OpenError::NeverFits { pmu: SCARCE, events: 2 }));
}

#[test]
fn errors_come_in_the_documented_order() {
    let engine = Machine::engine(1);
    let open = |attrs: &[Attr], target| engine.open(&group(SCARCE, attrs), target).unwrap_err();
    let offline = Target::cpu(CpuId(7));
    let pinned = flagged(0, AttrFlags::PINNED);
    let refused = Attr { config1: REFUSED, ..event(1) };
    assert_eq!(open(&[], offline), OpenError::EmptyGroup);
    assert_eq!(open(&[event(0), pinned], offline), OpenError::DemandOfSibling { index: 1 });
    let error = ParseError::NoSuchEvent;
    assert_eq!(open(&[event(1), event(0), event(1)], offline), OpenError::Parse { index: 1, error });
    assert_eq!(open(&[event(1); 3], offline), OpenError::NeverFits { pmu: SCARCE, events: 3 });
    let of_task = Target { filter: Filter::OnCpu(CpuId(7)), ..A };
    let inherited = flagged(1, AttrFlags::INHERIT);
    let mut mixed = group(SCARCE, &[inherited; 3]);
    mixed.events.push((KERNEL, inherited));
    assert_eq!(engine.open(&mixed, of_task), Err(OpenError::NeverFits { pmu: SCARCE, events: 3 }));
    mixed.events.remove(1);
    assert_eq!(engine.open(&mixed, of_task), Err(OpenError::MixedInheritance { index: 2 }));
    assert_eq!(open(&[refused], offline), OpenError::CpuOffline { cpu: CpuId(7) });
    let error = OpenError::Bank { index: 1, error: BankError::Busy };
    assert_eq!(engine.open(&group(PLENTY, &[event(1), refused]), A), Err(error));
    assert_eq!(error.errno(), 16);
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0), "a refusal leaves nothing behind");
}

#[test]
fn a_scarce_slot_that_was_refused_can_be_had_later() {
    let engine = Machine::engine(1);
    let refused = engine.open_enabled(&group(SCARCE, &[event(2), Attr { config1: REFUSED, ..event(1) }]), A);
    engine.host().run_task(1, 5);
    assert_eq!(engine.state(refused.events[0]), Ok(EventState::Inactive), "the group left with its refused member");
    assert_eq!(engine.host().leased(), 0);
    let other = engine.open_enabled(&group(SCARCE, &[event(1); 2]), A);
    engine.host().run_task(1, 5);
    assert_eq!(engine.read(other.events[1]), Ok(count(5, 5, 5)));
}

#[test]
fn exec_starts_what_waits_for_it() {
    for pmu in [SCARCE, PLENTY] {
        let engine = Machine::engine(1);
        let waiting = engine.open(&group(pmu, &[flagged(1, AttrFlags::ENABLE_ON_EXEC)]), A).unwrap();
        let off = engine.open(&group(pmu, &[event(1)]), A).unwrap();
        engine.host().run_task(1, 5);
        engine.task_exec(TaskId(1), Exec::Plain);
        engine.host().run_task(1, 7);
        assert_eq!(engine.read(waiting.events[0]), Ok(count(7, 7, 7)));
        assert_eq!(engine.state(off.events[0]), Ok(EventState::Off));
        engine.disable(waiting.events[0]).unwrap();
        engine.task_exec(TaskId(1), Exec::Plain);
        assert_eq!(engine.state(waiting.events[0]), Ok(EventState::Off), "only the first exec starts it");
    }
}

#[test]
fn exec_ends_what_is_to_end_with_it() {
    for pmu in [SCARCE, PLENTY] {
        let engine = Machine::engine(1);
        let flags = [AttrFlags::empty(), AttrFlags::REMOVE_ON_EXEC, AttrFlags::REMOVE_ON_EXEC | AttrFlags::INHERIT];
        let [stays, ends, inherited] = flags.map(|flags| engine.open_enabled(&group(pmu, &[flagged(1, flags)]), A));
        engine.task_fork(TaskId(1), TaskId(2)).unwrap();
        engine.task_exec(TaskId(1), Exec::Plain);
        engine.host().run_task(1, 7);
        engine.host().run_task(2, 3);
        engine.task_exec(TaskId(2), Exec::Plain);
        engine.host().run_task(2, 100);
        assert_eq!(engine.state(ends.events[0]), Ok(EventState::Dead));
        assert_eq!([&ends, &inherited].map(|opened| engine.read(opened.events[0]).unwrap().value), [0, 3]);
        assert!(engine.read(stays.events[0]).unwrap().value > 0);
    }
}

#[test]
fn what_neither_the_engine_nor_the_counters_do_is_refused() {
    let engine = Machine::engine(1);
    for flags in [AttrFlags::INHERIT_THREAD, AttrFlags::INHERIT_STAT, AttrFlags::SIGTRAP, AttrFlags::MMAP2] {
        let open = |pmu| engine.open(&group(pmu, &[event(1), flagged(1, flags)]), A);
        let refused = OpenError::Parse { index: 1, error: ParseError::NotSupported };
        assert_eq!([open(SCARCE), open(PLENTY)], [Err(refused), Err(refused)]);
        engine.close(open(KERNEL).expect("counters that are events of a kernel do it").group);
    }
}

#[test]
fn an_exec_that_changes_rights_ends_the_count() {
    let engine = Machine::engine(1);
    let only = engine.open_enabled(&group(SCARCE, &[event(1)]), A);
    engine.host().run_task(1, 5);
    engine.task_exec(TaskId(1), Exec::ChangesRights);
    engine.host().run_task(1, 5);
    assert_eq!(engine.read(only.events[0]), Ok(count(5, 5, 5)));
    assert_eq!(engine.state(only.events[0]), Ok(EventState::Dead));
}

#[test]
fn a_task_that_is_off_its_cpu_does_not_age() {
    let engine = Machine::engine(1);
    engine.host().place(ContextKey::Task(TaskId(1)), Presence::Out);
    let only = engine.open_enabled(&group(SCARCE, &[event(4)]), A);
    engine.host().run_task(2, 100);
    engine.switch_in(TaskId(1), CpuId(0));
    engine.host().run_task(1, 3);
    engine.switch_out(TaskId(1));
    engine.host().run_task(2, 100);
    assert_eq!(engine.read(only.events[0]), Ok(count(12, 3, 3)));
    engine.disable_group(only.group).unwrap();
    engine.host().run_task(2, 100);
    engine.enable_group(only.group).unwrap();
    engine.switch_in(TaskId(1), CpuId(0));
    engine.host().run_task(1, 1);
    assert_eq!(engine.read(only.events[0]), Ok(count(16, 4, 4)));
}

#[test]
fn an_overflow_is_delivered_to_open_events_only() {
    let engine = Machine::engine(1);
    let target = Target { context: ContextKey::Task(TaskId(1)), filter: Filter::OnCpu(CpuId(0)) };
    let only = engine.open(&group(SCARCE, &[event(4)]), target).unwrap();
    assert_eq!(engine.overflow(only.events[0]), Overflow::Stale, "it is off");
    engine.enable_group(only.group).unwrap();
    assert_eq!(engine.overflow(only.events[0]), Overflow::Deliver);
    engine.close(only.group);
    assert_eq!(engine.overflow(only.events[0]), Overflow::Stale);
    assert_eq!(engine.strays(), 2);
}
