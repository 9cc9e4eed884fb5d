//! What a caller asks of a context: enable, disable, reset, read; and what happens to its task or CPU.
//!
//! **Invariant:** states change here and in `sched_in` only, and always through [`Context::transition`].
//!
//! Linux: `__perf_event_enable`, `__perf_event_disable`, `perf_event_set_state` (kernel/events/core.c).

use super::{Context, EventKey, GroupKey, Order, Presence, Step};
use crate::event::{Event, EventState, OnExec};
use crate::pmu::Delegated;
use pmux_abi::attr::AttrFlags;

/// What a context belonged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// A task that exited. Counters that follow forks by themselves still gather what its children do.
    Task,
    /// A CPU that went offline, or a program that no client may look into: every slot is given back.
    Everything,
}

impl Context {
    /// Its task (or CPU) is there, or is not there any more. Those whose events count here go on, the others go off.
    pub fn arrive(&mut self, presence: Presence, step: Step<'_>) {
        let before = self.presence.unwrap_or(Presence::Out);
        let (was_there, is_there) = (before != Presence::Out, presence != Presence::Out);
        let mut next = self.first().filter(|_| before != presence);
        while let Some(key) = next {
            next = self.after(key);
            if was_there != is_there {
                // What has passed belongs to where it was.
                self.settle_group(key, step);
            }
            if self.groups.get(key).is_some_and(|group| !group.filter.passes(presence)) {
                self.displace(key, step);
            }
        }
        self.presence = Some(presence);
        self.cpu_pmu.freed = false;
        if is_there && before != presence {
            self.fill(step);
        }
    }

    /// Says for the first time whether it is there; a switch that came first knows better.
    pub fn meet(&mut self, presence: Presence, step: Step<'_>) {
        if self.presence.is_none() {
            self.arrive(presence, step);
        }
    }

    /// Enables one event. A member of a group counts only while the group's leader is enabled too.
    ///
    /// A leader in error takes those of its group along that are in error as well: they failed as one.
    pub fn enable(&mut self, key: EventKey, step: Step<'_>) {
        let Some(group) = self.members.get(key).map(|member| member.group) else { return };
        if self.is_leader(key, group) && self.is(key, EventState::Error) {
            for index in (1..self.group_len(group)).rev() {
                if let Some(sibling) = self.member_at(group, index)
                    && self.is(sibling, EventState::Error)
                {
                    self.enable_state(sibling, step);
                }
            }
        }
        self.enable_state(key, step);
        self.fill_group(group, step);
    }

    /// Enables a whole group, the leader last, so that it starts as one.
    pub fn enable_group(&mut self, key: GroupKey, step: Step<'_>) {
        for index in (0..self.group_len(key)).rev() {
            if let Some(member) = self.member_at(key, index) {
                self.enable_state(member, step);
            }
        }
        self.fill_group(key, step);
    }

    fn enable_state(&mut self, key: EventKey, step: Step<'_>) {
        if self.members.get(key).is_some_and(|member| matches!(member.state(), EventState::Off | EventState::Error)) {
            self.transition(key, EventState::Inactive, step);
        }
    }

    /// Disables one event; with a leader, its whole group stops.
    pub fn disable(&mut self, key: EventKey, step: Step<'_>) {
        let Some(group) = self.members.get(key).map(|member| member.group) else { return };
        if self.is_leader(key, group) {
            self.displace(group, step);
        }
        self.deactivate(key, EventState::Off, step);
        // What is left of a group that waits may find room.
        self.fill_group(group, step);
    }

    /// Disables a whole group.
    pub fn disable_group(&mut self, key: GroupKey, step: Step<'_>) {
        for index in 0..self.group_len(key) {
            if let Some(member) = self.member_at(key, index) {
                self.deactivate(member, EventState::Off, step);
            }
        }
    }

    /// The context's task has executed another program: events that wait for it are enabled.
    pub fn exec(&mut self, step: Step<'_>) {
        let mut next = self.first();
        while let Some(group) = next {
            next = self.after(group);
            for index in (0..self.group_len(group)).rev() {
                if let Some(key) = self.member_at(group, index) {
                    self.exec_member(key, step);
                }
            }
            self.fill_group(group, step);
        }
    }

