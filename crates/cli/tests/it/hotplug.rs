//! `pmux stat -a` and `pmux record -a` while a CPU goes offline and comes back.
//!
//! It takes CPU 1 away from the whole machine for a moment, so it has to be asked for: `PMUX_TEST_HOTPLUG=1`, or `hotplug` in
//! `PMUX_REQUIRE`. Programs that do so wait for each other, by a lock file.

use crate::common;
use crate::common::hostile::{as_user, open_door, said_by};
use crate::common::recording::Content;
use crate::common::service::{Service, ServiceClient, cpu_clock, on_cpu};
use crate::common::stolen::Stolen;
use crate::common::{eventually, files, new_file, skip_unless, stat};
use crate::off_cpu;
use crate::record::Group;
use pmux::abi::{Attr, sw};
use pmux::server_api::shared::wire::{Handle, Notice, RefusalKind, Reply, Request};
use pmux_testkit::hotplug::{CpuSwitch, SWITCH};

/// Several of these keep both CPUs busy, so that the clock of each ticks; no process stays busy for ever.
const BUSY: &str = "timeout 5 sh -c 'while :; do :; done' >/dev/null 2>&1 & ";

/// Off, and on again, with some time before, between and after.
fn off_and_on() -> String {
    format!("sleep 0.2; echo 0 >{SWITCH}; sleep 0.2; echo 1 >{SWITCH}; sleep 0.4")
}

#[test]
fn a_cpu_that_comes_back_is_counted_again() {
    let Some(_switch) = CpuSwitch::take() else { return };
    let ran = stat(["-a", "-A", "-e", "cpu-clock,page-faults", "--", "sh", "-c", &off_and_on()]).run().good();
    let ran = ran.says(&[" CPU 1 was counted for ", "it was offline once, and is counted again"]);
    let clock = |cpu: &str| {
        let row = ran.err.lines().find(|line| line.starts_with(cpu) && line.contains("cpu-clock")).unwrap();
        row.split_whitespace().nth(1).unwrap().replace(',', "").parse::<f64>().unwrap()
    };
    let (always, again) = (clock("CPU0"), clock("CPU1"));
    // 0.6 of 0.8 s, and never all of it; what stopped at the gap would have 0.2.
    assert!(again > 0.5 * always && again < always - 100.0, "{again} of {always} ms\n{}", ran.err);
}

#[test]
fn a_watch_of_all_cpus_says_when_one_was_away() {
    let Some(_switch) = CpuSwitch::take() else { return };
    for options in [&["-a"][..], &["-a", "--count-only"]] {
        // An address of whatever program runs.
        let line = ["0x404060/8:w", "--", "sh", "-c", &off_and_on()].map(str::to_owned);
        let ran = common::pmux(["watch"]).args(options).args(&line).run();
        let is_watched = !ran.err.contains("debug register");
        skip_unless!(common::needs("breakpoints", "a debug register that is free", is_watched));
        ran.good().says(&[" CPU 1 was counted for ", "it was offline once, and is counted again"]);
    }
}

#[test]
fn intervals_say_when_it_was_away() {
    let Some(_switch) = CpuSwitch::take() else { return };
    let ran = stat(["-a", "-A", "-I", "100", "-e", "cpu-clock", "--", "sh", "-c", &off_and_on()]).run().good();
    let away = ran.err.matches("# CPU 1 was missed for ").count();
    assert!((2..=4).contains(&away), "only where it is missing: {}", ran.err);
    let ran = ran.says(&["it is offline\n", "it is counted again\n"]);
    let last = ran.err.lines().rfind(|line| line.contains("CPU1 ") && line.contains("cpu-clock")).unwrap();
    assert!(!last.contains("<not counted>"), "{}", ran.err);
}

#[test]
fn the_sum_and_the_fields_go_on() {
    let Some(_switch) = CpuSwitch::take() else { return };
    let ran = stat(["-a", "-j", "-v", "-e", "cpu-clock", "--", "sh", "-c", &off_and_on()]).run().good();
    assert_eq!(ran.json().len(), 1, "{}", ran.err);
    ran.says(&["CPU 1 was counted for "]);
    let tree = stat(["--tree", "-e", "task-clock", "--", "sh", "-c", &off_and_on()]).run().good();
    tree.says(&["total of 4 processes"]);
    let one = stat(["-C", "1", "-e", "cpu-clock", "--", "sh", "-c", &off_and_on()]).run().good();
    one.says(&["it was offline once, and is counted again"]);
}

