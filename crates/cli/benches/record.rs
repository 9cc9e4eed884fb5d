//! What `pmux record` costs, beside what `perf record` costs, in the same run: `cargo bench -p pmux-cli --bench record`.
//!
//! Each round both record the same load one after the other, with rings of the same size, on the whole machine: stacks at 4999 Hz
//! (or as often as the kernel allows now), and a storm of tracepoints under a loop of system calls. What is shown are medians of the
//! recorder's own CPU time (user and system, that of the `sleep` it waits for included), lost records, and bytes in the file for
//! each sample. How deep stacks are is what others on the machine do at that moment, so what call chains take stands apart. Last, what
//! a switch between two threads takes longer that play ping-pong on one CPU while they are recorded, as `perf bench sched pipe`
//! measures it, and what many processes take longer that wait for each other (`perf bench sched messaging`): the least of some
//! rounds. With `--test` (or `PMUX_BENCH_SMALL=1`) everything runs once and small, so that it cannot rot.
#![allow(clippy::unwrap_used, missing_docs)]

mod measure;

use linux_perf_data::linux_perf_event_reader::EventRecord;
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use measure::{is_small, median, run};
use pmux::{Command, Session};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// One recording.
#[derive(Clone, Copy, Default)]
struct Cost {
    cpu_ms: f64,
    samples: f64,
    lost: f64,
    /// For each sample: in its call chain, and everything else that is in the file.
    chain_bytes: f64,
    other_bytes: f64,
}

/// What a file holds: samples, how many records it says that were lost, and the bytes of call chains.
fn read(file: &Path) -> (u64, u64, u64) {
    let reader = PerfFileReader::parse_file(BufReader::new(File::open(file).unwrap())).unwrap();
    let PerfFileReader { mut perf_file, mut record_iter } = reader;
    let (mut samples, mut lost, mut lost_samples, mut chain_bytes) = (0, 0, 0, 0);
    while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
        let PerfFileRecord::EventRecord { record, .. } = record else { continue };
        match record.record_type.0 {
            9 => {
                samples += 1;
                if let EventRecord::Sample(sample) = record.parse().unwrap() {
                    chain_bytes += sample.callchain.map_or(0, |chain| 8 * chain.len() as u64);
                }
            }
            2 => {
                if let EventRecord::Lost(record) = record.parse().unwrap() {
                    lost += record.count;
                }
            }
            // LOST_SAMPLES, written at the end from the counts of the events.
            13 => {
                let count = record.data.as_slice().first_chunk::<8>().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
                lost_samples += count;
            }
            _ => {}
        }
    }
    (samples, lost.max(lost_samples), chain_bytes)
}

struct Bench {
    session: Session,
    small: bool,
    folder: tempfile::TempDir,
}

impl Bench {
    fn record(&self, program: &[&str], options: &str) -> Cost {
        let file = self.folder.path().join("bench.data");
        let _ = std::fs::remove_file(&file);
        let seconds = if self.small { "0.2" } else { "3" };
        let line = format!("{} {options} -o {} -- sleep {seconds}", program.join(" "), file.display());
        let cpu_ms = run(&self.session, &line).cpu_ms;
        let (samples, lost, chain_bytes) = read(&file);
        let other_bytes = std::fs::metadata(&file).unwrap().len() - chain_bytes;
        let each = |bytes: u64| bytes as f64 / samples.max(1) as f64;
        Cost {
            cpu_ms,
            samples: samples as f64,
            lost: lost as f64,
            chain_bytes: each(chain_bytes),
            other_bytes: each(other_bytes),
        }
    }

    fn compare(&self, what: &str, load: &str, options: &str) {
        let rounds = if self.small { 1 } else { 5 };
        let programs: [&[&str]; 2] = [&["perf", "record", "-q"], &[env!("CARGO_BIN_EXE_pmux"), "record", "-q"]];
        let mut costs = [Vec::new(), Vec::new()];
        let mut load = Command::hold(["sh", "-c", load]).unwrap().release(&[]).unwrap();
        for _ in 0..rounds {
            for (program, costs) in programs.iter().zip(&mut costs) {
                costs.push(self.record(program, options));
            }
        }
        let _ = load.kill(9);
        let _ = load.wait(&self.session);
        println!("\n{what}: {options} ({rounds} rounds, medians)");
        println!("  {:>9}  {:>10}  {:>9}  {:>13}  {:>9}", "cpu ms", "samples", "lost", "bytes/sample", "in chains");
        let mut cpu = Vec::new();
        for (name, costs) in ["perf", "pmux"].into_iter().zip(&costs) {
            let samples = median(costs, |cost| cost.samples);
            cpu.push(median(costs, |cost| cost.cpu_ms));
            println!(
                "  {:9.1}  {samples:10.0}  {:9.0}  {:13.1}  {:9.1}  {name}",
                cpu[cpu.len() - 1],
                median(costs, |cost| cost.lost),
                median(costs, |cost| cost.other_bytes),
                median(costs, |cost| cost.chain_bytes),
            );
        }
        println!("  {:9.2}  of perf's CPU time", cpu[1] / cpu[0].max(0.001));
    }

