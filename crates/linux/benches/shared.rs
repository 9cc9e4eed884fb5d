//! What reading through a service costs, beside reading by oneself.
//!
//! What it is: one event and a group of a task that sleeps, read in every way there is, in turns: a plain `read(2)` of its file, through an
//! engine that opened it itself, through an engine whose service passed the file, from the page, and by asking. The
//! service is the tests' own, in this process; it shares nothing, so its own figures are the kernel's and the socket's.
//!
//! **Invariant:** all ways are measured in the same run, in turns; what counts are the ratios.
//!
//! Cycles and instructions of this thread, of user mode and of the kernel, say the same as times, and say it on a machine that others
//! use as well; `-` where none are counted.
//!
//! `cargo bench -p pmux-linux --bench shared` prints a table. With `--test` (as `cargo test --benches` passes) or
//! `PMUX_BENCH_SMALL=1` everything runs once, small. A word names the ways that are wanted, beside the first of each table: `-- passed`.
#![allow(clippy::unwrap_used, dead_code)]

#[path = "../tests/it/served/fake.rs"]
mod fake;

use fake::{Fake, FakeBehavior, engine, faults};
use pmux_abi::attr::{Attr, AttrFlags, EventType, hw};
use pmux_engine::engine::{GroupHandle, GroupReading};
use pmux_engine::{EventId, GroupSpec, Target};
use pmux_linux::host::{KERNEL, LinuxEngine, LinuxHost};
use pmux_linux::shared::client::{Service, SocketPath};
use pmux_linux::shared::page::{Base, Entry, Page, PageWriter};
use pmux_linux::shared::wire::{Handle, TimedTotals, Totals};
use pmux_testkit::Killed;
use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() {
    let small = std::env::args().any(|arg| arg == "--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some();
    // Short rounds, many of them: who else is on the machine spoils some, and the median is of the others.
    let (rounds, times) = if small { (1, 10) } else { (2001, 250) };
    page(rounds, times);
    let sleeper = Killed(Command::new("sleep").arg("1000").spawn().unwrap());
    for events in [1, 3] {
        if !reading(&sleeper, events, rounds, times) {
            println!("skipped: needs performance events");
            return;
        }
    }
    opening(&sleeper, rounds.min(11), if small { 2 } else { 200 });
}

/// A group of so many events, read whole in every way. Returns whether it can be counted here.
fn reading(sleeper: &Killed, events: usize, rounds: usize, times: u64) -> bool {
    let plain = engine();
    plain.host().let_files_be_passed();
    let Some(own) = open(plain, target_of(sleeper), events) else { return false };
    let (mut with_files, _first) = shared(FakeBehavior::default(), sleeper, events);
    let (mut without_files, _second) =
        shared(FakeBehavior { no_files: true, ..FakeBehavior::default() }, sleeper, events);
    let file = own.engine.host().passable(own.engine.lease(own.first).unwrap()).unwrap();
    let mut file = File::from(file.as_fd().try_clone_to_owned().unwrap());
    let mut bytes = [0; 64];
    let mut direct = own;
    let mut ways: [(&str, u64, &mut dyn FnMut()); 4] = [
        ("read(2) of the event's file", times, &mut || _ = black_box(file.read(&mut bytes).unwrap())),
        ("an engine that opened it itself", times, &mut || direct.read()),
        ("an engine whose service passed the file", times, &mut || with_files.read()),
        ("an engine whose service is asked", times / 20 + 1, &mut || without_files.read()),
    ];
    println!("read whole, {events} of a group:");
    table(rounds, &mut ways);
    true
}

/// A read from the page: what the service has read last.
fn page(rounds: usize, times: u64) {
    let (mut writer, file) = PageWriter::make(64).unwrap();
    let page = Page::map(&file, 64).unwrap();
    let totals = Totals { value: 1, enabled_ns: 2, running_ns: 3 };
    let entry = Entry { handle: Handle(7), moment: TimedTotals { totals, time_ns: 4 }, base: Base::File(2, totals) };
    for index in 0..64 {
        writer.write(index, &entry);
    }
    let mut index = 0;
    let mut next = || {
        index = (index + 1) % 64;
        black_box(index)
    };
    let mut other = 0;
    let mut ways: [(&str, u64, &mut dyn FnMut()); 3] = [
        ("an entry of the page, cached value", times, &mut || _ = black_box(page.cached(next(), Handle(7)).unwrap())),
        ("an entry of the page, whole", times, &mut || {
            other = (other + 1) % 64;
            _ = black_box(page.read(black_box(other), Handle(7)).unwrap());
        }),
        ("writing an entry", times, &mut || writer.write(black_box(3), black_box(&entry))),
    ];
    table(rounds, &mut ways);
}

/// Opening and closing: by oneself, and by asking a service that opens it for this client alone.
fn opening(sleeper: &Killed, rounds: usize, times: u64) {
    let own = engine();
    let fake = Scene::new(FakeBehavior::default());
    let served = fake.engine();
    let open_and_close = |engine: &LinuxEngine| {
        let opened = engine.open(&GroupSpec::single(KERNEL, faults()), target_of(sleeper)).unwrap();
        engine.close(opened.group);
    };
    let mut ways: [(&str, u64, &mut dyn FnMut()); 2] = [
        ("open and close, by oneself", times, &mut || open_and_close(&own)),
        ("open and close, through the service", times, &mut || open_and_close(&served)),
    ];
    table(rounds, &mut ways);
}

/// The median of each way, and how it compares to the first.
fn table(rounds: usize, ways: &mut [(&str, u64, &mut dyn FnMut())]) {
    let work = Work::new();
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| name.contains(&wanted[..]));
    let mut ways: Vec<_> = ways.iter_mut().enumerate().filter(|(at, (name, ..))| *at == 0 || is_wanted(name)).collect();
    let mut seen: Vec<[Vec<f64>; 1 + WORK]> = vec![Default::default(); ways.len()];
    for _ in 0..rounds {
        for (at, (_, (_, times, way))) in ways.iter_mut().enumerate() {
            let (before, started) = (work.done(), Instant::now());
            for _ in 0..*times {
                way();
            }
            let (time, after) = (started.elapsed().as_nanos() as f64, work.done());
            let done = after.iter().zip(before).map(|(&after, before)| (after - before) as f64);
            for (seen, value) in seen[at].iter_mut().zip([time].into_iter().chain(done)) {
                seen.push(value / *times as f64);
            }
        }
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let medians: Vec<_> = seen.iter_mut().map(|seen| seen.each_mut().map(median)).collect();
    println!("{:>59} {:>13} {:>8}   {:>13}", "time", "cycles u + k", "", "instructions");
    for ((_, (name, ..)), &[time, own, kernel, instructions, kernel_instructions]) in ways.iter().zip(&medians) {
        let [first_time, first_own, first_kernel, ..] = medians[0];
        let (times, cycles) = (time / first_time, (own + kernel) / (first_own + first_kernel));
        print!("{name:<42} {time:>8.1} ns {times:>6.2} x");
        if work.is_known() {
            println!(" {own:>6.0} {kernel:>6.0} {cycles:>6.2} x   {instructions:>6.0} {kernel_instructions:>6.0}");
        } else {
            println!(" {:>6} {:>6} {:>6}     {:>6} {:>6}", "-", "-", "-", "-", "-");
        }
    }
    println!();
}

/// Kinds of work that are counted: cycles of user mode and of the kernel, instructions of both.
const WORK: usize = 4;

/// What this thread does, as far as the machine can count it.
struct Work(Option<Group>);

impl Work {
    fn new() -> Self {
        let of = |config, not| {
            let flags = not | AttrFlags::EXCLUDE_HV | AttrFlags::DISABLED;
            (KERNEL, Attr { kind: EventType::HARDWARE, config, flags, ..Attr::default() })
        };
        let (user, kernel) = (AttrFlags::EXCLUDE_KERNEL, AttrFlags::EXCLUDE_USER);
        let events =
            [hw::CPU_CYCLES, hw::INSTRUCTIONS].into_iter().flat_map(|of_what| [(of_what, user), (of_what, kernel)]);
        let spec = GroupSpec { events: events.map(|(of_what, not)| of(of_what, not)).collect() };
        let thread = pmux_linux::current_tid();
        Self(open_group(engine(), &spec, Target::task(LinuxHost::task(thread))))
    }

    const fn is_known(&self) -> bool {
        self.0.is_some()
    }

    fn done(&self) -> [u64; WORK] {
        let Some(group) = &self.0 else { return [0; WORK] };
        let mut counts = GroupReading::new();
        group.engine.read_group_by(&group.handle, &mut counts).unwrap();
        std::array::from_fn(|at| counts[at].unwrap().value)
    }
}

fn target_of(sleeper: &Killed) -> Target {
    Target::task(LinuxHost::task(i32::try_from(sleeper.0.id()).unwrap()))
}

struct Scene {
    folder: tempfile::TempDir,
    _fake: Fake,
}

impl Scene {
    fn new(behavior: FakeBehavior) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fake = Fake::start(&folder.path().join("s.sock"), behavior);
        Self { folder, _fake: fake }
    }

    fn engine(&self) -> LinuxEngine {
        let place = SocketPath::Named(self.folder.path().join("s.sock"));
        let service = Service::connect(place, Duration::from_secs(30)).unwrap();
        let engine = engine();
        assert!(engine.host().share_with(Arc::new(service)).is_ok());
        engine
    }
}

