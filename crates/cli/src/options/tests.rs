//! Tests of the command line as a user types it.

use super::control::Delay;
use super::stat::StatOptions;
use super::target::TargetSpec;
use super::*;
use crate::stat::format::{Columns, Layout};
use crate::style::ColorChoice;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn run(line: &str) -> Result<Invocation, String> {
    parse(words(line)).map_err(|shown| shown.to_string())
}

fn stat(line: &str) -> Result<StatOptions, String> {
    match run(&format!("pmux stat {line}"))? {
        Invocation::Stat(options) => Ok(*options),
        other => Err(format!("not stat: {other:?}")),
    }
}

/// Parses options that must be right.
#[track_caller]
fn good(line: &str) -> StatOptions {
    match stat(line) {
        Ok(options) => options,
        Err(message) => panic!("{line}: {message}"),
    }
}

/// Parses options that must be refused with these words.
#[track_caller]
fn bad(line: &str, expected: &str) {
    match stat(line) {
        Ok(options) => panic!("{line} was taken: {options:?}"),
        Err(message) => assert!(message.contains(expected), "{line}: {message}"),
    }
}

#[test]
fn the_definitions_are_sound() {
    Pmux::command().debug_assert();
    timec::Timec::command().debug_assert();
}

#[test]
fn options_stop_at_the_command() {
    for line in ["ls -l -e x --tree", "-- ls -l -e x --tree"] {
        let options = good(line);
        assert_eq!(options.command, words("ls -l -e x --tree"), "{line}");
        assert!(options.events.is_empty() && !options.tree);
    }
    assert_eq!(good("-- --weird -a").command, words("--weird -a"));
    assert_eq!(good("sh -c true -- x").command, words("sh -c true -- x"));
    assert_eq!(good("-v echo -v -- -v").command, words("echo -v -- -v"));
    bad("--no-such-option ls", "--no-such-option");
}

#[test]
fn events_may_be_numbers() {
    let options = good("-e 1 -e -3 -e cycles:u,{branches,branch-misses} ls -e 5");
    assert_eq!(options.events, ["1", "-3", "cycles:u,{branches,branch-misses}"]);
    assert_eq!(good("-e-1 true").events, ["-1"]);
    assert_eq!(good("--event=-2 true").events, ["-2"]);
}

#[test]
fn every_letter_of_perf_is_understood() {
    let options = good("-a -A -B -S -i -dd -vv -D 5 -o out --append -e x --color never true");
    assert!(options.all_cpus && options.no_aggr && options.big_num && options.sync);
    assert!(options.no_inherit && options.append);
    assert_eq!((options.detailed, options.verbose), (2, 2));
    assert_eq!(options.delay, Some(Delay::Ms(5)));
    assert_eq!(options.color, ColorChoice::Never);
    let options = good("-p 1,2 -I 100 --interval-count 3 --per-thread -j --summary");
    assert_eq!(options.pid, [1, 2]);
    assert_eq!(options.interval_ms, Some(100));
    assert!(options.per_thread && options.json && options.summary);
    let options = good("-t 7 -x, --metric-only --log-fd 3");
    assert_eq!(options.tid, [7]);
    assert_eq!(options.log_fd, Some(3));
    let options = good("-C 0-1,3 -e a,b -G x,y -n");
    assert_eq!(options.cpu.as_deref(), Some("0-1,3"));
    assert!(options.null);
    assert_eq!(good("-r 0 true").repeat, Some(0));
    assert_eq!(good("--timeout 10 sleep 1").timeout_ms, Some(10));
    assert_eq!(good("-a --for-each-cgroup a,b true").for_each_cgroup, ["a", "b"]);
}

#[test]
fn the_later_of_two_opposites_wins() {
    assert!(!good("-B --no-big-num true").big_num);
    assert!(!good("--no-big-num -B true").no_big_num);
    assert!(good("--no-summary --summary -I 100 true").summary);
}

#[test]
fn targets() {
    for (line, target, command) in [
        ("ls -l", TargetSpec::Command, "ls -l"),
        ("-p 5 ls -l", TargetSpec::Pids(vec![5]), "ls -l"),
        ("-t 5,6", TargetSpec::Tids(vec![5, 6]), ""),
        ("-a", TargetSpec::Cpus(None), ""),
        ("", TargetSpec::Cpus(None), ""),
        ("-a -C 1 ls -l", TargetSpec::Cpus(Some("1".to_owned())), "ls -l"),
    ] {
        let options = good(line);
        assert_eq!((options.target(), options.command), (target, words(command)), "{line}");
    }
}

