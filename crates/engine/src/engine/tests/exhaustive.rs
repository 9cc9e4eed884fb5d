//! Two events, every sequence of a few steps, against rules that are written out.
//!
//! The rules know two slots and try everything: a group that is pinned and on stays on; then come those that are pinned and wait,
//! then flexible groups in their order. A group goes on if all of its members find slots beside those before it.

use super::close_all;
use crate::target::{ContextKey, Presence};
use crate::testing::{Machine, SCARCE, flagged, group};
use crate::{Count, CpuId, EventId, EventState, Nanos, Target, TaskId};
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags};

const DEPTH: u32 = 5;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Op {
    Enable(usize),
    Disable(usize),
    Switch,
    Reset,
}

const OPS: [Op; 6] = [Op::Enable(0), Op::Enable(1), Op::Disable(0), Op::Disable(1), Op::Switch, Op::Reset];

#[derive(Clone, Copy, Debug)]
struct Setup {
    /// The slots that each may have.
    slots: [u64; 2],
    /// Whether they are one group; the first is then the leader.
    one_group: bool,
    pinned: [bool; 2],
    exclusive: [bool; 2],
}

#[derive(Clone, Copy, Default)]
struct Event {
    on: bool,
    active: bool,
    error: bool,
    value: u64,
    enabled: u64,
    running: u64,
}

struct Rules {
    setup: Setup,
    there: bool,
    events: [Event; 2],
}

impl Rules {
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups = if self.setup.one_group { vec![vec![0, 1]] } else { vec![vec![0], vec![1]] };
        groups.sort_by_key(|group| !self.setup.pinned[group[0]]);
        groups
    }

    fn state(&self, event: usize) -> EventState {
        match self.events[event] {
            Event { error: true, .. } => EventState::Error,
            Event { on: false, .. } => EventState::Off,
            Event { active: true, .. } => EventState::Active,
            _ => EventState::Inactive,
        }
    }

    fn leader(&self, event: usize) -> usize {
        if self.setup.one_group { 0 } else { event }
    }

    /// Whether these events find two slots, each one of its own.
    fn fit(&self, events: &[usize]) -> bool {
        let slots = |event: &usize| self.setup.slots[*event];
        match events {
            [] => true,
            [one] => slots(one) & 3 != 0,
            [one, two] => (slots(one) & 1 != 0 && slots(two) & 2 != 0) || (slots(one) & 2 != 0 && slots(two) & 1 != 0),
            _ => false,
        }
    }

    /// Who is on: a matter of who is enabled, and in which order.
    fn fill(&mut self) {
        let before = self.events;
        self.events.iter_mut().for_each(|event| event.active = false);
        let is_on = |group: &Vec<usize>| group.iter().any(|&event| before[event].active);
        let pinned = |group: &Vec<usize>| self.setup.pinned[group[0]];
        let mut groups = self.groups();
        groups.sort_by_key(|group| match (pinned(group), is_on(group)) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        });
        let mut taken: Vec<usize> = Vec::new();
        for group in groups {
            if !self.there || !self.state(group[0]).ages() {
                continue;
            }
            let wanted: Vec<_> = group.iter().copied().filter(|&event| self.state(event).ages()).collect();
            let alone = |event: &usize| self.setup.exclusive[self.leader(*event)];
            let refused = !taken.is_empty() && (alone(&group[0]) || taken.iter().any(alone));
            let all: Vec<_> = taken.iter().chain(&wanted).copied().collect();
            if !refused && self.fit(&all) {
                wanted.iter().for_each(|&event| self.events[event].active = true);
                taken = all;
            } else if self.setup.pinned[group[0]] {
                wanted.iter().for_each(|&event| self.events[event].error = true);
            }
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Enable(event) => {
                self.events[event].on = true;
                self.events[event].error = false;
            }
            Op::Disable(event) => {
                self.events[event] = Event { on: false, active: false, error: false, ..self.events[event] };
                if self.leader(event) == event && self.setup.one_group {
                    self.events[1].active = false;
                }
            }
            Op::Switch => {
                self.there = !self.there;
                self.events.iter_mut().for_each(|event| event.active = false);
            }
            Op::Reset => self.events[0].value = 0,
        }
        self.fill();
    }

    fn pass(&mut self, ns: u64) {
        for index in 0..2 {
            let leader_ages = self.state(self.leader(index)).ages();
            let ages = self.there && leader_ages && self.state(index).ages();
            let event = &mut self.events[index];
            event.enabled += if ages { ns } else { 0 };
            if event.active {
                event.running += ns;
                event.value += ns * (index as u64 + 1);
            }
        }
    }

    fn count(&self, event: usize) -> Count {
        let Event { value, enabled, running, .. } = self.events[event];
        Count { value, enabled: Nanos(enabled), running: Nanos(running) }
    }
}

