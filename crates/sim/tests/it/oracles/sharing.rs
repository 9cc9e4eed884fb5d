//! Opening, switching, changing and closing where counters are shared: the engine beside the model, in which each counts alone.
//!
//! What it is: every sequence of a few kinds of steps up to a depth, theme by theme, and long random ones of all kinds; after each
//! step time passes, and everything is compared: counts, times, states, who may be joined, and how many registers count.
//! Read first: [`Pair::step`] and [`Pair::check`].

use super::host::{CPU, Machine, SCARCE, Switching, event, group, switch};
use pmux_abi::attr::{Attr, AttrFlags, EventType, Precise, ReadFormat, Sampling};
use pmux_engine::engine::Census;
use pmux_engine::pmu::share_key::canonical;
use pmux_engine::share::{Sharing as Shares, SharingScope};
use pmux_engine::target::{ContextKey, Opened};
use pmux_engine::{Engine, EventState, ModifyError, Target, TaskId};
use pmux_sim::oracle::sharing::question::{only_counts, same};
use pmux_sim::oracle::sharing::{Ask, GroupKey, GroupPart, Joinable, ShareError, Sharing, SubscriptionState};

const T: TaskId = TaskId(1);
/// More than are wanted at once: nothing is multiplexed.
const COUNTERS: u8 = 48;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Op {
    /// By number, of those of the theme.
    Open(usize),
    Enable(usize, GroupPart),
    Disable(usize, GroupPart),
    Reset(usize, usize),
    /// An event comes to count at another rate.
    Modify(usize, usize, u64),
    Close(usize),
    Fork,
    Exit,
    /// The youngest child runs for a while.
    ChildRuns,
    Offline,
    Online,
}

struct Pair {
    engine: Engine<Machine>,
    model: Sharing,
    groups: Vec<(GroupKey, Opened)>,
    children: Vec<TaskId>,
    next_task: u64,
    online: bool,
    steps: u64,
}

const fn rate(attr: &Attr) -> u64 {
    attr.config
}

impl Pair {
    fn new() -> Self {
        let engine = Machine::engine(COUNTERS, Switching::Here).with_sharing(Shares::On);
        switch(&engine, Some(T));
        let (groups, children) = (Vec::new(), Vec::new());
        Self { engine, model: Sharing::default(), groups, children, next_task: T.0 + 1, online: true, steps: 0 }
    }

    /// What can be done now, of what a theme has.
    fn possible(&self, theme: &Theme) -> Vec<Op> {
        let mut ops: Vec<Op> = Vec::new();
        if self.groups.len() < theme.most_groups {
            ops.extend((0..theme.asks.len()).map(Op::Open));
        }
        for (number, (_, opened)) in self.groups.iter().enumerate() {
            let events = opened.events.len();
            let parts = (0..events).map(GroupPart::Event).chain((events > 1).then_some(GroupPart::Group));
            for part in parts {
                ops.extend([Op::Enable(number, part), Op::Disable(number, part)]);
            }
            for event in 0..events {
                ops.push(Op::Reset(number, event));
                ops.extend(theme.rates.iter().map(|&rate| Op::Modify(number, event, rate)));
            }
            ops.push(Op::Close(number));
        }
        let last = self.children.last();
        ops.extend(
            [(Op::Fork, last.is_none()), (Op::Exit, last.is_some()), (Op::ChildRuns, last.is_some())]
                .iter()
                .filter(|(op, can)| *can && theme.also.contains(op))
                .map(|(op, _)| *op),
        );
        let hotplug = if self.online { Op::Offline } else { Op::Online };
        ops.extend(theme.also.contains(&hotplug).then_some(hotplug));
        ops
    }

