//! Rings of records, as a list of whole records.
//!
//! What it is: the model of a ring that one writer fills and one reader empties. *Forward*: a full ring refuses the
//! record and counts it as lost. *Overwrite*: the oldest records give way until there is room.
//! Positions only grow, so that a full ring and an empty one differ and every byte can be used.
//! Read first: [`Ring::write`].
//!
//! **Invariant:** a record is in the ring whole or not at all. Whatever was produced was kept, or is counted as lost.

/// What happens to a record for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// It is lost.
    Forward,
    /// The oldest records are.
    Overwrite,
}

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// It is in the ring.
    Kept,
    /// There was no room.
    Lost,
    /// It is larger than the ring.
    TooLarge,
}

/// A ring. `R` is whatever tells one record from another.
#[derive(Clone, Debug)]
pub struct Ring<R> {
    mode: Mode,
    capacity_bytes: u64,
    /// Every record that was kept, in order, with its size in bytes; those that are gone too.
    kept: Vec<(R, u64)>,
    /// How many of them have been read or overwritten.
    gone: usize,
    /// How many of those were overwritten unread.
    overwritten: u64,
    lost: u64,
    produced: u64,
}

impl<R: Clone> Ring<R> {
    /// An empty ring.
    #[must_use]
    pub const fn new(mode: Mode, capacity_bytes: u64) -> Self {
        Self { mode, capacity_bytes, kept: Vec::new(), gone: 0, overwritten: 0, lost: 0, produced: 0 }
    }

    /// The records in the ring, the oldest first.
    #[must_use]
    pub fn records(&self) -> Vec<R> {
        self.kept[self.gone..].iter().map(|(record, _)| record.clone()).collect()
    }

    /// Where the next record will begin, in bytes from the first one ever kept.
    #[must_use]
    pub fn head_bytes(&self) -> u64 {
        self.kept.iter().map(|(_, size_bytes)| size_bytes).sum()
    }

    /// Where the oldest record begins.
    #[must_use]
    pub fn tail_bytes(&self) -> u64 {
        self.kept[..self.gone].iter().map(|(_, size_bytes)| size_bytes).sum()
    }

