//! Records through `pmux serve`: one event of the kernel, and all who asked read what it writes.

use crate::common::hostile::{as_user, said_by};
use crate::common::records::{Reading, clock, names, on_cpus, on_threads, rename, subscribe};
use crate::common::role::{self, touch};
use crate::common::service::{Service, ServiceClient, bytes_of, faults, on_task, own};
use crate::common::{Killed, SyncDir, eventually, signal};
use pmux::StreamRequest;
use pmux::abi::{Attr, AttrFlags, SampleFormat, Sampling};
use pmux::server_api::shared::wire::{EventOp, Handle, RefusalKind, Reply, Request, Scope, Subscribe};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::Duration;

const USER: u32 = 65_533;
/// Above all numbers that tasks have (`PID_MAX_LIMIT`).
const NO_TASK: u32 = 1 << 23;

fn sources(service: &Service) -> u64 {
    service.status()["records"]["kernel_events"].as_u64().unwrap()
}

#[test]
fn each_reads_exactly_what_came_while_it_was_on() {
    let Some(service) = Service::of_kernel("") else { return };
    let [mut one, mut two] = [(); 2].map(|()| subscribe(&service, &on_threads(vec![own()], names())));
    assert_eq!(sources(&service), service.cpus(), "one event on each CPU for both");
    let same = |name: &str| (0..100).map(|number| format!("{name}{number}")).collect::<Vec<_>>();
    let [before, first, both, second, after] = ["z", "a", "b", "c", "y"].map(same);
    rename(&before);
    one.enable().unwrap();
    rename(&first);
    two.enable().unwrap();
    rename(&both);
    one.disable().unwrap();
    rename(&second);
    two.disable().unwrap();
    rename(&after);
    let read = Reading::of(&mut one);
    assert_eq!(read.names(), [first, both.clone()].concat());
    assert_eq!(Reading::of(&mut two).names(), [both, second].concat());
    assert_eq!((read.lost, read.other), (0, 0));
    let numbers = one.numbers().unwrap();
    assert_eq!((numbers.len() as u64, numbers == two.numbers().unwrap()), (service.cpus(), true));
    // What a pass wrote ends with a mark; who ends before the next pass is given the rest without one.
    one.enable().unwrap();
    let has_mark = (0..3000).any(|_| {
        rename(&["x".to_owned()]);
        std::thread::sleep(Duration::from_millis(10));
        Reading::of(&mut one).rounds > 0
    });
    assert!(has_mark);
    drop((one, two));
    service.is_empty();
    assert_eq!(sources(&service), 0);
}

#[test]
fn different_requests_have_separate_events() {
    let Some(service) = Service::of_kernel("") else { return };
    let question = |period| {
        let attr = Attr { sampling: Sampling::Period(period), ..clock() };
        StreamRequest { attrs: vec![attr], ..on_threads(vec![own()], clock()) }
    };
    let all = [1_000_000, 1_000_000, 1_000_001].map(|period| subscribe(&service, &question(period)));
    assert_eq!(sources(&service), 2 * service.cpus());
    assert_eq!(service.status()["events"]["asked"], 3 * service.cpus());
    assert_eq!(service.status()["events"]["kernel"], 2 * service.cpus());
    drop(all);
    service.is_empty();
}

#[test]
fn samples_of_all_cpus_are_the_same_for_all() {
    let Some(service) = Service::of_root("") else { return };
    let [mut one, mut two] = [(); 2].map(|()| subscribe(&service, &on_cpus(clock())));
    one.enable().unwrap();
    two.enable().unwrap();
    let (mut all, mut part) = (Reading::default(), Reading::default());
    eventually("there are samples", || {
        all.take(&mut one);
        part.take(&mut two);
        (part.samples.len() > 100).then_some(())
    });
    two.disable().unwrap();
    one.disable().unwrap();
    all.take(&mut one);
    part.take(&mut two);
    // Each CPU's in their order, without a gap. Between CPUs the order is that of rounds: who ends doesn't wait for one.
    let numbers: std::collections::BTreeSet<u64> = part.samples.iter().map(|sample| sample.0).collect();
    for number in numbers {
        let of = |reading: &Reading| -> Vec<_> {
            reading.samples.iter().filter(|sample| sample.0 == number).copied().collect()
        };
        let (all, part) = (of(&all), of(&part));
        let from = all.iter().position(|sample| *sample == part[0]).unwrap();
        assert!(all[from..].starts_with(&part), "{number}: {part:?} of {all:?}");
    }
    assert_eq!((part.lost, all.broken_rounds, part.broken_rounds), (0, 0, 0));
    let ids: Vec<_> = one.numbers().unwrap().iter().map(|number| number.number).collect();
    assert!(all.samples.iter().all(|sample| ids.contains(&sample.0)));
}

