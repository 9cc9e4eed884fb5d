//! Reading: events, groups, families.
//!
//! What it is: *exact* readings, which ask the counters, and *cached* ones, which don't. Where the engine counts
//! children, a root's reading is its own count, what exited children have reported, and an exact reading of each live
//! child: O(1) in the children that have exited.
//!
//! **Invariant:** a child's count is met once: in the child as long as it lives, or in what was reported.
//!
//! Linux: `perf_read`, `perf_read_group`, `perf_event_read_value` (kernel/events/core.c).

use super::ctx_lock::{ContextCell, Purpose};
use super::fast_read::{FastRead, GroupHandle};
use super::{Engine, EventRecord, Registry};
use crate::context::{Context, Step};
use crate::count::Count;
use crate::error::ReadError;
use crate::host::Host;
use crate::id::{EventId, FamilyId, GroupId, Nanos};
use crate::inherit::{Counting, Family, FamilyTaskId};
use crate::lock::LockCell;
use crate::target::{EventKey, GroupKey};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The counts of a group, the leader first, as near to one moment as the counters allow.
pub type GroupReading = Vec<Result<Count, ReadError>>;

/// What a family counted, for one of its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FamilyTally {
    /// Everything: own, retired, and live children as far as they can be read.
    pub total: Count,
    /// The root task's own part. Where children live and report only at their exit, their part is still in here.
    pub own: Count,
    /// What children that exited have reported.
    pub retired: Count,
}

#[derive(Clone, Copy, Default)]
struct Children {
    retired: Count,
    live: Count,
}

/// A live child's group.
struct Child<H: Host> {
    task: FamilyTaskId,
    cell: Arc<ContextCell<H>>,
    group: GroupKey,
}

impl<H: Host> Engine<H> {
    /// Reads an event *exactly*: asks its counter now. Where the engine counts its children, they are counted in.
    ///
    /// # Errors
    /// [`ReadError::Closed`]; [`ReadError::Error`] where the event is in error or its counter refuses.
    pub fn read(&self, event: EventId) -> Result<Count, ReadError> {
        let record = self.record(event).ok_or(ReadError::Closed)?;
        self.read_fast(record.fast_read()).unwrap_or_else(|| self.read_through_context(event))
    }

    /// [`Engine::read`] for a caller that does so often: one event of a group, by its number.
    ///
    /// # Errors
    /// As [`Engine::read`]; [`ReadError::Closed`] also where the group has no such event.
    #[inline]
    pub fn read_by(&self, handle: &GroupHandle<H>, index: usize) -> Result<Count, ReadError> {
        let count = handle.fast_reads.get(index).and_then(|fast_read| self.read_fast(fast_read));
        // What was done to the event may have given it another fast read, or none.
        count.unwrap_or_else(|| self.read(self.event_of(handle, index)?))
    }

    #[cold]
    pub(super) fn read_through_context(&self, event: EventId) -> Result<Count, ReadError> {
        let own = |record: &EventRecord<H>| self.read_counted(record, record.root_count);
        let shared = |record: &EventRecord<H>, view: &_| self.read_view(record, view);
        self.ask(event, own, shared)
    }

    /// Reads what counts for an event; `root` says which count of which family it is.
    pub(super) fn read_counted(
        &self,
        record: &EventRecord<H>,
        root: Option<super::RootCount>,
    ) -> Result<Count, ReadError> {
        let mut count = self.read_member(record.fast_read())?;
        if let Some((family, index)) = root.and_then(super::RootCount::by_engine) {
            let children = self.children_of_event(family, index);
            count += children.retired;
            count += children.live;
        }
        Ok(count)
    }

    /// Reads an event *from memory*: the count of the last exact reading, without children, and when that was.
    ///
    /// Of an event that shares it is the last exact reading of any event that shares it, with the children as they were read last.
    ///
    /// # Errors
    /// [`ReadError::Closed`].
    pub fn read_cached(&self, event: EventId) -> Result<(Count, Nanos), ReadError> {
        let own = |record: &EventRecord<H>| self.cached_in_memory(record.fast_read());
        self.ask(event, own, |record, _| own(record))
    }

