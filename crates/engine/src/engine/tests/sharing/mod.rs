//! Sharing: the rules, one by one; then everything at random, beside an engine that does not share.

mod differential;
mod ended;
mod races;

use super::{close_all, everywhere};
use crate::engine::Census;
use crate::error::{ControlError, ModifyError, OpenError};
use crate::hw_breakpoint::{Authority, Registers as PerCpu};
use crate::inherit::Attribution;
use crate::pmu::BankError;
use crate::share::SharingScope;
use crate::target::{ContextKey, Filter};
use crate::testing::{KERNEL, Machine, PLENTY, SCARCE, TAKEN, event, flagged, group, watch};
use crate::{Count, CpuId, Engine, EventState, GroupSpec, Nanos, Target, TaskId};
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags, SampleFormat, Sampling, breakpoint};

fn on_cpu(engine: &Engine<Machine>, attrs: &[Attr]) -> crate::Opened {
    engine.open(&group(SCARCE, attrs), Target::cpu(CpuId(0))).unwrap()
}

fn run(engine: &Engine<Machine>, ns: u64) {
    engine.host().run(&[ContextKey::Cpu(CpuId(0)), ContextKey::Task(TaskId(1))], ns);
}

pub(super) fn count(value: u64, ns: u64) -> Count {
    Count { value, enabled: Nanos(ns), running: Nanos(ns) }
}

#[test]
fn sixteen_who_ask_the_same_share_one_counter() {
    let engine = Machine::sharing(1);
    let all: Vec<_> = (0..16).map(|_| on_cpu(&engine, &[event(3)])).collect();
    assert_eq!(engine.census(), Census { events: 16, groups: 16, contexts: 1, masters: 1, ..Census::default() });
    assert_eq!(engine.host().leased(), 0, "a scarce counter is taken by who counts");
    for (late, opened) in all.iter().enumerate() {
        engine.enable_group(opened.group).unwrap();
        assert_eq!(engine.host().leased(), 1);
        run(&engine, 10);
        assert_eq!(engine.host().programs(), 1, "no later client disturbs the counter, not even number {late}");
    }
    for (late, opened) in all.iter().enumerate() {
        let ns = 10 * (16 - late as u64);
        assert_eq!(engine.read(opened.events[0]), Ok(count(3 * ns, ns)));
    }
    let [share] = &engine.shares()[..] else { panic!("one share") };
    assert_eq!((share.views, share.events[0].counting, share.events[0].state), (16, 16, EventState::Active));
    close_all(&engine, &all);
    assert!(engine.shares().is_empty());
}

#[test]
fn a_close_stops_no_other_client_not_even_that_of_the_first() {
    let engine = Machine::sharing(1);
    let (first, second) = (on_cpu(&engine, &[event(5)]), on_cpu(&engine, &[event(5)]));
    engine.enable_groups([&first, &second]);
    run(&engine, 10);
    engine.close(first.group);
    run(&engine, 10);
    assert_eq!(engine.read(second.events[0]), Ok(count(100, 20)));
    assert_eq!(engine.read(first.events[0]), Err(crate::ReadError::Closed));
    assert_eq!(engine.host().programs(), 1, "the counter has never stopped");
    // It comes back under the same counter.
    let third = on_cpu(&engine, &[event(5)]);
    engine.enable_group(third.group).unwrap();
    run(&engine, 10);
    assert_eq!((engine.read(third.events[0]), engine.host().programs()), (Ok(count(50, 10)), 1));
}

#[test]
fn what_one_does_never_shows_to_another() {
    let engine = Machine::sharing(1);
    let (one, other) = (on_cpu(&engine, &[event(2)]), on_cpu(&engine, &[event(2)]));
    engine.enable_group(other.group).unwrap();
    run(&engine, 10);
    engine.enable_group(one.group).unwrap();
    run(&engine, 10);
    engine.reset(one.events[0]).unwrap();
    run(&engine, 10);
    assert_eq!(engine.read(one.events[0]), Ok(count(20, 10).and_times(20)), "times stay, as ever");
    engine.disable_group(one.group).unwrap();
    run(&engine, 10);
    assert_eq!(
        (engine.state(one.events[0]), engine.state(other.events[0])),
        (Ok(EventState::Off), Ok(EventState::Active))
    );
    assert_eq!(engine.read(one.events[0]), Ok(count(20, 10).and_times(20)));
    engine.disable_group(other.group).unwrap();
    assert_eq!(engine.host().leased(), 0, "no event counts: the counter is free");
    run(&engine, 10);
    engine.enable_group(one.group).unwrap();
    run(&engine, 10);
    assert_eq!(engine.read(one.events[0]), Ok(count(40, 10).and_times(30)));
    assert_eq!(engine.read(other.events[0]), Ok(count(80, 40)));
    assert_eq!(engine.read_cached(other.events[0]).unwrap().0, count(80, 40));
}

