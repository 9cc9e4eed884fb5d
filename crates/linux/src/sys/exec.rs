//! Fork, a gate, exec: a child that waits before it becomes the command.
//!
//! The parent prepares everything as memory ([`ExecPlan`]), then forks. The child resets signals and waits for a byte
//! on its end of a socket pair. The byte lets it exec; the end of the stream, also when the parent dies, makes it
//! exit. If exec fails, the child reports the step and the error on the same socket; if it succeeds, the socket is
//! closed by it, which is the report of success. Right before the exec the child writes what it has used into a pipe,
//! at which the parent does not wait: to wake the parent would cost the child a context switch.
//!
//! **Invariant:** between fork and exec the child makes async-signal-safe calls only: no allocation, no lock, no
//! panic. Other threads of the parent may have held any lock at the moment of the fork.

use std::ffi::{CStr, CString};
use std::mem;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use super::process::{Usage, usage_of};
use super::resource::{FileLimits, set_soft_file_limit};
use super::seccomp::PerfFilter;
use super::socket::{pair, receive_packet, send_packet};
use super::{Errno, check, check_size, pipe, signal, uninterrupted};

/// What runs a script without a first line that says so, as `execvp(3)` does.
const SHELL: &CStr = c"/bin/sh";
/// The status of a child that never became the command.
const NOT_STARTED: libc::c_int = 127;

/// All that the child needs, laid out before the fork.
#[derive(Debug)]
pub(crate) struct ExecPlan {
    path: CString,
    // The pointers below point into these.
    _words: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    shell_argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    /// The command's limits of open files, where they are not ours.
    pub(crate) files: Option<FileLimits>,
    filter: Option<(PerfFilter, FilterUse)>,
    /// Whether the command's standard output goes where its standard error goes.
    pub(crate) output_to_error: bool,
    /// A descriptor that the command inherits, with the number that it has here.
    pub(crate) inherited: Option<Arc<OwnedFd>>,
}

/// What is done with the filter of a command's calls of `perf_event_open`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FilterUse {
    Refuse,
    /// Its listener is sent to the parent.
    Notify,
}

impl ExecPlan {
    /// Plans to execute the file at `path` with these arguments (the first is the name) and this environment.
    pub(crate) fn new(path: CString, mut words: Vec<CString>, environment: Vec<CString>) -> Self {
        let pointers = |words: &[CString]| words.iter().map(|word| word.as_ptr()).collect::<Vec<_>>();
        let mut argv = pointers(&words);
        let mut shell_argv = vec![SHELL.as_ptr(), path.as_ptr()];
        shell_argv.extend(argv.iter().skip(1));
        let mut envp = pointers(&environment);
        for list in [&mut argv, &mut shell_argv, &mut envp] {
            list.push(ptr::null());
        }
        // Moving the strings moves no text: the pointers stay good.
        words.extend(environment);
        let (files, filter, inherited) = (None, None, None);
        Self { path, _words: words, argv, shell_argv, envp, files, filter, output_to_error: false, inherited }
    }

    /// Lets the command's `perf_event_open` fail with this error.
    pub(crate) fn refuse_perf_events(&mut self, answer: Errno) {
        self.filter = Some((PerfFilter::refuse(answer), FilterUse::Refuse));
    }

    /// Lets the command's calls of `perf_event_open`, and those of its descendants, wait for the answers of a listener: that of
    /// [`ExecResult::Gone`].
    pub(crate) fn notify_perf_events(&mut self) {
        self.filter = Some((PerfFilter::notify(), FilterUse::Notify));
    }
}

/// Held while the child's end of a gate is open in the parent.
///
/// A child forked meanwhile by another thread would inherit that end and keep it open while it waits at its own gate;
/// the success of the first exec would then not be seen until the second.
static GATES: Mutex<()> = Mutex::new(());

#[derive(Debug)]
pub(crate) struct Gate {
    socket: OwnedFd,
    usage: OwnedFd,
}

/// Forks a child that waits at the gate; answers its number and the parent's end.
///
/// Errors: `EMFILE` for the gate; `EAGAIN` at the limit of processes; `ENOMEM`.
pub(crate) fn fork_held(plan: &mut ExecPlan) -> Result<(i32, Gate), Errno> {
    // First, so that it is let go last.
    let _alone = GATES.lock().unwrap_or_else(PoisonError::into_inner);
    let (parent, child) = pair(libc::SOCK_STREAM | libc::SOCK_CLOEXEC)?;
    let (usage, usage_writer) = pipe()?;
    // No handler of the parent may run in the child: all signals wait until it has reset them.
    // SAFETY: (1) `sigset_t` is plain data: all zeroes is a value of it.
    let (mut every, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { mem::zeroed() };
    // SAFETY: (1) Both sets are valid and writable.
    unsafe {
        libc::sigfillset(&raw mut every);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every, &raw mut before);
    }
    // SAFETY: (1) The child runs `child_side` only, which keeps the rules of a child of a threaded process (see its
    // own conditions) and never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: (1) This is the child of a fork. (2) Both numbers are the ends of the gate, which it inherited.
        unsafe { child_side(plan, child.as_raw_fd(), parent.as_raw_fd(), usage_writer.as_raw_fd(), &before) }
    }
    let forked = check(pid);
    // SAFETY: (1) `before` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    forked.map(|pid| (pid, Gate { socket: parent, usage }))
}

