//! Several recordings of one machine, read as one: which, in what order, and what they share.
//!
//! What it is: [`in_order`] looks at what stands before the records; [`Overlap`] knows what was read of earlier recordings. A flight
//! recorder's snapshots reach back as far as its rings, so that two of them may hold the same records. Read first: [`Overlap`].
//!
//! **Invariant:** each record counts once. A recording that can't be read is left out, and that is said.

use super::error::ProfileError;
use super::head::Head;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The files of a folder with such names, in the order of these.
fn files(folder: &Path, is_meant: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, ProfileError> {
    let entries = std::fs::read_dir(folder).map_err(|error| ProfileError::Open(folder.to_owned(), error))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| is_meant(&name.to_string_lossy())) && path.is_file());
    crate::order::sort(&mut paths);
    Ok(paths)
}

pub(super) fn recordings(folder: &Path) -> Result<Vec<PathBuf>, ProfileError> {
    // What begins with a point is being written.
    let paths = files(folder, |name| name.ends_with(".data") && !name.starts_with('.'))?;
    if paths.is_empty() { Err(ProfileError::Folder(folder.to_owned())) } else { Ok(paths) }
}

/// The file that describes a recording of `perf record --threads` or `--kcore`, and those of its threads beside it; `None` of a folder
/// that is none.
///
/// # Errors
/// [`ProfileError::Open`].
pub(super) fn parts(folder: &Path) -> Result<Option<(PathBuf, Vec<PathBuf>)>, ProfileError> {
    let first = folder.join("data");
    if !first.is_file() {
        return Ok(None);
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let beside = files(folder, |name| name.strip_prefix("data.").is_some_and(is_number))?;
    Ok(Some((first, beside)))
}

/// A clock that is set anew makes so much of a difference, a machine that is started anew makes more.
const SETTING_NS: i128 = 10_000_000_000;

/// What tells where a recording belongs among others.
struct RecordingInfo {
    path: PathBuf,
    /// The first and the last sample, in the recording's clock.
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// The first one, since 1970 where the recording says what time of day it was.
    day_ns: Option<i128>,
    host: Option<String>,
}

/// The recordings in the order of time, and what is to be said of those that are left out.
pub(super) fn in_order(folder: &Path, paths: Vec<PathBuf>) -> Result<(Vec<PathBuf>, Vec<String>), ProfileError> {
    let (all, notes) = seen(folder, paths)?;
    Ok((all.into_iter().map(|seen| seen.path).collect(), notes))
}

/// The recordings of a folder, each by itself but for those that hold the same time: the parts of one stand together.
///
/// # Errors
/// As [`super::Input::open`].
pub fn apart(folder: &Path) -> Result<Vec<Vec<PathBuf>>, ProfileError> {
    if parts(folder)?.is_some() {
        return Ok(vec![vec![folder.to_owned()]]);
    }
    let mut groups: Vec<Vec<PathBuf>> = Vec::new();
    let mut ended_ns = None;
    for RecordingInfo { path, first_ns, last_ns, .. } in seen(folder, recordings(folder)?)?.0 {
        let goes_on = first_ns.zip(ended_ns).is_some_and(|(first, ended)| first <= ended);
        match groups.last_mut().filter(|_| goes_on) {
            Some(group) => group.push(path),
            None => groups.push(vec![path]),
        }
        ended_ns = ended_ns.max(last_ns);
    }
    Ok(groups)
}

fn seen(folder: &Path, paths: Vec<PathBuf>) -> Result<(Vec<RecordingInfo>, Vec<String>), ProfileError> {
    let (mut all, mut notes, mut last) = (Vec::new(), Vec::new(), None);
    for path in paths {
        let head = File::open(&path).map_err(|error| ProfileError::Open(path.clone(), error));
        match head.and_then(|file| Head::of_any(&file)) {
            Ok(Head { about, .. }) => {
                let (first_ns, last_ns) = about.sampled_ns.unzip();
                let since_1970 = about.clock_moment_ns.map(|(day, clock)| i128::from(day) - i128::from(clock));
                let day_ns = first_ns.zip(since_1970).map(|(first, since)| i128::from(first) + since);
                all.push(RecordingInfo { path, first_ns, last_ns, day_ns, host: about.host });
            }
            // Its recorder may have removed it for a newer one.
            Err(ProfileError::Open(path, error)) if error.kind() == io::ErrorKind::NotFound => {
                notes.push(format!("{} has gone meanwhile", path.display()));
            }
            Err(error) => {
                let (name, why) = (path.display().to_string(), error.to_string());
                let why = why.strip_prefix(&format!("{name}: ")).unwrap_or(&why).to_owned();
                notes.push(format!("{name} is left out: {why}"));
                last = Some(error);
            }
        }
    }
    if all.is_empty() {
        return Err(last.unwrap_or_else(|| ProfileError::Folder(folder.to_owned())));
    }
    // Names of snapshots are times: they decide where nothing else does.
    crate::order::sort_by_key(&mut all, |seen| (seen.first_ns, seen.last_ns));
    for pair in all.windows(2) {
        let [before, after] = pair else { continue };
        let is_backward = before.day_ns.zip(after.day_ns).is_some_and(|(before, after)| after < before - SETTING_NS);
        if before.host != after.host || is_backward {
            return Err(ProfileError::Machines(before.path.clone(), after.path.clone()));
        }
    }
    Ok((all, notes))
}

/// What was read of earlier recordings.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    /// When the last record of each id was, in what is being read, and in all before it.
    last_ns: HashMap<u64, u64>,
    before_ns: HashMap<u64, u64>,
    /// The last one of all before.
    ended_ns: u64,
    /// What stands for the time of a record that tells how things stood; `None` while those aren't taken.
    state_ns: Option<u64>,
}