impl Count {
    fn and_times(self, ns: u64) -> Self {
        Self { enabled: Nanos(ns), running: Nanos(ns), ..self }
    }
}

#[test]
fn groups_share_as_wholes_and_single_events_join_them() {
    let engine = Machine::sharing(1);
    let (one, other) = (on_cpu(&engine, &[event(1), event(2)]), on_cpu(&engine, &[event(1), event(2)]));
    let single = on_cpu(&engine, &[event(2)]);
    assert_eq!(engine.census().masters, 1);
    engine.enable_group(single.group).unwrap();
    run(&engine, 10);
    assert_eq!(engine.read(single.events[0]), Ok(count(20, 10)), "the leader goes along");
    engine.enable_groups([&one, &other]);
    run(&engine, 10);
    engine.disable(one.events[1]).unwrap();
    run(&engine, 10);
    engine.disable(one.events[0]).unwrap();
    run(&engine, 10);
    assert_eq!(engine.read_group(one.group).unwrap(), [Ok(count(20, 20)), Ok(count(20, 10))]);
    assert_eq!(engine.read_group(other.group).unwrap(), [Ok(count(30, 30)), Ok(count(60, 30))]);
    assert_eq!(engine.read_group(single.group).unwrap(), [Ok(count(80, 40))]);
    engine.close(one.group);
    engine.close(other.group);
    run(&engine, 10);
    assert_eq!(engine.read(single.events[0]), Ok(count(100, 50)));
    close_all(&engine, [&single]);
}

#[test]
fn a_group_joins_no_single_events_and_takes_none_along() {
    let engine = Machine::sharing(1);
    let open = |attrs: &[Attr]| engine.open(&group(PLENTY, attrs), Target::cpu(CpuId(0))).unwrap();
    let singles = [open(&[event(1)]), open(&[event(2)])];
    engine.enable_groups(&singles);
    run(&engine, 10);
    let whole = open(&[event(1), event(2)]);
    engine.enable_group(whole.group).unwrap();
    assert_eq!((engine.census().masters, engine.host().leased()), (3, 4), "four counters");
    run(&engine, 10);
    let later = open(&[event(2)]);
    assert_eq!(engine.census().masters, 3, "with the counter that no other client can take away");
    assert_eq!(engine.read_group(whole.group).unwrap(), [Ok(count(10, 10)), Ok(count(20, 10))]);
    assert_eq!(engine.read(singles[1].events[0]), Ok(count(40, 20)), "and it has missed nothing");
    [&singles[0], &singles[1], &later].iter().for_each(|single| engine.close(single.group));
    assert_eq!((engine.census().masters, engine.host().leased()), (1, 2));
    close_all(&engine, [&whole]);
}

#[test]
fn a_group_with_other_members_or_another_order_is_another_question() {
    let engine = Machine::sharing(1);
    for attrs in [&[event(1), event(2)][..], &[event(2), event(1)], &[event(1), event(2), event(3)], &[event(4)]] {
        engine.open(&group(PLENTY, attrs), Target::cpu(CpuId(0))).unwrap();
    }
    assert_eq!(engine.census().masters, 4);
    // The same event twice in a group: an event that asks for it joins the first.
    engine.open(&group(PLENTY, &[event(7), event(7)]), Target::cpu(CpuId(0))).unwrap();
    engine.open(&group(PLENTY, &[event(7)]), Target::cpu(CpuId(0))).unwrap();
    assert_eq!(engine.census().masters, 5);
}

