//! What a condition is made of.
//!
//! What it is: one term of a trigger, `rate(page-faults) > 1e5/s for 500ms` or a hit of a tracepoint, at one place.
//!
//! **Invariant:** only time that is known to be true counts as held.

use crate::count::Count;
use crate::id::Nanos;

/// Whether something is the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TermValue {
    /// It is.
    Holds,
    /// It is not.
    Fails,
    /// It is not known: what it asks for was not counted.
    Unknown,
}

impl TermValue {
    /// Whether an event has counted more than `amount` in `per`, by what it has counted `since` the last look, which was `span` ago. Not
    /// known where it can't be read, and where it was enabled and has not run.
    #[must_use]
    pub fn of_rate(since: Option<Count>, span: Nanos, amount: u64, per: Nanos) -> Self {
        match since {
            None => Self::Unknown,
            Some(since) if since.running == Nanos::ZERO && since.enabled > Nanos::ZERO => Self::Unknown,
            Some(since) => {
                Self::from(u128::from(since.value) * u128::from(per.0) > u128::from(amount) * u128::from(span.0))
            }
        }
    }

    /// Whether both are the case. One that fails decides, whatever the other one is.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fails, _) | (_, Self::Fails) => Self::Fails,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Holds, Self::Holds) => Self::Holds,
        }
    }
}

impl From<bool> for TermValue {
    fn from(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::Fails }
    }
}

/// For how long a term is the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lasting {
    /// As long as readings say so.
    Level,
    /// At the moment when it happens, and not a nanosecond longer.
    Moment,
    /// From when it happens on for so long; from the last time on, where it happens again.
    Window(Nanos),
}

/// Where a term is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// It is the same for all places.
    Common,
    /// Each place has its own.
    EachTarget,
}

/// One term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    /// For how long it is the case.
    pub lasting: Lasting,
    /// For how long it must have been the case; zero: at once.
    pub held: Nanos,
    /// Where it is looked at.
    pub reach: Reach,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TermState {
    value: TermValue,
    since: Nanos,
    /// For how long it had held before, since it last failed.
    held: Nanos,
    /// When a window ends.
    until: Nanos,
}

impl TermState {
    pub(super) const fn new(term: Term, now: Nanos) -> Self {
        let value = match term.lasting {
            Lasting::Level => TermValue::Unknown,
            // What has not been told of has not happened.
            Lasting::Moment | Lasting::Window(_) => TermValue::Fails,
        };
        Self { value, since: now, held: Nanos::ZERO, until: Nanos::ZERO }
    }

    /// It is so from now on.
    pub(super) fn observe(&mut self, value: TermValue, now: Nanos) {
        if value == self.value {
            return;
        }
        self.held = match (self.value, value) {
            (_, TermValue::Fails) => Nanos::ZERO,
            (TermValue::Holds, _) => self.held + now.since(self.since),
            _ => self.held,
        };
        (self.value, self.since) = (value, now);
    }

    /// It happens now, and lasts for so long.
    pub(super) fn happen(&mut self, lasts: Nanos, now: Nanos) {
        self.observe(TermValue::Holds, now);
        self.until = self.until.max(now + lasts);
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, term: Term, now: Nanos) {
        if let Lasting::Window(_) = term.lasting
            && self.value == TermValue::Holds
            && self.until <= now
        {
            self.observe(TermValue::Fails, self.until);
        }
    }

    /// When it will have held for long enough, where it goes on like this.
    const fn complete_at(&self, term: Term) -> Nanos {
        Nanos(self.since.0.saturating_add(term.held.0.saturating_sub(self.held.0)))
    }

    pub(super) fn says(&self, term: Term, now: Nanos) -> TermValue {
        match self.value {
            TermValue::Holds if self.complete_at(term) > now => TermValue::Fails,
            said => said,
        }
    }

    /// When it will say something else by itself.
    pub(super) fn next(&self, term: Term, now: Nanos) -> Option<Nanos> {
        if self.value != TermValue::Holds {
            return None;
        }
        let complete = Some(self.complete_at(term)).filter(|&at| at > now);
        match term.lasting {
            Lasting::Window(_) => Some(complete.map_or(self.until, |at| at.min(self.until))),
            _ => complete,
        }
    }
}
