//! Events opened with the credentials of another process.
//!
//! What it is: [`Credentials`], by which the kernel decides about `perf_event_open(2)`; [`Openers`], the processes that have taken
//! them (`crate::sys`, `opener`), one for each distinct set; and [`OnBehalf`], which keeps a set registered.
//! Read first: [`Openers::on_behalf_of`], then [`Openers::begin`].
//!
//! An opener runs as its client's user, so its client may stop it, slow it down or kill it. What a request asks of an opener is
//! therefore not waited for. The request fails with [`ActError::Late`] when it asks for what is not known yet, is tried again when the
//! opener has answered, and finds the answers of earlier tries: the kernel is asked once for each thing. Requests of a user are
//! answered one after another, each within a deadline. Only what is opened outside of a request is waited for (a CPU that comes, a
//! turn), within a bound, and for a limited part of the time: see `Budget`.
//!
//! **Invariant:** an opener never has more capabilities than this process, and its credentials never change once it has taken them.

use crate::host::FileCount;
use crate::sys::opener::{CGROUP_FILE, GROUP_FILE, Op, Order, Reply, fork_nursery};
use crate::sys::{self, Errno, Interest, Poll, PollEntry, Reaping, Token};
use pmux_engine::Cred;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

mod request;

pub use request::RequestId;
use request::{Answer, Key, Request, Todo};

/// A request has its answers within so long, from when it is its turn.
const DEADLINE_NS: u64 = 10_000_000_000;
/// So many orders of a request are with openers at once.
const MOST_IN_FLIGHT: usize = 16;
/// What is opened outside of a request is waited for so long.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often it is looked whether another thread has taken the answer.
const LOOK: Duration = Duration::from_millis(20);
/// The nursery, which no client can stop, is waited for so long.
const NURSERY_PATIENCE: Duration = Duration::from_secs(2);
/// Openers at once, of one user and in all. One more takes the place of the one that was idle longest.
const OPENERS_PER_USER: usize = 8;
const OPENERS: usize = 64;
/// What is waited for outside of requests may take this part of the time for each user...
const SHARE: u64 = 10;
/// ... and so much ahead of that.
const BURST_NS: u64 = 500_000_000;
/// What an answer that did not come costs, beside the time that was waited: nothing is waited for then for [`SHARE`] times as long.
const LATE_NS: u64 = 300_000_000;
/// What a killed opener that has exited is reported as; no credentials have the number.
const ENDED: Token = Token(0);
/// Room for the longest answer, and one byte more.
const REPLY_ROOM: usize = size_of::<Reply>() + 1;

/// What the kernel asks about a task that calls `perf_event_open(2)`. Its supplementary groups are not among it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Credentials {
    /// The user: real, effective and saved.
    pub user: u32,
    /// The group: real, effective and saved.
    pub group: u32,
    /// The permitted capabilities, a bit for each.
    pub permitted: u64,
    /// The effective ones.
    pub effective: u64,
    /// The inode of its user namespace, where that is not this process's own.
    pub user_namespace: Option<u64>,
}

impl Credentials {
    /// Those of this process; `None` where its users differ from each other, or nothing tells.
    #[must_use]
    pub fn own() -> Option<Self> {
        let status = crate::procfs::Proc::system().own_status().ok()?;
        let (user, group) = (status.users.effective, status.groups.effective);
        (status.users.are_all(user) && status.groups.are_all(group)).then_some(Self {
            user,
            group,
            permitted: status.permitted_capabilities,
            effective: status.effective_capabilities,
            user_namespace: None,
        })
    }

    /// Whether whatever `other` may open may be opened with these, too.
    #[must_use]
    pub const fn cover(&self, other: &Self) -> bool {
        let same_group = self.group == other.group || self.user == 0;
        let no_less = other.permitted & !self.permitted == 0 && other.effective & !self.effective == 0;
        self.user == other.user
            && same_group
            && no_less
            && self.user_namespace.is_none()
            && other.user_namespace.is_none()
    }
}

