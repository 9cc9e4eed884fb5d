//! What is read, what is refused and where, and that everything reads back.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::event::Access;
use crate::symbol::What;
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
    for (text, printed) in [
        ("rate(page-faults) > 1e5/s", "rate(page-faults) > 100000/s"),
        ("rate( cache-misses:u )>=1.5M/s per cpu for 500ms", "rate(cache-misses:u) >= 1500000/s per cpu for 500ms"),
        ("rate(x) < 5/ms", "rate(x) < 5000/s"),
        ("cache-misses/cache-references > 20%", "cache-misses / cache-references > 0.2"),
        ("cpu/event=0x3c/ / cycles<0.5", "cpu/event=0x3c/ / cycles < 0.5"),
        ("psi:cpu some 150ms/1s", "psi:cpu some 150ms/1s"),
        ("psi:memory:/system.slice/x.service full 50ms/2s", "psi:memory:/system.slice/x.service full 50ms/2s"),
        ("sched:sched_process_exit if exit_code != 0", "sched:sched_process_exit if exit_code != 0"),
        (
            "sched:sched_switch if prev_comm ~ \"a for b*\" && prev_prio < 3 every 10",
            "sched:sched_switch if prev_comm ~ \"a for b*\" && prev_prio < 3 every 10",
        ),
        ("signal:signal_deliver if sig == 11 once", "signal:signal_deliver if sig == 11 once"),
        ("watch:counter:w", "watch:counter:w"),
        ("watch:0x7ffd0010/4:rw per cpu", "watch:0x7ffd0010/4:rw per cpu"),
        ("exit:1234", "exit:1234"),
        ("exit:nginx", "exit:nginx"),
        ("exit:\"Web Content\"", "exit:\"Web Content\""),
        ("crash", "crash"),
        ("crash:worker once", "crash:worker once"),
        ("line:ERROR", "line:ERROR"),
        ("line:\"out of memory and more\"", "line:\"out of memory and more\""),
        ("line:/OOM|a \\/ for b/ every 3", "line:/OOM|a \\/ for b/ every 3"),
        ("signal:usr2", "signal:USR2"),
        ("signal:SIGUSR1", "signal:USR1"),
        (
            "psi:io some 1s/2s and rate(x) > 3/s for 1s and signal:USR2 every 10s once",
            "psi:io some 1s/2s and rate(x) > 3/s for 1s and signal:USR2 every 10s once",
        ),
    ] {
        let read = trigger(text);
        assert_eq!(read.to_string(), printed);
        assert_eq!(trigger(printed), read);
    }
    let watched = only("watch:0x10/4:r");
    let Source::Watch(Wanted { what, len, access }) = watched.source else { panic!() };
    assert_eq!((what, len, access), (What::Address(0x10), Some(4), Some(Access::READ)));
    assert_eq!(
        only("line:a and line:b every 2".split(" and").next().unwrap()).source,
        Source::Line(Line::Text("a".into()))
    );
    assert_eq!(trigger("crash every 5").every, Every::Nth(NonZeroU32::new(5).unwrap()));
    assert_eq!(trigger("crash every 5s").every, Every::Span(Duration::from_secs(5)));
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
    let text = rule.actions_text();
    assert_eq!(Rule::parse("crash", Some(&text)).unwrap().actions, rule.actions);
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
    let known = ["fine", "all"];
    assert_eq!(rule.check_sets(known.into_iter()), Ok(()));
    let wrong = Rule::parse("crash", Some("snapshot; set fien on")).unwrap();
    let error = wrong.check_sets(known.into_iter()).unwrap_err();
    assert_eq!(error.column(), 14);
    assert!(error.to_string().ends_with("did you mean fine?"), "{error}");
}

#[test]
fn sets_are_read() {
    let set: SetText = "fine={sched:*,{cycles,instructions}:u} off".parse().unwrap();
    assert_eq!((&*set.name, &*set.events), ("fine", "sched:*,{cycles,instructions}:u"));
    assert_eq!(set.to_string().parse::<SetText>().unwrap(), set);
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

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![(1..5000_u64).prop_map(Duration::from_millis), (1..2_000_000_000_u64).prop_map(Duration::from_nanos)]
}

