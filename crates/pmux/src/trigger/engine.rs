//! The engine's triggers, and what they are told.
//!
//! What it is: a state machine for each rule, and the last reason of each term, so that a trigger that fires can say why.
//!
//! **Invariant:** nothing is decided here.

use super::events::{Fired, Reason, TriggerEvent};
use super::language::{Every, TermScope, TermSource, Trigger};
use crate::target::Target;
use pmux_engine::Nanos;
use pmux_engine::event_set::{self, Happening, Lasting, Reach, Repeat, TermValue, TriggerSpec, TriggerTarget};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// A term of a rule, which listens to something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TermId {
    pub(super) rule: usize,
    pub(super) term: usize,
    pub(super) scope: TermScope,
}

impl TermId {
    /// Where something that happened on a CPU is the case for it.
    pub(super) fn place_of(self, cpu: u32) -> TriggerTarget {
        match self.scope {
            TermScope::PerCpu => TriggerTarget::Cpu(pmux_engine::CpuId(cpu)),
            TermScope::All | TermScope::PerCgroup => TriggerTarget::All,
        }
    }
}

struct RuleState {
    machine: event_set::Trigger,
    reasons: HashMap<(usize, TriggerTarget), Reason>,
    /// Until when the caller does nothing when it fires.
    held_back: Nanos,
}

impl RuleState {
    /// Until when hits of it need only be counted: not at all where they have to be told one by one.
    fn held_back_until(&self) -> Nanos {
        let TriggerSpec { terms, every, repeat, .. } = self.machine.spec();
        let alike = terms.len() == 1 && every.get() == 1 && *repeat == Repeat::OnEdge;
        if alike { self.held_back.max(self.machine.cool_until()) } else { Nanos::ZERO }
    }
}

#[derive(Default)]
pub(super) struct TriggerEngine {
    rules: Vec<RuleState>,
    /// The names of the target's cgroups, by their number there.
    cgroups: Vec<String>,
    out: Vec<TriggerEvent>,
    // Kept for its memory.
    happenings: Vec<Happening>,
}

pub(super) fn nanos(span: Duration) -> Nanos {
    Nanos(crate::units::nanos(span))
}

fn spec(trigger: &Trigger, cool_down: Duration) -> TriggerSpec {
    let term = |term: &super::TriggerTerm| {
        let lasting = match &term.source {
            TermSource::Level(_) => Lasting::Level,
            // The kernel says it once in each window at most: while it goes on, the next news come soon behind the end of it.
            TermSource::Pressure(pressure) => Lasting::Window(nanos(pressure.window + pressure.window / 2)),
            _ => Lasting::Moment,
        };
        let reach = if term.scope == TermScope::All { Reach::Common } else { Reach::EachTarget };
        event_set::Term { lasting, held: nanos(term.held), reach }
    };
    let (every, repeat) = match trigger.every {
        Every::Nth(number) => (number, Repeat::OnEdge),
        Every::Span(span) => (NonZeroU32::MIN, Repeat::WhileHolds(nanos(span))),
    };
    let terms = trigger.terms.iter().map(term).collect();
    TriggerSpec { terms, every, repeat, rounds: trigger.rounds, cool_down: nanos(cool_down) }
}

impl TriggerEngine {
    /// Of a target: its cgroups have names.
    pub(super) fn of(target: &Target<'_>) -> Self {
        let cgroups = if let Target::Cgroups { names, .. } = target { names.clone() } else { Vec::new() };
        Self { cgroups, ..Self::default() }
    }

    pub(super) fn add(&mut self, trigger: &Trigger, cool_down: Duration, now: Nanos) {
        let machine = event_set::Trigger::new(spec(trigger, cool_down), now);
        self.rules.push(RuleState { machine, reasons: HashMap::new(), held_back: Nanos::ZERO });
    }

    /// A reading: so it is now.
    pub(super) fn observe(
        &mut self,
        term_id: TermId,
        place: TriggerTarget,
        value: TermValue,
        reason: Option<Reason>,
        now: Nanos,
    ) {
        self.step_rule(term_id.rule, |state, happenings| {
            // The machine looks first what the time has brought about: that has the reasons from before.
            state.machine.pass(now, happenings);
            let so_far = happenings.len();
            state.machine.observe(term_id.term, place, value, now, happenings);
            (so_far, reason.map(|reason| ((term_id.term, place), reason)))
        });
    }