/// Why an event was not opened with the credentials of another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActError {
    /// The kernel refused it.
    Refused(Errno),
    /// The credentials can't be taken: `EPERM` where this process lacks `CAP_SETUID`, `CAP_SETGID` or `CAP_SYS_ADMIN` (for a user
    /// namespace); `ESRCH` where the namespace has gone; others where no process can be made.
    NotTaken(Errno),
    /// No answer has come, or none in time; or the opener was killed, or is not let open anything; or too many of the user's openers
    /// have not answered before.
    Late,
}

impl ActError {
    /// The number of the error: `EAGAIN` for [`ActError::Late`].
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Refused(errno) | Self::NotTaken(errno) => errno,
            Self::Late => Errno::EAGAIN,
        }
    }
}

impl fmt::Display for ActError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(errno) => write!(f, "the kernel refuses it: {errno}"),
            Self::NotTaken(errno) => write!(
                f,
                "the service can't take the client's credentials ({errno}): it needs CAP_SETUID, CAP_SETGID and CAP_SYS_ADMIN; open it without the service"
            ),
            Self::Late => f.write_str(
                "the process that opens events with this user's credentials did not answer in time: it was stopped, killed or limited by its user, or the target is in the middle of an exec; try again in a few seconds",
            ),
        }
    }
}

impl std::error::Error for ActError {}

/// Which task an event counts, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventTarget {
    /// The thread; `None`: all that run on the CPU.
    pub task: Option<u32>,
    /// The CPU; `None`: any.
    pub cpu: Option<u32>,
}

/// Processes that have taken the credentials of others, and the sets of credentials that are registered.
#[derive(Default)]
pub struct Openers {
    state: Mutex<State>,
    /// Readable when an opener has answered; made when the first request is about to come.
    poll: OnceLock<Poll>,
    files: Arc<FileCount>,
}

#[derive(Default)]
struct State {
    nursery: Option<Nursery>,
    registered: HashMap<Cred, Registered>,
    numbers: HashMap<Credentials, Cred>,
    last_number: u64,
    /// Counts orders: what was used last has the highest number.
    orders: u64,
    requests: HashMap<RequestId, Request>,
    /// The requests of each user that wait for openers, in the order in which they came: the first is worked on.
    lines: HashMap<u32, VecDeque<RequestId>>,
    /// The request that is tried now, by this thread.
    current: Option<(ThreadId, RequestId)>,
    /// Users whose first request may be gone on with.
    stalled: Vec<u32>,
    /// Requests that can be tried again.
    ready: VecDeque<RequestId>,
    /// Answers to threads that wait.
    waited: HashMap<u64, Answer>,
    /// Openers that were killed, with their users, until they have exited: the kernel may keep them in a system call.
    ended: Vec<(u32, OwnedFd)>,
    /// Files that have no use: answers to requests that are over.
    useless: Vec<OwnedFd>,
    budgets: HashMap<u32, Budget>,
}

struct Registered {
    credentials: Credentials,
    /// A process of the user namespace, where that is another.
    process: i32,
    users: usize,
    opener: Option<Opener>,
    used: u64,
}

/// Credentials that are registered for as long as this lives: events can be opened with them by their number.
pub struct OnBehalf {
    cred: Cred,
    openers: Arc<Openers>,
}

impl Openers {
    /// None yet. What they have opened in vain is closed where `files` says.
    pub(crate) fn new(files: Arc<FileCount>) -> Self {
        Self { files, ..Self::default() }
    }

    /// Registers the credentials of a process; equal ones have one number. An opener is made when it is needed first.
    #[must_use]
    pub fn on_behalf_of(self: &Arc<Self>, process: i32, credentials: Credentials) -> Arc<OnBehalf> {
        let mut state = self.state();
        let cred = match state.numbers.get(&credentials) {
            Some(&cred) => cred,
            None => {
                state.last_number += 1;
                let cred = Cred(state.last_number);
                state.numbers.insert(credentials, cred);
                cred
            }
        };
        let fresh = || Registered { credentials, process, users: 0, opener: None, used: 0 };
        // Later tries of a request find the answers by the number.
        let is_kept = state.tried().is_some_and(|request| request.keep(cred));
        let registered = state.registered.entry(cred).or_insert_with(fresh);
        registered.users += 1 + usize::from(is_kept);
        // The one that was there first may have exited.
        registered.process = process;
        Arc::new(OnBehalf { cred, openers: Arc::clone(self) })
    }

