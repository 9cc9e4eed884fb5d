//! Counting without performance events.

use crate::common::{
    SyncDir, count_with, events, eventually, needs, own_process, role as roles, skip_unless, value, words,
};
use pmux::{Backend, BackendChoice, Command, CpuChoice, Error, Options, Reading, Session, Start, Target};
use pmux_linux::Errno;
use pmux_linux::spawn::{HeldChild, PerfEvents, SpawnOptions, Usage};
use std::ffi::OsString;

fn usage() -> Session {
    let session = Session::with_backend(BackendChoice::Usage).unwrap();
    assert!(matches!(session.backend(), Backend::Usage { .. }));
    session
}

fn faults(usage: &Usage) -> u64 {
    usage.minor_faults + usage.major_faults
}

fn switches(usage: &Usage) -> u64 {
    usage.voluntary_switches + usage.involuntary_switches
}

/// Page faults of a held child, once it stands still.
fn faults_at_the_gate(pid: i32) -> u64 {
    eventually("it stands still", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        (fields[0] == "S").then(|| [7, 9].map(|field| fields[field].parse::<u64>().unwrap()).iter().sum())
    })
}

#[test]
fn a_command_agrees_with_wait4() {
    let session = usage();
    let list = events(&session, "task-clock,page-faults,context-switches,user_time,system_time,duration_time,max_rss");
    let command = Command::hold(roles::words("tree:1,2,200")).unwrap();
    let options = Options { start: Start::OnExec, ..Options::default() };
    let counters = session.open(&list, &Target::Command(&command), options).unwrap();
    let mut running = command.release(&[&counters]).unwrap();
    let before = running.child().before_exec().unwrap();
    while running.try_wait(&session).unwrap().is_none() {
        let _ = counters.read();
    }
    let exited = running.wait(&session).unwrap();
    assert!(exited.status.success());
    let usage = exited.usage;
    let snapshot = counters.read();
    let of = |event| value(snapshot.total(event));
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap();
    assert_eq!(of(1), faults(&usage) - faults(&before));
    assert!(of(1) >= 200 + 2 * 300);
    assert_eq!(of(2), switches(&usage) - switches(&before));
    // Both tell microseconds, and split by ticks what was used.
    let slack = 1_000_000_000 / 100 + 2_000;
    let before_ns = nanos(before.user + before.system);
    assert!(of(0).abs_diff(nanos(usage.user + usage.system) - before_ns) <= slack, "{} {usage:?}", of(0));
    assert!(of(3).abs_diff(nanos(usage.user)) <= slack + before_ns);
    assert!(of(4).abs_diff(nanos(usage.system)) <= slack + before_ns);
    assert!(of(5) > 0);
    assert_eq!(of(6), usage.max_rss_kib * 1024);
    let again = counters.read();
    assert!((0..7).all(|event| value(again.total(event)) == of(event)), "the last word stands: {again:?}");
}

#[test]
fn the_way_to_the_gate_is_not_the_commands() {
    let session = usage();
    let list = events(&session, "page-faults,context-switches");
    for _ in 0..20 {
        let command = Command::hold(["true"]).unwrap();
        let options = Options { start: Start::OnExec, ..Options::default() };
        let counters = session.open(&list, &Target::Command(&command), options).unwrap();
        let at_the_gate = faults_at_the_gate(command.pid());
        let mut running = command.release(&[&counters]).unwrap();
        let before = running.child().before_exec().unwrap();
        assert!((at_the_gate..at_the_gate + 20).contains(&faults(&before)), "{at_the_gate} {before:?}");
        let usage = running.wait(&session).unwrap().usage;
        let snapshot = counters.read();
        assert_eq!(value(snapshot.total(0)), faults(&usage) - faults(&before));
        assert_eq!(value(snapshot.total(1)), switches(&usage) - switches(&before));
    }
}

#[test]
fn threads_and_processes() {
    skip_unless!(own_process());
    let session = usage();
    let list = events(&session, "task-clock,page-faults,context-switches,duration_time");
    let own = session.open(&list, &Target::CurrentThread, Options::default()).unwrap();
    let before = value(own.read().total(1));
    roles::touch(0, 300);
    assert!(value(own.read().total(1)) - before >= 300);
    own.disable().unwrap();
    let stopped = own.read();
    roles::touch(300, 100);
    assert_eq!(own.read().total(1), stopped.total(1));

    let sync_dir = SyncDir::new();
    let mut child = roles::command(&format!("later-threads:100,{}", sync_dir.text(""))).spawn().unwrap();
    let pid = sync_dir.arrived_pid();
    let counters = session.open(&list, &Target::Processes(vec![pid]), Options::default()).unwrap();
    let threads = session.open(&list, &Target::Threads(vec![pid]), Options::default()).unwrap();
    sync_dir.post("go");
    sync_dir.wait_for("done");
    let snapshot = counters.read();
    assert_eq!(snapshot.rows.len(), 1, "one row for the process");
    assert!(value(snapshot.total(1)) >= 200, "threads that came later are in it: {snapshot:?}");
    assert!(value(threads.read().total(1)) < 100, "a thread alone is told alone");
    sync_dir.post("leave");
    assert!(child.wait().unwrap().success());
    assert!(value(counters.read().total(1)) >= 200);
}

