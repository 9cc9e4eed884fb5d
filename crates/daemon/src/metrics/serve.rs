//! The thread that answers.
//!
//! **Invariant:** no peer is waited for: one that is slow is cut off, and there are only so many at once: a new connection takes the
//! place of the one that has been silent longest, whatever its address, for most are of this machine. Numbers are
//! taken at most so often, however many ask.

use super::collect::{Carried, Collector, Sample};
use super::text::{Format, text};
use super::{Shared, lock};
use crate::config::{Level, Listen};
use crate::http::{self, Body, Get, ParsedRequest, Status};
use crate::log::Log;
use pmux::server_api::shared::listener::bind_stream;
use pmux::server_api::shared::poll::{Interest, Poll, Ready, Token};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LISTENER: Token = Token(0);
const WAKE: Token = Token(1);
const FIRST: u64 = 16;
/// So many may ask at once.
const MOST: usize = 64;
/// So many are taken in before those who are there have their turn. Less than [`MOST`], so that no connection has to go before what
/// it asks was read.
const ACCEPTS: usize = 16;
/// So long may a request take, and then its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Numbers that are younger are told again.
const FRESH: Duration = Duration::from_millis(100);
/// How often cgroups are looked for when no client asks.
const LOOK: Duration = Duration::from_secs(2);
/// Looking takes at most this part of the time.
const LOOK_SHARE: u32 = 50;
/// How long no client is taken in when no file is left.
const NO_FILES: Duration = Duration::from_millis(100);

enum HttpListener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl HttpListener {
    fn bind(listen: &Listen) -> Result<Self, String> {
        match listen {
            Listen::Tcp(address) => {
                let failed = |error| format!("metrics can't be served at {address}: {error}");
                let listener = TcpListener::bind(address).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                Ok(Self::Tcp(listener))
            }
            Listen::Unix(path) => {
                let failed = |error| format!("metrics can't be served at {}: {error}", path.display());
                // As open as a port of the loopback.
                let listener = bind_stream(path, 0o666).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                // A file would be closed here, and its sender decides how long that takes.
                pmux::server_api::shared::listener::refuse_files(&listener);
                Ok(Self::Unix(listener, path.clone()))
            }
        }
    }

