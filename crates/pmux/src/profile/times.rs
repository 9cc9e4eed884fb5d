//! Which of a thread's time the samples of an event are: what ran, what waited, and who ended that.
//!
//! **Invariant:** decided by the event alone: by its name, or by its attribute where it is one of the kernel's clocks.

use super::{EventInfo, Profile};

/// What the samples of an event are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TimeKind {
    /// What ran: a clock of the CPU or of the task.
    Ran,
    /// What waited until it was woken.
    Waited,
    /// What waited for a CPU then.
    WaitedForCpu,
    /// Who has ended a wait.
    Woke,
    /// Something else.
    Other,
}

impl TimeKind {
    pub(super) fn of(event: &EventInfo) -> Self {
        match event.name.split([':', '/']).next() {
            Some("offcpu-time") => Self::Waited,
            Some("runqueue-time") => Self::WaitedForCpu,
            Some("waker-time") => Self::Woke,
            _ if event.attr.is_clock() => Self::Ran,
            _ => Self::Other,
        }
    }

    /// Whether a recording has an event of this kind.
    pub(super) fn is_in(self, profile: &Profile) -> bool {
        profile.events.iter().any(|event| Self::of(event) == self)
    }
}

impl EventInfo {
    /// Whether its samples tell who has ended waits.
    #[must_use]
    pub fn is_of_wakes(&self) -> bool {
        TimeKind::of(self) == TimeKind::Woke
    }
}

/// The kind of each event, asked once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TimeKinds(Vec<TimeKind>);

impl TimeKinds {
    pub(super) fn of(&mut self, profile: &Profile, event: usize) -> TimeKind {
        // In a pipe events may come late.
        self.0.extend(profile.events.get(self.0.len()..).unwrap_or_default().iter().map(TimeKind::of));
        self.0.get(event).copied().unwrap_or(TimeKind::Other)
    }
}
