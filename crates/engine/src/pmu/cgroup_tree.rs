//! Cgroups inside one another: which events can ever be on at one moment.
//!
//! What it is: a tree of what is kept for each cgroup. A CPU runs one task, which is in one cgroup and in all that hold it: a
//! *path*. Two cgroups of which neither holds the other are apart: they are on no common path.
//! Read first: [`CgroupPath`], then [`CgroupTree::on_all_paths`].
//!
//! **Invariant:** the root is on every path; whatever cannot be placed is kept there, so it competes with everything.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Where a cgroup is: the host's numbers of all that hold it, from the outermost, and its own at the end. It stays true for as long
/// as the cgroup is known.
///
/// Where two begin with different numbers, it is unknown which of them holds which (they were found through two mounts, for
/// instance): then they are not taken for apart.
pub type CgroupPath = Arc<[u64]>;

/// A place in a [`CgroupTree`]: that of a cgroup, or the root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CgroupNode(u32);

impl CgroupNode {
    /// What is there whatever cgroup the task is in.
    pub const ROOT: Self = Self(0);

    /// As an index below [`CgroupTree::size`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
struct NodeData<T> {
    kept: T,
    number: u64,
    above: Option<CgroupNode>,
    below: Vec<CgroupNode>,
    /// How many have entered here, and how many branches are right below.
    users: usize,
}

impl<T: Default> NodeData<T> {
    fn new(number: u64, above: Option<CgroupNode>) -> Self {
        Self { kept: T::default(), number, above, below: Vec::new(), users: 0 }
    }
}

/// What is kept for each cgroup, along the paths.
#[derive(Debug)]
pub struct CgroupTree<T> {
    nodes: Vec<NodeData<T>>,
    free: Vec<CgroupNode>,
    ids: BTreeMap<(CgroupNode, u64), CgroupNode>,
    /// Kept, so that a walk seldom allocates.
    walk: Vec<CgroupNode>,
}

impl<T: Default> Default for CgroupTree<T> {
    fn default() -> Self {
        let root = NodeData { users: 1, ..NodeData::new(0, None) };
        Self { nodes: alloc::vec![root], free: Vec::new(), ids: BTreeMap::new(), walk: Vec::new() }
    }
}

impl<T: Default> CgroupTree<T> {
    /// The node of a cgroup, until [`CgroupTree::leave`] has been called as often; the root's where the path is not known, or does not
    /// begin like those that are here. O(its depth).
    pub fn enter(&mut self, path: Option<&[u64]>) -> CgroupNode {
        let is_strange = |path: &&[u64]| {
            let outermost = self.nodes[0].below.first().map(|&node| self.nodes[node.index()].number);
            outermost.is_some_and(|outermost| path.first() != Some(&outermost))
        };
        let path = path.filter(|path| !is_strange(path)).unwrap_or_default();
        let node = path.iter().fold(CgroupNode::ROOT, |above, &number| match self.ids.get(&(above, number)) {
            Some(&known) => known,
            None => self.grow(above, number),
        });
        self.node_data(node).users += 1;
        node
    }

    fn grow(&mut self, above: CgroupNode, number: u64) -> CgroupNode {
        let node_data = NodeData::new(number, Some(above));
        let node = match self.free.pop() {
            Some(node) => {
                *self.node_data(node) = node_data;
                node
            }
            None => {
                self.nodes.push(node_data);
                // Letting go must never allocate: it happens when CPUs go.
                self.free.reserve(self.nodes.len());
                CgroupNode(self.nodes.len() as u32 - 1)
            }
        };
        self.ids.insert((above, number), node);
        let above = self.node_data(above);
        above.below.push(node);
        above.users += 1;
        node
    }

    /// Lets go of a node; what has no users any more is forgotten.
    pub fn leave(&mut self, node: CgroupNode) {
        let mut next = Some(node);
        while let Some(node) = next.take() {
            let node_data = self.node_data(node);
            node_data.users = node_data.users.saturating_sub(1);
            if let (0, Some(above)) = (node_data.users, node_data.above) {
                let number = node_data.number;
                self.ids.remove(&(above, number));
                self.node_data(above).below.retain(|&other| other != node);
                self.free.push(node);
                next = Some(above);
            }
        }
    }

    fn node_data(&mut self, node: CgroupNode) -> &mut NodeData<T> {
        &mut self.nodes[node.index()]
    }

    /// What is kept at a node.
    pub fn at(&mut self, node: CgroupNode) -> &mut T {
        &mut self.node_data(node).kept
    }

    /// How many nodes there may be; one that was left may be among them.
    #[must_use]
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// What is kept at all nodes, those that were left among them.
    pub fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.nodes.iter_mut().map(|node_data| &mut node_data.kept)
    }

    /// What is kept on the path that ends at a node, from there to the root.
    pub fn up(&self, node: CgroupNode) -> impl Iterator<Item = &T> {
        core::iter::successors(Some(node), |&node| self.above(node)).map(|node| &self.nodes[node.index()].kept)
    }

    /// The node right above.
    #[must_use]
    pub fn above(&self, node: CgroupNode) -> Option<CgroupNode> {
        self.nodes[node.index()].above
    }

    /// The nodes right below, in no particular order.
    #[must_use]
    pub fn below(&self, node: CgroupNode) -> &[CgroupNode] {
        &self.nodes[node.index()].below
    }

    /// The number of its cgroup; 0 of the root.
    #[must_use]
    pub fn number(&self, node: CgroupNode) -> u64 {
        self.nodes[node.index()].number
    }

