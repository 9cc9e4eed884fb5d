//! The engine's triggers, and what they are told.
//!
//! What it is: a state machine for each rule, and the last reason of each term, so that a trigger that fires can say why.
//!
//! **Invariant:** nothing is decided here.

use super::language::{Every, Scope, Source, Trigger};
use super::news::{Fired, News, Reason};
use crate::target::Target;
use pmux_engine::Nanos;
use pmux_engine::event_set::{self, Happening, Lasting, Reach, Repeat, TermValue, TriggerSpec, TriggerTarget};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// A term of a rule, which listens to something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ear {
    pub(super) rule: usize,
    pub(super) term: usize,
    pub(super) scope: Scope,
}

impl Ear {
    /// Where something that happened on a CPU is the case for it.
    pub(super) fn place_of(self, cpu: u32) -> TriggerTarget {
        match self.scope {
            Scope::PerCpu => TriggerTarget::Cpu(pmux_engine::CpuId(cpu)),
            Scope::All | Scope::PerCgroup => TriggerTarget::All,
        }
    }
}

struct Line {
    machine: event_set::Trigger,
    reasons: HashMap<(usize, TriggerTarget), Reason>,
    /// Until when the caller does nothing when it fires.
    held_back: Nanos,
}

impl Line {
    /// Until when hits of it need only be counted: not at all where they have to be told one by one.
    fn held_back_until(&self) -> Nanos {
        let TriggerSpec { terms, every, repeat, .. } = self.machine.spec();
        let alike = terms.len() == 1 && every.get() == 1 && *repeat == Repeat::OnEdge;
        if alike { self.held_back.max(self.machine.cool_until()) } else { Nanos::ZERO }
    }
}

#[derive(Default)]
pub(super) struct Board {
    lines: Vec<Line>,
    /// The names of the target's cgroups, by their number there.
    cgroups: Vec<String>,
    out: Vec<News>,
    // Kept for its memory.
    said: Vec<Happening>,
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// What the engine is to wait for.
fn spec(trigger: &Trigger, cool_down: Duration) -> TriggerSpec {
    let term = |term: &super::TriggerTerm| {
        let lasting = match &term.source {
            Source::Level(_) => Lasting::Level,
            // The kernel says it once in each window at most: while it goes on, the next news come soon behind the end of it.
            Source::Pressure(pressure) => Lasting::Window(nanos(pressure.window + pressure.window / 2)),
            _ => Lasting::Moment,
        };
        let reach = if term.scope == Scope::All { Reach::Common } else { Reach::EachTarget };
        event_set::Term { lasting, held: nanos(term.held), reach }
    };
    let (every, repeat) = match trigger.every {
        Every::Nth(number) => (number, Repeat::OnEdge),
        Every::Span(span) => (NonZeroU32::MIN, Repeat::WhileHolds(nanos(span))),
    };
    let terms = trigger.terms.iter().map(term).collect();
    TriggerSpec { terms, every, repeat, rounds: trigger.rounds, cool_down: nanos(cool_down) }
}

impl Board {
    /// Of a target: its cgroups have names.
    pub(super) fn of(target: &Target<'_>) -> Self {
        let cgroups = match target {
            Target::Cgroups { names, .. } => names.clone(),
            _ => Vec::new(),
        };
        Self { cgroups, ..Self::default() }
    }

    pub(super) fn add(&mut self, trigger: &Trigger, cool_down: Duration, now: Nanos) {
        let machine = event_set::Trigger::new(spec(trigger, cool_down), now);
        self.lines.push(Line { machine, reasons: HashMap::new(), held_back: Nanos::ZERO });
    }

    /// A reading: so it is now.
    pub(super) fn observe(
        &mut self,
        ear: Ear,
        place: TriggerTarget,
        verdict: TermValue,
        reason: Option<Reason>,
        now: Nanos,
    ) {
        self.tell(ear.rule, |line, said| {
            // The machine looks first what the time has brought about: that has the reasons from before.
            line.machine.pass(now, said);
            let so_far = said.len();
            line.machine.observe(ear.term, place, verdict, now, said);
            (so_far, reason.map(|reason| ((ear.term, place), reason)))
        });
    }

