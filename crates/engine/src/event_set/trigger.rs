//! Triggers: when a condition has come true.
//!
//! What it is: a state machine that is told readings, happenings and the time, and says when it fires. A condition is one term or
//! several at once, at one place (a CPU, a cgroup) or in all.
//!
//! ```text
//!            all terms hold: an occurrence
//!   ready ───────────────────────────────▶ holding ──┐ with `Repeat::WhileHolds` another one each time
//!     ▲                                       │   ▲  │ that its span has passed
//!     └──────────── a term fails ─────────────┘   └──┘
//! ```
//!
//! A term that is a moment makes each moment an occurrence of its own, if the others hold. Each `every`-th occurrence of a place
//! fires, unless the trigger is cooling down, or done.
//!
//! At one time, first what time brings about happens, and then what is told. What is not known changes nothing: a condition that
//! held goes on as if it did, and has not held longer by it.
//!
//! **Invariant:** one occurrence fires once at most; of each that should have fired and didn't it is known why
//! ([`Happening::HeldBack`]).

use super::term::{Lasting, Reach, Term, TermState, TermValue};
use crate::id::{CgroupId, CpuId, Nanos};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Where something is the case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TriggerTarget {
    /// In all that is looked at, together.
    All,
    /// On a CPU.
    Cpu(CpuId),
    /// In a cgroup.
    Cgroup(CgroupId),
}

/// Whether a condition that goes on holding is said again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Repeat {
    /// No: it is said when it begins to hold.
    #[default]
    OnEdge,
    /// Each time that it has held for so long since it was said last. A moment is then said once in that span.
    WhileHolds(Nanos),
}

/// How often a trigger fires.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rounds {
    /// As often as it may.
    #[default]
    Always,
    /// Once, anywhere.
    Once,
}

/// What a trigger waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TriggerSpec {
    /// What must be the case, all of it. Without any term it never fires.
    pub terms: Vec<Term>,
    /// Which occurrences of a place fire: each so many-th.
    pub every: NonZeroU32,
    /// Whether a condition that goes on holding is said again.
    pub repeat: Repeat,
    /// How often it fires.
    pub rounds: Rounds,
    /// For how long it does not fire again after it has, anywhere.
    pub cool_down: Nanos,
}

/// What a trigger says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happening {
    /// It fires.
    Fired {
        /// Where it is the case.
        place: TriggerTarget,
        /// Since when.
        at: Nanos,
    },
    /// It would fire, but is cooling down.
    HeldBack {
        /// Where it is the case.
        place: TriggerTarget,
        /// Since when.
        at: Nanos,
    },
    /// The condition holds somewhere, from now on. Said of conditions that last, whether or not the trigger fires.
    Begins {
        /// When.
        at: Nanos,
    },
    /// It holds nowhere any more.
    Ends {
        /// When.
        at: Nanos,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Ready,
    Holding,
}

#[derive(Clone, Debug)]
struct TargetState {
    /// Of the terms that each place has its own of; the others are not looked at here.
    terms: Vec<TermState>,
    stage: Stage,
    /// How many there were since it last fired.
    occurrences: u32,
    /// When there was one last.
    last: Option<Nanos>,
    /// When something changes here by itself: as it stands among the dates of the trigger.
    due: Option<Nanos>,
}

/// A trigger.
#[derive(Clone, Debug)]
pub struct Trigger {
    spec: TriggerSpec,
    /// Of the terms that are the same for all places; the others are not looked at here.
    common: Vec<TermState>,
    places: BTreeMap<TriggerTarget, TargetState>,
    /// When something changes by itself, and where.
    dates: BTreeSet<(Nanos, TriggerTarget)>,
    holding: usize,
    cool_until: Nanos,
    fired: u64,
    held_back: u64,
    now: Nanos,
}

impl Trigger {
    /// A trigger of which nothing is known yet.
    ///
    /// Where a term is looked at place by place, a place is there from the first time on that it is told of, until it leaves.
    #[must_use]
    pub fn new(spec: TriggerSpec, now: Nanos) -> Self {
        let common = spec.terms.iter().map(|&term| TermState::new(term, now)).collect();
        let mut trigger = Self {
            spec,
            common,
            places: BTreeMap::new(),
            dates: BTreeSet::new(),
            holding: 0,
            cool_until: Nanos::ZERO,
            fired: 0,
            held_back: 0,
            now,
        };
        if trigger.spec.terms.iter().all(|term| term.reach == Reach::Common) {
            trigger.join(TriggerTarget::All);
        }
        trigger
    }