    /// Does it to both, and lets time pass.
    fn step(&mut self, op: Op, asks: &[Ask]) -> Result<(), String> {
        let Self { engine, model, groups, .. } = self;
        match op {
            Op::Open(ask) => {
                let ask = &asks[ask];
                let target = match ask.place {
                    ContextKey::Task(task) => Target::task(task),
                    ContextKey::Cpu(cpu) => Target::cpu(cpu),
                };
                let spec = group(ask.attrs.iter().map(|&attr| (SCARCE, attr)));
                let opened = engine.open_in(SharingScope::new(ask.circle), &spec, target);
                match (opened, model.open(ask.clone())) {
                    (Ok(opened), Ok(key)) => groups.push((key, opened)),
                    (Err(_), Err(_)) => {}
                    (opened, expected) => return Err(format!("opened {opened:?}, expected {expected:?}")),
                }
            }
            Op::Enable(number, part) | Op::Disable(number, part) => {
                let (key, opened) = &groups[number];
                let on = matches!(op, Op::Enable(..));
                let result = match (part, on) {
                    (GroupPart::Event(event), true) => engine.enable(opened.events[event]),
                    (GroupPart::Event(event), false) => engine.disable(opened.events[event]),
                    (GroupPart::Group, true) => engine.enable_group(opened.group),
                    (GroupPart::Group, false) => engine.disable_group(opened.group),
                };
                result.map_err(|error| error.to_string())?;
                if on { model.enable(*key, part) } else { model.disable(*key, part) }
            }
            Op::Reset(number, event) => {
                let (key, opened) = &groups[number];
                engine.reset(opened.events[event]).map_err(|error| error.to_string())?;
                model.reset(*key, event);
            }
            Op::Modify(number, event, rate) => {
                let (key, opened) = &groups[number];
                let before = engine.attr(opened.events[event]).map_err(|error| error.to_string())?;
                let attr = Attr { config: rate, ..before };
                let expected = model.modify(*key, event, attr);
                match (engine.modify(opened.events[event], &attr), expected) {
                    (Ok(()), Ok(()))
                    | (Err(ModifyError::Inherited), Err(ShareError::HasChildren))
                    | (Err(ModifyError::Bank(_)), Err(ShareError::Gone))
                    | (Err(ModifyError::Shared), Err(ShareError::Shared)) => {}
                    (changed, expected) => return Err(format!("changed {changed:?}, expected {expected:?}")),
                }
            }
            Op::Close(number) => {
                let (key, opened) = groups.remove(number);
                engine.close(opened.group);
                model.close(key);
            }
            Op::Fork => {
                let child = TaskId(self.next_task);
                self.next_task += 1;
                engine.task_fork(T, child).map_err(|error| error.to_string())?;
                model.fork(T, child);
                self.children.push(child);
            }
            Op::Exit => {
                if let Some(child) = self.children.pop() {
                    engine.task_exit(child);
                    model.exit(child);
                }
            }
            Op::ChildRuns => {
                if let Some(&child) = self.children.last() {
                    self.pass(child);
                }
            }
            Op::Offline => {
                switch(engine, None);
                engine.cpu_offline(CPU);
                model.offline(CPU);
                self.online = false;
            }
            Op::Online => {
                engine.cpu_online(CPU);
                model.online(CPU);
                self.online = true;
            }
        }
        self.pass(T);
        Ok(())
    }

    /// A task runs for a while, another span each time.
    fn pass(&mut self, task: TaskId) {
        self.steps += 1;
        let ns = 2 * self.steps + 1;
        if self.online {
            switch(&self.engine, Some(task));
            self.engine.host().run(ns);
            for place in [ContextKey::Cpu(CPU), ContextKey::Task(task)] {
                self.model.pass(place, ns, |attr| rate(attr) * ns);
            }
        }
    }

    /// What the engine says is what the model says.
    fn check(&self) -> Result<(), String> {
        let same = |what: &str, found: &dyn std::fmt::Debug, expected: &dyn std::fmt::Debug| {
            let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
            if found == expected { Ok(()) } else { Err(format!("{what}: {found}, expected {expected}")) }
        };
        for (key, opened) in &self.groups {
            let counts = self.model.counts(*key);
            let read = self.engine.read_group(opened.group).map_err(|error| error.to_string())?;
            let read: Result<Vec<_>, _> = read.into_iter().collect();
            same("as a group", &read.map_err(|error| error.to_string())?, &counts)?;
            for (index, &event) in opened.events.iter().enumerate() {
                let count = self.engine.read(event).map_err(|error| error.to_string())?;
                same("by itself", &count, &counts[index])?;
                let state = self.engine.state(event).map_err(|error| error.to_string())?;
                let expected = match self.model.state(*key, index) {
                    Some(SubscriptionState::Off) => EventState::Off,
                    Some(SubscriptionState::Waits) => EventState::Inactive,
                    Some(SubscriptionState::Counts) => EventState::Active,
                    Some(SubscriptionState::Dead) | None => EventState::Dead,
                };
                // Of a task that is away, nothing is on.
                if self.online || state == EventState::Dead || expected == EventState::Dead {
                    same("state", &state, &expected)?;
                }
            }
        }
        same("masters", &self.engine.census().masters, &self.model.shared())?;
        let joinable = |report: pmux_engine::engine::ShareReport| Joinable {
            users: report.views,
            counting: report.events.iter().map(|event| event.counting).collect(),
        };
        let (mut found, mut expected): (Vec<_>, _) =
            (self.engine.shares().into_iter().map(joinable).collect(), self.model.joinable());
        found.sort();
        expected.sort();
        same("who may be joined", &found, &expected)?;
        if self.online {
            same("registers", &self.engine.host().programmed(), &self.model.registers(T, CPU))?;
        }
        Ok(())
    }

