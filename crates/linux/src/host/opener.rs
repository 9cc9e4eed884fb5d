//! How a bank opens a kernel event.
//!
//! **Invariant:** what is opened doesn't count yet, unless the caller says that its group's leader decides that.

use super::{Shared, lock};
use crate::credentials::{ActError, EventTarget};
use crate::filter;
use crate::limits;
use crate::probe::Traced;
use crate::sys::perf::TargetTask;
use crate::sys::{self, Errno};
use pmux_abi::attr::{Attr, AttrFlags, EventType, ReadFormat, sw};
use pmux_engine::Cred;
use pmux_engine::pmu::BankError;
use pmux_engine::target::{ContextKey, Filter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

#[derive(Clone)]
pub(super) struct EventOpener {
    pub(super) key: ContextKey,
    pub(super) shared: Arc<Shared>,
}

impl EventOpener {
    pub(super) fn open(
        &self,
        attr: &Attr,
        (of_tasks, cred): (Filter, Cred),
        group: Option<BorrowedFd<'_>>,
    ) -> Result<EventFile, BankError> {
        let (attr, probe) = match Traced::in_place_of(attr).map_err(refused)? {
            Some((attr, probe)) => (attr, Some(probe)),
            None => (*attr, None),
        };
        let bytes = bytes_of(&filter::without_filter(&attr));
        let fd = with_room(|| match cred {
            Cred::HOST => self.ask(&bytes, of_tasks, group),
            cred => self.ask_as(cred, &bytes, of_tasks, group),
        });
        let file = EventFile::new(fd.map_err(refused)?, attr.kind, probe, &self.shared.files);
        filter::set(file.as_fd(), &attr).map_err(refused)?;
        Ok(file)
    }

    /// The thread and the CPU that are meant.
    fn target(&self, filter: Filter) -> Result<EventTarget, Errno> {
        let task = match self.key {
            ContextKey::Cpu(cpu) => return Ok(EventTarget { task: None, cpu: Some(cpu.0) }),
            ContextKey::Task(task) => u32::try_from(task.0).map_err(|_| Errno::ESRCH)?,
        };
        let cpu = match filter {
            Filter::OnCpu(cpu) => Some(cpu.0),
            Filter::Everything => None,
            Filter::Cgroup(_) => return Err(Errno::EINVAL),
        };
        Ok(EventTarget { task: Some(task), cpu })
    }

    fn ask(&self, attr: &[u8], filter: Filter, group: Option<BorrowedFd<'_>>) -> Result<OwnedFd, Errno> {
        let EventTarget { task, cpu } = self.target(filter)?;
        if let Filter::Cgroup(id) = filter {
            let cgroups = lock(&self.shared.cgroups);
            let known = cgroups.get(&id).ok_or(Errno::EBADF)?;
            return sys::perf::open(attr, TargetTask::Cgroup(known.cgroup.file().as_fd()), cpu, group);
        }
        sys::perf::open(attr, task.map_or(TargetTask::EveryTask, TargetTask::Task), cpu, group)
    }

    /// The same with the credentials of a client: the kernel decides by those.
    fn ask_as(&self, cred: Cred, attr: &[u8], filter: Filter, group: Option<BorrowedFd<'_>>) -> Result<OwnedFd, Errno> {
        let target = self.target(filter)?;
        let folder = match filter {
            Filter::Cgroup(id) => {
                let folder = lock(&self.shared.cgroups).get(&id).and_then(|known| known.cgroup.file().try_clone().ok());
                Some(folder.ok_or(Errno::EBADF)?)
            }
            _ => None,
        };
        let folder = folder.as_ref().map(AsFd::as_fd);
        self.shared.openers.open(cred, attr, target, group, folder).map_err(ActError::errno)
    }

    /// Changes what an open breakpoint waits for, with the credentials that it was opened with: an address of the kernel needs more
    /// rights than one of a program.
    pub(super) fn modify(&self, event: &EventFile, cred: Cred, attr: &Attr) -> Result<(), Errno> {
        let bytes = bytes_of(attr);
        match cred {
            Cred::HOST => sys::perf::modify_attributes(event.as_fd(), &bytes),
            cred => self.shared.openers.modify(cred, event.as_fd(), &bytes).map_err(ActError::errno),
        }
    }

    /// Opens the same event on several CPUs, each with the event there whose ring it writes into; all or none.
    pub(super) fn open_into<'f>(
        &self,
        attr: &Attr,
        filter: Filter,
        ring_owners: impl Iterator<Item = (u32, &'f EventFile)>,
    ) -> Result<EventFiles, BankError> {
        let bytes = bytes_of(attr);
        let mut fds = Vec::with_capacity(ring_owners.size_hint().1.unwrap_or_default());
        for (cpu, ring_owner) in ring_owners {
            let fd = with_room(|| self.ask_into(&bytes, filter, cpu, ring_owner.as_fd()));
            fds.push(fd.map_err(refused)?);
        }
        Ok(EventFiles::new(fds, &self.shared.files))
    }

    fn ask_into(&self, attr: &[u8], filter: Filter, cpu: u32, ring_owner: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        let target_task = match (self.key, filter) {
            (_, Filter::Cgroup(_)) => return Err(Errno::EOPNOTSUPP),
            (ContextKey::Task(task), _) => TargetTask::Task(u32::try_from(task.0).map_err(|_| Errno::ESRCH)?),
            (ContextKey::Cpu(_), _) => TargetTask::EveryTask,
        };
        sys::perf::open_into(attr, target_task, cpu, ring_owner)
    }

    /// An event that counts how often a task and its descendants fork, on from now on; `None` where that is not wanted or
    /// refused.
    pub(super) fn fork_counter(&self, filter: Filter) -> Option<EventFile> {
        let config = self.shared.fork_tracepoint.load(Ordering::Relaxed);
        if config == 0 || !matches!(self.key, ContextKey::Task(_)) {
            return None;
        }
        // Wherever it forks, though the event itself may be of one CPU.
        let filter = if matches!(filter, Filter::OnCpu(_)) { Filter::Everything } else { filter };
        let attr = Attr { kind: EventType::TRACEPOINT, config, flags: AttrFlags::INHERIT, ..Attr::default() };
        // It is the service's own book-keeping, which only says whether an event may be shared: its owner's rights are enough.
        self.open(&attr, (filter, Cred::HOST), None).ok()
    }

    /// Whether the kernel has ended an event of a task that lives: it does so when the task executes a program that changes its
    /// rights (`perf_event_exit_task` in `begin_new_exec`). `leader` is a group leader that was opened with `attr` and `filter`.
    ///
    /// `read(2)` returns the last count of such an event, and `poll(2)` returns `POLLHUP` for every event without a ring. But no
    /// event may be opened in its group: the kernel answers `ENODEV`, and `EINVAL` before Linux 6.15. An event that is opened
    /// here is off, and is closed at once.
    pub(super) fn has_ended(&self, leader: &EventFile, attr: &Attr, filter: Filter) -> bool {
        // These have to be equal in a group.
        let alike = AttrFlags::INHERIT | AttrFlags::INHERIT_THREAD | AttrFlags::REMOVE_ON_EXEC | AttrFlags::USE_CLOCKID;
        let probe = Attr {
            kind: EventType::SOFTWARE,
            config: sw::DUMMY,
            clock_id: attr.clock_id,
            flags: attr.flags & alike | AttrFlags::DISABLED | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV,
            ..Attr::default()
        };
        let ended = [Errno::ENODEV, Errno::EINVAL, Errno::ESRCH, Errno::EACCES, Errno::EPERM];
        let opened = with_room(|| self.ask(&bytes_of(&probe), filter, Some(leader.as_fd())));
        opened.is_err_and(|errno| ended.contains(&errno))
    }

    /// Whether its task waits for its first exec, and events that are started now begin with that.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.key, ContextKey::Task(task) if lock(&self.shared.held).contains(&task))
    }
}

