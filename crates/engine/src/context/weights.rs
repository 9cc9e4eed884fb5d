//! Turns of groups that are not all worth the same, or do not all want the same slots.
//!
//! What it is: the order in which groups are tried in a turn of a given number. Groups of equal weight come one after the
//! other, round and round; among those that compete for the same few slots, who is first in the turns of the others goes
//! round as well: else one that stands behind many others in the lane would have their turns, too. Of unequal weight, each
//! stands in the round as often as it weighs, as evenly spread as can be, and the turn's number says where in the round to
//! begin; whoever comes again on the way has had its part.
//!
//! **Invariant:** the order is a pure function of the groups, their weights and the number: cores with the same groups have the
//! same groups on.

use super::{Context, GroupKey, Weight};
use crate::id::PmuId;
use crate::pmu::SlotMask;
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
        let scarce = self.flexible[index].scarce;
        let wants: Vec<_> = weighs.iter().map(|&(key, _)| (key, self.wants(key, scarce))).collect();
        if weighs.iter().any(|(_, weight)| *weight != weighs[0].1) {
            order_of_turn(&weighs, number, &mut order);
        } else if wants.iter().any(|(_, slots)| *slots != wants[0].1) {
            order_of_equals(&wants, number, &mut order);
        }
        for &key in &order {
            self.groups.get_mut(key).into_iter().for_each(|group| group.ordered = true);
        }
        self.flexible[index].order = order;
    }

    /// The slots of a PMU that a group wants: those of the event with the fewest.
    fn wants(&self, key: GroupKey, scarce: Option<PmuId>) -> SlotMask {
        let members = self.members_of(key).filter_map(|member| self.members.get(member));
        let masks = members.filter(|member| Some(member.spec.pmu) == scarce).map(|member| member.spec.allowed);
        masks.min_by_key(|mask| (mask.len(), mask.0)).unwrap_or(SlotMask::ALL)
    }
}

/// Who is tried when in the turn of that number, where all weigh the same: as they stand, from the one whose turn it is. In a turn
/// that belongs to none of those who compete for the same few slots, the one of them that is first is another one each time.
fn order_of_equals(groups: &[(GroupKey, SlotMask)], number: u64, order: &mut Vec<GroupKey>) {
    let count = groups.len();
    let (lap, head) = (number / count.max(1) as u64, (number % count.max(1) as u64) as usize);
    let most = groups.iter().map(|(_, slots)| slots.len()).max().unwrap_or(0);
    let mut tried: Vec<usize> = (head..count).chain(0..head).collect();
    let mut done = Vec::new();
    for &(_, slots) in groups {
        if done.contains(&slots) {
            continue;
        }
        done.push(slots);
        let alike: Vec<usize> = (0..count).filter(|&group| groups[group].1 == slots).collect();
        let few = slots.len() < most && alike.len() > slots.len() as usize;
        if !few || groups[head].1 == slots {
            continue;
        }
        let others = (count - alike.len()) as u64;
        let before = groups[..head].iter().filter(|(_, other)| *other != slots).count() as u64;
        let first = ((lap * others + before) % alike.len() as u64) as usize;
        let mut next = alike.iter().cycle().skip(first);
        for group in tried.iter_mut().filter(|group| groups[**group].1 == slots) {
            *group = next.next().copied().unwrap_or(*group);
        }
    }
    order.extend(tried.into_iter().map(|group| groups[group].0));
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

    /// Two single slots, and any of four.
    const SLOTS: [SlotMask; 3] = [SlotMask(1), SlotMask(2), SlotMask(0b1111)];

    proptest! {
        #[test]
        fn of_those_that_want_the_same_each_is_first_as_often(wants in prop::collection::vec(0_u64..3, 1..8)) {
            let mut keys = crate::arena::Arena::<(), crate::context::GroupState>::default();
            let groups: Vec<(GroupKey, SlotMask)> =
                wants.iter().map(|&slots| (keys.insert(()), SLOTS[slots as usize])).collect();
            for slots in &SLOTS[..2] {
                let alike: Vec<_> = groups.iter().filter(|(_, mask)| mask == slots).map(|(key, _)| *key).collect();
                if !groups.iter().any(|(_, mask)| *mask == SLOTS[2]) {
                    continue;
                }
                let mut first = alloc::vec![0; alike.len()];
                for number in 0..(groups.len() * alike.len()) as u64 {
                    let mut order = Vec::new();
                    order_of_equals(&groups, number, &mut order);
                    prop_assert_eq!(order.len(), groups.len());
                    prop_assert!(groups.iter().all(|(key, _)| order.contains(key)), "each is tried once");
                    prop_assert_eq!(order[0], groups[number as usize % groups.len()].0, "whose turn it is");
                    let winner = order.iter().find_map(|key| alike.iter().position(|other| other == key));
                    winner.into_iter().for_each(|winner| first[winner] += 1);
                }
                prop_assert!(first.iter().all(|&times| times == groups.len()), "{:?}: {first:?}", wants);
            }
        }
    }

    #[test]
    fn nothing_weighs_nothing() {
        assert_eq!((Weight::new(0), Weight::default()), (Weight::ONE, Weight::ONE));
        assert!(round(&[]).is_empty());
    }
}
