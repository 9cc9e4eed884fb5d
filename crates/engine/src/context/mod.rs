//! Contexts: the events of one task, or of one CPU; and cores, where contexts meet counters.
//!
//! What it is: state machines without a lock, a clock or a counter. Each step changes states and leaves orders
//! ([`Order`]) for the bank in a queue; the engine carries them out, in order, and brings the results back.
//! Read first: [`Context`], then `control` (what a caller asks for), [`CpuContext`] (a context, its guest, and what they
//! share), `sched_in` (one group goes on) and `resched` (all groups are looked at, in their order; where cgroups need not all
//! compete, `lines` says which fits and `round_robin` in which order they are tried).
//!
//! **Invariant:** no step calls the host, and none scans more than the groups that it is asked about, except where scarce
//! slots are contended for; a switch looks at the events of the two tasks only.
//!
//! Linux: `struct perf_event_context`, `list_add_event`, `list_del_event` (kernel/events/core.c).

mod control;
mod cpu_context;
mod cpu_pmu;
mod group_list;
mod lines;
mod modify;
mod order;
mod resched;
mod round_robin;
mod sched_in;
mod slots;
mod switch;
#[cfg(test)]
mod tests;
mod turns;

pub use crate::target::{ContextKey, EventKey, Filter, GroupKey, Presence};
pub use control::Gone;
pub use cpu_context::{CpuContext, Ctx};
pub use order::{Batch, Job, Order, Outcome, Report};

use crate::arena::Arena;
use crate::error::OpenError;
use crate::event::{Clock, Event, EventState, NewEvent};
use crate::id::{Nanos, PmuId};
use crate::pmu::{CgroupNode, CgroupPath, Delegated, PmuTable, Slots};
use crate::target::{Demand, EventKeyTag, GroupKeyTag};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cpu_pmu::CpuPmuContext;
use group_list::{GroupLinks, GroupList};
use slots::SlotTable;

/// A group inside its context.
#[derive(Clone, Debug)]
pub struct GroupState {
    /// The leader first.
    pub members: Vec<EventKey>,
    /// What the group demands.
    pub demand: Demand,
    /// When it counts.
    pub filter: Filter,
    scarce: Option<PmuId>,
    /// How many of its members are enabled but not on a counter.
    waiting: usize,
    /// What the look at all groups that is under way has found.
    placement: Placement,
    links: GroupLinks,
    /// Whether the order of the turn names it.
    ordered: bool,
    /// Where it stands among the cgroups, on a PMU whose slots are names only.
    node: CgroupNode,
}

/// What a look at all groups has found for one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Placement {
    /// It has no part in it.
    None,
    /// It fits.
    Kept,
    /// It fits, with another slot than it has.
    Moved,
    /// It would go on, but there is no room.
    Lacking,
}

impl GroupState {
    pub(crate) fn new(demand: Demand, filter: Filter, scarce: Option<PmuId>) -> Self {
        Self {
            members: Vec::new(),
            demand,
            filter,
            scarce,
            waiting: 0,
            placement: Placement::None,
            links: GroupLinks::default(),
            ordered: false,
            node: CgroupNode::ROOT,
        }
    }
}

/// What a step may know of the world.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// The time.
    pub now: Nanos,
    /// What fits together on which PMU.
    pub pmus: &'a dyn PmuTable,
}

/// The flexible groups of a context that need one scarce PMU, or none.
///
/// Groups of two scarce PMUs have nothing to do with one another: each PMU takes turns by itself.
#[derive(Debug)]
struct FlexibleGroups {
    scarce: Option<PmuId>,
    list: GroupList,
    /// Where not all compete for the same slots: who is tried first in this turn. Groups that came later follow in the list's order.
    order: Vec<GroupKey>,
    /// Whether a group found no room when all were looked at last: then turns are taken.
    left_out: bool,
    /// Whether the group whose turn it is has had its chance since its turn began.
    had_chance: bool,
    /// Of a task: who is first, its own groups or those of the CPU that it is on.
    turns: Turns,
}

