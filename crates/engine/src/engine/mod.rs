//! The engine with its locks: what a host calls.
//!
//! What it is: ids, locks and the carrying out of orders around the plain state machines of [`crate::context`],
//! [`crate::inherit`] and [`crate::system_wide`].
//! Read first: [`Engine`], then `ctx_lock` (how one context is driven).
//!
//! **Invariant:** locks are taken in the order that [`crate::host`] lists; the host's counters are touched with
//! the bank's lock only.

mod bp_reserve;
mod control;
mod ctx_lock;
mod event_sets;
mod families;
mod fast_read;
mod fork_exit;
mod ipi;
mod many;
mod modify;
mod open;
mod overflow;
mod read;
mod rings;
mod sharing;
mod switch;
mod system_wide;
#[cfg(test)]
mod tests;

pub use crate::target::{Opened, Target};
pub use bp_reserve::Disagreements;
pub use event_sets::SwitchError;
pub use fast_read::GroupHandle;
pub use fork_exit::Exec;
pub use many::{OnMany, OpenedOn, RefusedOn};
pub use open::Begin;
pub use overflow::Overflow;
pub use read::{FamilyTally, GroupReading};
pub use rings::{Audience, EventRing, Sampled};
pub use sharing::{ShareList, ShareReport, SharedEvent, SlotView};
pub use switch::{Rotation, TaskContext};
pub use system_wide::{CpuReading, SetError, SetReading, SetRequest};

use crate::arena::Arena;
use crate::cpu_mask::CpuMask;
use crate::event_set::EventSet;
use crate::host::Host;
use crate::id::{CpuId, EventId, EventSetTag, EventTag, FamilyId, FamilyTag, GroupId, GroupTag, SetId, SetTag, TaskId};
use crate::inherit::{Counting, Family};
use crate::lock::{LockCell, Rank};
use crate::ring_buffer::Output;
use crate::share::Sharing;
use crate::system_wide::SystemWideSet;
use crate::target::{ContextKey, GroupKey, Presence};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bp_reserve::{LedgerHandle, Reserved};
use ctx_lock::{ContextCell, TaskContexts};
use fast_read::{FastRead, FastReads};
use hashbrown::HashMap;
use sharing::{GroupSubscription, Index};

struct EventRecord<H: Host> {
    /// Those of its group, and which is its own.
    fast_reads: FastReads<H>,
    index: usize,
    group: GroupId,
    root_count: Option<RootCount>,
    gate: Gate,
    output: Option<Arc<dyn Output>>,
}

/// Which count of which family a root event is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RootCount {
    family: FamilyId,
    index: usize,
    counting: Counting,
}

impl RootCount {
    /// The family, where the engine counts the children with events of its own.
    fn by_engine(self) -> Option<(FamilyId, usize)> {
        (self.counting == Counting::ByEngine).then_some((self.family, self.index))
    }
}

/// Who may be told of an event's overflows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gate {
    /// The client that opened it.
    Open,
    /// No client yet.
    Closed,
    /// The client that opened its set, once that is armed.
    With(SetId),
}

impl<H: Host> Clone for EventRecord<H> {
    fn clone(&self) -> Self {
        Self { fast_reads: Arc::clone(&self.fast_reads), output: self.output.clone(), ..*self }
    }
}

impl<H: Host> EventRecord<H> {
    fn fast_read(&self) -> &FastRead<H> {
        &self.fast_reads[self.index]
    }
}

struct GroupRecord<H: Host> {
    cell: Arc<ContextCell<H>>,
    group: GroupKey,
    events: Vec<EventId>,
    fast_reads: FastReads<H>,
    /// The family of which it is the root, where the engine counts the children.
    family: Option<FamilyId>,
    /// Its debug registers.
    reserved: Reserved<H>,
    /// Where it is a view: cell and group are the master's then, which has the family and the debug registers.
    view: Option<Arc<GroupSubscription<H>>>,
}

/// A context, and how many groups are attached to it (or about to be). That of a task whose host keeps it ([`Engine::task`]) lives until the
/// task's end, also without groups.
struct SharedCell<H: Host> {
    cell: Arc<ContextCell<H>>,
    attached: usize,
}

