//! The table for people: number, unit, event, metric; then times; then notes.
//!
//! **Invariant:** columns line up whatever the names and numbers are, because widths are
//! taken from the whole report before the first line is written. In interval mode they are
//! the same in every interval, because they depend on events and places only.

use super::metric::{Derived, Metric};
use super::metrics::Metrics;
use super::{notes, numbers, text};
use crate::stat::report::{ReportPeriod, Row, RowScope, StatReport};
use crate::style::{Ink, Style};
use std::fmt::Write as _;

/// Interval headers are repeated after this many intervals.
pub(super) const HEADER_EVERY: u64 = 25;

const VALUE_WIDTH: usize = 18;
const NAME_WIDTH: usize = 32;
/// On a terminal that is not [`ROOMY`].
const NAME_WIDTH_NARROW: usize = 16;
/// A line with a metric and its deviation fits into so many columns.
const ROOMY: usize = 100;
/// Longer event names push their own line to the right, not the whole table.
const NAME_WIDTH_MAX: usize = 56;
/// Number and name of a metric, so that deviation and share stand in columns.
const METRIC_WIDTH: usize = 32;

/// Widths that depend on the report.
pub(super) struct TableWidths {
    unit: usize,
    name: usize,
    comm: usize,
    cgroup: usize,
}

impl TableWidths {
    pub(super) fn of(report: &StatReport, style: Style) -> Self {
        let longest = |texts: &mut dyn Iterator<Item = &str>| texts.map(text::columns).max();
        let names = longest(&mut report.events.iter().map(|e| e.name.as_str()));
        let units = longest(&mut report.events.iter().map(|e| e.unit.as_str()));
        let comms = longest(&mut report.threads.iter().map(|t| t.comm.as_str()));
        let cgroups = longest(&mut report.cgroups.iter().map(String::as_str));
        let name_min = if style.width.is_some_and(|width| width < ROOMY) { NAME_WIDTH_NARROW } else { NAME_WIDTH };
        Self {
            unit: units.unwrap_or(0).max(4),
            name: names.unwrap_or(0).clamp(name_min, NAME_WIDTH_MAX),
            comm: comms.unwrap_or(0).max(16),
            cgroup: cgroups.unwrap_or(0),
        }
    }
}

/// Returns title, rows, times and notes; in interval mode rows only, now and then with
/// their header.
pub(super) fn compose(report: &StatReport, style: Style) -> String {
    let widths = TableWidths::of(report, style);
    let metrics = Metrics::new(report);
    let mut out = String::new();
    push_title(&mut out, report, style);
    if let ReportPeriod::Interval { number, .. } = report.period
        && number.is_multiple_of(HEADER_EVERY)
    {
        push_time_header(&mut out, report, &widths);
        let unit = widths.unit;
        let _ = writeln!(out, "{:>VALUE_WIDTH$} {:>unit$} events", "counts", "unit");
    }
    for row in &report.rows {
        push_row(&mut out, report, &widths, &metrics, row, style);
    }
    push_footer(&mut out, report, style);
    out
}

/// Appends the title, unless this is one interval of many.
pub(super) fn push_title(out: &mut String, report: &StatReport, style: Style) {
    if matches!(report.period, ReportPeriod::Interval { .. }) {
        return;
    }
    let title = text::visible(&report.title());
    let mut line = format!("Performance counter stats for {title}");
    if report.runs > 1 {
        let _ = write!(line, " ({} runs)", report.runs);
    }
    line.push(':');
    out.push_str("\n ");
    style.paint(out, Ink::Strong, &line);
    out.push_str("\n\n");
}

/// Appends the heads of the columns for time and place.
pub(super) fn push_time_header(out: &mut String, report: &StatReport, widths: &TableWidths) {
    let _ = write!(out, "#{:>15} ", "time");
    push_scope_header(out, report, widths);
}

/// Appends the head of the place column, as wide as [`push_scope`] makes it.
pub(super) fn push_scope_header(out: &mut String, report: &StatReport, widths: &TableWidths) {
    if report.rows.iter().any(|row| row.scope.cpu.is_some()) {
        let _ = write!(out, "{:<11}", "CPU");
    }
    if report.rows.iter().any(|row| row.scope.thread.is_some()) {
        let comm = widths.comm;
        let _ = write!(out, "{:>comm$}-{:<8} ", "comm", "tid");
    }
}

pub(super) fn push_moment(out: &mut String, report: &StatReport, style: Style) {
    if let ReportPeriod::Interval { at_ns, .. } = report.period {
        style.paint(out, Ink::Faint, &format!("{:>16} ", numbers::seconds(at_ns)));
    }
}

