//! What happens to tasks: fork, exec, exit. For coming onto CPUs and leaving them see `switch`.
//!
//! **Invariant:** fork and exit of a task cost as much as it has events, however many tasks or relatives there are.
//!
//! Linux: `perf_event_init_task`, `perf_event_exit_task`, `perf_event_exec` (kernel/events/core.c).

use super::ctx_lock::{ContextCell, Purpose};
use super::open::{register_group, unregister};
use super::{Engine, SharedCell};
use crate::context::{Context, Gone, Step};
use crate::count::Count;
use crate::error::OpenError;
use crate::event::{Event, EventState, Lineage, NewEvent, OnExec};
use crate::host::Host;
use crate::id::{FamilyId, TaskId};
use crate::inherit::{Adoption, FamilySwitch, FamilyTaskId, Mark};
use crate::lock::LockCell;
use crate::pmu::Delegated;
use crate::target::Demand;
use crate::target::{ContextKey, EventKey, Filter, GroupKey};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pmux_abi::attr::AttrFlags;

struct ChildGroup {
    demand: Demand,
    filter: Filter,
    members: Vec<NewEvent>,
    enabled: Vec<bool>,
}

/// A child that its family knows already, and that has no group of it yet.
#[derive(Clone, Copy)]
struct NewChild {
    family: FamilyId,
    task: FamilyTaskId,
    /// What had been switched in the family by then.
    mark: Mark,
}

/// What became of a child that was to join its family.
enum FamilyJoin {
    Joined,
    Again(Mark, Vec<(usize, FamilySwitch)>),
    Unwanted,
}

/// What an exec does to the events of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exec {
    /// An ordinary program: events stay, and those that wait for it start.
    Plain,
    /// A program that changes its rights (set-uid, set-gid, file capabilities): events of others must not see into it.
    ChangesRights,
}

impl<H: Host> Engine<H> {
    /// A task forked: the child gets a member for each event of a family, groups whole. O(events).
    ///
    /// Call it before the child runs. Events whose counters follow forks by themselves are left to them.
    ///
    /// # Errors
    /// The first refusal of the counters; groups that were refused are not inherited (their family says how many
    /// children it lacks), the others are.
    pub fn task_fork(&self, parent: TaskId, child: TaskId) -> Result<(), OpenError> {
        let Some(cell) = self.context(ContextKey::Task(parent)) else { return Ok(()) };
        let families = cell.look(self, families);
        if families.is_empty() {
            return Ok(());
        }
        let now = self.host.now();
        let new_children: Vec<_> = self.registry.with(|registry| {
            let take_in = |&(id, group): &(FamilyId, GroupKey)| {
                // A close that comes first has taken the family away: then there is no family to report to.
                let family = &mut registry.families.get_mut(id)?.family;
                let mark = family.mark();
                Some((group, NewChild { family: id, task: family.fork(parent, child, now).ok()?, mark }))
            };
            families.iter().filter_map(take_in).collect()
        });
        // Only now: what is switched later makes the marks stale.
        let child_groups: Vec<_> =
            cell.look(self, |context| new_children.iter().map(|&(group, _)| child_group(context, group)).collect());
        let mut result = Ok(());
        for ((_, new_child), child_group) in new_children.into_iter().zip(child_groups) {
            let NewChild { family, task, .. } = new_child;
            // Without an heir, the parent's group is gone.
            let inherited = child_group.map(|child_group| self.inherit(new_child, child_group, child));
            if !matches!(inherited, Some(Ok(()))) {
                self.with_family(family, |family| family.give_up(task, now));
            }
            result = result.and(inherited.unwrap_or(Ok(())));
        }
        result
    }

    fn inherit(&self, new_child: NewChild, child_group: ChildGroup, child: TaskId) -> Result<(), OpenError> {
        let NewChild { family, task, mut mark } = new_child;
        let ChildGroup { demand, filter, members, enabled } = child_group;
        let target = super::Target { context: ContextKey::Task(child), filter };
        // The cores know the PMUs of the parent's events.
        let mut attached = self.attach_known(target, demand, &members, None)?;
        let key = attached.group;
        attached.cell.step(self, move |context, step| enable_like(context, key, &enabled, step));
        let mut opened = None;
        loop {
            let joining = self.registry.with(|registry| {
                let group = *opened.get_or_insert_with(|| register_group(registry, &mut attached, super::Gate::Open));
                let family = &mut registry.families.get_mut(family)?.family;
                Some(match family.adopt(task, group, mark) {
                    Adoption::Joined => FamilyJoin::Joined,
                    Adoption::Unwanted => FamilyJoin::Unwanted,
                    Adoption::Stale => {
                        let (mark, switched) = family.switched_since(mark);
                        FamilyJoin::Again(mark, switched.collect())
                    }
                })
            });
            match joining {
                Some(FamilyJoin::Joined) => break,
                Some(FamilyJoin::Again(now, switched)) => {
                    mark = now;
                    attached.cell.step(self, move |context, step| switch_like(context, key, &switched, step));
                }
                // The family was closed meanwhile, or the child is counted already.
                Some(FamilyJoin::Unwanted) | None => {
                    opened.into_iter().for_each(|group| self.close(group));
                    break;
                }
            }
        }
        Ok(())
    }

    /// A task executed another program.
    pub fn task_exec(&self, task: TaskId, exec: Exec) {
        let Some(cell) = self.context(ContextKey::Task(task)) else { return };
        match exec {
            Exec::Plain => cell.step(self, Context::exec),
            Exec::ChangesRights => {
                cell.step(self, |context, step| context.retire(Gone::Everything, step));
                self.give_up_inherited(task, &cell);
            }
        }
    }

