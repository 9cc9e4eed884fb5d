//! Hits by thread and place.
//!
//! What it is: for each thread, spot and instruction how often, when first and last, on which CPUs, and the call chains that
//! led there.
//!
//! **Invariant:** what is not kept for want of room is a number.

use super::hit::{Hit, HitSide};
use super::take::CountedHits;
use pmux_engine::Nanos;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// So many rows are kept; a program that is hit from more places by more threads is not read row by row.
const MOST_ROWS: usize = 1 << 16;
/// So many call chains are kept for a row.
const MOST_CHAINS: usize = 32;

/// Who, and where.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Caller {
    /// Which spot.
    pub watch_target: usize,
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// The instruction pointer, as in [`Hit::ip`].
    pub ip: u64,
    /// In which mode it ran.
    pub kernel: bool,
}

/// What one thread did at one place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchRow {
    /// How many hits.
    pub hits: u64,
    /// The first one.
    pub first: Nanos,
    /// The last one.
    pub last: Nanos,
    /// The CPUs, ascending.
    pub cpus: Vec<u32>,
    /// Hits whose callers were looked at; the others were only counted ([`super::WatchEvent::Counted`]).
    pub looked_at: u64,
    /// The call chains (return addresses, the innermost first) with how many hits each, those that were counted before one that was
    /// looked at with it; without those that were dropped.
    pub chains: HashMap<Box<[u64]>, u64>,
    /// The same for chains that were dropped: there were too many different ones.
    pub other_chains: u64,
    /// What was read after the last hit of which it is known.
    pub last_value: Option<u64>,
}

impl WatchRow {
    fn new(at: Nanos) -> Self {
        let (cpus, chains) = (Vec::new(), HashMap::new());
        Self { hits: 0, first: at, last: at, cpus, looked_at: 0, chains, other_chains: 0, last_value: None }
    }

    fn count(&mut self, hits: u64, first: Nanos, last: Nanos, cpu: u32) {
        self.hits += hits;
        self.first = self.first.min(first);
        self.last = self.last.max(last);
        if let Err(index) = self.cpus.binary_search(&cpu) {
            self.cpus.insert(index, cpu);
        }
    }

    fn add(&mut self, hit: &Hit) {
        self.count(1, hit.at, hit.at, hit.cpu);
        self.looked_at += 1;
        self.last_value = hit.value.now().or(self.last_value);
        if let Some(hits) = self.chains.get_mut(&hit.callers) {
            *hits += hit.stands_for;
        } else if self.chains.len() < MOST_CHAINS {
            self.chains.insert(hit.callers.clone(), hit.stands_for);
        } else {
            self.other_chains += hit.stands_for;
        }
    }

    /// The call chain of most hits, and how many those are: exactly, where all were looked at; otherwise estimated from those
    /// that were.
    #[must_use]
    pub fn main_chain(&self) -> Option<(&[u64], u64)> {
        let most = self.chains.iter().max_by(|(a, more), (b, than)| more.cmp(than).then_with(|| b.cmp(a)));
        let all = u128::from(self.chains.values().sum::<u64>() + self.other_chains).max(1);
        let scaled = |hits: u64| u64::try_from(u128::from(hits) * u128::from(self.hits) / all).unwrap_or(self.hits);
        most.map(|(chain, &hits)| (&**chain, if self.is_looked_at() { hits } else { scaled(hits) }))
    }

    /// Whether the callers of all hits were looked at.
    #[must_use]
    pub fn is_looked_at(&self) -> bool {
        self.looked_at == self.hits
    }
}

/// Hits by thread and place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HitTally {
    rows: HashMap<Caller, WatchRow>,
    pids: HashSet<i32>,
    hits: u64,
    not_kept: u64,
}

impl HitTally {
    /// Adds a hit.
    pub fn add(&mut self, hit: &Hit) {
        let kernel = hit.side == HitSide::Kernel;
        let caller = Caller { watch_target: hit.watch_target, pid: hit.pid, tid: hit.tid, ip: hit.ip, kernel };
        if let Some(row) = self.row(caller, 1, hit.at) {
            row.add(hit);
        }
    }

    /// Adds hits that were only counted.
    pub fn add_counted(&mut self, counted: &CountedHits) {
        let CountedHits { hits, first, last, pid, tid, cpu, watch_target, ip, side } = *counted;
        let caller = Caller { watch_target, pid, tid, ip, kernel: side == HitSide::Kernel };
        if let Some(row) = self.row(caller, hits, first) {
            row.count(hits, first, last, cpu);
        }
    }

    /// Takes out the rows of a process, or all where that is `None`, in the order of [`HitTally::rows`]. When the process executes another
    /// program its addresses come to mean something else.
    pub fn take_rows(&mut self, pid: Option<i32>) -> Vec<(Caller, WatchRow)> {
        if pid.is_some_and(|pid| !self.pids.remove(&pid)) {
            return Vec::new();
        }
        let mut rows: Vec<_> = self.rows.extract_if(|caller, _| pid.is_none_or(|pid| caller.pid == pid)).collect();
        crate::order::sort_by(&mut rows, |(a, more), (b, less)| by_target((a, more), (b, less)));
        rows
    }

