//! What makes no sense although each word of it is understood.
//!
//! **Invariant:** a sentence names the key and what it may be.

use super::{CgroupPattern, Config, GroupName, Listen, Mode};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Most entries of a page.
const MOST_ENTRIES: u32 = 16 * 1024;

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mode = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok().filter(|mode| *mode <= 0o777);
        mode.map(Self).ok_or_else(|| format!("`{text}` is no mode: permissions in octal, as \"0660\""))
    }
}

impl TryFrom<String> for CgroupPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        pmux::serving::Pattern::parse(&text).map(Self).map_err(|error| error.to_string())
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Loopback(address)),
            Ok(address) => {
                Err(format!("{address} can be reached from outside: listen on 127.0.0.1, ::1 or a Unix socket"))
            }
            Err(_) => {
                Err(format!("`{text}` is neither an address with a port (\"127.0.0.1:9464\") nor the path of a socket"))
            }
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), String> {
        let limits = &self.limits;
        let least = [
            ("limits.clients", limits.clients, 1),
            ("limits.clients_per_user", limits.clients_per_user, 1),
            ("limits.events_per_client", limits.events_per_client, 1),
            ("limits.events", limits.events, 1),
            ("limits.requests_per_second", limits.requests_per_second, 1),
            ("limits.queue_kib", limits.queue_kib, 128),
            ("limits.slow_ms", limits.slow_ms, 100),
            ("counting.refresh_ms", self.counting.refresh_ms, 1),
            ("metrics.most_cgroups", self.metrics.most_cgroups, 1),
        ];
        for (key, value, least) in least {
            if value < least {
                return Err(format!("`{key}` is {value}; it must be at least {least}"));
            }
        }
        if limits.page_entries > MOST_ENTRIES {
            return Err(format!(
                "`limits.page_entries` is {}; it may be at most {}",
                limits.page_entries, MOST_ENTRIES
            ));
        }
        if self.socket.path.as_ref().is_some_and(|path| !path.is_absolute()) {
            return Err("`socket.path` must begin with a /".to_owned());
        }
        Ok(())
    }
}

impl GroupName {
    /// Its number, with the text of a group file.
    ///
    /// # Errors
    /// A sentence, where there is no such group.
    pub fn number(&self, group_file: &str) -> Result<u32, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Name(name) => {
                let line = group_file.lines().find(|line| line.split(':').next() == Some(name));
                let number = line.and_then(|line| line.split(':').nth(2)?.parse().ok());
                number.ok_or_else(|| format!("there is no group `{name}` in /etc/group"))
            }
        }
    }
}
