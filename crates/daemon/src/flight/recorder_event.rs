//! What a recorder tells: a line for people, an object for programs.
//!
//! Read first: [`RecorderEvent`].
//!
//! **Invariant:** pure. Times are those of the records, which `perf script` shows: seconds of the monotonic clock.

use pmux::Nanos;
use pmux::flight::{CpuWindow, FlightSnapshot, Keeping, Lasted, RingSpan, Status};
use pmux::trigger::{Position, Switched};
use pmux::units::{bytes_text, number_text, span_text};
use serde_json::{Value, json};
use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Something that happened.
#[derive(Debug)]
pub enum RecorderEvent {
    /// A trigger has fired.
    Fired {
        /// Which.
        trigger: String,
        /// From which numbers.
        why: String,
        /// When.
        at: Nanos,
    },
    /// A trigger has fired more often than it was told.
    MoreFired {
        /// Which.
        trigger: String,
        /// How often.
        times: u64,
    },
    /// A trigger has fired too soon after a snapshot.
    HeldBack {
        /// Which.
        trigger: String,
        /// How long none is taken.
        cool_down: Duration,
    },
    /// It happened more often than it was told.
    MoreHeldBack {
        /// How often.
        times: u64,
    },
    /// A client has asked for a snapshot.
    Asked {
        /// Who.
        who: String,
    },
    /// A set was switched, or could not be.
    Switched(Switched),
    /// A snapshot is there.
    Snapshot(Box<FlightSnapshot>),
    /// A snapshot could not be written.
    NoSnapshot {
        /// Why.
        why: String,
    },
    /// A command has ended badly.
    RunEnded {
        /// Which.
        command: String,
        /// How.
        how: String,
    },
    /// A command was not run.
    NotRun {
        /// Which.
        command: String,
        /// Why.
        why: String,
    },
    /// Something can't be recorded.
    Trouble {
        /// What, and why.
        what: String,
    },
    /// What triggers listened to is gone.
    SourceLost {
        /// Which triggers.
        triggers: Vec<String>,
        /// What, and what that means.
        what: String,
    },
}

impl RecorderEvent {
    /// How a command has ended, where that was not well.
    pub(super) fn of_command(command: String, ended: io::Result<ExitStatus>) -> Option<Self> {
        let how = match ended {
            Ok(status) if status.success() => return None,
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        Some(Self::RunEnded { command, how })
    }

    /// Whether something is wrong.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        match self {
            Self::NoSnapshot { .. }
            | Self::RunEnded { .. }
            | Self::NotRun { .. }
            | Self::Trouble { .. }
            | Self::SourceLost { .. } => true,
            Self::Switched(switched) => switched.result.is_err(),
            _ => false,
        }
    }

    /// For programs.
    #[must_use]
    pub fn value(&self) -> Value {
        match self {
            Self::Fired { trigger, why, at } => {
                json!({ "kind": "fired", "trigger": trigger, "why": why, "time": seconds(*at) })
            }
            Self::MoreFired { trigger, times } => json!({ "kind": "more_fired", "trigger": trigger, "times": times }),
            Self::HeldBack { trigger, cool_down } => {
                json!({ "kind": "held_back", "trigger": trigger, "cool_down_s": cool_down.as_secs_f64() })
            }
            Self::MoreHeldBack { times } => json!({ "kind": "more_held_back", "times": times }),
            Self::Asked { who } => json!({ "kind": "asked", "who": who }),
            Self::Switched(Switched { name, result }) => match result {
                Ok(position) => json!({ "kind": "set", "name": name, "on": *position == Position::On }),
                Err(error) => json!({ "kind": "set", "name": name, "error": error.to_string() }),
            },
            Self::Snapshot(snapshot) => {
                let mut value = snapshot_value(snapshot);
                value["kind"] = json!("snapshot");
                value
            }
            Self::NoSnapshot { why } => json!({ "kind": "no_snapshot", "why": why }),
            Self::RunEnded { command, how } => json!({ "kind": "run_ended", "command": command, "how": how }),
            Self::NotRun { command, why } => json!({ "kind": "not_run", "command": command, "why": why }),
            Self::Trouble { what } => json!({ "kind": "trouble", "what": what }),
            Self::SourceLost { triggers, what } => json!({ "kind": "lost", "triggers": triggers, "what": what }),
        }
    }
}

