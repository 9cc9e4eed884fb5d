//! What pmux does to others: to those who record beside it, and to the programs that it measures.

use crate::common;
use crate::common::{CommandResult, PMUX, Start, SyncDir, kernel, needs, perf, program, root, skip_unless, start};
use std::fs::File;
use std::path::{Path, PathBuf};

fn perf_says(subcommand: &[&str], file: &Path) -> String {
    start("perf", subcommand).args(["-i"]).args([file]).run().good().text()
}

/// Kernels that let build ids show in what they tell to other recorders ended the recording of those when a process came that
/// asked for build ids.
#[test]
fn existing_recordings_are_not_disturbed() {
    skip_unless!(kernel() && root() && perf());
    let sync_dir = SyncDir::new();
    let [theirs, ours] = ["perf.data", "pmux.data"].map(|name| sync_dir.path(name));
    let both = format!(
        "sleep 0.2; {PMUX} record -q -a -e cpu-clock -o {} -- sh -c 'ls / >/dev/null; ls / >/dev/null'",
        ours.display()
    );
    let words = ["record", "-q", "-a", "-e", "cpu-clock", "-o"];
    start("perf", words).args([&theirs]).args(["--", "sh", "-c", &both]).run().good();
    for file in [&theirs, &ours] {
        let names = perf_says(&["report", "--stdio", "--sort", "comm"], file);
        assert!(names.contains("ls") || names.contains("sh"), "{names}");
    }
    // What was mapped meanwhile is known by its build id all the same.
    assert!(perf_says(&["buildid-list"], &ours).contains("/ls"));
}

/// How often processes and threads of `calls.c` come to `place`, each once.
const ALL: u64 = 29;
/// Those that come after it was attached to.
const LATER: u64 = ALL - 1;

/// `calls.c`, which makes processes and threads in each way there is and prints what the calls returned.
struct Calls {
    sync_dir: SyncDir,
    path: PathBuf,
    /// What they return where pmux is not there.
    undisturbed: String,
}

impl Calls {
    fn new() -> Option<Self> {
        if !(kernel() && program("cc")) {
            return None;
        }
        let sync_dir = SyncDir::new();
        let options = ["-g", "-O1", "-no-pie", "-pthread"];
        // A space, which tracefs would take for the end of the path.
        let path = common::cc(sync_dir.path(""), "the calls", include_str!("common/calls.c"), &options);
        let undisturbed = start(&path, [""; 0]).run();
        assert_eq!(undisturbed.code(), 9);
        let undisturbed = undisturbed.text();
        assert!(undisturbed.ends_with("exec: done\n") && undisturbed.contains("fork: 7"), "{undisturbed}");
        Some(Self { sync_dir, path, undisturbed })
    }

    /// Where `word` is, from the program's own table of symbols.
    fn word(&self) -> u64 {
        let table = start("nm", [&self.path]).run().good().text();
        let line = table.lines().find(|line| line.ends_with(" word")).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    }

    fn probe(&self, kind: &str) -> String {
        format!("{kind}:'{}':place", self.path.display())
    }

    /// Each kind of event that this machine has.
    fn events(&self) -> Vec<String> {
        let session = pmux::Session::new().unwrap();
        let mut events = vec!["page-faults,context-switches".to_owned(), format!("mem:{:#x}/8:w", self.word())];
        events.extend(["uprobe", "uretprobe"].map(|kind| self.probe(kind)));
        let mut more = vec!["cycles,instructions".to_owned()];
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let fork = symbols.lines().find_map(|line| line.strip_suffix(" T kernel_clone"));
        more.extend(fork.map(|address| format!("kprobe/config2=0x{address}/")));
        events.extend(more.into_iter().filter(|text| {
            let opens = |event: &pmux::Event| {
                matches!(session.probe(event, &pmux::Target::CurrentThread), Ok(pmux::Probe::Opens))
            };
            pmux::EventList::parse(&[text], session.catalog()).is_ok_and(|list| list.events().all(opens))
        }));
        events
    }

