//! An event as a member of a context.
//!
//! What it is: state, lease and count of one event; every change of state settles the times first.
//!
//! **Invariant:** `running <= enabled`, and both only grow until the event is closed.
//!
//! Linux: `struct perf_event`, `perf_event_update_time` (kernel/events/core.c).

use super::{EventState, OnExec};
use crate::count::{Count, register_delta};
use crate::id::{FamilyId, Nanos};
use crate::pmu::{BankError, Delegated, EventSpec, Lease, OverflowBy, PmuCaps, SlotReading, SlotTime};
use crate::target::{Filter, GroupKey};
use alloc::sync::Arc;
use pmux_abi::attr::AttrFlags;

/// The place of an event in a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lineage {
    /// The family.
    pub family: FamilyId,
    /// Which of the family's events it is.
    pub index: usize,
}

/// One new event for [`crate::context::Context::attach`].
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// What it counts.
    pub spec: Arc<EventSpec>,
    /// What its PMU can do.
    pub caps: PmuCaps,
    /// The family it reports to.
    pub lineage: Option<Lineage>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It was not given a slot, or its slot was not programmed or started. It goes when the event is on a counter again,
    /// or disabled.
    Refused(BankError),
    /// Its slot could not be read. It goes with the next reading.
    Unread(BankError),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// Its context is there, and the leader of its group is enabled.
    Runs,
    /// One of them is not.
    Stands,
}

/// What becomes of a wish that an event counts something else.
#[derive(Clone, Default, Debug)]
pub(crate) enum ModifyState {
    /// It does, or there was no such wish.
    #[default]
    Done,
    /// The bank has not answered yet; this is what it counted before.
    UnderWay(Arc<EventSpec>),
    /// It counts what it counted.
    Refused(BankError),
}

/// One event of a context.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its group.
    pub group: GroupKey,
    /// What it counts. It is long, looked at when a slot is programmed only, and the same in all children.
    pub spec: Arc<EventSpec>,
    /// When it counts.
    pub filter: Filter,
    /// Whether an exec enables it.
    pub on_exec: OnExec,
    /// The family it reports to.
    pub lineage: Option<Lineage>,
    /// Its right to a slot, from the moment that the slot is planned for it.
    pub lease: Option<Lease>,
    /// The slot that the bank has been told to program; orders that are still under way make the two differ.
    pub(crate) programmed: Option<Lease>,
    /// The slot that `seen` was read from.
    counted: Option<Lease>,
    pub(crate) fault: Option<Fault>,
    pub(crate) change: ModifyState,
    caps: PmuCaps,
    state: EventState,
    /// Until when times are settled.
    settled: Nanos,
    waited: Nanos,
    last: Last,
}

/// What an event has counted as of its last reading.
#[derive(Clone, Copy, Debug)]
pub struct Last {
    /// The count.
    pub count: Count,
    /// The reading of its slot that the count is up to date with.
    pub reading: SlotReading,
    /// When it was read.
    pub at: Nanos,
    /// See [`Event::contended`].
    pub contended: Nanos,
}

impl Event {
    /// A new event, off.
    #[must_use]
    pub fn new(new: &NewEvent, group: GroupKey, filter: Filter, now: Nanos) -> Self {
        let NewEvent { ref spec, caps, lineage } = *new;
        let on_exec = if spec.attr.flags.contains(AttrFlags::ENABLE_ON_EXEC) { OnExec::Enable } else { OnExec::Keep };
        Self {
            group,
            spec: Arc::clone(spec),
            filter,
            on_exec,
            lineage,
            lease: None,
            programmed: None,
            counted: None,
            fault: None,
            change: ModifyState::Done,
            caps,
            state: EventState::Off,
            settled: now,
            waited: Nanos::ZERO,
            last: Last {
                count: Count::default(),
                reading: SlotReading { raw: 0, time: SlotTime::Whole },
                at: now,
                contended: Nanos::ZERO,
            },
        }
    }

    /// Where it is in its life.
    #[must_use]
    pub const fn state(&self) -> EventState {
        self.state
    }

    /// What its PMU can do.
    #[must_use]
    pub const fn caps(&self) -> &PmuCaps {
        &self.caps
    }

    /// Whether its PMU does `what` by itself.
    #[must_use]
    pub const fn delegates(&self, what: Delegated) -> bool {
        self.caps.delegated.contains(what)
    }

    /// The count as of the last reading, and when that was.
    #[must_use]
    pub const fn cached(&self) -> (Count, Nanos) {
        (self.last.count, self.last.at)
    }

    /// The same with the reading that it comes from.
    #[must_use]
    pub const fn last(&self) -> Last {
        self.last
    }

    /// The same, had it been told of this reading of the slot that it counts with; nothing but [`Event::last`] where it knows of
    /// that or of a later one.
    pub(crate) fn last_with(&self, lease: Lease, reading: SlotReading, at: Nanos) -> Last {
        let key = |reading: SlotReading| match reading.time {
            SlotTime::Measured { enabled, .. } => (Some(enabled), reading.raw),
            // Its beginning: also a reading of nothing says more.
            SlotTime::Whole => (None, reading.raw),
        };
        let mut last = self.last;
        if self.counts_with(lease) && key(reading) > key(last.reading) {
            last.fold(&self.caps, reading, at);
        }
        last
    }

    /// How long it was enabled without being on a slot.
    #[must_use]
    pub const fn waited(&self) -> Nanos {
        self.waited
    }

    /// Whether its readings say for how long it ran.
    const fn is_timed_below(&self) -> bool {
        is_timed_below(&self.caps)
    }

