//! The meaning of turns, on examples that were worked out by hand.

use super::*;
use PlannedState::{Error, On, Waits};
use PmuUse::{Exclusive, Shared};
use Priority::{Flexible, Pinned};
use Side::{Cpu, Task};

const ANY: u64 = u64::MAX;

fn group(side: Side, priority: Priority, pmu_use: PmuUse, events: &[u64]) -> Group {
    Group { side, priority, pmu_use, events: events.iter().map(|&mask| SlotMask(mask)).collect() }
}

fn flexible(side: Side, events: &[u64]) -> Group {
    group(side, Flexible, Shared, events)
}

fn pinned(side: Side, events: &[u64]) -> Group {
    group(side, Pinned, Shared, events)
}

/// The plans of this turn and of the following ones, each as long as the others.
fn plans(mut core: Core, turns: usize) -> Vec<Vec<PlannedState>> {
    let plan = |_| {
        let plan = core.plan();
        core.pass(1);
        core.tick();
        plan
    };
    (0..turns).map(plan).collect()
}

#[test]
fn three_on_two_counters_are_on_for_two_thirds() {
    let core = Core::new(2, vec![flexible(Task, &[ANY]), flexible(Task, &[ANY]), flexible(Task, &[ANY])]);
    assert_eq!(plans(core, 4), [[On, On, Waits], [Waits, On, On], [On, Waits, On], [On, On, Waits]]);
}

#[test]
fn the_cpu_and_the_task_go_first_in_turn() {
    let core = Core::new(1, vec![flexible(Task, &[ANY]), flexible(Cpu, &[ANY])]);
    assert_eq!(plans(core, 4), [[Waits, On], [On, Waits], [Waits, On], [On, Waits]]);
}

#[test]
fn pinned_ones_come_first_the_cpus_before_the_tasks() {
    let core = Core::new(1, vec![flexible(Cpu, &[ANY]), pinned(Task, &[ANY]), pinned(Cpu, &[ANY])]);
    assert!(!core.has_room(0));
    assert_eq!(plans(core, 2), [[Waits, Error, On]; 2]);
}

#[test]
fn an_exclusive_group_is_alone_or_waits() {
    let alone = group(Task, Flexible, Exclusive, &[ANY]);
    let core = Core::new(4, vec![flexible(Task, &[ANY]), alone.clone(), flexible(Cpu, &[ANY])]);
    // The CPU's own first; then the task's, whose head has been on, so that it is the exclusive group's turn; and
    // again.
    assert_eq!(plans(core, 4), [[On, Waits, On], [Waits, On, Waits], [On, Waits, On], [Waits, On, Waits]]);
    let core = Core::new(4, vec![alone, pinned(Cpu, &[ANY])]);
    assert!(!core.has_room(0), "it will never be alone");
}
