//! Joining a share, leaving it, and having a master for oneself.
//!
//! **Invariant:** a master is opened by whoever has its turn first, and closed with its last view; nobody finds it in between
//! who could not join it.

use super::super::claims::Asked;
use super::super::open::enroll_events;
use super::super::tap::{Tap, Taps};
use super::super::{Engine, EventRecord, Gate, GroupRecord, Registry};
use super::control::Failed;
use super::{EventView, GroupView, Life, Master, Question, ShareCell, seen_from_memory};
use crate::context::{Context, ContextKey, Side, Weight};
use crate::error::{ModifyError, OpenError};
use crate::event::EventState;
use crate::group::{GroupSpec, Plan, resolve};
use crate::host::{Host, LockCell};
use crate::id::{EventId, GroupId};
use crate::pmu::{BankError, CounterBank as _, Delegated, Lease};
use crate::share::{Domain, Stance, Which};
use crate::shell::{Opened, Target};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags};

/// What came of asking to join.
enum Joining {
    Joined(Opened),
    Refused(OpenError),
    /// The master has gone just now.
    Again,
}

impl<H: Host> Engine<H> {
    /// Opens a group as a view, or by itself where it shares with nobody.
    pub(in crate::shell) fn open_shared(
        &self,
        plan: &Plan,
        target: Target,
        gate: Gate,
        domain: Domain,
        asked: Option<Asked<H>>,
    ) -> Result<Opened, OpenError> {
        let Some(question) = self.question(plan, target, domain) else {
            return self.open_own(plan, target, gate, asked);
        };
        let mut asked = asked;
        loop {
            let (share, first) = self.registry.with(|registry| registry.shares.find(&question));
            match share.turn.with(|life| self.join_share(&share, life, first, (plan, gate), &mut asked)) {
                Joining::Joined(opened) => return Ok(opened),
                Joining::Refused(error) => return Err(error),
                Joining::Again => {}
            }
        }
    }

    fn join_share(
        &self,
        share: &Arc<ShareCell<H>>,
        life: &mut Life<H>,
        first: usize,
        (plan, gate): (&Plan, Gate),
        asked: &mut Option<Asked<H>>,
    ) -> Joining {
        let events = plan.members.len();
        match life {
            Life::Gone => return Joining::Again,
            Life::Counts(master) if self.is_over(share, master) || self.has_heirs(master) => {
                // Those who have a view of it keep it; whoever comes now has come too late, and so have all who come later.
                self.registry.with(|registry| registry.shares.forget(share));
                return Joining::Again;
            }
            Life::Counts(_) => {}
            Life::Unborn => match self.found_master(share, plan, asked.take()) {
                Ok(master) => *life = Life::Counts(master),
                Err(error) => {
                    *life = Life::Gone;
                    self.registry.with(|registry| registry.shares.forget(share));
                    return Joining::Refused(error);
                }
            },
        }
        let Life::Counts(master) = life else { return Joining::Again };
        let view = Arc::new(GroupView::new(share, share.book.with(|book| book.join(first, events))));
        let bound_to = share.question.target.bound_to();
        let opened = self.registry.with(|registry| {
            // The CPU may have gone meanwhile.
            match bound_to.filter(|&cpu| !registry.online.contains(cpu)) {
                Some(cpu) => Err(OpenError::CpuOffline { cpu }),
                None => Ok(enroll_view(registry, &view, master, (first, events), gate)),
            }
        });
        match opened {
            Ok(opened) => Joining::Joined(opened),
            Err(error) => {
                self.leave_share(&view, life);
                Joining::Refused(error)
            }
        }
    }

    fn found_master(
        &self,
        share: &Arc<ShareCell<H>>,
        plan: &Plan,
        asked: Option<Asked<H>>,
    ) -> Result<Master<H>, OpenError> {
        let since = self.host.now();
        let opened = self.open_own(plan, share.question.target, Gate::Open, asked)?;
        let found = self.registry.with(|registry| {
            registry.shares.admit(share, &opened);
            let record = registry.groups.get(opened.group)?;
            Some((Arc::clone(&record.cell), Arc::clone(&record.taps)))
        });
        // Nobody else knows its ids.
        let (cell, taps) = found.ok_or(OpenError::EmptyGroup)?;
        let on = alloc::vec![false; opened.events.len()];
        Ok(Master { opened, cell, taps, on, weight: Weight::ONE, since })
    }

