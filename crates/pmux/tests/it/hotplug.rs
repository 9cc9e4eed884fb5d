//! CPUs that go offline and come back while they are counted.
//!
//! It takes CPU 1 away from the whole machine for a moment, so it has to be asked for: `PMUX_TEST_HOTPLUG=1`, or `hotplug` in
//! `PMUX_REQUIRE`. Programs that do so wait for each other, by a lock file.

use crate::common::hotplug::CpuSwitch;
use crate::common::{self, events, eventually, value, words};
use pmux::{Attribution, CpuChoice, Nanos, Options, Snapshot, Target};
use std::time::Duration;

const CPU: u32 = 1;

fn clock(snapshot: &Snapshot) -> u64 {
    let row = snapshot.rows.iter().find(|row| row.who.cpu == Some(CPU)).unwrap();
    value(row.readings[0])
}

/// The coverage of CPU 1, which must fit the time that all was counted.
fn coverage(snapshot: &Snapshot) -> pmux::CpuCoverage {
    let coverage = &snapshot.coverage;
    assert!(coverage.refused.is_empty(), "{:?}", coverage.refused);
    for cpu in &coverage.cpus {
        let both = cpu.covered.0 + cpu.missed.0;
        assert!(both.abs_diff(coverage.span.0) < 10_000_000, "{cpu:?} in {:?}", coverage.span);
    }
    *coverage.cpus.iter().find(|cpu| cpu.cpu.0 == CPU).unwrap()
}

fn goes_on(counters: &pmux::Counters, from: u64) -> Snapshot {
    eventually("CPU 1 is counted", || Some(counters.read()).filter(|snapshot| clock(snapshot) > from))
}

#[test]
fn a_cpu_that_comes_back_is_counted_again() {
    let Some(switch) = CpuSwitch::take() else { return };
    let Some(session) = common::session() else { return };
    let list = events(&session, "cpu-clock,{context-switches,page-faults}");
    let counters = session.open(&list, &Target::Cpus(CpuChoice::All), Options::default()).unwrap();
    let first = clock(&counters.read());
    switch.turn("0");
    let off = counters.read();
    assert!(clock(&off) >= first, "what it had counted stays");
    let gone = coverage(&off);
    assert!(!gone.present && gone.gaps == 1, "{gone:?}");
    std::thread::sleep(Duration::from_millis(30));
    let still = counters.read();
    assert_eq!(clock(&still), clock(&off), "it stands still");
    assert!(coverage(&still).missed >= Nanos(30_000_000), "{:?}", coverage(&still));
    assert!(!session.online().contains(CPU));
    switch.turn("1");
    let back = goes_on(&counters, clock(&still));
    let whole = coverage(&back);
    assert!(whole.present && whole.gaps == 1 && whole.missed >= Nanos(30_000_000), "{whole:?}");
    let zero = back.coverage.cpus.iter().find(|cpu| cpu.cpu.0 == 0).unwrap();
    assert!(zero.gaps == 0 && zero.missed == Nanos::ZERO, "the others were counted all the time: {zero:?}");
    goes_on(&counters, clock(&back));
    // And once more.
    switch.turn("0");
    switch.turn("1");
    let twice = goes_on(&counters, clock(&counters.read()));
    assert_eq!(coverage(&twice).gaps, 2);
}

#[test]
fn news_that_are_read_late_do_not_hide_the_gap() {
    let Some(switch) = CpuSwitch::take() else { return };
    let Some(session) = common::session() else { return };
    let list = events(&session, "cpu-clock");
    let counters = session.open(&list, &Target::Cpus(CpuChoice::All), Options::default()).unwrap();
    switch.turn("0");
    std::thread::sleep(Duration::from_millis(200));
    switch.turn("1");
    // The counters were not read until now.
    let late = counters.read();
    let cpu = coverage(&late);
    assert!(cpu.gaps == 1 && cpu.missed >= Nanos(200_000_000), "{cpu:?}");
    goes_on(&counters, clock(&late));
    assert!(coverage(&counters.read()).present);
}

#[test]
fn an_offline_cpu_is_awaited_or_refused() {
    let Some(switch) = CpuSwitch::take() else { return };
    let Some(session) = common::session() else { return };
    let list = events(&session, "cpu-clock");
    // The session knows CPU 1 as online: it has to notice.
    switch.turn("0");
    let only = Target::Cpus(CpuChoice::Only([CPU].into_iter().collect()));
    let refused = session.open(&list, &only, Options::default()).err().unwrap();
    assert!(matches!(refused, pmux::Error::NoSuchCpu { cpu: CPU, .. }), "{refused}");
    let counters = session.open(&list, &Target::Cpus(CpuChoice::All), Options::default()).unwrap();
    assert!(counters.read().rows.iter().all(|row| row.who.cpu != Some(CPU)));
    switch.turn("1");
    counters.session().follow_hotplug();
    let back = goes_on(&counters, 0);
    let cpu = coverage(&back);
    assert!(cpu.present && cpu.gaps == 0 && cpu.missed > Nanos::ZERO, "it came late: {cpu:?}");
}

#[test]
fn a_command_is_counted_wherever_it_runs() {
    let Some(switch) = CpuSwitch::take() else { return };
    let Some(session) = common::reporting_session() else { return };
    let count = || {
        let command = words(&["sh", "-c", "true | cat; true | cat"]);
        common::count(&session, "page-faults", command, Attribution::EachProcess)
    };
    let mut counted = count();
    let usual = counted.value(0);
    switch.turn("0");
    let mut alone = count();
    let tree = alone.tree();
    common::check(&tree, &alone.counters);
    common::assert_whole(&tree);
    assert_eq!(tree.processes.len(), counted.tree().processes.len());
    assert!(alone.value(0).abs_diff(usual) <= 100, "{usual}, then {}", alone.value(0));
}
