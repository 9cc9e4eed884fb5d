//! Forks, execs, exits and switches of groups: the engine's families beside the model's sums.

use super::host::{CPU, Machine, PLENTY, SCARCE, Switching, event, group, switch};
use pmux_abi::attr::AttrFlags;
use pmux_engine::engine::{Census, Exec, FamilyTally};
use pmux_engine::inherit::Attribution;
use pmux_engine::target::Opened;
use pmux_engine::{Count, Engine, FamilyId, PmuId, Target, TaskId};
use pmux_sim::oracle::inheritance::{Inherit, InheritModel, InheritTally, NewEvent, RootKey, RootPart};
use proptest::prelude::*;

/// The task that is there from the beginning.
const FIRST: TaskId = TaskId(1);
/// More counters than are wanted at once: an event that is enabled runs.
const COUNTERS: u8 = 32;

struct Root {
    model: RootKey,
    opened: Opened,
    /// The family that keeps each child's own numbers; only groups that inherit have one.
    family: Option<FamilyId>,
    /// Whether a child needs a slot as soon as it inherits the group: one of its events is counted where slots are
    /// plenty.
    at_once: bool,
}

/// Both, with the same tasks and groups.
struct Pair {
    engine: Engine<Machine>,
    model: InheritModel,
    roots: Vec<Root>,
    next_task: u64,
}

impl Pair {
    fn new() -> Self {
        let mut model = InheritModel::default();
        model.task(FIRST);
        Self { engine: Machine::engine(COUNTERS, Switching::Here), model, roots: Vec::new(), next_task: FIRST.0 + 1 }
    }

    /// Opens a group on a task; each event with the PMU that counts it.
    fn open(&mut self, task: TaskId, events: &[(PmuId, NewEvent)], inherit: Inherit) {
        let attr = |&(pmu, new): &(PmuId, NewEvent)| {
            let mut flags = AttrFlags::empty();
            flags.set(AttrFlags::INHERIT, inherit == Inherit::Children);
            flags.set(AttrFlags::ENABLE_ON_EXEC, new.waits_for_exec);
            (pmu, event(new.rate, u64::MAX, flags))
        };
        let opened = self.engine.open(&group(events.iter().map(attr)), Target::task(task)).unwrap();
        let roots = opened.events.iter().map(|&event| vec![event]).collect();
        let family = match inherit {
            Inherit::Children => Some(self.engine.create_tree(task, roots, Attribution::EachTask).unwrap()),
            Inherit::NoTask => None,
        };
        let at_once = events.iter().any(|&(pmu, _)| pmu == PLENTY);
        let events: Vec<_> = events.iter().map(|&(_, new)| new).collect();
        self.roots.push(Root { model: self.model.open(task, &events, inherit), opened, family, at_once });
    }

    fn close(&mut self, root: usize) {
        let root = self.roots.remove(root);
        self.engine.close(root.opened.group);
        self.model.close(root.model);
    }

    fn switch(&mut self, root: usize, part: RootPart, on: bool) {
        let Root { model, opened, .. } = &self.roots[root];
        match (part, on) {
            (RootPart::Event(index), true) => self.engine.enable(opened.events[index]).unwrap(),
            (RootPart::Event(index), false) => self.engine.disable(opened.events[index]).unwrap(),
            (RootPart::Group, true) => self.engine.enable_group(opened.group).unwrap(),
            (RootPart::Group, false) => self.engine.disable_group(opened.group).unwrap(),
        }
        if on { self.model.enable(*model, part) } else { self.model.disable(*model, part) }
    }

    fn reset(&mut self, root: usize, part: RootPart) {
        let Root { model, opened, .. } = &self.roots[root];
        let events = match part {
            RootPart::Event(index) => &opened.events[index..=index],
            RootPart::Group => &opened.events[..],
        };
        events.iter().for_each(|&event| self.engine.reset(event).unwrap());
        self.model.reset(*model, part);
    }

    fn fork(&mut self, parent: TaskId, refused: Refused) {
        let child = TaskId(self.next_task);
        self.next_task += 1;
        self.engine.host().refuse(refused == Refused::All);
        let forked = self.engine.task_fork(parent, child);
        self.engine.host().refuse(false);
        let Self { model, roots, .. } = self;
        let at_once = |key| roots.iter().any(|root| root.model == key && root.at_once);
        let lost: u64 = roots.iter().map(|root| model.forks(root.model).1).sum();
        model.fork(parent, child, |key| refused == Refused::All && at_once(key));
        let lost_now: u64 = roots.iter().map(|root| model.forks(root.model).1).sum();
        assert_eq!(forked.is_err(), lost_now > lost, "{forked:?}");
    }

    fn exec(&mut self, task: TaskId, exec: Exec) {
        self.engine.task_exec(task, exec);
        self.model.exec(task, exec);
    }

    /// A task exits; if it is on the CPU, no task follows it there.
    fn exit(&mut self, task: TaskId) {
        self.engine.task_exit(task);
        if self.engine.host().on_cpu() == Some(task) {
            switch(&self.engine, None);
        }
        self.model.exit(task);
    }

