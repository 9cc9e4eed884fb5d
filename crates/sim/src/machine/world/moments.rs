//! At which moment an event began, or ended, to see what its master counts.
//!
//! What it is: a caller that reaches only its own CPU asks the others by doorbells, and waits; a master there counts on meanwhile. The
//! count of the event tells at which moment of the call the master was read. That moment must lie between the call and its end; from
//! then on the books know it, and the count is exact again.
//! Read first: [`World::tell_moments`].
//!
//! **Invariant:** where no master counted while a caller waited, the engine is asked nothing.

use super::super::ledger::{Activity, Event};
use super::super::state::State;
use super::super::views::{Seeing, Sight, SwitchedEvent};
use super::World;
use crate::check::{Checker, Violation};
use crate::machine::{Reach, Truth};
use pmux_engine::target::ContextKey;
use pmux_engine::{Count, CpuId, Nanos};

impl World {
    /// Whether a caller may have to wait while masters count.
    pub(super) fn must_tell_moments(&self) -> bool {
        self.description().reach == Reach::OwnCpu && self.shares()
    }

    fn has_waited(&self) -> bool {
        self.must_tell_moments() && self.state(State::has_waited)
    }

    /// These were switched in the call that is just over. `left` is what those masters counted meanwhile that were given up for others.
    pub(super) fn tell_moments(&mut self, switched: &[SwitchedEvent], left: &[(Event, Activity)]) {
        if !self.has_waited() {
            return;
        }
        for &SwitchedEvent { tag, sight, now } in switched {
            let meanwhile = self.with(|state| state.tell_once(sight));
            let given_up = left.iter().find(|(event, _)| *event == tag).map(|&(_, window)| window).unwrap_or_default();
            let (more, less) = match now {
                // Where something was refused, what was done until then was undone: some were on for a while, or off.
                Seeing::Began | Seeing::No => (meanwhile, given_up),
                Seeing::Ended | Seeing::Yes => (Activity::default(), meanwhile),
            };
            if (more, less) != Default::default() {
                self.tell_moment(tag, sight, more, less);
            }
        }
    }

    /// An event of a set is about to look at no master any more in a place, because the set has left it: what it saw until then.
    pub(super) fn look_away_and_tell(&mut self, tag: Event, site: u32) {
        let sight = Sight::Site(site);
        let sees = self.state(|state| state.ledger.site(site).is_some_and(|site| site.seen.is_open()));
        let less = self.state(|state| if sees { state.counted_in_call(sight) } else { Activity::default() });
        self.with(|state| state.look_away(site));
        if self.has_waited() && less != Activity::default() {
            self.tell_moment(tag, sight, Activity::default(), less);
        }
    }

    /// What an event saw is so much more at most, or so much less, than the books say.
    fn tell_moment(&mut self, tag: Event, sight: Sight, more: Activity, less: Activity) {
        let (truth, place) = match sight {
            Sight::Everywhere(tag) => (self.truth(tag).unwrap_or_default(), None),
            Sight::Site(site) => self.state(|state| {
                let place = state.ledger.site(site).map(|site| (site.place, site.only_on));
                (state.truth_of_site(site), place)
            }),
        };
        let Some(count) = self.counted_at(tag, place).filter(|_| !truth.at_most) else {
            // The moment cannot be told: what the event saw is this at most.
            self.with(|state| {
                state.correct_sight(sight, more, Activity::default());
                let view = state.ledger.tag_mut(tag).and_then(|tag| tag.view.as_mut());
                view.into_iter().for_each(|view| view.unsure = true);
            });
            return;
        };
        let Truth { counted, running, .. } = truth;
        let lies = |thought: u64, is: u64, more: u64, less: u64| {
            let moved = is.wrapping_sub(thought).cast_signed();
            moved <= more.cast_signed() && moved >= -less.cast_signed()
        };
        let good = lies(counted, count.value, more.occurrences, less.occurrences)
            && lies(running.0, count.running.0, more.time.0, less.time.0);
        if !good {
            let what = "it was switched neither when that was asked for, nor later, nor in between";
            let violation = Violation::new(Checker::Counts, self.now(), what).event(tag);
            let violation = violation.place(place.map(|(place, _)| place)).numbers(counted, count.value);
            return self.report(violation);
        }
        let grown = Activity {
            occurrences: count.value.wrapping_sub(counted),
            time: Nanos(count.running.0.saturating_sub(running.0)),
        };
        let shrunk = Activity { occurrences: 0, time: Nanos(running.0.saturating_sub(count.running.0)) };
        self.with(|state| state.correct_sight(sight, grown, shrunk));
    }

    /// What an observer reads of an event, in a place if it is one of a set: all its places at once, because nothing passes until the
    /// engine is called again.
    fn counted_at(&mut self, tag: Event, place: Option<(ContextKey, Option<CpuId>)>) -> Option<Count> {
        let known = self.with(|state| state.at_call.counts.remove(&tag));
        let counts = known.unwrap_or_else(|| self.look_at_counts(tag).into_iter().collect());
        let cpu = match place {
            Some((ContextKey::Cpu(cpu), _) | (ContextKey::Task(_), Some(cpu))) => Some(cpu),
            _ => None,
        };
        let count = counts.get(&None).or_else(|| counts.get(&cpu)).copied().flatten();
        self.with(|state| state.at_call.counts.insert(tag, counts));
        count
    }
}
