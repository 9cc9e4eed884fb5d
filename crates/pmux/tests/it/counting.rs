//! Counting commands and closures: exact numbers, groups, switching on and off, closing.
//!
//! Page faults of two runs of one program differ by a few, because addresses are random and files are mapped around a fault as far as they
//! are in memory: [`NOISE`]. Inside a program they are exact.

use crate::common::{
    self, NOISE, count, debug_registers, events, needs, own_process, role as roles, skip_unless, value, words,
};
use pmux::event::{Access, Event};
use pmux::{
    Attribution, Census, Command, Counter, Error, Estimate, EventList, Group, Inherit, Nanos, Options, Reading,
    ReasonKind, Session, Start, Target,
};

#[test]
fn a_closure_that_touches_pages_is_counted_exactly() {
    skip_unless!(
        own_process() && common::session().is_some() && needs("pages", "pages of 4 KiB", roles::pages_are_small())
    );
    let session = Session::new().unwrap();
    let faults = |first, pages| {
        let (_, snapshot) = session.count_closure(&["page-faults"], || roles::touch(first, pages)).unwrap();
        value(snapshot.total(0))
    };
    faults(0, 1);
    assert_eq!(faults(1, 0), 0);
    assert_eq!(faults(1, 1), 1);
    assert_eq!(faults(2, 500), 500);
    assert_eq!(faults(2, 500), 0, "a page is faulted in once");
    assert_eq!(faults(502, 1000), 1000);
    let counter = Counter::open(&session, Event::parse("page-faults").unwrap(), &Target::CurrentThread).unwrap();
    roles::touch(1502, 300);
    // Before the reset, so that the code that reads is mapped in.
    counter.read().unwrap();
    counter.reset().unwrap();
    roles::touch(1802, 10);
    assert_eq!(counter.read().unwrap().value, 10, "what was counted before a reset doesn't come back");
}

#[test]
fn a_child_that_touches_more_pages_has_so_many_more_faults() {
    let Some(session) = common::session() else { return };
    let faults = |pages| {
        let counted = count(&session, "page-faults", roles::words(&format!("touch:{pages}")), Attribution::Totals);
        assert!(counted.exited.status.success());
        counted.value(0)
    };
    let (none, few, many) = (faults(0), faults(500), faults(2000));
    assert!((few - none).abs_diff(500) <= NOISE, "{none}, {few}");
    assert!((many - none).abs_diff(2000) <= NOISE, "{none}, {many}");
}

#[test]
fn nothing_of_the_opener_is_counted() {
    let Some(session) = common::session() else { return };
    // Much memory makes the fork dear: were it counted, it would show.
    roles::touch(0, 1);
    let faults: Vec<_> =
        (0..10).map(|_| count(&session, "page-faults", words(&["true"]), Attribution::Totals).value(0)).collect();
    let (least, most) = (faults.iter().min().unwrap(), faults.iter().max().unwrap());
    assert!(*least > 0 && most - least <= NOISE, "{faults:?}");
}

#[test]
fn a_command_counts_from_its_exec_or_from_the_call() {
    let Some(session) = common::session() else { return };
    let faults = |start| {
        let options = Options { start, ..Options::default() };
        common::count_with(&session, "page-faults", roles::words("touch:1000"), options).value(0)
    };
    assert_eq!(faults(Start::Later), 0, "enable was not called");
    assert!(faults(Start::OnExec) >= 1000);
    assert!(faults(Start::AtOnce) >= 1000);
}

#[test]
fn a_command_that_is_not_released_runs_nothing() {
    let Some(session) = common::session() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let command = Command::hold(["touch".as_ref(), file.as_os_str()]).unwrap();
    let counters = session
        .open(&events(&session, "page-faults"), &Target::Command(&command), common::on_exec(Attribution::Totals))
        .unwrap();
    drop(command);
    assert_eq!(value(counters.read().total(0)), 0);
    assert!(!file.exists());
}

#[test]
fn children_count_unless_told_otherwise() {
    let Some(session) = common::session() else { return };
    let faults = |inherit| {
        let options = Options { inherit, start: Start::OnExec, ..Options::default() };
        common::count_with(&session, "page-faults", roles::words("tree:1,2,500"), options).value(0)
    };
    let (alone, all) = (faults(Inherit::None), faults(Inherit::Children));
    // The role is played by a thread of the harness: what is counted alone is the harness's first thread.
    assert!(alone < 500, "{alone}");
    assert!(all >= alone + 500 + 2 * 600, "{alone}, {all}");
}

