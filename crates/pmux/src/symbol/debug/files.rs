//! Where the debugging information of a file is, if not in the file itself.
//!
//! What it is: the places that debuggers look at: by build id, then by the name that the file itself gives. Read first:
//! [`find`].
//!
//! **Invariant:** a file with another build id is not taken; nothing is fetched from anywhere here.
//!
//! Source: "Debugging Information in Separate Files" of the GDB manual.

use super::super::elf::Elf;
use super::super::sources::hex;
use pmux_linux::plain_file;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Where distributions put debugging information.
pub(crate) const FOLDER: &str = "/usr/lib/debug";

/// A file with the debugging information of another one.
pub(crate) struct Separate {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    /// What it says of itself: all symbols, and segments without contents.
    pub(crate) elf: Elf,
}

/// Opens the file with the debugging information of the file at `path`, looking below `folder` too.
pub(crate) fn find(elf: &Elf, path: &Path, folder: &Path) -> Option<Separate> {
    // The file itself may have the name that it gives.
    let mut others = candidates(elf, path, folder).into_iter().filter(|candidate| candidate != path);
    others.find_map(|candidate| open(elf, candidate))
}

/// Opens a file with the debugging information of another one, if it belongs to it.
pub(crate) fn open(elf: &Elf, path: PathBuf) -> Option<Separate> {
    let file = plain_file::open(&path).ok()?;
    let found = Elf::read(file.try_clone().ok()?).ok().filter(|found| found.build_id == elf.build_id)?;
    Some(Separate { file, path, elf: found })
}

/// Where that file may be, the best place first.
pub(crate) fn candidates(elf: &Elf, path: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = by_build_id(folder, &elf.build_id).into_iter().collect();
    if let Some(name) = &elf.debug_link
        && let Some(home) = path.parent()
        // A name only: a path would lead anywhere.
        && !name.is_empty()
        && !name.contains('/')
    {
        found.push(home.join(name));
        found.push(home.join(".debug").join(name));
        found.push(folder.join(home.strip_prefix("/").unwrap_or(home)).join(name));
    }
    found
}

/// `.build-id/ab/cdef.debug` of a folder for the build id `abcdef`.
fn by_build_id(folder: &Path, id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    Some(folder.join(".build-id").join(format!("{first:02x}/{}.debug", hex(rest))))
}

/// Opens the file with what several files share, which `of` names.
pub(crate) fn shared(of: &Path, name: &str, build_id: &[u8], folder: &Path) -> Option<File> {
    let path = Path::new(name);
    let near = of.parent().map(|home| home.join(path));
    // The file may have been found by a link somewhere else.
    let real = of.canonicalize().ok().and_then(|of| of.parent().map(|home| home.join(path)));
    let mut candidates = [near, real, by_build_id(folder, build_id)].into_iter().flatten();
    candidates.find_map(|candidate| plain_file::open(&candidate).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_build_ids() {
        let folder = Path::new("/d");
        assert_eq!(by_build_id(folder, &[0xab, 0xcd, 0x01]), Some(PathBuf::from("/d/.build-id/ab/cd01.debug")));
        assert_eq!(by_build_id(folder, &[]), None);
        assert_eq!(by_build_id(folder, &[1]), None);
    }
}
