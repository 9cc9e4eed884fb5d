//! What is true of events that share a counter.
//!
//! What it is: an event that shares (a *view*) has no register of its own. It looks at the site of a *master*'s event, for which
//! a register is programmed, and what is true of it is what the master counted while the view was on: a gate over the master's
//! truth.
//! Read first: [`State::seen`], then `ledger` (whose sites these are), then `views` in `world` (which event looks at which).
//!
//! **Invariant:** which master an event has is the only thing here that the engine said; what it sees of it is not.

use super::ledger::{Activity, CountSite, Event, Gate, SharedView, Tag};
use super::registers::RegisterKey;
use super::state::State;
use pmux_engine::{Count, CpuId};
use std::collections::{BTreeSet, HashMap, HashSet};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Sight {
    /// In one place.
    Site(u32),
    /// Everywhere together.
    Everywhere(Event),
}

/// An event was switched that sees what its master counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchedEvent {
    pub(crate) tag: Event,
    pub(crate) sight: Sight,
    pub(crate) now: Seeing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seeing {
    /// It does, and perhaps did not before.
    Yes,
    Began,
    /// It does not; perhaps it did for a while.
    No,
    Ended,
}

impl Gate {
    /// Opens or closes it.
    fn switch(&mut self, open: bool, now: Activity) -> Seeing {
        let was = self.is_open();
        self.set(open, now);
        match (was, open) {
            (false, true) => Seeing::Began,
            (true, true) => Seeing::Yes,
            (true, false) => Seeing::Ended,
            (false, false) => Seeing::No,
        }
    }
}

/// What masters had counted when the engine was called; in one place with the event, because a place may be another's later.
#[derive(Default)]
pub(crate) struct AtCall {
    began: u64,
    /// When it was over.
    ended: u64,
    sites: HashMap<u32, (u32, Activity)>,
    events: HashMap<Event, Activity>,
    /// Who was asked about since.
    reported: HashSet<Sight>,
    /// What was read since, without a place or by CPU.
    pub(super) counts: HashMap<Event, HashMap<Option<CpuId>, Option<Count>>>,
}

impl State {
    /// Whether a site is one of an event that a master counts.
    #[inline]
    pub(crate) fn is_view(&self, site: u32) -> bool {
        let tag = self.ledger.site(site).and_then(|site| self.ledger.event_at(site.tag));
        tag.and_then(|tag| self.ledger.tag(tag)).is_some_and(|tag| tag.view.is_some())
    }

    /// The register that counts for a site now: its own, or its master's.
    pub(crate) fn counter_of(&self, site: u32) -> Option<RegisterKey> {
        let it = self.ledger.site(site)?;
        if let Some(master) = it.master { self.ledger.site(master)?.running } else { it.running }
    }

    /// What a master's event has counted in one place: what happened, without what the machine withheld.
    fn counted(&self, master: u32) -> Activity {
        let lost = self.ledger.site(master).map_or(0, |site| site.lost);
        let ran = self.ran(master);
        Activity { occurrences: ran.occurrences.wrapping_sub(lost), ..ran }
    }

    /// The same everywhere.
    pub(super) fn counted_anywhere(&self, master: Event) -> Activity {
        let lost = self.ledger.tag(master).map_or(0, |tag| tag.lost);
        let ran = self.ran_anywhere(master);
        Activity { occurrences: ran.occurrences.wrapping_sub(lost), ..ran }
    }

    /// What a master counted in a place while a view was on there.
    pub(super) fn seen(&self, site: u32) -> Activity {
        let Some(it) = self.ledger.site(site) else { return Activity::default() };
        it.seen.at(it.master.map(|master| self.counted(master)).unwrap_or_default())
    }

    /// The same everywhere.
    pub(super) fn seen_anywhere(&self, tag: &Tag, view: &SharedView) -> Activity {
        match view.master {
            Some(master) => view.seen.at(self.counted_anywhere(master)),
            None => tag.sites.iter().fold(Activity::default(), |mut sum, &site| {
                sum += self.seen(site);
                sum
            }),
        }
    }

    /// A site looks at a master's from now on.
    pub(crate) fn look_at(&mut self, site: u32, master: u32) {
        self.look_away(site);
        if let Some(it) = self.ledger.site_mut(site) {
            it.master = Some(master);
        }
        if let Some(it) = self.ledger.site_mut(master) {
            it.viewers.push(site);
        }
    }

