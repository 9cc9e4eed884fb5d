//! Who can say which breakpoints are granted.
//!
//! What it is: [`Party`], and two that know the rule: the model that counts everything ([`Model`]), and the engine's ledger
//! ([`Books`]). The third is the kernel.
//!
//! **Invariant:** parties know nothing of each other.

use super::step::{Counting, Heirs, Kin, Watch, Whose};
use pmux_engine::breakpoint::{self as ledger, Claim, Locks, Place, Reservation};
use pmux_engine::{CpuId, TaskId};
use pmux_linux::host::SleepLock;
use pmux_sim::oracle::breakpoint as oracle;
use std::collections::BTreeMap;

/// What comes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Granted,
    /// No register is left for it.
    Full,
    /// Nobody can watch that.
    Invalid,
    /// Somebody's account differs from the kernel's, and it can't be said why.
    Unexplained,
}

/// One who carries steps out.
pub trait Party {
    fn name(&self) -> &'static str;
    /// A fresh thread takes the place of another.
    fn replace(&mut self, thread: usize);
    /// The task at a place ends, and a child of another one takes its place. One that was refused leaves an idle thread there.
    fn fork(&mut self, parent: usize, child: usize, kin: Kin) -> Answer;
    fn open(&mut self, number: u32, whose: &Whose, watch: Watch, counting: Counting, heirs: Heirs) -> Answer;
    fn modify(&mut self, number: u32, watch: Watch) -> Answer;
    /// It changes nothing in who holds what.
    fn switch(&mut self, number: u32, counting: Counting) {
        let _ = (number, counting);
    }
    fn close(&mut self, number: u32);
}

/// The names of tasks for those who only keep books: each task that ever was has its own.
struct Names {
    current: Vec<TaskId>,
    next: u64,
}

impl Names {
    fn new(threads: usize) -> Self {
        let next = threads as u64;
        Self { current: (0..next).map(TaskId).collect(), next }
    }

    /// A fresh one at a place; answers the one before.
    fn replace(&mut self, thread: usize) -> TaskId {
        self.next += 1;
        std::mem::replace(&mut self.current[thread], TaskId(self.next - 1))
    }
}

/// A breakpoint, with what the children of its task hold by it.
struct Family<T, P> {
    root: T,
    place: P,
    heirs: Heirs,
    /// The task that it was opened on.
    of: Option<TaskId>,
    /// Children that live, each by what it holds.
    children: Vec<(TaskId, T, P)>,
}

impl<T, P: Clone> Family<T, P> {
    /// Whether a task has it, and its children will.
    fn is_passed_on_by(&self, task: TaskId) -> bool {
        let is_child = || self.children.iter().any(|(child, ..)| *child == task);
        self.heirs == Heirs::Children && (self.of == Some(task) || is_child())
    }

    /// A task is no more: gives back what it held as a child.
    fn bury(&mut self, task: TaskId) -> Option<T> {
        let at = self.children.iter().position(|(child, ..)| *child == task)?;
        Some(self.children.swap_remove(at).1)
    }
}

/// The model, by counting.
pub struct Model {
    ledger: oracle::Ledger,
    names: Names,
    held: BTreeMap<u32, Family<oracle::Token, oracle::Request>>,
}

impl Model {
    pub fn new(registers: oracle::Registers, possible: &[CpuId], threads: usize) -> Self {
        let ledger = oracle::Ledger::new(possible.iter().copied(), registers);
        Self { ledger, names: Names::new(threads), held: BTreeMap::new() }
    }
}

