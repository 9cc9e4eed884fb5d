//! Sets of which an event is changed: everywhere, or nowhere.

use crate::breakpoint::{Authority, Full, Kind, Registers, Taken};
use crate::context::ContextKey;
use crate::error::{ModifyError, OpenError};
use crate::pmu::{BankError, ParseError};
use crate::shell::{Census, ModifySetError, Opened, SetRequest, Target};
use crate::system_wide::{Absent, CpuMask, SetScope};
use crate::testing::{KERNEL, Machine, PLENTY, event, flagged, group, watch};
use crate::{Count, CpuId, Engine, PmuId, SetId, Sharing, TaskId};
use alloc::string::ToString as _;
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags, breakpoint};

const SEPARATE: Registers = Registers::Separate { execute: 1, data: 1 };

fn data(rate: u64) -> Attr {
    watch(rate, breakpoint::RW)
}

fn execute(rate: u64) -> Attr {
    watch(rate, breakpoint::X)
}

fn open_on(engine: &Engine<Machine>, pmu: PmuId, attrs: &[Attr], cpus: u32) -> SetId {
    let mask: CpuMask = (0..cpus).map(CpuId).collect();
    let groups = vec![group(pmu, attrs)];
    let set = SetRequest { groups, scope: SetScope::Everything, mask, absent: Absent::Await };
    let set = engine.open_set(set).unwrap();
    engine.arm(set).unwrap();
    set
}

fn run(engine: &Engine<Machine>, ns: u64) {
    let online: Vec<_> = engine.online().iter().map(ContextKey::Cpu).collect();
    engine.host().run(&online, ns);
}

/// CPU by CPU, what the events have counted.
fn values(engine: &Engine<Machine>, set: SetId) -> Vec<Vec<u64>> {
    let value = |count: &Result<Count, _>| count.as_ref().unwrap().value;
    let reading = engine.read_set(set).unwrap();
    reading.cpus.iter().map(|cpu| cpu.counts.iter().map(value).collect()).collect()
}

fn held(engine: &Engine<Machine>) -> usize {
    engine.ledger().map_or(0, |ledger| ledger.len())
}

fn nothing_is_left(engine: &Engine<Machine>) {
    assert_eq!((engine.census(), engine.host().leased(), held(engine)), (Census::default(), 0, 0));
}

fn full(kind: Kind, cpu: u32, in_use: u32, total: u8) -> ModifySetError {
    let full = Full { kind, task: None, cpu: CpuId(cpu), in_use, total };
    ModifySetError { cpu: Some(CpuId(cpu)), error: ModifyError::DebugRegisters { full, taken: Taken::Known } }
}

#[test]
fn all_cpus_change_and_so_do_those_that_come_later() {
    for pmu in [PLENTY, KERNEL] {
        let engine = Machine::with_registers(Registers::Shared(1), Authority::Ledger);
        engine.cpu_offline(CpuId(2));
        let set = open_on(&engine, pmu, &[event(5), data(1)], 3);
        run(&engine, 10);
        engine.modify_set(set, 1, &data(3)).unwrap();
        run(&engine, 10);
        assert_eq!((values(&engine, set), held(&engine)), (vec![vec![100, 40]; 2], 2));
        engine.cpu_online(CpuId(2));
        run(&engine, 1);
        assert_eq!(values(&engine, set)[2], [5, 3]);
        let whole = |error| Err(ModifySetError { cpu: None, error });
        assert_eq!(engine.modify_set(set, 2, &data(1)), whole(ModifyError::Closed), "it has no such event");
        assert_eq!(engine.modify_set(set, 0, &event(0)), whole(ModifyError::Parse(ParseError::NoSuchEvent)));
        engine.close_set(set);
        assert_eq!(engine.modify_set(set, 1, &data(1)), whole(ModifyError::Closed));
        nothing_is_left(&engine);
    }
}

