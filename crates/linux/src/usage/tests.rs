//! On fabricated trees, where every step is known, and on real processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use pmux_abi::attr::{Attr, AttrFlags, EventType, Sampling};

use super::*;
use crate::procfs::Proc;
use crate::spawn::Usage;

/// A process of a fabricated tree. Times are ticks of 10 ms.
#[derive(Clone, Copy, Default)]
struct Fake {
    pid: i32,
    parent: i32,
    user: u64,
    waited_user: u64,
    minor: u64,
    waited_minor: u64,
    cpu_ns: u64,
    switches: u64,
    peak_kib: u64,
    start: u64,
}

struct FakeTree {
    folder: tempfile::TempDir,
}

impl FakeTree {
    fn new() -> Self {
        let tree = Self { folder: tempfile::tempdir().unwrap() };
        // What a mounted /proc always has.
        tree.put("self/stat", "");
        tree
    }

    fn proc(&self) -> Proc {
        Proc::at(self.folder.path())
    }

    fn put(&self, name: &str, text: &str) {
        pmux_testkit::put(self.folder.path(), name, text);
    }

    fn set(&self, fake: Fake, children: &[i32]) {
        let Fake { pid, parent, user, waited_user, minor, waited_minor, cpu_ns, switches, peak_kib, start } = fake;
        let stat = format!(
            "{pid} (x) S {parent} 0 0 0 -1 0 {minor} {waited_minor} 0 0 {user} 0 {waited_user} 0 20 0 1 0 {start} 0\n"
        );
        self.put(&format!("{pid}/stat"), &stat);
        self.put(&format!("{pid}/task/{pid}/stat"), &stat);
        let status = format!(
            "Tgid:\t{pid}\nVmHWM:\t{peak_kib} kB\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n"
        );
        self.put(&format!("{pid}/status"), &status);
        self.put(&format!("{pid}/schedstat"), &format!("{cpu_ns} 0 0\n"));
        self.put(&format!("{pid}/sched"), "x\nse.nr_migrations : 2\n");
        let children: Vec<String> = children.iter().map(ToString::to_string).collect();
        self.put(&format!("{pid}/task/{pid}/children"), &children.join(" "));
    }

    fn kill(&self, pid: i32) {
        fs::remove_dir_all(self.folder.path().join(pid.to_string())).unwrap();
    }

    fn open(&self, target: UsageTarget) -> UsageSource {
        UsageSource::from_birth(target, self.proc()).unwrap()
    }

    /// A command with one child.
    fn family() -> (Self, UsageSource) {
        let tree = Self::new();
        tree.set(ROOT, &[11]);
        tree.set(CHILD, &[]);
        let source = tree.open(UsageTarget::Command(10));
        (tree, source)
    }
}

const ROOT: Fake = Fake {
    pid: 10,
    parent: 1,
    user: 3,
    waited_user: 0,
    minor: 100,
    waited_minor: 0,
    cpu_ns: 31_000_000,
    switches: 5,
    peak_kib: 50,
    start: 1,
};
const CHILD: Fake =
    Fake { pid: 11, parent: 10, user: 2, minor: 40, cpu_ns: 25_000_000, switches: 7, peak_kib: 90, start: 2, ..ROOT };

#[test]
fn a_child_is_counted_once_while_it_lives_and_after_it_was_waited_for() {
    let tree = FakeTree::new();
    tree.set(ROOT, &[11]);
    tree.set(CHILD, &[12]);
    tree.set(Fake { pid: 12, parent: 11, minor: 1, start: 3, ..CHILD }, &[]);
    let mut source = tree.open(UsageTarget::Command(10));
    assert_eq!(source.read(UsageKind::PageFaults), Ok(141));
    assert_eq!(source.read(UsageKind::TaskClock), Ok(31_000_000 + 2 * 25_000_000));
    assert_eq!(source.read(UsageKind::UserTime), Ok(70_000_000));
    assert_eq!(source.read(UsageKind::ContextSwitches), Ok(19));
    assert_eq!(source.read(UsageKind::MaxRss), Ok(90 * 1024));
    // The child has waited for the grandchild, and grown.
    tree.kill(12);
    tree.set(Fake { minor: 45, waited_minor: 3, waited_user: 2, switches: 8, ..CHILD }, &[]);
    assert_eq!(source.read(UsageKind::PageFaults), Ok(148));
    assert_eq!(source.read(UsageKind::ContextSwitches), Ok(20), "the grandchild's are remembered");
    // The root has waited for the child.
    tree.kill(11);
    tree.set(Fake { waited_minor: 48, waited_user: 4, switches: 6, ..ROOT }, &[]);
    assert_eq!(source.read(UsageKind::PageFaults), Ok(148));
    assert_eq!(source.read(UsageKind::ContextSwitches), Ok(21));
    assert_eq!(source.read(UsageKind::TaskClock), Ok(81_000_000), "cut-off ticks never turn it back");
    assert_eq!(source.read(UsageKind::CpuMigrations), Err(UsageError::Unavailable(UsageKind::CpuMigrations)));
}