#[test]
fn a_service_follows_cpus_and_tells_its_clients() {
    let Some(switch) = CpuSwitch::take() else { return };
    let service = Service::start();
    let mut client = service.client();
    let handle = client.enabled(on_cpu(1, &[cpu_clock()]));
    switch.turn("0");
    is_told_lost(&mut client, handle);
    let counted = client.read(&[handle])[0].totals;
    assert!(counted.value > 0, "what it had counted can be read");
    let refusal = client.refused(&Request::Open(on_cpu(1, &[cpu_clock()])));
    assert_eq!((refusal.kind(), refusal.errno), (RefusalKind::Kernel, 19), "{}", refusal.text);
    switch.turn("1");
    // At once: the client that asks may have heard of it before the service has.
    let again = client.enabled(on_cpu(1, &[cpu_clock()]));
    eventually("it counts", || (client.read(&[again])[0].totals.value > 0).then_some(()));
    assert_eq!(client.read(&[handle])[0].totals, counted);
}

/// Waits until a client is told that this event's CPU has gone.
fn is_told_lost(client: &mut ServiceClient, handle: Handle) {
    let told = eventually("the CPU's absence is told", || {
        client.ask(&Request::Ping);
        client.notices.pop()
    });
    assert!(matches!(told, Notice::Lost { handles, .. } if handles == [handle]));
}

/// A client asks for events of the CPU at the moment when it goes, and the service sees that before it is told.
#[test]
fn clients_are_notified_of_an_offline_cpu_once() {
    let Some(_switch) = CpuSwitch::take() else { return };
    let service = Service::start();
    let (mut client, mut conn) = (service.client(), service.client());
    let other = Attr { config: sw::PAGE_FAULTS, ..cpu_clock() };
    for _ in 0..3 {
        let handle = client.enabled(on_cpu(1, &[cpu_clock()]));
        std::thread::scope(|scope| {
            scope.spawn(|| std::fs::write(SWITCH, "0").unwrap());
            loop {
                match conn.ask(&Request::Open(on_cpu(1, &[other]))).reply {
                    Reply::Opened(opened) => conn.close(&opened.handles),
                    Reply::Refused(refusal) => break assert_eq!(refusal.errno, 19, "{}", refusal.text),
                    reply => panic!("{reply:?}"),
                }
            }
        });
        is_told_lost(&mut client, handle);
        client.close(&[handle]);
        std::fs::write(SWITCH, "1").unwrap();
        let again = eventually("it is counted again", || {
            let reply = client.ask(&Request::Open(on_cpu(1, &[cpu_clock()]))).reply;
            if let Reply::Opened(opened) = reply { Some(opened.handles) } else { None }
        });
        client.close(&again);
    }
}

#[test]
fn a_cpu_that_comes_back_goes_on_in_the_rings_of_subscribers() {
    use crate::common::records::{Reading, clock, on_cpus, subscribe};
    let Some(switch) = CpuSwitch::take() else { return };
    let service = Service::start();
    let mut one = subscribe(&service, &on_cpus(clock()));
    one.enable().unwrap();
    let mut read = Reading::default();
    // Both CPUs are busy, so that the clock of each ticks; no process stays busy for ever.
    let _busy = [(); 3].map(|()| Group::of(common::start("timeout", ["20", "sh", "-c", "while :; do :; done"])));
    let samples = |one: &mut pmux::Subscription, read: &mut Reading, of: &[u64]| {
        read.take(one);
        read.samples.iter().filter(|sample| sample.2 == 1 && of.contains(&sample.0)).count()
    };
    let before = of_cpu_1(&one);
    eventually("samples of CPU 1", || (samples(&mut one, &mut read, &before) > 20).then_some(()));
    switch.turn("0");
    eventually("its event is gone", || of_cpu_1(&one).is_empty().then_some(()));
    switch.turn("1");
    let again = eventually("it has another one", || Some(of_cpu_1(&one)).filter(|new| !new.is_empty()));
    assert_ne!(before, again);
    eventually("samples in the same ring", || (samples(&mut one, &mut read, &again) > 20).then_some(()));
    assert_eq!((read.broken_rounds, one.lives()), (0, 1));
}

