//! `pmux record` as a user meets it: its files are read by `perf`, and by a reader that others wrote.
//!
//! Read first: [`Content`], what that reader finds in a file.

use crate::common;
use crate::common::recording::Content;
use crate::common::{
    Cgroup, Start, SyncDir, eventually, kernel, kernel_mode, new_file, perf, pmux, program, role, root, skip_unless,
    start, tracefs,
};
use crate::stat_targets::Worker;
use linux_perf_data::PerfFileReader;
use std::ffi::OsString;
use std::path::Path;

/// `pmux record -o FILE` with these arguments.
fn record<A: AsRef<std::ffi::OsStr>>(file: &Path, arguments: impl IntoIterator<Item = A>) -> Start {
    pmux(["record", "-o"]).args([file]).args(arguments)
}

/// What `perf` says of a file. It must have nothing to complain of.
fn perf_reads(subcommand: &[&str], file: &Path) -> String {
    let ran = start("perf", subcommand).args(["-i"]).args([file]).run().good();
    for word in ["fail", "WARNING", "corrupt", "nrecognized", "nknown", "rror", "out of order", "lost"] {
        let is_told = || word == "lost" && Content::read(file).lost > 0; // As may be on a busy machine.
        assert!(!ran.err.contains(word) || is_told(), "perf {subcommand:?}: {}", ran.err);
    }
    ran.text()
}

fn perf_reads_each(subcommands: &[&[&str]], file: &Path) {
    for subcommand in subcommands.iter().filter(|_| perf()) {
        assert!(!perf_reads(subcommand, file).trim().is_empty(), "perf {subcommand:?} says nothing");
    }
}

fn all_of_perf_reads(file: &Path) {
    all_of_perf_reads_but_build_ids(file);
    perf_reads_each(&[&["buildid-list"], &["report", "--header-only"]], file);
}

/// A process group that is gone when this is dropped, also by a panic.
pub(crate) struct Group(common::Running);

impl Group {
    pub(crate) fn of(start: Start) -> Self {
        Self(start.group().spawn())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kill").args(["-s", "KILL", "--", &format!("-{}", self.0.pid())]).status();
    }
}

#[test]
fn json_says_what_was_written() {
    skip_unless!(kernel());
    let (_folder, file) = new_file("x.data");
    let line = "echo of the command >&2; i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; exit 3";
    let ran = record(&file, ["--json", "-e", "cpu-clock:u", "--", "sh", "-c", line]).run();
    assert_eq!(ran.code(), 3, "{}", ran.err);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "of the command"), "{}", ran.err);
    let said: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
    let content = Content::read(&file);
    assert_eq!(said["file"].as_str(), file.to_str());
    assert_eq!(said["samples"].as_u64(), Some(content.samples));
    assert_eq!((&said["files"], &said["lost"], &said["status"]), (&1.into(), &0.into(), &3.into()), "{said}");
    assert!(said["first_ns"].as_u64() <= said["last_ns"].as_u64() && said["service"].is_null(), "{said}");
    // What is wrong is text, as without it.
    pmux(["record", "--json", "-o", "/dev/full", "-e", "cpu-clock:u", "true"]).run().bad(125, &["pmux: /dev/full"]);
    let streamed = pmux(["record", "--json", "-z3", "-o", "-", "-e", "cpu-clock:u", "true"]).run().good();
    let said: serde_json::Value = serde_json::from_str(streamed.err.trim_end()).unwrap();
    assert!(said["file"].is_null(), "{said}");
}

