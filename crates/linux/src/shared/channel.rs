//! One connection between a client and the service: packets, files beside them, and who is at the other end.
//!
//! What it is: [`Channel`], the same on both sides. It never blocks; [`Channel::wait`] does, up to a moment.
//! Read first: [`Channel`].
//!
//! **Invariant:** a file that came with a packet is handed on or closed, whatever else is wrong with the packet; bytes are
//! not looked at here.
//!
//! **Invariant:** the end of a service receives no file, and never releases one: its sender decides how long that takes. Since
//! Linux 6.16 the kernel refuses them to the sender; before, a packet with files stays in the socket, and the socket is given up by
//! another process.

use crate::sys::{self, Errno, PollEntry};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::holders::Holders;
use super::wire::PACKET_BYTES;

/// How often it is tried again to connect where too many wait.
const AGAIN: Duration = Duration::from_millis(2);

/// A connection. Closed when it is dropped.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    files: FdPolicy,
    /// The process, user and group that packets must come from; `None` where any process that has the other end may send them.
    sender: Option<(i32, u32, u32)>,
    /// Set when the socket was given up: fields are dropped in their order, so it is told when the socket is closed.
    given_up: Option<GivenUp>,
}

/// A socket that another process releases.
#[derive(Debug)]
struct GivenUp;

impl Drop for GivenUp {
    fn drop(&mut self) {
        holders().closed();
    }
}

/// What is done with files that the other end sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FdPolicy {
    /// They are received: the other end is trusted.
    Accepted,
    /// The kernel refuses them to the other end.
    Refused,
    /// Nothing refuses them, so they stay where they are.
    Untrusted,
}

static HOLDERS: Mutex<Holders> = Mutex::new(Holders::new());

/// What was received.
#[derive(Debug)]
pub enum Received {
    /// A packet of so many bytes, at the start of the buffer, and the files beside it.
    Packet(usize, Vec<OwnedFd>),
    /// Nothing for now.
    Nothing,
    /// The other end has closed.
    End,
    /// A packet that was not sent by the process that connected, or with another user or group than it had then: another process has
    /// been given the socket, or the process has changed its user. Its files are closed.
    Stranger,
    /// A packet that was too long, or had more files than may be, or something else beside it. Its files are closed; at the end of a
    /// service, it stays where it is.
    Cut,
}

/// Whether a packet was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It was.
    Whole,
    /// There is no room for it now.
    NoRoom,
}

impl Channel {
    /// Connects to the service at a path. That is done at once or refused: who listens has a queue.
    ///
    /// # Errors
    /// `ENOENT` where nothing is there; `ECONNREFUSED` where no process listens; `EACCES`; `EAGAIN` where too many wait;
    /// `EPROTOTYPE` where it is a socket of another type; `ENAMETOOLONG` for more than 107 bytes.
    pub fn connect(path: &Path) -> Result<Self, Errno> {
        let socket = sys::packet_socket()?;
        sys::connect(socket.as_fd(), path.as_os_str())?;
        Ok(Self::new(socket, FdPolicy::Accepted, None))
    }

    /// The same, and tries until then for a place in the queue of who listens: others may connect again and again.
    ///
    /// # Errors
    /// As [`Channel::connect`]; `EAGAIN` only when the time is over.
    pub fn connect_until(path: &Path, until: Instant) -> Result<Self, Errno> {
        loop {
            match Self::connect(path) {
                Err(Errno::EAGAIN) if Instant::now() < until => std::thread::sleep(AGAIN),
                connected => return connected,
            }
        }
    }

    const fn new(socket: OwnedFd, files: FdPolicy, sender: Option<(i32, u32, u32)>) -> Self {
        Self { socket, files, sender, given_up: None }
    }

    /// The end of a service. From now on the kernel says of each packet who has sent it (`SO_PASSCRED`, `unix(7)`), and only those of
    /// the process that connected are received: rights go by the connection, and a connection can be handed on.
    pub(super) fn from_accepted(socket: OwnedFd) -> Result<Self, Errno> {
        sys::pass_credentials(socket.as_fd())?;
        let sender = Some(sys::peer_credentials(socket.as_fd())?);
        // Where the listener did not say it before the other end connected, files may wait in it already.
        let files = if sys::refuses_files(socket.as_fd()) { FdPolicy::Refused } else { FdPolicy::Untrusted };
        if files == FdPolicy::Untrusted {
            holders().tend();
        }
        Ok(Self::new(socket, files, sender))
    }

