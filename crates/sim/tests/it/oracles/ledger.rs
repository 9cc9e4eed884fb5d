//! The engine's ledger of debug registers beside the rule by counting, and the list that it is measured against.

use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::hw_breakpoint::baseline::List;
use pmux_engine::hw_breakpoint::{
    BpTarget, Claim, Full, Holder, Kind, Ledger, Locks, OutsideId, Registers, Reservation, ReserveError,
};
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
struct ClaimRequest {
    kind: Kind,
    weight: u8,
    task: Option<u64>,
    /// Wherever the task is, where there are none.
    cpus: Option<Vec<u32>>,
}

impl ClaimRequest {
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

    fn oracle_request(&self) -> oracle::Request {
        oracle::Request {
            kind: self.kind,
            task: self.task.map(TaskId),
            cpus: match (self.task, &self.cpus) {
                (Some(_), None) => oracle::Where::Everywhere,
                (_, cpus) => oracle::Where::Only(cpus.iter().flatten().map(|&cpu| CpuId(cpu)).collect()),
            },
            weight: u32::from(self.weight),
        }
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
fn plain(refused: ReserveError) -> oracle::RequestError {
    match refused {
        ReserveError::Full(Full { cpu, in_use, total, .. }) => {
            oracle::RequestError::Full { cpu, in_use, total: u32::from(total) }
        }
        ReserveError::Stale => oracle::RequestError::Stale,
        other => panic!("{other}"),
    }
}

struct Held {
    request: ClaimRequest,
    model: oracle::ReservationId,
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
    fn reserve(&mut self, request: &ClaimRequest) -> bool {
        let said = self.model.reserve(request.oracle_request());
        let holder = self.holder();
        let ledger = self.ledger.reserve(request.claim(), request.place(), holder).map(|token| token.commit());
        match (said, ledger) {
            (Ok(model), Ok(ledger)) => {
                self.held.push(Held { request: request.clone(), model, ledger });
                true
            }
            (Err(model), Err(ledger)) => {
                assert_eq!(model, plain(ledger), "{request:?}");
                false
            }
            answers => panic!("{request:?}: {answers:?}"),
        }
    }

    fn release(&mut self, index: usize) -> ClaimRequest {
        let Held { request, model, ledger } = self.held.swap_remove(index);
        assert!(self.model.release(model).is_ok() && self.ledger.release(ledger), "{request:?}");
        request
    }

    /// Lets something that is held stand for `request`; whether it does now.
    fn modify(&mut self, index: usize, request: &ClaimRequest) -> bool {
        let held = &mut self.held[index];
        let said = self.model.modify(held.model, request.oracle_request());
        let ledger = self.ledger.modify(&held.ledger, request.claim(), request.place());
        assert_eq!(said, ledger.map_err(plain), "{:?} is to be {request:?}", held.request);
        if said.is_ok() {
            held.request = request.clone();
        }
        said.is_ok()
    }

    /// Asks for several as one.
    fn reserve_all(&mut self, requests: &[ClaimRequest]) {
        let mut models = Vec::new();
        let refused = requests.iter().enumerate().find_map(|(index, request)| {
            match self.model.reserve(request.oracle_request()) {
                Ok(model) => {
                    models.push(model);
                    None
                }
                Err(refused) => Some((index, refused)),
            }
        });
        let wanted = requests.iter().map(|request| (request.claim(), request.place(), Holder::Opening)).collect();
        let granted = self.ledger.reserve_all(wanted);
        let granted = granted.map(|tokens| tokens.into_iter().map(|token| token.commit()).collect::<Vec<_>>());
        match (refused, granted) {
            (None, Ok(reservations)) => {
                let held = requests.iter().cloned().zip(models).zip(reservations);
                self.held.extend(held.map(|((request, model), ledger)| Held { request, model, ledger }));
            }
            (Some(said), Err((index, refused))) => {
                assert_eq!(said, (index, plain(refused)), "{requests:?}");
                models.into_iter().for_each(|model| assert!(self.model.release(model).is_ok(), "{requests:?}"));
            }
            answers => panic!("{requests:?}: {answers:?}"),
        }
    }

    /// Splits something that is held by CPUs.
    fn split(&mut self, index: usize) {
        let Held { request, model, ledger } = self.held.swap_remove(index);
        match self.ledger.split(ledger) {
            Err(ledger) => {
                assert!(request.cpus.is_none(), "{request:?} could be split");
                self.held.push(Held { request, model, ledger });
            }
            Ok(parts) => {
                let cpus: Vec<_> = parts.iter().map(|(cpu, _)| cpu.0).collect();
                assert_eq!(request.cpus.as_ref(), Some(&cpus));
                assert!(self.model.release(model).is_ok());
                for (CpuId(cpu), ledger) in parts {
                    let request = ClaimRequest { cpus: Some(vec![cpu]), ..request.clone() };
                    let model = self.model.reserve(request.oracle_request()).unwrap();
                    self.held.push(Held { request, model, ledger });
                }
            }
        }
    }

    /// What counts as taken, everywhere and for everybody, and who has taken it.
    fn compare(&self, tasks: u64) {
        for kind in [Kind::Execute, Kind::Data] {
            for (cpu, task) in (0..self.cpus).flat_map(|cpu| (0..tasks + 1).map(move |task| (cpu, task.checked_sub(1))))
            {
                let request = ClaimRequest { kind, weight: 1, task, cpus: Some(vec![cpu]) };
                let (cpu, task) = (CpuId(cpu), task.map(TaskId));
                let said = self.model.in_use(&request.oracle_request(), cpu);
                assert_eq!(said, self.ledger.in_use(kind, cpu, task), "{request:?}");
                let full = Full { kind, task, cpu, in_use: said, total: 0 };
                let holders = self.ledger.holders(&full);
                let held: u32 = holders.iter().map(|held| u32::from(held.claim.weight.get())).sum();
                assert_eq!(said, held, "{request:?}: {holders:?}");
            }
        }
        assert_eq!(self.ledger.len(), self.held.len());
    }
}

const CPUS: u32 = 3;
const TASKS: u64 = 3;

#[derive(Clone, Debug)]
enum Op {
    Reserve(ClaimRequest),
    ReserveAll(Vec<ClaimRequest>),
    Release(usize),
    Modify(usize, ClaimRequest),
    Split(usize),
}

fn requests() -> impl Strategy<Value = ClaimRequest> {
    let kinds = prop_oneof![Just(Kind::Execute), Just(Kind::Data)];
    let cpus = prop_oneof![
        1 => Just(None),
        1 => proptest::collection::btree_set(0..CPUS, 0..=3).prop_map(|cpus| Some(cpus.into_iter().collect())),
    ];
    let weight = prop_oneof![6 => Just(1_u8), 1 => Just(2), 1 => Just(3)];
    (kinds, weight, proptest::option::weighted(0.8, 0..TASKS), cpus).prop_map(|(kind, weight, task, cpus)| {
        // A wish without a task always names its CPUs.
        let cpus = if task.is_none() { Some(cpus.unwrap_or_default()) } else { cpus };
        ClaimRequest { kind, weight, task, cpus }
    })
}

fn ops() -> impl Strategy<Value = Op> {
    let held = 0_usize..30;
    prop_oneof![
        6 => requests().prop_map(Op::Reserve),
        1 => proptest::collection::vec(requests(), 0..4).prop_map(Op::ReserveAll),
        3 => held.clone().prop_map(Op::Release),
        3 => (held.clone(), requests()).prop_map(|(held, request)| Op::Modify(held, request)),
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
                Op::Reserve(request) => {
                    beside.reserve(&request);
                }
                Op::ReserveAll(requests) => beside.reserve_all(&requests),
                Op::Release(index) if held > 0 => {
                    beside.release(index % held);
                }
                Op::Modify(index, request) if held > 0 => {
                    let index = index % held;
                    // A reservation stays with its owner.
                    let task = beside.held[index].request.task;
                    let cpus = if task.is_none() { Some(request.cpus.unwrap_or_default()) } else { request.cpus };
                    beside.modify(index, &ClaimRequest { task, cpus, ..request });
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
        ops in proptest::collection::vec((requests(), proptest::option::weighted(0.3, 0_usize..20)), 1..60),
    ) {
        let (mut model, list) = (model(registers, CPUS), List::<Plain>::new(registers, CPUS));
        let mut held = Vec::new();
        for (request, released) in ops {
            if let Some(index) = released.filter(|_| !held.is_empty()) {
                let (said, number) = held.swap_remove(index % held.len());
                prop_assert!(model.release(said).is_ok() && list.release(number) && !list.release(number));
                continue;
            }
            match (model.reserve(request.oracle_request()), list.reserve(request.claim(), request.place())) {
                (Ok(said), Ok(number)) => held.push((said, number)),
                (said, number) => prop_assert_eq!(said.err(), number.err().map(plain), "{:?}", request),
            }
        }
    }
}

/// All sequences of so many steps on two CPUs with four registers each, for two tasks.
struct Exhaustive {
    beside: Beside,
    requests: Vec<ClaimRequest>,
    steps: Cell<u64>,
}

impl Exhaustive {
    fn step(&mut self, depth: usize) {
        let first = self.beside.held.is_empty();
        for index in 0..self.requests.len() {
            let request = self.requests[index].clone();
            // What one of the CPUs does first the other one need not.
            if first && request.task.is_none() && request.cpus == Some(vec![1]) {
                continue;
            }
            self.steps.set(self.steps.get() + 1);
            if self.beside.reserve(&request) {
                if depth > 1 {
                    self.step(depth - 1);
                }
                self.beside.release(self.beside.held.len() - 1);
            }
        }
        for index in 0..self.beside.held.len() {
            self.steps.set(self.steps.get() + 1);
            let request = self.beside.release(index);
            if depth > 1 {
                self.step(depth - 1);
            }
            assert!(self.beside.reserve(&request), "what was held fits again");
            let last = self.beside.held.len() - 1;
            self.beside.held.swap(index, last);
        }
        for index in 0..self.beside.held.len() {
            let before = self.beside.held[index].request.clone();
            let narrow = ClaimRequest { cpus: Some(vec![0]), ..before.clone() };
            let (wide, heavy) = (
                ClaimRequest { cpus: Some(vec![0, 1]), ..before.clone() },
                ClaimRequest { weight: 3, ..before.clone() },
            );
            for request in [narrow, wide, heavy] {
                self.steps.set(self.steps.get() + 1);
                if self.beside.modify(index, &request) {
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
    let request = |(task, cpus): (Option<u64>, Option<Vec<u32>>)| {
        let weights: &[u8] = if cpus.as_ref().is_none_or(|cpus| cpus.len() == 2) { &[1, 3] } else { &[1] };
        let new = |&weight: &u8| ClaimRequest { kind: Kind::Data, weight, task, cpus: cpus.clone() };
        weights.iter().map(new).collect::<Vec<_>>()
    };
    let requests = places.flat_map(request).collect();
    let beside = Beside::new(Registers::Shared(4), 2);
    let mut all = Exhaustive { beside, requests, steps: Cell::new(0) };
    all.step(5);
    println!("{} steps", all.steps.get());
    assert!(all.beside.ledger.is_empty());
}
