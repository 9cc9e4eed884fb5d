//! All interleavings of two writers and a reader, on small rings.
//!
//! What it is: runs under loom, which also tries every old value that a load may bring. Writers are threads: an interrupt
//! that returns before the interrupted call goes on is one of their interleavings.

use super::super::*;
use super::{numbers, record};
use crate::id::Nanos;
use core::sync::atomic::Ordering;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;
use std::sync::Arc;
use std::vec::Vec;

struct Checked(AtomicU64);

impl Word for Checked {
    /// Each further one multiplies what is tried.
    const TRIES: u32 = 1;

    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    fn load(&self, ordering: Ordering) -> u64 {
        self.0.load(ordering)
    }
    fn store(&self, value: u64, ordering: Ordering) {
        self.0.store(value, ordering);
    }
    fn compare_exchange(&self, from: u64, to: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(from, to, success, failure)
    }
    fn fetch_add(&self, value: u64, ordering: Ordering) -> u64 {
        self.0.fetch_add(value, ordering)
    }
    fn fetch_max(&self, value: u64, ordering: Ordering) -> u64 {
        self.0.fetch_max(value, ordering)
    }
    fn swap(&self, value: u64, ordering: Ordering) -> u64 {
        self.0.swap(value, ordering)
    }
    fn fence(ordering: Ordering) {
        fence(ordering);
    }
}

type Pages = Arc<HeapPages<Checked>>;

fn ring<M: Mode>(words: usize, setup: RingSetup) -> (Arc<Writer<Pages, M>>, Pages) {
    let pages = Arc::new(HeapPages::new(words));
    (Arc::new(Writer::new(Arc::clone(&pages), setup).unwrap()), pages)
}

/// Tries everything, with so many changes of threads that nothing forces; with more, if `PMUX_MODEL_CHANGES` says so.
fn model(changes: usize, test: impl Fn() + Send + Sync + 'static) {
    let asked = std::env::var("PMUX_MODEL_CHANGES").ok().and_then(|changes| changes.parse().ok());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = asked.max(Some(changes));
    builder.check(test);
}

/// What a reader has seen: numbers, and how many bytes it has missed.
#[derive(Default)]
struct Seen {
    numbers: Vec<u32>,
    missed_bytes: u64,
}

fn look(reader: &mut SnapshotReader<Pages>, seen: &mut Seen) {
    let sink = &mut |piece: Piece<'_>| match piece {
        Piece::Records { bytes, .. } => seen.numbers.extend(numbers(bytes)),
        Piece::Missed { bytes, .. } => seen.missed_bytes += bytes,
    };
    let _ = reader.read(sink).unwrap();
    assert!(reader.missed_records() <= Some(seen.missed_bytes / 16), "it counts what it has not missed");
}

/// Writes records of two words with these numbers.
fn write<M: Mode>(writer: &Writer<Pages, M>, numbers: &[u32]) {
    for &number in numbers {
        let _ = writer.write(&record(number, 16), Nanos(u64::from(number)));
    }
}

/// What is in the ring when no thread writes: whole records, the newest at the end.
fn rest(pages: &Pages) -> Vec<u32> {
    let mut whole = Seen::default();
    look(&mut SnapshotReader::from_oldest(Arc::clone(pages)), &mut whole);
    assert_eq!(whole.missed_bytes, 0);
    whole.numbers
}

/// Nothing comes twice; each writer's records are in order.
fn check_order(seen: &[u32]) {
    for writer in [10..20, 20..30] {
        let own: Vec<u32> = seen.iter().copied().filter(|number| writer.contains(number)).collect();
        assert!(own.is_sorted_by(|a, b| a < b), "{seen:?}");
    }
}

/// 48 or 64 bytes go through a ring of 32.
#[test]
fn two_writers_leave_whole_records() {
    model(2, || {
        let (writer, pages) = ring::<Overwrite>(4, RingSetup::default());
        let other = Arc::clone(&writer);
        let thread = thread::spawn(move || write(&other, &[10, 11]));
        write(&writer, &[20, 21]);
        thread.join().unwrap();
        let (whole, tally) = (rest(&pages), writer.tally());
        check_order(&whole);
        assert_eq!(tally.records + tally.lost.records(), 4);
        assert_eq!(tally.lost.of(LossReason::Crowded).records, tally.lost.records());
        assert!(!whole.is_empty() && tally.records - whole.len() as u64 == tally.tail / 16, "{whole:?}, {tally:?}");
    });
}

/// The newest record overwrites the oldest while a reader looks.
#[test]
fn a_reader_meets_whole_records_while_others_are_overwritten() {
    model(4, || {
        let (writer, pages) = ring::<Overwrite>(4, RingSetup::default());
        write(&writer, &[10]);
        let mut follower = SnapshotReader::from_oldest(pages);
        let thread = thread::spawn(move || write(&writer, &[11, 12]));
        let mut seen = Seen::default();
        look(&mut follower, &mut seen);
        thread.join().unwrap();
        look(&mut follower, &mut seen);
        let seen = seen.numbers;
        check_order(&seen);
        assert_eq!((seen.last(), follower.missed_records()), (Some(&12), Some(3 - seen.len() as u64)), "{seen:?}");
    });
}

/// A reader looks at a record that fills the ring. When it gives way, there is room for those of two writers.
#[test]
fn a_reader_meets_whole_records_of_two_writers() {
    // Each of thousands of runs ends by unwinding, which the hooks of shuttle in this process would print.
    if !pmux_testkit::own_process() {
        return;
    }
    model(1, || {
        let (writer, pages) = ring::<Overwrite>(4, RingSetup::default());
        assert!(writer.write(&record(10, 32), Nanos(0)).is_ok());
        let (other, mut follower) = (Arc::clone(&writer), SnapshotReader::from_oldest(Arc::clone(&pages)));
        let (one, two) = (thread::spawn(move || write(&other, &[11])), Arc::clone(&writer));
        let reading = thread::spawn(move || {
            let mut seen = Seen::default();
            look(&mut follower, &mut seen);
            (follower, seen)
        });
        write(&two, &[20]);
        one.join().unwrap();
        let (mut follower, mut seen) = reading.join().unwrap();
        look(&mut follower, &mut seen);
        let seen = seen.numbers;
        check_order(&seen);
        let tally = writer.tally();
        assert_eq!(tally.records + tally.lost.records(), 3);
        assert_eq!(follower.missed_records(), Some(tally.records - seen.len() as u64), "{seen:?}");
    });
}

/// The exclusive reader gives room back while two write.
#[test]
fn a_forward_ring_loses_nothing_unnoticed() {
    model(2, || {
        let (writer, pages) = ring::<Forward>(4, RingSetup { wakeup: Wakeup::Records(1), labels: None });
        write(&writer, &[10]);
        let (one, other) = (Arc::clone(&writer), Arc::clone(&writer));
        let mut reader = Reader::new(Taking(pages));
        let one = thread::spawn(move || write(&one, &[11]));
        let other = thread::spawn(move || write(&other, &[20]));
        let mut seen = Vec::new();
        let mut drain = |seen: &mut Vec<u32>| reader.drain(&mut |bytes| seen.push(super::number(bytes))).unwrap();
        drain(&mut seen);
        one.join().unwrap();
        other.join().unwrap();
        drain(&mut seen);
        check_order(&seen);
        let tally = writer.tally();
        assert_eq!((tally.records, tally.bad_tail), (seen.len() as u64, 0));
        assert_eq!(tally.records + tally.lost.of(LossReason::Full).records, 3);
    });
}
