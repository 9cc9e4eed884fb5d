//! `pmux flight` as a user meets it: a recorder in the foreground, what it writes, and those who ask it.
//!
//! Read first: [`Recorder`], one that runs and says what happens as JSON; [`Content`], what another reader finds in a snapshot.

use crate::common;
use crate::common::recording::Content;
use crate::common::stolen::Stolen;
use crate::common::{
    Start, eventually, files, kernel, new_file, perf, pmux, program, root, signal, skip_unless, start, tracefs,
};
use crate::off_cpu;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Nothing that is waited for takes so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// What any user may record of their own.
const FAULTS: [&str; 4] = ["-e", "page-faults:u", "-c", "1"];

/// A recorder in the foreground.
struct Recorder {
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<Value>,
    folder: tempfile::TempDir,
}

impl Recorder {
    /// `pmux flight` with these arguments, which writes into a folder of its own.
    fn begin<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // With its command, so that nothing is left of either.
        let mut start = flight(folder.path()).group().args(arguments).env("XDG_RUNTIME_DIR", folder.path());
        let err = File::create(folder.path().join("err")).unwrap();
        start.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(err);
        let mut child = start.command.spawn().unwrap();
        let (say, said) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // What the command says stands there too.
                if let Ok(value) = serde_json::from_str(&line)
                    && say.send(value).is_err()
                {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        let recorder = Self { child, input, said, folder };
        recorder.says("started");
        recorder
    }

