//! Hits that are counted by thread and place, in the kernel.

use crate::common::watching::{missing, rows, watch_target, watched, write};
use crate::common::{needs, skip_unless};
use pmux::event::Access;
use pmux::watch::{CountedHits, Hit, HitTally, ValueTiming, Watch, WatchEvent, WatchOptions};
use pmux::{Nanos, Session, Target};
use pmux_linux::affinity::{CpuVisitor, Placement};
use pmux_testkit::late_hits;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
struct TakenEvents {
    hits: Vec<Hit>,
    counted: Vec<CountedHits>,
    tally: HitTally,
}

impl TakenEvents {
    fn add(&mut self, events: Vec<WatchEvent>) {
        for event in events {
            match event {
                WatchEvent::Hit(hit) => {
                    self.tally.add(&hit);
                    self.hits.push(hit);
                }
                WatchEvent::Counted(counted) => {
                    self.tally.add_counted(&counted);
                    self.counted.push(counted);
                }
                _ => {}
            }
        }
    }

    fn by_thread(&self) -> HashMap<i32, u64> {
        let mut hits = HashMap::new();
        for (caller, row) in self.tally.rows() {
            *hits.entry(caller.tid).or_default() += row.hits;
        }
        hits
    }
}

/// Whether hits are counted in the kernel here.
fn counts(watch: &Watch) -> bool {
    let why = watch.not_counted_because();
    needs("bpf", &format!("BPF programs ({why:?})"), why.is_none())
}

fn own(session: &Session, address: &'static AtomicU64, options: WatchOptions) -> Watch {
    Watch::open(session, vec![watch_target("WORD", address)], &Target::CurrentThread, options).unwrap()
}

#[inline(never)]
fn often(word: &AtomicU64, value: u64) {
    write(word, value);
    // Not the last thing, so that it is a caller.
    std::hint::black_box(value);
}

#[inline(never)]
fn seldom(word: &AtomicU64, value: u64) {
    write(word, value);
    std::hint::black_box(value);
}

/// The first hits are told, then fewer and fewer; all are counted.
#[test]
fn hits_are_counted_and_some_are_told() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, _)) = watched(&WORD) else { return };
    for later in [false, true] {
        let timing = if later { ValueTiming::Later } else { ValueTiming::AtHit };
        let mut watch = own(&session, &WORD, WatchOptions { timing, ..rows() });
        skip_unless!(later || counts(&watch));
        let armed = watch.armed_at(0).unwrap();
        let times = 20_000;
        let mut taken = TakenEvents::default();
        for value in 0..times {
            if value % 4 == 0 {
                seldom(&WORD, value);
            } else {
                often(&WORD, value);
            }
            if value % 5_000 == 0 {
                taken.add(watch.take().unwrap());
            }
        }
        watch.disarm().unwrap();
        write(&WORD, 7);
        let late = late_hits();
        let times = times - late;
        taken.add(watch.finish().unwrap());
        let ended = Nanos(armed.0 + watch.span().0);
        assert_eq!((watch.count(0).unwrap().value, watch.unseen().unwrap(), watch.strays()), (times, 0, 0));
        assert_eq!(taken.by_thread(), HashMap::from([(pmux_linux::current_tid(), times)]));
        let rows = taken.tally.rows();
        // Both ways end in the same instruction.
        assert_eq!(rows.len(), 1, "{rows:#?}");
        let (caller, row) = rows[0];
        let place = (write as fn(&AtomicU64, u64)) as usize as u64;
        let here = (place..place + 256).contains(&taken.hits[0].at_instruction(Access::WRITE));
        assert!(here || cfg!(debug_assertions), "{caller:?} is not in {place:#x}");
        assert!(armed <= row.first && row.first < row.last && row.last <= ended, "{row:?}");
        assert!(taken.counted.iter().all(|counted| counted.ip == caller.ip && counted.first >= armed));
        if later {
            assert_eq!((taken.hits.len() as u64, taken.counted.len()), (times, 0));
            assert!(row.is_looked_at());
        } else {
            let first: Vec<u64> = taken.hits.iter().take(8).map(|hit| hit.stands_for).collect();
            // One for each CPU on which it ran.
            assert!(first.iter().filter(|&&stands| stands == 1).count() >= 7, "{first:?}");
            assert!(taken.hits.len() < 500 && !taken.counted.is_empty(), "{} were told", taken.hits.len());
            let stood_for: u64 = taken.hits.iter().map(|hit| hit.stands_for).sum();
            assert!(stood_for <= times && stood_for >= times * 8 / 10, "{stood_for}");
        }
        let (chain, that_way) = row.main_chain().unwrap();
        assert!(!chain.is_empty());
        // Three of four, however they were chosen.
        let exactly = times * 3 / 4;
        let near = if later { late } else { times / 5 };
        assert!(row.chains.len() == 1 || that_way.abs_diff(exactly) <= near, "{that_way}: {:?}", row.chains);
    }
    assert_eq!(session.census(), Default::default());
}

