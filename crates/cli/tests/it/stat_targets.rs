//! `pmux stat` on processes, threads, CPUs and control groups.

use crate::common;
use crate::common::{Cgroup, SyncDir, kernel, role, root, skip_unless, stat};
use std::process::{Child, Stdio};

/// A process that touches pages when it is told to, and leaves when this is dropped.
pub(crate) struct Worker {
    sync_dir: SyncDir,
    child: Child,
    pub(crate) pid: String,
}

impl Worker {
    pub(crate) fn new(role: &str) -> Self {
        let sync_dir = SyncDir::new();
        let mut command = role::command(&format!("{role},{}", sync_dir.text("")));
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let pid = sync_dir.read("here");
        Self { sync_dir, child, pid }
    }

    /// A shell line that tells it to work, and waits until it has.
    pub(crate) fn work(&self) -> String {
        let [go, done] = ["go", "done"].map(|name| self.sync_dir.text(name));
        format!("echo >'{go}'; while [ ! -e '{done}' ]; do sleep 0.01; done")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.sync_dir.post("go");
        self.sync_dir.post("leave");
        let _ = self.child.wait();
    }
}

#[test]
fn a_process_is_counted_until_it_ends() {
    skip_unless!(kernel());
    let worker = Worker::new("behind:1200");
    let running = stat(["-e", "page-faults:u", "-p", &worker.pid]).spawn();
    // Counting has begun when the events are open. The first one only asks whether there are any, and is closed at once.
    common::eventually("the events are open", || (common::kernel_events(running.pid()) > 1).then_some(()));
    let pid = worker.pid.clone();
    drop(worker);
    let ran = running.wait().good();
    ran.says(&[&format!("Performance counter stats for process id '{pid}':"), "page-faults:u"]);
}

/// A thread that is listed has ended before its events are open, and has started another one.
#[test]
fn threads_that_start_successors_are_counted_once() {
    skip_unless!(kernel());
    for round in 0..8 {
        let worker = Worker::new("successors:2000");
        let during = ["--", "sh", "-c", &worker.work()];
        // Notes stand beside lines for programs only when they are asked for.
        let ran = stat(["-v", "-x,", "-e", "page-faults:u", "-p", &worker.pid]).args(during).run().good();
        let ran = ran.never_says(&["nothing of it ran meanwhile"]);
        if ran.err.contains("threads came and went faster than they could be listed") {
            println!("round {round}: it did not settle, and says so");
            continue;
        }
        let faults = ran.value("page-faults:u");
        // Each thread has some of its own.
        assert!((2000.0..3900.0).contains(&faults), "round {round}: {}", ran.err);
    }
}

/// Threads that end before their events are open are known to be missing: what the others have not counted is not known.
#[test]
fn what_missing_threads_did_is_not_zero() {
    skip_unless!(kernel());
    let mut unsettled = 0;
    for round in 0..2 {
        let worker = Worker::new("chains:20");
        let all = stat(["-v", "-x,", "-e", "dummy", "-p", &worker.pid, "--timeout", "100"]).run().good();
        let each =
            stat(["-v", "--per-thread", "-x,", "-e", "dummy", "-p", &worker.pid, "--timeout", "100"]).run().good();
        for ran in [all, each] {
            if !ran.err.contains("threads came and went faster than they could be listed") {
                println!("round {round}: it settled");
                continue;
            }
            unsettled += 1;
            let lines = ran.err.lines().filter(|line| line.contains(",dummy,")).collect::<Vec<_>>();
            assert!(!lines.is_empty() && lines.iter().all(|line| line.contains("<not counted>,")), "{}", ran.err);
            ran.says(&["the threads that were found counted nothing, and others came and went"]);
        }
    }
    println!("{unsettled} of 4 did not settle");
}

