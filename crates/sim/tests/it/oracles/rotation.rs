//! Turn after turn: the engine's groups on one CPU beside the plans of the model.

use super::host::{CPU, Machine, SCARCE, Switching, event, group, switch};
use pmux_abi::attr::AttrFlags;
use pmux_engine::engine::Census;
use pmux_engine::pmu::SlotMask;
use pmux_engine::target::Opened;
use pmux_engine::{Count, Engine, EventId, EventState, GroupSpec, Nanos, OpenError, Target, TaskId};
use pmux_sim::oracle::placement::{fits, placements};
use pmux_sim::oracle::rotation::{Core, Group, PlannedState, PmuUse, Priority, Side};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

pub const TASK: TaskId = TaskId(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Tick,
    Leave,
    Return,
    /// The next turn of all contexts, in step.
    Rotate,
}

pub struct Pair {
    pub engine: Engine<Machine>,
    pub model: Core,
    pub opened: Vec<Opened>,
    /// What each group has counted, in nanoseconds: enabled and running.
    times: Vec<(u64, u64)>,
}

impl Pair {
    /// Opens and enables everything while the task is out, then lets it in.
    pub fn new(count: u8, groups: Vec<Group>, switching: Switching) -> Self {
        let engine = Machine::engine(count, switching);
        let opened: Vec<_> =
            groups.iter().map(|group| open_with(&engine, group, AttrFlags::empty()).unwrap()).collect();
        enable_in_order(&engine, &groups, &opened);
        switch(&engine, Some(TASK));
        let times = vec![(0, 0); groups.len()];
        Self { engine, model: Core::new(count, groups), opened, times }
    }

    pub fn step(&mut self, step: Step) {
        match step {
            Step::Tick => {
                self.engine.tick(CPU);
                self.model.tick();
            }
            Step::Leave => {
                switch(&self.engine, None);
                self.model.task_leaves();
            }
            Step::Return => {
                switch(&self.engine, Some(TASK));
                self.model.task_comes_back();
            }
            Step::Rotate => self.model.take_turn(self.engine.rotate().turn as usize),
        }
    }

    pub fn pass(&mut self, ns: u64) {
        self.engine.host().run(ns);
        self.model.pass(ns);
    }

    /// Compares the states of all events with the model's plan, then lets some time pass.
    fn look(&mut self) -> Result<(), String> {
        let plan = self.model.plan();
        for (index, (opened, &planned_state)) in self.opened.iter().zip(&plan).enumerate() {
            for &event in &opened.events {
                let state = self.engine.state(event).unwrap();
                let good = match planned_state {
                    PlannedState::On => state == EventState::Active,
                    PlannedState::Waits => state == EventState::Inactive,
                    PlannedState::Error => state == EventState::Error,
                    PlannedState::Off => state == EventState::Off,
                    PlannedState::Away => matches!(state, EventState::Inactive | EventState::Error),
                };
                if !good {
                    return Err(format!("group {index} should be {planned_state:?} and is {state:?}"));
                }
            }
        }
        let ns = 10;
        self.pass(ns);
        for ((enabled, running), planned_state) in self.times.iter_mut().zip(plan) {
            *enabled += if matches!(planned_state, PlannedState::On | PlannedState::Waits) { ns } else { 0 };
            *running += if planned_state == PlannedState::On { ns } else { 0 };
        }
        Ok(())
    }

    /// What the engine has planned, by the states of the leaders. The task is here.
    pub fn states(&self) -> Vec<PlannedState> {
        self.opened.iter().map(|opened| planned_state(&self.engine, opened.events[0])).collect()
    }

    pub fn run(&mut self, steps: &[Step]) {
        let begin = self.model.clone();
        for done in 0..=steps.len() {
            if let Err(what) = self.look() {
                panic!("{what}\nafter {:?}\nof {begin:#?}", &steps[..done]);
            }
            if let Some(&step) = steps.get(done) {
                self.step(step);
            }
        }
        for (opened, &(enabled, running)) in self.opened.iter().zip(&self.times) {
            for (index, &event) in opened.events.iter().enumerate() {
                let value = rate(index) * running;
                let truth = Count { value, enabled: Nanos(enabled), running: Nanos(running) };
                // An event in error has no count.
                if let Ok(count) = self.engine.read(event) {
                    assert_eq!(count, truth, "event {index} after {steps:?} of {begin:#?}");
                }
            }
        }
        self.opened.iter().for_each(|opened| self.engine.close(opened.group));
        assert_eq!((self.engine.census(), self.engine.host().programmed()), (Census::default(), 0));
    }
}

fn rate(index: usize) -> u64 {
    index as u64 + 1
}