    fn cached_in_memory(&self, fast_read: &FastRead<H>) -> Result<(Count, Nanos), ReadError> {
        match &fast_read.view {
            None => self.look_at_last(fast_read, |_, last| (last.count, last.at)).ok_or(ReadError::Closed),
            Some(view) => self.seen_in_memory(fast_read, view).map(|(seen, at)| (seen.count, at)),
        }
    }

    /// [`Engine::read_cached`] for a caller that does so often.
    ///
    /// # Errors
    /// As [`Engine::read_cached`].
    pub fn read_cached_by(&self, handle: &GroupHandle<H>, index: usize) -> Result<(Count, Nanos), ReadError> {
        let cached = handle.fast_reads.get(index).map(|fast_read| self.cached_in_memory(fast_read));
        match cached {
            Some(Ok(cached)) => Ok(cached),
            _ => self.read_cached(self.event_of(handle, index)?),
        }
    }

    /// Reads a whole group at one moment; then its live children, where the engine counts them.
    ///
    /// # Errors
    /// [`ReadError::Closed`]; each event has its own result.
    pub fn read_group(&self, group: GroupId) -> Result<GroupReading, ReadError> {
        let mut counts = GroupReading::new();
        self.read_group_into(group, &mut counts)?;
        Ok(counts)
    }

    /// As [`Engine::read_group`], added to the end of `out`: does not allocate once `out` is large enough, unless children
    /// live.
    ///
    /// # Errors
    /// As [`Engine::read_group`]; `out` is then as it was.
    pub fn read_group_into(&self, group: GroupId, out: &mut GroupReading) -> Result<(), ReadError> {
        let fast_reads =
            self.registry.with(|registry| registry.groups.get(group).map(|record| Arc::clone(&record.fast_reads)));
        if self.read_fast_group(&fast_reads.ok_or(ReadError::Closed)?, out) {
            return Ok(());
        }
        self.read_group_through_context(group, out)
    }

    /// [`Engine::read_group_into`] for a caller that does so often.
    ///
    /// # Errors
    /// As [`Engine::read_group`].
    pub fn read_group_by(&self, handle: &GroupHandle<H>, out: &mut GroupReading) -> Result<(), ReadError> {
        match self.read_fast_group(&handle.fast_reads, out) {
            true => Ok(()),
            false => self.read_group_into(handle.id(), out),
        }
    }

    #[cold]
    fn read_group_through_context(&self, group: GroupId, out: &mut GroupReading) -> Result<(), ReadError> {
        let (fast_reads, key, family, view) = self
            .registry
            .with(|registry| {
                let record = registry.groups.get(group)?;
                Some((Arc::clone(&record.fast_reads), record.group, record.family, record.view.clone()))
            })
            .ok_or(ReadError::Closed)?;
        if let Some(view) = view {
            return self.read_group_view(&view, &fast_reads, out);
        }
        let before = out.len();
        self.read_own_group(&fast_reads, key, out)?;
        if let Some(family) = family {
            let own = out.get_mut(before..).unwrap_or_default();
            self.with_children_of_group(family, own.len(), |index, children| {
                if let Some(Ok(count)) = own.get_mut(index) {
                    *count += children.retired;
                    *count += children.live;
                }
            });
        }
        Ok(())
    }

    /// Reads a family: one tally per event.
    ///
    /// # Errors
    /// [`ReadError`] of the first root event that can't be read.
    pub fn read_family(&self, family: FamilyId) -> Result<Vec<FamilyTally>, ReadError> {
        // What was reported is looked up first: what is reported later is then still in the totals.
        let (counting, parts) = self
            .registry
            .with(|registry| {
                let family = &registry.families.get(family)?.family;
                let retired = |index| family.retired(index);
                let parts = family.roots().iter().enumerate().map(|(index, roots)| (roots.clone(), retired(index)));
                Some((family.counting(), parts.collect::<Vec<_>>()))
            })
            .ok_or(ReadError::Closed)?;
        match counting {
            Counting::ByReports => {
                parts.iter().map(|(roots, retired)| self.tally_by_reports(roots, *retired)).collect()
            }
            Counting::ByEngine => self.tallies_by_engine(family, parts.iter().flat_map(|(roots, _)| roots)),
        }
    }

