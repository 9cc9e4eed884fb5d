//! What a session counts, and for how many: facts for programs that show them.
//!
//! **Invariant:** nothing is read from a counter for it, and nothing changes.

use crate::session::Session;
use pmux_abi::attr::{Attr, AttrFlags, EventType};
use pmux_engine::engine::{ShareList, ShareReport, SharedEvent};
use pmux_engine::hw_breakpoint::Kind;
use pmux_engine::share::SharingScope;
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{Count, EventState, LockCell as _, Nanos};
use pmux_linux::host::{KERNEL, LinuxHost, is_clock};
use std::collections::{HashMap, VecDeque};

/// What the clocks show, which stand beside the events of a PMU: see [`super::clocks`].
type ClockCounts = HashMap<(SharingScope, ContextKey, Filter, u64, AttrFlags), Count>;

/// Beside which events a clock of that PMU stands, and whether it goes by the time of children too.
const fn beside(share: &ShareReport, attr: &Attr, pmu: u64) -> (SharingScope, ContextKey, Filter, u64, AttrFlags) {
    (share.domain, share.target.context, share.target.filter, pmu, attr.flags.intersection(AttrFlags::INHERIT))
}

/// A question that is counted once for all who ask it.
#[derive(Clone, Debug)]
pub struct SharedQuestion {
    /// Whose events, in words.
    pub of: String,
    /// The CPU, where it is one's.
    pub cpu: Option<u32>,
    /// Its events, the leader first.
    pub events: Vec<SharedCounter>,
    /// How many groups and single events see it.
    pub views: usize,
    /// The user with whose credentials it is opened, which those that join it have too; `None` for the service's own.
    pub user: Option<u32>,
    /// Whether it is about records.
    pub records: bool,
}

/// The questions that are counted at a moment, to be looked at piece by piece: there may be very many.
pub struct QuestionScan {
    session: Session,
    list: ShareList<LinuxHost>,
    clocks: ClockCounts,
    asked: VecDeque<ShareReport>,
    views: usize,
}

impl QuestionScan {
    /// Looks at one more; `false` when all were looked at.
    pub fn look(&mut self) -> bool {
        let Some(share) = self.session.engine().next_share(&mut self.list) else { return false };
        // The clocks, no client has asked for.
        if share.events.iter().all(|event| is_clock(&event.attr)) {
            let clock = |clock: &SharedEvent| (beside(&share, &clock.attr, clock.attr.config), clock.count);
            self.clocks.extend(share.events.iter().map(clock));
        } else {
            self.views += share.views;
            self.asked.push_back(share);
        }
        true
    }

    /// How many questions were found and not taken yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.asked.len()
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// How many groups and single events see those that were found.
    #[must_use]
    pub const fn views(&self) -> usize {
        self.views
    }

    /// The next question, the oldest first, when all were looked at.
    pub fn next_question(&mut self) -> Option<SharedQuestion> {
        let share = self.asked.pop_front()?;
        Some(self.session.shared_question(&share, &self.clocks))
    }
}

/// One counter of a question.
#[derive(Clone, Debug)]
pub struct SharedCounter {
    /// What it counts, in words.
    pub name: String,
    /// The PMU that it needs.
    pub pmu: String,
    /// Where it is in its life.
    pub state: EventState,
    /// How many count with it.
    pub counting: usize,
    /// What it had counted when it was read last.
    pub count: Count,
    /// Whether the engine hands its counter out, and not the kernel.
    pub by_engine: bool,
}

/// Debug registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterUse {
    /// For which breakpoints.
    pub kind: Kind,
    /// The CPU on which most are in use.
    pub cpu: u32,
    /// How many, as far as the session knows.
    pub in_use: u32,
    /// How many there are.
    pub total: u32,
}

impl Session {
    /// All questions that are counted for a client and could be joined, the oldest first.
    #[must_use]
    pub fn shared_questions(&self) -> Vec<SharedQuestion> {
        let mut scan = self.scan_questions();
        while scan.look() {}
        std::iter::from_fn(|| scan.next_question()).collect()
    }

