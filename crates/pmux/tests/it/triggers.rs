//! Every kind of trigger fires on this kernel, for the reason that it waits for.
//!
//! **Invariant:** nothing depends on how fast the machine is: what is to happen is made to happen until it is noticed.

use crate::common::watching::{watch_target, write};
use crate::common::{
    self, PATIENCE, SetAtEnd, debug_registers, events, first_fired, may_count_cpus, needs, session, skip_unless, storm,
    until_fired,
};
use pmux::trigger::{
    Action, Commands, EventSets, Fired, Position, Reason, Rule, SNAPSHOT_VARIABLE, TriggerEvent, TriggerHit,
    TriggerOptions, TriggerTarget, Triggers,
};
use pmux::wait::{Token, Waiter, Wake};
use pmux::{CpuChoice, Options, Session, Start, Target};
use pmux_linux::affinity::{CpuVisitor, Placement};
use std::fs::File;
use std::io::{PipeWriter, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn rule(trigger: &str) -> Rule {
    Rule::parse(trigger, None).unwrap_or_else(|error| panic!("{error}"))
}

fn often(target: Target<'_>) -> TriggerOptions<'_> {
    TriggerOptions { interval: Duration::from_millis(20), ..TriggerOptions::of(target) }
}

fn open(session: &Session, trigger: &str, target: Target<'_>) -> Triggers {
    Triggers::open(session, &[rule(trigger)], often(target)).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(session: &Session, trigger: &str) -> String {
    let opened = Triggers::open(session, &[rule(trigger)], TriggerOptions::of(Target::CurrentThread));
    opened.err().unwrap().to_string()
}

fn tracepoints(session: &Session) -> bool {
    let there = session.catalog().tracepoint("sched", "sched_process_exit").is_ok() && may_count_cpus(session);
    needs("root", "tracepoints of all CPUs", there)
}

fn tracing_session() -> Option<Session> {
    session().filter(tracepoints)
}

/// Where the target has ended nothing more will come, and what waits for company is told.
#[test]
fn the_last_hit_is_told_at_the_end() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some(_registers) = debug_registers() else { return };
    let Some(session) = common::watching::session(&watch_target("WORD", &WORD)) else { return };
    let address = (&raw const WORD) as u64;
    let mut triggers = open(&session, &format!("watch:{address:#x}/8:w"), Target::CurrentThread);
    for value in 1..=20 {
        write(&WORD, value);
        let events = triggers.finish();
        assert!(matches!(&events[..], [TriggerEvent::Fired(_)]), "{value}: {events:?}");
        assert!(triggers.finish().is_empty());
    }
}

/// One hit wakes. Those that come right behind it don't: they are looked at together.
#[test]
fn hits_of_a_hot_tracepoint_are_taken_together() {
    let Some(session) = tracing_session() else { return };
    let comm = format!("pmux-hot-{}", std::process::id() % 1000);
    let end = || std::thread::Builder::new().name(comm.clone()).spawn(|| ()).unwrap().join().unwrap();
    let rule = format!("sched:sched_process_exit if comm == \"{comm}\"");
    let mut triggers = open(&session, &rule, Target::CurrentThread);
    let wakes = |triggers: &Triggers, patience| {
        let mut waiter = Waiter::new();
        triggers.watch(&mut waiter, Token(0));
        waiter.wait(Some(Instant::now() + patience)).unwrap()
    };
    let mut fired = 0;
    let mut take = |triggers: &mut Triggers, wakes: &[Wake]| {
        let events = triggers.take(wakes, Token(0));
        fired += events.iter().filter(|event| matches!(event, TriggerEvent::Fired(_))).count();
        fired
    };
    end();
    let first = wakes(&triggers, PATIENCE);
    assert!(first.contains(&Wake::Fd(Token(0))), "{first:?}");
    // It may wake before it is written.
    let deadline = Instant::now() + PATIENCE;
    while take(&mut triggers, &first) < 1 {
        assert!(Instant::now() < deadline);
    }
    (0..50).for_each(|_| end());
    assert_eq!(wakes(&triggers, Duration::from_millis(1)), [Wake::Deadline]);
    while take(&mut triggers, &[]) < 51 {
        assert!(Instant::now() < deadline);
        let _ = wakes(&triggers, Duration::from_millis(1));
    }
}

/// While nothing follows from it, a hot tracepoint is counted, and what it costs is less.
#[test]
fn hits_that_are_held_back_are_counted() {
    const MANY: u64 = 500;
    let Some(session) = tracing_session() else { return };
    let call = || std::hint::black_box(std::os::unix::process::parent_id());
    let rule = format!("syscalls:sys_enter_getppid if common_pid == {}", pmux_linux::current_tid());
    let mut triggers = open(&session, &rule, Target::CurrentThread);
    triggers.hold_back(0, PATIENCE);
    let deadline = Instant::now() + PATIENCE;
    let take = |triggers: &mut Triggers| {
        assert!(Instant::now() < deadline);
        triggers.wait(Some(Instant::now() + Duration::from_millis(20))).unwrap()
    };
    let fired =
        |events: &[TriggerEvent]| events.iter().filter(|event| matches!(event, TriggerEvent::Fired(_))).count() as u64;
    // A few are told one by one.
    (0..20).for_each(|_| _ = call());
    let mut fired_count = 0;
    while fired_count < 20 {
        fired_count += fired(&take(&mut triggers));
    }
    let mut calls = fired_count;
    loop {
        (0..MANY).for_each(|_| _ = call());
        calls += MANY;
        let before = fired_count;
        for _ in 0..3 {
            fired_count += fired(&take(&mut triggers));
        }
        if fired_count == before {
            break;
        }
    }
    let last = triggers.finish();
    assert!(
        matches!(last[..], [TriggerEvent::HeldBack { rule: 0, times, .. }] if fired_count + times == calls),
        "{fired_count} {calls} {last:?}"
    );
    assert!(fired_count < calls);
    // It goes on.
    triggers.hold_back(0, Duration::ZERO);
    call();
    first_fired(&mut triggers);
}

#[test]
fn a_rate_of_a_thread() {
    let Some(session) = session() else { return };
    let mut triggers = open(&session, "rate(page-faults) > 500/s", Target::CurrentThread);
    // A calm thread: whatever fires has a number that says why.
    for event in triggers.wait(Some(Instant::now() + Duration::from_millis(100))).unwrap() {
        assert!(
            matches!(event, TriggerEvent::Fired(_) | TriggerEvent::Begins { .. } | TriggerEvent::Ends { .. }),
            "{event:?}"
        );
    }
    let fired = until_fired(&mut triggers, storm, |_| true);
    let [Reason::Number { value, limit, .. }] = fired.reasons[..] else { panic!("{fired:?}") };
    assert!(value > 500.0 && limit == 500.0 && fired.place == TriggerTarget::All, "{fired}");
    assert!(fired.to_string().starts_with("rate(page-faults) is "), "{fired}");
}

#[test]
fn a_rate_that_is_held_and_ends() {
    let Some(session) = session() else { return };
    let (sender, receiver) = std::sync::mpsc::channel();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            sender.send(pmux_linux::current_tid()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                storm();
            }
        });
        let mut stopping = Some(SetAtEnd(stop));
        let storming = Target::Threads(vec![receiver.recv().unwrap()]);
        let mut triggers = open(&session, "rate(page-faults) > 500/s for 60ms", storming);
        let deadline = Instant::now() + PATIENCE;
        let mut ended = false;
        while !ended {
            assert!(Instant::now() < deadline, "it never {}", if stopping.is_some() { "fires" } else { "ends" });
            // It may end at once, where that thread has no CPU for a while.
            for event in triggers.wait(Some(deadline)).unwrap() {
                match event {
                    TriggerEvent::Fired(fired) => {
                        assert_eq!(fired.place, TriggerTarget::All);
                        stopping = None;
                    }
                    TriggerEvent::Ends { rule: 0, .. } => ended = stopping.is_none(),
                    _ => {}
                }
            }
        }
    });
}

