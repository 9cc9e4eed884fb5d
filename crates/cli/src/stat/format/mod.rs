//! Every way to print a [`StatReport`].
//!
//! Read first: [`compose`], the one entry. Each format is a file: `table`, `csv`, `json`,
//! `metric_only` and `regions` (for all three), `tree` (with `tree_page` and `tree_json`) and `timec`.
//!
//! The fields of CSV and JSON, their order and their number formats are those of
//! `perf stat` 6.1, so that scripts written for it keep working;
//! `tests/it/formats_vs_perf.rs` compares them with the real program. Differences on purpose:
//! names keep the modifiers of tracepoints and cache events, the user time of a command is
//! a number, a peak has no rate, and the forms of `--metric-only` are sound.
//!
//! **Invariant:** a format is a pure function from a report to one `String`. Nothing here
//! knows where the text goes, and a report is written in one call, so that reports of two
//! programs in one file do not mix within a line.

mod csv;
mod json;
mod metric;
mod metric_only;
mod metrics;
mod notes;
mod numbers;
mod regions;
mod role;
mod table;
mod text;
pub(crate) mod timec;
mod tree;
mod tree_json;
mod tree_page;

#[cfg(test)]
pub(super) mod sample;

use super::report::StatReport;
use crate::style::Style;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// For people.
    Table,
    /// One line a count, fields separated by this text (`-x`).
    Csv(String),
    /// One JSON object a count and line (`-j`).
    Json,
}

/// Which numbers are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    /// Counts with their metrics.
    All,
    /// Metrics only (`--metric-only`).
    MetricsOnly,
}

/// How much of a process tree the table draws. JSON is always complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeDetail {
    /// Many equal siblings become one line with their sums.
    Folded,
    /// A line for each process (`-v`).
    Complete,
}

/// How a report is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) layout: Layout,
    pub(crate) columns: Columns,
    pub(crate) tree: TreeDetail,
    /// Colour, width and grouping, for the table.
    pub(crate) style: Style,
}

/// Returns the whole text of a report.
///
/// Notes are part of the table only: the other layouts are read by programs. Use
/// [`notes_text`] to show them to a person there.
pub(crate) fn compose(report: &StatReport, look: &Look) -> String {
    let mut out = match (&report.tree, &look.layout, look.columns) {
        (Some(tree), Layout::Json, _) => tree_json::compose(report, tree),
        (Some(tree), Layout::Table, _) => tree::compose(report, tree, look.tree, look.style),
        // The tree has no CSV form; the options refuse the pair.
        (_, Layout::Table, Columns::All) => table::compose(report, look.style),
        (_, Layout::Csv(separator), Columns::All) => csv::compose(report, separator),
        (_, Layout::Json, Columns::All) => json::compose(report),
        (_, Layout::Table, Columns::MetricsOnly) => metric_only::table(report, look.style),
        (_, Layout::Csv(separator), Columns::MetricsOnly) => metric_only::csv(report, separator),
        (_, Layout::Json, Columns::MetricsOnly) => metric_only::json(report),
    };
    if !report.regions.is_empty() {
        match &look.layout {
            Layout::Table => regions::push_table(&mut out, report, look.style),
            Layout::Csv(separator) => regions::push_csv(&mut out, report, separator),
            Layout::Json => regions::push_json(&mut out, report),
        }
    }
    out
}

/// Returns the notes of a report as they stand under a table, empty when there are none.
pub(crate) fn notes_text(report: &StatReport, style: Style) -> String {
    let mut out = String::new();
    notes::append(&mut out, report, style);
    out
}

/// Returns the first lines of an output file (`-o`): when the measurement started, in UTC.
pub(crate) fn started_on(unix_seconds: u64) -> String {
    format!("# started on {}\n\n", text::calendar(unix_seconds))
}
