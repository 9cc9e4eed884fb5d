//! The thread that follows: it hears of stops, lets tasks go on, and brings everything to a stop when that is due.
//!
//! What it is: a loop around one question, what has come of any followed task. The kernel lets only the thread that took
//! hold of a task follow it, hence a thread of its own; and only so are the process's other children left alone.
//! Read first: [`TracerLoop::run`].
//!
//! **Invariant:** a signal that a task is about to receive is delivered to it when it goes on, however it goes on. A task
//! whose process is stopped is not made to run.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::tracees::{CodeFiles, TaskState, Tracees};
use super::{Cause, FollowError, Stop, calls};
use crate::procfs::Proc;
use crate::spawn::TraceeExit;
use crate::sys::ptrace::{self, Resume, SyscallStop, TraceReport, TraceStop};
use crate::sys::{self, Errno, PollEntry, SignalPipe};

/// How long to wait for tasks to stop that are inside the kernel. They can't run any instruction of theirs meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often to look without having been told to, should other code have taken the signal's handler away.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) enum Report {
    Stop(Stop),
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TracerCommand {
    /// Let go on what stands.
    Go,
    /// The same, and look for nothing more in the process that the stop was about.
    GoAtFullSpeed,
    /// Let go for good.
    Finish,
    Kill,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    On,
    Over,
}

struct TracerLoop {
    root: i32,
    tracee_exit: Arc<TraceeExit>,
    /// Whether the root is still at its gate: what it does there concerns no caller.
    at_gate: bool,
    tracees: Tracees,
    /// What has happened and was not yet told.
    causes: Vec<(i32, Cause)>,
    reports: Sender<Report>,
    orders: Receiver<TracerCommand>,
    ready_writer: OwnedFd,
    bell_reader: OwnedFd,
    signals: SignalPipe,
    proc: Proc,
}

/// A thread that follows, and the ways to and from it.
type Started = (JoinHandle<()>, Receiver<Report>, Sender<TracerCommand>);

/// Starts the thread, which takes hold of a child that waits at its gate.
pub(super) fn start(
    root: i32,
    tracee_exit: Arc<TraceeExit>,
    ready_writer: OwnedFd,
    bell_reader: OwnedFd,
) -> Result<Started, FollowError> {
    let setup = |errno| FollowError::Setup { errno };
    let signals = SignalPipe::open(&[libc::SIGCHLD], &[]).map_err(setup)?;
    let (reports, from_thread) = mpsc::channel();
    let (to_thread, orders) = mpsc::channel();
    let (answer, taken) = mpsc::channel();
    let proc = Proc::system();
    let tracer = TracerLoop {
        root,
        tracee_exit,
        at_gate: true,
        tracees: Tracees::default(),
        causes: Vec::new(),
        reports,
        orders,
        ready_writer,
        bell_reader,
        signals,
        proc,
    };
    let body = move || {
        let seized = ptrace::seize(root);
        let go = seized.is_ok();
        if go {
            tracer.tracee_exit.follow();
        }
        if answer.send(seized).is_ok() && go {
            tracer.live();
        }
    };
    let thread = std::thread::Builder::new().name("pmux-follow".into()).spawn(body);
    let thread = thread.map_err(|error| setup(Errno::from(&error)))?;
    match taken.recv() {
        Ok(Ok(())) => Ok((thread, from_thread, to_thread)),
        Ok(Err(Errno::EIO | Errno::EINVAL | Errno::ENOSYS)) => Err(FollowError::Unsupported),
        Ok(Err(errno)) => Err(FollowError::Refused { errno }),
        Err(_) => Err(setup(Errno::EIO)),
    }
}

impl TracerLoop {
    fn live(mut self) {
        ptrace::unblock_child_signal();
        self.tracees.enter(self.root, self.root, TaskState::Running);
        while self.run() == Flow::On {}
        // What is left is let go by the end of this thread: the kernel detaches it, wherever it is.
        self.tell(Report::Ended);
        let Self { tracee_exit, .. } = self;
        tracee_exit.release();
    }

