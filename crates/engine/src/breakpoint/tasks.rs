//! What tasks hold: one of the books that are sorted by task.
//!
//! What it is: for each task its claims and how many registers it may need wherever it is, and how many tasks need so many.
//! What a task holds on some CPUs only is accounted for in [`super::cpus`]; its claim stands here.
//!
//! A book that one thread used last is in the cache of that thread's CPU. So what every claim changes is at the beginning, and
//! the rest belongs to the task.
//!
//! **Invariant:** what is granted here alone leaves room on every CPU for what CPUs themselves hold, and for what they are
//! about to take: `ceiling` is never below either.

use super::entries::Entries;
use super::histogram::Histogram;
use super::{Claim, Holder, Holding, Place, Registers, SORTS};
use crate::id::TaskId;
use crate::system_wide::CpuMask;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Which claim of a task: no book gives a number twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClaimNumber(u64);

/// A claim that was granted to a task.
#[derive(Debug)]
pub(super) struct TaskClaim {
    number: ClaimNumber,
    pub(super) claim: Claim,
    pub(super) holder: Holder,
    /// Where it is limited to some CPUs.
    pub(super) cpus: Option<Box<CpuMask>>,
}

impl TaskClaim {
    pub(super) fn place(&self, task: TaskId) -> Place {
        match &self.cpus {
            None => Place::TaskEverywhere(task),
            Some(cpus) => Place::TaskOn(task, (**cpus).clone()),
        }
    }
}

/// What one task holds.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) task: TaskId,
    /// In the order in which they were granted; as many as there are registers at most.
    claims: Vec<TaskClaim>,
    /// How many of them are limited to some CPUs.
    limited: u32,
    /// Registers that it needs wherever it is.
    everywhere: [u8; SORTS],
}

impl Entry {
    pub(super) const fn new(task: TaskId) -> Self {
        Self { task, claims: Vec::new(), limited: 0, everywhere: [0; SORTS] }
    }

    fn position(&self, number: ClaimNumber) -> Option<usize> {
        self.claims.iter().position(|claim| claim.number == number)
    }
}

/// What some of the tasks hold. All that most claims look at fills one line of the cache, with the book's lock: see the tests.
#[repr(C)]
pub(super) struct TaskBook {
    /// The number of the next claim.
    next: u64,
    entries: Entries,
    /// At least what the CPU that itself holds most has taken.
    ceiling: [u8; SORTS],
    registers: Registers,
    /// How many tasks need so many wherever they are.
    needs: [Histogram; SORTS],
}

