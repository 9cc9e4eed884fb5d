//! Debug registers of events: reserved at open, given back at close, changed in between.

use super::held;
use crate::cpu_mask::CpuMask;
use crate::engine::{Disagreements, Exec, SetError, SetRequest};
use crate::error::{ModifyError, OpenError};
use crate::hw_breakpoint::{Authority, BpTarget, Claim, Full, Holder, Kind, OutsideId, Registers, Taken};
use crate::pmu::BankError;
use crate::system_wide::{Absent, SetScope};
use crate::target::{ContextKey, Filter, Opened, Target};
use crate::testing::{KERNEL, Machine, PLENTY, REFUSED, TAKEN, event, flagged, group, watch};
use crate::{CpuId, Engine, EventId, TaskId};
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags, breakpoint};

const SHARED: Registers = Registers::Shared(4);
const SEPARATE: Registers = Registers::Separate { execute: 2, data: 1 };
const TASK: TaskId = TaskId(7);
const NONE: Disagreements = Disagreements { refused: 0, granted: 0, inherited: 0 };

fn data() -> Attr {
    watch(1, breakpoint::RW)
}

fn execute() -> Attr {
    watch(1, breakpoint::X)
}

fn open(engine: &Engine<Machine>, attr: Attr, target: Target) -> Result<Opened, OpenError> {
    engine.open(&group(PLENTY, &[attr]), target)
}

fn refused(kind: Kind, task: Option<TaskId>, cpu: u32, (in_use, total): (u32, u8)) -> OpenError {
    let full = Full { kind, task, cpu: CpuId(cpu), in_use, total };
    OpenError::DebugRegisters { index: 0, full, taken: Taken::Known }
}

/// How many breakpoints more a target may have.
fn room(engine: &Engine<Machine>, attr: Attr, target: Target) -> usize {
    let opened: Vec<_> = core::iter::from_fn(|| open(engine, attr, target).ok()).collect();
    opened.iter().for_each(|opened| engine.close(opened.group));
    opened.len()
}

fn on(task: TaskId, cpu: u32) -> Target {
    Target { context: ContextKey::Task(task), filter: Filter::OnCpu(CpuId(cpu)) }
}

#[test]
fn a_register_is_held_from_open_to_close() {
    let engine = Machine::with_registers(SHARED, Authority::Ledger);
    let opened: Vec<_> = (0..4).map(|_| open(&engine, data(), Target::task(TASK)).unwrap()).collect();
    let error = open(&engine, execute(), Target::task(TASK)).unwrap_err();
    assert_eq!((error, error.errno()), (refused(Kind::Execute, Some(TASK), 0, (4, 4)), 28));
    assert_eq!(room(&engine, data(), Target::task(TaskId(8))), 4, "another task has its own");
    assert_eq!(room(&engine, data(), Target::cpu(CpuId(1))), 0);
    engine.close(opened[0].group);
    assert_eq!(room(&engine, execute(), Target::task(TASK)), 1);
    assert_eq!(room(&engine, data(), on(TASK, 2)), 1);
    opened.iter().for_each(|opened| engine.close(opened.group));
    assert_eq!((held(&engine), engine.host().leased()), (0, 0));
    assert_eq!(engine.ledger_disagreements(), Disagreements::default());
}

#[test]
fn events_that_claim_nothing_need_no_register() {
    let engine = Machine::with_registers(Registers::Shared(0), Authority::Ledger);
    assert!(open(&engine, event(1), Target::task(TASK)).is_ok());
    assert!(open(&engine, data(), Target::task(TASK)).is_err());
}