    /// Everything is closed, and nothing is left.
    fn end(mut self) -> Result<(), String> {
        for (key, opened) in std::mem::take(&mut self.groups) {
            self.engine.close(opened.group);
            self.model.close(key);
        }
        let left = (self.engine.census(), self.engine.host().programmed(), self.model.shared());
        if left == (Census::default(), 0, 0) { Ok(()) } else { Err(format!("left: {left:?}")) }
    }
}

struct Theme {
    name: &'static str,
    asks: Vec<Ask>,
    /// What events may come to ask.
    rates: &'static [u64],
    also: &'static [Op],
    most_groups: usize,
    depth: usize,
}

const fn none() -> AttrFlags {
    AttrFlags::empty()
}

fn ask(place: ContextKey, rates: &[u64], flags: AttrFlags) -> Ask {
    let of = |(index, &rate): (usize, &u64)| {
        let of_leader = AttrFlags::PINNED | AttrFlags::EXCLUSIVE;
        event(rate, u64::MAX, if index == 0 { flags } else { flags - of_leader })
    };
    Ask { place, circle: 0, attrs: rates.iter().enumerate().map(of).collect() }
}

fn themes() -> Vec<Theme> {
    let (task, cpu) = (ContextKey::Task(T), ContextKey::Cpu(CPU));
    let alike = ask(task, &[3], none());
    let usual = Theme { name: "", asks: Vec::new(), rates: &[], also: &[], most_groups: 3, depth: 4 };
    vec![
        Theme {
            name: "single events of a task and of a CPU",
            asks: vec![ask(task, &[3], none()), ask(cpu, &[3], none())],
            rates: &[5],
            depth: 5,
            ..usual
        },
        Theme {
            name: "groups, and single events beside them",
            asks: vec![ask(task, &[3, 5], none()), ask(task, &[5], none())],
            ..usual
        },
        Theme {
            name: "groups that change",
            asks: vec![ask(task, &[3, 5], none()), ask(task, &[5], none())],
            rates: &[5, 7],
            ..usual
        },
        Theme {
            name: "who demands what, and in which domain",
            asks: vec![
                alike.clone(),
                ask(task, &[3], AttrFlags::PINNED),
                ask(task, &[3, 3], AttrFlags::PINNED),
                ask(task, &[3], AttrFlags::ENABLE_ON_EXEC),
                Ask { circle: 1, ..alike },
            ],
            ..usual
        },
        Theme {
            name: "families",
            asks: vec![ask(task, &[3], AttrFlags::INHERIT), ask(task, &[3], none())],
            rates: &[5],
            also: &[Op::Fork, Op::Exit, Op::ChildRuns],
            most_groups: 2,
            depth: 5,
        },
        Theme {
            name: "a CPU that goes and comes back",
            asks: vec![ask(cpu, &[3], none()), ask(cpu, &[3, 5], none())],
            rates: &[5],
            also: &[Op::Offline, Op::Online],
            most_groups: 2,
            depth: 4,
        },
    ]
}

/// Does it all, and checks; what can be done next.
fn run_ops(theme: &Theme, sequence: &[Op]) -> Result<Vec<Op>, String> {
    let mut pair = Pair::new();
    for &op in sequence {
        pair.step(op, &theme.asks)?;
    }
    pair.check()?;
    let next = pair.possible(theme);
    pair.end()?;
    Ok(next)
}

#[test]
fn every_short_sequence_of_sharing() {
    for theme in themes() {
        let mut cases = 0_u64;
        let mut left = vec![Vec::new()];
        while let Some(sequence) = left.pop() {
            cases += 1;
            let next = run_ops(&theme, &sequence).unwrap_or_else(|what| panic!("{}: {sequence:?}: {what}", theme.name));
            if sequence.len() < theme.depth {
                left.extend(next.into_iter().map(|op| [&sequence[..], &[op]].concat()));
            }
        }
        println!("{}: {cases} stories", theme.name);
        assert!(cases > 1_000, "{}: {cases} stories are few", theme.name);
    }
}

