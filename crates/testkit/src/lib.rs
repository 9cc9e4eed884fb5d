//! What the integration tests of several crates share.
//!
//! Read first: [`needs`], by which a test skips; [`lock`], by which it has a part of the machine for itself; [`own_process`] and
//! [`role`], by which it runs in a process of its own; [`SyncDir`], through which it and its programs wait for each other.
//!
//! **Invariant:** nothing here waits for a time to pass, but for an event.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

mod cgroup;
pub mod hotplug;
mod late_hits;
mod own_process;
mod programs;
mod reaper;
pub mod role;
mod run;
mod signals;
mod sync_dir;

pub use cgroup::Cgroup;
pub use late_hits::{late_hits, survive_late_hits};
pub use own_process::{own_process, own_process_with};
pub use programs::{
    Killed, commands_are_programs, copy_of, eventually, folder_with, in_path, is_installed, kernel_events, lives,
    paranoid, program, put, set_mode, signal, state_of, with_environment,
};
pub use reaper::marked;
pub use run::{CommandResult, Running, Start, start};
pub use sync_dir::SyncDir;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// No test waits longer for an event.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The debug registers of all CPUs. A test that opens breakpoints, or says how many are free, holds this lock.
pub const DEBUG_REGISTERS: &str = "breakpoints";
/// Which CPUs are online.
pub const HOTPLUG: &str = "hotplug";

/// Sets a flag when it is dropped: what scoped threads wait for is set by a test that fails, too, or its failure would never be
/// seen, because the scope waits for them.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The pages for people below the root of the project: its own, those of the book, of the lab and of the fuzzers.
pub fn pages(root: &Path) -> Vec<PathBuf> {
    let in_folder = |folder: &str| std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let all = ["", "docs", "lab", "fuzz"].into_iter().flat_map(in_folder);
    all.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

/// Waits until no other test, of this process or another, holds the part of the machine that `name` stands for. The lock is held
/// until the file is dropped; the kernel drops it with the process.
pub fn lock(name: &str) -> File {
    let path = std::env::temp_dir().join(format!("pmux-test-{name}.lock"));
    // Another user may have made it.
    let file = File::open(&path).or_else(|_| File::create(&path)).unwrap();
    file.lock().unwrap();
    file
}

/// The debug registers, for a test that opens breakpoints itself; `None` where the test has run in a process of its own, as
/// [`own_process`] says. In one process with others, a fork of another thread keeps an event open for a while that was closed here.
#[track_caller]
pub fn debug_registers() -> Option<File> {
    own_process().then(|| {
        survive_late_hits();
        lock(DEBUG_REGISTERS)
    })
}

/// Whether a test may go on. If not, the skip is printed; where `PMUX_REQUIRE` lists `class`, it is a failure.
pub fn needs(class: &str, what: &str, there: bool) -> bool {
    if there {
        return true;
    }
    let required = std::env::var("PMUX_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == class), "PMUX_REQUIRE={required}, but here is no {what}");
    println!("skipped: needs {what}");
    false
}

/// Ends a test that can't run here: what was asked for has printed why, as [`needs`] does.
#[macro_export]
macro_rules! skip_unless {
    ($there:expr) => {
        if !$there {
            return;
        }
    };
}

#[cfg(test)]
mod test_roles {
    use super::*;
    use std::process::Command;

    pub(super) fn play(name: &str, arguments: &str) {
        match name {
            // leaves-a-sleeper:DOOR, by a shell that stays; and stays itself
            "leaves-a-sleeper" => {
                let sync_dir = SyncDir::at(arguments);
                let line = format!("sleep 1000 & echo $! >'{}'; wait", sync_dir.text("sleeper"));
                marked(&mut Command::new("sh")).args(["-c", &line]).status().unwrap();
            }
            // interrupts-itself: a shell that sends itself $SIGNAL
            "interrupts-itself" => {
                let mut shell = Command::new("sh");
                let status = marked(&mut shell).args(["-c", "kill -s $SIGNAL $$; exit 0"]).status().unwrap();
                println!("{}", if status.success() { "it lives on" } else { "it was killed" });
            }
            _ => panic!("there is no role {name}"),
        }
    }
}

#[cfg(test)]
#[test]
fn role() {
    role::play_if_asked(test_roles::play);
}
