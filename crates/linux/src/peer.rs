//! What `/proc` tells about somebody who asks, and about the task that he asks for.
//!
//! What it is: [`Asker`] and [`Subject`], the facts by which a service decides as the kernel would.
//! Read first: [`Asker::gather`], for what is believed and why.
//!
//! **Invariant:** plain facts, no decision. What can't be known for sure is taken as the least: no capability, not our
//! namespace, not dumpable.

use crate::procfs::{Ids, Proc, ProcError};
use crate::sys;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

/// Who connected, as the kernel noted it at that moment (`SO_PEERCRED`, `SO_PEERGROUPS`, `SO_PEERSEC`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Connected {
    /// The process; 0 where this process can't see it.
    pub process: i32,
    /// The effective user.
    pub user: u32,
    /// The effective group.
    pub group: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
    /// The label of a security module, where one gives labels.
    pub label: Option<String>,
}

/// Whether two processes see the same ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Namespace {
    /// They do.
    Ours,
    /// They do not, or nothing tells.
    #[default]
    Other,
}

/// The capabilities of somebody, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Capabilities {
    /// Those that count now.
    pub effective: u64,
    /// Those that he may make count.
    pub permitted: u64,
}

/// Somebody who asks, as far as it is safe to believe.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asker {
    /// Who connected.
    pub connected: Connected,
    /// The process, where it is sure that its number still means the one that connected.
    pub process: Option<i32>,
    /// Its capabilities in the first user namespace.
    pub capabilities: Capabilities,
    /// Whether numbers of tasks mean the same to both sides.
    pub task_ids: Namespace,
    /// The user namespace, by its inode.
    pub user_namespace: Option<u64>,
    /// The name of its program, for people.
    pub command: String,
    /// Its cgroup of version 2, as a path from the root.
    pub cgroup: Option<String>,
}

impl Asker {
    /// Looks at somebody who connected. `handle` is the pidfd of the connection (`SO_PEERPIDFD`), or before Linux 6.5 of who had
    /// its number when it was accepted.
    ///
    /// The ids are those of the moment of connecting. Capabilities are read now, and in between the process may have
    /// executed a program that has more of them than whoever made the connection and kept an end of it. So they are
    /// believed only (1) of a process that a pidfd shows to be alive after all was read; (2) whose users are still all
    /// the one that connected; (3) that is dumpable, which a process that gained rights by an exec is not, and was
    /// before and after its capabilities were read. Root's need no (3): root can't gain any by an exec that it could not
    /// have without.
    #[must_use]
    pub fn gather(proc: &Proc, connected: Connected, handle: Option<BorrowedFd<'_>>) -> Self {
        let pid = connected.process;
        let mut asker = Self { connected, ..Self::default() };
        let Ok(status) = proc.status(pid) else { return asker };
        let dumpable = is_dumpable(proc, pid, asker.connected.user);
        let again = proc.status(pid);
        let namespace = |kind| namespace(proc, &pid.to_string(), kind);
        let (users, tasks) = (namespace("user"), namespace("pid"));
        let command = proc.comm(pid).unwrap_or_default();
        let cgroup = proc.cgroup(pid).unwrap_or_default();
        // Asked last: all that was read so far was this process's.
        let alive = handle.is_some_and(|handle| sys::pidfd_send_signal(handle.as_fd(), 0) != Err(sys::Errno::ESRCH));
        asker.command = command;
        if !alive {
            return asker;
        }
        asker.process = Some(pid);
        asker.cgroup = cgroup;
        asker.user_namespace = users;
        if tasks.is_some() && tasks == self::namespace(proc, "self", "pid") {
            asker.task_ids = Namespace::Ours;
        }
        let user = asker.connected.user;
        let unchanged = again.is_ok_and(|again| again.permitted_capabilities == status.permitted_capabilities)
            && status.users.are_all(user);
        let ours = users.is_some() && users == self::namespace(proc, "self", "user");
        if ours && unchanged && (dumpable || user == 0) {
            asker.capabilities =
                Capabilities { effective: status.effective_capabilities, permitted: status.permitted_capabilities };
        }
        asker
    }
}

