//! Events opened with the credentials of another process.
//!
//! What it is: [`Credentials`], by which the kernel decides about `perf_event_open(2)`; [`Openers`], the processes that have taken
//! them (`crate::sys`, `opener`), one for each distinct set; and [`OnBehalf`], which keeps a set registered.
//! Read first: [`Openers::on_behalf_of`], then [`Openers::begin`].
//!
//! An opener runs as its client's user, so its client may stop it, slow it down or kill it. What a request asks of an opener is
//! therefore not waited for. The request fails with [`ActError::Late`] when it asks for what is not known yet, is tried again when the
//! opener has answered, and finds the answers of earlier tries: the kernel is asked once for each thing. Requests of a user are
//! answered one after another, each within a deadline. What is opened without one, on a CPU that comes, is a request of its own for each
//! user: [`Openers::without_request`].
//!
//! **Invariant:** an opener never has more capabilities than this process, and its credentials never change once it has taken them.

use crate::host::FileCount;
use crate::sys::opener::{CGROUP_FILE, GROUP_FILE, OpenerOp, OpenerOrder};
use crate::sys::{self, Errno, Poll};
use pmux_engine::Cred;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

mod request;
mod state;

use request::{OpenRequest, OrderKey, OrderResult, Todo};
pub use request::{RequestId, Retry};
use state::{OpenerState, Tried};

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

    /// Whether all capabilities of `other` are among these.
    #[must_use]
    pub const fn has_capabilities_of(&self, other: &Self) -> bool {
        other.permitted & !self.permitted == 0 && other.effective & !self.effective == 0
    }

    /// Whether whatever `other` may open may be opened with these, too.
    #[must_use]
    pub const fn cover(&self, other: &Self) -> bool {
        let same_group = self.group == other.group || self.user == 0;
        self.user == other.user
            && same_group
            && self.has_capabilities_of(other)
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
    /// The number of the error: `EAGAIN` for [`ActError::Late`]; never `ESRCH` for [`ActError::NotTaken`], which would say that the
    /// target has gone.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::NotTaken(Errno::ESRCH) => Errno::EPERM,
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
    state: Mutex<OpenerState>,
    /// Held by the thread that opens what no request asks for, before the lock of the state.
    unasked: Mutex<()>,
    /// Readable when an opener has answered; made when the first request is about to come.
    poll: OnceLock<Poll>,
    files: Arc<FileCount>,
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
        let cred = self.state().register(process, credentials);
        Arc::new(OnBehalf { cred, openers: Arc::clone(self) })
    }

    /// The user of registered credentials.
    #[must_use]
    pub fn user_of(&self, cred: Cred) -> Option<u32> {
        self.state().registered.get(&cred).map(|registered| registered.credentials.user)
    }

    /// The user that pays for registered credentials: the one of the request that registered them first.
    #[must_use]
    pub fn payer_of(&self, cred: Cred) -> Option<u32> {
        self.state().registered.get(&cred).map(|registered| registered.payer)
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

    /// A request of a user is tried, for the first time or again, by this thread, until [`Openers::pause`]. `false`: openers still work
    /// for it.
    #[must_use]
    pub fn begin(&self, id: RequestId, user: u32) -> bool {
        let mut state = self.state();
        let request = state.requests.entry(id).or_insert_with(|| OpenRequest::new(user));
        if request.is_at_work() {
            return false;
        }
        request.begin();
        state.tried.insert(std::thread::current().id(), Tried::Request(id));
        true
    }

    /// Whether the request that is tried has asked for something that is not known yet: whatever it has opened is to be closed, and it is
    /// to be tried again.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.state().tried_request().is_some_and(|request| request.waits)
    }

    /// Runs `f`, which opens what no request has asked for: on CPUs that came. What has no answer yet is [`ActError::Late`] there, too:
    /// `f` is to be run again, for the user alone (or for all, where it is `None`), when [`Openers::go_on`] tells [`Retry::OfUser`]. What
    /// it opens is asked for in a request of its own for each user, and not in one that this thread tries.
    pub fn without_request<R>(&self, user: Option<u32>, f: impl FnOnce() -> R) -> R {
        let _one = self.unasked.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = std::thread::current().id();
        let mut state = self.state();
        let tried = state.tried.insert(thread, Tried::Unasked);
        for id in state.unasked_of(user) {
            state.requests.get_mut(&id).into_iter().for_each(OpenRequest::begin);
        }
        drop(state);
        let done = f();
        let mut state = self.state();
        state.tried.remove(&thread);
        state.tried.extend(tried.map(|tried| (thread, tried)));
        for id in state.unasked_of(user) {
            state.pause(self.poll.get(), id);
        }
        self.work(&mut state);
        done
    }

    /// What was asked for without a request is of no use any more: a CPU has gone.
    pub fn end_without_request(&self) {
        let mut state = self.state();
        for id in state.unasked_of(None) {
            state.end(self.poll.get(), id);
        }
        self.work(&mut state);
    }

    /// The end of a try: whether another one is needed, which [`Openers::go_on`] announces. Otherwise the request is over.
    #[must_use]
    pub fn pause(&self) -> bool {
        let mut state = self.state();
        let Some(Tried::Request(id)) = state.tried.remove(&std::thread::current().id()) else { return false };
        let waits = state.pause(self.poll.get(), id);
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

    /// Takes the answers of openers, ends those that have not answered in time, and adds what can be tried again.
    pub fn go_on(&self, out: &mut Vec<Retry>) {
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
        while let Some(id) = state.ready.pop_front() {
            let of_user = state.unasked.iter().find(|&(_, unasked)| *unasked == id);
            out.push(of_user.map_or(Retry::Request(id), |(&user, _)| Retry::OfUser(user)));
        }
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
        let order = order(OpenerOp::Open, attr, target)?.with_words([beside, 0, 0, 0, 0]);
        self.ask(cred, &order, (group, cgroup))?.ok_or(ActError::Late)
    }

    fn check(&self, cred: Cred, attr: &[u8], target: EventTarget) -> Result<(), ActError> {
        self.ask(cred, &order(OpenerOp::Check, attr, target)?, (None, None)).map(drop)
    }

    /// Changes what a breakpoint waits for, with registered credentials.
    pub(crate) fn modify(&self, cred: Cred, event: BorrowedFd<'_>, attr: &[u8]) -> Result<(), ActError> {
        let order = order(OpenerOp::Modify, attr, EventTarget { task: None, cpu: None })?;
        self.ask(cred, &order, (Some(event), None)).map(drop)
    }

    /// Gives an order, with an event and a cgroup beside it. It is [`ActError::Late`] until its answer has come.
    fn ask(&self, cred: Cred, order: &OpenerOrder, files: OrderFiles<'_>) -> OrderResult {
        let key = OrderKey::new(cred, order, files)?;
        let mut state = self.state();
        let payer = state.registered(cred)?.payer;
        let id = match state.tried.get(&std::thread::current().id()) {
            Some(&Tried::Request(id)) => id,
            Some(Tried::Unasked) => state.unasked(payer),
            // It would never be tried again.
            None => return Err(ActError::Late),
        };
        let OpenerState { requests, lines, .. } = &mut *state;
        let Some(request) = requests.get_mut(&id) else { return Err(ActError::Late) };
        if let Some(known) = request.answer(&key) {
            return known;
        }
        let line = lines.entry(request.user).or_default();
        if !line.contains(&id) {
            line.push_back(id);
        }
        // Until it is its turn nothing is asked for it, so that it holds nothing; and while it is at work nothing more.
        if line.front() == Some(&id) && !request.was_at_work {
            request.todo.push_back(Todo::new(&key, files)?);
        }
        request.waits = true;
        Err(ActError::Late)
    }

    /// Goes on with the requests of users about whose openers something has changed, and closes what has no use.
    fn work(&self, state: &mut OpenerState) {
        while let Some(user) = state.stalled.pop() {
            state.drive(self.poll.get(), user);
        }
        state.useless.drain(..).for_each(|file| self.files.discard(file));
    }

    /// A panic elsewhere leaves processes that are checked with each order.
    fn state(&self) -> MutexGuard<'_, OpenerState> {
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

fn order(op: OpenerOp, attr: &[u8], target: EventTarget) -> Result<OpenerOrder, ActError> {
    let number = |number: Option<u32>, errno| match number {
        None => Ok(-1),
        Some(number) => i32::try_from(number).map_err(|_| ActError::Refused(errno)),
    };
    // 0 would silently mean the opener.
    if target.task == Some(0) {
        return Err(ActError::Refused(Errno::ESRCH));
    }
    sys::perf::check_stated_size(attr).map_err(ActError::Refused)?;
    let order = OpenerOrder::new(op).with_attr(attr).ok_or(ActError::Refused(Errno::E2BIG))?;
    Ok(order.about(number(target.task, Errno::ESRCH)?, number(target.cpu, Errno::EINVAL)?))
}

/// An event and a cgroup beside an order.
type OrderFiles<'f> = (Option<BorrowedFd<'f>>, Option<BorrowedFd<'f>>);

#[cfg(test)]
mod tests;
