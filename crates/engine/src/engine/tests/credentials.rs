//! An event that is opened with credentials keeps them, at each reopen.

use super::everywhere;
use crate::cpu_mask::CpuMask;
use crate::engine::SetRequest;
use crate::error::OpenError;
use crate::id::Cred;
use crate::pmu::BankError;
use crate::share::SharingScope;
use crate::system_wide::SetScope;
use crate::target::ContextKey;
use crate::testing::{KERNEL, Machine, PLENTY, SCARCE, event, group};
use crate::{CpuId, Engine, Target, TaskId};
use alloc::vec::Vec;

const CRED: Cred = Cred(7);

fn domain() -> SharingScope {
    SharingScope::default().with_cred(CRED)
}

fn request(scope: SetScope) -> SetRequest {
    let groups = vec![group(KERNEL, &[event(2)]), group(PLENTY, &[event(3), event(5)])];
    SetRequest { scope, ..everywhere(groups, 0..2) }
}

/// How many registers were programmed or changed since the last question, all with these credentials.
fn all_with(engine: &Engine<Machine>, cred: Cred) -> usize {
    let creds = engine.host().creds();
    assert!(creds.keys().all(|&seen| seen == cred), "{creds:?}");
    creds.values().sum()
}

#[test]
fn a_set_keeps_them_on_every_way() {
    for engine in [Machine::engine(2), Machine::sharing(2)] {
        let set = engine.open_set_in(domain(), request(SetScope::Everything)).unwrap();
        engine.enable_set(set).unwrap();
        assert_eq!(all_with(&engine, CRED), 6);
        engine.cpu_offline(CpuId(1));
        engine.cpu_online(CpuId(1));
        assert_eq!(all_with(&engine, CRED), 3, "a CPU that comes");
        // Where another one shares its counters.
        let other = engine.open_set_in(domain(), request(SetScope::Everything)).unwrap();
        engine.retry_set(set, &request(SetScope::Everything).groups).unwrap();
        engine.cpu_offline(CpuId(0));
        engine.cpu_online(CpuId(0));
        assert!(all_with(&engine, CRED) >= 3);
        [set, other].into_iter().for_each(|set| engine.close_set(set));
    }
}

#[test]
fn a_group_keeps_them_when_it_changes_and_takes_turns() {
    for engine in [Machine::engine(1), Machine::sharing(1)] {
        let cpu = Target::cpu(CpuId(0));
        let open = |rate| engine.open_in(domain(), &group(SCARCE, &[event(rate)]), cpu).unwrap();
        let opened: Vec<_> = [1, 1, 2, 3, 4, 5, 6].map(open).into_iter().collect();
        for opened in &opened {
            engine.enable_group(opened.group).unwrap();
        }
        engine.modify(opened[2].events[0], &event(8)).unwrap();
        for _ in 0..8 {
            engine.rotate();
        }
        assert!(all_with(&engine, CRED) > 7);
    }
}

/// A counter that was opened with more rights tells more than the other one may know.
#[test]
fn those_with_other_credentials_have_other_counters() {
    let engine = Machine::sharing(1);
    let open = |of: SharingScope| engine.open_in(of, &group(PLENTY, &[event(3)]), Target::cpu(CpuId(0))).unwrap();
    open(domain());
    open(domain());
    assert_eq!((all_with(&engine, CRED), engine.census().masters), (1, 1));
    open(SharingScope::default());
    assert_eq!((all_with(&engine, Cred::HOST), engine.census().masters), (1, 2));
    open(SharingScope::default().with_cred(Cred(8)));
    assert_eq!((all_with(&engine, Cred(8)), engine.census().masters), (1, 3));
}

/// A number that has become another task's is not opened on a CPU that comes.
#[test]
fn a_task_that_is_another_one_by_now_is_left_alone() {
    let engine = Machine::engine(2);
    let mask: CpuMask = (0..3).map(CpuId).collect();
    let open = |task| {
        let request = SetRequest { mask: mask.clone(), ..request(SetScope::Task(TaskId(task))) };
        engine.open_set_in(domain(), request).unwrap()
    };
    let (same, other) = (open(5), open(6));
    engine.host().run(&[ContextKey::Task(TaskId(6))], 10);
    engine.host().replace_task(TaskId(6));
    engine.host().creds();
    engine.cpu_online(CpuId(2));
    assert_eq!(all_with(&engine, CRED), 3, "of the one that is still there");
    let refused = |set| engine.read_set(set).unwrap().cpus.into_iter().find(|one| one.cpu == CpuId(2)).unwrap().refused;
    assert_eq!(refused(same), None);
    assert_eq!(refused(other), Some(OpenError::Bank { index: 0, error: BankError::NoSuchTask }));
}
