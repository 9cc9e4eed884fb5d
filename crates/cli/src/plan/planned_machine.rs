//! Which machine is planned for.
//!
//! **Invariant:** nothing is assumed of this machine: where its counters are not known, another one has to be named.

use super::here::{Here, TriedCounters};
use super::request::{is_core, request};
use crate::options::plan::PlanOptions;
use pmux::abi::EventType;
use pmux::event::{Catalog, EventList};
use pmux::{Event, ReasonKind};
use pmux_plan::machine::{Description, Kind, PmuDescription, profiles};
use pmux_plan::{self as plan, EventRequest, Request, Scope, SlotMask, Source};
use serde_json::{Value, json};

/// The profile that has as many CPUs as the machine that it describes.
const LAB: &str = "lab";

#[derive(Debug)]
pub(super) struct PlannedMachine {
    pub(super) machine: Description,
    /// What it is, in words: `this machine`.
    pub(super) title: String,
    /// The profile that it is made from, if one was named.
    pub(super) profile: Option<String>,
    pub(super) is_here: bool,
}

impl PlannedMachine {
    pub(super) fn json(&self) -> Value {
        json!({ "this_machine": self.is_here, "profile": self.profile, "title": self.title, "cpus": self.machine.cpus })
    }

    /// The machine that the options name, if they name one.
    pub(super) fn named(options: &PlanOptions) -> Result<Option<Self>, String> {
        let cpus = |profile: Option<&str>| match (options.cpus, profile) {
            (Some(cpus), _) => Ok(cpus),
            (None, Some(LAB)) => Ok(profiles::lab().cpus),
            (None, _) => Here::new().and_then(|here| here.cpus()),
        };
        let (machine, title) = match (options.machine.as_deref(), options.counters) {
            (None, None) => return Ok(None),
            (None, Some(counters)) => {
                let any = profiles::amd_zen(cpus(None)?);
                (with_counters(&any, counters)?, format!("a machine with {counters} general counters"))
            }
            (Some(name), counters) => {
                // The options take names of profiles only.
                let machine = profiles::by_name(name, cpus(Some(name))?).ok_or("no such profile")?;
                let title = format!("a machine of the profile {name}");
                match counters {
                    None => (machine, title),
                    Some(counters) => {
                        (with_counters(&machine, counters)?, format!("{title} with {counters} general counters"))
                    }
                }
            }
        };
        Ok(Some(Self { machine, title, profile: options.machine.clone(), is_here: false }))
    }

    /// The machine that the options name, or this one, and what is to be planned for it.
    ///
    /// # Errors
    /// A text for the user: an event that can't be understood, or a machine that is not known well enough.
    pub(super) fn find(options: &PlanOptions) -> Result<(Self, Request), String> {
        let catalog = Catalog::system();
        let list = EventList::parse(&options.events, &catalog).map_err(|error| error.to_string())?;
        let scope = if options.all_cpus { Scope::EveryCpu } else { Scope::Task };
        let mut request = request(&list, scope, |name| is_core(&catalog, name));
        let target = match Self::named(options)? {
            Some(target) => target,
            None => Self::here(options, &list, &mut request)?,
        };
        Ok((target, request))
    }

    /// This machine, as far as the request needs it.
    fn here(options: &PlanOptions, list: &EventList, request: &mut Request) -> Result<Self, String> {
        let here = Here::new()?;
        let cpus = options.cpus.map_or_else(|| here.cpus(), Ok)?;
        let mut machine = profiles::amd_zen(cpus);
        machine.pmus = vec![PmuDescription::software()];
        if asks(request, is_hardware) {
            let events: Vec<Event> = hardware_events(list, request).map(|(event, _)| event.clone()).collect();
            let tried = here.hardware(&events).map_err(|what| without_counters(&what, options))?;
            machine.pmus.extend(plan_with(&tried, list, request)?);
        }
        let is_breakpoint = |kind: EventType| kind == EventType::BREAKPOINT;
        if asks(request, is_breakpoint) {
            match here.debug_registers() {
                Some(registers) => machine.pmus.push(registers),
                None => {
                    let events = request.groups.iter_mut().flat_map(|group| &mut group.events);
                    let breakpoints = events.filter(|event| is_breakpoint(event.attr.kind));
                    breakpoints.for_each(|event| event.source = Source::Unknown("breakpoint".to_owned()));
                }
            }
        }
        Ok(Self { machine, title: "this machine".to_owned(), profile: None, is_here: true })
    }
}

