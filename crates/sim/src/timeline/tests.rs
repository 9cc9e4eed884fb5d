//! Pages of whole runs.

use super::*;
use crate::machine::Trace;
use crate::scenario::parse;
use crate::scenario::run::{RunOptions, run};
use proptest::prelude::*;

fn timeline(text: &str) -> Timeline {
    let scenario = parse(text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
    let outcome = run(&scenario, &RunOptions { timeline: Trace::On, ..RunOptions::default() });
    outcome.timeline.unwrap_or_else(|| panic!("{:?}", outcome.result))
}

fn shown(text: &str) -> String {
    render(&timeline(text))
}

#[test]
fn who_was_on_when_and_what_it_counted() {
    let page = shown(
        "machine cpus=2 counters=2\ntask A\nopen a, b, c = cycles, instructions, branches on A\n\
         run A 6ms on cpu1\nexpect a.count == truth\noffline cpu1\nwait 5ms\n",
    );
    let expected = "\
2 CPUs · 2 counters of 48 bits · a tick every 1 ms · seed 0

     cpu1
 ms  task     #0  #1
     ───────────────
  0  ▸ task A
     ▸ open a, b, c = cycles, instructions, branches on A
     ▸ run A 6ms on cpu1
  0  A        a   b
  1  │        c   │
  2  │        │   a
  3  │        b   │
  4  │        │   c
  5  │        a   │
     ✓ 1 expectation
  6  ▸ offline cpu1
     ▸ wait 5ms
  6  offline  ·   ·
 11  end

event  counts        where       count      estimate  enabled   ran
a      cycles        on A   12,000,000  ~ 18,000,000     6 ms  67 %  ███████░░░
b      instructions  on A   16,000,000  ~ 24,000,000     6 ms  67 %  ███████░░░
c      branches      on A    3,200,000   ~ 4,800,000     6 ms  67 %  ███████░░░

│ goes on   · no task   #0, #1, … counters of the CPU
nothing ran or was counted on cpu0
";
    assert!(page == expected, "{page}");
}

#[test]
fn cpus_that_are_alike_stand_together_and_each_is_named() {
    let page = shown("machine cpus=64\ntask A on cpu63\nopen s = cycles system-wide\noffline cpu9\nrun A 1ms\n");
    assert!(
        page.contains("cpus 0-8,10-62") && page.contains("cpu63") && page.contains("not counted on cpu9 for 1 ms"),
        "{page}"
    );
    let odd: String = (0..64).step_by(2).map(|cpu| format!("task T{cpu} on cpu{cpu}\n")).collect();
    let opens: String = (0..64).step_by(2).map(|cpu| format!("open e{cpu} = cpu-clock on cpu{cpu}\n")).collect();
    let page = shown(&format!("machine cpus=64\n{odd}{opens}wait 1ms\n"));
    assert!((0..64).step_by(2).all(|cpu| page.contains(&format!("cpu{cpu}"))), "{page}");
}

#[test]
fn what_failed_is_told_where_it_failed() {
    let page = shown("task A\nopen e = cycles on A\nrun A 1ms\nexpect e.count == 7\n");
    let lines: Vec<&str> = page.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.ends_with("✗ expect e.count == 7"));
    let below = at.and_then(|at| lines.get(at + 1)).copied().unwrap_or_default();
    assert_eq!(below, "expected e.count == 7, but e.count is 3000000", "{page}");
}

/// What was refused stands where it happened: below a statement that takes no time, or below its row.
#[test]
fn doorbells_refusals_and_hand_overs_are_told() {
    let page = shown(
        "machine cpus=1 counters=1\ntask A\nopen f = page-faults on A\nfault start 1\ntouch A 1 pages\n\
         open c = cycles on A\nfault program 1\nrun A 2ms\nfault storm cpu0 12\n",
    );
    let lines: Vec<&str> = page.lines().map(str::trim).collect();
    let below = |statement: &str| lines.iter().position(|line| line.ends_with(statement)).map(|at| lines[at + 1]);
    assert_eq!(below("▸ touch A 1 pages"), Some("! refused on cpu0: the counter of f does not start"), "{page}");
    assert_eq!(below("▸ fault storm cpu0 12"), Some("12 interrupts"), "{page}");
    let row = lines.iter().position(|line| line.ends_with("run A 2ms")).map(|at| lines[at + 2]);
    assert_eq!(row, Some("! refused on cpu0: no counter for c"), "{page}");

    let page = shown(
        "machine cpus=2 callers=own-cpu counters=2\ntask A on cpu1\nopen s = cycles system-wide\nrun A 1ms\n\
         disable s\nclose s\n",
    );
    assert!(page.contains("1 doorbell\n") && page.contains("doorbell: another CPU wants"), "{page}");

    let clones = "machine cpus=1 counters=2\ntask A\nopen c = cycles on A inherit\nfork A as C\n";
    let page = shown(&format!("{clones}run A, C 3ms\nfault hand-over 2\nrun A, C 3ms\n"));
    let refused = "! refused on cpu0: c can't be handed over, and is programmed anew";
    assert!(page.contains("»c") && page.contains(refused), "{page}");
    let handed = |text: &str| {
        let holds = timeline(text).holds;
        (holds.len(), holds.iter().filter(|hold| hold.began == Began::HandedOver).count())
    };
    assert_eq!(handed(&format!("{clones}run A, C 2ms\n")), (4, 3));
    // Who comes alone is handed nothing, though it be the same counter at the same moment.
    assert_eq!(handed(&format!("{clones}run A 1ms\nrun C 1ms\n")), (2, 0));
}

