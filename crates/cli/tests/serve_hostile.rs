//! Clients that ask `pmux serve` badly, too much, or for what it doesn't do; and that nobody else notices.
#![allow(clippy::unwrap_used)]

mod common;

use common::role::touch_page;
use common::service::{Service, faults, hello, on_task};
use common::{Door, eventually, kernel, role, signal};
use pmux::serving::abi::{Attr, AttrFlags, EventType, Sampling};
use pmux::serving::shared::wire::{
    Hello, NEWEST_VERSION, Notice, PACKET_BYTES, RefusalKind, Reply, Request, Verb, encode_request,
};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn own() -> i32 {
    // The harness runs each test in a thread of its own.
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

#[test]
fn hostile_bytes_are_an_error_for_whoever_sent_them() {
    if !kernel() {
        return;
    }
    let service = Service::start();
    let mut good = service.client();
    let handle = good.open(on_task(own(), &[faults()])).handles[0];
    good.does(handle, Verb::Enable);
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
    for (what, bytes) in worst {
        let mut stranger = service.stranger();
        assert!(stranger.send(bytes), "{what}");
        let replies = stranger.until_the_end();
        assert!(matches!(replies[..], [Reply::Refused(_)]), "{what}: {replies:?}");
    }
    // The same from somebody who was welcome before.
    for (what, bytes) in &worst[..6] {
        let mut known = service.client();
        known.open(on_task(own(), &[faults()]));
        assert!(known.send(bytes), "{what}");
        let replies = known.until_the_end();
        assert!(matches!(replies[..], [Reply::Refused(_)]), "{what}: {replies:?}");
    }
    // An empty packet is as good as none.
    let empty = service.client();
    let _ = empty.send(&[]);
    let files = service.files();
    let mut wrong = service.stranger();
    let odd = Hello { oldest_version: NEWEST_VERSION + 1, newest_version: NEWEST_VERSION + 9, ..hello_words() };
    assert_eq!(wrong.refused(&Request::Hello(odd)).kind(), RefusalKind::Version);
    // Files that nobody asked for are closed.
    let (reader, _writer) = std::io::pipe().unwrap();
    let file = reader.into();
    let with_file = good.ask_with(&Request::Open(on_task(own(), &[faults()])), Some(&file)).unwrap();
    assert!(matches!(with_file.reply, Reply::Refused(_)));
    touch_page(600, 10);
    assert!(good.read(&[handle])[0].totals.value >= 10);
    drop((wrong, empty));
    eventually("files are closed", || (service.files() <= files).then_some(()));
    assert_eq!(service.status()["events"]["asked"], 1);
}

fn hello_words() -> Hello {
    match hello() {
        Request::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_counting_is_not_shared() {
    if !kernel() {
        return;
    }
    let service = Service::start();
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
fn who_does_not_read_is_cut_off_and_told() {
    if !kernel() {
        return;
    }
    let service = Service::with("[limits]\nslow_ms = 2000\n");
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
fn who_is_stopped_stops_nobody_else() {
    if !kernel() {
        return;
    }
    let service = Service::start();
    let door = Door::new();
    let words = role::words(&format!("holds-events:5,{},{}", service.socket().display(), door.text("")));
    let mut child = Command::new(&words[0]).args(&words[1..]).stdout(Stdio::null()).spawn().unwrap();
    door.read("here");
    signal(&child.id().to_string(), "STOP");
    let mut client = service.client();
    let handle = client.open(on_task(own(), &[faults()])).handles[0];
    client.does(handle, Verb::Enable);
    touch_page(700, 10);
    assert!(client.read(&[handle])[0].totals.value >= 10);
    assert_eq!(service.status()["events"]["asked"], 6);
    signal(&child.id().to_string(), "KILL");
    child.wait().unwrap();
    drop(client);
    service.is_empty();
}

#[test]
fn who_never_says_hello_is_sent_away() {
    if !kernel() {
        return;
    }
    let service = Service::with("[limits]\nslow_ms = 2000\n");
    let mut stranger = service.stranger();
    let mut known = service.client();
    assert!(matches!(stranger.until_the_end()[..], [Reply::Notice(Notice::Slow { .. })]));
    assert_eq!(known.ask(&Request::Ping).reply, Reply::Done, "silence is no fault of somebody who was welcome");
}

#[test]
fn who_asks_too_fast_waits_and_nobody_else() {
    if !kernel() {
        return;
    }
    let service = Service::with("[limits]\nrequests_per_second = 50\n");
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
    if !kernel() {
        return;
    }
    let service = Service::with("[limits]\nclients = 3\n");
    let _clients = [service.client(), service.client(), service.client()];
    let mut one_more = service.stranger();
    let replies = one_more.until_the_end();
    assert!(matches!(&replies[..], [Reply::Refused(refusal)] if refusal.kind() == RefusalKind::Limit), "{replies:?}");
}
