//! The flight recorder on this kernel: nothing is missing, every record is whole, others read the files.
//!
//! Whether something is missing is counted: [`Storm`] makes system calls that carry a number, each one more than the last.
//!
//! **Invariant:** no test depends on how fast the machine is: where rings must hold something, it is made to be little.

use crate::common::perf_data::{Content, perf_script};
use crate::common::{
    Killed, SetAtEnd, events, eventually, is_root, may_count_cpus, needs, role as program, session, skip_unless,
};
use pmux::flight::{
    Flight, FlightOptions, FlightSnapshot, Keeping, Lasted, Limits, Requested, SnapshotCause, is_snapshot,
};
use pmux::record::{Rate, RecordOptions};
use pmux::trigger::{EventSets, SwitchRequest};
use pmux::{CpuChoice, EventList, Nanos, Session, Target};
use pmux_linux::affinity::{CpuVisitor, Placement};
use pmux_linux::cpus::Cpus;
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const CALL: &str = "syscalls:sys_enter_lseek";
/// Where the number stands in what the tracepoint writes.
const NUMBER_AT: usize = 24;
/// How long the record of a call is.
const RECORD_BYTES: u64 = 96;

pub(crate) fn role(name: &str, arguments: &str) {
    match name {
        // snapshots:FOLDER, one after the other, until it is killed
        "snapshots" => snapshots_without_end(Path::new(arguments)),
        // refused:FOLDER, where no snapshot can be written, until there is a file `FOLDER.room`
        "refused" => refused_at_first(Path::new(arguments)),
        _ => panic!("there is no role {name}"),
    }
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
        Self::on(0)
    }

    /// On the first CPU that it may run on, or one behind it.
    fn on(place: usize) -> Self {
        let (last, may) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (newest, limit) = (Arc::clone(&last), Arc::clone(&may));
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // On one CPU: a thread that moves leaves old numbers in the ring of another.
            let mut pinned = CpuVisitor::new();
            let online = Cpus::system().online().unwrap();
            assert!(online.iter().skip(place).any(|cpu| pinned.visit(cpu) == Placement::Moved));
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
                newest.store(number, Ordering::Release);
            }
        });
        Self { tid: receive.recv().unwrap(), last, may, thread: Some(thread) }
    }

    fn reached(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    fn allow(&self, calls: u64) {
        self.may.fetch_add(calls, Ordering::AcqRel);
    }

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
    // Each of what is no clock.
    let record = RecordOptions { rate: Rate::Period(1), ..RecordOptions::default() };
    FlightOptions { record, keep: Keeping::Bytes(bytes), ..FlightOptions::into_directory(folder) }
}

/// A session, and a call that is traced on the whole machine; a directory for snapshots, and a storm of that call.
fn able() -> Option<(Session, EventList, TempDir, Storm)> {
    let session = session()?;
    if !needs("privileges", "the right to record CPUs", may_count_cpus(&session)) {
        return None;
    }
    let parsed = EventList::parse(&[CALL], session.catalog());
    needs("tracefs", "the tracepoint of a system call", parsed.is_ok())
        .then(|| (session, parsed.unwrap(), tempfile::tempdir().unwrap(), Storm::begin()))
}

fn all() -> Target<'static> {
    Target::Cpus(CpuChoice::All)
}

/// The thread of the storm and no other.
fn only(storm: &Storm) -> Target<'static> {
    Target::Threads(vec![storm.tid])
}

fn open(session: &Session, events: EventList, target: &Target<'_>, options: FlightOptions) -> Flight {
    let mut flight = Flight::open(session, events, &[], target, options).unwrap_or_else(|error| panic!("{error}"));
    flight.enable().unwrap();
    flight
}

/// Of page faults; not enabled.
fn of_this_thread(session: &Session, options: FlightOptions) -> Flight {
    Flight::open(session, events(session, "page-faults:u"), &[], &Target::CurrentThread, options).unwrap()
}

fn wait(flight: &mut Flight, count: usize) -> Vec<FlightSnapshot> {
    let mut done = Vec::new();
    eventually("the snapshots are written", || {
        let new = flight.tick().unwrap().into_iter();
        done.extend(new.map(|snapshot| snapshot.unwrap_or_else(|error| panic!("{error}"))));
        (done.len() >= count).then_some(())
    });
    done
}

fn snapshot(flight: &mut Flight, cause: &str) -> FlightSnapshot {
    flight.request(SnapshotCause::now(cause));
    wait(flight, 1).remove(0)
}

