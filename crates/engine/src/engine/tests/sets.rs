//! System-wide sets and hotplug.

use super::everywhere;
use crate::engine::{Census, Overflow, SetError, SetReading, SetRequest};
use crate::error::{ModifyError, OpenError};
use crate::pmu::BankError;
use crate::system_wide::{Absent, SetScope};
use crate::target::ContextKey;
use crate::testing::{KERNEL, Machine, Near, PLENTY, REFUSED, SCARCE, event, flagged, group};
use crate::{ControlError, Count, CpuId, Cred, Engine, Host as _, Nanos, ReadError, SetId, TaskId};
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags};

fn request(cpus: core::ops::Range<u32>) -> SetRequest {
    everywhere(vec![group(SCARCE, &[event(2)]), group(PLENTY, &[event(3), event(5)])], cpus)
}

/// A machine with so many CPUs, and a set that is armed on those of `wanted` that there are.
fn armed(cpus: u32, wanted: core::ops::Range<u32>) -> (Engine<Machine>, SetId) {
    let engine = Machine::engine(cpus);
    let set = engine.open_set(request(wanted)).unwrap();
    engine.enable_set(set).unwrap();
    (engine, set)
}

fn run(engine: &Engine<Machine>, cpus: &[u32], ns: u64) {
    let keys: Vec<_> = cpus.iter().map(|&cpu| ContextKey::Cpu(CpuId(cpu))).collect();
    engine.host().run(&keys, ns);
}

fn values(engine: &Engine<Machine>, set: SetId) -> Vec<(u32, Vec<u64>)> {
    let reading = engine.read_set(set).unwrap();
    let values = |counts: &[Result<Count, _>]| counts.iter().map(|c| c.as_ref().unwrap().value).collect();
    reading.cpus.iter().map(|cpu| (cpu.cpu.0, values(&cpu.counts))).collect()
}

#[test]
fn counts_on_every_cpu_once_it_is_armed() {
    let engine = Machine::engine(2);
    let set = engine.open_set(request(0..2)).unwrap();
    run(&engine, &[0, 1], 10);
    assert_eq!(values(&engine, set), [(0, vec![0, 0, 0]), (1, vec![0, 0, 0])]);
    engine.enable_set(set).unwrap();
    run(&engine, &[0, 1], 10);
    assert_eq!(values(&engine, set), [(0, vec![20, 30, 50]), (1, vec![20, 30, 50])]);
    engine.disable_set(set).unwrap();
    run(&engine, &[0, 1], 10);
    assert_eq!(values(&engine, set), [(0, vec![20, 30, 50]), (1, vec![20, 30, 50])]);
    assert_eq!(engine.read_set(set).unwrap().span, Nanos(10));
    engine.close_set(set);
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}

#[test]
fn a_refusal_on_one_cpu_leaves_nothing_on_the_others() {
    let engine = Machine::engine(3);
    let mut bad = request(0..3);
    bad.groups.push(group(PLENTY, &[Attr { config1: REFUSED, ..event(1) }]));
    let error = OpenError::Bank { index: 0, error: BankError::Busy };
    assert_eq!(engine.open_set(bad), Err(SetError { cpu: CpuId(0), group: 2, error }));
    let strict = SetRequest { absent: Absent::Refuse, ..request(2..4) };
    let error = OpenError::CpuOffline { cpu: CpuId(3) };
    assert_eq!(engine.open_set(strict), Err(SetError { cpu: CpuId(3), group: 0, error }));
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}

#[test]
fn arming_is_all_or_nothing() {
    let engine = Machine::engine(2);
    let pinned =
        |cpus| SetRequest { groups: vec![group(SCARCE, &[flagged(1, AttrFlags::PINNED); 1])], ..request(cpus) };
    let first = [engine.open_set(pinned(1..2)).unwrap(), engine.open_set(pinned(1..2)).unwrap()];
    for set in first {
        engine.enable_set(set).unwrap();
    }
    let second = engine.open_set(pinned(0..2)).unwrap();
    assert!(engine.enable_set(second).is_err(), "CPU 1 has no counter left");
    run(&engine, &[0, 1], 10);
    assert_eq!(values(&engine, second)[0], (0, vec![0]), "CPU 0 does not count either");
}

