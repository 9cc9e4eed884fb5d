//! Openers, what they work on, and the requests of each user in their order.
//!
//! **Invariant:** an opener answers in the order in which it was asked. No request works beside another one of its user.

use super::request::{OpenRequest, OrderKey, OrderResult, RequestId, Todo};
use super::{ActError, Credentials};
use crate::sys::opener::{OpenerOp, OpenerOrder, OpenerReply, fork_nursery};
use crate::sys::{self, Errno, Interest, Poll, PollEntry, Reaping, Token};
use pmux_engine::Cred;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread::ThreadId;
use std::time::Duration;

/// A request has its answers within so long, from when it is its turn.
const DEADLINE_NS: u64 = 10_000_000_000;
/// So many orders of a request are with openers at once.
const MOST_IN_FLIGHT: usize = 16;
/// The nursery, which no client can stop, is waited for so long.
const NURSERY_PATIENCE: Duration = Duration::from_secs(2);
/// Openers at once, of one user and in all. One more takes the place of the one that was idle longest.
pub(super) const OPENERS_PER_USER: usize = 8;
const OPENERS: usize = 64;
/// What a killed opener that has exited is reported as; no credentials have the number.
const ENDED: Token = Token(0);
/// Room for the longest answer, and one byte more.
const REPLY_ROOM: usize = size_of::<OpenerReply>() + 1;

#[derive(Default)]
pub(super) struct OpenerState {
    pub(super) nursery: Option<Nursery>,
    pub(super) registered: HashMap<Cred, Registered>,
    pub(super) numbers: HashMap<Credentials, Cred>,
    pub(super) last_number: u64,
    /// Counts orders: what was used last has the highest number.
    pub(super) orders: u64,
    pub(super) requests: HashMap<RequestId, OpenRequest>,
    /// The requests of each user that wait for openers, in the order in which they came: the first is worked on.
    pub(super) lines: HashMap<u32, VecDeque<RequestId>>,
    /// What each thread tries now.
    pub(super) tried: HashMap<ThreadId, Tried>,
    /// By user: what is opened although no request asks for it.
    pub(super) unasked: HashMap<u32, RequestId>,
    /// How many of these there were.
    pub(super) last_unasked: u64,
    /// Users whose first request may be gone on with.
    pub(super) stalled: Vec<u32>,
    /// Requests that can be tried again.
    pub(super) ready: VecDeque<RequestId>,
    /// Openers that were killed, with the users that pay for them, until they have exited: the kernel may keep them in a system call.
    pub(super) ended: Vec<(u32, OwnedFd)>,
    /// Files that have no use: answers to requests that are over.
    pub(super) useless: Vec<OwnedFd>,
}

pub(super) struct Registered {
    pub(super) credentials: Credentials,
    /// The user whose requests they were registered for: its own number, or one that pays for it.
    pub(super) payer: u32,
    /// A process of the user namespace, where that is another.
    pub(super) process: i32,
    pub(super) users: usize,
    pub(super) opener: Option<OpenerProcess>,
    pub(super) used: u64,
}

/// What a thread tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tried {
    Request(RequestId),
    /// What no request asks for, each thing for its user.
    Unasked,
}

/// What an opener has been given to do, and has not answered.
pub(super) enum Work {
    Become,
    Ordered(RequestId, Todo),
}

impl OpenerState {
    pub(super) fn registered(&self, cred: Cred) -> Result<&Registered, ActError> {
        self.registered.get(&cred).ok_or(ActError::NotTaken(Errno::ESRCH))
    }

    /// The request that this thread tries.
    pub(super) fn tried_request(&mut self) -> Option<&mut OpenRequest> {
        match self.tried.get(&std::thread::current().id()) {
            Some(Tried::Request(id)) => self.requests.get_mut(id),
            _ => None,
        }
    }

    /// The requests of this user, or of all users where that is `None`, that no client has made.
    pub(super) fn unasked_of(&self, user: Option<u32>) -> Vec<RequestId> {
        let meant = self.unasked.iter().filter(|(of, _)| user.is_none_or(|user| user == **of));
        meant.map(|(_, &id)| id).collect()
    }

    /// The same of one user, which is made where there is none.
    pub(super) fn unasked(&mut self, user: u32) -> RequestId {
        *self.unasked.entry(user).or_insert_with(|| {
            self.last_unasked += 1;
            let id = RequestId::unasked(self.last_unasked);
            self.requests.insert(id, OpenRequest::new(user));
            id
        })
    }

    /// A try of a request is over. Where it waits for nothing the request is over, too; whether it waits.
    pub(super) fn pause(&mut self, poll: Option<&Poll>, id: RequestId) -> bool {
        match self.requests.get(&id) {
            Some(request) if request.waits => {
                self.stalled.push(request.user);
                true
            }
            _ => {
                self.end(poll, id);
                false
            }
        }
    }

