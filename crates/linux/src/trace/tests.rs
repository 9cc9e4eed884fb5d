//! Real commands, followed to the end, let go and killed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Cause, FollowError, Followed, Step, Stop};
use crate::procfs::{Backing, Proc};
use crate::spawn::{Child, HeldChild, SpawnError, SpawnOptions};
use crate::sys;

/// The test binary itself in a role: `trace::tests::role` plays it.
const ROLE: &str = "PMUX_TRACE_ROLE";

/// A followed command, unless this machine forbids to trace.
fn follow(argv: &[&str]) -> Option<(Child, Followed)> {
    let words: Vec<_> = argv.iter().map(OsString::from).collect();
    match HeldChild::spawn(&words, SpawnOptions::default()).unwrap().follow() {
        Ok(both) => Some(both),
        Err(FollowError::Refused { .. } | FollowError::Unsupported) => {
            println!("skipped: needs the right to trace its own children");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A followed process that plays a role in a folder.
fn follow_role(role: &str, folder: &Path) -> Option<(Child, Followed)> {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let role = format!("{ROLE}={role}:{}", folder.display());
    follow(&["env", &role, program, "trace::tests::role", "--exact", "--nocapture", "--test-threads=1"])
}

fn stop(followed: &mut Followed) -> Stop {
    match followed.next_step() {
        Step::Mapped(stop) => stop,
        Step::Ended => panic!("it has ended"),
    }
}

fn all_stops(followed: &mut Followed) -> Vec<Stop> {
    let mut stops = Vec::new();
    while let Step::Mapped(stop) = followed.next_step() {
        stops.push(stop);
    }
    stops
}

fn tracer_of(pid: i32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap().trim().to_owned()
}

fn state_of(pid: i32) -> char {
    Proc::system().stat(pid).unwrap().state
}

fn wait_until(mut there: impl FnMut() -> bool) {
    while !there() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_first_stop_is_before_the_first_instruction() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let argv = ["sh", "-c", "echo ran > \"$0\"; exit 7", mark.to_str().unwrap()];
    let Some((mut child, mut followed)) = follow(&argv) else { return };
    let first = stop(&mut followed);
    let pid = child.pid().cast_signed();
    assert_eq!((first.pid(), first.cause(), first.tasks()), (pid, Cause::Exec, &[pid][..]));
    let proc = Proc::system();
    let maps = proc.maps(pid).unwrap();
    let program = proc.program(pid).unwrap();
    assert!(maps.iter().any(|mapping| mapping.file().is_some_and(|file| file.path == program)), "{maps:?}");
    assert!(!maps.iter().any(|mapping| mapping.backing == Backing::Special("[heap]".into()) && mapping.rights.execute));
    assert!(!mark.exists());
    assert_eq!(child.try_wait().unwrap(), None);
    assert_ne!(tracer_of(pid), "0");
    // A dynamic program maps its libraries one after the other, each seen as soon as it is there.
    let before: BTreeSet<_> = maps.iter().filter_map(|mapping| mapping.file().cloned()).collect();
    if let Step::Mapped(library) = followed.next_step() {
        assert_eq!((library.pid(), library.cause()), (pid, Cause::Library));
        let maps = proc.maps(pid).unwrap();
        let new = maps.iter().filter(|mapping| mapping.rights.execute).filter_map(|mapping| mapping.file());
        assert!(new.into_iter().any(|file| !before.contains(file)), "{maps:?}");
        assert!(!mark.exists());
    }
    followed.finish();
    assert_eq!(child.wait().unwrap().status.code(), Some(7));
    assert_eq!(child.wait().unwrap().status.code(), Some(7), "the same again");
    assert_eq!(fs::read_to_string(&mark).unwrap(), "ran\n");
}

#[test]
fn every_program_of_the_tree_stops_and_the_status_is_the_commands() {
    let argv = ["sh", "-c", "/bin/echo > /dev/null; /bin/cat /dev/null | /bin/cat; exit 3"];
    let Some((mut child, mut followed)) = follow(&argv) else { return };
    let stops = all_stops(&mut followed);
    let execs: Vec<i32> = stops.iter().filter(|stop| stop.cause() == Cause::Exec).map(Stop::pid).collect();
    assert_eq!(execs.len(), 4, "{stops:?}");
    assert_eq!(execs.iter().collect::<BTreeSet<_>>().len(), 4, "each in a process of its own");
    assert!(stops.iter().all(|stop| stop.moving().is_empty()), "{stops:?}");
    let end = child.wait().unwrap();
    assert_eq!(end.status.code(), Some(3));
    assert!(end.usage.max_rss_kib > 100 && end.usage.minor_faults > 10, "{end:?}");
    assert_eq!(followed.next_step(), Step::Ended);
}

#[test]
fn signals_arrive_and_kill() {
    let script = "n=0; trap 'n=$((n+1))' USR1; kill -USR1 $$; kill -USR1 $$; [ $n = 2 ] && kill -TERM $$; sleep 1";
    let Some((mut child, mut followed)) = follow(&["sh", "-c", script]) else { return };
    all_stops(&mut followed);
    assert_eq!(child.wait().unwrap().status.signal(), Some(libc::SIGTERM));
}

#[test]
fn a_signal_that_comes_at_a_stop_is_delivered_when_it_is_over() {
    for ends in [Followed::finish, |mut followed: Followed| drop(all_stops(&mut followed)), drop] {
        let Some((mut child, mut followed)) = follow(&["sleep", "1000"]) else { return };
        let pid = stop(&mut followed).pid();
        sys::kill(pid, libc::SIGUSR1).unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        ends(followed);
        assert_eq!(child.wait().unwrap().status.signal(), Some(libc::SIGUSR1));
    }
}

#[test]
fn a_stopped_process_stays_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let script = "kill -STOP $$; while [ ! -e \"$0.go\" ]; do kill -STOP $$; done; echo on > \"$0\"; exit 5";
    let Some((mut child, mut followed)) = follow(&["sh", "-c", script, mark.to_str().unwrap()]) else { return };
    let pid = child.pid().cast_signed();
    wait_until(|| followed.try_step().is_none() && is_stopped(pid));
    assert!(!mark.exists());
    fs::write(folder.path().join("mark.go"), "").unwrap();
    wait_until(|| {
        // Said again until it is heard: it may come before the stop.
        let _ = sys::kill(pid, libc::SIGCONT);
        followed.try_step();
        mark.exists()
    });
    all_stops(&mut followed);
    assert_eq!(child.wait().unwrap().status.code(), Some(5));
}

#[test]
fn a_stop_by_job_control_survives_being_let_go() {
    let Some((mut child, mut followed)) = follow(&["sh", "-c", "kill -STOP $$; exit 6"]) else { return };
    let pid = child.pid().cast_signed();
    // All stops of its start, then nothing more comes: it is stopped.
    wait_until(|| followed.try_step().is_none() && is_stopped(pid));
    followed.finish();
    assert_eq!(tracer_of(pid), "0");
    wait_until(|| state_of(pid) == 'T');
    assert_eq!(child.try_wait().unwrap(), None);
    sys::kill(pid, libc::SIGCONT).unwrap();
    assert_eq!(child.wait().unwrap().status.code(), Some(6));
}

/// Whether a process stands for a long time. Also true of one that is merely slow: the test then sees less, and passes.
fn is_stopped(pid: i32) -> bool {
    (0..50).all(|_| {
        std::thread::sleep(Duration::from_millis(1));
        matches!(state_of(pid), 't' | 'T')
    })
}

#[test]
fn it_can_be_let_go_while_it_runs_and_killed_at_a_stop() {
    let Some((mut child, mut followed)) = follow(&["sleep", "1000"]) else { return };
    let pid = child.pid().cast_signed();
    wait_until(|| {
        followed.try_step().is_none() && fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().contains("1000")
    });
    followed.finish();
    assert_eq!(tracer_of(pid), "0");
    assert_eq!(child.try_wait().unwrap(), None, "it sleeps on");
    child.kill(libc::SIGKILL).unwrap();
    assert_eq!(child.wait().unwrap().status.signal(), Some(libc::SIGKILL));

    let Some((mut child, mut followed)) = follow(&["sleep", "1000"]) else { return };
    stop(&mut followed);
    child.kill(libc::SIGKILL).unwrap();
    assert_eq!(child.wait().unwrap().status.signal(), Some(libc::SIGKILL), "while everything stands");
    assert_eq!(followed.next_step(), Step::Ended);

    let Some((mut child, mut followed)) = follow(&["sleep", "1000"]) else { return };
    stop(&mut followed);
    followed.kill();
    assert_eq!(child.wait().unwrap().status.signal(), Some(libc::SIGKILL));

    let Some((mut child, followed)) = follow(&["true"]) else { return };
    drop(followed);
    assert!(child.wait().unwrap().status.success(), "dropped at the gate");
}

#[test]
fn a_command_that_is_no_program_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken");
    fs::write(&path, b"\x7fELF\0\0\0 nothing").unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let held = HeldChild::spawn(&[path.clone().into_os_string()], SpawnOptions::default()).unwrap();
    match held.follow() {
        Err(FollowError::Spawn(SpawnError::BadFormat { .. } | SpawnError::Exec { .. })) => {}
        Err(FollowError::Refused { .. } | FollowError::Unsupported) => {
            println!("skipped: needs the right to trace its own children");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn threads_vforks_and_an_exec_by_another_thread() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mut child, mut followed)) = follow_role("threads", folder.path()) else { return };
    let pid = child.pid().cast_signed();
    let stops = all_stops(&mut followed);
    assert!(child.wait().unwrap().status.success());
    // env, the role, the program that it starts with a vfork, and the one that takes its place.
    let execs: Vec<i32> = stops.iter().filter(|stop| stop.cause() == Cause::Exec).map(Stop::pid).collect();
    assert_eq!(execs.len(), 4, "{stops:?}");
    assert_eq!(execs.iter().filter(|&&other| other == pid).count(), 3);
    let last = stops.iter().rev().find(|stop| stop.cause() == Cause::Exec).unwrap();
    assert_eq!(last.tasks(), [pid], "an exec ends all threads but one");
    assert_eq!(fs::read_to_string(folder.path().join("vforked")).unwrap(), "done");
}

#[test]
fn everything_stands_at_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mut child, mut followed)) = follow_role("busy", folder.path()) else { return };
    let pid = child.pid().cast_signed();
    let proc = Proc::system();
    // A child of the busy process executes a program while its threads run.
    let seen = loop {
        let seen = stop(&mut followed);
        if seen.pid() != pid && seen.cause() == Cause::Exec {
            break seen;
        }
    };
    assert!(seen.moving().is_empty(), "{seen:?}");
    let threads = proc.threads_of(pid).unwrap();
    assert!(threads.len() > 8, "{threads:?}");
    let time = || threads.iter().map(|&tid| proc.schedstat(tid).unwrap_or(0)).sum::<u64>();
    // What a task has used is brought up to date a moment after it stood.
    let still = |milliseconds| {
        let before = time();
        std::thread::sleep(Duration::from_millis(milliseconds));
        time() == before
    };
    wait_until(|| still(5));
    assert!(still(20), "no task runs");
    for tid in threads {
        assert!(matches!(state_of(tid), 't' | 'T' | 'Z'), "{tid}");
    }
    fs::write(folder.path().join("stop"), "").unwrap();
    followed.finish();
    assert!(child.wait().unwrap().status.success());
}