/// Whose flexible groups are tried first on a PMU that the CPU's own events and a task's compete for.
///
/// Every task has an account of its own and takes it along: where a CPU had one for all, two tasks could come in such a
/// rhythm that one of them is always second.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    first: Ctx,
    /// For how much longer the CPU's were first than the task's, in nanoseconds, as long as a group was left out.
    lead_ns: i64,
    since: Nanos,
}

impl Turns {
    /// The task has come, or no group had to wait so far.
    fn begin(&mut self, now: Nanos) {
        self.since = now;
    }

    /// At a tick, or as the task leaves: the side that was first for less time so far is first from now on.
    fn decide(&mut self, now: Nanos) {
        let passed = i64::try_from(now.since(self.since).0).unwrap_or(i64::MAX);
        self.since = now;
        self.lead_ns = match self.first {
            Ctx::Cpu => self.lead_ns.saturating_add(passed),
            Ctx::Task | Ctx::Prev => self.lead_ns.saturating_sub(passed),
        };
        self.first = match (self.lead_ns, self.first) {
            (1.., _) | (0, Ctx::Cpu) => Ctx::Task,
            _ => Ctx::Cpu,
        };
    }
}

/// The events of one task or one CPU.
#[derive(Default)]
pub struct Context {
    /// `None` until it has been told.
    presence: Option<Presence>,
    members: Arena<Event, EventKeyTag>,
    groups: Arena<GroupState, GroupKeyTag>,
    pinned: GroupList,
    flexible: Vec<FlexibleGroups>,
    /// How many events are enabled but not on a counter; where there are none, no step looks for them.
    waiting: usize,
    /// The slots that are plenty: they stay with it wherever it goes.
    slots: SlotTable,
    orders: VecDeque<Order>,
    /// Its own [`CpuPmuContext`], or that of the core that it is a guest of, while it takes a step there.
    cpu_pmu: CpuPmuContext,
}

impl Context {
    /// An empty context. Until it is told otherwise, it is not there.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One of its events.
    #[must_use]
    pub fn member(&self, key: EventKey) -> Option<&Event> {
        self.members.get(key)
    }

    pub(crate) fn member_mut(&mut self, key: EventKey) -> Option<&mut Event> {
        self.members.get_mut(key)
    }

    /// One of its groups.
    #[must_use]
    pub fn group(&self, key: GroupKey) -> Option<&GroupState> {
        self.groups.get(key)
    }

    /// All groups, pinned ones first, then PMU by PMU, in the order in which they were attached.
    pub fn groups(&self) -> impl Iterator<Item = (GroupKey, &GroupState)> {
        core::iter::successors(self.first(), |&key| self.after(key))
            .filter_map(|key| Some((key, self.groups.get(key)?)))
    }

    fn first(&self) -> Option<GroupKey> {
        self.pinned.first.or_else(|| self.first_of(0))
    }

    /// The first flexible group of the queue of that index, or of those behind it.
    fn first_of(&self, queue: usize) -> Option<GroupKey> {
        self.flexible.get(queue..)?.iter().find_map(|queue| queue.list.first)
    }

    fn queue(&self, scarce: Option<PmuId>) -> usize {
        self.flexible.iter().position(|queue| queue.scarce == scarce).unwrap_or(self.flexible.len())
    }

    fn group_list(&mut self, demand: Demand, scarce: Option<PmuId>) -> &mut GroupList {
        if demand.pinned {
            return &mut self.pinned;
        }
        let index = self.queue(scarce);
        if index == self.flexible.len() {
            let (list, turns) = (GroupList::default(), Turns::default());
            self.flexible.reserve_exact(1);
            self.flexible.push(FlexibleGroups {
                scarce,
                list,
                order: Vec::new(),
                left_out: false,
                had_chance: false,
                turns,
            });
        }
        &mut self.flexible[index].list
    }