/// Opens something, where need be with more room for files: the soft limit is ours to raise; at the hard limit it is for the user
/// to decide.
pub(super) fn with_room(open: impl Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    match open() {
        Err(Errno::EMFILE) if limits::raise_soft_limit().is_ok() => open(),
        other => other,
    }
}

/// An event of the kernel. Closed when it is dropped.
pub(super) struct EventFile {
    fd: ClosableFd,
    /// The probe that it is on, which must outlive the file.
    _probe: Option<Arc<Traced>>,
    /// Which of all that the host has opened it is, from 0 on.
    pub(super) number: u64,
    count: Arc<FileCount>,
}

/// The file of an event.
enum ClosableFd {
    /// It is closed at once.
    Quick(OwnedFd),
    /// It is closed by a thread of its own, because the kernel waits for all CPUs before the last event of a tracepoint goes
    /// (`tracepoint_synchronize_unregister`): some 40 ms each.
    Slow(Arc<OwnedFd>, Sender<Arc<OwnedFd>>),
}

/// How many events of the kernel a host has opened and closed. Relaxed: nothing is published by them.
#[derive(Default)]
pub(crate) struct FileCount {
    pub(super) opened: AtomicU64,
    pub(super) closed: AtomicU64,
    /// How many were given to the thread that closes, and how many of them it has closed.
    handed_over: AtomicU64,
    closed_later: Arc<AtomicU64>,
    closer: OnceLock<Sender<Arc<OwnedFd>>>,
    /// What takes long to close and may still be open.
    slow: Mutex<Vec<Weak<OwnedFd>>>,
}

