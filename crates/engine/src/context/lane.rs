//! A lane: groups in the order in which they are tried.
//!
//! What it is: a list whose links are in the groups themselves, so that a group is taken out in O(1) and a walk needs no
//! list of its own.
//!
//! **Invariant:** a group is in one lane from attach to detach.

use super::{GroupKey, GroupState};
use crate::arena::Arena;

/// The neighbours of a group in its lane.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    before: Option<GroupKey>,
    pub(super) after: Option<GroupKey>,
}

/// The ends of a lane.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    pub(super) first: Option<GroupKey>,
    last: Option<GroupKey>,
}

type Groups = Arena<GroupState, GroupState>;

impl Lane {
    pub(super) fn push(&mut self, groups: &mut Groups, key: GroupKey) {
        let before = self.last.replace(key);
        match before.and_then(|key| groups.get_mut(key)) {
            Some(last) => last.links.after = Some(key),
            None => self.first = Some(key),
        }
        if let Some(group) = groups.get_mut(key) {
            group.links = Links { before, after: None };
        }
    }

    /// Closes the gap that a group with these links has left.
    pub(super) fn unlink(&mut self, groups: &mut Groups, links: Links) {
        match links.before.and_then(|key| groups.get_mut(key)) {
            Some(before) => before.links.after = links.after,
            None => self.first = links.after,
        }
        match links.after.and_then(|key| groups.get_mut(key)) {
            Some(after) => after.links.before = links.before,
            None => self.last = links.before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Filter;
    use crate::group::Demand;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keeps_the_order_of_a_list(ops in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..60)) {
            let (mut groups, mut lane, mut model) = (Groups::default(), Lane::default(), Vec::new());
            for (push, index) in ops {
                if push || model.is_empty() {
                    let demand = Demand { pinned: false, exclusive: false };
                    let key = groups.insert(GroupState::new(demand, Filter::Everything));
                    lane.push(&mut groups, key);
                    model.push(key);
                } else {
                    let key = model.remove(index.index(model.len()));
                    let gone = groups.remove(key).map(|group| group.links);
                    lane.unlink(&mut groups, gone.unwrap_or_default());
                }
                let walk = core::iter::successors(lane.first, |&key| groups.get(key)?.links.after);
                prop_assert_eq!(walk.collect::<Vec<_>>(), model.clone());
                let back = core::iter::successors(lane.last, |&key| groups.get(key)?.links.before);
                prop_assert_eq!(back.collect::<Vec<_>>(), model.iter().rev().copied().collect::<Vec<_>>());
            }
        }
    }
}
