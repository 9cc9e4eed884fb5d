//! System-wide sets: the same groups on many CPUs, as one.
//!
//! What it is: what a set remembers: which CPUs it is meant for, where it is open, what CPUs that left had counted, and
//! for how long each CPU was covered. Opening and hotplug are driven by the engine.
//! Read first: `SystemWideSet`.
//!
//! **Invariant:** time in which a CPU was there but not counted is in the coverage; it is never silently missing.

mod coverage;

pub use crate::cpu_mask::CpuMask;
pub use coverage::{Coverage, CpuCoverage};

use crate::count::Count;
use crate::error::OpenError;
use crate::group::Plan;
use crate::id::{CgroupId, CpuId, Nanos, TaskId};
use crate::share::SharingScope;
use crate::target::{ContextKey, Filter};
use crate::target::{Opened, Target};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What is counted on each CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetScope {
    /// Whatever runs there.
    Everything,
    /// The tasks of a cgroup.
    Cgroup(CgroupId),
    /// One task (and, where the counters follow forks, its children) while it is there.
    Task(TaskId),
}

impl SetScope {
    /// The target of this scope on one CPU.
    #[must_use]
    pub const fn on(self, cpu: CpuId) -> Target {
        match self {
            Self::Everything => Target { context: ContextKey::Cpu(cpu), filter: Filter::Everything },
            Self::Cgroup(cgroup) => Target { context: ContextKey::Cpu(cpu), filter: Filter::Cgroup(cgroup) },
            Self::Task(task) => Target { context: ContextKey::Task(task), filter: Filter::OnCpu(cpu) },
        }
    }

    /// Whether the events belong to the CPU, so that they go with it.
    #[must_use]
    pub const fn goes_with_cpu(self) -> bool {
        !matches!(self, Self::Task(_))
    }
}

/// What happens with CPUs of the mask that are not online.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// They are an error: the caller named them.
    Refuse,
    /// They are counted from when they come.
    Await,
}

#[derive(Debug, Default)]
pub(crate) struct SetCpu {
    pub(crate) groups: Vec<Opened>,
    /// What its earlier lives had counted, event by event.
    pub(crate) retired: Vec<Count>,
    /// Why it could not be opened again when it came back.
    pub(crate) refused: Option<OpenError>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SetState {
    /// It is reserved everywhere, and counts nowhere.
    Reserved,
    /// It counts.
    Armed,
    /// It is closed: a caller that still waits for its turn finds nothing to do.
    Closed,
}

#[derive(Debug)]
pub(crate) struct SystemWideSet {
    /// The groups, the same on each CPU.
    pub(crate) plans: Vec<Plan>,
    pub(crate) scope: SetScope,
    /// The domain that its events share in.
    pub(crate) domain: SharingScope,
    /// When it was opened: a task that is younger is not the one that was meant.
    pub(crate) since: Nanos,
    pub(crate) mask: CpuMask,
    /// Its CPUs, as far as they have ever been there.
    pub(crate) cpus: BTreeMap<CpuId, SetCpu>,
    pub(crate) state: SetState,
    /// Since when and where it has counted.
    pub(crate) coverage: Coverage,
}

impl SystemWideSet {
    pub(crate) fn new(
        plans: Vec<Plan>,
        (scope, mask): (SetScope, CpuMask),
        domain: SharingScope,
        since: Nanos,
    ) -> Self {
        let coverage = Coverage::new();
        Self { plans, scope, domain, since, mask, cpus: BTreeMap::new(), state: SetState::Reserved, coverage }
    }

    pub(crate) fn events_per_cpu(&self) -> usize {
        self.plans.iter().map(|plan| plan.members.len()).sum()
    }

    pub(crate) fn is_on(&self, cpu: CpuId) -> bool {
        self.cpus.get(&cpu).is_some_and(|state| !state.groups.is_empty())
    }

    /// A CPU goes offline, having counted `last`: keeps that, and gives back the groups to be closed.
    pub(crate) fn offline(&mut self, cpu: CpuId, last: &[Count], now: Nanos) -> Vec<Opened> {
        self.coverage.lose(cpu, now);
        let events = self.events_per_cpu();
        let Some(state) = self.cpus.get_mut(&cpu) else { return Vec::new() };
        state.refused = None;
        state.retired.resize(events, Count::default());
        for (sum, count) in state.retired.iter_mut().zip(last) {
            *sum += *count;
        }
        core::mem::take(&mut state.groups)
    }

    /// A CPU is open (again), or was refused.
    pub(crate) fn online(&mut self, cpu: CpuId, opened: Result<Vec<Opened>, OpenError>, now: Nanos) {
        let state = self.cpus.entry(cpu).or_default();
        match opened {
            Ok(groups) => {
                state.groups = groups;
                state.refused = None;
                self.coverage.gain(cpu, now);
            }
            Err(error) => {
                state.refused = Some(error);
                self.coverage.expect(cpu);
            }
        }
    }

    pub(crate) fn enable(&mut self, now: Nanos) {
        self.state = SetState::Armed;
        self.coverage.start(now);
        for (&cpu, state) in &self.cpus {
            if !state.groups.is_empty() {
                self.coverage.gain(cpu, now);
            } else if state.refused.is_some() {
                self.coverage.expect(cpu);
            }
        }
    }

    /// It stops counting.
    pub(crate) fn disable(&mut self, now: Nanos) {
        self.state = SetState::Reserved;
        self.coverage.stop(now);
    }

    /// It ends. Gives back what is open.
    pub(crate) fn close(&mut self) -> Vec<Opened> {
        self.state = SetState::Closed;
        core::mem::take(&mut self.cpus).into_values().flat_map(|state| state.groups).collect()
    }
}
