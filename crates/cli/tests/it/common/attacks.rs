//! What a client without rights tries in order to see more than the kernel would show it.
//!
//! Read first: the tests of `serve_rights.rs`, which start these roles as other users.
//!
//! **Invariant:** a role says what came of it on standard error; the test judges.

use super::records::{clock, on_threads};
use super::role;
use super::service::{Service, ServiceClient, cpu_clock, faults, on_cpu, on_task};
use super::{Killed, eventually, hostile};
use pmux::abi::{Attr, AttrFlags, SampleFormat, Sampling, sw};
use pmux::server_api::shared::channel::Channel;
use pmux::server_api::shared::wire::{EventOp, Handle, Notice, Reply, Request, decode_reply, encode_request};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program with more rights computes for longer than this, in nanoseconds; what runs before its exec does not.
const ITS_TIME_NS: u64 = 40_000_000;

/// A role, `SOCKET,HELPER,ROUNDS`: counts processes of its own in the moment in which they execute a program with more rights.
pub fn races_exec(arguments: &str) {
    let [socket, helper, rounds] = arguments.splitn(3, ',').collect::<Vec<_>>()[..] else { panic!("{arguments}") };
    let mut conn = ServiceClient::greeted(Path::new(socket));
    let clock = Attr { config: sw::TASK_CLOCK, ..faults() };
    let (mut opened, mut refused, mut seen) = (0, 0, 0);
    for round in 0..rounds.parse::<u32>().unwrap() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read go; exec \"$0\" \"$@\""]).args([helper, "1", "20000000"]);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut go = child.stdin.take().unwrap();
        std::thread::sleep(Duration::from_millis(3));
        let open = Request::Open(on_task(child.id().cast_signed(), &[clock]));
        let packet = encode_request(1_000_000 + round, &open).unwrap();
        let most = [8000, 80_000, 700, 5000][round as usize % 4];
        let pause = Duration::from_micros(u64::from(round) * 9_973 % most);
        let wait = || {
            let from = Instant::now();
            while from.elapsed() < pause {
                std::hint::spin_loop();
            }
        };
        if round % 4 == 0 {
            assert!(conn.send(&packet));
            wait();
            go.write_all(b"\n").unwrap();
        } else {
            go.write_all(b"\n").unwrap();
            wait();
            assert!(conn.send(&packet));
        }
        let answer = conn.receive().unwrap();
        match answer.reply {
            Reply::Opened(group) => {
                opened += 1;
                conn.does(group.handles[0], EventOp::Enable);
                child.wait().unwrap();
                seen += u32::from(conn.read(&group.handles)[0].totals.value >= ITS_TIME_NS);
                conn.close(&group.handles);
            }
            Reply::Refused(_) => {
                refused += 1;
                child.wait().unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    eprintln!("opened {opened} refused {refused} seen {seen}");
}

/// What `secret.c` holds on its stack.
const SECRET: u64 = 0x53ec_2e7f_9a1b_d46c;

/// A role, `SOCKET,PROGRAM,WANTED`: samples user stacks of processes of its own before, while and after they execute a program, until
/// it has seen what that holds on its stack, or has had so many subscriptions.
pub fn samples_stacks(arguments: &str) {
    let [socket, program, wanted] = arguments.splitn(3, ',').collect::<Vec<_>>()[..] else { panic!("{arguments}") };
    let session = pmux::Session::with_service_at(socket).unwrap();
    let attr = Attr {
        sampling: Sampling::Period(100_000),
        sample: clock().sample | SampleFormat::STACK_USER,
        sample_stack_user: 2048,
        flags: clock().flags | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV,
        ..clock()
    };
    let (mut subscribed, mut refused, mut seen) = (0, 0, 0);
    for round in 0..1000_u64 {
        if seen > 0 || subscribed == wanted.parse::<u32>().unwrap() {
            break;
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", "read go; exec \"$0\""]).arg(program);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let subscribe = |child: &Child| {
            let question = on_threads(vec![child.id().cast_signed()], attr);
            let mut subscription = pmux::Subscription::open(&session, &question).ok()?;
            subscription.enable().ok()?;
            Some(subscription)
        };
        let mut subscription = None;
        if round % 4 == 0 {
            subscription = subscribe(&child);
        }
        input.write_all(b"go\n").unwrap();
        match round % 4 {
            0 => {}
            1 => {
                output.read_exact(&mut [0]).unwrap();
                subscription = subscribe(&child);
            }
            _ => {
                std::thread::sleep(Duration::from_micros(round * 397 % 4000));
                subscription = subscribe(&child);
            }
        }
        drop(input);
        child.wait().unwrap();
        let Some(mut subscription) = subscription else {
            refused += 1;
            continue;
        };
        subscribed += 1;
        subscription.disable().unwrap();
        let mut note = |record: &[u8]| seen += u32::from(record.windows(8).any(|word| word == SECRET.to_ne_bytes()));
        subscription.drain(&mut note).unwrap();
    }
    eprintln!("subscribed {subscribed} refused {refused} seen {seen}");
}

