//! Events of cgroups that take turns: those of cgroups that are apart need not. Software events stand in for hardware, so that every
//! kernel can be asked.

use crate::common::cgroup::{Cgroup, run_in};
use crate::common::{self, events, needs, role};
use pmux::{Census, Contention, Count, Counters, CpuChoice, Multiplexing, Options, Session, Slice, Target};
use std::fs;
use std::time::Duration;

pub(crate) fn role(name: &str, arguments: &str) {
    assert_eq!(name, "pages");
    // pages:ROUNDS, a page each, with a nap
    let rounds: usize = arguments.parse().unwrap();
    for round in 0..rounds {
        role::touch(round, 1);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A session that lets so many software events run at once.
fn session(counters: u8) -> Option<Session> {
    let session = Session::with_scarce_software(counters).unwrap();
    let may = matches!(session.backend(), pmux::Backend::Kernel) && common::may_count_cpus(&session);
    needs("root", "the right to count whole CPUs", may).then_some(session)
}

fn open(session: &Session, list: &str, cgroups: &[&Cgroup], multiplexing: Multiplexing) -> Counters {
    let names = cgroups.iter().map(|cgroup| cgroup.path.display().to_string()).collect();
    let options = Options { multiplexing, slice: Slice::from_millis(1).unwrap(), ..Options::default() };
    session.open(&events(session, list), &Target::Cgroups { names, cpus: CpuChoice::All }, options).unwrap()
}

/// What was counted of each event in each cgroup, on all CPUs.
fn counts(counters: &Counters, cgroups: usize) -> Vec<Vec<Count>> {
    let rows = counters.read().rows;
    let total = |cgroup, event: usize| {
        let rows = rows.iter().filter(|row| row.who.cgroup == Some(cgroup));
        rows.filter_map(|row| row.readings[event].count()).fold(Count::default(), |mut sum, count| {
            sum += count;
            sum
        })
    };
    let events = counters.events().len();
    (0..cgroups).map(|cgroup| (0..events).map(|event| total(cgroup, event)).collect()).collect()
}

fn values(counts: &[Count]) -> Vec<u64> {
    counts.iter().map(|count| count.value).collect()
}

fn no_other_user_is_assumed(counters: &Counters) {
    for event in 0..2 {
        let Contention { wanted, lost } = counters.contention(event).unwrap();
        assert!(lost.0 <= wanted.0 / 50, "event {event}: {lost:?} of {wanted:?}");
    }
    assert!(
        counters.pmu_capacities().iter().all(|capacity| capacity.limit == capacity.counters),
        "{:?}",
        counters.pmu_capacities()
    );
}

#[test]
fn cgroups_that_are_apart_have_all_counters_each() {
    let (Some(session), Some(above)) = (session(2), Cgroup::make("apart")) else { return };
    let cgroups = ["one", "two", "three", "four"].map(|name| above.below(name));
    let all: Vec<_> = cgroups.iter().collect();
    let list = "page-faults,minor-faults";
    let counters = open(&session, list, &all, Multiplexing::Engine);
    let kernel = open(&session, list, &all, Multiplexing::Kernel);
    assert!(!counters.takes_turns(), "eight events, two counters, and no event waits");
    for (cgroup, rounds) in cgroups.iter().zip([20, 30, 40, 50]) {
        run_in(cgroup, &session, &format!("turns_of_cgroups/pages:{rounds}"));
    }
    counters.disable().unwrap();
    kernel.disable().unwrap();
    let (counted, whole) = (counts(&counters, 4), counts(&kernel, 4));
    for (cgroup, (counted, whole)) in counted.iter().zip(&whole).enumerate() {
        assert_eq!(values(counted), values(whole), "cgroup {cgroup}: to the last one");
        assert!(counted[0].value > 20 && counted.iter().all(|count| count.running == count.enabled), "{counted:?}");
    }
    no_other_user_is_assumed(&counters);
    drop((counters, kernel));
    assert_eq!(session.census(), Census::default());
}

#[test]
fn a_cgroup_and_one_in_it_take_turns_and_others_do_not() {
    let (Some(session), Some(above)) = (session(2), Cgroup::make("nested")) else { return };
    let outer = above.below("outer");
    let (inner, apart) = (outer.below("inner"), above.below("apart"));
    let list = "page-faults,minor-faults";
    let cgroups = [&outer, &inner, &apart];
    let counters = open(&session, list, &cgroups, Multiplexing::Engine);
    let kernel = open(&session, list, &cgroups, Multiplexing::Kernel);
    assert!(counters.takes_turns(), "a task of the inner one is counted by four events");
    run_in(&inner, &session, "turns_of_cgroups/pages:200");
    run_in(&apart, &session, "turns_of_cgroups/pages:50");
    counters.disable().unwrap();
    kernel.disable().unwrap();
    let (counted, whole) = (counts(&counters, 3), counts(&kernel, 3));
    assert_eq!(values(&counted[2]), values(&whole[2]), "no other cgroup is on a path with it");
    // At each moment two of four are on, and a fault may be of both kinds; what happens while turns change is missed.
    let seen: u64 = counted[..2].iter().flatten().map(|count| count.value).sum();
    let all = 2 * whole[1][0].value;
    assert!(seen <= all && seen >= all / 2, "{seen} of {all}: {counted:?}");
    no_other_user_is_assumed(&counters);
}

#[test]
fn a_cgroup_that_is_removed_and_made_again_breaks_nothing() {
    let (Some(session), Some(above)) = (session(1), Cgroup::make("removed")) else { return };
    let gone = above.below("gone");
    let stays = above.below("stays");
    // Two of each, and one counter.
    let list = "page-faults,minor-faults";
    let counters = open(&session, list, &[&gone, &stays], Multiplexing::Engine);
    assert!(counters.takes_turns());
    run_in(&gone, &session, "turns_of_cgroups/pages:50");
    gone.remove();
    run_in(&stays, &session, "turns_of_cgroups/pages:100");
    // Another one of the same name is another one.
    fs::create_dir(&gone.path).unwrap();
    let again = open(&session, list, &[&gone], Multiplexing::Engine);
    run_in(&gone, &session, "turns_of_cgroups/pages:100");
    counters.disable().unwrap();
    again.disable().unwrap();
    let (first, second) = (counts(&counters, 2), counts(&again, 1));
    let seen = |counts: &[Count]| counts.iter().map(|count| count.value).sum::<u64>();
    assert!(seen(&first[0]) > 0 && seen(&first[1]) > 0 && seen(&second[0]) > 0, "{first:?} {second:?}");
    let never_more_than_one = |counts: &[Count]| {
        let running: u64 = counts.iter().map(|count| count.running.0).sum();
        running <= counts[0].enabled.0 + counts[0].enabled.0 / 10
    };
    assert!(first.iter().chain(&second).all(|counts| never_more_than_one(counts)), "{first:?} {second:?}");
    drop((counters, again));
    assert_eq!(session.census(), Census::default());
}
