//! Numbers for Prometheus.
//!
//! What it is: `/metrics`, answered by a thread of its own ([`Metrics`]): it listens (`serve`), understands the little of HTTP that is
//! needed (`http`), counts when it is asked (`collect`), and writes what it has counted as text (`text`). How the service is comes
//! from the loop as [`Health`], which is a copy of a few numbers.
//! Read first: [`Metrics`], then `collect`.
//!
//! **Invariant:** the loop waits for nothing here, and whoever asks here waits for nothing there. What is not counted is no number.

mod collect;
mod http;
mod serve;
#[cfg(test)]
mod tests;
mod text;

use crate::config::MetricsConfig;
use crate::log::Log;
use crate::service::Tallies;
use collect::{Carried, Collector};
use pmux::serving::Way;
use pmux::{Multiplexing, Session};
use serve::Server;
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

/// What the thread and others share.
#[derive(Default)]
struct Shared {
    health: Mutex<Health>,
    /// How cgroups are counted, for who asks how the service is.
    way: Mutex<Option<String>>,
}

/// A thread that answers who asks for `/metrics`; dropped, it ends.
pub struct Metrics {
    shared: Arc<Shared>,
    /// A byte tells it that CPUs have come or gone; the end of the stream that it is to end.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<Carried>>,
    place: String,
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
        Self::with((config, turns), session, log, Carried::default())
    }

    fn with(
        (config, turns): (&MetricsConfig, Multiplexing),
        session: &Session,
        log: &Log,
        carried: Carried,
    ) -> Result<Option<Self>, String> {
        let Some(listen) = &config.listen else { return Ok(None) };
        let shared = Arc::new(Shared::default());
        let collector = Collector::open((config, turns), session, log, carried)?;
        *lock(&shared.way) = collector.way().map(|way| way.to_string());
        let (wake, woken) = UnixStream::pair().map_err(|error| error.to_string())?;
        let server = Server::new((listen, &config.hosts), collector, Arc::clone(&shared), woken, log.clone())?;
        let place = server.place();
        let run = std::thread::Builder::new().name("pmux-metrics".to_owned());
        let thread =
            run.spawn(move || server.run()).map_err(|error| format!("there is no thread for metrics: {error}"))?;
        Ok(Some(Self { shared, wake: Some(wake), thread: Some(thread), place }))
    }

    /// Goes by another configuration from now on. Counts go on from where they were.
    ///
    /// # Errors
    /// As [`Metrics::start`]; then there are none any more.
    pub fn restart(
        old: Option<Self>,
        (config, turns): (&MetricsConfig, Multiplexing),
        session: &Session,
        log: &Log,
    ) -> Result<Option<Self>, String> {
        let carried = old.map(Self::end).unwrap_or_default();
        Self::with((config, turns), session, log, carried)
    }

    /// Where it listens.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// How cgroups are counted, in a sentence; `None` where none are.
    #[must_use]
    pub fn way(&self) -> Option<String> {
        lock(&self.shared.way).clone()
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

    fn end(mut self) -> Carried {
        self.wake = None;
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
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

/// A number is a number, even if somebody panicked while he had the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The word for a way of counting cgroups.
const fn word(way: &Way) -> &'static str {
    match way {
        Way::Program => "bpf",
        Way::Events { .. } => "events",
    }
}
