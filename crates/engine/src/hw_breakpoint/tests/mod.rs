//! The ledger's tokens, names and parts. Who may have what is compared with the rule by counting in `crates/sim/tests`.
#![allow(clippy::unwrap_used)]

use super::{BpTarget, Claim, Full, Holder, Holding, Kind, Ledger, Locks, OutsideId, Registers, ReserveError};
use crate::cpu_mask::CpuMask;
use crate::id::{CpuId, TaskId};
use crate::testing::locks::{Checked, LockKind};
use alloc::vec::Vec;

/// Locks that check their order.
struct Ranked;

impl Locks for Ranked {
    type Cell<T: Send> = <Checked as LockKind>::Sleep<T>;
    type Word = std::sync::atomic::AtomicU32;
}

const DATA: Claim = Claim::one(Kind::Data);
const TASK: TaskId = TaskId(5);

fn ledger(registers: Registers) -> Ledger<Ranked> {
    Ledger::new(registers, 4)
}

fn everywhere(task: TaskId) -> BpTarget {
    BpTarget::TaskEverywhere(task)
}

fn mask(cpus: &[u32]) -> CpuMask {
    cpus.iter().map(|&cpu| CpuId(cpu)).collect()
}

fn holder(number: u64) -> Holder {
    Holder::Outside(OutsideId(number))
}

fn full(task: Option<TaskId>, cpu: u32, in_use: u32, total: u8) -> Full {
    Full { kind: Kind::Data, task, cpu: CpuId(cpu), in_use, total }
}

#[test]
fn a_token_gives_back_unless_it_is_committed() {
    let ledger = ledger(Registers::Shared(1));
    let token = ledger.reserve(DATA, everywhere(TASK), holder(1)).unwrap();
    assert_eq!(
        ledger.reserve(DATA, everywhere(TASK), holder(2)).unwrap_err(),
        ReserveError::Full(full(Some(TASK), 0, 1, 1))
    );
    drop(token);
    let reservation = ledger.reserve(DATA, everywhere(TASK), holder(2)).unwrap().commit();
    assert_eq!((ledger.len(), ledger.is_empty()), (1, false));
    assert!(ledger.release(reservation));
    assert!(ledger.is_empty());
}

#[test]
fn several_are_granted_as_one() {
    let ledger = ledger(Registers::Separate { execute: 1, data: 1 });
    let cpus = || BpTarget::Cpus(mask(&[0, 1, 2, 3]));
    let wanted = || std::vec![(DATA, cpus(), holder(1)), (DATA, everywhere(TASK), holder(2))];
    assert_eq!(ledger.reserve_all(wanted()).unwrap_err(), (1, ReserveError::Full(full(Some(TASK), 0, 1, 1))));
    assert!(ledger.is_empty());
    let execute = (Claim::one(Kind::Execute), everywhere(TASK), holder(2));
    let tokens = ledger.reserve_all(std::vec![(DATA, cpus(), holder(1)), execute]).unwrap();
    assert_eq!((tokens.len(), ledger.len()), (2, 2));
    drop(tokens);
    assert!(ledger.is_empty());
}

#[test]
fn those_in_the_way_are_named() {
    let ledger = ledger(Registers::Shared(4));
    let hold = |claim, place, number| ledger.reserve(claim, place, holder(number)).unwrap().commit();
    let two = Claim::of(Kind::Execute, 2).unwrap();
    let held = [
        hold(DATA, BpTarget::Cpus(mask(&[1, 2])), 1),
        hold(DATA, everywhere(TASK), 2),
        hold(two, BpTarget::TaskOn(TASK, mask(&[2])), 3),
        hold(DATA, everywhere(TaskId(6)), 4),
    ];
    let in_the_way = |full: &Full| ledger.holders(full).into_iter().map(|held| held.holder).collect::<Vec<_>>();
    let refused = |place| match ledger.reserve(DATA, place, Holder::Opening) {
        Err(ReserveError::Full(full)) => full,
        other => panic!("{other:?}"),
    };
    let of_task = refused(BpTarget::TaskOn(TASK, mask(&[0, 2])));
    assert_eq!((of_task, in_the_way(&of_task)), (full(Some(TASK), 2, 4, 4), [1, 2, 3].map(holder).to_vec()));
    // Of the tasks, the one that needs most there.
    let of_cpu = refused(BpTarget::Cpus(mask(&[0, 1, 2, 3])));
    assert_eq!((of_cpu, in_the_way(&of_cpu)), (full(None, 2, 4, 4), [1, 2, 3].map(holder).to_vec()));
    assert_eq!(ledger.fullest(Kind::Data, None, Some(TaskId(6))), full(Some(TaskId(6)), 1, 2, 4));
    ledger.name(&held[0], holder(9));
    let first = Holding { holder: holder(9), claim: DATA, place: BpTarget::Cpus(mask(&[1, 2])) };
    assert_eq!(ledger.holders(&of_cpu).first(), Some(&first));
    assert!(held.into_iter().all(|reservation| ledger.release(reservation)));
}

