//! Filters for `perf_event_open`: one that refuses it, as containers do, and one that reports each call to a listener.
//!
//! Source: `seccomp(2)`, `seccomp_unotify(2)`, `kernel/seccomp.c`.
//!
//! **Invariant:** a filter is built before fork; installing it allocates nothing.

use std::mem::{self, offset_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{Errno, check, uninterrupted};

/// The ABIs by which a program of this machine may make system calls, each with the numbers that `perf_event_open` has in it.
/// Source: `include/uapi/linux/audit.h`, and the tables of system calls of each architecture.
const ABIS: &[(u32, &[u32])] = &[
    // The second number is that of x32, which has the ABI of x86-64 and a bit in the number.
    #[cfg(target_arch = "x86_64")]
    (0xc000_003e, &[298, 298 | 0x4000_0000]),
    #[cfg(target_arch = "x86_64")]
    (0x4000_0003, &[336]),
    #[cfg(target_arch = "aarch64")]
    (0xc000_00b7, &[241]),
    #[cfg(target_arch = "aarch64")]
    (0x4000_0028, &[364]),
    #[cfg(target_arch = "riscv64")]
    (0xc000_00f3, &[241]),
];

/// The program of a filter.
#[derive(Clone, Debug)]
pub(crate) struct PerfFilter(Vec<libc::sock_filter>);

impl PerfFilter {
    /// A filter that answers `perf_event_open` with this error and lets all else pass.
    ///
    /// It looks at the number of the call only. A program of another architecture on the same machine (32 bits on
    /// 64) uses other numbers and passes: good enough for tests, and no protection.
    pub(crate) fn refuse(answer: Errno) -> Self {
        let refuse = libc::SECCOMP_RET_ERRNO | (answer.raw().unsigned_abs() & libc::SECCOMP_RET_DATA);
        let mut steps = vec![load(offset_of!(libc::seccomp_data, nr))];
        steps.extend(answer_if(libc::SYS_perf_event_open as u32, refuse));
        steps.push(answer_with(libc::SECCOMP_RET_ALLOW));
        Self(steps)
    }

    /// A filter that reports `perf_event_open` to its listener, by whichever ABI it is called, and lets all else pass.
    ///
    /// It looks at the ABI and the number only, so that the kernel knows without running it which calls pass.
    pub(crate) fn notify() -> Self {
        let mut steps = vec![load(offset_of!(libc::seccomp_data, arch))];
        for (abi, numbers) in ABIS {
            let mut calls = vec![load(offset_of!(libc::seccomp_data, nr))];
            for number in *numbers {
                calls.extend(answer_if(*number, libc::SECCOMP_RET_USER_NOTIF));
            }
            calls.push(answer_with(libc::SECCOMP_RET_ALLOW));
            steps.push(skip_unless(*abi, calls.len() as u8));
            steps.append(&mut calls);
        }
        steps.push(answer_with(libc::SECCOMP_RET_ALLOW));
        Self(steps)
    }

    /// Puts the calling thread and its descendants under the filter, for ever; none of them gains rights by an exec any more.
    ///
    /// Async-signal-safe. Errors: `EINVAL` where the kernel has no filters.
    pub(crate) fn install(&mut self) -> Result<(), Errno> {
        no_new_privileges()?;
        self.set(0).map(drop)
    }

    /// As [`PerfFilter::install`], with a listener, which is close-on-exec. A thread with `CAP_SYS_ADMIN` in its user namespace still
    /// executes set-user-id programs as what they are; without it they run with its own rights.
    ///
    /// Async-signal-safe. Errors: `EBUSY` where the thread is under a filter with a listener already; `EINVAL` and `ENOSYS` where the
    /// kernel has no listeners.
    pub(crate) fn listen(&mut self) -> Result<OwnedFd, Errno> {
        let fd = match self.try_listen() {
            Err(Errno::EACCES) => no_new_privileges().and_then(|()| self.try_listen()),
            other => other,
        }?;
        // SAFETY: (1) The call succeeded, so this is an open descriptor. (2) No other code knows it yet.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn try_listen(&mut self) -> Result<libc::c_int, Errno> {
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        match self.set(flags | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
            // Before Linux 5.19: there a signal with a handler makes a call that waits begin anew.
            Err(Errno::EINVAL) => self.set(flags),
            other => other,
        }
    }

    fn set(&mut self, flags: libc::c_ulong) -> Result<libc::c_int, Errno> {
        let program = libc::sock_fprog { len: self.0.len() as u16, filter: self.0.as_mut_ptr() };
        // SAFETY: (1) `program` points to as many instructions as it says, which live for the whole call; the kernel copies them.
        let answer =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
        check(answer as libc::c_int)
    }
}

fn no_new_privileges() -> Result<(), Errno> {
    // SAFETY: (1) This request takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

const fn load(offset: usize) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, offset as u32)
}

