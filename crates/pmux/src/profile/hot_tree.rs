//! The calls behind a row.
//!
//! What it is: [`Tree`], of who called whom, with weights. Read first: [`Order`].
//!
//! **Invariant:** a node weighs at least what its children weigh together; only what is heavy enough is looked into.

use super::hot::{Hot, Node, Spot, above};
use super::tally::Weight;
use hashbrown::HashMap;
use std::cmp::Reverse;

/// From where to where a tree leads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// From callers to what they called: what was met in the row's function with the way to it, and below the function all that it called.
    Caller,
    /// From the row's function to its callers.
    Callee,
}

/// On which side of a function a tree of all that went through it lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// Who called it; below each its callers.
    Callers,
    /// What it called; below each what that called.
    Callees,
}

/// A node.
#[derive(Clone, Debug)]
pub struct Call {
    /// What was called, or has called.
    pub spot: Spot,
    /// How much goes through it.
    pub weight: Weight,
    /// The next ones, the heaviest first.
    pub next: Vec<Call>,
}

/// The calls behind a row.
#[derive(Clone, Default, Debug)]
pub struct Tree {
    /// Where it begins; the heaviest first.
    pub roots: Vec<Call>,
}

/// A node that weighs something in a group.
#[derive(Clone, Copy, Debug)]
struct Touched {
    node: u32,
    total: Weight,
}

/// The weights of one group on the tree of stacks.
#[derive(Debug)]
pub(super) struct Loads {
    /// By the parent, so that what a node has called stands together.
    by_parent: Vec<(u32, Touched)>,
    /// Nodes that something was met in, by their spots.
    own: HashMap<u32, Vec<(u32, Weight)>>,
    /// Topmost nodes, by their spots.
    topmost: HashMap<u32, Vec<Touched>>,
}

/// A step of a tree: several nodes that are one to the reader.
#[derive(Default)]
struct Step {
    weight: Weight,
    nodes: Vec<Touched>,
    /// Ways to what was met, as far as they are not walked yet: from the end.
    ways: Vec<(Vec<u32>, Weight)>,
}

impl Loads {
    pub(super) fn new(nodes: &[Node], own: &[(u32, Weight)]) -> Self {
        let mut all: HashMap<u32, Weight> = HashMap::new();
        let mut own_of: HashMap<u32, Vec<(u32, Weight)>> = HashMap::new();
        for &(node, weight) in own {
            own_of.entry(nodes[node as usize].spot).or_default().push((node, weight));
            for at in above(nodes, node) {
                all.entry(at).or_default().add(weight);
            }
        }
        let mut by_parent: Vec<(u32, Touched)> =
            all.into_iter().map(|(node, total)| (nodes[node as usize].parent, Touched { node, total })).collect();
        by_parent.sort_unstable_by_key(|(parent, touched)| (*parent, touched.node));
        let mut topmost: HashMap<u32, Vec<Touched>> = HashMap::new();
        for (_, touched) in by_parent.iter().filter(|(_, touched)| nodes[touched.node as usize].is_topmost) {
            topmost.entry(nodes[touched.node as usize].spot).or_default().push(*touched);
        }
        Self { by_parent, own: own_of, topmost }
    }

    /// What was met at each spot itself, and with what it called.
    pub(super) fn sums(&self) -> HashMap<u32, (Weight, Weight)> {
        let mut sums: HashMap<u32, (Weight, Weight)> = HashMap::new();
        for (&spot, nodes) in &self.own {
            let sum = &mut sums.entry(spot).or_default().0;
            nodes.iter().for_each(|(_, weight)| sum.add(*weight));
        }
        for (&spot, nodes) in &self.topmost {
            let sum = &mut sums.entry(spot).or_default().1;
            nodes.iter().for_each(|touched| sum.add(touched.total));
        }
        sums
    }

    fn called_by(&self, node: u32) -> impl Iterator<Item = Touched> + '_ {
        let from = self.by_parent.partition_point(|(parent, _)| *parent < node);
        self.by_parent[from..].iter().take_while(move |(parent, _)| *parent == node).map(|(_, touched)| *touched)
    }
}

