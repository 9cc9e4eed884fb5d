//! Clients that ask `pmux serve` badly, too much, or for what it doesn't do; and that no other client notices.

use crate::common;
use crate::common::hostile::{self, as_user, said_by};
use crate::common::role::touch;
use crate::common::service::{Service, ServiceClient, faults, hello, on_task, own};
use crate::common::{Killed, SyncDir, eventually, kernel, needs, pmux, role, root, signal, skip_unless, stat};
use pmux::abi::{Attr, AttrFlags, EventType, Sampling};
use pmux::server_api::shared::channel::Channel;
use pmux::server_api::shared::wire::{
    Handle, Hello, NEWEST_VERSION, Notice, PACKET_BYTES, RefusalKind, Reply, Request, encode_request,
};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A user without rights.
const USER: u32 = 65_531;

#[test]
fn hostile_bytes_are_an_error_for_their_sender() {
    let Some(service) = Service::of_kernel("") else { return };
    let mut good = service.client();
    let handle = good.enabled(on_task(own(), &[faults()]));
    let ping = encode_request(1, &Request::Ping).unwrap();
    let greeting = encode_request(1, &hello()).unwrap();
    let long = vec![7; PACKET_BYTES + 1];
    let worst: [(&str, &[u8]); 7] = [
        ("nonsense", b"\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("too long", &long),
        ("nothing but a number", &ping[..1]),
        ("truncated", &greeting[..greeting.len() - 3]),
        ("too much", &[&greeting[..], &ping].concat()),
        ("no number", &[0; 12]),
        ("out of order", &ping),
    ];
    let is_refused = |mut sender: ServiceClient, (what, bytes): (&str, &[u8])| {
        assert!(sender.send(bytes), "{what}");
        let replies = sender.until_the_end();
        assert!(matches!(replies[..], [Reply::Refused(_)]), "{what}: {replies:?}");
    };
    for packet in worst {
        is_refused(service.stranger(), packet);
    }
    // The same from a client that was welcome before.
    for &packet in &worst[..6] {
        let mut known = service.client();
        known.open(on_task(own(), &[faults()]));
        is_refused(known, packet);
    }
    // An empty packet is as good as none.
    let empty = service.client();
    let _ = empty.send(&[]);
    let files = service.files();
    let mut wrong = service.stranger();
    let Request::Hello(usual) = hello() else { panic!("it is a hello") };
    let odd = Hello { oldest_version: NEWEST_VERSION + 1, newest_version: NEWEST_VERSION + 9, ..usual };
    assert_eq!(wrong.refused(&Request::Hello(odd)).kind(), RefusalKind::Version);
    touch(600, 10);
    assert!(good.read(&[handle])[0].totals.value >= 10);
    drop((wrong, empty));
    eventually("files are closed", || (service.files() <= files).then_some(()));
    assert_eq!(service.status()["events"]["asked"], 1);
}

#[test]
fn files_that_a_client_sends_do_not_arrive() {
    let Some(service) = Service::of_root("") else { return };
    let mut good = service.client();
    let said = said_by(as_user(USER, &format!("sends-files:{}", service.socket().display())), &service);
    assert!(said.contains("greeted true: "), "{said}");
    assert_eq!(good.ask(&Request::Ping).reply, Reply::Done);
    drop(good);
    service.is_empty();
}

/// The kernel takes some 40 ms for each tracepoint that is closed by its last user.
#[test]
fn closing_tracepoints_holds_up_no_answer() {
    let Some(service) = Service::of_root("") else { return };
    let folder = std::path::Path::new("/sys/kernel/tracing/events/syscalls");
    let ids = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let ids: Vec<_> = ids.filter_map(|entry| std::fs::read_to_string(entry.path().join("id")).ok()).take(150).collect();
    skip_unless!(needs("tracefs", "tracepoints of system calls in /sys/kernel/tracing", ids.len() == 150));
    let mut good = service.client();
    let list = service.folder().join("ids");
    std::fs::write(&list, ids.concat()).unwrap();
    let role = format!("leaves-tracepoints:{},{}", service.socket().display(), list.display());
    let said = said_by(as_user(USER, &role), &service);
    if said.contains("opened 0") {
        // Where the kernel lets no ordinary user count them.
        return;
    }
    // It has gone, and its events have not: there was an answer before.
    let left = eventually("it has gone", || {
        let status = good.status();
        (status["clients"]["connected"] == 1).then(|| status["events"]["kernel"].as_u64().unwrap())
    });
    assert!(left > 0, "no answer came before all were closed");
    drop(good);
    service.is_empty();
}

/// A user may stop the opener that runs as this user: the requests of this user wait, and nothing else does.
#[test]
fn a_user_that_stops_an_opener_delays_no_other() {
    // No other test has openers of this one.
    const STOPS: u32 = 65_519;
    let Some(service) = Service::of_root("") else { return };
    let sync_dir = hostile::open_door();
    let role = as_user(STOPS, &format!("stops-its-opener:{},{}", service.socket().display(), sync_dir.text("")));
    sync_dir.read("asked");
    let mut good = service.client();
    for _ in 0..100 {
        assert_eq!(good.ask(&Request::Ping).reply, Reply::Done);
    }
    // Another user has another opener.
    let said = said_by(as_user(USER, &format!("counts:{}", service.socket().display())), &service);
    assert!(said.contains("counted"), "{said}");
    sync_dir.post("go");
    let said = said_by(role, &service);
    assert!(said.contains("both were opened"), "{said}");
    drop(good);
    service.is_empty();
}

/// A client that leaves while its request waits for an opener gives its place back at once, and not when the opener is given up.
#[test]
fn a_client_that_leaves_while_its_opener_stands_has_no_place() {
    const STOPS: u32 = 65_518;
    let Some(service) = Service::of_root("") else { return };
    let sync_dir = hostile::open_door();
    let role = as_user(STOPS, &format!("leaves-its-opener:{},{}", service.socket().display(), sync_dir.text("")));
    sync_dir.read("left");
    let mut good = service.client();
    eventually("its place is free", || (good.status()["clients"]["connected"] == 1).then_some(()));
    let gone = format!("(user {STOPS}, ");
    let says_it = |line: &&str| line.contains(&gone) && line.contains("has gone");
    // The log is written behind what it tells.
    let line = eventually("it has gone", || service.log().lines().find(says_it).map(str::to_owned));
    assert!(line.contains("0 of its requests were refused"), "it was given up: {line}");
    sync_dir.post("go");
    said_by(role, &service);
    drop(good);
    service.is_empty();
}

#[test]
fn what_one_user_takes_is_not_all() {
    skip_unless!(root());
    let limits = "[limits]\nclients = 40\nclients_per_user = 12\nevents_per_client = 64\nevents = 1000\n\
                  events_per_user = 200\nrings_kib_per_user = 192\n[records]\nkernel_ring_kib = 16\n";
    let service = Service::with(limits);
    let doors = [hostile::open_door(), hostile::open_door()];
    let users = [USER, USER - 1];
    let roles = [0, 1]
        .map(|at| as_user(users[at], &format!("takes-all:{},{}", service.socket().display(), doors[at].text(""))));
    for sync_dir in &doors {
        let taken = sync_dir.read("here");
        let taken: Vec<u32> = taken.split(' ').map(|number| number.parse().unwrap()).collect();
        let [clients, events, rings] = taken[..] else { panic!("{taken:?}") };
        // Subscriptions have events as well.
        assert!(clients == 12 && events <= 200 && rings <= 3, "{clients} clients, {events} events, {rings} rings");
        assert!(events >= 64, "one client may have so much: {events}");
    }
    // Root has the rest, and a user what no other has.
    let mut root = service.client();
    root.open(on_task(own(), &vec![faults(); 64]));
    let status = root.status();
    for user in users {
        let account = status["users"].as_array().unwrap().iter().find(|account| account["user"] == user).unwrap();
        assert!(account["events"].as_u64().unwrap() <= 200 && account["clients"] == 12, "{account}");
    }
    assert_eq!(status["budget"]["events"], 200);
    for (role, sync_dir) in roles.into_iter().zip(&doors) {
        std::fs::write(sync_dir.path("leave"), "").unwrap();
        said_by(role, &service);
    }
    drop(root);
    service.is_empty();
}

/// Root's number is not root's rights: a root without capabilities, as in a container, is bound as a user is, and told as little.
#[test]
fn a_root_without_rights_is_a_user() {
    let limits =
        "[limits]\nclients = 40\nclients_per_user = 12\nevents_per_user = 200\n[records]\nkernel_ring_kib = 16\n";
    skip_unless!(root() && needs("root", "setpriv(1)", common::is_installed("setpriv")));
    let service = Service::with(limits);
    let sync_dir = hostile::open_door();
    let mut root = service.client();
    let asks = hostile::as_root_without_rights(&format!("asks-status:{}", service.socket().display()));
    let told = said_by(asks, &service);
    let told = told.lines().find_map(|line| line.strip_prefix("status ")).unwrap();
    let told: serde_json::Value = serde_json::from_str(told).unwrap();
    let users: Vec<_> = told["users"].as_array().unwrap().iter().map(|account| account["user"].as_u64()).collect();
    assert_eq!(users, [Some(u32::MAX.into())], "{told}");
    let role = format!("takes-all:{},{}", service.socket().display(), sync_dir.text(""));
    let role = hostile::as_root_without_rights(&role);
    let taken = sync_dir.read("here");
    assert_eq!(taken.split_whitespace().next(), Some("12"), "{taken}");
    let status = service.status();
    let of = |user: u64| status["users"].as_array().unwrap().iter().find(|account| account["user"] == user).cloned();
    assert_eq!(of(u32::MAX.into()).unwrap()["clients"], 12, "{status}");
    root.open(on_task(own(), &[faults()]));
    std::fs::write(sync_dir.path("leave"), "").unwrap();
    said_by(role, &service);
    drop(root);
    service.is_empty();
}

/// Subordinate numbers have no budgets of their own, also those that were given after the service began.
#[test]
fn subordinate_numbers_share_their_users_budget() {
    skip_unless!(root() && needs("subuid", "/etc/subuid", std::path::Path::new("/etc/subuid").exists()));
    let script = "printf '[limits]\\nclients_per_user = 12\\n[records]\\nkernel_ring_kib = 16\\n' >pmux.toml; : >subuid; chmod 755 .; \
                  exec unshare -m sh -c 'mount --bind subuid /etc/subuid && \
                  exec \"$0\" serve --socket p.sock --config pmux.toml 2>log' \"$0\"";
    let service = Service::from_shell(script);
    drop(service.client());
    std::fs::write(service.folder().join("subuid"), "65520:700000:10\n").unwrap();
    let takes = |user: u32| {
        let door = hostile::open_door();
        let role = as_user(user, &format!("takes-all:{},{}", service.socket().display(), door.text("")));
        let taken = door.read("here");
        (role, taken.split_whitespace().next().unwrap().to_owned(), door)
    };
    let (first, taken, door) = takes(700_000);
    assert_eq!(taken, "12");
    let (second, taken, other_door) = takes(700_001);
    assert_eq!(taken, "0", "another number of the same user");
    let status = service.status();
    let users: Vec<_> = status["users"].as_array().unwrap().iter().map(|account| account["user"].as_u64()).collect();
    assert!(users.contains(&Some(65_520)) && !users.contains(&Some(700_000)), "{status}");
    for (role, door) in [(first, door), (second, other_door)] {
        std::fs::write(door.path("leave"), "").unwrap();
        said_by(role, &service);
    }
    service.is_empty();
}

/// An answer of more than may wait for a client is written as it is read.
#[test]
fn the_state_is_told_however_long_it_is() {
    let Some(service) = Service::of_root("[limits]\nqueue_kib = 128\n") else { return };
    let mut client = service.client();
    let started = |_| {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            tell.send(own()).unwrap();
            let _ = wait.recv();
        });
        (told.recv().unwrap(), end)
    };
    let threads: Vec<_> = (0..60).map(started).collect();
    let mut asked = 0;
    for (task, _) in &threads {
        for config in 0..10 {
            let events = [faults(), Attr { config, ..faults() }];
            asked += usize::from(matches!(client.ask(&Request::Open(on_task(*task, &events))).reply, Reply::Opened(_)));
        }
    }
    let status = client.status();
    let list = status["questions"]["list"].as_array().unwrap();
    assert_eq!((list.len(), status["questions"]["masters"].as_u64().unwrap()), (asked, asked as u64));
    assert!(status.to_string().len() > 200_000, "{} bytes", status.to_string().len());
    assert_eq!(status["clients"]["list"][0]["events"], 2 * asked);
    let text = pmux(["status"]).env("PMUX_SOCKET", service.socket()).run().good().text();
    assert!(text.contains("shared counters: "), "{text}");
}

