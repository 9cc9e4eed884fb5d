//! A client's end: the service as a process that may go away and come back.
//!
//! What it is: [`Service`], one for a process and for all of its threads. It connects anew when there is a service again, and
//! each connection is a *life* with a number: what was opened in one is unknown in the next.
//! Read first: [`Service`]; the slots over it are in [`crate::host`].
//!
//! **Invariant:** no caller waits for a service without a limit, and none asks one that is away again and again: tries are
//! ever rarer, down to one in a second.

mod connection;
mod error;
mod records;

pub use error::{Away, ConnectError};
pub use records::Records;

use super::listener::{SOCKET_VARIABLE, SYSTEM_SOCKET, user_socket};
use super::page::Page;
use super::wire::{Detail, Limits, Part, Refusal, RefusalKind, Reply, Request, Rights};
use crate::sys;
use connection::{Connection, Failed};
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const REQUEST_TIME: Duration = Duration::from_secs(5);
/// The first pause before the next try to connect; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long the first words may take where a caller waits for something else.
const RETRY_TIME: Duration = Duration::from_millis(200);
/// How often a client that needs no answers looks whether the service is there still.
const LOOK_NS: u64 = 100_000_000;

/// Where a service is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SocketPath {
    /// At a path that was named, whichever user it belongs to.
    Named(PathBuf),
    /// At this path, if it belongs to root or to this user.
    Usual(PathBuf),
}

impl SocketPath {
    /// Where the environment says: [`SOCKET_VARIABLE`], the machine's service, an ordinary user's own; the first that is
    /// there, else the last.
    #[must_use]
    pub fn of_environment() -> Self {
        if let Some(path) = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()) {
            return Self::Named(path.into());
        }
        let system = PathBuf::from(SYSTEM_SOCKET);
        let own = user_socket().filter(|_| own_user() != 0);
        match own {
            Some(own) if !system.exists() => Self::Usual(own),
            _ => Self::Usual(system),
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Named(path) | Self::Usual(path) => path,
        }
    }

    fn trusts(&self, owner: u32) -> bool {
        matches!(self, Self::Named(_)) || owner == 0 || owner == own_user()
    }
}

/// The user that this process acts as.
fn own_user() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").map_or(u32::MAX, |seen| seen.uid())
}

/// The number of a connection, from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// What came of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AskError {
    /// The service said no.
    Refused(Refusal),
    /// It is away, or another life has begun: whatever was open isn't any more.
    Away,
}

impl AskError {
    /// Whether something else than the service (the kernel, asked by the caller itself) might say yes.
    #[must_use]
    pub fn may_be_had_directly(&self) -> bool {
        let Self::Refused(refusal) = self else { return true };
        // What the kernel says to the service it says to every process, but for what depends on rights and limits.
        refusal.kind() != RefusalKind::Kernel
            || matches!(refusal.errno, libc::EPERM | libc::EACCES | libc::EMFILE | libc::ENFILE)
    }
}

/// A service for all threads of this process.
pub struct Service {
    place: SocketPath,
    name: String,
    /// How long the first words may take.
    patience: Duration,
    state: Mutex<ServiceState>,
    /// The number of the life that is on, 0 where the service is away. Release and acquire: who sees a life may ask in it.
    connection_id: AtomicU64,
    /// When a thread last looked whether it is there, on the monotonic clock. Relaxed: nothing is published by it.
    looked_ns: AtomicU64,
}

struct ServiceState {
    connection: Option<Connection>,
    connections: u64,
    next_try: Instant,
    pause: Duration,
    /// The longest time that was not counted because of the end of each life.
    gaps: BTreeMap<u64, u64>,
    why_away: Option<Away>,
    /// What was refused when it was to be opened anew, and in which life.
    refusal: Option<(ConnectionId, String)>,
}

/// What one may know of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// How much one may ask for.
    pub limits: Limits,
    /// What one may.
    pub rights: Rights,
}

/// An answer, with its files, and the life and the page that it belongs to.
pub(crate) struct ServiceAnswer {
    pub(crate) connection_id: ConnectionId,
    pub(crate) page: Option<Arc<Page>>,
    pub(crate) reply: Reply,
    pub(crate) files: Vec<OwnedFd>,
}

