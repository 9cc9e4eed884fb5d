//! Waits that events see, where programs in the kernel can't be had: `pmux record --off-cpu` without the rights to load them.

use crate::common::service::Service;
use crate::common::stolen::Stolen;
use crate::common::{PMUX, Start, eventually, kernel, new_file, paranoid, pmux, program, root, skip_unless, start};
use crate::off_cpu::{self, are_as_long_as_they_were, are_for_what_they_are_made, compiled, unseen_ns, waits};
use crate::top::Lines;
use serde_json::Value;
use std::path::Path;

const NOTE: &str =
    "waits are recorded by context-switches events, which cost more than BPF programs: this user may not load";

/// What has the rights to record, but not to load programs.
const NO_PROGRAMS: [&str; 4] =
    ["setpriv", "--bounding-set=-sys_admin,-bpf,-setpcap", "--inh-caps=-sys_admin,-bpf", PMUX];

/// `pmux record --off-cpu` with these rights.
fn record(words: &[&str], file: &Path) -> Start {
    let [program, rights @ ..] = NO_PROGRAMS;
    let mut record = start(program, rights).args(["record", "-m", "8M"]).args(words).args(["-o"]).args([file]);
    record.command.current_dir(file.parent().unwrap());
    record
}

#[test]
fn waits_are_as_long_as_the_program_says() {
    skip_unless!(kernel() && root() && program("setpriv"));
    let Some((_dir, example, file)) = compiled("all.data") else { return };
    let before = Stolen::now();
    let ran = record(&["--off-cpu=0"], &file).args(["--", example.to_str().unwrap(), "all"]).run().good();
    assert!(ran.err.contains(NOTE), "{}", ran.err);
    let (stolen, seen) = (before.since_ns(), waits(&file));
    are_as_long_as_they_were(&seen, &ran, stolen, 1_000);
    are_for_what_they_are_made(&seen);
    // Of threads, and not of interrupts, it is known what they woke.
    let wakers = pmux(["report", "--wakers", "-j", "-i"]).args([&file]).run().good().text();
    assert!(wakers.contains("\"pong\"") && wakers.contains("\"ping\""), "{wakers}");
    // Short ones are sums of their threads, which have the names that they gave themselves last.
    let ran = record(&["--off-cpu=1h"], &file).args(["--", example.to_str().unwrap(), "all"]).run().good();
    let sums = waits(&file);
    assert!(sums["done"].keys().all(|kind| kind == "[wait]" || kind == "[run queue]"), "{sums:?}");
    let waited: u64 = off_cpu::truths(&ran.text()).values().map(|of| of.wall_ns - of.cpu_ns).sum();
    assert!(sums["done"].values().sum::<u64>() >= waited / 2, "{sums:?} of {waited}");
}

/// Where there is no room for all waits, those that are not written are sums: no time is missing, and it is said.
#[test]
fn a_storm_of_switches_loses_no_time() {
    let Some((sync_dir, example, file)) = off_cpu::example("storm.data") else { return };
    // Nothing takes out of the ring what comes, for a while.
    let line = format!("kill -STOP $PPID; {} all; kill -CONT $PPID", example.display());
    let mut record = pmux(["record", "--off-cpu=0", "-m", "4K", "-o"]).args([&file]).args(["--", "sh", "-c", &line]);
    record.command.current_dir(sync_dir.path(""));
    let before = Stolen::now();
    let ran = record.run().good();
    let told = pmux(["report", "--wall", "-i"]).args([&file]).run().good();
    assert!(told.err.contains("were lost while recording"), "{}", told.err);
    let (truths, seen) = (off_cpu::truths(&ran.text()), waits(&file));
    let waited = |of: &off_cpu::Truth| of.wall_ns - of.cpu_ns;
    let (all, most): (u64, u64) = (
        truths.values().map(waited).sum(),
        truths.values().map(|of| of.wall_ns / 200 + 2_000_000 + 1_000 * of.switches).sum(),
    );
    // Threads of which sums are told have the names that they gave themselves last.
    let sums: u64 = seen.iter().filter(|(name, _)| *name != "sh").flat_map(|(_, kinds)| kinds.values()).sum();
    let allowed = most + before.since_ns() + unseen_ns(&ran);
    assert!(sums + allowed >= all && sums < 2 * all, "{sums} of {all}, less {allowed}: {seen:?}");
}