#[test]
fn a_ratio_and_what_is_no_ratio() {
    let Some(session) = session() else { return };
    let rules = ["page-faults / minor-faults >= 0.5", "page-faults / alignment-faults >= 0"].map(rule);
    let mut triggers = Triggers::open(&session, &rules, often(Target::CurrentThread)).unwrap();
    let fired = until_fired(&mut triggers, storm, |_| true);
    assert_eq!(fired.rule, 0, "{fired}");
    assert_eq!(triggers.fired(1), 0, "of nothing there is no share");
}

#[test]
fn a_rate_on_each_cpu() {
    let Some(session) = common::cpu_session() else { return };
    let mut triggers = open(&session, "rate(page-faults) > 500/s per cpu", Target::Cpus(CpuChoice::All));
    let fired = until_fired(&mut triggers, storm, |_| true);
    let TriggerTarget::Cpu(cpu) = fired.place else { panic!("{fired:?}") };
    assert!(session.online().contains(cpu.0), "{fired}");
    assert!(refusal(&session, "rate(page-faults) > 1/s per cpu").contains("-a or -C"));
}

#[test]
fn pressure() {
    let Some(session) = session() else { return };
    // The window that everybody may have: root has not always CAP_SYS_RESOURCE.
    let text = "psi:cpu some 50ms/2s";
    let triggers = Triggers::open(&session, &[rule(text)], TriggerOptions::of(Target::CurrentThread));
    let mut triggers = match triggers {
        Ok(triggers) => triggers,
        Err(error) => {
            assert!(error.why.len() > 20, "{error}");
            needs("psi", &format!("pressure stall information ({error})"), false);
            return;
        }
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = SetAtEnd(&stop);
        let threads = 4 * session.online().iter().count();
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let fired = first_fired(&mut triggers);
        assert!(matches!(fired.reasons[..], [Reason::Pressure(_)]), "{fired}");
        assert_eq!(fired.to_string(), text);
    });
}

