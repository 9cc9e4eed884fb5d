//! Who may be on at once where events are limited to cgroups, on a CPU whose kernel switches them with the tasks.
//!
//! What it is: a *moment* is a task of one cgroup, or of none, on the CPU. What counts then are the events without a cgroup and
//! those whose cgroup holds the task's. They have to fit, moment by moment; between moments there is nothing to share.
//! Read first: [`CgroupCpu::fit`].
//!
//! **Invariant:** every moment is looked at by itself; nothing is known of paths, trees or turns.

use super::placement;
use super::rotation::{PmuUse, Priority};
use pmux_engine::pmu::SlotMask;

/// A group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupInCgroup {
    /// Its cgroup, by number; `None`: it counts whatever the task.
    pub cgroup: Option<usize>,
    /// Whether it takes turns.
    pub priority: Priority,
    /// Whether it is alone on the PMU while it counts.
    pub pmu_use: PmuUse,
    /// The slots that each of its events may be on.
    pub events: Vec<SlotMask>,
}

/// A CPU.
#[derive(Clone, Debug)]
pub struct CgroupCpu {
    /// How many slots there are.
    pub count: u8,
    /// The cgroup that holds each; the numbers of those are smaller.
    pub above: Vec<Option<usize>>,
    /// All of them, enabled.
    pub groups: Vec<GroupInCgroup>,
}

/// A rule that is broken, with the group at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CgroupViolation {
    /// Those that are on do not fit.
    TooMany,
    /// It would fit beside those that are on, and waits.
    WaitsForNothing(usize),
}

impl CgroupCpu {
    /// All moments that differ: a task of no cgroup, and one of each.
    fn moments(&self) -> impl Iterator<Item = Option<usize>> {
        [None].into_iter().chain((0..self.above.len()).map(Some))
    }

    fn counts(&self, group: usize, moment: Option<usize>) -> bool {
        let mut holders = std::iter::successors(moment, |&cgroup| self.above[cgroup]);
        self.groups[group].cgroup.is_none_or(|cgroup| holders.any(|holder| holder == cgroup))
    }

    /// Whether these groups can be on together.
    #[must_use]
    pub fn fit(&self, on: &[usize]) -> bool {
        self.moments().all(|moment| {
            let here: Vec<_> = on.iter().copied().filter(|&group| self.counts(group, moment)).collect();
            let lonely = here.iter().any(|&group| self.groups[group].pmu_use == PmuUse::Exclusive);
            let events: Vec<_> = here.iter().flat_map(|&group| self.groups[group].events.clone()).collect();
            (here.len() <= 1 || !lonely) && placement::fits(&events, SlotMask(0), self.count)
        })
    }

    /// Whether no group is on that can't be, and no group waits that could be on beside the others.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn is_lawful(&self, on: &[usize], waits: &[usize]) -> Result<(), CgroupViolation> {
        if !self.fit(on) {
            return Err(CgroupViolation::TooMany);
        }
        let fits_too = |group: &&usize| self.fit(&[on, &[**group]].concat());
        waits.iter().find(fits_too).map_or(Ok(()), |&group| Err(CgroupViolation::WaitsForNothing(group)))
    }

    /// The fair share of each group's time, where each has one event that may be on any slot: no group can have more without
    /// less for another that has less already. All are given more and more, in small steps, until
    /// a moment is full; those that count then have what they get.
    #[must_use]
    pub fn fair_shares(&self) -> Vec<f64> {
        const STEPS: u32 = 1_000;
        let step = 1.0 / f64::from(STEPS);
        let mut shares = vec![0.0; self.groups.len()];
        let mut grows = vec![true; self.groups.len()];
        while grows.contains(&true) {
            for group in (0..shares.len()).filter(|&group| grows[group]) {
                shares[group] += step;
            }
            let next = |group: usize| shares[group] + if grows[group] { step } else { 0.0 };
            let is_full = |moment| {
                let all = (0..shares.len()).filter(|&other| self.counts(other, moment));
                all.map(next).sum::<f64>() > f64::from(self.count)
            };
            let has_room = |group: usize| {
                next(group) <= 1.0 && !self.moments().filter(|&moment| self.counts(group, moment)).any(is_full)
            };
            let still: Vec<bool> = (0..shares.len()).map(|group| grows[group] && has_room(group)).collect();
            grows = still;
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(count: u8, above: &[Option<usize>], cgroups: &[Option<usize>]) -> CgroupCpu {
        let events = vec![SlotMask::first(count)];
        let group = |&cgroup: &Option<usize>| GroupInCgroup {
            cgroup,
            priority: Priority::Flexible,
            pmu_use: PmuUse::Shared,
            events: events.clone(),
        };
        CgroupCpu { count, above: above.to_vec(), groups: cgroups.iter().map(group).collect() }
    }

    #[test]
    fn cgroups_that_are_apart_do_not_compete() {
        // Two in the root, one of which holds a third.
        let above = [None, None, Some(0)];
        let apart = machine(1, &above, &[Some(0), Some(1), Some(2), None]);
        assert!(apart.fit(&[0, 1]) && apart.fit(&[1, 2]));
        assert!(!apart.fit(&[0, 2]), "a task of the inner one is in the outer one too");
        assert!(!apart.fit(&[1, 3]) && !apart.fit(&[2, 3]) && apart.fit(&[3]));
        assert_eq!(apart.is_lawful(&[0], &[2, 1]), Err(CgroupViolation::WaitsForNothing(1)));
        assert_eq!(apart.is_lawful(&[0, 2], &[]), Err(CgroupViolation::TooMany));
        assert_eq!(apart.is_lawful(&[0, 1], &[2, 3]), Ok(()));
    }

    #[test]
    fn a_share_is_fair_where_no_group_could_give() {
        let near = |shares: Vec<f64>, expected: &[f64]| {
            assert!(
                shares.iter().zip(expected).all(|(one, other)| (one - other).abs() < 0.01),
                "{shares:?} {expected:?}"
            );
        };
        let above = [None, None];
        near(machine(1, &above, &[Some(0), Some(0), Some(1)]).fair_shares(), &[0.5, 0.5, 1.0]);
        near(
            machine(1, &above, &[None, Some(0), Some(0), Some(1)]).fair_shares(),
            &[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 2.0 / 3.0],
        );
    }
}