#[test]
fn what_hangs_and_what_begins_late_is_seen() {
    skip_unless!(kernel() && root() && program("setpriv"));
    let Some((sync_dir, example, file)) = compiled("hang.data") else { return };
    let hangs = off_cpu::hanging(&example);
    let pid = hangs.pid().to_string();
    record(&["--off-cpu", "-p", &pid], &file).args(["--", "sleep", "0.5"]).run().good();
    let told = off_cpu::report(&file, &["--wall", "-s", "tid"]);
    let rows = told["events"][0]["rows"].as_array().unwrap();
    let of: Vec<u64> = rows.iter().filter_map(|row| row["self"]["period"].as_u64()).collect();
    assert!(of.len() == 2 && of[0] == of[1] && of[0] >= 500_000_000, "{told}");
    // On all CPUs: who comes and goes.
    let turns = start("sh", ["-c", "while :; do sleep 0.05; done"]).spawn();
    let all = sync_dir.path("all.data");
    record(&["--off-cpu", "-a"], &all).args(["--", "sleep", "0.5"]).run().good();
    let told = off_cpu::report(&all, &["--wall", "-s", "tid,symbol"]);
    let rows = told["events"][0]["rows"].as_array().unwrap().iter();
    let kinds: Vec<&str> = rows
        .filter(|row| row["tid"] == turns.pid())
        .filter_map(|row| row["symbol"].as_str().filter(|symbol| symbol.starts_with('[')))
        .collect();
    assert!(kinds.contains(&"[child]"), "{kinds:?}");
    // Nor can it be seen without any right.
    let words = ["--bounding-set=-all", "--inh-caps=-all", PMUX, "record", "--off-cpu", "-e", "cpu-clock:u", "-o"];
    let ran = start("setpriv", words).args([&file]).args(["--", "true"]).run();
    if paranoid() > 1 {
        assert!(ran.err.contains("; nor by context-switches: ") && !ran.status.success(), "{}", ran.err);
    }
}

/// Samples of clients come through the service, and waits as well, unless the client may have programs of its own.
#[test]
fn waits_are_recorded_beside_the_samples_of_a_service() {
    skip_unless!(program("setpriv"));
    let (Some(service), Some((dir, example, file))) = (Service::of_root(""), compiled("all.data")) else { return };
    let socket = service.socket().display().to_string();
    let [go, done] = ["go", "done"].map(|name| dir.text(name));
    start("mkfifo", [&go, &done]).run().good();
    let line = format!("read x <{go}; {} all >{done}", example.display());
    let lets_go = format!("echo >{go}; cat {done}");
    let own: &[&str] = &[PMUX];
    for rights in [own, &NO_PROGRAMS] {
        let runs = start("sh", ["-c", &line]).spawn();
        let [program, rights @ ..] = rights else { unreachable!() };
        let words = [
            "record",
            "-m",
            "8M",
            "--socket",
            &socket,
            "--off-cpu=0",
            "-F",
            "999",
            "-e",
            "cpu-clock,context-switches",
            "-o",
        ];
        let pid = runs.pid().to_string();
        let target = ["-p", &pid, "--", "sh", "-c", &lets_go];
        let mut record = start(program, rights).args(words).args([&file]).args(target);
        record.command.current_dir(dir.path(""));
        let before = Stolen::now();
        let ran = record.run().good();
        let (stolen, seen) = (before.since_ns(), waits(&file));
        assert!(ran.err.contains("records through the service"), "{}", ran.err);
        let by_service = ran.err.contains("by context-switches events of the service");
        assert_eq!(by_service, !rights.is_empty() || !off_cpu::sees_waits(), "{}", ran.err);
        are_as_long_as_they_were(&seen, &ran, stolen, 1_000);
        are_for_what_they_are_made(&seen);
        // Samples and waits are in one order, and each has its name.
        let script = pmux(["script", "-F", "comm,time,event", "-i"]).args([&file]).run().good();
        let of = |event: &str| script.text().matches(event).count();
        // Of switches there are two events where programs see no waits: Linux 6.18 writes the id of one into both.
        assert!(of("cpu-clock") > 100 && of("context-switches") > 100 && of(":-1") == 0, "{}", script.err);
        let wall = pmux(["report", "--wall", "-i"]).args([&file]).run().good();
        assert!(!wall.err.contains("order"), "{}", wall.err);
        if crate::common::perf() {
            let ran = start("perf", ["script", "-F", "comm,time,event", "-i"]).args([&file]).run().good();
            assert!(!ran.err.contains("order") && !ran.err.contains("timeslice"), "{}", ran.err);
        }
    }
    service.is_empty();
}