    /// Gives back the debug registers of what a task has inherited, which never counts again. What was opened on the task keeps
    /// its registers until it is closed.
    fn give_up_inherited(&self, task: TaskId, cell: &Arc<ContextCell<H>>) {
        let families =
            cell.look(self, |context| reports(context).into_iter().map(|(lineage, _)| lineage.family).collect());
        let families: Vec<FamilyId> = families;
        let reserved: Vec<_> = self.registry.with(|registry| {
            let group = |family: &FamilyId| {
                let family = &registry.families.get(*family)?.family;
                family.task(family.find(task)?)?.group()
            };
            let groups: Vec<_> = families.iter().filter_map(group).collect();
            groups
                .into_iter()
                .filter_map(|group| Some(core::mem::take(&mut registry.groups.get_mut(group)?.reserved)))
                .collect()
        });
        drop(reserved);
    }

    /// A task exited: its events stop, and what inherited ones have counted goes home to their root. O(events).
    ///
    /// Call it after its fork has returned. The events of a root stay readable, and its family lives on until it is
    /// closed. What the host keeps of the task ([`Engine::task`]) may be given to [`Engine::switch`] until the task has left its CPU.
    pub fn task_exit(&self, task: TaskId) {
        if let Some(cell) = self.context(ContextKey::Task(task)) {
            self.report_exit(task, &cell);
        }
        let (kept, context) = self.registry.with(|registry| {
            let key = ContextKey::Task(task);
            let is_empty = registry.contexts.get(&key).is_some_and(|shared| shared.attached == 0);
            (registry.tasks.remove(&task), if is_empty { registry.contexts.remove(&key) } else { None })
        });
        drop(kept);
        if let Some(SharedCell { cell, .. }) = context {
            self.evict(&cell);
        }
    }

    fn report_exit(&self, task: TaskId, cell: &Arc<ContextCell<H>>) {
        let reports = cell.ask(self, Purpose::Change, |context, step| context.retire(Gone::Task, step), reports);
        let now = self.host.now();
        let closed: Vec<_> = self.registry.with(|registry| {
            // The events of one family are one group, and follow one another.
            let families = reports.chunk_by(|(one, _), (other, _)| one.family == other.family);
            let home = |reports: &[(Lineage, Count)]| {
                let family = &mut registry.families.get_mut(reports.first()?.0.family)?.family;
                let counts = reports.iter().map(|(lineage, count)| (lineage.index, *count));
                let group = family.fold_child(task, counts, now)?;
                unregister(registry, group)
            };
            families.filter_map(home).collect()
        });
        for closed in closed {
            self.close_unregistered(closed);
        }
    }
}

/// The groups of a context that a child inherits, and the families to which it reports.
fn families(context: &Context) -> Vec<(FamilyId, GroupKey)> {
    let inherits = |leader: &Event| {
        let inherits = leader.spec.attr.flags.contains(AttrFlags::INHERIT);
        inherits && !leader.delegates(Delegated::INHERITANCE) && leader.state() != EventState::Dead
    };
    let family = |(key, group): (GroupKey, &crate::context::GroupState)| {
        let leader = context.member(*group.members.first()?).filter(|leader| inherits(leader))?;
        Some((leader.lineage?.family, key))
    };
    context.groups().filter_map(family).collect()
}

fn child_group(context: &Context, group: GroupKey) -> Option<ChildGroup> {
    let group = context.group(group)?;
    let (demand, filter, count) = (group.demand, group.filter, group.members.len());
    let mut child_group =
        ChildGroup { demand, filter, members: Vec::with_capacity(count), enabled: Vec::with_capacity(count) };
    for member in group.members.iter().filter_map(|&key| context.member(key)) {
        child_group.members.push(new_like(member));
        child_group.enabled.push(member.state().ages());
    }
    Some(child_group)
}

/// An exec starts an event in a child only if it would still start it in the parent.
fn new_like(member: &Event) -> NewEvent {
    let mut spec = Arc::clone(&member.spec);
    if member.on_exec == OnExec::Keep && spec.attr.flags.contains(AttrFlags::ENABLE_ON_EXEC) {
        Arc::make_mut(&mut spec).attr.flags.remove(AttrFlags::ENABLE_ON_EXEC);
    }
    NewEvent { spec, caps: *member.caps(), lineage: member.lineage }
}

/// The leader last, so that the group starts as one.
fn enable_like(context: &mut Context, group: GroupKey, enabled: &[bool], step: Step<'_>) {
    for (index, _) in enabled.iter().enumerate().rev().filter(|&(_, &enabled)| enabled) {
        if let Some(member) = member_of(context, group, index) {
            context.enable(member, step);
        }
    }
}

fn switch_like(context: &mut Context, group: GroupKey, switched: &[(usize, FamilySwitch)], step: Step<'_>) {
    for &(index, switch) in switched.iter().rev() {
        match (member_of(context, group, index), switch) {
            (Some(member), FamilySwitch::On) => context.enable(member, step),
            (Some(member), FamilySwitch::Off) => context.disable(member, step),
            (None, _) => {}
        }
    }
}

fn member_of(context: &Context, group: GroupKey, index: usize) -> Option<EventKey> {
    context.group(group)?.members.get(index).copied()
}

/// What each event of a task that exited reports, and to which place in a family.
fn reports(context: &Context) -> Vec<(Lineage, Count)> {
    let members = context.groups().flat_map(|(_, group)| &group.members);
    let report = |member: &Event| Some((member.lineage?, member.cached().0));
    members.filter_map(|&key| context.member(key).and_then(report)).collect()
}
