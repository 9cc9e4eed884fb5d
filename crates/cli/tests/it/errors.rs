//! What goes wrong has a sentence of its own and an exit status other than 0.

use crate::common;
use crate::common::{
    CommandResult, Start, SyncDir, kernel, pmux, program, role, root, set_mode, skip_unless, start, stat, tracefs,
    words,
};
use std::fs;

/// One line that begins with the name of the program.
#[track_caller]
fn sentence(start: Start, code: i32, says: &[&str]) {
    let ran = start.run().bad(code, says);
    assert!(ran.err.starts_with("pmux: ") || ran.err.starts_with("error: "), "{}", ran.err);
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    assert_eq!(ran.text(), "");
}

#[test]
fn a_command_that_is_not_there_or_no_program() {
    let sync_dir = SyncDir::new();
    let file = |name: &str, text: &str, mode: u32| {
        fs::write(sync_dir.path(name), text).unwrap();
        set_mode(sync_dir.path(name), mode);
        sync_dir.text(name)
    };
    sentence(stat(["no-such-command-here"]), 127, &["no-such-command-here: command not found"]);
    sentence(stat(["./no/such/file"]), 127, &["./no/such/file"]);
    sentence(stat([""]), 127, &["command"]);
    sentence(stat(["/"]), 126, &["/: is a directory"]);
    sentence(stat([&file("plain", "text\n", 0o644)]), 126, &["permission denied"]);
    sentence(stat([&file("script", "#!/no/such/interpreter\n", 0o755)]), 126, &["interpreter"]);
    // What the kernel doesn't know is a script for the shell, as everywhere else.
    assert_eq!(stat([&file("no-format", "exit 9\n", 0o755)]).run().code(), 9);
    sentence(stat(["--tree", "no-such-command-here"]), if kernel() { 127 } else { 125 }, &[]);
    sentence(stat(["-r", "3", "no-such-command-here"]), 127, &["no-such-command-here"]);
}

#[test]
fn options_that_make_no_sense() {
    // One that clap knows, one of ours, and what can't be read.
    for (line, says) in [
        (&["--no-such-option", "true"][..], "--no-such-option"),
        (&["-j", "-x,", "true"], "-j and -x"),
        (&["-p", "-5"], "-5"),
    ] {
        sentence(stat(line.iter().copied()), 125, &[says, "try '--help'"]);
    }
    sentence(stat(["-e"]), 125, &["--event"]);
    sentence(pmux(["stats", "true"]), 125, &["stat"]);
    pmux::<&str>([]).run().bad(125, &["Usage: pmux"]);
}

#[test]
fn events_that_are_misspelled_have_neighbours() {
    sentence(stat(["-e", "pagefaults", "true"]), 125, &["unknown event 'pagefaults'", "page-faults"]);
    sentence(stat(["-e", "cs,instuctions,faults", "true"]), 125, &["unknown event 'instuctions'", "instructions"]);
    sentence(stat(["-e", "L1-dcache-load-mises", "true"]), 125, &["L1-dcache-load-misses"]);
    sentence(stat(["-e", "{cs,faults", "true"]), 125, &["}"]);
    sentence(stat(["-e", "cs:y", "true"]), 125, &["y"]);
    sentence(stat(["-e", "nopmu/event=1/", "true"]), 125, &["nopmu"]);
    if root() && tracefs() {
        sentence(stat(["-e", "sched:sched_swich", "true"]), 125, &["sched:sched_switch"]);
        sentence(stat(["-e", "shed:sched_switch", "true"]), 125, &["sched"]);
    }
}

