//! What becomes of a request.
//!
//! What it is: [`Service`], a state machine that knows which clients are connected, what each has open, and how much each may still
//! ask for. What counts is behind [`Counting`], so that a model can stand in for it.
//! Read first: [`Service::request`], then `request` and `records` (one function for each kind), then `client` (the account of one
//! client).
//!
//! **Invariant:** no I/O, no clock: the time is an argument. A handle means something for the client that it was given to and
//! for no other; when a client goes, all that it held is given back in the same step.

mod budget;
mod client;
mod counting;
mod records;
mod request;
mod rules;
mod streaming;
#[cfg(test)]
mod tests;

pub use budget::{Charge, Usage};
pub(crate) use client::{Client, HeldStream};
pub use counting::{Counting, Published, ReadWhen, Refused, Requester, Target};
pub use rules::{KEPT_FOR_ROOT, Rules};
pub use streaming::{Flow, Streaming, Subscription};

use crate::rights::Membership;
use budget::User;
use pmux::server_api::shared::wire::{
    Handle, Limits, Notice, OpenCgroup, REQUEST_HANDLES, Refusal, RefusalKind, Reply, Request, Scope,
};
use pmux::server_api::{Closing, Peer};
use request::{Answer, Answered};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::ops::Bound;

/// What a client hears that asks for more turns than others.
const NO_WEIGHTS: &str = "this service knows no weights of clients: each question has as many turns as any other";

/// One connection; never used again for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// What has happened since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tallies {
    /// Clients that came.
    pub clients: u64,
    /// Requests.
    pub requests: u64,
    /// Those of them that were refused.
    pub refused: u64,
    /// Events that were opened.
    pub opened: u64,
    /// Clients that were cut off.
    pub cut_off: u64,
}

/// What a step leads to.
#[derive(Debug)]
pub enum Effect<F> {
    /// Send this.
    Send {
        /// The number of the request; 0 for a notice.
        number: u32,
        /// What.
        reply: Reply,
        /// The files beside it.
        files: Vec<F>,
    },
    /// Worth a line in the log.
    Note(Note),
    /// Close the connection when everything was sent.
    HangUp,
}

/// Something worth a line in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// A client said its name.
    Welcomed,
    /// A group was opened: its leader, what it counts, and where.
    Opened(Handle, Vec<String>, Target),
    /// Records are asked for: by which name, and what.
    Subscribed(Handle, Vec<String>, Subscription),
    /// Events were closed.
    Closed(usize),
    /// A request was refused.
    Refused(Refusal),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Welcomed => f.write_str("is here"),
            Self::Opened(handle, names, target) => {
                write!(f, "opened {} of {target} (handle {})", names.join(", "), handle.0)
            }
            Self::Subscribed(handle, names, wanted) => {
                let (names, place) = (names.join(", "), place(&wanted.scope));
                write!(f, "subscribed to {names} of {place}, {} bytes (handle {})", wanted.ring_bytes, handle.0)
            }
            Self::Closed(events) => write!(f, "closed {events} events"),
            Self::Refused(refusal) => write!(f, "was refused: {} (errno {})", refusal.text, refusal.errno),
        }
    }
}

/// Where events of a subscription are, for people.
#[must_use]
pub fn place(scope: &Scope) -> String {
    match scope {
        Scope::Cpus(cpus) if cpus.is_empty() => "all CPUs".to_owned(),
        Scope::Cpus(cpus) => format!("CPUs {}", cpus.iter().copied().collect::<pmux::CpuList>()),
        Scope::Tasks(tasks) => match &tasks[..] {
            [task] => format!("task {task}"),
            tasks => format!("{} tasks", tasks.len()),
        },
    }
}

