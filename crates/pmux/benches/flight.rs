//! What the flight recorder costs, and what its snapshots miss.
//!
//! `cargo bench -p pmux --bench flight` prints both tables; `-- always` and `-- storm` do one of the two. With `--test`, with
//! `PMUX_BENCH_SMALL` and as `cargo test` runs it, everything is done once, small, so that it can't rot.
//!
//! *Always* records the machine's stacks at 99 Hz and keeps them: how much of a CPU the recorder takes, and, where this machine counts
//! cycles, what a sample costs the task that is sampled.
//!
//! *Storm* is a process that makes a system call each microsecond, with a number. Two snapshots are taken one after the other, by us and by
//! `perf record --overwrite --switch-output=signal`, if that is installed. What matters is how many numbers are missing between the
//! first of the first snapshot and the last of the second.
#![allow(clippy::unwrap_used)]

#[path = "../tests/it/common/perf_data.rs"]
#[allow(dead_code)]
mod perf_data;

use perf_data::Content;
use pmux::flight::{Flight, FlightOptions, FlightSnapshot, Keeping, Lasted, SnapshotCause};
use pmux::record::{CallChain, Rate, RecordOptions};
use pmux::wait::{Token, Waiter};
use pmux::{CpuChoice, EventList, Options, Reading, Session, Target};
use pmux_linux::affinity::CpuVisitor;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CALL: &str = "syscalls:sys_enter_lseek";
/// Where the number stands in what the tracepoint writes.
const NUMBER_AT: usize = 24;
/// How long it takes at the most until a ring is full.
const FILLED: Duration = Duration::from_secs(20);
/// The argument that makes this program a storm: a call each so many nanoseconds, until its input ends.
const STORM: &str = "--storm=";
/// The argument that makes it busy until its input ends.
const BUSY: &str = "--busy";

/// Another process, until it is dropped.
struct Other(Child);

impl Other {
    fn start(argument: &str) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut other = Command::new(own).arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        other.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(other)
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// What runs in the other process: `work` again and again, until the input ends.
fn until_the_end(mut work: impl FnMut() + Send + 'static) {
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let mut pinned = CpuVisitor::new();
    pinned.visit(0);
    println!();
    loop {
        work();
    }
}

fn storm(interval_ns: u64) {
    let mut null = File::open("/dev/null").unwrap();
    let (mut number, begun) = (0, Instant::now());
    let interval = Duration::from_nanos(interval_ns);
    let mut next = interval;
    until_the_end(move || {
        number += 1;
        null.seek(SeekFrom::Start(number)).unwrap();
        // Time that was lost elsewhere is not made up for.
        next = (next + interval).max(begun.elapsed());
        while begun.elapsed() < next {}
    });
}

/// The numbers of a storm in a file, in order.
fn numbers(file: &Path, storm: &Other) -> Vec<u64> {
    let content = Content::read(file);
    let own = content.samples.iter().filter(|sample| sample.pid == storm.pid() && sample.raw.len() >= NUMBER_AT + 8);
    own.map(|sample| sample.word(NUMBER_AT)).collect()
}

/// How many calls two snapshots have, and how many are missing between the first and the last.
fn held_and_missing(first: Vec<u64>, second: Vec<u64>) -> (u64, u64) {
    let mut all: Vec<u64> = first.into_iter().chain(second).collect();
    all.sort_unstable();
    all.dedup();
    match (all.first(), all.last()) {
        (Some(first), Some(last)) => (all.len() as u64, last - first + 1 - all.len() as u64),
        _ => (0, 0),
    }
}

/// Does what is to be done until `until` says that it is enough; answers snapshots that were finished meanwhile.
fn look_after(flight: &mut Flight, mut until: impl FnMut(&[FlightSnapshot]) -> bool) -> Vec<FlightSnapshot> {
    let mut done = Vec::new();
    while !until(&done) {
        let mut waiter = Waiter::new();
        flight.fds().into_iter().for_each(|fd| waiter.watch(fd, Token(0)));
        let soon = Instant::now() + Duration::from_millis(50);
        waiter.wait(Some(flight.next().min(soon))).unwrap();
        done.extend(flight.tick().unwrap().into_iter().map(Result::unwrap));
    }
    done
}

fn all() -> Target<'static> {
    Target::Cpus(CpuChoice::All)
}

/// User and system time of this process, in seconds.
fn own_cpu_s(session: &Session, work: impl FnOnce()) -> f64 {
    let events = EventList::parse(&["task-clock"], session.catalog()).unwrap();
    let counters = session.open(&events, &Target::CurrentThread, Options::default()).unwrap();
    work();
    match counters.read().total(0) {
        Reading::Counted(count) => count.value as f64 / 1e9,
        other => panic!("{other:?}"),
    }
}

