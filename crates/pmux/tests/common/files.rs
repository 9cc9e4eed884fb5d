//! Meeting points between a test and the programs that it starts.
//!
//! **Invariant:** nobody waits for a time to pass: everybody waits for a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// A folder in which files say how far somebody is.
pub struct Door {
    folder: PathBuf,
}

impl Door {
    pub fn at(folder: impl AsRef<Path>) -> Self {
        Self { folder: folder.as_ref().to_owned() }
    }

    /// Says that something has happened.
    pub fn say(&self, what: &str) {
        let draft = self.folder.join(format!(".{what}.{}", std::process::id()));
        std::fs::write(&draft, std::process::id().to_string()).unwrap();
        std::fs::rename(draft, self.folder.join(what)).unwrap();
    }

    /// Says that this process is there.
    pub fn arrive(&self) {
        self.say("here");
    }

    /// Waits until something has happened. A folder that is gone means that the test has failed: the program ends.
    pub fn wait_for(&self, what: &str) {
        while !self.folder.join(what).exists() {
            if !self.folder.exists() {
                std::process::exit(3);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The process that has arrived.
    pub fn visitor(&self) -> i32 {
        self.wait_for("here");
        std::fs::read_to_string(self.folder.join("here")).unwrap().parse().unwrap()
    }
}
