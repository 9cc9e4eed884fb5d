//! The loop: sockets, signals, CPUs that come and go, and the time.
//!
//! What it is: [`Server`], one thread that waits for whatever happens next, brings it to the [`Service`], and carries out what
//! that says.
//! Read first: [`Server::run`], then `turn` (what one client may do at a time).
//!
//! **Invariant:** nothing here waits for a client. Each has its turn, of a few requests; a client that sends too much, reads too
//! little or says nothing understandable is dealt with alone. Records have a turn like a client: however many there are, all
//! clients are heard in between.

mod accept;
mod connection;
mod queue;
mod reserve;
mod start;
mod status;
mod turn;

use crate::agent::SeccompAgent;
use crate::config::{Config, ConfigError, Level};
use crate::counters::Counters;
use crate::flight::{Recorders, SocketDir};
use crate::log::Log;
use crate::log_limiter::LogLimiter;
use crate::metrics::{Health, Metrics};
use crate::notify::Manager;
use crate::payer::Payers;
use crate::service::{ClientId, Service};
use connection::{Connection, ConnectionState};
use pmux::server_api::shared::channel::PacketBuffer;
use pmux::server_api::shared::listener::{Listener, SYSTEM_SOCKET};
use pmux::server_api::shared::poll::{Interest, Poll, Ready, Token};
use pmux::server_api::shared::wire::{Notice, Reply};
use pmux::server_api::{Proc, RoundRemainder};
use pmux::wait::{FILE_TOO_LARGE, RELOAD, STOP, Signals};
use pmux::{CpuList, Session};
use queue::RunQueue;
use reserve::Reserve;
pub use start::Start;
use start::{agent, containers_config, epoch, listen, membership, metrics_config, rules};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LISTENER: Token = Token(0);
const SIGNALS: Token = Token(1);
const HOTPLUG: Token = Token(2);
const RECORDS: Token = Token(3);
const OPENERS: Token = Token(4);
/// Clients have tokens from here on.
const FIRST_CLIENT: u64 = 16;
/// So many new clients are taken in at a time.
const ACCEPTS: usize = 8;
/// Waits of one round: each names so many clients that are ready.
const LOOKS_AT_ALL: usize = 64;
const REPORTS: usize = 64;
/// What clients have left behind is closed for so long before clients have their turns, and a group longer.
const CLOSE_NS: u64 = MILLISECOND_NS;
/// When so many events were closed, memory is given back to the system.
const TRIM_EVENTS: u64 = 32_768;
/// When clients can't even be turned away, no client is taken in for so long.
const NO_FILES_NS: u64 = 100_000_000;
/// That files are wanting is said once in so long.
const LOG_AGAIN_NS: u64 = 60_000_000_000;
const SHUTDOWN_WAIT_NS: u64 = 500_000_000;
/// Pages take at most this part of the time where many have them: they are written so many times later as writing took.
const PAGE_SHARE: u64 = 200;
/// But they don't grow older than this because of that, ...
const PAGE_AGE_NS: u64 = 1_000_000_000;
/// ... as long as they take less than this part of the time.
const PAGE_SHARE_AT_MOST: u64 = 10;
const MILLISECOND_NS: u64 = 1_000_000;
/// Pages are written for so long before clients have their turns, and those of one client longer.
const REFRESH_NS: u64 = 4 * MILLISECOND_NS;
/// How often it is looked whether clients find the socket.
const FIND_NS: u64 = 1_000_000_000;
/// Records are passed on for so long before clients, signals and CPUs have their turn, and a piece longer.
const PASS_NS: u64 = 10 * MILLISECOND_NS;

/// Why a service has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerExit {
    /// A signal said stop.
    Stopped,
    /// It could not go on; the log says why.
    Failed,
}

/// The service, listening.
pub struct Server {
    poll: Poll,
    listener: Listener,
    signals: Signals,
    service: Service<Counters>,
    counters: Counters,
    /// The CPUs of which clients know that they are online.
    online: CpuList,
    connections: HashMap<ClientId, Connection>,
    /// Who may go on when, earliest first.
    paused: BTreeSet<(u64, ClientId)>,
    config: Config,
    start: Start,
    /// What the configuration says about users and groups.
    system_wide: Vec<u32>,
    payers: Payers,
    buffer: PacketBuffer,
    log: Log,
    log_limiter: LogLimiter,
    proc: Proc,
    next_refresh_ns: u64,
    /// How long the round took so far that writes pages.
    refresh_took_ns: u64,
    next_slow_check_ns: u64,
    /// When the kernel's rings are emptied although none has filled up.
    next_pass_ns: u64,
    accept_from_ns: u64,
    queue: RunQueue,
    manager: Manager,
    /// How many events were closed when memory was given back last.
    trimmed_at: u64,
    /// When it is looked again whether clients find the socket.
    next_find_ns: u64,
    reserve: Reserve,
    /// From when on it is said again that files are wanting, and how many were turned away since it was said last.
    log_again_ns: u64,
    turned_away: u64,
    started_ns: u64,
    /// Where it listens; `None` where the socket was handed over.
    path: Option<PathBuf>,
    metrics: Option<Metrics>,
    agent: Option<SeccompAgent>,
    recorders: Recorders,
}