#[test]
fn a_command_is_recorded_and_its_file_is_read_by_others() {
    skip_unless!(kernel());
    let (_folder, file) = new_file("x.data");
    let line = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; exit 3";
    let ran = record(&file, ["-e", "cpu-clock:u", "-g", "--", "sh", "-c", line]).run();
    assert_eq!(ran.code(), 3, "the status of the command: {}", ran.err);
    assert!(ran.err.contains("wrote "), "{}", ran.err);
    let content = Content::read(&file);
    assert_eq!(content.events.len(), 2, "{:?}", content.events);
    assert_eq!(content.events[0], "cpu-clock:u");
    assert!(content.samples > 0 && content.pids.len() == 1, "{content:?}");
    assert!(content.comms.iter().any(|name| name == "sh"), "{:?}", content.comms);
    // The program itself, or where it has one, its loader.
    let mapped = |path: &String| path.starts_with('/') && Path::new(path) != Path::new(common::PMUX);
    assert!(content.maps.iter().any(mapped), "{:?}", content.maps);
    all_of_perf_reads(&file);
    if perf() {
        let script = perf_reads(&["script", "-F", "comm,ip,sym"], &file);
        assert!(script.contains("sh"), "{script}");
        let header = perf_reads(&["report", "--header-only"], &file);
        for part in
            ["hostname :", "cmdline : ", "event : name = cpu-clock:u", "clockid: monotonic", "time of first sample"]
        {
            assert!(header.contains(part), "{part} in {header}");
        }
    }
}

#[test]
fn each_of_ten_thousand_names_is_there() {
    skip_unless!(kernel());
    let (_folder, file) = new_file("names.data");
    for extra in [&[][..], &["-z"]] {
        let room: &[&str] = if root() { &["-m", "4M"] } else { &[] };
        let start = record(&file, ["-e", "page-faults:u"]).args(room).args(extra).args(["--"]);
        start.args(role::words("renames:10000")).run().good();
        if !extra.is_empty() {
            // The reader that is built here knows no compression.
            if perf() {
                let script = perf_reads(&["script", "--show-task-events"], &file);
                assert_eq!(script.matches("PERF_RECORD_COMM: name-").count(), 10_000);
            }
            continue;
        }
        let content = Content::read(&file);
        let names: Vec<_> = content.comms.iter().filter(|name| name.starts_with("name-")).collect();
        assert_eq!(names.len(), 10_000, "{} lost", content.lost);
        assert!(names.iter().enumerate().all(|(index, name)| **name == format!("name-{index}")), "in their order");
    }
}

#[test]
fn every_hit_of_a_tracepoint_is_a_sample() {
    skip_unless!(kernel_mode() && root() && tracefs());
    let (_folder, file) = new_file("t.data");
    // Each name that is given is one call of write(2).
    let words = ["-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit", "-m", "8M", "--"];
    record(&file, words).args(role::words("renames:5000")).run().good();
    let content = Content::read(&file);
    assert_eq!(content.lost, 0);
    assert!(content.sampled[&content.events[0]] >= 5000, "{:?}", content.sampled);
    if perf() {
        let script = perf_reads(&["script", "--ns"], &file);
        assert!(script.contains("raw_syscalls:sys_enter: NR "), "the fields have names: {script:.500}");
    }
}

#[test]
fn a_pipe_is_read_as_it_is_written() {
    skip_unless!(kernel());
    let line = "echo not in the pipe; for i in 1 2 3; do :; done";
    // A command's text goes to standard error.
    let ran = pmux(["record", "-o", "-", "-e", "cpu-clock:u", "--", "sh", "-c", line]).run().good();
    let ran = ran.says(&["not in the pipe"]);
    let content = Content::of(PerfFileReader::parse_pipe(&ran.out[..]).unwrap());
    assert!(content.comms.iter().any(|name| name == "sh"), "{content:?}");
    if perf() {
        start("perf", ["script", "--show-task-events", "-i", "-"]).input(ran.out).run().good();
    }
}