    /// The row for so many more hits, if there is room for it.
    fn row(&mut self, caller: Caller, hits: u64, first: Nanos) -> Option<&mut WatchRow> {
        self.hits += hits;
        let full = self.rows.len() >= MOST_ROWS;
        match self.rows.entry(caller) {
            Entry::Occupied(row) => Some(row.into_mut()),
            Entry::Vacant(_) if full => {
                self.not_kept += hits;
                None
            }
            Entry::Vacant(place) => {
                self.pids.insert(caller.pid);
                Some(place.insert(WatchRow::new(first)))
            }
        }
    }

    /// All rows: most hits first.
    #[must_use]
    pub fn rows(&self) -> Vec<(&Caller, &WatchRow)> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        crate::order::sort_by(&mut rows, |a, b| by_target(*a, *b));
        rows
    }

    /// How many hits were added.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// How many of them are in no row, because there are too many rows.
    #[must_use]
    pub fn not_kept(&self) -> u64 {
        self.not_kept
    }
}

/// Most hits of a spot first.
fn by_target((a, more): (&Caller, &WatchRow), (b, less): (&Caller, &WatchRow)) -> std::cmp::Ordering {
    a.watch_target.cmp(&b.watch_target).then(less.hits.cmp(&more.hits)).then(a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::hit::HitValue;

    fn hit(tid: i32, ip: u64, at: u64, callers: &[u64]) -> Hit {
        Hit {
            at: Nanos(at),
            pid: 1,
            tid,
            cpu: (at % 2) as u32,
            watch_target: 0,
            address: 8,
            ip,
            side: HitSide::User,
            callers: callers.into(),
            value: HitValue::Unreadable,
            stands_for: 1,
        }
    }

    fn counted(tid: i32, hits: u64, first: u64, last: u64) -> CountedHits {
        let (first, last) = (Nanos(first), Nanos(last));
        CountedHits { hits, first, last, pid: 1, tid, cpu: 3, watch_target: 0, ip: 0x40, side: HitSide::User }
    }

    #[test]
    fn rows_are_by_thread_and_place() {
        let mut tally = HitTally::default();
        for at in 10..15 {
            tally.add(&hit(7, 0x40, at, &[0x50, 0x60]));
        }
        tally.add(&hit(7, 0x40, 9, &[0x51]));
        tally.add(&hit(8, 0x40, 20, &[]));
        tally.add(&hit(8, 0x44, 21, &[]));
        let rows = tally.rows();
        assert_eq!(rows.len(), 3);
        let (caller, row) = rows[0];
        assert_eq!((caller.tid, caller.ip, row.hits), (7, 0x40, 6));
        assert_eq!((row.first, row.last, &row.cpus[..]), (Nanos(9), Nanos(14), &[0, 1][..]));
        assert_eq!(row.main_chain(), Some((&[0x50, 0x60][..], 5)));
        assert_eq!((tally.hits(), tally.not_kept()), (8, 0));
    }

    /// Hits that were only counted belong to the callers of the next one that was looked at; the last ones to all.
    #[test]
    fn counted_hits_share_the_callers_of_those_that_were_looked_at() {
        let mut tally = HitTally::default();
        tally.add(&hit(7, 0x40, 10, &[0x50]));
        tally.add(&Hit { stands_for: 299, ..hit(7, 0x40, 30, &[0x60]) });
        // They may be told before those that were looked at.
        tally.add_counted(&counted(7, 298 + 300, 10, 40));
        tally.add_counted(&counted(8, 5, 8, 9));
        tally.add(&hit(8, 0x40, 8, &[]));
        let rows = tally.rows();
        let (_, row) = rows[0];
        assert_eq!((row.hits, row.looked_at, row.first, row.last), (600, 2, Nanos(10), Nanos(40)));
        assert_eq!(row.cpus, [0, 3]);
        assert_eq!(row.main_chain(), Some((&[0x60][..], 598)), "299 of 300");
        assert_eq!(rows[1].1.main_chain(), Some((&[][..], 6)));
        assert_eq!((rows[1].1.first, tally.hits()), (Nanos(8), 606));
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut tally = HitTally::default();
        for chain in 0..MOST_CHAINS as u64 + 3 {
            tally.add(&hit(7, 0x40, chain, &[chain]));
        }
        let rows = tally.rows();
        assert_eq!((rows[0].1.chains.len(), rows[0].1.other_chains), (MOST_CHAINS, 3));
        for ip in 0..MOST_ROWS as u64 + 5 {
            tally.add(&hit(9, ip, 1, &[]));
        }
        let in_rows: u64 = tally.rows().iter().map(|(_, row)| row.hits).sum();
        assert_eq!(tally.not_kept(), 6);
        assert_eq!(in_rows + tally.not_kept(), tally.hits());
        // Rows that are taken out make room for others.
        assert!(tally.take_rows(Some(2)).is_empty());
        assert_eq!(tally.take_rows(Some(1)).iter().map(|(_, row)| row.hits).sum::<u64>(), in_rows);
        assert!(tally.take_rows(Some(1)).is_empty() && tally.rows().is_empty());
        tally.add(&hit(9, 0, 1, &[]));
        assert_eq!((tally.not_kept(), tally.take_rows(Some(1)).len(), tally.take_rows(None).len()), (6, 1, 0));
    }
}
