//! What should be so.
//!
//! What it is: a [`Book`] for each group that is open, one for each group of a set. With the flags of its events in each
//! place ([`super::super::ledger::CountSite`]), it says who is enabled where; gates in the ledger let through what happens then.
//!
//! **Invariant:** of two gates, the wide one opens before the engine is called and closes after, the narrow one the other
//! way round. Where a caller does not wait, the two are one.

use super::super::ledger::Event;
use super::super::state::State;
use super::World;
use super::views::{MasterUsers, Opener, family_of};
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, EventId, FamilyId, GroupId, Nanos, SetId, Target};

pub(crate) struct Book {
    /// Its events, the leader first.
    pub(crate) tags: Vec<Event>,
    pub(crate) kind: BookKind,
    pub(crate) pinned: bool,
    pub(crate) exclusive: bool,
    pub(crate) opened: Nanos,
    touched: bool,
}

pub(crate) enum BookKind {
    Group {
        id: GroupId,
        events: Vec<EventId>,
        target: Target,
        family: Option<FamilyId>,
        /// Whether exited children keep their numbers.
        keeps_each: bool,
    },
    /// A group of a set; its first event is the set's so-many-eth.
    OfSet { set: u32, first: usize },
    /// A group that counts for those who share it: on a task or CPU, or wherever a set has opened it first.
    Master { root: Option<Target>, family: Option<FamilyId>, opener: Opener, users: MasterUsers },
}

pub(crate) struct SetBook {
    pub(crate) id: SetId,
    pub(crate) mask: CpuMask,
    pub(crate) armed: bool,
    pub(crate) books: Vec<u32>,
    pub(crate) generation: u32,
    /// The groups under whose names it opens masters, where counters are shared.
    pub(crate) masters: Vec<u32>,
}

#[derive(Default)]
pub(crate) struct Books {
    books: Vec<Option<Book>>,
    free: Vec<u32>,
    sets: Vec<(u32, Option<SetBook>)>,
    free_sets: Vec<u32>,
    touched: Vec<u32>,
    /// Places to whose groups something was done: the latest.
    places: std::collections::VecDeque<ContextKey>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Least,
    Most,
    /// No caller waits: the two are one.
    Both,
}

impl Books {
    /// A number for a group that is about to be opened.
    pub(super) fn reserve(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.books.push(None);
            self.books.len() as u32 - 1
        })
    }

    pub(super) fn give_up(&mut self, number: u32) {
        self.free.push(number);
    }

    pub(super) fn enter(
        &mut self,
        number: u32,
        tags: Vec<Event>,
        kind: BookKind,
        flags: pmux_abi::attr::AttrFlags,
        opened: Nanos,
    ) {
        use pmux_abi::attr::AttrFlags;
        let (pinned, exclusive) = (flags.contains(AttrFlags::PINNED), flags.contains(AttrFlags::EXCLUSIVE));
        let book = Book { tags, kind, pinned, exclusive, opened, touched: false };
        self.books[number as usize] = Some(book);
        self.touch(number);
    }

    pub(super) fn strike(&mut self, number: u32) -> Option<Book> {
        let book = self.books.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(book)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Book> {
        self.books.get(number as usize)?.as_ref()
    }

    pub(super) fn kind_mut(&mut self, number: u32) -> Option<&mut BookKind> {
        Some(&mut self.books.get_mut(number as usize)?.as_mut()?.kind)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Book)> {
        self.books.iter().enumerate().filter_map(|(number, book)| Some((number as u32, book.as_ref()?)))
    }

    pub(super) fn new_set(&mut self, set: impl FnOnce(u32) -> SetBook) -> u32 {
        let number = self.free_sets.pop().unwrap_or_else(|| {
            self.sets.push((0, None));
            self.sets.len() as u32 - 1
        });
        let (generation, slot) = &mut self.sets[number as usize];
        *slot = Some(set(*generation));
        number
    }

    pub(super) fn strike_set(&mut self, number: u32) -> Option<SetBook> {
        let (generation, slot) = self.sets.get_mut(number as usize)?;
        let set = slot.take()?;
        *generation += 1;
        self.free_sets.push(number);
        Some(set)
    }

    pub(crate) fn set(&self, number: u32) -> Option<&SetBook> {
        self.sets.get(number as usize)?.1.as_ref()
    }

    pub(super) fn set_mut(&mut self, number: u32) -> Option<&mut SetBook> {
        self.sets.get_mut(number as usize)?.1.as_mut()
    }

    pub(crate) fn sets(&self) -> impl Iterator<Item = (u32, &SetBook)> {
        self.sets.iter().enumerate().filter_map(|(number, (_, set))| Some((number as u32, set.as_ref()?)))
    }

    /// Something has been done to a group: it is worth a look.
    pub(super) fn touch(&mut self, number: u32) {
        if let Some(book) = self.books.get_mut(number as usize).and_then(Option::as_mut)
            && !std::mem::replace(&mut book.touched, true)
        {
            self.touched.push(number);
        }
    }

    pub(super) fn touch_place(&mut self, place: ContextKey) {
        if self.places.len() >= 2 * crate::check::LOOKED_AT {
            self.places.pop_front();
        }
        self.places.push_back(place);
    }

    pub(super) fn take_places(&mut self) -> Vec<ContextKey> {
        self.places.drain(..).collect()
    }

    /// The groups to which something was done since the last question.
    pub(super) fn take_touched(&mut self) -> Vec<u32> {
        let touched = std::mem::take(&mut self.touched);
        for &number in &touched {
            if let Some(book) = self.books.get_mut(number as usize).and_then(Option::as_mut) {
                book.touched = false;
            }
        }
        touched
    }
}

