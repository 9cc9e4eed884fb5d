//! Sharing, as the engine does it: which group asks what, and the master behind its view.
//!
//! What it is: the index of questions, and for each question a *master*, an ordinary group that only the share knows.
//! Events of a view are records of the registry like any others; what is asked of them is asked of the master, or of the
//! share's book.
//! Read first: [`crate::share`] (the rules, and the book), then `open`, then `control`.
//!
//! **Invariant:** a thread that opens, switches or closes something of a share has the share's turn. Reading needs none: the book
//! says what a reading means, whichever comes first.

mod control;
mod open;

pub(super) use open::not_opened;

use super::ctx_lock::ContextCell;
use super::fast_read::{FastRead, FastReads};
use super::{Engine, EventRecord, Opened, RootCount, Target};
use crate::error::ReadError;
use crate::event::{Event, EventState, Last};
use crate::group::Plan;
use crate::host::Host;
use crate::id::{EventId, Nanos, PmuId};
use crate::lock::{LockCell, Rank};
use crate::pmu::{Lease, SlotReading};
use crate::share::{Seen, Share, Sharing, SharingScope, SubscriberKey, SubscriberState, may_join_singly, may_share};
use crate::target::ContextKey;
use crate::target::Demand;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use hashbrown::HashMap;
use pmux_abi::attr::Attr;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct ShareKey {
    domain: SharingScope,
    target: Target,
    /// The leader first, each as [`crate::pmu::PmuModel::share_key`] puts it.
    events: Vec<(PmuId, Attr)>,
    /// What its master would demand, which is in the leader's attribute too.
    demand: Demand,
    holds: Holds,
}

/// What a master holds as long as it is open, whichever views count with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Holds {
    /// Nothing that others could want.
    Nothing,
    /// Debug registers: who wants none of them must not keep them.
    DebugRegisters,
}

/// A question, its master, and the views of it.
pub(super) struct ShareCell<H: Host> {
    question: ShareKey,
    number: u64,
    turn: H::TaskLock<Life<H>>,
    book: H::IrqLock<Share>,
}

/// What has become of a master.
pub(super) enum Life<H: Host> {
    /// The thread that has the turn first opens it.
    Unborn,
    /// It is there.
    Counts(Master<H>),
    /// Its last view has left it, or it was refused: a group that wants to join asks again.
    Gone,
}

/// The group that counts for all views.
pub(super) struct Master<H: Host> {
    opened: Opened,
    cell: Arc<ContextCell<H>>,
    fast_reads: FastReads<H>,
    /// Which of its events have been enabled. What they are says it not: a task may be gone, and its children still count.
    on: Vec<bool>,
    since: Nanos,
    /// Whether no event may join it any more: it is the only view's own.
    kept: bool,
}

pub(super) struct GroupSubscription<H: Host> {
    pub(super) share: Arc<ShareCell<H>>,
    pub(super) key: SubscriberKey,
    /// How often what its events have counted so far, or since when they count, has been changed: stored with the book, and loaded
    /// by [`super::fast_read`], which says why that may be relaxed.
    changes: AtomicU64,
}

pub(super) struct EventSubscription<H: Host> {
    pub(super) whole: Arc<GroupSubscription<H>>,
    pub(super) index: usize,
    pub(super) master: EventId,
    /// Which count of which family that is; it founds none later.
    pub(super) root_count: Option<RootCount>,
}

impl<H: Host> GroupSubscription<H> {
    fn new(share: &Arc<ShareCell<H>>, key: SubscriberKey) -> Self {
        Self { share: Arc::clone(share), key, changes: AtomicU64::new(0) }
    }

    pub(super) fn book<R>(&self, f: impl FnOnce(&Share) -> R) -> R {
        self.share.book.with(|book| f(book))
    }

    /// Changes what the book says of this view.
    fn change<R>(&self, f: impl FnOnce(&mut Share) -> R) -> R {
        self.share.book.with(|book| {
            let result = f(book);
            self.changes.store(self.changes() + 1, Ordering::Relaxed);
            result
        })
    }

