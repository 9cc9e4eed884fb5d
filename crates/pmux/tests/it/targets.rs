//! Whose events: threads, processes, CPUs, cgroups.

use crate::common::cgroup::Cgroup;
use crate::common::{
    self, Killed, SyncDir, debug_registers, events, needs, own_process, role as roles, skip_unless, value,
};
use pmux::event::{Access, Event};
use pmux::{Counter, CpuChoice, CpuList, Error, Inherit, Nanos, Options, Reading, ReasonKind, Session, Target};
use std::process::Command as Program;

/// A program of ours that waits at a door, and is gone after the test.
struct Waiting {
    child: Killed,
    sync_dir: SyncDir,
}

impl Waiting {
    fn start(role: &str) -> Self {
        let sync_dir = SyncDir::new();
        let child = Killed(roles::command(&format!("{role},{}", sync_dir.text(""))).spawn().unwrap());
        assert_eq!(sync_dir.arrived_pid(), child.0.id().cast_signed());
        Self { child, sync_dir }
    }

    fn pid(&self) -> i32 {
        self.child.0.id().cast_signed()
    }
}

#[test]
fn a_process_is_counted_with_threads_that_come_later() {
    let Some(session) = common::session() else { return };
    for (inherit, least, most) in [(Inherit::Children, 200, 400), (Inherit::None, 0, 100)] {
        let program = Waiting::start("later-threads:100");
        let options = Options { inherit, ..Options::default() };
        let target = Target::Processes(vec![program.pid()]);
        assert!(target.is_alive());
        let counters = session.open(&events(&session, "page-faults"), &target, options).unwrap();
        let rows = counters.read().rows;
        assert_eq!(rows.len(), roles::THREADS + 1, "a row for each thread that there was: {rows:?}");
        assert_eq!(rows[0].who.thread, Some(program.pid()), "the first thread first");
        program.sync_dir.post("go");
        program.sync_dir.wait_for("done");
        let faults = value(counters.read().total(0));
        assert!((least..most).contains(&faults), "{faults} with {inherit:?}");
        program.sync_dir.post("leave");
    }
}

#[test]
fn one_thread_of_several() {
    skip_unless!(own_process());
    let Some(session) = common::session() else { return };
    let (sender, receiver) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        sender.send(pmux_linux::current_tid()).unwrap();
        may_go.recv().unwrap();
        roles::touch(0, 300);
    });
    let tid = receiver.recv().unwrap();
    let event = || Event::parse("page-faults:u").unwrap();
    let own = Counter::open(&session, event(), &Target::CurrentThread).unwrap();
    let others = Counter::open(&session, event(), &Target::Threads(vec![tid])).unwrap();
    let before = own.read().unwrap().value;
    go.send(()).unwrap();
    other.join().unwrap();
    assert!(own.read().unwrap().value - before < 300);
    let last = others.read().unwrap();
    assert!(last.value >= 300, "a thread that has exited keeps its count: {last:?}");
    assert_eq!(others.read().unwrap(), last);
}

#[test]
fn a_target_that_is_not_there_is_an_error() {
    let session = Session::new().unwrap();
    let list = events(&session, "page-faults");
    let dead = {
        let mut child = Program::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id().cast_signed()
    };
    let error = |target: &Target<'_>| session.open(&list, target, Options::default()).err().unwrap();
    let of_process = error(&Target::Processes(vec![dead]));
    assert!(
        matches!(of_process, Error::Process(_)) && of_process.to_string().contains(&dead.to_string()),
        "{of_process}"
    );
    assert!(!Target::Processes(vec![dead]).is_alive());
    let of_thread = error(&Target::Threads(vec![dead]));
    assert!(matches!(&of_thread, Error::Refused(all) if all[0].kind == ReasonKind::Gone), "{of_thread:?}");
}

#[test]
fn a_thread_that_is_gone_does_not_hide_the_others() {
    let Some(session) = common::session() else { return };
    let program = Waiting::start("behind:50");
    let mut gone = Program::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let tids = vec![gone.id().cast_signed(), program.pid()];
    let counters = session.open(&events(&session, "task-clock"), &Target::Threads(tids), Options::default()).unwrap();
    let rows = counters.read().rows;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].who.thread, Some(program.pid()));
}

#[test]
fn a_process_that_exits_meanwhile_keeps_its_counts() {
    let Some(session) = common::session() else { return };
    let mut program = Waiting::start("behind:400");
    let target = Target::Processes(vec![program.pid()]);
    let counters = session.open(&events(&session, "page-faults"), &target, Options::default()).unwrap();
    program.sync_dir.post("go");
    program.sync_dir.post("leave");
    assert!(program.child.0.wait().unwrap().success());
    assert!(!target.is_alive());
    let faults = value(counters.read().total(0));
    assert!(faults >= 400, "{faults}");
    assert_eq!(value(counters.read().total(0)), faults);
}