/// The events that the PMU of the CPU cores counts, with what is planned for each.
fn hardware_events<'a>(
    list: &'a EventList,
    request: &'a mut Request,
) -> impl Iterator<Item = (&'a Event, &'a mut EventRequest)> {
    let events = list.groups.iter().flat_map(|group| &group.events);
    let asked = request.groups.iter_mut().flat_map(|group| &mut group.events);
    events.zip(asked).filter(|(_, asked)| matches!(asked.source, Source::Machine(_)) && is_hardware(asked.attr.kind))
}

/// The PMUs that were tried; each of the events is on those counters on which it has run.
///
/// # Errors
/// A text for the user, where an event may not be opened.
fn plan_with(tried: &TriedCounters, list: &EventList, request: &mut Request) -> Result<Vec<PmuDescription>, String> {
    let mut pmus = Vec::with_capacity(tried.capacities.len());
    let mut sources: Vec<(&str, Source)> = Vec::new();
    for capacity in &tried.capacities {
        let kind = |name: &str| hardware_kind(tried, name);
        let events: Vec<_> = capacity.events.iter().map(|(name, it)| (name.as_str(), it, kind(name))).collect();
        let tried: Vec<_> =
            events.iter().map(|&(_, it, kind)| plan::TriedEvent { kind, alone: it.alone, own: it.own }).collect();
        let (pmu, on) = plan::tried_pmu(&capacity.pmu, capacity.shared, &tried);
        sources.extend(events.iter().map(|&(name, ..)| name).zip(on));
        pmus.push(pmu);
    }
    for ((event, asked), opened) in hardware_events(list, request).zip(&tried.events) {
        asked.source = match opened {
            Err(refusal) if refusal.kind == ReasonKind::NotSupported => {
                Source::Counters(pmus.first().map(|pmu| pmu.name.clone()).unwrap_or_default(), SlotMask::default())
            }
            Err(refusal) => return Err(format!("{}: {}", event.name, refusal.summary)),
            Ok(opened) => {
                let known = sources.iter().find(|(name, _)| *name == opened.name).map(|(_, source)| source.clone());
                known.unwrap_or_else(|| Source::Unknown("cpu".to_owned()))
            }
        };
    }
    Ok(pmus)
}

/// The generic event that was opened under a name.
fn hardware_kind(tried: &TriedCounters, name: &str) -> Option<Kind> {
    let mut of_name = tried.events.iter().flatten().filter(|event| event.name == name);
    let kind = of_name.find_map(|event| Kind::by_name(&event.canonical));
    kind.filter(|kind| Kind::hardware().any(|other| other == *kind))
}

fn with_counters(machine: &Description, counters: u8) -> Result<Description, String> {
    plan::with_general_counters(machine, counters).map_err(|error| format!("--counters {counters}: {error}"))
}

fn asks(request: &Request, wanted: impl Fn(EventType) -> bool) -> bool {
    let events = request.groups.iter().flat_map(|group| &group.events);
    events.filter(|event| matches!(event.source, Source::Machine(_))).any(|event| wanted(event.attr.kind))
}

/// Whether a type of events is counted by the PMU of the CPU cores.
fn is_hardware(kind: EventType) -> bool {
    !matches!(kind, EventType::SOFTWARE | EventType::TRACEPOINT | EventType::BREAKPOINT)
}

/// What is wrong, and how to plan for another machine.
fn without_counters(what: &str, options: &PlanOptions) -> String {
    let mut line = "pmux plan --counters 6".to_owned();
    if options.all_cpus {
        line.push_str(" -a");
    }
    for event in &options.events {
        let quoted = if event.chars().all(|c| c.is_ascii_alphanumeric() || "-_,:./=".contains(c)) {
            event.clone()
        } else {
            format!("'{}'", event.replace('\'', r"'\''"))
        };
        line.push_str(" -e ");
        line.push_str(&quoted);
    }
    let names = profiles::NAMES.join(", ");
    format!(
        "{what}: say which machine to plan for\n  with --counters N, for example: {line}\n  or with --machine PROFILE: {names}"
    )
}
