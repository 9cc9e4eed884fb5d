//! How the service is, as JSON.
//!
//! **Invariant:** it changes nothing. A client that may not count what others count isn't told what they ask.

use super::Server;
use crate::counters::Counters;
use crate::metrics::Metrics;
use crate::rights::{Membership, is_privileged};
use crate::service::{Client, ClientId, Counting as _, HeldStream, Usage, place};
use pmux::Multiplexing;
use pmux::abi::EventType;
use pmux::server_api::shared::wire::{Detail, PART_BYTES, Part, Reply};
use pmux::server_api::{QuestionScan, RegisterUse, SharedCounter, SharedQuestion};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Memory of the kernel for one open event: 3,000 of them let `Slab` of `/proc/meminfo` grow by so much each, with Linux 6.18 on
/// x86-64 (the event 1,352, its file 192, and what they are found by).
const EVENT_BYTES: u64 = 1_650;

/// An event that ran for this part of its time ran all the time, for people.
const NEARLY_ALL: f64 = 0.995;

/// So many questions, or groups of a client, are described in one step.
const STEP: usize = 32;

/// An answer about the state of the service, written piece by piece: it can be longer than all that may wait for a client.
pub(super) struct StatusJob {
    number: u32,
    of: ClientId,
    detail: Detail,
    /// Whether it tells of what all clients ask.
    everything: bool,
    own: Option<u32>,
    stage: StatusStage,
    /// What was written and not sent yet.
    text: Vec<u8>,
    demand: CounterDemand,
    holders: BreakpointHolders,
    /// Whether nothing of the list that is being written was written yet.
    first: bool,
}

enum StatusStage {
    Begin,
    Look(Box<QuestionScan>),
    Questions(Box<QuestionScan>),
    Counters,
    Clients(std::vec::IntoIter<ClientId>),
    /// One client, its groups up to this leader, and what they ask.
    Client(std::vec::IntoIter<ClientId>, ClientId, Option<u64>, ClientQuestions),
    End,
    Done,
}

/// What a client asks: equal questions of equal places are one line.
type ClientQuestions = BTreeMap<(String, String, Option<u32>), usize>;
/// How many counters of each PMU are wanted for each CPU, and how many of them wait.
type CounterDemand = BTreeMap<(String, Option<u32>), (usize, usize)>;
/// Which client watches which address where: the client, and how often.
type BreakpointHolders = BTreeMap<(ClientId, String, String), (Value, usize)>;

impl StatusJob {
    /// The next packet, where so much is written.
    pub(super) fn next_packet(&mut self) -> Option<(u32, Reply)> {
        let is_done = matches!(self.stage, StatusStage::Done);
        if self.text.len() < PART_BYTES && !is_done {
            return None;
        }
        let rest = self.text.split_off(self.text.len().min(PART_BYTES));
        let text = std::mem::replace(&mut self.text, rest);
        let part = if is_done && self.text.is_empty() { Part::Last } else { Part::More };
        Some((self.number, Reply::StatusReport { part, text }))
    }

    fn item(&mut self, value: &Value) {
        if !std::mem::replace(&mut self.first, false) {
            self.text.push(b',');
        }
        self.text.extend(value.to_string().into_bytes());
    }

    fn raw(&mut self, text: &str) {
        self.text.extend(text.as_bytes());
    }

    /// Writes an object up to its closing brace, behind which `with` may follow.
    fn open_object(&mut self, object: &Value, with: &str) {
        let text = object.to_string();
        self.raw(text.strip_suffix('}').unwrap_or(&text));
        self.raw(with);
        self.first = true;
    }
}

impl Server {
    /// What a client is told: all about itself, and about others if it may know.
    pub(super) fn status_job(&self, of: ClientId, number: u32, detail: Detail) -> StatusJob {
        let (everything, own) = self.may_know(of);
        let (demand, holders) = (CounterDemand::new(), BreakpointHolders::new());
        let (stage, text) = (StatusStage::Begin, Vec::new());
        StatusJob { number, of, detail, everything, own, stage, text, demand, holders, first: true }
    }

