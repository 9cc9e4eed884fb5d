//! Watched addresses, on this kernel. What stood there is in `watch_values`.

use crate::common::hotplug::CpuSwitch;
use crate::common::watching::{all_watched, hits, missing, rows, values, watched, write};
use crate::common::{eventually, may_count_cpus, needs, own_process, skip_unless};
use pmux::event::Access;
use pmux::watch::{
    AcrossExec, Hit, HitSide, HitTally, HitValue, RegisterSharing, ValuesFrom, Watch, WatchDetail, WatchEvent,
    WatchOptions, WatchTarget,
};
use pmux::{CpuChoice, Error, Inherit, Session, Slice, Target};
use pmux_linux::affinity::{CpuVisitor, Placement};
use pmux_testkit::late_hits;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

fn counts() -> WatchOptions {
    WatchOptions { detail: WatchDetail::Counts, ..WatchOptions::default() }
}

#[test]
fn each_write_is_a_hit_with_its_thread_and_address() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let mut watch = Watch::open(&session, vec![word], &Target::CurrentThread, WatchOptions::default()).unwrap();
    for value in 0..100 {
        write(&WORD, value);
    }
    watch.disarm().unwrap();
    write(&WORD, 7);
    let seen = hits(watch.finish().unwrap());
    assert_eq!((seen.len(), watch.count(0).unwrap().value, watch.lost(), watch.strays()), (100, 100, 0, 0));
    let armed = watch.armed_at(0).unwrap();
    let place = (write as fn(&AtomicU64, u64)) as usize as u64;
    let mut last = armed;
    for hit in &seen {
        assert_eq!((hit.tid, hit.pid), (pmux_linux::current_tid(), std::process::id().cast_signed()));
        // A compiler that doesn't optimise calls a function for the write itself.
        let here = (place..place + 256).contains(&hit.at_instruction(Access::WRITE));
        assert!(here || cfg!(debug_assertions), "{hit:?} is not in {place:#x}");
        assert_eq!((hit.ip, &hit.callers), (seen[0].ip, &seen[0].callers));
        assert!(hit.at >= last && hit.side == HitSide::User && hit.watch_target == 0);
        last = hit.at;
    }
    let mut tally = HitTally::default();
    seen.iter().for_each(|hit| tally.add(hit));
    assert_eq!(tally.rows().len(), 1);
    assert_eq!(tally.rows()[0].1.hits, 100);
    drop(watch);
    assert_eq!(session.census(), Default::default());
}

/// Threads that write when they are told to.
struct Writers {
    go: std::sync::Arc<AtomicBool>,
    threads: Vec<(i32, JoinHandle<()>)>,
}

fn writers(count: usize, word: &'static AtomicU64, times: u64) -> Writers {
    let go = std::sync::Arc::new(AtomicBool::new(false));
    let threads = (0..count).map(|_| {
        let (sender, receiver) = mpsc::channel();
        let go = std::sync::Arc::clone(&go);
        let thread = std::thread::spawn(move || {
            sender.send(pmux_linux::current_tid()).unwrap();
            while !go.load(Ordering::Acquire) {
                std::thread::park();
            }
            (0..times).for_each(|value| write(word, value));
        });
        (receiver.recv().unwrap(), thread)
    });
    let threads = threads.collect();
    Writers { go, threads }
}

impl Writers {
    fn run(self) {
        self.go.store(true, Ordering::Release);
        self.threads.iter().for_each(|(_, thread)| thread.thread().unpark());
        self.threads.into_iter().for_each(|(_, thread)| thread.join().unwrap());
    }
}

/// How many hits each thread has.
fn by_thread(seen: &[Hit]) -> HashMap<i32, u64> {
    let mut hits = HashMap::new();
    seen.iter().for_each(|hit| *hits.entry(hit.tid).or_default() += 1);
    hits
}

