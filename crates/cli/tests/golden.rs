//! Recordings that `perf` made, and what it says of them: `golden/make` made both, `golden/VERSION` says with what. Neither perf nor the
//! right to record is needed here.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Door, pmux};
use flate2::read::GzDecoder;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Each recording with the fields of its lines, and by what the rows of its report are told apart.
/// perf puts the events of a group side by side into one table, which is not done here.
const ALL: [(&str, &str, Option<&str>); 10] = [
    ("several", "comm,pid,tid,time,event,period,ip", Some("comm,dso")),
    ("group", "comm,pid,tid,time,event,period,ip", None),
    ("leader", "comm,pid,tid,time,event,period", None),
    ("chains", "comm,pid,tid,time,event,period,ip,dso", Some("comm,dso")),
    ("dwarf", "comm,pid,tid,time,event,period", Some("comm")),
    ("tracepoints", "comm,pid,tid,cpu,time,event,trace", None),
    ("packed", "comm,pid,tid,time,event,period,ip", Some("comm")),
    ("pipe", "comm,pid,tid,time,event,period,ip", Some("comm")),
    ("data", "comm,pid,tid,time,event,period,addr", None),
    ("kernel", "comm,pid,tid,time,event,period,ip,dso", Some("comm,dso")),
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The recording as perf wrote it.
fn unpacked(door: &Door, name: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let packed = std::fs::File::open(golden(&format!("{name}.data.gz"))).unwrap();
    GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    let file = door.path(&format!("{name}.data"));
    std::fs::write(&file, bytes).unwrap();
    file
}

/// The lines without what stands behind them.
fn trimmed(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    lines[..end].to_vec()
}

#[test]
fn lines_are_those_of_perf() {
    let door = Door::new();
    for (name, fields, _) in ALL {
        let ours = pmux(["script", "--ns", "-F", fields, "-i"]).args([unpacked(&door, name)]).run().good().text();
        let theirs = std::fs::read_to_string(golden(&format!("{name}.script"))).unwrap();
        let (ours, theirs) = (trimmed(&ours), trimmed(&theirs));
        for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(ours, theirs, "{name}, line {}", at + 1);
        }
        assert_eq!(ours.len(), theirs.len(), "{name}");
    }
}

#[test]
fn rows_are_those_of_perf() {
    let door = Door::new();
    for (name, _, sort) in ALL {
        let Some(sort) = sort else { continue };
        let ours = pmux(["report", "--no-children", "-g", "none", "--sort", sort, "-i"])
            .args([unpacked(&door, name)])
            .run()
            .good()
            .text();
        let theirs = std::fs::read_to_string(golden(&format!("{name}.report"))).unwrap();
        // Of equal rows each program has its own order, and of names that take no room its own width.
        let rows = |text: &str| {
            let rows = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
            let mut rows: Vec<String> = rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            rows.sort();
            rows
        };
        assert_eq!(rows(&ours), rows(&theirs), "{name}");
        assert!(!rows(&theirs).is_empty(), "{name}");
        let counts = |text: &str| {
            let said = |line: &&str| line.starts_with("# Samples: ") || line.starts_with("# Event count");
            text.lines().filter(said).map(|line| line.trim_end().replace("  ", " ")).collect::<Vec<_>>()
        };
        assert_eq!(counts(&ours), counts(&theirs), "{name}");
    }
}
