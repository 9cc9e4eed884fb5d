//! What a condition is made of.
//!
//! What it is: one term of a trigger, `rate(page-faults) > 1e5/s for 500ms` or a hit of a tracepoint, at one place.
//!
//! **Invariant:** only time that is known to be true counts as held.

use crate::id::Nanos;

/// Whether something is the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is.
    Holds,
    /// It is not.
    Fails,
    /// It is not known: what it asks for was not counted.
    Unknown,
}

impl Verdict {
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

impl From<bool> for Verdict {
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
    EachPlace,
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
    verdict: Verdict,
    since: Nanos,
    /// For how long it had held before, since it last failed.
    held: Nanos,
    /// When a window ends.
    until: Nanos,
}

impl TermState {
    pub(super) const fn new(term: Term, now: Nanos) -> Self {
        let verdict = match term.lasting {
            Lasting::Level => Verdict::Unknown,
            // What has not been told of has not happened.
            Lasting::Moment | Lasting::Window(_) => Verdict::Fails,
        };
        Self { verdict, since: now, held: Nanos::ZERO, until: Nanos::ZERO }
    }

    /// It is so from now on.
    pub(super) fn observe(&mut self, verdict: Verdict, now: Nanos) {
        if verdict == self.verdict {
            return;
        }
        self.held = match (self.verdict, verdict) {
            (_, Verdict::Fails) => Nanos::ZERO,
            (Verdict::Holds, _) => self.held + now.since(self.since),
            _ => self.held,
        };
        (self.verdict, self.since) = (verdict, now);
    }

    /// It happens now, and lasts for so long.
    pub(super) fn happen(&mut self, lasts: Nanos, now: Nanos) {
        self.observe(Verdict::Holds, now);
        self.until = self.until.max(now + lasts);
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, term: Term, now: Nanos) {
        if let Lasting::Window(_) = term.lasting
            && self.verdict == Verdict::Holds
            && self.until <= now
        {
            self.observe(Verdict::Fails, self.until);
        }
    }

    /// When it will have held for long enough, where it goes on like this.
    const fn complete_at(&self, term: Term) -> Nanos {
        Nanos(self.since.0.saturating_add(term.held.0.saturating_sub(self.held.0)))
    }

    pub(super) fn says(&self, term: Term, now: Nanos) -> Verdict {
        match self.verdict {
            Verdict::Holds if self.complete_at(term) > now => Verdict::Fails,
            said => said,
        }
    }

    /// When it will say something else by itself.
    pub(super) fn next(&self, term: Term, now: Nanos) -> Option<Nanos> {
        if self.verdict != Verdict::Holds {
            return None;
        }
        let complete = Some(self.complete_at(term)).filter(|&at| at > now);
        match term.lasting {
            Lasting::Window(_) => Some(complete.map_or(self.until, |at| at.min(self.until))),
            _ => complete,
        }
    }
}
