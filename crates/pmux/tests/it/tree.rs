//! The process tree: each child's own counts, and sums that fit.

use crate::common::{self, NOISE, Shown, SyncDir, assert_whole, count, events, own, role as roles, tree_of, words};
use pmux::{Attribution, Command, Counters, Process, ProcessTree, Reporting, Session, Target};
use std::os::unix::process::ExitStatusExt;

pub(crate) fn role(name: &str, arguments: &str) {
    assert_eq!(name, "nested");
    // Counts another command with its tree, as a program that uses the library does.
    let session = Session::new().unwrap();
    let (tree, _) = tree_of(&session, "page-faults", roles::words(&format!("tree:1,2,{arguments}")));
    assert_whole(&tree);
    assert_eq!(tree.processes.len(), 3);
    let faults: Vec<_> = tree.processes.iter().map(|process| own(process, 0)).collect();
    assert!(faults.iter().all(|&faults| faults >= arguments.parse().unwrap()), "{faults:?}");
}

fn shell(line: &str) -> Vec<std::ffi::OsString> {
    words(&["sh", "-c", line])
}

/// Counts page faults of a held command with its tree, from its exec on.
fn opened(session: &Session, command: &Command) -> Counters {
    let options = common::on_exec(Attribution::EachProcess);
    session.open(&events(session, "page-faults"), &Target::Command(command), options).unwrap()
}

/// The processes with this name, in the order in which they were started.
fn named<'t>(tree: &'t ProcessTree, name: &str) -> Vec<&'t Process> {
    tree.processes.iter().filter(|process| process.command == name).collect()
}

/// What this binary is called by the kernel.
fn own_name() -> String {
    let path = std::env::current_exe().unwrap();
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    name.chars().take(15).collect()
}

#[test]
fn each_child_has_its_own_numbers() {
    let Some(session) = common::reporting_session() else { return };
    let line = format!("{}; {}", roles::line("touch:100"), roles::line("touch:1000"));
    let (tree, counted) = tree_of(&session, "page-faults,task-clock", shell(&format!("{line}; :")));
    assert_whole(&tree);
    let children = named(&tree, &own_name());
    let [few, many] = children[..] else { panic!("{}", Shown(&tree)) };
    assert!((own(many, 0) - own(few, 0)).abs_diff(900) <= NOISE, "{} and {}", own(few, 0), own(many, 0));
    assert!(own(few, 1) > 0 && own(many, 1) > 0, "every process takes time");
    let root = &tree.processes[0];
    assert_eq!((root.pid, root.command.as_str(), root.children.len()), (counted.pid, "sh", 2));
    assert!(own(root, 0) < 500, "the shell's own part is small: {}", own(root, 0));
}

#[test]
fn the_total_is_that_of_a_run_without_a_tree() {
    let Some(session) = common::reporting_session() else { return };
    let command = || roles::words("tree:2,2,50");
    let plain = count(&session, "page-faults", command(), Attribution::Totals).value(0);
    let (tree, counted) = tree_of(&session, "page-faults", command());
    assert_whole(&tree);
    assert_eq!(tree.processes.len(), 7);
    let total = counted.value(0);
    assert!(total.abs_diff(plain) <= 7 * NOISE, "{plain} without, {total} with a tree");
    let expected = 50 + 2 * 150 + 4 * 250;
    assert!(total > expected);
}

#[test]
fn depth_and_order_are_kept() {
    let Some(session) = common::reporting_session() else { return };
    let (tree, _) = tree_of(&session, "page-faults", roles::words("tree:3,1,10"));
    assert_whole(&tree);
    assert_eq!(tree.processes.len(), 4);
    let faults: Vec<_> = tree.processes.iter().map(|process| own(process, 0)).collect();
    for (index, process) in tree.processes.iter().enumerate() {
        assert_eq!(process.parent, index.checked_sub(1), "a chain: {}", Shown(&tree));
        assert_eq!(process.threads, roles::THREADS);
        let outer = &tree.processes[index.saturating_sub(1)];
        assert!(process.started >= outer.started && process.ended <= outer.ended, "{outer:?} outlives {process:?}");
    }
    // The last one forks no child, so its part is smaller than the rest by that.
    for pair in faults[..3].windows(2) {
        assert!((pair[1] - pair[0]).abs_diff(100) <= NOISE, "each has 100 pages more than its parent: {faults:?}");
    }
}

