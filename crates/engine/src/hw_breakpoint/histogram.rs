//! How many need so much.
//!
//! **Invariant:** the greatest need is known at any time without looking at who needs it.

use alloc::vec::Vec;

/// Needs up to this are counted in place: then all that a book changes with every claim is in one line of the cache.
pub(super) const FEW: usize = 4;

/// For each need, from 1 on, how many have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Histogram {
    few: Few,
    /// Above [`FEW`].
    many: Vec<u32>,
}

/// The needs up to [`FEW`], for code that keeps those above somewhere else.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Few([u32; FEW]);

/// Room for the needs above [`FEW`], of at most `most`.
pub(super) fn many(most: u8) -> Vec<u32> {
    alloc::vec![0; usize::from(most).saturating_sub(FEW)]
}

impl Histogram {
    /// Of needs of at most `most`.
    pub(super) fn new(most: u8) -> Self {
        Self { few: Few::default(), many: many(most) }
    }

    /// The greatest need; 0 where there is none. O(needs).
    pub(super) fn top(&self) -> u8 {
        self.few.top(&self.many)
    }

    /// One that had the need `before` has `after`. O(1).
    pub(super) fn change(&mut self, before: u8, after: u8) {
        self.few.change(&mut self.many, before, after);
    }
}

impl Few {
    pub(super) fn top(&self, many: &[u32]) -> u8 {
        let highest = |having: &[u32]| having.iter().rposition(|&having| having > 0).map(|at| at + 1);
        let top = highest(many).map(|above| FEW + above).or_else(|| highest(&self.0));
        top.map_or(0, |top| u8::try_from(top).unwrap_or(u8::MAX))
    }

    pub(super) fn change(&mut self, many: &mut [u32], before: u8, after: u8) {
        if let Some(having) = self.having(many, after) {
            *having += 1;
        }
        if let Some(having) = self.having(many, before) {
            *having = having.saturating_sub(1);
        }
    }

    fn having<'a>(&'a mut self, many: &'a mut [u32], need: u8) -> Option<&'a mut u32> {
        let at = usize::from(need).checked_sub(1)?;
        match at.checked_sub(FEW) {
            None => self.0.get_mut(at),
            Some(above) => many.get_mut(above),
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
