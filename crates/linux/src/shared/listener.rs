//! The place in the file system where clients find the service.
//!
//! What it is: [`Listener`], made at a path or taken over from the process that started this one; and the paths that both sides
//! look at when no other one is named.
//!
//! **Invariant:** at most one service listens at a path: a service that wants to holds the lock file beside it for as long as it
//! lives, and only its holder takes the socket of a dead one away. The lock file itself stays, because taking it away
//! would let two hold it.

use super::channel::Channel;
use crate::sys::{self, Errno};
use std::ffi::{CString, OsString};
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Where the service of the machine is.
pub const SYSTEM_SOCKET: &str = "/run/pmux/pmux.sock";
/// The environment variable that names another place, for clients.
pub const SOCKET_VARIABLE: &str = "PMUX_SOCKET";

const WAITING: i32 = 1024;
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
    _lock: LockFile,
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
        // Where that can't be, files are left where they are (`Channel`).
        refuse_files(&socket);
        let bind = || sys::bind(socket.as_fd(), path.as_os_str());
        sys::with_file_mode(mode, bind).and_then(|bound| bound).map_err(file)?;
        let seen = fs::symlink_metadata(path).map_err(|error| file(Errno::from(&error)))?;
        let made = Some(Made { path: path.to_owned(), identity: (seen.dev(), seen.ino()), _lock: lock });
        let listener = Self { socket, made };
        // Connections that wait to be taken have it too, so that the first packet says who has sent it.
        sys::pass_credentials(listener.socket.as_fd()).map_err(file)?;
        sys::listen(listener.socket.as_fd(), WAITING).map_err(file)?;
        Ok(listener)
    }

    /// Takes over a socket that another process has made and listens on.
    ///
    /// # Errors
    /// [`ListenError::HandedOver`].
    pub fn take_over(socket: OwnedFd) -> Result<Self, ListenError> {
        if !sys::is_packet_listener(socket.as_fd()).map_err(ListenError::HandedOver)? {
            return Err(ListenError::HandedOver(Errno::EPROTOTYPE));
        }
        sys::set_nonblocking(socket.as_fd()).map_err(ListenError::HandedOver)?;
        refuse_files(&socket);
        sys::pass_credentials(socket.as_fd()).map_err(ListenError::HandedOver)?;
        Ok(Self { socket, made: None })
    }

    /// Gives the socket's file to a group.
    ///
    /// # Errors
    /// [`ListenError::File`]: `ESTALE` where the path leads to anything but a socket of this process's user by now; `EPERM` where this
    /// user may not give it to that group.
    pub fn give_to_group(&self, group: u32) -> Result<(), ListenError> {
        let Some(made) = &self.made else { return Ok(()) };
        let failed = |error| ListenError::File(made.path.clone(), Errno::from(&error));
        // The path is looked up once, without following a link; what was found is looked at and changed.
        let name = CString::new(made.path.as_os_str().as_bytes()).map_err(|error| failed(error.into()))?;
        let found = sys::open_name(&name).map_err(|errno| ListenError::File(made.path.clone(), errno))?;
        let found = File::from(found);
        let seen = found.metadata().map_err(failed)?;
        let own = fs::metadata("/proc/self").map_err(failed)?.uid();
        if !seen.file_type().is_socket() || seen.uid() != own || (seen.dev(), seen.ino()) != made.identity {
            return Err(ListenError::File(made.path.clone(), Errno::ESTALE));
        }
        std::os::unix::fs::chown(format!("/proc/self/fd/{}", found.as_raw_fd()), None, Some(group)).map_err(failed)
    }

    /// Whether clients that look for the socket at its path find this one. The lock keeps a second service away only as long as its
    /// file is there, and a user who may write into the folder can take both away.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.made.as_ref().is_none_or(Made::is_there)
    }

    /// Takes the next client, if one waits. One that has left again already is passed over.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`: the client goes on waiting.
    pub fn accept(&self) -> Result<Option<Channel>, Errno> {
        loop {
            match sys::accept(self.socket.as_fd()) {
                Ok(socket) => return Channel::from_accepted(socket).map(Some),
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::ECONNABORTED | Errno::EPROTO) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Made {
    fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|seen| (seen.dev(), seen.ino()) == self.identity)
    }
}

/// Makes a socket for streams at a path, with these permission bits from its first moment; in the place of one that has gone, at which no
/// process listens any more.
///
/// # Errors
/// Those of `bind(2)` and of making a thread.
pub fn bind_stream(path: &Path, mode: u32) -> std::io::Result<UnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        fs::remove_file(path)?;
    }
    let failed = |errno: Errno| std::io::Error::from_raw_os_error(errno.raw());
    sys::with_file_mode(mode, || UnixListener::bind(path)).map_err(failed)?
}