#[test]
fn threads_have_rows_and_names() {
    skip_unless!(kernel());
    let worker = Worker::new("named-behind:the-worker");
    let during = ["--", "sh", "-c", &worker.work()];
    let ran =
        stat(["--per-thread", "-j", "-e", "page-faults:u,task-clock:u", "-p", &worker.pid]).args(during).run().good();
    let rows = ran.json();
    let of = |event: &str| -> Vec<(&str, &str)> {
        let own = rows.iter().filter(|row| row["event"] == event);
        own.map(|row| (row["thread"].as_str().unwrap(), row["counter-value"].as_str().unwrap())).collect()
    };
    let faults = of("page-faults:u");
    let threads = std::fs::read_dir(format!("/proc/{}/task", worker.pid)).unwrap().count();
    assert_eq!(faults.len(), threads, "{}", ran.err);
    assert!(faults[0].0.starts_with("the-worker-"), "the largest count comes first: {}", ran.err);
    assert!(faults[0].1.parse::<f64>().unwrap() >= 100.0, "{}", ran.err);
    assert!(faults[1..].iter().all(|(_, value)| *value == "<not counted>" || value.parse::<f64>().unwrap() < 100.0));
    // One thread alone.
    let other = Worker::new("named-behind:the-worker");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", other.pid)).unwrap().flatten();
    let tid = tasks
        .map(|task| task.file_name().to_str().unwrap().to_owned())
        .find(|tid| std::fs::read_to_string(format!("/proc/{tid}/comm")).unwrap() == "the-worker\n")
        .unwrap();
    let ran = stat(["-x,", "-e", "page-faults:u", "-t", &tid, "--", "sh", "-c", &other.work()]).run().good();
    assert!(ran.value("page-faults:u") >= 100.0, "{}", ran.err);
    stat(["-e", "cs", "-t", &tid, "true"]).run().good().says(&[&format!("thread id '{tid}'")]);
}

#[test]
fn sleepers_are_not_zero() {
    skip_unless!(kernel());
    let worker = Worker::new("behind:1");
    // It looks at its door from time to time, so a thread that really sleeps is needed.
    let sleeper = common::sleeping();
    let ran = stat(["-e", "task-clock:u,page-faults:u", "-p", &sleeper.pid().to_string(), "true"]).run().good();
    drop(sleeper);
    drop(worker);
    ran.says(&[
        "     <not counted>      page-faults:u\n",
        " task-clock:u, page-faults:u: not counted: nothing of it ran meanwhile\n",
    ]);
}

#[test]
fn a_machine_is_counted() {
    skip_unless!(root());
    let cpus = std::thread::available_parallelism().unwrap().get();
    let sum = stat(["-a", "-x,", "-e", "page-faults:u,cpu-clock", "--"]).args(role::words("touch:1900")).run().good();
    assert!(sum.value("page-faults:u") >= 1900.0, "{}", sum.err);
    let each = stat(["-a", "-A", "-j", "-e", "page-faults:u,cpu-clock,dummy", "--"]).args(role::words("touch:1900"));
    let each = each.run().good();
    let rows = each.json();
    assert!(rows.len() >= 3 * cpus, "{}", each.err);
    let faults = rows.iter().filter(|row| row["event"] == "page-faults:u");
    let faults: f64 = faults.map(|row| row["counter-value"].as_str().unwrap().parse::<f64>().unwrap()).sum();
    assert!(faults >= 1900.0, "{}", each.err);
    stat(["-a", "-e", "cs", "true"]).run().good().says(&["Performance counter stats for 'system wide':"]);
    let first = stat(["-C", "0", "-e", "cs", "true"]).run().good();
    first.says(&["Performance counter stats for 'CPU(s) 0':"]).never_says(&["seconds user"]);
}

#[test]
fn no_more_cpus_are_used_than_there_are() {
    skip_unless!(root());
    let ran = stat(["-C", "0", "-j", "-e", "cpu-clock", "sleep", "0.05"]).run().good();
    let used = ran.json()[0]["metric-value"].as_f64().unwrap();
    assert!(used <= 1.001, "{used} CPUs utilized of one");
}

