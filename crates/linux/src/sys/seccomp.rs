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

/// The descriptors of virtual events: calls about them are reported, too. They begin behind those that most programs may open, and are
/// those with one value of the bits above: a profile of a container can say no more about an argument.
pub(crate) const VIRTUAL_FDS: std::ops::Range<u32> = 4096..8192;

/// The calls that may be about a virtual event, those with the descriptor first; `mmap` has it as its fifth argument. What only
/// takes a descriptor to close, wait for or send it needs no answer.
const FD_CALLS: [libc::c_long; 8] = [
    libc::SYS_read,
    libc::SYS_ioctl,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_dup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(not(target_arch = "x86_64"))]
    libc::SYS_dup3,
    libc::SYS_dup3,
    libc::SYS_fcntl,
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

    /// A filter that reports `perf_event_open` to its listener, by whichever ABI it is called, and what is done to [`VIRTUAL_FDS`]; it
    /// lets all else pass.
    pub(crate) fn notify() -> Self {
        let mut steps = vec![load(offset_of!(libc::seccomp_data, arch))];
        for (index, (abi, numbers)) in ABIS.iter().enumerate() {
            let mut calls = vec![load(offset_of!(libc::seccomp_data, nr))];
            for number in *numbers {
                calls.extend(answer_if(*number, libc::SECCOMP_RET_USER_NOTIF));
            }
            // The first ABI is the machine's own. Elsewhere no virtual event is given out.
            match index {
                0 => calls.extend(about_fds()),
                _ => calls.push(answer_with(libc::SECCOMP_RET_ALLOW)),
            }
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

/// What comes behind the other numbers of a call: reports those that are about [`VIRTUAL_FDS`], and lets the others pass.
fn about_fds() -> Vec<libc::sock_filter> {
    let by_first = FD_CALLS.len();
    let mut steps = Vec::new();
    for (at, number) in FD_CALLS.iter().enumerate() {
        // Over the calls behind it, the one with the fifth argument, and the answer for all others.
        steps.push(jump_if(*number as u32, (by_first - at - 1 + 2) as u8));
    }
    steps.push(jump_if(libc::SYS_mmap as u32, 3));
    steps.push(answer_with(libc::SECCOMP_RET_ALLOW));
    steps.push(load(low_half(0)));
    steps.push(step(libc::BPF_JMP | libc::BPF_JA, 0, 1));
    steps.push(load(low_half(4)));
    let at_least = |value, then: u8, otherwise: u8| libc::sock_filter {
        jt: then,
        ..step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, otherwise, value)
    };
    steps.push(at_least(VIRTUAL_FDS.start, 0, 2));
    steps.push(at_least(VIRTUAL_FDS.end, 1, 0));
    steps.push(answer_with(libc::SECCOMP_RET_USER_NOTIF));
    steps.push(answer_with(libc::SECCOMP_RET_ALLOW));
    steps
}

/// Where the lower half of an argument stands: descriptors are 32 bits wide.
const fn low_half(argument: usize) -> usize {
    let upper_first = cfg!(target_endian = "big") as usize;
    offset_of!(libc::seccomp_data, args) + 8 * argument + 4 * upper_first
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

/// Passes over so many steps if what was loaded is this value.
const fn jump_if(value: u32, steps: u8) -> libc::sock_filter {
    libc::sock_filter { jt: steps, ..step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, value) }
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

/// Whether it is a call that is reported because of its descriptor.
pub(crate) fn is_about_fd(number: libc::c_long) -> bool {
    FD_CALLS.contains(&number)
}

/// The calls of profiles that are about descriptors, as the other ABI of this machine numbers them.
const FD_CALLS_ELSEWHERE: &[i32] = match () {
    () if cfg!(target_arch = "x86_64") => &[3, 41, 54, 55, 63, 90, 145, 180, 192, 221, 330],
    () if cfg!(target_arch = "aarch64") => &[3, 41, 54, 55, 63, 145, 180, 192, 221, 358],
    () => &[],
};

impl Notification {
    /// Whether it is an open, by whichever ABI.
    pub(crate) fn is_open(&self) -> bool {
        ABIS.iter().any(|(abi, numbers)| *abi == self.abi && numbers.contains(&self.number.cast_unsigned()))
    }

    /// Whether a call by another ABI is about a descriptor.
    pub(crate) fn is_about_fd_elsewhere(&self) -> bool {
        FD_CALLS_ELSEWHERE.contains(&self.number)
    }

    /// Whether the call was made by the ABI of this machine's programs, the one of all that has pointers of 64 bits.
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

/// Whether a file is a listener.
pub(crate) fn is_listener(file: BorrowedFd<'_>) -> bool {
    let none = 0_u64;
    // SAFETY: (1) The number is readable; no listener writes to it. (2) The borrow keeps the descriptor open.
    let answer = check(unsafe { libc::ioctl(file.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const none) });
    // Numbers of calls have 64 bits, and the first one is random.
    answer == Err(Errno::ENOENT)
}

/// Lets the kernel carry out a call, as if there were no filter.
///
/// Errors: `ENOENT` where it doesn't wait any more.
pub(crate) fn go_on(listener: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    send(listener, libc::seccomp_notif_resp { id, val: 0, error: 0, flags })
}

/// Ends a call with a value, or an error.
///
/// Errors: `ENOENT` where it doesn't wait any more.
pub(crate) fn answer(listener: BorrowedFd<'_>, id: u64, value: Result<i64, Errno>) -> Result<(), Errno> {
    let (val, error) = value.map_or_else(|errno| (0, -errno.raw()), |value| (value, 0));
    send(listener, libc::seccomp_notif_resp { id, val, error, flags: 0 })
}

/// Gives a caller a file, by a number that it may have open already.
///
/// Errors: `ENOENT` where the call doesn't wait any more; `EBADF` where the number is not below the caller's limit.
pub(crate) fn add_fd(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    number: u32,
    close_on_exec: bool,
) -> Result<(), Errno> {
    let newfd_flags = if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 };
    let flags = libc::SECCOMP_ADDFD_FLAG_SETFD as u32;
    let srcfd = file.as_raw_fd().cast_unsigned();
    let mut added = libc::seccomp_notif_addfd { id, flags, srcfd, newfd: number, newfd_flags };
    uninterrupted(|| {
        // SAFETY: (1) `added` is readable and of the type that the request reads. (2) The borrows keep both descriptors open.
        check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw mut added) })
    })
    .map(drop)
}

/// Gives a caller a file, by the lowest number that it has free, and ends the call with that number.
///
/// Errors: `ENOENT` where the call doesn't wait any more; `EMFILE`; `EINVAL` before Linux 5.14.
pub(crate) fn answer_with_file(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    close_on_exec: bool,
) -> Result<(), Errno> {
    let newfd_flags = if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 };
    let flags = libc::SECCOMP_ADDFD_FLAG_SEND as u32;
    let srcfd = file.as_raw_fd().cast_unsigned();
    let mut added = libc::seccomp_notif_addfd { id, flags, srcfd, newfd: 0, newfd_flags };
    // Not once more after a signal: it may be done.
    // SAFETY: (1) `added` is readable and of the type that the request reads. (2) The borrows keep both descriptors open.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw mut added) }).map(drop)
}

fn send(listener: BorrowedFd<'_>, mut answer: libc::seccomp_notif_resp) -> Result<(), Errno> {
    uninterrupted(|| {
        // SAFETY: (1) `answer` is readable and of the type that the request reads. (2) The borrow keeps the descriptor open.
        check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) })
    })
    .map(drop)
}
