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

/// The weights of one group on the tree of stacks. All lists are in order, so that what belongs together is found by halving.
#[derive(Debug)]
pub(super) struct Loads {
    /// By the parent, so that what a node has called stands together.
    by_parent: Vec<(u32, Touched)>,
    /// Nodes that something was met in, by their spots.
    own: Vec<(u32, Touched)>,
    /// Topmost nodes, by their spots.
    topmost: Vec<(u32, Touched)>,
}

/// Adds weights up along the tree of stacks, for one group after the other.
pub(super) struct Adder<'n> {
    nodes: &'n [Node],
    /// By node; nothing of a group stays.
    totals: Vec<Weight>,
    is_touched: Vec<bool>,
}

/// A step of a tree: several nodes that are one to the reader.
#[derive(Default)]
struct Step {
    weight: Weight,
    nodes: Vec<Touched>,
    /// Ways to what was met, as far as they are not walked yet: from the end.
    ways: Vec<(Vec<u32>, Weight)>,
}

impl<'n> Adder<'n> {
    pub(super) fn new(nodes: &'n [Node]) -> Self {
        Self { nodes, totals: vec![Weight::default(); nodes.len()], is_touched: vec![false; nodes.len()] }
    }

    /// The loads of a group, by what was met in its nodes, which are in order.
    pub(super) fn loads(&mut self, met: impl Iterator<Item = (u32, Weight)>) -> Loads {
        let Self { nodes, totals, is_touched } = self;
        let (mut own, mut touched): (Vec<(u32, Touched)>, Vec<u32>) = (Vec::new(), Vec::new());
        for (node, weight) in met {
            match own.last_mut() {
                Some((_, last)) if last.node == node => last.total.add(weight),
                _ => own.push((nodes[node as usize].spot, Touched { node, total: weight })),
            }
            totals[node as usize].add(weight);
            // What is above a node that was touched was touched with it.
            for at in above(nodes, node) {
                if std::mem::replace(&mut is_touched[at as usize], true) {
                    break;
                }
                touched.push(at);
            }
        }
        // Parents have lower numbers: from the last one to the first each is whole when it is passed on.
        touched.sort_unstable_by(|a, b| b.cmp(a));
        let mut by_parent = Vec::with_capacity(touched.len());
        for node in touched {
            let (total, parent) = (std::mem::take(&mut totals[node as usize]), nodes[node as usize].parent);
            is_touched[node as usize] = false;
            totals[parent as usize].add(total);
            by_parent.push((parent, Touched { node, total }));
        }
        totals[0] = Weight::default();
        let topmost = by_parent.iter().filter(|(_, touched)| nodes[touched.node as usize].is_topmost);
        let mut topmost: Vec<_> = topmost.map(|(_, touched)| (nodes[touched.node as usize].spot, *touched)).collect();
        for list in [&mut by_parent, &mut own, &mut topmost] {
            list.sort_unstable_by_key(|(first, touched)| (*first, touched.node));
        }
        Loads { by_parent, own, topmost }
    }
}

/// What stands in a list below a number.
fn of(list: &[(u32, Touched)], number: u32) -> impl Iterator<Item = Touched> + '_ {
    let from = list.partition_point(|(other, _)| *other < number);
    list[from..].iter().take_while(move |(other, _)| *other == number).map(|(_, touched)| *touched)
}

impl Loads {
    /// Each spot, with what was met in it, and what was met in it or in what it called.
    pub(super) fn sums(&self) -> impl Iterator<Item = (u32, Weight, Weight)> + '_ {
        let (mut own, mut topmost) = (&self.own[..], &self.topmost[..]);
        std::iter::from_fn(move || {
            let spot = own.first().into_iter().chain(topmost.first()).map(|(spot, _)| *spot).min()?;
            Some((spot, take_sum(&mut own, spot), take_sum(&mut topmost, spot)))
        })
    }

    fn called_by(&self, node: u32) -> impl Iterator<Item = Touched> + '_ {
        of(&self.by_parent, node)
    }
}

/// Takes what belongs to a spot off the front of a list, and adds it up.
fn take_sum(list: &mut &[(u32, Touched)], spot: u32) -> Weight {
    let mut sum = Weight::default();
    while let Some(((_, touched), rest)) = list.split_first().filter(|((first, _), _)| *first == spot) {
        sum.add(touched.total);
        *list = rest;
    }
    sum
}

impl Tree {
    pub(super) fn of(hot: &Hot, loads: &Loads, spot: u32, order: Order, least_period: u64) -> Self {
        let spot_at = |node: u32| hot.nodes[node as usize].spot;
        let ways = of(&loads.own, spot).map(|met| {
            let mut way: Vec<u32> = above(&hot.nodes, met.node).map(spot_at).collect();
            if order == Order::Callee {
                way.reverse();
            }
            (way, met.total)
        });
        let mut mine: HashMap<u32, Weight> = HashMap::new();
        for met in of(&loads.own, spot) {
            above(&hot.nodes, met.node).for_each(|at| mine.entry(at).or_default().add(met.total));
        }
        let walk = Walk { hot, loads, mine };
        let mut roots = Step { ways: ways.collect(), ..Step::default() }.next(&walk);
        if order == Order::Caller {
            // What was met in the function itself has its way above; here is what it called.
            for touched in of(&loads.topmost, spot) {
                let weight = walk.through(&touched);
                if weight.samples > 0 {
                    let below = roots.entry(spot).or_default();
                    below.weight.add(weight);
                    below.nodes.push(touched);
                }
            }
        }
        Self { roots: walk.calls(roots, least_period.max(1)) }
    }

    /// What is on one side of all that went through a spot, which is no part of it. Of recursion the outermost call counts.
    pub(super) fn beside(hot: &Hot, loads: &Loads, spot: u32, side: Side, least_period: u64) -> Self {
        let topmost = of(&loads.topmost, spot);
        let mut step = Step::default();
        match side {
            Side::Callees => step.nodes.extend(topmost),
            Side::Callers => {
                step.ways.extend(topmost.map(|touched| {
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
