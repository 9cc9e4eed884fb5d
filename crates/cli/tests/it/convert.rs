//! `pmux convert` and `pmux view`: what they make is read as the tools that it is for read it.
//!
//! What it is: each format is decoded by a reader that knows the published format and nothing of the writer, and its numbers are those of
//! the recording. Read first: [`recording`].

use crate::common;
use crate::common::{SyncDir, kernel, new_file, pmux, record_faults, role, skip_unless, unpacked};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

/// Page faults of a process with three threads: each one a sample. The folder goes away with the test.
pub(crate) fn recording() -> (SyncDir, PathBuf) {
    let (sync_dir, file) = new_file("perf.data");
    record_faults(&file, &["--switch-events"], role::words("threads:3,100"));
    (sync_dir, file)
}

/// What is made of it.
fn made(file: &Path, format: &str) -> Vec<u8> {
    let made = pmux(["convert", "--no-inline", "--to", format, "-i"]).args([file]).run().good().out;
    if made.starts_with(&[0x1f, 0x8b]) { unpacked(&made[..]) } else { made }
}

/// Samples by function, the one that was met: what all formats must agree on.
type Leaves = BTreeMap<String, u64>;

fn folded(bytes: &[u8]) -> Leaves {
    let mut leaves = Leaves::new();
    for line in std::str::from_utf8(bytes).unwrap().lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        *leaves.entry(stack.rsplit(';').next().unwrap().to_owned()).or_default() += weight.parse::<u64>().unwrap();
    }
    leaves
}

fn speedscope(bytes: &[u8]) -> Leaves {
    let file: Value = serde_json::from_slice(bytes).unwrap();
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = file["shared"]["frames"].as_array().unwrap();
    let profiles = file["profiles"].as_array().unwrap();
    assert!(file["activeProfileIndex"].as_u64().unwrap() < profiles.len() as u64);
    let mut leaves = Leaves::new();
    for profile in profiles {
        assert_eq!(profile["type"], "sampled");
        assert!(["none", "nanoseconds"].contains(&profile["unit"].as_str().unwrap()));
        let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
        assert_eq!(samples.len(), weights.len());
        let all: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
        let span = profile["endValue"].as_u64().unwrap() - profile["startValue"].as_u64().unwrap();
        assert_eq!(all, span, "{}", profile["name"]);
        for (stack, weight) in samples.iter().zip(weights) {
            for frame in stack.as_array().unwrap() {
                assert!(frames[frame.as_u64().unwrap() as usize]["name"].is_string());
            }
            let Some(leaf) = stack.as_array().unwrap().last() else { continue };
            let name = frames[leaf.as_u64().unwrap() as usize]["name"].as_str().unwrap();
            *leaves.entry(name.replace(';', ":")).or_default() += weight.as_u64().unwrap();
        }
    }
    leaves
}

/// A message as it is on the wire: each field by its number, in order. A reader that goes by these reads what was published.
#[derive(Debug, Clone)]
enum Wire {
    Number(u64),
    Bytes(Vec<u8>),
}

/// A number of seven bits a byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> u64 {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
    let (own, rest) = bytes.split_at(end + 1);
    *bytes = rest;
    own.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
}

fn fields(mut bytes: &[u8]) -> Vec<(u32, Wire)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let wire = match key & 7 {
            0 => Wire::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (own, rest) = bytes.split_at(length);
                bytes = rest;
                Wire::Bytes(own.to_vec())
            }
            other => panic!("{other} is in none of these formats"),
        };
        out.push(((key >> 3) as u32, wire));
    }
    out
}

fn all(message: &[(u32, Wire)], tag: u32) -> Vec<Vec<u8>> {
    let bytes = |(own, wire): &(u32, Wire)| match wire {
        Wire::Bytes(bytes) if *own == tag => Some(bytes.clone()),
        _ => None,
    };
    message.iter().filter_map(bytes).collect()
}

/// The number of a field; what is not there is 0.
fn number(message: &[(u32, Wire)], tag: u32) -> u64 {
    let value = |(own, wire): &(u32, Wire)| match wire {
        Wire::Number(value) if *own == tag => Some(*value),
        _ => None,
    };
    message.iter().find_map(value).unwrap_or(0)
}

