//! `pmux serve` as its clients see it: how it counts, starts, stops, and what it says of itself.
//!
//! Who asks badly is in `serve_hostile.rs`, who may ask for what in `serve_rights.rs`, and everything at once, for a while, in
//! `serve_soak.rs`.

use crate::common;
use crate::common::role::{look_at, touch};
use crate::common::service::{Service, ServiceClient, cpu_clock, faults, on_cpu, on_task, own};
use crate::common::{
    Killed, SyncDir, eventually, has_pmu, kernel, needs, new_file, pmux, role, root, signal, skip_unless,
};
use pmux::abi::{Attr, AttrFlags, EventType, sw};
use pmux::server_api::shared::listener::Listener;
use pmux::server_api::shared::page::{Base, Page};
use pmux::server_api::shared::wire::{CgroupName, EventOp, Notice, OpenCgroup, RefusalKind, Reply, Request};
use std::io::Read as _;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_client_counts_through_it() {
    let Some(service) = Service::of_kernel("") else { return };
    let mut client = service.client();
    let opened = client.open(on_task(own(), &[faults()]));
    let [handle] = opened.handles[..] else { panic!("{opened:?}") };
    assert_eq!(client.read(&[handle])[0].totals.value, 0, "it is disabled when it is opened");
    client.does(handle, EventOp::Enable);
    touch(0, 100);
    client.does(handle, EventOp::Disable);
    let counted = client.read(&[handle])[0];
    assert!((100..200).contains(&counted.totals.value), "{counted:?}");
    assert!(counted.totals.enabled_ns > 0 && counted.totals.enabled_ns == counted.totals.running_ns);
    touch(100, 100);
    assert_eq!(client.read(&[handle])[0].totals, counted.totals);
    client.does(handle, EventOp::Reset);
    assert_eq!(client.read(&[handle])[0].totals.value, 0);
    client.close(&[handle]);
    assert_eq!(client.refused(&Request::Read { handles: vec![handle] }).kind(), RefusalKind::Request);
    drop(client);
    service.is_empty();
}

#[test]
fn a_group_is_opened_whole_and_read_at_one_moment() {
    let Some(service) = Service::of_kernel("") else { return };
    let mut client = service.client();
    let minor = Attr { config: sw::PAGE_FAULTS_MIN, ..faults() };
    let opened = client.open(on_task(own(), &[faults(), minor]));
    look_at(200, 50);
    client.does(opened.handles[0], EventOp::EnableGroup);
    touch(200, 50);
    let counted = client.read(&opened.handles);
    assert_eq!((counted.len(), counted[0].totals.value), (2, counted[1].totals.value));
    // A member that can't be opened leaves nothing.
    let unknown = Attr { config: 9999, ..faults() };
    let refusal = client.refused(&Request::Open(on_task(own(), &[faults(), unknown])));
    assert_eq!((refusal.kind(), refusal.index, refusal.errno), (RefusalKind::Kernel, 1, 2), "{}", refusal.text);
    assert_eq!(service.status()["events"]["asked"], 2);
    drop(client);
    service.is_empty();
}

#[test]
fn what_one_does_shows_to_no_other() {
    let Some(service) = Service::of_kernel("") else { return };
    let (mut one, mut other) = (service.client(), service.client());
    let open = || on_task(own(), &[faults()]);
    let (first, second) = (one.open(open()).handles[0], other.open(open()).handles[0]);
    assert_ne!(first, second);
    other.does(second, EventOp::Enable);
    touch(300, 50);
    one.does(first, EventOp::Enable);
    touch(350, 50);
    one.does(first, EventOp::Reset);
    one.does(first, EventOp::Disable);
    one.close(&[first]);
    touch(400, 50);
    let counted = other.read(&[second])[0].totals;
    assert!((150..250).contains(&counted.value), "{counted:?}");
    // Nor can one ask for what is another's.
    for request in [
        Request::Read { handles: vec![second] },
        Request::Close { handles: vec![second] },
        Request::Control { handle: second, op: EventOp::Disable },
    ] {
        assert_eq!(one.refused(&request).kind(), RefusalKind::Request);
    }
    assert!(other.read(&[second])[0].totals.enabled_ns > counted.enabled_ns);
}

