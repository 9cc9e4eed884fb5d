//! Callbacks at overflow: as many as there should be, and none that shouldn't.

use crate::common::{self, PATIENCE, SetAtEnd, own_process, role as roles, skip_unless, words};
use pmux::{Command, CpuChoice, Error, Event, Overflow, OverflowCounter, Session, Target};
use std::time::Duration;

fn faults() -> Event {
    Event::parse("page-faults:u").unwrap()
}

fn all(counter: &mut OverflowCounter) -> Vec<Overflow> {
    let mut seen = Vec::new();
    let calls = counter.dispatch(Duration::ZERO, &mut |overflow| seen.push(overflow)).unwrap();
    assert_eq!(calls, seen.len() as u64);
    seen
}

#[test]
fn all_cpus_call_back() {
    skip_unless!(own_process() && common::session().is_some_and(|session| common::may_count_cpus(&session)));
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
fn callbacks_are_as_many_as_periods() {
    skip_unless!(own_process() && common::session().is_some());
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

#[test]
fn another_thread_and_its_end() {
    let Some(session) = common::session() else { return };
    let (sender, receiver) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        sender.send(pmux_linux::current_tid()).unwrap();
        may_go.recv().unwrap();
        roles::touch(0, 200);
        may_go.recv().unwrap();
        roles::touch(200, 200);
    });
    let tid = receiver.recv().unwrap();
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
fn all_threads_of_a_process_call_back() {
    skip_unless!(own_process() && common::session().is_some());
    let session = Session::new().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let start = |from| {
        let (sender, (go, may_go)) = (sender.clone(), std::sync::mpsc::channel::<()>());
        let thread = std::thread::spawn(move || {
            sender.send(pmux_linux::current_tid()).unwrap();
            may_go.recv().unwrap();
            roles::touch(from, 200);
        });
        (thread, go)
    };
    let both = [start(0), start(200)];
    let tids: Vec<i32> = receiver.iter().take(2).collect();
    let pid = std::process::id().cast_signed();
    let mut counter = OverflowCounter::open(&session, &faults(), 10, &Target::Processes(vec![pid])).unwrap();
    for (done, (thread, go)) in (1..).zip(both) {
        go.send(()).unwrap();
        thread.join().unwrap();
        let mut seen = Vec::new();
        // 20 overflows at least, though the first thread is gone meanwhile, and those of the main thread.
        while seen.iter().filter(|tid| tids.contains(tid)).count() < 20 {
            let calls = counter.dispatch(PATIENCE, &mut |overflow| seen.push(overflow.tid)).unwrap();
            assert!(calls > 0, "thread {done}: {} of {:?}", seen.len(), counter.read());
        }
    }
    assert!(counter.read().unwrap().value >= 400);
    assert_eq!(counter.lost(), 0);
    // What is gone keeps no call from waiting for the others.
    counter.disable().unwrap();
    counter.dispatch(Duration::ZERO, &mut |_| {}).unwrap();
    let began = std::time::Instant::now();
    assert_eq!(counter.dispatch(Duration::from_millis(100), &mut |_| {}).unwrap(), 0);
    assert!(began.elapsed() >= Duration::from_millis(100));
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

/// A record that is being written is not lost.
#[test]
fn what_is_lost_is_never_taken_back() {
    let Some(session) = common::session() else { return };
    let (sender, receiver) = std::sync::mpsc::channel();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, _end) = (&stop, SetAtEnd(&stop));
        scope.spawn(move || {
            sender.send(pmux_linux::current_tid()).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                common::storm();
            }
        });
        let target = Target::Threads(vec![receiver.recv().unwrap()]);
        let mut counter = OverflowCounter::open(&session, &faults(), 1, &target).unwrap();
        let (mut calls, mut lost) = (0, 0);
        let mut rounds = 0;
        while rounds < 2_000 || calls == 0 {
            rounds += 1;
            calls += counter.dispatch(Duration::ZERO, &mut |_| ()).unwrap();
            let now = counter.lost();
            assert!(now >= lost, "{now} after {lost}");
            lost = now;
        }
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    let Some(session) = common::session() else { return };
    let open = |period, target: &Target<'_>| OverflowCounter::open(&session, &faults(), period, target).err();
    assert!(matches!(open(0, &Target::CurrentThread), Some(Error::Options(_))));
    assert!(matches!(open(1, &Target::Threads(Vec::new())), Some(Error::Options(_))));
    assert!(matches!(open(1, &Target::Processes(vec![i32::MAX])), Some(Error::Process(_))));
    assert!(matches!(open(1 << 63, &Target::CurrentThread), Some(Error::Refused(_))));
    let usage = Session::with_backend(pmux::BackendChoice::Usage).unwrap();
    let refused = OverflowCounter::open(&usage, &faults(), 1, &Target::CurrentThread).err();
    assert!(matches!(refused, Some(Error::Options(_))), "{refused:?}");
    assert_eq!(session.census().events, 0);
}
