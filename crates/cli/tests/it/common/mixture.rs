//! Users who mean harm: what each of them does to `pmux serve`, over and over, until it is killed.
//!
//! What it is: roles of the test binary, started as users without rights (`serve_soak.rs`).
//!
//! **Invariant:** an attack never fails because the service refuses it or hangs up; it only reports what it should not have got.

use super::role;
use super::service::{ServiceClient, bytes_of, cpu_clock, faults, hello, on_cpu, on_task};
use fastrand::Rng;
use pmux::abi::{Attr, AttrFlags, EventType, SampleFormat, Sampling};
use pmux::server_api::shared::channel::{Channel, Sent};
use pmux::server_api::shared::wire::{
    Detail, EventOp, Handle, PACKET_BYTES, Reply, Request, Scope, Subscribe, encode_request,
};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// All attacks. Three users share them.
pub const ALL: [&str; 9] =
    ["connections", "descriptors", "events", "rings", "tracepoints", "requests", "nonsense", "set-user-id", "openers"];
/// Pages that the set-user-id program touches with root's rights: so many faults must not reach its starter.
const SECRET_PAGES: usize = 2000;

/// A role, `mixture:NAME,SEED,SOCKET,SETUID`: SETUID is a copy of the test binary that belongs to root and is set-user-id.
pub fn play(arguments: &str) {
    let [name, seed, socket, program] = arguments.splitn(4, ',').collect::<Vec<_>>()[..] else { panic!("{arguments}") };
    let mut rng = Rng::with_seed(seed.parse().unwrap());
    let socket = PathBuf::from(socket);
    loop {
        match name {
            "connections" => connections(&socket, &mut rng),
            "descriptors" => descriptors(&socket, &mut rng),
            "events" => events(&socket, &mut rng),
            "rings" => rings(&socket, &mut rng),
            "tracepoints" => tracepoints(&socket),
            "requests" => requests(&socket, &mut rng),
            "nonsense" => nonsense(&socket, &mut rng),
            "set-user-id" => set_user_id(&socket, Path::new(program)),
            "openers" => openers(&socket, &mut rng),
            other => panic!("there is no attack {other}"),
        }
    }
}

/// A greeted client; `None` where the service takes no more of this user's.
fn client(socket: &Path) -> Option<ServiceClient> {
    let mut conn = stranger(socket)?;
    match conn.try_ask(&hello())?.reply {
        Reply::Welcome(_) => Some(conn),
        _ => None,
    }
}

fn stranger(socket: &Path) -> Option<ServiceClient> {
    match Channel::connect(socket) {
        Ok(channel) => Some(ServiceClient::of(channel)),
        Err(_) => {
            std::thread::sleep(Duration::from_millis(5));
            None
        }
    }
}

fn own() -> i32 {
    std::process::id().cast_signed()
}

/// Hundreds of connections that all ask at once.
fn connections(socket: &Path, rng: &mut Rng) {
    let mut all: Vec<_> = (0..300).filter_map(|_| if rng.bool() { client(socket) } else { stranger(socket) }).collect();
    let ping = encode_request(7, &Request::Ping).unwrap();
    for _ in 0..20 {
        for conn in &mut all {
            conn.send(&ping);
        }
    }
    all.truncate(rng.usize(..all.len().max(1)));
    std::thread::sleep(Duration::from_millis(rng.u64(..50)));
}

