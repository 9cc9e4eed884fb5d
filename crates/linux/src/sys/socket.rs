//! Unix sockets that keep packets apart, and the files that travel beside a packet.
//!
//! **Invariant:** a file that was received is owned from the moment on in which the call returns, also where something else
//! about the packet was wrong.

use std::ffi::OsStr;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use super::{Errno, check, check_size, descriptor, message_of, uninterrupted};

/// More files than this the kernel passes with no packet.
const MOST_FILES: usize = 253;
/// Words of the control message with all files.
const CONTROL_WORDS: usize = (control_bytes(MOST_FILES) + CREDENTIALS_BYTES).div_ceil(8);
/// Bytes of a control message with the sender's credentials.
// SAFETY: (1) The call only computes.
const CREDENTIALS_BYTES: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as libc::c_uint) as usize };
/// Whether files may be sent to a socket (Linux 6.16). What connects to a listener takes the setting over.
const SO_PASSRIGHTS: libc::c_int = 83;
/// A descriptor of the process at the other end (Linux 6.5).
const SO_PEERPIDFD: libc::c_int = 77;

/// Bytes of a control message with so many files, and its padding.
const fn control_bytes(files: usize) -> usize {
    // SAFETY: (1) The call only computes.
    unsafe { libc::CMSG_SPACE((files * size_of::<RawFd>()) as libc::c_uint) as usize }
}

pub(crate) fn socket_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    pair(KIND)
}

/// Makes two sockets of a kind that are connected to each other. Allocates and locks nothing: a forked child calls it, too.
pub(super) fn pair(kind: libc::c_int) -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [-1; 2];
    // SAFETY: (1) `ends` has room for the two descriptors that the call writes.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    // SAFETY: (1) The call succeeded, so both are open descriptors. (2) Nothing else owns them yet.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

pub(super) fn set_option<T>(socket: BorrowedFd<'_>, name: libc::c_int, value: &T) -> Result<(), Errno> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: (1) `value` is readable and `size` long. (2) The borrow keeps the descriptor open.
    let answer =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, std::ptr::from_ref(value).cast(), size) };
    check(answer).map(drop)
}

/// Lets the close of a TCP socket wait for so long until its peer has taken what was sent.
#[cfg(test)]
pub(crate) fn set_linger(socket: BorrowedFd<'_>, seconds: i32) -> Result<(), Errno> {
    set_option(socket, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: seconds })
}

const KIND: libc::c_int = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

/// Makes a socket of packets; it doesn't block.
pub(crate) fn packet_socket() -> Result<OwnedFd, Errno> {
    // SAFETY: (1) The call touches no memory. (2) It makes the descriptor.
    unsafe { descriptor(libc::socket(libc::AF_UNIX, KIND, 0)) }
}

/// The address of a path, and its length.
fn address_of(path: &OsStr) -> Result<(libc::sockaddr_un, libc::socklen_t), Errno> {
    // SAFETY: (1) `sockaddr_un` is plain numbers: all zeroes is a value of it.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_bytes();
    // Room for the zero byte at the end; and a path that begins with one is none.
    if bytes.len() >= address.sun_path.len() {
        return Err(Errno::ENAMETOOLONG);
    }
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(Errno::EINVAL);
    }
    for (to, &from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    let length = mem::offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    Ok((address, length as libc::socklen_t))
}

/// Gives the socket a place in the file system.
///
/// Errors: `EADDRINUSE` where something is there; `ENAMETOOLONG`; `EINVAL`; those of making a file.
pub(crate) fn bind(socket: BorrowedFd<'_>, path: &OsStr) -> Result<(), Errno> {
    let (address, length) = address_of(path)?;
    // SAFETY: (1) `address` is readable for `length`. (2) The borrow keeps the descriptor open.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
}

/// Lets others connect; so many may wait.
pub(crate) fn listen(socket: BorrowedFd<'_>, waiting: i32) -> Result<(), Errno> {
    // SAFETY: (1) The call touches no memory. (2) The borrow keeps the descriptor open.
    check(unsafe { libc::listen(socket.as_raw_fd(), waiting) }).map(drop)
}

