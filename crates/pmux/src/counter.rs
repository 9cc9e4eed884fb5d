//! The small way in: one counter, one closure.
//!
//! **Invariant:** everything here is [`Session::open`] with defaults.

use crate::counters::{Counters, Reading, Snapshot};
use crate::error::Error;
use crate::event::{Event, EventList, GroupKind, GroupStrength, ParsedGroup};
use crate::refusal::Refusal;
use crate::session::Session;
use crate::target::{Inherit, Options, Start, Target};
use pmux_engine::{Count, Nanos};

/// Events that are counted together or not at all: the leader first.
#[derive(Clone, PartialEq, Debug)]
pub struct Group(ParsedGroup);

impl Group {
    /// A group of these events.
    #[must_use]
    pub fn new(events: impl IntoIterator<Item = Event>) -> Self {
        let events = events.into_iter().collect();
        Self(ParsedGroup { name: None, events, kind: GroupKind::Braced, strength: GroupStrength::Strong })
    }
}

impl From<Event> for EventList {
    fn from(event: Event) -> Self {
        let kind = GroupKind::Single;
        Self { groups: vec![ParsedGroup { name: None, events: vec![event], kind, strength: GroupStrength::Strong }] }
    }
}

impl From<Group> for EventList {
    fn from(group: Group) -> Self {
        Self { groups: vec![group.0] }
    }
}

impl<E: Into<EventList>> FromIterator<E> for EventList {
    fn from_iter<I: IntoIterator<Item = E>>(lists: I) -> Self {
        Self { groups: lists.into_iter().flat_map(|list| list.into().groups).collect() }
    }
}

/// One event on one target.
///
/// ```
/// use pmux::{Counter, Event, Session, Target};
/// # fn main() -> Result<(), pmux::Error> {
/// let session = Session::new()?;
/// let faults = Counter::open(&session, Event::parse("page-faults")?, &Target::CurrentThread)?;
/// let before = faults.read()?.value;
/// let pages = vec![1_u8; 1 << 20];
/// assert!(faults.read()?.value > before, "{} bytes were touched", pages.len());
/// # Ok(())
/// # }
/// ```
pub struct Counter {
    counters: Counters,
}

impl Counter {
    /// Opens an event and lets it count; children of the target are not counted in.
    ///
    /// # Errors
    /// As [`Session::open`]; [`Error::Refused`] also where the event can't be counted here.
    pub fn open(session: &Session, event: Event, target: &Target<'_>) -> Result<Self, Error> {
        let options = Options { inherit: Inherit::None, start: Start::AtOnce, ..Options::default() };
        let counters = session.open(&EventList::from(event), target, options)?;
        match counters.refusal(0) {
            Some(refusal) => Err(Error::Refused(vec![refusal.clone()])),
            None => Ok(Self { counters }),
        }
    }

    /// Reads it *exactly*: asks the counter now.
    ///
    /// # Errors
    /// [`Error::Read`] where it is in error.
    pub fn read(&self) -> Result<Count, Error> {
        match self.counters.read_sole() {
            Some(count) => Ok(count?),
            None => count(self.counters.read().total(0)),
        }
    }

    /// Reads it *from memory*: the last exact reading, and how old that is.
    ///
    /// # Errors
    /// As [`Counter::read`].
    pub fn read_cached(&self) -> Result<(Count, Nanos), Error> {
        let (snapshot, age) = self.counters.read_cached();
        Ok((count(snapshot.total(0))?, age))
    }

    /// Lets it count (again).
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn enable(&self) -> Result<(), Error> {
        self.counters.enable()
    }

    /// Stops it; its count stays.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn disable(&self) -> Result<(), Error> {
        self.counters.disable()
    }

    /// Sets its count to 0; its times stay.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn reset(&self) -> Result<(), Error> {
        self.counters.reset()
    }
}

fn count(reading: Reading) -> Result<Count, Error> {
    match reading {
        Reading::Counted(count) => Ok(count),
        Reading::Failed(error) => Err(Error::Read(error)),
        Reading::Refused | Reading::Elsewhere => Err(Error::Refused(vec![Refusal::needs_kernel_events()])),
    }
}

impl Session {
    /// Counts what a closure costs the calling thread (and children that it starts).
    ///
    /// # Errors
    /// [`Error::Parse`] for the events; otherwise as [`Session::open`].
    pub fn count_closure<R>(&self, events: &[&str], closure: impl FnOnce() -> R) -> Result<(R, Snapshot), Error> {
        let events = EventList::parse(events, self.catalog())?;
        let options = Options { start: Start::Later, ..Options::default() };
        let counters = self.open(&events, &Target::CurrentThread, options)?;
        counters.enable()?;
        let result = closure();
        counters.disable()?;
        Ok((result, counters.read()))
    }
}
