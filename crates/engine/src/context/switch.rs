//! Switching: one task leaves a CPU, another one comes.
//!
//! What it is: the events of the task that leaves go off, those of the task that comes go on; where the two hold clones of
//! one family's event, the counter goes on running and only its owner changes. The CPU's own events are not looked at,
//! unless a group waits for a slot.
//!
//! **Invariant:** a switch neither allocates nor looks at other tasks, and costs as much as the two have events.
//!
//! Linux: `__perf_event_task_sched_out`, `__perf_event_task_sched_in`, `perf_event_context_sched_out` (kernel/events/core.c).

use super::cpu_pmu::{Leaving, SlotHandover};
use super::{Context, CpuContext, Ctx, EventKey, GroupKey, Job, Order, Outcome, Presence, Report, Step};
use crate::event::EventState;
use crate::id::CpuId;
use crate::pmu::{Lease, Slots};
use alloc::boxed::Box;
use core::mem;

impl CpuContext {
    /// Puts `next` in the place of the guest, who stays as [`Ctx::Prev`] until all jobs are done: see
    /// [`CpuContext::dismiss`].
    pub fn switch(&mut self, cpu: CpuId, next: Option<Box<Context>>, step: Step<'_>) {
        self.pass_turns_of_guest_on(step.now);
        self.leaving = self.guest.take();
        self.lend(Ctx::Prev, |context| context.depart(step));
        self.guest = next;
        self.lend(Ctx::Task, |context| context.appear(cpu, step));
        self.let_go();
        self.lend(Ctx::Task, |context| context.fill(step));
        self.balance(super::resched::Skip::None, step);
    }

    /// The task that has left, once all its jobs are done.
    pub fn dismiss(&mut self) -> Option<Box<Context>> {
        self.leaving.take()
    }

    /// The context itself moves to another core, to be a guest there.
    pub fn depart(&mut self) -> Option<Box<Context>> {
        self.own.take()
    }

    /// The context comes home.
    pub fn fold_child(&mut self, context: Box<Context>) {
        self.own = Some(context);
    }

    /// Stops and reads the slots that no event has taken over.
    fn let_go(&mut self) {
        let Some(own) = &mut self.own else { return };
        let mut leaving = mem::take(&mut own.cpu_pmu.leaving);
        for &Leaving { lease, member, .. } in leaving.iter().filter(|leaving| leaving.handover == SlotHandover::None) {
            own.cpu_pmu.freed = true;
            for order in [Order::Stop { lease }, Order::Read { member, lease }, Order::Release { member, lease }] {
                own.cpu_pmu.orders.push_back(Job { side: Ctx::Prev, order });
            }
        }
        leaving.clear();
        own.cpu_pmu.leaving = leaving;
    }

    /// Both owners know at once; what the register holds comes with the bank's answer. The new owner may have lost its
    /// slot again in the same step: the orders that follow say so.
    pub(super) fn prepare_hand_over(&mut self, order: Order) -> Outcome {
        let Order::HandOver { from, old, to, new } = order else { return Outcome::Nothing };
        let Some(own) = self.own.as_mut().filter(|own| own.cpu_pmu.slots.is_programmed(old)) else {
            self.program_anew(to, new);
            return Outcome::Nothing;
        };
        own.cpu_pmu.slots.programmed(new);
        if let Some(member) = self.leaving.as_mut().and_then(|context| context.members.get_mut(from)) {
            member.programmed = None;
        }
        if let Some(member) = self.guest.as_mut().and_then(|context| context.members.get_mut(to)) {
            member.programmed = Some(new);
        }
        Outcome::HandOver(old, new)
    }

    pub(super) fn complete_hand_over(
        &mut self,
        (from, old): (EventKey, Lease),
        (to, new): (EventKey, Lease),
        report: Report,
        step: Step<'_>,
    ) {
        let reading = match report {
            Report::Reading(reading) | Report::Returned(reading) => Some(reading),
            _ => None,
        };
        if let Some(context) = self.leaving.as_mut() {
            match (reading, report) {
                (Some(reading), _) => {
                    context.members.get_mut(from).into_iter().for_each(|member| member.fold(old, reading, step.now));
                }
                (None, Report::Refused(error)) => context.reading_refused(from, error, step),
                _ => {}
            }
        }
        if let Report::Reading(reading) = report {
            let member = self.guest.as_mut().and_then(|context| context.members.get_mut(to));
            member.into_iter().for_each(|member| member.take_over(new, reading));
            return;
        }
        // The slot is free, and the new owner has nothing in it yet.
        if let Some(own) = &mut self.own {
            own.cpu_pmu.slots.unprogrammed(new);
        }
        if let Some(member) = self.guest.as_mut().and_then(|context| context.members.get_mut(to))
            && member.programmed == Some(new)
        {
            member.programmed = None;
        }
        self.program_anew(to, new);
    }

