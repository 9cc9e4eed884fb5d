//! Without performance events: the same command, the same formats, and one line that says so.
//!
//! Twice: asked for by an environment variable, and refused by a filter of system calls, as containers do it.

use crate::common;
use crate::common::{CommandResult, SyncDir, kernel, program, role, root, start, stat, words};
use pmux_linux::Errno;
use pmux_linux::spawn::{HeldChild, PerfEvents, SpawnOptions};
use std::ffi::OsString;

/// `pmux stat` with the fallback that is asked for.
fn asked<A: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = A>) -> CommandResult {
    stat(arguments).env("PMUX_BACKEND", "usage").run()
}

/// `pmux stat` where the kernel refuses `perf_event_open`.
fn refused(errno: Errno, arguments: &[&str]) -> CommandResult {
    refused_with("", errno, arguments)
}

/// The same with a variable of the environment. What it says goes through files.
fn refused_with(variable: &str, errno: Errno, arguments: &[&str]) -> CommandResult {
    let sync_dir = SyncDir::new();
    let line = &format!("{variable} exec \"$@\" >\"$0/out\" 2>\"$0/err\" </dev/null");
    let mut command: Vec<OsString> = ["sh", "-c", line].map(OsString::from).to_vec();
    command.push(sync_dir.path("").into_os_string());
    command.extend([common::PMUX, "stat"].map(OsString::from));
    command.extend(arguments.iter().map(OsString::from));
    let mut options = SpawnOptions::default();
    options.perf_events = PerfEvents::Refused(errno);
    let exited = HeldChild::spawn(&command, options).unwrap().release().unwrap().wait().unwrap();
    CommandResult {
        status: exited.status,
        out: std::fs::read(sync_dir.path("out")).unwrap(),
        err: std::fs::read_to_string(sync_dir.path("err")).unwrap(),
    }
}

/// The three that systems answer: a container, a paranoid kernel, a kernel without events.
const REFUSALS: [Errno; 3] = [Errno::EPERM, Errno::EACCES, Errno::ENOSYS];

/// A `pmux` in a mount namespace of its own, without these file systems; `None` where that can't be had.
fn without(mounts: &[&str], line: &[&str]) -> Option<common::Start> {
    if !root() || !program("unshare") || !program("mount") {
        return None;
    }
    let hide: String = mounts.iter().map(|mount| format!("mount -t tmpfs none {mount} && ")).collect();
    let may = start("unshare", ["-m", "sh", "-c", &format!("{hide}echo yes")]).run();
    if may.text().trim() != "yes" {
        println!("skipped: needs a mount namespace");
        return None;
    }
    let line = line.iter().copied();
    Some(start("unshare", ["-m", "sh", "-c", &format!("{hide}exec \"$0\" \"$@\""), common::PMUX]).args(line))
}

#[test]
fn without_sys_and_without_proc() {
    let both = ["/sys", "/proc"];
    for mounts in [&both[..1], &both[1..], &both] {
        let Some(ran) = without(mounts, &["list"]) else { return };
        assert!(ran.run().good().text().contains("page-faults"));
        let run = |line: &[&str]| without(mounts, line).unwrap().run();
        run(&["plan", "-e", "page-faults", "--counters", "4"]).good();
        let usage = |line: &[&str]| without(mounts, line).unwrap().env("PMUX_BACKEND", "usage").run().good();
        let command = usage(&["stat", "-e", "page-faults,task-clock,context-switches", "true"]);
        command.says(&["PMUX_BACKEND=usage", "  page-faults"]).never_says(&["<not supported>"]);
        assert!(usage(&["stat", "-x,", "-e", "page-faults", "true"]).value("page-faults") > 0.0);
        let whole = usage(&["stat", "-a", "-e", "page-faults", "true"]);
        if mounts.contains(&"/proc") {
            whole.says(&["<not supported>      page-faults", "/proc, which is not mounted here"]);
        }
        if !kernel() {
            continue;
        }
        let faults = run(&["stat", "-x,", "-e", "page-faults:u", "true"]).good().value("page-faults:u");
        assert!(faults > 0.0);
        run(&["timec", "true"]).good().says(&["task-clock"]);
        let whole = run(&["stat", "-a", "-A", "-e", "page-faults:u", "true"]).good().says(&["CPU0 "]);
        let cpus = pmux::Session::new().unwrap().online();
        if mounts.len() == 2 {
            whole.says(&[&format!("counted on the CPUs {cpus}, on which pmux may run")]);
        } else {
            whole.never_says(&["no others are known"]);
        }
        if mounts.contains(&"/sys") {
            run(&["stat", "-e", "msr/tsc/", "true"]).bad(125, &["no sysfs", "mount -t sysfs"]);
        } else {
            run(&["stat", "-p", "1", "true"]).bad(125, &["/proc is not mounted here"]);
            let shell = format!("{} stat -e page-faults:u -t $$ sh -c :", common::PMUX);
            start("unshare", ["-m", "sh", "-c", &format!("mount -t tmpfs none /proc && {shell}")]).run().good();
        }
    }
}

