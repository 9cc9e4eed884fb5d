//! `-j` and `-x` side by side with `perf stat` 6.1: the same fields in the same order with the same number formats.
//!
//! What it is: both programs measure the same; every run of digits becomes one digit; what is left has to be equal. What a
//! number is worth differs from run to run; whether something was counted, its name, unit and place do not.
//!
//! Differences that are there on purpose are in [`on_purpose`], one test each.

use crate::common;
use crate::common::{
    Cgroup, CommandResult, SyncDir, has_pmu, kernel, kernel_mode, perf, root, skip_unless, sleeping, start, stat,
};
use crate::stat_targets::Worker;
use pmux_testkit::state_of;

/// Events that are counted always, and one that no machine has in a plain run.
const EVENTS: &str = "page-faults,task-clock,cycles,instructions,branch-misses,minor-faults";

/// Every run of digits becomes `9`, so that only the way numbers are written is left: decimals keep their count, rates lose
/// their prefix, percentages and times are there or not.
fn shape(text: &str) -> Vec<String> {
    let mut out = String::new();
    let (mut fraction, mut previous) = (false, ' ');
    for c in text.chars() {
        if c.is_ascii_digit() {
            if fraction || !previous.is_ascii_digit() {
                out.push('9');
            }
        } else {
            fraction = c == '.' && previous.is_ascii_digit();
            out.push(c);
        }
        previous = c;
    }
    for prefix in ["K/sec", "M/sec", "G/sec"] {
        out = out.replace(prefix, "/sec");
    }
    // Leading spaces of a number depend on its size.
    out.lines().map(|line| line.trim_start().to_owned()).collect()
}

fn both(options: &[&str], command: &[&str]) -> (CommandResult, CommandResult) {
    let theirs = start("perf", ["stat"]).args(options.iter().copied()).args(command.iter().copied()).run();
    let ours = stat(options.iter().copied()).args(command.iter().copied()).run();
    assert_eq!(ours.code(), theirs.code(), "{options:?}\n{}{}", ours.err, theirs.err);
    (ours, theirs)
}

/// Runs both with `-j` and with `-x`, and compares line by line.
#[track_caller]
fn compare(options: &[&str], command: &[&str]) {
    for format in ["-j", "-x,", "-x;", "-x\\t"] {
        let options: Vec<&str> = [format].iter().chain(options).copied().collect();
        let (mut ours, mut theirs) = both(&options, command);
        // Counters are shared with others that measure: an event that had none for the moment has a line of another shape.
        for _ in 0..if has_pmu() { 3 } else { 0 } {
            if shape(&ours.err) == shape(&theirs.err) {
                break;
            }
            (ours, theirs) = both(&options, command);
        }
        assert_eq!(shape(&ours.err), shape(&theirs.err), "{options:?}\nours:\n{}\nperf:\n{}", ours.err, theirs.err);
        // What is not a measured value is equal to the letter.
        let names = |ran: &CommandResult| -> Vec<(String, String, String)> {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or("none").to_owned();
            ran.json().iter().map(|line| (text(&line["event"]), text(&line["unit"]), text(&line["cpu"]))).collect()
        };
        if format == "-j" {
            assert_eq!(names(&ours), names(&theirs), "{options:?}");
        }
    }
}