/// Numbers, packed or not.
fn numbers(message: &[(u32, Wire)], tag: u32) -> Vec<u64> {
    let mut out = Vec::new();
    for (_, wire) in message.iter().filter(|(own, _)| *own == tag) {
        match wire {
            Wire::Number(value) => out.push(*value),
            Wire::Bytes(bytes) => {
                let mut bytes = bytes.as_slice();
                while !bytes.is_empty() {
                    out.push(varint(&mut bytes));
                }
            }
        }
    }
    out
}

/// `profile.proto` of pprof: 1 sample_type, 2 sample, 3 mapping, 4 location, 5 function, 6 string_table.
fn pprof(bytes: &[u8]) -> Leaves {
    let profile = fields(bytes);
    let strings: Vec<String> = all(&profile, 6).into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect();
    assert_eq!(strings[0], "");
    let types: Vec<_> =
        all(&profile, 1).iter().map(|kind| strings[number(&fields(kind), 1) as usize].clone()).collect();
    assert_eq!(types, ["samples", "page-faults:u"]);
    let table = |tag: u32| {
        let rows = all(&profile, tag).into_iter().map(|row| fields(&row));
        let rows: BTreeMap<u64, _> = rows.map(|row| (number(&row, 1), row)).collect();
        assert!(!rows.contains_key(&0), "0 is no id");
        assert_eq!(rows.len(), all(&profile, tag).len(), "ids are unique");
        rows
    };
    let (mappings, locations, functions) = (table(3), table(4), table(5));
    for location in locations.values() {
        let mapping = &mappings[&number(location, 2)];
        let address = number(location, 3);
        assert!(number(mapping, 2) <= address && address < number(mapping, 3), "the address is in the mapping");
    }
    let mut leaves = Leaves::new();
    for sample in all(&profile, 2) {
        let sample = fields(&sample);
        let values = numbers(&sample, 2);
        assert_eq!(values.len(), types.len());
        assert_eq!(values[0], values[1], "each page fault is a sample");
        let stack = numbers(&sample, 1);
        assert!(stack.iter().all(|id| locations.contains_key(id)));
        let Some(leaf) = stack.first() else { continue };
        let line = fields(&all(&locations[leaf], 4)[0]);
        let name = &strings[number(&functions[&number(&line, 1)], 2) as usize];
        *leaves.entry(name.replace(';', ":")).or_default() += values[1];
    }
    leaves
}

/// What a sequence has given a number: by kind, by number.
type Interned = BTreeMap<u32, BTreeMap<u64, Vec<(u32, Wire)>>>;

/// `perfetto_trace.proto`: a trace has packets (1); of these 10 is the sequence, 12 interned data, 66 a sample.
fn perfetto(bytes: &[u8]) -> Leaves {
    let mut leaves = Leaves::new();
    let mut interned: BTreeMap<u64, Interned> = BTreeMap::new();
    let mut counts: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let (mut tracks, mut open) = (BTreeSet::new(), BTreeMap::new());
    for packet in all(&fields(bytes), 1) {
        let packet = fields(&packet);
        let sequence = number(&packet, 10);
        assert_ne!(sequence, 0);
        for data in all(&packet, 12) {
            assert_eq!(number(&packet, 13) & 1, 1, "the state of the sequence begins");
            for (tag, wire) in fields(&data) {
                let Wire::Bytes(row) = wire else { panic!("{tag} is no message") };
                let row = fields(&row);
                interned.entry(sequence).or_default().entry(tag).or_default().insert(number(&row, 1), row);
            }
        }
        for track in all(&packet, 60) {
            assert!(tracks.insert(number(&fields(&track), 1)), "tracks have numbers of their own");
        }
        for event in all(&packet, 11) {
            let event = fields(&event);
            let (kind, track) = (number(&event, 9), number(&event, 11));
            assert!(tracks.contains(&track), "the track is described before");
            let depth: &mut i64 = open.entry(track).or_default();
            *depth += match kind {
                1 => 1,
                2 => -1,
                3 => 0,
                other => panic!("{other} is no kind of event"),
            };
            assert!((0..=1).contains(depth), "a thread has one CPU, and a CPU one thread");
        }
        for sample in all(&packet, 66) {
            let (sample, own) = (fields(&sample), &interned[&sequence]);
            assert!(number(&packet, 8) > 0 && number(&sample, 2) > 0 && number(&sample, 3) > 0);
            let stack = numbers(&own[&7][&number(&sample, 4)], 2);
            let frames: Vec<_> = stack.iter().map(|frame| &own[&6][frame]).collect();
            assert!(frames.iter().all(|frame| own[&19].contains_key(&number(frame, 3))), "each frame has its mapping");
            let count = counts.entry((sequence, number(&sample, 1))).or_default();
            let weight = number(&sample, 6) - *count;
            *count += weight;
            let Some(leaf) = frames.last() else { continue };
            let name = all(&own[&5][&number(leaf, 2)], 2).remove(0);
            *leaves.entry(String::from_utf8(name).unwrap().replace(';', ":")).or_default() += weight;
        }
    }
    assert!(open.values().all(|depth| *depth == 0), "what begins ends");
    assert!(!open.is_empty(), "switches were recorded");
    leaves
}