/// The life of the child up to exec.
///
/// # Safety
///
/// (1) Only in the child of a fork. (2) `gate`, `other` and `usage_writer` are open descriptors that nothing else in the child uses.
/// It calls async-signal-safe functions only: `close`, `sigaction`, `pthread_sigmask` (a plain system call in both C
/// libraries), `read`, `setrlimit`, `dup2`, `fcntl`, `prctl`, `seccomp`, `getrusage`, `write`, `execve`, `open`, `sendmsg`, `close`, `_exit`.
unsafe fn child_side(plan: &mut ExecPlan, gate: RawFd, other: RawFd, usage_writer: RawFd, mask: &libc::sigset_t) -> ! {
    // SAFETY: (1) The child's copy of the parent's end is used by no code here; while it is open, the parent's death
    // would not be seen.
    unsafe { libc::close(other) };
    reset_handlers();
    // SAFETY: (1) `mask` is a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
    // What the child touches for the first time is a page fault. Those of the call itself come before the gate, where nothing is
    // counted yet: an empty path is refused before anything is looked at.
    // SAFETY: (1) The path is a constant string. (2) Both lists end with a null pointer.
    unsafe { libc::execve(c"".as_ptr(), plan.argv.as_ptr(), plan.envp.as_ptr()) };
    // SAFETY: (1) `rusage` is a struct of plain numbers: all zeroes is a value of it.
    let mut used: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: (1) `used` is writable; called twice for the same reason.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut used) };
    let mut byte = 0_u8;
    // SAFETY: (1) `byte` is writable. (2) `gate` is open.
    let opened = uninterrupted(|| check_size(unsafe { libc::read(gate, (&raw mut byte).cast(), 1) }));
    if opened != Ok(1) {
        // SAFETY: (1) Always allowed; runs nothing of the parent's.
        unsafe { libc::_exit(NOT_STARTED) };
    }
    if let Some(limits) = plan.files {
        // A limit that can't be put back is no reason to fail: the command only may open more.
        let _ = set_soft_file_limit(limits);
    }
    if plan.output_to_error {
        // SAFETY: (1) Both are numbers; where one isn't open, nothing is changed that is in use.
        unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) };
    }
    if let Some(file) = &plan.inherited {
        // SAFETY: (1) The call touches no memory. (2) The plan keeps the descriptor open.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
    }
    // SAFETY: (1) `gate` is open until the end of this process.
    let failed = match put_under_filter(plan, unsafe { BorrowedFd::borrow_raw(gate) }) {
        Err(error) => (FailedStep::Filter, error),
        Ok(()) => {
            // SAFETY: (1) `used` is writable, then readable for its size, less than a pipe holds. (2) `usage_writer` is open.
            unsafe {
                libc::getrusage(libc::RUSAGE_SELF, &raw mut used);
                libc::write(usage_writer, (&raw const used).cast(), size_of_val(&used));
            }
            (FailedStep::Exec, execute(plan))
        }
    };
    let report = Report { step: failed.0 as i32, errno: failed.1.raw() };
    // SAFETY: (1) `gate` is open until the end of this process. (2) Exiting is always allowed.
    unsafe {
        let _ = send_packet(BorrowedFd::borrow_raw(gate), &report.bytes(), &[]);
        libc::_exit(NOT_STARTED)
    }
}

/// Async-signal-safe.
fn put_under_filter(plan: &mut ExecPlan, gate: BorrowedFd<'_>) -> Result<(), Errno> {
    match &mut plan.filter {
        None => Ok(()),
        Some((filter, FilterUse::Refuse)) => filter.install(),
        Some((filter, FilterUse::Notify)) => {
            let listener = filter.listen()?;
            send_packet(gate, &Report { step: LISTENER, errno: 0 }.bytes(), &[listener.as_fd()])
        }
    }
}

/// What the child says to the parent: which step has failed, or that the listener of its filter is beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Report {
    step: i32,
    errno: i32,
}

/// The step of a report that brings a listener.
const LISTENER: i32 = 3;

impl Report {
    fn bytes(self) -> [u8; 8] {
        (u64::from(self.step.cast_unsigned()) << 32 | u64::from(self.errno.cast_unsigned())).to_ne_bytes()
    }

    fn of(bytes: [u8; 8]) -> Self {
        let both = u64::from_ne_bytes(bytes);
        Self { step: ((both >> 32) as u32).cast_signed(), errno: (both as u32).cast_signed() }
    }
}

