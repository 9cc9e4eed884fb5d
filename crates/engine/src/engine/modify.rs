//! An open event comes to count something else: another address, another length, another kind of access.
//!
//! What it is: the step of one event, where it has its counter for itself. One that could share, and does not, changes its master,
//! which the old question no longer finds.
//!
//! **Invariant:** reserve, then swap: what the event needs anew is reserved before anything is touched, and what it had is
//! given back when it has changed. An event that can't be changed has lost nothing.

use super::bp_reserve::{Asked, BpRequest, HeldRegisters, InheritedBy, Reserved};
use super::ctx_lock::Purpose;
use super::{Engine, EventRecord};
use crate::context::Context;
use crate::error::ModifyError;
use crate::event;
use crate::host::Host;
use crate::hw_breakpoint::{Full, ReserveError, Taken};
use crate::id::{EventId, FamilyId};
use crate::lock::LockCell;
use crate::pmu::{BankError, EventSpec};
use crate::target::Target;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pmux_abi::attr::Attr;

impl<H: Host> Engine<H> {
    /// Lets an event count what `attr` says from now on. Its count and its times go on, and it counts on if it counted; where
    /// its slot is scarce, it may have to wait for another one.
    ///
    /// What may differ from the attribute that it was opened with is for its counters to say; Linux lets a breakpoint have
    /// another address, length and access.
    ///
    /// An event whose counter others use is not changed: they would come to count something else, too. Open another one, then close this
    /// one. An event that has its counter alone takes no subscribers from then on, also where the change is refused in the end.
    ///
    /// # Errors
    /// Then it counts what it counted. Checked in this order: [`ModifyError::Closed`], [`ModifyError::Parse`],
    /// [`ModifyError::Inherited`] where children are alive for which the engine counts, [`ModifyError::Bank`] where what it watched
    /// is gone, [`ModifyError::Shared`], [`ModifyError::DebugRegisters`], [`ModifyError::Bank`].
    pub fn modify(&self, event: EventId, attr: &Attr) -> Result<(), ModifyError> {
        let record = self.record(event).ok_or(ModifyError::Closed)?;
        let Some(view) = &record.fast_read().view else { return self.modify_own(event, attr, || Ok(())) };
        // With the turn, so that no event joins meanwhile.
        view.whole.in_turn(|life| self.modify_own(view.master, attr, || self.keep_for_oneself(&view.whole, life)))
    }

    /// Changes an event with counters of its own, if `may` says so.
    fn modify_own(
        &self,
        event: EventId,
        attr: &Attr,
        may: impl FnOnce() -> Result<(), ModifyError>,
    ) -> Result<(), ModifyError> {
        // One at a time: what an event has reserved and what its slot was told belong together.
        self.modifying.with(|()| {
            let record = self.record(event).ok_or(ModifyError::Closed)?;
            let look = |context: &Context| {
                context.member(record.fast_read().member).map(|member| (*member.spec, member.filter, member.state()))
            };
            let (before, filter, state) = record.fast_read().cell.look(self, look).ok_or(ModifyError::Closed)?;
            let model = self.host.pmu(before.pmu).ok_or(ModifyError::Closed)?;
            let after = model.parse(before.pmu, attr).map_err(ModifyError::Parse)?;
            let after = EventSpec { cred: before.cred, ..after };
            let target = Target { context: record.fast_read().cell.key, filter };
            let family = record.root_count.and_then(super::RootCount::by_engine).map(|(family, _)| family);
            let has_children = || family.is_some_and(|family| self.has_children(family));
            if has_children() {
                return Err(ModifyError::Inherited);
            }
            if state == event::EventState::Dead {
                return Err(ModifyError::Bank(BankError::NoSuchTask));
            }
            may()?;
            let given_up = self.modify_claimed(event, &record, (&before, &after), target, None)?;
            // A child that was forked meanwhile may have got either.
            if has_children() {
                self.modify_claimed(event, &record, (&after, &before), target, Some(Asked::of(given_up)))?;
                return Err(ModifyError::Inherited);
            }
            Ok(())
        })
    }

    fn has_children(&self, family: FamilyId) -> bool {
        self.with_family(family, |family| family.live() > 1).unwrap_or(false)
    }