impl Party for Model {
    fn name(&self) -> &'static str {
        "the model"
    }

    fn replace(&mut self, thread: usize) {
        let gone = self.names.replace(thread);
        for family in self.held.values_mut() {
            if let Some(token) = family.bury(gone) {
                self.ledger.release(token).unwrap();
            }
        }
    }

    fn fork(&mut self, parent: usize, child: usize, _: Kin) -> Answer {
        self.replace(child);
        let (parent, heir) = (self.names.current[parent], self.names.current[child]);
        for family in self.held.values_mut().filter(|family| family.is_passed_on_by(parent)) {
            let request = oracle::Request { task: Some(heir), ..family.place.clone() };
            let Ok(token) = self.ledger.reserve(request.clone()) else {
                // It is not born, and an idle one is there in its place.
                self.replace(child);
                return Answer::Full;
            };
            family.children.push((heir, token, request));
        }
        Answer::Granted
    }

    fn open(&mut self, number: u32, whose: &Whose, watch: Watch, _: Counting, heirs: Heirs) -> Answer {
        let of = whose.thread().map(|thread| self.names.current[thread]);
        let cpus = whose.cpus().map_or(oracle::Where::Everywhere, |cpus| oracle::Where::Only(cpus.clone()));
        let place = oracle::Request { kind: watch.kind(), task: of, cpus, weight: 1 };
        match self.ledger.reserve(place.clone()) {
            Ok(root) if watch.is_valid() => {
                self.held.insert(number, Family { root, place, heirs, of, children: Vec::new() });
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

    /// For all of the family or for nobody.
    fn modify(&mut self, number: u32, watch: Watch) -> Answer {
        if !watch.is_valid() {
            return Answer::Invalid;
        }
        let family = self.held.get_mut(&number).unwrap();
        let all =
            || std::iter::once((family.root, &family.place)).chain(family.children.iter().map(|(_, t, p)| (*t, p)));
        let wanted = |place: &oracle::Request| oracle::Request { kind: watch.kind(), ..place.clone() };
        for (count, (token, place)) in all().enumerate() {
            match self.ledger.modify(token, wanted(place)) {
                Ok(()) => {}
                Err(oracle::Refused::Full { .. }) => {
                    all().take(count).for_each(|(token, place)| self.ledger.modify(token, place.clone()).unwrap());
                    return Answer::Full;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        family.place.kind = watch.kind();
        family.children.iter_mut().for_each(|(_, _, place)| place.kind = watch.kind());
        Answer::Granted
    }

    fn close(&mut self, number: u32) {
        let family = self.held.remove(&number).unwrap();
        let children = family.children.into_iter().map(|(_, token, _)| token);
        children.chain([family.root]).for_each(|token| drop(self.ledger.release(token).unwrap()));
    }
}

/// The locks of the standard library.
pub struct SleepLocks;

impl Locks for SleepLocks {
    type Cell<T: Send> = SleepLock<T>;
    type Word = std::sync::atomic::AtomicU32;
}

/// The engine's ledger, told of every child.
pub struct Books {
    ledger: ledger::Ledger<SleepLocks>,
    names: Names,
    held: BTreeMap<u32, Family<Reservation, Place>>,
    claims: BTreeMap<u32, Claim>,
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
        let (names, held, claims) = (Names::new(threads), BTreeMap::new(), BTreeMap::new());
        Self { ledger: ledger::Ledger::new(registers, cpus), names, held, claims }
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
        let gone = self.names.replace(thread);
        for family in self.held.values_mut() {
            if let Some(reservation) = family.bury(gone) {
                assert!(self.ledger.release(reservation), "a child held it");
            }
        }
    }

    fn fork(&mut self, parent: usize, child: usize, _: Kin) -> Answer {
        self.replace(child);
        let (parent, child) = (self.names.current[parent], self.names.current[child]);
        let of_child = |place: &Place| match place {
            Place::TaskOn(_, cpus) => Place::TaskOn(child, cpus.clone()),
            _ => Place::TaskEverywhere(child),
        };
        let inherited = self.held.iter().filter(|(_, family)| family.is_passed_on_by(parent));
        let numbers: Vec<u32> = inherited.map(|(number, _)| *number).collect();
        let wanted = |number: &u32| (self.claims[number], of_child(&self.held[number].place), ledger::Holder::Opening);
        // As the engine asks for a child: for all that it inherits, as one.
        let tokens = match self.ledger.reserve_all(numbers.iter().map(wanted).collect()) {
            Ok(tokens) => tokens.into_iter().map(|token| token.commit()).collect::<Vec<_>>(),
            Err((_, ledger::Refused::Full(_))) => return Answer::Full,
            Err((_, error)) => panic!("{error}"),
        };
        for (number, reservation) in numbers.iter().zip(tokens) {
            let family = self.held.get_mut(number).unwrap();
            let place = of_child(&family.place);
            family.children.push((child, reservation, place));
        }
        Answer::Granted
    }

    fn open(&mut self, number: u32, whose: &Whose, watch: Watch, _: Counting, heirs: Heirs) -> Answer {
        let task = |thread: usize| self.names.current[thread];
        let place = match whose {
            Whose::Thread(thread) => Place::TaskEverywhere(task(*thread)),
            Whose::ThreadOn(thread, cpus) => Place::TaskOn(task(*thread), cpus.iter().copied().collect()),
            Whose::Cpus(cpus) => Place::Cpus(cpus.iter().copied().collect()),
        };
        let claim = Self::claim(watch);
        match self.ledger.reserve(claim, place.clone(), ledger::Holder::Opening) {
            Ok(token) if watch.is_valid() => {
                let (root, of) = (token.commit(), whose.thread().map(task));
                self.held.insert(number, Family { root, place, heirs, of, children: Vec::new() });
                self.claims.insert(number, claim);
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
        let (family, claim) = (&self.held[&number], Self::claim(watch));
        let children = family.children.iter().map(|(_, reservation, place)| (reservation, place));
        let all: Vec<_> = std::iter::once((&family.root, &family.place)).chain(children).collect();
        for (count, (reservation, place)) in all.iter().enumerate() {
            match self.ledger.modify(reservation, claim, (*place).clone()) {
                Ok(()) => {}
                Err(ledger::Refused::Full(_)) => {
                    for (reservation, place) in &all[..count] {
                        self.ledger.modify(reservation, self.claims[&number], (*place).clone()).unwrap();
                    }
                    return Answer::Full;
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.claims.insert(number, claim);
        Answer::Granted
    }

    fn close(&mut self, number: u32) {
        let family = self.held.remove(&number).unwrap();
        let children = family.children.into_iter().map(|(_, reservation, _)| reservation);
        for reservation in children.chain([family.root]) {
            assert!(self.ledger.release(reservation), "breakpoint {number} was held");
        }
    }
}
