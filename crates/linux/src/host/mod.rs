//! Linux as a host of the engine: a kernel event fd is a counter slot.
//!
//! What it is: the engine's traits over `perf_event_open` ([`KERNEL`]) and, where that is refused, over what the
//! kernel accounts for anyway ([`USAGE`]).
//! Read first: [`LinuxHost`], then `bank`.
//!
//! **Invariant:** every event of this process is opened by a bank, for the engine; nothing goes around it.

mod bank;
mod debug_registers;
mod kernel_slots;
mod models;
mod opener;
mod passable;
mod scarce;
mod served;
mod usage_slots;
mod watching;

pub use bank::LinuxBank;
pub use models::{clock_attr, is_clock, machine_usage_attr, usage_attr};
pub use opener::Closing;
pub use passable::PassableFile;
pub use scarce::{CapacitySnapshot, Reach, capacity_key};
pub use watching::{EnableTime, PerThreadEvents, PerThreadReport, Registers};

use crate::affinity;
use crate::bpf::Map;
use crate::cgroup::Cgroup;
use crate::credentials::Openers;
use crate::ring::{BackwardRing, Ring, RingMemory};
use crate::shared::wire::TimedTotals;
use crate::spawn::Usage;
use crate::sys::{self, Errno};
use models::Models;
use opener::EventFile;
pub(crate) use opener::{FileCount, bytes_of};
use passable::PassableFiles;
use pmux_abi::attr::ReadFormat;
use pmux_abi::read::ReadLayout;
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::host::HostLocks;
use pmux_engine::hw_breakpoint::{DebugRegisters, Ledger};
use pmux_engine::pmu::{CgroupPath, Lease, PmuModel, PmuTable};
use pmux_engine::ring_buffer::OutOfMemory;
use pmux_engine::target::{ContextKey, Presence};
use pmux_engine::{CgroupId, CpuId, Engine, Host, LockCell, Nanos, PmuId, TaskId};
use scarce::ScarcePmus;
use served::{CachedSlots, Sharing};
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use watching::WatchPmus;

/// The PMU whose slots are kernel event fds; the kernel multiplexes, inherits and follows execs by itself.
pub const KERNEL: PmuId = PmuId(0);
/// The PMU whose slots are `/proc`, `wait4` and cgroup files.
pub const USAGE: PmuId = PmuId(1);

/// The engine on Linux.
pub type LinuxEngine = Engine<LinuxHost>;

/// A lock that sleeps. It doesn't ask whether a thread panics, which each reading would pay for twice.
pub struct SleepLock<T>(parking_lot::Mutex<T>);

impl<T: Send> LockCell<T> for SleepLock<T> {
    fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock())
    }
}

/// A panic while a lock was held leaves a value that the engine's own checks still cover.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether something counts, or is to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Switch {
    #[default]
    Off,
    On,
}

fn put<T>(slots: &mut Vec<Option<T>>, index: usize, value: T) {
    if slots.len() <= index {
        slots.resize_with(index + 1, || None);
    }
    slots[index] = Some(value);
}

#[derive(Default)]
struct Shared {
    cgroups: Mutex<HashMap<CgroupId, KnownCgroup>>,
    /// The next cgroup's number. Relaxed: nothing is published by it.
    next_cgroup: AtomicU64,
    /// Children of ours that were not reaped yet, whose usage is followed with all their descendants.
    commands: Mutex<HashSet<TaskId>>,
    /// First threads that stand for their whole process in what is opened now.
    processes: Mutex<HashSet<TaskId>>,
    /// What `wait4` said, for as long as a caller may ask.
    finals: Mutex<HashMap<TaskId, Usage>>,
    /// What children of ours had used when they executed their program, for as long.
    begun: Mutex<HashMap<TaskId, Usage>>,
    /// Fds that have more uses than counting: those that a ring can be mapped on, and those of whole CPUs; by who holds the slot.
    outputs: Mutex<HashMap<(ContextKey, Lease), Arc<EventFile>>>,
    /// Tasks that wait for their first exec: events that are started now are started by that.
    held: Mutex<HashSet<TaskId>>,
    /// The hardware PMUs whose counters the engine hands out.
    scarce: ScarcePmus,
    /// Breakpoints that write into rings.
    watching: WatchPmus,
    files: Arc<FileCount>,
    /// Processes that open events with the credentials of others.
    openers: Arc<Openers>,
    /// Who keeps counters for several processes.
    sharing: Sharing,
    /// What it shows of our events.
    cached: CachedSlots,
    passable: OnceLock<Mutex<PassableFiles>>,
    /// See [`LinuxHost::note_forks`]; 0: it is not noted.
    fork_tracepoint: AtomicU64,
    /// The kernel's last tick when a caller asked last, for callers for which one reading ago is soon enough. Relaxed: nothing is
    /// published by it.
    tick_ns: AtomicU64,
}

