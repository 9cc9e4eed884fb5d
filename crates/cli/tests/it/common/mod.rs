//! What the black-box tests share: starting the command, reading what it says, skipping.
//!
//! Read first: [`pmux`] and [`Ran`]; the programs that are measured are in [`role`].
//!
//! **Invariant:** nobody waits for a time to pass, but for something to happen; a command that hangs is ended, and the test
//! fails. A test that can't run here says so, and says what it needs.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

#[path = "../../../pmux/tests/common/alone.rs"]
pub mod alone;
pub mod attacks;
pub mod bank;
pub mod hostile;
pub mod mixture;
pub mod records;
pub mod role;
pub mod service;

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The command under test.
pub const PMUX: &str = env!("CARGO_BIN_EXE_pmux");
/// Nothing that is tested takes so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The machine has few debug registers: tests that take some wait for each other.
pub fn debug_registers() -> std::fs::File {
    alone::alone("pmux-test-breakpoints.lock")
}

/// Whether a test may go on. If not, the skip is printed; where `PMUX_REQUIRE` lists `class`, it is a failure.
pub fn needs(class: &str, what: &str, there: bool) -> bool {
    if there {
        return true;
    }
    let required = std::env::var("PMUX_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == class), "PMUX_REQUIRE={required}, but here is no {what}");
    println!("skipped: needs {what}");
    false
}

/// Whether performance events can be opened here, asked without the command.
pub fn kernel() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    let there = *THERE.get_or_init(|| pmux::Session::with_backend(pmux::BackendChoice::Kernel).is_ok());
    needs("kernel", "performance events", there)
}

/// Whether this user may count what his own programs do in the kernel.
pub fn kernel_mode() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    let may = *MAY.get_or_init(|| {
        let session = pmux::Session::new().unwrap();
        let event = pmux::Event::parse_with("page-faults:k", session.catalog()).unwrap();
        matches!(session.probe(&event, &pmux::Target::CurrentThread), Ok(pmux::Probe::Opens))
    });
    kernel() && needs("root", "the right to count in the kernel", may)
}

/// Whether the tests run as root, with the right to count everything.
pub fn root() -> bool {
    let root = std::fs::OpenOptions::new().append(true).open("/proc/sys/kernel/perf_event_paranoid").is_ok();
    needs("root", "root", root) && kernel()
}

/// Whether tracepoints can be looked up: nobody but the system mounts what they stand in.
pub fn tracefs() -> bool {
    let places = ["/sys/kernel/tracing/events/sched", "/sys/kernel/debug/tracing/events/sched"];
    let there = places.iter().any(|place| Path::new(place).exists());
    needs("tracefs", "tracefs, mounted on /sys/kernel/tracing", there)
}

/// Whether tasks report here what they have counted when they exit.
pub fn reports() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    let there = || {
        let ran = stat(["--tree", "-e", "page-faults:u", "--", "sh", "-c", "(:); :"]).run().good();
        !ran.err.contains("this kernel does not report what processes have counted")
    };
    kernel()
        && needs(
            "reports",
            "a kernel whose tasks report what they have counted when they exit",
            *THERE.get_or_init(there),
        )
}

/// Whether there is a hardware PMU.
pub fn has_pmu() -> bool {
    let session = pmux::Session::new().unwrap();
    let event = pmux::Event::parse_with("cycles:u", session.catalog()).unwrap();
    matches!(session.probe(&event, &pmux::Target::CurrentThread), Ok(pmux::Probe::Opens))
}

/// Whether the perf that outputs are compared with is there, and works.
pub fn perf() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    let there = *THERE.get_or_init(|| {
        let version = Command::new("perf").arg("--version").output();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let works = Command::new("perf").args(["stat", "-x,", "-e", "page-faults", "true"]).output();
        version.contains("version 6.1.") && works.is_ok_and(|output| output.status.success())
    });
    needs("perf", "perf 6.1", there)
}

/// Whether a program is installed.
pub fn is_installed(name: &str) -> bool {
    in_path(name).is_some()
}

/// Where a program is found.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Whether a program is installed that a test needs.
pub fn program(name: &str) -> bool {
    needs(name, name, is_installed(name))
}

