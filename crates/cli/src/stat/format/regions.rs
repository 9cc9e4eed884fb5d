//! The regions of a command (`--regions`), a line for each, behind what is printed otherwise.
//!
//! Fields of CSV: `region, times, ns between, value, unit, event, time on a counter in ns, share of the enabled time in %`. Keys of
//! JSON: `region`, `calls`, `elapsed-ns`, then those of every count.
//!
//! **Invariant:** perf has no such lines, so scripts that are written for it never meet them without asking.

use super::{csv, json, numbers, text};
use crate::stat::report::{EventColumn, RegionRow, StatReport, Value};
use crate::style::{Grouping, Ink, Style};
use std::fmt::Write as _;

/// What stands beside an extrapolated count.
const ESTIMATED: char = '~';

/// Appends the table for people: the name stands last, so that no name moves a number.
pub(super) fn push_table(out: &mut String, report: &StatReport, style: Style) {
    // What was counted in no region stands in the table above with its reason.
    let is_shown = |event: &usize| report.regions.iter().any(|region| value(region, *event).raw().is_some());
    let events: Vec<usize> = (0..report.events.len()).filter(is_shown).collect();
    let mut heads = vec!["calls".to_owned(), "msec elapsed".to_owned()];
    heads.extend(events.iter().map(|&event| head(&report.events[event])));
    let lines: Vec<Vec<String>> = report
        .regions
        .iter()
        .map(|region| {
            let mut cells = vec![
                numbers::number(region.calls as f64, 0, style.grouping),
                numbers::millis(region.elapsed_ns, style.grouping),
            ];
            cells.extend(events.iter().map(|&event| cell(&report.events[event], value(region, event), style.grouping)));
            cells
        })
        .collect();
    let width =
        |at: usize| lines.iter().map(|cells| &cells[at]).chain([&heads[at]]).map(|text| text::columns(text)).max();
    let widths: Vec<usize> = (0..heads.len()).map(|at| width(at).unwrap_or_default().max(10)).collect();
    let push = |out: &mut String, cells: &[String], ink: Ink, name: &str, of_name: Ink| {
        let numbers: String = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!(" {}{cell}", " ".repeat(width.saturating_sub(text::columns(cell)))))
            .collect();
        style.paint(out, ink, &numbers);
        out.push_str("   ");
        style.paint(out, of_name, name);
        out.push('\n');
    };
    push(out, &heads, Ink::Faint, "region", Ink::Faint);
    for (cells, region) in lines.iter().zip(&report.regions) {
        push(out, cells, Ink::Plain, &text::visible(&region.name), Ink::Strong);
    }
    out.push('\n');
}

/// Appends one line for each count of each region.
pub(super) fn push_csv(out: &mut String, report: &StatReport, separator: &str) {
    for (region, event, value) in counts(report) {
        let RegionRow { calls, elapsed_ns, .. } = region;
        // As with perf, no field is quoted.
        let name = text::visible(&region.name);
        let name = if separator.is_empty() { name } else { name.replace(separator, "_") };
        let _ = write!(out, "{name}{separator}{calls}{separator}{elapsed_ns}{separator}");
        csv::push_count(out, event, value, separator);
        csv::push_running(out, value, separator);
        out.push('\n');
    }
}

/// Appends one object for each count of each region.
pub(super) fn push_json(out: &mut String, report: &StatReport) {
    for (region, event, value) in counts(report) {
        out.push('{');
        json::push_text(out, "region", &region.name);
        let _ = write!(out, ", \"calls\" : {}, \"elapsed-ns\" : {}, ", region.calls, region.elapsed_ns);
        json::push_count(out, event, value);
        json::push_running(out, value);
        out.push_str("}\n");
    }
}

fn counts(report: &StatReport) -> impl Iterator<Item = (&RegionRow, &EventColumn, Value)> {
    report
        .regions
        .iter()
        .flat_map(|region| report.events.iter().enumerate().map(move |(at, event)| (region, event, value(region, at))))
}

fn value(region: &RegionRow, event: usize) -> Value {
    region.values.get(event).copied().unwrap_or(Value::NotSupported)
}

fn head(event: &EventColumn) -> String {
    let name = text::visible(&event.name);
    if event.unit.is_empty() { name } else { format!("{} {name}", event.unit) }
}

fn cell(event: &EventColumn, value: Value, grouping: Grouping) -> String {
    let mut text = numbers::value(event, value, grouping);
    if value.is_estimate() {
        text.insert(0, ESTIMATED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::format::sample;

    fn report() -> StatReport {
        let mut report = sample::counted(&[("task-clock", 9e6), ("page-faults", 7.0), ("cycles", 0.0)]);
        let region = |name: &str, calls, values: [Value; 3]| RegionRow {
            name: name.to_owned(),
            calls,
            elapsed_ns: 5_000_000,
            values: values.to_vec(),
        };
        report.regions = vec![
            region("parse\u{1b}[31m", 1000, [Value::exact(4e6, 9), Value::exact(5.0, 9), Value::NotSupported]),
            region(
                "write",
                1,
                [
                    Value::NotCounted { enabled_ns: 3 },
                    Value::Counted { raw: 2.0, enabled_ns: 4, running_ns: 1 },
                    Value::NotSupported,
                ],
            ),
        ];
        report
    }

    #[test]
    fn a_line_for_each_region() {
        let mut out = String::new();
        push_table(&mut out, &report(), sample::PLAIN);
        assert_eq!(
            out,
            "      calls msec elapsed msec task-clock page-faults   region\n\
             \x20     1,000         5.00            4.00           5   parse\\u{1b}[31m\n\
             \x20         1         5.00   <not counted>          ~2   write\n\n"
        );
    }

    #[test]
    fn a_line_for_each_count() {
        let (mut csv, mut json) = (String::new(), String::new());
        push_csv(&mut csv, &report(), ";");
        assert_eq!(csv.lines().count(), 6);
        assert_eq!(csv.lines().nth(1), Some("parse\\u{1b}[31m;1000;5000000;5;;page-faults;9;100.00"));
        assert_eq!(csv.lines().nth(4), Some("write;1;5000000;2;;page-faults;1;25.00"));
        push_json(&mut json, &report());
        let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 6);
        assert_eq!((lines[0]["region"].as_str(), lines[0]["calls"].as_u64()), (Some("parse\u{1b}[31m"), Some(1000)));
        assert_eq!(lines[0]["counter-value"], "4.000000");
        assert_eq!(lines[5]["counter-value"], "<not supported>");
    }
}
