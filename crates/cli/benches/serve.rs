//! What the service costs, beside events that each client opens for itself, in the same run:
//! `cargo bench -p pmux-cli --bench serve`.
//!
//! Times drift between machines and hours; the ratios are what to look at. With `--test` (or `PMUX_BENCH_SMALL=1`) everything
//! runs once and small, so that it cannot rot. A word names the part that is wanted: `-- subscribers`.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../tests/it/common/mod.rs"]
mod common;

use common::records::{Reading, clock, on_cpus, subscribe};
use common::service::{Service, ServiceClient, cpu_clock, faults, on_cpu, on_task};
use common::{Killed, kernel_events, role, set_mode};
use pmux::Sharing;
use pmux::abi::{Attr, EventType};
use pmux::exact::{ExactTarget, GroupMode};
use pmux::server_api::shared::wire::{EventOp, Handle, Open, Reply, Request, encode_request};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Memory of the kernel for one open event: 3,000 of them let `Slab` of `/proc/meminfo` grow by so much each, with Linux 6.18 on
/// x86-64.
const EVENT_BYTES: f64 = 1_650.0;

/// A user without rights, and the words with which this program runs as its client.
const USER: u32 = 65_531;
const AS_USER: &str = "as-user";
const LEAVES: &str = "leaves";

fn micros(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// What becomes of an event that was opened. The kernel only notes one that is off; one that goes on has all of its CPU's or
/// task's put onto their counters anew.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    StaysOff,
    GoesOn,
}

/// Opens and closes `count` times through the service; microseconds for each.
fn through(client: &mut ServiceClient, open: &Open, count: usize, then: Then) -> (f64, f64) {
    let started = Instant::now();
    let one = |client: &mut ServiceClient| {
        let handle = client.open(open.clone()).handles[0];
        if then == Then::GoesOn {
            client.does(handle, EventOp::Enable);
        }
        handle
    };
    let handles: Vec<Handle> = (0..count).map(|_| one(client)).collect();
    let opening = micros(started.elapsed(), count);
    let started = Instant::now();
    for handles in handles.chunks(1000) {
        client.close(handles);
    }
    (opening, micros(started.elapsed(), count))
}

/// The same directly, one session for everybody.
fn directly(event: &pmux::Event, place: ExactTarget, count: usize, then: Then) -> f64 {
    let session = pmux::Session::with_sharing(Sharing::Off).unwrap();
    let started = Instant::now();
    let one = || {
        let group = session.open_exactly(std::slice::from_ref(event), place, GroupMode::default()).unwrap();
        if then == Then::GoesOn {
            group.enable_all().unwrap();
        }
        group
    };
    let groups: Vec<_> = (0..count).map(|_| one()).collect();
    let time = micros(started.elapsed(), count);
    assert!(session.kernel_events().0 >= count as u64, "each is an event of its own");
    drop(groups);
    time
}

/// Opens as a client that connects to a socket; with `whose` in what is printed.
fn opening(socket: &Path, whose: &str, count: usize, rounds: usize) {
    let session = pmux::Session::new().unwrap();
    let own = std::process::id().cast_signed();
    let places = [
        ("a task", "page-faults:u", ExactTarget::Task(own), on_task(own, &[faults()])),
        ("a CPU", "cpu-clock", ExactTarget::Cpu(0), on_cpu(0, &[cpu_clock()])),
    ];
    for (what, name, place, open) in places {
        let event = pmux::Event::parse_with(name, session.catalog()).unwrap();
        if session.open_exactly(std::slice::from_ref(&event), place, GroupMode::default()).is_err() {
            println!("opening on {what}{whose}: skipped: needs root");
            continue;
        }
        for (then, words) in [(Then::StaysOff, "opening"), (Then::GoesOn, "opening and enabling")] {
            let (mut shared, mut closing, mut alone) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..rounds {
                alone.push(directly(&event, place, count, then));
                let (open, close) = through(&mut ServiceClient::greeted(socket), &open, count, then);
                shared.push(open);
                closing.push(close);
            }
            let (shared, closing, alone) = (median(shared), median(closing), median(alone));
            println!(
                "{words} {count} equal events on {what}{whose}: each {shared:6.1} us through the service (closing {closing:.1} us), \
                 {alone:6.1} us directly: {:.2} times",
                shared / alone
            );
        }
    }
}

