//! Enabling and disabling a whole family, while it goes on forking.
//!
//! What it is: the order between a switch (enable or disable of a root's event, carried to every live child) and the
//! forks that are under way.
//! A fork notes [`Switches::mark`] before it looks at the parent's events. It may hand the child to the family only while
//! the mark is still good; otherwise it takes over what was switched since, and tries again. A switch makes marks stale
//! twice: when it begins (those who looked before it) and when it ends (those who looked in its midst); between the two it
//! goes on until no child has joined that it has not reached.
//!
//! **Invariant:** a child that joined is switched like all others by every switch that begins later.
//!
//! Linux: `perf_event_for_each_child` (kernel/events/core.c).

use alloc::vec::Vec;

/// Which way a family's event was switched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FamilySwitch {
    /// Enabled.
    On,
    /// Disabled.
    Off,
}

/// The state of a family's switches at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark(u64);

#[derive(Debug)]
pub(super) struct Switches {
    now: u64,
    joined: u64,
    /// For each count: which way it was switched last, and when.
    last: Vec<Option<(u64, FamilySwitch)>>,
}

impl Switches {
    pub(super) fn new(events: usize) -> Self {
        Self { now: 0, joined: 0, last: alloc::vec![None; events] }
    }

    pub(super) const fn mark(&self) -> Mark {
        Mark(self.now)
    }

    /// A child joins, if nothing was switched since `mark`.
    pub(super) const fn join(&mut self, mark: Mark) -> bool {
        let good = mark.0 == self.now;
        self.joined += good as u64;
        good
    }

    pub(super) fn since(&self, mark: Mark) -> impl Iterator<Item = (usize, FamilySwitch)> + '_ {
        self.last
            .iter()
            .enumerate()
            .filter_map(move |(index, last)| last.filter(|&(at, _)| at > mark.0).map(|(_, switch)| (index, switch)))
    }

    /// A switch of one of the counts begins, or ends.
    pub(super) fn note(&mut self, index: usize, switch: FamilySwitch) {
        self.now += 1;
        if let Some(last) = self.last.get_mut(index) {
            *last = Some((self.now, switch));
        }
    }

    pub(super) const fn joined(&self) -> u64 {
        self.joined
    }
}
