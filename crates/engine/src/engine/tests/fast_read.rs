//! Fast reads: what is read past the context is what is read through it, whatever was done before; and only the bank is asked.

use super::sharing::count;
use crate::engine::Exec;
use crate::engine::fast_read::Missing;
use crate::error::{ModifyError, ReadError};
use crate::inherit::Attribution;
use crate::pmu::BankError;
use crate::target::{ContextKey, Filter, Opened, Presence};
use crate::testing::{KERNEL, Machine, SCARCE, event, flagged, group};
use crate::{Count, CpuId, Engine, EventId, Nanos, Target, TaskId};
use alloc::vec::Vec;
use pmux_abi::attr::AttrFlags;
use proptest::prelude::*;

const TASK: u64 = 1;
/// It is on CPU 0.
const ELSEWHERE: u64 = 7;

fn machine(sharing: crate::Sharing) -> Engine<Machine> {
    let engine = Machine::engine(2).with_sharing(sharing);
    (TASK..TASK + 2).for_each(|task| engine.host().place(ContextKey::Task(TaskId(task)), Presence::In));
    engine.host().place(ContextKey::Task(TaskId(ELSEWHERE)), Presence::On(CpuId(0)));
    engine
}

fn open(engine: &Engine<Machine>, rates: &[u64]) -> Opened {
    let attrs: Vec<_> = rates.iter().map(|&rate| event(rate)).collect();
    engine.open(&group(KERNEL, &attrs), Target::task(TaskId(TASK))).unwrap()
}

/// What is read without asking anybody but the bank.
fn read_fast(engine: &Engine<Machine>, event: EventId) -> Option<Count> {
    engine.record(event).and_then(|record| engine.read_noted(record.fast_read()).ok())
}

#[test]
fn what_was_read_once_is_read_by_its_slot_alone_until_something_is_done_to_its_context() {
    let engine = machine(crate::Sharing::Off);
    let opened = open(&engine, &[3]);
    let event = opened.events[0];
    let handle = engine.group_handle(opened.group).unwrap();
    engine.enable_group(opened.group).unwrap();
    assert_eq!(read_fast(&engine, event), None, "it has not been read");
    for change in 0..4 {
        engine.host().run_task(TASK, 10);
        let now = engine.read(event).unwrap();
        assert_eq!(read_fast(&engine, event), Some(now));
        engine.host().run_task(TASK, 10);
        // It is off from the second change to the third.
        let ns = if change == 2 { 0 } else { 10 };
        let (value, ns) = (now.value + 3 * ns, Nanos(ns));
        let later = Count { value, enabled: now.enabled + ns, running: now.running + ns };
        assert_eq!((read_fast(&engine, event), engine.read_by(&handle, 0)), (Some(later), Ok(later)));
        match change {
            0 => engine.reset(event).unwrap(),
            1 => engine.disable(event).unwrap(),
            2 => engine.enable(event).unwrap(),
            _ => engine.task_exit(TaskId(TASK)),
        }
        assert_eq!(read_fast(&engine, event), None, "after change {change}");
    }
    engine.close(opened.group);
    assert_eq!(engine.read_by(&handle, 0), Err(ReadError::Closed));
    assert_eq!(engine.read_cached_by(&handle, 0), Err(ReadError::Closed));
    assert_eq!(engine.read_group_by(&handle, &mut Vec::new()), Err(ReadError::Closed));
}

#[test]
fn a_view_is_read_by_its_masters_slot_whatever_others_do_with_theirs() {
    let engine = machine(crate::Sharing::On);
    let (one, other) = (open(&engine, &[2]), open(&engine, &[2]));
    let (mine, its) = (one.events[0], other.events[0]);
    engine.enable_group(one.group).unwrap();
    engine.host().run_task(TASK, 10);
    engine.enable_group(other.group).unwrap();
    engine.host().run_task(TASK, 10);
    assert_eq!((engine.read(mine), engine.read(its)), (Ok(count(40, 20)), Ok(count(20, 10))));
    for change in 0..5 {
        assert!(read_fast(&engine, mine).is_some(), "before change {change}");
        match change {
            0 => engine.reset(its).unwrap(),
            1 => engine.disable(its).unwrap(),
            2 => engine.enable(its).unwrap(),
            3 => engine.enable_group(open(&engine, &[2]).group).unwrap(),
            _ => engine.close(other.group),
        }
        assert_eq!(read_fast(&engine, its).is_some(), change == 3, "after change {change}");
        engine.host().run_task(TASK, 10);
        let ns = 20 + 10 * (change + 1);
        assert_eq!(read_fast(&engine, mine), Some(count(2 * ns, ns)), "after change {change}");
        let _ = engine.read(its);
    }
    engine.reset(mine).unwrap();
    assert_eq!((read_fast(&engine, mine), engine.read(mine)), (None, Ok(count(0, 70))));
}

