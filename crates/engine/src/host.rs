//! What a host supplies beside its PMUs: locks, time, CPUs.
//!
//! What it is: the boundary of the engine. See [`crate::pmu`] for the counters.
//!
//! **Invariant:** every trait here can be implemented without `unsafe`. Which lock is taken before which: [`crate::lock`].

use crate::hw_breakpoint::{DebugRegisters, Ledger, Locks};
use crate::id::{CgroupId, CpuId, Nanos, TaskId};
pub use crate::lock::{LockCell, Rank};
use crate::pmu::{CgroupPath, CounterBank, PmuTable};
use crate::ring_buffer::{OutOfMemory, RingPages};
use crate::target::{ContextKey, Presence};
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU32;

/// The locks of a host, for its ledger.
pub struct HostLocks<H>(PhantomData<fn() -> H>);

impl<H: Host> Locks for HostLocks<H> {
    type Cell<T: Send> = H::TaskLock<T>;
    type Word = AtomicU32;
}

/// A machine that the engine runs on.
pub trait Host: PmuTable + Send + Sync {
    /// Guards what interrupts reach; short, never blocks.
    type IrqLock<T: Send>: LockCell<T>;
    /// Guards what only tasks reach; may sleep.
    type TaskLock<T: Send>: LockCell<T>;
    /// Guards a bank. A host that calls [`crate::Engine::switch`] or [`crate::Engine::tick`] from where it may not sleep
    /// supplies a lock that spins.
    type BankLock<T: Send>: LockCell<T>;
    /// The counters of one context, or of one CPU.
    type Bank: CounterBank;
    /// The memory of a ring, for its writer and its readers.
    type Pages: RingPages + 'static;

    /// Memory for a ring of so many bytes of records, a power of two; all 0. Called by a task that opens events, without a lock.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn alloc_ring(&self, data_bytes: usize) -> Result<Self::Pages, OutOfMemory>;

    /// How many CPUs have counters that their own events and those of the tasks on them share: all that may ever be
    /// there, by number from 0. None (the default) where switching is left to a kernel below.
    fn cpus(&self) -> u32 {
        0
    }

    /// The debug registers of its CPUs, where an account of them is to be kept; the host may try them out to learn how many there
    /// are. Asked once, when the first event claims one, without a lock but a set's turn.
    fn debug_registers(&self) -> Option<DebugRegisters> {
        None
    }

    /// The account of these registers that all engines of the machine share, where there may be several: then each knows what
    /// the others hold. By default each engine keeps its own. Asked once, behind [`Host::debug_registers`].
    fn shared_ledger(&self, registers: &DebugRegisters) -> Option<Arc<Ledger<HostLocks<Self>>>>
    where
        Self: Sized,
    {
        let _ = registers;
        None
    }

    /// The monotonic clock.
    fn now(&self) -> Nanos;

    /// What the monotonic clock showed a moment ago, some milliseconds at most; never more than it shows now. For those who note
    /// when they read something, and read often: a host that knows it for less than [`Host::now`] says so here.
    fn recently(&self) -> Nanos {
        self.now()
    }

    /// Makes the counters that serve a context.
    ///
    /// On a host with [`Host::cpus`] the bank of a CPU holds its registers (the slots of PMUs where those are scarce), and
    /// the bank of a task only what follows the task (slots that are plenty): memory, which can be reached from anywhere.
    /// Banks of CPUs are made once, with the engine.
    ///
    /// What it makes is dropped when the context has no event left, or at once
    /// where two threads made it. Called, and dropped, outside the registry's, the bank's and the context's lock.
    fn bank(&self, key: ContextKey) -> Self::Bank;

    /// Whether the task of a new context is on a CPU at this moment (or the CPU is online). A host that leaves
    /// switching to the kernel below it always says [`Presence::In`]. Called outside the registry's, the bank's and the
    /// context's lock.
    ///
    /// A task that is [`Presence::On`] one of [`Host::cpus`] shares that CPU's counters.
    ///
    /// It may be asked while the task is being switched: a host says the new state here before it tells the engine
    /// ([`crate::Engine::switch`]).
    fn presence(&self, key: ContextKey) -> Presence;

    /// Whether a task is still the one that had its number at `since`; by default it is. A host whose numbers come back says so
    /// when they have, or when there is no such task any more: then a new event does not share with one that was opened on the
    /// task before. Called without a lock but a share's turn, or that of a set and of
    /// hotplug.
    fn is_still(&self, task: TaskId, since: Nanos) -> bool {
        let _ = (task, since);
        true
    }

    /// Where a cgroup is among the others, so that those of which neither holds the other need not compete for counters that are
    /// handed out below the engine ([`crate::pmu::Delegated::PLACEMENT`]). `None` (the default): that is not known, and its events
    /// compete with all others. Asked when a group is opened, without a lock but a set's, a share's or a family's turn.
    fn cgroup_path(&self, cgroup: CgroupId) -> Option<CgroupPath> {
        let _ = cgroup;
        None
    }

    /// Runs `f` where counters of `cpu` are cheap to reach; by default just where the caller is.
    ///
    /// It is a hint: a host that can't move the caller runs `f` all the same. `f` calls the host again.
    fn near(&self, cpu: CpuId, f: &mut dyn FnMut()) {
        let _ = cpu;
        f();
    }

    /// Whether the caller may touch the registers of `cpu` from where it is; by default it may. The engine asks with the lock of the bank
    /// held, too: where that keeps the caller on its CPU, as a lock does that turns interrupts off, a task may be moved at any other time.
    fn reaches(&self, cpu: CpuId) -> bool {
        let _ = cpu;
        true
    }

    /// Sends an IPI to a CPU that the caller does not reach: some time later the host calls
    /// [`crate::Engine::handle_ipi`] there. It may come late, twice, and for nothing. Called without a lock.
    fn send_ipi(&self, cpu: CpuId) {
        let _ = cpu;
    }

    /// Waits until `done` says so; IPIs are served meanwhile. Called by tasks only, without a lock but a set's or
    /// a family's turn. `done` does not call the host.
    fn wait(&self, done: &mut dyn FnMut() -> bool) {
        while !done() {
            core::hint::spin_loop();
        }
    }
}