    fn run(&mut self, task: TaskId, ns: u64) {
        switch(&self.engine, Some(task));
        self.engine.host().run(ns);
        self.model.run(task, ns);
    }

    /// What the engine says of every group must be what the model says.
    fn check(&self) -> Result<(), String> {
        for Root { model, opened, family, .. } in &self.roots {
            let tallies = self.model.tally(*model);
            let total: Vec<Count> = tallies.iter().map(InheritTally::total).collect();
            let read = |result: Result<Count, _>| result.map_err(|error| format!("{model:?}: {error}"));
            let together = self.engine.read_group(opened.group).map_err(|error| error.to_string())?;
            same("read as a group", model, &together.into_iter().map(read).collect::<Result<Vec<_>, _>>()?, &total)?;
            let alone = opened.events.iter().map(|&event| read(self.engine.read(event)));
            same("read one by one", model, &alone.collect::<Result<Vec<_>, _>>()?, &total)?;
            let Some(family) = *family else { continue };
            let expected =
                |tally: &InheritTally| FamilyTally { total: tally.total(), own: tally.own, retired: tally.retired };
            let expected: Vec<_> = tallies.iter().map(expected).collect();
            let said = self.engine.read_family(family).map_err(|error| error.to_string())?;
            same("own, retired and total", model, &said, &expected)?;
            let numbers = self.engine.with_family(family, |family| {
                let root = family.root();
                let exited = family.tasks().filter(|(id, it)| *id != root && it.exited.is_some());
                let reported = exited.filter(|(_, it)| it.reports > 0);
                let reports: Vec<_> = reported.map(|(_, it)| (it.task, it.counts().to_vec())).collect();
                (reports, family.counted().count(), (family.forks(), family.uncounted()))
            });
            let (mut reports, live, forks) = numbers.ok_or("the family is gone")?;
            reports.sort_by_key(|(task, _)| *task);
            let mut expected = self.model.reports(*model);
            expected.sort_by_key(|(task, _)| *task);
            same("each child's own", model, &reports, &expected)?;
            same("live children", model, &live, &self.model.live_children(*model))?;
            same("forks, and how many uncounted", model, &forks, &self.model.forks(*model))?;
        }
        Ok(())
    }

