//! Slots of scarce PMUs in one context.
//!
//! What it is: the fds of all events that are attached, and which of them has which slot now. Programming looks the fd
//! up: nothing is opened or closed while events take turns.
//!
//! **Invariant:** an fd is open from the attach of its event to the detach; a lease whose slot was given to another event
//! reaches nothing.

use super::Reach;
use super::capacity_model::SlotObservation;
use super::group::{EventTotals, FdGroup};
use crate::host::Switch;
use crate::host::opener::EventOpener;
use crate::sys;
use pmux_engine::pmu::{BankError, CgroupNode, CgroupTree, Lease, Program, Slot, SlotReading};
use pmux_engine::target::{ContextKey, EventKey, Filter};
use pmux_engine::{Nanos, PmuId};
use std::collections::HashMap;

struct SlotUse {
    generation: u64,
    event: EventKey,
    filter: Filter,
    node: CgroupNode,
    now: Switch,
    /// How many were started beside it at most that can count at the same moment, itself included.
    together: u8,
    epoch: u64,
}

pub(in crate::host) struct ScarceSlots {
    opener: EventOpener,
    /// By the first event of each.
    groups: HashMap<EventKey, FdGroup>,
    group_of: HashMap<EventKey, EventKey>,
    slot_uses: HashMap<(PmuId, Slot), SlotUse>,
    /// How many slots of each PMU are started, by cgroup.
    started: HashMap<PmuId, CgroupTree<usize>>,
    buffer: Vec<u8>,
}

impl ScarceSlots {
    pub(in crate::host) fn new(opener: EventOpener) -> Self {
        let (groups, group_of, slot_uses, started) = Default::default();
        Self { opener, groups, group_of, slot_uses, started, buffer: Vec::new() }
    }

    pub(in crate::host) fn prepare(&mut self, leader: EventKey, program: &Program) -> Result<(), BankError> {
        // Where the leader is of another PMU, each event stands alone: the kernel's leader could be switched off by
        // itself, and would take the others along.
        let key = if self.groups.contains_key(&leader) { leader } else { program.event };
        let group = self.groups.entry(key).or_insert_with(|| {
            let path = program.filter.cgroup().and_then(|cgroup| self.opener.shared.cgroup_path(cgroup));
            let pmu = program.spec.pmu;
            FdGroup::new(program.filter, (pmu, self.started.entry(pmu).or_default().enter(path.as_deref())))
        });
        let added = group.add(&self.opener, program);
        match added {
            Ok(()) => {
                self.group_of.insert(program.event, key);
            }
            Err(_) => self.forget_if_empty(key),
        }
        added
    }

    fn forget_if_empty(&mut self, key: EventKey) {
        if self.groups.get(&key).is_some_and(FdGroup::is_empty)
            && let Some(FdGroup { stand: (pmu, node), .. }) = self.groups.remove(&key)
            && let Some(started) = self.started.get_mut(&pmu)
        {
            started.leave(node);
        }
    }

    pub(in crate::host) fn dismiss(&mut self, event: EventKey) {
        let Some(key) = self.group_of.remove(&event) else { return };
        if let Some(group) = self.groups.get_mut(&key) {
            group.remove(event);
            self.forget_if_empty(key);
        }
    }

    fn slot_use(&self, lease: Lease) -> Result<&SlotUse, BankError> {
        let slot_use = self.slot_uses.get(&(lease.pmu, lease.slot));
        slot_use.filter(|slot_use| slot_use.generation == lease.generation).ok_or(BankError::Other(libc::EBADF))
    }

    /// The use of a slot, with its group and what is needed beside them.
    fn parts(&mut self, lease: Lease) -> Result<(&mut SlotUse, &mut FdGroup, &EventOpener, &mut Vec<u8>), BankError> {
        const STALE: BankError = BankError::Other(libc::EBADF);
        let Self { opener, groups, group_of, slot_uses, buffer, .. } = self;
        let slot_use =
            slot_uses.get_mut(&(lease.pmu, lease.slot)).filter(|slot_use| slot_use.generation == lease.generation);
        let slot_use = slot_use.ok_or(STALE)?;
        let group = group_of.get(&slot_use.event).and_then(|key| groups.get_mut(key)).ok_or(STALE)?;
        Ok((slot_use, group, opener, buffer))
    }

