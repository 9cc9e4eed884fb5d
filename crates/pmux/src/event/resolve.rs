//! A tree to events, on the machine that a catalog describes.
//!
//! What it is: one function for each way to name an event; then groups.
//!
//! **Invariant:** generic names are resolved without a look at the machine; and in this order: names that every Linux
//! knows, then PMUs, then events of PMUs.

use pmux_abi::attr::EventType;
use pmux_linux::catalog::{Catalog, CatalogError, Pmu, PmuRole, glob};

use super::breakpoint::Access;
use super::error::{ParseFault, RAW_TOO_LARGE, unsupported_term};
use super::modifiers::{Modifier, Modifiers};
use super::names::{from_plain_number, raw_digits};
use super::pmu_by_number;
use super::pmu_terms::Words;
use super::printable;
use super::probe;
use super::suggest;
use super::syntax::{self, EventForm, EventNode, GroupNode, Item, Term, TextSpan};
use super::{CacheEvent, Event, EventList, EventSource, Generic, GroupKind, GroupStrength, ParsedGroup, TextError};

const NUMBERS: &str = "0 cycles, 1 instructions, 2 cache-references, 3 cache-misses, 4 branches, 5 branch-misses, -1 cpu-clock, \
                       -2 task-clock, -3 page-faults, -4 context-switches, -5 cpu-migrations";

/// Reads and resolves the texts of all `-e` options.
pub(super) fn resolve<T: AsRef<str>>(texts: &[T], catalog: &Catalog) -> Result<EventList, TextError> {
    let mut list = EventList::default();
    let mut spreads = 0;
    for text in texts {
        let text = text.as_ref();
        let groups = syntax::parse(text).and_then(|items| {
            let mut resolver = Resolver { text, catalog, spreads: &mut spreads };
            let mut groups = Vec::new();
            for item in &items {
                match item {
                    Item::Event(node) => groups.extend(resolver.event(node)?.into_iter().map(single)),
                    Item::Group(node) => groups.extend(resolver.group(node)?),
                }
            }
            Ok(groups)
        });
        list.groups.extend(groups.map_err(|fault| fault.into_error(text))?);
    }
    Ok(list)
}

struct Resolver<'a> {
    text: &'a str,
    catalog: &'a Catalog,
    /// How many names have been spread over several PMUs so far.
    spreads: &'a mut u32,
}

