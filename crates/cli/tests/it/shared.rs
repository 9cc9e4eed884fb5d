//! `pmux stat` through `pmux serve`: the same counts, and what becomes of them when the service goes away.
//!
//! What it is: two measurements of the same work at once, one shared and one not. Who is measured waits until both have
//! begun, and both end when it waits again.
//!
//! **Invariant:** what is compared was counted at the same time.

use crate::common;
use crate::common::service::{Service, on_task, where_all_is_refused};
use crate::common::{
    CommandResult, Killed, Running, Start, SyncDir, eventually, kernel, needs, root, skip_unless, stat,
};
use pmux::abi::{Attr, AttrFlags, EventType, breakpoint};
use pmux::server_api::shared::wire::{Reply, Request};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// A configuration with which the service passes no files to its clients.
const WITHOUT_FILES: &str = "[rights]\nfiles = \"never\"\n";

/// A shell that works when it is told to.
pub(crate) struct Worker {
    child: Killed,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) fn start() -> Self {
        // Each child costs it page faults of its own: what they shared is copied.
        let script = "while read -r n; do while [ \"$n\" -gt 0 ]; do (:); n=$((n - 1)); done; echo done; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut worker = Self { child: Killed(child), orders, answers };
        // What is done only once is done before anybody counts.
        worker.works(3);
        worker
    }

    pub(crate) fn works(&mut self, times: u32) {
        writeln!(self.orders, "{times}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    }

    pub(crate) fn pid(&self) -> String {
        self.child.0.id().to_string()
    }
}

/// A shell line that says that it is there, and waits until the door says that it is the end.
pub(crate) fn waits(sync_dir: &SyncDir, name: &str) -> String {
    format!("touch '{}'; until [ -e '{}' ]; do sleep 0.01; done", sync_dir.text(name), sync_dir.text("end"))
}

/// `pmux stat -x,` that has begun, and ends when the door says so.
pub(crate) fn measure(sync_dir: &SyncDir, name: &str, start: Start, target: &[&str]) -> Running {
    let running = start.args(target).args(["--", "sh", "-c", &waits(sync_dir, name)]).spawn();
    eventually("it has begun", || sync_dir.path(name).exists().then_some(()));
    running
}

/// A service where events of the kernel can be opened, where its clients meet, and a worker with its number; otherwise the test is skipped.
fn setting(config: &str) -> Option<(Service, SyncDir, Worker, String)> {
    let (service, worker) = (Service::of_kernel(config)?, Worker::start());
    let pid = worker.pid();
    Some((service, SyncDir::new(), worker, pid))
}

fn shared(service: &Service) -> Start {
    stat(["--shared=always"]).env("PMUX_SOCKET", service.socket())
}

/// The sum of all that was printed of the page faults, interval by interval or at the end, for people.
pub(crate) fn faults(err: &str) -> u64 {
    let lines = err.lines().filter_map(|line| line.split_once("page-faults:u").map(|(before, _)| before));
    let values = lines.filter_map(|before| before.split_whitespace().last());
    values.filter_map(|value| value.replace(',', "").parse::<u64>().ok()).sum()
}

fn end(sync_dir: &SyncDir) {
    std::fs::write(sync_dir.path("end"), "").unwrap();
}

/// Lets all of them end, and well.
pub(crate) fn ended<const COUNT: usize>(sync_dir: &SyncDir, running: [Running; COUNT]) -> [CommandResult; COUNT] {
    end(sync_dir);
    running.map(|running| running.wait().good())
}

/// Events that the service has open for others.
fn asked(service: &Service) -> u64 {
    service.status()["events"]["asked"].as_u64().unwrap()
}

/// Requests of the client who had most.
pub(crate) fn requests(service: &Service) -> u64 {
    let status = service.status();
    let clients = status["clients"]["list"].as_array().unwrap();
    clients.iter().map(|client| client["requests"].as_u64().unwrap()).max().unwrap_or_default()
}

#[test]
fn the_same_is_counted_with_and_without() {
    ["", WITHOUT_FILES].into_iter().for_each(counts_are_the_same);
}

fn counts_are_the_same(config: &str) {
    let Some((service, sync_dir, mut worker, pid)) = setting(config) else { return };
    for events in ["page-faults:u,minor-faults:u", "{page-faults:u,minor-faults:u}"] {
        for inherit in [&[][..], &["-i"]] {
            let target = [&["-x,", "-e", events, "-p", &pid][..], inherit].concat();
            let with = measure(&sync_dir, "with", shared(&service), &target);
            let without = measure(&sync_dir, "without", stat(["--shared=never"]), &target);
            assert_eq!(asked(&service), 2, "{}", service.log());
            worker.works(100);
            let [with, without] = ended(&sync_dir, [with, without]);
            for event in ["page-faults:u", "minor-faults:u"] {
                assert_eq!(with.value(event), without.value(event), "{events} {inherit:?}");
                assert!(with.value(event) >= 100.0);
            }
            for name in ["with", "without", "end"] {
                std::fs::remove_file(sync_dir.path(name)).unwrap();
            }
            service.is_empty();
        }
    }
}

#[test]
fn counting_goes_on_when_the_service_is_killed() {
    let Some((mut service, sync_dir, mut worker, pid)) = setting("") else { return };
    let target = ["-e", "{page-faults:u,minor-faults:u}", "-i", "-p", &pid];
    let without = measure(&sync_dir, "without", stat(["--shared=never"]), &target);
    let running = measure(&sync_dir, "with", shared(&service).args(["-I", "20"]), &target);
    worker.works(10);
    service.kill();
    // Who was given files reads on.
    worker.works(10);
    service.start_again();
    // It, and who asks that.
    eventually("it has connected again", || (service.status()["clients"]["connected"] == 2).then_some(()));
    worker.works(50);
    let [ran, without] = ended(&sync_dir, [running, without]);
    assert!(faults(&without.err) > 70, "{}", without.err);
    assert_eq!(faults(&ran.err), faults(&without.err), "{}\n{}", ran.err, without.err);
    ran.never_says(&["the sharing service was away"]);
}

/// Without intervals, no reading finds that the service was away before the end.
#[test]
fn what_is_read_once_goes_on_as_soon_as_the_service_is_back() {
    let Some((mut service, sync_dir, mut worker, pid)) = setting(WITHOUT_FILES) else { return };
    let target = ["-e", "{page-faults:u,minor-faults:u}", "-i", "-p", &pid];
    let running = measure(&sync_dir, "with", shared(&service), &target);
    service.kill();
    service.start_again();
    // It says hello, opens, and enables both.
    eventually("it has connected again", || (requests(&service) >= 4).then_some(()));
    worker.works(50);
    let [ran] = ended(&sync_dir, [running]);
    assert!(faults(&ran.err) >= 50, "{}", ran.err);
    ran.says(&["the sharing service was away"]);
}

#[test]
fn counts_are_kept_when_the_service_stops() {
    for files in ["own", "never"] {
        let config = format!("[rights]\nfiles = \"{files}\"\n");
        let Some((mut service, sync_dir, mut worker, pid)) = setting(&config) else { return };
        let target = ["-e", "page-faults:u", "-i", "-p", &pid];
        let without = measure(&sync_dir, "without", stat(["--shared=never"]), &target);
        let with = measure(&sync_dir, "with", shared(&service), &target);
        assert_eq!(asked(&service), 1);
        worker.works(50);
        assert_eq!(service.stop(), 0);
        if files == "own" {
            // Who was given files reads on.
            worker.works(50);
        }
        let [with, without] = ended(&sync_dir, [with, without]);
        assert!(faults(&without.err) >= 50, "{}", without.err);
        assert_eq!(faults(&with.err), faults(&without.err), "{files}: {}\n{}", with.err, service.log());
    }
}

#[test]
fn clients_without_files_are_told_the_gap() {
    let Some((mut service, sync_dir, mut worker, pid)) = setting(WITHOUT_FILES) else { return };
    let target = ["-e", "page-faults:u", "-i", "-p", &pid];
    let running = measure(&sync_dir, "with", shared(&service).args(["-I", "20"]), &target);
    worker.works(10);
    service.kill();
    worker.works(10);
    service.start_again();
    eventually("it has connected again", || (requests(&service) >= 3).then_some(()));
    let without = measure(&sync_dir, "without", stat(["--shared=never"]), &target);
    worker.works(50);
    let [ran, without] = ended(&sync_dir, [running, without]);
    assert!(faults(&ran.err) >= faults(&without.err), "{}\n{}", ran.err, without.err);
    ran.says(&["not counted for ", "the sharing service was away"]);
}

/// What takes the place of the service may not give what that gave.
#[test]
fn a_service_that_refuses_what_was_open_says_why() {
    let Some((mut service, sync_dir, mut worker, pid)) = setting(WITHOUT_FILES) else { return };
    let target = ["-x,", "-e", "{page-faults:u,minor-faults:u}", "-i", "-p", &pid];
    let running = measure(&sync_dir, "with", shared(&service), &target);
    worker.works(10);
    service.kill();
    service.configure_next(&format!("{WITHOUT_FILES}[limits]\nevents_per_client = 1\n"));
    service.start_again();
    eventually("it is refused", || (service.status()["since_start"]["refused"] != 0).then_some(()));
    let [ran] = ended(&sync_dir, [running]);
    ran.says(&["# not counted for ", "the sharing service began anew and refuses it", "`limits.events_per_client`"]);
}

/// Programs are told, too: their numbers say nothing of it.
#[test]
fn a_gap_is_told_in_each_form() {
    for (form, told) in
        [("-x,", "# not counted for "), ("-j", "{\"note\" : \"not counted for "), ("-v", " not counted for ")]
    {
        let Some((mut service, sync_dir, mut worker, pid)) = setting(WITHOUT_FILES) else { return };
        let running =
            measure(&sync_dir, "with", shared(&service).args([form]), &["-e", "page-faults:u", "-i", "-p", &pid]);
        service.kill();
        service.start_again();
        // It says hello, opens, and enables.
        eventually("it has connected again", || (requests(&service) >= 3).then_some(()));
        worker.works(10);
        let [ran] = ended(&sync_dir, [running]);
        let line = ran.err.lines().find(|line| line.contains("the sharing service was away"));
        assert!(line.is_some_and(|line| line.contains(told)), "{form}: {}", ran.err);
    }
}

#[test]
fn clients_with_files_send_no_requests() {
    let Some((service, sync_dir, mut worker, pid)) = setting("") else { return };
    let target = ["-e", "{page-faults:u,minor-faults:u}", "-i", "-p", &pid];
    let running = measure(&sync_dir, "with", shared(&service).args(["-I", "10"]), &target);
    let before = requests(&service);
    worker.works(100);
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(requests(&service), before);
    assert!(faults(&ended(&sync_dir, [running])[0].err) > 100);
}

#[test]
fn without_a_service_auto_says_nothing_and_always_says_why() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let (worker, nowhere) = (Worker::start(), sync_dir.path("nowhere.sock"));
    let pid = worker.pid();
    let words = ["-x,", "-e", "page-faults:u", "-p", &pid, "true"];
    stat(["--shared=auto"]).args(words).env("PMUX_SOCKET", &nowhere).run().good().never_says(&["service"]);
    stat(["--shared=never"]).args(words).env("PMUX_SOCKET", &nowhere).run().good().never_says(&["service"]);
    // What is there and is none was meant to be a socket.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let note = format!("PMUX_SOCKET={file} is not a socket: events are opened directly");
    stat(["--shared=auto"]).args(words).env("PMUX_SOCKET", file).run().good().says(&[&note]);
    stat(["--shared=never"]).args(words).env("PMUX_SOCKET", file).run().good().never_says(&["socket"]);
    for command in ["list", "status"] {
        common::pmux(["flight", command, "--socket", file])
            .run()
            .bad(125, &["there is no socket that can be looked at"]);
    }
    common::pmux(["timec", "--socket", file, "true"]).run().bad(125, &["is not a socket"]);
    let bad = stat(["--shared=always"]).args(words).env("PMUX_SOCKET", &nowhere).run();
    bad.bad(125, &["no sharing service", "nowhere.sock", "pmux serve"]);
    let bad = stat(words).env("PMUX_SHARED", "sometimes").run();
    bad.bad(125, &["PMUX_SHARED=sometimes", "auto, always, never"]);
    std::fs::write(&nowhere, "").unwrap();
    stat(["--shared=always"]).args(words).env("PMUX_SOCKET", &nowhere).run().bad(125, &["nowhere.sock"]);
}

