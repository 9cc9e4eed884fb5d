//! Weights, summed up along the tree of stacks.
//!
//! What it is: an [`Adder`] gives each node what was met in it and in all that it called; [`Loads`] keeps the nodes of one group that
//! weigh something. Read first: [`Adder::sum`].
//!
//! **Invariant:** what a group costs depends on the nodes that it touches, and not on how many there are.

use super::hot::{HotNode, above};
use super::tally::Weight;

/// A node that weighs something in a group.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Touched {
    pub(super) node: u32,
    pub(super) spot: u32,
    /// What it has called: places in the same list.
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) total: Weight,
}

#[derive(Clone, Copy, Debug)]
struct OfSpot {
    spot: u32,
    own: (u32, u32),
    topmost: (u32, u32),
}

/// The weights of one group on the tree of stacks.
#[derive(Default, Debug)]
pub(super) struct Loads {
    /// What one node has called stands side by side.
    nodes: Vec<Touched>,
    /// Those that no node has called.
    pub(super) roots: (u32, u32),
    /// In order.
    spots: Vec<OfSpot>,
    /// Nodes that something was met in, by the spots that it counts for.
    own: Vec<(u32, Weight)>,
    /// Topmost nodes, by their spots: places in `nodes`.
    topmost: Vec<u32>,
}

/// Adds weights up along the tree of stacks, for one group after the other.
pub(super) struct Adder<'n> {
    nodes: &'n [HotNode],
    /// By node: what goes through it; nothing of a group stays.
    pub(super) totals: Vec<Weight>,
    is_touched: Vec<bool>,
    /// How many nodes a node has called, then where the next of them belongs.
    called: Vec<u32>,
}

impl<'n> Adder<'n> {
    pub(super) fn new(nodes: &'n [HotNode]) -> Self {
        let count = nodes.len();
        Self { nodes, totals: vec![Weight::default(); count], is_touched: vec![false; count], called: vec![0; count] }
    }

    /// Gives each node above something that was met its total. Returns these nodes, in order; they are to be forgotten.
    pub(super) fn sum(&mut self, met: impl Iterator<Item = (u32, Weight)>) -> Vec<u32> {
        let Self { nodes, totals, is_touched, .. } = self;
        let mut touched = Vec::new();
        for (node, weight) in met {
            totals[node as usize].add(weight);
            // What is above a node that was touched was touched with it.
            for at in above(nodes, node) {
                if std::mem::replace(&mut is_touched[at as usize], true) {
                    break;
                }
                touched.push(at);
            }
        }
        touched.sort_unstable();
        // Parents have lower numbers: from the last one to the first each is whole when it is passed on.
        for &node in touched.iter().rev() {
            let total = totals[node as usize];
            totals[nodes[node as usize].parent as usize].add(total);
        }
        touched
    }

    pub(super) fn forget(&mut self, touched: &[u32]) {
        for &node in touched.iter().chain(&[0]) {
            self.totals[node as usize] = Weight::default();
            self.is_touched[node as usize] = false;
        }
    }

    /// The nodes that were touched, with their totals and what each has called.
    pub(super) fn beside(&mut self, touched: &[u32]) -> Loads {
        let Self { nodes, totals, called, .. } = self;
        let parent = |node: u32| nodes[node as usize].parent as usize;
        for &node in touched {
            called[parent(node)] += 1;
        }
        let mut next = 0;
        let mut range = |node: u32| {
            let from = next;
            next += std::mem::replace(&mut called[node as usize], from);
            (from, next)
        };
        let roots = range(0);
        let ranges: Vec<(u32, u32)> = touched.iter().map(|&node| range(node)).collect();
        let mut list = vec![Touched::default(); touched.len()];
        for (&node, &(from, to)) in touched.iter().zip(&ranges) {
            let place = &mut called[parent(node)];
            let (spot, total) = (nodes[node as usize].spot, totals[node as usize]);
            list[*place as usize] = Touched { node, spot, from, to, total };
            *place += 1;
        }
        for &node in touched.iter().chain(&[0]) {
            called[node as usize] = 0;
        }
        Loads { nodes: list, roots, ..Loads::default() }
    }

