//! A family against a slow and obvious model: a list of everything that was reported.
#![allow(clippy::unwrap_used)]

use super::{Attribution, Counting, Family};
use crate::count::Count;
use crate::id::{Nanos, TaskId};
use alloc::vec;
use proptest::prelude::*;

fn count(value: u64) -> Count {
    Count { value, enabled: Nanos(value), running: Nanos(value) }
}

proptest! {
    #[test]
    fn sums_match_what_was_reported(
        ops in prop::collection::vec((0_u8..3, 0_u64..6, 0_u64..6, 0_usize..2, 0_u64..100), 0..60),
        each: bool,
    ) {
        let attribution = if each { Attribution::EachTask } else { Attribution::Totals };
        let mut family = Family::new(TaskId(0), vec![vec![], vec![]], attribution, Counting::ByReports, Nanos(0));
        let mut alive = vec![0_u64];
        let mut sums = [0_u64; 2];
        for (time, (what, task, other, index, value)) in ops.into_iter().enumerate() {
            let now = Nanos(time as u64);
            match what {
                0 => {
                    let known = family.find(TaskId(task)).is_some();
                    prop_assert_eq!(family.fork(TaskId(task), TaskId(other), now).is_ok(), known);
                    if known && !alive.contains(&other) {
                        alive.push(other);
                    }
                }
                1 => {
                    let _ = family.exit(TaskId(task), now);
                    alive.retain(|&other| other != task);
                }
                _ => {
                    family.report(TaskId(task), index, count(value)).unwrap();
                    sums[index] += value;
                }
            }
            prop_assert_eq!(family.live(), alive.len());
            prop_assert_eq!([family.retired(0).value, family.retired(1).value], sums);
            if !each {
                prop_assert!(family.tasks().count() <= alive.len() + 1, "an exited child leaves nothing behind");
            }
        }
        let kept = family.tasks().filter_map(|(_, task)| task.counts().first()).map(|count| count.value);
        let kept: u64 = kept.sum();
        let most = if each { sums[0] } else { 0 };
        prop_assert!(kept <= most);
    }
}

#[test]
fn a_child_is_folded_once() {
    for attribution in [Attribution::Totals, Attribution::EachTask] {
        let mut family = Family::new(TaskId(0), vec![vec![]], attribution, Counting::ByEngine, Nanos(0));
        family.fork(TaskId(0), TaskId(1), Nanos(0)).unwrap();
        for _ in 0..2 {
            assert_eq!(family.fold_child(TaskId(1), [(0, count(5))], Nanos(1)), None);
            assert_eq!((family.retired(0).value, family.live()), (5, 1));
        }
        family.fold_child(TaskId(0), [(0, count(7))], Nanos(2));
        assert_eq!((family.retired(0).value, family.live()), (5, 0), "the root keeps its own count");
    }
}

/// A fork beside a switch, step by step, in every order.
mod switches {
    use super::super::{Adoption, Attribution, Counting, Family, FamilySwitch, Mark};
    use super::*;
    use crate::GroupId;
    use crate::inherit::FamilyTaskId;
    use alloc::vec::Vec;

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Fork {
        Start,
        Marked(FamilyTaskId, Mark),
        Looked(FamilyTaskId, Mark, bool),
        Done,
    }

    /// A switch that is under way: how many of its steps are done, whether it has to reach the child, and how many had joined.
    #[derive(Clone, Copy)]
    struct Walk {
        switch: FamilySwitch,
        at: usize,
        reaches_child: bool,
        joined: u64,
    }

    struct Race {
        family: Family,
        parent: bool,
        child: Option<bool>,
        fork: Fork,
        walks: Vec<Walk>,
    }

    impl Race {
        fn new(group: GroupId, switches: &[FamilySwitch]) -> (Self, GroupId) {
            let family = Family::new(TaskId(1), vec![vec![]], Attribution::Totals, Counting::ByEngine, Nanos(0));
            let walk = |&switch| Walk { switch, at: 0, reaches_child: false, joined: 0 };
            let walks = switches.iter().map(walk).collect();
            (Self { family, parent: true, child: None, fork: Fork::Start, walks }, group)
        }

        fn joined(&self) -> bool {
            self.family.counted().next().is_some()
        }

        /// As the engine's `inherit`. Says whether there was anything left to do.
        fn step_fork(&mut self, group: GroupId) -> bool {
            self.fork = match self.fork {
                Fork::Start => {
                    let mark = self.family.mark();
                    Fork::Marked(self.family.fork(TaskId(1), TaskId(2), Nanos(0)).unwrap(), mark)
                }
                Fork::Marked(task, mark) => Fork::Looked(task, mark, self.parent),
                Fork::Looked(task, mark, on) => match self.family.adopt(task, group, mark) {
                    Adoption::Joined => {
                        self.child = Some(on);
                        Fork::Done
                    }
                    Adoption::Stale => {
                        let (mark, switched) = self.family.switched_since(mark);
                        let on = switched.last().map_or(on, |(_, switch)| switch == FamilySwitch::On);
                        Fork::Looked(task, mark, on)
                    }
                    Adoption::Unwanted => unreachable!("it lives and is new"),
                },
                Fork::Done => return false,
            };
            true
        }

        /// As the engine's `carry_through`; switches have turns, so the second one begins when the first has ended.
        fn step_walk(&mut self) -> bool {
            let reaches = self.joined();
            let Some(walk) = self.walks.first_mut() else { return false };
            match walk.at {
                0 => {
                    self.family.note_switch(0, walk.switch);
                    (walk.joined, walk.reaches_child) = (self.family.joined(), reaches);
                    walk.at = 1;
                }
                1 => {
                    self.parent = walk.switch == FamilySwitch::On;
                    walk.at = 2;
                }
                2 => {
                    if walk.reaches_child {
                        self.child = Some(walk.switch == FamilySwitch::On);
                    }
                    walk.at = 3;
                }
                _ if self.family.joined() != walk.joined => {
                    (walk.joined, walk.reaches_child, walk.at) = (self.family.joined(), reaches, 2);
                }
                _ => {
                    self.family.note_switch(0, walk.switch);
                    self.walks.remove(0);
                }
            }
            true
        }
    }

    #[test]
    fn a_child_ends_up_as_its_parent_in_every_order() {
        let mut arena = crate::arena::Arena::<(), crate::id::GroupTag>::default();
        let group = arena.insert(());
        let mut orders = 0;
        for switches in [
            &[FamilySwitch::Off][..],
            &[FamilySwitch::On],
            &[FamilySwitch::Off, FamilySwitch::On],
            &[FamilySwitch::On, FamilySwitch::Off],
        ] {
            // Each bit says whose step is next; when one of the two is done, the other goes on alone.
            for order in 0..1_u32 << 12 {
                let (mut race, group) = Race::new(group, switches);
                for step in 0.. {
                    let fork_first = order >> step.min(31) & 1 == 0;
                    let moved = if fork_first { race.step_fork(group) } else { race.step_walk() };
                    if !moved && !race.step_fork(group) && !race.step_walk() {
                        break;
                    }
                }
                assert_eq!(race.child, Some(race.parent), "{switches:?} in order {order:b}");
                orders += 1;
            }
        }
        assert_eq!(orders, 4 << 12);
    }
}