struct SetRecord<H: Host> {
    cell: Arc<SetCell<H>>,
    armed: Armed,
    /// Where the records of its events go.
    output: Option<Arc<dyn Output>>,
    /// The CPUs whose coming and going concerns it.
    meant: CpuMask,
}

/// Whether all of a set counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Armed {
    NotYet,
    Yes,
}

/// A set, and whose turn it is.
struct SetCell<H: Host> {
    turn: H::TaskLock<SystemWideSet>,
}

/// An event set, and whose turn it is to switch it.
struct EventSetCell<H: Host> {
    turn: H::TaskLock<EventSet>,
}

/// A family, and whose turn it is to switch all of it.
struct FamilyRecord<H: Host> {
    family: Family,
    turn: Arc<H::TaskLock<()>>,
}

/// Everything that has an id.
struct Registry<H: Host> {
    contexts: HashMap<ContextKey, SharedCell<H>>,
    /// What hosts keep of tasks: see [`Engine::task`].
    tasks: BTreeMap<TaskId, TaskContext<H>>,
    events: Arena<EventRecord<H>, EventTag>,
    groups: Arena<GroupRecord<H>, GroupTag>,
    sets: Arena<SetRecord<H>, SetTag>,
    event_sets: Arena<Arc<EventSetCell<H>>, EventSetTag>,
    families: Arena<FamilyRecord<H>, FamilyTag>,
    online: CpuMask,
    stray: u64,
    /// How many turns contexts on cores of their own have taken.
    turn: u64,
    /// The scarce PMUs that every core knows, by number.
    introduced: Vec<bool>,
    /// For how many events of one group every core has room.
    largest_group: usize,
    /// Between the ledger of debug registers and the host.
    disagreements: Disagreements,
    /// Which questions have a master.
    shares: Index<H>,
}

/// The engine: all events of one host.
///
/// Every method takes `&self`. None is called by the host while the engine is calling it (a bank, the clock, [`Host::presence`]).
///
/// # From where a method is called
///
/// | where | what the engine does there | methods |
/// |---|---|---|
/// | on that CPU, with interrupts off or in an interrupt | it takes locks that spin; it neither sleeps nor allocates nor frees | [`Engine::switch`] (the host has changed [`Host::presence`] before), [`Engine::tick`], [`Engine::handle_ipi`], [`Engine::counters_interrupted`] |
/// | in a task on that CPU, where the host has [`Host::cpus`] | it may sleep, calls the bank of that CPU, and serves calls of other CPUs | [`Engine::cpu_online`] (before other tasks run there), [`Engine::cpu_offline`] (with no other task there) |
/// | in a task, before or after another one runs | it may sleep and allocates | [`Engine::task_fork`] (before the child runs), [`Engine::task_exec`] and [`Engine::task_exit`] (the task itself, or when it can't run any more) |
/// | in any task, on any CPU, at any time | it may sleep and allocates; what concerns another CPU is done there, and waited for ([`Host::wait`]) | all others |
///
/// A caller holds no lock that an implementation of [`Host`] takes. In a task interrupts are on: other CPUs must be able to call this one.
pub struct Engine<H: Host> {
    host: H,
    /// Of the CPUs whose counters are shared, by number.
    cores: Vec<Arc<ContextCell<H>>>,
    hotplug: H::TaskLock<()>,
    registry: H::TaskLock<Registry<H>>,
    task_contexts: TaskContexts,
    /// Whose turn it is to change what an event counts.
    modifying: H::TaskLock<()>,
    /// Known from the first claim of a debug register on; `None` within: no ledger keeps account of them.
    registers: H::TaskLock<Option<Option<LedgerHandle<H>>>>,
    sharing: Sharing,
}

