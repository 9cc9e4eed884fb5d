//! Real commands, started, released, refused and abandoned.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::resolve::resolve;
use super::{ExitedChild, HeldChild, PerfEvents, SpawnError, SpawnOptions};
use crate::sys::{self, Errno, perf};
use crate::wait::{Signals, Token, Waiter, Wake};

fn words(argv: &[&str]) -> Vec<OsString> {
    argv.iter().map(OsString::from).collect()
}

fn spawn(argv: &[&str]) -> Result<HeldChild, SpawnError> {
    HeldChild::spawn(&words(argv), SpawnOptions::default())
}

fn run(argv: &[&str]) -> Result<ExitedChild, SpawnError> {
    Ok(spawn(argv)?.release()?.wait().unwrap())
}

fn program(dir: &Path, name: &str, content: &[u8]) -> String {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.into_os_string().into_string().unwrap()
}

/// Starts a file just written; another test's fork may still hold it open for writing for a moment.
fn run_fresh(argv: &[&str]) -> Result<ExitedChild, SpawnError> {
    loop {
        match run(argv) {
            Err(SpawnError::Exec { errno: Errno::ETXTBSY, .. }) => std::thread::sleep(Duration::from_millis(1)),
            answer => return answer,
        }
    }
}

#[test]
fn the_command_waits_at_the_gate() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let held = spawn(&["sh", "-c", "echo ran > \"$0\"; exit 7", mark.to_str().unwrap()]).unwrap();
    let at_gate = fs::read_link(format!("/proc/{}/exe", held.pid())).unwrap();
    assert_eq!(at_gate, std::env::current_exe().unwrap(), "still the forked parent");
    let pid = held.pid();
    let mut child = held.release().unwrap();
    assert_eq!(child.pid(), pid);
    let end = child.wait().unwrap();
    assert_eq!(end.status.code(), Some(7));
    assert_eq!(child.try_wait().unwrap(), Some(end), "the same answer again");
    assert_eq!(fs::read_to_string(&mark).unwrap(), "ran\n");
}

#[test]
fn what_it_used_is_reported() {
    let end = run(&["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]).unwrap();
    assert!(end.status.success());
    assert!(end.usage.user + end.usage.system > Duration::ZERO);
    assert!(end.usage.max_rss_kib > 100 && end.usage.minor_faults > 10);
}

#[test]
fn missing_commands_are_told_before_the_fork() {
    let missing = spawn(&["no-such-command-at-all", "x"]).unwrap_err();
    assert_eq!(missing.to_string(), "no-such-command-at-all: command not found");
    assert_eq!(missing.exit_code(), 127);
    let missing = spawn(&["/no/such/file"]).unwrap_err();
    assert_eq!(missing.to_string(), "/no/such/file: no such file or directory");
    assert_eq!(missing.exit_code(), 127);
    assert_eq!(spawn(&[""]).unwrap_err(), SpawnError::NotFound { command: OsString::new() });
    assert_eq!(spawn(&[]).unwrap_err(), SpawnError::NoCommand);
    assert_eq!(spawn(&["true", "a\0b"]).unwrap_err(), SpawnError::ZeroByte { argument: 1 });
    let directory = spawn(&["/usr/"]).unwrap_err();
    assert_eq!((directory.to_string().as_str(), directory.exit_code()), ("/usr/: is a directory", 126));
    let refused = spawn(&["/etc/passwd"]).unwrap_err();
    assert_eq!((refused.to_string().as_str(), refused.exit_code()), ("/etc/passwd: permission denied", 126));
}

#[test]
fn what_only_exec_can_tell_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let orphan = program(dir.path(), "orphan", b"#!/no/such/interpreter\n");
    let error = run_fresh(&[&orphan]).unwrap_err();
    assert_eq!(error.to_string(), format!("{orphan}: the interpreter that it names is missing"));
    let foreign = program(dir.path(), "foreign", b"\x7fELF\0\0\0 of nowhere");
    let error = run_fresh(&[&foreign]).unwrap_err();
    assert_eq!(error.to_string(), format!("{foreign}: cannot execute: not a program for this machine"));
    assert_eq!(error.exit_code(), 126);
    let long = "x".repeat(4 << 20);
    let error = run(&["true", &long]).unwrap_err();
    assert_eq!(error.to_string(), "true: argument list too long");
}

#[test]
fn a_script_without_a_first_line_runs_in_the_shell() {
    let dir = tempfile::tempdir().unwrap();
    let script = program(dir.path(), "plain", b"exit $(($1 + $#))\n");
    assert_eq!(run_fresh(&[&script, "40", "x"]).unwrap().status.code(), Some(42));
    let empty = program(dir.path(), "empty", b"");
    assert_eq!(run_fresh(&[&empty]).unwrap().status.code(), Some(0));
}

#[test]
fn the_path_is_searched_like_a_shell_does() {
    let dir = tempfile::tempdir().unwrap();
    let sub = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (first, second, third) = (sub("first"), sub("second"), sub("third"));
    fs::write(first.join("tool"), "not executable").unwrap();
    fs::create_dir(second.join("tool")).unwrap();
    let path = format!("/nonexistent:{}:{}", first.display(), second.display());
    let refused = resolve(OsStr::new("tool"), Some(OsStr::new(&path))).unwrap_err();
    assert_eq!(refused, SpawnError::PermissionDenied { command: "tool".into() });
    let tool = program(&third, "tool", b"");
    let path = format!("{path}:{}", third.display());
    assert_eq!(resolve(OsStr::new("tool"), Some(OsStr::new(&path))).unwrap().to_str(), Ok(tool.as_str()));
    assert_eq!(resolve(OsStr::new("sh"), None).unwrap().to_str(), Ok("/bin/sh"));
    let only_directory = resolve(OsStr::new("tool"), Some(second.as_os_str())).unwrap_err();
    assert_eq!(only_directory, SpawnError::NotFound { command: "tool".into() });
    // A part that may not be searched (root may search all) is like one without the file.
    let closed = sub("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let hidden = resolve(OsStr::new("tool"), Some(closed.as_os_str())).unwrap_err();
    assert_eq!(hidden, SpawnError::NotFound { command: "tool".into() });
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    // Empty parts mean the working directory, which here has the crate's manifest, not executable.
    for path in ["", ":/nonexistent", "/nonexistent:", "/nonexistent::/nonexistent"] {
        let found = resolve(OsStr::new("Cargo.toml"), Some(OsStr::new(path))).unwrap_err();
        assert_eq!(found, SpawnError::PermissionDenied { command: "Cargo.toml".into() }, "{path:?}");
    }
}

#[test]
fn an_abandoned_child_is_gone() {
    let held = spawn(&["true"]).unwrap();
    let pid = held.pid();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    drop(held);
    assert_eq!(sys::wait_child(pid.cast_signed(), sys::Reaping::Look).err(), Some(Errno::ECHILD));
}

#[test]
fn a_child_killed_at_the_gate_is_told_by_its_status() {
    let held = spawn(&["true"]).unwrap();
    sys::kill(held.pid().cast_signed(), libc::SIGKILL).unwrap();
    while !sys::has_exited(held.pid().cast_signed()).unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let end = held.release().unwrap().wait().unwrap();
    assert_eq!(end.status.signal(), Some(libc::SIGKILL));
}

#[test]
fn gates_of_several_threads_do_not_hold_each_other() {
    // If a waiting child held the gate of another open, a release would hang.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let waiting: Vec<_> = (0..3).map(|_| spawn(&["true"]).unwrap()).collect();
                    for held in waiting {
                        assert!(held.release().unwrap().wait().unwrap().status.success());
                    }
                }
            });
        }
    });
}

