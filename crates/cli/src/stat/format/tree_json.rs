//! The process tree as one JSON object (`--tree -j`), always complete.
//!
//! ```text
//! {"command", "elapsed_ns", "user_ns", "system_ns", "units": {event: unit},
//!  "total": {event: value}, "unattributed": {event: value}, "processes": [process, …], "notes": [text, …]}
//! process = {"command", "pid", "threads", "start_ns", "wall_ns", "exit",
//!            "events": {event: value}, "running_pct": {event: share}, "children": [process, …]}
//! ```
//!
//! Values are in the unit of the event and `null` where nothing was counted. `exit` is
//! `{"code": n}`, `{"signal": n}`, `"running"` or `null` (only the parent was told).
//! `running_pct` is there only for events that had to share a counter, `unattributed` only
//! where records were lost: what belongs to processes whose start was not seen.
//!
//! **Invariant:** a process holds its own counts; `total` is the sum over all of them and
//! what is unattributed. No recursion: a chain of any length is written with a stack of this module's own.

use super::{notes, numbers, text};
use crate::stat::process_tree::{Exit, ProcessTreeReport};
use crate::stat::report::{StatReport, Value};
use serde_json::json;
use std::collections::HashSet;
use std::fmt::Write as _;

enum WalkStep {
    Open(usize),
    Comma,
    Close,
}

/// Returns one line.
pub(super) fn compose(report: &StatReport, tree: &ProcessTreeReport) -> String {
    let keys = keys(report);
    let mut out = String::from("{\"command\": ");
    text::push_json(&mut out, &report.command);
    let (user_ns, system_ns) = (json!(report.user_ns), json!(report.system_ns));
    let _ = write!(out, ", \"elapsed_ns\": {}, \"user_ns\": {user_ns}, \"system_ns\": {system_ns}", report.elapsed_ns);
    out.push_str(", \"units\": ");
    push_object(&mut out, &keys, |out, event| text::push_json(out, &report.events[event].unit));
    out.push_str(", \"total\": ");
    push_values(&mut out, report, &keys, |event| tree.total(event));
    if tree.unattributed.iter().any(|value| value.raw().is_some()) {
        out.push_str(", \"unattributed\": ");
        push_values(&mut out, report, &keys, |event| tree.unattributed.get(event).copied());
    }
    out.push_str(", \"processes\": [");
    push_processes(&mut out, report, tree, &keys);
    out.push_str("], \"notes\": [");
    for (at, sentence) in notes::sentences(report).iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        text::push_json(&mut out, &sentence.text());
    }
    out.push_str("]}\n");
    out
}

/// Returns one key for each event. A key may stand once in an object: the second of two
/// equal events gets `#2`.
fn keys(report: &StatReport) -> Vec<String> {
    let mut used = HashSet::new();
    let mut keys = Vec::with_capacity(report.events.len());
    for event in &report.events {
        let mut key = event.name.clone();
        let mut number = 2;
        while !used.insert(key.clone()) {
            key = format!("{}#{number}", event.name);
            number += 1;
        }
        keys.push(key);
    }
    keys
}

fn push_object(out: &mut String, keys: &[String], mut value: impl FnMut(&mut String, usize)) {
    out.push('{');
    for (event, key) in keys.iter().enumerate() {
        if event > 0 {
            out.push_str(", ");
        }
        text::push_json(out, key);
        out.push_str(": ");
        value(out, event);
    }
    out.push('}');
}

fn push_values(out: &mut String, report: &StatReport, keys: &[String], value: impl Fn(usize) -> Option<Value>) {
    push_object(out, keys, |out, event| {
        let scale = report.events[event].scale;
        let decimals = if scale.fract() == 0.0 { 0 } else { 6 };
        let _ = match value(event).and_then(Value::raw) {
            Some(raw) => write!(out, "{:.decimals$}", numbers::finite(raw * scale)),
            None => write!(out, "null"),
        };
    });
}

fn push_processes(out: &mut String, report: &StatReport, tree: &ProcessTreeReport, keys: &[String]) {
    let (children, roots) = tree.children();
    let mut steps = Vec::new();
    push_steps(&mut steps, &roots);
    while let Some(step) = steps.pop() {
        match step {
            WalkStep::Open(process) => {
                push_process(out, report, tree, keys, process);
                steps.push(WalkStep::Close);
                push_steps(&mut steps, &children[process]);
            }
            WalkStep::Comma => out.push_str(", "),
            WalkStep::Close => out.push_str("]}"),
        }
    }
}

/// Puts siblings on the stack, the first one on top.
fn push_steps(steps: &mut Vec<WalkStep>, siblings: &[usize]) {
    for (at, &process) in siblings.iter().enumerate().rev() {
        steps.push(WalkStep::Open(process));
        if at > 0 {
            steps.push(WalkStep::Comma);
        }
    }
}

