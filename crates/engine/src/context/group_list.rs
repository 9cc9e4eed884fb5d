//! A list of groups, in the order in which they are tried.
//!
//! What it is: a list whose links are in the groups themselves, so that a group is taken out in O(1) and a walk needs no
//! list of its own.
//!
//! **Invariant:** a group is in one list from attach to detach.
//!
//! Linux: `struct perf_event_groups`: `pinned_groups`, `flexible_groups` (include/linux/perf_event.h).

use super::{GroupKey, GroupState};
use crate::arena::Arena;
use crate::target::GroupKeyTag;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupLinks {
    before: Option<GroupKey>,
    pub(super) after: Option<GroupKey>,
}

/// The ends of a list, and whose turn it is to be tried first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupList {
    pub(super) first: Option<GroupKey>,
    last: Option<GroupKey>,
    /// `None`: the first one's.
    cursor: Option<GroupKey>,
    len: usize,
}

type Groups = Arena<GroupState, GroupKeyTag>;

impl GroupList {
    pub(super) fn push(&mut self, groups: &mut Groups, key: GroupKey) {
        self.len += 1;
        let before = self.last.replace(key);
        match before.and_then(|key| groups.get_mut(key)) {
            Some(last) => last.links.after = Some(key),
            None => self.first = Some(key),
        }
        if let Some(group) = groups.get_mut(key) {
            group.links = GroupLinks { before, after: None };
        }
    }

    /// Closes the gap that the group `key` with these links has left.
    pub(super) fn unlink(&mut self, groups: &mut Groups, key: GroupKey, links: GroupLinks) {
        self.len -= 1;
        if self.cursor == Some(key) {
            self.cursor = links.after;
        }
        match links.before.and_then(|key| groups.get_mut(key)) {
            Some(before) => before.links.after = links.after,
            None => self.first = links.after,
        }
        match links.after.and_then(|key| groups.get_mut(key)) {
            Some(after) => after.links.before = links.before,
            None => self.last = links.before,
        }
    }

    /// Whose turn it is.
    pub(super) fn head(&self) -> Option<GroupKey> {
        self.cursor.or(self.first)
    }

    /// The one that is tried after `key`, from the head once round.
    pub(super) fn next_in_turn(&self, groups: &Groups, key: GroupKey) -> Option<GroupKey> {
        let after = groups.get(key)?.links.after.or(self.first);
        after.filter(|&after| Some(after) != self.head())
    }

    /// It is the turn of the next one that `takes_part`.
    pub(super) fn advance(&mut self, groups: &Groups, takes_part: impl Fn(GroupKey) -> bool) {
        for _ in 0..self.len {
            self.cursor = self.head().and_then(|head| groups.get(head)?.links.after);
            if self.head().is_none_or(&takes_part) {
                return;
            }
        }
    }

    /// The turn of that number: the same in every list with the same groups, whenever it began.
    pub(super) fn turn(&mut self, groups: &Groups, number: u64, takes_part: impl Fn(GroupKey) -> bool) {
        let all = core::iter::successors(self.first, |&key| groups.get(key)?.links.after);
        let count = all.filter(|&key| takes_part(key)).count() as u64;
        let all = core::iter::successors(self.first, |&key| groups.get(key)?.links.after);
        let index = number.checked_rem(count).unwrap_or(0);
        self.cursor = all.filter(|&key| takes_part(key)).nth(index as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Demand;
    use crate::target::Filter;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keeps_the_order_of_a_list(ops in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..60)) {
            let (mut groups, mut list, mut model) = (Groups::default(), GroupList::default(), Vec::new());
            for (push, index) in ops {
                if push || model.is_empty() {
                    let demand = Demand { pinned: false, exclusive: false };
                    let key = groups.insert(GroupState::new(demand, Filter::Everything, None));
                    list.push(&mut groups, key);
                    model.push(key);
                } else {
                    let key = model.remove(index.index(model.len()));
                    let gone = groups.remove(key).map(|group| group.links);
                    list.unlink(&mut groups, key, gone.unwrap_or_default());
                }
                let walk = core::iter::successors(list.first, |&key| groups.get(key)?.links.after);
                prop_assert_eq!(walk.collect::<Vec<_>>(), model.clone());
                let back = core::iter::successors(list.last, |&key| groups.get(key)?.links.before);
                prop_assert_eq!(back.collect::<Vec<_>>(), model.iter().rev().copied().collect::<Vec<_>>());
            }
        }

        #[test]
        fn every_group_has_its_turn(groups in 1_usize..6, leaves: prop::sample::Index, number: u64) {
            let (mut arena, mut list) = (Groups::default(), GroupList::default());
            let demand = Demand { pinned: false, exclusive: false };
            let mut keys: Vec<_> = (0..groups).map(|_| {
                let key = arena.insert(GroupState::new(demand, Filter::Everything, None));
                list.push(&mut arena, key);
                key
            }).collect();
            let walk = |list: &GroupList, arena: &Groups| {
                core::iter::successors(list.head(), |&key| list.next_in_turn(arena, key)).collect::<Vec<_>>()
            };
            for turn in 0..2 * groups {
                prop_assert_eq!(walk(&list, &arena)[0], keys[turn % groups]);
                prop_assert_eq!(walk(&list, &arena).len(), groups);
                list.advance(&arena, |_| true);
            }
            list.turn(&arena, number, |_| true);
            prop_assert_eq!(list.head(), Some(keys[(number % groups as u64) as usize]));
            // Those who take no part have no turn.
            let idle = keys[leaves.index(groups)];
            list.turn(&arena, number, |key| key != idle);
            prop_assert!(groups == 1 || list.head() != Some(idle));
            list.advance(&arena, |key| key != idle);
            prop_assert!(groups == 1 || list.head() != Some(idle));
            // A group that leaves passes the turn on.
            let gone = keys.remove(leaves.index(groups));
            let links = arena.remove(gone).map(|group| group.links).unwrap_or_default();
            list.unlink(&mut arena, gone, links);
            prop_assert_eq!(walk(&list, &arena).len(), groups - 1);
        }
    }
}
