//! Events opened with the credentials of another process.
//!
//! What it is: [`Credentials`], by which the kernel decides about `perf_event_open(2)`; [`Openers`], the processes that have taken
//! them (`crate::sys`, `opener`), one for each distinct set; and [`OnBehalf`], which keeps a set registered.
//! Read first: [`Openers::on_behalf_of`].
//!
//! An opener runs as its client's user, so its client may stop it, slow it down or kill it. An answer is waited for within a bound, and
//! the time that a user's openers take is limited: see `Budget`.
//!
//! **Invariant:** an opener never has more capabilities than this process, and its credentials never change once it has taken them.

use crate::sys::opener::{CGROUP_FILE, GROUP_FILE, Op, Order, Reply, fork_nursery};
use crate::sys::{self, Errno, PollEntry, Reaping};
use pmux_engine::Cred;
use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An answer is waited for so long.
const PATIENCE: Duration = Duration::from_millis(200);
/// And so long, where the opener is ready to run and only waits for a CPU.
const PATIENCE_IN_A_CROWD: Duration = Duration::from_secs(2);
/// How often it is looked whether it still does.
const LOOK: Duration = Duration::from_millis(20);
/// Openers at once, of one user and in all. One more takes the place of the one that was idle longest.
const OPENERS_PER_USER: usize = 8;
const OPENERS: usize = 64;
/// A user's openers may take this part of the time...
const SHARE: u64 = 10;
/// ... and so much ahead of that.
const BURST_NS: u64 = 500_000_000;
/// What an answer that did not come costs, beside the time that was waited: the user's opens are refused for [`SHARE`] times as long.
const LATE_NS: u64 = 300_000_000;
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
    /// No answer came in time, or the opener was killed, or the user's openers have taken too long before.
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
                "the process that opens events with this user's credentials did not answer in time: it was stopped or killed, or the target is in the middle of an exec; try again in a few seconds",
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
pub struct Openers(Mutex<State>);

#[derive(Default)]
struct State {
    nursery: Option<Nursery>,
    /// An opener that keeps this process's credentials.
    reader: Option<Opener>,
    registered: HashMap<Cred, Registered>,
    numbers: HashMap<Credentials, Cred>,
    last_number: u64,
    /// Of openers and of the reader apart: a user whose opens took too long may still be looked at.
    budgets: HashMap<Account, Budget>,
    /// Counts orders: what was used last has the highest number.
    orders: u64,
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
        let registered = state.registered.entry(cred).or_insert_with(fresh);
        registered.users += 1;
        // The one that was there first may have exited.
        registered.process = process;
        Arc::new(OnBehalf { cred, openers: Arc::clone(self) })
    }

    /// The user namespace of a process, by its inode. Its user's time is spent: a process can make this take long.
    ///
    /// # Errors
    /// [`ActError`].
    pub fn user_namespace_of(&self, process: i32, user: u32) -> Result<u64, ActError> {
        let mut state = self.state();
        let order = Order::new(Op::UserNamespace).about(process, -1);
        let (reply, _) = state.ask(Who::Reader(user), &order, &[])?;
        Ok(reply.value)
    }

    /// The user of registered credentials.
    #[must_use]
    pub fn user_of(&self, cred: Cred) -> Option<u32> {
        self.state().registered.get(&cred).map(|registered| registered.credentials.user)
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
        let files: Vec<_> = group.into_iter().chain(cgroup).collect();
        let (_, file) = self.state().ask(Who::Registered(cred), &order, &files)?;
        file.ok_or(ActError::Late)
    }

    fn check(&self, cred: Cred, attr: &[u8], target: EventTarget) -> Result<(), ActError> {
        self.state().ask(Who::Registered(cred), &order(Op::Check, attr, target)?, &[]).map(drop)
    }

    /// Changes what a breakpoint waits for, with registered credentials.
    pub(crate) fn modify(&self, cred: Cred, event: BorrowedFd<'_>, attr: &[u8]) -> Result<(), ActError> {
        let order = order(Op::Modify, attr, EventTarget { task: None, cpu: None })?;
        self.state().ask(Who::Registered(cred), &order, &[event]).map(drop)
    }

    /// A panic elsewhere leaves processes that are checked with each order.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let Some(registered) = state.registered.get_mut(&self.cred) else { return };
        registered.users -= 1;
        if registered.users == 0 {
            let credentials = registered.credentials;
            state.registered.remove(&self.cred);
            state.numbers.remove(&credentials);
        }
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

/// Whose time is spent, by the user.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Account {
    Openers(u32),
    Reader(u32),
}

