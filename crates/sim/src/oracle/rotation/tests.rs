//! The meaning of turns, on examples that were worked out by hand.

use super::*;
use Company::{Exclusive, Shared};
use Fate::{Error, On, Waits};
use Priority::{Flexible, Pinned};
use Side::{Cpu, Task};

const ANY: u64 = u64::MAX;

fn group(side: Side, priority: Priority, company: Company, events: &[u64]) -> Group {
    Group { side, priority, company, events: events.iter().map(|&mask| SlotMask(mask)).collect() }
}

fn flexible(side: Side, events: &[u64]) -> Group {
    group(side, Flexible, Shared, events)
}

fn pinned(side: Side, events: &[u64]) -> Group {
    group(side, Pinned, Shared, events)
}

/// The shares, in lowest terms.
fn shares(core: &Core) -> Vec<(usize, usize)> {
    let lowest = |share: &Share| {
        let divides = |it: &usize| share.on.is_multiple_of(*it) && share.of.is_multiple_of(*it);
        let most = (1..=share.of).rev().find(divides).unwrap_or(1);
        (share.on / most, share.of / most)
    };
    core.shares().iter().map(lowest).collect()
}

#[test]
fn three_on_two_counters_are_on_for_two_thirds() {
    let core = Core::new(2, vec![flexible(Task, &[ANY]), flexible(Task, &[ANY]), flexible(Task, &[ANY])]);
    assert_eq!(core.plans(4), [[On, On, Waits], [Waits, On, On], [On, Waits, On], [On, On, Waits]]);
    assert_eq!(shares(&core), [(2, 3); 3]);
}

#[test]
fn the_cpu_and_the_task_go_first_in_turn() {
    let core = Core::new(1, vec![flexible(Task, &[ANY]), flexible(Cpu, &[ANY])]);
    assert_eq!(core.plans(4), [[Waits, On], [On, Waits], [Waits, On], [On, Waits]]);
}

#[test]
fn pinned_ones_come_first_the_cpus_before_the_tasks() {
    let core = Core::new(1, vec![flexible(Cpu, &[ANY]), pinned(Task, &[ANY]), pinned(Cpu, &[ANY])]);
    assert_eq!(core.plans(2), [[Waits, Error, On]; 2]);
    assert!(!core.has_room(0) && core.starved(10).is_empty());
    assert_eq!(shares(&core), [(0, 1), (0, 1), (1, 1)]);
}

#[test]
fn an_exclusive_group_is_alone_or_waits() {
    let alone = group(Task, Flexible, Exclusive, &[ANY]);
    let core = Core::new(4, vec![flexible(Task, &[ANY]), alone.clone(), flexible(Cpu, &[ANY])]);
    // The CPU's own first; then the task's, whose head has been on, so that it is the exclusive group's turn; and
    // again.
    assert_eq!(core.plans(4), [[On, Waits, On], [Waits, On, Waits], [On, Waits, On], [Waits, On, Waits]]);
    let core = Core::new(4, vec![alone, pinned(Cpu, &[ANY])]);
    assert!(!core.has_room(0), "it will never be alone");
}

fn random_core(random: &mut fastrand::Rng) -> Core {
    let count = random.u8(1..=4);
    let mut groups = Vec::new();
    for _ in 0..random.usize(1..=6) {
        let events: Vec<_> = (0..random.usize(1..=2)).map(|_| random.u64(1..1 << count)).collect();
        let side = if random.bool() { Cpu } else { Task };
        let priority = if random.u8(0..4) == 0 { Pinned } else { Flexible };
        let company = if random.u8(0..6) == 0 { Exclusive } else { Shared };
        groups.push(group(side, priority, company, &events));
    }
    Core::new(count, groups)
}

#[test]
fn every_plan_of_the_model_is_lawful_and_nobody_starves() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let mut core = random_core(&mut random);
        for _ in 0..10 {
            assert_eq!(core.is_lawful(&core.plan()), Ok(()), "{core:?}");
            assert_eq!(core.starved(core.patience()), [], "{core:?}");
            core.tick();
        }
    }
}

fn mark(core: &Core, had: &mut [bool]) {
    for (had, fate) in had.iter_mut().zip(core.plan()) {
        *had |= fate == On;
    }
}

/// What happens over and over again.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Beat {
    Tick,
    Leave,
    Return,
}

/// Every rhythm of up to `longest` beats in which the task leaves as often as it comes back.
fn rhythms(longest: u32) -> Vec<Vec<Beat>> {
    let beats = [Beat::Tick, Beat::Leave, Beat::Return];
    let all = (1..=longest).flat_map(|length| {
        (0..3_usize.pow(length))
            .map(move |code| (0..length).map(|place| beats[code / 3_usize.pow(place) % 3]).collect())
    });
    let lawful = |rhythm: &Vec<Beat>| {
        let mut here = true;
        let every = rhythm.iter().all(|beat| match beat {
            Beat::Tick => true,
            Beat::Leave => std::mem::replace(&mut here, false),
            Beat::Return => !std::mem::replace(&mut here, true),
        });
        every && here && rhythm.contains(&Beat::Tick)
    };
    all.filter(lawful).collect()
}

/// Whether everybody has a turn in a rhythm, with so much time before each beat.
fn starves_nobody(mut core: Core, rhythm: &[Beat], mut span_ns: impl FnMut() -> u64) -> bool {
    let mut had = vec![false; core.groups().len()];
    mark(&core, &mut had);
    for beat in std::iter::repeat_n(rhythm, 20).flatten() {
        core.pass(span_ns());
        match beat {
            Beat::Tick => core.tick(),
            Beat::Leave => core.task_leaves(),
            Beat::Return => core.task_comes_back(),
        }
        mark(&core, &mut had);
    }
    had.iter().all(|had| *had)
}

#[test]
fn no_rhythm_starves_anybody() {
    let mut random = fastrand::Rng::with_seed(9);
    for (count, cpu, task) in [(1, 1, 1), (1, 1, 2), (1, 2, 1), (1, 2, 2), (1, 3, 2), (1, 2, 3), (2, 3, 2)] {
        let groups = [vec![flexible(Cpu, &[ANY]); cpu], vec![flexible(Task, &[ANY]); task]].concat();
        let core = || Core::new(count, groups.clone());
        for rhythm in &rhythms(6) {
            assert!(starves_nobody(core(), rhythm, || 10), "{rhythm:?} of {:?}", core());
            assert!(starves_nobody(core(), rhythm, || random.u64(0..4)), "{rhythm:?} of {:?} with any spans", core());
        }
    }
}
