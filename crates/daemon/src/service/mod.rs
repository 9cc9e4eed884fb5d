//! What becomes of a request.
//!
//! What it is: [`Service`], a state machine that knows who is connected, what each has open, and how much he may still ask
//! for. What counts is behind [`Counting`], so that a model can stand in for it.
//! Read first: [`Service::request`], then `request` and `records` (one function for each kind), then `client` (the account of one
//! client).
//!
//! **Invariant:** no I/O, no clock: the time is an argument. A handle means something for the client that it was given to and
//! for nobody else; when a client goes, all that it held is given back in the same step.

mod client;
mod counting;
mod records;
mod request;
mod streaming;
#[cfg(test)]
mod tests;

pub use client::{Account, HeldGroup, HeldStream};
pub use counting::{Action, Asks, Counting, Failed, Published, Target};
pub use streaming::{Flow, Streaming, Subscription};

use crate::config::{Files, LimitsConfig, Turns};
use crate::rights::Membership;
use crate::weights::Allowance;
use client::Client;
use pmux::serving::Asker;
use pmux::serving::shared::wire::{Handle, Limits, Notice, Refusal, RefusalKind, Reply, Request, Scope};
use std::collections::HashMap;
use std::fmt;

/// One connection; never used again for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// What the configuration says about requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// How much anybody may ask for.
    pub limits: LimitsConfig,
    /// Who is given the kernel's files.
    pub files: Files,
    /// How often pages are written, in milliseconds.
    pub refresh_ms: u32,
    /// Whether the service takes the turns, so that weights mean something.
    pub turns: Turns,
    /// Bytes of the kernel's ring of each event of a subscription.
    pub kernel_ring_bytes: u64,
}

/// What the configuration says about a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Whether a group of it is named.
    pub membership: Membership,
    /// How much it weighs.
    pub allowance: Allowance,
}

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
    /// All that it counts weighs so much from now on.
    Weighs(u16),
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
            Self::Weighs(weight) => write!(f, "weighs {weight}"),
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
    rules: Rules,
    epoch: u64,
    clients: HashMap<ClientId, Client<C>>,
    users: HashMap<u32, u32>,
    next_client: u64,
    next_handle: u64,
    /// Events that are open for all clients together.
    events: u32,
    /// Bytes of the rings of all subscriptions.
    ring_bytes: u64,
    tallies: Tallies,
}

impl<C: Counting> Service<C> {
    /// Nobody is connected. `epoch` is another number at each start.
    #[must_use]
    pub fn new(rules: Rules, epoch: u64) -> Self {
        Self {
            rules,
            epoch,
            clients: HashMap::new(),
            users: HashMap::new(),
            next_client: 1,
            next_handle: 1,
            events: 0,
            ring_bytes: 0,
            tallies: Tallies::default(),
        }
    }

