//! Opening and closing.
//!
//! **Invariant:** an open either gives everything or leaves nothing behind; no id exists before its event is complete.
//!
//! Linux: `perf_event_open(2)`, `perf_install_in_context`, `perf_remove_from_context` (kernel/events/core.c).

use super::bp_reserve::{Asked, Reserved};
use super::ctx_lock::{ContextCell, Todo};
use super::fast_read::{FastRead, FastReads};
use super::{Engine, EventRecord, Gate, GroupRecord, Registry, SharedCell};
use crate::context::{Context, Gone, Step};
use crate::error::OpenError;
use crate::event::NewEvent;
use crate::group::{GroupSpec, Inheritance, Plan, resolve};
use crate::host::Host;
use crate::id::{EventId, GroupId, TaskId};
use crate::inherit::{Attribution, Counting};
use crate::lock::LockCell;
use crate::pmu::Slots;
use crate::share::SharingScope;
use crate::target::Demand;
use crate::target::{ContextKey, EventKey, GroupKey, Opened, Presence, Target};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Whether a group counts when it has been opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// It waits for [`Engine::enable_group`].
    Off,
    /// It counts at once, or takes its turns.
    On,
}

pub(super) struct How<'a> {
    pub(super) begin: Begin,
    /// Where the context is, if it has yet to be told.
    pub(super) presence: Option<Presence>,
    /// Lent by a caller that does so many times.
    pub(super) scratch: Option<&'a mut Todo>,
}

/// A group in its context that has no ids yet.
pub(super) struct Attached<H: Host> {
    pub(super) cell: Arc<ContextCell<H>>,
    pub(super) group: GroupKey,
    pub(super) members: Vec<EventKey>,
    reserved: Reserved<H>,
}

impl<H: Host> Engine<H> {
    /// Opens a group, disabled.
    ///
    /// A group whose leader inherits, on a task and on a PMU that doesn't follow forks by itself, founds a family.
    ///
    /// # Errors
    /// Checked in this order: the group itself ([`OpenError::EmptyGroup`], [`OpenError::GroupTooLong`],
    /// [`OpenError::DemandOfSibling`], then for each event [`OpenError::NoSuchPmu`], [`OpenError::Parse`],
    /// [`OpenError::MixedPmus`], then [`OpenError::NeverFits`], on a task [`OpenError::MixedInheritance`]), whether the
    /// CPU is online ([`OpenError::CpuOffline`]), whether there are debug registers ([`OpenError::DebugRegisters`]), and what
    /// the counters say, event by event ([`OpenError::Bank`]). Where the host decides about debug registers, its word comes
    /// with the counters'.
    pub fn open(&self, spec: &GroupSpec, target: Target) -> Result<Opened, OpenError> {
        self.open_in(SharingScope::default(), spec, target)
    }

    /// As [`Engine::open`], sharing only with what was opened in the same domain: see [`SharingScope`].
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_in(&self, domain: SharingScope, spec: &GroupSpec, target: Target) -> Result<Opened, OpenError> {
        self.open_plan(&resolve(spec, domain.cred(), &self.host)?, target, Gate::Open, domain, None)
    }

    /// `asked` is what came of asking for its debug registers; `None`: they have not been asked for yet.
    pub(super) fn open_plan(
        &self,
        plan: &Plan,
        target: Target,
        gate: Gate,
        domain: SharingScope,
        asked: Option<Asked<H>>,
    ) -> Result<Opened, OpenError> {
        root_of(plan, target)?;
        if let Some(cpu) = target.bound_to().filter(|&cpu| !self.is_online(cpu)) {
            return Err(OpenError::CpuOffline { cpu });
        }
        self.open_shared(plan, target, gate, domain, asked)
    }

    /// Opens a group that has its counters for itself, though others may have views of it.
    pub(super) fn open_own(
        &self,
        plan: &Plan,
        target: Target,
        gate: Gate,
        asked: Option<Asked<H>>,
    ) -> Result<Opened, OpenError> {
        let root = root_of(plan, target)?;
        let bound_to = target.bound_to();
        let mut attached = self.attach(target, plan.demand, &plan.members, asked)?;
        let opened = self.registry.with(|registry| {
            // The CPU may have gone meanwhile: the thread that took it away has not seen this group.
            match bound_to.filter(|&cpu| !registry.online.contains(cpu)) {
                Some(cpu) => Err(OpenError::CpuOffline { cpu }),
                None => Ok(register(registry, &mut attached, gate)),
            }
        });
        let opened = opened.inspect_err(|_| self.detach(&attached))?;
        if let Some(task) = root {
            self.found_by_engine(task, &opened);
        }
        Ok(opened)
    }

    /// A group that is inherited and whose children the engine counts founds a family.
    pub(super) fn found_by_engine(&self, task: TaskId, opened: &Opened) {
        let roots: Vec<_> = opened.events.iter().map(|&event| alloc::vec![event]).collect();
        self.found(task, roots, Attribution::Totals, Counting::ByEngine);
    }

