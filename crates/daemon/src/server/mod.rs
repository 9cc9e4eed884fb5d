//! The loop: sockets, signals, CPUs that come and go, and the time.
//!
//! What it is: [`Server`], one thread that waits for whatever happens next, brings it to the [`Service`], and carries out what
//! that says.
//! Read first: [`Server::run`], then `turn` (what one client may do at a time).
//!
//! **Invariant:** nothing here waits for a client. Each has its turn, of a few requests; whoever sends too much, reads too
//! little or says nothing understandable is dealt with alone. Records have a turn like a client: however many there are, everybody
//! else is heard in between.

mod connection;
mod reserve;
mod status;
mod turn;

use crate::config::{Config, ConfigError, CountingConfig, Level, Listen, LookedUp, MetricsConfig, Turns};
use crate::counters::Counters;
use crate::flight::{Folder, Recorders};
use crate::log::Log;
use crate::metrics::{Health, Metrics};
use crate::rights::Membership;
use crate::service::{ClientId, Rules, Service, Standing, errno};
use connection::{Connection, Fate};
use pmux::serving::shared::channel::{Channel, PacketBuffer, Peer};
use pmux::serving::shared::listener::{ListenError, Listener, SYSTEM_SOCKET, handed_over, user_socket};
use pmux::serving::shared::poll::{Interest, Poll, Token};
use pmux::serving::shared::wire::{Notice, Refusal, RefusalKind, Reply, encode_reply};
use pmux::serving::{Asker, Connected, Left, Proc};
use pmux::wait::{FILE_TOO_LARGE, RELOAD, STOP, Signals};
use pmux::{CpuList, Multiplexing, Session};
use reserve::Reserve;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LISTENER: Token = Token(0);
const SIGNALS: Token = Token(1);
const HOTPLUG: Token = Token(2);
const RECORDS: Token = Token(3);
/// Clients have tokens from here on.
const FIRST_CLIENT: u64 = 16;
/// So many new clients are taken in at a time.
const ACCEPTS: usize = 64;
/// When clients can't even be turned away, nobody is taken in for so long.
const NO_FILES_NS: u64 = 100_000_000;
/// That files are wanting is said once in so long.
const SAY_AGAIN_NS: u64 = 60_000_000_000;
/// How long a goodbye may take.
const GOODBYE_NS: u64 = 500_000_000;
/// Pages take at most this part of the time where many have them: they are written so many times later as writing took.
const PAGE_SHARE: u64 = 200;
/// But they don't grow older than this because of that, ...
const PAGE_AGE_NS: u64 = 1_000_000_000;
/// ... as long as they take less than this part of the time.
const PAGE_SHARE_AT_MOST: u64 = 10;
const MILLISECOND_NS: u64 = 1_000_000;
/// Records are passed on for so long before clients, signals and CPUs have their turn, and a piece longer.
const PASS_NS: u64 = 10 * MILLISECOND_NS;

/// Where the service listens and what it goes by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// The configuration's file, if it was named.
    pub config: Option<PathBuf>,
    /// The socket, if it was named; it goes before the configuration's.
    pub socket: Option<PathBuf>,
    /// Where `/metrics` is served, if that was said; it goes before the configuration's.
    pub metrics: Option<Listen>,
}