    /// Two ends of one connection.
    #[cfg(test)]
    pub(super) fn pair() -> Result<(Self, Self), Errno> {
        let channel = |socket| Self::new(socket, FdPolicy::Accepted, None);
        sys::socket_pair().map(|(one, other)| (channel(one), channel(other)))
    }

    /// Sends a packet with files, whole or not at all.
    ///
    /// # Errors
    /// `EPIPE` and `ECONNRESET` where no peer is there any more; `EMSGSIZE` for more than the socket's buffer holds;
    /// `ETOOMANYREFS` where as many files are on their way as this user may have; `E2BIG` for more than 253 files.
    pub fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<Sent, Errno> {
        match sys::send_packet(self.socket.as_fd(), bytes, files) {
            Ok(()) => Ok(Sent::Whole),
            Err(Errno::EAGAIN) => Ok(Sent::NoRoom),
            Err(error) => Err(error),
        }
    }

    /// Sends a packet to a peer that doesn't read what was sent before: makes more room for it, once.
    ///
    /// # Errors
    /// As [`Channel::send`].
    pub fn send_last(&self, bytes: &[u8]) -> Result<Sent, Errno> {
        sys::enlarge_send_buffer(self.socket.as_fd())?;
        self.send(bytes, &[])
    }

    /// Whether the next packet has files beside it.
    fn has_files(&self) -> bool {
        let mut seen = sys::has_files(self.socket.as_fd());
        if seen == Err(Errno::ECONNRESET) {
            seen = sys::has_files(self.socket.as_fd());
        }
        seen == Ok(Some(true))
    }

    /// Takes out what waits, up to a packet with files; whether there is one.
    fn drain(&self) -> bool {
        let _ = sys::shut_down_reading(self.socket.as_fd());
        let mut byte = [0];
        while !self.has_files() {
            // Nothing more can come: it ends with the end.
            if !matches!(sys::receive_packet(self.socket.as_fd(), &mut byte, 0), Ok(packet) if packet.bytes > 0) {
                return false;
            }
        }
        true
    }

    /// Receives a packet with at most so many files, if one is there. The end of a service takes none.
    ///
    /// # Errors
    /// `EMFILE` doesn't come from here: files for which there is no number left make the packet [`Received::Cut`]. Others as
    /// in `recvmsg(2)`.
    pub fn receive(&self, into: &mut PacketBuffer, most_files: usize) -> Result<Received, Errno> {
        let most_files = if self.files == FdPolicy::Accepted { most_files } else { 0 };
        if self.files == FdPolicy::Untrusted && self.has_files() {
            return Ok(Received::Cut);
        }
        let mut received = sys::receive_packet(self.socket.as_fd(), &mut into.0, most_files);
        if received.as_ref().is_err_and(|&error| error == Errno::ECONNRESET) {
            // The other end went without reading everything. That is said once, before what it had sent.
            received = sys::receive_packet(self.socket.as_fd(), &mut into.0, most_files);
        }
        match received {
            Ok(packet) if packet.cut => Ok(Received::Cut),
            Ok(packet) if packet.bytes == 0 => Ok(Received::End),
            Ok(packet) if self.sender.is_some() && packet.sender != self.sender => Ok(Received::Stranger),
            Ok(packet) => Ok(Received::Packet(packet.bytes, packet.files)),
            Err(Errno::EAGAIN) => Ok(Received::Nothing),
            Err(Errno::ECONNRESET) => Ok(Received::End),
            Err(error) => Err(error),
        }
    }