/// Makes a folder, with these permission bits from its first moment.
///
/// # Errors
/// Those of `mkdir(2)` and of making a thread.
pub fn make_folder(path: &Path, mode: u32) -> std::io::Result<()> {
    let failed = |errno: Errno| std::io::Error::from_raw_os_error(errno.raw());
    sys::with_file_mode(mode, || fs::create_dir(path)).map_err(failed)?
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(made) = &self.made else { return };
        // Something else may be there.
        if made.is_there() {
            let _ = fs::remove_file(&made.path);
        }
    }
}

/// Lets the kernel refuse files that are sent to a socket, and, where it listens, to the sockets of all that connect from now on.
/// Before Linux 6.16 it can't.
pub fn refuse_files(socket: impl AsFd) {
    let _ = sys::refuse_files(socket.as_fd());
}

/// A lock file that is held. It is taken away before it is let go: see [`take_lock`].
#[derive(Debug)]
struct LockFile {
    path: PathBuf,
    file: File,
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if is_at(&self.path, &self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a path leads to an open file.
fn is_at(path: &Path, file: &File) -> bool {
    let identity = |seen: fs::Metadata| (seen.dev(), seen.ino());
    fs::symlink_metadata(path).is_ok_and(|seen| file.metadata().is_ok_and(|open| identity(seen) == identity(open)))
}

/// Holds the lock file beside a path, which says which process holds it.
fn take_lock(path: &Path) -> Result<LockFile, ListenError> {
    /// So often a service that ends may take the file away between the opening and the locking of it.
    const ATTEMPTS: u32 = 100;
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock = PathBuf::from(name);
    for _ in 0..ATTEMPTS {
        let file = lock_once(path, &lock)?;
        if is_at(&lock, &file) {
            return Ok(LockFile { path: lock, file });
        }
    }
    Err(ListenError::Taken(path.to_owned(), None))
}

fn lock_once(path: &Path, lock: &Path) -> Result<File, ListenError> {
    let fail = |error: &std::io::Error| ListenError::File(lock.to_owned(), Errno::from(error));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(lock).map_err(|error| fail(&error))?;
    match file.try_lock() {
        Ok(()) => {
            // For people: where there is no room for it, no error names a number.
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

/// Takes the socket away that a dead service has left. The caller holds the lock.
fn remove_dead_socket(path: &Path) -> Result<(), ListenError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ListenError::File(path.to_owned(), Errno::from(&error))),
        Ok(seen) if !seen.file_type().is_socket() => return Err(ListenError::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    match Channel::connect(path) {
        // Only the answer that no process listens proves it; a full queue, or another type, shows that a process is there.
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
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names: Vec<_> = names.split(':').collect();
    let name = |place| OsString::from(names.get::<usize>(place).copied().unwrap_or_default());
    sys::handed_over().into_iter().map(|(place, copy)| (name(place), copy)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::channel::{PacketBuffer, Received, Sent};
    use pmux_testkit::{own_process, skip_unless};
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    // A test that closes a socket or a lock needs a process of its own: a fork of another thread holds both for a moment.
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

    /// Rights go by the process that connected: what another one sends through the same socket is not received.
    #[test]
    fn packets_of_other_processes_are_strangers() {
        let (_folder, path) = folder();
        let listener = Listener::bind(&path, 0o600).unwrap();
        let client = Channel::connect(&path).unwrap();
        // Before it is taken, and after.
        assert_eq!(client.send(b"early", &[]), Ok(Sent::Whole));
        let server = listener.accept().unwrap().unwrap();
        assert_eq!(client.send(b"late", &[]), Ok(Sent::Whole));
        let passed = std::process::Stdio::from(client.as_fd().try_clone_to_owned().unwrap());
        let mut other = std::process::Command::new("sh");
        assert!(other.args(["-c", "printf x >&0"]).stdin(passed).status().unwrap().success());
        assert_eq!(client.send(b"own", &[]), Ok(Sent::Whole));
        let mut buffer = PacketBuffer::new();
        let mut next = || server.receive(&mut buffer, 1).unwrap();
        assert!(matches!(next(), Received::Packet(5, _)));
        assert!(matches!(next(), Received::Packet(4, _)));
        assert!(matches!(next(), Received::Stranger));
        assert!(matches!(next(), Received::Packet(3, _)));
    }

    #[test]
    fn files_are_refused_to_their_sender() {
        let (_folder, path) = folder();
        let listener = Listener::bind(&path, 0o600).unwrap();
        if !sys::refuses_files(listener.as_fd()) {
            return println!("skipped: needs Linux 6.16 (SO_PASSRIGHTS)");
        }
        let (file, _writer) = sys::pipe().unwrap();
        let client = Channel::connect(&path).unwrap();
        let refused = |client: &Channel| assert_eq!(client.send(b"x", &[file.as_fd()]), Err(Errno::EPERM));
        // Before it is accepted as well.
        refused(&client);
        let server = listener.accept().unwrap().unwrap();
        refused(&client);
        assert_eq!(client.send(b"y", &[]), Ok(Sent::Whole));
        // The other way they go, and the client may be given some.
        assert_eq!(server.send(b"z", &[file.as_fd()]), Ok(Sent::Whole));
        let mut buffer = PacketBuffer::new();
        assert!(matches!(server.receive(&mut buffer, 0), Ok(Received::Packet(1, _))));
        assert!(matches!(client.receive(&mut buffer, 1), Ok(Received::Packet(1, files)) if files.len() == 1));
    }

    #[test]
    fn the_second_one_is_told_who_the_first_is() {
        skip_unless!(own_process());
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
        skip_unless!(own_process());
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
        skip_unless!(own_process());
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
        let _other = UnixListener::bind(&stream).unwrap();
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

    /// A link in the place of the socket, as a user who may write into the folder puts it there, leads to no file that is changed.
    #[test]
    fn a_link_in_the_place_of_the_socket_is_not_followed() {
        let (folder, path) = folder();
        let other = folder.path().join("precious");
        fs::write(&other, "precious").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
        let before = fs::metadata(&other).unwrap();
        let listener = Listener::bind(&path, 0o666).unwrap();
        assert!(listener.is_found());
        let socket = fs::metadata(&path).unwrap();
        listener.give_to_group(socket.gid()).unwrap();
        fs::rename(&path, folder.path().join("moved")).unwrap();
        assert!(!listener.is_found());
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let refused = listener.give_to_group(1).unwrap_err();
        assert!(matches!(refused, ListenError::File(_, Errno::ESTALE)), "{refused}");
        assert!(!listener.is_found());
        let after = fs::metadata(&other).unwrap();
        assert_eq!((after.mode(), after.gid(), after.ctime_nsec()), (before.mode(), before.gid(), before.ctime_nsec()));
    }

    /// Permission bits are there from the beginning: no second look at the path sets them.
    #[test]
    fn files_are_made_with_their_permission_bits() {
        let (folder, _) = folder();
        let mode = |name: &str| fs::symlink_metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o7777;
        let at = |name: &str| folder.path().join(name);
        for (name, bits) in [("a", 0o666), ("b", 0o600), ("c", 0o660)] {
            let _socket = Listener::bind(&at(name), bits).unwrap();
            assert_eq!(mode(name), bits);
            let stream = format!("{name}.stream");
            let _stream = bind_stream(&at(&stream), bits).unwrap();
            assert_eq!(mode(&stream), bits);
        }
        make_folder(&at("folder"), 0o755).unwrap();
        assert_eq!(mode("folder"), 0o755);
        // The mask of this process is what it was.
        let mask = fs::read_to_string("/proc/self/status").unwrap();
        let mask = mask.lines().find_map(|line| line.strip_prefix("Umask:\t")).unwrap();
        fs::create_dir(at("plain")).unwrap();
        assert_eq!(mode("plain"), 0o777 & !u32::from_str_radix(mask, 8).unwrap());
    }

    #[test]
    fn nothing_is_left_of_one_that_has_gone() {
        let (folder, path) = folder();
        let left = || fs::read_dir(folder.path()).unwrap().count();
        let listener = Listener::bind(&path, 0o600).unwrap();
        assert_eq!(left(), 2);
        assert!(matches!(Listener::bind(&path, 0o600), Err(ListenError::Taken(_, Some(_)))));
        assert_eq!(left(), 2, "one that is refused takes nothing away");
        drop(listener);
        assert_eq!(left(), 0);
        // Of many that come and go, one listens at a time.
        let (here, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Ok(listener) = Listener::bind(&path, 0o600) else { continue };
                        most.fetch_max(here.fetch_add(1, SeqCst) + 1, SeqCst);
                        here.fetch_sub(1, SeqCst);
                        drop(listener);
                    }
                });
            }
        });
        assert_eq!((most.into_inner(), left()), (1, 0));
        fs::write(&path, "").unwrap();
        assert!(matches!(Listener::bind(&path, 0o600), Err(ListenError::NotASocket(_))));
        assert_eq!(left(), 1);
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
        let stream = UnixListener::bind(folder.path().join("s")).unwrap();
        assert!(refused(stream.into()), "a stream keeps no packets");
    }
}
