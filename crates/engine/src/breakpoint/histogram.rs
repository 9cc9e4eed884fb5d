//! How many need so much.
//!
//! **Invariant:** the greatest need is known at any time without looking at who needs it.

use alloc::vec::Vec;

/// Needs below this are counted in place: then all that a book changes with every claim is in one line of the cache.
const FEW: usize = 8;

/// For each need, from 1 on, how many have it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct Histogram {
    /// By need; the first place stays 0.
    few: [u32; FEW],
    top: u8,
    /// From [`FEW`] on.
    many: Vec<u32>,
}

impl Histogram {
    /// Of needs of at most `most`.
    pub(super) fn new(most: u8) -> Self {
        Self { few: [0; FEW], top: 0, many: alloc::vec![0; (usize::from(most) + 1).saturating_sub(FEW)] }
    }

    /// The greatest need; 0 where nobody has any.
    pub(super) const fn top(&self) -> u8 {
        self.top
    }

    fn having(&mut self, need: u8) -> Option<&mut u32> {
        match usize::from(need).checked_sub(FEW) {
            None => self.few.get_mut(usize::from(need)),
            Some(above) => self.many.get_mut(above),
        }
    }

    /// One that had the need `before` has `after`. O(1), but for what the greatest need falls by.
    pub(super) fn change(&mut self, before: u8, after: u8) {
        if after > 0
            && let Some(having) = self.having(after)
        {
            *having += 1;
            self.top = self.top.max(after);
        }
        if before > 0
            && let Some(having) = self.having(before)
        {
            *having = having.saturating_sub(1);
        }
        while self.top > 0 && self.having(self.top).is_none_or(|having| *having == 0) {
            self.top -= 1;
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
