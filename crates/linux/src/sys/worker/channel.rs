//! The socket of a worker: messages, and with some of them a descriptor.
//!
//! **Invariant:** a message comes whole or not at all, and no descriptor that came along is lost.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::Message;
use crate::sys::{Errno, check_size, message_of, send_packet, uninterrupted};

/// Room for one descriptor beside a message, aligned as its header.
#[repr(C, align(8))]
struct ControlBuffer([u8; 64]);

/// Sends a message, and a descriptor with it. Allocates nothing.
///
/// Errors: `EPIPE` where the other end has gone; `ETOOMANYREFS`.
pub(crate) fn send(socket: BorrowedFd<'_>, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    // So few bytes go into a socket at once, or not at all.
    send_packet(socket, message.map(u64::to_ne_bytes).as_flattened(), fd.as_slice())
}

pub(crate) enum WorkerPacket {
    /// A message, perhaps with a descriptor (close-on-exec).
    Message(Message, Option<OwnedFd>),
    /// The other end has gone.
    End,
}

/// Waits for a message. Allocates nothing.
///
/// Errors: those of `recvmsg(2)`; `EINVAL` for a message that is cut off.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<WorkerPacket, Errno> {
    let mut message: Message = [0; 8];
    let mut part = libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: size_of::<Message>() };
    let mut control = ControlBuffer([0; 64]);
    let mut header = message_of(&mut part);
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_WAITALL;
    let came = uninterrupted(|| {
        // SAFETY: (1) The header points to one writable part and to a writable control buffer, of the sizes that it says. (2) The
        // borrow keeps the descriptor open.
        check_size(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) })
    });
    let came = match came {
        // An end that was killed with something unread.
        Err(Errno::ECONNRESET) => 0,
        other => other?,
    };
    let mut fd = None;
    // SAFETY: (1) The kernel has filled the control buffer as far as the header now says; the macro answers null or a place in it.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    if !first.is_null() {
        // SAFETY: (1) It is a header in `control`, see above. (2) With this level and type, a descriptor follows it, which
        // the kernel has just made for us: no other code knows it. The sender sends one at most.
        unsafe {
            if (*first).cmsg_level == libc::SOL_SOCKET && (*first).cmsg_type == libc::SCM_RIGHTS {
                fd = Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<RawFd>().read_unaligned()));
            }
        }
    }
    match came {
        0 => Ok(WorkerPacket::End),
        came if came == size_of::<Message>() => Ok(WorkerPacket::Message(message, fd)),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn messages_and_descriptors_arrive() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut kept, given) = UnixStream::pair().unwrap();
        let message = [1, 2, 3, 4, 5, 6, 7, u64::MAX];
        send(here.as_fd(), &message, None).unwrap();
        send(here.as_fd(), &message, Some(given.as_fd())).unwrap();
        drop(given);
        let Ok(WorkerPacket::Message(first, None)) = receive(there.as_fd()) else { panic!("a message alone") };
        assert_eq!(first, message);
        let Ok(WorkerPacket::Message(_, Some(fd))) = receive(there.as_fd()) else {
            panic!("a message with a descriptor")
        };
        UnixStream::from(fd).write_all(b"hello").unwrap();
        let mut text = String::new();
        // The copy that was received was the last one: the stream ends.
        kept.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn an_end_that_has_gone_is_told() {
        // A fork of another thread would still have it for a moment.
        pmux_testkit::skip_unless!(pmux_testkit::own_process());
        let (here, there) = UnixStream::pair().unwrap();
        drop(here);
        assert!(matches!(receive(there.as_fd()), Ok(WorkerPacket::End)));
        assert_eq!(send(there.as_fd(), &[0; 8], None), Err(Errno::EPIPE));
    }

    #[test]
    fn half_a_message_is_none() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(&[1; 10]).unwrap();
        drop(here);
        assert!(matches!(receive(there.as_fd()), Err(Errno::EINVAL)));
    }
}