    /// Whether what a master counts is gone, so that nobody can ask for it any more.
    fn is_over(&self, share: &ShareCell<H>, master: &Master<H>) -> bool {
        let dead = |tap: &Tap<H>| {
            let state = master.cell.look(self, |context| context.member(tap.member).map(crate::event::Member::state));
            state.is_none_or(|state| state == EventState::Dead)
        };
        let replaced = match share.question.target.context {
            ContextKey::Task(task) => !self.host.is_still(task, master.since),
            ContextKey::Cpu(_) => false,
        };
        replaced || master.taps.iter().any(dead) || self.has_ended(master)
    }

    /// Whether the host has ended what a master counts although its task lives. All events of a group end together.
    fn has_ended(&self, master: &Master<H>) -> bool {
        let (ContextKey::Task(_), Some(leader)) = (master.cell.key, master.taps.first()) else { return false };
        // The seat first: while it is held, the slot that the member has is one that the bank holds.
        master.cell.seat.with(|seat| {
            let lease = master.cell.place.with(|place| {
                let context = place.core.context(Side::Own).filter(|_| place.away.is_none())?;
                context.member(leader.member)?.lease
            });
            lease.zip(seat.banks.own.as_mut()).is_some_and(|(lease, bank)| bank.has_ended(lease))
        })
    }

    /// Whether children count for a master, or may do so: an event that is opened now does not follow those who were forked
    /// before.
    fn has_heirs(&self, master: &Master<H>) -> bool {
        let family = self.registry.with(|registry| registry.groups.get(master.opened.group)?.family);
        if let Some(family) = family {
            return self.with_family(family, |family| family.live() > 1).unwrap_or(false);
        }
        if !matches!(master.cell.key, ContextKey::Task(_)) {
            return false;
        }
        let follows = |member: &crate::event::Member| {
            let inherits = member.spec.attr.flags.contains(AttrFlags::INHERIT);
            inherits && member.delegates(Delegated::INHERITANCE)
        };
        let inheriting = |context: &Context| -> Vec<Option<Lease>> {
            let member = |tap: &Tap<H>| context.member(tap.member).filter(|member| follows(member));
            master.taps.iter().filter_map(member).map(|member| member.lease).collect()
        };
        if master.cell.look(self, |context| inheriting(context).is_empty()) {
            return false;
        }
        // The seat first, as in `has_ended`. What is not here, or has no slot, may have any.
        master.cell.seat.with(|seat| {
            let leases = master.cell.place.with(|place| {
                let context = place.core.context(Side::Own).filter(|_| place.away.is_none());
                context.map(inheriting)
            });
            let (Some(leases), Some(bank)) = (leases, seat.banks.own.as_mut()) else { return true };
            leases.into_iter().any(|lease| lease.is_none_or(|lease| bank.may_have_heirs(lease)))
        })
    }

    /// A group that is a view is closed; its ids are gone already.
    pub(in crate::shell) fn close_view(&self, view: &GroupView<H>) {
        view.share.turn.with(|life| self.leave_share(view, life));
    }

    /// A view ends, and with the last one its master.
    fn leave_share(&self, view: &GroupView<H>, life: &mut Life<H>) {
        let share = &view.share;
        let left = view.change(|book| {
            book.leave(view.key);
            book.views()
        });
        let Life::Counts(master) = life else { return };
        if left > 0 {
            // Nobody is there to be told of a refusal; whoever reads will see it.
            let _ = self.align(share, master, &Failed::Stay);
            return;
        }
        self.registry.with(|registry| registry.shares.forget(share));
        let Life::Counts(master) = core::mem::replace(life, Life::Gone) else { return };
        self.registry.with(|registry| registry.shares.dismiss(&master.opened));
        self.close(master.opened.group);
    }

