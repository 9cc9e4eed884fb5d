//! Samples, added up.
//!
//! What it is: [`Tally`] is a sink that keeps a weight for each event, command and stack that differ, and for each CPU, thread or cgroup
//! where that is asked for. Read first: [`Key`].
//!
//! **Invariant:** its size depends on what is different, not on how many samples there are.

use super::{Name, Profile, Progress, Sample, Sink, StackId, ThreadId};
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
}

impl Hash for Key {
    /// What keys mostly differ in is all that usual ones hash: each sample is looked up.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { event, comm, stack, thread, cpu, cgroup } = self;
        state.write_u64(u64::from(*event) << 32 | comm.index() as u64);
        let thread = thread.map_or(0, |thread| thread.index() as u64 + 1);
        state.write_u64(thread << 32 | stack.index() as u64);
        if cpu.is_some() || cgroup.is_some() {
            (cpu, cgroup).hash(state);
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

/// Adds samples up.
#[derive(Default)]
pub struct Tally {
    apart: Apart,
    rows: HashMap<Key, Weight>,
    totals: Vec<Weight>,
    on_progress: Option<Box<dyn FnMut(Progress) + Send + Sync>>,
}

impl Tally {
    /// One that tells more apart.
    #[must_use]
    pub fn new(apart: Apart) -> Self {
        Self { apart, ..Self::default() }
    }

    /// Tells how far reading is.
    pub fn on_progress(&mut self, tell: impl FnMut(Progress) + Send + Sync + 'static) {
        self.on_progress = Some(Box::new(tell));
    }

    /// What was added up, in no order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&Key, &Weight)> {
        self.rows.iter()
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
                ..*key
            };
            part.add(key, *weight);
        }
        part
    }

    fn add(&mut self, key: Key, weight: Weight) {
        self.rows.entry(key).or_default().add(weight);
        let event = key.event as usize;
        if self.totals.len() <= event {
            self.totals.resize(event + 1, Weight::default());
        }
        self.totals[event].add(weight);
    }

    /// All of an event.
    #[must_use]
    pub fn total(&self, event: usize) -> Weight {
        self.totals.get(event).copied().unwrap_or_default()
    }
}

impl Sink for Tally {
    fn sample(&mut self, _profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        let weight = Weight { period: sample.period, samples: 1 };
        let key = Key {
            event: sample.event as u32,
            comm: sample.comm,
            stack: sample.stack,
            thread: self.apart.threads.then_some(sample.thread),
            cpu: sample.cpu.filter(|_| self.apart.cpus),
            cgroup: sample.fields.cgroup.filter(|_| self.apart.cgroups),
        };
        self.add(key, weight);
        ControlFlow::Continue(())
    }

    fn progress(&mut self, _profile: &Profile, progress: Progress) -> ControlFlow<()> {
        if let Some(tell) = &mut self.on_progress {
            tell(progress);
        }
        ControlFlow::Continue(())
    }
}
