//! What is said of a text that can't be read.

use super::super::{parse, render};

/// Each text, and the place and a part of what is said of it.
#[test]
fn every_error_says_where_what_was_expected_and_what_was_found() {
    for (text, place, said) in [
        ("opne e1 = cycles on A", "1:1", "expected a statement, found `opne`\n"),
        ("opne e1 = cycles on A", "1:1", "did you mean `open`?"),
        ("task A\n  run A", "2:8", "expected a time, such as 10ms, found the end of the file"),
        ("task", "1:5", "expected the name of a task, found the end of the file"),
        ("run A 10", "1:7", "`10` has no unit of time"),
        ("run A 10", "1:7", "10ns, 10us, 10ms or 10s"),
        ("run A 10m", "1:7", "`m` is no unit of time"),
        ("run A 0.5ns", "1:7", "no whole number of nanoseconds"),
        ("run A 10ms on A", "1:15", "expected a CPU, such as cpu0, found `A`"),
        ("run A 10ms rate cycles=2/min", "1:26", "expected a time, such as ns or 10us, found `min`"),
        ("run A 10ms rate cycles=2/0s", "1:26", "can't be per no time"),
        ("run run 10ms", "1:5", "`run` is a word of the language"),
        ("task cpu3", "1:6", "`cpu3` is a word of the language"),
        ("task my-task", "1:6", "a name has letters, digits and `_`"),
        ("migrate A cpu1", "1:11", "expected `to`, found `cpu1`"),
        ("touch A 20", "1:11", "expected `pages`, found the end of the file"),
        ("touch A 0 pages", "1:9", "`0` is out of range: a number of pages is 1 to"),
        ("access A here write", "1:10", "expected an address, such as 0x1000, found `here`"),
        ("access A 0x10 wirte", "1:15", "did you mean `write`?"),
        ("fork A C", "1:8", "expected `as`, found `C`"),
        ("offline 1", "1:9", "expected a CPU, such as cpu0, found `1`"),
        ("offline cpu5000", "1:9", "`5000` is out of range: the number of a CPU is 0 to 1023"),
        ("enable {g1, g2}", "1:11", "one event stands for its whole group: {g1}"),
        ("modify e mem:0x10", "1:10", "expected `to`, found `mem`"),
        ("modify e to cycles", "1:13", "expected a breakpoint, found `cycles`"),
        ("modify e to mem:0x10/x", "1:13", "a length in bytes"),
        ("wait 5ms fails ENOSPC", "1:10", "can't be meant to fail"),
        ("close e fails ENOSPACE", "1:15", "did you mean `ENOSPC`?"),
        ("open e1, e2 = cycles on A", "1:6", "expected as many events as names, found 1 for 2"),
        ("open e = on A", "1:13", "expected `on` or `system-wide`, found `A`"),
        ("open e = 5 on A", "1:10", "expected an event, found `5`"),
        ("open e = cycles", "1:16", "expected `on` or `system-wide`, found the end of the file"),
        ("open e = cycles on A inherti", "1:22", "did you mean `inherit`?"),
        ("open e = cycles on A pinned pinned", "1:29", "`pinned` is said twice"),
        ("open e = mem:0x10g0 on A", "1:10", "expected an address in `mem:0x10g0`"),
        ("open e = mem:0x1000/8:rwx on A", "1:10", "one of the accesses r, w, rw and x"),
        ("open e = mem:0x1000/eight on A", "1:10", "a length in bytes"),
        ("open e = cycles on cpus 3-1", "1:25", "3-1 is no range"),
        ("open e fails ENOSPC", "1:8", "open e = cycles on A fails ENOSPC"),
        ("expect open e = cycles on A", "1:28", "expected `fails` and an error"),
        ("expect e.cuont == 1", "1:10", "did you mean `count`?"),
        ("expect e.count = 1", "1:16", "did you mean `==`?"),
        ("expect e.count == 1 == 2", "1:21", "expected the end of the statement, found `==`"),
        ("expect e.count ~ 1", "1:19", "expected `within`, found the end of the file"),
        ("expect e.count ~ 1 within", "1:26", "expected a tolerance, such as 2%, 5ms or 10"),
        ("expect e == 1", "1:10", "say what of it: e.count"),
        ("expect 1 == e.state", "1:13", "a state stands alone on the left side"),
        ("expect e.state == actve", "1:19", "did you mean `active`?"),
        ("expect e.state == off|off", "1:23", "this state is said twice"),
        ("expect e.children[C] == 1", "1:22", "expected `.`, found `==`"),
        ("expect (e.count == 1", "1:17", "expected `)`, found `==`"),
        ("fault aloc 1", "1:7", "did you mean `alloc`?"),
        ("machine cpus=2 cpus=3", "1:16", "`cpus` is said twice"),
        ("machine cpu=2", "1:9", "did you mean `cpus`?"),
        ("machine cpus=0", "1:14", "`0` is out of range: the number of CPUs is 1 to 1024"),
        ("machine constrained=branches:3-1", "1:32", "`1` is out of range"),
        ("machine breakpoints=6x+4", "1:24", "such as 4rw, found `4`"),
        ("machine tick=0ms", "1:14", "can't be zero"),
        ("requires: pmu, brakpoints", "1:16", "did you mean `breakpoints`?"),
        ("requires: pmu, pmu", "1:16", "`pmu` is said twice"),
        ("requires pmu", "1:10", "expected `:`, found `pmu`"),
        ("sim only:", "1:10", "expected a reason"),
        ("task A\nmachine cpus=2", "2:1", "must come before the first statement"),
        ("task A B", "1:8", "expected the end of the statement, found `B`"),
        ("täsk A", "1:1", "expected a statement, found `t`"),
        ("?", "1:1", "expected a statement, found `?`"),
    ] {
        let Err(problems) = parse(text) else { panic!("{text} was read") };
        let shown = render("x.scn", text, &problems);
        assert!(shown.starts_with(&format!("x.scn:{place}: ")), "{text}\nwanted: {place}\n{shown}");
        assert!(shown.contains(said), "{text}\nwanted: {said}\n{shown}");
    }
}

#[test]
fn one_mistake_does_not_hide_the_next() {
    let text = "task A; opne e = cycles on A; run A 10\nexpect e.cuont == 1 # so\ntask B\nwait\n";
    let Err(problems) = parse(text) else { panic!("it was read") };
    let places: Vec<_> = problems.iter().map(|problem| (problem.place.line, problem.place.column)).collect();
    assert_eq!(places, [(1, 9), (1, 37), (2, 10), (4, 5)]);
}

#[test]
fn an_error_as_people_see_it() {
    let text = "# Shows nothing.\ntask A\nrun A 10ms on cpux\n";
    let Err(problems) = parse(text) else { panic!("it was read") };
    assert_eq!(
        render("a.scn", text, &problems),
        "a.scn:3:15: expected a CPU, such as cpu0, found `cpux`\n  |\n3 | run A 10ms on cpux\n  |               ^^^^\n"
    );
}