    /// Runs it under a command, and looks at what its calls returned.
    fn under(&self, pmux: Start) -> CommandResult {
        let ran = pmux.args(["--"]).args([&self.path]).run();
        assert_eq!(ran.text(), self.undisturbed, "{}", ran.err);
        assert_eq!(ran.code(), 9, "{}", ran.err);
        ran
    }
}

/// Where it is mounted already, that is refused.
const MOUNT: &str = "{ [ -e /sys/kernel/tracing/uprobe_events ] || mount -t tracefs none /sys/kernel/tracing; }";

/// The command `pmux` where tracefs is mounted, or where it is not, whatever this machine has.
fn where_tracefs_is(mounted: bool, words: &[&str]) -> Start {
    // There pmux has no folder to mount it at.
    let mount = if mounted { MOUNT } else { "mount -t tmpfs none /sys/kernel" };
    let line = format!("mount -t tmpfs none /sys/kernel/debug && {mount} && exec \"$0\" \"$@\"");
    start("unshare", ["-m", "sh", "-c", &line, PMUX]).args(words)
}

/// The names in tracefs that this program's commands have left.
fn left_in_tracefs() -> String {
    let line = format!("{MOUNT} && {{ grep -a pmux/ /sys/kernel/tracing/uprobe_events; true; }}");
    start("unshare", ["-m", "sh", "-c", &line]).run().good().text()
}

/// Where no tracefs is mounted, root has it mounted as by perf; another user is told what root would do.
#[test]
fn tracefs_is_mounted_where_it_is_not() {
    skip_unless!(root() && program("unshare") && program("setpriv"));
    let nowhere = "umount -a -t tracefs,debugfs; grep -q tracefs /proc/self/mounts && exit 9";
    let listed = format!("{nowhere}; \"$0\" list sched:sched_switch && grep tracefs /proc/self/mounts");
    let ran = start("unshare", ["-m", "sh", "-c", &listed, PMUX]).run();
    skip_unless!(needs("root", "tracefs, mounted by a test", ran.code() == 0));
    let text = ran.text();
    assert!(text.contains("sched:sched_switch") && text.contains("/sys/kernel/tracing"), "{text}");
    let listed = format!("{nowhere}; setpriv --reuid 65534 --clear-groups -- \"$0\" list sched:sched_switch");
    let ran = start("unshare", ["-m", "sh", "-c", &listed, PMUX]).run();
    ran.bad(125, &["no tracefs is mounted", "this process may not mount it", "mount -t tracefs"]);
}

/// Programs with probes of tracefs wait for each other: a test looks at what is left there.
fn tracefs_alone() -> Option<File> {
    let there =
        root() && needs("root", "tracefs, mounted by a test", where_tracefs_is(true, &["--version"]).run().code() == 0);
    there.then(|| common::lock("tracefs"))
}

/// Nothing that pmux does to a program changes what its calls return.
#[test]
fn no_event_changes_what_a_call_returns() {
    let Some(calls) = Calls::new() else { return };
    let _registers = common::lock(common::DEBUG_REGISTERS);
    let alone = tracefs_alone();
    let pmux = |words: &[&str]| if alone.is_some() { where_tracefs_is(true, words) } else { common::pmux(words) };
    let (file, folder) = (calls.sync_dir.text("data"), calls.sync_dir.text("snapshots"));
    let mut events = calls.events();
    if alone.is_some() {
        events.push("sched:sched_switch,sched:sched_process_fork".to_owned());
    }
    for event in events {
        for words in [
            &["stat", "-e", &event][..],
            &["stat", "--tree", "-e", &event],
            &["stat", "-i", "-e", &event],
            &["record", "-q", "-o", &file, "-e", &event],
            &["record", "-q", "-s", "-g", "-o", &file, "-e", &event],
            &["flight", "-q", "-o", &folder, "--on", "signal:USR1", "-e", &event],
        ] {
            println!("{words:?}");
            calls.under(pmux(words));
        }
    }
    let word = calls.word();
    for words in [
        &["watch", "word"][..],
        &["watch", "word", "--if", "new > 2"],
        &["watch", "--trace", "word"],
        &["watch", &format!("{word:#x}"), "--share-time"],
    ] {
        println!("{words:?}");
        calls.under(pmux(words));
    }
}