/// A cgroup, and how many have made it known.
struct KnownCgroup {
    cgroup: Cgroup,
    /// Where it is among the others, as far as the kernel says.
    path: Option<CgroupPath>,
    users: usize,
}

impl Shared {
    fn cgroup_path(&self, id: CgroupId) -> Option<CgroupPath> {
        lock(&self.cgroups).get(&id)?.path.clone()
    }
}

/// This machine.
pub struct LinuxHost {
    models: Models,
    shared: Arc<Shared>,
}

impl LinuxHost {
    /// The machine as it is.
    #[must_use]
    pub fn new() -> Self {
        let files = Arc::<FileCount>::default();
        let openers = Arc::new(Openers::new(Arc::clone(&files)));
        Self { models: Models::new(), shared: Arc::new(Shared { files, openers, ..Shared::default() }) }
    }

    /// An engine on this machine, over the CPUs that are online.
    #[must_use]
    pub fn engine(online: impl IntoIterator<Item = u32>) -> LinuxEngine {
        Engine::new(Self::new(), online.into_iter().map(CpuId).collect::<CpuMask>())
    }

    /// What the service has read of a slot last, since it was programmed, and when: from memory, without a system call. `None` where
    /// it keeps none such, or shows nothing of it.
    pub fn cached(&self, of: (ContextKey, Lease)) -> Option<TimedTotals> {
        self.shared.cached.moment(of)
    }

    /// The processes that open events with the credentials of others: what is opened in a domain with such credentials
    /// ([`pmux_engine::share::SharingScope::with_cred`]) is opened by them, whenever the engine opens it.
    #[must_use]
    pub fn openers(&self) -> &Arc<Openers> {
        &self.shared.openers
    }

    /// The task of a thread id. Ids of exited threads may come back; a caller that follows forks sees that in their order.
    #[must_use]
    pub fn task(tid: i32) -> TaskId {
        TaskId(u64::from(tid.unsigned_abs()))
    }

    /// Makes a cgroup known, so that events can be limited to it, until [`LinuxHost::remove_cgroup`] has been called as often.
    /// One that is known already keeps its number: events of the same cgroup can share.
    pub fn add_cgroup(&self, cgroup: Cgroup) -> CgroupId {
        let mut cgroups = lock(&self.shared.cgroups);
        let known = cgroups.iter_mut().find(|(_, known)| known.cgroup.is(&cgroup));
        if let Some((&id, known)) = known {
            known.users += 1;
            return id;
        }
        let id = CgroupId(self.shared.next_cgroup.fetch_add(1, Ordering::Relaxed));
        let path = cgroup.numbers_above().map(CgroupPath::from);
        cgroups.insert(id, KnownCgroup { cgroup, path, users: 1 });
        id
    }

    /// Lets go of a cgroup. Events that are open on it count on; once no caller knows it, none can be opened any more.
    pub fn remove_cgroup(&self, id: CgroupId) {
        let mut cgroups = lock(&self.shared.cgroups);
        if let Some(known) = cgroups.get_mut(&id) {
            known.users -= 1;
            if known.users == 0 {
                cgroups.remove(&id);
            }
        }
    }

    /// The name of a cgroup that is known.
    pub fn cgroup_name(&self, id: CgroupId) -> Option<String> {
        lock(&self.shared.cgroups).get(&id).map(|known| known.cgroup.name().to_owned())
    }

    /// From now on it is noted whether a task forks that an inheriting event is opened on, at the price of one more event of
    /// the kernel for each: as long as it doesn't, others can share the event. `fork` is the number of the tracepoint
    /// `sched:sched_process_fork`.
    pub fn note_forks(&self, fork: u64) {
        // Pairs with nothing: a thread that opens a moment later or earlier shares a moment later or earlier.
        self.shared.fork_tracepoint.store(fork, Ordering::Relaxed);
    }

    /// Says that a task is a child of ours: what its descendants use belongs to it.
    pub fn add_command(&self, task: TaskId) {
        // The number may have been another child's before.
        lock(&self.shared.finals).remove(&task);
        lock(&self.shared.begun).remove(&task);
        lock(&self.shared.commands).insert(task);
    }

