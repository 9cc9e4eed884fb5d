//! The rule, on examples that were worked out by hand.

use super::*;

const X86: Registers = Registers::Shared(4);
const ARM64: Registers = Registers::Separate { execute: 6, data: 4 };
const A: Option<TaskId> = Some(TaskId(1));
const B: Option<TaskId> = Some(TaskId(2));
const CPU0: CpuId = CpuId(0);
const CPU1: CpuId = CpuId(1);

fn data(task: Option<TaskId>, cpus: Where) -> Request {
    Request { kind: Kind::Data, task, cpus, weight: 1 }
}

fn execute(task: Option<TaskId>, cpus: Where) -> Request {
    Request { kind: Kind::Execute, ..data(task, cpus) }
}

fn ledger(registers: Registers) -> Ledger {
    Ledger::new([CPU0, CPU1], registers)
}

fn how_many(ledger: &mut Ledger, request: &Request) -> usize {
    (0..100).take_while(|_| ledger.reserve(request.clone()).is_ok()).count()
}

/// What was there before; what is asked for then, again and again; how often it is granted.
type Fact = (Registers, Vec<Request>, Request, usize);

/// What x86 (4 registers) and arm64 (6 and 4) grant. For the machine that the tests run on, `breakpoint_fuzz` among the
/// library's tests asks the kernel; x86 was asked with Linux 6.18.
fn facts() -> Vec<Fact> {
    let all = || Where::Everywhere;
    let (on0, on1) = (|| Where::on(CPU0), || Where::on(CPU1));
    let both = || Where::Only([CPU0, CPU1].into());
    let fill = |request: Request, times: usize| vec![request; times];
    vec![
        // Each alone.
        (X86, vec![], data(A, all()), 4),
        (X86, vec![], data(A, on0()), 4),
        (X86, vec![], data(None, on0()), 4),
        // Tasks do not stand in each other's way.
        (X86, fill(data(A, all()), 4), data(B, all()), 4),
        (X86, fill(data(A, all()), 4), data(B, on1()), 4),
        // CPUs do not, either.
        (X86, fill(data(None, on0()), 4), data(None, on1()), 4),
        (X86, fill(data(A, on0()), 4), data(A, on1()), 4),
        // A CPU's own take from every task that may come there.
        (X86, fill(data(None, on0()), 3), data(A, on0()), 1),
        (X86, fill(data(None, on0()), 3), data(A, all()), 1),
        (X86, fill(data(None, on0()), 3), data(A, on1()), 4),
        // And a task that may come takes from the CPU.
        (X86, fill(data(A, all()), 3), data(None, on1()), 1),
        (X86, fill(data(A, on0()), 3), data(None, on0()), 1),
        (X86, fill(data(A, on0()), 3), data(None, on1()), 4),
        // The one that needs most counts, not the sum over tasks.
        (X86, [fill(data(A, all()), 3), fill(data(B, all()), 2)].concat(), data(None, on0()), 1),
        (X86, [fill(data(A, on0()), 2), fill(data(B, on1()), 3)].concat(), data(None, on0()), 2),
        // A task needs what it holds for all CPUs and what it holds for this one.
        (X86, [fill(data(A, all()), 2), fill(data(A, on0()), 1)].concat(), data(A, on0()), 1),
        (X86, [fill(data(A, all()), 2), fill(data(A, on0()), 1)].concat(), data(A, on1()), 2),
        (X86, [fill(data(A, all()), 2), fill(data(A, on0()), 1)].concat(), data(A, all()), 1),
        // The fullest CPU decides about all of them.
        (X86, [fill(data(None, on0()), 1), fill(data(None, on1()), 3)].concat(), data(A, all()), 1),
        (X86, fill(data(None, on1()), 3), data(None, both()), 1),
        (X86, fill(data(None, on1()), 4), data(None, both()), 0),
        // Both kinds want the same registers, or each its own.
        (X86, fill(execute(A, all()), 3), data(A, all()), 1),
        (X86, fill(execute(None, on0()), 3), data(A, all()), 1),
        (ARM64, vec![], execute(A, all()), 6),
        (ARM64, fill(execute(A, all()), 6), data(A, all()), 4),
        (ARM64, fill(execute(None, on0()), 5), data(None, on0()), 4),
        (ARM64, fill(execute(None, on0()), 5), execute(A, all()), 1),
        // A CPU's own never stands in the way of another CPU, and a request for none is granted.
        (X86, fill(data(None, both()), 4), data(A, Where::Only(BTreeSet::new())), 100),
    ]
}

#[test]
fn what_real_machines_grant() {
    for (index, (registers, before, request, granted)) in facts().into_iter().enumerate() {
        let mut ledger = ledger(registers);
        for held in before {
            ledger.reserve(held).unwrap_or_else(|refused| panic!("fact {index}: {refused:?} before the question"));
        }
        assert_eq!(how_many(&mut ledger, &request), granted, "fact {index}: {request:?}");
    }
}

#[test]
fn a_refusal_names_the_first_cpu_and_takes_nothing() {
    let mut ledger = ledger(X86);
    assert_eq!(how_many(&mut ledger, &data(None, Where::on(CPU1))), 4);
    let both = data(None, Where::Only([CPU0, CPU1].into()));
    let before = ledger.clone();
    assert_eq!(ledger.reserve(both), Err(RequestError::Full { cpu: CPU1, in_use: 4, total: 4 }));
    assert!(ledger.held().eq(before.held()));
    assert_eq!(how_many(&mut ledger, &data(None, Where::on(CPU0))), 4, "nothing is left on the CPU where it did fit");
}

#[test]
fn a_change_to_another_kind_may_be_refused_where_kinds_are_separate() {
    let mut ledger = ledger(ARM64);
    let reservation = ledger.reserve(execute(A, Where::Everywhere)).unwrap();
    assert_eq!(how_many(&mut ledger, &data(A, Where::Everywhere)), 4);
    let refused = RequestError::Full { cpu: CPU0, in_use: 4, total: 4 };
    assert_eq!(ledger.modify(reservation, data(A, Where::Everywhere)), Err(refused));
    assert_eq!(how_many(&mut ledger, &execute(A, Where::Everywhere)), 5, "the old one is still held");
}
