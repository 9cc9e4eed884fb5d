//! What the integration tests of the library share: sessions, running commands, and reading what was counted.
//!
//! Read first: [`session`], [`count`]; what other crates use too is in `crates/testkit`.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod breakpoints;
pub mod cgroup;
pub mod perf_data;
pub mod watching;

use pmux::trigger::{Fired, TriggerEvent, Triggers};
use pmux::{
    Attribution, Backend, Command, Counters, EventList, ExitedChild, Options, Process, ProcessTree, Reading, Reporting,
    Session, Start, Target,
};
pub use pmux_testkit::{
    Killed, PATIENCE, SetAtEnd, SyncDir, debug_registers, eventually, hotplug, needs, own_process, own_process_with,
    role, skip_unless,
};
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// By how much the page faults of two equal runs may differ.
pub const NOISE: u64 = 24;

/// A session over the kernel's events, where there are any.
pub fn session() -> Option<Session> {
    let session = Session::new().unwrap();
    let kernel = matches!(session.backend(), Backend::Kernel);
    needs("kernel", "performance events", kernel).then_some(session)
}

/// The same, where this user may count whole CPUs.
pub fn cpu_session() -> Option<Session> {
    let session = session()?;
    needs("root", "the right to count CPUs", may_count_cpus(&session)).then_some(session)
}

/// A session over a kernel whose tasks report what they have counted when they exit.
pub fn reporting_session() -> Option<Session> {
    let session = session()?;
    let mut probed = count(&session, "page-faults", words(&["sh", "-c", "(:); :"]), Attribution::EachProcess);
    let reports = probed.tree().reporting == Reporting::Known;
    let what = "a kernel whose tasks report what they have counted when they exit";
    needs("reports", what, reports).then_some(session)
}

pub fn may_count_cpus(session: &Session) -> bool {
    let events = events(session, "cpu-clock");
    let first = session.online().iter().next().into_iter().collect();
    session.open(&events, &Target::Cpus(pmux::CpuChoice::Only(first)), Options::default()).is_ok()
}

/// Whether root runs the tests. Only root writes here, whatever the mode of the file says.
pub fn is_root() -> bool {
    std::fs::OpenOptions::new().append(true).open("/proc/sys/kernel/perf_event_paranoid").is_ok()
}

/// A role of a copy of this program that anybody may execute, started as a user without rights.
pub fn as_unprivileged(role: &str) -> Option<(tempfile::TempDir, std::process::Command)> {
    let setpriv = std::process::Command::new("setpriv").arg("--version").output();
    if !needs("root", "root and setpriv", is_root() && setpriv.is_ok_and(|output| output.status.success())) {
        return None;
    }
    let folder = pmux_testkit::folder_with(0o755);
    let copy = folder.path().join("test");
    role::copy(&copy);
    let mut program = std::process::Command::new("setpriv");
    program.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(role::of(&copy, role)).current_dir("/");
    Some((folder, program))
}

pub fn events(session: &Session, text: &str) -> EventList {
    EventList::parse(&[text], session.catalog()).unwrap()
}

/// Many page faults.
pub fn storm() {
    // More than any allocator keeps: fresh pages each time.
    let mut pages = vec![0_u8; 64 << 20];
    pages.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&pages);
}

pub fn open_events() -> usize {
    pmux_testkit::kernel_events("self")
}

pub fn on_exec(attribution: Attribution) -> Options {
    Options { start: Start::OnExec, attribution, ..Options::default() }
}

pub fn words(line: &[&str]) -> Vec<OsString> {
    line.iter().map(Into::into).collect()
}

/// A command that ran, and what it was counted with.
pub struct Counted {
    pub counters: Counters,
    pub pid: i32,
    pub exited: ExitedChild,
}

impl Counted {
    pub fn value(&self, event: usize) -> u64 {
        value(self.counters.read().total(event))
    }

    pub fn tree(&mut self) -> ProcessTree {
        self.counters.tree().unwrap().unwrap()
    }
}

/// The number of a reading that is one.
pub fn value(reading: Reading) -> u64 {
    reading.count().unwrap_or_else(|| panic!("{reading:?} is no count")).value
}

/// Runs a command to its end, counted from its exec on.
pub fn count(session: &Session, text: &str, command: Vec<OsString>, attribution: Attribution) -> Counted {
    count_with(session, text, command, on_exec(attribution))
}

