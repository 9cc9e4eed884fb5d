//! How a bank opens a kernel event.
//!
//! **Invariant:** what is opened doesn't count yet, unless the caller says that its group's leader decides that.

use super::{Shared, lock};
use crate::limits;
use crate::sys::perf::Subject;
use crate::sys::{self, Errno};
use pmux_abi::attr::{Attr, AttrFlags, EventType, ReadFormat};
use pmux_engine::context::{ContextKey, Filter};
use pmux_engine::pmu::BankError;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Opens events of one context.
#[derive(Clone)]
pub(super) struct Opener {
    pub(super) key: ContextKey,
    pub(super) shared: Arc<Shared>,
}

impl Opener {
    pub(super) fn open(
        &self,
        attr: &Attr,
        filter: Filter,
        group: Option<BorrowedFd<'_>>,
    ) -> Result<EventFile, BankError> {
        let mut bytes = [0; Attr::MAX_SIZE];
        let size = attr.encode(&mut bytes);
        let bytes = bytes.get(..size).ok_or(BankError::Invalid)?;
        let fd = with_room(|| self.ask(bytes, filter, group));
        let fd = fd.map_err(|errno| BankError::from_errno(errno.raw()))?;
        Ok(EventFile::new(fd, &self.shared.files))
    }

    fn ask(&self, attr: &[u8], filter: Filter, group: Option<BorrowedFd<'_>>) -> Result<OwnedFd, Errno> {
        match (self.key, filter) {
            (ContextKey::Task(task), filter) => {
                let tid = u32::try_from(task.0).map_err(|_| Errno::ESRCH)?;
                let cpu = match filter {
                    Filter::OnCpu(cpu) => Some(cpu.0),
                    Filter::Everything => None,
                    Filter::Cgroup(_) => return Err(Errno::EINVAL),
                };
                sys::perf::open(attr, Subject::Task(tid), cpu, group)
            }
            (ContextKey::Cpu(cpu), Filter::Cgroup(id)) => {
                let cgroups = lock(&self.shared.cgroups);
                let known = cgroups.get(&id).ok_or(Errno::EBADF)?;
                sys::perf::open(attr, Subject::Cgroup(known.cgroup.file().as_fd()), Some(cpu.0), group)
            }
            (ContextKey::Cpu(cpu), _) => sys::perf::open(attr, Subject::EveryTask, Some(cpu.0), group),
        }
    }

    /// Opens the same event on several CPUs, each with the event there whose ring it writes into; all or none.
    pub(super) fn open_into<'f>(
        &self,
        attr: &Attr,
        filter: Filter,
        outlets: impl Iterator<Item = (u32, &'f EventFile)>,
    ) -> Result<EventFiles, BankError> {
        let mut bytes = [0; Attr::MAX_SIZE];
        let size = attr.encode(&mut bytes);
        let bytes = bytes.get(..size).ok_or(BankError::Invalid)?;
        let mut fds = Vec::with_capacity(outlets.size_hint().1.unwrap_or_default());
        for (cpu, outlet) in outlets {
            let fd = with_room(|| self.ask_into(bytes, filter, cpu, outlet.as_fd()));
            fds.push(fd.map_err(|errno| BankError::from_errno(errno.raw()))?);
        }
        Ok(EventFiles::new(fds, &self.shared.files))
    }

    fn ask_into(&self, attr: &[u8], filter: Filter, cpu: u32, outlet: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        let subject = match (self.key, filter) {
            (_, Filter::Cgroup(_)) => return Err(Errno::EOPNOTSUPP),
            (ContextKey::Task(task), _) => Subject::Task(u32::try_from(task.0).map_err(|_| Errno::ESRCH)?),
            (ContextKey::Cpu(_), _) => Subject::EveryTask,
        };
        sys::perf::open_into(attr, subject, cpu, outlet)
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
        self.open(&attr, filter, None).ok()
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
    fd: OwnedFd,
    number: u64,
    count: Arc<FileCount>,
}

/// How many events of the kernel a host has opened and closed. Relaxed: nothing is published by them.
#[derive(Default)]
pub(super) struct FileCount {
    pub(super) opened: AtomicU64,
    pub(super) closed: AtomicU64,
}

impl EventFile {
    fn new(fd: OwnedFd, count: &Arc<FileCount>) -> Self {
        let number = count.opened.fetch_add(1, Ordering::Relaxed);
        Self { fd, number, count: Arc::clone(count) }
    }

    /// Which of all that the host has opened it is, from 0 on.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }
}

impl AsFd for EventFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for EventFile {
    fn drop(&mut self) {
        self.count.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Events of the kernel that belong together. Closed when it is dropped.
pub(super) struct EventFiles {
    fds: Vec<OwnedFd>,
    count: Arc<FileCount>,
}

impl EventFiles {
    pub(super) fn new(fds: Vec<OwnedFd>, count: &Arc<FileCount>) -> Self {
        count.opened.fetch_add(fds.len() as u64, Ordering::Relaxed);
        Self { fds, count: Arc::clone(count) }
    }

    pub(super) fn fds(&self) -> &[OwnedFd] {
        &self.fds
    }
}

impl Drop for EventFiles {
    fn drop(&mut self) {
        self.count.closed.fetch_add(self.fds.len() as u64, Ordering::Relaxed);
    }
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