/// Each thread has rows of its own, on each CPU that it comes to.
#[test]
fn threads_that_move_are_counted_once() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, _)) = watched(&WORD) else { return };
    let own = Target::Processes(vec![std::process::id().cast_signed()]);
    let mut watch = Watch::open(&session, vec![watch_target("WORD", &WORD)], &own, rows()).unwrap();
    skip_unless!(counts(&watch));
    let cpus: Vec<u32> = session.online().iter().collect();
    let mover = |times: u64| {
        let cpus = cpus.clone();
        move || {
            for cpu in cpus.iter().cycle().take(20) {
                let mut visitor = CpuVisitor::new();
                // Where it may not go there, it stays.
                let _: Placement = visitor.visit(*cpu);
                (0..times / 20).for_each(|value| write(&WORD, value));
            }
            pmux_linux::current_tid()
        }
    };
    let threads: Vec<_> = (1..=6).map(|number| (number * 400, std::thread::spawn(mover(number * 400)))).collect();
    let mut taken = TakenEvents::default();
    while !threads.iter().all(|(_, thread)| thread.is_finished()) {
        taken.add(watch.take().unwrap());
        std::thread::yield_now();
    }
    let threads: Vec<_> = threads.into_iter().map(|(times, thread)| (times, thread.join().unwrap())).collect();
    taken.add(watch.finish().unwrap());
    let late = late_hits();
    assert_eq!(watch.count(0).unwrap().value + late, threads.iter().map(|(times, _)| times).sum::<u64>());
    assert_eq!(missing(taken.by_thread(), &threads.into_iter().map(|(times, tid)| (tid, times)).collect()), late);
    assert_eq!(watch.unseen().unwrap(), 0);
}

/// A table that has no room for one more thread makes hits dearer, and loses none.
#[test]
fn more_threads_than_the_table_has_room_for() {
    /// More than a CPU has slots.
    const THREADS: usize = 9000;
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, _)) = watched(&WORD) else { return };
    let mut watch = own(&session, &WORD, rows());
    skip_unless!(counts(&watch));
    let mut visitor = CpuVisitor::new();
    let first = session.online().iter().next().unwrap();
    // Threads stay where the one was that started them.
    if visitor.visit(first) != Placement::Moved {
        println!("skipped: needs the right to run on CPU {first}");
        return;
    }
    let mut taken = TakenEvents::default();
    let mut expected: HashMap<i32, u64> = HashMap::new();
    for chunk in (0..THREADS).collect::<Vec<_>>().chunks(200) {
        let write = |number: &usize| {
            let writes = 10 + (number % 3) as u64;
            let thread = std::thread::spawn(move || {
                (0..writes).for_each(|value| write(&WORD, value));
                pmux_linux::current_tid()
            });
            (writes, thread)
        };
        let threads: Vec<_> = chunk.iter().map(write).collect();
        for (writes, thread) in threads {
            // Numbers come back where many threads come and go.
            *expected.entry(thread.join().unwrap()).or_default() += writes;
        }
        taken.add(watch.take().unwrap());
    }
    taken.add(watch.finish().unwrap());
    assert_eq!(missing(taken.by_thread(), &expected), late_hits());
    assert_eq!((watch.unseen().unwrap(), watch.lost()), (0, 0));
    let slots: std::collections::HashSet<i32> = taken.counted.iter().map(|counted| counted.tid).collect();
    assert!(slots.len() < expected.len(), "there was room for all {} threads", slots.len());
}

/// No hit from before complete arming is told, and each one since is.
#[test]
fn what_was_too_early_is_left_out() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    let Some((_registers, session, _)) = watched(&WORD) else { return };
    let writer = std::thread::spawn(|| {
        while !STOP.load(Ordering::Relaxed) {
            write(&WORD, 1);
        }
    });
    for _ in 0..20 {
        let own = Target::Processes(vec![std::process::id().cast_signed()]);
        let mut watch = Watch::open(&session, vec![watch_target("WORD", &WORD)], &own, rows()).unwrap();
        let armed = watch.armed_at(0).unwrap();
        while watch.count(0).unwrap().value < 3000 {
            std::thread::yield_now();
        }
        watch.disarm().unwrap();
        let mut taken = TakenEvents::default();
        taken.add(watch.finish().unwrap());
        assert_eq!(taken.tally.hits() + watch.unseen().unwrap(), watch.count(0).unwrap().value);
        assert_eq!((watch.unseen().unwrap(), watch.lost()), (0, 0));
        assert!(taken.hits.iter().all(|hit| hit.at >= armed) && taken.counted.iter().all(|some| some.first >= armed));
    }
    STOP.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}

/// The events of programs tell of everybody: only what watched tasks do is passed on.
#[test]
fn what_others_do_is_not_told() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, _)) = watched(&WORD) else { return };
    let mut other = Command::new("sh");
    let other = other.args(["-c", "while read line; do (echo x); done"]);
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
    let mut asks = other.stdin.take().unwrap();
    let own = std::process::id().cast_signed();
    let mut watch =
        Watch::open(&session, vec![watch_target("WORD", &WORD)], &Target::Processes(vec![own]), rows()).unwrap();
    for _ in 0..20 {
        // It forks for each line.
        asks.write_all(b"\n").unwrap();
        lines.next().unwrap().unwrap();
    }
    let thread = std::thread::spawn(|| {
        write(&WORD, 1);
        pmux_linux::current_tid()
    });
    let thread = thread.join().unwrap();
    assert!(Command::new("true").status().unwrap().success());
    drop(asks);
    other.wait().unwrap();
    let events = watch.finish().unwrap();
    let mut ours = vec![own];
    let mut started = Vec::new();
    let mut hits = 0;
    for event in &events {
        match event {
            WatchEvent::Started { pid, tid, parent } => {
                assert!(ours.contains(parent), "{event:?}");
                ours.push(*pid);
                started.push(*tid);
            }
            WatchEvent::Name { pid, .. } | WatchEvent::Mapped { pid, .. } => assert!(ours.contains(pid), "{event:?}"),
            WatchEvent::Hit(hit) => hits += u64::from(hit.tid == thread),
            WatchEvent::Counted(_) => {}
        }
    }
    assert!(started.contains(&thread) && started.len() >= 2, "{thread} {started:?}");
    assert_eq!((hits, watch.count(0).unwrap().value, watch.unseen().unwrap()), (1, 1, 0));
}