#[test]
fn many_short_pipelines_lose_no_process() {
    let Some(session) = common::reporting_session() else { return };
    // The kernel swaps the events of related tasks at a switch; the more switches, the more chances to get it wrong.
    for _ in 0..10 {
        let (tree, _) =
            tree_of(&session, "page-faults,task-clock,context-switches", shell("ls / | cat | cat | wc >/dev/null"));
        assert_whole(&tree);
        for name in ["ls", "cat", "wc"] {
            assert!(named(&tree, name).iter().all(|process| own(process, 0) > 30), "{name} in {}", Shown(&tree));
        }
    }
}

#[test]
fn threads_are_part_of_their_process() {
    let Some(session) = common::reporting_session() else { return };
    let (tree, _) = tree_of(&session, "page-faults", roles::words("threads:4,100"));
    assert_whole(&tree);
    let [process] = &tree.processes[..] else { panic!("{}", Shown(&tree)) };
    assert_eq!(process.threads, roles::THREADS + 4);
    assert!(own(process, 0) >= 400);
    // The same below a shell: now it is a child that reports.
    let line = format!("{}; :", roles::line("threads:4,100"));
    let (tree, _) = tree_of(&session, "page-faults", shell(&line));
    assert_whole(&tree);
    assert_eq!(tree.processes.len(), 2);
    assert_eq!(tree.processes[1].threads, roles::THREADS + 4);
    assert!(own(&tree.processes[1], 0) >= 400);
}

#[test]
fn a_thread_with_a_name_does_not_rename_its_process() {
    let Some(session) = common::reporting_session() else { return };
    let line = format!("{}; :", roles::line("named:painter,10"));
    let (tree, _) = tree_of(&session, "page-faults", shell(&line));
    assert_whole(&tree);
    assert_eq!(tree.processes[1].command, own_name());
    let (tree, _) = tree_of(&session, "page-faults", roles::words("named:painter,10"));
    assert_eq!(tree.processes[0].command, own_name());
}

#[test]
fn an_exec_chain_is_one_process_with_the_last_name() {
    let Some(session) = common::reporting_session() else { return };
    let (tree, counted) = tree_of(&session, "page-faults", shell("exec sh -c 'exec env cat /dev/null'"));
    assert_whole(&tree);
    let [process] = &tree.processes[..] else { panic!("{}", Shown(&tree)) };
    assert_eq!((process.pid, process.command.as_str()), (counted.pid, "cat"));
    let (tree, _) = tree_of(&session, "page-faults", shell("(exec sh -c 'exec env cat /dev/null'); :"));
    assert_whole(&tree);
    let [_, process] = &tree.processes[..] else { panic!("{}", Shown(&tree)) };
    assert_eq!(process.command, "cat");
}

#[test]
fn an_exec_by_another_thread_keeps_the_process() {
    let Some(session) = common::reporting_session() else { return };
    for (command, index) in
        [(roles::words("thread-exec:300"), 0), (shell(&format!("{}; :", roles::line("thread-exec:300"))), 1)]
    {
        let (tree, _) = tree_of(&session, "page-faults", command);
        assert_eq!(tree.lost_records, 0);
        assert_eq!(tree.processes.len(), index + 1, "{}", Shown(&tree));
        let process = &tree.processes[index];
        assert!(own(process, 0) >= 300, "{}", Shown(&tree));
        assert!(process.ended.is_some() && process.complete, "{}", Shown(&tree));
        assert_eq!(process.command, own_name());
        assert_eq!(tree.unattributed[0].unwrap().value, 0);
    }
}

#[test]
fn grandchildren_outlive_their_parent() {
    let Some(session) = common::reporting_session() else { return };
    let folder = tempfile::tempdir().unwrap();
    // The command waits for the grandchild by the folder, for it is no child of its own.
    let script = format!(
        "( ( while test ! -e {0}/orphaned; do sleep 0.01; done; {1}; : >{0}/ended ) & ) ; \
         : >{0}/orphaned; while test ! -e {0}/ended; do sleep 0.01; done",
        folder.path().display(),
        roles::line("touch:500"),
    );
    let command = Command::hold(shell(&script)).unwrap();
    let mut counters = opened(&session, &command);
    command.release(&[&counters]).unwrap().wait(&session).unwrap();
    let tree = counters.tree().unwrap().unwrap();
    assert_eq!(tree.lost_records, 0);
    let worker = named(&tree, &own_name());
    let [worker] = worker[..] else { panic!("{}", Shown(&tree)) };
    assert!(own(worker, 0) >= 500 && worker.ended.is_some());
    let parent = &tree.processes[worker.parent.unwrap()];
    let above = &tree.processes[parent.parent.unwrap()];
    assert!(above.ended.unwrap() < worker.ended.unwrap(), "its grandparent was gone before: {}", Shown(&tree));
    assert_eq!(above.parent, Some(0));
}

