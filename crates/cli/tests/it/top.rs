//! `pmux top` as a user meets it: lines for programs, tables, and the live view in a terminal of its own.

use crate::common::service::Service;
use crate::common::terminal::Terminal;
use crate::common::{
    Killed, PMUX, Running, SyncDir, eventually, kernel, perf, pmux, program, root, skip_unless, start,
};
use crate::off_cpu::{looks_at_tasks, report, sees_waits};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A shell that does nothing but run.
fn busy() -> Running {
    start("sh", ["-c", "while :; do :; done"]).spawn()
}

/// `pmux top -j` with these arguments.
pub(crate) struct Lines(Killed, BufReader<std::process::ChildStdout>);

impl Lines {
    fn of(arguments: &[&str]) -> Self {
        Self::by(&[PMUX], arguments)
    }

    /// The same, started so.
    pub(crate) fn by(words: &[&str], arguments: &[&str]) -> Self {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["top", "-j", "-d", "0.2"]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self(Killed(child), lines)
    }

    pub(crate) fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        (self.1.read_line(&mut line).unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    /// The first interval that has rows.
    fn with_rows(&mut self) -> Value {
        eventually("rows", || self.next().filter(|line| line["rows"].as_array().is_some_and(|rows| !rows.is_empty())))
    }
}

#[test]
fn lines_tell_what_a_process_does() {
    skip_unless!(kernel());
    let busy = busy();
    let pid = busy.pid().to_string();
    for (key, field) in [("process", "pid"), ("thread", "tid")] {
        let line = Lines::of(&["-p", &pid, "-s", key]).with_rows();
        let row = &line["rows"][0];
        assert_eq!(row[field].to_string(), pid, "{line}");
        assert_eq!((&row["comm"], &row["share"]), (&Value::from("sh"), &Value::from(1.0)), "{line}");
        assert!(row["cpus"].as_f64().is_none_or(|cpus| cpus > 0.0) && line["watched_cpus"].is_null(), "{line}");
    }
    // A process that only starts others.
    let starts = start("sh", ["-c", "while :; do /bin/true; done"]).spawn();
    Lines::of(&["-p", &starts.pid().to_string(), "-F", "999"]).with_rows();
    let line = Lines::of(&["-p", &pid, "-s", "dso"]).with_rows();
    let dsos: Vec<&str> = line["rows"].as_array().unwrap().iter().filter_map(|row| row["dso"].as_str()).collect();
    assert!(dsos.iter().any(|dso| dso.contains("sh") || dso.contains("libc") || dso.contains("kernel")), "{line}");
    if program("taskset") {
        let last = pmux::Session::new().unwrap().online().iter().last().unwrap();
        let there = start("taskset", ["-c", &last.to_string(), "sh", "-c", "while :; do :; done"]).spawn();
        let mut lines = Lines::of(&["-p", &there.pid().to_string(), "-s", "cpu"]);
        // It may have been elsewhere before its exec.
        let is_there =
            |line: &Value| line["rows"].as_array().is_some_and(|rows| rows.iter().any(|row| row["cpu"] == last));
        eventually("its CPU", || lines.next().filter(is_there));
    }
    let events = Lines::of(&["-p", &pid, "-e", "page-faults", "-c", "1", "-n", "1"]).next().unwrap();
    assert_eq!((&events["event"], &events["busy_cpus"]), (&Value::from("page-faults"), &Value::Null), "no clock");
}

#[test]
fn all_cpus_are_watched_and_shares_add_up() {
    skip_unless!(kernel() && root());
    let _busy = busy();
    for key in ["symbol", "cpu", "cgroup"] {
        let line = Lines::of(&["-s", key]).with_rows();
        let shares: f64 = line["rows"].as_array().unwrap().iter().filter_map(|row| row["share"].as_f64()).sum();
        assert!((shares - 1.0).abs() < 1e-6, "{line}");
        assert!(line["watched_cpus"].as_u64().unwrap() > 0 && line["own_cpus"].as_f64().unwrap() > 0.0, "{line}");
    }
}

#[test]
fn waits_are_in_the_interval_in_which_they_go_on() {
    skip_unless!(sees_waits() && looks_at_tasks());
    // It has slept before, and goes on to sleep: in each interval for all of it.
    let sleeps = start("sleep", ["1000"]).spawn();
    let pid = sleeps.pid().to_string();
    let mut lines = Lines::of(&["--off-cpu", "-p", &pid]);
    for _ in 0..2 {
        let line = eventually("its wait", || lines.next().filter(|line| line["waits"]["rows"][0].is_object()));
        let (waits, row) = (&line["waits"], &line["waits"]["rows"][0]);
        assert_eq!((&row["wait"], &waits["rows"][1]), (&Value::from("sleep"), &Value::Null), "{line}");
        let window_ns = line["seconds"].as_f64().unwrap() * 1e9;
        assert!((row["ns"].as_u64().unwrap() as f64 - window_ns).abs() < 1.0, "{line}");
        assert_eq!((&row["share"], &row["threads"]), (&Value::from(1.0), &Value::from(1.0)), "{line}");
    }
    // Of all threads it is not shown, but counted.
    let mut lines = Lines::of(&["--off-cpu", "-s", "process"]);
    let line = eventually("intervals", || lines.next().filter(|line| line["waits"]["idle_threads"].as_u64() > Some(0)));
    let rows = line["waits"]["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["pid"] != sleeps.pid()), "{line}");
    // What comes and goes.
    let turns = start("sh", ["-c", "while :; do sleep 0.01; done"]).spawn();
    let mut lines = Lines::of(&["--off-cpu", "-p", &turns.pid().to_string(), "-s", "thread"]);
    let kinds = |line: &Value, comm: &str, kind: &str| {
        let rows = line["waits"]["rows"].as_array().unwrap().clone();
        rows.iter().any(|row| row["comm"] == comm && row["kinds_ns"][kind].as_u64() > Some(0))
    };
    let both = |line: &Value| kinds(line, "sh", "child") && kinds(line, "sleep", "sleep");
    let line = eventually("both kinds", || lines.next().filter(both));
    let window_ns = line["seconds"].as_f64().unwrap() * 1e9;
    for row in line["waits"]["rows"].as_array().unwrap() {
        assert!(row["ns"].as_u64().unwrap() as f64 <= window_ns + 1.0, "{line}");
    }
    // The first interval may be over before its waits were looked at.
    let all = format!("waits of process {pid}: 1.0 threads waited at a time");
    let text = eventually("its wait in a table", || {
        let words = ["top", "--stdio", "--off-cpu", "-d", "0.1", "-n", "1", "-s", "cpu", "-p", &pid];
        Some(pmux(words).run().good().text()).filter(|text| text.contains(&all))
    });
    assert!(text.lines().any(|line| line.starts_with(" 100.00%  100.0%  [sleep]")), "{text}");
    pmux(["top", "--off-cpu", "-C", "0", "-n", "1"]).run().bad(125, &["waits are of threads"]);
}

#[test]
fn it_ends_with_what_is_watched_with_its_reader_and_after_so_many_times() {
    skip_unless!(kernel());
    let short = busy();
    let mut lines = Lines::of(&["-p", &short.pid().to_string()]);
    lines.with_rows();
    drop(short);
    while lines.next().is_some() {}
    assert!(lines.0.0.wait().unwrap().success());
    let busy = busy();
    let pid = busy.pid().to_string();
    let ran = pmux(["top", "--stdio", "-d", "0.1", "-n", "3", "-p", &pid]).run().good();
    assert_eq!(ran.text().matches("# pmux top: ").count(), 3, "{}", ran.text());
    let ran = start("sh", ["-c", &format!("'{PMUX}' top -d 0.1 -p {pid} | head -n 1")]).run().good();
    assert!(ran.text().contains(&format!("of process {pid}")), "{}", ran.text());
    pmux(["top", "-p", "4194300", "-n", "1"]).run().bad(125, &["4194300 is not there"]);
    pmux(["top", "-d", "0", "-n", "1"]).run().bad(125, &["from 100ms to 1h"]);
    pmux(["top", "-p", &pid, "-a"]).run().bad(125, &["-p and -a name"]);
}

#[test]
fn it_shares_events_through_the_service() {
    let Some(mut service) = Service::of_kernel("") else { return };
    skip_unless!(root());
    let _busy = busy();
    let socket = service.socket().to_str().unwrap().to_owned();
    let [mut one, mut two] = [(); 2].map(|()| Lines::of(&["--socket", &socket, "-e", "cpu-clock"]));
    for lines in [&mut one, &mut two] {
        let line = lines.with_rows();
        assert_eq!(line["through_service"], Value::from(true), "{line}");
    }
    let status = service.status();
    // A clock, and what tells of tasks: one of each on a CPU for both.
    assert_eq!(status["records"]["kernel_events"].as_u64(), Some(2 * service.cpus()), "{status}");
    // Unless the environment says otherwise.
    for (shared, through) in [("never", false), ("always", true)] {
        let words = ["top", "-j", "-n", "1", "-d", "0.1", "-e", "cpu-clock"];
        let line = pmux(words).env("PMUX_SOCKET", &socket).env("PMUX_SHARED", shared).run().good().document();
        assert_eq!(line["through_service"], Value::from(through), "{shared}: {line}");
    }
    pmux(["top", "-n", "1"]).env("PMUX_SOCKET", "/nowhere").env("PMUX_SHARED", "always").run().bad(125, &["/nowhere"]);
    // And goes on when it has begun anew: the events have other numbers then.
    drop(two);
    service.kill();
    service.start_again();
    eventually("the gap", || one.next().filter(|line| line["service_gap_seconds"].as_f64() > Some(0.0)));
    // What came before it may still have been on its way.
    (0..5).for_each(|_| drop(one.next()));
    one.with_rows();
}

#[test]
fn a_key_changes_between_what_runs_and_what_waits() {
    skip_unless!(program("tmux") && sees_waits() && looks_at_tasks());
    let sync_dir = SyncDir::new();
    let (sleeps, folder) = (start("sleep", ["1000"]).spawn(), sync_dir.text(""));
    let terminal = Terminal::new(&sync_dir, 110, 24);
    terminal.enter(&format!("clear; cd {folder}; '{PMUX}' top --off-cpu -d 0.3 -p {}; echo ended $?", sleeps.pid()));
    terminal.shows(&["Nothing ran", "w waits"]);
    terminal.press(&["w"]);
    terminal.shows(&["1.0 threads waited at a time", "[sleep] ", "w what runs", "i hide idle"]);
    terminal.press(&["i"]);
    terminal.shows(&["1 all the time (i)", "No thread waited for a part of the time only"]);
    terminal.press(&["i", "s"]);
    terminal.shows(&[&format!("{}  sleep", sleeps.pid()), "[sleep] 100 %"]);
    terminal.press(&["w"]);
    terminal.shows(&["Nothing ran", "w waits"]);
    // Of the wait that goes on it was told in each interval; saved is what was told last.
    terminal.press(&["o"]);
    terminal.shows(&["perf.data.", " has the last ", " 1 sample"]);
    terminal.quit("ended 0");
    let [file] = &recordings(&sync_dir)[..] else { panic!("{:?}", recordings(&sync_dir)) };
    let report = report(file, &["-e", "offcpu-time"]);
    assert_eq!(
        (&report["events"][0]["samples"], &report["events"][0]["lost"]),
        (&Value::from(1), &Value::Null),
        "{report}"
    );
}

/// What was saved.
fn recordings(sync_dir: &SyncDir) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("perf.data.");
    let entries = std::fs::read_dir(sync_dir.path("")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(is_one).collect()
}

#[test]
fn what_is_shown_is_saved_and_looked_at() {
    skip_unless!(kernel() && program("tmux"));
    let sync_dir = SyncDir::new();
    let busy = busy();
    let terminal = Terminal::new(&sync_dir, 110, 24);
    let watch = |folder: &str| {
        terminal.enter(&format!("clear; cd {folder}; '{PMUX}' top -d 0.3 -F 999 -p {}; echo over $?", busy.pid()));
        terminal.shows(&["Share", "[.] "]);
    };
    // Where nothing can be written.
    watch("/proc");
    terminal.press(&["o"]);
    terminal.shows(&["nothing is saved here: "]);
    terminal.press(&["r"]);
    terminal.shows(&["nothing is saved here: ", "q quit"]);
    terminal.quit("over 0");
    watch(&sync_dir.text(""));
    terminal.press(&["o"]);
    let text = terminal.shows(&["perf.data.", " has the last ", " samples"]);
    let said: u64 = text.lines().find_map(|line| line.split(" s, ").nth(1)?.split(' ').next()?.parse().ok()).unwrap();
    let [file] = &recordings(&sync_dir)[..] else { panic!("{:?}", recordings(&sync_dir)) };
    let report = report(file, &["-s", "pid"]);
    let event = &report["events"][0];
    assert_eq!(event["samples"], Value::from(said), "{report}");
    assert_eq!(event["rows"].as_array().unwrap().len(), 1, "{report}");
    if perf() {
        let ran = start("perf", ["script", "-G", "-F", "pid", "-i"]).args([file]).run().good();
        let text = ran.text();
        let pids: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert!(pids.len() as u64 == said && pids.iter().all(|pid| *pid == busy.pid().to_string()), "{text}");
    }
    terminal.press(&["r"]);
    terminal.shows(&["Children", "Command", "perf.data."]);
    assert_eq!(recordings(&sync_dir).len(), 2);
    terminal.quit("over 0");
    terminal.is_a_shell();
}

#[test]
fn keys_change_what_is_seen() {
    skip_unless!(kernel() && program("tmux"));
    let sync_dir = SyncDir::new();
    let busy = busy();
    let terminal = Terminal::new(&sync_dir, 110, 24);
    terminal.enter(&format!("clear; '{PMUX}' top -d 0.3 -p {}; echo ended $?", busy.pid()));
    terminal.shows(&[&format!("of process {}", busy.pid()), "Share", "Symbol", "pmux itself takes", "q quit"]);
    terminal.press(&["s"]);
    terminal.shows(&["PID  Process", &format!("{}  sh", busy.pid()), "100.00%"]);
    terminal.press(&["/"]);
    terminal.write("no such");
    terminal.shows(&["/no such_", "No line has this text"]);
    terminal.press(&["Escape"]);
    // On a busy machine the program may have had no CPU in the interval that is frozen.
    eventually("an interval in which it ran is frozen", || {
        terminal.shows(&["100.00%"]);
        terminal.press(&["Space"]);
        let has_run = terminal.shows(&["frozen: Space goes on"]).contains("100.00%");
        if !has_run {
            terminal.press(&["Space"]);
        }
        has_run.then_some(())
    });
    terminal.press(&["?"]);
    terminal.shows(&["Ctrl-C", "quit"]);
    terminal.press(&["q", "Space", "C-z"]);
    // What is typed before the shell goes on is lost.
    terminal.shows(&["Stopped", "ended 148"]);
    terminal.is_a_shell();
    terminal.enter("fg; echo over $?");
    terminal.shows(&["PID  Process", "q quit"]);
    // What was there last stays when the process is gone.
    drop(busy);
    terminal.shows(&["what was watched has ended", "sh"]);
    terminal.quit("over 0");
    terminal.is_a_shell();
}