/// The same by a client without the service's rights: the kernel is asked with that client's credentials, by an opener.
fn opening_as_user(service: &Service, count: usize, rounds: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut client = client_of(folder.path());
    client.arg(AS_USER).arg(service.socket()).args([count.to_string(), rounds.to_string()]);
    assert!(client.status().unwrap().success());
}

/// This program as another user, who may not look into the build's folder and has a copy in this one.
fn client_of(folder: &Path) -> Command {
    set_mode(folder, 0o755);
    let program = folder.join("client");
    role::copy(&program);
    let mut client = Command::new(program);
    client.uid(USER).gid(USER).current_dir("/");
    client
}

/// Opening a tracepoint while those that another user has left are closed: both take the kernel's `event_mutex`, and closing keeps it for
/// as long as all CPUs need to leave the tracepoint.
fn tracepoints(service: &Service, count: usize) {
    let events = std::fs::read_dir("/sys/kernel/tracing/events").into_iter().flatten().flatten();
    let events = events.flat_map(|group| std::fs::read_dir(group.path()).into_iter().flatten().flatten());
    let ids = events.filter_map(|event| std::fs::read_to_string(event.path().join("id")).ok());
    let mut ids: Vec<_> = ids.take(count + 1).collect();
    let (Some(own), true) = (ids.pop(), ids.len() == count) else {
        return println!("tracepoints: skipped: needs {count} in /sys/kernel/tracing/events");
    };
    let own = Attr { kind: EventType::TRACEPOINT, config: own.trim().parse().unwrap(), ..Attr::default() };
    let (list, folder) = (service.folder().join("ids"), tempfile::tempdir().unwrap());
    std::fs::write(&list, ids.concat()).unwrap();
    let mut client = service.client();
    // The others are not the last ones of their tracepoint.
    client.open(on_cpu(0, &[own]));
    let open = |client: &mut ServiceClient| {
        let started = Instant::now();
        let handles = client.open(on_task(std::process::id().cast_signed(), &[own])).handles;
        let took = micros(started.elapsed(), 1) / 1000.0;
        client.close(&handles);
        took
    };
    let alone: Vec<_> = (0..100).map(|_| open(&mut client)).collect();
    let mut leaves = client_of(folder.path());
    leaves.arg(LEAVES).arg(format!("{},{}", service.socket().display(), list.display()));
    assert!(leaves.status().unwrap().success());
    let left = |client: &mut ServiceClient| client.status()["events"]["kernel"].as_u64().unwrap();
    let (before, started) = (left(&mut client), Instant::now());
    let mut meanwhile = Vec::new();
    while left(&mut client) > 2 {
        meanwhile.push(open(&mut client));
    }
    println!(
        "opening a tracepoint: {:.2} ms; while {before} of another user are closed, for {:.1} s: {:.1} ms, at most {:.1} ms ({} times)",
        median(alone),
        started.elapsed().as_secs_f64(),
        median(meanwhile.clone()),
        meanwhile.iter().copied().fold(0.0, f64::max),
        meanwhile.len()
    );
}

/// From many clients at once, each of which waits for its answer.
fn rate(service: &Service, clients: usize, each: usize) {
    let own = std::process::id().cast_signed();
    let mut conns: Vec<_> = (0..clients).map(|_| service.client()).collect();
    let before = cpu_time(service);
    let started = Instant::now();
    let request = Request::Open(on_task(own, &[faults()]));
    // One thread plays all of them: with one for each, their switches would be measured.
    for _ in 0..each {
        for conn in &conns {
            assert!(conn.send(&encode_request(1, &request).unwrap()));
        }
        for conn in &mut conns {
            let answer = conn.receive().unwrap();
            assert!(matches!(answer.reply, Reply::Opened(_)), "{:?}", answer.reply);
        }
    }
    let time = started.elapsed();
    let opens = clients * each;
    let busy = cpu_time(service) - before;
    println!(
        "{clients} clients: {:.0} opens a second ({:.1} us of the service for each)",
        opens as f64 / time.as_secs_f64(),
        micros(busy, opens)
    );
}