    fn after(&self, key: GroupKey) -> Option<GroupKey> {
        let group = self.groups.get(key)?;
        group.links.after.or_else(|| match group.demand.pinned {
            true => self.first_of(0),
            false => self.first_of(self.queue(group.scarce) + 1),
        })
    }

    /// A walk over members that may be changed on the way: the `index`-th one.
    fn member_at(&self, key: GroupKey, index: usize) -> Option<EventKey> {
        self.groups.get(key)?.members.get(index).copied()
    }

    fn members_of(&self, key: GroupKey) -> impl Iterator<Item = EventKey> {
        self.groups.get(key).map(|group| &group.members[..]).unwrap_or_default().iter().copied()
    }

    fn group_len(&self, key: GroupKey) -> usize {
        self.groups.get(key).map_or(0, |group| group.members.len())
    }

    /// Whether no event is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether it is there; `None` until it has been told.
    #[must_use]
    pub const fn presence(&self) -> Option<Presence> {
        self.presence
    }

    /// Takes a group in, off. Where slots are plenty they are taken and programmed now, and held until it is detached. Of a
    /// cgroup, `path` says where that is, as far as is known.
    pub fn attach(
        &mut self,
        demand: Demand,
        new: &[NewEvent],
        (filter, path): (Filter, Option<&CgroupPath>),
        step: Step<'_>,
    ) -> GroupKey {
        let scarce = new.iter().find(|new| matches!(new.caps.slots, Slots::Scarce(_)));
        let node = scarce.map_or(CgroupNode::ROOT, |new| self.cpu_pmu.enter(new.spec.pmu, &new.caps, path));
        let scarce = scarce.map(|new| new.spec.pmu);
        let group = self.groups.insert(GroupState { node, ..GroupState::new(demand, filter, scarce) });
        let members: Vec<_> =
            new.iter().map(|new| self.members.insert(Event::new(new, group, filter, step.now))).collect();
        let leader = members.first().copied();
        for &key in &members {
            let Some(member) = self.members.get_mut(key) else { continue };
            if member.caps().slots == Slots::Plenty {
                let lease = self.slots.take_any(member.spec.pmu);
                member.lease = Some(lease);
                self.orders.push_back(Order::Program { member: key, lease, leader: leader.filter(|&l| l != key) });
            } else if member.delegates(Delegated::PREPARATION) {
                self.cpu_pmu.order(Order::Prepare { member: key });
            }
        }
        // A task leaves one CPU and comes to another without allocating: each of its events is programmed, started, stopped and read.
        let most = self.members.len() * 4;
        self.orders.reserve(most.saturating_sub(self.orders.len()));
        if let Some(state) = self.groups.get_mut(group) {
            state.members = members;
        }
        let mut list = *self.group_list(demand, scarce);
        list.push(&mut self.groups, group);
        *self.group_list(demand, scarce) = list;
        group
    }

    /// What went wrong while the group was programmed: the first event that was refused.
    #[must_use]
    pub fn refusal(&self, group: GroupKey) -> Option<OpenError> {
        let group = self.groups.get(group)?;
        group
            .members
            .iter()
            .enumerate()
            .find_map(|(index, &key)| self.members.get(key)?.fault().map(|error| OpenError::Bank { index, error }))
    }

    /// Whether no event of a group counts now, nor holds a scarce slot.
    pub(crate) fn is_off_counters(&self, key: GroupKey) -> bool {
        self.members_of(key).filter_map(|key| self.members.get(key)).all(|member| {
            let scarce = matches!(member.caps().slots, Slots::Scarce(_));
            member.state() != EventState::Active && !(scarce && member.lease.is_some())
        })
    }

