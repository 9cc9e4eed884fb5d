//! `pmux stat --tree`: each process with its own counts.

use crate::common;
use crate::common::{SyncDir, kernel, role, skip_unless, stat};
use serde_json::Value;
use std::collections::HashMap;

/// `--tree -j` of a shell line, for one event.
fn tree(event: &str, line: &str) -> Value {
    let ran = stat(["--tree", "-j", "-e", event, "--", "sh", "-c", line]).run().good();
    let mut lines = ran.json();
    assert_eq!(lines.len(), 1, "one object: {}", ran.err);
    let tree = lines.remove(0);
    check(&tree);
    tree
}

/// All processes, each with how deep it is.
fn processes(tree: &Value) -> Vec<(usize, &Value)> {
    let mut found = Vec::new();
    let mut waiting: Vec<(usize, &Value)> =
        tree["processes"].as_array().unwrap().iter().map(|process| (0, process)).collect();
    while let Some((depth, process)) = waiting.pop() {
        found.push((depth, process));
        waiting.extend(process["children"].as_array().unwrap().iter().map(|child| (depth + 1, child)));
    }
    found
}

/// What holds for every tree: each process counts itself, and together they are the total.
fn check(tree: &Value) {
    let all = processes(tree);
    assert_eq!(tree["processes"].as_array().unwrap().len(), 1, "one root: {tree}");
    for (event, total) in tree["total"].as_object().unwrap() {
        let Some(total) = total.as_f64() else { continue };
        let sum: f64 = all.iter().map(|(_, process)| process["events"][event].as_f64().unwrap_or(0.0)).sum();
        let lost = tree["unattributed"][event].as_f64().unwrap_or(0.0);
        assert!(
            (sum + lost - total).abs() <= 1e-5 * all.len() as f64,
            "{event}: {sum} + {lost} is not {total}: {tree}"
        );
    }
    for (_, process) in all {
        assert!(process["pid"].as_i64().unwrap() > 0);
        assert!(process["threads"].as_u64().unwrap() > 0);
        assert!(process["start_ns"].is_u64() && process["wall_ns"].is_u64(), "{process}");
    }
}

fn named<'t>(tree: &'t Value, command: &str) -> &'t Value {
    let found: Vec<_> = processes(tree).into_iter().filter(|(_, process)| process["command"] == command).collect();
    assert_eq!(found.len(), 1, "{command} in {tree}");
    found[0].1
}

#[test]
fn a_pipeline_shows_each_of_its_processes() {
    skip_unless!(common::reports());
    let line = "ls / | wc; sleep 0.1";
    let ran = stat(["--tree", "-e", "task-clock:u,page-faults:u", "--", "sh", "-c", line]).run().good();
    let rows: Vec<&str> = ran.err.lines().skip(3).take_while(|line| !line.is_empty()).collect();
    assert_eq!(rows.len(), 6, "{}", ran.err);
    let expected =
        [" command  ", " sh -c ls / | wc; sleep 0.1  ", " ├─ ls", " ├─ wc", " └─ sleep", " total of 4 processes  "];
    for (row, start) in rows.iter().zip(expected) {
        assert!(row.starts_with(start), "{row:?} does not start with {start:?}");
    }
    let number = |row: &str| row.split_whitespace().next_back().unwrap().replace(',', "").parse::<u64>().unwrap();
    let faults: Vec<u64> = rows[1..].iter().map(|row| number(row)).collect();
    assert!(faults.iter().all(|&count| count > 10), "{}", ran.err);
    assert_eq!(faults[..4].iter().sum::<u64>(), faults[4], "{}", ran.err);
    let program = tree("page-faults:u", line);
    assert_eq!(program["command"], "sh -c ls / | wc; sleep 0.1");
    for command in ["ls", "wc", "sleep"] {
        assert!(named(&program, command)["events"]["page-faults:u"].as_u64().unwrap() > 10);
    }
    assert!(named(&program, "sleep")["wall_ns"].as_u64().unwrap() >= 100_000_000);
    assert_eq!(program["processes"][0]["exit"]["code"], 0);
}

