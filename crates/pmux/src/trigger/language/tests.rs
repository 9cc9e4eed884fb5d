//! What is read, and what is refused and where.

use super::*;
use crate::event::Access;
use crate::symbol::AddressForm;
use proptest::prelude::*;

fn trigger(text: &str) -> Trigger {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn only(text: &str) -> TriggerTerm {
    let Trigger { mut terms, .. } = trigger(text);
    assert_eq!(terms.len(), 1);
    terms.remove(0)
}

/// Where the fault is, and what is said of it.
fn fault(text: &str) -> (usize, String) {
    let error = text.parse::<Trigger>().unwrap_err();
    assert!(error.to_string().lines().count() >= 3, "{error}");
    (error.column(), error.problem)
}

#[test]
fn every_kind_of_source() {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Unequal};
    let level = |quantity, comparison, limit| TermSource::Level(Level { quantity, comparison, limit });
    let rate = |event: &str| LevelQuantity::Rate(event.into());
    let ratio = |one: &str, other: &str| LevelQuantity::Ratio(one.into(), other.into());
    let psi = |resource, cgroup: Option<&str>, tasks, stalled, window| {
        let [stalled, window] = [stalled, window].map(Duration::from_millis);
        TermSource::Pressure(Pressure { resource, cgroup: cgroup.map(str::to_owned), tasks, stalled, window })
    };
    let hits = |event: &str, filter: Option<&str>| TermSource::Tracepoint {
        event: event.into(),
        filter: filter.map(str::to_owned),
    };
    let watch = |what, len, access| TermSource::Watch(AddressSpec { what, len, access: Some(access) });
    let named = |name: &str| TermSource::Exit(ExitOf::Named(name.into()));
    let crash = |name: &str| TermSource::Crash(Some(name.into()));
    let line = |text: &str| TermSource::Line(LineFilter::Text(text.into()));
    let counter = || AddressForm::Symbol { module: None, name: "counter".into(), offset: 0 };
    for (text, source) in [
        ("rate(page-faults) > 1e5/s", level(rate("page-faults"), Greater, 1e5)),
        ("rate( cache-misses:u )>=1.5M/s per cpu for 500ms", level(rate("cache-misses:u"), GreaterOrEqual, 1.5e6)),
        ("rate(x) < 5/ms", level(rate("x"), Less, 5000.0)),
        ("rate(x) <= 50k / s", level(rate("x"), LessOrEqual, 5e4)),
        ("cache-misses/cache-references > 20%", level(ratio("cache-misses", "cache-references"), Greater, 0.2)),
        ("cpu/event=0x3c/ / cycles<0.5", level(ratio("cpu/event=0x3c/", "cycles"), Less, 0.5)),
        ("a / b == 0", level(ratio("a", "b"), Equal, 0.0)),
        ("a / b != 1", level(ratio("a", "b"), Unequal, 1.0)),
        ("psi:cpu some 150ms/1s", psi(Resource::Cpu, None, StalledTasks::Some, 150, 1000)),
        (
            "psi:memory:/system.slice/x.service full 50ms/2s",
            psi(Resource::Memory, Some("/system.slice/x.service"), StalledTasks::Full, 50, 2000),
        ),
        ("psi:io some 1s / 2s", psi(Resource::Io, None, StalledTasks::Some, 1000, 2000)),
        ("sched:sched_process_exit if exit_code != 0", hits("sched:sched_process_exit", Some("exit_code != 0"))),
        (
            "sched:sched_switch if prev_comm ~ \"a for b*\" && prev_prio < 3 every 10",
            hits("sched:sched_switch", Some("prev_comm ~ \"a for b*\" && prev_prio < 3")),
        ),
        ("signal:signal_deliver if sig == 11 once", hits("signal:signal_deliver", Some("sig == 11"))),
        ("uprobe:/bin/sh:main", hits("uprobe:/bin/sh:main", None)),
        ("watch:counter:w", watch(counter(), None, Access::WRITE)),
        ("watch:0x10/4:rw per cpu", watch(AddressForm::Address(0x10), Some(4), Access::READ_WRITE)),
        ("exit:1234", TermSource::Exit(ExitOf::Process(1234))),
        ("exit:\"1234\"", named("1234")),
        ("exit:nginx", named("nginx")),
        ("exit:\"Web Content\"", named("Web Content")),
        ("crash", TermSource::Crash(None)),
        ("crash:worker once", crash("worker")),
        ("line:ERROR", line("ERROR")),
        ("line:\"out of \\\"memory\\\" and more\"", line("out of \"memory\" and more")),
        ("line:/OOM|a \\/ for b/ every 3", TermSource::Line(LineFilter::Pattern("OOM|a \\/ for b".into()))),
        ("signal:usr2", TermSource::Signal(SignalName("USR2"))),
        ("signal:SIGUSR1", TermSource::Signal(SignalName("USR1"))),
    ] {
        assert_eq!(only(text).source, source, "{text}");
        assert_eq!(trigger(text).to_string(), text, "as it was written");
    }
    assert_eq!(
        only("line:a and line:b every 2".split(" and").next().unwrap()).source,
        TermSource::Line(LineFilter::Text("a".into()))
    );
    assert_eq!(trigger("crash every 5").every, Every::Nth(NonZeroU32::new(5).unwrap()));
    assert_eq!(trigger("crash every 5s").every, Every::Span(Duration::from_secs(5)));
    let all = trigger(" psi:io some 1s/2s and\nrate(x) > 3/s for 1s per cpu and signal:USR2  every 10s once ");
    assert_eq!(all.to_string(), "psi:io some 1s/2s and rate(x) > 3/s for 1s per cpu and signal:USR2  every 10s once");
    let terms: Vec<_> = all.terms.iter().map(|term| (term.to_string(), term.scope, term.held.as_secs())).collect();
    let term = |text: &str, scope, held| (text.to_owned(), scope, held);
    assert_eq!(
        terms,
        [
            term("psi:io some 1s/2s", TermScope::All, 0),
            term("rate(x) > 3/s for 1s per cpu", TermScope::PerCpu, 1),
            term("signal:USR2", TermScope::All, 0)
        ]
    );
    assert_eq!((all.every, all.rounds), (Every::Span(Duration::from_secs(10)), Rounds::Once));
}

