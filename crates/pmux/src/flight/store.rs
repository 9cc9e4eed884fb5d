//! The directory of snapshots.
//!
//! What it is: a snapshot is two files, `NAME.data` and `NAME.json`. Both are written under names that begin with a point and end in
//! `.tmp`, made durable, and then renamed, the one with the records last: a reader that sees `NAME.data` has all of it, and its manifest.
//! A recorder that is killed on the way leaves a temporary file that no process has locked; the next recorder removes it. Read first:
//! [`Store::draft`].
//!
//! **Invariant:** only files of these names are touched, and no draft that is being written.

use super::Limits;
use crate::date::{Date, date};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const PREFIX: &str = "flight-";
const DATA: &str = "data";
const MANIFEST: &str = "json";
const DRAFT: &str = ".tmp";
const MOST_NAMES: u64 = 1000;

#[derive(Clone, Debug)]
pub(super) struct Store {
    folder: PathBuf,
    limits: Limits,
}

/// A snapshot that is being written. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Draft {
    folder: PathBuf,
    name: String,
    /// For the records.
    pub(super) data: File,
    kept: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StoredSnapshot {
    pub(super) data: PathBuf,
    pub(super) manifest: PathBuf,
    /// Bytes of both.
    pub(super) bytes: u64,
}

fn file(folder: &Path, name: &str, kind: &str) -> PathBuf {
    folder.join(format!("{name}.{kind}"))
}

fn draft_of(folder: &Path, name: &str, kind: &str) -> PathBuf {
    folder.join(format!(".{name}.{kind}{DRAFT}"))
}

