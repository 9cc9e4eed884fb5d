//! Samples, added up.
//!
//! What it is: [`Tally`] is a sink that keeps a weight for each event, command and stack that differ, and for each CPU, thread or cgroup
//! where that is asked for. Read first: [`Key`].
//!
//! **Invariant:** its size depends on what is different, not on how many samples there are.

use super::{Detail, Name, Profile, Sample, Sink, StackId, ThreadId};
use hashbrown::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;

/// What samples are told apart by, beside event, command and stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Apart {
    /// By thread.
    pub threads: bool,
    /// By CPU.
    pub cpus: bool,
    /// By cgroup.
    pub cgroups: bool,
    /// By how many threads ran.
    pub parallelism: bool,
}

/// What the samples of one weight have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// The place of the event.
    pub event: u32,
    /// The name of the thread, at that time.
    pub comm: Name,
    /// The stack.
    pub stack: StackId,
    /// The thread, if threads are told apart.
    pub thread: Option<ThreadId>,
    /// The CPU, if CPUs are told apart and it was recorded.
    pub cpu: Option<u32>,
    /// The cgroup's id, if cgroups are told apart and it was recorded.
    pub cgroup: Option<u64>,
    /// How many threads ran ([`Sample::parallelism`]), if that is told apart and was recorded.
    pub parallelism: Option<u32>,
}

impl Hash for Key {
    /// What keys mostly differ in is all that usual ones hash: each sample is looked up.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { event, comm, stack, thread, cpu, cgroup, parallelism } = self;
        state.write_u64(u64::from(*event) << 32 | comm.index() as u64);
        let thread = thread.map_or(0, |thread| thread.index() as u64 + 1);
        state.write_u64(thread << 32 | stack.index() as u64);
        if cpu.is_some() || cgroup.is_some() || parallelism.is_some() {
            (cpu, cgroup, parallelism).hash(state);
        }
    }
}

/// How much some samples weigh.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weight {
    /// How many occurrences they stand for.
    pub period: u64,
    /// How many samples they are.
    pub samples: u64,
}

impl Weight {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.period = self.period.saturating_add(other.period);
        self.samples += other.samples;
    }

    /// What is left of it without a part.
    #[must_use]
    pub fn without(self, part: Self) -> Self {
        Self { period: self.period.saturating_sub(part.period), samples: self.samples.saturating_sub(part.samples) }
    }
}

const NONE: u32 = u32::MAX;
/// So many rows of one stack are looked at one after the other.
const NEAR: usize = 8;

/// Adds samples up.
#[derive(Default)]
pub struct Tally {
    pub(super) apart: Apart,
    detail: Detail,
    rows: Vec<(Key, Weight)>,
    /// By row: the next one of its stack; from the last one leads none.
    next: Vec<u32>,
    /// By stack: its first row, mostly the only one.
    first: Vec<u32>,
    /// Rows that stand far behind the first one of their stack.
    far: HashMap<Key, u32>,
    totals: Vec<Weight>,
}

impl Tally {
    /// One that tells more apart.
    #[must_use]
    pub fn new(apart: Apart) -> Self {
        Self { apart, ..Self::default() }
    }

    /// One that tells less apart: samples of one place are one, whatever called it. It is read faster.
    #[must_use]
    pub fn innermost(self) -> Self {
        Self { detail: Detail::Innermost, ..self }
    }

    /// What was added up, as it was met first.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&Key, &Weight)> {
        self.rows.iter().map(|(key, weight)| (key, weight))
    }

    /// A part of it: what `keep` lets through, with no more told apart than `apart` says.
    #[must_use]
    pub fn part(&self, apart: Apart, mut keep: impl FnMut(&Key) -> bool) -> Self {
        let mut part = Self::new(apart);
        for (key, weight) in self.rows().filter(|(key, _)| keep(key)) {
            let key = Key {
                thread: key.thread.filter(|_| apart.threads),
                cpu: key.cpu.filter(|_| apart.cpus),
                cgroup: key.cgroup.filter(|_| apart.cgroups),
                parallelism: key.parallelism.filter(|_| apart.parallelism),
                ..*key
            };
            part.add(key, *weight);
        }
        part
    }

    /// The event, the stack and the number of samples of each row; none if stacks are not told apart, but only where samples were met.
    pub fn chains(&self) -> impl Iterator<Item = (usize, StackId, u64)> {
        let has_stacks = self.wants() != Detail::Innermost;
        let rows = self.rows().filter(move |_| has_stacks);
        rows.map(|(key, weight)| (key.event as usize, key.stack, weight.samples))
    }

    pub(super) fn add(&mut self, key: Key, weight: Weight) {
        let row = self.row(key);
        self.rows[row].1.add(weight);
        let event = key.event as usize;
        if self.totals.len() <= event {
            self.totals.resize(event + 1, Weight::default());
        }
        self.totals[event].add(weight);
    }

    /// The place of a row, a new one if need be.
    fn row(&mut self, key: Key) -> usize {
        let Self { rows, next, first, far, .. } = self;
        let stack = key.stack.index();
        if first.len() <= stack {
            first.resize(stack + 1, NONE);
        }
        let new = rows.len() as u32;
        let mut place = &mut first[stack];
        let mut at = NONE;
        for _ in 0..NEAR {
            at = *place;
            if at == NONE {
                *place = new;
                break;
            }
            if rows[at as usize].0 == key {
                return at as usize;
            }
            place = &mut next[at as usize];
        }
        if at != NONE {
            at = *far.entry(key).or_insert(new);
            if at != new {
                return at as usize;
            }
        }
        rows.push((key, Weight::default()));
        next.push(NONE);
        new as usize
    }

    /// All of an event.
    #[must_use]
    pub fn total(&self, event: usize) -> Weight {
        self.totals.get(event).copied().unwrap_or_default()
    }
}

impl Sink for Tally {
    fn wants(&self) -> Detail {
        // Cgroups stand behind the period.
        if self.apart.cgroups { Detail::Stacks } else { self.detail }
    }

    fn sample(&mut self, _profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        let weight = Weight { period: sample.period, samples: 1 };
        let key = Key {
            event: sample.event as u32,
            comm: sample.comm,
            stack: sample.stack,
            thread: self.apart.threads.then_some(sample.thread),
            cpu: sample.cpu.filter(|_| self.apart.cpus),
            cgroup: sample.fields.cgroup.filter(|_| self.apart.cgroups),
            parallelism: sample.parallelism.filter(|_| self.apart.parallelism),
        };
        self.add(key, weight);
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Names;

    #[test]
    fn rows_of_one_stack_are_told_apart_however_many_there_are() {
        let comm = Names::default().intern(b"sh");
        let mut tally = Tally::default();
        for turn in 1..=3 {
            for number in 0..30 {
                let cgroup = Some(number);
                let stack = StackId::EMPTY;
                let key = Key { event: 0, comm, stack, thread: None, cpu: None, cgroup, parallelism: None };
                tally.add(key, Weight { period: number, samples: 1 });
            }
            assert_eq!((tally.rows().len(), tally.total(0).samples), (30, 30 * turn));
        }
        for (number, (key, weight)) in (0..).zip(tally.rows()) {
            assert_eq!((key.cgroup, *weight), (Some(number), Weight { period: 3 * number, samples: 3 }));
        }
    }
}
