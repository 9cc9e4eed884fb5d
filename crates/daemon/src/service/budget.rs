//! What a user holds, with all its clients together.
//!
//! What it is: [`Charge`], what is held; [`User`], one user's account.
//!
//! **Invariant:** a charge is given back when what it stands for has been closed, and not when its client says that it needs it no more.

use super::client::Rate;
use super::{Rules, errno};
use pmux::abi::{Attr, AttrFlags};
use pmux::server_api::shared::wire::{Refusal, RefusalKind};
use std::collections::VecDeque;

/// Descriptors of a connection: its socket, and the file of its page while that is passed.
const FILES_OF_CLIENT: u64 = 2;
/// Descriptors of a subscription beside its events: two files of its ring, two ends of its bell, and a set to wait for.
pub(super) const FILES_OF_STREAM: u64 = 5;
const KIB: u64 = 1024;

/// What a client or a user holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Charge {
    /// Events of the kernel, as if no other client asked for the same.
    pub events: u32,
    /// Descriptors of the service, likewise.
    pub files: u64,
    /// Bytes of rings that clients map.
    pub ring_bytes: u64,
    /// Bytes of the kernel's rings behind them, likewise.
    pub kernel_ring_bytes: u64,
}

impl Charge {
    pub(super) fn of_group(attrs: &[Attr]) -> Self {
        // Beside an event that children inherit, forks are counted.
        let inherit = attrs.iter().filter(|attr| attr.flags.contains(AttrFlags::INHERIT)).count();
        let events = u32::try_from(attrs.len()).unwrap_or(u32::MAX);
        Self { events, files: (attrs.len() + inherit) as u64, ..Self::default() }
    }

    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_add(other.events),
            files: self.files.saturating_add(other.files),
            ring_bytes: self.ring_bytes.saturating_add(other.ring_bytes),
            kernel_ring_bytes: self.kernel_ring_bytes.saturating_add(other.kernel_ring_bytes),
        }
    }

    pub(super) const fn less(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_sub(other.events),
            files: self.files.saturating_sub(other.files),
            ring_bytes: self.ring_bytes.saturating_sub(other.ring_bytes),
            kernel_ring_bytes: self.kernel_ring_bytes.saturating_sub(other.kernel_ring_bytes),
        }
    }
}

/// What a user takes of its budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Connections.
    pub clients: u32,
    /// What they hold, with the descriptors of the connections themselves.
    pub held: Charge,
    /// Events that are still being closed, each with a descriptor.
    pub closing: u32,
    /// Whether requests wait because all its clients together have sent too many.
    pub waits: bool,
    /// Whether it has a budget; root and the service's own user have none.
    pub bound: bool,
}

pub(super) struct User {
    /// Connections, those among them whose events are still being closed.
    pub(super) clients: u32,
    pub(super) charge: Charge,
    pub(super) rate: Rate,
    /// Events that a thread closes: how many, and what that thread has done when they are closed.
    closing: VecDeque<(u32, u64)>,
}

impl User {
    pub(super) fn new(rules: &Rules, now_ns: u64) -> Self {
        let rate = Rate::new(rules.limits.requests_per_second_per_user, now_ns);
        Self { clients: 0, charge: Charge::default(), rate, closing: VecDeque::new() }
    }

    /// Events of this user went to the thread that closes.
    pub(super) fn closes_later(&mut self, events: u64, done_at: u64) {
        if events > 0 {
            self.closing.push_back((u32::try_from(events).unwrap_or(u32::MAX), done_at));
        }
    }

    /// How many events are not closed yet; that thread has closed so many since the start.
    pub(super) fn closing(&mut self, closed: u64) -> u32 {
        while self.closing.front().is_some_and(|&(_, at)| at <= closed) {
            self.closing.pop_front();
        }
        self.still_closing(closed)
    }

    fn still_closing(&self, closed: u64) -> u32 {
        let open = self.closing.iter().filter(|&&(_, at)| at > closed);
        open.fold(0, |sum, &(events, _)| sum.saturating_add(events))
    }

    pub(super) fn usage(&self, bound: bool, closed: u64, now_ns: u64) -> Usage {
        let held = Charge { files: self.files(), ..self.charge };
        let waits = bound && self.rate.ready_at(now_ns).is_some();
        Usage { clients: self.clients, held, closing: self.still_closing(closed), waits, bound }
    }

    pub(super) fn is_empty(&mut self, closed: u64) -> bool {
        self.clients == 0 && self.closing(closed) == 0
    }

    pub(super) fn files(&self) -> u64 {
        self.charge.files + u64::from(self.clients) * FILES_OF_CLIENT
    }

    /// Whether so much more fits. The last `closed` events of the thread that closes are closed.
    ///
    /// # Errors
    /// A refusal that names the limit.
    pub(super) fn fits(&mut self, more: Charge, rules: &Rules, closed: u64) -> Result<(), Refusal> {
        let limits = &rules.limits;
        let closing = self.closing(closed);
        let all = self.charge.plus(more);
        let events = u64::from(all.events.saturating_add(closing));
        let files = self.files() + more.files + u64::from(closing);
        for (what, key, asked, most) in [
            ("events", "events_per_user", events, u64::from(limits.events_per_user)),
            ("open files of the service", "files_per_user", files, rules.files_per_user()),
            ("KiB of rings", "rings_kib_per_user", all.ring_bytes.div_ceil(KIB), limits.rings_kib_per_user.into()),
        ] {
            if asked > most {
                let closing = match closing {
                    0 => String::new(),
                    some => format!("; {some} events are still being closed"),
                };
                let text = format!(
                    "all clients of a user together may have {most} {what} (`limits.{key}` in the service's configuration){closing}"
                );
                return Err(Refusal::new(RefusalKind::Limit, 0, errno::EMFILE, text));
            }
        }
        Ok(())
    }
}
