//! What is true of events that share a counter.
//!
//! What it is: an event that shares (a *view*) has no register of its own. It looks at the kin of a *master*'s event, for which
//! a register is programmed, and what is true of it is what the master counted while the view was on: a gate over the master's
//! truth.
//! Read first: [`State::seen`], then `ledger` (whose kins these are), then `views` in `world` (who looks at whom).
//!
//! **Invariant:** which master an event has is the only thing here that the engine said; what it sees of it is not.

use super::ledger::{Event, Kin, Tag, View, Window};
use super::registers::RegisterKey;
use super::state::State;

impl State {
    /// Whether a kin is one of an event that a master counts.
    #[inline]
    pub(crate) fn is_view(&self, kin: u32) -> bool {
        let tag = self.ledger.kin(kin).and_then(|kin| self.ledger.event_at(kin.tag));
        tag.and_then(|tag| self.ledger.tag(tag)).is_some_and(|tag| tag.view.is_some())
    }

    /// The register that counts for a kin now: its own, or its master's.
    pub(crate) fn counter_of(&self, kin: u32) -> Option<RegisterKey> {
        let it = self.ledger.kin(kin)?;
        match it.master {
            Some(master) => self.ledger.kin(master)?.running,
            None => it.running,
        }
    }

    /// What a master's event has counted in one place: what happened, without what the machine withheld.
    fn counted(&self, master: u32) -> Window {
        let lost = self.ledger.kin(master).map_or(0, |kin| kin.lost);
        let ran = self.ran(master);
        Window { occurrences: ran.occurrences.wrapping_sub(lost), ..ran }
    }

    /// The same everywhere.
    pub(super) fn counted_anywhere(&self, master: Event) -> Window {
        let lost = self.ledger.tag(master).map_or(0, |tag| tag.lost);
        let ran = self.ran_anywhere(master);
        Window { occurrences: ran.occurrences.wrapping_sub(lost), ..ran }
    }

    /// What a master counted in a place while a view was on there.
    pub(super) fn seen(&self, kin: u32) -> Window {
        let Some(it) = self.ledger.kin(kin) else { return Window::default() };
        it.seen.at(it.master.map(|master| self.counted(master)).unwrap_or_default())
    }

    /// The same everywhere.
    pub(super) fn seen_anywhere(&self, tag: &Tag, view: &View) -> Window {
        match view.master {
            Some(master) => view.seen.at(self.counted_anywhere(master)),
            None => tag.kins.iter().fold(Window::default(), |mut sum, &kin| {
                sum += self.seen(kin);
                sum
            }),
        }
    }

    /// A kin looks at a master's from now on.
    pub(crate) fn look_at(&mut self, kin: u32, master: u32) {
        self.look_away(kin);
        if let Some(it) = self.ledger.kin_mut(kin) {
            it.master = Some(master);
        }
        if let Some(it) = self.ledger.kin_mut(master) {
            it.viewers.push(kin);
        }
    }

    /// It looks at none any more: what it has seen stays.
    pub(crate) fn look_away(&mut self, kin: u32) {
        let Some(master) = self.ledger.kin(kin).and_then(|kin| kin.master) else { return };
        let now = self.counted(master);
        let doubtful = self.group_is_doubtful(master);
        let marks = self.ledger.kin(master).map(|it| (doubtful, it.missed, it.withheld, it.lost > 0));
        if let Some(it) = self.ledger.kin_mut(kin) {
            it.seen.set(false, now);
            it.master = None;
            let (doubtful, missed, withheld, lost) = marks.unwrap_or_default();
            it.doubtful |= doubtful;
            it.missed |= missed | lost;
            it.withheld |= withheld;
        }
        if let Some(it) = self.ledger.kin_mut(master) {
            it.viewers.retain(|&other| other != kin);
        }
    }

    /// Whether an event of a kin's group, which it leads or is led by, may have been in error in that place.
    fn group_is_doubtful(&self, kin: u32) -> bool {
        let group =
            |kin: &Kin| self.ledger.event_at(kin.tag).and_then(|event| self.ledger.tag(event)).map(|tag| tag.group);
        let Some(it) = self.ledger.kin(kin) else { return false };
        let of_group = group(it);
        let here = self.shelf(it.place).into_iter().flat_map(|shelf| shelf.kins());
        let mut others = here.filter_map(|other| self.ledger.kin(other)).filter(|other| group(other) == of_group);
        it.doubtful || others.any(|other| other.only_on == it.only_on && other.doubtful)
    }