/// Runs both with `-j`, and compares which events they count.
#[track_caller]
fn compare_events(options: &[&str], command: &[&str]) {
    let options: Vec<&str> = ["-j"].iter().chain(options).copied().collect();
    let (ours, theirs) = both(&options, command);
    let names = |ran: &CommandResult| -> Vec<String> {
        ran.json().iter().filter_map(|line| line["event"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(names(&ours), names(&theirs), "{options:?}");
}

/// A program that does the same every time, and long enough that nothing rounds to another shape.
const WORK: [&str; 4] = ["--", "sh", "-c", "ls -lR /etc >/dev/null 2>&1; true"];

fn ready() -> bool {
    perf() && kernel_mode()
}

/// What everybody may count.
#[test]
fn in_user_mode() {
    skip_unless!(perf() && kernel());
    let events = "page-faults:u,task-clock:u,cycles:u,instructions:u,branch-misses:u,dummy:u";
    compare(&["-e", events], &WORK);
    compare(&["-r", "2", "-e", events], &WORK);
    compare(&["-e", "{page-faults:u,task-clock:u}"], &WORK);
    compare_sets(&["-I", "50", "-e", "task-clock:u"], &["--", "sleep", "0.2"]);
    let sleeper = sleeping();
    compare(&["--per-thread", "-p", &sleeper.pid().to_string(), "-e", events], &["--", "sleep", "0.01"]);
}

#[test]
fn a_command() {
    skip_unless!(ready());
    compare(&["-e", EVENTS], &WORK);
    compare(&["-e", "page-faults"], &WORK);
    compare(&["-e", "page-faults:u,cpu-clock,task-clock:u,faults:k,minor-faults:uk,page-faults:H"], &WORK);
    compare(&["-e", "{page-faults,task-clock},{cs,migrations}:u,faults"], &WORK);
    compare(&["-e", "page-faults", "-e", "task-clock", "-e", "dummy,bpf-output,major-faults,alignment-faults"], &WORK);
    compare(&["-i", "-e", EVENTS], &WORK);
    compare(&["-n"], &WORK);
    compare(&["-e", "L1-dcache-load-misses,r1a8,cpu-cycles:u,LLC-loads,branch-loads,dTLB-load-misses,r1a8:u"], &WORK);
}

#[test]
fn the_default_events() {
    skip_unless!(ready());
    compare(&[], &WORK);
    if root() {
        compare(&["-a"], &WORK);
        compare(&["-C", "0"], &WORK);
    }
    for options in [["-d"], ["-dd"], ["-ddd"]] {
        if has_pmu() {
            // They are more than counters: who was there for how long is another matter each time.
            compare_events(&options, &WORK);
        } else {
            compare(&options, &WORK);
        }
    }
}

#[test]
fn a_tracepoint_and_other_pmus() {
    skip_unless!(ready() && root());
    compare(&["-e", "sched:sched_process_exit,syscalls:sys_enter_openat,{sched:sched_process_fork,faults}"], &WORK);
    if std::path::Path::new("/sys/bus/event_source/devices/msr/events/tsc").exists() {
        compare(&["-e", "msr/tsc/,page-faults"], &WORK);
        compare(&["-a", "-e", "msr/tsc/"], &WORK);
    } else {
        println!("skipped: needs the PMU msr");
    }
    let _alone = common::lock(common::DEBUG_REGISTERS);
    compare(&["-e", "mem:0x1000:rw,mem:0x1000:w"], &WORK);
}

#[test]
fn several_runs() {
    skip_unless!(ready());
    compare(&["-r", "3", "-e", EVENTS], &WORK);
    compare(&["-r", "1", "-e", EVENTS], &WORK);
}

#[test]
fn whole_cpus() {
    skip_unless!(ready() && root());
    let events = "page-faults,cpu-clock,task-clock,cycles,instructions,context-switches";
    compare(&["-a", "-e", events], &WORK);
    compare(&["-a", "-A", "-e", events], &WORK);
    compare(&["-C", "0", "-e", events], &WORK);
    compare(&["-C", "0", "-A", "-e", events], &WORK);
    compare(&["-a", "-r", "2", "-e", events], &WORK);
    compare(&["-a", "-A", "-r", "2", "-e", "{cpu-clock,cs}"], &WORK);
}

/// Intervals come when they come: lines are compared as sets.
#[track_caller]
fn compare_sets(options: &[&str], command: &[&str]) {
    for format in ["-j", "-x,"] {
        let options: Vec<&str> = [format].iter().chain(options).copied().collect();
        let (ours, theirs) = both(&options, command);
        let set = |ran: &CommandResult| {
            let mut lines = shape(&ran.err);
            lines.sort();
            lines.dedup();
            lines
        };
        assert_eq!(set(&ours), set(&theirs), "{options:?}\nours:\n{}\nperf:\n{}", ours.err, theirs.err);
    }
}

#[test]
fn intervals() {
    skip_unless!(ready() && root());
    let command = ["--", "sleep", "0.25"];
    let events = "cpu-clock,page-faults,cycles";
    compare_sets(&["-I", "100", "-a", "-e", events], &command);
    compare_sets(&["-I", "100", "-a", "-A", "-e", events], &command);
    compare_sets(&["-I", "100", "--summary", "-a", "-e", events], &command);
    compare_sets(&["-I", "50", "--interval-count", "2", "-a", "-e", events], &["--", "sleep", "0.2"]);
    // Asleep all the time but at its ends.
    compare_sets(&["-I", "50", "-e", "task-clock"], &command);
}

#[test]
fn processes_and_threads() {
    skip_unless!(ready());
    let sleepers = [sleeping(), sleeping()];
    let [one, other] = sleepers.each_ref().map(|sleeper| sleeper.pid().to_string());
    let list = format!("{one},{other}");
    let during = ["--", "sleep", "0.01"];
    compare(&["-p", &one, "-e", EVENTS], &during);
    compare(&["-p", &list, "-e", EVENTS], &during);
    compare(&["-t", &one, "-e", EVENTS], &during);
    compare(&["-t", &list, "-e", EVENTS], &during);
    compare(&["--per-thread", "-p", &one, "-e", EVENTS], &during);
    compare(&["--per-thread", "-t", &list, "-e", EVENTS], &during);
}

#[test]
fn a_process_that_does_something() {
    skip_unless!(ready());
    for options in [&["-p"][..], &["--per-thread", "-p"], &["-t"]] {
        let shapes = |program: &str| {
            let worker = Worker::new("behind:500");
            // Its work is that of a thread of the process, and its first thread waits for that.
            let pid = worker.pid.parse().unwrap();
            common::eventually("the first thread's sleep", || (state_of(pid) == Some('S')).then_some(()));
            let ran = start(program, ["stat", "-j", "-e", "page-faults:u,task-clock"])
                .args(options.iter().copied())
                .args([&worker.pid, "--", "sh", "-c", &worker.work()])
                .run();
            let mut shapes = shape(&ran.err);
            // Which thread has done more is not for certain.
            shapes.sort();
            (shapes, ran)
        };
        let (ours, theirs) = (shapes(common::PMUX), shapes("perf"));
        assert_eq!(ours.0, theirs.0, "{options:?}\n{}\n{}", ours.1.err, theirs.1.err);
    }
}

#[test]
fn control_groups() {
    skip_unless!(ready() && root());
    let (Some(one), Some(other)) = (Cgroup::make("one"), Cgroup::make("other")) else { return };
    let (one, other) = (one.name(), other.name());
    let events = "task-clock,page-faults,cs";
    let list = format!("{one},{other}");
    compare(&["-a", "--for-each-cgroup", one, "-e", events], &WORK);
    compare(&["-a", "--for-each-cgroup", &list, "-e", events], &WORK);
    compare(&["-a", "-A", "--for-each-cgroup", one, "-e", events], &WORK);
    compare(&["-a", "-r", "2", "--for-each-cgroup", one, "-e", events], &WORK);
    compare(&["-a", "--for-each-cgroup", "/", "-e", events], &WORK);
    // perf wants to know the events first.
    compare(&["-a", "-e", events, "-G", one], &WORK);
    compare(&["-a", "-e", events, "-G", &format!("{one},{other}")], &WORK);
    compare(&["-a", "-e", events, "-G", &format!(",{one},")], &WORK);
    compare(&["-a", "-A", "-e", events, "-G", &format!("{one},,{other}")], &WORK);
    compare(&["-C", "0", "-e", events, "-G", &format!(",,{other}")], &WORK);
}

#[test]
fn files() {
    skip_unless!(ready());
    let sync_dir = SyncDir::new();
    let path = sync_dir.text("out");
    for (format, append) in [("-x,", false), ("-j", true), ("-x,", true), ("-j", false)] {
        let mut options = vec![format, "-e", EVENTS, "-o", &path];
        options.extend(append.then_some("--append"));
        let texts = ["perf", common::PMUX].map(|program| {
            std::fs::write(&path, "before\n").unwrap();
            let ran = start(program, ["stat"]).args(options.iter().copied()).args(WORK).run().good();
            assert!(!ran.err.contains(",page-faults") && !ran.err.contains('{'), "{}", ran.err);
            std::fs::read_to_string(&path).unwrap()
        });
        let bare = |text: &str| {
            // Names of days and months have three letters each, and days have one digit or two.
            let named = |word: &str| word.len() == 3 && word.chars().all(char::is_alphabetic);
            let date = |line: &str| {
                let words = line.split_whitespace().map(|word| if named(word) { "Abc" } else { word });
                words.collect::<Vec<_>>().join(" ")
            };
            let is_date = |line: &String| line.starts_with("# started on ");
            shape(text).into_iter().map(|line| if is_date(&line) { date(&line) } else { line }).collect::<Vec<_>>()
        };
        assert_eq!(bare(&texts[0]), bare(&texts[1]), "{options:?}");
        assert_eq!(texts[1].starts_with("before\n"), append);
    }
}

/// What is not as in perf 6.1, and why.
mod on_purpose {
    use super::*;

    /// perf forgets the user time: it is `<not counted>` where the system time is not. Here it is a number.
    #[test]
    fn tool_events() {
        skip_unless!(ready());
        let options = ["-x,", "-e", "duration_time,user_time,system_time,page-faults"];
        let (ours, theirs) = both(&options, &WORK);
        let fields = |ran: &CommandResult| {
            let rows = ran.rows();
            rows.iter().map(|row| row[1..3].join(",")).collect::<Vec<_>>()
        };
        assert_eq!(fields(&ours), fields(&theirs));
        for event in ["duration_time", "user_time", "system_time"] {
            assert!(ours.value(event) >= 0.0);
        }
        let (ours, theirs) = both(&["-x,", "-e", "task-clock,duration_time"], &WORK);
        assert_eq!(shape(&ours.err), shape(&theirs.err));
    }

    /// perf leaves out the modifiers of tracepoints and cache events, so that two rows can have one name. Here an event is
    /// called what the user has called it.
    #[test]
    fn modifiers_are_part_of_names() {
        skip_unless!(ready() && root());
        let names = "sched:sched_process_exit:u,sched:sched_process_exit:k,dTLB-load-misses:k";
        let (ours, theirs) = both(&["-x,", "-e", names], &WORK);
        let bare = |text: &str| shape(&text.replace(":u,", ",").replace(":k,", ","));
        assert_eq!(bare(&ours.err), bare(&theirs.err));
        let shown: Vec<String> = ours.rows().iter().map(|row| row[2].to_owned()).collect();
        assert_eq!(shown.join(","), names);
    }

    /// The lines of perf's `--metric-only -j` are no JSON, and fields of its `-x` move when an event has no count.
    #[test]
    fn metrics_only() {
        skip_unless!(ready() && root());
        let options = ["--metric-only", "-a", "-A", "-e", "cycles,instructions,branches,branch-misses"];
        let (ours, theirs) = both(&[&["-x,"], &options[..]].concat(), &WORK);
        let heads = |ran: &CommandResult| ran.err.lines().next().unwrap_or_default().replace("Ghz", "GHz");
        assert_eq!(heads(&ours), heads(&theirs));
        let places = |ran: &CommandResult| {
            ran.err.lines().map(|line| line.split(',').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(places(&ours), places(&theirs));
        let columns: Vec<usize> = ours.err.lines().map(|line| line.matches(',').count()).collect();
        assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{}", ours.err);
        let json = stat(["-j"]).args(options).args(WORK).run().good();
        assert_eq!(json.json().len(), ours.err.lines().count() - 1, "{}", json.err);
    }

    /// perf says `<not supported>` of no event that it can't name; both refuse what they don't know.
    #[test]
    fn unknown_events_are_refused_by_both() {
        skip_unless!(ready());
        for event in ["no-such-event", "no:such:event", "nopmu/event=1/", "page-faults:y"] {
            let line = ["-x,", "-e", event, "true"];
            assert_eq!(stat(line).run().code(), 125);
            assert_ne!(start("perf", ["stat"]).args(line).run().code(), 0);
        }
    }

    /// perf ends with 0 when its time limit has killed the command; here a signal is a signal.
    #[test]
    fn a_time_limit_is_seen_in_the_status() {
        skip_unless!(ready());
        assert_eq!(stat(["--timeout", "20", "-e", "cs", "sleep", "1000"]).run().code(), 143);
    }

    /// Counters that were there all the time show 100.00 in both; with a PMU that is too small both show less. Which event
    /// of many has been there for how long is another matter each time.
    #[test]
    fn shares() {
        skip_unless!(ready() && common::needs("pmu", "a hardware PMU", has_pmu()));
        let many = ["instructions:u"; 40].join(",");
        let (ours, theirs) = both(&["-x,", "-e", &many], &WORK);
        let kinds = |ran: &CommandResult| {
            let mut kinds = shape(&ran.err);
            // Counted for all of the time, and not at all: both may be missing in a run.
            kinds.retain(|line| !line.starts_with("<not counted>") && !line.contains(",100.00,"));
            kinds.sort_unstable();
            kinds.dedup();
            kinds
        };
        assert!(!kinds(&ours).is_empty(), "{}", ours.err);
        assert_eq!(kinds(&ours), kinds(&theirs), "ours:\n{}\nperf:\n{}", ours.err, theirs.err);
    }
}
