//! `/proc/PID/status`: the same task in named lines.
//!
//! **Invariant:** pure parsing; a line that is missing is `None`, never a made-up number.

use super::{Proc, ProcError};
use std::os::unix::fs::MetadataExt as _;

/// What a seccomp filter does to a task's system calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SeccompMode {
    /// Nothing.
    #[default]
    None,
    /// Four calls only.
    Strict,
    /// A program decides.
    Filter,
}

/// The real, the effective and the saved id of a user or a group, as this process's user namespace names them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ids {
    /// Who started it.
    pub real: u32,
    /// The id that it acts under.
    pub effective: u32,
    /// The id that it may act under again.
    pub saved: u32,
}

impl Ids {
    /// Whether all three are this one.
    #[must_use]
    pub const fn are_all(&self, id: u32) -> bool {
        self.real == id && self.effective == id && self.saved == id
    }

    /// Whether all three are the same.
    #[must_use]
    pub const fn are_equal(&self) -> bool {
        self.are_all(self.real)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { real: next()?, effective: next()?, saved: next()? })
    }
}

/// One reading of a `status` file. The context switches are those of this one thread.
///
/// Source: `proc_pid_status(5)`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The process that the thread belongs to.
    pub process: i32,
    /// Its parent.
    pub parent: i32,
    /// Whether it has exited, and is still there for its parent or for its other threads (states `Z` and `X`).
    pub has_exited: bool,
    /// Its users.
    pub users: Ids,
    /// Its groups, supplementary ones left out.
    pub groups: Ids,
    /// Its supplementary groups.
    pub further_groups: Vec<u32>,
    /// The capabilities that it may make effective, a bit for each.
    pub permitted_capabilities: u64,
    /// The effective capabilities, a bit for each.
    pub effective_capabilities: u64,
    /// Those that an exec may give, a bit for each.
    pub bounding_capabilities: u64,
    /// The seccomp mode.
    pub seccomp: SeccompMode,
    /// How many PID namespaces it is in, counted from the one that the file system was mounted for: 1 where its numbers are those of
    /// that one.
    pub pid_namespaces: usize,
    /// Its number in the innermost of them.
    pub innermost: i32,
    /// Times it gave the CPU away, where the kernel says so.
    pub voluntary_switches: Option<u64>,
    /// Times the CPU was taken from it, where the kernel says so.
    pub involuntary_switches: Option<u64>,
    /// The most memory it ever held, in bytes. Kernel threads and ended tasks have none.
    pub peak_resident_bytes: Option<u64>,
}

impl Status {
    /// Parses the file; `None` where it does not name the process.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut status = Self::default();
        let mut process = None;
        for line in text.lines() {
            let Some((key, rest)) = line.split_once(':') else { continue };
            let mut words = rest.split_ascii_whitespace();
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
            match key {
                "Tgid" => process = rest.trim().parse().ok(),
                "PPid" => status.parent = rest.trim().parse().unwrap_or(0),
                "State" => status.has_exited = matches!(rest.trim().chars().next(), Some('Z' | 'X')),
                // Real, effective, saved, file system.
                "Uid" => status.users = Ids::parse(rest)?,
                "Gid" => status.groups = Ids::parse(rest)?,
                "Groups" => {
                    status.further_groups =
                        rest.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
                }
                "NSpid" => {
                    status.pid_namespaces = rest.split_ascii_whitespace().count();
                    status.innermost = rest.split_ascii_whitespace().next_back().and_then(|word| word.parse().ok())?;
                }
                "CapPrm" => status.permitted_capabilities = u64::from_str_radix(rest.trim(), 16).ok()?,
                "CapEff" => status.effective_capabilities = u64::from_str_radix(rest.trim(), 16).ok()?,
                "CapBnd" => status.bounding_capabilities = u64::from_str_radix(rest.trim(), 16).ok()?,
                "Seccomp" => {
                    status.seccomp = match number() {
                        Some(1) => SeccompMode::Strict,
                        Some(2) => SeccompMode::Filter,
                        _ => SeccompMode::None,
                    };
                }
                // The kernel prints `kB` and means 1,024 bytes.
                "VmHWM" => status.peak_resident_bytes = number().map(|kib| kib.saturating_mul(1024)),
                "voluntary_ctxt_switches" => status.voluntary_switches = number(),
                "nonvoluntary_ctxt_switches" => status.involuntary_switches = number(),
                _ => {}
            }
        }
        status.process = process?;
        Some(status)
    }

    /// Both kinds of context switches together, where the kernel says them.
    #[must_use]
    pub fn switches(&self) -> Option<u64> {
        Some(self.voluntary_switches?.saturating_add(self.involuntary_switches?))
    }
}

impl Proc {
    /// Reads the status of a process or of a thread.
    ///
    /// # Errors
    /// [`ProcError::Gone`], [`ProcError::Denied`], [`ProcError::Malformed`].
    pub fn status(&self, id: i32) -> Result<Status, ProcError> {
        let text = self.read_task(id, "status")?;
        Status::parse(&text)
            .ok_or_else(|| ProcError::Malformed { path: self.task_path(id, "status"), expected: "Tgid line" })
    }

    /// Whether a task may be traced and dumped by its own effective user, `user`, which is not root: files below `/proc/PID` belong to
    /// that user then, and otherwise to root. (The folder itself belongs to the user in any case.)
    #[must_use]
    pub fn is_dumpable(&self, id: i32, user: u32) -> bool {
        let owner = std::fs::metadata(self.task_path(id, "status")).map(|file| file.uid());
        user != 0 && owner.is_ok_and(|owner| owner == user)
    }

    /// Whether the kernel may leave a process dumpable that has gained rights by an exec: `fs.suid_dumpable` is 1, or can't be read
    /// (`proc_sys_fs(5)`).
    #[must_use]
    pub fn all_are_dumpable(&self) -> bool {
        self.read_global("sys/fs/suid_dumpable").map_or(true, |text| text.trim() == "1")
    }

    /// Reads the status of the calling process.
    ///
    /// # Errors
    /// [`ProcError::NotMounted`], [`ProcError::Malformed`].
    pub fn own_status(&self) -> Result<Status, ProcError> {
        let text = self.read_global("self/status")?;
        Status::parse(&text)
            .ok_or_else(|| ProcError::Malformed { path: self.root.join("self/status"), expected: "Tgid line" })
    }
}
