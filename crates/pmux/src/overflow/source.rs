//! One event that overflows, with its ring.
//!
//! **Invariant:** delivered + lost = overflows that happened, as of the last reading.

use super::Overflow;
use crate::error::Error;
use pmux_abi::attr::ReadFormat;
use pmux_abi::record::{Record, SampleLayout, decode_record};
use pmux_engine::EventId;
use pmux_engine::engine::Overflow as OverflowOutcome;
use pmux_linux::host::{LinuxEngine, MappedRing};

pub(super) struct OverflowSource {
    pub(super) event: EventId,
    pub(super) ring: MappedRing,
    /// How many overflows have come out of the ring, delivered or not.
    seen: u64,
    /// How many the kernel's records say that it had no room for.
    reported_lost: u64,
    /// How many there had been at the last reading.
    happened: u64,
    pub(super) lost: u64,
}

impl OverflowSource {
    /// Maps a ring on an event that is open and doesn't count yet.
    pub(super) fn new(engine: &LinuxEngine, event: EventId, pages: u32) -> Result<Self, Error> {
        let lease = engine.lease(event)?;
        let ring = engine.host().map_ring(lease, pages);
        let ring = ring.map_err(|errno| Error::Ring { what: "mapping a ring for overflows", errno })?;
        Ok(Self { event, ring, seen: 0, reported_lost: 0, happened: 0, lost: 0 })
    }

    /// Calls `callback` for what is in the ring, as far as the engine lets it; returns how many that were.
    pub(super) fn deliver(
        &mut self,
        engine: &LinuxEngine,
        layout: &SampleLayout,
        period: u64,
        asked: ReadFormat,
        callback: &mut dyn FnMut(Overflow),
    ) -> u64 {
        let refused = engine.lease(self.event).ok().and_then(|lease| engine.host().lost_records(lease, asked).ok());
        let happened = engine.read(self.event).map_or(0, |count| count.value / period);
        let (mut calls, mut seen, mut lost) = (0, 0, 0);
        let drained = self.ring.ring.drain(&mut |bytes| match decode_record(bytes, layout) {
            Ok((Record::Sample(sample), _)) => {
                seen += 1;
                if engine.overflow(self.event) == OverflowOutcome::Deliver {
                    let task = sample.task.unwrap_or_default();
                    calls += 1;
                    callback(Overflow {
                        instruction: sample.ip.unwrap_or_default(),
                        pid: task.pid.cast_signed(),
                        tid: task.tid.cast_signed(),
                        cpu: sample.cpu.unwrap_or_default(),
                        at_ns: sample.time.unwrap_or_default(),
                    });
                }
            }
            Ok((Record::Lost(record), _)) => lost += record.lost,
            Ok(_) => {}
            Err(_) => lost += 1,
        });
        self.seen += seen;
        self.reported_lost += lost + u64::from(drained.is_err());
        // Records tell what the ring had no room for in front of the next one only. The event knows it at once (Linux 6.0). Elsewhere
        // the count does, but not the one that was just read: it is one ahead of the ring while a record is being written.
        self.lost = match refused.flatten() {
            Some(refused) => self.reported_lost.max(refused),
            None => self.reported_lost.max(self.happened.saturating_sub(self.seen)),
        };
        self.happened = happened;
        calls
    }
}
