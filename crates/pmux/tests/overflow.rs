//! Callbacks at overflow: as many as there should be, and none that shouldn't.
#![allow(clippy::unwrap_used)]

mod common;

use common::{role as roles, words};
use pmux::{Command, CpuChoice, Error, Event, Overflow, OverflowCounter, Session, Target};
use std::time::Duration;

/// Long enough for any machine, and never waited for where all is well.
const PATIENCE: Duration = Duration::from_secs(60);

fn role(name: &str, _: &str) {
    match name {
        "exact" => exact(),
        "everywhere" => everywhere(),
        _ => panic!("there is no role {name}"),
    }
}

fn faults() -> Event {
    Event::parse("page-faults:u").unwrap()
}

fn all(counter: &mut OverflowCounter) -> Vec<Overflow> {
    let mut seen = Vec::new();
    let calls = counter.dispatch(Duration::ZERO, &mut |overflow| seen.push(overflow)).unwrap();
    assert_eq!(calls, seen.len() as u64);
    seen
}

/// In a process of its own, because nobody else may touch its pages.
fn exact() {
    let session = Session::new().unwrap();
    roles::touch(0, 50);
    let mut counter = OverflowCounter::open(&session, &faults(), 10, &Target::CurrentThread).unwrap();
    // Whatever happened before it was complete is not its business.
    assert!(counter.read().unwrap().value < 10);
    roles::touch(50, 500);
    let seen = all(&mut counter);
    let count = counter.read().unwrap().value;
    assert!(count >= 500 && (seen.len() as u64).abs_diff(count / 10) <= 1, "{} for {count}", seen.len());
    let pid = std::process::id().cast_signed();
    assert!(seen.iter().all(|overflow| overflow.pid == pid && overflow.instruction != 0), "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns && pair[0].tid == pair[1].tid));

    // Those that wait when it is disabled are dropped, and none come while it is.
    roles::touch(550, 100);
    counter.disable().unwrap();
    roles::touch(650, 100);
    assert_eq!(all(&mut counter), []);
    let stopped = counter.read().unwrap().value;
    roles::touch(750, 50);
    assert_eq!(counter.read().unwrap().value, stopped);
    counter.enable().unwrap();
    roles::touch(800, 100);
    assert!((9..=12).contains(&all(&mut counter).len()));
    assert_eq!(counter.lost(), 0, "what was dropped on purpose isn't lost");

    // More than the ring has room for: it is told at once how many.
    let mut every = OverflowCounter::open(&session, &faults(), 1, &Target::CurrentThread).unwrap();
    roles::touch(900, 1100);
    let count = every.read().unwrap().value;
    let calls = every.dispatch(Duration::ZERO, &mut |_| ()).unwrap();
    assert!(count >= 1100 && calls < 1100 && every.lost() > 0);
    assert!((calls + every.lost()).abs_diff(count) <= 4, "{calls} and {} of {count}", every.lost());
    roles::touch(2000, 20);
    let count = every.read().unwrap().value;
    let more = every.dispatch(Duration::ZERO, &mut |_| ()).unwrap();
    assert!(more >= 20, "there is room again");
    assert!((calls + more + every.lost()).abs_diff(count) <= 4, "{calls}, {more} and {} of {count}", every.lost());
}

/// In a process of its own, for the same reason.
fn everywhere() {
    let session = Session::new().unwrap();
    let event = Event::parse("page-faults").unwrap();
    let target = Target::Cpus(CpuChoice::All);
    let mut counter = OverflowCounter::open(&session, &event, 1, &target).unwrap();
    assert!(!counter.fds().is_empty());
    let pid = std::process::id().cast_signed();
    let mut own = 0;
    // Small bites: the rings of all CPUs take what the whole machine does.
    for bite in 0..20 {
        roles::touch(bite * 10, 10);
        counter.dispatch(Duration::ZERO, &mut |overflow| own += u64::from(overflow.pid == pid)).unwrap();
    }
    assert!(own + counter.lost() >= 200, "{own} of 200 pages on whichever CPU, {} lost", counter.lost());
    assert!(counter.read().unwrap().value >= 200);
    counter.disable().unwrap();
    roles::touch(200, 50);
    let mut late = 0;
    counter.dispatch(Duration::ZERO, &mut |_| late += 1).unwrap();
    assert_eq!(late, 0, "nothing is delivered for a set that does not count");
    drop(counter);
    assert_eq!(session.census(), pmux::Census::default());
}

#[test]
fn all_cpus_call_back() {
    if common::session().is_some_and(|session| common::may_count_cpus(&session)) {
        roles::run("everywhere");
    }
}

#[test]
fn callbacks_are_as_many_as_periods() {
    if common::session().is_some() {
        roles::run("exact");
    }
}

#[test]
fn another_thread_and_its_end() {
    let Some(session) = common::session() else { return };
    let (tell, told) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let tid =
            std::fs::read_link("/proc/thread-self").unwrap().file_name().unwrap().to_str().unwrap().parse::<i32>();
        tell.send(tid.unwrap()).unwrap();
        may_go.recv().unwrap();
        roles::touch(0, 200);
        may_go.recv().unwrap();
        roles::touch(200, 200);
    });
    let tid = told.recv().unwrap();
    let mut counter = OverflowCounter::open(&session, &faults(), 20, &Target::Threads(vec![tid])).unwrap();
    go.send(()).unwrap();
    let mut seen = Vec::new();
    // 200 faults at least, so 10 overflows.
    while seen.len() < 10 {
        let calls = counter.dispatch(PATIENCE, &mut |overflow| seen.push(overflow.tid)).unwrap();
        assert!(calls > 0, "it waits for the first one: {} of {:?}", seen.len(), counter.read());
    }
    go.send(()).unwrap();
    thread.join().unwrap();
    // The rest is there although the thread is not; then there is nothing to wait for.
    while counter.dispatch(PATIENCE, &mut |overflow| seen.push(overflow.tid)).unwrap() > 0 {}
    let count = counter.read().unwrap().value;
    assert!((seen.len() as u64).abs_diff(count / 20) <= 1, "{} for {count}", seen.len());
    assert!(count >= 400 && seen.iter().all(|&of| of == tid));
}

#[test]
fn a_command_calls_back() {
    let Some(session) = common::session() else { return };
    let command = Command::hold(words(&["true"])).unwrap();
    let pid = command.pid();
    let mut counter = OverflowCounter::open(&session, &faults(), 1, &Target::Command(&command)).unwrap();
    command.release(&[]).unwrap().wait(&session).unwrap();
    let seen = all(&mut counter);
    assert!(!seen.is_empty() && seen.iter().all(|overflow| overflow.pid == pid));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let Some(session) = common::session() else { return };
    let open = |period, target: &Target<'_>| OverflowCounter::open(&session, &faults(), period, target).err();
    assert!(matches!(open(0, &Target::CurrentThread), Some(Error::Options(_))));
    assert!(matches!(open(1, &Target::Threads(vec![1, 2])), Some(Error::Options(_))));
    assert!(matches!(open(1 << 63, &Target::CurrentThread), Some(Error::Refused(_))));
    let usage = Session::with_backend(pmux::BackendChoice::Usage).unwrap();
    let refused = OverflowCounter::open(&usage, &faults(), 1, &Target::CurrentThread).err();
    assert!(matches!(refused, Some(Error::Options(_))), "{refused:?}");
    assert_eq!(session.census().events, 0);
}
