//! A machine, described: what it can count, and how much at once.
//!
//! **Invariant:** of the machine that this runs on it says what was found out, and what is not known.

use super::data;
use super::here::{Debugging, Hardware, Here, Settings};
use super::request::is_core;
use super::subject::Subject;
use super::words::count;
use crate::options::plan::PlanOptions;
use crate::say::visible;
use crate::style::{Ink, Style};
use pmux::PmuRoom;
use pmux_plan::{Room, describe as room_of};
use serde_json::{Value, json};
use std::path::Path;

/// A PMU of this machine.
pub(super) struct SysfsPmu {
    name: String,
    kind: u32,
    room: Known,
}

/// How many events a PMU counts at once, as far as is known.
enum Known {
    /// As many as wanted.
    Plenty,
    /// So many of those that were tried, in words, and as data.
    Counters(PmuRoom),
    /// Debug registers.
    Registers(Debugging),
    /// Nobody knows.
    Unknown(String),
}

/// What is said of a machine.
pub(super) enum Described {
    /// The one that this runs on.
    Here(Box<HereFacts>),
    /// Another one.
    Other(Subject),
}

pub(super) struct HereFacts {
    online: String,
    cpus: u32,
    settings: Settings,
    events: Result<(), String>,
    hardware: Hardware,
    pmus: Result<Vec<SysfsPmu>, String>,
    debugging: Debugging,
}

/// Describes the machine that the options name, or this one.
///
/// # Errors
/// A text for the user.
pub(super) fn describe(options: &PlanOptions) -> Result<Described, String> {
    if let Some(subject) = Subject::named(options)? {
        subject.machine.check().map_err(|error| error.to_string())?;
        return Ok(Described::Other(subject));
    }
    let here = Here::new()?;
    let (debugging, hardware) = (here.debug_registers(), here.hardware(&[]));
    Ok(Described::Here(Box::new(HereFacts {
        online: here.online(),
        cpus: here.cpus()?,
        settings: Settings::at(Path::new("/")),
        events: here.events(),
        pmus: pmus(&here, &hardware, &debugging),
        hardware,
        debugging,
    })))
}

fn pmus(here: &Here, hardware: &Hardware, debugging: &Debugging) -> Result<Vec<SysfsPmu>, String> {
    let names = here.catalog().pmu_names().map_err(|error| error.to_string())?;
    let pmu = |name: &String| {
        // One that has gone meanwhile is not there.
        let kind = here.catalog().pmu(name).ok()?.kind();
        let room = match name.as_str() {
            "software" | "tracepoint" | "kprobe" | "uprobe" => Known::Plenty,
            "breakpoint" => Known::Registers(debugging.clone()),
            name if is_core(here.catalog(), name) => match hardware {
                Hardware::None { why } | Hardware::Unknown { why } => Known::Unknown(why.clone()),
                Hardware::Counters(tried) => match tried.rooms.iter().find(|room| room.pmu == name) {
                    Some(room) => Known::Counters(room.clone()),
                    None => Known::Unknown("not tried".to_owned()),
                },
            },
            _ => Known::Unknown("not tried".to_owned()),
        };
        Some(SysfsPmu { name: name.clone(), kind, room })
    };
    Ok(names.iter().filter_map(pmu).collect())
}

impl Described {
    /// For people.
    pub(super) fn page(&self, style: Style) -> String {
        match self {
            Self::Here(facts) => facts.page(style),
            Self::Other(subject) => subject.page(style),
        }
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        let object = match self {
            Self::Here(facts) => facts.json(),
            Self::Other(subject) => json!({
                "machine": subject.json(),
                "pmus": subject.machine.pmus.iter().map(|pmu| {
                    json!({ "name": pmu.name, "room": data::room(&room_of(pmu)), "width_bits": pmu.width_bits })
                }).collect::<Vec<_>>(),
            }),
        };
        format!("{object:#}\n")
    }
}

/// `7 counters: 6 for any of the events tried, 1 for cycles only`
fn counters(room: &PmuRoom) -> String {
    let mut text = match (room.shared, room.counters) {
        (shared, all) if shared == all => format!("{} for any of the events tried", count(all.into(), "counter")),
        (shared, all) => format!("{}: {shared} for any of the events tried", count(all.into(), "counter")),
    };
    for (name, event) in room.events.iter().filter(|(_, event)| event.own > 0) {
        text.push_str(&format!(", {} for {} only", event.own, visible(name)));
    }
    for (name, event) in room.events.iter().filter(|(_, event)| event.alone < room.shared + event.own) {
        text.push_str(&format!(", {} on {} of them", visible(name), event.alone));
    }
    text
}

