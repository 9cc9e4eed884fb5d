//! Meeting points between a test and the programs that it starts.

use crate::PATIENCE;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A folder in which files say how far a program is. That of [`SyncDir::new`] goes away with the test.
pub struct SyncDir {
    folder: PathBuf,
    _own: Option<tempfile::TempDir>,
}

impl Default for SyncDir {
    fn default() -> Self {
        Self::new()
    }
}

impl SyncDir {
    /// A new folder.
    pub fn new() -> Self {
        let own = tempfile::tempdir().unwrap();
        Self { folder: own.path().to_owned(), _own: Some(own) }
    }

    /// A folder that is there already.
    pub fn at(folder: impl AsRef<Path>) -> Self {
        Self { folder: folder.as_ref().to_owned(), _own: None }
    }

    /// The file of this name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The same as text, for a command line.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Says that something has happened. A reader sees no file, or all of it: the number of this process, and a line feed.
    pub fn post(&self, what: &str) {
        let draft = self.folder.join(format!(".{what}.{}", std::process::id()));
        std::fs::write(&draft, format!("{}\n", std::process::id())).unwrap();
        std::fs::rename(draft, self.folder.join(what)).unwrap();
    }

    /// Says that this process is there.
    pub fn arrive(&self) {
        self.post("here");
    }

    /// Waits until something has happened. A folder that is gone means that the test has failed: the program ends. So it does when
    /// it has waited longer than any test.
    pub fn wait_for(&self, what: &str) {
        self.wait_for_any(&[what]);
    }

    /// The same of the first of several things.
    pub fn wait_for_any(&self, what: &[&str]) {
        let began = Instant::now();
        while !self.look(what) {
            if began.elapsed() > 2 * PATIENCE {
                std::process::exit(3);
            }
        }
    }

    /// Looks once whether one of several things has happened, and sleeps if none has.
    pub fn look(&self, what: &[&str]) -> bool {
        let has_happened = what.iter().any(|what| self.folder.join(what).exists());
        if !has_happened {
            if !self.folder.exists() {
                std::process::exit(3);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        has_happened
    }

    /// Waits until a line has been written to a file, and returns it.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        let whole = || std::fs::read_to_string(self.path(name)).ok().filter(|text| text.ends_with('\n'));
        crate::eventually(name, whole).trim_end().to_owned()
    }

    /// The process that has arrived.
    pub fn arrived_pid(&self) -> i32 {
        self.read("here").parse().unwrap()
    }
}