/// Runs a command to its end, counted as the options say.
pub fn count_with(session: &Session, text: &str, command: Vec<OsString>, options: Options) -> Counted {
    let events = events(session, text);
    let command = Command::hold(command).unwrap();
    let counters = session.open(&events, &Target::Command(&command), options).unwrap();
    let mut running = command.release(&[&counters]).unwrap();
    let pid = running.pid();
    let exited = running.wait(session).unwrap();
    Counted { counters, pid, exited }
}

/// Lets `happen` happen until a trigger fires that `is_it` accepts.
pub fn until_fired(triggers: &mut Triggers, mut happen: impl FnMut(), is_it: impl Fn(&Fired) -> bool) -> Fired {
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "nothing has fired");
        happen();
        for event in triggers.wait(Some(Instant::now() + Duration::from_millis(50))).unwrap() {
            match event {
                TriggerEvent::Fired(fired) if is_it(&fired) => return fired,
                TriggerEvent::Lost { what, .. } => panic!("{what}"),
                _ => {}
            }
        }
    }
}

pub fn first_fired(triggers: &mut Triggers) -> Fired {
    until_fired(triggers, || (), |_| true)
}

/// As [`count`], for a command that must succeed, process by process.
pub fn tree_of(session: &Session, text: &str, command: Vec<OsString>) -> (ProcessTree, Counted) {
    let mut counted = count(session, text, command, Attribution::EachProcess);
    assert!(counted.exited.status.success(), "{:?}", counted.exited.status);
    let tree = counted.tree();
    check(&tree, &counted.counters);
    (tree, counted)
}

/// What holds for every tree.
pub fn check(tree: &ProcessTree, counters: &Counters) {
    let snapshot = counters.read();
    for (event, total) in tree.totals.iter().enumerate() {
        let Some(total) = total else { continue };
        let processes: u64 = tree.processes.iter().map(|process| own(process, event)).sum();
        let unattributed = tree.unattributed[event].unwrap().value;
        assert_eq!(processes + unattributed, total.value, "event {event} of {}", Shown(tree));
        if tree.processes.iter().all(|process| process.ended.is_some()) {
            assert_eq!(value(snapshot.total(event)), total.value, "the tree's total is the counters' total");
        }
    }
    for (index, process) in tree.processes.iter().enumerate() {
        assert_eq!(process.parent.is_none(), index == 0, "one root, the first: {}", Shown(tree));
        assert!(process.parent.is_none_or(|parent| parent < index), "parents come before their children");
        for &child in &process.children {
            assert_eq!(tree.processes[child].parent, Some(index));
        }
        assert!(process.ended.is_none_or(|ended| ended >= process.started), "{process:?}");
        assert!(process.threads >= 1);
    }
}

/// What a process counted itself.
pub fn own(process: &Process, event: usize) -> u64 {
    process.counts[event].map_or(0, |count| count.value)
}

/// All of a tree's processes are known and have reported everything.
pub fn assert_whole(tree: &ProcessTree) {
    assert_eq!(tree.lost_records, 0);
    assert!(tree.processes.iter().all(|process| process.complete && process.ended.is_some()), "{}", Shown(tree));
    assert!(tree.unattributed.iter().flatten().all(|count| count.value == 0), "{:?}", tree.unattributed);
}

/// A tree in a line for each process.
pub struct Shown<'t>(pub &'t ProcessTree);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values = |counts: &[Option<pmux::Count>]| {
            counts.iter().map(|count| count.map(|count| count.value)).collect::<Vec<_>>()
        };
        let tree = self.0;
        for (index, process) in tree.processes.iter().enumerate() {
            let Process { pid, command, parent, threads, complete, .. } = process;
            let life = process.ended.map(|ended| ended.since(process.started).0);
            let counts = values(&process.counts);
            writeln!(
                f,
                "{index}: {pid} {command}, child of {parent:?}, {threads} threads, {counts:?}, complete {complete}, {life:?} ns"
            )?;
        }
        let (totals, unattributed) = (values(&tree.totals), values(&tree.unattributed));
        write!(f, "totals {totals:?}, unattributed {unattributed:?}, {} records lost", tree.lost_records)
    }
}
