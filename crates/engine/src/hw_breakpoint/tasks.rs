//! What tasks hold: one of the books that are sorted by task.
//!
//! What it is: for each task its claims and how many registers it may need wherever it is, and how many tasks need so many.
//! What a task holds on some CPUs only is accounted for in [`super::cpus`]; its claim stands here.
//!
//! A book that one thread used last is in the cache of that thread's CPU. So there are many more books than threads, each of them on
//! lines of its own, and the rest belongs to the task.
//!
//! **Invariant:** no task needs more than the [`Summary`] was told before, under the lock of this book.
//!
//! Linux: `task_bps_ht`, `task_bp_pinned` (kernel/events/hw_breakpoint.c).

use super::claims::Claims;
use super::entries::Entries;
use super::histogram::{Few, many};
use super::summary::{LedgerWord, Summary};
use super::{BpTarget, Claim, Holder, Holding, Registers, SORTS};
use crate::cpu_mask::CpuMask;
use crate::id::TaskId;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Which claim of a task, of those that it had since it held nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClaimNumber(pub(super) u32);

#[derive(Debug)]
pub(super) struct TaskClaim {
    pub(super) number: ClaimNumber,
    pub(super) claim: Claim,
    pub(super) holder: Holder,
    /// Where it is limited to some CPUs.
    pub(super) cpus: Option<Box<CpuMask>>,
}

impl TaskClaim {
    pub(super) fn place(&self, task: TaskId) -> BpTarget {
        match &self.cpus {
            None => BpTarget::TaskEverywhere(task),
            Some(cpus) => BpTarget::TaskOn(task, (**cpus).clone()),
        }
    }
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct TaskEntry {
    pub(super) task: TaskId,
    /// The number of the next claim, or one before.
    next: u32,
    /// How many of them are limited to some CPUs.
    limited: u32,
    /// Registers that it needs wherever it is.
    everywhere: [u8; SORTS],
    /// Whether all numbers have been given since the task came: then one may be held still.
    again: bool,
    /// In the order in which they were granted; as many as there are registers at most.
    claims: Claims,
}

impl TaskEntry {
    pub(super) fn new(task: TaskId) -> Self {
        Self { task, next: 0, limited: 0, everywhere: [0; SORTS], again: false, claims: Claims::default() }
    }