#[test]
fn other_children_of_the_process_are_left_alone() {
    let other = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let quick = Command::new("true").spawn().unwrap();
    if let Some((mut child, mut followed)) = follow(&["sh", "-c", "/bin/true; /bin/true"]) {
        all_stops(&mut followed);
        assert!(child.wait().unwrap().status.success());
    }
    for mut process in [other, quick] {
        drop(process.stdin.take());
        assert!(process.wait().unwrap().success(), "no other thread has reaped it");
    }
}

/// Plays a part when this binary is started for one.
#[test]
fn role() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let role = role.into_string().unwrap();
    let (role, folder) = role.split_once(':').unwrap();
    let folder = Path::new(folder);
    match role {
        "threads" => {
            std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(std::thread::yield_now))));
            assert!(Command::new("true").status().unwrap().success());
            fs::write(folder.join("vforked"), "done").unwrap();
            let other = std::thread::spawn(|| panic!("{}", Command::new("true").exec()));
            let _ = other.join();
            panic!("exec replaces all threads");
        }
        "busy" => {
            let stop = folder.join("stop");
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        wait_until(|| (0..1000).all(|number| std::hint::black_box(number) >= 0) && stop.exists());
                    });
                }
                assert!(Command::new("true").status().unwrap().success());
            });
        }
        other => panic!("{other}"),
    }
    std::process::exit(0);
}
