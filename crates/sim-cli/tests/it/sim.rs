//! `pmux-sim`, on both machines.

use pmux_testkit::{CommandResult, Running, Start, eventually, lives, needs, signal, start, with_environment};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

fn sim<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Start {
    start(env!("CARGO_BIN_EXE_pmux-sim"), arguments)
}

/// Whether performance events can be opened here.
fn kernel() -> bool {
    let there = pmux::Session::with_backend(pmux::BackendChoice::Kernel).is_ok();
    needs("kernel", "performance events", there)
}

/// What counts pages, on any machine.
const GOOD: &str = "task A\nopen f = page-faults on A inherit\ntouch A 20 pages\nfork A as C\ntouch C 5 pages\n\
                    expect f.count == truth\nexpect f.count == 25\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn on_kernel(file: &Path) -> Start {
    sim(["--on", "kernel"]).args([file]).env("PMUX_REQUIRE", "").env("PMUX_TEST_HOTPLUG", "")
}

/// The workers of a runner.
fn workers(mark: &str) -> Vec<i32> {
    let is_worker = |pid: &i32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|&byte| byte == 0).any(|word| word == b"sim-worker")
    };
    with_environment(mark).into_iter().filter(is_worker).collect()
}

/// The time that a process has spent in user mode, in ticks of the clock.
fn user_ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    fields.split(' ').nth(11).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

/// A scenario that would run for ten minutes, and the worker that runs it.
///
/// The state of a worker does not say that it has come to `run`: it is also running while it forks. Its time in user mode does:
/// no statement before spends any to speak of.
fn long_run(folder: &Folder, mark: &str) -> (Running, i32) {
    let text = "task A\nfork A as C\nopen t = task-clock on A inherit\nrun A 600s\nexpect t.count > 0\n";
    let file = folder.file("long.scn", text);
    let (name, value) = mark.split_once('=').unwrap();
    let running = on_kernel(&file).env(name, value).group().spawn();
    let first = eventually("both tasks are there, and one runs", || {
        let all = workers(mark);
        (all.len() == 2).then(|| all.into_iter().find(|&pid| user_ticks(pid) >= 20)).flatten()
    });
    (running, first)
}

#[test]
fn one_file_passes_on_both_machines() {
    let folder = Folder::new();
    let file = folder.file("good.scn", GOOD);
    let ran = sim(["--no-timeline"]).args([&file]).run().good();
    assert_eq!(ran.text(), "passed\n");
    if kernel() {
        let ran = on_kernel(&file).run().good();
        assert_eq!(ran.text(), "passed\n");
        let ran = on_kernel(&file).args(["--timeline"]).run().good();
        assert!(ran.text().contains("touch A 20 pages") && ran.text().ends_with("passed\n"), "{}", ran.text());
    }
}

#[test]
fn a_timeline_is_the_same_in_json() {
    let folder = Folder::new();
    let text = "machine cpus=1 counters=1\ntask A\nopen e = cycles on A\nfault program 1\nrun A 2ms\nfault none\n";
    let file = folder.file("refused.scn", &format!("{text}run A 1ms\n"));
    let plain = sim([""; 0]).args([&file]).run().good().text();
    assert!(plain.contains("! refused on cpu0: no counter for e\n"), "{plain}");
    let ran = sim(["-j"]).args([&file]).run().good();
    let document: serde_json::Value = serde_json::from_slice(&ran.out).unwrap();
    let timeline = document["scenarios"][0]["timeline"].as_str().unwrap();
    assert_eq!(format!("{timeline}passed\n"), plain);
}

/// What a kernel is silent about fails on it as on the simulator.
#[test]
fn a_cpu_that_is_there_can_not_be_brought_back() {
    let folder = Folder::new();
    let text = "requires: cpus=2, root, hotplug\ntask A\nonline cpu1 fails EINVAL\n";
    let file = folder.file("online.scn", text);
    sim(["--no-timeline"]).args([&file]).run().good();
    if kernel() {
        let ran = on_kernel(&file).env("PMUX_TEST_HOTPLUG", "1").run().good();
        assert!(ran.text() == "passed\n" || ran.text().starts_with("skipped: needs"), "{}", ran.text());
    }
}

#[test]
fn several_files_have_a_line_each_and_a_sum() {
    let folder = Folder::new();
    folder.file("a.scn", GOOD);
    folder.file("b.scn", "sim only: a test\ntask A\n");
    folder.file("c.txt", "no scenario");
    folder.file("d.scn", "requires: cpus=1000\ntask A\n");
    if !kernel() {
        return;
    }
    let ran = on_kernel(folder.path()).run().good();
    let lines: Vec<String> = ran.text().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].ends_with("a.scn: passed"));
    assert!(lines[1].ends_with("b.scn: sim only: a test"));
    assert!(lines[2].ends_with("d.scn: skipped: needs 1000 CPUs online"));
    assert_eq!(lines[3], "1 passed, 0 failed, 1 skipped, 1 for the simulator only");
}

#[test]
fn what_is_missing_is_a_failure_where_it_is_required() {
    if !kernel() {
        return;
    }
    let folder = Folder::new();
    let file = folder.file("needs.scn", "requires: cpus=1000\ntask A\n");
    assert_eq!(on_kernel(&file).run().good().text(), "skipped: needs 1000 CPUs online\n");
    let ran = on_kernel(&file).env("PMUX_REQUIRE", "kernel,cpus").run();
    ran.bad(1, &["needs.scn: it needs 1000 CPUs online, which PMUX_REQUIRE says"]);
}