impl Overlap {
    /// Whether a recording whose first sample was then holds what was read last, too.
    pub(super) fn goes_on(&self, first_ns: Option<u64>) -> bool {
        let ended_ns = self.last_ns.values().copied().max().unwrap_or(0).max(self.ended_ns);
        first_ns.is_some_and(|first| first <= ended_ns)
    }

    /// Another recording begins, whose first sample was then.
    pub(super) fn begin(&mut self, first_ns: Option<u64>) {
        for (id, last_ns) in self.last_ns.drain() {
            let known = self.before_ns.entry(id).or_default();
            *known = last_ns.max(*known);
            self.ended_ns = self.ended_ns.max(last_ns);
        }
        // Where it goes on from what is known, how things stood then is older than what is known.
        self.state_ns = first_ns.filter(|first| *first > self.ended_ns);
    }

    /// When a record of this id and time is to be taken in; `None` if it was before.
    pub(super) fn time(&mut self, id: u64, time_ns: u64) -> Option<u64> {
        if time_ns == 0 {
            return if self.before_ns.is_empty() { Some(0) } else { self.state_ns };
        }
        if self.before_ns.get(&id).is_some_and(|last| time_ns <= *last) {
            return None;
        }
        // They may come a little out of order.
        let last = self.last_ns.entry(id).or_default();
        *last = time_ns.max(*last);
        Some(time_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_have_counts_once() {
        let mut overlap = Overlap::default();
        overlap.begin(Some(10));
        assert_eq!(overlap.time(0, 0), Some(0), "how things stood at first");
        assert_eq!([10, 12, 11, 20].map(|time| overlap.time(7, time).is_some()), [true; 4]);
        assert!(overlap.time(8, 15).is_some());
        assert!(overlap.goes_on(Some(20)) && !overlap.goes_on(Some(21)) && !overlap.goes_on(None));
        overlap.begin(Some(18));
        assert_eq!(overlap.time(0, 0), None, "it goes on from what is known");
        assert_eq!([18, 20, 21].map(|time| overlap.time(7, time).is_some()), [false, false, true]);
        assert_eq!([15, 16].map(|time| overlap.time(8, time).is_some()), [false, true], "each has its own end");
        overlap.begin(Some(40));
        assert_eq!(overlap.time(0, 0), Some(40), "what was in between is not known");
        assert_eq!(overlap.time(7, 21), None);
        assert_eq!(overlap.time(7, 40), Some(40));
    }

    #[test]
    fn a_folder_without_recordings_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(matches!(recordings(folder), Err(ProfileError::Folder(_))));
        std::fs::write(folder.join(".draft.data"), "x").unwrap();
        assert!(matches!(recordings(folder), Err(ProfileError::Folder(_))));
        std::fs::write(folder.join("a.data"), "not a recording at all").unwrap();
        let broken = recordings(folder).and_then(|paths| in_order(folder, paths));
        assert!(matches!(broken, Err(ProfileError::NoRecording)), "{broken:?}");
    }
}