#[test]
fn ends_are_told_as_far_as_they_are_known() {
    skip_unless!(kernel());
    let ran = stat(["--tree", "-e", "page-faults:u", "--", "sh", "-c", "true & kill -9 $$"]).run();
    ran.bad(137, &["[signal 9]"]);
    let ran = stat(["--tree", "-e", "page-faults:u", "--", "sh", "-c", "sh -c 'kill -9 $$'; exit 7"]).run();
    ran.bad(7, &["[exit 7]", "total of 2 processes"]);
    let ran = stat(["--tree", "-j", "-e", "page-faults:u", "--", "sh", "-c", "exit 7"]).run();
    assert_eq!(ran.json()[0]["processes"][0]["exit"]["code"], 7);
}

#[test]
fn a_thousand_children_are_folded_and_all_there() {
    skip_unless!(common::reports());
    let line = "i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done";
    let program = tree("page-faults:u", line);
    assert_eq!(processes(&program).len(), 1001);
    let children = program["processes"][0]["children"].as_array().unwrap();
    assert!(
        children.iter().all(|child| child["command"] == "true" && child["events"]["page-faults:u"].as_u64() > Some(0))
    );
    let folded = stat(["--tree", "-e", "page-faults:u", "--", "sh", "-c", line]).run().good();
    assert!(folded.err.lines().count() < 30, "{}", folded.err);
    let folded = folded.says(&["└─ true ×1000", " total of 1001 processes"]);
    let all = stat(["--tree", "-v", "-e", "page-faults:u", "--", "sh", "-c", line]).run().good();
    assert_eq!(all.err.matches("─ true ").count(), 1000);
    let total = |text: &str| {
        let line = text.lines().find(|line| line.starts_with(" total of ")).unwrap().to_owned();
        line.split_whitespace().next_back().unwrap().replace(',', "").parse::<f64>().unwrap()
    };
    let (folded, all) = (total(&folded.err), total(&all.err));
    assert!((folded - all).abs() < 0.1 * all, "{folded} against {all}");
}

#[test]
fn a_process_that_stays_behind_is_still_running() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let (role, here) = (role::line(&format!("behind:200,{}", sync_dir.text(""))), sync_dir.text("here"));
    let line = format!("setsid {role} >/dev/null 2>&1 </dev/null & while [ ! -e '{here}' ]; do sleep 0.01; done");
    let ran = stat(["--tree", "-e", "page-faults:u", "--", "sh", "-c", &line]).run();
    let pid: i32 = sync_dir.read("here").parse().unwrap();
    assert!(common::lives(pid), "it goes on");
    // The second one has to arrive as well, or it would find the door's folder half removed.
    std::fs::remove_file(sync_dir.path("here")).unwrap();
    let tree = stat(["--tree", "-j", "-e", "page-faults:u", "--", "sh", "-c", &line]).run();
    sync_dir.post("go");
    sync_dir.post("leave");
    ran.good().says(&["[still running]", "1 process was still running"]);
    let exits: Vec<String> =
        processes(&tree.json()[0]).iter().map(|(_, process)| process["exit"].to_string()).collect();
    assert!(exits.contains(&"\"running\"".to_owned()) || exits.len() == 1, "{exits:?}");
}

#[test]
fn names_that_others_chose_do_no_harm() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let names = ["a b", "line\nbreak", "red\u{1b}[31m", "grüße", "quote\"s\\", "back\u{202e}wards"];
    let mut line = String::new();
    for name in names {
        common::copy_of("true", &sync_dir.path(name));
        line.push_str(&format!("'{}'; ", sync_dir.text(name)));
    }
    line.push_str("true");
    let table = stat(["--tree", "-e", "page-faults:u", "--", "sh", "-c", &line]).run().good();
    assert!(!table.err.contains(['\u{1b}', '\u{202e}']), "{:?}", table.err);
    let table = table.says(&["─ a b  ", "─ line\\nbreak  ", "─ red\\u{1b}[31m  ", "─ grüße  "]);
    let rows: Vec<&str> = table.err.lines().filter(|line| line.contains("─ ")).collect();
    assert_eq!(rows.len(), names.len(), "a name is one line: {}", table.err);
    let program = tree("page-faults:u", &line);
    let counts: HashMap<String, u64> = processes(&program)
        .into_iter()
        .map(|(_, process)| {
            (process["command"].as_str().unwrap().to_owned(), process["events"]["page-faults:u"].as_u64().unwrap())
        })
        .collect();
    for name in names {
        // The kernel keeps 15 bytes.
        let kept = String::from_utf8_lossy(&name.as_bytes()[..name.len().min(15)]).into_owned();
        assert!(counts.contains_key(&kept), "{kept:?} in {counts:?}");
    }
}

