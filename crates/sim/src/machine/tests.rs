//! What the machine does, seen from outside.

use super::*;
use pmux_abi::attr::{Attr, AttrFlags, breakpoint};
use pmux_engine::pmu::OverflowBy;
use pmux_engine::shell::Census;
use pmux_engine::system_wide::{Absent, SetScope};
use pmux_engine::{Count, CpuId, EventState, Nanos, PmuId, Target, TaskId};

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
fn a_program_is_gone_through_in_the_tasks_own_time() {
    let mut world = world(profiles::minimal(2));
    let task = world.task();
    let busy = Rates::idle().with(Kind::CYCLES, Rate::per_ns(5));
    let steps = vec![
        Step::Run(MS, Box::new(busy.clone())),
        Step::Touch(7),
        Step::Run(MS, Box::new(Rates::idle())),
        Step::Fork(Arc::new(Program::steady(busy.clone()))),
        Step::Migrate(CPU[1]),
        Step::Run(MS, Box::new(busy)),
        Step::Exit,
    ];
    let events = ["cycles", "page-faults"].map(|name| open(&mut world, name, AttrFlags::INHERIT, Target::task(task)));
    assert_eq!(world.load(task, Arc::new(Program { steps, after: After::GoOn })), Ok(()));
    run(&mut world, task, CPU[0], Nanos(10 * MS.0));
    assert_eq!(count(&world, events[1]).value, 7);
    let truth = world.truth(events[0]).unwrap_or_default();
    // The child runs as long as its parent does after the fork: 1 ms.
    assert_eq!(count(&world, events[0]).value, truth.counted);
    assert_eq!(truth.counted, 5 * MS.0 * (1 + 1 + 1));
    assert!(!world.lives(task));
    all_well(&mut world);
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
fn a_set_follows_hotplug() {
    let mut world = world(profiles::minimal(4));
    let cycles = named(&world, "cycles", AttrFlags::empty());
    let mask = CPU.into_iter().collect();
    let (set, events) = world
        .open_set(&[vec![cycles]], SetScope::Everything, &mask, Absent::Await)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(world.arm(set), Ok(()));
    let task = world.task();
    for _ in 0..3 {
        run(&mut world, task, CPU[2], MS);
        assert_eq!(world.offline(CPU[2]), Ok(()));
        run(&mut world, task, CPU[0], MS);
        assert_eq!(world.online(CPU[2]), Ok(()));
        all_well(&mut world);
    }
    assert_eq!(
        world.read_on(events[0], CPU[2]).map(|count| (count.value, count.running)),
        Ok((9 * MS.0, Nanos(3 * MS.0)))
    );
    assert_eq!(count(&world, events[0]).value, 18 * MS.0);
    world.close_set(set);
    all_well(&mut world);
}

#[test]
fn a_caller_that_reaches_its_own_cpu_only_waits_for_doorbells() {
    let mut world = world(Description { reach: Reach::OwnCpu, ..profiles::minimal(4) });
    let task = world.task();
    assert_eq!(world.place(CPU[3], Some(task)), Ok(()));
    let cycles = open(&mut world, "cycles", AttrFlags::empty(), Target::task(task));
    world.fault(Fault::DoorbellLate(Nanos(50_000)));
    world.fault(Fault::DoorbellTwice);
    world.pass(MS);
    let before = world.now();
    let counted = count(&world, cycles).value;
    assert!(world.now().0 >= before.0 + 50_000, "whoever waits for a doorbell lets time pass");
    assert_eq!(Some(counted), world.truth(cycles).map(|truth| truth.counted));
    assert_eq!(world.disable(cycles), Ok(()));
    let truth = world.truth(cycles).unwrap_or_default();
    assert!(truth.enabled.0 < truth.enabled.1, "when exactly it was enabled, nobody outside knows");
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

#[test]
fn one_seed_gives_one_run() {
    let story = || {
        let mut world = world(Description { reach: Reach::OwnCpu, trace: Trace::On, ..profiles::intel_skylake(4) });
        let task = world.task();
        let events = ["cycles", "instructions", "branches", "cache-misses", "bus-cycles", "r1", "r2"]
            .map(|name| open(&mut world, name, AttrFlags::INHERIT, Target::task(task)));
        let child = world.fork(task).map(|(child, _)| child).unwrap_or(task);
        world.run(&[(task, CPU[0]), (child, CPU[1])], Nanos(7 * MS.0)).unwrap_or_else(|error| panic!("{error}"));
        world.fault(Fault::Program(1));
        run(&mut world, child, CPU[3], MS);
        (events.map(|event| count(&world, event)), world.timeline())
    };
    assert_eq!(story(), story());
}

#[test]
fn the_timeline_shows_who_held_which_counter() {
    let mut world = world(Description { trace: Trace::On, ..profiles::minimal(1) });
    let task = world.task();
    let events = ["cycles", "instructions", "branches"]
        .map(|name| open(&mut world, name, AttrFlags::empty(), Target::task(task)));
    run(&mut world, task, CPU[0], Nanos(6 * MS.0));
    let timeline = world.timeline();
    for event in events {
        let spans = timeline.spans.iter().filter(|span| span.event == event);
        let held: u64 = spans.map(|span| span.to.0 - span.from.0).sum();
        assert_eq!(Nanos(held), count(&world, event).running);
    }
    assert!(timeline.turns.iter().any(|turn| turn.task == task && turn.to.0 - turn.from.0 == 6 * MS.0));
}

#[test]
fn what_the_machine_withholds_is_named() {
    let mut world = world(profiles::minimal(1));
    let task = world.task();
    let cycles = open(&mut world, "cycles", AttrFlags::empty(), Target::task(task));
    world.fault(Fault::Read(1));
    run(&mut world, task, CPU[0], MS);
    assert_eq!(world.truth(cycles).map(|truth| truth.lost), Some(3 * MS.0));
    run(&mut world, task, CPU[0], MS);
    assert_eq!(count(&world, cycles).value, 3 * MS.0);
    assert_eq!(world.state_of(cycles), Ok(EventState::Inactive));
    all_well(&mut world);
}
