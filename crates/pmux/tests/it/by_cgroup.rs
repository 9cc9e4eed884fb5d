//! Counts of cgroups, in both ways, against the kernel's own events of cgroups.
//!
//! What is the same in both ways to the last one: page faults. What may differ is stated at each comparison: a switch of tasks
//! belongs to the task that comes in one way and to the task that leaves in the other.

use crate::common::cgroup::{Cgroup, run_in};
use crate::common::{self, events, eventually, needs, own_process, own_process_with, role, skip_unless, value};
use pmux::server_api::{ByCgroup, CgroupMethod, CgroupReadings, Pattern};
use pmux::{Command, Counters, CpuChoice, EventList, Multiplexing, Options, Session, Target};
use std::time::Duration;

pub(crate) fn role(name: &str, arguments: &str) {
    assert_eq!(name, "work");
    // work:ROUNDS, each with a page, some instructions, and a nap
    let rounds: usize = arguments.parse().unwrap();
    for round in 0..rounds {
        role::touch(round, 1);
        std::hint::black_box((0..20_000_u64).fold(0, |sum, number| std::hint::black_box(sum ^ number)));
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Counting by cgroup, by a program where `way` says so; `None`, and a skip, where that can't be had.
fn open(session: &Session, list: &EventList, patterns: &[&str]) -> Option<ByCgroup> {
    let patterns = patterns.iter().map(|text| Pattern::parse(text).unwrap()).collect();
    let by_cgroup = ByCgroup::open(session, list, patterns, 1000, Multiplexing::Kernel).unwrap();
    match by_cgroup.way() {
        CgroupMethod::Program => Some(by_cgroup),
        CgroupMethod::Events { why } => {
            needs("bpf", &format!("BPF programs: {why}"), false);
            None
        }
    }
}

/// What a cgroup has counted of an event, on all CPUs.
fn total(readings: &CgroupReadings, cgroup: &Cgroup, event: usize) -> pmux::Count {
    assert!(readings.troubles.is_empty(), "{:?}", readings.troubles);
    let end = format!("/{}", cgroup.name());
    let found = readings.cgroups.iter().find(|reading| reading.name.ends_with(&end)).unwrap();
    let rows = found.cpus.iter().filter_map(|(_, row)| row[event].count());
    rows.fold(pmux::Count::default(), |mut sum, count| {
        sum += count;
        sum
    })
}

fn kernels_own(session: &Session, list: &EventList, cgroups: &[&Cgroup]) -> Counters {
    let names = cgroups.iter().map(|cgroup| cgroup.path.display().to_string()).collect();
    session.open(list, &Target::Cgroups { names, cpus: CpuChoice::All }, Options::default()).unwrap()
}

fn own(counters: &Counters, cgroup: usize, event: usize) -> u64 {
    let rows = counters.read().rows;
    let rows = rows.iter().filter(|row| row.who.cgroup == Some(cgroup));
    rows.map(|row| value(row.readings[event])).sum()
}

/// It is no more than the kernel's own count, and what is missing may be among what no cgroup was given.
#[track_caller]
fn assert_between(counted: u64, of_kernel: u64, unattributed: u64, what: &str) {
    assert!(
        counted <= of_kernel && of_kernel <= counted + unattributed,
        "{what}: {counted}, {of_kernel}, unattributed {unattributed}"
    );
}

#[test]
fn a_program_counts_what_the_kernels_own_events_count() {
    let (Some(session), Some(above)) = (common::session(), Cgroup::make("same")) else { return };
    let (one, other) = (above.below("one"), above.below("other"));
    let pmu =
        session.probe(&pmux::Event::parse_with("instructions:u", session.catalog()).unwrap(), &Target::CurrentThread);
    let pmu = matches!(pmu, Ok(pmux::Probe::Opens));
    let list = events(
        &session,
        if pmu {
            "page-faults,context-switches,task-clock,instructions:u"
        } else {
            "page-faults,context-switches,task-clock"
        },
    );
    let patterns = [&format!("{}/**", above.name())[..]];
    let Some(mut by_cgroup) = open(&session, &list, &patterns) else { return };
    let kernel = kernels_own(&session, &list, &[&one, &other]);
    std::thread::scope(|scope| {
        scope.spawn(|| run_in(&one, &session, "by_cgroup/work:300"));
        run_in(&other, &session, "by_cgroup/work:700");
    });
    let readings = by_cgroup.read();
    assert_eq!(readings.cgroups.len(), 3);
    for (index, cgroup) in [&one, &other].into_iter().enumerate() {
        let faults = total(&readings, cgroup, 0);
        let unattributed = &readings.unattributed;
        assert_between(faults.value, own(&kernel, index, 0), unattributed[0], "page faults");
        assert!(faults.value >= 300 && faults.enabled == faults.running && faults.enabled.0 > 0, "{faults:?}");
        // A task that has left for the last time has come before; and a switch belongs to the task that comes, which may be
        // seen again.
        let (switches, of_kernel) = (total(&readings, cgroup, 1).value, own(&kernel, index, 1));
        let most = session.online().len() as u64;
        assert_between(switches, of_kernel + most, unattributed[1] + 2 * most, "switches");
        // Between the two moments of a switch a CPU may be taken away from the whole machine.
        let (time, of_kernel) = (total(&readings, cgroup, 2).value, own(&kernel, index, 2));
        let slack = of_kernel / 5 + 20_000 * switches;
        assert_between(time, of_kernel + slack, unattributed[2] + 2 * slack, "task clock");
        if pmu {
            let (ran, of_kernel) = (total(&readings, cgroup, 3), own(&kernel, index, 3));
            if ran.enabled == ran.running {
                // Nothing runs in user mode between the two moments.
                let slack = of_kernel / 1000;
                assert_between(ran.value, of_kernel + slack, unattributed[3] + 2 * slack, "instructions");
            }
            println!("{}: instructions:u {} {of_kernel}", cgroup.name(), ran.value);
        }
        println!("{}: {faults:?}, {switches} switches, {time} ns; unattributed: {unattributed:?}", cgroup.name());
    }
    let sum = [&one, &other].map(|cgroup| total(&readings, cgroup, 0).value).iter().sum::<u64>();
    assert_eq!(total(&readings, &above, 0).value, sum, "a parent has what its children have");
    drop((by_cgroup, kernel));
    assert_eq!(session.census().events, 0);
}

#[test]
fn what_runs_now_is_in_the_reading() {
    let (Some(session), Some(cgroup)) = (common::session(), Cgroup::make("now")) else { return };
    let list = events(&session, "task-clock");
    let Some(mut by_cgroup) = open(&session, &list, &[cgroup.name()]) else { return };
    // It never gives its CPU away by itself, and is counted all the same.
    let spin = Command::hold(["sh", "-c", "while :; do :; done"]).unwrap();
    cgroup.take_in(spin.pid());
    let mut spin = spin.release(&[]).unwrap();
    let mut last = 0;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(2));
        let now = total(&by_cgroup.read(), &cgroup, 0);
        // It may have waited for a CPU all the time, but not each time.
        assert!(now.value >= last);
        last = now.value;
    }
    assert!(last > 0);
    spin.kill(9).unwrap();
    spin.wait(&session).unwrap();
}