/// Appends one process up to the opening bracket of its children.
fn push_process(out: &mut String, report: &StatReport, tree: &ProcessTreeReport, keys: &[String], at: usize) {
    let process = &tree.processes[at];
    out.push_str("{\"command\": ");
    text::push_json(out, &process.command);
    let _ = write!(
        out,
        ", \"pid\": {}, \"threads\": {}, \"start_ns\": {}, \"wall_ns\": {}, \"exit\": ",
        process.pid,
        process.threads.max(1),
        process.start_ns,
        process.wall_ns
    );
    let _ = match process.exit {
        Exit::Unknown => write!(out, "null"),
        Exit::Running => write!(out, "\"running\""),
        Exit::Code(code) => write!(out, "{{\"code\": {code}}}"),
        Exit::Signal(signal) => write!(out, "{{\"signal\": {signal}}}"),
    };
    out.push_str(", \"events\": ");
    push_values(out, report, keys, |event| process.values.get(event).copied());
    push_shares(out, &process.values, keys);
    out.push_str(", \"children\": [");
}

fn push_shares(out: &mut String, values: &[Value], keys: &[String]) {
    let mut first = true;
    for (value, key) in values.iter().zip(keys) {
        if !value.is_estimate() {
            continue;
        }
        out.push_str(if first { ", \"running_pct\": {" } else { ", " });
        first = false;
        text::push_json(out, key);
        let _ = write!(out, ": {:.2}", value.running_pct());
    }
    if !first {
        out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::format::tree::tests::{chain, pipeline, wide};

    #[test]
    fn a_pipeline() {
        let (report, tree) = pipeline();
        assert_eq!(
            compose(&report, &tree),
            concat!(
                r#"{"command": "sh -c ls / | wc; sleep 0.1", "elapsed_ns": 103000000, "#,
                r#""user_ns": 1000000, "system_ns": null, "#,
                r#""units": {"task-clock": "msec", "page-faults": "", "cycles": ""}, "#,
                r#""total": {"task-clock": 4.000000, "page-faults": 290, "cycles": null}, "#,
                r#""processes": [{"command": "sh -c ls / | wc; sleep 0.1", "pid": 100, "threads": 1, "#,
                r#""start_ns": 0, "wall_ns": 103000000, "exit": {"code": 0}, "#,
                r#""events": {"task-clock": 1.000000, "page-faults": 120, "cycles": null}, "children": ["#,
                r#"{"command": "ls /", "pid": 101, "threads": 1, "start_ns": 1, "wall_ns": 1500000, "exit": null, "#,
                r#""events": {"task-clock": 0.700000, "page-faults": 90, "cycles": null}, "children": []}, "#,
                r#"{"command": "wc", "pid": 102, "threads": 4, "start_ns": 2, "wall_ns": 1600000, "exit": {"signal": 13}, "#,
                r#""events": {"task-clock": 1.800000, "page-faults": 30, "cycles": null}, "#,
                r#""running_pct": {"task-clock": 50.00}, "children": []}, "#,
                r#"{"command": "sleep 0.1", "pid": 103, "threads": 1, "start_ns": 3, "wall_ns": 100900000, "exit": "running", "#,
                r#""events": {"task-clock": 0.500000, "page-faults": 50, "cycles": null}, "children": []}]}], "#,
                r#""notes": []}"#,
                "\n"
            )
        );
    }

    #[test]
    fn the_text_parses_and_adds_up() {
        let (report, tree) = wide(5_000);
        let text = compose(&report, &tree);
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let children = parsed["processes"][0]["children"].as_array();
        assert_eq!(children.map(Vec::len), Some(5_000));
        let sum: u64 = children.into_iter().flatten().filter_map(|child| child["events"]["page-faults"].as_u64()).sum();
        assert_eq!(parsed["total"]["page-faults"].as_u64(), Some(sum + 120));
    }

    #[test]
    fn a_long_chain_needs_no_stack() {
        let (report, tree) = chain(50_000);
        let text = compose(&report, &tree);
        // A parser would need a stack.
        assert_eq!(text.matches(['{', '[']).count(), text.matches(['}', ']']).count());
        assert_eq!(text.matches("\"pid\"").count(), 50_000);
    }

    #[test]
    fn equal_events_get_their_own_keys() {
        let (mut report, tree) = pipeline();
        report.events[1].name = "task-clock".to_owned();
        report.events[2].name = "task-clock#2".to_owned();
        assert_eq!(keys(&report), ["task-clock", "task-clock#2", "task-clock#2#2"]);
        assert!(serde_json::from_str::<serde_json::Value>(&compose(&report, &tree)).is_ok());
    }
}