/// Who is connected, and what each of them holds.
pub struct Service<C: Counting> {
    pub(crate) rules: Rules,
    /// Which start of the service it is.
    pub(crate) epoch: u64,
    clients: BTreeMap<ClientId, Client<C>>,
    users: HashMap<u32, User>,
    /// Clients that have gone, with what of theirs is still open.
    leaving: VecDeque<Client<C>>,
    next_client: u64,
    next_handle: u64,
    /// What all clients together hold, those that have gone among them.
    pub(crate) charge: Charge,
    /// What the request that is tried would cost.
    tried: Charge,
    /// What each request costs, with its user, that waits for an opener: its answers are kept for it.
    parked: HashMap<ClientId, (u32, Charge)>,
    /// How many events of clients were closed since the start.
    pub(crate) closed: u64,
    /// Up to which client pages are written, in a round that goes on.
    refreshed: Option<ClientId>,
    pub(crate) tallies: Tallies,
}

impl<C: Counting> Service<C> {
    /// No client is connected. `epoch` is another number at each start.
    #[must_use]
    pub fn new(rules: Rules, epoch: u64) -> Self {
        Self {
            rules,
            epoch,
            clients: BTreeMap::new(),
            users: HashMap::new(),
            leaving: VecDeque::new(),
            next_client: 1,
            next_handle: 1,
            charge: Charge::default(),
            tried: Charge::default(),
            parked: HashMap::new(),
            closed: 0,
            refreshed: None,
            tallies: Tallies::default(),
        }
    }

