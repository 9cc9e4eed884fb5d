//! `pmux stat COMMAND`: what is counted, what is printed where, and what becomes of the command itself.

use crate::common;
use crate::common::{SyncDir, has_pmu, kernel, kernel_mode, new_file, pmux, role, skip_unless, stat, words};

const FAULTS: [&str; 4] = ["-x,", "-e", "page-faults:u", "--"];

#[test]
fn a_command_is_counted() {
    skip_unless!(kernel());
    let ran = stat(["-e", "page-faults:u", "-e", "task-clock:u", "--", "ls", "-l", "/"]).run().good().says(&[
        "\n Performance counter stats for 'ls -l /':\n\n",
        "      page-faults:u  ",
        " msec task-clock:u  ",
        "CPUs utilized\n",
        " seconds time elapsed\n",
        " seconds user\n",
        " seconds sys\n",
    ]);
    assert!(ran.text().contains("etc"), "the command's own output stays what it was");
    assert!(!ran.text().contains("page-faults:u"));
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    for code in [0, 1, 42, 124, 125, 126, 127, 200, 255] {
        let ran = stat(["-e", "task-clock:u", "--", "sh", "-c", &format!("exit {code}")]).run();
        assert_eq!(ran.code(), code, "{}", ran.err);
        ran.says(&["task-clock:u"]).never_says(&["killed"]);
    }
}

#[test]
fn a_signal_of_the_command_is_told_as_a_shell_does() {
    for (name, number) in [("KILL", 9), ("TERM", 15), ("SEGV", 11)] {
        let line = format!("kill -s {name} $$");
        let note = format!(" the command was killed by signal {number}\n");
        stat(["-e", "task-clock:u", "--", "sh", "-c", &line]).run().bad(128 + number, &["task-clock:u", &note]);
    }
}

#[test]
fn input_and_output_of_the_command_are_untouched() {
    stat(["-e", "task-clock:u", "--", "sh", "-c", "test ! -t 0; echo out; echo err >&2"]).run().good().says(&["err\n"]);
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let ran = stat(["-e", "task-clock:u", "cat"]).input(bytes.clone()).run().good();
    assert!(ran.out == bytes, "cat gives back what it gets");
}

#[test]
fn children_threads_and_executed_programs_count() {
    skip_unless!(kernel());
    let child = |line: String| stat(FAULTS).args(["sh", "-c", &line]).run().good().value("page-faults:u");
    let alone = child("true".to_owned());
    let touching = role::quiet_line("touch:1500");
    let with_child = child(format!("{touching}; true"));
    assert!(with_child > alone + 1500.0, "a child's faults: {alone}, {with_child}");
    let pipeline = child(format!("{touching} | {touching} | cat; {touching} & wait"));
    assert!(pipeline > alone + 4500.0, "a pipeline and the background: {alone}, {pipeline}");
    let executed = child(format!("exec sh -c 'exec sh -c \"exec {}\"'", touching.replace('\'', "")));
    assert!(executed > 1500.0, "a chain of programs: {executed}");
    let killed = child(format!("{}; true", role::quiet_line("killed:1500")));
    assert!(killed > 1500.0, "a child that is killed: {killed}");
    let threads = stat(words(&FAULTS, role::words("threads:5,300"))).run().good().value("page-faults:u");
    assert!(threads > 1500.0, "threads: {threads}");
}

#[test]
fn children_are_left_out_where_that_is_asked_for() {
    skip_unless!(kernel());
    let line = format!("{}; true", role::quiet_line("touch:2000"));
    let alone = stat(["-i", "-x,", "-e", "page-faults:u", "--", "sh", "-c", &line]).run().good();
    assert!(alone.value("page-faults:u") < 1500.0, "{}", alone.err);
    let own = |line: &str| {
        let ran = stat(["--no-inherit", "-x,", "-e", "page-faults:u", "--", "sh", "-c", line]).run().good();
        ran.value("page-faults:u")
    };
    let (shell, becomes) = (own(":"), own("exec ls -d /"));
    assert!(becomes > shell + 20.0, "the program that it becomes counts: {shell}, {becomes}");
}