fn room_json(room: &PmuRoom) -> Value {
    let event =
        |(name, event): &(String, pmux::EventRoom)| json!({ "event": name, "alone": event.alone, "own": event.own });
    json!({
        "kind": "counters",
        "pmu": room.pmu,
        "counters": room.counters,
        "shared": room.shared,
        "events": room.events.iter().map(event).collect::<Vec<_>>(),
    })
}

fn line(out: &mut String, style: Style, label: &str, text: &str) {
    style.paint(out, Ink::Faint, &format!("{label:>12}  "));
    out.push_str(text);
    out.push('\n');
}

impl Subject {
    /// What it is, for programs.
    pub(super) fn json(&self) -> Value {
        json!({ "this_machine": self.is_here, "profile": self.profile, "title": self.title, "cpus": self.machine.cpus })
    }

    fn page(&self, style: Style) -> String {
        let mut out = String::new();
        let mut title = self.title.clone();
        title[..1].make_ascii_uppercase();
        style.paint(&mut out, Ink::Strong, &format!("{title}, {}.", count(self.machine.cpus as usize, "CPU")));
        out.push_str("\n\n");
        for pmu in &self.machine.pmus {
            let width = if pmu.width_bits < 64 { format!(", {} bits wide", pmu.width_bits) } else { String::new() };
            line(&mut out, style, &pmu.name, &format!("{}{width}", room(&room_of(pmu))));
        }
        out
    }
}

/// How many events there is room for, in words.
fn room(room: &Room) -> String {
    match room {
        Room::Counters { general, fixed } => {
            let mut text = format!("{} for any event", count(*general as usize, "counter"));
            if !fixed.is_empty() {
                let names: Vec<_> = fixed.iter().map(|kind| kind.name()).collect();
                text.push_str(&format!(", and 1 more for each of {}", names.join(", ")));
            }
            text
        }
        Room::Registers { total, execute, data } if execute + data > *total => {
            format!("{} for code and data", count(*total as usize, "debug register"))
        }
        Room::Registers { total, execute, data } => {
            format!("{}: {execute} for code, {data} for data", count(*total as usize, "debug register"))
        }
        Room::Plenty => "as many events as wanted".to_owned(),
        Room::Unknown => "unknown".to_owned(),
    }
}

fn registers(debugging: &Debugging) -> String {
    match debugging {
        Debugging::Shared(free) => format!("{} free, for code and data", count(usize::from(*free), "debug register")),
        Debugging::Separate { execute, data } => {
            let free = usize::from(*execute) + usize::from(*data);
            format!("{} free: {execute} for code, {data} for data", count(free, "debug register"))
        }
        Debugging::Unknown { why } => format!("unknown: {why}"),
    }
}

impl HereFacts {
    fn page(&self, style: Style) -> String {
        let mut out = String::new();
        let cpus = count(self.cpus as usize, "CPU");
        let hardware = match &self.hardware {
            Hardware::None { .. } => "no hardware PMU".to_owned(),
            Hardware::Unknown { .. } if self.events.is_err() => "no performance events".to_owned(),
            Hardware::Unknown { .. } => "a hardware PMU, of whose counters the number is not known".to_owned(),
            Hardware::Counters(tried) => {
                let of = |room: &PmuRoom| match tried.rooms.len() {
                    1 => count(room.counters.into(), "hardware counter"),
                    _ => format!("{} of {}", count(room.counters.into(), "hardware counter"), visible(&room.pmu)),
                };
                tried.rooms.iter().map(of).collect::<Vec<_>>().join(" and ")
            }
        };
        style.paint(&mut out, Ink::Strong, &format!("This machine has {cpus} and {hardware}."));
        out.push_str("\n\n");
        let possible = self.settings.possible.as_deref().map(|cpus| format!(", {cpus} possible")).unwrap_or_default();
        line(&mut out, style, "CPUs", &format!("{} online{possible}", self.online));
        let paranoid = self.settings.paranoid.map_or_else(|| "not to be read".to_owned(), |level| level.to_string());
        let paranoid = format!("kernel.perf_event_paranoid is {paranoid}");
        let works = match &self.events {
            Ok(()) => "perf_event_open works".to_owned(),
            Err(why) => format!("perf_event_open does not work: {}", visible(why)),
        };
        line(&mut out, style, "events", &format!("{works}; {paranoid}"));
        let watchdog = match self.settings.nmi_watchdog {
            Some(true) => "on: it holds a hardware counter of each CPU",
            Some(false) => "off: it holds no counter",
            None => "not known",
        };
        line(&mut out, style, "NMI watchdog", watchdog);
        out.push('\n');
        style.paint(&mut out, Ink::Strong, "PMUs, and how many events each counts at once");
        out.push('\n');
        match &self.pmus {
            Ok(pmus) => {
                for pmu in pmus {
                    let room = match &pmu.room {
                        Known::Plenty => "as many as wanted".to_owned(),
                        Known::Counters(room) => counters(room),
                        Known::Registers(debugging) => registers(debugging),
                        Known::Unknown(why) => format!("unknown: {why}"),
                    };
                    line(&mut out, style, &visible(&pmu.name), &room);
                }
            }
            Err(why) => line(&mut out, style, "not listed", why),
        }
        out.push('\n');
        style.paint(&mut out, Ink::Strong, "what fits");
        out.push('\n');
        for text in self.fits() {
            out.push_str("  ");
            out.push_str(&text);
            out.push('\n');
        }
        out
    }

