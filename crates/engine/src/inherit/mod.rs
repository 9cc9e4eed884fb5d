//! Families: counters that follow fork, clone and exec, and come home at exit.
//!
//! What it is: the bookkeeping of one inherited group: which tasks are its relatives, what those that exited have
//! counted, and, where it is wanted, who counted what.
//! Read first: [`Family`], then `switches` (a fork beside an enable or disable).
//!
//! Two ways lead in. Where the engine counts every task itself, it clones the parent's groups at fork and reports the
//! child's counts at exit. Where the counters follow forks by themselves (Linux), the kernel's FORK, EXIT and READ
//! records drive the same steps.
//!
//! **Invariant:** total = own + live children + retired; a count that a child has reported is in `retired` once.
//!
//! Linux: `inherit_event`, `inherit_group`, `sync_child_event` (kernel/events/core.c).

mod family_task;
mod switches;

pub use family_task::{FamilyTask, FamilyTaskId};
pub use switches::FamilySwitch;
pub(crate) use switches::Mark;

use crate::arena::Arena;
use crate::count::Count;
use crate::id::{EventId, GroupId, Nanos, TaskId};
use alloc::vec::Vec;
use hashbrown::HashMap;
use switches::Switches;

/// How long the numbers of each relative are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attribution {
    /// Only their sum: an exited child leaves nothing behind.
    Totals,
    /// Each task's own numbers, until the family ends.
    EachTask,
}

/// Who counts the children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counting {
    /// The engine, with events of its own in each child.
    ByEngine,
    /// The counters below; children report at their exit.
    ByReports,
}

