//! The ledger of debug registers under threads that run in every order.
//!
//! What it is: a few threads ask, change and give back, on locks at which a scheduler decides who comes next. What they were
//! told must have an order, each answer between its question and the next step of its thread, in which the rule by counting gives
//! the same answers: nothing is granted twice, nothing is refused that was free all the time, and no thread sees half of
//! a request.
//!
//! **Invariant:** a failure prints the scheduler's seed; `shuttle::replay` follows it.

use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::hw_breakpoint::{BpTarget, Claim, Holder, Kind, Ledger, LedgerWord, Locks, Registers, Reservation};
use pmux_engine::{CpuId, LockCell, TaskId};
use pmux_sim::oracle::breakpoint as oracle;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::AtomicU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

struct Scheduled;

struct Lock<T>(Mutex<T>);

impl<T: Send> LockCell<T> for Lock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

struct ScheduledWord(AtomicU32);

impl LedgerWord for ScheduledWord {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    fn load(&self) -> u32 {
        self.0.load(SeqCst)
    }
    fn exchange(&self, seen: u32, new: u32) -> Result<(), u32> {
        self.0.compare_exchange(seen, new, SeqCst, SeqCst).map(drop)
    }
}

impl Locks for Scheduled {
    type Cell<T: Send> = Lock<T>;
    type Word = ScheduledWord;
}

const CPUS: u32 = 3;
/// Few, so that a scheduler meets the moments between two of them.
const BOOKS: u32 = 4;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Reserve(BpTarget, u8),
    /// All of it or nothing.
    ReserveAll(Vec<(BpTarget, u8)>),
    Release,
    /// So does what the thread was granted last become this.
    Modify(BpTarget, u8),
    /// The thread asks, and what it is granted it gives back in a step of its own.
    Try(BpTarget, u8),
    /// The second half of that.
    GiveBack,
}

fn anywhere(task: u64) -> BpTarget {
    BpTarget::TaskEverywhere(TaskId(task))
}

fn on(task: u64, cpus: &[u32]) -> BpTarget {
    BpTarget::TaskOn(TaskId(task), mask(cpus))
}

fn cpus(cpus: &[u32]) -> BpTarget {
    BpTarget::Cpus(mask(cpus))
}

fn mask(cpus: &[u32]) -> CpuMask {
    cpus.iter().map(|&cpu| CpuId(cpu)).collect()
}

fn claim(weight: u8) -> Claim {
    Claim::of(Kind::Data, weight).unwrap()
}

fn request(place: &BpTarget, weight: u8) -> oracle::Request {
    let cpus = place.cpus().map_or(oracle::Where::Everywhere, |cpus| oracle::Where::Only(cpus.iter().collect()));
    oracle::Request { kind: Kind::Data, task: place.task(), cpus, weight: u32::from(weight) }
}

/// A step that was taken: between which moments, and whether it was granted. What has nothing to give back counts as not
/// granted.
#[derive(Clone, Debug)]
struct Done {
    step: Step,
    began: usize,
    ended: usize,
    granted: bool,
}

/// Takes the steps one after another.
fn follow(ledger: &Ledger<Scheduled>, clock: &AtomicUsize, steps: Vec<Step>) -> (Vec<Done>, Vec<Reservation>) {
    let mut held: Vec<Reservation> = Vec::new();
    let mut done = Vec::new();
    for step in steps {
        let began = clock.fetch_add(1, SeqCst);
        let ask = |place: &BpTarget, weight| ledger.reserve(claim(weight), place.clone(), Holder::Opening);
        let granted = match &step {
            Step::Reserve(place, weight) => ask(place, *weight).map(|token| held.push(token.commit())).is_ok(),
            Step::ReserveAll(wanted) => {
                let wanted = wanted.iter().map(|(place, weight)| (claim(*weight), place.clone(), Holder::Opening));
                let granted = ledger.reserve_all(wanted.collect());
                granted.map(|tokens| held.extend(tokens.into_iter().map(|token| token.commit()))).is_ok()
            }
            Step::Release => held.pop().is_some_and(|reservation| ledger.release(reservation)),
            Step::Modify(place, weight) => {
                held.last().is_some_and(|held| ledger.modify(held, claim(*weight), place.clone()).is_ok())
            }
            Step::Try(place, weight) => {
                let token = ask(place, *weight).ok();
                let granted = token.is_some();
                done.push(Done { step: step.clone(), began, ended: clock.fetch_add(1, SeqCst), granted });
                if granted {
                    let began = clock.fetch_add(1, SeqCst);
                    drop(token);
                    done.push(Done { step: Step::GiveBack, began, ended: clock.fetch_add(1, SeqCst), granted });
                }
                continue;
            }
            Step::GiveBack => false,
        };
        done.push(Done { step, began, ended: clock.fetch_add(1, SeqCst), granted });
    }
    (done, held)
}

