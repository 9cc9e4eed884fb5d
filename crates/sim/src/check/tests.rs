//! A planted fault for each checker, which must find it; and random runs without one, in which none may find anything.

use super::{Checker, Violation};
use crate::machine::{Access, Description, Event, Fault, Planted, PmuDescription, Reach, Start, World, profiles};
use crate::oracle::ring::Mode;
use crate::scenario::parse;
use crate::scenario::run::{Checks, Execution, RunOptions};
use pmux_abi::attr::{Attr, AttrFlags, Sampling, breakpoint};
use pmux_engine::pmu::{OverflowBy, Slot};
use pmux_engine::share::Sharing;
use pmux_engine::system_wide::{Absent, CpuMask, SetScope};
use pmux_engine::{CpuId, Nanos, PmuId, Target, TaskId};

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

/// What is done to a machine, with checks.
type Story = fn(&mut World) -> Result<(), Violation>;

/// What the first violation of a story is found by, with a misdeed planted and without.
fn found_by(planted: Planted, story: Story, description: &Description, sharing: Sharing) -> Checker {
    let world = |description: Description| {
        World::with_sharing(description, 7, sharing).unwrap_or_else(|error| panic!("{error}"))
    };
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

/// A task with a counter of its own leaves its CPU.
fn leaving(world: &mut World) -> Result<(), Violation> {
    let task = world.task();
    open(world, &["cycles"], AttrFlags::empty(), Target::task(task));
    let _ = world.place(CPU, Some(task));
    world.pass(MS);
    let _ = world.place(CPU, None);
    world.check_step()
}

/// A task is sampled, and somebody looks at the ring.
fn sampled(world: &mut World) -> Result<(), Violation> {
    let task = world.task();
    let (pmu, attr) = named(world, "cycles", AttrFlags::empty());
    let attr = Attr { sampling: Sampling::Period(100_000), sample: World::IN_SAMPLES, ..attr };
    let opened = world.open(&[(pmu, attr)], Target::task(task), Start::Enabled);
    let event = opened.map_or_else(|error| panic!("{error}"), |events| events[0]);
    world.attach_ring(event, Mode::Forward, 1024).unwrap_or_else(|error| panic!("{error}"));
    let _ = world.run(&[(task, CPU)], MS);
    world.check()
}

fn one(world: &mut World) -> Result<(), Violation> {
    plain(world, &[&["cycles"]], AttrFlags::empty())
}

fn three_in_turns(world: &mut World) -> Result<(), Violation> {
    plain(world, &[&["cycles"], &["branches"], &["cache-misses"]], AttrFlags::empty())
}

fn two_beside_each_other(world: &mut World) -> Result<(), Violation> {
    plain(world, &[&["cycles"], &["branches"]], AttrFlags::empty())
}

fn software(world: &mut World) -> Result<(), Violation> {
    plain(world, &[&["page-faults"], &["cs"]], AttrFlags::empty())
}

fn a_group(world: &mut World) -> Result<(), Violation> {
    let task = world.task();
    open(world, &["cycles", "branches"], AttrFlags::empty(), Target::task(task));
    let _ = world.place(CPU, Some(task));
    world.check_step()
}

/// As many events as there are counters, in one group.
fn a_group_that_just_fits(world: &mut World) -> Result<(), Violation> {
    let task = world.task();
    let attrs = ["cycles", "branches"].map(|name| named(world, name, AttrFlags::empty()));
    let _ = world.open(&attrs, Target::task(task), Start::Disabled);
    world.check_step()
}

fn pinned(world: &mut World) -> Result<(), Violation> {
    open(world, &["cycles"], AttrFlags::PINNED, Target::cpu(CPU));
    world.check_step()
}

fn held_counters(world: &mut World) -> Result<(), Violation> {
    let task = world.task();
    open(world, &["cycles"], AttrFlags::empty(), Target::task(task));
    world.fault(Fault::SlotHeld(CPU, PmuId(0), Slot(0)));
    world.fault(Fault::SlotHeld(CPU, PmuId(0), Slot(1)));
    let _ = world.run(&[(task, CPU)], MS);
    world.check_convergence()
}

fn asked_from_elsewhere(world: &mut World) -> Result<(), Violation> {
    let task = world.task();
    let _ = world.place(CpuId(1), Some(task));
    let event = open(world, &["cycles"], AttrFlags::empty(), Target::task(task));
    let _ = world.disable(event);
    world.check_step()
}

/// A watched address is accessed.
fn watching(world: &mut World) -> Result<(), Violation> {
    let task = world.task();
    let watch = world.description().breakpoint(0x1000, 4, breakpoint::RW);
    let _ = world.open(&[watch.unwrap_or_else(|| panic!("no debug registers"))], Target::task(task), Start::Enabled);
    let _ = world.access(task, 0x1002, Access::Write, 3);
    world.check_step()
}

/// A length that no debug register can watch is asked for.
fn watching_three_bytes(world: &mut World) -> Result<(), Violation> {
    let task = world.task();
    let watch = world.description().breakpoint(0x1000, 3, breakpoint::RW);
    let _ = world.open(&[watch.unwrap_or_else(|| panic!("no debug registers"))], Target::task(task), Start::Disabled);
    world.check_step()
}

/// A CPU of a set goes and comes back.
fn coming_back(world: &mut World) -> Result<(), Violation> {
    let cycles = named(world, "cycles", AttrFlags::empty());
    let mask: CpuMask = [CPU, CpuId(1)].into_iter().collect();
    let opened = world.open_set(&[vec![cycles]], SetScope::Everything, &mask, Absent::Await);
    let (set, _) = opened.unwrap_or_else(|error| panic!("{error}"));
    let _ = world.arm(set);
    world.pass(MS);
    let _ = world.offline(CpuId(1));
    world.pass(MS);
    let _ = world.online(CpuId(1));
    world.pass(MS);
    world.check_step()
}

/// Two who ask the same.
fn twice_the_same(world: &mut World) -> Result<(), Violation> {
    plain(world, &[&["cycles"], &["cycles"]], AttrFlags::empty())
}

/// Every checker, and a misdeed that it must find, on which machine.
fn planted() -> Vec<(Checker, Planted, Story, Description)> {
    use Checker as C;
    use Planted as P;
    let two_counters = || profiles::minimal(1);
    let narrow = profiles::around(1, PmuDescription::hardware("cpu", 2, 16, OverflowBy::Interrupt));
    let far = Description { reach: Reach::OwnCpu, ..profiles::minimal(2) };
    vec![
        (C::Counts, P::LoseHandedOver, clones, two_counters()),
        (C::Counts, P::LoseWhatWasNotRead, three_in_turns, two_counters()),
        (C::Counts, P::WrapUnnoticed, one, narrow),
        (C::Times, P::StartLate, one, two_counters()),
        (C::Times, P::ClockJumps, one, two_counters()),
        (C::Families, P::SilentFork, clones, two_counters()),
        (C::Leases, P::DoubleLease, two_beside_each_other, two_counters()),
        (C::Foreign, P::KeepGoing, leaving, two_counters()),
        (C::Groups, P::StartHalfAGroup, a_group, two_counters()),
        (C::Pinned, P::StartNoPinned, pinned, two_counters()),
        (C::Waiting, P::HideACounter, two_beside_each_other, two_counters()),
        (C::Exact, P::MissAccesses, watching, two_counters()),
        (C::Leftovers, P::IgnoreRelease, software, two_counters()),
        (C::Locks, P::LockBackwards, one, two_counters()),
        (C::Locks, P::CallUnderLock, one, two_counters()),
        (C::Doorbells, P::DeafDoorbell, asked_from_elsewhere, far),
        (C::Coverage, P::SilentOnline, coming_back, profiles::minimal(2)),
        (C::Convergence, P::HealNothing, held_counters, two_counters()),
        (C::Refusals, P::HideACounter, a_group_that_just_fits, two_counters()),
        (C::Refusals, P::TakeAnyLength, watching_three_bytes, two_counters()),
        (C::Sharing, P::ConfuseQuestions, two_beside_each_other, two_counters()),
        (C::Sharing, P::ShareNothing, twice_the_same, two_counters()),
        (C::Samples, P::SwallowSamples, sampled, two_counters()),
    ]
}

#[test]
fn each_checker_finds_what_was_planted_for_it() {
    let planted = planted();
    for checker in Checker::ALL {
        assert!(planted.iter().any(|(by, ..)| *by == checker), "nothing is planted for {checker:?}");
    }
    for (checker, planted, story, description) in planted {
        let sharing = if checker == Checker::Sharing { Sharing::On } else { Sharing::Off };
        assert_eq!(found_by(planted, story, &description, sharing), checker, "{planted:?}");
    }
}

/// What a machine says of its debug registers the runner of scenarios does for it.
#[test]
fn a_debug_register_that_is_not_given_out_again_is_found() {
    let text = "machine breakpoints=1\ntask A\nopen a = mem:0x1000:w on A\nclose a\nopen b = mem:0x2000:w on A\n";
    let scenario = parse(text).unwrap_or_else(|problems| panic!("{problems:?}"));
    let found = |planted| {
        let options = RunOptions { checks: Checks::Nothing, ..RunOptions::default() };
        let mut execution = Execution::new(&scenario, &options).unwrap_or_else(|unusable| panic!("{unusable}"));
        execution.world_mut().plant(planted);
        for step in &scenario.steps {
            // Whether it is refused with reason is looked at below.
            let _ = execution.attempt(&step.statement);
        }
        execution.world_mut().check_step().err().map(|violation| violation.checker)
    };
    assert_eq!(found(None), None);
    assert_eq!(found(Some(Planted::KeepDebugRegisters)), Some(Checker::Refusals));
}

#[test]
fn an_event_that_no_machine_knows_is_refused_with_reason() {
    let mut world = world(profiles::minimal(1));
    let (pmu, attr) = named(&world, "cycles", AttrFlags::empty());
    let gone = Target::task(TaskId(99));
    let nobody = world.open(&[(pmu, attr)], gone, Start::Enabled).map_err(|error| error.errno());
    assert_eq!(nobody, Err(3));
    let unknown = world.open(&[(pmu, Attr { config: 77, ..attr })], Target::cpu(CPU), Start::Enabled);
    assert_eq!(unknown.map_err(|error| error.errno()), Err(2));
    assert_eq!(world.check(), Ok(()));
}