    /// Makes a view that is the only one of its master an ordinary group again, under its ids: what it had counted and what is
    /// on stays. Returns whether it could. Whose turn it is to move events is held, and no child lives: what those had counted
    /// who exited is the group's own from now on.
    pub(in crate::shell) fn take_for_oneself(&self, view: &GroupView<H>, group: GroupId) -> bool {
        let taken = view.share.turn.with(|life| {
            let Life::Counts(master) = life else { return None };
            let whole = master.opened.events.len();
            let (may, waits) = view.book(|book| {
                let alone = book.views() == 1 && book.place(view.key) == Some((0, whole));
                let waits: Vec<_> =
                    (0..whole).filter(|&index| book.stance(view.key, index) == Some(Stance::Waits)).collect();
                (alone, waits)
            });
            if !may {
                return None;
            }
            let exited = self.registry.with(|registry| {
                let family = registry.groups.get(master.opened.group)?.family?;
                let family = &registry.families.get(family)?.family;
                Some((0..whole).map(|index| family.retired(index)).collect::<Vec<_>>())
            });
            let exited = exited.unwrap_or_default();
            // First the counts, then the names: who reads by the old names in between finds that it was handed in, and waits for
            // the turn (see `ask`); nobody finds the counts by the new names before they mean what the names say.
            master.cell.step_here(self, |context, _| {
                for (index, tap) in master.taps.iter().enumerate() {
                    let Some(member) = context.member_mut(tap.member) else { continue };
                    // What a view has seen says nothing to a master that knows less than it had seen by then.
                    tap.bring_up_to_date(member);
                    let mut now = seen_from_memory(member);
                    now.count += exited.get(index).copied().unwrap_or_default();
                    let seen = view.book(|book| book.seen(view.key, index, &now));
                    seen.into_iter().for_each(|seen| member.restate(seen));
                }
                view.change(|book| book.hand_in(view.key));
            });
            // Whoever has closed it meanwhile is waiting for the turn.
            let events = self.registry.with(|registry| {
                let events = rename(registry, &master.opened, group)?;
                registry.shares.forget(&view.share);
                registry.shares.dismiss(&master.opened);
                let family = registry.groups.get(group).and_then(|record| record.family);
                if let Some(record) = family.and_then(|family| registry.families.get_mut(family)) {
                    record.family.write_off(&exited);
                }
                view.change(|book| book.leave(view.key));
                Some(events)
            })?;
            *life = Life::Gone;
            Some((events, waits))
        });
        let Some((events, waits)) = taken else { return false };
        for index in waits {
            if let Some(&event) = events.get(index) {
                // It waits for its leader as before; that can't fail.
                let _ = self.enable(event);
            }
        }
        true
    }

    /// Lets an event of a view that is not alone count something else: its group gets another master, and goes on with what it
    /// had counted.
    pub(in crate::shell) fn move_view(
        &self,
        view: &EventView<H>,
        group: GroupId,
        attr: &Attr,
    ) -> Result<(), ModifyError> {
        let spec = self.registry.with(|registry| {
            let events = &registry.groups.get(group)?.events;
            let members: Vec<_> =
                events.iter().filter_map(|&event| registry.events.get(event)).map(EventRecord::clone).collect();
            Some(members)
        });
        let records = spec.ok_or(ModifyError::Closed)?;
        let mut events = Vec::with_capacity(records.len());
        for (index, record) in records.iter().enumerate() {
            let (pmu, before) = record
                .tap()
                .cell
                .look(self, |context| {
                    context.member(record.tap().member).map(|member| (member.spec.pmu, member.spec.attr))
                })
                .ok_or(ModifyError::Closed)?;
            events.push((pmu, if index == view.index { *attr } else { before }));
        }
        let old = &view.whole;
        let Question { target, domain, .. } = old.share.question;
        let plan = resolve(&GroupSpec { events }, domain.cred(), &self.host).map_err(not_opened)?;
        // First the new one, so that nothing is lost where there is none.
        let opened = self.open_plan(&plan, target, Gate::Open, domain, None).map_err(not_opened)?;
        self.move_to(view, group, &opened)
    }

    /// Lets a view's group go on as `opened`, which is open and nobody knows.
    ///
    /// # Errors
    /// [`ModifyError::Closed`]: it was closed meanwhile, and so is `opened`.
    pub(in crate::shell) fn move_to(
        &self,
        view: &EventView<H>,
        group: GroupId,
        opened: &Opened,
    ) -> Result<(), ModifyError> {
        let old = &view.whole;
        let stances: Vec<_> =
            (0..opened.events.len()).map(|index| old.book(|book| book.stance(old.key, index))).collect();
        // A refusal of the old counters concerns nobody any more.
        let _ = self.control_view(old, Which::All, super::super::control::Verb::Disable);
        let now = crate::share::Seen::default();
        let seen = |index| old.book(|book| book.seen(old.key, index, &now)).unwrap_or_default();
        let seen: Vec<_> = (0..opened.events.len()).map(seen).collect();
        // Before anybody can ask it.
        match self.view_of(opened.group) {
            Some(fresh) => fresh.change(|book| {
                seen.iter().enumerate().for_each(|(index, &seen)| book.succeed(fresh.key, index, seen));
            }),
            None => self.restate(opened.group, &seen),
        }
        if self.registry.with(|registry| rename(registry, opened, group)).is_none() {
            // It was closed meanwhile, and what it saw with it.
            self.close(opened.group);
            return Err(ModifyError::Closed);
        }
        self.close_view(old);
        let events = self.events(group).unwrap_or_default();
        // The leader last, so that the group starts as one.
        for (&event, stance) in events.iter().zip(stances).rev() {
            if matches!(stance, Some(Stance::Counts | Stance::Waits)) {
                // An event that is in error now says so.
                let _ = self.enable(event);
            }
        }
        Ok(())
    }

