//! The slow and obvious model beside the engine: who was enabled when, added up window by window.
//!
//! What it takes from the engine: which of the enabled events were on a counter in a window (where the engine has a choice), and
//! which were in error. What it knows by itself: which events are enabled, which task runs where, which events are related to
//! which, which CPUs are there.

use crate::inherit::FamilyTaskId;
use crate::target::{ContextKey, Opened};
use crate::testing::Machine;
use crate::{Count, CpuId, Engine, EventId, EventState, GroupId, LockCell, Nanos, SetId, TaskId};
use alloc::vec::Vec;
use proptest::prelude::*;

pub(super) type Checked = Result<(), TestCaseError>;

/// What an event has truly counted.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Truth {
    pub(super) rate: u64,
    pub(super) enabled: u64,
    pub(super) running: u64,
    /// How long it had run when it was reset.
    pub(super) forgotten: u64,
}

impl Truth {
    pub(super) fn count(&self) -> Count {
        let value = self.rate * (self.running - self.forgotten);
        Count { value, enabled: Nanos(self.enabled), running: Nanos(self.running) }
    }

    fn pass(&mut self, ns: u64, state: EventState) {
        self.enabled += if state.ages() { ns } else { 0 };
        self.running += if state == EventState::Active { ns } else { 0 };
    }
}

/// One task in which a group is counted.
#[derive(Clone, Debug)]
pub(super) struct ModelTask {
    pub(super) task: u64,
    pub(super) on: Vec<bool>,
    pub(super) alive: bool,
}

/// A group of a task with everything that it was inherited by.
pub(super) struct FamilyModel {
    pub(super) opened: Opened,
    pub(super) scarce: bool,
    pub(super) pinned: bool,
    pub(super) truth: Vec<Truth>,
    pub(super) tasks: Vec<ModelTask>,
}

/// Which group counts a task for a root group: the root's own, or a child's.
pub(super) fn group_in(engine: &Engine<Machine>, root: &Opened, task: u64) -> Option<Opened> {
    engine.registry.with(|registry| {
        let record = registry.groups.get(root.group)?;
        let family = &registry.families.get(record.family?)?.family;
        let group = if family.is_root(TaskId(task)) {
            root.group
        } else {
            let id: FamilyTaskId = family.find(TaskId(task))?;
            family.counted().find_map(|(other, group)| (other == id).then_some(group))?
        };
        Some(Opened { group, events: registry.groups.get(group)?.events.clone() })
    })
}

pub(super) fn states(engine: &Engine<Machine>, events: &[EventId]) -> Vec<EventState> {
    events.iter().filter_map(|&event| engine.state(event).ok()).collect()
}

impl FamilyModel {
    pub(super) fn new(opened: Opened, scarce: bool, pinned: bool, rates: &[u64], task: u64) -> Self {
        let truth = rates.iter().map(|&rate| Truth { rate, ..Truth::default() }).collect();
        let tasks = vec![ModelTask { task, on: vec![false; rates.len()], alive: true }];
        Self { opened, scarce, pinned, truth, tasks }
    }

    pub(super) fn alive(&self, task: u64) -> Option<&ModelTask> {
        self.tasks.iter().find(|entry| entry.alive && entry.task == task)
    }

    pub(super) fn switch(&mut self, events: core::ops::Range<usize>, on: bool) {
        for entry in self.tasks.iter_mut().filter(|entry| entry.alive) {
            for index in events.clone() {
                entry.on.get_mut(index).into_iter().for_each(|it| *it = on);
            }
        }
    }

    /// Time passes while one of its tasks runs. Checks what the engine says of it.
    pub(super) fn pass(&mut self, engine: &Engine<Machine>, task: u64, ns: u64) -> Checked {
        let Some(entry) = self.alive(task).cloned() else { return Ok(()) };
        let Some(group) = group_in(engine, &self.opened, task) else {
            return Err(TestCaseError::fail("a relative that should be counted is not"));
        };
        let states = states(engine, &group.events);
        let error_allowed = |state| state == EventState::Error && (self.pinned || !self.scarce);
        for (&state, &on) in states.iter().zip(&entry.on) {
            let good = if on { state.ages() || error_allowed(state) } else { state == EventState::Off };
            prop_assert!(good, "{state:?}, on: {on}");
        }
        let leader = states[0].ages();
        let started: Vec<_> = states.iter().filter(|state| state.ages()).collect();
        prop_assert!(leader || !states.contains(&EventState::Active), "no event counts without the leader");
        let whole = started.windows(2).all(|pair| pair[0] == pair[1]);
        prop_assert!(!leader || whole, "whole, or not at all: {states:?}");
        prop_assert!(!leader || self.scarce || *started[0] == EventState::Active, "slots are plenty: {states:?}");
        self.truth.iter_mut().zip(&states).filter(|_| leader).for_each(|(truth, &state)| truth.pass(ns, state));
        Ok(())
    }

    pub(super) fn reset(&mut self, index: usize) {
        if let Some(truth) = self.truth.get_mut(index) {
            truth.forgotten = truth.running;
        }
    }