/// Why there is no service.
#[derive(Debug)]
pub enum StartError {
    /// The configuration is wrong.
    Config(ConfigError),
    /// There can be no socket.
    Listen(ListenError),
    /// The folder of the socket can't be made.
    Folder(PathBuf, std::io::Error),
    /// There is no place for the socket of an ordinary user.
    NoPlace,
    /// Something else is missing.
    Machine(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Listen(error) => error.fmt(f),
            Self::Folder(path, error) => write!(f, "can't make the folder {} for the socket: {error}", path.display()),
            Self::NoPlace => {
                f.write_str("XDG_RUNTIME_DIR is not set: say where the socket is to be, with --socket PATH")
            }
            Self::Machine(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for StartError {}

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
    known: LookedUp,
    buffer: PacketBuffer,
    log: Log,
    proc: Proc,
    next_refresh_ns: u64,
    next_look_ns: u64,
    /// When the kernel's rings are emptied although none has filled up.
    next_pass_ns: u64,
    accept_from_ns: u64,
    reserve: Reserve,
    /// From when on it is said again that files are wanting, and how many were turned away since it was said last.
    say_again_ns: u64,
    turned_away: u64,
    started_ns: u64,
    path: Option<PathBuf>,
    metrics: Option<Metrics>,
    recorders: Recorders,
}

impl Server {
    /// Listens, at the socket that a service manager has handed over, or the one that was named, or the usual one.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(start: Start) -> Result<Self, StartError> {
        let config = Config::find(start.config.as_deref()).map_err(StartError::Config)?;
        let log = Log::to_stderr(config.log.level);
        let named = start.config.as_deref();
        let known = config.look_up().map_err(|error| StartError::Config(Config::place(named, error)))?;
        // That a file can't grow (a page, the log) is an error like others.
        let signals = Signals::receive(&[STOP[0], STOP[1], RELOAD, FILE_TOO_LARGE])
            .map_err(|errno| StartError::Machine(format!("signals can't be received: {errno}")))?;
        let (listener, path) = listen(&start, &config)?;
        let session = Session::with_backend(pmux::BackendChoice::Kernel)
            .map_err(|error| StartError::Machine(format!("events can't be opened here: {error}")))?;
        pmux::serving::raise_file_limit();
        session.follow_cpus();
        session.let_files_be_passed();
        if let Err(error) = session.note_forks() {
            log.say(Level::Info, format_args!("events that children inherit are not shared: {error}"));
        }
        session.learn_counters();
        let counters =
            Counters::new(&session, turns(&config), rules(&config).kernel_ring_bytes).map_err(StartError::Machine)?;
        let metrics = Metrics::start(&metrics_config(&config, &start), turns(&config), &session, &log)
            .map_err(StartError::Machine)?;
        let recorders = Recorders::new(Folder::beside(path.as_deref().unwrap_or(Path::new(SYSTEM_SOCKET))), &log);
        let poll = Poll::new().map_err(|errno| StartError::Machine(format!("no epoll: {errno}")))?;
        let now = pmux::serving::now_ns();
        let rules = rules(&config);
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
            known,
            buffer: PacketBuffer::new(),
            log,
            proc: Proc::system(),
            next_refresh_ns: u64::MAX,
            next_look_ns: u64::MAX,
            next_pass_ns: u64::MAX,
            accept_from_ns: 0,
            reserve: Reserve::new(),
            say_again_ns: 0,
            turned_away: 0,
            started_ns: now,
            path,
            metrics,
            recorders,
        };
        let watch = || {
            server.poll.add(&server.listener, LISTENER, Interest::Read)?;
            server.poll.add(&server.signals, SIGNALS, Interest::Read)?;
            server.poll.add(server.counters.streams(), RECORDS, Interest::Read)?;
            session.with_hotplug_fd(|fd| fd.map_or(Ok(()), |fd| server.poll.add(fd, HOTPLUG, Interest::Read)))
        };
        watch().map_err(|errno| StartError::Machine(format!("nothing can be waited for: {errno}")))?;
        Ok(server)
    }

    /// Where it listens; `None` where the socket was handed over.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Serves until a signal says stop.
    pub fn run(mut self) {
        let place = self
            .path
            .as_ref()
            .map_or_else(|| "a socket that was handed over".to_owned(), |path| path.display().to_string());
        self.log.say(Level::Info, format_args!("listening at {place}"));
        if let Some(metrics) = &self.metrics {
            self.log.say(Level::Info, format_args!("metrics are at {}", metrics.place()));
        }
        self.recorders.apply(&self.config.recorder, &self.known.system_wide);
        let mut ready = Vec::new();
        loop {
            let now = pmux::serving::now_ns();
            let timeout = self.next_ns(now).map(|at| Duration::from_nanos(at.saturating_sub(now)));
            ready.clear();
            if let Err(errno) = self.poll.wait(timeout, |report| ready.push(report)) {
                self.log.say(Level::Error, format_args!("waiting failed: {errno}"));
                return;
            }
            let now = pmux::serving::now_ns();
            // CPUs first: whoever asks may have heard of them already.
            if ready.iter().any(|report| report.token == HOTPLUG) {
                self.follow_cpus();
            }
            for &report in &ready {
                match report.token {
                    LISTENER => self.accept(now),
                    SIGNALS => {
                        if self.take_signals() {
                            return self.leave();
                        }
                    }
                    HOTPLUG => {}
                    RECORDS => self.next_pass_ns = 0,
                    Token(number) => self.client_is_ready(ClientId(number - FIRST_CLIENT), report, now),
                }
            }
            self.on_time(pmux::serving::now_ns());
            if let Some(metrics) = &self.metrics {
                metrics.publish(self.health());
            }
        }
    }

