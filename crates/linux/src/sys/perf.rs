//! `perf_event_open(2)` and the requests that its descriptors take.
//!
//! **Invariant:** an attribute is bytes here; what its words mean is the business of `pmux_abi`.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

use super::{Errno, check, descriptor};

/// Bytes of the first published attribute: what a size of 0 means.
const FIRST_ATTR_BYTES: usize = 64;
/// The number given as a task is the descriptor of a control group (`PERF_FLAG_PID_CGROUP`).
const PID_CGROUP: libc::c_ulong = 1 << 2;
/// The descriptor given as a group is none (`PERF_FLAG_FD_NO_GROUP`).
const FD_NO_GROUP: libc::c_ulong = 1;
/// It is the event whose ring the new one writes into (`PERF_FLAG_FD_OUTPUT`).
const FD_OUTPUT: libc::c_ulong = 1 << 1;
/// The new descriptor is close-on-exec (`PERF_FLAG_FD_CLOEXEC`).
const FD_CLOEXEC: libc::c_ulong = 1 << 3;

#[derive(Clone, Copy, Debug)]
pub(crate) enum TargetTask<'fd> {
    /// One task (a thread) by its number.
    Task(u32),
    /// Everything that runs on the CPU, which must be given.
    EveryTask,
    /// The tasks of a control group, while on the CPU, which must be given.
    Cgroup(BorrowedFd<'fd>),
}