#[test]
fn threads_that_are_there_and_threads_that_come() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let before = writers(20, &WORD, 3);
    let own = std::process::id().cast_signed();
    let tids: Vec<_> = before.threads.iter().map(|(tid, _)| *tid).collect();
    let mut watch = Watch::open(&session, vec![word], &Target::Processes(vec![own]), WatchOptions::default()).unwrap();
    before.run();
    let after = writers(5, &WORD, 2);
    let new: Vec<_> = after.threads.iter().map(|(tid, _)| *tid).collect();
    after.run();
    let mut seen = Vec::new();
    let mut started = Vec::new();
    for event in watch.finish().unwrap() {
        match event {
            WatchEvent::Hit(hit) => seen.push(hit),
            WatchEvent::Started { tid, .. } => started.push(tid),
            _ => {}
        }
    }
    let late = late_hits();
    assert_eq!(watch.count(0).unwrap().value + late, 20 * 3 + 5 * 2);
    let made = tids.iter().map(|&tid| (tid, 3)).chain(new.iter().map(|&tid| (tid, 2))).collect();
    assert_eq!(missing(by_thread(&seen), &made), late);
    assert!(new.iter().all(|tid| started.contains(tid)), "{new:?} {started:?}");
}

/// Threads start all the time while all are being armed: none is missed, and none is told twice.
#[test]
fn threads_that_start_while_others_are_armed() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let own = std::process::id().cast_signed();
    for options in [WatchOptions::default(), values(), rows(), counts()].repeat(2) {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let starters: Vec<_> = (0..3)
            .map(|_| {
                let (stop, sender) = (std::sync::Arc::clone(&stop), sender.clone());
                std::thread::spawn(move || {
                    let mut all_writers = Vec::new();
                    while !stop.load(Ordering::Acquire) && all_writers.len() < 300 {
                        let writers = writers(1, &WORD, 2);
                        STARTED.fetch_add(1, Ordering::Relaxed);
                        all_writers.push(writers);
                    }
                    sender.send(all_writers).unwrap();
                })
            })
            .collect();
        while STARTED.load(Ordering::Relaxed) < 30 {
            std::thread::yield_now();
        }
        let mut watch = Watch::open(&session, vec![word.clone()], &Target::Processes(vec![own]), options).unwrap();
        stop.store(true, Ordering::Release);
        starters.into_iter().for_each(|starter| starter.join().unwrap());
        drop(sender);
        let all_writers: Vec<Writers> = receiver.into_iter().flatten().collect();
        let tids: Vec<i32> = all_writers.iter().map(|writers| writers.threads[0].0).collect();
        all_writers.into_iter().for_each(Writers::run);
        let seen = hits(watch.finish().unwrap());
        assert_eq!(watch.lost(), 0);
        let late = late_hits();
        if options.detail != WatchDetail::Counts {
            let made = tids.iter().map(|&tid| (tid, 2)).collect();
            assert_eq!(missing(by_thread(&seen), &made), late, "of {} threads, {options:?}", tids.len());
        }
        assert_eq!(watch.count(0).unwrap().value + late, 2 * tids.len() as u64, "{options:?}");
        assert!(options.detail != WatchDetail::Counts || seen.is_empty());
        STARTED.store(0, Ordering::Relaxed);
    }
}

#[test]
fn more_targets_than_registers_are_refused_as_a_whole() {
    static WORDS: [AtomicU64; 12] = [const { AtomicU64::new(0) }; 12];
    let Some((_registers, session, watch_targets)) = all_watched(&WORDS) else { return };
    let refused = Watch::open(&session, watch_targets.clone(), &Target::CurrentThread, counts());
    let Err(Error::Shortage(shortage)) = refused else { panic!("twelve registers were granted") };
    assert_eq!(shortage.wanted, 12);
    assert!((1..12).contains(&shortage.granted), "{shortage}");
    assert_eq!(session.census(), Default::default());
    // What was granted before is given back.
    let fit = watch_targets[..shortage.granted].to_vec();
    Watch::open(&session, fit, &Target::CurrentThread, counts()).unwrap();
}