impl<H: Host> Engine<H> {
    /// An engine without events on a host whose CPUs `online` are there.
    pub fn new(host: H, online: CpuMask) -> Self {
        let registry = Registry {
            contexts: HashMap::new(),
            tasks: BTreeMap::new(),
            events: Arena::default(),
            groups: Arena::default(),
            sets: Arena::default(),
            event_sets: Arena::default(),
            families: Arena::default(),
            online,
            stray: 0,
            turn: 0,
            introduced: Vec::new(),
            largest_group: 1,
            disagreements: Disagreements::default(),
            shares: Index::default(),
        };
        let core = |cpu| {
            let key = ContextKey::Cpu(CpuId(cpu));
            let cell = ContextCell::new(key, host.bank(key), None);
            let presence = if registry.online.contains(CpuId(cpu)) { Presence::On(CpuId(cpu)) } else { Presence::Out };
            cell.transact(&host, &cell, |context, step| context.meet(presence, step), |(), _| ());
            cell.reserve(registry.largest_group);
            if presence != Presence::Out {
                cell.open_queue();
            }
            Arc::new(cell)
        };
        let cores = (0..host.cpus()).map(core).collect();
        let hotplug = LockCell::ranked(Rank::Hotplug, ());
        let registry = LockCell::ranked(Rank::Registry, registry);
        let (modifying, registers) = (LockCell::ranked(Rank::Family, ()), LockCell::ranked(Rank::CpuLedger, None));
        let (task_contexts, sharing) = (TaskContexts::default(), Sharing::default());
        Self { host, cores, hotplug, registry, task_contexts, modifying, registers, sharing }
    }

    /// The core of a CPU whose counters are shared by its own events and those of the tasks on it.
    fn core(&self, cpu: CpuId) -> Option<&Arc<ContextCell<H>>> {
        self.cores.get(cpu.0 as usize)
    }

    fn is_core(&self, cell: &ContextCell<H>) -> bool {
        matches!(cell.key, ContextKey::Cpu(cpu) if self.core(cpu).is_some())
    }

    /// The host.
    pub const fn host(&self) -> &H {
        &self.host
    }

    /// How many events, groups, contexts, sets, event sets and families are open: all 0 when everything was closed.
    pub fn census(&self) -> Census {
        self.registry.with(|registry| Census {
            events: registry.events.len() - registry.shares.master_events,
            groups: registry.groups.len() - registry.shares.masters,
            contexts: registry.contexts.values().filter(|shared| shared.attached > 0).count(),
            sets: registry.sets.len(),
            event_sets: registry.event_sets.len(),
            families: registry.families.len(),
            masters: registry.shares.masters,
        })
    }

    /// How many events of contexts are not programmed because others that ask the same share with them.
    pub fn saved_by_sharing(&self) -> usize {
        self.registry.with(|registry| {
            let views = registry.groups.iter().filter(|(_, group)| group.view.is_some());
            let asked: usize = views.map(|(_, group)| group.events.len()).sum();
            asked.saturating_sub(registry.shares.master_events)
        })
    }

    /// The events of a group, the leader first; `None` where it is closed.
    pub fn events(&self, group: GroupId) -> Option<Vec<EventId>> {
        self.registry.with(|registry| registry.groups.get(group).map(|record| record.events.clone()))
    }

    fn record(&self, event: EventId) -> Option<EventRecord<H>> {
        self.registry.with(|registry| registry.events.get(event).cloned())
    }

    fn context(&self, key: ContextKey) -> Option<Arc<ContextCell<H>>> {
        self.registry.with(|registry| registry.contexts.get(&key).map(|shared| Arc::clone(&shared.cell)))
    }

    fn is_online(&self, cpu: CpuId) -> bool {
        self.registry.with(|registry| registry.online.contains(cpu))
    }

    /// Runs `f` once, near a CPU, whatever the host makes of the hint.
    fn near(&self, cpu: CpuId, f: impl FnOnce()) {
        let mut f = Some(f);
        let mut once = || {
            if let Some(f) = f.take() {
                f();
            }
        };
        self.host.near(cpu, &mut once);
        once();
    }
}

/// How much is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Events, those of children included.
    pub events: usize,
    /// Groups.
    pub groups: usize,
    /// Contexts with at least one event.
    pub contexts: usize,
    /// System-wide sets.
    pub sets: usize,
    /// Event sets.
    pub event_sets: usize,
    /// Families.
    pub families: usize,
    /// Groups that count for those who share them. They are not among the groups, nor their events among the events.
    pub masters: usize,
}
