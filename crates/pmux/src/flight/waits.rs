//! Waits, as far back as samples are kept.
//!
//! What it is: rings of waits are not overwritten, as those of samples are: what is in them is taken out all the time ([`KeptWaits`]), and a
//! snapshot has of each wait what lies in its time ([`SnapshotWaits`]). Read first: [`SnapshotWaits::records`].
//!
//! **Invariant:** memory is bounded; since when all waits are there is known.

use crate::record::{Taken, WaitCut, WaitSamples};
use pmux_abi::record::{Records, SampleLayout};
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A piece has at most one part in so many of the room.
const PIECES: u64 = 8;

/// What came at one time.
struct Round {
    /// When the last wait of it ended.
    last_ns: u64,
    records: Arc<[u8]>,
}

pub(super) struct KeptWaits {
    rounds: VecDeque<Round>,
    pub(super) bytes: u64,
    most_bytes: u64,
    layout: SampleLayout,
    /// Since when they are recorded; `None` before.
    begun_ns: Option<u64>,
    /// From when on none was dropped because there was no room.
    since_ns: u64,
}

impl KeptWaits {
    /// With room for so many bytes of samples of this layout.
    pub(super) fn new(most_bytes: u64, layout: SampleLayout) -> Self {
        Self { rounds: VecDeque::new(), bytes: 0, most_bytes, layout, begun_ns: None, since_ns: 0 }
    }

    pub(super) fn begin(&mut self, since_ns: u64) {
        self.begun_ns.get_or_insert(since_ns);
    }

    pub(super) fn put(&mut self, taken: Taken) {
        let Some(last_ns) = taken.last_ns else { return };
        let most_bytes = (self.most_bytes / PIECES) as usize;
        if taken.records.len() <= most_bytes {
            self.put_round(last_ns, taken.records);
            return;
        }
        // In pieces, each younger than the one before, so that what is dropped is the oldest.
        let records = Records::new(&taken.records).flatten();
        let mut records: Vec<(u64, &[u8])> =
            records.filter_map(|record| Some((self.layout.time(record)?, record))).collect();
        crate::order::sort_by_key(&mut records, |(at_ns, _)| *at_ns);
        let (mut piece, mut piece_ns) = (Vec::new(), 0);
        for (at_ns, record) in records {
            // Both samples of a wait stay together.
            if piece.len() + record.len() > most_bytes && at_ns > piece_ns && !piece.is_empty() {
                self.put_round(piece_ns, std::mem::take(&mut piece));
            }
            piece.extend_from_slice(record);
            piece_ns = at_ns;
        }
        self.put_round(piece_ns, piece);
    }

    fn put_round(&mut self, last_ns: u64, records: Vec<u8>) {
        self.bytes += records.len() as u64;
        self.rounds.push_back(Round { last_ns, records: records.into() });
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

    /// Since when waits are there, where there was no room for as many as were asked for.
    pub(super) fn shortened(&self, due_ns: u64) -> Option<u64> {
        (self.since_ns > due_ns).then_some(self.since_ns)
    }

    /// What a snapshot has of it, and of those that went on when it was looked for them.
    pub(super) fn snapshot(&self, samples: WaitSamples, under_way: Option<(u64, Taken)>, unseen: u64) -> SnapshotWaits {
        let (seen_ns, under_way) = under_way.unzip();
        SnapshotWaits {
            samples,
            rounds: self.rounds.iter().map(|round| Arc::clone(&round.records)).collect(),
            since_ns: self.begun_ns.unwrap_or(u64::MAX).max(self.since_ns),
            seen_ns,
            unseen,
            under_way: under_way.unwrap_or_default().records,
        }
    }
}

#[derive(Debug)]
pub(super) struct SnapshotWaits {
    samples: WaitSamples,
    rounds: Vec<Arc<[u8]>>,
    /// From when on none is missing.
    pub(super) since_ns: u64,
    /// When it was looked for those that went on.
    seen_ns: Option<u64>,
    /// How many were not seen as a whole since recording began.
    pub(super) unseen: u64,
    under_way: Vec<u8>,
}

impl SnapshotWaits {
    pub(super) fn bytes(&self) -> u64 {
        self.rounds.iter().map(|round| round.len() as u64).sum::<u64>() + self.under_way.len() as u64
    }

    /// When the first of these waits began, and when the last one ended.
    pub(super) fn times(&self, records: &[(u64, Cow<'_, [u8]>)]) -> Option<(u64, u64)> {
        // Both samples of a wait have one time, and follow each other.
        let mut began_ns: HashMap<(u32, u64), u64> = HashMap::new();
        for wait in records.iter().filter_map(|(_, record)| self.samples.read(record)) {
            let began_ns = began_ns.entry((wait.tid, wait.time_ns)).or_insert(wait.time_ns);
            *began_ns = began_ns.saturating_sub(wait.period_ns);
        }
        Some((*began_ns.values().min()?, began_ns.keys().map(|(_, time_ns)| *time_ns).max()?))
    }

    /// What of them lies between these times, each with its time and in their order.
    pub(super) fn records(&self, from_ns: u64, to_ns: u64) -> Vec<(u64, Cow<'_, [u8]>)> {
        let rounds = self.rounds.iter().map(|round| &**round).chain([self.under_way.as_slice()]);
        let all: Vec<&[u8]> = rounds.flat_map(|round| Records::new(round).flatten()).collect();
        let cut = WaitCut::new(&self.samples, (from_ns, to_ns), self.seen_ns, []);
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

    fn layout() -> SampleLayout {
        use pmux_abi::attr::{Attr, SampleFormat};
        SampleLayout::new(&Attr { sample: SampleFormat::TIME, ..Attr::default() })
    }

    /// Samples of these times, of 16 bytes each.
    fn taken(times_ns: &[u64]) -> Taken {
        let sample =
            |at_ns: &u64| [u64::from_ne_bytes([9, 0, 0, 0, 0, 0, 16, 0]), *at_ns].map(u64::to_ne_bytes).concat();
        let records = times_ns.iter().flat_map(sample).collect();
        Taken { records, samples: times_ns.len() as u64, last_ns: times_ns.iter().max().copied() }
    }

    #[test]
    fn what_has_no_room_is_known_to_be_missing() {
        let mut kept = KeptWaits::new(128, layout());
        kept.put(Taken::default());
        for at_ns in 1..=10 {
            kept.put(taken(&[at_ns * 10]));
        }
        assert_eq!((kept.bytes, kept.since_ns), (128, 20));
        assert_eq!((kept.shortened(19), kept.shortened(20)), (Some(20), None));
        // What is too old is not missed.
        kept.forget(91);
        assert_eq!((kept.bytes, kept.since_ns), (16, 20));
        // Of what came at once, from one CPU after the other, the newest stays.
        kept.put(taken(&[210, 230, 250, 270, 290, 220, 240, 260, 280, 300]));
        assert_eq!((kept.bytes, kept.since_ns), (128, 220));
        // A wait is not torn.
        kept.put(taken(&[400; 20]));
        assert_eq!((kept.bytes, kept.since_ns), (0, 400));
        assert_eq!(kept.snapshot(WaitSamples::default(), None, 0).since_ns, u64::MAX, "it has not begun");
        kept.begin(500);
        kept.begin(600);
        assert_eq!(kept.snapshot(WaitSamples::default(), None, 0).since_ns, 500);
    }
}