    /// The client's socket: what is done with it here is the same for both families.
    fn accept(&self) -> io::Result<UnixStream> {
        let stream = match self {
            Self::Tcp(listener) => OwnedFd::from(listener.accept()?.0).into(),
            Self::Unix(listener, _) => listener.accept()?.0,
        };
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

impl Drop for HttpListener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl AsFd for HttpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

struct HttpConnection {
    stream: UnixStream,
    request: Vec<u8>,
    /// What is being sent, and how much of it was.
    answer: Option<(Vec<u8>, usize)>,
    until: Instant,
}

impl HttpConnection {
    /// Nothing more is sent; what still comes is not read any more.
    fn finish(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HttpState {
    Open,
    Closed,
}

pub(super) struct MetricsServer {
    poll: Poll,
    listener: HttpListener,
    pub(super) place: String,
    wake: UnixStream,
    collector: Collector,
    shared: Arc<Shared>,
    connections: HashMap<u64, HttpConnection>,
    next: u64,
    sample: Option<(Instant, Arc<Sample>)>,
    next_look: Instant,
    accept_from: Option<Instant>,
    log: Log,
}

impl MetricsServer {
    pub(super) fn new(
        listen: &Listen,
        collector: Collector,
        shared: Arc<Shared>,
        wake: UnixStream,
        log: Log,
    ) -> Result<Self, String> {
        let listener = HttpListener::bind(listen)?;
        let place = match &listener {
            HttpListener::Tcp(tcp) => tcp
                .local_addr()
                .map(|address| format!("http://{address}/metrics"))
                .map_err(|error| error.to_string())?,
            HttpListener::Unix(_, path) => path.display().to_string(),
        };
        wake.set_nonblocking(true).map_err(|error| error.to_string())?;
        let poll = Poll::new().map_err(|errno| format!("no epoll for metrics: {errno}"))?;
        let watched =
            poll.add(&listener, LISTENER, Interest::Read).and_then(|()| poll.add(&wake, WAKE, Interest::Read));
        watched.map_err(|errno| format!("metrics can't be waited for: {errno}"))?;
        let (connections, now) = (HashMap::new(), Instant::now());
        Ok(Self {
            poll,
            listener,
            place,
            wake,
            collector,
            shared,
            connections,
            next: FIRST,
            sample: None,
            next_look: now + LOOK,
            accept_from: None,
            log,
        })
    }

    /// Answers until the other end of the wake is closed. What was counted is answered.
    pub(super) fn run(mut self) -> Carried {
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            let now = Instant::now();
            let deadlines = self.connections.values().map(|connection| connection.until);
            let next = deadlines.chain([self.next_look]).chain(self.accept_from).min().unwrap_or(now);
            ready.clear();
            if let Err(errno) = self.poll.wait(Some(next.saturating_duration_since(now)), |report| ready.push(report)) {
                self.log.write(Level::Error, format_args!("metrics: waiting failed: {errno}"));
                break;
            }
            for &report in &ready {
                match report.token {
                    LISTENER => self.accept(),
                    WAKE => {
                        if self.is_over() {
                            return self.collector.end();
                        }
                        self.collector.follow_cpus();
                    }
                    Token(number) => self.serve_connection(number),
                }
            }
            self.on_time(Instant::now());
        }
        self.collector.end()
    }

    fn on_time(&mut self, now: Instant) {
        self.connections.retain(|_, connection| connection.until > now);
        if now >= self.next_look {
            self.collector.follow_cgroups();
            // What takes long is not done all the time.
            self.next_look = now + LOOK.max(now.elapsed() * LOOK_SHARE);
        }
        if self.accept_from.is_some_and(|from| now >= from) {
            self.accept_from = None;
            let _ = self.poll.add(&self.listener, LISTENER, Interest::Read);
        }
    }

    /// Takes what woke it; answers whether it is to end.
    fn is_over(&mut self) -> bool {
        let mut bytes = [0; 64];
        loop {
            match self.wake.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok(stream) => {
                    if self.connections.len() >= MOST {
                        self.make_room();
                    }
                    let number = self.next;
                    self.next += 1;
                    if self.poll.add(&stream, Token(number), Interest::Read).is_ok() {
                        let until = Instant::now() + PATIENCE;
                        let connection = HttpConnection { stream, request: Vec::new(), answer: None, until };
                        self.connections.insert(number, connection);
                        // Most have asked by now.
                        self.serve_connection(number);
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => return,
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    // It would be reported again and again.
                    self.log.write(Level::Error, format_args!("metrics: no connection can be taken in: {error}"));
                    let _ = self.poll.remove(&self.listener);
                    self.accept_from = Some(Instant::now() + NO_FILES);
                    return;
                }
            }
        }
    }

    /// Lets the oldest connection go that has not asked yet; where all have, the oldest that does not take its answer.
    fn make_room(&mut self) {
        let age = |(&number, connection): (&u64, &HttpConnection)| (connection.answer.is_some(), number);
        let oldest = self.connections.iter().map(age).min();
        if let Some(mut connection) = oldest.and_then(|(_, number)| self.connections.remove(&number)) {
            if connection.answer.is_none() {
                // It may not be read, and then nothing is lost.
                let _ = connection.stream.write(&http::refusal(Status::Busy, Body::Sent));
            }
            connection.finish();
        }
    }

    fn serve_connection(&mut self, number: u64) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        let state = if connection.answer.is_none() { self.read_request(&mut connection) } else { HttpState::Open };
        let state = if state == HttpState::Open { send_answer(&mut connection) } else { state };
        if state == HttpState::Closed {
            connection.finish();
            return;
        }
        let interest = if connection.answer.is_some() { Interest::Write } else { Interest::Read };
        if self.poll.change(&connection.stream, Token(number), interest).is_ok() {
            self.connections.insert(number, connection);
        }
    }

    /// Reads what has come, and finds the answer when it is a whole request.
    fn read_request(&mut self, connection: &mut HttpConnection) -> HttpState {
        let mut bytes = [0; 2048];
        loop {
            let room = bytes.len().min(http::MOST_BYTES.saturating_sub(connection.request.len()).max(1));
            match connection.stream.read(&mut bytes[..room]) {
                Ok(0) => return HttpState::Closed,
                Ok(read) => connection.request.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return HttpState::Open,
                Err(_) => return HttpState::Closed,
            }
            let parsed = http::understand(&connection.request, &lock(&self.shared.access));
            let answer = match parsed {
                ParsedRequest::Incomplete => continue,
                ParsedRequest::Invalid(status) => http::refusal(status, Body::Sent),
                ParsedRequest::Get(Get { path, body, openmetrics }) if path == "/metrics" => {
                    self.numbers(if openmetrics { Format::OpenMetrics } else { Format::Prometheus }, body)
                }
                ParsedRequest::Get(get) => http::refusal(Status::NotFound, get.body),
            };
            connection.answer = Some((answer, 0));
            connection.until = Instant::now() + PATIENCE;
            return HttpState::Open;
        }
    }

    fn numbers(&mut self, format: Format, body: Body) -> Vec<u8> {
        let fresh = self.sample.as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, sample)| Arc::clone(sample));
        let sample = fresh.unwrap_or_else(|| {
            let health = *lock(&self.shared.health);
            let sample = Arc::new(self.collector.collect(health));
            self.sample = Some((Instant::now(), Arc::clone(&sample)));
            sample
        });
        http::answer(Status::Good, format.content_type(), "", text(&sample, format).as_bytes(), body)
    }
}

/// Sends as much as there is room for.
fn send_answer(connection: &mut HttpConnection) -> HttpState {
    let Some((answer, sent)) = &mut connection.answer else { return HttpState::Open };
    while let Some(rest) = answer.get(*sent..).filter(|rest| !rest.is_empty()) {
        match connection.stream.write(rest) {
            Ok(written) => *sent += written,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return HttpState::Open,
            Err(_) => return HttpState::Closed,
        }
    }
    HttpState::Closed
}