#[test]
fn a_slow_client_loses_its_own_records_only() {
    let Some(service) = Service::of_kernel("") else { return };
    let question = on_threads(vec![own()], names());
    let mut slow = subscribe(&service, &StreamRequest { ring_bytes: 4096, ..question.clone() });
    let mut good = subscribe(&service, &question);
    slow.enable().unwrap();
    good.enable().unwrap();
    let all: Vec<_> = (0..1000).map(|number| format!("n{number}")).collect();
    rename(&all);
    slow.disable().unwrap();
    good.disable().unwrap();
    assert_eq!(Reading::of(&mut good).names(), all);
    let read = Reading::of(&mut slow);
    let came = read.names();
    let kept: Vec<_> = all.iter().filter(|name| came.contains(name)).cloned().collect();
    assert_eq!(came, kept);
    let status = service.status();
    let lost = status["clients"]["list"][0]["subscriptions"][0]["lost"].as_u64().unwrap();
    assert!(came.len() + lost as usize >= 1000, "{} of {lost}: {status}", came.len());
    // What is written next says it in the ring.
    slow.enable().unwrap();
    rename(&["again".to_owned()]);
    slow.disable().unwrap();
    let again = Reading::of(&mut slow);
    assert_eq!((again.names(), again.lost), (vec!["again".to_owned()], lost));
}

/// Stopped by a signal, and killed by one.
#[test]
fn a_stopped_or_killed_client_delays_no_other() {
    let Some(service) = Service::of_kernel("") else { return };
    let mut good = subscribe(&service, &on_threads(vec![own()], names()));
    good.enable().unwrap();
    let sync_dir = SyncDir::new();
    let role = format!("subscribes:{},{},{}", own(), service.socket().display(), sync_dir.text(""));
    let child = Killed(role::command(&role).stdout(Stdio::null()).spawn().unwrap());
    sync_dir.read("here");
    assert_eq!((service.status()["records"]["subscriptions"].clone(), sources(&service)), (2.into(), service.cpus()));
    signal(&child.0.id().to_string(), "STOP");
    let all: Vec<_> = (0..3000).map(|number| format!("n{number}")).collect();
    let mut read = Reading::default();
    for part in all.chunks(100) {
        rename(part);
        read.take(&mut good);
    }
    drop(child);
    eventually("it is gone", || (service.status()["records"]["subscriptions"] == 1).then_some(()));
    rename(&["last".to_owned()]);
    good.disable().unwrap();
    read.take(&mut good);
    let expected = [all, vec!["last".to_owned()]].concat();
    assert_eq!((read.names() == expected, read.lost), (true, 0), "{read:?}");
}

fn raw(client: &mut ServiceClient, question: &StreamRequest) -> (Handle, Vec<std::os::fd::OwnedFd>) {
    let attrs = question.attrs.iter().map(bytes_of).collect();
    let wish = Subscribe { scope: Scope::Tasks(vec![own().cast_unsigned()]), attrs, ring_bytes: 4096, wake_bytes: 8 };
    let answer = client.ask(&Request::Subscribe(wish));
    let Reply::Subscribed(subscribed) = answer.reply else { panic!("{:?}", answer.reply) };
    (subscribed.handle, answer.files)
}

/// A client that has the files writes into them what it can, fills the bell, and holds its other end.
#[test]
fn hostile_files_harm_no_other_client() {
    let Some(service) = Service::of_kernel("") else { return };
    let question = on_threads(vec![own()], names());
    let mut good = subscribe(&service, &question);
    good.enable().unwrap();
    let mut hostile = service.client();
    let (handle, files) = raw(&mut hostile, &question);
    let [records, taken, bell] = &files[..] else { panic!("{files:?}") };
    let again = |file: &std::os::fd::OwnedFd| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::fs::File::options().write(true).open(path)
    };
    use std::io::{Seek as _, Write as _};
    let denied = again(records).and_then(|mut file| file.write_all(b"lies"));
    assert_eq!(denied.unwrap_err().raw_os_error(), Some(1));
    again(bell).unwrap().write_all(&[1; 65_536]).unwrap();
    hostile.does(handle, EventOp::Enable);
    let mut word = again(taken).unwrap();
    let all: Vec<_> = (0..500).map(|number| format!("n{number}")).collect();
    for (part, lie) in all.chunks(50).zip([u64::MAX, 1, 1 << 63, 4096, 7, 0, 1 << 20, 12_345, 8, 1 << 40]) {
        word.rewind().unwrap();
        word.write_all(&lie.to_ne_bytes()).unwrap();
        rename(part);
        hostile.does(handle, EventOp::Disable);
        hostile.does(handle, EventOp::Enable);
    }
    good.disable().unwrap();
    assert_eq!(Reading::of(&mut good).names(), all);
    let status = service.status();
    let lies = status["clients"]["list"][1]["subscriptions"][0]["lies"].as_u64().unwrap();
    assert!(lies > 0, "{status}");
    drop((hostile, good));
    service.is_empty();
}