#[test]
fn a_task_and_its_cpus_are_asked_for_in_bounds() {
    let ledger = ledger(Registers::Shared(4));
    for place in [BpTarget::Cpus(mask(&[0, 4])), BpTarget::TaskOn(TASK, mask(&[4]))] {
        assert_eq!(ledger.reserve(DATA, place, Holder::Opening).unwrap_err(), ReserveError::NoSuchCpu(CpuId(4)));
    }
    let more = Claim::of(Kind::Data, u8::MAX).unwrap();
    for place in [everywhere(TASK), BpTarget::Cpus(mask(&[3])), BpTarget::TaskOn(TASK, mask(&[3]))] {
        let task = place.task();
        let cpu = if place.cpus().is_some() { 3 } else { 0 };
        assert_eq!(
            ledger.reserve(more, place, Holder::Opening).unwrap_err(),
            ReserveError::Full(full(task, cpu, 0, 4))
        );
    }
    assert!(ledger.is_empty());
    let large = Ledger::<Ranked>::new(Registers::Shared(u8::MAX), 1024);
    let all = large.reserve(more, BpTarget::Cpus((0..1024).map(CpuId).collect()), Holder::Opening).unwrap();
    assert!(large.reserve(DATA, everywhere(TASK), Holder::Opening).is_err());
    drop(all);
    assert!(large.reserve(more, everywhere(TASK), Holder::Opening).is_ok());
}

#[test]
fn no_cpus_and_no_registers_are_no_trouble() {
    let ledger = ledger(Registers::Shared(0));
    let nowhere = ledger.reserve(DATA, BpTarget::Cpus(CpuMask::default()), holder(1)).unwrap().commit();
    let never = ledger.reserve(DATA, BpTarget::TaskOn(TASK, CpuMask::default()), holder(2)).unwrap().commit();
    assert_eq!(
        ledger.reserve(DATA, everywhere(TASK), holder(3)).unwrap_err(),
        ReserveError::Full(full(Some(TASK), 0, 0, 0))
    );
    assert_eq!(ledger.split(nowhere).map(|parts| parts.len()), Ok(0));
    assert!(ledger.release(never) && ledger.is_empty());
}

#[test]
fn an_owner_is_for_ever_and_a_stale_reservation_has_none() {
    let (ledger, other) = (ledger(Registers::Shared(4)), ledger(Registers::Shared(4)));
    let of_task = ledger.reserve(DATA, everywhere(TASK), holder(1)).unwrap().commit();
    let of_cpus = ledger.reserve(DATA, BpTarget::Cpus(mask(&[1])), holder(1)).unwrap().commit();
    assert_eq!(ledger.modify(&of_task, DATA, BpTarget::Cpus(mask(&[1]))), Err(ReserveError::OtherOwner));
    assert_eq!(ledger.modify(&of_task, DATA, everywhere(TaskId(6))), Err(ReserveError::OtherOwner));
    assert_eq!(ledger.modify(&of_cpus, DATA, everywhere(TASK)), Err(ReserveError::OtherOwner));
    assert_eq!(other.modify(&of_task, DATA, everywhere(TASK)), Err(ReserveError::Stale));
    assert_eq!(other.modify(&of_cpus, DATA, BpTarget::Cpus(mask(&[2]))), Err(ReserveError::Stale));
    assert!(!other.name(&of_task, holder(2)) && !other.name(&of_cpus, holder(2)));
    let of_task = other.split(of_task).unwrap_err();
    assert!(!other.release(of_cpus) && !other.release(of_task));
    assert_eq!((ledger.len(), other.len()), (2, 0));
}

#[test]
fn parts_are_held_one_by_one() {
    let ledger = ledger(Registers::Shared(1));
    for place in [BpTarget::Cpus(mask(&[1, 3])), BpTarget::TaskOn(TASK, mask(&[1, 3]))] {
        let whole = ledger.reserve(DATA, place, holder(1)).unwrap().commit();
        let mut parts = ledger.split(whole).unwrap();
        assert_eq!((parts.len(), ledger.len()), (2, 2));
        let on = |cpu| ledger.reserve(DATA, BpTarget::TaskOn(TASK, mask(&[cpu])), Holder::Opening).is_ok();
        assert_eq!([0, 1, 2, 3].map(on), [true, false, true, false]);
        let (cpu, first) = parts.remove(0);
        assert!(cpu == CpuId(1) && ledger.release(first));
        assert_eq!([0, 1, 2, 3].map(on), [true, true, true, false]);
        assert!(parts.into_iter().all(|(_, part)| ledger.release(part)) && ledger.is_empty());
    }
}

#[test]
fn refusals_say_what_and_where() {
    let text = format!("{}", ReserveError::Full(full(None, 3, 4, 4)));
    assert_eq!(text, "4 of 4 debug registers for data breakpoints are in use on CPU 3");
    let errnos = [
        ReserveError::Full(full(None, 0, 0, 0)),
        ReserveError::NoSuchCpu(CpuId(1)),
        ReserveError::Stale,
        ReserveError::OtherOwner,
    ];
    assert_eq!(errnos.map(ReserveError::errno), [28, 19, 9, 22]);
}