/// A role, `PROGRAM`, as root in a PID namespace of its own: a client of another user ends, its number becomes that of a process of
/// root's, and a child of the client asks for that process on the client's connection.
pub fn reuses_a_number(program: &str) {
    let service = Service::start();
    let sync_dir = hostile::open_door();
    let role = format!("leaves-its-connection:{},{},{program}", service.socket().display(), sync_dir.text(""));
    let mut client = role::command_of(Path::new(program), &role);
    client.uid(65_533).gid(65_533).current_dir("/").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut client = client.spawn().unwrap();
    let number = client.id();
    assert!(client.wait().unwrap().success());
    let _other = eventually("the number comes again", || {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).unwrap();
        let other = Killed(Command::new("sleep").arg("1000").stderr(Stdio::null()).spawn().unwrap());
        (other.0.id() == number).then_some(other)
    });
    sync_dir.post("go");
    // It ends with the client's child.
    let mut said = String::new();
    client.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    eprintln!("{said}");
    service.is_empty();
}

/// A role, `SOCKET,DOOR,PROGRAM`: counts itself, and ends; a child keeps the connection, and asks for the same when it is told to.
#[expect(clippy::zombie_processes, reason = "the child outlives this process")]
pub fn leaves_its_connection(arguments: &str) {
    let [socket, sync_dir, program] = arguments.splitn(3, ',').collect::<Vec<_>>()[..] else { panic!("{arguments}") };
    let mut conn = ServiceClient::greeted(Path::new(socket));
    let own = std::process::id().cast_signed();
    let opened = conn.open(on_task(own, &[faults()]));
    conn.close(&opened.handles);
    let mut asks = role::command_of(Path::new(program), &format!("asks-on-stdin:{own},{sync_dir}"));
    let stdin = Stdio::from(conn.channel.as_fd().try_clone_to_owned().unwrap());
    asks.stdin(stdin).spawn().unwrap();
}

/// A role, `TASK` or `TASK,DOOR`: asks on the connection that is its standard input, for a task, or (0) for CPU 0; where there is a
/// door, when it is told to.
pub fn asks_on_stdin(arguments: &str) {
    let (task, sync_dir) = arguments.split_once(',').unwrap_or((arguments, ""));
    let task = task.parse().unwrap();
    if !sync_dir.is_empty() {
        super::SyncDir::at(sync_dir).wait_for("go");
    }
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut stream = UnixStream::from(socket);
    stream.set_nonblocking(false).unwrap();
    let open = if task == 0 { on_cpu(0, &[cpu_clock()]) } else { on_task(task, &[faults()]) };
    stream.write_all(&encode_request(77, &Request::Open(open)).unwrap()).unwrap();
    let mut bytes = vec![0; 1 << 16];
    let read = stream.read(&mut bytes).unwrap();
    match decode_reply(&bytes[..read]).unwrap().1 {
        Reply::Refused(refusal) => eprintln!("refused: {}", refusal.text),
        other => eprintln!("ANSWERED: {other:?}"),
    }
}

/// A role, `SOCKET,PROGRAM,USER`: connects, and goes on as another user with the same connection.
pub fn connects_then_becomes(arguments: &str) {
    let [socket, program, user] = arguments.splitn(3, ',').collect::<Vec<_>>()[..] else { panic!("{arguments}") };
    let conn = ServiceClient::greeted(Path::new(socket));
    let user = user.parse().unwrap();
    let mut asks = role::command_of(Path::new(program), "asks-on-stdin:0");
    let stdin = Stdio::from(conn.channel.as_fd().try_clone_to_owned().unwrap());
    panic!("{}", asks.stdin(stdin).uid(user).gid(user).exec());
}

/// A role, `SOCKET`: connects as root, gives up root's capabilities, and asks.
pub fn connects_then_gives_up(socket: &str) {
    let conn = ServiceClient::greeted(Path::new(socket));
    let stdin = Stdio::from(conn.channel.as_fd().try_clone_to_owned().unwrap());
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-all", "--inh-caps", "-all"]).args(role::words("asks-on-stdin:0")).stdin(stdin);
    panic!("{}", command.exec());
}

/// A role, `SOCKET,DOOR`: connects and leaves, again and again, until it is told to stop.
pub fn floods(arguments: &str) {
    let (socket, door) = arguments.split_once(',').unwrap();
    let (socket, door) = (Path::new(socket), Path::new(door));
    while !door.join("leave").exists() && door.exists() {
        (0..2000).for_each(|_| drop(Channel::connect(socket)));
        let _ = std::fs::write(door.join("floods"), "it\n");
    }
}

/// A role, `SOCKET,DOOR`: counts CPU 0 until it is told that it may no more, or killed.
pub fn holds_a_cpu(arguments: &str) {
    let (socket, sync_dir) = arguments.split_once(',').unwrap();
    let mut conn = ServiceClient::greeted(Path::new(socket));
    let opened = conn.open(on_cpu(0, &[faults()]));
    let leader: Handle = opened.handles[0];
    conn.does(leader, EventOp::Enable);
    std::fs::write(Path::new(sync_dir).join("here"), format!("{}\n", opened.files.len())).unwrap();
    while let Some(answer) = conn.receive() {
        if let Reply::Notice(Notice::Lost { handles, why }) = answer.reply {
            assert_eq!(handles, [leader]);
            assert!(matches!(conn.ask(&Request::Read { handles }).reply, Reply::Refused(_)));
            eprintln!("lost: {why}");
            return;
        }
    }
}