/// The number of a task, mixed. Numbers often come in a row, and two threads may take them in turn: rows that look alike would let
/// them meet in one book after another.
pub(super) const fn mixed(task: TaskId) -> u64 {
    let mixed = task.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl TaskBook {
    pub(super) fn new(registers: Registers, totals: [u8; SORTS]) -> Self {
        let needs = totals.map(Histogram::new);
        Self { next: 0, ceiling: [0; SORTS], registers, needs, entries: Entries::default() }
    }

    /// The most that one of these tasks needs wherever it is.
    pub(super) fn most_needed(&self, sort: usize) -> u8 {
        self.needs[sort].top()
    }

    pub(super) const fn set_ceiling(&mut self, sort: usize, ceiling: u8) {
        self.ceiling[sort] = ceiling;
    }

    /// What a task needs wherever it is.
    pub(super) fn everywhere(&self, task: TaskId, sort: usize) -> u8 {
        self.entries.get(task).map_or(0, |entry| entry.everywhere[sort])
    }

    pub(super) fn claim(&self, task: TaskId, number: ClaimNumber) -> Option<&TaskClaim> {
        self.entries.get(task)?.claims.iter().find(|claim| claim.number == number)
    }

    pub(super) fn claim_mut(&mut self, task: TaskId, number: ClaimNumber) -> Option<&mut TaskClaim> {
        self.entries.get_mut(task)?.claims.iter_mut().find(|claim| claim.number == number)
    }

    /// How many claims there are. O(tasks).
    pub(super) fn len(&self) -> usize {
        self.entries.iter().map(|entry| entry.claims.len()).sum()
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.entries.iter().map(|entry| entry.task)
    }

    /// Grants a claim wherever the task is, if that can be said without looking at any CPU. O(1).
    pub(super) fn grant(&mut self, task: TaskId, claim: Claim, holder: Holder) -> Option<ClaimNumber> {
        let sort = self.registers.sort(claim.kind);
        let free = self.registers.for_kind(claim.kind).checked_sub(self.ceiling[sort])?;
        let weight = claim.weight.get();
        if self.entries.get(task).is_none() {
            if weight > free {
                return None;
            }
            self.entries.insert(task);
        }
        let entry = self.entries.get_mut(task)?;
        let before = entry.everywhere[sort];
        let after = before.checked_add(weight).filter(|&after| after <= free && entry.limited == 0)?;
        entry.everywhere[sort] = after;
        self.needs[sort].change(before, after);
        let number = ClaimNumber(self.next);
        self.next += 1;
        entry.claims.push(TaskClaim { number, claim, holder, cpus: None });
        Some(number)
    }

    /// Takes back a claim of a task that holds nothing for some CPUs only. `None`: it does, or there is no such claim. O(1) in
    /// the number of tasks.
    pub(super) fn take_back(&mut self, task: TaskId, number: ClaimNumber) -> Option<()> {
        let entry = self.entries.get_mut(task)?;
        let at = entry.position(number).filter(|_| entry.limited == 0)?;
        let claim = entry.claims.remove(at).claim;
        let sort = self.registers.sort(claim.kind);
        let before = entry.everywhere[sort];
        entry.everywhere[sort] = before.saturating_sub(claim.weight.get());
        self.needs[sort].change(before, entry.everywhere[sort]);
        if entry.claims.is_empty() {
            self.entries.remove(task);
        }
        Some(())
    }

    /// Lets a claim stand for another one of the same task, if that can be said without looking at any CPU. `None`: it can't.
    pub(super) fn exchange(&mut self, task: TaskId, number: ClaimNumber, claim: Claim) -> Option<()> {
        let entry = self.entries.get_mut(task).filter(|entry| entry.limited == 0)?;
        let at = entry.position(number)?;
        let held = entry.claims.get_mut(at)?;
        let mut after = entry.everywhere;
        let was = self.registers.sort(held.claim.kind);
        after[was] = after[was].checked_sub(held.claim.weight.get())?;
        let sort = self.registers.sort(claim.kind);
        let free = self.registers.for_kind(claim.kind).checked_sub(self.ceiling[sort])?;
        after[sort] = after[sort].checked_add(claim.weight.get()).filter(|&after| after <= free)?;
        held.claim = claim;
        for (sort, needs) in self.needs.iter_mut().enumerate() {
            needs.change(entry.everywhere[sort], after[sort]);
        }
        entry.everywhere = after;
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
        let number = ClaimNumber(self.next);
        self.next += 1;
        if self.entries.get(task).is_none() {
            self.entries.insert(task);
        }
        if let Some(entry) = self.entries.get_mut(task) {
            entry.claims.push(TaskClaim { number, claim, holder, cpus });
        }
        number
    }

    /// Strikes out a claim for which nothing is accounted any more.
    pub(super) fn remove(&mut self, task: TaskId, number: ClaimNumber) {
        let Some(entry) = self.entries.get_mut(task) else { return };
        if let Some(at) = entry.position(number) {
            entry.claims.remove(at);
        }
        if entry.claims.is_empty() {
            self.entries.remove(task);
        }
    }

    /// A task that has a claim needs so many wherever it is, now.
    pub(super) fn set_everywhere(&mut self, task: TaskId, sort: usize, after: u8) {
        if let Some(entry) = self.entries.get_mut(task) {
            self.needs[sort].change(entry.everywhere[sort], after);
            entry.everywhere[sort] = after;
        }
    }

    /// A task that has a claim has one more that is limited to CPUs, or one fewer.
    pub(super) fn change_limited(&mut self, task: TaskId, more: i32) {
        if let Some(entry) = self.entries.get_mut(task) {
            entry.limited = entry.limited.saturating_add_signed(more);
        }
    }

    /// What a task holds of the registers of a sort, in the order in which it was granted.
    pub(super) fn holdings(&self, task: TaskId, sort: usize) -> impl Iterator<Item = Holding> + '_ {
        let of_sort = move |claim: &&TaskClaim| self.registers.sort(claim.claim.kind) == sort;
        let claims = self.entries.get(task).map(|entry| &entry.claims[..]).unwrap_or_default();
        claims.iter().filter(of_sort).map(move |claim| Holding {
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
    fn what_most_claims_look_at_is_one_line_of_the_cache_with_the_lock() {
        const LINE: usize = 64;
        const LOCK: usize = 8;
        // Of a machine with four registers or fewer of a sort, the histogram's first places are all.
        let end = offset_of!(TaskBook, needs) + 4 * size_of::<u32>();
        assert!(LOCK + end <= LINE || cfg!(not(target_pointer_width = "64")), "{end}");
    }
}