/// So many clients ask for the same of all CPUs: what the kernel has open for all of them, and what the last ones waited.
fn many_on_all_cpus(service: &Service, steps: &[usize]) {
    let cpus: Vec<u32> = pmux::Session::new().unwrap().online().iter().collect();
    let mut clients: Vec<ServiceClient> = Vec::new();
    for &step in steps {
        let mut times = Vec::new();
        while clients.len() < step {
            let mut client = service.client();
            let started = Instant::now();
            for &cpu in &cpus {
                client.open(on_cpu(cpu, &[cpu_clock()]));
            }
            times.push(micros(started.elapsed(), cpus.len()));
            clients.push(client);
        }
        let last = times.split_off(times.len().saturating_sub(10));
        // As `/proc` says: the service's own account is one more client's. What clients had who are gone may take a moment.
        let as_many = || Some(kernel_events(service.pid())).filter(|&events| events == cpus.len());
        let events = common::eventually("as many events as there are CPUs, however many clients ask", as_many);
        println!(
            "{step} clients, each with an event on all {} CPUs: {events} events and files of the kernel, {:.0} KiB; without the \
             service {}, {:.0} KiB; opening for the last ones: {:.1} us each",
            cpus.len(),
            events as f64 * EVENT_BYTES / 1024.0,
            step * cpus.len(),
            (step * cpus.len()) as f64 * EVENT_BYTES / 1024.0,
            median(last)
        );
    }
}

/// So many subscribers read `cpu-clock -F 999 -a`: what the kernel has open, and what the service and the readers take of a core;
/// and the same of so many `perf record` of their own.
fn subscribers(service: &Service, steps: &[usize], time: Duration) {
    let share = |used: Duration| used.as_secs_f64() * 100.0 / time.as_secs_f64();
    for &count in steps {
        let question = on_cpus(clock());
        let mut all: Vec<_> = (0..count).map(|_| subscribe(service, &question)).collect();
        all.iter_mut().for_each(|one| one.enable().unwrap());
        let events = kernel_events(service.pid());
        let mut read: Vec<_> = all.iter().map(|_| Reading::default()).collect();
        let (before, own) = (cpu_time(service), cpu_time_of(std::process::id().cast_signed()));
        let until = Instant::now() + time;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
            all.iter_mut().zip(&mut read).for_each(|(one, read)| read.take(one));
        }
        let (used, reading) = (cpu_time(service) - before, cpu_time_of(std::process::id().cast_signed()) - own);
        all.iter_mut().zip(&mut read).for_each(|(one, read)| {
            one.disable().unwrap();
            read.take(one);
        });
        let samples: usize = read.iter().map(|read| read.samples.len()).sum();
        let lost: u64 = read.iter().map(|read| read.lost).sum();
        println!(
            "{count} subscribers to cpu-clock -F 999 -a: {events} events of the kernel; the service takes {:.2} % of a core, {:.0} ns \
             for each record of each; a reader {:.3} %; {} samples each, {lost} lost",
            share(used),
            used.as_nanos() as f64 / samples.max(1) as f64,
            share(reading) / count as f64,
            samples / count,
        );
        drop(all);
        if common::perf() {
            let recorders: Vec<_> = (0..count).map(|_| perf_record()).collect();
            // They open their events one after the other, and all of them are slow at that.
            common::eventually("all record", || {
                recorders.iter().all(|one| kernel_events(one.0.id()) > 0).then_some(())
            });
            std::thread::sleep(Duration::from_millis(500));
            let used = || recorders.iter().map(|one| cpu_time_of(one.0.id().cast_signed())).sum::<Duration>();
            let before = used();
            std::thread::sleep(time);
            let (used, events) = (used() - before, recorders.iter().map(|one| kernel_events(one.0.id())));
            println!(
                "{count} perf record of their own: {} events of the kernel; all of them together take {:.2} % of a core",
                events.sum::<usize>(),
                share(used)
            );
        }
    }
}

