//! `pmux stat --regions`: what the parts of a program cost that it marks with `pmux::region`.
//!
//! Read first: [`play`], the programs that are measured.

use crate::common::recording::Content;
use crate::common::{CommandResult, Start, kernel, new_file, perf, pmux, program, role, skip_unless, start};
use pmux_testkit::role::touch;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Pages that a region of [`play`] touches.
const PAGES: usize = 100;

/// What the regions of a run have cost: calls, and each event's count.
type Costs = BTreeMap<String, (u64, BTreeMap<String, f64>)>;

/// The programs: they mark regions.
pub(crate) fn play(kind: &str) {
    let touching = |name: &'static str, first: usize, times: usize| {
        let _region = pmux::region(name);
        (0..times).for_each(|time| touch(first + time * PAGES, PAGES));
    };
    // What the first region of a thread costs beside: memory for its events.
    drop(pmux::region("warm"));
    match kind {
        "within" => {
            let _outer = pmux::region("outer");
            touching("inner", 0, 1);
            touching("inner", PAGES, 1);
            touch(2 * PAGES, PAGES);
        }
        "itself" => {
            fn dive(depth: usize) {
                let _region = pmux::region("dive");
                touch(depth * PAGES, PAGES);
                if depth > 0 {
                    dive(depth - 1);
                }
            }
            dive(9);
        }
        "threads" => std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    drop(pmux::region("warm"));
                    touching("work", thread * PAGES, 1);
                });
            }
        }),
        "processes" => {
            touching("work", 0, 1);
            assert!(role::command("regions:within").status().unwrap().success());
        }
        "closes" => {
            // As programs do that close what they did not open.
            let place = std::env::var("PMUX_REGIONS").unwrap();
            let script = format!("exec {}>&-; exec \"$0\" \"$@\"", place.split(':').nth(1).unwrap());
            let words = role::words("regions:within");
            assert!(std::process::Command::new("bash").arg("-c").arg(script).args(&words).status().unwrap().success());
        }
        "sleeps" => {
            // What is known of the truth: no longer than around, and no shorter than within.
            let sleep = |ms| std::thread::sleep(Duration::from_millis(ms));
            let moments: [Instant; 8] = {
                let (a, outer, b) = (Instant::now(), pmux::region("outer"), Instant::now());
                sleep(30);
                let (c, inner, d) = (Instant::now(), pmux::region("inner"), Instant::now());
                sleep(50);
                let (e, (), f) = (Instant::now(), drop(inner), Instant::now());
                let (g, (), h) = (Instant::now(), drop(outer), Instant::now());
                [a, b, c, d, e, f, g, h]
            };
            for (from, to) in [(1, 6), (0, 7), (3, 4), (2, 5)] {
                println!("{}", (moments[to] - moments[from]).as_nanos());
            }
        }
        "slow" => (0..10).for_each(|_| {
            let _step = pmux::region("step");
            std::thread::sleep(Duration::from_millis(150));
        }),
        "tangled" => {
            let (a, b) = (pmux::region("a"), pmux::region("b"));
            touch(0, PAGES);
            drop(a);
            touch(PAGES, PAGES);
            drop(b);
            // One name at two addresses is one region.
            let name = || &*Box::leak("twice".to_owned().into_boxed_str());
            let (_one, _other) = (pmux::region(name()), pmux::region(name()));
            touch(2 * PAGES, PAGES);
        }
        "deep" => {
            fn dive(depth: usize) {
                let _region = pmux::region("dive");
                if depth > 0 {
                    dive(depth - 1);
                }
            }
            dive(1999);
        }
        "many" => (0..1100).for_each(|number| drop(pmux::region(Box::leak(format!("r{number}").into_boxed_str())))),
        "long" => {
            let name = "ä".repeat(40);
            drop(pmux::region(Box::leak(name.into_boxed_str())));
            drop(pmux::region("a\u{1b}[2Jb"));
        }
        "killed" => {
            drop(pmux::region("done"));
            let _open = pmux::region("open");
            std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status().unwrap();
            panic!("no process survives that");
        }
        "nothing" => {}
        other => panic!("{other}"),
    }
}

/// The command under test with these words, and one of the programs behind them.
fn with_program(words: &[&str], kind: &str) -> Start {
    pmux(words).args(role::words(&format!("regions:{kind}")))
}

fn costs(kind: &str, events: &str) -> (Costs, CommandResult) {
    let ran = with_program(&["stat", "--regions", "-j", "-e", events, "--"], kind).run();
    let mut costs = Costs::new();
    for line in ran.json() {
        let Some(name) = line["region"].as_str() else { continue };
        let (calls, counts) = costs.entry(name.to_owned()).or_default();
        *calls = line["calls"].as_u64().unwrap();
        let count = line["counter-value"].as_str().unwrap().parse().unwrap_or(-1.0);
        counts.insert(line["event"].as_str().unwrap().to_owned(), count);
    }
    (costs, ran)
}

