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
    lost: u64,
}

impl<R: Clone> Ring<R> {
    /// An empty ring.
    #[must_use]
    pub const fn new(mode: Mode, capacity_bytes: u64) -> Self {
        Self { mode, capacity_bytes, kept: Vec::new(), gone: 0, lost: 0 }
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

    /// How many records were kept, whether or not they are still there.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept.len() as u64
    }

    /// How many were not kept: no room, or too large.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}
