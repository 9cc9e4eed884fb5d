//! The life of a worker: orders in, answers out.
//!
//! **Invariant:** between two orders it does nothing but wait for the next one; when no process can tell it anything any more, it
//! ends.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;

use super::spin::{cpu_ns, spin};
use super::{ChildKind, Memory, Order, WorkerAnswer, WorkerPacket, arch, receive, send};
use crate::sys::process::die_with_parent;
use crate::sys::{Errno, check, check_size};

/// The socket of a worker that is a process.
const CHANNEL: RawFd = 0;
/// The words of the largest mask of CPUs that an order can name.
const MASK_WORDS: usize = 1024 / libc::c_ulong::BITS as usize;

/// What all workers of one process know.
#[derive(Debug)]
pub(crate) struct Plan {
    memory: Memory,
    // The pointers point into these.
    _words: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
}

impl Plan {
    /// What is needed to go on after an exec: the words of the command line, the environment.
    pub(crate) fn new(memory: Memory, words: Vec<CString>, environment: Vec<CString>) -> Self {
        let pointers = |words: &[CString]| words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
        let (argv, envp) = (pointers(&words), pointers(&environment));
        // Moving the strings moves no text: the pointers stay good.
        let mut words = words;
        words.extend(environment);
        Self { memory, _words: words, argv, envp }
    }
}

/// Serves as a worker, with the socket as descriptor 0. Never returns; the process ends when the socket does.
///
/// The caller is the only thread of its process.
pub(crate) fn serve(plan: &'static Plan) -> ! {
    // Without this, the end of the socket says so when the next order is waited for.
    die_with_parent();
    WorkerTask { plan, channel: CHANNEL, child_kind: ChildKind::Process }.live()
}

#[derive(Clone, Copy)]
struct WorkerTask {
    plan: &'static Plan,
    channel: RawFd,
    child_kind: ChildKind,
}

#[derive(Clone, Copy, Default)]
struct Done {
    rounds: u64,
    pages: u64,
    accesses: u64,
    child: i32,
}

impl WorkerTask {
    fn live(self) -> ! {
        // SAFETY: (1) The socket is open until the worker ends: it closes it last.
        let channel = unsafe { BorrowedFd::borrow_raw(self.channel) };
        let mut answer = self.answer(Ok(Done::default()));
        loop {
            if send(channel, &answer.encode(), None).is_err() {
                self.end();
            }
            let Ok(WorkerPacket::Message(message, fd)) = receive(channel) else { self.end() };
            let done = match Order::decode(message) {
                Some(Order::Exit) => {
                    let _ = send(channel, &self.answer(Ok(Done::default())).encode(), None);
                    self.end()
                }
                Some(order) => self.carry_out(order, fd),
                None => Err(Errno::EINVAL),
            };
            answer = self.answer(done);
        }
    }

    fn answer(self, done: Result<Done, Errno>) -> WorkerAnswer {
        let (errno, done) = match done {
            Ok(done) => (0, done),
            Err(errno) => (errno.raw(), Done::default()),
        };
        // The kernel itself is asked: a C library may answer from thread-local storage, which is not this task's own.
        // SAFETY: (1) These take nothing and can't fail.
        let (tid, pid, user) = unsafe {
            (libc::syscall(libc::SYS_gettid), libc::syscall(libc::SYS_getpid), libc::syscall(libc::SYS_geteuid))
        };
        // All of them fit: the kernel's own types are as wide.
        let (tid, pid, user) = (tid as i32, pid as i32, user as u32);
        let Done { rounds, pages, accesses, child } = done;
        WorkerAnswer { errno, tid, pid, child, cpu_ns: cpu_ns(), rounds, pages, accesses, user }
    }

    fn carry_out(self, order: Order, fd: Option<OwnedFd>) -> Result<Done, Errno> {
        let mut done = Done::default();
        match order {
            Order::Go { cpu } => go(cpu)?,
            Order::Run { cpu_ns: span_ns, pages } => {
                let start_ns = cpu_ns();
                for page in 0..pages {
                    let until_ns = start_ns.saturating_add(part(span_ns, page + 1, pages.saturating_add(1)));
                    done.rounds = done.rounds.saturating_add(spin(until_ns));
                    self.plan.memory.touch(1)?;
                }
                done.rounds = done.rounds.saturating_add(spin(start_ns.saturating_add(span_ns)));
                done.pages = pages;
            }
            Order::Touch { pages } => {
                self.plan.memory.touch(pages)?;
                done.pages = pages;
            }
            Order::Access { offset, how, times } => {
                for _ in 0..times {
                    self.plan.memory.access(offset, how)?;
                }
                done.accesses = u64::from(times);
            }
            Order::Fork { stack, child_kind } => {
                let channel = fd.ok_or(Errno::EBADF)?;
                done.child = self.fork(stack, child_kind, channel)?;
            }
            Order::Exec => return Err(self.exec(fd)),
            // It does not come here.
            Order::Exit => {}
        }
        Ok(done)
    }