#[test]
fn one_line_says_so_and_the_rest_is_as_ever() {
    for errno in REFUSALS {
        let ran = refused(errno, &["ls", "/"]).good();
        assert!(ran.text().contains("etc"));
        assert!(ran.err.starts_with(" no performance events ("), "{}", ran.err);
        assert_eq!(ran.err.matches("no performance events").count(), 1, "{}", ran.err);
        let ran = ran.says(&[
            " Performance counter stats for 'ls /':",
            " msec  task-clock  ",
            "CPUs utilized",
            "  context-switches  ",
            "  page-faults  ",
            " bytes max_rss\n",
            " ns    user_time\n",
            "seconds time elapsed",
        ]);
        ran.never_says(&["<not supported>", "G/sec", "perf_event_open("]);
    }
    asked(["true"]).good().says(&[" no performance events (PMUX_BACKEND=usage): "]);
}

#[test]
fn what_only_events_can_tell_is_not_supported() {
    for ran in [
        asked(["-e", "cycles,page-faults,dummy", "true"]),
        refused(Errno::EPERM, &["-e", "cycles,page-faults,dummy", "true"]),
    ] {
        let why = "it needs the kernel's performance events";
        ran.good().says(&["   <not supported>      cycles\n", "  page-faults", why]).never_says(&[" 0      cycles"]);
    }
}

#[test]
fn what_would_help_is_said() {
    let ran = refused(Errno::EPERM, &["-e", "cycles,page-faults", "true"]).good();
    ran.says(&["cycles: not supported: it needs the kernel's performance events", " (-v: more)\n"]);
    let ran = refused(Errno::EPERM, &["-v", "-e", "cycles,page-faults", "true"]).good();
    ran.says(&["cycles: not supported: it needs the kernel's performance events", "\n   what helps: "]);
    // Where nothing is to be counted, nothing is missing.
    refused(Errno::EPERM, &["-n", "true"]).good().never_says(&["no performance events"]);
    // And what is wrong is said alone.
    let missing = refused(Errno::EPERM, &["no-such-command-here"]).bad(127, &["command not found"]);
    missing.never_says(&["no performance events"]);
}

#[test]
fn formats_are_the_same() {
    let events = "task-clock,page-faults,context-switches";
    let normal = stat(["-x,", "-e", events, "true"]).run().good();
    let fields = |ran: &CommandResult| {
        ran.rows()
            .iter()
            .map(|row| (row.len(), row[1].to_owned(), row[2].trim_end_matches(":u").to_owned()))
            .collect::<Vec<_>>()
    };
    for ran in [asked(["-x,", "-e", events, "true"]), refused(Errno::EPERM, &["-x,", "-e", events, "true"])] {
        let ran = ran.good();
        assert!(ran.err.starts_with("# no performance events ("), "programs take it as a comment: {}", ran.err);
        assert_eq!(fields(&ran), fields(&normal));
    }
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let normal = stat(["-j", "-e", events, "true"]).run().good().json();
    let lines = asked(["-j", "-e", events, "true"]).good().json();
    assert!(lines[0]["note"].as_str().unwrap().starts_with("no performance events"), "{lines:?}");
    let lines = &lines[1..];
    if kernel() {
        assert_eq!(lines.iter().map(keys).collect::<Vec<_>>(), normal.iter().map(keys).collect::<Vec<_>>());
    }
    // A file is left to the fields.
    let sync_dir = SyncDir::new();
    let ran = asked(["-j", "-e", events, "-o", &sync_dir.text("out"), "true"]).good().says(&["no performance events"]);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    let text = std::fs::read_to_string(sync_dir.path("out")).unwrap();
    assert_eq!(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count(), 3, "{text}");
}

#[test]
fn the_status_is_that_of_the_command() {
    for code in [0, 3, 125, 200] {
        assert_eq!(asked(["sh", "-c", &format!("exit {code}")]).code(), code);
    }
    assert_eq!(asked(["sh", "-c", "kill -9 $$"]).code(), 137);
    assert_eq!(refused(Errno::EPERM, &["sh", "-c", "exit 7"]).code(), 7);
    assert_eq!(asked(["no-such-command-here"]).code(), 127);
}

