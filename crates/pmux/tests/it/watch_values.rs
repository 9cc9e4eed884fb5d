//! What stood at a watched address: at the hit, where a program can look there, and later.

use crate::common::watching::{all_watched, exactly, hits, session, values, watch_target, watched, write};
use crate::common::{debug_registers, needs, skip_unless};
use pmux::event::Access;
use pmux::watch::{
    Condition, ConditionAnswer, Hit, HitValue, ValueTiming, ValuesFrom, Watch, WatchDetail, WatchOptions, WatchTarget,
};
use pmux::{Session, Target};
use pmux_testkit::late_hits;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

fn later() -> WatchOptions {
    WatchOptions { timing: ValueTiming::Later, ..values() }
}

fn own(session: &Session, watch_targets: Vec<WatchTarget>, options: WatchOptions) -> Watch {
    Watch::open(session, watch_targets, &Target::CurrentThread, options).unwrap()
}

/// Whether programs look at the hit.
fn looks(watch: &Watch) -> bool {
    match watch.values() {
        ValuesFrom::Hit => true,
        other => needs("bpf", &format!("BPF programs ({other:?})"), false),
    }
}

fn chain(seen: &[Hit]) -> Vec<(Option<u64>, Option<u64>)> {
    seen.iter().map(|hit| (hit.value.before(), hit.value.now())).collect()
}

#[test]
fn values_that_are_read_later_are_overtaken() {
    static WORD: AtomicU64 = AtomicU64::new(5);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let mut watch = own(&session, vec![word], later());
    assert_eq!(watch.values(), ValuesFrom::Memory { why: None });
    write(&WORD, 6);
    // Taken in at once, told later.
    let mut seen = watch.take().unwrap();
    write(&WORD, 7);
    write(&WORD, 8);
    seen.extend(watch.finish().unwrap());
    let seen = hits(seen);
    assert_eq!(chain(&seen), [(Some(5), Some(6)), (None, None), (Some(6), Some(8))]);
    assert_eq!(seen[1].value, HitValue::Overtaken);
}

#[test]
fn values_at_the_hit_are_never_overtaken() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let (watch, seen) = exactly(|| {
        WORD.store(0, Ordering::Relaxed);
        let mut watch = own(&session, vec![word.clone()], values());
        (1..=2000).for_each(|value| write(&WORD, value));
        watch.disarm().unwrap();
        let seen = hits(watch.finish().unwrap());
        (watch, seen)
    });
    skip_unless!(looks(&watch));
    assert_eq!((seen.len(), watch.lost(), watch.unseen().unwrap()), (2000, 0, 0));
    for (seen, value) in seen.iter().zip(1..) {
        assert_eq!((seen.value.before(), seen.value.now()), (Some(value - 1), Some(value)), "{seen:?}");
        assert_eq!(seen.tid, pmux_linux::current_tid());
        assert!(!seen.callers.is_empty(), "the record of a program has its call chain: {seen:?}");
    }
    drop(watch);
    assert_eq!(session.census(), Default::default());
}

/// Bytes of each length; a spot over several registers is one number where it can be one.
#[test]
fn values_have_the_length_of_the_target() {
    #[repr(align(16))]
    struct Bytes([AtomicU8; 24]);
    static BYTES: Bytes = Bytes([const { AtomicU8::new(0x11) }; 24]);
    let Some(_registers) = debug_registers() else { return };
    let at = |index: usize, len: u64| {
        let address = std::ptr::from_ref(&BYTES.0[index]) as u64;
        WatchTarget { name: format!("{index}/{len}"), address, len, access: Access::WRITE }
    };
    let Some(session) = session(&at(0, 1)) else { return };
    // The last one takes two registers, and the byte that is written is in the second.
    for (index, len, written, before) in [
        (3, 1, 3, 0x11),
        (2, 2, 3, 0x1111),
        (4, 4, 6, 0x1111_1111),
        (8, 8, 15, 0x1111_1111_1111_1111_u64),
        (12, 8, 17, 0x1111_1111_1111_1111),
    ] {
        let mut watch = own(&session, vec![at(index, len)], values());
        skip_unless!(looks(&watch));
        std::hint::black_box(&BYTES.0[written]).store(0x2f, Ordering::Relaxed);
        let seen = hits(watch.finish().unwrap());
        let shift = 8 * (written - index);
        let now = before & !(0xff << shift) | 0x2f << shift;
        assert_eq!(chain(&seen), [(Some(before), Some(now))], "{index}/{len}");
        std::hint::black_box(&BYTES.0[written]).store(0x11, Ordering::Relaxed);
    }
}

#[test]
fn reads_see_what_is_there() {
    static WORD: AtomicU64 = AtomicU64::new(77);
    let Some(_registers) = debug_registers() else { return };
    let word = WatchTarget { access: Access::READ | Access::WRITE, ..watch_target("WORD", &WORD) };
    let Some(session) = session(&word) else { return };
    let mut watch = own(&session, vec![word], values());
    skip_unless!(looks(&watch));
    assert_eq!(std::hint::black_box(&WORD).load(Ordering::Relaxed), 77);
    let seen = hits(watch.finish().unwrap());
    assert_eq!(chain(&seen), [(Some(77), Some(77))]);
}

