//! What the flight recorder has written beside a snapshot: why it was taken, what was marked, and since when each CPU is in it.
//!
//! **Invariant:** what it lacks is left out; what it has and can't be read is said.

use serde_json::Value;
use std::io;
use std::path::Path;

/// A moment, in ns of the recording's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    pub(super) at_ns: u64,
    pub(super) what: String,
}

/// A CPU and the times that are in the snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    pub(super) cpu: u32,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

/// What is in it that can be drawn.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Manifest {
    pub(super) causes: Vec<Moment>,
    pub(super) marks: Vec<Moment>,
    pub(super) windows: Vec<Window>,
}

/// The manifest of a snapshot, if there is one.
///
/// # Errors
/// A sentence: it is there and can't be read.
pub(super) fn beside(recording: &Path) -> Result<Option<Manifest>, String> {
    let path = recording.with_extension("json");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(format!("{} can't be read: {error}", path.display())),
    };
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| format!("{} is no manifest of a snapshot: {error}", path.display()))?;
    Ok(Some(of(&value)))
}

fn of(value: &Value) -> Manifest {
    let list = |key: &str| value[key].as_array().map_or(&[][..], Vec::as_slice);
    let moments = |key: &str| {
        let one = |moment: &Value| {
            Some(Moment { at_ns: moment["at_ns"].as_u64()?, what: moment["what"].as_str()?.to_owned() })
        };
        list(key).iter().filter_map(one).collect()
    };
    let window = |cpu: &Value| {
        Some(Window {
            cpu: u32::try_from(cpu["cpu"].as_u64()?).ok()?,
            first_ns: cpu["first_ns"].as_u64()?,
            last_ns: cpu["last_ns"].as_u64()?,
        })
    };
    Manifest {
        causes: moments("causes"),
        marks: moments("marks"),
        windows: list("cpus").iter().filter_map(window).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_there_is_taken() {
        let manifest = of(&json!({
            "causes": [{ "at_ns": 7, "what": "page-faults > 1000/s" }],
            "marks": [{ "at_ns": "later", "what": "is no time" }],
            "cpus": [{ "cpu": 1, "first_ns": 3, "last_ns": 9 }, { "cpu": 2, "first_ns": null, "last_ns": null }],
        }));
        assert_eq!(manifest.causes, [Moment { at_ns: 7, what: "page-faults > 1000/s".to_owned() }]);
        assert!(manifest.marks.is_empty());
        assert_eq!(manifest.windows, [Window { cpu: 1, first_ns: 3, last_ns: 9 }]);
        assert_eq!(of(&json!([1, 2])), Manifest::default());
    }
}
