//! Who can say which breakpoints are granted.
//!
//! What it is: [`Party`], and two that know the rule: the model that counts everything ([`Model`]), and the engine's ledger
//! ([`Books`]). The third is the kernel.
//!
//! **Invariant:** parties know nothing of each other.

use super::step::{Counting, Watch, Whose};
use pmux_engine::breakpoint::{self as ledger, Claim, Locks, Place, Reservation};
use pmux_engine::{CpuId, TaskId};
use pmux_linux::host::StdLock;
use pmux_sim::oracle::breakpoint as oracle;
use std::collections::HashMap;

/// What comes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Granted,
    /// No register is left for it.
    Full,
    /// Nobody can watch that.
    Invalid,
}

/// One who carries steps out.
pub trait Party {
    fn name(&self) -> &'static str;
    /// A fresh thread takes the place of another.
    fn replace(&mut self, thread: usize);
    fn open(&mut self, number: u32, whose: &Whose, watch: Watch, counting: Counting) -> Answer;
    fn modify(&mut self, number: u32, watch: Watch) -> Answer;
    /// It changes nothing in who holds what.
    fn switch(&mut self, number: u32, counting: Counting) {
        let _ = (number, counting);
    }
    fn close(&mut self, number: u32);
}

/// The names of threads for those who only keep books: each thread that ever was has its own.
struct Names {
    current: Vec<TaskId>,
    next: u64,
}

impl Names {
    fn new(threads: usize) -> Self {
        let next = threads as u64;
        Self { current: (0..next).map(TaskId).collect(), next }
    }

    fn replace(&mut self, thread: usize) {
        self.current[thread] = TaskId(self.next);
        self.next += 1;
    }
}

/// The model, by counting.
pub struct Model {
    ledger: oracle::Ledger,
    names: Names,
    held: HashMap<u32, (oracle::Token, oracle::Request)>,
}

impl Model {
    pub fn new(registers: oracle::Registers, possible: &[CpuId], threads: usize) -> Self {
        let ledger = oracle::Ledger::new(possible.iter().copied(), registers);
        Self { ledger, names: Names::new(threads), held: HashMap::new() }
    }
}

impl Party for Model {
    fn name(&self) -> &'static str {
        "the model"
    }

    fn replace(&mut self, thread: usize) {
        self.names.replace(thread);
    }

    fn open(&mut self, number: u32, whose: &Whose, watch: Watch, _: Counting) -> Answer {
        let task = whose.thread().map(|thread| self.names.current[thread]);
        let cpus = whose.cpus().map_or(oracle::Where::Everywhere, |cpus| oracle::Where::Only(cpus.clone()));
        let request = oracle::Request { kind: watch.kind(), task, cpus, weight: 1 };
        match self.ledger.reserve(request.clone()) {
            Ok(token) if watch.is_valid() => {
                self.held.insert(number, (token, request));
                Answer::Granted
            }
            // The kernel takes the register, looks at what is wanted, and gives it back.
            Ok(token) => {
                self.ledger.release(token).unwrap();
                Answer::Invalid
            }
            Err(oracle::Refused::Full { .. }) => Answer::Full,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn modify(&mut self, number: u32, watch: Watch) -> Answer {
        if !watch.is_valid() {
            return Answer::Invalid;
        }
        let (token, request) = self.held.get_mut(&number).unwrap();
        let wanted = oracle::Request { kind: watch.kind(), ..request.clone() };
        match self.ledger.modify(*token, wanted.clone()) {
            Ok(()) => {
                *request = wanted;
                Answer::Granted
            }
            Err(oracle::Refused::Full { .. }) => Answer::Full,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn close(&mut self, number: u32) {
        let (token, _) = self.held.remove(&number).unwrap();
        self.ledger.release(token).unwrap();
    }
}

/// The locks of the standard library.
pub struct StdLocks;

impl Locks for StdLocks {
    type Cell<T: Send> = StdLock<T>;
}

/// The engine's ledger.
pub struct Books {
    ledger: ledger::Ledger<StdLocks>,
    names: Names,
    held: HashMap<u32, (Reservation, Place)>,
}

impl Books {
    pub fn new(registers: oracle::Registers, possible: &[CpuId], threads: usize) -> Self {
        let small = |count: u32| u8::try_from(count).unwrap();
        let registers = match registers {
            oracle::Registers::Shared(count) => ledger::Registers::Shared(small(count)),
            oracle::Registers::Separate { execute, data } => {
                ledger::Registers::Separate { execute: small(execute), data: small(data) }
            }
        };
        let cpus = possible.iter().map(|cpu| cpu.0 + 1).max().unwrap();
        Self { ledger: ledger::Ledger::new(registers, cpus), names: Names::new(threads), held: HashMap::new() }
    }

    fn claim(watch: Watch) -> Claim {
        Claim::one(match watch.kind() {
            oracle::Kind::Execute => ledger::Kind::Execute,
            oracle::Kind::Data => ledger::Kind::Data,
        })
    }
}

impl Party for Books {
    fn name(&self) -> &'static str {
        "the engine's ledger"
    }

    fn replace(&mut self, thread: usize) {
        self.names.replace(thread);
    }

    fn open(&mut self, number: u32, whose: &Whose, watch: Watch, _: Counting) -> Answer {
        let task = |thread: usize| self.names.current[thread];
        let place = match whose {
            Whose::Thread(thread) => Place::TaskEverywhere(task(*thread)),
            Whose::ThreadOn(thread, cpus) => Place::TaskOn(task(*thread), cpus.iter().copied().collect()),
            Whose::Cpus(cpus) => Place::Cpus(cpus.iter().copied().collect()),
        };
        match self.ledger.reserve(Self::claim(watch), place.clone(), ledger::Holder::Opening) {
            Ok(token) if watch.is_valid() => {
                self.held.insert(number, (token.commit(), place));
                Answer::Granted
            }
            // The token is dropped, and with it what it stands for.
            Ok(_) => Answer::Invalid,
            Err(ledger::Refused::Full(_)) => Answer::Full,
            Err(error) => panic!("{error}"),
        }
    }

    fn modify(&mut self, number: u32, watch: Watch) -> Answer {
        if !watch.is_valid() {
            return Answer::Invalid;
        }
        let (reservation, place) = &self.held[&number];
        match self.ledger.modify(reservation, Self::claim(watch), place.clone()) {
            Ok(()) => Answer::Granted,
            Err(ledger::Refused::Full(_)) => Answer::Full,
            Err(error) => panic!("{error}"),
        }
    }

    fn close(&mut self, number: u32) {
        let (reservation, _) = self.held.remove(&number).unwrap();
        assert!(self.ledger.release(reservation), "breakpoint {number} was held");
    }
}
