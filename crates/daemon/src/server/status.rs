//! How the service is, as JSON.
//!
//! **Invariant:** it changes nothing. Whoever may not count what others count isn't told what they ask.

use super::Server;
use crate::config::Turns;
use crate::counters::Counters;
use crate::rights::{Membership, is_privileged};
use crate::service::{Account, ClientId, HeldStream, place};
use pmux::serving::abi::EventType;
use pmux::serving::shared::wire::Detail;
use pmux::serving::{Domain, RegisterUse, SharedCounter, SharedQuestion};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Memory of the kernel for one open event: 3,000 of them let `Slab` of `/proc/meminfo` grow by so much each, with Linux 6.18 on
/// x86-64 (the event 1,352, its file 192, and what they are found by).
const EVENT_BYTES: u64 = 1_650;

/// Who ran for this part of his time ran all the time, for people.
const NEARLY_ALL: f64 = 0.995;

impl Server {
    /// What a client is told: all about itself, and about others if it may know.
    pub(super) fn status(&self, of: ClientId, detail: Detail) -> Value {
        let tallies = self.service.tallies();
        let (opened, closed) = self.counters.session().kernel_events();
        let kernel = opened - closed;
        let asked = u64::from(self.service.events());
        let saved = asked.saturating_sub(kernel);
        let limits = &self.config.limits;
        let mut status = json!({
            "service": {
                "process": std::process::id(),
                "version": env!("CARGO_PKG_VERSION"),
                "epoch": self.service.epoch(),
                "up_ms": (pmux::serving::now_ns() - self.started_ns) / 1_000_000,
                "socket": self.path.as_ref().map(|path| path.display().to_string()),
                "turns": match self.config.counting.turns { Turns::Kernel => "kernel", Turns::Engine => "engine" },
                "paranoid": self.counters.session().paranoid(),
            },
            "clients": { "connected": self.service.clients(), "most": limits.clients },
            "events": { "asked": asked, "kernel": kernel, "most": limits.events },
            "saved": {
                "events": saved,
                "files": saved,
                "kernel_bytes": saved * EVENT_BYTES,
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
            "cgroups": self.counters.cgroups(),
            "cpus": self.counters.session().online().to_string(),
        });
        let questions = self.counters.session().shared_questions();
        let views: usize = questions.iter().map(|question| question.views).sum();
        status["questions"] = json!({ "masters": questions.len(), "views": views });
        let rooms = self.counters.session().known_rooms();
        status["counters"] = counters(&questions, &rooms);
        status["rooms"] = rooms.iter().map(room).collect();
        let records = self.counters.streams().all();
        status["records"] = json!({
            "subscriptions": records.streams,
            "kernel_events": records.sources,
            "ring_bytes": self.service.ring_bytes(),
            "ring_bytes_most": u64::from(limits.rings_kib) * 1024,
            "taken": records.taken,
            "lost_in_kernel": records.lost,
            "broken_rings": records.broken,
        });
        status["breakpoints"] = self.breakpoints();
        if let Some(metrics) = &self.metrics {
            status["metrics"] = json!({ "at": metrics.place(), "cgroups_are_counted": metrics.way() });
        }
        if detail == Detail::Full {
            let (everything, own) = self.may_know(of);
            if everything {
                status["questions"]["list"] = questions.iter().map(question).collect();
            }
            let shown = |&(id, ref account): &(ClientId, Account<'_, Counters>)| {
                everything || id == of || Some(account.asker.connected.user) == own
            };
            let clients: Vec<_> = self.service.accounts().filter(shown).collect();
            let hidden = self.service.clients() - clients.len();
            let list: Vec<_> = clients.iter().map(|(id, account)| client(*id, account, &self.counters)).collect();
            status["clients"]["list"] = Value::Array(list);
            // Where snapshots are, and what is listened to, is for those who may know what all ask.
            if everything {
                status["recorders"] = Value::Array(self.recorders.status());
            }
            status["breakpoint_holders"] = breakpoint_holders(clients.iter());
            status["clients"]["hidden"] = json!(hidden);
        }
        status
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
        self.counters.session().register_use().iter().map(line).collect()
    }

    /// Whether a client may know what all others ask; if not, its user.
    fn may_know(&self, of: ClientId) -> (bool, Option<u32>) {
        let Some((_, account)) = self.service.accounts().find(|(id, _)| *id == of) else { return (false, None) };
        let asker = account.asker;
        let named = super::standing(asker, &self.known).membership == Membership::Named;
        let everything = is_privileged(asker) || named || asker.connected.user == 0;
        (everything, Some(asker.connected.user))
    }
}

/// How many counters run at once, where that was tried.
fn room(room: &pmux::PmuRoom) -> Value {
    json!({ "pmu": room.pmu, "counters": room.counters, "limit": room.limit })
}

/// How many counters of each PMU are wanted, in use and free on each CPU, and for tasks wherever they are.
fn counters(questions: &[SharedQuestion], rooms: &[pmux::PmuRoom]) -> Value {
    let mut counting: BTreeMap<(&str, Option<u32>), (usize, usize)> = BTreeMap::new();
    for question in questions {
        for event in question.events.iter().filter(|event| event.counting > 0) {
            let (all, waiting) = counting.entry((&event.pmu, question.cpu)).or_default();
            *all += 1;
            *waiting += usize::from(has_waited(event));
        }
    }
    let line = |((pmu, cpu), (wanted, waiting)): ((&str, _), (usize, usize))| {
        let limit = rooms.iter().find(|room| room.pmu == pmu).map(|room| usize::from(room.limit));
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
    counting.into_iter().map(line).collect()
}

/// The part of its time that it ran.
fn share(event: &SharedCounter) -> Option<f64> {
    event.count.share()
}

/// Whether it has waited for a counter, and not only begun a moment before it got one.
fn has_waited(event: &SharedCounter) -> bool {
    share(event).is_some_and(|share| share < NEARLY_ALL)
}

fn question(question: &SharedQuestion) -> Value {
    let records = question.domain == Domain::RECORDS.0;
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
            "ran": share(event),
            "why": why,
        })
    };
    json!({
        "of": question.of,
        "cpu": question.cpu,
        "events": question.events.iter().map(event).collect::<Value>(),
        "views": question.views,
        "for": match question.domain { 0 => "everybody".to_owned(), _ if records => "subscribers".to_owned(), user => format!("user {}", user - 1) },
    })
}

