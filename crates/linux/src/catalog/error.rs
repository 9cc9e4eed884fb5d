//! Why the catalog could not answer.
//!
//! What it is: one error type that tells *it isn't there* from *you may not look*.

use crate::sys::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a question to the catalog has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CatalogError {
    /// The directory that lists the PMUs is missing: no sysfs here.
    NoSysfs {
        /// Where the PMUs were looked for.
        path: PathBuf,
    },
    /// There is no PMU of that name.
    NoSuchPmu {
        /// The name asked for.
        pmu: String,
    },
    /// The PMU is there, but has no event of that name.
    NoSuchEvent {
        /// The PMU.
        pmu: String,
        /// The name asked for.
        event: String,
    },
    /// No tracefs is mounted where the kernel has its place for it.
    NoTracefs {
        /// Every place that was looked at.
        places: Vec<PathBuf>,
        /// Why it could not be mounted; `None` where that was not tried.
        refused: Option<Errno>,
    },
    /// Tracefs is there, but has no such tracepoint.
    NoSuchTracepoint {
        /// The system asked for, such as `sched`.
        system: String,
        /// The tracepoint asked for, such as `sched_switch`.
        name: String,
    },
    /// The file or directory is there, but this user may not read it.
    Denied {
        /// What could not be read.
        path: PathBuf,
    },
    /// The file was read, and isn't what the kernel documents.
    Malformed {
        /// The file.
        path: PathBuf,
        /// Its text, cut to something that fits on a line.
        text: String,
    },
    /// Any other failure of a read.
    Io {
        /// What was read.
        path: PathBuf,
        /// The kind of failure.
        kind: io::ErrorKind,
    },
}

impl CatalogError {
    /// Sorts a failed read: denied, or something else.
    pub(super) fn from_io(path: &Path, error: &io::Error) -> Self {
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied { path },
            kind => Self::Io { path, kind },
        }
    }

    /// Says that a file holds something else than expected.
    pub(super) fn malformed(path: &Path, text: &str) -> Self {
        Self::Malformed { path: path.to_path_buf(), text: text.trim().chars().take(60).collect() }
    }
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSysfs { path } => write!(
                f,
                "no sysfs: {} is missing, so only events with fixed numbers are known (hardware, cache, software, \
                 breakpoints); 'mount -t sysfs sysfs /sys' mounts it",
                path.display()
            ),
            Self::NoSuchPmu { pmu } => write!(f, "this machine has no PMU named '{pmu}'"),
            Self::NoSuchEvent { pmu, event } => write!(f, "the PMU '{pmu}' has no event named '{event}'"),
            Self::NoTracefs { places, refused } => {
                write!(f, "no tracefs is mounted (looked at")?;
                for place in places {
                    write!(f, " {}", place.display())?;
                }
                match refused {
                    None => write!(f, "); 'mount -t tracefs nodev /sys/kernel/tracing' mounts it"),
                    Some(Errno::ENODEV) => write!(f, "), and this kernel has none (CONFIG_TRACING)"),
                    Some(errno) => write!(
                        f,
                        "), and this process may not mount it ({errno}); root does with 'mount -t tracefs nodev \
                         /sys/kernel/tracing'"
                    ),
                }
            }
            Self::NoSuchTracepoint { system, name } => write!(f, "this kernel has no tracepoint '{system}:{name}'"),
            Self::Denied { path } => {
                write!(f, "no permission to read {}: needs root, or a mount that this user may read", path.display())
            }
            Self::Malformed { path, text } => write!(f, "{} holds something unexpected: '{text}'", path.display()),
            Self::Io { path, kind } => write!(f, "cannot read {}: {kind}", path.display()),
        }
    }
}

impl std::error::Error for CatalogError {}
