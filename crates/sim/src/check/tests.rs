//! A planted fault for each checker, which must find it; and random runs without one, in which none may find anything.

use super::{Checker, Violation};
use crate::machine::{Description, Event, Fault, Planted, PmuDescription, Reach, Start, World, profiles};
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::pmu::OverflowBy;
use pmux_engine::{CpuId, Nanos, PmuId, Target};

const CPU: CpuId = CpuId(0);
const MS: Nanos = Nanos(1_000_000);

fn world(description: Description) -> World {
    World::new(description, 7).unwrap_or_else(|error| panic!("{error}"))
}

fn named(world: &World, name: &str, flags: AttrFlags) -> (PmuId, Attr) {
    let (pmu, attr) = world.event(name).unwrap_or_else(|| panic!("no event {name}"));
    (pmu, Attr { flags, ..attr })
}

fn open(world: &mut World, names: &[&str], flags: AttrFlags, target: Target) -> Event {
    let attrs: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let of_leader = AttrFlags::PINNED | AttrFlags::EXCLUSIVE;
            named(world, name, if index == 0 { flags } else { flags - of_leader })
        })
        .collect();
    world.open(&attrs, target, Start::Enabled).map_or_else(|error| panic!("{error}"), |events| events[0])
}

/// What the first violation of a story is found by, with a misdeed planted and without.
fn found_by(
    planted: Planted,
    story: impl Fn(&mut World) -> Result<(), Violation>,
    description: &Description,
) -> Checker {
    let innocent = story(&mut world(description.clone()));
    assert_eq!(innocent, Ok(()), "without a misdeed nobody finds anything");
    let mut guilty = world(description.clone());
    guilty.plant(Some(planted));
    match story(&mut guilty) {
        Ok(()) => panic!("nobody has found {planted:?}"),
        Err(violation) => {
            assert!(!violation.to_string().is_empty());
            violation.checker
        }
    }
}

/// A parent and a child on one CPU by turns, with inherited counters.
fn clones(world: &mut World) -> Result<(), Violation> {
    let parent = world.task();
    open(world, &["cycles"], AttrFlags::INHERIT, Target::task(parent));
    let child = world.fork(parent).map_or(parent, |(child, _)| child);
    for _ in 0..3 {
        for task in [parent, child] {
            // Both live, and the CPU is there.
            let _ = world.place(CPU, Some(task));
            world.check_step()?;
            world.pass(MS);
        }
    }
    let _ = world.place(CPU, None);
    world.check()
}

/// One task, some groups, and all closed in the end.
fn plain(world: &mut World, groups: &[&[&str]], flags: AttrFlags) -> Result<(), Violation> {
    let task = world.task();
    let events: Vec<_> = groups.iter().map(|names| open(world, names, flags, Target::task(task))).collect();
    let _ = world.run(&[(task, CPU)], Nanos(5 * MS.0));
    world.check_step()?;
    let _ = world.place(CPU, Some(task));
    world.pass(Nanos(MS.0 / 2));
    world.check()?;
    events.into_iter().for_each(|event| world.close(event));
    world.check()
}

#[test]
fn a_count_that_is_lost_on_a_hand_over_is_found() {
    assert_eq!(found_by(Planted::LoseHandedOver, clones, &profiles::minimal(1)), Checker::Counts);
}

#[test]
fn a_count_that_is_lost_when_a_counter_stops_is_found() {
    let story = |world: &mut World| plain(world, &[&["cycles"], &["branches"], &["cache-misses"]], AttrFlags::empty());
    assert_eq!(found_by(Planted::LoseWhatWasNotRead, story, &profiles::minimal(1)), Checker::Counts);
}

#[test]
fn a_wrap_that_nobody_tells_of_is_found() {
    let machine = profiles::around(1, PmuDescription::hardware("cpu", 2, 16, OverflowBy::Interrupt));
    let story = |world: &mut World| plain(world, &[&["cycles"]], AttrFlags::empty());
    assert_eq!(found_by(Planted::WrapUnnoticed, story, &machine), Checker::Counts);
}

