//! Random operations, refusals and hotplug against the model.
//!
//! Every event counts `rate` per nanosecond that it runs, so its value, its time running and its time enabled are known
//! to the digit after each step, summed over all relatives and over all lives of a CPU.

use super::model::{Checked, CpuSet, FamilyModel, group_in, no_event_waits_for_nothing, running, states};
use crate::engine::{Census, SetRequest};
use crate::system_wide::{Absent, SetScope};
use crate::target::{ContextKey, Presence};
use crate::testing::{Machine, PLENTY, SCARCE, event, flagged, group};
use crate::{CpuId, Engine, EventState, Target, TaskId};
use alloc::vec::Vec;
use pmux_abi::attr::AttrFlags;
use proptest::prelude::*;

const CPUS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Op {
    Open { scarce: bool, events: usize, task: usize, pinned: bool },
    Close(usize),
    Enable(usize),
    Disable(usize),
    EnableOne(usize, usize),
    DisableOne(usize, usize),
    Reset(usize, usize),
    Run { task: usize, ns: u64 },
    Fork(usize),
    Exit(usize),
    OpenSet { scarce: bool, events: usize, mask: u32 },
    Arm(usize),
    Disarm(usize),
    CloseSet(usize),
    Hotplug(usize),
}

/// What the counters refuse during one operation.
#[derive(Clone, Copy, Debug)]
struct Refusals {
    programs: u32,
    starts: u32,
}

fn op() -> impl Strategy<Value = Op> {
    let (task, any_group) = (0_usize..8, 0_usize..8);
    prop_oneof![
        4 => (any::<bool>(), 1_usize..3, task.clone(), prop::bool::weighted(0.2))
            .prop_map(|(scarce, events, task, pinned)| Op::Open { scarce, events, task, pinned }),
        1 => any_group.clone().prop_map(Op::Close),
        4 => any_group.clone().prop_map(Op::Enable),
        2 => any_group.clone().prop_map(Op::Disable),
        2 => (any_group.clone(), 0_usize..2).prop_map(|(g, e)| Op::EnableOne(g, e)),
        2 => (any_group.clone(), 0_usize..2).prop_map(|(g, e)| Op::DisableOne(g, e)),
        1 => (any_group.clone(), 0_usize..2).prop_map(|(g, e)| Op::Reset(g, e)),
        6 => (task.clone(), 1_u64..1000).prop_map(|(task, ns)| Op::Run { task, ns }),
        3 => task.clone().prop_map(Op::Fork),
        2 => task.prop_map(Op::Exit),
        2 => (any::<bool>(), 1_usize..3, 0_u32..8).prop_map(|(scarce, events, mask)| Op::OpenSet { scarce, events, mask }),
        3 => any_group.clone().prop_map(Op::Arm),
        1 => any_group.clone().prop_map(Op::Disarm),
        1 => any_group.prop_map(Op::CloseSet),
        2 => (0..CPUS).prop_map(Op::Hotplug),
    ]
}

fn refusals() -> impl Strategy<Value = Refusals> {
    prop_oneof![
        6 => Just(Refusals { programs: 0, starts: 0 }),
        1 => (1_u32..3).prop_map(|programs| Refusals { programs, starts: 0 }),
        1 => (1_u32..3).prop_map(|starts| Refusals { programs: 0, starts }),
    ]
}

fn cpus_of(bits: u32) -> Vec<u32> {
    (0..CPUS as u32).filter(|cpu| bits >> cpu & 1 == 1).collect()
}

struct World {
    engine: Engine<Machine>,
    family_models: Vec<FamilyModel>,
    sets: Vec<CpuSet>,
    alive: Vec<u64>,
    online: [bool; CPUS],
    next_task: u64,
    next_rate: u64,
}

impl World {
    fn new() -> Self {
        let engine = Machine::engine(CPUS as u32);
        for task in [1, 2] {
            engine.host().place(ContextKey::Task(TaskId(task)), Presence::Out);
        }
        let (family_models, sets) = (Vec::new(), Vec::new());
        Self { engine, family_models, sets, alive: vec![1, 2], online: [true; CPUS], next_task: 3, next_rate: 1 }
    }

    fn rates(&mut self, events: usize) -> Vec<u64> {
        self.next_rate += events as u64;
        (self.next_rate - events as u64..self.next_rate).collect()
    }