#[test]
fn a_group_has_all_its_registers_or_none() {
    let engine = Machine::with_registers(SEPARATE, Authority::Ledger);
    let wants = [execute(), event(1), execute(), data(), data()];
    let full = Full { kind: Kind::Data, task: Some(TASK), cpu: CpuId(0), in_use: 1, total: 1 };
    let error = OpenError::DebugRegisters { index: 4, full, taken: Taken::Known };
    assert_eq!(engine.open(&group(PLENTY, &wants), Target::task(TASK)), Err(error));
    assert_eq!((held(&engine), engine.host().leased()), (0, 0));
    let opened = engine.open(&group(PLENTY, &wants[..4]), Target::task(TASK)).unwrap();
    let holders = engine.holders(&Full { in_use: 2, kind: Kind::Execute, ..full });
    let names: Vec<_> = holders.iter().map(|holding| holding.holder).collect();
    assert_eq!(names, [Holder::Event(opened.events[0]), Holder::Event(opened.events[2])]);
    engine.close(opened.group);
    assert_eq!(held(&engine), 0);
}

#[test]
fn what_the_counters_refuse_holds_nothing() {
    let engine = Machine::with_registers(SHARED, Authority::Ledger);
    let bad = Attr { config1: REFUSED, ..data() };
    let error = OpenError::Bank { index: 0, error: BankError::Busy };
    assert_eq!(open(&engine, bad, Target::task(TASK)), Err(error));
    assert_eq!(held(&engine), 0);
}

fn set(mask: &[u32], watches: usize, scope: SetScope) -> SetRequest {
    let groups = (0..watches).map(|_| group(PLENTY, &[data(), event(1)])).collect();
    SetRequest { groups, scope, mask: mask.iter().map(|&cpu| CpuId(cpu)).collect(), absent: Absent::Await }
}

#[test]
fn a_set_has_its_registers_on_all_cpus_or_none() {
    let engine = Machine::with_registers(SHARED, Authority::Ledger);
    let three: Vec<_> = (0..3).map(|_| open(&engine, data(), on(TASK, 2)).unwrap()).collect();
    let programs = engine.host().programs();
    let error = refused(Kind::Data, None, 2, (4, 4));
    let answer = engine.open_set(set(&[0, 1, 2, 3], 2, SetScope::Everything));
    assert_eq!(answer, Err(SetError { cpu: CpuId(2), group: 1, error }));
    assert_eq!((held(&engine), engine.host().programs()), (3, programs), "nothing was touched");
    let one = engine.open_set(set(&[0, 1, 2, 3], 1, SetScope::Everything)).unwrap();
    assert_eq!((held(&engine), room(&engine, data(), Target::cpu(CpuId(0)))), (7, 3));
    // A CPU that is away holds nothing; others may take what it had.
    engine.cpu_offline(CpuId(2));
    assert_eq!(held(&engine), 6);
    let fourth = open(&engine, data(), Target::task(TASK)).unwrap();
    engine.cpu_online(CpuId(2));
    let reading = engine.read_set(one).unwrap();
    assert_eq!(reading.cpus[2].refused, Some(refused(Kind::Data, None, 2, (4, 4))));
    engine.close(fourth.group);
    engine.cpu_offline(CpuId(2));
    engine.cpu_online(CpuId(2));
    assert_eq!((engine.read_set(one).unwrap().cpus[2].refused, held(&engine)), (None, 7));
    engine.close_set(one);
    three.iter().for_each(|opened| engine.close(opened.group));
    assert_eq!(held(&engine), 0);
}

#[test]
fn a_set_of_one_task_holds_registers_of_that_task_only() {
    let engine = Machine::with_registers(SHARED, Authority::Ledger);
    let of_task = engine.open_set(set(&[0, 1], 4, SetScope::Task(TASK))).unwrap();
    assert_eq!((room(&engine, data(), on(TASK, 1)), room(&engine, data(), on(TASK, 2))), (0, 4));
    assert_eq!((room(&engine, data(), Target::cpu(CpuId(1))), room(&engine, data(), Target::cpu(CpuId(3)))), (0, 4));
    assert_eq!(room(&engine, data(), Target::task(TaskId(8))), 4);
    engine.close_set(of_task);
    assert_eq!(held(&engine), 0);
}