    fn health(&self) -> Health {
        let clients = self.service.clients() as u64;
        Health { clients, events: u64::from(self.service.events()), tallies: self.service.tallies() }
    }

    /// When something is to be done although nothing happens.
    fn next_ns(&self, now: u64) -> Option<u64> {
        let paused = self.paused.first().map_or(u64::MAX, |&(at, _)| at);
        let accept = if self.accept_from_ns > now { self.accept_from_ns } else { u64::MAX };
        let next = paused.min(self.next_refresh_ns).min(self.next_look_ns).min(self.next_pass_ns).min(accept);
        (next < u64::MAX).then_some(next)
    }

    fn on_time(&mut self, now: u64) {
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
        if now >= self.next_refresh_ns {
            for (id, notice) in self.service.refresh(&mut self.counters) {
                self.tell(id, &notice);
            }
            let done = pmux::serving::now_ns();
            self.next_refresh_ns = u64::MAX;
            self.plan_refresh(done, pause_after(done - now));
        }
        if now >= self.next_pass_ns {
            let until = pmux::serving::now_ns() + PASS_NS;
            // What is left goes on as soon as everybody else has had a turn.
            self.next_pass_ns = match self.counters.pass_on_while(|| pmux::serving::now_ns() < until) {
                Left::Nothing => u64::MAX,
                Left::Some => 0,
            };
        }
        self.plan_pass(now);
        if now >= self.next_look_ns {
            self.next_look_ns = u64::MAX;
            self.look_after_the_slow(now);
        }
    }

    /// Pages are written while somebody has entries in one.
    fn plan_refresh(&mut self, now: u64, least_pause_ns: u64) {
        if self.next_refresh_ns == u64::MAX && self.service.has_entries() {
            let pause = u64::from(self.config.counting.refresh_ms) * MILLISECOND_NS;
            self.next_refresh_ns = now + pause.max(least_pause_ns);
        }
    }

    /// The kernel's rings are emptied from time to time while somebody wants what is in them.
    fn plan_pass(&mut self, now: u64) {
        if self.next_pass_ns == u64::MAX && !self.counters.streams().is_empty() {
            self.next_pass_ns = now + u64::from(self.config.records.pass_ms) * MILLISECOND_NS;
        }
    }

    fn follow_cpus(&mut self) {
        let session = self.counters.session().clone();
        // What was written on a CPU that went is still there.
        self.counters.pass_on();
        session.follow_hotplug();
        self.counters.cpus_changed();
        if let Some(metrics) = &mut self.metrics {
            metrics.cpus_changed();
        }
        // Whoever was asked for events may have seen sooner that a CPU had gone.
        let now = session.online();
        let before = std::mem::replace(&mut self.online, now.clone());
        for cpu in before.iter().filter(|&cpu| !now.contains(cpu)) {
            self.log.say(Level::Info, format_args!("CPU {cpu} went offline"));
            for (id, notice) in self.service.cpu_gone(cpu, &mut self.counters) {
                self.tell(id, &notice);
            }
        }
    }

    fn tell(&mut self, id: ClientId, reply: &Reply) {
        let now = pmux::serving::now_ns();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let fate = connection.send(0, reply, &[], now);
        self.settle(id, fate, now);
    }

    fn accept(&mut self, now: u64) {
        for _ in 0..ACCEPTS {
            self.reserve.give_up();
            match self.listener.accept() {
                Ok(Some(channel)) => self.take_in(channel, now),
                Ok(None) => {
                    self.reserve.refill(&self.listener);
                    return;
                }
                Err(errno) => {
                    // It would be reported again and again.
                    self.log.say(Level::Error, format_args!("nobody can be taken in: {errno}"));
                    let _ = self.poll.remove(&self.listener);
                    self.accept_from_ns = now + NO_FILES_NS;
                    return;
                }
            }
        }
        self.reserve.refill(&self.listener);
    }