/// What a script of the shell writes into the file that is its `$0`.
fn written_by(script: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("written");
    assert!(run(&["sh", "-c", script, file.to_str().unwrap()]).unwrap().status.success());
    fs::read_to_string(&file).unwrap()
}

/// A line of a command's own status file.
fn status_of_command(name: &str) -> u64 {
    // The shell execs: the file is written by `grep` about itself.
    let text = written_by(&format!("exec grep ^{name}: /proc/self/status > \"$0\""));
    u64::from_str_radix(text.split_whitespace().nth(1).unwrap(), 16).unwrap()
}

#[test]
fn signals_of_the_command_are_fresh() {
    let bit = |signal: i32| 1_u64 << (signal - 1);
    // Rust's runtime ignores it in this very process.
    assert_eq!(status_of_command("SigIgn") & bit(libc::SIGPIPE), 0);
    assert_eq!(status_of_command("SigBlk") & bit(libc::SIGINT), 0);
}

#[test]
fn a_raised_limit_of_files_stays_with_the_parent() {
    let before = crate::limits::at_start().map_or_else(|| sys::file_limits().unwrap().soft, |limits| limits.soft);
    crate::limits::raise_soft_limit().unwrap();
    let text = written_by("ulimit -Sn > \"$0\"");
    let expected = if before == u64::MAX { "unlimited".to_owned() } else { before.to_string() };
    assert_eq!(text.trim(), expected);
}

#[test]
fn perf_events_can_be_refused() {
    let argv = words(&["sh", "-c", "grep -q '^Seccomp:.*2' /proc/self/status"]);
    let options = SpawnOptions { perf_events: PerfEvents::Refused(Errno::EPERM), ..SpawnOptions::default() };
    match HeldChild::spawn(&argv, options).unwrap().release() {
        Ok(mut child) => assert!(child.wait().unwrap().status.success()),
        Err(error) => println!("skipped: needs seccomp ({error})"),
    }
}