#[test]
fn a_cpu_without_a_register_of_the_other_sort_leaves_all_as_they_were() {
    let engine = Machine::with_registers(SEPARATE, Authority::Ledger);
    let set = open_on(&engine, PLENTY, &[data(1)], 3);
    let other = engine.open(&group(PLENTY, &[execute(1)]), Target::cpu(CpuId(1))).unwrap();
    assert_eq!(engine.modify_set(set, 0, &execute(7)), Err(full(Kind::Execute, 1, 1, 1)));
    run(&engine, 10);
    assert_eq!((values(&engine, set), held(&engine)), (vec![vec![10]; 3], 4));
    engine.close(other.group);
    engine.modify_set(set, 0, &execute(7)).unwrap();
    run(&engine, 10);
    assert_eq!((values(&engine, set), held(&engine)), (vec![vec![80]; 3], 3));
    // What it had is free on all of them.
    let another = open_on(&engine, PLENTY, &[data(1)], 3);
    assert_eq!(engine.modify_set(set, 0, &data(7)), Err(full(Kind::Data, 0, 1, 1)));
    engine.close_set(another);
    engine.close_set(set);
    nothing_is_left(&engine);
}

#[test]
fn a_refusal_of_the_counters_takes_back_what_was_changed() {
    for attr in [data(7), execute(7)] {
        let engine = Machine::with_registers(SEPARATE, Authority::Ledger);
        let set = open_on(&engine, PLENTY, &[data(1)], 3);
        engine.host().refuse_changes(0b100);
        let error = ModifySetError { cpu: Some(CpuId(2)), error: ModifyError::Bank(BankError::Busy) };
        assert_eq!(engine.modify_set(set, 0, &attr), Err(error));
        assert_eq!(error.to_string(), format!("on CPU 2: {}", BankError::Busy));
        run(&engine, 10);
        assert_eq!((values(&engine, set), held(&engine)), (vec![vec![10]; 3], 3));
        let [data_left, execute_left] = [data(1), execute(1)].map(|attr| {
            let opened = engine.open(&group(PLENTY, &[attr]), Target::cpu(CpuId(0)));
            opened.map(|opened| engine.close(opened.group)).is_ok()
        });
        assert!(!data_left && execute_left, "each has the register that it had, and no other");
        engine.close_set(set);
        nothing_is_left(&engine);
    }
}

#[test]
fn a_cpu_that_can_t_go_back_is_closed_and_says_so() {
    let engine = Machine::with_registers(SEPARATE, Authority::Ledger);
    let set = open_on(&engine, PLENTY, &[data(1)], 3);
    run(&engine, 10);
    // The third is refused, and the second can't be taken back.
    engine.host().refuse_changes(0b10100);
    assert!(engine.modify_set(set, 0, &data(7)).is_err());
    run(&engine, 10);
    assert_eq!((values(&engine, set), held(&engine)), ([[20], [10], [20]].map(Vec::from).to_vec(), 2));
    let reading = engine.read_set(set).unwrap();
    let refused: Vec<_> = reading.cpus.iter().map(|cpu| cpu.refused).collect();
    assert_eq!(refused, [None, Some(OpenError::Bank { index: 0, error: BankError::Busy }), None]);
    let missed: Vec<_> = reading.coverage.iter().map(|cpu| cpu.missed.0).collect();
    assert_eq!(missed, [0, 10, 0]);
    engine.close_set(set);
    nothing_is_left(&engine);
}

