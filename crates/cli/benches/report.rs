//! What reading a recording costs, beside `perf`: `cargo bench -p pmux-cli --bench report`.
//!
//! The recording is made here by `pmux record`: system calls and page faults of the whole machine with call chains, about a million of
//! them. Each round runs `pmux report` and `perf report --stdio` one after the other, then the same without callers, then `pmux script`
//! and `perf script`; *cold* is with the caches of files dropped before (only root can do that). What is shown are medians of the elapsed
//! time and of the CPU time, the largest memory, and ratios. Then the recording is made five times as long, by what is in it: a gigabyte,
//! of which `pmux report` has to keep no more. With `--test` (or `PMUX_BENCH_SMALL=1`) everything runs once and small, so that it cannot rot.
#![allow(clippy::unwrap_used, missing_docs)]

mod measure;

use measure::{Cost, is_small, median, run};
use pmux::{Command, Session};
use std::io::Write;
use std::path::Path;

#[derive(Clone, Copy, PartialEq)]
enum Cache {
    Warm,
    Cold,
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

struct Bench {
    session: Session,
    small: bool,
    file: String,
}

impl Bench {
    fn run(&self, program: &str, cache: Cache) -> Cost {
        self.run_on(program, &self.file, cache)
    }

    fn run_on(&self, program: &str, file: &str, cache: Cache) -> Cost {
        if cache == Cache::Cold {
            let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
        }
        run(&self.session, &format!("{program} -i {file}"))
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
                median(costs, |cost| cost.wall_ms),
                median(costs, |cost| cost.cpu_ms),
                median(costs, |cost| cost.memory_kib) / 1024.0,
            );
        }
        let times = |of: fn(&Cost) -> f64| median(&costs[0], of) / median(&costs[1], of).max(0.001);
        println!(
            "  {:11.1}  {:9.1}  {:7.1}  times less",
            times(|cost| cost.wall_ms),
            times(|cost| cost.cpu_ms),
            times(|cost| cost.memory_kib)
        );
    }
}

/// A recording of some 15,000 samples that is looked at for the first time: nothing of its programs is kept anywhere.
fn first_look(bench: &Bench, pmux: &str, folder: &Path) {
    let file = folder.join("small.data").to_str().unwrap().to_owned();
    let (hz, load) = match bench.small {
        true => (999, "ls -lR /usr/share/doc | sort | sha256sum"),
        false => (4999, "for i in 1 2 3 4 5 6; do ls -lR /usr/share | sort | sha256sum; done"),
    };
    let bench = Bench { session: bench.session.clone(), file: file.clone(), ..*bench };
    let line = format!("exec {pmux} record -q -g -F {hz} -e cpu-clock -o {file} -- sh -c '{load}' >/dev/null 2>&1");
    let command = Command::hold(["sh", "-c", &line]).unwrap();
    command.release(&[]).unwrap().wait(&bench.session).unwrap();
    println!("\nthe first look at {:.1} MiB", mib(std::fs::metadata(&file).unwrap().len()));
    let nothing_kept = format!("env XDG_CACHE_HOME=/dev/null/none HOME=/dev/null/none {pmux}");
    for what in ["report --stdio", "report --stdio --no-children", "script", "script --no-inline"] {
        bench.compare(what, Cache::Warm, &format!("perf {what}"), &format!("{nothing_kept} {what}"));
    }
}

/// Where a word stands; of what is not there 0.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word))
}

