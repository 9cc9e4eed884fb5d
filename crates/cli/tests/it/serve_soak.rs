//! Everything that clients do to `pmux serve`, at once and for a while; then nothing may be left.
//!
//! What it is: clients come, ask, go, are killed, and misbehave, as a seed says. `PMUX_SOAK_SECONDS` (10) says for how long,
//! `PMUX_SOAK_SEED` which course each of them takes; what others do meanwhile is not in the seed.
//!
//! **Invariant:** a client that behaves gets right answers all the time.

use crate::common;
use crate::common::mixture;
use crate::common::records::{Reading, clock, names, on_cpus, on_threads, rename};
use crate::common::service::{Service, ServiceClient, faults, hello, on_cpu, on_task, own};
use crate::common::{Killed, SyncDir, eventually, folder_with, kernel, role, root, set_mode, skip_unless};
use fastrand::Rng;
use pmux::StreamRequest;
use pmux::Subscription;
use pmux::abi::{Attr, EventType, Sampling, sw};
use pmux::server_api::shared::wire::{EventOp, Handle, PACKET_BYTES, Reply, Request, Scope, Subscribe, encode_request};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 6;
/// More memory than this is not what a service needs for being asked.
const GROWTH_KIB: u64 = 16 * 1024;
/// Who floods is cut off for the bytes that wait for it: a time would also hit those that the machine has kept waiting.
const CONFIG: &str = "[limits]\nslow_ms = 60000\nqueue_kib = 128\nevents_per_client = 500\n[counting]\nrefresh_ms = 5\nturns = \"engine\"\n[log]\nlevel = \"warning\"\n";

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn nothing_is_left_of_anything() {
    skip_unless!(kernel());
    let seed = number("PMUX_SOAK_SEED", 1);
    let seconds = number("PMUX_SOAK_SECONDS", 10);
    println!("PMUX_SOAK_SEED={seed} PMUX_SOAK_SECONDS={seconds}");
    let service = Service::with(CONFIG);
    // What is made once is there before the first look.
    round(&service, &mut Rng::with_seed(seed), 200);
    service.is_empty();
    let before = (service.files(), service.memory_kib());
    let until = Instant::now() + Duration::from_secs(seconds);
    let (over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (service, over, rounds) = (&service, &over, &rounds);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed ^ client << 32);
                while !over.load(Ordering::Relaxed) {
                    match rng.u32(..24) {
                        20 | 21 => subscribes(service, &mut rng),
                        22 => dies_subscribed(service, &mut rng),
                        0 => killed(service, &mut rng),
                        1 => floods(service, &mut rng),
                        2 => nonsense(service, &mut rng),
                        3 => silent(service),
                        _ => round(service, &mut rng, 40),
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // A client that behaves is served all the time.
        let mut steady = service.client();
        let handle = steady.enabled(on_task(own(), &[faults()]));
        let mut counted = 0;
        while Instant::now() < until {
            role::touch(0, 1);
            let now = steady.read(&[handle])[0].totals;
            assert!(now.value >= counted && now.running_ns == now.enabled_ns, "{now:?} after {counted}");
            counted = now.value;
            std::thread::sleep(Duration::from_millis(10));
        }
        over.store(true, Ordering::Relaxed);
    });
    service.is_empty();
    let files = eventually("files are closed", || Some(service.files()).filter(|files| *files <= before.0));
    let memory = service.memory_kib();
    let status = service.status();
    println!(
        "{} courses; {}; files {} and {files}, memory {} and {memory} KiB",
        rounds.load(Ordering::Relaxed),
        status["since_start"],
        before.0,
        before.1
    );
    assert_eq!((&status["questions"]["masters"], &status["cgroups"]), (&0.into(), &0.into()));
    assert!(memory < before.1 + GROWTH_KIB, "{} KiB became {memory}", before.1);
}

/// Users without rights, each of which does all attacks.
const HOSTILE: [u32; 3] = [65_521, 65_522, 65_523];
const HONEST: usize = 20;
/// Pages that a counted program touches.
const TOUCHED: u64 = 100;

