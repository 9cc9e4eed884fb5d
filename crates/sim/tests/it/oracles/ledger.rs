//! The engine's ledger of debug registers beside the rule by counting, and the list that it is measured against.

use pmux_engine::hw_breakpoint::baseline::List;
use pmux_engine::hw_breakpoint::{
    BpTarget, Claim, Full, Holder, Kind, Ledger, Locks, OutsideId, Refused, Registers, Reservation,
};
use pmux_engine::system_wide::CpuMask;
use pmux_engine::{CpuId, TaskId};
use pmux_sim::oracle::breakpoint as oracle;
use proptest::prelude::*;
use std::cell::Cell;

struct Plain;

impl Locks for Plain {
    type Cell<T: Send> = super::host::Cell<T>;
    type Word = std::sync::atomic::AtomicU32;
}

/// A wish, as both are told.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wish {
    kind: Kind,
    weight: u8,
    task: Option<u64>,
    /// Wherever the task is, where there are none.
    cpus: Option<Vec<u32>>,
}

impl Wish {
    fn claim(&self) -> Claim {
        Claim::of(self.kind, self.weight).unwrap()
    }

    fn place(&self) -> BpTarget {
        let mask = || self.cpus.iter().flatten().map(|&cpu| CpuId(cpu)).collect::<CpuMask>();
        match (self.task, &self.cpus) {
            (Some(task), None) => BpTarget::TaskEverywhere(TaskId(task)),
            (Some(task), Some(_)) => BpTarget::TaskOn(TaskId(task), mask()),
            (None, _) => BpTarget::Cpus(mask()),
        }
    }

    fn request(&self) -> oracle::Request {
        oracle::Request {
            kind: kind(self.kind),
            task: self.task.map(TaskId),
            cpus: match (self.task, &self.cpus) {
                (Some(_), None) => oracle::Where::Everywhere,
                (_, cpus) => oracle::Where::Only(cpus.iter().flatten().map(|&cpu| CpuId(cpu)).collect()),
            },
            weight: u32::from(self.weight),
        }
    }
}

fn kind(kind: Kind) -> oracle::Kind {
    match kind {
        Kind::Execute => oracle::Kind::Execute,
        Kind::Data => oracle::Kind::Data,
    }
}

fn model(registers: Registers, cpus: u32) -> oracle::Ledger {
    let registers = match registers {
        Registers::Shared(count) => oracle::Registers::Shared(u32::from(count)),
        Registers::Separate { execute, data } => {
            oracle::Registers::Separate { execute: u32::from(execute), data: u32::from(data) }
        }
    };
    oracle::Ledger::new((0..cpus).map(CpuId), registers)
}

/// A refusal as the model words it, or what it can't word.
fn plain(refused: Refused) -> oracle::Refused {
    match refused {
        Refused::Full(Full { cpu, in_use, total, .. }) => {
            oracle::Refused::Full { cpu, in_use, total: u32::from(total) }
        }
        Refused::Stale => oracle::Refused::Stale,
        other => panic!("{other}"),
    }
}

struct Held {
    wish: Wish,
    model: oracle::Token,
    ledger: Reservation,
}

/// The model and the ledger, side by side.
struct Beside {
    cpus: u32,
    model: oracle::Ledger,
    ledger: Ledger<Plain>,
    held: Vec<Held>,
    next: u64,
}

impl Beside {
    fn new(registers: Registers, cpus: u32) -> Self {
        Self { cpus, model: model(registers, cpus), ledger: Ledger::new(registers, cpus), held: Vec::new(), next: 0 }
    }

    fn holder(&mut self) -> Holder {
        self.next += 1;
        Holder::Outside(OutsideId(self.next))
    }

