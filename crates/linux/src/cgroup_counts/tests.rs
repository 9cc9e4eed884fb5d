//! On this kernel: the program is taken, counts what ran, and lets go.

use super::*;

/// Counts for one event, where they can be had.
fn counts(events: usize) -> Option<CgroupCounts> {
    match CgroupCounts::new(events, 1024) {
        Ok(counts) => Some(counts),
        Err(why) => {
            println!("skipped: needs BPF programs: {why}");
            None
        }
    }
}

#[test]
fn the_verifier_takes_it_with_any_number_of_events() {
    for events in [1, 2, 7, MOST_EVENTS] {
        let Some(counts) = counts(events) else { return };
        assert_eq!(counts.shape.events, events);
    }
    for events in [0, MOST_EVENTS + 1] {
        assert!(CgroupCounts::new(events, 16).unwrap_err().contains("1 to 32"));
    }
}

#[test]
fn without_events_nothing_is_counted_and_every_cgroup_is_met() {
    let Some(mut counts) = counts(2) else { return };
    let online: Vec<u32> = Cpus::system().online().unwrap().iter().collect();
    counts.catch_up(online);
    let all = counts.maps.sums.entries().unwrap();
    assert!(all.len() > 1, "no cgroup, and at least this test's own");
    assert!(all.iter().all(|(_, value)| value.iter().all(|byte| *byte == 0)));
    let every_id: HashSet<u64> = all.iter().map(|(key, _)| number(key)).collect();
    let sums = counts.read(&every_id).unwrap();
    assert!(sums.values().all(|sums| sums.total(1, 2) == Sum::default()));
    assert!(counts.sums.known() >= 1 && !counts.is_crowded().unwrap());
    // Those that are not there any more are forgotten when they have stopped to count, and come back when they run.
    counts.tidy(&HashSet::new()).unwrap();
    counts.tidy(&HashSet::new()).unwrap();
    assert_eq!(counts.sums.known(), 0);
    let online = Cpus::system().online().unwrap();
    counts.catch_up(online.iter());
    counts.read(&every_id).unwrap();
    assert!(counts.sums.known() >= 1);
    // All others are below one root.
    let root = counts.sums.above.values().find_map(|above| above.first().copied());
    assert!(
        root.is_none_or(|root| counts.sums.above.iter().all(|(&id, above)| id == root || above.first() == Some(&root)))
    );
}