/// Passes over so many steps, unless what was loaded is this value.
const fn skip_unless(value: u32, steps: u8) -> libc::sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, steps, value)
}

const fn answer_with(answer: u32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0, answer)
}

fn answer_if(value: u32, answer: u32) -> [libc::sock_filter; 2] {
    [skip_unless(value, 1), answer_with(answer)]
}

const fn step(code: u32, skip_unless: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: skip_unless, k }
}

/// A system call that waits for its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Notification {
    /// Which one it is; never that of another call.
    pub(crate) id: u64,
    /// The thread that calls, as the PID namespace of the receiver numbers it; 0 where it can't see it.
    pub(crate) thread: u32,
    /// The ABI by which it calls (`AUDIT_ARCH_*`), and the number of the call.
    pub(crate) abi: u32,
    pub(crate) number: i32,
    pub(crate) args: [u64; 6],
}

impl Notification {
    /// Whether the caller has pointers of 64 bits.
    pub(crate) const fn is_64_bit(&self) -> bool {
        // `__AUDIT_ARCH_64BIT`, and not x32.
        self.abi & 0x8000_0000 != 0 && self.number & 0x4000_0000 == 0
    }
}

/// Takes the next call that waits. Blocks until there is one.
///
/// Errors: `ENOENT` where the caller was killed or interrupted meanwhile: look again; `EINTR`.
pub(crate) fn receive(listener: BorrowedFd<'_>) -> Result<Notification, Errno> {
    // SAFETY: (1) `seccomp_notif` is plain numbers, and the kernel wants zeroes.
    let mut notif: libc::seccomp_notif = unsafe { mem::zeroed() };
    // SAFETY: (1) `notif` is writable and of the type that the request writes: the kernel's struct has not grown since its first
    // version, and a larger one would have another request number. (2) The borrow keeps the descriptor open.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notif) })?;
    let libc::seccomp_data { nr, arch, args, .. } = notif.data;
    Ok(Notification { id: notif.id, thread: notif.pid, abi: arch, number: nr, args })
}

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`. Source: `include/uapi/linux/seccomp.h`.
const SYNC_WAKE_UP: libc::c_ulong = 1;

/// Lets a caller and its listener take turns on one CPU, since one of them always waits for the other. Before Linux 6.6 nothing changes.
pub(crate) fn take_turns(listener: BorrowedFd<'_>) {
    // SAFETY: (1) The request takes a number. (2) The borrow keeps the descriptor open.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
}

/// Whether a call still waits: what was read of its thread before was read of that thread, and not of a later one with its number.
pub(crate) fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: (1) The number is readable. (2) The borrow keeps the descriptor open.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

/// Lets the kernel carry out a call, as if there were no filter.
///
/// Errors: `ENOENT` where it doesn't wait any more.
pub(crate) fn go_on(listener: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
    uninterrupted(|| {
        // SAFETY: (1) `answer` is readable and of the type that the request reads. (2) The borrow keeps the descriptor open.
        check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) })
    })
    .map(drop)
}
