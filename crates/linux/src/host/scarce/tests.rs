//! Turns on the real kernel. Software events stand in for hardware: which counters are scarce is for the model to say, so
//! every kernel can be asked.

use super::*;
use crate::current_tid;
use crate::host::{KERNEL, LinuxEngine, LinuxHost};
use pmux_abi::attr::sw;
use pmux_engine::pmu::BankError;
use pmux_engine::target::Opened;
use pmux_engine::{Count, CpuId, EventId, EventState, GroupSpec, Nanos, OpenError, Target};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// An engine that takes software events for those of a PMU with so many counters; `None` where there are no events.
fn scarce(counters: u8) -> Option<(LinuxEngine, PmuId)> {
    let engine = LinuxHost::engine(crate::cpus::Cpus::system().online().unwrap().iter());
    let pmu = engine.host().scarce_pmu(EventType::SOFTWARE, Reach::EveryCpu).unwrap();
    engine.host().learn_capacity(pmu, &[], &ProbedCapacity { counters, events: Vec::new() });
    match engine.open(&GroupSpec::single(KERNEL, software(sw::DUMMY)), own()) {
        Ok(opened) => engine.close(opened.group),
        Err(_) => {
            println!("skipped: needs performance events");
            return None;
        }
    }
    Some((engine, pmu))
}

fn software(config: u64) -> Attr {
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    Attr { kind: EventType::SOFTWARE, config, flags, ..Attr::default() }
}

fn own() -> Target {
    Target::task(LinuxHost::task(current_tid()))
}

fn on(engine: &LinuxEngine, pmu: PmuId, configs: &[u64], target: Target) -> Opened {
    let events = configs.iter().map(|&config| (pmu, software(config))).collect();
    let opened = engine.open(&GroupSpec { events }, target).unwrap();
    engine.enable_group(opened.group).unwrap();
    opened
}

/// How many faults [`faults`] makes, with the smallest pages that there are.
const FAULTS: u64 = 16;
const PAGE: usize = 4096;

#[repr(align(4096))]
struct Data([AtomicU8; 4096 * PAGE]);

/// Not zero: so it is a private mapping of the executable, and the first write to each page is one fault.
static DATA: Data = Data([const { AtomicU8::new(1) }; 4096 * PAGE]);
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Writes to pages that no code has written to.
fn faults() {
    let first = NEXT.fetch_add(FAULTS as usize, Ordering::Relaxed);
    for page in first..first + FAULTS as usize {
        // No code reads it: a compiler could leave the write out.
        std::hint::black_box(&DATA.0[page * PAGE]).store(2, Ordering::Relaxed);
    }
}

fn read(engine: &LinuxEngine, event: EventId) -> Count {
    engine.read(event).unwrap()
}

fn is_on(engine: &LinuxEngine, event: EventId) -> bool {
    engine.state(event).unwrap() == EventState::Active
}

#[test]
fn what_happens_in_its_turns_is_counted_and_nothing_else() {
    let Some((engine, pmu)) = scarce(2) else { return };
    let configs = [sw::PAGE_FAULTS, sw::PAGE_FAULTS_MIN, sw::PAGE_FAULTS, sw::PAGE_FAULTS];
    // Of the same kind each: a fault may be a major one.
    let all_the_time = configs.map(|config| on(&engine, KERNEL, &[config], own()).events[0]);
    let turns = configs.map(|config| on(&engine, pmu, &[config], own()).events[0]);
    let now = || all_the_time.map(|event| read(&engine, event).value);
    let mut least = [0; 4];
    let mut most = [0; 4];
    for _ in 0..20 {
        let before = now();
        let rotation = engine.rotate();
        assert_eq!(rotation.contexts, 1);
        let active = turns.map(|event| is_on(&engine, event));
        assert_eq!(active.iter().filter(|&&on| on).count(), 2, "never more than fit, never fewer");
        let begin = now();
        faults();
        let end = now();
        // The stop of this turn is in the next rotation; what happens until then counts too.
        let values = turns.map(|event| read(&engine, event).value);
        let after = now();
        for event in 0..4 {
            if active[event] {
                least[event] += end[event] - begin[event];
                most[event] += after[event] - before[event];
            }
            assert!(values[event] >= least[event], "{values:?} {least:?}");
        }
    }
    engine.rotate();
    for (event, (&least, &most)) in turns.iter().zip(least.iter().zip(&most)) {
        let count = read(&engine, *event);
        // From one turn to the next a turn's own end may add what the test itself does.
        assert!(count.value >= least, "{count:?} {least}");
        assert!(count.value <= most + 20 * 64, "{count:?} {most}");
        assert!(count.running > Nanos::ZERO && count.running < count.enabled, "{count:?}");
        assert!(engine.waited(*event).unwrap() > Nanos::ZERO);
    }
}

