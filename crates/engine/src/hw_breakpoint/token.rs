//! What a grant is held by: a token at first, then a reservation.
//!
//! **Invariant:** what is granted is held by exactly one of the two, and given back once.

use super::cpus::ClaimId;
use super::ledger::{Ledger, Locks};
use super::tasks::ClaimNumber;
use crate::id::TaskId;
use core::fmt;
use core::mem::ManuallyDrop;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClaimRef {
    Task(TaskId, ClaimNumber),
    Cpus(ClaimId),
}

/// Registers that are held until [`Ledger::release`]; dropping it releases nothing.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "registers are held until the reservation is released"]
pub struct Reservation(pub(super) ClaimRef);

/// Registers that are held until the token is dropped, or for longer if it is committed.
#[must_use = "a token that is dropped gives its registers back"]
pub struct Token<'a, L: Locks> {
    ledger: &'a Ledger<L>,
    entry: ClaimRef,
}

impl<'a, L: Locks> Token<'a, L> {
    pub(super) const fn new(ledger: &'a Ledger<L>, Reservation(entry): Reservation) -> Self {
        Self { ledger, entry }
    }

    /// Keeps the registers.
    pub fn commit(self) -> Reservation {
        Reservation(ManuallyDrop::new(self).entry)
    }
}

impl<L: Locks> Drop for Token<'_, L> {
    fn drop(&mut self) {
        self.ledger.release(Reservation(self.entry));
    }
}

impl<L: Locks> fmt::Debug for Token<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.entry).finish()
    }
}