    /// The user of registered credentials.
    #[must_use]
    pub fn user_of(&self, cred: Cred) -> Option<u32> {
        self.state().registered.get(&cred).map(|registered| registered.credentials.user)
    }

    /// Readable when [`Openers::go_on`] has something to do. What makes openers exists from now on: later there may be no file left for it.
    ///
    /// # Errors
    /// Those of `epoll_create1(2)`.
    pub fn readable(&self) -> Result<BorrowedFd<'_>, Errno> {
        if self.poll.get().is_none() {
            let _ = self.poll.set(Poll::new()?);
            // Where it can't be made now, it may be when it is needed.
            let _ = self.state().nursery();
        }
        Ok(self.poll.get().ok_or(Errno::EBADF)?.as_fd())
    }

    /// A request of a user is tried, for the first time or again, by this thread: until [`Openers::pause`] nothing that is opened with
    /// registered credentials is waited for. `false`: openers still work for it.
    #[must_use]
    pub fn begin(&self, id: RequestId, user: u32) -> bool {
        let mut state = self.state();
        let request = state.requests.entry(id).or_insert_with(|| Request::new(user));
        if request.is_at_work() {
            return false;
        }
        request.begin();
        state.current = Some((std::thread::current().id(), id));
        true
    }

    /// Whether the request that is tried has asked for something that is not known yet: whatever it has opened is to be closed, and it is
    /// to be tried again.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.state().tried().is_some_and(|request| request.waits)
    }

    /// The end of a try: whether another one is needed, which [`Openers::go_on`] announces. Otherwise the request is over.
    #[must_use]
    pub fn pause(&self) -> bool {
        let waits = self.is_waiting();
        let mut state = self.state();
        let Some((_, id)) = state.current.take() else { return false };
        match state.requests.get(&id).map(|request| request.user) {
            Some(user) if waits => state.stalled.push(user),
            _ => state.end(self.poll.get(), id),
        }
        self.work(&mut state);
        waits
    }

    /// Nothing waits for a request any more. What was asked for it is closed.
    pub fn end(&self, id: RequestId) {
        let mut state = self.state();
        state.end(self.poll.get(), id);
        self.work(&mut state);
    }

    /// When [`Openers::go_on`] is to be called although nothing is readable; `u64::MAX`: never, 0: now.
    #[must_use]
    pub fn next_ns(&self) -> u64 {
        let state = self.state();
        if !state.ready.is_empty() {
            return 0;
        }
        let first = state.lines.values().filter_map(VecDeque::front);
        first.filter_map(|id| state.requests.get(id)?.due_ns).min().unwrap_or(u64::MAX)
    }

    /// Takes the answers of openers, ends those that have not answered in time, and adds the requests that can be tried again.
    pub fn go_on(&self, out: &mut Vec<RequestId>) {
        let mut state = self.state();
        let poll = self.poll.get();
        let mut answered = Vec::new();
        // Where it fails, the deadline comes.
        let _ = poll.map(|poll| poll.wait(Some(Duration::ZERO), |ready| answered.push(Cred(ready.token.0))));
        for cred in answered {
            while state.receive(poll, cred) {}
        }
        state.forget_the_ended();
        state.expire(poll, sys::clock::monotonic_ns());
        self.work(&mut state);
        out.extend(state.ready.drain(..));
    }

    pub(crate) fn open(
        &self,
        cred: Cred,
        attr: &[u8],
        target: EventTarget,
        group: Option<BorrowedFd<'_>>,
        cgroup: Option<BorrowedFd<'_>>,
    ) -> Result<OwnedFd, ActError> {
        let beside = group.map_or(0, |_| GROUP_FILE) | cgroup.map_or(0, |_| CGROUP_FILE);
        let order = order(Op::Open, attr, target)?.with_words([beside, 0, 0, 0, 0]);
        self.ask(cred, &order, (group, cgroup))?.ok_or(ActError::Late)
    }

    fn check(&self, cred: Cred, attr: &[u8], target: EventTarget) -> Result<(), ActError> {
        self.ask(cred, &order(Op::Check, attr, target)?, (None, None)).map(drop)
    }

    /// Changes what a breakpoint waits for, with registered credentials.
    pub(crate) fn modify(&self, cred: Cred, event: BorrowedFd<'_>, attr: &[u8]) -> Result<(), ActError> {
        let order = order(Op::Modify, attr, EventTarget { task: None, cpu: None })?;
        self.ask(cred, &order, (Some(event), None)).map(drop)
    }

    /// Gives an order, with an event and a cgroup beside it. In a request that is tried it is [`ActError::Late`] until its answer has come.
    fn ask(&self, cred: Cred, order: &Order, files: Files<'_>) -> Answer {
        let copy = |file: Option<BorrowedFd<'_>>| file.map(|file| file.try_clone_to_owned()).transpose();
        let no_file = |_| ActError::Refused(Errno::EMFILE);
        let key = Key::new(cred, order, files)?;
        let mut state = self.state();
        let user = state.credentials(cred)?.user;
        let current = state.current.filter(|&(thread, _)| thread == std::thread::current().id());
        let Some((_, id)) = current else {
            drop(state);
            let files = [copy(files.0).map_err(no_file)?, copy(files.1).map_err(no_file)?];
            return self.ask_and_wait(user, || Todo::copy(&key, &files));
        };
        let State { requests, lines, .. } = &mut *state;
        let Some(request) = requests.get_mut(&id) else { return Err(ActError::Late) };
        if let Some(known) = request.answer(&key) {
            return known;
        }
        request.waits = true;
        let line = lines.entry(request.user).or_default();
        if !line.contains(&id) {
            line.push_back(id);
        }
        // Until it is its turn nothing is asked for it, so that it holds nothing.
        if line.front() == Some(&id) {
            let files = [copy(files.0).map_err(no_file)?, copy(files.1).map_err(no_file)?];
            request.todo.push_back(Todo::copy(&key, &files)?);
        }
        Err(ActError::Late)
    }

    /// The same outside of a request. An opener that was killed while it had nothing to do is replaced.
    fn ask_and_wait(&self, user: u32, todo: impl Fn() -> Result<Todo, ActError>) -> Answer {
        if self.state().owed_ns(user) > BURST_NS {
            return Err(ActError::Late);
        }
        let started = Instant::now();
        let mut answer = None;
        for _ in 0..2 {
            let todo = todo()?;
            let (cred, poll) = (todo.key.cred, self.poll.get());
            let mut state = self.state();
            state.orders += 1;
            let ticket = state.orders;
            state.give(poll, Asker::Thread(ticket), todo)?;
            let mut file = state.socket_of(cred);
            drop(state);
            // The opener has gone when it has no socket.
            while let (None, Some(socket)) = (&answer, &file) {
                let left = PATIENCE.saturating_sub(started.elapsed());
                let mut entries = [PollEntry::new(socket.as_raw_fd())];
                let polled = sys::ppoll(&mut entries, Some(left.min(LOOK)));
                let mut state = self.state();
                if polled != Ok(0) {
                    state.receive(poll, cred);
                }
                answer = state.waited.remove(&ticket);
                if answer.is_none() && left.is_zero() {
                    state.lose(poll, cred, ActError::Late);
                    answer = Some(Err(ActError::Late));
                }
                if state.socket_of(cred).is_none() {
                    file = None;
                }
                drop(state);
            }
            if answer.is_some() {
                break;
            }
        }
        let late_ns = if matches!(answer, Some(Err(ActError::Late)) | None) { LATE_NS + BURST_NS } else { 0 };
        let waited_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut state = self.state();
        state.charge(user, waited_ns.saturating_add(late_ns));
        self.work(&mut state);
        answer.unwrap_or(Err(ActError::Late))
    }

    /// Goes on with the requests of users about whose openers something has changed, and closes what has no use.
    fn work(&self, state: &mut State) {
        while let Some(user) = state.stalled.pop() {
            state.drive(self.poll.get(), user);
        }
        state.useless.drain(..).for_each(|file| self.files.discard(file));
    }

    /// A panic elsewhere leaves processes that are checked with each order.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Openers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Openers").finish_non_exhaustive()
    }
}

