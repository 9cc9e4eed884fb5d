//! Slots that are kernel event fds.
//!
//! What it is: program opens the fd, start and stop are ioctls, read is `read(2)`. The kernel keeps groups together,
//! multiplexes, and adds up children.
//!
//! **Invariant:** an fd is closed when its slot is released or its bank dropped, never before.

use super::{Shared, lock};
use crate::limits;
use crate::sys::perf::Subject;
use crate::sys::{self, Errno};
use pmux_abi::attr::{Attr, AttrFlags, ReadFormat, Sampling};
use pmux_abi::read::ReadLayout;
use pmux_engine::Nanos;
use pmux_engine::context::{ContextKey, Filter};
use pmux_engine::pmu::{BankError, Lease, Program, SlotReading, SlotTime};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

struct KernelSlot {
    generation: u64,
    fd: Arc<OwnedFd>,
    layout: ReadLayout,
    /// Whether a read of it brings its whole group.
    grouped: bool,
    /// How many events a read of it brings.
    members: usize,
    output: bool,
}

pub(super) struct KernelSlots {
    key: ContextKey,
    shared: Arc<Shared>,
    slots: Vec<Option<KernelSlot>>,
    buffer: Vec<u8>,
}

impl KernelSlots {
    pub(super) fn new(key: ContextKey, shared: Arc<Shared>) -> Self {
        Self { key, shared, slots: Vec::new(), buffer: Vec::new() }
    }

    fn slot(&self, lease: Lease) -> Result<&KernelSlot, BankError> {
        self.slots
            .get(lease.slot.0 as usize)
            .and_then(Option::as_ref)
            .filter(|slot| slot.generation == lease.generation)
            .ok_or(BankError::Other(libc::EBADF))
    }

    pub(super) fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        let leader = match program.leader {
            Some(leader) if leader.pmu == lease.pmu => Some(Arc::clone(&self.slot(leader)?.fd)),
            _ => None,
        };
        let grouped = program.leader.is_none() && program.group_size > 1 && can_read_as_group(&program.spec.attr);
        let attr = kernel_attr(&program.spec.attr, grouped);
        let mut bytes = [0; Attr::MAX_SIZE];
        let size = attr.encode(&mut bytes);
        let bytes = bytes.get(..size).ok_or(BankError::Invalid)?;
        let group = leader.as_ref().map(|fd| fd.as_fd());
        let fd = match self.open(bytes, program.filter, group) {
            // The soft limit is ours to raise; at the hard limit it is for the user to decide.
            Err(Errno::EMFILE) if limits::raise_soft_limit().is_ok() => self.open(bytes, program.filter, group),
            other => other,
        };
        let fd = Arc::new(fd.map_err(|errno| BankError::from_errno(errno.raw()))?);
        let output = has_output(&attr);
        if output {
            lock(&self.shared.outputs).insert((self.key, lease), Arc::clone(&fd));
        }
        let index = lease.slot.0 as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        let layout = ReadLayout::new(attr.read_format);
        let members = if grouped { program.group_size } else { 1 };
        self.slots[index] = Some(KernelSlot { generation: lease.generation, fd, layout, grouped, members, output });
        Ok(())
    }

    fn open(&self, attr: &[u8], filter: Filter, group: Option<BorrowedFd<'_>>) -> Result<OwnedFd, Errno> {
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
                let cgroup = cgroups.get(&id).ok_or(Errno::EBADF)?;
                sys::perf::open(attr, Subject::Cgroup(cgroup.file().as_fd()), Some(cpu.0), group)
            }
            (ContextKey::Cpu(cpu), _) => sys::perf::open(attr, Subject::EveryTask, Some(cpu.0), group),
        }
    }

    pub(super) fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        let slot = self.slot(lease)?;
        sys::perf::enable(slot.fd.as_fd()).map_err(|errno| BankError::from_errno(errno.raw()))
    }

    pub(super) fn stop(&mut self, lease: Lease) {
        if let Ok(slot) = self.slot(lease) {
            // Disabling an open event can't fail; were it closed, it would not count either.
            let _ = sys::perf::disable(slot.fd.as_fd());
        }
    }

    pub(super) fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        let mut out = [SlotReading { raw: 0, time: SlotTime::Whole }];
        self.read_into(lease, &mut out)?;
        Ok(out[0])
    }

    /// One `read(2)` of the leader brings all members, in the order in which they were opened.
    pub(super) fn read_group(&mut self, leases: &[Lease], out: &mut [SlotReading]) -> Result<(), BankError> {
        match leases.first() {
            Some(&leader) if self.slot(leader)?.grouped => self.read_into(leader, out),
            _ => {
                for (lease, out) in leases.iter().zip(out) {
                    *out = self.read(*lease)?;
                }
                Ok(())
            }
        }
    }

    fn read_into(&mut self, lease: Lease, out: &mut [SlotReading]) -> Result<(), BankError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.slot(lease).and_then(|slot| {
            // A leader that reads as a group answers with all its members, also when only it is asked for.
            let need = slot.layout.size(slot.members);
            if buffer.len() < need {
                buffer.resize(need, 0);
            }
            let read = sys::read(slot.fd.as_fd(), &mut buffer).map_err(|errno| BankError::from_errno(errno.raw()))?;
            if read == 0 {
                // End of file: a pinned event that could not be kept on its counter.
                return Err(BankError::Unscheduled);
            }
            let bytes = buffer.get(..read).ok_or(BankError::Invalid)?;
            let values = slot.layout.decode(bytes).map_err(|_| BankError::Invalid)?;
            let time = SlotTime::Measured {
                enabled: Nanos(values.time_enabled.unwrap_or_default()),
                running: Nanos(values.time_running.unwrap_or_default()),
            };
            for (out, value) in out.iter_mut().zip(values.members.iter()) {
                *out = SlotReading { raw: value.value, time };
            }
            Ok(())
        });
        self.buffer = buffer;
        result
    }

    pub(super) fn release(&mut self, lease: Lease) {
        if self.slot(lease).is_err() {
            return;
        }
        if let Some(slot) = self.slots.get_mut(lease.slot.0 as usize).and_then(Option::take)
            && slot.output
        {
            lock(&self.shared.outputs).remove(&(self.key, lease));
        }
    }
}

/// What the kernel gets: disabled, with times; the engine decides when it counts.
fn kernel_attr(attr: &Attr, grouped: bool) -> Attr {
    let mut attr = *attr;
    attr.flags |= AttrFlags::DISABLED;
    attr.read_format |= ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
    attr.read_format.set(ReadFormat::GROUP, grouped);
    attr
}

/// Children report one event at a time, and old kernels refuse to inherit what is read as a group.
fn can_read_as_group(attr: &Attr) -> bool {
    !attr.flags.intersects(AttrFlags::INHERIT | AttrFlags::INHERIT_STAT)
}

/// Whether it writes records.
fn has_output(attr: &Attr) -> bool {
    let records = AttrFlags::INHERIT_STAT | AttrFlags::TASK | AttrFlags::COMM | AttrFlags::MMAP;
    attr.sampling != Sampling::None || attr.flags.intersects(records)
}
