//! Error numbers of the kernel.
//!
//! **Invariant:** no call's meaning is known here: the same number means different things to different calls.

use std::fmt;
use std::io;

/// An error number, as a system call reports it.
///
/// Displays as a short phrase with the symbol in brackets: `permission denied (EACCES)`. Source: `errno(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! names {
    ($($name:ident $text:literal,)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`: ", $text, ".")]
            pub const $name: Self = Self(libc::$name);)*

            /// The symbol (`"ENOENT"`), where the number is a common one.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The short phrase without the symbol, where the number is a common one.
            #[must_use]
            pub fn text(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    E2BIG "argument list or structure too long",
    EACCES "permission denied",
    EADDRINUSE "address already in use",
    EAFNOSUPPORT "address family not supported",
    EAGAIN "temporarily unavailable",
    EBADF "bad file descriptor",
    EBUSY "device or resource busy",
    ECHILD "no such child process",
    ECONNABORTED "connection aborted",
    ENOTSOCK "this is not a socket",
    ECONNREFUSED "connection refused",
    ECONNRESET "connection reset by peer",
    EDEADLK "would wait for ever",
    EEXIST "exists already",
    EFAULT "bad address",
    EFBIG "file too large",
    EINTR "interrupted by a signal",
    EINVAL "invalid argument",
    EIO "input/output error",
    EISDIR "is a directory",
    ELOOP "too many symbolic links",
    EMFILE "too many open files in this process",
    EMSGSIZE "message too long",
    ENAMETOOLONG "file name too long",
    ENFILE "too many open files in the system",
    ENOBUFS "no buffer space left",
    ENODEV "no such device",
    ENOENT "no such file or directory",
    ENOEXEC "not an executable format",
    ENOMEM "out of memory",
    ENOPROTOOPT "protocol has no such option",
    ENOSPC "no space or slot left",
    ENOSYS "system call not available",
    ENOTDIR "not a directory",
    ENOTTY "operation not possible on this file",
    ENXIO "no such device or address",
    EOPNOTSUPP "operation not supported",
    EOVERFLOW "value too large",
    EPERM "operation not permitted",
    EPIPE "broken pipe",
    EPROTO "protocol error",
    EPROTONOSUPPORT "protocol not supported",
    EPROTOTYPE "protocol wrong type for socket",
    ERANGE "result out of range",
    EROFS "read-only file system",
    ESTALE "no longer the file that it was",
    ESRCH "no such process",
    ETIMEDOUT "timed out",
    ETOOMANYREFS "too many files on their way",
    ETXTBSY "file is being written",
    EXDEV "not on the same device",
}

impl Errno {
    /// The error number of the last failed call of this thread.
    pub(crate) fn last() -> Self {
        Self(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// The error with this number.
    #[must_use]
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.text(), self.name()) {
            (Some(text), Some(name)) => write!(f, "{text} ({name})"),
            _ => write!(f, "error number {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl std::error::Error for Errno {}

impl From<&io::Error> for Errno {
    /// The number inside an error of the standard library; `EIO` where it has none.
    fn from(error: &io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_phrase_and_symbol() {
        assert_eq!(Errno::EACCES.to_string(), "permission denied (EACCES)");
        assert_eq!(format!("{:?}", Errno::ENOENT), "ENOENT");
        assert_eq!(Errno::from_raw(4242).to_string(), "error number 4242");
        assert_eq!(Errno::from_raw(4242).name(), None);
    }

    #[test]
    fn comes_from_an_io_error() {
        assert_eq!(Errno::from(&io::Error::from_raw_os_error(libc::EMFILE)), Errno::EMFILE);
        assert_eq!(Errno::from(&io::Error::other("x")), Errno::EIO);
    }
}