/// Connects to the socket at a path.
///
/// Errors: `ENOENT`; `ECONNREFUSED` where no process listens any more; `EAGAIN` where too many wait already; `EACCES`;
/// `EPROTOTYPE` where it is of another type.
pub(crate) fn connect(socket: BorrowedFd<'_>, path: &OsStr) -> Result<(), Errno> {
    let (address, length) = address_of(path)?;
    // SAFETY: (1) `address` is readable for `length`. (2) The borrow keeps the descriptor open.
    uninterrupted(|| check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) })).map(drop)
}

/// Takes one that has connected; it doesn't block.
///
/// Errors: `EAGAIN` where there is none; `EMFILE`, `ENFILE`; `ECONNABORTED` where it has left again.
pub(crate) fn accept(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    uninterrupted(|| {
        // SAFETY: (1) Null pointers ask for no address. (2) The borrow keeps the socket open. (3) The call makes the descriptor.
        unsafe { descriptor(libc::accept4(socket.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags)) }
    })
}

/// Sends a packet with files; whole, or not at all. Allocates and locks nothing: a forked child calls it, too.
///
/// Errors: `EAGAIN` where there is no room; `EPIPE` and `ECONNRESET` where no peer is there; `EMSGSIZE` where it is larger than
/// the socket's buffer; `ETOOMANYREFS` where too many files are on their way; `E2BIG` for more than 253 files.
pub(crate) fn send_packet(socket: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    if files.len() > MOST_FILES {
        return Err(Errno::E2BIG);
    }
    let mut control = [0_u64; CONTROL_WORDS];
    let mut parts = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = message_of(&mut parts);
    if !files.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = control_bytes(files.len()) as _;
        // SAFETY: (1) `msg_control` points to at least `msg_controllen` bytes, aligned for a header, so the first header lies
        // within. (2) The files' numbers end before `msg_controllen`, which was computed for so many.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of_val(files) as libc::c_uint) as _;
            let data: *mut RawFd = libc::CMSG_DATA(header).cast();
            for (at, file) in files.iter().enumerate() {
                data.add(at).write_unaligned(file.as_raw_fd());
            }
        }
    }
    let sent = uninterrupted(|| {
        // SAFETY: (1) `message` points to `bytes`, which the kernel only reads, and to `control`; both outlive the call.
        // (2) The borrows keep all descriptors open.
        check_size(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) })
    })?;
    // Packets are never cut.
    if sent == bytes.len() { Ok(()) } else { Err(Errno::EIO) }
}

#[derive(Debug, Default)]
pub(crate) struct PacketIn {
    /// Its length; 0 where the other end has closed (or has sent nothing: who does that is not wanted either).
    pub(crate) bytes: usize,
    /// Who has sent it, process, user and group, where the socket asks for that.
    pub(crate) sender: Option<(i32, u32, u32)>,
    pub(crate) files: Vec<OwnedFd>,
    /// Whether it was longer than the room for it, or had more files, or something else beside it.
    pub(crate) cut: bool,
}

