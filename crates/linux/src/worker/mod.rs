//! Workers: tasks that do what they are told, so that it is known what is to be counted of them.
//!
//! What it is: [`Worker`] is a process or a thread that runs for so much CPU time, touches so many fresh pages, accesses an
//! address, forks, executes and exits on order, and does nothing in between. A program that wants workers calls
//! [`serve_if_asked`] first thing in its `main`: a worker is the same program, started again.
//! Read first: [`Stage`], then [`Worker`]; what a worker does inside is in `crate::sys::worker`.
//!
//! What is known of a worker is exact for page faults and accesses: all of its memory is there before the first order. Its CPU
//! time holds a few microseconds for each order beside what was asked for.
//!
//! **Invariant:** no worker outlives its [`Worker`], however the program ends.

mod inside;

pub use inside::serve_if_asked;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};

use crate::spawn::Child;
use crate::sys::worker::{WorkerAnswer, WorkerPacket, receive, send};
use crate::sys::{self, Errno};

pub use crate::sys::worker::{ChildKind, INSTRUCTIONS_PER_ROUND, Order, Touching};

/// The word that makes the program a worker.
const WORD: &str = "sim-worker";

/// Where the workers' memory for accesses begins: a place that every 64-bit Linux leaves free.
pub const BASE: u64 = 0x10_0000_0000;

/// The time on the clock of the counts, in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    sys::clock::monotonic_ns()
}

/// Bytes of a page: each of them is a page fault when it is touched first.
#[must_use]
pub fn page_bytes() -> u64 {
    sys::page_bytes() as u64
}

/// What all workers of a run share: how they are started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Pages for accesses, from [`BASE`] on.
    pub pages: u32,
    /// Whether these pages can be executed.
    pub code: Code,
    /// How many children each process can start; each needs a number of its own below this.
    pub children: u32,
}

/// Whether memory can be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// It can: a return stands wherever an instruction can begin.
    Runs,
    /// It can't.
    No,
}

/// Why a worker can't be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerError {
    /// It was not started.
    NotStarted(String),
    /// It has ended, as this says.
    Ended(Option<ExitStatus>),
    /// It can't do what it was told.
    Refused(Errno),
    /// The socket failed.
    Channel(Errno),
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(why) => write!(f, "it could not be started: {why}"),
            Self::Ended(Some(status)) => match std::os::unix::process::ExitStatusExt::signal(status) {
                Some(signal) => write!(f, "it was killed by signal {signal}"),
                None => write!(f, "it ended by itself ({status})"),
            },
            Self::Ended(None) => f.write_str("it ended by itself"),
            Self::Refused(errno) => write!(f, "{errno}"),
            Self::Channel(errno) => write!(f, "its socket failed: {errno}"),
        }
    }
}

impl std::error::Error for WorkerError {}

/// What a worker did by an order, by its own knowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkDone {
    /// CPU time since the last answer, with what waiting for the order has cost.
    pub cpu_ns: u64,
    /// Rounds of the known loop: see [`INSTRUCTIONS_PER_ROUND`].
    pub rounds: u64,
    /// Fresh pages that it touched.
    pub pages: u64,
    /// Accesses that it made.
    pub accesses: u64,
    /// The user that it runs as since.
    pub user: u32,
}

#[derive(Debug)]
enum TaskHandle {
    /// A process, which is to be waited for.
    Process(Child),
    /// A thread of a process that is another worker.
    Thread,
    /// It was waited for.
    Over(Option<ExitStatus>),
}

/// A task that does what it is told. Dropped, a process is killed.
#[derive(Debug)]
pub struct Worker {
    channel: UnixStream,
    task: TaskHandle,
    pid: i32,
    tid: i32,
    cpu_ns: u64,
}