/// Why a step of a family was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FamilyError {
    /// The parent is no relative: its fork was never seen.
    UnknownParent(TaskId),
    /// The task is no relative, or none that lives.
    UnknownTask(TaskId),
    /// The family has fewer events.
    NoSuchEvent(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Adoption {
    /// It is counted.
    Joined,
    /// The family was switched meanwhile: see [`Family::switched_since`].
    Stale,
    /// It has exited already, or is counted already.
    Unwanted,
}

/// The relatives of one root task.
pub struct Family {
    root: FamilyTaskId,
    roots: Vec<Vec<EventId>>,
    attribution: Attribution,
    counting: Counting,
    retired: Vec<Count>,
    /// The newest relative of each task number, exited ones included while they are kept: reports come after the exit.
    by_task: HashMap<TaskId, FamilyTaskId>,
    tasks: Arena<FamilyTask, FamilyTask>,
    /// Those who live and are counted by the engine, in no order: reading them costs nothing for those who exited.
    counted: Vec<FamilyTaskId>,
    switches: Switches,
    live: usize,
    forks: u64,
    uncounted: u64,
}

impl Family {
    /// A family of one.
    #[must_use]
    pub fn new(
        root: TaskId,
        roots: Vec<Vec<EventId>>,
        attribution: Attribution,
        counting: Counting,
        now: Nanos,
    ) -> Self {
        let events = roots.len();
        let mut tasks = Arena::default();
        let root_id = tasks.insert(FamilyTask::new(root, None, kept(attribution, events), now));
        let mut by_task = HashMap::new();
        by_task.insert(root, root_id);
        Self {
            root: root_id,
            roots,
            attribution,
            counting,
            retired: alloc::vec![Count::default(); events],
            by_task,
            tasks,
            counted: Vec::new(),
            switches: Switches::new(events),
            live: 1,
            forks: 0,
            uncounted: 0,
        }
    }

    /// Who counts the children.
    #[must_use]
    pub const fn counting(&self) -> Counting {
        self.counting
    }

    /// The root events of each count.
    #[must_use]
    pub fn roots(&self) -> &[Vec<EventId>] {
        &self.roots
    }

    /// A task forked: the child is a relative. O(events).
    ///
    /// A child that is known already and lives is left as it is (a record that was delivered twice); one that exited
    /// gave its number back, and another relative takes it.
    ///
    /// # Errors
    /// [`FamilyError::UnknownParent`]; the child is not taken in.
    pub fn fork(&mut self, parent: TaskId, child: TaskId, now: Nanos) -> Result<FamilyTaskId, FamilyError> {
        let parent_id = *self.by_task.get(&parent).ok_or(FamilyError::UnknownParent(parent))?;
        if let Some(&known) = self.by_task.get(&child)
            && self.is_live(known)
        {
            return Ok(known);
        }
        let kept = kept(self.attribution, self.roots.len());
        let id = self.tasks.insert(FamilyTask::new(child, Some(parent_id), kept, now));
        self.by_task.insert(child, id);
        self.live += 1;
        self.forks += 1;
        Ok(id)
    }

    /// What a fork must note before it looks at the parent's events.
    pub(crate) const fn mark(&self) -> Mark {
        self.switches.mark()
    }

    /// A child is counted with a group of its own, if nothing was switched since `mark`.
    pub(crate) fn adopt(&mut self, child: FamilyTaskId, group: GroupId, mark: Mark) -> Adoption {
        let entry = self.tasks.get_mut(child).filter(|_| child != self.root);
        let Some(entry) = entry.filter(|task| task.exited.is_none() && task.group.is_none()) else {
            return Adoption::Unwanted;
        };
        if !self.switches.join(mark) {
            return Adoption::Stale;
        }
        entry.group = Some(group);
        entry.counted_at = Some(self.counted.len());
        self.counted.push(child);
        Adoption::Joined
    }

    /// A child could not be given events: it is a relative no more, and the family's counts lack what it does.
    pub(crate) fn give_up(&mut self, child: FamilyTaskId, now: Nanos) {
        if self.is_live(child) {
            self.uncounted += 1;
            self.leave(child, now);
        }
    }

    /// What was switched since `mark`, count by count, and the mark to go on with.
    pub(crate) fn switched_since(&self, mark: Mark) -> (Mark, impl Iterator<Item = (usize, FamilySwitch)> + '_) {
        (self.switches.mark(), self.switches.since(mark))
    }

    /// A switch of one of the counts begins, or ends: see `switches`.
    pub(crate) fn note_switch(&mut self, index: usize, switch: FamilySwitch) {
        self.switches.note(index, switch);
    }

    /// How many children were ever counted by the engine.
    pub(crate) const fn joined(&self) -> u64 {
        self.switches.joined()
    }

    /// A child that exits, or has exited, reports what it counted for one event. O(1).
    ///
    /// # Errors
    /// [`FamilyError::NoSuchEvent`]. A report of a task that is not known (any more) is still added to the sum.
    pub fn report(&mut self, child: TaskId, index: usize, count: Count) -> Result<(), FamilyError> {
        *self.retired.get_mut(index).ok_or(FamilyError::NoSuchEvent(index))? += count;
        if let Some(entry) = self.by_task.get(&child).and_then(|&id| self.tasks.get_mut(id)) {
            entry.add(index, count);
        }
        Ok(())
    }

    /// A task has exited. O(1) beside its own numbers. Gives back the group with which the engine counted it.
    ///
    /// # Errors
    /// [`FamilyError::UnknownTask`].
    pub fn exit(&mut self, task: TaskId, now: Nanos) -> Result<Option<GroupId>, FamilyError> {
        let id = *self.by_task.get(&task).ok_or(FamilyError::UnknownTask(task))?;
        Ok(self.leave(id, now))
    }

    /// A task whose events the engine has read for the last time exits: reports and leaves in one step, so that a
    /// reader meets its count either there or here.
    pub(crate) fn fold_child(
        &mut self,
        task: TaskId,
        counts: impl IntoIterator<Item = (usize, Count)>,
        now: Nanos,
    ) -> Option<GroupId> {
        let id = *self.by_task.get(&task)?;
        if !self.is_live(id) {
            return None;
        }
        if id != self.root {
            for (index, count) in counts {
                // The index comes from the family itself.
                let _ = self.report(task, index, count);
            }
        }
        self.leave(id, now)
    }

    fn leave(&mut self, id: FamilyTaskId, now: Nanos) -> Option<GroupId> {
        let entry = self.tasks.get_mut(id).filter(|entry| entry.exited.is_none())?;
        entry.exited = Some(now);
        let (task, group) = (entry.task, entry.group.take());
        if let Some(at) = entry.counted_at.take() {
            self.counted.swap_remove(at);
            if let Some(moved) = self.counted.get(at).and_then(|&moved| self.tasks.get_mut(moved)) {
                moved.counted_at = Some(at);
            }
        }
        self.live -= 1;
        if self.attribution == Attribution::Totals && id != self.root {
            self.by_task.remove(&task);
            self.tasks.remove(id);
        }
        group
    }

    /// What children that exited have reported for one event. O(1).
    #[must_use]
    pub fn retired(&self, index: usize) -> Count {
        self.retired.get(index).copied().unwrap_or_default()
    }

    /// Forgets the value that children who exited have reported for one event; its times, and what each of them counted,
    /// stay.
    pub(crate) fn reset(&mut self, index: usize) {
        if let Some(retired) = self.retired.get_mut(index) {
            retired.value = 0;
        }
    }

    /// How many relatives live, the root included.
    #[must_use]
    pub const fn live(&self) -> usize {
        self.live
    }

    /// How many children there have been.
    #[must_use]
    pub const fn forks(&self) -> u64 {
        self.forks
    }

    /// How many of them could not be counted, because the counters refused.
    #[must_use]
    pub const fn uncounted(&self) -> u64 {
        self.uncounted
    }

    /// The root's name.
    #[must_use]
    pub const fn root(&self) -> FamilyTaskId {
        self.root
    }

    /// Whether it is the root's number.
    #[must_use]
    pub fn is_root(&self, task: TaskId) -> bool {
        self.tasks.get(self.root).is_some_and(|root| root.task == task)
    }

    /// A relative.
    #[must_use]
    pub fn task(&self, id: FamilyTaskId) -> Option<&FamilyTask> {
        self.tasks.get(id)
    }

    pub(crate) fn is_live(&self, id: FamilyTaskId) -> bool {
        self.tasks.get(id).is_some_and(|entry| entry.exited.is_none())
    }

    /// The newest relative with this task number.
    #[must_use]
    pub fn find(&self, task: TaskId) -> Option<FamilyTaskId> {
        self.by_task.get(&task).copied()
    }

    /// All relatives that are kept, the root first.
    pub fn tasks(&self) -> impl Iterator<Item = (FamilyTaskId, &FamilyTask)> {
        self.tasks.iter()
    }

    /// The live children that the engine counts, and their groups; those who exited cost nothing.
    pub fn counted(&self) -> impl Iterator<Item = (FamilyTaskId, GroupId)> + '_ {
        self.counted.iter().filter_map(|&id| Some((id, self.tasks.get(id)?.group?)))
    }
}

/// How many counts a relative keeps for itself.
const fn kept(attribution: Attribution, events: usize) -> usize {
    match attribution {
        Attribution::Totals => 0,
        Attribution::EachTask => events,
    }
}

#[cfg(test)]
mod tests;