fn perf_record() -> Killed {
    let mut perf = Command::new("perf");
    perf.args(["record", "-e", "cpu-clock", "-F", "999", "-a", "-o", "/dev/null"]);
    Killed(perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn cpu_time(service: &Service) -> Duration {
    cpu_time_of(service.pid())
}

/// Of all its threads.
fn cpu_time_of(pid: i32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    Duration::from_nanos(texts.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum())
}

fn idle(service: &Service, clients: usize, time: Duration) {
    let before = service.memory_kib();
    let started = Instant::now();
    let conns: Vec<_> = (0..clients).map(|_| service.client()).collect();
    let joining = micros(started.elapsed(), clients);
    let used = cpu_time(service);
    std::thread::sleep(time);
    let share = (cpu_time(service) - used).as_secs_f64() / time.as_secs_f64();
    println!(
        "{clients} idle clients: {:.2} % of a core, {:.1} MiB more than {:.1}; joining {joining:.0} us each",
        share * 100.0,
        service.memory_kib().saturating_sub(before) as f64 / 1024.0,
        before as f64 / 1024.0
    );
    drop(conns);
}

/// So many clients ask one question and have it shown in their pages: what the service takes for that, while it stands and while it
/// counts.
fn pages(service: &Service, clients: usize, time: Duration) {
    let mut conns: Vec<_> = (0..clients).map(|_| service.client()).collect();
    let handles: Vec<Handle> = conns.iter_mut().map(|conn| conn.open(on_cpu(0, &[cpu_clock()])).handles[0]).collect();
    let share = || {
        let used = cpu_time(service);
        std::thread::sleep(time);
        (cpu_time(service) - used).as_secs_f64() / time.as_secs_f64() * 100.0
    };
    let standing = share();
    conns.iter_mut().zip(&handles).for_each(|(conn, &handle)| conn.does(handle, EventOp::Enable));
    println!(
        "{clients} clients have one question shown: {standing:.2} % of a core while it stands, {:.2} % while it counts",
        share()
    );
}

fn main() {
    role::play_if_asked(common::roles::play);
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, AS_USER, socket, count, rounds] => {
            let [count, rounds] = [count, rounds].map(|number| number.parse().unwrap());
            return opening(Path::new(socket), " by another user", count, rounds);
        }
        [_, LEAVES, arguments] => return common::hostile::leaves_tracepoints(arguments),
        _ => {}
    }
    if !common::kernel() {
        return;
    }
    let small = std::env::args().any(|word| word == "--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some();
    let service = Service::with("[limits]\nrequests_per_second = 10000000\n[log]\nlevel = \"warning\"\n");
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let runs = |part: &str| wanted.as_ref().is_none_or(|wanted| part.contains(&wanted[..]));
    if runs("opening") {
        let (count, rounds) = if small { (20, 1) } else { (1000, 5) };
        opening(&service.socket(), "", count, rounds);
        if common::root() {
            opening_as_user(&service, count, rounds);
        }
    }
    if runs("tracepoints") && common::root() {
        tracepoints(&service, if small { 5 } else { 1000 });
        service.is_empty();
    }
    if runs("rate") {
        let (clients, each) = if small { (5, 2) } else { (100, 100) };
        rate(&service, clients, each);
        service.is_empty();
    }
    if runs("pages") && common::root() {
        let (clients, time) = if small { (10, 10) } else { (1000, 3000) };
        pages(&service, clients, Duration::from_millis(time));
        service.is_empty();
    }
    if runs("many") && common::root() {
        many_on_all_cpus(&service, if small { &[1, 3] } else { &[1, 10, 100, 1000] });
        service.is_empty();
    }
    if runs("subscribers") && common::root() {
        let (steps, ms): (&[usize], _) = if small { (&[1, 2], 200) } else { (&[1, 10, 100], 10_000) };
        subscribers(&service, steps, Duration::from_millis(ms));
        service.is_empty();
    }
    if runs("idle") {
        let (clients, time) = if small { (10, 10) } else { (1000, 3000) };
        idle(&service, clients, Duration::from_millis(time));
    }
}