#[test]
fn equal_questions_cost_one_counter() {
    let Some(service) = Service::of_kernel("") else { return };
    let mut clients: Vec<_> = (0..10).map(|_| service.client()).collect();
    let both = [faults(), Attr { config: sw::PAGE_FAULTS_MIN, ..faults() }];
    let handles: Vec<_> = clients.iter_mut().map(|client| client.open(on_task(own(), &both)).handles).collect();
    let status = service.status();
    assert_eq!((&status["events"]["asked"], &status["events"]["kernel"]), (&20.into(), &2.into()), "{status}");
    assert_eq!((&status["questions"]["masters"], &status["questions"]["views"]), (&1.into(), &10.into()), "{status}");
    assert_eq!(status["saved"]["files"], 18);
    for (client, handles) in clients.iter_mut().zip(&handles) {
        client.does(handles[0], EventOp::EnableGroup);
    }
    touch(800, 50);
    for (client, handles) in clients.iter_mut().zip(&handles) {
        client.does(handles[0], EventOp::DisableGroup);
    }
    let counted = clients.iter_mut().zip(&handles).map(|(client, handles)| client.read(handles)[0].totals);
    let counted: Vec<_> = counted.collect();
    // Who was enabled later and disabled later has counted what all have seen together.
    assert!(counted.iter().all(|totals| totals.value >= 50 && totals.running_ns == totals.enabled_ns), "{counted:?}");
    // The client for which it was opened leaves, and the others go on.
    clients.remove(0);
    eventually("the service sees that it has gone", || (service.status()["events"]["asked"] == 18).then_some(()));
    assert_eq!(service.status()["events"]["kernel"], 2);
    clients.clear();
    service.is_empty();
}

#[test]
fn a_passed_file_says_the_same_as_the_service() {
    let Some(service) = Service::of_root("") else { return };
    let (mut early, mut late) = (service.client(), service.client());
    let first = early.enabled(on_cpu(0, &[cpu_clock()]));
    std::thread::sleep(Duration::from_millis(5));
    let served = late.welcome.as_ref().unwrap().page.unwrap();
    let page = Page::map(late.page.as_ref().unwrap(), served.entries).unwrap();
    let mut answer = late.ask(&Request::Open(on_cpu(0, &[cpu_clock()])));
    let Reply::Opened(opened) = answer.reply else { panic!("{:?}", answer.reply) };
    let (handle, entry) = (opened.handles[0], opened.entries[0]);
    let [described] = &opened.files[..] else { panic!("{opened:?}") };
    let mut file = std::fs::File::from(answer.files.pop().unwrap());
    assert!(matches!(page.read(entry, handle).unwrap().entry.base, Base::Stopped(totals) if totals.value == 0));
    late.does(handle, EventOp::Enable);
    for _ in 0..20 {
        let before = late.read(&[handle])[0].totals;
        let Base::File(number, less) = page.read(entry, handle).unwrap().entry.base else { panic!("no file") };
        assert_eq!((number, described.values), (described.number, 1));
        let mut words = [0_u8; 24];
        file.read_exact(&mut words).unwrap();
        let word = |at: usize| u64::from_ne_bytes(words[at * 8..at * 8 + 8].try_into().unwrap());
        let value = word(0).wrapping_sub(less.value);
        let enabled_ns = word(1).wrapping_sub(less.enabled_ns);
        let after = late.read(&[handle])[0].totals;
        assert!((before.value..=after.value).contains(&value), "{before:?} {value} {after:?}");
        assert!((before.enabled_ns..=after.enabled_ns).contains(&enabled_ns));
        // What the other one does doesn't matter.
        early.does(first, EventOp::Reset);
    }
    late.does(handle, EventOp::Reset);
    let Base::File(_, less) = page.read(entry, handle).unwrap().entry.base else { panic!("no file") };
    assert!(less.value > 0);
    late.does(handle, EventOp::Disable);
    let stands = late.read(&[handle])[0].totals;
    assert_eq!(page.read(entry, handle).unwrap().entry.base, Base::Stopped(stands));
}

