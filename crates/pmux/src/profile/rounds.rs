//! Records in the order of their times.
//!
//! What it is: each CPU's records come in order, and those of one CPU after those of another. At the end of a *round* all rings have
//! been emptied once, so that whatever comes later is younger than the youngest record before the previous end. What can go is copied
//! into batches: who takes them walks through memory from its front to its end. Read first: [`Queue::end_round`], [`OrderedRecords`].
//!
//! **Invariant:** what is held is at most two rounds, and never more than [`MOST_BYTES`] and a block: then the older half goes.

use pmux_abi::record::RecordHeader;
use std::collections::VecDeque;

/// A recording without rounds is put into order over so many bytes.
pub(super) const MOST_BYTES: usize = 256 << 20;
/// A batch is passed on when it has so many bytes.
const BATCH_BYTES: usize = 1 << 19;
/// Blocks that are kept for the next bytes.
const SPARE: usize = 4;

/// A record that is met: when it was written, where it is in its block, and of which event it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Met {
    pub(super) time_ns: u64,
    pub(super) at: u32,
    pub(super) event: Option<u32>,
}

#[derive(Clone, Copy)]
struct QueueEntry {
    met: Met,
    block: u32,
}

/// Of small records the entries take more than the bytes.
const ENTRY_BYTES: usize = size_of::<QueueEntry>();

struct Block {
    bytes: Vec<u8>,
    waiting: u32,
}

/// Records in the order of time, one behind the other.
#[derive(Default)]
pub(super) struct OrderedRecords {
    bytes: Vec<u8>,
    records: Vec<Met>,
}

impl OrderedRecords {
    /// Adds the record that the bytes begin with.
    fn add(&mut self, bytes: &[u8], met: Met) {
        let size = RecordHeader::decode(bytes).map_or(0, |header| usize::from(header.size));
        self.records.push(Met { at: self.bytes.len() as u32, ..met });
        self.bytes.extend_from_slice(bytes.get(..size).unwrap_or_default());
    }

    pub(super) fn records(&self) -> impl Iterator<Item = (&[u8], Met)> {
        self.records.iter().map(|met| (self.bytes.get(met.at as usize..).unwrap_or_default(), *met))
    }

    /// Makes room for others.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }
}

/// Records that wait for those which are older.
#[derive(Default)]
pub(super) struct Queue {
    blocks: VecDeque<Block>,
    /// The number of the first block.
    first: u32,
    entries: Vec<QueueEntry>,
    /// So many entries are in order and can go; so many of these have gone.
    ready: usize,
    gone: usize,
    bytes: usize,
    /// The time of the youngest record that was met.
    pub(super) newest_ns: u64,
    /// The oldest of what waits and is not ready; or older.
    oldest_ns: u64,
    /// The youngest record before the last end of a round.
    limit_ns: u64,
    /// The same of the end before: what is not younger can go.
    safe_ns: u64,
    /// The time of what went last.
    gone_ns: u64,
    spare: Vec<Vec<u8>>,
    /// How many records came after younger ones had gone.
    pub(super) late: u64,
}

impl Queue {
    /// A buffer to read the next bytes into; empty.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Adds bytes, and what records there are in them that wait.
    pub(super) fn add(&mut self, bytes: Vec<u8>, records: &[Met]) {
        if records.is_empty() {
            return self.give_back(bytes);
        }
        let block = self.first.wrapping_add(self.blocks.len() as u32);
        for &met in records {
            self.entries.push(QueueEntry { met, block });
            self.oldest_ns = self.oldest_ns.min(met.time_ns);
            self.late += u64::from(met.time_ns < self.gone_ns && met.time_ns != 0);
        }
        self.bytes += bytes.len() + records.len() * ENTRY_BYTES;
        self.blocks.push_back(Block { bytes, waiting: records.len() as u32 });
    }

    /// A record was met, whose block is added later.
    pub(super) fn meet(&mut self, time_ns: u64) {
        self.newest_ns = self.newest_ns.max(time_ns);
    }

    /// Ends a round, for what was met before.
    pub(super) fn end_round(&mut self) {
        self.safe_ns = self.limit_ns;
        self.limit_ns = self.newest_ns;
    }

