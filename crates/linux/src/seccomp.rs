//! Calls of `perf_event_open(2)` that wait to be answered.
//!
//! What it is: [`Listener`], which receives the calls of a command that was started so
//! ([`crate::spawn::PerfEvents::Supervised`]) and of its descendants; [`OpenCall`], what one of them asks; [`OpenCall::attempt`], what
//! the kernel would say to it; [`FdCall`], what is done to a virtual event, whose descriptor was given to the caller by
//! [`Listener::give`].
//! Read first: [`Listener::receive`], then [`Listener::go_on`]. [`Handover`] is how the runtime of a container passes its listener.
//!
//! **Invariant:** what a call points to is memory of its caller, who may change it at any time: a reader decides by that copy
//! alone, or lets the call go on, which the kernel then reads and judges for itself.
//!
//! Source: `seccomp_unotify(2)`, `kernel/seccomp.c`.

use crate::procfs::Proc;
use crate::sys::seccomp::{self, Notification, VIRTUAL_FDS, is_about_fd};
use crate::sys::{self, Errno, PollEntry, perf};
use pmux_abi::attr::Attr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where calls wait. Once it is dropped, they fail with `ENOSYS`.
///
/// It polls as readable when a call waits, and as hung up when the last task that is under its filter has ended.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    proc: Proc,
    /// Held while a number is chosen for a file, and the caller's limit is not what it was.
    giving: Mutex<()>,
    /// Held while a task is looked for among all: a container pays for one CPU at most.
    looking: Mutex<()>,
}

/// A call that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Of `perf_event_open(2)`.
    Open(OpenCall),
    /// About a descriptor among those of virtual events.
    Fd(FdCall),
}

/// A call about a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdCall {
    id: u64,
    /// The thread that calls, as of [`OpenCall::thread`].
    pub thread: i32,
    /// The descriptor.
    pub fd: i32,
    /// What is done to it.
    pub action: FdAction,
}

/// What a call does to a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FdAction {
    /// `read(2)` of at most so many bytes to this address.
    Read {
        /// Where to.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// `ioctl(2)`.
    Ioctl {
        /// The request.
        request: u32,
        /// Its argument.
        argument: u64,
    },
    /// `fcntl(2)` that makes no other descriptor of it; or any call by another ABI, which no virtual event is given to.
    Fcntl,
    /// A call that is none of those that are answered here: a profile of a container reports it for a reason of its own.
    Unknown,
    /// Anything else, which needs an event of the kernel: it is mapped, read in another way, or gets another number.
    Other,
}

/// A call that waits for its answer.
pub trait Waiting {
    /// Its number.
    fn id(&self) -> u64;

    /// The thread that calls, as this process's PID namespace numbers it; 0 where it can't be seen from there.
    fn thread(&self) -> i32;
}

impl Waiting for OpenCall {
    fn id(&self) -> u64 {
        self.id
    }

    fn thread(&self) -> i32 {
        self.thread
    }
}

impl Waiting for FdCall {
    fn id(&self) -> u64 {
        self.id
    }

    fn thread(&self) -> i32 {
        self.thread
    }
}

/// A call of `perf_event_open(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenCall {
    id: u64,
    /// The thread that calls, as this process's PID namespace numbers it; 0 where it can't be seen from there.
    pub thread: i32,
    /// Whether its pointers have 64 bits.
    pub is_64_bit: bool,
    attr_address: u64,
    /// `pid`: a task, 0 for the caller, -1 for every task; with [`OpenFlags::CGROUP`] a descriptor of the caller.
    pub pid: i32,
    /// `cpu`: -1 for any.
    pub cpu: i32,
    /// `group_fd`: a descriptor of the caller, or -1.
    pub group_fd: i32,
    /// `flags`.
    pub flags: OpenFlags,
}

/// The flags of `perf_event_open(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenFlags(pub u64);

impl OpenFlags {
    /// `PERF_FLAG_FD_NO_GROUP`: the group's descriptor is none.
    pub const NO_GROUP: Self = Self(1);
    /// `PERF_FLAG_FD_OUTPUT`: it is the event whose ring the new one writes into.
    pub const OUTPUT: Self = Self(1 << 1);
    /// `PERF_FLAG_FD_CLOEXEC`.
    pub const CLOSE_ON_EXEC: Self = Self(1 << 3);
    /// `PERF_FLAG_PID_CGROUP`: the number of the task is a descriptor of a cgroup's folder.
    pub const CGROUP: Self = Self(1 << 2);

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Listener {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        seccomp::take_turns(fd.as_fd());
        Self { fd, proc: Proc::system(), giving: Mutex::new(()), looking: Mutex::new(()) }
    }

