//! What is said of a text that can be read but makes no sense.

use super::super::{Bearing, Problem, check, needs};
use super::read;

fn problems(text: &str) -> Vec<Problem> {
    check(&read(text))
}

/// Each text, what is said of it, and where that matters.
fn says(bearing: Bearing, table: &[(&str, &str, &str)]) {
    for (text, place, said) in table {
        let problems = problems(text);
        let found = problems.iter().any(|problem| {
            problem.bearing == bearing && problem.place.to_string() == *place && problem.to_string().contains(said)
        });
        assert!(found, "{text}\nwanted: {place}: {said}\nfound: {problems:#?}");
    }
}

/// Each statement, and what is said somewhere of `open` with it behind.
fn says_behind(open: &str, table: &[(&str, &str)]) {
    for (statement, said) in table {
        let problems = problems(&format!("{open}{statement}"));
        let found =
            problems.iter().any(|problem| problem.bearing == Bearing::Everywhere && problem.to_string().contains(said));
        assert!(found, "{statement}\nwanted: {said}\nfound: {problems:#?}");
    }
}

#[test]
fn names_are_defined_once_and_before_they_are_used() {
    let table = [
        ("run A 1ms", "1:5", "there is no task `A`"),
        ("task A; task B; run C 1ms", "1:21", "there is no task `C`"),
        ("task Alpha; run Alhpa 1ms", "1:17", "did you mean `Alpha`?"),
        ("task A; task A", "1:14", "there is a task `A` already on line 1"),
        ("task A; fork A as A", "1:19", "there is a task `A` already"),
        ("task A; open A = page-faults on A", "1:14", "there is a task `A` already"),
        ("task A; open e1, e2 = page-faults, dummy on A; expect e3.count == 1", "1:55", "not open: did you mean `e2`?"),
        ("task A; open e = dummy on A; run e 1ms", "1:34", "`e` is an event, and not a task"),
        ("task A; enable A", "1:16", "`A` is a task, and not an event"),
        ("task A; open e, e = dummy, dummy on A", "1:17", "`e` is said twice"),
        ("task A; run A, A 1ms", "1:16", "`A` is said twice"),
        ("task A; open e = dummy on A; close e; expect e.count == 1", "1:46", "`e` was closed on line 1"),
        ("task A; open {e, f} = {dummy, dummy} on A; close {e}; reset f", "1:61", "`f` was closed"),
        ("open {e, f} = {dummy, dummy} system-wide; close e; reset f", "1:58", "`f` was closed"),
        ("task A; open {e, f} = {dummy, dummy} on A; close f", "1:50", "groups are closed whole"),
    ];
    says(Bearing::Everywhere, &table);
    assert_eq!(problems("task A; open e = dummy on A; close e; open e = dummy on A; reset e"), []);
    assert_eq!(problems("task A; open {e} = {dummy} on A; close e; open {e, f} = {dummy, dummy} on A; close {f}"), []);
    assert_eq!(problems("task A; open e = dummy on A fails EINVAL; open e = dummy on A"), []);
}

#[test]
fn tasks_act_while_they_live() {
    let table = [
        ("task A; exit A; run A 1ms", "1:21", "`A` exited on line 1"),
        ("task A; exit A; fork A as B", "1:22", "`A` exited"),
        ("task A; exit A; open e = dummy on A", "1:35", "`A` exited"),
        ("task A; thread A as T; exec T", "1:24", "an exec ends all other threads"),
        ("task A; thread A as T; exec A", "1:24", "an exec ends all other threads"),
    ];
    says(Bearing::Everywhere, &table);
    assert_eq!(problems("task A; exit A; open e = dummy on A fails ESRCH"), []);
    assert_eq!(problems("task A; thread A as T; exit T; exec A"), []);
}

#[test]
fn cpus_exist_and_are_online_where_they_are_used() {
    let table = [
        ("machine cpus=2\ntask A on cpu2", "2:1", "there is no cpu2: the machine has 2 CPUs (say `machine cpus=3`)"),
        ("requires: cpus=2, root, hotplug\ntask A; offline cpu1; run A 1ms on cpu1", "2:23", "cpu1 is offline here"),
        ("requires: cpus=2, root, hotplug\noffline cpu1; offline cpu1", "2:15", "cpu1 is offline already"),
        ("requires: cpus=2, root, hotplug\nonline cpu1", "2:1", "cpu1 is online already"),
        ("requires: cpus=2, root, hotplug\noffline cpu1; open e = dummy on cpu1", "2:15", "cpu1 is offline here"),
        ("sim only: x\nmachine cpus=1\noffline cpu0", "3:1", "cpu0 is the last one"),
        ("open s = dummy system-wide cpus 0-7", "1:1", "there is no cpu7"),
    ];
    says(Bearing::Everywhere, &table);
    let fails =
        "requires: cpus=2, root, hotplug\noffline cpu1; open e = dummy on cpu1 fails ENODEV; offline cpu1 fails EINVAL";
    assert_eq!(problems(fails), []);
}