impl FileCount {
    /// From now on what takes long to close is closed by a thread.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub(super) fn close_elsewhere(&self) -> std::io::Result<()> {
        let (sender, receiver) = std::sync::mpsc::channel::<Arc<OwnedFd>>();
        let closed = Arc::clone(&self.closed_later);
        std::thread::Builder::new().name("pmux-close".to_owned()).spawn(move || {
            for file in receiver {
                // The other one is about to let go of it: the last one closes.
                while Arc::strong_count(&file) > 1 {
                    std::thread::yield_now();
                }
                drop(file);
                closed.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        let _ = self.closer.set(sender);
        Ok(())
    }

    /// Gives what takes long to close to a child, which closes it: to be called when this process is about to exit. As long as the returned
    /// socket is open, the child keeps what it was given; what it can't take is closed by the exit of this process.
    pub(super) fn leave_to_child(&self) -> Option<(i32, OwnedFd)> {
        /// It is waited for so long that the child makes room for more, before what is left is not given to it.
        const ROOM: Duration = Duration::from_secs(1);
        let files: Vec<_> = lock(&self.slow).drain(..).filter_map(|file| file.upgrade()).collect();
        let (pid, door) = if files.is_empty() { None } else { sys::fork_holder().ok() }?;
        let started = Instant::now();
        for file in files {
            // It counts on: clients that hold its file read it until the next service is there.
            while sys::send_packet(door.as_fd(), &[0], &[file.as_fd()]) == Err(Errno::EAGAIN)
                && started.elapsed() < ROOM
            {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Some((pid, door))
    }

    fn note_slow(&self, file: &Arc<OwnedFd>) {
        let mut slow = lock(&self.slow);
        if slow.len() == slow.capacity() {
            slow.retain(|file| file.strong_count() > 0);
        }
        slow.push(Arc::downgrade(file));
    }

    /// Closes an event that was opened in vain, as one that was in use.
    pub(crate) fn discard(&self, fd: OwnedFd) {
        self.opened.fetch_add(1, Ordering::Relaxed);
        match self.closer.get().is_some_and(|closer| closer.send(Arc::new(fd)).is_ok()) {
            true => self.handed_over.fetch_add(1, Ordering::Relaxed),
            false => self.closed.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// What the thread that closes has been given and has done.
    pub(super) fn closing(&self) -> Closing {
        let closed = self.closed_later.load(Ordering::Relaxed);
        Closing { handed_over: self.handed_over.load(Ordering::Relaxed), closed }
    }
}

/// What the thread that closes events has been given since the start, and what it has closed of that, in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Closing {
    /// Events that it was given.
    pub handed_over: u64,
    /// Those that are closed.
    pub closed: u64,
}

impl EventFile {
    fn new(fd: OwnedFd, kind: EventType, probe: Option<Arc<Traced>>, count: &Arc<FileCount>) -> Self {
        let number = count.opened.fetch_add(1, Ordering::Relaxed);
        let fd = match count.closer.get() {
            Some(closer) if kind == EventType::TRACEPOINT => {
                let fd = Arc::new(fd);
                count.note_slow(&fd);
                ClosableFd::Slow(fd, closer.clone())
            }
            _ => ClosableFd::Quick(fd),
        };
        Self { fd, _probe: probe, number, count: Arc::clone(count) }
    }
}

impl AsFd for EventFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            ClosableFd::Quick(fd) => fd.as_fd(),
            ClosableFd::Slow(fd, _) => fd.as_fd(),
        }
    }
}

impl Drop for EventFile {
    fn drop(&mut self) {
        if let ClosableFd::Slow(fd, closer) = &self.fd {
            // So that it costs nothing while it waits. It can't fail.
            let _ = sys::perf::disable(fd.as_fd());
            if closer.send(Arc::clone(fd)).is_ok() {
                self.count.handed_over.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        self.count.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Events of the kernel that belong together. Closed when it is dropped.
pub(super) struct EventFiles {
    pub(super) fds: Vec<OwnedFd>,
    count: Arc<FileCount>,
}

impl EventFiles {
    pub(super) fn new(fds: Vec<OwnedFd>, count: &Arc<FileCount>) -> Self {
        count.opened.fetch_add(fds.len() as u64, Ordering::Relaxed);
        Self { fds, count: Arc::clone(count) }
    }
}

impl Drop for EventFiles {
    fn drop(&mut self) {
        self.count.closed.fetch_add(self.fds.len() as u64, Ordering::Relaxed);
    }
}

pub(super) fn refused(errno: Errno) -> BankError {
    BankError::from_errno(errno.raw())
}

/// The bytes of an attribute, as the kernel takes them.
pub(crate) fn bytes_of(attr: &Attr) -> Vec<u8> {
    let mut bytes = [0; Attr::MAX_SIZE];
    let size = attr.encode(&mut bytes);
    bytes.get(..size).unwrap_or_default().to_vec()
}

/// The time enabled that goes with a time running of the same read, ns.
///
/// Of an event that is read alone the kernel takes the one after the other and without a lock: where its task comes onto a CPU and leaves
/// it in between, it seems to have run for longer than it was enabled.
///
/// Linux: `__perf_event_read_value` (kernel/events/core.c).
pub(super) fn enabled_with(running_ns: u64, enabled_ns: u64) -> u64 {
    enabled_ns.max(running_ns)
}

/// What every event is asked for beside its count.
pub(super) const TIMES: ReadFormat = ReadFormat::TOTAL_TIME_ENABLED.union(ReadFormat::TOTAL_TIME_RUNNING);

/// What the kernel gets: disabled, with times; the engine decides when it counts.
pub(super) fn kernel_attr(attr: &Attr, grouped: bool) -> Attr {
    let mut attr = *attr;
    attr.flags |= AttrFlags::DISABLED;
    attr.read_format |= TIMES;
    attr.read_format.set(ReadFormat::GROUP, grouped);
    attr
}

/// Children report one event at a time, and old kernels refuse to inherit what is read as a group.
pub(super) fn can_read_as_group(attr: &Attr) -> bool {
    !attr.flags.intersects(AttrFlags::INHERIT | AttrFlags::INHERIT_STAT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_takes_long_to_close_is_left_to_a_child() {
        // Few: another test counts the files of this process.
        const FILES: usize = 20;
        let count = Arc::new(FileCount::default());
        assert!(count.leave_to_child().is_none(), "nothing is open");
        count.close_elsewhere().unwrap();
        let file = |kind| EventFile::new(File::open("/dev/null").unwrap().into(), kind, None, &count);
        let slow: Vec<_> = (0..FILES).map(|_| file(EventType::TRACEPOINT)).collect();
        let quick = file(EventType::SOFTWARE);
        let closed = file(EventType::TRACEPOINT);
        drop(closed);
        while count.closing().closed == 0 {
            std::thread::yield_now();
        }
        let (pid, door) = count.leave_to_child().unwrap();
        drop((slow, quick));
        // Beside its socket it has those that were open and take long; at first also what every child of this process has.
        let held = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let started = Instant::now();
        while held() != FILES + 1 {
            assert!(started.elapsed() < Duration::from_secs(300), "it has {} files", held());
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(door);
        assert!(sys::wait_child(pid, sys::Reaping::Block).unwrap().is_some());
    }
}
