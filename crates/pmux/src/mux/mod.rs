//! Who takes turns where events are more than counters.
//!
//! What it is: the choice between the kernel and the engine, and what the engine needs from outside for it: which events
//! compete for which counters (`pmus`), a thread that says when the next turn begins (`turns`), and the time that is
//! counted (`clock`).
//! Read first: [`Multiplexing`].
//!
//! **Invariant:** who is on is decided by the engine only.

pub(crate) mod clock;
pub(crate) mod pmus;
pub(crate) mod turns;

pub use pmus::PmuCapacity;

use std::num::NonZeroU32;
use std::time::Duration;

/// Who takes turns where a PMU has fewer counters than it is asked for.
///
/// | | the kernel | the engine |
/// |---|---|---|
/// | turns of several CPUs | each CPU by itself | in step: all CPUs count the same events |
/// | a slice | `perf_event_mux_interval_ms`, and what wakes the CPU | [`Slice`] |
/// | events that are open | all are enabled | never more are enabled than fit |
/// | events of two cgroups, neither of which holds the other | don't compete | don't compete |
/// | who else has counters | shows only as less running time | is told apart: see [`crate::Counters::contention`] |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Multiplexing {
    /// The kernel, as with `perf stat`.
    #[default]
    Kernel,
    /// The engine, over counters whose number is found by trying. Events of PMUs that have plenty (software events,
    /// tracepoints) are opened as ever.
    Engine,
}

/// How long a turn lasts, with [`Multiplexing::Engine`]: 1 to 1000 ms.
///
/// By default 4 ms, as long as the kernel's own on the usual 250 Hz: short enough that each of a dozen events is seen twenty
/// times a second, long enough that the system calls of a turn (four for each event that comes or goes) are
/// well below a hundredth of it. Where CPUs are so many that a turn takes long to begin, slices become longer: taking
/// turns never takes more than a fifth of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slice(NonZeroU32);

impl Slice {
    /// The longest, in milliseconds.
    pub const LONGEST_MS: u32 = 1000;

    /// A slice of so many milliseconds; `None` where that is 0 or more than [`Slice::LONGEST_MS`].
    #[must_use]
    pub const fn from_millis(ms: u32) -> Option<Self> {
        match NonZeroU32::new(ms) {
            Some(slice) if ms <= Self::LONGEST_MS => Some(Self(slice)),
            _ => None,
        }
    }

    /// Its length.
    #[must_use]
    pub const fn length(self) -> Duration {
        Duration::from_millis(self.0.get() as u64)
    }
}

impl Default for Slice {
    fn default() -> Self {
        const FOUR: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);
        Self(FOUR)
    }
}
