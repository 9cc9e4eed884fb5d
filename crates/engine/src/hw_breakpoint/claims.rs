//! The claims of one task.
//!
//! What it is: a short list, in the order in which they were granted. A task has hardly ever more than there are registers on most
//! machines: so many stand with it, and a caller that asks and gives back allocates nothing.
//!
//! Where a task has one or two, what is looked at ends a line of the cache before the list does: tasks whose entries lie side by side
//! in memory, because one thread brought them, don't disturb the threads that they belong to later.
//!
//! **Invariant:** as long as there is room with the task, nothing stands apart.

use super::tasks::{ClaimNumber, TaskClaim};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// So many stand with the task.
const FEW: usize = 4;

#[derive(Default, Debug)]
#[repr(C)]
pub(super) struct Claims {
    len: usize,
    #[allow(clippy::box_collection)] // hardly any task has it: its place must be small
    more: Option<Box<Vec<TaskClaim>>>,
    few: [Option<TaskClaim>; FEW],
}

impl Claims {
    pub(super) fn iter(&self) -> impl Iterator<Item = &TaskClaim> {
        let few = self.few.iter().take(self.len).flatten();
        few.chain(self.more.iter().flat_map(|more| more.iter()))
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn position(&self, number: ClaimNumber) -> Option<usize> {
        let is_it = |claim: &Option<TaskClaim>| claim.as_ref().is_some_and(|claim| claim.number == number);
        let few = self.few.iter().take(self.len).position(is_it);
        few.or_else(|| Some(FEW + self.more.as_ref()?.iter().position(|claim| claim.number == number)?))
    }

    pub(super) fn find(&self, number: ClaimNumber) -> Option<&TaskClaim> {
        let at = self.position(number)?;
        match at.checked_sub(FEW) {
            None => self.few.get(at)?.as_ref(),
            Some(behind) => self.more.as_ref()?.get(behind),
        }
    }

    pub(super) fn find_mut(&mut self, number: ClaimNumber) -> Option<&mut TaskClaim> {
        let at = self.position(number)?;
        match at.checked_sub(FEW) {
            None => self.few.get_mut(at)?.as_mut(),
            Some(behind) => self.more.as_mut()?.get_mut(behind),
        }
    }

    pub(super) fn push(&mut self, claim: TaskClaim) {
        match self.few.get_mut(self.len) {
            Some(place) => *place = Some(claim),
            None => self.more.get_or_insert_default().push(claim),
        }
        self.len += 1;
    }

    pub(super) fn remove(&mut self, number: ClaimNumber) -> Option<TaskClaim> {
        let at = self.position(number)?;
        self.len -= 1;
        let last = self.len;
        if let Some(behind) = at.checked_sub(FEW) {
            return Some(self.more.as_mut()?.remove(behind));
        }
        // Mostly there is nothing behind it.
        self.few.get_mut(at..=last.min(FEW - 1))?.rotate_left(1);
        let removed = self.few.get_mut(last.min(FEW - 1))?;
        match self.more.as_mut().filter(|_| last >= FEW) {
            Some(more) => removed.replace(more.remove(0)),
            None => removed.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw_breakpoint::{Claim, Holder, Kind};
    use proptest::prelude::*;

    fn claim(number: u32) -> TaskClaim {
        TaskClaim { number: ClaimNumber(number), claim: Claim::one(Kind::Data), holder: Holder::Opening, cpus: None }
    }

    proptest! {
        #[test]
        fn claims_are_a_list(steps in proptest::collection::vec((any::<bool>(), 0_usize..9), 1..60)) {
            let (mut claims, mut list, mut next) = (Claims::default(), Vec::new(), 0);
            for (more, which) in steps {
                if more {
                    claims.push(claim(next));
                    list.push(next);
                    next += 1;
                } else if which < list.len() {
                    let number = list.remove(which);
                    prop_assert_eq!(claims.remove(ClaimNumber(number)).map(|claim| claim.number.0), Some(number));
                } else {
                    prop_assert!(claims.remove(ClaimNumber(next)).is_none());
                }
                prop_assert!(claims.iter().map(|claim| claim.number.0).eq(list.iter().copied()));
                prop_assert_eq!((claims.len(), claims.is_empty()), (list.len(), list.is_empty()));
                for &number in &list {
                    prop_assert_eq!(claims.find_mut(ClaimNumber(number)).map(|claim| claim.number.0), Some(number));
                }
                prop_assert!(claims.more.as_ref().is_none_or(|more| more.is_empty()) || claims.few[FEW - 1].is_some());
            }
        }
    }
}
