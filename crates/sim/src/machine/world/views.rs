//! Which events share a counter with which.
//!
//! What it is: where the engine shares, a group of the machine is two: the *view* that the driver asked for, and the *master*
//! for which counters are programmed. When the driver opens something, it is offered under names that a master may have; what
//! the engine says afterwards that the events count under tells which master they have got.
//!
//! **Invariant:** the engine is asked for the name of the master only; [`crate::check`] says whether it may be that one.

use super::super::ledger::{Event, Home, SharedView};
use super::super::locks::lock;
use super::super::state::State;
use super::{BookKind, World};
use crate::check::{Checker, Violation};
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::share::Sharing;
use pmux_engine::target::{ContextKey, Filter, Opened};
use pmux_engine::{CpuId, EventId, EventState, FamilyId, PmuId, Target};
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// Whether equal questions share a counter here.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.engine().sharing()
    }

    /// Whether an event is counted by a master that others may have, too.
    #[must_use]
    pub fn is_shared(&self, event: Event) -> bool {
        self.state(|state| state.is_view_event(event))
    }

    pub(super) fn shares(&self) -> bool {
        self.sharing() == Sharing::On
    }

    /// Gives names to the events of a group that is a view.
    pub(super) fn tag_view(&mut self, events: &[(PmuId, Attr)], home: Home, number: u32) -> Vec<Event> {
        self.with(|state| {
            let tag = |&asked: &(PmuId, Attr)| {
                let tag = state.ledger.new_tag(asked, home, number);
                state.ledger.tag_mut(tag).into_iter().for_each(|tag| tag.view = Some(SharedView::default()));
                tag
            };
            events.iter().map(tag).collect()
        })
    }

    pub(super) fn counted_as(&self, event: EventId) -> Option<Event> {
        let word = self.observe(|engine| engine.attr(event)).ok()?.sig_data;
        Some(Event::from_word(word)).filter(|&master| self.state(|state| state.ledger.tag(master).is_some()))
    }

    /// Enters a group that was opened where counters are shared. `number` and `offered` are what a master of it is called.
    pub(super) fn enter_view(
        &mut self,
        (number, offered): (u32, Vec<Event>),
        (events, home): (&[(PmuId, Attr)], Home),
        opened: Opened,
        target: Target,
    ) -> Vec<Event> {
        let flags = events.first().map_or(AttrFlags::empty(), |(_, attr)| attr.flags);
        let only_on = if let Filter::OnCpu(cpu) = target.filter { Some(cpu) } else { None };
        let family = opened.events.first().and_then(|&event| self.engine().family_of(event));
        let leader = opened.events.first().and_then(|&event| self.counted_as(event));
        if leader.is_some() && leader == offered.first().copied() {
            self.with(|state| state.note_place(&offered, events, target.context, only_on));
            self.enter_master((number, offered), flags, target, family);
        } else {
            self.drop_tags(&offered);
            self.books.give_up(number);
        }
        let number = self.books.reserve();
        let tags = self.tag_view(events, home, number);
        self.with(|state| {
            for (&tag, &id) in tags.iter().zip(&opened.events) {
                state.ledger.tag_mut(tag).into_iter().for_each(|tag| tag.id = Some(id));
            }
            state.note_place(&tags, events, target.context, only_on);
            state.want(target.context, 1);
        });
        for (&tag, &event) in tags.iter().zip(&opened.events) {
            self.link(tag, event, target.context, only_on);
            // Only children make it count in several places at once.
            let master = family.and_then(|_| self.counted_as(event));
            self.with(|state| {
                let view = state.ledger.tag_mut(tag).and_then(|tag| tag.view.as_mut());
                view.into_iter().for_each(|view| view.master = master);
            });
        }
        let now = self.now();
        let kind = BookKind::Group { id: opened.group, events: opened.events, target, family, keeps_each: false };
        self.books.enter(number, tags.clone(), kind, flags, now);
        tags
    }

    /// Enters a group that counts for every group that asks the same.
    pub(super) fn enter_master(
        &mut self,
        (number, tags): (u32, Vec<Event>),
        flags: AttrFlags,
        root: Target,
        family: Option<FamilyId>,
    ) {
        let (opener, users) = (Opener::Done, MasterUsers::All);
        let kind = BookKind::Master { root: Some(root), family, opener, users };
        let now = self.now();
        self.books.enter(number, tags, kind, flags, now);
    }

    /// An event looks at its master in one place.
    pub(super) fn link(&mut self, tag: Event, event: EventId, place: ContextKey, only_on: Option<CpuId>) {
        let Some(master) = self.counted_as(event) else {
            let violation = Violation::new(Checker::Sharing, self.now(), "an event shares with one that is closed");
            return self.report(violation.event(tag).place(Some(place)));
        };
        let source = self.observe(|engine| engine.source_of(event)).ok();
        self.with(|state| {
            let (site, master) = (state.site(tag, place, only_on), state.site(master, place, only_on));
            if state.ledger.site(site).is_some_and(|site| site.master != Some(master)) {
                state.look_at(site, master);
            }
            for (site, id) in [(site, Some(event)), (master, source)] {
                state.ledger.site_mut(site).into_iter().for_each(|site| site.id = id);
            }
        });
    }

    /// Which masters the events of a set have on some CPUs. All of them at once: what comes of it is settled for the whole set.
    pub(super) fn link_set_on(&mut self, number: u32, cpus: &[CpuId]) {
        let Some(set) = self.books.set(number).filter(|_| self.shares()) else { return };
        let (id, tags) = (set.id, self.events_of_set(number));
        let masters = self.state(|state| state.masters_of(&tags));
        let open = self.observe(|engine| engine.set_events(id)).unwrap_or_default();
        let open: BTreeMap<CpuId, Vec<EventId>> = open.into_iter().collect();
        for &cpu in cpus {
            let place = ContextKey::Cpu(cpu);
            let here = open.get(&cpu).map(Vec::as_slice).unwrap_or_default();
            for (index, &tag) in tags.iter().enumerate() {
                match here.get(index) {
                    Some(&event) => self.link(tag, event, place, None),
                    None => {
                        let site = self.state(|state| state.site_at(tag, place, None));
                        site.into_iter().for_each(|site| self.look_away_and_tell(tag, site));
                    }
                }
            }
        }
        self.settle_set_views(number);
        self.settle_masters(&masters);
    }

    /// A CPU has gone. Masters that sets had opened there are gone for them; who else looks at them goes on looking at what is
    /// left of them, and sets will open others under their names.
    pub(super) fn orphan_views(&mut self, cpu: CpuId) {
        if !self.shares() {
            return;
        }
        let place = ContextKey::Cpu(cpu);
        let of_sets = self.books.iter().filter(|(_, book)| book.is_master() && book.root().is_none());
        let of_sets: Vec<_> = of_sets.map(|(_, book)| book.tags.clone()).collect();
        for tags in of_sets {
            let viewers: Vec<Vec<u32>> = self.state(|state| {
                let site = |&tag: &Event| state.ledger.site(state.site_at(tag, place, None)?);
                tags.iter().map(|tag| site(tag).map(|site| site.viewers.clone()).unwrap_or_default()).collect()
            });
            if viewers.iter().all(Vec::is_empty) {
                continue;
            }
            let doubtful = self.state(|state| {
                let mut sites = tags.iter().filter_map(|&tag| state.ledger.site(state.site_at(tag, place, None)?));
                sites.any(|site| site.doubtful)
            });
            let asked: Vec<_> = tags.iter().filter_map(|&tag| self.attr(tag)).collect();
            let number = self.books.reserve();
            let (left, _) = self.tag(&asked, Home::Cpu, number);
            self.with(|state| {
                state.note_place(&left, &asked, place, None);
                for (&tag, viewers) in left.iter().zip(viewers) {
                    let master = state.site(tag, place, None);
                    if let Some(master) = state.ledger.site_mut(master) {
                        master.dead = true;
                        master.doubtful |= doubtful;
                    }
                    viewers.into_iter().for_each(|viewer| state.look_at(viewer, master));
                }
            });
            let flags = asked.first().map_or(AttrFlags::empty(), |(_, attr)| attr.flags);
            self.enter_master((number, left), flags, Target::cpu(cpu), None);
            self.settle_masters(&tags);
        }
    }

    pub(super) fn settle_set_views(&mut self, number: u32) {
        let groups = self.books.set(number).map(|set| set.books.clone()).unwrap_or_default();
        for group in groups {
            let tags = self.books.get(group).map(|book| book.tags.clone()).unwrap_or_default();
            self.settle_views(&tags);
        }
    }

    /// Some of these events were switched, or may look at other masters now.
    pub(super) fn settle_views(&mut self, tags: &[Event]) {
        if !self.shares() {
            return;
        }
        let switched = self.with(|state| state.settle_views(tags));
        self.tell_moments(&switched, &[]);
        let masters = self.state(|state| state.masters_of(tags));
        self.settle_masters(&masters);
    }

    /// The events that looked at these masters perhaps do so no more: the masters that no event can look at again are closed.
    pub(super) fn settle_masters(&mut self, masters: &[Event]) {
        let numbers: BTreeSet<_> = masters.iter().filter_map(|&master| self.number_of(master)).collect();
        for number in numbers {
            let Some(book) = self.books.get(number) else { continue };
            let (tags, done) = (book.tags.clone(), matches!(book.kind, BookKind::Master { opener: Opener::Done, .. }));
            if done && !self.state(|state| state.is_seen(&tags)) {
                self.books.strike(number);
                self.drop_tags(&tags);
                continue;
            }
            self.with(|state| state.settle_master(&tags));
            self.books.touch(number);
        }
    }

    /// A set is closed: its masters belong to others now, or to none.
    pub(super) fn release_masters(&mut self, numbers: &[u32]) {
        let mut masters = Vec::new();
        for &number in numbers {
            masters.extend(self.books.get(number).map(|book| book.tags.clone()).unwrap_or_default());
            if let Some(BookKind::Master { opener, .. }) = self.books.kind_mut(number) {
                *opener = Opener::Done;
            }
        }
        self.settle_masters(&masters);
    }

    /// The masters that a reset of these events sets to 0, too. One that came to ask something else keeps what it has counted: the event
    /// that looks at it forgets it.
    pub(super) fn masters_reset(&self, targets: &[Event]) -> Vec<Event> {
        self.masters_where(targets, crate::check::was_alone)
    }

    fn masters_where(&self, targets: &[Event], wanted: fn(&World, &super::Book) -> bool) -> Vec<Event> {
        let mut masters = Vec::new();
        for &tag in targets {
            let of_group = self.number_of(tag).and_then(|number| self.books.get(number)).map(|book| &book.tags[..]);
            let index = of_group.and_then(|tags| tags.iter().position(|&other| other == tag)).unwrap_or(0);
            for master in self.state(|state| state.masters_of(&[tag])) {
                let Some(book) = self.number_of(master).and_then(|number| self.books.get(number)) else { continue };
                if wanted(self, book) {
                    masters.extend(book.tags.get(index));
                }
            }
        }
        masters
    }

    /// A child has inherited what a view's master counts: the view counts it, too.
    pub(super) fn inherit_view(&mut self, tags: &[Event], place: ContextKey, only_on: Option<CpuId>) {
        self.with(|state| {
            for &tag in tags {
                let master = state.ledger.tag(tag).and_then(|tag| tag.view?.master);
                if let Some(master) = master.filter(|&master| state.ledger.tag(master).is_some()) {
                    let (site, master) = (state.site(tag, place, only_on), state.site(master, place, only_on));
                    state.look_at(site, master);
                }
            }
        });
        self.settle_views(tags);
    }

    /// Which events of a master are in error in a place, as those say who count with it.
    pub(crate) fn master_errors(&self, number: u32, place: ContextKey) -> Vec<bool> {
        let Some(book) = self.books.get(number) else { return Vec::new() };
        if let (Some(family), ContextKey::Task(task)) = (book.family(), place)
            && let Some(group) = self.child_group(family, task)
        {
            return self.errors_of(self.engine().events(group).unwrap_or_default());
        }
        let viewers: Vec<Vec<Event>> = self.state(|state| {
            let of = |&tag: &Event| {
                let site = state.site_at(tag, place, book.only_on()).and_then(|site| state.ledger.site(site));
                let viewers = site.map(|site| &site.viewers[..]).unwrap_or_default();
                let event = |&viewer: &u32| state.ledger.event_at(state.ledger.site(viewer)?.tag);
                viewers.iter().filter_map(event).collect()
            };
            book.tags.iter().map(of).collect()
        });
        let in_error = |viewers: &Vec<Event>| {
            viewers.iter().any(|&viewer| {
                let event = self.engine_event(viewer, place);
                event.is_some_and(|event| self.observe(|engine| engine.state(event)) == Ok(EventState::Error))
            })
        };
        viewers.iter().map(in_error).collect()
    }

    /// The engine's name for an event, in a place if it belongs to a set.
    pub(super) fn engine_event(&self, event: Event, place: ContextKey) -> Option<EventId> {
        if let Some((_, id)) = self.id_of(event) {
            return Some(id);
        }
        let (set, index) = self.set_of(event)?;
        let id = self.books.set(self.set_number(set)?)?.id;
        let open = self.engine().set_events(id).ok()?;
        let here = open.into_iter().find(|(cpu, _)| ContextKey::Cpu(*cpu) == place)?;
        here.1.get(index).copied()
    }

    pub(super) fn errors_of(&self, events: Vec<EventId>) -> Vec<bool> {
        let in_error = |event| self.observe(|engine| engine.state(event)) == Ok(EventState::Error);
        events.into_iter().map(in_error).collect()
    }

    /// The masters of these events that will be enabled everywhere if these are: those that no event counts with yet, those that
    /// no other group shares, and those of events that count already. Of the others, one that failed may be tried again; for a
    /// child's, that is not known.
    pub(super) fn masters_to_try(&self, tags: &[Event], targets: &[Event]) -> Vec<Event> {
        let is_on = |tag: &Event| {
            self.state(|state| state.ledger.tag(*tag).is_some_and(|tag| tag.view.is_some_and(|view| view.on)))
        };
        if tags.first().is_some_and(is_on) && targets.iter().all(is_on) {
            return self.state(|state| state.masters_of(targets));
        }
        let mut masters = self.masters_where(targets, crate::check::is_alone);
        masters.extend(self.state(|state| {
            let is_off = |master: &Event| !state.ledger.sites_of(*master).any(|site| site.on);
            state.masters_of(targets).into_iter().filter(is_off).collect::<Vec<_>>()
        }));
        masters
    }

    /// Notes whether events were asked to be on.
    pub(super) fn note_request(&mut self, targets: &[Event], on: bool) {
        self.with(|state| {
            for &tag in targets {
                let view = state.ledger.tag_mut(tag).and_then(|tag| tag.view.as_mut());
                view.into_iter().for_each(|view| view.on = on);
            }
        });
    }

    /// These events were switched. Where more readings than that were refused by now, what they saw of their masters by then is not
    /// known; and what was to begin has not begun, as its state says.
    pub(super) fn note_unread(&mut self, targets: &[Event], unread: u64) {
        if !self.shares() || self.refused_readings() <= unread {
            return;
        }
        for &tag in targets {
            let id = self.id_of(tag).map(|(_, id)| id);
            let is_off = id.is_some_and(|id| self.observe(|engine| engine.state(id)) == Ok(EventState::Off));
            self.with(|state| {
                if is_off {
                    state.each_site(tag, |site| site.on = false);
                }
                let view = state.ledger.tag_mut(tag).and_then(|tag| tag.view.as_mut());
                view.into_iter().for_each(|view| (view.unsure, view.on) = (true, view.on && !is_off));
            });
        }
    }

    /// An exec has enabled what waited for it.
    pub(super) fn settle_place(&mut self, place: ContextKey) {
        if !self.shares() {
            return;
        }
        let groups: Vec<Vec<Event>> = {
            let state = lock(&self.machine.shared.state);
            let views = state.sites_in(place).into_iter().filter(|&site| state.is_view(site));
            let numbers: BTreeSet<_> = views.filter_map(|site| state.ledger.group_at(site)).collect();
            numbers.into_iter().filter_map(|number| Some(self.books.get(number)?.tags.clone())).collect()
        };
        for tags in groups {
            let on: Vec<Event> = self.state(|state| {
                let is_on = |&&tag: &&Event| state.ledger.sites_of(tag).any(|site| site.on);
                tags.iter().filter(is_on).copied().collect()
            });
            self.note_request(&on, true);
            self.settle_views(&tags);
        }
    }
}

