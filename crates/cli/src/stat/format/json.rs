//! One JSON object a count and line (`-j`).
//!
//! Keys, when present, in this order: `interval`, `cpu` or `thread`, `counter-value`,
//! `unit`, `event`, `cgroup`, `variance`, `event-runtime`, `pcnt-running`, `metric-value`,
//! `metric-unit`.
//!
//! **Invariant:** exactly the keys, order and number formats of `perf stat -j` 6.1, the
//! count as a string and a missing metric unit as `(null)` included. Unlike there, every
//! line is valid JSON whatever the names contain.

use super::metric::MetricCell;
use super::metrics::Metrics;
use super::{numbers, table, text};
use crate::stat::report::{EventColumn, ReportPeriod, Row, RowScope, StatReport, Value};
use std::fmt::Write as _;

/// Returns one line for each row.
pub(super) fn compose(report: &StatReport) -> String {
    let metrics = Metrics::new(report);
    let mut out = String::new();
    for row in &report.rows {
        push_row(&mut out, report, &metrics, row);
    }
    out
}

pub(super) fn push_text(out: &mut String, key: &str, value: &str) {
    let _ = write!(out, "\"{key}\" : ");
    text::push_json(out, value);
}

/// Appends the opening brace, the time of an interval and the CPU or thread; each key is
/// followed by a comma and a space.
pub(super) fn push_head(out: &mut String, report: &StatReport, scope: RowScope) {
    out.push('{');
    if let ReportPeriod::Interval { at_ns, .. } = report.period {
        let _ = write!(out, "\"interval\" : {}, ", numbers::seconds(at_ns));
    }
    if let Some(cpu) = scope.cpu {
        let _ = write!(out, "\"cpu\" : \"{cpu}\", ");
    }
    if let Some(thread) = scope.thread.and_then(|index| report.threads.get(index)) {
        push_text(out, "thread", &format!("{}-{}", thread.comm, thread.tid));
        out.push_str(", ");
    }
}

/// Appends the cgroup, when cgroups were asked for.
pub(super) fn push_cgroup(out: &mut String, report: &StatReport, scope: RowScope) {
    if !report.cgroups.is_empty() {
        push_text(out, "cgroup", table::cgroup_name(report, scope));
        out.push_str(", ");
    }
}

/// Appends the count with its unit and the event; each key is followed by a comma and a space.
pub(super) fn push_count(out: &mut String, event: &EventColumn, value: Value) {
    match value.raw() {
        Some(raw) => {
            let value = numbers::finite(raw * event.scale);
            let _ = write!(out, "\"counter-value\" : \"{value:.6}\"");
        }
        None => push_text(out, "counter-value", value.absent_text()),
    }
    out.push_str(", ");
    push_text(out, "unit", &event.unit);
    out.push_str(", ");
    push_text(out, "event", &event.name);
    out.push_str(", ");
}

/// Appends for how long it had a counter.
pub(super) fn push_running(out: &mut String, value: Value) {
    let (running, share) = (value.running_ns(), value.running_pct());
    let _ = write!(out, "\"event-runtime\" : {running}, \"pcnt-running\" : {share:.2}");
}

fn push_row(out: &mut String, report: &StatReport, metrics: &Metrics, row: &Row) {
    let Some(event) = report.events.get(row.event) else { return };
    push_head(out, report, row.scope);
    push_count(out, event, row.value);
    push_cgroup(out, report, row.scope);
    if report.runs != 1 {
        let variance = row.deviation_pct.unwrap_or(0.0);
        let _ = write!(out, "\"variance\" : {variance:.2}, ");
    }
    push_running(out, row.value);
    out.push_str(", ");
    let derived = metrics.of(report, row);
    match derived.first {
        MetricCell::Known(metric) => push_metric(out, metric.value, metric.unit),
        MetricCell::Unavailable(unit) => push_metric(out, 0.0, unit),
        // Scripts for perf know this word for "counted, and no metric belongs to it".
        MetricCell::None if row.value.raw().is_some() => push_metric(out, 0.0, "(null)"),
        MetricCell::None => push_metric(out, 0.0, ""),
    }
    out.push_str("}\n");
    if let Some(metric) = derived.second {
        push_head(out, report, row.scope);
        push_metric(out, metric.value, metric.unit);
        out.push_str("}\n");
    }
}

fn push_metric(out: &mut String, value: f64, unit: &str) {
    let value = numbers::finite(value);
    let _ = write!(out, "\"metric-value\" : {value:.6}, ");
    push_text(out, "metric-unit", unit);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::format::sample;

    #[test]
    fn a_plain_run() {
        let text = compose(&sample::plain());
        assert_eq!(
            text,
            concat!(
                r#"{"counter-value" : "636876.000000", "unit" : "msec", "event" : "task-clock", "event-runtime" : 636876000000, "pcnt-running" : 100.00, "metric-value" : 0.528653, "metric-unit" : "CPUs utilized"}"#,
                "\n",
                r#"{"counter-value" : "50.000000", "unit" : "", "event" : "page-faults", "event-runtime" : 636876000000, "pcnt-running" : 100.00, "metric-value" : 0.078508, "metric-unit" : "/sec"}"#,
                "\n",
                r#"{"counter-value" : "<not supported>", "unit" : "", "event" : "cycles", "event-runtime" : 0, "pcnt-running" : 100.00, "metric-value" : 0.000000, "metric-unit" : ""}"#,
                "\n",
                r#"{"counter-value" : "<not counted>", "unit" : "", "event" : "cache-misses", "event-runtime" : 0, "pcnt-running" : 0.00, "metric-value" : 0.000000, "metric-unit" : ""}"#,
                "\n",
                r#"{"counter-value" : "3000.000000", "unit" : "", "event" : "msr/tsc/", "event-runtime" : 250, "pcnt-running" : 25.00, "metric-value" : 4.710493, "metric-unit" : "/sec"}"#,
                "\n",
            )
        );
    }

    #[test]
    fn every_optional_key_in_its_place() {
        let mut report = sample::per_cpu();
        report.cgroups = vec!["a\"b".to_owned()];
        report.rows[0].scope.cgroup = Some(0);
        report.runs = 2;
        report.rows[0].deviation_pct = Some(0.5);
        report.period = ReportPeriod::Interval { at_ns: 1_100_000_000, number: 1 };
        let text = compose(&report);
        assert_eq!(
            text.lines().next(),
            Some(
                r#"{"interval" : 1.100000000, "cpu" : "0", "counter-value" : "5.000000", "unit" : "", "event" : "page-faults", "cgroup" : "a\"b", "variance" : 0.50, "event-runtime" : 1000000000, "pcnt-running" : 100.00, "metric-value" : 0.000000, "metric-unit" : "(null)"}"#
            )
        );
        for line in text.lines() {
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
            assert!(parsed.is_ok(), "{line}");
        }
    }

    #[test]
    fn threads_and_the_second_metric() {
        let mut report = sample::per_thread();
        report.threads[0].comm = "web\\content".to_owned();
        let text = compose(&report);
        assert!(text.starts_with(r#"{"thread" : "web\\content-7011", "counter-value" "#));
        let report = sample::counted(&[("instructions", 10.0), ("cycles", 5.0), ("stalled-cycles-backend", 2.5)]);
        let text = compose(&report);
        assert_eq!(
            text.lines().nth(1),
            Some(r#"{"metric-value" : 0.250000, "metric-unit" : "stalled cycles per insn"}"#)
        );
    }
}
