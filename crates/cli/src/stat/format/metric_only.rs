//! Metrics without counts (`--metric-only`), in all three layouts.
//!
//! A line is a place (all, a CPU, a thread, a control group), a column an event whose
//! metric stands for itself: cycles, instructions, stalls and miss rates.
//!
//! **Invariant:** every line has one field for each head, so columns always belong to
//! their names, and each line of JSON is one valid object
//! (`{"cpu" : "0", "insn per cycle" : "1.50"}`, no key where there is no number). perf 6.1
//! leaves heads out, shifts fields when an event has no count, and writes JSON that no
//! parser accepts; later versions moved to the form used here.

use super::metric::Metric;
use super::metrics::Metrics;
use super::role::column_name;
use super::table::{self, HEADER_EVERY, TableWidths};
use super::{csv as csv_fields, json as json_fields, text};
use crate::stat::report::{ReportPeriod, RowScope, StatReport};
use crate::style::{Ink, Style};
use std::collections::HashMap;
use std::fmt::Write as _;

const COLUMN_WIDTH: usize = 20;

/// The metrics of a report arranged in lines and columns.
struct Grid {
    heads: Vec<String>,
    lines: Vec<(RowScope, Vec<Option<Metric>>)>,
}

impl Grid {
    fn of(report: &StatReport) -> Self {
        let metrics = Metrics::new(report);
        let mut column_of = vec![None; report.events.len()];
        let mut heads = Vec::new();
        // With one set of events for each cgroup, the copies of an event share a column.
        let mut known: HashMap<String, usize> = HashMap::new();
        for (event, column) in report.events.iter().zip(&mut column_of) {
            let Some(head) = column_name(event) else { continue };
            let next = heads.len();
            let at = if report.cgroups.is_empty() { next } else { *known.entry(head.clone()).or_insert(next) };
            if at == next {
                heads.push(head);
            }
            *column = Some(at);
        }
        let mut lines: Vec<(RowScope, Vec<Option<Metric>>)> = Vec::new();
        let mut line_of: HashMap<RowScope, usize> = HashMap::new();
        for row in &report.rows {
            let at = *line_of.entry(row.scope).or_insert_with(|| {
                lines.push((row.scope, vec![None; heads.len()]));
                lines.len() - 1
            });
            if let Some(column) = column_of.get(row.event).copied().flatten() {
                lines[at].1[column] = metrics.of(report, row).first.known();
            }
        }
        Self { heads, lines }
    }
}

fn wants_heads(report: &StatReport) -> bool {
    match report.period {
        ReportPeriod::Interval { number, .. } => number.is_multiple_of(HEADER_EVERY),
        ReportPeriod::Whole | ReportPeriod::Summary => true,
    }
}

pub(super) fn table(report: &StatReport, style: Style) -> String {
    let grid = Grid::of(report);
    let widths = TableWidths::of(report, style);
    let cgroup_width = report.cgroups.iter().map(|name| text::columns(name)).max();
    let column_widths: Vec<usize> = grid.heads.iter().map(|head| text::columns(head).max(COLUMN_WIDTH)).collect();
    let mut out = String::new();
    table::push_title(&mut out, report, style);
    if wants_heads(report) {
        match report.period {
            ReportPeriod::Interval { .. } => table::push_time_header(&mut out, report, &widths),
            ReportPeriod::Whole | ReportPeriod::Summary => table::push_scope_header(&mut out, report, &widths),
        }
        if let Some(width) = cgroup_width {
            let _ = write!(out, "{:<width$} ", "");
        }
        for (head, &width) in grid.heads.iter().zip(&column_widths) {
            style.paint(&mut out, Ink::Strong, &format!("{head:>width$} "));
        }
        text::trim_line_end(&mut out);
        out.push('\n');
    }
    for (scope, cells) in &grid.lines {
        table::push_moment(&mut out, report, style);
        table::push_scope(&mut out, report, &widths, *scope);
        if let Some(width) = cgroup_width {
            let name = text::visible(table::cgroup_name(report, *scope));
            let _ = write!(out, "{name:<width$} ");
        }
        for (cell, &width) in cells.iter().zip(&column_widths) {
            match cell {
                Some(metric) => {
                    let number = format!("{:>width$} ", metric.padded());
                    style.paint(&mut out, metric.ink, &number);
                }
                None => {
                    let _ = write!(out, "{:width$} ", "");
                }
            }
        }
        text::trim_line_end(&mut out);
        out.push('\n');
    }
    table::push_footer(&mut out, report, style);
    out
}