#[test]
fn turns_open_and_close_nothing() {
    let Some((engine, pmu)) = scarce(2) else { return };
    let groups: Vec<_> = (0..5).map(|_| on(&engine, pmu, &[sw::PAGE_FAULTS], own())).collect();
    let before = engine.host().kernel_events();
    let mut turns = vec![0; 5];
    for _ in 0..100 {
        engine.rotate();
        for (turns, group) in turns.iter_mut().zip(&groups) {
            *turns += u32::from(is_on(&engine, group.events[0]));
        }
    }
    assert_eq!(turns, [40; 5]);
    assert_eq!(engine.host().kernel_events(), before);
    for group in groups {
        engine.close(group.group);
    }
    let (opened, closed) = engine.host().kernel_events();
    assert_eq!(opened, closed);
}

#[test]
fn a_client_that_leaves_takes_its_events_along() {
    let Some((engine, pmu)) = scarce(2) else { return };
    let closed = || engine.host().kernel_events().1;
    let stays = on(&engine, pmu, &[sw::PAGE_FAULTS], own()).events[0];
    let pair = [sw::PAGE_FAULTS; 2];
    let leaves = on(&engine, pmu, &pair, own());
    while !is_on(&engine, leaves.events[0]) {
        engine.rotate();
    }
    assert!(!is_on(&engine, stays));
    let before = closed();
    engine.close(leaves.group);
    assert_eq!(closed(), before + 2);
    assert!(is_on(&engine, stays), "what it had is free at once");
    // The next one leaves while it waits.
    let waits = on(&engine, pmu, &pair, own());
    while is_on(&engine, waits.events[0]) {
        engine.rotate();
    }
    engine.close(waits.group);
    assert_eq!(closed(), before + 4);
    let value = read(&engine, stays).value;
    faults();
    assert!(read(&engine, stays).value >= value + FAULTS);
    engine.rotate();
    assert_eq!(engine.rotate().contexts, 0, "no group waits any more");
}

#[test]
fn a_group_counts_as_one() {
    let Some((engine, pmu)) = scarce(3) else { return };
    let group = on(&engine, pmu, &[sw::PAGE_FAULTS, sw::PAGE_FAULTS, sw::PAGE_FAULTS], own());
    let other = on(&engine, pmu, &[sw::PAGE_FAULTS], own());
    for turn in 0..50 {
        engine.rotate();
        faults();
        assert_ne!(is_on(&engine, group.events[0]), is_on(&engine, other.events[0]));
        if turn % 7 == 3 {
            let counts: Vec<_> = engine.read_group(group.group).unwrap().into_iter().map(Result::unwrap).collect();
            assert_eq!(counts[0].value, counts[1].value, "read at one moment");
        }
    }
    engine.disable_group(group.group).unwrap();
    let counts: Vec<_> = group.events.iter().map(|&event| read(&engine, event)).collect();
    assert!(counts[0].value > 0 && counts[0].running < counts[0].enabled);
    for count in &counts[1..] {
        assert_eq!((count.value, count.running), (counts[0].value, counts[0].running), "{counts:?}");
    }
}

#[test]
fn one_of_a_group_goes_and_comes_alone() {
    let Some((engine, pmu)) = scarce(2) else { return };
    let group = on(&engine, pmu, &[sw::PAGE_FAULTS, sw::PAGE_FAULTS], own());
    let other = on(&engine, pmu, &[sw::PAGE_FAULTS], own());
    let sibling = group.events[1];
    engine.disable(sibling).unwrap();
    let before = read(&engine, sibling).value;
    let alone = read(&engine, group.events[0]).value;
    for _ in 0..6 {
        engine.rotate();
        faults();
        assert!(is_on(&engine, group.events[0]) && is_on(&engine, other.events[0]), "now both fit");
    }
    assert_eq!(read(&engine, sibling).value, before);
    assert!(read(&engine, group.events[0]).value >= alone + 6 * FAULTS);
    engine.enable(sibling).unwrap();
    let mut ran = 0;
    for _ in 0..6 {
        engine.rotate();
        faults();
        ran += u64::from(is_on(&engine, sibling));
        assert_eq!(is_on(&engine, sibling), is_on(&engine, group.events[0]), "whole or not at all");
    }
    assert!(ran > 0 && ran < 6);
    assert!(read(&engine, sibling).value >= before + ran * FAULTS);
}