const FAULTS: &str = "page-faults:u";

/// What a region of these calls and faults is.
fn is(costs: &Costs, name: &str) -> (u64, f64) {
    let (calls, counts) = costs.get(name).unwrap_or_else(|| panic!("{name} in {costs:?}"));
    (*calls, counts[FAULTS])
}

/// Whether it is so many pages, and what code and memory are touched for the first time beside.
fn is_pages((calls, faults): (u64, f64), expected: u64, pages: usize) -> bool {
    calls == expected && (pages as f64..pages as f64 + 15.0).contains(&faults)
}

#[test]
fn a_region_costs_what_is_done_in_it() {
    skip_unless!(kernel());
    let check = |kind: &str, regions: &[(&str, u64, usize)]| {
        let (costs, ran) = costs(kind, FAULTS);
        ran.good();
        for &(name, calls, pages) in regions {
            assert!(is_pages(is(&costs, name), calls, pages), "{kind}: {name} is {calls}, {pages}: {costs:?}");
        }
    };
    check("within", &[("outer", 1, 3 * PAGES), ("inner", 2, 2 * PAGES)]);
    // The outer one only.
    check("itself", &[("dive", 10, 10 * PAGES)]);
    check("tangled", &[("a", 1, PAGES), ("b", 1, 2 * PAGES), ("twice", 2, PAGES)]);
    check("threads", &[("work", 4, 4 * PAGES), ("warm", 5, 0)]);
    check("processes", &[("work", 1, PAGES), ("inner", 2, 2 * PAGES), ("warm", 2, 0)]);
}

#[test]
fn a_program_on_the_way_may_close_what_it_did_not_open() {
    skip_unless!(kernel() && program("bash"));
    let (closes, ran) = costs("closes", FAULTS);
    ran.good();
    assert!(is_pages(is(&closes, "outer"), 1, 3 * PAGES), "{closes:?}");
}

#[test]
fn several_events_and_times_without_any() {
    skip_unless!(kernel());
    let (several, _) = costs("within", "task-clock:u,page-faults:u,{minor-faults:u,major-faults:u}");
    let counts = &several["outer"].1;
    assert_eq!(counts.len(), 4, "{counts:?}");
    assert_eq!(counts["page-faults:u"], counts["minor-faults:u"] + counts["major-faults:u"], "{counts:?}");
    assert!(counts["task-clock:u"] > 0.0);
    // Where events are refused, the kernel's accounts are what is left.
    let start = with_program(&["stat", "--regions", "-x,", "-e", "page-faults", "--"], "within");
    let ran = start.env("PMUX_BACKEND", "usage").run().good();
    let is_outer = |row: &Vec<&str>| row[..2] == ["outer", "1"] && row[5] == "page-faults";
    assert!(ran.rows().iter().any(is_outer), "{}", ran.err);
}

#[test]
fn what_is_missing_is_said() {
    let says =
        |kind: &str, texts: &[&str]| with_program(&["stat", "--regions", "-e", FAULTS, "--"], kind).run().says(texts);
    says("killed", &["regions were entered 1 times and not left, which is not counted: open", "   done\n"]);
    says(
        "many",
        &["regions were entered 77 times that are not counted: there are more than 1,024 names", "   r1000\n"],
    );
    pmux(["stat", "--regions", "-e", FAULTS, "true"]).run().says(&["no region was entered", "pmux::region"]);
    let long = says("long", &["   a\\u{1b}[2Jb\n"]);
    assert!(long.err.contains(&format!("   {}\n", "ä".repeat(32))), "{}", long.err);
    for (options, word) in [
        (&["-a"][..], "give a COMMAND alone"),
        (&["-r", "2"], "-r"),
        (&["-I", "100"], "-I"),
        (&["-D", "100"], "-D"),
        (&["-n"], "-n"),
        (&["--mux=engine"], "--mux=engine"),
    ] {
        pmux([&["stat", "--regions"], options, &["true"]].concat()).run().bad(125, &["--regions", word]);
    }
    let events = ["dummy"; 17].join(",");
    pmux(["stat", "--regions", "-e", &events, "true"]).run().bad(125, &["at most 16 events", "17"]);
}

#[test]
fn nothing_is_counted_without_being_asked_for() {
    skip_unless!(kernel());
    with_program(&["stat", "-e", FAULTS, "--"], "within").run().good().never_says(&["outer", "inner"]);
    // A place that is none, or that is another file's, is none.
    for place in ["", "1", "1:2", "x:1:page-faults", "1:0:page-faults", "4000000000:4000000000:x", "1:1:"] {
        with_program(&["stat", "-e", FAULTS, "--"], "within").env("PMUX_REGIONS", place).run().good();
    }
}

