//! Everything at random, to an engine that shares and to one that doesn't: what they say is the same, to the digit.
//!
//! The one that shares has few counters, but enough for as many different questions as there are; the other one has as many as
//! there are events. So where the first one needed more counters than questions, it would multiplex, and differ.

use super::everywhere;
use crate::engine::{Census, Exec};
use crate::target::{ContextKey, Opened, Presence};
use crate::testing::{Machine, PLENTY, WIDE, flagged, group};
use crate::{CpuId, Engine, ModifyError, PmuId, SetId, Target, TaskId};
use alloc::string::String;
use alloc::vec::Vec;
use pmux_abi::attr::AttrFlags;
use proptest::prelude::*;

const CPUS: u32 = 2;

#[derive(Clone, Debug)]
enum Op {
    Open { rates: Vec<u64>, place: usize, inherit: bool },
    Close(usize),
    Enable(usize, Option<usize>),
    Disable(usize, Option<usize>),
    Reset(usize, usize),
    Modify(usize, usize, u64),
    Run(u64, u32),
    Fork(usize),
    Exit(usize),
    Exec(usize, bool),
    OpenSet(Vec<u64>),
    Arm(usize),
    Disarm(usize),
    ResetSet(usize),
    CloseSet(usize),
    Hotplug(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let nth = 0_usize..12;
    let rates = || prop::collection::vec(1_u64..4, 1..4);
    let which = prop::option::of(0_usize..3);
    prop_oneof![
        6 => (rates(), 0_usize..6, any::<bool>()).prop_map(|(rates, place, inherit)| Op::Open { rates, place, inherit }),
        2 => nth.clone().prop_map(Op::Close),
        6 => (nth.clone(), which.clone()).prop_map(|(group, event)| Op::Enable(group, event)),
        3 => (nth.clone(), which).prop_map(|(group, event)| Op::Disable(group, event)),
        1 => (nth.clone(), 0_usize..3).prop_map(|(group, event)| Op::Reset(group, event)),
        1 => (nth.clone(), 0_usize..3, 1_u64..5).prop_map(|(group, event, rate)| Op::Modify(group, event, rate)),
        6 => (1_u64..100, any::<u32>()).prop_map(|(ns, who)| Op::Run(ns, who)),
        2 => nth.clone().prop_map(Op::Fork),
        1 => nth.clone().prop_map(Op::Exit),
        1 => (nth.clone(), prop::bool::weighted(0.2)).prop_map(|(task, rights)| Op::Exec(task, rights)),
        2 => rates().prop_map(Op::OpenSet),
        3 => nth.clone().prop_map(Op::Arm),
        1 => nth.clone().prop_map(Op::Disarm),
        1 => nth.clone().prop_map(Op::ResetSet),
        1 => nth.prop_map(Op::CloseSet),
        1 => (0..CPUS).prop_map(Op::Hotplug),
    ]
}

struct Variant {
    engine: Engine<Machine>,
    pmu: PmuId,
    groups: Vec<Opened>,
    sets: Vec<SetId>,
}

/// What both are told.
struct Case {
    alive: Vec<u64>,
    next_task: u64,
    online: [bool; CPUS as usize],
}

impl Variant {
    fn new(engine: Engine<Machine>, pmu: PmuId) -> Self {
        for task in [1, 2] {
            engine.host().place(ContextKey::Task(TaskId(task)), Presence::In);
        }
        Self { engine, pmu, groups: Vec::new(), sets: Vec::new() }
    }

    fn nth(&self, index: usize) -> Option<&Opened> {
        self.groups.get(index % self.groups.len().max(1))
    }

    fn set(&self, index: usize) -> Option<SetId> {
        self.sets.get(index % self.sets.len().max(1)).copied()
    }

