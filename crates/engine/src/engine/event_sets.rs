//! Event sets: everything that belongs together goes on and off together.
//!
//! What it is: wishes for one event set, each with the event set's turn, and the carrying out of what they order: in one pass over its
//! members, each of which goes over its CPUs once. The state machine is [`EventSet`].
//!
//! **Invariant:** an event set is never left half on. What can't be enabled takes back what was enabled before it.

use super::{Engine, EventSetCell};
use crate::error::ControlError;
use crate::event_set::{EventSet, Member, Position, SetOp, SwitchRequest};
use crate::host::Host;
use crate::id::{CpuId, EventSetId, GroupId, Nanos};
use crate::lock::{LockCell, Rank};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// Why an event set could not be switched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwitchError {
    /// The id names nothing (any more).
    Closed,
    /// One of its members could not be enabled: now none of them is, and all wishes are off.
    Member {
        /// Which one, by number from 0.
        member: usize,
        /// On which CPU, where it is a system-wide set and not closed.
        cpu: Option<CpuId>,
        /// Why.
        error: ControlError,
    },
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the event set is closed"),
            Self::Member { member, cpu: Some(cpu), error } => write!(f, "member {member} on CPU {cpu}: {error}"),
            Self::Member { member, cpu: None, error } => write!(f, "member {member}: {error}"),
        }
    }
}

impl core::error::Error for SwitchError {}

impl<H: Host> Engine<H> {
    /// Puts groups and system-wide sets together, so that they go on and off together. They are meant to be disabled; who
    /// opened them also closes them, when the event set was dissolved.
    pub fn gather(&self, members: Vec<Member>) -> EventSetId {
        let cell = EventSetCell::<H> { turn: LockCell::ranked(Rank::EventSet, EventSet::new(members)) };
        let cell = Arc::new(cell);
        self.registry.with(|registry| registry.event_sets.insert(cell))
    }

    /// Takes groups and system-wide sets into an event set, which are disabled: they go on now, if it is on, and from now on with it.
    ///
    /// # Errors
    /// [`SwitchError::Closed`]; [`SwitchError::Member`], by its number among those that come: then none of them is enabled, and
    /// none belongs to the event set.
    pub fn join_event_set(&self, set: EventSetId, members: Vec<Member>) -> Result<Position, SwitchError> {
        let cell = self.event_set_cell(set).ok_or(SwitchError::Closed)?;
        cell.turn.with(|state| {
            if state.position() == Position::On {
                self.enable_all(&members)?;
            }
            state.join(members);
            Ok(state.position())
        })
    }

    /// Takes a wish for an event set, and carries it out at once; returns whether the set is on now.
    ///
    /// # Errors
    /// [`SwitchError::Closed`]; [`SwitchError::Member`], after which none of the members is enabled. A refusal on a CPU that is
    /// going away is none.
    pub fn switch_event_set(&self, set: EventSetId, request: SwitchRequest) -> Result<Position, SwitchError> {
        self.with_event_set(set, |state, now| state.request(request, now))
    }

    /// Switches an event set whose time has come, if it has: to be called at [`Engine::event_set_next`].
    ///
    /// # Errors
    /// As [`Engine::switch_event_set`].
    pub fn settle_event_set(&self, set: EventSetId) -> Result<Position, SwitchError> {
        self.with_event_set(set, |state, now| state.settle(now))
    }

    /// When an event set goes on or off by itself, on the host's clock; `None` also where it is closed.
    pub fn event_set_next(&self, set: EventSetId) -> Option<Nanos> {
        let cell = self.event_set_cell(set)?;
        cell.turn.with(|state| state.next(self.host.now()))
    }

    /// Whether an event set is on; `None` where it is closed.
    pub fn event_set_position(&self, set: EventSetId) -> Option<Position> {
        self.event_set_cell(set).map(|cell| cell.turn.with(|state| state.position()))
    }

    /// Forgets an event set. Its members stay as they are.
    pub fn dissolve(&self, set: EventSetId) {
        drop(self.registry.with(|registry| registry.event_sets.remove(set)));
    }

    fn event_set_cell(&self, set: EventSetId) -> Option<Arc<EventSetCell<H>>> {
        self.registry.with(|registry| registry.event_sets.get(set).map(Arc::clone))
    }

    fn with_event_set(
        &self,
        set: EventSetId,
        step: impl FnOnce(&mut EventSet, Nanos) -> Option<SetOp>,
    ) -> Result<Position, SwitchError> {
        let cell = self.event_set_cell(set).ok_or(SwitchError::Closed)?;
        cell.turn.with(|state| {
            let Some(op) = step(state, self.host.now()) else { return Ok(state.position()) };
            match op {
                SetOp::Disable => self.disable_members(state.members()),
                SetOp::Enable => {
                    if let Err(error) = self.enable_all(state.members()) {
                        state.failed(self.host.now());
                        return Err(error);
                    }
                }
            }
            state.done(op);
            Ok(state.position())
        })
    }

    /// Enables all members, or none.
    fn enable_all(&self, members: &[Member]) -> Result<(), SwitchError> {
        self.enable_members(members).map_err(|(member, cpu, error)| {
            self.disable_members(members.get(..member).unwrap_or_default());
            SwitchError::Member { member, cpu, error }
        })
    }

    /// Enables members up to the first that can't be.
    fn enable_members(&self, members: &[Member]) -> Result<(), (usize, Option<CpuId>, ControlError)> {
        let mut first = 0;
        for run in runs(members) {
            match *run {
                [Member::Set(set)] => self.enable_set_on_cpus(set).map_err(|(cpu, error)| (first, cpu, error))?,
                _ => {
                    let groups: Vec<GroupId> = groups(run);
                    if let Err((number, error)) = self.enable_each(&groups) {
                        // Of a group that failed some may be on.
                        let _ = self.disable_each(groups.get(number..=number).unwrap_or_default());
                        return Err((first + number, None, error));
                    }
                }
            }
            first += run.len();
        }
        Ok(())
    }

    /// Disables members; those that are closed are not enabled either.
    fn disable_members(&self, members: &[Member]) {
        for run in runs(members) {
            match *run {
                [Member::Set(set)] => drop(self.disable_set(set)),
                _ => {
                    let mut left = &groups(run)[..];
                    // Behind one that fails the others follow.
                    while let Err((number, _)) = self.disable_each(left) {
                        left = left.get(number + 1..).unwrap_or_default();
                    }
                }
            }
        }
    }
}

/// Groups that stand beside each other together, and each system-wide set for itself.
fn runs(members: &[Member]) -> impl Iterator<Item = &[Member]> {
    members.chunk_by(|one, other| matches!((one, other), (Member::Group(_), Member::Group(_))))
}

fn groups(run: &[Member]) -> Vec<GroupId> {
    let group = |member: &Member| match member {
        Member::Group(group) => Some(*group),
        Member::Set(_) => None,
    };
    run.iter().filter_map(group).collect()
}
