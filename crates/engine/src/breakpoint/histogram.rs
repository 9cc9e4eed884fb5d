//! How many need so much.
//!
//! **Invariant:** the greatest need is known at any time without looking at who needs it.

use alloc::vec::Vec;

/// Needs up to this are counted in place: then all that a book changes with every claim is in one line of the cache.
const FEW: usize = 4;

/// For each need, from 1 on, how many have it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct Histogram {
    few: [u32; FEW],
    /// Above [`FEW`].
    many: Vec<u32>,
}

impl Histogram {
    /// Of needs of at most `most`.
    pub(super) fn new(most: u8) -> Self {
        Self { few: [0; FEW], many: alloc::vec![0; usize::from(most).saturating_sub(FEW)] }
    }

    /// The greatest need; 0 where nobody has any. O(needs).
    pub(super) fn top(&self) -> u8 {
        let highest = |having: &[u32]| having.iter().rposition(|&having| having > 0).map(|at| at + 1);
        let top = highest(&self.many).map(|above| FEW + above).or_else(|| highest(&self.few));
        top.map_or(0, |top| u8::try_from(top).unwrap_or(u8::MAX))
    }

    fn having(&mut self, need: u8) -> Option<&mut u32> {
        let at = usize::from(need).checked_sub(1)?;
        match at.checked_sub(FEW) {
            None => self.few.get_mut(at),
            Some(above) => self.many.get_mut(above),
        }
    }

    /// One that had the need `before` has `after`. O(1).
    pub(super) fn change(&mut self, before: u8, after: u8) {
        if let Some(having) = self.having(after) {
            *having += 1;
        }
        if let Some(having) = self.having(before) {
            *having = having.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_top_is_the_greatest_need(changes in proptest::collection::vec((0_usize..6, 0_u8..=11), 1..60)) {
            let mut needs = [0_u8; 6];
            let mut histogram = Histogram::new(11);
            for (who, after) in changes {
                histogram.change(needs[who], after);
                needs[who] = after;
                prop_assert_eq!(Some(histogram.top()), needs.iter().copied().max());
            }
        }
    }
}
