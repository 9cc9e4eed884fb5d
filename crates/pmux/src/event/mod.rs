//! Events: what to count, from text or from code.
//!
//! What it is: the event syntax people know from `perf`, resolved on this machine to attributes that the kernel takes.
//! Read first: [`Event`] and [`EventList`]; then `syntax` (text to tree) and `resolve` (tree to events).
//!
//! **Invariant:** it opens no event. It looks at the machine only for names that are not the same on every Linux: PMUs,
//! their events, tracepoints, and the code that a probe names.
//!
//! Machines with several kinds of core (`cpu_core`, `cpu_atom`): a generic name such as `cycles` stays one event of type 0,
//! which the kernel counts on the kind of core that it gives that type to. `cpu_atom/cpu-cycles/` names the other.

mod breakpoint;
mod cache;
mod encoding;
pub(crate) mod error;
pub mod list;
mod modifiers;
mod names;
pub(crate) mod nearest;
mod pmu_terms;
mod probe;
mod resolve;
mod suggest;
mod syntax;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

#[doc(hidden)]
pub use nearest::distance;
use pmux_abi::attr::{Attr, EventType, Sampling};
pub use pmux_linux::catalog::{AliasExtent, AliasKind, Catalog, CatalogError, PmuCpus};

pub use crate::text::TextError;
pub(crate) use crate::text::printable;
pub use breakpoint::Access;
pub use cache::{Cache, CacheEvent, CacheOp, CacheResult};
use modifiers::GuestDefault;
pub(crate) use modifiers::LEVELS;
pub use modifiers::{Modifier, Modifiers};
pub use names::{Generic, Hardware, Software, ToolEvent};
pub use probe::ProbeAt;

/// Who counts an event.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum EventSource {
    /// The kernel, in this PMU. For generic hardware events the name is `cpu`, whatever the core PMU is called here.
    Kernel {
        /// The PMU's name in sysfs.
        pmu: String,
    },
    /// pmux itself. The attribute is then the dummy event, which counts nothing.
    Tool(ToolEvent),
}

/// Something to count, complete but for what a session adds: nothing of `read_format` or inheritance is set here.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// What a table shows: the text as typed, with aliases and modifiers, or the `name=` term.
    pub name: String,
    /// The one name of a generic event, whatever was typed: `cycles` for `cpu-cycles`, `0` or `cpu/cpu-cycles/`. Empty for
    /// events that have none.
    pub canonical: String,
    /// Who counts it.
    pub source: EventSource,
    /// The question to the kernel.
    pub attr: Attr,
    /// The unit of the scaled count; empty for plain numbers.
    pub unit: String,
    /// What the count has to be multiplied by to be in that unit.
    pub scale: f64,
    /// The CPUs on which it can be opened.
    pub cpus: PmuCpus,
    /// Whether it adds up or shows a level.
    pub kind: AliasKind,
    /// Whether one count covers a whole package.
    pub extent: AliasExtent,
    /// The modifiers, those of its group included.
    pub modifiers: Modifiers,
    /// The `period` or `freq` term. The attribute doesn't have it: only a session that samples takes it over.
    pub sampling: Sampling,
    /// Which events come from one name that stands for several PMUs: they have the same number here, and their sum is
    /// what was asked for.
    pub spread: Option<u32>,
    /// The fields of a PMU event by name, aliases replaced: `event=0x3c,umask=0x0`.
    pub fields: String,
}

impl Event {
    fn new(name: String, kind: EventType, config: u64, pmu: &str) -> Self {
        let attr = Attr { kind, config, ..Attr::default() };
        let mut event = Self {
            name,
            canonical: String::new(),
            source: EventSource::Kernel { pmu: pmu.to_owned() },
            attr,
            unit: String::new(),
            scale: 1.0,
            cpus: PmuCpus::Any,
            kind: AliasKind::Sum,
            extent: AliasExtent::Cpu,
            modifiers: Modifiers::NONE,
            sampling: Sampling::None,
            spread: None,
            fields: String::new(),
        };
        Modifiers::NONE.on_event(&mut event.attr, GuestDefault::Excluded);
        event
    }

    /// A generalised hardware event.
    #[must_use]
    pub fn hardware(event: Hardware) -> Self {
        let canonical = event.canonical();
        let made = Self::new(canonical.to_owned(), EventType::HARDWARE, event.config(), "cpu");
        Self { canonical: canonical.to_owned(), ..made }
    }

