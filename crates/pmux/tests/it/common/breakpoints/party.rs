//! Who can say which breakpoints are granted.
//!
//! What it is: [`Party`], and the one that knows the rule, the model that counts everything ([`Model`]). The others are the kernel and
//! the engine on it.
//!
//! **Invariant:** parties know nothing of each other.

use super::step::{ChildKind, Counting, Heirs, Watch, Whose};
use pmux_engine::{CpuId, TaskId};
use pmux_sim::oracle::breakpoint as oracle;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// What comes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Granted,
    /// No register is left for it.
    Full,
    /// No breakpoint can watch that.
    Invalid,
    /// The party's account differs from the kernel's, and it can't be said why.
    Unexplained,
}

/// One who carries steps out.
pub trait Party {
    fn name(&self) -> &'static str;
    /// A fresh thread takes the place of another.
    fn replace(&mut self, thread: usize);
    /// The task at a place ends, and a child of another one takes its place. One that was refused leaves an idle thread there.
    fn fork(&mut self, parent: usize, child: usize, child_kind: ChildKind) -> Answer;
    fn open(&mut self, number: u32, whose: &Whose, watch: Watch, counting: Counting, heirs: Heirs) -> Answer;
    fn modify(&mut self, number: u32, watch: Watch) -> Answer;
    /// It changes nothing in who holds what.
    fn switch(&mut self, number: u32, counting: Counting) {
        let _ = (number, counting);
    }
    fn close(&mut self, number: u32);
}

/// Has each of a breakpoint's events wait for something else, or none of them: no other process has taken in between what those held.
pub fn change_all<T, E: Debug>(
    events: &mut [T],
    held: &mut Watch,
    to: Watch,
    change: impl Fn(&mut T, Watch) -> Result<(), E>,
) -> Result<(), E> {
    let mut done = 0;
    let result = events.iter_mut().try_for_each(|event| {
        change(event, to)?;
        done += 1;
        Ok(())
    });
    match result {
        Ok(()) => *held = to,
        Err(_) => events[..done].iter_mut().for_each(|event| change(event, *held).unwrap()),
    }
    result
}

/// A breakpoint, with what the children of its task hold by it.
struct Family {
    root: oracle::ReservationId,
    place: oracle::Request,
    heirs: Heirs,
    of: Option<TaskId>,
    /// Children that live, each by what it holds.
    children: Vec<(TaskId, oracle::ReservationId, oracle::Request)>,
}

impl Family {
    /// Whether a task has it, and its children will.
    fn is_passed_on_by(&self, task: TaskId) -> bool {
        let is_child = || self.children.iter().any(|(child, ..)| *child == task);
        self.heirs == Heirs::Children && (self.of == Some(task) || is_child())
    }

    /// A task is no more: gives back what it held as a child.
    fn bury(&mut self, task: TaskId) -> Option<oracle::ReservationId> {
        let at = self.children.iter().position(|(child, ..)| *child == task)?;
        Some(self.children.swap_remove(at).1)
    }
}

/// The model, by counting.
pub struct Model {
    ledger: oracle::Ledger,
    /// The tasks by place; each that ever was has a name of its own.
    current: Vec<TaskId>,
    next: u64,
    held: BTreeMap<u32, Family>,
}

impl Model {
    pub fn new(registers: oracle::Registers, possible: &[CpuId], threads: usize) -> Self {
        let ledger = oracle::Ledger::new(possible.iter().copied(), registers);
        let next = threads as u64;
        Self { ledger, current: (0..next).map(TaskId).collect(), next, held: BTreeMap::new() }
    }
}

impl Party for Model {
    fn name(&self) -> &'static str {
        "the model"
    }

    fn replace(&mut self, thread: usize) {
        let gone = std::mem::replace(&mut self.current[thread], TaskId(self.next));
        self.next += 1;
        for family in self.held.values_mut() {
            if let Some(token) = family.bury(gone) {
                self.ledger.release(token).unwrap();
            }
        }
    }

    fn fork(&mut self, parent: usize, child: usize, _: ChildKind) -> Answer {
        self.replace(child);
        let (parent, heir) = (self.current[parent], self.current[child]);
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
        let of = whose.thread().map(|thread| self.current[thread]);
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
            Err(oracle::RequestError::Full { .. }) => Answer::Full,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// For all of the family or for none of it.
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
                Err(oracle::RequestError::Full { .. }) => {
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