fn always(session: &Session, small: bool) {
    let folder = tempfile::tempdir().unwrap();
    let seconds = if small { 0.3 } else { 20.0 };
    let record =
        RecordOptions { rate: Rate::Frequency(99), call_chain: CallChain::FramePointers, ..RecordOptions::default() };
    let options = FlightOptions { record, ..FlightOptions::into_directory(folder.path()) };
    let events = EventList::parse(&["cpu-clock"], session.catalog()).unwrap();
    // A task has to be sampled.
    let _busy = Other::start(BUSY);
    let mut flight = Flight::open(session, events, &[], &all(), options).unwrap();
    flight.enable().unwrap();
    let begun = Instant::now();
    // As an idle recorder does it: woken when there is something to do, and not otherwise.
    let cpu_s = own_cpu_s(session, || {
        while begun.elapsed().as_secs_f64() < seconds {
            let mut waiter = Waiter::new();
            flight.fds().into_iter().for_each(|fd| waiter.watch(fd, Token(0)));
            waiter.wait(Some(flight.next().min(begun + Duration::from_secs_f64(seconds)))).unwrap();
            flight.tick().unwrap();
        }
    });
    let wall_s = begun.elapsed().as_secs_f64();
    flight.request(SnapshotCause::now("the end"));
    let done: Vec<FlightSnapshot> = flight.finish().into_iter().map(Result::unwrap).collect();
    println!("\nstacks of the machine at 99 Hz, {wall_s:.1} s, {} CPUs", session.online().len());
    println!("  {:8} samples, {} bytes of a snapshot", done[0].samples, done[0].bytes);
    println!("  {:8.3} % of a CPU is the recorder", cpu_s / wall_s * 100.0);
    drop(flight);
    match sampled_costs(session, small) {
        Some((cycles, hz)) => {
            let cpus = session.online().len() as f64;
            println!("  {cycles:8.0} cycles of the kernel cost each sample, whatever is sampled");
            println!("  {:8.3} % of a CPU are all samples, if they never rest", cycles * 99.0 * cpus / hz * 100.0);
        }
        None => println!("  skipped: what a sample costs who is sampled needs cycles"),
    }
}

/// How many cycles in the kernel a sample costs, by a process that does nothing else, with the recorder and without, in turn; and how
/// many cycles that process has in a second.
fn sampled_costs(session: &Session, small: bool) -> Option<(f64, f64)> {
    let busy = Other::start(BUSY);
    let events = EventList::parse(&["cycles:k,cycles:u"], session.catalog()).ok()?;
    let target = Target::Processes(vec![busy.pid()]);
    let rounds = if small { 1 } else { 7 };
    let span = Duration::from_millis(if small { 50 } else { 500 });
    let (mut costs, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut measure = || {
            let counters = session.open(&events, &target, Options::default()).ok()?;
            std::thread::sleep(span);
            let snapshot = counters.read();
            let value = |event: usize| match snapshot.total(event) {
                Reading::Counted(count) => Some((count.value as f64, count.running.0 as f64 / 1e9)),
                _ => None,
            };
            let ((kernel, seconds), (user, _)) = (value(0)?, value(1)?);
            rates.push((kernel + user) / seconds);
            Some(kernel / seconds)
        };
        let without = measure()?;
        let folder = tempfile::tempdir().unwrap();
        let record = RecordOptions {
            rate: Rate::Frequency(999),
            call_chain: CallChain::FramePointers,
            ..RecordOptions::default()
        };
        let options = FlightOptions { record, ..FlightOptions::into_directory(folder.path()) };
        let clock = EventList::parse(&["cpu-clock"], session.catalog()).unwrap();
        let mut flight = Flight::open(session, clock, &[], &all(), options).unwrap();
        flight.enable().unwrap();
        costs.push((measure()? - without) / 999.0);
    }
    costs.sort_by(f64::total_cmp);
    rates.sort_by(f64::total_cmp);
    Some((costs[costs.len() / 2], rates[rates.len() / 2]))
}