/// The processed format: tables of columns, each thread with its own.
fn firefox(bytes: &[u8]) -> Leaves {
    let profile: Value = serde_json::from_slice(bytes).unwrap();
    for key in ["interval", "startTime", "processType", "categories", "preprocessedProfileVersion", "product"] {
        assert!(!profile["meta"][key].is_null(), "meta.{key}");
    }
    assert_eq!(profile["meta"]["symbolicated"], true);
    assert!(profile["libs"].is_array());
    let mut leaves = Leaves::new();
    for thread in profile["threads"].as_array().unwrap() {
        let strings =
            if thread["stringArray"].is_array() { &thread["stringArray"] } else { &profile["shared"]["stringArray"] };
        let (samples, stacks, frames, functions) =
            (&thread["samples"], &thread["stackTable"], &thread["frameTable"], &thread["funcTable"]);
        for (table, columns) in [
            (samples, &["stack"][..]),
            (stacks, &["frame", "prefix"]),
            (frames, &["func", "category", "line"]),
            (functions, &["name", "resource"]),
        ] {
            for column in columns {
                assert_eq!(table[column].as_array().unwrap().len() as u64, table["length"], "{column}");
            }
        }
        for stack in samples["stack"].as_array().unwrap() {
            let Some(stack) = stack.as_u64() else { continue };
            let frame = stacks["frame"][stack as usize].as_u64().unwrap() as usize;
            let function = frames["func"][frame].as_u64().unwrap() as usize;
            let name = strings[functions["name"][function].as_u64().unwrap() as usize].as_str().unwrap();
            *leaves.entry(name.replace(';', ":")).or_default() += 1;
        }
    }
    leaves
}

#[test]
fn all_formats_tell_the_same() {
    skip_unless!(kernel());
    let (_folder, file) = recording();
    let told = folded(&made(&file, "folded"));
    assert!(told.values().any(|count| *count >= 300), "{told:?}");
    // A stack without a frame has its command alone, which is no function.
    let same = |other: Leaves, format: &str| {
        let known: Leaves =
            told.iter().filter(|(name, _)| other.contains_key(*name)).map(|(a, b)| (a.clone(), *b)).collect();
        assert_eq!(other, known, "{format}");
        assert!(other.values().sum::<u64>() >= 300);
    };
    same(speedscope(&made(&file, "speedscope")), "speedscope");
    same(pprof(&made(&file, "pprof")), "pprof");
    same(perfetto(&made(&file, "perfetto")), "perfetto");
    same(firefox(&made(&file, "firefox")), "firefox");
}

