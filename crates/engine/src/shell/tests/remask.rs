//! Sets whose mask is changed.

use super::model::Truth;
use crate::breakpoint::{Authority, Full, Kind, Registers, Taken};
use crate::context::ContextKey;
use crate::error::OpenError;
use crate::pmu::BankError;
use crate::shell::{Census, Opened, Overflow, RemaskError, SetError, SetRequest, Target};
use crate::system_wide::{Absent, CpuMask, SetScope};
use crate::testing::{Machine, PLENTY, SCARCE, event, flagged, group, watch};
use crate::{Count, CpuId, Engine, Nanos, SetId, TaskId};
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags, breakpoint};

fn mask(cpus: &[u32]) -> CpuMask {
    cpus.iter().copied().map(CpuId).collect()
}

fn bits(bits: u32) -> Vec<u32> {
    (0..3).filter(|cpu| bits >> cpu & 1 == 1).collect()
}

fn request(attrs: &[Attr], cpus: &[u32]) -> SetRequest {
    let groups = vec![group(PLENTY, attrs)];
    SetRequest { groups, scope: SetScope::Everything, mask: mask(cpus), absent: Absent::Await }
}

fn remask(engine: &Engine<Machine>, set: SetId, cpus: &[u32]) -> Result<(), RemaskError> {
    engine.remask(set, &mask(cpus), Absent::Await)
}

fn run(engine: &Engine<Machine>, ns: u64) {
    let online: Vec<_> = engine.online().iter().map(ContextKey::Cpu).collect();
    engine.host().run(&online, ns);
}

/// CPU by CPU: the values, and the time covered, missed and outside.
type Story = Vec<(u32, Vec<u64>, [u64; 3])>;

fn story(engine: &Engine<Machine>, set: SetId) -> Story {
    let reading = engine.read_set(set).unwrap();
    let times = |cpu| {
        let covered = reading.coverage.iter().find(|it| it.cpu == cpu);
        covered.map_or([0; 3], |it| [it.covered.0, it.missed.0, it.outside.0])
    };
    let values = |counts: &[Result<Count, _>]| counts.iter().map(|count| count.as_ref().unwrap().value).collect();
    reading.cpus.iter().map(|cpu| (cpu.cpu.0, values(&cpu.counts), times(cpu.cpu))).collect()
}

fn data() -> Attr {
    watch(1, breakpoint::RW)
}

fn open_on(engine: &Engine<Machine>, set: SetId) -> Vec<u32> {
    let events = engine.set_events(set).unwrap();
    events.into_iter().filter(|(_, events)| !events.is_empty()).map(|(cpu, _)| cpu.0).collect()
}

fn nothing_is_left(engine: &Engine<Machine>) {
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
    assert!(engine.ledger().is_none_or(|ledger| ledger.is_empty()));
}

#[test]
fn each_cpu_counts_from_when_it_joins_to_when_it_leaves() {
    let engine = Machine::engine(3);
    let set = engine.open_set(request(&[event(2), event(3)], &[0, 1])).unwrap();
    engine.arm(set).unwrap();
    run(&engine, 10);
    remask(&engine, set, &[1, 2]).unwrap();
    assert_eq!(engine.census().events, 4, "what left is closed at once");
    run(&engine, 5);
    let counted: Story =
        vec![(0, vec![20, 30], [10, 0, 5]), (1, vec![30, 45], [15, 0, 0]), (2, vec![10, 15], [5, 0, 10])];
    assert_eq!(story(&engine, set), counted);
    let when: Vec<_> = engine.read_set(set).unwrap().coverage.iter().map(|cpu| (cpu.from, cpu.until)).collect();
    let at = |ns| Some(Nanos(ns));
    assert_eq!(when, [(at(0), at(10)), (at(0), None), (at(10), None)]);
    // It comes back: what it had counted is still there.
    remask(&engine, set, &[0]).unwrap();
    run(&engine, 1);
    let counted: Story =
        vec![(0, vec![22, 33], [11, 0, 5]), (1, vec![30, 45], [15, 0, 1]), (2, vec![10, 15], [5, 0, 11])];
    assert_eq!(story(&engine, set), counted);
    engine.disarm(set).unwrap();
    run(&engine, 100);
    remask(&engine, set, &[0, 2]).unwrap();
    run(&engine, 100);
    engine.arm(set).unwrap();
    run(&engine, 4);
    assert_eq!(story(&engine, set)[2], (2, vec![18, 27], [9, 0, 11]), "what was not armed is nobody's time");
    remask(&engine, set, &[]).unwrap();
    run(&engine, 4);
    assert_eq!(engine.census().events, 0);
    assert_eq!(story(&engine, set)[0], (0, vec![30, 45], [15, 0, 9]));
    engine.close_set(set);
    assert_eq!(remask(&engine, set, &[0]), Err(RemaskError::Closed));
    nothing_is_left(&engine);
}