    /// Attaches a group to its context and has its slots programmed; all or nothing. Its debug registers come first, those that
    /// have not been asked for yet.
    pub(super) fn attach(
        &self,
        target: Target,
        demand: Demand,
        new: &[NewEvent],
        asked: Option<Asked<H>>,
    ) -> Result<Attached<H>, OpenError> {
        self.introduce_all(new);
        self.attach_known(target, demand, new, asked)
    }

    /// The same where every core knows the PMUs of these events already.
    pub(super) fn attach_known(
        &self,
        target: Target,
        demand: Demand,
        new: &[NewEvent],
        asked: Option<Asked<H>>,
    ) -> Result<Attached<H>, OpenError> {
        let asked = asked.map_or_else(|| self.reserve(new, target), Ok)?;
        let cell = self.claim(target.context);
        self.attach_to(cell, target, (demand, new), asked, How { begin: Begin::Off, presence: None, scratch: None })
    }

    /// Every core knows the scarce PMUs of these events from now on, and has room for them.
    pub(super) fn introduce_all(&self, new: &[NewEvent]) {
        self.make_room(new.len());
        for new in new.iter().filter(|new| matches!(new.caps.slots, Slots::Scarce(_))) {
            self.introduce(new.spec.pmu, &new.caps);
        }
    }

    /// Attaches a group to a context that was claimed for it.
    pub(super) fn attach_to(
        &self,
        cell: Arc<ContextCell<H>>,
        target: Target,
        (demand, new): (Demand, &[NewEvent]),
        asked: Asked<H>,
        How { begin, presence, scratch }: How<'_>,
    ) -> Result<Attached<H>, OpenError> {
        let path = target.filter.cgroup().and_then(|cgroup| self.host.cgroup_path(cgroup));
        let attach = |context: &mut Context, step: Step<'_>| {
            if let Some(presence) = presence {
                context.meet(presence, step);
            }
            let group = context.attach(demand, new, (target.filter, path.as_ref()), step);
            if begin == Begin::On {
                context.enable_group(group, step);
            }
            (group, context.group(group).map(|group| group.members.clone()).unwrap_or_default())
        };
        let look = |&(group, _): &(GroupKey, _), context: &Context| context.refusal(group);
        let ((group, members), refusal) = cell.ask_here_in(scratch, self, attach, look);
        let refusal = self.agree(&asked, new, target, refusal);
        let attached = Attached { cell, group, members, reserved: asked.reserved() };
        match refusal {
            None => Ok(attached),
            Some(error) => {
                self.detach(&attached);
                Err(error)
            }
        }
    }

    pub(super) fn detach(&self, attached: &Attached<H>) {
        self.take_out(&attached.cell, attached.group);
    }

    fn take_out(&self, cell: &Arc<ContextCell<H>>, group: GroupKey) {
        // Off the counters first, where they are, and for good: another thread may be about to enable it. What is left is memory.
        let detach_memory = |context: &mut Context, step: Step<'_>| {
            let may = self.cores.is_empty() || context.is_off_counters(group);
            if may {
                context.detach(group, step);
            }
            may
        };
        if !cell.step_here(self, detach_memory) {
            cell.step(self, move |context, step| context.retire_group(group, Gone::Everything, step));
            cell.step_here(self, |context, step| context.detach(group, step));
        }
        self.leave(cell.key);
    }

    /// The cell of a context, made if there is none, with one more group counted as attached.
    fn claim(&self, key: ContextKey) -> Arc<ContextCell<H>> {
        let cell = self.registry.with(|registry| claim_known(registry, key, 1)).unwrap_or_else(|| {
            let fresh = self.fresh_cell(key);
            // Where two threads make it, the first one's is taken; the other's is dropped here, outside the lock.
            self.registry.with(|registry| claim_fresh(registry, &fresh, 1))
        });
        // A thread that attaches must find it met, though another thread may have made it.
        self.meet(&cell);
        cell
    }

    /// A cell for a context that has none.
    pub(super) fn fresh_cell(&self, key: ContextKey) -> Arc<ContextCell<H>> {
        let (core, counted) = match key {
            ContextKey::Cpu(cpu) => (self.core(cpu).map(Arc::clone), None),
            ContextKey::Task(_) => (None, Some(self.task_contexts.one_more())),
        };
        core.unwrap_or_else(|| Arc::new(ContextCell::new(key, self.host.bank(key), counted)))
    }

    /// One group of a context is detached; the last one takes the context along, unless the host keeps it.
    pub(super) fn leave(&self, key: ContextKey) {
        let gone = self.registry.with(|registry| {
            let shared = registry.contexts.get_mut(&key)?;
            shared.attached -= 1;
            let kept = matches!(key, ContextKey::Task(task) if registry.tasks.contains_key(&task));
            if shared.attached == 0 && !kept { registry.contexts.remove(&key) } else { None }
        });
        // Banks give their resources back when they are dropped: not under the registry's lock, and not on a switch.
        if let Some(SharedCell { cell, .. }) = gone {
            self.evict(&cell);
        }
    }

    /// Closes a group and with it its family: children of its events are closed too.
    pub fn close(&self, group: GroupId) {
        if let Some(unregistered) = self.registry.with(|registry| unregister(registry, group)) {
            self.close_unregistered(unregistered);
        }
    }

    /// Closes what is in the registry no more.
    pub(super) fn close_unregistered(&self, (record, events): Unregistered<H>) {
        let mut families: Vec<_> = events.iter().filter_map(|event| Some(event.root_count?.family)).collect();
        families.dedup();
        // With what they wrote into, perhaps.
        drop(events);
        match &record.view {
            Some(view) => self.close_view(view),
            None => self.take_out(&record.cell, record.group),
        }
        for family in families {
            self.destroy_tree(family);
        }
    }

    pub(super) fn close_all(&self, groups: impl IntoIterator<Item = Opened>) {
        for opened in groups {
            self.close(opened.group);
        }
    }
}