    /// Asks both; whether it was granted.
    fn reserve(&mut self, wish: &Wish) -> bool {
        let said = self.model.reserve(wish.request());
        let holder = self.holder();
        let ledger = self.ledger.reserve(wish.claim(), wish.place(), holder).map(|token| token.commit());
        match (said, ledger) {
            (Ok(model), Ok(ledger)) => {
                self.held.push(Held { wish: wish.clone(), model, ledger });
                true
            }
            (Err(model), Err(ledger)) => {
                assert_eq!(model, plain(ledger), "{wish:?}");
                false
            }
            answers => panic!("{wish:?}: {answers:?}"),
        }
    }

    fn release(&mut self, index: usize) -> Wish {
        let Held { wish, model, ledger } = self.held.swap_remove(index);
        assert!(self.model.release(model).is_ok() && self.ledger.release(ledger), "{wish:?}");
        wish
    }

    /// Lets something that is held stand for `wish`; whether it does now.
    fn modify(&mut self, index: usize, wish: &Wish) -> bool {
        let held = &mut self.held[index];
        let said = self.model.modify(held.model, wish.request());
        let ledger = self.ledger.modify(&held.ledger, wish.claim(), wish.place());
        assert_eq!(said, ledger.map_err(plain), "{:?} is to be {wish:?}", held.wish);
        if said.is_ok() {
            held.wish = wish.clone();
        }
        said.is_ok()
    }

    /// Asks for several as one.
    fn reserve_all(&mut self, wishes: &[Wish]) {
        let before = self.held.len();
        let refused = wishes.iter().enumerate().find_map(|(index, wish)| {
            let said = self.model.reserve(wish.request());
            match said {
                Ok(model) => {
                    // The ledger's part is filled in below.
                    let ledger =
                        self.ledger.reserve(Claim::one(Kind::Data), nowhere(), Holder::Opening).unwrap().commit();
                    self.held.push(Held { wish: wish.clone(), model, ledger });
                    None
                }
                Err(refused) => Some((index, refused)),
            }
        });
        let wanted = wishes.iter().map(|wish| (wish.claim(), wish.place(), Holder::Opening)).collect();
        let granted = self.ledger.reserve_all(wanted);
        let granted = granted.map(|tokens| tokens.into_iter().map(|token| token.commit()).collect::<Vec<_>>());
        match (refused, granted) {
            (None, Ok(reservations)) => {
                for (held, reservation) in self.held[before..].iter_mut().zip(reservations) {
                    let stand_in = std::mem::replace(&mut held.ledger, reservation);
                    assert!(self.ledger.release(stand_in));
                }
            }
            (Some(said), Err((index, refused))) => {
                assert_eq!(said, (index, plain(refused)), "{wishes:?}");
                while self.held.len() > before {
                    self.release(self.held.len() - 1);
                }
            }
            answers => panic!("{wishes:?}: {answers:?}"),
        }
    }

    /// Splits something that is held by CPUs.
    fn split(&mut self, index: usize) {
        let Held { wish, model, ledger } = self.held.swap_remove(index);
        match self.ledger.split(ledger) {
            Err(ledger) => {
                assert!(wish.cpus.is_none(), "{wish:?} could be split");
                self.held.push(Held { wish, model, ledger });
            }
            Ok(parts) => {
                let cpus: Vec<_> = parts.iter().map(|(cpu, _)| cpu.0).collect();
                assert_eq!(wish.cpus.as_ref(), Some(&cpus));
                assert!(self.model.release(model).is_ok());
                for (CpuId(cpu), ledger) in parts {
                    let wish = Wish { cpus: Some(vec![cpu]), ..wish.clone() };
                    let model = self.model.reserve(wish.request()).unwrap();
                    self.held.push(Held { wish, model, ledger });
                }
            }
        }
    }

