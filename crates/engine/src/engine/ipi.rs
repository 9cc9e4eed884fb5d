//! Calls to cores that are out of reach.
//!
//! What it is: steps that must be taken on another CPU wait in its core's call queue; the thread that sends one sends an IPI and
//! waits. An IPI that comes late makes the sender wait longer; one that comes twice or for nothing finds nothing.
//!
//! **Invariant:** a step is taken once or not at all, on the CPU where its counters are; its sender always learns which. The queue of a
//! CPU takes no call while that is offline, and none is left in it then.
//!
//! Linux: `event_function_call`, `cpu_function_call`, `smp_call_function_single` (kernel/events/core.c, kernel/smp.c).

use super::Engine;
use super::ctx_lock::ContextCell;
use crate::context::{Context, Step};
use crate::host::Host;
use crate::id::CpuId;
use crate::lock::LockCell;
use crate::target::ContextKey;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

pub(super) type Work = Box<dyn FnMut(&mut Context, Step<'_>) + Send>;

/// What is to be done on a core, with one of its contexts.
pub(super) enum RemoteOp {
    Step(Work),
    /// Its task is on the CPU: let it in.
    Enter,
    /// Let it go home.
    Leave,
}

/// Why a call was not carried out; with what it was about.
pub(super) enum NotDone {
    /// The context was not there any more.
    Missed(RemoteOp),
    /// The CPU is offline.
    Offline(RemoteOp),
}

/// Calls, in the order in which they came.
pub(super) struct CallQueue<H: Host> {
    /// Whether the CPU serves it. It changes while the counters of the CPU are held ([`ContextCell::pmu_guard`]).
    open: bool,
    sent: u64,
    calls: VecDeque<RemoteCall<H>>,
}

struct RemoteCall<H: Host> {
    ticket: u64,
    /// `None` while it is being carried out.
    what: Option<(Arc<ContextCell<H>>, RemoteOp)>,
    status: Status,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Waiting,
    Done,
    /// The context was not there any more.
    Missed,
}

impl<H: Host> Default for CallQueue<H> {
    fn default() -> Self {
        Self { open: false, sent: 0, calls: VecDeque::new() }
    }
}

impl<H: Host> CallQueue<H> {
    /// # Errors
    /// It comes back where the CPU is offline.
    fn put(&mut self, whose: Arc<ContextCell<H>>, op: RemoteOp) -> Result<u64, RemoteOp> {
        if !self.open {
            return Err(op);
        }
        self.sent += 1;
        let ticket = self.sent;
        self.calls.push_back(RemoteCall { ticket, what: Some((whose, op)), status: Status::Waiting });
        Ok(ticket)
    }

    /// The next call that no thread has opened.
    fn open(&mut self) -> Option<(u64, Arc<ContextCell<H>>, RemoteOp)> {
        self.calls.iter_mut().filter(|call| call.status == Status::Waiting).find_map(|call| {
            let (whose, op) = call.what.take()?;
            Some((call.ticket, whose, op))
        })
    }

    /// Puts a call back for its sender, which drops it: the handler of the IPI frees nothing, the context neither.
    fn answer(&mut self, ticket: u64, what: (Arc<ContextCell<H>>, RemoteOp), status: Status) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.ticket == ticket) {
            call.what = Some(what);
            call.status = status;
        }
    }

    /// Takes no more calls, if none waits; returns whether that is so.
    fn close(&mut self) -> bool {
        self.open &= self.calls.iter().any(|call| call.status == Status::Waiting);
        !self.open
    }

    fn is_answered(&self, ticket: u64) -> bool {
        self.calls.iter().all(|call| call.ticket != ticket || call.status != Status::Waiting)
    }

    fn fetch(&mut self, ticket: u64) -> Option<RemoteCall<H>> {
        let index = self.calls.iter().position(|call| call.ticket == ticket)?;
        self.calls.remove(index)
    }
}

impl<H: Host> ContextCell<H> {
    /// Has something done on this core, which is that of `cpu`, and waits for it.
    ///
    /// # Errors
    /// The op comes back, with the reason.
    pub(super) fn send(&self, host: &H, cpu: CpuId, whose: &Arc<Self>, op: RemoteOp) -> Result<(), NotDone> {
        let ticket = self.calls.with(|calls| calls.put(Arc::clone(whose), op)).map_err(NotDone::Offline)?;
        host.send_ipi(cpu);
        host.wait(&mut || self.calls.with(|calls| calls.is_answered(ticket)));
        match self.calls.with(|calls| calls.fetch(ticket)) {
            Some(RemoteCall { status: Status::Missed, what: Some((_, op)), .. }) => Err(NotDone::Missed(op)),
            _ => Ok(()),
        }
    }
}

impl<H: Host> ContextCell<H> {
    /// Whether the caller may touch the counters of this core: it is on its CPU, or that is offline and has none. While the guard is held
    /// that stays so, on a host where its lock keeps the caller on its CPU.
    pub(super) fn is_in_reach(&self, host: &H) -> bool {
        match self.key {
            ContextKey::Cpu(cpu) => host.reaches(cpu) || self.calls.with(|calls| !calls.open),
            ContextKey::Task(_) => true,
        }
    }

    /// The CPU of this core serves calls from now on.
    pub(super) fn open_queue(&self) {
        self.pmu_guard.with(|_| self.calls.with(|calls| calls.open = true));
    }

    /// It serves none any more, if none waits and no task is there; returns whether that is so.
    fn close_queue(&self) -> bool {
        self.pmu_guard.with(|_| self.place.with(|place| place.guest.is_none()) && self.calls.with(CallQueue::close))
    }
}

impl<H: Host> Engine<H> {
    /// A CPU goes offline: later calls come back to their senders. Called on that CPU.
    pub(super) fn stop_serving(&self, cpu: CpuId) {
        let Some(core) = self.core(cpu) else { return };
        while !core.close_queue() {
            self.handle_ipi(cpu);
            self.send_guest_home(cpu);
        }
    }

    /// Does what waits for this CPU. Called by the host on that CPU, some time after [`Host::send_ipi`]; once too often does no
    /// harm. It neither sleeps nor allocates.
    pub fn handle_ipi(&self, cpu: CpuId) {
        let Some(core) = self.core(cpu) else { return };
        while let Some((ticket, whose, mut op)) = core.calls.with(CallQueue::open) {
            let done = match &mut op {
                RemoteOp::Step(work) => {
                    core.transact(&self.host, &whose, |context, step| work(context, step), |(), _| ()).is_some()
                }
                RemoteOp::Enter => self.enter_here(cpu, &whose).unwrap_or(false),
                RemoteOp::Leave => self.leave_here(cpu, &whose),
            };
            let status = if done { Status::Done } else { Status::Missed };
            core.calls.with(|calls| calls.answer(ticket, (whose, op), status));
        }
    }
}