/// The process in which something was hit.
fn pid_of(fired: &Fired) -> Option<i32> {
    match &fired.reasons[..] {
        [Reason::Hit(TriggerHit { pid, .. })] => Some(*pid),
        _ => None,
    }
}

#[test]
fn a_crash() {
    let Some(session) = tracing_session() else { return };
    for text in ["crash:sh", "crash"] {
        let mut triggers = open(&session, text, Target::CurrentThread);
        let crash = || Command::new("/bin/sh").args(["-c", "kill -SEGV $$"]).stderr(Stdio::null()).spawn().unwrap();
        let mut child = crash();
        let pid = child.id().cast_signed();
        let fired = until_fired(&mut triggers, || (), |fired| pid_of(fired) == Some(pid));
        assert!(fired.to_string().contains(&format!("process {pid} on CPU")), "{fired}");
        assert_eq!(child.wait().unwrap().signal(), Some(11));
    }
    // One that ends well, and one that catches its signal, are none.
    let mut triggers = open(&session, "crash:sh", Target::CurrentThread);
    let child = |line: &str| {
        let mut child = Command::new("/bin/sh").args(["-c", line]).spawn().unwrap();
        child.wait().unwrap();
        child.id().cast_signed()
    };
    let well = [child("exit 3"), child("trap : SEGV; kill -SEGV $$"), child("kill -TERM $$")];
    for event in triggers.wait(Some(Instant::now() + Duration::from_millis(300))).unwrap() {
        let TriggerEvent::Fired(fired) = &event else { continue };
        assert!(!pid_of(fired).is_some_and(|pid| well.contains(&pid)), "{fired}");
    }
}

#[test]
fn the_end_of_a_process() {
    let Some(session) = session() else { return };
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id().cast_signed();
    let mut triggers = open(&session, &format!("exit:{pid}"), Target::CurrentThread);
    assert_eq!(triggers.wait(Some(Instant::now() + Duration::from_millis(20))).unwrap(), []);
    child.kill().unwrap();
    let fired = first_fired(&mut triggers);
    assert_eq!(fired.reasons, [Reason::Ended { pid }]);
    assert_eq!(triggers.sources(), 0);
    child.wait().unwrap();
    assert!(refusal(&session, &format!("exit:{pid}")).contains("there is no process"));
    skip_unless!(tracepoints(&session));
    // With threads of its own it ends once.
    let mut triggers = open(&session, "exit:sleep", Target::CurrentThread);
    let mut child = Command::new("sleep").arg("0").spawn().unwrap();
    let pid = child.id().cast_signed();
    until_fired(&mut triggers, || (), |fired| pid_of(fired) == Some(pid));
    child.wait().unwrap();
}

