//! From the kernel's rings to everybody's.
//!
//! **Invariant:** a pass takes out of each kernel ring what was there when it came to it, once; it waits for nobody.

use super::Streams;
use crate::perf_data::finished_round;
use pmux_abi::record::RecordKind;
use pmux_engine::Nanos;
use pmux_engine::ring::Wake;
use pmux_engine::shell::Audience;
use std::collections::BTreeSet;
use std::time::Duration;

const LOST: u32 = RecordKind::LOST.0;

impl Streams {
    /// Passes on what waits in the kernel's rings; how many records that were.
    pub fn pass(&mut self) -> u64 {
        self.leave_the_ended();
        let now = Nanos(pmux_linux::now_ns());
        let engine = self.session.engine();
        let (audience, tally) = (&mut self.audience, &mut self.tally);
        let before = tally.taken;
        let mut woken = BTreeSet::new();
        for (&event, source) in &mut self.sources {
            if source.ring.ring.waiting_bytes() == 0 {
                continue;
            }
            engine.audience(event, audience);
            let drained = source.ring.ring.drain(&mut |record| {
                tally.taken += 1;
                if let Some(&[a, b, c, d, ..]) = record.first_chunk::<8>()
                    && u32::from_ne_bytes([a, b, c, d]) == LOST
                {
                    let lost = record.get(16..24).and_then(|bytes| bytes.try_into().ok());
                    tally.lost += lost.map_or(0, u64::from_ne_bytes);
                }
                audience.write(record, now, |event| {
                    woken.insert(event);
                });
            });
            tally.broken += u64::from(drained.is_err());
        }
        // With the last one, nobody holds a ring that was closed.
        *audience = Audience::default();
        for event in woken {
            let held = self.owners.get(&event).and_then(|id| self.held.get(id));
            held.into_iter().for_each(|held| held.bell.ring());
        }
        let taken = tally.taken - before;
        if taken > 0 {
            self.mark(now);
        }
        taken
    }

    /// An event whose task has ended would be ready for ever.
    fn leave_the_ended(&self) {
        let mut ended = BTreeSet::new();
        // What can't be waited for is looked at with the others.
        let _ = self.poll.wait(Some(Duration::ZERO), |ready| {
            if ready.hangup {
                ended.insert(ready.token.0);
            }
        });
        if ended.is_empty() {
            return;
        }
        for source in self.sources.values().filter(|source| ended.contains(&source.number)) {
            let _ = self.poll.remove(source.ring.fd());
        }
    }

    fn mark(&mut self, now: Nanos) {
        let round = finished_round();
        for held in self.held.values_mut() {
            if held.ring.tally().bytes == held.marked_bytes {
                continue;
            }
            // Full, it has no mark: then two rounds are one.
            if matches!(held.ring.write(&round, now), Ok(Wake::Now)) {
                held.bell.ring();
            }
            held.marked_bytes = held.ring.tally().bytes;
        }
    }
}
