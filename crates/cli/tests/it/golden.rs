//! Recordings that `perf` made, and what it says of them: `golden/make` made both, `golden/VERSION` says with what. Neither perf nor the
//! right to record is needed here.

use crate::common;
use crate::common::{SyncDir, pmux};
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

/// What `perf buildid-list` says of some recordings.
const BUILD_IDS: [(&str, &str); 6] = [
    ("chains", "7ebc65e52f2bbea498b4040fa92f7238377aaba9"),
    ("chains", "15dfff3239aa7c3b16a71e6b2e3b6e4009dab998"),
    ("chains", "092d8dfead2c7bf8bc508b90fff11b7a0c145230"),
    ("several", "be6397ddffc3e384c505d7deab3bed190c884df9"),
    ("several", "93ac61ec5a8eb1396f9fbd350e3169a558528a40"),
    ("several", "7ebc65e52f2bbea498b4040fa92f7238377aaba9"),
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The recording as perf wrote it.
fn unpacked(sync_dir: &SyncDir, name: &str) -> PathBuf {
    let packed = std::fs::File::open(golden(&format!("{name}.data.gz"))).unwrap();
    let file = sync_dir.path(&format!("{}.data", name.replace('/', "-")));
    std::fs::write(&file, common::unpacked(packed)).unwrap();
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
    let sync_dir = SyncDir::new();
    for (name, fields, _) in ALL {
        let ours = pmux(["script", "--ns", "-F", fields, "-i"]).args([unpacked(&sync_dir, name)]).run().good().text();
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
    let sync_dir = SyncDir::new();
    for (name, _, sort) in ALL {
        let Some(sort) = sort else { continue };
        let words = ["report", "--no-children", "-g", "none", "--sort", sort, "-i"];
        let ours = pmux(words).args([unpacked(&sync_dir, name)]).run().good().text();
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

/// The samples among the lines of a script: those that begin one.
fn samples(text: &str) -> Vec<&str> {
    text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('\t')).collect()
}

#[test]
fn filters_leave_what_perf_told_of_it() {
    let sync_dir = SyncDir::new();
    let file = unpacked(&sync_dir, "tracepoints");
    let told = std::fs::read_to_string(golden("tracepoints.script")).unwrap();
    let ours = |options: &[&str]| {
        let fields = ["script", "--ns", "-F", "comm,pid,tid,cpu,time,event,trace", "-i"];
        pmux(fields).args([&file]).args(options).run().good().text()
    };
    // Words of a line: comm, pid/tid, [cpu].
    let theirs = |keep: &dyn Fn(&[&str]) -> bool| {
        let lines = samples(&told);
        lines.into_iter().filter(|line| keep(&line.split_whitespace().collect::<Vec<_>>())).collect::<Vec<_>>()
    };
    let compare = |options: &[&str], keep: &dyn Fn(&[&str]) -> bool| {
        let (ours, theirs) = (ours(options), theirs(keep));
        assert_eq!(samples(&ours), theirs, "{options:?}");
        assert!(!theirs.is_empty() && theirs.len() < samples(&told).len(), "{options:?}: {}", theirs.len());
    };
    compare(&["--comm", "ls,sleep"], &|words| ["ls", "sleep"].contains(&words[0]));
    compare(&["--comms", "ls", "--cpu", "0"], &|words| words[0] == "ls" && words[2] == "[000]");
    compare(&["--pid", "8216,8232"], &|words| ["8216/8216", "8232/8232"].contains(&words[1]));
    compare(&["--tid", "8231"], &|words| words[1] == "8231/8231");
    compare(&["-C", "1-5"], &|words| words[2] == "[001]");
    // The same samples in what adds them up, and in what draws them.
    let count = theirs(&|words| words[0] == "ls").len();
    for sort in ["comm", "cpu"] {
        let words = ["report", "--json", "--comm", "ls", "--sort", sort, "-i"];
        let json = pmux(words).args([&file]).run().good().document();
        let events = json["events"].as_array().unwrap().iter();
        let all: u64 = events.map(|event| event["samples"].as_u64().unwrap()).sum();
        assert_eq!(all, count as u64, "{sort}");
    }
    let folded = |options: &[&str]| {
        let words = ["convert", "--to", "folded", "-e", "raw_syscalls:sys_enter", "-i"];
        pmux(words).args([&file]).args(options).run().good().text()
    };
    assert!(folded(&["--comm", "ls"]).lines().all(|line| line.starts_with("ls")));
    assert!(folded(&[]).lines().any(|line| line.starts_with("sh")));
    for command in [&["report"][..], &["flame", "-o", "-"], &["convert", "--to", "pprof"]] {
        let ran = pmux(command).args(["--comm", "nothing", "-i"]).args([&file]).run();
        ran.bad(125, &["no sample matches: leave out --comm"]);
    }
}

#[test]
fn a_program_is_where_a_sample_was_met() {
    let sync_dir = SyncDir::new();
    let file = unpacked(&sync_dir, "chains");
    let told = std::fs::read_to_string(golden("chains.script")).unwrap();
    // The innermost frame is the line below that of the sample.
    let innermost = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        let met = lines.windows(2).filter(|two| !two[0].starts_with('\t') && two[1].starts_with('\t'));
        met.map(|two| two[1].trim().to_owned()).collect::<Vec<String>>()
    };
    let words = ["script", "--ns", "-F", "comm,pid,tid,time,event,period,ip,dso", "-i"];
    for (dso, path) in
        [("libc.so.6", "libc.so.6)"), ("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "ld-linux-x86-64.so.2)")]
    {
        let ours = innermost(&pmux(words).args([&file]).args(["--dso", dso]).run().good().text());
        let theirs: Vec<String> = innermost(&told).into_iter().filter(|line| line.ends_with(path)).collect();
        assert_eq!(ours, theirs);
        assert!(!ours.is_empty() && ours.len() < innermost(&told).len(), "{dso}");
    }
}

#[test]
fn chains_are_as_deep_as_asked_for() {
    let sync_dir = SyncDir::new();
    let file = unpacked(&sync_dir, "chains");
    let told = std::fs::read_to_string(golden("chains.script")).unwrap();
    let chains = |text: &str| {
        let mut chains: Vec<Vec<String>> = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match (line.strip_prefix('\t'), chains.last_mut()) {
                (Some(frame), Some(chain)) => chain.push(frame.trim().to_owned()),
                _ => chains.push(Vec::new()),
            }
        }
        chains
    };
    let words = ["script", "--ns", "-F", "comm,pid,tid,time,event,period,ip,dso", "-i"];
    let ran = pmux(words).args([&file]).args(["--max-stack", "1"]).run().good();
    let cut: Vec<Vec<String>> = chains(&told).into_iter().map(|chain| chain.into_iter().take(1).collect()).collect();
    assert_eq!(chains(&ran.text()), cut);
    let deeper = chains(&told).iter().filter(|chain| chain.len() > 1).count();
    assert!(deeper > 0 && ran.err.contains(&format!("{deeper} samples have deeper call chains")), "{}", ran.err);
    let whole = pmux(words).args([&file]).args(["--max-stack", "0"]).run().good();
    assert_eq!(chains(&whole.text()), chains(&told));
    assert!(!whole.err.contains("deeper"), "{}", whole.err);
    // Each chain by itself: as many as there are different ones, and they come to all of it.
    let report = |form: &str| {
        let words = ["report", "--no-children", "--no-inline", "--sort", "sym", "-g", form, "-i"];
        pmux(words).args([&file]).run().good().text()
    };
    let folded = report("folded,0");
    let lines: Vec<(&str, &str)> =
        folded.lines().filter(|line| !line.starts_with(['#', ' '])).filter_map(|line| line.split_once("% ")).collect();
    let sum: f64 = lines.iter().map(|(share, _)| share.parse::<f64>().unwrap()).sum();
    assert!((sum - 100.0).abs() < 0.01 * lines.len() as f64, "{sum}\n{folded}");
    assert!(lines.iter().any(|(_, chain)| chain.contains(';')), "{folded}");
    let flat = report("flat,0");
    let heads = flat.lines().filter(|line| line.starts_with("           ") && line.ends_with('%')).count();
    assert_eq!(heads, lines.len(), "{flat}");
    let names = flat.lines().filter(|line| line.starts_with("                ")).count();
    assert_eq!(names, lines.iter().map(|(_, chain)| chain.split(';').count()).sum::<usize>(), "{flat}");
    assert_eq!(report("folded,100").lines().filter(|line| line.contains("% ") && !line.starts_with(' ')).count(), 0);
}

#[test]
fn columns_are_those_that_were_asked_for() {
    let sync_dir = SyncDir::new();
    let file = unpacked(&sync_dir, "several");
    let report = |options: &[&str]| {
        let text =
            pmux(["report", "-g", "none", "-e", "cycles:u", "-i"]).args([&file]).args(options).run().good().text();
        let rows = text.lines().filter(|line| !line.trim().is_empty());
        let rows: Vec<Vec<String>> = rows.map(|row| row.split_whitespace().map(str::to_owned).collect()).collect();
        let head = rows.iter().rposition(|row| row.len() > 1 && row[0] == "#" && !row[1].starts_with('.')).unwrap();
        (rows[head][1..].join(" "), rows.into_iter().filter(|row| row[0] != "#").collect::<Vec<_>>())
    };
    let usual = report(&["--sort", "comm"]);
    assert_eq!(usual.0, "Overhead Command");
    let (heads, rows) = report(&["--sort", "comm", "-n"]);
    assert_eq!(heads, "Overhead Samples Command");
    assert_eq!(
        rows.iter().map(|row| [&row[0], &row[2]]).collect::<Vec<_>>(),
        usual.1.iter().map(|row| [&row[0], &row[1]]).collect::<Vec<_>>()
    );
    let told = std::fs::read_to_string(golden("several.script")).unwrap();
    for row in &rows {
        let count =
            told.lines().filter(|line| line.contains("cycles:u") && line.split_whitespace().next() == Some(&row[2]));
        assert_eq!(row[1], count.count().to_string(), "{row:?}");
    }
    let (heads, periods) = report(&["-F", "comm,period,overhead"]);
    assert_eq!(heads, "Command Period Overhead");
    for (row, period) in rows.iter().zip(&periods) {
        assert_eq!([&row[2], &row[0]], [&period[0], &period[2]]);
        assert_eq!(period[1].parse::<u64>().unwrap(), 100_000 * row[1].parse::<u64>().unwrap());
    }
    let wrong = pmux(["report", "-F", "nothing", "-i"]).args([&file]).run();
    assert!(wrong.err.contains("overhead_children") && !wrong.status.success(), "{}", wrong.err);
}

/// What was made in `golden/corpus` of the recording of this name: a file, or a folder as `perf record --threads` makes it.
fn from_corpus(sync_dir: &SyncDir, name: &str) -> PathBuf {
    let path = golden("corpus").join(format!("{name}.data.gz"));
    if path.exists() {
        return unpacked(sync_dir, &format!("corpus/{name}"));
    }
    let folder = sync_dir.path(name);
    std::fs::create_dir(&folder).unwrap();
    let packed = golden("corpus").join(format!("{name}.tar.gz"));
    common::start("tar", ["-xzf"]).args([&packed]).args(["-C".as_ref(), folder.as_os_str()]).run().good();
    folder
}

#[test]
fn every_command_reads_every_recording() {
    let sync_dir = SyncDir::new();
    // Names of functions are of no interest, and those of this machine would be others'.
    let (nothing, out) = (sync_dir.text("nothing"), sync_dir.text("out"));
    std::fs::create_dir(&nothing).unwrap();
    let symbols = ["--no-cache", "--symfs", &nothing];
    let counts = std::fs::read_to_string(golden("corpus/COUNTS")).unwrap();
    assert!(counts.lines().count() > 25);
    for (index, line) in counts.lines().enumerate() {
        let (name, count) = line.split_once(' ').unwrap();
        let count: u64 = count.parse().unwrap();
        let file = from_corpus(&sync_dir, name);
        let file = file.to_str().unwrap();
        let run = |words: &[&str]| {
            let ran = pmux(words).args(symbols).run();
            assert!(!ran.err.contains("panicked"), "{name}: {words:?}: {}", ran.err);
            ran
        };
        let script = run(&["script", "-F", "event", "-i", file]);
        assert_eq!(script.good().text().lines().count() as u64, count, "{name}: script");
        assert_eq!(run(&["script", "-j", "-i", file]).good().text().lines().count() as u64, count, "{name}: script -j");
        let json = run(&["report", "--json", "-i", file]).good().document();
        let events = json["events"].as_array().unwrap();
        let samples = |event: &serde_json::Value| event["samples"].as_u64().unwrap();
        assert_eq!(events.iter().map(samples).sum::<u64>(), count, "{name}: report");
        assert_eq!(json["lost"]["broken"], 0, "{name}");
        assert!(run(&["report", "--stdio", "-i", file]).good().text().contains("# Samples: "), "{name}");
        let page = run(&["timeline", "--no-inline", "-i", file]).good().text();
        assert!(page.contains(&format!("\"count\":{count},")), "{name}: timeline");
        assert!(run(&["flame", "-o", "-", "-i", file]).good().text().contains("</svg>"), "{name}: flame");
        let named = |event: &serde_json::Value| event["name"].as_str().unwrap().to_owned();
        let first = events.iter().find(|event| samples(event) > 0).unwrap();
        let folded = run(&["convert", "--to", "folded", "-e", &named(first), "-i", file]).good().text();
        let weights = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
        assert_eq!(Some(weights.sum()), first["period"].as_u64(), "{name}: folded");
        let speedscope = run(&["convert", "-f", "speedscope", "-i", file]).good().document();
        let profiles = speedscope["profiles"].as_array().unwrap();
        let lists = |list: &str| profiles.iter().map(|one| one[list].as_array().unwrap().len() as u64).sum::<u64>();
        assert_eq!((lists("samples"), lists("weights")), (count, count), "{name}: speedscope");
        // One after the other: each format is made of several recordings.
        let format = ["firefox", "pprof", "perfetto", "chrome"][index % 4];
        let out = format!("{out}.{format}");
        run(&["convert", "-f", format, "-o", &out, "-i", file]).good();
        assert!(std::fs::metadata(&out).unwrap().len() > 0, "{name}: {format}");
        run(&["diff", file, file]).good();
    }
}

#[test]
fn build_ids_are_those_that_perf_lists() {
    let sync_dir = SyncDir::new();
    for ids in BUILD_IDS.chunk_by(|one, other| one.0 == other.0) {
        let (name, packed) = (ids[0].0, sync_dir.path("it.pb.gz"));
        let convert = pmux(["convert", "--to", "pprof", "-i"]).args([unpacked(&sync_dir, name)]);
        convert.args(["-o"]).args([&packed]).run().good();
        let bytes = common::unpacked(std::fs::File::open(&packed).unwrap());
        for (_, id) in ids {
            assert!(bytes.windows(id.len()).any(|text| text == id.as_bytes()), "{id} is not in {name}");
        }
    }
}

#[test]
fn a_recording_against_itself_shows_what_has_most() {
    let sync_dir = SyncDir::new();
    let file = unpacked(&sync_dir, "chains");
    let text = pmux(["diff", "--rows", "0"]).args([&file, &file]).run().good().text();
    let rows = text.lines().filter(|line| line.matches('%').count() == 2);
    let shares: Vec<f64> = rows.map(|row| row.split_whitespace().next().unwrap().parse().unwrap()).collect();
    assert!(shares.len() > 3 && shares[0] > *shares.last().unwrap(), "{text}");
    assert!(shares.is_sorted_by(|a, b| a >= b), "{text}");
}
