//! Events that programs believe to have, and that they share.
//!
//! What it is: a *virtual* event is a descriptor by which a program reads and switches what a [`ServedGroup`] counts, of which equal ones
//! share one event of the kernel. Each begins at 0 and is switched, reset and read as if it were alone.
//! Read first: [`VirtualEvents::open`], then [`VirtualEvents::carry_out`].
//!
//! The descriptor is the writing end of a pipe, which says two things by itself: its inode, whose number no other file has, is the event that
//! is meant, however often the descriptor was inherited or passed on; and the other end hangs up when the last copy is closed. No file can
//! be sent through it, and who reads it where that is not reported gets an error.
//!
//! **Invariant:** what a program sees of an event is what `perf_event_open(2)` says of an event of the kernel; what can't be answered so is
//! not made virtual, or is replaced by an event of the kernel.

use crate::server_api::{Acting, EventAction, ServeRequest, ServedGroup, ServedTarget};
use crate::session::Session;
use crate::{Count, Multiplexing};
use pmux_abi::attr::{Attr, AttrFlags, EventType, ReadFormat, sw};
use pmux_abi::read::{ReadLayout, ReadMember, ReadValues};
use pmux_engine::pmu::share_key::canonical;
use pmux_linux::Errno;
use pmux_linux::seccomp::{FdAction, FdCall, Listener, OpenCall, OpenFlags, TaskHandle, Waiting};
use pmux_linux::shared::poll::{Interest, Poll, Token};
use std::collections::HashMap;
use std::fs::File;
use std::io::PipeReader;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The requests of `ioctl(2)`. Source: `include/uapi/linux/perf_event.h`.
mod request {
    pub(super) const ENABLE: u32 = 0x2400;
    pub(super) const DISABLE: u32 = 0x2401;
    pub(super) const REFRESH: u32 = 0x2402;
    pub(super) const RESET: u32 = 0x2403;
    pub(super) const PERIOD: u32 = 0x4008_2404;
    pub(super) const ID: u32 = 0x8008_2407;
    /// What needs an event of the kernel: `SET_OUTPUT`, `SET_FILTER`, `SET_BPF`, `PAUSE_OUTPUT`, `QUERY_BPF`, `MODIFY_ATTRIBUTES`.
    pub(super) const OF_THE_KERNEL: [u32; 6] =
        [0x2405, 0x4008_2406, 0x4004_2408, 0x4004_2409, 0xc008_240a, 0x4008_240b];

    /// Whether it is one of events, and not of any file.
    pub(super) const fn is_of_events(request: u32) -> bool {
        request >> 8 & 0xff == b'$' as u32
    }
}

/// So many virtual events a command has at once; those that come later are own. Each costs a file and some memory here.
const MOST: usize = 16_384;

pub(super) struct VirtualEvents {
    by_inode: Mutex<HashMap<u64, Arc<VirtualEvent>>>,
    /// Readable when the last copy of a descriptor was closed.
    closed: Poll,
    ids: AtomicU64,
}

struct VirtualEvent {
    group: Mutex<ServedGroup>,
    layout: ReadLayout,
    id: u64,
    is_enabled: AtomicBool,
    /// To open an event of the kernel in its place.
    call: OpenCall,
    attr: Vec<u8>,
    /// Of the descriptor's inode.
    device: u64,
    /// Says whether its task still lives; `None` for one of a CPU.
    task: Option<TaskHandle>,
    /// The other end of the descriptor.
    _ours: PipeReader,
}

