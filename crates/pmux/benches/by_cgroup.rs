//! What counting by cgroup costs at each switch of tasks.
//!
//! `cargo bench -p pmux --bench by_cgroup` prints the table. With `--test`, with `PMUX_BENCH_SMALL` and as `cargo test` runs it,
//! everything is done once, small, so that it can't rot.
//!
//! Two threads on one CPU pass a byte to and fro: each pass is a switch. It is measured with nothing open, with the same events
//! open on all CPUs and read by nobody, with the program, and with 200 cgroups that have events of their own; in turn, because a
//! machine's speed changes from one second to the next. The quickest of each are compared.
#![allow(clippy::unwrap_used)]

use pmux::serving::{ByCgroup, Pattern, Way};
use pmux::{CpuChoice, EventList, Multiplexing, Options, Session, Target};
use std::io::{Read, Write, pipe};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const EVENTS: &str = "page-faults,task-clock";

/// Passes a byte to another thread and back; answers nanoseconds for each switch.
fn switch_ns(cpu: u32, rounds: u32) -> f64 {
    let (mut here, mut there) = (pipe().unwrap(), pipe().unwrap());
    let mut took = Duration::ZERO;
    let partner = std::thread::spawn(move || {
        pmux_linux::affinity::on_cpu(cpu, || {
            let mut byte = [0];
            while there.0.read(&mut byte).is_ok_and(|read| read == 1) {
                if here.1.write_all(&byte).is_err() {
                    return;
                }
            }
        });
    });
    pmux_linux::affinity::on_cpu(cpu, || {
        let mut byte = [7];
        for round in 0..rounds + 10 {
            let began = Instant::now();
            there.1.write_all(&byte).unwrap();
            here.0.read_exact(&mut byte).unwrap();
            // The first ones come before the partner is on its CPU.
            if round >= 10 {
                took += began.elapsed();
            }
        }
    });
    drop(there.1);
    partner.join().unwrap();
    took.as_nanos() as f64 / f64::from(rounds) / 2.0
}

/// Cgroups of this program, removed when dropped.
struct Cgroups(Option<PathBuf>, usize);

impl Cgroups {
    fn make(count: usize) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let root = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| fields[2] == "cgroup2");
        let folder = root.map(|fields| PathBuf::from(fields[1]).join(format!("pmux-bench-{}", std::process::id())));
        let folder = folder.filter(|folder| std::fs::create_dir(folder).is_ok());
        for number in 0..count {
            if let Some(folder) = &folder {
                std::fs::create_dir(folder.join(number.to_string())).unwrap();
            }
        }
        Self(folder, count)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let Some(folder) = &self.0 else { return };
        for number in 0..self.1 {
            let _ = std::fs::remove_dir(folder.join(number.to_string()));
        }
        let _ = std::fs::remove_dir(folder);
    }
}

fn main() {
    let has = |word: &str| std::env::args().any(|arg| arg == word);
    // `cargo bench` says that it is one; `cargo test` says nothing.
    let small =
        has("--test") || !has("--bench") || std::env::var_os("PMUX_BENCH_SMALL").is_some_and(|value| value != "0");
    let session = Session::new().unwrap();
    let (times, rounds, many) = if small { (1, 200, 3) } else { (15, 20_000, 200) };
    let cpu = session.online().last().unwrap();
    let events = EventList::parse(&[EVENTS], session.catalog()).unwrap();
    let cgroups = Cgroups::make(many);
    let Some(folder) = &cgroups.0 else {
        return println!("skipped: needs a cgroup hierarchy of version 2 to write to");
    };
    let pattern = format!("{}/*", folder.file_name().unwrap().to_str().unwrap());
    let patterns = || vec![Pattern::parse(&pattern).unwrap()];
    let by_program = || match ByCgroup::open(&session, &events, patterns(), many, Multiplexing::Kernel) {
        Ok(counts) if counts.way() == Way::Program => Ok(counts),
        Ok(counts) => Err(counts.way().to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(why) = by_program() {
        return println!("skipped: needs BPF programs: {why}");
    }
    let cpus = Target::Cpus(CpuChoice::All);
    let names: Vec<_> = (0..many).map(|number| folder.join(number.to_string()).display().to_string()).collect();
    let own = Target::Cgroups { names, cpus: CpuChoice::All };
    let mut least = [f64::MAX; 4];
    let mut files = [0; 4];
    let before = |kept: &mut u64| *kept = session.kernel_events().0 - session.kernel_events().1;
    for _ in 0..times {
        least[0] = least[0].min(switch_ns(cpu, rounds));
        let open = session.open(&events, &cpus, Options::default()).unwrap();
        before(&mut files[1]);
        least[1] = least[1].min(switch_ns(cpu, rounds));
        drop(open);
        let open = by_program().unwrap();
        before(&mut files[2]);
        least[2] = least[2].min(switch_ns(cpu, rounds));
        drop(open);
        let open = session.open(&events, &own, Options::default()).unwrap();
        before(&mut files[3]);
        least[3] = least[3].min(switch_ns(cpu, rounds));
        drop(open);
    }
    println!("a switch of tasks, with {EVENTS}: quickest of {times} times {rounds}");
    for ((name, ns), files) in
        ["nothing open", "open on all CPUs", "the program", "events of cgroups"].iter().zip(least).zip(files)
    {
        println!("  {name:18} {ns:>8.0} ns, {:+6.0} ns; {files:>5} kernel events", ns - least[0]);
    }
    println!("({many} cgroups, {} CPUs)", session.online().len());
}