#[test]
fn what_was_written_can_be_read_after_kill_9() {
    skip_unless!(kernel());
    let folder = SyncDir::new();
    for round in 0..2 {
        // Not the same twice: what the last one has written would be taken for what this one writes.
        let file = folder.path(&format!("killed.{round}"));
        let line = "while :; do :; done";
        let group = Group::of(record(&file, ["-e", "cpu-clock:u", "-F", "999", "--", "sh", "-c", line]));
        // Not by its size: each BPF program that is loaded meanwhile leaves a record, too.
        let written = eventually("samples are written", || {
            let samples = Content::look(&file)?.samples;
            (samples > 0).then_some(samples)
        });
        drop(group);
        let content = Content::read(&file);
        assert!(content.samples >= written, "{written} were there: {content:?}");
        if perf() {
            assert!(perf_reads(&["script"], &file).contains("sh"));
            assert!(perf_reads(&["evlist"], &file).contains("cpu-clock:u"));
        }
    }
}

#[test]
fn a_full_disk_keeps_what_fits() {
    skip_unless!(root() && program("unshare"));
    let folder = SyncDir::new();
    // A file system of its own that only the recorder sees, with room for what is there before the first sample.
    let script = "mount -t tmpfs -o size=4m none \"$0\" && shift 0 && \"$1\" record -e cpu-clock -F 5000 -a -g -o \"$0/f.data\" -- \
                  sleep 30; echo status $?; cp \"$0/f.data\" \"$2\"";
    let copy = folder.path("copy.data");
    let disk = folder.path("disk");
    std::fs::create_dir(&disk).unwrap();
    // Both CPUs have something to do, or it takes long.
    let busy = [0, 1].map(|_| Group::of(start("sh", ["-c", "while :; do :; done"])));
    let recorder = start("unshare", ["-m", "sh", "-c", script]).args([&disk]).args([common::PMUX]).args([&copy]);
    let ran = recorder.run();
    drop(busy);
    assert!(ran.text().contains("status 125"), "{}{}", ran.text(), ran.err);
    assert!(ran.err.contains("No space left on device") && ran.err.contains("can be read"), "{}", ran.err);
    let content = Content::read(&copy);
    assert!(content.samples > 100, "{}", content.samples);
    all_of_perf_reads_but_build_ids(&copy);
}

#[test]
fn recorders_at_the_same_time_do_not_spoil_each_other() {
    skip_unless!(kernel() && root());
    let folder = SyncDir::new();
    let files = ["outer", "middle", "inner"].map(|name| folder.path(name));
    // Each runs the next one; each hit is a sample of all, and the last one loads BPF programs, of which all are told.
    let record = |file: &Path, arguments: &[&str]| {
        let words = [common::PMUX, "record", "-o", file.to_str().unwrap()];
        [&words, arguments, &["--"]].concat().into_iter().map(OsString::from).collect::<Vec<_>>()
    };
    let programs = pmux_linux::bpf::why_not(pmux_linux::bpf::ProgramKind::RawTracepoint).is_none()
        && Path::new("/sys/kernel/btf/vmlinux").exists();
    let last: &[&str] = if programs { &["--off-cpu"] } else { &[] };
    let faults = ["-a", "-e", "page-faults", "-c", "1"];
    let words =
        [record(&files[0], &faults), record(&files[1], &faults), record(&files[2], last), role::words("touch:300")];
    let words = words.concat();
    start(&words[0], &words[1..]).run().good();
    for file in &files[..2] {
        let content = Content::read(file);
        assert!(content.sampled["page-faults"] >= 300, "{:?}", content.sampled);
        assert_eq!(content.lost, 0, "samples of no event");
        perf_reads_each(&[&["report", "--stdio"], &["script"]], file);
    }
}

fn all_of_perf_reads_but_build_ids(file: &Path) {
    perf_reads_each(&[&["report", "--stdio"], &["script"], &["evlist"]], file);
}