    /// A kin is about to be no more: nobody looks at it, and it looks at nobody.
    pub(super) fn part(&mut self, kin: u32) {
        self.look_away(kin);
        let viewers = self.ledger.kin(kin).map(|kin| kin.viewers.clone()).unwrap_or_default();
        viewers.into_iter().for_each(|viewer| self.look_away(viewer));
    }

    /// Opens and closes the gates of a group of views, as its flags say.
    pub(crate) fn settle_views(&mut self, tags: &[Event]) {
        for (place, only_on) in self.places(tags) {
            for (index, tag) in tags.iter().enumerate() {
                let Some(kin) = self.kin_at(*tag, place, only_on) else { continue };
                let Some(master) = self.ledger.kin(kin).and_then(|kin| kin.master) else { continue };
                // Where the place is gone, nothing more is counted.
                let is_on = |tag: &Event| {
                    let kin = self.kin_at(*tag, place, only_on);
                    kin.and_then(|kin| self.ledger.kin(kin)).is_some_and(|kin| kin.on)
                };
                let open = is_on(&tags[0]) && is_on(&tags[index]);
                let now = self.counted(master);
                if let Some(kin) = self.ledger.kin_mut(kin) {
                    kin.seen.set(open, now);
                }
            }
        }
        let leads = tags.first().and_then(|&tag| self.ledger.tag(tag)?.view).is_some_and(|view| view.on);
        for &tag in tags {
            let Some(view) = self.ledger.tag(tag).and_then(|tag| tag.view) else { continue };
            let Some(master) = view.master else { continue };
            let now = self.counted_anywhere(master);
            if let Some(view) = self.ledger.tag_mut(tag).and_then(|tag| tag.view.as_mut()) {
                view.seen.set(leads && view.on, now);
            }
        }
    }

    /// Whether somebody looks at one of these events, anywhere.
    pub(crate) fn is_seen(&self, tags: &[Event]) -> bool {
        let kins = tags.iter().filter_map(|&tag| self.ledger.tag(tag)).flat_map(|tag| &tag.kins);
        kins.filter_map(|&kin| self.ledger.kin(kin)).any(|kin| !kin.viewers.is_empty())
    }

    /// The masters of these events, as events of the machine.
    pub(crate) fn masters_of(&self, tags: &[Event]) -> Vec<Event> {
        let kins = tags.iter().filter_map(|&tag| self.ledger.tag(tag)).flat_map(|tag| &tag.kins);
        let master = |&kin: &u32| self.ledger.event_at(self.ledger.kin(self.ledger.kin(kin)?.master?)?.tag);
        let mut masters: Vec<_> = kins.filter_map(master).collect();
        let whole = tags.iter().filter_map(|&tag| self.ledger.tag(tag)?.view?.master);
        masters.extend(whole.filter(|&master| self.ledger.tag(master).is_some()));
        masters.sort_unstable();
        masters.dedup();
        masters
    }

    /// A master's events are on wherever a view wants them, and with any of them the one that leads.
    pub(crate) fn settle_master(&mut self, tags: &[Event]) {
        for (place, only_on) in self.places(tags) {
            let mut wanted: Vec<bool> = tags.iter().map(|&tag| self.is_wanted(tag, place, only_on)).collect();
            if let Some(leader) = wanted.first().copied() {
                wanted[0] = leader || wanted.contains(&true);
            }
            for (&tag, wanted) in tags.iter().zip(wanted) {
                let kin = self.kin_at(tag, place, only_on);
                if let Some(kin) = kin.and_then(|kin| self.ledger.kin_mut(kin)) {
                    kin.on = wanted;
                }
            }
            self.gate_master(tags, place, only_on);
        }
    }

    fn is_wanted(
        &self,
        tag: Event,
        place: pmux_engine::context::ContextKey,
        only_on: Option<pmux_engine::CpuId>,
    ) -> bool {
        let Some(kin) = self.kin_at(tag, place, only_on).and_then(|kin| self.ledger.kin(kin)) else { return false };
        kin.viewers.iter().filter_map(|&viewer| self.ledger.kin(viewer)).any(|viewer| viewer.seen.is_open())
    }
}