/// A group that is open, and room for reading it.
struct Group {
    engine: LinuxEngine,
    first: EventId,
    handle: GroupHandle<LinuxHost>,
    counts: GroupReading,
    events: usize,
}

impl Group {
    /// As the library does.
    fn read(&mut self) {
        if self.events == 1 {
            _ = black_box(self.engine.read_by(&self.handle, 0).unwrap());
            return;
        }
        self.counts.clear();
        self.engine.read_group_by(&self.handle, &mut self.counts).unwrap();
        _ = black_box(&self.counts);
    }
}

/// An engine over a service, with a group that is open.
fn shared(behavior: FakeBehavior, sleeper: &Killed, events: usize) -> (Group, Scene) {
    let scene = Scene::new(behavior);
    let engine = scene.engine();
    (open(engine, target_of(sleeper), events).unwrap(), scene)
}

fn open(engine: LinuxEngine, target: Target, events: usize) -> Option<Group> {
    open_group(engine, &GroupSpec { events: vec![(KERNEL, faults()); events] }, target)
}

fn open_group(engine: LinuxEngine, spec: &GroupSpec, target: Target) -> Option<Group> {
    let opened = engine.open(spec, target).ok()?;
    engine.enable_group(opened.group).unwrap();
    let handle = engine.group_handle(opened.group).unwrap();
    Some(Group { first: opened.events[0], handle, counts: GroupReading::new(), events: spec.events.len(), engine })
}