#[test]
fn hotplug_is_followed_and_the_gap_is_stated() {
    let (engine, set) = armed(2, 0..4);
    run(&engine, &[0, 1], 100);
    engine.cpu_offline(CpuId(1));
    engine.cpu_offline(CpuId(1));
    assert_eq!(engine.census().contexts, 1, "a dead CPU's slots are given back at once");
    run(&engine, &[0], 50);
    assert_eq!(values(&engine, set)[1], (1, vec![200, 300, 500]));
    engine.cpu_online(CpuId(1));
    engine.cpu_online(CpuId(1));
    engine.cpu_online(CpuId(3));
    engine.cpu_online(CpuId(9));
    run(&engine, &[0, 1, 3], 10);
    let counted = values(&engine, set);
    assert_eq!(counted, [(0, vec![320, 480, 800]), (1, vec![220, 330, 550]), (3, vec![20, 30, 50])]);
    let reading = engine.read_set(set).unwrap();
    let coverage: Vec<_> = reading.coverage.iter().map(|c| (c.cpu.0, c.covered.0, c.missed.0, c.gaps)).collect();
    assert_eq!(coverage, [(0, 160, 0, 0), (1, 110, 50, 1), (3, 10, 150, 0)]);
    engine.close_set(set);
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}

#[test]
fn no_overflow_is_delivered_before_all_is_armed() {
    let engine = Machine::engine(2);
    let set = engine.open_set(request(0..2)).unwrap();
    let events = super::open_events(&engine);
    assert_eq!(events.len(), 6);
    assert!(events.iter().all(|&event| engine.overflow(event) == Overflow::Premature));
    engine.enable_set(set).unwrap();
    assert!(events.iter().all(|&event| engine.overflow(event) == Overflow::Deliver));
}

/// Whether every CPU that is listed is covered or missed for as long as the set was armed.
fn coverage_adds_up(engine: &Engine<Machine>, set: SetId) -> Vec<(u32, u64, u64, bool)> {
    let reading = engine.read_set(set).unwrap();
    assert!(reading.coverage.iter().all(|cpu| cpu.covered + cpu.missed == reading.span), "{reading:?}");
    reading.coverage.iter().map(|cpu| (cpu.cpu.0, cpu.covered.0, cpu.missed.0, cpu.present)).collect()
}

#[test]
fn a_set_that_was_disarmed_delivers_nothing_until_all_is_armed_again() {
    let (engine, set) = armed(2, 0..2);
    engine.disable_set(set).unwrap();
    let events = super::open_events(&engine);
    // Half of it counts: as if another thread were in the midst of arming.
    for &event in &events[..3] {
        engine.enable(event).unwrap();
        assert_eq!(engine.overflow(event), Overflow::Premature);
    }
    engine.enable_set(set).unwrap();
    assert!(events.iter().all(|&event| engine.overflow(event) == Overflow::Deliver));
    engine.cpu_offline(CpuId(1));
    engine.cpu_online(CpuId(1));
    let events = super::open_events(&engine);
    assert!(events.iter().all(|&event| engine.overflow(event) == Overflow::Deliver), "a CPU that came back, too");
}

#[test]
fn a_set_that_an_exec_has_armed_delivers() {
    let engine = Machine::engine(1);
    let groups = vec![group(KERNEL, &[flagged(1, AttrFlags::ENABLE_ON_EXEC)])];
    let set = engine.open_set(SetRequest { groups, scope: SetScope::Task(TaskId(1)), ..request(0..1) }).unwrap();
    engine.task_exec(TaskId(1), crate::engine::Exec::Plain);
    engine.armed_by_exec(set);
    assert!(super::open_events(&engine).iter().all(|&event| engine.overflow(event) == Overflow::Deliver));
    assert_eq!(engine.read_set(set).unwrap().span, Nanos::ZERO);
}

