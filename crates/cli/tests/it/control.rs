//! `--control`: a program says when events count, which are off at first (`-D -1`).
//!
//! Read first: [`Rounds`].

use crate::common::recording::Content;
use crate::common::{
    self, Start, SyncDir, eventually, kernel, new_file, pmux, record_words, role, root, skip_unless, start,
};
use crate::off_cpu::{self, sees_waits};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What the second of three rounds touches, and what a program that waits for the next one comes to at most.
const PAGES: u64 = 400;

/// A number of Linux.
const O_NONBLOCK: i32 = 0o4000;

/// The FIFOs on which pmux is told what to do.
struct Controller {
    folder: tempfile::TempDir,
    commands: File,
    answers: File,
}

impl Controller {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["commands", "answers"].map(|name| folder.path().join(name));
        start("mkfifo", &paths).run().good();
        // For both, so that it waits for no other end.
        let open = |path: &Path| OpenOptions::new().read(true).write(true).custom_flags(O_NONBLOCK).open(path).unwrap();
        Self { commands: open(&paths[0]), answers: open(&paths[1]), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What the option says.
    fn place(&self) -> String {
        format!("fifo:{},{}", self.path("commands").display(), self.path("answers").display())
    }

    fn send(&mut self, text: &str) {
        self.commands.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for the answers to so many commands.
    fn answered(&mut self, count: usize) {
        let (wanted, mut seen) = (b"ack\n\0".repeat(count), Vec::new());
        eventually("it is answered", || {
            let mut bytes = [0; 64];
            let count = self.answers.read(&mut bytes).unwrap_or(0);
            seen.extend_from_slice(&bytes[..count]);
            (seen.len() >= wanted.len()).then_some(())
        });
        assert_eq!(seen, wanted);
    }

    fn ask(&mut self, command: &str) {
        self.send(&format!("{command}\n"));
        self.answered(1);
    }
}

/// A program that touches [`PAGES`] pages three times, each time when it is told to.
struct Rounds(SyncDir);

impl Rounds {
    fn words(&self) -> Vec<std::ffi::OsString> {
        role::words(&format!("rounds:{PAGES},{}", self.0.text("")))
    }

    fn round(&self, number: u32) {
        self.0.post(&format!("go{number}"));
        self.0.read(&format!("done{number}"));
    }

    /// Has the second round counted alone.
    fn play(&self, controller: &mut Controller) {
        self.0.arrived_pid();
        self.round(0);
        controller.ask("enable");
        self.round(1);
        controller.ask("disable");
        self.round(2);
    }
}

/// Whether it is one round, and no two.
fn is_one_round(count: u64) -> bool {
    (PAGES..2 * PAGES).contains(&count)
}

fn stat_of(event: &str, rounds: &Rounds, controller: &Controller) -> Start {
    let place = controller.place();
    let words = ["stat", "-x,", "-D", "-1", "--control", &place, "-e", event, "--"];
    pmux(common::words(&words, rounds.words()))
}

#[test]
fn what_is_enabled_is_counted() {
    skip_unless!(role::pages_are_small());
    for (event, backend) in [("page-faults:u", ""), ("page-faults", "usage")] {
        if backend.is_empty() && !kernel() {
            continue;
        }
        let (mut controller, rounds) = (Controller::new(), Rounds(SyncDir::new()));
        let running = stat_of(event, &rounds, &controller).env("PMUX_BACKEND", backend).spawn();
        rounds.play(&mut controller);
        rounds.0.post("leave");
        let ran = running.wait().good();
        let count = ran.value(event);
        assert!(is_one_round(count as u64), "{backend}: {}", ran.err);
    }
}

#[test]
fn nothing_is_counted_until_it_is_asked_for() {
    let (mut controller, rounds) = (Controller::new(), Rounds(SyncDir::new()));
    let running = stat_of("page-faults", &rounds, &controller).spawn();
    rounds.0.arrived_pid();
    // What is no command is told and not answered; lines may come in pieces, and several at once.
    controller.send("enable page-faults\nsnapshot\npi");
    controller.send(&format!("ng\n{}\nping\ndisable\n\nping\n", "x".repeat(5000)));
    controller.answered(4);
    [0, 1, 2].iter().for_each(|&number| rounds.round(number));
    rounds.0.post("leave");
    let ran = running.wait().good();
    let told = ["`enable page-faults` is no command: enable, disable", "-I prints counts"];
    ran.says(&told).says(&["<not counted>"]);
    let place = controller.place();
    let ran = pmux(["stat", "-D", "-1", "--control", &place, "-e", "page-faults", "--", "true"]).run();
    ran.good().says(&["no `enable` came through --control: nothing was counted"]);
}

#[test]
fn what_is_enabled_is_recorded() {
    skip_unless!(kernel() && role::pages_are_small());
    let (mut controller, rounds) = (Controller::new(), Rounds(SyncDir::new()));
    let file = controller.path("x.data");
    let running = pmux(record_words(&file, &["-D", "-1", "--control", &controller.place()], rounds.words())).spawn();
    rounds.play(&mut controller);
    rounds.0.post("leave");
    running.wait().good();
    let content = Content::read(&file);
    assert!(is_one_round(content.samples), "{} samples", content.samples);
}

/// Each round in a file of its own; then the end comes as a command, and ends the program, too.
#[test]
fn a_snapshot_goes_on_in_another_file_and_stop_is_the_end() {
    skip_unless!(kernel() && role::pages_are_small());
    let (mut controller, rounds) = (Controller::new(), Rounds(SyncDir::new()));
    let file = controller.path("x.data");
    let options = ["--switch-output", "-D", "-1", "--control", &controller.place()];
    let running = pmux(record_words(&file, &options, rounds.words())).spawn();
    rounds.play(&mut controller);
    for round in [3, 4] {
        controller.ask("snapshot");
        controller.ask("enable");
        rounds.round(round);
        controller.ask("disable");
    }
    controller.ask("stop");
    let ran = running.wait();
    assert_eq!(ran.code(), 128 + 15, "{}", ran.err);
    let mut samples = Vec::new();
    for entry in std::fs::read_dir(controller.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("x.data") {
            samples.push(Content::read(&path).samples);
        }
    }
    assert!(samples.len() == 3 && samples.iter().all(|&samples| is_one_round(samples)), "{samples:?}");
}

#[test]
fn what_is_enabled_is_recorded_by_the_service() {
    skip_unless!(root() && role::pages_are_small());
    let service = common::service::Service::start();
    let (mut controller, rounds) = (Controller::new(), Rounds(SyncDir::new()));
    let file = controller.path("x.data");
    let words = rounds.words();
    let program = start(&words[0], &words[1..]).spawn();
    let options = ["--shared=always", "-p", &program.pid().to_string(), "-D", "-1", "--control", &controller.place()];
    let running = pmux(record_words(&file, &options, Vec::new())).env("PMUX_SOCKET", service.socket()).spawn();
    rounds.play(&mut controller);
    controller.ask("enable");
    rounds.round(3);
    controller.ask("disable");
    rounds.round(4);
    controller.ask("stop");
    running.wait().good();
    rounds.0.post("leave");
    program.wait();
    let content = Content::read(&file);
    assert!((2 * PAGES..3 * PAGES).contains(&content.samples), "{} samples", content.samples);
}

/// Waits, too, are those of the time in which they are recorded: none spans a pause, and none is missing after it.
#[test]
fn waits_are_recorded_while_they_are_enabled() {
    skip_unless!(sees_waits());
    let (mut controller, rounds) = (Controller::new(), Rounds(SyncDir::new()));
    let file = controller.path("x.data");
    let options = ["--off-cpu=0", "-D", "-1", "--control", &controller.place()];
    let running = pmux(record_words(&file, &options, rounds.words())).spawn();
    rounds.0.arrived_pid();
    let mut enabled = std::time::Duration::ZERO;
    for number in [0, 1] {
        let began = std::time::Instant::now();
        controller.ask("enable");
        // What waits under way have waited already stays.
        controller.ask("enable");
        rounds.round(number);
        std::thread::sleep(std::time::Duration::from_millis(50));
        controller.ask("disable");
        enabled += began.elapsed();
        std::thread::sleep(std::time::Duration::from_millis(400));
    }
    controller.ask("stop");
    let ran = running.wait();
    let report = off_cpu::report(&file, &["-g", "none", "-s", "thread"]);
    let named = |event: &serde_json::Value| (event["name"].clone(), event["period"].as_u64().unwrap());
    let sums: Vec<_> = report["events"].as_array().unwrap().iter().map(named).collect();
    let of = |name: &str| sums.iter().find(|(event, _)| *event == name).map_or(0, |(_, ns)| *ns);
    // Two threads. Who woke one that had not come back by the end is known, and its wait is not.
    let most = 2 * enabled.as_nanos() as u64;
    assert!(
        of("offcpu-time") > 0 && of("offcpu-time") + of("runqueue-time") <= most,
        "{sums:?}, at most {most}: {}",
        ran.err
    );
    assert!(of("waker-time") > 0 && of("waker-time") <= most, "{sums:?}: {}", ran.err);
}

/// What hangs already is told when it ends: for which lock it has waited since the beginning, and who let it go.
#[test]
fn a_wait_that_has_begun_before_is_known() {
    skip_unless!(sees_waits());
    let (mut controller, door) = (Controller::new(), SyncDir::new());
    let mut program = role::command(&format!("holds:{}", door.text(""))).spawn().unwrap();
    let pid = program.id().to_string();
    door.arrived_pid();
    let waits = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("wchan")).is_ok_and(|at| at.starts_with("futex"))
    };
    // The harness's first thread waits for the one that plays, and that has another one wait.
    eventually("two threads wait for a futex", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        (tasks.filter_map(Result::ok).map(waits).filter(|waits| *waits).count() >= 2).then_some(())
    });
    let file = controller.path("x.data");
    let options = ["--off-cpu", "-p", &pid, "-D", "-1", "--control", &controller.place()];
    let running = pmux(record_words(&file, &options, Vec::new())).spawn();
    controller.ask("enable");
    std::thread::sleep(std::time::Duration::from_millis(20));
    door.post("go");
    door.read("done");
    controller.ask("stop");
    let ran = running.wait().good();
    door.post("leave");
    program.wait().unwrap();
    let report = off_cpu::report(&file, &["--locks"]);
    // The harness's thread waits on.
    let has_ended = |row: &&serde_json::Value| row["wakers"][0]["function"].is_string();
    let mut rows = report["locks"].as_array().unwrap().iter().filter(has_ended);
    let row = rows.find(|row| row["total_ns"].as_u64() >= Some(20_000_000));
    let row = row.unwrap_or_else(|| panic!("{report} {}", ran.err));
    // Where the kernel gives no registers of other tasks (before 5.15) there is no address.
    assert!(row["address"].is_string() || !common::linux_is_at_least(5, 15), "{report}");
    let waker = &row["wakers"][0];
    assert!(waker["function"].is_string() && waker["comm"] == row["waiters"][0]["comm"], "{report}");
}

