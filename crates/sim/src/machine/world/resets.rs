//! What a reset forgets.
//!
//! What it is: from when on the truth of an event is counted anew. Where a caller waits, each place is reset at a moment of
//! its own between call and return; which one it was, only the engine's count tells. It must lie between the two.

use super::super::ledger::Event;
use super::super::state::State;
use super::{BookKind, World};
use crate::check::{Checker, Violation};
use pmux_engine::EventState;
use pmux_engine::target::ContextKey;

/// What an event had counted in each place, and everywhere, when it was to be reset.
pub(super) struct Before {
    places: Vec<(u32, u64)>,
    everywhere: u64,
}

impl World {
    pub(super) fn counted_by_now(&self, tags: &[Event]) -> Vec<Before> {
        self.state(|state| {
            let before = |&tag: &Event| {
                let sites = state.ledger.tag(tag).map(|tag| tag.sites.clone()).unwrap_or_default();
                let places = sites.into_iter().map(|site| (site, state.ran(site).occurrences)).collect();
                Before { places, everywhere: state.ran_anywhere(tag).occurrences }
            };
            tags.iter().map(before).collect()
        })
    }

    /// The counts of these events were set to 0 since.
    pub(super) fn forget_counts(&mut self, tags: &[Event], before: &[Before]) {
        for (&tag, before) in tags.iter().zip(before) {
            if self.state(|state| state.sees_everywhere(tag)) {
                self.forget_what_was_seen(tag, before);
                continue;
            }
            let mut moved = false;
            for &(site, then) in &before.places {
                let now = self.state(|state| state.ran(site).occurrences);
                let is_retired = self.state(|state| state.ledger.site(site).is_none_or(|site| site.retired));
                // What children that exited had counted stays theirs.
                if is_retired {
                    continue;
                }
                moved |= now != then;
                let at = if now == then { now } else { self.reset_at(tag, site, (then, now)) };
                self.with(|state| {
                    if let Some(site) = state.ledger.site_mut(site) {
                        site.forgotten = at.wrapping_sub(site.lost);
                    }
                });
            }
            let now = self.state(|state| state.ran_anywhere(tag).occurrences);
            // All that was counted since the places were reset, and nothing of before.
            let since = self.state(|state| state.counted_since(before));
            let at = if moved || now != before.everywhere { now.wrapping_sub(since) } else { now };
            self.with(|state| {
                if let Some(tag) = state.ledger.tag_mut(tag) {
                    tag.forgotten = at.wrapping_sub(tag.lost);
                }
            });
        }
    }

    /// Some of these events were set to 0 since, up to one that was refused: their counts tell which.
    pub(super) fn forget_what_was_reset(&mut self, tags: &[Event], before: &[Before]) {
        for (&tag, before) in tags.iter().zip(before) {
            for &(site, then) in &before.places {
                let expected = self.state(|state| state.truth_of_site(site).counted);
                let place = self.state(|state| state.ledger.site(site).map(|site| site.place));
                let counted = place.and_then(|place| self.counted_in(tag, place, site));
                if counted.is_none_or(|counted| counted == expected) {
                    continue;
                }
                let now = self.state(|state| state.ran(site).occurrences);
                let at = self.reset_at(tag, site, (then, now));
                self.with(|state| {
                    let Some(site) = state.ledger.site_mut(site) else { return };
                    let more = at.wrapping_sub(site.lost).wrapping_sub(site.forgotten);
                    site.forgotten = site.forgotten.wrapping_add(more);
                    if let Some(tag) = state.ledger.tag_mut(tag) {
                        tag.forgotten = tag.forgotten.wrapping_add(more);
                    }
                });
            }
        }
    }

    /// The same of an event that sees what a master counts everywhere together: its places cannot be told apart.
    fn forget_what_was_seen(&mut self, tag: Event, before: &Before) {
        let now = self.state(|state| state.ran_anywhere(tag).occurrences);
        let count = self.look_at_counts(tag).into_iter().find_map(|(_, count)| count);
        let at = if now == before.everywhere { now } else { count.map_or(now, |count| now.wrapping_sub(count.value)) };
        if at < before.everywhere || at > now {
            let what = "a reset count is not what happened since";
            let violation = Violation::new(Checker::Counts, self.now(), what).event(tag);
            self.report(violation.numbers(now - before.everywhere, now.wrapping_sub(at)));
        }
        self.with(|state| {
            let lost = state.ledger.tag(tag).map_or(0, |tag| tag.lost);
            state.ledger.tag_mut(tag).into_iter().for_each(|tag| tag.forgotten = at.wrapping_sub(lost));
            for &(site, _) in &before.places {
                let now = state.ran(site).occurrences;
                state.ledger.site_mut(site).into_iter().for_each(|site| site.forgotten = now.wrapping_sub(site.lost));
            }
        });
    }

