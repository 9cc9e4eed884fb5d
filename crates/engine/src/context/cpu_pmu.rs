//! What the contexts on one core share.
//!
//! What it is: the slots of scarce PMUs, the orders that concern them, and whether the core must look which group gets a slot. A
//! core lends its [`CpuPmuContext`] to the context that takes a step: see `cpu_context`.
//!
//! **Invariant:** a context touches the `CpuPmuContext` of the core that it is on, never its own while it is another core's guest.
//!
//! Linux: `struct perf_cpu_pmu_context` (include/linux/perf_event.h).

use super::slots::SlotTable;
use super::{Ctx, EventKey, Job, Order};
use crate::event::Lineage;
use crate::id::PmuId;
use crate::pmu::{CgroupNode, CgroupPath, Delegated, Lease, PmuCaps, Slot, SlotMask};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A running slot whose task has just left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) lease: Lease,
    pub(super) member: EventKey,
    pub(super) lineage: Option<Lineage>,
    pub(super) handover: SlotHandover,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotHandover {
    /// It stops, unless another event takes it over.
    None,
    /// A clone goes on with it.
    HandedOver,
}

/// Scratch for a placement, kept so that switching does not allocate.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) wanted: Vec<EventKey>,
    pub(super) scarce: Vec<EventKey>,
    pub(super) allowed: Vec<SlotMask>,
    pub(super) slots: Vec<Slot>,
}

impl Scratch {
    /// For a group of so many events.
    pub(super) fn reserve(&mut self, events: usize) {
        self.wanted.reserve(events);
        self.scarce.reserve(events);
        self.allowed.reserve(events);
        self.slots.reserve(events);
    }
}

#[derive(Default)]
pub(super) struct CpuPmuContext {
    /// On whose behalf orders are given now.
    pub(super) side: Ctx,
    pub(super) slots: SlotTable,
    pub(super) orders: VecDeque<Job>,
    pub(super) scratch: Scratch,
    /// Whether a scarce slot has become free since the last look at who waits.
    pub(super) freed: bool,
    /// Whether a group did not fit beside what is on: then all groups must be looked at, in their order.
    pub(super) contended: bool,
    pub(super) leaving: Vec<Leaving>,
}

impl CpuPmuContext {
    pub(super) fn order(&mut self, order: Order) {
        self.orders.push_back(Job { side: self.side, order });
    }

    /// The spot of a group of that scarce PMU, by the path of its cgroup. Where slots are counters, all stand in one.
    pub(super) fn enter(&mut self, pmu: PmuId, caps: &PmuCaps, path: Option<&CgroupPath>) -> CgroupNode {
        if !caps.delegated.contains(Delegated::PLACEMENT) {
            return CgroupNode::ROOT;
        }
        if self.slots.ensure(pmu, caps) {
            self.reserve(1);
        }
        self.slots.lines(pmu).map_or(CgroupNode::ROOT, |lines| lines.tree.enter(path.map(|path| &path[..])))
    }

    /// Makes room for a PMU of `count` slots: nothing is allocated later, when tasks are switched.
    pub(super) fn reserve(&mut self, count: usize) {
        let most = self.slots.scarce_slots();
        self.leaving.reserve(most);
        // Stop, read, release of one tenant; program, start of the next.
        self.orders.reserve(most * 5);
        self.scratch.reserve(count);
    }
}
