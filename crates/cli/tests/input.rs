//! Which recording is read: a file, a folder of snapshots, what is piped in. The same for all who read one.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Door, kernel, perf, pmux, record_faults, role, start};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

fn data_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|kind| kind == "data")).collect();
    files.sort();
    files
}

/// How often each line is there.
fn lines(path: &Path) -> BTreeMap<String, usize> {
    let text = pmux(["script", "--ns", "-F", "comm,tid,time,event", "-i"]).args([path]).run().good().text();
    let mut lines = BTreeMap::new();
    text.lines().for_each(|line| *lines.entry(line.to_owned()).or_default() += 1);
    lines
}

#[test]
fn what_two_snapshots_hold_counts_once() {
    if !kernel() {
        return;
    }
    let door = Door::new();
    let folder = door.path("snapshots");
    // The second snapshot holds what is in the first one, and more.
    let wait = format!("while [ -z \"$(ls {0}/*.data 2>/dev/null)\" ]; do sleep 0.02; done", folder.display());
    let work = role::line("touch:200");
    let line = format!("{work}; kill -USR2 $PPID; {wait}; {work}; :");
    pmux(["flight", "-e", "page-faults:u", "-c", "1", "--keep", "60s", "--at-end", "always", "-o"])
        .args([&folder])
        .args(["--", "sh", "-c", &line])
        .env("XDG_RUNTIME_DIR", door.path("."))
        .run()
        .good();
    let files = data_files(&folder);
    assert_eq!(files.len(), 2, "one for the signal, one for the end");
    let mut union: BTreeMap<String, usize> = BTreeMap::new();
    let mut most = 0;
    for file in &files {
        let own = lines(file);
        most = most.max(own.values().sum());
        for (line, count) in own {
            let known = union.entry(line).or_default();
            *known = count.max(*known);
        }
    }
    let joined = lines(&folder);
    let only_in = |one: &BTreeMap<String, usize>, other: &BTreeMap<String, usize>| {
        let missing = one.iter().filter(|(line, count)| other.get(*line) != Some(*count));
        missing.map(|(line, count)| format!("{count} {line}")).collect::<Vec<_>>()
    };
    assert_eq!((only_in(&joined, &union), only_in(&union, &joined)), (Vec::new(), Vec::new()));
    let all: usize = joined.values().sum();
    assert!(all >= 400 && all >= most);
    // What the recorder says of each stands first, in the table and in JSON.
    let table = pmux(["report", "-i"]).args([&folder]).run().good().text();
    assert!(table.starts_with("# flight-") && table.contains(": snapshot 1, taken for signal USR2, "), "{table}");
    let report: Value =
        serde_json::from_str(&pmux(["report", "-j", "-i"]).args([&folder]).run().good().text()).unwrap();
    assert_eq!(report["snapshots"][0]["causes"][0]["what"], "signal USR2");
    assert_eq!(report["snapshots"].as_array().unwrap().len(), 2);
    let samples: u64 =
        report["events"].as_array().unwrap().iter().map(|event| event["samples"].as_u64().unwrap()).sum();
    assert_eq!(samples, all as u64);
    for command in ["script", "flame"] {
        pmux([command, "-i"]).args([&folder]).run().good().says(&["snapshot 1, taken for signal USR2, "]);
    }
    pmux(["convert", "--to", "folded", "-i"]).args([&folder]).run().good().says(&["snapshot 2"]);
    // One file that can't be read is left out, and that is said.
    std::fs::write(folder.join("broken.data"), "PERFILE2 but not more than that").unwrap();
    let told = pmux(["report", "-i"]).args([&folder]).run().good().says(&["broken.data is left out: "]);
    assert_eq!(told.text(), table);
}

#[test]
fn recordings_of_two_machines_are_not_one() {
    if !kernel() {
        return;
    }
    let door = Door::new();
    let folder = door.path("two");
    std::fs::create_dir(&folder).unwrap();
    record_faults(&folder.join("a.data"), &[], role::words("touch:10"));
    let bytes = std::fs::read(folder.join("a.data")).unwrap();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let (host, other) = (host.trim().as_bytes(), "x".repeat(host.trim().len()));
    let mut changed = bytes.clone();
    // Only in the file's description: names of paths may have it too.
    let places = bytes.windows(host.len() + 1).enumerate().filter(|(_, window)| window == &[host, b"\0"].concat());
    places.for_each(|(at, _)| changed[at..at + host.len()].copy_from_slice(other.as_bytes()));
    assert_ne!(changed, bytes);
    std::fs::write(folder.join("b.data"), changed).unwrap();
    for command in ["report", "script", "flame", "timeline"] {
        pmux([command, "-i"]).args([&folder]).run().bad(125, &["a.data", "b.data", "are not of one machine"]);
    }
    // To compare, each stands for itself: both have all of the same time.
    let none = door.path("none");
    std::fs::create_dir(&none).unwrap();
    pmux(["report", "-i"]).args([&none]).run().bad(125, &["there is no recording in this folder"]);
    pmux(["diff"]).args([&none, &none]).run().bad(125, &["there is no recording in this folder"]);
}

#[test]
fn a_side_of_a_comparison_may_be_a_folder() {
    if !kernel() {
        return;
    }
    let door = Door::new();
    let side = |name: &str| {
        let folder = door.path(name);
        std::fs::create_dir(&folder).unwrap();
        for run in 0..2 {
            record_faults(&folder.join(format!("{run}.data")), &[], role::words("touch:100"));
        }
        folder
    };
    let sides = [side("before"), side("after")];
    let text = pmux(["diff", "-j"]).args(&sides).run().good().text();
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(told["events"][0]["recordings"], serde_json::json!({ "before": 2, "after": 2 }));
}

#[test]
fn what_perf_pipes_is_read() {
    if !kernel() || !perf() {
        return;
    }
    let door = Door::new();
    let options = ["record", "-q", "-g", "-e", "page-faults:u", "-c", "1", "-o"];
    let words =
        |to: OsString| options.iter().map(OsString::from).chain([to, "--".into()]).chain(role::words("touch:300"));
    let piped = start("perf", words("-".into())).run().good().out;
    // With and without its name, by all commands.
    for input in [&["-i", "-"][..], &[]] {
        let table = pmux(["report", "--no-children"]).args(input).input(piped.clone()).run().good().text();
        assert!(table.contains("of event 'page-faults:u'") && table.contains("atomic_store"), "{table}");
    }
    let script = pmux(["script", "-F", "comm,event"]).input(piped.clone()).run().good().text();
    let file = door.path("piped.data");
    std::fs::write(&file, &piped).unwrap();
    let own = start("perf", ["script", "-F", "comm,event", "-i"]).args([&file]).run().good().text();
    // Of a pipe perf prints the chains, too.
    let samples = |text: &str| {
        let lines = text.lines().map(str::trim).filter(|line| line.ends_with(" page-faults:u:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(samples(&script) == samples(&own) && samples(&own).len() > 300, "{script}");
    for command in [&["flame"][..], &["timeline"], &["convert", "--to", "speedscope"], &["convert", "--to", "perfetto"]]
    {
        assert!(!pmux(command).input(piped.clone()).run().good().out.is_empty());
    }
    for command in [&["report"][..], &["script"], &["flame"], &["timeline"], &["convert", "--to", "pprof"]] {
        pmux(command).args(["-i", "-"]).input(Vec::new()).run().bad(125, &["standard input: the recording is empty"]);
        pmux(command).args(["-i", "-"]).input("no recording").run().bad(125, &["standard input: this is no recording"]);
    }
}