#[test]
fn between_two_snapshots_under_a_storm_nothing_is_missing() {
    let Some((session, events, folder, storm)) = able() else { return };
    // 87,000 calls of 96 bytes.
    let mut flight = open(&session, events, &only(&storm), bytes(folder.path(), 8 << 20));
    storm.run(200_000);
    // While the rings are copied it goes on, but not so far that nothing would be left.
    storm.allow(40_000);
    storm.wait_for(200_001);
    assert_eq!(flight.request(SnapshotCause::now("the first")), Requested::Begun(1));
    storm.allow(10_000);
    // While the first is being written, if that takes so long.
    assert_eq!(flight.request(SnapshotCause::now("the second")), Requested::Begun(2));
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
    let Some((session, events, folder, storm)) = able() else { return };
    let mut flight = open(&session, events, &only(&storm), bytes(folder.path(), 1 << 20));
    let mut done: Vec<FlightSnapshot> = Vec::new();
    for round in 1..=3 {
        storm.run(20_000 * round);
        assert_eq!(flight.request(SnapshotCause::now("so it is")), Requested::Begun(round));
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

/// Takes snapshots of this thread's page faults, as fast as they are written.
fn snapshots_without_end(folder: &Path) {
    let session = session().unwrap();
    let limits = Limits { max_snapshots: Some(5), max_disk_bytes: None };
    let mut flight = of_this_thread(&session, FlightOptions { limits, ..bytes(folder, 1 << 20) });
    flight.enable().unwrap();
    loop {
        flight.request(SnapshotCause::now("again"));
        let pages = vec![1_u8; 1 << 20];
        std::hint::black_box(&pages);
        flight.finish().into_iter().for_each(|done| drop(done.unwrap()));
    }
}

/// Says what became of two snapshots: one that has no room, and one when there is some.
fn refused_at_first(folder: &Path) {
    let session = session().unwrap();
    let mut flight = of_this_thread(&session, bytes(folder, 1 << 20));
    flight.enable().unwrap();
    let pages = vec![1_u8; 40 << 20];
    std::hint::black_box(&pages);
    for _ in 0..2 {
        flight.request(SnapshotCause::now("is there room?"));
        for done in flight.finish() {
            match done {
                Ok(snapshot) => println!("written {}", Content::read(&snapshot.path).samples.len()),
                Err(error) => println!("{error}"),
            }
        }
        println!("left {:?}", names(folder));
        let _ = std::fs::remove_file(folder.join("filler"));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn snapshots_in(folder: &Path) -> Vec<PathBuf> {
    names(folder).iter().map(|name| folder.join(name)).filter(|path| is_snapshot(path)).collect()
}

#[test]
fn others_read_the_files_without_a_complaint() {
    let Some(session) = session() else { return };
    skip_unless!(needs("privileges", "the right to record CPUs", may_count_cpus(&session)));
    let folder = tempfile::tempdir().unwrap();
    let parsed = |events: &[&str]| EventList::parse(events, session.catalog()).unwrap();
    let asked = parsed(&["cpu-clock/freq=999/", "context-switches", "page-faults"]);
    let mut flight = open(&session, asked, &all(), bytes(folder.path(), 256 << 10));
    // Linux 6.18 writes the ids of the recorder that came last into the samples of both.
    let others = parsed(&["context-switches/period=1/", "page-faults/period=1/"]);
    let _others = open(&session, others, &all(), bytes(folder.path(), 256 << 10));
    // Processes come and go, and the last one before the snapshot is one of them.
    for _ in 0..20 {
        assert!(program::command("touch:100").status().unwrap().success());
    }
    flight.mark(Nanos(pmux_linux::now_ns()), "all have gone");
    let done = snapshot(&mut flight, "a \"quoted\" cause\n");
    let content = Content::read(&done.path);
    assert_eq!(content.samples.len() as u64, done.samples);
    let clocks = content.samples.iter().filter(|sample| sample.event == 0);
    assert!(clocks.count() > 0 && content.maps.iter().any(|map| map.contains("/deps/it-")), "{:?}", content.maps.len());
    assert!(content.samples.is_sorted_by_key(|sample| sample.at_ns));
    // A task that has ended has its name all the same.
    // One that is on its way out has no number any more.
    let nameless = content.samples.iter().find(|sample| sample.tid > 0 && sample.comm.is_none());
    assert!(nameless.is_none(), "{nameless:?}");
    let (from, to) = done.covers.unwrap();
    assert!(from < to && to.0 <= pmux_linux::now_ns());
    let manifest = std::fs::read_to_string(&done.manifest).unwrap();
    for part in
        ["\"a \\\"quoted\\\" cause\\n\"", "all have gone", "\"cpu-clock", "covers_from_ns", "\"previous\": null"]
    {
        assert!(manifest.contains(part), "{part} in {manifest}");
    }
    if let Some(script) = perf_script(&done.path, &["-F", "comm,pid,tid,time,event,ip,sym"]) {
        let samples = script.lines().filter(|line| line.contains("page-faults") || line.contains("clock")).count();
        assert!(samples > 0, "{script}");
    }
}

/// CPUs are copied one after the other while all of them go on: what came after the first copy is of some of them only.
#[test]
fn nothing_is_younger_than_what_is_there_of_all_cpus() {
    let Some(session) = session() else { return };
    skip_unless!(may_count_cpus(&session));
    let folder = tempfile::tempdir().unwrap();
    let parsed = EventList::parse(&["context-switches/period=1/", "cpu-clock/freq=999/"], session.catalog()).unwrap();
    let mut flight = open(&session, parsed, &all(), bytes(folder.path(), 1 << 20));
    let stop = AtomicBool::new(false);
    let done: Vec<_> = std::thread::scope(|scope| {
        let _end = SetAtEnd(&stop);
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(10));
                }
            });
        }
        let request = |_| {
            std::thread::sleep(Duration::from_millis(20));
            snapshot(&mut flight, "now")
        };
        (0..5).map(request).collect()
    });
    for snapshot in done {
        let (_, to) = snapshot.covers.unwrap();
        let last = Content::read(&snapshot.path).samples.iter().map(|sample| sample.at_ns).max();
        assert!(snapshot.samples > 0 && last.is_some_and(|last| last <= to.0), "{last:?} of {to:?}");
        assert!(snapshot.cpus.iter().all(|cpu| cpu.last.is_none_or(|last| last <= to)), "{:?}", snapshot.cpus);
    }
}