#[test]
fn a_refusal_while_arming_leaves_the_set_disarmed() {
    let (engine, set) = armed(2, 0..2);
    run(&engine, &[0, 1], 10);
    engine.disable_set(set).unwrap();
    engine.host().refuse_starts(1);
    engine.enable_set(set).unwrap();
    engine.host().refuse_starts(0);
    // A scarce group that is refused waits; one that holds its slot for life is in error.
    engine.disable_set(set).unwrap();
    let plenty = SetRequest { groups: vec![group(PLENTY, &[event(1)])], ..request(0..2) };
    let set = engine.open_set(plenty).unwrap();
    engine.enable_set(set).unwrap();
    run(&engine, &[0, 1], 10);
    let leader = engine.set_events(set).unwrap()[1].1[0];
    engine.disable(leader).unwrap();
    engine.host().refuse_starts(1);
    assert_eq!(engine.enable_set(set), Err(ControlError::Bank(BankError::Busy)), "armed before, and arming again");
    run(&engine, &[0, 1], 10);
    assert_eq!(values(&engine, set), [(0, vec![10]), (1, vec![10])]);
    assert_eq!(coverage_adds_up(&engine, set), [(0, 10, 0, false), (1, 10, 0, false)]);
}

#[test]
fn a_cpu_that_is_refused_when_it_comes_is_listed_as_missed() {
    let (engine, set) = armed(1, 0..3);
    run(&engine, &[0], 10);
    engine.host().refuse_programs(1);
    engine.cpu_online(CpuId(1));
    run(&engine, &[0, 1], 10);
    // It had to be armed at once: what is refused then is no less a refusal.
    engine.host().refuse_starts(3);
    engine.cpu_online(CpuId(2));
    engine.host().refuse_starts(0);
    run(&engine, &[0, 1, 2], 10);
    let reading = engine.read_set(set).unwrap();
    let refused: Vec<_> = reading.cpus.iter().map(|cpu| (cpu.cpu.0, cpu.refused.map(OpenError::errno))).collect();
    assert_eq!(refused, [(0, None), (1, Some(16)), (2, Some(16))]);
    assert_eq!(coverage_adds_up(&engine, set), [(0, 30, 0, true), (1, 0, 30, false), (2, 0, 30, false)]);
    // The host may try again.
    engine.cpu_online(CpuId(1));
    engine.cpu_offline(CpuId(2));
    run(&engine, &[0, 1], 10);
    assert_eq!(engine.read_set(set).unwrap().cpus.iter().filter(|cpu| cpu.refused.is_some()).count(), 0);
    assert_eq!(coverage_adds_up(&engine, set), [(0, 40, 0, true), (1, 10, 30, true), (2, 0, 40, false)]);
    engine.close_set(set);
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}

/// A host that would have to wait says so; it is asked about all groups, and again about those of clients for which it is ready.
#[test]
fn what_is_late_when_a_cpu_comes_is_tried_again() {
    let (engine, set) = armed(1, 0..3);
    let refused = || {
        let cpus = engine.read_set(set).unwrap().cpus;
        cpus.iter().filter_map(|cpu| Some((cpu.cpu.0, cpu.refused?.errno()))).collect::<Vec<_>>()
    };
    engine.host().late_programs(2);
    engine.cpu_online(CpuId(1));
    engine.host().refuse_programs(1);
    engine.cpu_online(CpuId(2));
    assert_eq!(refused(), [(1, 11), (2, 16)]);
    run(&engine, &[0, 1, 2], 10);
    engine.retry_late(|cred| cred != Cred::HOST);
    assert_eq!(refused(), [(1, 11), (2, 16)], "another client's");
    engine.host().late_programs(1);
    engine.retry_late(|cred| cred == Cred::HOST);
    assert_eq!(refused(), [(1, 11), (2, 16)], "it is late again");
    engine.retry_late(|_| true);
    assert_eq!(refused(), [(2, 16)], "what is refused is no more so than before");
    run(&engine, &[0, 1, 2], 10);
    assert_eq!(coverage_adds_up(&engine, set), [(0, 20, 0, true), (1, 10, 10, true), (2, 0, 20, false)]);
    // A CPU that has gone is not asked.
    engine.cpu_offline(CpuId(1));
    engine.host().late_programs(1);
    engine.cpu_online(CpuId(1));
    engine.cpu_offline(CpuId(1));
    engine.retry_late(|_| true);
    assert_eq!(engine.read_set(set).unwrap().cpus.iter().filter(|cpu| cpu.refused.is_some()).count(), 1);
    engine.close_set(set);
    engine.retry_late(|_| true);
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}

