//! Cgroups: where they are mounted, opening one by its name, and what its files count.
//!
//! What it is: [`Mounts`] finds the hierarchies, [`Mounts::open`] gives a [`Cgroup`] whose file
//! `perf_event_open` takes, and [`Cgroup`] reads the counts that exist without any event.
//! Read first: [`Mounts`].
//!
//! **Invariant:** it never creates, moves or writes a cgroup.

mod counts;
mod named;
#[cfg(test)]
mod tests;

use crate::sys::{self, Errno};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

pub use counts::CpuUsage;
pub use named::{CgroupInode, NamedCgroup, ReaderIds};

/// Cgroups inside one another are followed up to so many.
const DEEPEST: usize = 256;

/// The v1 controller whose hierarchy `perf_event_open` accepts.
const PERF_CONTROLLER: &str = "perf_event";

/// Why a cgroup could not be opened or read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CgroupError {
    /// No cgroup file system that can carry events is mounted.
    NoFileSystem,
    /// There is no cgroup of this name.
    NotFound {
        /// The name as given.
        name: String,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The name leads to a file.
    NotDirectory {
        /// The name as given.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// The name leads to a folder outside every cgroup file system.
    NotCgroup {
        /// The name as given.
        name: String,
        /// The folder.
        path: PathBuf,
    },
    /// The cgroup is in a v1 hierarchy that carries no events.
    WrongHierarchy {
        /// The name as given.
        name: String,
        /// The folder.
        path: PathBuf,
        /// Where the hierarchy is that does.
        wanted: PathBuf,
    },
    /// This user may not look into it.
    Denied {
        /// The name as given.
        name: String,
        /// The folder or file.
        path: PathBuf,
    },
    /// The cgroup has no such count: the controller is off, or the kernel is too old.
    NoCount {
        /// The name as given.
        name: String,
        /// What was asked for.
        count: &'static str,
    },
    /// Any other failure.
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The error number, 0 where there is none.
        errno: i32,
    },
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFileSystem => {
                f.write_str("no cgroup file system is mounted that can carry events (cgroup v2, or v1 with perf_event)")
            }
            Self::NotFound { name, path } => {
                write!(f, "there is no cgroup `{name}`: {} does not exist", path.display())
            }
            Self::NotDirectory { name, path } => write!(f, "`{name}` is no cgroup: {} is not a folder", path.display()),
            Self::NotCgroup { name, path } => {
                write!(f, "`{name}` is no cgroup: {} is in no cgroup file system", path.display())
            }
            Self::WrongHierarchy { name, path, wanted } => write!(
                f,
                "`{name}` ({}) is in a hierarchy that carries no events; those below {} do",
                path.display(),
                wanted.display()
            ),
            Self::Denied { name, path } => write!(f, "this user may not read the cgroup `{name}` ({})", path.display()),
            Self::NoCount { name, count } => write!(f, "the cgroup `{name}` does not count its {count}"),
            Self::Io { path, errno } => {
                write!(f, "{} could not be read: {}", path.display(), io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for CgroupError {}

/// The version of a cgroup hierarchy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// One hierarchy for each controller or few.
    V1,
    /// The unified hierarchy.
    V2,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Mount {
    /// Unique among all mounts of the machine, in all namespaces.
    id: u64,
    /// The number of the file system, the same for all mounts of it.
    device: String,
    path: PathBuf,
    version: Version,
    /// The controllers of a v1 hierarchy.
    controllers: Vec<String>,
}

/// The cgroup hierarchies that are mounted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mounts {
    mounts: Vec<Mount>,
}

impl Mounts {
    /// Reads those of this process, from `/proc/self/mountinfo`.
    ///
    /// # Errors
    /// [`CgroupError::Io`] without a mounted `/proc`.
    pub fn system() -> Result<Self, CgroupError> {
        Self::at(Path::new("/proc/self/mountinfo"))
    }

    /// Reads those in another file of the same format.
    ///
    /// # Errors
    /// [`CgroupError::Io`].
    pub fn at(path: &Path) -> Result<Self, CgroupError> {
        let bytes = std::fs::read(path).map_err(|error| io_error(path.to_owned(), &error))?;
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// Picks the cgroup file systems out of a mount table. Source: `proc_pid_mountinfo(5)`.
    #[must_use]
    pub fn parse(mountinfo: &str) -> Self {
        Self { mounts: mountinfo.lines().filter_map(Mount::parse).collect() }
    }

    /// Where the cgroups are that events can be bound to: v1 with `perf_event` if it is mounted, otherwise v2.
    ///
    /// The kernel gives `perf_event` to one hierarchy only, so a v1 mount of it takes it away from v2.
    #[must_use]
    pub fn for_events(&self) -> Option<&Path> {
        self.v1(PERF_CONTROLLER).or_else(|| self.v2()).map(|mount| mount.path.as_path())
    }

    /// Whether a v1 hierarchy with `perf_event` is mounted.
    #[must_use]
    pub fn events_are_in_v1(&self) -> bool {
        self.v1(PERF_CONTROLLER).is_some()
    }

    /// Opens a cgroup by its name: relative to the mount that carries events (with or without `/` in front), or the
    /// absolute path of its folder.
    ///
    /// # Errors
    /// In this order: [`CgroupError::NoFileSystem`], [`CgroupError::NotFound`], [`CgroupError::Denied`],
    /// [`CgroupError::NotDirectory`], [`CgroupError::NotCgroup`], [`CgroupError::WrongHierarchy`].
    pub fn open(&self, name: &str) -> Result<Cgroup, CgroupError> {
        let root = self.for_events().ok_or(CgroupError::NoFileSystem)?;
        let path = self.path_of(root, name);
        let owned = name.to_owned();
        let failed = |error: io::Error| open_error(name.to_owned(), path.clone(), &error);
        if !std::fs::metadata(&path).map_err(failed)?.is_dir() {
            return Err(CgroupError::NotDirectory { name: owned, path });
        }
        let Some(home) = self.home_of(&path) else { return Err(CgroupError::NotCgroup { name: owned, path }) };
        if home.path != root {
            return Err(CgroupError::WrongHierarchy { name: owned, path, wanted: root.to_owned() });
        }
        let file = File::open(&path).map_err(failed)?;
        let relative = path.strip_prefix(&home.path).unwrap_or(Path::new("")).to_owned();
        Ok(Cgroup { name: owned, path, file, relative, mounts: self.clone() })
    }

    fn path_of(&self, root: &Path, name: &str) -> PathBuf {
        let given = Path::new(name);
        let below = root.join(name.trim_start_matches('/'));
        // `/web` is usually a cgroup below the root; a real path of a folder is taken as it is.
        if given.is_absolute() && (self.home_of(given).is_some() || (!below.exists() && given.exists())) {
            given.to_owned()
        } else {
            below
        }
    }

    /// The mount that a path is in: the longest that begins it.
    fn home_of(&self, path: &Path) -> Option<&Mount> {
        let homes = self.mounts.iter().filter(|mount| path.starts_with(&mount.path));
        homes.max_by_key(|mount| mount.path.as_os_str().len())
    }

    fn v1(&self, controller: &str) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.controllers.iter().any(|known| known == controller))
    }

    fn v2(&self) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.version == Version::V2)
    }
}

