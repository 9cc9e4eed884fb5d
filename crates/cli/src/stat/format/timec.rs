//! The short form of `timec`: a title, then a number and a name a line.
//!
//! **Invariant:** nothing else is on the number lines, so `awk '{ print $1 }'` works.

use super::{notes, text};
use crate::stat::report::StatReport;
use crate::style::{Color, Grouping, Style};
use std::fmt::Write as _;

const NUMBER_WIDTH: usize = 14;

/// Returns the whole text. The subject is named by its first word alone.
pub(crate) fn compose(report: &StatReport, program: &str) -> String {
    let mut out = format!("\n Performance counter stats for '{}':\n\n", text::visible(program));
    for row in &report.rows {
        let Some(event) = report.events.get(row.event) else { continue };
        let number = match row.value.raw() {
            // The raw count as the counter has it: nanoseconds stay nanoseconds.
            Some(raw) => super::numbers::number(raw, 0, Grouping::None),
            None => row.value.absent_text().to_owned(),
        };
        let _ = writeln!(out, " {number:>NUMBER_WIDTH$} {}", text::visible(&event.name));
    }
    out.push('\n');
    if !report.notes.is_empty() {
        let plain = Style { color: Color::Off, width: None, grouping: Grouping::None };
        notes::append(&mut out, report, plain);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::format::sample;
    use crate::stat::report::Value;

    #[test]
    fn the_form_of_the_first_thread() {
        let mut report = sample::counted(&[
            ("instructions", 163_516_953.0),
            ("cache-misses", 2295.0),
            ("branch-misses", 0.0),
            ("task-clock", 1_500_000.0),
        ]);
        report.rows[2].value = Value::NotSupported;
        assert_eq!(
            compose(&report, "ls"),
            "
 Performance counter stats for 'ls':

      163516953 instructions
           2295 cache-misses
 <not supported> branch-misses
        1500000 task-clock

"
        );
    }
}
