//! The socket on which the kernel tells about devices.
//!
//! **Invariant:** who sent a message is always part of the answer: any process may send to a netlink socket.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::socket::set_option;
use super::{Errno, check, check_size, descriptor, uninterrupted};

/// The group in which the kernel itself speaks; the device manager repeats in another.
const KERNEL_GROUP: u32 = 1;
/// Room for messages: a large machine that is rearranged sends many at once.
const RECEIVE_BYTES: libc::c_int = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sender {
    Kernel,
    /// Some process, so whatever it says proves nothing.
    Process,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Datagram {
    pub(crate) sender: Sender,
    /// Its length in bytes, cut to the buffer.
    pub(crate) bytes: usize,
}

/// Opens a socket that hears the kernel's device messages; it doesn't block.
///
/// Errors: `EAFNOSUPPORT` and `EPROTONOSUPPORT` in kernels and sandboxes without; `EMFILE`.
pub(crate) fn open_uevent_socket() -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: (1) The call touches no memory. (2) It makes the descriptor.
    let socket = unsafe { descriptor(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT)) }?;
    // With less room, an overrun only comes earlier and is reported as one.
    let enlarge = |option| set_option(socket.as_fd(), option, &RECEIVE_BYTES);
    let _ = enlarge(libc::SO_RCVBUFFORCE).or_else(|_| enlarge(libc::SO_RCVBUF));
    let mut address = no_address();
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = KERNEL_GROUP;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: (1) `address` is readable for `length`.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

fn no_address() -> libc::sockaddr_nl {
    // SAFETY: (1) `sockaddr_nl` is plain numbers: all zeroes is a value of it.
    unsafe { mem::zeroed() }
}

/// Receives one message.
///
/// Errors: `EAGAIN` where there is none; `ENOBUFS` where some were lost before the next.
pub(crate) fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<Datagram, Errno> {
    let mut from = no_address();
    let size = size_of_val(&from);
    let mut length = size as libc::socklen_t;
    let bytes = uninterrupted(|| {
        // SAFETY: (1) `into` is writable for its length. (2) `from` is writable for `length`, which is writable too.
        // (3) The borrow keeps the descriptor open.
        check_size(unsafe {
            libc::recvfrom(
                socket.as_raw_fd(),
                into.as_mut_ptr().cast(),
                into.len(),
                0,
                (&raw mut from).cast(),
                &raw mut length,
            )
        })
    })?;
    // An address of another size leaves the numbers unproven, so it isn't the kernel's.
    let kernel = length as usize == size && from.nl_pid == 0;
    Ok(Datagram { sender: if kernel { Sender::Kernel } else { Sender::Process }, bytes })
}

/// Sends bytes from one such socket to another of this machine, for tests of who is believed.
#[cfg(test)]
pub(crate) fn send_as_process(from: BorrowedFd<'_>, to: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Errno> {
    let mut address = no_address();
    let mut length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: (1) `address` is writable for `length`, which is writable too. (2) The borrow keeps `to` open.
    check(unsafe { libc::getsockname(to.as_raw_fd(), (&raw mut address).cast(), &raw mut length) })?;
    address.nl_groups = 0;
    // SAFETY: (1) `bytes` and `address` are readable for the lengths given. (2) The borrow keeps `from` open.
    check_size(unsafe {
        libc::sendto(from.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0, (&raw const address).cast(), length)
    })
    .map(drop)
}