    pub(super) fn happen(&mut self, ear: Ear, place: TriggerTarget, reason: Reason, at: Nanos) {
        self.tell(ear.rule, |line, said| {
            line.machine.pass(at, said);
            let so_far = said.len();
            line.machine.happen(ear.term, place, at, said);
            (so_far, Some(((ear.term, place), reason)))
        });
    }

    /// A place is no longer looked at by a rule.
    pub(super) fn leave(&mut self, rule: usize, place: TriggerTarget, now: Nanos) {
        self.tell(rule, |line, said| {
            line.machine.leave(place, now, said);
            line.reasons.retain(|(_, of), _| *of != place);
            (said.len(), None)
        });
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, now: Nanos) {
        for rule in 0..self.lines.len() {
            self.tell(rule, |line, said| {
                line.machine.pass(now, said);
                (said.len(), None)
            });
        }
    }

    /// Nothing follows from a rule until then.
    pub(super) fn hold_back_until(&mut self, rule: usize, until: Nanos) {
        if let Some(line) = self.lines.get_mut(rule) {
            line.held_back = until;
        }
    }

    /// Until when hits need only be counted, for all rules that listen.
    pub(super) fn held_back_until(&self, ears: &[Ear]) -> Option<Nanos> {
        ears.iter().map(|ear| self.lines.get(ear.rule).map_or(Nanos::ZERO, Line::held_back_until)).min()
    }

    /// Something has happened so often while the rule was held back.
    pub(super) fn hold_back(&mut self, rule: usize, times: u64, at: Nanos) {
        if times > 0 {
            self.out.push(News::HeldBack { rule, at, times });
        }
    }

    pub(super) fn lose(&mut self, rules: Vec<usize>, what: String) {
        self.out.push(News::Lost { rules, what });
    }

    /// When something changes by itself.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.lines.iter().filter_map(|line| line.machine.next()).min()
    }

    pub(super) fn fired(&self, rule: usize) -> u64 {
        self.lines.get(rule).map_or(0, |line| line.machine.fired())
    }

    pub(super) fn take(&mut self) -> Vec<News> {
        std::mem::take(&mut self.out)
    }

    /// Takes a step of a rule; the step returns how much was said before its reason was known, and the reason.
    fn tell(
        &mut self,
        rule: usize,
        step: impl FnOnce(&mut Line, &mut Vec<Happening>) -> (usize, Option<((usize, TriggerTarget), Reason)>),
    ) {
        let Some(line) = self.lines.get_mut(rule) else { return };
        let mut said = std::mem::take(&mut self.said);
        let (so_far, reason) = step(line, &mut said);
        let cgroups = &self.cgroups;
        let news = |line: &Line, happening: &Happening| match *happening {
            Happening::Fired { place, at } => {
                let terms = 0..line.machine.spec().terms.len();
                let of =
                    |term| line.reasons.get(&(term, place)).or_else(|| line.reasons.get(&(term, TriggerTarget::All)));
                let cgroup = match place {
                    TriggerTarget::Cgroup(number) => {
                        usize::try_from(number.0).ok().and_then(|at| cgroups.get(at)).cloned()
                    }
                    _ => None,
                };
                News::Fired(Fired { rule, at, place, cgroup, reasons: terms.filter_map(of).cloned().collect() })
            }
            Happening::HeldBack { at, .. } => News::HeldBack { rule, at, times: 1 },
            Happening::Begins { at } => News::Begins { rule, at },
            Happening::Ends { at } => News::Ends { rule, at },
        };
        self.out.extend(said.iter().take(so_far).map(|happening| news(line, happening)));
        if let Some((key, reason)) = reason {
            line.reasons.insert(key, reason);
        }
        self.out.extend(said.iter().skip(so_far).map(|happening| news(line, happening)));
        said.clear();
        self.said = said;
    }
}