impl Tree {
    pub(super) fn of(hot: &Hot, loads: &Loads, spot: u32, order: Order, least_period: u64) -> Self {
        let spot_at = |node: u32| hot.nodes[node as usize].spot;
        let own = loads.own.get(&spot).map_or(&[][..], |own| own);
        let ways = own.iter().map(|&(node, weight)| {
            let mut way: Vec<u32> = above(&hot.nodes, node).map(spot_at).collect();
            if order == Order::Callee {
                way.reverse();
            }
            (way, weight)
        });
        let mut mine: HashMap<u32, Weight> = HashMap::new();
        for &(node, weight) in own {
            above(&hot.nodes, node).for_each(|at| mine.entry(at).or_default().add(weight));
        }
        let walk = Walk { hot, loads, mine };
        let mut roots = Step { ways: ways.collect(), ..Step::default() }.next(&walk);
        if order == Order::Caller {
            // What was met in the function itself has its way above; here is what it called.
            for touched in loads.topmost.get(&spot).into_iter().flatten() {
                let weight = walk.through(touched);
                if weight.samples > 0 {
                    let below = roots.entry(spot).or_default();
                    below.weight.add(weight);
                    below.nodes.push(*touched);
                }
            }
        }
        Self { roots: walk.calls(roots, least_period.max(1)) }
    }

    /// What is on one side of all that went through a spot, which is no part of it. Of recursion the outermost call counts.
    pub(super) fn beside(hot: &Hot, loads: &Loads, spot: u32, side: Side, least_period: u64) -> Self {
        let topmost = loads.topmost.get(&spot).map_or(&[][..], |topmost| topmost);
        let mut step = Step::default();
        match side {
            Side::Callees => step.nodes = topmost.to_vec(),
            Side::Callers => {
                step.ways.extend(topmost.iter().map(|touched| {
                    let parent = hot.nodes[touched.node as usize].parent;
                    let mut way: Vec<u32> =
                        above(&hot.nodes, parent).map(|node| hot.nodes[node as usize].spot).collect();
                    way.reverse();
                    (way, touched.total)
                }));
            }
        }
        let walk = Walk { hot, loads, mine: HashMap::new() };
        Self { roots: walk.calls(step.next(&walk), least_period.max(1)) }
    }
}

/// What a tree is made from.
struct Walk<'a> {
    hot: &'a Hot,
    loads: &'a Loads,
    /// What was met in the function that the tree is of, below each node: it is counted with its way.
    mine: HashMap<u32, Weight>,
}

impl Walk<'_> {
    /// What goes through a node, but to what is counted with its way.
    fn through(&self, touched: &Touched) -> Weight {
        let mine = self.mine.get(&touched.node).copied().unwrap_or_default();
        touched.total.without(mine)
    }

    fn calls(&self, steps: HashMap<u32, Step>, least_period: u64) -> Vec<Call> {
        let heavy = steps.into_iter().filter(|(_, step)| step.weight.period >= least_period);
        let mut found: Vec<(u32, Call)> = heavy
            .map(|(at, step)| {
                let weight = step.weight;
                let next = self.calls(step.next(self), least_period);
                (at, Call { spot: self.hot.spots[at as usize], weight, next })
            })
            .collect();
        found.sort_by_key(|(at, call)| (Reverse(call.weight.period), *at));
        found.into_iter().map(|(_, call)| call).collect()
    }
}

impl Step {
    /// What comes next, by spot.
    fn next(self, walk: &Walk<'_>) -> HashMap<u32, Step> {
        let mut next: HashMap<u32, Step> = HashMap::new();
        for (mut way, weight) in self.ways {
            if let Some(at) = way.pop() {
                let step = next.entry(at).or_default();
                step.weight.add(weight);
                step.ways.push((way, weight));
            }
        }
        for called in self.nodes.iter().flat_map(|touched| walk.loads.called_by(touched.node)) {
            let weight = walk.through(&called);
            if weight.samples > 0 {
                let step = next.entry(walk.hot.nodes[called.node as usize].spot).or_default();
                step.weight.add(weight);
                step.nodes.push(called);
            }
        }
        next
    }
}
