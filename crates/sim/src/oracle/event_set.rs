//! Triggers and switches, evaluated anew at every nanosecond.
//!
//! What it is: [`happenings`] goes through a story nanosecond by nanosecond and asks at each of them, from all that was told until
//! then, what is so; [`position`] asks the same of the wishes for a set. Nothing is kept but what the definition of a trigger itself
//! counts: whether a place is holding, and how many occurrences there were.
//!
//! **Invariant:** it shares names with the engine, and no step.

use pmux_engine::Nanos;
use pmux_engine::event_set::{
    Happening, Lasting, Position, Reach, Repeat, Rounds, SwitchRequest, TermValue, TriggerSpec, TriggerTarget,
};
use std::collections::BTreeMap;

/// What a trigger is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TermInput {
    /// A reading of a term.
    Reads(usize, TriggerTarget, TermValue),
    /// What a term waits for happens.
    Happens(usize, TriggerTarget),
    /// A place leaves.
    Leaves(TriggerTarget),
}

/// What was told, and when; in ascending order of times.
pub type InputLog = [(u64, TermInput)];

/// What the definition counts, place by place.
#[derive(Default)]
struct Counted {
    holding: bool,
    occurrences: u32,
    last: Option<u64>,
}

struct Evaluation<'a> {
    spec: &'a TriggerSpec,
    log: &'a InputLog,
    places: BTreeMap<TriggerTarget, Counted>,
    cool_until: u64,
    fired: bool,
    out: Vec<Happening>,
}

/// All that a trigger says of a story until `end`.
#[must_use]
pub fn happenings(spec: &TriggerSpec, log: &InputLog, end: u64) -> Vec<Happening> {
    let mut evaluation =
        Evaluation { spec, log, places: BTreeMap::new(), cool_until: 0, fired: false, out: Vec::new() };
    if spec.terms.iter().all(|term| term.reach == Reach::Common) {
        evaluation.places.insert(TriggerTarget::All, Counted::default());
    }
    let mut known = 0;
    for now in 0..=end {
        evaluation.look_everywhere(known, now);
        while let Some(&(at, input)) = log.get(known)
            && at == now
        {
            known += 1;
            evaluation.input(input, known, now);
        }
    }
    evaluation.out
}