    /// With the debug registers that it takes: `asked` is what came of asking for others than it has, `None`: none were asked for.
    /// Returns what it had and needs no more, for a caller that may want it back.
    fn modify_claimed(
        &self,
        event: EventId,
        record: &EventRecord<H>,
        (before, after): (&EventSpec, &EventSpec),
        target: Target,
        asked: Option<Asked<H>>,
    ) -> Result<Reserved<H>, ModifyError> {
        let held = self.held_by(event, record);
        let (Some(old), Some(new), Some(own)) = (before.claim, after.claim, &held) else {
            return self.modify_anew(event, record, after, target, asked);
        };
        if !self.serves(before, after) {
            return self.modify_anew(event, record, after, target, asked);
        }
        // What it has serves the new claim as well. It never has too little, and less only once all is done.
        if new.weight > old.weight {
            own.modify(new, target).map_err(|refused| match refused {
                ReserveError::Full(full) => known(full),
                _ => ModifyError::Closed,
            })?;
        }
        let result = self.modify_slot(record, after);
        let claim = if result.is_ok() { new } else { old };
        // It is no more than it has: that is always granted.
        let _ = own.modify(claim, target);
        result.map(|()| Reserved::new()).map_err(ModifyError::Bank)
    }

    /// Whether the debug registers that an event has are of the sort that it needs when it has changed.
    fn serves(&self, before: &EventSpec, after: &EventSpec) -> bool {
        let claims = before.claim.zip(after.claim);
        claims.is_some_and(|(old, new)| {
            self.ledger().is_some_and(|ledger| ledger.registers().compete(old.kind, new.kind))
        })
    }

    /// With debug registers of another sort than those that it has, if it has any.
    fn modify_anew(
        &self,
        event: EventId,
        record: &EventRecord<H>,
        after: &EventSpec,
        target: Target,
        asked: Option<Asked<H>>,
    ) -> Result<Reserved<H>, ModifyError> {
        let index = self.index_of(event, record);
        let inherited_by =
            self.host.pmu(after.pmu).map_or(InheritedBy::NoTask, |model| InheritedBy::of(after, model.caps(), target));
        let requests: Vec<BpRequest> =
            after.claim.into_iter().map(|claim| BpRequest { index, claim, inherited_by }).collect();
        let asked =
            asked.map_or_else(|| self.reserve_claims(&requests, target), Ok).map_err(|(_, full)| known(full))?;
        match (self.modify_slot(record, after), &asked, after.claim) {
            (Ok(()), Asked::Refused(..), _) => self.note_granted(),
            (Ok(()), ..) => {}
            (Err(BankError::SlotsExhausted), Asked::Refused(_, full), _) => return Err(known(*full)),
            (Err(error @ BankError::SlotsExhausted), _, Some(claim)) => {
                let others = self.note_refused(claim, &[claim], target, inherited_by);
                let refused = |(full, taken)| ModifyError::DebugRegisters { full, taken };
                return Err(others.map_or(ModifyError::Bank(error), refused));
            }
            (Err(error), ..) => return Err(ModifyError::Bank(error)),
        }
        let reserved = asked.reserved();
        reserved.iter().for_each(|(_, held)| held.name(event));
        let given_up = self.registry.with(|registry| {
            let group = registry.groups.get_mut(record.group)?;
            let (gone, mut kept): (Vec<_>, Vec<_>) =
                core::mem::take(&mut group.reserved).into_iter().partition(|(of, _)| *of == index);
            kept.extend(reserved);
            group.reserved = kept;
            Some(gone)
        });
        Ok(given_up.unwrap_or_default())
    }

    fn modify_slot(&self, record: &EventRecord<H>, after: &EventSpec) -> Result<(), BankError> {
        let (member, spec) = (record.fast_read().member, *after);
        let look = |context: &Context| match context.member(member).map(|member| &member.change) {
            Some(event::ModifyState::Refused(error)) => Err(*error),
            Some(event::ModifyState::Done | event::ModifyState::UnderWay(_)) => Ok(()),
            None => Err(BankError::NoSuchEvent),
        };
        record.fast_read().cell.ask(
            self,
            Purpose::Change,
            move |context, step| context.modify(member, &spec, step),
            look,
        )
    }

    fn index_of(&self, event: EventId, record: &EventRecord<H>) -> usize {
        let index =
            self.registry.with(|registry| registry.groups.get(record.group)?.events.iter().position(|&it| it == event));
        index.unwrap_or_default()
    }

    fn held_by(&self, event: EventId, record: &EventRecord<H>) -> Option<Arc<HeldRegisters<H>>> {
        self.registry.with(|registry| {
            let group = registry.groups.get(record.group)?;
            let index = group.events.iter().position(|&it| it == event)?;
            group.reserved.iter().find(|(of, _)| *of == index).map(|(_, held)| Arc::clone(held))
        })
    }
}

const fn known(full: Full) -> ModifyError {
    ModifyError::DebugRegisters { full, taken: Taken::Known }
}
