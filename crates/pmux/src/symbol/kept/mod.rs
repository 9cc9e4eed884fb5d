//! What was found out about a program or library, kept on disk: the second time its file is not opened.
//!
//! What it is: [`FileAnswers`] has the answers that were given about one build of a file, by its build id: functions and lines of
//! addresses, and which other files had been asked. `bytes` is what stands in its file, `folder` where the files are. Read first:
//! [`FileAnswers::load`].
//!
//! **Invariant:** what is kept is never trusted blindly: a file that is of another version, broken, or older than what could tell more now
//! is as good as none. A process that can't write goes on without.

mod bytes;
mod folder;

use super::place::ResolvedFrame;
use hashbrown::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use folder::usual_folder;

/// So many answers of one file are kept; more are not worth the time to read them.
const MOST_ANSWERS: usize = 1 << 20;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NamedFunction {
    /// Where it begins, as the asker counts.
    pub(crate) start: u64,
    /// Its name: readable, without parameters.
    pub(crate) name: Arc<str>,
}

/// A file that was asked, or would have been.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Witness {
    path: PathBuf,
    /// Its size, and when it was changed, in ns since 1970; `None` if it was not there.
    state: Option<(u64, i64)>,
}

impl Witness {
    fn of(path: PathBuf) -> Self {
        let state = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file);
        let state = state.map(|file| (file.size(), file.mtime().wrapping_mul(1_000_000_000) + file.mtime_nsec()));
        Self { path, state }
    }

    /// Whether it could tell something now that it could not then. What is gone has told all that it knew.
    fn knows_more(&self) -> bool {
        let now = Self::of(self.path.clone()).state;
        now.is_some() && now != self.state
    }
}

/// What was found out about a file.
#[derive(Default, Debug)]
pub(crate) struct FileAnswers {
    witnesses: Vec<Witness>,
    functions: HashMap<u64, Option<NamedFunction>>,
    lines: HashMap<u64, Arc<[ResolvedFrame]>>,
    is_changed: bool,
}

impl FileAnswers {
    /// What is kept of the file with this build id; empty where that is nothing.
    pub(crate) fn load(cache: &Path, build_id: &[u8]) -> Self {
        let found = folder::read(cache, build_id).and_then(|bytes| bytes::decode(&bytes));
        found.filter(|kept| !kept.witnesses.iter().any(Witness::knows_more)).unwrap_or_default()
    }

    /// Notes who was asked for what is added from now on: files that are there or not.
    pub(crate) fn asked(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            if !self.witnesses.iter().any(|known| known.path == path) {
                self.witnesses.push(Witness::of(path));
            }
        }
    }

    /// The function at an address; `None` where that is not known yet.
    pub(crate) fn function(&self, address: u64) -> Option<Option<&NamedFunction>> {
        self.functions.get(&address).map(Option::as_ref)
    }

    pub(crate) fn set_function(&mut self, address: u64, function: Option<NamedFunction>) {
        if self.functions.len() < MOST_ANSWERS {
            self.is_changed = true;
            self.functions.insert(address, function);
        }
    }

    /// The lines at an address; `None` where that is not known yet.
    pub(crate) fn lines(&self, address: u64) -> Option<&Arc<[ResolvedFrame]>> {
        self.lines.get(&address)
    }

    /// Whether the lines of so many more places are kept.
    pub(crate) fn has_room_for_lines(&self, places: usize) -> bool {
        self.lines.len() + places <= MOST_ANSWERS
    }

    pub(crate) fn set_lines(&mut self, address: u64, lines: Arc<[ResolvedFrame]>) {
        if self.lines.len() < MOST_ANSWERS {
            self.is_changed = true;
            self.lines.insert(address, lines);
        }
    }

    /// Writes what was added, where that can be done.
    pub(crate) fn save(&mut self, cache: &Path, build_id: &[u8]) {
        if std::mem::take(&mut self.is_changed) {
            folder::write(cache, build_id, &bytes::encode(self));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> FileAnswers {
        let mut kept = FileAnswers::default();
        kept.set_function(0x1234, Some(NamedFunction { start: 0x1200, name: "ns::f".into() }));
        kept.set_function(0x99, None);
        let frame = |function: &str, line| ResolvedFrame {
            function: Some(function.into()),
            offset: None,
            file: Some("/x/a.c".into()),
            line,
        };
        kept.set_lines(0x1234, [frame("inner", Some(7)), frame("ns::f", None)].into());
        kept
    }

    #[test]
    fn what_was_kept_comes_back() {
        let cache = tempfile::tempdir().unwrap();
        let id = [0xab; 20];
        assert!(FileAnswers::load(cache.path(), &id).function(0x99).is_none());
        some().save(cache.path(), &id);
        let back = FileAnswers::load(cache.path(), &id);
        assert_eq!(back.function(0x1234).unwrap().unwrap(), &NamedFunction { start: 0x1200, name: "ns::f".into() });
        assert_eq!((back.function(0x99), back.function(1)), (Some(None), None));
        assert_eq!(back.lines(0x1234), some().lines(0x1234));
        // Nothing of another file.
        assert!(FileAnswers::load(cache.path(), &[0xac; 20]).function(0x99).is_none());
    }

    #[test]
    fn what_could_tell_more_now_makes_it_old() {
        let cache = tempfile::tempdir().unwrap();
        let (id, debug) = ([1; 20], cache.path().join("x.debug"));
        let load = || FileAnswers::load(cache.path(), &id).function(0x99).is_some();
        let mut kept = some();
        kept.asked([debug.clone()]);
        kept.save(cache.path(), &id);
        assert!(load());
        std::fs::write(&debug, "more").unwrap();
        assert!(!load(), "the file with debugging information came later");
        let mut kept = some();
        kept.asked([debug.clone()]);
        kept.save(cache.path(), &id);
        assert!(load());
        std::fs::remove_file(&debug).unwrap();
        assert!(load(), "what it knew is known");
    }

    #[test]
    fn broken_files_are_none_and_nothing_fails_without_a_folder() {
        let cache = tempfile::tempdir().unwrap();
        let id = [7; 20];
        some().save(cache.path(), &id);
        let file = folder::path(cache.path(), &id).unwrap();
        let good = std::fs::read(&file).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x11;
            assert!(bytes::decode(&bad).is_none(), "byte {at}");
            assert!(bytes::decode(&good[..at]).is_none(), "cut at {at}");
        }
        some().save(Path::new("/proc/none"), &id);
        some().save(cache.path(), &[]);
        assert!(FileAnswers::load(Path::new("/proc/none"), &id).function(0x99).is_none());
    }
}