#[test]
fn commands_are_counted_from_their_exec_on_by_ourselves() {
    skip_unless!(kernel());
    let service = Service::with("[log]\nlevel = \"debug\"\n");
    let count = |start: Start| start.args(["-x,", "-e", "page-faults:u", "--", "true"]).run().good();
    let (with, without) = (count(shared(&service)), count(stat(["--shared=never"])));
    assert!(with.value("page-faults:u") > 0.0 && without.value("page-faults:u") > 0.0);
    assert!(!service.log().contains("(handle "), "{}", service.log());
}

/// A service that stops answering in the middle.
#[test]
fn a_service_that_stands_still_is_left() {
    let Some((service, sync_dir, mut worker, pid)) = setting("") else { return };
    common::signal(&service.pid().to_string(), "STOP");
    // It can be connected to, and says nothing.
    let target = ["-x,", "-e", "page-faults:u", "-p", &pid];
    let auto = stat(["--shared=auto"]).env("PMUX_SOCKET", service.socket());
    let running = measure(&sync_dir, "with", auto, &target);
    worker.works(20);
    let [ran] = ended(&sync_dir, [running]);
    assert!(ran.never_says(&["service"]).value("page-faults:u") >= 20.0);
    common::signal(&service.pid().to_string(), "CONT");
}

