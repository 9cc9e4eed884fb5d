//! Turns of groups that do not all want the same slots.
//!
//! What it is: the order in which groups are tried in a turn of a given number. They come one after the other, round and round;
//! among those that compete for the same few slots, who is first in the turns of the others goes round as well: else one that stands
//! behind many others in the list would have their turns, too. Groups that do not all compete stand on a `round_robin`.
//!
//! **Invariant:** the order is a pure function of the groups and the number: cores with the same groups have the same groups on.
//!
//! Linux: `perf_rotate_context`, `rotate_ctx`, `ctx_event_to_rotate` (kernel/events/core.c).

use super::{Context, GroupKey, GroupState, round_robin};
use crate::id::PmuId;
use crate::pmu::{CgroupNode, SlotMask};
use alloc::vec::Vec;

impl Context {
    /// It is the turn of that number in a queue.
    pub(super) fn take_turn(&mut self, index: usize, number: u64) {
        let mut list = self.flexible[index].list;
        list.turn(&self.groups, number, |key| self.is_eligible(key));
        self.flexible[index].list = list;
        let mut order = core::mem::take(&mut self.flexible[index].order);
        for &key in &order {
            self.groups.get_mut(key).into_iter().for_each(|group| group.ordered = false);
        }
        order.clear();
        let scarce = self.flexible[index].scarce;
        let candidates = self.candidates(list.first, scarce);
        let first = candidates.first().copied();
        let all = |is: fn(&Candidate, &Candidate) -> bool| {
            first.is_none_or(|first| candidates.iter().all(|it| is(it, &first)))
        };
        let tree = scarce.and_then(|pmu| self.cpu_pmu.slots.lines(pmu)).map(|lines| &lines.tree);
        match tree.filter(|_| !all(|it, first| it.node == first.node)) {
            Some(tree) => order.extend(round_robin::order(&candidates, tree, number)),
            None if !all(|it, first| it.slots == first.slots) => {
                order.extend(order_of(&candidates, number).into_iter().map(|group| candidates[group].key));
            }
            // As they stand.
            None => {}
        }
        for &key in &order {
            self.groups.get_mut(key).into_iter().for_each(|group| group.ordered = true);
        }
        self.flexible[index].order = order;
    }

    /// The groups of a list that take part, from its first one on.
    fn candidates(&self, first: Option<GroupKey>, scarce: Option<PmuId>) -> Vec<Candidate> {
        let list = core::iter::successors(first, |&key| self.groups.get(key)?.links.after);
        let eligible = list.filter(|&key| self.is_eligible(key));
        let stands = |key| {
            let &GroupState { node, .. } = self.groups.get(key)?;
            Some(Candidate { key, node, slots: self.wants(key, scarce) })
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

#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) key: GroupKey,
    /// Where it stands among the cgroups.
    pub(super) node: CgroupNode,
    pub(super) slots: SlotMask,
}

/// Who of those that all compete is tried when in the turn of that number: as they stand, from the one whose turn it is. In a turn
/// that belongs to none of those who compete for the same few slots, the one of them that is first is another one each time.
pub(super) fn order_of(groups: &[Candidate], number: u64) -> Vec<usize> {
    let count = groups.len();
    let (lap, head) = (number / count.max(1) as u64, (number % count.max(1) as u64) as usize);
    let most = groups.iter().map(|group| group.slots.len()).max().unwrap_or(0);
    let mut tried: Vec<usize> = (head..count).chain(0..head).collect();
    let mut done = Vec::new();
    for &Candidate { slots, .. } in groups {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two single slots, and any of four.
    const SLOTS: [SlotMask; 3] = [SlotMask(1), SlotMask(2), SlotMask(0b1111)];

    proptest! {
        #[test]
        fn of_those_that_want_the_same_each_is_first_as_often(wants in prop::collection::vec(0_u64..3, 1..8)) {
            let mut keys = crate::arena::Arena::<(), crate::target::GroupKeyTag>::default();
            let stand = |&slots: &u64| Candidate { key: keys.insert(()), node: CgroupNode::ROOT, slots: SLOTS[slots as usize] };
            let groups: Vec<_> = wants.iter().map(stand).collect();
            for slots in &SLOTS[..2] {
                let alike: Vec<_> = (0..groups.len()).filter(|&group| groups[group].slots == *slots).collect();
                if !groups.iter().any(|group| group.slots == SLOTS[2]) {
                    continue;
                }
                let mut first = alloc::vec![0; alike.len()];
                for number in 0..(groups.len() * alike.len()) as u64 {
                    let order = order_of(&groups, number);
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
}
