//! Files, pipes, polling.
//!
//! **Invariant:** a descriptor comes in borrowed and goes out owned, close-on-exec always set.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use super::{Errno, check, check_size, descriptor, uninterrupted};

/// Reads once; repeats when interrupted. Answers the number of bytes, 0 at the end.
///
/// Counters are read so, again and again: the C library's own `read` prepares for its thread to be cancelled, which costs a tenth
/// of what a counter's reading takes. No code cancels threads here.
pub(crate) fn read(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    uninterrupted(|| {
        // SAFETY: (1) `into` is writable for its whole length. (2) The borrow keeps the descriptor open. (3) The kernel's `read` takes
        // a descriptor, an address and a length, each as wide as a register.
        let read = unsafe { libc::syscall(libc::SYS_read, fd.as_raw_fd(), into.as_mut_ptr(), into.len()) };
        check_size(read as isize)
    })
}

/// Writes once; repeats when interrupted. Answers the number of bytes.
pub(crate) fn write(fd: BorrowedFd<'_>, from: &[u8]) -> Result<usize, Errno> {
    uninterrupted(|| {
        // SAFETY: (1) `from` is readable for its whole length. (2) The borrow keeps the descriptor open.
        check_size(unsafe { libc::write(fd.as_raw_fd(), from.as_ptr().cast(), from.len()) })
    })
}

/// Whether the file at a path has an extended attribute.
pub(crate) fn has_attribute(path: &CStr, name: &CStr) -> bool {
    // SAFETY: (1) Both are strings that end with a zero. (2) Of a size of 0 the call writes nothing.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), ptr::null_mut(), 0) > 0 }
}

/// Copies a descriptor to a number that is not below `least`.
///
/// Errors: `EINVAL` where the limit of open files is below that; `EMFILE`.
pub(crate) fn copy_above(fd: BorrowedFd<'_>, least: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: (1) The call touches no memory. (2) The borrow keeps `fd` open. (3) The call makes the descriptor.
    unsafe { descriptor(libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least)) }
}

/// Makes a pipe whose ends don't block: `(read end, write end)`.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [-1; 2];
    // SAFETY: (1) `ends` has room for the two descriptors that the call writes.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    // SAFETY: (1) The call succeeded, so both are open descriptors. (2) No other code knows them yet.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PollEntry {
    /// The descriptor; a negative one is passed over.
    pub(crate) fd: RawFd,
    pub(crate) event: PollEvent,
    /// There is something to read, or the urgent news are there.
    pub(crate) readable: bool,
    /// The other end has gone, or the descriptor isn't one.
    pub(crate) hangup: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i16)]
pub(crate) enum PollEvent {
    Data = libc::POLLIN,
    /// Urgent news only: files that can always be read say so by nothing else.
    Urgent = libc::POLLPRI,
}

impl PollEntry {
    /// One that waits for something to read.
    pub(crate) const fn new(fd: RawFd) -> Self {
        Self { fd, event: PollEvent::Data, readable: false, hangup: false }
    }
}

/// Waits until one of the entries is ready or the time is over; answers how many are ready.
///
/// `EINTR` is reported: the caller knows how much of its time is left. Errors: `EINTR`, `ENOMEM`, `EINVAL`.
pub(crate) fn ppoll(entries: &mut [PollEntry], timeout: Option<Duration>) -> Result<usize, Errno> {
    let mut raw: Vec<libc::pollfd> =
        entries.iter().map(|e| libc::pollfd { fd: e.fd, events: e.event as libc::c_short, revents: 0 }).collect();
    let limit = timeout.map(timespec);
    let limit_ptr = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = libc::nfds_t::try_from(raw.len()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: (1) `raw` holds `count` entries and is writable. (2) `limit_ptr` is null or points to `limit`, which
    // lives until the end of this function. (3) A null mask leaves the signal mask alone.
    let ready = check(unsafe { libc::ppoll(raw.as_mut_ptr(), count, limit_ptr, ptr::null()) })?;
    for (entry, raw) in entries.iter_mut().zip(&raw) {
        entry.readable = raw.revents & (libc::POLLIN | libc::POLLPRI) != 0;
        entry.hangup = raw.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
    }
    Ok(usize::try_from(ready).unwrap_or(0))
}

/// 68 years: what every width of `time_t` holds. A longer wait is cut, and its caller waits again.
const LONGEST_WAIT_SECONDS: u64 = i32::MAX as u64;

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs().min(LONGEST_WAIT_SECONDS) as _,
        // Under a thousand million: fits every width.
        tv_nsec: time.subsec_nanos() as _,
    }
}

/// Runs `make`, which creates a file, in a thread whose file mode creation mask leaves exactly these permission bits: the file has
/// them from its first moment, and its path is not looked up a second time, when it may lead elsewhere. The mask of the process, which
/// other threads use meanwhile, stays.
///
/// Errors: `EAGAIN` where there is no thread; those of `unshare(2)`.
pub(crate) fn with_file_mode<R: Send>(mode: u32, make: impl FnOnce() -> R + Send) -> Result<R, Errno> {
    let work = || {
        // SAFETY: (1) The call touches no memory. From here on this thread has a mask and a working directory of its own.
        check(unsafe { libc::unshare(libc::CLONE_FS) })?;
        // SAFETY: (1) The call touches no memory.
        unsafe { libc::umask(!mode as libc::mode_t & 0o777) };
        Ok(make())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("pmux-mode".to_owned()).spawn_scoped(scope, work);
        thread.map_err(|error| Errno::from(&error))?.join().unwrap_or(Err(Errno::EIO))
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum AccessMode {
    Exists = libc::F_OK,
    /// It can be executed (a mount with `noexec` refuses too).
    Execute = libc::X_OK,
    Read = libc::R_OK,
}

/// Asks whether the effective user may access a file.
pub(crate) fn accessible(path: &CStr, access: AccessMode) -> Result<(), Errno> {
    // SAFETY: (1) `path` ends with a zero byte, as its type promises.
    check(unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), access as libc::c_int, libc::AT_EACCESS) }).map(drop)
}