/// A command that is about to be started.
pub struct Start {
    pub command: Command,
    input: Option<Vec<u8>>,
}

/// The command under test with these arguments.
pub fn pmux<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Start {
    start(PMUX, arguments)
}

/// `pmux stat` with these arguments.
pub fn stat<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Start {
    let mut start = pmux(["stat"]);
    start.command.args(arguments);
    start
}

/// Any program, in the same surroundings.
pub fn start<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = A>) -> Start {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").env_remove("NO_COLOR").env_remove("PMUX_BACKEND");
    // Whatever service this machine has, and whatever was found out before.
    command.env("PMUX_SHARED", "never").env_remove("PMUX_SOCKET");
    command.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
    Start { command, input: None }
}

impl Start {
    pub fn args<A: AsRef<OsStr>>(mut self, more: impl IntoIterator<Item = A>) -> Self {
        self.command.args(more);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// What the command reads from its standard input; without it, nothing.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// In a process group of its own, so that a test may send signals to all of it.
    pub fn group(mut self) -> Self {
        self.command.process_group(0);
        self
    }

    pub fn spawn(mut self) -> Running {
        let stdin = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        self.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        if let (Some(bytes), Some(mut pipe)) = (self.input.take(), child.stdin.take()) {
            // A command that doesn't read to the end is its own affair.
            std::thread::spawn(move || pipe.write_all(&bytes));
        }
        let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
        Running { child, out, err }
    }

    pub fn run(self) -> Ran {
        self.spawn().wait()
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).unwrap();
        }
        bytes
    })
}

/// A command that runs.
pub struct Running {
    pub child: Child,
    out: JoinHandle<Vec<u8>>,
    err: JoinHandle<Vec<u8>>,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        signal(&self.pid().to_string(), name);
    }

    pub fn wait(mut self) -> Ran {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("it hangs; so far: {}", String::from_utf8_lossy(&self.err.join().unwrap()));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let text = |bytes: JoinHandle<Vec<u8>>| bytes.join().unwrap();
        let (out, err) = (text(self.out), text(self.err));
        Ran { status, err: String::from_utf8_lossy(&err).into_owned(), out }
    }
}

/// Sends a signal to a process, or with a minus to a group.
pub fn signal(to: &str, name: &str) {
    let status = Command::new("kill").args(["-s", name, "--", to]).status().unwrap();
    assert!(status.success(), "kill -s {name} {to}");
}

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub out: Vec<u8>,
    pub err: String,
}

impl Ran {
    /// The exit status as a shell would show it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    /// It ended well.
    #[track_caller]
    pub fn good(self) -> Self {
        assert_eq!(self.code(), 0, "{}", self.err);
        self
    }

    /// It ended with this status, and said this.
    #[track_caller]
    pub fn bad(self, code: i32, says: &[&str]) -> Self {
        assert_eq!(self.code(), code, "{}", self.err);
        self.says(says)
    }

    /// All of this stands in what it said, wherever lines end.
    #[track_caller]
    pub fn says(self, texts: &[&str]) -> Self {
        let unwrapped = self.err.split_whitespace().collect::<Vec<_>>().join(" ");
        for text in texts {
            assert!(self.err.contains(text) || unwrapped.contains(text.trim()), "{text:?} is not in:\n{}", self.err);
        }
        self
    }

    /// None of this stands in what it said.
    #[track_caller]
    pub fn never_says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(!self.err.contains(text), "{text:?} is in:\n{}", self.err);
        }
        self
    }

    /// The lines of `-x,` as fields.
    pub fn rows(&self) -> Vec<Vec<&str>> {
        let lines = self.err.lines().filter(|line| line.contains(',') && !line.starts_with(['#', ' ', 'p']));
        lines.map(|line| line.split(',').collect()).collect()
    }

    /// The sum of an event's values over the rows of `-x,`, which must be numbers.
    #[track_caller]
    pub fn value(&self, event: &str) -> f64 {
        let rows = self.rows();
        let own = rows.iter().filter_map(|row| {
            let at = row.iter().position(|field| *field == event)?;
            Some(row[at - 2])
        });
        let own: Vec<f64> =
            own.map(|text| text.parse().unwrap_or_else(|_| panic!("{event} is {text}:\n{}", self.err))).collect();
        assert!(!own.is_empty(), "there is no {event} in:\n{}", self.err);
        own.iter().sum()
    }

    /// The lines of JSON.
    #[track_caller]
    pub fn json(&self) -> Vec<serde_json::Value> {
        let lines = self.err.lines().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }
}