    /// Waits for the next call; `None` when the last task under the filter has ended. One thread at a time.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn receive(&self) -> Result<Option<Call>, Errno> {
        let mut entries = [PollEntry::new(self.fd.as_raw_fd())];
        loop {
            match sys::ppoll(&mut entries, None) {
                Ok(_) if entries[0].readable => {}
                Ok(_) if entries[0].hangup => return Ok(None),
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno),
            }
            match seccomp::receive(self.fd.as_fd()) {
                Ok(call) => return Ok(Some(Call::of(&call))),
                // Its caller was killed, or a signal has interrupted one of the two.
                Err(Errno::ENOENT | Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Whether a call still waits: then what was read of its thread until now is that thread's, and not that of a later one which
    /// has its number.
    #[must_use]
    pub fn still_waits(&self, call: &impl Waiting) -> bool {
        seccomp::still_waits(self.fd.as_fd(), call.id())
    }

    /// Lets the kernel carry out a call, with the caller's rights, as if it were not supervised. Nothing happens where it doesn't wait
    /// any more.
    ///
    /// # Errors
    /// `EINVAL` before Linux 5.5.
    pub fn go_on(&self, call: &impl Waiting) -> Result<(), Errno> {
        match seccomp::go_on(self.fd.as_fd(), call.id()) {
            Err(Errno::ENOENT) => Ok(()),
            other => other,
        }
    }

    /// Ends a call with what it returns. Nothing happens where it doesn't wait any more.
    pub fn answer(&self, call: &impl Waiting, value: Result<i64, Errno>) {
        // Nothing can be done about any error.
        let _ = seccomp::answer(self.fd.as_fd(), call.id(), value);
    }

    /// Gives the caller of an open a file, by a number of virtual events that it has not in use, and answers the number. The call still
    /// waits.
    ///
    /// # Errors
    /// `EMFILE` where the caller may not have such a number, or has so many files open that one of its own might come to have it;
    /// `EPERM`, `ESRCH` where it may not be looked into, or has ended; `ENOENT` where the call doesn't wait any more.
    pub fn give(&self, call: &OpenCall, file: BorrowedFd<'_>) -> Result<i32, Errno> {
        let _alone = self.giving.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.proc.open_files(call.thread).map_err(|_| Errno::ESRCH)?;
        let own = open.iter().filter(|number| !VIRTUAL_FDS.contains(number)).count();
        // Numbers are given from the lowest on: with few files open it will be long before one of the caller's own is as high.
        if own > VIRTUAL_FDS.start as usize / 2 {
            return Err(Errno::EMFILE);
        }
        let number = VIRTUAL_FDS.into_iter().find(|number| !open.contains(number)).ok_or(Errno::EMFILE)?;
        let closes = call.flags.has(OpenFlags::CLOSE_ON_EXEC);
        self.put(call, file, number, closes).map(|()| number.cast_signed())
    }

    /// Ends an open with a file, by the lowest number that its caller has free.
    ///
    /// # Errors
    /// `ENOENT` where the call doesn't wait any more; `EMFILE`; `EINVAL` before Linux 5.14.
    pub fn answer_with_file(&self, call: &OpenCall, file: BorrowedFd<'_>) -> Result<(), Errno> {
        seccomp::answer_with_file(self.fd.as_fd(), call.id, file, call.flags.has(OpenFlags::CLOSE_ON_EXEC))
    }

    /// Puts a file under a number of a caller, which may be above its limit: that is about the numbers that it chooses itself.
    fn put(&self, call: &impl Waiting, file: BorrowedFd<'_>, number: u32, closes: bool) -> Result<(), Errno> {
        let (id, thread) = (call.id(), call.thread());
        let limits = sys::file_limits_of(thread, None)?;
        let needed = u64::from(number) + 1;
        if limits.hard < needed {
            return Err(Errno::EMFILE);
        }
        if limits.soft >= needed {
            return seccomp::add_fd(self.fd.as_fd(), id, file, number, closes);
        }
        let raised = sys::FileLimits { soft: needed, ..limits };
        sys::file_limits_of(thread, Some(raised))?;
        let added = seccomp::add_fd(self.fd.as_fd(), id, file, number, closes);
        // As long as the call waits the number is the caller's; what the caller has set meanwhile stays.
        if self.still_waits(call) && sys::file_limits_of(thread, None) == Ok(raised) {
            let _ = sys::file_limits_of(thread, Some(limits));
        }
        added
    }

    /// Puts another file in the place of a descriptor of a caller.
    ///
    /// # Errors
    /// As [`Listener::give`].
    pub fn replace(&self, call: &impl Waiting, fd: i32, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let _alone = self.giving.lock().unwrap_or_else(PoisonError::into_inner);
        let number = u32::try_from(fd).map_err(|_| Errno::EBADF)?;
        self.put(call, file, number, self.proc.closes_on_exec(call.thread(), number))
    }

    /// Where processes are looked up.
    #[must_use]
    pub fn proc(&self) -> &Proc {
        &self.proc
    }

    /// The device and the inode of a file that a caller has open; `None` where it has none of that number.
    #[must_use]
    pub fn open_file(&self, call: &impl Waiting, fd: i32) -> Option<(u64, u64)> {
        self.proc.open_file(call.thread(), fd)
    }

    /// Writes to the memory of a caller: all of `bytes`. Unlike the kernel it writes to what the caller may only read, too.
    ///
    /// # Errors
    /// `EFAULT` where nothing is mapped, or the caller may not be looked into; `ENOENT` where the call doesn't wait any more.
    pub fn write(&self, call: &impl Waiting, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        // What is open stays the memory that it is, whichever program has the thread's number later.
        let memory = self.proc.open_memory(call.thread()).map_err(|_| Errno::EFAULT)?;
        if !self.still_waits(call) {
            return Err(Errno::ENOENT);
        }
        memory.write_all_at(bytes, address).map_err(|_| Errno::EFAULT)
    }

    /// Whether so many bytes of a caller's memory can be read.
    #[must_use]
    pub fn is_readable(&self, call: &impl Waiting, address: u64, bytes: usize) -> bool {
        sys::read_memory(call.thread(), address, &mut vec![0; bytes]) == Ok(bytes)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What the runtime of a container sends to the socket that a seccomp profile names (`listenerPath`).
///
/// Source: the runtime specification of the Open Container Initiative, `config-linux.md`, "The Container Process State".
#[derive(Debug)]
pub struct Handover {
    /// The state of the container, in JSON; it names the files.
    pub state: Vec<u8>,
    files: Vec<OwnedFd>,
}

/// Bytes of a state, and files beside it, that are taken at most.
const MOST_STATE: usize = 1 << 20;
const MOST_HANDED_OVER: usize = 8;

impl Handover {
    /// Receives what a runtime sends, until that is whole or the runtime has closed its end of the stream, which it need not do.
    ///
    /// # Errors
    /// `ETIMEDOUT` where that takes longer than `patience`; `EMSGSIZE` for more than can be a state; those of `recvmsg(2)`.
    pub fn receive(
        stream: BorrowedFd<'_>,
        patience: Duration,
        is_whole: impl Fn(&[u8]) -> bool,
    ) -> Result<Self, Errno> {
        let until = Instant::now() + patience;
        let mut handover = Self { state: Vec::new(), files: Vec::new() };
        let mut room = vec![0; 64 * 1024];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match sys::ppoll(&mut [PollEntry::new(stream.as_raw_fd())], Some(left)) {
                Ok(0) => return Err(Errno::ETIMEDOUT),
                Err(Errno::EINTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(errno),
            }
            let mut packet = sys::receive_packet(stream, &mut room, MOST_HANDED_OVER)?;
            handover.state.extend_from_slice(room.get(..packet.bytes).unwrap_or_default());
            handover.files.append(&mut packet.files);
            if packet.cut || handover.state.len() > MOST_STATE || handover.files.len() > MOST_HANDED_OVER {
                return Err(Errno::EMSGSIZE);
            }
            if packet.bytes == 0 || is_whole(&handover.state) {
                return Ok(handover);
            }
        }
    }

    /// The listener, by its place among the files.
    ///
    /// # Errors
    /// `ENOENT` where there are not so many files; `EINVAL` where that file is no listener.
    pub fn listener(self, at: usize) -> Result<Listener, Errno> {
        let fd = self.files.into_iter().nth(at).ok_or(Errno::ENOENT)?;
        if seccomp::is_listener(fd.as_fd()) { Ok(Listener::new(fd)) } else { Err(Errno::EINVAL) }
    }
}

/// Why there is no attribute to be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoAttr {
    /// Its size can't be that of an attribute. The kernel answers `E2BIG`.
    Size(u32),
    /// The caller's memory can't be read.
    ///
    /// `EFAULT` where there is none, as the kernel answers; others where this process may not look there.
    Memory(Errno),
}

impl Call {
    fn of(call: &Notification) -> Self {
        if call.is_open() {
            return Self::Open(OpenCall::of(call));
        }
        let (id, thread) = (call.id, call.thread.cast_signed());
        let [first, second, third, _, fifth, _] = call.args;
        let (fd, action) = match i64::from(call.number) {
            // Profiles name calls for all ABIs.
            _ if !call.is_64_bit() && call.is_about_fd_elsewhere() => (first, FdAction::Fcntl),
            _ if !call.is_64_bit() => (first, FdAction::Unknown),
            libc::SYS_read => (first, FdAction::Read { address: second, bytes: third }),
            libc::SYS_ioctl => (first, FdAction::Ioctl { request: second as u32, argument: third }),
            libc::SYS_fcntl if !matches!(second as i32, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                (first, FdAction::Fcntl)
            }
            libc::SYS_mmap => (fifth, FdAction::Other),
            number if is_about_fd(number) => (first, FdAction::Other),
            _ => (first, FdAction::Unknown),
        };
        Self::Fd(FdCall { id, thread, fd: fd as i32, action })
    }
}

impl OpenCall {
    const fn of(call: &Notification) -> Self {
        let [attr, pid, cpu, group_fd, flags, _] = call.args;
        // The kernel takes the lower halves, too.
        let [pid, cpu, group_fd] = [pid as i32, cpu as i32, group_fd as i32];
        let thread = call.thread.cast_signed();
        let flags = OpenFlags(flags);
        Self { id: call.id, thread, is_64_bit: call.is_64_bit(), attr_address: attr, pid, cpu, group_fd, flags }
    }

    /// The bytes of its attribute, as many as it says. It waits for as long as the caller's memory takes to be read: a page of it may
    /// be one that another program has to fill first.
    ///
    /// # Errors
    /// [`NoAttr`]; as long as the call waits ([`Listener::still_waits`]), it is about its caller.
    pub fn attr_bytes(&self) -> Result<Vec<u8>, NoAttr> {
        let read = |bytes: usize| {
            let mut room = vec![0; bytes];
            let read = sys::read_memory(self.thread, self.attr_address, &mut room).map_err(NoAttr::Memory)?;
            room.truncate(read);
            Ok(room)
        };
        // Most are not longer.
        let mut bytes = read(Attr::MAX_SIZE)?;
        let stated = bytes.get(4..8).and_then(|size| size.try_into().ok()).map(u32::from_ne_bytes);
        // What a size of 0 means, and what the kernel takes at most: a page.
        let size = match stated.ok_or(NoAttr::Memory(Errno::EFAULT))? {
            0 => FIRST_ATTR_BYTES,
            stated @ FIRST_ATTR_BYTES..=MOST_ATTR_BYTES => stated,
            other => return Err(NoAttr::Size(other)),
        };
        if size as usize > Attr::MAX_SIZE {
            bytes = read(size as usize)?;
        }
        // The kernel reads as many, too.
        if bytes.len() < size as usize {
            return Err(NoAttr::Memory(Errno::EFAULT));
        }
        bytes.truncate(size as usize);
        Ok(bytes)
    }

    /// What the kernel says to the same event, opened by this thread and closed at once: the outcome of the call, if the caller has
    /// this process's rights and numbers of tasks. `attr` is [`OpenCall::attr_bytes`].
    ///
    /// # Errors
    /// Those of `perf_event_open(2)`; of `pidfd_getfd(2)` for the caller's descriptors.
    pub fn attempt(&self, attr: &[u8], proc: &Proc) -> Result<(), Errno> {
        // Disabled: it would count at once.
        self.open_real(attr, false, proc).map(drop)
    }

    /// Opens the event with this process's rights, enabled or not; `attr` is [`OpenCall::attr_bytes`].
    ///
    /// # Errors
    /// As [`OpenCall::attempt`].
    pub fn open_real(&self, attr: &[u8], is_enabled: bool, proc: &Proc) -> Result<OwnedFd, Errno> {
        let mut attr = attr.to_vec();
        if let Some(flags) = attr.get_mut(FLAGS_AT) {
            *flags = *flags & !1 | u8::from(!is_enabled);
        }
        let caller = CallerFiles { call: self, proc };
        let cgroup = self.flags.has(OpenFlags::CGROUP).then(|| caller.file(self.pid)).transpose()?;
        let in_group = self.group_fd != -1 && !self.flags.has(OpenFlags::NO_GROUP);
        let group = in_group.then(|| caller.file(self.group_fd)).transpose()?;
        let task = match &cgroup {
            Some(folder) => folder.as_raw_fd(),
            None if self.pid == 0 => self.thread,
            None => self.pid,
        };
        let flags = self.flags.0 & !OpenFlags::OUTPUT.0;
        perf::open_raw(&attr, task, self.cpu, group.as_ref().map(AsFd::as_fd), flags)
    }
}

impl Listener {
    /// Opens the event of a call with this process's rights, on a task of the caller's own PID namespace, which is not this process's.
    /// `attr` is [`OpenCall::attr_bytes`].
    ///
    /// # Errors
    /// `EACCES` for a caller in this process's PID namespace, and what is not an event of a task; `ESRCH` where it has no such task;
    /// those of `perf_event_open(2)`; `EINVAL` before Linux 6.9 for a thread that leads no process and is not the caller.
    pub fn open_within(&self, call: &OpenCall, attr: &[u8]) -> Result<OwnedFd, Errno> {
        let namespace = self.proc.namespace(call.thread, "pid");
        let own = self.proc.namespace(std::process::id().cast_signed(), "pid");
        let is_plain = call.flags.0 & !(OpenFlags::CLOSE_ON_EXEC.0 | OpenFlags::NO_GROUP.0) == 0;
        if namespace.is_none() || own.is_none() || namespace == own || !is_plain || call.pid < 0 {
            return Err(Errno::EACCES);
        }
        let (task, held) = if call.pid == 0 {
            (call.thread, None)
        } else {
            let _alone = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
            let find = || self.proc.task_in_namespace_of(call.thread, call.pid);
            let task = find().ok_or(Errno::ESRCH)?;
            let held = TaskHandle::open(task)?;
            // The number may have been another task's when it was found, and is this one's now.
            if find() != Some(task) {
                return Err(Errno::ESRCH);
            }
            (task, Some(held))
        };
        // The kernel asks this as well, but of a caller with `CAP_PERFMON`, as this process is.
        if !self.proc.may_look_into(call.thread, task) {
            return Err(Errno::EACCES);
        }
        let in_group = call.group_fd != -1 && !call.flags.has(OpenFlags::NO_GROUP);
        let caller = CallerFiles { call, proc: &self.proc };
        let group = in_group.then(|| caller.file(call.group_fd)).transpose()?;
        let event = perf::open_raw(attr, task, call.cpu, group.as_ref().map(AsFd::as_fd), call.flags.0)?;
        // A task that lives now has had its number until now. The caller's own is that as long as the call waits.
        let lives = match held {
            None => self.still_waits(call),
            Some(held) => held.lives(),
        };
        // Once more: it may have executed a program with other rights before the event was there. Afterwards the kernel ends the event.
        if lives && self.proc.may_look_into(call.thread, task) { Ok(event) } else { Err(Errno::ESRCH) }
    }
}

/// A task that is still known when its number is another one's.
#[derive(Debug)]
pub struct TaskHandle(OwnedFd);

impl TaskHandle {
    /// The task that has this number now.
    ///
    /// # Errors
    /// `ESRCH`; `EINVAL` before Linux 6.9 for a thread that leads no process.
    pub fn open(tid: i32) -> Result<Self, Errno> {
        match sys::pidfd_open_thread(tid) {
            Err(Errno::EINVAL) => sys::pidfd_open(tid),
            other => other,
        }
        .map(Self)
    }

    /// Whether it lives: as long as it does, its number is its own.
    #[must_use]
    pub fn lives(&self) -> bool {
        // One that may not be signalled lives.
        matches!(sys::pidfd_send_signal(self.0.as_fd(), 0), Ok(()) | Err(Errno::EPERM))
    }
}

/// Bytes of the first published attribute, of a size of 0, and of the longest that the kernel takes; where its flags begin.
const FIRST_ATTR_BYTES: u32 = 64;
const MOST_ATTR_BYTES: u32 = 4096;
const FLAGS_AT: usize = if cfg!(target_endian = "little") { 40 } else { 47 };

struct CallerFiles<'c> {
    call: &'c OpenCall,
    proc: &'c Proc,
}

impl CallerFiles<'_> {
    fn file(&self, number: RawFd) -> Result<OwnedFd, Errno> {
        let process = self.proc.process_of(self.call.thread).map_err(|_| Errno::ESRCH)?;
        sys::pidfd_getfd(sys::pidfd_open(process)?.as_fd(), number)
    }
}
