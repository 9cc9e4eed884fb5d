//! What is wrong with the head of a scenario.
//!
//! **Invariant:** what the file requires and the machine that it describes fit together.

use std::collections::BTreeSet;

use crate::machine::profiles::NAMES;

use super::super::ast::{DebugRegisters, Event, MachineSpec, Requirement, Scenario};
use super::super::error::Problem;
use super::super::names::{EventClass, event_class, known};
use super::super::nearest::did_you_mean;

pub(super) fn problems(scenario: &Scenario) -> Vec<Problem> {
    let machine = &scenario.header.machine;
    let mut problems = Vec::new();
    if let Some(profile) = &machine.profile
        && !NAMES.contains(&profile.as_str())
    {
        let message = format!("there is no machine `{profile}`: these are {}", NAMES.join(", "));
        problems.push(Problem::new(machine.place, message).with_help_if(did_you_mean(profile, NAMES)));
    }
    events(machine, &mut problems);
    for required in &scenario.header.requires {
        let wrong = match required.requirement {
            Requirement::Cpus(cpus) => match machine.cpus {
                Some(has) if has < cpus => Some(format!("the machine line says {has} CPUs")),
                _ => None,
            },
            Requirement::Counters(counters) => match machine.counters {
                Some(has) if u32::from(has) != counters => Some(format!("the machine line says {has} counters")),
                _ => None,
            },
            Requirement::BreakpointSlots(slots) => match machine.breakpoints {
                Some(DebugRegisters::Shared(has) | DebugRegisters::Separate { data: has, .. }) if has != slots => {
                    Some(format!("the machine line says {has} debug registers for data"))
                }
                _ => None,
            },
            Requirement::Kernel | Requirement::Lab if scenario.header.sim_only.is_some() => {
                Some("another line says that it runs on the simulator only".into())
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            let message = format!("this requires {}, but {wrong}", required.requirement);
            problems.push(Problem::new(required.place, message));
        }
    }
    problems
}

fn events(machine: &MachineSpec, problems: &mut Vec<Problem>) {
    let mut fixed = BTreeSet::new();
    let mut constrained = BTreeSet::new();
    let mut wrong = Vec::new();
    for event in &machine.fixed {
        if !fixed.insert(event) {
            wrong.push((format!("`{event}` has two fixed counters"), None));
        }
    }
    for constraint in &machine.constrained {
        let event = &constraint.event;
        if !constrained.insert(event) {
            wrong.push((format!("`{event}` is constrained twice"), None));
        }
        if let (Some(counters), Some(highest)) = (machine.counters, constraint.slots.iter().max())
            && *highest >= counters
        {
            wrong.push((format!("`{event}` can't be on counter {highest}: there are {counters} counters"), None));
        }
        if constraint.slots.is_empty() {
            wrong.push((format!("`{event}` may be on no counter at all"), None));
        }
    }
    for event in fixed.union(&constrained) {
        if event_class(&Event::Named((*event).clone())) != Some(EventClass::Hardware) {
            let help = did_you_mean(event, known());
            wrong.push((format!("`{event}` is no hardware event"), help));
        }
    }
    problems.extend(wrong.into_iter().map(|(message, help)| Problem::new(machine.place, message).with_help_if(help)));
}
