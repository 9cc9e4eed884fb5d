//! The flight recorder on this kernel: nothing is missing, every record is whole, others read the files.
//!
//! Whether something is missing is counted: [`Storm`] makes system calls that carry a number, each one more than the last.
//!
//! **Invariant:** no test depends on how fast the machine is: where rings must hold something, it is made to be little.
#![allow(clippy::unwrap_used)]

mod common;

#[path = "common/perf_data.rs"]
mod perf_data;

use common::{events, may_count_cpus, needs, session};
use perf_data::{Content, perf_script};
use pmux::flight::{Cause, Flight, FlightOptions, Keeping, Requested, Snapshot};
use pmux::{CpuChoice, EventList, Session, Target};
use pmux_linux::affinity::{CpuVisitor, Placement};
use pmux_linux::cpus::Cpus;
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const CALL: &str = "syscalls:sys_enter_lseek";
/// Where the number stands in what the tracepoint writes.
const NUMBER_AT: usize = 24;
/// How long the record of a call is.
const RECORD_BYTES: u64 = 96;

fn role(name: &str, _: &str) {
    panic!("there is no role {name}");
}

/// A thread that makes system calls with numbers, from 1 on: as fast as it can, but no further than it may.
struct Storm {
    tid: i32,
    last: Arc<AtomicU64>,
    may: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Storm {
    fn begin() -> Self {
        let (last, may) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (say, limit) = (Arc::clone(&last), Arc::clone(&may));
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // On one CPU: whoever moves leaves old numbers in the ring of another.
            let mut pinned = CpuVisitor::new();
            let online = Cpus::system().online().unwrap();
            assert!(online.iter().any(|cpu| pinned.visit(cpu) == Placement::Moved));
            send.send(pmux_linux::current_tid()).unwrap();
            let mut null = File::open("/dev/null").unwrap();
            for number in 1.. {
                while limit.load(Ordering::Acquire) < number {
                    std::thread::sleep(Duration::from_micros(100));
                }
                if limit.load(Ordering::Acquire) == u64::MAX {
                    break;
                }
                null.seek(SeekFrom::Start(number)).unwrap();
                say.store(number, Ordering::Release);
            }
        });
        Self { tid: receive.recv().unwrap(), last, may, thread: Some(thread) }
    }

    fn reached(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// It may make so many calls more.
    fn allow(&self, calls: u64) {
        self.may.fetch_add(calls, Ordering::AcqRel);
    }

    /// Waits until it has made so many calls in all.
    fn wait_for(&self, calls: u64) {
        let end = Instant::now() + PATIENCE;
        while self.reached() < calls {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
    }

    fn run(&self, calls: u64) {
        self.allow(calls);
        self.wait_for(self.may.load(Ordering::Acquire));
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.may.store(u64::MAX, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The numbers of a storm's calls in a file, in the order of their times.
fn numbers(content: &Content, storm: &Storm) -> Vec<u64> {
    let own = content.samples.iter().filter(|sample| sample.tid == storm.tid && sample.raw.len() >= NUMBER_AT + 8);
    own.map(|sample| sample.word(NUMBER_AT)).collect()
}

fn assert_whole(numbers: &[u64]) {
    let hole = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1);
    assert_eq!(hole, None, "{} numbers, the first {:?}", numbers.len(), numbers.first());
}

fn bytes(folder: &Path, bytes: u64) -> FlightOptions {
    FlightOptions { keep: Keeping::Bytes(bytes), ..FlightOptions::into_directory(folder) }
}

/// A session, and a call that is traced on the whole machine.
fn able() -> Option<(Session, EventList)> {
    let session = session()?;
    if !needs("privileges", "the right to record CPUs", may_count_cpus(&session)) {
        return None;
    }
    let parsed = EventList::parse(&[CALL], session.catalog());
    needs("tracefs", "the tracepoint of a system call", parsed.is_ok()).then(|| (session, parsed.unwrap()))
}

fn all() -> Target<'static> {
    Target::Cpus(CpuChoice::All)
}

/// The storm and nobody else.
fn only(storm: &Storm) -> Target<'static> {
    Target::Threads(vec![storm.tid])
}

fn open(session: &Session, events: EventList, target: &Target<'_>, options: FlightOptions) -> Flight {
    let flight = Flight::open(session, events, &[], target, options).unwrap_or_else(|error| panic!("{error}"));
    flight.enable().unwrap();
    flight
}

/// Waits for so many snapshots.
fn wait(flight: &mut Flight, count: usize) -> Vec<Snapshot> {
    let mut done = Vec::new();
    let end = Instant::now() + PATIENCE;
    while done.len() < count {
        assert!(Instant::now() < end, "{} of {count} snapshots", done.len());
        done.extend(
            flight.tick().unwrap().into_iter().map(|snapshot| snapshot.unwrap_or_else(|error| panic!("{error}"))),
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    done
}

#[test]
fn between_two_snapshots_under_a_storm_nothing_is_missing() {
    let Some((session, events)) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    // 87,000 calls of 96 bytes.
    let storm = Storm::begin();
    let mut flight = open(&session, events, &only(&storm), bytes(folder.path(), 8 << 20));
    storm.run(200_000);
    // While the rings are copied it goes on, but not so far that nothing would be left.
    storm.allow(40_000);
    storm.wait_for(200_001);
    assert_eq!(flight.request(Cause::now("the first")), Requested::Begun(1));
    storm.allow(10_000);
    // While the first is being written, if that takes so long.
    assert_eq!(flight.request(Cause::now("the second")), Requested::Begun(2));
    storm.wait_for(250_000);
    let mut done = wait(&mut flight, 2);
    done.sort_by_key(|snapshot| snapshot.number);
    let [first, second] = [0, 1].map(|place: usize| numbers(&Content::read(&done[place].path), &storm));
    assert_whole(&first);
    assert_whole(&second);
    assert!(first[0] > 100_000 && *first.last().unwrap() > 200_000, "{first:?}");
    let gap: u64 = done[1].cpus.iter().filter_map(|cpu| cpu.gap_bytes).sum();
    assert_eq!((second[0].saturating_sub(first.last().unwrap() + 1), gap), (0, 0), "between the two");
    assert_eq!(done[1].previous.map(|(number, _)| number), Some(1));
    let shared = first.iter().filter(|number| **number >= second[0]).count() as u64;
    let overlap: u64 = done[1].cpus.iter().map(|cpu| cpu.overlap_bytes).sum();
    assert!(shared > 0 && overlap == shared * RECORD_BYTES, "{shared} numbers in both, {overlap} bytes");
}

#[test]
fn what_is_missing_between_two_snapshots_is_a_number() {
    let Some((session, events)) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let storm = Storm::begin();
    let mut flight = open(&session, events, &only(&storm), bytes(folder.path(), 1 << 20));
    let mut done = Vec::new();
    for round in 1..=3 {
        storm.run(20_000 * round);
        assert_eq!(flight.request(Cause::now("so it is")), Requested::Begun(round));
        done.extend(wait(&mut flight, 1));
    }
    let all: Vec<_> = done.iter().map(|snapshot| numbers(&Content::read(&snapshot.path), &storm)).collect();
    all.iter().for_each(|numbers| assert_whole(numbers));
    assert_eq!(done[0].cpus.iter().find_map(|cpu| cpu.gap_bytes), None, "there was none before");
    for (pair, snapshot) in all.windows(2).zip(&done[1..]) {
        let missing = pair[1][0] - pair[0].last().unwrap() - 1;
        assert!(missing > 0, "a ring holds 10,922 of them");
        let gap: u64 = snapshot.cpus.iter().filter_map(|cpu| cpu.gap_bytes).sum();
        assert_eq!(gap, missing * RECORD_BYTES, "{missing} calls");
    }
}
