//! Reports as they are printed.

use super::report::{ChainShare, HitRow, TargetReport, WatchReport};
use super::resolver::{AddressKind, Resolver};
use super::{json, table, trace};
use crate::style::{Color, Grouping, Style};
use pmux::symbol::{Mapping, ResolvedAddress, ResolvedFrame};
use pmux::watch::{Hit, HitSide, HitValue};
use pmux::{Count, Nanos};
use std::sync::Arc;

const PLAIN: Style = Style { color: Color::Off, width: Some(100), grouping: Grouping::Thousands };
const MS: u64 = 1_000_000;

fn place(function: &str, line: u32) -> Arc<ResolvedAddress> {
    let (function, file) = (Some(function.into()), Some("/src/bank/writer.rs".into()));
    let frames = vec![ResolvedFrame { function, offset: None, file, line: Some(line) }];
    let module = Some("/bin/writer".into());
    Arc::new(ResolvedAddress { address: 0x40_1234, frames, module, module_address: 0x1234 })
}

fn row(hits: u64, command: &str, tid: i32, at: &str, line: u32) -> HitRow {
    let mut row = HitRow::new(100, tid, Nanos(2 * MS), place(at, line));
    row.hits = hits;
    row.last = Nanos(1500 * MS);
    row.command = command.to_owned();
    row.cpus = [0, 1, 2, 5].into();
    row.callers = vec![place("teller", 30), Arc::new(ResolvedAddress::unknown(0x7f00_1234))];
    row
}

/// The process may have become another program before a record of its mappings is read: what it was is not asked for again.
#[test]
fn a_mapping_that_is_told_is_added_to_what_is_known() {
    let own = std::process::id().cast_signed();
    let maps = pmux::server_api::Proc::system().maps(own).unwrap();
    let code = maps.iter().find(|mapping| mapping.rights.execute && mapping.file().is_some()).unwrap();
    // Where nothing is mapped in truth.
    let reported = Mapping { start: 0x10000, end: 0x10000 + (code.end - code.start), ..code.clone() };
    let mut resolver = Resolver::default();
    resolver.remember(own);
    assert_eq!(resolver.place(own, 0x10000, AddressKind::Instruction).module, None);
    resolver.mapped(own, Some(reported));
    assert!(resolver.place(own, 0x10001, AddressKind::Instruction).module.is_some());
}

fn sample() -> WatchReport {
    let mut odd = row(2, "od\u{1b}d", 104, "forget", 21);
    odd.that_way = ChainShare::Several(1);
    odd.value = Some(0);
    WatchReport {
        targets: vec![TargetReport {
            name: "balance:w".to_owned(),
            about: "0x4040a0, 8 bytes, writes".to_owned(),
            count: Count { value: 1_003, enabled: Nanos(MS), running: Nanos(MS) },
            hits_in_rows: 1_002,
            rows: vec![row(1_000, "teller", 100, "pay_in", 12), odd],
        }],
        span: Nanos(2_000 * MS),
        notes: vec!["1 hit came too fast".to_owned()],
        detailed: true,
        most_rows: 20,
        filtered: false,
    }
}

#[test]
fn a_page() {
    assert_eq!(
        table::compose(&sample(), PLAIN),
        "
 balance:w (0x4040a0, 8 bytes, writes): 1,003 hits in 2.000 s

  hits   share  thread     id       CPU     first s    last s  where
 1,000  99.8 %  teller     100      0-2,5  0.002000  1.500000  pay_in at writer.rs:12
                                                               ← teller writer.rs:30
                                                               ← [unknown] (0x7f001234)
     2   0.2 %  od\\u{1b}d  100/104  0-2,5  0.002000  1.500000  forget at writer.rs:21  (then 0)
                                                               ← teller writer.rs:30
                                                               ← [unknown] (0x7f001234)
                                                               (1 this way)

 # 1 hit came too fast
"
    );
}