#[test]
fn its_state_is_a_page_or_json() {
    let Some(service) = Service::of_kernel("") else { return };
    let mut client = service.client();
    client.enabled(on_task(own(), &[faults()]));
    let socket = service.socket();
    let socket = socket.to_str().unwrap();
    let page = pmux(["status", "--socket", socket]).run().good().text();
    for part in [
        "1 requested, 1 open in the kernel",
        "clients: 2",
        "page-faults:u of task",
        "shared counters: 1, for 1 request\n",
    ] {
        assert!(page.contains(part), "{part}:\n{page}");
    }
    let json = pmux(["status", "-j"]).env("PMUX_SOCKET", socket).run().good().document();
    assert_eq!(json["events"]["asked"], 1);
    let line = &json["counters"][0];
    assert_eq!((&line["pmu"], &line["wanted"], &line["in_use"]), (&"software".into(), &1.into(), &1.into()), "{json}");
    assert!(line["free"].is_null(), "of these there are always enough: {json}");
    // As a job in the background of a script is started.
    let script = "trap '' INT; exec \"$0\" status -j --watch=1 --socket \"$1\"";
    let watching = common::start("sh", ["-c", script, common::PMUX, socket]).spawn();
    std::thread::sleep(Duration::from_millis(1200));
    watching.signal("INT");
    let watched = watching.wait();
    assert_eq!((watched.code(), watched.text().lines().count() >= 2), (128 + 2, true), "{}", watched.text());
    drop(service);
    pmux(["status", "--socket", socket]).run().bad(1, &["no sharing service", socket]);
}

#[test]
fn it_tells_how_many_counters_are_free() {
    skip_unless!(root() && needs("pmu", "a hardware PMU", has_pmu()));
    // Also where the kernel takes the turns, as it does where nothing is said.
    let service = Service::start();
    let mut client = service.client();
    let cycles = Attr { kind: EventType::HARDWARE, ..Attr::default() };
    client.enabled(on_cpu(0, &[cycles]));
    let line = |client: &mut ServiceClient| client.status()["counters"][0].clone();
    let first = line(&mut client);
    let free = first["free"].as_u64().unwrap();
    assert_eq!((first["cpu"].as_u64(), first["in_use"].as_u64()), (Some(0), Some(1)), "{first}");
    let instructions = Attr { config: 1, ..cycles };
    client.enabled(on_cpu(0, &[instructions]));
    let second = line(&mut client);
    assert_eq!((second["in_use"].as_u64(), second["free"].as_u64()), (Some(2), Some(free - 1)), "{second}");
}

#[test]
fn turns_are_taken_where_counters_run_out() {
    skip_unless!(kernel() && needs("pmu", "a hardware PMU", has_pmu()));
    let service = Service::with("[counting]\nturns = \"engine\"\n");
    let mut client = service.client();
    let user = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    let event = |kind, config| Attr { kind, config, flags: user, ..Attr::default() };
    // More questions than any PMU has counters; those that this one doesn't know are left out.
    let generic = (0..10).map(|config| event(EventType::HARDWARE, config));
    let raw = (0..20).map(|umask| event(EventType::RAW, 0xc0 | umask << 8));
    let mut handles = Vec::new();
    for attr in generic.chain(raw) {
        match client.ask(&Request::Open(on_task(own(), &[attr]))).reply {
            Reply::Opened(opened) => handles.push(opened.handles[0]),
            Reply::Refused(refusal) => assert_eq!(refusal.kind(), RefusalKind::Kernel, "{}", refusal.text),
            other => panic!("{other:?}"),
        }
    }
    skip_unless!(needs("pmu", "so many events of the PMU", handles.len() > 16));
    for &handle in &handles {
        client.does(handle, EventOp::Enable);
    }
    let counted = eventually("all clients have had a turn", || {
        std::hint::black_box((0..1_000_000_u64).sum::<u64>());
        let counted = client.read(&handles);
        counted.iter().all(|moment| moment.totals.running_ns > 0).then_some(counted)
    });
    let shares: Vec<_> =
        counted.iter().map(|moment| moment.totals.running_ns as f64 / moment.totals.enabled_ns as f64).collect();
    assert!(shares.iter().any(|&share| share < 0.9), "{shares:?}");
    let status = client.status();
    assert!(status["rooms"][0]["counters"].as_u64().is_some_and(|counters| counters > 0), "{status}");
    let events =
        status["questions"]["list"].as_array().unwrap().iter().flat_map(|question| {
            question["events"].as_array().unwrap().iter().filter_map(|event| event["why"].as_str())
        });
    assert!(events.clone().all(|why| why.contains("in step")) && events.count() > 0, "{status}");
    drop(client);
    service.is_empty();
}

