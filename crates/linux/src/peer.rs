//! What `/proc` tells about a client of a service.
//!
//! What it is: [`Peer`], above all with the [`Credentials`] that events are opened with for it.
//! Read first: [`Peer::gather`], for what is believed and why.
//!
//! **Invariant:** plain facts, no decision. What can't be known for sure is taken as the least: no capability, not our
//! namespace, not dumpable.

use crate::credentials::Credentials;
use crate::procfs::{Proc, Status, own_namespace};
use crate::sys::{self, Errno};
use std::os::fd::{AsFd, BorrowedFd};

/// Who connected, as the kernel noted it at that moment (`SO_PEERCRED`, `SO_PEERGROUPS`, `SO_PEERSEC`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerCred {
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
pub enum PidNamespace {
    /// They do.
    Ours,
    /// They do not, or nothing tells.
    #[default]
    Other,
}

/// A client that asks, as far as it is safe to believe.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peer {
    /// Who connected.
    pub connected: PeerCred,
    /// The process, where it is sure that its number still means the one that connected.
    pub process: Option<i32>,
    /// Whether it is known to have exited, or its first thread, of which alone `/proc` tells.
    pub has_exited: bool,
    /// What the kernel decides by about it; `None` where that is not sure: it has exited, or its users differ from each other or from
    /// the one that connected.
    pub credentials: Option<Credentials>,
    /// Whether numbers of tasks mean the same to both sides.
    pub task_ids: PidNamespace,
    /// The name of its program, for people.
    pub command: String,
    /// Its cgroup of version 2, as a path from the root.
    pub cgroup: Option<String>,
}

impl Peer {
    /// Looks at a process that has connected, as it is now. `handle` is the pidfd of the connection (`SO_PEERPIDFD`), or before Linux
    /// 6.5 of the process that had its number when the connection was accepted; `user_namespace` says in which user namespace a process
    /// is.
    ///
    /// What is read is believed only (1) of a process that a pidfd shows to be alive after all was read, and whose first thread has not
    /// exited; (2) whose users and groups are still all the one that connected. Its capabilities are believed only (3) where it is
    /// dumpable, which a process that gained rights by an exec is not (where `fs.suid_dumpable` is 1 it may be, so none are), and they
    /// were the same before and after that was looked at: a client may keep the connection in another process while it executes a program
    /// with more rights. Root's need no (3): an exec gives root what its bounding set has, unless it has given that up (`SECBIT_NOROOT`,
    /// which `/proc` does not tell).
    #[must_use]
    pub fn gather(
        proc: &Proc,
        connected: PeerCred,
        handle: Option<BorrowedFd<'_>>,
        user_namespace: impl FnOnce(i32) -> Option<u64>,
    ) -> Self {
        let pid = connected.process;
        let mut peer = Self { connected, ..Self::default() };
        let has_ended = || handle.map(|handle| sys::pidfd_send_signal(handle.as_fd(), 0) == Err(Errno::ESRCH));
        let Ok(status) = proc.status(pid) else {
            peer.has_exited = has_ended() == Some(true);
            return peer;
        };
        let (user, group) = (peer.connected.user, peer.connected.group);
        let dumpable = proc.is_dumpable(pid, user);
        let again = proc.status(pid);
        let users = user_namespace(pid);
        // A security module's label is the one of the connection; a process that has another one by now has changed.
        let label = std::fs::read(proc.root().join(pid.to_string()).join("attr/current")).unwrap_or_default();
        let command = proc.comm(pid).unwrap_or_default();
        let cgroup = proc.cgroup(pid).unwrap_or_default();
        // Asked last: all that was read so far was this process's.
        let ended = has_ended();
        peer.command = command;
        peer.has_exited = ended == Some(true) || status.has_exited;
        if ended != Some(false) || status.has_exited {
            return peer;
        }
        peer.process = Some(pid);
        peer.cgroup = cgroup;
        // As it is now: what it has given up doesn't count.
        peer.connected.groups.retain(|group| status.further_groups.contains(group));
        if status.pid_namespaces == 1 && numbers_are_ours(proc) {
            peer.task_ids = PidNamespace::Ours;
        }
        if peer.connected.label.as_ref().is_some_and(|known| known.as_bytes() != trimmed(&label)) {
            peer.connected.label = None;
        }
        let capabilities = |of: &Status| (of.permitted_capabilities, of.effective_capabilities);
        let unchanged = again.is_ok_and(|again| capabilities(&again) == capabilities(&status))
            && status.users.are_all(user)
            && status.groups.are_all(group);
        let ours = users.is_some() && users == own_namespace("user");
        let is_believed = dumpable && (status.permitted_capabilities == 0 || !proc.all_are_dumpable());
        let (permitted, effective) = match is_believed || (user == 0 && ours) {
            true => (status.permitted_capabilities, status.effective_capabilities),
            false => (0, 0),
        };
        if let (true, Some(inode)) = (unchanged, users) {
            let user_namespace = (!ours).then_some(inode);
            peer.credentials = Some(Credentials { user, group, permitted, effective, user_namespace });
        }
        peer
    }