#[test]
fn targets_that_are_not_there() {
    // Larger than any process number of Linux.
    sentence(stat(["-p", "99999999", "true"]), 125, &["no process 99999999"]);
    sentence(stat(["-t", "99999999", "true"]), 125, &["no thread 99999999"]);
    let own = std::process::id().to_string();
    sentence(stat(["-p", &format!("{own},99999999"), "true"]), 125, &["99999999"]);
    sentence(stat(["-t", &format!("{own},99999999"), "true"]), 125, &["99999999"]);
    let mut zombie = std::process::Command::new("true").spawn().unwrap();
    let pid = zombie.id().to_string();
    common::eventually("it has ended", || (!common::lives(pid.parse().unwrap())).then_some(()));
    sentence(stat(["-p", &pid, "true"]), 125, &["no process", &pid]);
    zombie.wait().unwrap();
    sentence(stat(["-C", "1000000", "true"]), 125, &["CPU 1000000", "online"]);
    sentence(stat(["-C", "0,77777", "-e", "cs", "true"]), 125, &["77777"]);
    sentence(stat(["-a", "-e", "cs", "-G", "no/such/group", "true"]), 125, &["no/such/group"]);
    sentence(stat(["-a", "--for-each-cgroup", "/,no-such-group", "true"]), 125, &["no-such-group"]);
    sentence(stat(["-a", "-e", "cs", "-G", "a,b,c", "true"]), 125, &["-G names 3 groups for 1 events"]);
}

#[test]
fn what_others_have_named_reaches_the_terminal_in_the_clear() {
    let bad = "name\u{1b}[31m";
    for start in [
        stat([bad]),
        stat(["-e", bad, "true"]),
        stat(["-a", "-e", "cs", "-G", bad, "true"]),
        stat(["-o", &format!("/no/such/{bad}"), "true"]),
        pmux(["list", bad]),
        pmux(["explain", bad]),
        pmux(["man", &format!("/dev/null/{bad}")]),
    ] {
        let ran = start.run();
        assert_ne!(ran.code(), 0);
        assert!(!ran.err.contains('\u{1b}'), "{:?}", ran.err);
    }
}

#[test]
fn places_that_cannot_be_written_to() {
    let sync_dir = SyncDir::new();
    let ran_marker = sync_dir.text("ran");
    let line = format!("echo >'{ran_marker}'");
    let command = ["-e", "task-clock:u", "--", "sh", "-c", &line];
    for (place, says) in [("/no/such/folder/out", "/no/such/folder/out"), ("/", "/"), ("/dev/full", "/dev/full")] {
        sentence(stat(["-o", place]).args(command), 125, &["can't write to ", says]);
        assert!(!sync_dir.path("ran").exists(), "nothing is measured in vain");
    }
    sentence(stat(["--log-fd", "77"]).args(command), 125, &["--log-fd 77: no such descriptor is open"]);
    // A place that fails later: what was counted follows on standard error.
    let shell = |line: &str| start("sh", ["-c", line, common::PMUX]);
    let late = shell("exec \"$0\" stat -x, -e task-clock:u --log-fd 3 true 3>/dev/full").run();
    let late = late.bad(125, &["can't write to descriptor 3", ",task-clock:u,"]);
    assert_eq!(late.rows().len(), 1, "{}", late.err);
    let intervals = shell("exec \"$0\" stat -I 10 -x, -e task-clock:u --log-fd 3 sleep 0.1 3>/dev/full").run();
    let intervals = intervals.bad(125, &["can't write to descriptor 3", ",task-clock:u,"]);
    assert_eq!(intervals.err.matches("can't write").count(), 1, "{}", intervals.err);
    // Where not even that is possible, the status tells.
    for line in ["stat -e task-clock:u true", "timec -e -2 true", "stat -I 10 -e task-clock:u sleep 0.05"] {
        assert_eq!(shell(&format!("exec \"$0\" {line} 2>/dev/full")).run().code(), 125, "{line}");
    }
    assert_eq!(shell("exec \"$0\" stat no-such-command-here 2>/dev/full").run().code(), 127);
    assert_eq!(shell("exec \"$0\" list page-faults >/dev/full").run().bad(125, &["standard output"]).text(), "");
}