    /// Takes all news in, tells what has to be told, and sleeps.
    fn run(&mut self) -> Flow {
        if self.hear() == Flow::Over {
            return Flow::Over;
        }
        while let Some((pid, cause)) = (!self.causes.is_empty()).then(|| self.causes.remove(0)) {
            // Everything stands from here on, but for these.
            let moving = self.stop_those(|state| state == TaskState::Running);
            if !self.tracees.tasks.contains_key(&pid) {
                continue;
            }
            let (tasks, parent) = (self.tracees.threads(pid), self.tracees.parents.get(&pid).copied());
            self.tell(Report::Stop(Stop { pid, parent, cause, tasks, moving }));
            // A handle that is gone wants nothing any more.
            match self.orders.recv().unwrap_or(TracerCommand::Finish) {
                TracerCommand::Go => {}
                TracerCommand::GoAtFullSpeed => self.tracees.speed_up(pid),
                order => return self.leave(order),
            }
        }
        self.go_on();
        match self.orders.try_recv() {
            Ok(TracerCommand::Go | TracerCommand::GoAtFullSpeed) | Err(mpsc::TryRecvError::Empty) => {}
            Ok(order) => return self.leave(order),
            Err(mpsc::TryRecvError::Disconnected) => return self.leave(TracerCommand::Finish),
        }
        self.sleep(LOOK);
        Flow::On
    }

    fn tell(&self, report: Report) {
        if self.reports.send(report).is_ok() {
            let _ = sys::write(self.ready_writer.as_fd(), &[1]);
        }
    }

    fn sleep(&self, longest: Duration) {
        let mut entries = [self.signals.fd().as_raw_fd(), self.bell_reader.as_raw_fd()].map(PollEntry::new);
        // Interrupted or out of memory: a look too many.
        let _ = sys::ppoll(&mut entries, Some(longest));
        self.signals.take();
        let mut bytes = [0; 16];
        let _ = sys::read(self.bell_reader.as_fd(), &mut bytes);
    }

    /// Takes in what has come of the tasks. Those that stopped stay so.
    fn hear(&mut self) -> Flow {
        loop {
            match ptrace::wait_followed() {
                Ok(Some((tid, TraceReport::Stopped(stop)))) => self.stopped(tid, stop),
                Ok(Some((tid, TraceReport::Ended(end)))) => {
                    self.tracees.remove(tid);
                    if tid == self.root {
                        self.tracee_exit.ended(end);
                    }
                }
                Ok(None) => return Flow::On,
                // No task is left: also where other code reaped the last one.
                Err(_) => return Flow::Over,
            }
        }
    }

    fn stopped(&mut self, tid: i32, stop: TraceStop) {
        if !self.tracees.tasks.contains_key(&tid) {
            // Heard of before its maker was: the event of the maker will find it here.
            let process = self.proc.process_of(tid).unwrap_or(tid);
            self.tracees.enter(tid, process, TaskState::Running);
        }
        let mut signal = 0;
        match stop {
            TraceStop::Signal(sent) => signal = sent,
            TraceStop::Executed => self.executed(tid),
            TraceStop::Forked | TraceStop::VforkBegan => self.forked(tid),
            TraceStop::Syscall => self.at_syscall(tid),
            TraceStop::Trapped | TraceStop::VforkDone | TraceStop::GroupStop => {}
        }
        let resume = match stop {
            TraceStop::GroupStop => Resume::Listen,
            _ if self.at_gate || self.tracees.is_fast(tid) => Resume::Run(signal),
            _ => Resume::ToSyscall(signal),
        };
        let Some(task) = self.tracees.tasks.get_mut(&tid) else { return };
        task.state = TaskState::Stopped(resume);
        if stop == TraceStop::VforkBegan {
            // It runs nothing until the child lets go of its memory, and then stops again.
            task.state = TaskState::Vforking;
            let _ = ptrace::resume(tid, resume);
        }
    }