/// A thread's values as it wrote them; and each hit of each thread is told.
#[test]
fn threads_have_values_too() {
    static WORDS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    let Some((_registers, session, watch_targets)) = all_watched(&WORDS) else { return };
    let mut watch = own(&session, watch_targets, values());
    skip_unless!(looks(&watch));
    let writer = |index: usize| {
        std::thread::spawn(move || {
            (1..=300).for_each(|value| write(&WORDS[index], value));
            pmux_linux::current_tid()
        })
    };
    let writers: Vec<_> = (0..2).map(writer).collect();
    let tids: Vec<i32> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let seen = hits(watch.finish().unwrap());
    for (watch_target, tid) in tids.into_iter().enumerate() {
        let seen: Vec<Hit> = seen.iter().filter(|hit| hit.watch_target == watch_target).cloned().collect();
        assert!(seen.iter().all(|hit| hit.tid == tid), "{seen:?}");
        let expected: Vec<_> = (1..=300).map(|value| (Some(value - 1), Some(value))).collect();
        assert_eq!(chain(&seen), expected);
    }
}

/// What is written in the tests of conditions.
fn story() -> impl Iterator<Item = u64> {
    (0..300_u64).map(|step| match step % 7 {
        0 => step,
        1 => u64::MAX - step,
        2 => 42,
        3 => step << 32,
        4 => 41,
        5 => 1 << 63 | step,
        _ => step / 7,
    })
}

/// A condition is the same question for the kernel and for us.
#[test]
fn conditions_mean_the_same_in_the_kernel() {
    static WORD: AtomicU64 = AtomicU64::new(9);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let watch_len = |len: u64, condition: Option<Condition>| {
        let (watch, seen) = exactly(|| {
            WORD.store(9, Ordering::Relaxed);
            let watch_targets = vec![WatchTarget { len, ..word.clone() }];
            let mut watch = match condition.clone() {
                Some(condition) => {
                    Watch::open_where(&session, watch_targets, &Target::CurrentThread, values(), condition).unwrap()
                }
                None => own(&session, watch_targets, values()),
            };
            story().for_each(|value| write(&WORD, value));
            watch.disarm().unwrap();
            let seen = hits(watch.finish().unwrap());
            (watch, seen)
        });
        assert_eq!((watch.count(0).unwrap().value, watch.unseen().unwrap(), watch.undecided()), (300, 0, 0));
        (seen, watch)
    };
    let (tid, pid) = (pmux_linux::current_tid(), std::process::id());
    let mut texts: Vec<String> = [
        "value == 42",
        "value != 42",
        "value == -1 || value == -2",
        "old == 41 && value > 0x8000_0000",
        "changed",
        "!changed",
        "value < old",
        "value <= old",
        "value >= old",
        "value - old == 1",
        "-value == old + 7",
        "value & 1",
        "!(value & 0xff) && cpu >= 0",
        "value & old == 32",
        "kernel",
        "!kernel && ip > 4096",
        "(value > 10 && value < 50) || (old > 10 && old < 20) || value == 0x8000_0000_0000_0005",
        "value + old < value",
    ]
    .map(str::to_owned)
    .into();
    texts.push(format!("tid == {tid} && value == 41"));
    texts.push(format!("tid != {tid} || pid == {pid} && old == 42"));
    // Deeper than a program's stack: then it is asked here.
    texts.push(format!("{}value == 42{}", "(0 + ".repeat(60), ")".repeat(60)));
    texts.push((0..60).map(|number| format!("value == {number}")).collect::<Vec<_>>().join(" || "));
    for len in [8, 2] {
        let (all, watch) = watch_len(len, None);
        skip_unless!(looks(&watch));
        drop(watch);
        for text in &texts {
            let condition: Condition = text.parse().unwrap();
            let meant = |hit: &&Hit| condition.ask(hit, len) == ConditionAnswer::Yes;
            let expected: Vec<Hit> = all.iter().filter(meant).cloned().collect();
            let (reported, _watch) = watch_len(len, Some(condition.clone()));
            assert_eq!(chain(&reported), chain(&expected), "{len} bytes: {text}");
        }
    }
}

/// Misses would fill any ring; they don't even reach it.
#[test]
fn what_a_condition_excludes_takes_no_room() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let options = WatchOptions { detail: WatchDetail::Values { max_stack: 32 }, ..WatchOptions::default() };
    // Known in front of an access, too.
    let condition = "old == 77777".parse().unwrap();
    let mut watch = Watch::open_where(&session, vec![word], &Target::CurrentThread, options, condition).unwrap();
    skip_unless!(looks(&watch));
    let times = 150_000;
    (0..times).for_each(|value| write(&WORD, value));
    watch.disarm().unwrap();
    let seen = hits(watch.finish().unwrap());
    assert_eq!(chain(&seen), [(Some(77_777), Some(77_778))]);
    let told = watch.count(0).unwrap().value + late_hits();
    assert_eq!((told, watch.unseen().unwrap(), watch.lost()), (times, 0, 0));
}

/// A condition on hits one by one makes no sense of hits that are only counted.
#[test]
fn a_watch_that_only_counts_has_no_condition() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let options = WatchOptions { detail: WatchDetail::Counts, ..WatchOptions::default() };
    let condition = "cpu == 0".parse().unwrap();
    let refused = Watch::open_where(&session, vec![word], &Target::CurrentThread, options, condition);
    assert!(refused.err().unwrap().to_string().contains("only to be counted"));
}

/// Without programs, a condition is asked of what was read later, and what was not read in time is a number.
#[test]
fn what_was_overtaken_is_undecided() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let Some((_registers, session, word)) = watched(&WORD) else { return };
    let condition = "value == 3".parse().unwrap();
    let mut watch = Watch::open_where(&session, vec![word], &Target::CurrentThread, later(), condition).unwrap();
    (1..=3).for_each(|value| write(&WORD, value));
    let seen = hits(watch.finish().unwrap());
    assert_eq!(seen.iter().map(|hit| hit.value.now()).collect::<Vec<_>>(), [Some(3)]);
    assert_eq!((watch.undecided(), watch.count(0).unwrap().value), (2, 3));
}