#[test]
fn a_killed_child_reports_too() {
    let Some(session) = common::reporting_session() else { return };
    let line = format!("{}; true", roles::line("killed:700"));
    let mut counted = count(&session, "page-faults", shell(&line), Attribution::EachProcess);
    let tree = counted.tree();
    common::check(&tree, &counted.counters);
    let killed = named(&tree, &own_name());
    let [killed] = killed[..] else { panic!("{}", Shown(&tree)) };
    assert!(own(killed, 0) >= 700 && killed.ended.is_some() && killed.complete, "{}", Shown(&tree));
    // And a root that is killed.
    let mut counted = count(&session, "page-faults", roles::words("killed:700"), Attribution::EachProcess);
    assert_eq!(counted.exited.status.signal(), Some(9));
    let tree = counted.tree();
    common::check(&tree, &counted.counters);
    assert!(own(&tree.processes[0], 0) >= 700 && tree.processes[0].ended.is_some());
}

#[test]
fn three_hundred_children_at_once() {
    let Some(session) = common::reporting_session() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Each reads from a pipe until its last writer, the shell, closes it: so all live at once.
    let script = format!(
        "mkfifo {0}/pipe; exec 3<>{0}/pipe 4<{0}/pipe; \
         i=0; while [ $i -lt 300 ]; do (read line <&4) 3>&- & i=$((i+1)); done; exec 3>&-; wait",
        folder.path().display()
    );
    let (tree, _) = tree_of(&session, "page-faults,task-clock", shell(&script));
    assert_whole(&tree);
    let root = &tree.processes[0];
    assert_eq!(root.children.len(), 301, "with mkfifo");
    let waiting = || root.children[1..].iter().map(|&child| &tree.processes[child]);
    let last = waiting().map(|child| child.started).max().unwrap();
    assert!(waiting().all(|child| child.ended.unwrap() > last), "all live at once");
    assert!(tree.processes.iter().all(|process| own(process, 0) > 0));
}

#[test]
fn a_command_that_leaves_a_daemon_behind() {
    let Some(session) = common::reporting_session() else { return };
    let sync_dir = SyncDir::new();
    let role = roles::line(&format!("behind:800,{}", sync_dir.text("")));
    let script = format!("{role} & while test ! -e '{}'; do sleep 0.01; done", sync_dir.text("here"));
    let mut counted = count(&session, "page-faults", shell(&script), Attribution::EachProcess);
    assert!(counted.exited.status.success());
    let tree = counted.tree();
    let daemon = named(&tree, &own_name());
    let [daemon] = daemon[..] else { panic!("{}", Shown(&tree)) };
    assert_eq!((daemon.ended, daemon.pid), (None, sync_dir.arrived_pid()));
    assert_eq!(own(daemon, 0), 0, "it has reported nothing yet");
    assert!(tree.processes[0].ended.is_some());
    let before = tree.totals[0].unwrap().value;
    // It goes on counting, in the total and in the part of the root, where its report is missing.
    sync_dir.post("go");
    sync_dir.wait_for("done");
    let tree = counted.tree();
    common::check(&tree, &counted.counters);
    let after = tree.totals[0].unwrap().value;
    assert!(after >= before + 800, "{before}, {after}");
    sync_dir.post("leave");
    let (tree, daemon) = common::eventually("it has reported all", || {
        let tree = counted.tree();
        let daemon = named(&tree, &own_name())[0].clone();
        (daemon.ended.is_some() && daemon.complete).then_some((tree, daemon))
    });
    assert!(own(&daemon, 0) >= 800, "now it has");
    common::check(&tree, &counted.counters);
}

#[test]
fn two_trees_at_once() {
    let Some(session) = common::reporting_session() else { return };
    let start = |role: &str| {
        let command = Command::hold(shell(&format!("{}; :", roles::line(role)))).unwrap();
        let counters = opened(&session, &command);
        let running = command.release(&[&counters]).unwrap();
        (counters, running)
    };
    let mut both = [start("touch:200"), start("touch:1200")];
    let faults = both.each_mut().map(|(counters, running)| {
        running.wait(&session).unwrap();
        let tree = counters.tree().unwrap().unwrap();
        common::check(&tree, counters);
        assert_whole(&tree);
        assert_eq!(tree.processes.len(), 2);
        own(&tree.processes[1], 0)
    });
    assert!((faults[1] - faults[0]).abs_diff(1000) <= NOISE, "{faults:?}");
}