/// What is opened on a CPU that comes waits for its own client's opener; nothing else does, and it is opened when that has answered.
#[test]
fn a_cpu_that_comes_back_is_recorded_for_a_user_who_stopped_an_opener() {
    // No other test has openers of this one.
    const STOPS: u32 = 65_518;
    let Some(switch) = CpuSwitch::take() else { return };
    let Some(service) = Service::of_root("") else { return };
    let sync_dir = open_door();
    switch.turn("0");
    let arguments = format!("{},{}", service.socket().display(), sync_dir.text(""));
    let mut role = as_user(STOPS, &format!("stops-its-opener-when-a-cpu-comes:{arguments}"));
    sync_dir.read("stopped");
    switch.turn("1");
    let mut good = service.client();
    // The service may see the CPU when this one asks: what waits then is not its request.
    let handles = good.open(on_cpu(1, &[cpu_clock()])).handles;
    for _ in 0..100 {
        assert_eq!(good.ask(&Request::Ping).reply, Reply::Done);
    }
    good.close(&handles);
    sync_dir.post("go");
    // Where all of that took 10 s, it is opened when the CPU comes once more.
    let mut looks = 0_u32;
    while role.0.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
        looks += 1;
        if looks.is_multiple_of(500) {
            switch.turn("0");
            switch.turn("1");
        }
    }
    let said = said_by(role, &service);
    assert!(said.contains("recorded on CPU 1"), "{said}");
    drop(good);
    service.is_empty();
}

/// The numbers of events on CPU 1.
fn of_cpu_1(one: &pmux::Subscription) -> Vec<u64> {
    let numbers = one.numbers().unwrap();
    numbers.iter().filter(|number| number.cpu == 1).map(|number| number.number).collect()
}

#[test]
fn a_cpu_that_comes_back_is_recorded_again() {
    let Some(_switch) = CpuSwitch::take() else { return };
    let (_dir, file) = new_file("x.data");
    let line = format!("{BUSY}{BUSY}{BUSY}{}; kill $(jobs -p); exit 0", off_and_on());
    let words = ["-a", "-e", "cpu-clock", "-F", "999", "--", "sh", "-c", &line];
    common::pmux(["record", "-o"]).args([&file]).args(words).run().good();
    let mut content = Content::read(&file);
    // The file knows the event that came with the CPU.
    assert_eq!(content.sampled.len(), 1, "{:?}", content.sampled);
    let mut times = content.cpus.remove(&1).unwrap();
    times.sort_unstable();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (at, gap) = gaps.iter().enumerate().max_by_key(|(_, gap)| **gap).unwrap();
    assert!(*gap > 100_000_000, "it was away for some 0.2 s, not {gap} ns");
    assert!(at > 10 && gaps.len() - at > 10, "samples before and after: {at} of {}", gaps.len());
}

#[test]
fn a_cpu_that_comes_back_sees_waits_again() {
    let Some(_switch) = CpuSwitch::take() else { return };
    let Some((sync_dir, example, file)) = off_cpu::example("all.data") else { return };
    let [fifo, ack] = ["control", "ack"].map(|name| sync_dir.text(name));
    common::start("mkfifo", [&fifo, &ack]).run().good();
    let control = format!("--control=fifo:{fifo},{ack}");
    // The second answer comes when the news of the CPU have been heard.
    let ping = format!("echo ping >{fifo}; read ok <{ack}");
    let line = format!("({}) >/dev/null; {ping}; {ping}; {} all", off_and_on(), example.display());
    for whose in [&[][..], &["-a"]] {
        let before = Stolen::now();
        let words = ["record", "--off-cpu=0", "-m", "8M", &control, "-o"];
        let mut record = common::pmux(words).args([&file]).args(whose).args(["--", "sh", "-c", &line]);
        record.command.current_dir(sync_dir.path(""));
        let ran = record.run().good();
        let stolen = before.since_ns();
        // What runs beside it on all CPUs has other names. Leaving a CPU and coming back take longer beside others.
        off_cpu::are_as_long_as_they_were(&off_cpu::waits(&file), &ran, stolen, 5_000);
    }
}

/// Where a CPU has no ring yet, waits that end there are told as sums.
#[test]
fn no_wait_is_missing_where_a_cpu_comes_back() {
    let Some(_switch) = CpuSwitch::take() else { return };
    let Some((sync_dir, example, file)) = off_cpu::example("all.data") else { return };
    let line = format!("({}) >/dev/null & {} all; wait", off_and_on(), example.display());
    let mut record = common::pmux(["record", "--off-cpu=0", "-m", "8M", "-o"]).args([&file]);
    record.command.current_dir(sync_dir.path(""));
    let before = Stolen::now();
    let ran = record.args(["--", "sh", "-c", &line]).run().good();
    let unseen = before.since_ns() + off_cpu::unseen_ns(&ran);
    off_cpu::are_all_there(&off_cpu::waits(&file), &off_cpu::truths(&ran.text()), unseen);
}