#[test]
fn the_same_question_of_another_context_or_filter_is_another() {
    let engine = Machine::sharing(2);
    let targets = [
        Target::cpu(CpuId(0)),
        Target::cpu(CpuId(1)),
        Target::task(TaskId(1)),
        Target::task(TaskId(2)),
        Target { context: ContextKey::Task(TaskId(1)), filter: Filter::OnCpu(CpuId(0)) },
    ];
    for _ in 0..2 {
        targets.iter().for_each(|&target| _ = engine.open(&group(PLENTY, &[event(1)]), target).unwrap());
    }
    assert_eq!((engine.census().masters, engine.census().events), (targets.len(), 2 * targets.len()));
}

#[test]
fn demands_do_not_mix_and_an_exclusive_group_is_alone() {
    let engine = Machine::sharing(1);
    let open = |flags| on_cpu(&engine, &[flagged(1, flags)]);
    for _ in 0..2 {
        open(AttrFlags::empty());
        open(AttrFlags::PINNED);
        open(AttrFlags::EXCLUSIVE);
    }
    assert_eq!(
        (engine.census().masters, engine.census().groups),
        (2, 6),
        "flexible ones, pinned ones; two by themselves"
    );
    // A single event does not join a group that others can't take off its counters, nor one that wants to be alone.
    let engine = Machine::sharing(1);
    on_cpu(&engine, &[flagged(1, AttrFlags::PINNED), event(2)]);
    on_cpu(&engine, &[flagged(1, AttrFlags::EXCLUSIVE), event(2)]);
    on_cpu(&engine, &[event(2)]);
    assert_eq!(engine.census().masters, 2);
}

#[test]
fn an_event_that_does_more_than_count_shares_with_no_other() {
    let engine = Machine::sharing(1);
    let sampling = Attr { sampling: Sampling::Period(100), sample: SampleFormat::IP, ..event(1) };
    for attr in
        [sampling, flagged(1, AttrFlags::TASK), flagged(1, AttrFlags::ENABLE_ON_EXEC), flagged(1, AttrFlags::COMM)]
    {
        for _ in 0..2 {
            engine.open(&group(KERNEL, &[attr]), Target::cpu(CpuId(0))).unwrap();
        }
    }
    assert_eq!((engine.census().masters, engine.census().groups), (0, 8));
    // What says nothing of what is counted changes nothing.
    on_cpu(&engine, &[event(1)]);
    on_cpu(&engine, &[Attr { sample: SampleFormat::IDENTIFIER, ..flagged(1, AttrFlags::SAMPLE_ID_ALL) }]);
    assert_eq!(engine.census().masters, 1);
}

#[test]
fn pinned_ones_fail_together_and_come_back_together() {
    let engine = Machine::sharing(1);
    let pin = |rate| flagged(rate, AttrFlags::PINNED);
    let held: Vec<_> = [5, 6].map(|rate| on_cpu(&engine, &[pin(rate)])).into();
    engine.enable_groups(&held);
    let (one, other) = (on_cpu(&engine, &[pin(1)]), on_cpu(&engine, &[pin(1)]));
    let unscheduled = Err(ControlError::Bank(BankError::Unscheduled));
    assert_eq!((engine.enable_group(one.group), engine.enable_group(other.group)), (unscheduled, unscheduled));
    assert_eq!(engine.state(other.events[0]), Ok(EventState::Error));
    engine.close(held[0].group);
    engine.enable_group(other.group).unwrap();
    assert_eq!(
        (engine.state(one.events[0]), engine.state(other.events[0])),
        (Ok(EventState::Active), Ok(EventState::Active))
    );
    run(&engine, 10);
    assert_eq!(
        (engine.read(one.events[0]).map(|it| it.value), engine.read(other.events[0])),
        (Ok(10), Ok(count(10, 10)))
    );
}

#[test]
fn enabling_again_what_counts_already_brings_children_back_for_all() {
    let engine = Machine::sharing(1);
    let open = || engine.open(&group(PLENTY, &[flagged(1, AttrFlags::INHERIT)]), Target::task(TaskId(1))).unwrap();
    let (one, other) = (open(), open());
    engine.enable_groups([&one, &other]);
    engine.host().refuse_starts(1);
    let _ = engine.task_fork(TaskId(1), TaskId(2));
    engine.host().refuse_starts(0);
    engine.host().run_task(2, 10);
    // The root's own event is well: what is wrong, only the child knows.
    engine.enable_group(other.group).unwrap();
    engine.host().run_task(2, 10);
    let values = [&one, &other].map(|opened| engine.read(opened.events[0]).map(|count| count.value));
    assert_eq!(values, [Ok(10), Ok(10)]);
}