impl OnBehalf {
    /// The number of the credentials.
    #[must_use]
    pub const fn cred(&self) -> Cred {
        self.cred
    }

    /// Whether the kernel would let an event be opened with them, now: it is opened and closed again.
    ///
    /// # Errors
    /// [`ActError`].
    pub fn check(&self, attr: &[u8], target: EventTarget) -> Result<(), ActError> {
        self.openers.check(self.cred, attr, target)
    }
}

impl fmt::Debug for OnBehalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnBehalf").field("cred", &self.cred).finish_non_exhaustive()
    }
}

impl Drop for OnBehalf {
    fn drop(&mut self) {
        let mut state = self.openers.state();
        state.release(self.openers.poll.get(), self.cred);
        self.openers.work(&mut state);
    }
}

fn order(op: Op, attr: &[u8], target: EventTarget) -> Result<Order, ActError> {
    let number = |number: Option<u32>, errno| match number {
        None => Ok(-1),
        Some(number) => i32::try_from(number).map_err(|_| ActError::Refused(errno)),
    };
    // 0 would silently mean the opener.
    if target.task == Some(0) {
        return Err(ActError::Refused(Errno::ESRCH));
    }
    sys::perf::check_stated_size(attr).map_err(ActError::Refused)?;
    let order = Order::new(op).with_attr(attr).ok_or(ActError::Refused(Errno::E2BIG))?;
    Ok(order.about(number(target.task, Errno::ESRCH)?, number(target.cpu, Errno::EINVAL)?))
}