impl fmt::Display for RecorderEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fired { why, at, .. } => write!(f, "{:.6} {why}", seconds(*at)),
            Self::MoreFired { trigger, times } => write!(f, "`{trigger}` fired {times} more times"),
            Self::HeldBack { trigger, cool_down } => write!(
                f,
                "`{trigger}` takes no snapshot: the last one is less than {} ago (--cool-down)",
                span_text(*cool_down)
            ),
            Self::MoreHeldBack { times } => write!(f, "triggers were held back {times} more times"),
            Self::Asked { who } => write!(f, "a snapshot was asked for by {who}"),
            Self::Switched(Switched { name, result }) => match result {
                Ok(Position::On) => write!(f, "set {name} is on"),
                Ok(Position::Off) => write!(f, "set {name} is off"),
                Err(error) => write!(f, "set {name} can't be switched: {error}"),
            },
            Self::Snapshot(snapshot) => f.write_str(&snapshot_line(&snapshot_value(snapshot))),
            Self::NoSnapshot { why } => write!(f, "no snapshot: {why}"),
            Self::RunEnded { command, how } => write!(f, "run {command}: {how}"),
            Self::NotRun { command, why } => write!(f, "run {command}: not run: {why}"),
            Self::Trouble { what } => write!(f, "not all is recorded: {what}"),
            Self::SourceLost { triggers, what } => write!(f, "{}: {what}", triggers.join(", ")),
        }
    }
}

/// What is known of a snapshot, as the client that asked for it is told.
pub(super) fn snapshot_value(snapshot: &FlightSnapshot) -> Value {
    let window = |of: &CpuWindow| {
        json!({
            "cpu": of.cpu,
            "first": of.first.map(seconds),
            "last": of.last.map(seconds),
            "samples": of.samples,
            "away": of.away.iter().map(|absence| [Some(seconds(absence.from)), absence.to.map(seconds)]).collect::<Vec<_>>(),
        })
    };
    let sum = |of: fn(&CpuWindow) -> u64| snapshot.cpus.iter().map(of).sum::<u64>();
    json!({
        "snapshot": snapshot.path.display().to_string(),
        "manifest": snapshot.manifest.display().to_string(),
        "number": snapshot.number,
        "causes": snapshot.causes.iter().map(|cause| cause.what.as_str()).collect::<Vec<_>>(),
        "bytes": snapshot.bytes,
        "samples": snapshot.samples,
        "records": snapshot.records,
        "first": snapshot.window.map(|(first, _)| seconds(first)),
        "last": snapshot.window.map(|(_, last)| seconds(last)),
        "covers": snapshot.covers.map(|(since, until)| [seconds(since), seconds(until)]),
        "windows": snapshot.cpus.iter().map(window).collect::<Value>(),
        "cpus": snapshot.cpus.len(),
        "lost": snapshot.lost,
        "throttled": sum(|of| of.throttled),
        "missing_bytes": sum(|of| of.missing_bytes),
        "gap_bytes": sum(|of| of.gap_bytes.unwrap_or_default()),
        "overlap_bytes": sum(|of| of.overlap_bytes),
        "left_out": sum(|of| of.left_out),
        "unknown_ids": sum(|of| of.unknown_ids),
        "previous": snapshot.previous.map(|(number, _)| number),
        "took_ms": snapshot.took.as_secs_f64() * 1e3,
        "deleted": snapshot.deleted.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
    })
}

