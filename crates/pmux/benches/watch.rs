//! What it costs to arm a watch, and what a hit costs.
//!
//! `cargo bench -p pmux --bench watch` prints the tables; `-- arming` and `-- hits` do one of the two. With `--test`, with
//! `PMUX_BENCH_SMALL` and as `cargo test` runs it, everything is done once, small, so that it can't rot.
//!
//! *Arming* is done on another process of 2,000 threads, and compared with the bare calls of a plain tool, and nothing else: for a
//! count one `perf_event_open(2)` for each thread; for who and from where one for each thread and CPU, as perf does it, because an
//! event that is inherited has a ring on one CPU only. The event is on at once. All are measured in turn, because a machine's speed
//! changes from one second to the next; the quickest of each are compared. CPU time is that of all threads that arm.
//!
//! A *hit* is compared with `perf stat -e mem:…`, where that is installed, and with the same breakpoint counted by
//! [`pmux::Session::open`].
#![allow(clippy::unwrap_used)]

use pmux::event::Access;
use pmux::watch::{Watch, WatchDetail, WatchOptions, WatchTarget};
use pmux::{Error, Event, Options, Session, Target};
use pmux_abi::attr::{AttrFlags, SampleFormat, Sampling};
use pmux_linux::raw_perf_event;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

static WORD: AtomicU64 = AtomicU64::new(0);

fn watch_target() -> WatchTarget {
    WatchTarget { name: "WORD".to_owned(), address: (&raw const WORD) as u64, len: 8, access: Access::WRITE }
}

/// The argument that makes this program a process of threads that sleep until its input ends.
const THREADS_ARG: &str = "--bench-threads=";

/// Another process with threads that sleep until it is dropped.
struct BenchThreads(Child);