    /// What had happened in a place when it was reset, as its count tells.
    fn reset_at(&mut self, tag: Event, site: u32, (then, now): (u64, u64)) -> u64 {
        let Some(place) = self.state(|state| state.ledger.site(site).map(|site| site.place)) else { return now };
        let counted = self.counted_in(tag, place, site).or_else(|| self.counted_before_error(tag, place, site));
        let Some(counted) = counted else { return now };
        let at = now.wrapping_sub(counted);
        if at < then || at > now {
            let what = "a reset count is not what happened since";
            self.with(|state| {
                let violation = Violation::new(Checker::Counts, state.now(), what).event(tag).place(Some(place));
                state.breach(violation.numbers(now - then, counted));
            });
        }
        at
    }

    /// What an event of a set has counted that came to be in error after it was reset there, while others were still to be: no
    /// reading says so before it is enabled again, and it goes on from there then.
    fn counted_before_error(&self, tag: Event, place: ContextKey, site: u32) -> Option<u64> {
        self.set_of(tag)?;
        let only_on = self.state(|state| state.ledger.site(site)?.only_on);
        let event = self.engine_event(tag, only_on.map_or(place, ContextKey::Cpu))?;
        let is_failed = self.observe(|engine| engine.state(event)) == Ok(EventState::Error);
        let counted = self.observe(|engine| engine.read_cached(event)).ok().filter(|_| is_failed)?;
        Some(counted.0.value)
    }

    /// What the engine has counted for an event in one place.
    fn counted_in(&self, tag: Event, place: ContextKey, site: u32) -> Option<u64> {
        let number = self.number_of(tag)?;
        let book = self.books.get(number)?;
        let index = book.tags.iter().position(|&other| other == tag)?;
        match (&book.kind, place) {
            // Of masters only one that is alone is reset, with its children.
            (
                BookKind::Group { .. } | BookKind::Master { root: Some(_), family: Some(_), .. },
                ContextKey::Task(task),
            ) => {
                // A root's reading holds its children: its own part is in the family's.
                if let Some(family) = book.family().filter(|_| book.root().is_some_and(|root| root.context == place)) {
                    return Some(self.observe(|engine| engine.read_family(family)).ok()?.get(index)?.own.value);
                }
                let group = self.group_in(number, task)?;
                self.observe(|engine| engine.read_group(group)).ok()?.get(index)?.ok().map(|count| count.value)
            }
            (BookKind::Group { id, .. }, ContextKey::Cpu(_)) => {
                self.observe(|engine| engine.read_group(*id)).ok()?.get(index)?.ok().map(|count| count.value)
            }
            (BookKind::Master { .. }, _) => None,
            (BookKind::OfSet { set, first }, _) => {
                let id = self.books.set(*set)?.id;
                let cpu = match place {
                    ContextKey::Cpu(cpu) => cpu,
                    ContextKey::Task(_) => self.state(|state| state.ledger.site(site)?.only_on)?,
                };
                let reading = self.observe(|engine| engine.read_set(id)).ok()?;
                let here = reading.cpus.iter().find(|reading| reading.cpu == cpu)?;
                here.counts.get(first + index)?.ok().map(|count| count.value)
            }
        }
    }
}

impl State {
    /// Whether an event sees what a master counts everywhere together.
    fn sees_everywhere(&self, tag: Event) -> bool {
        self.ledger.tag(tag).is_some_and(|tag| tag.view.is_some_and(|view| view.master.is_some()))
    }

    /// What was counted in these places since they were reset.
    fn counted_since(&self, before: &Before) -> u64 {
        let since = |&(site, _): &(u32, u64)| {
            let it = self.ledger.site(site).filter(|site| !site.retired)?;
            Some(self.ran(site).occurrences.wrapping_sub(it.lost).wrapping_sub(it.forgotten))
        };
        before.places.iter().filter_map(since).fold(0, u64::wrapping_add)
    }
}
