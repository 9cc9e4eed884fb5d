//! Events of cgroups on a CPU whose kernel switches tasks: who is on, beside every moment that there is.

use super::host::{CPU, Machine, OTHER_CPU};
use super::rotation::{group_of, random_events};
use pmux_abi::attr::AttrFlags;
use pmux_engine::engine::Census;
use pmux_engine::pmu::SlotMask;
use pmux_engine::target::{ContextKey, Filter, Opened};
use pmux_engine::{CgroupId, CpuId, Engine, EventState, Target};
use pmux_sim::oracle::cgroups::{self, GroupInCgroup};
use pmux_sim::oracle::placement::fits;
use pmux_sim::oracle::rotation::{PmuUse, Priority};

/// Cgroups in one another, as deep as it comes.
fn random_cgroups(random: &mut fastrand::Rng, count: usize) -> Vec<Option<usize>> {
    (0..count).map(|cgroup| (cgroup > 0 && random.u8(0..3) > 0).then(|| random.usize(0..cgroup))).collect()
}

fn single(cgroup: Option<usize>, count: u8) -> GroupInCgroup {
    let events = vec![SlotMask::first(count)];
    GroupInCgroup { cgroup, priority: Priority::Flexible, pmu_use: PmuUse::Shared, events }
}

fn random_group(random: &mut fastrand::Rng, count: u8, cgroups: usize) -> GroupInCgroup {
    loop {
        let events = random_events(random, count, 3);
        let cgroup = (random.u8(0..5) > 0).then(|| random.usize(0..cgroups));
        let priority = if random.u8(0..10) == 0 { Priority::Pinned } else { Priority::Flexible };
        let pmu_use = if random.u8(0..12) == 0 { PmuUse::Exclusive } else { PmuUse::Shared };
        if fits(&events, SlotMask(0), count) {
            return GroupInCgroup { cgroup, priority, pmu_use, events };
        }
    }
}

fn open(engine: &Engine<Machine>, wanted: &GroupInCgroup, cpu: CpuId) -> Opened {
    let spec = group_of(&wanted.events, (wanted.priority, wanted.pmu_use), AttrFlags::empty());
    let filter = wanted.cgroup.map_or(Filter::Everything, |cgroup| Filter::Cgroup(CgroupId(cgroup as u64)));
    let opened = engine.open(&spec, Target { context: ContextKey::Cpu(cpu), filter }).unwrap();
    // Whether it is in error afterwards is seen in its state.
    let _ = engine.enable_group(opened.group);
    opened
}

fn state(engine: &Engine<Machine>, opened: &Opened) -> EventState {
    let state = engine.state(opened.events[0]).unwrap();
    opened.events.iter().for_each(|&event| assert_eq!(engine.state(event).unwrap(), state, "whole or not at all"));
    state
}

/// The engine's groups beside the model's, by their index there.
fn look(
    engine: &Engine<Machine>,
    model: &cgroups::CgroupCpu,
    opened: &[Option<Opened>],
    what: &str,
) -> (Vec<usize>, bool) {
    let in_state = |wanted: EventState| {
        let all = opened.iter().enumerate().filter_map(|(index, opened)| Some((index, opened.as_ref()?)));
        all.filter(|(_, opened)| state(engine, opened) == wanted).map(|(index, _)| index).collect::<Vec<_>>()
    };
    let (on, waits) = (in_state(EventState::Active), in_state(EventState::Inactive));
    if let Err(broken) = model.is_lawful(&on, &waits) {
        panic!("{broken:?} {what}: {on:?} are on, {waits:?} wait, of {model:#?}");
    }
    (on, !waits.is_empty())
}

#[test]
fn on_every_path_as_many_are_on_as_fit_and_no_others() {
    let seed = 5;
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut looks, mut waited) = (0, 0);
    for _ in 0..600 {
        let count = random.u8(1..=4);
        let cgroups = random.usize(1..7);
        let above = random_cgroups(&mut random, cgroups);
        let engine = Machine::with_cgroups(count, &above);
        let mut model = cgroups::CgroupCpu { count, above, groups: Vec::new() };
        let mut opened: Vec<Option<Opened>> = Vec::new();
        for step in 0..40 {
            match random.u8(0..8) {
                0..3 if model.groups.len() < 12 => {
                    let wanted = random_group(&mut random, count, cgroups);
                    opened.push(Some(open(&engine, &wanted, CPU)));
                    model.groups.push(wanted);
                }
                3 if !opened.is_empty() => {
                    let index = random.usize(0..opened.len());
                    opened[index].take().into_iter().for_each(|opened| engine.close(opened.group));
                }
                4 if !opened.is_empty() => {
                    if let Some(opened) = &opened[random.usize(0..opened.len())] {
                        engine.disable_group(opened.group).unwrap();
                        let _ = engine.enable_group(opened.group);
                    }
                }
                _ => {
                    engine.host().run(7);
                    engine.rotate();
                }
            }
            let (_, waits) = look(&engine, &model, &opened, &format!("after step {step}"));
            (looks, waited) = (looks + 1, waited + usize::from(waits));
        }
        opened.into_iter().flatten().for_each(|opened| engine.close(opened.group));
        assert_eq!((engine.census(), engine.host().programmed()), (Census::default(), 0));
    }
    println!("cgroups: {looks} looks at 600 random machines of seed {seed}; in {waited} of them a group waited");
    assert!(waited > looks / 4);
}

