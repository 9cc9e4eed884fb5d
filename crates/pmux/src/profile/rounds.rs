//! Records in the order of their times.
//!
//! What it is: each CPU's records come in order, and those of one CPU after those of another. At the end of a *round* all rings have
//! been emptied once, so that whatever comes later is younger than the youngest record before the previous end. Read first:
//! [`Queue::end_round`].
//!
//! **Invariant:** what is held is at most two rounds, and never more than [`MOST_BYTES`] and a block: then the older half goes.

use std::collections::VecDeque;

/// A recording without rounds is put into order over so many bytes.
pub(super) const MOST_BYTES: usize = 256 << 20;
/// Blocks that are kept for the next bytes.
const SPARE: usize = 4;

/// A record: when, and where it is.
#[derive(Clone, Copy)]
struct Entry {
    time_ns: u64,
    block: u32,
    at: u32,
}

struct Block {
    bytes: Vec<u8>,
    waiting: u32,
}

/// Records that wait for those which are older.
#[derive(Default)]
pub(super) struct Queue {
    blocks: VecDeque<Block>,
    /// The number of the first block.
    first: u32,
    entries: Vec<Entry>,
    bytes: usize,
    newest_ns: u64,
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

    /// Gives back a buffer that is not needed.
    pub(super) fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Adds bytes, and where the records in them are that wait: their times and places.
    pub(super) fn add(&mut self, bytes: Vec<u8>, records: &[(u64, u32)]) {
        if records.is_empty() {
            return self.give_back(bytes);
        }
        let block = self.first.wrapping_add(self.blocks.len() as u32);
        for &(time_ns, at) in records {
            self.entries.push(Entry { time_ns, block, at });
            self.late += u64::from(time_ns < self.gone_ns && time_ns != 0);
        }
        self.bytes += bytes.len();
        self.blocks.push_back(Block { bytes, waiting: records.len() as u32 });
    }

    /// The time of the youngest record that was met.
    pub(super) fn newest_ns(&self) -> u64 {
        self.newest_ns
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

    /// Gives what can't be preceded by anything any more to `take`, in order.
    pub(super) fn let_rounds_go(&mut self, take: impl FnMut(&[u8], u64)) {
        let safe_ns = self.safe_ns;
        self.let_go(|_| safe_ns, take);
    }

    /// Lets the older half go if more is held than may be.
    pub(super) fn keep_small(&mut self, take: impl FnMut(&[u8], u64)) {
        if self.bytes > MOST_BYTES {
            self.let_go(|sorted| sorted.get(sorted.len() / 2).map_or(u64::MAX, |middle| middle.time_ns), take);
        }
    }

    /// Lets everything go.
    pub(super) fn finish(&mut self, take: impl FnMut(&[u8], u64)) {
        self.let_go(|_| u64::MAX, take);
    }

    fn let_go(&mut self, limit: impl FnOnce(&[Entry]) -> u64, mut take: impl FnMut(&[u8], u64)) {
        // Runs that are in order already are what this sort is good at; those of one time stay as they came.
        self.entries.sort_by_key(|entry| entry.time_ns);
        let limit_ns = limit(&self.entries);
        let count = self.entries.partition_point(|entry| entry.time_ns <= limit_ns);
        for entry in self.entries.drain(..count) {
            self.gone_ns = self.gone_ns.max(entry.time_ns);
            let place = entry.block.wrapping_sub(self.first) as usize;
            let Some(block) = self.blocks.get_mut(place) else { continue };
            take(block.bytes.get(entry.at as usize..).unwrap_or_default(), entry.time_ns);
            block.waiting -= 1;
            if block.waiting == 0 {
                self.bytes -= block.bytes.len();
                let mut bytes = std::mem::take(&mut block.bytes);
                if self.spare.len() < SPARE {
                    bytes.clear();
                    self.spare.push(bytes);
                }
            }
        }
        while self.blocks.front().is_some_and(|block| block.waiting == 0) {
            self.blocks.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
                    let bytes = times.iter().flat_map(|time| time.to_ne_bytes()).collect();
                    let records: Vec<_> = times.iter().enumerate().map(|(at, &time)| (time, 8 * at as u32)).collect();
                    times.iter().for_each(|&time| queue.meet(time));
                    queue.add(bytes, &records);
                }
                queue.end_round();
                queue.let_rounds_go(|bytes, time| {
                    assert_eq!(bytes[..8], time.to_ne_bytes());
                    out.push(time);
                });
            }
            queue.finish(|_, time| out.push(time));
            prop_assert_eq!(queue.late, 0);
            prop_assert_eq!(out.len(), count);
            prop_assert!(out.is_sorted());
            prop_assert!(queue.blocks.is_empty() && queue.bytes == 0);
        }
    }
}