/// Opens a file as a name only, without following a link. The standard library can't: with musl it takes `O_PATH` for an access mode,
/// and leaves it out of what is passed on.
///
/// Errors: what `open(2)` says.
pub(crate) fn open_name(path: &CStr) -> Result<OwnedFd, Errno> {
    // SAFETY: (1) `path` ends with a zero byte, as its type promises. (2) The call makes the descriptor.
    unsafe { descriptor(libc::open(path.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC)) }
}

/// Opens a folder by its path from another one.
fn open_folder(from: BorrowedFd<'_>, path: &CStr, access: libc::c_int, resolve: u64) -> Result<OwnedFd, Errno> {
    // SAFETY: (1) The structure is numbers only, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (access | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
    how.resolve = resolve;
    let (path, size) = (path.as_ptr(), size_of_val(&how));
    // SAFETY: (1) `path` ends with a zero byte. (2) `how` is as long as is said. (3) The borrow keeps `from` open. (4) The call makes
    // the descriptor.
    unsafe { descriptor(libc::syscall(libc::SYS_openat2, from.as_raw_fd(), path, &raw const how, size)) }
}

/// Opens the folder right above another one of the same mount, as a name only: `EXDEV` where that is the mount's own.
///
/// Errors: what `openat2(2)` says; `ENOSYS` before Linux 5.6.
pub(crate) fn open_above(folder: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    open_folder(folder, c"..", libc::O_PATH, libc::RESOLVE_NO_XDEV)
}

/// Opens the folder of a file system of `kernfs` (cgroups are one) by its number, for reading; `mount` is any folder of it.
///
/// Errors: `EPERM` without `CAP_DAC_READ_SEARCH`; `ESTALE` where there is no such folder.
pub(crate) fn open_by_number(mount: BorrowedFd<'_>, number: u64) -> Result<OwnedFd, Errno> {
    /// `struct file_handle` with the identity of a node of `kernfs` (`FILEID_KERNFS`).
    #[repr(C)]
    struct FileHandle {
        bytes: libc::c_uint,
        kind: libc::c_int,
        number: [u8; 8],
    }
    let mut handle = FileHandle { bytes: 8, kind: 0xfe, number: number.to_ne_bytes() };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: (1) `handle` is as long as it states. (2) The borrow keeps `mount` open. (3) The call makes the descriptor.
    unsafe { descriptor(libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw mut handle, flags)) }
}

/// Mounts tracefs where it belongs, as `perf` does where there is none.
///
/// Errors: `EPERM` without `CAP_SYS_ADMIN` in the first user namespace; `ENODEV` where the kernel has none; `ENOENT`; `EBUSY`.
pub(crate) fn mount_tracefs() -> Result<(), Errno> {
    let at = c"/sys/kernel/tracing";
    let (name, flags) = (c"tracefs".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC);
    // SAFETY: (1) The names end with a zero byte. (2) No options are given.
    check(unsafe { libc::mount(name, at.as_ptr(), name, flags, ptr::null()) }).map(drop)
}

/// Opens a folder below another one for reading, without leaving its mount, and without following links.
///
/// Errors: what `openat2(2)` says; `ENOSYS` before Linux 5.6.
pub(crate) fn open_below(folder: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_XDEV | libc::RESOLVE_NO_SYMLINKS;
    open_folder(folder, path, libc::O_RDONLY, resolve)
}

/// Whether this number is an open descriptor of the process at this moment.
pub(crate) fn is_open(fd: RawFd) -> bool {
    // SAFETY: (1) `F_GETFD` touches no memory and changes nothing; a number that isn't open only answers `EBADF`.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

pub(crate) fn page_bytes() -> usize {
    // SAFETY: (1) `sysconf` takes a number and touches no memory of ours.
    let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(answer).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn a_pipe_carries_bytes_and_polls() {
        let (reader, writer) = pipe().unwrap();
        let mut buffer = [0; 8];
        assert_eq!(read(reader.as_fd(), &mut buffer), Err(Errno::EAGAIN));
        let mut entries = [PollEntry::new(reader.as_raw_fd())];
        assert_eq!(ppoll(&mut entries, Some(Duration::ZERO)), Ok(0));
        let mut writer = File::from(writer);
        writer.write_all(b"abc").unwrap();
        assert_eq!(ppoll(&mut entries, None), Ok(1));
        assert!(entries[0].readable && !entries[0].hangup);
        assert_eq!(read(reader.as_fd(), &mut buffer), Ok(3));
        drop(writer);
        assert_eq!(ppoll(&mut entries, None), Ok(1));
        assert!(entries[0].hangup);
        assert_eq!(read(reader.as_fd(), &mut buffer), Ok(0));
    }

    #[test]
    fn access_tells_executables_apart() {
        assert_eq!(accessible(c"/bin/sh", AccessMode::Execute), Ok(()));
        assert_eq!(accessible(c"/proc/self/status", AccessMode::Exists), Ok(()));
        assert_eq!(accessible(c"/proc/self/status", AccessMode::Execute), Err(Errno::EACCES));
        assert_eq!(accessible(c"/nonexistent", AccessMode::Exists), Err(Errno::ENOENT));
    }

    #[test]
    fn pages_are_a_power_of_two() {
        assert!(page_bytes().is_power_of_two());
    }

    #[test]
    fn very_long_waits_are_clamped() {
        assert_eq!(timespec(Duration::MAX).tv_sec, 0x7FFF_FFFF);
    }
}