    pub(in crate::host) fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        let epoch = self.opener.shared.scarce.get(lease.pmu).map_or(0, |pmu| pmu.capacity.epoch());
        let key = self.group_of.get(&program.event);
        let group = key.and_then(|key| self.groups.get_mut(key)).ok_or(BankError::Other(libc::EBADF))?;
        group.rebase(program.event, &mut self.buffer)?;
        let (generation, event, filter) = (lease.generation, program.event, program.filter);
        let node = group.stand.1;
        let slot_use = SlotUse { generation, event, filter, node, now: Switch::Off, together: 0, epoch };
        self.slot_uses.insert((lease.pmu, lease.slot), slot_use);
        Ok(())
    }

    pub(in crate::host) fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        let (slot_use, group, opener, _) = self.parts(lease)?;
        group.start(opener, slot_use.event)?;
        self.note(lease, Switch::On);
        self.count_together(lease);
        Ok(())
    }

    pub(in crate::host) fn stop(&mut self, lease: Lease) {
        self.count_together(lease);
        if let Ok((slot_use, group, opener, _)) = self.parts(lease) {
            group.stop(opener, slot_use.event);
        }
        self.note(lease, Switch::Off);
    }

    /// Whether a slot is started now.
    fn note(&mut self, lease: Lease, now: Switch) {
        let slot_use = self.slot_uses.get_mut(&(lease.pmu, lease.slot));
        let Some(slot_use) = slot_use.filter(|slot_use| slot_use.generation == lease.generation && slot_use.now != now)
        else {
            return;
        };
        slot_use.now = now;
        let started = self.started.entry(lease.pmu).or_default().at(slot_use.node);
        *started = if now == Switch::On { *started + 1 } else { started.saturating_sub(1) };
    }

    /// Notes how many slots of the PMU are started now that can count while this one does: those of one path of cgroups, the
    /// one with the most.
    fn count_together(&mut self, lease: Lease) {
        let slot_use = self.slot_uses.get_mut(&(lease.pmu, lease.slot));
        let Some(slot_use) =
            slot_use.filter(|slot_use| slot_use.now == Switch::On && slot_use.generation == lease.generation)
        else {
            return;
        };
        let mut together = 0;
        self.started.entry(lease.pmu).or_default().on_all_paths(slot_use.node, |started, end| {
            together = together.max(started.up(end).sum());
            true
        });
        slot_use.together = u8::try_from(together).unwrap_or(u8::MAX).max(slot_use.together);
    }

    pub(in crate::host) fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        self.count_together(lease);
        let (slot_use, group, _, buffer) = self.parts(lease)?;
        let totals = group.read(slot_use.event, buffer)?;
        self.learn(lease, totals);
        Ok(totals.reading())
    }

    pub(in crate::host) fn read_group(&mut self, leases: &[Lease], out: &mut [SlotReading]) -> Result<(), BankError> {
        let mut events = Vec::with_capacity(leases.len());
        for &lease in leases {
            self.count_together(lease);
            events.push(self.slot_use(lease)?.event);
        }
        let key = events.first().and_then(|event| self.group_of.get(event));
        let whole = events.iter().all(|event| self.group_of.get(event) == key);
        let Some(group) = key.filter(|_| whole).and_then(|key| self.groups.get(key)) else {
            for (&lease, out) in leases.iter().zip(out) {
                *out = self.read(lease)?;
            }
            return Ok(());
        };
        let mut seen = Vec::with_capacity(leases.len());
        group.read_all(&events, &mut self.buffer, |_, totals| seen.push(totals))?;
        for ((&lease, totals), out) in leases.iter().zip(seen).zip(out) {
            self.learn(lease, totals);
            *out = totals.reading();
        }
        Ok(())
    }

    /// Whether another user of the counters was in the way.
    fn learn(&self, lease: Lease, totals: EventTotals) {
        let (Ok(slot_use), Some(pmu)) = (self.slot_use(lease), self.opener.shared.scarce.get(lease.pmu)) else {
            return;
        };
        // A task that is on other CPUs than are meant is not counted there, and no other user is the cause.
        let follows_task = matches!(self.opener.key, ContextKey::Task(_));
        let elsewhere = follows_task && (pmu.reach == Reach::SomeCpus || matches!(slot_use.filter, Filter::OnCpu(_)));
        if !elsewhere && slot_use.together > 0 {
            let EventTotals { enabled, running, .. } = totals;
            let observation = SlotObservation { enabled, running, together: slot_use.together, epoch: slot_use.epoch };
            pmu.capacity.observe(&observation, Nanos(sys::clock::monotonic_ns()));
        }
    }

    pub(in crate::host) fn has_ended(&mut self, lease: Lease) -> bool {
        self.parts(lease).is_ok_and(|(_, group, opener, _)| group.has_ended(opener))
    }

    pub(in crate::host) fn release(&mut self, lease: Lease) {
        self.stop(lease);
        if self.slot_use(lease).is_ok() {
            self.slot_uses.remove(&(lease.pmu, lease.slot));
        }
    }
}