/// The ring of one CPU was overwritten, that of another was not: what is older than the first one's oldest record is there of one only.
#[test]
fn nothing_is_older_than_what_is_there_of_all_cpus() {
    let Some((session, events, folder, busy)) = able() else { return };
    skip_unless!(needs("machine", "two CPUs", session.online().len() > 1));
    let quiet = Storm::on(1);
    let target = Target::Threads(vec![busy.tid, quiet.tid]);
    let mut flight = open(&session, events, &target, bytes(folder.path(), 1 << 20));
    // 10,922 calls are kept of each.
    quiet.run(100);
    busy.run(30_000);
    quiet.run(10);
    let first = snapshot(&mut flight, "one is full");
    quiet.run(20);
    busy.run(30_000);
    let done = [first, snapshot(&mut flight, "and again")];
    for (snapshot, quiets, left_out) in [(&done[0], &[101, 110], 100), (&done[1], &[0, 0], 130)] {
        let content = Content::read(&snapshot.path);
        let (busies, quiet) = (numbers(&content, &busy), numbers(&content, &quiet));
        assert_whole(&busies);
        assert!(busies.len() > 10_000, "{busies:?}");
        assert_eq!([quiet.first(), quiet.last()].map(|number| number.copied().unwrap_or(0)), *quiets);
        let (from, _) = snapshot.covers.unwrap();
        assert!(content.samples.iter().all(|sample| sample.at_ns >= from.0), "from {from:?}");
        assert_eq!(snapshot.cpus.iter().map(|cpu| cpu.left_out).sum::<u64>(), left_out);
        let manifest = std::fs::read_to_string(&snapshot.manifest).unwrap();
        assert!(
            manifest.contains(&format!("\"left_out_records\": {left_out}, \"unknown_id_samples\": 0,")),
            "{manifest}"
        );
    }
    // What came after the first and is left out is in neither; what is in the first only is not in both.
    let busies = done.iter().map(|snapshot| numbers(&Content::read(&snapshot.path), &busy)).collect::<Vec<_>>();
    let missing = busies[1][0] - busies[0].last().unwrap() - 1 + 20;
    assert_eq!(done[1].cpus.iter().filter_map(|cpu| cpu.gap_bytes).sum::<u64>(), missing * RECORD_BYTES);
    assert_eq!(done[1].cpus.iter().map(|cpu| cpu.overlap_bytes).sum::<u64>(), 0);
}

