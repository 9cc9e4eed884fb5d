//! What is printed of plans.

use super::chart::Signs;
use super::planned_machine::PlannedMachine;
use super::{Planned, chart, data, messages, page};
use crate::options::plan::PlanOptions;
use crate::style::{Color, Grouping, Style};

const PLAIN: Style = Style { color: Color::Off, width: None, grouping: Grouping::None };

fn ascii() -> Signs {
    Signs::of_locale(|_| None)
}

fn planned_on(options: &PlanOptions) -> Planned {
    let turns = options.ticks.map(|ticks| ticks as usize);
    let (target, request) = PlannedMachine::find(options).unwrap();
    let plan = pmux_plan::plan(&target.machine, &request).unwrap();
    Planned { target, plan, turns }
}

fn with_counters(counters: u8, events: &str) -> PlanOptions {
    let events = vec![events.to_owned()];
    PlanOptions { events, counters: Some(counters), cpus: Some(4), ..PlanOptions::default() }
}

fn planned(counters: u8, events: &str) -> Planned {
    planned_on(&with_counters(counters, events))
}

#[track_caller]
fn answers(counters: u8, events: &str, expected: &[&str]) {
    assert_eq!(messages::answer(&planned(counters, events)), expected);
}

#[test]
fn the_answer_is_a_sentence() {
    let eight = "cycles,cycles,cycles,instructions,branches,r1,r2,r3";
    let turns = "8 events need 8 counters (6 if equal ones shared one), 6 are there: they take turns, each is seen 75 % \
                 of the time. If equal events shared a counter, all would be on at once.";
    answers(6, eight, &[turns]);
    let all = "8 events need 8 counters (6 if equal ones shared one), 8 are there: all are seen all the time.";
    answers(8, eight, &[all]);
    answers(1, "cycles", &["1 event needs 1 counter, 1 is there: it is seen all the time."]);
    answers(0, "cycles", &["1 event needs 1 counter, 0 are there: it can never be counted."]);
    let turns = "3 events need 3 counters, 2 are there: they take turns, each is seen 66.67 % of the time.";
    answers(2, "r1,r2,r3", &[turns]);
    let uneven =
        "3 events need 3 counters, 2 are there: they take turns and are seen between 50 % and 100 % of the time.";
    answers(2, "r1:D,r2,r3", &[uneven]);
    let some = "4 events need 4 counters, 2 are there: 3 can never be counted, the other one is seen all the time.";
    answers(2, "{r1,r2,r3},r4", &[some]);
    let software = "2 events need no counter: they are seen all the time.";
    answers(1, "page-faults,cs", &[software]);
    let grouped = "1 event needs no counter: it is seen with its group.";
    let turns = "2 events need 2 counters, 1 is there: they take turns, each is seen 50 % of the time.";
    answers(1, "{cycles,cs},r1", &[turns, grouped]);
    let every_cpu = PlanOptions { all_cpus: true, ..with_counters(6, "r1,r2,r3") };
    assert_eq!(messages::answer(&planned_on(&every_cpu))[1], "On 4 CPUs that makes 12 kernel events.");
}

#[test]
fn breakpoints_need_registers() {
    let five = "mem:0x10:w,mem:0x20:w,mem:0x30:w,mem:0x40:w,mem:0x50:w";
    let some =
        "5 breakpoints need 5 debug registers, 4 are there: 1 can never be counted, the others are seen all the time.";
    answers(1, five, &[some]);
    let page = page::compose(&planned(1, five), PLAIN, ascii());
    let why = "mem:0x50:w: the debug registers are taken by mem:0x10:w, mem:0x20:w, mem:0x30:w and mem:0x40:w, and are never \
               shared in time";
    assert!(page.ends_with(&format!("\nnever\n  {why}\n")), "{page}");
}

#[test]
fn a_page_has_the_answer_the_events_and_the_turns() {
    let page = page::compose(&planned(2, "cycles,{instructions,page-faults},cycles,r1:D"), PLAIN, ascii());
    let expected = "\
4 events need 4 counters (3 if equal ones shared one), 2 are there: they take turns and are seen between 33.33 % and 100 % \
of the time.
1 event needs no counter: it is seen with its group.

    event         group  counter   share          note
 1  cycles        -      1 of cpu  33.33 % (1/3)
 2  instructions  #1     1 of cpu  33.33 % (1/3)
 3  page-faults   #1     none      33.33 % (1/3)
 4  cycles        -      1 of cpu  33.33 % (1/3)  equals 1
 5  r1:D          -      1 of cpu  100 %          pinned

3 turns, and then again from the first
 1  cycles        #..
 2  instructions  .#.
 3  page-faults   .#.
 4  cycles        ..#
 5  r1:D          ###
";
    assert_eq!(page, expected);
    let blocks = Signs::of_locale(|_| Some("C.UTF-8".to_owned()));
    let drawn = page::compose(&planned(1, "cycles,r1"), PLAIN, blocks);
    assert!(drawn.ends_with(" 1  cycles  █·\n 2  r1      ·█\n"), "{drawn}");
}