#[test]
fn an_event_is_counted_on_all_rows_or_on_none() {
    let Some(_registers) = debug_registers() else { return };
    let Some(session) = common::session() else { return };
    let (one, two) = (Waiting::start("behind:10"), Waiting::start("behind:10"));
    // All debug registers of the second program are taken, so the breakpoint opens on the first one only.
    let breakpoint = || Event::breakpoint(0x1000, 1, Access::WRITE);
    let taken: Vec<_> =
        std::iter::from_fn(|| Counter::open(&session, breakpoint(), &Target::Threads(vec![two.pid()])).ok())
            .take(64)
            .collect();
    skip_unless!(needs("breakpoints", "debug registers", !taken.is_empty() && taken.len() < 64));
    let group = pmux::Group::new([Event::parse("page-faults").unwrap(), breakpoint()]);
    let target = Target::Threads(vec![one.pid(), two.pid()]);
    let counters = session.open(&group.into(), &target, Options::default()).unwrap();
    let refusal = counters.refusal(1).unwrap();
    assert_eq!((refusal.errno, refusal.kind), (Some(28), ReasonKind::NoResource), "{refusal}");
    assert!(refusal.summary.contains("debug registers"), "{refusal}");
    for row in counters.read().rows {
        assert!(row.readings[0].count().is_some(), "{row:?}");
        assert_eq!(row.readings[1], Reading::Refused);
    }
}

#[test]
fn every_cpu_has_a_row() {
    let Some(session) = common::cpu_session() else { return };
    let list = events(&session, "cpu-clock,{context-switches,page-faults},duration_time");
    let counters = session.open(&list, &Target::Cpus(CpuChoice::All), Options::default()).unwrap();
    let snapshot = counters.read();
    let cpus: Vec<_> = snapshot.rows.iter().map(|row| row.who.cpu.unwrap()).collect();
    assert_eq!(cpus, session.online().iter().collect::<Vec<_>>());
    for row in &snapshot.rows {
        let count = row.readings[0].count().unwrap();
        assert!(count.value > 0 && count.enabled > Nanos::ZERO, "{row:?}");
    }
    assert_eq!(snapshot.coverage.cpus.len(), cpus.len());
    assert!(snapshot.coverage.cpus.iter().all(|cpu| cpu.present && cpu.gaps == 0 && cpu.missed == Nanos::ZERO));
    // Time passes once, however many CPUs there are.
    let passed = value(snapshot.total(3));
    assert!(passed > 0 && snapshot.rows[1..].iter().all(|row| row.readings[3] == Reading::Elsewhere), "{snapshot:?}");
    let later = counters.read();
    assert!(value(later.since(&snapshot).total(0)) > 0);
}

#[test]
fn what_cpus_counted_is_remembered() {
    let Some(session) = common::cpu_session() else { return };
    let list = events(&session, "cpu-clock");
    let counters = session.open(&list, &Target::Cpus(CpuChoice::All), Options::default()).unwrap();
    let exact = counters.read();
    let (cached, age) = counters.read_cached();
    assert_eq!(cached.rows, exact.rows);
    assert!(counters.read_cached().1 > age);
    counters.disable().unwrap();
    let stopped = counters.read();
    assert_eq!(counters.read().rows, stopped.rows);
    counters.reset().unwrap();
    assert_eq!(value(counters.read().total(0)), 0);
    counters.enable().unwrap();
    assert!(value(counters.read().total(0)) > 0);
}

#[test]
fn some_cpus_only() {
    let Some(session) = common::cpu_session() else { return };
    let last = session.online().last().unwrap();
    let list = events(&session, "cpu-clock");
    let only: CpuList = [last].into_iter().collect();
    let counters = session.open(&list, &Target::Cpus(CpuChoice::Only(only)), Options::default()).unwrap();
    let rows = counters.read().rows;
    assert_eq!(rows.iter().map(|row| row.who.cpu).collect::<Vec<_>>(), [Some(last)]);
    assert!(value(rows[0].readings[0]) > 0);
}

#[test]
fn cgroups_are_counted_apart() {
    let Some(session) = common::session() else { return };
    let (Some(busy), Some(idle)) = (Cgroup::of_events("busy"), Cgroup::of_events("idle")) else { return };
    let program = Waiting::start("behind:600");
    busy.take_in(program.pid());
    let names = vec![busy.name().to_owned(), idle.path.to_str().unwrap().to_owned()];
    let list = events(&session, "page-faults,user_time");
    let target = Target::Cgroups { names, cpus: CpuChoice::All };
    let counters = session.open(&list, &target, Options::default()).unwrap();
    program.sync_dir.post("go");
    program.sync_dir.wait_for("done");
    let snapshot = counters.read();
    let faults = |cgroup| {
        let rows = snapshot.rows.iter().filter(|row| row.who.cgroup == Some(cgroup) && row.who.cpu.is_some());
        rows.map(|row| value(row.readings[0])).sum::<u64>()
    };
    assert!(faults(0) >= 600, "{snapshot:?}");
    assert_eq!(faults(1), 0);
    let user = snapshot.rows.iter().find(|row| row.who.cgroup == Some(0) && row.who.cpu.is_none());
    assert!(user.unwrap().readings[1].count().is_some(), "what its files tell is one number: {snapshot:?}");
    program.sync_dir.post("leave");
}