#[test]
fn cpus() {
    let session = usage();
    let list = events(&session, "cpu-clock,user_time,context-switches,duration_time");
    let counters = session.open(&list, &Target::Cpus(CpuChoice::All), Options::default()).unwrap();
    // The kernel tells the time of CPUs in ticks of 10 ms.
    eventually("the clock goes", || (value(counters.read().total(0)) > 0).then_some(()));
    let snapshot = counters.read();
    // What is one number for the machine has a row of its own.
    assert_eq!(snapshot.rows.len(), session.online().len() + 1);
    let machine: Vec<_> = snapshot.rows.iter().filter(|row| row.who.cpu.is_none()).collect();
    assert!(machine.len() == 1 && machine[0].readings[0] == Reading::Elsewhere, "{machine:?}");
    assert!(counters.adjustment(2).unwrap().contains("whole machine"));
    assert!(value(snapshot.total(2)) > 0 && value(snapshot.total(3)) > 0);
    let one = CpuChoice::Only(session.online().iter().take(1).collect());
    let counters = session.open(&list, &Target::Cpus(one), Options::default()).unwrap();
    assert_eq!(counters.read().total(2), Reading::Refused);
    let refusal = counters.refusal(2).unwrap();
    assert!(refusal.summary.contains("context-switches of a CPU"), "{refusal}");
}

#[test]
fn a_cgroup_is_one_row() {
    let session = usage();
    let list = events(&session, "task-clock,user_time,cycles");
    let target = Target::Cgroups { names: vec!["/".to_owned()], cpus: CpuChoice::All };
    match session.open(&list, &target, Options::default()) {
        Ok(counters) => {
            let snapshot = counters.read();
            assert!(counters.refusal(2).is_some());
            if counters.refusal(0).is_none() {
                assert_eq!(snapshot.rows.len(), 1);
                assert_eq!((snapshot.rows[0].who.cgroup, snapshot.rows[0].who.cpu), (Some(0), None));
                assert!(snapshot.total(0).count().is_some());
            }
        }
        Err(error @ Error::Cgroup(_)) => {
            needs("cgroup", &format!("cgroups ({error})"), false);
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn numbers_that_come_back_belong_to_the_new_task() {
    let session = usage();
    let list = events(&session, "page-faults");
    // Its end is told after its counters are closed, so no counter takes that in.
    let command = Command::hold(roles::words("touch:1000")).unwrap();
    drop(session.open(&list, &Target::Command(&command), Options::default()).unwrap());
    command.release(&[]).unwrap().wait(&session).unwrap();
    for _ in 0..20 {
        assert!(count_with(&session, "page-faults", words(&["true"]), Options::default()).value(0) < 1000);
    }
}

/// The role `refused:ERRNO`: what a program meets in a container.
pub(crate) fn role(name: &str, errno: &str) {
    assert_eq!(name, "refused");
    assert!(matches!(Session::with_backend(BackendChoice::Kernel), Err(Error::Refused(_))));
    let session = Session::new().unwrap();
    let Backend::Usage { why } = session.backend().clone() else { panic!("a filter refuses all events") };
    assert_eq!(why.errno, Some(errno.parse().unwrap()));
    assert!(!why.help.is_empty(), "{why}");
    let text = why.to_string();
    assert!(text.contains("seccomp") || text.contains("sandbox"), "{text}");
    let (_, snapshot) = session.count_closure(&["page-faults"], || roles::touch(0, 500)).unwrap();
    assert!(value(snapshot.total(0)) >= 500);
}

#[test]
fn a_sandbox_is_no_failure() {
    for errno in [Errno::EPERM, Errno::ENOSYS] {
        let mut options = SpawnOptions::default();
        options.perf_events = PerfEvents::Refused(errno);
        let words: Vec<OsString> = roles::words(&format!("fallback/refused:{}", errno.raw()));
        let exited = HeldChild::spawn(&words, options).unwrap().release().unwrap().wait().unwrap();
        assert!(exited.status.success(), "{errno}: {:?}", exited.status);
    }
}