impl Resolver<'_> {
    /// One node is several events if it is a pattern or stands for several PMUs.
    fn event(&mut self, node: &EventNode) -> Result<Vec<Event>, ParseFault> {
        let mut events = match &node.what {
            EventForm::Name(name) => self.name(node, name)?,
            EventForm::Number(number) => {
                let generic = from_plain_number(*number).ok_or_else(|| {
                    ParseFault::new(node.at.start, format!("no event has the number {number}: {NUMBERS}"))
                })?;
                let mut event = Event::generic(generic);
                event.name = with_letters(&event.canonical, node.modifiers);
                vec![event]
            }
            EventForm::Typed { kind, config } => {
                let mut event = Event::new(self.typed(node.at), EventType(*kind), *config, "");
                event.source = EventSource::Kernel { pmu: self.pmu_of_type(*kind) };
                vec![event]
            }
            EventForm::Tracepoint { system, name } => self.tracepoints(node, system, name)?,
            EventForm::Probe { path, place, at } => {
                vec![probe::resolve(self.catalog, node, self.typed(node.at), (path, place, *at))?]
            }
            EventForm::Memory { address, len, access } => {
                let access = access.unwrap_or(Access::READ_WRITE);
                let len = len.unwrap_or_else(|| access.default_len());
                vec![Event { name: self.typed(node.at), ..Event::breakpoint(*address, len, access) }]
            }
        };
        for event in &mut events {
            event.set_modifiers(node.modifiers);
            recognise(event);
        }
        Ok(events)
    }

    fn typed(&self, at: TextSpan) -> String {
        self.text.get(at.start..at.end).unwrap_or_default().to_owned()
    }

    fn name(&mut self, node: &EventNode, name: &str) -> Result<Vec<Event>, ParseFault> {
        let at = node.at.start;
        if let Some(generic) = Generic::from_name(name) {
            return self.generic(node, generic).map(|event| vec![event]);
        }
        if raw_digits(name).is_some() {
            return Err(ParseFault::new(at, RAW_TOO_LARGE));
        }
        let unknown = match &node.terms {
            Some(terms) => match self.catalog.pmus_named(name) {
                Ok(pmus) => return self.on_pmus(node, &pmus, terms),
                Err(CatalogError::NoSuchPmu { .. }) => {
                    let near = suggest::pmus(self.catalog, name);
                    let list = if near.is_empty() { ": `pmux list` shows the events that it has" } else { "" };
                    ParseFault::new(at, format!("this machine has no PMU named '{}'{list}", printable(name)))
                        .suggesting(near)
                }
                Err(error) => ParseFault::new(at, error.to_string()),
            },
            None => match self.catalog.pmus_with_alias(name) {
                Ok(pmus) if !pmus.is_empty() => {
                    let value_at = node.at;
                    let term = Term { at: node.at, name: name.to_owned(), value: None, value_at };
                    return self.on_pmus(node, &pmus, &[term]);
                }
                Ok(_) => {
                    let near = suggest::events(self.catalog, name);
                    let list = if near.is_empty() { ": `pmux list` shows the events of this machine" } else { "" };
                    ParseFault::new(at, format!("unknown event '{}'{list}", printable(name))).suggesting(near)
                }
                Err(error) => ParseFault::new(at, error.to_string()),
            },
        };
        Err(unknown)
    }

    fn generic(&self, node: &EventNode, generic: Generic) -> Result<Event, ParseFault> {
        if let Generic::Cache(CacheEvent { cache, op, .. }) = generic
            && !cache.can(op)
        {
            let problem = format!("{} has no {} events", cache.name(), op.name());
            return Err(ParseFault::new(node.at.start, problem));
        }
        let mut event = Event { name: self.typed(node.at), ..Event::generic(generic) };
        if let Some(terms) = &node.terms {
            let words = Words::of_generic(terms)?;
            words.apply(&mut event.attr);
            if words.changes_event() {
                // It keeps the kind of event that it was named by, but is not that event any more.
                event.canonical.clear();
                event.fields = words.fields();
            }
            event.sampling = words.sampling;
            event.name = words.name.unwrap_or(event.name);
        }
        Ok(event)
    }

    /// The same terms on one PMU or several.
    fn on_pmus<P: AsRef<Pmu>>(
        &mut self,
        node: &EventNode,
        pmus: &[P],
        terms: &[Term],
    ) -> Result<Vec<Event>, ParseFault> {
        let spread = (pmus.len() > 1).then(|| {
            *self.spreads += 1;
            *self.spreads
        });
        pmus.iter().map(|pmu| self.on_pmu(node, pmu.as_ref(), terms).map(|event| Event { spread, ..event })).collect()
    }

    fn on_pmu(&self, node: &EventNode, pmu: &Pmu, terms: &[Term]) -> Result<Event, ParseFault> {
        let catalog = |error: CatalogError| ParseFault::new(node.at.start, error.to_string());
        let words = Words::of_pmu(pmu, terms)?;
        let mut event = Event::new(self.typed(node.at), EventType(pmu.kind()), 0, pmu.name());
        event.cpus = pmu.cpus().map_err(catalog)?.clone();
        words.apply(&mut event.attr);
        event.fields = words.fields();
        if pmu.role().map_err(catalog)? == PmuRole::Core
            && let Some(hardware) = words.as_hardware()
        {
            event.canonical = hardware.canonical().to_owned();
        }
        event.sampling = words.sampling;
        event.name = words.name.unwrap_or(event.name);
        event.unit = words.unit.unwrap_or_default();
        event.scale = words.scale.unwrap_or(1.0);
        event.kind = words.kind;
        event.extent = words.extent;
        Ok(event)
    }

    /// The name of the PMU with a type number, for people; empty if the number means nothing here.
    fn pmu_of_type(&self, kind: u32) -> String {
        let fixed = match EventType(kind) {
            EventType::HARDWARE | EventType::HW_CACHE | EventType::RAW => Some("cpu"),
            EventType::SOFTWARE => Some("software"),
            EventType::TRACEPOINT => Some("tracepoint"),
            EventType::BREAKPOINT => Some("breakpoint"),
            _ => None,
        };
        let named = || pmu_by_number(self.catalog, EventType(kind)).map(|pmu| pmu.name().to_owned());
        fixed.map(String::from).or_else(named).unwrap_or_default()
    }

    fn tracepoints(&self, node: &EventNode, system: &str, name: &str) -> Result<Vec<Event>, ParseFault> {
        let words = Words::of_generic(node.terms.as_deref().unwrap_or_default())?;
        if words.changes_event() {
            let term = node.terms.iter().flatten().find(|term| term.name.starts_with("config"));
            let (at, name) = term.map_or((node.at.start, String::new()), |term| (term.at.start, term.name.clone()));
            let reason = "the number of a tracepoint comes from tracefs";
            return Err(ParseFault::new(at, unsupported_term(&name, reason)));
        }
        let is_pattern = glob::is_pattern(system) || glob::is_pattern(name);
        let found = if is_pattern {
            let found = self.catalog.tracepoints_matching(system, name);
            found.map_err(|error| self.no_tracepoint(node, system, name, &error))?
        } else {
            vec![(system.to_owned(), name.to_owned())]
        };
        if found.is_empty() {
            let error = CatalogError::NoSuchTracepoint { system: system.to_owned(), name: name.to_owned() };
            return Err(self.no_tracepoint(node, system, name, &error));
        }
        let mut events = Vec::with_capacity(found.len());
        for (system, name) in found {
            let mut event = Event::tracepoint(self.catalog, &system, &name)
                .map_err(|error| self.no_tracepoint(node, &system, &name, &error))?;
            event.name = words.name.clone().unwrap_or_else(|| with_letters(&event.name, node.modifiers));
            event.sampling = words.sampling;
            events.push(event);
        }
        Ok(events)
    }

    fn no_tracepoint(&self, node: &EventNode, system: &str, name: &str, error: &CatalogError) -> ParseFault {
        let at = node.at.start;
        if !matches!(error, CatalogError::NoSuchTracepoint { .. }) {
            return ParseFault::new(at, error.to_string());
        }
        let near = suggest::tracepoints(self.catalog, system, name);
        let problem = format!("this kernel has no tracepoint '{}:{}'", printable(system), printable(name));
        ParseFault::new(at, problem).suggesting(near)
    }

    fn group(&mut self, node: &GroupNode) -> Result<Vec<ParsedGroup>, ParseFault> {
        let mut members = Vec::with_capacity(node.events.len());
        for (i, event) in node.events.iter().enumerate() {
            for (modifier, letter) in [(Modifier::Pinned, 'D'), (Modifier::Exclusive, 'e')] {
                if i > 0 && event.modifiers.has(modifier) {
                    let help = "put it behind the group, or at its first event";
                    return Err(ParseFault::new(event.at.start, format!("'{letter}' holds for a whole group: {help}")));
                }
            }
            members.push(self.event(event)?);
        }
        let groups = by_pmu(members);
        groups.into_iter().map(|events| finish(node, events)).collect()
    }
}