/// A task that somebody wants to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subject {
    /// Its process.
    pub process: i32,
    /// Its users.
    pub users: Ids,
    /// Its groups.
    pub groups: Ids,
    /// Its permitted capabilities.
    pub permitted: u64,
    /// Its user namespace, by its inode; `None` where this process may not look.
    pub user_namespace: Option<u64>,
    /// Whether others of its user may look into it. Of a task of root nothing tells: then it is not.
    pub dumpable: bool,
}

impl Subject {
    /// Looks at a task.
    ///
    /// # Errors
    /// [`ProcError::Gone`]; [`ProcError::Denied`] where `/proc` is hidden from this process.
    pub fn gather(proc: &Proc, tid: i32) -> Result<Self, ProcError> {
        let status = proc.status(tid)?;
        Ok(Self {
            process: status.process,
            users: status.users,
            groups: status.groups,
            permitted: status.permitted_capabilities,
            user_namespace: namespace(proc, &tid.to_string(), "user"),
            dumpable: is_dumpable(proc, tid, status.users.effective),
        })
    }
}

/// Files below `/proc/PID` belong to the task's effective user, or to root where the task is not dumpable. (The directory
/// itself belongs to the user in any case.)
fn is_dumpable(proc: &Proc, task: i32, user: u32) -> bool {
    let owner = std::fs::metadata(proc.root().join(task.to_string()).join("status")).map(|file| file.uid());
    user != 0 && owner.is_ok_and(|owner| owner == user)
}

/// The inode that stands for a namespace of a process.
fn namespace(proc: &Proc, process: &str, kind: &str) -> Option<u64> {
    std::fs::metadata(proc.root().join(process).join("ns").join(kind)).ok().map(|file| file.ino())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn own() -> Connected {
        let status = Proc::system().own_status().unwrap();
        Connected {
            process: status.process,
            user: status.users.effective,
            group: status.groups.effective,
            ..Connected::default()
        }
    }

    #[test]
    fn we_know_ourselves() {
        let proc = Proc::system();
        let status = proc.own_status().unwrap();
        let handle = sys::pidfd_open(status.process).unwrap();
        let asker = Asker::gather(&proc, own(), Some(handle.as_fd()));
        assert_eq!(asker.process, Some(status.process));
        assert_eq!(asker.task_ids, Namespace::Ours);
        if status.users.are_all(status.effective_uid) {
            assert_eq!(asker.capabilities.effective, status.effective_capabilities);
        }
        let subject = Subject::gather(&proc, status.process).unwrap();
        assert_eq!((subject.users, subject.user_namespace), (status.users, asker.user_namespace));
    }

    #[test]
    fn without_a_handle_nothing_is_believed() {
        let asker = Asker::gather(&Proc::system(), own(), None);
        assert_eq!((asker.process, asker.capabilities), (None, Capabilities::default()));
        assert_eq!(asker.task_ids, Namespace::Other);
    }

    #[test]
    fn who_is_not_who_connected_has_no_capabilities() {
        let handle = sys::pidfd_open(std::process::id().cast_signed()).unwrap();
        let other = Connected { user: own().user + 1, ..own() };
        let asker = Asker::gather(&Proc::system(), other, Some(handle.as_fd()));
        assert_eq!(asker.capabilities, Capabilities::default());
    }

    #[test]
    fn who_has_ended_is_nobody() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id().cast_signed();
        let handle = sys::pidfd_open(process).unwrap();
        child.wait().unwrap();
        let asker = Asker::gather(&Proc::system(), Connected { process, ..own() }, Some(handle.as_fd()));
        assert_eq!((asker.process, asker.capabilities), (None, Capabilities::default()));
        assert!(matches!(Subject::gather(&Proc::system(), process), Err(ProcError::Gone { .. })));
    }

    #[test]
    fn users_of_a_status_are_read_in_their_order() {
        let text = "Tgid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nCapPrm:\t0000000000000003\n";
        let status = crate::procfs::Status::parse(text).unwrap();
        assert_eq!(status.users, Ids { real: 1, effective: 2, saved: 3 });
        assert_eq!(status.groups, Ids { real: 5, effective: 6, saved: 7 });
        assert_eq!((status.permitted_capabilities, status.effective_uid), (3, 2));
        assert!(!status.users.are_all(1));
    }
}
