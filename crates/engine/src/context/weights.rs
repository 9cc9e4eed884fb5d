//! Turns of groups that are not all worth the same.
//!
//! What it is: the order in which groups are tried in a turn of a given number. Groups of equal weight come one after the
//! other, round and round. Otherwise each stands in the round as often as it weighs, as evenly spread as can be, and the
//! turn's number says where in the round to begin; whoever comes again on the way has had its part.
//!
//! **Invariant:** the order is a pure function of the groups, their weights and the number: cores with the same groups have the
//! same groups on.

use super::{Context, GroupKey, Weight};
use alloc::vec::Vec;

impl Context {
    /// It is the turn of that number in a queue.
    pub(super) fn take_turn(&mut self, index: usize, number: u64) {
        let mut lane = self.flexible[index].lane;
        lane.turn(&self.groups, number, |key| self.is_eligible(key));
        self.flexible[index].lane = lane;
        let mut order = core::mem::take(&mut self.flexible[index].order);
        for &key in &order {
            self.groups.get_mut(key).into_iter().for_each(|group| group.ordered = false);
        }
        order.clear();
        let mut next = lane.first;
        let mut weighs = Vec::new();
        while let Some(key) = next {
            let Some(group) = self.groups.get(key) else { break };
            next = group.links.after;
            if self.is_eligible(key) {
                weighs.push((key, group.weight));
            }
        }
        if weighs.iter().any(|(_, weight)| *weight != weighs[0].1) {
            order_of_turn(&weighs, number, &mut order);
            for &key in &order {
                self.groups.get_mut(key).into_iter().for_each(|group| group.ordered = true);
            }
        }
        self.flexible[index].order = order;
    }
}

/// Who is tried when in the turn of that number, each once.
fn order_of_turn(weighs: &[(GroupKey, Weight)], number: u64, order: &mut Vec<GroupKey>) {
    let weights: Vec<_> = weighs.iter().map(|(_, weight)| *weight).collect();
    let round = round(&weights);
    let begin = (number % round.len().max(1) as u64) as usize;
    let mut seen = alloc::vec![false; weighs.len()];
    for &group in round.iter().cycle().skip(begin).take(round.len()) {
        if !core::mem::replace(&mut seen[group], true) {
            order.push(weighs[group].0);
        }
    }
}

/// A round: each by number, as often as it weighs. Of n, the k-th time that number g stands there is at (k + (2g + 1) / 2n) / w
/// of the round, if it weighs w: those that weigh the same don't come all at once.
fn round(weights: &[Weight]) -> Vec<usize> {
    let groups = 2 * weights.len() as u64;
    let places = weights.iter().enumerate().flat_map(|(group, weight)| {
        let weight = u64::from(weight.get());
        (0..weight).map(move |k| (((k * groups + 2 * group as u64 + 1) << 20) / (weight * groups), group))
    });
    let mut places: Vec<_> = places.collect();
    places.sort_unstable();
    places.into_iter().map(|(_, group)| group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_stands_as_often_as_it_weighs_and_evenly(weights in prop::collection::vec(1_u16..9, 1..8)) {
            let round = round(&weights.iter().map(|&weight| Weight::new(weight)).collect::<Vec<_>>());
            for (group, &weight) in weights.iter().enumerate() {
                let places: Vec<_> = round.iter().enumerate().filter(|(_, who)| **who == group).map(|(at, _)| at).collect();
                prop_assert_eq!(places.len(), usize::from(weight));
                // Between two of its own, of every other one come as many as that one is heavier, give or take one.
                for pair in places.windows(2) {
                    for (other, &heavy) in weights.iter().enumerate().filter(|(other, _)| *other != group) {
                        let between = round[pair[0]..pair[1]].iter().filter(|who| **who == other).count();
                        prop_assert!(between <= usize::from(heavy.div_ceil(weight)) + 1, "{round:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_weighs_nothing() {
        assert_eq!((Weight::new(0), Weight::default()), (Weight::ONE, Weight::ONE));
        assert!(round(&[]).is_empty());
    }
}