    /// Brings what a child of ours had used when it executed its program.
    pub fn began(&self, task: TaskId, used: Usage) {
        if lock(&self.shared.commands).contains(&task) {
            lock(&self.shared.begun).insert(task, used);
        }
    }

    /// Brings what `wait4` said of a child of ours. From now on its number may be another task's.
    pub fn reaped(&self, task: TaskId, usage: Usage) {
        if lock(&self.shared.commands).remove(&task) {
            lock(&self.shared.finals).insert(task, usage);
        }
    }

    /// Says that a child of ours waits for its first exec: what is started of its scarce PMUs now begins with the exec.
    pub fn hold(&self, task: TaskId) {
        lock(&self.shared.held).insert(task);
    }

    /// The child has executed its program, or never will.
    pub fn executed(&self, task: TaskId) {
        lock(&self.shared.held).remove(&task);
    }

    /// How many events of the kernel this host has opened so far, and how many of them are closed again.
    #[must_use]
    pub fn kernel_events(&self) -> (u64, u64) {
        let files = &self.shared.files;
        let closed = files.closed.load(Ordering::Relaxed) + files.closing().closed;
        (files.opened.load(Ordering::Relaxed), closed)
    }

    /// From now on events that take long to close are closed by a thread, one after another: the thread that drops one does not wait.
    ///
    /// # Errors
    /// Those of starting a thread; then they are closed where they are dropped, as before.
    pub fn close_elsewhere(&self) -> std::io::Result<()> {
        self.shared.files.close_elsewhere()
    }

    /// How many events that thread was given, and how many of them are closed.
    #[must_use]
    pub fn closing(&self) -> Closing {
        self.shared.files.closing()
    }

    /// This process is about to exit: a child closes what takes long, so that its exit does not.
    pub fn leave_to_child(&self) {
        // The socket is closed by the exit.
        std::mem::forget(self.shared.files.leave_to_child());
    }

    /// Calls `open`, in which these tasks stand for their whole processes: all threads, also later ones.
    pub fn as_processes<R>(&self, tasks: &[TaskId], open: impl FnOnce() -> R) -> R {
        lock(&self.shared.processes).extend(tasks);
        let result = open();
        lock(&self.shared.processes).retain(|task| !tasks.contains(task));
        result
    }

    /// Maps a ring on an event that samples or records.
    ///
    /// # Errors
    /// `EBADF` where the event has no output; otherwise what `mmap(2)` says, `EPERM` first of all: the ring is larger
    /// than `perf_event_mlock_kb` allows.
    pub fn map_ring(&self, of: (ContextKey, Lease), data_pages: u32) -> Result<MappedRing, Errno> {
        let fd = self.output(of)?;
        let ring = Ring::map(fd.as_fd(), data_pages)?;
        Ok(MappedRing { ring, fd })
    }

    /// As [`LinuxHost::map_ring`], for a ring that overwrites what is oldest. The event is one that writes backward, and so are all
    /// that are led into its ring.
    ///
    /// # Errors
    /// As [`LinuxHost::map_ring`].
    pub fn map_backward_ring(&self, of: (ContextKey, Lease), data_pages: u32) -> Result<BackwardRing, Errno> {
        BackwardRing::map(self.output(of)?.as_fd(), data_pages)
    }

    /// Lets an event write into the ring of another one.
    ///
    /// # Errors
    /// `EBADF` where one of them has no output; `EINVAL` where they can't share a ring.
    pub fn redirect(&self, of: (ContextKey, Lease), to: (ContextKey, Lease)) -> Result<(), Errno> {
        sys::perf::set_output(self.output(of)?.as_fd(), self.output(to)?.as_fd())
    }

    /// The kernel's id of an event, as its records carry it.
    ///
    /// # Errors
    /// `EBADF` where the event has no output.
    pub fn kernel_id(&self, of: (ContextKey, Lease)) -> Result<u64, Errno> {
        sys::perf::id(self.output(of)?.as_fd())
    }