#[test]
fn a_tracepoint_with_a_filter() {
    let Some(session) = tracing_session() else { return };
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id().cast_signed();
    let mut triggers = open(&session, &format!("sched:sched_process_exit if pid == {pid}"), Target::CurrentThread);
    // Others end, too.
    for _ in 0..3 {
        assert!(Command::new("true").status().unwrap().success());
    }
    assert_eq!(triggers.wait(Some(Instant::now() + Duration::from_millis(50))).unwrap(), []);
    drop(child.stdin.take());
    let fired = first_fired(&mut triggers);
    assert_eq!(pid_of(&fired), Some(pid));
    child.wait().unwrap();
    for (text, says) in [
        ("sched:sched_process_exit if prioo > 3", "did you mean prio"),
        ("sched:sched_process_exit if pid >", "fields of sched:sched_process_exit: comm, pid, prio"),
        ("sched:sched_proces_exit", "sched_process_exit"),
    ] {
        let error = refusal(&session, text);
        assert!(error.contains(says), "{error}");
    }
    drop(triggers);
    assert_eq!(session.census(), Default::default());
}

#[test]
fn a_watched_variable() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some(_registers) = debug_registers() else { return };
    let Some(session) = common::watching::session(&watch_target("WORD", &WORD)) else { return };
    let address = std::ptr::from_ref(&WORD) as u64;
    let mut triggers = open(&session, &format!("watch:{address:#x}/8:w every 3"), Target::CurrentThread);
    (0..2).for_each(|value| write(&WORD, value));
    assert_eq!(triggers.wait(Some(Instant::now() + Duration::from_millis(50))).unwrap(), []);
    write(&WORD, 2);
    let fired = first_fired(&mut triggers);
    let [Reason::Hit(hit)] = &fired.reasons[..] else { panic!("{fired:?}") };
    assert_eq!((hit.pid, &*hit.what), (std::process::id().cast_signed(), &*format!("{address:#x}/8:w")));
    assert!(refusal(&session, "watch:no_such_variable").contains("no_such_variable"));
}

fn lines(session: &Session, rules: &[Rule]) -> (Triggers, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let setting = TriggerOptions { lines: Some(OwnedFd::from(reader)), ..TriggerOptions::of(Target::CurrentThread) };
    (Triggers::open(session, rules, setting).unwrap(), writer)
}

#[test]
fn lines_of_a_log() {
    let Some(session) = session() else { return };
    let rules = ["line:/err(or)?[0-9]/ every 2", "line:\"out of memory\" once"].map(rule);
    let (mut triggers, mut writer) = lines(&session, &rules);
    writer.write_all(b"all is well\nerr1\nbegun: out of").unwrap();
    assert_eq!(triggers.wait(Some(Instant::now() + Duration::from_millis(20))).unwrap(), []);
    writer.write_all(b" memory\nerror2 \x1b[2J\nout of memory\nerr3\nerr4").unwrap();
    drop(writer);
    let (mut fired, mut lost) = (Vec::new(), Vec::new());
    let end = Instant::now() + PATIENCE;
    while lost.is_empty() && Instant::now() < end {
        for event in triggers.wait(Some(end)).unwrap() {
            match event {
                TriggerEvent::Fired(one) => fired.push((one.rule, one.to_string())),
                TriggerEvent::Lost { rules, what } => lost.push((rules, what)),
                _ => {}
            }
        }
    }
    let line = |rule, text: &str| (rule, format!("line: {text}"));
    assert_eq!(fired, [line(1, "begun: out of memory"), line(0, "error2 ?[2J"), line(0, "err4")]);
    assert_eq!(lost, [(vec![0, 1], "the input has ended: no line will come any more".to_owned())]);
    assert_eq!(triggers.sources(), 0);
}