#[test]
fn what_is_not_counting_is_not_shared() {
    let Some(service) = Service::of_kernel("") else { return };
    let mut client = service.client();
    let samples = Attr { sampling: Sampling::Period(1000), ..faults() };
    let records = Attr { flags: faults().flags | AttrFlags::COMM, ..faults() };
    for attr in [samples, records] {
        let refusal = client.refused(&Request::Open(on_task(own(), &[faults(), attr])));
        assert_eq!((refusal.kind(), refusal.index), (RefusalKind::NotShared, 1), "{}", refusal.text);
    }
    // An address in the client's own memory means nothing to the service.
    let types = "/sys/bus/event_source/devices/uprobe/type";
    if let Ok(kind) = std::fs::read_to_string(types) {
        let probe = Attr { kind: EventType(kind.trim().parse().unwrap()), config1: 0x1000, ..faults() };
        assert_eq!(client.refused(&Request::Open(on_task(own(), &[probe]))).kind(), RefusalKind::NotShared);
    }
    assert_eq!(client.status()["events"]["asked"], 0);
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let Some(service) = Service::of_kernel("[limits]\nslow_ms = 2000\n") else { return };
    let mut good = service.client();
    let mut slow = service.client();
    let handles = vec![slow.open(on_task(own(), &[faults()])).handles[0]; 1000];
    let read = encode_request(9, &Request::Read { handles }).unwrap();
    // Until neither side takes anything more.
    let started = Instant::now();
    while service.status()["since_start"]["cut_off"] == 0 {
        let _ = slow.send(&read);
        assert_eq!(good.ask(&Request::Ping).reply, Reply::Done);
        assert!(started.elapsed() < Duration::from_secs(60), "{}", service.log());
    }
    let last = slow.until_the_end().pop();
    assert!(matches!(last, Some(Reply::Notice(Notice::Slow { .. }))), "{last:?}");
    drop(good);
    service.is_empty();
}