/// Twenty clients count exactly, and root is answered, while three users do what they can against it. `PMUX_SOAK_P99_MS`, where it is
/// set, is how long root may wait for one answer in a hundred: a busy machine says nothing about the service, so without it that is
/// only printed.
#[test]
fn honest_clients_count_exactly_beside_hostile_users() {
    skip_unless!(root());
    let seconds = number("PMUX_SOAK_SECONDS", 10);
    let seed = number("PMUX_SOAK_SEED", 1);
    let service = Service::with("[log]\nlevel = \"warning\"\n");
    let folder = folder_with(0o755);
    let (program, set_user_id) = (folder.path().join("attacker"), folder.path().join("set-user-id"));
    role::copy(&program);
    role::copy(&set_user_id);
    set_mode(&set_user_id, 0o4755);
    service.is_empty();
    let before = (service.files(), service.memory_kib());
    let mut attackers: Vec<(&str, Killed)> = Vec::new();
    for (index, &user) in HOSTILE.iter().enumerate() {
        for name in mixture::ALL {
            let socket = service.socket();
            let seed = seed + index as u64;
            let role = format!("mixture:{name},{seed},{},{}", socket.display(), set_user_id.display());
            let mut command = role::command_of(&program, &role);
            command.uid(user).gid(user).current_dir("/").stdout(Stdio::null());
            attackers.push((name, Killed(command.spawn().unwrap())));
        }
    }
    let (over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut waits: Vec<Duration> = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..HONEST {
            let (service, over, rounds) = (&service, &over, &rounds);
            scope.spawn(move || {
                let mut client = service.client();
                while !over.load(Ordering::Relaxed) {
                    counts_as_the_kernel_does(&mut client);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut steady = service.client();
        while Instant::now() < until {
            let asked = Instant::now();
            assert_eq!(steady.ask(&Request::Ping).reply, Reply::Done);
            waits.push(asked.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        // A client that comes now is taken in, too.
        service.status();
        over.store(true, Ordering::Relaxed);
    });
    for (name, attacker) in &mut attackers {
        let ended = attacker.0.try_wait().unwrap();
        assert!(ended.is_none(), "the attack {name} ended by itself: {ended:?}");
    }
    drop(attackers);
    service.is_empty();
    let files = eventually("files are closed", || Some(service.files()).filter(|files| *files <= before.0));
    waits.sort();
    let p99 = waits[waits.len() * 99 / 100];
    println!(
        "{} rounds; root waits p50 {:?}, p99 {p99:?}, at most {:?}; files {} and {files}, memory {} and {} KiB",
        rounds.load(Ordering::Relaxed),
        waits[waits.len() / 2],
        waits[waits.len() - 1],
        before.0,
        before.1,
        service.memory_kib()
    );
    assert!(rounds.load(Ordering::Relaxed) >= HONEST as u64);
    let most = number("PMUX_SOAK_P99_MS", u64::MAX);
    assert!(p99.as_millis() <= u128::from(most), "{p99:?}");
}

/// Counts a program through the service and beside it, while that touches pages. Where it has no fault between the one call and the next,
/// all three counts are equal.
fn counts_as_the_kernel_does(client: &mut ServiceClient) {
    let sync_dir = SyncDir::new();
    let mut command = role::command(&format!("behind:{TOUCHED},{}", sync_dir.text("")));
    let child = Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    sync_dir.read("here");
    let task = role_thread(child.0.id());
    let session = pmux::Session::with_backend(pmux::BackendChoice::Kernel).unwrap();
    let event = pmux::Event::parse_with("page-faults:u", session.catalog()).unwrap();
    let place = pmux::exact::ExactTarget::Task(task);
    let direct = session.open_exactly(&[event.clone(), event], place, pmux::exact::GroupMode::default()).unwrap();
    let handle = client.open(on_task(task, &[faults()])).handles[0];
    // It looks for a file and sleeps until it is told to go, but a kernel that is short of memory may take a page of it meanwhile: one
    // counts around the service's event, and one within it.
    let (around, within) = (0, 1);
    direct.enable(around).unwrap();
    client.does(handle, EventOp::Enable);
    direct.enable(within).unwrap();
    sync_dir.post("go");
    sync_dir.read("done");
    let within = direct.read(within).unwrap().value;
    let served = client.read(&[handle])[0].totals;
    let around = direct.read(around).unwrap().value;
    // The kernel tells the two times of an event one after the other.
    assert!(served.running_ns <= served.enabled_ns, "{served:?}");
    assert!(TOUCHED <= within && (within..=around).contains(&served.value), "{within}, {served:?}, {around}");
    client.close(&[handle]);
    sync_dir.post("leave");
}

/// The thread of a process of this binary that plays the role: the harness has the first one.
fn role_thread(pid: u32) -> i32 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut tids = threads.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap());
    tids.find(|tid| *tid != pid.cast_signed()).unwrap()
}

/// Comes, asks for this and that, and goes, with or without saying so.
fn round(service: &Service, rng: &mut Rng, steps: u32) {
    let mut client = service.client();
    let mut held: Vec<Vec<Handle>> = Vec::new();
    for _ in 0..steps {
        let group = if held.is_empty() { 0 } else { rng.usize(..held.len()) };
        let of = held.get(group).cloned();
        match (rng.u32(..13), of) {
            (0..4, _) | (_, None) => held.extend(open(&mut client, rng)),
            (4, Some(handles)) => {
                client.close(&handles[..1]);
                held.remove(group);
            }
            (5, Some(handles)) => assert_eq!(client.read(&handles).len(), handles.len()),
            (6, Some(handles)) => {
                // An event that was refused by its counter says so when it is read.
                let op = if rng.bool() { EventOp::EnableGroup } else { EventOp::DisableGroup };
                client.does(handles[0], op);
            }
            (7, Some(handles)) => client.does(handles[rng.usize(..handles.len())], EventOp::Reset),
            (8, Some(handles)) => client.does(handles[rng.usize(..handles.len())], EventOp::Disable),
            (9, Some(handles)) => {
                let renewed = client.ask(&Request::Renew { handle: handles[0] }).reply;
                assert!(matches!(renewed, Reply::Opened(_)), "{renewed:?}");
            }
            (10, Some(_)) => {
                client.status();
            }
            (11, Some(_)) => {
                let weight = rng.u16(..6);
                let reply = client.ask(&Request::Weigh { weight }).reply;
                assert!(matches!(&reply, Reply::Refused(refusal) if refusal.text.contains("no weights")), "{reply:?}");
            }
            (_, Some(_)) => {
                let strange = Handle(rng.u64(..));
                assert!(matches!(client.ask(&Request::Read { handles: vec![strange] }).reply, Reply::Refused(_)));
            }
        }
    }
}

fn open(client: &mut ServiceClient, rng: &mut Rng) -> Option<Vec<Handle>> {
    let minor = Attr { config: sw::PAGE_FAULTS_MIN, ..faults() };
    let clock = Attr { kind: EventType::SOFTWARE, config: sw::TASK_CLOCK, ..faults() };
    let all = [faults(), minor, clock];
    let attrs: Vec<_> = (0..rng.usize(1..4)).map(|_| all[rng.usize(..3)]).collect();
    let open = match rng.u32(..4) {
        0 => on_cpu(0, &attrs),
        1 => on_task(std::process::id().cast_signed(), &attrs),
        // No task, or a task that has just gone.
        2 if rng.u32(..8) == 0 => on_task(rng.i32(2..4_000_000), &attrs),
        _ => on_task(own(), &attrs),
    };
    match client.ask(&Request::Open(open)).reply {
        Reply::Opened(opened) => Some(opened.handles),
        Reply::Refused(_) => None,
        other => panic!("{other:?}"),
    }
}

/// Holds events until it is killed.
fn killed(service: &Service, rng: &mut Rng) {
    let sync_dir = SyncDir::new();
    let count = rng.u32(1..50);
    let role = format!("holds-events:{count},{},{}", service.socket().display(), sync_dir.text(""));
    let _child = Killed(role::command(&role).stdout(Stdio::null()).spawn().unwrap());
    if rng.bool() {
        sync_dir.read("here");
    }
}

/// Subscribes to this and that, switches it on and off, reads or doesn't, and goes.
fn subscribes(service: &Service, rng: &mut Rng) {
    let attrs = [names(), clock(), Attr { sampling: Sampling::Period(rng.u64(200_000..200_004)), ..clock() }];
    let mut all: Vec<(Subscription, bool, Reading)> = Vec::new();
    for _ in 0..rng.u32(1..40) {
        let at = rng.usize(..all.len().max(1));
        match (rng.u32(..8), all.get_mut(at)) {
            (0..2, _) | (_, None) => {
                let attr = attrs[rng.usize(..3)];
                let question = if rng.bool() { on_cpus(attr) } else { on_threads(vec![own()], attr) };
                let ring_bytes = 4096 << rng.u32(..8);
                let session = pmux::Session::with_service_at(service.socket()).unwrap();
                let opened = Subscription::open(&session, &StreamRequest { ring_bytes, ..question });
                // Events and rings may be as many as they are allowed to be.
                all.extend(opened.ok().map(|one| (one, false, Reading::default())));
            }
            (2..4, Some((one, on, _))) => {
                one.enable().unwrap();
                *on = true;
            }
            (4, Some((one, on, _))) => {
                one.disable().unwrap();
                *on = false;
            }
            (5, Some((one, ..))) => assert!(!one.numbers().unwrap().is_empty()),
            (6, Some((one, _, read))) => read.take(one),
            (_, Some(_)) => drop(all.swap_remove(at)),
        }
        rename(&["soaked".to_owned()]);
        assert!(all.iter().all(|(_, _, read)| read.broken_rounds == 0));
    }
}

/// Holds a subscription until it is killed, stopped or not.
fn dies_subscribed(service: &Service, rng: &mut Rng) {
    let sync_dir = SyncDir::new();
    let role = format!("subscribes:{},{},{}", own(), service.socket().display(), sync_dir.text(""));
    let child = Killed(role::command(&role).stdout(Stdio::null()).spawn().unwrap());
    if rng.bool() {
        sync_dir.read("here");
        common::signal(&child.0.id().to_string(), "STOP");
        rename(&["soaked".to_owned()]);
    }
}

/// Asks without end and reads nothing.
fn floods(service: &Service, rng: &mut Rng) {
    let mut client = service.client();
    let Some(handles) = open(&mut client, rng) else { return };
    let read = encode_request(9, &Request::Read { handles: vec![handles[0]; 200] }).unwrap();
    for _ in 0..rng.u32(100..3000) {
        client.send(&read);
    }
    if rng.bool() {
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Says what no service understands, before it is greeted or after.
fn nonsense(service: &Service, rng: &mut Rng) {
    let mut client = if rng.bool() { service.client() } else { service.stranger() };
    let mut bytes = match rng.u32(..4) {
        0 => encode_request(1, &hello()).unwrap(),
        1 => encode_request(2, &Request::Open(on_task(1, &[faults(); 5]))).unwrap(),
        2 => {
            let attrs = vec![common::service::bytes_of(&clock()); 3];
            let scope = Scope::Tasks((1..rng.u32(2..2000)).collect());
            encode_request(3, &Request::Subscribe(Subscribe { scope, attrs, ring_bytes: 4096, wake_bytes: 8 })).unwrap()
        }
        _ => (0..rng.usize(1..PACKET_BYTES + 2)).map(|_| rng.u8(..)).collect(),
    };
    for _ in 0..rng.u32(1..8) {
        let at = rng.usize(..bytes.len());
        bytes[at] = rng.u8(..);
    }
    bytes.truncate(rng.usize(1..=bytes.len()));
    client.send(&bytes);
    if rng.bool() {
        // Whatever it means, it is answered or the end.
        client.receive();
    }
}

/// Connects and never says a word.
fn silent(service: &Service) {
    let _stranger = service.stranger();
    std::thread::sleep(Duration::from_millis(20));
}
