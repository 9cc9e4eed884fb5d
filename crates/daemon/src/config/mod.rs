//! The configuration: a file, and what holds without one.
//!
//! What it is: [`Config`], plain data with sensible defaults, and [`Config::parse`], which accepts nothing that it doesn't
//! understand.
//! Read first: [`Config`]; `dist/pmux.toml` is the same with explanations for editing it.
//!
//! **Invariant:** parsing looks at nothing but the text.

mod check;
mod faults;
mod recorder;
#[cfg(test)]
mod tests;
mod token;

pub use recorder::{CallChainConfig, OnConfig, RecorderConfig, USUAL_FREQUENCY};

use pmux::Multiplexing;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Where the configuration is when no file is named.
pub const DEFAULT_FILE: &str = "/etc/pmux/pmux.toml";

/// So long the name service may take, for all groups together.
const GROUPS_WITHIN: Duration = Duration::from_secs(5);

/// A thread is looking groups up.
static LOOKS_UP: AtomicBool = AtomicBool::new(false);

/// All that can be configured.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table of keys")]
pub struct Config {
    /// Where clients connect.
    pub socket: SocketConfig,
    /// Who may ask for what.
    pub rights: RightsConfig,
    /// How much a client and a user may ask for.
    pub limits: LimitsConfig,
    /// How counts are kept.
    pub counting: CountingConfig,
    /// How records are passed on.
    pub records: RecordsConfig,
    /// Numbers for Prometheus.
    pub metrics: MetricsConfig,
    /// Programs in containers, which know nothing of pmux.
    pub containers: ContainersConfig,
    /// What is written to standard error.
    pub log: LogConfig,
    /// Recorders that are always on: `[[recorder]]` for each.
    pub recorder: Vec<RecorderConfig>,
}

/// Where clients connect.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table of keys")]
pub struct SocketConfig {
    /// The socket's path; `None` for the usual one.
    pub path: Option<PathBuf>,
    /// Its permissions, in octal. A process that may write to it may ask; what it gets is another matter.
    pub mode: Mode,
    /// The group that it belongs to, by name or number; `None` for the service's own.
    pub group: Option<Named>,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self { path: None, mode: Mode(0o666), group: None }
    }
}

/// Permissions of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Mode(pub u32);

/// A group, by name or number.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Named {
    /// By its number.
    Number(u32),
    /// By its name.
    Name(String),
}

/// Who may ask for what, beyond the kernel's own rules.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table of keys")]
pub struct RightsConfig {
    /// Groups whose members may count whole CPUs and cgroups.
    pub system_wide: Vec<Named>,
    /// Who is given the kernel's files.
    pub files: Files,
}

/// Which clients are given the kernel's files: a process that holds one can stop and reset its counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Files {
    /// A client that could have opened the event itself.
    #[default]
    Own,
    /// Those with `CAP_PERFMON` or `CAP_SYS_ADMIN` only.
    Privileged,
    /// No client.
    Never,
}

