//! Enable, disable, reset.
//!
//! What it is: steps of one event or group and, where the engine counts children, of the same event or group in every
//! live child. See `switches` in [`crate::inherit`] for what happens to forks that are under way.
//!
//! **Invariant:** a stale id is an error, never another event.
//!
//! Linux: `perf_ioctl`: `PERF_EVENT_IOC_ENABLE`, `_DISABLE`, `_RESET`, `PERF_IOC_FLAG_GROUP` (kernel/events/core.c).

use super::ctx_lock::ContextCell;
use super::ctx_lock::Purpose;
use super::sharing::seen_by_then;
use super::{Engine, EventRecord, FamilyRecord, Registry};
use crate::context::{Context, Step};
use crate::error::{ControlError, ReadError};
use crate::event::{Event, EventState};
use crate::host::Host;
use crate::id::{EventId, FamilyId, GroupId};
use crate::inherit::FamilySwitch;
use crate::lock::LockCell;
use crate::pmu::{BankError, Lease};
use crate::share::{Seen, Which};
use crate::target::{ContextKey, EventKey, GroupKey};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pmux_abi::attr::Attr;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Enable,
    Disable,
    Reset,
}

/// To what, inside its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CtxTarget {
    Event(EventKey),
    Group(GroupKey),
}

/// To what, inside a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FamilyScope {
    /// One of its counts.
    Event(usize),
    Group,
}

/// An event or a group, and the context that it is in.
struct OpTarget<H: Host> {
    cell: Arc<ContextCell<H>>,
    target: CtxTarget,
}

/// What is left to do of a switch.
enum Pass<H: Host> {
    /// These children, of so many that have joined so far.
    Children(Vec<OpTarget<H>>, u64),
    /// Nothing.
    Done,
}

impl<H: Host> Engine<H> {
    /// Enables an event, in its live children too. In a group it counts while the leader is enabled too.
    ///
    /// # Errors
    /// [`ControlError::Closed`]; [`ControlError::Bank`] where the event is in error afterwards.
    pub fn enable(&self, event: EventId) -> Result<(), ControlError> {
        self.control_event(event, Op::Enable)
    }

    /// Disables an event, in its live children too; a leader takes its group off the counters.
    ///
    /// # Errors
    /// [`ControlError::Closed`].
    pub fn disable(&self, event: EventId) -> Result<(), ControlError> {
        self.control_event(event, Op::Disable)
    }

    /// Sets an event's count to 0, with what its children have counted; its times stay.
    ///
    /// Where the counters follow forks by themselves, what exited children have *reported* stays in their family.
    ///
    /// # Errors
    /// [`ControlError::Closed`]; [`ControlError::Bank`] where its own counter can't be read: then all counts stay. Where a
    /// child's can't, the same error, but only that child's count stays.
    pub fn reset(&self, event: EventId) -> Result<(), ControlError> {
        self.control_event(event, Op::Reset)
    }

    /// Enables a group, the leader last, in its live children too.
    ///
    /// # Errors
    /// [`ControlError::Closed`]; [`ControlError::Bank`] where one of its events is in error afterwards.
    pub fn enable_group(&self, group: GroupId) -> Result<(), ControlError> {
        self.control_group(group, Op::Enable)
    }

    /// Disables a group, in its live children too.
    ///
    /// # Errors
    /// [`ControlError::Closed`].
    pub fn disable_group(&self, group: GroupId) -> Result<(), ControlError> {
        self.control_group(group, Op::Disable)
    }

    /// Where an event is in its life.
    ///
    /// # Errors
    /// [`ReadError::Closed`].
    pub fn state(&self, event: EventId) -> Result<EventState, ReadError> {
        let own = |record: &EventRecord<H>| self.look_at_record(record, Event::state);
        self.ask(event, own, |record, view| self.state_of_view(view, own(record)?))
    }

    /// Why an event is in error, why it could not be put on a counter although one was free, or why its counter could not
    /// be read; `None` where nothing is wrong.
    ///
    /// # Errors
    /// [`ReadError::Closed`].
    pub fn fault(&self, event: EventId) -> Result<Option<BankError>, ReadError> {
        self.ask(event, |record| self.look_at_record(record, Event::fault), |_, view| self.fault_of_view(view))
    }