/// A file whose last close waits for an hour: a TCP socket that lingers, with bytes that its peer does not take.
fn descriptors(socket: &Path, rng: &mut Rng) {
    const HOUR: Duration = Duration::from_secs(3600);
    let Some(conn) = (if rng.bool() { client(socket) } else { stranger(socket) }) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut file = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    file.set_nonblocking(true).unwrap();
    while file.write(&[7; 65_536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&file, Some(HOUR)).unwrap();
    let ping = encode_request(1, &Request::Ping).unwrap();
    if conn.channel.send(&ping, &[file.as_fd()]) == Ok(Sent::Whole) {
        drop((conn, file));
        // The peer stays until the service has done anything for another connection: a service that waits for the peer waits for ever.
        let hello = encode_request(1, &hello()).unwrap();
        let answers =
            |other: Channel| other.send(&hello, &[]).is_err() || other.wait(Instant::now() + HOUR) == Ok(true);
        while !Channel::connect(socket).is_ok_and(answers) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // Before the file, which is closed at once then.
    drop(peer);
    std::thread::sleep(Duration::from_millis(rng.u64(..50)));
}

/// As many events as there can be, of which members are closed while their leaders stay.
fn events(socket: &Path, rng: &mut Rng) {
    let mut all: Vec<ServiceClient> = (0..8).filter_map(|_| client(socket)).collect();
    for conn in &mut all {
        for _ in 0..200 {
            let attrs = vec![faults(); rng.usize(1..16)];
            match conn.try_ask(&Request::Open(on_task(own(), &attrs))).map(|answer| answer.reply) {
                Some(Reply::Opened(opened)) => {
                    let members = opened.handles[1..].to_vec();
                    if !members.is_empty() {
                        conn.try_ask(&Request::Close { handles: members });
                    }
                }
                _ => break,
            }
        }
    }
}

/// The largest rings of records.
fn rings(socket: &Path, rng: &mut Rng) {
    let attr = Attr {
        sampling: Sampling::Period(100_000),
        sample: SampleFormat::IP | SampleFormat::TID,
        flags: AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | AttrFlags::DISABLED,
        ..cpu_clock()
    };
    let mut all: Vec<ServiceClient> = (0..4).filter_map(|_| client(socket)).collect();
    for conn in &mut all {
        for _ in 0..16 {
            let scope = Scope::Tasks(vec![own().cast_unsigned()]);
            let ring_bytes = 4096 << rng.u32(4..16);
            let subscribe = Subscribe { scope, attrs: vec![bytes_of(&attr)], ring_bytes, wake_bytes: 1 };
            match conn.try_ask(&Request::Subscribe(subscribe)).map(|answer| answer.reply) {
                Some(Reply::Subscribed(made)) => {
                    conn.try_ask(&Request::Control { handle: made.handle, op: EventOp::Enable });
                }
                _ => break,
            }
        }
    }
    std::thread::sleep(Duration::from_millis(20));
}

/// Tracepoints of a task of its own, which are slow to close, and are left to the service.
fn tracepoints(socket: &Path) {
    let number = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .into_iter()
        .find_map(|root| std::fs::read_to_string(Path::new(root).join("events/sched/sched_switch/id")).ok())
        .and_then(|text| text.trim().parse().ok());
    // Names of tracepoints are not for everybody; small numbers exist on every machine.
    let first: u64 = number.unwrap_or(300);
    let Some(mut conn) = client(socket) else { return };
    for index in 0..300 {
        let attr = Attr { kind: EventType::TRACEPOINT, config: first + index % 20, ..faults() };
        match conn.try_ask(&Request::Open(on_task(own(), &[attr]))).map(|answer| answer.reply) {
            Some(Reply::Opened(_) | Reply::Refused(_)) => {}
            _ => break,
        }
    }
}

/// Requests that are long to answer, and whose answers are not read.
fn requests(socket: &Path, rng: &mut Rng) {
    let Some(mut conn) = client(socket) else { return };
    let Some(answer) = conn.try_ask(&Request::Open(on_task(own(), &[faults()]))) else { return };
    let Reply::Opened(opened) = answer.reply else { return };
    let read = encode_request(9, &Request::Read { handles: vec![opened.handles[0]; 200] }).unwrap();
    let status = encode_request(10, &Request::Status { detail: Detail::Full }).unwrap();
    for _ in 0..rng.u32(100..3000) {
        conn.send(if rng.u32(..8) == 0 { &status } else { &read });
    }
}

/// Bytes that mean nothing, or nearly something.
fn nonsense(socket: &Path, rng: &mut Rng) {
    let Some(conn) = (if rng.bool() { client(socket) } else { stranger(socket) }) else { return };
    for _ in 0..50 {
        let mut bytes = match rng.u32(..4) {
            0 => encode_request(1, &hello()).unwrap(),
            1 => encode_request(2, &Request::Open(on_cpu(rng.u32(..), &[faults(); 5]))).unwrap(),
            2 => encode_request(3, &Request::Renew { handle: Handle(rng.u64(..)) }).unwrap(),
            _ => (0..rng.usize(1..PACKET_BYTES + 2)).map(|_| rng.u8(..)).collect(),
        };
        let at = rng.usize(..bytes.len());
        bytes[at] = rng.u8(..);
        bytes.truncate(rng.usize(1..=bytes.len()));
        conn.send(&bytes);
    }
}

/// What opens events with its rights is stopped, goes on when an answer was nearly given up, runs only where nothing else wants to, or is
/// killed; meanwhile there is much for it to do.
fn openers(socket: &Path, rng: &mut Rng) {
    let Some(mut conn) = client(socket) else { return };
    if conn.try_ask(&Request::Open(on_task(own(), &[faults()]))).is_none() {
        return;
    }
    let found = super::hostile::openers_of(super::hostile::own_user());
    let Some(opener) = found.get(rng.usize(..found.len().max(1))).cloned() else { return };
    // It may have ended, or be another user's of the same number.
    let does = |program: &str, words: &[&str]| {
        let _ = Command::new(program).args(words).arg(&opener).stdout(Stdio::null()).stderr(Stdio::null()).status();
    };
    let records = Attr { sampling: Sampling::Period(1000), ..faults() };
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let tasks = tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let subscribe =
        Subscribe { scope: Scope::Tasks(tasks), attrs: vec![bytes_of(&records)], ring_bytes: 65_536, wake_bytes: 0 };
    if rng.u32(..4) == 0 {
        does("chrt", &["-i", "-p", "0"]);
    }
    does("kill", &["-STOP"]);
    conn.send(&encode_request(5, &Request::Open(on_task(own(), &[faults(); 16]))).unwrap());
    conn.send(&encode_request(6, &Request::Subscribe(subscribe)).unwrap());
    std::thread::sleep(Duration::from_millis(rng.u64(..250)));
    does("kill", &[if rng.u32(..4) == 0 { "-KILL" } else { "-CONT" }]);
    if rng.bool() {
        conn.receive();
    }
}

/// Counts a process of its own that executes a set-user-id program: what that does is not for this user.
fn set_user_id(socket: &Path, program: &Path) {
    let Some(mut conn) = client(socket) else { return };
    let words = role::of(program, &format!("touch:{SECRET_PAGES}"));
    // The shell waits for a line, so that the program begins while events are being opened.
    let script = "read line; exec \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).args(&words).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = shell.spawn().unwrap();
    let pid = child.id().cast_signed();
    // The program touches in a thread of its own.
    let attr = Attr { flags: faults().flags | AttrFlags::INHERIT, ..faults() };
    let mut handles = Vec::new();
    for turn in 0..40 {
        if turn == 10 {
            drop(child.stdin.take());
        }
        let Some(answer) = conn.try_ask(&Request::Open(on_task(pid, &[attr]))) else { break };
        if let Reply::Opened(opened) = answer.reply {
            conn.try_ask(&Request::Control { handle: opened.handles[0], op: EventOp::Enable });
            handles.push(opened.handles[0]);
        }
    }
    child.wait().unwrap();
    for handle in handles {
        let Some(answer) = conn.try_ask(&Request::Read { handles: vec![handle] }) else { return };
        if let Reply::Values { values } = answer.reply
            && let Some(Ok(moment)) = values.first()
            && moment.totals.value >= SECRET_PAGES as u64
        {
            eprintln!("LEAK: {} faults of a set-user-id program were counted", moment.totals.value);
            std::process::exit(7);
        }
    }
}