#[test]
fn an_event_that_ends_at_a_refused_reading_keeps_what_children_had_counted() {
    let engine = Machine::sharing(1);
    let open = || engine.open(&group(PLENTY, &[flagged(1, AttrFlags::INHERIT)]), Target::task(TaskId(1))).unwrap();
    let (one, other) = (open(), open());
    engine.enable_groups([&one, &other]);
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    engine.host().run_task(2, 10);
    engine.task_exit(TaskId(2));
    engine.host().refuse_reads(1, BankError::Other(5));
    let _ = engine.disable_group(one.group);
    engine.host().refuse_reads(0, BankError::Other(5));
    let value = |opened: &crate::Opened| engine.read(opened.events[0]).map(|count| count.value);
    assert_eq!((value(&one), value(&other)), (Ok(10), Ok(10)));
}

#[test]
fn an_event_that_joined_a_group_singly_brings_its_leader_back() {
    let engine = Machine::sharing(1);
    let open = |attrs: &[Attr]| engine.open(&group(PLENTY, attrs), Target::cpu(CpuId(0))).unwrap();
    let (whole, single) = (open(&[event(1), event(2)]), open(&[event(2)]));
    assert_eq!(engine.census().masters, 1);
    engine.host().refuse_starts(1);
    assert!(engine.enable(whole.events[0]).is_err());
    assert_eq!(engine.state(whole.events[0]), Ok(EventState::Error));
    engine.enable(single.events[0]).unwrap();
    run(&engine, 10);
    assert_eq!(engine.read(single.events[0]), Ok(count(20, 10)), "without the leader it would not count");
}

#[test]
fn a_question_that_was_refused_can_be_asked_again() {
    let engine = Machine::sharing(1);
    engine.host().refuse_programs(1);
    let refused = engine.open(&group(PLENTY, &[event(1)]), Target::cpu(CpuId(0)));
    assert!(matches!(refused, Err(OpenError::Bank { index: 0, .. })));
    assert_eq!(engine.census(), Census::default());
    engine.open(&group(PLENTY, &[event(1)]), Target::cpu(CpuId(0))).unwrap();
}

#[test]
fn inheriting_events_have_one_family_and_each_counts_from_its_own_beginning() {
    let engine = Machine::sharing(1);
    let open = || engine.open(&group(PLENTY, &[flagged(2, AttrFlags::INHERIT)]), Target::task(TaskId(1))).unwrap();
    let (one, other) = (open(), open());
    let alone = engine.open(&group(PLENTY, &[event(2)]), Target::task(TaskId(1))).unwrap();
    assert_eq!((engine.census().families, engine.census().masters), (1, 2), "with those that inherit, and without");
    engine.enable_groups([&one, &alone]);
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    assert_eq!(engine.census().events, 4, "a fork costs what there are masters, not what there are views");
    let both = [ContextKey::Task(TaskId(1)), ContextKey::Task(TaskId(2))];
    engine.host().run(&both, 10);
    engine.enable_group(other.group).unwrap();
    engine.host().run(&both, 10);
    engine.task_exit(TaskId(2));
    engine.host().run(&both[..1], 10);
    assert_eq!(engine.read(one.events[0]).map(|count| count.value), Ok(2 * 50));
    assert_eq!(engine.read(other.events[0]).map(|count| count.value), Ok(2 * 30));
    assert_eq!(engine.read(alone.events[0]).map(|count| count.value), Ok(2 * 30));
    assert_eq!(engine.read_cached(other.events[0]).map(|(count, _)| count.value), Ok(2 * 30));
    engine.disable_group(one.group).unwrap();
    engine.disable_group(other.group).unwrap();
    close_all(&engine, [&one, &other, &alone]);
}