    /// The next thing of this kind that it says.
    #[track_caller]
    fn says(&self, kind: &str) -> Value {
        loop {
            let value = self.said.recv_timeout(PATIENCE).unwrap_or_else(|error| {
                let err = std::fs::read_to_string(self.folder.path().join("err")).unwrap_or_default();
                panic!("no {kind}: {error}: {err}")
            });
            if value["kind"] == kind {
                return value;
            }
        }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn signal(&self, name: &str) {
        signal(&self.pid(), name);
    }

    fn line(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn ask<A: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = A>) -> Start {
        pmux(["flight"]).args(words).env("XDG_RUNTIME_DIR", self.folder.path())
    }

    fn snapshots(&self) -> Vec<PathBuf> {
        files(&self.snapshot_folder(), "data")
    }

    fn snapshot_folder(&self) -> PathBuf {
        self.folder.path().join("snapshots")
    }

    /// Asks it to end, and waits.
    fn end(mut self) -> (ExitStatus, Value) {
        self.signal("TERM");
        let ended = self.says("ended");
        (eventually("it ends", || self.child.try_wait().unwrap()), ended)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // A process in the group keeps the group's number from being another one's.
        let _ =
            Command::new("kill").args(["-s", "KILL", "--", &format!("-{}", self.pid())]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

fn flight(folder: &Path) -> Start {
    pmux(["flight", "-j", "-o"]).args([folder.join("snapshots")])
}

/// A file that `perf script` reads without a complaint.
fn perf_reads(file: &Path) {
    if perf() {
        let ran = start("perf", ["script", "-i"]).args([file]).run().good();
        for word in ["fail", "WARNING", "corrupt", "nrecognized", "nknown", "rror", "out of order"] {
            assert!(!ran.err.contains(word), "perf script: {}", ran.err);
        }
        assert!(!ran.out.is_empty());
    }
}

/// A shell that touches memory until it is ended.
const BUSY: [&str; 4] = ["--", "sh", "-c", "while :; do sh -c :; done"];

fn busy(more: &[&str]) -> Vec<String> {
    FAULTS.iter().chain(more).chain(&BUSY).map(|&word| word.to_owned()).collect()
}

/// The example, built.
fn glitch(folder: &Path) -> PathBuf {
    let glitch = folder.join("glitch");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/glitch/glitch.c");
    let built = Command::new("cc").args(["-g", "-O1", "-pthread", "-o"]).arg(&glitch).arg(source).status().unwrap();
    assert!(built.success());
    glitch
}

#[test]
fn what_happened_before_the_glitch_is_in_the_snapshot() {
    skip_unless!(kernel() && program("cc"));
    let folder = tempfile::tempdir().unwrap();
    let glitch = glitch(folder.path());
    let rule = "rate(page-faults:u) > 5k/s";
    let words = ["-e", "page-faults:u", "-c", "16", "--after", "50ms", "--on", rule, "mark glitch; snapshot", "--"];
    let ran = flight(folder.path()).args(words).args([&glitch]).args(["300", "50", "3"]).run().good();
    let said: Vec<Value> = ran.text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of =
        |kind: &str| said.iter().find(|value| value["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {said:?}"));
    let fired = of("fired")["time"].as_f64().unwrap();
    let file = PathBuf::from(of("snapshot")["snapshot"].as_str().unwrap());
    let content = Content::read(&file);
    let visitor = &content.times["visitor"];
    let before = visitor.iter().filter(|&&time| (time as f64) / 1e9 < fired).count();
    assert!(before > 10, "{before} of {} before {fired}", visitor.len());
    // What it is stands beside it.
    let manifest = manifest(&file);
    assert!(manifest["causes"][0]["what"].as_str().unwrap().contains("rate(page-faults:u) is"), "{manifest}");
    assert!(manifest.to_string().contains("glitch"), "the mark: {manifest}");
    perf_reads(&file);
}

#[test]
fn what_is_wrong_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let run = |words: &[&str]| pmux(["flight"]).args(words).env("XDG_RUNTIME_DIR", folder.path()).run();
    run(&["--keep", "lots", "--", "true"]).bad(125, &["--keep", "expected a time, such as 30s"]);
    run(&["--on", "rate(page-faults) > 5", "--", "true"]).bad(125, &["expected `/s`", "^"]);
    run(&["--on", "crash", "true"]).bad(125, &["expected an action", "a command to record stands behind `--`"]);
    skip_unless!(kernel());
    let into = file.join("x");
    let into = into.to_str().unwrap();
    run(&["-e", "page-faults:u", "-o", into, "--", "true"]).bad(125, &[into]);
    let good = folder.path().join("good");
    let good = good.to_str().unwrap();
    run(&["-o", good, "--", "no-such-program-here"]).bad(127, &["no-such-program-here"]);
    run(&["-e", "page-fault:u", "-o", good, "--", "true"]).bad(125, &["page-fault"]);
    run(&["-e", "page-faults:u", "-o", good, "--on", "rate(page-fault) > 1/s", "--", "true"])
        .bad(125, &["rate(page-fault)"]);
    run(&["-e", "page-faults:u", "-o", good, "--set", "x={no-such}", "--", "true"]).bad(125, &["set x", "no-such"]);
    run(&["-e", "page-faults:u", "-o", good, "-p", "999999999"]).bad(125, &["not there"]);
}

#[test]
fn without_a_rule_there_is_a_snapshot_at_the_end() {
    skip_unless!(kernel());
    let folder = tempfile::tempdir().unwrap();
    let snapshots = folder.path().join("snapshots");
    let run = |words: &[&str]| {
        let start = pmux(["flight", "-o"]).args([&snapshots]).args(FAULTS).args(words);
        start.args(["--", "sh", "-c", "exit 3"]).env("XDG_RUNTIME_DIR", folder.path()).run()
    };
    run(&[]).bad(3, &["keeps the last 30 s", "kill -USR2", "a last one at the end", "snapshots/flight-"]);
    assert_eq!(files(&snapshots, "data").len(), 1);
    assert!(Content::read(&files(&snapshots, "data")[0]).sampled["page-faults:u"] > 10);
    run(&["--at-end", "never"]).bad(3, &["no snapshot was taken"]);
    run(&["--on", "line:x"]).bad(3, &["no snapshot was taken"]);
    assert_eq!(files(&snapshots, "data").len(), 1);
    run(&["--on", "line:x", "--at-end", "always"]).bad(3, &["snapshots/flight-"]);
    run(&["-q", "--max-snapshots", "2"]).bad(3, &[]).never_says(&["pmux"]);
    assert_eq!(files(&snapshots, "data").len(), 2, "the oldest one is gone");
    // Nothing is left but snapshots with what they are.
    assert_eq!(files(&snapshots, "json").len(), 2);
    assert_eq!(std::fs::read_dir(&snapshots).unwrap().count(), 4);
    assert_eq!(files(&folder.path().join("pmux/flight"), "sock").len(), 0);
}

#[test]
fn every_dump_request_gets_a_snapshot() {
    skip_unless!(kernel());
    let recorder = Recorder::begin(busy(&[]));
    let pid = recorder.pid();
    recorder.signal("USR2");
    let by_signal = recorder.says("snapshot");
    assert_eq!(by_signal["causes"][0], "signal USR2");
    // Two at once, and one after another: no client is held back, and no client goes without.
    let asked = [recorder.ask(["dump", "--to", &pid]).spawn(), recorder.ask(["dump", "--to", &pid]).spawn()];
    for dump in asked {
        let ran = dump.wait().good().says(&["samples", "CPU"]);
        let path = PathBuf::from(ran.text().trim_end());
        assert!(path.is_absolute(), "{}", path.display());
        assert!(!Content::read(&path).sampled.is_empty());
    }
    let answer = recorder.ask(["dump", "-j", "--to"]).args([recorder.snapshot_folder()]).run().good().document();
    assert!(answer["causes"][0].as_str().unwrap().starts_with("asked by user"), "{answer}");
    let number = |value: &Value| value["number"].as_u64().unwrap();
    assert!(number(&answer) > number(&by_signal));
    assert_eq!(answer["gap_bytes"], 0, "nothing is missing since the one before");

    let list = recorder.ask(["list"]).run().good();
    assert!(list.text().lines().any(|line| line.starts_with(&pid) && line.contains("of 30 s kept")), "{}", list.text());
    let status = recorder.ask(["status", "--to", &pid]).run().good().text();
    for text in ["page-faults:u", "signal:USR2: fired 1 time", "the last one"] {
        assert!(status.contains(text), "{text}: {status}");
    }
    let status = recorder.ask(["status", "-j", "--to", &pid]).run().good().document();
    assert_eq!(status["process"].to_string(), pid);
    let (_, ended) = recorder.end();
    assert_eq!(ended["snapshots"], status["snapshots"]);
}

#[test]
fn a_missing_recorder_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |words: &[&str]| pmux(["flight"]).args(words).env("XDG_RUNTIME_DIR", folder.path()).run();
    ask(&["dump", "--to", "1"]).bad(125, &["process 1 is not a recorder of yours"]);
    ask(&["dump", "--to", "/no/such/folder"]).bad(125, &["no recorder writes into /no/such/folder"]);
    ask(&["dump", "--recorder", "unknown"]).bad(125, &["there is no recorder `unknown`"]);
    ask(&["dump", "--recorder", "x", "--to", "1"]).bad(125, &["cannot be used with"]);
    ask(&["list"]).good();
}

#[test]
fn many_triggers_at_once_are_one_snapshot() {
    skip_unless!(kernel());
    let mut words = vec!["--cool-down", "1h", "--on", "line:late", "--on", "line:every every 2 once", "mark; snapshot"];
    let rules: Vec<String> = (0..98).map(|number| format!("line:/now|{number}x/")).collect();
    rules.iter().for_each(|rule| words.extend(["--on", rule]));
    let mut recorder = Recorder::begin(busy(&words));
    recorder.line("now\nevery\n");
    let snapshot = recorder.says("snapshot");
    let cause = snapshot["causes"][0].as_str().unwrap();
    assert!(cause.contains("line: now"), "{cause}");
    // It is too soon for another one.
    recorder.line("late\n");
    let held_back = recorder.says("held_back");
    assert_eq!(held_back["trigger"], "line:late");
    recorder.line("late\nlate\n");
    // But not for who asks.
    recorder.signal("USR2");
    recorder.says("snapshot");
    let (status, ended) = recorder.end();
    assert!(!status.success(), "the shell was told to end");
    assert_eq!((&ended["snapshots"], &ended["held_back"]), (&2.into(), &3.into()), "{ended}");
    let fired: u64 = ended["triggers"].as_array().unwrap().iter().map(|rule| rule["fired"].as_u64().unwrap()).sum();
    assert_eq!(fired, 98 + 3 + 1, "{ended}");
}

#[test]
fn sets_are_in_the_snapshot_from_when_they_are_on() {
    skip_unless!(kernel());
    let sets = ["--set", "fine={page-faults/period=1/u}", "off", "--set", "more={context-switches:u}", "on"];
    let rules = ["--on", "line:on", "set fine on", "--on", "line:off", "set fine off; mark gone; snapshot"];
    let mut recorder = Recorder::begin([&["-e", "cpu-clock:u"], &sets[..], &rules, &BUSY].concat());
    recorder.signal("USR2");
    let first = Content::read(Path::new(recorder.says("snapshot")["snapshot"].as_str().unwrap()));
    let faults = |content: &Content| -> u64 {
        content.sampled.iter().filter(|(name, _)| name.contains("page-faults")).map(|(_, count)| count).sum()
    };
    assert_eq!(first.events.len(), 4, "{:?}", first.events);
    assert_eq!(faults(&first), 0);
    recorder.line("on\n");
    assert_eq!(recorder.says("set")["on"], true);
    // Something has to happen meanwhile.
    eventually("a page fault", || {
        recorder.signal("USR2");
        let now = Content::read(Path::new(recorder.says("snapshot")["snapshot"].as_str()?));
        (faults(&now) > 0).then_some(())
    });
    recorder.line("off\n");
    assert_eq!(recorder.says("set")["on"], false);
    let manifest = PathBuf::from(recorder.says("snapshot")["manifest"].as_str().unwrap());
    assert!(std::fs::read_to_string(manifest).unwrap().contains("gone"));
    recorder.end();
}

#[test]
fn a_command_gets_the_snapshot() {
    skip_unless!(kernel());
    let (_dir, told) = new_file("told");
    let run = format!("snapshot; run echo {{}} $PMUX_REASON > {}", told.display());
    let mut recorder =
        Recorder::begin(busy(&["--on", "line:go", &run, "--on", "line:bad", "run exit 3", "--after", "20ms"]));
    recorder.line("go home\n");
    let snapshot = recorder.says("snapshot");
    let text = eventually("the command", || std::fs::read_to_string(&told).ok().filter(|text| text.ends_with('\n')));
    assert_eq!(text.trim_end(), format!("{} line: go home", snapshot["snapshot"].as_str().unwrap()));
    recorder.line("bad\n");
    assert!(recorder.says("run_ended")["how"].as_str().unwrap().contains('3'));
    recorder.end();
}

#[test]
fn a_crash_is_caught_with_what_led_to_it() {
    skip_unless!(root() && tracefs());
    let folder = tempfile::tempdir().unwrap();
    let ran = flight(folder.path()).args(FAULTS).args(["--on", "crash:sh", "--", "sh", "-c", "kill -SEGV $$"]).run();
    assert_eq!(ran.code(), 139, "{}", ran.err);
    let [file] = &files(&folder.path().join("snapshots"), "data")[..] else { panic!("{}", ran.text()) };
    assert!(Content::read(file).times["sh"].len() > 3);
}

#[test]
fn a_full_disk_costs_the_snapshot_only() {
    skip_unless!(kernel());
    let folder = tempfile::tempdir().unwrap();
    let snapshots = folder.path().join("snapshots");
    // A file may have one block.
    let limited = ["-c", "ulimit -f 1; exec \"$0\" \"$@\"", common::PMUX, "flight", "-o"];
    let command = ["--", "sh", "-c", "while :; do sh -c :; done & sleep 1; kill $!"];
    let ran = start("sh", limited).args([&snapshots]).args(FAULTS).args(command);
    let ran = ran.env("XDG_RUNTIME_DIR", folder.path()).run();
    assert_eq!(ran.code(), 125, "the command has ended well: {}", ran.err);
    ran.says(&["no snapshot", "too large"]);
    assert_eq!(std::fs::read_dir(&snapshots).unwrap().count(), 0, "nothing is left of it");
    let failing = start("sh", limited).args([&snapshots]).args(FAULTS).args(["--", "sh", "-c", "exit 3"]);
    let ran = failing.env("XDG_RUNTIME_DIR", folder.path()).run();
    assert_eq!(ran.code(), 3, "it is the command's status: {}", ran.err);
    assert!(ran.err.contains("1 snapshot could not be written"), "{}", ran.err);
}

#[test]
fn an_address_in_a_command_is_found_when_it_is_mapped() {
    skip_unless!(kernel() && program("cc"));
    let _alone = common::lock(common::DEBUG_REGISTERS);
    let folder = tempfile::tempdir().unwrap();
    let glitch = glitch(folder.path());
    let line = format!("true; {} 100 10 2; exit 5", glitch.display());
    // One of a program itself, and one of a program that it starts.
    for (rule, command, status) in [
        ("watch:visits:w once", vec![glitch.to_str().unwrap(), "100", "10", "2"], 0),
        ("watch:glitch:visits:w once", vec!["sh", "-c", &line], 5),
    ] {
        let ran = flight(folder.path()).args(FAULTS).args(["--on", rule, "--"]).args(&command).run();
        let is_watched = !ran.err.contains("debug register");
        skip_unless!(common::needs("breakpoints", "a debug register that is free", is_watched));
        assert_eq!(ran.code(), status, "{}", ran.err);
        let said: Vec<Value> = ran.text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let fired: Vec<_> = said.iter().filter(|value| value["kind"] == "fired").collect();
        assert!(fired.len() == 1 && fired[0]["why"].as_str().unwrap().contains("visits:w in thread"), "{said:?}");
        assert!(said.iter().any(|value| value["kind"] == "snapshot"), "{said:?}");
    }
    let missing = |rule: &str| {
        flight(folder.path()).args(FAULTS).args(["--on", rule, "--"]).args([glitch.as_os_str(), "1".as_ref()]).run()
    };
    missing("watch:visit:w").bad(125, &["trigger `watch:visit:w`", "no symbol 'visit'"]);
}

/// The last hit of a program comes right before its end.
#[test]
fn a_hit_right_before_the_end_is_a_trigger() {
    skip_unless!(kernel() && program("cc"));
    let _alone = common::lock(common::DEBUG_REGISTERS);
    let folder = tempfile::tempdir().unwrap();
    let text = "#include <unistd.h>\nvolatile long last_word;\nint main(void) { last_word = 1; _exit(0); }\n";
    let path = common::cc(folder.path(), "last", text, &["-g"]);
    for round in 0..10 {
        let ran = flight(folder.path()).args(FAULTS).args(["--on", "watch:last_word:w", "--"]).args([&path]).run();
        let is_watched = !ran.err.contains("debug register");
        skip_unless!(common::needs("breakpoints", "a debug register that is free", is_watched));
        let said: Vec<Value> = ran.good().text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        for kind in ["fired", "snapshot"] {
            assert!(said.iter().any(|value| value["kind"] == kind), "round {round}: no {kind}: {said:?}");
        }
    }
}

/// A signal that a rule waits for takes a snapshot, and ends nothing.
#[test]
fn a_signal_that_is_a_trigger_does_not_end_it() {
    skip_unless!(kernel());
    let rules = ["HUP", "TERM"].map(|name| format!("signal:{name}"));
    let options = ["--on", &rules[0], "--on", &rules[1], "-p"];
    let mut recorder = Recorder::begin(options.into_iter().chain([&std::process::id().to_string()[..]]).chain(FAULTS));
    for name in ["TERM", "HUP", "TERM"] {
        recorder.signal(name);
        assert_eq!(recorder.says("snapshot")["causes"][0], format!("signal {name}"));
    }
    recorder.signal("INT");
    assert_eq!(recorder.says("ended")["snapshots"], 3);
    eventually("it ends", || recorder.child.try_wait().unwrap());
}

#[test]
fn a_killed_recorder_leaves_nothing_in_the_way() {
    skip_unless!(kernel());
    let mut recorder = Recorder::begin(busy(&[]));
    let pid = recorder.pid();
    let sockets = if root() { PathBuf::from("/run/pmux/flight") } else { recorder.folder.path().join("pmux/flight") };
    let socket = sockets.join(format!("{pid}.sock"));
    assert!(socket.exists());
    recorder.child.kill().unwrap();
    recorder.child.wait().unwrap();
    recorder.ask(["dump", "--to", &pid]).run().bad(125, &["is not a recorder of yours"]);
    assert!(!recorder.ask(["list"]).run().good().text().lines().any(|line| line.starts_with(&pid)));
    // The next one sweeps.
    let next = Recorder::begin(busy(&[]));
    if sockets.starts_with("/run") {
        assert!(!socket.exists());
        assert!(!sockets.join(format!("{pid}.sock.lock")).exists());
    }
    let (_, ended) = next.end();
    assert_eq!(ended["snapshots"], 1, "the last one");
}

#[test]
fn the_end_of_a_process_ends_it() {
    skip_unless!(kernel());
    let sleeper = start("sleep", ["600"]).spawn();
    let pid = sleeper.pid().to_string();
    let recorder = Recorder::begin(["-e", "page-faults:u", "--on", &format!("exit:{pid}"), "-p", &pid]);
    drop(sleeper);
    let snapshot = recorder.says("snapshot");
    assert!(snapshot["causes"][0].as_str().unwrap().contains("has ended"), "{snapshot}");
    recorder.says("ended");
    assert_eq!(recorder.snapshots().len(), 1);
}

fn manifest(snapshot: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(snapshot.with_extension("json")).unwrap()).unwrap()
}

#[test]
fn a_wait_is_in_a_snapshot_with_its_part_of_the_time() {
    skip_unless!(off_cpu::sees_waits() && off_cpu::looks_at_tasks());
    // It has slept before, and goes on to sleep.
    let sleeps = start("sleep", ["1000"]).spawn();
    let pid = sleeps.pid().to_string();
    let recorder = Recorder::begin(["--off-cpu", "--keep", "1s", "-p", &pid]);
    eventually("more than is kept", || {
        let status = recorder.ask(["status", "-j", "--to", &recorder.pid()]).run().good().document();
        (status["up_s"].as_f64() > Some(1.5)).then_some(())
    });
    for _ in 0..2 {
        recorder.ask(["dump", "--to", &recorder.pid()]).run().good();
        let snapshot = recorder.snapshots().pop().unwrap();
        let manifest = manifest(&snapshot);
        let at = |name: &str| manifest["window"][name].as_u64().unwrap();
        let waits = off_cpu::waits(&snapshot);
        let covered_ns = at("covers_to_ns") - at("covers_from_ns");
        assert_eq!(waits["sleep"], [("[sleep]".to_owned(), covered_ns)].into(), "{manifest}");
        let first = (&manifest["waits"]["samples"], at("first_ns"));
        assert_eq!(first, (&Value::from(1), at("covers_from_ns")), "{manifest}");
    }
    assert!(recorder.end().0.success());
}

#[test]
fn waits_of_a_snapshot_are_as_long_as_the_program_says() {
    let Some((_dir, example, folder)) = off_cpu::example("snapshots") else { return };
    let before = Stolen::now();
    let flight = pmux(["flight", "--off-cpu=0", "-m", "8M", "--keep", "10m", "-o"]).args([&folder]).args(["--"]);
    let mut flight = flight.args([example.to_str().unwrap(), "all"]);
    flight.command.current_dir(folder.parent().unwrap());
    let ran = flight.run().good();
    let stolen = before.since_ns();
    let [snapshot] = &files(&folder, "data")[..] else { panic!("{}", ran.err) };
    off_cpu::are_as_long_as_they_were(&off_cpu::waits(snapshot), &ran, stolen, 1_000);
    if program("perf") {
        perf_reads(snapshot);
    }
}

#[test]
fn waits_have_no_more_memory_than_rings() {
    skip_unless!(off_cpu::sees_waits());
    let turns = "while :; do sleep 0.001; done";
    let recorder = Recorder::begin(["--off-cpu=0", "--keep", "32K", "--", "sh", "-c", turns]);
    eventually("more than there is room for", || {
        recorder.ask(["dump", "--to", &recorder.pid()]).run().good();
        let manifest = manifest(&recorder.snapshots().pop().unwrap());
        let since_ns = manifest["waits"]["whole_since_ns"].as_u64().unwrap();
        let is_shorter = since_ns > manifest["recording_since_ns"].as_u64().unwrap() + 1_000_000_000;
        assert!(!is_shorter || manifest["window"]["covers_from_ns"] == since_ns, "{manifest}");
        is_shorter.then_some(())
    });
    let of_cpu = flight(recorder.folder.path()).args(["--off-cpu", "-C", "0"]).run();
    of_cpu.bad(125, &["waits are of threads", "--off-cpu goes with"]);
}