    fn take_in(&mut self, channel: Channel, now: u64) {
        let Ok(Peer { pid, uid: user, gid: group, groups, label, process }) = channel.peer() else { return };
        let connected = Connected { process: pid, user, group, groups, label };
        let asker = Asker::gather(&self.proc, connected, process.as_ref().map(AsFd::as_fd));
        drop(process);
        if !self.reserve.refill(&self.listener) {
            let text = pmux::serving::NO_FILES;
            turn_away(&channel, Refusal::new(RefusalKind::Limit, 0, errno::EMFILE, text));
            self.turned_away += 1;
            if now >= self.say_again_ns {
                self.say_again_ns = now + SAY_AGAIN_NS;
                let count = std::mem::take(&mut self.turned_away);
                self.log.say(Level::Error, format_args!("new clients are turned away ({count} so far): {text}"));
            }
            return;
        }
        match self.service.connect(asker.clone(), standing(&asker, &self.known), now) {
            Ok(id) => {
                let queue = self.config.limits.queue_kib as usize * 1024;
                let connection = Connection::new(channel, &asker, id.0, queue, now);
                if self.poll.add(&connection.channel, Token(id.0 + FIRST_CLIENT), Interest::Read).is_err() {
                    self.service.gone(id, &mut self.counters);
                    return;
                }
                self.log.say(Level::Debug, format_args!("{} has connected", connection.who));
                self.connections.insert(id, connection);
                self.plan_look(now);
            }
            Err(refusal) => {
                let (user, process) = (asker.connected.user, asker.connected.process);
                let who = format_args!("user {user}, process {process}, is turned away: {}", refusal.text);
                self.log.say(Level::Warning, who);
                turn_away(&channel, refusal);
            }
        }
    }

    /// Whether one of them says stop.
    fn take_signals(&mut self) -> bool {
        let signals = self.signals.take();
        if signals.iter().any(|signal| STOP.contains(signal)) {
            return true;
        }
        if signals.contains(&RELOAD) {
            self.reload();
        }
        false
    }

    fn reload(&mut self) {
        let found = Config::find(self.start.config.as_deref());
        let look_up = |config: Config| match config.look_up() {
            Ok(known) => Ok((config, known)),
            Err(error) => Err(Config::place(self.start.config.as_deref(), error)),
        };
        let (config, known) = match found.and_then(look_up) {
            Ok(found) => found,
            Err(error) => {
                self.log.say(Level::Error, format_args!("the configuration stays as it was: {error}"));
                return;
            }
        };
        self.service.set_standings(&mut self.counters, |asker| standing(asker, &known));
        self.known = known;
        self.log.set_level(config.log.level);
        self.service.set_rules(rules(&config));
        self.counters.set_kernel_ring_bytes(rules(&config).kernel_ring_bytes);
        self.counters.set_turns(turns(&config));
        if config.socket != self.config.socket {
            self.log.say(Level::Warning, "the socket stays where it is until the service is started anew");
        }
        let (old, new) = (metrics_config(&self.config, &self.start), metrics_config(&config, &self.start));
        if (old, turns(&self.config)) != (new.clone(), turns(&config)) {
            let session = self.counters.session().clone();
            self.metrics = match Metrics::restart(self.metrics.take(), (&new, turns(&config)), &session, &self.log) {
                Ok(metrics) => metrics,
                Err(error) => {
                    self.log.say(Level::Error, format_args!("there are no metrics any more: {error}"));
                    None
                }
            };
        }
        self.recorders.apply(&config.recorder, &self.known.system_wide);
        self.config = config;
        self.log.say(Level::Info, "the configuration was read anew");
    }

    /// Gives everybody what was counted so far, tells them, and gives them a moment to hear it.
    ///
    /// Nothing is taken from them: the kernel closes with the process what only the service has open. A counter that was closed here
    /// would be stopped first, also for those who hold its file and read on until the next service is there.
    fn leave(mut self) {
        // The last records, and the last look into the pages: what is there stays there.
        self.counters.pass_on();
        self.service.refresh(&mut self.counters);
        let text = "the service stops".to_owned();
        let notice = Reply::Notice(Notice::Bye { text });
        let now = pmux::serving::now_ns();
        let ids: Vec<_> = self.connections.keys().copied().collect();
        for id in &ids {
            self.tell(*id, &notice);
        }
        let until = now + GOODBYE_NS;
        while self.connections.values().any(Connection::is_blocked) && pmux::serving::now_ns() < until {
            std::thread::sleep(Duration::from_millis(5));
            for connection in self.connections.values_mut() {
                let _: Fate = connection.flush(now);
            }
        }
        self.recorders.stop();
        self.log.say(Level::Info, format_args!("stopped; clients that were told: {}", ids.len()));
        std::mem::forget((self.service, self.counters));
    }
}

