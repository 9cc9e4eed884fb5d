//! System-wide sets.

use super::super::ledger::{Event, Home};
use super::books::{SetBook, Which};
use super::views::{MasterUsers, Opener};
use super::{BookKind, World};
use crate::check::{debug_registers, refusals};
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::engine::{SetError, SetReading, SetRequest};
use pmux_engine::share::SharingScope;
use pmux_engine::system_wide::{Absent, SetScope};
use pmux_engine::target::ContextKey;
use pmux_engine::{ControlError, CpuId, PmuId, ReadError, SetId};
use std::collections::BTreeSet;

/// A system-wide set that was opened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Set {
    number: u32,
    generation: u32,
}

impl World {
    /// Opens the same groups on every CPU of a mask, disarmed; those that are offline are awaited. They share with what was
    /// opened in the same domain: see [`World::open_in`]. Returns the set and its events, through all groups.
    ///
    /// # Errors
    /// The engine's.
    pub fn open_set(
        &mut self,
        domain: SharingScope,
        groups: &[Vec<(PmuId, Attr)>],
        mask: &CpuMask,
    ) -> Result<(Set, Vec<Event>), SetError> {
        let (mut books, mut specs) = (Vec::with_capacity(groups.len()), Vec::with_capacity(groups.len()));
        for group in groups {
            let number = self.books.reserve();
            let (tags, spec) = self.tag(group, Home::Cpu, number);
            books.push((number, tags));
            specs.push(spec);
        }
        let (scope, absent) = (SetScope::Everything, Absent::Await);
        let request = SetRequest { groups: specs, scope, mask: mask.clone(), absent };
        let struck = self.refusals();
        let id = match self.call(|engine| engine.open_set_in(domain, request)) {
            Ok(id) => id,
            Err(error) => {
                let asked = groups.get(error.group).map(Vec::as_slice).unwrap_or_default();
                // Who waits for CPUs that are not there is refused by those that are.
                let refused = refusals::refused(self, asked, None, error.error, struck);
                let wanted = debug_registers::RegisterDemand::of_set(self, groups, mask.iter());
                let violations = refused.into_iter().chain(debug_registers::refused(self, &wanted, error.error));
                violations.for_each(|violation| self.report(violation));
                for (number, tags) in books {
                    self.drop_tags(&tags);
                    self.books.give_up(number);
                }
                return Err(error);
            }
        };
        let (mut books, mut masters, now) = (books, Vec::new(), self.now());
        if self.shares() {
            for ((number, tags), group) in std::mem::take(&mut books).into_iter().zip(groups) {
                let flags = group.first().map_or(AttrFlags::empty(), |(_, attr)| attr.flags);
                let kind = BookKind::Master { root: None, family: None, opener: Opener::Goes, users: MasterUsers::All };
                self.books.enter(number, tags, kind, flags, now);
                masters.push(number);
                let number = self.books.reserve();
                books.push((number, self.tag_view(group, Home::Cpu, number)));
            }
        }
        let numbers = books.iter().map(|&(number, _)| number).collect();
        let mask = mask.clone();
        let set = |generation| SetBook { id, mask, armed: false, books: numbers, generation, masters };
        let number = self.books.new_set(set);
        let mut events = Vec::new();
        for ((book, tags), group) in books.into_iter().zip(groups) {
            let flags = group.first().map_or(AttrFlags::empty(), |(_, attr)| attr.flags);
            let kind = BookKind::OfSet { set: number, first: events.len() };
            events.extend(&tags);
            self.books.enter(book, tags, kind, flags, now);
        }
        let set = self.books.set(number).map(|set| (set.mask.clone(), set.generation));
        let (mask, generation) = set.unwrap_or_default();
        self.settle_set_on(number, &mask.iter().collect::<Vec<_>>());
        self.with(|state| mask.iter().for_each(|cpu| state.want(ContextKey::Cpu(cpu), 1)));
        let wanted = debug_registers::RegisterDemand::of_set(self, groups, mask.iter());
        debug_registers::granted(self, &wanted).into_iter().for_each(|violation| self.report(violation));
        Ok((Set { number, generation }, events))
    }