impl Book {
    pub(crate) fn only_on(&self) -> Option<CpuId> {
        if let pmux_engine::target::Filter::OnCpu(cpu) = self.root()?.filter { Some(cpu) } else { None }
    }

    pub(crate) const fn family(&self) -> Option<FamilyId> {
        family_of(&self.kind)
    }
}

impl State {
    /// Whether an event is enabled in a place, with its leader.
    pub(crate) fn is_enabled(&self, tags: &[Event], index: usize, place: ContextKey, only_on: Option<CpuId>) -> bool {
        let on = |tag: &Event| {
            let site = self.shelf(place).and_then(|shelf| shelf.find(tag.index, only_on));
            site.and_then(|site| self.ledger.site(site)).is_some_and(|site| site.on && !site.dead)
        };
        tags.first().is_some_and(on) && tags.get(index).is_some_and(on)
    }

    /// Opens and closes gates of a group in one place, as its flags say.
    pub(super) fn gate_place(&mut self, tags: &[Event], place: ContextKey, only_on: Option<CpuId>, which: Which) {
        let mut leader_on = None;
        for tag in tags {
            let Some(site) = self.shelf(place).and_then(|shelf| shelf.find(tag.index, only_on)) else { continue };
            let total = self.site_total(site);
            let Some(site) = self.ledger.site_mut(site) else { continue };
            let own = site.on && !site.dead;
            let open = *leader_on.get_or_insert(own) && own;
            if matches!(which, Which::Least | Which::Both) {
                site.least.set(open, total);
            }
            if matches!(which, Which::Most | Which::Both) {
                site.most.set(open, total);
            }
        }
    }

    /// Opens and closes gates of a master, when no caller waits any more.
    pub(crate) fn gate_master(&mut self, tags: &[Event], place: ContextKey, only_on: Option<CpuId>) {
        self.gate_place(tags, place, only_on, Which::Both);
    }

    /// The same in all its places.
    pub(super) fn gate(&mut self, tags: &[Event], which: Which) {
        self.places(tags).into_iter().for_each(|(place, only_on)| self.gate_place(tags, place, only_on, which));
    }

    /// The masters of these events may begin to count anywhere: opens their wide gates, until [`State::gate_master`] says what is so.
    pub(super) fn open_masters(&mut self, tags: &[Event]) {
        for master in self.masters_of(tags) {
            for site in self.ledger.tag(master).map(|tag| tag.sites.clone()).unwrap_or_default() {
                let total = self.site_total(site);
                if let Some(site) = self.ledger.site_mut(site).filter(|site| !site.dead) {
                    site.most.set(true, total);
                }
            }
        }
    }

    pub(crate) fn places(&self, tags: &[Event]) -> Vec<(ContextKey, Option<CpuId>)> {
        let Some(leader) = tags.first().and_then(|&leader| self.ledger.tag(leader)) else { return Vec::new() };
        leader.sites.iter().filter_map(|&site| self.ledger.site(site)).map(|site| (site.place, site.only_on)).collect()
    }

    /// Changes what is noted of an event, in all its places.
    pub(super) fn each_site(&mut self, tag: Event, mut f: impl FnMut(&mut super::super::ledger::CountSite)) {
        let sites = self.ledger.tag(tag).map(|tag| tag.sites.clone()).unwrap_or_default();
        for site in sites {
            if let Some(site) = self.ledger.site_mut(site) {
                f(site);
            }
        }
    }
}

impl World {
    /// Carries something out that changes who is enabled: notes it with `change`, and does it with `act`.
    pub(super) fn switching<R>(
        &mut self,
        tags: &[Event],
        change: impl FnOnce(&mut State),
        act: impl FnOnce(&mut Self) -> R,
    ) -> R {
        // An event that is enabled before or after may count meanwhile; for certain, only one that is enabled both before and after.
        let before: Vec<_> = self.with(|state| {
            let open = |state: &State, site: u32| state.ledger.site(site).is_some_and(|site| site.most.is_open());
            let sites = tags.iter().filter_map(|&tag| state.ledger.tag(tag)).flat_map(|tag| tag.sites.iter().copied());
            let before = sites.filter(|&site| open(state, site)).collect();
            change(state);
            before
        });
        self.with(|state| {
            state.gate(tags, Which::Most);
            // What was open stays open until it is done.
            for site in before {
                state.with_total(site, |site, total| site.most.set(true, total));
            }
            state.close_least(tags);
        });
        let result = act(self);
        self.with(|state| state.gate(tags, Which::Both));
        result
    }
}

impl State {
    /// Closes the narrow gates of those who will not be enabled.
    fn close_least(&mut self, tags: &[Event]) {
        for (place, only_on) in self.places(tags) {
            for (index, tag) in tags.iter().enumerate() {
                if self.is_enabled(tags, index, place, only_on) {
                    continue;
                }
                let Some(site) = self.shelf(place).and_then(|shelf| shelf.find(tag.index, only_on)) else { continue };
                self.with_total(site, |site, total| site.least.set(false, total));
            }
        }
    }
}
