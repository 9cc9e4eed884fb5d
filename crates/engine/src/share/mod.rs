//! Sharing: one counter for identical requests.
//!
//! What it is: the account of one share. A *master*, an ordinary group, counts; a group that asked for it has a *view* of it: when
//! that group began to count, and what the master had counted by then. A view costs no counter, whatever it does touches no other
//! view, and every step costs as much as the view has events, however many views there are.
//! Read first: [`Share`], then [`crate::pmu::share_key`] (which events are equal), then `sharing` in [`crate::engine`] (the locked side).
//!
//! The rules, each with a test in `engine/tests/sharing`:
//!
//! * Events share that have the same question ([`crate::pmu::share_key::canonical`], asked through [`crate::pmu::PmuModel::share_key`]) of
//!   the same context with the same filter, in the same [`SharingScope`]. So a CPU's events share with those of the same cgroup only, inheriting events
//!   with inheriting ones (one family counts for all of them), pinned ones with pinned ones.
//! * An inheriting event joins a master only while no child counts for it: an event follows those who are forked after it was
//!   opened, and no others.
//! * Groups share as wholes. An event by itself also shares with a member of a group, where that takes turns like any other
//!   (neither pinned nor exclusive) and holds no debug registers, which it would keep for the single event: the event then counts
//!   whenever that group does. A group does not join single events that were there before it: its events count at the same times,
//!   which counters of their own need not; and they don't move to it, because on the way from one counter to another something
//!   would be missed.
//! * A group that wants its PMU for itself shares with no other group, nor does an event that does more than count, but in
//!   [`SharingScope::RECORDS`]: there, events share that write the same records ([`crate::pmu::share_key::canonical_of_records`]), in which nothing
//!   may differ but which reader is woken when.
//! * The master belongs to no client: it counts as long as any view counts, and is closed with the last view. So closing one never
//!   stops the counter of another.
//! * What happens to the counter happens to all: an error of the master is the error of every client that counts, and a client that
//!   enables it again brings it back for all; in children, too, where that client counts with it already, and so means what is
//!   wrong. When the task or the CPU is gone, or the host has ended the counter ([`crate::pmu::CounterBank::has_ended`]), a new
//!   event gets a new master.
//!
//! **Invariant:** a master's event is enabled if and only if a view counts with it.

use crate::arena::{Arena, Id};
use crate::count::Count;
use crate::id::{Cred, Nanos};
use crate::target::Demand;
use alloc::vec::Vec;
use core::ops::{AddAssign, Range};

/// Whether equal questions share a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// Each event has its own.
    #[default]
    Off,
    /// They do.
    On,
}

/// Which clients share: questions of different domains never share, be they equal. A client that hands counters on to another
/// program that could disturb them (the holder of an event's fd on Linux can stop it) gives that program a domain of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SharingScope {
    number: u64,
    cred: Cred,
}

impl SharingScope {
    /// No event shares in it: every event has its own counter, as a client needs that finds out how many there are.
    pub const ALONE: Self = Self::new(u64::MAX);
    /// In it, events share that write the same records: each record that the host takes for their master goes to all that are on
    /// ([`crate::Engine::audience`]). A client that opens in it promises to bring them there; no other code knows that the master
    /// has any.
    pub const RECORDS: Self = Self::new(u64::MAX - 1);

    /// The domain with this number, whose counters are opened with the host's own credentials.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self { number, cred: Cred::HOST }
    }

    /// The domain with the same number whose counters are opened with these credentials. Domains with different credentials never
    /// share: a counter that was opened with more rights than a subscriber has would tell it more than the host allows.
    #[must_use]
    pub const fn with_cred(self, cred: Cred) -> Self {
        Self { cred, ..self }
    }

    /// The credentials that its counters are opened with.
    #[must_use]
    pub const fn cred(self) -> Cred {
        self.cred
    }

    /// Whether its events are shared with their records: [`SharingScope::RECORDS`], with any credentials.
    #[must_use]
    pub const fn is_of_records(self) -> bool {
        self.number == Self::RECORDS.number
    }

    /// Whether it is [`SharingScope::ALONE`], with any credentials.
    #[must_use]
    pub const fn is_alone(self) -> bool {
        self.number == Self::ALONE.number
    }
}

/// Whether a group with this demand may share at all.
#[must_use]
pub const fn may_share(demand: Demand) -> bool {
    !demand.exclusive
}

/// Whether an event by itself may share with a member of a group with this demand.
#[must_use]
pub const fn may_join_singly(demand: Demand) -> bool {
    !demand.exclusive && !demand.pinned
}

/// What an event has counted so far, and for how long it could not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Its count.
    pub count: Count,
    /// How long it was enabled without being on a slot.
    pub waited: Nanos,
    /// How long another user, which the engine doesn't know, had its counter.
    pub contended: Nanos,
}

