//! What a service takes in without being started anew (docs/service.md has the table of all keys), by what clients are answered before and
//! after the reload.
//!
//! What it is: [`wishes`] asks a service for some of everything, and answers what was refused; a limit that is in force is named there.
//! Metrics, containers and recorders are reloaded in `metrics`, `run_container` and `flight_serve`, `rights.system_wide` in `serve_rights`; how
//! long queues are (`limits.queue_kib`) is not tried.
//! Read first: [`LIMITS`].

use crate::common::hostile::{as_user, open_door, refused, said_by};
use crate::common::records::{Reading, clock, names, on_cpus, on_threads, rename, subscribe};
use crate::common::service::{Service, ServiceClient, bytes_of, faults, on_task, own};
use crate::common::{PATIENCE, SyncDir, eventually};
use crate::shared::Worker;
use pmux::abi::{Attr, Sampling};
use pmux::server_api::shared::wire::{Reply, Request, Scope, Subscribe};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

const USER: u32 = 65_533;
/// No test lasts so long.
const NEVER_MS: u32 = 3_600_000;
const PINGS: u32 = 2000;

/// Which clients a limit binds.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Root,
    User,
}

/// A key of `[limits]`, which clients it binds, lines with which [`wishes`] is given all, and lines with which it is refused some by that key.
/// `EVENTS` stands for the events that it asks for.
const LIMITS: [(&str, Who, &str, &str); 15] = [
    ("clients", Who::Root, "", "clients = 3"),
    ("events_per_client", Who::Root, "", "events_per_client = 1"),
    ("events", Who::Root, "", "events = 1"),
    ("subscriptions_per_client", Who::Root, "", "subscriptions_per_client = 1"),
    ("events_per_subscription", Who::Root, "", "events_per_subscription = 1"),
    ("rings_kib_per_client", Who::Root, "", "rings_kib_per_client = 64"),
    ("rings_kib", Who::Root, "", "rings_kib = 64"),
    ("kernel_rings_kib_per_client", Who::Root, "", "kernel_rings_kib_per_client = 16"),
    ("kernel_rings_kib", Who::Root, "", "kernel_rings_kib = 16"),
    ("clients_per_user", Who::User, "", "clients_per_user = 1"),
    ("events_per_user", Who::User, "", "events_per_user = 1"),
    ("files_per_user", Who::User, "", "files_per_user = 6"),
    ("rings_kib_per_user", Who::User, "", "rings_kib_per_user = 64"),
    ("clients_for_root", Who::User, "clients = 4\nclients_for_root = 0", "clients = 4\nclients_for_root = 1"),
    ("events_for_root", Who::User, "events = EVENTS\nevents_for_root = 0", "events = EVENTS\nevents_for_root = 10000"),
];

/// Two connections; over one of them two events and two subscriptions of two events on each CPU. Answers each refusal.
fn wishes(socket: &Path, task: i32) -> Vec<String> {
    let mut refusals = Vec::new();
    let mut conns = Vec::new();
    for _ in 0..2 {
        match ServiceClient::try_connect(socket) {
            Ok(conn) => conns.push(conn),
            Err(refusal) => refusals.push(refusal.text),
        }
    }
    if let Some(conn) = conns.first_mut() {
        let sampled = [Attr { sampling: Sampling::Period(1000), ..faults() }; 2];
        let subscribe = Request::Subscribe(Subscribe {
            scope: Scope::Tasks(vec![task.cast_unsigned()]),
            attrs: sampled.iter().map(bytes_of).collect(),
            ring_bytes: 65_536,
            wake_bytes: 0,
        });
        let open = Request::Open(on_task(task, &[faults()]));
        let asked = [&open, &open, &subscribe, &subscribe].into_iter();
        refusals.extend(asked.filter_map(|request| refused(conn, request)).map(|refusal| refusal.text));
    }
    conns.into_iter().for_each(ServiceClient::leave);
    refusals
}

/// What they are for a user.
fn wishes_of_user(service: &Service) -> String {
    said_by(as_user(USER, &format!("asks-for-all:{}", service.socket().display())), service)
}

/// A role, `SOCKET`: what [`wishes`] says.
pub(crate) fn asks_for_all(socket: &str) {
    eprintln!("{}", wishes(Path::new(socket), own()).join("\n"));
}

/// A role, `SOCKET,DOOR`: sends so many requests, and waits for all answers.
pub(crate) fn pings(arguments: &str) {
    let (socket, sync_dir) = arguments.split_once(',').unwrap();
    let mut conn = ServiceClient::greeted(Path::new(socket));
    SyncDir::at(sync_dir).arrive();
    let began = Instant::now();
    for number in 0..PINGS {
        assert_eq!(conn.ask(&Request::Ping).reply, Reply::Done);
        assert!(began.elapsed() < PATIENCE, "{number} of {PINGS} are answered");
    }
    eprintln!("answered");
}

/// Has a service read another configuration, and waits until it has.
fn reload(service: &Service, text: &str) {
    let count = |service: &Service| service.log().matches("the configuration was read anew").count();
    let before = count(service);
    service.configure(text);
    eventually("it reads its configuration anew", || {
        assert!(!service.log().contains("stays as it was"), "{text}: {}", service.log());
        (count(service) > before).then_some(())
    });
}

