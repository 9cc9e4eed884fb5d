//! Following other tasks: `ptrace(2)`, and the waiting that belongs to it.
//!
//! **Invariant:** only the thread that took hold of a task may follow it. To another thread, and for a task that runs,
//! the kernel answers `ESRCH`, so that the calls can be made at any time.

use std::mem;
use std::ptr;

use super::Errno;
use super::process::{Reaped, wait4};

// From `include/uapi/linux/ptrace.h`; not every C library declares all of them.
const SEIZE: libc::c_long = 0x4206;
const INTERRUPT: libc::c_long = 0x4207;
const LISTEN: libc::c_long = 0x4208;
const GET_EVENT_MESSAGE: libc::c_long = 0x4201;
const GET_SYSCALL_INFO: libc::c_long = 0x420e;
const CONT: libc::c_long = 7;
const SYSCALL: libc::c_long = 24;
const DETACH: libc::c_long = 17;
/// Stops at system calls are told from signals; forks, clones and execs are reported, the first two followed.
const OPTIONS: usize = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;
const EVENT_STOP: i32 = 128;
/// What `TRACESYSGOOD` adds to the signal of a stop at a system call.
const SYSCALL_MARK: i32 = 0x80;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resume {
    /// Up to the next event or signal; the signal is delivered, 0 is none.
    Run(i32),
    /// As that, and up to the next system call.
    ToSyscall(i32),
    /// It stays stopped with its process, and hears when that goes on.
    Listen,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TraceStop {
    /// At the beginning or the end of a system call.
    Syscall,
    /// It made another task, whose number is the event's message.
    Forked,
    /// As that, and it waits until the other one has executed a program or ended.
    VforkBegan,
    /// The other one has done so.
    VforkDone,
    /// It has executed a program; the message is the number that the calling thread had before.
    Executed,
    /// It has just been made, was interrupted, or its process goes on.
    Trapped,
    /// Its process was stopped by a signal.
    GroupStop,
    /// A signal is about to be delivered.
    Signal(i32),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum TraceReport {
    Stopped(TraceStop),
    Ended(Reaped),
}

/// A request that only says something to the kernel.
fn request(code: libc::c_long, tid: i32, data: usize) -> Result<(), Errno> {
    if tid <= 0 {
        return Err(Errno::ESRCH);
    }
    // SAFETY: (1) The codes that come here let the kernel write to no memory of ours. (2) A task that isn't ours to
    // follow is refused by the kernel.
    let answer = unsafe { libc::syscall(libc::SYS_ptrace, code, libc::c_long::from(tid), 0_usize, data) };
    if answer < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// A request that fills a structure.
///
/// # Safety
/// (1) The kernel writes a value of type `T` for this code, or as many bytes of one as `size` says. (2) Any bytes are
/// a `T`.
unsafe fn fill<T>(code: libc::c_long, tid: i32, size: usize, into: &mut T) -> Result<(), Errno> {
    if tid <= 0 {
        return Err(Errno::ESRCH);
    }
    // SAFETY: (1) `into` is writable for the call, for all that the kernel writes, as the caller promises. (2) A task
    // that isn't ours to follow is refused by the kernel.
    let answer = unsafe { libc::syscall(libc::SYS_ptrace, code, libc::c_long::from(tid), size, ptr::from_mut(into)) };
    if answer < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Takes hold of a running task without stopping it.
///
/// Errors: `EPERM` where this user, a security module or a sandbox forbids it, or another tracer follows it; `ESRCH`.
pub(crate) fn seize(tid: i32) -> Result<(), Errno> {
    request(SEIZE, tid, OPTIONS)
}

/// Asks a running task to stop before its next instruction.
pub(crate) fn interrupt(tid: i32) -> Result<(), Errno> {
    request(INTERRUPT, tid, 0)
}

pub(crate) fn resume(tid: i32, how: Resume) -> Result<(), Errno> {
    let (code, signal) = match how {
        Resume::Run(signal) => (CONT, signal),
        Resume::ToSyscall(signal) => (SYSCALL, signal),
        Resume::Listen => (LISTEN, 0),
    };
    request(code, tid, usize::try_from(signal).unwrap_or(0))
}

/// Lets a stopped task go for good, with a signal or 0.
pub(crate) fn detach(tid: i32, signal: i32) -> Result<(), Errno> {
    request(DETACH, tid, usize::try_from(signal).unwrap_or(0))
}

/// The message of the event at which a task stands.
pub(crate) fn event_message(tid: i32) -> Result<u64, Errno> {
    // As wide as the kernel's `unsigned long`.
    let mut message = 0_usize;
    // SAFETY: (1) This request writes an `unsigned long`. (2) It is a number.
    unsafe { fill(GET_EVENT_MESSAGE, tid, 0, &mut message) }?;
    Ok(message as u64)
}

/// A system call, as the kernel describes the one at which a task stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SyscallStop {
    /// Before it.
    Entry {
        /// Of which set of calls, as `AUDIT_ARCH_*` counts them.
        arch: u32,
        /// Its number in that set.
        number: u64,
        arguments: [u64; 6],
    },
    /// Behind it.
    Exit {
        failed: bool,
    },
    None,
}

/// `struct ptrace_syscall_info` of the kernel.
#[repr(C)]
#[derive(Default)]
struct SyscallInfo {
    kind: u8,
    reserved: [u8; 3],
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    words: [u64; 8],
}

/// The system call at which a task stands.
///
/// Errors: `EIO` before Linux 5.3; `ESRCH`.
pub(crate) fn syscall_stop(tid: i32) -> Result<SyscallStop, Errno> {
    let mut info = SyscallInfo::default();
    // SAFETY: (1) This request writes at most the size that is named, which is that of `info`. (2) It is made of numbers.
    unsafe { fill(GET_SYSCALL_INFO, tid, size_of::<SyscallInfo>(), &mut info) }?;
    let [number, arguments @ .., _] = info.words;
    Ok(match info.kind {
        1 => SyscallStop::Entry { arch: info.arch, number, arguments },
        // The second word's first byte in memory.
        2 => SyscallStop::Exit { failed: arguments[0].to_ne_bytes()[0] != 0 },
        _ => SyscallStop::None,
    })
}

/// Looks for news of any task that this thread follows; never of other children of the process.
///
/// `None` where there is none now. Errors: `ECHILD` where it follows no task.
pub(crate) fn wait_followed() -> Result<Option<(i32, TraceReport)>, Errno> {
    let (tid, reaped) = wait4(-1, libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD)?;
    if tid == 0 {
        return Ok(None);
    }
    let report = match stop_of(reaped.status) {
        Some(stop) => TraceReport::Stopped(stop),
        None => TraceReport::Ended(reaped),
    };
    Ok(Some((tid, report)))
}

/// What a status word of a followed task means; `None` for its end.
fn stop_of(status: i32) -> Option<TraceStop> {
    if !libc::WIFSTOPPED(status) {
        return None;
    }
    let signal = libc::WSTOPSIG(status);
    Some(match status >> 16 {
        0 if signal == libc::SIGTRAP | SYSCALL_MARK => TraceStop::Syscall,
        0 => TraceStop::Signal(signal),
        1 | 3 => TraceStop::Forked,
        2 => TraceStop::VforkBegan,
        4 => TraceStop::Executed,
        5 => TraceStop::VforkDone,
        EVENT_STOP if signal == libc::SIGTRAP => TraceStop::Trapped,
        EVENT_STOP => TraceStop::GroupStop,
        _ => TraceStop::Trapped,
    })
}

/// Lets this thread receive the signal of children that ended or stopped, whatever it inherited.
pub(crate) fn unblock_child_signal() {
    // SAFETY: (1) `sigset_t` is plain data: all zeroes is a value of it.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: (1) `set` is valid and writable; a null old set is allowed.
    unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_words_are_told_apart() {
        let stopped = |event: i32, signal: i32| event << 16 | signal << 8 | 0x7f;
        assert_eq!(stop_of(stopped(0, libc::SIGTRAP | 0x80)), Some(TraceStop::Syscall));
        assert_eq!(stop_of(stopped(0, libc::SIGTRAP)), Some(TraceStop::Signal(libc::SIGTRAP)));
        assert_eq!(stop_of(stopped(0, libc::SIGSTOP)), Some(TraceStop::Signal(libc::SIGSTOP)));
        assert_eq!(stop_of(stopped(128, libc::SIGSTOP)), Some(TraceStop::GroupStop));
        assert_eq!(stop_of(stopped(128, libc::SIGTRAP)), Some(TraceStop::Trapped));
        assert_eq!(stop_of(stopped(4, libc::SIGTRAP)), Some(TraceStop::Executed));
        assert_eq!(stop_of(0x0100), None, "exit status 1");
        assert_eq!(stop_of(9), None, "killed");
    }

    #[test]
    fn who_is_not_followed_is_refused() {
        assert_eq!(seize(0), Err(Errno::ESRCH));
        assert_eq!(seize(-1), Err(Errno::ESRCH));
        assert_eq!(interrupt(1), Err(Errno::ESRCH));
        assert_eq!(syscall_stop(1), Err(Errno::ESRCH));
    }
}