#[test]
fn expectations_have_a_meaning() {
    let open = "task A; open e, t = page-faults, task-clock on A inherit; open s = dummy on A; fork A as C; ";
    let table = [
        ("expect 1 < 2", "this doesn't depend on anything"),
        ("expect truth == 5", "`truth` of what? This names no event"),
        ("expect e.count == 2 * s.count + truth", "names several events (say whose: e1.truth)"),
        ("expect e.running <= 5", "compares a time with a number"),
        ("expect e.count ~ 5 within 5ms", "the tolerance can't be a time"),
        ("expect e.running ~ 5ms within 5", "the tolerance needs a unit"),
        ("expect e.running * e.running == 5", "times can be added to times"),
        ("expect e.count + e.running == 5", "times can be added to times"),
        ("expect e.gap == 5ms", "only system-wide sets follow CPUs"),
        ("expect e.cpu0.count == 5", "what it counted on one CPU is not kept"),
        ("expect s.own.count == 5", "`s` has no children: it was not opened on a task with `inherit`"),
        ("expect e.children[D].count == 5", "there is no task `D`"),
        ("expect e.children[A].count == 5", "`A` has not inherited `e`"),
        ("fork A as B; open l = dummy on A inherit; expect l.children[B].count == 1", "`B` has not inherited `l`"),
        ("expect e.retired.state == off", "children that have exited have no state"),
        ("enable {e}", "`e` was opened alone, not in a group (write e without braces)"),
        ("open g = cylces on A", "there is no event `cylces` (did you mean `cycles`?)"),
        ("run A 1ms rate cylces=1", "there is no event `cylces` whose rate could be set"),
        ("run A 1ms rate faults=1 page-faults=2", "the rate of `page-faults` is said twice"),
    ];
    says_behind(open, &table);
    for statement in [
        "expect e.count == truth",
        "expect e.children[C].count == e.count - e.own.count",
        "fork C as D; expect e.children[D].running <= e.enabled",
        "expect t.count ~ 10ms within 5%",
        "expect t.count ~ truth within 100us",
        "expect e.running == 0",
        "expect e.running / e.enabled == e.share",
        "expect 2 * e.enabled >= e.running + 1ms",
        "expect lost == 0",
        "expect e.children[C].state == active|inactive",
    ] {
        assert_eq!(problems(&format!("{open}{statement}")), [], "{statement}");
    }
}

#[test]
fn a_change_fits_what_is_open() {
    let open = "task A; open e = dummy on A; open b = mem:0x10/4:w on A inherit; open s, t = mem:0x10/4:w, dummy \
                system-wide cpus 0; open c = mem:0x20/4:w on cpus 0-1; ";
    let table = [
        ("modify x to mem:0x20/4:w", "event `x` is not open"),
        ("modify e to mem:0x20/4:w", "`e` is no breakpoint"),
        ("modify s to mem:0x20/4:w", "`s` is of a system-wide set, which stays as it is (open another set"),
        ("close b; modify b to mem:0x20/4:w", "`b` was closed"),
        ("expect s.cpu1.count == 0", "cpu1"),
    ];
    says_behind(open, &table);
    let table = [
        ("task A; open b = mem:0x10/4:w on A; exit A; modify b to mem:0x20/4:w", "1:45", "`A` exited"),
        (
            "task A; open b = mem:0x10/4:w on A inherit; fork A as C; modify b to mem:0x20/4:w",
            "1:58",
            "children of `A` count `b` too",
        ),
    ];
    says(Bearing::OffTheSimulator, &table);
    let head = "requires: cpus=2, root, breakpoints\n";
    for statement in [
        "modify b to mem:0x20/8:rw; expect b.count == truth",
        "modify c to mem:0x20/8:rw; expect c.cpu0.count == 0",
        "fork A as C; exit C; modify b to mem:0x20/8:rw",
        "modify b to mem:0x20/9:w fails EOPNOTSUPP; close b; modify b to mem:0x20/8:w fails EBADF",
    ] {
        assert_eq!(problems(&format!("{head}{open}{statement}")), [], "{statement}");
    }
}

