//! The account of one client.
//!
//! **Invariant:** what is in here is all that a client holds; the service holds the sums.

use super::budget::Charge;
use super::counting::{Counting, Published, ReadWhen, Requester, Target};
use super::streaming::Subscription;
use crate::rights::{Grant, Membership};
use pmux::abi::Attr;
use pmux::server_api::shared::wire::{Handle, REQUEST_HANDLES};
use pmux::server_api::{EventAction, Peer};
use std::collections::BTreeMap;

const SECOND_NS: u64 = 1_000_000_000;
/// For so long a client may ask as fast as it can, having been quiet.
const BURST_NS: u64 = SECOND_NS / 4;

/// Whether a client holds the kernel's files of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holds {
    Nothing,
    Files,
}

pub(crate) struct HeldGroup<C: Counting> {
    pub(super) group: C::Group,
    pub(crate) target: Target,
    /// What it counts, the leader first.
    pub(crate) attrs: Vec<Attr>,
    pub(super) grant: Grant,
    /// The events that the client has closed by themselves, a bit for each.
    closed: u64,
    /// The entry of the page for each event; empty where it has none.
    pub(super) entries: Vec<u32>,
    /// Whether the client was given the kernel's files of it.
    pub(super) files: Holds,
}

impl<C: Counting> HeldGroup<C> {
    pub(super) fn new(group: C::Group, target: Target, attrs: Vec<Attr>, grant: Grant) -> Self {
        Self { group, target, attrs, grant, closed: 0, entries: Vec::new(), files: Holds::Nothing }
    }

    /// How many events it has that the client has not closed.
    fn len(&self) -> usize {
        self.attrs.len() - self.closed.count_ones() as usize
    }

    fn has(&self, index: usize) -> bool {
        index < self.attrs.len() && self.closed & 1 << index == 0
    }

    /// What it costs: the kernel's event of a member that was closed stays with its group.
    fn charge(&self) -> Charge {
        Charge::of_group(&self.attrs)
    }
}

pub(crate) struct HeldStream<C: Counting> {
    pub(crate) stream: C::Stream,
    /// What it asks.
    pub(crate) wanted: Subscription,
    pub(super) charge: Charge,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Closed {
    /// Events, those of a group that stays among them.
    pub(super) events: usize,
    /// What is given back by it.
    pub(super) charge: Charge,
}

pub(crate) struct Client<C: Counting> {
    pub(crate) peer: Peer,
    /// The user on whose account it is.
    pub(crate) payer: u32,
    /// Whether the configuration names a group of it.
    pub(super) membership: Membership,
    /// Empty until it has said hello.
    pub(crate) name: Option<String>,
    /// By the handle of the leader; a group has as many handles in a row as it has events.
    pub(crate) groups: BTreeMap<u64, HeldGroup<C>>,
    /// By their handles.
    pub(crate) streams: BTreeMap<u64, HeldStream<C>>,
    pub(crate) charge: Charge,
    pub(crate) requests: u64,
    page: Option<C::Page>,
    entries: EntryPool,
    pub(super) rate: Rate,
}

impl<C: Counting> Client<C> {
    pub(super) fn new((peer, payer): (Peer, u32), membership: Membership, per_second: u32, now_ns: u64) -> Self {
        let (groups, streams, charge, entries) = Default::default();
        let rate = Rate::new(per_second, now_ns);
        Self { peer, payer, membership, name: None, groups, streams, charge, requests: 0, page: None, entries, rate }
    }

    pub(super) const fn requester(&self) -> Requester<'_> {
        Requester { peer: &self.peer, membership: self.membership }
    }

    /// The leaders of the groups that only a group of the configuration allows.
    pub(super) fn granted_by_group(&self) -> Vec<Handle> {
        let granted = self.groups.iter().filter(|(_, held)| held.grant == Grant::ByGroup);
        granted.map(|(&leader, _)| Handle(leader)).collect()
    }

    pub(super) fn greet(&mut self, name: String, page: Option<C::Page>, entries: u32) {
        self.name = Some(name);
        self.entries.most = if page.is_some() { entries } else { 0 };
        self.page = page;
    }

    pub(super) fn charge(&mut self, now_ns: u64) {
        self.requests += 1;
        self.rate.charge(now_ns);
    }

    /// Takes a group in; its events have the handles from `leader` on.
    pub(super) fn take_in(&mut self, leader: u64, held: HeldGroup<C>) {
        self.charge = self.charge.plus(held.charge());
        self.groups.insert(leader, held);
    }

    pub(super) fn take_in_stream(&mut self, handle: Handle, held: HeldStream<C>) {
        self.charge = self.charge.plus(held.charge);
        self.streams.insert(handle.0, held);
    }

    pub(super) fn stream(&self, handle: Handle) -> Option<&HeldStream<C>> {
        self.streams.get(&handle.0)
    }

    pub(super) fn close_stream(&mut self, handle: Handle, counting: &mut C) -> Option<Closed> {
        let held = self.streams.remove(&handle.0)?;
        self.charge = self.charge.less(held.charge);
        counting.unsubscribe(held.stream);
        Some(Closed { events: held.charge.events as usize, charge: held.charge })
    }

    /// Gives a group entries in the page, where there are enough.
    pub(super) fn give_entries(&mut self, leader: u64) {
        let Self { groups, entries, page: Some(_), .. } = self else { return };
        if let Some(held) = groups.get_mut(&leader) {
            held.entries = entries.take(held.attrs.len()).unwrap_or_default();
        }
    }