#[test]
fn a_file_is_lines_too() {
    let Some(session) = session() else { return };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"one\ntwo\n").unwrap();
    let setting = || TriggerOptions {
        lines: Some(File::open(file.path()).unwrap().into()),
        ..TriggerOptions::of(Target::CurrentThread)
    };
    let mut triggers = Triggers::open(&session, &[rule("line:two")], setting()).unwrap();
    let events = triggers.wait(Some(Instant::now() + PATIENCE)).unwrap();
    assert!(matches!(&events[..], [TriggerEvent::Fired(fired)] if fired.to_string() == "line: two"), "{events:?}");
}

#[test]
fn a_signal() {
    let Some(session) = session() else { return };
    let mut triggers = open(&session, "signal:USR2", Target::CurrentThread);
    let send =
        |name| assert!(Command::new("kill").arg(name).arg(std::process::id().to_string()).status().unwrap().success());
    send("-USR2");
    let fired = first_fired(&mut triggers);
    assert_eq!(fired.reasons, [Reason::Signal("USR2")]);
}

#[test]
fn a_line_while_a_rate_holds() {
    let Some(session) = session() else { return };
    let (reader, mut writer) = std::io::pipe().unwrap();
    let rules = [rule("rate(page-faults) > 500/s and line:now"), rule("rate(page-faults) > 1G/s and line:now")];
    let setting = TriggerOptions { lines: Some(reader.into()), ..often(Target::CurrentThread) };
    let mut triggers = Triggers::open(&session, &rules, setting).unwrap();
    let both = || {
        storm();
        writer.write_all(b"now\n").unwrap();
    };
    let fired = until_fired(&mut triggers, both, |_| true);
    assert!(matches!(fired.reasons[..], [Reason::Number { .. }, Reason::Line(_)]) && fired.rule == 0, "{fired}");
}

#[test]
fn a_hundred_at_once() {
    let Some(session) = session() else { return };
    let rules: Vec<Rule> = (0..100).map(|number| rule(&format!("line:go{}", ["", "!"][number % 2]))).collect();
    let (mut triggers, mut writer) = lines(&session, &rules);
    assert_eq!(triggers.sources(), 1);
    writer.write_all(b"go!\n").unwrap();
    let mut fired = Vec::new();
    while fired.len() < 100 {
        let events = triggers.wait(Some(Instant::now() + PATIENCE)).unwrap();
        assert!(!events.is_empty());
        fired.extend(events.into_iter().filter_map(|event| match event {
            TriggerEvent::Fired(fired) => Some(fired.rule),
            _ => None,
        }));
    }
    fired.sort_unstable();
    assert_eq!(fired, (0..100).collect::<Vec<_>>());
}

#[test]
fn sets_go_on_and_off_with_rules() {
    let Some(session) = session() else { return };
    let fine = Options { start: Start::Later, ..Options::default() };
    let counters = session.open(&events(&session, "page-faults"), &Target::CurrentThread, fine).unwrap();
    let mut sets = EventSets::new(&session);
    sets.add("fine", &[&counters]);
    let rules = [Rule::parse("line:go", Some("set fine on for 30s")).unwrap()];
    let counted = || common::value(counters.read().total(0));
    let (mut triggers, mut writer) = lines(&session, &rules);
    storm();
    assert_eq!((sets.position("fine"), counted()), (Some(Position::Off), 0));
    writer.write_all(b"go\n").unwrap();
    let fired = first_fired(&mut triggers);
    for action in &rules[fired.rule].actions {
        assert_eq!(sets.carry_out(action).unwrap().result, Ok(Position::On));
    }
    assert!(sets.next().is_some() && sets.settle().is_empty());
    storm();
    let seen = counted();
    assert!(seen >= 10, "{seen} page faults");
    let off = Rule::parse("line:x", Some("set fine off")).unwrap();
    assert_eq!(sets.carry_out(&off.actions[0]).unwrap().result, Ok(Position::Off));
    let seen = counted();
    storm();
    assert_eq!((counted(), sets.next()), (seen, None));
    // While a condition holds.
    let held = [Rule::parse("rate(page-faults) > 1/s", Some("set fine on while it holds")).unwrap()];
    let begins = TriggerEvent::Begins { rule: 0, at: pmux::Nanos(0) };
    assert_eq!(sets.follow(&held, &begins)[0].result, Ok(Position::On));
    let ends = TriggerEvent::Ends { rule: 0, at: pmux::Nanos(0) };
    assert_eq!(sets.follow(&held, &ends)[0].result, Ok(Position::Off));
}

