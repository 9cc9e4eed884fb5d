//! Turns of groups that do not all compete with one another.
//!
//! What it is: a circle of places on which every group stands, so that no two of one path of cgroups share
//! a place; a turn begins one place later than the last. There are as many places as the path with the most groups needs, which takes all
//! of them. Then each *branch* that hangs from it, a path again, and the one with the most groups there, is spread evenly over the places
//! that those above it have left, and so on to the tips. Those of a branch change places from lap to lap, because one that
//! stands behind a gap is first for longer.
//! Read first: [`order`].
//!
//! So on the longest path each group is first as often, and on the others those that are on no longer path share evenly what is
//! left.
//!
//! **Invariant:** the order is a pure function of the groups, where they stand, and the number.

use super::GroupKey;
use super::turns::{Candidate, order_of};
use crate::pmu::{CgroupNode, CgroupTree};
use alloc::vec;
use alloc::vec::Vec;

/// Held by no group.
const FREE: usize = usize::MAX;

/// A path whose groups are still to be placed.
struct Branch {
    top: CgroupNode,
    /// Which list of places those above have left.
    left: usize,
    /// What is left of the number of the lap: those of two branches on a path change places independently.
    lap: u64,
}

struct RoundRobin<'n, T> {
    tree: &'n CgroupTree<T>,
    groups: ByNode,
    /// Of each node, the longest path from there on: how many groups it has, and where it goes next.
    longest: Vec<(u64, Option<CgroupNode>)>,
    begin: u64,
    /// How many nodes of the branch at hand are above the group that holds a place, by place.
    held: Vec<usize>,
    /// The lists of places that groups above have left, in their order.
    left: Vec<Vec<u64>>,
    places: Vec<(u64, Candidate)>,
}

/// Who is tried when in the turn of that number, each once.
pub(super) fn order<T: Default>(groups: &[Candidate], tree: &CgroupTree<T>, number: u64) -> Vec<GroupKey> {
    let groups = ByNode::new(groups, tree.size());
    let longest = longest(&groups, tree);
    let count = longest[CgroupNode::ROOT.index()].0.max(1);
    let (held, left) = (vec![FREE; count as usize], vec![(0..count).collect()]);
    let mut round_robin = RoundRobin { tree, groups, longest, begin: number % count, held, left, places: Vec::new() };
    let mut branches = vec![Branch { top: CgroupNode::ROOT, left: 0, lap: number / count }];
    while let Some(branch) = branches.pop() {
        round_robin.place(&branch, &mut branches);
    }
    let RoundRobin { mut places, begin, .. } = round_robin;
    places.sort_by_key(|&(place, _)| (place + count - begin) % count);
    places.into_iter().map(|(_, candidate)| candidate.key).collect()
}

impl<T: Default> RoundRobin<'_, T> {
    /// Places the groups of a branch, and finds the branchs that hang from it.
    fn place(&mut self, branch: &Branch, branches: &mut Vec<Branch>) {
        let path: Vec<CgroupNode> =
            core::iter::successors(Some(branch.top), |node| self.longest[node.index()].1).collect();
        let (members, depths) = self.groups.along(&path);
        let left = &self.left[branch.left];
        let count = members.len() as u64;
        let place = |number: u64| left[(number * left.len() as u64 / count) as usize];
        let is_full = count == left.len() as u64;
        let passed = (0..count).take_while(|&number| place(number) < self.begin).count() as u64;
        let round = order_of(&members, branch.lap * (count + u64::from(!is_full)) + passed);
        let first = self.places.len();
        for (number, &member) in (passed..).zip(&round) {
            let place = place(number % count);
            self.places.push((place, members[member]));
            self.held[place as usize] = depths[member];
        }
        let lap = if is_full { branch.lap } else { branch.lap / count.max(1) };
        for (depth, &node) in path.iter().enumerate() {
            let next = self.longest[node.index()].1;
            let mut others = self.tree.below(node).iter().filter(|&&below| Some(below) != next).peekable();
            if others.peek().is_some() {
                let is_left = |&&place: &&u64| self.held[place as usize] == FREE || self.held[place as usize] > depth;
                let behind = self.left[branch.left].iter().filter(is_left).copied().collect();
                self.left.push(behind);
                let left = self.left.len() - 1;
                branches.extend(others.map(|&top| Branch { top, left, lap }));
            }
        }
        for (place, _) in &self.places[first..] {
            self.held[*place as usize] = FREE;
        }
    }
}

/// Of each node, the longest path from there on: how many groups it has, and where it goes next.
fn longest<T: Default>(groups: &ByNode, tree: &CgroupTree<T>) -> Vec<(u64, Option<CgroupNode>)> {
    let mut longest: Vec<(u64, Option<CgroupNode>)> = vec![(0, None); tree.size()];
    for node in tree.downward(CgroupNode::ROOT).into_iter().rev() {
        longest[node.index()].0 += groups.of(node).len() as u64;
        let Some(above) = tree.above(node) else { continue };
        let groups = longest[node.index()].0;
        let (most, next) = longest[above.index()];
        // Of equals, the one with the smallest number: the same on every core.
        let is_first = |other: CgroupNode| tree.number(node) < tree.number(other);
        if groups > most || (groups == most && next.is_none_or(is_first)) {
            longest[above.index()] = (groups, Some(node));
        }
    }
    longest
}

/// Groups by where they stand, in their order.
struct ByNode {
    groups: Vec<Candidate>,
    /// Where those of each node begin.
    begins: Vec<usize>,
}

impl ByNode {
    fn new(groups: &[Candidate], nodes: usize) -> Self {
        let mut begins = vec![0; nodes + 1];
        for candidate in groups {
            begins[candidate.node.index() + 1] += 1;
        }
        for node in 0..nodes {
            begins[node + 1] += begins[node];
        }
        let (mut sorted, mut next) = (groups.to_vec(), begins.clone());
        for candidate in groups {
            let place = &mut next[candidate.node.index()];
            sorted[*place] = *candidate;
            *place += 1;
        }
        Self { groups: sorted, begins }
    }

    fn of(&self, node: CgroupNode) -> &[Candidate] {
        &self.groups[self.begins[node.index()]..self.begins[node.index() + 1]]
    }

    /// The groups of a path, those of each node as evenly spread as can be, and how many nodes of the path are above each.
    fn along(&self, path: &[CgroupNode]) -> (Vec<Candidate>, Vec<usize>) {
        let mut members = Vec::new();
        for (depth, &node) in path.iter().enumerate() {
            let own = self.of(node);
            let spread = |number: usize| ((2 * number as u64 + 1) << 20) / (2 * own.len() as u64);
            members.extend(own.iter().enumerate().map(|(number, &candidate)| (spread(number), depth, candidate)));
        }
        members.sort_by_key(|&(place, depth, _)| (place, depth));
        members.into_iter().map(|(_, depth, candidate)| (candidate, depth)).unzip()
    }
}
