//! The tasks of one book.
//!
//! What it is: a task that comes asks several times in a row, and most go soon: so the one that came last stands apart, and
//! the table, which is made for many, is only looked at. Threads that come with a task each then meet in one line of the
//! cache, that of the book, and not in the table's as well.
//!
//! **Invariant:** a task stands in one place, and only while it has a claim.

use super::tasks::{TaskEntry, mixed};
use crate::id::TaskId;
use alloc::boxed::Box;
use hashbrown::HashTable;

#[derive(Default)]
#[repr(C)]
pub(super) struct Entries {
    /// The one that came last, if it has not gone.
    latest: Option<(TaskId, Box<TaskEntry>)>,
    others: HashTable<Apart>,
}

/// On lines of the cache of its own, so that threads which use different tasks of one book meet in the book's only.
#[repr(align(64))]
struct Apart(TaskEntry);

impl Entries {
    #[cfg(test)]
    pub(super) const OTHERS: usize = core::mem::offset_of!(Self, others);

    pub(super) fn get(&self, task: TaskId) -> Option<&TaskEntry> {
        match &self.latest {
            Some((latest, entry)) if *latest == task => Some(entry),
            _ => self.others.find(mixed(task), |entry| entry.0.task == task).map(|entry| &entry.0),
        }
    }

    pub(super) fn get_mut(&mut self, task: TaskId) -> Option<&mut TaskEntry> {
        match &mut self.latest {
            Some((latest, entry)) if *latest == task => Some(entry),
            _ => self.others.find_mut(mixed(task), |entry| entry.0.task == task).map(|entry| &mut entry.0),
        }
    }

    /// A task that is not there comes.
    pub(super) fn insert(&mut self, task: TaskId) -> &mut TaskEntry {
        if let Some((before, entry)) = self.latest.take() {
            self.others.insert_unique(mixed(before), Apart(*entry), |entry| mixed(entry.0.task));
        }
        &mut self.latest.insert((task, Box::new(TaskEntry::new(task)))).1
    }

    pub(super) fn remove(&mut self, task: TaskId) {
        if self.latest.as_ref().is_some_and(|(latest, _)| *latest == task) {
            self.latest = None;
        } else if let Ok(occupied) = self.others.find_entry(mixed(task), |entry| entry.0.task == task) {
            occupied.remove();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TaskEntry> {
        let others = self.others.iter().map(|entry| &entry.0);
        self.latest.iter().map(|(_, entry)| &**entry).chain(others)
    }
}