    /// One more keeps the credentials of a process registered.
    pub(super) fn register(&mut self, process: i32, credentials: Credentials) -> Cred {
        let last_number = &mut self.last_number;
        let cred = *self.numbers.entry(credentials).or_insert_with(|| {
            *last_number += 1;
            Cred(*last_number)
        });
        // Later tries of a request find the answers by the number.
        let tried = self.tried_request().map(|request| (request.keep(cred), request.user));
        let (is_kept, payer) = tried.unwrap_or((false, credentials.user));
        let fresh = || Registered { credentials, payer, process, users: 0, opener: None, used: 0 };
        let registered = self.registered.entry(cred).or_insert_with(fresh);
        registered.users += 1 + usize::from(is_kept);
        // The one that was there first may have exited.
        registered.process = process;
        cred
    }

    /// One less keeps credentials registered.
    pub(super) fn release(&mut self, poll: Option<&Poll>, cred: Cred) {
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
    pub(super) fn drive(&mut self, poll: Option<&Poll>, user: u32) {
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
            if let Err(error) = self.give(poll, id, todo) {
                self.answer(id, key, Err(error));
            }
        }
    }

    /// Gives an opener an order, which is made where there is none.
    fn give(&mut self, poll: Option<&Poll>, id: RequestId, todo: Todo) -> Result<(), ActError> {
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
                opener.work.push_back(Work::Ordered(id, todo));
                return Ok(());
            }
            // It was killed while it had nothing to do.
            self.lose(poll, cred, ActError::Late);
        }
        Err(ActError::Late)
    }

    /// Takes one answer of an opener. `false`: there is none.
    pub(super) fn receive(&mut self, poll: Option<&Poll>, cred: Cred) -> bool {
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
            Some((ReceivedReply { errno: 0, .. }, Work::Become)) => {}
            Some((ReceivedReply { errno, .. }, Work::Become)) => {
                self.lose(poll, cred, ActError::NotTaken(Errno::from_raw(errno)));
            }
            Some((ReceivedReply { errno, mut files, is_cut, .. }, Work::Ordered(id, todo))) => {
                let answer = match Errno::from_raw(errno) {
                    _ if is_cut => Err(ActError::Refused(Errno::EMFILE)),
                    _ if errno == 0 => Ok(files.pop()),
                    // It has one file at a time, so that its user has limited it.
                    Errno::EMFILE => Err(ActError::Late),
                    errno => Err(ActError::Refused(errno)),
                };
                self.answer(id, todo.key, answer);
            }
        }
        true
    }

    fn answer(&mut self, id: RequestId, key: OrderKey, answer: OrderResult) {
        match self.requests.get_mut(&id) {
            Some(request) => {
                request.answered(key, answer);
                self.stalled.push(request.user);
            }
            None => self.useless.extend(answer.ok().flatten()),
        }
    }

    /// Ends an opener, if there is one. What it has not answered is asked of another one, once; why not more often, is the answer then.
    pub(super) fn lose(&mut self, poll: Option<&Poll>, cred: Cred, why: ActError) {
        let Some(registered) = self.registered.get_mut(&cred) else { return };
        let Some(opener) = registered.opener.take() else { return };
        if let Some(poll) = poll {
            let _ = poll.remove(&opener.socket);
        }
        let OpenerProcess { pid: _, pidfd, socket: _, work } = opener;
        // It may be stuck in a system call, where the end of its socket does not reach it.
        let _ = sys::pidfd_send_signal(pidfd.as_fd(), libc::SIGKILL);
        if let Some(poll) = poll {
            let _ = poll.add(&pidfd, ENDED, Interest::Read);
        }
        self.ended.push((registered.payer, pidfd));
        for work in work.into_iter().rev() {
            match work {
                Work::Become => {}
                Work::Ordered(id, todo) => match self.requests.get_mut(&id) {
                    Some(request) if why == ActError::Late && request.is_tried_again(&todo) => {
                        request.ask_again(todo);
                        self.stalled.push(request.user);
                    }
                    _ => self.answer(id, todo.key, Err(why)),
                },
            }
        }
    }

    /// A request is over: the next one of its user can be tried.
    pub(super) fn end(&mut self, poll: Option<&Poll>, id: RequestId) {
        let Some(mut request) = self.requests.remove(&id) else { return };
        for cred in std::mem::take(&mut request.kept) {
            self.release(poll, cred);
        }
        self.ready.retain(|&ready| ready != id);
        self.unasked.retain(|_, unasked| *unasked != id);
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
    pub(super) fn expire(&mut self, poll: Option<&Poll>, now_ns: u64) {
        let first = self.lines.values().filter_map(VecDeque::front).copied();
        let is_due = |id: &RequestId| {
            self.requests.get(id).and_then(|request| request.due_ns).is_some_and(|due_ns| now_ns >= due_ns)
        };
        let due: Vec<_> = first.filter(is_due).collect();
        for id in due {
            let Some(request) = self.requests.get_mut(&id) else { continue };
            request.give_up();
            self.stalled.push(request.user);
            let is_for = |work: &Work| matches!(work, Work::Ordered(of, _) if *of == id);
            let works = |one: &Registered| one.opener.as_ref().is_some_and(|opener| opener.work.iter().any(is_for));
            let busy: Vec<_> = self.registered.iter().filter(|(_, one)| works(one)).map(|(&cred, _)| cred).collect();
            for cred in busy {
                self.lose(poll, cred, ActError::Late);
            }
        }
    }

    fn make_opener(&mut self, poll: Option<&Poll>, cred: Cred) -> Result<(), ActError> {
        let &Registered { credentials, payer, process, .. } = self.registered(cred)?;
        let Credentials { user, group, permitted, effective, user_namespace } = credentials;
        self.make_room(poll, payer)?;
        let mut opener = self.fork().map_err(ActError::NotTaken)?;
        let words = [user.into(), group.into(), permitted, effective, user_namespace.unwrap_or_default()];
        let order = OpenerOrder::new(OpenerOp::Become).about(process, -1).with_words(words);
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

    /// Ends openers so that there is room for one more that a user pays for.
    fn make_room(&mut self, poll: Option<&Poll>, payer: u32) -> Result<(), ActError> {
        self.forget_the_ended();
        if self.ended.iter().filter(|(of, _)| *of == payer).count() >= OPENERS_PER_USER {
            return Err(ActError::Late);
        }
        let idle = |registered: &HashMap<Cred, Registered>, of: Option<u32>| {
            let running = registered.iter().filter_map(|(cred, one)| Some((*cred, one, one.opener.as_ref()?)));
            let counted: Vec<_> = running.filter(|(_, one, _)| of.is_none_or(|of| one.payer == of)).collect();
            let oldest = counted.iter().min_by_key(|(_, one, opener)| (!opener.work.is_empty(), one.used));
            (counted.len(), oldest.map(|(cred, ..)| *cred))
        };
        for (of, most) in [(Some(payer), OPENERS_PER_USER), (None, OPENERS)] {
            let (count, oldest) = idle(&self.registered, of);
            if let (true, Some(cred)) = (count >= most, oldest) {
                self.lose(poll, cred, ActError::Late);
            }
        }
        Ok(())
    }

    pub(super) fn forget_the_ended(&mut self) {
        let runs =
            |pidfd: &OwnedFd| sys::ppoll(&mut [PollEntry::new(pidfd.as_raw_fd())], Some(Duration::ZERO)) == Ok(0);
        self.ended.retain(|(_, pidfd)| runs(pidfd));
    }

    /// A new opener, with the credentials of this process so far.
    fn fork(&mut self) -> Result<OpenerProcess, Errno> {
        for _ in 0..2 {
            match self.nursery()?.fork() {
                Ok(opener) => return Ok(opener),
                // It was killed: another one is made.
                Err(_) => self.nursery = None,
            }
        }
        Err(Errno::EAGAIN)
    }

    pub(super) fn nursery(&mut self) -> Result<&Nursery, Errno> {
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
}

#[derive(Debug)]
enum Trouble {
    /// The process has ended.
    Dead,
    /// There is no answer yet.
    Nothing,
}

pub(super) struct Nursery {
    pid: i32,
    socket: OwnedFd,
}

impl Nursery {
    fn fork(&self) -> Result<OpenerProcess, Trouble> {
        sys::send_packet(self.socket.as_fd(), &[0], &[]).map_err(|_| Trouble::Dead)?;
        let mut entries = [PollEntry::new(self.socket.as_raw_fd())];
        while sys::ppoll(&mut entries, Some(NURSERY_PATIENCE)) == Err(Errno::EINTR) {}
        let ReceivedReply { errno, pid, mut files, .. } = receive(&self.socket, 2)?;
        // Where no process can be made, a new nursery can't either; the error is the same then.
        match (errno, files.pop(), files.pop()) {
            (0, Some(pidfd), Some(socket)) => {
                // Orders go through it without blocking.
                sys::set_nonblocking(socket.as_fd()).map_err(|_| Trouble::Dead)?;
                Ok(OpenerProcess { pid, pidfd, socket, work: VecDeque::new() })
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

pub(super) struct OpenerProcess {
    #[cfg_attr(not(test), expect(dead_code, reason = "tests stop and kill it as its user would"))]
    pub(super) pid: i32,
    pidfd: OwnedFd,
    socket: OwnedFd,
    /// In the order in which it answers.
    work: VecDeque<Work>,
}

struct ReceivedReply {
    errno: i32,
    pid: i32,
    files: Vec<OwnedFd>,
    /// A file came, and there is no number left for it.
    is_cut: bool,
}

/// Takes a reply that is there.
fn receive(socket: &OwnedFd, most_files: usize) -> Result<ReceivedReply, Trouble> {
    let mut bytes = [0; REPLY_ROOM];
    let packet = match sys::receive_packet(socket.as_fd(), &mut bytes, most_files) {
        Ok(packet) => packet,
        Err(Errno::EAGAIN | Errno::EINTR) => return Err(Trouble::Nothing),
        Err(_) => return Err(Trouble::Dead),
    };
    let OpenerReply { errno, pid } = bytes.get(..packet.bytes).and_then(OpenerReply::decode).ok_or(Trouble::Dead)?;
    Ok(ReceivedReply { errno, pid, files: packet.files, is_cut: packet.cut })
}