#[test]
fn formats() {
    let layout = |line: &str| good(line).format().0;
    assert_eq!(layout("true"), Layout::Table);
    assert_eq!(layout("-j true"), Layout::Json);
    assert_eq!(layout("-x, true"), Layout::Csv(",".to_owned()));
    assert_eq!(layout("-x \\t true"), Layout::Csv("\t".to_owned()));
    assert_eq!(layout("-x - true"), Layout::Csv("-".to_owned()));
    assert_eq!(good("--metric-only true").format().1, Columns::MetricsOnly);
}

#[test]
fn times_are_checked() {
    bad("-I 0 true", "at least 1 ms");
    bad("-I x true", "invalid value");
    bad("--interval-count 2 true", "give -I");
    bad("-I 100 --interval-count 0 true", "at least 1 interval");
    bad("--timeout 9 true", "at least 10 ms");
    bad("--timeout 100 -I 10 true", "--interval-count");
    bad("-D -1 true", "give --control");
    bad("-D -5 true", "it must be -1, or a time");
    assert_eq!(good("-D -1 --control fd:3 true").delay, Some(Delay::UntilEnabled));
    let short = "an interval of 9 ms: reading the counters may disturb what is measured";
    assert_eq!(good("-I 9 true").warnings(), [short]);
    assert!(good("-I 10 true").warnings().is_empty());
    assert_eq!(good("--summary true").warnings(), ["--summary has no effect without -I"]);
}

#[test]
fn targets_are_checked() {
    bad("-p 1 -C 0 true", "-p and -C");
    bad("-p 1 -a true", "-p and -a");
    bad("-p 1 -t 2", "-p and -t");
    bad("-p bash", "separated by commas");
    bad("-p 0", "greater than 0");
    bad("-C x", "0-3,6");
    bad("-C 3-1", "backwards");
    bad("-r 3 -a", "give a COMMAND");
    bad("-r 3 -I 100 true", "-r and -I");
    bad("-r 3 --metric-only true", "--metric-only");
}

#[test]
fn events_are_checked() {
    assert_eq!(good("-n -e cs true").warnings(), ["-n counts nothing: -e and -d have no effect"]);
    assert!(good("-n true").warnings().is_empty());
    let empty = ["pmux", "stat", "-e", " ", "true"].map(OsString::from).to_vec();
    assert!(parse(empty).is_err());
}

#[test]
fn equal_ids_count_once() {
    let ids = |line: &str| match good(line).target() {
        TargetSpec::Pids(ids) | TargetSpec::Tids(ids) => ids,
        other => panic!("{other:?}"),
    };
    assert_eq!(ids("-p 5,4,5"), [5, 4]);
    assert_eq!(ids("-t 7 -t 7"), [7]);
}

#[test]
fn rows_trees_and_output_are_checked() {
    bad("-A true", "-A shows CPUs");
    bad("-e x -G g true", "-G counts on CPUs");
    bad("--for-each-cgroup g true", "give -a or -C");
    bad("-a -G g true", "give the events with -e");
    bad("-a -e x -G g --for-each-cgroup h true", "-G and --for-each-cgroup");
    bad("-a --for-each-cgroup a,,b true", "empty name");
    bad("--per-thread true", "use --tree");
    bad("-a -A --per-thread true", "--per-thread and -A");
    assert!(good("-A").no_aggr);
    assert!(good("--tree -j -v true").tree);
    bad("--tree -a true", "COMMAND alone");
    bad("--tree -p 1 true", "COMMAND alone");
    bad("--tree -n true", "with -n");
    bad("--tree --metric-only true", "with --metric-only");
    bad("--tree", "COMMAND alone");
    bad("--tree -r 2 true", "with -r");
    bad("--tree -i true", "with -i");
    bad("--tree -x, true", "use -j");
    bad("--tree -I 100 true", "with -I");
    bad("-j -x, true", "-j and -x");
    bad("-B -x, true", "-B is for people");
    bad("-o f --log-fd 3 true", "-o and --log-fd");
    bad("--append true", "give -o");
    bad("--color sometimes true", "auto");
}