#[test]
fn a_cpu_that_is_away_joins_and_is_counted_when_it_comes() {
    let engine = Machine::engine(2);
    let set = engine.open_set(request(&[event(1)], &[0])).unwrap();
    engine.arm(set).unwrap();
    run(&engine, 10);
    let error = OpenError::CpuOffline { cpu: CpuId(2) };
    let refused = RemaskError::Refused(SetError { cpu: CpuId(2), group: 0, error });
    assert_eq!(engine.remask(set, &mask(&[1, 2]), Absent::Refuse), Err(refused));
    assert_eq!((refused.errno(), open_on(&engine, set)), (19, vec![0]));
    engine.cpu_online(CpuId(2));
    assert_eq!(open_on(&engine, set), [0], "what was refused has left nothing behind");
    engine.cpu_offline(CpuId(2));
    remask(&engine, set, &[0, 2]).unwrap();
    run(&engine, 5);
    engine.cpu_online(CpuId(2));
    run(&engine, 1);
    assert_eq!(story(&engine, set), [(0, vec![16], [16, 0, 0]), (2, vec![1], [1, 5, 10])]);
    engine.cpu_offline(CpuId(2));
    remask(&engine, set, &[0]).unwrap();
    engine.cpu_online(CpuId(2));
    run(&engine, 1);
    assert_eq!(story(&engine, set), [(0, vec![17], [17, 0, 0]), (2, vec![1], [1, 5, 11])]);
}

#[test]
fn nobody_is_told_before_all_that_joins_counts() {
    let engine = Machine::engine(3);
    let set = engine.open_set(request(&[event(1)], &[0])).unwrap();
    engine.arm(set).unwrap();
    remask(&engine, set, &[0, 1, 2]).unwrap();
    let events = super::open_events(&engine);
    assert_eq!(events.len(), 3);
    assert!(events.iter().all(|&event| engine.overflow(event) == Overflow::Deliver));
    engine.disarm(set).unwrap();
    remask(&engine, set, &[1]).unwrap();
    remask(&engine, set, &[0, 1]).unwrap();
    let events = super::open_events(&engine);
    assert!(events.iter().all(|&event| engine.overflow(event) == Overflow::Premature));
}

#[test]
fn a_refusal_names_the_cpu_and_the_holders_and_changes_nothing() {
    let engine = Machine::with_registers(Registers::Shared(1), Authority::Ledger);
    let set = engine.open_set(request(&[data()], &[0, 1])).unwrap();
    engine.arm(set).unwrap();
    run(&engine, 10);
    let other = engine.open(&group(PLENTY, &[data()]), Target::cpu(CpuId(3))).unwrap();
    let refused = remask(&engine, set, &[1, 2, 3]).unwrap_err();
    let full = Full { kind: Kind::Data, task: None, cpu: CpuId(3), in_use: 1, total: 1 };
    let error = OpenError::DebugRegisters { index: 0, full, taken: Taken::Known };
    assert_eq!(refused, RemaskError::Refused(SetError { cpu: CpuId(3), group: 0, error }));
    assert_eq!((refused.errno(), engine.holders(&full).len()), (28, 1));
    run(&engine, 10);
    assert_eq!(story(&engine, set), [(0, vec![20], [20, 0, 0]), (1, vec![20], [20, 0, 0])]);
    // CPU 2 was given back, CPU 0 was not.
    let two = engine.open(&group(PLENTY, &[data()]), Target::cpu(CpuId(2))).unwrap();
    assert!(engine.open(&group(PLENTY, &[data()]), Target::cpu(CpuId(0))).is_err());
    engine.close(other.group);
    engine.close(two.group);
    remask(&engine, set, &[1, 2, 3]).unwrap();
    assert!(engine.open(&group(PLENTY, &[data()]), Target::cpu(CpuId(0))).is_ok(), "given back when it left");
    assert!(engine.open(&group(PLENTY, &[data()]), Target::cpu(CpuId(2))).is_err());
}

