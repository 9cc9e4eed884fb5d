//! Numbers for Prometheus.
//!
//! What it is: `/metrics`, answered by a thread of its own ([`Metrics`]): it listens (`serve`), understands the little of HTTP that is
//! needed ([`crate::http`]), counts when it is asked (`collect`), and writes what it has counted as text (`text`). How the service is comes
//! from the loop as [`Health`], which is a copy of a few numbers.
//! Read first: [`Metrics`], then `collect`.
//!
//! **Invariant:** the loop waits for nothing here, and a client that asks here waits for nothing there. What is not counted is no number.

mod collect;
mod serve;
#[cfg(test)]
mod tests;
mod text;

use crate::config::{Level, Listen, MetricsConfig};
use crate::http::Access;
use crate::log::Log;
use crate::service::Tallies;
use collect::{Carried, Collector};
use pmux::server_api::CgroupMethod;
use pmux::{Multiplexing, Session};
use serve::MetricsServer;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How the service is, as its loop last said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Clients that are connected.
    pub clients: u64,
    /// Events that they have open.
    pub events: u64,
    /// What has happened since the start.
    pub tallies: Tallies,
}

struct Shared {
    health: Mutex<Health>,
    access: Mutex<Access>,
    /// Where it listens, and how cgroups are counted, as soon as that is known: for who asks how the service is.
    known: Mutex<Option<(String, Option<String>)>>,
}

/// A thread that answers who asks for `/metrics`; dropped, it ends.
pub struct Metrics {
    shared: Arc<Shared>,
    /// A byte tells it that CPUs have come or gone; the end of the stream that it is to end.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<Carried>>,
}

impl Metrics {
    /// Opens what is to be counted, listens, and answers from now on.
    ///
    /// # Errors
    /// A sentence: what is not understood of the configuration, or where it can't listen. Events that can't be counted here are
    /// told of in the log, and the others are counted.
    pub fn start(
        config: &MetricsConfig,
        turns: Multiplexing,
        session: &Session,
        log: &Log,
    ) -> Result<Option<Self>, String> {
        let Some(listen) = &config.listen else { return Ok(None) };
        let (shared, wake, woken) = ends(access(config)?)?;
        let end = (Arc::clone(&shared), woken);
        let server = open(listen, (config, turns), session, log, Carried::default(), end)?;
        let thread = spawn(move || server.run())?;
        Ok(Some(Self { shared, wake: Some(wake), thread: Some(thread) }))
    }

    /// Goes by another configuration as soon as the thread of the former one has ended, which the new thread waits for. Counts go on
    /// from where they were. What goes wrong then is told of in the log.
    ///
    /// # Errors
    /// A sentence, where there can be no thread; then there are no metrics any more.
    pub fn restart(
        old: Option<Self>,
        (config, turns): (MetricsConfig, Multiplexing),
        session: &Session,
        log: &Log,
    ) -> Result<Option<Self>, String> {
        let Some(mut old) = old else { return Self::start(&config, turns, session, log) };
        let access = match access(&config) {
            Ok(access) => access,
            Err(error) => {
                log.write(Level::Error, format_args!("metrics stay as they were: {error}"));
                return Ok(Some(old));
            }
        };
        let (shared, wake, woken) = ends(access)?;
        old.wake = None;
        let before = old.thread.take();
        let (session, log, end) = (session.clone(), log.clone(), (Arc::clone(&shared), woken));
        let thread = spawn(move || {
            let carried = before.and_then(|thread| thread.join().ok()).unwrap_or_default();
            let Some(listen) = &config.listen else { return carried };
            match open(listen, (&config, turns), &session, &log, carried, end) {
                Ok(server) => server.run(),
                Err(error) => {
                    log.write(Level::Error, format_args!("there are no metrics any more: {error}"));
                    Carried::default()
                }
            }
        })?;
        Ok(Some(Self { shared, wake: Some(wake), thread: Some(thread) }))
    }

    /// From now on a request has to say the token that is in the file of this configuration, which is otherwise the one that it goes by. The
    /// listener stays: where its port was free for a moment, another user of the machine could take it, and be told the token.
    pub fn change_token(&self, config: &MetricsConfig) {
        if let Ok(access) = access(config) {
            *lock(&self.shared.access) = access;
        }
    }

    /// Where it listens, and how cgroups are counted, in a sentence, where some are; `None` as long as it does not listen.
    #[must_use]
    pub fn known(&self) -> Option<(String, Option<String>)> {
        lock(&self.shared.known).clone()
    }

    /// Says how the service is.
    pub fn publish(&self, health: Health) {
        *lock(&self.shared.health) = health;
    }

    /// CPUs have come or gone.
    pub fn cpus_changed(&mut self) {
        if let Some(wake) = &mut self.wake {
            // It has been woken already, or ends.
            let _ = wake.write(&[1]);
        }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn access(config: &MetricsConfig) -> Result<Access, String> {
    Ok(match (config.token()?, &config.listen) {
        (Some(token), _) => Access::Bearer(token),
        (None, Some(Listen::Tcp(_))) => Access::Hosts(config.hosts.clone()),
        (None, Some(Listen::Unix(_)) | None) => Access::Everyone,
    })
}

/// What a thread and others share, and the two ends of what wakes it.
fn ends(access: Access) -> Result<(Arc<Shared>, UnixStream, UnixStream), String> {
    let (wake, woken) = UnixStream::pair().map_err(|error| error.to_string())?;
    let shared = Shared { health: Mutex::default(), access: Mutex::new(access), known: Mutex::default() };
    Ok((Arc::new(shared), wake, woken))
}

fn spawn(run: impl FnOnce() -> Carried + Send + 'static) -> Result<JoinHandle<Carried>, String> {
    let thread = std::thread::Builder::new().name("pmux-metrics".to_owned());
    thread.spawn(run).map_err(|error| format!("there is no thread for metrics: {error}"))
}

fn open(
    listen: &Listen,
    (config, turns): (&MetricsConfig, Multiplexing),
    session: &Session,
    log: &Log,
    carried: Carried,
    (shared, woken): (Arc<Shared>, UnixStream),
) -> Result<MetricsServer, String> {
    let collector = Collector::open((config, turns), session, log, carried)?;
    let way = collector.way().map(|way| way.to_string());
    let server = MetricsServer::new(listen, collector, Arc::clone(&shared), woken, log.clone())?;
    let place = server.place.clone();
    log.write(Level::Info, format_args!("metrics are at {place}"));
    *lock(&shared.known) = Some((place, way));
    Ok(server)
}

/// A number is a number, even if a thread panicked while it had the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The word for a way of counting cgroups.
const fn word(way: &CgroupMethod) -> &'static str {
    match way {
        CgroupMethod::Program => "bpf",
        CgroupMethod::Events { .. } => "events",
    }
}
