//! The meaning of families, on examples that were worked out by hand.

use super::*;

const A: TaskId = TaskId(1);
const B: TaskId = TaskId(2);
const C: TaskId = TaskId(3);

fn event(rate: u64) -> NewEvent {
    NewEvent { rate, waits_for_exec: false }
}

/// One task with an inherited group of two events, enabled.
fn world() -> (World, RootKey) {
    let mut world = World::new();
    world.task(A);
    let root = world.open(A, &[event(1), event(10)], Inherit::Children);
    world.enable(root, Part::Group);
    (world, root)
}

fn fork(world: &mut World, parent: TaskId, child: TaskId) {
    world.fork(parent, child, |_| false);
}

/// The values of a group: own, live and retired of each event.
fn parts(world: &World, root: RootKey) -> Vec<(u64, u64, u64)> {
    world.tally(root).iter().map(|it| (it.own.value, it.live.value, it.retired.value)).collect()
}

fn totals(world: &World, root: RootKey) -> Vec<u64> {
    world.tally(root).iter().map(|tally| tally.total().value).collect()
}

#[test]
fn a_count_is_own_and_live_and_retired() {
    let (mut world, root) = world();
    world.run(A, 1);
    fork(&mut world, A, B);
    world.run(B, 2);
    fork(&mut world, B, C);
    world.run(C, 4);
    assert_eq!(parts(&world, root), [(1, 6, 0), (10, 60, 0)]);
    world.exit(B);
    world.run(B, 100);
    world.run(C, 8);
    assert_eq!(parts(&world, root), [(1, 12, 2), (10, 120, 20)]);
    assert_eq!(world.live_children(root), 1);
    world.exit(C);
    assert_eq!(totals(&world, root), [15, 150]);
    let reported: Vec<_> = world.reports(root).iter().map(|(task, counts)| (*task, counts[0].value)).collect();
    assert_eq!(reported, [(B, 2), (C, 12)], "each child's own numbers");
    let times = world.tally(root)[1].total();
    assert_eq!((times.enabled, times.running), (Nanos(15), Nanos(15)));
}

#[test]
fn a_parent_that_exits_first_leaves_its_root_to_its_children() {
    let (mut world, root) = world();
    fork(&mut world, A, B);
    world.exit(A);
    world.run(A, 100);
    world.run(B, 3);
    fork(&mut world, B, C);
    world.run(C, 5);
    assert_eq!(parts(&world, root), [(0, 8, 0), (0, 80, 0)]);
    world.disable(root, Part::Event(1));
    world.run(C, 1);
    assert_eq!(totals(&world, root), [9, 80], "and it is still switched from the root");
}

#[test]
fn an_exec_that_changes_rights_ends_it_for_good() {
    let (mut world, root) = world();
    fork(&mut world, A, B);
    world.run(B, 1);
    world.exec(B, Program::ChangesRights);
    world.run(B, 100);
    world.enable(root, Part::Group);
    world.run(B, 100);
    fork(&mut world, B, C);
    world.run(C, 100);
    assert_eq!(parts(&world, root), [(0, 1, 0), (0, 10, 0)]);
    world.exit(B);
    assert_eq!(parts(&world, root), [(0, 0, 1), (0, 0, 10)]);
}