#[test]
fn a_doubled_lease_is_found() {
    let story = |world: &mut World| plain(world, &[&["cycles"], &["branches"]], AttrFlags::empty());
    assert_eq!(found_by(Planted::DoubleLease, story, &profiles::minimal(1)), Checker::Leases);
}

#[test]
fn counters_that_are_not_given_back_are_found() {
    let story = |world: &mut World| plain(world, &[&["page-faults"], &["cs"]], AttrFlags::empty());
    assert_eq!(found_by(Planted::IgnoreRelease, story, &profiles::minimal(1)), Checker::Leftovers);
    assert_eq!(found_by(Planted::KeepGoing, leaving, &profiles::minimal(1)), Checker::Foreign);
}

/// A task with a counter of its own leaves its CPU.
fn leaving(world: &mut World) -> Result<(), Violation> {
    let task = world.task();
    open(world, &["cycles"], AttrFlags::empty(), Target::task(task));
    let _ = world.place(CPU, Some(task));
    world.pass(MS);
    let _ = world.place(CPU, None);
    world.check_step()
}

#[test]
fn half_a_group_is_found() {
    let story = |world: &mut World| {
        let task = world.task();
        open(world, &["cycles", "branches"], AttrFlags::empty(), Target::task(task));
        let _ = world.place(CPU, Some(task));
        world.check_step()
    };
    assert_eq!(found_by(Planted::StartHalfAGroup, story, &profiles::minimal(1)), Checker::Groups);
}

#[test]
fn a_pinned_group_that_is_neither_on_nor_in_error_is_found() {
    let story = |world: &mut World| {
        open(world, &["cycles"], AttrFlags::PINNED, Target::cpu(CPU));
        world.check_step()
    };
    assert_eq!(found_by(Planted::StartNoPinned, story, &profiles::minimal(1)), Checker::Pinned);
}

#[test]
fn a_counter_that_starts_late_is_found() {
    let story = |world: &mut World| plain(world, &[&["cycles"]], AttrFlags::empty());
    assert_eq!(found_by(Planted::StartLate, story, &profiles::minimal(1)), Checker::Times);
}

#[test]
fn a_clock_that_jumps_is_found() {
    let story = |world: &mut World| plain(world, &[&["cycles"]], AttrFlags::empty());
    assert_eq!(found_by(Planted::ClockJumps, story, &profiles::minimal(1)), Checker::Times);
}

#[test]
fn a_fork_that_nobody_tells_of_is_found() {
    assert_eq!(found_by(Planted::SilentFork, clones, &profiles::minimal(1)), Checker::Families);
}

#[test]
fn a_machine_that_does_not_heal_is_found() {
    let story = |world: &mut World| {
        let task = world.task();
        open(world, &["cycles"], AttrFlags::empty(), Target::task(task));
        world.fault(Fault::SlotHeld(CPU, PmuId(0), pmux_engine::pmu::Slot(0)));
        world.fault(Fault::SlotHeld(CPU, PmuId(0), pmux_engine::pmu::Slot(1)));
        let _ = world.run(&[(task, CPU)], MS);
        world.check_convergence()
    };
    assert_eq!(found_by(Planted::HealNothing, story, &profiles::minimal(1)), Checker::Convergence);
}

#[test]
fn locks_in_the_wrong_order_and_effects_under_them_are_found() {
    let story = |world: &mut World| plain(world, &[&["cycles"]], AttrFlags::empty());
    for planted in [Planted::LockBackwards, Planted::CallUnderLock] {
        assert_eq!(found_by(planted, story, &profiles::minimal(1)), Checker::Locks, "{planted:?}");
    }
}

#[test]
fn a_doorbell_that_never_rings_is_found() {
    let story = |world: &mut World| {
        let task = world.task();
        let _ = world.place(CpuId(1), Some(task));
        let event = open(world, &["cycles"], AttrFlags::empty(), Target::task(task));
        let _ = world.disable(event);
        world.check_step()
    };
    let machine = Description { reach: Reach::OwnCpu, ..profiles::minimal(2) };
    assert_eq!(found_by(Planted::DeafDoorbell, story, &machine), Checker::Doorbells);
}
