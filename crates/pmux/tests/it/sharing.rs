//! Sharing on this kernel: one event for all that ask the same, and a count of its own for each.
//!
//! Numbers are page faults of pages that were not touched before: exact.

use crate::common::{self, Killed, events, needs, open_events, own_process, role as roles, session, skip_unless};
use pmux::exact::{ExactGroup, ExactTarget, GroupMode};
use pmux::{CpuChoice, Event, Inherit, Options, Session, Sharing, Target};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

pub(crate) fn role(name: &str, arguments: &str) {
    assert_eq!((name, arguments), ("children", ""));
    // A line in for each child; a line out when it has been.
    for line in std::io::stdin().lines() {
        line.unwrap();
        assert!(Command::new("true").status().unwrap().success());
        println!("done");
    }
}

fn faults(session: &Session, target: ExactTarget, mode: GroupMode) -> ExactGroup {
    session.open_exactly(&[Event::parse("page-faults:u").unwrap()], target, mode).unwrap()
}

fn own_thread() -> ExactTarget {
    // The test's own thread, not the harness's first one.
    ExactTarget::Task(pmux_linux::current_tid())
}

#[test]
fn one_event_serves_a_hundred_and_each_counts_its_own() {
    skip_unless!(own_process());
    let Some(session) = session().filter(|_| needs("small-pages", "pages of 4 KiB", roles::pages_are_small())) else {
        return;
    };
    let before = open_events();
    let mut all: Vec<_> = (0..100).map(|_| faults(&session, own_thread(), GroupMode::default())).collect();
    assert_eq!(open_events() - before, 1);
    // Nothing of ours touches a page in between.
    let mut counts = vec![0; all.len()];
    all.iter().for_each(|group| group.enable_all().unwrap());
    roles::touch(0, 10);
    for (count, group) in counts.iter_mut().zip(&all) {
        *count = group.read(0).unwrap().value;
    }
    assert!(counts.iter().all(|&count| (10..20).contains(&count)), "{counts:?}");
    // What one does does not show in the others.
    let last = all.pop().unwrap();
    all.truncate(3);
    all[0].disable_all().unwrap();
    all[1].reset(0).unwrap();
    roles::touch(10, 10);
    let now: Vec<_> = all.iter().map(|group| group.read(0).unwrap().value).collect();
    assert_eq!(open_events() - before, 1);
    assert!(now[0] < 30 && (10..30).contains(&now[1]) && now[2] >= counts[2] + 10, "{now:?} after {counts:?}");
    drop(all);
    roles::touch(20, 10);
    let count = last.read(0).unwrap();
    assert!(count.value >= 30 && count.running == count.enabled, "{count:?}: it has never stopped");
    drop(last);
    assert_eq!((open_events(), session.census().events, session.census().masters), (before, 0, 0));
}

#[test]
fn a_session_that_does_not_share_opens_as_many_as_it_is_asked_for() {
    skip_unless!(own_process() && session().is_some());
    let session = Session::with_sharing(Sharing::Off).unwrap();
    let before = open_events();
    let all: Vec<_> = (0..5).map(|_| faults(&session, own_thread(), GroupMode::default())).collect();
    assert_eq!(open_events() - before, all.len());
}

#[test]
fn lists_over_cpus_and_cgroups_share_too() {
    skip_unless!(own_process());
    let Some(session) = common::cpu_session() else { return };
    let list = events(&session, "page-faults,{cpu-clock,context-switches},context-switches,page-faults");
    let before = open_events();
    let cpus = session.online().iter().count();
    let open = || session.open(&list, &Target::Cpus(CpuChoice::All), Options::default()).unwrap();
    let all = [open(), open(), open()];
    assert_eq!(open_events() - before, 3 * cpus, "faults, and the group that the single event joins");
    all.iter().for_each(|counters| counters.enable().unwrap());
    // A task that sleeps is switched away from.
    (0..3).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(1)));
    for counters in &all {
        let snapshot = counters.read();
        let of = |event: usize| common::value(snapshot.total(event));
        assert!(of(1) > 0, "the clock runs");
        // They began and are read one after the other, so that neither has to have more.
        assert!(of(2) >= 3 && of(3) >= 3, "{} and {} switches", of(2), of(3));
    }
    drop(all);
    assert_eq!(open_events(), before);
}

#[test]
fn a_task_that_is_gone_is_refused_though_its_event_is_still_open() {
    skip_unless!(own_process());
    let Some(session) = session() else { return };
    let child = Killed(Command::new("sleep").arg("1000").spawn().unwrap());
    let target = ExactTarget::Task(child.0.id().cast_signed());
    let held = faults(&session, target, GroupMode::default());
    let _second = faults(&session, target, GroupMode::default());
    assert_eq!(session.census().masters, 1);
    drop(child);
    let late = session.open_exactly(&[Event::parse("page-faults:u").unwrap()], target, GroupMode::default());
    let Err(error) = late else { panic!("there is no such task") };
    assert!(error.to_string().contains("no such") || error.to_string().contains("exited"), "{error}");
    held.read(0).unwrap();
}

#[test]
fn an_inheriting_event_is_joined_as_long_as_no_child_was_forked() {
    skip_unless!(own_process());
    let Some(session) = session() else { return };
    let inherit = GroupMode { inherit: Inherit::Children, ..GroupMode::default() };
    let mut role = roles::command("sharing/children");
    let mut child = role.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut orders, mut answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    let mut fork = |times: usize| {
        for _ in 0..times {
            std::io::Write::write_all(&mut orders, b"\n").unwrap();
            // The harness begins the line.
            while !answers.next().unwrap().unwrap().ends_with("done") {}
        }
    };
    // It is there, with its threads.
    fork(1);
    let tid = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let tid = tid.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<i32>().unwrap()).max().unwrap();
    let target = ExactTarget::Task(tid);
    let (one, other) = (faults(&session, target, inherit), faults(&session, target, inherit));
    assert_eq!(session.census().masters, 2, "it is not known whether it has forked");
    drop((one, other));
    let noted = needs("tracefs", "tracefs", session.note_forks().is_ok());
    if noted {
        share_until_a_fork(&session, || faults(&session, target, inherit), &mut fork);
    }
    drop(orders);
    assert!(child.wait().unwrap().success());
}

fn share_until_a_fork(session: &Session, open: impl Fn() -> ExactGroup, fork: &mut impl FnMut(usize)) {
    let (one, other) = (open(), open());
    assert_eq!(session.census().masters, 1);
    one.enable_all().unwrap();
    other.enable_all().unwrap();
    fork(3);
    let _late = open();
    assert_eq!(session.census().masters, 2, "it has forked");
    let counts = [&one, &other].map(|group| group.read(0).unwrap().value);
    assert!(counts[0] > 0 && counts[0] == counts[1], "{counts:?}");
}