#[test]
fn children_hold_what_they_inherit() {
    let engine = Machine::with_registers(SHARED, Authority::Ledger);
    let inherited = Attr { flags: AttrFlags::INHERIT, ..data() };
    let root = open(&engine, inherited, Target::task(TASK)).unwrap();
    let (child, grandchild) = (TaskId(8), TaskId(9));
    engine.task_fork(TASK, child).unwrap();
    engine.task_fork(child, grandchild).unwrap();
    assert_eq!((held(&engine), room(&engine, data(), Target::task(grandchild))), (3, 3));
    engine.task_exit(child);
    assert_eq!(held(&engine), 2);
    // A program that gains rights is not looked into: what its task inherited never counts again.
    engine.task_exec(grandchild, Exec::ChangesRights);
    assert_eq!((held(&engine), room(&engine, data(), Target::task(grandchild))), (1, 4));
    // What was opened on a task is held until it is closed.
    engine.task_exit(TASK);
    assert_eq!(held(&engine), 1);
    engine.close(root.group);
    assert_eq!((held(&engine), engine.census().events), (0, 0));
}

#[test]
fn where_the_host_decides_it_is_asked_and_differences_are_counted() {
    let engine = Machine::with_registers(Registers::Shared(1), Authority::Host);
    let first = open(&engine, data(), Target::task(TASK)).unwrap();
    assert_eq!(engine.ledger_disagreements(), Disagreements::default());
    // Both refuse.
    let taken = Attr { config1: TAKEN, ..data() };
    assert_eq!(open(&engine, taken, Target::task(TASK)), Err(refused(Kind::Data, Some(TASK), 0, (1, 1))));
    assert_eq!(engine.ledger_disagreements(), Disagreements::default());
    // The host has one more.
    let second = open(&engine, data(), Target::task(TASK)).unwrap();
    assert_eq!((engine.ledger_disagreements(), held(&engine)), (Disagreements { granted: 1, ..NONE }, 1));
    // The host has none for a task that holds nothing.
    let full = Full { kind: Kind::Data, task: None, cpu: CpuId(3), in_use: 1, total: 1 };
    let outside = |full| Err(OpenError::DebugRegisters { index: 0, full, taken: Taken::Outside });
    let (full, other) = (Full { in_use: 0, task: Some(TaskId(8)), cpu: CpuId(0), ..full }, Target::task(TaskId(8)));
    assert_eq!(open(&engine, taken, other), outside(full));
    assert_eq!((engine.ledger_disagreements(), held(&engine)), (Disagreements { granted: 1, refused: 1, ..NONE }, 1));
    // A set asks CPU by CPU.
    engine.open_set(set(&[0, 1], 1, SetScope::Everything)).unwrap();
    assert_eq!(engine.ledger_disagreements(), Disagreements { granted: 3, refused: 1, ..NONE });
    [first, second].iter().for_each(|opened| engine.close(opened.group));
}

#[test]
fn an_outside_holder_is_counted_and_named() {
    let engine = Machine::with_registers(SHARED, Authority::Ledger);
    let ledger = engine.ledger().unwrap();
    let debugger = Holder::Outside(OutsideId(42));
    let claim = Claim::of(Kind::Execute, 3).unwrap();
    let taken = ledger.reserve(claim, BpTarget::TaskEverywhere(TASK), debugger).unwrap().commit();
    assert_eq!(room(&engine, data(), Target::task(TASK)), 1);
    let Err(OpenError::DebugRegisters { full, .. }) =
        engine.open(&group(PLENTY, &[data(), data()]), Target::task(TASK))
    else {
        panic!("it is full");
    };
    assert_eq!(engine.holders(&full).iter().map(|held| held.holder).collect::<Vec<_>>(), [debugger]);
    assert!(ledger.release(taken));
    assert_eq!(room(&engine, data(), Target::task(TASK)), 4);
}

fn value(engine: &Engine<Machine>, event: EventId) -> u64 {
    engine.read(event).unwrap().value
}

