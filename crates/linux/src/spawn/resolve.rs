//! Finding the file of a command, as shells do.
//!
//! Done before the fork: a misspelled command is reported before any event was opened for it.
//!
//! **Invariant:** the file system is only asked; nothing is opened.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::{SpawnError, has_slash};
use crate::sys::{self, Access, Errno};

/// Where commands are without a `PATH`, as in the C libraries.
const USUAL_PATH: &[u8] = b"/bin:/usr/bin";

enum Found {
    Program(CString),
    Directory,
    NotExecutable,
    /// Unknown: a directory on the way may not be searched.
    Hidden,
    Nothing,
}

/// The path to execute for a command.
pub(super) fn resolve(command: &OsStr, path: Option<&OsStr>) -> Result<CString, SpawnError> {
    if has_slash(command) {
        let command_given = || command.to_os_string();
        return match look(command.as_bytes()) {
            Found::Program(path) => Ok(path),
            Found::Directory => Err(SpawnError::IsDirectory { command: command_given() }),
            Found::NotExecutable | Found::Hidden => Err(SpawnError::PermissionDenied { command: command_given() }),
            Found::Nothing => Err(SpawnError::NoSuchFile { command: command_given() }),
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
                Found::Program(path) => return Ok(path),
                Found::NotExecutable => refused = true,
                // A part of the path that belongs to another user says nothing about the command.
                Found::Directory | Found::Hidden | Found::Nothing => {}
            }
        }
    }
    let command = command.to_os_string();
    // A file that may not be executed says more than that none was found.
    Err(if refused { SpawnError::PermissionDenied { command } } else { SpawnError::NotFound { command } })
}

fn look(path: &[u8]) -> Found {
    let Ok(c_path) = CString::new(path) else { return Found::Nothing };
    match sys::accessible(&c_path, Access::Execute) {
        // Directories are "executable" too, so the kind is asked as well.
        Ok(()) if Path::new(OsStr::from_bytes(path)).is_dir() => Found::Directory,
        Ok(()) => Found::Program(c_path),
        Err(Errno::EACCES | Errno::EPERM) => match std::fs::metadata(OsStr::from_bytes(path)) {
            Ok(meta) if meta.is_dir() => Found::Directory,
            Ok(_) => Found::NotExecutable,
            Err(error) if Errno::from(&error) == Errno::EACCES => Found::Hidden,
            Err(_) => Found::Nothing,
        },
        Err(_) => Found::Nothing,
    }
}
