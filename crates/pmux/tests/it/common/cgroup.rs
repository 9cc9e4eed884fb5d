//! Cgroups of one's own.

use super::needs;
use pmux::serving::Proc;
use pmux::{Command, Session};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A folder of cgroups below the second version's root, removed when dropped.
pub struct Cgroup(pub PathBuf);

impl Cgroup {
    /// One for this test; `None`, and a skip, where nobody may make it.
    pub fn make(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let root = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let root = root.into_iter().find(|fields| fields[2] == "cgroup2").map(|fields| fields[1].to_owned());
        let folder = root.map(|root| Path::new(&root).join(format!("pmux-test-{}-{name}", std::process::id())));
        let made = folder.filter(|folder| std::fs::create_dir(folder).is_ok()).map(Self);
        needs("root", "a cgroup hierarchy of version 2 to write to", made.is_some());
        made
    }

    /// One in it.
    pub fn below(&self, name: &str) -> Self {
        let folder = self.0.join(name);
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    /// The folder's name.
    pub fn name(&self) -> &str {
        self.0.file_name().unwrap().to_str().unwrap()
    }

    /// Runs a role in it, to the end.
    pub fn run(&self, session: &Session, words: &str) {
        let command = Command::hold(super::role::words(words)).unwrap();
        self.take_in(command.pid());
        let status = command.release(&[]).unwrap().wait(session).unwrap().status;
        assert!(status.success(), "{words}: {status:?}");
    }

    /// Moves a task into it that is about to sleep. One that is moved while it runs takes along what it has counted since it was
    /// switched to.
    pub fn take_in(&self, pid: i32) {
        let proc = Proc::system();
        for _ in 0..10_000 {
            if proc.stat(pid).unwrap().state == 'S' {
                break;
            }
            std::thread::yield_now();
        }
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Takes it away as soon as its last process is out.
    pub fn remove(&self) {
        let gone = (0..2000).any(|_| {
            std::fs::remove_dir(&self.0).is_ok() || {
                std::thread::sleep(Duration::from_millis(2));
                !self.0.exists()
            }
        });
        assert!(gone, "{} stays", self.0.display());
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if self.0.exists() && !std::thread::panicking() {
            self.remove();
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}
