//! Both books at once: what is granted or given back when a task's registers and those of CPUs must be looked at together.
//!
//! **Invariant:** a refusal leaves both as they were.

use super::cpus::{ClaimChange, CpuBook};
use super::summary::{LedgerWord, Summary};
use super::tasks::{ClaimNumber, TaskBook};
use super::{BpTarget, Claim, Holder, Registers, ReserveError};
use crate::id::TaskId;
use alloc::boxed::Box;

/// The book of the CPUs, and that in which a task stands.
pub(super) struct Books<'a, W> {
    pub(super) registers: Registers,
    pub(super) summary: &'a Summary<W>,
    pub(super) cpus: &'a mut CpuBook,
    pub(super) tasks: &'a mut TaskBook,
}

impl<W: LedgerWord> Books<'_, W> {
    fn fits(&self, task: TaskId, claim: Claim, place: &BpTarget) -> Result<(), ReserveError> {
        let everywhere = self.tasks.everywhere(task, self.registers.sort(claim.kind));
        self.cpus.fits_task(task, everywhere, claim, place)
    }

    pub(super) fn reserve(
        &mut self,
        task: TaskId,
        claim: Claim,
        place: BpTarget,
        holder: Holder,
    ) -> Result<ClaimNumber, ReserveError> {
        self.fits(task, claim, &place)?;
        // The entry of the task comes first: accounts are kept in it.
        let number = self.tasks.insert(task, claim, holder, None);
        self.account(task, claim, &place, ClaimChange::More);
        self.write_place(task, number, place);
        Ok(number)
    }

    pub(super) fn release(&mut self, task: TaskId, number: ClaimNumber) -> Result<(), ReserveError> {
        let held = self.tasks.claim(task, number).ok_or(ReserveError::Stale)?;
        let (claim, place) = (held.claim, held.place(task));
        self.account(task, claim, &place, ClaimChange::Less);
        self.tasks.remove(task, number);
        Ok(())
    }

    /// What the claim holds serves the new one too.
    pub(super) fn modify(
        &mut self,
        task: TaskId,
        number: ClaimNumber,
        claim: Claim,
        place: BpTarget,
    ) -> Result<(), ReserveError> {
        let held = self.tasks.claim(task, number).ok_or(ReserveError::Stale)?;
        let (old_claim, old_place) = (held.claim, held.place(task));
        self.account(task, old_claim, &old_place, ClaimChange::Less);
        if let Err(refused) = self.fits(task, claim, &place) {
            self.account(task, old_claim, &old_place, ClaimChange::More);
            return Err(refused);
        }
        self.account(task, claim, &place, ClaimChange::More);
        if let Some(held) = self.tasks.claim_mut(task, number) {
            held.claim = claim;
        }
        self.write_place(task, number, place);
        Ok(())
    }

    fn write_place(&mut self, task: TaskId, number: ClaimNumber, place: BpTarget) {
        if let Some(held) = self.tasks.claim_mut(task, number) {
            held.cpus = match place {
                BpTarget::TaskOn(_, cpus) | BpTarget::Cpus(cpus) => Some(Box::new(cpus)),
                BpTarget::TaskEverywhere(_) => None,
            };
        }
    }

    fn account(&mut self, task: TaskId, claim: Claim, place: &BpTarget, change: ClaimChange) {
        let sort = self.registers.sort(claim.kind);
        let before = self.tasks.everywhere(task, sort);
        match place.cpus() {
            None => {
                let after = change.of(before, claim.weight.get());
                self.summary.raise_most(self.tasks.shelf(), sort, after);
                self.tasks.set_everywhere(task, sort, after);
                self.cpus.change_everywhere(task, sort, before, after);
            }
            Some(cpus) => {
                self.cpus.change_limited(task, before, claim, cpus, change);
                self.tasks.change_limited(task, if change == ClaimChange::More { 1 } else { -1 });
            }
        }
    }
}
