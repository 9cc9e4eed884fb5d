//! What this machine lacks of what a scenario needs.
//!
//! What it is: each requirement is tried out before anything of the scenario begins: what can be opened is opened.
//!
//! **Invariant:** nothing is left open, and nothing is guessed from names.

use super::hotplug;
use super::plan::Plan;
use crate::outcome::{Lack, Outcome, is_required};
use pmux::event::{Access, Software};
use pmux::exact::{EventState, ExactTarget, GroupMode, Priority};
use pmux::workers::{BASE, ChildKind, Code, Stage, Worker};
use pmux::{Attribution, Event, Inherit, Session};
use pmux_sim::scenario::ast::{Event as AstEvent, Requirement, Scenario, Statement};
use pmux_sim::scenario::{EventClass, event_class, needs};

/// No machine has more counters, or debug registers.
const MOST: usize = 64;

/// The outcome where no event can be opened at all.
pub(super) fn no_events() -> Outcome {
    Outcome::Skipped(Lack::new("kernel", "performance events"))
}

/// The first thing that a scenario needs and this machine lacks.
pub(super) fn lack(scenario: &Scenario, session: &Session, plan: &Plan) -> Option<Lack> {
    let lack = needs(scenario).iter().find_map(|requirement| unmet(requirement, scenario, session));
    lack.or_else(|| {
        // From Linux 5.13 until 6.17.12 and 6.18.1, tasks that exit write no such record.
        let what = "a kernel whose tasks report what they have counted when they exit";
        missing(!plan.asks_for_reports() || children_report(session), "reports", what)
    })
}

/// Whether a child that exits reports what it has counted: tried with one.
fn children_report(session: &Session) -> bool {
    let stage = Stage { pages: 0, code: Code::No, children: 1 };
    let Ok(mut parent) = Worker::start(&stage) else { return false };
    let mode = GroupMode { inherit: Inherit::Children, attribution: Attribution::EachProcess, ..GroupMode::default() };
    let events = [Event::software(Software::PageFaults)];
    let Ok(mut group) = session.open_exactly(&events, ExactTarget::Task(parent.tid()), mode) else { return false };
    let Ok((mut child, ..)) = parent.fork(ChildKind::Process, 0) else { return false };
    child.exit().is_ok() && group.child(0, child.tid()).is_some()
}

fn unmet(requirement: Requirement, scenario: &Scenario, session: &Session) -> Option<Lack> {
    match requirement {
        Requirement::Kernel => None,
        Requirement::Pmu => missing(most_hardware(&["cycles"], session) > 0, "pmu", "a hardware PMU"),
        Requirement::Counters(wanted) => {
            let names = hardware_names(scenario);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let there = most_hardware(&names, session);
            if there == 0 {
                return Some(Lack::new("pmu", "a hardware PMU"));
            }
            missing(there == wanted as usize, "counters", &format!("{wanted} counters, and here are {there}"))
        }
        Requirement::Breakpoints => missing(breakpoints(session) > 0, "breakpoints", "debug registers"),
        Requirement::BreakpointSlots(wanted) => {
            let there = breakpoints(session);
            let what = format!("{wanted} debug registers, and here are {there}");
            missing(there == wanted as usize, "breakpoints", &what)
        }
        Requirement::Cpus(wanted) => {
            let online = session.online();
            missing((0..wanted).all(|cpu| online.contains(cpu)), "cpus", &format!("{wanted} CPUs online"))
        }
        Requirement::Root => missing(is_root(session), "root", "root"),
        Requirement::Hotplug => hotplug_lack(session),
        Requirement::Lab => missing(is_lab(), "lab", "the lab"),
    }
}

fn missing(there: bool, class: &'static str, what: &str) -> Option<Lack> {
    (!there).then(|| Lack::new(class, what))
}

/// The hardware events of a scenario, each once.
fn hardware_names(scenario: &Scenario) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for step in &scenario.steps {
        let Statement::Open(open) = &step.statement else { continue };
        for new in &open.events {
            if let (Some(EventClass::Hardware), AstEvent::Named(name)) = (event_class(&new.event), &new.event)
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
    }
    if names.is_empty() { vec!["cycles".to_owned()] } else { names }
}

/// How many of these events, in turn, count at the same time for this thread.
///
/// They are pinned: one that finds no counter is in error at once. Whether a group of so many could be opened would not tell:
/// some PMUs take any number of events that are off.
fn most_hardware(names: &[&str], session: &Session) -> usize {
    let events: Result<Vec<Event>, _> = names.iter().map(|name| Event::parse_with(name, session.catalog())).collect();
    let Ok(events) = events else { return 0 };
    let here = ExactTarget::Task(std::process::id().cast_signed());
    let pinned = GroupMode { priority: Priority::Pinned, ..GroupMode::default() };
    let mut open = Vec::new();
    for event in events.iter().cycle().take(MOST) {
        let Ok(group) = session.open_exactly(std::slice::from_ref(event), here, pinned) else { break };
        if group.enable_all().is_err() || group.state(0).is_ok_and(|state| state == EventState::Error) {
            break;
        }
        open.push(group);
    }
    open.len()
}

/// How many breakpoints for data this thread can have.
fn breakpoints(session: &Session) -> usize {
    let here = ExactTarget::Task(std::process::id().cast_signed());
    let mut open = Vec::new();
    for index in 0..MOST as u64 {
        let event = Event::breakpoint(BASE + 16 * index, 4, Access::WRITE);
        match session.open_exactly(&[event], here, GroupMode::default()) {
            Ok(group) => open.push(group),
            Err(_) => break,
        }
    }
    open.len()
}

/// Whether this is root, and may count whole CPUs.
fn is_root(session: &Session) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let effective = users.split_whitespace().nth(1);
    let cpu = session.online().first().unwrap_or_default();
    let counts = || {
        session
            .open_exactly(&[Event::software(Software::CpuClock)], ExactTarget::Cpu(cpu), GroupMode::default())
            .is_ok()
    };
    effective == Some("0") && counts()
}

fn hotplug_lack(session: &Session) -> Option<Lack> {
    let asked = std::env::var_os("PMUX_TEST_HOTPLUG").is_some_and(|value| value == "1");
    if !asked && !is_required("hotplug") {
        return Some(Lack::new("hotplug", "PMUX_TEST_HOTPLUG=1"));
    }
    missing(is_root(session), "root", "root")
        .or_else(|| missing(hotplug::can_switch(1), "hotplug", "a CPU 1 that root may switch off"))
}

/// Whether this is the guest that `lab/run` starts.
fn is_lab() -> bool {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim() == "lab" && std::path::Path::new("/lab/command").exists()
}