impl BenchThreads {
    fn start(threads: usize) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut bench_threads = Command::new(own);
        let bench_threads =
            bench_threads.arg(format!("{THREADS_ARG}{threads}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut bench_threads = Self(bench_threads.spawn().unwrap());
        bench_threads.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        bench_threads
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    fn threads(&self) -> Vec<i32> {
        pmux_linux::procfs::Proc::system().threads_of(self.pid()).unwrap()
    }

    /// What runs in the other process.
    fn be(threads: usize) {
        let all_there = Arc::new(Barrier::new(threads));
        let sleep = |_| {
            let all_there = Arc::clone(&all_there);
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            thread
                .spawn(move || {
                    all_there.wait();
                    loop {
                        std::thread::park();
                    }
                })
                .unwrap()
        };
        let _sleeping: Vec<_> = (1..threads).map(sleep).collect();
        all_there.wait();
        std::io::stdout().write_all(b"x").and_then(|()| std::io::stdout().flush()).unwrap();
        // Until no process holds the other end any more.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    }
}

impl Drop for BenchThreads {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

fn least(times: &[Duration]) -> Duration {
    times.iter().copied().min().unwrap_or_default()
}

/// How long something takes, and what it costs this thread and those that it starts in CPU time: that is the same on a machine
/// that is busy. What comes out of it is dropped by the caller, and so not measured.
fn timed<R>(session: &Session, work: impl FnOnce() -> R) -> Result<(Duration, Duration, R), Error> {
    let ((took, result), counts) = session.count_closure(&["task-clock"], || {
        let began = Instant::now();
        let result = work();
        (began.elapsed(), result)
    })?;
    let nanos = counts.total(0).count().map_or(0, |count| count.value);
    Ok((took, Duration::from_nanos(nanos), result))
}

fn options(detail: WatchDetail) -> WatchOptions {
    WatchOptions { detail, ..WatchOptions::default() }
}

fn arming(session: &Session, threads: usize, rounds: usize) -> Result<(), Error> {
    let bench_threads = BenchThreads::start(threads);
    let cpus: Vec<u32> = session.online().iter().collect();
    let target = Target::Processes(vec![bench_threads.pid()]);
    println!("arming {threads} threads, {} CPUs: quickest of {rounds}", cpus.len());
    let details = [
        ("counts only", WatchDetail::Counts),
        ("by place", WatchDetail::Rows { max_stack: 8 }),
        ("one by one", WatchDetail::Hits { max_stack: 8 }),
    ];
    for (name, detail) in details {
        let mut attr = Event::breakpoint(watch_target().address, 8, Access::WRITE).attr;
        attr.flags |= AttrFlags::INHERIT;
        let mut on: &[u32] = &[];
        if detail != WatchDetail::Counts {
            // A plain tool needs a ring, and so an event for each CPU.
            on = &cpus;
            attr.sampling = Sampling::Period(1);
            attr.sample = SampleFormat::IP | SampleFormat::TID | SampleFormat::TIME;
        }
        let off = pmux_abi::attr::Attr { flags: attr.flags | AttrFlags::DISABLED, ..attr };
        let (mut raw_times, mut off_times, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let (mut raw_work, mut work) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let tids = bench_threads.threads();
            let (took, cpu, open) = timed(session, || raw_perf_event::open_all(&attr, &tids, on).unwrap())?;
            raw_times.push(took);
            raw_work.push(cpu);
            drop(open);
            let (took, _, disabled) = timed(session, || raw_perf_event::open_all(&off, &tids, on).unwrap())?;
            off_times.push(took);
            drop(disabled);
            let (took, cpu, watch) =
                timed(session, || Watch::open(session, vec![watch_target()], &target, options(detail)))?;
            times.push(took);
            work.push(cpu);
            assert_eq!(watch?.threads(), threads);
        }
        let (raw, off, watch) = (least(&raw_times), least(&off_times), least(&times));
        let ratio = watch.as_secs_f64() / raw.as_secs_f64();
        println!("  {name:12} bare calls {raw:>9.2?} (disabled {off:.2?}), watch {watch:>9.2?}: {ratio:.2} times");
        let (raw, watch) = (least(&raw_work), least(&work));
        let ratio = watch.as_secs_f64() / raw.as_secs_f64();
        println!("  {:12}    CPU time {raw:>9.2?}, watch {watch:>9.2?}: {ratio:.2} times", "");
    }
    Ok(())
}

/// So many hits are measured at once: few enough that often no other task runs meanwhile.
const AT_ONCE: u64 = 500;

/// Time of so many hits on this thread.
fn hit(times: u64) -> Duration {
    let began = Instant::now();
    for value in 0..times {
        WORD.store(value, Ordering::Relaxed);
    }
    began.elapsed()
}

/// The quickest of many times [`AT_ONCE`] hits, so many in all.
fn quickest(times: u64) -> Duration {
    (0..times / AT_ONCE).map(|_| hit(AT_ONCE)).min().unwrap_or_default()
}

/// `perf stat -e mem:…` of this thread, which counts until it is dropped.
struct PerfStat(Child);

impl PerfStat {
    /// `None` where there is no `perf`, or it can't count this.
    fn start() -> Option<Self> {
        let event = format!("mem:{:#x}/8:w", (&raw const WORD) as u64);
        let tid = pmux_linux::current_tid().to_string();
        let mut perf = Command::new("perf");
        let perf = perf.args(["stat", "-e", &event, "-t", &tid]).stdout(Stdio::null());
        let mut perf = Self(perf.stderr(Stdio::null()).spawn().ok()?);
        // It counts when a write takes as long as a trap into the kernel; nothing else tells.
        let begun = Instant::now();
        // More than once: a thread that was not running for a moment is slow as well.
        while (0..5).any(|_| hit(50) < Duration::from_micros(25)) {
            let ended = perf.0.try_wait().map_or(true, |status| status.is_some());
            if ended || begun.elapsed() > Duration::from_secs(10) {
                return None;
            }
            std::thread::yield_now();
        }
        Some(perf)
    }
}

impl Drop for PerfStat {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let asked = Command::new("kill").args(["-INT", &pid]).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

/// Who counts hits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    ByPerf,
    AsEvent,
    Watched(WatchDetail),
}

fn hitting(session: &Session, times: u64, rounds: usize) -> Result<(), Error> {
    println!("a hit: quickest {AT_ONCE} of {rounds} times {times}, all of them in turn");
    let ways = [
        ("perf stat -e mem:…", Counted::ByPerf),
        ("counted as an event", Counted::AsEvent),
        ("watched, counts only", Counted::Watched(WatchDetail::Counts)),
        ("by thread and place", Counted::Watched(WatchDetail::Rows { max_stack: 0 })),
        ("with 8 frames", Counted::Watched(WatchDetail::Rows { max_stack: 8 })),
        ("one by one", Counted::Watched(WatchDetail::Hits { max_stack: 0 })),
        ("with 8 frames", Counted::Watched(WatchDetail::Hits { max_stack: 8 })),
    ];
    let mut all = [const { Vec::new() }; 7];
    for _ in 0..rounds {
        for ((_, way), all) in ways.iter().zip(&mut all) {
            let event = Event::breakpoint(watch_target().address, 8, Access::WRITE);
            let (took, counted) = match *way {
                Counted::ByPerf => {
                    let Some(_perf) = PerfStat::start() else { continue };
                    (quickest(times), times)
                }
                Counted::AsEvent => {
                    let counters = session.open(&event.into(), &Target::CurrentThread, Options::default())?;
                    (quickest(times), counters.read().total(0).count().map_or(0, |count| count.value))
                }
                Counted::Watched(detail) => {
                    let watch = Watch::open(session, vec![watch_target()], &Target::CurrentThread, options(detail))?;
                    (quickest(times), watch.count(0)?.value)
                }
            };
            assert_eq!(counted, times);
            all.push(took);
        }
    }
    let base = all.iter().find(|all| !all.is_empty()).map_or(Duration::ZERO, |all| least(all));
    for ((name, _), all) in ways.iter().zip(&all) {
        if all.is_empty() {
            println!("  {name:24} skipped: needs perf");
            continue;
        }
        let each = least(all).as_nanos() as f64 / AT_ONCE as f64;
        println!("  {name:24} {each:>8.0} ns, {:.2} times", least(all).as_secs_f64() / base.as_secs_f64());
    }
    Ok(())
}

fn main() {
    if let Some(threads) = std::env::args().find_map(|arg| arg.strip_prefix(THREADS_ARG)?.parse().ok()) {
        return BenchThreads::be(threads);
    }
    let has = |word: &str| std::env::args().any(|arg| arg == word);
    // `cargo bench` says that it is one; `cargo test` says nothing.
    let small =
        has("--test") || !has("--bench") || std::env::var_os("PMUX_BENCH_SMALL").is_some_and(|value| value != "0");
    let session = Session::new().unwrap();
    // Other programs of the tests take registers too.
    let path = std::env::temp_dir().join("pmux-test-breakpoints.lock");
    let lock = std::fs::File::open(&path).or_else(|_| std::fs::File::create(&path)).unwrap();
    lock.lock().unwrap();
    if let Err(errno) = raw_perf_event::can_open(&Event::breakpoint(watch_target().address, 8, Access::WRITE).attr) {
        println!("skipped: needs debug registers ({errno})");
        return;
    }
    let wants =
        |what: &str| ["arming", "hits"].iter().all(|name| *name == what || !std::env::args().any(|word| word == *name));
    let (threads, rounds, hits) = if small { (20, 1, 2 * AT_ONCE) } else { (2000, 25, 20_000) };
    if wants("arming") {
        arming(&session, threads, rounds).unwrap();
    }
    if wants("hits") {
        hitting(&session, hits, rounds).unwrap();
    }
}