#[test]
fn long_stories_of_sharing_at_random() {
    let all = || {
        let (task, cpu) = (ContextKey::Task(T), ContextKey::Cpu(CPU));
        let mut asks: Vec<Ask> = themes().into_iter().flat_map(|theme| theme.asks).collect();
        asks.extend([
            ask(task, &[3, 5, 7], none()),
            ask(task, &[5, 3], none()),
            ask(task, &[3, 5], AttrFlags::INHERIT),
            ask(cpu, &[5, 5], none()),
        ]);
        asks
    };
    let also = &[Op::Fork, Op::Exit, Op::ChildRuns, Op::Offline, Op::Online];
    let theme = Theme { name: "at random", asks: all(), rates: &[3, 5, 7], also, most_groups: 6, depth: 60 };
    let mut random = fastrand::Rng::with_seed(17);
    let (mut shared, mut steps) = (0, 0);
    for _ in 0..400 {
        let (mut pair, mut sequence) = (Pair::new(), Vec::new());
        for _ in 0..theme.depth {
            // One kind of step after the other: there are many more switches than openings.
            let ops = pair.possible(&theme);
            let kind = std::mem::discriminant(&ops[random.usize(0..ops.len())]);
            let kinds: Vec<_> =
                ops.into_iter().filter(|op| std::mem::discriminant(op) == kind || random.u8(..) < 16).collect();
            let op = kinds[random.usize(0..kinds.len())];
            sequence.push(op);
            let done = pair.step(op, &theme.asks).and_then(|()| pair.check());
            done.unwrap_or_else(|what| panic!("{sequence:?}: {what}"));
            shared += usize::from(pair.model.joinable().iter().any(|it| it.users > 1));
            steps += 1;
        }
        pair.end().unwrap_or_else(|what| panic!("{sequence:?}: {what}"));
    }
    println!("{steps} steps, after {shared} of them events were shared");
    assert!(shared * 4 > steps, "too little was shared: {shared} of {steps}");
}

/// Ways in which an attribute may differ.
fn changes() -> Vec<Attr> {
    let base = Attr { kind: EventType(8), config: 6, config1: 2, bp_type: 2, ..Attr::default() };
    let fields = [
        base,
        Attr { kind: EventType(9), ..base },
        Attr { config: 7, ..base },
        Attr { config1: 3, ..base },
        Attr { config2: 1, ..base },
        Attr { config3: 1, ..base },
        Attr { config4: 1, ..base },
        Attr { bp_type: 1, ..base },
        Attr { precise: Precise::RequestZeroSkid, ..base },
        Attr { sampling: Sampling::Period(1), ..base },
        Attr { sampling: Sampling::Period(0), ..base },
        Attr { sampling: Sampling::Frequency(99), ..base },
        Attr { aux_sample_size: 8, ..base },
        Attr { aux_action: 1, ..base },
        Attr { read_format: ReadFormat::ID, ..base },
        Attr { sample_regs_user: 1, ..base },
        Attr { sample_stack_user: 8, ..base },
        Attr { sample_regs_intr: 1, ..base },
        Attr { clock_id: 1, ..base },
        Attr { aux_watermark: 1, ..base },
        Attr { sample_max_stack: 3, ..base },
        Attr { sig_data: 1, ..base },
    ];
    let flags: Vec<_> = AttrFlags::all().iter().collect();
    let two = flags.iter().flat_map(|&one| flags.iter().map(move |&other| one | other));
    fields.into_iter().chain(two.map(|flags| Attr { flags, ..base })).collect()
}

#[test]
fn the_same_is_asked_where_the_model_says_so() {
    let changes = changes();
    let mut alike = 0_u64;
    for one in &changes {
        assert_eq!(canonical(one).is_some(), only_counts(one), "{one:?}");
        for other in changes.iter().filter(|other| only_counts(one) && only_counts(other)) {
            let engine = canonical(one) == canonical(other);
            assert_eq!(engine, same(one, other), "{one:?} and {other:?}");
            alike += u64::from(engine);
        }
    }
    println!("{} attributes, {alike} pairs of them ask the same", changes.len());
    assert!(alike > changes.len() as u64);
}