fn source() -> impl Strategy<Value = Source> {
    let event = || {
        prop_oneof![
            Just("cycles".to_owned()),
            Just("cpu/event=0x3c,umask=1/u".to_owned()),
            "[a-z]{2,8}-[a-z]{2,5}".prop_map(|name| format!("x{name}"))
        ]
    };
    let share = prop_oneof![event().prop_map(Share::Rate), (event(), event()).prop_map(|(a, b)| Share::Ratio(a, b))];
    let comparison = prop::sample::select(vec![
        Comparison::Greater,
        Comparison::GreaterOrEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Equal,
        Comparison::Unequal,
    ]);
    let limit = prop_oneof![0.0..1e9_f64, (0..1_000_000_u32).prop_map(f64::from), Just(0.0)];
    let resource = prop::sample::select(vec![Resource::Cpu, Resource::Memory, Resource::Io]);
    let tasks = prop::sample::select(vec![Waiting::Some, Waiting::Full]);
    let cgroup = prop::option::of("/[a-z./]{1,12}");
    let text = || "[ -~é]{1,20}";
    let name = "[a-zA-Z0-9 ._:()-]{1,15}";
    prop_oneof![
        (share, comparison, limit).prop_map(|(share, comparison, limit)| Source::Level(Level {
            share,
            comparison,
            limit
        })),
        (resource, cgroup, tasks, 1..500_000_u64, 500_000..10_000_000_u64).prop_map(
            |(resource, cgroup, tasks, stalled, window)| {
                let (stalled, window) = (Duration::from_micros(stalled), Duration::from_micros(window));
                Source::Pressure(Pressure { resource, cgroup, tasks, stalled, window })
            }
        ),
        ("[a-z_]{3,8}", "[a-z_]{3,8}", prop::option::of("[a-z_]{3,6} == [0-9]{1,3}"))
            .prop_map(|(system, event, filter)| { Source::Tracepoint { event: format!("x{system}:{event}"), filter } }),
        name.prop_map(|name| Source::Exit(Whose::Named(name))),
        (1..i32::MAX).prop_map(|pid| Source::Exit(Whose::Process(pid))),
        prop::option::of(name).prop_map(Source::Crash),
        text().prop_map(|text| Source::Line(Line::Text(text))),
        "[a-z .|]{1,9}".prop_map(|text| Source::Line(Line::Pattern(text))),
        prop::sample::select(vec!["USR1", "USR2", "TERM"]).prop_map(|name| Source::Signal(SignalName(name))),
        (any::<u64>(), prop::option::of(1..9_u64)).prop_map(|(address, len)| {
            Source::Watch(Wanted { what: What::Address(address), len, access: Some(Access::WRITE) })
        }),
    ]
}

fn whole() -> impl Strategy<Value = Trigger> {
    let every =
        prop_oneof![(1..9_u32).prop_map(|n| Every::Nth(NonZeroU32::new(n).unwrap())), span().prop_map(Every::Span)];
    let rounds = prop::sample::select(vec![Rounds::Always, Rounds::Once]);
    let term = (source(), prop::option::of(span()), prop::bool::ANY).prop_map(|(source, held, scoped)| {
        let scope = if scoped && source.takes(Scope::PerCpu) { Scope::PerCpu } else { Scope::All };
        let held = held.filter(|_| !source.is_moment()).unwrap_or_default();
        TriggerTerm { source, scope, held }
    });
    (prop::collection::vec(term, 1..4), every, rounds).prop_map(|(mut terms, every, rounds)| {
        let mut moments = 0;
        terms.retain(|term| {
            moments += usize::from(term.source.is_moment());
            !term.source.is_moment() || moments == 1
        });
        Trigger { terms, every, rounds }
    })
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(trigger in whole()) {
        let text = trigger.to_string();
        match text.parse::<Trigger>() {
            Ok(read) => prop_assert_eq!(read, trigger, "{}", text),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

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
    let rule = |span: &str| Rule::parse("crash", Some(&format!("set fine on for {span}"))).unwrap().to_string();
    assert_eq!((rule("5m"), rule("5min")), (rule("300s"), rule("300s")));
}