    /// The ordinary way instead; the order does nothing where the slot has another owner by now.
    fn program_anew(&mut self, to: EventKey, new: Lease) {
        let Some(own) = &mut self.own else { return };
        let orders = [Order::Program { member: to, lease: new, leader: None }, Order::Start { member: to, lease: new }];
        own.cpu_pmu.orders.extend(orders.map(|order| Job { side: Ctx::Task, order }));
    }
}

impl Context {
    /// Its task leaves the CPU. Shared slots are listed rather than stopped: another event may go on with them.
    fn depart(&mut self, step: Step<'_>) {
        let mut next = self.first();
        while let Some(key) = next {
            next = self.after(key);
            self.settle_group(key, step);
            for index in 0..self.group_len(key) {
                let Some(member) = self.member_at(key, index).filter(|&key| self.is(key, EventState::Active)) else {
                    continue;
                };
                match self.slot_of(member) {
                    Some((slots @ Slots::Scarce(_), lease)) => self.list(member, slots, lease, step),
                    _ => self.deactivate(member, EventState::Inactive, step),
                }
            }
        }
        self.presence = Some(Presence::Out);
    }

    fn list(&mut self, key: EventKey, slots: Slots, lease: Lease, step: Step<'_>) {
        let Some(member) = self.members.get_mut(key) else { return };
        member.lease = None;
        let leaving = Leaving { lease, member: key, lineage: member.lineage, handover: SlotHandover::None };
        self.cpu_pmu.slots.give_back(lease, slots);
        self.cpu_pmu.leaving.push(leaving);
        self.transition(key, EventState::Inactive, step);
    }

    /// Its task comes onto a CPU: what clones of its events have counted there so far, they go on with.
    fn appear(&mut self, cpu: CpuId, step: Step<'_>) {
        let mut next = self.first();
        while let Some(key) = next {
            next = self.after(key);
            self.settle_group(key, step);
        }
        self.presence = Some(Presence::On(cpu));
        // A group that finds no room now will say so.
        for queue in &mut self.flexible {
            queue.left_out = false;
            queue.turns.begin(step.now);
        }
        let mut next = self.first().filter(|_| self.waiting > 0 && !self.cpu_pmu.leaving.is_empty());
        let mut pinned_before = false;
        while let Some(key) = next {
            next = self.after(key);
            let pinned = self.groups.get(key).is_some_and(|group| group.demand.pinned);
            // A pinned group that is on stays on: it must not overtake one that comes before it.
            let may = !pinned || !pinned_before;
            if may && !self.take_over(key, step) {
                pinned_before |= pinned && self.is_eligible(key);
            }
        }
    }

    /// Lets a group go on with the slots of its clone, all of them or none. Returns whether it is on.
    fn take_over(&mut self, key: GroupKey, step: Step<'_>) -> bool {
        let exclusive = self.groups.get(key).is_none_or(|group| group.demand.exclusive || group.scarce.is_none());
        if exclusive || !self.is_eligible(key) {
            return false;
        }
        let needs = |&key: &EventKey| self.is(key, EventState::Inactive) && self.needs_scarce(key);
        if !self.members_of(key).filter(needs).all(|key| self.clone_of(key).is_some()) {
            return false;
        }
        let mut scratch = mem::take(&mut self.cpu_pmu.scratch);
        scratch.wanted.clear();
        scratch.wanted.extend(self.members_of(key).filter(|&key| self.is(key, EventState::Inactive)));
        for &member in scratch.wanted.iter().rev() {
            match self.clone_of(member).filter(|_| self.needs_scarce(member)) {
                Some(index) => self.succeed(member, index, step),
                None => self.start(&[member], step),
            }
        }
        self.cpu_pmu.scratch = scratch;
        true
    }

    /// Which of the slots that are being left counts the same for another member of the family.
    fn clone_of(&self, key: EventKey) -> Option<usize> {
        let member = self.members.get(key)?;
        let lineage = member.lineage?;
        self.cpu_pmu.leaving.iter().position(|leaving| {
            leaving.handover == SlotHandover::None
                && leaving.lineage == Some(lineage)
                && leaving.lease.pmu == member.spec.pmu
        })
    }

    fn succeed(&mut self, key: EventKey, index: usize, step: Step<'_>) {
        let Some(leaving) = self.cpu_pmu.leaving.get_mut(index) else { return };
        leaving.handover = SlotHandover::HandedOver;
        let Leaving { lease: old, member: from, .. } = *leaving;
        let new = self.cpu_pmu.slots.take(old.pmu, old.slot, (self.cpu_pmu.side, key));
        if let Some(member) = self.members.get_mut(key) {
            member.lease = Some(new);
        }
        self.transition(key, EventState::Active, step);
        self.cpu_pmu.order(Order::HandOver { from, old, to: key, new });
    }
}