    /// It looks at none any more: what it has seen stays.
    pub(crate) fn look_away(&mut self, site: u32) {
        let Some(master) = self.ledger.site(site).and_then(|site| site.master) else { return };
        let now = self.counted(master);
        let doubtful = self.group_is_doubtful(master);
        let marks = self.ledger.site(master).map(|it| (doubtful, it.missed, it.withheld, it.lost > 0));
        if let Some(it) = self.ledger.site_mut(site) {
            it.seen.set(false, now);
            it.master = None;
            let (doubtful, missed, withheld, lost) = marks.unwrap_or_default();
            it.doubtful |= doubtful;
            it.missed |= missed | lost;
            it.withheld |= withheld;
        }
        if let Some(it) = self.ledger.site_mut(master) {
            it.viewers.retain(|&other| other != site);
        }
    }

    /// Whether an event of a site's group, which it leads or is led by, may have been in error in that place.
    fn group_is_doubtful(&self, site: u32) -> bool {
        let group = |site: &CountSite| self.ledger.tag_of(site).map(|tag| tag.group);
        let Some(it) = self.ledger.site(site) else { return false };
        let of_group = group(it);
        let here = self.shelf(it.place).into_iter().flat_map(|shelf| shelf.sites());
        let mut others = here.filter_map(|other| self.ledger.site(other)).filter(|other| group(other) == of_group);
        it.doubtful || others.any(|other| other.only_on == it.only_on && other.doubtful)
    }

    /// A site is about to be no more: no site looks at it, and it looks at none.
    pub(super) fn part(&mut self, site: u32) {
        self.look_away(site);
        let viewers = self.ledger.site(site).map(|site| site.viewers.clone()).unwrap_or_default();
        viewers.into_iter().for_each(|viewer| self.look_away(viewer));
    }

    /// Notes what masters have counted, before a caller that may have to wait calls the engine.
    pub(crate) fn note_masters(&mut self) {
        let watched = |&site: &u32| self.ledger.site(site).is_some_and(|site| !site.viewers.is_empty());
        let sites: Vec<_> = self.ledger.all_sites().filter(watched).collect();
        let event = |&site: &u32| self.ledger.event_at(self.ledger.site(site)?.tag);
        let events: BTreeSet<_> = sites.iter().filter_map(event).collect();
        self.at_call = AtCall {
            sites: sites
                .into_iter()
                .filter_map(|site| Some((site, (self.ledger.site(site)?.tag, self.counted(site)))))
                .collect(),
            events: events.into_iter().map(|event| (event, self.counted_anywhere(event))).collect(),
            began: self.now,
            ended: self.now,
            ..AtCall::default()
        };
    }

    /// The engine has returned.
    pub(crate) fn note_return(&mut self) {
        self.at_call.ended = self.now;
    }

    /// Whether the caller had to wait in a call that is just over.
    pub(crate) const fn has_waited(&self) -> bool {
        self.at_call.began < self.at_call.ended && self.at_call.ended == self.now
    }

    /// The same, the first time that it is asked for; afterwards, nothing.
    pub(crate) fn tell_once(&mut self, sight: Sight) -> Activity {
        if self.at_call.reported.insert(sight) { self.counted_in_call(sight) } else { Activity::default() }
    }

    /// How much a master has counted since then for the event that sees it there: nothing of one that was not there.
    pub(crate) fn counted_in_call(&self, sight: Sight) -> Activity {
        let (then, now) = match sight {
            Sight::Site(site) => {
                let Some(master) = self.ledger.site(site).and_then(|site| site.master) else {
                    return Activity::default();
                };
                let tag = self.ledger.site(master).map(|master| master.tag);
                let then = self.at_call.sites.get(&master).filter(|(then, _)| Some(*then) == tag);
                (then.map(|&(_, window)| window).unwrap_or_default(), self.counted(master))
            }
            Sight::Everywhere(tag) => {
                let master = self.ledger.tag(tag).and_then(|tag| tag.view?.master);
                let Some(master) = master else { return Activity::default() };
                (self.at_call.events.get(&master).copied().unwrap_or_default(), self.counted_anywhere(master))
            }
        };
        now - then
    }