#[test]
fn a_set_that_cannot_be_on_is_said_and_off() {
    let Some(session) = session() else { return };
    let mut sets = EventSets::new(&session);
    let fine = Options { start: Start::Later, ..Options::default() };
    let counters = session.open(&events(&session, "page-faults"), &Target::CurrentThread, fine).unwrap();
    sets.add("fine", &[&counters]);
    drop(counters);
    let on = Rule::parse("line:x", Some("set fine on; set other on")).unwrap();
    let switched: Vec<_> = on.actions.iter().filter_map(|action| sets.carry_out(action)).collect();
    assert!(switched.iter().all(|switched| switched.result.is_err()), "{switched:?}");
    assert_eq!(sets.position("fine"), Some(Position::Off));
}

#[test]
fn a_command_is_told_of_the_snapshot_and_reads_nothing_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let (snapshot, out) = (folder.path().join("it's a $(snapshot)"), folder.path().join("out"));
    let reason = Reason::Line("x'; touch /tmp/never; \"$(id)".to_owned());
    let fired = Fired { rule: 0, at: pmux::Nanos(0), place: TriggerTarget::All, cgroup: None, reasons: vec![reason] };
    let mut commands = Commands::default();
    let text = format!("run printf '%s|%s|%s' {{}} \"${SNAPSHOT_VARIABLE}\" \"$PMUX_REASON\" > {}", out.display());
    let Action::Run(command) = &Rule::parse("crash", Some(&text)).unwrap().actions[0] else { panic!() };
    commands.start(command, Some(&snapshot), &fired).unwrap();
    let ended = common::eventually("the command ends", || commands.reap().pop());
    assert!(ended.1.unwrap().success() && commands.running() == 0);
    let path = snapshot.display().to_string();
    let wrote = std::fs::read_to_string(out).unwrap();
    assert_eq!(wrote, format!("{path}|{path}|line: x'; touch /tmp/never; \"$(id)"));
}

#[test]
fn a_cpu_that_goes_and_comes_back() {
    let Some(switch) = common::hotplug::CpuSwitch::take() else { return };
    let Some(session) = tracing_session() else { return };
    // A program with a name that no other program has.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("pmuxhotplug");
    common::role::copy(&program);
    let rules = ["rate(cpu-clock) > 0/s per cpu", "exit:pmuxhotplug"].map(rule);
    let mut triggers = Triggers::open(&session, &rules, often(Target::Cpus(CpuChoice::All))).unwrap();
    let on_cpu_1 = TriggerTarget::Cpu(pmux::CpuId(1));
    until_fired(&mut triggers, || (), |fired| fired.place == on_cpu_1);
    switch.turn("0");
    let end = Instant::now() + PATIENCE;
    let gone = |event: &TriggerEvent| matches!(event, TriggerEvent::Lost { rules, what } if rules == &[0] && what.starts_with("CPU 1 is offline"));
    while !triggers.wait(Some(end)).unwrap().iter().any(gone) {
        assert!(Instant::now() < end, "no event says that it has gone");
    }
    switch.turn("1");
    // It is looked at anew, by an event that came with it.
    until_fired(&mut triggers, || (), |fired| fired.place == on_cpu_1);
    // A child runs where its parent does.
    let mut visitor = CpuVisitor::new();
    assert_eq!(visitor.visit(1), Placement::Moved);
    let listed = Command::new(&program).arg("--list").stdout(Stdio::null()).status();
    drop(visitor);
    assert!(listed.unwrap().success());
    let fired = until_fired(&mut triggers, || (), |fired| fired.rule == 1);
    assert!(matches!(&fired.reasons[..], [Reason::Hit(hit)] if hit.cpu == 1), "{fired}");
}
