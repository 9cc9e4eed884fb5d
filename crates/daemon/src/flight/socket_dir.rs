//! Where recorders can be asked: a folder of sockets, one for each recorder that runs.
//!
//! What it is: the folders, the names in them, and what a recorder that was killed has left there. A recorder in the foreground is
//! called by its process, one of the service by its name.
//! Read first: [`SocketDir`].
//!
//! **Invariant:** a socket is taken away only by its recorder, or when no process listens at it and its process is not there any more.

use super::ask::{self, AskError};
use pmux::server_api::shared::listener::{SYSTEM_SOCKET, make_folder, user_socket};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const FOLDER: &str = "flight";
const SUFFIX: &str = ".sock";
const LOCK_SUFFIX: &str = ".sock.lock";
/// Where the folders of users are who are logged in.
const USERS: &str = "/run/user";

/// Where sockets of recorders are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketDir(PathBuf);

/// Which recorder is meant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RecorderId {
    /// One in the foreground, by its process.
    Process(u32),
    /// One of a service, by its name.
    Name(String),
}

impl std::fmt::Display for RecorderId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "{pid}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl RecorderId {
    /// What a text means: a number is a process.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Process)
    }

    fn of_file(name: &str) -> Option<Self> {
        Some(Self::parse(name.strip_suffix(SUFFIX)?))
    }
}

impl SocketDir {
    /// That of this user; `None` for an ordinary user without `XDG_RUNTIME_DIR`.
    #[must_use]
    pub fn own() -> Option<Self> {
        let socket = if pmux::server_api::is_root() { PathBuf::from(SYSTEM_SOCKET) } else { user_socket()? };
        Some(Self::beside(&socket))
    }

    /// That of a service whose socket is here.
    #[must_use]
    pub fn beside(socket: &Path) -> Self {
        Self(socket.parent().unwrap_or(Path::new("/")).join(FOLDER))
    }

    /// All that this user may know of: the user's own, the machine's, and for root those of users who are logged in.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all: Vec<Self> = Self::own().into_iter().collect();
        all.push(Self::beside(Path::new(SYSTEM_SOCKET)));
        all.extend(user_socket().map(|socket| Self::beside(&socket)));
        if pmux::server_api::is_root() {
            let users = fs::read_dir(USERS).into_iter().flatten().flatten();
            all.extend(users.map(|user| Self(user.path().join("pmux").join(FOLDER))));
        }
        let mut seen = Vec::new();
        all.retain(|folder| {
            !seen.contains(&folder.0) && {
                seen.push(folder.0.clone());
                true
            }
        });
        all
    }

    /// The folder, made where it is not there; what recorders have left there that are no more is taken away.
    ///
    /// # Errors
    /// Those of making folders, with the path.
    pub fn prepare(&self) -> io::Result<()> {
        for folder in self.0.parent().into_iter().chain([self.0.as_path()]) {
            // Sockets say themselves who may connect, whatever this process's mask is.
            let made = match make_folder(folder, 0o755) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                made => made,
            };
            made.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
        }
        self.sweep();
        Ok(())
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The socket of a recorder.
    #[must_use]
    pub fn socket(&self, id: &RecorderId) -> PathBuf {
        self.0.join(format!("{id}{SUFFIX}"))
    }

    /// The recorders that have a socket here, by process and name; none was asked yet.
    #[must_use]
    pub fn recorders(&self) -> Vec<(RecorderId, PathBuf)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let id = RecorderId::of_file(entry.file_name().to_str()?)?;
                Some((id, entry.path()))
            })
            .collect();
        pmux::order::sort(&mut found);
        found
    }

    fn sweep(&self) {
        for (id, socket) in self.recorders() {
            let RecorderId::Process(pid) = id else { continue };
            if !is_there(pid) && matches!(ask::connect(&socket), Err(AskError::NotListening)) {
                // Another process that sweeps may have been faster.
                let _ = fs::remove_file(&socket);
            }
        }
        // The lock of a process that has ended has no owner, socket or not.
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_suffix(LOCK_SUFFIX)).and_then(|pid| pid.parse().ok());
            if let Some(pid) = pid
                && !is_there(pid)
                && !self.socket(&RecorderId::Process(pid)).exists()
            {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn is_there(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Takes the lock away that a recorder in the foreground has left beside its socket: no other process has its number.
pub(super) fn remove_lock(socket: &Path) {
    let mut lock = socket.as_os_str().to_owned();
    lock.push(".lock");
    let _ = fs::remove_file(lock);
}