fn ours(session: &Session, storm: &Other, ring_bytes: u64, apart: Duration) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let events = EventList::parse(&[CALL], session.catalog()).unwrap();
    let options = FlightOptions { keep: Keeping::Bytes(ring_bytes), ..FlightOptions::into_directory(folder.path()) };
    let mut flight = Flight::open(session, events, &[], &all(), options).unwrap();
    flight.enable().unwrap();
    // Long enough for the storm's ring to be overwritten.
    let begun = Instant::now();
    while begun.elapsed() < FILLED && flight.status().held.iter().all(|held| held.lasted == Lasted::SinceStart) {
        let asked = Instant::now();
        look_after(&mut flight, |_| asked.elapsed() > Duration::from_millis(100));
    }
    let (mut copies, mut done) = (Vec::new(), Vec::new());
    for round in 0..2 {
        let asked = Instant::now();
        flight.request(SnapshotCause::now(format!("round {round}")));
        copies.push(asked.elapsed());
        done.extend(look_after(&mut flight, |_| asked.elapsed() > apart));
    }
    let left = 2 - done.len();
    done.extend(look_after(&mut flight, |finished| finished.len() >= left));
    done.sort_by_key(|snapshot| snapshot.number);
    let gap: u64 = done[1].cpus.iter().filter_map(|cpu| cpu.gap_bytes).sum();
    for (snapshot, copy) in done.iter().zip(&copies) {
        println!(
            "  snapshot {}: {:.0} ms to copy, {:.0} ms in all, {} MiB, {} samples",
            snapshot.number,
            copy.as_secs_f64() * 1e3,
            snapshot.took.as_secs_f64() * 1e3,
            snapshot.bytes >> 20,
            snapshot.samples
        );
    }
    println!("  the second one says that {gap} bytes are missing between the two");
    held_and_missing(numbers(&done[0].path, storm), numbers(&done[1].path, storm))
}

fn perfs(storm: &Other, ring_bytes: u64, apart: Duration) -> Option<(u64, u64)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let pages = (ring_bytes / u64::from(pmux_linux::page_bytes())).to_string();
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "--overwrite", "--switch-output=signal", "-a", "-m", &pages, "-e", CALL, "-o"]);
    let mut perf = perf.arg(&file).stderr(Stdio::null()).stdout(Stdio::null()).spawn().ok()?;
    let signal = |name: &str| Command::new("kill").args([name, &perf.id().to_string()]).status().unwrap();
    let files = || -> Vec<PathBuf> {
        let mut found: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.retain(|path| path.to_string_lossy().contains("perf.data.2"));
        found.sort();
        found
    };
    std::thread::sleep(Duration::from_secs(1) + Duration::from_nanos(ring_bytes / 96 * 3000));
    for _ in 0..2 {
        signal("-USR2");
        std::thread::sleep(apart);
    }
    let end = Instant::now() + Duration::from_secs(60);
    // A dump that is done has a name of its own.
    while files().len() < 2 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
    signal("-INT");
    perf.wait().unwrap();
    match &files()[..] {
        [first, second, ..] => Some(held_and_missing(numbers(first, storm), numbers(second, storm))),
        _ => None,
    }
}

fn storms(session: &Session, small: bool) {
    if EventList::parse(&[CALL], session.catalog()).is_err() {
        println!("skipped: needs {CALL}");
        return;
    }
    let ring_bytes: u64 = if small { 8 << 20 } else { 64 << 20 };
    let apart = Duration::from_millis(if small { 20 } else { 300 });
    let storm = Other::start(&format!("{STORM}1000"));
    println!(
        "\na call each microsecond, rings of {} MiB, two snapshots {} ms apart",
        ring_bytes >> 20,
        apart.as_millis()
    );
    let (held, missing) = ours(session, &storm, ring_bytes, apart);
    println!("  {missing:9} calls missing, {held} there: pmux");
    match perfs(&storm, ring_bytes, apart) {
        Some((held, missing)) => println!("  {missing:9} calls missing, {held} there: perf record --overwrite"),
        None => println!("  skipped: needs perf"),
    }
}

fn main() {
    let has = |name: &str| std::env::args().any(|argument| argument == name);
    if let Some(interval) = std::env::args().find_map(|argument| argument.strip_prefix(STORM)?.parse().ok()) {
        return storm(interval);
    }
    if has(BUSY) {
        return until_the_end(|| {});
    }
    let small =
        has("--test") || !has("--bench") || std::env::var_os("PMUX_BENCH_SMALL").is_some_and(|value| value != "0");
    let session = Session::new().unwrap();
    let probe = EventList::parse(&["cpu-clock"], session.catalog()).unwrap();
    if session.open(&probe, &all(), Options::default()).is_err() {
        println!("skipped: needs the right to record CPUs");
        return;
    }
    if !has("storm") {
        always(&session, small);
    }
    if !has("always") {
        storms(&session, small);
    }
}