#[test]
fn other_places_get_the_report() {
    let sync_dir = SyncDir::new();
    let path = sync_dir.text("out");
    let events = ["-x,", "-e", "task-clock:u"];
    let ran = stat(["-o", &path]).args(events).args(["true"]).run().good();
    assert_eq!(ran.err.matches("task-clock:u").count(), 0, "{}", ran.err);
    let first = fs::read_to_string(&path).unwrap();
    assert!(first.starts_with("# started on ") && first.contains(",task-clock:u,"), "{first}");
    stat(["--output", &path, "--append"]).args(events).args(["true"]).run().good();
    let both = fs::read_to_string(&path).unwrap();
    assert!(both.starts_with(&first) && both.matches("# started on ").count() == 2, "{both}");
    stat(["-o", &path]).args(events).args(["true"]).run().good();
    assert_eq!(fs::read_to_string(&path).unwrap().matches("task-clock:u").count(), 1);
    let line = format!("exec \"$0\" stat -x, -e task-clock:u --log-fd 5 true 5>'{path}'");
    let ran = start("sh", ["-c", &line, common::PMUX]).run().good();
    assert!(!ran.err.contains(",task-clock:u,"), "{}", ran.err);
    assert!(fs::read_to_string(&path).unwrap().contains(",task-clock:u,"));
    stat(["-I", "10", "-o", &path]).args(events).args(["sleep", "0.1"]).run().good();
    assert!(fs::read_to_string(&path).unwrap().matches("task-clock:u").count() > 1);
}

#[test]
fn a_reader_that_has_enough_ends_a_measurement() {
    skip_unless!(root());
    // The pipe is closed after the first line; without this, it would count for ever.
    let line = "\"$0\" stat -a -I 10 -e cs 2>&1 >/dev/null | head -n 1; echo done";
    let ran = start("sh", ["-c", line, common::PMUX]).run().good();
    assert!(ran.text().ends_with("done\n"), "{}", ran.text());
    // A command is waited for.
    let sync_dir = SyncDir::new();
    let inner = format!("sleep 0.2; echo >{}", sync_dir.text("done"));
    let line = format!("\"$0\" stat -I 10 -e cs sh -c '{inner}' 2>&1 >/dev/null | head -n 1");
    start("sh", ["-c", &line, common::PMUX]).run().good();
    sync_dir.read("done");
}

#[test]
fn files_are_enough_or_it_is_said_how_many_are_needed() {
    skip_unless!(root());
    let events = common::distinct(40);
    let line =
        |limit: &str| format!("ulimit {limit} 16; exec \"$0\" stat -a -x, -e {events} -- sh -c 'ulimit -S -n >&2'");
    let raised = start("sh", ["-c", &line("-S -n"), common::PMUX]).run().good();
    assert_eq!(raised.rows().len(), 40, "{}", raised.err);
    assert!(raised.err.starts_with("16\n"), "the command has the limit that it would have had: {}", raised.err);
    let cpus = pmux::Session::new().unwrap().online().iter().count();
    let needed = (40 * cpus).to_string();
    let refused = start("sh", ["-c", &line("-n"), common::PMUX]).run();
    refused.bad(125, &["open files", &needed, "16"]).never_says(&[",page-faults:u"]);
}

/// Threads of this process that sleep until it ends.
fn idle_threads() {
    for _ in 0..24 {
        std::thread::spawn(|| {
            loop {
                std::thread::park();
            }
        });
    }
}

/// Runs the command under test where it may have so many files open.
fn with_files(limit: u64, words: &[&str]) -> CommandResult {
    let line = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
    start("sh", ["-c", &line, common::PMUX]).args(words).run()
}