#[test]
fn a_group_is_read_at_one_moment() {
    let Some(_registers) = debug_registers() else { return };
    let Some(session) = common::session() else { return };
    let tracepoint = Event::parse("syscalls:sys_enter_getppid");
    let seen = needs("tracefs", "tracefs", tracepoint.is_ok());
    let mut members = vec![Event::parse("page-faults:u").unwrap(), Event::parse("task-clock").unwrap()];
    members.extend(tracepoint.ok().filter(|_| seen));
    let watched = Box::new(std::sync::atomic::AtomicU64::new(0));
    let address = std::ptr::from_ref(&*watched) as u64;
    members.push(Event::breakpoint(address, 8, Access::WRITE));
    let group = EventList::from(Group::new(members.clone()));
    let options = Options { inherit: Inherit::None, start: Start::Later, ..Options::default() };
    let counters = session.open(&group, &Target::CurrentThread, options).unwrap();
    let last = members.len() - 1;
    // A breakpoint needs a debug register: all may be taken, and some machines have none.
    let broken = counters.refusal(last).is_some();
    counters.enable().unwrap();
    for round in 0..100 {
        watched.store(round, std::sync::atomic::Ordering::Relaxed);
    }
    counters.disable().unwrap();
    let snapshot = counters.read();
    let counts: Vec<_> = (0..members.len()).map(|event| snapshot.total(event)).collect();
    let (first, second) = (counts[0].count().unwrap(), counts[1].count().unwrap());
    assert_eq!((first.enabled, first.running), (second.enabled, second.running), "one time for the whole group");
    assert!(second.value > 0);
    if needs("breakpoints", "a free debug register", !broken) {
        assert_eq!(value(counts[last]), 100);
    }
    assert_eq!(counters.read().rows[0].readings, snapshot.rows[0].readings, "it stands still");
}

#[test]
fn a_long_group_is_read_whole() {
    let Some(session) = common::session() else { return };
    let members = (0..400).map(|_| Event::parse("page-faults:u").unwrap());
    let group = EventList::from(Group::new(members));
    let options = Options { inherit: Inherit::None, start: Start::AtOnce, ..Options::default() };
    let counters = session.open(&group, &Target::CurrentThread, options).unwrap();
    let values: Vec<_> = counters.read().totals().map(|(_, reading)| value(reading)).collect();
    assert_eq!(values.len(), 400);
    assert!(values.iter().all(|&value| value == values[0]), "{values:?}");
}

#[test]
fn a_member_that_is_refused_leaves_the_group_alone() {
    let Some(session) = common::session() else { return };
    // 126 is no software event, now or soon.
    let mut impossible = Event::parse("page-faults").unwrap();
    impossible.attr.config = 126;
    // The leader, too.
    for place in [1, 0] {
        let mut members = vec![Event::parse("task-clock").unwrap(), Event::parse("page-faults").unwrap()];
        members.insert(place, impossible.clone());
        let counters = session.open(&Group::new(members).into(), &Target::CurrentThread, Options::default()).unwrap();
        let snapshot = counters.read();
        assert_eq!(snapshot.total(place), Reading::Refused);
        let refusal = counters.refusal(place).unwrap();
        assert_eq!(refusal.kind, ReasonKind::NotSupported, "{refusal}");
        for other in [1 - place, 2] {
            assert!(counters.refusal(other).is_none());
            assert!(snapshot.total(other).count().unwrap().enabled > Nanos::ZERO, "{snapshot:?}");
        }
        assert!(value(snapshot.total(1 - place)) > 0, "the clock");
    }
}

#[test]
fn a_pinned_software_event_counts() {
    let Some(session) = common::session() else { return };
    let list = events(&session, "{page-faults:D,task-clock}");
    let counters = session.open(&list, &Target::CurrentThread, Options::default()).unwrap();
    let reading = counters.read().total(1);
    assert!(matches!(reading.estimate(), Some(Estimate::Exact(1..))), "{reading:?}");
}

#[test]
fn options_that_do_not_go_with_the_target_are_refused() {
    let session = Session::new().unwrap();
    let list = events(&session, "page-faults");
    for (target, options) in [
        (Target::CurrentThread, Options { start: Start::OnExec, ..Options::default() }),
        (Target::CurrentThread, Options { attribution: Attribution::EachProcess, ..Options::default() }),
        (Target::Threads(Vec::new()), Options::default()),
        (Target::Processes(Vec::new()), Options::default()),
    ] {
        let refused = session.open(&list, &target, options).err();
        assert!(matches!(refused, Some(Error::Options(_))), "{target:?}: {refused:?}");
    }
}

