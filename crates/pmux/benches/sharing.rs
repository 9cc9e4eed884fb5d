//! What it costs when many ask the same: each with an event of its own, and sharing one.
//!
//! `cargo bench -p pmux --bench sharing` prints three tables; `-- clients`, `-- one` and `-- regions` do one of them. With `--test`, with
//! `PMUX_BENCH_SMALL` and as `cargo test` runs it, everything is done once, small, so that it can't rot.
//!
//! *Clients*: so many clients ask for the context switches of every CPU. Opening is the mean of the last tenth of them, reading
//! that of all. Memory is what the kernel's slabs and per-CPU areas grew by, which others change too. Instructions in user mode say
//! the same as times, and say it on a machine that others use as well; `-` where none are counted.
//!
//! *One*: what a client pays in this process for what is there already, beside the plain `read(2)` of an event's fd.
//!
//! *Regions*: what it costs to enter and leave one, while nothing measures, and in a command whose regions are counted.
#![allow(clippy::unwrap_used)]

use pmux::exact::{ExactGroup, ExactTarget, GroupMode};
use pmux::{Command, CommandOutput, Counter, Error, Event, RegionTable, Session, Sharing, Target};
use pmux_linux::raw_perf_event;
use pmux_testkit::kernel_events;
use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// What the kernel holds for itself, in KiB.
fn kernel_kib() -> i64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap();
    let of = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().nth(1)?.parse::<i64>().ok()
    };
    of("SUnreclaim").unwrap_or(0) + of("Percpu").unwrap_or(0)
}

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

/// Lets clients come, read once, and go.
fn clients(sharing: Sharing, count: usize) -> Result<(), Error> {
    let session = Session::with_sharing(sharing)?;
    let event = [Event::parse("context-switches").unwrap()];
    let cpus: Vec<u32> = session.online().iter().collect();
    let instructions = Counter::open(
        &Session::with_sharing(Sharing::Off)?,
        Event::parse("instructions:u").unwrap(),
        &Target::CurrentThread,
    )
    .ok();
    let (events, memory) = (kernel_events("self"), kernel_kib());
    let mut groups: Vec<ExactGroup> = Vec::with_capacity(count * cpus.len());
    let executed = || instructions.as_ref().and_then(|counter| counter.read().ok()).map(|count| count.value);
    let (mut last, mut since) = (Duration::ZERO, None);
    let late = count - count.div_ceil(10);
    for client in 0..count {
        if client == late {
            since = executed();
        }
        let began = Instant::now();
        for &cpu in &cpus {
            let group = session.open_exactly(&event, ExactTarget::Cpu(cpu), GroupMode::default())?;
            group.enable_all()?;
            groups.push(group);
        }
        if client >= late {
            last += began.elapsed();
        }
    }
    let opens = ((count - late) * cpus.len()) as u64;
    let per_open = executed().zip(since).map(|(now, then)| (now - then) / opens);
    let (events, memory) = (kernel_events("self") - events, kernel_kib() - memory);
    let before = executed();
    let began = Instant::now();
    for group in &groups {
        black_box(group.read(0)?);
    }
    let read = began.elapsed() / groups.len() as u32;
    let per_read = executed().zip(before).map(|(now, then)| (now - then) / groups.len() as u64);
    let open = last / (count - late) as u32 / cpus.len() as u32;
    let who = if sharing == Sharing::On { "pmux" } else { "the kernel alone" };
    let shown = |instructions: Option<u64>| instructions.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let (open, read) = (format!("{:.1} us", us(open)), format!("{:.2} us", us(read)));
    let (per_open, per_read) = (shown(per_open), shown(per_read));
    println!("| {count} | {who} | {events} | {memory} KiB | {open} | {per_open} | {read} | {per_read} |");
    if sharing == Sharing::On {
        assert_eq!(events, cpus.len(), "one event of the kernel for each CPU, however many clients there are");
    }
    Ok(())
}

/// The least of the means of rounds of `f`.
fn each(rounds: usize, times: usize, mut f: impl FnMut()) -> f64 {
    let round = |_| {
        let began = Instant::now();
        for _ in 0..times {
            f();
        }
        began.elapsed().as_nanos() as f64 / times as f64
    };
    (0..rounds).map(round).fold(f64::INFINITY, f64::min)
}