    /// How many bytes are free.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.capacity_bytes - (self.head_bytes() - self.tail_bytes())
    }

    /// Produces a record of `size_bytes`.
    pub fn write(&mut self, record: R, size_bytes: u64) -> Written {
        self.produced += 1;
        if size_bytes > self.capacity_bytes {
            self.lost += 1;
            return Written::TooLarge;
        }
        if self.mode == Mode::Forward && size_bytes > self.free_bytes() {
            self.lost += 1;
            return Written::Lost;
        }
        while size_bytes > self.free_bytes() {
            self.gone += 1;
            self.overwritten += 1;
        }
        self.kept.push((record, size_bytes));
        Written::Kept
    }

    /// Takes the oldest record out.
    pub fn take(&mut self) -> Option<R> {
        let (record, _) = self.kept.get(self.gone)?.clone();
        self.gone += 1;
        Some(record)
    }

    /// What a reader has who began to copy at the moment `earlier`, while the writer went on up to now: what was there
    /// then, without what was overwritten meanwhile.
    #[must_use]
    pub fn copied_since(&self, earlier: &Self) -> Vec<R> {
        let from = self.gone.max(earlier.gone).min(earlier.kept.len());
        earlier.kept[from..].iter().map(|(record, _)| record.clone()).collect()
    }

    /// How many records were kept, whether or not they are still there.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept.len() as u64
    }

    /// How many of those that were kept gave way unread.
    #[must_use]
    pub const fn overwritten(&self) -> u64 {
        self.overwritten
    }

    /// How many were not kept: no room, or too large.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// How many there were to keep. Always [`Ring::kept`] + [`Ring::lost`].
    #[must_use]
    pub const fn produced(&self) -> u64 {
        self.produced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(mode: Mode, sizes_bytes: &[u64]) -> (Ring<usize>, Vec<Written>) {
        let mut ring = Ring::new(mode, 64);
        let written = sizes_bytes.iter().enumerate().map(|(name, &size)| ring.write(name, size)).collect();
        (ring, written)
    }

    #[test]
    fn a_full_forward_ring_refuses_and_counts() {
        use Written::{Kept, Lost};
        let (mut ring, written) = ring(Mode::Forward, &[24, 24, 24, 16, 8]);
        // 48 of 64 bytes are taken when the third one comes; the fourth fits exactly; the last finds no byte.
        assert_eq!(written, [Kept, Kept, Lost, Kept, Lost]);
        assert_eq!(ring.records(), [0, 1, 3]);
        assert_eq!((ring.free_bytes(), ring.lost(), ring.produced()), (0, 2, 5));
        assert_eq!(ring.take(), Some(0));
        assert_eq!((ring.head_bytes(), ring.tail_bytes(), ring.free_bytes()), (64, 24, 24));
        assert_eq!(ring.write(5, 24), Kept);
        assert_eq!(ring.records(), [1, 3, 5]);
        assert_eq!((ring.head_bytes(), ring.overwritten()), (88, 0));
    }

    #[test]
    fn an_overwrite_ring_drops_whole_records_from_its_tail() {
        let (mut ring, written) = ring(Mode::Overwrite, &[24, 16, 24, 8]);
        // 64 bytes are full with the first three; 8 more cost the whole first one.
        assert_eq!(written, [Written::Kept; 4]);
        assert_eq!((ring.records(), ring.tail_bytes(), ring.free_bytes()), (vec![1, 2, 3], 24, 16));
        // 16 are free: no need to drop.
        ring.write(4, 16);
        assert_eq!(ring.records(), [1, 2, 3, 4]);
        // 40 cost three of them: 16 + 24 are enough.
        ring.write(5, 40);
        assert_eq!(ring.records(), [3, 4, 5]);
        assert_eq!((ring.kept(), ring.overwritten(), ring.lost()), (6, 3, 0));
    }

    #[test]
    fn a_record_as_large_as_the_ring_is_kept_and_a_larger_one_refused() {
        for mode in [Mode::Forward, Mode::Overwrite] {
            let (mut ring, written) = ring(mode, &[72, 64, 72]);
            assert_eq!(written, [Written::TooLarge, Written::Kept, Written::TooLarge]);
            assert_eq!((ring.records(), ring.lost(), ring.kept()), (vec![1], 2, 1), "what was there stays");
            assert_eq!((ring.take(), ring.take()), (Some(1), None));
        }
    }

    #[test]
    fn whoever_copies_while_it_goes_on_has_what_was_not_overwritten() {
        let (mut ring, _) = ring(Mode::Overwrite, &[16, 16, 16, 16]);
        let begun = ring.clone();
        assert_eq!(ring.copied_since(&begun), [0, 1, 2, 3]);
        ring.write(4, 24);
        assert_eq!(ring.copied_since(&begun), [2, 3], "the new one came after the copy had begun");
        ring.write(5, 64);
        assert!(ring.copied_since(&begun).is_empty());
    }

    #[test]
    fn nothing_is_unaccounted_for() {
        let mut random = fastrand::Rng::with_seed(3);
        for mode in [Mode::Forward, Mode::Overwrite] {
            let mut ring = Ring::new(mode, 128);
            let mut taken = 0;
            for name in 0..2000_u32 {
                ring.write(name, 8 * random.u64(1..20));
                while random.u8(0..3) == 0 && ring.take().is_some() {
                    taken += 1;
                }
                assert_eq!(ring.kept() + ring.lost(), ring.produced());
                assert_eq!(ring.records().len() as u64 + taken + ring.overwritten(), ring.kept());
                assert!(ring.head_bytes() - ring.tail_bytes() <= 128);
                assert!(ring.records().is_sorted());
            }
            assert!(ring.lost() > 0 && taken > 0 && (ring.overwritten() > 0) == (mode == Mode::Overwrite));
        }
    }
}