#[test]
fn threads_of_a_process_come_and_go() {
    skip_unless!(kernel());
    let (sync_dir, file) = new_file("p.data");
    let words = role::words(&format!("crowd:20,{}", sync_dir.text("")));
    let mut target = Group::of(start(&words[0], &words[1..]));
    let pid = sync_dir.read("here");
    let running = record(&file, ["-e", "page-faults:u", "-c", "1", "-p", &pid]).spawn();
    // Its first thread touches a page now and then: with the first of these in the file, all events are on.
    eventually("it records", || (Content::look(&file)?.samples > 0).then_some(()));
    sync_dir.post("go");
    target.0.child.0.wait().unwrap();
    // It ends when its process does.
    running.wait().good();
    let content = Content::read(&file);
    // Twenty that were there, and one of each that came later; each touches pages of its own.
    assert!(content.tids.len() >= 40, "{} threads", content.tids.len());
    assert!(content.exits >= 40, "{} ends", content.exits);
    assert_eq!(content.lost, 0);
}

/// The recordings of a folder, in their order.
fn all_of(folder: &SyncDir) -> Vec<Content> {
    let mut files: Vec<_> = std::fs::read_dir(folder.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| Content::read(file)).collect()
}

#[test]
fn a_recording_goes_on_in_other_files() {
    skip_unless!(kernel());
    let (folder, file) = new_file("s.data");
    // Each signal after what the one before has done.
    let wait = |count: usize| format!("while [ $(ls '{}' | wc -l) -lt {count} ]; do sleep 0.05; done", folder.text(""));
    let next = "kill -USR2 $PPID";
    let line = format!("{}; sleep 9 & {next}; {}; {next}; {}; ls >/dev/null; kill $!", wait(1), wait(2), wait(3));
    let words = ["-e", "page-faults:u", "-c", "1", "--switch-output", "--", "sh", "-c", &line];
    let ran = record(&file, words).run().good();
    assert!(ran.err.contains("3 files"), "{}", ran.err);
    let contents = all_of(&folder);
    assert_eq!(contents.len(), 3);
    assert!(contents[2].samples > 0 && contents[2].comms.iter().any(|name| name == "ls"), "{contents:?}");
    // What happened before is told in each of them.
    assert!(contents[1].comms.iter().any(|name| name == "sh"), "{contents:?}");
    assert!(contents[2].comms.iter().any(|name| name == "sleep"), "it does nothing, and is there: {contents:?}");
    let kept =
        record(&file, ["-e", "page-faults:u", "--switch-output=1s", "--switch-max-files", "1", "--", "sleep", "2.5"]);
    kept.run().good();
}

#[test]
fn samples_of_several_cgroups_say_which() {
    skip_unless!(kernel_mode() && root());
    let (Some(first), Some(second)) = (Cgroup::make("rec-one"), Cgroup::make("rec-two")) else { return };
    let (_folder, file) = new_file("g.data");
    let busy = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
    let go = |cgroup: &Cgroup| format!("echo $$ >{}; {busy}", cgroup.path.join("cgroup.procs").display());
    let line = format!("{busy}; {}; {}; echo done", go(&first), go(&second));
    let both = format!("{},{},{0}", first.name(), second.name());
    record(&file, ["-e", "cpu-clock", "-c", "1000000", "-a", "-G", &both, "--", "sh", "-c", &line]).run().good();
    let content = Content::read(&file);
    assert_eq!((content.events.len(), content.pids.len()), (2, 1), "only who was in them: {content:?}");
    let told = |name: &str| content.cgroups.iter().find(|(_, path)| *path == &format!("/{name}")).map(|(id, _)| *id);
    for cgroup in [&first, &second] {
        let id = told(cgroup.name()).expect("it is named");
        assert!(content.sampled_in.get(&id).is_some_and(|&samples| samples > 0), "{content:?}");
    }
    assert_eq!(content.sampled_in.len(), 2, "and nowhere else: {content:?}");
    if perf() {
        let report = perf_reads(&["report", "--stdio", "-s", "cgroup"], &file);
        assert!(report.contains(first.name()) && report.contains(second.name()), "{report}");
    }
}

