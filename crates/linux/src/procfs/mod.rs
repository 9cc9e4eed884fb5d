//! What `/proc` tells about tasks and about the whole machine.
//!
//! What it is: small typed readings of single files. Nothing is kept between two readings.
//! Read first: [`Proc`], then [`ProcError`].
//!
//! **Invariant:** it knows no event and no counter. The root is an argument, so that a fabricated tree can stand in
//! for the real one.

mod kallsyms;
mod machine;
mod maps;
mod sched;
mod stat;
mod status;
mod tasks;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub use machine::{CpuTimes, Faults, MachineStat};
pub use maps::{Backing, MappedFile, Mapping, MappingPerms, Presence};
pub use stat::Stat;
pub use status::{Ids, SeccompMode, Status};
pub(crate) use tasks::own_namespace;

/// The number of clock ticks a second that every current architecture reports, used where the kernel does not say.
const USUAL_TICKS_PER_SECOND: u64 = 100;
/// The key of the tick rate in the auxiliary vector (`AT_CLKTCK`, `getauxval(3)`).
const AUX_CLOCK_TICKS: u64 = 17;

/// Why a reading of `/proc` failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProcError {
    /// There is no such task, or it ended meanwhile.
    Gone {
        /// The process or thread that was asked about.
        id: i32,
    },
    /// The task is there, but this user may not look.
    Denied {
        /// The file that could not be opened.
        path: PathBuf,
    },
    /// The kernel does not offer this file at all.
    Unsupported {
        /// The file that is missing.
        path: PathBuf,
    },
    /// The file says something that this version does not understand.
    Malformed {
        /// The file.
        path: PathBuf,
        /// The part that was expected.
        expected: &'static str,
    },
    /// It is not mounted here: a chroot or a sandbox may leave it out.
    NotMounted {
        /// Where it would be.
        root: PathBuf,
    },
    /// Any other failure.
    Io {
        /// The file.
        path: PathBuf,
        /// The error number, 0 where there is none.
        errno: i32,
    },
}

impl fmt::Display for ProcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { id } => write!(f, "there is no task {id} (any more)"),
            Self::Denied { path } => write!(f, "this user may not read {}", path.display()),
            Self::Unsupported { path } => write!(f, "this kernel has no {}", path.display()),
            Self::NotMounted { root } => {
                write!(f, "{} is not mounted here, and what tasks do stands there", root.display())
            }
            Self::Malformed { path, expected } => write!(f, "{} holds no {expected} where one belongs", path.display()),
            Self::Io { path, errno } => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "{} could not be read: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for ProcError {}

/// A mounted `/proc`, or a folder that looks like one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proc {
    root: PathBuf,
}

impl Default for Proc {
    fn default() -> Self {
        Self::system()
    }
}

impl Proc {
    /// The machine's own, at `/proc`.
    #[must_use]
    pub fn system() -> Self {
        Self::at("/proc")
    }

    /// One at another place.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the number of ticks a second in which `/proc` states CPU times (`AT_CLKTCK`).
    ///
    /// Falls back to 100, the value on every current architecture, where the auxiliary vector is not readable.
    #[must_use]
    pub fn ticks_per_second(&self) -> u64 {
        let vector = std::fs::read(self.root.join("self/auxv")).unwrap_or_default();
        aux_value(&vector, AUX_CLOCK_TICKS).filter(|&rate| rate > 0).unwrap_or(USUAL_TICKS_PER_SECOND)
    }

    fn read_task(&self, id: i32, name: &str) -> Result<String, ProcError> {
        let path = self.task_path(id, name);
        read_lossy(&path).map_err(|error| self.task_error(id, path, &error))
    }

    fn read_global(&self, name: &str) -> Result<String, ProcError> {
        let path = self.root.join(name);
        read_lossy(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if !self.is_mounted() => ProcError::NotMounted { root: self.root.clone() },
            io::ErrorKind::NotFound => ProcError::Unsupported { path },
            _ => plain_error(path, &error),
        })
    }

    /// Whether there is anything: the folder that it is mounted on is empty.
    fn is_mounted(&self) -> bool {
        std::fs::read_dir(&self.root).is_ok_and(|mut entries| entries.next().is_some())
    }

    fn task_path(&self, id: i32, name: &str) -> PathBuf {
        self.root.join(id.to_string()).join(name)
    }

    /// Tells a dead task from a file that this kernel lacks: for a dead one its whole folder is gone.
    fn task_error(&self, id: i32, path: PathBuf, error: &io::Error) -> ProcError {
        if error.raw_os_error() == Some(libc::ESRCH) {
            return ProcError::Gone { id };
        }
        match error.kind() {
            io::ErrorKind::NotFound if self.exists(id) => ProcError::Unsupported { path },
            io::ErrorKind::NotFound if !self.is_mounted() => ProcError::NotMounted { root: self.root.clone() },
            io::ErrorKind::NotFound => ProcError::Gone { id },
            _ => plain_error(path, error),
        }
    }
}

fn plain_error(path: PathBuf, error: &io::Error) -> ProcError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ProcError::Denied { path },
        _ => ProcError::Io { path, errno: error.raw_os_error().unwrap_or(0) },
    }
}

/// Names of commands may hold any byte, so a reading must not fail over one that is not UTF-8.
fn read_lossy(path: &Path) -> io::Result<String> {
    read_whole(path).map(|bytes| match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// Reads a file of `/proc` or `/sys`. They say no size: `std::fs::read` asks for it, and then begins with 32 bytes.
pub(crate) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::with_capacity(4096);
    // `Take` doesn't ask for the size.
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Finds `key value` in a file of such lines.
pub(crate) fn keyed(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(name, _)| *name == key).and_then(|(_, value)| value.trim().parse().ok())
}

/// Finds a key in an auxiliary vector: pairs of machine words, ended by a key of 0.
fn aux_value(vector: &[u8], key: u64) -> Option<u64> {
    const WORD: usize = size_of::<usize>();
    let word = |bytes: &[u8]| -> Option<u64> { Some(usize::from_ne_bytes(bytes.try_into().ok()?) as u64) };
    for pair in vector.chunks_exact(2 * WORD) {
        let (name, value) = pair.split_at(WORD);
        match word(name)? {
            0 => return None,
            found if found == key => return word(value),
            _ => {}
        }
    }
    None
}