#[test]
fn an_empty_ring_makes_a_whole_file() {
    let Some(session) = session() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut flight = of_this_thread(&session, bytes(folder.path(), 64 << 10));
    let done = snapshot(&mut flight, "nothing was sampled");
    assert_eq!((done.samples, done.records, done.window), (0, 0, None));
    assert!(done.covers.is_some(), "that nothing happened is known");
    let content = Content::read(&done.path);
    assert!(content.samples.is_empty() && content.comms > 0);
    perf_script(&done.path, &[]);
    let held = flight.status().held;
    assert!(held.iter().all(|held| held.lasted == Lasted::SinceStart && held.used_bytes == 0), "{held:?}");
}

#[test]
fn what_comes_after_the_cause_is_in_it_and_what_was_there_stays() {
    let Some((session, events, folder, storm)) = able() else { return };
    let after = Duration::from_secs(1);
    // 10,922 calls, or half of that.
    let options = FlightOptions { after, ..bytes(folder.path(), 1 << 20) };
    let mut flight = open(&session, events, &only(&storm), options);
    storm.run(30_000);
    assert_eq!(flight.request(SnapshotCause::now("now")), Requested::Begun(1));
    assert_eq!(flight.request(SnapshotCause::now("and again")), Requested::Joined(1));
    // Many times what the ring holds, but looked after.
    let mut done = Vec::new();
    for _ in 0..20 {
        storm.run(3000);
        done.extend(flight.tick().unwrap());
        std::thread::sleep(Duration::from_millis(2));
        done.extend(flight.tick().unwrap());
    }
    let done = if done.is_empty() { wait(&mut flight, 1).remove(0) } else { done.remove(0).unwrap() };
    let numbers = numbers(&Content::read(&done.path), &storm);
    assert!(numbers[0] < 25_100, "what was there at the cause: {:?}", numbers.first());
    assert!(*numbers.last().unwrap() > 30_000, "what came after it: {:?}", numbers.last());
    let missing: u64 = done.cpus.iter().map(|cpu| cpu.missing_bytes).sum();
    if missing == 0 {
        assert_whole(&numbers);
    }
    assert_eq!(done.causes.len(), 2);
}

#[test]
fn a_span_makes_rings_grow_without_a_hole() {
    let Some((session, events, folder, storm)) = able() else { return };
    let span = Duration::from_secs(600);
    let options = FlightOptions {
        keep: Keeping::Span(span),
        most_ring_bytes: Some((16 << 20) * session.online().len() as u64),
        ..FlightOptions::into_directory(folder.path())
    };
    let mut flight = open(&session, events, &only(&storm), options);
    let first = flight.status().held.iter().map(|held| held.ring_bytes).max().unwrap();
    // Half of a small ring, in more than a second: a tick sees that ten minutes of this need more.
    let begun = Instant::now();
    while flight.status().held.iter().all(|held| held.ring_bytes == first) {
        assert!(begun.elapsed() < PATIENCE);
        if storm.reached() < 5_000 {
            storm.run(50);
        }
        std::thread::sleep(Duration::from_millis(10));
        assert!(flight.tick().unwrap().is_empty());
    }
    storm.run(20_000);
    let calls = storm.reached();
    let done = snapshot(&mut flight, "it has grown");
    let numbers = numbers(&Content::read(&done.path), &storm);
    assert_whole(&numbers);
    assert_eq!((numbers[0], *numbers.last().unwrap()), (1, calls), "from the old ring and the new one");
}

#[test]
fn sets_are_off_until_they_are_switched() {
    let Some((session, calls, folder, storm)) = able() else { return };
    let sets = [("fine".to_owned(), calls)];
    let always = events(&session, "page-faults:u");
    let mut flight = Flight::open(&session, always, &sets, &only(&storm), bytes(folder.path(), 1 << 20)).unwrap();
    flight.enable().unwrap();
    let mut named = EventSets::new(&session);
    flight.gather(&mut named);
    storm.run(100);
    assert!(named.request("fine", SwitchRequest::On).result.is_ok());
    storm.run(100);
    assert!(named.request("fine", SwitchRequest::Off).result.is_ok());
    storm.run(100);
    let done = snapshot(&mut flight, "between two switches");
    let content = Content::read(&done.path);
    assert_eq!(numbers(&content, &storm), (101..=200).collect::<Vec<_>>());
    assert!(content.events.iter().any(|name| name == CALL), "{:?}", content.events);
}