/// Replaces the process by the command; returns only the error.
fn execute(plan: &ExecPlan) -> Errno {
    // SAFETY: (1) The path ends with a zero byte. (2) Both lists end with a null pointer and point to strings that
    // the plan owns.
    unsafe { libc::execve(plan.path.as_ptr(), plan.argv.as_ptr(), plan.envp.as_ptr()) };
    let error = Errno::last();
    if error == Errno::ENOEXEC && looks_like_text(&plan.path) {
        // SAFETY: (1) The path is a constant string. (2) Both lists end with a null pointer, as above.
        unsafe { libc::execve(SHELL.as_ptr(), plan.shell_argv.as_ptr(), plan.envp.as_ptr()) };
    }
    error
}

/// Whether the first bytes of a file hold no zero byte, which is how shells tell a script from a foreign binary.
fn looks_like_text(path: &CStr) -> bool {
    // SAFETY: (1) The path ends with a zero byte.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return false;
    }
    let mut start = [0_u8; 128];
    // SAFETY: (1) `start` is writable for its length. (2) `fd` was opened above; the child's exit or exec closes it.
    let read = check_size(unsafe { libc::read(fd, start.as_mut_ptr().cast(), start.len()) });
    read.is_ok_and(|read| start.iter().take(read).all(|&byte| byte != 0))
}

/// Takes away every handler, which must not run in the child, and the ignoring of `SIGPIPE`.
///
/// What else was ignored stays so (`nohup`), and is so again where a handler of ours has received it meanwhile. `SIGPIPE` is
/// different: Rust's runtime ignores it before `main`, and no code can tell any more what it was before.
fn reset_handlers() {
    for signal in 1..=64 {
        let Ok(mut action) = signal::action(signal) else { continue };
        let ignored = action.sa_sigaction == libc::SIG_IGN && signal != libc::SIGPIPE;
        if action.sa_sigaction == libc::SIG_DFL || ignored {
            continue;
        }
        action.sa_sigaction = if signal::is_ignored(signal) { libc::SIG_IGN } else { libc::SIG_DFL };
        action.sa_flags = 0;
        // SAFETY: (1) `action` is valid; neither of the two runs code of ours.
        unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum FailedStep {
    Exec = 1,
    /// To install a filter of system calls.
    Filter = 2,
}

#[derive(Debug)]
pub(crate) enum ExecResult {
    /// The child is the command now, or was killed before: its status will tell. What it has used before the exec, if it came so far,
    /// and the listener of its filter.
    Gone(Option<Usage>, Option<OwnedFd>),
    /// It failed and is exiting.
    Failed(FailedStep, Errno),
}

pub(crate) fn open_gate(gate: &Gate) -> Result<(), Errno> {
    let byte = 1_u8;
    let sent = uninterrupted(|| {
        // SAFETY: (1) One byte is readable. (2) The borrow keeps the descriptor open. No signal if the child is dead.
        check_size(unsafe { libc::send(gate.socket.as_raw_fd(), (&raw const byte).cast(), 1, libc::MSG_NOSIGNAL) })
    });
    match sent {
        // A child killed at the gate: the same as one killed right after exec.
        Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Waits until the child has become the command or has failed to.
pub(crate) fn read_report(gate: &Gate) -> Result<ExecResult, Errno> {
    let mut listener = None;
    let (mut bytes, mut filled) = ([0_u8; 8], 0);
    loop {
        let packet = match receive_packet(gate.socket.as_fd(), &mut bytes[filled..], 1) {
            Ok(packet) if packet.bytes > 0 => packet,
            // Eight bytes go through a socket at once: a part of them is no report.
            Ok(_) | Err(Errno::ECONNRESET) => {
                return Ok(ExecResult::Gone(used_before(gate.usage.as_fd()), listener));
            }
            Err(error) => return Err(error),
        };
        filled += packet.bytes;
        listener = packet.files.into_iter().next().or(listener);
        if filled < bytes.len() {
            continue;
        }
        let report = Report::of(bytes);
        filled = 0;
        if report.step == LISTENER {
            continue;
        }
        let step = if report.step == FailedStep::Filter as i32 { FailedStep::Filter } else { FailedStep::Exec };
        return Ok(ExecResult::Failed(step, Errno::from_raw(report.errno)));
    }
}

/// What the child has written of itself. The pipe does not block.
fn used_before(pipe: BorrowedFd<'_>) -> Option<Usage> {
    // SAFETY: (1) `rusage` is a struct of plain numbers: all zeroes is a value of it.
    let mut used: libc::rusage = unsafe { mem::zeroed() };
    let bytes = size_of_val(&used);
    // SAFETY: (1) `used` is writable for its size, and any bytes are a value of it. (2) The borrow keeps the descriptor open.
    let read = uninterrupted(|| check_size(unsafe { libc::read(pipe.as_raw_fd(), (&raw mut used).cast(), bytes) }));
    (read == Ok(bytes)).then(|| usage_of(&used))
}
