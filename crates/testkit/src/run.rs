//! Programs under test: starting them, and what they did.
//!
//! **Invariant:** a program that hangs is ended, and the test fails.

use crate::{Killed, PATIENCE, marked, signal};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A command that is about to be started.
pub struct Start {
    /// As it will be started.
    pub command: Command,
    input: Option<Vec<u8>>,
}

/// Any program, in the same surroundings.
pub fn start<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = A>) -> Start {
    let mut command = Command::new(program);
    marked(&mut command).args(arguments).env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR").env_remove("PMUX_BACKEND");
    // Whatever service this machine has, and whatever was found out before.
    command.env("PMUX_SHARED", "never").env_remove("PMUX_SOCKET");
    command.env("XDG_CACHE_HOME", std::env::temp_dir().join("pmux-test-cache"));
    Start { command, input: None }
}

impl Start {
    /// Adds words.
    pub fn args<A: AsRef<OsStr>>(mut self, more: impl IntoIterator<Item = A>) -> Self {
        self.command.args(more);
        self
    }

    /// Sets a variable.
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

    /// Starts it.
    pub fn spawn(mut self) -> Running {
        let stdin = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        self.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        if let (Some(bytes), Some(mut pipe)) = (self.input.take(), child.stdin.take()) {
            // A command that doesn't read to the end is its own affair.
            std::thread::spawn(move || pipe.write_all(&bytes));
        }
        let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
        Running { child: Killed(child), out, err }
    }

    /// Runs it to its end.
    pub fn run(self) -> CommandResult {
        self.spawn().wait()
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    let mut pipe = pipe.unwrap();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// A command that runs; it is killed where a test fails before its end.
pub struct Running {
    /// The process.
    pub child: Killed,
    out: JoinHandle<Vec<u8>>,
    err: JoinHandle<Vec<u8>>,
}

impl Running {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Sends a signal to the process, not to its group.
    pub fn signal(&self, name: &str) {
        signal(&self.pid().to_string(), name);
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// After [`PATIENCE`], when it was killed.
    pub fn wait(mut self) -> CommandResult {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > PATIENCE {
                drop(self.child);
                panic!("it hangs; so far: {}", String::from_utf8_lossy(&self.err.join().unwrap()));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let (out, err) = (self.out.join().unwrap(), self.err.join().unwrap());
        CommandResult { status, err: String::from_utf8_lossy(&err).into_owned(), out }
    }
}

/// What a command did.
#[derive(Debug)]
pub struct CommandResult {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: Vec<u8>,
    /// Its standard error.
    pub err: String,
}

impl CommandResult {
    /// The exit status as a shell would show it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap())
    }

    /// Its standard output as text.
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

    /// Its standard output as one value of JSON.
    #[track_caller]
    pub fn document(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The lines of JSON.
    #[track_caller]
    pub fn json(&self) -> Vec<serde_json::Value> {
        let lines = self.err.lines().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }
}
