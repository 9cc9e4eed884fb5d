//! A service in a folder of its own, and clients that say what they want, well or badly.
//!
//! Read first: [`Service`], [`ServiceClient`].
//!
//! **Invariant:** a service ends with its test, whatever becomes of that.

use super::{PMUX, eventually, folder_with, signal};
use pmux::abi::{Attr, AttrFlags, EventType, sw};
use pmux::server_api::shared::channel::{Channel, PacketBuffer, Received, Sent};
use pmux::server_api::shared::wire::{
    Context, Detail, EventOp, Handle, Hello, NEWEST_VERSION, Narrowing, Notice, OLDEST_VERSION, Open, Opened, OptIn,
    Part, Refusal, RefusalKind, Reply, Request, TimedTotals, Welcome, decode_reply, encode_request,
};
use pmux_linux::Errno;
use pmux_linux::spawn::{HeldChild, PerfEvents, SpawnOptions};
use serde_json::Value;
use std::fs::File;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// No wait lasts so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// `pmux serve`, running.
pub struct Service {
    child: Child,
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Service {
    /// With the defaults.
    pub fn start() -> Self {
        Self::with("")
    }

    /// With this configuration.
    pub fn with(config: &str) -> Self {
        Self::of(PMUX.as_ref(), config)
    }

    /// That of this program.
    pub fn of(program: &Path, config: &str) -> Self {
        // For clients of other users.
        let folder = folder_with(0o755);
        std::fs::write(folder.path().join("pmux.toml"), config).unwrap();
        let child = spawn(program, folder.path());
        let service = Self { child, folder, program: program.to_owned() };
        service.await_socket();
        service
    }

    /// With this configuration, where events of the kernel can be opened; otherwise the test is skipped.
    pub fn of_kernel(config: &str) -> Option<Self> {
        super::kernel().then(|| Self::with(config))
    }

    /// With this configuration, where root runs the tests; otherwise the test is skipped.
    pub fn of_root(config: &str) -> Option<Self> {
        super::root().then(|| Self::with(config))
    }

    /// As a shell starts it, in a folder of its own: `$0` is the program, which is to listen at `p.sock` there. What it says goes
    /// where the script lets it go.
    pub fn from_shell(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pmux.toml"), "").unwrap();
        let mut shell = Command::new("sh");
        pmux_testkit::marked(&mut shell).args(["-c", script, PMUX]).current_dir(&folder).env_remove("JOURNAL_STREAM");
        let child = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, folder, program: PMUX.into() }
    }

    /// Starts it anew where it was, after it was killed.
    pub fn start_again(&mut self) {
        self.child = spawn(&self.program, self.folder.path());
        self.await_socket();
    }

    /// Starts another one where it was, after it was stopped.
    pub fn replaced_by(&mut self, program: &Path) {
        self.program = program.to_owned();
        self.start_again();
    }