/// How much a client and a user may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table of keys")]
pub struct LimitsConfig {
    /// Clients at once.
    pub clients: u32,
    /// Clients at once of one user other than root.
    pub clients_per_user: u32,
    /// Events of one client.
    pub events_per_client: u32,
    /// Events of all clients.
    pub events: u32,
    /// Entries of the page of one client; 0 for no pages.
    pub page_entries: u32,
    /// Subscriptions of one client.
    pub subscriptions_per_client: u32,
    /// Events of one subscription, which is opened whole before another client has its turn.
    pub events_per_subscription: u32,
    /// All rings of one client.
    pub rings_kib_per_client: u32,
    /// All rings of all clients.
    pub rings_kib: u32,
    /// The kernel's rings for one client, as if no other client asked for the same.
    pub kernel_rings_kib_per_client: u32,
    /// The kernel's rings for all clients.
    pub kernel_rings_kib: u32,
    /// Events of all clients of one user other than root.
    pub events_per_user: u32,
    /// Descriptors of the service that all clients of one user cost; 0 for a quarter of what it may have.
    pub files_per_user: u32,
    /// All rings of all clients of one user.
    pub rings_kib_per_user: u32,
    /// Clients that are kept back for root.
    pub clients_for_root: u32,
    /// Events that are kept back for root.
    pub events_for_root: u32,
    /// Descriptors that are kept back for root.
    pub files_for_root: u32,
    /// Requests of one client in a second; more wait.
    pub requests_per_second: u32,
    /// Requests of all clients of one user in a second.
    pub requests_per_second_per_user: u32,
    /// Bytes of answers that wait for one client.
    pub queue_kib: u32,
    /// For how long a client may leave them there.
    pub slow_ms: u32,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            clients: 4096,
            clients_per_user: 1024,
            events_per_client: 65_536,
            events: 1_048_576,
            page_entries: 4096,
            subscriptions_per_client: 64,
            events_per_subscription: 1024,
            rings_kib_per_client: 64 * 1024,
            rings_kib: 1024 * 1024,
            kernel_rings_kib_per_client: 512 * 1024,
            kernel_rings_kib: 2048 * 1024,
            events_per_user: 131_072,
            files_per_user: 0,
            rings_kib_per_user: 128 * 1024,
            clients_for_root: 16,
            events_for_root: 16_384,
            files_for_root: 64,
            requests_per_second: 100_000,
            requests_per_second_per_user: 200_000,
            queue_kib: 1024,
            slow_ms: 10_000,
        }
    }
}

/// How counts are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table of keys")]
pub struct CountingConfig {
    /// Who takes turns when counters run out.
    #[serde(with = "Turns")]
    pub turns: Multiplexing,
    /// How often the pages of clients are written; more seldom where many have them, so that it takes half a hundredth of a CPU.
    pub refresh_ms: u32,
}

impl Default for CountingConfig {
    fn default() -> Self {
        Self { turns: Multiplexing::Kernel, refresh_ms: 100 }
    }
}

/// How records are passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table of keys")]
pub struct RecordsConfig {
    /// The kernel's ring of each event, where so much is allowed.
    pub kernel_ring_kib: u32,
    /// How often the kernel's rings are emptied, where none fills up.
    pub pass_ms: u32,
}

impl Default for RecordsConfig {
    fn default() -> Self {
        Self { kernel_ring_kib: 512, pass_ms: 100 }
    }
}

/// What [`CountingConfig::turns`] may say.
#[derive(Deserialize)]
#[serde(remote = "Multiplexing", rename_all = "lowercase")]
enum Turns {
    /// The kernel, CPU by CPU.
    Kernel,
    /// The engine: all CPUs in step, groups whole.
    Engine,
}

/// Numbers for Prometheus.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table of keys")]
pub struct MetricsConfig {
    /// `127.0.0.1:9464`, `[::1]:9464` or the path of a Unix socket; `None` for no metrics.
    pub listen: Option<Listen>,
    /// The file whose first line a request has to have, as `Authorization: Bearer …`; without it all may ask who reach the listener.
    pub token_file: Option<PathBuf>,
    /// Host names that requests over TCP may be for, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// What is counted on all CPUs.
    pub events: Vec<String>,
    /// Cgroups, by name from the root; `*` stands for letters within a name, a name `**` for any number of names.
    pub cgroups: Vec<CgroupPattern>,
    /// What is counted for each of them.
    pub cgroup_events: Vec<String>,
    /// How many cgroups are counted at once.
    pub most_cgroups: u32,
    /// For what there is a number for each CPU.
    pub cpus: CpuLabels,
    /// Whether there are the names of node_exporter's perf collector as well.
    pub node_exporter_names: bool,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        let (hosts, events, cgroups, cgroup_events) = Default::default();
        let (listen, token_file, cpus) = (None, None, CpuLabels::default());
        let (most_cgroups, node_exporter_names) = (1000, false);
        Self { listen, token_file, hosts, events, cgroups, cgroup_events, most_cgroups, cpus, node_exporter_names }
    }
}

impl MetricsConfig {
    /// The same at a place that the command line names, which goes before the configuration's.
    pub(crate) fn listening_at(self, place: Option<&Listen>) -> Self {
        Self { listen: place.cloned().or(self.listen), ..self }
    }
}