    pub(super) fn happen(&mut self, term_id: TermId, place: TriggerTarget, reason: Reason, at: Nanos) {
        self.step_rule(term_id.rule, |state, happenings| {
            state.machine.pass(at, happenings);
            let so_far = happenings.len();
            state.machine.happen(term_id.term, place, at, happenings);
            (so_far, Some(((term_id.term, place), reason)))
        });
    }

    pub(super) fn leave(&mut self, rule: usize, place: TriggerTarget, now: Nanos) {
        self.step_rule(rule, |state, happenings| {
            state.machine.leave(place, now, happenings);
            state.reasons.retain(|(_, of), _| *of != place);
            (happenings.len(), None)
        });
    }

    pub(super) fn pass(&mut self, now: Nanos) {
        for rule in 0..self.rules.len() {
            self.step_rule(rule, |state, happenings| {
                state.machine.pass(now, happenings);
                (happenings.len(), None)
            });
        }
    }

    /// Nothing follows from a rule until then.
    pub(super) fn hold_back_until(&mut self, rule: usize, until: Nanos) {
        if let Some(state) = self.rules.get_mut(rule) {
            state.held_back = until;
        }
    }

    /// Until when hits need only be counted, for all rules that listen.
    pub(super) fn held_back_until(&self, term_ids: &[TermId]) -> Option<Nanos> {
        term_ids
            .iter()
            .map(|term_id| self.rules.get(term_id.rule).map_or(Nanos::ZERO, RuleState::held_back_until))
            .min()
    }

    /// Something has happened so often while the rule was held back.
    pub(super) fn hold_back(&mut self, rule: usize, times: u64, at: Nanos) {
        if times > 0 {
            self.out.push(TriggerEvent::HeldBack { rule, at, times });
        }
    }

    pub(super) fn lose(&mut self, rules: Vec<usize>, what: String) {
        self.out.push(TriggerEvent::Lost { rules, what });
    }

    /// When something changes by itself.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.rules.iter().filter_map(|state| state.machine.next()).min()
    }

    pub(super) fn fired(&self, rule: usize) -> u64 {
        self.rules.get(rule).map_or(0, |state| state.machine.fired())
    }

    pub(super) fn take(&mut self) -> Vec<TriggerEvent> {
        std::mem::take(&mut self.out)
    }

    /// Takes a step of a rule; the step returns how much was said before its reason was known, and the reason.
    fn step_rule(
        &mut self,
        rule: usize,
        step: impl FnOnce(&mut RuleState, &mut Vec<Happening>) -> (usize, Option<((usize, TriggerTarget), Reason)>),
    ) {
        let Some(state) = self.rules.get_mut(rule) else { return };
        let mut happenings = std::mem::take(&mut self.happenings);
        let (so_far, reason) = step(state, &mut happenings);
        let cgroups = &self.cgroups;
        let to_event = |state: &RuleState, happening: &Happening| match *happening {
            Happening::Fired { place, at } => {
                let terms = 0..state.machine.spec().terms.len();
                let of =
                    |term| state.reasons.get(&(term, place)).or_else(|| state.reasons.get(&(term, TriggerTarget::All)));
                let cgroup = match place {
                    TriggerTarget::Cgroup(number) => {
                        usize::try_from(number.0).ok().and_then(|at| cgroups.get(at)).cloned()
                    }
                    _ => None,
                };
                TriggerEvent::Fired(Fired { rule, at, place, cgroup, reasons: terms.filter_map(of).cloned().collect() })
            }
            Happening::HeldBack { at, .. } => TriggerEvent::HeldBack { rule, at, times: 1 },
            Happening::Begins { at } => TriggerEvent::Begins { rule, at },
            Happening::Ends { at } => TriggerEvent::Ends { rule, at },
        };
        self.out.extend(happenings.iter().take(so_far).map(|happening| to_event(state, happening)));
        if let Some((key, reason)) = reason {
            state.reasons.insert(key, reason);
        }
        self.out.extend(happenings.iter().skip(so_far).map(|happening| to_event(state, happening)));
        happenings.clear();
        self.happenings = happenings;
    }
}