/// What a client pays beside one who is there already.
fn one(rounds: usize, times: usize) -> Result<(), Error> {
    let session = Session::with_sharing(Sharing::On)?;
    let own = Session::with_sharing(Sharing::Off)?;
    let event = [Event::parse("page-faults:u").unwrap()];
    let thread = ExactTarget::Task(std::process::id() as i32);
    let open = |session: &Session| session.open_exactly(&event, thread, GroupMode::default());
    let (first, alone) = (open(&session)?, open(&own)?);
    first.enable_all()?;
    alone.enable_all()?;
    let plain = raw_perf_event::ReadableEvent::open(&event[0].attr).unwrap();
    let mut kept = Vec::with_capacity(times);
    let mut opening = f64::INFINITY;
    for _ in 0..rounds {
        let began = Instant::now();
        for _ in 0..times {
            kept.push(open(&session)?);
        }
        opening = opening.min(began.elapsed().as_nanos() as f64 / times as f64);
        kept.clear();
    }
    let enabling = each(rounds, times, || {
        first.disable_all().unwrap();
        first.enable_all().unwrap();
    });
    let second = open(&session)?;
    second.enable_all()?;
    let bare = each(rounds, times, || _ = black_box(plain.read().unwrap()));
    let unshared = each(rounds, times, || _ = black_box(alone.read(0).unwrap()));
    let shared = each(rounds, times, || _ = black_box(second.read(0).unwrap()));
    let cached = each(rounds, times, || _ = black_box(second.read_cached(0).unwrap()));
    let joining = each(rounds, times, || {
        second.disable_all().unwrap();
        second.enable_all().unwrap();
    });
    println!("| what | costs | times a plain read(2) |");
    println!("|---|--:|--:|");
    for (what, ns) in [
        ("a plain read(2) of an event's fd", bare),
        ("an event of its own, read", unshared),
        ("a shared one, read", shared),
        ("a shared one, as it was read last", cached),
        ("a duplicate, opened", opening),
        ("a duplicate, off and on", joining),
        ("the only one, off and on", enabling),
    ] {
        println!("| {what} | {ns:.0} ns | {:.2} |", ns / bare);
    }
    Ok(())
}

/// How the command is called whose regions are counted.
const COUNTED: &str = "counted-regions";

/// What a region costs, entered and left.
fn region_ns(rounds: usize, times: usize) -> f64 {
    each(rounds, times, || drop(black_box(pmux::region("of the benchmark"))))
}

/// What a region costs, in this process and in one that is measured.
fn regions(rounds: usize, times: usize) -> Result<(), Error> {
    println!("| events | a region, entered and left |");
    println!("|---|--:|");
    println!("| nothing measures | {:.1} ns |", region_ns(rounds, 10 * times));
    let session = Session::new()?;
    for (events, count) in [("page-faults:u", 1), ("task-clock:u,page-faults:u,context-switches:u,cpu-migrations:u", 4)]
    {
        let table = RegionTable::make(events, count).unwrap();
        let program = std::env::current_exe().unwrap().into_os_string();
        let words = [program, COUNTED.into(), rounds.to_string().into(), times.to_string().into()];
        print!("| {events} ");
        std::io::stdout().flush().unwrap();
        assert!(
            Command::hold_with_regions(words, CommandOutput::Ours, &table)?
                .release(&[])?
                .wait(&session)?
                .status
                .success()
        );
        assert_eq!(table.read().regions[0].left as usize, rounds * times, "each is counted");
    }
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, name, rounds, times] = &arguments[..]
        && name == COUNTED
    {
        println!("| {:.0} ns |", region_ns(rounds.parse().unwrap(), times.parse().unwrap()));
        return;
    }
    let has = |word: &str| std::env::args().any(|arg| arg == word);
    // `cargo bench` says that it is one; `cargo test` says nothing.
    let small =
        has("--test") || !has("--bench") || std::env::var_os("PMUX_BENCH_SMALL").is_some_and(|value| value != "0");
    let event = Event::parse("context-switches").unwrap();
    let session = Session::new().unwrap();
    let first = session.online().iter().next().unwrap_or_default();
    if let Err(error) = session.open_exactly(&[event], ExactTarget::Cpu(first), GroupMode::default()) {
        println!("skipped: needs events of CPUs ({error})");
        return;
    }
    drop(session);
    let wants = |what: &str| {
        ["clients", "one", "regions"].iter().all(|name| *name == what || !std::env::args().any(|word| word == *name))
    };
    if wants("clients") {
        println!(
            "| clients | who | events of the kernel | its memory | one more opened | instructions | read | instructions |"
        );
        println!("|--:|---|--:|--:|--:|--:|--:|--:|");
        let counts: &[usize] = if small { &[1, 10] } else { &[1, 10, 100, 1000, 5000] };
        for &count in counts {
            clients(Sharing::Off, count).unwrap();
            clients(Sharing::On, count).unwrap();
        }
    }
    if wants("one") {
        let (rounds, times) = if small { (1, 100) } else { (20, 5000) };
        one(rounds, times).unwrap();
    }
    if wants("regions") {
        let (rounds, times) = if small { (1, 100) } else { (20, 5000) };
        regions(rounds, times).unwrap();
    }
}
