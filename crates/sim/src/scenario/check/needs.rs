//! What a scenario needs of the machine that it runs on.
//!
//! **Invariant:** a file that passes [`super::check`] says all of it in its `requires:` line, so that a reader of the file, or
//! a runner that skips it, needs to look nowhere else.

use std::collections::BTreeSet;
use std::fmt;

use pmux_engine::CpuId;

use super::super::ast::{CpuList, Exec, Fault, LAB_CPUS, Open, Requirement, Scenario, SourceSpan, Statement, Target};
use super::super::error::Problem;
use super::super::names::{EventClass, event_class};
use super::super::print::list;

/// Requirements, of each kind the strictest one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Requirements(BTreeSet<Requirement>);

impl Requirements {
    /// The requirements, in the order of [`Requirement`].
    pub fn iter(&self) -> impl Iterator<Item = Requirement> + '_ {
        self.0.iter().copied()
    }

    /// Whether this requirement follows from those that are here.
    #[must_use]
    pub fn cover(&self, wanted: Requirement) -> bool {
        self.0.iter().any(|has| covers(*has, wanted))
    }

    fn add(&mut self, requirement: Requirement) {
        if !self.cover(requirement) {
            self.0.retain(|has| !covers(requirement, *has));
            self.0.insert(requirement);
        }
    }
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(requirements: I) -> Self {
        let mut all = Self::default();
        requirements.into_iter().for_each(|requirement| all.add(requirement));
        all
    }
}

/// Prints `pmu, cpus=2`.
impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&list(&self.0))
    }
}

/// Whether a machine that has the one has the other.
fn covers(has: Requirement, wanted: Requirement) -> bool {
    match (has, wanted) {
        (Requirement::Cpus(has), Requirement::Cpus(wanted)) => has >= wanted,
        (Requirement::BreakpointSlots(_), Requirement::Breakpoints)
        | (Requirement::Counters(_) | Requirement::Lab, Requirement::Pmu)
        | (Requirement::Lab, Requirement::Breakpoints | Requirement::Root | Requirement::Hotplug)
        | (Requirement::Lab, Requirement::Kernel) => true,
        (Requirement::Lab, Requirement::Cpus(wanted)) => wanted <= LAB_CPUS,
        (has, wanted) => has == wanted,
    }
}

/// What a scenario needs: what it says, and what its statements imply.
#[must_use]
pub fn needs(scenario: &Scenario) -> Requirements {
    let said = scenario.header.requires.iter().map(|required| required.requirement);
    said.chain(implied(scenario).into_iter().map(|need| need.requirement)).collect()
}

/// What the `requires:` line should say but doesn't: each at the first statement that needs it.
pub(super) fn problems(scenario: &Scenario) -> Vec<Problem> {
    if scenario.header.sim_only.is_some() {
        return Vec::new();
    }
    let said: Requirements = scenario.header.requires.iter().map(|required| required.requirement).collect();
    // Where a higher number is needed as well, that one says it.
    let (mut seen, all) = (Requirements::default(), needs(scenario));
    let mut problems = Vec::new();
    for need in implied(scenario) {
        if !said.cover(need.requirement) && !seen.cover(need.requirement) && all.0.contains(&need.requirement) {
            let message = format!("{} needs `{}`, and the file doesn't say so", need.what, need.requirement);
            problems.push(Problem::elsewhere(need.place, message).with_help(format!("write `requires: {all}`")));
            seen.add(need.requirement);
        }
    }
    problems
}

struct Need {
    requirement: Requirement,
    /// Who needs it.
    what: &'static str,
    place: SourceSpan,
}

fn implied(scenario: &Scenario) -> Vec<Need> {
    let mut needs = Vec::new();
    for step in &scenario.steps {
        let mut need = |requirement, what| needs.push(Need { requirement, what, place: step.place });
        let mut cpus = Vec::new();
        match &step.statement {
            Statement::Open(open) => of_open(open, &mut need, &mut cpus),
            Statement::Task { on, .. } => cpus.extend(*on),
            Statement::Run(run) => cpus.extend(run.on),
            Statement::Migrate { to, .. } => cpus.push(*to),
            Statement::Offline { cpu } | Statement::Online { cpu } => {
                need(Requirement::Hotplug, "taking a CPU offline");
                cpus.push(*cpu);
            }
            Statement::Modify { .. } => need(Requirement::Breakpoints, "a breakpoint"),
            Statement::Exec { kind: Exec::ChangesRights, .. } => need(Requirement::Root, "a program that gains rights"),
            Statement::Fault(Fault::DoorbellSpurious(cpu) | Fault::Storm(cpu, _) | Fault::Held(cpu, _)) => {
                cpus.push(*cpu);
            }
            _ => {}
        }
        // Every machine has CPU 0.
        if let Some(CpuId(highest @ 1..)) = cpus.iter().max() {
            need(Requirement::Cpus(highest.saturating_add(1)), "that CPU");
        }
    }
    needs
}

fn of_open(open: &Open, need: &mut impl FnMut(Requirement, &'static str), cpus: &mut Vec<CpuId>) {
    for new in &open.events {
        match event_class(&new.event) {
            Some(EventClass::Hardware) => need(Requirement::Pmu, "a hardware event"),
            Some(EventClass::Breakpoint) => need(Requirement::Breakpoints, "a breakpoint"),
            Some(EventClass::Tracepoint) => need(Requirement::Root, "a tracepoint"),
            Some(EventClass::Software) | None => {}
        }
    }
    match &open.target {
        Target::Task(_) => {}
        Target::TaskOnCpu(_, cpu) => cpus.push(*cpu),
        Target::Cpus(list) => {
            need(Requirement::Root, "counting whole CPUs");
            cpus.push(list.highest());
        }
        Target::SystemWide(list) => {
            need(Requirement::Root, "counting whole CPUs");
            cpus.extend(list.as_ref().map(CpuList::highest));
        }
    }
}