impl VirtualEvents {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { by_inode: Mutex::default(), closed: Poll::new()?, ids: AtomicU64::new(1) })
    }

    /// Readable when [`VirtualEvents::close_unused`] has something to do.
    pub(super) fn closed(&self) -> BorrowedFd<'_> {
        self.closed.as_fd()
    }

    /// Closes the events of which no program has a descriptor any more.
    pub(super) fn close_unused(&self) {
        let mut gone = Vec::new();
        // Where it fails, they are closed later.
        let _ = self.closed.wait(Some(Duration::ZERO), |ready| {
            if ready.hangup {
                gone.push(ready.token.0);
            }
        });
        let mut by_inode = self.by_inode();
        let gone: Vec<_> = gone.iter().filter_map(|inode| by_inode.remove(inode)).collect();
        drop(by_inode);
        drop(gone);
    }

    /// Answers an open by a virtual event; `None` where it has to be one of the kernel's.
    pub(super) fn open(
        &self,
        session: &Session,
        listener: &Listener,
        (call, target): (&OpenCall, ServedTarget),
        (bytes, attr): (&[u8], &Attr),
    ) -> Option<()> {
        let is_full = self.by_inode().len() >= MOST;
        let mut asked = canonical(attr).filter(|_| !is_full && may_be_virtual(session, attr))?;
        let mut task = None;
        match target {
            // Nothing of a CPU is inherited, or bound to a program.
            ServedTarget::Cpu(_) => {
                asked.flags.remove(AttrFlags::INHERIT | AttrFlags::INHERIT_THREAD | AttrFlags::REMOVE_ON_EXEC);
            }
            _ if asked.flags.contains(AttrFlags::REMOVE_ON_EXEC) => return None,
            // What was opened before says nothing of the rights to count what the task executes now.
            _ => {
                task = Some(TaskHandle::open(call.pid).ok()?);
                call.attempt(bytes, listener.proc()).ok()?;
            }
        }
        let question = ServeRequest { target, attrs: vec![asked] };
        let group = session.serve(&Acting::default(), question, Multiplexing::Kernel);
        let group = group.inspect_err(|error| {
            if error.errno == Errno::ESRCH.raw() {
                // Whatever is open on its number is over.
                session.served_task_exited(call.pid);
            }
        });
        let group = group.ok()?;
        let is_enabled = !attr.flags.contains(AttrFlags::DISABLED);
        if is_enabled {
            group.control(0, EventAction::Enable).ok()?;
        }
        let (ours, theirs) = std::io::pipe().ok()?;
        let theirs = File::from(OwnedFd::from(theirs));
        let file = theirs.metadata().ok()?;
        let inode = file.ino();
        // What a program writes into its end is not looked at.
        self.closed.add(&ours, Token(inode), Interest::Hangup).ok()?;
        let event = VirtualEvent {
            group: Mutex::new(group),
            layout: ReadLayout::new(attr.read_format),
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            is_enabled: AtomicBool::new(is_enabled),
            call: *call,
            attr: bytes.to_vec(),
            device: file.dev(),
            task,
            _ours: ours,
        };
        self.by_inode().insert(inode, Arc::new(event));
        match listener.give(call, theirs.as_fd()) {
            Ok(number) => {
                listener.answer(call, Ok(i64::from(number)));
                Some(())
            }
            Err(_) => {
                let gone = self.by_inode().remove(&inode);
                // The kernel takes its time to close an event, and others wait for the list.
                drop(gone);
                None
            }
        }
    }

    /// Answers a call about a descriptor that may be a virtual event's.
    pub(super) fn carry_out(&self, listener: &Listener, call: &FdCall) {
        if call.action == FdAction::Unknown {
            return listener.answer(call, Err(Errno::ENOSYS));
        }
        let event = match call.action {
            FdAction::Fcntl => None,
            FdAction::Ioctl { request, .. } if !request::is_of_events(request) => None,
            _ => self.event(listener, call, call.fd),
        };
        let Some(event) = event else {
            // The caller's own file.
            let _ = listener.go_on(call);
            return;
        };
        let answer = match call.action {
            FdAction::Read { address, bytes } => event.read(listener, call, address, bytes),
            FdAction::Ioctl { request, argument } => match event.control(listener, call, request, argument) {
                Some(answer) => answer,
                None => return replace(listener, call, &event),
            },
            _ => return replace(listener, call, &event),
        };
        listener.answer(call, answer);
    }

    /// Puts an event of the kernel in the place of the leader of the group that an open is to join, if that is virtual.
    pub(super) fn make_room_for_member(&self, listener: &Listener, call: &OpenCall) {
        if call.group_fd >= 0
            && let Some(leader) = self.event(listener, call, call.group_fd)
        {
            // Where it fails, the kernel refuses the open.
            let _ = put_real(listener, call, call.group_fd, &leader);
        }
    }

    fn event(&self, listener: &Listener, call: &impl Waiting, fd: i32) -> Option<Arc<VirtualEvent>> {
        let (device, inode) = listener.open_file(call, fd)?;
        self.by_inode().get(&inode).filter(|event| event.device == device).cloned()
    }

    fn by_inode(&self) -> MutexGuard<'_, HashMap<u64, Arc<VirtualEvent>>> {
        self.by_inode.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VirtualEvent {
    fn group(&self) -> MutexGuard<'_, ServedGroup> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `read(2)` returns; the values are written to the caller's memory.
    fn read(&self, listener: &Listener, call: &FdCall, address: u64, bytes: u64) -> Result<i64, Errno> {
        let size = self.layout.size(1);
        if bytes < size as u64 {
            return Err(Errno::ENOSPC);
        }
        // An event that is in error has nothing to be read, as in the kernel.
        let Ok(Count { value, enabled, running }) = self.group().read(0) else { return Ok(0) };
        let has = |bit| self.layout.format().contains(bit);
        let member =
            ReadMember { value, id: has(ReadFormat::ID).then_some(self.id), lost: has(ReadFormat::LOST).then_some(0) };
        let mut values = ReadValues::of(std::slice::from_ref(&member));
        values.time_enabled = has(ReadFormat::TOTAL_TIME_ENABLED).then_some(enabled.0);
        values.time_running = has(ReadFormat::TOTAL_TIME_RUNNING).then_some(running.0);
        let mut room = [0; 64];
        let written = self.layout.encode(&values, &mut room).and_then(|bytes| room.get(..bytes));
        let written = written.ok_or(Errno::EIO)?;
        listener.write(call, address, written).map(|()| written.len() as i64)
    }

    /// What `ioctl(2)` returns; `None` where only an event of the kernel can do it.
    fn control(&self, listener: &Listener, call: &FdCall, request: u32, argument: u64) -> Option<Result<i64, Errno>> {
        let (action, is_enabled) = match request {
            request::ENABLE => (EventAction::Enable, true),
            request::DISABLE => (EventAction::Disable, false),
            request::RESET => (EventAction::Reset, self.is_enabled.load(Ordering::Relaxed)),
            request::ID => {
                let written = listener.write(call, argument, &self.id.to_ne_bytes());
                return Some(written.map(|()| 0));
            }
            // They are about samples, of which it takes none.
            request::REFRESH => return Some(Err(Errno::EINVAL)),
            request::PERIOD => {
                let is_there = listener.is_readable(call, argument, 8);
                return Some(Err(if is_there { Errno::EINVAL } else { Errno::EFAULT }));
            }
            other if request::OF_THE_KERNEL.contains(&other) => return None,
            _ => return Some(Err(Errno::ENOTTY)),
        };
        let done = self.group().control(0, action);
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
        Some(done.map(|()| 0).map_err(|error| Errno::from_raw(error.errno)))
    }
}