#[test]
fn events_keep_their_order_and_the_names_that_were_typed() {
    skip_unless!(kernel_mode());
    // The modifiers of a whole group are no part of its events' names, as in perf.
    let ran = stat(["-x,", "-e", "faults,cs", "-e", "{task-clock:u,minor-faults}:u", "-e", "-3", "-e", "dummy"]);
    let ran = ran.args(["true"]).run().good();
    let names: Vec<String> = ran.rows().iter().map(|row| row[2].to_owned()).collect();
    assert_eq!(names, ["faults", "cs", "task-clock:u", "minor-faults", "page-faults", "dummy"]);
}

#[test]
fn the_numbers_of_the_first_timec() {
    skip_unless!(kernel_mode());
    let numbers = ["-e", "1", "-e", "3", "-e", "5", "-e", "0,2,4", "-e", "-1", "-e", "-2,-3", "-e", "-4", "-e", "-5"];
    let ran = stat(["-x,"]).args(numbers).args(["true"]).run().good();
    let names: Vec<String> = ran.rows().iter().map(|row| row[2].to_owned()).collect();
    let expected = "instructions cache-misses branch-misses cycles cache-references branches cpu-clock task-clock \
                    page-faults context-switches cpu-migrations";
    assert_eq!(names.join(" "), expected);
    stat(["-e", "6", "true"]).run().bad(125, &["no event has the number 6", "5 branch-misses"]);
}

#[test]
fn timec_is_short() {
    skip_unless!(kernel());
    let (_dir, link) = new_file("timec");
    std::os::unix::fs::symlink(common::PMUX, &link).unwrap();
    let arguments = ["-e", "-3", "-e", "-2", "--", "ls", "/"];
    let linked = common::start(&link, arguments).run().good();
    let named = pmux(["timec"]).args(arguments).run().good();
    for ran in [linked, named] {
        assert!(ran.text().contains("etc"));
        let lines: Vec<&str> = ran.err.lines().collect();
        assert_eq!(lines[..3], ["", " Performance counter stats for 'ls':", ""]);
        let fields: Vec<Vec<&str>> = lines[3..5].iter().map(|line| line.split_whitespace().collect()).collect();
        // Who may not count in the kernel sees that in the names.
        let names = [fields[0][1], fields[1][1]].map(|name| name.trim_end_matches(":u"));
        assert_eq!(names, ["page-faults", "task-clock"]);
        assert!(fields.iter().all(|line| line.len() == 2 && line[0].parse::<u64>().unwrap() > 0), "{}", ran.err);
    }
    let as_json = pmux(["timec", "--json"]).args(arguments).run().good();
    let counts: Vec<serde_json::Value> = as_json.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<&str> =
        counts.iter().map(|count| count["event"].as_str().unwrap().trim_end_matches(":u")).collect();
    assert_eq!(events, ["page-faults", "task-clock"], "{}", as_json.err);
    pmux(["timec", "-e", "-3", "sh", "-c", "exit 3"]).run().bad(3, &["page-faults"]);
    pmux(["timec", "-e", "-3", "no-such-command"]).run().bad(127, &["no-such-command"]);
    pmux(["timec"]).run().bad(125, &["COMMAND"]);
}

#[test]
fn runs_are_repeated_and_their_mean_is_shown() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let line = format!("echo run >>'{}'; exit 3", sync_dir.text("runs"));
    let ran = stat(["-r", "4", "-e", "page-faults:u", "--", "sh", "-c", &line]).run();
    ran.bad(3, &["' (4 runs):", "page-faults:u", " +- ", "seconds time elapsed  ( +-"]);
    assert_eq!(std::fs::read_to_string(sync_dir.path("runs")).unwrap().lines().count(), 4);
    let once = stat(["-r", "1", "-e", "page-faults:u", "true"]).run().good();
    once.never_says(&["runs)", "+-"]);
    let fields = stat(["-x,", "-r", "3", "-e", "page-faults:u", "true"]).run().good();
    assert!(fields.rows()[0][3].ends_with('%'), "{}", fields.err);
}

#[test]
fn the_time_that_it_took_is_the_same_everywhere() {
    let ran = stat(["--no-big-num", "-e", "duration_time", "true"]).run().good();
    let number = |end: &str| {
        let line = ran.err.lines().find(|line| line.contains(end)).unwrap();
        line.split_whitespace().next().unwrap().replace('.', "").trim_start_matches('0').to_owned()
    };
    assert_eq!(number("duration_time"), number("seconds time elapsed"), "{}", ran.err);
}