    /// What it waits for.
    #[must_use]
    pub const fn spec(&self) -> &TriggerSpec {
        &self.spec
    }

    /// How often it has fired.
    #[must_use]
    pub const fn fired(&self) -> u64 {
        self.fired
    }

    /// How often it would have fired, had it not been cooling down.
    #[must_use]
    pub const fn held_back(&self) -> u64 {
        self.held_back
    }

    /// Whether it will never fire again.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.spec.rounds, Rounds::Once) && self.fired > 0
    }

    /// Until when it is cooling down.
    #[must_use]
    pub const fn cool_until(&self) -> Nanos {
        self.cool_until
    }

    /// Whether its condition holds somewhere.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.holding > 0
    }

    /// When something may change by itself: then [`Trigger::pass`] is to be called.
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        self.dates.first().map(|&(at, _)| at)
    }

    /// Time has passed.
    pub fn pass(&mut self, now: Nanos, out: &mut Vec<Happening>) {
        while let Some(&(at, place)) = self.dates.first()
            && at <= now
        {
            self.now = self.now.max(at);
            self.look(place, None, out);
        }
        self.now = self.now.max(now);
    }

    /// A reading: so it is with a term at a place from now on. For one that is common to all, the place says nothing.
    ///
    /// A term or place that isn't there, and a reading of what is no [`Lasting::Level`], changes nothing.
    pub fn observe(
        &mut self,
        term: usize,
        place: TriggerTarget,
        value: TermValue,
        now: Nanos,
        out: &mut Vec<Happening>,
    ) {
        self.pass(now, out);
        let Some(&spec) = self.spec.terms.get(term).filter(|spec| spec.lasting == Lasting::Level) else { return };
        let now = self.now;
        self.with_term(term, spec, place, |state| state.observe(value, now));
        self.look_where(spec, place, None, out);
    }

    /// What a term waits for has happened at a place, or, where it is common to all, anywhere.
    ///
    /// A term that isn't there, and one that is a [`Lasting::Level`], changes nothing.
    pub fn happen(&mut self, term: usize, place: TriggerTarget, now: Nanos, out: &mut Vec<Happening>) {
        self.pass(now, out);
        let Some(&spec) = self.spec.terms.get(term) else { return };
        let now = self.now;
        match spec.lasting {
            Lasting::Level => {}
            Lasting::Window(lasts) => {
                // What lasts no time at all would be over before the rule is evaluated.
                self.with_term(term, spec, place, |state| state.happen(lasts.max(Nanos(1)), now));
                self.look_where(spec, place, None, out);
            }
            Lasting::Moment => {
                self.with_term(term, spec, place, |_| {});
                self.look_where(spec, place, Some(term), out);
            }
        }
    }

    /// A place is no longer looked at: its CPU has gone, or its cgroup.
    pub fn leave(&mut self, place: TriggerTarget, now: Nanos, out: &mut Vec<Happening>) {
        self.pass(now, out);
        let Some(state) = self.places.remove(&place) else { return };
        if let Some(due) = state.due {
            self.dates.remove(&(due, place));
        }
        if state.stage == Stage::Holding {
            self.holding -= 1;
            if self.holding == 0 {
                out.push(Happening::Ends { at: self.now });
            }
        }
    }

    fn join(&mut self, place: TriggerTarget) {
        let terms = self.spec.terms.iter().map(|&term| TermState::new(term, self.now)).collect();
        let state = TargetState { terms, stage: Stage::Ready, occurrences: 0, last: None, due: None };
        self.places.insert(place, state);
    }

    fn with_term(&mut self, term: usize, spec: Term, place: TriggerTarget, step: impl FnOnce(&mut TermState)) {
        let states = match spec.reach {
            Reach::Common => Some(&mut self.common),
            Reach::EachTarget => {
                if !self.places.contains_key(&place) {
                    self.join(place);
                }
                self.places.get_mut(&place).map(|state| &mut state.terms)
            }
        };
        if let Some(state) = states.and_then(|states| states.get_mut(term)) {
            // A common term has not been looked at as long as there is no place.
            state.pass(spec, self.now);
            step(state);
        }
    }

    /// Something was told of a term: looks at all places that it concerns.
    fn look_where(&mut self, spec: Term, place: TriggerTarget, moment: Option<usize>, out: &mut Vec<Happening>) {
        match spec.reach {
            Reach::EachTarget => self.look(place, moment, out),
            Reach::Common => {
                let places: Vec<TriggerTarget> = self.places.keys().copied().collect();
                places.into_iter().for_each(|place| self.look(place, moment, out));
            }
        }
    }

    /// Says what follows from what is known of a place now. `moment` is the term that happens just now.
    fn look(&mut self, place: TriggerTarget, moment: Option<usize>, out: &mut Vec<Happening>) {
        let now = self.now;
        let Some(state) = self.places.get_mut(&place) else { return };
        let mut all = if self.spec.terms.is_empty() { TermValue::Fails } else { TermValue::Holds };
        let mut due: Option<Nanos> = None;
        for (index, &term) in self.spec.terms.iter().enumerate() {
            let states = match term.reach {
                Reach::Common => &mut self.common,
                Reach::EachTarget => &mut state.terms,
            };
            let Some(of) = states.get_mut(index) else { continue };
            of.pass(term, now);
            all = all.and(if moment == Some(index) { TermValue::Holds } else { of.says(term, now) });
            due = earlier(due, of.next(term, now));
        }
        let mut occurred = false;
        match (all, moment) {
            // It lasts no longer than now.
            (TermValue::Holds, Some(_)) => occurred = true,
            (_, Some(_)) | (TermValue::Unknown, None) => {}
            (TermValue::Fails, None) if state.stage == Stage::Holding => {
                state.stage = Stage::Ready;
                self.holding -= 1;
                if self.holding == 0 {
                    out.push(Happening::Ends { at: now });
                }
            }
            (TermValue::Fails, None) => {}
            (TermValue::Holds, None) => {
                let begins = state.stage == Stage::Ready;
                if begins {
                    state.stage = Stage::Holding;
                    self.holding += 1;
                    if self.holding == 1 {
                        out.push(Happening::Begins { at: now });
                    }
                }
                occurred = begins || again_at(self.spec.repeat, state.last).is_some_and(|at| at <= now);
            }
        }
        if occurred {
            self.occur(place, moment.is_some(), out);
        }
        self.set_date(place, due);
    }

    /// There is an occurrence.
    fn occur(&mut self, place: TriggerTarget, moment: bool, out: &mut Vec<Happening>) {
        let (now, done) = (self.now, self.is_done());
        let Some(state) = self.places.get_mut(&place) else { return };
        let too_soon = moment && again_at(self.spec.repeat, state.last).is_some_and(|at| at > now);
        if !too_soon {
            state.last = Some(now);
            state.occurrences += 1;
            if state.occurrences < self.spec.every.get() {
                return;
            }
            state.occurrences = 0;
        }
        if done {
            return;
        }
        if too_soon || now < self.cool_until {
            self.held_back += 1;
            out.push(Happening::HeldBack { place, at: now });
        } else {
            self.fired += 1;
            self.cool_until = now + self.spec.cool_down;
            out.push(Happening::Fired { place, at: now });
        }
    }

    /// Notes when to look at a place again.
    fn set_date(&mut self, place: TriggerTarget, mut due: Option<Nanos>) {
        let (now, repeat) = (self.now, self.spec.repeat);
        let Some(state) = self.places.get_mut(&place) else { return };
        if state.stage == Stage::Holding {
            due = earlier(due, again_at(repeat, state.last).filter(|&at| at > now));
        }
        if state.due == due {
            return;
        }
        if let Some(before) = core::mem::replace(&mut state.due, due) {
            self.dates.remove(&(before, place));
        }
        if let Some(due) = due {
            self.dates.insert((due, place));
        }
    }
}

/// When a condition that goes on is said again.
fn again_at(repeat: Repeat, last: Option<Nanos>) -> Option<Nanos> {
    match repeat {
        Repeat::OnEdge => None,
        // At the earliest a nanosecond later: nothing happens twice at one time.
        Repeat::WhileHolds(span) => last.map(|last| last + span.max(Nanos(1))),
    }
}

fn earlier(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
