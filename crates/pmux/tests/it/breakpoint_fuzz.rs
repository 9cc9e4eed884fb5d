//! Random sequences of breakpoints on this kernel and on the model: both must say the same. The engine on this kernel must know why
//! where it differs. (`crates/sim/tests/it/oracles` compares the engine's ledger with the model.)
//!
//! What it is: a short run with fixed seeds.
//! Read first: `common/breakpoints`.
//!
//! **Invariant:** another process's breakpoints do not come at the same step again: a sequence counts as different only if it
//! is so each time.

use crate::common::breakpoints::Alone;
use crate::common::breakpoints::compare::{Difference, Parties, Tally, random};
use crate::common::breakpoints::draw::Draw;
use crate::common::breakpoints::engine::Engine;
use crate::common::breakpoints::kernel::{Kernel, LEASE, open};
use crate::common::breakpoints::party::{Answer, Model, Party};
use crate::common::breakpoints::step::{ChildKind, Counting, Heirs, Watch, Whose};
use crate::common::{self, needs, own_process, skip_unless};
use pmux::Event;
use pmux::event::Access;
use pmux_engine::CpuId;
use pmux_engine::pmu::{BankError, CounterBank as _, Lease};
use pmux_engine::target::{ContextKey, Filter};
use pmux_linux::cpus::Cpus;
use pmux_linux::host::{LinuxBank, LinuxHost};
use pmux_sim::oracle::breakpoint::Registers;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

const THREADS: usize = 3;
/// How often another process may disturb a sequence.
const ATTEMPTS: usize = 3;

fn cpus(count: u32) -> Vec<CpuId> {
    (0..count).map(CpuId).collect()
}

struct Machine {
    online: Vec<CpuId>,
    registers: Registers,
    _alone: Alone,
}

/// `None` where a right is missing, or a register.
fn machine() -> Option<Machine> {
    common::cpu_session().filter(|_| own_process())?;
    let alone = Alone::wait();
    let online: Vec<_> = Cpus::system().online().unwrap().iter().take(4).map(CpuId).collect();
    match Kernel::registers(&online) {
        Ok(registers) => Some(Machine { online, registers, _alone: alone }),
        Err(why) => {
            needs("breakpoints", &format!("debug registers that no process uses: {why}"), false);
            None
        }
    }
}

/// Random sequences, each tried again where another process may have disturbed it; `lost` says what differs every time.
fn sequences(
    machine: &Machine,
    seeds: RangeInclusive<u64>,
    parties: &dyn Fn() -> Parties,
    lost: impl Fn(u64, Difference),
) -> Tally {
    const STEPS: usize = 2500;
    let mut sum = Tally::default();
    for seed in seeds {
        let mut found = Vec::new();
        let tally = loop {
            match random(parties(), Draw::new(seed, &machine.online, THREADS), STEPS) {
                Ok(tally) => break tally,
                Err(difference) => found.push(difference),
            }
            if found.len() == ATTEMPTS {
                lost(seed, found.swap_remove(0));
                panic!("seed {seed}: different each time");
            }
        };
        tally.0.into_iter().for_each(|(what, times)| *sum.0.entry(what).or_default() += times);
        println!("seed {seed}: disturbed {} times", found.len());
    }
    println!("{:?} on {} CPUs: {sum:?}", machine.registers, machine.online.len());
    sum
}

#[test]
fn this_kernel_and_the_model_agree() {
    let Some(machine) = machine() else { return };
    let registers = machine.registers;
    let possible: Vec<_> = Cpus::system().possible().unwrap().iter().map(CpuId).collect();
    let parties = || -> Parties {
        let model = Model::new(registers, &possible, THREADS);
        vec![Box::new(Kernel::new(THREADS)), Box::new(model)]
    };
    let sum =
        sequences(&machine, 1..=4, &parties, |seed, difference| panic!("seed {seed}, {registers:?}: {difference}"));
    assert_eq!(Kernel::registers(&machine.online), Ok(registers), "everything was given back");
    assert!(sum.of("forked") > 100, "{sum:?}");
    assert!(
        sum.of("opened") > 1500 && sum.of("refused") > 300 && sum.of("modified") > 1000 && sum.of("invalid") > 50,
        "{sum:?}"
    );
    let separate = matches!(registers, Registers::Separate { .. });
    assert_eq!(
        sum.of("unmodified") > 0,
        separate,
        "a change of kind needs other registers where they are separate: {sum:?}"
    );
}

