//! Counts from memory: what this process has read last, or what a service shows.
//!
//! **Invariant:** neither the kernel nor the service is asked, and no count goes back: the younger of the two is taken.

use crate::session::Session;
use pmux_engine::engine::SlotView;
use pmux_engine::pmu::SlotTime;
use pmux_engine::{Count, EventId, EventState, Nanos, ReadError};

impl Session {
    /// The count of an event, and when that was read.
    pub(crate) fn read_from_memory(&self, event: EventId) -> Result<(Count, Nanos), ReadError> {
        let (count, at) = self.engine().read_cached(event)?;
        Ok(self.cached_by_service(event, at).unwrap_or((count, at)))
    }

    /// What a service has read of it after this.
    fn cached_by_service(&self, event: EventId, after: Nanos) -> Option<(Count, Nanos)> {
        let host = self.engine().host();
        host.service()?;
        let SlotView { lease, raw, count, state, .. } = self.engine().slot_view(event).ok()?;
        let moment = host.cached(lease?)?;
        if state != EventState::Active || moment.time_ns <= after.0 {
            return None;
        }
        let (enabled, running) = match raw.time {
            SlotTime::Measured { enabled, running } => (enabled, running),
            SlotTime::Whole => (Nanos::ZERO, Nanos::ZERO),
        };
        // When this process has read it is known to a tick only.
        if moment.totals.enabled_ns < enabled.0 {
            return None;
        }
        let now = Count {
            value: count.value.wrapping_add(moment.totals.value.wrapping_sub(raw.raw)),
            enabled: count.enabled + Nanos(moment.totals.enabled_ns).since(enabled),
            running: count.running + Nanos(moment.totals.running_ns).since(running),
        };
        Some((now, Nanos(moment.time_ns)))
    }
}
