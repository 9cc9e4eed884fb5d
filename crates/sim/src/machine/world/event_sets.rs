//! Event sets: the world's books follow what the engine switches.
//!
//! **Invariant:** whether a set is on is foretold by the model ([`crate::oracle::event_set`]); the engine must say the same.

use super::events::SwitchOp;
use super::sets::Set;
use super::{Event, World};
use crate::oracle::event_set::position;
use pmux_engine::engine::SwitchError;
use pmux_engine::event_set::{Member, Position, SwitchRequest};
use pmux_engine::{ControlError, EventSetId};

/// What an event set of the machine switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwitchTarget {
    /// A system-wide set.
    Set(Set),
    /// The group of an event.
    Group(Event),
}

/// An event set that was gathered.
pub(super) struct EventSetBook {
    id: EventSetId,
    members: Vec<SwitchTarget>,
    requests: Vec<(u64, SwitchRequest)>,
    on: Position,
}

impl World {
    /// Puts these together: from now on they are switched together. Returns a number for the set.
    ///
    /// # Errors
    /// [`ControlError::Closed`] where one of them is closed.
    pub fn gather(&mut self, members: Vec<SwitchTarget>) -> Result<usize, ControlError> {
        let known: Option<Vec<Member>> = members.iter().map(|&member| self.member(member)).collect();
        let known = known.ok_or(ControlError::Closed)?;
        let id = self.call(|engine| engine.gather(known));
        self.event_sets.push(EventSetBook { id, members, requests: Vec::new(), on: Position::Off });
        Ok(self.event_sets.len() - 1)
    }

    fn member(&self, member: SwitchTarget) -> Option<Member> {
        match member {
            SwitchTarget::Set(set) => self.set_id(set).map(Member::Set),
            SwitchTarget::Group(event) => self.group_of(event).map(Member::Group),
        }
    }

    /// Takes a wish for an event set.
    ///
    /// # Errors
    /// The engine's.
    pub fn switch_event_set(&mut self, number: usize, request: SwitchRequest) -> Result<(), SwitchError> {
        let now = self.now().0;
        if let Some(book) = self.event_sets.get_mut(number) {
            book.requests.push((now, request));
        }
        self.switch_event_set_by(number, Some(request))
    }

    /// Switches what is due.
    ///
    /// # Errors
    /// The engine's, of the first that can't be switched.
    pub fn settle_event_sets(&mut self) -> Result<(), SwitchError> {
        (0..self.event_sets.len()).try_for_each(|number| self.switch_event_set_by(number, None))
    }

    /// Forgets all event sets; what is in them stays as it is.
    pub fn dissolve_event_sets(&mut self) {
        for book in std::mem::take(&mut self.event_sets) {
            self.call(|engine| engine.dissolve(book.id));
        }
    }

    fn switch_event_set_by(&mut self, number: usize, request: Option<SwitchRequest>) -> Result<(), SwitchError> {
        let now = self.now().0;
        let Some(book) = self.event_sets.get(number) else { return Err(SwitchError::Closed) };
        let (id, members, was, foretold) = (book.id, book.members.clone(), book.on, position(&book.requests, now));
        // Of what is closed there is nothing to note.
        let members: Vec<SwitchTarget> = members.into_iter().filter(|&member| self.member(member).is_some()).collect();
        let mut said = Ok(was);
        let mut act = |world: &mut Self| {
            said = world.call(|engine| match request {
                Some(request) => engine.switch_event_set(id, request),
                None => engine.settle_event_set(id),
            });
            match said {
                Err(SwitchError::Member { error, .. }) => Err(error),
                Err(SwitchError::Closed) => Err(ControlError::Closed),
                Ok(_) => Ok(()),
            }
        };
        // The error is in what the engine said.
        let _ = match (was, foretold) {
            (Position::Off, Position::On) => self.switch_members(&members, Position::On, &mut act),
            (Position::On, Position::Off) => self.switch_members(&members, Position::Off, &mut act),
            _ => act(self),
        };
        if said.is_err() && foretold == Position::On && was == Position::Off {
            // Whatever was enabled for a moment is off again.
            let _ = self.switch_members(&members, Position::Off, &mut |_| Ok(()));
        }
        let Some(book) = self.event_sets.get_mut(number) else { return Err(SwitchError::Closed) };
        match said {
            Ok(on) => {
                book.on = on;
                assert_eq!(on, foretold, "an event set is not where the model says, after {:?}", book.requests);
                Ok(())
            }
            Err(error) => {
                // The engine has forgotten all wishes.
                book.requests.push((now, SwitchRequest::Off));
                book.on = Position::Off;
                Err(error)
            }
        }
    }

    /// Does something that switches all of these: the books of each are told around it.
    fn switch_members(
        &mut self,
        members: &[SwitchTarget],
        to: Position,
        act: &mut dyn FnMut(&mut Self) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let on = to == Position::On;
        match members.split_first() {
            None => act(self),
            Some((&SwitchTarget::Set(set), rest)) => {
                self.switch_set(set, on, |world, _| world.switch_members(rest, to, act))
            }
            Some((&SwitchTarget::Group(event), rest)) => {
                let op = if on { SwitchOp::Enable } else { SwitchOp::Disable };
                self.switch_group(event, op, |world| world.switch_members(rest, to, act))
            }
        }
    }
}
