//! Event sets and triggers, as scenarios say them.
//!
//! **Invariant:** plain data.

use super::{ControlTarget, Name};
use pmux_engine::Nanos;
use pmux_engine::event_set::{Position, Rounds, SwitchRequest};

/// `set fine = s, {g1}`: these are off, and from now on they go on and off together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventSet {
    /// Its name.
    pub name: Name,
    /// What is in it, at least one: sets, and events with their groups.
    pub members: Vec<ControlTarget>,
}

/// `fine on for 5ms`: where an event set goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switching {
    /// Which event set.
    pub set: Name,
    /// Where to.
    pub to: Position,
    /// For how long at least; `None`: until told otherwise.
    pub span: Option<Nanos>,
}

impl Switching {
    /// What is asked of the engine.
    #[must_use]
    pub fn request(&self) -> SwitchRequest {
        match (self.to, self.span) {
            (Position::On, None) => SwitchRequest::On,
            (Position::Off, None) => SwitchRequest::Off,
            (Position::On, Some(span)) => SwitchRequest::OnFor(span),
            (Position::Off, Some(span)) => SwitchRequest::OffFor(span),
        }
    }
}

/// `trigger hot = e over 10/ms for 5ms every 2 once switches fine on for 20ms`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// Its name.
    pub name: Name,
    /// Whose rate.
    pub event: Name,
    /// More than so many.
    pub amount: u64,
    /// In so much time; never zero.
    pub per: Nanos,
    /// For how long; zero: at once.
    pub held: Nanos,
    /// Which of its occurrences: each so many-th, from 1.
    pub every: u32,
    /// How often.
    pub rounds: Rounds,
    /// What happens then.
    pub switches: Switching,
}