/// The rule by counting, with what each thread holds.
#[derive(Clone)]
struct Model {
    ledger: oracle::Ledger,
    held: Vec<Vec<oracle::ReservationId>>,
    tried: Vec<Option<oracle::ReservationId>>,
}

impl Model {
    /// Takes a step, and says whether it was granted.
    fn take(&mut self, thread: usize, step: &Step) -> bool {
        let Self { ledger, held, tried } = self;
        let (held, tried) = (&mut held[thread], &mut tried[thread]);
        match step {
            Step::Reserve(place, weight) => {
                ledger.reserve(request(place, *weight)).map(|token| held.push(token)).is_ok()
            }
            Step::ReserveAll(wanted) => {
                let before = (ledger.clone(), held.clone());
                let all = wanted.iter().all(|(place, weight)| {
                    ledger.reserve(request(place, *weight)).map(|token| held.push(token)).is_ok()
                });
                if !all {
                    (*ledger, *held) = before;
                }
                all
            }
            Step::Release => held.pop().is_some_and(|token| ledger.release(token).is_ok()),
            Step::Modify(place, weight) => {
                held.last().is_some_and(|&token| ledger.modify(token, request(place, *weight)).is_ok())
            }
            Step::Try(place, weight) => {
                ledger.reserve(request(place, *weight)).map(|token| *tried = Some(token)).is_ok()
            }
            Step::GiveBack => tried.take().is_some_and(|token| ledger.release(token).is_ok()),
        }
    }
}

/// Whether the steps of all threads have an order in which the rule gives the answers that were given.
fn has_order(model: &Model, threads: &[Vec<Done>], next: &mut [usize]) -> bool {
    let open: Vec<_> = threads.iter().zip(&*next).map(|(done, &next)| done.get(next)).collect();
    if open.iter().all(Option::is_none) {
        return true;
    }
    // A step that began after another one had ended comes after it.
    let first_end = open.iter().flatten().map(|done| done.ended).min().unwrap_or(usize::MAX);
    (0..threads.len()).any(|thread| {
        let Some(done) = open[thread].filter(|done| done.began < first_end) else { return false };
        let mut model = model.clone();
        if model.take(thread, &done.step) != done.granted {
            return false;
        }
        next[thread] += 1;
        let found = has_order(&model, threads, next);
        next[thread] -= 1;
        found
    })
}

/// Lets threads take these steps at once, in many orders.
fn race(registers: u8, threads: &[&[Step]]) {
    let threads: Vec<Vec<Step>> = threads.iter().map(|steps| steps.to_vec()).collect();
    let case = move || {
        let ledger = Arc::new(Ledger::<Scheduled>::with_books(Registers::Shared(registers), CPUS, BOOKS));
        let clock = Arc::new(AtomicUsize::new(0));
        let start = |steps: &Vec<Step>| {
            let (ledger, clock, steps) = (Arc::clone(&ledger), Arc::clone(&clock), steps.clone());
            shuttle::thread::spawn(move || follow(&ledger, &clock, steps))
        };
        let started: Vec<_> = threads.iter().map(start).collect();
        let (done, held): (Vec<_>, Vec<_>) = started.into_iter().map(|thread| thread.join().unwrap()).unzip();
        let rule = oracle::Ledger::new((0..CPUS).map(CpuId), oracle::Registers::Shared(u32::from(registers)));
        let count = threads.len();
        let model = Model { ledger: rule, held: vec![Vec::new(); count], tried: vec![None; count] };
        assert!(has_order(&model, &done, &mut vec![0; threads.len()]), "these answers have no order: {done:#?}");
        assert!(held.into_iter().flatten().all(|reservation| ledger.release(reservation)) && ledger.is_empty());
        // Whatever has been raised is down again.
        for task in 0..8 {
            let whole = ledger.reserve(claim(registers), anywhere(task), Holder::Opening);
            assert!(whole.is_ok(), "{:?}", whole.err());
        }
    };
    let case = Arc::new(case);
    let (random, few) = (Arc::clone(&case), case);
    shuttle::check_random(move || random(), 400);
    // Few changes of thread, at any place: what chance alone seldom finds.
    shuttle::check_pct(move || few(), 400, 3);
}