/// An event and a cgroup beside an order.
type Files<'f> = (Option<BorrowedFd<'f>>, Option<BorrowedFd<'f>>);

/// What gets an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asker {
    Request(RequestId),
    /// A thread that waits, by the number of what it waits for.
    Thread(u64),
}

/// What an opener has been given to do, and has not answered.
enum Work {
    Become,
    Order(Asker, Todo),
}

impl State {
    fn credentials(&self, cred: Cred) -> Result<Credentials, ActError> {
        let registered = self.registered.get(&cred).ok_or(ActError::NotTaken(Errno::ESRCH))?;
        Ok(registered.credentials)
    }

    /// The request that this thread tries.
    fn tried(&mut self) -> Option<&mut Request> {
        let (thread, id) = self.current?;
        (thread == std::thread::current().id()).then(|| self.requests.get_mut(&id)).flatten()
    }

    /// One less keeps credentials registered.
    fn release(&mut self, poll: Option<&Poll>, cred: Cred) {
        let Some(registered) = self.registered.get_mut(&cred) else { return };
        registered.users -= 1;
        if registered.users == 0 {
            let credentials = registered.credentials;
            self.lose(poll, cred, ActError::Late);
            self.registered.remove(&cred);
            self.numbers.remove(&credentials);
        }
    }

    /// Gives openers what the first request of a user has to ask; where it has nothing left, it can be tried again.
    fn drive(&mut self, poll: Option<&Poll>, user: u32) {
        while let Some(&id) = self.lines.get(&user).and_then(VecDeque::front) {
            let Some(request) = self.requests.get_mut(&id) else { return };
            request.due_ns.get_or_insert_with(|| sys::clock::monotonic_ns() + DEADLINE_NS);
            if request.in_flight >= MOST_IN_FLIGHT {
                return;
            }
            let Some(todo) = request.todo.pop_front() else {
                if request.in_flight == 0 && !self.ready.contains(&id) {
                    self.ready.push_back(id);
                }
                return;
            };
            request.in_flight += 1;
            let key = todo.key.clone();
            if let Err(error) = self.give(poll, Asker::Request(id), todo) {
                self.answer(Asker::Request(id), key, Err(error));
            }
        }
    }

