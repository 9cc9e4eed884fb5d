//! Which recording is read: a file, a folder of snapshots, what is piped in. The same for all who read one.

use crate::common::{
    PMUX, SyncDir, files, kernel, new_file, perf, pmux, record_faults, role, root, skip_unless, start, tracefs,
};
use std::collections::BTreeMap;
use std::path::Path;

/// How often each line is there.
fn lines(path: &Path) -> BTreeMap<String, usize> {
    let text = pmux(["script", "--ns", "-F", "comm,tid,time,event", "-i"]).args([path]).run().good().text();
    let mut lines = BTreeMap::new();
    text.lines().for_each(|line| *lines.entry(line.to_owned()).or_default() += 1);
    lines
}

#[test]
fn what_two_snapshots_hold_counts_once() {
    skip_unless!(kernel());
    let (sync_dir, folder) = new_file("snapshots");
    // The second snapshot holds what is in the first one, and more.
    let wait = format!("while [ -z \"$(ls {0}/*.data 2>/dev/null)\" ]; do sleep 0.02; done", folder.display());
    let work = role::quiet_line("touch:200");
    let line = format!("{work}; kill -USR2 $PPID; {wait}; {work}; :");
    let words = ["flight", "-e", "page-faults:u", "-c", "1", "--keep", "60s", "--at-end", "always", "-o"];
    let flight = pmux(words).args([&folder]).args(["--", "sh", "-c", &line]);
    flight.env("XDG_RUNTIME_DIR", sync_dir.path(".")).run().good();
    let files = files(&folder, "data");
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
    let report = pmux(["report", "-j", "-i"]).args([&folder]).run().good().document();
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
    skip_unless!(kernel());
    let (sync_dir, folder) = new_file("two");
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
    let none = sync_dir.path("none");
    std::fs::create_dir(&none).unwrap();
    pmux(["report", "-i"]).args([&none]).run().bad(125, &["there is no recording in this folder"]);
    pmux(["diff"]).args([&none, &none]).run().bad(125, &["there is no recording in this folder"]);
}

#[test]
fn a_side_of_a_comparison_may_be_a_folder() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let side = |name: &str| {
        let folder = sync_dir.path(name);
        std::fs::create_dir(&folder).unwrap();
        for run in 0..2 {
            record_faults(&folder.join(format!("{run}.data")), &[], role::words("touch:100"));
        }
        folder
    };
    let sides = [side("before"), side("after")];
    let told = pmux(["diff", "-j"]).args(&sides).run().good().document();
    assert_eq!(told["events"][0]["recordings"], serde_json::json!({ "before": 2, "after": 2 }));
}