/// Opens an event; the descriptor is close-on-exec.
///
/// `attr` is an encoded `perf_event_attr`; the size that it states must not exceed the slice. `cpu` of `None` is any
/// CPU.
///
/// Errors: `EINVAL` where the bytes contradict themselves or a number doesn't fit; then all that
/// `perf_event_open(2)` lists.
pub(crate) fn open(
    attr: &[u8],
    target_task: TargetTask<'_>,
    cpu: Option<u32>,
    group: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Errno> {
    ask(attr, target_task, cpu, group, FD_CLOEXEC)
}

/// Opens an event that writes into the ring of another one, which must be of the same CPU: as [`open`] and [`set_output`], in
/// one call where the kernel has that.
///
/// Source: `perf_event_open(2)` calls the flag broken since 2.6.35; together with the one that says that there is no group it
/// works (seen with 6.18). Where it does not, the second call follows.
pub(crate) fn open_into(
    attr: &[u8],
    target_task: TargetTask<'_>,
    cpu: u32,
    output: BorrowedFd<'_>,
) -> Result<OwnedFd, Errno> {
    match ask(attr, target_task, Some(cpu), Some(output), FD_CLOEXEC | FD_NO_GROUP | FD_OUTPUT) {
        Err(Errno::EINVAL) => {
            let fd = open(attr, target_task, Some(cpu), None)?;
            set_output(fd.as_fd(), output)?;
            Ok(fd)
        }
        other => other,
    }
}

/// Opens an event as the kernel is asked, with all numbers as they are; the descriptor is close-on-exec.
///
/// Errors: as [`open`].
pub(crate) fn open_raw(
    attr: &[u8],
    task: libc::pid_t,
    cpu: libc::c_int,
    group: Option<BorrowedFd<'_>>,
    flags: u64,
) -> Result<OwnedFd, Errno> {
    let mut attr = attr.to_vec();
    check_stated_size(&attr)?;
    call(&mut attr, task, cpu, group, flags as libc::c_ulong | FD_CLOEXEC)
}

fn ask(
    attr: &[u8],
    target_task: TargetTask<'_>,
    cpu: Option<u32>,
    group: Option<BorrowedFd<'_>>,
    mut flags: libc::c_ulong,
) -> Result<OwnedFd, Errno> {
    // The kernel writes its own size back when the attribute is too long for it: so it gets a copy.
    let mut attr = attr.to_vec();
    check_stated_size(&attr)?;
    let pid: libc::pid_t = match target_task {
        // 0 would silently mean the caller.
        TargetTask::Task(0) => return Err(Errno::ESRCH),
        TargetTask::Task(tid) => tid.try_into().map_err(|_| Errno::ESRCH)?,
        TargetTask::EveryTask => -1,
        TargetTask::Cgroup(dir) => {
            flags |= PID_CGROUP;
            dir.as_raw_fd()
        }
    };
    let cpu: libc::c_int = match cpu {
        None => -1,
        Some(cpu) => cpu.try_into().map_err(|_| Errno::EINVAL)?,
    };
    call(&mut attr, pid, cpu, group, flags)
}

/// `attr` states a size that is not larger than itself.
fn call(
    attr: &mut [u8],
    pid: libc::pid_t,
    cpu: libc::c_int,
    group: Option<BorrowedFd<'_>>,
    flags: libc::c_ulong,
) -> Result<OwnedFd, Errno> {
    let group: RawFd = group.map_or(-1, |fd| fd.as_raw_fd());
    // SAFETY: (1) `attr` is readable and writable for the size that it states (which the callers check), and for the first
    // published size, which the kernel may write its own size into. (2) The borrows keep the descriptors open.
    // (3) Addresses inside the attribute are only read by the kernel, which survives bad ones. (4) The call makes the descriptor.
    unsafe { descriptor(libc::syscall(libc::SYS_perf_event_open, attr.as_mut_ptr(), pid, cpu, group, flags)) }
}

/// A request whose argument is a plain number.
fn request(fd: BorrowedFd<'_>, code: libc::Ioctl, argument: libc::c_ulong) -> Result<(), Errno> {
    // SAFETY: (1) Only called with requests that take a number, so the kernel follows no pointer. (2) The borrow
    // keeps the descriptor open; on a file that isn't an event the kernel answers `ENOTTY`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), code, argument) }).map(drop)
}

const TYPE: u32 = b'$' as u32;

/// What an event without times has counted, with its children: one `read(2)`. `None` where the kernel answers nothing: a pinned event
/// that found no place.
pub(crate) fn count(fd: BorrowedFd<'_>) -> Result<Option<u64>, Errno> {
    let mut bytes = [0; 8];
    Ok((super::read(fd, &mut bytes)? == bytes.len()).then_some(u64::from_ne_bytes(bytes)))
}

/// Switches counting on (`PERF_EVENT_IOC_ENABLE`).
pub(crate) fn enable(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    request(fd, libc::_IO(TYPE, 0), 0)
}

/// Switches counting off (`PERF_EVENT_IOC_DISABLE`).
pub(crate) fn disable(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    request(fd, libc::_IO(TYPE, 1), 0)
}

/// Sends the records to the ring of another event (`PERF_EVENT_IOC_SET_OUTPUT`).
pub(crate) fn set_output(fd: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    request(fd, libc::_IO(TYPE, 5), to.as_raw_fd() as libc::c_ulong)
}

/// Lets a tracepoint count and write only those hits of which a filter holds (`PERF_EVENT_IOC_SET_FILTER`).
///
/// Errors: `EINVAL` for what is no filter of this tracepoint, and for an event that is none.
pub(crate) fn set_filter(fd: BorrowedFd<'_>, filter: &CStr) -> Result<(), Errno> {
    let code = libc::_IOW::<*mut u8>(TYPE, 6);
    // SAFETY: (1) `filter` ends with a zero byte, as its type promises, and is only read. (2) The borrow keeps the descriptor open;
    // on a file that isn't an event the kernel answers `ENOTTY`. (3) The code of the request is made with the size of a pointer, as
    // the header has it.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), code, filter.as_ptr()) }).map(drop)
}

/// The number by which records and group reads name the event (`PERF_EVENT_IOC_ID`).
pub(crate) fn id(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut id = 0_u64;
    // SAFETY: (1) The request writes one `u64`, which `id` is. (2) The borrow keeps `fd` open. (3) The code of the
    // request is made with the size of a pointer, as the header has it.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::_IOR::<*mut u64>(TYPE, 7), ptr::from_mut(&mut id)) })?;
    Ok(id)
}

/// Changes what a breakpoint waits for (`PERF_EVENT_IOC_MODIFY_ATTRIBUTES`): its address, length and kind of access, and
/// whether it is disabled. Where that is refused, the event stays as it was.
///
/// `attr` is an encoded `perf_event_attr`; the size that it states must not exceed the slice.
///
/// Errors: `EINVAL` where the bytes contradict themselves, or differ from the event's in anything else; `ENOSPC` where
/// no debug register is left for another kind; `EOPNOTSUPP` where it is no breakpoint.
pub(crate) fn modify_attributes(fd: BorrowedFd<'_>, attr: &[u8]) -> Result<(), Errno> {
    // The kernel writes its own size back when the attribute is too long for it: so it gets a copy.
    let mut attr = attr.to_vec();
    check_stated_size(&attr)?;
    let code = libc::_IOW::<*mut u8>(TYPE, 11);
    // SAFETY: (1) `attr` is readable and writable for the size that it states (checked above), and for the first
    // published size, which the kernel may write its own size into. (2) The borrow keeps the descriptor open; on a file
    // that isn't an event the kernel answers `ENOTTY`. (3) The code of the request is made with the size of a pointer, as
    // the header has it.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), code, attr.as_mut_ptr()) }).map(drop)
}

/// Whether the bytes hold an attribute of the size that it states. 0 stands for that of the first published one.
pub(crate) fn check_stated_size(attr: &[u8]) -> Result<(), Errno> {
    let stated = match attr.get(4..8).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes) {
        None => return Err(Errno::EINVAL),
        Some(0) => FIRST_ATTR_BYTES,
        Some(size) => usize::try_from(size).map_err(|_| Errno::EINVAL)?,
    };
    if stated > attr.len() || attr.len() < FIRST_ATTR_BYTES { Err(Errno::EINVAL) } else { Ok(()) }
}
