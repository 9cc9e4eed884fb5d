//! Waits that events see, where programs in the kernel can't be had: `pmux record --off-cpu` without the rights to load them.

use crate::common::stolen::Stolen;
use crate::common::{PMUX, Start, kernel, paranoid, pmux, program, root, skip_unless, start};
use crate::off_cpu::{self, are_as_long_as_they_were, are_for_what_they_are_made, compiled, unseen_ns, waits};
use std::path::Path;

const NOTE: &str =
    "waits are recorded by context-switches events, which cost more than BPF programs: this user may not load";

/// `pmux record --off-cpu` with the rights to record, but not to load programs.
fn record(words: &[&str], file: &Path) -> Start {
    let rights = ["--bounding-set=-sys_admin,-bpf,-setpcap", "--inh-caps=-sys_admin,-bpf", PMUX, "record", "-m", "8M"];
    let mut record = start("setpriv", rights).args(words).args(["-o"]).args([file]);
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