/// Whether the opener of a master may open more under its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opener {
    /// A set: where a CPU comes.
    Goes,
    /// No opener.
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MasterUsers {
    /// Every group that asks the same.
    All,
    /// The group that was the only one to use it when it came to ask something else, and no group any more.
    OneGroup,
}

impl State {
    pub(crate) fn is_view_event(&self, event: Event) -> bool {
        self.ledger.tag(event).is_some_and(|tag| tag.view.is_some())
    }
}

impl super::Book {
    /// The task or CPU of which it is a group, where it is in no set.
    pub(crate) const fn root(&self) -> Option<Target> {
        match &self.kind {
            BookKind::Group { target, .. } => Some(*target),
            BookKind::Master { root, .. } => *root,
            BookKind::OfSet { .. } => None,
        }
    }

    /// Whether it is a master that no group can come to share any more.
    pub(crate) const fn is_taken(&self) -> bool {
        matches!(self.kind, BookKind::Master { users: MasterUsers::OneGroup, .. })
    }

    /// Whether a set opens masters under its name.
    pub(crate) const fn is_of_set(&self) -> bool {
        matches!(self.kind, BookKind::Master { root: None, .. })
    }

    /// Whether it is one under whose name a set has opened masters, and opens no more.
    pub(crate) const fn is_left_by_set(&self) -> bool {
        matches!(self.kind, BookKind::Master { root: None, opener: Opener::Done, .. })
    }

    pub(crate) const fn is_master(&self) -> bool {
        matches!(self.kind, BookKind::Master { .. })
    }
}

/// A family that is a master's, or a group's own.
pub(super) const fn family_of(kind: &BookKind) -> Option<FamilyId> {
    match kind {
        BookKind::Group { family, .. } | BookKind::Master { family, .. } => *family,
        BookKind::OfSet { .. } => None,
    }
}
