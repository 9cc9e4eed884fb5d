//! Samples on the simulated machine: each is in its ring, or counted as lost or dropped.
//!
//! What it is: samples whose number and time are known beforehand, and random stories with slow readers, in which nothing may be
//! unaccounted for ([`Checker::Samples`]).
//!
//! [`Checker::Samples`]: pmux_sim::check::Checker::Samples

use pmux_abi::attr::{Attr, AttrFlags, SampleFormat, Sampling};
use pmux_engine::{CpuId, Nanos, OutputError, PmuId, Target, TaskId};
use pmux_sim::machine::{Event, Start, World, profiles};
use pmux_sim::oracle::ring::Mode;

const CPU: [CpuId; 2] = [CpuId(0), CpuId(1)];

fn world(seed: u64) -> World {
    World::new(profiles::minimal(2), seed).unwrap()
}

fn sampler(world: &World, name: &str, period: u64, flags: AttrFlags) -> (PmuId, Attr) {
    let (pmu, attr) = world.event(name).unwrap();
    let sample = World::IN_SAMPLES | SampleFormat::TID | SampleFormat::TIME;
    (pmu, Attr { sampling: Sampling::Period(period), sample, flags, ..attr })
}

fn open(world: &mut World, name: &str, period: u64, flags: AttrFlags, target: Target) -> Event {
    let asked = sampler(world, name, period, flags);
    world.open(&[asked], target, Start::Enabled).unwrap()[0]
}

fn all_well(world: &mut World) {
    world.check().unwrap_or_else(|violation| panic!("{violation}"));
}

/// Three cycles a nanosecond: a sample of 48 bytes each 10 us, while the task runs.
#[test]
fn samples_come_when_they_are_due_and_a_full_ring_loses_the_rest() {
    let mut world = world(1);
    let task = world.task();
    let event = open(&mut world, "cycles", 30_000, AttrFlags::empty(), Target::task(task));
    world.attach_ring(event, Mode::Forward, 4096).unwrap();
    for turn in 1..=3 {
        world.run(&[(task, CPU[turn % 2])], Nanos(333_000)).unwrap();
        world.idle(Nanos(50_000));
        all_well(&mut world);
    }
    // 999 us: what was left of a period on one CPU goes on on the other. The ring holds 102 of 40 bytes.
    assert_eq!(world.take_samples(event), Ok(99));
    world.run(&[(task, CPU[0])], Nanos(1_500_000)).unwrap();
    all_well(&mut world);
    assert_eq!(world.take_samples(event), Ok(102));
    assert_eq!(world.lost_samples(event), 150 - 102);
    world.run(&[(task, CPU[0])], Nanos(100_000)).unwrap();
    // What was taken gave way when room was wanted.
    assert_eq!((world.take_samples(event), world.look_at_samples(event).unwrap()), (Ok(10), (10, 201)));
    all_well(&mut world);
    world.close(event);
    all_well(&mut world);
}

#[test]
fn an_overwrite_ring_has_the_last_ones() {
    let mut world = world(2);
    let task = world.task();
    let event = open(&mut world, "cycles", 30_000, AttrFlags::empty(), Target::task(task));
    world.attach_ring(event, Mode::Overwrite, 4096).unwrap();
    world.run(&[(task, CPU[0])], Nanos(20_000_000)).unwrap();
    all_well(&mut world);
    let (seen, missed) = world.look_at_samples(event).unwrap();
    // Seven eighths of 4096 bytes, less a record, hold 88.
    assert!((88..=102).contains(&seen), "{seen}");
    assert_eq!((seen + missed, world.lost_samples(event)), (2000, 0));
    world.run(&[(task, CPU[1])], Nanos(500_000)).unwrap();
    assert_eq!(
        world.look_at_samples(event).unwrap(),
        (seen + 50, missed),
        "nothing is missed that was not overwritten"
    );
    all_well(&mut world);
}

#[test]
fn a_ring_of_an_event_that_is_gone_is_refused() {
    let mut world = world(3);
    let task = world.task();
    let event = open(&mut world, "cycles", 1000, AttrFlags::empty(), Target::task(task));
    assert_eq!(world.attach_ring(event, Mode::Forward, 100), Err(OutputError::BadSize { data_bytes: 100 }));
    assert_eq!(world.redirect(event, event), Err(OutputError::NoRing));
    world.close(event);
    assert_eq!(world.attach_ring(event, Mode::Forward, 4096), Err(OutputError::Closed));
}

/// Tasks that fork, switch, end; events that are led into one ring, switched, closed; readers who come now and then.
#[test]
fn in_no_story_is_a_sample_unaccounted_for() {
    let (mut samples, mut lost, mut missed) = (0, 0, 0);
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = world(seed);
        let mode = if seed % 2 == 0 { Mode::Forward } else { Mode::Overwrite };
        let mut tasks: Vec<TaskId> = (0..2).map(|_| world.task()).collect();
        let target = if rng.bool() { Target::task(tasks[0]) } else { Target::cpu(CPU[0]) };
        let names = ["cycles", "instructions", "branches"];
        let open_one = |world: &mut World, rng: &mut fastrand::Rng| {
            let flags = if rng.bool() { AttrFlags::INHERIT } else { AttrFlags::empty() };
            open(world, names[rng.usize(..3)], rng.u64(2_000..40_000), flags, target)
        };
        let mut events = vec![open_one(&mut world, &mut rng)];
        world.attach_ring(events[0], mode, 256 << rng.u32(0..5)).unwrap();
        for _ in 0..rng.usize(..3) {
            let event = open_one(&mut world, &mut rng);
            world.redirect(event, events[0]).unwrap();
            events.push(event);
        }
        for _ in 0..80 {
            let (task, event) = (tasks[rng.usize(..tasks.len())], events[rng.usize(..events.len())]);
            match rng.u32(..16) {
                0 if tasks.len() < 6 => tasks.extend(world.fork(task).map(|(child, _)| child)),
                1 if task != tasks[0] => {
                    world.exit(task).unwrap();
                    tasks.retain(|&other| other != task);
                }
                2 => drop(world.disable(event)),
                3 => drop(world.enable(event)),
                4 => drop(world.take_samples(events[0]).unwrap()),
                5 => drop(world.look_at_samples(events[0]).unwrap()),
                6 if event != events[0] => {
                    world.close(event);
                    events.retain(|&other| other != event);
                }
                7 if events.len() < 4 => {
                    let event = open_one(&mut world, &mut rng);
                    world.redirect(event, events[0]).unwrap();
                    events.push(event);
                }
                8 => world.place(CPU[0], None).unwrap(),
                _ => world.run(&[(task, CPU[rng.usize(..2)])], Nanos(rng.u64(1_000..200_000))).unwrap(),
            }
            world
                .check_step()
                .and_then(|()| world.check_samples())
                .unwrap_or_else(|violation| panic!("{seed}: {violation}"));
        }
        all_well(&mut world);
        samples += world.look_at_samples(events[0]).unwrap().0;
        lost += world.lost_samples(events[0]);
        missed += world.look_at_samples(events[0]).unwrap().1;
        events.into_iter().for_each(|event| world.close(event));
        all_well(&mut world);
    }
    assert!(samples > 1000 && lost > 100 && missed > 100, "{samples} seen, {lost} lost, {missed} missed");
}
