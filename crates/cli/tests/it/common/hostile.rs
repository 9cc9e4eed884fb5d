//! Users without rights that do harm to a service, as far as they can.
//!
//! What it is: roles, each of which says on standard error what came of it; [`as_user`] starts one as another user.

use super::records;
use super::role::{self, copy};
use super::service::{Service, ServiceClient, bytes_of, faults, on_task};
use super::{SyncDir, eventually, folder_with, set_mode, signal};
use pmux::abi::{Attr, AttrFlags, EventType};
use pmux::server_api::shared::channel::Sent;
use pmux::server_api::shared::wire::{Refusal, Reply, Request, Scope, Subscribe, encode_request};
use pmux::{Session, Subscription};
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Starts a role as another user. That user may not look into the build's folder, so it gets a copy of the program.
pub fn as_user(user: u32, role: &str) -> (Child, tempfile::TempDir) {
    let folder = folder_with(0o755);
    let program = folder.path().join("client");
    copy(&program);
    let mut command = role::command_of(&program, role);
    command.uid(user).gid(user).current_dir("/").stdout(Stdio::null()).stderr(Stdio::piped());
    (command.spawn().unwrap(), folder)
}

/// Starts a role as a root that has no capability, as one of a container may be; its folder is empty.
pub fn as_root_without_rights(role: &str) -> (Child, tempfile::TempDir) {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-all", "--inh-caps", "-all"]).args(role::words(role)).current_dir("/");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    (command.spawn().unwrap(), tempfile::tempdir().unwrap())
}

/// Waits until a role has ended well; what it has said.
pub fn said_by((child, _folder): (Child, tempfile::TempDir), service: &Service) -> String {
    said_in(&child.wait_with_output().unwrap(), service)
}

/// What a role that has ended well has said.
pub fn said_in(ran: &Output, service: &Service) -> String {
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}\n{}", service.log());
    said
}

/// A role, `SOCKET`: sends a file before it says hello, and after that.
pub fn sends_files(socket: &str) {
    let (file, mut other) = std::io::pipe().unwrap();
    let file: OwnedFd = file.into();
    for greets in [false, true] {
        let mut conn = ServiceClient::connect(Path::new(socket));
        if greets {
            conn.greet();
        }
        let ping = encode_request(9, &Request::Ping).unwrap();
        match conn.channel.send(&ping, &[file.as_fd()]) {
            Err(errno) => eprintln!("greeted {greets}: errno {}", errno.raw()),
            // Before Linux 6.16 it is noticed when it arrives.
            Ok(Sent::Whole) => {
                let replies = conn.until_the_end();
                assert!(matches!(replies[..], [Reply::Refused(_)]), "{replies:?}");
                eprintln!("greeted {greets}: cut off");
            }
            Ok(Sent::NoRoom) => panic!("there is no room for a first packet"),
        }
    }
    drop(file);
    let broken = eventually("every copy is closed", || other.write_all(b"x").err());
    assert_eq!(broken.kind(), std::io::ErrorKind::BrokenPipe);
}

/// Asks to open something, and answers the refusal.
pub fn refused(conn: &mut ServiceClient, request: &Request) -> Option<Refusal> {
    match conn.ask(request).reply {
        Reply::Refused(refusal) => Some(refusal),
        Reply::Opened(_) | Reply::Subscribed(_) => None,
        other => panic!("{other:?}"),
    }
}

/// A role, `SOCKET,DOOR`: takes as many connections, events and rings as it can get, and stays.
pub fn takes_all(arguments: &str) {
    let (socket, sync_dir) = arguments.split_once(',').unwrap();
    let (mut conns, mut last) = (Vec::new(), None);
    while last.is_none() {
        assert!(conns.len() < 10_000, "there is no limit of clients");
        match ServiceClient::try_connect(Path::new(socket)) {
            Ok(conn) => conns.push(conn),
            Err(refusal) => last = Some(refusal.text),
        }
    }
    let own = std::process::id().cast_signed();
    let (mut events, mut rings) = (0, 0);
    for conn in &mut conns {
        while refused(conn, &Request::Open(on_task(own, &vec![faults(); 16]))).is_none() {
            events += 16;
        }
        let scope = Scope::Tasks(vec![own.cast_unsigned()]);
        let records = Attr { sampling: pmux::abi::Sampling::Period(1000), ..faults() };
        let subscribe = Subscribe { scope, attrs: vec![bytes_of(&records)], ring_bytes: 65_536, wake_bytes: 0 };
        while refused(conn, &Request::Subscribe(subscribe.clone())).is_none() {
            rings += 1;
        }
    }
    let sync_dir = SyncDir::at(sync_dir);
    std::fs::write(sync_dir.path("here"), format!("{} {events} {rings}\n", conns.len())).unwrap();
    sync_dir.wait_for("leave");
}

/// A role, `SOCKET,FILE`: opens the tracepoints whose numbers are in a file, of itself, and leaves without closing them.
pub fn leaves_tracepoints(arguments: &str) {
    let (socket, file) = arguments.split_once(',').unwrap();
    let mut conn = ServiceClient::greeted(Path::new(socket));
    let own = std::process::id().cast_signed();
    let mut opened = 0;
    for number in std::fs::read_to_string(file).unwrap().split_whitespace() {
        let attr = Attr { kind: EventType::TRACEPOINT, config: number.parse().unwrap(), ..faults() };
        opened += usize::from(refused(&mut conn, &Request::Open(on_task(own, &[attr]))).is_none());
    }
    eprintln!("opened {opened}");
}

