//! What breakpoints cost, told by pmux and by perf in the same run: `cargo bench -p pmux-cli --bench breakpoints`.
//!
//! Each line runs `pmux bench breakpoint` and `perf bench breakpoint` in turn, the one first as often as the other, and shows
//! the medians of what they tell and of the ratio of each pair. Then the ledger, beside the list that it is compared with. With
//! `--test` (or `PMUX_BENCH_SMALL=1`) everything runs once and small, so that it cannot rot.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::Value;
use std::fs::File;
use std::process::{Command, Output};

const PMUX: &str = env!("CARGO_BIN_EXE_pmux");

/// Which load, how often it is repeated, and how many pairs are run.
const LOADS: [(&str, u32, usize); 6] = [
    ("thread", 2000, 21),
    ("thread -b 4 -t 64", 30, 31),
    ("thread -b 4 -p 2 -t 64", 30, 31),
    ("thread -b 4 -p 64 -t 64", 30, 21),
    ("enable", 20_000, 21),
    ("enable -p 8", 2000, 21),
];

fn run(program: &str, words: &str) -> Output {
    Command::new(program).args(words.split_whitespace()).output().unwrap()
}

/// Microseconds for an operation; `None` where the program refuses.
fn pmux(load: &str, repeat: u32) -> Option<f64> {
    let output = run(PMUX, &format!("bench breakpoint {load} -r {repeat} -j"));
    if !output.status.success() {
        println!("  pmux: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        return None;
    }
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    found["usecs_per_op"].as_f64()
}

fn perf(load: &str, repeat: u32) -> Option<f64> {
    let output = run("perf", &format!("bench -r {repeat} breakpoint {load}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.trim().strip_suffix(" usecs/op")?.parse().ok())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(load: &str, repeat: u32, pairs: usize) {
    let found: Option<Vec<(f64, f64)>> = (0..pairs)
        .map(|pair| {
            if pair % 2 == 0 {
                let ours = pmux(load, repeat)?;
                Some((ours, perf(load, repeat)?))
            } else {
                let theirs = perf(load, repeat)?;
                Some((pmux(load, repeat)?, theirs))
            }
        })
        .collect();
    let Some(found) = found else {
        println!("  {load}: could not be measured");
        return;
    };
    let ours = median(found.iter().map(|pair| pair.0).collect());
    let theirs = median(found.iter().map(|pair| pair.1).collect());
    let ratio = median(found.iter().map(|(ours, theirs)| ours / theirs).collect());
    println!("  {ours:10.3}  {theirs:10.3}  {ratio:6.3}  {load} -r {repeat} ({pairs} pairs)");
}

fn main() {
    let small = std::env::args().any(|arg| arg == "--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some();
    let kernel = pmux::Session::with_backend(pmux::BackendChoice::Kernel).is_ok();
    let there = Command::new("perf").args(["bench", "breakpoint", "enable"]).output();
    if kernel && there.is_ok_and(|output| output.status.success()) {
        // Tests that take debug registers wait.
        let lock = File::create(std::env::temp_dir().join("pmux-test-breakpoints.lock")).unwrap();
        lock.lock().unwrap();
        println!("usecs/op, medians\n  {:>10}  {:>10}  {:>6}", "pmux", "perf", "ratio");
        for (load, repeat, pairs) in LOADS {
            if small { compare(load, 3, 1) } else { compare(load, repeat, pairs) }
        }
    } else {
        println!("skipped: needs performance events, and perf (package linux-perf) with its benchmark of breakpoints");
    }
    let (cpus, size) = if small { (16, "-b 4 -p 4 -t 8") } else { (256, "-b 4 -p 64 -t 64") };
    let load = format!("thread {size} -r 30 --engine ledger --cpus {cpus} --baseline list");
    println!("\nthe ledger beside a list: {load}");
    let output = run(PMUX, &format!("bench breakpoint {load} -j"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = &found["baseline"];
    let number = |object: &Value, name: &str| object[name].as_f64().unwrap();
    let (ledger, slow) = (number(&found, "usecs_per_op"), number(list, "usecs_per_op"));
    println!(
        "  ledger {ledger:.3} usecs/op, list {slow:.3} usecs/op: {:.0} times slower",
        number(list, "times_slower")
    );
}