    fn push(&mut self, claim: Claim, holder: Holder, cpus: Option<Box<CpuMask>>) -> ClaimNumber {
        let mut number = ClaimNumber(self.next);
        while self.again && self.claims.find(number).is_some() {
            number = ClaimNumber(number.0.wrapping_add(1));
        }
        self.next = number.0.wrapping_add(1);
        self.again |= self.next == 0;
        self.claims.push(TaskClaim { number, claim, holder, cpus });
        number
    }
}

/// What some of the tasks hold. All that most claims change is one line of the cache, with the book's lock; the rest is beside it: see
/// the tests.
#[repr(C)]
pub(super) struct TaskBook {
    few: [Few; SORTS],
    entries: Entries,
    /// Needs above those, where there are so many registers.
    many: Option<Box<[Vec<u32>; SORTS]>>,
    /// By which word of the summary its tasks are known.
    shelf: usize,
}

/// The number of a task, mixed. Numbers often come in a row, and two threads may take them in turn: rows that look alike would let
/// them meet in one book after another.
pub(super) const fn mixed(task: TaskId) -> u64 {
    let mixed = task.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl TaskBook {
    pub(super) fn new(totals: [u8; SORTS], shelf: usize) -> Self {
        let above = totals.map(many);
        let many = above.iter().any(|many| !many.is_empty()).then(|| Box::new(above));
        Self { entries: Entries::default(), few: [Few::default(); SORTS], many, shelf }
    }

    /// The most that one of these tasks needs wherever it is.
    pub(super) fn most_needed(&self, sort: usize) -> u8 {
        self.few[sort].top(self.many.as_ref().map_or(&[], |many| &many[sort]))
    }

    /// A task that needed `before` needs `after`.
    fn change_need(&mut self, sort: usize, before: u8, after: u8) {
        self.few[sort].change(self.many.as_mut().map_or(&mut [], |many| &mut many[sort]), before, after);
    }

    /// Where it stands.
    pub(super) fn shelf(&self) -> usize {
        self.shelf
    }

    pub(super) fn everywhere(&self, task: TaskId, sort: usize) -> u8 {
        self.entries.get(task).map_or(0, |entry| entry.everywhere[sort])
    }

    pub(super) fn claim(&self, task: TaskId, number: ClaimNumber) -> Option<&TaskClaim> {
        self.entries.get(task)?.claims.find(number)
    }

    pub(super) fn claim_mut(&mut self, task: TaskId, number: ClaimNumber) -> Option<&mut TaskClaim> {
        self.entries.get_mut(task)?.claims.find_mut(number)
    }

    /// How many claims there are. O(tasks).
    pub(super) fn len(&self) -> usize {
        self.entries.iter().map(|entry| entry.claims.len()).sum()
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.entries.iter().map(|entry| entry.task)
    }

    /// Grants a claim wherever the task is, if that can be said without looking at any CPU. O(1).
    pub(super) fn grant(
        &mut self,
        registers: Registers,
        summary: &Summary<impl LedgerWord>,
        (task, claim, holder): (TaskId, Claim, Holder),
    ) -> Option<ClaimNumber> {
        let sort = registers.sort(claim.kind);
        let admits = |need| summary.admits(self.shelf, sort, need, registers.for_kind(claim.kind));
        let (number, before, after) = match self.entries.get_mut(task) {
            Some(entry) => {
                let before = entry.everywhere[sort];
                let after = before.checked_add(claim.weight.get()).filter(|_| entry.limited == 0)?;
                if !admits(after) {
                    return None;
                }
                entry.everywhere[sort] = after;
                (entry.push(claim, holder, None), before, after)
            }
            None => {
                let after = claim.weight.get();
                if !admits(after) {
                    return None;
                }
                let entry = self.entries.insert(task);
                entry.everywhere[sort] = after;
                (entry.push(claim, holder, None), 0, after)
            }
        };
        self.change_need(sort, before, after);
        Some(number)
    }

    /// Takes back a claim of a task that holds nothing for some CPUs only. `None`: it does, or there is no such claim. O(1) in
    /// the number of tasks.
    pub(super) fn take_back(&mut self, registers: Registers, task: TaskId, number: ClaimNumber) -> Option<()> {
        let entry = self.entries.get_mut(task).filter(|entry| entry.limited == 0)?;
        let claim = entry.claims.remove(number)?.claim;
        let sort = registers.sort(claim.kind);
        let before = entry.everywhere[sort];
        let after = before.saturating_sub(claim.weight.get());
        entry.everywhere[sort] = after;
        if entry.claims.is_empty() {
            self.entries.remove(task);
        }
        self.change_need(sort, before, after);
        Some(())
    }

    /// Writes down a claim that was granted, with nothing accounted for.
    pub(super) fn insert(
        &mut self,
        task: TaskId,
        claim: Claim,
        holder: Holder,
        cpus: Option<Box<CpuMask>>,
    ) -> ClaimNumber {
        match self.entries.get_mut(task) {
            Some(entry) => entry.push(claim, holder, cpus),
            None => self.entries.insert(task).push(claim, holder, cpus),
        }
    }

    /// Strikes out a claim for which nothing is accounted any more.
    pub(super) fn remove(&mut self, task: TaskId, number: ClaimNumber) {
        let Some(entry) = self.entries.get_mut(task) else { return };
        entry.claims.remove(number);
        if entry.claims.is_empty() {
            self.entries.remove(task);
        }
    }

    /// A task that has a claim needs so many wherever it is, now. The summary must have been told.
    pub(super) fn set_everywhere(&mut self, task: TaskId, sort: usize, after: u8) {
        if let Some(entry) = self.entries.get_mut(task) {
            let before = core::mem::replace(&mut entry.everywhere[sort], after);
            self.change_need(sort, before, after);
        }
    }

    /// A task that has a claim has one more that is limited to CPUs, or one fewer.
    pub(super) fn change_limited(&mut self, task: TaskId, more: i32) {
        if let Some(entry) = self.entries.get_mut(task) {
            entry.limited = entry.limited.saturating_add_signed(more);
        }
    }

    /// What a task holds of the registers of a sort, in the order in which it was granted.
    pub(super) fn holdings(
        &self,
        registers: Registers,
        task: TaskId,
        sort: usize,
    ) -> impl Iterator<Item = Holding> + '_ {
        let of_sort = move |claim: &&TaskClaim| registers.sort(claim.claim.kind) == sort;
        let claims = self.entries.get(task).into_iter().flat_map(|entry| entry.claims.iter());
        claims.filter(of_sort).map(move |claim| Holding {
            holder: claim.holder,
            claim: claim.claim,
            place: claim.place(task),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{offset_of, size_of};

    #[test]
    fn what_most_claims_change_is_one_line_of_the_cache_with_the_lock() {
        const LINE: usize = 64;
        const LOCK: usize = 8;
        let small = cfg!(not(target_pointer_width = "64"));
        let end = offset_of!(TaskBook, entries) + Entries::OTHERS;
        assert!(LOCK + end <= LINE || small, "{end}");
        assert!(LOCK + size_of::<TaskBook>() <= 2 * LINE || small, "{}", size_of::<TaskBook>());
        assert!(size_of::<TaskEntry>() <= 3 * LINE || small, "{}", size_of::<TaskEntry>());
    }

    #[test]
    fn no_number_is_held_twice() {
        let mut entry = TaskEntry::new(TaskId(1));
        let mut hold = || entry.push(Claim::one(crate::hw_breakpoint::Kind::Data), Holder::Opening, None);
        let first = hold();
        entry.next = u32::MAX;
        let mut hold = || entry.push(Claim::one(crate::hw_breakpoint::Kind::Data), Holder::Opening, None);
        assert_eq!([first, hold(), hold(), hold()].map(|number| number.0), [0, u32::MAX, 1, 2]);
    }
}
