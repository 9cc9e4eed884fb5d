//! What the machine does, seen from outside.

use super::*;
use pmux_abi::attr::{Attr, AttrFlags, breakpoint};
use pmux_engine::engine::Census;
use pmux_engine::pmu::OverflowBy;
use pmux_engine::{Count, CpuId, Nanos, PmuId, Target, TaskId};

const CPU: [CpuId; 4] = [CpuId(0), CpuId(1), CpuId(2), CpuId(3)];
const MS: Nanos = Nanos(1_000_000);

fn world(description: Description) -> World {
    World::new(description, 1).unwrap_or_else(|error| panic!("{error}"))
}

fn named(world: &World, name: &str, flags: AttrFlags) -> (PmuId, Attr) {
    let (pmu, attr) = world.event(name).unwrap_or_else(|| panic!("no event {name}"));
    (pmu, Attr { flags, ..attr })
}

fn open(world: &mut World, name: &str, flags: AttrFlags, target: Target) -> Event {
    let event = named(world, name, flags);
    world.open(&[event], target, Start::Enabled).map_or_else(|error| panic!("{error}"), |events| events[0])
}

fn count(world: &World, event: Event) -> Count {
    world.read(event).unwrap_or_else(|error| panic!("{error}"))
}

fn run(world: &mut World, task: TaskId, cpu: CpuId, span: Nanos) {
    world.run(&[(task, cpu)], span).unwrap_or_else(|error| panic!("{error}"));
}

fn all_well(world: &mut World) {
    world.check().unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn counts_are_rate_times_time() {
    let mut world = world(profiles::minimal(2));
    let task = world.task();
    let cycles = open(&mut world, "cycles", AttrFlags::empty(), Target::task(task));
    let instructions = open(&mut world, "instructions", AttrFlags::empty(), Target::task(task));
    run(&mut world, task, CPU[0], Nanos(10 * MS.0));
    world.idle(MS);
    run(&mut world, task, CPU[1], Nanos(10 * MS.0));
    assert_eq!(count(&world, cycles), Count { value: 60 * MS.0, enabled: Nanos(20 * MS.0), running: Nanos(20 * MS.0) });
    assert_eq!(count(&world, instructions).value, 80 * MS.0);
    assert_eq!(
        world.truth(cycles).map(|truth| (truth.counted, truth.enabled)),
        Some((60 * MS.0, (60 * MS.0, 60 * MS.0)))
    );
    all_well(&mut world);
    world.close(cycles);
    world.close(instructions);
    assert_eq!(world.engine().census(), Census::default());
    all_well(&mut world);
}

#[test]
fn narrow_counters_lose_nothing_however_they_tell() {
    for overflow in [OverflowBy::Interrupt, OverflowBy::Nmi, OverflowBy::Poll] {
        let width = if overflow == OverflowBy::Poll { 24 } else { 12 };
        let mut world = world(profiles::around(1, PmuDescription::hardware("cpu", 2, width, overflow)));
        let task = world.task();
        let events = ["cycles", "instructions", "cache-misses"]
            .map(|name| open(&mut world, name, AttrFlags::empty(), Target::task(task)));
        run(&mut world, task, CPU[0], Nanos(30 * MS.0));
        for event in events {
            let truth = world.truth(event).unwrap_or_default();
            assert_eq!(count(&world, event).value, truth.counted, "{overflow:?}");
            assert!(truth.counted > 1 << 12);
        }
        all_well(&mut world);
    }
}

#[test]
fn debug_registers_see_what_is_accessed() {
    let mut world = world(profiles::arm_neoverse(1));
    let task = world.task();
    let mut watch = |address, len, bp_type| {
        let event =
            world.description().breakpoint(address, len, bp_type).unwrap_or_else(|| panic!("no debug registers"));
        world
            .open(&[event], Target::task(task), Start::Enabled)
            .map_or_else(|error| panic!("{error}"), |events| events[0])
    };
    let (writes, all, code) =
        (watch(0x1000, 8, breakpoint::W), watch(0x1000, 8, breakpoint::RW), watch(0x1000, 8, breakpoint::X));
    for (address, access, times) in [
        (0x1000, Access::Write, 3),
        (0x1007, Access::Read, 2),
        (0x1008, Access::Write, 9),
        (0x1000, Access::Execute, 1),
    ] {
        assert_eq!(world.access(task, address, access, times), Ok(()));
    }
    assert_eq!([writes, all, code].map(|event| count(&world, event).value), [3, 5, 1]);
    assert_eq!(world.truth(all).map(|truth| truth.enabled), Some((5, 5)));
    all_well(&mut world);
}

#[test]
fn a_caller_that_reaches_its_own_cpu_only_waits_for_doorbells() {
    let mut world = world(Description { reach: Reach::OwnCpu, ..profiles::minimal(4) });
    let task = world.task();
    assert_eq!(world.place(CPU[3], Some(task)), Ok(()));
    let cycles = open(&mut world, "cycles", AttrFlags::empty(), Target::task(task));
    world.fault(MachineFault::DoorbellLate(Nanos(50_000)));
    world.fault(MachineFault::DoorbellTwice);
    world.pass(MS);
    let before = world.now();
    let counted = count(&world, cycles).value;
    assert!(world.now().0 >= before.0 + 50_000, "a caller that waits for a doorbell lets time pass");
    assert_eq!(Some(counted), world.truth(cycles).map(|truth| truth.counted));
    assert_eq!(world.disable(cycles), Ok(()));
    let truth = world.truth(cycles).unwrap_or_default();
    assert!(truth.enabled.0 < truth.enabled.1, "when exactly it was enabled is unknown outside");
    all_well(&mut world);
}

#[test]
fn tasks_on_one_cpu_take_turns() {
    let mut world = world(profiles::minimal(1));
    let tasks = [world.task(), world.task(), world.task()];
    let clocks = tasks.map(|task| open(&mut world, "task-clock", AttrFlags::empty(), Target::task(task)));
    let switches = open(&mut world, "cs", AttrFlags::empty(), Target::task(tasks[0]));
    let before = world.now();
    world.run(&tasks.map(|task| (task, CPU[0])), Nanos(5 * MS.0)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(world.now().0 - before.0, 15 * MS.0);
    assert_eq!(clocks.map(|clock| count(&world, clock).value), [5 * MS.0; 3]);
    assert!(count(&world, switches).value >= 4);
    all_well(&mut world);
}
