//! Which of a thread's time the samples of an event are: what ran, what waited, and who ended that.
//!
//! **Invariant:** decided by the event alone: by its name, or by its attribute where it is one of the kernel's clocks.

use super::{EventInfo, Profile};

/// What the samples of an event are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeKind {
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
    /// That of an event.
    #[must_use]
    pub fn of(event: &EventInfo) -> Self {
        let clock = if event.attr.is_clock() { Self::Ran } else { Self::Other };
        Self::of_name(&event.name).unwrap_or(clock)
    }

    /// That of an event of waits; `None` for the names of others.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name.split([':', '/']).next()? {
            "offcpu-time" => Self::Waited,
            "runqueue-time" => Self::WaitedForCpu,
            "waker-time" => Self::Woke,
            _ => return None,
        })
    }

    /// Whether a recording has an event of this kind.
    pub(super) fn is_in(self, profile: &Profile) -> bool {
        profile.events.iter().any(|event| Self::of(event) == self)
    }
}

/// The weight of a sample of a wait whose thread had this priority, as the kernel counts: the least one is -1, and 0 is not known.
pub(crate) fn weight_of(priority: Option<i32>) -> u64 {
    priority.and_then(|priority| u64::try_from(priority + 2).ok()).unwrap_or(0)
}

/// The priority that [`weight_of`] has made this weight of.
pub(super) fn priority_of(weight: u64) -> Option<i32> {
    i32::try_from(weight).ok().filter(|&weight| weight > 0).map(|weight| weight - 2)
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