impl Server {
    /// Listens, at the socket that a service manager has handed over, or the one that was named, or the usual one.
    ///
    /// # Errors
    /// A sentence.
    pub fn start(start: Start) -> Result<Self, String> {
        let config = Config::find(start.config.as_deref()).map_err(|error| error.to_string())?;
        let log = Log::to_stderr(config.log.level);
        let named = start.config.as_deref();
        // That a file can't grow (a page, the log) is an error like others.
        let signals = Signals::receive(&[STOP[0], STOP[1], RELOAD, FILE_TOO_LARGE])
            .map_err(|errno| format!("signals can't be received: {errno}"))?;
        // A thread looks them up: it begins with the signals of this one.
        let (group, system_wide) = config.look_up().map_err(|error| Config::place(named, error).to_string())?;
        let (listener, path) = listen(&start, &config, group)?;
        let session = Session::with_backend(pmux::BackendChoice::Kernel)
            .map_err(|error| format!("events can't be opened here: {error}"))?;
        pmux::server_api::raise_file_limit();
        session.follow_cpus();
        session.let_files_be_passed();
        let closes = session.close_elsewhere();
        closes.map_err(|error| format!("there is no thread that closes events: {error}"))?;
        if let Err(error) = session.note_forks() {
            log.write(Level::Info, format_args!("events that children inherit are not shared: {error}"));
        }
        session.learn_counters();
        let (turns, rules) = (config.counting.turns, rules(&config));
        let counters = Counters::new(&session, turns, rules.kernel_ring_bytes)?;
        let metrics = Metrics::start(&metrics_config(&config, &start), turns, &session, &log)?;
        let agent = agent(&containers_config(&config, &start), path.as_deref(), &log)?;
        let recorders = Recorders::new(SocketDir::beside(path.as_deref().unwrap_or(Path::new(SYSTEM_SOCKET))), &log);
        let poll = Poll::new().map_err(|errno| format!("no epoll: {errno}"))?;
        let now = pmux::server_api::now_ns();
        let server = Self {
            poll,
            listener,
            signals,
            service: Service::new(rules, epoch(now)),
            online: session.online(),
            counters,
            connections: HashMap::new(),
            paused: BTreeSet::new(),
            config,
            start,
            system_wide,
            payers: Payers::look_up(),
            buffer: PacketBuffer::new(),
            log,
            log_limiter: LogLimiter::default(),
            proc: Proc::system(),
            next_refresh_ns: u64::MAX,
            refresh_took_ns: 0,
            next_slow_check_ns: u64::MAX,
            next_pass_ns: u64::MAX,
            accept_from_ns: 0,
            queue: RunQueue::default(),
            manager: Manager::of_environment(),
            trimmed_at: 0,
            next_find_ns: now + FIND_NS,
            reserve: Reserve::new(),
            log_again_ns: 0,
            turned_away: 0,
            started_ns: now,
            path,
            metrics,
            agent,
            recorders,
        };
        let watch = || {
            server.poll.add(&server.listener, LISTENER, Interest::Read)?;
            server.poll.add(&server.signals, SIGNALS, Interest::Read)?;
            server.poll.add(&server.counters.streams, RECORDS, Interest::Read)?;
            server.poll.add(session.openers().readable()?, OPENERS, Interest::Read)?;
            session.with_hotplug_fd(|fd| fd.map_or(Ok(()), |fd| server.poll.add(fd, HOTPLUG, Interest::Read)))
        };
        watch().map_err(|errno| format!("nothing can be waited for: {errno}"))?;
        Ok(server)
    }