#[test]
fn counters_that_refuse_to_be_opened_or_started_undo_the_change() {
    let engine = Machine::engine(3);
    let set = engine.open_set(request(&[event(1), event(2)], &[0])).unwrap();
    engine.arm(set).unwrap();
    engine.host().refuse_programs(1);
    let busy = |index| OpenError::Bank { index, error: BankError::Busy };
    let refused = |cpu, error| RemaskError::Refused(SetError { cpu: CpuId(cpu), group: 0, error });
    assert_eq!(remask(&engine, set, &[1, 2]), Err(refused(1, busy(0))));
    engine.host().refuse_programs(0);
    engine.host().refuse_starts(1);
    assert_eq!(remask(&engine, set, &[1, 2]), Err(refused(1, busy(0))));
    assert_eq!((open_on(&engine, set), engine.census().events), (vec![0], 2));
    // Pinned to two counters that others have.
    let pinned =
        SetRequest { groups: vec![group(SCARCE, &[flagged(1, AttrFlags::PINNED), event(1)])], ..request(&[], &[1]) };
    let first = engine.open_set(pinned.clone()).unwrap();
    engine.arm(first).unwrap();
    let second = engine.open_set(SetRequest { mask: mask(&[0]), ..pinned }).unwrap();
    engine.arm(second).unwrap();
    assert!(remask(&engine, second, &[0, 1]).is_err());
    assert_eq!((open_on(&engine, first), open_on(&engine, second)), (vec![1], vec![0]));
    run(&engine, 3);
    assert_eq!(story(&engine, second), [(0, vec![3, 3], [3, 0, 0])]);
}

#[test]
fn a_task_moves_its_set_with_its_children() {
    let engine = Machine::engine(2);
    let place = |task, presence| engine.host().place(ContextKey::Task(TaskId(task)), presence);
    [1, 2].into_iter().for_each(|task| place(task, crate::context::Presence::Out));
    let attrs = [flagged(1, AttrFlags::INHERIT)];
    let set = SetRequest { scope: SetScope::Task(TaskId(1)), ..request(&attrs, &[0]) };
    let set = engine.open_set(set).unwrap();
    engine.arm(set).unwrap();
    engine.task_fork(TaskId(1), TaskId(2)).unwrap();
    let run_on = |task, cpu, ns| {
        engine.switch_in(TaskId(task), CpuId(cpu));
        engine.host().run_task(task, ns);
        engine.switch_out(TaskId(task));
    };
    run_on(1, 0, 3);
    run_on(2, 0, 4);
    remask(&engine, set, &[1]).unwrap();
    run_on(1, 0, 100);
    run_on(1, 1, 5);
    run_on(2, 1, 100);
    let values: Vec<_> = story(&engine, set).into_iter().map(|(cpu, values, _)| (cpu, values[0])).collect();
    assert_eq!(values, [(0, 7), (1, 5)], "a child that lived before does not follow what came later");
    engine.close_set(set);
    nothing_is_left(&engine);
}

/// What the rules say of a set over three CPUs with one debug register each, of which others may have some.
struct Rules {
    mask: Vec<u32>,
    open: [bool; 3],
    online: [bool; 3],
    others: [Option<Opened>; 3],
    armed: bool,
    /// Of each CPU: counted, and time in the mask while armed.
    truth: [(Truth, u64); 3],
    span: u64,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Remask(u32),
    Switch,
    /// A CPU goes, or comes.
    Hotplug(u32),
    /// Somebody else takes a CPU's register, or gives it back.
    Other(u32),
}

const OPS: [Op; 11] = [
    Op::Remask(0b000),
    Op::Remask(0b001),
    Op::Remask(0b010),
    Op::Remask(0b011),
    Op::Remask(0b110),
    Op::Remask(0b111),
    Op::Switch,
    Op::Hotplug(1),
    Op::Hotplug(2),
    Op::Other(1),
    Op::Other(2),
];

impl Rules {
    fn is_free(&self, cpu: u32) -> bool {
        self.others[cpu as usize].is_none() && !self.open[cpu as usize]
    }

