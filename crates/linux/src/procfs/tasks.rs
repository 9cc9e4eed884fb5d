//! Which tasks there are, and how they belong together.
//!
//! **Invariant:** a task that ends while a list is made is left out; only the one asked about can be [`ProcError::Gone`].

use std::collections::BTreeSet;
use std::fs::ReadDir;
use std::os::unix::fs::MetadataExt as _;

use super::{Proc, ProcError};

impl Proc {
    /// Whether a process or thread is there, an ended one that no process has waited for included.
    #[must_use]
    pub fn exists(&self, id: i32) -> bool {
        id > 0 && self.root.join(id.to_string()).is_dir()
    }

    /// Lists the threads of a process, sorted. Any thread of it may be given.
    ///
    /// # Errors
    /// [`ProcError::Gone`] if there is no such task, [`ProcError::Denied`] if it is not ours to see.
    pub fn threads_of(&self, pid: i32) -> Result<Vec<i32>, ProcError> {
        let path = self.task_path(pid, "task");
        let entries = std::fs::read_dir(&path).map_err(|error| self.task_error(pid, path, &error))?;
        let mut threads = numbers(entries);
        if threads.is_empty() {
            return Err(ProcError::Gone { id: pid });
        }
        threads.sort_unstable();
        Ok(threads)
    }

    /// The numbers of the files that a task has open.
    ///
    /// # Errors
    /// [`ProcError::Gone`], [`ProcError::Denied`].
    pub fn open_files(&self, tid: i32) -> Result<BTreeSet<u32>, ProcError> {
        let path = self.task_path(tid, "fd");
        let entries = std::fs::read_dir(&path).map_err(|error| self.task_error(tid, path, &error))?;
        Ok(numbers(entries).into_iter().filter_map(|number| number.try_into().ok()).collect())
    }

    /// The device and the inode of a file that a task has open; `None` where it has none of that number.
    #[must_use]
    pub fn open_file(&self, tid: i32, number: i32) -> Option<(u64, u64)> {
        std::fs::metadata(self.task_path(tid, &format!("fd/{number}"))).ok().map(|file| (file.dev(), file.ino()))
    }

    /// In which namespace of a kind (`pid`, `user`) a task is: the inode of its file.
    #[must_use]
    pub fn namespace(&self, tid: i32, kind: &str) -> Option<u64> {
        std::fs::metadata(self.task_path(tid, &format!("ns/{kind}"))).ok().map(|file| file.ino())
    }

    /// Whether this process is in the first PID namespace: then programs in the kernel know tasks by the numbers that they have here.
    #[must_use]
    pub fn is_in_first_pid_namespace(&self) -> bool {
        // `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
        const FIRST: u64 = 0xefff_fffc;
        self.namespace(std::process::id().cast_signed(), "pid") == Some(FIRST)
    }

    /// The task that has a number in the PID namespace of another task, as it is numbered here; `None` where there is none. Its own process
    /// is looked at first, then all others of that namespace.
    #[must_use]
    pub fn task_in_namespace_of(&self, other: i32, number: i32) -> Option<i32> {
        let namespace = self.namespace(other, "pid")?;
        let is_there = |task: &i32| self.namespace(*task, "pid") == Some(namespace);
        let is_it = |task: &i32| self.status(*task).is_ok_and(|status| status.innermost == number);
        let among = |process: i32| {
            let threads = self.threads_of(process).ok()?;
            threads.into_iter().filter(is_it).find(is_there)
        };
        let all = self.processes().unwrap_or_default().into_iter();
        among(other).or_else(|| all.filter(is_there).find_map(among))
    }

    /// Whether a task may look into another one as `ptrace(2)` may: both have the same users, groups and user namespace, the other one has no
    /// capabilities that it lacks, and may be dumped. The same process may always.
    #[must_use]
    pub fn may_look_into(&self, tid: i32, other: i32) -> bool {
        let (Ok(one), Ok(its)) = (self.status(tid), self.status(other)) else { return false };
        let namespace = |tid: i32| self.namespace(tid, "user");
        let same_users = its.users.are_all(one.users.real) && its.groups.are_all(one.groups.real);
        let no_more = its.permitted_capabilities & !one.permitted_capabilities == 0;
        let same_namespace = namespace(tid).is_some() && namespace(tid) == namespace(other);
        // What root's files say is no answer for root, who gains nothing by an exec.
        let dumpable = one.users.real == 0 || self.is_dumpable(other, one.users.real);
        one.process == its.process || same_users && no_more && same_namespace && dumpable
    }

