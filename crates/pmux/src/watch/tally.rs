//! Hits by thread and place.
//!
//! What it is: for each thread, spot and instruction how often, when first and last, on which CPUs, and the call chains that
//! led there.
//!
//! **Invariant:** what is not kept for want of room is a number.

use super::hit::{Hit, Side};
use pmux_engine::Nanos;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// So many rows are kept; a program that is hit from more places by more threads is not read row by row.
const MOST_ROWS: usize = 1 << 16;
/// So many call chains are kept for a row.
const MOST_CHAINS: usize = 32;

/// Who, and where.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Caller {
    /// Which spot.
    pub spot: usize,
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
pub struct Row {
    /// How many hits.
    pub hits: u64,
    /// The first one.
    pub first: Nanos,
    /// The last one.
    pub last: Nanos,
    /// The CPUs, ascending.
    pub cpus: Vec<u32>,
    /// The call chains (return addresses, the innermost first) with how many hits each; without those that were dropped.
    pub chains: HashMap<Box<[u64]>, u64>,
    /// Hits whose call chain was dropped: there were too many different ones.
    pub other_chains: u64,
    /// What was read after the last hit of which it is known.
    pub last_value: Option<u64>,
}

impl Row {
    fn new(at: Nanos) -> Self {
        let (cpus, chains) = (Vec::new(), HashMap::new());
        Self { hits: 0, first: at, last: at, cpus, chains, other_chains: 0, last_value: None }
    }

    fn add(&mut self, hit: &Hit) {
        self.hits += 1;
        self.first = self.first.min(hit.at);
        self.last = self.last.max(hit.at);
        if let Err(index) = self.cpus.binary_search(&hit.cpu) {
            self.cpus.insert(index, hit.cpu);
        }
        self.last_value = hit.value.now().or(self.last_value);
        if let Some(hits) = self.chains.get_mut(&hit.callers) {
            *hits += 1;
        } else if self.chains.len() < MOST_CHAINS {
            self.chains.insert(hit.callers.clone(), 1);
        } else {
            self.other_chains += 1;
        }
    }

    /// The call chain of most hits, and how many those are.
    #[must_use]
    pub fn main_chain(&self) -> Option<(&[u64], u64)> {
        let most = self.chains.iter().max_by(|(a, more), (b, than)| more.cmp(than).then_with(|| b.cmp(a)));
        most.map(|(chain, &hits)| (&**chain, hits))
    }
}

/// Hits by thread and place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    rows: HashMap<Caller, Row>,
    told: u64,
    not_kept: u64,
}

impl Tally {
    /// Adds a hit.
    pub fn add(&mut self, hit: &Hit) {
        self.told += 1;
        let kernel = hit.side == Side::Kernel;
        let caller = Caller { spot: hit.spot, pid: hit.pid, tid: hit.tid, ip: hit.ip, kernel };
        let full = self.rows.len() >= MOST_ROWS;
        match self.rows.entry(caller) {
            Entry::Occupied(row) => row.into_mut().add(hit),
            Entry::Vacant(_) if full => self.not_kept += 1,
            Entry::Vacant(place) => place.insert(Row::new(hit.at)).add(hit),
        }
    }

    /// All rows: most hits first.
    #[must_use]
    pub fn rows(&self) -> Vec<(&Caller, &Row)> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by(|(a, more), (b, less)| a.spot.cmp(&b.spot).then(less.hits.cmp(&more.hits)).then(a.cmp(b)));
        rows
    }

    /// How many hits were added.
    #[must_use]
    pub fn told(&self) -> u64 {
        self.told
    }

    /// How many of them are in no row, because there are too many rows.
    #[must_use]
    pub fn not_kept(&self) -> u64 {
        self.not_kept
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::watch::hit::Value;

    fn hit(tid: i32, ip: u64, at: u64, callers: &[u64]) -> Hit {
        Hit {
            at: Nanos(at),
            pid: 1,
            tid,
            cpu: (at % 2) as u32,
            spot: 0,
            address: 8,
            ip,
            side: Side::User,
            callers: callers.into(),
            value: Value::Unreadable,
        }
    }

    #[test]
    fn rows_are_by_thread_and_place() {
        let mut tally = Tally::default();
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
        assert_eq!((tally.told(), tally.not_kept()), (8, 0));
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut tally = Tally::default();
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
        assert_eq!(in_rows + tally.not_kept(), tally.told());
    }
}
