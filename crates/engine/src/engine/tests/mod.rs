//! The engine on a machine whose truth is known.
#![allow(clippy::unwrap_used)]

mod allocations;
mod audience;
mod claims;
mod credentials;
mod event_sets;
mod exhaustive;
mod families;
mod fast_read;
mod interrupted;
mod lifecycle;
mod many;
mod model;
mod random;
mod recovery;
mod remote_calls;
mod rings;
mod sets;
mod shared;
mod sharing;
mod threads;

use super::{Census, SetRequest};
use crate::inherit::FamilyError;
use crate::system_wide::{Absent, SetScope};
use crate::target::ContextKey;
use crate::testing::Machine;
use crate::testing::locks::LockKind;
use crate::{Count, CpuId, Engine, EventId, FamilyId, GroupSpec, LockCell, Nanos, Opened, Target, TaskId};
use alloc::vec::Vec;

fn count(value: u64, enabled: u64, running: u64) -> Count {
    Count { value, enabled: Nanos(enabled), running: Nanos(running) }
}

/// Every event that has an id, those of children and of sets included.
fn open_events(engine: &Engine<Machine>) -> Vec<EventId> {
    engine.registry.with(|registry| registry.events.iter().map(|(id, _)| id).collect())
}

/// How many claims the ledger has.
fn held(engine: &Engine<Machine>) -> usize {
    engine.ledger().map_or(0, |ledger| ledger.len())
}

/// These groups on each of these CPUs; those that are offline are awaited.
fn everywhere(groups: Vec<GroupSpec>, cpus: core::ops::Range<u32>) -> SetRequest {
    SetRequest { groups, scope: SetScope::Everything, mask: cpus.map(CpuId).collect(), absent: Absent::Await }
}

/// Closes these groups, after which nothing may be left.
fn close_all<'a>(engine: &Engine<Machine>, groups: impl IntoIterator<Item = &'a Opened>) {
    groups.into_iter().for_each(|opened| engine.close(opened.group));
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}

impl<K: LockKind> Engine<Machine<K>> {
    fn open_enabled(&self, spec: &GroupSpec, target: Target) -> Opened {
        let opened = self.open(spec, target).unwrap();
        self.enable_group(opened.group).unwrap();
        opened
    }

    /// Enables these groups, one after the other.
    fn enable_groups<'a>(&self, groups: impl IntoIterator<Item = &'a Opened>) {
        groups.into_iter().for_each(|opened| self.enable_group(opened.group).unwrap());
    }

    /// [`Engine::switch`] for a task that comes, by its id.
    fn switch_in(&self, task: TaskId, cpu: CpuId) {
        if let Some(cell) = self.context(ContextKey::Task(task)) {
            self.switch_cells(cpu, None, Some(&cell));
        }
    }

    /// [`Engine::switch`] for a task that leaves its CPU, by its id.
    fn switch_out(&self, task: TaskId) {
        let Some(cell) = self.context(ContextKey::Task(task)) else { return };
        // Where each context is on a core of its own, any CPU will do.
        let cpu = cell.place.with(|place| place.away).unwrap_or(CpuId(0));
        self.switch_cells(cpu, Some(&cell), None);
    }
}

impl Engine<Machine> {
    /// A record says that a relative forked.
    fn child_forked(&self, family: FamilyId, parent: TaskId, child: TaskId, at: Nanos) -> Result<(), FamilyError> {
        self.with_family(family, |family| family.fork(parent, child, at).map(|_| ())).unwrap_or(Ok(()))
    }

    /// The family of which this is a root event.
    fn registry_family(&self, event: EventId) -> FamilyId {
        self.record(event).and_then(|record| record.root_count).unwrap().family
    }
}
