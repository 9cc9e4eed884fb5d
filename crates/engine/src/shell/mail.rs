//! Mail for cores that are out of reach.
//!
//! What it is: steps that must be taken on another CPU wait in its core's mailbox; whoever sends one rings the doorbell
//! and waits. A doorbell that rings late makes the sender wait longer; one that rings twice or for nothing finds nothing.
//!
//! **Invariant:** a step is taken once or not at all, on the CPU where its counters are; its sender always learns which.

use super::Engine;
use super::cell::ContextCell;
use crate::context::{Context, Step};
use crate::host::{Host, LockCell};
use crate::id::CpuId;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

pub(super) type Work = Box<dyn FnMut(&mut Context, Step<'_>) + Send>;

/// What is to be done on a core, with one of its contexts.
pub(super) enum Errand {
    Step(Work),
    /// Its task is on the CPU: let it in.
    Enter,
    /// Let it go home.
    Leave,
}

/// Letters, in the order in which they came.
pub(super) struct Mailbox<H: Host> {
    sent: u64,
    letters: VecDeque<Letter<H>>,
}

struct Letter<H: Host> {
    ticket: u64,
    whose: Arc<ContextCell<H>>,
    /// `None` while it is being carried out.
    errand: Option<Errand>,
    status: Status,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Waiting,
    Done,
    /// The context was not there any more.
    Missed,
}

impl<H: Host> Default for Mailbox<H> {
    fn default() -> Self {
        Self { sent: 0, letters: VecDeque::new() }
    }
}

impl<H: Host> Mailbox<H> {
    fn put(&mut self, whose: Arc<ContextCell<H>>, errand: Errand) -> u64 {
        self.sent += 1;
        let ticket = self.sent;
        self.letters.push_back(Letter { ticket, whose, errand: Some(errand), status: Status::Waiting });
        ticket
    }

    /// The next letter that nobody has opened.
    fn open(&mut self) -> Option<(u64, Arc<ContextCell<H>>, Errand)> {
        self.letters.iter_mut().filter(|letter| letter.status == Status::Waiting).find_map(|letter| {
            let errand = letter.errand.take()?;
            Some((letter.ticket, Arc::clone(&letter.whose), errand))
        })
    }

    /// Puts a letter back for its sender, who throws it away: nothing is freed where the doorbell rings.
    fn answer(&mut self, ticket: u64, errand: Errand, status: Status) {
        if let Some(letter) = self.letters.iter_mut().find(|letter| letter.ticket == ticket) {
            letter.errand = Some(errand);
            letter.status = status;
        }
    }

    fn is_answered(&self, ticket: u64) -> bool {
        self.letters.iter().all(|letter| letter.ticket != ticket || letter.status != Status::Waiting)
    }

    fn fetch(&mut self, ticket: u64) -> Option<Letter<H>> {
        let index = self.letters.iter().position(|letter| letter.ticket == ticket)?;
        self.letters.remove(index)
    }
}

impl<H: Host> ContextCell<H> {
    /// Has something done on this core, which is that of `cpu`, and waits for it.
    ///
    /// # Errors
    /// The errand comes back where the context was not there any more.
    pub(super) fn send(&self, host: &H, cpu: CpuId, whose: &Arc<Self>, errand: Errand) -> Result<(), Errand> {
        let ticket = self.mail.with(|mail| mail.put(Arc::clone(whose), errand));
        host.kick(cpu);
        host.wait(&mut || self.mail.with(|mail| mail.is_answered(ticket)));
        match self.mail.with(|mail| mail.fetch(ticket)) {
            Some(Letter { status: Status::Missed, errand: Some(errand), .. }) => Err(errand),
            _ => Ok(()),
        }
    }
}

impl<H: Host> Engine<H> {
    /// Does what waits for this CPU. Called by the host on that CPU, some time after [`Host::kick`]; once too often does no
    /// harm. It neither sleeps nor allocates.
    pub fn doorbell(&self, cpu: CpuId) {
        let Some(core) = self.core(cpu) else { return };
        while let Some((ticket, whose, mut errand)) = core.mail.with(Mailbox::open) {
            let done = match &mut errand {
                Errand::Step(work) => {
                    core.transact(&self.host, &whose, |context, step| work(context, step), |(), _| ()).is_some()
                }
                Errand::Enter => self.enter_here(cpu, &whose),
                Errand::Leave => self.leave_here(cpu, &whose),
            };
            let status = if done { Status::Done } else { Status::Missed };
            core.mail.with(|mail| mail.answer(ticket, errand, status));
        }
    }
}