/// A program that begins on a CPU that has come, before events are open there: its name and what it maps are told when they are.
#[test]
fn what_begins_on_a_cpu_before_it_is_recorded_has_its_name() {
    let Some(switch) = CpuSwitch::take() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let file = folder.path().join("x.data");
    let busy = "printf comes-early >/proc/self/comm; kill -CONT $1; while :; do :; done";
    let early = format!("taskset 2 timeout 2 sh -c '{busy}' sh $PPID");
    // The recorder goes on even where that does not run.
    let line = format!("sleep 0.2; kill -STOP $PPID; echo 1 >{SWITCH}; {early}; kill -CONT $PPID; exit 0");
    let record = ["record", "-e", "cpu-clock", "-F", "999", "-o", file.to_str().unwrap()];
    let flight = ["flight", "-e", "cpu-clock", "-F", "999", "--at-end", "always", "-o", path];
    let lines = [&record[..], &flight].map(|words| [[words, &["-a"]].concat(), words.to_vec()]);
    for words in lines.as_flattened() {
        switch.turn("0");
        let command = common::pmux(words).args(["--", "sh", "-c", &line]).env("XDG_RUNTIME_DIR", path);
        let ran = command.run().good();
        let file = files(folder.path(), "data").remove(0);
        let samples = common::pmux(["script", "-F", "comm,ip,dso", "-i"]).args([&file]).run().good().text();
        let early = samples.lines().filter(|line| line.trim_start().starts_with("comes-early "));
        let known = early.filter(|line| !line.contains("[")).count();
        assert!(known > 20, "{words:?}: {}\n{samples}", ran.err);
        std::fs::remove_file(file).unwrap();
    }
}

/// A recorder's snapshot, and what its manifest says of CPU 1.
fn flight(arguments: &[&str], command: &str) -> (String, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let mut words = vec!["flight", "-o", directory, "--at-end", "always"];
    words.extend(arguments);
    words.extend(["--", "sh", "-c", command]);
    let ran = common::pmux(words).env("XDG_RUNTIME_DIR", directory).run().good();
    let manifest = files(folder.path(), "json").pop().unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(manifest).unwrap()).unwrap();
    let cpu = manifest["cpus"].as_array().unwrap().iter().find(|cpu| cpu["cpu"] == 1).unwrap().clone();
    (ran.err, cpu)
}

#[test]
fn a_snapshot_tells_when_a_cpu_was_away() {
    let Some(_switch) = CpuSwitch::take() else { return };
    let line = format!("{BUSY}{BUSY}{}; kill $(jobs -p); exit 0", off_and_on());
    let (said, cpu) = flight(&["-a", "-e", "cpu-clock", "-F", "999"], &line);
    let away = cpu["away"].as_array().unwrap();
    let [from, to] = ["from_ns", "to_ns"].map(|end| away[0][end].as_u64().unwrap());
    assert!(away.len() == 1 && to - from > 100_000_000, "{cpu}");
    assert!(cpu["last_ns"].as_u64().unwrap() > to, "it is recorded again: {cpu}");
    assert!(said.contains("CPU 1 away for "), "{said}");
}

/// A CPU that was not known when the events were opened: what is opened there then stands as the rest does.
#[test]
fn a_set_that_is_on_is_on_where_a_cpu_comes_for_the_first_time() {
    let Some(switch) = CpuSwitch::take() else { return };
    switch.turn("0");
    let rounds = "i=0; while [ $i -lt 20 ]; do sleep 0.01; i=$((i+1)); done";
    let line = format!("sleep 0.2; echo 1 >{SWITCH}; sleep 1.5; taskset 2 sh -c '{rounds}'");
    for (on, at_least, at_most) in [("on", 20, u64::MAX), ("off", 0, 0)] {
        let set = ["--set", "fine={context-switches/period=1/}", on];
        let (said, cpu) = flight(&[&["-e", "page-faults/period=1000000/"], &set[..]].concat(), &line);
        let samples = cpu["samples"].as_u64().unwrap();
        assert!((at_least..=at_most).contains(&samples), "{on}: {cpu}\n{said}");
        switch.turn("0");
    }
}