fn client(id: ClientId, account: &Account<'_, Counters>, counters: &Counters) -> Value {
    let connected = &account.asker.connected;
    // Equal questions of equal places are one line.
    let mut questions: BTreeMap<(String, String, Option<u32>), usize> = BTreeMap::new();
    for held in account.groups.values() {
        let names: Vec<_> = held.attrs.iter().map(|attr| counters.session().describe(attr)).collect();
        let cpu = held.target.cpu().filter(|_| held.target.task().is_none());
        *questions.entry((names.join(", "), held.target.to_string(), cpu)).or_default() += 1;
    }
    let questions: Vec<_> = questions
        .into_iter()
        .map(|((events, of, cpu), times)| json!({ "events": events, "of": of, "cpu": cpu, "times": times }))
        .collect();
    json!({
        "id": id.0,
        "name": account.name,
        "command": account.asker.command,
        "process": connected.process,
        "user": connected.user,
        "events": account.events,
        "weight": account.weight,
        "requests": account.requests,
        "questions": questions,
        "subscriptions": account.streams.values().map(|held| subscription(held, counters)).collect::<Value>(),
    })
}

fn subscription(held: &HeldStream<Counters>, counters: &Counters) -> Value {
    let names: Vec<_> = held.wanted.attrs.iter().map(|attr| counters.session().describe(attr)).collect();
    let tally = counters.streams().tally(held.stream);
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

/// Who holds debug registers: a line for each client and each address that it watches somewhere.
fn breakpoint_holders<'a>(clients: impl Iterator<Item = &'a (ClientId, Account<'a, Counters>)>) -> Value {
    let mut holders: BTreeMap<(ClientId, String, String), (&Account<'_, Counters>, usize)> = BTreeMap::new();
    for (id, account) in clients {
        for held in account.groups.values() {
            for attr in held.attrs.iter().filter(|attr| attr.kind == EventType::BREAKPOINT) {
                let key = (*id, pmux::serving::describe(attr), held.target.to_string());
                holders.entry(key).or_insert((account, 0)).1 += 1;
            }
        }
    }
    let line = |((id, event, of), (account, times)): ((ClientId, String, String), (&Account<'_, Counters>, usize))| {
        let connected = &account.asker.connected;
        json!({
            "client": id.0,
            "user": connected.user,
            "process": connected.process,
            "command": account.asker.command,
            "event": event,
            "of": of,
            "times": times,
        })
    };
    holders.into_iter().map(line).collect()
}
