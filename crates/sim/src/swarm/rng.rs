//! Chance, from a seed.
//!
//! **Invariant:** one seed gives one run of luck on every machine; nothing else is random.

/// Something that is thrown.
pub(super) struct Rng(fastrand::Rng);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number below `end`; 0 below 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.0.u64(0..end) }
    }

    /// A number from `least` to `most`.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0.u64(least..=most.max(least))
    }

    /// A number from `least` to `most`, of which each size is as likely as any other: as many below 10 as from 10 to 100.
    pub(super) fn any_size(&mut self, least: u64, most: u64) -> u64 {
        let (least, most) = (least.max(1), most.max(least).max(1));
        let size = self.between(u64::from(least.ilog2()), u64::from(most.ilog2()));
        self.between(1 << size, (1 << size) + ((1 << size) - 1)).clamp(least, most)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of them; there must be one.
    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    pub(super) fn pick_any<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len() as u64) as usize)
    }

    pub(super) fn shuffle<T>(&mut self, all: &mut [T]) {
        self.0.shuffle(all);
    }
}