    /// Serves until a signal says stop, or clients can't find the socket any more.
    pub fn run(mut self) -> ServerExit {
        let place = self.path.as_ref().map(|path| path.display().to_string());
        let place = place.as_deref().unwrap_or("a socket that was handed over");
        self.log.write(Level::Info, format_args!("listening at {place}"));
        self.recorders.apply(&self.config.recorder, &self.system_wide);
        self.manager.send("READY=1");
        let mut ready = Vec::new();
        loop {
            if let Err(error) = self.wait(&mut ready) {
                self.log.write(Level::Error, format_args!("waiting failed: {error}"));
                return ServerExit::Failed;
            }
            let now = pmux::server_api::now_ns();
            // CPUs first: a client that asks may have heard of them already.
            if ready.iter().any(|report| report.token == HOTPLUG) {
                self.follow_cpus();
            }
            for &report in &ready {
                match report.token {
                    LISTENER => self.accept(now),
                    SIGNALS => {
                        let signals = self.signals.take();
                        if signals.iter().any(|signal| STOP.contains(signal)) {
                            self.shut_down();
                            return ServerExit::Stopped;
                        }
                        if signals.contains(&RELOAD) {
                            self.reload();
                        }
                    }
                    HOTPLUG => {}
                    RECORDS => self.next_pass_ns = 0,
                    OPENERS => self.go_on_with_parked(),
                    Token(number) => self.client_is_ready(ClientId(number - FIRST_CLIENT), report),
                }
            }
            self.take_turns();
            self.close_some();
            self.on_time(pmux::server_api::now_ns());
            if !self.is_found(now) {
                self.shut_down();
                return ServerExit::Failed;
            }
            if let Some(metrics) = &self.metrics {
                metrics.publish(self.health());
            }
        }
    }

    /// Waits for what happens next, and finds out about all that has happened: no client stands behind those that come first.
    fn wait(&mut self, ready: &mut Vec<Ready>) -> Result<(), String> {
        ready.clear();
        let now = pmux::server_api::now_ns();
        let busy = !self.queue.is_empty() || self.service.has_leaving();
        let until = if busy { Some(now) } else { self.next_ns(now) };
        let mut timeout = until.map(|at| Duration::from_nanos(at.saturating_sub(now)));
        for _ in 0..LOOKS_AT_ALL {
            let before = ready.len();
            self.poll.wait(timeout, |report| ready.push(report)).map_err(|errno| errno.to_string())?;
            // Those that are ready come round again.
            let first = ready.first().map(|report| report.token);
            if ready.len() - before < REPORTS
                || ready[before..].iter().skip(usize::from(before == 0)).any(|report| Some(report.token) == first)
            {
                break;
            }
            timeout = Some(Duration::ZERO);
        }
        Ok(())
    }

    /// Closes some of what clients have left behind, and gives memory back when all of it and enough of it is closed.
    fn close_some(&mut self) {
        if self.service.has_leaving() {
            let until = pmux::server_api::now_ns() + CLOSE_NS;
            self.service.close_some(&mut self.counters, || pmux::server_api::now_ns() < until);
        } else if self.service.closed - self.trimmed_at >= TRIM_EVENTS {
            self.trimmed_at = self.service.closed;
            pmux::server_api::trim_memory();
        }
    }

    /// Whether clients find the socket, as far as it is time to look. Where it was taken away, or replaced, another service may listen
    /// at the path, and two would count without knowing of each other.
    fn is_found(&mut self, now: u64) -> bool {
        if self.path.is_none() || now < self.next_find_ns {
            return true;
        }
        self.next_find_ns = now + FIND_NS;
        let found = self.listener.is_found();
        if let (false, Some(path)) = (found, &self.path) {
            let text = format_args!("the socket {} was taken away or replaced: the service stops", path.display());
            self.log.write(Level::Error, text);
        }
        found
    }

    fn health(&self) -> Health {
        let clients = self.service.clients() as u64;
        Health { clients, events: u64::from(self.service.charge.events), tallies: self.service.tallies }
    }

    /// When something is to be done although nothing happens.
    fn next_ns(&self, now: u64) -> Option<u64> {
        let paused = self.paused.first().map_or(u64::MAX, |&(at, _)| at);
        let accept = if self.accept_from_ns > now { self.accept_from_ns } else { u64::MAX };
        let lines = self.log_limiter.next_ns().unwrap_or(u64::MAX);
        let find = if self.path.is_some() { self.next_find_ns } else { u64::MAX };
        let openers = self.counters.session.openers().next_ns();
        let own = [self.next_refresh_ns, self.next_slow_check_ns, self.next_pass_ns, self.manager.next_ns];
        own.into_iter().chain([paused, accept, lines, find, openers]).min().filter(|&next| next < u64::MAX)
    }

