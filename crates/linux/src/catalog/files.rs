//! Reading small files and directories of sysfs and tracefs.
//!
//! **Invariant:** a name that comes from a user never leaves its directory: see [`is_plain_name`].

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use super::CatalogError;

/// The most that is read of one file. A page is what sysfs can give.
const MOST_BYTES: u64 = 64 * 1024;

/// Whether a name can only be an entry of a directory: no separator, not `.` or `..`.
pub(super) fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

/// Reads a whole small file. `None` if it isn't there.
pub(super) fn read(path: &Path) -> Result<Option<String>, CatalogError> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(CatalogError::from_io(path, &error)),
    };
    let mut bytes = Vec::new();
    match file.take(MOST_BYTES).read_to_end(&mut bytes) {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        // A PMU that goes away while we read leaves its files behind for a moment.
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(CatalogError::from_io(path, &error)),
    }
}

/// Reads a file that must hold one decimal number. `None` if it isn't there.
pub(super) fn read_number<T: std::str::FromStr>(path: &Path) -> Result<Option<T>, CatalogError> {
    let Some(text) = read(path)? else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| CatalogError::malformed(path, &text))
}

/// The names in a directory, sorted. `None` if it isn't there. Names that aren't UTF-8 are left out.
pub(super) fn names(path: &Path) -> Result<Option<Vec<String>>, CatalogError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(CatalogError::from_io(path, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| CatalogError::from_io(path, &error))?;
        if let Ok(name) = entry.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(Some(names))
}

/// Not there at all, or part of the path is a file.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