    /// Gives an opener an order, which is made where there is none.
    fn give(&mut self, poll: Option<&Poll>, asker: Asker, todo: Todo) -> Result<(), ActError> {
        let cred = todo.key.cred;
        self.orders += 1;
        let orders = self.orders;
        for _ in 0..2 {
            if self.registered.get(&cred).is_none_or(|registered| registered.opener.is_none()) {
                self.make_opener(poll, cred)?;
            }
            let Some(registered) = self.registered.get_mut(&cred) else { break };
            let Some(opener) = &mut registered.opener else { break };
            registered.used = orders;
            if todo.send_to(&opener.socket).is_ok() {
                opener.work.push_back(Work::Order(asker, todo));
                return Ok(());
            }
            // It was killed while it had nothing to do.
            self.lose(poll, cred, ActError::Late);
        }
        Err(ActError::Late)
    }

    /// Takes one answer of an opener. `false`: there is none.
    fn receive(&mut self, poll: Option<&Poll>, cred: Cred) -> bool {
        let opener = self.registered.get_mut(&cred).and_then(|registered| registered.opener.as_mut());
        let Some(opener) = opener else { return false };
        let received = match receive(&opener.socket, 1) {
            Err(Trouble::Nothing) => return false,
            Err(Trouble::Dead) => None,
            Ok(received) => Some(received),
        };
        match received.and_then(|received| Some((received, opener.work.pop_front()?))) {
            // It has ended, or says what it was not asked.
            None => self.lose(poll, cred, ActError::Late),
            Some((Received { errno: 0, .. }, Work::Become)) => {}
            Some((Received { errno, .. }, Work::Become)) => {
                self.lose(poll, cred, ActError::NotTaken(Errno::from_raw(errno)));
            }
            Some((Received { errno, mut files, is_cut, .. }, Work::Order(asker, todo))) => {
                let answer = match Errno::from_raw(errno) {
                    _ if is_cut => Err(ActError::Refused(Errno::EMFILE)),
                    _ if errno == 0 => Ok(files.pop()),
                    // It has one file at a time, so that its user has limited it.
                    Errno::EMFILE => Err(ActError::Late),
                    errno => Err(ActError::Refused(errno)),
                };
                self.answer(asker, todo.key, answer);
            }
        }
        true
    }

    fn answer(&mut self, asker: Asker, key: Key, answer: Answer) {
        match asker {
            Asker::Thread(ticket) => {
                self.waited.insert(ticket, answer);
            }
            Asker::Request(id) => match self.requests.get_mut(&id) {
                Some(request) => {
                    request.answered(key, answer);
                    self.stalled.push(request.user);
                }
                None => self.useless.extend(answer.ok().flatten()),
            },
        }
    }

    /// Ends an opener, if there is one. What it has not answered is asked of another one, once; why not more often, is the answer then.
    fn lose(&mut self, poll: Option<&Poll>, cred: Cred, why: ActError) {
        let Some(registered) = self.registered.get_mut(&cred) else { return };
        let Some(opener) = registered.opener.take() else { return };
        if let Some(poll) = poll {
            let _ = poll.remove(&opener.socket);
        }
        let Opener { pid: _, pidfd, socket: _, work } = opener;
        // It may be stuck in a system call, where the end of its socket does not reach it.
        let _ = sys::pidfd_send_signal(pidfd.as_fd(), libc::SIGKILL);
        if let Some(poll) = poll {
            let _ = poll.add(&pidfd, ENDED, Interest::Read);
        }
        self.ended.push((registered.credentials.user, pidfd));
        for work in work.into_iter().rev() {
            match work {
                Work::Become => {}
                // The thread sees that it has gone.
                Work::Order(Asker::Thread(_), _) if why == ActError::Late => {}
                Work::Order(Asker::Request(id), todo) => match self.requests.get_mut(&id) {
                    Some(request) if why == ActError::Late && request.is_tried_again(&todo) => {
                        request.ask_again(todo);
                        self.stalled.push(request.user);
                    }
                    _ => self.answer(Asker::Request(id), todo.key, Err(why)),
                },
                Work::Order(asker, todo) => self.answer(asker, todo.key, Err(why)),
            }
        }
    }

    /// A request is over: the next one of its user can be tried.
    fn end(&mut self, poll: Option<&Poll>, id: RequestId) {
        let Some(mut request) = self.requests.remove(&id) else { return };
        for cred in request.kept() {
            self.release(poll, cred);
        }
        self.ready.retain(|&ready| ready != id);
        let user = request.user;
        self.useless.extend(request.into_files());
        let Some(line) = self.lines.get_mut(&user) else { return };
        line.retain(|&waits| waits != id);
        if line.is_empty() {
            self.lines.remove(&user);
        }
        self.stalled.push(user);
    }

