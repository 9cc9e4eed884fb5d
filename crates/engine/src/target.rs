//! Whose events they are, which part of its time they count, and what names them inside of their context.
//!
//! **Invariant:** plain data, which every other module may name; nothing here knows how events are counted.
//!
//! Linux: the arguments `pid`, `cpu` and `PERF_FLAG_PID_CGROUP` of `perf_event_open(2)`.

use crate::arena::Id;
use crate::id::{CgroupId, CpuId, EventId, GroupId, TaskId};
use alloc::vec::Vec;

/// Whose events they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ContextKey {
    /// They follow a task.
    Task(TaskId),
    /// They stay on a CPU.
    Cpu(CpuId),
}

/// Which part of its context's time an event is limited to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Filter {
    /// All of it.
    Everything,
    /// While the task is on this CPU. Time elsewhere is time enabled without running, as on Linux: see
    /// [`crate::Count::add_other_cpu`].
    OnCpu(CpuId),
    /// While a task of this cgroup is on the CPU. The bank's business.
    Cgroup(CgroupId),
}

impl Filter {
    /// Whether an event with this filter may count while its context is there like that.
    #[must_use]
    pub fn passes(self, presence: Presence) -> bool {
        match (presence, self) {
            (Presence::Out, _) => false,
            (Presence::On(here), Self::OnCpu(cpu)) => here == cpu,
            _ => true,
        }
    }

    /// The cgroup to which it limits an event, if it does.
    #[must_use]
    pub const fn cgroup(self) -> Option<CgroupId> {
        match self {
            Self::Cgroup(cgroup) => Some(cgroup),
            Self::Everything | Self::OnCpu(_) => None,
        }
    }
}

/// Whether the context's task is on a CPU (or the context's CPU is online).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It is there. Where, if it is a task, is followed by the counters below: see [`Filter::OnCpu`].
    In,
    /// The task is on this CPU.
    On(CpuId),
    /// It is not there: no event is active.
    Out,
}

/// Whose events, and which part of their time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The task or the CPU.
    pub context: ContextKey,
    /// Which part of its time.
    pub filter: Filter,
}

impl Target {
    /// A task, wherever it runs.
    #[must_use]
    pub const fn task(task: TaskId) -> Self {
        Self { context: ContextKey::Task(task), filter: Filter::Everything }
    }

    /// A CPU, whatever runs there.
    #[must_use]
    pub const fn cpu(cpu: CpuId) -> Self {
        Self { context: ContextKey::Cpu(cpu), filter: Filter::Everything }
    }

    /// The CPU that must be online for it.
    #[must_use]
    pub const fn bound_to(&self) -> Option<CpuId> {
        match (self.context, self.filter) {
            (ContextKey::Cpu(cpu), _) | (_, Filter::OnCpu(cpu)) => Some(cpu),
            _ => None,
        }
    }
}

/// What a whole group demands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Demand {
    /// Always on, or in error.
    pub pinned: bool,
    /// Alone on its PMU.
    pub exclusive: bool,
}

/// A group that was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The group.
    pub group: GroupId,
    /// Its events, the leader first.
    pub events: Vec<EventId>,
}

/// The tag of [`EventKey`].
#[derive(Debug)]
pub enum EventKeyTag {}
/// The tag of [`GroupKey`].
#[derive(Debug)]
pub enum GroupKeyTag {}

/// Names an event inside its context.
pub type EventKey = Id<EventKeyTag>;
/// Names a group inside its context.
pub type GroupKey = Id<GroupKeyTag>;
