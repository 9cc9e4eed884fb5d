//! Families as the engine sees them: founding, ending, the records that drive them.
//!
//! **Invariant:** an event is in one family at most, and a family whose root is closed is gone.

use super::{Engine, FamilyRecord, Registry, RootCount};
use crate::count::Count;
use crate::event::Lineage;
use crate::host::Host;
use crate::id::{EventId, FamilyId, GroupId, Nanos, TaskId};
use crate::inherit::{Attribution, Counting, Family, FamilyError};
use crate::lock::{LockCell, Rank};
use crate::pmu::Delegated;
use alloc::sync::Arc;
use alloc::vec::Vec;

impl<H: Host> Engine<H> {
    /// Founds a family over events that are open: `roots[i]` are the root events (one, or one per CPU) of its i-th count.
    ///
    /// Where the counters don't follow forks by themselves, a family is one group: `roots` are its events, each
    /// alone. Such a group has a family already if it inherits; the new one takes its place (with another [`Attribution`]),
    /// as long as no child was forked; on an engine that shares it must be opened in [`crate::share::SharingScope::ALONE`]. Elsewhere, events
    /// that could share take no more subscribers from then on.
    ///
    /// # Errors
    /// `None` where one of the events is closed, where there is none, where `roots` are not one group as above, where
    /// a family that has children would be replaced, and where others share one of the events already.
    pub fn create_tree(&self, root: TaskId, roots: Vec<Vec<EventId>>, attribution: Attribution) -> Option<FamilyId> {
        let first = self.record(*roots.iter().flatten().next()?)?;
        let member = |member: &crate::event::Event| member.delegates(Delegated::INHERITANCE);
        let below =
            first.fast_read().cell.look(self, |context| context.member(first.fast_read().member).map(member))?;
        let groups =
            roots.iter().flatten().map(|&event| Some(self.record(event)?.group)).collect::<Option<Vec<_>>>()?;
        for view in groups.into_iter().filter_map(|group| self.view_of(group)) {
            // Who counted what is asked of one group, not of what others see of it.
            let kept = below && view.in_turn(|life| self.keep_for_oneself(&view, life)).is_ok();
            kept.then_some(())?;
        }
        self.found(root, roots, attribution, if below { Counting::ByReports } else { Counting::ByEngine })
    }

    pub(super) fn found(
        &self,
        root: TaskId,
        roots: Vec<Vec<EventId>>,
        attribution: Attribution,
        counting: Counting,
    ) -> Option<FamilyId> {
        let turn = Arc::new(LockCell::ranked(Rank::Family, ()));
        let now = self.host.now();
        let (id, replaced, group) = self.registry.with(|registry| {
            let group = found_on(registry, &roots, counting)?;
            let family = Family::new(root, roots, attribution, counting, now);
            let id = registry.families.insert(FamilyRecord { family, turn });
            let replaced = settle_in(registry, id, group);
            Some((id, replaced, group))
        })?;
        drop(replaced);
        // From the last step on, forks see it, and see it whole.
        if let Some((cell, key)) = group.and_then(|group| self.group_cell(group)) {
            cell.step_here(self, |context, _| {
                let members = context.group(key).map(|group| group.members.clone()).unwrap_or_default();
                for (index, member) in members.into_iter().enumerate() {
                    if let Some(member) = context.member_mut(member) {
                        member.lineage = Some(Lineage { family: id, index });
                    }
                }
            });
        }
        Some(id)
    }

    /// The family of an event, where the engine counts its children: that of its master, where it shares.
    pub fn family_of(&self, event: EventId) -> Option<FamilyId> {
        let record = self.record(event)?;
        let root_count = match &record.fast_read().view {
            Some(view) => self.record(view.master)?.root_count,
            None => record.root_count,
        };
        root_count.and_then(RootCount::by_engine).map(|(family, _)| family)
    }

    /// Ends a family; the children's events are closed.
    pub fn destroy_tree(&self, family: FamilyId) {
        let Some(record) = self.registry.with(|registry| registry.families.remove(family)) else { return };
        for (_, group) in record.family.counted() {
            self.close(group);
        }
    }

    /// A record says what a relative that exits has counted.
    ///
    /// # Errors
    /// [`FamilyError::NoSuchEvent`]. Nothing happens where the family has ended.
    pub fn child_reported(
        &self,
        family: FamilyId,
        task: TaskId,
        index: usize,
        count: Count,
    ) -> Result<(), FamilyError> {
        self.with_family(family, |family| family.report(task, index, count)).unwrap_or(Ok(()))
    }

    /// A record says that a relative exited.
    ///
    /// # Errors
    /// [`FamilyError::UnknownTask`]. Nothing happens where the family has ended.
    pub fn child_exited(&self, family: FamilyId, task: TaskId, at: Nanos) -> Result<(), FamilyError> {
        let group = self.with_family(family, |family| family.exit(task, at)).unwrap_or(Ok(None))?;
        if let Some(group) = group {
            self.close(group);
        }
        Ok(())
    }

    /// Looks at a family, or takes a step of it; `None` where it has ended.
    ///
    /// `f` runs under the registry's lock: it is short, and calls neither the engine nor the host.
    pub fn with_family<R>(&self, family: FamilyId, f: impl FnOnce(&mut Family) -> R) -> Option<R> {
        self.registry.with(|registry| registry.families.get_mut(family).map(|record| f(&mut record.family)))
    }
}

/// Whether a family may be founded on these events; where the engine counts, on which group.
fn found_on<H: Host>(registry: &Registry<H>, roots: &[Vec<EventId>], counting: Counting) -> Option<Option<GroupId>> {
    for &event in roots.iter().flatten() {
        let root_count = registry.events.get(event)?.root_count;
        let before = root_count.and_then(|root_count| registry.families.get(root_count.family));
        if before.is_some_and(|record| record.family.forks() > 0) {
            return None;
        }
    }
    match counting {
        Counting::ByReports => Some(None),
        Counting::ByEngine => {
            let id = registry.events.get(*roots.first()?.first()?)?.group;
            let events = &registry.groups.get(id)?.events;
            let whole =
                events.len() == roots.len() && events.iter().zip(roots).all(|(event, roots)| [*event] == roots[..]);
            whole.then_some(Some(id))
        }
    }
}

/// Tells the root events of their family; gives back those that they leave.
fn settle_in<H: Host>(registry: &mut Registry<H>, id: FamilyId, group: Option<GroupId>) -> Vec<FamilyRecord<H>> {
    let Registry { families, events, groups, .. } = registry;
    let Some(family) = families.get(id).map(|record| &record.family) else { return Vec::new() };
    let counting = family.counting();
    let mut left = Vec::new();
    for (index, roots) in family.roots().iter().enumerate() {
        for &event in roots {
            let record = events.get_mut(event);
            let before = record.and_then(|record| record.root_count.replace(RootCount { family: id, index, counting }));
            left.extend(before.map(|root_count| root_count.family));
        }
    }
    if let Some(group) = group.and_then(|group| groups.get_mut(group)) {
        group.family = Some(id);
    }
    left.into_iter().filter_map(|family| families.remove(family)).collect()
}