/// Writes a recording that is so many times as long: all its records again and again, each time later. Stacks and programs stay the same.
fn repeat(from: &str, to: &str, times: u64) -> std::io::Result<()> {
    const TIME: u64 = 1 << 2;
    // What comes before the time in a sample (identifier, ip, tid), and from the time to the end of other records (time, id, stream,
    // CPU, identifier): bits of the attribute's `sample_type`.
    const BEFORE: u64 = 1 << 16 | 1 | 1 << 1;
    const BEHIND: u64 = TIME | 1 << 6 | 1 << 9 | 1 << 7 | 1 << 16;
    let mut file = std::fs::read(from)?;
    let (data, length) = (word(&file, 40) as usize, word(&file, 48) as usize);
    let behind = file.split_off(data + length);
    let records = file.split_off(data);
    let format = word(&file, word(&file, 24) as usize + 24);
    assert!(format & TIME != 0);
    let count = |bits: u64| 8 * (format & bits).count_ones() as usize;
    let (mut places, mut at) = (Vec::new(), 0);
    while at < records.len() {
        let head = word(&records, at);
        let (kind, size) = (head as u32, (head >> 48) as usize);
        assert!(size >= 8, "a record of {size} bytes");
        match kind {
            9 => places.push(at + 8 + count(BEFORE)),
            0..64 => places.push(at + size - count(BEHIND)),
            _ => {}
        }
        at += size;
    }
    places.retain(|&place| word(&records, place) > 0);
    let all = places.iter().map(|&place| word(&records, place));
    let span_ns = all.clone().max().unwrap_or(0) - all.min().unwrap_or(0) + 1;
    let more = (times - 1) * length as u64;
    file[48..56].copy_from_slice(&(length as u64 + more).to_ne_bytes());
    let mut out = std::io::BufWriter::new(std::fs::File::create(to)?);
    out.write_all(&file)?;
    let mut records = records;
    for turn in 0..times {
        if turn > 0 {
            for &place in &places {
                let time_ns = word(&records, place) + span_ns;
                records[place..place + 8].copy_from_slice(&time_ns.to_ne_bytes());
            }
        }
        out.write_all(&records)?;
    }
    // The places of the features, which stand behind the records.
    let features: u32 = (0..4).map(|place| word(&file, 72 + 8 * place).count_ones()).sum();
    let (table, rest) = behind.split_at(behind.len().min(16 * features as usize));
    for section in table.chunks_exact(16) {
        out.write_all(&(word(section, 0) + more).to_ne_bytes())?;
        out.write_all(&section[8..])?;
    }
    out.write_all(rest)?;
    out.flush()
}

fn main() {
    let small = is_small();
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
    println!("the recording has {:.1} MiB", mib(bytes));
    run(&format!("{pmux} report --stdio -g none -i {file} 2>/dev/null | grep 'Samples:'"));
    let bench = Bench { session, small, file };
    let caches: &[Cache] = if small { &[Cache::Warm] } else { &[Cache::Warm, Cache::Cold] };
    for &cache in caches {
        bench.compare("report", cache, "perf report --stdio", &format!("{pmux} report --stdio"));
        let flat = "report --stdio --no-children -g none";
        bench.compare("flat report", cache, &format!("perf {flat}"), &format!("{pmux} {flat}"));
        bench.compare("script", cache, "perf script", &format!("{pmux} script"));
    }
    println!("\nmemory of `pmux report` by the length of the recording, MiB");
    let times: &[u64] = if small { &[1, 2] } else { &[1, 5] };
    for &times in times {
        let long = folder.path().join("long.data").to_str().unwrap().to_owned();
        repeat(&bench.file, &long, times).unwrap();
        let bytes = std::fs::metadata(&long).unwrap().len();
        let cost = bench.run_on(&format!("{pmux} report --stdio"), &long, Cache::Warm);
        println!("  {:8.1} MiB  {:7.1}  ({:.0} ms)", mib(bytes), cost.memory_kib / 1024.0, cost.wall_ms);
    }
    first_look(&bench, pmux, folder.path());
    println!("\nothers, of the {:.1} MiB", mib(bytes));
    println!("  {:>11}  {:>9}  {:>7}", "elapsed ms", "CPU ms", "MiB");
    for what in [
        "flame -o /dev/null",
        "convert --to firefox -o /dev/null",
        "convert --to perfetto -o /dev/null",
        "timeline -o /dev/null",
    ] {
        let Cost { wall_ms, cpu_ms, memory_kib } = bench.run(&format!("{pmux} {what}"), Cache::Warm);
        println!("  {wall_ms:11.0}  {cpu_ms:9.0}  {:7.1}  {what}", memory_kib / 1024.0);
    }
}