    fn on_time(&mut self, now: u64) {
        self.manager.goes_round(now);
        if self.accept_from_ns > 0 && now >= self.accept_from_ns {
            self.accept_from_ns = 0;
            let _ = self.poll.add(&self.listener, LISTENER, Interest::Read);
        }
        while let Some(&(at, id)) = self.paused.first() {
            if at > now {
                break;
            }
            self.paused.remove(&(at, id));
            self.resume(id, now);
        }
        if now >= self.counters.session.openers().next_ns() {
            self.go_on_with_parked();
        }
        if now >= self.next_refresh_ns {
            let until = pmux::server_api::now_ns() + REFRESH_NS;
            let (moved, whole) = self.service.refresh(&mut self.counters, || pmux::server_api::now_ns() < until);
            for (id, notice) in moved {
                self.send_notice(id, &notice);
            }
            let done = pmux::server_api::now_ns();
            self.refresh_took_ns += done.saturating_sub(now);
            // What is left of the round goes on when clients have had their turns.
            self.next_refresh_ns = 0;
            if whole {
                let took = std::mem::take(&mut self.refresh_took_ns);
                self.next_refresh_ns = u64::MAX;
                self.plan_refresh(done, pause_after(took));
            }
        }
        if now >= self.next_pass_ns {
            let until = pmux::server_api::now_ns() + PASS_NS;
            // What is left goes on as soon as all else has had a turn.
            self.next_pass_ns = match self.counters.streams.pass_while(|| pmux::server_api::now_ns() < until) {
                RoundRemainder::Nothing => u64::MAX,
                RoundRemainder::Some => 0,
            };
        }
        // The kernel's rings are emptied from time to time while a client wants what is in them.
        if self.next_pass_ns == u64::MAX && !self.counters.streams.is_empty() {
            self.next_pass_ns = now + u64::from(self.config.records.pass_ms) * MILLISECOND_NS;
        }
        for (user, count) in self.log_limiter.left_out(now) {
            let more = format_args!("{count} more lines about clients of user {user} were left out");
            self.log.write(Level::Warning, more);
        }
        if now >= self.next_slow_check_ns {
            self.next_slow_check_ns = u64::MAX;
            self.cut_off_slow_clients(now);
        }
    }

    /// Pages are written while a client has entries in one.
    fn plan_refresh(&mut self, now: u64, least_pause_ns: u64) {
        if self.next_refresh_ns == u64::MAX && self.service.has_entries() {
            let pause = u64::from(self.config.counting.refresh_ms) * MILLISECOND_NS;
            self.next_refresh_ns = now + pause.max(least_pause_ns);
        }
    }

    fn follow_cpus(&mut self) {
        let session = self.counters.session.clone();
        // What was written on a CPU that went is still there.
        self.counters.streams.pass();
        session.follow_hotplug();
        self.counters.streams.cpus_changed();
        if let Some(metrics) = &mut self.metrics {
            metrics.cpus_changed();
        }
        // The session may have seen sooner, when it was asked for events, that a CPU had gone.
        let now = session.online();
        let before = std::mem::replace(&mut self.online, now.clone());
        for cpu in before.iter().filter(|&cpu| !now.contains(cpu)) {
            self.log.write(Level::Info, format_args!("CPU {cpu} went offline"));
            for (id, notice) in self.service.cpu_gone(cpu, &mut self.counters) {
                self.send_notice(id, &notice);
            }
        }
    }

    fn send_notice(&mut self, id: ClientId, reply: &Reply) {
        let now = pmux::server_api::now_ns();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let state = connection.send(0, reply, &[], now);
        self.settle(id, state, now);
    }

