//! In the long run: random machines, groups that are switched on and off, clones that change places, and every rhythm
//! of ticks and switches.

use super::host::{CPU, Machine, Switching, switch};
use super::rotation::{Pair, Step, TASK, enable_in_order, open_with, planned_state, random_events};
use pmux_abi::attr::AttrFlags;
use pmux_engine::engine::Census;
use pmux_engine::inherit::{Attribution, Family};
use pmux_engine::pmu::SlotMask;
use pmux_engine::target::Opened;
use pmux_engine::{Engine, EventId, FamilyId, TaskId};
use pmux_sim::oracle::placement::fits;
use pmux_sim::oracle::rotation::{Core, Group, PlannedState, PmuUse, Priority, Side};

/// A machine of up to eight counters with up to eight groups of up to four events, all of which fit alone.
fn random_machine(random: &mut fastrand::Rng) -> (u8, Vec<Group>) {
    let count = random.u8(1..=8);
    let mut groups = Vec::new();
    while groups.is_empty() || random.usize(0..8) >= groups.len() {
        let events = random_events(random, count, 4);
        let side = if random.bool() { Side::Cpu } else { Side::Task };
        let priority = if random.u8(0..8) == 0 { Priority::Pinned } else { Priority::Flexible };
        let pmu_use = if random.u8(0..10) == 0 { PmuUse::Exclusive } else { PmuUse::Shared };
        if fits(&events, SlotMask(0), count) {
            groups.push(Group { side, priority, pmu_use, events });
        }
    }
    (count, groups)
}

/// So many groups of the CPU and of the task, which take turns.
fn flexible(events: &[SlotMask], cpu: usize, task: usize) -> Vec<Group> {
    let group = |side| Group { side, priority: Priority::Flexible, pmu_use: PmuUse::Shared, events: events.to_vec() };
    [vec![group(Side::Cpu); cpu], vec![group(Side::Task); task]].concat()
}

/// Who had a turn by now.
fn note_turns(states: &[PlannedState], had: &mut [bool]) {
    states.iter().zip(had).for_each(|(state, had)| *had |= *state == PlannedState::On);
}

#[test]
fn larger_machines_have_the_plans_of_the_model() {
    let seed = 1;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut most = 0;
    for _ in 0..400 {
        let (count, groups) = random_machine(&mut random);
        most = most.max(groups.len());
        let mut here = true;
        let mut step = || match random.u8(0..3) {
            0 => {
                here = !here;
                if here { Step::Return } else { Step::Leave }
            }
            _ => Step::Tick,
        };
        let steps: Vec<_> = (0..30).map(|_| step()).collect();
        Pair::new(count, groups, Switching::Here).run(&steps);
    }
    println!("rotation: 400 random machines of seed {seed} with up to {most} groups, 30 steps each");
}

/// A task and its child hold clones of the same groups: counters are handed over, and each has its own turns.
#[test]
fn a_task_and_its_clone_take_turns_like_strangers() {
    let seed = 3;
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut switches, mut looks) = (0, 0);
    for _ in 0..300 {
        let (count, groups) = random_machine(&mut random);
        let pair = Clones::new(count, &groups);
        let mut models = [Core::new(count, groups.clone()), Core::awaiting(count, groups)];
        let mut here = 0;
        for _ in 0..30 {
            let ns = random.u64(0..10);
            pair.engine.host().run(ns);
            models[here].pass(ns);
            if random.bool() {
                let [parent, child] = &mut models;
                if here == 0 {
                    parent.give_way(child);
                } else {
                    child.give_way(parent);
                }
                here = 1 - here;
                switch(&pair.engine, Some(pair.tasks[here]));
                switches += 1;
            } else {
                pair.engine.tick(CPU);
                models[here].tick();
            }
            let plan = models[here].plan();
            assert_eq!(pair.states(here), plan, "task {here} is here, of {:#?}", models[here]);
            looks += 1;
        }
        pair.end();
    }
    println!("rotation: {looks} plans of a task or its clone, seed {seed}, after {switches} switches");
}

/// Whatever the rhythm is in which the two change places between ticks, everybody has a turn.
#[test]
fn no_rhythm_of_clones_starves_a_group() {
    let rhythms: Vec<Vec<bool>> = (1..=6)
        .flat_map(|length| {
            (0..1_u32 << length).map(move |code| (0..length).map(|place| code & (1 << place) != 0).collect())
        })
        .collect();
    for (cpu, task) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let groups = flexible(&[SlotMask(1)], cpu, task);
        for rhythm in rhythms.iter().filter(|rhythm| rhythm.contains(&true)) {
            let pair = Clones::new(1, &groups);
            let (mut had, mut here) = ([vec![false; cpu + task], vec![false; cpu + task]], 0);
            for &tick in std::iter::repeat_n(rhythm, 12).flatten() {
                pair.engine.host().run(10);
                if tick {
                    pair.engine.tick(CPU);
                } else {
                    here = 1 - here;
                    switch(&pair.engine, Some(pair.tasks[here]));
                }
                note_turns(&pair.states(here), &mut had[here]);
            }
            let both = rhythm.contains(&false);
            let of_cpu = (0..cpu).all(|group| had[0][group] || had[1][group]);
            let of_tasks = (cpu..cpu + task).all(|group| had[0][group] && (had[1][group] || !both));
            assert!(of_cpu && of_tasks, "{had:?}: {cpu} groups of the CPU, {task} of the task, ticks {rhythm:?}");
            pair.end();
        }
    }
}

/// A task and its child, with the same groups, and the CPU's own.
struct Clones {
    engine: Engine<Machine>,
    tasks: [TaskId; 2],
    /// The events of each group, in the CPU or in the task, and in the child.
    events: Vec<[Vec<EventId>; 2]>,
    opened: Vec<Opened>,
}

