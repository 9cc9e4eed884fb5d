//! One line a count with separated fields (`-x`).
//!
//! Fields: `[time|summary,] [CPUn|comm-tid,] value, unit, event, [cgroup,] [deviation%,]
//! time on a counter in ns, share of the enabled time in %, metric, unit of the metric`.
//!
//! **Invariant:** exactly the fields of `perf stat -x` 6.1. Names are not quoted, as there:
//! choose a separator that is not in them.

use super::metric::MetricCell;
use super::metrics::Metrics;
use super::{numbers, table, text};
use crate::stat::report::{EventColumn, ReportPeriod, Row, RowScope, StatReport, Value};
use crate::style::Grouping;
use std::fmt::Write as _;

/// Returns one line for each row.
pub(super) fn compose(report: &StatReport, separator: &str) -> String {
    let metrics = Metrics::new(report);
    let mut out = String::new();
    for row in &report.rows {
        push_row(&mut out, report, &metrics, row, separator);
    }
    out
}

/// Appends the time of an interval, or the word `summary`.
pub(super) fn push_moment(out: &mut String, report: &StatReport, separator: &str) {
    let _ = match report.period {
        ReportPeriod::Whole => Ok(()),
        ReportPeriod::Interval { at_ns, .. } => write!(out, "{:>16}{separator}", numbers::seconds(at_ns)),
        ReportPeriod::Summary => write!(out, "{:>16}{separator}", "summary"),
    };
}

/// Appends the CPU or thread with its separator.
pub(super) fn push_scope(out: &mut String, report: &StatReport, scope: RowScope, separator: &str) {
    if let Some(cpu) = scope.cpu {
        let _ = write!(out, "CPU{cpu}{separator}");
    }
    let is_of_none = scope.cpu.is_none() && scope.thread.is_none();
    if is_of_none && report.rows.iter().any(|row| row.scope.cpu.is_some()) {
        // One number for the whole machine, among those of CPUs: the fields stay in their places.
        out.push_str(separator);
    }
    if let Some(thread) = scope.thread.and_then(|index| report.threads.get(index)) {
        let _ = write!(out, "{}-{}{separator}", text::visible(&thread.comm), thread.tid);
    }
}

pub(super) fn push_count(out: &mut String, event: &EventColumn, value: Value, separator: &str) {
    let value = numbers::value(event, value, Grouping::None);
    let _ = write!(out, "{value}{separator}{}{separator}{}", event.unit, event.name);
}

/// Appends for how long it had a counter.
pub(super) fn push_running(out: &mut String, value: Value, separator: &str) {
    let (running, share) = (value.running_ns(), value.running_pct());
    let _ = write!(out, "{separator}{running}{separator}{share:.2}");
}

fn push_row(out: &mut String, report: &StatReport, metrics: &Metrics, row: &Row, separator: &str) {
    let Some(event) = report.events.get(row.event) else { return };
    push_moment(out, report, separator);
    push_scope(out, report, row.scope, separator);
    push_count(out, event, row.value, separator);
    if !report.cgroups.is_empty() {
        let _ = write!(out, "{separator}{}", table::cgroup_name(report, row.scope));
    }
    if report.runs != 1 {
        let _ = write!(out, "{separator}{:.2}%", row.deviation_pct.unwrap_or(0.0));
    }
    push_running(out, row.value, separator);
    let derived = metrics.of(report, row);
    let _ = match derived.first {
        MetricCell::Known(metric) => write!(out, "{separator}{}{separator}{}", metric.bare(), metric.unit),
        MetricCell::None | MetricCell::Unavailable(_) => write!(out, "{separator}{separator}"),
    };
    out.push('\n');
    if let Some(metric) = derived.second {
        push_second(out, report, row.scope, separator);
        let _ = writeln!(out, "{separator}{}{separator}{}", metric.bare(), metric.unit);
    }
}

/// Appends the empty fields of a line that holds a second metric only: the CPU or thread, and one separator for each field of
/// the count.
fn push_second(out: &mut String, report: &StatReport, scope: RowScope, separator: &str) {
    if report.period != ReportPeriod::Summary {
        push_moment(out, report, separator);
    }
    push_scope(out, report, scope, separator);
    let fields = 3 + usize::from(scope.cpu.is_some() || scope.thread.is_some()) + usize::from(scope.cgroup.is_some());
    for _ in 0..fields {
        out.push_str(separator);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::format::sample;

    #[test]
    fn a_plain_run() {
        let text = compose(&sample::plain(), ",");
        assert_eq!(
            text,
            "636876.00,msec,task-clock,636876000000,100.00,0.529,CPUs utilized\n\
             50,,page-faults,636876000000,100.00,0.079,/sec\n\
             <not supported>,,cycles,0,100.00,,\n\
             <not counted>,,cache-misses,0,0.00,,\n\
             3000,,msr/tsc/,250,25.00,4.710,/sec\n"
        );
    }

    #[test]
    fn intervals_and_the_summary_have_a_first_field() {
        let mut report = sample::counted(&[("page-faults", 76.0)]);
        report.period = ReportPeriod::Interval { at_ns: 100_173_456, number: 0 };
        assert_eq!(compose(&report, ","), "     0.100173456,76,,page-faults,1000000000,100.00,,\n");
        report.period = ReportPeriod::Summary;
        assert_eq!(compose(&report, ","), "         summary,76,,page-faults,1000000000,100.00,,\n");
    }

    #[test]
    fn cpus_threads_cgroups_and_deviations() {
        let mut report = sample::per_cpu();
        assert_eq!(
            compose(&report, ";"),
            "CPU0;5;;page-faults;1000000000;100.00;;\n\
             CPU1;<not counted>;;page-faults;0;100.00;;\n"
        );
        report.cgroups = vec!["system.slice".to_owned()];
        report.rows[0].scope.cgroup = Some(0);
        report.runs = 3;
        report.rows[0].deviation_pct = Some(1.329);
        assert_eq!(
            compose(&report, ";"),
            "CPU0;5;;page-faults;system.slice;1.33%;1000000000;100.00;;\n\
             CPU1;<not counted>;;page-faults;;0.00%;0;100.00;;\n"
        );
        let threads = sample::per_thread();
        assert_eq!(compose(&threads, "\t"), "sh-7011\t9\t\tpage-faults\t1000000000\t100.00\t\t\n");
    }

    #[test]
    fn a_second_metric_has_a_line_of_its_own() {
        let mut report = sample::counted(&[("instructions", 10.0), ("cycles", 5.0), ("stalled-cycles-frontend", 2.5)]);
        report.rows.truncate(3);
        let text = compose(&report, ",");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            ["10,,instructions,1000000000,100.00,2.00,insn per cycle", ",,,,0.25,stalled cycles per insn"]
        );
        report.period = ReportPeriod::Interval { at_ns: 5, number: 3 };
        let text = compose(&report, ",");
        assert_eq!(text.lines().nth(1), Some("     0.000000005,,,,,0.25,stalled cycles per insn"));
    }

    #[test]
    fn an_index_out_of_range_prints_nothing() {
        let mut report = sample::counted(&[("page-faults", 76.0)]);
        report.rows.push(Row::all(9, Value::NotSupported));
        assert_eq!(compose(&report, ",").lines().count(), 1);
    }
}