#[test]
fn the_page_says_what_was_counted() {
    let Some(service) = Service::of_kernel("[counting]\nrefresh_ms = 1\n") else { return };
    let mut client = service.client();
    let served = client.welcome.as_ref().unwrap().page.unwrap();
    let page = Page::map(client.page.as_ref().unwrap(), served.entries).unwrap();
    let opened = client.open(on_task(own(), &[faults()]));
    let (handle, entry) = (opened.handles[0], opened.entries[0]);
    assert_eq!(page.cached(entry, handle).unwrap().totals.value, 0);
    client.does(handle, EventOp::Enable);
    touch(500, 100);
    let seen = eventually("the page is written", || page.cached(entry, handle).filter(|seen| seen.totals.value >= 100));
    assert!(seen.totals.value <= client.read(&[handle])[0].totals.value);
    client.close(&[handle]);
    assert_eq!(page.cached(entry, handle), None);
}

#[test]
fn a_killed_client_leaves_nothing() {
    let Some(service) = Service::of_kernel("") else { return };
    let before = service.files();
    let sync_dir = SyncDir::new();
    let role = format!("holds-events:20,{},{}", service.socket().display(), sync_dir.text(""));
    let child = Killed(role::command(&role).stdout(Stdio::null()).spawn().unwrap());
    sync_dir.read("here");
    assert_eq!(service.status()["events"]["asked"], 20);
    drop(child);
    service.is_empty();
    eventually("files are closed", || (service.files() <= before).then_some(()));
}

#[test]
fn a_service_that_was_killed_is_followed_by_another() {
    let Some(mut service) = Service::of_kernel("") else { return };
    let mut client = service.client();
    let epoch = client.welcome.as_ref().unwrap().epoch;
    client.open(on_task(own(), &[faults()]));
    service.kill();
    assert!(client.until_the_end().is_empty());
    service.start_again();
    let mut client = service.client();
    assert_ne!(client.welcome.as_ref().unwrap().epoch, epoch);
    assert_eq!(client.status()["events"]["asked"], 0);
    client.open(on_task(own(), &[faults()]));
}

#[test]
fn two_at_one_place_are_one_too_many() {
    let Some(service) = Service::of_kernel("") else { return };
    let socket = service.socket();
    let ran = pmux(["serve", "--socket", socket.to_str().unwrap()]).run();
    let who = format!("process {}", service.pid());
    ran.bad(1, &["the service can't start", &who, "listens at"]);
    service.client();
}

#[test]
fn a_failed_listen_is_explained() {
    skip_unless!(kernel());
    let folder = tempfile::tempdir().unwrap();
    let serve = |path: &std::path::Path| pmux(["serve", "--socket", path.to_str().unwrap()]).run();
    let missing = folder.path().join("missing/p.sock");
    serve(&missing).bad(1, &["the service can't start", "missing/p.sock", "no such file"]);
    std::fs::write(folder.path().join("file"), "kept").unwrap();
    serve(&folder.path().join("file")).bad(1, &["no socket"]);
    serve(&folder.path().join("file/p.sock")).bad(1, &["not a directory"]);
    serve(std::path::Path::new("/proc/p.sock")).bad(1, &["/proc/p.sock"]);
    serve(&folder.path().join("long".repeat(40))).bad(1, &["107 bytes"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("file")).unwrap(), "kept");
}

