//! Sets of events by name, which rules switch on and off.
//!
//! What it is: names for the engine's event sets, and the actions `set NAME …` carried out.
//!
//! A pass of ioctls switches a set, not a BPF program that asks a flag. A program at a tracepoint's event runs before all events of
//! that tracepoint, so its refusal would take samples from the recordings of others. A program at a counter drops the sample and
//! leaves the interrupt, so a set that is off would cost nearly as much as one that is on.
//!
//! **Invariant:** a set is on as a whole or off as a whole; what can't be switched on stays off, and is said.

use super::engine::nanos;
use super::events::TriggerEvent;
use super::language::{Action, Rule, Switching};
use crate::counters::Counters;
use crate::exact::Switchable;
use crate::session::Session;
use pmux_engine::engine::SwitchError;
use pmux_engine::event_set::{Member, Position, SwitchRequest};
use pmux_engine::{EventSetId, Nanos};

/// Sets of events by name.
///
/// ```
/// use pmux::trigger::{Action, EventSets, Position, Switching};
/// use pmux::{EventList, Options, Session, Start, Target};
/// # fn main() -> Result<(), pmux::Error> {
/// let session = Session::new()?;
/// let events = EventList::parse(&["page-faults"], session.catalog())?;
/// let fine = session.open(&events, &Target::CurrentThread, Options { start: Start::Later, ..Options::default() })?;
/// let mut sets = EventSets::new(&session);
/// sets.add("fine", &[&fine]);
/// let on = Action::Set { name: "fine".to_owned(), to: Switching::On };
/// let switched = sets.carry_out(&on).expect("there is such a set");
/// assert_eq!(switched.result, Ok(Position::On));
/// # Ok(())
/// # }
/// ```
pub struct EventSets {
    session: Session,
    sets: Vec<(String, EventSetId)>,
}

/// What became of a wish for a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switched {
    /// Which set.
    pub name: String,
    /// Whether it is on now; or why it could not be switched on.
    pub result: Result<Position, SwitchError>,
}

impl EventSets {
    /// No sets yet.
    #[must_use]
    pub fn new(session: &Session) -> Self {
        Self { session: session.clone(), sets: Vec::new() }
    }

    /// Makes a set of counters that were opened for [`crate::Start::Later`]. Who opened them also reads and closes them.
    pub fn add(&mut self, name: &str, counters: &[&Counters]) {
        self.gather(name, counters.iter().flat_map(|counters| counters.members()).collect());
    }

    /// As [`EventSets::add`], of what was opened exactly.
    pub fn add_exactly(&mut self, name: &str, members: impl IntoIterator<Item = Switchable>) {
        self.gather(name, members.into_iter().map(|Switchable(member)| member).collect());
    }

    /// As [`EventSets::add`], for whatever the session's engine can switch.
    pub(crate) fn gather(&mut self, name: &str, members: Vec<Member>) -> EventSetId {
        let set = self.session.engine().gather(members);
        self.sets.push((name.to_owned(), set));
        set
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.sets.iter().map(|(name, _)| name.as_str())
    }

    /// Whether a set is on; `None` where there is no such set.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<Position> {
        self.session.engine().event_set_position(self.find(name)?)
    }

    /// Carries out an action, where it is one on a set; a set that is to be on while something holds is left to
    /// [`EventSets::follow`]. `None` where nothing was to be done.
    #[must_use]
    pub fn carry_out(&self, action: &Action) -> Option<Switched> {
        let Action::Set { name, to } = action else { return None };
        let request = match *to {
            Switching::On => SwitchRequest::On,
            Switching::Off => SwitchRequest::Off,
            Switching::OnFor(span) => SwitchRequest::OnFor(nanos(span)),
            Switching::OffFor(span) => SwitchRequest::OffFor(nanos(span)),
            Switching::WhileItHolds => return None,
        };
        Some(self.request(name, request))
    }

    /// Switches what is to be on while a condition holds, where the news are that one begins to hold or does no longer.
    #[must_use]
    pub fn follow(&self, rules: &[Rule], event: &TriggerEvent) -> Vec<Switched> {
        let (rule, begins) = match *event {
            TriggerEvent::Begins { rule, .. } => (rule, true),
            TriggerEvent::Ends { rule, .. } => (rule, false),
            _ => return Vec::new(),
        };
        let holder = u32::try_from(rule).unwrap_or(u32::MAX);
        let request = if begins { SwitchRequest::Hold(holder) } else { SwitchRequest::Release(holder) };
        let held = |action: &Action| match action {
            Action::Set { name, to: Switching::WhileItHolds } => Some(self.request(name, request)),
            _ => None,
        };
        rules.get(rule).into_iter().flat_map(|rule| &rule.actions).filter_map(held).collect()
    }

    /// When a set goes on or off by itself: then [`EventSets::settle`] is to be called.
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        self.sets.iter().filter_map(|(_, set)| self.session.engine().event_set_next(*set)).min()
    }

    /// Switches those whose time has come.
    #[must_use]
    pub fn settle(&self) -> Vec<Switched> {
        let engine = self.session.engine();
        let settled = |(name, set): &(String, EventSetId)| {
            let before = engine.event_set_position(*set);
            let result = engine.settle_event_set(*set);
            (result.ok() != before).then(|| Switched { name: name.clone(), result })
        };
        self.sets.iter().filter_map(settled).collect()
    }

    fn find(&self, name: &str) -> Option<EventSetId> {
        self.sets.iter().find(|(known, _)| known == name).map(|&(_, set)| set)
    }

    /// Asks something of a set.
    #[must_use]
    pub fn request(&self, name: &str, request: SwitchRequest) -> Switched {
        let set = self.find(name).ok_or(SwitchError::Closed);
        let result = set.and_then(|set| self.session.engine().switch_event_set(set, request));
        Switched { name: name.to_owned(), result }
    }
}

impl Drop for EventSets {
    fn drop(&mut self) {
        self.sets.iter().for_each(|(_, set)| self.session.engine().dissolve(*set));
    }
}
