//! What a client without rights tries in order to see more than the kernel would show it.
//!
//! Read first: the tests of `serve_rights.rs`, which start these roles as other users.
//!
//! **Invariant:** a role says what came of it on standard error; the test judges.

use super::role;
use super::service::{Asker, faults, on_cpu, on_task};
use pmux::serving::abi::{Attr, EventType, sw};
use pmux::serving::shared::wire::{Handle, Notice, Reply, Request, Verb, decode_reply, encode_request};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The program with more rights computes for longer than this, in nanoseconds; what runs before its exec does not.
const ITS_TIME_NS: u64 = 40_000_000;

/// A role, `SOCKET,HELPER,ROUNDS`: counts processes of its own in the moment in which they execute a program with more rights.
pub fn races_exec(arguments: &str) {
    let [socket, helper, rounds] = arguments.splitn(3, ',').collect::<Vec<_>>()[..] else { panic!("{arguments}") };
    let mut asker = Asker::connect(Path::new(socket));
    asker.greet();
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
            assert!(asker.send(&packet));
            wait();
            go.write_all(b"\n").unwrap();
        } else {
            go.write_all(b"\n").unwrap();
            wait();
            assert!(asker.send(&packet));
        }
        let answer = asker.receive().unwrap();
        match answer.reply {
            Reply::Opened(group) => {
                opened += 1;
                asker.does(group.handles[0], Verb::Enable);
                child.wait().unwrap();
                seen += u32::from(asker.read(&group.handles)[0].totals.value >= ITS_TIME_NS);
                asker.close(&group.handles);
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

/// A role: asks on the connection that is its standard input, for a task, or (0) for CPU 0.
pub fn asks_on_stdin(task: i32) {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut stream = UnixStream::from(socket);
    stream.set_nonblocking(false).unwrap();
    let clock = Attr { kind: EventType::SOFTWARE, config: sw::CPU_CLOCK, ..Attr::default() };
    let open = if task == 0 { on_cpu(0, &[clock]) } else { on_task(task, &[faults()]) };
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
    let mut asker = Asker::connect(Path::new(socket));
    asker.greet();
    let user = user.parse().unwrap();
    let words = role::of(Path::new(program), "asks-on-stdin:0");
    let stdin = Stdio::from(asker.channel.as_fd().try_clone_to_owned().unwrap());
    panic!("{}", Command::new(&words[0]).args(&words[1..]).stdin(stdin).uid(user).gid(user).exec());
}

/// A role, `SOCKET,DOOR`: counts CPU 0 until it is told that it may no more, or killed.
pub fn holds_a_cpu(arguments: &str) {
    let (socket, door) = arguments.split_once(',').unwrap();
    let mut asker = Asker::connect(Path::new(socket));
    asker.greet();
    let opened = asker.open(on_cpu(0, &[faults()]));
    let leader: Handle = opened.handles[0];
    asker.does(leader, Verb::Enable);
    std::fs::write(Path::new(door).join("here"), format!("{}\n", opened.files.len())).unwrap();
    while let Some(answer) = asker.receive() {
        if let Reply::Notice(Notice::Lost { handles, why }) = answer.reply {
            assert_eq!(handles, [leader]);
            assert!(matches!(asker.ask(&Request::Read { handles }).reply, Reply::Refused(_)));
            eprintln!("lost: {why}");
            return;
        }
    }
}
