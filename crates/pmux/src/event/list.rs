//! Every event of this machine, with a line about each.
//!
//! What it is: what `pmux list` shows. Whether an event opens is another question: see the session.
//! Read first: [`list`].
//!
//! **Invariant:** it opens no event; and what can't be read is told in [`Listing::gaps`], not passed over.

use pmux_linux::catalog::{AliasValue, Catalog, CatalogError, Pmu, glob};

use super::cache::CacheEvent;
use super::names::{Hardware, Software, ToolEvent};

/// The kinds of event in a list, in the order in which they are shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EventKind {
    /// Generalised hardware events.
    Hardware,
    /// Software events.
    Software,
    /// What pmux measures itself.
    Tool,
    /// Generalised cache events.
    Cache,
    /// Events that a PMU of this machine has a name for.
    Pmu,
    /// How raw events are written.
    Raw,
    /// How breakpoints are written.
    Breakpoint,
    /// How probes are written.
    Probe,
    /// Tracepoints.
    Tracepoint,
}

/// In their order, each with its name in a list and the words that ask for it.
const KINDS: [(EventKind, &str, &[&str]); 9] = [
    (EventKind::Hardware, "hardware", &["hw", "hardware"]),
    (EventKind::Software, "software", &["sw", "software"]),
    (EventKind::Tool, "tool", &["tool"]),
    (EventKind::Cache, "cache", &["cache", "hwcache"]),
    (EventKind::Pmu, "pmu", &["pmu"]),
    (EventKind::Raw, "raw", &["raw"]),
    (EventKind::Breakpoint, "breakpoint", &["mem", "breakpoint"]),
    (EventKind::Probe, "probe", &[]),
    (EventKind::Tracepoint, "tracepoint", &["tracepoint"]),
];

impl EventKind {
    /// Its name in a list.
    #[must_use]
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// The kind that a word names, as `perf list` takes it: `hw`, `sw`, `cache`, `tracepoint`, `pmu`, `tool`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        KINDS.iter().find(|(.., words)| words.contains(&word)).map(|(kind, ..)| *kind)
    }
}

/// Whether a listed name can be given as it stands, or shows how to write one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NameForm {
    /// An event.
    Event,
    /// A template: something in it has to be filled in.
    Template,
}

/// One line of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The name to give.
    pub name: String,
    /// Other names for the same.
    pub aliases: Vec<String>,
    /// Its kind.
    pub kind: EventKind,
    /// Whether the name is an event or a template for some.
    pub form: NameForm,
    /// One line about it.
    pub description: String,
    /// How it is encoded.
    pub encoding: String,
}

/// The list, and what could not be read for it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// The events, by kind and name.
    pub events: Vec<Listed>,
    /// Why some may be missing.
    pub gaps: Vec<CatalogError>,
}

/// Which events to list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    /// All.
    All,
    /// Those of a kind.
    Kind(EventKind),
    /// Those with a name that matches a pattern.
    Glob(String),
    /// Those with a name that has this in it.
    Substring(String),
}

impl Filter {
    /// Reads a pattern as `perf list` does: a kind, a pattern, or a part of a name. Upper and lower case are the same.
    #[must_use]
    pub fn parse(pattern: &str) -> Self {
        if pattern.is_empty() {
            return Self::All;
        }
        if let Some(kind) = EventKind::from_word(pattern) {
            return Self::Kind(kind);
        }
        let pattern = pattern.to_ascii_lowercase();
        if glob::is_pattern(&pattern) { Self::Glob(pattern) } else { Self::Substring(pattern) }
    }

    fn takes(&self, kind: EventKind, name: &str) -> bool {
        let name = || name.to_ascii_lowercase();
        match self {
            Self::All => true,
            Self::Kind(wanted) => *wanted == kind,
            Self::Glob(pattern) => glob::matches(pattern, &name()),
            Self::Substring(part) => name().contains(part),
        }
    }

    fn takes_any(&self, kind: EventKind, name: &str, aliases: &[String]) -> bool {
        self.takes(kind, name) || aliases.iter().any(|alias| self.takes(kind, alias))
    }
}

/// Lists the events that a filter takes. The files of others are not read.
#[must_use]
pub fn list(catalog: &Catalog, filter: &Filter) -> Listing {
    let mut listing = Listing::default();
    generic(filter, &mut listing.events);
    if !matches!(filter, Filter::Kind(kind) if !matches!(kind, EventKind::Pmu | EventKind::Raw))
        && let Err(error) = pmus(catalog, filter, &mut listing)
    {
        listing.gaps.push(error);
    }
    if !matches!(filter, Filter::Kind(kind) if *kind != EventKind::Tracepoint)
        && let Err(error) = tracepoints(catalog, filter, &mut listing.events)
    {
        listing.gaps.push(error);
    }
    crate::order::sort_by_key(&mut listing.events, |event| event.kind);
    listing
}