    /// What the engine reads must be the truth, to the digit, for as many as can be read.
    pub(super) fn check(&self, engine: &Engine<Machine>) -> Checked {
        let together = engine.read_group(self.opened.group).map_err(|e| TestCaseError::fail(format!("{e}")))?;
        for ((&event, truth), with_others) in self.opened.events.iter().zip(&self.truth).zip(together) {
            let alone = engine.read(event);
            prop_assert_eq!(alone, with_others);
            match alone {
                Ok(count) => prop_assert_eq!(count, truth.count()),
                Err(_) => prop_assert_eq!(engine.state(event), Ok(EventState::Error)),
            }
        }
        Ok(())
    }
}

/// A set over CPUs. `truth[cpu][event]` covers all lives of the CPU.
pub(super) struct CpuSet {
    pub(super) set: SetId,
    pub(super) mask: Vec<u32>,
    pub(super) armed: bool,
    pub(super) span: u64,
    pub(super) covered: Vec<u64>,
    pub(super) truth: Vec<Vec<Truth>>,
}

impl CpuSet {
    pub(super) fn new(set: SetId, mask: Vec<u32>, rates: &[u64], cpus: usize) -> Self {
        let truth: Vec<_> = rates.iter().map(|&rate| Truth { rate, ..Truth::default() }).collect();
        Self { set, mask, armed: false, span: 0, covered: vec![0; cpus], truth: vec![truth; cpus] }
    }

    /// Time passes on all CPUs that are online.
    pub(super) fn pass(&mut self, engine: &Engine<Machine>, online: &[bool], ns: u64) -> Checked {
        let armed_ns = if self.armed { ns } else { 0 };
        self.span += armed_ns;
        for (cpu, events) in engine.set_events(self.set).map_err(|e| TestCaseError::fail(format!("{e}")))? {
            let states = states(engine, &events);
            let index = cpu.0 as usize;
            prop_assert!(events.is_empty() || online[index], "nothing is open on a CPU that is not there");
            for (truth, &state) in self.truth[index].iter_mut().zip(&states) {
                prop_assert_eq!((state.ages(), state == EventState::Off), (self.armed, !self.armed));
                truth.pass(ns, state);
            }
            prop_assert!(
                events.is_empty() || self.mask.contains(&cpu.0),
                "nothing is open where the set is not meant for"
            );
            self.covered[index] += if events.is_empty() { 0 } else { armed_ns };
        }
        Ok(())
    }

    pub(super) fn check(&self, engine: &Engine<Machine>, online: &[bool]) -> Checked {
        let reading = engine.read_set(self.set).map_err(|e| TestCaseError::fail(format!("{e}")))?;
        prop_assert_eq!(reading.span, Nanos(self.span));
        for cpu in &reading.coverage {
            let covered = self.covered[cpu.cpu.0 as usize];
            prop_assert_eq!((cpu.covered.0, cpu.missed.0), (covered, self.span - covered));
        }
        for (cpu, _) in self.covered.iter().enumerate().filter(|&(_, &covered)| covered > 0) {
            prop_assert!(reading.coverage.iter().any(|it| it.cpu.0 as usize == cpu), "CPU {cpu} was counted");
        }
        for cpu in &reading.cpus {
            let index = cpu.cpu.0 as usize;
            prop_assert!(self.mask.contains(&cpu.cpu.0));
            let truth: Vec<_> = self.truth[index].iter().map(|truth| Ok(truth.count())).collect();
            prop_assert_eq!(&cpu.counts, &truth);
            prop_assert!(online[index] || cpu.refused.is_none());
        }
        let open = engine.set_events(self.set).map_err(|e| TestCaseError::fail(format!("{e}")))?;
        for &cpu in self.mask.iter().filter(|&&cpu| online[cpu as usize]) {
            let is_open = open.iter().any(|(it, events)| it.0 == cpu && !events.is_empty());
            let refused = reading.cpus.iter().any(|it| it.cpu.0 == cpu && it.refused.is_some());
            prop_assert!(is_open != refused, "CPU {cpu} is there: it is open, or the reading says why not");
        }
        Ok(())
    }
}

/// Everything that runs in a window: one task, and whatever is on the CPUs.
pub(super) fn running(task: u64, online: &[bool]) -> Vec<ContextKey> {
    let cpus = online.iter().zip(0..).filter(|&(&online, _)| online).map(|(_, cpu)| ContextKey::Cpu(CpuId(cpu)));
    cpus.chain([ContextKey::Task(TaskId(task))]).collect()
}

/// No event waits for a counter of a task that it could have.
pub(super) fn no_event_waits_for_nothing(
    engine: &Engine<Machine>,
    family_models: &[FamilyModel],
    task: u64,
) -> Checked {
    let groups: Vec<(GroupId, Vec<EventState>)> = family_models
        .iter()
        .filter(|family_model| family_model.scarce && family_model.alive(task).is_some())
        .filter_map(|family_model| group_in(engine, &family_model.opened, task))
        .map(|opened| (opened.group, states(engine, &opened.events)))
        .collect();
    let taken = groups.iter().flat_map(|(_, states)| states).filter(|&&state| state == EventState::Active).count();
    prop_assert!(taken <= 2);
    for (_, states) in groups {
        let waiting = states.iter().filter(|&&state| state == EventState::Inactive).count();
        prop_assert!(!states[0].ages() || waiting == 0 || taken + waiting > 2, "{states:?} with {taken} taken");
    }
    Ok(())
}
