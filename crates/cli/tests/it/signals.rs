//! Signals: what was counted is printed, the command is told, and nothing is left behind.

use crate::common;
use crate::common::{SyncDir, kernel, program, root, skip_unless, stat};
use std::io::{Read, Write};
use std::process::Stdio;

/// A shell line that says that it is there, and then sleeps.
fn sleeper(sync_dir: &SyncDir) -> String {
    format!("echo $$ >'{}'; exec sleep 1000", sync_dir.text("here"))
}

#[test]
fn a_signal_ends_the_command_and_prints_what_was_counted() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1), ("QUIT", 3)] {
        let sync_dir = SyncDir::new();
        let running = stat(["-e", "page-faults:u", "--", "sh", "-c", &sleeper(&sync_dir)]).group().spawn();
        let pid: i32 = sync_dir.read("here").parse().unwrap();
        running.signal(name);
        let note = format!("the command was killed by signal {number}");
        running.wait().bad(128 + number, &["page-faults:u", "seconds time elapsed", &note]);
        assert!(!common::lives(pid), "SIG{name} has reached the command");
    }
}

#[test]
fn a_command_that_handles_the_signal_decides_itself() {
    let sync_dir = SyncDir::new();
    let line =
        format!("trap 'echo handled; exit 5' INT; echo >'{}'; while :; do sleep 0.01; done", sync_dir.text("here"));
    let running = stat(["-e", "page-faults:u", "--", "sh", "-c", &line]).group().spawn();
    sync_dir.read("here");
    running.signal("INT");
    let ran = running.wait().bad(5, &["page-faults:u"]);
    assert_eq!(ran.text(), "handled\n");
    ran.never_says(&["killed by"]);
}

#[test]
fn a_measurement_without_a_command_ends_well() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let target = common::start("sh", ["-c", &sleeper(&sync_dir)]).spawn();
    let pid = sync_dir.read("here");
    for options in [&["-p"][..], &["-t"], &["-I", "3600000", "-p"]] {
        let running = stat(["-e", "page-faults:u"]).args(options.iter().copied()).args([&pid]).spawn();
        wait_for_events(running.pid());
        running.signal("INT");
        running.wait().good().says(&["page-faults:u"]);
    }
    drop(target);
    if root() {
        let running = stat(["-a", "-e", "page-faults:u"]).spawn();
        wait_for_events(running.pid());
        running.signal("TERM");
        running.wait().good().says(&["'system wide'", "page-faults:u"]);
    }
}

fn wait_for_events(pid: u32) {
    common::eventually("the events are open", || {
        // A signal that comes before it is waited for would kill.
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim();
        (u64::from_str_radix(caught, 16).ok()? & 2 != 0 && common::kernel_events(pid) > 0).then_some(())
    });
}

#[test]
fn repetition_stops_and_the_run_that_was_cut_short_is_left_out() {
    skip_unless!(kernel());
    for (runs, left_out) in [("0", false), ("9", true)] {
        let sync_dir = SyncDir::new();
        // The first two runs end by themselves, the third one waits.
        let line = format!(
            "echo run >>'{0}'; test $(wc -l <'{0}') -lt 3 && exit 0; echo $$ >'{1}'; exec sleep 1000",
            sync_dir.text("runs"),
            sync_dir.text("here")
        );
        let running = stat(["-r", runs, "-x,", "-e", "task-clock:u", "--", "sh", "-c", &line]).group().spawn();
        sync_dir.read("here");
        running.signal("INT");
        let ran = running.wait();
        assert_eq!(ran.code(), 130, "{}", ran.err);
        assert_eq!(ran.err.matches("task-clock:u").count(), if left_out { 1 } else { 2 }, "{}", ran.err);
    }
    let sync_dir = SyncDir::new();
    let line = format!(
        "test -e '{0}' && {{ echo >'{1}'; exec sleep 1000; }}; echo >'{0}'",
        sync_dir.text("one"),
        sync_dir.text("here")
    );
    let running = stat(["-r", "3", "-e", "task-clock:u", "--", "sh", "-c", &line]).group().spawn();
    sync_dir.read("here");
    running.signal("INT");
    running.wait().bad(130, &["run 2 of 3 was interrupted, and is left out"]);
}