#[test]
fn who_shares_gets_other_counters_and_the_others_notice_nothing() {
    for registers in [1, 2] {
        let engine = Machine::with_registers(Registers::Shared(registers), Authority::Ledger).with_sharing(Sharing::On);
        let [one, other] = [(); 2].map(|()| open_on(&engine, PLENTY, &[data(1), event(2)], 3));
        run(&engine, 10);
        assert_eq!(held(&engine), 3);
        let done = engine.modify_set(one, 0, &data(7));
        run(&engine, 10);
        assert_eq!(values(&engine, other), vec![vec![20, 40]; 3]);
        if registers == 1 {
            assert_eq!(done, Err(full(Kind::Data, 0, 1, 1)));
            assert_eq!((values(&engine, one), held(&engine)), (vec![vec![20, 40]; 3], 3));
            engine.close_set(other);
        } else {
            assert_eq!((done, values(&engine, one), held(&engine)), (Ok(()), vec![vec![80, 40]; 3], 6));
            // Nobody sees what it sees now, so it keeps that counter, whatever it is to count.
            engine.modify_set(one, 0, &data(1)).unwrap();
            assert_eq!((held(&engine), engine.census().masters), (6, 3));
            engine.close_set(other);
            engine.modify_set(one, 0, &data(7)).unwrap();
            run(&engine, 10);
            assert_eq!((values(&engine, one), held(&engine)), (vec![vec![150, 60]; 3], 3));
        }
        // Alone, it is changed as it is.
        let before = values(&engine, one);
        engine.modify_set(one, 0, &data(3)).unwrap();
        run(&engine, 10);
        let more: Vec<Vec<u64>> = before.iter().map(|cpu| vec![cpu[0] + 30, cpu[1] + 20]).collect();
        assert_eq!((values(&engine, one), held(&engine)), (more, 3));
        engine.close_set(one);
        nothing_is_left(&engine);
    }
}

#[test]
fn a_register_that_is_wanting_on_one_cpu_is_asked_for_on_none() {
    let engine = Machine::with_registers(Registers::Shared(2), Authority::Ledger).with_sharing(Sharing::On);
    let [one, other] = [(); 2].map(|()| open_on(&engine, PLENTY, &[data(1)], 3));
    let third = engine.open(&group(PLENTY, &[data(9)]), Target::cpu(CpuId(2))).unwrap();
    let programs = engine.host().programs();
    assert_eq!(engine.modify_set(one, 0, &data(7)), Err(full(Kind::Data, 2, 2, 2)));
    assert_eq!((held(&engine), engine.host().programs()), (4, programs), "nothing was even tried");
    run(&engine, 10);
    assert_eq!([values(&engine, one), values(&engine, other)], [vec![vec![10]; 3], vec![vec![10]; 3]]);
    // Where somebody counts it already, nothing is needed.
    engine.modify_set(one, 0, &data(1)).unwrap();
    engine.close(third.group);
    [one, other].into_iter().for_each(|set| engine.close_set(set));
    nothing_is_left(&engine);
}

