//! A cgroup that another process names.
//!
//! What it is: a folder is found by its number in the file system of cgroups, or, without the right to open files by number, by its
//! path below the mount. Nothing is asked of any other file system: one that a user wrote may never answer.
//!
//! **Invariant:** what is opened is the folder that was meant: its file system and its number are compared.

use super::{Cgroup, CgroupError, Mounts, io_error};
use crate::sys::{self, Errno};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A cgroup's number: its inode, for as long as the folder is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CgroupInode(pub u64);

/// A cgroup by its number, and by its path for a service that can't open it by that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedCgroup<'a> {
    /// The device of its file system (`st_dev`), the same for all mounts of it.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Its path below the mount, as its user sees it.
    pub path: &'a str,
}

/// The user and the groups of a process that names a cgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReaderIds<'a> {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
    /// The further groups.
    pub groups: &'a [u32],
    /// It may read whatever the mode says (`CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`).
    pub reads_all: bool,
}

impl ReaderIds<'_> {
    pub(super) fn may_read(self, mode: u32, owner: u32, group: u32) -> bool {
        let in_group = self.group == group || self.groups.contains(&group);
        let bit = match self.user == owner {
            true => 0o400,
            false if in_group => 0o040,
            false => 0o004,
        };
        self.reads_all || mode & bit != 0
    }
}

impl Mounts {
    /// Opens the cgroup that another process has named, where that may read its folder. The same cgroup has the same number each
    /// time.
    ///
    /// # Errors
    /// [`CgroupError::NoFileSystem`]; [`CgroupError::Io`] for the mount; [`CgroupError::NotCgroup`] for another file system;
    /// [`CgroupError::NotFound`] for what can't be opened by its number or its path; [`CgroupError::Denied`].
    pub fn named(&self, named: &NamedCgroup<'_>, by: ReaderIds<'_>) -> Result<(CgroupInode, Cgroup), CgroupError> {
        let home = self.for_events().ok_or(CgroupError::NoFileSystem)?;
        let mount = File::open(home).map_err(|error| io_error(home.to_owned(), &error))?;
        let seen = mount.metadata().map_err(|error| io_error(home.to_owned(), &error))?;
        let (name, path) = (named.path.to_owned(), home.join(named.path));
        if seen.dev() != named.device {
            return Err(CgroupError::NotCgroup { name, path });
        }
        let by_path = |_| {
            let below = if named.path.is_empty() { "." } else { named.path };
            sys::open_below(mount.as_fd(), &CString::new(below).map_err(|_| Errno::EINVAL)?)
        };
        let Ok(file) = sys::open_by_number(mount.as_fd(), named.inode).or_else(by_path).map(File::from) else {
            return Err(CgroupError::NotFound { name, path });
        };
        let seen = file.metadata().map_err(|error| io_error(path.clone(), &error))?;
        if (seen.dev(), seen.ino()) != (named.device, named.inode) {
            return Err(CgroupError::NotFound { name, path });
        }
        if !by.may_read(seen.mode(), seen.uid(), seen.gid()) {
            return Err(CgroupError::Denied { name, path });
        }
        let link = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let path = std::fs::read_link(link).unwrap_or(path);
        let relative = path.strip_prefix(home).unwrap_or(Path::new("")).to_owned();
        let name = format!("/{}", relative.display());
        Ok((CgroupInode(named.inode), Cgroup { name, path, file, relative, mounts: self.clone() }))
    }
}
