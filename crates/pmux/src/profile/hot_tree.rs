//! The calls behind a row.
//!
//! What it is: [`Tree`], of who called whom, with weights. Read first: [`Order`].
//!
//! **Invariant:** a node weighs at least what its children weigh together.

use super::hot::{Hot, Loads, Spot, above};
use super::tally::Weight;
use std::collections::BTreeMap;

/// From where to where a tree leads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// From callers to what they called: what was met in the row's function with the way to it, and below the function all that it called.
    Caller,
    /// From the row's function to its callers.
    Callee,
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

#[derive(Default)]
struct Building {
    weight: Weight,
    next: BTreeMap<u32, Building>,
}

impl Building {
    fn add(&mut self, path: impl Iterator<Item = u32>, weight: Weight) {
        let mut at = self;
        for spot in path {
            at = at.next.entry(spot).or_default();
            at.weight.add(weight);
        }
    }

    fn calls(&self, spots: &[Spot], least_period: u64) -> Vec<Call> {
        let heavy = self.next.iter().filter(|(_, below)| below.weight.period >= least_period);
        let mut calls: Vec<Call> = heavy
            .map(|(&spot, below)| Call {
                spot: spots[spot as usize],
                weight: below.weight,
                next: below.calls(spots, least_period),
            })
            .collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.weight.period));
        calls
    }
}

impl Tree {
    pub(super) fn of(hot: &Hot, loads: &Loads, spot: u32, order: Order, least_period: u64) -> Self {
        let mut building = Building::default();
        let spot_at = |node: u32| hot.nodes[node as usize].spot;
        let mut path = Vec::new();
        for &(node, weight) in &loads.own {
            path.clear();
            path.extend(above(&hot.nodes, node).map(spot_at));
            let is_own = path.first() == Some(&spot);
            match order {
                Order::Callee if is_own => building.add(path.iter().copied(), weight),
                Order::Callee => {}
                Order::Caller if is_own => building.add(path.iter().rev().copied(), weight),
                // From the outermost call of it on.
                Order::Caller => {
                    if let Some(outermost) = path.iter().rposition(|&at| at == spot) {
                        building.add(path[..=outermost].iter().rev().copied(), weight);
                    }
                }
            }
        }
        Self { roots: building.calls(&hot.spots, least_period.max(1)) }
    }
}