    /// How long its slot was started and yet did not run: a holder that the engine doesn't know had the counter.
    ///
    /// Only banks that measure ([`SlotTime::Measured`]) under a PMU that doesn't delegate multiplexing can tell.
    #[must_use]
    pub const fn contended(&self) -> Nanos {
        self.last.contended
    }

    /// Why it is in error, why it could not be put on a counter, or why its counter could not be read.
    #[must_use]
    pub const fn fault(&self) -> Option<BankError> {
        match self.fault {
            Some(Fault::Refused(error) | Fault::Unread(error)) => Some(error),
            None => None,
        }
    }

    /// The count, as far as it can be relied on.
    ///
    /// # Errors
    /// Why it is in error, or why its counter could not be read.
    pub const fn reading(&self) -> Result<Count, BankError> {
        match (self.state, self.fault) {
            (EventState::Error, Some(Fault::Refused(error))) | (_, Some(Fault::Unread(error))) => Err(error),
            (EventState::Error, None) => Err(BankError::Unscheduled),
            _ => Ok(self.last.count),
        }
    }

    /// Moves to another state; the times must be settled.
    pub(crate) fn set_state(&mut self, next: EventState) {
        let leaves_error = self.state == EventState::Error && next != EventState::Error;
        if leaves_error || matches!(next, EventState::Active | EventState::Off) {
            self.fault = None;
        }
        self.state = next;
    }

    /// Lets the times grow up to `now`. For the time on a slot, readings of the bank may say it better.
    pub(crate) fn settle(&mut self, now: Nanos, clock: Clock) {
        let passed = now.since(self.settled);
        self.settled = self.settled.max(now);
        if clock == Clock::Stands {
            return;
        }
        match self.state {
            EventState::Inactive => {
                self.waited += passed;
                self.last.count.enabled += passed;
            }
            EventState::Active if !self.is_timed_below() => {
                self.last.count.enabled += passed;
                self.last.count.running += passed;
            }
            _ => {}
        }
    }

    /// What a register is to start from. One that interrupts when it wraps does so after half of its range: then the
    /// engine reads it before it can have gone round, though the interrupt be late.
    pub(crate) const fn start(&self) -> u64 {
        match (self.caps.overflow, self.caps.width_bits) {
            (OverflowBy::Interrupt | OverflowBy::Nmi, width @ 1..64) => 1 << (width - 1),
            _ => 0,
        }
    }

    /// Counts from a fresh slot from now on.
    ///
    /// Called when the bank has answered, not when the slot is planned: the last reading of the slot before comes in
    /// between.
    pub(crate) fn begin(&mut self, lease: Lease) {
        // Where the bank measures, its times begin with the slot.
        self.last.reading = SlotReading { raw: self.start(), time: SlotTime::Whole };
        self.counted = Some(lease);
    }

    /// Whether this is the slot that it counts with, or counted with last.
    pub(crate) fn counts_with(&self, lease: Lease) -> bool {
        self.counted == Some(lease)
    }

    /// Goes on with a running slot, from what it holds now.
    pub(crate) fn take_over(&mut self, lease: Lease, reading: SlotReading) {
        self.last.reading = reading;
        self.counted = Some(lease);
    }

    /// Adds what happened since the last reading of that slot; a reading of another one says nothing.
    pub(crate) fn fold(&mut self, lease: Lease, reading: SlotReading, now: Nanos) {
        if self.counted != Some(lease) {
            return;
        }
        self.last.fold(&self.caps, reading, now);
        if matches!(self.fault, Some(Fault::Unread(_))) {
            self.fault = None;
        }
    }

    /// The slot that it counts with, if whatever later readings of that slot bring just adds to its count: nothing is wrong, the
    /// slot tells for how long it ran and never wraps, and no other event's count belongs to it.
    pub(crate) fn grows_with(&self) -> Option<Lease> {
        let simple = self.is_timed_below() && self.caps.width_bits >= 64 && self.lineage.is_none();
        // Where it waits for a slot, time goes by that no slot knows of.
        let sound = self.fault.is_none() && matches!(self.state, EventState::Active | EventState::Off);
        let lease = self.lease.filter(|_| simple && sound)?;
        (self.counted == Some(lease) && self.programmed == Some(lease)).then_some(lease)
    }

    /// Forgets what was counted; times stay, as they do on Linux.
    pub(crate) fn reset(&mut self) {
        self.last.count.value = 0;
    }
}

/// Whether readings say for how long a slot ran.
const fn is_timed_below(caps: &PmuCaps) -> bool {
    caps.delegated.intersects(Delegated::MULTIPLEXING.union(Delegated::TIMES))
}

impl Last {
    /// Adds what happened since the last reading of the same slot.
    fn fold(&mut self, caps: &PmuCaps, reading: SlotReading, now: Nanos) {
        self.count.value =
            self.count.value.wrapping_add(register_delta(caps.width_bits, self.reading.raw, reading.raw));
        if let SlotTime::Measured { enabled, running } = reading.time {
            let (enabled_before, running_before) = match self.reading.time {
                SlotTime::Measured { enabled, running } => (enabled, running),
                SlotTime::Whole => (Nanos::ZERO, Nanos::ZERO),
            };
            let (enabled, running) = (enabled.since(enabled_before), running.since(running_before));
            // It was started, and yet another holder had its counter.
            let away = enabled.since(running);
            if !caps.delegated.contains(Delegated::MULTIPLEXING) {
                self.contended += away;
            }
            if is_timed_below(caps) {
                self.count.enabled += enabled;
                self.count.running += running;
            } else {
                self.count.running = self.count.running.since(away);
            }
        }
        self.reading = reading;
        self.at = self.at.max(now);
    }
}