#[test]
fn an_open_breakpoint_can_be_aimed_anew() {
    for pmu in [PLENTY, KERNEL] {
        let engine = Machine::with_registers(SEPARATE, Authority::Ledger);
        let opened = engine.open(&group(pmu, &[data()]), Target::task(TASK)).unwrap();
        let event = opened.events[0];
        engine.enable(event).unwrap();
        engine.host().run_task(7, 10);
        engine.modify(event, &watch(3, breakpoint::W)).unwrap();
        engine.host().run_task(7, 10);
        assert_eq!((value(&engine, event), held(&engine)), (40, 1));
        // Another sort of register.
        engine.modify(event, &watch(5, breakpoint::X)).unwrap();
        engine.host().run_task(7, 10);
        assert_eq!((value(&engine, event), held(&engine)), (90, 1));
        let room = |attr| room(&engine, attr, Target::task(TASK));
        assert_eq!((room(data()), room(execute())), (1, 1));
        engine.close(opened.group);
        assert_eq!((held(&engine), engine.host().leased()), (0, 0));
    }
}

#[test]
fn what_can_t_be_changed_has_lost_nothing() {
    let engine = Machine::with_registers(SEPARATE, Authority::Ledger);
    let [one, other] = [data(), execute()].map(|attr| open(&engine, attr, Target::task(TASK)).unwrap());
    let event = other.events[0];
    engine.enable(event).unwrap();
    let full = Full { kind: Kind::Data, task: Some(TASK), cpu: CpuId(0), in_use: 1, total: 1 };
    let no_register = Err(ModifyError::DebugRegisters { full, taken: Taken::Known });
    assert_eq!(engine.modify(event, &watch(9, breakpoint::W)), no_register);
    engine.close(one.group);
    let refused = Attr { config1: REFUSED, ..watch(9, breakpoint::W) };
    assert_eq!(engine.modify(event, &refused), Err(ModifyError::Bank(BankError::Busy)));
    engine.host().run_task(7, 10);
    assert_eq!((value(&engine, event), held(&engine)), (10, 1));
    assert_eq!((room(&engine, data(), Target::task(TASK)), room(&engine, execute(), Target::task(TASK))), (1, 1));
    engine.close(other.group);
    assert_eq!(engine.modify(event, &data()), Err(ModifyError::Closed));
    assert_eq!(held(&engine), 0);
}

#[test]
fn what_children_count_too_stays_what_it_is() {
    let engine = Machine::with_registers(SHARED, Authority::Ledger);
    let root = open(&engine, Attr { flags: AttrFlags::INHERIT, ..data() }, Target::task(TASK)).unwrap();
    engine.task_fork(TASK, TaskId(8)).unwrap();
    let other = Attr { flags: AttrFlags::INHERIT, ..watch(2, breakpoint::X) };
    assert_eq!(engine.modify(root.events[0], &other), Err(ModifyError::Inherited));
    engine.task_exit(TaskId(8));
    assert_eq!(engine.modify(root.events[0], &other), Ok(()));
    // Who is forked from now on gets what it is now.
    engine.task_fork(TASK, TaskId(9)).unwrap();
    engine.enable(root.events[0]).unwrap();
    engine.host().run_task(9, 10);
    assert_eq!(value(&engine, root.events[0]), 20);
}

#[test]
fn an_ordinary_event_on_a_scarce_counter_can_be_changed_too() {
    let engine = Machine::engine(1);
    let spec = group(crate::testing::SCARCE, &[event(1), flagged(2, AttrFlags::empty())]);
    let opened = engine.open_enabled(&spec, Target::task(TASK));
    engine.host().run_task(7, 10);
    engine.modify(opened.events[1], &event(7)).unwrap();
    engine.host().run_task(7, 10);
    engine.modify(opened.events[0], &event(100)).unwrap();
    engine.host().run_task(7, 10);
    let counts: Vec<_> = opened.events.iter().map(|&event| engine.read(event).unwrap()).collect();
    assert_eq!(counts.iter().map(|count| count.value).collect::<Vec<_>>(), [1020, 160]);
    assert!(counts.iter().all(|count| (count.enabled.0, count.running.0) == (30, 30)));
    assert_eq!(
        engine.modify(opened.events[0], &event(0)),
        Err(ModifyError::Parse(crate::pmu::ParseError::NoSuchEvent))
    );
}

