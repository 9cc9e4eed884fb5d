//! What little rights and few files allow.

use crate::common::{
    self, as_unprivileged, assert_whole, events, needs, own, role as roles, skip_unless, tree_of, value, words,
};
use pmux::{
    Attribution, Backend, CpuChoice, Error, EventList, Options, Overflow, OverflowCounter, Reading, ReasonKind,
    Reporting, Session, Target,
};
use std::process::Command as Program;

pub(crate) fn role(name: &str, arguments: &str) {
    match name {
        "files" => files(arguments),
        "unprivileged" => unprivileged(),
        _ => panic!("there is no role {name}"),
    }
}

/// Runs a role with other limits of open files.
fn with_limit(limit: &str, role: &str) {
    let script = format!("{limit}; exec {}", roles::line(role));
    let status = Program::new("sh").args(["-c", &script]).status().unwrap();
    assert!(status.success(), "{script}: {status}");
}

fn files(arguments: &str) {
    let session = Session::new().unwrap();
    let list: EventList = (0..40).map(|_| pmux::Event::parse("page-faults:u").unwrap()).collect();
    let opened = session.open(&list, &Target::CurrentThread, Options::default());
    if arguments == "enough" {
        let counters = opened.unwrap();
        let snapshot = counters.read();
        assert!((0..40).all(|event| counters.refusal(event).is_none() && snapshot.total(event).count().is_some()));
        return;
    }
    let Err(Error::Refused(refusals)) = opened else { panic!("20 files are too few for 40 events") };
    let [refusal] = &refusals[..] else { panic!("said once: {refusals:?}") };
    assert_eq!(refusal.kind, ReasonKind::NoResource);
    let text = refusal.to_string();
    assert!(text.contains("40 more open files are needed") && text.contains("may have 20"), "{text}");
    assert!(text.contains("ulimit -n"), "it says what helps: {text}");
    assert_eq!(session.census().events, 0, "nothing is half open");
    // What was found out while there were no files left isn't kept: later sentences are complete.
    let mut impossible = pmux::Event::parse("page-faults").unwrap();
    impossible.attr.config = 126;
    let counters = session.open(&impossible.into(), &Target::CurrentThread, Options::default()).unwrap();
    assert!(counters.refusal(0).unwrap().summary.contains("126"), "{:?}", counters.refusal(0));
    // A smaller list still fits.
    assert!(session.count_closure(&["page-faults:u", "task-clock"], || ()).is_ok());
    // A tree needs files too: more than one for each event.
    let command = pmux::Command::hold(words(&["true"])).unwrap();
    let few: EventList = (0..12).map(|_| pmux::Event::parse("page-faults:u").unwrap()).collect();
    let opened = session.open(&few, &Target::Command(&command), common::on_exec(Attribution::EachProcess));
    let Err(Error::Refused(refusals)) = opened else { panic!("12 events and their rings need more than 20 files") };
    assert!(refusals[0].to_string().contains("more open files are needed"), "{}", refusals[0]);
    assert_eq!(session.census().events, 0);
}

#[test]
fn the_soft_limit_of_files_is_raised_and_the_hard_one_is_told_with_its_numbers() {
    skip_unless!(common::session().is_some());
    with_limit("ulimit -Sn 20", "limits/files:enough");
    with_limit("ulimit -n 20", "limits/files:few");
}

/// Own programs can be counted in user mode; what happens in the kernel only is taken from elsewhere or refused.
fn unprivileged() {
    let session = Session::new().unwrap();
    assert_eq!(session.backend(), &Backend::Kernel);
    let list = "page-faults,task-clock,context-switches,cpu-migrations";
    let (tree, counted) = tree_of(&session, list, roles::words("tree:1,3,100"));
    assert_eq!(tree.processes.len(), 4);
    if tree.reporting == Reporting::Known {
        assert_whole(&tree);
        assert!(tree.processes.iter().all(|process| own(process, 0) >= 100));
    }
    let counters = &counted.counters;
    let adjustment = counters.adjustment(0).unwrap();
    assert!(adjustment.contains("user mode only") && adjustment.contains("perf_event_paranoid"), "{adjustment}");
    assert_eq!(counters.events()[0].name, "page-faults:u");
    let snapshot = counters.read();
    assert!(value(snapshot.total(1)) > 0);
    // Never an empty 0: a switch happens in the kernel.
    let adjustment = counters.adjustment(2).unwrap();
    assert!(adjustment.contains("accounts for") && adjustment.contains("perf_event_paranoid"), "{adjustment}");
    assert!(value(snapshot.total(2)) > 0 && counters.events()[2].name == "context-switches");
    assert_eq!(snapshot.total(3), Reading::Refused);
    let refusal = counters.refusal(3).unwrap();
    assert!(counters.adjustment(3).is_none());
    assert_eq!(refusal.kind, ReasonKind::NotPermitted);
    assert!(refusal.summary.contains("perf_event_paranoid at most 1"), "{refusal}");

    // This user may not count the machine.
    let list = events(&session, "cpu-clock,page-faults");
    let opened = session.open(&list, &Target::Cpus(CpuChoice::All), Options::default());
    let Err(Error::Refused(refusals)) = opened else { panic!("this user may not count CPUs") };
    let text = refusals[0].to_string();
    assert!(text.contains("kernel.perf_event_paranoid at most 0; it is 2") && text.contains("whole CPU"), "{text}");
    assert_eq!(session.census().events, counters.session().census().events);
    let mut calls = 0;
    let fault = pmux::Event::parse("page-faults:u").unwrap();
    let mut counter = OverflowCounter::open(&session, &fault, 1, &Target::CurrentThread).unwrap();
    roles::touch(0, 20);
    counter.dispatch(std::time::Duration::ZERO, &mut |_: Overflow| calls += 1).unwrap();
    assert!(calls >= 20);
}

#[test]
fn an_ordinary_user_counts_own_programs() {
    skip_unless!(
        common::session().is_some() && needs("paranoid", "kernel.perf_event_paranoid=2", pmux_testkit::paranoid() == 2)
    );
    if let Some((_folder, mut program)) = as_unprivileged("limits/unprivileged") {
        assert!(program.status().unwrap().success());
    }
}
