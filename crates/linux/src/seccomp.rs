//! Calls of `perf_event_open(2)` that wait to be answered.
//!
//! What it is: [`Listener`], which receives the calls of a command that was started so
//! ([`crate::spawn::PerfEvents::Supervised`]) and of its descendants; [`OpenCall`], what one of them asks; [`OpenCall::attempt`], what
//! the kernel would say to it.
//! Read first: [`Listener::receive`], then [`Listener::go_on`].
//!
//! **Invariant:** what a call points to is memory of its caller, who may change it at any time. What is read there says what to tell
//! people; the kernel decides about a call with the caller's own rights, and reads for itself.
//!
//! Source: `seccomp_unotify(2)`, `kernel/seccomp.c`.

use crate::procfs::{Proc, ProcError};
use crate::sys::seccomp::{self, Notification};
use crate::sys::{self, Errno, PollEntry, perf};
use pmux_abi::attr::Attr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Where calls wait. Once it is dropped, they fail with `ENOSYS`.
///
/// It polls as readable when a call waits, and as hung up when the last task that is under its filter has ended.
#[derive(Debug)]
pub struct Listener(OwnedFd);

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
        Self(fd)
    }

    /// The next call that waits; `None` where none does, which is known at once.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn receive(&self) -> Result<Option<OpenCall>, Errno> {
        let mut entries = [PollEntry::new(self.0.as_raw_fd())];
        match sys::ppoll(&mut entries, Some(Duration::ZERO)) {
            Ok(_) if entries[0].readable => {}
            Ok(_) | Err(Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        match seccomp::receive(self.0.as_fd()) {
            Ok(call) => Ok(Some(OpenCall::of(&call))),
            // Its caller was killed, or a signal has interrupted one of the two.
            Err(Errno::ENOENT | Errno::EINTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Whether a call still waits: then what was read of its thread until now is that thread's, and not that of a later one which
    /// has its number.
    #[must_use]
    pub fn still_waits(&self, call: &OpenCall) -> bool {
        seccomp::still_waits(self.0.as_fd(), call.id)
    }

    /// Lets the kernel carry out a call, with the caller's rights, as if it were not supervised. Nothing happens where it doesn't wait
    /// any more.
    ///
    /// # Errors
    /// `EINVAL` before Linux 5.5.
    pub fn go_on(&self, call: &OpenCall) -> Result<(), Errno> {
        match seccomp::go_on(self.0.as_fd(), call.id) {
            Err(Errno::ENOENT) => Ok(()),
            other => other,
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Why there is no attribute to be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoAttr {
    /// Its size can't be that of an attribute. The kernel answers `E2BIG`.
    Size(u32),
    /// The caller's memory can't be read.
    Memory(ProcError),
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
    pub fn attr_bytes(&self, proc: &Proc) -> Result<Vec<u8>, NoAttr> {
        let read = |bytes| proc.memory(self.thread, self.attr_address, bytes).map_err(NoAttr::Memory);
        let head = read(8)?;
        let stated = head.get(4..8).and_then(|size| size.try_into().ok()).map_or(0, u32::from_ne_bytes);
        // What a size of 0 means, and what the kernel takes at most: a page.
        let size = if stated == 0 { FIRST_ATTR_BYTES } else { stated };
        if !(FIRST_ATTR_BYTES..=MOST_ATTR_BYTES).contains(&size) {
            return Err(NoAttr::Size(size));
        }
        let mut bytes = read(size as usize)?;
        // Fewer are mapped: the kernel can't read the rest either, which no attribute needs.
        bytes.resize(size as usize, 0);
        Ok(bytes)
    }

    /// What the kernel says to the same event, opened by this thread and closed at once: the outcome of the call, if the caller has
    /// this process's rights and numbers of tasks. `attr` is [`OpenCall::attr_bytes`].
    ///
    /// # Errors
    /// Those of `perf_event_open(2)`; of `pidfd_getfd(2)` for the caller's descriptors.
    pub fn attempt(&self, attr: &[u8], proc: &Proc) -> Result<(), Errno> {
        let mut attr = attr.to_vec();
        if let Some(flags) = attr.get_mut(FLAGS_AT) {
            // Disabled: it would count at once.
            *flags |= 1;
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
        perf::open_raw(&attr, task, self.cpu, group.as_ref().map(AsFd::as_fd), flags).map(drop)
    }
}

/// Bytes of the first published attribute, of a size of 0, and of the longest that the kernel takes; where its flags begin.
const FIRST_ATTR_BYTES: u32 = 64;
const MOST_ATTR_BYTES: u32 = 4096;
const FLAGS_AT: usize = if cfg!(target_endian = "little") { 40 } else { 47 };

/// The attribute of bytes that a caller has given, where every bit of it is known here.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Attr> {
    Attr::decode(bytes).ok()
}

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