#[test]
fn where_the_engines_account_and_the_kernel_differ_it_is_said_why() {
    let Some(machine) = machine() else { return };
    let parties = || -> Parties { vec![Box::new(Engine::new(&machine.online, THREADS))] };
    // The kernel exchanges events of tasks when it likes: it may not come again, and is said as it was.
    let sum = sequences(&machine, 11..=14, &parties, |seed, difference| panic!("seed {seed}: {difference}"));
    assert!(sum.of("opened") > 1500 && sum.of("refused") > 300 && sum.of("forked") > 100, "{sum:?}");
}

#[test]
fn a_child_that_has_inherited_registers_is_a_reason() {
    let Some(machine) = machine() else { return };
    let most = machine.registers.for_kind(pmux_sim::oracle::breakpoint::Kind::Data);
    let mut engine = Engine::new(&machine.online, 2);
    let open = |engine: &mut Engine, number, thread, heirs| {
        engine.open(number, &Whose::Thread(thread), Watch::SIMPLEST, Counting::Off, heirs)
    };
    assert_eq!(open(&mut engine, 0, 0, Heirs::Children), Answer::Granted);
    assert_eq!(engine.fork(0, 1, ChildKind::Process), Answer::Granted);
    // The child has one of them, and the engine was not told of it.
    let granted = (1..=most).take_while(|&number| open(&mut engine, number, 1, Heirs::NoTask) == Answer::Granted);
    assert_eq!((granted.count() as u32, engine.inherited()), (most - 1, 1));
    // When it ends, what it has inherited goes back; what was opened on it stays until it is closed.
    engine.replace(1);
    engine.close(0);
    assert_eq!(open(&mut engine, 99, 1, Heirs::NoTask), Answer::Granted);
}

#[test]
fn a_breakpoint_counts_on_whatever_becomes_of_a_change() {
    skip_unless!(own_process() && common::session().is_some());
    let _alone = Alone::wait();
    let watched = [const { AtomicU64::new(0) }; 2];
    let attr = |which: usize, len: u64| {
        let event = Event::breakpoint((&raw const watched[which]) as u64, len, Access::WRITE);
        event.with_modifiers("u").unwrap().attr
    };
    let touch = || watched.iter().for_each(|word| word.store(1, Ordering::Relaxed));
    let own = ContextKey::Task(LinuxHost::task(pmux_linux::current_tid()));
    let opened = open(&LinuxHost::new(), own, Filter::Everything, &attr(0, 8));
    skip_unless!(needs("breakpoints", "a debug register", opened.is_ok()));
    let mut bank = opened.unwrap();
    let count = |bank: &mut LinuxBank| bank.read(LEASE).unwrap().raw;
    bank.start(LEASE).unwrap();
    touch();
    assert_eq!(count(&mut bank), 1);
    // Refused: it still watches the first word.
    assert_eq!(bank.modify(LEASE, &attr(1, Watch::NEVER)), Err(BankError::Invalid));
    touch();
    assert_eq!(count(&mut bank), 2);
    bank.modify(LEASE, &attr(1, 4)).unwrap();
    watched[0].store(1, Ordering::Relaxed);
    assert_eq!(count(&mut bank), 2, "the first word is not watched any more");
    touch();
    assert_eq!(count(&mut bank), 3);
    bank.stop(LEASE);
    bank.modify(LEASE, &attr(0, 8)).unwrap();
    touch();
    assert_eq!(count(&mut bank), 3, "a change starts nothing");
    bank.start(LEASE).unwrap();
    touch();
    assert_eq!(count(&mut bank), 4);
    let stale = Lease { generation: 2, ..LEASE };
    assert!(bank.modify(stale, &attr(0, 8)).is_err());
}

#[test]
fn what_is_drawn_depends_on_the_seed() {
    let parties = || -> Parties { vec![Box::new(Model::new(Registers::Shared(4), &cpus(2), THREADS))] };
    let run = |seed| random(parties(), Draw::new(seed, &cpus(2), THREADS), 1000).unwrap();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
