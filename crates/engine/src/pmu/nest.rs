//! Cgroups inside one another: which events can ever be on at one moment.
//!
//! What it is: a tree of what is kept for each cgroup. A CPU runs one task, which is in one cgroup and in all that hold it: a
//! *path*. Two cgroups of which neither holds the other are apart: they are on no common path.
//! Read first: [`CgroupPath`], then [`Nest::on_all_paths`].
//!
//! **Invariant:** the trunk is on every path; whatever cannot be placed is kept there, so it competes with everything.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Where a cgroup is: the host's numbers of all that hold it, from the outermost, and its own at the end. It stays true for as long
/// as the cgroup is known.
///
/// Where two begin with different numbers, it is unknown which of them holds which (they were found through two mounts, for
/// instance): then they are not taken for apart.
pub type CgroupPath = Arc<[u64]>;

/// A place in a [`Nest`]: that of a cgroup, or the trunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Spot(u32);

impl Spot {
    /// What is there whatever cgroup the task is in.
    pub const TRUNK: Self = Self(0);

    /// As an index below [`Nest::size`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
struct Branch<T> {
    kept: T,
    number: u64,
    above: Option<Spot>,
    below: Vec<Spot>,
    /// How many have entered here, and how many branches are right below.
    users: usize,
}

impl<T: Default> Branch<T> {
    fn new(number: u64, above: Option<Spot>) -> Self {
        Self { kept: T::default(), number, above, below: Vec::new(), users: 0 }
    }
}

/// What is kept for each cgroup, along the paths.
#[derive(Debug)]
pub struct Nest<T> {
    branches: Vec<Branch<T>>,
    free: Vec<Spot>,
    spots: BTreeMap<(Spot, u64), Spot>,
    /// Kept, so that a walk seldom allocates.
    walk: Vec<Spot>,
}

impl<T: Default> Default for Nest<T> {
    fn default() -> Self {
        let trunk = Branch { users: 1, ..Branch::new(0, None) };
        Self { branches: alloc::vec![trunk], free: Vec::new(), spots: BTreeMap::new(), walk: Vec::new() }
    }
}

impl<T: Default> Nest<T> {
    /// The spot of a cgroup, until [`Nest::leave`] has been called as often; the trunk's where the path is not known, or does not
    /// begin like those that are here. O(its depth).
    pub fn enter(&mut self, path: Option<&[u64]>) -> Spot {
        let is_strange = |path: &&[u64]| {
            let outermost = self.branches[0].below.first().map(|&spot| self.branches[spot.index()].number);
            outermost.is_some_and(|outermost| path.first() != Some(&outermost))
        };
        let path = path.filter(|path| !is_strange(path)).unwrap_or_default();
        let spot = path.iter().fold(Spot::TRUNK, |above, &number| match self.spots.get(&(above, number)) {
            Some(&known) => known,
            None => self.grow(above, number),
        });
        self.branch(spot).users += 1;
        spot
    }

    fn grow(&mut self, above: Spot, number: u64) -> Spot {
        let branch = Branch::new(number, Some(above));
        let spot = match self.free.pop() {
            Some(spot) => {
                *self.branch(spot) = branch;
                spot
            }
            None => {
                self.branches.push(branch);
                // Letting go must never allocate: it happens when CPUs go.
                self.free.reserve(self.branches.len());
                Spot(self.branches.len() as u32 - 1)
            }
        };
        self.spots.insert((above, number), spot);
        let above = self.branch(above);
        above.below.push(spot);
        above.users += 1;
        spot
    }

    /// Lets go of a spot; what has no users any more is forgotten.
    pub fn leave(&mut self, spot: Spot) {
        let mut next = Some(spot);
        while let Some(spot) = next.take() {
            let branch = self.branch(spot);
            branch.users = branch.users.saturating_sub(1);
            if let (0, Some(above)) = (branch.users, branch.above) {
                let number = branch.number;
                self.spots.remove(&(above, number));
                self.branch(above).below.retain(|&other| other != spot);
                self.free.push(spot);
                next = Some(above);
            }
        }
    }

    fn branch(&mut self, spot: Spot) -> &mut Branch<T> {
        &mut self.branches[spot.index()]
    }

    /// What is kept at a spot.
    pub fn at(&mut self, spot: Spot) -> &mut T {
        &mut self.branch(spot).kept
    }

    /// How many spots there may be; one that was left may be among them.
    #[must_use]
    pub fn size(&self) -> usize {
        self.branches.len()
    }

    /// What is kept at all spots, those that were left among them.
    pub fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.branches.iter_mut().map(|branch| &mut branch.kept)
    }

    /// What is kept on the path that ends at a spot, from there to the trunk.
    pub fn up(&self, spot: Spot) -> impl Iterator<Item = &T> {
        core::iter::successors(Some(spot), |&spot| self.above(spot)).map(|spot| &self.branches[spot.index()].kept)
    }