/// How often each was on in so many turns.
fn shares(engine: &Engine<Machine>, model: &cgroups::CgroupCpu, opened: &[Option<Opened>], turns: usize) -> Vec<f64> {
    let mut on = vec![0_usize; opened.len()];
    for _ in 0..turns {
        engine.rotate();
        look(engine, model, opened, "in a turn").0.into_iter().for_each(|group| on[group] += 1);
    }
    on.into_iter().map(|on| on as f64 / turns as f64).collect()
}

#[test]
fn shares_are_fair_on_every_path() {
    let seed = 9;
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut least, mut apart) = (f64::MAX, 0.0_f64);
    for _ in 0..120 {
        let count = random.u8(1..=4);
        let cgroups = random.usize(1..6);
        let above = random_cgroups(&mut random, cgroups);
        let groups = (0..random.usize(1..14)).map(|_| {
            let cgroup = (random.u8(0..8) > 0).then(|| random.usize(0..cgroups));
            single(cgroup, count)
        });
        let groups = groups.collect();
        let model = cgroups::CgroupCpu { count, above, groups };
        let engine = Machine::with_cgroups(count, &model.above);
        let opened: Vec<_> = model.groups.iter().map(|group| Some(open(&engine, group, CPU))).collect();
        let shares = shares(&engine, &model, &opened, 600);
        shares.iter().zip(model.fair_shares()).for_each(|(share, fair)| least = least.min(share / fair));
        for (group, share) in model.groups.iter().zip(&shares) {
            let its_like = model.groups.iter().zip(&shares).filter(|(other, _)| other.cgroup == group.cgroup);
            apart = its_like.map(|(_, its)| (share - its).abs()).fold(apart, f64::max);
        }
    }
    println!(
        "cgroups: seed {seed}: no group has less than {least:.2} of a fair share; those of one cgroup differ by {apart:.3} of the time \
         at most"
    );
    assert!(least > 0.6 && apart < 0.05);
}

#[test]
fn cgroups_that_are_apart_have_all_counters_each() {
    let above: Vec<Option<usize>> = vec![None; 20];
    let engine = Machine::with_cgroups(6, &above);
    let groups: Vec<_> = (0..120).map(|index| single(Some(index % 20), 6)).collect();
    let model = cgroups::CgroupCpu { count: 6, above, groups };
    let opened: Vec<_> = model.groups.iter().map(|group| Some(open(&engine, group, CPU))).collect();
    assert_eq!(look(&engine, &model, &opened, "at once").0.len(), 120);
    assert_eq!(engine.rotate().contexts, 0, "no group waits");
    // One event of all tasks takes a counter from each of them.
    let everywhere = open(&engine, &single(None, 6), CPU);
    let mut on = vec![0; 121];
    for _ in 0..7 * 20 {
        engine.rotate();
        let all = opened.iter().flatten().chain([&everywhere]);
        all.zip(&mut on).for_each(|(opened, on)| *on += usize::from(state(&engine, opened) == EventState::Active));
    }
    assert_eq!(on, [120; 121], "six of seven turns for each group");
}

#[test]
fn cpus_with_the_same_groups_have_the_same_ones_on_whatever_was_before() {
    let seed = 11;
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..60 {
        let count = random.u8(1..=4);
        let cgroups = random.usize(1..7);
        let above = random_cgroups(&mut random, cgroups);
        let engine = Machine::with_cgroups(count, &above);
        // The first CPU has had others, which looked for room in another order.
        let others: Vec<_> = (0..8).map(|_| open(&engine, &random_group(&mut random, count, cgroups), CPU)).collect();
        engine.rotate();
        let groups: Vec<_> = (0..10).map(|_| random_group(&mut random, count, cgroups)).collect();
        let groups: Vec<_> = groups.into_iter().filter(|group| group.priority == Priority::Flexible).collect();
        let first: Vec<_> = groups.iter().map(|group| open(&engine, group, CPU)).collect();
        others.into_iter().for_each(|opened| engine.close(opened.group));
        engine.rotate();
        let second: Vec<_> = groups.iter().map(|group| open(&engine, group, OTHER_CPU)).collect();
        for _ in 0..20 {
            engine.rotate();
            let states = |opened: &[Opened]| opened.iter().map(|opened| state(&engine, opened)).collect::<Vec<_>>();
            assert_eq!(states(&first), states(&second), "{above:?} {groups:#?}");
        }
    }
}

/// Two hundred containers under one cgroup: what is asked of the model grows with the groups, and not with their square.
#[test]
fn a_turn_costs_as_much_as_there_are_groups() {
    let asked = |containers: usize, own: usize, everywhere: usize| {
        let above: Vec<Option<usize>> = std::iter::once(None).chain((0..containers).map(|_| Some(0))).collect();
        let engine = Machine::with_cgroups(6, &above);
        let of = |cgroup| single(cgroup, 6);
        let groups: Vec<_> = (0..everywhere)
            .map(|_| of(None))
            .chain((0..containers * own).map(|index| of(Some(1 + index % containers))))
            .map(|wanted| open(&engine, &wanted, CPU))
            .collect();
        let opening = engine.host().asked();
        for _ in 0..10 {
            engine.rotate();
        }
        let turns = (engine.host().asked() - opening) / 10;
        let groups = groups.len();
        println!(
            "cgroups: {groups} groups in {containers} containers: asked {opening} times to open, {turns} in a turn"
        );
        // Each is tried once; one that is everywhere is looked at in each container, but no more of those than there are counters.
        let most = groups + containers * 8 + everywhere * 2;
        assert!(turns <= most && opening <= 3 * groups, "{opening} and {turns} of {groups}, {most}");
    };
    asked(200, 6, 0);
    asked(200, 6, 1);
    asked(200, 12, 0);
    asked(200, 12, 50);
    asked(400, 6, 12);
}