    /// Takes a step with the share's turn.
    pub(super) fn in_turn<R>(&self, f: impl FnOnce(&mut Life<H>) -> R) -> R {
        self.share.turn.with(f)
    }

    /// How often that has been done.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

/// What one event of a group asks.
type Single = (SharingScope, Target, PmuId, Attr);

/// One of a master's events.
type Nth<H> = (Arc<ShareCell<H>>, usize);

/// The questions that have a master.
pub(super) struct Index<H: Host> {
    by_question: HashMap<ShareKey, Arc<ShareCell<H>>>,
    /// Groups of several that an event of theirs may join singly, and which of their events it is; the oldest first.
    singly: HashMap<Single, BTreeMap<u64, Nth<H>>>,
    /// Of each master's event in [`SharingScope::RECORDS`]: the events that see it.
    pub(super) listeners: BTreeMap<EventId, BTreeSet<EventId>>,
    count: u64,
    pub(super) masters: usize,
    pub(super) master_events: usize,
}

impl<H: Host> Default for Index<H> {
    fn default() -> Self {
        let listeners = BTreeMap::new();
        Self { by_question: HashMap::new(), singly: HashMap::new(), listeners, count: 0, masters: 0, master_events: 0 }
    }
}

impl<H: Host> Index<H> {
    /// The share of a question, made if there is none; with which of the master's events the first one asked for is.
    fn find(&mut self, question: &ShareKey) -> Nth<H> {
        if let Some(share) = self.by_question.get(question) {
            return (Arc::clone(share), 0);
        }
        if let Some((pmu, attr)) = question.alone()
            && let Some((_, (share, index))) =
                self.singly.get(&(question.domain, question.target, pmu, attr)).and_then(BTreeMap::first_key_value)
        {
            return (Arc::clone(share), *index);
        }
        let share = Arc::new(ShareCell {
            number: self.count,
            turn: LockCell::ranked(Rank::Share, Life::Unborn),
            book: LockCell::ranked(Rank::Views, Share::new(question.events.len())),
            question: question.clone(),
        });
        self.count += 1;
        self.by_question.insert(question.clone(), Arc::clone(&share));
        (share, 0)
    }

    /// The events of a master that is there may be joined singly.
    fn admit(&mut self, share: &Arc<ShareCell<H>>, master: &Opened) {
        self.masters += 1;
        self.master_events += master.events.len();
        for (place, index) in share.question.joined_singly() {
            self.singly.entry(place).or_default().insert(share.number, (Arc::clone(share), index));
        }
    }

    fn dismiss(&mut self, master: &Opened) {
        self.masters -= 1;
        self.master_events -= master.events.len();
    }

    /// An event sees a master's.
    fn listen(&mut self, domain: SharingScope, master: EventId, event: EventId) {
        if domain.is_of_records() {
            self.listeners.entry(master).or_default().insert(event);
        }
    }

    /// It is closed.
    pub(super) fn unlisten(&mut self, master: EventId, event: EventId) {
        if let Some(events) = self.listeners.get_mut(&master) {
            events.remove(&event);
            if events.is_empty() {
                self.listeners.remove(&master);
            }
        }
    }

    fn forget(&mut self, share: &Arc<ShareCell<H>>) {
        let question = &share.question;
        if self.by_question.get(question).is_some_and(|known| Arc::ptr_eq(known, share)) {
            self.by_question.remove(question);
        }
        for (place, _) in question.joined_singly() {
            if let Some(shares) = self.singly.get_mut(&place) {
                shares.remove(&share.number);
                if shares.is_empty() {
                    self.singly.remove(&place);
                }
            }
        }
    }

    /// All shares that can be found, the oldest first.
    fn all(&self) -> Vec<Arc<ShareCell<H>>> {
        let mut all: Vec<_> = self.by_question.values().map(Arc::clone).collect();
        all.sort_unstable_by_key(|share| share.number);
        all
    }
}

impl ShareKey {
    /// The event, where it is one by itself that may join a group.
    fn alone(&self) -> Option<(PmuId, Attr)> {
        let may = may_join_singly(self.demand);
        (may && self.events.len() == 1).then(|| self.events.first().copied()).flatten()
    }

