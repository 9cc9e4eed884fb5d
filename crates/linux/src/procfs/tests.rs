//! On fabricated trees, and on the tasks of this machine.

use std::process::{Command, Stdio};

use super::*;
use pmux_testkit::{Killed, eventually, put};

const LINE: &str = "42 (a) b (c) S 7 42 42 0 -1 4194560 11 12 13 14 15 16 17 -18 20 0 3 0 99 1000 10 0 0";

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Proc) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        put(folder.path(), name, text);
    }
    let proc = Proc::at(folder.path());
    (folder, proc)
}

#[test]
fn a_name_with_brackets_does_not_shift_the_fields() {
    let stat = Stat::parse(LINE).unwrap();
    assert_eq!((stat.id, stat.comm.as_str(), stat.state, stat.parent), (42, "a) b (c", 'S', 7));
    assert_eq!((stat.minor_faults, stat.children_minor_faults), (11, 12));
    assert_eq!((stat.major_faults, stat.children_major_faults), (13, 14));
    assert_eq!((stat.user_ticks, stat.system_ticks), (15, 16));
    assert_eq!((stat.children_user_ticks, stat.children_system_ticks), (17, 0), "a negative number counts as none");
    assert_eq!((stat.threads, stat.start_ticks), (3, 99));
    assert!(!stat.is_zombie() && !stat.is_ending());
    assert!(Stat::parse(&LINE.replace("4194560", "4194564")).unwrap().is_ending());
    assert!(Stat::parse(&LINE.replace(" S 7", " Z 7")).unwrap().is_ending());
}

#[test]
fn the_cgroup_of_version_2_is_found_among_others() {
    let (_folder, proc) = tree(&[
        ("7/cgroup", "4:cpu:/old\n0::/system.slice/a:b.service\n"),
        ("8/cgroup", "4:cpu:/old\n"),
        ("9/cgroup", "0::/\n"),
    ]);
    assert_eq!(proc.cgroup(7).unwrap().as_deref(), Some("/system.slice/a:b.service"));
    assert_eq!(proc.cgroup(8).unwrap(), None);
    assert_eq!(proc.cgroup(9).unwrap().as_deref(), Some("/"));
}

#[test]
fn broken_lines_are_refused_and_never_panic() {
    for end in 0..LINE.len() {
        let part = &LINE[..end];
        if let Some(stat) = Stat::parse(part) {
            assert_ne!(stat.start_ticks, 0, "{part}");
        }
    }
    for text in ["", ")(", "1 ) (", "x (y) S", "1 (y)", "()", "1 (é) Z é"] {
        assert_eq!(Stat::parse(text), None, "{text}");
    }
}

#[test]
fn status_reads_what_is_there_and_leaves_the_rest_open() {
    let text = "Name:\tx: y\nTgid:\t42\nPid:\t43\nPPid:\t1\nUid:\t1000\t0\t0\t0\nVmHWM:\t   17 kB\nCapEff:\t0000004000000000\n\
                Seccomp:\t2\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n";
    let status = Status::parse(text).unwrap();
    assert_eq!((status.process, status.parent, status.users.effective), (42, 1, 0));
    assert_eq!(status.effective_capabilities, 1 << 38);
    assert_eq!(status.seccomp, SeccompMode::Filter);
    assert_eq!(status.switches(), Some(7));
    assert_eq!(status.peak_resident_bytes, Some(17 * 1024));
    assert_eq!(Status::parse("Name:\tx\n"), None);
    assert_eq!(Status::parse("Tgid:\t1\n").unwrap().switches(), None);
}

#[test]
fn a_dead_task_is_told_from_a_missing_file() {
    let (_folder, proc) = tree(&[("5/stat", "nonsense"), ("5/task/5/comm", "x\n")]);
    assert_eq!(proc.stat(6), Err(ProcError::Gone { id: 6 }));
    assert_eq!(proc.threads_of(6), Err(ProcError::Gone { id: 6 }));
    assert!(matches!(proc.stat(5), Err(ProcError::Malformed { .. })));
    assert!(matches!(proc.schedstat(5), Err(ProcError::Unsupported { .. })));
    assert!(matches!(proc.children(5), Err(ProcError::Unsupported { .. })));
    assert!(matches!(proc.machine(), Err(ProcError::Unsupported { .. })));
    assert!(!proc.exists(0) && !proc.exists(-1) && proc.exists(5));
    let empty = tempfile::tempdir().unwrap();
    for root in [empty.path(), &empty.path().join("none")] {
        let (proc, error) = (Proc::at(root), ProcError::NotMounted { root: root.to_owned() });
        assert_eq!(proc.stat(6).unwrap_err(), error);
        assert_eq!(proc.machine().unwrap_err(), error);
        assert!(error.to_string().ends_with(" is not mounted here, and what tasks do stands there"));
    }
    assert_eq!(ProcError::Gone { id: 6 }.to_string(), "there is no task 6 (any more)");
}