#[test]
fn what_those_that_are_gone_have_counted_stays_with_their_parents() {
    let (Some(session), Some(above)) = (common::session(), Cgroup::make("gone")) else { return };
    let list = events(&session, "page-faults");
    let patterns = [above.name(), &format!("{}/*", above.name())];
    let Some(mut by_cgroup) = open(&session, &list, &patterns) else { return };
    assert_eq!(by_cgroup.read().cgroups.len(), 1);
    let mut before = 0;
    for round in 0..5 {
        // The counts are not read while it is there.
        let short = above.below(&format!("short{round}"));
        run_in(&short, &session, "by_cgroup/work:100");
        short.remove();
        let readings = by_cgroup.read();
        assert_eq!(readings.cgroups.len(), 1, "{readings:?}");
        let now = total(&readings, &above, 0).value;
        assert!(now + readings.unattributed[0] >= before + 100, "{now} after {before}");
        before = now;
    }
    let lasting = above.below("lasting");
    run_in(&lasting, &session, "by_cgroup/work:50");
    let readings = by_cgroup.read();
    assert_eq!(readings.cgroups.len(), 2);
    assert_eq!(total(&readings, &above, 0).value, before + total(&readings, &lasting, 0).value);
}

#[test]
fn two_hundred_cgroups_take_no_more_files_than_one() {
    skip_unless!(own_process());
    let (Some(session), Some(above)) = (common::session(), Cgroup::make("many")) else { return };
    let list = events(&session, "page-faults,task-clock,context-switches");
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let cpus = session.online().len();
    let patterns = [&format!("{}/*", above.name())[..]];
    let before = session.kernel_events().0;
    let Some(mut by_cgroup) = open(&session, &list, &patterns) else { return };
    let with_none = session.kernel_events().0 - before;
    // One for each question and CPU, and one that counts switches: the same one where that is asked as well.
    assert!(with_none >= 3 * cpus as u64 && with_none <= 4 * cpus as u64, "{with_none}");
    let folders: Vec<_> = (0..200).map(|number| above.below(&format!("n{number}"))).collect();
    let open_before = files();
    run_in(&folders[3], &session, "by_cgroup/work:40");
    run_in(&folders[150], &session, "by_cgroup/work:80");
    let readings = by_cgroup.read();
    assert_eq!(readings.cgroups.len(), 200);
    let unattributed = readings.unattributed[0];
    assert!(total(&readings, &folders[3], 0).value + unattributed >= 40);
    assert!(total(&readings, &folders[150], 0).value + unattributed >= 80);
    assert_eq!(total(&readings, &folders[7], 0), pmux::Count::default());
    assert_eq!(session.kernel_events().0 - before, with_none);
    let by_program = files().saturating_sub(open_before);
    println!("200 cgroups, 3 events, {cpus} CPUs: {with_none} kernel events by the program");
    assert!(by_program < 200, "{by_program} more files");
}