/// By descriptors that are inherited, also by the command.
#[test]
fn a_command_can_say_itself_when_it_is_counted() {
    skip_unless!(kernel());
    let controller = Controller::new();
    let [commands, answers] = ["commands", "answers"].map(|name| controller.path(name));
    let command =
        "echo enable >&7; read -r answer <&8; case $answer in ack) ls /; echo disable >&7; read -r answer <&8; esac";
    let stat = format!("exec '{}' stat -x, -D -1 -e page-faults:u --control fd:7,8 -- sh -c \"$0\"", common::PMUX);
    let line = format!("exec 7<>'{}' 8<>'{}'; {stat}", commands.display(), answers.display());
    let ran = start("sh", ["-c", &line, command]).run().good();
    assert!(ran.value("page-faults:u") >= 10.0, "{}", ran.err);
}

#[test]
fn what_can_not_be_a_channel_is_refused() {
    let (_dir, missing) = new_file("missing");
    let run = |words: &[&str]| pmux(words.iter().chain(&["-e", "page-faults:u", "--", "true"])).run();
    let control = |place: &str| run(&["stat", "--control", place]);
    for command in ["stat", "record"] {
        run(&[command, "-D", "-1"]).bad(125, &["-D -1 starts with the events off", "--control"]);
    }
    control(&format!("fifo:{}", missing.display())).bad(125, &["no such FIFO: mkfifo"]);
    control("fifo:/dev/null").bad(125, &["/dev/null", "neither a pipe nor a FIFO"]);
    let controller = Controller::new();
    let place = format!("fifo:{0},{0}", controller.path("commands").display());
    control(&place).bad(125, &["a FIFO each"]);
    control("fd:77").bad(125, &["descriptor 77", "not open"]);
    for place in ["fd:x", "fifo:", "fifo:a,", "nothing"] {
        control(place).bad(125, &[&format!("invalid value '{place}' for '--control <WHERE>'")]);
    }
}