#[test]
fn what_perf_pipes_is_read() {
    skip_unless!(kernel() && perf());
    let sync_dir = SyncDir::new();
    let record = start("perf", ["record", "-q", "-g", "-e", "page-faults:u", "-c", "1", "-o", "-", "--"]);
    let piped = record.args(role::words("touch:300")).run().good().out;
    // With and without its name, by all commands.
    for input in [&["-i", "-"][..], &[]] {
        let table = pmux(["report", "--no-children"]).args(input).input(piped.clone()).run().good().text();
        assert!(table.contains("of event 'page-faults:u'") && table.contains("atomic_store"), "{table}");
    }
    let script = pmux(["script", "-F", "comm,event"]).input(piped.clone()).run().good().text();
    let file = sync_dir.path("piped.data");
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

/// A recording through a pipe, whose packed records hold these bytes so many times, each time as a stream of its own.
fn bomb(stream: &[u8], times: usize) -> Vec<u8> {
    let mut out = b"PERFILE2".to_vec();
    out.extend(16_u64.to_ne_bytes());
    let mut attr = [0_u8; 72];
    (attr[0], attr[4]) = (1, 64);
    attr[4..8].copy_from_slice(&64_u32.to_ne_bytes());
    // An identifier, a time, raw data; and the first two behind all other records.
    attr[24..32].copy_from_slice(&(1_u64 << 16 | 1 << 10 | 1 << 2).to_ne_bytes());
    attr[40..48].copy_from_slice(&(1_u64 << 18).to_ne_bytes());
    attr[64..72].copy_from_slice(&7_u64.to_ne_bytes());
    let mut put = |kind: u32, payload: &[u8]| {
        out.extend(kind.to_ne_bytes());
        out.extend([0; 2]);
        out.extend((8 + payload.len() as u16).to_ne_bytes());
        out.extend(payload);
    };
    put(64, &attr);
    (0..times).for_each(|_| put(81, stream));
    out
}

#[test]
fn few_bytes_that_unpack_to_many_take_little_memory() {
    // zstd: magic, a window of 128 KiB; then blocks of 3 bytes that say a fourth one 128 KiB times, or a first that is not packed and
    // others that repeat it (a literal section of nothing, one sequence of one code each by RLE).
    let head = [0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
    let block = |size: u32, kind: u32, last: u32| (size << 3 | kind << 1 | last).to_le_bytes()[..3].to_vec();
    // All of a kind that is not to be read.
    let same: Vec<u8> = (0..6_000).flat_map(|_| [block(0x2_0000, 1, 0), vec![8]].concat()).collect();
    // Records of 8 bytes that say that events were held back: too short for what they say.
    let short = [5, 0, 0, 0, 0, 0, 8, 0].repeat(2048);
    let raw_short = [block(short.len() as u32, 0, 0), short].concat();
    // Offset 8 is code 3 and 3 more bits; the match is 65539 and, by 16 more bits, 65533: 128 KiB. A bit marks where they begin.
    let again_short = [block(9, 2, 0), vec![0, 1, 0x54, 0, 3, 52, 0xfd, 0xff, 0x0b]].concat();
    // Samples of 32 KiB, as those with copies of stacks are: 10,000 times as large. Offset 32768 is code 15 and 15 more bits.
    let mut sample = [9, 0, 0, 0, 0, 0, 0, 0x80].to_vec();
    sample.extend([7_u64, 5].map(u64::to_ne_bytes).concat());
    sample.extend((0x8000_u32 - 28).to_ne_bytes());
    sample.resize(0x8000, 0);
    let raw_sample = [block(0x8000, 0, 0), sample].concat();
    let again_sample = [block(10, 2, 0), vec![0, 1, 0x54, 0, 15, 52, 0xfd, 0xff, 0x03, 0x80]].concat();
    let end = block(0, 0, 1);
    let packed = |raw: &[u8], again: &[u8], times| [&head[..], raw, &again.repeat(times), &end].concat();
    let streams = [
        ("same", [&head[..], &same, &end].concat(), 1, "no whole record"),
        ("short", packed(&raw_short, &again_short, 2000), 8, "can't be right"),
        ("samples", packed(&raw_sample, &again_sample, 2000), 3, ""),
    ];
    let sync_dir = SyncDir::new();
    for (name, stream, times, says) in streams {
        let file = sync_dir.path(name);
        std::fs::write(&file, bomb(&stream, times)).unwrap();
        // In bytes of addresses: threads and libraries take some hundred MiB of them. What is unpacked is more than that.
        let limited = format!("ulimit -v 700000; exec {PMUX} report --stdio -i {}", file.display());
        let ran = start("sh", ["-c", &limited]).run().good();
        assert!(ran.err.contains(says) && !ran.err.contains("unpacked"), "{name}: {}", ran.err);
        if name == "samples" {
            assert!(ran.text().contains("Samples: 24K of"), "{}", ran.text());
        }
    }
}

/// Reads a file as Hotspot's parser does, which takes the layout of the first event for all records: what stands behind each record is
/// where that layout has it. Returns how many records that are no samples there were.
fn strictly(bytes: &[u8]) -> usize {
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let half = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let (entry, attrs, attrs_bytes) = (word(16) as usize, word(24) as usize, word(32) as usize);
    let (mut at, end) = (word(40) as usize, (word(40) + word(48)) as usize);
    let (mut ids, mut tails) = (vec![0], Vec::new());
    for attr in (attrs..attrs + attrs_bytes).step_by(entry) {
        let (from, count) = (word(attr + entry - 16) as usize, word(attr + entry - 8) as usize / 8);
        ids.extend((0..count).map(|place| word(from + 8 * place)));
        // TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER; and whether all records have them.
        tails.push((
            word(attr + 24) & (1 << 1 | 1 << 2 | 1 << 6 | 1 << 7 | 1 << 9 | 1 << 16),
            word(attr + 40) >> 18 & 1,
        ));
    }
    let (words, is_on_all) = tails[0];
    assert!(tails.iter().all(|tail| *tail == tails[0]), "{tails:x?}");
    assert_eq!((is_on_all, words & (1 << 16)), (1, 1 << 16));
    let tail = 8 * words.count_ones() as usize;
    let mut count = 0;
    while at < end {
        let (kind, size) = (half(at), (half(at + 4) >> 16) as usize);
        assert!(size >= 8 && at + size <= end, "size {size} of kind {kind}");
        let behind = at + size - tail;
        if kind < 64 && kind != 9 {
            count += 1;
            assert!(ids.contains(&word(at + size - 8)), "the id of kind {kind}");
            if words & 1 << 9 != 0 {
                assert_eq!(half(at + size - 12), 0, "what stands behind the CPU's number, of kind {kind}");
            }
        }
        // Numbers in front of the text, or all there are.
        let (numbers, has_text) = match kind {
            1 => (32, true),
            3 => (8, true),
            10 => (64, true),
            4 | 7 => (24, false),
            2 => (16, false),
            _ => (0, false),
        };
        if has_text {
            let text = &bytes[at + 8 + numbers..behind];
            let length = text.iter().position(|&byte| byte == 0).expect("text ends");
            assert!(text[length..].iter().all(|&byte| byte == 0), "kind {kind}: {text:?}");
            assert!(kind == 10 || text.len() - length <= 16, "kind {kind}: {text:?}");
        } else if numbers > 0 {
            assert_eq!(behind, at + 8 + numbers, "of kind {kind}");
        }
        at += size;
    }
    count
}

#[test]
fn all_records_of_a_file_end_alike() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let mut modes: Vec<(&str, Vec<&str>)> = vec![
        ("record", vec!["-e", "page-faults:u", "-c", "1"]),
        ("record", vec!["-e", "cpu-clock:u", "-F", "2000", "-g"]),
        ("record", vec!["-e", "cpu-clock:u", "-F", "2000", "--call-graph", "dwarf"]),
        ("record", vec!["-e", "{page-faults:u,minor-faults:u}:S", "-c", "3"]),
        ("record", vec!["-e", "page-faults:u", "-c", "1", "-d", "--switch-events"]),
        ("flight", vec!["-e", "page-faults:u", "-c", "1", "--keep", "60s", "--at-end", "always"]),
    ];
    if root() && tracefs() {
        modes.push(("record", vec!["-e", "raw_syscalls:sys_enter"]));
        modes.push(("record", vec!["-e", "page-faults:u,raw_syscalls:sys_enter", "-c", "1"]));
        modes.push(("record", vec!["-e", "page-faults,sched:sched_switch", "-a", "-c", "1"]));
        modes.push(("flight", vec!["-e", "raw_syscalls:sys_enter", "--keep", "60s", "--at-end", "always"]));
    }
    for (number, (command, options)) in modes.iter().enumerate() {
        let to = sync_dir.path(&number.to_string());
        let start = pmux([command, "-q"]).env("XDG_RUNTIME_DIR", sync_dir.path(".")).args(options);
        let line = "ls / > /dev/null; ls /usr > /dev/null";
        start.args(["-o"]).args([&to]).args(["--", "sh", "-c", line]).run().good();
        let files = if to.is_dir() { files(&to, "data") } else { vec![to] };
        for file in files {
            let count = strictly(&std::fs::read(&file).unwrap());
            assert!(count > 10, "{command} {options:?}: {count} records");
        }
    }
}

#[test]
fn what_the_threads_of_perf_wrote_is_one_recording() {
    skip_unless!(kernel() && perf());
    let sync_dir = SyncDir::new();
    for options in [&["--threads"][..], &["--threads", "-z"]] {
        let folder = sync_dir.path("threads.data");
        let _ = std::fs::remove_dir_all(&folder);
        let work = "for i in 1 2 3 4 5 6 7 8; do ls -R /usr/share/doc > /dev/null & done; wait";
        let words = ["record", "-q", "-N", "-e", "page-faults:u", "-c", "1", "-o"];
        start("perf", words).args([&folder]).args(options).args(["--", "sh", "-c", work]).run().good();
        let parts: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|part| part.unwrap().file_name()).collect();
        assert!(parts.len() > 1 && parts.iter().any(|part| part == "data"), "{parts:?}");
        let fields = "comm,tid,time,event,ip";
        let ours = pmux(["script", "--ns", "-F", fields, "-i"]).args([&folder]).run().good();
        let theirs = start("perf", ["script", "--ns", "-F", fields, "-i"]).args([&folder]).run().good().text();
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
            lines.sort();
            lines
        };
        assert!(sorted(&theirs).len() > 20, "{theirs}");
        assert_eq!(sorted(&ours.text()), sorted(&theirs), "{options:?}");
        assert!(!ours.err.contains("too late"), "{}", ours.err);
        for command in ["report", "flame", "timeline"] {
            let out = sync_dir.path(command);
            let mut start = pmux([command, "-i"]).args([&folder]);
            if command != "report" {
                start.command.arg("-o").arg(&out);
            }
            start.run().good();
        }
        let convert = pmux(["convert", "--to", "folded", "--force", "-i"]).args([&folder]);
        convert.args(["-o".into(), sync_dir.path("folded")]).run().good();
        let same = pmux(["diff"]).args([&folder, &folder]).run().good().text();
        assert!(same.contains("page-faults"), "{same}");
    }
}