impl Worker {
    /// Starts a process.
    ///
    /// # Errors
    /// [`WorkerError::NotStarted`], also where its memory can't be had; [`WorkerError::Ended`].
    pub fn start(stage: &Stage) -> Result<Self, WorkerError> {
        let failed = |error: std::io::Error| WorkerError::NotStarted(error.to_string());
        let (channel, theirs) = UnixStream::pair().map_err(failed)?;
        sys::stop_ignoring_children();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("pmux").args(inside::words(stage));
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::inherit());
        // Not in our group of processes: what a terminal sends to that is for us to decide on.
        command.process_group(0);
        let child = command.spawn().map_err(failed)?;
        let pid = child.id().cast_signed();
        // The command holds its copy of the other end.
        drop(command);
        let mut worker = Self { channel, task: TaskHandle::Process(Child::new(pid)), pid, tid: pid, cpu_ns: 0 };
        worker.meet()?;
        Ok(worker)
    }

    /// The thread.
    #[must_use]
    pub const fn tid(&self) -> i32 {
        self.tid
    }

    /// The process.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// A descriptor that is readable when the worker has answered, or has ended.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Tells it what to do. It does it at once, and answers when it has.
    ///
    /// # Errors
    /// [`WorkerError::Ended`], [`WorkerError::Channel`].
    pub fn tell(&mut self, order: Order) -> Result<(), WorkerError> {
        self.tell_with(order, None)
    }

    /// Tells it to execute another copy of its own program.
    ///
    /// # Errors
    /// As [`Worker::tell`].
    pub fn tell_exec(&mut self, copy: Option<BorrowedFd<'_>>) -> Result<(), WorkerError> {
        self.tell_with(Order::Exec, copy)
    }

    fn tell_with(&mut self, order: Order, fd: Option<BorrowedFd<'_>>) -> Result<(), WorkerError> {
        match send(self.channel.as_fd(), &order.encode(), fd) {
            Ok(()) => Ok(()),
            Err(Errno::EPIPE | Errno::ECONNRESET) => Err(self.ended()),
            Err(errno) => Err(WorkerError::Channel(errno)),
        }
    }

    /// Takes its answer, for which it waits.
    ///
    /// # Errors
    /// [`WorkerError::Refused`] where it can't do what it was told; [`WorkerError::Ended`], [`WorkerError::Channel`].
    pub fn answer(&mut self) -> Result<WorkDone, WorkerError> {
        self.take().map(|(work_done, _)| work_done)
    }

    fn take(&mut self) -> Result<(WorkDone, i32), WorkerError> {
        let answer = match receive(self.channel.as_fd()) {
            Ok(WorkerPacket::Message(message, _)) => WorkerAnswer::decode(message),
            Ok(WorkerPacket::End) => return Err(self.ended()),
            Err(errno) => return Err(WorkerError::Channel(errno)),
        };
        let cpu_ns = answer.cpu_ns.saturating_sub(self.cpu_ns);
        self.cpu_ns = answer.cpu_ns;
        (self.tid, self.pid) = (answer.tid, answer.pid);
        if answer.errno != 0 {
            return Err(WorkerError::Refused(Errno::from_raw(answer.errno)));
        }
        let WorkerAnswer { rounds, pages, accesses, user, child, .. } = answer;
        Ok((WorkDone { cpu_ns, rounds, pages, accesses, user }, child))
    }

    /// Takes the first answer, in which it says who it is.
    fn meet(&mut self) -> Result<WorkDone, WorkerError> {
        match self.answer() {
            Err(WorkerError::Ended(Some(status))) if status.code() == Some(inside::NOT_READY) => {
                Err(WorkerError::NotStarted("it could not make itself ready".into()))
            }
            other => other,
        }
    }

    /// Lets it start a child, on the stack with this number; answers the child, what the child did until it was ready, and
    /// what the parent did.
    ///
    /// # Errors
    /// As [`Worker::answer`].
    pub fn fork(&mut self, child_kind: ChildKind, stack: u32) -> Result<(Self, WorkDone, WorkDone), WorkerError> {
        let (channel, theirs) =
            UnixStream::pair().map_err(|error| WorkerError::NotStarted(format!("it has no socket: {error}")))?;
        self.tell_with(Order::Fork { stack, child_kind }, Some(theirs.as_fd()))?;
        drop(theirs);
        let (work_done, child) = self.take()?;
        let task = match child_kind {
            ChildKind::Process => TaskHandle::Process(Child::new(child)),
            ChildKind::Thread => TaskHandle::Thread,
        };
        let mut child = Self { channel, task, pid: self.pid, tid: child, cpu_ns: 0 };
        let born = child.meet()?;
        Ok((child, born, work_done))
    }

    /// Lets it end, and waits until its events have been taken from it; answers what it did until then.
    ///
    /// # Errors
    /// As [`Worker::answer`].
    pub fn exit(&mut self) -> Result<WorkDone, WorkerError> {
        self.tell(Order::Exit)?;
        let work_done = self.answer()?;
        let proc = crate::procfs::Proc::system();
        // A first thread whose process goes on stays as a zombie: it can't be waited for as a child.
        while proc.stat(self.tid).is_ok_and(|stat| !stat.is_zombie()) {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        Ok(work_done)
    }

    /// How it ended, now that its socket has.
    fn ended(&mut self) -> WorkerError {
        if let TaskHandle::Process(child) = &mut self.task {
            // Its socket is closed by its end, so this does not take long; a first thread may leave others behind.
            let status = child.try_wait().ok().flatten().or_else(|| {
                let _ = child.kill(libc::SIGKILL);
                child.wait().ok()
            });
            self.task = TaskHandle::Over(status.map(|exited| exited.status));
        }
        match &self.task {
            TaskHandle::Over(status) => WorkerError::Ended(*status),
            _ => WorkerError::Ended(None),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let TaskHandle::Process(child) = &mut self.task {
            // It is there, or a zombie: its number can't be another's.
            let _ = child.kill(libc::SIGKILL);
            let _ = child.wait();
        }
    }
}
