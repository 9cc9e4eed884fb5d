//! What the black-box tests share: starting the command, reading what it says, skipping.
//!
//! Read first: [`pmux`] and [`Ran`]; what other crates use too is in `crates/testkit`.
//!
//! **Invariant:** a command that hangs is ended, and the test fails.
// A benchmark uses some of it.
#![allow(dead_code, unused_imports, unreachable_pub, clippy::unwrap_used)]

pub mod attacks;
pub mod bank;
pub mod hostile;
pub mod mixture;
pub mod records;
pub mod roles;
pub mod service;

pub use pmux_testkit::{
    Cgroup, DEBUG_REGISTERS, Door, PATIENCE, commands_are_programs, copy_of, eventually, is_installed, lives, lock,
    needs, program, role, signal, with_environment,
};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The command under test.
pub const PMUX: &str = env!("CARGO_BIN_EXE_pmux");

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
    pmux_testkit::marked(&mut command)
        .args(arguments)
        .env("LC_ALL", "C")
        .env_remove("NO_COLOR")
        .env_remove("PMUX_BACKEND");
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
        Running { child, out: Some(out), err: Some(err) }
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

/// A command that runs; it is killed where a test fails before its end.
pub struct Running {
    pub child: Child,
    out: Option<JoinHandle<Vec<u8>>>,
    err: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        signal(&self.pid().to_string(), name);
    }

    pub fn wait(mut self) -> Ran {
        let text = |bytes: &mut Option<JoinHandle<Vec<u8>>>| {
            bytes.take().map(|bytes| bytes.join().unwrap()).unwrap_or_default()
        };
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("it hangs; so far: {}", String::from_utf8_lossy(&text(&mut self.err)));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let (out, err) = (text(&mut self.out), text(&mut self.err));
        Ran { status, err: String::from_utf8_lossy(&err).into_owned(), out }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
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

/// Words of a command line, with those of another command behind them.
pub fn words<A: AsRef<OsStr>>(line: &[A], command: Vec<OsString>) -> Vec<OsString> {
    line.iter().map(|word| word.as_ref().to_owned()).chain(command).collect()
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
