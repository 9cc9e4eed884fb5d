//! `pmux plan`: how events would fit.

use crate::common;
use crate::common::{Start, has_pmu, kernel, pmux, skip_unless};
use serde_json::{Value, json};

const TWELVE: &str = "cycles,instructions,branches,branch-misses,cache-misses,cache-references,r1b,r2c,r3d,r4e,r5f,r60";

fn plan(arguments: &[&str]) -> Start {
    pmux(["plan"]).args(arguments).env("LC_ALL", "C")
}

fn shares(plan: &Value) -> Vec<(u64, u64)> {
    let share = |event: &Value| (event["share"]["on"].as_u64().unwrap(), event["share"]["of"].as_u64().unwrap());
    plan["events"].as_array().unwrap().iter().map(share).collect()
}

#[test]
fn twelve_events_on_so_many_counters_are_seen_exactly_so_many_twelfths_of_the_time() {
    for counters in 1..=12 {
        let number = counters.to_string();
        let plan = plan(&["--counters", &number, "-e", TWELVE, "-j"]).run().good().document();
        let expected = if counters == 12 { (1, 1) } else { (counters, 12) };
        assert_eq!(shares(&plan), vec![expected; 12], "{counters} counters");
        let turns = plan["turns"].as_array().unwrap();
        assert_eq!(turns.len(), if counters == 12 { 1 } else { 12 });
        assert!(turns.iter().all(|turn| turn.as_array().unwrap().len() as u64 == counters));
    }
    let text = plan(&["--counters", "6", "-e", TWELVE]).run().good().text();
    let answer = "12 events need 12 counters, 6 are there: they take turns, each is seen 50 % of the time.\n";
    assert!(text.starts_with(answer), "{text}");
    assert_eq!(text.matches("50 % (6/12)").count(), 12);
    assert!(text.ends_with(" 12  r60               ......######\n"), "{text}");
}

#[test]
fn what_never_fits_is_a_status_of_its_own() {
    let never = plan(&["--counters", "2", "-e", "{cycles,instructions,branches}"]).run();
    assert_eq!((never.code(), never.err.as_str()), (1, ""));
    assert!(
        never
            .text()
            .contains("\nnever\n  {cycles,instructions,branches} needs 3 counters at once, and there are 2 for it\n")
    );
    let pinned = plan(&["--counters", "1", "-e", "r1:D,r2", "-x;"]).run();
    assert_eq!(pinned.code(), 1);
    let lines = "r1:D;1;cpu;always;100.00;1;1;\nr2;2;cpu;never;0.00;0;1;r1:D is pinned: always on, and leaves too little room\n";
    assert_eq!(pinned.text(), lines);
    plan(&["--counters", "2", "-e", "{cycles,instructions,branches}:W"]).run().good();
    assert_eq!(plan(&["--counters", "0", "-e", "cycles", "-j"]).run().code(), 1);
}

#[test]
fn profiles_know_fixed_counters() {
    let fits = "{r1,r2,r3,r4,cycles,instructions,ref-cycles}";
    plan(&["--machine", "intel-skylake", "-e", fits]).run().good();
    assert_eq!(plan(&["--machine", "amd-zen", "-e", fits]).run().code(), 1);
    let two =
        plan(&["--machine", "intel-skylake", "--counters", "1", "-e", "r1,r2,cycles", "-j"]).run().good().document();
    // Those who compete are first as often as each other; cycles has a counter of its own.
    assert_eq!(shares(&two), [(3, 6), (3, 6), (1, 1)]);
    let lab = plan(&["--machine", "lab", "-a", "-e", "cycles,instructions", "-j"]).run().good().document();
    assert_eq!((&lab["kernel_events"], &lab["machine"]["cpus"]), (&json!(8), &json!(4)));
    let wide = plan(&["--machine", "lab", "--cpus", "256", "-a", "-e", "cycles"]).run().good().text();
    assert!(wide.contains("On 256 CPUs that makes 256 kernel events."), "{wide}");
    plan(&["--machine", "vax", "-e", "cycles"]).run().bad(125, &["vax", "intel-skylake", "lab"]);
    plan(&["--machine", "intel-skylake", "--counters", "62", "-e", "cycles"])
        .run()
        .bad(125, &["at most 61 general counters"]);
}

#[test]
fn turns_are_shown_as_many_as_wanted() {
    let long = plan(&["--counters", "1", "-e", "r1,r2", "--ticks", "5", "-j"]).run().good().document();
    assert_eq!(long["turns"], json!([[0], [1], [0], [1], [0]]));
    let text = plan(&["--counters", "1", "-e", "r1,r2", "--ticks", "5"]).run().good().text();
    assert!(text.ends_with("\n5 turns; they repeat after 2\n 1  r1  #.#.#\n 2  r2  .#.#.\n"), "{text}");
    let blocks = plan(&["--counters", "1", "-e", "r1,r2"]).env("LC_ALL", "C.UTF-8").run().good().text();
    assert!(blocks.ends_with(" 1  r1  █·\n 2  r2  ·█\n"), "{blocks}");
    plan(&["--ticks", "0", "-e", "r1"]).run().bad(125, &["--ticks"]);
}

