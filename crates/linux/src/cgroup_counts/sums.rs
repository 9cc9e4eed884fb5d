//! Adding up: what a cgroup has counted, with all below it, whether they are there or not.
//!
//! **Invariant:** pure. What was counted by one that is gone stays with all that were above it.

use super::{CgroupSums, NO_CGROUP};
use std::collections::{HashMap, HashSet};
use std::ops::AddAssign;

/// A count with its times, of what ran in one cgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// What was counted.
    pub count: u64,
    /// For how long tasks of the cgroup ran while the event was enabled, in ns.
    pub enabled_ns: u64,
    /// For how much of that the event was on a counter, in ns.
    pub running_ns: u64,
}

impl AddAssign for Sum {
    fn add_assign(&mut self, more: Self) {
        self.count += more.count;
        self.enabled_ns += more.enabled_ns;
        self.running_ns += more.running_ns;
    }
}

#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Those above each cgroup that has run, from the root on.
    pub(super) above: HashMap<u64, Vec<u64>>,
    /// What those counted that are gone, by those above them.
    retired: HashMap<u64, CgroupSums>,
    /// What those are gone had counted when they were last looked at.
    leaving: HashMap<u64, Vec<u8>>,
}

impl Sums {
    /// How many cgroups have run.
    pub(super) fn known(&self) -> usize {
        self.above.len()
    }

    /// Remembers who is above those that are new.
    pub(super) fn learn(&mut self, ids: impl Iterator<Item = u64>, lineage: impl Fn(u64) -> Vec<u64>) {
        for id in ids.filter(|&id| id != NO_CGROUP) {
            self.above.entry(id).or_insert_with(|| lineage(id));
        }
    }

    fn root(&self) -> Option<u64> {
        self.above.values().find_map(|above| above.first().copied())
    }

    /// What the wanted ones have counted. The root has what belongs to no cgroup.
    pub(super) fn add_up<'v>(
        &self,
        entries: impl Iterator<Item = (u64, &'v [u8])>,
        wanted: &HashSet<u64>,
    ) -> HashMap<u64, CgroupSums> {
        let mut sums: HashMap<u64, CgroupSums> = HashMap::new();
        let is_wanted = |id: &u64| wanted.contains(id);
        for (id, value) in entries {
            let above = self.above.get(&id).map(Vec::as_slice).unwrap_or_default();
            let own = if id == NO_CGROUP { self.root().unwrap_or_default() } else { id };
            for &of in above.iter().chain([&own]).filter(|of| is_wanted(of)) {
                sums.entry(of).or_default().add(value);
            }
        }
        for (&id, retired) in self.retired.iter().filter(|(id, _)| is_wanted(id)) {
            sums.entry(id).or_default().add_sums(retired);
        }
        sums
    }

    /// Takes in what those counted that are gone. Answers the ones that need not be known any more: those that have
    /// counted nothing since they were last looked at.
    pub(super) fn retire<'v>(&mut self, gone: impl Iterator<Item = (u64, &'v [u8])>, alive: &HashSet<u64>) -> Vec<u64> {
        let mut still = HashMap::new();
        let mut retired = Vec::new();
        for (id, value) in gone {
            if self.leaving.get(&id).is_none_or(|before| before != value) {
                still.insert(id, value.to_vec());
                continue;
            }
            for above in self.above.remove(&id).unwrap_or_default() {
                if alive.contains(&above) {
                    self.retired.entry(above).or_default().add(value);
                }
            }
            retired.push(id);
        }
        self.leaving = still;
        self.retired.retain(|id, _| alive.contains(id));
        retired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(counts: [u64; 2]) -> Vec<u8> {
        counts.iter().flat_map(|count| [*count, 10 * count, 5 * count]).flat_map(u64::to_ne_bytes).collect()
    }

    fn total(sums: &HashMap<u64, CgroupSums>, id: u64) -> Option<u64> {
        sums.get(&id).map(|sums| sums.total(0, 1).count)
    }

    #[test]
    fn parents_have_what_their_children_have() {
        let mut sums = Sums::default();
        // 1 is the root, 2 is below it, 3 and 4 are below 2.
        let lineage = |id| match id {
            1 => vec![],
            2 => vec![1],
            _ => vec![1, 2],
        };
        let mut counts = vec![
            (0, value([1, 0])),
            (1, value([0, 1])),
            (2, value([10, 0])),
            (3, value([0, 100])),
            (4, value([1000, 0])),
        ];
        let wanted: HashSet<u64> = [1, 2, 3, 7].into();
        sums.learn(counts.iter().map(|(id, _)| *id), lineage);
        let first = sums.add_up(counts.iter().map(|(id, value)| (*id, &value[..])), &wanted);
        assert_eq!([1, 2, 3, 4, 7].map(|id| total(&first, id)), [Some(1112), Some(1110), Some(100), None, None]);
        assert_eq!(first[&3].total(0, 1), Sum { count: 100, enabled_ns: 1000, running_ns: 500 });

        // 4 is removed; as long as it changes it stays.
        let alive: HashSet<u64> = [1, 2, 3].into();
        let leave = |sums: &mut Sums, counts: &[(u64, Vec<u8>)]| {
            sums.retire(counts.iter().filter(|(id, _)| *id == 4).map(|(id, value)| (*id, &value[..])), &alive)
        };
        assert!(leave(&mut sums, &counts).is_empty());
        counts[4].1 = value([1001, 0]);
        assert!(leave(&mut sums, &counts).is_empty());
        assert_eq!(leave(&mut sums, &counts), [4]);
        counts.pop();
        assert_eq!(sums.known(), 3);
        let second = sums.add_up(counts.iter().map(|(id, value)| (*id, &value[..])), &wanted);
        assert_eq!([1, 2, 3].map(|id| total(&second, id)), [Some(1113), Some(1111), Some(100)]);
    }
}