/// Receives a packet with at most so many files.
///
/// Errors: `EAGAIN` where there is none; `ECONNRESET`.
pub(crate) fn receive_packet(socket: BorrowedFd<'_>, into: &mut [u8], most_files: usize) -> Result<PacketIn, Errno> {
    let mut control = [0_u64; CONTROL_WORDS];
    let mut parts = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut message = message_of(&mut parts);
    message.msg_control = control.as_mut_ptr().cast();
    // Without the padding, in which one more file might find room.
    let room = (CREDENTIALS_BYTES + control_bytes(most_files.min(MOST_FILES))).min(size_of_val(&control));
    message.msg_controllen = room as _;
    let bytes = uninterrupted(|| {
        // SAFETY: (1) `message` points to `into` and `control`, writable for the lengths that it states; both outlive the
        // call. (2) The borrow keeps the descriptor open.
        check_size(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) })
    })?;
    let mut packet = PacketIn { bytes, ..PacketIn::default() };
    packet.cut = message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    // SAFETY: (0) A message with credentials holds a `ucred`, whose bytes are numbers. (1) The kernel has filled `control` up to the
    // `msg_controllen` that it has written back, which the loop of `CMSG_FIRSTHDR` and `CMSG_NXTHDR` keeps to. (2) The numbers of an
    // `SCM_RIGHTS` are open descriptors that the call has just made for this process, and no other code knows: so each is owned, once.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let length = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data: *const RawFd = libc::CMSG_DATA(header).cast();
                for at in 0..length / size_of::<RawFd>() {
                    packet.files.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                }
            } else if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_CREDENTIALS {
                let who: libc::ucred = libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned();
                packet.sender = Some((who.pid, who.uid, who.gid));
            } else {
                packet.cut = true;
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    packet.cut |= packet.files.len() > most_files;
    Ok(packet)
}

/// Lets the kernel refuse files that are sent to a socket: then `sendmsg(2)` fails with `EPERM` at the other end. On a listener it
/// holds for all that connect from now on.
///
/// Errors: `ENOPROTOOPT` before Linux 6.16.
pub(crate) fn refuse_files(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let off: libc::c_int = 0;
    set_option(socket, SO_PASSRIGHTS, &off)
}

/// Whether the kernel refuses files that are sent to a socket.
pub(crate) fn refuses_files(socket: BorrowedFd<'_>) -> bool {
    option(socket, SO_PASSRIGHTS) == Ok(0)
}

/// Whether files are beside the next packet, which stays where it is.
///
/// The socket may ask for credentials (`SO_PASSCRED`), which come before files, and for nothing else: without room, that would look the
/// same.
///
/// Errors: `EAGAIN` where there is no packet; `ECONNRESET`.
pub(crate) fn has_files(socket: BorrowedFd<'_>) -> Result<Option<bool>, Errno> {
    let mut byte = 0_u8;
    let mut parts = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut message = message_of(&mut parts);
    let mut control = [0_u64; CREDENTIALS_BYTES.div_ceil(8)];
    if option(socket, libc::SO_PASSCRED)? != 0 {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CREDENTIALS_BYTES as _;
    }
    let bytes = uninterrupted(|| {
        // SAFETY: (1) `message` points to `byte` and `control`, writable for the lengths that it states: there is room for credentials
        // and not for a file. (2) The borrow keeps the descriptor open.
        check_size(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_PEEK | libc::MSG_DONTWAIT) })
    })?;
    let files = message.msg_flags & libc::MSG_CTRUNC != 0;
    Ok((files || bytes > 0).then_some(files))
}

/// Lets nothing more be sent to a socket: the other end gets `EPIPE`. What waits can be received still.
pub(crate) fn shut_down_reading(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: (1) The call touches no memory. (2) The borrow keeps the descriptor open.
    check(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RD) }).map(drop)
}

/// Makes the room for what was sent and not received yet as large as the system allows without privileges.
pub(crate) fn enlarge_send_buffer(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // The kernel takes the most that it allows, and doubles it.
    let most: libc::c_int = 1 << 20;
    set_option(socket, libc::SO_SNDBUF, &most)
}

/// A number that a socket knows.
fn option(socket: BorrowedFd<'_>, name: libc::c_int) -> Result<libc::c_int, Errno> {
    let mut value: libc::c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: (1) `value` is writable for `length`, which is writable too. (2) The borrow keeps the descriptor open.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length)
    })?;
    if length as usize == size_of_val(&value) { Ok(value) } else { Err(Errno::EINVAL) }
}

/// Whether this is a socket of packets in the file system's family that others can connect to.
pub(crate) fn is_packet_listener(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(option(socket, libc::SO_DOMAIN)? == libc::AF_UNIX
        && option(socket, libc::SO_TYPE)? == libc::SOCK_SEQPACKET
        && option(socket, libc::SO_ACCEPTCONN)? != 0)
}