#[test]
fn where_it_was_refused_it_is_tried_again_with_other_events() {
    let (engine, set) = armed(1, 0..3);
    engine.host().refuse_programs(1);
    engine.cpu_online(CpuId(1));
    let other = [group(SCARCE, &[event(7)]), group(PLENTY, &[event(3), event(5)])];
    let refused = || engine.read_set(set).unwrap().cpus.iter().filter(|cpu| cpu.refused.is_some()).count();
    assert_eq!((refused(), engine.retry_set(set, &[])), (1, Err(ModifyError::Closed)));
    assert_eq!((refused(), engine.retry_set(set, &other)), (1, Ok(())));
    // Who comes later gets them as well; who was there stays.
    engine.cpu_online(CpuId(2));
    let before = engine.read_set(set).unwrap();
    run(&engine, &[0, 1, 2], 10);
    let after = engine.read_set(set).unwrap();
    let value = |reading: &SetReading, cpu: usize| reading.cpus[cpu].counts[0].unwrap().value;
    let rates: Vec<_> = (0..3).map(|cpu| (value(&after, cpu) - value(&before, cpu)) / 10).collect();
    assert_eq!((refused(), &rates[1..]), (0, &[7, 7][..]));
    assert_ne!(rates[0], 7);
    engine.close_set(set);
    assert_eq!(engine.retry_set(set, &other), Err(ModifyError::Closed));
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}

#[test]
fn a_cpu_that_left_while_nothing_was_armed_has_missed_only_armed_time() {
    let (engine, set) = armed(2, 0..2);
    run(&engine, &[0, 1], 10);
    engine.disable_set(set).unwrap();
    run(&engine, &[0, 1], 1000);
    engine.cpu_offline(CpuId(1));
    engine.enable_set(set).unwrap();
    run(&engine, &[0], 10);
    assert_eq!(coverage_adds_up(&engine, set), [(0, 20, 0, true), (1, 10, 10, false)]);
}

#[test]
fn a_reading_that_fails_at_the_end_loses_only_what_came_after_the_last_one() {
    // The scarce event is read before it is stopped and as it is stopped; the second group's counts stay the second group's.
    for (refused, last) in [(1, [30, 45, 75]), (3, [20, 45, 75])] {
        let (engine, set) = armed(2, 0..2);
        run(&engine, &[0, 1], 10);
        engine.read_set(set).unwrap();
        run(&engine, &[0, 1], 5);
        engine.host().refuse_reads(refused, BankError::NoSuchCpu);
        engine.cpu_offline(CpuId(1));
        assert_eq!(values(&engine, set)[1], (1, last.to_vec()));
    }
}

#[test]
fn an_error_in_a_second_life_is_shown() {
    let engine = Machine::engine(2);
    let groups = vec![group(PLENTY, &[event(1)])];
    let set = engine.open_set(SetRequest { groups, ..request(0..2) }).unwrap();
    engine.enable_set(set).unwrap();
    run(&engine, &[0, 1], 10);
    engine.cpu_offline(CpuId(1));
    engine.cpu_online(CpuId(1));
    engine.host().refuse_reads(2, BankError::Other(5));
    let counts: Vec<_> = engine.read_set(set).unwrap().cpus.into_iter().map(|cpu| cpu.counts[0]).collect();
    assert_eq!(counts, [Err(ReadError::Error(BankError::Other(5))); 2], "not the count of the first life alone");
    assert_eq!(values(&engine, set), [(0, vec![10]), (1, vec![10])]);
}

#[test]
fn what_is_wrong_with_a_group_is_said_at_once() {
    let engine = Machine::engine(1);
    let request = SetRequest { groups: vec![group(SCARCE, &[event(1); 3])], ..request(5..7) };
    let error = OpenError::NeverFits { pmu: SCARCE, events: 3 };
    assert_eq!(engine.open_set(request), Err(SetError { cpu: CpuId(5), group: 0, error }), "no CPU of it is online");
    assert_eq!(engine.census(), Census::default());
}