    /// Finds what can't be preceded by anything any more. Cheap where there is nothing, as within a round.
    pub(super) fn settle(&mut self) {
        if self.oldest_ns <= self.safe_ns && !self.entries.is_empty() {
            let safe_ns = self.safe_ns;
            self.make_ready(&|_| safe_ns);
        }
        if self.ready == 0 && self.bytes > MOST_BYTES {
            self.make_ready(&|sorted| sorted.get(sorted.len() / 2).map_or(u64::MAX, |middle| middle.met.time_ns));
        }
    }

    /// Nothing comes any more: everything can go.
    pub(super) fn settle_all(&mut self) {
        self.make_ready(&|_| u64::MAX);
    }

    /// Puts what waits into order. Nothing may be ready.
    fn make_ready(&mut self, limit: &dyn Fn(&[QueueEntry]) -> u64) {
        // Runs that are in order already are what this sort is good at; those of one time stay as they came.
        self.entries.sort_by_key(|entry| entry.met.time_ns);
        let limit_ns = limit(&self.entries);
        self.ready = self.entries.partition_point(|entry| entry.met.time_ns <= limit_ns);
        self.oldest_ns = self.entries.get(self.ready).map_or(u64::MAX, |entry| entry.met.time_ns);
        if let Some(last) = self.ready.checked_sub(1).and_then(|last| self.entries.get(last)) {
            self.gone_ns = self.gone_ns.max(last.met.time_ns);
        }
    }

    /// Moves what can go into a batch, until that is full. Returns whether there was anything.
    pub(super) fn fill(&mut self, batch: &mut OrderedRecords) -> bool {
        let any = self.gone < self.ready;
        while self.gone < self.ready && batch.bytes.len() < BATCH_BYTES {
            let QueueEntry { met, block } = self.entries[self.gone];
            self.gone += 1;
            let place = block.wrapping_sub(self.first) as usize;
            let Some(block) = self.blocks.get_mut(place) else { continue };
            batch.add(block.bytes.get(met.at as usize..).unwrap_or_default(), met);
            block.waiting -= 1;
            self.bytes -= ENTRY_BYTES;
            if block.waiting == 0 {
                self.bytes -= block.bytes.len();
                let bytes = std::mem::take(&mut block.bytes);
                self.give_back(bytes);
            }
        }
        if any && self.gone == self.ready {
            self.entries.drain(..self.ready);
            (self.gone, self.ready) = (0, 0);
        }
        while self.blocks.front().is_some_and(|block| block.waiting == 0) {
            self.blocks.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(time_ns: u64) -> Vec<u8> {
        [[0; 6].as_slice(), &16_u16.to_ne_bytes(), &time_ns.to_ne_bytes()].concat()
    }

    fn take(queue: &mut Queue, out: &mut Vec<u64>) {
        let mut batch = OrderedRecords::default();
        while queue.fill(&mut batch) {
            for (bytes, met) in batch.records() {
                assert_eq!(bytes[8..16], met.time_ns.to_ne_bytes());
                out.push(met.time_ns);
            }
            batch.clear();
        }
    }

    proptest! {
        #[test]
        fn rounds_come_out_in_order(rounds in prop::collection::vec(prop::collection::vec(0_u64..50, 0..12), 1..8)) {
            // In each round two CPUs tell of times after the last round's.
            let (mut queue, mut out, mut count) = (Queue::default(), Vec::new(), 0);
            for (number, round) in rounds.iter().enumerate() {
                let base = 1 + 50 * number as u64;
                for cpu in 0..2 {
                    let mut times: Vec<u64> =
                        round.iter().skip(cpu).step_by(2).map(|time| base + time).collect();
                    times.sort_unstable();
                    count += times.len();
                    let bytes = times.iter().flat_map(|time| record(*time)).collect();
                    let met = |(at, &time_ns): (usize, &u64)| Met { time_ns, at: 16 * at as u32, event: Some(0) };
                    let records: Vec<_> = times.iter().enumerate().map(met).collect();
                    times.iter().for_each(|&time| queue.meet(time));
                    queue.add(bytes, &records);
                }
                queue.end_round();
                queue.settle();
                take(&mut queue, &mut out);
            }
            queue.settle_all();
            take(&mut queue, &mut out);
            prop_assert_eq!(queue.late, 0);
            prop_assert_eq!(out.len(), count);
            prop_assert!(out.is_sorted());
            prop_assert!(queue.blocks.is_empty() && queue.bytes == 0);
        }
    }
}