#[test]
fn a_hardware_event_counts_the_same() {
    skip_unless!(kernel() && needs("pmu", "a hardware PMU", common::has_pmu()));
    let Some((service, sync_dir, mut worker, pid)) = setting("") else { return };
    let target = ["-x,", "-e", "instructions:u", "-i", "-p", &pid];
    let with = measure(&sync_dir, "with", shared(&service), &target);
    let without = measure(&sync_dir, "without", stat(["--shared=never"]), &target);
    worker.works(100);
    let [with, without] = ended(&sync_dir, [with, without]);
    assert_eq!(with.value("instructions:u"), without.value("instructions:u"));
}

#[test]
fn the_library_sees_what_the_service_shows() {
    skip_unless!(kernel());
    let (service, mut worker) = (Service::start(), Worker::start());
    let pid = i32::try_from(worker.child.0.id()).unwrap();
    let session = pmux::Session::with_service_at(service.socket()).unwrap();
    let event = pmux::Event::parse_with("page-faults:u", session.catalog()).unwrap();
    let counter = pmux::Counter::open(&session, event, &pmux::Target::Threads(vec![pid])).unwrap();
    assert_eq!(session.shared_through(), Some(service.socket().as_path()));
    worker.works(100);
    let before = requests(&service);
    // The page is written every now and then.
    let shown = eventually("it is shown", || {
        let (count, _) = counter.read_cached().unwrap();
        (count.value >= 100).then_some(count)
    });
    assert!(shown.enabled.0 > 0 && shown.running == shown.enabled);
    assert_eq!(requests(&service), before, "no request was made");
    // That may have been written while the worker worked. At rest, all that is counted is shown sooner or later.
    let (shown, exact) = eventually("all of it is shown", || {
        let (shown, _) = counter.read_cached().unwrap();
        let exact = counter.read().unwrap();
        (exact.value == shown.value).then_some((shown, exact))
    });
    assert!(exact.enabled >= shown.enabled);
    counter.reset().unwrap();
    worker.works(10);
    let again = eventually("it is shown", || {
        let (count, _) = counter.read_cached().unwrap();
        (count.value > 0).then_some(count.value)
    });
    assert!(again < exact.value);
    assert_eq!(session.service_gap(), std::time::Duration::ZERO);
    drop(counter);
    drop(session);
    service.is_empty();
}