    pub(super) fn write_status(&self, job: &mut StatusJob) {
        job.stage = match std::mem::replace(&mut job.stage, StatusStage::Done) {
            StatusStage::Begin => {
                let summary = self.summary(job);
                job.open_object(&summary, "");
                StatusStage::Look(Box::new(self.counters.session.scan_questions()))
            }
            StatusStage::Look(mut scan) => {
                if (0..STEP).all(|_| scan.look()) {
                    StatusStage::Look(scan)
                } else {
                    job.raw(",\"questions\":");
                    let numbers = json!({ "masters": scan.len(), "views": scan.views() });
                    let lists = job.detail == Detail::Full && job.everything;
                    job.open_object(&numbers, if lists { ",\"list\":[" } else { "" });
                    StatusStage::Questions(scan)
                }
            }
            StatusStage::Questions(mut scan) => {
                let lists = job.detail == Detail::Full && job.everything;
                for asked in std::iter::from_fn(|| scan.next_question()).take(STEP) {
                    add_demand(&mut job.demand, &asked);
                    if lists {
                        job.item(&question(&asked));
                    }
                }
                if scan.is_empty() {
                    job.raw(if lists { "]}" } else { "}" });
                    StatusStage::Counters
                } else {
                    StatusStage::Questions(scan)
                }
            }
            StatusStage::Counters => self.write_counters(job),
            StatusStage::Clients(mut ids) => match ids.next() {
                Some(id) => StatusStage::Client(ids, id, None, ClientQuestions::new()),
                None => {
                    job.raw("]}");
                    StatusStage::End
                }
            },
            StatusStage::Client(ids, id, from, mut asked) => match self.add_questions(job, id, from, &mut asked) {
                Some(next) => StatusStage::Client(ids, id, Some(next), asked),
                None => {
                    if let Some(account) = self.service.account(id) {
                        job.item(&client(id, account, asked, &self.counters));
                    }
                    StatusStage::Clients(ids)
                }
            },
            StatusStage::End => {
                if job.everything && job.detail == Detail::Full {
                    job.raw(",\"recorders\":");
                    job.raw(&Value::Array(self.recorders.status()).to_string());
                }
                if job.detail == Detail::Full {
                    job.raw(",\"breakpoint_holders\":[");
                    job.first = true;
                    for (_, (mut holder, times)) in std::mem::take(&mut job.holders) {
                        holder["times"] = json!(times);
                        job.item(&holder);
                    }
                    job.raw("]");
                }
                job.raw("}");
                StatusStage::Done
            }
            StatusStage::Done => StatusStage::Done,
        };
    }

    /// What is known when all questions were looked at, and then the head of the list of clients.
    fn write_counters(&self, job: &mut StatusJob) -> StatusStage {
        let capacities = self.counters.session.known_capacities();
        let demand = std::mem::take(&mut job.demand);
        job.raw(",\"counters\":");
        job.raw(&counters(demand, &capacities).to_string());
        job.raw(",\"clients\":");
        let mut numbers = json!({ "connected": self.service.clients(), "most": self.config.limits.clients });
        let shown = |&(id, account): &(ClientId, &Client<Counters>)| {
            job.everything || id == job.of || Some(account.payer) == job.own
        };
        let ids = match job.detail {
            Detail::Full => self.service.accounts().filter(shown).map(|(id, _)| id).collect(),
            Detail::Summary => Vec::new(),
        };
        if job.detail == Detail::Summary {
            job.raw(&numbers.to_string());
            return StatusStage::End;
        }
        numbers["hidden"] = json!(self.service.clients() - ids.len());
        job.open_object(&numbers, ",\"list\":[");
        StatusStage::Clients(ids.into_iter())
    }