#[test]
fn the_last_word_counts_and_the_end_changes_nothing_more() {
    let (tree, mut source) = FakeTree::family();
    tree.kill(10);
    tree.kill(11);
    assert_eq!(source.read(UsageKind::PageFaults), Ok(140), "before wait4 the last reading stays");
    let last = Usage {
        user: Duration::from_nanos(56_001_000),
        system: Duration::from_millis(1),
        max_rss_kib: 95,
        minor_faults: 150,
        major_faults: 2,
        voluntary_switches: 12,
        involuntary_switches: 3,
    };
    source.retire(last);
    let expected = [
        (UsageKind::TaskClock, 57_001_000),
        (UsageKind::UserTime, 56_001_000),
        (UsageKind::PageFaults, 152),
        (UsageKind::MinorFaults, 150),
        (UsageKind::MajorFaults, 2),
        (UsageKind::ContextSwitches, 15),
        (UsageKind::MaxRss, 95 * 1024),
    ];
    for (kind, value) in expected {
        assert_eq!(source.read(kind), Ok(value), "{kind:?}");
    }
    let passed = source.read(UsageKind::DurationTime).unwrap();
    source.retire(Usage { minor_faults: 9999, ..last });
    assert_eq!(source.read(UsageKind::MinorFaults), Ok(150), "only the first last word counts");
    assert_eq!(source.read(UsageKind::DurationTime), Ok(passed));
    // Another process gets the number of the command.
    tree.set(Fake { start: 900, minor: 5000, ..ROOT }, &[]);
    assert_eq!(source.read(UsageKind::MinorFaults), Ok(150));
}

#[test]
fn a_last_word_without_a_reading_in_between_counts_no_process_twice() {
    let (tree, mut source) = FakeTree::family();
    tree.kill(10);
    tree.kill(11);
    source.retire(Usage { voluntary_switches: 13, minor_faults: 140, ..Usage::default() });
    assert_eq!(source.read(UsageKind::ContextSwitches), Ok(13));
    assert_eq!(source.read(UsageKind::PageFaults), Ok(140));
}

#[test]
fn an_orphan_goes_on_counting() {
    let (tree, mut source) = FakeTree::family();
    // The root ends without waiting: the child belongs to process 1 from here on.
    tree.kill(10);
    tree.set(Fake { parent: 1, minor: 60, ..CHILD }, &[12]);
    tree.set(Fake { pid: 12, parent: 11, minor: 8, start: 9, ..CHILD }, &[]);
    source.retire(Usage { minor_faults: 100, voluntary_switches: 5, ..Usage::default() });
    assert_eq!(source.read(UsageKind::PageFaults), Ok(168));
    tree.kill(12);
    tree.set(Fake { parent: 1, minor: 61, waited_minor: 9, ..CHILD }, &[]);
    assert_eq!(source.read(UsageKind::PageFaults), Ok(170));
    tree.kill(11);
    assert_eq!(source.read(UsageKind::PageFaults), Ok(170), "what the orphan used stays");
    assert_eq!(source.read(UsageKind::ContextSwitches), Ok(5 + 7 + 7));
    // A stranger with the orphan's number is no part of the tree.
    tree.set(Fake { parent: 1, minor: 4000, start: 77, ..CHILD }, &[]);
    assert_eq!(source.read(UsageKind::PageFaults), Ok(170));
}

#[test]
fn from_now_on_leaves_out_what_was_before() {
    let tree = FakeTree::new();
    tree.set(ROOT, &[]);
    let mut source = UsageSource::open(UsageTarget::Command(10), tree.proc()).unwrap();
    assert_eq!(source.read(UsageKind::PageFaults), Ok(0));
    tree.set(Fake { minor: 130, ..ROOT }, &[]);
    assert_eq!(source.read(UsageKind::PageFaults), Ok(30));
    source.retire(Usage { minor_faults: 131, max_rss_kib: 7, ..Usage::default() });
    assert_eq!(source.read(UsageKind::PageFaults), Ok(31));
    assert_eq!(source.read(UsageKind::MaxRss), Ok(7 * 1024), "the last word holds");
}