#[test]
fn software_events_need_no_other_machine() {
    let text = plan(&["-e", "page-faults,context-switches,task-clock"]).run().good().text();
    assert!(text.starts_with("3 events need no counter: they are seen all the time.\n"), "{text}");
    let tool = plan(&["-e", "page-faults,duration_time", "-j"]).run().good().document();
    assert!(tool["events"].as_array().unwrap().iter().all(|event| event["fate"] == "always"), "{tool}");
    assert_eq!(tool["machine"]["this_machine"], true);
}

#[test]
fn where_counters_are_not_known_another_machine_is_asked_for() {
    skip_unless!(kernel() && common::without_pmu());
    let example = "pmux plan --counters 6 -e '{cycles,page-faults}'";
    let asks = ["no hardware PMU", "--counters N", example, "--machine PROFILE", "arm-neoverse"];
    assert_eq!(plan(&["-e", "{cycles,page-faults}"]).run().bad(125, &asks).text(), "");
    let msr = std::path::Path::new("/sys/bus/event_source/devices/msr").exists();
    if common::needs("pmu", "the PMU msr", msr) {
        let text = plan(&["-e", "msr/tsc/,page-faults"]).run().good().text();
        assert!(text.contains("1 event of the PMU msr: how many of those run at once is not known"), "{text}");
    }
}

/// What was tried is planned with. Others may take counters meanwhile, so each number is compared with those of the same run.
#[test]
fn the_counters_of_this_machine_are_tried() {
    skip_unless!(kernel() && common::needs("pmu", "a hardware PMU", has_pmu()));
    let many = vec!["cycles"; 64].join(",");
    let turns = plan(&["-j", "-e", &many]).run().good().document();
    assert_eq!(turns["machine"]["this_machine"], true);
    let room = turns["pmus"].as_array().unwrap().iter().map(|pmu| &pmu["room"]).find(|room| room["kind"] == "counters");
    let room = room.unwrap();
    let there = room["general"].as_u64().unwrap() + room["fixed"].as_array().unwrap().len() as u64;
    let (on, of) = shares(&turns)[0];
    assert!(on > 0 && on <= there && of == 64, "{on} of {of}, {there} are there");
    assert!(shares(&turns).iter().all(|share| *share == (on, of)));
    assert_eq!(plan(&["-e", &format!("{{{many}}}")]).run().code(), 1, "no machine has so many");
}

#[test]
fn debug_registers_that_are_free_are_what_fits() {
    skip_unless!(kernel());
    let _alone = common::lock(common::DEBUG_REGISTERS);
    let one = plan(&["-j", "-e", "mem:0x1000:w:u"]).run().good().document();
    let mut rooms = one["pmus"].as_array().unwrap().iter().map(|pmu| &pmu["room"]);
    let room = rooms.find(|room| room["kind"] == "debug-registers");
    let Some(free) = room.and_then(|room| room["data"].as_u64()) else {
        println!("skipped: needs breakpoints");
        return;
    };
    let watch = |count: u64| (1..=count).map(|n| format!("mem:{:#x}:w:u", n * 0x1000)).collect::<Vec<_>>().join(",");
    plan(&["-e", &watch(free)]).run().good();
    assert_eq!(plan(&["-e", &watch(free + 1)]).run().code(), 1);
    // The kernel is of the same opinion.
    let refused = |count| {
        let ran = common::stat(["-x,", "-e", &watch(count), "true"]).run();
        ran.rows().iter().filter(|row| row[0].starts_with('<')).count()
    };
    assert_eq!((refused(free), refused(free + 1)), (0, 1));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for line in [&[][..], &["-a"], &["--machine", "lab", "-j"]] {
        plan(line).run().bad(125, &["give the events with -e", "pmux list", "Usage: pmux plan"]);
    }
    plan(&["-j", "-x,", "-e", "cs"]).run().bad(125, &["cannot be used with"]);
    plan(&["--counters", "65", "-e", "cs"]).run().bad(125, &["65"]);
    plan(&["--cpus", "0", "-e", "cs"]).run().bad(125, &["--cpus"]);
    plan(&["--counters", "4", "-e", "cylces"]).run().bad(125, &["unknown event 'cylces'", "cycles"]);
    plan(&["--counters", "4", "-e", "{cycles"]).run().bad(125, &["never closed"]);
    plan(&["make"]).run().bad(125, &["make"]);
}