#[test]
fn groups_are_spread_over_events() {
    let groups = |line: &str, events| good(line).cgroup_of_events(events);
    let name = |name: &str| Some(name.to_owned());
    assert_eq!(groups("-a -e a -G x true", 2), Ok(vec![name("x"), name("x")]));
    assert_eq!(groups("-a -e a -G ,x true", 3), Ok(vec![None, name("x"), None]));
    assert_eq!(groups("-a true", 1), Ok(vec![None]));
    assert!(groups("-a -e a -G x,y true", 1).is_err());
}

#[test]
fn complaints_show_the_usage() {
    let message = stat("-j -x, true").unwrap_err();
    assert!(message.starts_with("error: -j and -x"), "{message}");
    assert!(message.contains("Usage: pmux stat"), "{message}");
}

#[test]
fn a_link_named_timec_is_timec() {
    for line in [
        "timec -e 1 -e 3 -e -5 ls -lR",
        "/usr/bin/timec -e 1 -e 3 -e -5 ls -lR",
        "pmux timec -e 1 -e 3 -e -5 -- ls -lR",
    ] {
        let Ok(Invocation::Timec(options)) = run(line) else { panic!("{line}") };
        assert_eq!(options.events, ["1", "3", "-5"]);
        assert_eq!(options.command, words("ls -lR"));
    }
    assert!(run("timec -e 1").is_err());
}

#[test]
fn turns_are_the_kernels_unless_asked_for() {
    use super::stat::MuxChoice;
    assert_eq!(good("true").mux, MuxChoice::Kernel);
    let options = good("--mux=engine --mux-interval 20 true");
    assert_eq!((options.mux, options.slice()), (MuxChoice::Engine, pmux::Slice::from_millis(20)));
    assert_eq!(good("--mux engine true").slice(), Some(pmux::Slice::default()));
    bad("--mux-interval 20 true", "--mux=engine");
    bad("--mux=kernel --mux-interval 20 true", "--mux=engine");
    bad("--mux=engine --mux-interval 1001 true", "1 to 1000");
    bad("--mux=engine --tree true", "how long they waited for their turns");
    bad("--mux=perf true", "kernel");
}

#[test]
fn the_other_commands() {
    let Ok(Invocation::List(options)) = run("pmux list sched:* -j") else { panic!("it is no list") };
    assert_eq!((options.pattern.as_deref(), options.json), (Some("sched:*"), true));
    let Ok(Invocation::Explain(options)) = run("pmux explain -1 -p 5,6") else { panic!("it explains nothing") };
    assert_eq!((options.event.as_str(), options.pid), ("-1", vec![5, 6]));
    assert!(run("pmux explain cycles -a -p 5").is_err());
    assert!(matches!(run("pmux completions zsh"), Ok(Invocation::Completions(_))));
    assert!(matches!(run("pmux man out"), Ok(Invocation::Man(_))));
    assert!(run("pmux").is_err());
    let shown = run("pmux stats true").unwrap_err();
    assert!(shown.contains("stat"), "{shown}");
}

#[test]
fn help_is_success_and_complaints_are_not() {
    let status = |line: &str| {
        let shown = parse(words(line)).unwrap_err();
        (shown.use_stderr(), shown.exit_code())
    };
    assert_eq!(status("pmux stat --help"), (false, 0));
    assert_eq!(status("pmux --version"), (false, 0));
    assert!(status("pmux stat -j -x, true").0);
    assert!(status("pmux nonsense").0);
}

/// The options of a command are made when they are needed, and bring no other description of it.
#[test]
fn help_begins_with_what_the_list_of_commands_says() {
    let about = |command: &clap::Command| command.get_about().map(ToString::to_string);
    let (listed, mut whole) = (Pmux::command(), Pmux::command());
    whole.build();
    for command in listed.get_subcommands() {
        let (name, said) = (command.get_name(), about(command));
        assert!(said.is_some(), "{name}");
        let built = whole.find_subcommand(name).unwrap();
        assert!(built.get_arguments().count() > 1 || built.has_subcommands(), "{name} has options");
        assert_eq!(about(built), said, "{name}");
    }
}