#[test]
fn the_library_sees_what_the_service_shows_of_cpus() {
    skip_unless!(root());
    let service = Service::start();
    let session = pmux::Session::with_service_at(service.socket()).unwrap();
    let list = pmux::EventList::parse(&["cpu-clock", "{page-faults,minor-faults}"], session.catalog()).unwrap();
    let counters = session.open(&list, &pmux::Target::Cpus(pmux::CpuChoice::All), pmux::Options::default()).unwrap();
    assert_eq!(asked(&service), 3 * session.online().len() as u64);
    let sums = |snapshot: &pmux::Snapshot| -> Vec<u64> {
        let of = |row: &pmux::RowReading, event: usize| row.readings[event].count().map_or(0, |count| count.value);
        (0..3).map(|event| snapshot.rows.iter().map(|row| of(row, event)).sum()).collect()
    };
    let first = counters.read();
    let before = requests(&service);
    let mut worker = Worker::start();
    worker.works(100);
    let later = eventually("it is shown", || {
        let (snapshot, age) = counters.read_cached();
        assert!(snapshot.at <= counters.now() && age.0 > 0);
        // The page may have been written between the exact reading and the moment when that was here: more is shown then, as of before.
        let is_later =
            sums(&snapshot).iter().zip(sums(&first)).all(|(now, then)| *now > then) && snapshot.at > first.at;
        is_later.then_some(snapshot)
    });
    assert_eq!(requests(&service), before, "no request was made");
    assert_eq!((later.rows.len(), later.coverage.cpus.len()), (first.rows.len(), first.coverage.cpus.len()));
    // What was shown is no more than what is counted.
    let exact = counters.read();
    assert!(sums(&exact).iter().zip(sums(&later)).all(|(exact, shown)| *exact >= shown));
    drop((counters, session));
    service.is_empty();
}

