//! Triggers and switches, evaluated anew at every nanosecond.
//!
//! What it is: [`happenings`] goes through a story nanosecond by nanosecond and asks at each of them, from all that was told until
//! then, what is so; [`position`] asks the same of the wishes for a set. Nothing is kept but what the definition of a trigger itself
//! counts: whether a place is holding, and how many occurrences there were.
//!
//! **Invariant:** it shares names with the engine, and no step.

use pmux_engine::Nanos;
use pmux_engine::event_set::{Happening, Lasting, Place, Position, Reach, Repeat, Rounds, TriggerSpec, Verdict, Wish};
use std::collections::BTreeMap;

/// What a trigger is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// A reading of a term.
    Reads(usize, Place, Verdict),
    /// What a term waits for happens.
    Happens(usize, Place),
    /// A place leaves.
    Leaves(Place),
}

/// What was told, and when; in ascending order of times.
pub type Story = [(u64, Told)];

/// What the definition counts, place by place.
#[derive(Default)]
struct Counted {
    holding: bool,
    occurrences: u32,
    last: Option<u64>,
}

struct Telling<'a> {
    spec: &'a TriggerSpec,
    story: &'a Story,
    places: BTreeMap<Place, Counted>,
    cool_until: u64,
    fired: bool,
    out: Vec<Happening>,
}

/// All that a trigger says of a story until `end`.
#[must_use]
pub fn happenings(spec: &TriggerSpec, story: &Story, end: u64) -> Vec<Happening> {
    let mut telling = Telling { spec, story, places: BTreeMap::new(), cool_until: 0, fired: false, out: Vec::new() };
    if spec.terms.iter().all(|term| term.reach == Reach::Common) {
        telling.places.insert(Place::All, Counted::default());
    }
    let mut known = 0;
    for now in 0..=end {
        telling.look_everywhere(known, now);
        while let Some(&(at, told)) = story.get(known)
            && at == now
        {
            known += 1;
            telling.tell(told, known, now);
        }
    }
    telling.out
}

