//! Turns of groups that are not all worth the same, or do not all want the same slots.
//!
//! What it is: the order in which groups are tried in a turn of a given number. Groups of equal weight come one after the
//! other, round and round; among those that compete for the same few slots, who is first in the turns of the others goes
//! round as well: else one that stands behind many others in the lane would have their turns, too. Of unequal weight, each
//! stands in the round as often as it weighs, as evenly spread as can be, and the turn's number says where in the round to
//! begin; whoever comes again on the way has had its part. Groups that do not all compete stand on a `circle`.
//!
//! **Invariant:** the order is a pure function of the groups, their weights and the number: cores with the same groups have the
//! same groups on.

use super::{Context, GroupKey, GroupState, Weight, circle};
use crate::id::PmuId;
use crate::pmu::{SlotMask, Spot};
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
        let scarce = self.flexible[index].scarce;
        let standing = self.standing(lane.first, scarce);
        let first = standing.first().copied();
        let all =
            |is: fn(&Standing, &Standing) -> bool| first.is_none_or(|first| standing.iter().all(|it| is(it, &first)));
        let worth = if all(|it, first| it.weight == first.weight) { Worth::Equal } else { Worth::Different };
        let nest = scarce.and_then(|pmu| self.desk.slots.lines(pmu)).map(|lines| &lines.nest);
        match nest.filter(|_| !all(|it, first| it.spot == first.spot)) {
            Some(nest) => order.extend(circle::order(&standing, worth, nest, number)),
            None if worth == Worth::Different || !all(|it, first| it.slots == first.slots) => {
                order.extend(round_of(&standing, worth, number).into_iter().map(|group| standing[group].key));
            }
            // As they stand.
            None => {}
        }
        // Whoever comes again on the way has had its part.
        let comes_first = |group: &mut GroupState| !core::mem::replace(&mut group.ordered, true);
        order.retain(|&key| self.groups.get_mut(key).is_some_and(comes_first));
        self.flexible[index].order = order;
    }

    /// The groups of a lane that take part, from its first one on.
    fn standing(&self, first: Option<GroupKey>, scarce: Option<PmuId>) -> Vec<Standing> {
        let lane = core::iter::successors(first, |&key| self.groups.get(key)?.links.after);
        let eligible = lane.filter(|&key| self.is_eligible(key));
        let stands = |key| {
            let &GroupState { weight, spot, .. } = self.groups.get(key)?;
            Some(Standing { key, weight, spot, slots: self.wants(key, scarce) })
        };
        eligible.filter_map(stands).collect()
    }

    /// The slots of a PMU that a group wants: those of the event with the fewest.
    fn wants(&self, key: GroupKey, scarce: Option<PmuId>) -> SlotMask {
        let members = self.members_of(key).filter_map(|member| self.members.get(member));
        let masks = members.filter(|member| Some(member.spec.pmu) == scarce).map(|member| member.spec.allowed);
        masks.min_by_key(|mask| (mask.len(), mask.0)).unwrap_or(SlotMask::ALL)
    }
}

/// A group that takes part in a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) key: GroupKey,
    pub(super) weight: Weight,
    /// Where it stands among the cgroups.
    pub(super) spot: Spot,
    /// The slots that it wants.
    pub(super) slots: SlotMask,
}

/// Whether all groups of a turn weigh the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Worth {
    Equal,
    Different,
}

impl Worth {
    /// How often a group stands in the round.
    pub(super) fn of(self, standing: &Standing) -> u64 {
        match self {
            Self::Equal => 1,
            Self::Different => u64::from(standing.weight.get()),
        }
    }
}

/// Who of those that all compete is tried when in the turn of that number, each as often as it weighs.
pub(super) fn round_of(groups: &[Standing], worth: Worth, number: u64) -> Vec<usize> {
    match worth {
        Worth::Equal => order_of_equals(groups, number),
        Worth::Different => {
            let mut round = round(groups);
            let begin = number.checked_rem(round.len() as u64).unwrap_or(0);
            round.rotate_left(begin as usize);
            round
        }
    }
}