impl Clones {
    fn new(count: u8, groups: &[Group]) -> Self {
        let engine = Machine::engine(count, Switching::Here);
        let tasks = [TASK, TaskId(2)];
        let open = |group| open_with(&engine, group, AttrFlags::INHERIT).unwrap();
        let opened: Vec<_> = groups.iter().map(open).collect();
        let found = |(group, opened): (&Group, &Opened)| {
            let roots = opened.events.iter().map(|&event| vec![event]).collect();
            (group.side == Side::Task).then(|| engine.create_tree(TASK, roots, Attribution::Totals).unwrap())
        };
        let families: Vec<_> = groups.iter().zip(&opened).map(found).collect();
        enable_in_order(&engine, groups, &opened);
        engine.task_fork(tasks[0], tasks[1]).unwrap();
        let child = |family: &FamilyId| {
            let child_group = |family: &mut Family| family.task(family.find(tasks[1])?)?.group();
            engine.events(engine.with_family(*family, child_group).flatten().unwrap()).unwrap()
        };
        let both = |(opened, family): (&Opened, &Option<FamilyId>)| {
            [opened.events.clone(), family.as_ref().map_or_else(|| opened.events.clone(), child)]
        };
        let events = opened.iter().zip(&families).map(both).collect();
        switch(&engine, Some(TASK));
        Self { engine, tasks, events, opened }
    }

    /// What the engine has planned while the task `here`, or its child, is on the CPU.
    fn states(&self, here: usize) -> Vec<PlannedState> {
        self.events.iter().map(|events| planned_state(&self.engine, events[here][0])).collect()
    }

    fn end(self) {
        self.opened.iter().for_each(|opened| self.engine.close(opened.group));
        assert_eq!((self.engine.census(), self.engine.host().programmed()), (Census::default(), 0));
    }
}

/// Groups are switched on and off at random: every plan is lawful, and when that stops, each group has its turn.
#[test]
fn a_group_that_is_enabled_has_its_turn() {
    let seed = 2;
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut plans, mut waited) = (0, 0);
    for _ in 0..150 {
        let (count, groups) = random_machine(&mut random);
        let mut pair = Pair::new(count, groups, Switching::Here);
        for _ in 0..20 {
            let group = random.usize(0..pair.opened.len());
            let flexible = pair.model.groups()[group].priority == Priority::Flexible;
            match random.u8(0..6) {
                0 | 1 if flexible => {
                    pair.engine.enable_group(pair.opened[group].group).unwrap();
                    pair.model.enable(group);
                }
                2 if flexible => {
                    pair.engine.disable_group(pair.opened[group].group).unwrap();
                    pair.model.disable(group);
                }
                3 => {
                    pair.step(Step::Leave);
                    pair.step(Step::Return);
                }
                _ => pair.step(Step::Tick),
            }
            pair.pass(10);
            let plan = pair.states();
            assert_eq!(pair.model.is_lawful(&plan), Ok(()), "{plan:?} of {:#?}", pair.model);
            plans += 1;
        }
        let mut had = vec![false; pair.opened.len()];
        // One turn more on each side: a cursor may have stayed at a group that was switched off.
        for _ in 0..pair.model.patience() + 2 {
            note_turns(&pair.states(), &mut had);
            pair.pass(10);
            pair.step(Step::Tick);
        }
        for (group, had) in had.into_iter().enumerate().filter(|&(group, _)| pair.model.has_room(group)) {
            assert!(had, "group {group} had no turn in {:#?}", pair.model);
            waited += 1;
        }
    }
    println!("rotation: {plans} plans of seed {seed} are lawful, {waited} groups had their turn");
}

/// Every rhythm of up to `longest` steps in which the task leaves as often as it comes back.
fn rhythms(longest: u32) -> Vec<Vec<Step>> {
    let steps = [Step::Tick, Step::Leave, Step::Return];
    let digit = |code: usize, place: u32| steps[code / steps.len().pow(place) % steps.len()];
    let codes = (1..=longest).flat_map(|length| (0..steps.len().pow(length)).map(move |code| (code, length)));
    let all = codes.map(|(code, length)| (0..length).map(|place| digit(code, place)).collect());
    let lawful = |rhythm: &Vec<Step>| {
        let mut here = true;
        let every = rhythm.iter().all(|step| match step {
            Step::Leave => std::mem::replace(&mut here, false),
            Step::Return => !std::mem::replace(&mut here, true),
            Step::Tick | Step::Rotate => true,
        });
        every && here && rhythm.contains(&Step::Tick)
    };
    all.filter(lawful).collect()
}

/// Whatever the rhythm is in which the task comes and goes between ticks, everybody has a turn.
#[test]
fn no_rhythm_starves_a_group() {
    let rhythms = rhythms(6);
    let sizes = [(1, 1, 2), (1, 2, 1), (1, 2, 2), (1, 3, 2), (1, 2, 3), (2, 3, 3)];
    for (count, cpu, task) in sizes {
        for rhythm in &rhythms {
            let groups = flexible(&[SlotMask::first(count)], cpu, task);
            let mut pair = Pair::new(count, groups, Switching::Here);
            let mut had = vec![false; cpu + task];
            for &step in std::iter::repeat_n(rhythm, 12).flatten() {
                pair.pass(10);
                pair.step(step);
                note_turns(&pair.states(), &mut had);
            }
            assert!(had.iter().all(|had| *had), "{had:?}: {cpu} groups of the CPU, {task} of the task, in {rhythm:?}");
        }
    }
    println!("rotation: {} rhythms with {} sets of groups", rhythms.len(), sizes.len());
}