/// A name that says when it was, in UTC, to the millisecond, and sorts by that.
fn name_of(since_1970_ms: u64) -> String {
    let (seconds, ms) = (since_1970_ms / 1000, since_1970_ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let Date { year, month, day } = date(i128::from(days));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{PREFIX}{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}-{ms:03}")
}

fn create(path: &Path) -> io::Result<File> {
    // What was recorded is private to this user. Ids are read back.
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    file.try_lock().map_err(io::Error::from)?;
    Ok(file)
}

/// Whether no process is writing a draft.
fn is_left_over(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

impl Store {
    /// Makes the directory where it isn't there, sees that it can be written to, and removes what was left over.
    pub(super) fn open(folder: &Path, limits: Limits) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let store = Self { folder: folder.to_owned(), limits };
        store.clean()?;
        let probe = draft_of(folder, &format!("{PREFIX}{}", std::process::id()), "probe");
        // One of a process that had this number is no hindrance.
        let _ = fs::remove_file(&probe);
        create(&probe).and_then(|mut file| file.write_all(b"x"))?;
        fs::remove_file(&probe)?;
        Ok(store)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.collect())
    }

    /// Removes drafts that no process is writing, and manifests whose records never came.
    fn clean(&self) -> io::Result<()> {
        for name in self.names()? {
            let path = self.folder.join(&name);
            let is_draft = name.starts_with(&format!(".{PREFIX}")) && name.ends_with(DRAFT);
            let manifest_of = name.strip_suffix(&format!(".{MANIFEST}")).filter(|name| name.starts_with(PREFIX));
            let is_over = match manifest_of {
                _ if is_draft => is_left_over(&path),
                Some(name) => {
                    // In this order: a draft that is gone from here has become the file.
                    let draft = draft_of(&self.folder, name, DATA);
                    (!draft.exists() || is_left_over(&draft)) && !file(&self.folder, name, DATA).exists()
                }
                None => false,
            };
            if is_over {
                // Another recorder may have been quicker.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    pub(super) fn draft(&self, since_1970_ms: u64) -> io::Result<Draft> {
        let mut refused = io::Error::from(io::ErrorKind::AlreadyExists);
        for later in 0..MOST_NAMES {
            let name = name_of(since_1970_ms + later);
            if file(&self.folder, &name, DATA).exists() || file(&self.folder, &name, MANIFEST).exists() {
                continue;
            }
            match create(&draft_of(&self.folder, &name, DATA)) {
                Ok(data) => return Ok(Draft { folder: self.folder.clone(), name, data, kept: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => refused = error,
                Err(error) => return Err(error),
            }
        }
        Err(refused)
    }

    /// All snapshots that are there, the oldest first.
    fn snapshots(&self) -> io::Result<Vec<StoredSnapshot>> {
        let mut names: Vec<String> = self.names()?;
        names.retain(|name| name.starts_with(PREFIX));
        crate::order::sort(&mut names);
        let of = |name: &String| {
            let name = name.strip_suffix(&format!(".{DATA}"))?;
            let (data, manifest) = (file(&self.folder, name, DATA), file(&self.folder, name, MANIFEST));
            let bytes = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
            Some(StoredSnapshot { bytes: bytes(&data) + bytes(&manifest), data, manifest })
        };
        Ok(names.iter().filter_map(of).collect())
    }

    /// Removes the oldest ones that are too many or too much, but never this one; answers which.
    pub(super) fn tidy(&self, newest: &Path) -> Vec<PathBuf> {
        let mut all = self.snapshots().unwrap_or_default();
        // The clock may have been set back: it is the newest all the same.
        crate::order::sort_by_key(&mut all, |kept| kept.data == newest);
        let mut count = all.len();
        let mut bytes: u64 = all.iter().map(|kept| kept.bytes).sum();
        let mut gone = Vec::new();
        for kept in all.into_iter().filter(|kept| kept.data != newest) {
            let too_many = self.limits.max_snapshots.is_some_and(|most| count > most as usize);
            let too_much = self.limits.max_disk_bytes.is_some_and(|most| bytes > most);
            if !too_many && !too_much {
                break;
            }
            // The records first: a manifest alone is cleaned up later.
            if fs::remove_file(&kept.data).is_ok() {
                let _ = fs::remove_file(&kept.manifest);
                gone.push(kept.data);
            }
            count -= 1;
            bytes -= kept.bytes;
        }
        gone
    }
}

impl Draft {
    /// What the file with the records will be called.
    pub(super) fn name(&self) -> String {
        format!("{}.{DATA}", self.name)
    }

    /// Makes it durable, with this manifest, and gives both their names.
    pub(super) fn keep(mut self, manifest: &str) -> io::Result<StoredSnapshot> {
        let draft = draft_of(&self.folder, &self.name, MANIFEST);
        let mut file_of_manifest = create(&draft)?;
        file_of_manifest.write_all(manifest.as_bytes())?;
        file_of_manifest.sync_all()?;
        self.data.sync_all()?;
        let kept = StoredSnapshot {
            data: file(&self.folder, &self.name, DATA),
            manifest: file(&self.folder, &self.name, MANIFEST),
            bytes: self.data.metadata()?.len() + manifest.len() as u64,
        };
        fs::rename(&draft, &kept.manifest)?;
        if let Err(error) = fs::rename(draft_of(&self.folder, &self.name, DATA), &kept.data) {
            let _ = fs::remove_file(&kept.manifest);
            return Err(error);
        }
        self.kept = true;
        File::open(&self.folder)?.sync_all()?;
        Ok(kept)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept {
            for kind in [DATA, MANIFEST] {
                // There may be none.
                let _ = fs::remove_file(draft_of(&self.folder, &self.name, kind));
            }
        }
    }
}

/// Whether a file is a snapshot's records.
#[must_use]
pub fn is_snapshot(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.starts_with(PREFIX) && path.extension() == Some(OsStr::new(DATA))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn names_are_times() {
        assert_eq!(name_of(0), "flight-19700101-000000-000");
        assert_eq!(name_of(1_767_225_599_999), "flight-20251231-235959-999");
    }

    #[test]
    fn left_overs_go_and_what_is_being_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), Limits::default()).unwrap();
        let writing = store.draft(1000).unwrap();
        let same = store.draft(1000).unwrap();
        assert_ne!(writing.name, same.name, "two at the same time have two names");
        for name in
            [".flight-x.data.tmp", ".flight-x.json.tmp", "flight-y.json", "flight-z.json", "flight-z.data", "mine.json"]
        {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        Store::open(folder.path(), Limits::default()).unwrap();
        let kept = [
            ".flight-19700101-000001-000.data.tmp",
            ".flight-19700101-000001-001.data.tmp",
            "flight-z.data",
            "flight-z.json",
            "mine.json",
        ];
        assert_eq!(names(folder.path()), kept);
        drop(same);
        let kept = writing.keep("{}").unwrap();
        assert!(is_snapshot(&kept.data) && !is_snapshot(&kept.manifest));
        assert!(names(folder.path()).iter().all(|name| !name.ends_with(".tmp")));
    }

    #[test]
    fn the_oldest_go_until_it_is_little_enough() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { max_snapshots: Some(4), max_disk_bytes: Some(36) };
        let store = Store::open(folder.path(), limits).unwrap();
        let mut all = Vec::new();
        for second in 1..=6 {
            let mut draft = store.draft(second * 1000).unwrap();
            draft.data.write_all(&[0; 10]).unwrap();
            let kept = draft.keep("{}").unwrap();
            let gone = store.tidy(&kept.data);
            all.push(kept.data);
            // Four would be 48 bytes.
            let expected = if second > 3 { vec![all[second as usize - 4].clone()] } else { Vec::new() };
            assert_eq!(gone, expected, "after {second}");
        }
        // The clock was set back: the newest has the oldest name.
        let kept = store.draft(0).unwrap().keep("{}").unwrap();
        assert!(!store.tidy(&kept.data).contains(&kept.data) && kept.data.exists());
    }
}