#[test]
fn without_a_list_of_children_the_tree_is_found_by_parents() {
    let tree = FakeTree::new();
    tree.set(ROOT, &[]);
    tree.set(CHILD, &[]);
    tree.set(Fake { pid: 12, parent: 1, minor: 5000, ..CHILD }, &[]);
    for pid in [10, 11, 12] {
        fs::remove_file(tree.folder.path().join(format!("{pid}/task/{pid}/children"))).unwrap();
    }
    assert_eq!(tree.open(UsageTarget::Command(10)).read(UsageKind::PageFaults), Ok(140));
}

#[test]
fn a_process_alone_keeps_ended_threads() {
    let tree = FakeTree::new();
    tree.set(ROOT, &[11]);
    tree.set(CHILD, &[]);
    // A second thread of the root: under its own number as well, as `/proc` has it.
    tree.put("10/task/15/children", "");
    tree.put("15/status", "Tgid:\t10\nvoluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t2\n");
    tree.put("15/schedstat", "9000000 0 0\n");
    tree.put("15/sched", "se.nr_migrations : 3\n");
    let mut source = tree.open(UsageTarget::Process(10));
    assert_eq!(source.read(UsageKind::PageFaults), Ok(100), "without children");
    assert_eq!(source.read(UsageKind::ContextSwitches), Ok(11));
    assert_eq!(source.read(UsageKind::CpuMigrations), Ok(5));
    assert_eq!(source.read(UsageKind::TaskClock), Ok(40_000_000));
    fs::remove_dir_all(tree.folder.path().join("10/task/15")).unwrap();
    tree.kill(15);
    tree.set(Fake { switches: 6, cpu_ns: 32_000_000, ..ROOT }, &[]);
    assert_eq!(source.read(UsageKind::ContextSwitches), Ok(12));
    assert_eq!(source.read(UsageKind::TaskClock), Ok(41_000_000));
    tree.kill(10);
    assert_eq!(source.read(UsageKind::PageFaults), Ok(100));
}

#[test]
fn a_thread_alone_and_its_end() {
    let tree = FakeTree::new();
    tree.set(ROOT, &[]);
    tree.set(CHILD, &[]);
    let [mut root, mut child] = [10, 11].map(|tid| tree.open(UsageTarget::Thread(tid)));
    assert_eq!([root.read(UsageKind::MinorFaults), child.read(UsageKind::MinorFaults)], [Ok(100), Ok(40)]);
    assert_eq!([root.read(UsageKind::CpuMigrations), child.read(UsageKind::CpuMigrations)], [Ok(2), Ok(2)]);
    tree.set(Fake { start: 50, minor: 1, ..CHILD }, &[]);
    tree.set(Fake { minor: 101, ..ROOT }, &[]);
    assert_eq!(root.read(UsageKind::MinorFaults), Ok(101));
    assert_eq!(child.read(UsageKind::MinorFaults), Ok(40), "a reused number is not the thread");
    let missing = UsageSource::open(UsageTarget::Thread(99), tree.proc());
    assert_eq!(missing.unwrap_err(), UsageError::Proc(ProcError::Gone { id: 99 }));
}

#[test]
fn the_machine_and_its_cpus() {
    let tree = FakeTree::new();
    let lines = |idle: u64, one: &str| {
        format!("cpu 10 0 5 {idle} 0 0 0 0 0 0\ncpu0 4 0 2 50 0 0 0 0\n{one}ctxt {idle}\nprocesses 1\n")
    };
    tree.put("stat", &lines(100, "cpu1 6 0 3 50 0 0 0 0\n"));
    tree.put("vmstat", "pgfault 30\npgmajfault 4\n");
    let mut all = UsageSource::open(UsageTarget::Machine, tree.proc()).unwrap();
    let mut one = tree.open(UsageTarget::Cpu(1));
    assert_eq!(one.read(UsageKind::CpuClock), Ok(590_000_000));
    assert!(!one.supports(UsageKind::PageFaults) && !one.supports(UsageKind::ContextSwitches));
    tree.put("stat", &lines(120, ""));
    tree.put("vmstat", "pgfault 37\npgmajfault 5\n");
    assert_eq!(all.read(UsageKind::CpuClock), Ok(200_000_000));
    assert_eq!((all.read(UsageKind::PageFaults), all.read(UsageKind::MinorFaults)), (Ok(7), Ok(6)));
    assert_eq!(all.read(UsageKind::ContextSwitches), Ok(20));
    assert_eq!(all.read(UsageKind::UserTime), Ok(0));
    assert!(!all.supports(UsageKind::MaxRss) && !all.supports(UsageKind::CpuMigrations));
    assert_eq!(one.read(UsageKind::CpuClock), Ok(590_000_000), "an offline CPU keeps its time");
    let mut absent = tree.open(UsageTarget::Cpu(7));
    assert!(matches!(absent.read(UsageKind::CpuClock), Err(UsageError::Unavailable(_))), "never a zero");
}

