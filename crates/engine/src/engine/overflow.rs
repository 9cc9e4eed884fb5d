//! Overflows: who may be told.
//!
//! What it is: the gate between a counter that overflowed and the callback of the client that opened it.
//!
//! **Invariant:** no client is called for an event that is not complete: not before all of its group or set is armed, not after it
//! was closed. Such an overflow is dropped and counted ([`Engine::strays`]).
//!
//! Linux: `__perf_event_overflow`, `perf_event_overflow` (kernel/events/core.c).

use super::{Armed, Engine, EventRecord, Gate, RootCount};
use crate::event::{Event, EventState};
use crate::host::Host;
use crate::id::EventId;
use crate::lock::LockCell;
use crate::ring_buffer::Output;
use alloc::sync::Arc;

/// What to do with an overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overflow {
    /// Tell the client that opened the event.
    Deliver,
    /// The event's set was not armed everywhere yet: a stray, to be dropped. It has been counted.
    Premature,
    /// The event is closed, or disabled in its task and in all children: dropped and counted.
    Stale,
}

impl<H: Host> Engine<H> {
    /// Judges an overflow that the host has seen. A host whose counters interrupt brings it here from a task: the look-up
    /// may sleep.
    pub fn overflow(&self, event: EventId) -> Overflow {
        self.judge(event).0
    }

    /// The same; and where the event's records go.
    pub(super) fn judge(&self, event: EventId) -> (Overflow, Option<Arc<dyn Output>>) {
        let found = self.registry.with(|registry| {
            let record = registry.events.get(event)?;
            let open = match record.gate {
                Gate::Open => true,
                Gate::Closed => false,
                Gate::With(set) => registry.sets.get(set).is_some_and(|set| set.armed == Armed::Yes),
            };
            Some((record.clone(), open))
        });
        let (delivery, output) = match found {
            None => (Overflow::Stale, None),
            Some((record, false)) => (Overflow::Premature, record.output),
            Some((record, true)) => {
                let delivery = if self.is_on_anywhere(&record) { Overflow::Deliver } else { Overflow::Stale };
                (delivery, record.output)
            }
        };
        if delivery != Overflow::Deliver {
            self.registry.with(|registry| registry.stray += 1);
        }
        (delivery, output)
    }

    /// Whether an event is on, or is so in a child that the engine counts for it: what a child samples is its root's. One in error is
    /// on, too: it has no counter, but its children may have theirs. An exec may have enabled it in a child only.
    pub(super) fn is_on_anywhere(&self, record: &EventRecord<H>) -> bool {
        let state = |record: &EventRecord<H>| {
            let member = record.fast_read().member;
            record.fast_read().cell.look(self, |context| context.member(member).map(Event::state))
        };
        let is_on = |record: &EventRecord<H>| state(record).is_some_and(|state| state != EventState::Off);
        let root_count = || record.root_count.and_then(RootCount::by_engine);
        is_on(record) || root_count().is_some_and(|(family, index)| self.in_children(family, index).iter().any(is_on))
    }

    /// How many overflows were dropped because no client could be told.
    pub fn strays(&self) -> u64 {
        self.registry.with(|registry| registry.stray)
    }
}
