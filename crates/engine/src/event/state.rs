//! The five states.
//!
//! **Invariant:** a state change goes through [`super::Event`], which settles the times first.
//!
//! Linux: `enum perf_event_state` (include/linux/perf_event.h).

/// Where an event is in its life.
///
/// ```text
///            enable            placed
///   Off  ------------> Inactive ------> Active
///    ^ \---------------/  ^  \-----------/ |
///    |      disable       |    displaced   | a pinned event lost its counter,
///    |                    |                v or the host refused to program it
///    +---- disable ----- (enable) ------ Error
///
///   any of them -- its task exited, its CPU went offline --> Dead
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventState {
    /// Disabled: neither counts nor ages.
    Off,
    /// Enabled, but not on a counter now: it ages, but doesn't count.
    Inactive,
    /// On a counter.
    Active,
    /// Enabled, but the demand can't be met (pinned) or the host refused; enabling it again tries again.
    Error,
    /// What it watched is gone; its count stays readable until it is closed.
    Dead,
}

impl EventState {
    /// Whether the time enabled grows in this state.
    #[must_use]
    pub const fn ages(self) -> bool {
        matches!(self, Self::Inactive | Self::Active)
    }
}

/// Whether the next exec of its task enables an event that is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnExec {
    /// It stays as it is.
    Keep,
    /// It is enabled (`enable_on_exec`).
    Enable,
}