pub(super) fn push_scope(out: &mut String, report: &StatReport, widths: &TableWidths, scope: RowScope) {
    if let Some(cpu) = scope.cpu {
        let _ = write!(out, "CPU{cpu:<7} ");
    }
    if let Some(thread) = scope.thread.and_then(|index| report.threads.get(index)) {
        let (comm, width) = (text::visible(&thread.comm), widths.comm);
        let _ = write!(out, "{comm:>width$}-{:<8} ", thread.tid);
    }
}

/// Returns the name of a row's control group, empty without one.
pub(super) fn cgroup_name(report: &StatReport, scope: RowScope) -> &str {
    scope.cgroup.and_then(|index| report.cgroups.get(index)).map_or("", String::as_str)
}

fn push_row(out: &mut String, report: &StatReport, widths: &TableWidths, metrics: &Metrics, row: &Row, style: Style) {
    let Some(event) = report.events.get(row.event) else { return };
    push_moment(out, report, style);
    push_scope(out, report, widths, row.scope);
    let value = numbers::value(event, row.value, style.grouping);
    let ink = if row.value.raw().is_some() { Ink::Plain } else { Ink::Notice };
    style.paint(out, ink, &format!("{value:>VALUE_WIDTH$} "));
    let unit = format!("{:<1$} ", event.unit, widths.unit);
    style.paint(out, Ink::Faint, &unit);
    let name = format!("{:<1$}", text::visible(&event.name), widths.name);
    style.paint(out, Ink::Strong, &name);
    if !report.cgroups.is_empty() {
        let cgroup = text::visible(cgroup_name(report, row.scope));
        let width = widths.cgroup;
        let _ = write!(out, " {cgroup:<width$}");
    }
    let Derived { first, second } = metrics.of(report, row);
    // Nanoseconds per second are for programs that expect them, not for people.
    push_metric(out, first.known().filter(|_| event.unit != "ns"), style);
    if let Some(pct) = row.deviation_pct.filter(|&pct| report.runs > 1 && pct > 0.0) {
        let _ = write!(out, "  ( +-{pct:6.2}% )");
    }
    if row.value.is_estimate() {
        let _ = write!(out, "  ({:.2}%)", row.value.running_pct());
    }
    text::trim_line_end(out);
    out.push('\n');
    if second.is_some() {
        push_moment(out, report, style);
        push_scope(out, report, widths, row.scope);
        let mut blank = VALUE_WIDTH + 1 + widths.unit + 1 + widths.name;
        if !report.cgroups.is_empty() {
            blank += 1 + widths.cgroup;
        }
        let _ = write!(out, "{:blank$}", "");
        push_metric(out, second, style);
        text::trim_line_end(out);
        out.push('\n');
    }
}

fn push_metric(out: &mut String, metric: Option<Metric>, style: Style) {
    let Some(metric) = metric else {
        let _ = write!(out, "{:1$}", "", METRIC_WIDTH + 3);
        return;
    };
    let number = metric.padded();
    style.paint(out, Ink::Faint, " # ");
    style.paint(out, metric.ink, &number);
    let rest = METRIC_WIDTH.saturating_sub(text::columns(&number) + 1);
    let _ = write!(out, " {:<rest$}", metric.unit);
}

/// Appends wall, user and system time and the notes. Intervals have notes only, each
/// marked as a comment.
pub(super) fn push_footer(out: &mut String, report: &StatReport, style: Style) {
    if matches!(report.period, ReportPeriod::Interval { .. }) {
        let mut lines = String::new();
        notes::append(&mut lines, report, style);
        for line in lines.lines() {
            let _ = writeln!(out, "#{line}");
        }
        return;
    }
    if !report.events.is_empty() {
        out.push('\n');
    }
    let elapsed = report.elapsed_ns as f64 / 1e9;
    match report.elapsed_error_ns.filter(|_| report.runs > 1) {
        Some(error_ns) => {
            let error = error_ns / 1e9;
            let decimals = numbers::decimals_for_error(error);
            let _ = write!(out, " {elapsed:17.decimals$} +- {error:.decimals$} seconds time elapsed");
            if elapsed > 0.0 {
                let _ = write!(out, "  ( +-{:6.2}% )", 100.0 * error / elapsed);
            }
            out.push('\n');
        }
        None => {
            let time = numbers::seconds(report.elapsed_ns);
            let _ = writeln!(out, " {time:>17} seconds time elapsed");
        }
    }
    if let (Some(user), Some(system)) = (report.user_ns, report.system_ns) {
        let (user, system) = (numbers::seconds(user), numbers::seconds(system));
        let _ = write!(out, "\n {user:>17} seconds user\n {system:>17} seconds sys\n");
    }
    out.push('\n');
    if !report.notes.is_empty() {
        notes::append(out, report, style);
        out.push('\n');
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