    /// A software event. The two clocks count nanoseconds and are shown in milliseconds.
    #[must_use]
    pub fn software(event: Software) -> Self {
        let canonical = event.canonical();
        let mut made = Self::new(canonical.to_owned(), EventType::SOFTWARE, event.config(), "software");
        made.canonical = canonical.to_owned();
        if matches!(event, Software::CpuClock | Software::TaskClock) {
            made.unit = "msec".to_owned();
            made.scale = 1e-6;
        }
        made
    }

    /// A generalised cache event.
    #[must_use]
    pub fn cache(event: CacheEvent) -> Self {
        let made = Self::new(event.name(), EventType::HW_CACHE, event.config(), "cpu");
        Self { canonical: event.name(), ..made }
    }

    /// A raw event of the core PMU.
    #[must_use]
    pub fn raw(config: u64) -> Self {
        Self::new(format!("r{config:x}"), EventType::RAW, config, "cpu")
    }

    /// Accesses to an address: `len` is in bytes.
    #[must_use]
    pub fn breakpoint(address: u64, len: u64, access: Access) -> Self {
        let mut made = Self::new(format!("mem:{address:#x}/{len}:{access}"), EventType::BREAKPOINT, 0, "breakpoint");
        made.attr.config1 = address;
        made.attr.config2 = len;
        made.attr.bp_type = access.bits();
        made
    }

    /// A tracepoint, whose number is read from tracefs.
    ///
    /// # Errors
    /// [`CatalogError::NoTracefs`], [`CatalogError::Denied`] or [`CatalogError::NoSuchTracepoint`].
    pub fn tracepoint(catalog: &Catalog, system: &str, name: &str) -> Result<Self, CatalogError> {
        let id = catalog.tracepoint(system, name)?;
        Ok(Self::new(format!("{system}:{name}"), EventType::TRACEPOINT, id, "tracepoint"))
    }

    /// What pmux measures itself.
    #[must_use]
    pub fn tool(event: ToolEvent) -> Self {
        let canonical = event.canonical().to_owned();
        let made = Self::new(canonical.clone(), EventType::SOFTWARE, Software::Dummy.config(), "software");
        let unit = if event == ToolEvent::MaxRss { "bytes" } else { "ns" };
        Self { canonical, unit: unit.to_owned(), source: EventSource::Tool(event), ..made }
    }

    /// An event with a name that every machine knows.
    #[must_use]
    pub fn generic(event: Generic) -> Self {
        match event {
            Generic::Hardware(event) => Self::hardware(event),
            Generic::Software(event) => Self::software(event),
            Generic::Cache(event) => Self::cache(event),
            Generic::Raw(config) => Self::raw(config),
            Generic::Tool(event) => Self::tool(event),
        }
    }