#[test]
fn tasks_that_ask_while_a_cpu_asks() {
    race(
        2,
        &[
            &[Step::Reserve(anywhere(1), 1), Step::Reserve(anywhere(1), 1), Step::Release],
            &[Step::Reserve(anywhere(2), 2), Step::Release, Step::Try(anywhere(2), 1)],
            &[Step::Reserve(cpus(&[0, 1, 2]), 1), Step::Release, Step::Try(cpus(&[1]), 2)],
        ],
    );
}

/// A CPU asks when a task has needed more than any does now: tasks are looked at one by one, and meanwhile another one asks.
#[test]
fn a_task_that_asks_while_tasks_are_looked_at() {
    for _ in 0..4 {
        race(
            2,
            &[
                &[Step::Reserve(anywhere(1), 2), Step::Release, Step::Reserve(cpus(&[0, 1, 2]), 1)],
                &[Step::Reserve(anywhere(2), 2)],
            ],
        );
    }
}

#[test]
fn a_request_that_is_refused_keeps_no_other_out() {
    race(
        2,
        &[
            &[Step::Reserve(anywhere(1), 2), Step::Try(anywhere(2), 2), Step::Try(anywhere(3), 2)],
            &[Step::Try(cpus(&[0]), 1), Step::Try(cpus(&[1, 2]), 1)],
            &[Step::Try(anywhere(4), 2), Step::Try(anywhere(5), 2)],
        ],
    );
}

#[test]
fn a_task_that_comes_to_hold_something_for_one_cpu() {
    race(
        3,
        &[
            &[
                Step::Reserve(anywhere(1), 1),
                Step::Reserve(on(1, &[0]), 1),
                Step::Release,
                Step::Reserve(anywhere(1), 2),
            ],
            &[Step::Reserve(anywhere(1), 1), Step::Release, Step::Reserve(on(1, &[0, 1]), 1)],
            &[Step::Try(cpus(&[0]), 1), Step::Reserve(cpus(&[1]), 1), Step::Try(cpus(&[2]), 1)],
        ],
    );
}

#[test]
fn what_is_held_can_be_changed_and_is_never_lost() {
    race(
        2,
        &[
            &[Step::Reserve(cpus(&[0]), 1), Step::Modify(cpus(&[1, 2]), 1), Step::Modify(cpus(&[1]), 2)],
            &[Step::Reserve(anywhere(1), 1), Step::Modify(anywhere(1), 2), Step::Modify(on(1, &[0]), 1)],
            &[Step::Reserve(anywhere(1), 1), Step::Release, Step::Try(anywhere(2), 2)],
        ],
    );
}

#[test]
fn several_that_are_granted_as_one() {
    race(
        2,
        &[
            &[Step::ReserveAll(vec![(cpus(&[0, 1]), 1), (anywhere(1), 1), (on(2, &[2]), 2)]), Step::Release],
            &[Step::Try(anywhere(1), 2), Step::Reserve(anywhere(2), 1)],
            &[Step::ReserveAll(vec![(anywhere(2), 1), (cpus(&[2]), 1)]), Step::Release, Step::Try(anywhere(2), 2)],
        ],
    );
}