/// The kernel makes an inherited uprobe from a pointer into the memory of the process that forks.
#[test]
fn probes_follow_children_through_tracefs() {
    let Some(calls) = Calls::new() else { return };
    let Some(_alone) = tracefs_alone() else { return };
    let (probe, file) = (calls.probe("uprobe"), calls.sync_dir.text("data"));
    let both = format!("{probe},{}", calls.probe("uretprobe"));
    let (entry, exit) = (calls.probe("uprobe"), calls.probe("uretprobe"));
    let ran = calls.under(where_tracefs_is(true, &["stat", "-x,", "-e", &both]));
    assert_eq!([&entry, &exit].map(|name| ran.value(name) as u64), [ALL, ALL], "{}", ran.err);
    calls.under(where_tracefs_is(true, &["record", "-q", "-o", &file, "-e", &probe]));
    let samples = common::pmux(["script", "-i", &file]).run().good().text();
    assert_eq!(samples.lines().filter(|line| line.contains("uprobe")).count() as u64, ALL, "{samples}");
    // One that is attached to.
    let go = calls.sync_dir.text("go");
    let running = start(&calls.path, [&go]).spawn();
    let pid = running.pid().to_string();
    let line = format!("sleep 0.1; touch '{go}'; while [ -e /proc/{pid}/exe ]; do sleep 0.01; done");
    let ran = where_tracefs_is(true, &["stat", "-x,", "-e", &probe, "-p", &pid, "--", "sh", "-c", &line]).run().good();
    assert_eq!((ran.value(&entry) as u64, running.wait().text()), (LATER, calls.undisturbed.clone()), "{}", ran.err);
    assert_eq!(left_in_tracefs(), "");
}

#[test]
fn without_tracefs_a_probe_counts_the_task_alone_and_says_so() {
    let Some(calls) = Calls::new() else { return };
    let Some(_alone) = tracefs_alone() else { return };
    let (probe, file) = (calls.probe("uprobe"), calls.sync_dir.text("data"));
    let group = format!("{{{probe},page-faults}}");
    for (event, counted) in [(&probe, 2), (&group, 2)] {
        let ran = calls.under(where_tracefs_is(false, &["stat", "-e", event]));
        ran.says(&["without the threads and children that come later", "uprobe_events can't be written"]);
        let ran = calls.under(where_tracefs_is(false, &["stat", "-x,", "-e", event]));
        assert_eq!(ran.value(&probe) as u64, counted, "it and its exec: {}", ran.err);
    }
    let ran = calls.under(where_tracefs_is(false, &["record", "-o", &file, "-e", &probe]));
    ran.says(&["has no samples of threads and children that come later"]);
    calls.under(where_tracefs_is(false, &["stat", "--tree", "-e", &probe])).says(&["children can't inherit it"]);
}

/// A command that is killed leaves its name in tracefs; the next one takes it away.
#[test]
fn what_a_killed_command_has_left_in_tracefs_goes() {
    let Some(calls) = Calls::new() else { return };
    let Some(_alone) = tracefs_alone() else { return };
    let probe = calls.probe("uprobe");
    let go = calls.sync_dir.text("go");
    let running = start(&calls.path, [&go]).spawn();
    let pid = running.pid().to_string();
    let killed = where_tracefs_is(true, &["stat", "-e", &probe, "-p", &pid]).spawn();
    common::eventually("the probe is there", || (!left_in_tracefs().is_empty()).then_some(()));
    drop(killed);
    assert!(left_in_tracefs().contains("pmux/"));
    calls.under(where_tracefs_is(true, &["stat", "-e", &probe]));
    assert_eq!(left_in_tracefs(), "");
    calls.sync_dir.post("go");
    assert_eq!(running.wait().text(), calls.undisturbed);
}