    fn executed(&mut self, process: i32) {
        self.tracees.executed(process);
        // The thread that called may not be the one that is left, which then was not in the list as running.
        let task = self.tracees.enter(process, process, TaskState::Running);
        task.mapping = false;
        self.at_gate = false;
        let files = self.code_files(process);
        self.tracees.files.insert(process, files);
        self.causes.retain(|(pid, _)| *pid != process);
        self.causes.push((process, Cause::Exec));
    }

    fn forked(&mut self, parent: i32) {
        let Ok(child) = ptrace::event_message(parent) else { return };
        let Ok(child) = i32::try_from(child) else { return };
        let process = self.proc.process_of(child).unwrap_or(child);
        self.tracees.enter(child, process, TaskState::Expected);
        let parent = self.tracees.tasks.get(&parent).map_or(parent, |task| task.process);
        if process != parent {
            self.tracees.forked(parent, process);
        }
    }

    fn at_syscall(&mut self, tid: i32) {
        let call = ptrace::syscall_stop(tid).unwrap_or(SyscallStop::None);
        let Some(task) = self.tracees.tasks.get_mut(&tid) else { return };
        if self.tracees.fast.contains(&task.process) {
            return;
        }
        let mapped = matches!(call, SyscallStop::Exit { failed: false }) && task.mapping;
        task.mapping = calls::may_map_code(&call);
        let process = task.process;
        if mapped {
            let now = self.code_files(process);
            let before = self.tracees.files.entry(process).or_default();
            if !now.is_subset(before) {
                self.causes.push((process, Cause::Library));
            }
            *before = now;
        }
    }

    /// The files whose code is mapped into a process.
    fn code_files(&self, process: i32) -> CodeFiles {
        let maps = self.proc.maps(process).unwrap_or_default();
        crate::order::set(
            maps.iter().filter(|mapping| mapping.rights.execute).filter_map(|mapping| mapping.file().cloned()),
        )
    }

    fn go_on(&mut self) {
        for (&tid, task) in &mut self.tracees.tasks {
            if let TaskState::Stopped(how) = task.state {
                task.state = if how == Resume::Listen { TaskState::Listening } else { TaskState::Running };
                // One that was killed meanwhile has no need of it: its end will be heard.
                let _ = ptrace::resume(tid, how);
            }
        }
    }

    /// Brings tasks to a stop; answers which could not be.
    fn stop_those(&mut self, which: impl Fn(TaskState) -> bool) -> Vec<i32> {
        let deadline = Instant::now() + PATIENCE;
        let mut asked: Vec<i32> = Vec::new();
        loop {
            let mut moving = self.tracees.in_state(&which);
            // A thread may have ended while its process lives on: then it is never heard of.
            moving.retain(|&tid| !asked.contains(&tid) || self.proc.stat(tid).is_ok_and(|stat| !stat.is_zombie()));
            if moving.is_empty() {
                return moving;
            }
            for &tid in &moving {
                // Each once: a second one would stop it again later.
                if !asked.contains(&tid) {
                    let _ = ptrace::interrupt(tid);
                    asked.push(tid);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return moving;
            }
            self.sleep(left.min(LOOK));
            if self.hear() == Flow::Over {
                return Vec::new();
            }
        }
    }

    fn leave(&mut self, order: TracerCommand) -> Flow {
        if order == TracerCommand::Kill {
            for process in self.tracees.processes() {
                let _ = sys::kill(process, libc::SIGKILL);
            }
            return Flow::Over;
        }
        // Those that listen have to be caught again: only who stands can be let go in an orderly way.
        self.stop_those(|state| matches!(state, TaskState::Running | TaskState::Listening | TaskState::Expected));
        for (&tid, task) in &self.tracees.tasks {
            if let TaskState::Stopped(how) = task.state {
                let signal = match how {
                    Resume::Run(signal) | Resume::ToSyscall(signal) => signal,
                    // The kernel remembers that its process is stopped.
                    Resume::Listen => 0,
                };
                let _ = ptrace::detach(tid, signal);
            }
        }
        Flow::Over
    }
}