    /// Ends openers that have not answered in time; their requests hear that.
    fn expire(&mut self, poll: Option<&Poll>, now_ns: u64) {
        let first = self.lines.values().filter_map(VecDeque::front).copied();
        let is_due = |id: &RequestId| {
            self.requests.get(id).and_then(|request| request.due_ns).is_some_and(|due_ns| now_ns >= due_ns)
        };
        let due: Vec<_> = first.filter(is_due).collect();
        for id in due {
            let Some(request) = self.requests.get_mut(&id) else { continue };
            request.give_up();
            self.stalled.push(request.user);
            let is_for = |work: &Work| matches!(work, Work::Order(Asker::Request(of), _) if *of == id);
            let works = |one: &Registered| one.opener.as_ref().is_some_and(|opener| opener.work.iter().any(is_for));
            let busy: Vec<_> = self.registered.iter().filter(|(_, one)| works(one)).map(|(&cred, _)| cred).collect();
            for cred in busy {
                self.lose(poll, cred, ActError::Late);
            }
        }
    }

    /// The socket of an opener, once more.
    fn socket_of(&self, cred: Cred) -> Option<OwnedFd> {
        self.registered.get(&cred)?.opener.as_ref()?.socket.try_clone().ok()
    }

    fn make_opener(&mut self, poll: Option<&Poll>, cred: Cred) -> Result<(), ActError> {
        let Credentials { user, group, permitted, effective, user_namespace } = self.credentials(cred)?;
        self.make_room(poll, user)?;
        let mut opener = self.fork().map_err(ActError::NotTaken)?;
        let process = self.registered.get(&cred).map_or(0, |registered| registered.process);
        let words = [user.into(), group.into(), permitted, effective, user_namespace.unwrap_or_default()];
        let order = Order::new(Op::Become).about(process, -1).with_words(words);
        sys::send_packet(opener.socket.as_fd(), order.as_bytes(), &[]).map_err(|_| ActError::Late)?;
        opener.work.push_back(Work::Become);
        if let Some(poll) = poll {
            poll.add(&opener.socket, Token(cred.0), Interest::Read).map_err(ActError::NotTaken)?;
        }
        if let Some(registered) = self.registered.get_mut(&cred) {
            registered.opener = Some(opener);
        }
        Ok(())
    }

    /// Ends openers so that there is room for one more of a user.
    fn make_room(&mut self, poll: Option<&Poll>, user: u32) -> Result<(), ActError> {
        self.forget_the_ended();
        if self.ended.iter().filter(|(of, _)| *of == user).count() >= OPENERS_PER_USER {
            return Err(ActError::Late);
        }
        let idle = |registered: &HashMap<Cred, Registered>, of: Option<u32>| {
            let running = registered.iter().filter_map(|(cred, one)| Some((*cred, one, one.opener.as_ref()?)));
            let counted: Vec<_> =
                running.filter(|(_, one, _)| of.is_none_or(|of| one.credentials.user == of)).collect();
            let oldest = counted.iter().min_by_key(|(_, one, opener)| (!opener.work.is_empty(), one.used));
            (counted.len(), oldest.map(|(cred, ..)| *cred))
        };
        for (of, most) in [(Some(user), OPENERS_PER_USER), (None, OPENERS)] {
            let (count, oldest) = idle(&self.registered, of);
            if let (true, Some(cred)) = (count >= most, oldest) {
                self.lose(poll, cred, ActError::Late);
            }
        }
        Ok(())
    }

    fn forget_the_ended(&mut self) {
        let runs =
            |pidfd: &OwnedFd| sys::ppoll(&mut [PollEntry::new(pidfd.as_raw_fd())], Some(Duration::ZERO)) == Ok(0);
        self.ended.retain(|(_, pidfd)| runs(pidfd));
    }