    /// What counts as taken, everywhere and for everybody, and who has taken it.
    fn compare(&self, tasks: u64) {
        for kind in [Kind::Execute, Kind::Data] {
            for (cpu, task) in (0..self.cpus).flat_map(|cpu| (0..tasks + 1).map(move |task| (cpu, task.checked_sub(1))))
            {
                let wish = Wish { kind, weight: 1, task, cpus: Some(vec![cpu]) };
                let (cpu, task) = (CpuId(cpu), task.map(TaskId));
                let said = self.model.in_use(&wish.request(), cpu);
                assert_eq!(said, self.ledger.in_use(kind, cpu, task), "{wish:?}");
                let full = Full { kind, task, cpu, in_use: said, total: 0 };
                let holders = self.ledger.holders(&full);
                let held: u32 = holders.iter().map(|held| u32::from(held.claim.weight.get())).sum();
                assert_eq!(said, held, "{wish:?}: {holders:?}");
            }
        }
        assert_eq!(self.ledger.len(), self.held.len());
    }
}

fn nowhere() -> BpTarget {
    BpTarget::Cpus(CpuMask::default())
}

const CPUS: u32 = 3;
const TASKS: u64 = 3;

#[derive(Clone, Debug)]
enum Op {
    Reserve(Wish),
    ReserveAll(Vec<Wish>),
    Release(usize),
    Modify(usize, Wish),
    Split(usize),
}

fn wishes() -> impl Strategy<Value = Wish> {
    let kinds = prop_oneof![Just(Kind::Execute), Just(Kind::Data)];
    let cpus = prop_oneof![
        1 => Just(None),
        1 => proptest::collection::btree_set(0..CPUS, 0..=3).prop_map(|cpus| Some(cpus.into_iter().collect())),
    ];
    let weight = prop_oneof![6 => Just(1_u8), 1 => Just(2), 1 => Just(3)];
    (kinds, weight, proptest::option::weighted(0.8, 0..TASKS), cpus).prop_map(|(kind, weight, task, cpus)| {
        // A wish without a task always names its CPUs.
        let cpus = if task.is_none() { Some(cpus.unwrap_or_default()) } else { cpus };
        Wish { kind, weight, task, cpus }
    })
}

fn ops() -> impl Strategy<Value = Op> {
    let held = 0_usize..30;
    prop_oneof![
        6 => wishes().prop_map(Op::Reserve),
        1 => proptest::collection::vec(wishes(), 0..4).prop_map(Op::ReserveAll),
        3 => held.clone().prop_map(Op::Release),
        3 => (held.clone(), wishes()).prop_map(|(held, wish)| Op::Modify(held, wish)),
        1 => held.prop_map(Op::Split),
    ]
}

fn registers() -> impl Strategy<Value = Registers> {
    prop_oneof![
        (0_u8..=5).prop_map(Registers::Shared),
        (0_u8..=6, 0_u8..=4).prop_map(|(execute, data)| Registers::Separate { execute, data }),
    ]
}

proptest! {
    #[test]
    fn the_ledger_says_what_the_rule_says(
        registers in registers(),
        ops in proptest::collection::vec(ops(), 1..60),
    ) {
        let mut beside = Beside::new(registers, CPUS);
        for op in ops {
            let held = beside.held.len();
            match op {
                Op::Reserve(wish) => {
                    beside.reserve(&wish);
                }
                Op::ReserveAll(wishes) => beside.reserve_all(&wishes),
                Op::Release(index) if held > 0 => {
                    beside.release(index % held);
                }
                Op::Modify(index, wish) if held > 0 => {
                    let index = index % held;
                    // A reservation stays with its owner.
                    let task = beside.held[index].wish.task;
                    let cpus = if task.is_none() { Some(wish.cpus.unwrap_or_default()) } else { wish.cpus };
                    beside.modify(index, &Wish { task, cpus, ..wish });
                }
                Op::Split(index) if held > 0 => beside.split(index % held),
                _ => {}
            }
            beside.compare(TASKS);
        }
        while !beside.held.is_empty() {
            beside.release(0);
        }
        beside.compare(TASKS);
        prop_assert!(beside.ledger.is_empty());
    }
}

