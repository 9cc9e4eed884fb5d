//! Waits: `pmux record --off-cpu`, `report --wall` and `flame --wall`, beside what a program measures of itself.

use crate::common::stolen::Stolen;
use crate::common::terminal::Terminal;
use crate::common::{
    PMUX, Running, SyncDir, eventually, kernel, linux_is_at_least, needs, new_file, own_cpu, perf, pmux, program, root,
    skip_unless, sleeping, start,
};
use crate::timeline;
use pmux_testkit::{CommandResult, state_of};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a thread says of itself, or several of one name together.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Truth {
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) switches: u64,
}

/// By the name of the thread and what it waited for, ns.
pub(crate) type Waits = BTreeMap<String, BTreeMap<String, u64>>;

/// Whether programs can see waits.
pub(crate) fn sees_waits() -> bool {
    if !kernel() || !root() {
        return false;
    }
    if let Some(why) = pmux_linux::bpf::why_not(pmux_linux::bpf::ProgramKind::RawTracepoint) {
        return needs("bpf", &format!("BPF programs ({why})"), false);
    }
    needs("bpf", "a kernel with CONFIG_DEBUG_INFO_BTF", Path::new("/sys/kernel/btf/vmlinux").exists())
}

/// `examples/waits` in a new folder, and a file of this name there; `None` where there is no compiler, or where programs can't see waits.
pub(crate) fn example(name: &str) -> Option<(SyncDir, PathBuf, PathBuf)> {
    if sees_waits() { compiled(name) } else { None }
}

/// The same, wherever there is a compiler.
pub(crate) fn compiled(name: &str) -> Option<(SyncDir, PathBuf, PathBuf)> {
    compiled_with("-fno-omit-frame-pointer", name)
}

pub(crate) fn compiled_with(frame_pointers: &str, name: &str) -> Option<(SyncDir, PathBuf, PathBuf)> {
    if !program("cc") {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/waits/waits.c");
    let (sync_dir, example) = new_file("waits");
    let words = ["-O1", "-g", frame_pointers, "-pthread", "-Wall", "-Wextra", "-Werror", "-o"];
    start("cc", words).args([&example, &source]).run().good();
    let file = sync_dir.path(name);
    Some((sync_dir, example, file))
}

/// The example while two of its threads wait for something that does not come.
pub(crate) fn hanging(example: &Path) -> Running {
    let hangs = start(example, ["hang"]).spawn();
    let folder = format!("/proc/{}/task", hangs.pid());
    eventually("both threads wait", || {
        let threads = std::fs::read_dir(&folder).ok()?.flatten();
        let states = threads.filter_map(|thread| state_of(thread.file_name().to_str()?.parse().ok()?));
        (states.filter(|&state| state == 'S').count() == 2).then_some(())
    });
    hangs
}

/// Whether programs can look at tasks that do nothing, and change what is kept of them in one step.
pub(crate) fn looks_at_tasks() -> bool {
    needs("bpf", "Linux 5.15", linux_is_at_least(5, 15))
}

/// Records a program that writes where the recording is.
fn record(off_cpu: &str, file: &Path, words: &[&str]) -> CommandResult {
    let mut record = pmux(["record", off_cpu, "-m", "8M", "-o"]).args([file]).args(["--"]).args(words);
    record.command.current_dir(file.parent().unwrap());
    record.run().good()
}

pub(crate) fn truths(text: &str) -> BTreeMap<String, Truth> {
    let mut truths: BTreeMap<String, Truth> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let truth = truths.entry(words[0].to_owned()).or_default();
        truth.wall_ns += number(1);
        truth.cpu_ns += number(2);
        truth.switches += number(3);
    }
    truths
}

/// What a recording tells. What ran is left out.
pub(crate) fn waits(file: &Path) -> Waits {
    let report = report(file, &["--wall", "-s", "comm,symbol"]);
    let events = report["events"].as_array().unwrap();
    assert_eq!((events.len(), &events[0]["name"]), (1, &Value::from("wall-clock")));
    let mut waits = Waits::new();
    for row in events[0]["rows"].as_array().unwrap() {
        let (comm, symbol) = (row["comm"].as_str().unwrap(), row["symbol"].as_str().unwrap());
        let own = row["self"]["period"].as_u64().unwrap();
        if symbol.starts_with('[') && own > 0 {
            *waits.entry(comm.to_owned()).or_default().entry(symbol.to_owned()).or_default() += own;
        }
    }
    waits
}