    /// A new opener, with the credentials of this process so far.
    fn fork(&mut self) -> Result<Opener, Errno> {
        for _ in 0..2 {
            match self.nursery()?.fork() {
                Ok(opener) => return Ok(opener),
                // It was killed: another one is made.
                Err(_) => self.nursery = None,
            }
        }
        Err(Errno::EAGAIN)
    }

    fn nursery(&mut self) -> Result<&Nursery, Errno> {
        match &mut self.nursery {
            Some(nursery) => Ok(nursery),
            nursery => {
                // It is waited for by its number, which must stay its own until then.
                sys::stop_ignoring_children();
                let (pid, socket) = fork_nursery()?;
                Ok(nursery.insert(Nursery { pid, socket }))
            }
        }
    }

    fn owed_ns(&self, user: u32) -> u64 {
        let now_ns = sys::clock::monotonic_ns();
        self.budgets.get(&user).map_or(0, |budget| budget.owed_ns(now_ns))
    }

    fn charge(&mut self, user: u32, cost_ns: u64) {
        let now_ns = sys::clock::monotonic_ns();
        self.budgets.retain(|_, budget| budget.owed_ns(now_ns) > 0);
        let owed_ns = self.owed_ns(user).saturating_add(cost_ns);
        self.budgets.insert(user, Budget { owed_ns, at_ns: now_ns });
    }
}

/// How long a user's openers were waited for beyond their share.
struct Budget {
    owed_ns: u64,
    at_ns: u64,
}

impl Budget {
    const fn owed_ns(&self, now_ns: u64) -> u64 {
        self.owed_ns.saturating_sub(now_ns.saturating_sub(self.at_ns) / SHARE)
    }
}

#[derive(Debug)]
enum Trouble {
    /// The process has ended.
    Dead,
    /// There is no answer yet.
    Nothing,
}

struct Nursery {
    pid: i32,
    socket: OwnedFd,
}

impl Nursery {
    fn fork(&self) -> Result<Opener, Trouble> {
        sys::send_packet(self.socket.as_fd(), &[0], &[]).map_err(|_| Trouble::Dead)?;
        let mut entries = [PollEntry::new(self.socket.as_raw_fd())];
        while sys::ppoll(&mut entries, Some(NURSERY_PATIENCE)) == Err(Errno::EINTR) {}
        let Received { errno, pid, mut files, .. } = receive(&self.socket, 2)?;
        // Where no process can be made, a new nursery can't either; the error is the same then.
        match (errno, files.pop(), files.pop()) {
            (0, Some(pidfd), Some(socket)) => {
                // Orders go through it without blocking.
                sys::set_nonblocking(socket.as_fd()).map_err(|_| Trouble::Dead)?;
                Ok(Opener { pid, pidfd, socket, work: VecDeque::new() })
            }
            _ => Err(Trouble::Dead),
        }
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        // It is a child that nothing else reaps.
        let _ = sys::kill(self.pid, libc::SIGKILL);
        let _ = sys::wait_child(self.pid, Reaping::Block);
    }
}

struct Opener {
    #[cfg_attr(not(test), expect(dead_code, reason = "tests stop and kill it as its user would"))]
    pid: i32,
    pidfd: OwnedFd,
    socket: OwnedFd,
    /// In the order in which it answers.
    work: VecDeque<Work>,
}

struct Received {
    errno: i32,
    pid: i32,
    files: Vec<OwnedFd>,
    /// A file came, and there is no number left for it.
    is_cut: bool,
}

/// Takes a reply that is there.
fn receive(socket: &OwnedFd, most_files: usize) -> Result<Received, Trouble> {
    let mut bytes = [0; REPLY_ROOM];
    let packet = match sys::receive_packet(socket.as_fd(), &mut bytes, most_files) {
        Ok(packet) => packet,
        Err(Errno::EAGAIN | Errno::EINTR) => return Err(Trouble::Nothing),
        Err(_) => return Err(Trouble::Dead),
    };
    let Reply { errno, pid } = bytes.get(..packet.bytes).and_then(Reply::decode).ok_or(Trouble::Dead)?;
    Ok(Received { errno, pid, files: packet.files, is_cut: packet.cut })
}

#[cfg(test)]
mod tests;
