//! Event sets on the engine: on and off together, or not at all.

use super::everywhere;
use crate::engine::{Census, SwitchError};
use crate::event_set::{Member, Position, SwitchRequest};
use crate::pmu::BankError;
use crate::target::ContextKey;
use crate::testing::{Machine, PLENTY, SCARCE, event, flagged, group};
use crate::{ControlError, CpuId, Engine, EventSetId, Nanos, SetId, Target, TaskId};
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags};

fn wide(engine: &Engine<Machine>, cpus: core::ops::Range<u32>, attr: Attr) -> SetId {
    engine.open_set(everywhere(vec![group(SCARCE, &[attr])], cpus)).unwrap()
}

fn total(engine: &Engine<Machine>, set: SetId) -> u64 {
    engine.read_set(set).unwrap().cpus.iter().flat_map(|cpu| &cpu.counts).map(|count| count.unwrap().value).sum()
}

fn run(engine: &Engine<Machine>, ns: u64) {
    let keys: Vec<_> = (0..2).map(|cpu| ContextKey::Cpu(CpuId(cpu))).collect();
    engine.host().run(&keys, ns);
}

fn switch(engine: &Engine<Machine>, set: EventSetId, request: SwitchRequest) -> Position {
    engine.switch_event_set(set, request).unwrap()
}

#[test]
fn all_of_it_counts_while_it_is_on() {
    let engine = Machine::engine(2);
    let fine = wide(&engine, 0..2, event(2));
    let always = wide(&engine, 0..2, event(1));
    engine.enable_set(always).unwrap();
    let task = TaskId(7);
    let groups: Vec<_> = (0..2)
        .map(|_| engine.open(&group(PLENTY, &[flagged(3, AttrFlags::DISABLED)]), Target::task(task)).unwrap())
        .collect();
    let members = vec![Member::Set(fine), Member::Group(groups[0].group), Member::Group(groups[1].group)];
    let set = engine.gather(members);
    let counted = || {
        let of_task: u64 = groups.iter().map(|one| engine.read(one.events[0]).unwrap().value).sum();
        (total(&engine, fine), of_task, total(&engine, always))
    };
    let work = || {
        run(&engine, 10);
        engine.host().run(&[ContextKey::Task(task)], 10);
    };
    work();
    assert_eq!((counted().0, counted().1), (0, 0));
    assert_eq!(switch(&engine, set, SwitchRequest::OnFor(Nanos(15))), Position::On);
    let (before, due) = (counted(), engine.event_set_next(set));
    work();
    assert_eq!(counted().0 - before.0, 2 * 2 * 10);
    assert_eq!(counted().1 - before.1, 2 * 3 * 10);
    // Twenty nanoseconds have passed: what was promised is over, and no client was told yet.
    assert!(due.is_some() && engine.event_set_next(set).is_none());
    assert_eq!(engine.settle_event_set(set), Ok(Position::Off));
    let before = counted();
    work();
    assert_eq!((counted().0, counted().1), (before.0, before.1));
    assert!(counted().2 > before.2, "what is in no set counts on");
    engine.dissolve(set);
    assert_eq!(engine.switch_event_set(set, SwitchRequest::On), Err(SwitchError::Closed));
    groups.iter().for_each(|one| engine.close(one.group));
    [fine, always].into_iter().for_each(|set| engine.close_set(set));
    assert_eq!(engine.census(), Census::default());
}

#[test]
fn what_cannot_be_enabled_takes_the_others_back() {
    let engine = Machine::engine(2);
    (0..2).for_each(|_| engine.enable_set(wide(&engine, 1..2, flagged(1, AttrFlags::PINNED))).unwrap());
    let plenty = wide(&engine, 0..1, event(2));
    let pinned = wide(&engine, 0..2, flagged(1, AttrFlags::PINNED));
    let set = engine.gather(vec![Member::Set(plenty), Member::Set(pinned)]);
    let Err(SwitchError::Member { member, cpu, error }) = engine.switch_event_set(set, SwitchRequest::On) else {
        panic!("CPU 1 has no counter left");
    };
    assert_eq!((member, cpu), (1, Some(CpuId(1))));
    assert_eq!(error, ControlError::Bank(BankError::Unscheduled));
    run(&engine, 10);
    assert_eq!((total(&engine, plenty), total(&engine, pinned)), (0, 0));
    assert_eq!(engine.event_set_position(set), Some(Position::Off));
    // It is not tried again by itself, and a new wish tries again.
    assert_eq!(engine.settle_event_set(set), Ok(Position::Off));
    assert!(engine.switch_event_set(set, SwitchRequest::Hold(3)).is_err());
}