/// Who is tried when in the turn of that number, where all weigh the same: as they stand, from the one whose turn it is. In a turn
/// that belongs to none of those who compete for the same few slots, the one of them that is first is another one each time.
fn order_of_equals(groups: &[Standing], number: u64) -> Vec<usize> {
    let count = groups.len();
    let (lap, head) = (number / count.max(1) as u64, (number % count.max(1) as u64) as usize);
    let most = groups.iter().map(|group| group.slots.len()).max().unwrap_or(0);
    let mut tried: Vec<usize> = (head..count).chain(0..head).collect();
    let mut done = Vec::new();
    for &Standing { slots, .. } in groups {
        if done.contains(&slots) {
            continue;
        }
        done.push(slots);
        let alike: Vec<usize> = (0..count).filter(|&group| groups[group].slots == slots).collect();
        let few = slots.len() < most && alike.len() > slots.len() as usize;
        if !few || groups[head].slots == slots {
            continue;
        }
        let others = (count - alike.len()) as u64;
        let before = groups[..head].iter().filter(|other| other.slots != slots).count() as u64;
        let first = ((lap * others + before) % alike.len() as u64) as usize;
        let mut next = alike.iter().cycle().skip(first);
        for group in tried.iter_mut().filter(|group| groups[**group].slots == slots) {
            *group = next.next().copied().unwrap_or(*group);
        }
    }
    tried
}

/// A round: each by number, as often as it weighs. Of n, the k-th time that number g stands there is at (k + (2g + 1) / 2n) / w
/// of the round, if it weighs w: those that weigh the same don't come all at once.
fn round(standing: &[Standing]) -> Vec<usize> {
    let groups = 2 * standing.len() as u64;
    let places = standing.iter().enumerate().flat_map(|(group, standing)| {
        let weight = Worth::Different.of(standing);
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

    /// Groups that all compete.
    fn stand(groups: impl Iterator<Item = (Weight, SlotMask)>) -> Vec<Standing> {
        let mut keys = crate::arena::Arena::<(), GroupState>::default();
        groups.map(|(weight, slots)| Standing { key: keys.insert(()), weight, spot: Spot::TRUNK, slots }).collect()
    }

    proptest! {
        #[test]
        fn each_stands_as_often_as_it_weighs_and_evenly(weights in prop::collection::vec(1_u16..9, 1..8)) {
            let round = round(&stand(weights.iter().map(|&weight| (Weight::new(weight), SlotMask::ALL))));
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
            let groups = stand(wants.iter().map(|&slots| (Weight::ONE, SLOTS[slots as usize])));
            for slots in &SLOTS[..2] {
                let alike: Vec<_> = (0..groups.len()).filter(|&group| groups[group].slots == *slots).collect();
                if !groups.iter().any(|group| group.slots == SLOTS[2]) {
                    continue;
                }
                let mut first = alloc::vec![0; alike.len()];
                for number in 0..(groups.len() * alike.len()) as u64 {
                    let order = order_of_equals(&groups, number);
                    prop_assert_eq!(order.len(), groups.len());
                    prop_assert!((0..groups.len()).all(|group| order.contains(&group)), "each is tried once");
                    prop_assert_eq!(order[0], number as usize % groups.len(), "whose turn it is");
                    let winner = order.iter().find_map(|group| alike.iter().position(|other| other == group));
                    winner.into_iter().for_each(|winner| first[winner] += 1);
                }
                prop_assert!(first.iter().all(|&times| times == groups.len()), "{:?}: {first:?}", wants);
            }
        }
    }

    #[test]
    fn nothing_weighs_nothing() {
        assert_eq!((Weight::new(0), Weight::default()), (Weight::ONE, Weight::ONE));
        assert!(round(&[]).is_empty() && round_of(&[], Worth::Different, 7).is_empty());
    }
}
