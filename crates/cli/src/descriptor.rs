//! Descriptors that the user names by number.
//!
//! **Invariant:** a descriptor that pmux has opened for itself is none that the user can mean.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

#[derive(Debug)]
pub(crate) enum OpenFailure {
    /// There is nothing of that name or number.
    Missing,
    /// It is a socket: that can be inherited, but not opened by its name.
    Socket,
    Other(io::Error),
}

/// What the kernel answers to opening a socket; as a number of Linux.
const ENXIO: i32 = 6;
const O_CLOEXEC: u32 = 0o2_000_000;

pub(crate) fn open_path(path: &Path, how: &OpenOptions) -> Result<File, OpenFailure> {
    how.open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => OpenFailure::Missing,
        _ if error.raw_os_error() == Some(ENXIO) => OpenFailure::Socket,
        _ => OpenFailure::Other(error),
    })
}

/// Opens what an inherited descriptor stands for anew: with flags of its own, so that those of the others who have it stay as they are.
pub(crate) fn open(number: u32, how: &OpenOptions) -> Result<File, OpenFailure> {
    if is_ours(number) {
        return Err(OpenFailure::Missing);
    }
    open_path(format!("/proc/self/fd/{number}").as_ref(), how)
}

/// Whether pmux has opened it for itself: none that is inherited is closed by an exec.
fn is_ours(number: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    let flags = text.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_some_and(|flags| flags & O_CLOEXEC != 0)
}
