//! The system calls, made safe: the only module of the project that holds `unsafe`.
//!
//! What it is: one thin function per call, with file descriptors as owned or borrowed types, buffers as slices and
//! failures as [`Errno`]. Read first: [`Errno`], then [`perf`].
//!
//! **Invariant:** nothing here decides anything. No function knows an event, a session or a message for people; and
//! every function is safe to call with any argument.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "pmux needs 64 bits: elsewhere an atomic load of 64 bits may write, which memory mapped for reading only does not allow"
);

mod account;
mod affinity;
pub(crate) mod bpf;
pub(crate) mod clock;
mod epoll;
mod errno;
mod exec;
mod file;
pub(crate) mod futex;
mod held_close;
mod memory_file;
mod netlink;
pub(crate) mod opener;
pub(crate) mod perf;
mod perf_map;
mod process;
pub(crate) mod ptrace;
mod resource;
pub(crate) mod seccomp;
mod signal;
mod socket;
mod thread;
pub(crate) mod words;
pub(crate) mod worker;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

pub(crate) use account::group_number;
pub(crate) use affinity::{CpuMask, set_thread_affinity, thread_affinity};
pub use epoll::{Interest, Poll, Ready, Token};
pub use errno::Errno;
pub(crate) use exec::{ExecPlan, ExecResult, FailedStep, Gate, fork_held, open_gate, read_report};
pub(crate) use file::{
    AccessMode, PollEntry, PollEvent, accessible, copy_above, has_attribute, is_open, mount_tracefs, open_above,
    open_below, open_by_number, open_name, page_bytes, pipe, ppoll, read, with_file_mode, write,
};
pub(crate) use held_close::fork_holder;
pub(crate) use memory_file::{ReadableWords, SharedWords, WritableWords};
#[cfg(test)]
pub(crate) use netlink::send_as_process;
pub(crate) use netlink::{Sender, open_uevent_socket, receive};
pub(crate) use perf_map::{PerfMap, PerfView};
pub use process::Usage;
pub(crate) use process::{
    Reaped, Reaping, current_cpu, current_tid, has_exited, has_rights_of_its_own, has_thread, kill, pidfd_getfd,
    pidfd_open, pidfd_open_thread, pidfd_send_signal, read_memory, stop_ignoring_children, wait_child,
};
pub(crate) use resource::{FileLimits, file_limits, file_limits_of, set_soft_file_limit, trim_memory};
pub(crate) use signal::SignalPipe;
pub(crate) use socket::{
    accept, bind, connect, enlarge_send_buffer, handed_over, has_files, is_packet_listener, listen, packet_socket,
    pass_credentials, peer_credentials, peer_groups, peer_label, peer_pidfd, receive_packet, refuse_files,
    refuses_files, send_packet, set_nonblocking, shut_down_reading,
};
#[cfg(test)]
pub(crate) use socket::{set_linger, socket_pair};
pub use thread::Thread;

/// The result of a call that answers -1 and sets `errno` when it fails.
fn check(answer: libc::c_int) -> Result<libc::c_int, Errno> {
    if answer < 0 { Err(Errno::last()) } else { Ok(answer) }
}

/// As [`check`], for calls that answer a size or go through `syscall(2)`.
fn check_size(answer: isize) -> Result<usize, Errno> {
    usize::try_from(answer).map_err(|_| Errno::last())
}

/// The descriptor that a call has made.
///
/// # Safety
/// The answer is that of a call that makes a descriptor, and no code has taken it yet.
unsafe fn descriptor(answer: impl Into<i64>) -> Result<OwnedFd, Errno> {
    let answer: i64 = answer.into();
    let fd = check(RawFd::try_from(answer).map_err(|_| Errno::EBADF)?)?;
    // SAFETY: as promised by the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A message of one part, with room for nothing beside it.
fn message_of(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: (1) `msghdr` is numbers and pointers that may be null: all zeroes is a value of it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message
}

/// Repeats a call that a signal interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            answer => return answer,
        }
    }
}