#[test]
fn an_inheriting_event_does_not_join_while_children_count() {
    let engine = Machine::sharing(1);
    let open = |pmu| engine.open(&group(pmu, &[flagged(2, AttrFlags::INHERIT)]), Target::task(TaskId(1))).unwrap();
    let one = open(PLENTY);
    engine.enable_group(one.group).unwrap();
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    let late = open(PLENTY);
    assert_eq!(engine.census().masters, 2, "it follows no task that was forked before");
    engine.enable_group(late.group).unwrap();
    engine.host().run(&[ContextKey::Task(TaskId(1)), ContextKey::Task(TaskId(2))], 10);
    assert_eq!(engine.read(one.events[0]).map(|count| count.value), Ok(40));
    assert_eq!(engine.read(late.events[0]).map(|count| count.value), Ok(20));
    open(PLENTY);
    assert_eq!(engine.census().masters, 2, "a new client joins the younger one");
    // Where the counters follow forks by themselves, only they know.
    open(KERNEL);
    open(KERNEL);
    assert_eq!(engine.census().masters, 4);
}

#[test]
fn domains_do_not_share_and_a_slot_can_be_read_by_oneself() {
    let engine = Machine::sharing(1);
    let open = |domain| {
        engine.open_in(SharingScope::new(domain), &group(SCARCE, &[event(3), event(4)]), Target::cpu(CpuId(0))).unwrap()
    };
    let (one, other, third) = (open(0), open(0), open(1));
    let single = engine.open_in(SharingScope::new(1), &group(SCARCE, &[event(4)]), Target::cpu(CpuId(0))).unwrap();
    assert_eq!(engine.census().masters, 2);
    engine.close(third.group);
    engine.close(single.group);
    engine.enable_group(one.group).unwrap();
    run(&engine, 10);
    engine.enable_group(other.group).unwrap();
    run(&engine, 10);
    engine.read_group(one.group).unwrap();
    let views = [one.events[1], other.events[1]].map(|event| engine.slot_view(event).unwrap());
    assert_eq!(views.map(|view| view.count.value), [80, 40]);
    assert!(views[0].lease.is_some() && views[0].lease == views[1].lease);
    assert_eq!(views[0].raw, views[1].raw);
}

#[test]
fn who_counted_what_is_asked_of_a_group_of_its_own() {
    let engine = Machine::sharing(1);
    let open = |pmu, flags| engine.open(&group(pmu, &[flagged(2, flags)]), Target::task(TaskId(1))).unwrap();
    let kernel = || open(KERNEL, AttrFlags::empty());
    let found =
        |opened: &crate::Opened| engine.create_tree(TaskId(1), vec![vec![opened.events[0]]], Attribution::EachTask);
    let (one, other) = (kernel(), kernel());
    assert_eq!(found(&one), None, "another one sees it too");
    engine.close(other.group);
    let family = found(&one).expect("it is alone");
    assert_eq!((engine.census().masters, engine.census().families), (1, 1));
    engine.enable_group(one.group).unwrap();
    run(&engine, 10);
    engine.child_forked(family, TaskId(1), TaskId(2), Nanos(10)).unwrap();
    engine.child_reported(family, TaskId(2), 0, count(6, 3)).unwrap();
    let tally = engine.read_family(family).unwrap()[0];
    assert_eq!((tally.total.value, tally.retired.value), (20, 6));
    let third = kernel();
    assert_eq!(engine.census().masters, 2, "no question finds it any more");
    engine.close(third.group);
    engine.close(one.group);
    // Where the engine counts the children, they follow the master.
    let one = open(PLENTY, AttrFlags::INHERIT);
    assert_eq!(found(&one), None);
    close_all(&engine, [&one]);
}

#[test]
fn when_the_task_is_gone_a_new_client_gets_what_the_counters_say() {
    let engine = Machine::sharing(1);
    let open = || engine.open(&GroupSpec::single(PLENTY, event(1)), Target::task(TaskId(1)));
    let one = open().unwrap();
    engine.enable_group(one.group).unwrap();
    engine.host().run(&[ContextKey::Task(TaskId(1))], 10);
    engine.task_exit(TaskId(1));
    assert_eq!(engine.state(one.events[0]), Ok(EventState::Dead));
    let other = open().unwrap();
    assert_eq!(engine.census().masters, 2, "not the one that is dead");
    assert_eq!(engine.read(one.events[0]).map(|count| count.value), Ok(10));
    engine.close(one.group);
    let third = open().unwrap();
    assert_eq!(engine.census().masters, 1, "the new one is still found");
    close_all(&engine, [&other, &third]);
}

