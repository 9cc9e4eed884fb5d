//! `pmux stat --mux=engine`: who takes turns, and what is said of it. What hardware is needed for is run where there is a
//! PMU: in the lab.

use crate::common::{SyncDir, has_pmu, kernel, needs, root, skip_unless, stat};
use pmux_testkit::hotplug::{CpuSwitch, SWITCH};

/// So many events are more than any counters.
const MANY: usize = 26;

fn many() -> String {
    vec!["instructions:u"; MANY].join(",")
}

/// A shell that is busy for a while.
fn busy(rounds: u32) -> String {
    format!("i=0; while [ $i -lt {rounds} ]; do i=$((i+1)); done")
}

fn pmu() -> bool {
    kernel() && needs("pmu", "a hardware PMU", has_pmu())
}

#[test]
fn events_that_need_no_counter_are_counted_as_ever() {
    skip_unless!(kernel());
    let arguments = ["-x,", "--mux=engine", "--mux-interval", "10", "-e", "page-faults:u,task-clock:u", "true"];
    let ran = stat(arguments).run().good().never_says(&["turns"]);
    let rows = ran.rows();
    let shares: Vec<_> = rows.iter().map(|row| row[4]).collect();
    assert_eq!(shares, ["100.00", "100.00"], "{}", ran.err);
}

#[test]
fn each_has_its_turn_and_says_how_much_of_the_time() {
    skip_unless!(pmu());
    // Each turn moves one event on.
    let line = busy(300_000);
    let truth = stat(["-x,", "-e", "instructions:u", "--", "sh", "-c", &line]).run().good().value("instructions:u");
    let events = many();
    let ran = stat(["-v", "-x,", "--mux=engine", "--mux-interval=1", "-e", &events, "--", "sh", "-c", &line]);
    let ran = ran.run().good().says(&["of these events run at once"]);
    let rows = ran.rows();
    let rows: Vec<_> = rows.iter().filter(|row| row.contains(&"instructions:u")).collect();
    assert_eq!(rows.len(), MANY, "{}", ran.err);
    let (mut shares, mut near) = (0.0, 0);
    for row in rows {
        let Ok(value) = row[0].parse::<f64>() else {
            assert_eq!(row[0], "<not counted>", "{}", ran.err);
            continue;
        };
        let share: f64 = row[4].parse().unwrap();
        shares += share / 100.0;
        near += usize::from((value / truth - 1.0).abs() < 0.1);
        assert!(share <= 100.0, "{}", ran.err);
    }
    assert!(near >= 2, "the estimates tell of {truth} instructions:\n{}", ran.err);
    let before = ran.err.split(" of these events run at once").next().unwrap();
    let counters: f64 = before.split_whitespace().last().unwrap().parse().unwrap();
    assert!(shares <= counters * 1.01, "never more than fit: {shares} of {counters}\n{}", ran.err);
    assert!(shares >= counters / 2.0, "the counters are in use: {shares} of {counters}\n{}", ran.err);
}

#[test]
fn those_that_fit_are_exact() {
    skip_unless!(pmu());
    let line = busy(20_000);
    let exact = |more: &[&str]| {
        let mut arguments = vec!["-x,", "-e", "instructions:u,instructions:u"];
        arguments.extend(more);
        arguments.extend(["--", "sh", "-c", &line]);
        let ran = stat(arguments).run().good();
        let rows = ran.rows();
        assert!(rows.iter().all(|row| row[4] == "100.00" && row[0] == rows[0][0]), "{}", ran.err);
        rows[0][0].parse::<f64>().unwrap()
    };
    let (kernel, engine) = (exact(&[]), exact(&["--mux=engine"]));
    // In the lab other CPUs' instructions are counted too.
    assert!((kernel / engine - 1.0).abs() < 0.05, "{kernel} and {engine}");
}

#[test]
fn a_group_that_never_fits_says_so() {
    skip_unless!(pmu());
    let group = format!("{{{}}}", many());
    let ran = stat(["-v", "--mux=engine", "-e", &group, "true"]).run().good();
    ran.says(&["its group needs counters for 26 events of", "put fewer events into one group"]);
}

#[test]
fn counters_taken_by_others_are_reported() {
    skip_unless!(pmu() && root());
    let sync_dir = SyncDir::new();
    let (ready, taken, done) = (sync_dir.text("ready"), sync_dir.text("taken"), sync_dir.text("done"));
    let wait_for = |what: &str| format!("while [ ! -e {what} ]; do sleep 0.01; done");
    // Counted from before the other one comes.
    let line = format!("echo > {ready}; while [ ! -e {taken} ]; do :; done; {}; echo > {done}", busy(200_000));
    let events = many();
    let counted = stat(["-v", "-j", "--mux=engine", "-e", &events, "--", "sh", "-c", &line]).spawn();
    sync_dir.read("ready");
    let other = format!("echo > {taken}; {}", wait_for(&done));
    let pinned = "instructions:uD,cycles:uD,branches:uD";
    let other = stat(["-a", "-e", pinned, "--", "sh", "-c", &other]).spawn();
    let ran = counted.wait().good();
    other.wait().good();
    let json = ran.json();
    assert_eq!(json.len(), MANY);
    let plain = stat(["-j", "-e", "instructions:u", "true"]).run().good();
    let names = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert!(json.iter().all(|line| names(line) == names(&plain.json()[0])), "the fields are those of perf");
    ran.says(&[
        "instructions:u: for ",
        " % of its turns another program had its counter",
        "the kernel multiplexed what pmux had multiplexed already",
        "what helps: ",
    ]);
}

#[test]
fn cpus_that_come_back_take_turns_again() {
    skip_unless!(pmu() && root());
    let Some(_switch) = CpuSwitch::take() else { return };
    let line = format!("echo 0 > {SWITCH}; echo 1 > {SWITCH}; {}", busy(300_000));
    let events = many();
    let ran = stat(["-a", "-A", "--mux=engine", "-x,", "-e", &events, "--", "sh", "-c", &line]).run().good();
    let rows = ran.rows();
    let of_cpu: Vec<_> = rows.iter().filter(|row| row[0] == "CPU1").collect();
    assert_eq!(of_cpu.len(), MANY, "{}", ran.err);
    let counted = of_cpu.iter().filter(|row| row[1].parse::<f64>().is_ok()).count();
    assert!(counted > 0, "{}", ran.err);
    let share: f64 = of_cpu.iter().map(|row| row[5].parse().unwrap_or(0.0)).sum();
    assert!(share > 100.0, "more than one at a time, since it came back: {share}\n{}", ran.err);
}
