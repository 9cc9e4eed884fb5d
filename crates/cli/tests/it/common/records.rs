//! Asking for records, and looking at what comes.

use super::eventually;
use super::service::{Service, own};
use pmux::abi::{Attr, AttrFlags, EventType, SampleFormat, Sampling, sw};
use pmux::server_api::shared::wire::{Reply, Request, Scope, Subscribe};
use pmux::{Session, StreamRequest, StreamScope, Subscription};
use std::path::Path;

const FIELDS: SampleFormat =
    SampleFormat::IDENTIFIER.union(SampleFormat::TID).union(SampleFormat::TIME).union(SampleFormat::CPU);

/// An event that counts nothing, and tells new names of tasks.
pub fn names() -> Attr {
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | AttrFlags::COMM | AttrFlags::SAMPLE_ID_ALL;
    let flags = flags | AttrFlags::USE_CLOCKID;
    Attr { kind: EventType::SOFTWARE, config: sw::DUMMY, flags, clock_id: 1, sample: FIELDS, ..Attr::default() }
}

/// The CPU's clock, often.
pub fn clock() -> Attr {
    let flags = AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID;
    Attr { config: sw::CPU_CLOCK, flags, sampling: Sampling::Frequency(999), ..names() }
}

pub fn on_threads(tids: Vec<i32>, attr: Attr) -> StreamRequest {
    StreamRequest { scope: StreamScope::Tasks(tids), attrs: vec![attr], ring_bytes: 1 << 20, wake_bytes: 4096 }
}

pub fn on_cpus(attr: Attr) -> StreamRequest {
    StreamRequest { scope: StreamScope::AllCpus, ..on_threads(Vec::new(), attr) }
}

pub fn subscribe(service: &Service, question: &StreamRequest) -> Subscription {
    let session = Session::with_service_at(service.socket()).unwrap();
    Subscription::open(&session, question).unwrap()
}

/// Gives this thread one name after the other.
pub fn rename(names: &[String]) {
    for name in names {
        std::fs::write(format!("/proc/self/task/{}/comm", own()), name).unwrap();
    }
}

/// What has come.
#[derive(Debug, Default)]
pub struct Reading {
    /// New names of tasks, with their times.
    named: Vec<(u64, String)>,
    /// The number, the time and the CPU of each sample.
    pub samples: Vec<(u64, u64, u32)>,
    /// Records that found no room.
    pub lost: u64,
    pub rounds: usize,
    /// Samples that are older than what came before the round mark before the last.
    pub broken_rounds: usize,
    pub other: usize,
    /// Of all times: until the mark before the last one, until the last one, until now.
    newest: [u64; 3],
}

impl Reading {
    pub fn of(subscription: &mut Subscription) -> Self {
        let mut reading = Self::default();
        reading.take(subscription);
        reading
    }

    pub fn take(&mut self, subscription: &mut Subscription) {
        subscription.drain(&mut |record| self.note(record)).unwrap();
    }

    /// Takes what comes, until this holds.
    pub fn until(&mut self, what: &str, subscription: &mut Subscription, holds: impl Fn(&Self, &Subscription) -> bool) {
        eventually(what, || {
            self.take(subscription);
            holds(self, subscription).then_some(())
        });
    }

    /// Until a task has a new name.
    pub fn until_named(&mut self, subscription: &mut Subscription) {
        self.until("it has come", subscription, |read, _| !read.named.is_empty());
    }

    /// New names of tasks, in their order: who came to another CPU meanwhile wrote into another ring of the kernel.
    pub fn names(&self) -> Vec<String> {
        let mut named: Vec<_> = self.named.iter().collect();
        named.sort_by_key(|(time, _)| *time);
        named.into_iter().map(|(_, name)| name.clone()).collect()
    }

    fn note(&mut self, record: &[u8]) {
        let word = |at: usize| u64::from_ne_bytes(record[at..at + 8].try_into().unwrap());
        match u32::from_ne_bytes(record[..4].try_into().unwrap()) {
            2 => self.lost += word(16),
            3 => {
                let name = record[16..].split(|&byte| byte == 0).next().unwrap();
                // At its end: task, time, CPU, identifier.
                self.named.push((word(record.len() - 24), String::from_utf8(name.to_vec()).unwrap()));
            }
            9 => {
                // Identifier, task, time, CPU.
                let (time, [.., newest]) = (word(24), &mut self.newest);
                *newest = time.max(*newest);
                self.broken_rounds += usize::from(time < self.newest[0]);
                self.samples.push((word(8), time, word(32) as u32));
            }
            68 => {
                self.rounds += 1;
                let [_, last, newest] = self.newest;
                self.newest = [last, newest, newest];
            }
            _ => self.other += 1,
        }
    }
}

/// A role, `THREAD,SOCKET,DOOR`: subscribes to a thread's names, says so, and does nothing more until it is killed.
pub fn subscribes(arguments: &str) {
    let [thread, socket, sync_dir] = arguments.splitn(3, ',').collect::<Vec<_>>()[..] else { panic!("{arguments}") };
    let session = Session::with_service_at(socket).unwrap();
    let mut subscription = Subscription::open(&session, &on_threads(vec![thread.parse().unwrap()], names())).unwrap();
    subscription.enable().unwrap();
    std::fs::write(Path::new(sync_dir).join("here"), "\n").unwrap();
    loop {
        std::thread::park();
    }
}

/// A role, `SOCKET,THREAD`: asks for records as the user that it is, and says what the service answered.
pub fn asks_for_records(arguments: &str) {
    let (socket, other) = arguments.split_once(',').unwrap();
    let mut conn = super::service::ServiceClient::greeted(Path::new(socket));
    let own = Scope::Tasks(vec![std::process::id()]);
    let user = Attr { flags: clock().flags | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV, ..clock() };
    let with = |field| Attr { sample: user.sample | field, ..user };
    for (what, scope, attr) in [
        ("own, in user mode", own.clone(), user),
        ("own, in the kernel", own.clone(), clock()),
        ("another user's", Scope::Tasks(vec![other.parse().unwrap()]), user),
        ("all CPUs", Scope::Cpus(Vec::new()), user),
        ("physical addresses", own.clone(), with(SampleFormat::PHYS_ADDR)),
        ("with counts", own.clone(), with(SampleFormat::READ)),
    ] {
        let attrs = vec![super::service::bytes_of(&attr)];
        let subscribe = Subscribe { scope, attrs, ring_bytes: 4096, wake_bytes: 0 };
        match conn.ask(&Request::Subscribe(subscribe)).reply {
            Reply::Subscribed(_) => eprintln!("{what}: Ok"),
            Reply::Refused(refusal) => eprintln!("{what}: {:?} {}", refusal.kind(), refusal.errno),
            other => panic!("{other:?}"),
        }
    }
}
