//! Joining a share, leaving it, and having a master for oneself.
//!
//! **Invariant:** a master is opened by the thread that has its turn first, and closed with its last view; in between, no group
//! finds it that could not join it.

use super::super::bp_reserve::Asked;
use super::super::fast_read::{FastRead, FastReads};
use super::super::open::register_events;
use super::super::{Engine, Gate, GroupRecord, Registry};
use super::control::Failed;
use super::{EventSubscription, GroupSubscription, Life, Master, ShareCell};
use crate::context::{Context, Ctx};
use crate::error::{ModifyError, OpenError};
use crate::event::EventState;
use crate::group::Plan;
use crate::host::Host;
use crate::lock::LockCell;
use crate::pmu::{BankError, CounterBank as _, Delegated, Lease};
use crate::share::{SharingScope, Subscriber};
use crate::target::ContextKey;
use crate::target::{Opened, Target};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pmux_abi::attr::AttrFlags;

enum ShareJoin {
    Joined(Opened),
    Refused(OpenError),
    /// The master has gone just now.
    Again,
}

impl<H: Host> Engine<H> {
    /// Opens a group as a view, or by itself where it shares with no other group.
    pub(in crate::engine) fn open_shared(
        &self,
        plan: &Plan,
        target: Target,
        gate: Gate,
        domain: SharingScope,
        asked: Option<Asked<H>>,
    ) -> Result<Opened, OpenError> {
        let Some(question) = self.question(plan, target, domain) else {
            return self.open_own(plan, target, gate, asked);
        };
        let mut asked = asked;
        loop {
            let (share, first) = self.registry.with(|registry| registry.shares.find(&question));
            match share.turn.with(|life| self.join_share(&share, life, first, (plan, gate), &mut asked)) {
                ShareJoin::Joined(opened) => return Ok(opened),
                ShareJoin::Refused(error) => return Err(error),
                ShareJoin::Again => {}
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
    ) -> ShareJoin {
        let events = plan.members.len();
        match life {
            Life::Gone => return ShareJoin::Again,
            Life::Counts(master) if master.kept || self.is_over(share, master) || self.master_has_children(master) => {
                // Groups that have a view of it keep it; a group that comes now has come too late, and so have all that come later.
                self.registry.with(|registry| registry.shares.forget(share));
                return ShareJoin::Again;
            }
            Life::Counts(_) => {}
            Life::Unborn => match self.found_master(share, plan, asked.take()) {
                Ok(master) => *life = Life::Counts(master),
                Err(error) => {
                    *life = Life::Gone;
                    self.registry.with(|registry| registry.shares.forget(share));
                    return ShareJoin::Refused(error);
                }
            },
        }
        let Life::Counts(master) = life else { return ShareJoin::Again };
        let subscriber = Subscriber::new(first, events);
        let view = Arc::new(GroupSubscription::new(share, share.book.with(|book| book.join(subscriber))));
        let bound_to = share.question.target.bound_to();
        let opened = self.registry.with(|registry| {
            // The CPU may have gone meanwhile.
            match bound_to.filter(|&cpu| !registry.online.contains(cpu)) {
                Some(cpu) => Err(OpenError::CpuOffline { cpu }),
                None => Ok(register_view(registry, &view, master, (first, events), gate)),
            }
        });
        match opened {
            Ok(opened) => ShareJoin::Joined(opened),
            Err(error) => {
                self.leave_share(&view, life);
                ShareJoin::Refused(error)
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
            Some((Arc::clone(&record.cell), Arc::clone(&record.fast_reads)))
        });
        // No other code knows its ids.
        let (cell, fast_reads) = found.ok_or(OpenError::EmptyGroup)?;
        let on = alloc::vec![false; opened.events.len()];
        Ok(Master { opened, cell, fast_reads, on, since, kept: false })
    }

    /// Whether what a master counts is gone, so that no group can ask for it any more.
    fn is_over(&self, share: &ShareCell<H>, master: &Master<H>) -> bool {
        let dead = |fast_read: &FastRead<H>| {
            let state =
                master.cell.look(self, |context| context.member(fast_read.member).map(crate::event::Event::state));
            state.is_none_or(|state| state == EventState::Dead)
        };
        let replaced = match share.question.target.context {
            ContextKey::Task(task) => !self.host.is_still(task, master.since),
            ContextKey::Cpu(_) => false,
        };
        replaced || master.fast_reads.iter().any(dead) || self.has_ended(master)
    }

    /// Whether the host has ended what a master counts although its task lives. All events of a group end together.
    fn has_ended(&self, master: &Master<H>) -> bool {
        let (ContextKey::Task(_), Some(leader)) = (master.cell.key, master.fast_reads.first()) else { return false };
        // The guard first: while it is held, the slot that the member has is one that the bank holds.
        master.cell.pmu_guard.with(|guard| {
            let lease = master.cell.place.with(|place| {
                let context = place.core.context(Ctx::Cpu).filter(|_| place.away.is_none())?;
                context.member(leader.member)?.lease
            });
            lease.zip(guard.banks.own.as_mut()).is_some_and(|(lease, bank)| bank.has_ended(lease))
        })
    }

    /// Whether children count for a master, or may do so: an event that is opened now does not follow those who were forked
    /// before.
    fn master_has_children(&self, master: &Master<H>) -> bool {
        let family = self.registry.with(|registry| registry.groups.get(master.opened.group)?.family);
        if let Some(family) = family {
            return self.with_family(family, |family| family.live() > 1).unwrap_or(false);
        }
        if !matches!(master.cell.key, ContextKey::Task(_)) {
            return false;
        }
        let follows = |member: &crate::event::Event| {
            let inherits = member.spec.attr.flags.contains(AttrFlags::INHERIT);
            inherits && member.delegates(Delegated::INHERITANCE)
        };
        let inheriting = |context: &Context| -> Vec<Option<Lease>> {
            let member = |fast_read: &FastRead<H>| context.member(fast_read.member).filter(|member| follows(member));
            master.fast_reads.iter().filter_map(member).map(|member| member.lease).collect()
        };
        if master.cell.look(self, |context| inheriting(context).is_empty()) {
            return false;
        }
        // The guard first, as in `has_ended`. What is not here, or has no slot, may have any.
        master.cell.pmu_guard.with(|guard| {
            let leases = master.cell.place.with(|place| {
                let context = place.core.context(Ctx::Cpu).filter(|_| place.away.is_none());
                context.map(inheriting)
            });
            let (Some(leases), Some(bank)) = (leases, guard.banks.own.as_mut()) else { return true };
            leases.into_iter().any(|lease| lease.is_none_or(|lease| bank.may_have_heirs(lease)))
        })
    }

    /// A group that is a view is closed; its ids are gone already.
    pub(in crate::engine) fn close_view(&self, view: &GroupSubscription<H>) {
        view.share.turn.with(|life| self.leave_share(view, life));
    }

    /// A view ends, and with the last one its master.
    fn leave_share(&self, view: &GroupSubscription<H>, life: &mut Life<H>) {
        let share = &view.share;
        let (gone, left) = view.change(|book| (book.leave(view.key), book.views()));
        drop(gone);
        let Life::Counts(master) = life else { return };
        if left > 0 {
            // No client is there to be told of a refusal; a client that reads will see it.
            let _ = self.align(share, master, &Failed::Stay);
            return;
        }
        self.registry.with(|registry| registry.shares.forget(share));
        let Life::Counts(master) = core::mem::replace(life, Life::Gone) else { return };
        self.registry.with(|registry| registry.shares.dismiss(&master.opened));
        self.close(master.opened.group);
    }

    /// A view that is the only one of its master has that for itself from now on: no question finds it any more.
    ///
    /// # Errors
    /// [`ModifyError::Shared`] where there are others, [`ModifyError::Closed`].
    pub(in crate::engine) fn keep_for_oneself(
        &self,
        view: &GroupSubscription<H>,
        life: &mut Life<H>,
    ) -> Result<(), ModifyError> {
        let (place, views) = view.book(|book| (book.place(view.key), book.views()));
        match life {
            Life::Counts(master) if place.is_some() && views == 1 => {
                // A thread that has found it already looks here when it has the turn.
                master.kept = true;
                self.registry.with(|registry| registry.shares.forget(&view.share));
                Ok(())
            }
            Life::Counts(_) if place.is_some() => Err(ModifyError::Shared),
            _ => Err(ModifyError::Closed),
        }
    }
}

/// The refusal of a group, as an error of the change.
pub(in crate::engine) const fn not_opened(error: OpenError) -> ModifyError {
    match error {
        OpenError::Parse { error, .. } => ModifyError::Parse(error),
        OpenError::DebugRegisters { full, taken, .. } => ModifyError::DebugRegisters { full, taken },
        OpenError::Bank { error, .. } => ModifyError::Bank(error),
        _ => ModifyError::Bank(BankError::Invalid),
    }
}

/// Gives ids to a view.
fn register_view<H: Host>(
    registry: &mut Registry<H>,
    view: &Arc<GroupSubscription<H>>,
    master: &Master<H>,
    (first, events): (usize, usize),
    gate: Gate,
) -> Opened {
    let (cell, group_key) = match registry.groups.get(master.opened.group) {
        Some(record) => (Arc::clone(&record.cell), record.group),
        None => return Opened { group: master.opened.group, events: Vec::new() },
    };
    let fast_read = |index: usize| {
        let event = master.opened.events[first + index];
        let root_count = registry.events.get(event).and_then(|record| record.root_count);
        let view = EventSubscription { whole: Arc::clone(view), index, master: event, root_count };
        FastRead::shared(&master.fast_reads[first + index], view)
    };
    let fast_reads: FastReads<H> = (0..events).map(fast_read).collect();
    let group = registry.groups.insert(GroupRecord {
        cell,
        group: group_key,
        events: Vec::new(),
        fast_reads: Arc::clone(&fast_reads),
        family: None,
        reserved: Vec::new(),
        view: Some(Arc::clone(view)),
    });
    let events = register_events(registry, group, &fast_reads, gate);
    for (&event, &master) in events.iter().zip(&master.opened.events[first..]) {
        registry.shares.listen(view.share.question.domain, master, event);
    }
    if let Some(record) = registry.groups.get_mut(group) {
        record.events.clone_from(&events);
    }
    Opened { group, events }
}