#[test]
fn faults_are_pointed_at() {
    for (text, column, says) in [
        ("", 0, "expected rate(EVENT)"),
        ("rate(page-faults > 5/s", 4, "has no `)`"),
        ("rate(page faults) > 5/s", 10, "expected"),
        ("rate(x) 5/s", 8, "one of > >="),
        ("rate(x) > many/s", 10, "expected a number"),
        ("rate(x) > 5", 11, "expected `/s`"),
        ("rate(x) > 5/day", 12, "unit of time"),
        ("rate(x) > 5/s for", 17, "expected a time"),
        ("rate(x) > 5/s for 5", 18, "expected a time"),
        ("rate(x) > 5/s per core", 18, "`cpu` or `cgroup`"),
        ("cycles > 5", 0, "rate(EVENT) or EVENT / EVENT"),
        ("a/b/c > 5", 0, "rate(EVENT) or EVENT / EVENT"),
        ("a/k/u/k > 5", 0, "write blanks"),
        ("a / b > 5/s", 9, "a ratio is compared"),
        ("psi:disk some 1ms/1s", 4, "cpu, memory or io"),
        ("psi:cpu 150ms/1s", 8, "`some`"),
        ("psi:cpu some 150ms", 18, "the window"),
        ("psi:cpu some 150ms/100ms", 19, "from 500ms to 10s"),
        ("psi:cpu some 2s/1s", 12, "longer within the window"),
        ("psi:cpu some 1s/1s per cpu", 19, "`per cpu` goes with"),
        ("crash per cgroup", 6, "`per cgroup` goes with"),
        ("sched:sched_switch if", 21, "expected a filter"),
        ("sched:sched_switch for 5s", 19, "is a moment"),
        ("crash and line:x", 10, "are moments"),
        ("rate(x) > 1/s per cpu and rate(y) > 1/s per cgroup", 26, "either per cpu or per cgroup"),
        ("crash and", 9, "expected rate(EVENT)"),
        ("crash every 0", 12, "from 1"),
        ("crash every 1.5", 12, "from 1"),
        ("crash once twice", 11, "`once` or the end, found `twice`"),
        ("line:", 5, "expected the text"),
        ("line:/(/", 6, "no regular expression"),
        ("line:/abc", 5, "no other one"),
        ("line:\"abc", 5, "never closed"),
        ("signal:KILL", 7, "no process can receive"),
        ("exit:", 5, "the name of a command"),
        ("exit:/bin/sh", 5, "last part of their path"),
        ("exit:99999999999", 5, "no number of a process"),
        ("watch:x/0y", 8, "expected"),
        ("singal USR2", 0, "expected rate(EVENT)"),
        ("signal", 6, "expected `:`"),
        ("é and crash and line:y", 0, "expected rate(EVENT)"),
    ] {
        let (at, problem) = fault(text);
        assert!(at == column && problem.contains(says), "`{text}` at {at}: {problem}");
    }
    let error = "psi:memry some 1ms/1s".parse::<Trigger>().unwrap_err().to_string();
    assert!(error.ends_with("did you mean memory?"), "{error}");
    let error = "signal:UST2".parse::<Trigger>().unwrap_err().to_string();
    assert!(error.contains("did you mean USR2"), "{error}");
}