/// Adds to the members of a group what the group's own modifiers say.
fn finish(node: &GroupNode, mut events: Vec<Event>) -> Result<ParsedGroup, ParseFault> {
    let weak_event = events.first().is_some_and(|leader| leader.modifiers.has(Modifier::Weak));
    for (i, event) in events.iter_mut().enumerate() {
        let default = event.guest_default();
        event.modifiers = node
            .modifiers
            .on_member(event.modifiers, &mut event.attr, default)
            .map_err(|kind| ParseFault::new(node.modifiers_at.start, kind))?;
        for (modifier, flag) in super::modifiers::LEADER_FLAGS {
            // A pattern that leads gave its letters to all of its events; the kernel takes them from the leader only.
            event.attr.flags.set(flag, i == 0 && event.modifiers.has(modifier));
        }
    }
    let weak = weak_event || node.modifiers.has(Modifier::Weak);
    let strength = if weak { GroupStrength::Weak } else { GroupStrength::Strong };
    Ok(ParsedGroup { name: node.name.clone(), events, kind: GroupKind::Braced, strength })
}

/// The kernel takes no group that mixes PMUs outside the cores. A group whose members all stand for the same several
/// PMUs is therefore one group for each of these.
fn by_pmu(members: Vec<Vec<Event>>) -> Vec<Vec<Event>> {
    fn pmus(events: &[Event]) -> impl Iterator<Item = &EventSource> {
        events.iter().map(|event| &event.source)
    }
    let same = members.windows(2).all(|pair| pmus(&pair[0]).eq(pmus(&pair[1])));
    let spread = members.iter().all(|events| events.first().is_some_and(|event| event.spread.is_some()));
    if !(same && spread) {
        return vec![members.into_iter().flatten().collect()];
    }
    let mut groups: Vec<Vec<Event>> = vec![Vec::new(); members.first().map_or(0, Vec::len)];
    for events in members {
        for (group, event) in groups.iter_mut().zip(events) {
            group.push(event);
        }
    }
    groups
}

/// Gives an event that was written by numbers what it would have by its name.
fn recognise(event: &mut Event) {
    if !event.canonical.is_empty() {
        return;
    }
    let Some(generic) = Generic::from_config(event.attr.kind, event.attr.config) else { return };
    let named = Event::generic(generic);
    event.canonical = named.canonical;
    if event.unit.is_empty() {
        (event.unit, event.scale) = (named.unit, named.scale);
    }
}

fn single(event: Event) -> ParsedGroup {
    let weak = event.modifiers.has(Modifier::Weak);
    let strength = if weak { GroupStrength::Weak } else { GroupStrength::Strong };
    ParsedGroup { name: None, events: vec![event], kind: GroupKind::Single, strength }
}

fn with_letters(name: &str, modifiers: Modifiers) -> String {
    if modifiers.is_empty() { name.to_owned() } else { format!("{name}:{modifiers}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::PmuCpus;

    #[test]
    fn a_core_pmu_of_a_mixed_machine_excludes_guests() {
        let mut event = Event::new("x".into(), EventType(10), 0, "cpu_atom");
        event.cpus = PmuCpus::Only(vec![4]);
        event.set_modifiers(Modifiers::NONE);
        assert!(event.attr.flags.contains(pmux_abi::attr::AttrFlags::EXCLUDE_GUEST));
        event.cpus = PmuCpus::OnePerPackage(vec![0]);
        event.set_modifiers(Modifiers::NONE);
        assert!(event.attr.flags.is_empty());
    }
}