    /// Does it; whether it worked, in words, so that the two can be compared.
    fn step(&mut self, op: &Op, case: &Case) -> String {
        let (engine, pmu) = (&self.engine, self.pmu);
        let task = |index: usize| case.alive.get(index % case.alive.len().max(1)).copied();
        match *op {
            Op::Open { ref rates, place, inherit } => {
                let flags = if inherit { AttrFlags::INHERIT } else { AttrFlags::empty() };
                let attrs: Vec<_> = rates.iter().map(|&rate| flagged(rate, flags)).collect();
                let target = match place.checked_sub(CPUS as usize) {
                    None => Target::cpu(CpuId(place as u32)),
                    Some(index) => match task(index) {
                        Some(task) => Target::task(TaskId(task)),
                        None => return String::new(),
                    },
                };
                match engine.open(&group(pmu, &attrs), target) {
                    Ok(opened) => {
                        self.groups.push(opened);
                        "open".into()
                    }
                    Err(error) => format!("{error:?}"),
                }
            }
            Op::Close(index) => {
                if !self.groups.is_empty() {
                    let gone = self.groups.swap_remove(index % self.groups.len());
                    engine.close(gone.group);
                }
                String::new()
            }
            Op::Enable(index, event) | Op::Disable(index, event) => {
                let Some(opened) = self.nth(index) else { return String::new() };
                let on = matches!(op, Op::Enable(..));
                let one = event.and_then(|event| opened.events.get(event).copied());
                format!(
                    "{:?}",
                    match (one, on) {
                        (Some(event), true) => engine.enable(event),
                        (Some(event), false) => engine.disable(event),
                        (None, true) => engine.enable_group(opened.group),
                        (None, false) => engine.disable_group(opened.group),
                    }
                )
            }
            Op::Reset(index, event) => {
                let event = self.nth(index).and_then(|opened| opened.events.get(event));
                event.map(|&event| format!("{:?}", engine.reset(event))).unwrap_or_default()
            }
            Op::Modify(index, event, rate) => {
                let Some(&event) = self.nth(index).and_then(|opened| opened.events.get(event)) else {
                    return String::new();
                };
                let Ok(attr) = engine.attr(event) else { return "closed".into() };
                let attr = flagged(rate, attr.flags & AttrFlags::INHERIT);
                format!("{:?}", engine.modify(event, &attr))
            }
            Op::Run(ns, who) => {
                let tasks = case.alive.iter().filter(|&&task| who >> (task % 32) & 1 == 1);
                let cpus = (0..CPUS).filter(|&cpu| case.online[cpu as usize]).map(|cpu| ContextKey::Cpu(CpuId(cpu)));
                let all: Vec<_> = cpus.chain(tasks.map(|&task| ContextKey::Task(TaskId(task)))).collect();
                // Those who do not run now are away meanwhile.
                let away: Vec<_> = case.alive.iter().filter(|&&task| who >> (task % 32) & 1 == 0).collect();
                away.iter().for_each(|&&task| engine.switch_out(TaskId(task)));
                engine.host().run(&all, ns);
                away.iter().for_each(|&&task| engine.switch_in(TaskId(task), CpuId(0)));
                String::new()
            }
            Op::Fork(index) => match task(index) {
                Some(parent) => {
                    engine.host().place(ContextKey::Task(TaskId(case.next_task)), Presence::In);
                    format!("{:?}", engine.task_fork(TaskId(parent), TaskId(case.next_task)))
                }
                None => String::new(),
            },
            Op::Exit(index) => {
                task(index).into_iter().for_each(|task| engine.task_exit(TaskId(task)));
                String::new()
            }
            Op::Exec(index, rights) => {
                let exec = if rights { Exec::ChangesRights } else { Exec::Plain };
                task(index).into_iter().for_each(|task| engine.task_exec(TaskId(task), exec));
                String::new()
            }
            Op::OpenSet(ref rates) => {
                let attrs: Vec<_> = rates.iter().map(|&rate| flagged(rate, AttrFlags::empty())).collect();
                match engine.open_set(everywhere(vec![group(pmu, &attrs)], 0..CPUS)) {
                    Ok(set) => {
                        self.sets.push(set);
                        "open".into()
                    }
                    Err(error) => format!("{error:?}"),
                }
            }
            Op::Arm(index) => self.set(index).map(|set| format!("{:?}", engine.enable_set(set))).unwrap_or_default(),
            Op::Disarm(index) => {
                self.set(index).map(|set| format!("{:?}", engine.disable_set(set))).unwrap_or_default()
            }
            Op::ResetSet(index) => {
                self.set(index).map(|set| format!("{:?}", engine.reset_set(set))).unwrap_or_default()
            }
            Op::CloseSet(index) => {
                if !self.sets.is_empty() {
                    let gone = self.sets.swap_remove(index % self.sets.len());
                    engine.close_set(gone);
                }
                String::new()
            }
            Op::Hotplug(cpu) => {
                match case.online[cpu as usize] {
                    true => engine.cpu_offline(CpuId(cpu)),
                    false => engine.cpu_online(CpuId(cpu)),
                }
                String::new()
            }
        }
    }