    fn reload(&mut self) {
        let found = Config::find(self.start.config.as_deref());
        let checked = |config: &Config| {
            config.check_events()?;
            metrics_config(config, &self.start).token().map_err(|text| ConfigError { file: None, text })
        };
        let look_up = |config: Config| match checked(&config).and_then(|_| config.look_up()) {
            Ok((_, system_wide)) => Ok((config, system_wide)),
            Err(error) => Err(Config::place(self.start.config.as_deref(), error)),
        };
        let (config, system_wide) = match found.and_then(look_up) {
            Ok(found) => found,
            Err(error) => {
                self.log.write(Level::Error, format_args!("the configuration stays as it was: {error}"));
                return;
            }
        };
        for (id, notice) in self.service.set_memberships(&mut self.counters, |peer| membership(peer, &system_wide)) {
            self.send_notice(id, &notice);
        }
        self.system_wide = system_wide;
        self.log.set_level(config.log.level);
        self.service.set_rules(rules(&config));
        self.counters.turns = config.counting.turns;
        if config.socket != self.config.socket {
            self.log.write(Level::Warning, "the socket stays where it is until the service is started anew");
        }
        let new = (metrics_config(&config, &self.start), config.counting.turns);
        // Where it does not listen, a port was taken, say: that may be over.
        let is_silent = new.0.listen.is_some() && self.metrics.as_ref().and_then(Metrics::known).is_none();
        if is_silent || (metrics_config(&self.config, &self.start), self.config.counting.turns) != new {
            let session = self.counters.session.clone();
            self.metrics = match Metrics::restart(self.metrics.take(), new, &session, &self.log) {
                Ok(metrics) => metrics,
                Err(error) => {
                    self.log.write(Level::Error, format_args!("there are no metrics any more: {error}"));
                    None
                }
            };
        } else if let Some(metrics) = &self.metrics {
            metrics.change_token(&new.0);
        }
        let new = containers_config(&config, &self.start);
        if containers_config(&self.config, &self.start) != new || self.agent.is_some() != new.listen.is_some() {
            // The path may be the same one.
            self.agent = None;
            self.agent = agent(&new, self.path.as_deref(), &self.log).unwrap_or_else(|error| {
                self.log.write(Level::Error, format_args!("{error}"));
                None
            });
        }
        self.recorders.apply(&config.recorder, &self.system_wide);
        self.config = config;
        // What was planned by the former times may be far away.
        for planned in [&mut self.next_refresh_ns, &mut self.next_pass_ns, &mut self.next_slow_check_ns] {
            if *planned < u64::MAX {
                *planned = 0;
            }
        }
        self.log.write(Level::Info, "the configuration was read anew");
    }

    /// Gives all clients what was counted so far, tells them, and gives them a moment to read it.
    ///
    /// Nothing is taken from them: the kernel closes with the process what only the service has open. A counter that was closed here
    /// would be stopped first, also for those who hold its file and read on until the next service is there.
    fn shut_down(mut self) {
        // The last records, and the last look into the pages: what is there stays there.
        self.manager.send("STOPPING=1");
        self.counters.streams.pass();
        while !self.service.refresh(&mut self.counters, || true).1 {}
        let text = "the service stops".to_owned();
        let notice = Reply::Notice(Notice::Bye { text });
        let now = pmux::server_api::now_ns();
        let ids: Vec<_> = self.connections.keys().copied().collect();
        for id in &ids {
            self.send_notice(*id, &notice);
        }
        let until = now + SHUTDOWN_WAIT_NS;
        while self.connections.values().any(Connection::is_blocked) && pmux::server_api::now_ns() < until {
            std::thread::sleep(Duration::from_millis(5));
            for connection in self.connections.values_mut() {
                let _: ConnectionState = connection.flush(now);
            }
        }
        self.recorders.stop();
        for connection in self.connections.values().filter(|connection| connection.refused > 0) {
            let text = format_args!("{} is left: {}", connection.label, connection.done());
            log_for_user(&self.log, &mut self.log_limiter, connection.user, Level::Info, text);
        }
        self.log.write(Level::Info, format_args!("stopped; clients that were told: {}", ids.len()));
        self.counters.session.leave_to_child();
        std::mem::forget((self.service, self.counters));
    }
}

/// Says something about a client of a user, unless clients of this user have caused too many lines. Lines for those who look closely
/// are not limited.
fn log_for_user(log: &Log, log_limiter: &mut LogLimiter, user: u32, level: Level, text: impl fmt::Display) {
    if log.wants(level) && (level == Level::Debug || log_limiter.admits(user, pmux::server_api::now_ns())) {
        log.write(level, text);
    }
}

/// How long after pages were written, which took so long, they are written again, at least.
fn pause_after(took_ns: u64) -> u64 {
    let at_most = PAGE_AGE_NS.max(took_ns.saturating_mul(PAGE_SHARE_AT_MOST));
    took_ns.saturating_mul(PAGE_SHARE).min(at_most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_pages_leaves_time_for_everything_else() {
        let share = |took_ns: u64| took_ns as f64 / pause_after(took_ns) as f64;
        assert_eq!(pause_after(0), 0, "no client waits longer than the configuration says");
        assert!(share(1_000_000) <= 0.005, "{}", share(1_000_000));
        assert_eq!(pause_after(20_000_000), PAGE_AGE_NS, "not older than a second,");
        assert!(share(1_000_000_000) <= 0.1, "but for this: {}", share(1_000_000_000));
        assert_eq!(pause_after(u64::MAX), u64::MAX);
    }
}