#[test]
fn few_rows_are_shown_and_the_rest_is_a_number() {
    let mut report = sample();
    report.most_rows = 1;
    let text = table::compose(&report, PLAIN);
    assert!(text.contains("\n \u{2026} 2 hits in 1 more row (-v)\n"), "{text}");
    assert!(!text.contains("forget"), "{text}");
}

#[test]
fn what_was_not_watched_all_the_time_is_a_lower_bound() {
    let mut report = sample();
    report.targets[0].count = Count { value: 10, enabled: Nanos(4 * MS), running: Nanos(MS) };
    let text = table::compose(&report, PLAIN);
    assert!(text.contains("at least 10 hits (it was watched for 25.0 % of the time) in 2.000 s"), "{text}");
    report.targets[0].count = Count { value: 0, enabled: Nanos(4 * MS), running: Nanos(0) };
    let text = table::compose(&report, PLAIN);
    assert!(text.contains("never watched"), "{text}");
    report.targets[0].about.clear();
    assert!(table::compose(&report, PLAIN).contains("balance:w: never found"));
}

#[test]
fn counts_alone_are_a_line_each() {
    let mut report = sample();
    (report.detailed, report.notes) = (false, Vec::new());
    let page = "\n balance:w (0x4040a0, 8 bytes, writes): 1,003 hits in 2.000 s\n\n";
    assert_eq!(table::compose(&report, PLAIN), page);
}

#[test]
fn colour_changes_no_column() {
    let colour = Style { color: Color::On, ..PLAIN };
    let painted = table::compose(&sample(), colour);
    assert_eq!(crate::without_colour(&painted), table::compose(&sample(), PLAIN));
}

#[test]
fn objects_have_all_fields() {
    let text = json::compose(&sample());
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["row", "row", "target", "note"]);
    assert_eq!(lines[0]["where"]["function"], "pay_in");
    assert_eq!(lines[0]["where"]["line"], 12);
    assert_eq!(lines[0]["callers"][1]["function"], serde_json::Value::Null);
    assert_eq!(lines[0]["value"], serde_json::Value::Null);
    assert_eq!((&lines[2]["count"], &lines[2]["share"]), (&1003.into(), &1.0.into()));
}

fn hit(value: HitValue) -> Hit {
    Hit {
        at: Nanos(0),
        pid: 100,
        tid: 104,
        cpu: 1,
        watch_target: 0,
        address: 0x4040a0,
        ip: 0x40_1235,
        side: HitSide::User,
        callers: Box::new([0x40_1000]),
        value,
        stands_for: 1,
    }
}

#[test]
fn lines_of_hits() {
    let (here, callers) = (place("forget", 21), [place("teller", 30)]);
    let line = |value: HitValue, verbose: bool| {
        let (hit, at, command, place, callers) = (&hit(value), Nanos(1_234_567_890), "odd", &*here, &callers);
        trace::line(&trace::TraceLine { hit, at, target: "", len: 8, command, place, callers, verbose }, PLAIN)
    };
    let read = HitValue::Read { now: 0, before: Some(41), late: Nanos(38_000) };
    assert_eq!(
        line(read, false),
        "    1.234567  odd/104               cpu 1   41 → 0  forget at writer.rs:21 ← teller writer.rs:30\n"
    );
    assert!(line(read, true).contains("41 → 0 (seen 38 us later)"));
    assert!(line(HitValue::Overtaken, false).contains("? (overtaken)  forget"));
    let first = HitValue::Read { now: 7, before: None, late: Nanos(0) };
    assert!(line(first, false).contains(" = 7  forget"));
    // Seen at the hit: behind the access, or in front of it.
    assert!(line(HitValue::AtHit { now: 0, before: Some(41) }, true).contains(" 41 → 0  forget"));
    assert!(line(HitValue::AtHit { now: 7, before: None }, true).contains(" = 7  forget"));
    let found = |after| HitValue::Found { before: 41, after };
    assert!(line(found(Some((0, Nanos(9_000)))), true).contains(" 41 → 0 (seen 9 us later)  forget"));
    assert!(line(found(None), false).contains(" 41 → ?  forget"));
}