    /// Whether a task loses a file when it executes a program; `false` where it has none of that number.
    #[must_use]
    pub fn closes_on_exec(&self, tid: i32, number: u32) -> bool {
        let text = self.read_task(tid, &format!("fdinfo/{number}")).unwrap_or_default();
        let flags = text.lines().find_map(|line| i32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
        flags.is_some_and(|flags| flags & libc::O_CLOEXEC != 0)
    }

    /// How many threads a process has now, without a look at each. Any thread of it may be given.
    ///
    /// # Errors
    /// [`ProcError::Gone`] if there is no such task, [`ProcError::Denied`] if it is not ours to see.
    pub fn thread_count(&self, pid: i32) -> Result<u64, ProcError> {
        let path = self.task_path(pid, "task");
        let data = std::fs::metadata(&path).map_err(|error| self.task_error(pid, path, &error))?;
        // Its own two links, and one for each folder in it.
        Ok(data.nlink().saturating_sub(2))
    }

    /// The number that was given to the newest task of our namespace; they are given in ascending order, and begin anew at the
    /// end. `None` where the kernel does not tell (`CONFIG_CHECKPOINT_RESTORE`).
    #[must_use]
    pub fn newest_task(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.root.join("sys/kernel/ns_last_pid")).ok()?;
        text.trim_ascii().parse().ok()
    }

    /// Lists every process of the machine that is visible here, sorted.
    ///
    /// # Errors
    /// [`ProcError::Unsupported`] without a mounted `/proc`.
    pub fn processes(&self) -> Result<Vec<i32>, ProcError> {
        let entries = std::fs::read_dir(&self.root);
        let mut all = numbers(entries.map_err(|_| ProcError::Unsupported { path: self.root.clone() })?);
        all.sort_unstable();
        Ok(all)
    }

    /// Returns the name of a task.
    ///
    /// # Errors
    /// [`ProcError::Gone`].
    pub fn comm(&self, tid: i32) -> Result<String, ProcError> {
        let mut name = self.read_task(tid, "comm")?;
        if name.ends_with('\n') {
            name.pop();
        }
        Ok(name)
    }

    /// Returns the cgroup of version 2 that a task is in, as a path from the root; `None` where there is no such hierarchy.
    ///
    /// Source: `cgroups(7)`, `/proc/PID/cgroup`.
    ///
    /// # Errors
    /// [`ProcError::Gone`].
    pub fn cgroup(&self, tid: i32) -> Result<Option<String>, ProcError> {
        let text = self.read_task(tid, "cgroup")?;
        Ok(text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned))
    }

    /// Returns the process that a thread belongs to.
    ///
    /// # Errors
    /// [`ProcError::Gone`].
    pub fn process_of(&self, tid: i32) -> Result<i32, ProcError> {
        self.status(tid).map(|status| status.process)
    }

    /// Returns the parent of a process, 0 for one without.
    ///
    /// # Errors
    /// [`ProcError::Gone`].
    pub fn parent(&self, pid: i32) -> Result<i32, ProcError> {
        self.stat(pid).map(|stat| stat.parent)
    }

    /// Whether a task lives that began before `since_boot_ns`, nanoseconds since the machine was started; to one clock tick
    /// (10 ms on most machines).
    #[must_use]
    pub fn lives_since(&self, tid: i32, since_boot_ns: u64) -> bool {
        let tick_ns = 1_000_000_000 / self.ticks_per_second().max(1);
        self.thread_stat(tid)
            .is_ok_and(|stat| !stat.is_zombie() && stat.start_ticks.saturating_mul(tick_ns) <= since_boot_ns)
    }

    /// Lists the children of a process, sorted, those that wait to be reaped included.
    ///
    /// While tasks come and go, a child that was just started may be missing.
    ///
    /// # Errors
    /// [`ProcError::Gone`]; [`ProcError::Unsupported`] in a kernel without this list (`CONFIG_PROC_CHILDREN`): then
    /// [`Proc::processes`] and [`Proc::parent`] tell the same more slowly.
    pub fn children(&self, pid: i32) -> Result<Vec<i32>, ProcError> {
        let mut children = Vec::new();
        for tid in self.threads_of(pid)? {
            match self.read_task(pid, &format!("task/{tid}/children")) {
                Ok(text) => children.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<i32>().ok())),
                // A thread that ended meanwhile hands its children to another thread of the process.
                Err(ProcError::Gone { .. }) => {}
                Err(ProcError::Unsupported { .. }) if !self.task_path(pid, &format!("task/{tid}")).is_dir() => {}
                Err(error) => return Err(error),
            }
        }
        children.sort_unstable();
        Ok(children)
    }
}

/// In which namespace of a kind this process is: as [`Proc::namespace`].
pub(crate) fn own_namespace(kind: &str) -> Option<u64> {
    std::fs::metadata(format!("/proc/self/ns/{kind}")).ok().map(|file| file.ino())
}

fn numbers(entries: ReadDir) -> Vec<i32> {
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
