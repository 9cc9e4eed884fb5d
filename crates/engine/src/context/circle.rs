//! Turns of groups that do not all compete with one another.
//!
//! What it is: a circle of places on which every group stands, so that no two of one path of cgroups share
//! a place; a turn begins one place later than the last. There are as many places as the path with the most groups needs, which takes all
//! of them. Then each *limb* that hangs from it, a path again, and the one with the most groups there, is spread evenly over the places
//! that those above it have left, and so on to the tips. Those of a limb change places from lap to lap, because one that
//! stands behind a gap is first for longer.
//! Read first: [`order`].
//!
//! So on the longest path everybody is first as often, and on the others those who are on no longer path share evenly what is
//! left.
//!
//! **Invariant:** the order is a pure function of the groups, where they stand, and the number.

use super::GroupKey;
use super::turns::{Standing, order_of};
use crate::pmu::{Nest, Spot};
use alloc::vec;
use alloc::vec::Vec;

/// Held by no group.
const FREE: usize = usize::MAX;

/// A path whose groups are still to be placed.
struct Limb {
    top: Spot,
    /// Which list of places those above have left.
    left: usize,
    /// What is left of the number of the lap: those of two limbs on a path change places independently.
    lap: u64,
}

struct Circle<'n, T> {
    nest: &'n Nest<T>,
    groups: BySpot,
    /// Of each spot, the longest path from there on: how many groups it has, and where it goes next.
    longest: Vec<(u64, Option<Spot>)>,
    begin: u64,
    /// How many spots of the limb at hand are above the group that holds a place, by place.
    held: Vec<usize>,
    /// The lists of places that groups above have left, in their order.
    left: Vec<Vec<u64>>,
    places: Vec<(u64, Standing)>,
}

/// Who is tried when in the turn of that number, each once.
pub(super) fn order<T: Default>(groups: &[Standing], nest: &Nest<T>, number: u64) -> Vec<GroupKey> {
    let groups = BySpot::new(groups, nest.size());
    let longest = longest(&groups, nest);
    let count = longest[Spot::TRUNK.index()].0.max(1);
    let (held, left) = (vec![FREE; count as usize], vec![(0..count).collect()]);
    let mut circle = Circle { nest, groups, longest, begin: number % count, held, left, places: Vec::new() };
    let mut limbs = vec![Limb { top: Spot::TRUNK, left: 0, lap: number / count }];
    while let Some(limb) = limbs.pop() {
        circle.place(&limb, &mut limbs);
    }
    let Circle { mut places, begin, .. } = circle;
    places.sort_by_key(|&(place, _)| (place + count - begin) % count);
    places.into_iter().map(|(_, standing)| standing.key).collect()
}

impl<T: Default> Circle<'_, T> {
    /// Places the groups of a limb, and finds the limbs that hang from it.
    fn place(&mut self, limb: &Limb, limbs: &mut Vec<Limb>) {
        let path: Vec<Spot> = core::iter::successors(Some(limb.top), |spot| self.longest[spot.index()].1).collect();
        let (members, depths) = self.groups.along(&path);
        let left = &self.left[limb.left];
        let count = members.len() as u64;
        let place = |number: u64| left[(number * left.len() as u64 / count) as usize];
        let is_full = count == left.len() as u64;
        let passed = (0..count).take_while(|&number| place(number) < self.begin).count() as u64;
        let round = order_of(&members, limb.lap * (count + u64::from(!is_full)) + passed);
        let first = self.places.len();
        for (number, &member) in (passed..).zip(&round) {
            let place = place(number % count);
            self.places.push((place, members[member]));
            self.held[place as usize] = depths[member];
        }
        let lap = if is_full { limb.lap } else { limb.lap / count.max(1) };
        for (depth, &spot) in path.iter().enumerate() {
            let next = self.longest[spot.index()].1;
            let mut others = self.nest.below(spot).iter().filter(|&&below| Some(below) != next).peekable();
            if others.peek().is_some() {
                let is_left = |&&place: &&u64| self.held[place as usize] == FREE || self.held[place as usize] > depth;
                let behind = self.left[limb.left].iter().filter(is_left).copied().collect();
                self.left.push(behind);
                let left = self.left.len() - 1;
                limbs.extend(others.map(|&top| Limb { top, left, lap }));
            }
        }
        for (place, _) in &self.places[first..] {
            self.held[*place as usize] = FREE;
        }
    }
}

/// Of each spot, the longest path from there on: how many groups it has, and where it goes next.
fn longest<T: Default>(groups: &BySpot, nest: &Nest<T>) -> Vec<(u64, Option<Spot>)> {
    let mut longest: Vec<(u64, Option<Spot>)> = vec![(0, None); nest.size()];
    for spot in nest.downward(Spot::TRUNK).into_iter().rev() {
        longest[spot.index()].0 += groups.of(spot).len() as u64;
        let Some(above) = nest.above(spot) else { continue };
        let groups = longest[spot.index()].0;
        let (most, next) = longest[above.index()];
        // Of equals, the one with the smallest number: the same on every core.
        let is_first = |other: Spot| nest.number(spot) < nest.number(other);
        if groups > most || (groups == most && next.is_none_or(is_first)) {
            longest[above.index()] = (groups, Some(spot));
        }
    }
    longest
}

/// Groups by where they stand, in their order.
struct BySpot {
    groups: Vec<Standing>,
    /// Where those of each spot begin.
    begins: Vec<usize>,
}

impl BySpot {
    fn new(groups: &[Standing], spots: usize) -> Self {
        let mut begins = vec![0; spots + 1];
        for standing in groups {
            begins[standing.spot.index() + 1] += 1;
        }
        for spot in 0..spots {
            begins[spot + 1] += begins[spot];
        }
        let (mut sorted, mut next) = (groups.to_vec(), begins.clone());
        for standing in groups {
            let place = &mut next[standing.spot.index()];
            sorted[*place] = *standing;
            *place += 1;
        }
        Self { groups: sorted, begins }
    }

    fn of(&self, spot: Spot) -> &[Standing] {
        &self.groups[self.begins[spot.index()]..self.begins[spot.index() + 1]]
    }

    /// The groups of a path, those of each spot as evenly spread as can be, and how many spots of the path are above each.
    fn along(&self, path: &[Spot]) -> (Vec<Standing>, Vec<usize>) {
        let mut members = Vec::new();
        for (depth, &spot) in path.iter().enumerate() {
            let own = self.of(spot);
            let spread = |number: usize| ((2 * number as u64 + 1) << 20) / (2 * own.len() as u64);
            members.extend(own.iter().enumerate().map(|(number, &standing)| (spread(number), depth, standing)));
        }
        members.sort_by_key(|&(place, depth, _)| (place, depth));
        members.into_iter().map(|(_, depth, standing)| (standing, depth)).unzip()
    }
}