/// What `snapshot_value` says, in a line.
#[must_use]
pub fn snapshot_line(value: &Value) -> String {
    let count = |key: &str| value[key].as_u64().unwrap_or_default();
    let covers = (value["covers"][0].as_f64().zip(value["covers"][1].as_f64()))
        .map(|(since, until)| until - since)
        .filter(|seconds| (0.0..1e9).contains(seconds));
    let window =
        covers.map_or_else(|| "nothing whole".to_owned(), |seconds| span_text(Duration::from_secs_f64(seconds)));
    let plural = |count: u64, what: &str| format!("{} {what}{}", number_text(count), if count == 1 { "" } else { "s" });
    let mut line = format!(
        "{}: {window} of {}, {}, {}",
        value["snapshot"].as_str().unwrap_or("?"),
        plural(count("cpus"), "CPU"),
        plural(count("samples"), "sample"),
        bytes_text(count("bytes")),
    );
    let missing = count("missing_bytes");
    if missing > 0 {
        line.push_str(&format!(", without {} that were overwritten meanwhile", bytes_text(missing)));
    }
    if count("left_out") > 0 {
        let left_out = plural(count("left_out"), "record");
        line.push_str(&format!(", without {left_out} of before, when other CPUs' are overwritten"));
    }
    if count("unknown_ids") > 0 {
        let unknown = plural(count("unknown_ids"), "sample");
        line.push_str(&format!(", without {unknown} to which the kernel gave another recorder's id"));
    }
    if count("lost") > 0 {
        line.push_str(&format!(", {} about tasks lost", plural(count("lost"), "record")));
    }
    if count("throttled") > 0 {
        line.push_str(&format!(", {} held back by the kernel", plural(count("throttled"), "time")));
    }
    let end = value["covers"][1].as_f64();
    for window in value["windows"].as_array().into_iter().flatten() {
        let span = |of: &Value| Some((of[1].as_f64().or(end)? - of[0].as_f64()?).clamp(0.0, 1e9));
        let away_s: f64 = window["away"].as_array().into_iter().flatten().filter_map(span).sum();
        if away_s > 0.0 {
            let cpu = window["cpu"].as_u64().unwrap_or_default();
            line.push_str(&format!(", CPU {cpu} away for {}", span_text(Duration::from_secs_f64(away_s))));
        }
    }
    let took_ms = value["took_ms"].as_f64().unwrap_or_default();
    line.push_str(&format!(", in {}", span_text(Duration::from_secs_f64(took_ms.clamp(0.0, 1e12) / 1e3))));
    if count("overlap_bytes") > 0 {
        line.push_str(&format!("; {} of it are in the snapshot before, too", bytes_text(count("overlap_bytes"))));
    }
    if let Some(deleted) = value["deleted"].as_array().filter(|deleted| !deleted.is_empty()) {
        line.push_str(&format!("; {} removed for it", plural(deleted.len() as u64, "older snapshot")));
    }
    line
}

/// What is kept, as it was asked for.
pub(super) fn keep(keeping: Keeping) -> String {
    match keeping {
        Keeping::Span(time) => span_text(time),
        Keeping::Bytes(count) => format!("{} a CPU", bytes_text(count)),
    }
}

/// What is held, of all CPUs together and of each.
pub(super) fn held(status: &Status) -> Value {
    let each = |held: &RingSpan| {
        json!({
            "cpu": held.cpu,
            "seconds": held.span.as_secs_f64(),
            "bytes": held.used_bytes,
            "ring_bytes": held.ring_bytes,
            "since_start": held.lasted == Lasted::SinceStart,
        })
    };
    let sum = |of: fn(&RingSpan) -> u64| status.held.iter().map(of).sum::<u64>();
    json!({
        "seconds": status.held.iter().map(|held| held.span.as_secs_f64()).reduce(f64::min),
        "bytes": sum(|held| held.used_bytes),
        "ring_bytes": sum(|held| held.ring_bytes),
        "cpus": status.held.iter().map(each).collect::<Value>(),
    })
}

fn seconds(at: Nanos) -> f64 {
    at.0 as f64 / 1e9
}