    /// What an event saw is more, or less, by so much than was thought.
    pub(crate) fn correct_sight(&mut self, sight: Sight, more: Activity, less: Activity) {
        let gate = match sight {
            Sight::Site(site) => self.ledger.site_mut(site).map(|site| &mut site.seen),
            Sight::Everywhere(tag) => {
                self.ledger.tag_mut(tag).and_then(|tag| tag.view.as_mut()).map(|view| &mut view.seen)
            }
        };
        if let Some(gate) = gate {
            gate.correct(more, less);
        }
    }

    /// Opens and closes the gates of a group of views, as its flags say. Returns what each now sees, of those who see it
    /// everywhere together and of those who see it in one place only.
    pub(crate) fn settle_views(&mut self, tags: &[Event]) -> Vec<SwitchedEvent> {
        let mut switched = Vec::new();
        for (place, only_on) in self.places(tags) {
            for (index, tag) in tags.iter().enumerate() {
                let Some(site) = self.site_at(*tag, place, only_on) else { continue };
                let Some(master) = self.ledger.site(site).and_then(|site| site.master) else { continue };
                // Where the place is gone, nothing more is counted.
                let is_on = |tag: &Event| {
                    let site = self.site_at(*tag, place, only_on);
                    site.and_then(|site| self.ledger.site(site)).is_some_and(|site| site.on)
                };
                let open = is_on(&tags[0]) && is_on(&tags[index]);
                let now = self.counted(master);
                let together =
                    self.ledger.tag(*tag).is_some_and(|tag| tag.view.is_some_and(|view| view.master.is_some()));
                let Some(it) = self.ledger.site_mut(site) else { continue };
                let now = it.seen.switch(open, now);
                if !together {
                    switched.push(SwitchedEvent { tag: *tag, sight: Sight::Site(site), now });
                }
            }
        }
        let leads = tags.first().and_then(|&tag| self.ledger.tag(tag)?.view).is_some_and(|view| view.on);
        for &tag in tags {
            let Some(view) = self.ledger.tag(tag).and_then(|tag| tag.view) else { continue };
            let Some(master) = view.master else { continue };
            let now = self.counted_anywhere(master);
            if let Some(view) = self.ledger.tag_mut(tag).and_then(|tag| tag.view.as_mut()) {
                let now = view.seen.switch(leads && view.on, now);
                switched.push(SwitchedEvent { tag, sight: Sight::Everywhere(tag), now });
            }
        }
        switched
    }

    /// Whether any event looks at one of these events, anywhere.
    pub(crate) fn is_seen(&self, tags: &[Event]) -> bool {
        tags.iter().flat_map(|&tag| self.ledger.sites_of(tag)).any(|site| !site.viewers.is_empty())
    }

    /// The masters of these events, as events of the machine.
    pub(crate) fn masters_of(&self, tags: &[Event]) -> Vec<Event> {
        let sites = tags.iter().flat_map(|&tag| self.ledger.sites_of(tag));
        let master = |site: &CountSite| self.ledger.event_at(self.ledger.site(site.master?)?.tag);
        let whole = tags.iter().filter_map(|&tag| self.ledger.tag(tag)?.view?.master);
        let whole = whole.filter(|&master| self.ledger.tag(master).is_some());
        sites.filter_map(master).chain(whole).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// A master's events are on wherever a view wants them, and with any of them the one that leads.
    pub(crate) fn settle_master(&mut self, tags: &[Event]) {
        for (place, only_on) in self.places(tags) {
            let mut wanted: Vec<bool> = tags.iter().map(|&tag| self.is_wanted(tag, place, only_on)).collect();
            if let Some(leader) = wanted.first().copied() {
                wanted[0] = leader || wanted.contains(&true);
            }
            for (&tag, wanted) in tags.iter().zip(wanted) {
                let site = self.site_at(tag, place, only_on);
                if let Some(site) = site.and_then(|site| self.ledger.site_mut(site)) {
                    site.on = wanted;
                }
            }
            self.gate_master(tags, place, only_on);
        }
    }

    fn is_wanted(&self, tag: Event, place: pmux_engine::target::ContextKey, only_on: Option<CpuId>) -> bool {
        let Some(site) = self.site_at(tag, place, only_on).and_then(|site| self.ledger.site(site)) else {
            return false;
        };
        site.viewers.iter().filter_map(|&viewer| self.ledger.site(viewer)).any(|viewer| viewer.seen.is_open())
    }
}