#[test]
fn a_target_task_is_not_the_one_that_had_its_number_before() {
    let engine = Machine::sharing(1);
    let open = || engine.open(&group(PLENTY, &[event(1)]), Target::task(TaskId(1))).unwrap();
    let before = open();
    run(&engine, 5);
    engine.host().replace_task(TaskId(1));
    run(&engine, 5);
    let after = open();
    assert_eq!(engine.census().masters, 2);
    let again = open();
    assert_eq!(engine.census().masters, 2, "those who ask for the new one share");
    close_all(&engine, [&before, &after, &again]);
}

#[test]
fn sets_share_cpu_by_cpu_and_again_when_a_cpu_comes_back() {
    let engine = Machine::sharing(3);
    let open = || engine.open_set(everywhere(vec![group(SCARCE, &[event(1), event(2)])], 0..3)).unwrap();
    let (one, other) = (open(), open());
    assert_eq!((engine.census().masters, engine.census().events), (3, 12));
    engine.enable_set(one).unwrap();
    engine.enable_set(other).unwrap();
    let cpus: Vec<_> = (0..3).map(|cpu| ContextKey::Cpu(CpuId(cpu))).collect();
    engine.host().run(&cpus, 10);
    engine.cpu_offline(CpuId(1));
    assert_eq!((engine.census().masters, engine.census().events), (2, 8));
    engine.host().run(&[cpus[0], cpus[2]], 10);
    engine.cpu_online(CpuId(1));
    assert_eq!((engine.census().masters, engine.census().events), (3, 12));
    engine.host().run(&cpus, 10);
    for set in [one, other] {
        let reading = engine.read_set(set).unwrap();
        let values: Vec<_> = reading.cpus.iter().map(|cpu| cpu.counts[1].unwrap().value).collect();
        assert_eq!(values, [60, 40, 60]);
        engine.close_set(set);
    }
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}

#[test]
fn a_reading_that_is_refused_when_a_cpu_goes_is_tried_again() {
    for pmu in [SCARCE, PLENTY] {
        let engine = Machine::sharing(2);
        let open = || engine.open_set(everywhere(vec![group(pmu, &[event(1)])], 0..2)).unwrap();
        let sets = [open(), open()];
        sets.iter().for_each(|&set| engine.enable_set(set).unwrap());
        run(&engine, 10);
        engine.host().refuse_reads(1, BankError::Busy);
        engine.cpu_offline(CpuId(0));
        for set in sets {
            assert_eq!(engine.read_set(set).unwrap().cpus[0].counts, [Ok(count(10, 10))]);
        }
    }
}

#[test]
fn an_event_changes_where_no_other_shares_it_and_loses_nothing() {
    let engine = Machine::sharing(1);
    let (one, other) = (on_cpu(&engine, &[event(1), event(2)]), on_cpu(&engine, &[event(1), event(2)]));
    engine.enable_groups([&one, &other]);
    run(&engine, 10);
    let programs = engine.host().programs();
    assert_eq!(engine.modify(one.events[1], &event(7)), Err(ModifyError::Shared));
    assert_eq!((engine.host().programs(), engine.census().masters), (programs, 1));
    run(&engine, 10);
    assert_eq!(engine.read_group(one.group).unwrap(), [Ok(count(20, 20)), Ok(count(40, 20))]);
    // Alone, it is changed as it is.
    engine.close(other.group);
    engine.modify(one.events[1], &event(13)).unwrap();
    assert_eq!(engine.attr(one.events[1]).map(|attr| attr.config), Ok(13));
    run(&engine, 10);
    assert_eq!(engine.read_group(one.group).unwrap(), [Ok(count(30, 30)), Ok(count(170, 30))]);
    // No event joins it, by the old question or the new one.
    let (old, new) = (on_cpu(&engine, &[event(1), event(2)]), on_cpu(&engine, &[event(1), event(13)]));
    assert_eq!((engine.census().masters, engine.shares().len()), (3, 2));
    engine.close(old.group);
    engine.close(new.group);
    engine.modify(one.events[0], &event(5)).unwrap();
    run(&engine, 10);
    assert_eq!(engine.read_group(one.group).unwrap(), [Ok(count(80, 40)), Ok(count(300, 40))]);
    close_all(&engine, [&one]);
}

