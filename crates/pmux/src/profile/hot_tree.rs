//! The calls behind a row.
//!
//! What it is: [`Trees`] makes a [`Tree`] of callers and callees, with weights, for one row after the other. Read first: [`Order`],
//! [`Trees::next`].
//!
//! **Invariant:** a node weighs at least what its children weigh together; only what is heavy enough is looked into.

use super::hot::{Hot, Row, Spot};
use super::hot_sums::{Adder, Loads, Touched};
use super::tally::Weight;
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
pub enum TreeSide {
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

/// A chain of calls by itself: how much ends where it ends, and its calls.
pub type CallChain = (Weight, Vec<Spot>);

impl Tree {
    /// The chains that the tree is made of, the heaviest first. The tree has to be whole: what it leaves out counts for what is above.
    #[must_use]
    pub fn chains(&self) -> Vec<CallChain> {
        let (mut chains, mut path) = (Vec::new(), Vec::new());
        add_chains(&self.roots, &mut path, &mut chains);
        crate::order::sort_by_key(&mut chains, |(weight, _)| Reverse(weight.period));
        chains
    }
}

fn add_chains(calls: &[Call], path: &mut Vec<Spot>, chains: &mut Vec<CallChain>) {
    for call in calls {
        path.push(call.spot);
        let mut next = Weight::default();
        call.next.iter().for_each(|call| next.add(call.weight));
        let own = call.weight.without(next);
        if own.samples > 0 {
            chains.push((own, path.clone()));
        }
        add_chains(&call.next, path, chains);
        path.pop();
    }
}

/// Makes trees, one after the other: what that takes is used again.
pub struct Trees<'h> {
    hot: &'h Hot,
    /// What was met in the function that a tree is of, below each node: it is counted with its way.
    mine: Adder<'h>,
    /// By spot; nothing stays.
    steps: Vec<TreeStep>,
    /// Empty lists, for the next ones.
    spare: Vec<Vec<TreeBranch>>,
}

/// What comes next at some spot.
#[derive(Clone, Default)]
struct TreeStep {
    weight: Weight,
    places: u32,
    /// Where its next place belongs among those that are kept.
    next: u32,
}

struct Lists<'a> {
    /// What weighs something in the group.
    loads: &'a Loads,
    /// The ways to what was met in the function.
    ways: &'a Loads,
}

/// A place in the tree of stacks from which a tree goes on.
#[derive(Clone, Copy)]
struct TreeBranch {
    spot: u32,
    weight: Weight,
    on: On,
}

#[derive(Clone, Copy)]
enum On {
    /// To all that was called, but to what is counted with its way. The places of the next ones in the list of the group.
    Below(u32, u32),
    /// On the way to what was met in the function: places in the list of what is its own.
    Way(u32, u32),
    /// To the caller of this node.
    Up(u32),
}

impl<'h> Trees<'h> {
    pub(super) fn new(hot: &'h Hot) -> Self {
        Self { hot, mine: Adder::new(&hot.nodes), steps: vec![TreeStep::default(); hot.spots.len()], spare: Vec::new() }
    }

    /// The calls behind a row; what weighs less than `least_period` is left out.
    pub fn tree(&mut self, event: usize, row: &Row, order: Order, least_period: u64) -> Tree {
        let Some(loads) = self.hot.loads_of(event, row.group) else { return Tree::default() };
        let touched = self.mine.sum(loads.own(row.at));
        let ways = self.mine.beside(&touched);
        let mut places = self.spare.pop().unwrap_or_default();
        match order {
            Order::Callee => {
                let met = loads.own(row.at).filter(|(node, _)| *node != 0);
                places.extend(met.map(|(node, weight)| {
                    let spot = self.hot.nodes[node as usize].spot;
                    TreeBranch { spot, weight, on: On::Up(node) }
                }));
            }
            Order::Caller => {
                places.extend(ways.below(ways.roots).map(way));
                // What was met in the function itself has its way above; here is what it called.
                places.extend(loads.topmost(row.at).filter_map(|touched| self.below(touched)));
            }
        }
        let roots = self.calls(&Lists { loads, ways: &ways }, places, least_period.max(1));
        self.mine.forget(&touched);
        Tree { roots }
    }