    /// Everything that can be asked.
    fn say(&self) -> Vec<String> {
        let engine = &self.engine;
        let group = |opened: &Opened| {
            let each = opened.events.iter().map(|&event| {
                let read = engine.read(event);
                format!("{read:?} {:?} {:?}", engine.state(event), engine.fault(event))
            });
            format!("{:?} {:?}", engine.read_group(opened.group), each.collect::<Vec<_>>())
        };
        let set = |&set: &SetId| format!("{:?}", engine.read_set(set));
        let census = engine.census();
        // A child has a group for each master, so there are fewer.
        let open = format!("{} {}", census.contexts, census.sets);
        self.groups.iter().map(group).chain(self.sets.iter().map(set)).chain([open]).collect()
    }
}

impl Case {
    fn goes_on(&mut self, op: &Op) {
        let pick = |index: usize, alive: &[u64]| (!alive.is_empty()).then(|| index % alive.len());
        match *op {
            Op::Fork(index) if pick(index, &self.alive).is_some() => {
                self.alive.push(self.next_task);
                self.next_task += 1;
            }
            Op::Exit(index) => {
                if let Some(index) = pick(index, &self.alive) {
                    self.alive.remove(index);
                }
            }
            Op::Hotplug(cpu) => self.online[cpu as usize] ^= true,
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn an_engine_that_shares_says_what_one_says_that_does_not(ops in prop::collection::vec((op(), any::<bool>()), 1..60)) {
        let mut variants = [Variant::new(Machine::sharing(CPUS), WIDE), Variant::new(Machine::engine(CPUS), PLENTY)];
        let mut case = Case { alive: vec![1, 2], next_task: 3, online: [true; CPUS as usize] };
        let refused = format!("{:?}", Err::<(), _>(ModifyError::Shared));
        for (op, look) in ops {
            let [shares, alone] = &mut variants;
            let one = shares.step(&op, &case);
            // What others see, too, stays as it is.
            if one != refused {
                prop_assert_eq!(one, alone.step(&op, &case), "{:?}", op);
            }
            case.goes_on(&op);
            if look {
                let [one, other] = variants.each_ref().map(Variant::say);
                prop_assert_eq!(one, other, "after {:?}", op);
            }
        }
        let [one, other] = variants.each_ref().map(Variant::say);
        prop_assert_eq!(one, other);
        for variant in variants {
            variant.groups.iter().for_each(|opened| variant.engine.close(opened.group));
            variant.sets.iter().for_each(|&set| variant.engine.close_set(set));
            prop_assert_eq!(variant.engine.census(), Census::default());
            prop_assert_eq!(variant.engine.host().leased(), 0);
            prop_assert!(variant.engine.shares().is_empty());
        }
    }
}
