//! The meaning of turns, on examples that were worked out by hand.

use super::*;
use Company::{Exclusive, Shared};
use Fate::{Away, Error, On, Waits};
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
fn nobody_waits_and_nothing_moves() {
    let core = Core::new(2, vec![flexible(Task, &[ANY]), flexible(Cpu, &[ANY])]);
    assert_eq!(core.plans(3), [[On, On]; 3]);
    assert_eq!(shares(&core), [(1, 1), (1, 1)]);
}

#[test]
fn a_group_behind_one_that_does_not_fit_is_still_tried() {
    let core = Core::new(2, vec![flexible(Task, &[ANY]), flexible(Task, &[ANY, ANY]), flexible(Task, &[ANY])]);
    // The pair goes on only when it is the head.
    assert_eq!(core.plans(3), [[On, Waits, On], [Waits, On, Waits], [On, Waits, On]]);
    assert_eq!(shares(&core), [(2, 3), (1, 3), (2, 3)]);
}

#[test]
fn the_cpu_and_the_task_go_first_in_turn() {
    let core = Core::new(1, vec![flexible(Task, &[ANY]), flexible(Cpu, &[ANY])]);
    assert_eq!(core.plans(4), [[Waits, On], [On, Waits], [Waits, On], [On, Waits]]);
}

#[test]
fn a_head_that_had_no_chance_stays_the_head() {
    let core = Core::new(1, vec![flexible(Cpu, &[ANY]), flexible(Task, &[ANY]), flexible(Task, &[ANY])]);
    let expected = [[On, Waits, Waits], [Waits, On, Waits], [On, Waits, Waits], [Waits, Waits, On], [On, Waits, Waits]];
    assert_eq!(core.plans(5), expected);
    assert_eq!(shares(&core), [(1, 2), (1, 4), (1, 4)]);
}

#[test]
fn a_task_that_leaves_gives_its_turn_on_only_if_it_had_one() {
    let mut core = Core::new(1, vec![flexible(Cpu, &[ANY]), flexible(Task, &[ANY]), flexible(Task, &[ANY])]);
    core.pass(10);
    core.task_leaves();
    assert_eq!(core.plans(2), [[On, Away, Away]; 2]);
    core.task_comes_back();
    assert_eq!(core.plan(), [Waits, On, Waits], "the CPU was first for 10 ns, and the first group had no chance yet");
    core.pass(4);
    core.task_leaves();
    core.task_comes_back();
    assert_eq!(core.plan(), [Waits, Waits, On], "it was on for 4 ns; 6 are left for the task");
    core.pass(6);
    core.tick();
    assert_eq!(core.plan(), [On, Waits, Waits]);
}

#[test]
fn a_head_that_was_on_has_had_its_chance() {
    let mut core = Core::new(1, vec![flexible(Cpu, &[ANY]), flexible(Cpu, &[ANY]), flexible(Task, &[ANY])]);
    core.pass(5);
    core.task_leaves();
    core.task_comes_back();
    assert_eq!(core.plan(), [Waits, Waits, On], "the head was on, and is not on any more");
    core.pass(5);
    core.tick();
    assert_eq!(core.plan(), [Waits, On, Waits]);
}

#[test]
fn each_task_has_turns_of_its_own_with_the_cpu() {
    let groups = vec![flexible(Cpu, &[ANY]), flexible(Task, &[ANY]), flexible(Task, &[ANY])];
    let (mut a, mut b) = (Core::new(1, groups.clone()), Core::awaiting(1, groups));
    a.pass(10);
    a.tick();
    assert_eq!(a.plan(), [Waits, On, Waits]);
    a.pass(4);
    a.give_way(&mut b);
    assert_eq!(
        (a.plan(), b.plan()),
        (vec![On, Away, Away], vec![On, Waits, Waits]),
        "the CPU begins with each of them"
    );
    b.pass(4);
    b.give_way(&mut a);
    assert_eq!(a.plan(), [Waits, Waits, On], "for 6 ns more, and with its second group");
    a.give_way(&mut b);
    assert_eq!(b.plan(), [Waits, On, Waits]);
}

#[test]
fn cores_that_go_in_step_have_the_same_turn_whenever_they_began() {
    let groups = vec![flexible(Task, &[ANY]), flexible(Task, &[ANY]), flexible(Task, &[ANY])];
    let (mut early, mut late) = (Core::new(1, groups.clone()), Core::new(1, groups));
    early.disable(1);
    for (turn, on) in [(1, 2), (2, 0), (3, 2)] {
        early.take_turn(turn);
        assert_eq!(early.plan()[on], On, "only two take part in turn {turn}");
    }
    early.enable(1);
    for turn in 4..9 {
        early.take_turn(turn);
        late.take_turn(turn);
        assert_eq!((early.plan()[turn % 3], early.plan()), (On, late.plan()));
    }
    let mut enough = Core::new(2, vec![flexible(Task, &[ANY]), flexible(Task, &[ANY])]);
    enough.take_turn(1);
    assert_eq!(enough.order(), [0, 1], "nobody waits and nothing moves");
}