/// Returns a line of heads and a line for each place, every field followed by the separator.
pub(super) fn csv(report: &StatReport, separator: &str) -> String {
    let grid = Grid::of(report);
    let mut out = String::new();
    if wants_heads(report) {
        if matches!(report.period, ReportPeriod::Interval { .. }) {
            // The space is perf's; scripts look for it.
            let _ = write!(out, " time{separator}");
        }
        let first = grid.lines.first().map(|&(scope, _)| scope).unwrap_or_default();
        if first.cpu.is_some() {
            let _ = write!(out, "cpu{separator}");
        }
        if first.thread.is_some() {
            let _ = write!(out, "comm-pid{separator}");
        }
        if !report.cgroups.is_empty() {
            let _ = write!(out, "cgroup{separator}");
        }
        for head in &grid.heads {
            let _ = write!(out, "{head}{separator}");
        }
        out.push('\n');
    }
    for (scope, cells) in &grid.lines {
        csv_fields::push_moment(&mut out, report, separator);
        csv_fields::push_scope(&mut out, report, *scope, separator);
        if !report.cgroups.is_empty() {
            let _ = write!(out, "{}{separator}", table::cgroup_name(report, *scope));
        }
        for cell in cells {
            let number = cell.map(|metric| metric.bare()).unwrap_or_default();
            let _ = write!(out, "{number}{separator}");
        }
        out.push('\n');
    }
    out
}

/// Returns one object for each place, with the metrics that have a number.
pub(super) fn json(report: &StatReport) -> String {
    let grid = Grid::of(report);
    let mut out = String::new();
    for (scope, cells) in &grid.lines {
        json_fields::push_head(&mut out, report, *scope);
        json_fields::push_cgroup(&mut out, report, *scope);
        let mut used: Vec<&str> = Vec::new();
        for (head, cell) in grid.heads.iter().zip(cells) {
            // A key may stand once in an object: of equal metrics the first is kept.
            let Some(metric) = cell else { continue };
            if used.contains(&head.as_str()) {
                continue;
            }
            used.push(head);
            text::push_json(&mut out, head);
            let _ = write!(out, " : \"{}\", ", metric.bare());
        }
        let kept = out.trim_end_matches([',', ' ']).len();
        out.truncate(kept);
        out.push_str("}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::target::TargetSpec;
    use crate::stat::format::sample;
    use crate::stat::report::Value;

    fn report() -> StatReport {
        let mut report = sample::counted(&[
            ("task-clock", 1e9),
            ("cycles", 3e9),
            ("instructions", 6e9),
            ("branches", 1e9),
            ("branch-misses", 7e7),
        ]);
        report.measured = TargetSpec::Cpus(None);
        report.elapsed_ns = 500_000_000;
        for row in &mut report.rows {
            row.scope.cpu = Some(0);
        }
        let mut second = report.rows.clone();
        for row in &mut second {
            row.scope.cpu = Some(1);
        }
        second[4].value = Value::NotCounted { enabled_ns: 1 };
        report.rows.append(&mut second);
        report
    }

    #[test]
    fn a_table_of_metrics() {
        assert_eq!(
            table(&report(), sample::PLAIN),
            "
 Performance counter stats for 'system wide':

CPU                         GHz       insn per cycle branch-misses of all branches
CPU0                      3.000                2.00                          7.00%
CPU1                      3.000                2.00

       0.500000000 seconds time elapsed

"
        );
    }

    #[test]
    fn csv_has_a_field_for_each_head() {
        let mut report = report();
        assert_eq!(
            csv(&report, ","),
            "cpu,GHz,insn per cycle,branch-misses of all branches,\n\
             CPU0,3.000,2.00,7.00,\n\
             CPU1,3.000,2.00,,\n"
        );
        report.period = ReportPeriod::Interval { at_ns: 100, number: 0 };
        assert_eq!(csv(&report, ",").lines().nth(1), Some("     0.000000100,CPU0,3.000,2.00,7.00,"));
        assert!(csv(&report, ",").starts_with(" time,cpu,GHz,"));
        report.period = ReportPeriod::Interval { at_ns: 200, number: 1 };
        assert_eq!(csv(&report, ",").lines().count(), 2);
    }

    #[test]
    fn json_is_one_valid_object_a_line() {
        let mut report = report();
        report.period = ReportPeriod::Interval { at_ns: 100, number: 4 };
        let text = json(&report);
        assert_eq!(
            text,
            concat!(
                r#"{"interval" : 0.000000100, "cpu" : "0", "GHz" : "3.000", "insn per cycle" : "2.00", "branch-misses of all branches" : "7.00"}"#,
                "\n",
                r#"{"interval" : 0.000000100, "cpu" : "1", "GHz" : "3.000", "insn per cycle" : "2.00"}"#,
                "\n",
            )
        );
        for line in text.lines() {
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
            assert!(parsed.is_ok(), "{line}");
        }
    }

    #[test]
    fn without_any_metric_there_is_an_empty_object() {
        let report = sample::counted(&[("page-faults", 3.0)]);
        assert_eq!(json(&report), "{}\n");
        assert_eq!(csv(&report, ","), "\n\n");
    }

    #[test]
    fn cgroups_share_columns_and_have_their_own_lines() {
        let mut report =
            sample::counted(&[("cycles", 2.0), ("instructions", 4.0), ("cycles", 2.0), ("instructions", 1.0)]);
        report.cgroups = vec!["web".to_owned(), "db".to_owned()];
        for (at, row) in report.rows.iter_mut().enumerate() {
            row.scope.cgroup = Some(at / 2);
        }
        assert_eq!(csv(&report, ","), "cgroup,GHz,insn per cycle,\nweb,,2.00,\ndb,,0.50,\n");
    }
}