#[test]
fn a_configuration_is_checked() {
    let (_dir, path) = new_file("pmux.toml");
    let file = path.to_str().unwrap();
    let check = || pmux(["serve", "--check", "--config", file]).run();
    check().bad(1, &["pmux.toml", "No such file"]);
    std::fs::write(&path, "[limits]\nclients = 7\nclient = 8\n").unwrap();
    check().bad(1, &["pmux.toml", "line 3", "unknown field `client`"]);
    std::fs::write(&path, "[limits]\nclient = 7\nclients = 0\n[rights]\nsystem_wide = [\"nosuch\"]\n").unwrap();
    check().bad(1, &["pmux.toml: line 2,", "pmux.toml: line 3: `limits.clients`", "there is no group `nosuch`"]);
    pmux(["serve", "--config", file]).run().bad(1, &["line 2", "and 1 more: `pmux serve --check` prints all"]);
    std::fs::write(&path, "[limits]\nclients = 0\n").unwrap();
    check().bad(1, &["pmux.toml: line 2: `limits.clients` is 0"]);
    std::fs::write(&path, "[metrics]\nevents = [\"page-faults\", \"page-fautls\"]\n").unwrap();
    check().bad(1, &["pmux.toml: `metrics.events`", "page-fautls", "did you mean page-faults"]);
    std::fs::write(&path, "[rights]\nsystem_wide = [\"no-such-group\"]\n").unwrap();
    check().bad(1, &["pmux.toml", "no-such-group"]);
    std::fs::write(&path, "[limits]\nclients = 7\n").unwrap();
    assert!(!check().good().says(&["pmux.toml is right"]).err.contains("systemctl"));
    std::fs::write(&path, "[metrics]\nlisten = \"127.0.0.1:0\"\n[rights]\nsystem_wide = [\"root\"]\n").unwrap();
    check().good().says(&["pmux.toml is right", "systemctl enable --now pmux.service"]);
    // Another place on the command line is looked at as well.
    let elsewhere = |place| pmux(["serve", "--check", "--config", file, "--metrics", place]).run();
    elsewhere("192.0.2.1:9464").bad(1, &["192.0.2.1:9464 can be reached from outside", "metrics.token_file"]);
    elsewhere("127.0.0.1:9464").good();
    std::fs::write(&path, "[metrics]\ntoken_file = \"/nowhere/token\"\n").unwrap();
    check().good();
    elsewhere("192.0.2.1:9464").bad(1, &["`metrics.token_file`: /nowhere/token"]);
    std::fs::write(&path, "[socket]\nmode = 1\n").unwrap();
    pmux(["serve", "--config", file]).run().bad(1, &["line 2", "mode"]);
}

#[test]
fn it_stops_when_it_is_told_to() {
    let Some(mut service) = Service::of_kernel("") else { return };
    let mut client = service.client();
    client.open(on_task(own(), &[faults()]));
    // Those that looked whether it listens are told as well, until it has seen them go.
    eventually("one client is left", || (client.status()["clients"]["connected"] == 1).then_some(()));
    assert_eq!(service.stop(), 0);
    assert!(matches!(client.until_the_end()[..], [Reply::Notice(Notice::Bye { .. })]));
    assert!(!service.socket().exists(), "its socket went with it");
    assert!(service.log().contains("clients that were told: 1"), "{}", service.log());
}