#[test]
fn a_stopped_client_stops_no_other() {
    let Some(service) = Service::of_kernel("") else { return };
    let sync_dir = SyncDir::new();
    let role = format!("holds-events:5,{},{}", service.socket().display(), sync_dir.text(""));
    let mut child = role::command(&role).stdout(Stdio::null()).spawn().unwrap();
    sync_dir.read("here");
    signal(&child.id().to_string(), "STOP");
    let mut client = service.client();
    let handle = client.enabled(on_task(own(), &[faults()]));
    touch(700, 10);
    assert!(client.read(&[handle])[0].totals.value >= 10);
    assert_eq!(service.status()["events"]["asked"], 6);
    signal(&child.id().to_string(), "KILL");
    child.wait().unwrap();
    drop(client);
    service.is_empty();
}

#[test]
fn a_client_without_hello_is_cut_off() {
    let Some(service) = Service::of_kernel("[limits]\nslow_ms = 2000\n") else { return };
    let mut stranger = service.stranger();
    let mut known = service.client();
    assert!(matches!(stranger.until_the_end()[..], [Reply::Notice(Notice::Slow { .. })]));
    assert_eq!(known.ask(&Request::Ping).reply, Reply::Done, "silence is no fault after Welcome");
}

#[test]
fn only_the_client_over_its_rate_waits() {
    let Some(service) = Service::of_kernel("[limits]\nrequests_per_second = 50\n") else { return };
    let mut fast = service.client();
    let mut other = service.client();
    let started = Instant::now();
    for number in 1..=40 {
        assert!(fast.send(&encode_request(100 + number, &Request::Ping).unwrap()));
    }
    assert_eq!(other.ask(&Request::Ping).reply, Reply::Done);
    for number in 1..=40 {
        let answer = fast.receive().unwrap();
        assert_eq!((answer.number, answer.reply), (100 + number, Reply::Done), "all are answered, in their order");
    }
    // 12 at once, and the others one each fiftieth of a second.
    assert!(started.elapsed() > Duration::from_millis(400), "{:?}", started.elapsed());
}