#[test]
fn what_was_refused_has_no_column_but_a_reason() {
    skip_unless!(kernel() && common::without_pmu());
    let ran = stat(["--tree", "-e", "cycles,page-faults:u", "--", "sh", "-c", "true; true"]).run().good();
    assert!(ran.err.lines().nth(3).unwrap().trim_end().ends_with("page-faults:u"), "{}", ran.err);
    let ran = ran.says(&[" cycles: not supported: this machine has no hardware PMU"]);
    assert!(!ran.err.lines().any(|line| line.contains("<not supported>")), "{}", ran.err);
    let ran = stat(["--tree", "-e", "cycles", "true"]).run().good();
    ran.says(&["           cycles\n", "  <not supported>\n"]);
    let ran = stat(["--tree", "-j", "-e", "cycles,instructions,page-faults:u", "true"]).run().good();
    let notes = ran.json()[0]["notes"].as_array().unwrap().clone();
    assert_eq!(notes.len(), 1, "equal reasons are said once: {notes:?}");
    assert!(notes[0].as_str().unwrap().starts_with("cycles, instructions: not supported: "), "{notes:?}");
    assert_eq!(ran.json()[0]["total"]["cycles"], Value::Null);
}

#[test]
fn what_is_known_of_the_whole_only_is_in_the_total() {
    skip_unless!(kernel());
    let ran =
        stat(["--tree", "-j", "-e", "page-faults:u,max_rss,duration_time", "--", "sh", "-c", "/bin/true; true"]).run();
    let ran = ran.good();
    let tree = &ran.json()[0];
    let faults = |process: &Value| process["events"]["page-faults:u"].as_u64().unwrap_or(0);
    let sum: u64 = processes(tree).iter().map(|(_, process)| faults(process)).sum();
    assert_eq!(tree["total"]["page-faults:u"].as_u64(), Some(sum));
    assert!(tree["total"]["max_rss"].as_u64() > Some(4096), "{tree}");
    assert_eq!(tree["total"]["duration_time"], tree["elapsed_ns"]);
    assert!(processes(tree).iter().all(|(_, process)| process["events"]["max_rss"].is_null()), "{tree}");
    let notes = tree["notes"].to_string();
    assert!(notes.contains("max_rss, duration_time: known of the command as a whole"), "{notes}");
    let never =
        stat(["--tree", "-D", "3600000", "-e", "page-faults:u", "--", "sh", "-c", "/bin/true; true"]).run().good();
    assert_eq!(never.err.matches("<not counted>\n").count(), 3, "no zeros: {}", never.err);
}

#[test]
fn a_tree_goes_to_a_file() {
    if kernel() {
        let sync_dir = SyncDir::new();
        let path = sync_dir.text("out");
        stat(["--tree", "-o", &path, "-e", "page-faults:u", "--", "sh", "-c", "true; true"]).run().good();
        assert!(std::fs::read_to_string(path).unwrap().contains("total of "));
    }
}

#[test]
fn children_that_say_nothing_have_no_zero() {
    skip_unless!(kernel());
    let ran = stat(["--tree", "-e", "page-faults:u", "--", "sh", "-c", "(:); :"]).run().good();
    let silent = ran.err.contains("this kernel does not report what processes have counted when they exit");
    assert_eq!(ran.err.contains("<not counted>"), silent, "{}", ran.err);
    assert!(!ran.err.contains("records about processes were lost"), "{}", ran.err);
    let tree = tree("page-faults:u", "(:); :");
    let child = &processes(&tree).into_iter().find(|(depth, _)| *depth == 1).unwrap().1["events"]["page-faults:u"];
    assert_eq!(child.is_null() || child.is_string(), silent, "{tree}");
}
