//! Tests of the derived metrics.

use super::*;
use crate::stat::format::sample;
use crate::stat::report::Value;
use crate::style::Ink;

fn unit_of(report: &StatReport, row: usize) -> (String, &'static str) {
    let metrics = Metrics::new(report);
    match metrics.of(report, &report.rows[row]).first {
        MetricCell::Known(metric) => (metric.padded(), metric.unit),
        MetricCell::Unavailable(unit) => ("-".to_owned(), unit),
        MetricCell::None => (String::new(), ""),
    }
}

fn check(report: &StatReport, expected: &[(&str, &str)]) {
    for (row, &(number, unit)) in expected.iter().enumerate() {
        assert_eq!(unit_of(report, row), (number.to_owned(), unit), "row {row}");
    }
}

/// The report of these events, each with its count, and the number and the unit of its metric.
fn checked(rows: &[(&str, f64, &str, &str)]) -> StatReport {
    let counts: Vec<_> = rows.iter().map(|&(name, count, ..)| (name, count)).collect();
    let report = sample::counted(&counts);
    check(&report, &rows.iter().map(|&(.., number, unit)| (number, unit)).collect::<Vec<_>>());
    report
}

#[test]
fn the_usual_metrics() {
    let report = checked(&[
        ("task-clock", 2e9, "   2.000", "CPUs utilized"),
        ("cycles", 6e9, "   3.000", "GHz"),
        ("instructions", 9e9, "   1.50 ", "insn per cycle"),
        ("branches", 1e9, " 500.000", "M/sec"),
        ("branch-misses", 3e8, "  30.00%", "of all branches"),
        ("page-faults", 5e3, "   2.500", "K/sec"),
        ("stalled-cycles-frontend", 1.2e9, "  20.00%", "frontend cycles idle"),
        ("stalled-cycles-backend", 4.8e9, "  80.00%", "backend cycles idle"),
    ]);
    let metrics = Metrics::new(&report);
    let second = metrics.of(&report, &report.rows[2]).second;
    let text = second.map(|metric| (metric.bare(), metric.unit));
    assert_eq!(text, Some(("0.53".to_owned(), "stalled cycles per insn")));
    let ink = |row: usize| metrics.of(&report, &report.rows[row]).first.known().map(|metric| metric.ink);
    assert_eq!([4, 6, 7, 2].map(ink), [Ink::Bad, Ink::Notice, Ink::Bad, Ink::Plain].map(Some));
}

#[test]
fn every_cache_has_its_own_divisor() {
    checked(&[
        ("L1-dcache-loads", 100.0, "", ""),
        ("L1-dcache-load-misses", 1.0, "   1.00%", "of all L1-dcache accesses"),
        ("L1-icache-loads", 100.0, "", ""),
        ("L1-icache-load-misses", 2.0, "   2.00%", "of all L1-icache accesses"),
        ("dTLB-loads", 100.0, "", ""),
        ("dTLB-load-misses", 3.0, "   3.00%", "of all dTLB cache accesses"),
        ("iTLB-loads", 100.0, "", ""),
        ("iTLB-load-misses", 4.0, "   4.00%", "of all iTLB cache accesses"),
        ("LLC-loads", 100.0, "", ""),
        ("LLC-load-misses", 5.0, "   5.00%", "of all LL-cache accesses"),
        ("cache-references", 100.0, "", ""),
        ("cache-misses", 6.0, "   6.000 %", "of all cache refs"),
    ]);
}

#[test]
fn a_missing_half_is_named_and_not_guessed() {
    let report =
        sample::counted(&[("cycles", 6e9), ("branch-misses", 3.0), ("page-faults", 7.0), ("LLC-load-misses", 3.0)]);
    check(&report, &[("-", "Ghz"), ("-", "of all branches"), ("", ""), ("-", "of all LL-cache accesses")]);
    let only = sample::counted(&[("instructions", 5.0)]);
    check(&only, &[("-", "insn per cycle")]);
}

#[test]
fn contexts_do_not_mix_except_for_clocks() {
    let mut report = sample::counted(&[("task-clock", 1e9), ("cycles", 6e9), ("instructions", 9e9)]);
    report.events[2].name = "instructions:u".to_owned();
    check(&report, &[("   1.000", "CPUs utilized"), ("   6.000", "GHz"), ("-", "insn per cycle")]);
    report.events[1].name = "cycles:pu".to_owned();
    assert_eq!(unit_of(&report, 2).0, "   1.50 ");
    assert_eq!(unit_of(&report, 1).0, "   6.000");
    assert_eq!(contexts("sched:sched_switch"), 0);
    assert_eq!(contexts("cpu/event=0x3c/k"), contexts("cycles:k"));
    assert_ne!(contexts("cycles:k"), contexts("cycles:u"));
}

#[test]
fn places_do_not_mix() {
    let mut report = sample::counted(&[("task-clock", 1e9), ("page-faults", 8.0)]);
    report.rows[0].scope.cpu = Some(0);
    report.rows[1].scope.cpu = Some(1);
    assert_eq!(unit_of(&report, 1), (String::new(), ""));
    report.rows[1].scope.cpu = Some(0);
    assert_eq!(unit_of(&report, 1), ("   8.000".to_owned(), "/sec"));
}

#[test]
fn what_was_not_counted_is_no_divisor() {
    let mut report = sample::counted(&[("cycles", 6e9), ("instructions", 9e9)]);
    report.rows[0].value = Value::NotCounted { enabled_ns: 5 };
    assert_eq!(unit_of(&report, 1), ("-".to_owned(), "insn per cycle"));
    report.rows[1].value = Value::NotSupported;
    assert_eq!(unit_of(&report, 1), (String::new(), ""));
}

#[test]
fn two_clocks_give_their_mean() {
    let report = sample::counted(&[("task-clock", 1e9), ("cpu-clock", 3e9), ("page-faults", 8.0)]);
    assert_eq!(unit_of(&report, 2), ("   4.000".to_owned(), "/sec"));
}