    /// Waits until there is something to receive, or the other end has gone; `false` when the time has come instead.
    ///
    /// # Errors
    /// As `ppoll(2)`.
    pub fn wait(&self, until: Instant) -> Result<bool, Errno> {
        let mut entries = [PollEntry::new(self.socket.as_raw_fd())];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match sys::ppoll(&mut entries, Some(left)) {
                Ok(0) if left == Duration::ZERO => return Ok(false),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    /// The process that connected, whatever its number means by now.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 6.5; `EMFILE`; `ESRCH` or `EINVAL` where it is gone.
    pub fn process(&self) -> Result<OwnedFd, Errno> {
        sys::peer_pidfd(self.socket.as_fd())
    }

    /// Who connected. The kernel says it, as it was at that moment; what the other end says of itself is not asked.
    ///
    /// # Errors
    /// As `getsockopt(2)`.
    pub fn peer(&self) -> Result<SocketPeer, Errno> {
        let (pid, uid, gid) = sys::peer_credentials(self.socket.as_fd())?;
        let groups = sys::peer_groups(self.socket.as_fd())?;
        let label = sys::peer_label(self.socket.as_fd()).ok().and_then(|label| String::from_utf8(label).ok());
        let process = match self.process() {
            // Numbers are handed out in turn: between connecting and this, a number would have to come round, and be given to a
            // process of the same user. Code that believes more of it looks at that once more (`crate::peer`).
            Err(Errno::ENOPROTOOPT) if pid > 0 => sys::pidfd_open(pid).ok(),
            process => process.ok(),
        };
        Ok(SocketPeer { pid, uid, gid, groups, label, process })
    }
}

impl Drop for Channel {
    /// Closing the last reference to a socket releases the files in it. Where there may be some, a child has that reference.
    fn drop(&mut self) {
        if self.files != FdPolicy::Untrusted || !self.drain() {
            return;
        }
        holders().give_up(self.socket.as_fd());
        self.given_up = Some(GivenUp);
    }
}

fn holders() -> MutexGuard<'static, Holders> {
    HOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Room for one packet.
pub struct PacketBuffer(Vec<u8>);

impl PacketBuffer {
    /// Room for the longest one.
    #[must_use]
    pub fn new() -> Self {
        // One more: what is longer shows as that, and not as cut.
        Self(vec![0; PACKET_BYTES + 1])
    }

    /// The first bytes.
    #[must_use]
    pub fn bytes(&self, count: usize) -> &[u8] {
        self.0.get(..count).unwrap_or(&self.0)
    }
}

impl Default for PacketBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for PacketBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketBuffer").finish_non_exhaustive()
    }
}

/// Who is at the other end.
#[derive(Debug)]
pub struct SocketPeer {
    /// The process that connected; 0 where it is of a namespace that can't be seen from here.
    pub pid: i32,
    /// Its user then.
    pub uid: u32,
    /// Its group then.
    pub gid: u32,
    /// Its further groups then.
    pub groups: Vec<u32>,
    /// What a security module called it then, if there is one that gives names.
    pub label: Option<String>,
    /// The process itself: what `/proc` says under its number is about this process if this has not ended afterwards. The kernel
    /// tells which one it is since Linux 6.5; before, it is the one that has the number when this is asked, so ask at once.
    pub process: Option<OwnedFd>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    fn packet(channel: &Channel, buffer: &mut PacketBuffer, most_files: usize) -> Received {
        channel.receive(buffer, most_files).unwrap()
    }

    #[test]
    fn packets_keep_their_borders() {
        let (one, other) = Channel::pair().unwrap();
        let mut buffer = PacketBuffer::new();
        assert!(matches!(packet(&other, &mut buffer, 0), Received::Nothing));
        assert!(!other.wait(Instant::now()).unwrap());
        assert_eq!(one.send(b"first", &[]), Ok(Sent::Whole));
        assert_eq!(one.send(b"second one", &[]), Ok(Sent::Whole));
        assert!(other.wait(Instant::now() + Duration::from_secs(60)).unwrap());
        for expected in [&b"first"[..], b"second one"] {
            let Received::Packet(bytes, files) = packet(&other, &mut buffer, 0) else { panic!("no packet") };
            assert_eq!((buffer.bytes(bytes), files.len()), (expected, 0));
        }
        drop(one);
        // A fork of another thread may still have it for a moment.
        assert!(other.wait(Instant::now() + Duration::from_secs(60)).unwrap());
        assert!(matches!(packet(&other, &mut buffer, 0), Received::End));
        assert_eq!(other.send(b"late", &[]), Err(Errno::EPIPE));
    }

