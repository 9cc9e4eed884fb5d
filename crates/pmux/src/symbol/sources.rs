//! Where the files of a recording are looked for.
//!
//! What it is: [`Sources`] is what a user can say about it; [`locate`] finds a program or library as it was recorded, [`copies`] are the
//! places where tools keep files by build id. Read first: [`locate`].
//!
//! **Invariant:** a file whose build id is another than the recorded one is never used; that is said.

use super::debug::files::FOLDER;
use super::debuginfod;
use super::kept::usual_folder;
use pmux_linux::plain_file;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where files are looked for, beside the places that a recording names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sources {
    /// A folder that stands for the root of the recorded machine.
    pub symfs: Option<PathBuf>,
    /// The image of the recorded kernel.
    pub vmlinux: Option<PathBuf>,
    /// Servers that are asked for files by their build ids; these are kept in the cache, so without one no server is asked.
    pub debuginfod: Vec<String>,
    /// A folder in which is kept what was found out, for the next time; without it nothing is kept.
    pub cache: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    /// It is not there.
    Gone,
    /// There is a file of that name, which is another build.
    Changed,
    /// What is wrong with it, as half a sentence.
    Unreadable(String),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded<'a> {
    /// Its path, as its process saw it.
    pub(crate) path: &'a Path,
    pub(crate) build_id: Option<&'a [u8]>,
    /// A process that had mapped it; its number may be another's by now.
    pub(crate) pid: Option<i32>,
    /// When the recording ended, if that is known.
    pub(crate) until: Option<SystemTime>,
}

pub(crate) struct Located {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
}

impl Sources {
    /// What a user expects who has said nothing: with a cache in the usual folder, if there is a home.
    #[must_use]
    pub fn usual() -> Self {
        Self { cache: usual_folder(), ..Self::default() }
    }

    /// Where a path of the recorded machine is on this one.
    pub(crate) fn here(&self, path: &Path) -> PathBuf {
        match &self.symfs {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// What tells answers about a file apart: its build id, and whether other sources than usual were asked, which may know more.
    pub(crate) fn key(&self, build_id: &[u8]) -> Vec<u8> {
        let symfs = self.symfs.iter().flat_map(|path| path.as_os_str().as_encoded_bytes());
        let is_fetched = u64::from(!self.debuginfod.is_empty());
        let other = symfs.fold(is_fetched, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let other = if other == 0 { Vec::new() } else { other.to_le_bytes().to_vec() };
        [build_id, &other].concat()
    }

    /// Where distributions put debugging information.
    pub(crate) fn folder(&self) -> PathBuf {
        self.here(Path::new(FOLDER))
    }
}

/// A build id as tools write it.
pub(crate) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where `perf` keeps copies by build id.
pub(crate) fn copy_of_perf(id: &[u8], file: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME")?;
    let id = hex(unpadded(id));
    let (first, rest) = id.split_at_checked(2)?;
    Some(Path::new(&home).join(".debug/.build-id").join(first).join(rest).join(file))
}

/// Places where a file is by its build id, the best first.
pub(crate) fn copies(sources: &Sources, id: &[u8]) -> Vec<PathBuf> {
    let text = hex(unpadded(id));
    let mut found: Vec<PathBuf> = copy_of_perf(id, "elf").into_iter().collect();
    if let Some((first, rest)) = text.split_at_checked(2) {
        let own = sources.symfs.is_some().then(|| PathBuf::from(FOLDER));
        for folder in std::iter::once(sources.folder()).chain(own) {
            let home = folder.join(".build-id").join(first);
            found.extend([home.join(rest), home.join(format!("{rest}.debug"))]);
        }
    }
    found
}

/// Finds a file as it was recorded.
pub(crate) fn locate(sources: &Sources, recorded: Recorded<'_>) -> Result<Located, Missing> {
    let Recorded { path, build_id, pid, .. } = recorded;
    let there = open(&sources.here(path), build_id);
    let Some(id) = build_id.filter(|_| there.is_err()) else { return there };
    let mut places = Vec::new();
    if sources.symfs.is_some() {
        places.push(path.to_owned());
    }
    if let Some(pid) = pid {
        // A container has mounts of its own. If it still runs, they are seen from its processes.
        let root = Path::new("/proc").join(pid.to_string()).join("root");
        places.push(root.join(path.strip_prefix("/").unwrap_or(path)));
    }
    places.extend(copies(sources, id));
    if let Some(found) = places.iter().find_map(|copy| open(copy, build_id).ok()) {
        return Ok(found);
    }
    match (there, debuginfod::fetch(sources, id, debuginfod::EXECUTABLE)) {
        (_, Ok(Some(fetched))) => open(&fetched, build_id),
        (Err(Missing::Gone), Err(why)) => Err(Missing::Unreadable(why)),
        (there, _) => there,
    }
}

/// Opens a file if it is the one that was recorded.
pub(crate) fn open(path: &Path, build_id: Option<&[u8]>) -> Result<Located, Missing> {
    let file = plain_file::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Missing::Gone,
        _ if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) => {
            Missing::Unreadable("it is no plain file".to_owned())
        }
        _ => Missing::Unreadable(error.to_string()),
    })?;
    match build_id {
        // Cheap, before all of its symbols are read.
        Some(id) if !is_same(id, &pmux_linux::build_id::of_file(&file).unwrap_or_default()) => Err(Missing::Changed),
        _ => Ok(Located { file, path: path.to_owned() }),
    }
}