/// Tells somebody who just came why he can't stay.
fn turn_away(channel: &Channel, refusal: Refusal) {
    if let Ok(packet) = encode_reply(0, &Reply::Refused(refusal)) {
        let _ = channel.send(&packet, &[]);
    }
}

/// How long after pages were written, which took so long, they are written again, at least.
fn pause_after(took_ns: u64) -> u64 {
    let at_most = PAGE_AGE_NS.max(took_ns.saturating_mul(PAGE_SHARE_AT_MOST));
    took_ns.saturating_mul(PAGE_SHARE).min(at_most)
}

const fn turns(config: &Config) -> Multiplexing {
    match config.counting.turns {
        Turns::Kernel => Multiplexing::Kernel,
        Turns::Engine => Multiplexing::Engine,
    }
}

fn rules(config: &Config) -> Rules {
    let CountingConfig { turns, refresh_ms } = config.counting;
    let kernel_ring_bytes = u64::from(config.records.kernel_ring_kib) * 1024;
    Rules { limits: config.limits, files: config.rights.files, refresh_ms, turns, kernel_ring_bytes }
}

/// What is told of metrics: the place that was named goes before the configuration's.
fn metrics_config(config: &Config, start: &Start) -> MetricsConfig {
    let mut metrics = config.metrics.clone();
    metrics.listen = start.metrics.clone().or(metrics.listen);
    metrics
}

/// Another number at each start: the time of day, or, where the clock is wrong, that since boot.
fn epoch(now_ns: u64) -> u64 {
    let today = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    today.map_or(now_ns, |time| u64::try_from(time.as_nanos()).unwrap_or(now_ns)) | 1
}

/// What a configuration says about somebody.
fn standing(asker: &Asker, known: &LookedUp) -> Standing {
    let connected = &asker.connected;
    let named = |group: &u32| known.system_wide.contains(group);
    let named = named(&connected.group) || connected.groups.iter().any(named);
    let membership = if named { Membership::Named } else { Membership::None };
    Standing { membership, allowance: known.weights.of(asker) }
}

fn listen(start: &Start, config: &Config) -> Result<(Listener, Option<PathBuf>), StartError> {
    if start.socket.is_none()
        && let Some((_, socket)) = handed_over().into_iter().next()
    {
        return Ok((Listener::take_over(socket).map_err(StartError::Listen)?, None));
    }
    let (path, usual) = match start.socket.as_ref().or(config.socket.path.as_ref()) {
        Some(path) => (path.clone(), false),
        None if pmux::serving::is_root() => (PathBuf::from(SYSTEM_SOCKET), true),
        None => (user_socket().ok_or(StartError::NoPlace)?, true),
    };
    // The folder of a place that somebody has chosen is his affair.
    if let (true, Some(folder)) = (usual, path.parent()) {
        std::fs::create_dir_all(folder).map_err(|error| StartError::Folder(folder.to_owned(), error))?;
    }
    let listener = Listener::bind(&path, config.socket.mode.0).map_err(StartError::Listen)?;
    if let Some(group) = &config.socket.group {
        let file = std::fs::read_to_string("/etc/group").unwrap_or_default();
        let number = group.group(&file).map_err(StartError::Machine)?;
        std::os::unix::fs::chown(&path, None, Some(number))
            .map_err(|error| StartError::Machine(format!("{} can't be given to a group: {error}", path.display())))?;
    }
    Ok((listener, Some(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_pages_leaves_time_for_everything_else() {
        let share = |took_ns: u64| took_ns as f64 / pause_after(took_ns) as f64;
        assert_eq!(pause_after(0), 0, "nobody waits for longer than the configuration says");
        assert!(share(1_000_000) <= 0.005, "{}", share(1_000_000));
        assert_eq!(pause_after(20_000_000), PAGE_AGE_NS, "not older than a second,");
        assert!(share(1_000_000_000) <= 0.1, "but for this: {}", share(1_000_000_000));
        assert_eq!(pause_after(u64::MAX), u64::MAX);
    }
}