    /// Reads one event, on this machine.
    ///
    /// ```
    /// # use pmux::event::Event;
    /// let faults = Event::parse("faults:u").expect("every Linux has it");
    /// assert_eq!(faults.canonical, "page-faults");
    /// ```
    ///
    /// # Errors
    /// [`TextError`] if it can't be understood, isn't there, or stands for more than one.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        static CATALOG: OnceLock<Catalog> = OnceLock::new();
        Self::parse_with(text, CATALOG.get_or_init(Catalog::system))
    }

    /// Reads one event, on the machine that a catalog describes.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_with(text: &str, catalog: &Catalog) -> Result<Self, TextError> {
        let events: Vec<Self> = EventList::parse(&[text], catalog)?.into_events().collect();
        let wrong = |events: Vec<Self>| TextError::new(text, 0, format!("expected one event, found {}", events.len()));
        <[Self; 1]>::try_from(events).map(|[event]| event).map_err(wrong)
    }

    /// Gives it modifiers, in place of those that it had; they are added to the name.
    ///
    /// # Errors
    /// [`TextError`] if a letter is no modifier.
    pub fn with_modifiers(mut self, letters: &str) -> Result<Self, TextError> {
        let modifiers = Modifiers::parse(letters).map_err(|(at, problem)| TextError::new(letters, at, problem))?;
        self.set_modifiers(modifiers);
        if !modifiers.is_empty() {
            // Behind the slash of a PMU event the letters stand without a colon.
            if !self.name.ends_with('/') {
                self.name.push(':');
            }
            self.name.push_str(&modifiers.to_string());
        }
        Ok(self)
    }

    /// Replaces the modifiers, and what they do to the attribute.
    fn set_modifiers(&mut self, modifiers: Modifiers) {
        self.attr.flags.remove(modifiers::ALL_FLAGS);
        self.modifiers = modifiers;
        let default = self.guest_default();
        modifiers.on_event(&mut self.attr, default);
    }

    /// PMUs outside the cores refuse every exclusion, so none may be implied for them.
    fn guest_default(&self) -> GuestDefault {
        let dynamic = self.attr.kind >= EventType::FIRST_DYNAMIC;
        if dynamic && !matches!(self.cpus, PmuCpus::Only(_)) { GuestDefault::Untouched } else { GuestDefault::Excluded }
    }

    /// Whether it counts hits of a tracepoint or a probe, so that it can have a filter.
    #[must_use]
    pub fn takes_filter(&self) -> bool {
        pmux_linux::filter::takes_filter(&self.attr)
    }

    /// Which hits of a tracepoint or a probe count, where not all do: see [`crate::Session::filter`].
    #[must_use]
    pub fn filter(&self) -> Option<&'static str> {
        pmux_linux::filter::filter_of(&self.attr)
    }

    /// The CPUs on which an uncore PMU wants its events: one of each package.
    #[must_use]
    pub fn package_cpus(&self) -> Option<&[u32]> {
        match &self.cpus {
            PmuCpus::OnePerPackage(cpus) => Some(cpus),
            PmuCpus::Any | PmuCpus::Only(_) => None,
        }
    }
}

/// Whether a text is one event, as far as that can be said without a look at the machine.
///
/// # Errors
/// At which byte, and what is wrong.
pub(crate) fn check_one(text: &str) -> Result<(), (usize, String)> {
    match &syntax::parse(text).map_err(|fault| (fault.at, fault.problem))?[..] {
        [syntax::Item::Event(_)] => Ok(()),
        _ => Err((0, "expected one event here".to_owned())),
    }
}

/// Whether a text is a list of events, as far as that can be said without a look at the machine.
///
/// # Errors
/// At which byte, and what is wrong.
pub(crate) fn check_list(text: &str) -> Result<(), (usize, String)> {
    syntax::parse(text).map(drop).map_err(|fault| (fault.at, fault.problem))
}

/// The PMU with this number, if this machine has it.
pub(crate) fn pmu_by_number(catalog: &Catalog, kind: EventType) -> Option<Arc<pmux_linux::catalog::Pmu>> {
    let mut pmus = catalog.pmu_names().unwrap_or_default().iter().filter_map(|name| catalog.pmu(name).ok());
    pmus.find(|pmu| pmu.kind() == kind.0)
}

/// How events came to be together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupKind {
    /// One event, not in braces.
    Single,
    /// Written as a group: counted together or not at all.
    Braced,
}

/// Whether a group may be broken up where it doesn't fit (`:W`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupStrength {
    /// It stays whole.
    Strong,
    /// It may be broken up.
    Weak,
}

/// Events that are counted together. The first one leads: whether the group is pinned or exclusive, its flags say.
#[derive(Clone, PartialEq, Debug)]
pub struct ParsedGroup {
    /// The name before the brace.
    pub name: Option<String>,
    /// The events; never none.
    pub events: Vec<Event>,
    /// How they came together.
    pub kind: GroupKind,
    /// Whether the group may be broken up.
    pub strength: GroupStrength,
}

/// All that is to be counted, in the order in which it was written.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EventList {
    /// The groups; an event that stands alone is a group of one.
    pub groups: Vec<ParsedGroup>,
}

impl EventList {
    /// Reads the texts of all `-e` options, on the machine that a catalog describes.
    ///
    /// # Errors
    /// [`TextError`] for the first text that can't be understood or names something that isn't there.
    pub fn parse<T: AsRef<str>>(texts: &[T], catalog: &Catalog) -> Result<Self, TextError> {
        resolve::resolve(texts, catalog)
    }

    /// All events, in order.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.groups.iter().flat_map(|group| &group.events)
    }

    /// All events, in order, taken out of their groups.
    pub fn into_events(self) -> impl Iterator<Item = Event> {
        self.groups.into_iter().flat_map(|group| group.events)
    }
}