#[test]
fn file_systems_are_flushed_before_each_run() {
    skip_unless!(common::program("sync"));
    let sync_dir = SyncDir::new();
    std::fs::write(sync_dir.path("sync"), format!("#!/bin/sh\necho sync >>'{}'\n", sync_dir.text("flushed"))).unwrap();
    common::set_mode(sync_dir.path("sync"), 0o755);
    let path = format!("{}:{}", sync_dir.text(""), std::env::var("PATH").unwrap());
    stat(["-S", "-r", "2", "-e", "task-clock:u", "true"]).env("PATH", path).run().good();
    assert_eq!(std::fs::read_to_string(sync_dir.path("flushed")).unwrap(), "sync\nsync\n");
}

#[test]
fn nothing_is_counted_but_the_time() {
    let ran = stat(["-n", "true"]).run().good();
    assert_eq!(ran.err.lines().filter(|line| !line.is_empty()).count(), 4, "{}", ran.err);
    stat(["-n", "-e", "cs", "true"]).run().good().says(&["-n counts nothing"]);
    let fields = stat(["-n", "-x,", "true"]).run().good();
    assert_eq!(fields.err, "");
}

#[test]
fn large_numbers_are_grouped() {
    skip_unless!(kernel());
    let digits = |options: &[&str]| {
        let line = words(options, role::words("touch:1500"));
        let ran = stat(line).run().good();
        let row = ran.err.lines().find(|line| line.ends_with("page-faults:u")).unwrap().to_owned();
        row.split_whitespace().next().unwrap().to_owned()
    };
    for options in [&["-e", "page-faults:u", "--"][..], &["-B", "-e", "page-faults:u", "--"]] {
        let number = digits(options);
        assert!(number.contains(','), "{number}");
    }
    let plain = digits(&["--no-big-num", "-e", "page-faults:u", "--"]);
    assert!(plain.parse::<u64>().unwrap() > 1500);
}

#[test]
fn colour_is_for_terminals_and_on_request() {
    let run = |options: &[&str], no_color: Option<&str>| {
        let mut start = stat(["-e", "task-clock:u"]).args(options.iter().copied()).args(["true"]);
        if let Some(value) = no_color {
            start = start.env("NO_COLOR", value);
        }
        start.run().good().err.contains('\u{1b}')
    };
    assert!(!run(&[], None), "a pipe is no terminal");
    assert!(!run(&["--color", "never"], None));
    assert!(run(&["--color", "always"], None));
    assert!(run(&["--color=always"], Some("1")), "the command line is newer than the environment");
}

#[test]
fn more_is_said_on_demand() {
    skip_unless!(kernel());
    let ran = stat(["-v", "-e", "page-faults:u", "true"]).run().good();
    ran.says(&["page-faults:u: software", "PERF_COUNT_SW_PAGE_FAULTS"]);
    // Programs that read fields get the reasons as well, if they want them.
    let line = ["-x,", "-e", "page-faults:u,no-such:tracepoint", "true"];
    stat(line).run().bad(125, &["no-such"]);
}

#[test]
fn what_is_not_counted_is_no_zero_and_has_a_reason() {
    skip_unless!(kernel() && common::without_pmu());
    stat(["-e", "cycles,page-faults:u", "true"]).run().good().says(&[
        "   <not supported>      cycles\n",
        "\n cycles: not supported: this machine has no hardware PMU (-v: more)\n",
    ]);
    // A line for each cause.
    let ran = stat(["true"]).run().good();
    ran.says(&["\n cycles and 3 more: not supported: this machine has no hardware PMU (-v: more)\n"]);
    let helps = ["cycles, instructions, branches, branch-misses: not ", "\n   what helps: "];
    stat(["-v", "true"]).run().good().says(&helps);
    let ran = stat(["-j", "-e", "cycles", "true"]).run().good();
    assert_eq!(ran.json()[0]["counter-value"], "<not supported>");
    assert_eq!(ran.err.lines().count(), 1, "reasons are not for programs: {}", ran.err);
    stat(["-v", "-j", "-e", "cycles", "true"]).run().good().says(&["no hardware PMU"]);
}