#[test]
fn a_counting_program_can_be_counted() {
    let Some(session) = common::reporting_session() else { return };
    let (tree, _) = tree_of(&session, "page-faults", roles::words("tree/nested:300"));
    assert_whole(&tree);
    // The program, its command and that one's two children.
    assert_eq!(tree.processes.len(), 4, "{}", Shown(&tree));
    assert!(tree.processes[1..].iter().all(|process| own(process, 0) >= 300));
}

#[test]
fn a_tree_without_any_event_still_has_its_processes() {
    let Some(session) = common::session() else { return };
    let (tree, _) = tree_of(&session, "duration_time", shell("true | cat; :"));
    assert_eq!(tree.lost_records, 0);
    assert_eq!(tree.totals, [None]);
    assert!(!named(&tree, "cat").is_empty());
}

#[test]
fn a_tree_with_events_of_both_sources() {
    let Some(session) = common::reporting_session() else { return };
    let (tree, counted) =
        tree_of(&session, "page-faults,{task-clock,user_time},duration_time", roles::words("tree:1,2,100"));
    assert_whole(&tree);
    let snapshot = counted.counters.read();
    assert_eq!(snapshot.rows.len(), 1, "one row for the command: {snapshot:?}");
    assert!(tree.totals[0].is_some() && tree.totals[1].is_some());
    assert!(tree.totals[2].is_none() && tree.totals[3].is_none());
    assert!(common::value(snapshot.total(3)) > 0);
}

#[test]
fn a_tree_can_be_followed_while_it_grows() {
    let Some(session) = common::reporting_session() else { return };
    let command = Command::hold(roles::words("tree:2,3,20")).unwrap();
    let mut counters = opened(&session, &command);
    assert!(!counters.tree_fds().is_empty());
    let mut running = command.release(&[&counters]).unwrap();
    let mut most = 0;
    while running.try_wait(&session).unwrap().is_none() {
        counters.follow_tree().unwrap();
        let tree = counters.tree().unwrap().unwrap();
        assert!(tree.processes.len() >= most, "no process is forgotten");
        most = tree.processes.len();
    }
    let tree = counters.tree().unwrap().unwrap();
    common::check(&tree, &counters);
    assert_whole(&tree);
    assert_eq!(tree.processes.len(), 13);
}

#[test]
fn what_the_rings_have_no_room_for_is_told() {
    let Some(session) = common::reporting_session() else { return };
    // The rings are not read while it runs.
    let script = "i=0; while [ $i -lt 9000 ]; do (:); i=$((i+1)); done";
    let mut counted = count(&session, "page-faults", shell(script), Attribution::EachProcess);
    let tree = counted.tree();
    common::check(&tree, &counted.counters);
    let incomplete = tree.processes.iter().filter(|process| !process.complete || process.ended.is_none()).count();
    assert!(tree.lost_records > 0 && incomplete > 0, "{} lost, {incomplete} incomplete", tree.lost_records);
    assert!(tree.totals[0].unwrap().value > 9000 * 10, "the total knows all");
}

/// The version of the kernel: major, minor, and what follows.
fn kernel() -> [u32; 3] {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

#[test]
fn a_kernel_that_keeps_silent_is_told_from_one_that_loses_records() {
    let Some(session) = common::session() else { return };
    let mut counted = count(&session, "page-faults", shell("(:); (:); :"), Attribution::EachProcess);
    let tree = counted.tree();
    common::check(&tree, &counted.counters);
    assert_eq!((tree.processes.len(), tree.lost_records), (3, 0), "{}", Shown(&tree));
    let total = tree.totals[0].unwrap().value;
    match tree.reporting {
        Reporting::Known => assert_whole(&tree),
        Reporting::Never => {
            // What the kernel's developers mended may not be reported as missing.
            assert!((5, 13) <= (kernel()[0], kernel()[1]) && kernel() < [6, 18, 1], "{:?}", kernel());
            assert_eq!(tree.processes[0].counts[0].unwrap().value, total, "the first one has it all");
            let silent = |process: &Process| process.counts[0].is_none() && !process.complete;
            assert!(tree.processes[1..].iter().all(silent), "no zero that was not counted: {}", Shown(&tree));
        }
    }
    // No process has exited yet: nothing speaks against the kernel.
    let command = Command::hold(shell(":")).unwrap();
    let mut counters = opened(&session, &command);
    assert_eq!(counters.tree().unwrap().unwrap().reporting, Reporting::Known);
}