    /// Who called a row's function, or what it called, of all that went through it; what weighs less than `least_period` is left out.
    /// Of recursion the outermost call counts.
    pub fn beside(&mut self, event: usize, row: &Row, side: TreeSide, least_period: u64) -> Tree {
        let Some(loads) = self.hot.loads_of(event, row.group) else { return Tree::default() };
        let ways = Loads::default();
        let lists = Lists { loads, ways: &ways };
        let mut places = self.spare.pop().unwrap_or_default();
        for touched in loads.topmost(row.at) {
            let on = match side {
                TreeSide::Callees => On::Below(touched.from, touched.to),
                TreeSide::Callers => On::Up(touched.node),
            };
            self.next(&lists, TreeBranch { spot: row.at, weight: touched.total, on }, &mut places);
        }
        Tree { roots: self.calls(&lists, places, least_period.max(1)) }
    }

    /// A node below the function, with what goes through it, but to what is counted with its way.
    fn below(&self, touched: &Touched) -> Option<TreeBranch> {
        let weight = touched.total.without(self.mine.totals[touched.node as usize]);
        let on = On::Below(touched.from, touched.to);
        (weight.samples > 0).then_some(TreeBranch { spot: touched.spot, weight, on })
    }

    /// Adds where it goes on from a place.
    fn next(&self, lists: &Lists<'_>, place: TreeBranch, out: &mut Vec<TreeBranch>) {
        match place.on {
            On::Below(from, to) => {
                out.extend(lists.loads.below((from, to)).filter_map(|touched| self.below(touched)));
            }
            On::Way(from, to) => out.extend(lists.ways.below((from, to)).map(way)),
            On::Up(node) => {
                let parent = self.hot.nodes[node as usize].parent;
                let spot = self.hot.nodes[parent as usize].spot;
                out.extend((parent != 0).then_some(TreeBranch { spot, on: On::Up(parent), ..place }));
            }
        }
    }

    /// Places as calls, the heaviest first: places of one spot are one call.
    fn calls(&mut self, lists: &Lists<'_>, mut places: Vec<TreeBranch>, least_period: u64) -> Vec<Call> {
        let steps = &mut self.steps;
        let mut found: Vec<u32> = Vec::new();
        for place in &places {
            let step = &mut steps[place.spot as usize];
            if step.places == 0 {
                found.push(place.spot);
            }
            step.weight.add(place.weight);
            step.places += 1;
        }
        // What is too light takes no more time than this.
        found.retain(|&spot| {
            let step = &mut steps[spot as usize];
            let is_heavy = step.weight.period >= least_period;
            if !is_heavy {
                *step = TreeStep::default();
            }
            is_heavy
        });
        found.sort_unstable_by_key(|&spot| (Reverse(steps[spot as usize].weight.period), spot));
        let mut count = 0;
        for &spot in &found {
            let step = &mut steps[spot as usize];
            (step.next, count) = (count, count + step.places);
        }
        places.retain(|place| steps[place.spot as usize].places > 0);
        // Each place goes to where those of its spot stand; what is there comes next.
        let mut end = 0;
        for &spot in &found {
            end += steps[spot as usize].places;
            while steps[spot as usize].next < end {
                let at = steps[spot as usize].next as usize;
                let step = &mut steps[places[at].spot as usize];
                places.swap(at, step.next as usize);
                step.next += 1;
            }
        }
        let found: Vec<(u32, TreeStep)> =
            found.into_iter().map(|spot| (spot, std::mem::take(&mut steps[spot as usize]))).collect();
        let mut calls = Vec::with_capacity(found.len());
        for (spot, TreeStep { weight, places: count, next }) in found {
            let mut further = self.spare.pop().unwrap_or_default();
            for &place in &places[(next - count) as usize..next as usize] {
                self.next(lists, place, &mut further);
            }
            let next = self.calls(lists, further, least_period);
            calls.push(Call { spot: self.hot.spots[spot as usize], weight, next });
        }
        places.clear();
        self.spare.push(places);
        calls
    }
}

/// A step on the way to what was met in the function.
fn way(touched: &Touched) -> TreeBranch {
    TreeBranch { spot: touched.spot, weight: touched.total, on: On::Way(touched.from, touched.to) }
}