    /// Closes everything; nothing may be left.
    fn end(mut self) {
        while !self.roots.is_empty() {
            self.close(0);
        }
        assert_eq!((self.engine.census(), self.engine.host().programmed()), (Census::default(), 0));
        self.engine.tick(CPU);
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, root: &RootKey, engine: &T, model: &T) -> Result<(), String> {
    if engine == model { Ok(()) } else { Err(format!("{what} of {root:?}: {engine:?} is not {model:?}")) }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refused {
    Nothing,
    All,
}

/// A step of the exhaustive test. Tasks are named by how young they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Small {
    ForkOldest,
    ForkYoungest,
    ExitOldest,
    ExitYoungest,
    ExecYoungest,
    BlindYoungest,
    Toggle,
    Reset,
}

const SMALL: [Small; 8] = {
    use Small::{BlindYoungest, ExecYoungest, ExitOldest, ExitYoungest, ForkOldest, ForkYoungest, Reset, Toggle};
    [ForkOldest, ForkYoungest, ExitOldest, ExitYoungest, ExecYoungest, BlindYoungest, Toggle, Reset]
};

/// One group of two events on the first task: the second one waits for an exec. After each step, all tasks run.
fn follow(steps: &[Small]) {
    let mut pair = Pair::new();
    let new = |rate, waits_for_exec| NewEvent { rate, waits_for_exec };
    pair.open(FIRST, &[(SCARCE, new(1, false)), (PLENTY, new(100, true))], Inherit::Children);
    pair.switch(0, RootPart::Event(0), true);
    let mut on = true;
    for (done, step) in steps.iter().enumerate() {
        let oldest = pair.model.alive().first().copied();
        let youngest = pair.model.alive().last().copied();
        match (step, oldest, youngest) {
            (Small::ForkOldest, Some(parent), _) | (Small::ForkYoungest, _, Some(parent)) => {
                pair.fork(parent, Refused::Nothing);
            }
            (Small::ExitOldest, Some(task), _) | (Small::ExitYoungest, _, Some(task)) => pair.exit(task),
            (Small::ExecYoungest, _, Some(task)) => pair.exec(task, Exec::Plain),
            (Small::BlindYoungest, _, Some(task)) => pair.exec(task, Exec::ChangesRights),
            (Small::Toggle, ..) => {
                on = !on;
                pair.switch(0, RootPart::Group, on);
            }
            (Small::Reset, ..) => pair.reset(0, RootPart::Group),
            (_, None, _) | (_, _, None) => {}
        }
        for (index, task) in pair.model.alive().to_vec().into_iter().enumerate() {
            pair.run(task, 1 << (3 * done + index));
        }
        if let Err(what) = pair.check() {
            panic!("{what}\nafter {:?}", &steps[..=done]);
        }
    }
    pair.end();
}

#[test]
fn every_short_story_of_a_family_is_told_alike() {
    let mut stories = 0_u32;
    for length in 1..=5_u32 {
        for code in 0..SMALL.len().pow(length) {
            let step = |place| SMALL[code / SMALL.len().pow(place) % SMALL.len()];
            let steps: Vec<_> = (0..length).map(step).collect();
            // Nothing happens to a family before a task forks that is not seen in the shorter stories.
            if length < 4 || matches!(steps[0], Small::ForkOldest) {
                follow(&steps);
                stories += 1;
            }
        }
    }
    println!("inheritance: {stories} stories of up to 5 steps");
    assert!(stories > 5_000);
}

#[derive(Clone, Debug)]
enum Op {
    Open { task: prop::sample::Index, events: Vec<(bool, u64, bool)>, inherit: bool },
    Close(prop::sample::Index),
    Switch { root: prop::sample::Index, event: Option<usize>, on: bool },
    Reset { root: prop::sample::Index, event: Option<usize> },
    Fork { parent: prop::sample::Index, refused: bool },
    Exec { task: prop::sample::Index, blind: bool },
    Exit(prop::sample::Index),
    Run { task: prop::sample::Index, ns: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    let part = || prop::option::of(0_usize..3);
    let event = || (any::<bool>(), 1_u64..20, prop::bool::weighted(0.3));
    prop_oneof![
        2 => (index(), prop::collection::vec(event(), 1..=3), prop::bool::weighted(0.8))
            .prop_map(|(task, events, inherit)| Op::Open { task, events, inherit }),
        1 => index().prop_map(Op::Close),
        4 => (index(), part(), prop::bool::weighted(0.7)).prop_map(|(root, event, on)| Op::Switch { root, event, on }),
        1 => (index(), part()).prop_map(|(root, event)| Op::Reset { root, event }),
        5 => (index(), prop::bool::weighted(0.1)).prop_map(|(parent, refused)| Op::Fork { parent, refused }),
        2 => (index(), prop::bool::weighted(0.2)).prop_map(|(task, blind)| Op::Exec { task, blind }),
        3 => index().prop_map(Op::Exit),
        8 => (index(), 0_u64..1000).prop_map(|(task, ns)| Op::Run { task, ns }),
    ]
}

/// At most so many groups are open, so that all that is enabled in a task fits.
const GROUPS: usize = 8;

fn perform(pair: &mut Pair, op: Op) {
    let alive = pair.model.alive().to_vec();
    let task = |index: prop::sample::Index| (!alive.is_empty()).then(|| *index.get(&alive));
    let root =
        |pair: &Pair, index: prop::sample::Index| (!pair.roots.is_empty()).then(|| index.index(pair.roots.len()));
    let part = |pair: &Pair, root: usize, event: Option<usize>| match event {
        Some(event) => RootPart::Event(event % pair.roots[root].opened.events.len()),
        None => RootPart::Group,
    };
    match op {
        Op::Open { task: on, events, inherit } => {
            let events: Vec<_> = events
                .into_iter()
                .map(|(scarce, rate, waits_for_exec)| {
                    (if scarce { SCARCE } else { PLENTY }, NewEvent { rate, waits_for_exec })
                })
                .collect();
            if let Some(task) = task(on).filter(|_| pair.roots.len() < GROUPS) {
                pair.open(task, &events, if inherit { Inherit::Children } else { Inherit::NoTask });
            }
        }
        Op::Close(index) => root(pair, index).into_iter().for_each(|root| pair.close(root)),
        Op::Switch { root: index, event, on } => {
            if let Some(root) = root(pair, index) {
                pair.switch(root, part(pair, root, event), on);
            }
        }
        Op::Reset { root: index, event } => {
            if let Some(root) = root(pair, index) {
                pair.reset(root, part(pair, root, event));
            }
        }
        Op::Fork { parent, refused } => {
            if let Some(parent) = task(parent).filter(|_| alive.len() < 10) {
                pair.fork(parent, if refused { Refused::All } else { Refused::Nothing });
            }
        }
        Op::Exec { task: who, blind } => {
            if let Some(task) = task(who) {
                pair.exec(task, if blind { Exec::ChangesRights } else { Exec::Plain });
            }
        }
        Op::Exit(who) => task(who).into_iter().for_each(|task| pair.exit(task)),
        Op::Run { task: who, ns } => task(who).into_iter().for_each(|task| pair.run(task, ns)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]
    #[test]
    fn random_families_are_counted_alike(ops in prop::collection::vec((op(), any::<bool>()), 1..80)) {
        let mut pair = Pair::new();
        for (op, look) in ops {
            perform(&mut pair, op);
            if look {
                // A reading settles much: often several steps are taken between two of them.
                let checked = pair.check();
                prop_assert!(checked.is_ok(), "{}", checked.unwrap_err());
            }
        }
        let checked = pair.check();
        prop_assert!(checked.is_ok(), "{}", checked.unwrap_err());
        pair.end();
    }
}