#[test]
fn threads_and_children_are_sorted() {
    let (_folder, proc) = tree(&[
        ("10/task/10/children", "30 12 "),
        ("10/task/9/children", ""),
        ("10/task/11/children", "5"),
        ("10/task/notes/children", "1"),
    ]);
    assert_eq!(proc.threads_of(10).unwrap(), [9, 10, 11]);
    assert_eq!(proc.children(10).unwrap(), [5, 12, 30]);
}

#[test]
fn a_migration_count_is_a_number_or_unsupported() {
    let (_folder, proc) =
        tree(&[("1/sched", "a (1, #threads: 1)\n---\nse.nr_migrations   :    12\n"), ("2/sched", "b (2)\n")]);
    assert_eq!(proc.migrations(1), Ok(12));
    assert!(matches!(proc.migrations(2), Err(ProcError::Unsupported { .. })));
    assert_eq!(proc.migrations(3), Err(ProcError::Gone { id: 3 }));
}

#[test]
fn the_machine_is_read_with_and_without_the_late_columns() {
    let text = "cpu  10 1 5 100 2 3 4 6 7 8\ncpu0 4 1 2 50 1 1 1 1 0 0\ncpu7 6 0 3 50\nctxt 77\nprocesses 9\n";
    let (_folder, proc) = tree(&[("stat", text), ("vmstat", "nr_free 1\npgfault 30\npgmajfault 4\n")]);
    let stat = proc.machine().unwrap();
    assert_eq!((stat.all.total(), stat.all.user_mode(), stat.all.kernel_mode()), (131, 11, 12));
    assert_eq!(stat.cpu(7).unwrap().total(), 59);
    assert_eq!(stat.cpu(1), None);
    assert_eq!(stat.context_switches, 77);
    assert_eq!(proc.faults().unwrap(), Faults { all: 30, major: 4 });
    assert_eq!(MachineStat::parse("cpu0 1 2 3 4\n"), None);
}

#[test]
fn the_tick_rate_comes_from_the_auxiliary_vector() {
    let words: [usize; 6] = [6, 4096, 17, 250, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(aux_value(&bytes, 17), Some(250));
    assert_eq!(aux_value(&bytes, 18), None);
    assert_eq!(aux_value(&bytes[..20], 17), None, "a cut pair is no pair");
    let (_folder, proc) = tree(&[]);
    assert_eq!(proc.ticks_per_second(), 100);
    assert!(Proc::system().ticks_per_second() > 0);
}

#[test]
fn this_process_can_be_read() {
    let proc = Proc::system();
    let me = std::process::id().cast_signed();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("odd) name (".into()).spawn(move || receiver.recv()).unwrap();
    let threads = proc.threads_of(me).unwrap();
    assert!(threads.len() >= 2 && threads.is_sorted(), "{threads:?}");
    // The new thread may not have set its name yet.
    let named = || threads.iter().copied().find(|&tid| proc.comm(tid).is_ok_and(|name| name == "odd) name ("));
    let other = eventually("it has its name", named);
    assert_eq!(proc.process_of(other).unwrap(), me);
    assert_eq!(proc.thread_stat(other).unwrap().comm, "odd) name (");
    let stat = proc.stat(me).unwrap();
    assert!(stat.threads >= 2 && stat.minor_faults > 0);
    assert_eq!(proc.parent(me).unwrap(), stat.parent);
    let status = proc.own_status().unwrap();
    assert_eq!(status.process, me);
    assert!(status.peak_resident_bytes > Some(0));
    drop(sender);
    assert!(thread.join().unwrap().is_err());
}

#[test]
fn a_child_is_listed_and_then_gone() {
    let proc = Proc::system();
    let me = std::process::id().cast_signed();
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id().cast_signed();
    match proc.children(me) {
        Ok(children) => assert!(children.contains(&pid), "{children:?}"),
        Err(ProcError::Unsupported { .. }) => println!("skipped: needs CONFIG_PROC_CHILDREN"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(proc.parent(pid).unwrap(), me);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(proc.stat(pid), Err(ProcError::Gone { id: pid }));
}

#[test]
fn a_task_looks_into_its_like_only() {
    use std::os::unix::process::CommandExt as _;
    let proc = Proc::system();
    let own = std::process::id().cast_signed();
    assert!(proc.may_look_into(own, own) && !proc.may_look_into(own, i32::MAX));
    assert_eq!(proc.task_in_namespace_of(own, crate::current_tid()), Some(crate::current_tid()));
    assert_eq!(proc.task_in_namespace_of(own, i32::MAX), None);
    let sleeper = |user: Option<u32>| {
        let mut command = Command::new("sleep");
        command.arg("1000");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command.spawn().map(Killed)
    };
    let like = sleeper(None).unwrap();
    assert!(proc.may_look_into(own, like.0.id().cast_signed()));
    // Only root starts a program of another user.
    if let Ok(other) = sleeper(Some(65534)) {
        let number = other.0.id().cast_signed();
        let may = [(own, number), (number, own), (number, number)].map(|(one, other)| proc.may_look_into(one, other));
        assert_eq!(may, [false, false, true]);
    }
}
