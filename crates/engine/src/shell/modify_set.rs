//! An event of an open set comes to count something else, on all CPUs or on none.
//!
//! What it is: one step of a set, with its turn. Debug registers that are needed anew are reserved on all CPUs as one; where others
//! see the same counter, another one is opened; then the events are changed one CPU after the other, and what each gives up
//! is kept until all have changed.
//! Read first: `modify`, the same for one event.
//!
//! **Invariant:** no CPU counts something else than the others. A change that was refused has left the set as it was, but for
//! a CPU whose counters don't take back what they had: that one is closed, and says so.

use super::claims::{Asked, Reserved, Wish, wishes};
use super::modify::known;
use super::sharing::{EventView, not_opened};
use super::{Engine, EventRecord, Gate, Opened};
use crate::error::{ModifyError, OpenError};
use crate::event::EventState;
use crate::group::{GroupSpec, Plan, resolve};
use crate::host::{Host, LockCell};
use crate::id::{CpuId, EventId, SetId};
use crate::pmu::{BankError, EventSpec};
use crate::share::Domain;
use crate::shell::Target;
use crate::system_wide::SystemWideSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use pmux_abi::attr::Attr;

/// Why an event of a set still counts what it counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModifySetError {
    /// On which CPU; `None`: it is the same everywhere.
    pub cpu: Option<CpuId>,
    /// Why.
    pub error: ModifyError,
}

impl ModifySetError {
    /// The errno that Linux gives in this case.
    #[must_use]
    pub const fn errno(self) -> i32 {
        self.error.errno()
    }
}

impl fmt::Display for ModifySetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.cpu, self.error) {
            // These words have the CPU already.
            (None, error) | (_, error @ ModifyError::DebugRegisters { .. }) => error.fmt(f),
            (Some(cpu), error) => write!(f, "on CPU {cpu}: {error}"),
        }
    }
}

impl core::error::Error for ModifySetError {}

/// What is to be done on one CPU.
struct Place<H: Host> {
    cpu: CpuId,
    target: Target,
    event: EventId,
    record: EventRecord<H>,
}

impl<H: Host> Place<H> {
    /// Where others see the same counter, so that it needs another one.
    fn view(&self) -> Option<&EventView<H>> {
        self.record.tap().view.as_ref()
    }

    const fn refused(&self, error: ModifyError) -> ModifySetError {
        ModifySetError { cpu: Some(self.cpu), error }
    }
}

/// What an event counted, and what it is to count.
type Specs<'a> = (&'a EventSpec, &'a EventSpec);

/// The CPUs that have changed, each with what it needs no more.
type Done<'a, H> = Vec<(&'a Place<H>, Reserved<H>)>;

impl<H: Host> Engine<H> {
    /// Lets an event of a set, by its number through all groups, count what `attr` says from now on, on all CPUs; those that come
    /// later count it too. Counts and times go on. See [`Engine::modify`].
    ///
    /// # Errors
    /// Then the set counts what it counted everywhere. Checked in this order: [`ModifyError::Closed`], also where it has no such
    /// event; [`ModifyError::Parse`]; then, in ascending order of CPUs, [`ModifyError::Inherited`];
    /// [`ModifyError::DebugRegisters`] of the first CPU that has none left, unless the host decides that; and the first refusal of
    /// the counters. A refusal on a CPU that is going away is none.
    pub fn modify_set(&self, set: SetId, index: usize, attr: &Attr) -> Result<(), ModifySetError> {
        let closed = ModifySetError { cpu: None, error: ModifyError::Closed };
        let modify = |set: &mut SystemWideSet| self.moving.with(|()| self.modify_in_turn(set, index, attr));
        self.with_set(set, modify).unwrap_or(Err(closed))
    }

    fn modify_in_turn(&self, set: &mut SystemWideSet, index: usize, attr: &Attr) -> Result<(), ModifySetError> {
        let whole = |error| ModifySetError { cpu: None, error };
        let (group, at) = set.find(index).ok_or(whole(ModifyError::Closed))?;
        let mut events: Vec<_> =
            set.plans[group].members.iter().map(|member| (member.spec.pmu, member.spec.attr)).collect();
        events[at].1 = *attr;
        let next =
            resolve(&GroupSpec { events }, set.domain.cred(), &self.host).map_err(|error| whole(not_opened(error)))?;
        let before = Arc::clone(&set.plans[group].members[at].spec);
        let after = Arc::clone(&next.members[at].spec);
        let places = self.places(set, group, at)?;
        let wanted: Vec<_> = places
            .iter()
            .map(|place| (place.target, self.wishes_anew(place, (&before, &after), (&next, at), set.domain)))
            .collect();
        let refused = |full: crate::breakpoint::Full| ModifySetError { cpu: Some(full.cpu), error: known(full) };
        let mut asked = self.reserve_for_all(&wanted).map_err(refused)?;
        let opened = self.open_beside(&places, (&next, set.domain), &mut asked)?;
        let changed = self.modifying.with(|()| self.change_all(&places, (&before, &after), asked));
        if let Err((error, stuck)) = changed {
            self.close_all(opened.into_iter().map(|(_, opened)| opened));
            for (cpu, error) in stuck {
                let last = set.cpus.get(&cpu).map(|state| self.last_counts(&state.groups)).unwrap_or_default();
                let gone = set.give_up(cpu, &last, OpenError::Bank { index: at, error }, self.host.now());
                self.close_all(gone);
            }
            return Err(error);
        }
        for (place, opened) in opened {
            // It can't be refused: the set's turn is held, and so nobody has closed it.
            let _ = place.view().map(|view| self.move_to(view, place.record.group, &opened));
        }
        set.plans[group] = next;
        Ok(())
    }

