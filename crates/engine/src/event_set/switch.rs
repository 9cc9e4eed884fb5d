//! Whether a set is on.
//!
//! What it is: what was asked of a set, put together: on or off until told otherwise, on or off for a while, on while it is held.
//!
//! **Invariant:** a span that was promised gets longer by the next promise, never shorter; only the opposite wish ends it.

use crate::id::Nanos;
use alloc::collections::BTreeSet;

/// Whether a set is on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Position {
    /// Its events are enabled.
    On,
    /// They are not.
    #[default]
    Off,
}

/// What is asked of a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SwitchRequest {
    /// On until told otherwise.
    On,
    /// Off until told otherwise: also for those who hold it on.
    Off,
    /// On for so long at least; afterwards as it would be without.
    OnFor(Nanos),
    /// Off for so long at least; afterwards as it would be without.
    OffFor(Nanos),
    /// On as long as this holder holds it; each has a number.
    Hold(u32),
    /// This holder holds it no longer.
    Release(u32),
}

/// The wishes for one set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SwitchState {
    base: Position,
    on_until: Nanos,
    off_until: Nanos,
    holders: BTreeSet<u32>,
}

impl SwitchState {
    /// One that is on or off.
    #[must_use]
    pub fn new(base: Position) -> Self {
        Self { base, ..Self::default() }
    }

    /// Takes a wish. The last one wins: a wish for on ends one for off that lasts, and the other way round.
    pub fn request(&mut self, request: SwitchRequest, now: Nanos) {
        match request {
            SwitchRequest::On | SwitchRequest::OnFor(_) | SwitchRequest::Hold(_) => self.off_until = Nanos::ZERO,
            SwitchRequest::OffFor(_) => self.on_until = Nanos::ZERO,
            SwitchRequest::Off => {
                (self.on_until, self.off_until) = (Nanos::ZERO, Nanos::ZERO);
                self.holders.clear();
            }
            SwitchRequest::Release(_) => {}
        }
        match request {
            SwitchRequest::On => self.base = Position::On,
            SwitchRequest::Off => self.base = Position::Off,
            SwitchRequest::OnFor(span) => self.on_until = self.on_until.max(now + span),
            SwitchRequest::OffFor(span) => self.off_until = self.off_until.max(now + span),
            SwitchRequest::Hold(holder) => drop(self.holders.insert(holder)),
            SwitchRequest::Release(holder) => drop(self.holders.remove(&holder)),
        }
    }

    /// Whether it is on now.
    #[must_use]
    pub fn position(&self, now: Nanos) -> Position {
        let on = self.base == Position::On || !self.holders.is_empty() || self.on_until > now;
        if on && self.off_until <= now { Position::On } else { Position::Off }
    }

    /// When it goes on or off by itself.
    #[must_use]
    pub fn next(&self, now: Nanos) -> Option<Nanos> {
        let here = self.position(now);
        let mut ends = [self.on_until, self.off_until];
        ends.sort_unstable();
        ends.into_iter().find(|&at| at > now && self.position(at) != here)
    }
}
