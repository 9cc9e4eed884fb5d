//! Sets of CPUs of any size.
//!
//! **Invariant:** no largest number of CPUs is assumed.

use crate::id::CpuId;
use alloc::vec::Vec;

/// A set of CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuMask {
    /// A bit for each CPU; the last word is never 0, so that equal sets are equal words.
    words: Vec<u64>,
}

impl CpuMask {
    /// Whether `cpu` is in it. O(1).
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words.get(cpu.0 as usize / 64).is_some_and(|word| word & (1 << (cpu.0 % 64)) != 0)
    }

    /// Puts `cpu` in.
    pub fn insert(&mut self, cpu: CpuId) {
        let index = cpu.0 as usize / 64;
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        self.words[index] |= 1 << (cpu.0 % 64);
    }

    /// Takes `cpu` out.
    pub fn remove(&mut self, cpu: CpuId) {
        if let Some(word) = self.words.get_mut(cpu.0 as usize / 64) {
            *word &= !(1 << (cpu.0 % 64));
        }
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// Its CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            (0..64_u32).filter(move |bit| word & (1 << bit) != 0).map(move |bit| CpuId(index as u32 * 64 + bit))
        })
    }

    /// How many CPUs it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether it holds none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

impl FromIterator<CpuId> for CpuMask {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut mask = Self::default();
        for cpu in cpus {
            mask.insert(cpu);
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_in() {
        let mut mask: CpuMask = [0, 63, 64, 1023].into_iter().map(CpuId).collect();
        mask.remove(CpuId(64));
        mask.remove(CpuId(4096));
        assert_eq!(mask.iter().collect::<Vec<_>>(), [CpuId(0), CpuId(63), CpuId(1023)]);
        assert_eq!((mask.len(), mask.contains(CpuId(63)), mask.contains(CpuId(64))), (3, true, false));
    }

    #[test]
    fn sets_with_the_same_cpus_are_equal() {
        let mut mask = CpuMask::default();
        mask.insert(CpuId(200));
        mask.remove(CpuId(200));
        assert_eq!((&mask, mask.is_empty()), (&CpuMask::default(), true));
    }
}