#[test]
fn a_member_that_is_closed_is_named_and_does_not_keep_the_others_on() {
    let engine = Machine::engine(2);
    let (one, other) = (wide(&engine, 0..2, event(1)), wide(&engine, 0..2, event(1)));
    let set = engine.gather(vec![Member::Set(one), Member::Set(other)]);
    assert_eq!(switch(&engine, set, SwitchRequest::On), Position::On);
    engine.close_set(one);
    assert_eq!(switch(&engine, set, SwitchRequest::Off), Position::Off);
    run(&engine, 10);
    assert_eq!(total(&engine, other), 0);
    let error = SwitchError::Member { member: 0, cpu: None, error: ControlError::Closed };
    assert_eq!(engine.switch_event_set(set, SwitchRequest::On), Err(error));
}

#[test]
fn a_cpu_that_comes_while_it_is_on_is_on() {
    let engine = Machine::engine(2);
    let fine = wide(&engine, 0..2, event(2));
    let set = engine.gather(vec![Member::Set(fine)]);
    engine.cpu_offline(CpuId(1));
    assert_eq!(switch(&engine, set, SwitchRequest::Hold(0)), Position::On);
    engine.cpu_online(CpuId(1));
    let before = total(&engine, fine);
    run(&engine, 10);
    assert_eq!(total(&engine, fine) - before, 2 * 2 * 10);
    assert_eq!(switch(&engine, set, SwitchRequest::Release(0)), Position::Off);
}

#[test]
fn a_member_that_joins_later_stands_as_the_others_do() {
    let engine = Machine::engine(2);
    let plenty = || engine.open_set(everywhere(vec![group(PLENTY, &[event(1)])], 0..2)).unwrap();
    let (first, off, on) = (plenty(), plenty(), plenty());
    let set = engine.gather(vec![Member::Set(first)]);
    let each = || [first, off, on].map(|set| total(&engine, set));
    assert_eq!(engine.join_event_set(set, vec![Member::Set(off)]), Ok(Position::Off));
    run(&engine, 10);
    assert_eq!(each(), [0, 0, 0]);
    assert_eq!(switch(&engine, set, SwitchRequest::On), Position::On);
    assert_eq!(engine.join_event_set(set, vec![Member::Set(on)]), Ok(Position::On));
    run(&engine, 10);
    assert_eq!(each(), [20, 20, 20]);
    assert_eq!(switch(&engine, set, SwitchRequest::Off), Position::Off);
    run(&engine, 10);
    assert_eq!(each(), [20, 20, 20]);
    engine.dissolve(set);
    assert_eq!(engine.join_event_set(set, Vec::new()), Err(SwitchError::Closed));
}

#[test]
fn where_one_member_cannot_be_on_none_joins() {
    let engine = Machine::engine(2);
    let first = wide(&engine, 0..2, event(1));
    let set = engine.gather(vec![Member::Set(first)]);
    assert_eq!(switch(&engine, set, SwitchRequest::On), Position::On);
    let (good, closed) = (wide(&engine, 0..2, event(1)), wide(&engine, 0..2, event(1)));
    engine.close_set(closed);
    let refused = SwitchError::Member { member: 1, cpu: None, error: ControlError::Closed };
    assert_eq!(engine.join_event_set(set, vec![Member::Set(good), Member::Set(closed)]), Err(refused));
    run(&engine, 10);
    assert_eq!([first, good].map(|set| total(&engine, set)), [20, 0], "the event set itself stays on");
    assert_eq!(engine.join_event_set(set, vec![Member::Set(good)]), Ok(Position::On));
    run(&engine, 10);
    assert_eq!([first, good].map(|set| total(&engine, set)), [40, 20]);
}