#[test]
fn reset_enable_disable() {
    let Some(session) = common::session() else { return };
    let options = Options { inherit: Inherit::None, start: Start::Later, ..Options::default() };
    let counters = session.open(&events(&session, "task-clock"), &Target::CurrentThread, options).unwrap();
    let read = || counters.read().total(0).count().unwrap();
    assert_eq!(read().value, 0);
    assert_eq!(counters.read().total(0).estimate(), Some(Estimate::NotCounted), "never 0");
    counters.enable().unwrap();
    let first = read();
    assert!(first.value > 0 && first.running > Nanos::ZERO);
    assert!(read().value > first.value);
    counters.disable().unwrap();
    let stopped = read();
    assert_eq!(read(), stopped);
    counters.reset().unwrap();
    assert_eq!(read().value, 0);
    assert_eq!(read().enabled, stopped.enabled, "times stay");
    counters.enable().unwrap();
    let again = read();
    assert!(again.value > 0 && again.enabled > stopped.enabled);
}

#[test]
fn a_cached_reading_has_an_age() {
    let Some(session) = common::session() else { return };
    let event = Event::parse("task-clock").unwrap();
    let counter = Counter::open(&session, event, &Target::CurrentThread).unwrap();
    let exact = counter.read().unwrap();
    let (cached, age) = counter.read_cached().unwrap();
    assert_eq!(cached, exact);
    let (same, older) = counter.read_cached().unwrap();
    assert_eq!(same, exact);
    assert!(older > age, "{older:?} after {age:?}");
    assert!(counter.read().unwrap().value > exact.value);
    let (fresh, younger) = counter.read_cached().unwrap();
    assert!(fresh.value > exact.value);
    assert!(younger > Nanos::ZERO);
}

#[test]
fn two_sessions_count_side_by_side() {
    let (Some(one), Some(two)) = (common::session(), common::session()) else { return };
    let event = || Event::parse("page-faults:u").unwrap();
    let first = Counter::open(&one, event(), &Target::CurrentThread).unwrap();
    let second = Counter::open(&two, event(), &Target::CurrentThread).unwrap();
    let before = second.read().unwrap().value;
    first.reset().unwrap();
    first.disable().unwrap();
    let stopped = first.read().unwrap().value;
    drop(one);
    let boxed: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 16]).collect();
    assert!(second.read().unwrap().value > before, "{}", boxed.len());
    assert_eq!(first.read().unwrap().value, stopped, "the counter keeps its session");
}

#[test]
fn closing_gives_everything_back() {
    skip_unless!(own_process() && common::session().is_some());
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = files();
    let session = Session::new().unwrap();
    assert_eq!(session.census(), Census::default(), "the probe is closed");
    let list = events(&session, "page-faults,{task-clock,context-switches},user_time");
    let mut most = 0;
    for attribution in [Attribution::Totals, Attribution::EachProcess] {
        let command = Command::hold(words(&["sh", "-c", "true | true"])).unwrap();
        let mut counters = session.open(&list, &Target::Command(&command), common::on_exec(attribution)).unwrap();
        most = most.max(files());
        command.release(&[&counters]).unwrap().wait(&session).unwrap();
        let _ = counters.tree().unwrap();
        assert!(session.census().events >= 3);
        drop(counters);
        assert_eq!(session.census(), Census::default());
    }
    assert!(most > before + 3);
    drop(session.open(&list, &Target::CurrentThread, Options::default()).unwrap());
    let all = Target::Cpus(pmux::CpuChoice::All);
    if let Ok(counters) = session.open(&list, &all, Options::default()) {
        let _ = counters.read();
    }
    // What fails leaves nothing either.
    let bad = Target::Cgroups { names: vec!["no/such/cgroup".to_owned()], cpus: pmux::CpuChoice::All };
    assert!(session.open(&list, &bad, Options::default()).is_err());
    let root = Target::Cgroups { names: vec!["/".to_owned()], cpus: pmux::CpuChoice::All };
    drop(session.open(&list, &root, Options::default()));
    let page_faults = Event::parse("page-faults:u").unwrap();
    drop(pmux::OverflowCounter::open(&session, &page_faults, 1, &Target::CurrentThread).unwrap());
    assert_eq!(session.census(), Census::default());
    drop(session);
    assert_eq!(files(), before);
}