    /// How long an event was enabled without being on a slot, by the engine's clock.
    ///
    /// # Errors
    /// [`ReadError::Closed`].
    pub fn waited(&self, event: EventId) -> Result<crate::id::Nanos, ReadError> {
        self.seen(event).map(|seen| seen.waited)
    }

    /// How long an event's slot was started and yet did not run, because another user, which the engine doesn't know, had the
    /// counter: its time running is less by that. See [`crate::pmu::SlotTime`] for which banks can tell.
    ///
    /// # Errors
    /// [`ReadError::Closed`].
    pub fn contended(&self, event: EventId) -> Result<crate::id::Nanos, ReadError> {
        self.seen(event).map(|seen| seen.contended)
    }

    /// What an event has seen, from memory.
    fn seen(&self, event: EventId) -> Result<Seen, ReadError> {
        let own =
            |record: &EventRecord<H>| self.look_at_last(record.fast_read(), seen_by_then).ok_or(ReadError::Closed);
        let shared =
            |record: &EventRecord<H>, view: &_| self.seen_in_memory(record.fast_read(), view).map(|(seen, _)| seen);
        self.ask(event, own, shared)
    }

    /// The right to an event's slot, for hosts that give slots more uses than counting (a ring, a record's id).
    ///
    /// # Errors
    /// [`ReadError::Closed`], also where it holds no slot now.
    pub fn lease(&self, event: EventId) -> Result<(ContextKey, Lease), ReadError> {
        let record = self.record(event).ok_or(ReadError::Closed)?;
        let lease = record.fast_read().cell.look(self, |context| context.member(record.fast_read().member)?.lease);
        lease.map(|lease| (record.fast_read().cell.key, lease)).ok_or(ReadError::Closed)
    }

    /// What an event counts: the attribute that it was opened with, or that it was given last.
    ///
    /// # Errors
    /// [`ReadError::Closed`].
    pub fn attr(&self, event: EventId) -> Result<Attr, ReadError> {
        self.look_at(event, |member| member.spec.attr)
    }

    fn look_at<R>(&self, event: EventId, f: impl Fn(&Event) -> R) -> Result<R, ReadError> {
        self.look_at_record(&self.record(event).ok_or(ReadError::Closed)?, f)
    }

    pub(super) fn look_at_record<R>(&self, record: &EventRecord<H>, f: impl Fn(&Event) -> R) -> Result<R, ReadError> {
        let fast_read = record.fast_read();
        fast_read.cell.look(self, |context| context.member(fast_read.member).map(&f)).ok_or(ReadError::Closed)
    }

    fn control_event(&self, event: EventId, op: Op) -> Result<(), ControlError> {
        let record = self.record(event).ok_or(ControlError::Closed)?;
        if let Some(view) = &record.fast_read().view {
            return self.control_view(&view.whole, Which::One(view.index), op);
        }
        let own = OpTarget {
            cell: Arc::clone(&record.fast_read().cell),
            target: CtxTarget::Event(record.fast_read().member),
        };
        match record.root_count.and_then(super::RootCount::by_engine) {
            Some((family, index)) => self.carry_through(&own, family, FamilyScope::Event(index), op),
            None => self.apply(&own, op),
        }
    }

    pub(super) fn control_group(&self, group: GroupId, op: Op) -> Result<(), ControlError> {
        let (own, family, view) = self
            .registry
            .with(|registry| {
                let record = registry.groups.get(group)?;
                let own = OpTarget { cell: Arc::clone(&record.cell), target: CtxTarget::Group(record.group) };
                Some((own, record.family, record.view.clone()))
            })
            .ok_or(ControlError::Closed)?;
        if let Some(view) = view {
            return self.control_view(&view, Which::All, op);
        }
        match family {
            Some(family) => self.carry_through(&own, family, FamilyScope::Group, op),
            None => self.apply(&own, op),
        }
    }

    /// Does it to a root and to all its live children.
    fn carry_through(
        &self,
        own: &OpTarget<H>,
        family: FamilyId,
        scope: FamilyScope,
        op: Op,
    ) -> Result<(), ControlError> {
        let turn = self.registry.with(|registry| registry.families.get(family).map(|record| Arc::clone(&record.turn)));
        let Some(turn) = turn else { return self.apply(own, op) };
        turn.with(|()| {
            let mut pass = self.registry.with(|registry| begin(registry, family, scope, op));
            let mut result = self.apply(own, op);
            if op == Op::Reset && result.is_err() {
                return result;
            }
            while let Pass::Children(children, joined) = pass {
                for child in &children {
                    // A child that has exited meanwhile has nothing left to switch.
                    if let Err(error @ ControlError::Bank(_)) = self.apply(child, op)
                        && op == Op::Reset
                    {
                        result = result.and(Err(error));
                    }
                }
                pass = self.registry.with(|registry| proceed(registry, family, scope, op, joined));
            }
            result
        })
    }