/// How much may be missing where the recorder says that it has not seen all switches: as long as such a wait may be.
pub(crate) fn unseen_ns(ran: &CommandResult) -> u64 {
    said(ran, " times a thread was not seen") * 100_000_000
}

/// The number that the recorder has said before these words, or 0.
fn said(ran: &CommandResult, words: &str) -> u64 {
    let said = ran.err.lines().find_map(|line| line.split_once(words));
    said.map_or(0, |(line, _)| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// What is told of a thread in a sum, under the name that threads have at their end, because it was not seen to come back: where hardly any
/// wait had no room in its ring.
fn sums_ns(ran: &CommandResult, waits: &Waits) -> u64 {
    let is_so = unseen_ns(ran) > 0 && said(ran, " waits found no room") < 100;
    waits.get("done").filter(|_| is_so).map_or(0, |waits| waits.values().sum())
}

/// That each thread waited as long as it says: half a per cent more or less, and what it takes to leave a CPU and to come back. Linux
/// counts a thread as running from when it was woken on: only `less_ns` a switch may be missing. To come back takes no longer than what it
/// does between two switches, where the machine is slow. What neither could see is allowed once.
pub(crate) fn are_as_long_as_they_were(waits: &Waits, ran: &CommandResult, stolen_ns: u64, less_ns: u64) {
    let unseen_ns = stolen_ns + unseen_ns(ran) + sums_ns(ran, waits);
    let mut wrong_ns = 0;
    for (name, truth) in &truths(&ran.text()) {
        let waited = truth.wall_ns - truth.cpu_ns;
        let seen: u64 = waits.get(name).map_or(0, |waits| waits.values().sum());
        let more_ns = (truth.cpu_ns / truth.switches.max(1)).clamp(5_000, 50_000);
        let (least, most) = (waited.saturating_sub(less_ns * truth.switches), waited + more_ns * truth.switches);
        let allowed = truth.wall_ns / 200 + 2_000_000;
        wrong_ns += least.saturating_sub(seen + allowed) + seen.saturating_sub(most.min(truth.wall_ns) + allowed);
        assert!(wrong_ns <= unseen_ns, "{name} waited {waited} of {truth:?}, seen are {seen}: {waits:?}");
    }
}

/// That the threads that say how long they waited have waited so long together, and not twice. They wait also for their first CPU, and
/// to end.
pub(crate) fn are_all_there(seen: &Waits, truths: &BTreeMap<String, Truth>, unseen_ns: u64) {
    let waited: u64 = truths.values().map(|of| of.wall_ns - of.cpu_ns).sum();
    let all: u64 = truths.values().map(|of| of.wall_ns / 200 + 2_000_000 + 1_000 * of.switches).sum();
    // Sums are told at the end, where threads have the name that they gave themselves last.
    let own = seen.iter().filter(|(name, _)| truths.contains_key(*name) || *name == "done");
    let seen_ns: u64 = own.flat_map(|(_, waits)| waits.values()).sum();
    let allowed = all + unseen_ns;
    assert!(seen_ns + allowed >= waited && seen_ns < 2 * waited, "{seen_ns} of {waited}, less {allowed}: {seen:?}");
}

/// That each thread has waited for what it is made for, and hardly for anything else.
pub(crate) fn are_for_what_they_are_made(seen: &Waits) {
    for (name, kind) in [
        ("holder", "[sleep]"),
        ("sleeper", "[sleep]"),
        ("locker", "[lock]"),
        ("ping", "[pipe or socket]"),
        ("pong", "[pipe or socket]"),
        ("spins", "[run queue]"),
        ("spins-nice", "[run queue]"),
    ] {
        let of = &seen[name];
        let others: u64 = of.iter().filter(|(of, _)| *of != kind && *of != "[run queue]").map(|(_, ns)| ns).sum();
        assert!(of[kind] > 0 && others * 50 <= of[kind], "{name}: {of:?}");
    }
}

#[test]
fn waits_are_as_long_as_the_program_says() {
    let Some((_dir, example, file)) = example("all.data") else { return };
    let before = Stolen::now();
    let ran = record("--off-cpu=0", &file, &[example.to_str().unwrap(), "all"]);
    let (stolen, seen) = (before.since_ns(), waits(&file));
    let unseen = stolen + unseen_ns(&ran);
    are_as_long_as_they_were(&seen, &ran, stolen, 1_000);
    are_for_what_they_are_made(&seen);
    // 24 naps of 10 ms are no shorter, though a thread may be away from its CPU when its nap begins.
    let away = |name: &str| seen[name].values().sum::<u64>() + unseen;
    assert!(away("sleeper") >= 239_000_000 && away("holder") >= 249_000_000, "{seen:?}");
    assert!(seen["pool"].contains_key("[lock]") && seen["pool"].contains_key("[sleep]"), "{:?}", seen["pool"]);
    // The nice one of two that share a CPU waits longer.
    assert!(away("spins-nice") > seen["spins"]["[run queue]"], "{seen:?}");
    if perf() {
        // perf knows the event by its name, and finds the same time in it.
        let script = start("perf", ["script", "-F", "comm,event,period", "-i"]).args([&file]).run().good();
        let mut blocked = 0;
        for line in script.text().lines().filter(|line| line.contains("offcpu-time:")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[0] == "sleeper" {
                blocked += words[1].parse::<u64>().unwrap();
            }
        }
        let all: u64 = seen["sleeper"].values().sum();
        assert_eq!(blocked + seen["sleeper"].get("[run queue]").copied().unwrap_or(0), all);
        start("perf", ["report", "--stdio", "-i"]).args([&file]).run().good();
    }
}

#[test]
fn short_waits_are_added_up() {
    let Some((_dir, example, file)) = example("short.data") else { return };
    let before = Stolen::now();
    // None is as long.
    let ran = record("--off-cpu=1h", &file, &[example.to_str().unwrap(), "all"]);
    let (truths, mut seen) = (truths(&ran.text()), waits(&file));
    let unseen = before.since_ns() + unseen_ns(&ran);
    seen.retain(|name, _| name == "done");
    are_all_there(&seen, &truths, unseen);
    assert!(seen["done"].keys().all(|kind| kind == "[wait]" || kind == "[run queue]"), "{seen:?}");
}

/// Waits that have begun before a recording are recorded from its beginning on, of one process, of one thread and of all; children are recorded, or not.
#[test]
fn targets_are_recorded() {
    skip_unless!(sees_waits());
    let (_dir, file) = new_file("w.data");
    for whose in ["-p", "-t", "-a"] {
        let sleeper = sleeping();
        let pid = sleeper.pid().to_string();
        let target: &[&str] = if whose == "-a" { &["-a"] } else { &[whose, &pid] };
        let script = format!("sleep 0.2; kill {pid}; sleep 0.1");
        let words = pmux(["record", "--off-cpu", "-o"]).args([&file]).args(target);
        let ran = words.args(["--", "sh", "-c", &script]).run().good();
        drop(sleeper);
        // The one that is killed has slept for 0.2 s at least; system-wide there are the other two.
        let seen = waits(&file);
        let slept = seen.get("sleep").and_then(|of| of.get("[sleep]")).copied().unwrap_or(0);
        assert!(slept >= 190_000_000, "{whose}: {seen:?}, {}", ran.err);
        assert_eq!(seen.contains_key("sh"), whose == "-a", "{whose}: {seen:?}");
    }
    for (option, has_child) in [("-g", true), ("-i", false)] {
        let words = pmux(["record", "--off-cpu", option, "-o"]).args([&file]);
        let ran = words.args(["--", "sh", "-c", "sleep 0.3; :"]).run().good();
        let seen = waits(&file);
        assert_eq!(seen.contains_key("sleep"), has_child, "{option}: {seen:?} {}", ran.err);
        assert!(
            seen["sh"]["[child]"] + seen["sh"].get("[run queue]").unwrap_or(&0) >= 250_000_000,
            "{option}: {seen:?}"
        );
    }
}

/// What hangs leaves no CPU while it is recorded: each of its threads has waited all the time.
#[test]
fn waits_that_do_not_end_are_told() {
    let Some((sync_dir, example, file)) = example("hang.data").filter(|_| looks_at_tasks()) else { return };
    let hangs = hanging(&example);
    let pid = hangs.pid().to_string();
    let [fifo, ack] = ["control", "ack"].map(|name| sync_dir.path(name));
    start("mkfifo", [&fifo, &ack]).run().good();
    for script in ["sleep 0.5", "echo disable > $0; read ok < $1; echo enable > $0; read ok < $1; sleep 0.5"] {
        let control = format!("fifo:{},{}", fifo.to_str().unwrap(), ack.to_str().unwrap());
        let ran = pmux(["record", "--off-cpu", "-p", &pid, "--control", &control, "-o"]).args([&file, Path::new("--")]);
        ran.args(["sh", "-c", script]).args([&fifo, &ack]).run().good();
        let told = report(&file, &["--wall", "-s", "tid,symbol"]);
        let rows = told["events"][0]["rows"].as_array().unwrap();
        let of = |symbol: &str| -> Vec<u64> {
            let of = rows.iter().filter(|row| row["symbol"] == symbol);
            of.map(|row| row["children"]["period"].as_u64().unwrap()).collect()
        };
        // Of the program the function is known that has entered the kernel.
        let (main, locked) = (of("[pipe or socket]"), of("[lock]"));
        assert_eq!((main.len(), &main, &of("read")), (1, &locked, &main), "{told}");
        assert!(main[0] >= 500_000_000, "{main:?}");
        let locks = report(&file, &["--locks"]);
        assert_eq!(locks["locks"][0]["total_ns"], main[0], "{locks}");
        assert!(locks["locks"][0]["address"].is_string(), "{locks}");
        // Nothing is there before the waits: times count from their beginning.
        let path = report(&file, &["--critical-path"]);
        let number = |value: &Value| value.as_u64().unwrap();
        let sums: u64 = path["sums"].as_array().unwrap().iter().map(|row| number(&row["total_ns"])).sum();
        assert_eq!(number(&path["thread"]["to_ns"]) - number(&path["thread"]["from_ns"]), sums, "{path}");
        assert!(sums >= 500_000_000, "{path}");
    }
}

/// A thread that has a CPU all the time waits for nothing, although it is never seen to come or to leave.
#[test]
fn what_runs_all_the_time_does_not_wait() {
    skip_unless!(sees_waits() && looks_at_tasks());
    let runs = start("sh", ["-c", "while :; do :; done"]).spawn();
    let (_dir, file) = new_file("runs.data");
    // How long it has waited for a CPU, as the kernel says.
    let waited = || -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", runs.pid())).unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let before = waited();
    let words = pmux(["record", "--off-cpu=0", "-p", &runs.pid().to_string(), "-o"]).args([&file]);
    let ran = words.args(["--", "sleep", "0.5"]).run().good();
    let most = waited() - before + unseen_ns(&ran);
    let seen: u64 = waits(&file).values().flat_map(BTreeMap::values).sum();
    assert!(seen <= most + 20_000_000, "{seen} of {most}");
}

#[test]
fn what_can_not_be_is_refused() {
    skip_unless!(kernel());
    let (_dir, file) = new_file("none.data");
    // A recording without waits has no wall time.
    pmux(["record", "-e", "page-faults:u", "-c", "1", "-o"]).args([&file]).args(["--", "true"]).run().good();
    for command in ["report", "flame"] {
        let ran = pmux([command, "--wall", "-i"]).args([&file]).run();
        assert!(ran.err.contains("it has no waits: record it with `pmux record --off-cpu`"), "{}", ran.err);
        assert!(!ran.status.success());
    }
    for option in ["--locks", "--wakers", "--runqueue"] {
        let ran = pmux(["report", option, "-i"]).args([&file]).run();
        assert!(ran.err.contains("it has no waits") && !ran.status.success(), "{}", ran.err);
        pmux(["report", option, "--wall", "-i"]).args([&file]).run().bad(125, &["cannot be used with"]);
    }
    let ran = pmux(["record", "--off-cpu=soon", "--", "true"]).run();
    assert!(ran.err.contains("expected a time, such as 500ms"), "{}", ran.err);
    skip_unless!(sees_waits());
    let ran = pmux(["record", "--off-cpu", "-C", "0", "-o"]).args([&file]).args(["--", "true"]).run();
    assert!(ran.err.contains("waits are of threads"), "{}", ran.err);
    if program("setpriv") {
        let words = ["--bounding-set=-all", "--inh-caps=-all", PMUX, "record", "--off-cpu", "-o"];
        let ran = start("setpriv", words).args([&file]).args(["-e", "cpu-clock:u", "--", "true"]).run();
        assert!(ran.err.contains("this user may not load BPF programs"), "{}", ran.err);
    }
}

/// What `report` tells programs.
pub(crate) fn report(file: &Path, words: &[&str]) -> Value {
    pmux(["report", "--json", "-i"]).args([file]).args(words).run().good().document()
}

fn sum_of(rows: &[Value]) -> u64 {
    rows.iter().map(|row| row["total_ns"].as_u64().unwrap()).sum()
}

#[test]
fn wall_time_is_looked_at() {
    skip_unless!(program("tmux"));
    let Some((sync_dir, example, file)) = example("w.data") else { return };
    record("--off-cpu", &file, &[example.to_str().unwrap()]);
    let terminal = Terminal::new(&sync_dir, 110, 24);
    let words = format!("clear; '{PMUX}' report --wall --no-children -i {}; echo ended $?", sync_dir.text("w.data"));
    let look = || terminal.enter(&words);
    look();
    let screen = terminal.shows(&["  wall-clock  ", "[lock]", "[sleep]"]);
    assert!(!screen.contains("offcpu-time") && !screen.contains("of 4)"), "one event: {screen}");
    terminal.quit("ended 0");
    // Without waits it is said on the ordinary screen.
    pmux(["record", "-o"]).args([&file]).args(["--", "true"]).run().good();
    look();
    terminal.shows(&["it has no waits", "ended 125"]);
}

/// Who held the lock of the example is who ended the wait for it; naps are ended by the timer.
#[test]
fn who_waited_and_who_ended_it() {
    let Some((_dir, example, file)) = example("w.data") else { return };
    record("--off-cpu", &file, &[example.to_str().unwrap()]);
    let locks = report(&file, &["--locks"]);
    let lock = &locks["locks"][0];
    let (waiter, waker) = (&lock["waiters"][0], &lock["wakers"][0]);
    assert_eq!((&lock["comm"], &waiter["comm"], &waker["comm"]), (&"waits".into(), &"waits".into(), &"holder".into()));
    assert_eq!((&waiter["function"], &lock["waits"]), (&"main".into(), &1.into()), "{lock}");
    assert_eq!((&lock["symbol"], &lock["offset"]), (&"lock".into(), &0.into()), "{lock}");
    let waited = lock["total_ns"].as_u64().unwrap();
    assert!(waited >= 240_000_000 && lock["longest_ns"] == waited && waiter["total_ns"] == waited, "{lock}");
    let pairs = report(&file, &["--wakers"]);
    let pairs = pairs["wakers"].as_array().unwrap();
    let pair = |comm: &str, kind: &str| {
        let is = |row: &&Value| row["waiter"]["comm"] == comm && row["kind"] == kind;
        pairs.iter().find(is).unwrap_or_else(|| panic!("{comm} {kind}: {pairs:?}"))
    };
    assert_eq!(pair("waits", "[lock]")["waker"]["comm"], "holder");
    assert_eq!(pair("waits", "[lock]")["total_ns"], waited);
    for comm in ["waits", "holder"] {
        assert_eq!(
            (&pair(comm, "[sleep]")["waker"]["comm"], pair(comm, "[sleep]")["waker"]["function"].is_null()),
            (&"[timer]".into(), true)
        );
    }
    // All waits are in it, and those that are chosen alone.
    let all = report(&file, &["-g", "none"]);
    let events = all["events"].as_array().unwrap().iter().filter(|event| event["name"] == "offcpu-time");
    let seen: u64 = events.map(|event| event["period"].as_u64().unwrap()).sum();
    assert_eq!(sum_of(pairs), seen);
    let of_holder = report(&file, &["--wakers", "-c", "holder"]);
    assert!(of_holder["wakers"].as_array().unwrap().iter().all(|row| row["waiter"]["comm"] == "holder"), "{of_holder}");
    pmux(["report", "--locks", "-e", "cpu-clock", "-i"]).args([&file]).run().bad(125, &["samples of offcpu-time"]);
    let table = pmux(["report", "--locks", "-i"]).args([&file]).run().good();
    let text = table.text();
    assert!(text.contains("waits of") && text.contains("for locks"), "{text}");
    assert!(text.contains("waits: main") && text.contains("holder: "), "{text}");
    assert!(text.contains("  lock of waits/") && text.contains("  held+0x"), "{text}");
    if perf() {
        // perf finds the third event, too.
        let script = start("perf", ["script", "-F", "comm,event,period", "-i"]).args([&file]).run().good();
        let wakes = script
            .text()
            .lines()
            .any(|line| line.contains("waker-time:") && line.contains("holder") && line.contains(&waited.to_string()));
        assert!(wakes, "{}", script.text());
    }
}

#[test]
fn a_picture_of_wall_time() {
    let Some((sync_dir, example, file)) = example("w.data") else { return };
    let picture = sync_dir.path("w.svg");
    record("--off-cpu", &file, &[example.to_str().unwrap()]);
    pmux(["flame", "--wall", "-i"]).args([&file]).args(["-o"]).args([&picture]).run().good();
    let picture = std::fs::read_to_string(&picture).unwrap();
    for name in ["[sleep]", "[lock]", "burn", "wall-clock", "holder"] {
        assert!(picture.contains(name), "{name}");
    }
    let folded = pmux(["convert", "-f", "folded", "--wall", "-i"]).args([&file]).run().good().text();
    let line = |function: &str, kind: &str| folded.lines().any(|line| line.contains(function) && line.contains(kind));
    assert!(line("waits;", ";[lock] ") && line("holder;", ";[sleep] ") && line(";burn;", " "), "{folded}");
    pmux(["convert", "-f", "chrome", "--wall", "-i"]).args([&file]).run().bad(125, &["-f folded and -f pprof"]);
    let seen = &waits(&file)["waits"];
    assert!(seen["[sleep]"] > 0 && seen["[lock]"] > 0, "{seen:?}");
    assert!(seen.values().sum::<u64>() >= 480_000_000, "{seen:?}");
}

/// The lock that `main` waits for is held by a thread that sleeps: that sleep is what the time was spent on.
#[test]
fn the_time_of_a_thread_is_told_through_those_that_it_waited_for() {
    let Some((_dir, example, file)) = example("c.data") else { return };
    record("--off-cpu", &file, &["sh", "-c", "\"$0\"; :", example.to_str().unwrap()]);
    let found = report(&file, &["--critical-path"]);
    let number = |value: &Value| value.as_u64().unwrap();
    let (mut at, end) = (number(&found["thread"]["from_ns"]), number(&found["thread"]["to_ns"]));
    assert_eq!(found["thread"]["comm"], "sh", "it is there for the whole time");
    for stretch in found["path"].as_array().unwrap() {
        assert_eq!(number(&stretch["from_ns"]), at, "no gap and no overlap: {found}");
        at = number(&stretch["to_ns"]);
    }
    assert_eq!(at, end);
    let sums = found["sums"].as_array().unwrap();
    let all = |rows: &mut dyn Iterator<Item = &Value>| rows.map(|row| number(&row["total_ns"])).sum::<u64>();
    assert_eq!(all(&mut sums.iter()), end - number(&found["thread"]["from_ns"]));
    let of = |comm: &str, kind: &str| all(&mut sums.iter().filter(|row| row["comm"] == comm && row["kind"] == kind));
    // It sleeps for 250 ms with the lock, and the other one 24 times for 10 ms without.
    assert!(of("holder", "[sleep]") >= 200_000_000 && of("waits", "[sleep]") >= 200_000_000, "{found}");
    assert!(of("waits", "[lock]") < 200_000_000 && of("sh", "[child]") < 200_000_000, "{found}");
    let is_awaited = |stretch: &&Value| stretch["comm"] == "holder" && stretch["awaited_for"] == "[lock]";
    assert!(found["path"].as_array().unwrap().iter().any(|stretch| is_awaited(&stretch)), "{found}");
    let text = pmux(["report", "--critical-path", "--stdio", "--percent-limit", "5", "-i"]).args([&file]).run().good();
    assert!(text.text().contains("waits for [lock]"), "{}", text.text());
    for (wrong, says) in [
        (&["--tid", "999999999"][..], "no sample of thread 999999999"),
        (&["--tid", "1", "--tid", "2"], "is of one thread"),
        (&["--comm", "sh"], "is of one thread"),
        (&["--from", "1000"], "was not there then"),
    ] {
        let ran = pmux(["report", "--critical-path", "-i"]).args([&file]).args(wrong).run();
        assert!(ran.code() != 0 && ran.err.contains(says), "{wrong:?}: {}", ran.err);
    }
}

/// Each wait with what it was for and who ended it, and wall time of any part of the recording.
#[test]
fn a_timeline_draws_waits_and_who_ended_them() {
    let Some((sync_dir, example, file)) = example("t.data").filter(|_| program("node")) else { return };
    record("--off-cpu", &file, &[example.to_str().unwrap()]);
    let page = pmux(["timeline", "--no-inline", "-i"]).args([&file]).run().good().text();
    let data = timeline::data(&page);
    let number = |value: &Value| value.as_u64().unwrap();
    let kind =
        |wait: &Value| data["wait_kinds"][wait[3].as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned();
    let waits = data["waits"].as_array().unwrap();
    let longest = |wanted: &str| {
        waits.iter().filter(|wait| kind(wait) == wanted).max_by_key(|wait| number(&wait[2]) - number(&wait[1])).unwrap()
    };
    assert_eq!(longest("[sleep]")[4], "[timer]", "{waits:?}");
    // What is told of each: the sample, its thread, and how long it was.
    let known = timeline::computed(
        &sync_dir,
        &page,
        "{ threads: waits.map((wait) => wait.thread), weights: waits.map((wait) => samples.weight[wait.sample]), \
           clock: byEvent[clock].reduce((sum, i) => sum + samples.weight[i], 0), \
           drawn: (() => { \
             const drawn = [], x = (at) => GUTTER + at / data.length * 10; \
             const context = { fillRect: (left, top, width) => drawn.push([left - GUTTER, width]), fillText() {} }; \
             byThread.waits.forEach((list) => drawWaits(context, { waits: list, height: 20 }, 0, x, { from: 0, to: data.length }, {})); \
             return drawn; })(), \
           parts: [[0, 1], [0, 0.3], [0.3, 1]].map(([from, to]) => { \
             const { all } = flameOf({ event: WALL, selected: [data.length * from, data.length * to], only: null }); \
             return all; }) }",
    );
    let list = |name: &str| known[name].as_array().unwrap().clone();
    let (threads, weights) = (list("threads"), list("weights"));
    let place = waits.iter().position(|wait| wait == longest("[lock]")).unwrap();
    let (waiter, holder) = (number(&threads[place]) as usize, number(&waits[place][4]) as usize);
    assert_ne!(waiter, holder);
    assert_eq!(data["threads"][waiter]["process"], data["threads"][holder]["process"]);
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    let mut all = known["clock"].as_u64().unwrap();
    for ((wait, thread), weight) in waits.iter().zip(&threads).zip(&weights) {
        let (from, to) = (number(&wait[1]), number(&wait[2]));
        // One that began before the first sample begins with it.
        assert!(to - from == number(weight) || (from == 0 && to <= number(weight)), "{wait}");
        let end = ends.insert(number(thread), to).unwrap_or(0);
        assert!(end <= from, "a thread waits for one thing at a time: {waits:?}");
        all += to - from;
    }
    // Ten pixels wide: what is narrower than a pixel is drawn once a pixel, at its place.
    let drawn = list("drawn");
    assert!((2..=40).contains(&drawn.len()), "{drawn:?}");
    assert!(drawn.iter().all(|one| (0.0..11.0).contains(&one[0].as_f64().unwrap())), "{drawn:?}");
    let [whole, first, second] = [0, 1, 2].map(|part| list("parts")[part].as_f64().unwrap());
    assert!((whole - all as f64).abs() < 1.0 && first > 0.0 && second > 0.0, "{whole} of {all}");
    // A sample at the border is in both parts.
    assert!((first + second - whole).abs() < 20_000_000.0, "{first} and {second} of {whole}");
}

/// Two programs on one CPU wait for each other, and are seen to run meanwhile.
#[test]
fn who_waited_for_a_cpu_and_who_ran_there() {
    skip_unless!(sees_waits() && program("taskset"));
    let (sync_dir, file) = new_file("q.data");
    let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    // By names of their own: other tests have shells, too.
    for name in ["spin-one", "spin-two"] {
        std::os::unix::fs::symlink("/bin/sh", sync_dir.path(name)).unwrap();
    }
    let cpu = own_cpu();
    let of =
        |nice: &str, name: &str| format!("{nice} taskset -c {cpu} '{}' -c '{spin}' & ", sync_dir.path(name).display());
    let line = format!("{}{}wait", of("", "spin-one"), of("nice -n 3", "spin-two"));
    let words = ["record", "--off-cpu=0", "-a", "-F", "2000", "-o"];
    pmux(words).args([&file]).args(["--", "sh", "-c", &line]).run().good();
    let queue = report(&file, &["--runqueue"]);
    let rows = |key: &str| queue[key].as_array().unwrap();
    let all = report(&file, &["-e", "runqueue-time", "-g", "none"])["events"][0]["period"].as_u64();
    let others: u64 = rows("threads").iter().map(|row| row["others_ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum_of(rows("threads")) + others), all);
    let waits = |key: &str| rows(key).iter().map(|row| row["waits"].as_u64().unwrap()).sum::<u64>();
    assert_eq!((waits("threads"), sum_of(rows("cpus"))), (waits("histogram"), sum_of(rows("histogram"))));
    assert_eq!((waits("threads"), waits("threads")), (waits("cpus"), waits("priorities")));
    let of_nice = |priority: i32| rows("priorities").iter().find(|row| row["priority"] == priority).unwrap().clone();
    let named = |name: &str| rows("threads").iter().find(|row| row["comm"] == name).unwrap().clone();
    let longest = |row: &Value| row["longest_ns"].as_u64().unwrap();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let own = 100 + stat.rsplit(") ").next().unwrap().split(' ').nth(15).unwrap().parse::<i32>().unwrap();
    for (name, priority) in [("spin-one", own), ("spin-two", (own + 3).min(139))] {
        assert!(longest(&of_nice(priority)) >= longest(&named(name)), "{name}: {queue}");
    }
    for row in rows("histogram") {
        let (from, longest) = (row["from_ns"].as_u64().unwrap(), row["longest_ns"].as_u64().unwrap());
        assert!((from..2 * from).contains(&longest), "{row}");
    }
    for row in [rows("threads"), rows("cpus")].into_iter().flatten().filter(|row| row["waits"] != 0) {
        let number = |key: &str| row[key].as_u64().unwrap();
        assert!(number("total_ns") / number("waits") <= number("longest_ns"), "{row}");
    }
    let worst: Vec<u64> = rows("worst").iter().map(|wait| wait["waited_ns"].as_u64().unwrap()).collect();
    assert!(worst.is_sorted_by(|a, b| a >= b) && worst.len() <= 20, "{worst:?}");
    // Each of the two waited while the other one ran.
    for (one, other) in [("spin-one", "spin-two"), ("spin-two", "spin-one")] {
        let of_one = report(&file, &["--runqueue", "--comms", one]);
        let mut waits = of_one["worst"].as_array().unwrap().iter();
        let ran = |wait: &Value| wait["ran"].as_array().unwrap().iter().any(|ran| ran["comm"] == other);
        assert!(waits.any(|wait| wait["cpu"] == cpu && ran(wait)), "{of_one}");
    }
    let one = rows("threads").iter().find(|row| row["comm"] == "spin-one").unwrap();
    let of_one = report(&file, &["--runqueue", "--tid", &one["tid"].to_string()]);
    // By each name that it has had.
    let named: Vec<Value> = rows("threads").iter().filter(|row| row["tid"] == one["tid"]).cloned().collect();
    assert_eq!(of_one["threads"], Value::from(named), "{of_one}");
    let text = pmux(["report", "--runqueue", "-i"]).args([&file]).run().good().text();
    assert!(text.contains("waits for a CPU") && text.contains("who ran there meanwhile"), "{text}");
    pmux(["report", "--runqueue", "-e", "cpu-clock", "-i"]).args([&file]).run().bad(125, &["samples of runqueue-time"]);
}
