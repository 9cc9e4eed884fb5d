//! Finding the file of a command, as shells do.
//!
//! Done before the fork: a misspelled command is reported before any event was opened for it.
//!
//! **Invariant:** the file system is only asked; nothing is opened.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::{SpawnError, has_slash};
use crate::sys::{self, AccessMode, Errno};

/// Where commands are without a `PATH`, as in the C libraries.
const USUAL_PATH: &[u8] = b"/bin:/usr/bin";

enum PathLookup {
    Program(CString),
    Directory,
    NotExecutable,
    /// Unknown: a directory on the way may not be searched.
    Hidden,
    Nothing,
}

/// The path to execute for a command.
pub(super) fn resolve(command: &OsStr, path: Option<&OsStr>) -> Result<CString, SpawnError> {
    let given = command.to_os_string();
    if has_slash(command) {
        return match look(command.as_bytes()) {
            PathLookup::Program(path) => Ok(path),
            PathLookup::Directory => Err(SpawnError::IsDirectory { command: given }),
            PathLookup::NotExecutable | PathLookup::Hidden => Err(SpawnError::PermissionDenied { command: given }),
            PathLookup::Nothing => Err(SpawnError::NoSuchFile { command: given }),
        };
    }
    let mut refused = false;
    if !command.is_empty() {
        for part in path.map_or(USUAL_PATH, OsStrExt::as_bytes).split(|&byte| byte == b':') {
            // An empty part is the working directory.
            let mut candidate = if part.is_empty() { b".".to_vec() } else { part.to_vec() };
            candidate.push(b'/');
            candidate.extend_from_slice(command.as_bytes());
            match look(&candidate) {
                PathLookup::Program(path) => return Ok(path),
                PathLookup::NotExecutable => refused = true,
                // A part of the path that belongs to another user says nothing about the command.
                PathLookup::Directory | PathLookup::Hidden | PathLookup::Nothing => {}
            }
        }
    }
    // A file that may not be executed says more than that none was found.
    Err(if refused { SpawnError::PermissionDenied { command: given } } else { SpawnError::NotFound { command: given } })
}

fn look(path: &[u8]) -> PathLookup {
    let Ok(c_path) = CString::new(path) else { return PathLookup::Nothing };
    match sys::accessible(&c_path, AccessMode::Execute) {
        // Directories are "executable" too, so the kind is asked as well.
        Ok(()) if Path::new(OsStr::from_bytes(path)).is_dir() => PathLookup::Directory,
        Ok(()) => PathLookup::Program(c_path),
        Err(Errno::EACCES | Errno::EPERM) => match std::fs::metadata(OsStr::from_bytes(path)) {
            Ok(meta) if meta.is_dir() => PathLookup::Directory,
            Ok(_) => PathLookup::NotExecutable,
            Err(error) if Errno::from(&error) == Errno::EACCES => PathLookup::Hidden,
            Err(_) => PathLookup::Nothing,
        },
        Err(_) => PathLookup::Nothing,
    }
}
