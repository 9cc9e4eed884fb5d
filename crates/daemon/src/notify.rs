//! What a service manager is told: that the service listens, that its loop goes round, and that it stops.
//!
//! What it is: [`Manager`]: datagrams to the socket that `NOTIFY_SOCKET` names. Source: `sd_notify(3)`, `sd_watchdog_enabled(3)`.
//!
//! **Invariant:** nothing here waits, and nothing fails: a manager that can't be told hears nothing.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager that started this process, if one did.
#[derive(Debug)]
pub(crate) struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear of the loop, half of the time after which it ends the service.
    every_ns: Option<u64>,
    /// When [`Manager::goes_round`] is to be called; `u64::MAX` where nothing waits for it.
    pub(crate) next_ns: u64,
}

impl Manager {
    pub(crate) fn of_environment() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
        let watched = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        Self::new(std::env::var_os("NOTIFY_SOCKET"), number("WATCHDOG_USEC").filter(|_| watched))
    }

    fn new(place: Option<OsString>, watchdog_us: Option<u64>) -> Self {
        let socket = place.and_then(|place| {
            let address = match place.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                _ => SocketAddr::from_pathname(&place),
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, address.ok()?))
        });
        let every_ns = watchdog_us.filter(|&us| us > 0 && socket.is_some()).map(|us| us.saturating_mul(500));
        Self { socket, every_ns, next_ns: if every_ns.is_some() { 0 } else { u64::MAX } }
    }

    /// Says something, as `READY=1`.
    pub(crate) fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }

    /// The loop has come round.
    pub(crate) fn goes_round(&mut self, now_ns: u64) {
        if let (Some(every), true) = (self.every_ns, now_ns >= self.next_ns) {
            self.send("WATCHDOG=1");
            self.next_ns = now_ns + every;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_datagrams_are_sent_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let heard = UnixDatagram::bind(&path).unwrap();
        heard.set_nonblocking(true).unwrap();
        let mut room = [0; 64];
        let mut next = || heard.recv(&mut room).ok().map(|bytes| String::from_utf8_lossy(&room[..bytes]).into_owned());
        let mut manager = Manager::new(Some(path.into()), Some(2_000_000));
        manager.send("READY=1");
        assert_eq!(next().as_deref(), Some("READY=1"));
        manager.goes_round(5);
        assert_eq!((next().as_deref(), manager.next_ns), (Some("WATCHDOG=1"), 1_000_000_005));
        manager.goes_round(1_000_000_004);
        assert_eq!(next(), None);
        manager.goes_round(1_000_000_005);
        assert_eq!(next().as_deref(), Some("WATCHDOG=1"));
    }

    #[test]
    fn without_a_manager_nothing_is_waited_for() {
        let mut silent = Manager::new(None, Some(1));
        silent.send("READY=1");
        silent.goes_round(7);
        assert_eq!(silent.next_ns, u64::MAX);
        assert_eq!(Manager::new(Some("/nowhere/at/all".into()), None).next_ns, u64::MAX);
    }
}