#[test]
fn each_limit_holds_from_the_reload_on() {
    let Some(service) = Service::of_root("") else { return };
    let events = (2 + 4 * service.cpus()).to_string();
    let table = |lines: &str| format!("[limits]\n{}\n", lines.replace("EVENTS", &events));
    for (key, who, passes, refuses) in LIMITS {
        // They were connected before.
        let mut conns = [service.client(), service.client()];
        let asks = || match who {
            Who::Root => wishes(&service.socket(), own()).join("\n"),
            Who::User => wishes_of_user(&service),
        };
        for (text, is_refused) in [(passes, false), (refuses, true), (passes, false)] {
            reload(&service, &table(text));
            let said = asks();
            let named: Vec<_> = said.split("`limits.").skip(1).filter_map(|rest| rest.split('`').next()).collect();
            assert_eq!(named.contains(&key), is_refused, "{key}, {text}: {said}");
            assert!(named.iter().all(|&name| key.starts_with(name)), "another one than {key}: {said}");
            eventually("all is closed", || {
                let status = conns[0].status();
                (status["events"]["kernel"] == 0 && status["clients"]["connected"] == 2).then_some(())
            });
        }
        conns.into_iter().for_each(ServiceClient::leave);
        service.is_empty();
    }
}

#[test]
fn what_is_kept_back_for_root_changes() {
    let Some(service) = Service::of_root("[limits]\nfiles_for_root = 0\n") else { return };
    assert_eq!(wishes_of_user(&service).trim(), "");
    reload(&service, "[limits]\nfiles_for_root = 4294967295\n");
    let said = wishes_of_user(&service);
    assert!(said.contains("`limits.files_for_root`"), "{said}");
    assert_eq!(wishes(&service.socket(), own()), [""; 0], "root has them");
}

/// Requests that wait for their turn go on when there are more turns.
#[test]
fn rates_hold_for_those_who_are_connected() {
    let Some(service) = Service::of_root("") else { return };
    for key in ["requests_per_second", "requests_per_second_per_user"] {
        reload(&service, "");
        let door = open_door();
        let role = format!("pings:{},{}", service.socket().display(), door.text(""));
        reload(&service, &format!("[limits]\n{key} = 1\n"));
        let client = as_user(USER, &role);
        door.arrived_pid();
        reload(&service, "");
        assert_eq!(said_by(client, &service).trim(), "answered", "{PINGS} seconds were not waited for");
        reload(&service, &format!("[limits]\n{key} = 7\n"));
        let told = service.client().welcome.unwrap().limits.requests_per_second;
        assert_eq!(told, if key == "requests_per_second" { 7 } else { 100_000 });
    }
}

#[test]
fn new_clients_are_served_by_new_rules() {
    let Some(service) = Service::of_root("") else { return };
    let told = || {
        let welcome = service.client().welcome.unwrap();
        (welcome.rights.files, welcome.page.map(|page| (page.entries, page.refresh_ms)))
    };
    assert_eq!(told(), (true, Some((4096, 100))));
    reload(&service, "[rights]\nfiles = \"never\"\n[limits]\npage_entries = 7\n[counting]\nrefresh_ms = 50\n");
    assert_eq!(told(), (false, Some((7, 50))));
    reload(&service, "[limits]\npage_entries = 0\n");
    assert_eq!(told().1, None);

    assert_eq!(service.status()["service"]["turns"], "kernel");
    reload(&service, "[counting]\nturns = \"engine\"\n");
    assert_eq!(service.status()["service"]["turns"], "engine");
    let mut conn = service.client();
    let opened = conn.open(on_task(own(), &[faults()]));
    assert_eq!(conn.read(&opened.handles).len(), 1);
}

/// What is planned by the former times does not wait for them.
#[test]
fn times_that_become_shorter_hold_at_once() {
    let long = format!(
        "[limits]\nslow_ms = {NEVER_MS}\n[records]\npass_ms = {NEVER_MS}\n[counting]\nrefresh_ms = {NEVER_MS}\n"
    );
    let Some(service) = Service::of_kernel(&long) else { return };
    let mut reading = Reading::default();
    let mut subscription = subscribe(&service, &on_threads(vec![own()], names()));
    subscription.enable().unwrap();
    rename(&["waits".to_owned()]);
    let mut silent = service.stranger();
    // A client opens what it counts of itself without the service.
    let mut worker = Worker::start();
    let session = pmux::Session::with_service_at(service.socket()).unwrap();
    let event = pmux::Event::parse_with("page-faults:u", session.catalog()).unwrap();
    let target = pmux::Target::Threads(vec![worker.pid().parse().unwrap()]);
    let counter = pmux::Counter::open(&session, event, &target).unwrap();
    reload(&service, "[limits]\nslow_ms = 100\n[records]\npass_ms = 1\n[counting]\nrefresh_ms = 1\n");
    reading.until_named(&mut subscription);
    worker.works(50);
    let shown = || counter.read_cached().unwrap().0.value;
    eventually("what was counted is written into the page", || (shown() >= 50).then_some(()));
    silent.until_the_end();
    service.says("it hasn't said hello");
}

#[test]
fn the_rings_of_the_kernel_and_the_log_change() {
    let Some(service) = Service::of_root("") else { return };
    let bytes = || {
        let subscription = subscribe(&service, &on_cpus(clock()));
        let status = service.status();
        drop(subscription);
        service.is_empty();
        status["records"]["kernel_ring_bytes"].as_u64().unwrap()
    };
    let before = bytes();
    assert!(!service.log().contains("has connected"), "{}", service.log());
    reload(&service, "[records]\nkernel_ring_kib = 64\n[log]\nlevel = \"debug\"\n");
    assert_eq!((bytes(), before > 0), (before / 8, true));
    service.says("has connected");
}

/// The socket alone waits for the next start, and it is said so.
#[test]
fn the_socket_stays_where_it_is() {
    let Some(service) = Service::of_kernel("") else { return };
    let mode = || std::fs::metadata(service.socket()).unwrap().permissions().mode();
    let before = mode();
    reload(&service, "[socket]\nmode = \"0600\"\npath = \"/nowhere/p.sock\"\n");
    service.says("the socket stays where it is until the service is started anew");
    assert_eq!(mode(), before);
    service.client();
}