    fn await_socket(&self) {
        let channel = eventually("a service that listens", || {
            assert!(super::lives(self.pid()), "it ended: {}", self.log());
            // One that was killed leaves its file behind.
            Channel::connect(&self.socket()).ok()
        });
        // It answers only when it has all that it works with.
        let mut client = ServiceClient::of(channel);
        client.greet();
        // Otherwise it may still count among the clients of a test.
        client.leave();
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("p.sock")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it begins with next.
    pub fn configure_next(&self, text: &str) {
        std::fs::write(self.folder.path().join("pmux.toml"), text).unwrap();
    }

    pub fn configure(&self, text: &str) {
        self.configure_next(text);
        signal(&self.pid().to_string(), "HUP");
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until it has said this.
    pub fn says(&self, text: &str) {
        eventually(text, || self.log().contains(text).then_some(()));
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and answers its exit status.
    pub fn stop(&mut self) -> i32 {
        signal(&self.pid().to_string(), "TERM");
        self.end()
    }

    /// Waits until it has ended, and answers its exit status.
    pub fn end(&mut self) -> i32 {
        eventually("it ends", || self.child.try_wait().unwrap()).code().unwrap_or(-1)
    }

    /// How many files it has open.
    pub fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    pub fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// How many CPUs it sees.
    pub fn cpus(&self) -> u64 {
        pmux::CpuList::parse_kernel(self.status()["cpus"].as_str().unwrap()).unwrap().len() as u64
    }

    /// A client that has been greeted.
    pub fn client(&self) -> ServiceClient {
        ServiceClient::greeted(&self.socket())
    }

    /// A client that has not said anything yet.
    pub fn stranger(&self) -> ServiceClient {
        ServiceClient::connect(&self.socket())
    }

    /// How it is, as a client is told that asks for everything.
    pub fn status(&self) -> Value {
        self.client().status()
    }

    /// Waits until no client but the one that asks is connected, and nothing is open.
    pub fn is_empty(&self) {
        let mut conn = self.client();
        let mut last = Value::Null;
        let started = Instant::now();
        loop {
            let status = conn.status();
            if status["clients"]["connected"] == 1 && status["events"]["asked"] == 0 && status["events"]["kernel"] == 0
            {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "something is left: {last} {}", self.log());
            last = status;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the service said:\n{}", self.log());
        }
    }
}

fn spawn(program: &Path, folder: &Path) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = Command::new(program);
    pmux_testkit::marked(&mut command).args(["serve", "--config"]).arg(folder.join("pmux.toml"));
    command.arg("--socket").arg(folder.join("p.sock")).env_remove("JOURNAL_STREAM");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// `pmux stat -x, -e page-faults:u` as in a container: the kernel refuses it every event. What it says goes into a file.
pub fn where_all_is_refused(
    shared: &str,
    socket: &Path,
    sync_dir: &super::SyncDir,
    words: &[&str],
) -> pmux_linux::spawn::Child {
    let line = "out=$1 program=$2; shift 2; exec \"$program\" stat -o \"$out\" -e page-faults:u \"$@\"";
    let (shared, socket) = (format!("PMUX_SHARED={shared}"), format!("PMUX_SOCKET={}", socket.display()));
    let command = ["env", &shared, &socket, "sh", "-c", line, "sh", &sync_dir.text("out"), PMUX];
    let command: Vec<_> = command.iter().chain(words).map(std::ffi::OsString::from).collect();
    let mut options = SpawnOptions::default();
    options.perf_events = PerfEvents::Refused(Errno::EPERM);
    HeldChild::spawn(&command, options).unwrap().release().unwrap()
}

/// What comes back.
pub struct Answer {
    pub number: u32,
    pub reply: Reply,
    pub files: Vec<OwnedFd>,
}

/// A client.
pub struct ServiceClient {
    pub channel: Channel,
    buffer: PacketBuffer,
    next: u32,
    pub welcome: Option<Welcome>,
    pub page: Option<OwnedFd>,
    /// What came without being asked for.
    pub notices: Vec<Notice>,
}

impl ServiceClient {
    pub fn connect(path: &Path) -> Self {
        let started = Instant::now();
        let channel = loop {
            match Channel::connect(path) {
                Ok(channel) => break channel,
                // Too many at once.
                Err(_) if started.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(2)),
                Err(errno) => panic!("{}: {errno}", path.display()),
            }
        };
        Self::of(channel)
    }

    /// Connects, and is welcome.
    pub fn greeted(path: &Path) -> Self {
        let mut conn = Self::connect(path);
        conn.greet();
        conn
    }

    pub fn of(channel: Channel) -> Self {
        Self { channel, buffer: PacketBuffer::new(), next: 1, welcome: None, page: None, notices: Vec::new() }
    }

    pub fn greet(&mut self) {
        let mut answer = self.ask(&hello());
        let Reply::Welcome(welcome) = answer.reply else { panic!("{:?}", answer.reply) };
        self.page = answer.files.pop();
        self.welcome = Some(welcome);
    }

    /// Connects and says hello; the refusal where there is no place.
    pub fn try_connect(path: &Path) -> Result<Self, Refusal> {
        let mut conn = Self::connect(path);
        // It may be turned away before it has said anything.
        conn.send(&encode_request(1, &hello()).unwrap());
        match conn.receive().map(|answer| answer.reply) {
            Some(Reply::Welcome(_)) => Ok(conn),
            Some(Reply::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// Sends bytes as they are; `false` where there is no room.
    pub fn send(&self, bytes: &[u8]) -> bool {
        matches!(self.channel.send(bytes, &[]), Ok(Sent::Whole))
    }

    /// The next packet; `None` at the end.
    pub fn receive(&mut self) -> Option<Answer> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.channel.receive(&mut self.buffer, 64).unwrap() {
                Received::Packet(bytes, files) => {
                    let (number, reply) = decode_reply(self.buffer.bytes(bytes)).unwrap();
                    return Some(Answer { number, reply, files });
                }
                Received::End => return None,
                Received::Cut | Received::Stranger => panic!("a packet was cut"),
                Received::Nothing => assert!(self.channel.wait(until).unwrap(), "nothing comes"),
            }
        }
    }

    /// Asks and waits for the answer. Notices are kept.
    pub fn ask(&mut self, request: &Request) -> Answer {
        let number = self.next;
        self.next += 1;
        let packet = encode_request(number, request).unwrap();
        let started = Instant::now();
        while !self.send(&packet) {
            assert!(started.elapsed() < PATIENCE, "it takes nothing more, or has hung up: {request:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        loop {
            let answer = self.receive().unwrap_or_else(|| panic!("the service hung up on {request:?}"));
            match answer.reply {
                Reply::Notice(notice) => self.notices.push(notice),
                _ if answer.number == number => return answer,
                other => panic!("{other:?} instead of an answer to {number}"),
            }
        }
    }

    /// As [`ServiceClient::ask`]; `None` where the service hangs up, or takes nothing more for a while.
    pub fn try_ask(&mut self, request: &Request) -> Option<Answer> {
        let number = self.next;
        self.next += 1;
        let packet = encode_request(number, request).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        while self.channel.send(&packet, &[]).ok()? == Sent::NoRoom {
            if Instant::now() > until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        loop {
            match self.channel.receive(&mut self.buffer, 64).ok()? {
                Received::Packet(bytes, files) => {
                    let (answered, reply) = decode_reply(self.buffer.bytes(bytes)).ok()?;
                    match reply {
                        Reply::Notice(notice) => self.notices.push(notice),
                        reply if answered == number => return Some(Answer { number: answered, reply, files }),
                        // The end of something that was asked before.
                        _ => {}
                    }
                }
                Received::End | Received::Cut | Received::Stranger => return None,
                Received::Nothing => {
                    self.channel.wait(until).ok().filter(|&came| came)?;
                }
            }
        }
    }

    #[track_caller]
    pub fn open(&mut self, open: Open) -> Opened {
        match self.ask(&Request::Open(open)).reply {
            Reply::Opened(opened) => opened,
            other => panic!("{other:?}"),
        }
    }

    /// Opens one event, and enables it.
    #[track_caller]
    pub fn enabled(&mut self, open: Open) -> Handle {
        let handle = self.open(open).handles[0];
        self.does(handle, EventOp::Enable);
        handle
    }

    #[track_caller]
    pub fn refused(&mut self, request: &Request) -> Refusal {
        match self.ask(request).reply {
            Reply::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn does(&mut self, handle: Handle, op: EventOp) {
        assert_eq!(self.ask(&Request::Control { handle, op }).reply, Reply::Done);
    }

    #[track_caller]
    pub fn read(&mut self, handles: &[Handle]) -> Vec<TimedTotals> {
        match self.ask(&Request::Read { handles: handles.to_vec() }).reply {
            Reply::Values { values } => values.into_iter().map(|value| value.unwrap()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub fn close(&mut self, handles: &[Handle]) {
        assert_eq!(self.ask(&Request::Close { handles: handles.to_vec() }).reply, Reply::Done);
    }

    pub fn status(&mut self) -> Value {
        let mut text = Vec::new();
        let mut answer = self.ask(&Request::Status { detail: Detail::Full });
        loop {
            let Reply::StatusReport { part, text: more } = answer.reply else { panic!("{:?}", answer.reply) };
            text.extend(more);
            if part == Part::Last {
                return serde_json::from_slice(&text).unwrap();
            }
            answer = self.receive().unwrap();
        }
    }

    /// Waits for the end; everything that comes before is returned.
    pub fn until_the_end(&mut self) -> Vec<Reply> {
        std::iter::from_fn(|| self.receive()).map(|answer| answer.reply).collect()
    }

    /// Closes its end, and waits until the service has closed the other one.
    pub fn leave(mut self) {
        let socket = self.channel.as_fd().try_clone_to_owned().unwrap();
        UnixStream::from(socket).shutdown(Shutdown::Write).unwrap();
        self.until_the_end();
    }
}

pub fn hello() -> Request {
    Request::Hello(Hello {
        oldest_version: OLDEST_VERSION,
        newest_version: NEWEST_VERSION,
        name: "test".to_owned(),
        pid_namespace: 0,
    })
}

pub fn bytes_of(attr: &Attr) -> Vec<u8> {
    let mut bytes = [0; Attr::MAX_SIZE];
    let size = attr.encode(&mut bytes);
    bytes[..size].to_vec()
}

/// Page faults in user mode: every machine has them.
pub fn faults() -> Attr {
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    Attr { kind: EventType::SOFTWARE, config: sw::PAGE_FAULTS, flags, ..Attr::default() }
}

/// The time that a CPU counts.
pub fn cpu_clock() -> Attr {
    Attr { kind: EventType::SOFTWARE, config: sw::CPU_CLOCK, ..Attr::default() }
}

pub fn on_task(task: i32, attrs: &[Attr]) -> Open {
    open(Context::Task(task.unsigned_abs()), attrs)
}

pub fn on_cpu(cpu: u32, attrs: &[Attr]) -> Open {
    open(Context::Cpu(cpu), attrs)
}

/// The thread of this test: the harness runs each in one of its own.
pub fn own() -> i32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn open(context: Context, attrs: &[Attr]) -> Open {
    Open {
        context,
        narrowing: Narrowing::Everything,
        attrs: attrs.iter().map(bytes_of).collect(),
        files: OptIn::Wanted,
        entries: OptIn::Wanted,
    }
}

/// What a client may ask for, or not. Tracepoints are asked for by their numbers: not every user may read their names.
const QUESTIONS: &str =
    "page-faults:u page-faults task-clock cycles:u cycles r1c0:u mem:0x1000/4:w:u mem:0xffffffff81000000/8:x";

/// A role, `SOCKET,TASK...;TRACEPOINT...`: asks the kernel and the service for the same, and ends badly where their answers differ.
pub fn compares(arguments: &str) {
    use pmux::exact::{ExactTarget, GroupMode};
    let (arguments, tracepoints) = arguments.split_once(';').unwrap();
    let (socket, tasks) = arguments.split_once(',').unwrap();
    let mut conn = ServiceClient::greeted(Path::new(socket));
    let session = pmux::Session::with_backend(pmux::BackendChoice::Kernel).unwrap();
    let own = std::process::id().cast_signed();
    let mut places: Vec<ExactTarget> = tasks.split(',').map(|task| ExactTarget::Task(task.parse().unwrap())).collect();
    places.extend([ExactTarget::Task(own), ExactTarget::Cpu(0)]);
    let mut differences = 0;
    let named = QUESTIONS.split(' ').map(|name| pmux::Event::parse_with(name, session.catalog()).unwrap());
    let numbers = tracepoints.split(',').filter(|number| !number.is_empty());
    let numbered = numbers.flat_map(|number| {
        ["dummy", "dummy:u"].map(|dummy| {
            let mut event = pmux::Event::parse_with(dummy, session.catalog()).unwrap();
            (event.attr.kind, event.attr.config) = (EventType::TRACEPOINT, number.parse().unwrap());
            event
        })
    });
    for event in named.chain(numbered) {
        let (kind, config) = (event.attr.kind, event.attr.config);
        let question = format!("{:?} {config:#x} {:?}", kind, event.attr.flags);
        for &place in &places {
            let kernel = match session.open_exactly(std::slice::from_ref(&event), place, GroupMode::default()) {
                Ok(_) => Ok(()),
                Err(pmux::Error::Refused(refusals)) => Err(refusals[0].errno.unwrap_or_default()),
                Err(error) => panic!("{question} on {place:?}: {error}"),
            };
            let open = match place {
                ExactTarget::Task(task) => on_task(task, &[event.attr]),
                ExactTarget::Cpu(cpu) => on_cpu(cpu, &[event.attr]),
                ExactTarget::TaskOnCpu(..) => unreachable!(),
            };
            let mut answer = conn.ask(&Request::Open(open.clone())).reply;
            // The kernel takes long to refuse some tracepoints, and a user has so much of the service's time.
            while matches!(&answer, Reply::Refused(refusal) if refusal.kind() == RefusalKind::Limit) {
                std::thread::sleep(Duration::from_millis(500));
                answer = conn.ask(&Request::Open(open.clone())).reply;
            }
            let service = match answer {
                Reply::Opened(opened) => {
                    conn.close(&opened.handles);
                    Ok(())
                }
                Reply::Refused(refusal) => Err(refusal.errno),
                other => panic!("{other:?}"),
            };
            eprintln!("compared {question} on {place:?}: {kernel:?} {service:?}");
            // Which of two reasons is told first is no matter; what isn't there, or isn't allowed, stays so.
            if kernel.is_ok() != service.is_ok() {
                eprintln!("DIFFERENT: {question} on {place:?}: the kernel says {kernel:?}, the service {service:?}");
                differences += 1;
            }
        }
    }
    std::process::exit(if differences == 0 { 0 } else { 9 });
}

/// A role, `SOCKET`: asks for a CPU.
pub fn counts_cpus(socket: &str) {
    let mut conn = ServiceClient::greeted(Path::new(socket));
    match conn.ask(&Request::Open(on_cpu(0, &[cpu_clock()]))).reply {
        Reply::Opened(opened) => {
            conn.does(opened.handles[0], EventOp::Enable);
            eprintln!("opened with {} files", opened.files.len());
        }
        Reply::Refused(refusal) => eprintln!("refused: {:?} {}", refusal.kind(), refusal.errno),
        other => panic!("{other:?}"),
    }
}