fn generic(filter: &Filter, events: &mut Vec<Listed>) {
    let mut add = |kind, form, name: String, aliases: Vec<String>, description: String, encoding: String| {
        if filter.takes_any(kind, &name, &aliases) {
            events.push(Listed { name, aliases, kind, form, description, encoding });
        }
    };
    let mut named = |kind, names: &[&str], description: &str, encoding: String| {
        let aliases = names[1..].iter().map(|name| (*name).to_owned()).collect();
        add(kind, NameForm::Event, names[0].to_owned(), aliases, description.to_owned(), encoding);
    };
    for event in Hardware::ALL {
        let encoding = format!("type 0, config {:#x}", event.config());
        named(EventKind::Hardware, event.names(), event.description(), encoding);
    }
    for event in Software::ALL {
        let encoding = format!("type 1, config {:#x}", event.config());
        named(EventKind::Software, event.names(), event.description(), encoding);
    }
    for event in ToolEvent::ALL {
        named(EventKind::Tool, event.names(), event.description(), "measured by pmux".to_owned());
    }
    for event in CacheEvent::all() {
        let encoding = format!("type 3, config {:#x}", event.config());
        add(EventKind::Cache, NameForm::Event, event.name(), Vec::new(), event.description(), encoding);
    }
    for (kind, name, description, encoding) in [
        (EventKind::Raw, "rNNN", "A raw event of the CPU, by its hexadecimal number", "type 4, config 0xNNN"),
        (
            EventKind::Breakpoint,
            "mem:ADDR[/LEN][:rwx]",
            "Reads, writes or executions of an address",
            "type 5, config1 ADDR, config2 LEN",
        ),
        (
            EventKind::Probe,
            "uprobe:PATH:FUNCTION[+OFFSET]",
            "A place in a program or library, each time when a task comes there; uretprobe: when the function returns",
            "the PMU uprobe, config1 PATH, config2 the offset in the file",
        ),
    ] {
        add(kind, NameForm::Template, name.to_owned(), Vec::new(), description.to_owned(), encoding.to_owned());
    }
}

fn pmus(catalog: &Catalog, filter: &Filter, listing: &mut Listing) -> Result<(), CatalogError> {
    for name in catalog.pmu_names()? {
        // One PMU with an odd file must not hide the others.
        let found = catalog.pmu(name).and_then(|pmu| one_pmu(&pmu, filter, &mut listing.events));
        listing.gaps.extend(found.err());
    }
    Ok(())
}

fn one_pmu(pmu: &Pmu, filter: &Filter, events: &mut Vec<Listed>) -> Result<(), CatalogError> {
    let (pmu_name, kind) = (pmu.name(), pmu.kind());
    for alias in pmu.alias_names()? {
        let name = format!("{pmu_name}/{alias}/");
        if !filter.takes_any(EventKind::Pmu, &name, std::slice::from_ref(alias)) {
            continue;
        }
        let found = pmu.alias(alias)?;
        let terms = found.terms.iter().map(|(term, value)| match value {
            AliasValue::Number(value) => format!("{term}={value:#x}"),
            AliasValue::Asked => format!("{term}=?"),
        });
        let terms: Vec<String> = terms.collect();
        let open: Vec<&str> = terms.iter().map(String::as_str).filter(|term| term.ends_with("=?")).collect();
        let encoding = format!("{pmu_name}/{}/  type {kind}", terms.join(","));
        let unit = found.unit.map(|unit| format!(", in {unit}")).unwrap_or_default();
        let form = if open.is_empty() { NameForm::Event } else { NameForm::Template };
        let name = if open.is_empty() { name } else { format!("{pmu_name}/{alias},{}/", open.join(",")) };
        let description = format!("Event of the PMU {pmu_name}{unit}: {}", terms.join(","));
        events.push(Listed { name, aliases: vec![alias.clone()], kind: EventKind::Pmu, form, description, encoding });
    }
    let formats = pmu.formats()?;
    let fields: Vec<String> = formats.iter().map(|(field, format)| format!("{field}=0..{:#x}", format.max())).collect();
    let name = format!("{pmu_name}/{}/", fields.join(","));
    if !fields.is_empty() && filter.takes(EventKind::Raw, &name) {
        let description = format!("Any event of the PMU {pmu_name}, by its fields");
        let encoding = format!("type {kind}");
        let (kind, form) = (EventKind::Raw, NameForm::Template);
        events.push(Listed { name, aliases: Vec::new(), kind, form, description, encoding });
    }
    Ok(())
}

fn tracepoints(catalog: &Catalog, filter: &Filter, events: &mut Vec<Listed>) -> Result<(), CatalogError> {
    for system in catalog.tracepoint_systems()? {
        for tracepoint in catalog.tracepoint_names(&system)? {
            let name = format!("{system}:{tracepoint}");
            if !filter.takes(EventKind::Tracepoint, &name) {
                continue;
            }
            // A module that is unloaded meanwhile takes its tracepoints along.
            let Ok(id) = catalog.tracepoint(&system, &tracepoint) else { continue };
            let (kind, form, aliases) = (EventKind::Tracepoint, NameForm::Event, Vec::new());
            let description = format!("Tracepoint of the system {system}");
            let encoding = format!("type 2, config {id:#x}");
            events.push(Listed { name, aliases, kind, form, description, encoding });
        }
    }
    Ok(())
}