    #[test]
    fn files_travel() {
        // A fork of another thread would still have the writer for a moment.
        pmux_testkit::skip_unless!(pmux_testkit::own_process());
        let (one, other) = Channel::pair().unwrap();
        let (reader, writer) = sys::pipe().unwrap();
        let files = [reader.as_fd(), writer.as_fd()];
        assert_eq!(one.send(b"x", &files), Ok(Sent::Whole));
        drop(reader);
        let mut buffer = PacketBuffer::new();
        let Received::Packet(1, mut files) = packet(&other, &mut buffer, 2) else { panic!("no packet") };
        assert_eq!(files.len(), 2);
        File::from(files.pop().unwrap()).write_all(b"through").unwrap();
        drop(writer);
        let mut text = String::new();
        File::from(files.pop().unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    /// Descriptors of this process that lead to this file.
    fn copies_of(file: &OwnedFd) -> usize {
        let link = |fd: &str| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
        let wanted = link(&file.as_raw_fd().to_string()).unwrap();
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        all.filter(|entry| link(&entry.as_ref().unwrap().file_name().to_string_lossy()) == Some(wanted.clone())).count()
    }

    #[test]
    fn files_that_are_not_wanted_are_closed() {
        let mut buffer = PacketBuffer::new();
        for (sent, wanted) in [(1, 0), (2, 1), (3, 1), (64, 63), (253, 10), (253, 252)] {
            let (one, other) = Channel::pair().unwrap();
            let (file, _writer) = sys::pipe().unwrap();
            // Both ends of a pipe are the same link.
            assert_eq!(copies_of(&file), 2);
            assert_eq!(one.send(b"x", &vec![file.as_fd(); sent]), Ok(Sent::Whole));
            assert!(matches!(packet(&other, &mut buffer, wanted), Received::Cut), "{sent} sent, {wanted} wanted");
            assert_eq!(copies_of(&file), 2, "{sent} sent, {wanted} wanted");
        }
        let (one, _other) = Channel::pair().unwrap();
        let (file, _writer) = sys::pipe().unwrap();
        assert_eq!(one.send(b"x", &vec![file.as_fd(); 254]), Err(Errno::E2BIG));
    }

    /// A TCP socket whose last close takes an hour, and the end that does not read.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[7; 65_536]).is_ok() {}
        sys::set_linger(socket.as_fd(), 3600).unwrap();
        (socket.into(), peer)
    }

    /// Does something that must not wait for an hour.
    fn in_time<R: Send + 'static>(what: &str, run: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, result) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(run()));
        result.recv_timeout(Duration::from_secs(300)).unwrap_or_else(|_| panic!("{what} waits"))
    }

    /// Reads until the other end is closed, whatever that looks like.
    fn is_closed(mut peer: TcpStream) {
        let mut room = vec![0; 1 << 20];
        while peer.read(&mut room).is_ok_and(|bytes| bytes > 0) {}
    }

    /// The end of a service, on a kernel that refuses no files.
    fn service_end() -> (Channel, Channel) {
        let (one, other) = sys::socket_pair().unwrap();
        (Channel::from_accepted(one).unwrap(), Channel::new(other, FdPolicy::Accepted, None))
    }

    #[test]
    fn a_service_neither_receives_nor_releases_a_file() {
        // A fork of another thread would keep what is closed open for a moment.
        pmux_testkit::skip_unless!(pmux_testkit::own_process());
        let (service, client) = service_end();
        let (socket, peer) = lingering();
        assert_eq!(client.send(b"good", &[]), Ok(Sent::Whole));
        assert_eq!(client.send(b"bad", &[socket.as_fd()]), Ok(Sent::Whole));
        drop(socket);
        in_time("the service", move || {
            let mut buffer = PacketBuffer::new();
            assert!(matches!(packet(&service, &mut buffer, 1), Received::Packet(4, files) if files.is_empty()));
            // As often as it is asked.
            assert!(matches!(packet(&service, &mut buffer, 1), Received::Cut));
            assert!(matches!(packet(&service, &mut buffer, 1), Received::Cut));
            drop(service);
        });
        in_time("another process", || is_closed(peer));
        assert!(client.send(b"more", &[]).is_err());
    }