    fn apply(&self, place: &OpTarget<H>, op: Op) -> Result<(), ControlError> {
        let target = place.target;
        let step = move |context: &mut Context, step: Step<'_>| match (target, op) {
            (CtxTarget::Event(member), Op::Enable) => context.enable(member, step),
            (CtxTarget::Event(member), Op::Disable) => context.disable(member, step),
            (CtxTarget::Event(member), Op::Reset) => context.reset(member, step),
            (CtxTarget::Group(group), Op::Enable) => context.enable_group(group, step),
            (CtxTarget::Group(group), Op::Disable) => context.disable_group(group, step),
            (CtxTarget::Group(group), Op::Reset) => context.reset_group(group, step),
        };
        place.cell.ask(self, Purpose::Change, step, |context| {
            let members = match &target {
                CtxTarget::Event(member) => core::slice::from_ref(member),
                CtxTarget::Group(group) => &context.group(*group).ok_or(ControlError::Closed)?.members[..],
            };
            for &member in members {
                outcome(context.member(member).ok_or(ControlError::Closed)?, op)?;
            }
            Ok(())
        })
    }
}

/// What a step has led to.
pub(super) fn outcome(member: &Event, op: Op) -> Result<(), ControlError> {
    let failed = match op {
        Op::Enable => member.state() == EventState::Error,
        Op::Disable => false,
        Op::Reset => member.state() != EventState::Error && member.reading().is_err(),
    };
    match failed {
        true => Err(ControlError::Bank(member.fault().unwrap_or(BankError::Unscheduled))),
        false => Ok(()),
    }
}

fn begin<H: Host>(registry: &mut Registry<H>, family: FamilyId, scope: FamilyScope, op: Op) -> Pass<H> {
    if op != Op::Reset {
        note(registry, family, scope, op);
    }
    match registry.families.get(family) {
        Some(record) => Pass::Children(children(registry, family, scope), record.family.joined()),
        None => Pass::Done,
    }
}

/// All children have been reached, unless some have joined meanwhile.
fn proceed<H: Host>(registry: &mut Registry<H>, family: FamilyId, scope: FamilyScope, op: Op, joined: u64) -> Pass<H> {
    let now = registry.families.get(family).map(|record| record.family.joined());
    match now {
        Some(now) if now != joined => Pass::Children(children(registry, family, scope), now),
        Some(_) => {
            note(registry, family, scope, op);
            Pass::Done
        }
        None => Pass::Done,
    }
}

/// Marks the begin or the end of a switch. A reset is one at its end: what children report until then is forgotten.
fn note<H: Host>(registry: &mut Registry<H>, family: FamilyId, scope: FamilyScope, op: Op) {
    let Some(FamilyRecord { family, .. }) = registry.families.get_mut(family) else { return };
    let indices = match scope {
        FamilyScope::Event(index) => index..index + 1,
        FamilyScope::Group => 0..family.roots().len(),
    };
    for index in indices {
        match op {
            Op::Enable => family.note_switch(index, FamilySwitch::On),
            Op::Disable => family.note_switch(index, FamilySwitch::Off),
            Op::Reset => family.reset(index),
        }
    }
}

fn children<H: Host>(registry: &Registry<H>, family: FamilyId, scope: FamilyScope) -> Vec<OpTarget<H>> {
    let Some(family) = registry.families.get(family).map(|record| &record.family) else { return Vec::new() };
    let place = |(_, group): (_, GroupId)| {
        let record = registry.groups.get(group)?;
        let target = match scope {
            FamilyScope::Event(index) => CtxTarget::Event(record.fast_reads.get(index)?.member),
            FamilyScope::Group => CtxTarget::Group(record.group),
        };
        Some(OpTarget { cell: Arc::clone(&record.cell), target })
    };
    family.counted().filter_map(place).collect()
}