#[test]
fn equal_breakpoints_take_one_register_and_the_last_gives_it_back() {
    let engine = Machine::with_registers(PerCpu::Shared(1), Authority::Ledger);
    let engine = engine.with_sharing(crate::Sharing::On);
    let target = Target::task(TaskId(1));
    let open = |attr: Attr| engine.open(&GroupSpec::single(PLENTY, attr), target);
    let one = open(watch(1, breakpoint::W)).unwrap();
    let other = open(watch(1, breakpoint::W)).unwrap();
    let full = open(watch(2, breakpoint::W));
    assert!(matches!(full, Err(OpenError::DebugRegisters { .. })), "{full:?}");
    // What could not be changed has lost nothing.
    engine.enable_group(one.group).unwrap();
    assert_eq!(engine.modify(one.events[0], &watch(2, breakpoint::W)), Err(ModifyError::Shared));
    engine.host().run(&[ContextKey::Task(TaskId(1))], 10);
    assert_eq!(engine.read(one.events[0]), Ok(count(10, 10)));
    engine.close(one.group);
    assert!(open(watch(2, breakpoint::W)).is_err(), "another one still needs it");
    engine.close(other.group);
    open(watch(2, breakpoint::W)).unwrap();
}

#[test]
fn an_event_that_joins_a_group_singly_keeps_no_register_that_it_does_not_want() {
    let engine = Machine::with_registers(PerCpu::Shared(1), Authority::Ledger).with_sharing(crate::Sharing::On);
    let open = |attrs: &[Attr]| engine.open(&group(PLENTY, attrs), Target::task(TaskId(1)));
    let whole = open(&[event(3), watch(1, breakpoint::W)]).unwrap();
    let single = open(&[event(3)]).unwrap();
    assert_eq!(engine.census().masters, 2, "the group holds what a single event of it does not want");
    engine.close(whole.group);
    open(&[watch(2, breakpoint::W)]).unwrap();
    engine.close(single.group);
}

#[test]
fn a_set_that_shares_needs_no_registers_of_its_own() {
    let engine = Machine::with_registers(PerCpu::Shared(1), Authority::Ledger).with_sharing(crate::Sharing::On);
    let open = |rate| engine.open_set(everywhere(vec![group(PLENTY, &[watch(rate, breakpoint::W)])], 0..3));
    let (one, other) = (open(1).unwrap(), open(1).unwrap());
    assert!(open(2).is_err());
    engine.close_set(one);
    assert!(open(2).is_err(), "the other one has them still");
    engine.close_set(other);
    open(2).unwrap();
}

#[test]
fn a_register_that_the_host_refuses_is_refused_to_all() {
    let engine = Machine::sharing(1);
    let taken = Attr { config1: TAKEN, ..watch(1, breakpoint::W) };
    for _ in 0..2 {
        assert!(engine.open(&GroupSpec::single(PLENTY, taken), Target::task(TaskId(1))).is_err());
        assert_eq!(engine.census(), Census::default());
    }
}

#[test]
fn a_reading_that_is_refused_is_refused_to_those_who_count_only() {
    let engine = Machine::sharing(1);
    let (one, other) = (on_cpu(&engine, &[event(1)]), on_cpu(&engine, &[event(1)]));
    engine.enable_groups([&one, &other]);
    run(&engine, 10);
    engine.disable_group(other.group).unwrap();
    engine.host().refuse_reads(1, BankError::Busy);
    assert_eq!(engine.read(one.events[0]), Err(crate::ReadError::Error(BankError::Busy)));
    assert_eq!(engine.read(other.events[0]), Ok(count(10, 10)));
    assert_eq!(engine.fault(other.events[0]), Ok(None));
    assert_eq!(engine.read(one.events[0]), Ok(count(10, 10)));
}

#[test]
fn without_a_known_baseline_no_subscriber_begins() {
    let engine = Machine::sharing(1);
    let (one, other) = (on_cpu(&engine, &[event(1)]), on_cpu(&engine, &[event(1)]));
    engine.enable_group(one.group).unwrap();
    run(&engine, 10);
    engine.host().refuse_reads(1, BankError::Busy);
    assert_eq!(engine.enable_group(other.group), Err(ControlError::Bank(BankError::Busy)));
    run(&engine, 10);
    engine.enable_group(other.group).unwrap();
    run(&engine, 10);
    assert_eq!((engine.read(one.events[0]), engine.read(other.events[0])), (Ok(count(30, 30)), Ok(count(10, 10))));
}