#[test]
fn a_hundred_causes_are_few_snapshots_and_old_ones_go() {
    let Some(session) = session() else { return };
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { max_snapshots: Some(2), max_disk_bytes: None };
    let mut flight = of_this_thread(&session, FlightOptions { limits, ..bytes(folder.path(), 64 << 10) });
    flight.enable().unwrap();
    for number in 0..100 {
        flight.request(SnapshotCause::now(format!("cause {number}")));
    }
    let done: Vec<FlightSnapshot> = flight.finish().into_iter().map(Result::unwrap).collect();
    let causes: usize = done.iter().map(|snapshot| snapshot.causes.len()).sum();
    assert_eq!(causes, 100, "each cause is in one");
    assert!(done.len() < 100);
    let left = snapshots_in(folder.path());
    assert!(
        left.len() <= 2 && left.contains(&done.iter().map(|snapshot| snapshot.path.clone()).max().unwrap()),
        "{left:?}"
    );
    left.iter().for_each(|path| drop(Content::read(path)));
    assert!(names(folder.path()).iter().all(|name| !name.ends_with(".tmp")));
    // The newest stays, however small the limit.
    drop(flight);
    let limits = Limits { max_snapshots: None, max_disk_bytes: Some(1) };
    let mut flight = of_this_thread(&session, FlightOptions { limits, ..bytes(folder.path(), 64 << 10) });
    let done = snapshot(&mut flight, "the only one");
    assert_eq!(done.deleted, left);
    assert_eq!(snapshots_in(folder.path()), [done.path]);
}

/// Killed when it has come this far, by what stands in the folder; `None` for any moment.
const STAGES: [Option<&str>; 4] = [Some(".data.tmp"), Some(".json.tmp"), Some(".json"), None];

#[test]
fn a_killed_recorder_leaves_whole_files_only() {
    skip_unless!(session().is_some());
    let folder = tempfile::tempdir().unwrap();
    for (round, stage) in STAGES.into_iter().cycle().take(12).enumerate() {
        let mut role = program::command(&format!("flight/snapshots:{}", folder.path().display()));
        let mut child = Killed(role.stdout(Stdio::null()).spawn().unwrap());
        let end = Instant::now() + PATIENCE;
        let before = snapshots_in(folder.path()).len();
        let come_so_far = || match stage {
            Some(stage) => names(folder.path())
                .iter()
                .any(|name| name.ends_with(stage) && (stage != ".json" || before == 0 || round > 0)),
            None => !snapshots_in(folder.path()).is_empty(),
        };
        while !come_so_far() {
            assert!(Instant::now() < end, "{stage:?} in {:?}", names(folder.path()));
            assert!(child.0.try_wait().unwrap().is_none(), "it has ended by itself");
        }
        std::thread::sleep(Duration::from_micros(u64::try_from(round).unwrap() * 137));
        drop(child);
        for path in snapshots_in(folder.path()) {
            Content::read(&path);
            let manifest = std::fs::read_to_string(path.with_extension("json")).unwrap();
            assert!(manifest.starts_with('{') && manifest.ends_with("}\n"), "{manifest}");
        }
    }
    // The next one cleans up: what is left are pairs.
    let _flight = of_this_thread(&session().unwrap(), bytes(folder.path(), 64 << 10));
    let names = names(folder.path());
    let data = names.iter().filter(|name| name.ends_with(".data")).count();
    let manifests = names.iter().filter(|name| name.ends_with(".json")).count();
    assert_eq!((data, manifests), (names.len() / 2, names.len() / 2), "{names:?}");
}

#[test]
fn a_full_disk_is_an_error_and_later_there_is_room() {
    skip_unless!(session().is_some() && needs("root", "root, who mounts", is_root()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    // In a name space of its own, which ends with the program.
    let mount = format!("mount -t tmpfs -o size=4m none '{path}' && head -c 4150000 /dev/zero > '{path}/filler'");
    let role = program::line(&format!("flight/refused:{path}")).replace('\'', "\"");
    let output = Command::new("unshare").args(["-m", "sh", "-c", &format!("{mount} && exec {role}")]).output();
    let Ok(output) = output.inspect_err(|error| println!("skipped: needs unshare ({error})")) else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    skip_unless!(needs("mounts", "the right to mount", output.status.success()));
    assert!(text.contains("snapshot 1 was not written") && text.contains("--max-disk"), "{text}");
    assert!(text.contains("left [\"filler\"]") && text.contains("written "), "{text}");
}
