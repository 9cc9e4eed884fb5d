//! A machine out of the head of a scenario.
//!
//! What it is: the machine line, and what is required, as a [`Description`] of the simulated machine.
//!
//! **Invariant:** pure; what the line says twice or impossibly is [`Unusable`], never another machine.

use super::super::ast::{DebugRegisters, Fault, MachineSpec, Requirement, Scenario, SourceSpan, Statement};
use super::super::names::canonical_event;
use super::RunOptions;
use crate::machine::{Counts, Description, Kind, PmuDescription, Reach, profiles};
use pmux_engine::pmu::{OverflowBy, SlotMask, Slots};
use std::fmt;

/// The counters of a machine of which nothing is said.
const COUNTERS: u8 = 4;
/// Their width.
const WIDTH_BITS: u8 = 48;
/// The most counters that a PMU can have, general and fixed ones.
const MOST_COUNTERS: usize = 64;

/// Why the simulator can't run a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unusable {
    /// What it can't do: one sentence without its point.
    pub message: String,
    /// Where that is asked for.
    pub place: SourceSpan,
}

impl Unusable {
    pub(super) fn new(place: SourceSpan, message: impl Into<String>) -> Self {
        Self { message: message.into(), place }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.line > 0 {
            write!(f, "line {}: ", self.place.line)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Unusable {}

/// The machine that a scenario runs on.
///
/// Where neither the machine line nor `requires:` says anything: four counters of 48 bits, overflows by interrupt, four debug
/// registers, a tick each millisecond; for `requires: lab` the lab. Callers reach every register, unless the machine line says
/// otherwise, or nothing, and the scenario makes faults of doorbells: then they reach those of their own CPU.
///
/// # Errors
/// What can't be, in this order: it shows nothing here (`requires: kernel`), the profile, the events and counters of the
/// machine line, what [`Description::check`] says.
pub fn description(scenario: &Scenario, options: &RunOptions) -> Result<Description, Unusable> {
    let requires = |wanted| scenario.header.requires.iter().find(|required| required.requirement == wanted);
    if let Some(required) = requires(Requirement::Kernel) {
        return Err(Unusable::new(required.place, "it requires a kernel, and shows nothing on the simulator"));
    }
    let machine = scenario.simulated_machine();
    let cpus = scenario.cpus();
    let wrong = |message: String| Unusable::new(machine.place, message);
    let mut description = match (&machine.profile, requires(Requirement::Lab)) {
        (Some(profile), _) => {
            profiles::by_name(profile, cpus).ok_or_else(|| wrong(format!("there is no machine `{profile}`")))?
        }
        (None, Some(_)) => profiles::arm_neoverse(cpus),
        (None, None) => {
            profiles::around(cpus, PmuDescription::hardware("cpu", COUNTERS, WIDTH_BITS, OverflowBy::Interrupt))
        }
    };
    for pmu in &mut description.pmus {
        match (&pmu.counts, pmu.slots) {
            (Counts::Accesses { .. }, _) => change_debug_registers(pmu, machine.breakpoints),
            (_, Slots::Scarce(_)) => *pmu = changed(pmu, &machine).map_err(wrong)?,
            (_, Slots::Plenty) => {}
        }
    }
    description.tick = machine.tick.unwrap_or(description.tick);
    description.reach = options.reach.or(machine.callers).unwrap_or_else(|| reach(scenario));
    description.trace = options.timeline;
    description.check().map_err(|error| wrong(error.to_string()))?;
    Ok(description)
}

/// Doorbells ring only where callers do not reach everything.
fn reach(scenario: &Scenario) -> Reach {
    let rings = |statement: &Statement| {
        matches!(
            statement,
            Statement::Fault(Fault::DoorbellLate(_) | Fault::DoorbellTwice | Fault::DoorbellSpurious(_))
        )
    };
    if scenario.steps.iter().any(|step| rings(&step.statement)) { Reach::OwnCpu } else { Reach::Everywhere }
}

fn change_debug_registers(pmu: &mut PmuDescription, registers: Option<DebugRegisters>) {
    // More than there can be is said by the check of the description.
    let byte = |count: u32| u8::try_from(count).unwrap_or(u8::MAX);
    match registers {
        None => {}
        Some(DebugRegisters::Shared(count)) => *pmu = PmuDescription::breakpoints(byte(count)),
        Some(DebugRegisters::Separate { execute, data }) => {
            *pmu = PmuDescription::separate_breakpoints(byte(execute), byte(data));
        }
    }
}

/// The hardware PMU of a profile, with what the machine line says otherwise.
fn changed(pmu: &PmuDescription, machine: &MachineSpec) -> Result<PmuDescription, String> {
    let (general, fixed_before) = parts(pmu);
    let general = machine.counters.unwrap_or(general);
    let overflow = machine.overflow.unwrap_or(pmu.overflow);
    let width_bits = machine.width_bits.unwrap_or(pmu.width_bits);
    let mut changed = PmuDescription::hardware(&pmu.name, general, width_bits, overflow);
    for constraint in &machine.constrained {
        let mut on = SlotMask::default();
        for &slot in &constraint.slots {
            if slot >= general {
                return Err(format!("`{}` can't be on counter {slot}: there are {general}", constraint.event));
            }
            on.0 |= 1 << slot;
        }
        changed = changed.with_constraint(hardware_kind(&constraint.event)?, on);
    }
    // Last: a fixed counter is beside those that a constraint speaks of.
    let said = machine.fixed.iter().map(|event| hardware_kind(event)).collect::<Result<Vec<_>, _>>()?;
    let fixed = if said.is_empty() { fixed_before } else { said };
    if usize::from(general) + fixed.len() > MOST_COUNTERS {
        return Err(format!("{} counters; {MOST_COUNTERS} is the most", usize::from(general) + fixed.len()));
    }
    Ok(fixed.into_iter().fold(changed, PmuDescription::with_fixed))
}

/// How many general counters a PMU has, and which events have one of their own.
fn parts(pmu: &PmuDescription) -> (u8, Vec<Kind>) {
    let (Counts::Kinds(kinds), Slots::Scarce(count)) = (&pmu.counts, pmu.slots) else { return (0, Vec::new()) };
    let general = kinds.iter().fold(SlotMask::first(count), |all, (_, mask)| SlotMask(all.0 & mask.0));
    let fixed = (0..count).filter(|slot| general.0 & 1 << slot == 0);
    let owner = |slot: u8| kinds.iter().find(|(_, mask)| mask.0 & 1 << slot != 0).map(|(kind, _)| *kind);
    (general.len() as u8, fixed.filter_map(owner).collect())
}

fn hardware_kind(event: &str) -> Result<Kind, String> {
    let kind = canonical_event(event).and_then(Kind::by_name).or_else(|| Kind::by_name(event));
    kind.filter(|kind| Kind::hardware().any(|known| known == *kind))
        .ok_or_else(|| format!("the simulator has no hardware event `{event}`"))
}

#[cfg(test)]
mod tests {
    use super::super::super::parse;
    use super::*;

    fn made(text: &str) -> Result<Description, Unusable> {
        let scenario = parse(text).unwrap_or_else(|problems| panic!("{problems:?}"));
        description(&scenario, &RunOptions::default())
    }

    #[test]
    fn nothing_said_is_four_counters() {
        let machine = made("task A\n").unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!((machine.cpus, machine.pmus[0].slots, machine.reach), (2, Slots::Scarce(4), Reach::Everywhere));
    }

    #[test]
    fn keys_change_a_profile_and_leave_the_rest() {
        let machine =
            made("machine profile=intel-skylake counters=2 width=40\n").unwrap_or_else(|wrong| panic!("{wrong}"));
        let (pmu, skylake) = (&machine.pmus[0], profiles::intel_skylake(2).pmus.swap_remove(0));
        assert_eq!((pmu.slots, pmu.width_bits, pmu.overflow), (Slots::Scarce(5), 40, skylake.overflow));
        assert_eq!(parts(pmu), (2, parts(&skylake).1));
        assert_eq!(parts(&skylake), (4, vec![Kind::INSTRUCTIONS, Kind::CYCLES, Kind::REF_CYCLES]));
        let fixed = made("machine profile=intel-skylake fixed=cycles\n").unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(parts(&fixed.pmus[0]), (4, vec![Kind::CYCLES]));
    }

    #[test]
    fn an_event_may_be_constrained_and_have_a_counter_of_its_own() {
        let machine = made("machine counters=3 fixed=cycles constrained=cycles:0,branches:1-2\n");
        let Ok(machine) = machine else { panic!("{machine:?}") };
        let Counts::Kinds(kinds) = &machine.pmus[0].counts else { panic!("it counts kinds") };
        let mask = |kind| kinds.iter().find(|(other, _)| *other == kind).map(|(_, mask)| mask.0);
        assert_eq!(mask(Kind::CYCLES), Some(0b1001));
        assert_eq!(Kind::by_name("branches").and_then(mask), Some(0b0110));
    }

    #[test]
    fn faults_of_doorbells_need_doorbells() {
        let machine = made("machine cpus=2\nsim only: faults\nfault doorbell twice\n");
        assert_eq!(machine.map(|machine| machine.reach), Ok(Reach::OwnCpu));
        let machine = made("machine cpus=2 callers=own-cpu\ntask A\n");
        assert_eq!(machine.map(|machine| machine.reach), Ok(Reach::OwnCpu));
        let machine = made("machine cpus=2 callers=everywhere\nsim only: faults\nfault doorbell twice\n");
        assert_eq!(machine.map(|machine| machine.reach), Ok(Reach::Everywhere));
    }

    #[test]
    fn what_the_simulator_is_not_is_said() {
        let message = |text| made(text).err().map(|wrong| wrong.message).unwrap_or_default();
        assert!(message("requires: kernel\ntask A\n").contains("shows nothing on the simulator"));
        assert!(message("machine profile=vax\n").contains("vax"));
        assert!(message("machine counters=2 constrained=cycles:2\n").contains("counter 2"));
        assert!(message("machine counters=64 fixed=cycles\n").contains("64 is the most"));
        assert!(message("machine fixed=LLC-loads\n").contains("LLC-loads"));
    }
}
