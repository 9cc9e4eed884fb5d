//! What a service begins with: where it listens, and what its configuration says of it and of its clients.
//!
//! **Invariant:** nothing here changes a server that runs.

use crate::agent::SeccompAgent;
use crate::config::{Config, ContainersConfig, Listen, MetricsConfig};
use crate::log::Log;
use crate::payer::own_user;
use crate::rights::Membership;
use crate::service::Rules;
use pmux::server_api::Peer;
use pmux::server_api::shared::listener::{Listener, SYSTEM_SOCKET, handed_over, user_socket};
use std::path::{Path, PathBuf};

const NO_PLACE: &str = "XDG_RUNTIME_DIR is not set: say where the socket is to be, with --socket PATH";

/// Where the service listens and what it goes by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// The configuration's file, if it was named.
    pub config: Option<PathBuf>,
    /// The socket, if it was named; it goes before the configuration's.
    pub socket: Option<PathBuf>,
    /// Where `/metrics` is served, if that was said; it goes before the configuration's.
    pub metrics: Option<Listen>,
    /// Where containers are taken in, if that was said; it goes before the configuration's.
    pub containers: Option<PathBuf>,
}

pub(super) fn rules(config: &Config) -> Rules {
    let refresh_ms = config.counting.refresh_ms;
    let kernel_ring_bytes = u64::from(config.records.kernel_ring_kib) * 1024;
    let (limits, files) = (config.limits, config.rights.files);
    let (most_files, own_user) = (pmux::server_api::most_files(), own_user());
    Rules { limits, files, refresh_ms, kernel_ring_bytes, most_files, own_user }
}

/// What is told of metrics: the place that was named goes before the configuration's.
pub(super) fn metrics_config(config: &Config, start: &Start) -> MetricsConfig {
    config.metrics.clone().listening_at(start.metrics.as_ref())
}

/// What is told of containers: the place that was named goes before the configuration's.
pub(super) fn containers_config(config: &Config, start: &Start) -> ContainersConfig {
    let mut containers = config.containers.clone();
    containers.listen = start.containers.clone().or(containers.listen);
    containers
}

/// Takes in containers, if that is wanted; `service` is where their clients find it.
pub(super) fn agent(
    containers: &ContainersConfig,
    service: Option<&Path>,
    log: &Log,
) -> Result<Option<SeccompAgent>, String> {
    let start = |listen: &PathBuf| SeccompAgent::start(listen, (service, containers.paranoid), log);
    containers.listen.as_ref().map(start).transpose()
}

/// Another number at each start: the time of day, or, where the clock is wrong, that since boot.
pub(super) fn epoch(now_ns: u64) -> u64 {
    let today = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    today.map_or(now_ns, |time| u64::try_from(time.as_nanos()).unwrap_or(now_ns)) | 1
}

/// Whether one of the groups that the configuration names is a client's.
pub(super) fn membership(peer: &Peer, system_wide: &[u32]) -> Membership {
    let connected = &peer.connected;
    let named = |group: &u32| system_wide.contains(group);
    let named = named(&connected.group) || connected.groups.iter().any(named);
    if named { Membership::Named } else { Membership::None }
}

/// Takes the socket that was handed over, or makes one at the path that was named, or at the usual one. A socket that a service
/// manager hands over is taken as it is; one that is made here has its permission bits from its first moment.
pub(super) fn listen(
    start: &Start,
    config: &Config,
    group: Option<u32>,
) -> Result<(Listener, Option<PathBuf>), String> {
    if start.socket.is_none()
        && let Some((_, socket)) = handed_over().into_iter().next()
    {
        return Ok((Listener::take_over(socket).map_err(|error| error.to_string())?, None));
    }
    let (path, usual) = match start.socket.as_ref().or(config.socket.path.as_ref()) {
        Some(path) => (path.clone(), false),
        None if pmux::server_api::is_root() => (PathBuf::from(SYSTEM_SOCKET), true),
        None => (user_socket().ok_or(NO_PLACE)?, true),
    };
    // The folder of a path that was configured is not made here.
    if let (true, Some(folder)) = (usual, path.parent()) {
        let failed = |error| format!("can't make the folder {} for the socket: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let listener = Listener::bind(&path, config.socket.mode.0).map_err(|error| error.to_string())?;
    if let Some(number) = group {
        let given = listener.give_to_group(number);
        given.map_err(|error| format!("the socket can't be given to a group: {error}"))?;
    }
    Ok((listener, Some(path)))
}