    fn step(&mut self, engine: &Engine<Machine>, set: SetId, op: Op, so_far: &[Op]) {
        match op {
            Op::Remask(to) => {
                let to = bits(to);
                let joining = to.iter().filter(|cpu| !self.mask.contains(cpu) && self.online[**cpu as usize]);
                let refused = joining.clone().find(|&&cpu| !self.is_free(cpu)).map(|&cpu| CpuId(cpu));
                let joining: Vec<_> = joining.copied().collect();
                match remask(engine, set, &to) {
                    Ok(()) => {
                        assert_eq!(refused, None, "{so_far:?}");
                        joining.into_iter().for_each(|cpu| self.open[cpu as usize] = true);
                        (0..3).filter(|cpu| !to.contains(cpu)).for_each(|cpu| self.open[cpu as usize] = false);
                        self.mask = to;
                    }
                    Err(RemaskError::Refused(error)) => assert_eq!(Some(error.cpu), refused, "{so_far:?}"),
                    Err(error) => panic!("{so_far:?}: {error}"),
                }
            }
            Op::Switch => {
                let done = if self.armed { engine.disarm(set) } else { engine.arm(set) };
                assert_eq!(done, Ok(()), "{so_far:?}");
                self.armed = !self.armed;
            }
            Op::Hotplug(cpu) => {
                let index = cpu as usize;
                if self.online[index] {
                    engine.cpu_offline(CpuId(cpu));
                    self.open[index] = false;
                } else {
                    engine.cpu_online(CpuId(cpu));
                    self.open[index] = self.mask.contains(&cpu) && self.is_free(cpu);
                }
                self.online[index] = !self.online[index];
            }
            Op::Other(cpu) => match self.others[cpu as usize].take() {
                Some(opened) => engine.close(opened.group),
                None => {
                    let opened = engine.open(&group(PLENTY, &[data()]), Target::cpu(CpuId(cpu)));
                    let expected = self.online[cpu as usize] && self.is_free(cpu);
                    assert_eq!(opened.is_ok(), expected, "{so_far:?}: {opened:?}");
                    self.others[cpu as usize] = opened.ok();
                }
            },
        }
    }

    fn pass(&mut self, engine: &Engine<Machine>, ns: u64) {
        run(engine, ns);
        self.span += if self.armed { ns } else { 0 };
        for (cpu, (truth, meant)) in self.truth.iter_mut().enumerate().filter(|_| self.armed) {
            *meant += if self.mask.contains(&(cpu as u32)) { ns } else { 0 };
            truth.running += if self.open[cpu] { ns } else { 0 };
        }
    }

    fn check(&self, engine: &Engine<Machine>, set: SetId, so_far: &[Op]) {
        let open: Vec<_> = (0..3).filter(|&cpu| self.open[cpu as usize]).collect();
        assert_eq!(open_on(engine, set), open, "{so_far:?}");
        let reading = engine.read_set(set).unwrap();
        let counted = |cpu: usize| {
            let counts = reading.cpus.iter().find(|it| it.cpu.0 as usize == cpu).map(|it| it.counts[0].unwrap());
            counts.unwrap_or_default().value
        };
        for (cpu, (truth, _)) in self.truth.iter().enumerate() {
            assert_eq!(counted(cpu), truth.running, "{so_far:?}, CPU {cpu}");
        }
        for cpu in &reading.coverage {
            let (truth, meant) = &self.truth[cpu.cpu.0 as usize];
            let times = (cpu.covered.0, cpu.missed.0, cpu.outside.0);
            assert_eq!(times, (truth.running, meant - truth.running, self.span - meant), "{so_far:?}, {cpu:?}");
        }
    }
}

#[test]
fn every_sequence_of_a_few_changes_follows_the_rules() {
    const DEPTH: u32 = 4;
    let number = OPS.len() as u32;
    for (armed, code) in
        [false, true].into_iter().flat_map(|armed| (0..number.pow(DEPTH)).map(move |code| (armed, code)))
    {
        let ops: Vec<_> = (0..DEPTH).map(|place| OPS[(code / number.pow(place) % number) as usize]).collect();
        let engine = Machine::with_registers(Registers::Shared(1), Authority::Ledger);
        engine.cpu_offline(CpuId(2));
        let set = engine.open_set(request(&[data()], &[0, 1])).unwrap();
        if armed {
            engine.arm(set).unwrap();
        }
        let mut rules = Rules {
            mask: vec![0, 1],
            open: [true, true, false],
            online: [true, true, false],
            others: [const { None }; 3],
            armed,
            truth: Default::default(),
            span: 0,
        };
        for done in 0..ops.len() {
            rules.step(&engine, set, ops[done], &ops[..=done]);
            rules.pass(&engine, 1 << done);
        }
        rules.check(&engine, set, &ops);
        rules.others.iter_mut().filter_map(Option::take).for_each(|opened| engine.close(opened.group));
        engine.close_set(set);
        nothing_is_left(&engine);
    }
}
