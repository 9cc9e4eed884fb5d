//! What `pmux flight` says of a recorder, from what the recorder says of itself.
//!
//! **Invariant:** pure. What a recorder leaves out is shown as nothing, never a panic.

use pmux::units::{bytes_text, number_text, span_text};
use serde_json::Value;
use std::time::Duration;

fn seconds(value: &Value) -> String {
    let seconds = value.as_f64().filter(|seconds| (0.0..1e15).contains(seconds));
    seconds.map_or_else(|| "?".to_owned(), |seconds| span_text(Duration::from_secs_f64(seconds)))
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn plural(count: u64, what: &str) -> String {
    format!("{} {what}{}", number_text(count), if count == 1 { "" } else { "s" })
}

fn fired(status: &Value) -> u64 {
    items(&status["triggers"]).map(|trigger| count(&trigger["fired"])).sum()
}

fn kept(status: &Value) -> String {
    let held = &status["held"];
    let cpus = plural(items(&held["cpus"]).count() as u64, "CPU");
    let (seconds, bytes) = (seconds(&held["seconds"]), bytes_text(count(&held["bytes"])));
    format!("{seconds} of {} kept, {bytes} on {cpus}", text(&status["keep"]))
}

/// How it goes, on one line that is written anew.
pub(super) fn progress(status: &Value) -> String {
    let mut line = kept(status);
    if fired(status) > 0 {
        line.push_str(&format!(", triggers fired {}", plural(fired(status), "time")));
    }
    line.push_str(&format!(", {}", plural(count(&status["snapshots"]), "snapshot")));
    if count(&status["failed"]) > 0 {
        line.push_str(&format!(", {} failed", number_text(count(&status["failed"]))));
    }
    line
}

pub(crate) fn in_a_line(status: &Value) -> String {
    let snapshots = plural(count(&status["snapshots"]), "snapshot");
    format!("{}, {snapshots}, into {}", kept(status), text(&status["directory"]))
}

/// `pmux flight status`: all about one recorder.
pub(super) fn page(id: &str, status: &Value) -> Vec<String> {
    let held = &status["held"];
    let mut lines = vec![format!("recorder {id} (process {})", count(&status["process"]))];
    let mut row = |name: &str, value: String| lines.push(format!("  {name:<10} {value}"));
    let events: Vec<&str> = items(&status["events"]).map(text).collect();
    row("events", events.join(", "));
    row("up", seconds(&status["up_s"]));
    row("keeps", kept(status));
    let waits = match count(&status["waits_bytes"]) {
        0 => String::new(),
        bytes => format!(", {} of waits", bytes_text(bytes)),
    };
    let rings = bytes_text(count(&held["ring_bytes"]));
    let metadata = bytes_text(count(&status["metadata_bytes"]));
    row("rings", format!("{rings}{waits}, and {metadata} of what explains samples"));
    let cpus: Vec<String> =
        items(&held["cpus"]).map(|cpu| format!("{}: {}", count(&cpu["cpu"]), seconds(&cpu["seconds"]))).collect();
    if (2..=16).contains(&cpus.len()) {
        row("CPUs", cpus.join(", "));
    }
    for trigger in items(&status["triggers"]) {
        row("trigger", format!("{}: fired {}", text(&trigger["trigger"]), plural(count(&trigger["fired"]), "time")));
    }
    for set in items(&status["sets"]) {
        row("set", format!("{} is {}", text(&set["name"]), if set["on"] == true { "on" } else { "off" }));
    }
    let mut snapshots = number_text(count(&status["snapshots"]));
    if let Some(last) = status["last_snapshot"].as_str() {
        snapshots.push_str(&format!(", the last one {last}"));
    }
    if count(&status["failed"]) > 0 {
        snapshots.push_str(&format!("; {} could not be written", number_text(count(&status["failed"]))));
    }
    if count(&status["held_back"]) > 0 {
        snapshots.push_str(&format!("; held back {}", plural(count(&status["held_back"]), "time")));
    }
    row("snapshots", snapshots);
    row("directory", text(&status["directory"]).to_owned());
    for warning in items(&status["warnings"]) {
        row("warning", text(warning).to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_daemon::flight::snapshot_line;
    use serde_json::json;

    #[test]
    fn what_is_left_out_is_no_panic() {
        for status in [json!(null), json!({}), json!({ "held": { "seconds": -1, "cpus": 3 }, "triggers": [1] })] {
            assert!(progress(&status).contains("kept"));
            assert!(!page("1", &status).is_empty());
            assert!(in_a_line(&status).contains("into"));
            assert!(!snapshot_line(&status).is_empty());
        }
    }

    #[test]
    fn a_line_says_what_is_there() {
        let status = json!({
            "keep": "30 s",
            "held": { "seconds": 12.0, "bytes": 1 << 20, "cpus": [{ "cpu": 0 }, { "cpu": 1 }] },
            "triggers": [{ "fired": 2 }, { "fired": 1 }],
            "snapshots": 1,
        });
        assert_eq!(progress(&status), "12 s of 30 s kept, 1 MiB on 2 CPUs, triggers fired 3 times, 1 snapshot");
    }
}