    /// Under which questions its events can be joined singly. Where two are equal, the first one is.
    fn joined_singly(&self) -> impl Iterator<Item = (Single, usize)> + '_ {
        let free = may_join_singly(self.demand) && self.holds == Holds::Nothing;
        let may = free && self.events.len() > 1;
        let first = |index: usize| self.events.iter().position(|event| *event == self.events[index]) == Some(index);
        let place =
            move |(index, &(pmu, attr)): (usize, &(PmuId, Attr))| ((self.domain, self.target, pmu, attr), index);
        self.events.iter().enumerate().filter(move |&(index, _)| may && first(index)).map(place)
    }
}

/// One master and who counts with it, for people.
#[derive(Clone, Debug)]
pub struct ShareReport {
    /// Who may have a view of it.
    pub domain: SharingScope,
    /// Of which context, and which part of its time.
    pub target: Target,
    /// The master's events.
    pub events: Vec<SharedEvent>,
    /// How many groups and single events see it.
    pub views: usize,
}

/// One event of a master.
#[derive(Clone, Copy, Debug)]
pub struct SharedEvent {
    /// Its PMU.
    pub pmu: PmuId,
    /// The question.
    pub attr: Attr,
    /// Where it is in its life.
    pub state: EventState,
    /// How many views count with it.
    pub counting: usize,
    /// Its count as of its last reading.
    pub count: crate::Count,
    /// How long it was enabled without being on a slot, by the engine's clock.
    pub waited: Nanos,
}

/// Masters that could be joined when they were listed.
pub struct ShareList<H: Host>(alloc::vec::IntoIter<Arc<ShareCell<H>>>);

impl<H: Host> Engine<H> {
    /// Lets equal questions share a counter from now on; see [`crate::share`]. What is open already stays as it is.
    #[must_use]
    pub fn with_sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// Whether equal questions share.
    pub const fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// All masters that can be joined, the oldest first; nothing is read for it.
    pub fn shares(&self) -> Vec<ShareReport> {
        let mut list = self.list_shares();
        core::iter::from_fn(|| self.next_share(&mut list)).collect()
    }

    /// The masters that can be joined now, to be looked at one by one with [`Engine::next_share`]: there may be very many.
    pub fn list_shares(&self) -> ShareList<H> {
        ShareList(self.registry.with(|registry| registry.shares.all()).into_iter())
    }

    /// The next master of a list that can still be joined, the oldest first.
    pub fn next_share(&self, list: &mut ShareList<H>) -> Option<ShareReport> {
        list.0.find_map(|share| {
            share.turn.with(|life| {
                let Life::Counts(master) = life else { return None };
                let (views, counting) = share.book.with(|book| {
                    let counting: Vec<_> = (0..master.fast_reads.len()).map(|event| book.counting(event)).collect();
                    (book.views(), counting)
                });
                let event = |(fast_read, &counting): (&FastRead<H>, &usize)| {
                    self.look_at_last(fast_read, |member, last| {
                        let (state, count, waited) = (member.state(), last.count, member.waited());
                        SharedEvent { pmu: member.spec.pmu, attr: member.spec.attr, state, counting, count, waited }
                    })
                };
                let events = master.fast_reads.iter().zip(&counting).filter_map(event).collect();
                Some(ShareReport { domain: share.question.domain, target: share.question.target, events, views })
            })
        })
    }

    /// What a group asks; `None` where it shares with no other group.
    fn question(&self, plan: &Plan, target: Target, domain: SharingScope) -> Option<ShareKey> {
        if self.sharing == Sharing::Off || domain.is_alone() || !may_share(plan.demand) {
            return None;
        }
        let event = |member: &crate::event::NewEvent| {
            let (pmu, attr) = (member.spec.pmu, &member.spec.attr);
            let model = self.host.pmu(pmu)?;
            let question = match domain.is_of_records() {
                true => model.share_key_of_records(attr),
                false => model.share_key(attr),
            };
            Some((pmu, question?))
        };
        let events = plan.members.iter().map(event).collect::<Option<_>>()?;
        let claims = plan.members.iter().any(|member| member.spec.claim.is_some());
        let holds = if claims { Holds::DebugRegisters } else { Holds::Nothing };
        Some(ShareKey { domain, target, events, demand: plan.demand, holds })
    }

