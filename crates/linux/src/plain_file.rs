//! Files that others may replace at any time.
//!
//! **Invariant:** opening one never waits for another process: what is opened is a regular file, or nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a regular file for reading.
///
/// The open itself does not wait (`O_NONBLOCK`: of a FIFO it would wait for a writer), and what was opened is looked at, not what the
/// path led to before.
///
/// # Errors
/// `ENXIO` for what is no regular file; those of `open(2)`.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::from_raw_os_error(libc::ENXIO));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "x").unwrap();
        assert_eq!(io::read_to_string(open(&path("file")).unwrap()).unwrap(), "x");
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        assert!(open(&path("link")).is_ok());
        assert!(Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
        for no_file in [path("fifo"), folder.path().to_owned(), "/dev/zero".into()] {
            let refused = open(&no_file).map(drop).map_err(|error| error.raw_os_error());
            assert_eq!(refused, Err(Some(libc::ENXIO)), "{}", no_file.display());
        }
        assert_eq!(open(&path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
