//! The machine that this runs on: what is known of its counters.
//!
//! What it is: what is found by trying: whether there is a hardware PMU and how many events run on it at once, and how many
//! debug registers are free.
//! Read first: [`Here`].
//!
//! **Invariant:** found out or unknown, never assumed.

use pmux::event::{Access, EventList};
use pmux::{
    Backend, Event, Inherit, Multiplexing, Options, PmuCapacity, Probe, ReasonKind, Refusal, Session, Start, Target,
};

/// More debug registers than any machine has.
const TRIED: u64 = 17;
/// `ENOSPC`: every debug register is taken.
const NO_SPACE: i32 = 28;

/// What is tried beside the events that were named: whether a counter is for one event only, others must show.
const GENERIC: &str = "cycles,instructions,branches,branch-misses,cache-references,cache-misses,bus-cycles,ref-cycles,\
                       stalled-cycles-frontend,stalled-cycles-backend";

/// This machine.
pub(super) struct Here {
    session: Session,
}

/// Its hardware PMU.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Hardware {
    /// It has none, or none that may be used: why, in words.
    None { why: String },
    /// It has one, and how many events run on it at once is not known: why, in words.
    Unknown { why: String },
    /// So many of the events that were tried run at once.
    Counters(TriedCounters),
}

/// What was found by trying events.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TriedCounters {
    /// PMU by PMU; at least one. An event that is in none of them opens, and was not found out about.
    pub(super) capacities: Vec<PmuCapacity>,
    /// What became of each event: of those that were given, in their order, then of the others.
    pub(super) events: Vec<OpenAttempt>,
}

/// What became of an event that was tried.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum OpenAttempt {
    /// It opens, as this: perhaps with less than was asked for.
    As(Box<Event>),
    /// It doesn't.
    Refused(Refusal),
}

/// Its debug registers: those that are free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Debugging {
    /// So many, for code and for data.
    Shared(u8),
    /// So many for code, and so many for data.
    Separate { execute: u8, data: u8 },
    /// It could not be tried: why, in words.
    Unknown { why: String },
}

impl Here {
    /// Opens this machine.
    ///
    /// # Errors
    /// A text for the user.
    pub(super) fn new() -> Result<Self, String> {
        Session::new().map(|session| Self { session }).map_err(|error| crate::stat::error_message(&error))
    }

    /// How many CPUs are online.
    ///
    /// # Errors
    /// None in practice: the number of a CPU has 32 bits.
    pub(super) fn cpus(&self) -> Result<u32, String> {
        u32::try_from(self.session.online().len()).map_err(|error| error.to_string())
    }

    /// Whether performance events can be opened; if not, why.
    fn events(&self) -> Result<(), String> {
        match self.session.backend() {
            Backend::Kernel => Ok(()),
            Backend::Usage { why } => Err(why.summary.clone()),
        }
    }

    /// Its hardware PMUs: how many of these events run on them at once, found by trying, with some that most PMUs have.
    pub(super) fn hardware(&self, events: &[Event]) -> Hardware {
        if let Err(why) = self.events() {
            return Hardware::Unknown { why };
        }
        let tried = self.event("cycles:u").map(|event| self.session.probe(&event, &Target::CurrentThread));
        match tried {
            Ok(Ok(Probe::Opens | Probe::OpensChanged(_))) => self.counters(events),
            Ok(Ok(Probe::Refused(refusal))) if refusal.kind == ReasonKind::NotSupported => {
                Hardware::None { why: refusal.summary }
            }
            Ok(Ok(Probe::Refused(refusal))) => Hardware::Unknown { why: refusal.summary },
            Ok(Err(error)) => Hardware::Unknown { why: crate::stat::error_message(&error) },
            Err(why) => Hardware::Unknown { why },
        }
    }

    fn counters(&self, events: &[Event]) -> Hardware {
        let generic = GENERIC.split(',').filter(|name| events.iter().all(|event| event.name != *name));
        let generic = generic.filter_map(|name| self.event(name).ok());
        let list: EventList = events.iter().cloned().chain(generic).collect();
        let options = Options {
            inherit: Inherit::None,
            start: Start::Later,
            multiplexing: Multiplexing::Engine,
            ..Options::default()
        };
        match self.session.open(&list, &Target::CurrentThread, options) {
            Ok(counters) => {
                let opened = |(index, event): (usize, &Event)| match counters.refusal(index) {
                    Some(refusal) => OpenAttempt::Refused(refusal.clone()),
                    None => OpenAttempt::As(Box::new(event.clone())),
                };
                let capacities = counters.pmu_capacities();
                if capacities.is_empty() {
                    return Hardware::Unknown { why: "trying it has shown nothing".to_owned() };
                }
                let events = counters.events().iter().enumerate().map(opened).collect();
                Hardware::Counters(TriedCounters { capacities, events })
            }
            Err(error) => Hardware::Unknown { why: crate::stat::error_message(&error) },
        }
    }

    fn event(&self, text: &str) -> Result<Event, String> {
        Event::parse_with(text, self.session.catalog()).map_err(|error| error.to_string())
    }

    /// Its free debug registers, found by taking them all for a moment.
    pub(super) fn debug_registers(&self) -> Debugging {
        let tried = self.events().and_then(|()| {
            let data = self.take(TRIED, 0)?;
            let code = self.take(0, TRIED)?;
            Ok((data, code, self.take(TRIED, TRIED)?))
        });
        match tried {
            Ok((data, execute, both)) if both == data.max(execute) => Debugging::Shared(both),
            Ok((data, execute, both)) if both == data + execute => Debugging::Separate { execute, data },
            Ok(_) => Debugging::Unknown { why: "others take and give back some at this moment".to_owned() },
            Err(why) => Debugging::Unknown { why },
        }
    }

    /// How many of so many breakpoints for data and for code are granted.
    fn take(&self, data: u64, code: u64) -> Result<u8, String> {
        let kinds = [(data, Access::WRITE), (code, Access::EXECUTE)];
        let breakpoints = kinds.into_iter().flat_map(|(count, access)| {
            // Nothing is mapped so low, and nothing is counted: they are never enabled.
            (1..=count).map(move |number| Event::breakpoint(0x1000 * number, access.default_len(), access))
        });
        let events = breakpoints.map(|event| event.with_modifiers("u"));
        let events = events.collect::<Result<EventList, _>>().map_err(|error| error.to_string())?;
        let options = Options { inherit: Inherit::None, start: Start::Later, ..Options::default() };
        let open = self.session.open(&events, &Target::CurrentThread, options);
        let open = open.map_err(|error| crate::stat::error_message(&error))?;
        let mut granted = 0;
        for event in 0..open.events().len() {
            match open.refusal(event) {
                None => granted += 1,
                Some(refusal) if refusal.errno == Some(NO_SPACE) => {}
                Some(refusal) => return Err(refusal.summary.clone()),
            }
        }
        Ok(granted)
    }
}