#[test]
fn what_one_client_has_read_is_what_all_remember() {
    let engine = machine(crate::Sharing::On);
    let views: Vec<_> = (0..3).map(|_| open(&engine, &[5])).collect();
    engine.enable_groups(&views);
    engine.host().run_task(TASK, 1);
    assert!(views.iter().all(|view| engine.read(view.events[0]).is_ok()));
    for ns in 2..9 {
        engine.host().run_task(TASK, 1);
        let reader = &views[ns as usize % 3];
        assert_eq!(read_fast(&engine, reader.events[0]), Some(count(5 * ns, ns)));
        for view in &views {
            let handle = engine.group_handle(view.group).unwrap();
            let remembered = (count(5 * ns, ns), Nanos(ns));
            assert_eq!(engine.read_cached(view.events[0]), Ok(remembered));
            assert_eq!(engine.read_cached_by(&handle, 0), Ok(remembered));
            let slot = engine.slot_view(view.events[0]).unwrap();
            assert_eq!((slot.count, slot.raw.raw), (count(5 * ns, ns), 5 * ns));
        }
        assert_eq!(engine.shares()[0].events[0].count, count(5 * ns, ns));
    }
}

#[test]
fn a_group_is_read_at_one_moment_and_by_one_call() {
    let engine = machine(crate::Sharing::On);
    let (one, other) = (open(&engine, &[1, 2, 3]), open(&engine, &[1, 2, 3]));
    for view in [&one, &other] {
        engine.enable_group(view.group).unwrap();
        engine.host().run_task(TASK, 10);
    }
    let handle = engine.group_handle(other.group).unwrap();
    let read = || {
        let mut counts = Vec::new();
        engine.read_group_by(&handle, &mut counts).unwrap();
        counts
    };
    assert_eq!(read(), [count(10, 10), count(20, 10), count(30, 10)].map(Ok));
    let mut counts = Vec::new();
    assert!(engine.read_all_noted(&handle.fast_reads, &mut counts).is_ok(), "it was read before");
    assert_eq!(counts, read());
    // One that is off counts nothing more, and then the others are no longer read alone.
    engine.disable(other.events[1]).unwrap();
    engine.host().run_task(TASK, 10);
    assert_eq!(engine.read_all_noted(&handle.fast_reads, &mut counts), Err(Missing::SlotFacts));
    assert!(!engine.read_fast_group(&handle.fast_reads, &mut counts), "what does not count is not in the slot");
    assert_eq!(counts.len(), 3, "what could not be read leaves nothing behind");
    assert_eq!(read(), [count(20, 20), count(20, 10), count(60, 20)].map(Ok));
}

#[test]
fn what_cannot_be_read_is_seen_by_the_next_reader() {
    let engine = machine(crate::Sharing::On);
    let (one, other) = (open(&engine, &[2]), open(&engine, &[2]));
    for view in [&one, &other] {
        engine.enable_group(view.group).unwrap();
        engine.read(view.events[0]).unwrap();
    }
    engine.host().refuse_reads(1, BankError::Busy);
    assert_eq!(engine.read(one.events[0]), Err(ReadError::Error(BankError::Busy)));
    assert_eq!(engine.fault(other.events[0]), Ok(Some(BankError::Busy)));
    assert_eq!(read_fast(&engine, other.events[0]), None, "something has happened to its context");
    assert_eq!(engine.read(other.events[0]), Ok(count(0, 0)));
    assert_eq!(engine.fault(one.events[0]), Ok(None));
}