    fn task(&self, task: usize) -> Option<u64> {
        self.alive.get(task % self.alive.len().max(1)).copied()
    }

    fn step(&mut self, op: Op, refusals: Refusals) -> Checked {
        self.engine.host().refuse_programs(refusals.programs);
        self.engine.host().refuse_starts(refusals.starts);
        let disturbed = refusals.programs + refusals.starts > 0;
        let (groups, sets) = (self.family_models.len().max(1), self.sets.len().max(1));
        match op {
            Op::Open { scarce, events, task, pinned } => self.open(scarce, events, task, pinned, disturbed)?,
            Op::Close(index) if !self.family_models.is_empty() => {
                let family_model = self.family_models.swap_remove(index % groups);
                self.engine.close(family_model.opened.group);
                prop_assert!(self.engine.read(family_model.opened.events[0]).is_err());
            }
            Op::Enable(index) | Op::Disable(index) => {
                let Some(family_model) = self.family_models.get_mut(index % groups) else { return Ok(()) };
                let (group, on) = (family_model.opened.group, matches!(op, Op::Enable(_)));
                let done = if on { self.engine.enable_group(group) } else { self.engine.disable_group(group) };
                prop_assert!(done.is_ok() || on && (disturbed || family_model.pinned), "{:?}", done);
                family_model.switch(0..family_model.truth.len(), on);
            }
            Op::EnableOne(index, event) | Op::DisableOne(index, event) => {
                let Some(family_model) = self.family_models.get_mut(index % groups) else { return Ok(()) };
                let Some(&id) = family_model.opened.events.get(event) else { return Ok(()) };
                let on = matches!(op, Op::EnableOne(..));
                let done = if on { self.engine.enable(id) } else { self.engine.disable(id) };
                prop_assert!(done.is_ok() || on && (disturbed || family_model.pinned), "{:?}", done);
                family_model.switch(event..event + 1, on);
            }
            Op::Reset(index, event) => {
                let Some(family_model) = self.family_models.get_mut(index % groups) else { return Ok(()) };
                let Some(&id) = family_model.opened.events.get(event) else { return Ok(()) };
                prop_assert_eq!(self.engine.reset(id), Ok(()));
                family_model.reset(event);
            }
            Op::Run { task, ns } => self.run(task, ns, disturbed)?,
            Op::Fork(parent) => self.fork(parent, disturbed)?,
            Op::Exit(task) => {
                let Some(task) = self.task(task) else { return Ok(()) };
                self.alive.retain(|&other| other != task);
                self.engine.task_exit(TaskId(task));
                for entry in self.family_models.iter_mut().flat_map(|family_model| &mut family_model.tasks) {
                    entry.alive &= entry.task != task;
                }
            }
            Op::OpenSet { scarce, events, mask } => self.open_set(scarce, events, mask, disturbed)?,
            Op::Arm(index) => {
                let Some(set) = self.sets.get_mut(index % sets) else { return Ok(()) };
                set.armed = self.engine.enable_set(set.set).is_ok();
                prop_assert!(set.armed || disturbed);
            }
            Op::Disarm(index) => {
                let Some(set) = self.sets.get_mut(index % sets) else { return Ok(()) };
                prop_assert_eq!(self.engine.disable_set(set.set), Ok(()));
                set.armed = false;
            }
            Op::CloseSet(index) if !self.sets.is_empty() => {
                self.engine.close_set(self.sets.swap_remove(index % sets).set);
            }
            Op::Hotplug(cpu) => {
                let id = CpuId(cpu as u32);
                match self.online[cpu] {
                    true => self.engine.cpu_offline(id),
                    false => self.engine.cpu_online(id),
                }
                self.online[cpu] = !self.online[cpu];
            }
            Op::Close(_) | Op::CloseSet(_) => {}
        }
        self.engine.host().refuse_programs(0);
        self.engine.host().refuse_starts(0);
        Ok(())
    }

