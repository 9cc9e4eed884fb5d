//! How far back a ring reaches.
//!
//! What it is: now and then it is noted how much had ever been written into a ring. What was written after a mark is there as long as
//! no more than the ring holds has come since. Read first: [`Marks::note`].
//!
//! **Invariant:** pure, and small: marks are thinned out, never more than [`MOST`].

const MOST: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    written: u64,
    at_ns: u64,
}

/// The marks of one ring, the oldest first. The first one may be overwritten already: what is older than it is gone for sure.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    marks: Vec<Mark>,
    /// Whether the first mark is overwritten.
    passed: bool,
}

impl Marks {
    /// Of a ring that is empty.
    pub(super) fn begin(now_ns: u64) -> Self {
        Self { marks: vec![Mark { written: 0, at_ns: now_ns }], passed: false }
    }

    /// So much had been written by now.
    pub(super) fn note(&mut self, written: u64, now_ns: u64, capacity: u64) {
        let now = Mark { written, at_ns: now_ns };
        match self.marks.as_mut_slice() {
            // While nothing is written the last mark moves on; the one before it says since when.
            [.., before, last] if before.written == last.written && last.written == written => *last = now,
            _ => self.marks.push(now),
        }
        let passed = self.marks.iter().take_while(|mark| written.saturating_sub(mark.written) > capacity).count();
        if passed > 0 {
            self.passed = true;
            self.marks.drain(..passed - 1);
        }
        if self.marks.len() > MOST {
            // The first two say what is there, the last what is now.
            let last = self.marks.len() - 1;
            let mut place = 0;
            self.marks.retain(|_| {
                place += 1;
                place <= 2 || place % 2 == 0 || place > last
            });
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        !self.passed
    }

    /// Everything since then is there.
    pub(super) fn since_ns(&self) -> u64 {
        let first = if self.passed { 1 } else { 0 };
        self.marks.get(first).or(self.marks.last()).map_or(0, |mark| mark.at_ns)
    }

    /// Nothing that is there is older.
    pub(super) fn oldest_ns(&self) -> u64 {
        self.marks.first().map_or(0, |mark| mark.at_ns)
    }

    /// The largest number of bytes for their time that came between a mark and now, of marks that are this long ago or longer: the
    /// bytes, and the time.
    pub(super) fn fastest(&self, least_ns: u64, now_ns: u64) -> Option<(u64, u64)> {
        let last = self.marks.last()?;
        let of = |mark: &Mark| {
            let within_ns = now_ns.saturating_sub(mark.at_ns);
            (within_ns >= least_ns).then(|| (last.written - mark.written, within_ns))
        };
        let rate =
            |(bytes, within_ns): &(u64, u64)| u128::from(*bytes) * 1_000_000_000 / u128::from((*within_ns).max(1));
        self.marks.iter().filter_map(of).max_by_key(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_ring_that_is_not_full_has_everything() {
        let mut marks = Marks::begin(100);
        marks.note(500, 200, 1000);
        marks.note(1000, 300, 1000);
        assert!(marks.is_whole());
        assert_eq!((marks.since_ns(), marks.oldest_ns()), (100, 100));
        marks.note(1500, 400, 1000);
        assert!(!marks.is_whole());
        assert_eq!((marks.since_ns(), marks.oldest_ns()), (200, 100));
    }

    #[test]
    fn a_quiet_ring_reaches_further_back_each_second() {
        let mut marks = Marks::begin(0);
        marks.note(2000, 10, 1000);
        marks.note(3000, 20, 1000);
        for now in 21..1000 {
            marks.note(3000, now, 1000);
        }
        assert_eq!((marks.since_ns(), marks.oldest_ns()), (10, 0));
        assert!(marks.marks.len() < 5);
        assert_eq!(marks.fastest(100, 999), Some((3000, 999)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Against all that was ever noted: what is said to be there is there, and what is said to be gone is gone.
        #[test]
        fn never_more_is_said_than_is_so(steps in prop::collection::vec((0_u64..400, 1_u64..50), 1..400)) {
            let mut marks = Marks::begin(0);
            let (mut all, mut written, mut now) = (vec![(0, 0)], 0, 0);
            for (bytes, ns) in steps {
                written += bytes;
                now += ns;
                marks.note(written, now, 1000);
                all.push((written, now));
                let at = |time: u64| all.iter().rev().find(|(_, noted)| *noted <= time).map_or(0, |(bytes, _)| *bytes);
                prop_assert!(written - at(marks.since_ns()) <= 1000, "all since then is there");
                let is_whole = written <= 1000;
                prop_assert!(marks.is_whole() == is_whole);
                prop_assert!(is_whole || written - at(marks.oldest_ns()) > 1000, "nothing before that is there");
                prop_assert!(marks.marks.len() <= MOST + 1);
            }
        }
    }
}
