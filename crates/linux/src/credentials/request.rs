//! What one request has asked of openers, and what they have answered.
//!
//! **Invariant:** each thing is asked once, however often the request is tried. Of equal ones the first of a try has the first answer.

use super::{ActError, OrderFiles};
use crate::sys::opener::OpenerOrder;
use crate::sys::{self, Errno};
use pmux_engine::Cred;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

/// A request, by a number below 2^63 that its owner gives; never two at once with one number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(pub u64);

impl RequestId {
    /// One that no owner has given.
    pub(super) const fn unasked(number: u64) -> Self {
        Self(1 << 63 | number)
    }
}

/// What can be tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// A request.
    Request(RequestId),
    /// What was opened for a user in [`super::Openers::without_request`].
    OfUser(u32),
}

/// A file, where the order brings one.
pub(super) type OrderResult = Result<Option<OwnedFd>, ActError>;

/// What is asked: with which credentials, what, and beside which event and cgroup.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct OrderKey {
    pub(super) cred: Cred,
    order: Box<[u8]>,
    event: Option<u64>,
    cgroup: Option<u64>,
}

impl OrderKey {
    pub(super) fn new(cred: Cred, order: &OpenerOrder, (event, cgroup): OrderFiles<'_>) -> Result<Self, ActError> {
        let event = event.map(sys::perf::id).transpose().map_err(ActError::Refused)?;
        let inode = |folder: BorrowedFd<'_>| {
            let file = std::fs::File::from(folder.try_clone_to_owned()?);
            file.metadata().map(|found| found.ino())
        };
        let cgroup = cgroup.map(inode).transpose().map_err(|_| ActError::Refused(Errno::EMFILE))?;
        Ok(Self { cred, order: order.as_bytes().into(), event, cgroup })
    }
}

/// An order that is still to be given.
pub(super) struct Todo {
    pub(super) key: OrderKey,
    files: Vec<OwnedFd>,
    is_first_try: bool,
}

impl Todo {
    /// An order with copies of the files beside it.
    ///
    /// # Errors
    /// `EMFILE`.
    pub(super) fn new(key: &OrderKey, (event, cgroup): OrderFiles<'_>) -> Result<Self, ActError> {
        let files: Result<_, _> = event.iter().chain(&cgroup).map(BorrowedFd::try_clone_to_owned).collect();
        let files = files.map_err(|_| ActError::Refused(Errno::EMFILE))?;
        Ok(Self { key: key.clone(), files, is_first_try: true })
    }

    pub(super) fn send_to(&self, socket: &OwnedFd) -> Result<(), Errno> {
        let files: Vec<_> = self.files.iter().map(AsFd::as_fd).collect();
        sys::send_packet(socket.as_fd(), &self.key.order, &files)
    }
}

#[derive(Default)]
struct KnownAnswers {
    answers: Vec<OrderResult>,
    /// How many of them this try has had.
    used: usize,
}

pub(super) struct OpenRequest {
    pub(super) user: u32,
    known: HashMap<OrderKey, KnownAnswers>,
    /// The credentials that it keeps registered.
    pub(super) kept: Vec<Cred>,
    pub(super) todo: VecDeque<Todo>,
    /// Orders that are with openers.
    pub(super) in_flight: usize,
    /// Whether this try has asked for what is not known.
    pub(super) waits: bool,
    /// Whether openers still worked for it when this try began.
    pub(super) was_at_work: bool,
    /// When it has its answers at the latest, from when it is its turn.
    pub(super) due_ns: Option<u64>,
    is_late: bool,
}

impl OpenRequest {
    pub(super) fn new(user: u32) -> Self {
        let (known, kept, todo) = (HashMap::new(), Vec::new(), VecDeque::new());
        Self { user, known, kept, todo, in_flight: 0, waits: false, was_at_work: false, due_ns: None, is_late: false }
    }

    /// Whether these credentials were not among those that it keeps; they are now.
    pub(super) fn keep(&mut self, cred: Cred) -> bool {
        let is_new = !self.kept.contains(&cred);
        if is_new {
            self.kept.push(cred);
        }
        is_new
    }

    /// Whether something that was asked has no answer yet.
    pub(super) fn is_at_work(&self) -> bool {
        self.in_flight > 0 || !self.todo.is_empty()
    }

    /// Another try begins.
    pub(super) fn begin(&mut self) {
        (self.waits, self.was_at_work) = (false, self.is_at_work());
        self.known.values_mut().for_each(|known| known.used = 0);
    }

    /// The answer, as far as it is known, or will never be.
    pub(super) fn answer(&mut self, key: &OrderKey) -> Option<OrderResult> {
        // It is tried again when all answers are there.
        if self.was_at_work {
            return None;
        }
        let known = self.known.entry(key.clone()).or_default();
        let answer = match known.answers.get(known.used) {
            None if self.is_late => return Some(Err(ActError::Late)),
            None => None,
            Some(Ok(Some(file))) => match file.try_clone() {
                Ok(copy) => Some(Ok(Some(copy))),
                // There may be room in a moment.
                Err(_) => return Some(Err(ActError::Refused(Errno::EMFILE))),
            },
            Some(Ok(None)) => Some(Ok(None)),
            Some(Err(error)) => Some(Err(*error)),
        };
        known.used += 1;
        answer
    }

    pub(super) fn answered(&mut self, key: OrderKey, answer: OrderResult) {
        self.in_flight -= 1;
        self.known.entry(key).or_default().answers.push(answer);
    }

    /// Whether what an opener left without an answer is asked of another one.
    pub(super) const fn is_tried_again(&self, todo: &Todo) -> bool {
        todo.is_first_try && !self.is_late
    }

    pub(super) fn ask_again(&mut self, todo: Todo) {
        self.in_flight -= 1;
        self.todo.push_front(Todo { is_first_try: false, ..todo });
    }

    /// Nothing is asked for it any more.
    pub(super) fn give_up(&mut self) {
        (self.is_late, self.due_ns) = (true, Some(u64::MAX));
        self.todo.clear();
    }

    #[cfg(test)]
    pub(super) fn files(&self) -> impl Iterator<Item = &OwnedFd> {
        self.known.values().flat_map(|known| &known.answers).filter_map(|answer| answer.as_ref().ok()?.as_ref())
    }

    /// The files that it was answered.
    pub(super) fn into_files(self) -> impl Iterator<Item = OwnedFd> {
        self.known.into_values().flat_map(|known| known.answers).filter_map(|answer| answer.ok().flatten())
    }
}