impl Service {
    /// Connects.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(place: SocketPath, patience: Duration) -> Result<Self, ConnectError> {
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default().trim_end().to_owned();
        let until = Instant::now() + patience;
        let connection = Connection::open(place.path(), &name, until, |owner| place.trusts(owner))?;
        let state = ServiceState {
            connection: Some(connection),
            connections: 1,
            next_try: Instant::now(),
            pause: FIRST_PAUSE,
            gaps: BTreeMap::new(),
            why_away: None,
            refusal: None,
        };
        let looked_ns = AtomicU64::new(sys::clock::monotonic_at_tick_ns());
        Ok(Self { place, name, patience, state: Mutex::new(state), connection_id: AtomicU64::new(1), looked_ns })
    }

    /// Where it is.
    #[must_use]
    pub const fn place(&self) -> &SocketPath {
        &self.place
    }

    /// What it said when it was met last; `None` while it is away.
    #[must_use]
    pub fn terms(&self) -> Option<Terms> {
        let state = self.state();
        let welcome = &state.connection.as_ref()?.welcome;
        Some(Terms { limits: welcome.limits, rights: welcome.rights })
    }

    /// How long something was not counted because the service was away: for each time the longest, added up.
    #[must_use]
    pub fn gap(&self) -> Duration {
        Duration::from_nanos(self.state().gaps.values().sum())
    }

    /// Why it is away, if it is; or why something that was open in a life before is not counted in this one.
    #[must_use]
    pub fn why_away(&self) -> Option<Away> {
        let state = self.state();
        match &state.refusal {
            _ if state.connection.is_none() => state.why_away.clone(),
            Some((life, text)) if life.0 == state.connections => Some(Away::Refuses(text.clone())),
            _ => None,
        }
    }

    /// How it is: a text in JSON.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn status(&self, detail: Detail) -> Result<String, AskError> {
        let mut text = Vec::new();
        self.talk(|connection, until| {
            connection.ask_for_parts(&Request::Status { detail }, until, |reply| match reply {
                Reply::StatusReport { part, text: more } => {
                    text.extend(more);
                    part == Part::Last
                }
                _ => true,
            })
        })?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    pub(crate) fn connection_id(&self) -> Option<ConnectionId> {
        match self.connection_id.load(Ordering::Acquire) {
            0 => None,
            connection_id => Some(ConnectionId(connection_id)),
        }
    }

    /// Whether this life was on when a thread looked last, and that was not long ago: there is no need to look. It is about
    /// `now_ns`.
    #[inline]
    pub(crate) fn is_on(&self, connection_id: ConnectionId, now_ns: u64) -> bool {
        let looked_ns = self.looked_ns.load(Ordering::Relaxed);
        self.connection_id.load(Ordering::Acquire) == connection_id.0 && now_ns.saturating_sub(looked_ns) < LOOK_NS
    }

    /// Looks from time to time whether the service is there, and connects again where it can be had. It is about `now_ns`.
    pub(crate) fn look(&self, now_ns: u64) {
        let before = self.looked_ns.load(Ordering::Relaxed);
        if now_ns.saturating_sub(before) >= LOOK_NS || self.connection_id().is_none() {
            self.look_now(now_ns);
        }
    }

    #[cold]
    fn look_now(&self, now_ns: u64) {
        self.looked_ns.store(now_ns, Ordering::Relaxed);
        let mut state = self.state();
        if let Some(connection) = &mut state.connection
            && let Err(away) = connection.listen()
        {
            self.lose(&mut state, away);
        }
        self.revive(&mut state);
    }

    /// Takes what the service has said, and connects again where it is time to try. Answers the number of the life that is on; `None`
    /// while the service is away.
    pub fn attend(&self) -> Option<u64> {
        self.look_now(crate::now_ns());
        self.connection_id().map(|connection_id| connection_id.0)
    }

    /// Passes on the connection, which is readable when the service says something or has gone; `None` while it is away. Another
    /// connection is there after [`Service::attend`] has answered another number.
    pub fn with_fd<R>(&self, f: impl FnOnce(Option<BorrowedFd<'_>>) -> R) -> R {
        f(self.state().connection.as_ref().map(Connection::fd))
    }

    /// Asks for something in whatever life is on, or begins the next one.
    pub(crate) fn ask_anew(&self, request: &Request) -> Result<ServiceAnswer, AskError> {
        self.talk(|connection, until| connection.ask(request, until).map(|answer| (answer, connection.page.clone())))
            .map(|(((reply, files), page), connection_id)| ServiceAnswer { connection_id, page, reply, files })
    }

    /// Asks about what was opened in a life.
    pub(crate) fn ask(&self, connection_id: ConnectionId, request: &Request) -> Result<ServiceAnswer, AskError> {
        if self.connection_id() != Some(connection_id) {
            return Err(AskError::Away);
        }
        let mut state = self.state();
        // Another thread may have lost it meanwhile.
        if state.connections != connection_id.0 {
            return Err(AskError::Away);
        }
        let ServiceState { connection: Some(connection), .. } = &mut *state else { return Err(AskError::Away) };
        let page = connection.page.clone();
        match connection.ask(request, Instant::now() + REQUEST_TIME) {
            Ok((reply, files)) => Ok(ServiceAnswer { connection_id, page, reply, files }),
            Err(failed) => Err(self.failed(&mut state, failed)),
        }
    }

    /// Brings that something was not counted for so long because a life had ended.
    pub(crate) fn missed(&self, ended: ConnectionId, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut state = self.state();
        let gap = state.gaps.entry(ended.0).or_default();
        *gap = time.max(*gap);
    }

    /// Brings that what was open before is not opened anew in a life, or that nothing waits for that any more.
    pub(crate) fn set_refusal(&self, refusal: Option<(ConnectionId, &Refusal)>) {
        self.state().refusal = refusal.map(|(life, refusal)| (life, refusal.text.clone()));
    }

    /// What was heard makes no sense: the life is over.
    pub(crate) fn doubt(&self, connection_id: ConnectionId) {
        let mut state = self.state();
        if state.connections == connection_id.0 && state.connection.is_some() {
            self.lose(&mut state, Away::Nonsense);
        }
    }

    fn talk<R>(
        &self,
        f: impl FnOnce(&mut Connection, Instant) -> Result<R, Failed>,
    ) -> Result<(R, ConnectionId), AskError> {
        let mut state = self.state();
        self.revive(&mut state);
        let connection_id = ConnectionId(state.connections);
        let ServiceState { connection: Some(connection), .. } = &mut *state else { return Err(AskError::Away) };
        match f(connection, Instant::now() + REQUEST_TIME) {
            Ok(answer) => Ok((answer, connection_id)),
            Err(failed) => Err(self.failed(&mut state, failed)),
        }
    }

    fn failed(&self, state: &mut ServiceState, failed: Failed) -> AskError {
        let why = match failed {
            Failed::Refused(refusal) if refusal.kind() == RefusalKind::Stopping => Away::Said(refusal.text),
            Failed::Refused(refusal) => return AskError::Refused(refusal),
            Failed::Away(away) => away,
        };
        self.lose(state, why);
        AskError::Away
    }

    fn lose(&self, state: &mut ServiceState, why: Away) {
        state.connection = None;
        state.why_away = Some(why);
        state.next_try = Instant::now();
        state.pause = FIRST_PAUSE;
        self.connection_id.store(0, Ordering::Release);
    }

    /// Connects again, if it is time to try.
    fn revive(&self, state: &mut ServiceState) {
        if state.connection.is_some() || Instant::now() < state.next_try {
            return;
        }
        let until = Instant::now() + self.patience.min(RETRY_TIME);
        match Connection::open(self.place.path(), &self.name, until, |owner| self.place.trusts(owner)) {
            Ok(connection) => {
                state.connection = Some(connection);
                state.connections += 1;
                state.pause = FIRST_PAUSE;
                self.connection_id.store(state.connections, Ordering::Release);
            }
            Err(_) => {
                state.next_try = Instant::now() + state.pause;
                state.pause = (state.pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("place", &self.place).field("life", &self.connection_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_socket_is_trusted_only_where_root_or_the_caller_owns_it() {
        let (usual, named) = (SocketPath::Usual("/s".into()), SocketPath::Named("/s".into()));
        let own = own_user();
        let stranger = own.wrapping_add(1).max(1);
        assert_eq!([0, own, stranger].map(|owner| usual.trusts(owner)), [true, true, false]);
        assert_eq!([0, own, stranger].map(|owner| named.trusts(owner)), [true, true, true]);
    }
}