/// Waits until something is there.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: it never happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A folder in which files say how far somebody is; it goes away with the test.
pub struct Door {
    folder: tempfile::TempDir,
}

impl Door {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Waits until somebody has written a file, and returns what stands in it.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        eventually(name, || std::fs::read_to_string(self.path(name)).ok().filter(|text| text.ends_with('\n')))
            .trim_end()
            .to_owned()
    }

    pub fn say(&self, name: &str) {
        std::fs::write(self.path(name), "\n").unwrap();
    }
}

/// Whether a process is there, zombies not included.
pub fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !matches!(rest.trim_start().as_bytes().first(), Some(b'Z' | b'X')))
}

/// The processes in whose environment this stands.
pub fn with_environment(entry: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        if environment.split(|&byte| byte == 0).any(|line| line == entry.as_bytes()) && lives(pid) {
            found.push(pid);
        }
    }
    found
}

/// Words of a command line, with those of another command behind them.
pub fn words<A: AsRef<OsStr>>(line: &[A], command: Vec<OsString>) -> Vec<OsString> {
    line.iter().map(|word| word.as_ref().to_owned()).chain(command).collect()
}

/// Whether commands are programs of their own; if not, that is a skip. A copy under another name of one program for all commands
/// (BusyBox) does not know what it is.
pub fn commands_are_programs() -> bool {
    let file = in_path("sleep").and_then(|path| path.canonicalize().ok());
    let are = file.is_some_and(|path| path.ends_with("sleep"));
    if !are {
        println!("skipped: needs commands that are programs of their own");
    }
    are
}

/// A copy of a program under another name.
pub fn copy_of(program: &str, to: &Path) {
    // By another process: one that a test of another thread forks meanwhile would inherit the file as it is written, and while
    // it is, nobody can execute it.
    assert!(Command::new("cp").arg(in_path(program).unwrap()).arg(to).status().unwrap().success());
}

/// A control group of the second version that goes away with the test.
pub struct Cgroup {
    pub path: PathBuf,
}

impl Cgroup {
    pub fn new(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let mount = mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            (fields[2] == "cgroup2").then(|| fields[1].to_owned())
        });
        let path = mount.map(|mount| Path::new(&mount).join(format!("pmux-test-{name}-{}", std::process::id())));
        let made = path.filter(|path| std::fs::create_dir(path).is_ok()).map(|path| Self { path });
        needs("cgroup", "a control group of its own", made.is_some());
        made
    }

    pub fn name(&self) -> &str {
        self.path.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..1000 {
            // It may take a moment until a process that has ended is out.
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// So many events that anybody may count and no two of which ask the same, separated by commas.
pub fn distinct(count: usize) -> String {
    let names = [
        "page-faults",
        "minor-faults",
        "major-faults",
        "context-switches",
        "cpu-migrations",
        "cpu-clock",
        "task-clock",
    ];
    let modifiers = ["u", "uh", "uH", "uhH", "uI", "uhI", "uHI", "uhHI"];
    let all: Vec<_> = modifiers.iter().flat_map(|modifier| names.map(|name| format!("{name}:{modifier}"))).collect();
    assert!(all.len() >= count, "{} are known", all.len());
    all[..count].join(",")
}

/// Whether this is Linux of that version, or a later one.
pub fn linux_is_at_least(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.trim().parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// How a browser is started that nobody sees, and that asks nobody for anything.
pub const BROWSER: [&str; 7] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// Records the page faults of a program with their stacks, each one a sample: every machine has them, and each run has the same.
pub fn record_faults(file: &Path, options: &[&str], program: impl IntoIterator<Item = OsString>) {
    let mut words: Vec<OsString> = ["record", "-q", "-g", "-e", "page-faults:u", "-c", "1"].map(OsString::from).into();
    words.extend(options.iter().map(OsString::from));
    words.extend(["-o".into(), file.into(), "--".into()]);
    words.extend(program);
    pmux(words).run().good();
}