/// What hangs is told in each interval, though the kernel writes nothing of it; also where others record what it shares a ring with.
#[test]
fn a_wait_that_goes_on_is_seen_through_a_service() {
    skip_unless!(program("setpriv"));
    let Some(service) = Service::of_root("") else { return };
    let sleeps = start("sleep", ["1000"]).spawn();
    let turns = start("sh", ["-c", "while :; do sleep 0.01; done"]).spawn();
    let pids = format!("{},{}", sleeps.pid(), turns.pid());
    let socket = service.socket().display().to_string();
    let mut lines = Lines::by(&NO_PROGRAMS, &["--socket", &socket, "--off-cpu", "-s", "thread", "-p", &pids]);
    let mut is_whole = || {
        let of_sleep = |line: &Value| {
            let rows = line["waits"]["rows"].as_array()?.clone();
            rows.into_iter().find(|row| row["tid"] == sleeps.pid())
        };
        let (line, row) = eventually("its wait", || {
            let line = lines.next()?;
            Some((line.clone(), of_sleep(&line)?))
        });
        assert_eq!((&line["through_service"], &row["comm"]), (&Value::from(true), &Value::from("sleep")));
        let window_ns = line["seconds"].as_f64().unwrap() * 1e9;
        assert!((row["ns"].as_u64().unwrap() as f64 - window_ns).abs() < 1.0, "{line}");
    };
    (0..3).for_each(|_| is_whole());
    // Linux 6.18 writes the id of the last event into the samples of all that count the same.
    let (_dir, file) = new_file("other.data");
    let _other = pmux(["record", "-q", "-e", "context-switches", "-c", "1", "-p", &pids, "-o"]).args([&file]).spawn();
    eventually("it records", || (std::fs::metadata(&file).ok()?.len() > 10_000).then_some(()));
    (0..5).for_each(|_| is_whole());
}

/// A service that is replaced sends waits again; what was not seen meanwhile is no wait, nor is it while the service is away.
#[test]
fn waits_go_on_where_a_service_comes_back() {
    skip_unless!(program("setpriv"));
    for comes_back in [true, false] {
        let (Some(mut service), (dir, file)) = (Service::of_root(""), new_file("again.data")) else { return };
        let line = format!("while :; do sleep 0.01; echo >>{}; done", dir.text("rounds"));
        let turns: Vec<_> = (0..8).map(|_| start("sh", ["-c", &line]).spawn()).collect();
        let pids = turns.iter().map(|shell| shell.pid().to_string()).collect::<Vec<_>>().join(",");
        let (socket, go) = (service.socket().display().to_string(), dir.text("go"));
        start("mkfifo", [&go]).run().good();
        let target = ["--socket", &socket, "--off-cpu", "-p", &pids, "--", "sh", "-c", ": >here; cat go"];
        let recording = record(&target[..5], &file).args(&target[5..]).spawn();
        eventually("it records", || dir.path("here").exists().then_some(()));
        let rounds = || std::fs::metadata(dir.path("rounds")).map_or(0, |rounds| rounds.len());
        let many_rounds = || {
            let before = rounds();
            eventually("many waits", || (rounds() > before + 200).then_some(()));
        };
        many_rounds();
        service.kill();
        start("sleep", [&(GAP_NS / 1_000_000_000).to_string()]).run().good();
        if comes_back {
            service.start_again();
            eventually("both are asked for", || (service.status()["records"]["subscriptions"] == 2).then_some(()));
        }
        let since_s = pmux_linux::now_ns() as f64 / 1e9;
        (0..2).for_each(|_| many_rounds());
        start("sh", ["-c", &format!(": >{go}")]).run().good();
        let ran = recording.wait().good();
        assert!(ran.err.contains("the service was away: no samples were recorded for"), "{}", ran.err);
        let script = pmux(["script", "-F", "time,period,event", "-i"]).args([&file]).run().good().text();
        let waits: Vec<(f64, u64)> = script
            .lines()
            .filter(|line| line.contains("offcpu-time"))
            .map(|line| {
                let mut words = line.split_whitespace();
                let mut word = || words.next().unwrap().trim_end_matches(':');
                (word().parse().unwrap(), word().parse().unwrap())
            })
            .collect();
        let late = waits.iter().filter(|(at_s, _)| *at_s > since_s).count();
        assert!(waits.len() > 100 && (late > 0) == comes_back, "{late} of {}", waits.len());
        let longest = waits.iter().map(|(_, ns)| *ns).max();
        assert!(longest < Some(GAP_NS), "each waits for 10 ms: {longest:?}, {comes_back}: {}", ran.err);
    }
}

/// How long the service is away.
const GAP_NS: u64 = 2_000_000_000;
