//! Opening and closing.
//!
//! **Invariant:** an open either gives everything or leaves nothing behind; no id exists before its event is complete.

use super::cell::ContextCell;
use super::claims::{Asked, Reserved};
use super::{Engine, EventRecord, Gate, GroupRecord, Registry, SharedCell};
use crate::context::{Context, ContextKey, Filter, GroupKey, MemberKey, Step};
use crate::error::OpenError;
use crate::event::NewMember;
use crate::family::{Attribution, Counting};
use crate::group::{Demand, GroupSpec, Inheritance, Plan, resolve};
use crate::host::{Host, LockCell};
use crate::id::{CpuId, EventId, GroupId, TaskId};
use crate::pmu::Slots;
use crate::share::Domain;
use alloc::sync::Arc;
use alloc::vec::Vec;

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

/// A group that was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The group.
    pub group: GroupId,
    /// Its events, the leader first.
    pub events: Vec<EventId>,
}

/// A group in its context that has no ids yet.
pub(super) struct Attached<H: Host> {
    pub(super) cell: Arc<ContextCell<H>>,
    pub(super) group: GroupKey,
    pub(super) members: Vec<MemberKey>,
    reserved: Reserved<H>,
}

impl<H: Host> Attached<H> {
    /// Tells the ledger of debug registers under which ids the group's events are known.
    pub(super) fn name(&self, opened: &Opened) {
        for (index, held) in &self.reserved {
            if let Some(&event) = opened.events.get(*index) {
                held.name(event);
            }
        }
    }
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
        self.open_in(Domain::default(), spec, target)
    }

    /// As [`Engine::open`], sharing only with what was opened in the same domain: see [`Domain`].
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_in(&self, domain: Domain, spec: &GroupSpec, target: Target) -> Result<Opened, OpenError> {
        self.open_plan(&resolve(spec, &self.host)?, target, Gate::Open, domain, None)
    }

    /// `asked` is what came of asking for its debug registers; `None`: nobody has asked yet.
    pub(super) fn open_plan(
        &self,
        plan: &Plan,
        target: Target,
        gate: Gate,
        domain: Domain,
        asked: Option<Asked<H>>,
    ) -> Result<Opened, OpenError> {
        if let (ContextKey::Task(_), Err(index)) = (target.context, plan.inheritance()) {
            return Err(OpenError::MixedInheritance { index });
        }
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
        let root = match (target.context, plan.inheritance()) {
            (ContextKey::Task(task), Ok(Inheritance::Engine)) => Some(task),
            _ => None,
        };
        let bound_to = target.bound_to();
        let attached = self.attach(target, plan.demand, &plan.members, asked)?;
        let opened = self.registry.with(|registry| {
            // The CPU may have gone meanwhile: whoever took it away has not seen this group.
            match bound_to.filter(|&cpu| !registry.online.contains(cpu)) {
                Some(cpu) => Err(OpenError::CpuOffline { cpu }),
                None => Ok(enroll(registry, &attached, gate)),
            }
        });
        let opened = opened.inspect_err(|_| self.detach(&attached))?;
        attached.name(&opened);
        if let Some(task) = root {
            let roots: Vec<_> = opened.events.iter().map(|&event| alloc::vec![event]).collect();
            self.found(task, roots, Attribution::Totals, Counting::ByEngine);
        }
        Ok(opened)
    }

    /// Attaches a group to its context and has its slots programmed; all or nothing. Its debug registers come first, those for
    /// which nobody has asked yet.
    pub(super) fn attach(
        &self,
        target: Target,
        demand: Demand,
        new: &[NewMember],
        asked: Option<Asked<H>>,
    ) -> Result<Attached<H>, OpenError> {
        let asked = asked.map_or_else(|| self.reserve(new, target), Ok)?;
        for new in new.iter().filter(|new| matches!(new.caps.slots, Slots::Scarce(_))) {
            self.introduce(new.spec.pmu, &new.caps);
        }
        let cell = self.claim(target.context);
        let attach = |context: &mut Context, step: Step<'_>| {
            let group = context.attach(demand, new, target.filter, step);
            (group, context.group(group).map(|group| group.members.clone()).unwrap_or_default())
        };
        let ((group, members), refusal) = cell.ask_here(self, attach, |&(group, _), context| context.refusal(group));
        let attached = Attached { cell, group, members, reserved: asked.reserved() };
        match self.agree(&asked, new, target, refusal) {
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
        // Off the counters first, where they are; what is left is memory.
        let detach_memory = |context: &mut Context, step: Step<'_>| {
            let may = self.cores.is_empty() || context.is_off_counters(group);
            if may {
                context.detach(group, step);
            }
            may
        };
        if !cell.step_here(self, detach_memory) {
            cell.step(self, move |context, step| context.disable_group(group, step));
            cell.step_here(self, |context, step| context.detach(group, step));
        }
        self.leave(cell.key);
    }

    /// The cell of a context, made if there is none, with one more group counted as attached.
    fn claim(&self, key: ContextKey) -> Arc<ContextCell<H>> {
        let claim = |registry: &mut Registry<H>| {
            let shared = registry.contexts.get_mut(&key)?;
            shared.attached += 1;
            Some(Arc::clone(&shared.cell))
        };
        let cell = self.registry.with(claim).unwrap_or_else(|| {
            let fresh = match key {
                ContextKey::Cpu(cpu) => self.core(cpu).map(Arc::clone),
                ContextKey::Task(_) => None,
            };
            let fresh = fresh.unwrap_or_else(|| Arc::new(ContextCell::new(key, self.host.bank(key))));
            // Where two threads make it, the first one's is taken; the other's is dropped here, outside the lock.
            self.registry.with(|registry| {
                claim(registry).unwrap_or_else(|| {
                    registry.contexts.insert(key, SharedCell { cell: Arc::clone(&fresh), attached: 1 });
                    Arc::clone(&fresh)
                })
            })
        });
        // Whoever attaches must find it met, though another thread may have made it.
        self.meet(&cell);
        cell
    }

    /// One group of a context is detached; the last one takes the context along.
    fn leave(&self, key: ContextKey) {
        let gone = self.registry.with(|registry| {
            let shared = registry.contexts.get_mut(&key)?;
            shared.attached -= 1;
            if shared.attached == 0 { registry.contexts.remove(&key) } else { None }
        });
        // Banks give their resources back when they are dropped: not under the registry's lock, and not on a switch.
        if let Some(SharedCell { cell, .. }) = gone {
            self.evict(&cell);
        }
    }

    /// Closes a group and with it its family: children of its events are closed too.
    pub fn close(&self, group: GroupId) {
        let closed = self.registry.with(|registry| {
            let record = registry.groups.remove(group)?;
            let mut families: Vec<_> =
                record.events.iter().filter_map(|&event| Some(registry.events.remove(event)?.kin?.family)).collect();
            families.dedup();
            Some((record, families))
        });
        let Some((record, families)) = closed else { return };
        if let Some(view) = &record.view {
            self.close_view(view);
            return;
        }
        self.take_out(&record.cell, record.group);
        for family in families {
            self.disband(family);
        }
    }

    pub(super) fn close_all(&self, groups: impl IntoIterator<Item = Opened>) {
        for opened in groups {
            self.close(opened.group);
        }
    }
}

/// Gives ids to a group that is complete.
pub(super) fn enroll<H: Host>(registry: &mut Registry<H>, attached: &Attached<H>, gate: Gate) -> Opened {
    let Attached { cell, group, members, reserved } = attached;
    let (cell, reserved) = (Arc::clone(cell), reserved.clone());
    let record = GroupRecord { cell, group: *group, events: Vec::new(), family: None, reserved, view: None };
    let group = registry.groups.insert(record);
    let enroll = |&member| {
        registry.events.insert(EventRecord {
            cell: Arc::clone(&attached.cell),
            member,
            group,
            kin: None,
            gate,
            view: None,
        })
    };
    let events: Vec<EventId> = members.iter().map(enroll).collect();
    if let Some(record) = registry.groups.get_mut(group) {
        record.events.clone_from(&events);
    }
    Opened { group, events }
}
