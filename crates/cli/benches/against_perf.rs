//! What pmux costs, beside what perf costs, in the same run: `cargo bench -p pmux-cli --bench against_perf`.
//!
//! Each line runs the bare command, perf and pmux in turn, several rounds, and shows medians. Times drift between
//! machines and hours; the ratios are what to look at. With `--test` (or `PMUX_BENCH_SMALL=1`) everything runs
//! once and small, so that it cannot rot.
#![allow(clippy::unwrap_used, missing_docs)]

mod measure;

use measure::{is_small, median, run};
use pmux::Session;
use std::path::PathBuf;

struct Bench {
    session: Session,
    perf: bool,
    pmux: String,
    small: bool,
}

impl Bench {
    /// Medians of the bare line, of perf around it and of pmux around it.
    fn compare(&self, what: &str, rounds: usize, bare: &str, options: &[&str], pmux_only: &[&str]) -> Vec<[f64; 3]> {
        let rounds = if self.small { 1 } else { rounds };
        let mut lines = vec![bare.to_owned()];
        for options in options {
            if self.perf {
                lines.push(format!("perf stat -o /dev/null {options} {bare}"));
            }
            lines.push(format!("{} stat -o /dev/null {options} {bare}", self.pmux));
        }
        lines.extend(pmux_only.iter().map(|options| format!("{} stat -o /dev/null {options} {bare}", self.pmux)));
        let mut costs = vec![Vec::new(); lines.len()];
        for _ in 0..rounds {
            // In turn, so that a machine that slows down slows all of them.
            for (line, costs) in lines.iter().zip(&mut costs) {
                costs.push(run(&self.session, line));
            }
        }
        println!("\n{what} ({rounds} rounds, medians)");
        println!("  {:>9}  {:>9}  {:>9}  {:>7}  {:>7}", "wall ms", "cpu ms", "peak KiB", "×wall", "×cpu");
        let rows: Vec<_> = costs
            .iter()
            .map(|costs| [median(costs, |c| c.wall_ms), median(costs, |c| c.cpu_ms), median(costs, |c| c.memory_kib)])
            .collect();
        for (line, row) in lines.iter().zip(&rows) {
            let shown: String = line.replace(&self.pmux, "pmux").chars().take(60).collect();
            let ratio = |index: usize| row[index] / rows[0][index].max(0.001);
            let [wall, cpu, rss] = row;
            println!("  {wall:9.2}  {cpu:9.2}  {rss:9.0}  {:7.3}  {:7.3}  {shown}", ratio(0), ratio(1));
        }
        rows
    }
}

fn events(count: usize) -> String {
    // Software events open everywhere, and each is a descriptor of its own.
    let names = ["page-faults", "context-switches", "cpu-migrations", "minor-faults"];
    (0..count).map(|index| names[index % names.len()]).collect::<Vec<_>>().join(",")
}

fn main() {
    let small = is_small();
    let perf = std::process::Command::new("perf").arg("--version").output().is_ok_and(|out| out.status.success());
    if !perf {
        println!("skipped: needs perf (package linux-perf): only pmux is measured");
    }
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_pmux"));
    let bench = Bench { session: Session::new().unwrap(), perf, pmux: binary.to_string_lossy().into_owned(), small };
    println!("pmux binary: {:.2} MiB", std::fs::metadata(&binary).unwrap().len() as f64 / f64::from(1 << 20));

    let rows = bench.compare("a short command", 41, "true", &[""], &[]);
    if let [bare, perf, pmux] = rows[..] {
        println!(
            "  added to true: perf {:.2} ms, pmux {:.2} ms: {:.2} of perf's",
            perf[0] - bare[0],
            pmux[0] - bare[0],
            (pmux[0] - bare[0]) / (perf[0] - bare[0])
        );
    }

    let children = if small { 20 } else { 5000 };
    let script = format!("sh -c 'i=0; while [ $i -lt {children} ]; do /bin/true; i=$((i+1)); done'");
    bench.compare(
        &format!("a command with {children} children"),
        5,
        &script,
        &[""],
        &["--tree", "--tree -e page-faults,task-clock"],
    );

    let many = events(if small { 4 } else { 64 });
    bench.compare("64 events on every CPU: opening", 15, "true", &[&format!("-a -e {many}")], &[]);
    let seconds = if small { 0.2 } else { 3.0 };
    bench.compare(
        &format!("64 events on every CPU: reading every 100 ms for {seconds} s"),
        3,
        &format!("sleep {seconds}"),
        &[&format!("-a -I 100 -e {many}")],
        &[],
    );
}