#[test]
fn a_killed_service_is_replaced_and_the_gap_reported() {
    let Some(mut service) = Service::of_kernel("") else { return };
    let mut one = subscribe(&service, &on_threads(vec![own()], names()));
    one.enable().unwrap();
    rename(&["before".to_owned()]);
    let mut read = Reading::default();
    read.until_named(&mut one);
    service.kill();
    read.until("it is gone", &mut one, |_, one| one.fd().is_none());
    rename(&["between".to_owned()]);
    std::thread::sleep(Duration::from_millis(20));
    assert!(one.gap() >= Duration::from_millis(20), "{:?}", one.gap());
    service.start_again();
    read.until("it is back", &mut one, |_, one| one.fd().is_some());
    let gap = one.gap();
    rename(&["after".to_owned()]);
    one.disable().unwrap();
    read.take(&mut one);
    assert_eq!(read.names(), ["before", "after"]);
    assert_eq!((one.lives(), one.gap() == gap), (2, true), "it doesn't grow any more");
}

#[test]
fn no_client_sees_more_than_the_kernel_would_show_it() {
    let Some(service) = Service::of_root("") else { return };
    let role = format!("asks-for-records:{},{}", service.socket().display(), own());
    let said = said_by(as_user(USER, &role), &service);
    let paranoid = service.status()["service"]["paranoid"].as_i64().unwrap();
    let expected = [
        ("own, in user mode", "Ok"),
        ("own, in the kernel", if paranoid > 1 { "Rights 13" } else { "Ok" }),
        ("another user's", "Rights 13"),
        ("all CPUs", if paranoid > 0 { "Rights 13" } else { "Ok" }),
        ("physical addresses", "Rights 13"),
        ("with counts", "NotShared 95"),
    ];
    for (what, answer) in expected {
        assert!(said.contains(&format!("{what}: {answer}\n")), "{what} is not {answer}: {said}");
    }
}

/// One of the threads that are asked for has gone: the others are recorded, and what is counted of them goes on.
#[test]
fn a_thread_that_has_gone_ends_no_other_count() {
    let Some(service) = Service::of_kernel("") else { return };
    let mut client = service.client();
    let handle = client.enabled(on_task(own(), &[faults()]));
    touch(800, 10);
    let scope = Scope::Tasks(vec![own().cast_unsigned(), NO_TASK]);
    let wish = Subscribe { scope, attrs: vec![bytes_of(&names())], ring_bytes: 8192, wake_bytes: 0 };
    assert!(matches!(client.ask(&Request::Subscribe(wish.clone())).reply, Reply::Subscribed(_)));
    let all_gone = Subscribe { scope: Scope::Tasks(vec![NO_TASK, NO_TASK + 1]), ..wish };
    assert_eq!(client.refused(&Request::Subscribe(all_gone)).errno, 3);
    touch(810, 10);
    assert!(client.read(&[handle])[0].totals.value >= 20);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let Some(service) = Service::of_kernel("[limits]\nrings_kib_per_client = 64\n") else { return };
    let mut client = service.client();
    let attrs = vec![bytes_of(&names())];
    let scope = Scope::Tasks(vec![own().cast_unsigned()]);
    let good = Subscribe { scope, attrs, ring_bytes: 8192, wake_bytes: 0 };
    let exec = Attr { flags: names().flags | AttrFlags::ENABLE_ON_EXEC, ..names() };
    let read = Attr { sample: names().sample | SampleFormat::READ, ..names() };
    let of = |attr: &Attr| Subscribe { attrs: vec![bytes_of(attr)], ..good.clone() };
    for (what, wrong, kind, errno) in [
        ("a size", Subscribe { ring_bytes: 5000, ..good.clone() }, RefusalKind::Request, 22),
        ("too much", Subscribe { ring_bytes: 1 << 20, ..good.clone() }, RefusalKind::Limit, 24),
        ("no task", Subscribe { scope: Scope::Tasks(vec![4_000_000]), ..good.clone() }, RefusalKind::Kernel, 3),
        ("no CPU", Subscribe { scope: Scope::Cpus(vec![9999]), ..good.clone() }, RefusalKind::Kernel, 22),
        ("an exec", of(&exec), RefusalKind::NotShared, 95),
        ("counts", of(&read), RefusalKind::NotShared, 95),
    ] {
        let refusal = client.refused(&Request::Subscribe(wrong));
        assert_eq!((refusal.kind(), refusal.errno), (kind, errno), "{what}: {}", refusal.text);
    }
    assert_eq!(service.status()["records"]["subscriptions"], 0);
    assert!(matches!(client.ask(&Request::Subscribe(good)).reply, Reply::Subscribed(_)));
}
