//! Mail for cores that are out of reach.
//!
//! What it is: steps that must be taken on another CPU wait in its core's mailbox; the thread that sends one rings the doorbell and
//! waits. A doorbell that rings late makes the sender wait longer; one that rings twice or for nothing finds nothing.
//!
//! **Invariant:** a step is taken once or not at all, on the CPU where its counters are; its sender always learns which.
//!
//! Linux: `event_function_call`, `cpu_function_call`, `smp_call_function_single` (kernel/events/core.c, kernel/smp.c).

use super::Engine;
use super::ctx_lock::ContextCell;
use crate::context::{Context, Step};
use crate::host::Host;
use crate::id::CpuId;
use crate::lock::LockCell;
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

/// Letters, in the order in which they came.
pub(super) struct CallQueue<H: Host> {
    sent: u64,
    letters: VecDeque<RemoteCall<H>>,
}

struct RemoteCall<H: Host> {
    ticket: u64,
    whose: Arc<ContextCell<H>>,
    /// `None` while it is being carried out.
    errand: Option<RemoteOp>,
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
        Self { sent: 0, letters: VecDeque::new() }
    }
}

impl<H: Host> CallQueue<H> {
    fn put(&mut self, whose: Arc<ContextCell<H>>, errand: RemoteOp) -> u64 {
        self.sent += 1;
        let ticket = self.sent;
        self.letters.push_back(RemoteCall { ticket, whose, errand: Some(errand), status: Status::Waiting });
        ticket
    }

    /// The next letter that no thread has opened.
    fn open(&mut self) -> Option<(u64, Arc<ContextCell<H>>, RemoteOp)> {
        self.letters.iter_mut().filter(|letter| letter.status == Status::Waiting).find_map(|letter| {
            let errand = letter.errand.take()?;
            Some((letter.ticket, Arc::clone(&letter.whose), errand))
        })
    }

    /// Puts a letter back for its sender, who throws it away: nothing is freed where the doorbell rings.
    fn answer(&mut self, ticket: u64, errand: RemoteOp, status: Status) {
        if let Some(letter) = self.letters.iter_mut().find(|letter| letter.ticket == ticket) {
            letter.errand = Some(errand);
            letter.status = status;
        }
    }

    fn is_answered(&self, ticket: u64) -> bool {
        self.letters.iter().all(|letter| letter.ticket != ticket || letter.status != Status::Waiting)
    }

    fn fetch(&mut self, ticket: u64) -> Option<RemoteCall<H>> {
        let index = self.letters.iter().position(|letter| letter.ticket == ticket)?;
        self.letters.remove(index)
    }
}

impl<H: Host> ContextCell<H> {
    /// Has something done on this core, which is that of `cpu`, and waits for it.
    ///
    /// # Errors
    /// The errand comes back where the context was not there any more.
    pub(super) fn send(&self, host: &H, cpu: CpuId, whose: &Arc<Self>, errand: RemoteOp) -> Result<(), RemoteOp> {
        let ticket = self.mail.with(|mail| mail.put(Arc::clone(whose), errand));
        host.send_ipi(cpu);
        host.wait(&mut || self.mail.with(|mail| mail.is_answered(ticket)));
        match self.mail.with(|mail| mail.fetch(ticket)) {
            Some(RemoteCall { status: Status::Missed, errand: Some(errand), .. }) => Err(errand),
            _ => Ok(()),
        }
    }
}

impl<H: Host> Engine<H> {
    /// Does what waits for this CPU. Called by the host on that CPU, some time after [`Host::send_ipi`]; once too often does no
    /// harm. It neither sleeps nor allocates.
    pub fn handle_ipi(&self, cpu: CpuId) {
        let Some(core) = self.core(cpu) else { return };
        while let Some((ticket, whose, mut errand)) = core.mail.with(CallQueue::open) {
            let done = match &mut errand {
                RemoteOp::Step(work) => {
                    core.transact(&self.host, &whose, |context, step| work(context, step), |(), _| ()).is_some()
                }
                RemoteOp::Enter => self.enter_here(cpu, &whose),
                RemoteOp::Leave => self.leave_here(cpu, &whose),
            };
            let status = if done { Status::Done } else { Status::Missed };
            core.mail.with(|mail| mail.answer(ticket, errand, status));
        }
    }
}
