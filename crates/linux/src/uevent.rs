//! CPUs that come and go, as the kernel announces them.
//!
//! What it is: [`UeventSocket`], a descriptor to poll, and [`CpuUevent`], what was heard on it. A message is a hint to
//! look at `/sys/devices/system/cpu/online`: it may be late, and messages may be lost.
//!
//! **Invariant:** only the kernel is believed, and only about CPUs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::{self, Errno, Sender};

/// Most bytes of a message: the kernel's own buffer for the variables is 2 KiB, and the path comes before.
const MESSAGE_BYTES: usize = 8192;
/// What stands before the number of a CPU in the path of its device.
const CPU_PATH: &[u8] = b"/devices/system/cpu/cpu";

/// What the kernel said about its CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuUevent {
    /// The CPU has come online.
    Online(u32),
    /// The CPU has gone offline.
    Offline(u32),
    /// Messages were lost: anything may have changed.
    Rescan,
}

/// A socket on which the kernel announces devices.
#[derive(Debug)]
pub struct UeventSocket {
    socket: OwnedFd,
}

impl UeventSocket {
    /// Opens the socket; messages from now on are heard.
    ///
    /// In a network namespace of an unprivileged container it opens, but hears nothing.
    ///
    /// Errors: `EAFNOSUPPORT`, `EPROTONOSUPPORT` and `EPERM` where a sandbox has none; `EMFILE`.
    /// Source: `netlink(7)`, `NETLINK_KOBJECT_UEVENT`.
    pub fn open() -> Result<Self, Errno> {
        Ok(Self { socket: sys::open_uevent_socket()? })
    }

    /// Passes on all that was heard about CPUs since the last call; doesn't wait.
    ///
    /// Errors: those of `recvfrom(2)`; having nothing is none.
    pub fn drain(&mut self, sink: &mut dyn FnMut(CpuUevent)) -> Result<(), Errno> {
        let mut buffer = [0; MESSAGE_BYTES];
        loop {
            match sys::receive(self.socket.as_fd(), &mut buffer) {
                Ok(message) if message.sender == Sender::Kernel => {
                    if let Some(event) = buffer.get(..message.bytes).and_then(parse_cpu_uevent) {
                        sink(event);
                    }
                }
                Ok(_) => {}
                Err(Errno::ENOBUFS) => sink(CpuUevent::Rescan),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for UeventSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reads a message of the kernel; `None` where it isn't about a CPU that came or went.
///
/// The form is `action@path`, then `NAME=value` strings, each ended by a zero byte. Messages made on request of a
/// process (with `SYNTH_UUID`) tell no news and are passed over.
#[must_use]
pub fn parse_cpu_uevent(message: &[u8]) -> Option<CpuUevent> {
    let mut lines = message.split(|&byte| byte == 0);
    let head = lines.next()?;
    let at = head.iter().position(|&byte| byte == b'@')?;
    let (action, path) = (&head[..at], &head[at + 1..]);
    let make: fn(u32) -> CpuUevent = match action {
        b"online" => CpuUevent::Online,
        b"offline" => CpuUevent::Offline,
        _ => return None,
    };
    if lines.any(|line| line.starts_with(b"SYNTH_UUID=")) {
        return None;
    }
    number(path.strip_prefix(CPU_PATH)?).map(make)
}

/// A plain decimal number: no sign, no more than digits.
fn number(digits: &[u8]) -> Option<u32> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFLINE: &[u8] = b"offline@/devices/system/cpu/cpu1\0ACTION=offline\0DEVPATH=/devices/system/cpu/cpu1\0\
        SUBSYSTEM=cpu\0DRIVER=processor\0MODALIAS=cpu:type:x86\0SEQNUM=1234\0";

    #[test]
    fn cpus_coming_and_going_are_understood() {
        assert_eq!(parse_cpu_uevent(OFFLINE), Some(CpuUevent::Offline(1)));
        let online = b"online@/devices/system/cpu/cpu255\0ACTION=online\0SEQNUM=1\0";
        assert_eq!(parse_cpu_uevent(online), Some(CpuUevent::Online(255)));
        assert_eq!(parse_cpu_uevent(b"online@/devices/system/cpu/cpu0"), Some(CpuUevent::Online(0)));
    }

    #[test]
    fn everything_else_is_passed_over() {
        let others: [&[u8]; 14] = [
            b"",
            b"\0",
            b"@",
            b"offline",
            b"offline@",
            b"offline@/devices/system/cpu/cpu",
            b"offline@/devices/system/cpu/cpu1/cache",
            b"offline@/devices/system/cpu/cpu+1",
            b"offline@/devices/system/cpu/cpu99999999999",
            b"offline@/devices/system/memory/memory1",
            b"change@/devices/system/cpu/cpu1",
            b"online@/devices/system/cpu/cpu\xff",
            b"libudev\0offline@/devices/system/cpu/cpu1\0",
            b"online@/devices/system/cpu/cpu1\0ACTION=online\0SYNTH_UUID=0\0",
        ];
        for message in others {
            assert_eq!(parse_cpu_uevent(message), None, "{}", String::from_utf8_lossy(message));
        }
    }

    #[test]
    fn every_cut_of_a_message_is_survived() {
        for end in 0..OFFLINE.len() {
            let _ = parse_cpu_uevent(&OFFLINE[..end]);
        }
    }

    #[test]
    fn only_the_kernel_is_believed() {
        let (mut socket, liar) = match (UeventSocket::open(), sys::open_uevent_socket()) {
            (Ok(socket), Ok(liar)) => (socket, liar),
            (Err(error), _) | (_, Err(error)) => return println!("skipped: needs a uevent socket ({error})"),
        };
        socket.drain(&mut |_| {}).unwrap();
        // A CPU that no machine has, so a real message can't be taken for it.
        let lie = b"offline@/devices/system/cpu/cpu77777\0ACTION=offline\0";
        if let Err(error) = sys::send_as_process(liar.as_fd(), socket.as_fd(), lie) {
            return println!("skipped: needs the right to send to a netlink socket ({error})");
        }
        let mut raw = [0; 256];
        let mut heard = sys::receive(socket.as_fd(), &mut raw).unwrap();
        while heard.sender == Sender::Kernel {
            heard = sys::receive(socket.as_fd(), &mut raw).unwrap();
        }
        assert_eq!(&raw[..heard.bytes], lie, "it did arrive");
        sys::send_as_process(liar.as_fd(), socket.as_fd(), lie).unwrap();
        socket.drain(&mut |event| assert_ne!(event, CpuUevent::Offline(77777))).unwrap();
    }
}