/// Replaces a virtual event by one of the kernel, and lets the call go on with that. What it had counted is lost with it.
fn replace(listener: &Listener, call: &FdCall, event: &VirtualEvent) {
    match put_real(listener, call, call.fd, event) {
        Ok(()) => _ = listener.go_on(call),
        Err(errno) => listener.answer(call, Err(errno)),
    }
}

fn put_real(listener: &Listener, call: &impl Waiting, fd: i32, event: &VirtualEvent) -> Result<(), Errno> {
    let is_enabled = event.is_enabled.load(Ordering::Relaxed);
    let real = event.call.open_real(&event.attr, is_enabled, listener.proc())?;
    // Otherwise its number is another task's by now.
    if event.task.as_ref().is_some_and(|task| !task.lives()) {
        return Err(Errno::ESRCH);
    }
    listener.replace(call, fd, real.as_fd())
}

/// Where a virtual event counts; `None` where the arguments of the call say already that it has to be the kernel's own.
pub(super) fn place_of(call: &OpenCall) -> Option<ServedTarget> {
    let plain = call.flags.0 & !(OpenFlags::CLOSE_ON_EXEC.0 | OpenFlags::NO_GROUP.0) == 0;
    let alone = call.group_fd == -1 || call.flags.has(OpenFlags::NO_GROUP);
    if !(call.is_64_bit && plain && alone) {
        return None;
    }
    match (call.pid, u32::try_from(call.cpu)) {
        (-1, Ok(cpu)) => Some(ServedTarget::Cpu(cpu)),
        (task @ 1.., Ok(cpu)) if task != call.thread => Some(ServedTarget::TaskOnCpu(task, cpu)),
        (task @ 1.., Err(_)) if task != call.thread && call.cpu == -1 => Some(ServedTarget::Task(task)),
        _ => None,
    }
}

/// Whether its attribute lets an event be virtual, as far as it only counts.
fn may_be_virtual(session: &Session, attr: &Attr) -> bool {
    // One that demands a counter for itself, or that a program attaches other things to.
    let demands = AttrFlags::PINNED | AttrFlags::EXCLUSIVE;
    let other_use = match attr.kind {
        EventType::TRACEPOINT | EventType::BREAKPOINT => true,
        EventType::SOFTWARE => matches!(attr.config, sw::DUMMY | sw::BPF_OUTPUT),
        kind if kind < EventType::FIRST_DYNAMIC => false,
        kind => session.is_probe(kind) || session.pmu_named_by(kind).is_none(),
    };
    !other_use && !attr.flags.intersects(demands)
}