    /// Whether the same question is open in the domain already.
    pub(super) fn is_asked(&self, plan: &Plan, target: Target, domain: SharingScope) -> bool {
        let asked =
            |question: &ShareKey| self.registry.with(|registry| registry.shares.by_question.contains_key(question));
        self.question(plan, target, domain).as_ref().is_some_and(asked)
    }

    /// What an event of a view is, its master's being `state`.
    pub(super) fn state_of_view(
        &self,
        view: &EventSubscription<H>,
        state: EventState,
    ) -> Result<EventState, ReadError> {
        Ok(match view.whole.book(|book| book.stance(view.whole.key, view.index)).ok_or(ReadError::Closed)? {
            _ if state == EventState::Dead => EventState::Dead,
            SubscriberState::Counts => state,
            SubscriberState::Waits => EventState::Inactive,
            SubscriberState::Off => EventState::Off,
        })
    }

    /// Asks an event that has counters of its own, or one that shares. No lock may be held that comes after a share's turn.
    pub(super) fn ask<R>(
        &self,
        event: EventId,
        own: impl Fn(&EventRecord<H>) -> Result<R, ReadError>,
        shared: impl Fn(&EventRecord<H>, &EventSubscription<H>) -> Result<R, ReadError>,
    ) -> Result<R, ReadError> {
        let record = self.record(event).ok_or(ReadError::Closed)?;
        record.fast_read().view.as_ref().map_or_else(|| own(&record), |view| shared(&record, view))
    }

    /// What an event of a view has seen, its master's having seen `now`.
    pub(super) fn seen_by(&self, view: &EventSubscription<H>, now: &Seen) -> Result<Seen, ReadError> {
        view.whole.book(|book| book.seen(view.whole.key, view.index, now)).ok_or(ReadError::Closed)
    }
}

/// What really counts for an event, as of its last reading.
#[derive(Clone, Copy, Debug)]
pub struct SlotView {
    /// The slot, of the master where the event shares; `None` while it has none.
    pub lease: Option<(ContextKey, Lease)>,
    /// The last reading of the slot.
    pub raw: SlotReading,
    /// When that was taken, for any view.
    pub at: Nanos,
    /// What the event had counted at that moment.
    pub count: crate::Count,
    /// Where the event is in its life.
    pub state: EventState,
}

impl<H: Host> Engine<H> {
    /// What really counts for an event, and what the event makes of it, as of one moment: its last reading. A client that can read
    /// the slot by itself then knows what to subtract, until the event is switched or reset, or gets another slot.
    ///
    /// # Errors
    /// [`ReadError::Closed`].
    pub fn slot_view(&self, event: EventId) -> Result<SlotView, ReadError> {
        let look = |member: &Event, last: Last| (member.lease, last, seen_by_then(member, last), member.state());
        let seen = |record: &EventRecord<H>| {
            let (lease, Last { reading: raw, at, .. }, seen, state) =
                self.look_at_last(record.fast_read(), look).ok_or(ReadError::Closed)?;
            let lease = lease.map(|lease| (record.fast_read().cell.key, lease));
            Ok((SlotView { lease, raw, at, count: seen.count, state }, seen))
        };
        let shared = |record: &EventRecord<H>, view: &_| {
            let (slot, now) = seen(record)?;
            let count = self.seen_by(view, &now)?.count;
            Ok(SlotView { count, state: self.state_of_view(view, slot.state)?, ..slot })
        };
        self.ask(event, |record| seen(record).map(|(slot, _)| slot), shared)
    }
}

/// What it has seen as of this reading.
pub(super) fn seen_by_then(member: &Event, last: Last) -> Seen {
    Seen { count: last.count, waited: member.waited(), contended: last.contended }
}