/// Programs in containers, which know nothing of pmux.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table of keys")]
pub struct ContainersConfig {
    /// The socket that seccomp profiles name (`listenerPath`); `None`: no container is taken in.
    pub listen: Option<PathBuf>,
    /// What `kernel.perf_event_paranoid` is taken to be for the tasks of containers: 1 or 2; `None` for what it is.
    pub paranoid: Option<i32>,
}

/// Names of cgroups.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct CgroupPattern(pub pmux::server_api::Pattern);

/// For what there is a number for each CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuLabels {
    /// For the events of the machine; a cgroup has one for all CPUs together.
    #[default]
    Events,
    /// For those of cgroups as well.
    All,
    /// For nothing.
    None,
}

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum Listen {
    /// On an address: one of the loopback, or any where a token is asked for.
    Tcp(std::net::SocketAddr),
    /// On a Unix socket.
    Unix(PathBuf),
}

/// What is written to standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table of keys")]
pub struct LogConfig {
    /// The least that is written.
    pub level: Level,
}

/// How much something matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something does not work.
    Error,
    /// A client is cut off, or something is not as it should be.
    Warning,
    /// Clients when they go, with what they were refused last.
    #[default]
    Info,
    /// Every request.
    Debug,
}

/// What is wrong with a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The file, where it came from one.
    pub file: Option<PathBuf>,
    /// What and where.
    pub text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}: {}", file.display(), self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Why a key of earlier versions is unknown.
const NO_WEIGHTS: &str = "weights of clients are no more: each question has as many turns as any other";

/// What a parser says, without the picture: it goes to the log as well.
fn in_a_line(wrong: &toml::de::Error, text: &str) -> String {
    let what = wrong.message().trim_end().replace('\n', ", ");
    let what = if what.starts_with("unknown field `weights`") { NO_WEIGHTS.to_owned() } else { what };
    let Some(begins) = wrong.span().map(|span| span.start) else { return what };
    let before = text.get(..begins).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    match text.lines().nth(number - 1).map(str::trim) {
        Some(line) if !line.is_empty() => format!("line {number}, `{line}`: {what}"),
        _ => format!("line {number}: {what}"),
    }
}