#[test]
fn without_a_program_each_cgroup_has_events_of_its_own() {
    skip_unless!(own_process_with(&[("PMUX_CGROUP_COUNTS", "events")]));
    let (Some(session), Some(above)) = (common::session(), Cgroup::make("own")) else { return };
    let list = events(&session, "page-faults,duration_time");
    let patterns = vec![Pattern::parse(&format!("{}/*", above.name())).unwrap()];
    let mut by_cgroup = ByCgroup::open(&session, &list, patterns, 2, Multiplexing::Kernel).unwrap();
    let way = by_cgroup.way().to_string();
    assert!(way.contains("events of each cgroup's own") && way.contains("PMUX_CGROUP_COUNTS"), "{way}");
    assert!(by_cgroup.refusal(0).is_none() && by_cgroup.refusal(1).unwrap().contains("no event of the kernel"));
    let (one, other) = (above.below("a"), above.below("b"));
    let third = above.below("c");
    by_cgroup.follow();
    let kernel = kernels_own(&session, &events(&session, "page-faults"), &[&one, &other]);
    run_in(&one, &session, "by_cgroup/work:30");
    run_in(&other, &session, "by_cgroup/work:60");
    run_in(&third, &session, "by_cgroup/work:10");
    let readings = by_cgroup.read();
    assert_eq!((readings.cgroups.len(), readings.left_out), (2, 1));
    for (index, cgroup) in [&one, &other].into_iter().enumerate() {
        assert_eq!(total(&readings, cgroup, 0).value, own(&kernel, index, 0));
        assert!(!readings.cgroups[index].cpus.is_empty());
        assert!(readings.cgroups[index].cpus.iter().all(|(_, row)| row[1] == pmux::Reading::Refused));
    }
    one.remove();
    let readings = by_cgroup.read();
    let names: Vec<_> = readings.cgroups.iter().map(|reading| reading.name.rsplit('/').next().unwrap()).collect();
    assert_eq!((names, readings.left_out), (vec!["b", "c"], 0));
}

#[test]
fn a_cpu_that_comes_back_is_counted_for_cgroups_again() {
    let Some(switch) = common::hotplug::CpuSwitch::take() else { return };
    let (Some(session), Some(cgroup)) = (common::session(), Cgroup::make("plug")) else { return };
    session.follow_cpus();
    let list = events(&session, "page-faults");
    let Some(mut by_cgroup) = open(&session, &list, &[cgroup.name()]) else { return };
    let wait = |online: bool| {
        eventually("the CPU comes or goes", || {
            session.follow_hotplug();
            (session.online().contains(1) == online).then_some(())
        });
    };
    run_in(&cgroup, &session, "by_cgroup/work:200");
    let first = total(&by_cgroup.read(), &cgroup, 0).value;
    let open_first = session.kernel_events();
    switch.turn("0");
    wait(false);
    run_in(&cgroup, &session, "by_cgroup/work:200");
    let second = total(&by_cgroup.read(), &cgroup, 0).value;
    let unattributed = by_cgroup.read().unattributed[0];
    assert!(second + unattributed >= first + 200, "{first} {second}");
    let closed = session.kernel_events().1 - open_first.1;
    assert_eq!(closed, 2, "the events of the CPU that went are closed");
    switch.turn("1");
    wait(true);
    by_cgroup.follow_cpus();
    let kernel = kernels_own(&session, &list, &[&cgroup]);
    run_in(&cgroup, &session, "by_cgroup/work:200");
    let readings = by_cgroup.read();
    let third = total(&readings, &cgroup, 0).value;
    assert_between(
        third - second,
        own(&kernel, 0, 0),
        readings.unattributed[0] - unattributed,
        "nothing is lost or counted twice",
    );
}