#[test]
fn other_targets_and_options() {
    let own = std::process::id().to_string();
    let process = asked(["-x,", "-e", "task-clock,max_rss", "-p", &own, "sleep", "0.01"]).good();
    assert!(process.value("max_rss") > 4096.0);
    // One process has one peak, however many threads it has.
    let peak = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches(" kB");
    assert!(process.value("max_rss") <= 1.5 * 1024.0 * peak.parse::<f64>().unwrap(), "{}, {peak}", process.err);
    asked(["-r", "3", "true"]).good().says(&["(3 runs)", "task-clock"]);
    let intervals = asked(["-I", "20", "-x,", "-e", "max_rss,page-faults", "sleep", "0.1"]).good();
    let peaks = intervals.err.lines().filter(|line| line.contains(",max_rss,"));
    let peaks: Vec<f64> = peaks.map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect();
    assert!(peaks.len() > 1 && peaks.iter().all(|&peak| peak > 0.0), "a peak is no difference: {}", intervals.err);
    asked(["--tree", "true"]).bad(125, &["--tree needs performance events; without it, the totals are counted"]);
    refused(Errno::EPERM, &["--tree", "true"]).bad(125, &["--tree needs performance events", "what helps: "]);
    let timec = common::pmux(["timec", "-e", "-3", "true"]).env("PMUX_BACKEND", "usage").run().good();
    timec.says(&["page-faults\n", "no performance events"]);
}

#[test]
fn cpus_are_counted_from_the_kernels_books() {
    let ran = asked(["-a", "-x,", "-e", "cpu-clock,cycles", "sleep", "0.05"]).good();
    assert!(ran.value("cpu-clock") > 0.0, "{}", ran.err);
    assert!(ran.rows().iter().any(|row| row[0] == "<not supported>" && row[2] == "cycles"), "{}", ran.err);
    // What the machine counts as a whole is no number of one CPU.
    let machine = |name: &str, key: &str| {
        let text = std::fs::read_to_string(name).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        value.trim().parse::<f64>().unwrap()
    };
    let now = || (machine("/proc/vmstat", "pgfault "), machine("/proc/stat", "ctxt "));
    let before = now();
    let line = words(&["-a", "-x,", "-e", "page-faults,context-switches", "--"], role::words("touch:1500"));
    let ran = asked(line).good();
    let after = now();
    let (faults, switches) = (ran.value("page-faults"), ran.value("context-switches"));
    assert!((1500.0..=after.0 - before.0).contains(&faults), "{faults}, {before:?} to {after:?}");
    assert!((1.0..=after.1 - before.1).contains(&switches), "{switches}, {before:?} to {after:?}");
    let ran = asked(["-a", "-A", "-e", "page-faults,cpu-clock", "sleep", "0.05"]).good();
    let ran = ran.says(&["page-faults: one number for the whole machine, from /proc/stat or /proc/vmstat"]);
    let of_cpus = |name: &str| ran.err.lines().filter(|line| line.starts_with("CPU") && line.contains(name)).count();
    assert_eq!((of_cpus(" page-faults"), of_cpus(" cpu-clock") > 0), (0, true), "{}", ran.err);
    asked(["-C", "0", "-e", "page-faults", "true"]).good().says(&["<not supported>      page-faults"]);
}

#[test]
fn the_choice_is_checked() {
    stat(["true"]).env("PMUX_BACKEND", "magic").run().bad(125, &["PMUX_BACKEND=magic", "auto, kernel, usage"]);
    if kernel() {
        stat(["-e", "page-faults", "true"]).env("PMUX_BACKEND", "kernel").run().good().never_says(&["no performance"]);
    }
    // What is demanded is not replaced.
    refused_with("PMUX_BACKEND=kernel", Errno::EPERM, &["true"]).bad(125, &["pmux: "]);
}

#[test]
fn lists_know_it() {
    let list = start(common::PMUX, ["explain", "cycles"]).env("PMUX_BACKEND", "usage").run();
    assert_eq!(list.code(), 125);
    assert!(list.text().contains("because  PMUX_BACKEND=usage"), "{}", list.text());
    let faults = start(common::PMUX, ["explain", "page-faults"]).env("PMUX_BACKEND", "usage").run().good().text();
    assert!(faults.contains("opens  yes"), "{faults}");
}