#[test]
fn a_misspelled_statement_is_shown_in_its_line() {
    let folder = Folder::new();
    let file = folder.file("slip.scn", "task A\nrnu A 10ms\n");
    for on in ["sim", "kernel"] {
        let ran = sim(["--on", on]).args([&file]).run();
        let ran = ran.bad(125, &["slip.scn:2:1: expected a statement, found `rnu`", "^^^", "did you mean `run`?"]);
        assert!(ran.text().contains("failed"));
    }
}

#[test]
fn files_that_are_not_there_or_empty() {
    let folder = Folder::new();
    let missing = folder.path().join("missing.scn");
    sim([""; 0]).args([&missing]).run().bad(125, &["missing.scn: there is no such file"]);
    sim([""; 0]).args([folder.path()]).run().bad(125, &["there is no scenario (*.scn) in this folder"]);
    sim([""; 0]).run().bad(125, &["FILE"]);
    let empty = folder.file("empty.scn", "");
    sim([""; 0]).args([&empty]).run().good();
    if kernel() {
        assert_eq!(on_kernel(&empty).run().good().text(), "passed\n");
    }
    sim(["--on", "kernel", "--seed", "3"]).args([&empty]).run().bad(125, &["--seed is for the simulated"]);
}

fn failing(folder: &Folder) -> PathBuf {
    let text = "task A\nopen f = page-faults on A\ntouch A 3 pages; expect f.count == 4\nexpect f.count > 5\n";
    folder.file("fails.scn", text)
}

#[test]
fn a_failed_expectation_says_where_and_what() {
    let folder = Folder::new();
    let file = failing(&folder);
    let says = |ran: CommandResult| {
        ran.bad(
            1,
            &[
                "fails.scn:3:18: expect f.count == 4",
                "expected f.count == 4, but f.count is 3",
                "fails.scn:4:1: expect f.count > 5",
            ],
        );
    };
    says(sim([""; 0]).args([&file]).run());
    if kernel() {
        says(on_kernel(&file).run());
    }
}

#[test]
fn a_statement_that_fails_ends_its_scenario() {
    if !kernel() {
        return;
    }
    let folder = Folder::new();
    let file = folder.file("x.scn", "task A\nopen f = page-faults on A fails ENOSPC\nexpect lost == 7\n");
    let ran = on_kernel(&file).run().bad(1, &["x.scn:2:1:", "expected ENOSPC, but it succeeded"]);
    ran.never_says(&["lost == 7"]);
}

#[test]
fn json_tells_all_of_it() {
    let folder = Folder::new();
    let (good, bad) = (folder.file("good.scn", GOOD), failing(&folder));
    let ran = sim(["-j"]).args([&good, &bad]).run();
    assert_eq!(ran.code(), 1);
    let document: serde_json::Value = serde_json::from_str(&ran.text()).unwrap();
    assert_eq!((&document["passed"], &document["failed"]), (&1.into(), &1.into()));
    assert_eq!(document["scenarios"][0]["result"], "passed");
    assert_eq!(document["scenarios"][1]["failures"][0]["line"], 3);
    assert_eq!(document["scenarios"][1]["failures"][0]["column"], 18);
}

#[test]
fn a_task_that_is_killed_is_reported_and_none_is_left() {
    if !kernel() {
        return;
    }
    let folder = Folder::new();
    let mark = format!("PMUX_TEST_SIM_KILL={}", std::process::id());
    let (running, worker) = long_run(&folder, &mark);
    signal(&worker.to_string(), "KILL");
    running.wait().bad(1, &["long.scn:4:1: run A 600s", "task A: it was killed by signal 9"]);
    assert!(!lives(worker));
    assert!(workers(&mark).is_empty());
}

#[test]
fn signals_leave_no_task_behind() {
    if !kernel() {
        return;
    }
    let folder = Folder::new();
    for (name, code) in [("INT", 130), ("TERM", 143), ("KILL", 137)] {
        let mark = format!("PMUX_TEST_SIM_{name}={}", std::process::id());
        let (running, _) = long_run(&folder, &mark);
        running.signal(name);
        assert_eq!(running.wait().code(), code);
        eventually("all have gone", || workers(&mark).is_empty().then_some(()));
    }
}

#[test]
fn two_at_once_do_not_meet() {
    if !kernel() {
        return;
    }
    let folder = Folder::new();
    let text = "requires: breakpoints\ntask A\nopen b = mem:0x1000/8:w on A\naccess A 0x1000 write 500 times\n\
                run A 20ms\nexpect b.count == truth\n";
    let files = [folder.file("good.scn", GOOD), folder.file("b.scn", text)];
    let all: Vec<_> = files.iter().chain(&files).map(|file| on_kernel(file).spawn()).collect();
    for running in all {
        running.wait().good();
    }
}

#[test]
fn a_worker_is_nothing_for_users() {
    sim(["sim-worker"]).run().bad(125, &["only scenarios start workers"]);
    sim(["sim-worker", "1", "data", "0"]).run().bad(125, &["only scenarios start workers"]);
}
