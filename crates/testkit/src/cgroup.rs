//! Control groups that go away with the test.

use crate::{needs, state_of};
use std::path::PathBuf;
use std::time::Duration;

/// A folder of a hierarchy of control groups.
pub struct Cgroup {
    /// Where it is.
    pub path: PathBuf,
}

impl Cgroup {
    /// One of version 2 for this test; `None`, and a skip, where this user may not make it.
    pub fn make(name: &str) -> Option<Self> {
        Self::below_root(mounted("cgroup2", None), name)
    }

    /// As [`Cgroup::make`], in the hierarchy that carries events: that of version 1 where it is mounted.
    pub fn of_events(name: &str) -> Option<Self> {
        Self::below_root(mounted("cgroup", Some("perf_event")).or_else(|| mounted("cgroup2", None)), name)
    }

    fn below_root(root: Option<PathBuf>, name: &str) -> Option<Self> {
        let path = root.map(|root| root.join(format!("pmux-test-{}-{name}", std::process::id())));
        let made = path.filter(|path| std::fs::create_dir(path).is_ok()).map(|path| Self { path });
        needs("root", "a cgroup hierarchy to write to", made.is_some());
        made
    }

    /// One in it.
    pub fn below(&self, name: &str) -> Self {
        let path = self.path.join(name);
        std::fs::create_dir(&path).unwrap();
        Self { path }
    }

    /// The folder's name.
    pub fn name(&self) -> &str {
        self.path.file_name().unwrap().to_str().unwrap()
    }

    /// Moves a task into it that is about to sleep. One that is moved while it runs takes along what it has counted since it was
    /// switched to.
    pub fn take_in(&self, pid: i32) {
        for _ in 0..10_000 {
            if state_of(pid) == Some('S') {
                break;
            }
            std::thread::yield_now();
        }
        std::fs::write(self.path.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Takes it away as soon as its last process is out.
    pub fn remove(&self) {
        let gone = (0..2000).any(|_| {
            std::fs::remove_dir(&self.path).is_ok() || {
                std::thread::sleep(Duration::from_millis(2));
                !self.path.exists()
            }
        });
        assert!(gone, "{} stays", self.path.display());
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if self.path.exists() && !std::thread::panicking() {
            self.remove();
        }
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Where a hierarchy of this kind, with this option, is mounted.
fn mounted(kind: &str, option: Option<&str>) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().find_map(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        let is = fields[2] == kind && option.is_none_or(|option| fields[3].split(',').any(|word| word == option));
        is.then(|| fields[1].into())
    })
}