#[test]
fn masks_of_sets_are_whole() {
    let engine = Machine::with_registers(SHARED, Authority::Ledger);
    let all: CpuMask = (0..4).map(CpuId).collect();
    let request = SetRequest { mask: all, absent: Absent::Refuse, ..set(&[], 4, SetScope::Everything) };
    engine.cpu_offline(CpuId(3));
    let error = SetError { cpu: CpuId(3), group: 0, error: OpenError::CpuOffline { cpu: CpuId(3) } };
    assert_eq!((engine.open_set(request.clone()), held(&engine)), (Err(error), 0));
    engine.cpu_online(CpuId(3));
    let set = engine.open_set(request).unwrap();
    assert_eq!(held(&engine), 16);
    engine.close_set(set);
    assert_eq!(held(&engine), 0);
}

#[test]
fn two_who_change_one_event_leave_it_with_its_own_register() {
    let engine = Machine::with_registers(SEPARATE, Authority::Ledger);
    let opened = open(&engine, data(), Target::task(TASK)).unwrap();
    let event = opened.events[0];
    std::thread::scope(|scope| {
        for attrs in [[data(), execute()], [execute(), data()]] {
            let engine = &engine;
            scope.spawn(move || (0..200).for_each(|step| engine.modify(event, &attrs[step % 2]).unwrap()));
        }
    });
    let is_data = engine.attr(event).unwrap() == data();
    let room = |attr| room(&engine, attr, Target::task(TASK));
    assert_eq!((room(data()), room(execute()), held(&engine)), if is_data { (0, 2, 1) } else { (1, 1, 1) });
    engine.close(opened.group);
    assert_eq!(held(&engine), 0);
}

#[test]
fn what_children_may_have_inherited_is_no_stranger() {
    let engine = Machine::with_registers(SHARED, Authority::Host);
    let watched = |flags, which| Attr { flags, config1: which, ..data() };
    let on_kernel = |attr: Attr, target| engine.open(&group(KERNEL, &[attr]), target);
    let child = Target::task(TaskId(8));
    let refused = |target| match on_kernel(watched(AttrFlags::empty(), TAKEN), target) {
        Err(OpenError::DebugRegisters { full, taken, .. }) => (full.in_use, taken),
        other => panic!("{other:?}"),
    };
    // Two that children inherit, one that they don't: a child has two at most, and with two of its own it may have none left.
    let inherited: Vec<_> =
        (0..2).map(|_| on_kernel(watched(AttrFlags::INHERIT, 0), Target::task(TASK)).unwrap()).collect();
    let own = on_kernel(watched(AttrFlags::empty(), 0), Target::task(TASK)).unwrap();
    let first = on_kernel(watched(AttrFlags::empty(), 0), child).unwrap();
    assert_eq!(refused(child), (1, Taken::Outside), "3 of 4 could be the child's");
    let second = on_kernel(watched(AttrFlags::empty(), 0), child).unwrap();
    assert_eq!(refused(child), (2, Taken::Inherited));
    assert_eq!(engine.ledger_disagreements(), Disagreements { refused: 1, inherited: 1, ..NONE });
    // What a task has itself it does not inherit.
    assert_eq!(refused(Target::task(TASK)), (3, Taken::Outside));
    assert_eq!(refused(Target::cpu(CpuId(1))), (3, Taken::Inherited));
    engine.close(inherited[0].group);
    assert_eq!(refused(child), (2, Taken::Outside));
    assert_eq!(engine.ledger_disagreements(), Disagreements { refused: 3, inherited: 2, ..NONE });
    // On one CPU: that is where it may be missing.
    let on_one = on_kernel(watched(AttrFlags::INHERIT, 0), on(TASK, 3)).unwrap();
    assert_eq!(refused(on(TaskId(8), 2)), (2, Taken::Outside));
    assert_eq!(refused(on(TaskId(8), 3)), (2, Taken::Inherited));
    for opened in [&inherited[1], &own, &first, &second, &on_one] {
        engine.close(opened.group);
    }
    assert_eq!((held(&engine), engine.host().leased()), (0, 0));
}
