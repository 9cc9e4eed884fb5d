//! Pressure: how long tasks wait for a CPU, for memory, for input and output.
//!
//! What it is: [`Pressure`], which the kernel wakes when tasks have waited for so long within a window; at most once in each window.
//! Source: `Documentation/accounting/psi.rst` (5.2; for others than root 6.5).
//!
//! **Invariant:** a file that was opened is one that wakes: what does not work here is an error when it is opened.

use crate::cgroup::{CgroupError, Mounts};
use crate::sys::Errno;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is waited for, by which tasks, for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit<'n> {
    /// `cpu`, `memory` or `io`.
    pub resource: &'n str,
    /// `some` (one task waits) or `full` (all that have something to do).
    pub tasks: &'n str,
    /// For how long within the window.
    pub stalled: Duration,
    /// The window: 500 ms to 10 s.
    pub window: Duration,
}

/// Why the kernel tells of no pressure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PressureError {
    /// The kernel was built or booted without it.
    Off {
        /// The file that is not there, or says so.
        path: PathBuf,
    },
    /// The cgroup can't be used.
    Cgroup(CgroupError),
    /// The cgroup has no such file.
    NotThere {
        /// The file.
        path: PathBuf,
    },
    /// This user may not.
    Denied {
        /// The file.
        path: PathBuf,
        /// The window that was asked for.
        window: Duration,
    },
    /// It can't be written to, because its file system is mounted read-only here.
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Anything else.
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
}

impl fmt::Display for PressureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off { path } => write!(
                f,
                "this kernel tells of no pressure ({} does not work): it needs CONFIG_PSI, and `psi=1` on its command line where \
                 that is off by default",
                path.display()
            ),
            Self::Cgroup(error) => error.fmt(f),
            Self::NotThere { path } => {
                write!(f, "{} does not exist: only cgroups of version 2 have pressure files", path.display())
            }
            // Source: `psi_trigger_create` in `kernel/sched/psi.c`.
            Self::Denied { path, window } if window.as_millis() % 2000 != 0 => write!(
                f,
                "this user may not wait for {} within this window: without CAP_SYS_RESOURCE the window must be 2s, 4s, 6s, 8s or \
                 10s (Linux 6.5), for example 300ms/2s",
                path.display()
            ),
            Self::Denied { path, .. } => {
                write!(f, "this user may not wait for {}: it needs CAP_SYS_RESOURCE, or Linux 6.5", path.display())
            }
            Self::ReadOnly { path } => write!(
                f,
                "{} is mounted read-only here, and a limit is written into it: a service of systemd's needs \
                 ProtectControlGroups=no for that",
                path.display()
            ),
            Self::Io { path, errno } => write!(f, "waiting for {} failed: {errno}", path.display()),
        }
    }
}

impl std::error::Error for PressureError {}

/// A limit that the kernel watches: urgent news when it was reached; the end when its cgroup has gone. For
/// [`crate::wait::Waiter::watch_urgent`].
#[derive(Debug)]
pub struct Pressure(File);

impl Pressure {
    /// Begins to watch, in a cgroup or on the whole machine.
    ///
    /// # Errors
    /// [`PressureError`], in words.
    pub fn watch(limit: Limit<'_>, cgroup: Option<&str>) -> Result<Self, PressureError> {
        let path = match cgroup {
            None => Path::new("/proc/pressure").join(limit.resource),
            Some(name) => {
                let cgroup = Mounts::system().and_then(|mounts| mounts.open(name)).map_err(PressureError::Cgroup)?;
                cgroup.path().join(format!("{}.pressure", limit.resource))
            }
        };
        Self::watch_at(&path, limit)
    }

    fn watch_at(path: &Path, limit: Limit<'_>) -> Result<Self, PressureError> {
        let of = |error: &std::io::Error| {
            let (path, window) = (path.to_owned(), limit.window);
            let errno = error.raw_os_error().unwrap_or_default();
            match error.kind() {
                ErrorKind::NotFound if path.starts_with("/proc") => PressureError::Off { path },
                ErrorKind::NotFound => PressureError::NotThere { path },
                ErrorKind::PermissionDenied => PressureError::Denied { path, window },
                ErrorKind::ReadOnlyFilesystem => PressureError::ReadOnly { path },
                _ if errno == libc::EOPNOTSUPP => PressureError::Off { path },
                // What the kernel says to a window that only root may have.
                _ if errno == libc::EINVAL && window.as_millis() % 2000 != 0 => PressureError::Denied { path, window },
                _ => PressureError::Io { path, errno: Errno::from_raw(errno) },
            }
        };
        let mut file = File::options().read(true).write(true).open(path).map_err(|error| of(&error))?;
        let (stalled, window) = (limit.stalled.as_micros(), limit.window.as_micros());
        let text = format!("{} {stalled} {window}\0", limit.tasks);
        // One write: the kernel reads it as a whole.
        file.write_all(text.as_bytes()).map_err(|error| of(&error))?;
        Ok(Self(file))
    }
}

impl AsFd for Pressure {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit<'static> =
        Limit { resource: "cpu", tasks: "some", stalled: Duration::from_millis(100), window: Duration::from_secs(2) };

    #[test]
    fn what_is_not_there_is_said() {
        let error = Pressure::watch_at(Path::new("/proc/pressure/nothing"), LIMIT).unwrap_err();
        assert!(error.to_string().contains("CONFIG_PSI"), "{error}");
        let error = Pressure::watch_at(Path::new("/nowhere/cpu.pressure"), LIMIT).unwrap_err();
        assert!(matches!(error, PressureError::NotThere { .. }), "{error:?}");
        let error = Pressure::watch(LIMIT, Some("no-such-cgroup")).unwrap_err();
        assert!(error.to_string().contains("no-such-cgroup") || error.to_string().contains("cgroup"), "{error}");
    }

    #[test]
    fn this_machine_either_watches_or_says_why_not() {
        match Pressure::watch(LIMIT, None) {
            Ok(pressure) => assert!(crate::sys::is_open(std::os::fd::AsRawFd::as_raw_fd(&pressure.as_fd()))),
            Err(error) => assert!(error.to_string().len() > 20, "{error}"),
        }
    }
}