#[test]
fn an_older_file_is_kept() {
    skip_unless!(kernel());
    let (folder, file) = new_file("x.data");
    std::fs::write(&file, "older").unwrap();
    record(&file, ["-e", "page-faults:u", "--", "true"]).run().good();
    assert_eq!(std::fs::read_to_string(folder.path("x.data.old")).unwrap(), "older");
    assert!(Content::read(&file).comms.iter().any(|name| name == "true"));
}

#[test]
fn it_ends_at_a_size() {
    skip_unless!(kernel());
    let (folder, file) = new_file("m.data");
    let line = "while :; do :; done";
    record(&file, ["-e", "cpu-clock:u", "-F", "5000", "--max-size", "64K", "--", "sh", "-c", line]).run();
    let content = Content::read(&file);
    assert!(content.samples > 100);
    assert!(std::fs::metadata(&file).unwrap().len() < 128 << 10);
    if kernel_mode() {
        // What is told of all processes alone is larger.
        record(&file, ["-a", "-e", "page-faults", "-c", "1", "--switch-output=4K", "--", "ls"]).run().good();
        assert!(all_of(&folder).iter().filter(|content| content.samples == 0).count() <= 1);
    }
}

#[test]
fn everything_at_once() {
    skip_unless!(kernel_mode() && root());
    let (folder, file) = new_file("all.data");
    // Long enough for some samples after the first 20 ms.
    let line =
        "for i in 1 2 3; do ls / >/dev/null; done; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; ls / >/dev/null";
    let options =
        ["-e", "cpu-clock", "-F", "99", "-a", "-g", "-d", "--switch-events", "-D", "20", "--", "sh", "-c", line];
    record(&file, options).run().good();
    let content = Content::read(&file);
    assert!(content.switches > 0 && content.forks > 0, "{content:?}");
    all_of_perf_reads(&file);
    let file = folder.path("d.data");
    record(&file, ["-e", "cpu-clock", "--call-graph", "dwarf,4096", "--", "sh", "-c", line]).run().good();
    assert!(Content::read(&file).samples > 0);
    if perf() {
        // To unwind takes perf too long.
        perf_reads(&["script", "-F", "comm,tid"], &file);
    }
    let file = folder.path("s.data");
    record(&file, ["-e", "cpu-clock", "-s", "--", "sh", "-c", line]).run().good();
    all_of_perf_reads(&file);
}

#[test]
fn wrong_wishes_are_told() {
    let (_folder, file) = new_file("x.data");
    pmux(["record"]).run().bad(125, &["nothing to record: give a command"]);
    pmux(["record", "--", "no-such-command-here"]).run().bad(127, &["no-such-command-here"]);
    skip_unless!(kernel());
    record(&file, ["-e", "no-such-event", "--", "true"]).run().bad(125, &["no-such-event"]);
    record(&file, ["-e", "duration_time", "--", "true"]).run().bad(125, &["has no samples"]);
    record(&file, ["-p", "999999999"]).run().bad(125, &["not there"]);
    record(Path::new("/no/such/folder/x"), ["-e", "page-faults:u", "--", "true"])
        .run()
        .bad(125, &["/no/such/folder/x", "-o FILE"]);
}

#[test]
fn files_that_run_out_are_told() {
    skip_unless!(kernel() && program("sh"));
    let (_folder, file) = new_file("x.data");
    let line = "ulimit -n 12; exec \"$0\" record -e page-faults:u,minor-faults:u,major-faults:u,cpu-clock:u,task-clock:u -o \"$1\" -- true";
    let ran = start("sh", ["-c", line, common::PMUX]).args([&file]).run();
    ran.bad(125, &["files", "what helps:"]);
}