    fn tally_by_reports(&self, roots: &[EventId], retired: Count) -> Result<FamilyTally, ReadError> {
        let mut total = Count::default();
        for &event in roots {
            total.add_other_cpu(&self.read(event)?);
        }
        Ok(FamilyTally { total, own: total.less(&retired), retired })
    }

    fn tallies_by_engine<'a>(
        &self,
        family: FamilyId,
        mut roots: impl Iterator<Item = &'a EventId>,
    ) -> Result<Vec<FamilyTally>, ReadError> {
        let root = roots.next().and_then(|&event| self.record(event)).ok_or(ReadError::Closed)?;
        let key = self.group_cell(root.group).ok_or(ReadError::Closed)?.1;
        let mut own = GroupReading::new();
        self.read_own_group(&root.fast_reads, key, &mut own)?;
        let mut tallies = Vec::with_capacity(own.len());
        for count in own {
            let own = count?;
            tallies.push(FamilyTally { total: own, own, retired: Count::default() });
        }
        self.with_children_of_group(family, tallies.len(), |index, children| {
            if let Some(tally) = tallies.get_mut(index) {
                tally.retired = children.retired;
                tally.total += children.retired;
                tally.total += children.live;
            }
        });
        Ok(tallies)
    }

    pub(super) fn group_cell(&self, group: GroupId) -> Option<(Arc<ContextCell<H>>, GroupKey)> {
        self.registry.with(|registry| registry.groups.get(group).map(|record| (Arc::clone(&record.cell), record.group)))
    }

    fn read_member(&self, fast_read: &FastRead<H>) -> Result<Count, ReadError> {
        let member = fast_read.member;
        let order = move |context: &mut Context, step: Step<'_>| context.order_read(member, step);
        fast_read.cell.ask(self, Purpose::Reading, order, |context| fast_read.reading(context))
    }

    /// `key` is the group of these in their context.
    fn read_own_group(
        &self,
        fast_reads: &[FastRead<H>],
        key: GroupKey,
        out: &mut GroupReading,
    ) -> Result<(), ReadError> {
        let cell = &fast_reads.first().ok_or(ReadError::Closed)?.cell;
        let order = move |context: &mut Context, step: Step<'_>| context.order_read_group(key, step);
        cell.ask(self, Purpose::Reading, order, |context| {
            context.group(key).ok_or(ReadError::Closed)?;
            out.extend(fast_reads.iter().map(|fast_read| fast_read.reading(context)));
            Ok(())
        })
    }

    fn children_of_event(&self, family: FamilyId, index: usize) -> Children {
        let (retired, live) = self.registry.with(|registry| match registry.families.get(family) {
            Some(record) => (record.family.retired(index), event_in_children(registry, &record.family, index)),
            None => Default::default(),
        });
        if live.is_empty() {
            return Children { retired, live: Count::default() };
        }
        let mut counts = Vec::with_capacity(live.len());
        for (task, record) in live {
            counts.push((task, self.read_child(&record.fast_read().cell, record.fast_read().member)));
        }
        let mut children = [Children::default()];
        self.add_up(
            family,
            index,
            &mut children,
            counts.iter().map(|(task, count)| (*task, core::slice::from_ref(count))),
        );
        children[0]
    }

    /// A root event in its children that live.
    pub(super) fn in_children(&self, family: FamilyId, index: usize) -> Vec<EventRecord<H>> {
        let live = self.registry.with(|registry| {
            registry.families.get(family).map(|record| event_in_children(registry, &record.family, index))
        });
        live.into_iter().flatten().map(|(_, record)| record).collect()
    }

    /// What the children of a root event have counted, as of their last readings.
    pub(super) fn children_from_memory(&self, family: FamilyId, index: usize) -> Count {
        let (mut count, live) = self.registry.with(|registry| match registry.families.get(family) {
            Some(record) => (record.family.retired(index), event_in_children(registry, &record.family, index)),
            None => Default::default(),
        });
        for (_, record) in live {
            let last = |context: &Context| context.member(record.fast_read().member).map(|member| member.cached().0);
            count += record.fast_read().cell.look(self, last).unwrap_or_default();
        }
        count
    }

    /// What the children of a root group have counted, event by event.
    fn with_children_of_group(&self, family: FamilyId, events: usize, mut each: impl FnMut(usize, Children)) {
        let live = self.registry.with(|registry| {
            let family = &registry.families.get(family)?.family;
            let live = group_in_children(registry, family);
            if live.is_empty() {
                for index in 0..events {
                    each(index, Children { retired: family.retired(index), live: Count::default() });
                }
            }
            Some(live)
        });
        let Some(live) = live.filter(|live| !live.is_empty()) else { return };
        let mut counts = Vec::with_capacity(live.len() * events);
        for child in &live {
            let group = child.group;
            let order = move |context: &mut Context, step: Step<'_>| context.order_read_group(group, step);
            child.cell.ask(self, Purpose::Reading, order, |context| {
                let members = context.group(child.group).map(|group| &group.members[..]).unwrap_or_default();
                let count = |index| members.get(index).and_then(|&member| context.member(member));
                counts
                    .extend((0..events).map(|index| count(index).map(|member| member.cached().0).unwrap_or_default()));
            });
        }
        let mut children = alloc::vec![Children::default(); events];
        let counted = live.iter().zip(counts.chunks(events.max(1))).map(|(child, counts)| (child.task, counts));
        self.add_up(family, 0, &mut children, counted);
        children.into_iter().enumerate().for_each(|(index, children)| each(index, children));
    }

    /// A child that is in error, or can't be read any more, has counted what it had counted.
    fn read_child(&self, cell: &Arc<ContextCell<H>>, member: EventKey) -> Count {
        let last = |context: &Context| context.member(member).map(|member| member.cached().0).unwrap_or_default();
        let order = move |context: &mut Context, step: Step<'_>| context.order_read(member, step);
        cell.ask(self, Purpose::Reading, order, last)
    }

    /// Adds what was reported by now to what was read in the children that are still alive: none is missed, and none is counted
    /// twice, because a child reports and leaves in one step.
    fn add_up<'a>(
        &self,
        family: FamilyId,
        first: usize,
        children: &mut [Children],
        counted: impl Iterator<Item = (FamilyTaskId, &'a [Count])>,
    ) {
        self.registry.with(|registry| {
            let Some(family) = registry.families.get(family).map(|record| &record.family) else { return };
            for (index, sum) in children.iter_mut().enumerate() {
                sum.retired = family.retired(first + index);
            }
            for (_, counts) in counted.filter(|&(task, _)| family.is_live(task)) {
                for (sum, count) in children.iter_mut().zip(counts) {
                    sum.live += *count;
                }
            }
        });
    }
}

fn event_in_children<H: Host>(
    registry: &Registry<H>,
    family: &Family,
    index: usize,
) -> Vec<(FamilyTaskId, EventRecord<H>)> {
    let record = |(task, group)| {
        let event = *registry.groups.get(group)?.events.get(index)?;
        Some((task, registry.events.get(event)?.clone()))
    };
    family.counted().filter_map(record).collect()
}

fn group_in_children<H: Host>(registry: &Registry<H>, family: &Family) -> Vec<Child<H>> {
    let child = |(task, group)| {
        let record = registry.groups.get(group)?;
        Some(Child { task, cell: Arc::clone(&record.cell), group: record.group })
    };
    family.counted().filter_map(child).collect()
}