impl Evaluation<'_> {
    fn input(&mut self, input: TermInput, known: usize, now: u64) {
        match input {
            TermInput::Leaves(place) => {
                let held = self.holding();
                self.places.remove(&place);
                if held && !self.holding() {
                    self.out.push(Happening::Ends { at: Nanos(now) });
                }
            }
            TermInput::Reads(term, place, _) | TermInput::Happens(term, place) => {
                let Some(&spec) = self.spec.terms.get(term) else { return };
                if matches!(input, TermInput::Reads(..)) != (spec.lasting == Lasting::Level) {
                    return;
                }
                if spec.reach == Reach::EachTarget {
                    self.places.entry(place).or_default();
                }
                if spec.lasting != Lasting::Moment {
                    return self.look_everywhere(known, now);
                }
                let concerned: Vec<TriggerTarget> = match spec.reach {
                    Reach::EachTarget => vec![place],
                    Reach::Common => self.places.keys().copied().collect(),
                };
                for place in concerned {
                    let others = (0..self.spec.terms.len()).filter(|&other| other != term);
                    if others.map(|other| self.says(other, place, known, now)).all(|said| said == TermValue::Holds) {
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
            let said: Vec<TermValue> =
                (0..self.spec.terms.len()).map(|term| self.says(term, place, known, now)).collect();
            let (was, anywhere) = (self.places[&place].holding, self.holding());
            if said.contains(&TermValue::Fails) || said.is_empty() {
                self.places.entry(place).or_default().holding = false;
                if anywhere && !self.holding() {
                    self.out.push(Happening::Ends { at: Nanos(now) });
                }
            } else if !said.contains(&TermValue::Unknown) {
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

    fn again_at(&self, place: TriggerTarget) -> Option<u64> {
        match self.spec.repeat {
            Repeat::OnEdge => None,
            Repeat::WhileHolds(span) => Some(self.places.get(&place)?.last? + span.0.max(1)),
        }
    }

    fn occurs(&mut self, place: TriggerTarget, moment: bool, now: u64) {
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
    fn says(&self, term: usize, place: TriggerTarget, known: usize, now: u64) -> TermValue {
        let mut held = 0;
        let mut raw = self.raw(term, place, 0, 0);
        for at in 0..=now {
            let begin = self.log.partition_point(|(time, _)| *time < at).min(known);
            let end = self.log.partition_point(|(time, _)| *time <= at).min(known);
            for count in begin..=end {
                raw = self.raw(term, place, count, at);
                let left = count > begin
                    && self.log.get(count - 1).is_some_and(|(_, input)| *input == TermInput::Leaves(place));
                if raw == TermValue::Fails || left && self.spec.terms[term].reach == Reach::EachTarget {
                    held = 0;
                }
            }
            held += u64::from(at < now && raw == TermValue::Holds);
        }
        let needs = self.spec.terms[term].held.0;
        if raw == TermValue::Holds && held < needs { TermValue::Fails } else { raw }
    }

    /// What a term says when nothing must be held.
    fn raw(&self, term: usize, place: TriggerTarget, known: usize, now: u64) -> TermValue {
        let spec = self.spec.terms[term];
        let inputs = self.log.iter().take(known);
        // Of a place that has left, nothing counts that was told before.
        let since = match spec.reach {
            Reach::Common => 0,
            Reach::EachTarget => {
                inputs.clone().rposition(|(_, input)| *input == TermInput::Leaves(place)).map_or(0, |left| left + 1)
            }
        };
        let concerns = |of: TriggerTarget| spec.reach == Reach::Common || of == place;
        let mut inputs = inputs.skip(since).rev();
        match spec.lasting {
            Lasting::Moment => TermValue::Fails,
            Lasting::Level => inputs
                .find_map(|(_, input)| match *input {
                    TermInput::Reads(of, at, verdict) if of == term && concerns(at) => Some(verdict),
                    _ => None,
                })
                .unwrap_or(TermValue::Unknown),
            Lasting::Window(lasts) => TermValue::from(inputs.any(|&(at, input)| match input {
                TermInput::Happens(of, place) => of == term && concerns(place) && now < at + lasts.0.max(1),
                _ => false,
            })),
        }
    }
}

/// Whether a set is on, after all these wishes.
#[must_use]
pub fn position(requests: &[(u64, SwitchRequest)], now: u64) -> Position {
    // Whether nothing behind a wish speaks against it.
    let stands = |number: usize, against: &dyn Fn(SwitchRequest) -> bool| {
        !requests.iter().skip(number + 1).any(|&(_, request)| against(request))
    };
    let any = |holds: &dyn Fn(usize, u64, SwitchRequest) -> bool| {
        requests.iter().enumerate().any(|(number, &(at, request))| holds(number, at, request))
    };
    let base = requests.iter().rev().find_map(|&(_, request)| match request {
        SwitchRequest::On => Some(true),
        SwitchRequest::Off => Some(false),
        _ => None,
    });
    let promised = any(&|number, at, request| match request {
        SwitchRequest::OnFor(span) => {
            at + span.0 > now && stands(number, &|later| matches!(later, SwitchRequest::Off | SwitchRequest::OffFor(_)))
        }
        _ => false,
    });
    let held = any(&|number, _, request| match request {
        SwitchRequest::Hold(who) => {
            stands(number, &|later| later == SwitchRequest::Off || later == SwitchRequest::Release(who))
        }
        _ => false,
    });
    let muted = any(&|number, at, request| match request {
        SwitchRequest::OffFor(span) => {
            let against = |later| {
                matches!(
                    later,
                    SwitchRequest::On | SwitchRequest::Off | SwitchRequest::OnFor(_) | SwitchRequest::Hold(_)
                )
            };
            at + span.0 > now && stands(number, &against)
        }
        _ => false,
    });
    if (base.unwrap_or(false) || promised || held) && !muted { Position::On } else { Position::Off }
}
