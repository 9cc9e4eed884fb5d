//! The waiter, on real children, signals and pipes.
//!
//! Signals are sent to this very process, where other tests run as well: only those that nothing else here uses.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use super::{Token, Waiter, Wake};
use crate::spawn::{Child, HeldChild, SpawnOptions};
use crate::sys::{self, Errno, SignalPipe};

fn start(script: &str) -> Child {
    let argv = ["sh", "-c", script].map(OsString::from);
    HeldChild::spawn(&argv, SpawnOptions::default()).unwrap().release().unwrap()
}

fn me() -> i32 {
    std::process::id().cast_signed()
}

#[test]
fn a_wait_for_nothing_is_refused() {
    assert_eq!(Waiter::new().wait(None), Err(Errno::EDEADLK));
}

#[test]
fn a_deadline_ends_the_wait_and_not_before() {
    let mut waiter = Waiter::new();
    let deadline = Instant::now() + Duration::from_millis(20);
    assert_eq!(waiter.wait(Some(deadline)), Ok(vec![Wake::Deadline]));
    assert!(Instant::now() >= deadline);
    // In the past: a look.
    assert_eq!(waiter.wait(Some(deadline)), Ok(vec![Wake::Deadline]));
}

#[test]
fn the_end_of_a_child_is_seen_once() {
    let mut child = start("exit 3");
    let mut waiter = Waiter::new();
    waiter.watch_child(&child).unwrap();
    assert_eq!(waiter.wait(None), Ok(vec![Wake::Child]));
    assert_eq!(child.try_wait().unwrap().unwrap().status.code(), Some(3));
    assert_eq!(waiter.wait(None), Err(Errno::EDEADLK));
}

#[test]
fn the_end_of_a_child_is_seen_without_a_pidfd() {
    for script in ["exit 4", "sleep 0.05; exit 4"] {
        let mut child = start(script);
        child.forget_pidfd();
        let mut waiter = Waiter::new();
        waiter.watch_child(&child).unwrap();
        assert_eq!(waiter.wait(None), Ok(vec![Wake::Child]));
        assert_eq!(child.try_wait().unwrap().unwrap().status.code(), Some(4));
    }
    // One that had ended before it was watched.
    let mut child = start("exit 5");
    child.forget_pidfd();
    while !sys::has_exited(child.pid().cast_signed()).unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut waiter = Waiter::new();
    waiter.watch_child(&child).unwrap();
    assert_eq!(waiter.wait(None), Ok(vec![Wake::Child]));
    child.kill(libc::SIGKILL).unwrap();
    assert_eq!(child.wait().unwrap().status.code(), Some(5));
    assert_eq!(child.kill(libc::SIGKILL), Err(Errno::ESRCH));
}

#[test]
fn a_killed_child_tells_its_signal() {
    let mut child = start("exec sleep 1000");
    assert_eq!(child.try_wait(), Ok(None));
    let mut waiter = Waiter::new();
    waiter.watch_child(&child).unwrap();
    assert_eq!(waiter.wait(Some(Instant::now())), Ok(vec![Wake::Deadline]));
    child.kill(libc::SIGTERM).unwrap();
    assert_eq!(waiter.wait(None), Ok(vec![Wake::Child]));
    assert_eq!(child.wait().unwrap().status.signal(), Some(libc::SIGTERM));
}

#[test]
fn descriptors_are_ready_until_read_and_hang_up_once() {
    let (mut here, there) = UnixStream::pair().unwrap();
    let (_quiet, other) = UnixStream::pair().unwrap();
    let mut waiter = Waiter::new();
    waiter.watch(&other, Token(1));
    waiter.watch(&there, Token(2));
    here.write_all(b"x").unwrap();
    assert_eq!(waiter.wait(None), Ok(vec![Wake::Fd(Token(2))]));
    let now = Instant::now();
    assert_eq!(waiter.wait(Some(now)), Ok(vec![Wake::Fd(Token(2)), Wake::Deadline]));
    drop(here);
    // A child that another test has just forked may hold a copy of the other end until it execs.
    let last = loop {
        let wakes = waiter.wait(None).unwrap();
        if wakes != [Wake::Fd(Token(2))] {
            break wakes;
        }
    };
    assert_eq!(last, [Wake::Fd(Token(2)), Wake::Hangup(Token(2))]);
    assert_eq!(waiter.wait(Some(now)), Ok(vec![Wake::Deadline]));
    waiter.forget(Token(1));
    assert_eq!(waiter.wait(None), Err(Errno::EDEADLK));
}

#[test]
fn a_closed_descriptor_hangs_up_instead_of_spinning() {
    let (reader, _writer) = sys::pipe().unwrap();
    let mut waiter = Waiter::new();
    waiter.watch(&reader, Token(9));
    // A number that no process of the tests reaches stands for one that was closed.
    waiter.fds[0].1 = 1_000_000;
    assert_eq!(waiter.wait(None), Ok(vec![Wake::Hangup(Token(9))]));
    assert!(reader.as_raw_fd() >= 0);
}

#[test]
fn signals_reach_every_waiter_and_go_back_to_what_they_were() {
    // Handled by no other code in these tests, and ignored by default: late ones do no harm.
    const SIGNAL: i32 = libc::SIGURG;
    let mut one = Waiter::with_these_signals(&[SIGNAL, SIGNAL]).unwrap();
    let mut two = Waiter::with_these_signals(&[SIGNAL, libc::SIGWINCH]).unwrap();
    sys::kill(me(), SIGNAL).unwrap();
    assert_eq!(one.wait(None), Ok(vec![Wake::Signal(SIGNAL)]));
    assert_eq!(two.wait(None), Ok(vec![Wake::Signal(SIGNAL)]));
    drop(one);
    sys::kill(me(), SIGNAL).unwrap();
    sys::kill(me(), libc::SIGWINCH).unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(two.wait(None).unwrap());
    }
    assert!(seen.contains(&Wake::Signal(SIGNAL)) && seen.contains(&Wake::Signal(libc::SIGWINCH)));
    assert_eq!(caught() >> (SIGNAL - 1) & 1, 1);
    drop(two);
    assert_eq!(caught() >> (SIGNAL - 1) & 1, 0, "the default action is back");
    sys::kill(me(), SIGNAL).unwrap();
}

#[test]
fn signals_that_cannot_be_received_are_refused() {
    for signal in [0, -1, 64, 1000, libc::SIGKILL, libc::SIGSTOP] {
        assert_eq!(Waiter::with_these_signals(&[signal]).err(), Some(Errno::EINVAL), "{signal}");
    }
}

#[test]
fn slots_are_given_back() {
    for _ in 0..200 {
        let signal_pipe = SignalPipe::open(&[libc::SIGCONT], &[]).unwrap();
        assert_eq!(signal_pipe.take() & !(1 << libc::SIGCONT), 0);
        assert!(signal_pipe.fd().as_fd().as_raw_fd() >= 0);
    }
}

/// The signals for which this process has a handler, from its status file.
fn caught() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}