#[test]
fn descriptors_of_the_parent_do_not_leak() {
    let script = "exec ls /proc/self/fd > \"$0\"";
    let ours = written_by(script);
    let dir = tempfile::tempdir().unwrap();
    let usual = dir.path().join("usual");
    // The standard library's way is the measure: whatever started the tests may have left something open.
    assert!(Command::new("sh").args(["-c", script]).arg(&usual).status().unwrap().success());
    assert_eq!(ours, fs::read_to_string(usual).unwrap());
}

#[test]
fn events_count_from_exec_on() {
    let held = spawn(&["true"]).unwrap();
    let mut attr = [0_u8; 64];
    attr[0..4].copy_from_slice(&1_u32.to_ne_bytes()); // software
    attr[8..16].copy_from_slice(&2_u64.to_ne_bytes()); // page faults
    attr[40..48].copy_from_slice(&(1_u64 | 1 << 12 | 1 << 5).to_ne_bytes()); // disabled, on exec, user only
    let event = match perf::open(&attr, perf::TargetTask::Task(held.pid()), None, None) {
        Ok(event) => event,
        Err(error @ (Errno::EACCES | Errno::EPERM | Errno::ENOSYS)) => {
            println!("skipped: needs perf_event_open ({error})");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let count = || {
        let mut bytes = [0; 8];
        assert_eq!(sys::read(event.as_fd(), &mut bytes), Ok(8));
        u64::from_ne_bytes(bytes)
    };
    assert_eq!(count(), 0);
    let end = held.release().unwrap().wait().unwrap();
    // What the kernel's own books have more, the child needed before it became the command.
    assert!(count() > 0 && count() <= end.usage.minor_faults + end.usage.major_faults);
}

#[test]
fn handlers_of_the_parent_do_not_run_in_the_child() {
    let mut waiter = Waiter::with_these_signals(&[libc::SIGUSR2]).unwrap();
    let mut child = spawn(&["sleep", "1000"]).unwrap().release().unwrap();
    child.kill(libc::SIGUSR2).unwrap();
    assert_eq!(child.wait().unwrap().status.signal(), Some(libc::SIGUSR2));
    let held = spawn(&["true"]).unwrap();
    // At the gate it may not have got as far as to reset them; then the signal still waits.
    sys::kill(held.pid().cast_signed(), libc::SIGUSR2).unwrap();
    assert_eq!(held.release().unwrap().wait().unwrap().status.signal(), Some(libc::SIGUSR2));
    assert_eq!(waiter.wait(Some(Instant::now())), Ok(vec![Wake::Deadline]));
}

/// Runs one of the tests below in a process of its own, through a shell, and answers what it printed.
fn in_own_process(role: &str, shell: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", &format!("{shell} exec \"$0\" --exact spawn::tests::role_{role} --nocapture --test-threads=1")])
        .arg(std::env::current_exe().unwrap())
        .env("PMUX_TEST_ROLE", role)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Whether this process was started to play a role.
fn plays(role: &str) -> bool {
    std::env::var("PMUX_TEST_ROLE").is_ok_and(|played| played == role)
}

#[test]
fn role_dying_parent() {
    if plays("dying_parent") {
        let held = spawn(&["true"]).unwrap();
        println!("\nchild={}", held.pid());
        // Without drops, as if killed.
        std::process::exit(0);
    }
}

#[test]
fn a_child_whose_parent_dies_exits_by_itself() {
    let text = in_own_process("dying_parent", "");
    let pid = text.lines().find_map(|line| line.strip_prefix("child=")).unwrap().parse().unwrap();
    // There may be no process to reap it.
    pmux_testkit::eventually("it leaves its gate", || (!pmux_testkit::lives(pid)).then_some(()));
}

#[test]
fn role_nohup() {
    if !plays("nohup") {
        return;
    }
    let (hangup, interrupt) = (1_u64 << (libc::SIGHUP - 1), 1_u64 << (libc::SIGINT - 1));
    let waiter = Waiter::with_signals().unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
    assert_eq!(caught & hangup, 0, "ignored stays ignored");
    assert_eq!(caught & interrupt, interrupt, "what asks for the end is received all the same");
    let signals = Signals::receive(&[libc::SIGHUP]).unwrap();
    let ignored = status_of_command("SigIgn");
    assert_eq!(ignored & (hangup | interrupt), hangup | interrupt, "the command ignores both, received or not");
    sys::kill(std::process::id().cast_signed(), libc::SIGHUP).unwrap();
    let mut heard = Waiter::new();
    heard.watch(&signals, Token(0));
    assert_eq!(heard.wait(None), Ok(vec![Wake::Fd(Token(0))]), "what is asked for by name is received");
    assert_eq!(signals.take(), [libc::SIGHUP]);
    drop(signals);
    assert_eq!(run(&["sh", "-c", "exit 9"]).unwrap().status.code(), Some(9), "children are reported all the same");
    drop(waiter);
}

#[test]
fn what_was_ignored_stays_ignored() {
    let text = in_own_process("nohup", "trap '' HUP INT CHLD;");
    assert!(text.contains("1 passed"), "{text}");
}
