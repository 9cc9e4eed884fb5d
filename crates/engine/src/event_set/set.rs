//! One event set: groups over CPUs and on tasks, switched together.
//!
//! What it is: what was asked of the set, and what has been carried out. A step leaves an order; the code that drives the set carries
//! that out and says what came of it.
//!
//! **Invariant:** an order is left only where what was carried out last is not what is wanted now.

use super::switch::{Position, SwitchRequest, SwitchState};
use crate::id::{GroupId, Nanos, SetId};
use alloc::vec::Vec;

/// What is switched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Member {
    /// A system-wide set, on all of its CPUs; also on those that come while it is on.
    Set(SetId),
    /// A group, with those of children where it is inherited.
    Group(GroupId),
}

/// What is to be done with all members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetOp {
    /// They are enabled: all of them or none.
    Enable,
    /// They are disabled.
    Disable,
}

/// An event set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventSet {
    members: Vec<Member>,
    switch: SwitchState,
    carried_out: Position,
}

impl EventSet {
    /// One whose members are all disabled.
    #[must_use]
    pub fn new(members: Vec<Member>) -> Self {
        Self { members, switch: SwitchState::default(), carried_out: Position::Off }
    }

    /// What it switches.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Takes in members that are switched as the others are from now on, and stand as these do.
    pub fn join(&mut self, members: Vec<Member>) {
        self.members.extend(members);
    }

    /// What has been carried out.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.carried_out
    }

    /// When it goes on or off by itself: then [`EventSet::settle`] is to be called.
    #[must_use]
    pub fn next(&self, now: Nanos) -> Option<Nanos> {
        self.switch.next(now)
    }

    /// Takes a wish. Returns what is to be done now.
    #[must_use]
    pub fn request(&mut self, request: SwitchRequest, now: Nanos) -> Option<SetOp> {
        self.switch.request(request, now);
        self.settle(now)
    }

    /// Returns what is to be done now.
    #[must_use]
    pub fn settle(&self, now: Nanos) -> Option<SetOp> {
        match (self.carried_out, self.switch.position(now)) {
            (Position::Off, Position::On) => Some(SetOp::Enable),
            (Position::On, Position::Off) => Some(SetOp::Disable),
            _ => None,
        }
    }

    /// An order has been carried out.
    pub fn done(&mut self, op: SetOp) {
        self.carried_out = match op {
            SetOp::Enable => Position::On,
            SetOp::Disable => Position::Off,
        };
    }

    /// The members could not be enabled: none of them is. All wishes are off, so that it is not tried again and again.
    pub fn failed(&mut self, now: Nanos) {
        self.switch.request(SwitchRequest::Off, now);
        self.carried_out = Position::Off;
    }
}
