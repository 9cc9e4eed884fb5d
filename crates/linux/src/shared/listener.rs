//! The place in the file system where clients find the service.
//!
//! What it is: [`Listener`], made at a path or taken over from whoever started this process; and the paths that both sides
//! look at when nobody says another one.
//!
//! **Invariant:** at most one service listens at a path: whoever wants to holds the lock file beside it for as long as it
//! lives, and only its holder takes the socket of a dead one away. The lock file itself stays, because taking it away
//! would let two hold it.

use super::channel::Channel;
use crate::sys::{self, Errno};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Where the service of the machine is.
pub const SYSTEM_SOCKET: &str = "/run/pmux/pmux.sock";
/// The environment variable that names another place, for clients.
pub const SOCKET_VARIABLE: &str = "PMUX_SOCKET";

/// How many may wait to be taken.
const WAITING: i32 = 1024;
/// The first descriptor that a service manager hands over. Source: `sd_listen_fds(3)`.
const FIRST_HANDED_OVER: i32 = 3;
/// More than this nobody hands over.
const MOST_HANDED_OVER: i32 = 64;

/// The path of an ordinary user's own service, by the environment's `XDG_RUNTIME_DIR`.
#[must_use]
pub fn user_socket() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute())?;
    Some(folder.join("pmux/pmux.sock"))
}

/// A socket that clients connect to. Dropped, it takes its file away, if it made it.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    made: Option<Made>,
}

/// What was made in the file system.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    /// The device and the number of the socket's file.
    identity: (u64, u64),
    _lock: File,
}

/// Why there can be no socket at a path.
#[derive(Debug)]
pub enum ListenError {
    /// Another service is there, by this number where that is known.
    Taken(PathBuf, Option<u32>),
    /// Something that is no socket is there.
    NotASocket(PathBuf),
    /// The path is longer than the kernel takes: 107 bytes.
    PathTooLong(PathBuf),
    /// A file can't be made.
    File(PathBuf, Errno),
    /// What was handed over is no such socket.
    HandedOver(Errno),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(path, Some(pid)) => {
                write!(f, "another service, process {pid}, listens at {} already", path.display())
            }
            Self::Taken(path, None) => write!(f, "another service listens at {} already", path.display()),
            Self::NotASocket(path) => {
                write!(f, "{} is there and no socket: take it away, or choose another path", path.display())
            }
            Self::PathTooLong(path) => {
                write!(f, "the path of the socket, {}, is longer than 107 bytes: choose a shorter one", path.display())
            }
            Self::File(path, errno) => {
                write!(f, "can't make {}: {errno}", path.display())?;
                match *errno {
                    Errno::ENOENT => f.write_str("; make its folder first"),
                    Errno::ENOSPC => f.write_str("; make room there, or choose another path"),
                    Errno::EACCES | Errno::EROFS => {
                        f.write_str("; choose another path, with --socket or `socket.path`")
                    }
                    _ => Ok(()),
                }
            }
            Self::HandedOver(errno) => {
                write!(f, "what the service manager handed over is no socket of packets that listens: {errno}")
            }
        }
    }
}

impl std::error::Error for ListenError {}

