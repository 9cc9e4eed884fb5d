//! Why a command couldn't be started.
//!
//! **Invariant:** each sentence names the command and stands alone: the caller only puts its own name before it.

use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use crate::sys::{self, AccessMode, Errno};

/// Why a command couldn't be started.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SpawnError {
    /// No command was given, or an empty list.
    NoCommand,
    /// An argument holds a zero byte, which no command can be given.
    ZeroByte {
        /// Which; 0 is the command.
        argument: usize,
    },
    /// No part of `PATH` has a file of this name.
    NotFound {
        /// The name.
        command: OsString,
    },
    /// The path leads to nothing.
    NoSuchFile {
        /// The path.
        command: OsString,
    },
    /// The path leads to a directory.
    IsDirectory {
        /// The path.
        command: OsString,
    },
    /// The file may not be executed, or a directory on the way not be searched.
    PermissionDenied {
        /// The command as given.
        command: OsString,
    },
    /// The file is there, but not the interpreter or loader that it names.
    MissingInterpreter {
        /// The command as given.
        command: OsString,
    },
    /// The file is no program of this machine.
    BadFormat {
        /// The command as given.
        command: OsString,
    },
    /// Arguments and environment are too long together, or one of them is.
    TooLong {
        /// The command as given.
        command: OsString,
    },
    /// The kernel refused for another reason.
    Exec {
        /// The command as given.
        command: OsString,
        /// The reason.
        errno: Errno,
    },
    /// No process could be made for it.
    Fork {
        /// The command as given.
        command: OsString,
        /// The reason.
        errno: Errno,
    },
    /// The calls of the process made for it couldn't be filtered.
    Filter {
        /// The command as given.
        command: OsString,
        /// The reason.
        errno: Errno,
    },
    /// The process made for it couldn't be prepared or reached.
    Gate {
        /// The command as given.
        command: OsString,
        /// The reason.
        errno: Errno,
    },
}

impl SpawnError {
    /// The exit status by which shells report this: 127 where there is no such command, 126 where there is one that
    /// can't be executed, 125 where it wasn't tried.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } | Self::NoSuchFile { .. } => 127,
            Self::IsDirectory { .. }
            | Self::PermissionDenied { .. }
            | Self::MissingInterpreter { .. }
            | Self::BadFormat { .. }
            | Self::TooLong { .. }
            | Self::Exec { .. } => 126,
            Self::NoCommand | Self::ZeroByte { .. } | Self::Fork { .. } | Self::Filter { .. } | Self::Gate { .. } => {
                125
            }
        }
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommand => f.write_str("no command given"),
            Self::ZeroByte { argument: 0 } => f.write_str("the command holds a zero byte"),
            Self::ZeroByte { argument } => write!(f, "argument {argument} of the command holds a zero byte"),
            Self::NotFound { command } => write!(f, "{}: command not found", command.display()),
            Self::NoSuchFile { command } => write!(f, "{}: no such file or directory", command.display()),
            Self::IsDirectory { command } => write!(f, "{}: is a directory", command.display()),
            Self::PermissionDenied { command } => write!(f, "{}: permission denied", command.display()),
            Self::MissingInterpreter { command } => {
                write!(f, "{}: the interpreter that it names is missing", command.display())
            }
            Self::BadFormat { command } => {
                write!(f, "{}: cannot execute: not a program for this machine", command.display())
            }
            Self::TooLong { command } => write!(f, "{}: argument list too long", command.display()),
            Self::Exec { command, errno } => write!(f, "{}: cannot execute: {errno}", command.display()),
            Self::Fork { command, errno } => {
                write!(f, "{}: cannot start a process: {errno}", command.display())?;
                match *errno {
                    Errno::EAGAIN => f.write_str("; the limit of processes is reached (ulimit -u, pids.max)"),
                    Errno::EMFILE => f.write_str("; the limit of open files is reached (ulimit -n)"),
                    _ => Ok(()),
                }
            }
            Self::Filter { command, errno } => {
                write!(f, "{}: its system calls can't be supervised: {errno}", command.display())?;
                match *errno {
                    Errno::EBUSY => f.write_str(
                        "; a supervisor is there already, of which the kernel allows one: another `pmux run`, or a container's runtime",
                    ),
                    Errno::EINVAL | Errno::ENOSYS => f.write_str("; it needs seccomp filters with listeners, of Linux 5.5 or newer"),
                    _ => Ok(()),
                }
            }
            Self::Gate { command, errno } => {
                write!(f, "{}: cannot prepare its process: {errno}", command.display())
            }
        }
    }
}

impl std::error::Error for SpawnError {}

/// Names the reason for which exec failed, after the file was found.
pub(super) fn exec_failed(command: &OsStr, errno: Errno) -> SpawnError {
    let command = command.to_os_string();
    match errno {
        Errno::ENOENT if has_slash(&command) && !exists(&command) => SpawnError::NoSuchFile { command },
        // The lookup found the file: so what is missing is what it names.
        Errno::ENOENT => SpawnError::MissingInterpreter { command },
        Errno::EACCES => SpawnError::PermissionDenied { command },
        Errno::ENOEXEC => SpawnError::BadFormat { command },
        Errno::E2BIG => SpawnError::TooLong { command },
        errno => SpawnError::Exec { command, errno },
    }
}

/// Whether the name is a path, so not looked up in `PATH`.
pub(super) fn has_slash(command: &OsStr) -> bool {
    command.as_bytes().contains(&b'/')
}

fn exists(path: &OsStr) -> bool {
    CString::new(path.as_bytes()).is_ok_and(|path| sys::accessible(&path, AccessMode::Exists).is_ok())
}
