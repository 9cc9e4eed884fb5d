//! The machine that this runs on: what is known of its counters.
//!
//! What it is: what is found by trying: whether there is a hardware PMU and how many events run on it at once, and how many
//! debug registers are free.
//! Read first: [`Here`].
//!
//! **Invariant:** found out or unknown, never assumed.

use crate::stat::error_message;
use pmux::event::{Access, EventList};
use pmux::{
    Backend, Event, Inherit, Multiplexing, Options, PmuCapacity, Probe, ReasonKind, Refusal, Session, Start, Target,
};
use pmux_plan::machine::PmuDescription;

/// More debug registers than any machine has.
const TRIED: u64 = 17;
/// `ENOSPC`: every debug register is taken.
const NO_SPACE: i32 = 28;

/// What is tried beside the events that were named: whether a counter is for one event only, others must show.
const GENERIC: &str = "cycles,instructions,branches,branch-misses,cache-references,cache-misses,bus-cycles,ref-cycles,\
                       stalled-cycles-frontend,stalled-cycles-backend";

pub(super) struct Here {
    session: Session,
}

/// What was found by trying events.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TriedCounters {
    /// PMU by PMU; at least one. An event that is in none of them opens, and was not found out about.
    pub(super) capacities: Vec<PmuCapacity>,
    /// As what each event opens, perhaps with less than was asked for, or why it doesn't: of those that were given, in their order, then
    /// of the others.
    pub(super) events: Vec<Result<Event, Refusal>>,
}

impl Here {
    /// Opens this machine.
    pub(super) fn new() -> Result<Self, String> {
        Session::new().map(|session| Self { session }).map_err(|error| error_message(&error))
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
    ///
    /// # Errors
    /// A text for the user: there is none that may be used, or how many run at once is not known.
    pub(super) fn hardware(&self, events: &[Event]) -> Result<TriedCounters, String> {
        let unknown =
            |why: String| format!("how many counters the hardware PMU of this machine has is not known ({why})");
        self.events().map_err(unknown)?;
        let cycles = self.event("cycles:u").map_err(unknown)?;
        match self.session.probe(&cycles, &Target::CurrentThread) {
            Ok(Probe::Opens | Probe::OpensChanged(_)) => self.counters(events).map_err(unknown),
            Ok(Probe::Refused(refusal)) if refusal.kind == ReasonKind::NotSupported => Err(refusal.summary),
            Ok(Probe::Refused(refusal)) => Err(unknown(refusal.summary)),
            Err(error) => Err(unknown(error_message(&error))),
        }
    }

    fn counters(&self, events: &[Event]) -> Result<TriedCounters, String> {
        let generic = GENERIC.split(',').filter(|name| events.iter().all(|event| event.name != *name));
        let generic = generic.filter_map(|name| self.event(name).ok());
        let list: EventList = events.iter().cloned().chain(generic).collect();
        let options = Options {
            inherit: Inherit::None,
            start: Start::Later,
            multiplexing: Multiplexing::Engine,
            ..Options::default()
        };
        let counters = self.session.open(&list, &Target::CurrentThread, options);
        let counters = counters.map_err(|error| error_message(&error))?;
        let capacities = counters.pmu_capacities();
        if capacities.is_empty() {
            return Err("trying it has shown nothing".to_owned());
        }
        let opened = |(index, event): (usize, &Event)| match counters.refusal(index) {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(event.clone()),
        };
        let events = counters.events().iter().enumerate().map(opened).collect();
        Ok(TriedCounters { capacities, events })
    }

    fn event(&self, text: &str) -> Result<Event, String> {
        Event::parse_with(text, self.session.catalog()).map_err(|error| error.to_string())
    }

    /// Its free debug registers, found by taking them all for a moment; `None` where that can't be tried.
    pub(super) fn debug_registers(&self) -> Option<PmuDescription> {
        self.events().ok()?;
        let (data, execute) = (self.take(TRIED, 0)?, self.take(0, TRIED)?);
        match self.take(TRIED, TRIED)? {
            both if both == data.max(execute) => Some(PmuDescription::breakpoints(both)),
            both if both == data + execute => Some(PmuDescription::separate_breakpoints(execute, data)),
            // Others take and give back some at this moment.
            _ => None,
        }
    }

    /// How many of so many breakpoints for data and for code are granted.
    fn take(&self, data: u64, code: u64) -> Option<u8> {
        let kinds = [(data, Access::WRITE), (code, Access::EXECUTE)];
        let breakpoints = kinds.into_iter().flat_map(|(count, access)| {
            // Nothing is mapped so low, and nothing is counted: they are never enabled.
            (1..=count).map(move |number| Event::breakpoint(0x1000 * number, access.default_len(), access))
        });
        let events = breakpoints.map(|event| event.with_modifiers("u"));
        let events = events.collect::<Result<EventList, _>>().ok()?;
        let options = Options { inherit: Inherit::None, start: Start::Later, ..Options::default() };
        let open = self.session.open(&events, &Target::CurrentThread, options).ok()?;
        let mut granted = 0;
        for event in 0..open.events().len() {
            match open.refusal(event) {
                None => granted += 1,
                Some(refusal) if refusal.errno == Some(NO_SPACE) => {}
                Some(_) => return None,
            }
        }
        Some(granted)
    }
}
