//! Random steps from a seed.
//!
//! **Invariant:** the next step depends on the seed and on which of the steps before were granted, and on nothing else.

use super::step::{ChildKind, Counting, Heirs, Step, Watch, Whose};
use pmux::event::Access;
use pmux_engine::CpuId;
use std::collections::BTreeSet;

pub struct Draw {
    random: fastrand::Rng,
    cpus: Vec<CpuId>,
    threads: usize,
    held: Vec<u32>,
    next: u32,
    /// How many of a hundred steps close something, for now.
    closing: u32,
    /// Steps until that changes.
    lasts: u32,
}

impl Draw {
    pub fn new(seed: u64, cpus: &[CpuId], threads: usize) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            cpus: cpus.to_vec(),
            threads,
            held: Vec::new(),
            next: 0,
            closing: 0,
            lasts: 0,
        }
    }

    pub fn step(&mut self) -> Step {
        if self.lasts == 0 {
            // Full and empty machines, and all between.
            self.closing = [10, 20, 35, 50][self.random.usize(0..4)];
            self.lasts = self.random.u32(20..120);
        }
        self.lasts -= 1;
        let roll = self.random.u32(0..100);
        if roll == 99 {
            return Step::Replace(self.thread());
        }
        if roll >= 95 {
            let (parent, child) = (self.thread(), self.thread());
            let child_kind = if self.random.u32(0..4) == 0 { ChildKind::Process } else { ChildKind::Thread };
            return Step::Fork { parent, child, child_kind };
        }
        if roll < self.closing + 25 && !self.held.is_empty() {
            let index = self.random.usize(0..self.held.len());
            let number = self.held[index];
            if roll < 20 {
                return Step::Modify { number, watch: self.watch() };
            }
            if roll < 25 {
                return Step::Switch { number, counting: self.counting() };
            }
            self.held.swap_remove(index);
            return Step::Close(number);
        }
        let number = self.next;
        self.next += 1;
        let (watch, whose) = (self.watch(), self.whose());
        // Where a machine finds it invalid, CPUs are asked one after the other: which of them says what, is no rule.
        let several = whose.cpus().is_some_and(|cpus| cpus.len() > 1);
        let watch = if several && !watch.is_valid() { Watch::SIMPLEST } else { watch };
        // There is nothing to inherit of a CPU.
        let of_task = whose.thread().is_some();
        let heirs = if of_task && self.random.bool() { Heirs::Children } else { Heirs::NoTask };
        Step::Open { number, whose, watch, counting: self.counting(), heirs }
    }

    /// What was asked for last is open.
    pub fn granted(&mut self, number: u32) {
        self.held.push(number);
    }

    fn thread(&mut self) -> usize {
        self.random.usize(0..self.threads)
    }

    fn counting(&mut self) -> Counting {
        if self.random.bool() { Counting::On } else { Counting::Off }
    }

    fn watch(&mut self) -> Watch {
        let at = self.random.usize(0..8);
        match self.random.u32(0..24) {
            0 => Watch { access: Access::WRITE, len: Watch::NEVER, at },
            1..=8 => Watch::execute(at),
            _ => {
                let access = if self.random.bool() { Access::WRITE } else { Access::READ_WRITE };
                Watch { access, len: 1 << self.random.u32(0..4), at }
            }
        }
    }

    fn whose(&mut self) -> Whose {
        let thread = self.thread();
        let one = BTreeSet::from([self.cpus[self.random.usize(0..self.cpus.len())]]);
        let random = &mut self.random;
        let mut some: BTreeSet<_> = self.cpus.iter().copied().filter(|_| random.bool()).collect();
        some.extend(&one);
        // Tasks more often than CPUs: one breakpoint of a CPU stands in the way of all tasks.
        match random.u32(0..32) {
            0..=14 => Whose::Thread(thread),
            15..=23 => Whose::ThreadOn(thread, one),
            24..=26 => Whose::ThreadOn(thread, some),
            27..=29 => Whose::Cpus(one),
            _ => Whose::Cpus(some),
        }
    }
}