    /// Takes a group out and gives its slots back. O(its events), but for others that wait for those slots.
    pub fn detach(&mut self, key: GroupKey, step: Step<'_>) {
        // The leader goes last: a bank that keeps groups together would otherwise break the group up first.
        for index in (0..self.group_len(key)).rev() {
            let Some(key) = self.member_at(key, index) else { continue };
            let scarce = |member: &Event| matches!(member.caps().slots, Slots::Scarce(_));
            self.cpu_pmu.freed |= self.members.get(key).is_some_and(|member| member.lease.is_some() && scarce(member));
            // No caller asks for its count any more, and releasing stops it.
            self.transition(key, EventState::Off, step);
            self.surrender(key);
            self.dismiss(key);
            self.members.remove(key);
        }
        let Some(group) = self.groups.remove(key) else { return };
        if let Some(lines) = group.scarce.and_then(|pmu| self.cpu_pmu.slots.lines(pmu)) {
            lines.tree.leave(group.node);
        }
        let mut list = *self.group_list(group.demand, group.scarce);
        list.unlink(&mut self.groups, key, group.links);
        *self.group_list(group.demand, group.scarce) = list;
    }

    /// Gives back the slot that an event holds while it does not count.
    fn surrender(&mut self, key: EventKey) {
        let Some(member) = self.members.get_mut(key) else { return };
        if let Some(lease) = member.lease.take() {
            let slots = member.caps().slots;
            self.table(slots).give_back(lease, slots);
            self.order(slots, Order::Release { member: key, lease });
        }
    }

    /// The event will not be given a slot any more.
    fn dismiss(&mut self, key: EventKey) {
        let Some(member) = self.members.get(key) else { return };
        if matches!(member.caps().slots, Slots::Scarce(_)) && member.delegates(Delegated::PREPARATION) {
            self.cpu_pmu.order(Order::Dismiss { member: key });
        }
    }

    fn table(&mut self, slots: Slots) -> &mut SlotTable {
        match slots {
            Slots::Scarce(_) => &mut self.cpu_pmu.slots,
            Slots::Plenty => &mut self.slots,
        }
    }

    /// Leaves an order that concerns slots of that kind.
    fn order(&mut self, slots: Slots, order: Order) {
        match slots {
            Slots::Scarce(_) => self.cpu_pmu.order(order),
            Slots::Plenty => self.orders.push_back(order),
        }
    }

    fn is_there(&self) -> bool {
        self.presence.is_some_and(|presence| presence != Presence::Out)
    }

    fn is_leader(&self, key: EventKey, group: GroupKey) -> bool {
        self.member_at(group, 0) == Some(key)
    }

    /// Whether time passes for the events of a group.
    fn clock(&self, group: GroupKey) -> Clock {
        let leader = self.member_at(group, 0).and_then(|leader| self.members.get(leader));
        let runs = self.is_there() && leader.is_some_and(|leader| leader.state().ages());
        if runs { Clock::Runs } else { Clock::Stands }
    }

    fn settle(&mut self, key: EventKey, step: Step<'_>) {
        let Some(clock) = self.members.get(key).map(|member| self.clock(member.group)) else { return };
        if let Some(member) = self.members.get_mut(key) {
            member.settle(step.now, clock);
        }
    }

    fn settle_group(&mut self, key: GroupKey, step: Step<'_>) {
        let clock = self.clock(key);
        for &member in self.groups.get(key).map(|group| &group.members[..]).unwrap_or_default() {
            if let Some(member) = self.members.get_mut(member) {
                member.settle(step.now, clock);
            }
        }
    }

    /// Every change of an event's state.
    fn transition(&mut self, key: EventKey, next: EventState, step: Step<'_>) {
        let Some(member) = self.members.get(key) else { return };
        let (group, before) = (member.group, member.state());
        if before.ages() != next.ages() && self.is_leader(key, group) {
            // Its siblings age while it does.
            self.settle_group(group, step);
        } else {
            self.settle(key, step);
        }
        if let Some(member) = self.members.get_mut(key) {
            member.set_state(next);
        }
        let (waited, waits) = (before == EventState::Inactive, next == EventState::Inactive);
        self.waiting = self.waiting + usize::from(waits) - usize::from(waited);
        if let Some(group) = self.groups.get_mut(group) {
            group.waiting = group.waiting + usize::from(waits) - usize::from(waited);
        }
    }
}