/// Rows that are left out are counted, with what happened in them.
#[test]
fn many_rows_are_left_out_in_the_middle() {
    let page = shown("machine cpus=1 counters=1 width=20\ntask A\nopen e, f = cycles, branches on A\nrun A 37ms\n");
    assert!(page.contains("\n  ⋮  … 13 rows more, until 25, with "), "{page}");
    assert_eq!(page.lines().filter(|line| line.contains('│') && line.starts_with(' ')).count(), 22, "{page}");
}

#[test]
fn holds_are_as_long_as_events_ran() {
    let timeline = timeline(
        "machine cpus=2 counters=2 width=20\ntask A\nopen a, b, c = cycles, instructions, branches on A inherit\n\
         open s = cycles system-wide\nfork A as C\nrun A, C 20ms\nrun C 7ms on cpu1\n",
    );
    let ran: u64 = timeline.events.iter().filter_map(|event| event.count).map(|count| count.running.0).sum();
    let held: u64 = timeline.holds.iter().map(|hold| hold.to.since(hold.from).0).sum();
    assert_eq!(held, ran);
    assert!(timeline.marks.iter().any(|mark| mark.what == Marked::Interrupt));
    assert!(timeline.holds.len() < 200, "wraps do not tear holds apart: {}", timeline.holds.len());
}

/// Whatever happened, it is laid out.
fn any_timeline() -> impl Strategy<Value = Timeline> {
    let hold =
        (0_usize..5, proptest::option::of(0_usize..3), 0_u32..6, proptest::option::of(0_u32..4), 0_u64..90, 1_u64..20);
    let turn = (0_usize..3, 0_u32..6, 0_u64..90, 1_u64..20);
    let statement = (0_u64..30, "[a-z ]{0,60}", any::<bool>(), any::<bool>());
    let lists = (
        proptest::collection::vec(hold, 0..40),
        proptest::collection::vec(turn, 0..20),
        proptest::collection::vec(statement, 0..8),
    );
    lists.prop_map(|(holds, turns, statements)| {
        let (mut free_at, mut busy) = (std::collections::BTreeMap::new(), std::collections::BTreeMap::new());
        let holds = holds.into_iter().map(|(event, task, cpu, counter, gap, len)| {
            let free = free_at.entry((cpu, counter, counter.is_none().then_some(event))).or_insert(0);
            let from = *free + gap;
            *free = from + len;
            let (from, to) = (Nanos(from), Nanos(from + len));
            let began = if gap == 0 { Began::HandedOver } else { Began::Programmed };
            Hold { event, task, cpu: CpuId(cpu), pmu: 0, counter, from, to, began }
        });
        let mut holds: Vec<Hold> = holds.collect();
        holds.sort_by_key(|hold| hold.from);
        let turns = turns.into_iter().map(|(task, cpu, gap, len)| {
            let free = busy.entry(cpu).or_insert(0);
            let from = *free + gap;
            *free = from + len;
            Turn { task, cpu: CpuId(cpu), from: Nanos(from), to: Nanos(from + len) }
        });
        let turns: Vec<Turn> = turns.collect();
        let mut now = 0;
        let statements: Vec<StatementSpan> = statements
            .into_iter()
            .map(|(len, text, expectation, failed)| {
                let (from, to) = (Nanos(now), Nanos(now + if expectation { 0 } else { len }));
                now = to.0;
                let failure = failed.then(|| "it is not so".to_owned());
                StatementSpan { from, to, text, expectation, failure, note: None, marks_by_then: 0 }
            })
            .collect();
        let names =
            |prefix: &str, count: usize| (0..count).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
        let events =
            names("event", 5).into_iter().map(|name| EventFigures { name, ..EventFigures::default() }).collect();
        // Within the statement that lasts then, or behind the last one.
        let statement = statements.iter().position(|it: &StatementSpan| it.to > Nanos(now / 2));
        let marks = vec![Mark { at: Nanos(now / 2), cpu: None, statement, what: Marked::Lost(1, 3) }];
        Timeline {
            cpus: 7,
            end: Nanos(now + 5),
            statements,
            tasks: names("T", 3),
            events,
            turns,
            holds,
            marks,
            ..Timeline::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_timeline_is_laid_out(timeline in any_timeline()) {
        let text = render(&timeline);
        prop_assert!(text.contains("3 occurrences of event1 lost") || text.contains("1 remark"), "{text}");
        for statement in timeline.statements.iter().filter(|statement| !statement.expectation) {
            prop_assert!(text.contains(statement.text.trim_end()));
        }
    }
}