#[test]
fn an_event_that_is_refused_everywhere_has_its_rows() {
    skip_unless!(root() && common::without_pmu());
    let rows = |options: &[&str]| {
        let ran = stat(["-x,", "-e", "cycles"]).args(options.iter().copied()).args(["true"]).run().good();
        let before = |row: &Vec<&str>| row.split(|field| *field == "cycles").next().unwrap().join(",");
        ran.rows().iter().map(before).collect::<Vec<_>>()
    };
    assert_eq!(rows(&["-a"]), ["<not supported>,"]);
    assert_eq!(rows(&["-C", "0", "-A"]), ["CPU0,<not supported>,"]);
    assert_eq!(rows(&["-a", "--for-each-cgroup", "/,/"]), ["<not supported>,", "<not supported>,"]);
    stat(["-a", "-e", "cycles", "true"]).run().good().says(&["   <not supported>      cycles\n", "no hardware PMU"]);
}

#[test]
fn the_threads_of_a_machine() {
    skip_unless!(root());
    let ran = stat(["-a", "--per-thread", "-j", "-e", "page-faults:u", "--", "ls", "/"]).run().good();
    let rows = ran.json();
    let names: Vec<&str> = rows.iter().map(|row| row["thread"].as_str().unwrap()).collect();
    // It had ended when its name was printed.
    assert!(names.iter().any(|name| name.starts_with("ls-")), "{}", ran.err);
    assert!(rows.iter().all(|row| row["counter-value"] != "0.000000"), "{}", ran.err);
}

#[test]
fn a_control_group_is_counted() {
    skip_unless!(root());
    let (Some(busy), Some(idle)) = (Cgroup::make("busy"), Cgroup::make("idle")) else { return };
    let worker = Worker::new("behind:1100");
    std::fs::write(busy.path.join("cgroup.procs"), &worker.pid).unwrap();
    let list = format!("{},{}", busy.name(), idle.name());
    let line = ["-a", "-j", "-e", "page-faults:u", "--for-each-cgroup", &list, "--", "sh", "-c", &worker.work()];
    let ran = stat(line).run().good();
    let rows = ran.json();
    assert_eq!(rows.len(), 2, "{}", ran.err);
    assert_eq!((rows[0]["cgroup"].as_str(), rows[1]["cgroup"].as_str()), (Some(busy.name()), Some(idle.name())));
    let faults: f64 = rows[0]["counter-value"].as_str().unwrap().parse().unwrap();
    assert!((1100.0..1800.0).contains(&faults), "{}", ran.err);
    assert_eq!(rows[1]["counter-value"], "<not counted>", "nothing ran there: {}", ran.err);
    let both = format!("{},", idle.name());
    let ran = stat(["-a", "-x,", "-e", "cs,cs", "-G", &both, "true"]).run().good();
    let cgroups: Vec<&str> = ran.rows().iter().map(|row| row[3]).collect();
    assert_eq!(cgroups, [idle.name(), ""], "{}", ran.err);
    let table = stat(["-a", "-e", "cs", "-G", idle.name(), "true"]).run().good();
    table.says(&["cs: not counted: nothing ran in the cgroup meanwhile"]);
}

#[test]
fn two_at_once_count_the_same() {
    skip_unless!(root());
    let worker = Worker::new("behind:1000");
    let counted = ["-x,", "-e", "page-faults:u,cs,cpu-clock", "-p", &worker.pid];
    // Counting begins when its own command does.
    let sync_dir = SyncDir::new();
    let done = worker.sync_dir.text("done");
    let waiting = |name: &str| format!("echo >'{}'; while [ ! -e '{done}' ]; do sleep 0.01; done", sync_dir.text(name));
    let names = ["one", "two", "three"];
    let observers = names.map(|name| stat(counted).args(["--", "sh", "-c", &waiting(name)]).spawn());
    names.iter().for_each(|name| _ = sync_dir.read(name));
    worker.sync_dir.post("go");
    for observer in observers {
        let ran = observer.wait().good();
        let faults = ran.value("page-faults:u");
        assert!((1000.0..1700.0).contains(&faults), "{}", ran.err);
    }
    assert!(common::lives(worker.pid.parse().unwrap()), "it is only looked at");
}