#[test]
fn an_event_whose_children_the_engine_counts_is_never_read_alone() {
    let engine = machine(crate::Sharing::Off);
    let inherits = flagged(1, AttrFlags::INHERIT);
    let opened = engine.open_enabled(&group(SCARCE, &[inherits]), Target::task(TaskId(TASK)));
    engine.read(opened.events[0]).unwrap();
    assert_eq!(read_fast(&engine, opened.events[0]), None);
    // Counters that follow forks by themselves need no other counters.
    let opened = engine.open_enabled(&group(KERNEL, &[inherits]), Target::task(TaskId(TASK)));
    engine.read(opened.events[0]).unwrap();
    assert!(read_fast(&engine, opened.events[0]).is_some());
    let roots = opened.events.iter().map(|&event| alloc::vec![event]).collect();
    engine.create_tree(TaskId(TASK), roots, Attribution::Totals).unwrap();
    engine.read(opened.events[0]).unwrap();
    engine.host().run_task(TASK, 5);
    assert_eq!(read_fast(&engine, opened.events[0]), Some(count(5, 5)), "who reports at his exit is in the slot");
}

#[derive(Clone, Debug)]
enum Op {
    Open { rates: Vec<u64>, place: usize, inherits: bool },
    Close(usize),
    Enable(usize, Option<usize>),
    Disable(usize, Option<usize>),
    Reset(usize, usize),
    Modify(usize, usize, u64),
    Read(usize, Option<usize>),
    Refuse(u32),
    Exit,
    Exec,
    Run(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let nth = 0_usize..12;
    let which = || prop::option::of(0_usize..3);
    prop_oneof![
        5 => (prop::collection::vec(1_u64..3, 1..4), 0_usize..4, prop::bool::weighted(0.2))
            .prop_map(|(rates, place, inherits)| Op::Open { rates, place, inherits }),
        1 => nth.clone().prop_map(Op::Close),
        6 => (nth.clone(), which()).prop_map(|(group, event)| Op::Enable(group, event)),
        2 => (nth.clone(), which()).prop_map(|(group, event)| Op::Disable(group, event)),
        1 => (nth.clone(), 0_usize..3).prop_map(|(group, event)| Op::Reset(group, event)),
        1 => (nth.clone(), 0_usize..3, 1_u64..3).prop_map(|(group, event, rate)| Op::Modify(group, event, rate)),
        8 => (nth, which()).prop_map(|(group, event)| Op::Read(group, event)),
        1 => (1_u32..4).prop_map(Op::Refuse),
        1 => Just(Op::Exit),
        1 => Just(Op::Exec),
        8 => (1_u64..50).prop_map(Op::Run),
    ]
}

/// Which way is taken where an operation reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Shortest,
    ThroughContext,
}