    /// How many records of an event, and of those who inherited it, found no room in their ring; `None` where the event was not
    /// asked for that ([`ReadFormat::LOST`], Linux 6.0), or is read with its group.
    ///
    /// # Errors
    /// `EBADF` where the event has no output; what `read(2)` says.
    pub fn lost_records(&self, of: (ContextKey, Lease), asked: ReadFormat) -> Result<Option<u64>, Errno> {
        let asked = asked | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        if !asked.contains(ReadFormat::LOST) || asked.contains(ReadFormat::GROUP) {
            return Ok(None);
        }
        let mut bytes = [0; 5 * 8];
        let read = sys::read(self.output(of)?.as_fd(), &mut bytes)?;
        let values = bytes.get(..read).and_then(|bytes| ReadLayout::new(asked).decode(bytes));
        Ok(values.and_then(|values| values.members.iter().next()?.lost))
    }

    /// Puts an event into a map, so that programs can write into its ring or, where it counts a CPU, read it. The map keeps it
    /// open until it is taken out again.
    ///
    /// # Errors
    /// `EBADF` where the event neither has output nor counts a CPU; `EINVAL` for another kind of map; `E2BIG` behind its end.
    pub fn lend(&self, of: (ContextKey, Lease), map: &Map, index: u32) -> Result<(), Errno> {
        map.set_event(index, self.output(of)?.as_fd())
    }

    fn output(&self, of: (ContextKey, Lease)) -> Result<Arc<EventFile>, Errno> {
        lock(&self.shared.outputs).get(&of).cloned().ok_or(Errno::EBADF)
    }
}

impl Default for LinuxHost {
    fn default() -> Self {
        Self::new()
    }
}

/// A ring with the event that it is mapped on.
pub struct MappedRing {
    /// The ring.
    pub ring: Ring,
    fd: Arc<EventFile>,
}

impl MappedRing {
    /// What to poll for: readable when the ring wants to be read.
    #[must_use]
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PmuTable for LinuxHost {
    fn pmu(&self, pmu: PmuId) -> Option<&dyn PmuModel> {
        let scarce = || self.shared.scarce.get(pmu).map(|pmu| pmu as &dyn PmuModel);
        let watched = || self.shared.watching.get(pmu).map(|pmu| pmu as &dyn PmuModel);
        self.models.get(pmu).or_else(scarce).or_else(watched)
    }
}

impl Host for LinuxHost {
    type IrqLock<T: Send> = SleepLock<T>;
    type TaskLock<T: Send> = SleepLock<T>;
    type BankLock<T: Send> = SleepLock<T>;
    type Bank = LinuxBank;
    type Pages = RingMemory;

    /// For records that this process writes: the kernel writes those of its events into rings of its own.
    fn alloc_ring(&self, data_bytes: usize) -> Result<RingMemory, OutOfMemory> {
        RingMemory::make(data_bytes).map_err(|_| OutOfMemory)
    }

    fn debug_registers(&self) -> Option<DebugRegisters> {
        debug_registers::of_this_machine(&self.shared)
    }

    fn shared_ledger(&self, registers: &DebugRegisters) -> Option<Arc<Ledger<HostLocks<Self>>>> {
        Some(debug_registers::ledger_of_this_process(registers))
    }

    fn now(&self) -> Nanos {
        Nanos(sys::clock::monotonic_ns())
    }

    fn recently(&self) -> Nanos {
        let tick_ns = sys::clock::monotonic_at_tick_ns();
        // Many readings fall into one tick, and not each of them takes the cache line away from the others.
        if self.shared.tick_ns.load(Ordering::Relaxed) != tick_ns {
            self.shared.tick_ns.store(tick_ns, Ordering::Relaxed);
        }
        Nanos(tick_ns)
    }

    fn bank(&self, key: ContextKey) -> LinuxBank {
        LinuxBank::new(key, Arc::clone(&self.shared))
    }

    /// The kernel switches tasks; a context is there for as long as it has events.
    fn presence(&self, _: ContextKey) -> Presence {
        Presence::In
    }

    fn is_still(&self, task: TaskId, since: Nanos) -> bool {
        let Ok(tid) = i32::try_from(task.0) else { return false };
        let suspended_ns = sys::clock::since_boot_ns().saturating_sub(sys::clock::monotonic_ns());
        tid == sys::current_tid()
            || crate::procfs::Proc::system().lives_since(tid, since.0.saturating_add(suspended_ns))
    }

    fn cgroup_path(&self, cgroup: CgroupId) -> Option<CgroupPath> {
        self.shared.cgroup_path(cgroup)
    }

    /// The kernel reaches another CPU's counters by interrupting it: several times the price of going there once.
    fn near(&self, cpu: CpuId, f: &mut dyn FnMut()) {
        affinity::on_cpu(cpu.0, f);
    }
}