    fn open(&mut self, scarce: bool, events: usize, task: usize, pinned: bool, disturbed: bool) -> Checked {
        let Some(task) = self.task(task) else { return Ok(()) };
        let rates = self.rates(events);
        let flags = |index| if pinned && index == 0 { AttrFlags::PINNED } else { AttrFlags::empty() };
        let attr = |(index, &rate)| flagged(rate, AttrFlags::INHERIT | flags(index));
        let attrs: Vec<_> = rates.iter().enumerate().map(attr).collect();
        let before = self.engine.census();
        match self.engine.open(&group(if scarce { SCARCE } else { PLENTY }, &attrs), Target::task(TaskId(task))) {
            Ok(opened) => self.family_models.push(FamilyModel::new(opened, scarce, pinned, &rates, task)),
            Err(_) => {
                prop_assert!(disturbed);
                prop_assert_eq!(self.engine.census(), before);
            }
        }
        Ok(())
    }

    fn open_set(&mut self, scarce: bool, events: usize, mask: u32, disturbed: bool) -> Checked {
        let rates = self.rates(events);
        let attrs: Vec<_> = rates.iter().map(|&rate| event(rate)).collect();
        let mask = cpus_of(mask);
        let groups = vec![group(if scarce { SCARCE } else { PLENTY }, &attrs)];
        let cpus = mask.iter().copied().map(CpuId).collect();
        let request = SetRequest { groups, scope: SetScope::Everything, mask: cpus, absent: Absent::Await };
        let before = self.engine.census();
        match self.engine.open_set(request) {
            Ok(set) => self.sets.push(CpuSet::new(set, mask, &rates, CPUS)),
            Err(_) => {
                prop_assert!(disturbed);
                prop_assert_eq!(self.engine.census(), before);
            }
        }
        Ok(())
    }

    fn run(&mut self, task: usize, ns: u64, disturbed: bool) -> Checked {
        let Some(task) = self.task(task) else { return Ok(()) };
        self.engine.switch_in(TaskId(task), CpuId(0));
        for family_model in &mut self.family_models {
            family_model.pass(&self.engine, task, ns)?;
        }
        for set in &mut self.sets {
            set.pass(&self.engine, &self.online, ns)?;
        }
        if !disturbed {
            no_event_waits_for_nothing(&self.engine, &self.family_models, task)?;
        }
        self.engine.host().run(&running(task, &self.online), ns);
        self.engine.switch_out(TaskId(task));
        Ok(())
    }

    fn fork(&mut self, parent: usize, disturbed: bool) -> Checked {
        let Some(parent) = self.task(parent).filter(|_| self.alive.len() < 12) else { return Ok(()) };
        let child = self.next_task;
        self.next_task += 1;
        self.engine.host().place(ContextKey::Task(TaskId(child)), Presence::Out);
        let forked = self.engine.task_fork(TaskId(parent), TaskId(child));
        prop_assert!(forked.is_ok() || disturbed);
        self.alive.push(child);
        for family_model in &mut self.family_models {
            let Some(from) = family_model.alive(parent) else { continue };
            let Some(group) = group_in(&self.engine, &family_model.opened, parent) else { continue };
            let ages = states(&self.engine, &group.events).into_iter().map(EventState::ages);
            let on = from.on.iter().zip(ages).map(|(&on, ages)| on && ages).collect();
            match group_in(&self.engine, &family_model.opened, child) {
                Some(_) => family_model.tasks.push(super::model::ModelTask { task: child, on, alive: true }),
                None => prop_assert!(forked.is_err(), "a child that was not refused is counted"),
            }
        }
        Ok(())
    }

    fn check(&self) -> Checked {
        self.family_models.iter().try_for_each(|family_model| family_model.check(&self.engine))?;
        self.sets.iter().try_for_each(|set| set.check(&self.engine, &self.online))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn counts_and_times_are_exact_whatever_happens(ops in prop::collection::vec((op(), refusals(), any::<bool>()), 1..80)) {
        let mut world = World::new();
        for (op, refusals, look) in ops {
            world.step(op, refusals)?;
            // A reading settles times and faults: much happens between two looks as well.
            if look {
                world.check()?;
            }
        }
        world.check()?;
        world.family_models.drain(..).for_each(|family_model| world.engine.close(family_model.opened.group));
        world.sets.drain(..).for_each(|set| world.engine.close_set(set.set));
        prop_assert_eq!(world.engine.census(), Census::default());
        prop_assert_eq!(world.engine.host().leased(), 0);
    }
}
