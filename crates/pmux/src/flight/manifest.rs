//! The manifest: what a snapshot is, for people and programs.
//!
//! What it is: JSON, an object with a line for each thing. Times are in nanoseconds of the monotonic clock, which is that of the records;
//! `clocks` says what time of day that is. Read first: [`manifest`].
//!
//! **Invariant:** a number that is not known is `null`, never 0.

use super::write::{CpuWindow, Job, Written, WrittenWaits};
use super::{Keeping, SnapshotCause};
use crate::record::Absence;
use pmux_engine::Nanos;
use std::fmt::Write as _;

/// Grows with each new field that changes what another one means.
const VERSION: u32 = 2;

fn text(value: &str) -> String {
    let mut out = String::from("\"");
    for letter in value.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // What a terminal would take for a command, and what ends a line for some readers.
            letter if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", letter as u32);
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

fn number<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{{}}}", fields.join(", "))
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|item| format!("\n    {item}")).collect();
    if items.is_empty() { "[]".to_owned() } else { format!("[{}\n  ]", items.join(",")) }
}

fn moment((at, what): (Nanos, &str)) -> String {
    object(&[("at_ns", at.0.to_string()), ("what", text(what))])
}

fn cpu(window: &CpuWindow) -> String {
    object(&[
        ("cpu", window.cpu.to_string()),
        ("first_ns", number(window.first.map(|at| at.0))),
        ("last_ns", number(window.last.map(|at| at.0))),
        ("whole_since_ns", number(window.whole_since.map(|at| at.0))),
        ("samples", window.samples.to_string()),
        ("records", window.records.to_string()),
        ("bytes", window.bytes.to_string()),
        ("throttled", window.throttled.to_string()),
        ("missing_bytes", window.missing_bytes.to_string()),
        ("gap_bytes", number(window.gap_bytes)),
        ("overlap_bytes", window.overlap_bytes.to_string()),
        ("left_out_records", window.left_out.to_string()),
        ("unknown_id_samples", window.unknown_ids.to_string()),
        ("away", format!("[{}]", window.away.iter().map(absence).collect::<Vec<_>>().join(", "))),
    ])
}

fn waits(waits: WrittenWaits) -> String {
    object(&[
        ("samples", waits.samples.to_string()),
        ("whole_since_ns", number(waits.whole_since.map(|at| at.0))),
        ("unseen", waits.unseen.to_string()),
    ])
}

fn absence(absence: &Absence) -> String {
    object(&[("from_ns", absence.from.0.to_string()), ("to_ns", number(absence.to.map(|to| to.0)))])
}

/// The manifest of what was written into a file of this name.
pub(super) fn manifest(job: &Job, written: &Written, name: &str) -> String {
    let (kind, amount) = match job.keep {
        Keeping::Span(span) => ("span_ns", span.as_nanos().to_string()),
        Keeping::Bytes(bytes) => ("bytes_per_cpu", bytes.to_string()),
    };
    let previous = job.previous.map(|(number, ended)| {
        let shared: u64 = written.cpus.iter().map(|window| window.overlap_bytes).sum();
        object(&[
            ("snapshot", number.to_string()),
            ("ended_ns", ended.0.to_string()),
            ("overlaps", (shared > 0).to_string()),
            ("overlap_bytes", shared.to_string()),
            ("gap_bytes", number_of(written.cpus.iter().map(|window| window.gap_bytes))),
        ])
    });
    let lost = object(&[
        ("missing_bytes", written.cpus.iter().map(|window| window.missing_bytes).sum::<u64>().to_string()),
        ("corrupt_records", written.corrupt.to_string()),
        ("left_out_records", written.cpus.iter().map(|window| window.left_out).sum::<u64>().to_string()),
        ("unknown_id_samples", written.cpus.iter().map(|window| window.unknown_ids).sum::<u64>().to_string()),
        ("task_records", job.task_records.lost.to_string()),
    ]);
    let clocks = object(&[
        ("clock", text("monotonic")),
        ("monotonic_ns", written.clock.0.to_string()),
        ("since_1970_ns", written.since_1970_ns.to_string()),
    ]);
    let covers = written.covers(job.ended_ns);
    let window = object(&[
        ("first_ns", number(written.first().map(|at| at.0))),
        ("last_ns", number(written.last().map(|at| at.0))),
        ("covers_from_ns", number(covers.map(|(from, _)| from.0))),
        ("covers_to_ns", number(covers.map(|(_, to)| to.0))),
        ("names_since_ns", job.task_records.since_ns.to_string()),
    ]);
    let fields = [
        ("version", VERSION.to_string()),
        ("written_by", text(concat!("pmux ", env!("CARGO_PKG_VERSION")))),
        ("file", text(name)),
        ("snapshot", job.number.to_string()),
        ("causes", list(job.causes.iter().map(|SnapshotCause { what, at }| moment((*at, what))))),
        ("marks", list(job.marks.iter().map(|(at, what)| moment((*at, what))))),
        ("host", text(&job.host)),
        ("kernel", text(&job.kernel)),
        ("clocks", clocks),
        ("events", list(job.descs.iter().map(|desc| text(&desc.name)))),
        ("asked", object(&[(kind, amount), ("after_ns", job.after.as_nanos().to_string())])),
        ("recording_since_ns", job.opened_ns.to_string()),
        ("copied_ns", job.ended_ns.to_string()),
        ("window", window),
        ("samples", written.samples().to_string()),
        ("records", written.records().to_string()),
        ("waits", written.waits.map_or_else(|| "null".to_owned(), waits)),
        ("cpus", list(written.cpus.iter().map(cpu))),
        ("lost", lost),
        ("previous", previous.unwrap_or_else(|| "null".to_owned())),
    ];
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("  \"{name}\": {value}")).collect();
    format!("{{\n{}\n}}\n", fields.join(",\n"))
}

/// The sum of what is known.
fn number_of(values: impl Iterator<Item = Option<u64>>) -> String {
    number(values.flatten().reduce(|sum, value| sum + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_stay_strings() {
        assert_eq!(text("a \"b\" \\ \n\t\u{1b}[1m ä"), "\"a \\\"b\\\" \\\\ \\n\\t\\u001b[1m ä\"");
    }

    #[test]
    fn what_is_not_known_is_null() {
        assert_eq!(number(None::<u64>), "null");
        assert_eq!(number_of([None, None].into_iter()), "null");
        assert_eq!(number_of([None, Some(2), Some(3)].into_iter()), "5");
    }
}
