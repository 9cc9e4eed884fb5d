//! Waits, as far back as samples are kept.
//!
//! What it is: rings of waits are not overwritten, as those of samples are: what is in them is taken out all the time ([`KeptWaits`]), and a
//! snapshot has of each wait what lies in its time ([`SnapshotWaits`]). Read first: [`SnapshotWaits::records`].
//!
//! **Invariant:** memory is bounded; since when all waits are there is known.

use crate::record::{Taken, WaitCut, WaitSamples};
use pmux_abi::record::Records;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

/// What came at one time.
struct Round {
    /// When the last wait of it ended.
    last_ns: u64,
    records: Arc<[u8]>,
}

/// Waits that have ended.
pub(super) struct KeptWaits {
    rounds: VecDeque<Round>,
    bytes: u64,
    most_bytes: u64,
    /// From when on none was dropped because there was no room.
    since_ns: u64,
}

impl KeptWaits {
    /// With room for so many bytes.
    pub(super) fn new(most_bytes: u64, now_ns: u64) -> Self {
        Self { rounds: VecDeque::new(), bytes: 0, most_bytes, since_ns: now_ns }
    }

    /// Takes in what came.
    pub(super) fn put(&mut self, taken: &Taken) {
        let Some(last_ns) = taken.last_ns else { return };
        self.bytes += taken.records.len() as u64;
        self.rounds.push_back(Round { last_ns, records: taken.records.as_slice().into() });
        while self.bytes > self.most_bytes
            && let Some(round) = self.drop_first()
        {
            self.since_ns = self.since_ns.max(round.last_ns);
        }
    }

    /// What ended before that time is not asked for any more.
    pub(super) fn forget(&mut self, oldest_ns: u64) {
        while self.rounds.front().is_some_and(|round| round.last_ns < oldest_ns) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) -> Option<Round> {
        let round = self.rounds.pop_front()?;
        self.bytes -= round.records.len() as u64;
        Some(round)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Since when waits are there, where there was no room for as many as were asked for.
    pub(super) fn shortened(&self, due_ns: u64) -> Option<u64> {
        (self.since_ns > due_ns).then_some(self.since_ns)
    }

    /// What a snapshot has of it, and of those that went on when it was looked for them.
    pub(super) fn snapshot(&self, samples: WaitSamples, under_way: Option<(u64, Taken)>) -> SnapshotWaits {
        let (seen_ns, under_way) = under_way.unzip();
        SnapshotWaits {
            samples,
            rounds: self.rounds.iter().map(|round| Arc::clone(&round.records)).collect(),
            since_ns: self.since_ns,
            seen_ns,
            under_way: under_way.unwrap_or_default().records,
        }
    }
}

/// Waits for a snapshot.
#[derive(Debug)]
pub(super) struct SnapshotWaits {
    samples: WaitSamples,
    rounds: Vec<Arc<[u8]>>,
    /// From when on none is missing.
    pub(super) since_ns: u64,
    /// When it was looked for those that went on.
    seen_ns: Option<u64>,
    under_way: Vec<u8>,
}

impl SnapshotWaits {
    pub(super) fn bytes(&self) -> u64 {
        self.rounds.iter().map(|round| round.len() as u64).sum::<u64>() + self.under_way.len() as u64
    }

    /// When the first of these waits began, and when the last one ended.
    pub(super) fn times(&self, records: &[(u64, Cow<'_, [u8]>)]) -> Option<(u64, u64)> {
        let waits = || records.iter().filter_map(|(_, record)| self.samples.read(record));
        let first_ns = waits().map(|wait| wait.time_ns.saturating_sub(wait.period_ns)).min()?;
        Some((first_ns, waits().map(|wait| wait.time_ns).max()?))
    }

    /// What of them lies between these times, each with its time and in their order.
    pub(super) fn records(&self, from_ns: u64, to_ns: u64) -> Vec<(u64, Cow<'_, [u8]>)> {
        let rounds = self.rounds.iter().map(|round| &**round).chain([self.under_way.as_slice()]);
        let all: Vec<&[u8]> = rounds.flat_map(|round| Records::new(round).flatten()).collect();
        let cut = WaitCut::new(&self.samples, &all, (from_ns, to_ns), self.seen_ns, []);
        let mut records = Vec::new();
        cut.records(&all, |record| {
            records.extend(self.samples.time_ns(&record).map(|at_ns| (at_ns, record)));
        });
        // Both samples of a wait have one time, and stay together.
        crate::order::sort_by_key(&mut records, |(at_ns, _)| *at_ns);
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(last_ns: u64, bytes: usize) -> Taken {
        Taken { records: vec![0; bytes], samples: 1, last_ns: Some(last_ns) }
    }

    #[test]
    fn what_has_no_room_is_known_to_be_missing() {
        let mut kept = KeptWaits::new(100, 5);
        kept.put(&Taken::default());
        for at in 1..4 {
            kept.put(&taken(at * 10, 40));
        }
        assert_eq!((kept.bytes(), kept.since_ns), (80, 10));
        assert_eq!((kept.shortened(9), kept.shortened(10)), (Some(10), None));
        // What is too old is not missed.
        kept.forget(21);
        assert_eq!((kept.bytes(), kept.since_ns), (40, 10));
        // Less than one has room.
        kept.put(&taken(50, 101));
        assert_eq!((kept.bytes(), kept.since_ns), (0, 50));
    }
}
