//! Where the files of the cache are.
//!
//! **Invariant:** a file appears under its name only when it is whole; all of them together stay below a size, the longest unused go first.
//! A folder that is another user's is neither read nor written.

use crate::symbol::sources::hex;
use pmux_linux::plain_file;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A larger file is none of ours.
const LARGEST_BYTES: u64 = 128 << 20;
/// All files together.
const MOST_BYTES: u64 = 512 << 20;
/// What is used is marked as used once in so long.
const USED_SECONDS: u64 = 3600;

/// Where programs keep what they can find out again: `$XDG_CACHE_HOME/pmux`, or `~/.cache/pmux`.
pub(crate) fn usual_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(home.join("pmux"))
}

pub(super) fn path(cache: &Path, build_id: &[u8]) -> Option<PathBuf> {
    (build_id.len() >= 4).then(|| home(cache).join(hex(build_id)))
}

fn home(cache: &Path) -> PathBuf {
    cache.join("symbols")
}

/// Whether a folder is this user's: as root in a user's home, say, it is better left alone.
fn is_own(folder: &Path) -> bool {
    let owner = |path: &Path| fs::metadata(path).map(|about| about.uid());
    matches!((owner(folder), owner(Path::new("/proc/self"))), (Ok(owner), Ok(me)) if owner == me)
}

/// What stands in the file for a build id.
pub(super) fn read(cache: &Path, build_id: &[u8]) -> Option<Vec<u8>> {
    let file = path(cache, build_id)?;
    if !is_own(&home(cache)) {
        return None;
    }
    let mut opened = plain_file::open(&file).ok()?;
    let about = opened.metadata().ok().filter(|about| about.len() <= LARGEST_BYTES)?;
    let mut bytes = Vec::new();
    opened.read_to_end(&mut bytes).ok()?;
    let is_old =
        about.modified().ok().and_then(|then| then.elapsed().ok()).is_some_and(|age| age.as_secs() > USED_SECONDS);
    if is_old && let Ok(file) = fs::File::options().append(true).open(&file) {
        let _ = file.set_modified(SystemTime::now());
    }
    Some(bytes)
}

/// Writes the file for a build id, where that can be done.
pub(super) fn write(cache: &Path, build_id: &[u8], bytes: &[u8]) {
    let (Some(file), folder) = (path(cache, build_id), home(cache)) else { return };
    if bytes.len() as u64 > LARGEST_BYTES {
        return;
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    if made.is_err() || !is_own(&folder) {
        return;
    }
    make_room(&folder, bytes.len() as u64);
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return };
    let new = folder.join(format!(".{name}.{}.{:?}", std::process::id(), std::thread::current().id()));
    if fs::write(&new, bytes).and_then(|()| fs::rename(&new, &file)).is_err() {
        let _ = fs::remove_file(&new);
    }
}

/// Removes what was not used for the longest time, until so many bytes more have room.
fn make_room(folder: &Path, bytes: u64) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let about = |entry: fs::DirEntry| {
        let about = entry.metadata().ok()?;
        Some((about.modified().ok()?, about.len(), entry.path()))
    };
    let mut files: Vec<_> = entries.filter_map(|entry| about(entry.ok()?)).collect();
    let mut all: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    if all + bytes <= MOST_BYTES {
        return;
    }
    crate::order::sort(&mut files);
    for (_, size, path) in files {
        // A quarter is left free, so that not every writer has to look again.
        if all + bytes <= MOST_BYTES / 4 * 3 {
            break;
        }
        if fs::remove_file(path).is_ok() {
            all -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_go_first() {
        let cache = tempfile::tempdir().unwrap();
        let file = |number: u8| path(cache.path(), &[number; 20]).unwrap();
        for number in 0..5 {
            write(cache.path(), &[number; 20], b"x");
            // Sparse: they only look large.
            let made = fs::File::options().append(true).open(file(number)).unwrap();
            made.set_len(MOST_BYTES / 5).unwrap();
            made.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 - u64::from(number)))
                .unwrap();
        }
        write(cache.path(), &[9; 20], b"new");
        let there: Vec<u8> = [0, 1, 2, 3, 4, 9].into_iter().filter(|&number| file(number).exists()).collect();
        assert_eq!(there, [0, 1, 2, 9]);
        assert_eq!(read(cache.path(), &[9; 20]).as_deref(), Some(&b"new"[..]));
        let names: Vec<_> = fs::read_dir(home(cache.path())).unwrap().collect();
        assert_eq!(names.len(), 4, "nothing half written is left");
    }
}
