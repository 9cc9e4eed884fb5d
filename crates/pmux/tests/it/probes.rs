//! Places in a program's code: counted exactly, and as a trigger.

use crate::common::{self, first_fired, may_count_cpus, needs};
use pmux::event::{Event, EventList, ProbeAt};
use pmux::trigger::{Reason, Rule, TriggerOptions, Triggers};
use pmux::{Options, Session, Target};
use std::hint::black_box;

/// What is probed here. No other function in this program has this name.
#[inline(never)]
fn a_place_to_be_probed(value: u64) -> u64 {
    black_box(value) * 3
}

fn go_there(times: u64) {
    (0..times).for_each(|time| {
        black_box(a_place_to_be_probed(time));
    });
}

/// This program, as an event names it.
fn this(place: &str) -> String {
    format!("uprobe:'{}':{place}", std::env::current_exe().unwrap().display())
}

fn session() -> Option<Session> {
    let session = common::session()?;
    let there = session.catalog().pmu("uprobe").is_ok() && may_count_cpus(&session);
    needs("root", "uprobes", there).then_some(session)
}

#[test]
fn hits_are_counted_exactly() {
    let Some(session) = session() else { return };
    let name = this("a_place_to_be_probed");
    let names = [&name, &name.replacen("uprobe", "uretprobe", 1), &name];
    let list = EventList::parse(&names, session.catalog()).unwrap();
    let counters = session.open(&list, &Target::CurrentThread, Options::default()).unwrap();
    counters.enable().unwrap();
    go_there(100);
    counters.disable().unwrap();
    go_there(10);
    let snapshot = counters.read();
    let values: Vec<_> = (0..3).map(|column| common::value(snapshot.total(column))).collect();
    // A function's return is that of the call, wherever it was counted from.
    assert_eq!(values, [100, 100, 100]);
    drop(counters);
    assert_eq!(session.census(), Default::default());
}

#[test]
fn a_hit_is_a_trigger() {
    let Some(session) = session() else { return };
    let pid = std::process::id().cast_signed();
    let name = this("a_place_to_be_probed");
    for text in [format!("{name} if common_pid == {}", pmux_linux::current_tid()), format!("{name} every 3")] {
        let rule = Rule::parse(&text, None).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(rule.trigger.to_string(), text, "it is printed as it was written");
        let mut triggers = Triggers::open(&session, &[rule], TriggerOptions::of(Target::CurrentThread)).unwrap();
        go_there(3);
        let fired = first_fired(&mut triggers);
        assert!(matches!(&fired.reasons[..], [Reason::Hit(hit)] if hit.pid == pid), "{fired}");
    }
}

#[test]
fn what_is_not_there_is_told() {
    let Some(session) = session() else { return };
    let error = |text: &str| EventList::parse(&[text], session.catalog()).unwrap_err().to_string();
    let near = error(&this("a_place_to_be_probd"));
    assert!(near.contains("has no function `a_place_to_be_probd`") && near.contains("did you mean uprobe:"), "{near}");
    let beyond = error(&this("a_place_to_be_probed+100000"));
    assert!(beyond.contains("there is no byte 100000 of it"), "{beyond}");
    assert!(error(&this("0x1")).contains("has no code at 0x1"));
    assert!(error("uprobe:/proc/version:main").contains("/proc/version can't be read"));
    assert!(error("uprobe:/no/such/file:main").contains("/no/such/file can't be read: No such file"));
    let open = std::path::Path::new("/proc/self/exe");
    let event = Event::probe(session.catalog(), open, "a_place_to_be_probed", ProbeAt::Entry).unwrap();
    assert_eq!(event.name, "uprobe:/proc/self/exe:a_place_to_be_probed");
}