#[test]
fn it_reads_its_configuration_anew() {
    let Some(service) = Service::of_kernel("[limits]\nevents_per_client = 2\n") else { return };
    let mut client = service.client();
    let two = on_task(own(), &[faults(), faults()]);
    let opened = client.open(two.clone());
    assert_eq!(client.refused(&Request::Open(two.clone())).kind(), RefusalKind::Limit);
    service.configure("[limits]\nevents_per_client = 4\n");
    service.says("read anew");
    client.open(two.clone());
    // One that is wrong changes nothing.
    service.configure("[limits]\nevents_per_client = many\n");
    service.says("stays as it was");
    assert!(service.log().contains("line 2"), "{}", service.log());
    for wrong in ["[metrics]\nevents = [\"nosuchevent\"]\n", "[socket]\ngroup = \"nosuchgroup\"\n"] {
        service.configure(wrong);
        service.says(if wrong.contains("event") { "nosuchevent" } else { "nosuchgroup" });
        let file = service.folder().join("pmux.toml");
        pmux(["serve", "--check", "--config", file.to_str().unwrap()]).run().bad(1, &["nosuch"]);
    }
    assert_eq!(client.refused(&Request::Open(two)).kind(), RefusalKind::Limit);
    assert_eq!(client.read(&opened.handles).len(), 2, "what is open stays open");
}

#[test]
fn a_socket_can_be_handed_over() {
    skip_unless!(kernel());
    let (_dir, path) = new_file("p.sock");
    let listener = Listener::bind(&path, 0o600).unwrap();
    let socket = listener.as_fd().try_clone_to_owned().unwrap();
    let line = format!("exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec '{}' serve", common::PMUX);
    let mut child = Command::new("sh").args(["-c", &line]).stdin(socket).stderr(Stdio::null()).spawn().unwrap();
    let mut client = ServiceClient::greeted(&path);
    client.open(on_task(own(), &[faults()]));
    signal(&child.id().to_string(), "TERM");
    assert!(child.wait().unwrap().success());
    assert!(path.exists(), "it belongs to its creator");
}