    /// Its effective capabilities in this process's user namespace.
    #[must_use]
    pub fn capabilities(&self) -> u64 {
        let own = self.credentials.filter(|credentials| credentials.user_namespace.is_none());
        own.map_or(0, |credentials| credentials.effective)
    }
}

/// A label without what may end it.
fn trimmed(label: &[u8]) -> &[u8] {
    label.strip_suffix(b"\n").unwrap_or(label).strip_suffix(b"\0").unwrap_or(label)
}

/// Whether the numbers of tasks there are those that this process goes by.
fn numbers_are_ours(proc: &Proc) -> bool {
    let own = std::process::id().cast_signed();
    proc.own_status().is_ok_and(|status| status.pid_namespaces == 1 && status.process == own)
}

/// The number of the group of this name, as the C library finds it: in `/etc/group` and where `/etc/nsswitch.conf` sends it, for whose
/// answer it waits. `None` where there is none. A static binary knows `/etc/group` only.
///
/// # Errors
/// Those of `getgrnam_r(3)`.
pub fn group_number(name: &str) -> Result<Option<u32>, Errno> {
    std::ffi::CString::new(name).map_or(Ok(None), |name| sys::group_number(&name))
}

/// The user namespace of a process, by its inode; `None` where nothing tells. Needs no file.
#[must_use]
pub fn user_namespace_of(process: i32) -> Option<u64> {
    Proc::system().namespace(process, "user")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> PeerCred {
        let status = Proc::system().own_status().unwrap();
        let (user, group) = (status.users.effective, status.groups.effective);
        PeerCred { process: status.process, user, group, ..PeerCred::default() }
    }

    #[test]
    fn we_know_ourselves() {
        let proc = Proc::system();
        let status = proc.own_status().unwrap();
        let handle = sys::pidfd_open(status.process).unwrap();
        let peer = Peer::gather(&proc, own(), Some(handle.as_fd()), user_namespace_of);
        assert_eq!(peer.process, Some(status.process));
        assert_eq!(peer.task_ids, PidNamespace::Ours);
        assert_eq!(peer.credentials, Credentials::own());
        // What is not known is not ours.
        let peer = Peer::gather(&proc, own(), Some(handle.as_fd()), |_| None);
        assert_eq!((peer.credentials, peer.capabilities()), (None, 0));
        let peer = Peer::gather(&proc, own(), Some(handle.as_fd()), |_| Some(1));
        assert_eq!(peer.credentials.and_then(|credentials| credentials.user_namespace), Some(1));
        assert_eq!(peer.capabilities(), 0);
    }

    #[test]
    fn without_a_handle_nothing_is_believed() {
        let peer = Peer::gather(&Proc::system(), own(), None, user_namespace_of);
        assert_eq!((peer.process, peer.credentials), (None, None));
        assert_eq!(peer.task_ids, PidNamespace::Other);
    }

    #[test]
    fn who_is_not_who_connected_has_no_capabilities() {
        let handle = sys::pidfd_open(std::process::id().cast_signed()).unwrap();
        let other = PeerCred { user: own().user + 1, ..own() };
        let peer = Peer::gather(&Proc::system(), other, Some(handle.as_fd()), user_namespace_of);
        assert_eq!(peer.credentials, None);
        let other = PeerCred { group: own().group + 1, ..own() };
        assert_eq!(Peer::gather(&Proc::system(), other, Some(handle.as_fd()), user_namespace_of).credentials, None);
    }

    #[test]
    fn an_ended_process_has_no_credentials() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id().cast_signed();
        let handle = sys::pidfd_open(process).unwrap();
        child.wait().unwrap();
        let peer =
            Peer::gather(&Proc::system(), PeerCred { process, ..own() }, Some(handle.as_fd()), user_namespace_of);
        assert_eq!((peer.process, peer.credentials, peer.has_exited), (None, None, true));
    }

    /// As is the first thread of a process that goes on in others: it keeps what it had, which these may have given up.
    #[test]
    fn a_zombie_is_believed_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id().cast_signed();
        let handle = sys::pidfd_open(process).unwrap();
        while !Proc::system().status(process).unwrap().has_exited {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let peer =
            Peer::gather(&Proc::system(), PeerCred { process, ..own() }, Some(handle.as_fd()), user_namespace_of);
        assert_eq!((peer.process, peer.credentials, peer.has_exited), (None, None, true));
        child.wait().unwrap();
    }

    #[test]
    fn users_of_a_status_are_read_in_their_order() {
        let text = "Tgid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nCapPrm:\t0000000000000003\n";
        let status = Status::parse(text).unwrap();
        assert_eq!(status.users, crate::procfs::Ids { real: 1, effective: 2, saved: 3 });
        assert_eq!(status.groups, crate::procfs::Ids { real: 5, effective: 6, saved: 7 });
        assert_eq!((status.permitted_capabilities, status.users.effective), (3, 2));
        assert!(!status.users.are_all(1));
    }
}