#[test]
fn a_tree_is_printed_too() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let line = format!("ls / >/dev/null; {}", sleeper(&sync_dir));
    let running = stat(["--tree", "-e", "page-faults:u", "--", "sh", "-c", &line]).group().spawn();
    sync_dir.read("here");
    running.signal("TERM");
    running.wait().bad(143, &["└─ ls", "[signal 15]", "total of 2 processes"]);
}

#[test]
fn a_killed_pmux_leaves_no_held_child() {
    skip_unless!(kernel());
    let mark = format!("PMUX_TEST_GATE={}", std::process::id());
    let (name, value) = mark.split_once('=').unwrap();
    let events = ["page-faults:u"; 200].join(",");
    for microseconds in (0..40).map(|step| step * 300) {
        let running = stat(["-e", &events, "true"]).env(name, value).spawn();
        std::thread::sleep(std::time::Duration::from_micros(microseconds));
        drop(running);
    }
    // A process that was held sees that it is alone, and ends by itself.
    common::eventually("all have gone", || common::with_environment(&mark).is_empty().then_some(()));
}

#[test]
fn ctrl_c_on_a_terminal() {
    skip_unless!(program("script"));
    let sync_dir = SyncDir::new();
    let line = format!(
        "{} stat -e page-faults:u -- sh -c 'echo >{}; exec sleep 1000'; echo status $?",
        common::PMUX,
        sync_dir.text("here")
    );
    let mut command = std::process::Command::new("script");
    pmux_testkit::marked(&mut command).args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
    let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut keys = script.stdin.take().unwrap();
    sync_dir.read("here");
    keys.write_all(b"\x03").unwrap();
    keys.flush().unwrap();
    let mut output = String::new();
    script.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    drop(keys);
    script.wait().unwrap();
    assert!(output.contains("page-faults:u") && output.contains("killed by signal 2"), "{output:?}");
    assert!(output.contains("status 130") || !output.contains("status"), "{output:?}");
    assert!(output.contains("\u{1b}[1m"), "a terminal gets colour: {output:?}");
}

/// As a shell does for jobs in the background.
fn ignoring(signals: &str, line: &[&str]) -> common::Start {
    let shell = format!("trap '' {signals}; exec \"$0\" \"$@\"");
    common::start("sh", ["-c", &shell, common::PMUX]).args(line.iter().copied())
}

#[test]
fn a_job_in_the_background_ends_by_the_signals_that_it_was_started_to_ignore() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let _target = common::start("sh", ["-c", &sleeper(&sync_dir)]).spawn();
    let pid = sync_dir.read("here");
    let (file, folder, socket) = (sync_dir.text("file"), sync_dir.text("folder"), sync_dir.text("socket"));
    let lines: [&[&str]; 5] = [
        &["stat", "-e", "page-faults:u", "-p", &pid],
        &["stat", "-e", "page-faults:u", "-I", "3600000", "-p", &pid],
        &["record", "-e", "cpu-clock:u", "-o", &file, "-p", &pid],
        &["flight", "-e", "cpu-clock:u", "-o", &folder, "-p", &pid],
        &["serve", "--socket", &socket],
    ];
    for (line, signal) in lines.into_iter().flat_map(|line| [(line, "INT"), (line, "TERM")]) {
        let running = ignoring("INT TERM", line).spawn();
        if line[0] == "serve" {
            common::eventually("it listens", || std::fs::metadata(&socket).ok());
        } else {
            wait_for_events(running.pid());
        }
        running.signal(signal);
        running.wait().good();
    }
    // `nohup`: the end of a terminal ends nothing.
    let running = ignoring("HUP", lines[0]).spawn();
    wait_for_events(running.pid());
    running.signal("HUP");
    running.signal("INT");
    running.wait().good().says(&["page-faults:u"]);
}

#[test]
fn ignored_signals_stay_ignored() {
    let sync_dir = SyncDir::new();
    let line = format!("echo >'{}'; sleep 0.1; exit 6", sync_dir.text("here"));
    // The command inherits it, and decides itself.
    let running = ignoring("INT", &["stat", "-e", "page-faults:u", "--", "sh", "-c", &line]).group().spawn();
    sync_dir.read("here");
    running.signal("INT");
    running.wait().bad(6, &["page-faults:u"]);
}
