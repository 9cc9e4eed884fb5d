//! What reading a recording costs, beside `perf`: `cargo bench -p pmux-cli --bench report`.
//!
//! The recording is made here by `pmux record`: system calls and page faults of the whole machine with call chains, about a million of
//! them. Each round runs `pmux report` and `perf report --stdio` one after the other, then `pmux script` and `perf script`; *cold* is
//! with the caches of files dropped before (only root can do that). What is shown are medians of the elapsed time and of the CPU time, the
//! largest memory, and ratios. With `--test` (or `PMUX_BENCH_SMALL=1`) everything runs once and small, so that it cannot rot.
#![allow(clippy::unwrap_used, missing_docs)]

use pmux::{Command, Session};
use std::path::Path;
use std::time::Instant;

#[derive(Clone, Copy, PartialEq)]
enum Cache {
    Warm,
    Cold,
}

#[derive(Clone, Copy)]
struct Cost {
    elapsed_ms: f64,
    cpu_ms: f64,
    memory_mib: f64,
}

fn median(costs: &[Cost], of: fn(&Cost) -> f64) -> f64 {
    let mut values: Vec<f64> = costs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Bench {
    session: Session,
    small: bool,
    file: String,
}

impl Bench {
    fn run(&self, program: &str, cache: Cache) -> Cost {
        if cache == Cache::Cold {
            let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
        }
        let line = format!("exec {program} -i {} >/dev/null 2>&1", self.file);
        let begin = Instant::now();
        let command = Command::hold(["sh", "-c", &line]).unwrap();
        let exited = command.release(&[]).unwrap().wait(&self.session).unwrap();
        let elapsed_ms = begin.elapsed().as_secs_f64() * 1e3;
        assert!(exited.status.success(), "`{line}` failed: {}", exited.status);
        let cpu_ms = (exited.usage.user + exited.usage.system).as_secs_f64() * 1e3;
        Cost { elapsed_ms, cpu_ms, memory_mib: exited.usage.max_rss_kib as f64 / 1024.0 }
    }

    fn compare(&self, what: &str, cache: Cache, perf: &str, pmux: &str) {
        let rounds = if self.small { 1 } else { 3 };
        let mut costs = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (program, costs) in [perf, pmux].iter().zip(&mut costs) {
                costs.push(self.run(program, cache));
            }
        }
        println!("\n{what}, {} ({rounds} rounds)", if cache == Cache::Cold { "cold" } else { "warm" });
        println!("  {:>11}  {:>9}  {:>7}", "elapsed ms", "CPU ms", "MiB");
        for (name, costs) in ["perf", "pmux"].iter().zip(&costs) {
            println!(
                "  {:11.0}  {:9.0}  {:7.1}  {name}",
                median(costs, |cost| cost.elapsed_ms),
                median(costs, |cost| cost.cpu_ms),
                median(costs, |cost| cost.memory_mib),
            );
        }
        let times = |of: fn(&Cost) -> f64| median(&costs[0], of) / median(&costs[1], of).max(0.001);
        println!(
            "  {:11.1}  {:9.1}  {:7.1}  times less",
            times(|cost| cost.elapsed_ms),
            times(|cost| cost.cpu_ms),
            times(|cost| cost.memory_mib)
        );
    }
}

fn main() {
    let small = std::env::args().any(|arg| arg == "--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some();
    let session = Session::new().unwrap();
    let pmux = env!("CARGO_BIN_EXE_pmux");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bench.data").to_str().unwrap().to_owned();
    let run = |line: &str| {
        let command = Command::hold(["sh", "-c", line]).unwrap();
        command.release(&[]).unwrap().wait(&session).unwrap().status.success()
    };
    if !run("perf --version >/dev/null 2>&1") || !Path::new("/sys/kernel/tracing/events/raw_syscalls").exists() {
        println!("skipped: needs perf and tracefs");
        return;
    }
    let (most, load) = if small {
        ("2M", "ls -lR /usr/share/doc")
    } else {
        ("220M", "while :; do ls -lR /usr/share; find /usr -newer /; done")
    };
    let line = format!(
        "{pmux} record -q -a -g -c 1 -m 16M -e raw_syscalls:sys_enter,page-faults --max-size {most} -o {file} -- sh -c '{load}' >/dev/null 2>&1; test -s {file}"
    );
    if !run(&line) {
        println!("skipped: needs the right to record the whole machine");
        return;
    }
    let bytes = std::fs::metadata(&file).unwrap().len();
    println!("the recording has {:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let bench = Bench { session, small, file };
    let caches: &[Cache] = if small { &[Cache::Warm] } else { &[Cache::Warm, Cache::Cold] };
    for &cache in caches {
        bench.compare("report", cache, "perf report --stdio", &format!("{pmux} report --stdio"));
        bench.compare("script", cache, "perf script", &format!("{pmux} script"));
    }
}