impl Listener {
    /// Makes a socket at a path, with these permission bits. Its folder must exist.
    ///
    /// What a service that died has left there is taken away.
    ///
    /// # Errors
    /// In this order: [`ListenError::PathTooLong`]; [`ListenError::File`] for the lock file; [`ListenError::Taken`];
    /// [`ListenError::NotASocket`]; [`ListenError::File`].
    pub fn bind(path: &Path, mode: u32) -> Result<Self, ListenError> {
        let file = |errno| ListenError::File(path.to_owned(), errno);
        if path.as_os_str().len() > 107 {
            return Err(ListenError::PathTooLong(path.to_owned()));
        }
        let lock = take_lock(path)?;
        remove_dead_socket(path)?;
        let socket = sys::packet_socket().map_err(file)?;
        // Before it has a name, so that nobody connects who may not.
        let socket = File::from(socket);
        let narrowed = socket.set_permissions(Permissions::from_mode(mode));
        narrowed.map_err(|error| file(Errno::from(&error)))?;
        let socket = OwnedFd::from(socket);
        sys::bind(socket.as_fd(), path.as_os_str()).map_err(file)?;
        let seen = fs::symlink_metadata(path).map_err(|error| file(Errno::from(&error)))?;
        let made = Some(Made { path: path.to_owned(), identity: (seen.dev(), seen.ino()), _lock: lock });
        let listener = Self { socket, made };
        // The bits that this process's mask took away.
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| file(Errno::from(&error)))?;
        sys::listen(listener.socket.as_fd(), WAITING).map_err(file)?;
        Ok(listener)
    }

    /// Takes over a socket that somebody else has made and listens on.
    ///
    /// # Errors
    /// [`ListenError::HandedOver`].
    pub fn take_over(socket: OwnedFd) -> Result<Self, ListenError> {
        match sys::is_packet_listener(socket.as_fd()) {
            Ok(true) => {}
            Ok(false) => return Err(ListenError::HandedOver(Errno::EPROTOTYPE)),
            Err(errno) => return Err(ListenError::HandedOver(errno)),
        }
        sys::set_nonblocking(socket.as_fd()).map_err(ListenError::HandedOver)?;
        Ok(Self { socket, made: None })
    }

    /// The path, where the socket was made here.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.made.as_ref().map(|made| made.path.as_path())
    }

    /// Takes the next client, if one waits. One that has left again already is passed over.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`: the client goes on waiting.
    pub fn accept(&self) -> Result<Option<Channel>, Errno> {
        loop {
            match sys::accept(self.socket.as_fd()) {
                Ok(socket) => return Ok(Some(Channel::from_accepted(socket))),
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::ECONNABORTED | Errno::EPROTO) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(made) = &self.made else { return };
        // Somebody may have put something else there.
        if fs::symlink_metadata(&made.path).is_ok_and(|seen| (seen.dev(), seen.ino()) == made.identity) {
            let _ = fs::remove_file(&made.path);
        }
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Holds the lock file beside a path, which says who holds it.
fn take_lock(path: &Path) -> Result<File, ListenError> {
    let lock = lock_path(path);
    let fail = |error: &std::io::Error| ListenError::File(lock.clone(), Errno::from(error));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(&lock).map_err(|error| fail(&error))?;
    match file.try_lock() {
        Ok(()) => {
            // For people: where there is no room for it, nobody is told a number.
            let _ =
                file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            // As much as a number takes.
            let holder = (&file).take(16).read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            Err(ListenError::Taken(path.to_owned(), holder))
        }
        Err(TryLockError::Error(error)) => Err(fail(&error)),
    }
}

/// Takes the socket away that a dead service has left. Whoever calls this holds the lock.
fn remove_dead_socket(path: &Path) -> Result<(), ListenError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ListenError::File(path.to_owned(), Errno::from(&error))),
        Ok(seen) if !seen.file_type().is_socket() => return Err(ListenError::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    match Channel::connect(path) {
        // Only the answer that nobody listens proves it; a full queue, or another type, is somebody.
        Err(Errno::ECONNREFUSED) => {
            fs::remove_file(path).map_err(|error| ListenError::File(path.to_owned(), Errno::from(&error)))
        }
        Ok(channel) => {
            let holder = channel.peer().ok().and_then(|peer| u32::try_from(peer.pid).ok()).filter(|&pid| pid != 0);
            Err(ListenError::Taken(path.to_owned(), holder))
        }
        Err(_) => Err(ListenError::Taken(path.to_owned(), None)),
    }
}

/// The sockets that the process was started with by a service manager, each with its name there; none where there is no such.
///
/// They are copies: the descriptors themselves stay open, so that a manager's socket outlives this process's use of it.
/// Source: `sd_listen_fds(3)`.
#[must_use]
pub fn handed_over() -> Vec<(OsString, OwnedFd)> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<i32>().ok());
    if number("LISTEN_PID") != Some(std::process::id().cast_signed()) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or_default().clamp(0, MOST_HANDED_OVER);
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').map(OsString::from);
    let mut found = Vec::new();
    for fd in FIRST_HANDED_OVER..FIRST_HANDED_OVER + count {
        let name = names.next().unwrap_or_default();
        if let Ok(copy) = sys::copy_of_number(fd) {
            found.push((name, copy));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::shared::channel::{PacketBuffer, Received, Sent};

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        (folder, path)
    }

    #[test]
    fn clients_are_taken_and_heard() {
        let (_folder, path) = folder();
        let listener = Listener::bind(&path, 0o640).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        assert!(listener.accept().unwrap().is_none());
        let client = Channel::connect(&path).unwrap();
        let server = listener.accept().unwrap().unwrap();
        assert_eq!(server.peer().unwrap().pid, std::process::id().cast_signed());
        assert_eq!(client.send(b"hello", &[]), Ok(Sent::Whole));
        let mut buffer = PacketBuffer::new();
        assert!(matches!(server.receive(&mut buffer, 0), Ok(Received::Packet(5, _))));
        drop(listener);
        assert!(!path.exists(), "the socket goes with the listener");
        assert_eq!(Channel::connect(&path).unwrap_err(), Errno::ENOENT);
    }

    #[test]
    fn the_second_one_is_told_who_the_first_is() {
        let (_folder, path) = folder();
        let first = Listener::bind(&path, 0o600).unwrap();
        let second = Listener::bind(&path, 0o600).unwrap_err();
        assert!(matches!(second, ListenError::Taken(_, Some(pid)) if pid == std::process::id()), "{second}");
        assert!(Channel::connect(&path).is_ok(), "the first one is as it was");
        drop(first);
        assert!(Listener::bind(&path, 0o600).is_ok());
    }

    #[test]
    fn what_a_dead_one_left_is_taken_away() {
        let (_folder, path) = folder();
        let mut dead = Listener::bind(&path, 0o600).unwrap();
        // Its end by force: descriptors are closed, the file stays.
        let made = dead.made.take();
        drop(dead);
        drop(made);
        assert_eq!(Channel::connect(&path).unwrap_err(), Errno::ECONNREFUSED);
        let _listener = Listener::bind(&path, 0o600).unwrap();
        assert!(Channel::connect(&path).is_ok());
    }

    #[test]
    fn one_without_a_lock_is_left_alone() {
        let (_folder, path) = folder();
        // As a service manager makes it.
        let socket = sys::packet_socket().unwrap();
        sys::bind(socket.as_fd(), path.as_os_str()).unwrap();
        sys::listen(socket.as_fd(), 4).unwrap();
        assert!(matches!(Listener::bind(&path, 0o600), Err(ListenError::Taken(_, Some(_)))));
        let listener = Listener::take_over(socket).unwrap();
        let _client = Channel::connect(&path).unwrap();
        // The question who is there has left again.
        assert!(listener.accept().unwrap().is_some());
        drop(listener);
        assert!(path.exists(), "who didn't make it doesn't take it away");
    }

    #[test]
    fn only_a_socket_is_taken_away() {
        let (folder, path) = folder();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(Listener::bind(&path, 0o600), Err(ListenError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        let stream = folder.path().join("stream.sock");
        let _other = std::os::unix::net::UnixListener::bind(&stream).unwrap();
        assert!(matches!(Listener::bind(&stream, 0o600), Err(ListenError::Taken(_, None))));
        assert!(stream.exists());
    }

    #[test]
    fn another_file_in_its_place_stays() {
        let (_folder, path) = folder();
        let listener = Listener::bind(&path, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        drop(listener);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn paths_that_cannot_be_are_explained() {
        let (folder, _) = folder();
        let long = folder.path().join("x".repeat(120));
        assert!(matches!(Listener::bind(&long, 0o600), Err(ListenError::PathTooLong(_))));
        let nowhere = folder.path().join("missing/s.sock");
        let error = Listener::bind(&nowhere, 0o600).unwrap_err();
        assert!(matches!(error, ListenError::File(_, Errno::ENOENT)), "{error}");
        assert!(error.to_string().ends_with("make its folder first"), "{error}");
        std::os::unix::fs::symlink("/nonexistent", folder.path().join("l.sock.lock")).unwrap();
        let error = Listener::bind(&folder.path().join("l.sock"), 0o600).unwrap_err();
        assert!(matches!(error, ListenError::File(_, Errno::ELOOP)), "{error}");
    }

    #[test]
    fn only_listening_sockets_of_packets_are_taken_over() {
        let refused = |fd: OwnedFd| matches!(Listener::take_over(fd), Err(ListenError::HandedOver(_)));
        assert!(refused(sys::packet_socket().unwrap()), "it doesn't listen");
        assert!(refused(sys::pipe().unwrap().0), "no socket at all");
        let (folder, _) = folder();
        let stream = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
        assert!(refused(stream.into()), "a stream keeps no packets");
    }
}