#[test]
fn a_task_that_has_gone_is_gone() {
    let Some(service) = Service::of_kernel("") else { return };
    let mut client = service.client();
    let child = Killed(Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = i32::try_from(child.0.id()).unwrap();
    let handle = client.enabled(on_task(pid, &[faults()]));
    drop(child);
    client.read(&[handle]);
    let refusal = client.refused(&Request::Open(on_task(pid, &[faults()])));
    assert_eq!((refusal.kind(), refusal.errno), (RefusalKind::Kernel, 3), "{}", refusal.text);
    client.close(&[handle]);
}

#[test]
fn cpus_are_counted_and_their_absence_told() {
    let Some(service) = Service::of_root("") else { return };
    let mut client = service.client();
    let handle = client.enabled(on_cpu(0, &[cpu_clock()]));
    eventually("the CPU's clock goes", || (client.read(&[handle])[0].totals.value > 0).then_some(()));
    let refusal = client.refused(&Request::Open(on_cpu(9999, &[cpu_clock()])));
    assert_eq!((refusal.kind(), refusal.errno), (RefusalKind::Kernel, 19), "{}", refusal.text);
}

#[test]
fn cgroups_are_counted_by_their_folders() {
    let Some(service) = Service::of_root("") else { return };
    let folder = std::path::Path::new("/sys/fs/cgroup");
    skip_unless!(needs("cgroup", "cgroup v2 on /sys/fs/cgroup", folder.join("cgroup.procs").exists()));
    let mut client = service.client();
    let mut open = on_cpu(0, &[cpu_clock()]);
    open.narrowing = pmux::server_api::shared::wire::Narrowing::Cgroup;
    let named = |place: &std::path::Path, path: &str| {
        let seen = std::fs::metadata(place).unwrap();
        let cgroup = CgroupName { device: seen.dev(), inode: seen.ino(), path: path.to_owned() };
        Request::OpenCgroup(OpenCgroup { open: open.clone(), cgroup })
    };
    // Its number says which it is, whatever it is called where the client is.
    for path in ["", "elsewhere/with/another/name"] {
        let answer = client.ask(&named(folder, path));
        assert!(matches!(answer.reply, Reply::Opened(_)), "{:?}", answer.reply);
    }
    assert_eq!(client.status()["cgroups"], 1, "one cgroup is one, however often it is named");
    let answer = client.ask(&named(std::path::Path::new("/proc"), ""));
    assert!(matches!(answer.reply, Reply::Refused(refusal) if refusal.errno == 9));
    let refusal = client.refused(&Request::Open(open.clone()));
    assert_eq!((refusal.kind(), refusal.errno), (RefusalKind::NotShared, 95), "{}", refusal.text);
    let status = client.status();
    assert_eq!(status["events"]["asked"], 2);
    drop(client);
    service.is_empty();
    assert_eq!(service.status()["cgroups"], 0);
}

/// Calls of the service that are not in systemd's group for services: `open_by_handle_at` opens cgroups by their numbers.
#[test]
fn the_unit_allows_the_calls_of_the_service() {
    let unit = include_str!("../../../../dist/systemd/pmux.service");
    let filter = unit.lines().find_map(|line| line.strip_prefix("SystemCallFilter=")).unwrap();
    let allowed: Vec<_> = filter.split(' ').collect();
    for call in ["@system-service", "perf_event_open", "bpf", "open_by_handle_at"] {
        assert!(allowed.contains(&call), "{call} is not in {filter}");
    }
    assert!(unit.contains("\nSystemCallErrorNumber=EPERM\n"), "a call that was forgotten ends the service");
}

#[test]
fn the_manifest_of_kubernetes_is_right() {
    skip_unless!(common::program("kubernetes-validate"));
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/kubernetes/pmux.yaml");
    common::start("kubernetes-validate", ["--strict", manifest]).run().good();
}

#[test]
fn the_units_of_systemd_are_right() {
    skip_unless!(common::program("systemd-analyze"));
    let folder = tempfile::tempdir().unwrap();
    let units = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/systemd");
    // A template has no name of its own.
    let names = ["pmux.service", "pmux.socket", "pmux-container@.service", "pmux-container.socket"];
    for name in names {
        let text = std::fs::read_to_string(units.join(name)).unwrap().replace("/usr/bin/pmux", common::PMUX);
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let files = names.map(|name| folder.path().join(name));
    let ran = Command::new("systemd-analyze").arg("verify").args(&files).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    // Of other units of the machine it may say what it likes.
    let ours: Vec<_> = said.lines().filter(|line| line.contains("pmux")).collect();
    assert!(ours.is_empty(), "{said}");
}

/// Those that know nothing of the service, with what they count where that may be looked at.
#[test]
fn others_that_hold_events_are_listed() {
    let Some(service) = Service::of_kernel("") else { return };
    let sync_dir = SyncDir::new();
    let words = role::words(&format!("opens-later:{}", sync_dir.text("")));
    let holder = common::start(&words[0], &words[1..]).spawn();
    let process = sync_dir.arrived_pid();
    let others = |socket: &std::path::Path| {
        let status = pmux(["status", "--others", "-j", "--socket"]).args([socket]).run().good().document();
        let own = i64::from(service.pid());
        let all = status["others"]["list"].as_array().unwrap().clone();
        assert!(all.iter().all(|other| status["service"].is_null() || other["process"] != own), "{status}");
        let held = all.into_iter().find(|other| other["process"] == process).unwrap_or_else(|| panic!("{status}"));
        assert_eq!(held["events"], 1, "{status}");
        if let Some(counts) = held["counts"].as_array() {
            assert_eq!((&counts[0]["event"], &counts[0]["cpus"]), (&"page-faults:u".into(), &serde_json::Value::Null));
            assert!(std::path::Path::new(&format!("/proc/{process}/task/{}", counts[0]["task"])).exists(), "{status}");
        }
    };
    others(&service.socket());
    // They are there without a service as well.
    others(&service.folder().join("none"));
    let none = pmux(["status", "--others", "--socket"]).args([service.folder().join("none")]).run().good();
    none.says(&["no sharing service"]);
    sync_dir.post("go");
    holder.wait();
}