    /// Where the event is open. A view that nobody shares becomes an event with counters of its own.
    fn places(&self, set: &SystemWideSet, group: usize, at: usize) -> Result<Vec<Place<H>>, ModifySetError> {
        let mut places = Vec::with_capacity(set.cpus.len());
        for (&cpu, state) in &set.cpus {
            let Some(&event) = state.groups.get(group).and_then(|opened| opened.events.get(at)) else { continue };
            let closed = ModifySetError { cpu: Some(cpu), error: ModifyError::Closed };
            let record = self.record(event).ok_or(closed)?;
            let mut place = Place { cpu, target: set.scope.on(cpu), event, record };
            self.may_change(&place).map_err(|error| place.refused(error))?;
            let alone = place.view().is_some_and(|view| self.take_for_oneself(&view.whole, place.record.group));
            if alone {
                place.record = self.record(event).ok_or(closed)?;
            }
            places.push(place);
        }
        Ok(places)
    }

    fn may_change(&self, place: &Place<H>) -> Result<(), ModifyError> {
        let kin = match place.view() {
            Some(view) => self.record(view.master).and_then(|master| master.kin),
            None => place.record.kin,
        };
        if kin.and_then(super::Kin::by_engine).is_some_and(|(family, _)| self.has_children(family)) {
            return Err(ModifyError::Inherited);
        }
        match self.look_at_record(&place.record, crate::event::Member::state) {
            Err(_) => Err(ModifyError::Closed),
            Ok(EventState::Dead) if place.view().is_some() => Err(ModifyError::Bank(BankError::NoSuchTask)),
            Ok(_) => Ok(()),
        }
    }

    /// The debug registers that an event needs and has not.
    fn wishes_anew(
        &self,
        place: &Place<H>,
        (before, after): Specs<'_>,
        (next, at): (&Plan, usize),
        domain: Domain,
    ) -> Vec<Wish> {
        let all = || wishes(&next.members, place.target);
        match place.view() {
            // Where he who has them leaves just now, it asks for itself.
            Some(_) if self.is_asked(next, place.target, domain) => Vec::new(),
            Some(_) => all(),
            None if self.serves(before, after) => Vec::new(),
            None => all().into_iter().filter(|wish| wish.index == at).collect(),
        }
    }

    /// Opens groups for the views, off, as they are to count; all or none.
    fn open_beside<'a>(
        &self,
        places: &'a [Place<H>],
        (next, domain): (&Plan, Domain),
        asked: &mut [Option<Asked<H>>],
    ) -> Result<Vec<(&'a Place<H>, Opened)>, ModifySetError> {
        let mut all = Vec::new();
        for (place, asked) in places.iter().zip(asked).filter(|(place, _)| place.view().is_some()) {
            let mut opened = None;
            let asked = asked.take();
            self.near(place.cpu, || {
                opened = Some(self.open_plan(next, place.target, Gate::Open, domain, asked));
            });
            match opened {
                Some(Ok(opened)) => all.push((place, opened)),
                Some(Err(error)) if self.is_online(place.cpu) => {
                    self.close_all(all.into_iter().map(|(_, opened)| opened));
                    return Err(place.refused(not_opened(error)));
                }
                // It goes away, and its events with it.
                Some(Err(_)) | None => {}
            }
        }
        Ok(all)
    }

    /// Changes the events that have counters of their own, or leaves them as they were. With a refusal come the CPUs whose
    /// counters could not be made to count again what they counted.
    fn change_all(
        &self,
        places: &[Place<H>],
        (before, after): Specs<'_>,
        asked: Vec<Option<Asked<H>>>,
    ) -> Result<(), (ModifySetError, Vec<(CpuId, BankError)>)> {
        let own = || places.iter().zip(0..).filter(|(place, _)| place.view().is_none());
        let mut asked = asked;
        let mut done = Done::with_capacity(places.len());
        let mut refused = None;
        for (place, number) in own() {
            let number: usize = number;
            let asked = asked[number].take();
            let mut result = Err(ModifyError::Closed);
            self.near(place.cpu, || {
                result = self.modify_claimed(place.event, &place.record, (before, after), place.target, asked);
            });
            match result {
                Ok(given_up) => done.push((place, given_up)),
                Err(error) if self.is_online(place.cpu) => {
                    refused = Some(place.refused(error));
                    break;
                }
                Err(_) => {}
            }
        }
        // A child that was forked meanwhile may have got either.
        let inherited = || own().find_map(|(place, _)| self.may_change(place).err().map(|error| place.refused(error)));
        let Some(error) = refused.or_else(inherited) else { return Ok(()) };
        let mut stuck = Vec::new();
        for (place, given_up) in done {
            let again = Some(Asked::of(given_up));
            match self.modify_claimed(place.event, &place.record, (after, before), place.target, again) {
                Ok(_) => {}
                Err(ModifyError::Bank(error)) => stuck.push((place.cpu, error)),
                Err(_) => stuck.push((place.cpu, BankError::SlotsExhausted)),
            }
        }
        Err((error, stuck))
    }
}
