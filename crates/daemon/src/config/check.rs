//! What makes no sense although each word of it is understood.
//!
//! **Invariant:** a sentence names the key and what it may be.

use super::{CgroupPattern, Config, Listen, Mode, Named};
use pmux::server_api::group_number;
use std::net::SocketAddr;
use std::path::PathBuf;

const MOST_ENTRIES: u32 = 16 * 1024;
const MOST_KERNEL_RING_KIB: u32 = 1024 * 1024;

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
        pmux::server_api::Pattern::parse(&text).map(Self).map_err(|error| error.to_string())
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        text.parse::<SocketAddr>().map(Self::Tcp).map_err(|_| {
            format!("`{text}` is neither an address with a port (\"127.0.0.1:9464\") nor the path of a socket")
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    /// The key with its table, as `limits.clients`.
    pub(super) key: String,
    /// Which of several tables of this name.
    pub(super) nth: usize,
    /// Whether it would be right with another value of another key.
    pub(super) refers_to_another_key: bool,
    pub(super) text: String,
}

impl Wrong {
    fn new(key: &str, text: String) -> Self {
        Self { key: key.to_owned(), nth: 0, refers_to_another_key: false, text }
    }

    /// In one of several tables.
    pub(super) fn of(key: &str, nth: usize, text: String) -> Self {
        Self { nth, ..Self::new(key, text) }
    }

    /// The sentence, with the line where the text has one for it.
    pub(super) fn within(&self, text: &str) -> String {
        self.line(text).map_or_else(|| self.text.clone(), |line| format!("line {line}: {}", self.text))
    }

    /// Tables are written as such, the way the file that is shipped has them; who writes otherwise is told the key only.
    pub(super) fn line(&self, text: &str) -> Option<usize> {
        let (table, name) = self.key.rsplit_once('.')?;
        let mut tables = 0;
        let mut begins = None;
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.starts_with('[') {
                let is_it = line.trim_start_matches('[').split(']').next().is_some_and(|here| here.trim() == table);
                tables += usize::from(is_it);
                begins = is_it
                    .then_some(number)
                    .filter(|_| tables == self.nth + 1)
                    .or(begins.filter(|_| tables <= self.nth));
            } else if begins.is_some() && line.split('=').next().is_some_and(|key| key.trim() == name) {
                return Some(number);
            }
        }
        begins
    }
}

impl Config {
    /// All that makes no sense.
    pub(super) fn check(&self) -> Vec<Wrong> {
        let mut found = Vec::new();
        let limits = &self.limits;
        let least = [
            ("limits.clients", limits.clients, 1),
            ("limits.clients_per_user", limits.clients_per_user, 1),
            ("limits.events_per_client", limits.events_per_client, 1),
            ("limits.events", limits.events, 1),
            ("limits.requests_per_second", limits.requests_per_second, 1),
            ("limits.requests_per_second_per_user", limits.requests_per_second_per_user, 1),
            ("limits.events_per_user", limits.events_per_user, 1),
            ("limits.rings_kib_per_user", limits.rings_kib_per_user, 4),
            ("limits.queue_kib", limits.queue_kib, 128),
            ("limits.slow_ms", limits.slow_ms, 100),
            ("limits.events_per_subscription", limits.events_per_subscription, 1),
            ("limits.kernel_rings_kib", limits.kernel_rings_kib, 16),
            ("limits.kernel_rings_kib_per_client", limits.kernel_rings_kib_per_client, 16),
            ("limits.rings_kib", limits.rings_kib, 4),
            ("limits.rings_kib_per_client", limits.rings_kib_per_client, 4),
            ("records.kernel_ring_kib", self.records.kernel_ring_kib, 16),
            ("records.pass_ms", self.records.pass_ms, 1),
            ("counting.refresh_ms", self.counting.refresh_ms, 1),
            ("metrics.most_cgroups", self.metrics.most_cgroups, 1),
        ];
        for (key, value, least) in least {
            if value < least {
                found.push(Wrong::new(key, format!("`{key}` is {value}; it must be at least {least}")));
            }
        }
        for (key, value, most) in [
            ("limits.page_entries", limits.page_entries, MOST_ENTRIES),
            ("records.kernel_ring_kib", self.records.kernel_ring_kib, MOST_KERNEL_RING_KIB),
        ] {
            if value > most {
                found.push(Wrong::new(key, format!("`{key}` is {value}; it may be at most {most}")));
            }
        }
        for (nth, recorder) in self.recorder.iter().enumerate() {
            recorder.check(nth, &mut found);
            let before = &self.recorder[..nth];
            if before.iter().any(|other| other.name == recorder.name) {
                let text = format!("two recorders have the name `{}`", recorder.name);
                found.push(Wrong::of("recorder.name", nth, text));
            } else if before.iter().any(|other| other.directory() == recorder.directory()) {
                let text = format!("two recorders write into {}", recorder.directory().display());
                found.push(Wrong::of("recorder.directory", nth, text));
            }
        }
        found.extend(self.metrics.is_open_to_all().map(|text| Wrong::new("metrics.listen", text)));
        if let Some(level) = self.containers.paranoid.filter(|level| !(1..=2).contains(level)) {
            let text = format!("`containers.paranoid` is {level}; it may be 1 or 2");
            found.push(Wrong::new("containers.paranoid", text));
        }
        let paths = [
            ("socket.path", &self.socket.path),
            ("containers.listen", &self.containers.listen),
            ("metrics.token_file", &self.metrics.token_file),
        ];
        for (key, path) in paths {
            if path.as_ref().is_some_and(|path| !path.is_absolute()) {
                found.push(Wrong::new(key, format!("`{key}` must begin with a /")));
            }
        }
        found
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => write!(f, "`{name}`"),
        }
    }
}

impl Named {
    /// The number of a group: as the system's name service has it (`/etc/nsswitch.conf`).
    ///
    /// # Errors
    /// A sentence, where there is no such group.
    pub fn group(&self) -> Result<u32, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Name(name) => {
                let number =
                    group_number(name).map_err(|error| format!("the group `{name}` can't be looked up: {error}"))?;
                number.ok_or_else(|| format!("there is no group `{name}`"))
            }
        }
    }
}