#[test]
fn of_those_that_want_the_same_slot_each_is_first_in_a_turn_of_others() {
    // Two want slot 0, the third wants any of two.
    let groups = vec![flexible(Task, &[0b01]), flexible(Task, &[0b01]), flexible(Task, &[0b11])];
    let mut core = Core::new(2, groups);
    let mut on = [0; 3];
    for turn in 0..6 {
        core.take_turn(turn);
        core.plan().iter().zip(&mut on).for_each(|(fate, on)| *on += usize::from(*fate == On));
    }
    assert_eq!(on, [3, 3, 6]);
    core.take_turn(2);
    assert_eq!(core.order(), [2, 0, 1]);
    core.take_turn(5);
    assert_eq!(core.order(), [2, 1, 0]);
    core.disable(2);
    assert_eq!(core.order(), [1, 0], "until the next turn");
    core.take_turn(5);
    assert_eq!(core.order(), [1, 0], "both want the same now, and it is the turn of the second");
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

#[test]
fn events_move_where_constraints_need_it() {
    // The pair takes slots 1 and 2, because the last group can only be on slot 0.
    let core = Core::new(3, vec![flexible(Task, &[0b011, 0b110]), flexible(Task, &[0b001])]);
    assert_eq!(core.plan(), [On, On]);
}

#[test]
fn what_is_wrong_with_a_plan() {
    let alone = group(Cpu, Flexible, Exclusive, &[ANY]);
    let core = Core::new(2, vec![pinned(Cpu, &[ANY]), flexible(Task, &[ANY]), flexible(Task, &[ANY]), alone]);
    assert_eq!(core.is_lawful(&[On, On, Waits, Waits]), Ok(()));
    assert_eq!(core.is_lawful(&[On, Waits, On, Waits]), Ok(()), "the order is not asked");
    assert_eq!(core.is_lawful(&[Waits, On, On, Waits]), Err(Unlawful::PinnedWaits(0)));
    assert_eq!(core.is_lawful(&[On, Error, On, Waits]), Err(Unlawful::FlexibleInError(1)));
    assert_eq!(core.is_lawful(&[On, Waits, Waits, On]), Err(Unlawful::InCompany(3)));
    assert_eq!(core.is_lawful(&[On, On, On, Waits]), Err(Unlawful::TooMany));
    assert_eq!(core.is_lawful(&[Error, On, On, Waits]), Err(Unlawful::ErrorForNothing(0)));
    assert_eq!(core.is_lawful(&[On, Waits, Waits, Waits]), Err(Unlawful::WaitsForNothing(1)));
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

/// However often the task leaves and comes back between two ticks.
#[test]
fn leaving_at_the_wrong_moment_starves_nobody() {
    let mut random = fastrand::Rng::with_seed(8);
    for _ in 0..300 {
        let mut core = random_core(&mut random);
        let mut had: Vec<_> = (0..core.groups().len()).map(|group| !core.has_room(group)).collect();
        for _ in 0..core.patience() {
            for _ in 0..random.usize(0..3) {
                core.task_leaves();
                mark(&core, &mut had);
                core.task_comes_back();
                mark(&core, &mut had);
            }
            core.tick();
            mark(&core, &mut had);
        }
        assert!(had.iter().all(|had| *had), "{had:?} of {core:?}");
    }
}

fn mark(core: &Core, had: &mut [bool]) {
    for (had, fate) in had.iter_mut().zip(core.plan()) {
        *had |= fate == On;
    }
}

#[test]
fn equal_groups_of_one_side_get_equal_shares() {
    for (count, groups) in (1..=4).flat_map(|count| (1..=6).map(move |groups| (count, groups))) {
        let core = Core::new(count, vec![flexible(Task, &[ANY]); groups]);
        for share in core.shares() {
            assert_eq!(share.on * groups, share.of * groups.min(usize::from(count)), "{groups} on {count}");
        }
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

/// Two tasks that change places on the CPU, in every rhythm.
#[test]
fn no_rhythm_of_two_tasks_starves_anybody() {
    for (cpu, task) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2)] {
        let groups = [vec![flexible(Cpu, &[ANY]); cpu], vec![flexible(Task, &[ANY]); task]].concat();
        for (length, code) in (2..=6).flat_map(|length| (0..1_u32 << length).map(move |code| (length, code))) {
            let mut cores = [Core::new(1, groups.clone()), Core::awaiting(1, groups.clone())];
            let mut had = [vec![false; groups.len()], vec![false; groups.len()]];
            let mut here = 0;
            for beat in std::iter::repeat_n(0..length, 20).flatten() {
                cores[here].pass(10);
                if code & (1 << beat) == 0 {
                    cores[here].tick();
                } else {
                    let [a, b] = &mut cores;
                    if here == 0 {
                        a.give_way(b);
                    } else {
                        b.give_way(a);
                    }
                    here = 1 - here;
                }
                mark(&cores[here], &mut had[here]);
            }
            let swaps_and_ticks = code != 0 && code != (1 << length) - 1;
            let of_cpu = (0..cpu).all(|group| had[0][group] || had[1][group]);
            let of_tasks = had.iter().all(|had| had[cpu..].iter().all(|had| *had));
            assert!(
                !swaps_and_ticks || (of_cpu && of_tasks),
                "{had:?} of {cpu} and {task}, {code:b} of {length} beats"
            );
        }
    }
}
