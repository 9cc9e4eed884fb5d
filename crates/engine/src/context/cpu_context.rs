//! Cores: where contexts meet counters.
//!
//! What it is: a context that is always here (a CPU's own events; or, where a kernel below switches tasks, the events of
//! any one context), the guest that shares its counters (the task that is on the CPU), and the `CpuPmuContext` they share.
//! Read first: [`CpuContext`], then `resched` (who gets a counter) and `switch` (switching).
//!
//! **Invariant:** a slot of a scarce PMU belongs to the core's `CpuPmuContext`, a slot of any other to its context; after every step
//! no group waits for a slot that is free.
//!
//! Linux: `struct perf_cpu_context`, `cpuctx->task_ctx` (kernel/events/core.c).

use super::resched::Skip;
use super::{Batch, Context, EventKey, Job, Order, Outcome, Report, Step};
use crate::id::PmuId;
use crate::pmu::{Lease, PmuCaps, Slot, SlotMask};
use alloc::boxed::Box;
use core::mem;

/// One of a core's contexts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Ctx {
    /// The one that is always here.
    #[default]
    Cpu,
    /// The task that is on the CPU.
    Task,
    /// The task that was on it until this step.
    Prev,
}

/// A core.
#[derive(Default)]
pub struct CpuContext {
    /// `None` while it is another core's guest.
    pub(super) own: Option<Box<Context>>,
    pub(super) guest: Option<Box<Context>>,
    pub(super) leaving: Option<Box<Context>>,
}

impl CpuContext {
    /// A core with an empty context of its own.
    #[must_use]
    pub fn new() -> Self {
        Self { own: Some(Box::default()), ..Self::default() }
    }

    /// One of its contexts, to look at.
    #[must_use]
    pub fn context(&self, side: Ctx) -> Option<&Context> {
        match side {
            Ctx::Cpu => self.own.as_deref(),
            Ctx::Task => self.guest.as_deref(),
            Ctx::Prev => self.leaving.as_deref(),
        }
    }

    pub(super) fn ctx(&mut self, side: Ctx) -> &mut Option<Box<Context>> {
        match side {
            Ctx::Cpu => &mut self.own,
            Ctx::Task => &mut self.guest,
            Ctx::Prev => &mut self.leaving,
        }
    }

    /// Lends the `CpuPmuContext` to one of the contexts; `None` where that is not here.
    pub(super) fn lend<R>(&mut self, side: Ctx, f: impl FnOnce(&mut Context) -> R) -> Option<R> {
        if side == Ctx::Cpu {
            return self.own.as_deref_mut().map(f);
        }
        let mut guest = self.ctx(side).take()?;
        let Some(own) = self.own.as_deref_mut() else {
            *self.ctx(side) = Some(guest);
            return None;
        };
        mem::swap(&mut own.cpu_pmu, &mut guest.cpu_pmu);
        guest.cpu_pmu.side = side;
        let result = f(&mut guest);
        guest.cpu_pmu.side = Ctx::Cpu;
        mem::swap(&mut own.cpu_pmu, &mut guest.cpu_pmu);
        *self.ctx(side) = Some(guest);
        Some(result)
    }