#[test]
fn there_are_only_so_many_clients() {
    let Some(service) = Service::of_kernel("[limits]\nclients = 3\n") else { return };
    let _clients = [service.client(), service.client(), service.client()];
    let mut one_more = service.stranger();
    let replies = one_more.until_the_end();
    assert!(matches!(&replies[..], [Reply::Refused(refusal)] if refusal.kind() == RefusalKind::Limit), "{replies:?}");
    let ran = stat(["--shared=always", "-e", "page-faults:u", "true"]).env("PMUX_SOCKET", service.socket()).run();
    ran.bad(125, &["closed the connection: as many clients as may be are connected; 3 is the most"]);
}

/// A user who may write into the folder can take the socket and its lock away, and a second service can then listen there.
#[test]
fn a_service_that_clients_do_not_find_any_more_ends() {
    skip_unless!(kernel());
    let mut first = Service::start();
    let mut client = first.client();
    let lock = first.socket().with_extension("sock.lock");
    std::fs::remove_file(first.socket()).unwrap();
    std::fs::remove_file(lock).unwrap();
    let mut second = Command::new(common::PMUX);
    second.arg("serve").arg("--socket").arg(first.socket()).stdout(Stdio::null()).stderr(Stdio::null());
    let _second = Killed(second.spawn().unwrap());
    let bye = |reply: &Reply| matches!(reply, Reply::Notice(Notice::Bye { .. }));
    assert!(client.until_the_end().iter().any(bye), "its clients are told");
    first.says("was taken away or replaced");
    assert_ne!(first.end(), 0);
    // What is there now is the second one's.
    eventually("the second one listens", || Channel::connect(&first.socket()).ok());
}