    fn fits(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.events.is_err() {
            lines.push("no performance event; pmux counts what the kernel accounts for anyway".to_owned());
            return lines;
        }
        lines.push("software events, tracepoints and probes: as many as wanted, all the time".to_owned());
        lines.push(match &self.hardware {
            Hardware::None { why } => format!("hardware events: none ({})", visible(why)),
            Hardware::Unknown { why } => format!("hardware events: not known ({})", visible(why)),
            Hardware::Counters(tried) => {
                let of = |room: &PmuRoom| match tried.rooms.len() {
                    1 => counters(room),
                    _ => format!("{}: {}", visible(&room.pmu), counters(room)),
                };
                let rooms: Vec<String> = tried.rooms.iter().map(of).collect();
                format!("hardware events: {}; more take turns", rooms.join("; "))
            }
        });
        lines.push(match &self.debugging {
            Debugging::Unknown { why } => format!("breakpoints: not known ({})", visible(why)),
            known => format!("breakpoints: {}; they take no turns", registers(known)),
        });
        lines
    }

    fn json(&self) -> Value {
        let hardware = match &self.hardware {
            Hardware::None { why } => json!({ "there": false, "why": why }),
            Hardware::Unknown { why } => json!({ "there": self.events.is_ok(), "counters": null, "why": why }),
            Hardware::Counters(tried) => {
                let all: u32 = tried.rooms.iter().map(|room| u32::from(room.counters)).sum();
                json!({ "there": true, "counters": all, "pmus": tried.rooms.iter().map(room_json).collect::<Vec<_>>() })
            }
        };
        let registers = |debugging: &Debugging| match debugging {
            Debugging::Shared(free) => {
                json!({ "kind": "debug-registers", "free": free, "execute": free, "data": free })
            }
            Debugging::Separate { execute, data } => {
                let free = u32::from(*execute) + u32::from(*data);
                json!({ "kind": "debug-registers", "free": free, "execute": execute, "data": data })
            }
            Debugging::Unknown { why } => json!({ "kind": "unknown", "why": why }),
        };
        let pmu = |pmu: &SysfsPmu| {
            let room = match &pmu.room {
                Known::Plenty => json!({ "kind": "plenty" }),
                Known::Counters(room) => room_json(room),
                Known::Registers(debugging) => registers(debugging),
                Known::Unknown(why) => json!({ "kind": "unknown", "why": why }),
            };
            json!({ "name": pmu.name, "type": pmu.kind, "room": room })
        };
        json!({
            "machine": { "this_machine": true, "profile": null, "title": "this machine", "cpus": self.cpus },
            "online": self.online,
            "possible": self.settings.possible,
            "perf_event_open": { "works": self.events.is_ok(), "why_not": self.events.as_ref().err() },
            "perf_event_paranoid": self.settings.paranoid,
            "nmi_watchdog": self.settings.nmi_watchdog,
            "hardware": hardware,
            "pmus": self.pmus.as_ref().map(|pmus| pmus.iter().map(pmu).collect::<Vec<_>>()).unwrap_or_default(),
            "fits": self.fits(),
        })
    }
}