#[test]
fn an_unprivileged_user_records_its_own_programs() {
    skip_unless!(root() && program("setpriv"));
    let folder = common::folder_with(0o777);
    let program = common::copy_with(folder.path(), common::PMUX, 0o755);
    let file = folder.path().join("u.data");
    let as_unprivileged = |words: &[&str]| common::unprivileged().args([&program]).args(words).run();
    let (name, line) = (file.to_str().unwrap(), "for i in 1 2 3; do :; done");
    let ran = as_unprivileged(&["record", "-e", "cpu-clock", "-o", name, "--", "sh", "-c", line]).good();
    if common::paranoid() > 1 {
        assert!(ran.err.contains("records user mode only"), "{}", ran.err);
        let all = as_unprivileged(&["record", "-a", "-e", "cpu-clock", "-o", name, "--", "true"]);
        all.bad(125, &["perf_event_paranoid", "what helps:"]);
    }
    assert!(Content::read(&file).comms.iter().any(|name| name == "sh"));
}

/// Two who record the same through the service: one event of the kernel on each CPU, and two files.
#[test]
fn what_is_recorded_through_the_service_is_opened_once() {
    skip_unless!(root());
    let service = common::service::Service::start();
    let folder = SyncDir::new();
    let files = ["one.data", "two.data"].map(|name| folder.path(name));
    let words = ["--shared=always", "-a", "-g", "-e", "cpu-clock", "-F", "997", "--", "sleep", "2"];
    let running = files.each_ref().map(|file| record(file, words).env("PMUX_SOCKET", service.socket()).spawn());
    let status =
        eventually("both record", || Some(service.status()).filter(|status| status["records"]["subscriptions"] == 2));
    // The clock, and what tells names and mappings.
    assert_eq!(status["events"]["kernel"], 2 * service.cpus(), "{status}");
    for running in running {
        running.wait().good().says(&["records through the service", "wrote "]);
    }
    for file in &files {
        let content = Content::read(file);
        assert!(content.samples > 100 || content.lost > 0, "{} samples", content.samples);
        assert!(content.comms.iter().any(|name| name == "sleep"), "what came while it was recorded");
        assert!(content.comms.iter().any(|name| name.starts_with("pmux")), "what was there before");
        let times = || content.times.values().flatten();
        assert!(times().min() < times().max());
        // Where the machine is too busy for the service to be there in time, `perf` tells of losses.
        if content.lost == 0 {
            perf_reads_each(&[&["report", "--stdio"], &["script"]], file);
        }
    }
    service.is_empty();
}

/// Threads end and start others while they are opened: those that are there are recorded, and it is said that others may be missing.
#[test]
fn threads_that_come_and_go_are_recorded_through_the_service() {
    skip_unless!(root());
    let service = common::service::Service::start();
    let (_folder, file) = new_file("chains.data");
    let worker = Worker::new("chains:20");
    let words = ["--shared=always", "-e", "cpu-clock", "-F", "997", "-p", &worker.pid, "--", "sleep", "0.2"];
    let ran = record(&file, words).env("PMUX_SOCKET", service.socket()).run().good();
    ran.says(&["records through the service", "wrote "]);
    drop(worker);
    service.is_empty();
}

#[test]
fn what_is_not_shared_is_told_or_recorded_all_the_same() {
    skip_unless!(root());
    let service = common::service::Service::start();
    let (folder, file) = new_file("x.data");
    let with = |words: &[&str]| record(&file, words).env("PMUX_SOCKET", service.socket()).run();
    let clock = ["-e", "cpu-clock", "-F", "997"];
    let command = with(&[&["--shared=always"], &clock[..], &["--", "true"]].concat());
    assert!(command.err.contains("--shared=never"), "{}", command.err);
    assert!(!file.exists());
    with(&[&["--shared=auto"], &clock[..], &["--", "true"]].concat()).good().says(&["wrote "]);
    assert!(file.exists());
    let missing_socket = folder.path("missing");
    let start = record(&file, [&["--shared=always", "-a"], &clock[..], &["--", "true"]].concat());
    let ran = start.env("PMUX_SOCKET", &missing_socket).run();
    assert!(ran.err.contains("no sharing service") && !ran.status.success(), "{}", ran.err);
}