#[test]
fn a_cgroup_that_is_removed_keeps_its_values() {
    let tree = FakeTree::new();
    let root = tree.folder.path().display();
    tree.put("v2/web/cpu.stat", "usage_usec 30\nuser_usec 10\nsystem_usec 20\n");
    let table = format!("1 2 0:3 / {root}/v2 rw - cgroup2 cgroup2 rw\n");
    let group = crate::cgroup::Mounts::parse(&table).open("web").unwrap();
    let mut source = tree.open(UsageTarget::Cgroup(group));
    assert_eq!(source.read(UsageKind::TaskClock), Ok(30_000));
    tree.put("v2/web/cpu.stat", "usage_usec 40\nuser_usec 15\nsystem_usec 25\n");
    assert_eq!(source.read(UsageKind::SystemTime), Ok(25_000));
    fs::remove_dir_all(tree.folder.path().join("v2/web")).unwrap();
    assert_eq!(source.read(UsageKind::TaskClock), Ok(40_000));
}

#[test]
fn attributes_that_have_a_source() {
    let software = |config| Attr { kind: EventType::SOFTWARE, config, ..Attr::default() };
    let kinds: Vec<_> = (0..12).map(|config| UsageKind::for_attr(&software(config))).collect();
    let known = [
        UsageKind::CpuClock,
        UsageKind::TaskClock,
        UsageKind::PageFaults,
        UsageKind::ContextSwitches,
        UsageKind::CpuMigrations,
        UsageKind::MinorFaults,
        UsageKind::MajorFaults,
    ];
    assert_eq!(kinds[..7], known.map(Some));
    assert_eq!(kinds[7..], [None; 5]);
    let user = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    assert_eq!(UsageKind::for_attr(&Attr { flags: user, ..software(2) }), None);
    assert_eq!(UsageKind::for_attr(&Attr { flags: user, ..software(1) }), Some(UsageKind::TaskClock));
    assert_eq!(UsageKind::for_attr(&Attr { sampling: Sampling::Period(1), ..software(1) }), None);
    assert_eq!(UsageKind::for_attr(&Attr::default()), None, "hardware");
    for (index, kind) in UsageKind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, index);
    }
}

/// A shell that has run one child to its end and holds another one open.
#[test]
fn a_real_tree() {
    let script = "ls / >/dev/null; sleep 60 & echo ready; read line; kill $!; wait; exit 0";
    let mut command = Command::new("sh");
    let mut shell = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = shell.id().cast_signed();
    let mut source = UsageSource::from_birth(UsageTarget::Command(pid), Proc::system()).unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let proc = Proc::system();
    let sleeper = proc.processes().unwrap().into_iter().find(|&id| proc.parent(id) == Ok(pid)).unwrap();
    while proc.comm(sleeper).unwrap() != "sleep" {
        std::thread::yield_now();
    }
    let (alone, child) = (proc.stat(pid).unwrap(), proc.stat(sleeper).unwrap());
    assert!(alone.children_minor_faults > 0, "ls was waited for");
    assert!(child.minor_faults > 0, "a new program cannot start without");
    let faults = source.read(UsageKind::PageFaults).unwrap();
    assert!(faults >= alone.minor_faults + alone.children_minor_faults + child.minor_faults);
    assert!(source.read(UsageKind::ContextSwitches).unwrap() > 0);
    let mut before = [0; UsageKind::ALL.len()];
    for round in 0..20 {
        source.refresh().unwrap();
        for kind in UsageKind::ALL.into_iter().filter(|&kind| source.supports(kind)) {
            let value = source.value(kind).unwrap();
            assert!(value >= before[kind as usize], "{kind:?} fell in round {round}");
            before[kind as usize] = value;
        }
    }
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    shell.wait().unwrap();
    assert!(source.read(UsageKind::PageFaults).unwrap() >= faults);
    assert_eq!(
        UsageSource::from_birth(UsageTarget::Command(pid), proc).unwrap_err(),
        UsageError::Proc(ProcError::Gone { id: pid })
    );
}

#[test]
fn the_real_machine() {
    let mut source = UsageSource::from_birth(UsageTarget::Machine, Proc::system()).unwrap();
    assert!(source.read(UsageKind::CpuClock).unwrap() > 0);
    assert!(source.read(UsageKind::ContextSwitches).unwrap() > 0);
    let me = std::process::id().cast_signed();
    let mut own = UsageSource::open(UsageTarget::Process(me), Proc::system()).unwrap();
    let page = vec![1_u8; 8 << 20];
    assert!(own.read(UsageKind::PageFaults).unwrap() > 0, "{}", page.len());
}