#[test]
fn where_the_kernel_refuses_the_service_counts() {
    skip_unless!(root());
    let (service, mut worker) = (Service::start(), Worker::start());
    let pid = worker.pid();
    for shared in ["always", "auto"] {
        let sync_dir = SyncDir::new();
        let waits = waits(&sync_dir, "with");
        let words = ["-x,", "-i", "-p", &pid, "--", "sh", "-c", &waits];
        let mut running = where_all_is_refused(shared, &service.socket(), &sync_dir, &words);
        eventually("it has begun", || sync_dir.path("with").exists().then_some(()));
        let target = ["-x,", "-e", "page-faults:u", "-i", "-p", &pid];
        let without = measure(&sync_dir, "without", stat(["--shared=never"]), &target);
        worker.works(50);
        end(&sync_dir);
        let (exited, without) = (running.wait().unwrap(), without.wait().good());
        assert!(exited.status.success());
        let out = std::fs::read_to_string(sync_dir.path("out")).unwrap();
        let counted = out.lines().find_map(|line| line.split_once(",,page-faults:u")).unwrap().0;
        assert_eq!(counted.parse::<f64>().unwrap(), without.value("page-faults:u"));
    }
}

#[test]
fn where_the_kernel_refuses_commands_are_counted_too() {
    skip_unless!(root());
    let service = Service::start();
    let work = "n=0; while [ $n -lt 100 ]; do (:); n=$((n + 1)); done";
    let alone = stat(["--shared=never", "-x,", "-e", "page-faults:u", "--", "sh", "-c", work]).run().good();
    for shared in ["always", "auto"] {
        let sync_dir = SyncDir::new();
        let mut running = where_all_is_refused(shared, &service.socket(), &sync_dir, &["--", "sh", "-c", work]);
        assert!(running.wait().unwrap().status.success());
        let out = std::fs::read_to_string(sync_dir.path("out")).unwrap();
        assert!(out.contains("does not see the exec"), "{out}");
        let (counted, alone) = (faults(&out) as f64, alone.value("page-faults:u"));
        assert!(counted >= alone * 0.8 && counted < alone * 2.0 + 100.0, "{alone} alone: {out}");
    }
    service.is_empty();
}

