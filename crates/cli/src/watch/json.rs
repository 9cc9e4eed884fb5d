//! What was found, for programs: an object a line, each with its `kind`.
//!
//! | kind | when | what |
//! |---|---|---|
//! | `hit` | with `--trace`, as it happens | one hit |
//! | `left_out` | with `--trace`, each second | how many hits were left out |
//! | `row` | in the end | one thread at one place |
//! | `target` | in the end | one target with its exact count; where `share`, of the time, is less than 1, it is a lower bound |
//! | `note` | in the end | what has to be said about it |
//!
//! `seen` of a hit says when its value was looked at: at the hit and `behind` the access, so that `old` is that of the hit before; at
//! the hit and `in_front` of the access, so that `value` was seen `read_us_later`; or only `later`.
//!
//! Times are in seconds since the beginning, addresses text in hexadecimal.
//!
//! **Invariant:** a field that is not known is `null`, never 0 and never missing.

use super::report::{HitRow, TargetReport, WatchReport};
use super::trace::TraceLine;
use pmux::symbol::ResolvedAddress;
use pmux::watch::{HitSide, HitValue};
use pmux::{Estimate, Nanos};
use serde_json::{Value as Json, json};

fn seconds(time: Nanos) -> Json {
    json!(time.0 as f64 / 1e9)
}

fn place(place: &ResolvedAddress) -> Json {
    json!({
        "function": place.function(),
        "file": place.source().map(|(file, _)| file),
        "line": place.source().map(|(_, line)| line),
        "module": place.module.as_deref(),
        "address": format!("{:#x}", place.address),
    })
}

pub(super) fn compose(report: &WatchReport) -> String {
    let mut out = String::new();
    let mut put = |object: Json| {
        out.push_str(&object.to_string());
        out.push('\n');
    };
    for target in &report.targets {
        target.rows.iter().for_each(|found| put(row(target, found)));
        put(total(report, target));
    }
    report.notes.iter().for_each(|text| put(json!({ "kind": "note", "text": text })));
    out
}

fn row(target: &TargetReport, row: &HitRow) -> Json {
    json!({
        "kind": "row",
        "target": target.name,
        "hits": row.hits,
        "command": row.command,
        "pid": row.pid,
        "tid": row.tid,
        "cpus": row.cpus,
        "first": seconds(row.first),
        "last": seconds(row.last),
        "where": place(&row.place),
        "callers": row.callers.iter().map(|caller| place(caller)).collect::<Vec<_>>(),
        "value": row.value,
    })
}

fn total(report: &WatchReport, target: &TargetReport) -> Json {
    let share = match target.count.estimate() {
        _ if target.about.is_empty() => None,
        Estimate::Exact(_) => Some(1.0),
        Estimate::Scaled { share, .. } => Some(share),
        Estimate::NotCounted => Some(0.0),
    };
    json!({
        "kind": "target",
        "target": target.name,
        "about": target.about,
        "count": target.count.value,
        "share": share,
        "told": report.detailed.then_some(target.hits_in_rows),
        "seconds": seconds(report.span),
    })
}

pub(super) fn hit(line: &TraceLine<'_>) -> String {
    let TraceLine { hit, at, target, command, place: here, callers, .. } = line;
    let seen = match hit.value {
        HitValue::AtHit { .. } => Some("behind"),
        HitValue::Found { .. } => Some("in_front"),
        HitValue::Read { .. } => Some("later"),
        HitValue::Overtaken | HitValue::Unreadable => None,
    };
    let mut text = json!({
        "kind": "hit",
        "time": seconds(*at),
        "target": target,
        "command": command,
        "pid": hit.pid,
        "tid": hit.tid,
        "cpu": hit.cpu,
        "kernel": hit.side == HitSide::Kernel,
        "old": hit.value.before(),
        "value": hit.value.now(),
        "seen": seen,
        "read_us_later": hit.value.late().map(|late| late.0 / 1000),
        "overtaken": hit.value == HitValue::Overtaken,
        "where": place(here),
        "callers": callers.iter().map(|caller| place(caller)).collect::<Vec<_>>(),
    })
    .to_string();
    text.push('\n');
    text
}

/// How many hits were left out in a second.
pub(super) fn left_out(count: u64) -> String {
    format!("{}\n", json!({ "kind": "left_out", "hits": count }))
}