impl Telling<'_> {
    fn tell(&mut self, told: Told, known: usize, now: u64) {
        match told {
            Told::Leaves(place) => {
                let held = self.holding();
                self.places.remove(&place);
                if held && !self.holding() {
                    self.out.push(Happening::Ends { at: Nanos(now) });
                }
            }
            Told::Reads(term, place, _) | Told::Happens(term, place) => {
                let Some(&spec) = self.spec.terms.get(term) else { return };
                if matches!(told, Told::Reads(..)) != (spec.lasting == Lasting::Level) {
                    return;
                }
                if spec.reach == Reach::EachPlace {
                    self.places.entry(place).or_default();
                }
                if spec.lasting != Lasting::Moment {
                    return self.look_everywhere(known, now);
                }
                let concerned: Vec<Place> = match spec.reach {
                    Reach::EachPlace => vec![place],
                    Reach::Common => self.places.keys().copied().collect(),
                };
                for place in concerned {
                    let others = (0..self.spec.terms.len()).filter(|&other| other != term);
                    if others.map(|other| self.says(other, place, known, now)).all(|said| said == Verdict::Holds) {
                        self.occurs(place, true, now);
                    }
                }
            }
        }
    }

    fn holding(&self) -> bool {
        self.places.values().any(|place| place.holding)
    }

    fn look_everywhere(&mut self, known: usize, now: u64) {
        for place in self.places.keys().copied().collect::<Vec<_>>() {
            let said: Vec<Verdict> =
                (0..self.spec.terms.len()).map(|term| self.says(term, place, known, now)).collect();
            let (was, anywhere) = (self.places[&place].holding, self.holding());
            if said.contains(&Verdict::Fails) || said.is_empty() {
                self.places.entry(place).or_default().holding = false;
                if anywhere && !self.holding() {
                    self.out.push(Happening::Ends { at: Nanos(now) });
                }
            } else if !said.contains(&Verdict::Unknown) {
                self.places.entry(place).or_default().holding = true;
                if !anywhere {
                    self.out.push(Happening::Begins { at: Nanos(now) });
                }
                if !was || self.again_at(place).is_some_and(|at| at <= now) {
                    self.occurs(place, false, now);
                }
            }
        }
    }

    fn again_at(&self, place: Place) -> Option<u64> {
        match self.spec.repeat {
            Repeat::OnEdge => None,
            Repeat::WhileHolds(span) => Some(self.places.get(&place)?.last? + span.0.max(1)),
        }
    }

    fn occurs(&mut self, place: Place, moment: bool, now: u64) {
        let too_soon = moment && self.again_at(place).is_some_and(|at| at > now);
        let state = self.places.entry(place).or_default();
        if !too_soon {
            state.last = Some(now);
            state.occurrences += 1;
            if !state.occurrences.is_multiple_of(self.spec.every.get()) {
                return;
            }
        }
        if self.fired && self.spec.rounds == Rounds::Once {
            return;
        }
        if too_soon || now < self.cool_until {
            self.out.push(Happening::HeldBack { place, at: Nanos(now) });
        } else {
            self.fired = true;
            self.cool_until = now + self.spec.cool_down.0;
            self.out.push(Happening::Fired { place, at: Nanos(now) });
        }
    }

    /// What a term says at a place when the first `known` of the story have been told.
    fn says(&self, term: usize, place: Place, known: usize, now: u64) -> Verdict {
        let mut held = 0;
        let mut raw = self.raw(term, place, 0, 0);
        for at in 0..=now {
            let begin = self.story.partition_point(|(told, _)| *told < at).min(known);
            let end = self.story.partition_point(|(told, _)| *told <= at).min(known);
            for count in begin..=end {
                raw = self.raw(term, place, count, at);
                let left =
                    count > begin && self.story.get(count - 1).is_some_and(|(_, told)| *told == Told::Leaves(place));
                if raw == Verdict::Fails || left && self.spec.terms[term].reach == Reach::EachPlace {
                    held = 0;
                }
            }
            held += u64::from(at < now && raw == Verdict::Holds);
        }
        let needs = self.spec.terms[term].held.0;
        if raw == Verdict::Holds && held < needs { Verdict::Fails } else { raw }
    }

    /// What a term says when nothing must be held.
    fn raw(&self, term: usize, place: Place, known: usize, now: u64) -> Verdict {
        let spec = self.spec.terms[term];
        let told = self.story.iter().take(known);
        // Of a place that has left, nothing counts that was told before.
        let since = match spec.reach {
            Reach::Common => 0,
            Reach::EachPlace => {
                told.clone().rposition(|(_, told)| *told == Told::Leaves(place)).map_or(0, |left| left + 1)
            }
        };
        let concerns = |of: Place| spec.reach == Reach::Common || of == place;
        let mut told = told.skip(since).rev();
        match spec.lasting {
            Lasting::Moment => Verdict::Fails,
            Lasting::Level => told
                .find_map(|(_, told)| match *told {
                    Told::Reads(of, at, verdict) if of == term && concerns(at) => Some(verdict),
                    _ => None,
                })
                .unwrap_or(Verdict::Unknown),
            Lasting::Window(lasts) => Verdict::from(told.any(|&(at, told)| match told {
                Told::Happens(of, place) => of == term && concerns(place) && now < at + lasts.0.max(1),
                _ => false,
            })),
        }
    }
}

/// Whether a set is on, after all these wishes.
#[must_use]
pub fn position(wishes: &[(u64, Wish)], now: u64) -> Position {
    // Whether nothing behind a wish speaks against it.
    let stands =
        |number: usize, against: &dyn Fn(Wish) -> bool| !wishes.iter().skip(number + 1).any(|&(_, wish)| against(wish));
    let any = |holds: &dyn Fn(usize, u64, Wish) -> bool| {
        wishes.iter().enumerate().any(|(number, &(at, wish))| holds(number, at, wish))
    };
    let base = wishes.iter().rev().find_map(|&(_, wish)| match wish {
        Wish::On => Some(true),
        Wish::Off => Some(false),
        _ => None,
    });
    let promised = any(&|number, at, wish| match wish {
        Wish::OnFor(span) => at + span.0 > now && stands(number, &|later| matches!(later, Wish::Off | Wish::OffFor(_))),
        _ => false,
    });
    let held = any(&|number, _, wish| match wish {
        Wish::Hold(who) => stands(number, &|later| later == Wish::Off || later == Wish::LetGo(who)),
        _ => false,
    });
    let muted = any(&|number, at, wish| match wish {
        Wish::OffFor(span) => {
            let against = |later| matches!(later, Wish::On | Wish::Off | Wish::OnFor(_) | Wish::Hold(_));
            at + span.0 > now && stands(number, &against)
        }
        _ => false,
    });
    if (base.unwrap_or(false) || promised || held) && !muted { Position::On } else { Position::Off }
}