    /// From now on these rules hold. What is open stays open, also where it is more than they allow.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        for client in self.clients.values_mut() {
            client.set_rate(rules.limits.requests_per_second);
        }
    }

    /// From now on clients stand as this says.
    pub fn set_standings(&mut self, counting: &mut C, standing: impl Fn(&Asker) -> Standing) {
        for client in self.clients.values_mut() {
            let standing = standing(client.asker());
            client.set_standing(standing, counting);
        }
    }

    /// The rules.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What has happened since the start.
    #[must_use]
    pub const fn tallies(&self) -> Tallies {
        self.tallies
    }

    /// How many events are open for all clients together.
    #[must_use]
    pub const fn events(&self) -> u32 {
        self.events
    }

    /// How many bytes the rings of all subscriptions have.
    #[must_use]
    pub const fn ring_bytes(&self) -> u64 {
        self.ring_bytes
    }

    /// Which start of the service it is.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many clients are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// The accounts of all clients, in the order in which they came.
    pub fn accounts(&self) -> impl Iterator<Item = (ClientId, Account<'_, C>)> {
        let mut ids: Vec<_> = self.clients.keys().copied().collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| Some((id, self.clients.get(&id)?.account())))
    }

    /// Somebody has connected.
    ///
    /// # Errors
    /// A refusal to be sent before the connection is closed: there are too many.
    pub fn connect(&mut self, asker: Asker, standing: Standing, now_ns: u64) -> Result<ClientId, Refusal> {
        let limits = &self.rules.limits;
        let user = asker.connected.user;
        let of_user = self.users.get(&user).copied().unwrap_or_default();
        let full = |what: &str, most: u32| {
            let text = format!("{what}; {most} is the most (`limits` in the service's configuration)");
            Err(Refusal::new(RefusalKind::Limit, 0, errno::EAGAIN, text))
        };
        if self.clients.len() >= limits.clients as usize {
            return full("as many clients as may be are connected", limits.clients);
        }
        if user != 0 && of_user >= limits.clients_per_user {
            return full(&format!("as many clients of user {user} as may be are connected"), limits.clients_per_user);
        }
        let id = ClientId(self.next_client);
        self.next_client += 1;
        self.tallies.clients += 1;
        *self.users.entry(user).or_default() += 1;
        let client = Client::new(asker, standing, limits.requests_per_second, now_ns);
        self.clients.insert(id, client);
        Ok(id)
    }

    /// When the client may ask again, if not now. Each request costs a share of a second.
    #[must_use]
    pub fn ready_at(&mut self, id: ClientId, now_ns: u64) -> Option<u64> {
        self.clients.get_mut(&id)?.ready_at(now_ns)
    }

    /// A client asks; `folder` is the file beside the request.
    pub fn request(
        &mut self,
        id: ClientId,
        counting: &mut C,
        now_ns: u64,
        (number, request): (u32, Request),
        folder: Option<C::File>,
        out: &mut Vec<Effect<C::File>>,
    ) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        self.tallies.requests += 1;
        client.charge(now_ns);
        let greeted = client.is_greeted();
        let answered = match request {
            Request::Hello(hello) if !greeted => self.hello(id, counting, number, &hello, out),
            Request::Hello(_) => Err(out_of_order("the client has said hello before")),
            _ if !greeted => Err(out_of_order("a client says hello first")),
            Request::Open(open) => self.open(id, counting, number, &open, folder, out),
            Request::Control { handle, verb } => self.control(id, counting, handle, &verb).map(|()| done(number, out)),
            Request::Read { handles } => self.read(id, counting, number, &handles, out),
            Request::Renew { handle } => self.renew(id, counting, number, handle, out),
            Request::Close { handles } => self.close(id, counting, &handles).map(|closed| {
                out.push(Effect::Note(Note::Closed(closed)));
                done(number, out);
            }),
            Request::Weigh { weight } => self.weigh(id, counting, weight).map(|()| {
                out.push(Effect::Note(Note::Weighs(weight)));
                done(number, out);
            }),
            Request::Subscribe(wish) => self.subscribe(id, counting, number, &wish, out),
            Request::Numbers { handle } => self.numbers(id, counting, number, handle, out),
            // Whoever runs the loop knows more than this: it answers by itself.
            Request::Status { .. } => Err(out_of_order("the state can't be asked for here")),
            Request::Ping => {
                done(number, out);
                Ok(())
            }
        };
        if let Err(refusal) = answered {
            self.tallies.refused += 1;
            let hang_up = !greeted;
            out.push(Effect::Note(Note::Refused(refusal.clone())));
            out.push(Effect::Send { number, reply: Reply::Refused(refusal), files: Vec::new() });
            if hang_up {
                out.push(Effect::HangUp);
            }
        }
    }

    /// A client has sent what can't be understood.
    pub fn nonsense(&mut self, id: ClientId, why: &str, out: &mut Vec<Effect<C::File>>) {
        if !self.clients.contains_key(&id) {
            return;
        }
        self.tallies.requests += 1;
        self.tallies.refused += 1;
        self.tallies.cut_off += 1;
        let refusal = Refusal::new(RefusalKind::Request, 0, errno::EPROTO, why);
        out.push(Effect::Note(Note::Refused(refusal.clone())));
        out.push(Effect::Send { number: 0, reply: Reply::Refused(refusal), files: Vec::new() });
        out.push(Effect::HangUp);
    }

    /// A client has gone, or is cut off: everything that it held is given back. Answers how many events that were.
    pub fn gone(&mut self, id: ClientId, counting: &mut C) -> usize {
        let Some(mut client) = self.clients.remove(&id) else { return 0 };
        let user = client.asker().connected.user;
        if let Some(count) = self.users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&user);
            }
        }
        let closed = client.close_all(counting);
        self.events -= u32::try_from(closed.events).unwrap_or(u32::MAX);
        self.ring_bytes -= closed.ring_bytes;
        closed.events
    }

    /// Counts somebody who was cut off for being slow.
    pub fn note_cut_off(&mut self) {
        self.tallies.cut_off += 1;
    }

    /// Writes what the events of all clients have counted into their pages. Answers who has to be told that files of his tell of
    /// something else now.
    pub fn refresh(&mut self, counting: &mut C) -> Vec<(ClientId, Reply)> {
        counting.begin_round();
        let moved = |(&id, client): (&ClientId, &mut Client<C>)| {
            let handles = client.refresh(counting);
            (!handles.is_empty()).then_some((id, Reply::Notice(Notice::Moved { handles })))
        };
        self.clients.iter_mut().filter_map(moved).collect()
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

fn done<F>(number: u32, out: &mut Vec<Effect<F>>) {
    out.push(Effect::Send { number, reply: Reply::Done, files: Vec::new() });
}

fn out_of_order(text: &str) -> Refusal {
    Refusal::new(RefusalKind::Request, 0, errno::EPROTO, text)
}

/// The numbers of Linux that are said here.
pub(crate) mod errno {
    pub(crate) const EBADF: i32 = 9;
    pub(crate) const EAGAIN: i32 = 11;
    pub(crate) const EACCES: i32 = 13;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const EMFILE: i32 = 24;
    pub(crate) const EPROTO: i32 = 71;
    pub(crate) const EOPNOTSUPP: i32 = 95;
}