#[test]
fn trace_events_nest_and_stand_in_their_threads() {
    skip_unless!(kernel());
    let (_folder, file) = recording();
    let trace: Value = serde_json::from_slice(&made(&file, "chrome")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let mut threads: BTreeMap<(i64, i64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in events {
        let who = (event["pid"].as_i64().unwrap(), event["tid"].as_i64().unwrap());
        assert!(event["name"].is_string());
        match event["ph"].as_str().unwrap() {
            "X" => {
                let (begin, length) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
                assert!(begin >= 0.0 && length >= 0.0);
                threads.entry(who).or_default().push((begin, begin + length));
            }
            "M" => assert!(event["args"]["name"].is_string()),
            "i" => assert_eq!(event["s"], "t"),
            other => panic!("{other} is not written"),
        }
    }
    // The harness, the role, and its three; and at least one CPU.
    assert!(threads.len() >= 5, "{threads:?}");
    for slices in threads.values_mut() {
        slices.sort_by(|a, b| (a.0, -a.1).partial_cmp(&(b.0, -b.1)).unwrap());
        let mut open: Vec<f64> = Vec::new();
        for &(begin, end) in slices.iter() {
            // Times are rounded to a nanosecond.
            open.retain(|outer| *outer > begin + 0.0015);
            assert!(open.iter().all(|outer| end <= outer + 0.0015), "slices are one within the other, or apart");
            open.push(end);
        }
    }
}

#[test]
fn what_can_not_be_converted_is_said() {
    pmux(["convert", "-f", "firefix"]).run().bad(125, &["'firefox'", "a similar value exists"]);
    pmux(["convert", "--to", "firefix"])
        .run()
        .bad(125, &["'firefix'", "expected a number of seconds", "no format either: firefox, pprof"]);
    pmux(["convert"]).run().bad(125, &["say what to make with --format: firefox, pprof"]);
    pmux(["convert", "--to", "folded", "--since", "2", "--until", "1"])
        .run()
        .bad(125, &["--to must be later than --from"]);
    let (_folder, empty) = new_file("empty");
    std::fs::write(&empty, "").unwrap();
    for format in ["firefox", "pprof", "speedscope", "folded", "perfetto", "chrome"] {
        pmux(["convert", "--to", format, "-i", empty.to_str().unwrap()]).run().bad(125, &["the recording is empty"]);
    }
}

/// Asks for a path, and returns the head of the answer and what follows it.
fn ask(port: u16, line: &str, host: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "{line} HTTP/1.1\r\nHost: {host}\r\nOrigin: https://profiler.firefox.com\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8(bytes[..end].to_vec()).unwrap(), bytes[end + 4..].to_vec())
}

#[test]
fn a_recording_is_served_to_clients_with_the_link() {
    skip_unless!(kernel());
    let (sync_dir, file) = recording();
    let out = sync_dir.path("link");
    // As a job in the background of a script is started.
    let script = format!("trap '' INT; exec \"$0\" view --no-inline -i {} >{}", file.display(), out.display());
    let running = common::start("sh", ["-c", &script, common::PMUX]).spawn();
    let link = sync_dir.read("link");
    let inner = link.strip_prefix("https://profiler.firefox.com/from-url/").unwrap();
    let inner = inner.trim_end_matches('/').replace("%3A", ":").replace("%2F", "/");
    let rest = inner.strip_prefix("http://127.0.0.1:").unwrap();
    let (port, path) = rest.split_once('/').unwrap();
    let (port, path) = (port.parse::<u16>().unwrap(), format!("/{path}"));
    let own = format!("127.0.0.1:{port}");
    let (head, body) = ask(port, &format!("GET {path}"), &own);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("\r\nAccess-Control-Allow-Origin: https://profiler.firefox.com\r\n"), "{head}");
    assert!(firefox(&unpacked(&body[..])).values().sum::<u64>() >= 300);
    let (head, body) = ask(port, &format!("OPTIONS {path}"), &own);
    assert!(head.contains("\r\nAccess-Control-Allow-Private-Network: true\r\n") && body.is_empty(), "{head}");
    assert!(ask(port, "GET /", &own).0.starts_with("HTTP/1.1 404 "));
    assert!(ask(port, &format!("GET {path}"), "elsewhere.example").0.starts_with("HTTP/1.1 421 "));
    running.signal("INT");
    assert_eq!(running.wait().code(), 128 + 2);
}