#[test]
fn a_leader_of_another_pmu_is_no_obstacle() {
    let Some((engine, pmu)) = scarce(2) else { return };
    let attr = software(sw::PAGE_FAULTS);
    let events = vec![(KERNEL, attr), (pmu, attr), (pmu, attr)];
    let mixed = engine.open(&GroupSpec { events }, own()).unwrap();
    engine.enable_group(mixed.group).unwrap();
    let other = on(&engine, pmu, &[sw::PAGE_FAULTS], own());
    for _ in 0..20 {
        engine.rotate();
        faults();
        assert_ne!(is_on(&engine, mixed.events[0]), is_on(&engine, other.events[0]));
    }
    engine.disable_group(mixed.group).unwrap();
    let counts: Vec<_> = mixed.events.iter().map(|&event| read(&engine, event)).collect();
    assert!(counts[1].value >= 10 * FAULTS);
    for count in &counts {
        assert!(count.value.abs_diff(counts[1].value) < 20 * 16, "they start and stop one after the other: {counts:?}");
        assert!(count.running < count.enabled, "{count:?}");
    }
    // The first of the scarce ones alone: the other one goes on.
    engine.enable_group(mixed.group).unwrap();
    engine.close(other.group);
    engine.disable(mixed.events[1]).unwrap();
    let before = read(&engine, mixed.events[2]).value;
    faults();
    assert!(read(&engine, mixed.events[2]).value >= before + FAULTS);
}

#[test]
fn what_can_not_be_opened_is_refused_at_once() {
    let Some((engine, pmu)) = scarce(2) else { return };
    let nonsense = GroupSpec::single(pmu, software(10_000));
    assert_eq!(
        engine.open(&nonsense, own()),
        Err(OpenError::Bank { index: 0, error: BankError::NoSuchEvent }),
        "and not when its turn comes"
    );
    let events = vec![(pmu, software(sw::PAGE_FAULTS)), (pmu, software(10_000))];
    assert!(matches!(engine.open(&GroupSpec { events }, own()), Err(OpenError::Bank { index: 1, .. })));
    let many = GroupSpec { events: vec![(pmu, software(sw::PAGE_FAULTS)); 3] };
    assert_eq!(engine.open(&many, own()), Err(OpenError::NeverFits { pmu, events: 3 }));
    assert_eq!(engine.census(), pmux_engine::engine::Census::default());
}

#[test]
fn all_cpus_take_the_same_turn() {
    let Some((engine, pmu)) = scarce(1) else { return };
    let cpus: Vec<_> = engine.online().iter().take(2).collect();
    let target = |cpu: &CpuId| Target::cpu(*cpu);
    let allowed = engine.open(&GroupSpec::single(pmu, software(sw::PAGE_FAULTS)), Target::cpu(cpus[0]));
    match (cpus.len(), allowed) {
        (2, Ok(opened)) => engine.close(opened.group),
        _ => return println!("skipped: needs two CPUs and the right to count them"),
    }
    let open = |cpu| [0; 3].map(|_| on(&engine, pmu, &[sw::PAGE_FAULTS], target(cpu)).events[0]);
    let first = open(&cpus[0]);
    // The second CPU comes when the first has been counting for some turns.
    for _ in 0..4 {
        engine.rotate();
    }
    let second = open(&cpus[1]);
    let mut turns = BTreeSet::new();
    for _ in 0..9 {
        assert_eq!(engine.rotate().contexts, 2);
        let on = |events: &[EventId]| events.iter().map(|&event| is_on(&engine, event)).collect::<Vec<_>>();
        assert_eq!(on(&first), on(&second));
        turns.insert(on(&first));
    }
    assert_eq!(turns.len(), 3, "each has its turn");
}

#[test]
fn a_pinned_group_stays_on_and_the_others_share_what_is_left() {
    let Some((engine, pmu)) = scarce(2) else { return };
    let mut attr = software(sw::PAGE_FAULTS);
    attr.flags |= AttrFlags::PINNED;
    let pinned = engine.open(&GroupSpec::single(pmu, attr), own()).unwrap();
    engine.enable_group(pinned.group).unwrap();
    let others: Vec<_> = (0..2).map(|_| on(&engine, pmu, &[sw::PAGE_FAULTS], own()).events[0]).collect();
    for _ in 0..10 {
        engine.rotate();
        faults();
        assert!(is_on(&engine, pinned.events[0]));
        assert_ne!(is_on(&engine, others[0]), is_on(&engine, others[1]));
    }
    engine.disable_group(pinned.group).unwrap();
    let whole = read(&engine, pinned.events[0]);
    assert_eq!(whole.running, whole.enabled, "it never waited, and its times are the kernel's own");
    assert!(others.iter().all(|&event| read(&engine, event).value < whole.value));
}