    /// Looks at some more groups of a client; up to which, if there are more.
    fn add_questions(
        &self,
        job: &mut StatusJob,
        id: ClientId,
        from: Option<u64>,
        asked: &mut ClientQuestions,
    ) -> Option<u64> {
        let account = self.service.account(id)?;
        let session = &self.counters.session;
        let groups = account.groups.range((from.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        let mut last = None;
        for (number, (&leader, held)) in groups.enumerate() {
            if number == STEP {
                return last;
            }
            last = Some(leader);
            let names: Vec<_> = held.attrs.iter().map(|attr| session.describe(attr)).collect();
            let cpu = held.target.cpu().filter(|_| held.target.task().is_none());
            *asked.entry((names.join(", "), held.target.to_string(), cpu)).or_default() += 1;
            for attr in held.attrs.iter().filter(|attr| attr.kind == EventType::BREAKPOINT) {
                let (event, of) = (pmux::server_api::describe(attr), held.target.to_string());
                let holder = holder(id, account, &event, &of);
                job.holders.entry((id, event, of)).or_insert((holder, 0)).1 += 1;
            }
        }
        None
    }

    fn summary(&self, job: &StatusJob) -> Value {
        let tallies = self.service.tallies;
        let (opened, closed) = self.counters.session.kernel_events();
        let kernel = opened - closed;
        let asked = u64::from(self.service.charge.events);
        // Of all questions, the service's own among them: those have events of the kernel too.
        let saved = self.counters.session.saved_by_sharing() as u64;
        let limits = &self.config.limits;
        let mut status = json!({
            "service": {
                "process": std::process::id(),
                "version": env!("CARGO_PKG_VERSION"),
                "epoch": self.service.epoch,
                "up_ms": (pmux::server_api::now_ns() - self.started_ns) / 1_000_000,
                "socket": self.path.as_ref().map(|path| path.display().to_string()),
                "turns": match self.config.counting.turns { Multiplexing::Kernel => "kernel", Multiplexing::Engine => "engine" },
                "paranoid": self.counters.session.paranoid(),
            },
            "events": { "asked": asked, "kernel": kernel, "most": limits.events },
            "saved": {
                "events": saved,
                "files": saved,
                "kernel_bytes": saved * EVENT_BYTES,
                "event_bytes": EVENT_BYTES,
                "how": format!("{EVENT_BYTES} bytes each"),
            },
            "since_start": {
                "clients": tallies.clients,
                "requests": tallies.requests,
                "refused": tallies.refused,
                "opened": tallies.opened,
                "cut_off": tallies.cut_off,
                "kernel_events": opened,
            },
            "cgroups": self.counters.cgroups.len(),
            "cpus": self.counters.session.online().to_string(),
        });
        let capacities = self.counters.session.known_capacities();
        // How many counters run at once, where that was tried.
        let room = |of: &pmux::PmuCapacity| json!({ "pmu": of.pmu, "counters": of.counters, "limit": of.limit });
        status["rooms"] = capacities.iter().map(room).collect();
        let records = self.counters.streams.all();
        status["records"] = json!({
            "subscriptions": records.streams,
            "kernel_events": records.sources,
            "ring_bytes": self.service.charge.ring_bytes,
            "kernel_ring_bytes": self.counters.streams.kernel_bytes(),
            "ring_bytes_most": u64::from(limits.rings_kib) * 1024,
            "taken": records.taken,
            "lost_in_kernel": records.lost,
            "broken_rings": records.broken,
        });
        status["breakpoints"] = self.breakpoints();
        if let Some((place, way)) = self.metrics.as_ref().and_then(Metrics::known) {
            status["metrics"] = json!({ "at": place, "cgroups_are_counted": way });
        }
        status["containers"] = json!({ "at": self.agent.as_ref().map(|agent| &agent.path) });
        status["budget"] = self.budget();
        let may_see = |user: &u32| job.everything || Some(*user) == job.own;
        let user = |(user, Usage { clients, held, closing, waits, bound }): (u32, Usage)| {
            json!({
                "user": user,
                "clients": clients,
                "events": held.events,
                "files": held.files,
                "closing": closing,
                "ring_bytes": held.ring_bytes,
                "kernel_ring_bytes": held.kernel_ring_bytes,
                "requests_wait": waits,
                "bound": bound,
            })
        };
        let users = self.service.of_users(self.counters.closing().closed, pmux::server_api::now_ns());
        status["users"] = users.into_iter().filter(|(user, _)| may_see(user)).map(user).collect();
        status
    }

    /// What one user may have, and what is kept back for root.
    fn budget(&self) -> Value {
        let (limits, rules) = (&self.config.limits, &self.service.rules);
        json!({
            "clients": limits.clients_per_user,
            "events": limits.events_per_user,
            "files": rules.files_per_user(),
            "ring_bytes": u64::from(limits.rings_kib_per_user) * 1024,
            "requests_per_second": limits.requests_per_second_per_user,
            "for_root": {
                "clients": limits.clients_for_root,
                "events": limits.events_for_root,
                "files": limits.files_for_root,
            },
        })
    }

    fn breakpoints(&self) -> Value {
        let line = |registers: &RegisterUse| {
            json!({
                "kind": registers.kind.to_string(),
                "cpu": registers.cpu,
                "in_use": registers.in_use,
                "total": registers.total,
            })
        };
        self.counters.session.register_use().iter().map(line).collect()
    }

    /// Whether a client may know what all others ask; if not, the user who pays for it.
    fn may_know(&self, of: ClientId) -> (bool, Option<u32>) {
        let Some(account) = self.service.account(of) else { return (false, None) };
        let peer = &account.peer;
        let named = super::membership(peer, &self.system_wide) == Membership::Named;
        let everything = is_privileged(peer) || named || !self.service.rules.binds(account.payer);
        (everything, Some(account.payer))
    }
}

fn add_demand(demand: &mut CounterDemand, question: &SharedQuestion) {
    for event in question.events.iter().filter(|event| event.counting > 0) {
        let (all, waiting) = demand.entry((event.pmu.clone(), question.cpu)).or_default();
        *all += 1;
        *waiting += usize::from(has_waited(event));
    }
}

/// How many counters of each PMU are wanted, in use and free on each CPU, and for tasks wherever they are.
fn counters(demand: CounterDemand, capacities: &[pmux::PmuCapacity]) -> Value {
    let line = |((pmu, cpu), (wanted, waiting)): ((String, _), (usize, usize))| {
        let limit = capacities.iter().find(|capacity| capacity.pmu == pmu).map(|capacity| usize::from(capacity.limit));
        json!({
            "pmu": pmu,
            "cpu": cpu,
            "wanted": wanted,
            "in_use": limit.map_or(wanted, |limit| limit.min(wanted)),
            // Of how many is known only where they are scarce.
            "free": limit.map(|limit| limit.saturating_sub(wanted)),
            "multiplexed": waiting,
        })
    };
    demand.into_iter().map(line).collect()
}

/// Whether it has waited for a counter, and not only begun a moment before it got one.
fn has_waited(event: &SharedCounter) -> bool {
    event.count.share().is_some_and(|share| share < NEARLY_ALL)
}

fn question(question: &SharedQuestion) -> Value {
    let records = question.records;
    let event = |event: &SharedCounter| {
        let why = match (has_waited(event) && !records, event.by_engine) {
            (true, false) => Some("its PMU has too few counters; the kernel takes turns on each CPU"),
            (true, true) => Some("its PMU has too few counters; all CPUs take turns in step"),
            (false, _) => None,
        };
        json!({
            "event": event.name,
            "pmu": event.pmu,
            "state": format!("{:?}", event.state).to_lowercase(),
            "counting": event.counting,
            // When it was read last.
            "count": event.count.value,
            "enabled_ns": event.count.enabled.0,
            "ran": event.count.share(),
            "why": why,
        })
    };
    json!({
        "of": question.of,
        "cpu": question.cpu,
        "events": question.events.iter().map(event).collect::<Value>(),
        "views": question.views,
        "for": match question.user {
            _ if records => "subscribers".to_owned(),
            None => "everybody".to_owned(),
            Some(user) => format!("user {user}"),
        },
    })
}

fn client(id: ClientId, account: &Client<Counters>, asked: ClientQuestions, counters: &Counters) -> Value {
    let connected = &account.peer.connected;
    let questions: Vec<_> = asked
        .into_iter()
        .map(|((events, of, cpu), times)| json!({ "events": events, "of": of, "cpu": cpu, "times": times }))
        .collect();
    json!({
        "id": id.0,
        "name": account.name.as_deref().unwrap_or_default(),
        "command": account.peer.command,
        "process": connected.process,
        "user": connected.user,
        "events": account.charge.events,
        "requests": account.requests,
        "questions": questions,
        "subscriptions": account.streams.values().map(|held| subscription(held, counters)).collect::<Value>(),
    })
}

fn subscription(held: &HeldStream<Counters>, counters: &Counters) -> Value {
    let names: Vec<_> = held.wanted.attrs.iter().map(|attr| counters.session.describe(attr)).collect();
    let tally = counters.streams.tally(held.stream);
    json!({
        "events": names.join(", "),
        "of": place(&held.wanted.scope),
        "ring_bytes": held.wanted.ring_bytes,
        "records": tally.records,
        "bytes": tally.bytes,
        "lost": tally.lost,
        "lies": tally.lies,
    })
}

/// A client that watches an address.
fn holder(id: ClientId, account: &Client<Counters>, event: &str, of: &str) -> Value {
    let connected = &account.peer.connected;
    json!({
        "client": id.0,
        "user": connected.user,
        "process": connected.process,
        "command": account.peer.command,
        "event": event,
        "of": of,
    })
}