#[test]
fn holders_of_registers_of_the_service_are_named() {
    skip_unless!(root());
    let Some(_registers) = common::debug_registers() else { return };
    let service = Service::start();
    let sleeper = Killed(Command::new("sleep").arg("60").spawn().unwrap());
    let task = i32::try_from(sleeper.0.id()).unwrap();
    let mut client = service.client();
    let watched = |place: u64| Attr {
        kind: EventType::BREAKPOINT,
        config1: place * 8,
        config2: 8,
        bp_type: breakpoint::W,
        flags: AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV,
        ..Attr::default()
    };
    let first = client.ask(&Request::Open(on_task(task, &[watched(1)]))).reply;
    skip_unless!(needs("breakpoints", "debug registers", matches!(first, Reply::Opened(_))));
    // And all the others.
    let refusal = (2..100).find_map(|place| match client.ask(&Request::Open(on_task(task, &[watched(place)]))).reply {
        Reply::Opened(_) => None,
        Reply::Refused(refusal) => Some(refusal),
        reply => panic!("{reply:?}"),
    });
    assert_eq!(refusal.unwrap().errno, 28);
    let pid = task.to_string();
    let ran = common::pmux(["watch", "0x8000/8:w", "-p", &pid]).env("PMUX_SOCKET", service.socket()).run();
    let (who, what) =
        (format!("(process {}, client ", std::process::id()), format!(") holds mem:0x8/8:w:u of task {pid}"));
    ran.bad(125, &["no debug register is left", "through pmux serve: ", &who, &what]);
}

/// Six clients that only count the hits of one address have one register, and miss nothing when the service dies: each is
/// compared with one that counts by itself.
#[test]
fn hit_counters_share_a_register() {
    // What children inherit is shared where forks can be counted.
    skip_unless!(root() && common::tracefs());
    let Some(_registers) = common::debug_registers() else { return };
    skip_unless!(common::has_free_register());
    let Some(bank) = common::bank::Bank::open() else { return };
    let (mut service, sync_dir) = (Service::start(), SyncDir::new());
    let words = bank.words("writes", &sync_dir.text("stop"));
    let mut child = pmux_testkit::marked(&mut Command::new(&words[0])).args(&words[1..]).spawn().unwrap();
    let pid = child.id().to_string();
    // It rests while others begin, so that all count the same.
    std::thread::sleep(std::time::Duration::from_millis(50));
    common::signal(&pid, "STOP");
    let watch = |name: &str, shared: &str| {
        let start = common::pmux(["watch", shared, "--count-only", "-j", "vault", "-p", &pid]);
        measure(&sync_dir, name, start.env("PMUX_SOCKET", service.socket()), &[])
    };
    let own = watch("own", "--shared=never");
    let watching: Vec<_> = (0..6).map(|number| watch(&number.to_string(), "--shared=always")).collect();
    let status = service.status();
    let kinds = status["breakpoints"].as_array().unwrap().iter();
    assert_eq!(kinds.filter_map(|kind| kind["in_use"].as_u64()).sum::<u64>(), 1, "{status:#}");
    // Where the test binary plays the bank, one more thread waits for the one that writes.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    let asked = (&status["events"]["asked"], &status["questions"]["masters"]);
    assert_eq!(asked, (&(6 * threads).into(), &threads.into()), "{status:#}");
    let works = |millis| {
        common::signal(&pid, "CONT");
        std::thread::sleep(std::time::Duration::from_millis(millis));
        common::signal(&pid, "STOP");
        // It may be on its way still.
        eventually("it rests", || {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ").then_some(())
        });
    };
    works(50);
    // Who wants to know more than a number is told that this is not to be had.
    let ran = common::pmux(["watch", "--shared=always", "vault", "-p", &pid, "--timeout", "1"]);
    ran.env("PMUX_SOCKET", service.socket()).run().says(&["can't be shared"]);
    service.kill();
    works(50);
    end(&sync_dir);
    let count = |running: Running| {
        let ran = running.wait().good();
        let lines = ran.json();
        lines.iter().find(|line| line["kind"] == "target").unwrap()["count"].as_u64().unwrap()
    };
    let own = count(own);
    assert!(own > 10, "{own}");
    for watching in watching {
        assert_eq!(count(watching), own);
    }
    std::fs::write(sync_dir.path("stop"), "").unwrap();
    common::signal(&pid, "CONT");
    child.wait().unwrap();
}