impl Mount {
    /// `ID PARENT DEVICE ROOT PLACE OPTIONS [TAGS...] - TYPE SOURCE SUPER-OPTIONS`
    fn parse(line: &str) -> Option<Self> {
        let (head, tail) = line.split_once(" - ")?;
        let id = head.split(' ').next()?.parse().ok()?;
        let device = head.split(' ').nth(2)?.to_owned();
        let place = head.split(' ').nth(4)?;
        let mut tail = tail.split(' ');
        let version = match tail.next()? {
            "cgroup2" => Version::V2,
            "cgroup" => Version::V1,
            _ => return None,
        };
        let options = tail.nth(1).unwrap_or_default();
        let controllers = match version {
            Version::V1 => options.split(',').map(str::to_owned).collect(),
            Version::V2 => Vec::new(),
        };
        Some(Self { id, device, path: PathBuf::from(unescape(place)), version, controllers })
    }
}

/// Blanks in a mount table are written as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = |digit: u8| matches!(digit, b'0'..=b'7').then(|| u32::from(digit - b'0'));
        let escaped = match (byte, tail) {
            (b'\\', [a, b, c, ..]) => octal(*a).zip(octal(*b)).zip(octal(*c)).map(|((a, b), c)| a * 64 + b * 8 + c),
            _ => None,
        };
        match escaped.and_then(|value| u8::try_from(value).ok()) {
            Some(value) => {
                bytes.push(value);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn open_error(name: String, path: PathBuf, error: &io::Error) -> CgroupError {
    match error.kind() {
        io::ErrorKind::NotFound => CgroupError::NotFound { name, path },
        io::ErrorKind::PermissionDenied => CgroupError::Denied { name, path },
        io::ErrorKind::NotADirectory => CgroupError::NotDirectory { name, path },
        _ => io_error(path, error),
    }
}

fn io_error(path: PathBuf, error: &io::Error) -> CgroupError {
    CgroupError::Io { path, errno: error.raw_os_error().unwrap_or(0) }
}

/// An open cgroup.
#[derive(Debug)]
pub struct Cgroup {
    name: String,
    path: PathBuf,
    file: File,
    /// The path inside its hierarchy; the same below every v1 mount.
    relative: PathBuf,
    mounts: Mounts,
}

impl Cgroup {
    /// The name that it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its path below the mount.
    #[must_use]
    pub fn relative(&self) -> &Path {
        &self.relative
    }

    /// The open folder, as `PERF_FLAG_PID_CGROUP` wants it.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is the same folder of the same file system.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let place = |cgroup: &Self| cgroup.file().metadata().map(|it| (it.dev(), it.ino())).ok();
        place(self).is_some_and(|place_of_this| place(other) == Some(place_of_this))
    }

    /// Where it is among all others: the numbers of the cgroups that hold it, from that of the mount's own folder on, and its own.
    /// They don't change as long as it is open, under whatever name. `None` where the kernel does not say.
    #[must_use]
    pub fn numbers_above(&self) -> Option<Vec<u64>> {
        use std::os::unix::fs::MetadataExt as _;
        let number = |folder: &File| folder.metadata().ok().map(|it| it.ino());
        let mut numbers = vec![number(&self.file)?];
        let mut last: Option<File> = None;
        while numbers.len() < DEEPEST {
            match sys::open_above(last.as_ref().unwrap_or(&self.file).as_fd()) {
                Ok(above) => {
                    let above = File::from(above);
                    let number = number(&above)?;
                    // What this process takes for the root of all is above itself.
                    if numbers.last() == Some(&number) {
                        break;
                    }
                    numbers.push(number);
                    last = Some(above);
                }
                Err(Errno::EXDEV) => break,
                Err(_) => return None,
            }
        }
        numbers.reverse();
        (numbers.len() < DEEPEST).then_some(numbers)
    }

    /// Whether it is still there.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }
}