    pub(crate) fn set_is_on(&self, number: u32) -> Vec<CpuId> {
        self.books.set(number).map(|set| self.open_on(set.id)).unwrap_or_default()
    }

    pub(crate) fn set_number(&self, set: Set) -> Option<u32> {
        self.books.set(set.number).filter(|book| book.generation == set.generation).map(|_| set.number)
    }

    pub(super) fn set_id(&self, set: Set) -> Option<SetId> {
        Some(self.books.set(self.set_number(set)?)?.id)
    }

    /// The CPUs on which a set is open now, as the engine says: it may have been refused on some.
    fn open_on(&self, id: SetId) -> Vec<CpuId> {
        let events = self.engine.set_events(id).unwrap_or_default();
        events.into_iter().filter(|(_, events)| !events.is_empty()).map(|(cpu, _)| cpu).collect()
    }

    /// A set has perhaps been opened anew on some of these CPUs, on those where it was not open `before`: what its events watched
    /// there before may be gone, but this is not.
    pub(super) fn revive_set_on(&mut self, number: u32, cpus: &[CpuId], before: &BTreeSet<CpuId>) {
        let (tags, open) = (self.events_of_set(number), self.set_is_on(number).into_iter().collect::<BTreeSet<_>>());
        for &cpu in cpus.iter().filter(|cpu| open.contains(cpu) && !before.contains(cpu)) {
            self.with(|state| {
                for &tag in &tags {
                    let site = state.site(tag, ContextKey::Cpu(cpu), None);
                    if let Some(site) = state.ledger.site_mut(site) {
                        site.dead = false;
                    }
                }
            });
        }
    }

    /// Notes whether the events of a set are on, on some CPUs.
    pub(super) fn settle_set_on(&mut self, number: u32, cpus: &[CpuId]) {
        let Some(set) = self.books.set(number) else { return };
        let (armed, books) = (set.armed, set.books.clone());
        let open: BTreeSet<CpuId> = self.open_on(set.id).into_iter().collect();
        for book in books {
            let Some(tags) = self.books.get(book).map(|book| book.tags.clone()) else { continue };
            self.books.touch(book);
            self.with(|state| {
                for &cpu in cpus {
                    for &tag in &tags {
                        let site = state.site(tag, ContextKey::Cpu(cpu), None);
                        if let Some(site) = state.ledger.site_mut(site) {
                            site.on = armed && open.contains(&cpu);
                        }
                    }
                }
                state.gate(&tags, Which::Both);
            });
        }
        self.link_set_on(number, cpus);
    }

    /// A set may count on a CPU from now on: whether it does is seen when the engine has been told.
    pub(super) fn expect_set_on(&mut self, number: u32, cpu: CpuId) {
        let Some(SetBook { armed: true, .. }) = self.books.set(number) else { return };
        for tag in self.events_of_set(number) {
            self.with(|state| {
                let site = state.site(tag, ContextKey::Cpu(cpu), None);
                state.with_total(site, |site, total| site.most.set(true, total));
            });
        }
    }

    /// Lets a set count everywhere.
    ///
    /// # Errors
    /// The engine's; the set is then disarmed.
    pub fn enable_set(&mut self, set: Set) -> Result<(), ControlError> {
        self.switch_set(set, true, |world, id| world.call(|engine| engine.enable_set(id)))
    }

    /// Stops a set everywhere.
    ///
    /// # Errors
    /// The engine's.
    pub fn disable_set(&mut self, set: Set) -> Result<(), ControlError> {
        self.switch_set(set, false, |world, id| world.call(|engine| engine.disable_set(id)))
    }