fn check(setup: Setup, ops: &[Op]) {
    let engine = Machine::engine(1);
    engine.host().place(ContextKey::Task(TaskId(1)), Presence::In);
    let attr = |index: usize| {
        let mut flags = AttrFlags::empty();
        flags.set(AttrFlags::PINNED, setup.pinned[index]);
        flags.set(AttrFlags::EXCLUSIVE, setup.exclusive[index]);
        Attr { config2: setup.slots[index], ..flagged(index as u64 + 1, flags) }
    };
    let open = |attrs: &[Attr]| engine.open(&group(SCARCE, attrs), Target::task(TaskId(1))).unwrap();
    let opened =
        if setup.one_group { vec![open(&[attr(0), attr(1)])] } else { vec![open(&[attr(0)]), open(&[attr(1)])] };
    let events: Vec<EventId> = opened.iter().flat_map(|opened| opened.events.clone()).collect();
    let mut rules = Rules { setup, there: true, events: Default::default() };
    for (done, &op) in ops.iter().enumerate() {
        rules.step(op);
        match op {
            // What it leads to is in the states.
            Op::Enable(event) => drop(engine.enable(events[event])),
            Op::Disable(event) => engine.disable(events[event]).unwrap(),
            Op::Reset => engine.reset(events[0]).unwrap(),
            Op::Switch if rules.there => engine.switch_in(TaskId(1), CpuId(0)),
            Op::Switch => engine.switch_out(TaskId(1)),
        }
        let ns = 1 << done;
        engine.host().run_task(1, ns);
        rules.pass(ns);
        for (index, &event) in events.iter().enumerate() {
            let so_far = || format!("{setup:?}, {:?}, event {index}", &ops[..=done]);
            assert_eq!(engine.state(event), Ok(rules.state(index)), "{}", so_far());
            if rules.state(index) != EventState::Error {
                assert_eq!(engine.read(event), Ok(rules.count(index)), "{}", so_far());
            }
        }
    }
    close_all(&engine, &opened);
}

#[test]
fn two_events_follow_the_rules_in_every_order() {
    let none = [false; 2];
    let plain = |slots, one_group| Setup { slots, one_group, pinned: none, exclusive: none };
    let setups = [
        // One slot for two: the event that is on stays.
        plain([1, 1], false),
        Setup { pinned: [true, false], ..plain([1, 1], false) },
        Setup { pinned: [false, true], ..plain([2, 2], false) },
        Setup { pinned: [true, true], ..plain([1, 1], false) },
        // Room for both.
        plain([3, 3], false),
        Setup { exclusive: [true, false], ..plain([3, 3], false) },
        Setup { exclusive: [false, true], pinned: [true, false], ..plain([3, 3], false) },
        // One group: the second event may need the slot that the first one has.
        plain([3, 1], true),
        Setup { pinned: [true, false], ..plain([3, 3], true) },
        Setup { exclusive: [true, false], ..plain([3, 3], true) },
    ];
    for setup in setups {
        for code in 0..(OPS.len() as u32).pow(DEPTH) {
            let digit = |place| OPS[(code / (OPS.len() as u32).pow(place)) as usize % OPS.len()];
            let ops: Vec<_> = (0..DEPTH).map(digit).collect();
            check(setup, &ops);
        }
    }
}