impl Config {
    /// Understands a text, all of it.
    ///
    /// # Errors
    /// [`ConfigError`], with the line of the first fault.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let (config, faults) = faults::read(text);
        let more = match faults.len() {
            0 | 1 => String::new(),
            faults => format!(" (and {} more: `pmux serve --check` prints all)", faults - 1),
        };
        faults.first().map_or(Ok(config), |first| Err(ConfigError { file: None, text: format!("{first}{more}") }))
    }

    /// The numbers of all groups: that of the socket, where one is named, and those whose members may count whole CPUs.
    ///
    /// # Errors
    /// [`ConfigError`], where one of them is not there.
    pub fn look_up(&self) -> Result<(Option<u32>, Vec<u32>), ConfigError> {
        let found = self.groups().into_iter().collect::<Result<Vec<_>, _>>();
        let mut found = found.map_err(|text| ConfigError { file: None, text })?;
        let system_wide = found.split_off(usize::from(self.socket.group.is_some()));
        Ok((found.pop(), system_wide))
    }

    /// The numbers of all groups, that of the socket first; a sentence for what there is none.
    ///
    /// A thread looks them up, for some seconds at most: a directory service may never answer, and the clients of a service that reads its
    /// configuration anew wait meanwhile.
    fn groups(&self) -> Vec<Result<u32, String>> {
        let named: Vec<Named> = self.socket.group.iter().chain(&self.rights.system_wide).cloned().collect();
        if named.iter().all(|group| matches!(group, Named::Number(_))) {
            return named.iter().map(Named::group).collect();
        }
        if LOOKS_UP.swap(true, Ordering::AcqRel) {
            return vec![
                Err("groups can't be looked up: the system has not answered when they were before".to_owned()),
            ];
        }
        let (send, found) = mpsc::channel();
        let names: Vec<_> = named.iter().map(ToString::to_string).collect();
        let look_up = move || {
            let numbers: Vec<_> = named.iter().map(Named::group).collect();
            // Before the answer: the receiver may look others up at once.
            LOOKS_UP.store(false, Ordering::Release);
            // A receiver that has waited long enough is told nothing any more.
            let _ = send.send(numbers);
        };
        if let Err(error) = std::thread::Builder::new().name("pmux-groups".to_owned()).spawn(look_up) {
            LOOKS_UP.store(false, Ordering::Release);
            return vec![Err(format!("groups can't be looked up: {error}"))];
        }
        found.recv_timeout(GROUPS_WITHIN).unwrap_or_else(|_| {
            let (names, within) = (names.join(", "), GROUPS_WITHIN.as_secs());
            vec![Err(format!("the groups {names} can't be looked up: the system did not answer within {within} s"))]
        })
    }

    /// Looks whether this machine knows the events that it names.
    ///
    /// # Errors
    /// [`ConfigError`], with the key.
    pub fn check_events(&self) -> Result<(), ConfigError> {
        self.unknown_events().next().map_or(Ok(()), |text| Err(ConfigError { file: None, text }))
    }

    /// The events that it names and this machine does not know, each in a sentence with its key.
    fn unknown_events(&self) -> impl Iterator<Item = String> {
        let catalog = pmux::event::Catalog::system();
        let metrics = [("events", &self.metrics.events), ("cgroup_events", &self.metrics.cgroup_events)];
        let metrics = metrics.map(|(key, events)| (format!("`metrics.{key}`"), events));
        let recorders = self.recorder.iter().map(|of| (format!("`recorder.events` of {}", of.name), &of.events));
        let named = metrics.into_iter().chain(recorders);
        let each = named.flat_map(|(key, events)| events.iter().map(move |event| (key.clone(), event)));
        each.filter_map(move |(key, event)| {
            let error = pmux::EventList::parse(std::slice::from_ref(event), &catalog).err()?;
            Some(format!("{key}: {error}"))
        })
    }

    /// All that is wrong with the file that was named, or the usual one, and with what it names on this machine; and what was
    /// understood. Metrics at another place than the file says are looked at there.
    #[must_use]
    pub fn examine(named: Option<&Path>, metrics: Option<&Listen>) -> (Self, Vec<ConfigError>) {
        let path = named.unwrap_or(Path::new(DEFAULT_FILE));
        let is_there = named.is_some() || path.exists();
        let (mut config, mut faults) = match is_there.then(|| std::fs::read_to_string(path)) {
            Some(Ok(text)) => faults::read(&text),
            Some(Err(error)) => (Self::default(), vec![error.to_string()]),
            None => Default::default(),
        };
        config.metrics = config.metrics.listening_at(metrics);
        // Of what the file says that was a fault already.
        let is_told = metrics.is_none() && config.metrics.is_open_to_all().is_some();
        let token = (!is_told).then(|| config.metrics.token());
        let on_this_machine = config.groups().into_iter().filter_map(Result::err).chain(token.and_then(Result::err));
        faults.extend(on_this_machine.chain(config.unknown_events()));
        let at_path = |text| ConfigError { file: is_there.then(|| path.to_owned()), text };
        (config, faults.into_iter().map(at_path).collect())
    }

    /// Whether it has what begins with the service, and not with its first client.
    #[must_use]
    pub fn works_without_clients(&self) -> bool {
        self.metrics.listen.is_some() || self.containers.listen.is_some() || !self.recorder.is_empty()
    }

    /// Says in which file it stands what is wrong, where that isn't known.
    #[must_use]
    pub fn place(named: Option<&Path>, error: ConfigError) -> ConfigError {
        ConfigError { file: error.file.or_else(|| Some(named.unwrap_or(Path::new(DEFAULT_FILE)).to_owned())), ..error }
    }

    /// Reads the file that was named, or the usual one where it is there, or takes the defaults.
    ///
    /// # Errors
    /// [`ConfigError`], also where it can't be read.
    pub fn find(named: Option<&Path>) -> Result<Self, ConfigError> {
        let usual = Path::new(DEFAULT_FILE);
        if named.is_none() && !usual.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(named.unwrap_or(usual));
        let text = text.map_err(|error| ConfigError { file: None, text: error.to_string() });
        text.and_then(|text| Self::parse(&text)).map_err(|error| Self::place(named, error))
    }
}