    /// The loads of a group, by what was met in its nodes, which are in order.
    pub(super) fn loads(&mut self, met: impl Iterator<Item = (u32, Weight)>) -> Loads {
        let nodes = self.nodes;
        let owner = |node: u32| nodes[node as usize].owner;
        let mut own: Vec<(u32, Weight)> = Vec::new();
        for (node, weight) in met {
            match own.last_mut() {
                Some((last, sum)) if *last == node => sum.add(weight),
                _ => own.push((node, weight)),
            }
        }
        let touched = self.sum(own.iter().copied());
        let mut loads = self.beside(&touched);
        self.forget(&touched);
        own.sort_unstable_by_key(|&(node, _)| (owner(node), node));
        let places = loads.nodes.iter().enumerate().filter(|(_, touched)| nodes[touched.node as usize].is_topmost);
        let mut topmost: Vec<(u32, u32)> = places.map(|(place, touched)| (touched.spot, place as u32)).collect();
        topmost.sort_unstable();
        let (mut own_at, mut topmost_at) = (0, 0);
        while let Some(spot) = {
            let (own, topmost) = (own.get(own_at).map(|own| owner(own.0)), topmost.get(topmost_at));
            own.into_iter().chain(topmost.map(|(spot, _)| *spot)).min()
        } {
            let own_count = own[own_at..].iter().take_while(|(node, _)| owner(*node) == spot).count();
            let topmost_count = topmost[topmost_at..].iter().take_while(|(other, _)| *other == spot).count();
            let range = |at: usize, count: usize| (at as u32, (at + count) as u32);
            let of_spot = OfSpot { spot, own: range(own_at, own_count), topmost: range(topmost_at, topmost_count) };
            loads.spots.push(of_spot);
            (own_at, topmost_at) = (own_at + own_count, topmost_at + topmost_count);
        }
        loads.own = own;
        loads.topmost = topmost.into_iter().map(|(_, place)| place).collect();
        loads
    }
}

fn part<T>(list: &[T], (from, to): (u32, u32)) -> &[T] {
    &list[from as usize..to as usize]
}

impl Loads {
    /// Nodes side by side.
    pub(super) fn below(&self, range: (u32, u32)) -> impl Iterator<Item = &Touched> + '_ {
        part(&self.nodes, range).iter()
    }

    /// Each spot, with what was met in it, and what was met in it or in what it called.
    pub(super) fn sums(&self) -> impl Iterator<Item = (u32, Weight, Weight)> + '_ {
        let sum = |weights: &mut dyn Iterator<Item = Weight>| {
            let mut sum = Weight::default();
            weights.for_each(|weight| sum.add(weight));
            sum
        };
        self.spots.iter().map(move |of| {
            let own = sum(&mut part(&self.own, of.own).iter().map(|(_, weight)| *weight));
            let total = sum(&mut part(&self.topmost, of.topmost).iter().map(|at| self.nodes[*at as usize].total));
            (of.spot, own, total)
        })
    }

    fn of_spot(&self, spot: u32) -> Option<&OfSpot> {
        self.spots.binary_search_by_key(&spot, |of| of.spot).ok().map(|at| &self.spots[at])
    }

    /// The nodes in which something was met that counts for a spot, and how much.
    pub(super) fn own(&self, spot: u32) -> impl Iterator<Item = (u32, Weight)> + '_ {
        let range = self.of_spot(spot).map_or((0, 0), |of| of.own);
        part(&self.own, range).iter().copied()
    }

    pub(super) fn topmost(&self, spot: u32) -> impl Iterator<Item = &Touched> + '_ {
        let range = self.of_spot(spot).map_or((0, 0), |of| of.topmost);
        part(&self.topmost, range).iter().map(|&at| &self.nodes[at as usize])
    }
}