#[test]
fn what_children_count_too_stays_what_it_is() {
    for sharing in [Sharing::Off, Sharing::On] {
        let engine = Machine::with_registers(Registers::Shared(4), Authority::Ledger).with_sharing(sharing);
        let attr = |rate| flagged(rate, AttrFlags::INHERIT);
        let groups = vec![group(PLENTY, &[attr(1)])];
        let mask = (0..2).map(CpuId).collect();
        let request = SetRequest { groups, scope: SetScope::Task(TaskId(1)), mask, absent: Absent::Await };
        let set = engine.open_set(request).unwrap();
        engine.arm(set).unwrap();
        engine.task_fork(TaskId(1), TaskId(2)).unwrap();
        let error = ModifySetError { cpu: Some(CpuId(0)), error: ModifyError::Inherited };
        assert_eq!(engine.modify_set(set, 0, &attr(7)), Err(error));
        engine.task_exit(TaskId(2));
        engine.modify_set(set, 0, &attr(7)).unwrap();
        engine.close_set(set);
        nothing_is_left(&engine);
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Change(Attr),
    /// The second of the next changes is refused.
    Fault,
    Hotplug(u32),
    /// Somebody else takes a CPU's register for such an event, or gives it back.
    Other(u32, Attr),
}

/// What the rules say of a set over three CPUs, each with a register for data and one for code.
struct Rules {
    attr: Attr,
    fault: bool,
    online: [bool; 3],
    /// Where somebody else stood in the way when the CPU came.
    open: [bool; 3],
    others: Vec<(u32, bool, Opened)>,
    truth: [u64; 3],
}

const fn is_code(attr: &Attr) -> bool {
    attr.bp_type & breakpoint::X != 0
}

impl Rules {
    fn is_free(&self, cpu: u32, code: bool) -> bool {
        !self.others.iter().any(|(at, of, _)| (*at, *of) == (cpu, code))
    }

    fn step(&mut self, engine: &Engine<Machine>, set: SetId, op: Op, so_far: &[Op]) {
        match op {
            Op::Change(attr) => {
                let code = is_code(&attr);
                let here: Vec<_> = (0..3).filter(|&cpu| self.open[cpu as usize]).collect();
                let short = here.iter().find(|&&cpu| code != is_code(&self.attr) && !self.is_free(cpu, code));
                let faulty = here.get(1).filter(|_| self.fault && short.is_none());
                let refused = short.or(faulty).map(|&cpu| CpuId(cpu));
                let result = engine.modify_set(set, 0, &attr);
                assert_eq!(result.err().and_then(|error| error.cpu), refused, "{so_far:?}: {result:?}");
                if refused.is_none() {
                    self.attr = attr;
                }
                // Something has been changed, so the fault is over.
                self.fault &= short.is_some() || here.is_empty();
                engine.host().refuse_changes(if self.fault { 0b10 } else { 0 });
            }
            Op::Fault => {
                self.fault = true;
                engine.host().refuse_changes(0b10);
            }
            Op::Hotplug(cpu) => {
                let index = cpu as usize;
                if self.online[index] {
                    engine.cpu_offline(CpuId(cpu));
                    self.open[index] = false;
                } else {
                    engine.cpu_online(CpuId(cpu));
                    self.open[index] = self.is_free(cpu, is_code(&self.attr));
                }
                self.online[index] = !self.online[index];
            }
            Op::Other(cpu, attr) => {
                let code = is_code(&attr);
                if let Some(at) = self.others.iter().position(|(on, of, _)| (*on, *of) == (cpu, code)) {
                    engine.close(self.others.remove(at).2.group);
                    return;
                }
                let opened = engine.open(&group(PLENTY, &[attr]), Target::cpu(CpuId(cpu)));
                let index = cpu as usize;
                let taken = self.open[index] && code == is_code(&self.attr);
                assert_eq!(opened.is_ok(), self.online[index] && !taken, "{so_far:?}: {opened:?}");
                self.others.extend(opened.ok().map(|opened| (cpu, code, opened)));
            }
        }
    }

    fn pass(&mut self, engine: &Engine<Machine>, ns: u64) {
        run(engine, ns);
        for (truth, open) in self.truth.iter_mut().zip(self.open) {
            *truth += if open { ns * self.attr.config } else { 0 };
        }
    }
}

#[test]
fn every_sequence_of_a_few_changes_follows_the_rules() {
    const DEPTH: u32 = 4;
    let ops = [
        Op::Change(data(3)),
        Op::Change(execute(5)),
        Op::Change(execute(9)),
        Op::Fault,
        Op::Hotplug(0),
        Op::Hotplug(1),
        Op::Other(1, data(1)),
        Op::Other(1, execute(1)),
        Op::Other(2, execute(1)),
    ];
    let number = ops.len() as u32;
    for code in 0..number.pow(DEPTH) {
        let ops: Vec<_> = (0..DEPTH).map(|place| ops[(code / number.pow(place) % number) as usize]).collect();
        let engine = Machine::with_registers(SEPARATE, Authority::Ledger);
        let set = open_on(&engine, PLENTY, &[data(1)], 3);
        let (online, open) = ([true; 3], [true; 3]);
        let mut rules = Rules { attr: data(1), fault: false, online, open, others: Vec::new(), truth: [0; 3] };
        for done in 0..ops.len() {
            rules.step(&engine, set, ops[done], &ops[..=done]);
            rules.pass(&engine, 1 << done);
        }
        let counted: Vec<_> = values(&engine, set).into_iter().map(|cpu| cpu[0]).collect();
        assert_eq!(counted, rules.truth, "{ops:?}");
        let held_by_set = rules.open.iter().filter(|open| **open).count();
        assert_eq!(held(&engine), held_by_set + rules.others.len(), "{ops:?}");
        rules.others.into_iter().for_each(|(.., opened)| engine.close(opened.group));
        engine.close_set(set);
        nothing_is_left(&engine);
    }
}