    #[test]
    fn a_service_does_not_release_what_it_has_not_looked_at() {
        let (service, client) = service_end();
        let (socket, peer) = lingering();
        for number in 0..100 {
            let files = if number == 70 { vec![socket.as_fd()] } else { Vec::new() };
            assert_eq!(client.send(b"x", &files), Ok(Sent::Whole));
        }
        // Without a byte, it is a packet all the same.
        assert_eq!(client.send(b"", &[socket.as_fd()]), Ok(Sent::Whole));
        drop(socket);
        in_time("the service", || drop(service));
        in_time("another process", || is_closed(peer));
    }

    #[test]
    fn an_empty_packet_with_a_file_is_seen() {
        let (service, client) = service_end();
        let (file, _writer) = sys::pipe().unwrap();
        assert_eq!(client.send(b"", &[file.as_fd()]), Ok(Sent::Whole));
        assert!(matches!(packet(&service, &mut PacketBuffer::new(), 0), Received::Cut));
    }

    #[test]
    fn what_is_too_long_shows() {
        let (one, other) = Channel::pair().unwrap();
        let mut buffer = PacketBuffer::new();
        assert_eq!(one.send(&vec![7; PACKET_BYTES], &[]), Ok(Sent::Whole));
        assert!(matches!(packet(&other, &mut buffer, 0), Received::Packet(PACKET_BYTES, _)));
        let (file, _writer) = sys::pipe().unwrap();
        assert_eq!(one.send(&vec![7; PACKET_BYTES + 2], &[file.as_fd()]), Ok(Sent::Whole));
        assert!(matches!(packet(&other, &mut buffer, 4), Received::Cut));
        assert_eq!(copies_of(&file), 2);
    }

    #[test]
    fn a_full_socket_says_so() {
        let (one, other) = Channel::pair().unwrap();
        let mut sent = 0;
        while one.send(&[0; 1000], &[]) == Ok(Sent::Whole) {
            sent += 1;
            assert!(sent < 100_000, "a socket takes anything");
        }
        let mut buffer = PacketBuffer::new();
        for _ in 0..sent {
            assert!(matches!(packet(&other, &mut buffer, 0), Received::Packet(1000, _)));
        }
        assert!(matches!(packet(&other, &mut buffer, 0), Received::Nothing));
        assert_eq!(one.send(&[0; 1000], &[]), Ok(Sent::Whole));
    }

    #[test]
    fn there_is_room_for_a_last_word() {
        let (one, other) = Channel::pair().unwrap();
        while one.send(&[0; 1000], &[]) == Ok(Sent::Whole) {}
        assert_eq!(one.send_last(b"farewell"), Ok(Sent::Whole));
        drop(one);
        let mut buffer = PacketBuffer::new();
        let mut last = Vec::new();
        while let Received::Packet(bytes, _) = packet(&other, &mut buffer, 0) {
            last = buffer.bytes(bytes).to_vec();
        }
        assert_eq!(last, b"farewell");
    }

    #[test]
    fn an_end_with_an_unread_packet_is_an_end() {
        let (one, other) = Channel::pair().unwrap();
        other.send(b"never read", &[]).unwrap();
        one.send(b"last words", &[]).unwrap();
        drop(one);
        let mut buffer = PacketBuffer::new();
        assert!(matches!(packet(&other, &mut buffer, 0), Received::Packet(10, _)), "its last words are not lost");
        assert!(other.wait(Instant::now() + Duration::from_secs(60)).unwrap());
        assert!(matches!(packet(&other, &mut buffer, 0), Received::End));
    }

    #[test]
    fn the_peer_is_who_the_kernel_says() {
        let (one, _other) = Channel::pair().unwrap();
        let peer = one.peer().unwrap();
        assert_eq!(peer.pid, std::process::id().cast_signed());
        let status = crate::procfs::Proc::system().own_status().unwrap();
        assert_eq!((peer.uid, peer.gid), (status.users.effective, status.groups.effective));
        assert_eq!(peer.groups, status.further_groups);
    }
}
