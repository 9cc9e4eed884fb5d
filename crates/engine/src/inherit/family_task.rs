//! One relative: a task of a family.
//!
//! **Invariant:** it holds numbers, not names; command names belong to the host.

use crate::arena::Id;
use crate::count::Count;
use crate::id::{GroupId, Nanos, TaskId};
use alloc::boxed::Box;

/// Names a relative.
pub type FamilyTaskId = Id<FamilyTask>;

/// A task of a family.
#[derive(Clone, Debug)]
pub struct FamilyTask {
    /// The task's number; another relative may have the same one later.
    pub task: TaskId,
    /// Whose fork it is; `None` for the root.
    pub parent: Option<FamilyTaskId>,
    /// When it was forked (the root: when the family was founded).
    pub born: Nanos,
    /// When it exited, if it has.
    pub exited: Option<Nanos>,
    /// How many reports it has made: with the number of events, this tells whether one was lost.
    pub reports: u32,
    /// Its group, where the engine counts it.
    pub(super) group: Option<GroupId>,
    /// Where it stands in the family's list of those who live and are counted by the engine.
    pub(super) counted_at: Option<usize>,
    counts: Box<[Count]>,
}

impl FamilyTask {
    /// `kept` is how many of its counts are kept: all, or none.
    pub(super) fn new(task: TaskId, parent: Option<FamilyTaskId>, kept: usize, born: Nanos) -> Self {
        let counts = alloc::vec![Count::default(); kept].into_boxed_slice();
        Self { task, parent, born, exited: None, reports: 0, group: None, counted_at: None, counts }
    }

    /// What it has reported, event by event; empty where only the family's sum is kept.
    #[must_use]
    pub fn counts(&self) -> &[Count] {
        &self.counts
    }

    /// Its group, where the engine counts it and it is alive.
    #[must_use]
    pub const fn group(&self) -> Option<GroupId> {
        self.group
    }

    pub(super) fn add(&mut self, index: usize, count: Count) {
        if let Some(own) = self.counts.get_mut(index) {
            *own += count;
        }
        self.reports += 1;
    }
}
