//! A program that gains rights by being executed: a copy of this one that belongs to another user.
//!
//! **Invariant:** the copy has no name when it is executed: no other process can start it.

use super::StatementError;
use std::fs::File;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};

/// The user whose rights the copy gives: the unprivileged one, everywhere.
const OTHER_USER: u32 = 65534;

/// A copy of this program that is executed as another user.
pub(super) fn copy() -> Result<File, StatementError> {
    let folder = std::env::temp_dir();
    let path = folder.join(format!("pmux-setuid-{}", std::process::id()));
    let made = || -> io::Result<File> {
        let mut from = File::open("/proc/self/exe")?;
        let mut to = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o700).open(&path)?;
        let copied = io::copy(&mut from, &mut to)
            .and_then(|_| std::os::unix::fs::fchown(&to, Some(OTHER_USER), None))
            .and_then(|()| to.set_permissions(std::fs::Permissions::from_mode(0o4755)));
        drop(to);
        // To be executed it must not be open for writing anywhere.
        let copy = copied.and_then(|()| File::open(&path));
        std::fs::remove_file(&path)?;
        copy
    };
    made().map_err(|error| {
        StatementError::new(format!("a set-uid program can't be made in {}: {error}", folder.display()))
    })
}