#[test]
fn counting_begins_late() {
    skip_unless!(kernel());
    let note = "the end came before the delay of 3600000 ms was over: nothing was counted";
    let late = stat(["-D", "3600000", "-e", "page-faults:u", "true"]).run().good();
    late.says(&["     <not counted>      page-faults:u\n", note]);
    let at_once = stat(words(&["-D", "0", "-x,", "-e", "page-faults:u", "--"], role::words("touch:100"))).run().good();
    assert!(at_once.err.contains("page-faults:u"), "{}", at_once.err);
    // It runs until the time is over, which begins when counting does.
    let line = ["-D", "30", "--timeout", "30", "-x,", "-e", "task-clock:u", "--", "sh", "-c", "while :; do :; done"];
    let spun = stat(line).run();
    assert_eq!(spun.code(), 143, "{}", spun.err);
    assert!(spun.value("task-clock:u") > 0.0);
}

#[test]
fn a_time_limit_ends_the_command() {
    let ran = stat(["--timeout", "20", "-e", "task-clock:u", "sleep", "1000"]).run();
    ran.bad(143, &["task-clock:u", "the command was ended after 20 ms, as --timeout asks"]);
    stat(["--timeout", "3600000", "-e", "task-clock:u", "true"]).run().good().never_says(&["--timeout"]);
}

#[test]
fn intervals_miss_nothing() {
    skip_unless!(kernel());
    let line = format!("{}; sleep 0.2; {}", role::quiet_line("touch:1000"), role::quiet_line("touch:1000"));
    let ran = stat(["-I", "50", "--summary", "-x,", "-e", "page-faults:u", "--", "sh", "-c", &line]).run().good();
    let fields: Vec<Vec<&str>> = ran.err.lines().map(|line| line.split(',').map(str::trim).collect()).collect();
    let (summary, intervals) = fields.split_last().unwrap();
    assert_eq!(summary[0], "summary", "{}", ran.err);
    let times: Vec<f64> = intervals.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(times.is_sorted() && times.len() > 1, "{times:?}");
    let sum: f64 = intervals.iter().filter_map(|row| row[1].parse::<f64>().ok()).sum();
    assert_eq!(sum, summary[1].parse::<f64>().unwrap(), "{}", ran.err);
    assert!(sum > 2000.0, "{}", ran.err);
}

#[test]
fn intervals_are_told_as_a_table_too() {
    skip_unless!(kernel());
    let ran = stat(["-I", "20", "-e", "task-clock:u", "sleep", "0.1"]).run().good();
    assert_eq!(ran.err.lines().next(), Some("#           time             counts unit events"));
    let notes = ran.err.lines().filter(|line| line.starts_with("# task-clock")).count();
    assert!(notes <= 1, "a reason is given once: {}", ran.err);
    stat(["-I", "1", "-e", "task-clock:u", "true"]).run().good().says(&["may disturb"]);
}

#[test]
fn a_number_of_intervals_is_enough() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let line = format!("sleep 0.2; echo done >'{}'; exit 4", sync_dir.text("done"));
    let ran = stat(["-I", "20", "--interval-count", "2", "-x,", "-e", "task-clock:u", "--", "sh", "-c", &line]).run();
    assert_eq!(ran.code(), 4, "the command is waited for: {}", ran.err);
    assert_eq!(ran.err.lines().count(), 2, "{}", ran.err);
    assert_eq!(sync_dir.read("done"), "done");
}

#[test]
fn a_weak_group_that_no_pmu_can_hold_is_broken_up() {
    skip_unless!(kernel() && common::needs("pmu", "a hardware PMU", has_pmu()));
    let wide = format!("{{{}}}", vec!["instructions:u"; 40].join(","));
    let strong = stat(["-x,", "-e", &wide, "true"]).run().good();
    // Some PMUs take any group, and never count it.
    let refuses = strong.rows().iter().any(|row| row[0] == "<not supported>");
    skip_unless!(common::needs("group-check", "a kernel that refuses groups which never fit", refuses));
    let ran = stat(["-v", "-x,", "-e", &wide, "true"]).run().good();
    assert!(!ran.err.contains("each by itself"), "only a weak group is: {}", ran.err);
    let weak = format!("{wide}:W");
    let said = ["the kernel doesn't take instructions:u into it", "its events are counted each by itself"];
    stat(["-v", "-x,", "-e", &weak, "true"]).run().good().says(&said);
    let counted = stat(["-x,", "-e", &weak, "true"]).run().good();
    assert_eq!(counted.rows().len(), 40);
    assert!(counted.rows().iter().all(|row| row[0] != "<not supported>"), "{}", counted.err);
}