#[test]
fn the_head_fits_together() {
    let table = [
        ("machine profile=intel-skylak", "1:1", "did you mean `intel-skylake`?"),
        ("machine fixed=cycles,cycles", "1:1", "`cycles` has two fixed counters"),
        ("machine fixed=page-faults", "1:1", "`page-faults` is no hardware event"),
        ("machine counters=2 constrained=branches:2", "1:1", "`branches` can't be on counter 2"),
        ("machine constrained=branches:1,branches:2", "1:1", "`branches` is constrained twice"),
        ("machine cpus=2\nrequires: cpus=3", "2:11", "this requires cpus=3, but the machine line says 2 CPUs"),
        ("machine counters=2\nrequires: counters=3", "2:11", "the machine line says 2 counters"),
        ("machine breakpoints=6x+4rw\nrequires: breakpoints=6", "2:11", "says 4 debug registers for data"),
        ("requires: lab\nsim only: x", "1:11", "runs on the simulator only"),
    ];
    says(Bearing::Everywhere, &table);
}

#[test]
fn a_file_says_what_it_needs() {
    let table = [
        ("task A; open e = cycles on A", "1:9", "needs `pmu`, and the file doesn't say so (write `requires: pmu`)"),
        ("task A; open e = mem:0x10/4:w on A", "1:9", "a breakpoint needs `breakpoints`"),
        ("open e = dummy on cpu0", "1:1", "counting whole CPUs needs `root`"),
        ("open e = sched:sched_switch system-wide", "1:1", "needs `root`"),
        ("task A on cpu1", "1:1", "needs `cpus=2`"),
        ("offline cpu1", "1:1", "taking a CPU offline needs `hotplug`"),
        ("offline cpu1", "1:1", "write `requires: cpus=2, hotplug`"),
        ("offline cpu0", "1:1", "most machines can't take CPU 0 offline"),
        ("fault alloc 1", "1:1", "faults can be made on the simulator only (add a line `sim only: REASON`)"),
        (
            "requires: pmu\ntask A; open e = cycles on A; expect e.count == truth",
            "2:31",
            "the truth is not known of `cycles` on a kernel",
        ),
        (
            "requires: pmu\ntask A; open e = instructions on A; expect e.count == truth",
            "2:37",
            "known only nearly on a kernel (write `~ truth within 2%`",
        ),
        (
            "requires: root\nopen e = page-faults on cpu0; expect e.count == truth",
            "2:31",
            "the truth is not known of `page-faults` on whole CPUs",
        ),
        (
            "task A; open e = page-faults on A; exec A; expect e.count == truth",
            "1:44",
            "`A` began another program: it is not known what of `page-faults` that took (reset it after the exec",
        ),
    ];
    says(Bearing::OffTheSimulator, &table);
    for text in [
        "task A; open e = page-faults on A; exec A; reset e; expect e.count == truth",
        "task A; open e = page-faults on A; fork A as C; exec C; expect e.count == truth",
        "task A; open e = page-faults on A; exec A; open f = page-faults on A; expect f.count == truth",
        "task A; open e = page-faults on A disabled; exec A; enable e; expect e.count == truth",
        "requires: breakpoints\ntask A; open e = mem:0x10/4:w on A; exec A; expect e.count == truth",
    ] {
        assert_eq!(problems(text), [], "{text}");
    }
    for text in [
        "requires: pmu\ntask A; open e = cycles on A",
        "requires: counters=4\ntask A; open e = cycles on A",
        "requires: breakpoints=4\ntask A; open e = mem:0x10/4:w on A",
        "requires: lab\ntask A on cpu3; open e = cycles on cpu3; offline cpu2",
        "sim only: because\ntask A on cpu1; open e = cycles on A; fault alloc 1; expect e.count == truth",
        "requires: pmu\ntask A; open e = instructions on A; expect e.count ~ truth within 1%",
        "requires: root\nopen e = cpu-clock on cpu0; expect e.count ~ truth within 1%",
    ] {
        assert_eq!(problems(text), [], "{text}");
    }
}

#[test]
fn the_issues_example_runs_on_the_simulator() {
    let text = "machine cpus=2 counters=4
task A
open e1, e2 = cycles, instructions on A
run A 10ms on cpu0; migrate A to cpu1; run A 10ms
fork A as C; run C 5ms; exit C
expect e1.count == truth; expect e1.running <= e1.enabled
";
    assert!(problems(text).iter().all(|problem| problem.bearing == Bearing::OffTheSimulator));
    assert_eq!(needs(&read(text)).to_string(), "pmu, cpus=2");
}

#[test]
fn needs_are_what_is_said_and_what_is_implied() {
    for (text, wanted) in [
        ("task A", ""),
        ("requires: cpus=4\ntask A on cpu1", "cpus=4"),
        ("requires: breakpoints=4\ntask A; open e = mem:0x10/4:w on A", "breakpoints=4"),
        ("requires: counters=4\ntask A; open e = cycles on A", "counters=4"),
        ("task A; exec A setuid; open e = cycles system-wide cpus 0-5", "pmu, cpus=6, root"),
    ] {
        assert_eq!(needs(&read(text)).to_string(), wanted, "{text}");
    }
}