/// Enables groups in the order in which the model tries them.
pub fn enable_in_order(engine: &Engine<Machine>, groups: &[Group], opened: &[Opened]) {
    let model = Core::new(0, groups.to_vec());
    for group in model.order() {
        // Whether it is in error afterwards is seen in its state.
        let _ = engine.enable_group(opened[group].group);
    }
}

pub fn planned_state(engine: &Engine<Machine>, leader: EventId) -> PlannedState {
    match engine.state(leader).unwrap() {
        EventState::Active => PlannedState::On,
        EventState::Inactive => PlannedState::Waits,
        EventState::Off => PlannedState::Off,
        EventState::Error | EventState::Dead => PlannedState::Error,
    }
}

/// Up to so many events of a machine of `count` counters.
pub fn random_events(random: &mut fastrand::Rng, count: u8, most: usize) -> Vec<SlotMask> {
    let any = SlotMask::first(count).0;
    let mask = |random: &mut fastrand::Rng| if random.bool() { any } else { random.u64(1..=any) };
    (0..random.usize(1..=most)).map(|_| SlotMask(mask(random))).collect()
}

/// A group as the engine is asked for it; its leader has these flags too.
pub fn group_of(events: &[SlotMask], (priority, pmu_use): (Priority, PmuUse), more: AttrFlags) -> GroupSpec {
    let mut demand = more;
    demand.set(AttrFlags::PINNED, priority == Priority::Pinned);
    demand.set(AttrFlags::EXCLUSIVE, pmu_use == PmuUse::Exclusive);
    let flags = |index| if index == 0 { demand } else { AttrFlags::empty() };
    let events = events.iter().enumerate();
    group(events.map(|(index, allowed)| (SCARCE, event(rate(index), allowed.0, flags(index)))))
}

/// Opens a group; its leader has these flags too.
pub fn open_with(engine: &Engine<Machine>, wanted: &Group, more: AttrFlags) -> Result<Opened, OpenError> {
    let spec = group_of(&wanted.events, (wanted.priority, wanted.pmu_use), more);
    let target = if wanted.side == Side::Cpu { Target::cpu(CPU) } else { Target::task(TASK) };
    engine.open(&spec, target)
}

type Lane = (Side, Priority);

const LANES: [Lane; 4] = [
    (Side::Cpu, Priority::Pinned),
    (Side::Task, Priority::Pinned),
    (Side::Cpu, Priority::Flexible),
    (Side::Task, Priority::Flexible),
];

/// The masks of a group.
type Shape = Vec<SlotMask>;

/// Every group of one or two events that fits on `count` slots, whatever the order of its events.
fn shapes(count: u8) -> Vec<Shape> {
    let masks = || (1..1_u64 << count).map(SlotMask);
    let pairs =
        masks().flat_map(|one| masks().filter(move |other| one.0 <= other.0).map(move |other| vec![one, other]));
    masks().map(|one| vec![one]).chain(pairs).filter(|shape| fits(shape, SlotMask(0), count)).collect()
}

/// Which subsets of some groups fit together: all that a plan can depend on.
fn table(shapes: &[&Shape], count: u8) -> u32 {
    let fit = |subset: u32| {
        let chosen = shapes.iter().enumerate().filter(|(index, _)| subset & (1 << index) != 0);
        let events: Shape = chosen.flat_map(|(_, shape)| shape.iter().copied()).collect();
        events.len() <= usize::from(count) && fits(&events, SlotMask(0), count)
    };
    (0..1_u32 << shapes.len()).filter(|&subset| fit(subset)).fold(0, |table, subset| table | 1 << subset)
}

/// Whether no renumbering of the slots makes the masks of a shape smaller.
fn is_canonical(shape: &Shape, count: u8) -> bool {
    let every_slot = vec![SlotMask::first(count); usize::from(count)];
    placements(&every_slot, SlotMask(0), count).iter().all(|to| {
        let renumbered = |mask: &SlotMask| {
            let slots = (0..usize::from(count)).filter(|slot| mask.0 & (1 << slot) != 0);
            slots.fold(0, |mask, slot| SlotMask(mask).with(to[slot]).0)
        };
        let mut masks: Vec<_> = shape.iter().map(renumbered).collect();
        masks.sort_unstable();
        shape.iter().map(|mask| mask.0).collect::<Vec<_>>() <= masks
    })
}

/// The sizes that are looked at in full: how many counters, how many groups.
fn sizes() -> impl Iterator<Item = (u8, usize)> {
    (1..=3).flat_map(|count| (1..=4).map(move |length| (count, length)))
}

/// For one size, lists of shapes, one for each way in which they fit together; and how many lists there are.
struct Representatives {
    by_table: BTreeMap<u32, Vec<Shape>>,
    lists: usize,
}

static REPRESENTATIVES: LazyLock<BTreeMap<(u8, usize), Representatives>> =
    LazyLock::new(|| sizes().map(|(count, length)| ((count, length), representatives(count, length))).collect());

