//! The time that is counted.
//!
//! What it is: an event beside the others that counts nothing and is always on. The kernel says of it for how long it was
//! enabled in the time that counts for its target: the CPU time of tasks and their children, or that of a cgroup. An
//! event that has waited for a counter was enabled for just as long; the kernel could not be asked meanwhile.
//!
//! **Invariant:** an event that never waited keeps the kernel's own times.

use crate::counters::Reading;
use crate::event::{Event, Software};
use pmux_engine::{EventId, Nanos, PmuId};
use pmux_linux::host::{LinuxEngine, clock_attr};

/// The event that keeps the time of a PMU's events. It needs no rights beyond theirs.
pub(crate) fn event(pmu: PmuId) -> Event {
    let mut event = Event::software(Software::Dummy);
    event.attr = clock_attr(pmu);
    event
}

/// Whether an event was ever without a counter while it was enabled.
pub(crate) fn has_waited(engine: &LinuxEngine, event: EventId) -> bool {
    engine.waited(event).is_ok_and(|waited| waited > Nanos::ZERO)
}

/// Gives an event that has waited the clock's time.
pub(crate) fn set(reading: &mut Reading, clock: Reading) {
    if let (Reading::Counted(count), Reading::Counted(clock)) = (reading, clock) {
        // The clock is read a moment before.
        count.enabled = clock.enabled.max(count.running);
    }
}