    /// Linux: `perf_event_enable_on_exec`, `perf_event_remove_on_exec` (kernel/events/core.c).
    fn exec_member(&mut self, key: EventKey, step: Step<'_>) {
        let removes = |member: &Event| {
            member.spec.attr.flags.contains(AttrFlags::REMOVE_ON_EXEC) && !member.delegates(Delegated::ENABLE_ON_EXEC)
        };
        if self.members.get(key).is_some_and(removes) {
            return self.retire_member(key, Gone::Everything, step);
        }
        let Some(member) = self.members.get_mut(key).filter(|member| member.on_exec == OnExec::Enable) else { return };
        member.on_exec = OnExec::Keep;
        if member.delegates(Delegated::ENABLE_ON_EXEC) && member.state() == EventState::Off {
            // The bank has started it already.
            self.transition(key, EventState::Active, step);
        } else {
            self.enable_state(key, step);
        }
    }

    /// Forgets an event's count, but not its times.
    pub fn reset(&mut self, key: EventKey, step: Step<'_>) {
        // What is in the register so far must be folded first, or it would come back with the next reading.
        self.order_read(key, step);
        if let Some(slots) = self.members.get(key).map(|member| member.caps().slots) {
            self.order(slots, Order::Forget { member: key });
        }
    }

    /// Forgets the counts of a whole group.
    pub fn reset_group(&mut self, key: GroupKey, step: Step<'_>) {
        for index in 0..self.group_len(key) {
            if let Some(member) = self.member_at(key, index) {
                self.reset(member, step);
            }
        }
    }

    /// Orders a reading of one event.
    pub fn order_read(&mut self, key: EventKey, step: Step<'_>) {
        self.settle(key, step);
        let held = self.members.get(key).and_then(|member| Some((member.caps().slots, member.lease?)));
        if let Some((slots, lease)) = held {
            self.order(slots, Order::Read { member: key, lease });
        }
    }

    /// Orders a reading of a whole group at one moment.
    pub fn order_read_group(&mut self, key: GroupKey, step: Step<'_>) {
        let Some(slots) = self.member_at(key, 0).and_then(|leader| Some(self.members.get(leader)?.caps().slots)) else {
            return;
        };
        let kind = |key| self.members.get(key).map(|member| member.caps().slots);
        let mixed = self.members_of(key).any(|key| kind(key) != Some(slots));
        if self.group_len(key) == 1 || mixed {
            // Those whose slots are scarce and the others may be in different banks.
            for index in 0..self.group_len(key) {
                if let Some(member) = self.member_at(key, index) {
                    self.order_read(member, step);
                }
            }
        } else {
            self.settle_group(key, step);
            self.order(slots, Order::ReadGroup { group: key });
        }
    }

    /// What it belonged to is gone: nothing counts any more, and slots that hold nothing of others are given back.
    pub fn retire(&mut self, gone: Gone, step: Step<'_>) {
        let mut next = self.first();
        while let Some(group) = next {
            next = self.after(group);
            self.retire_group(group, gone, step);
        }
    }

    /// The same of one group: nothing of it counts from now on, whatever is asked of it.
    pub fn retire_group(&mut self, group: GroupKey, gone: Gone, step: Step<'_>) {
        for index in (0..self.group_len(group)).rev() {
            let Some(key) = self.member_at(group, index) else { continue };
            self.retire_member(key, gone, step);
        }
    }

    fn retire_member(&mut self, key: EventKey, gone: Gone, step: Step<'_>) {
        let Some(member) = self.members.get(key) else { return };
        let follows = gone == Gone::Task && member.delegates(Delegated::INHERITANCE);
        if follows || member.state() != EventState::Active {
            self.order_read(key, step);
        }
        if follows {
            return;
        }
        self.deactivate(key, EventState::Dead, step);
        self.surrender(key);
        self.dismiss(key);
    }
}