#[test]
fn registers_in_turns_see_a_share_of_everything() {
    static WORDS: [AtomicU64; 12] = [const { AtomicU64::new(0) }; 12];
    let Some((_registers, session, watch_targets)) = all_watched(&WORDS) else { return };
    let slice = Slice::from_millis(2).unwrap();
    for options in [WatchOptions::default(), rows()] {
        let options = WatchOptions { sharing: RegisterSharing::InTurns(slice), ..options };
        let mut watch = Watch::open(&session, watch_targets.clone(), &Target::CurrentThread, options).unwrap();
        let began = std::time::Instant::now();
        let mut written = 0_u64;
        let mut seen = [0; WORDS.len()];
        let mut add = |events: Vec<WatchEvent>| {
            for event in events {
                match event {
                    WatchEvent::Hit(hit) => seen[hit.watch_target] += 1,
                    WatchEvent::Counted(counted) => seen[counted.watch_target] += counted.hits,
                    _ => {}
                }
            }
        };
        // Until everybody has had a turn, however slow the machine is.
        loop {
            for word in &WORDS {
                write(word, written);
            }
            written += 1;
            if written.is_multiple_of(64) {
                add(watch.take().unwrap());
                let all = (0..WORDS.len()).all(|watch_target| watch.count(watch_target).unwrap().value > 0);
                assert!(began.elapsed().as_secs() < 60, "not every target had a turn");
                if all && written > 2000 {
                    break;
                }
            }
        }
        watch.disarm().unwrap();
        add(watch.finish().unwrap());
        for (watch_target, reported) in seen.into_iter().enumerate() {
            let (count, lost) = (watch.count(watch_target).unwrap(), watch.lost());
            assert!(count.value <= written && count.running < count.enabled, "{count:?} of {written}");
            assert!(reported + lost >= count.value && reported <= count.value, "{reported} of {count:?}, {lost} lost");
        }
    }
}

/// A ring holds some thousands of hits: of the rest it is known how many they are.
#[test]
fn what_the_rings_have_no_room_for_is_a_number() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let options = WatchOptions { detail: WatchDetail::Hits { max_stack: 32 }, ..WatchOptions::default() };
    let mut watch = Watch::open(&session, vec![word], &Target::CurrentThread, options).unwrap();
    let times = 150_000;
    (0..times).for_each(|value| write(&WORD, value));
    watch.disarm().unwrap();
    let reported = hits(watch.finish().unwrap()).len() as u64;
    let came = times - late_hits();
    assert_eq!(watch.count(0).unwrap().value, came);
    assert_eq!(reported + watch.unseen().unwrap(), came);
    assert!(
        reported > 0 && reported < times && watch.lost() <= watch.unseen().unwrap(),
        "{reported} told, {} lost",
        watch.lost()
    );
}

/// Turns on registers that another session holds never come.
#[test]
fn where_no_register_is_free_no_target_takes_turns() {
    static WORDS: [AtomicU64; 12] = [const { AtomicU64::new(0) }; 12];
    let Some((_registers, session, watch_targets)) = all_watched(&WORDS) else { return };
    let others = Session::new().unwrap();
    let all: Vec<_> = (watch_targets.iter())
        .map_while(|watch_target| {
            Watch::open(&others, vec![watch_target.clone()], &Target::CurrentThread, counts()).ok()
        })
        .collect();
    let options = WatchOptions { sharing: RegisterSharing::InTurns(Slice::default()), ..WatchOptions::default() };
    let refused = Watch::open(&session, watch_targets, &Target::CurrentThread, options);
    assert!(matches!(refused, Err(Error::Shortage(_))), "{} are held", all.len());
    assert_eq!(session.census(), Default::default());
}

#[test]
fn every_cpu_is_watched() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    skip_unless!(needs("root", "the right to count whole CPUs", may_count_cpus(&session)));
    for options in [WatchOptions::default(), rows()] {
        let mut watch = Watch::open(&session, vec![word.clone()], &Target::Cpus(CpuChoice::All), options).unwrap();
        let all_writers = writers(4, &WORD, 5);
        let tids: Vec<i32> = all_writers.threads.iter().map(|(tid, _)| *tid).collect();
        all_writers.run();
        let seen = hits(watch.finish().unwrap());
        for tid in tids {
            assert_eq!(seen.iter().filter(|hit| hit.tid == tid).count(), 5);
        }
        assert!(watch.count(0).unwrap().value >= 20);
    }
}