    /// From now on these rules hold. What is open stays open, also where it is more than they allow.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        for client in self.clients.values_mut() {
            client.rate.set(rules.limits.requests_per_second);
        }
        self.users.values_mut().for_each(|user| user.rate.set(rules.limits.requests_per_second_per_user));
    }

    /// From now on the configuration names a group of a client as this says. What only a group of the configuration allowed, and none
    /// allows any more, is closed; answers which clients have to be told.
    pub fn set_memberships(
        &mut self,
        counting: &mut C,
        membership: impl Fn(&Peer) -> Membership,
    ) -> Vec<(ClientId, Reply)> {
        let mut notices = Vec::new();
        let ids: Vec<_> = self.clients.keys().copied().collect();
        for id in ids {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            client.membership = membership(&client.peer);
            let over = if client.membership == Membership::None { client.granted_by_group() } else { Vec::new() };
            for handles in over.chunks(REQUEST_HANDLES) {
                // They are its own: none is refused.
                let _ = self.close(id, counting, handles);
                let why =
                    "the service's configuration no longer names a group of this client in `system_wide`".to_owned();
                notices.push((id, Reply::Notice(Notice::Lost { handles: handles.to_vec(), why })));
            }
        }
        notices
    }

    /// What is known of a client now.
    pub fn set_peer(&mut self, id: ClientId, peer: Peer, membership: Membership) {
        if let Some(client) = self.clients.get_mut(&id) {
            (client.peer, client.membership) = (peer, membership);
        }
    }

    /// How many clients are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// The accounts of all clients, in the order in which they came.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (ClientId, &Client<C>)> {
        self.clients.iter().map(|(&id, client)| (id, client))
    }

    pub(crate) fn account(&self, id: ClientId) -> Option<&Client<C>> {
        self.clients.get(&id)
    }

    /// What each user takes of its budget with all its clients. The last `closed` events of the thread that closes are closed.
    #[must_use]
    pub fn of_users(&self, closed: u64, now_ns: u64) -> BTreeMap<u32, Usage> {
        let usage = |(&number, user): (&u32, &User)| (number, user.usage(self.rules.binds(number), closed, now_ns));
        pmux::order::map(self.users.iter().map(usage))
    }

    /// Whether there is a place for another client of a user.
    ///
    /// # Errors
    /// A refusal to be sent before the connection is closed: there are too many.
    pub fn has_place(&self, user: u32) -> Result<(), Refusal> {
        let of_user = self.users.get(&user).map_or(0, |user| user.clients);
        let full = |what: &str, key: &str, most: u32| {
            let text = format!("{what}; {most} is the most ({key} in the service's configuration)");
            Err(Refusal::new(RefusalKind::Limit, 0, errno::EAGAIN, text))
        };
        let limits = &self.rules.limits;
        let most = self.rules.left_for(user, limits.clients, limits.clients_for_root);
        let connected = self.clients.len() + self.leaving.len();
        if connected >= most as usize {
            let key = Rules::key("clients", connected >= limits.clients as usize);
            return full("as many clients as may be are connected", &key, most);
        }
        if self.rules.binds(user) && of_user >= limits.clients_per_user {
            let what = format!("as many clients of user {user} as may be are connected");
            return full(&what, "`limits.clients_per_user`", limits.clients_per_user);
        }
        Ok(())
    }

    /// A client has connected, which a user pays for: see [`crate::payer`].
    ///
    /// # Errors
    /// As [`Service::has_place`].
    pub fn connect(
        &mut self,
        (peer, payer): (Peer, u32),
        membership: Membership,
        now_ns: u64,
    ) -> Result<ClientId, Refusal> {
        self.has_place(payer)?;
        let id = ClientId(self.next_client);
        self.next_client += 1;
        self.tallies.clients += 1;
        self.users.entry(payer).or_insert_with(|| User::new(&self.rules, now_ns)).clients += 1;
        let client = Client::new((peer, payer), membership, self.rules.limits.requests_per_second, now_ns);
        self.clients.insert(id, client);
        Ok(id)
    }

    /// When the client may ask again, if not now. Each request costs a share of a second, of the client and of its user.
    #[must_use]
    pub fn ready_at(&self, id: ClientId, now_ns: u64) -> Option<u64> {
        let client = self.clients.get(&id)?;
        let user = client.payer;
        let of_user = self.users.get(&user).filter(|_| self.rules.binds(user));
        client.rate.ready_at(now_ns).max(of_user.and_then(|user| user.rate.ready_at(now_ns)))
    }

    /// A client asks for something: it costs a share of a second.
    pub fn note_request(&mut self, id: ClientId, now_ns: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        self.tallies.requests += 1;
        client.charge(now_ns);
        if let Some(user) = self.users.get_mut(&client.payer) {
            user.rate.charge(now_ns);
        }
    }

    /// A client asks. The request comes back where it is to be tried again: see [`Counting::is_waiting`].
    pub fn request(
        &mut self,
        id: ClientId,
        counting: &mut C,
        now_ns: u64,
        (number, request): (u32, Request),
        out: &mut Vec<Effect<C::File>>,
    ) -> Option<(u32, Request)> {
        self.note_request(id, now_ns);
        self.unpark(id);
        self.tried = Charge::default();
        let client = self.clients.get_mut(&id)?;
        let (greeted, user) = (client.name.is_some(), client.payer);
        let before = counting.closing();
        let answered: Answered<C::File> = match &request {
            Request::Hello(hello) if !greeted => self.hello(id, counting, hello),
            Request::Hello(_) => Err(out_of_order("the client has said hello before")),
            _ if !greeted => Err(out_of_order("a client says hello first")),
            Request::Open(open) => self.open(id, counting, (open, None)),
            Request::OpenCgroup(OpenCgroup { open, cgroup }) => self.open(id, counting, (open, Some(cgroup))),
            Request::Control { handle, op } => self.control(id, counting, *handle, op).map(|()| Reply::Done.into()),
            Request::Read { handles } => self.read(id, counting, handles).map(Answer::from),
            Request::Renew { handle } => self.renew(id, counting, *handle),
            Request::Close { handles } => {
                let closed = self.close(id, counting, handles);
                closed.map(|events| Answer { note: Some(Note::Closed(events)), ..Answer::from(Reply::Done) })
            }
            Request::Weigh { .. } => Err(Refusal::new(RefusalKind::Rights, 0, errno::EOPNOTSUPP, NO_WEIGHTS)),
            Request::Subscribe(wish) => self.subscribe(id, counting, wish),
            Request::Numbers { handle } => self.numbers(id, counting, number, *handle, out),
            // The code that runs the loop knows more than this: it answers by itself.
            Request::Status { .. } => Err(out_of_order("the state can't be asked for here")),
            Request::Ping => Ok(Reply::Done.into()),
        };
        self.closes_later(user, before, counting);
        match answered {
            Ok(Answer { note, reply, files }) => {
                out.extend(note.map(Effect::Note));
                out.push(Effect::Send { number, reply, files });
            }
            Err(_) if counting.is_waiting() => {
                // It is counted when it is tried last; each try has its price.
                self.tallies.requests -= 1;
                self.charge(user, self.tried);
                self.parked.insert(id, (user, self.tried));
                return Some((number, request));
            }
            Err(refusal) => {
                self.refuse(number, refusal, out);
                if !greeted {
                    out.push(Effect::HangUp);
                }
            }
        }
        None
    }

    fn refuse(&mut self, number: u32, refusal: Refusal, out: &mut Vec<Effect<C::File>>) {
        self.tallies.refused += 1;
        out.push(Effect::Note(Note::Refused(refusal.clone())));
        out.push(Effect::Send { number, reply: Reply::Refused(refusal), files: Vec::new() });
    }

    /// A client has sent what can't be understood.
    pub fn nonsense(&mut self, id: ClientId, why: &str, out: &mut Vec<Effect<C::File>>) {
        if !self.clients.contains_key(&id) {
            return;
        }
        self.tallies.requests += 1;
        self.tallies.cut_off += 1;
        self.refuse(0, out_of_order(why), out);
        out.push(Effect::HangUp);
    }

    /// A client has gone, or is cut off: everything that it held is given back, by [`Service::close_some`]. Answers how many events
    /// that are.
    pub fn gone(&mut self, id: ClientId) -> usize {
        self.unpark(id);
        let Some(client) = self.clients.remove(&id) else { return 0 };
        let events = client.open_events();
        self.leaving.push_back(client);
        events
    }

    /// Closes what clients have left behind, as long as `go_on` says so, which is asked after each group. Answers whether something
    /// is left.
    pub fn close_some(&mut self, counting: &mut C, mut go_on: impl FnMut() -> bool) -> bool {
        while let Some(mut client) = self.leaving.pop_front() {
            let user = client.payer;
            loop {
                let before = counting.closing();
                let Some(charge) = client.close_one(counting) else { break };
                self.give_back(user, charge);
                self.closes_later(user, before, counting);
                if !go_on() {
                    // Another one first: what one client has left must not hold up the end of all others.
                    self.leaving.push_back(client);
                    return true;
                }
            }
            let closed = counting.closing().closed;
            if let Some(account) = self.users.get_mut(&user) {
                account.clients -= 1;
            }
            self.users.retain(|_, account| !account.is_empty(closed));
        }
        false
    }

    /// Whether something is left to be closed.
    #[must_use]
    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    fn charge(&mut self, user: u32, more: Charge) {
        self.charge = self.charge.plus(more);
        if let Some(user) = self.users.get_mut(&user) {
            user.charge = user.charge.plus(more);
        }
    }

    fn unpark(&mut self, id: ClientId) {
        if let Some((user, charge)) = self.parked.remove(&id) {
            self.no_longer(user, charge);
        }
    }

    fn give_back(&mut self, user: u32, charge: Charge) {
        self.closed += u64::from(charge.events);
        self.no_longer(user, charge);
    }

    fn no_longer(&mut self, user: u32, charge: Charge) {
        self.charge = self.charge.less(charge);
        if let Some(user) = self.users.get_mut(&user) {
            user.charge = user.charge.less(charge);
        }
    }

    /// What was given to the thread that closes meanwhile was this user's.
    fn closes_later(&mut self, user: u32, before: Closing, counting: &C) {
        let after = counting.closing();
        if let Some(user) = self.users.get_mut(&user) {
            user.closes_later(after.handed_over - before.handed_over, after.handed_over);
        }
    }

    fn has_room(&mut self, id: ClientId, counting: &C, more: Charge) -> Result<(), Refusal> {
        let rules = self.rules;
        self.tried = more;
        let client = self.client(id)?;
        let (user, own) = (client.payer, client.charge.events);
        let limits = &rules.limits;
        if own.saturating_add(more.events) > limits.events_per_client {
            let most = limits.events_per_client;
            return Err(request::too_many("a client may have open", "`limits.events_per_client`", most));
        }
        let most = rules.left_for(user, limits.events, limits.events_for_root);
        let asked = self.charge.events.saturating_add(more.events);
        if asked > most {
            let key = Rules::key("events", asked > limits.events);
            return Err(request::too_many("all clients together may have open", &key, most));
        }
        if !rules.binds(user) {
            return Ok(());
        }
        if let Some(account) = self.users.get_mut(&user) {
            account.fits(more, &rules, counting.closing().closed)?;
        }
        let left = counting.files_left();
        if left < more.files.saturating_add(rules.files_kept_back(user)) {
            let text = if left < more.files { pmux::server_api::NO_FILES } else { KEPT_FOR_ROOT };
            return Err(Refusal::new(RefusalKind::Limit, 0, errno::EMFILE, text));
        }
        Ok(())
    }

    /// Counts a client that was cut off for being slow.
    pub fn note_cut_off(&mut self) {
        self.tallies.cut_off += 1;
    }

    /// Writes what the events of clients have counted into their pages, one client after another as long as `go_on` says so. Answers
    /// which of them have to be told that files of theirs tell of something else now, and whether the round is at its end.
    pub fn refresh(&mut self, counting: &mut C, mut go_on: impl FnMut() -> bool) -> (Vec<(ClientId, Reply)>, bool) {
        if self.refreshed.is_none() {
            counting.begin_round();
        }
        let from = self.refreshed.map_or(Bound::Unbounded, Bound::Excluded);
        let mut moved = Vec::new();
        for (&id, client) in self.clients.range_mut((from, Bound::Unbounded)) {
            let handles = client.refresh(counting);
            if !handles.is_empty() {
                moved.push((id, Reply::Notice(Notice::Moved { handles })));
            }
            self.refreshed = Some(id);
            if !go_on() {
                return (moved, false);
            }
        }
        self.refreshed = None;
        (moved, true)
    }

    /// Whether any client has entries in its page.
    #[must_use]
    pub fn has_entries(&self) -> bool {
        self.clients.values().any(Client::has_entries)
    }

    /// What a CPU that has gone means to each client: some of its events don't count any more.
    pub fn cpu_gone(&mut self, cpu: u32, counting: &mut C) -> Vec<(ClientId, Reply)> {
        counting.begin_round();
        let lost = |(&id, client): (&ClientId, &mut Client<C>)| {
            let handles = client.leaders_on(cpu);
            client.refresh(counting);
            let why = format!("CPU {cpu} went offline");
            (!handles.is_empty()).then_some((id, Reply::Notice(Notice::Lost { handles, why })))
        };
        self.clients.iter_mut().filter_map(lost).collect()
    }

    fn limits(&self) -> Limits {
        let limits = &self.rules.limits;
        Limits { events: limits.events_per_client, requests_per_second: limits.requests_per_second }
    }
}

fn out_of_order(text: &str) -> Refusal {
    Refusal::new(RefusalKind::Request, 0, errno::EPROTO, text)
}

pub(crate) mod errno {
    pub(crate) const EPERM: i32 = 1;
    pub(crate) const EBADF: i32 = 9;
    pub(crate) const EAGAIN: i32 = 11;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const EMFILE: i32 = 24;
    pub(crate) const EPROTO: i32 = 71;
    pub(crate) const EOPNOTSUPP: i32 = 95;
}