    /// The group of a handle, and which of its events it is.
    pub(super) fn find(&mut self, handle: Handle) -> Option<(u64, usize, &mut HeldGroup<C>)> {
        let (&leader, held) = self.groups.range_mut(..=handle.0).next_back()?;
        let index = usize::try_from(handle.0 - leader).ok()?;
        held.has(index).then_some((leader, index, held))
    }

    /// Writes what a group has counted into the page.
    pub(super) fn publish(&mut self, leader: u64, counting: &mut C) {
        if let (Some(page), Some(held)) = (&mut self.page, self.groups.get_mut(&leader))
            && !held.entries.is_empty()
        {
            let what = Published { entries: &held.entries, leader: Handle(leader), read_when: ReadWhen::Now };
            counting.publish(page, &what, &mut held.group);
        }
    }

    /// Closes one event, or a group with its leader.
    pub(super) fn close(&mut self, handle: Handle, counting: &mut C) -> Option<Closed> {
        let (leader, index, held) = self.find(handle)?;
        if index > 0 {
            // The others go on, as they do in the kernel; and its event stays open with them.
            let _ = counting.control(&mut held.group, index, EventAction::Disable);
            held.closed |= 1 << index;
            return Some(Closed { events: 1, charge: Charge::default() });
        }
        let held = self.groups.remove(&leader)?;
        let closed = Closed { events: held.len(), charge: held.charge() };
        self.charge = self.charge.less(closed.charge);
        if let Some(page) = &mut self.page {
            held.entries.iter().for_each(|&entry| counting.retract(page, entry));
        }
        self.entries.give_back(&held.entries);
        counting.close(held.group);
        Some(closed)
    }

    /// Closes the next thing that it holds; answers what is given back by it.
    pub(super) fn close_one(&mut self, counting: &mut C) -> Option<Charge> {
        let closed = if let Some((&leader, _)) = self.groups.first_key_value() {
            self.close(Handle(leader), counting)
        } else {
            let (&stream, _) = self.streams.first_key_value()?;
            self.close_stream(Handle(stream), counting)
        };
        closed.map(|closed| closed.charge)
    }

    pub(super) fn open_events(&self) -> usize {
        let streams: usize = self.streams.values().map(|held| held.charge.events as usize).sum();
        self.groups.values().map(HeldGroup::len).sum::<usize>() + streams
    }

    pub(super) fn has_entries(&self) -> bool {
        self.entries.in_use > 0
    }

    /// Writes into the page what all groups have counted, in a round that was begun. Answers the leaders of those whose files tell of
    /// something else now.
    pub(super) fn refresh(&mut self, counting: &mut C) -> Vec<Handle> {
        let (Some(page), true) = (&mut self.page, self.entries.in_use > 0) else { return Vec::new() };
        let mut moved = Vec::new();
        for (&leader, held) in self.groups.iter_mut().filter(|(_, held)| !held.entries.is_empty()) {
            let what = Published { entries: &held.entries, leader: Handle(leader), read_when: ReadWhen::OnceARound };
            counting.publish(page, &what, &mut held.group);
            if held.files == Holds::Files && moved.len() < REQUEST_HANDLES && counting.has_moved(&mut held.group) {
                moved.push(Handle(leader));
            }
        }
        moved
    }

    pub(super) fn leaders_on(&self, cpu: u32) -> Vec<Handle> {
        let on = self.groups.iter().filter(|(_, held)| held.target.cpu() == Some(cpu));
        // More than fit in one message are not told one by one; the client that reads them sees it.
        on.map(|(&leader, _)| Handle(leader)).take(REQUEST_HANDLES).collect()
    }
}

#[derive(Default)]
struct EntryPool {
    most: u32,
    /// From here on none was ever used.
    fresh: u32,
    free: Vec<u32>,
    in_use: u32,
}

impl EntryPool {
    fn take(&mut self, count: usize) -> Option<Vec<u32>> {
        let wanted = u32::try_from(count).ok()?;
        if self.most.saturating_sub(self.in_use) < wanted {
            return None;
        }
        self.in_use += wanted;
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            taken.push(self.free.pop().unwrap_or_else(|| {
                self.fresh += 1;
                self.fresh - 1
            }));
        }
        Some(taken)
    }

    fn give_back(&mut self, entries: &[u32]) {
        self.in_use -= u32::try_from(entries.len()).unwrap_or_default();
        self.free.extend_from_slice(entries);
    }
}

/// How fast one may ask: each request is paid with a share of a second, and a little may be owed.
pub(super) struct Rate {
    cost_ns: u64,
    paid_until_ns: u64,
}

impl Rate {
    pub(super) fn new(per_second: u32, now_ns: u64) -> Self {
        Self { cost_ns: SECOND_NS / u64::from(per_second.max(1)), paid_until_ns: now_ns }
    }

    pub(super) fn set(&mut self, per_second: u32) {
        self.cost_ns = SECOND_NS / u64::from(per_second.max(1));
    }

    pub(super) fn charge(&mut self, now_ns: u64) {
        self.paid_until_ns = self.paid_until_ns.max(now_ns).saturating_add(self.cost_ns);
    }

    pub(super) fn ready_at(&self, now_ns: u64) -> Option<u64> {
        let ready = self.paid_until_ns.saturating_sub(BURST_NS.max(self.cost_ns));
        (ready > now_ns).then_some(ready)
    }
}