#[derive(Clone, Copy)]
enum Who {
    Registered(Cred),
    /// The one with this process's own credentials, on account of a user.
    Reader(u32),
}

impl State {
    /// Gives an order and waits for the answer. An opener that was killed while it had nothing to do is replaced.
    fn ask(&mut self, who: Who, order: &Order, files: &[BorrowedFd<'_>]) -> Result<(Reply, Option<OwnedFd>), ActError> {
        let account = match who {
            Who::Reader(user) => Account::Reader(user),
            Who::Registered(cred) => Account::Openers(self.credentials(cred)?.user),
        };
        let budget = self.budgets.entry(account).or_insert_with(Budget::new);
        if budget.owed_ns(sys::clock::monotonic_ns()) > BURST_NS {
            return Err(ActError::Late);
        }
        let mut answer = Err(Trouble::Dead);
        for _ in 0..2 {
            answer = self.opener(who)?.ask(order, files);
            if matches!(answer, Ok(_) | Err(Trouble::Late(_))) {
                break;
            }
            self.forget(who);
        }
        let cost_ns = match &answer {
            Ok((reply, _)) => reply.took_ns,
            Err(Trouble::Dead) => LATE_NS / SHARE,
            Err(Trouble::Late(waited)) => {
                self.forget(who);
                BURST_NS + LATE_NS + u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX)
            }
        };
        self.charge(account, cost_ns);
        match answer {
            Ok((Reply { errno: 0, .. }, _)) => answer.map_err(|_| ActError::Late),
            Ok((Reply { errno, .. }, _)) => Err(ActError::Refused(Errno::from_raw(errno))),
            Err(_) => Err(ActError::Late),
        }
    }

    fn credentials(&self, cred: Cred) -> Result<Credentials, ActError> {
        let registered = self.registered.get(&cred).ok_or(ActError::NotTaken(Errno::ESRCH))?;
        Ok(registered.credentials)
    }

    fn charge(&mut self, account: Account, cost_ns: u64) {
        let now_ns = sys::clock::monotonic_ns();
        self.budgets.retain(|&of, budget| of == account || budget.owed_ns(now_ns) > 0);
        let budget = self.budgets.entry(account).or_insert_with(Budget::new);
        *budget = Budget { owed_ns: budget.owed_ns(now_ns).saturating_add(cost_ns), at_ns: now_ns };
    }

    /// The opener, made where there is none.
    fn opener(&mut self, who: Who) -> Result<&Opener, ActError> {
        self.orders += 1;
        let orders = self.orders;
        match who {
            Who::Reader(_) => {
                if self.reader.is_none() {
                    self.reader = Some(self.fork().map_err(ActError::NotTaken)?);
                }
                self.reader.as_ref().ok_or(ActError::Late)
            }
            Who::Registered(cred) => {
                if self.registered.get(&cred).is_none_or(|registered| registered.opener.is_none()) {
                    let credentials = self.credentials(cred)?;
                    self.make_room(credentials.user);
                    let opener = self.fork().map_err(ActError::NotTaken)?;
                    let process = self.registered.get(&cred).map_or(0, |registered| registered.process);
                    opener.take(&credentials, process)?;
                    if let Some(registered) = self.registered.get_mut(&cred) {
                        registered.opener = Some(opener);
                    }
                }
                let registered = self.registered.get_mut(&cred).ok_or(ActError::Late)?;
                registered.used = orders;
                registered.opener.as_ref().ok_or(ActError::Late)
            }
        }
    }

    fn forget(&mut self, who: Who) {
        match who {
            Who::Reader(_) => self.reader = None,
            Who::Registered(cred) => {
                if let Some(registered) = self.registered.get_mut(&cred) {
                    registered.opener = None;
                }
            }
        }
    }

    /// Ends openers so that there is room for one more of a user.
    fn make_room(&mut self, user: u32) {
        let idle = |registered: &HashMap<Cred, Registered>, of: Option<u32>| {
            let running = registered.iter().filter(|(_, one)| one.opener.is_some());
            let counted: Vec<_> = running.filter(|(_, one)| of.is_none_or(|of| one.credentials.user == of)).collect();
            let oldest = counted.iter().min_by_key(|(_, one)| one.used).map(|(cred, _)| **cred);
            (counted.len(), oldest)
        };
        for (of, most) in [(Some(user), OPENERS_PER_USER), (None, OPENERS)] {
            let (count, oldest) = idle(&self.registered, of);
            if let (true, Some(cred)) = (count >= most, oldest) {
                self.forget(Who::Registered(cred));
            }
        }
    }