    /// The spot right above.
    #[must_use]
    pub fn above(&self, spot: Spot) -> Option<Spot> {
        self.branches[spot.index()].above
    }

    /// The spots right below, in no particular order.
    #[must_use]
    pub fn below(&self, spot: Spot) -> &[Spot] {
        &self.branches[spot.index()].below
    }

    /// The number of its cgroup; 0 of the trunk.
    #[must_use]
    pub fn number(&self, spot: Spot) -> u64 {
        self.branches[spot.index()].number
    }

    /// A spot and all below it, each behind the one right above it.
    pub fn downward(&self, spot: Spot) -> Vec<Spot> {
        let mut found = alloc::vec![spot];
        let mut next = 0;
        while let Some(&spot) = found.get(next) {
            found.extend_from_slice(&self.branches[spot.index()].below);
            next += 1;
        }
        found
    }

    /// Whether `holds` is true of every path through a spot, each as long as can be, by the spot where it ends. O(paths); the first of
    /// which it is not true is the last that is asked, and the first the next time.
    pub fn on_all_paths(&mut self, spot: Spot, mut holds: impl FnMut(&Self, Spot) -> bool) -> bool {
        let mut walk = core::mem::take(&mut self.walk);
        walk.clear();
        walk.push(spot);
        let mut fails = None;
        while let Some(spot) = walk.pop() {
            let below = &self.branches[spot.index()].below;
            walk.extend(below.iter().rev());
            if below.is_empty() && !holds(self, spot) {
                fails = Some(spot);
                break;
            }
        }
        self.walk = walk;
        fails.inspect(|&end| self.ask_first(end, spot)).is_none()
    }

    fn ask_first(&mut self, end: Spot, top: Spot) {
        let mut next = end;
        while let Some(above) = self.above(next).filter(|_| next != top) {
            let below = &mut self.branch(above).below;
            let place = below.iter().position(|&spot| spot == next).unwrap_or(0);
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

    fn ends(nest: &mut Nest<usize>, spot: Spot) -> Vec<Vec<usize>> {
        let mut ends = Vec::new();
        nest.on_all_paths(spot, |nest, end| {
            ends.push(nest.up(end).copied().collect());
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
        fn every_path_is_found_whoever_comes_and_goes(steps in prop::collection::vec((any::<bool>(), 1_usize..40), 0..60)) {
            let (mut nest, mut users) = (Nest::<usize>::default(), Model::<usize, Vec<Spot>>::new());
            for (enters, number) in steps {
                match users.get_mut(&number).filter(|_| !enters).and_then(Vec::pop) {
                    Some(spot) => {
                        *nest.at(spot) -= 1;
                        nest.leave(spot);
                    }
                    None => {
                        let spot = nest.enter(Some(&path(number)));
                        *nest.at(spot) += 1;
                        users.entry(number).or_default().push(spot);
                    }
                }
                users.retain(|_, spots| !spots.is_empty());
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
                prop_assert_eq!(ends(&mut nest, Spot::TRUNK), model);
                // Of one cgroup, the paths through it.
                for (&number, spots) in &users {
                    let below = users.keys().filter(|&&other| is_above(number, other));
                    let last = below.filter(|&&end| users.keys().all(|&other| other == end || !is_above(end, other)));
                    prop_assert_eq!(ends(&mut nest, spots[0]).len(), last.count());
                    prop_assert!(spots.iter().all(|spot| *spot == spots[0]));
                }
            }
            for spot in users.into_values().flatten() {
                nest.leave(spot);
            }
            prop_assert_eq!((nest.downward(Spot::TRUNK).len(), nest.spots.len()), (1, 0), "nothing is kept for nobody");
        }
    }

    #[test]
    fn what_is_strange_or_unknown_is_on_every_path() {
        let mut nest = Nest::<usize>::default();
        let known = nest.enter(Some(&[1, 2]));
        assert_eq!([nest.enter(Some(&[7, 2])), nest.enter(None), nest.enter(Some(&[]))], [Spot::TRUNK; 3]);
        assert_eq!(nest.above(known), nest.spots.get(&(Spot::TRUNK, 1)).copied());
        nest.leave(known);
        assert_ne!(nest.enter(Some(&[7, 2])), Spot::TRUNK, "the others are gone");
    }

    #[test]
    fn a_path_that_failed_is_asked_first() {
        let mut nest = Nest::<usize>::default();
        let spots: Vec<_> = (2..50).map(|number| nest.enter(Some(&[1, number, number]))).collect();
        let mut asked = |full: Spot| {
            let mut asked = 0;
            nest.on_all_paths(Spot::TRUNK, |_, end| {
                asked += 1;
                end != full
            });
            asked
        };
        assert!(asked(spots[40]) > 1);
        assert_eq!(asked(spots[40]), 1);
    }
}
