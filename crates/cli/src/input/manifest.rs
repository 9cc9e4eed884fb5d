//! What the flight recorder has written beside a snapshot: why it was taken, what was marked, since when each CPU is in it, and what is
//! lost.
//!
//! **Invariant:** what it lacks is left out; what it has and can't be read is said.

use crate::picture::duration;
use crate::stderr::visible;
use serde_json::{Value, json};
use std::io;
use std::path::Path;

/// A moment, in ns of the recording's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) at_ns: u64,
    pub(crate) what: String,
}

/// A CPU and the times that are in the snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(crate) cpu: u32,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

/// What is in it that is shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Manifest {
    pub(crate) file: String,
    pub(crate) number: Option<u64>,
    pub(crate) causes: Vec<Mark>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) windows: Vec<Window>,
    /// The first and the last record of all CPUs.
    pub(crate) window_ns: Option<(u64, u64)>,
    /// What was lost, in numbers, by what it is.
    pub(crate) lost: Vec<(u64, &'static str)>,
}

/// The manifest of a snapshot, if there is one.
///
/// # Errors
/// A sentence: it is there and can't be read.
pub(crate) fn beside(recording: &Path) -> Result<Option<Manifest>, String> {
    let path = recording.with_extension("json");
    let text = match std::fs::read_to_string(&path) {
        // What a shell has just made for what is to be printed: `report -j -i x.data >x.json`.
        Ok(text) if text.is_empty() => return Ok(None),
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(format!("{} can't be read: {error}", path.display())),
    };
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| format!("{} is no manifest of a snapshot: {error}", path.display()))?;
    let file = recording.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(of(&value).map(|manifest| Manifest { file, ..manifest }))
}

/// `None` for what only has the name of a manifest.
fn of(value: &Value) -> Option<Manifest> {
    value["version"].as_u64()?;
    let list = |key: &str| value[key].as_array().map_or(&[][..], Vec::as_slice);
    let moments = |key: &str| {
        let one =
            |moment: &Value| Some(Mark { at_ns: moment["at_ns"].as_u64()?, what: moment["what"].as_str()?.to_owned() });
        list(key).iter().filter_map(one).collect()
    };
    let window = |cpu: &Value| {
        Some(Window {
            cpu: u32::try_from(cpu["cpu"].as_u64()?).ok()?,
            first_ns: cpu["first_ns"].as_u64()?,
            last_ns: cpu["last_ns"].as_u64()?,
        })
    };
    let (lost, previous) = (&value["lost"], &value["previous"]);
    let counts = [
        (&lost["missing_bytes"], "bytes were overwritten while it was copied"),
        (&lost["corrupt_records"], "records were broken"),
        (&lost["left_out_records"], "older records are left out, because those of another CPU were overwritten"),
        (&lost["unknown_id_samples"], "samples are left out, because the kernel gave them another recorder's id"),
        (&lost["task_records"], "records about tasks were lost"),
        (&value["waits"]["unseen"], "waits were not seen as a whole since recording began"),
        (&previous["gap_bytes"], "bytes are neither in it nor in the snapshot before it"),
    ];
    let counts = counts.into_iter().filter_map(|(count, what)| Some((count.as_u64()?, what)));
    Some(Manifest {
        file: String::new(),
        number: value["snapshot"].as_u64(),
        causes: moments("causes"),
        marks: moments("marks"),
        windows: list("cpus").iter().filter_map(window).collect(),
        window_ns: value["window"]["first_ns"].as_u64().zip(value["window"]["last_ns"].as_u64()),
        lost: counts.filter(|(count, _)| *count > 0).collect(),
    })
}

impl Manifest {
    /// For people: which one, why, from when to when, what is lost.
    pub(crate) fn sentence(&self) -> String {
        let mut text = match self.number {
            Some(number) => format!("snapshot {number}"),
            None => "a snapshot".to_owned(),
        };
        let since = |at_ns: u64| match self.window_ns {
            Some((first, _)) if at_ns >= first => format!("{} after its first record", duration(at_ns - first)),
            Some((first, _)) => format!("{} before its first record", duration(first - at_ns)),
            None => "without a record".to_owned(),
        };
        let causes: Vec<String> =
            self.causes.iter().map(|cause| format!("{}, {}", visible(&cause.what), since(cause.at_ns))).collect();
        if !causes.is_empty() {
            text.push_str(&format!(", taken for {}", causes.join("; ")));
        }
        if let Some((first, last)) = self.window_ns {
            text.push_str(&format!("; it spans {}", duration(last.saturating_sub(first))));
        }
        match self.marks.len() {
            0 => {}
            1 => text.push_str("; 1 moment was marked"),
            marks => text.push_str(&format!("; {marks} moments were marked")),
        }
        let lost: Vec<String> = self.lost.iter().map(|(count, what)| format!("{count} {what}")).collect();
        text.push_str("; ");
        text.push_str(&if lost.is_empty() { "nothing is lost".to_owned() } else { lost.join(", ") });
        if self.file.is_empty() { text } else { format!("{}: {text}", visible(&self.file)) }
    }

    pub(crate) fn json(&self) -> Value {
        let moments = |moments: &[Mark]| {
            moments.iter().map(|moment| json!({ "at_ns": moment.at_ns, "what": moment.what })).collect::<Vec<_>>()
        };
        json!({
            "file": self.file, "snapshot": self.number,
            "causes": moments(&self.causes), "marks": moments(&self.marks),
            "first_ns": self.window_ns.map(|(first, _)| first), "last_ns": self.window_ns.map(|(_, last)| last),
            "lost": self.lost.iter().map(|(count, what)| json!({ "count": count, "what": what })).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_taken() {
        let manifest = of(&json!({
            "version": 1, "snapshot": 3,
            "causes": [{ "at_ns": 1_500_000_003_u64, "what": "page-faults > 1000/s" }],
            "marks": [{ "at_ns": "later", "what": "is no time" }],
            "window": { "first_ns": 3, "last_ns": 2_000_000_003_u64 },
            "cpus": [{ "cpu": 1, "first_ns": 3, "last_ns": 9 }, { "cpu": 2, "first_ns": null, "last_ns": null }],
            "lost": { "missing_bytes": 0, "corrupt_records": 0, "left_out_records": 5, "task_records": 7 },
            "previous": { "gap_bytes": 4096 },
        }))
        .unwrap_or_default();
        assert!(manifest.marks.is_empty());
        assert_eq!(manifest.windows, [Window { cpu: 1, first_ns: 3, last_ns: 9 }]);
        assert_eq!(
            manifest.sentence(),
            "snapshot 3, taken for page-faults > 1000/s, 1.50 s after its first record; it spans 2.00 s; 5 older records are left \
             out, because those of another CPU were overwritten, 7 records about tasks were lost, 4096 bytes are neither in it nor in the snapshot before it"
        );
        assert_eq!(of(&json!([1, 2])), None);
        assert_eq!(
            of(&json!({ "version": 1 })).map(|manifest| manifest.sentence()),
            Some("a snapshot; nothing is lost".to_owned())
        );
    }
}