/// The service stops also where its log is not read.
#[test]
fn a_full_log_does_not_keep_the_service_from_stopping() {
    skip_unless!(kernel());
    // The pipe is filled by another process, so that not one line of the service fits.
    let script = "exec 3<>pipe; dd if=/dev/zero of=pipe bs=4096 oflag=nonblock count=1000 2>dd; \
                  exec \"$0\" serve --socket p.sock --config pmux.toml 2>&3";
    let mut service = Service::from_shell(&format!("mkfifo pipe; {script}"));
    eventually("it listens", || Channel::connect(&service.socket()).ok());
    drop(service.client());
    assert_eq!(service.stop(), 0);
}

/// A client that is refused again and again causes one line. Clients that come and go cause a few, and a sentence about the others.
#[test]
fn refusals_do_not_flood_the_log() {
    let Some(service) = Service::of_kernel("[limits]\nrequests_per_second = 1000000\n") else { return };
    let mut client = service.client();
    let wrong = Request::Read { handles: vec![Handle(4_000_000)] };
    for _ in 0..5000 {
        client.refused(&wrong);
    }
    drop(client);
    service.says("5000 of its requests were refused, the last one: ");
    assert_eq!(service.log().lines().filter(|line| line.contains("were refused, the last one")).count(), 1);
    for _ in 0..500 {
        service.client().refused(&wrong);
    }
    service.says("more lines about clients of user");
    // Those at once, then two in a second; however slow this machine is, most were left out.
    let lines = service.log().lines().filter(|line| line.contains("has gone")).count();
    assert!(lines < 400, "{lines}");
}