#[test]
fn a_target_that_is_gone_is_an_error() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let gone = writers(1, &WORD, 1);
    let tid = gone.threads[0].0;
    gone.run();
    let error = |target: &Target<'_>| match Watch::open(&session, vec![word.clone()], target, counts()) {
        Ok(_) => panic!("{target:?} was watched"),
        Err(error) => error.to_string(),
    };
    assert!(error(&Target::Threads(vec![tid])).contains("no such task"), "{}", error(&Target::Threads(vec![tid])));
    assert!(error(&Target::Processes(vec![i32::MAX])).contains("no task"));
    let without_bytes = WatchTarget { len: 0, ..word.clone() };
    let empty = Watch::open(&session, vec![without_bytes], &Target::CurrentThread, counts()).err().unwrap();
    assert!(matches!(empty, Error::WatchTarget(_)), "{empty}");
    assert_eq!(session.census(), Default::default());
}

#[test]
fn no_child_inherits_where_that_is_not_wanted() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let options = WatchOptions { inherit: Inherit::None, across_exec: AcrossExec::Keep, ..WatchOptions::default() };
    let watch = Watch::open(&session, vec![word], &Target::CurrentThread, options).unwrap();
    writers(1, &WORD, 3).run();
    write(&WORD, 1);
    assert_eq!(watch.count(0).unwrap().value, 1);
}

/// Writes on CPU 1, as soon as this thread may go there: where CPUs are handed out by cgroups, that is told later than that the CPU
/// is online.
fn write_on_cpu_1(word: &AtomicU64, value: u64) {
    let _visitor = eventually("a thread may go to CPU 1", || {
        let mut visitor = CpuVisitor::new();
        (visitor.visit(1) == Placement::Moved).then_some(visitor)
    });
    write(word, value);
}

/// A CPU that goes and comes back is watched again, and so is one that was not there at the beginning.
#[test]
fn cpus_that_come_are_watched() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    skip_unless!(own_process());
    // Always in this order.
    let Some(switch) = CpuSwitch::take() else { return };
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let own = std::process::id().cast_signed();
    for target in [Target::Cpus(CpuChoice::All), Target::Processes(vec![own])] {
        for (there_at_first, options) in [true, false]
            .into_iter()
            .flat_map(|there| [WatchOptions::default(), values(), rows()].map(|how| (there, how)))
        {
            switch.turn(if there_at_first { "1" } else { "0" });
            let session = if there_at_first { session.clone() } else { Session::new().unwrap() };
            let mut watch = Watch::open(&session, vec![word.clone()], &target, options).unwrap();
            let mut expected = 0;
            if there_at_first {
                write_on_cpu_1(&WORD, 1);
                expected += 1;
                switch.turn("0");
                watch.follow_cpus().unwrap();
            }
            switch.turn("1");
            let began = std::time::Instant::now();
            while !session.online().contains(1) {
                watch.follow_cpus().unwrap();
                assert!(began.elapsed().as_secs() < 60, "CPU 1 was not noticed");
            }
            watch.follow_cpus().unwrap();
            write_on_cpu_1(&WORD, 2);
            expected += 1;
            let seen = hits(watch.finish().unwrap());
            let there = seen.iter().filter(|hit| hit.cpu == 1 && hit.pid == own).count();
            assert_eq!(there, expected, "{target:?}, there at first: {there_at_first}: {seen:#?}");
            assert_eq!(watch.count(0).unwrap().value, seen.len() as u64);
            // A program that had no ring on the CPU that came would have no value.
            let own = seen.iter().filter(|hit| hit.pid == own);
            if matches!(options.detail, WatchDetail::Values { .. }) && watch.values() == ValuesFrom::Hit {
                own.for_each(|hit| assert_ne!(hit.value, HitValue::Unreadable, "{hit:?}"));
            }
        }
    }
}