/// The recording of a program's regions: how `pmux report -j` sums them up.
fn recorded(file: &Path, options: &[&str], kind: &str) -> (BTreeMap<String, (u64, u64, u64)>, CommandResult) {
    let start = pmux(["record", "--regions", "-e", "cpu-clock:u", "-o"]).args([file]).args(options);
    let ran = start.args(["--"]).args(role::words(&format!("regions:{kind}"))).run();
    (sums(file), ran)
}

/// For each region how many samples it has, and the time in it itself and with those within it.
fn sums(file: &Path) -> BTreeMap<String, (u64, u64, u64)> {
    let ran = pmux(["report", "-j", "-e", "region-time", "-i", file.to_str().unwrap()]).run();
    // One of several files may have none.
    if ran.err.contains("no sample matches") {
        return BTreeMap::new();
    }
    let report = ran.good().document();
    let rows = report["events"][0]["rows"].as_array().into_iter().flatten();
    let sum = |row: &serde_json::Value| {
        let own = |key: &str| row["self"][key].as_u64().unwrap();
        (own("samples"), own("period"), row["children"]["period"].as_u64().unwrap())
    };
    rows.map(|row| (row["symbol"].as_str().unwrap().to_owned(), sum(row))).collect()
}

#[test]
fn a_recording_has_the_time_of_each_region() {
    skip_unless!(kernel());
    let (_dir, file) = new_file("r.data");
    let (sums, ran) = recorded(&file, &[], "sleeps");
    let truth: Vec<u64> = ran.text().lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    let [outer_least, outer_most, inner_least, inner_most] = truth[..] else { panic!("{}", ran.text()) };
    let ((1, outer_own, outer), (1, inner, all)) = (sums["outer"], sums["inner"]) else { panic!("{sums:?}") };
    assert!((inner_least..=inner_most).contains(&inner) && inner == all, "{inner_least} {inner_most} {sums:?}");
    assert!((outer_least..=outer_most).contains(&outer) && outer == outer_own + inner, "{truth:?} {sums:?}");
    // Others find them, too.
    if perf() {
        let script = start("perf", ["script", "-F", "event,ip,sym", "-i", file.to_str().unwrap()]).run().good().text();
        let names: Vec<&str> = script.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        assert!(names.windows(2).any(|names| names == ["inner", "outer"]), "{script}");
    }
    // Compressed, and in a pipe.
    let (packed, _) = recorded(&file, &["-z"], "within");
    assert_eq!((packed["outer"].0, packed["inner"].0, packed["warm"].0), (1, 2, 1));
    let piped = with_program(&["record", "--regions", "-e", "cpu-clock:u", "-o", "-", "--"], "within").run();
    std::fs::write(&file, piped.out).unwrap();
    assert_eq!(self::sums(&file)["inner"].0, 2);
}

#[test]
fn threads_processes_and_depth_are_recorded() {
    skip_unless!(kernel());
    let (_dir, file) = new_file("r.data");
    let count = |kind: &str, name: &str| {
        let (sums, ran) = recorded(&file, &[], kind);
        ran.good();
        sums[name].0
    };
    assert_eq!((count("threads", "work"), count("processes", "inner"), count("itself", "dive")), (4, 2, 10));
    assert_eq!((count("deep", "dive"), count("tangled", "twice"), count("tangled", "b")), (2000, 2, 1));
    // In each file the names stand again.
    let words = ["record", "--regions", "-e", "cpu-clock:u", "--switch-output=1s", "-o"];
    let parts = tempfile::tempdir().unwrap();
    let ran = pmux(words).args([parts.path().join("x")]).args(["--"]).args(role::words("regions:slow")).run().good();
    let files = std::fs::read_dir(parts.path()).unwrap().map(|entry| entry.unwrap().path());
    let sums: Vec<_> = files.map(|file| sums(&file)).collect();
    assert!(sums.iter().filter(|sums| sums.contains_key("step")).count() > 1, "{sums:?} {}", ran.err);
    let steps = sums.iter().filter_map(|sums| sums.get("step")).map(|(samples, _, _)| samples).sum::<u64>();
    assert_eq!(steps, 10, "{sums:?}");
    // What is not there is said.
    let (sums, ran) = recorded(&file, &[], "killed");
    ran.says(&["1 regions were under way at the end"]);
    assert!(sums.contains_key("done") && !sums.contains_key("open"), "{sums:?}");
    // Before the recording begins, none is marked.
    let late = ["record", "--regions", "-e", "cpu-clock:u", "-D", "100000", "-o"];
    pmux(late).args([&file]).args(["--"]).args(role::words("regions:within")).run().good();
    assert_eq!(Content::read(&file).samples, 0);
    pmux(["record", "--regions", "-a"]).run().bad(125, &["--regions are those of a command"]);
}