    /// Takes a step of one of the contexts; `None` where that is not here.
    pub fn step<R>(&mut self, side: Ctx, step: Step<'_>, f: impl FnOnce(&mut Context, Step<'_>) -> R) -> Option<R> {
        let result = self.lend(side, |context| f(context, step))?;
        self.balance(Skip::None, step);
        Some(result)
    }

    /// Makes room for a scarce PMU, so that nothing is allocated when tasks are switched.
    pub fn ensure(&mut self, pmu: PmuId, caps: &PmuCaps) {
        if let Some(own) = &mut self.own
            && own.cpu_pmu.slots.ensure(pmu, caps)
        {
            own.cpu_pmu.reserve(1);
        }
    }

    /// Makes room for a group of so many events, for the same reason.
    pub fn reserve_group(&mut self, events: usize) {
        self.own.iter_mut().for_each(|own| own.cpu_pmu.scratch.reserve(events));
    }

    /// The next thing for a bank to do.
    pub fn next_job(&mut self) -> Option<Job> {
        let shared = self.own.as_mut().and_then(|own| own.cpu_pmu.orders.pop_front());
        shared.or_else(|| {
            [Ctx::Cpu, Ctx::Task, Ctx::Prev].into_iter().find_map(|side| {
                let order = self.ctx(side).as_mut()?.orders.pop_front()?;
                Some(Job { side, order })
            })
        })
    }

    /// Turns a job into what the bank is told, and says whose bank: slots that are scarce are in the core's own.
    pub fn prepare(&mut self, job: Job, batch: &mut Batch) -> (Ctx, Outcome) {
        if let Order::HandOver { .. } = job.order {
            return (Ctx::Cpu, self.prepare_hand_over(job.order));
        }
        let scarce = self.is_scarce(job);
        // Shared slots are those of the own context, whichever context gave the order.
        let shared = self.own.as_mut().filter(|_| scarce).map(|own| mem::take(&mut own.cpu_pmu.slots));
        let Some(context) = self.ctx(job.side) else { return (job.side, Outcome::Nothing) };
        let mut slots = shared.unwrap_or_else(|| mem::take(&mut context.slots));
        let outcome = context.prepare(job.order, &mut slots, batch);
        if !scarce {
            context.slots = slots;
        } else if let Some(own) = &mut self.own {
            own.cpu_pmu.slots = slots;
        }
        (if scarce { Ctx::Cpu } else { job.side }, outcome)
    }

    /// Whether a job concerns shared slots.
    fn is_scarce(&self, job: Job) -> bool {
        let Some(context) = self.context(job.side) else { return false };
        match job.order {
            Order::Program { lease, .. }
            | Order::Start { lease, .. }
            | Order::Stop { lease }
            | Order::Read { lease, .. }
            | Order::Modify { lease, .. }
            | Order::Release { lease, .. } => self.is_shared_slot(lease),
            Order::ReadGroup { group } => {
                context.member_at(group, 0).is_some_and(|leader| context.needs_scarce(leader))
            }
            Order::Prepare { .. } | Order::Dismiss { .. } | Order::Forget { .. } | Order::HandOver { .. } => true,
        }
    }

    fn is_shared_slot(&self, lease: Lease) -> bool {
        self.own.as_ref().is_some_and(|own| own.cpu_pmu.slots.is_scarce(lease.pmu))
    }

    /// Takes the bank's answer to a job.
    pub fn complete(&mut self, job: Job, report: Report, batch: &Batch, step: Step<'_>) {
        if let Order::HandOver { from, old, to, new } = job.order {
            self.complete_hand_over((from, old), (to, new), report, step);
        } else {
            if let (Order::Program { lease, .. }, Report::Refused(_)) = (job.order, report) {
                // The bank keeps nothing of what it refuses, whether the event is still here or not.
                let shared = self.is_shared_slot(lease);
                if let Some(own) = self.own.as_mut().filter(|_| shared) {
                    own.cpu_pmu.slots.unprogrammed(lease);
                } else if let Some(context) = self.ctx(job.side) {
                    context.slots.unprogrammed(lease);
                }
            }
            match report {
                // A group may have to leave.
                Report::Refused(_) => {
                    self.lend(job.side, |context| context.complete(job.order, report, batch, step));
                }
                _ => {
                    if let Some(context) = self.ctx(job.side) {
                        context.complete(job.order, report, batch, step);
                    }
                }
            }
        }
        self.balance(Skip::Refused, step);
    }

    /// Orders a reading of all events on a scarce PMU, before their counters can wrap twice.
    pub fn order_reading(&mut self, pmu: PmuId, step: Step<'_>) {
        self.each_tenant(pmu, self.used(pmu), |context, member| context.order_read(member, step));
    }

    /// Counters of a scarce PMU have wrapped: they are read and begin anew.
    pub fn renew(&mut self, pmu: PmuId, wrapped: SlotMask) {
        self.each_tenant(pmu, wrapped, Context::renew);
    }

    fn each_tenant(&mut self, pmu: PmuId, slots: SlotMask, mut f: impl FnMut(&mut Context, EventKey)) {
        let mut left = slots.0;
        while left != 0 {
            let slot = Slot(left.trailing_zeros());
            left &= left - 1;
            let tenant = self.own.as_ref().and_then(|own| own.cpu_pmu.slots.tenant(pmu, slot));
            if let Some((side, member)) = tenant {
                self.lend(side, |context| f(context, member));
            }
        }
    }

    /// The scarce PMU after `pmu`, or the first one, and whether its counters must be looked at, tick by tick.
    #[must_use]
    pub fn scarce_after(&self, pmu: Option<PmuId>) -> Option<(PmuId, bool)> {
        self.own.as_ref()?.cpu_pmu.slots.scarce_after(pmu)
    }

    /// The slots of a scarce PMU that are taken.
    #[must_use]
    pub fn used(&self, pmu: PmuId) -> SlotMask {
        self.own.as_ref().map_or_else(SlotMask::default, |own| own.cpu_pmu.slots.used(pmu))
    }
}