    /// A group that shares with nobody goes on from what its events had seen.
    fn restate(&self, group: GroupId, seen: &[crate::share::Seen]) {
        let Some((cell, key)) = self.group_cell(group) else { return };
        cell.step_here(self, |context, _| {
            let members = context.group(key).map(|group| group.members.clone()).unwrap_or_default();
            for (key, &seen) in members.into_iter().zip(seen) {
                if let Some(member) = context.member_mut(key) {
                    let mut all = seen_from_memory(member);
                    all += seen;
                    member.restate(all);
                }
            }
        });
    }
}

/// The view of a group that found no counter, as its event is told.
pub(in crate::shell) const fn not_opened(error: OpenError) -> ModifyError {
    match error {
        OpenError::Parse { error, .. } => ModifyError::Parse(error),
        OpenError::DebugRegisters { full, taken, .. } => ModifyError::DebugRegisters { full, taken },
        OpenError::Bank { error, .. } => ModifyError::Bank(error),
        _ => ModifyError::Bank(BankError::Invalid),
    }
}

/// Gives ids to a view.
fn enroll_view<H: Host>(
    registry: &mut Registry<H>,
    view: &Arc<GroupView<H>>,
    master: &Master<H>,
    (first, events): (usize, usize),
    gate: Gate,
) -> Opened {
    let (cell, group_key) = match registry.groups.get(master.opened.group) {
        Some(record) => (Arc::clone(&record.cell), record.group),
        None => return Opened { group: master.opened.group, events: Vec::new() },
    };
    let tap = |index: usize| {
        let event = master.opened.events[first + index];
        let kin = registry.events.get(event).and_then(|record| record.kin);
        let view = EventView { whole: Arc::clone(view), index, master: event, kin };
        Tap::shared(&master.taps[first + index], view)
    };
    let taps: Taps<H> = (0..events).map(tap).collect();
    let group = registry.groups.insert(GroupRecord {
        cell,
        group: group_key,
        events: Vec::new(),
        taps: Arc::clone(&taps),
        family: None,
        reserved: Vec::new(),
        view: Some(Arc::clone(view)),
    });
    let events = enroll_events(registry, group, &taps, gate);
    for (&event, &master) in events.iter().zip(&master.opened.events[first..]) {
        registry.shares.listen(view.share.question.domain, master, event);
    }
    if let Some(record) = registry.groups.get_mut(group) {
        record.events.clone_from(&events);
    }
    Opened { group, events }
}

/// Lets what is known as `opened` be known as `group`, which names something else so far. Returns the events of `group`; `None`
/// where that has been closed.
fn rename<H: Host>(registry: &mut Registry<H>, opened: &Opened, group: GroupId) -> Option<Vec<EventId>> {
    registry.groups.get(group)?;
    let fresh = registry.groups.remove(opened.group)?;
    let mut events = Vec::new();
    if let Some(record) = registry.groups.get_mut(group) {
        events.clone_from(&record.events);
        record.cell = fresh.cell;
        record.group = fresh.group;
        record.taps = fresh.taps;
        record.family = fresh.family;
        record.reserved = fresh.reserved;
        record.view = fresh.view;
        for (index, held) in &record.reserved {
            if let Some(&event) = events.get(*index) {
                held.name(event);
            }
        }
    }
    let family = registry.groups.get(group).and_then(|record| record.family);
    if let Some(record) = family.and_then(|family| registry.families.get_mut(family)) {
        record.family.rename(&events);
    }
    for (&from, &to) in opened.events.iter().zip(&events) {
        if let Some(fresh) = registry.events.remove(from)
            && let Some(record) = registry.events.get_mut(to)
        {
            let (gate, output) = (record.gate, record.output.take());
            let master = |record: &EventRecord<H>| record.tap().view.as_ref().map(|view| view.master);
            let (seen, sees) = (master(record), master(&fresh));
            *record = EventRecord { group, gate, output, ..fresh };
            registry.shares.see_instead((seen, to), (sees, from));
        }
    }
    Some(events)
}