/// From now on each packet that is received says who has sent it (`SO_PASSCRED`); what a listening socket is asked for, its connections
/// are asked for too.
pub(crate) fn pass_credentials(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    set_option(socket, libc::SO_PASSCRED, &on)
}

/// Who connected: the process, the user and the group that it had then.
pub(crate) fn peer_credentials(socket: BorrowedFd<'_>) -> Result<(i32, u32, u32), Errno> {
    let who = option_bytes(socket, libc::SO_PEERCRED)?;
    let &[pid, user, group] = who.as_chunks::<4>().0 else { return Err(Errno::EINVAL) };
    Ok((i32::from_ne_bytes(pid), u32::from_ne_bytes(user), u32::from_ne_bytes(group)))
}

/// What a socket knows, of a length that is not known beforehand.
fn option_bytes(socket: BorrowedFd<'_>, name: libc::c_int) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0_u8; 256];
    loop {
        let mut length = bytes.len() as libc::socklen_t;
        // SAFETY: (1) `bytes` is writable for `length`, which is writable too. (2) The borrow keeps the descriptor open.
        let answer = check(unsafe {
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, bytes.as_mut_ptr().cast(), &raw mut length)
        });
        match answer {
            // The kernel says how much room it takes.
            Err(Errno::ERANGE) if length as usize > bytes.len() => bytes.resize(length as usize, 0),
            Err(error) => return Err(error),
            Ok(_) => {
                bytes.truncate(length as usize);
                return Ok(bytes);
            }
        }
    }
}

pub(crate) fn peer_groups(socket: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    let bytes = option_bytes(socket, libc::SO_PEERGROUPS)?;
    Ok(bytes.as_chunks().0.iter().map(|&group| u32::from_ne_bytes(group)).collect())
}

/// The label that a security module gave who connected, without the zero byte that may end it.
///
/// Errors: `ENOPROTOOPT` where no module labels sockets.
pub(crate) fn peer_label(socket: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let mut label = option_bytes(socket, libc::SO_PEERSEC)?;
    while label.last() == Some(&0) {
        label.pop();
    }
    Ok(label)
}

/// A descriptor of the process that connected, also when its number belongs to another one by now.
///
/// Errors: `ENOPROTOOPT` before Linux 6.5; `ESRCH` or `EINVAL` where it is gone.
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let fd = option(socket, SO_PEERPIDFD)?;
    // SAFETY: (1) The call has made the descriptor for its caller. (2) Nothing else owns it yet.
    unsafe { descriptor(fd) }
}

/// The first descriptor that a service manager hands over. Source: `sd_listen_fds(3)`.
const FIRST_HANDED_OVER: RawFd = 3;
/// More than this no manager hands over.
const MOST_HANDED_OVER: RawFd = 64;

/// Copies of the descriptors that a service manager has handed over to this process, as `LISTEN_PID` and `LISTEN_FDS` say, each with
/// its place among them; none where it was not started so. The descriptors themselves stay open, so that a manager's socket outlives
/// this process's use of it.
pub(crate) fn handed_over() -> Vec<(usize, OwnedFd)> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<RawFd>().ok());
    if number("LISTEN_PID") != Some(std::process::id().cast_signed()) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or_default().clamp(0, MOST_HANDED_OVER);
    let copy = |(place, number): (usize, RawFd)| {
        // SAFETY: (1) The call touches no memory. (2) By the manager's protocol these numbers were open before this process ran, and
        // belong to none of its parts. (3) The call makes the descriptor.
        let copy = unsafe { descriptor(libc::fcntl(number, libc::F_DUPFD_CLOEXEC, FIRST_HANDED_OVER)) };
        Some((place, copy.ok()?))
    };
    (FIRST_HANDED_OVER..FIRST_HANDED_OVER + count).enumerate().filter_map(copy).collect()
}

/// Lets a descriptor not block, as all of ours.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: (1) The call touches no memory. (2) The borrow keeps the descriptor open.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: (1) As before; only the one flag is added.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}