#[test]
fn actions_are_read() {
    let rule =
        Rule::parse("rate(x) > 1/s", Some("set fine on for 2s; snapshot; run sh -c 'gzip \"$0\"; true' {} ; mark"))
            .unwrap();
    let on = Action::Set { name: "fine".into(), to: Switching::OnFor(Duration::from_secs(2)) };
    let run = Action::Run("sh -c 'gzip \"$0\"; true' {}".into());
    assert_eq!(rule.actions, [on, Action::Snapshot, run, Action::Mark(String::new())]);
    assert_eq!(Rule::parse("crash", None).unwrap().actions, [Action::Snapshot]);
    assert!(Rule::parse("rate(x) > 1/s", Some("set fine on while it holds")).is_ok());
    let error = Rule::parse("crash", Some("set fine on while it holds")).unwrap_err();
    assert!(error.problem.contains("for DURATION") && error.column() == 12, "{error}");
    for (text, column, says) in [
        ("", 0, "expected an action"),
        ("snapshto", 0, "expected an action"),
        ("snapshot now", 9, "expected `;` or the end"),
        ("set", 3, "the name of a set"),
        ("set fine", 8, "`on` or `off`"),
        ("set fine on for", 15, "expected a time"),
        ("set fine on while", 17, "`it holds`"),
        ("snapshot; run", 13, "expected a command"),
        ("mark 'x", 5, "never closed"),
    ] {
        let error = Rule::parse("crash", Some(text)).unwrap_err();
        assert_eq!(error.column(), column, "{error}");
        assert!(error.problem.contains(says), "{error}");
    }
    assert!(Rule::parse("crash", Some("snapshto")).unwrap_err().to_string().ends_with("did you mean snapshot?"));
}

#[test]
fn sets_are_read() {
    let set: SetText = "fine={sched:*,{cycles,instructions}:u} off".parse().unwrap();
    assert_eq!((&*set.name, &*set.events), ("fine", "sched:*,{cycles,instructions}:u"));
    assert_eq!(set.at_first, pmux_engine::event_set::Position::Off);
    let on: SetText = "x = { cycles } on".parse().unwrap();
    assert_eq!((on.at_first, &*on.events), (pmux_engine::event_set::Position::On, "cycles"));
    for (text, column) in [
        ("", 0),
        ("fine", 4),
        ("fine=sched:*", 5),
        ("fine={sched:*", 5),
        ("fine={}", 6),
        ("fine={a,,b}", 8),
        ("fine={a} up", 9),
    ] {
        let error = text.parse::<SetText>().unwrap_err();
        assert_eq!(error.column(), column, "{error}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[ -~é\t]{0,60}") {
        let _ = text.parse::<Trigger>().map_err(|error| error.to_string());
        let _ = Rule::parse("crash", Some(&text)).map_err(|error| error.to_string());
        let _ = text.parse::<SetText>().map_err(|error| error.to_string());
    }

    #[test]
    fn no_sequence_of_words_makes_it_panic(words in prop::collection::vec(prop::sample::select(vec![
        "rate(", "x", ")", ">", "5", "/s", " ", "and", "for", "per", "cpu", "every", "10s", "once", "psi:", "some", "line:", "/", "\"", "'", "é", "if", "crash", ":", "set", "on", "{", "}", "=", ";", "while", "1ms/1s",
    ]), 0..14)) {
        let text = words.concat();
        let _ = text.parse::<Trigger>().map_err(|error| error.to_string());
        let _ = Rule::parse("crash", Some(&text)).map_err(|error| error.to_string());
        let _ = text.parse::<SetText>().map_err(|error| error.to_string());
    }
}

#[test]
fn minutes_are_written_as_everywhere_else() {
    let rule = |span: &str| Rule::parse("crash", Some(&format!("set fine on for {span}"))).unwrap().actions;
    assert_eq!((rule("5m"), rule("5min")), (rule("300s"), rule("300s")));
}