    pub(super) fn switch_set(
        &mut self,
        set: Set,
        on: bool,
        act: impl FnOnce(&mut Self, SetId) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let number = self.set_number(set).ok_or(ControlError::Closed)?;
        let Some(book) = self.books.set(number) else { return Err(ControlError::Closed) };
        let (id, numbers) = (book.id, book.books.clone());
        let tags: Vec<_> =
            numbers.iter().filter_map(|&book| self.books.get(book)).map(|book| book.tags.clone()).collect();
        numbers.iter().for_each(|&book| self.books.touch(book));
        self.bring_samples();
        let places: Vec<_> = self.open_on(id).into_iter().map(ContextKey::Cpu).collect();
        self.with(|state| state.set_flags(&tags, &places, on));
        self.with(|state| {
            let which = if on { Which::Most } else { Which::Least };
            tags.iter().for_each(|tags| state.gate(tags, which));
        });
        let unread = self.refused_readings();
        let result = act(self, id);
        self.note_unread(&tags.concat(), unread);
        let armed = on && result.is_ok();
        if let Some(set) = self.books.set_mut(number) {
            set.armed = armed;
        }
        self.with(|state| {
            state.set_flags(&tags, &places, armed);
            if on && !armed {
                tags.iter().flatten().for_each(|&tag| state.each_site(tag, |site| site.doubtful = true));
            }
            tags.iter().for_each(|tags| state.gate(tags, Which::Both));
        });
        self.settle_set_views(number);
        result
    }

    /// Sets all counts of a set to 0.
    ///
    /// # Errors
    /// The engine's.
    pub fn reset_set(&mut self, set: Set) -> Result<(), ControlError> {
        let number = self.set_number(set).ok_or(ControlError::Closed)?;
        let id = self.set_id(set).ok_or(ControlError::Closed)?;
        let tags = self.events_of_set(number);
        let before = self.counted_by_now(&tags);
        let result = self.call(|engine| engine.reset_set(id));
        match result {
            Ok(()) => self.forget_counts(&tags, &before),
            // Those before the one that was refused are 0 all the same.
            Err(_) => self.forget_what_was_reset(&tags, &before),
        }
        result
    }

    pub(crate) fn events_of_set(&self, number: u32) -> Vec<Event> {
        let books = self.books.set(number).map(|set| &set.books[..]).unwrap_or_default();
        books.iter().filter_map(|&book| self.books.get(book)).flat_map(|book| book.tags.iter().copied()).collect()
    }

    /// Closes a set. Closing what is closed does nothing.
    pub fn close_set(&mut self, set: Set) {
        let Some((number, id)) = self.set_number(set).zip(self.set_id(set)) else { return };
        self.bring_samples();
        self.call(|engine| engine.close_set(id));
        let Some(book) = self.books.strike_set(number) else { return };
        let mut masters = Vec::new();
        for number in book.books {
            if let Some(book) = self.books.strike(number) {
                masters.extend(self.state(|state| state.masters_of(&book.tags)));
                self.drop_tags(&book.tags);
            }
        }
        self.settle_masters(&masters);
        self.release_masters(&book.masters);
        book.mask.iter().for_each(|cpu| self.with(|state| state.want(ContextKey::Cpu(cpu), -1)));
    }

    /// Reads a whole set, CPU by CPU; its events are in the order in which [`World::open_set`] gave them.
    ///
    /// # Errors
    /// The engine's.
    pub fn read_set(&self, set: Set) -> Result<SetReading, ReadError> {
        let id = self.set_id(set).ok_or(ReadError::Closed)?;
        self.call(|engine| engine.read_set(id))
    }

    /// The set that an event belongs to, and which of its events it is.
    #[must_use]
    pub fn set_of(&self, event: Event) -> Option<(Set, usize)> {
        let book = self.books.get(self.number_of(event)?)?;
        let BookKind::OfSet { set, first } = book.kind else { return None };
        let generation = self.books.set(set)?.generation;
        let index = book.tags.iter().position(|&tag| tag == event)?;
        Some((Set { number: set, generation }, first + index))
    }
}

impl super::super::state::State {
    fn set_flags(&mut self, groups: &[Vec<Event>], places: &[ContextKey], on: bool) {
        for tag in groups.iter().flatten() {
            for &place in places {
                let site = self.shelf(place).and_then(|shelf| shelf.find(tag.index, None));
                if let Some(site) = site.and_then(|site| self.ledger.site_mut(site)) {
                    site.on = on;
                }
            }
        }
    }
}