    /// A new opener, with the credentials of this process so far.
    fn fork(&mut self) -> Result<Opener, Errno> {
        for _ in 0..2 {
            if self.nursery.is_none() {
                // It is waited for by its number, which must stay its own until then.
                sys::stop_ignoring_children();
                let (pid, socket) = fork_nursery()?;
                self.nursery = Some(Nursery { pid, socket });
            }
            match self.nursery.as_ref().map(Nursery::fork) {
                Some(Ok(opener)) => return Ok(opener),
                // It was killed: another one is made.
                Some(Err(Trouble::Dead | Trouble::Late(_))) | None => self.nursery = None,
            }
        }
        Err(Errno::EAGAIN)
    }
}

/// How much of the service's time a user's openers have taken beyond their share.
struct Budget {
    owed_ns: u64,
    at_ns: u64,
}

impl Budget {
    const fn new() -> Self {
        Self { owed_ns: 0, at_ns: 0 }
    }

    const fn owed_ns(&self, now_ns: u64) -> u64 {
        self.owed_ns.saturating_sub(now_ns.saturating_sub(self.at_ns) / SHARE)
    }
}

#[derive(Debug)]
enum Trouble {
    /// The process has ended.
    Dead,
    /// It took too long, which was waited.
    Late(Duration),
}

struct Nursery {
    pid: i32,
    socket: OwnedFd,
}

impl Nursery {
    fn fork(&self) -> Result<Opener, Trouble> {
        send(&self.socket, &[0], &[])?;
        let (reply, mut files) = receive(&self.socket, self.pid, 2)?;
        // Where no process can be made, a new nursery can't either; the error is the same then.
        match (reply.errno, files.pop(), files.pop()) {
            (0, Some(pidfd), Some(socket)) => {
                // Orders go through it without blocking.
                sys::set_nonblocking(socket.as_fd()).map_err(|_| Trouble::Dead)?;
                Ok(Opener { pid: reply.pid, pidfd, socket })
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
    pid: i32,
    pidfd: OwnedFd,
    socket: OwnedFd,
}

impl Opener {
    fn take(&self, credentials: &Credentials, process: i32) -> Result<(), ActError> {
        let Credentials { user, group, permitted, effective, user_namespace } = *credentials;
        let words = [user.into(), group.into(), permitted, effective, user_namespace.unwrap_or_default()];
        let order = Order::new(Op::Become).about(process, -1).with_words(words);
        match self.ask(&order, &[]) {
            Ok((Reply { errno: 0, .. }, _)) => Ok(()),
            Ok((Reply { errno, .. }, _)) => Err(ActError::NotTaken(Errno::from_raw(errno))),
            Err(_) => Err(ActError::Late),
        }
    }

    fn ask(&self, order: &Order, files: &[BorrowedFd<'_>]) -> Result<(Reply, Option<OwnedFd>), Trouble> {
        send(&self.socket, order.as_bytes(), files)?;
        let (reply, mut files) = receive(&self.socket, self.pid, 1)?;
        Ok((reply, files.pop()))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // It may be stuck in a system call, where the end of its socket does not reach it.
        let _ = sys::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Trouble> {
    // One order at a time: there is room.
    sys::send_packet(socket.as_fd(), bytes, files).map_err(|_| Trouble::Dead)
}

fn receive(socket: &OwnedFd, pid: i32, most_files: usize) -> Result<(Reply, Vec<OwnedFd>), Trouble> {
    let started = Instant::now();
    let mut until = PATIENCE;
    let mut entries = [PollEntry::new(socket.as_raw_fd())];
    loop {
        let left = until.saturating_sub(started.elapsed());
        match sys::ppoll(&mut entries, Some(left)) {
            Ok(0) if started.elapsed() < until => {}
            Ok(0) if until < PATIENCE_IN_A_CROWD && is_runnable(pid) => until = started.elapsed() + LOOK,
            Ok(0) => return Err(Trouble::Late(started.elapsed())),
            Err(Errno::EINTR) => {}
            Err(_) => return Err(Trouble::Dead),
            Ok(_) => break,
        }
    }
    let mut bytes = [0; REPLY_ROOM];
    let packet = sys::receive_packet(socket.as_fd(), &mut bytes, most_files).map_err(|_| Trouble::Dead)?;
    let mut reply = bytes.get(..packet.bytes).and_then(Reply::decode).ok_or(Trouble::Dead)?;
    if packet.cut {
        // The file came, and there is no number left for it.
        reply.errno = Errno::EMFILE.raw();
    }
    Ok((reply, packet.files))
}

/// Whether a process runs or waits for a CPU only, and not for anything else.
fn is_runnable(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'))
}

#[cfg(test)]
mod tests;