/// How many files it says that are needed.
fn advised(ran: &CommandResult) -> u64 {
    let number = ran.err.split("allow at least ").nth(1).unwrap_or_else(|| panic!("{}", ran.err));
    number.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn the_advice_about_files_is_enough_at_once() {
    // The threads of other tests would come and go.
    skip_unless!(kernel() && pmux_testkit::own_process());
    let sync_dir = SyncDir::new();
    // All threads of this process, and some more, so that the limit is met in the middle of opening.
    idle_threads();
    let pid = std::process::id().to_string();
    for command in ["stat", "record", "flight"] {
        let place = sync_dir.text(command);
        let words = ["-e", "page-faults:u", "-e", "context-switches:u", "-p", &pid, "-o", &place, "--", "true"];
        let words = [&[command], &words[..]].concat();
        // Where it fails does not matter.
        let advised = [16, 24, 60].map(|limit| advised(&with_files(limit, &words).bad(125, &["open files"])));
        let most = advised.iter().max().unwrap();
        assert!(advised.iter().all(|number| number + 64 > *most), "{command}: {advised:?}");
        with_files(most + 64, &words).good();
    }
}

/// What is needed after everything is open is asked for, too: with any limit it is refused with a number, or goes on to its end.
#[test]
fn want_of_files_is_no_end_without_a_reason() {
    const TIMEOUT_S: f64 = 0.2;
    // The threads of other tests would come and go.
    skip_unless!(kernel() && pmux_testkit::own_process());
    idle_threads();
    let pid = std::process::id().to_string();
    // With the lowest, events are open when there are no files left; with the highest there are enough.
    let mut good = 0;
    for limit in 30..60 {
        let ran = with_files(limit, &["stat", "-e", "page-faults:u", "-p", &pid, "--timeout", "200"]);
        if ran.code() == 125 {
            let ran = ran.says(&["open files"]);
            assert!(advised(&ran) > limit, "{limit}: {}", ran.err);
            assert_eq!(good, 0, "{limit}");
            continue;
        }
        good += 1;
        let ran = ran.good();
        let text = ran.text() + &ran.err;
        let elapsed = text.lines().find_map(|line| line.trim().strip_suffix(" seconds time elapsed")).unwrap();
        assert!(elapsed.trim().parse::<f64>().unwrap() >= TIMEOUT_S, "{limit}: {text}");
    }
    assert!((3..28).contains(&good), "{good}");
}

#[test]
fn an_unprivileged_user_counts_its_own_tasks_only() {
    skip_unless!(root() && program("setpriv"));
    skip_unless!(common::needs("paranoid", "kernel.perf_event_paranoid=2", common::paranoid() == 2));
    // Where the tests are built, others may not be able to look.
    let folder = common::folder_with(0o755);
    let copy = common::copy_with(folder.path(), common::PMUX, 0o755);
    let unprivileged = |line: &[&str]| common::unprivileged().args([&copy]).args(line).run();
    let own = unprivileged(&["stat", "-e", "page-faults,task-clock", "true"]).good();
    own.says(&["page-faults:u", "task-clock:u", "kernel.perf_event_paranoid"]);
    let fields = unprivileged(&["stat", "-x,", "-e", "page-faults:u", "true"]).good();
    assert!(fields.value("page-faults:u") > 0.0);
    unprivileged(&["stat", "-e", "page-faults:k", "true"]).bad(125, &["kernel.perf_event_paranoid", "`:u`"]);
    let some = unprivileged(&["stat", "-e", "page-faults:k,page-faults:u", "true"]).good();
    some.says(&[
        "   <not supported>      page-faults:k\n",
        " page-faults:k: not supported: ",
        "kernel.perf_event_paranoid",
    ]);
    for target in [&["-a"][..], &["-C", "0"], &["-a", "--for-each-cgroup", "/"]] {
        let line = [&["stat", "-e", "cs"], target, &["true"]].concat();
        unprivileged(&line).bad(125, &["kernel.perf_event_paranoid", "CAP_PERFMON", "what helps: "]);
    }
    unprivileged(&["stat", "-p", "1", "-e", "task-clock:u", "true"]).bad(125, &["another user", "CAP_PERFMON"]);
    unprivileged(&["stat", "-e", "sched:sched_switch", "true"]).bad(125, &["/sys/kernel/tracing"]);
    unprivileged(&["stat", "--tree", "-e", "page-faults:u", "--", "sh", "-c", "/bin/true; true"])
        .good()
        .says(&["total of 2 processes"]);
}

#[test]
fn a_set_user_id_program_is_never_counted_as_0() {
    skip_unless!(root() && kernel() && program("setpriv"));
    let folder = common::folder_with(0o755);
    let copy = |name: &str, mode: u32| common::copy_with(folder.path(), name, mode).to_str().unwrap().to_owned();
    let own = copy(common::PMUX, 0o755);
    let id = copy("id", 0o4755);
    let becomes_root = common::unprivileged().args([id.as_str(), "-u"]).run().text().trim() == "0";
    skip_unless!(common::needs("set-user-id", "set-user-id programs", becomes_root));
    let count = |line: &[&str]| {
        let stat = common::unprivileged().args([&own]).args(["stat", "-e", "page-faults:u,task-clock:u"]);
        stat.args(line.iter().copied()).run().good()
    };
    let (sleep, shell) = (copy("sleep", 0o4755), copy("sh", 0o4755));
    for program in [id.as_str(), &copy("true", 0o4755), &copy("id", 0o711), &copy("id", 0o2755)] {
        count(&["--", program]).says(&["<not counted>      page-faults:u", "set-user-id program"]);
        let row = format!("{} ", program.rsplit('/').next().unwrap());
        let tree = count(&["--tree", "--", program]).says(&["set-user-id program"]);
        let root = tree.err.lines().find(|line| line.contains(&row) && !line.contains("stats for"));
        assert!(root.is_some_and(|line| line.contains("<not counted>")), "{}", tree.err);
        // And of a child.
        let line = format!("{program} >'/dev/null'; :");
        let tree = count(&["--tree", "--", "sh", "-c", &line]).says(&["set-user-id program"]);
        let name = &row[..row.len() - 1];
        tree.says(&[&format!("counting ended when {} (", &name[..name.len().min(15)])]);
    }
    // What came before the exec was counted.
    let line = format!("/bin/true; exec {sleep} 0.3");
    let ran = count(&["--", "sh", "-c", &line]).never_says(&["<not counted>"]);
    ran.says(&["counting ended when the command executed a set-user-id program"]);
    // Of a child the kernel tells nothing; that it ran can be seen.
    let line = format!("/bin/true; {shell} -c 'i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done'; :");
    count(&["--", "sh", "-c", &line]).says(&["in user mode were not counted", "set-user-id program"]);
    for what in ["-p", "-t"] {
        let sync_dir = common::hostile::open_door();
        let go = sync_dir.text("go");
        let line = format!(
            "echo $$ >'{}'; until [ -e '{go}' ]; do sleep 0.01; done; sleep 2 & exec {sleep} 1",
            sync_dir.text("here")
        );
        let target = common::unprivileged().args(["sh", "-c", &line]).spawn();
        let pid = sync_dir.read("here");
        // The command begins when the events are open, and ends when the other program runs.
        let until = format!("echo >'{go}'; until grep -q sleep /proc/{pid}/comm; do sleep 0.01; done");
        let words = ["stat", "-e", "page-faults:u", what, &pid, "--", "sh", "-c", &until];
        let counted = common::unprivileged().args([&own]).args(words);
        counted.run().good().says(&[&format!("{pid} executed a set-user-id program")]);
        target.wait().good();
    }
    // Also while a child lives that has inherited what was opened.
    for sleep in [&sleep, &copy("sleep", 0o711)] {
        let line = format!("sleep 1 & exec {sleep} 0.3");
        count(&["--", "sh", "-c", &line]).says(&["counting ended when the command executed a set-user-id program"]);
    }
    let sync_dir = common::hostile::open_door();
    for (command, output) in [("record", "it.data"), ("flight", "snapshots")] {
        let record = |program: &str| {
            let words = [command, "-e", "cpu-clock:u", "-o", &sync_dir.text(output), "--", program].map(str::to_owned);
            common::unprivileged().args([&own]).args(words).run().good()
        };
        record(&id).says(&["recording ended when the command executed a set-user-id program"]);
        record("true").never_says(&["set-user-id"]);
    }
    // Programs that are none have no such note; root counts those of its own.
    count(&["--", "sh", "-c", "/bin/true; exec sleep 0.1"]).never_says(&["set-user-id"]);
    let ran = stat(["-e", "page-faults:u", "--", &id]).run().good().never_says(&["set-user-id", "<not counted>"]);
    ran.says(&["page-faults:u"]);
}

#[test]
fn times_that_are_too_short_to_count() {
    skip_unless!(kernel());
    // A program that exits at once, many times at once.
    let all: Vec<_> = (0..20).map(|_| stat(["-x,", "-e", "task-clock:u", "true"]).spawn()).collect();
    for running in all {
        assert!(running.wait().good().value("task-clock:u") > 0.0);
    }
    let empty = stat(words(&["-x,", "-e", "page-faults:u", "--"], role::words("touch:0"))).run().good();
    assert!(empty.value("page-faults:u") > 0.0);
}