/// Returns whether it was refused because others use the counter, too.
fn step(engine: &Engine<Machine>, groups: &mut Vec<Opened>, way: Way, op: &Op) -> bool {
    let elsewhere = Target { context: ContextKey::Task(TaskId(ELSEWHERE)), filter: Filter::OnCpu(CpuId(1)) };
    let places = [Target::task(TaskId(TASK)), Target::task(TaskId(TASK + 1)), Target::cpu(CpuId(0)), elsewhere];
    let nth = |index: usize| groups.get(index % groups.len().max(1)).cloned();
    let one = |opened: &Opened, index: usize| opened.events[index % opened.events.len()];
    match *op {
        Op::Open { ref rates, place, inherits } => {
            let flags = if inherits { AttrFlags::INHERIT } else { AttrFlags::empty() };
            let attrs: Vec<_> = rates.iter().map(|&rate| flagged(rate, flags)).collect();
            groups.extend(engine.open(&group(KERNEL, &attrs), places[place]));
        }
        Op::Close(index) if !groups.is_empty() => engine.close(groups.swap_remove(index % groups.len()).group),
        Op::Enable(index, event) => nth(index).into_iter().for_each(|opened| {
            let _ = event.map_or_else(|| engine.enable_group(opened.group), |index| engine.enable(one(&opened, index)));
        }),
        Op::Disable(index, event) => nth(index).into_iter().for_each(|opened| {
            let _ =
                event.map_or_else(|| engine.disable_group(opened.group), |index| engine.disable(one(&opened, index)));
        }),
        Op::Reset(index, event) => nth(index).into_iter().for_each(|opened| {
            let _ = engine.reset(one(&opened, event));
        }),
        Op::Modify(index, event, rate) => {
            let modify = |opened: Opened| engine.modify(one(&opened, event), &self::event(rate));
            return nth(index).map(modify) == Some(Err(ModifyError::Shared));
        }
        Op::Read(index, event) => nth(index).into_iter().for_each(|opened| match (way, event) {
            (Way::ThroughContext, _) => drop(engine.read_through_context(one(&opened, event.unwrap_or_default()))),
            (Way::Shortest, None) => drop(engine.read_group(opened.group)),
            (Way::Shortest, Some(index)) => drop(engine.read(one(&opened, index))),
        }),
        Op::Refuse(times) => engine.host().refuse_reads(times, BankError::Busy),
        Op::Exit => engine.task_exit(TaskId(TASK + 1)),
        Op::Exec => engine.task_exec(TaskId(TASK), Exec::Plain),
        Op::Run(ns) => {
            let all = places.map(|place| place.context);
            engine.host().run(&all, ns);
        }
        Op::Close(_) => {}
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Time stands still between the two.
    #[test]
    fn the_short_way_says_what_the_long_one_says(shares: bool, ops in prop::collection::vec(op(), 1..60)) {
        let engine = machine(if shares { crate::Sharing::On } else { crate::Sharing::Off });
        let mut groups = Vec::new();
        for op in &ops {
            step(&engine, &mut groups, Way::Shortest, op);
            if !matches!(op, Op::Read(..) | Op::Run(_)) {
                continue;
            }
            engine.host().refuse_reads(0, BankError::Busy);
            for opened in &groups {
                let handle = engine.group_handle(opened.group).unwrap();
                let mut together = Vec::new();
                let could = engine.read_fast_group(&handle.fast_reads, &mut together);
                prop_assert_eq!(could, !together.is_empty());
                for (index, &event) in opened.events.iter().enumerate() {
                    let short = read_fast(&engine, event);
                    prop_assert!(!could || short.map(Ok) == Some(together[index]), "{short:?} of {together:?}");
                    let remembered = engine.read_cached(event).map(|(count, _)| count);
                    let long = engine.read_through_context(event);
                    if let Some(short) = short {
                        prop_assert_eq!((remembered, long), (Ok(short), Ok(short)), "after {:?}", op);
                    }
                }
            }
        }
        groups.iter().for_each(|opened| engine.close(opened.group));
        prop_assert_eq!(engine.host().leased(), 0);
    }

    /// One that shares and reads the shortest way says what one says that does neither.
    #[test]
    fn an_event_read_the_short_way_counts_as_all_others(ops in prop::collection::vec(op(), 1..60)) {
        let (shares, plain) = (machine(crate::Sharing::On), machine(crate::Sharing::Off));
        let (mut views, mut groups) = (Vec::new(), Vec::new());
        // Faults strike the event that is read first, which is not the same event here and there.
        for op in ops.iter().filter(|op| !matches!(op, Op::Refuse(_))) {
            if step(&shares, &mut views, Way::Shortest, op) {
                continue;
            }
            step(&plain, &mut groups, Way::ThroughContext, op);
            prop_assert_eq!(views.len(), groups.len());
            if !matches!(op, Op::Read(..)) {
                continue;
            }
            for (view, group) in views.iter().zip(&groups) {
                for (&short, &long) in view.events.iter().zip(&group.events) {
                    prop_assert_eq!(shares.state(short), plain.state(long));
                    prop_assert_eq!(shares.read(short), plain.read_through_context(long), "after {:?}", op);
                }
            }
        }
    }
}

#[test]
fn a_reading_of_nothing_says_when_it_was_all_the_same() {
    let engine = machine(crate::Sharing::Off);
    let opened = open(&engine, &[3, 5]);
    engine.enable_group(opened.group).unwrap();
    engine.read_group(opened.group).unwrap();
    for &event in &opened.events {
        let time = engine.slot_view(event).unwrap().raw.time;
        assert_eq!(time, crate::pmu::SlotTime::Measured { enabled: Nanos(0), running: Nanos(0) });
    }
}