    /// A node and all below it, each behind the one right above it.
    pub fn downward(&self, node: CgroupNode) -> Vec<CgroupNode> {
        let mut found = alloc::vec![node];
        let mut next = 0;
        while let Some(&node) = found.get(next) {
            found.extend_from_slice(&self.nodes[node.index()].below);
            next += 1;
        }
        found
    }

    /// Whether `holds` is true of every path through a node, each as long as can be, by the node where it ends. O(paths); the first of
    /// which it is not true is the last that is asked, and the first the next time.
    pub fn on_all_paths(&mut self, node: CgroupNode, mut holds: impl FnMut(&Self, CgroupNode) -> bool) -> bool {
        let mut walk = core::mem::take(&mut self.walk);
        walk.clear();
        walk.push(node);
        let mut fails = None;
        while let Some(node) = walk.pop() {
            let below = &self.nodes[node.index()].below;
            walk.extend(below.iter().rev());
            if below.is_empty() && !holds(self, node) {
                fails = Some(node);
                break;
            }
        }
        self.walk = walk;
        fails.inspect(|&end| self.ask_first(end, node)).is_none()
    }

    fn ask_first(&mut self, end: CgroupNode, top: CgroupNode) {
        let mut next = end;
        while let Some(above) = self.above(next).filter(|_| next != top) {
            let below = &mut self.node_data(above).below;
            let place = below.iter().position(|&node| node == next).unwrap_or(0);
            below.swap(0, place);
            next = above;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap as Model;

    fn ends(tree: &mut CgroupTree<usize>, node: CgroupNode) -> Vec<Vec<usize>> {
        let mut ends = Vec::new();
        tree.on_all_paths(node, |tree, end| {
            ends.push(tree.up(end).copied().collect());
            true
        });
        ends.sort_unstable();
        ends
    }

    /// Cgroup `n` is in cgroup `n / 2`, up to number 1: each path ends where no cgroup in use is further down.
    fn path(number: usize) -> Vec<u64> {
        let up = core::iter::successors(Some(number), |number| Some(number / 2).filter(|&above| above > 0));
        let mut path: Vec<u64> = up.map(|number| number as u64).collect();
        path.reverse();
        path
    }

    proptest! {
        #[test]
        fn every_path_is_found_while_cgroups_come_and_go(steps in prop::collection::vec((any::<bool>(), 1_usize..40), 0..60)) {
            let (mut tree, mut users) = (CgroupTree::<usize>::default(), Model::<usize, Vec<CgroupNode>>::new());
            for (enters, number) in steps {
                match users.get_mut(&number).filter(|_| !enters).and_then(Vec::pop) {
                    Some(node) => {
                        *tree.at(node) -= 1;
                        tree.leave(node);
                    }
                    None => {
                        let node = tree.enter(Some(&path(number)));
                        *tree.at(node) += 1;
                        users.entry(number).or_default().push(node);
                    }
                }
                users.retain(|_, ids| !ids.is_empty());
                let held = |number: usize| users.get(&number).map_or(0, Vec::len);
                let is_above = |above: usize, number: usize| path(number).contains(&(above as u64));
                let mut model: Vec<Vec<usize>> = users
                    .keys()
                    .filter(|&&end| users.keys().all(|&other| other == end || !is_above(end, other)))
                    .map(|&end| path(end).iter().rev().map(|&number| held(number as usize)).chain([0]).collect())
                    .collect();
                model.sort_unstable();
                if model.is_empty() {
                    model.push(vec![0]);
                }
                prop_assert_eq!(ends(&mut tree, CgroupNode::ROOT), model);
                // Of one cgroup, the paths through it.
                for (&number, ids) in &users {
                    let below = users.keys().filter(|&&other| is_above(number, other));
                    let last = below.filter(|&&end| users.keys().all(|&other| other == end || !is_above(end, other)));
                    prop_assert_eq!(ends(&mut tree, ids[0]).len(), last.count());
                    prop_assert!(ids.iter().all(|node| *node == ids[0]));
                }
            }
            for node in users.into_values().flatten() {
                tree.leave(node);
            }
            prop_assert_eq!((tree.downward(CgroupNode::ROOT).len(), tree.ids.len()), (1, 0), "nothing is kept without a user");
        }
    }

    #[test]
    fn what_is_strange_or_unknown_is_on_every_path() {
        let mut tree = CgroupTree::<usize>::default();
        let known = tree.enter(Some(&[1, 2]));
        assert_eq!([tree.enter(Some(&[7, 2])), tree.enter(None), tree.enter(Some(&[]))], [CgroupNode::ROOT; 3]);
        assert_eq!(tree.above(known), tree.ids.get(&(CgroupNode::ROOT, 1)).copied());
        tree.leave(known);
        assert_ne!(tree.enter(Some(&[7, 2])), CgroupNode::ROOT, "the others are gone");
    }

    #[test]
    fn a_path_that_failed_is_asked_first() {
        let mut tree = CgroupTree::<usize>::default();
        let ids: Vec<_> = (2..50).map(|number| tree.enter(Some(&[1, number, number]))).collect();
        let mut asked = |full: CgroupNode| {
            let mut asked = 0;
            tree.on_all_paths(CgroupNode::ROOT, |_, end| {
                asked += 1;
                end != full
            });
            asked
        };
        assert!(asked(ids[40]) > 1);
        assert_eq!(asked(ids[40]), 1);
    }
}