/// The task whose children the engine has to count with a group of this plan, if there is one.
pub(super) fn root_of(plan: &Plan, target: Target) -> Result<Option<TaskId>, OpenError> {
    match (target.context, plan.inheritance()) {
        (ContextKey::Task(_), Err(index)) => Err(OpenError::MixedInheritance { index }),
        (ContextKey::Task(task), Ok(Inheritance::Engine)) => Ok(Some(task)),
        _ => Ok(None),
    }
}

/// The cell of a context that has one, with so many more groups counted as attached.
pub(super) fn claim_known<H: Host>(
    registry: &mut Registry<H>,
    key: ContextKey,
    groups: usize,
) -> Option<Arc<ContextCell<H>>> {
    let shared = registry.contexts.get_mut(&key)?;
    shared.attached += groups;
    Some(Arc::clone(&shared.cell))
}

/// The same of a context that had none a moment ago: `fresh`, unless another thread has made one meanwhile.
pub(super) fn claim_fresh<H: Host>(
    registry: &mut Registry<H>,
    fresh: &Arc<ContextCell<H>>,
    groups: usize,
) -> Arc<ContextCell<H>> {
    claim_known(registry, fresh.key, groups).unwrap_or_else(|| {
        registry.contexts.insert(fresh.key, SharedCell { cell: Arc::clone(fresh), attached: groups });
        if let ContextKey::Task(task) = fresh.key
            && let Some(kept) = registry.tasks.get(&task)
        {
            kept.fill(fresh);
        }
        Arc::clone(fresh)
    })
}

/// A group that has lost its ids, with its events.
pub(super) type Unregistered<H> = (GroupRecord<H>, Vec<EventRecord<H>>);

/// Takes the ids of a group away. What comes of it is dropped outside the lock.
pub(super) fn unregister<H: Host>(registry: &mut Registry<H>, group: GroupId) -> Option<Unregistered<H>> {
    let record = registry.groups.remove(group)?;
    let mut events = Vec::with_capacity(record.events.len());
    for &event in &record.events {
        let Some(removed) = registry.events.remove(event) else { continue };
        if let Some(view) = &removed.fast_read().view {
            registry.shares.unlisten(view.master, event);
        }
        events.push(removed);
    }
    Some((record, events))
}

/// Gives ids to a group that is complete.
pub(super) fn register<H: Host>(registry: &mut Registry<H>, attached: &mut Attached<H>, gate: Gate) -> Opened {
    let group = register_group(registry, attached, gate);
    let events = registry.groups.get(group).map(|record| record.events.clone()).unwrap_or_default();
    Opened { group, events }
}

/// The same for a caller that does not need the ids of its events now. The ledger of debug registers is told under which ids they
/// are known.
pub(super) fn register_group<H: Host>(registry: &mut Registry<H>, attached: &mut Attached<H>, gate: Gate) -> GroupId {
    let Attached { cell, group, members, reserved } = attached;
    let (cell, reserved) = (Arc::clone(cell), core::mem::take(reserved));
    let fast_read = |&member: &EventKey| FastRead::own(Arc::clone(&cell), member);
    let fast_reads: FastReads<H> = members.iter().map(fast_read).collect();
    let record = GroupRecord {
        cell,
        group: *group,
        events: Vec::new(),
        fast_reads: Arc::clone(&fast_reads),
        family: None,
        reserved,
        view: None,
    };
    let group = registry.groups.insert(record);
    let events = register_events(registry, group, &fast_reads, gate);
    if let Some(record) = registry.groups.get_mut(group) {
        for (index, held) in &record.reserved {
            events.get(*index).into_iter().for_each(|&event| held.name(event));
        }
        record.events = events;
    }
    group
}

pub(super) fn register_events<H: Host>(
    registry: &mut Registry<H>,
    group: GroupId,
    fast_reads: &FastReads<H>,
    gate: Gate,
) -> Vec<EventId> {
    // What comes to a set writes where the set's events do.
    let output = match gate {
        Gate::With(set) => registry.sets.get(set).and_then(|record| record.output.clone()),
        Gate::Open | Gate::Closed => None,
    };
    let record = |index| EventRecord {
        fast_reads: Arc::clone(fast_reads),
        index,
        group,
        root_count: None,
        gate,
        output: output.clone(),
    };
    (0..fast_reads.len()).map(|index| registry.events.insert(record(index))).collect()
}