    /// The same, piece by piece.
    #[must_use]
    pub fn scan_questions(&self) -> QuestionScan {
        let list = self.engine().list_shares();
        QuestionScan { session: self.clone(), list, clocks: ClockCounts::new(), asked: VecDeque::new(), views: 0 }
    }

    fn shared_question(&self, share: &ShareReport, clocks: &ClockCounts) -> SharedQuestion {
        // A client waits for a counter only while its task or cgroup is there.
        let count = |event: &SharedEvent| {
            let clock = clocks.get(&beside(share, &event.attr, event.pmu.0.into()));
            match clock.filter(|_| event.waited > Nanos::ZERO) {
                Some(clock) => Count { enabled: clock.enabled.max(event.count.running), ..event.count },
                None => event.count,
            }
        };
        let (of, cpu) = match (share.target.context, share.target.filter) {
            (ContextKey::Task(task), Filter::OnCpu(cpu)) => (format!("task {} on CPU {cpu}", task.0), None),
            (ContextKey::Task(task), _) => (format!("task {}", task.0), None),
            (ContextKey::Cpu(cpu), Filter::Cgroup(id)) => {
                let name = self.engine().host().cgroup_name(id);
                let cgroup = name.map_or_else(|| "a cgroup".to_owned(), |name| format!("cgroup {name}"));
                (format!("{cgroup} on CPU {cpu}"), Some(cpu.0))
            }
            (ContextKey::Cpu(cpu), _) => (format!("CPU {cpu}"), Some(cpu.0)),
        };
        let counters = share.events.iter().map(|event| SharedCounter {
            name: self.describe(&event.attr),
            pmu: self.counter_pmu_name(&event.attr),
            state: event.state,
            counting: event.counting,
            count: count(event),
            by_engine: event.pmu != KERNEL,
        });
        let user = self.engine().host().openers().user_of(share.domain.cred());
        let (events, records) = (counters.collect(), share.domain.is_of_records());
        SharedQuestion { of, cpu, events, views: share.views, user, records }
    }

    /// The PMU whose counters an event needs, in words.
    fn counter_pmu_name(&self, attr: &Attr) -> String {
        match attr.kind {
            EventType::SOFTWARE => "software".to_owned(),
            EventType::TRACEPOINT => "tracepoint".to_owned(),
            EventType::BREAKPOINT => "breakpoint".to_owned(),
            EventType::HARDWARE | EventType::HW_CACHE | EventType::RAW => self.core_pmu_name().to_owned(),
            kind => self.pmu_named_by(kind).map_or_else(|| format!("PMU {}", kind.0), |(name, _)| name),
        }
    }

    /// The debug registers, one line for each kind, on the CPU where most are in use; nothing before the first breakpoint.
    #[must_use]
    pub fn register_use(&self) -> Vec<RegisterUse> {
        let Some(ledger) = self.engine().ledger() else { return Vec::new() };
        let of = |kind| {
            let full = ledger.fullest(kind, None, None);
            RegisterUse { kind, cpu: full.cpu.0, in_use: full.in_use, total: full.total.into() }
        };
        let (one, other) = (of(Kind::Execute), of(Kind::Data));
        // Where both kinds have the same registers one line says it.
        if ledger.registers().compete(Kind::Execute, Kind::Data) { vec![other] } else { vec![one, other] }
    }

    /// Finds out how many counters the cores have, in some milliseconds, in which it takes them from others: so before a
    /// client counts. Of other PMUs that is found out when something is asked of them.
    pub fn learn_counters(&self) {
        self.learn_capacities(&[Attr { kind: EventType::HARDWARE, ..Attr::default() }]);
    }

    /// How many counters of each PMU run at once, of those that something was asked of.
    #[must_use]
    pub fn known_capacities(&self) -> Vec<crate::PmuCapacity> {
        self.inner.mux.turn.with(|()| self.all_capacities())
    }
}
