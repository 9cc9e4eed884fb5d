//! A cgroup whose folder somebody else has opened and passed on.
//!
//! What it is: what the folder is is read in `/proc/self/fdinfo`, because asking the file itself is asking its file system: one
//! that somebody wrote himself may never answer.
//!
//! **Invariant:** no call on a passed file before its mount is known to be one of cgroups.

use super::{Cgroup, CgroupError, Mount, Mounts, io_error};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A cgroup's number: its inode, for as long as the folder is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CgroupInode(pub u64);

impl Mounts {
    /// Takes over an open folder that this process has passed. The same cgroup has the same number each time.
    ///
    /// A mount is looked up by its number, which is the same for everybody, in the table of this process and then in that of
    /// whoever passed the folder: he may see other mounts of the same file system.
    ///
    /// # Errors
    /// [`CgroupError::NoFileSystem`]; [`CgroupError::NotCgroup`] for what is not in the file system that carries events;
    /// [`CgroupError::NotDirectory`]; [`CgroupError::Io`] without a mounted `/proc`.
    pub fn passed(&self, folder: OwnedFd, by: i32) -> Result<(CgroupInode, Cgroup), CgroupError> {
        let home = self.mounts.iter().find(|mount| Some(mount.path.as_path()) == self.for_events());
        let home = home.ok_or(CgroupError::NoFileSystem)?;
        let info = PathBuf::from(format!("/proc/self/fdinfo/{}", folder.as_raw_fd()));
        let text = std::fs::read_to_string(&info).map_err(|error| io_error(info, &error))?;
        let number = |key| {
            let line = text.lines().find_map(|line: &str| line.strip_prefix(key))?;
            line.trim().parse::<u64>().ok()
        };
        let link = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let path = std::fs::read_link(link).unwrap_or_default();
        let name = path.display().to_string();
        let (Some(mount), Some(inode)) = (number("mnt_id:"), number("ino:")) else {
            return Err(CgroupError::NotCgroup { name, path });
        };
        let is_home = |known: &Mount| known.id == mount && known.device == home.device;
        let known_to_him = || Self::at(Path::new(&format!("/proc/{by}/mountinfo"))).unwrap_or_default();
        if !self.mounts.iter().any(is_home) && !known_to_him().mounts.iter().any(is_home) {
            return Err(CgroupError::NotCgroup { name, path });
        }
        // It is the kernel's own, which answers.
        let file = File::from(folder);
        if !file.metadata().is_ok_and(|file| file.is_dir()) {
            return Err(CgroupError::NotDirectory { name, path });
        }
        let relative = path.strip_prefix(&home.path).unwrap_or(&path).to_owned();
        let name = format!("/{}", relative.display()).replacen("//", "/", 1);
        Ok((CgroupInode(inode), Cgroup { name, path, file, relative, mounts: self.clone() }))
    }
}