#[test]
fn without_waiting_events_there_is_no_chart() {
    let page = page::compose(&planned(4, "cycles,page-faults"), PLAIN, ascii());
    assert!(page.ends_with(" 2  page-faults  -      none      100 %\n"), "{page}");
    let asked = PlanOptions { ticks: Some(3), ..with_counters(4, "cycles,page-faults") };
    let page = page::compose(&planned_on(&asked), PLAIN, ascii());
    assert!(page.ends_with("\n3 turns; they repeat after 1\n 1  cycles       ###\n"), "{page}");
}

#[test]
fn reasons_are_given_once_for_each_group() {
    let page = page::compose(&planned(2, "{r1,r2,r3},n{r4,r5,r6}:W,r7:D,r8:D"), PLAIN, ascii());
    let broken = "broken up: the group needs 3 counters at once, and there are 2 for it";
    assert!(page.contains("  pinned") && page.contains(broken), "{page}");
    let never = page.split("\nnever\n").nth(1).unwrap();
    let expected = "  {r1,r2,r3} needs 3 counters at once, and there are 2 for it\n  \
                    r4: r7:D and r8:D are pinned: always on, and leave too little room\n";
    assert!(never.starts_with(expected), "{never}");
    assert_eq!(never.lines().count(), 4);
}

#[test]
fn colour_changes_no_column() {
    let coloured = Style { color: Color::On, ..PLAIN };
    for events in ["cycles,r1,r2", "{r1,r2,r3,r4},cycles,page-faults"] {
        let planned = planned(2, events);
        let page = page::compose(&planned, coloured, ascii());
        assert!(page.contains("\u{1b}[1m"));
        assert_eq!(crate::without_colour(&page), page::compose(&planned, PLAIN, ascii()));
    }
}

#[test]
fn a_chart_fits_the_page() {
    let names: Vec<String> = (0..60).map(|number| format!("r{:x}", number + 16)).collect();
    let planned = planned(6, &names.join(","));
    let chart = |turns, width| chart::draw(&planned.plan, turns, width, 10, ascii()).unwrap();
    assert_eq!((chart(None, Some(50)).turns, chart(None, Some(50)).all), (40, 60));
    assert_eq!(chart(None, Some(200)).turns, 60);
    assert_eq!(chart(Some(500), None).turns, 500, "an explicit count is kept, where there is no page");
    assert_eq!(chart(Some(500), Some(80)).turns, 70);
    let narrow = Style { width: Some(50), ..PLAIN };
    let page = page::compose(&planned, narrow, ascii());
    assert!(page.contains("\nthe first 40 of 60 turns\n"), "{page}");
}

#[test]
fn programs_get_exact_shares() {
    let planned = planned(2, "cycles,cycles,{r1,r2,r3}");
    let object: serde_json::Value = serde_json::from_str(&data::json(&planned)).unwrap();
    assert_eq!(object["events"][1]["equals"], 0);
    assert_eq!(object["events"][0]["share"], serde_json::json!({ "on": 1, "of": 1 }));
    assert_eq!(object["events"][2]["why"], "needs 3 counters at once, and there are 2 for it");
    assert_eq!(object["pmus"][0]["counters_needed"], 5);
    assert_eq!(object["pmus"][0]["counters_needed_if_equal_events_shared"], 4);
    assert_eq!(object["groups"][2]["events"], serde_json::json!([2, 3, 4]));
    assert_eq!(object["turns"], serde_json::json!([[0, 1]]));
    assert_eq!(object["machine"]["this_machine"], false);
    let lines = data::csv(&planned, ";");
    assert!(lines.starts_with("cycles;1;cpu;always;100.00;1;1;\ncycles;2;cpu;always;"), "{lines}");
    assert!(lines.ends_with("r3;3;cpu;never;0.00;0;1;needs 3 counters at once, and there are 2 for it\n"), "{lines}");
}

#[test]
fn profiles_have_as_many_cpus_as_they_are_told() {
    let machine = |cpus, counters| {
        let machine = Some("lab".to_owned());
        PlannedMachine::named(&PlanOptions { machine, cpus, counters, ..PlanOptions::default() }).unwrap().unwrap()
    };
    assert_eq!(machine(None, None).machine.cpus, 4);
    assert_eq!(machine(Some(9), None).machine.cpus, 9);
    assert_eq!(machine(None, Some(2)).title, "a machine of the profile lab with 2 general counters");
    let too_many =
        PlanOptions { machine: Some("intel-skylake".to_owned()), counters: Some(62), ..PlanOptions::default() };
    assert!(PlannedMachine::named(&too_many).unwrap_err().contains("at most 61 general counters"));
}