/// A role, `SOCKET`: counts something of itself.
pub fn counts(socket: &str) {
    let mut conn = ServiceClient::greeted(Path::new(socket));
    assert_eq!(refused(&mut conn, &Request::Open(on_task(std::process::id().cast_signed(), &[faults()]))), None);
    eprintln!("counted");
}

/// A role, `SOCKET,DOOR`: stops the opener that runs as its user, asks for an event and for records of all its threads, and lets it go on
/// when it is told to.
pub fn stops_its_opener(arguments: &str) {
    let (socket, sync_dir) = arguments.split_once(',').unwrap();
    let sync_dir = SyncDir::at(sync_dir);
    let own = std::process::id().cast_signed();
    for _ in 0..100 {
        std::thread::spawn(std::thread::park);
    }
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let threads = threads.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap()).collect();
    let mut conns = [(); 2].map(|()| ServiceClient::greeted(Path::new(socket)));
    assert_eq!(refused(&mut conns[0], &Request::Open(on_task(own, &[faults()]))), None);
    let opener = opener_of(own_user());
    signal(&opener, "STOP");
    let records = Attr { sampling: pmux::abi::Sampling::Period(1000), ..faults() };
    let subscribe =
        Subscribe { scope: Scope::Tasks(threads), attrs: vec![bytes_of(&records)], ring_bytes: 65_536, wake_bytes: 0 };
    for (conn, request) in
        conns.iter_mut().zip([Request::Subscribe(subscribe), Request::Open(on_task(own, &[faults()]))])
    {
        assert!(conn.send(&encode_request(7, &request).unwrap()));
    }
    sync_dir.post("asked");
    sync_dir.wait_for("go");
    signal(&opener, "CONT");
    let replies = conns.map(|mut conn| conn.receive().unwrap().reply);
    assert!(matches!(replies, [Reply::Subscribed(_), Reply::Opened(_)]), "{replies:?}");
    eprintln!("both were opened");
}

/// A role, `SOCKET,DOOR`: leaves while a request of it waits for an opener that stands.
pub fn leaves_its_opener(arguments: &str) {
    let (socket, sync_dir) = arguments.split_once(',').unwrap();
    let sync_dir = SyncDir::at(sync_dir);
    let own = std::process::id().cast_signed();
    let mut conn = ServiceClient::greeted(Path::new(socket));
    assert_eq!(refused(&mut conn, &Request::Open(on_task(own, &[faults()]))), None);
    let opener = opener_of(own_user());
    signal(&opener, "STOP");
    assert!(conn.send(&encode_request(7, &Request::Open(on_task(own, &[faults()]))).unwrap()));
    drop(conn);
    sync_dir.post("left");
    sync_dir.wait_for("go");
    // It ends with the last client that has these credentials.
    let _ = Command::new("kill").args(["-CONT", &opener]).stderr(Stdio::null()).status();
}

/// A role, `SOCKET,DOOR`: asks for records of itself and stops its opener, before CPU 1 comes; lets it go on when it is told to.
pub fn stops_its_opener_when_a_cpu_comes(arguments: &str) {
    let (socket, sync_dir) = arguments.split_once(',').unwrap();
    let sync_dir = SyncDir::at(sync_dir);
    let user_mode = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    let clock = Attr { flags: records::clock().flags | user_mode, ..records::clock() };
    let session = Session::with_service_at(socket).unwrap();
    let request = records::on_threads(vec![std::process::id().cast_signed()], clock);
    let mut subscription = Subscription::open(&session, &request).unwrap();
    subscription.enable().unwrap();
    let is_there = || subscription.numbers().unwrap().iter().any(|number| number.cpu == 1);
    assert!(!is_there(), "the CPU is offline");
    let opener = opener_of(own_user());
    signal(&opener, "STOP");
    sync_dir.post("stopped");
    sync_dir.wait_for("go");
    // After 10 s it is there no more, and another one opens what the CPU needs when it comes again.
    let _ = Command::new("kill").args(["-CONT", &opener]).status();
    eventually("it is recorded on CPU 1, too", || is_there().then_some(()));
    eprintln!("recorded on CPU 1");
}

/// The opener that runs as a user.
fn opener_of(user: u32) -> String {
    openers_of(user).pop().expect("an opener runs as this user")
}

pub fn own_user() -> u32 {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap())
}

pub fn openers_of(user: u32) -> Vec<String> {
    let is = |path: &Path| {
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        name == "pmux-opener\n" && is_run_by(path, user)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter(|path| is(path)).filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
}

/// Whether a process runs as a user: its files are root's, because nothing may look into it.
fn is_run_by(path: &Path, user: u32) -> bool {
    let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:\t"));
    line.is_some_and(|line| line.split('\t').all(|found| found == user.to_string()))
}

/// A folder in which every user may write.
pub fn open_door() -> SyncDir {
    let sync_dir = SyncDir::new();
    set_mode(sync_dir.path(""), 0o777);
    sync_dir
}