    /// What `perf bench sched` says under recorders, the first of which is none: the least of the rounds; `None` where it fails.
    fn sched(&self, recorders: &[&str], rounds: usize, words: &str, unit: &str) -> Option<Vec<f64>> {
        let file = self.folder.path().join("sched.data");
        let file = file.to_str().unwrap();
        let mut least = vec![f64::MAX; recorders.len()];
        for _ in 0..rounds {
            for (recorder, least) in recorders.iter().zip(&mut least) {
                let recorder = recorder.replace("pmux", env!("CARGO_BIN_EXE_pmux"));
                let to = if recorder.is_empty() { String::new() } else { format!("{recorder} -o {file} --") };
                let line = format!("{to} {words}");
                let mut words = line.split_whitespace();
                let ran = std::process::Command::new(words.next()?).args(words).output().unwrap();
                let text = String::from_utf8_lossy(&ran.stdout).into_owned();
                let number =
                    |line: &str| line.trim().strip_suffix(unit)?.split_whitespace().last()?.parse::<f64>().ok();
                let Some(number) = text.lines().find_map(number) else {
                    println!("  `{line}` failed: {}", String::from_utf8_lossy(&ran.stderr));
                    return None;
                };
                *least = least.min(number);
            }
        }
        Some(least)
    }

    /// What a switch takes under recorders, beside none.
    fn switches(&self) {
        let (rounds, operations) = if self.small { (1, "2000") } else { (7, "200000") };
        let recorders = [
            "",
            "perf record -q -g -e cpu-clock -F 99",
            "pmux record -q -g -e cpu-clock -F 99",
            "perf record -q -g -e sched:sched_switch",
            "pmux record -q -g -e sched:sched_switch",
            "pmux record -q --off-cpu -F 99",
            "pmux record -q --off-cpu=0 -F 99",
            "pmux record -q --off-cpu --call-graph dwarf -F 99",
            // Without the right to load programs.
            "setpriv --bounding-set=-sys_admin,-bpf --inh-caps=-sys_admin,-bpf pmux record -q --off-cpu -F 99",
        ];
        let words = format!("taskset 1 perf bench sched pipe -T -l {operations}");
        let Some(least) = self.sched(&recorders, rounds, &words, "usecs/op") else { return };
        println!("\na switch between two threads on one CPU ({rounds} rounds, the least)");
        for (recorder, us) in recorders.iter().zip(&least) {
            // An operation is two switches.
            println!("  {:7.0} ns  {:+7.0} ns  {}", us * 500.0, (us - least[0]) * 500.0, name(recorder));
        }
    }

    /// How much longer many processes take that wait for each other all the time.
    fn crowd(&self) {
        let (rounds, words) = if self.small { (1, "-g 1 -l 10") } else { (11, "-g 10 -l 500") };
        let recorders = [
            "",
            "perf record -q -e cpu-clock -F 99",
            "pmux record -q -e cpu-clock -F 99",
            "perf record -q -g -e sched:sched_switch",
            "pmux record -q --off-cpu=1h -F 99",
            "pmux record -q --off-cpu -F 99",
        ];
        let words = format!("perf bench sched messaging {words}");
        let Some(least) = self.sched(&recorders, rounds, &words, "[sec]") else { return };
        println!("\n{words} ({rounds} rounds, the least)");
        for (recorder, seconds) in recorders.iter().zip(&least) {
            println!("  {seconds:7.3} s  {:+6.1} %  {}", (seconds / least[0] - 1.0) * 100.0, name(recorder));
        }
    }
}

const fn name(recorder: &str) -> &str {
    if recorder.is_empty() { "not recorded" } else { recorder }
}

fn main() {
    let small = is_small();
    let works = |words: &[&str]| {
        std::process::Command::new(words[0]).args(&words[1..]).output().is_ok_and(|output| output.status.success())
    };
    let folder = tempfile::tempdir().unwrap();
    let probe = folder.path().join("probe.data");
    if !works(&["perf", "record", "-q", "-a", "-e", "cpu-clock", "-o", probe.to_str().unwrap(), "--", "true"]) {
        println!("skipped: needs perf, and the right to record the whole machine");
        return;
    }
    let bench = Bench { session: Session::new().unwrap(), small, folder };
    // The kernel lowers it by itself when samples take it long.
    let hz = pmux::record::most_samples_per_second().map_or(4999, |most| most.min(4999));
    let stacks = format!("-m 128 -F {hz} -a -g");
    bench.compare("stacks of the whole machine", "exec sh -c 'while :; do :; done'", &stacks);
    if Path::new("/sys/kernel/tracing/events/raw_syscalls").exists() {
        let storm = "exec dd if=/dev/zero of=/dev/null bs=1 2>/dev/null";
        bench.compare("a storm of tracepoints", storm, "-m 1024 -e 'sched:*,raw_syscalls:*' -a");
    }
    bench.switches();
    bench.crowd();
}