proptest! {
    #[test]
    fn the_list_says_what_the_rule_says(
        registers in registers(),
        ops in proptest::collection::vec((wishes(), proptest::option::weighted(0.3, 0_usize..20)), 1..60),
    ) {
        let (mut model, list) = (model(registers, CPUS), List::<Plain>::new(registers, CPUS));
        let mut held = Vec::new();
        for (wish, released) in ops {
            if let Some(index) = released.filter(|_| !held.is_empty()) {
                let (said, number) = held.swap_remove(index % held.len());
                prop_assert!(model.release(said).is_ok() && list.release(number) && !list.release(number));
                continue;
            }
            match (model.reserve(wish.request()), list.reserve(wish.claim(), wish.place())) {
                (Ok(said), Ok(number)) => held.push((said, number)),
                (said, number) => prop_assert_eq!(said.err(), number.err().map(plain), "{:?}", wish),
            }
        }
    }
}

/// All sequences of so many steps on two CPUs with four registers each, for two tasks.
struct Exhaustive {
    beside: Beside,
    wishes: Vec<Wish>,
    steps: Cell<u64>,
}

impl Exhaustive {
    fn step(&mut self, depth: usize) {
        let first = self.beside.held.is_empty();
        for index in 0..self.wishes.len() {
            let wish = self.wishes[index].clone();
            // What one of the CPUs does first the other one need not.
            if first && wish.task.is_none() && wish.cpus == Some(vec![1]) {
                continue;
            }
            self.steps.set(self.steps.get() + 1);
            if self.beside.reserve(&wish) {
                if depth > 1 {
                    self.step(depth - 1);
                }
                self.beside.release(self.beside.held.len() - 1);
            }
        }
        for index in 0..self.beside.held.len() {
            self.steps.set(self.steps.get() + 1);
            let wish = self.beside.release(index);
            if depth > 1 {
                self.step(depth - 1);
            }
            assert!(self.beside.reserve(&wish), "what was held fits again");
            let last = self.beside.held.len() - 1;
            self.beside.held.swap(index, last);
        }
        for index in 0..self.beside.held.len() {
            let before = self.beside.held[index].wish.clone();
            let narrow = Wish { cpus: Some(vec![0]), ..before.clone() };
            let (wide, heavy) =
                (Wish { cpus: Some(vec![0, 1]), ..before.clone() }, Wish { weight: 3, ..before.clone() });
            for wish in [narrow, wide, heavy] {
                self.steps.set(self.steps.get() + 1);
                if self.beside.modify(index, &wish) {
                    if depth > 1 {
                        self.step(depth - 1);
                    }
                    assert!(self.beside.modify(index, &before), "what was held fits again");
                }
            }
        }
    }
}

#[test]
fn all_short_sequences_on_two_cpus_and_four_registers() {
    let both = || Some(vec![0, 1]);
    let of_tasks = [(Some(0), None), (Some(0), Some(vec![0])), (Some(0), Some(vec![1])), (Some(0), both())];
    let of_another = [(Some(1), None), (Some(1), Some(vec![0]))];
    let of_cpus = [(None, Some(vec![0])), (None, Some(vec![1])), (None, both())];
    let places = of_tasks.into_iter().chain(of_another).chain(of_cpus);
    // Heavy ones where they matter most: a task alone can fill a CPU, and CPUs can fill themselves.
    let wish = |(task, cpus): (Option<u64>, Option<Vec<u32>>)| {
        let weights: &[u8] = if cpus.as_ref().is_none_or(|cpus| cpus.len() == 2) { &[1, 3] } else { &[1] };
        let new = |&weight: &u8| Wish { kind: Kind::Data, weight, task, cpus: cpus.clone() };
        weights.iter().map(new).collect::<Vec<_>>()
    };
    let wishes = places.flat_map(wish).collect();
    let beside = Beside::new(Registers::Shared(4), 2);
    let mut all = Exhaustive { beside, wishes, steps: Cell::new(0) };
    all.step(5);
    println!("{} steps", all.steps.get());
    assert!(all.beside.ledger.is_empty());
}