/// A recorded build id without the zeros that fill up one of 16 or 8 bytes to the 20 of a record. An id of 20 bytes may end with zeros, too:
/// one of 256 does with one.
pub(crate) fn unpadded(id: &[u8]) -> &[u8] {
    let is_zero = |byte: &u8| *byte == 0;
    match id {
        [short @ .., a, b, c, d] if id.len() == 20 && [a, b, c, d].into_iter().all(is_zero) => {
            if short[8..].iter().all(is_zero) { &short[..8] } else { short }
        }
        _ => id,
    }
}

/// Whether a recorded build id is that of a file: records fill it up with zeros.
pub(crate) fn is_same(recorded: &[u8], found: &[u8]) -> bool {
    !found.is_empty() && recorded.starts_with(found) && recorded[found.len()..].iter().all(|&byte| byte == 0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn only_what_fills_up_a_build_id_is_taken_away() {
        let id = |bytes: usize, zeros: usize| [vec![0x5a; bytes], vec![0; zeros]].concat();
        for (bytes, zeros, left) in
            [(20, 0, 20), (19, 1, 20), (17, 3, 20), (16, 4, 16), (9, 11, 16), (8, 12, 8), (15, 1, 16), (0, 0, 0)]
        {
            assert_eq!(unpadded(&id(bytes, zeros)).len(), left, "{bytes} and {zeros} zeros");
        }
    }

    /// This program and its build id, where the linker has written one.
    pub(crate) fn own_build() -> Option<(PathBuf, Vec<u8>)> {
        let me = std::env::current_exe().unwrap();
        let id = pmux_linux::build_id::of_file(&File::open(&me).unwrap());
        if id.is_none() {
            println!("skipped: needs a linker that writes build ids");
        }
        Some((me, id?))
    }

    #[test]
    fn files_are_found_below_another_root_and_only_of_the_same_build() {
        let root = tempfile::tempdir().unwrap();
        let Some((me, id)) = own_build() else { return };
        let inside = root.path().join("opt/x");
        std::fs::create_dir_all(inside.parent().unwrap()).unwrap();
        std::fs::copy(&me, &inside).unwrap();
        let sources = Sources { symfs: Some(root.path().to_owned()), ..Sources::default() };
        let file = |path: &Path, build_id: Option<&[u8]>| {
            locate(&sources, Recorded { path, build_id, pid: None, until: None }).map(|found| found.path)
        };
        let found = |path: &'static str, id: &[u8]| file(Path::new(path), Some(id));
        assert_eq!(found("/opt/x", &id), Ok(inside));
        assert_eq!(found("/opt/x", &[9; 20]), Err(Missing::Changed));
        // Perf may have kept a copy of this program: not of that one.
        assert_eq!(found("/opt/y", &[9; 20]), Err(Missing::Gone));
        // The same build is taken from here as well.
        assert_eq!(file(&me, Some(&id)), Ok(me.clone()));
        assert_eq!(file(&me, None), Err(Missing::Gone));
        // And from where a process sees it.
        let inside = root.path().join("opt/x");
        let pid = Some(std::process::id().cast_signed());
        let found = locate(&Sources::default(), Recorded { path: &inside, build_id: Some(&id), pid, until: None });
        assert_eq!(found.map(|found| found.path), Ok(inside));
    }

    #[test]
    fn recorded_ids_may_be_filled_up() {
        assert!(is_same(&[1, 2, 0, 0], &[1, 2]) && is_same(&[1, 2], &[1, 2]));
        assert!(!is_same(&[1, 2, 3], &[1, 2]) && !is_same(&[1, 2], &[]) && !is_same(&[1], &[1, 2]));
    }
}