fn representatives(count: u8, length: usize) -> Representatives {
    let shapes = shapes(count);
    // Other lists are the same with other numbers for the slots.
    let begins = shapes.iter().filter(|shape| is_canonical(shape, count));
    let others = shapes.len().pow(length as u32 - 1);
    let mut by_table = BTreeMap::new();
    for (begin, code) in begins.flat_map(|begin| (0..others).map(move |code| (begin, code))) {
        let digit = |place: usize| &shapes[code / shapes.len().pow(place as u32) % shapes.len()];
        let list: Vec<_> = std::iter::once(begin).chain((0..length - 1).map(digit)).collect();
        by_table.entry(table(&list, count)).or_insert_with(|| list.into_iter().cloned().collect());
    }
    Representatives { by_table, lists: others * shapes.len() }
}

/// A table without the subsets in which a group is not alone that must be.
fn without_company(table: u32, alone: u32) -> u32 {
    let lawful = |subset: u32| subset & alone == 0 || subset.count_ones() <= 1;
    (0..u32::BITS).filter(|&subset| table & (1 << subset) != 0 && lawful(subset)).fold(0, |table, it| table | 1 << it)
}

/// Every way to put `length` groups into these lanes, in the order of the lanes.
fn ways_into(lanes: &[Lane], length: usize) -> Vec<Vec<Lane>> {
    let digit = |code: usize, place: usize| code / lanes.len().pow(place as u32) % lanes.len();
    let codes = (0..lanes.len().pow(length as u32)).map(|code| (0..length).map(|place| digit(code, place)).collect());
    let sorted = codes.filter(|code: &Vec<usize>| code.is_sorted());
    sorted.map(|code| code.into_iter().map(|lane| lanes[lane]).collect()).collect()
}

struct Trial<'a> {
    steps: &'a [Step],
    lanes: &'a [Lane],
    switching: Switching,
}

impl Trial<'_> {
    /// All machines of `count` counters with `length` groups; returns how many were compared, and how many they stand
    /// for: two machines whose groups fit together in the same way have the same plans.
    fn on_all(&self, count: u8, length: usize) -> (usize, usize) {
        let Representatives { by_table, lists } = &REPRESENTATIVES[&(count, length)];
        let (ways, mut compared) = (ways_into(self.lanes, length), 0);
        for alone in 0..1_u32 << length {
            let mut seen = BTreeSet::new();
            for (&table, shapes) in by_table {
                if seen.insert(without_company(table, alone)) {
                    ways.iter().for_each(|way| self.on(count, shapes, way, alone));
                    compared += ways.len();
                }
            }
        }
        (compared, (lists * ways.len()) << length)
    }

    /// One machine: which slots each group may have, its lane, and which groups are exclusive.
    fn on(&self, count: u8, shapes: &[Shape], way: &[Lane], alone: u32) {
        let pmu_use = |index: usize| if alone & (1_u32 << index) != 0 { PmuUse::Exclusive } else { PmuUse::Shared };
        let group = |(index, (events, &(side, priority))): (usize, (&Shape, &Lane))| Group {
            side,
            priority,
            pmu_use: pmu_use(index),
            events: events.clone(),
        };
        let groups = shapes.iter().zip(way).enumerate().map(group).collect();
        Pair::new(count, groups, self.switching).run(self.steps);
    }

    /// All machines of up to three counters with up to four groups of up to two events.
    fn on_all_small(&self) {
        let add = |(one, two), (three, four)| (one + three, two + four);
        let (compared, all) = sizes().map(|(count, length)| self.on_all(count, length)).fold((0, 0), add);
        println!("rotation: {compared} machines compared over {:?}; with all their masks they are {all}", self.steps);
        assert!(compared > 1_000 && all > 50_000_000, "{compared} of {all}");
    }
}

/// Turns between which the task leaves and comes back.
const SWITCHES: [Step; 12] = {
    use Step::{Leave, Return, Tick};
    [Leave, Return, Tick, Leave, Tick, Return, Tick, Leave, Return, Leave, Return, Tick]
};

#[test]
fn every_small_machine_has_the_plans_of_the_model() {
    Trial { steps: &[Step::Tick; 8], lanes: &LANES, switching: Switching::Here }.on_all_small();
}

#[test]
fn every_small_machine_has_the_plans_of_the_model_while_its_task_comes_and_goes() {
    Trial { steps: &SWITCHES, lanes: &LANES, switching: Switching::Here }.on_all_small();
}

#[test]
fn every_small_task_has_the_turns_of_the_model_where_all_go_in_step() {
    let lanes = LANES.into_iter().filter(|(side, _)| *side == Side::Task).collect::<Vec<_>>();
    Trial { steps: &[Step::Rotate; 8], lanes: &lanes, switching: Switching::Below }.on_all_small();
}