impl Seen {
    /// What has come since `before`; nothing where that was seen later.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            count: self.count.less(&before.count),
            waited: self.waited.since(before.waited),
            contended: self.contended.since(before.contended),
        }
    }
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.waited += other.waited;
        self.contended += other.contended;
    }
}

/// Names a view inside its share.
pub type SubscriberKey = Id<Subscriber>;

/// Which events of a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// One of them, by number.
    One(usize),
    /// All.
    All,
}

/// What one group sees of a master.
#[derive(Clone, Debug)]
pub struct Subscriber {
    /// The first of the master's events that it is about; the others follow that one.
    first: usize,
    parts: Vec<SubscriberEvent>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SubscriberEvent {
    switch: EventSwitch,
    /// What the master's event had seen when this began to count; `None` while it doesn't.
    begun: Option<Seen>,
    /// What it had seen before.
    held: Seen,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum EventSwitch {
    #[default]
    Off,
    On,
}

impl Subscriber {
    /// One of so many of the master's events from `first` on; it is off.
    #[must_use]
    pub fn new(first: usize, events: usize) -> Self {
        Self { first, parts: alloc::vec![SubscriberEvent::default(); events] }
    }

    fn is_on(&self, index: usize) -> bool {
        self.parts.get(index).is_some_and(|part| part.switch == EventSwitch::On)
    }

    /// Whether an event counts: it is on, and so is the first one, which leads.
    fn counts(&self, index: usize) -> bool {
        self.is_on(index) && self.is_on(0)
    }

    fn span(&self, which: Which) -> Range<usize> {
        match which {
            Which::All => 0..self.parts.len(),
            Which::One(index) => index.min(self.parts.len())..(index + 1).min(self.parts.len()),
        }
    }
}

/// The views of one master.
pub struct Share {
    users: UserCounts,
    views: Arena<Subscriber, Subscriber>,
}

/// For each event of the master: how many views count with it.
#[derive(Debug)]
struct UserCounts(Vec<usize>);

impl UserCounts {
    /// A view begins to count with an event, or ends. Without the leader it would not count, so that is wanted too.
    fn change(&mut self, event: usize, change: impl Fn(usize) -> usize) {
        for event in [Some(event), (event != 0).then_some(0)].into_iter().flatten() {
            if let Some(users) = self.0.get_mut(event) {
                *users = change(*users);
            }
        }
    }
}

impl Share {
    /// Without views, of a master with so many events.
    #[must_use]
    pub fn new(events: usize) -> Self {
        Self { users: UserCounts(alloc::vec![0; events]), views: Arena::default() }
    }

    /// A new view. It was made without the share's lock, which spins.
    pub fn join(&mut self, view: Subscriber) -> SubscriberKey {
        self.views.insert(view)
    }

    /// How many views there are.
    #[must_use]
    pub const fn views(&self) -> usize {
        self.views.len()
    }

    /// Whether a view counts with an event of the master.
    #[must_use]
    pub fn is_wanted(&self, event: usize) -> bool {
        self.users.0.get(event).is_some_and(|&users| users > 0)
    }

    /// How many views count with an event of the master, or with one that it leads.
    #[must_use]
    pub fn counting(&self, event: usize) -> usize {
        self.users.0.get(event).copied().unwrap_or_default()
    }

    /// Which of the master's events a view begins with, and how many it has; `None` where there is no such view.
    #[must_use]
    pub fn place(&self, key: SubscriberKey) -> Option<(usize, usize)> {
        self.views.get(key).map(|view| (view.first, view.parts.len()))
    }

    /// Which of the master's events these of a view are.
    #[must_use]
    pub fn span(&self, key: SubscriberKey, which: Which) -> Range<usize> {
        self.views.get(key).map_or(0..0, |view| {
            let span = view.span(which);
            view.first + span.start..view.first + span.end
        })
    }

    /// Whether no view counts with any of them.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        // A view that counts with any of them wants the one that leads.
        !self.is_wanted(0)
    }

    /// Lets events of a view count from now on, `now` being what the master's events have seen.
    ///
    /// The caller then lets the master's events that are wanted count. Those that were not counting have not counted since
    /// `now`; those that were are read just now.
    pub fn enable(&mut self, key: SubscriberKey, which: Which, now: &[Seen]) {
        let Self { users, views } = self;
        let Some(view) = views.get_mut(key) else { return };
        for index in view.span(which) {
            view.parts[index].switch = EventSwitch::On;
        }
        let leads = view.is_on(0);
        for (index, part) in view.parts.iter_mut().enumerate() {
            if leads && part.switch == EventSwitch::On && part.begun.is_none() {
                part.begun = Some(now.get(view.first + index).copied().unwrap_or_default());
                users.change(view.first + index, |users| users + 1);
            }
        }
    }

    /// These events of a view end, and with the first one all: what the master need not count for it any longer is not wanted
    /// any more. The caller stops that, and then calls [`Share::settle`].
    pub fn disable(&mut self, key: SubscriberKey, which: Which) {
        let Self { users, views } = self;
        let Some(view) = views.get_mut(key) else { return };
        let (led, span) = (view.is_on(0), view.span(which));
        let leads = led && !span.contains(&0);
        for (index, part) in view.parts.iter_mut().enumerate() {
            let counted = led && part.switch == EventSwitch::On;
            if span.contains(&index) {
                part.switch = EventSwitch::Off;
            }
            if counted && !(leads && part.switch == EventSwitch::On) {
                users.change(view.first + index, |users| users.saturating_sub(1));
            }
        }
    }

    /// Whether an event of a view that does not count any more is still wanted by others: then what it has seen must be read.
    #[must_use]
    pub fn must_read(&self, key: SubscriberKey) -> bool {
        self.views.get(key).is_some_and(|view| {
            let ended = |&(index, part): &(usize, &SubscriberEvent)| part.begun.is_some() && !view.counts(index);
            view.parts.iter().enumerate().filter(ended).any(|(index, _)| self.is_wanted(view.first + index))
        })
    }

    /// Keeps what the events of a view that don't count any more have seen, `now` being what the master's events have.
    pub fn settle(&mut self, key: SubscriberKey, now: &[Seen]) {
        let Some(view) = self.views.get_mut(key) else { return };
        for index in 0..view.parts.len() {
            let (counts, event) = (view.counts(index), view.first + index);
            let part = &mut view.parts[index];
            if let Some(begun) = part.begun.take_if(|_| !counts) {
                part.held += now.get(event).copied().unwrap_or(begun).since(&begun);
            }
        }
    }

    /// Forgets what an event of a view has counted, `now` being what the master's event has; times stay.
    pub fn reset(&mut self, key: SubscriberKey, index: usize, now: &Count) {
        let Some(part) = self.views.get_mut(key).and_then(|view| view.parts.get_mut(index)) else { return };
        part.held.count.value = 0;
        if let Some(begun) = &mut part.begun {
            begun.count.value = now.value;
        }
    }

    /// What an event of a view has seen when the master's has seen `now`; `None` where there is no such event.
    #[must_use]
    pub fn seen(&self, key: SubscriberKey, index: usize, now: &Seen) -> Option<Seen> {
        let part = self.views.get(key)?.parts.get(index)?;
        let mut seen = part.held;
        if let Some(begun) = &part.begun {
            // What was read before the view began says nothing.
            seen += now.since(begun);
        }
        Some(seen)
    }

    /// What an event of a view had counted before it began, and what the master's event had counted then: what has come since
    /// is what the view sees. `None` where it does not count.
    #[must_use]
    pub fn baseline(&self, key: SubscriberKey, index: usize) -> Option<(Count, Count)> {
        let part = self.views.get(key)?.parts.get(index)?;
        part.begun.map(|begun| (part.held.count, begun.count))
    }

    /// Whether what an event of a view has seen depends on what the master's event has.
    #[must_use]
    pub fn is_running(&self, key: SubscriberKey, index: usize) -> bool {
        self.views.get(key).and_then(|view| view.parts.get(index)).is_some_and(|part| part.begun.is_some())
    }

    /// What an event of a view does; `None` where there is no such event.
    #[must_use]
    pub fn stance(&self, key: SubscriberKey, index: usize) -> Option<SubscriberState> {
        let view = self.views.get(key)?;
        let part = view.parts.get(index)?;
        Some(match part.switch {
            EventSwitch::Off => SubscriberState::Off,
            EventSwitch::On if view.counts(index) => SubscriberState::Counts,
            EventSwitch::On => SubscriberState::Waits,
        })
    }

    /// Whether all these events of a view count already.
    #[must_use]
    pub fn counts_with(&self, key: SubscriberKey, which: Which) -> bool {
        self.views.get(key).is_some_and(|view| view.span(which).all(|index| view.counts(index)))
    }

    /// A view ends. Whatever it alone wanted is not wanted any more. It comes back to be dropped without the share's lock.
    pub fn leave(&mut self, key: SubscriberKey) -> Option<Subscriber> {
        self.disable(key, Which::All);
        self.views.remove(key)
    }
}

/// What an event of a view does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubscriberState {
    /// It is off.
    Off,
    /// It is on, but the event that leads is off.
    Waits,
    /// It counts whenever the master's does.
    Counts,
}

#[cfg(test)]
mod tests;