    /// Starts a child, which answers on `channel`.
    fn fork(self, stack: u32, child_kind: ChildKind, channel: OwnedFd) -> Result<i32, Errno> {
        let top = self.plan.memory.stack_top(stack).ok_or(Errno::EINVAL)?;
        let child = Self { plan: self.plan, channel: channel.as_raw_fd(), child_kind };
        let room = size_of::<Self>().next_multiple_of(64);
        let begin: *mut Self = ptr::with_exposed_provenance_mut(top - room);
        // SAFETY: (1) The stack is mapped, larger than this, and no other task's: each is given to one child. (2) Its top is
        // aligned.
        unsafe { begin.write(child) };
        let flags = match child_kind {
            // Of the same parent as this one: so who told us can wait for it.
            ChildKind::Process => libc::CLONE_VM | libc::CLONE_PARENT | libc::SIGCHLD,
            ChildKind::Thread => {
                libc::CLONE_VM
                    | libc::CLONE_FS
                    | libc::CLONE_FILES
                    | libc::CLONE_SIGHAND
                    | libc::CLONE_THREAD
                    | libc::CLONE_SYSVSEM
            }
        };
        // SAFETY: (1) `born` takes the pointer that was just filled, and never returns. (2) The child runs on its own stack,
        // below that. (3) It shares our memory, so it keeps to what the module says: no thread-local storage is changed
        // but `errno`, which is read only right after a call has failed.
        let answer = unsafe { arch::clone(born, begin.cast(), flags) };
        // The system call answers a number that fits, or the negative number of an error.
        let child = i32::try_from(answer).map_err(|_| Errno::EINVAL)?;
        if child < 0 {
            return Err(Errno::from_raw(-child));
        }
        if child_kind == ChildKind::Thread {
            // One table of descriptors for both: the child closes it.
            let _ = channel.into_raw_fd();
        }
        Ok(child)
    }

    /// Becomes the program again; returns only the error.
    fn exec(self, copy: Option<OwnedFd>) -> Errno {
        let (argv, envp) = (self.plan.argv.as_ptr(), self.plan.envp.as_ptr());
        match copy {
            // SAFETY: (1) The path ends with a zero byte, both lists end with a null pointer and point to strings, and all of
            // them live as long as the process.
            None => unsafe {
                libc::execve(c"/proc/self/exe".as_ptr(), argv, envp);
            },
            // SAFETY: (1) As above. (2) The descriptor is open, and the flag says that there is no path.
            Some(copy) => unsafe {
                libc::syscall(libc::SYS_execveat, copy.as_raw_fd(), c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH);
            },
        }
        Errno::last()
    }

    /// The task ends; its process with the last one.
    fn end(self) -> ! {
        if self.child_kind == ChildKind::Thread {
            // SAFETY: (1) It is this thread's own, and it has no use for it any more.
            unsafe { libc::close(self.channel) };
        }
        loop {
            // SAFETY: (1) Ends this thread only, which has no destructors to run. Its stack stays mapped.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
    }
}

/// The first function of a child.
extern "C" fn born(begin: *mut libc::c_void) -> libc::c_int {
    // SAFETY: (1) The parent has put a worker there, on this child's own stack.
    let mut worker = unsafe { begin.cast::<WorkerTask>().read() };
    if worker.child_kind == ChildKind::Process {
        die_with_parent();
        // The parent's other sockets must not stay open here: their ends would not be seen.
        // SAFETY: (1) This process has descriptors of its own, and uses none but the one that becomes the first.
        unsafe {
            libc::dup2(worker.channel, CHANNEL);
            close_the_rest();
        }
        worker.channel = CHANNEL;
    }
    worker.live()
}

/// Closes all descriptors but the standard ones.
///
/// # Safety
/// (1) Nothing in the process uses any of them.
unsafe fn close_the_rest() {
    let (first, last, flags): (libc::c_uint, libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX, 0);
    // SAFETY: (1) The caller's promise.
    let closed = check_size(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } as isize);
    if closed.is_err() {
        // Before Linux 5.9. A worker has few.
        for fd in 3..256 {
            // SAFETY: (1) The caller's promise; a number that is not open is refused.
            unsafe { libc::close(fd) };
        }
    }
}

/// Goes to a CPU. The mask is on the stack: nothing is allocated.
fn go(cpu: u32) -> Result<(), Errno> {
    let cpu = usize::try_from(cpu).map_err(|_| Errno::EINVAL)?;
    let mut mask = [0 as libc::c_ulong; MASK_WORDS];
    let bits = libc::c_ulong::BITS as usize;
    *mask.get_mut(cpu / bits).ok_or(Errno::EINVAL)? = 1 << (cpu % bits);
    // SAFETY: (1) The mask is readable for its size.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) }).map(drop)
}

/// `of` parts of so many, of a span.
fn part(span_ns: u64, part: u64, of: u64) -> u64 {
    u64::try_from(u128::from(span_ns) * u128::from(part) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_cut_into_even_parts() {
        assert_eq!(part(100, 1, 4), 25);
        assert_eq!(part(u64::MAX, 3, 3), u64::MAX);
        assert_eq!(part(5, 1, 0), 5);
    }

    #[test]
    fn there_is_no_such_cpu() {
        assert_eq!(go(1024), Err(Errno::EINVAL));
        assert_eq!(go(u32::MAX), Err(Errno::EINVAL));
    }
}