#[test]
fn a_hint_is_a_hint() {
    for near in [Near::Once, Near::Twice, Near::Never] {
        let engine = Machine::engine_on(2, near);
        let set = engine.open_set(request(0..3)).unwrap();
        engine.enable_set(set).unwrap();
        run(&engine, &[0, 1], 10);
        engine.cpu_offline(CpuId(1));
        engine.cpu_online(CpuId(2));
        assert_eq!(values(&engine, set), [(0, vec![20, 30, 50]), (1, vec![20, 30, 50]), (2, vec![0, 0, 0])]);
        assert_eq!(engine.census().events, 6);
        engine.close_set(set);
        assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
    }
}

#[test]
fn a_set_that_is_closed_says_so_to_every_caller() {
    let engine = Machine::engine(1);
    let set = engine.open_set(request(0..2)).unwrap();
    engine.close_set(set);
    engine.close_set(set);
    let other = engine.open_set(request(0..2)).unwrap();
    assert_eq!(
        (engine.enable_set(set), engine.disable_set(set)),
        (Err(ControlError::Closed), Err(ControlError::Closed))
    );
    assert_eq!(engine.read_set(set).map(|_| ()), Err(ReadError::Closed));
    assert_eq!(engine.set_events(set), Err(ReadError::Closed));
    engine.armed_by_exec(set);
    engine.cpu_online(CpuId(1));
    assert_eq!(engine.read_set(other).unwrap().span, Nanos::ZERO);
}

#[test]
fn a_task_is_counted_on_each_cpu_by_itself() {
    let engine = Machine::engine(2);
    engine.host().place(ContextKey::Task(TaskId(1)), crate::target::Presence::Out);
    let request =
        SetRequest { scope: SetScope::Task(TaskId(1)), groups: vec![group(SCARCE, &[event(1)])], ..request(0..2) };
    let set = engine.open_set(request).unwrap();
    engine.enable_set(set).unwrap();
    for (cpu, ns) in [(0, 3), (1, 4)] {
        engine.switch_in(TaskId(1), CpuId(cpu));
        engine.host().run_task(1, ns);
    }
    engine.switch_out(TaskId(1));
    assert_eq!(values(&engine, set), [(0, vec![3]), (1, vec![4])]);
    assert_eq!(engine.host().now(), Nanos(7));
    engine.cpu_offline(CpuId(1));
    assert_eq!(values(&engine, set)[1], (1, vec![4]), "a task's events do not go with the CPU");
    engine.cpu_online(CpuId(1));
    assert_eq!(engine.census().events, 2);
    assert_ne!(engine.read_set(set).unwrap().cpus[1].counts, [Ok(Count::default())]);
}

#[test]
fn a_reset_forgets_what_cpus_that_left_had_counted() {
    let (engine, set) = armed(2, 0..2);
    run(&engine, &[0, 1], 10);
    engine.cpu_offline(CpuId(1));
    engine.reset_set(set).unwrap();
    assert_eq!(values(&engine, set), [(0, vec![0, 0, 0]), (1, vec![0, 0, 0])]);
    engine.cpu_online(CpuId(1));
    run(&engine, &[0, 1], 1);
    assert_eq!(values(&engine, set), [(0, vec![2, 3, 5]), (1, vec![2, 3, 5])]);
    engine.close_set(set);
    assert_eq!(engine.reset_set(set), Err(ControlError::Closed));
}

#[test]
fn a_reset_that_is_refused_on_a_cpu_keeps_what_was_counted_there_before_it_left() {
    let (engine, set) = armed(2, 0..2);
    run(&engine, &[0, 1], 10);
    engine.cpu_offline(CpuId(0));
    engine.cpu_online(CpuId(0));
    run(&engine, &[0, 1], 1);
    assert_eq!(values(&engine, set), [(0, vec![22, 33, 55]), (1, vec![22, 33, 55])]);
    engine.host().refuse_reads(1, BankError::Other(5));
    assert_eq!(engine.reset_set(set), Err(ControlError::Bank(BankError::Other(5))));
    assert_eq!(values(&engine, set), [(0, vec![22, 0, 0]), (1, vec![0, 0, 0])]);
}
